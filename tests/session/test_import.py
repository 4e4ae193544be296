"""``import gpulab`` is cheap, and its list of names is complete."""

from __future__ import annotations

import ast
import doctest
import inspect
import os
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path
from types import ModuleType

import pytest

import gpulab
from gpulab import _names, session, views
from tests.session.kernels import STAGES

ROOT = Path(gpulab.__file__).parents[1]
HEAVY = ("cupy", "numpy", "llvmlite", "matplotlib", "anywidget", "ipywidgets", "IPython")


def test_import_loads_no_heavy_packages() -> None:
    """Its time is checked by `gpulab bench --check`."""
    process = subprocess.run(
        [sys.executable, "-X", "importtime", "-c", "import gpulab"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    )
    loaded = {
        line.rsplit("|", 1)[1].strip().split(".")[0] for line in process.stderr.splitlines() if "|" in line
    }
    assert "gpulab" in loaded
    assert not loaded & set(HEAVY)


def test_the_public_names_exist_and_are_those_that_completion_offers() -> None:
    assert {name for name in dir(gpulab) if not name.startswith("_")} == set(gpulab.__all__)
    for name in gpulab.__all__:
        assert getattr(gpulab, name) is not None
    with pytest.raises(AttributeError, match="has no attribute 'lunch'"):
        gpulab.lunch  # noqa: B018


def test_star_import_gives_the_public_names() -> None:
    code = "from gpulab import *; print(callable(launch), callable(doctor), cp.__name__)"
    process = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True
    )
    assert process.stdout.startswith("True True ")


def test_options_of_launching_functions_are_keyword_only() -> None:
    """Without keywords, the fifth argument would be a block in one call and shared memory in another."""
    kinds = {
        name: {p.name: p.kind for p in inspect.signature(value).parameters.values()}
        for name in gpulab.__all__
        if inspect.isfunction(value := getattr(gpulab, name))
    }
    launching = {name: parameters for name, parameters in kinds.items() if "kernel" in parameters}
    assert {"access", "count", "launch", "machine_code", "occupancy", "sanitize", "warps"} <= launching.keys()
    for name, parameters in launching.items():
        positional = [key for key, kind in parameters.items() if kind is not inspect.Parameter.KEYWORD_ONLY]
        assert positional == [key for key in ("kernel", "grid", "block", "args") if key in parameters], name


def test_the_version_is_that_of_pyproject() -> None:
    text = (ROOT / "gpulab" / "pyproject.toml").read_text(encoding="utf-8")
    assert gpulab.__version__ == tomllib.loads(text)["project"]["version"]


def test_version_is_unknown_without_package_metadata(tmp_path: Path) -> None:
    (tmp_path / "gpulab").mkdir()
    for file in ("__init__.py", "_moved.py", "_names.py"):
        shutil.copy(ROOT / "gpulab" / file, tmp_path / "gpulab")
    # -S leaves out site-packages, and with them what an installation has written there.
    command = [sys.executable, "-S", "-c", "import gpulab; print(gpulab.__version__)"]
    process = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=True)
    assert process.stdout.strip() == "0+unknown"


ONLY_PACKAGES = """
import gpulab as gl
print(hasattr(gl, "check"), "check" in dir(gl), "check" in gl.__all__, "launch" in gl.__all__)
try:
    gl.check
except AttributeError as error:
    print(error)
"""


def run_with_packages(folder: Path, *packages: str) -> list[str]:
    """Run a program that finds nothing but some packages of this checkout, and no metadata."""
    for name in packages:
        (folder / name).symlink_to(ROOT / name)
    command = [sys.executable, "-S", "-c", ONLY_PACKAGES]
    variables = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    process = subprocess.run(command, cwd=folder, env=variables, capture_output=True, text=True, check=True)
    return process.stdout.splitlines()


def test_without_a_course_its_functions_are_missing_and_the_error_names_the_package(tmp_path: Path) -> None:
    first, message = run_with_packages(tmp_path, "gpulab", "virtualgpu")
    assert first == "False False False True"
    assert "gl.check" in message
    assert "pip install gpulab-course" in message


