"""``import gpulab`` is cheap, and its list of names is true."""

from __future__ import annotations

import doctest
import inspect
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import gpulab
from gpulab import session

ROOT = Path(gpulab.__file__).parents[1]
HEAVY = ("cupy", "numpy", "llvmlite", "matplotlib", "anywidget", "ipywidgets", "IPython")


def test_the_import_loads_nothing_heavy() -> None:
    """How long it takes, `gpulab bench --check` holds."""
    done = subprocess.run(
        [sys.executable, "-X", "importtime", "-c", "import gpulab"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    )
    loaded = {
        line.rsplit("|", 1)[1].strip().split(".")[0] for line in done.stderr.splitlines() if "|" in line
    }
    assert "gpulab" in loaded
    assert not loaded & set(HEAVY)


def test_every_public_name_is_there_and_listed() -> None:
    assert set(gpulab.__all__) <= set(dir(gpulab))
    for name in gpulab.__all__:
        assert getattr(gpulab, name) is not None


def test_completion_offers_the_public_names_alone() -> None:
    assert {name for name in dir(gpulab) if not name.startswith("_")} == set(gpulab.__all__)


def test_star_import_gives_the_public_names() -> None:
    code = "from gpulab import *; print(callable(launch), callable(doctor), cp.__name__)"
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    assert done.stdout.startswith("True True ")


def test_what_follows_the_arguments_of_a_launch_has_to_be_named() -> None:
    """The fifth place of one call would else be a block, and that of the next bytes of shared memory."""
    kinds = {
        name: {p.name: p.kind for p in inspect.signature(value).parameters.values()}
        for name in gpulab.__all__
        if inspect.isfunction(value := getattr(gpulab, name))
    }
    launching = {name: found for name, found in kinds.items() if "kernel" in found}
    assert {"access", "as_run", "count", "launch", "occupancy", "sanitize", "warps"} <= launching.keys()
    for name, found in launching.items():
        by_place = [each for each, kind in found.items() if kind is not inspect.Parameter.KEYWORD_ONLY]
        assert by_place == [each for each in ("kernel", "grid", "block", "args") if each in found], name


def test_unknown_names_raise_as_usual() -> None:
    with pytest.raises(AttributeError, match="has no attribute 'lunch'"):
        gpulab.lunch  # noqa: B018
    with pytest.raises(ImportError, match="lunch"):
        from gpulab import lunch  # type: ignore[attr-defined]  # noqa: F401


def test_version_is_the_package_metadata() -> None:
    text = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    stated = re.search(r'^version = "(.+)"$', text, re.MULTILINE)
    assert stated
    assert gpulab.__version__ == stated[1]


def test_version_of_a_package_that_is_only_on_the_path(tmp_path: Path) -> None:
    (tmp_path / "gpulab").mkdir()
    for file in ("__init__.py", "_names.py"):
        shutil.copy(ROOT / "gpulab" / file, tmp_path / "gpulab")
    # -S leaves out site-packages, and with them what an installation has written there.
    command = [sys.executable, "-S", "-c", "import gpulab; print(gpulab.__version__)"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "0+unknown"


SCALE = """
extern "C" __global__ void scale(const float* x, float* y, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) y[i] = 2.0f * x[i];
}
"""


def test_examples_of_public_functions_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each ``>>>`` of what ``gl.launch?`` shows, with a kernel and arrays of the learner's."""
    monkeypatch.chdir(tmp_path)  # some write files
    functions = {name: value for name in gpulab.__all__ if inspect.isfunction(value := getattr(gpulab, name))}
    functions = {n: f for n, f in functions.items() if not f.__module__.startswith("gpulab_course.teach")}
    assert len(functions) > 12
    for name, function in functions.items():
        examples = doctest.DocTestParser().get_examples(inspect.getdoc(function) or "")
        assert examples, f"gl.{name} shows no example"
        with session.on_device("virtual:A100") as cp:
            x = cp.zeros(1000, cp.float32)
            y = cp.zeros(1000, cp.float32)
            names = {
                "gl": gpulab,
                "cp": cp,
                "x": x,
                "y": y,
                "n": 1000,
                "kernel": cp.RawKernel(SCALE, "scale"),
            }
            for example in examples:
                if example.want:
                    assert repr(eval(example.source, names)) == example.want.strip(), example.source
                else:
                    exec(example.source, names)