def test_a_course_that_is_only_on_the_path_is_found(tmp_path: Path) -> None:
    (tmp_path / "gpulab_course").mkdir()
    (tmp_path / "gpulab_course" / "__init__.py").touch()
    (tmp_path / "gpulab_course" / "api.py").write_text("check = 1\n")
    assert run_with_packages(tmp_path, "gpulab", "virtualgpu") == ["True True True True"]


def test_a_course_is_found_by_its_entry_points(tmp_path: Path) -> None:
    (tmp_path / "other_course.py").write_text("check = 1\n")
    metadata = tmp_path / "other_course-1.dist-info"
    metadata.mkdir()
    (metadata / "METADATA").write_text("Metadata-Version: 2.1\nName: other-course\nVersion: 1\n")
    (metadata / "entry_points.txt").write_text("[gpulab.course]\ncheck = other_course:check\n")
    assert run_with_packages(tmp_path, "gpulab", "virtualgpu") == ["True True True True"]


def test_the_courses_functions_are_those_of_the_entry_points() -> None:
    text = (ROOT / "gpulab_course" / "pyproject.toml").read_text(encoding="utf-8")
    table = tomllib.loads(text)["project"]["entry-points"]["gpulab.course"]
    assert table == {name: f"gpulab_course.api:{name}" for name in _names.COURSE_FUNCTIONS}
    assert all(inspect.isfunction(getattr(gpulab, name)) for name in _names.COURSE_FUNCTIONS)


@pytest.mark.parametrize("package", [gpulab, views], ids=lambda package: package.__name__)
def test_type_checkers_see_the_names_that_load_on_first_use(package: ModuleType) -> None:
    assert package.__file__
    tree = ast.parse(Path(package.__file__).read_text(encoding="utf-8"))
    (block,) = (
        node for node in tree.body if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING"
    )
    imports = [node for node in block.body if isinstance(node, ast.ImportFrom)]
    assert {alias.name: node.module for node in imports for alias in node.names} == package._MODULE_OF_NAME


SCALE = """
extern "C" __global__ void scale(const float* x, float* y, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) y[i] = 2.0f * x[i];
}
"""
PRODUCT = """
extern "C" __global__ void product(const float* a, const float* b, float* c) {
    const unsigned *x = (const unsigned*)a, *y = (const unsigned*)b;
    float sum[4] = {};
    int lane = threadIdx.x % 32;
    asm volatile("mma.sync.aligned.m16n8k8.row.col.f32.f16.f16.f32 "
        "{%0,%1,%2,%3}, {%4,%5}, {%6}, {%0,%1,%2,%3};"
        : "+f"(sum[0]), "+f"(sum[1]), "+f"(sum[2]), "+f"(sum[3])
        : "r"(x[lane]), "r"(x[lane + 32]), "r"(y[lane]));
    for (int i = 0; i < 4; ++i) c[32 * i + lane] = sum[i];
}
"""


def test_examples_of_public_functions_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Run each ``>>>`` of the docstrings with a kernel and arrays of the learner's."""
    monkeypatch.chdir(tmp_path)  # some write files
    functions = {name: value for name in gpulab.__all__ if inspect.isfunction(value := getattr(gpulab, name))}
    functions = {n: f for n, f in functions.items() if not f.__module__.startswith("gpulab_course")}
    assert len(functions) > 12
    for name, function in functions.items():
        examples = doctest.DocTestParser().get_examples(inspect.getdoc(function) or "")
        assert examples, f"gl.{name} shows no example"
        with session.on_device("virtual:A100") as cp:
            names = {"gl": gpulab, "cp": cp, "n": 1000, "kernel": cp.RawKernel(SCALE, "scale")}
            names |= {array: cp.zeros(1000, cp.float32) for array in ("x", "y", "a", "b", "c")}
            names["product"] = cp.RawKernel(PRODUCT, "product")
            names["stages"] = cp.RawKernel(STAGES, "stages")
            for example in examples:
                if example.want:
                    assert repr(eval(example.source, names)) == example.want.strip(), example.source
                else:
                    exec(example.source, names)
