"""Architecture rules: allowed imports, documented parameters, and files that may be committed."""

from __future__ import annotations

import ast
import functools
import graphlib
import inspect
import json
import re
import subprocess
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path

import pytest

from tests.sources import parsed

ROOT = Path(__file__).resolve().parent.parent
PACKAGES = ("gpulab", "gpulab_course", "virtualgpu")
MODULES = sorted(
    path for package in PACKAGES for path in (ROOT / package).rglob("*.py") if path.name != "hatch_build.py"
)

# The virtual GPU, bottom up: a part imports only from itself and from the parts named here. Parts are
# the folders and modules of the first level. Nothing in it imports the course's package.
BASE = {"records", "errors", "cuda_errors", "words"}
VIRTUAL = {
    "records": {"errors"},
    "errors": {"records"},
    "cuda_errors": {"errors"},
    "words": set(),
    "protocol": {"records", "launch"},
    "allocators": {"records", "errors", "words"},  # CuPy's memory pool without a device
    "compile": {"records", "errors"},
    "model": {*BASE, "sanitizer"},
    "engine": {*BASE, "compile", "model"},
    "launch": {*BASE, "compile", "model", "engine", "cp"},
    "sanitizer": {*BASE, "compile", "model", "engine", "launch", "protocol"},
    "cp": {*BASE, "allocators", "compile", "model", "launch"},
    "backend": {*BASE, "protocol", "compile", "model", "engine", "launch", "sanitizer", "cp"},
    "cupyx": {"compile", "model", "cp"},
    "aliases": {"model", "cp", "cupyx"},
    "": {"model", "aliases"},  # the package itself
    "tracebacks": set(),
    "__main__": {"", "tracebacks"},
    "pytest_plugin": {"", "model"},
    "children": {""},  # cupy and cupyx for processes that a program starts
}
# What parts of the helper and of the course may import. A part that is not listed (session, lab, cli, ...) is
# bound only by MAY_TOUCH_A_SIDE.
UPPER = {
    "gpulab.words": {"virtualgpu.words"},
    "gpulab.analysis": {"gpulab.words", "virtualgpu.records", "virtualgpu.errors"},
    "gpulab.allocators": {"gpulab.words", "virtualgpu.records", "virtualgpu.errors", "virtualgpu.allocators"},
    "gpulab.real": {
        "gpulab.analysis",
        "gpulab.words",
        "virtualgpu.records",
        "virtualgpu.errors",
        "virtualgpu.protocol",
        "virtualgpu.compile",
        "virtualgpu.model",
    },
    "gpulab.processes": {"virtualgpu.compile", "virtualgpu.errors"},
    "gpulab.views": {
        "gpulab._deprecated",
        "gpulab._names",
        "gpulab.analysis",
        "gpulab.words",
        "virtualgpu.records",
    },
    # Code that shows and judges exercises, predictions, quizzes and interviews, without their texts.
    "gpulab_course.teach": {
        "gpulab.analysis",
        "gpulab.lab",
        "gpulab.processes",
        "gpulab.session",
        "gpulab.views",
        "gpulab.words",
        "virtualgpu",
        "virtualgpu.compile",
        "virtualgpu.errors",
        "virtualgpu.protocol",
        "virtualgpu.records",
    },
    # Exercises, texts and pictures. The code that runs them is in `teach`.
    "gpulab_course.content": {
        "gpulab_course",
        "gpulab_course.teach",
        "gpulab.analysis",
        "gpulab.lab",
        "gpulab.processes",
        "gpulab.session",
        "gpulab.views",
        "virtualgpu.records",
        "virtualgpu.errors",
        "gpulab.words",
    },
}
# Only the session decides which side serves a call. The doctor examines one side.
SIDES = {
    "gpulab.real",
    "virtualgpu.backend",
    "virtualgpu.model",
    "virtualgpu.engine",
    "virtualgpu.cp",
    "virtualgpu.launch",
    "virtualgpu.sanitizer",
}
MAY_TOUCH_A_SIDE = {"gpulab.session", "gpulab.diagnosis"}

MAX_FILE_BYTES = 1_000_000
# Package registries' and script hosts' names, cut in two so that this file does not name them either.
REGISTRY_HOSTS = re.compile(
    "|".join(
        first + rest
        for first, rest in (
            ("py", r"pi\.org"),
            ("python", r"hosted\.org"),
            ("pypi.nvi", r"dia\.com"),
            ("npm", r"js\.(?:org|com)"),
            ("yarn", r"pkg\.com"),
            ("conda.ana", r"conda\.org"),
            ("deb.de", r"bian\.org"),
            ("archive.ubu", r"ntu\.com"),
            ("cra", r"tes\.io"),
            ("jsde", r"livr\.net"),
            ("unp", r"kg\.com"),
            ("cdn", r"js\."),
            ("es", r"m\.sh"),
            ("sky", r"pack\.dev"),
        )
    )
)
MACHINE_PATHS = re.compile(r"""(?<![\w./<{$~-])/(?:work|root|Users|home)/[\w.-]+""")


def part_of(module: str) -> str:
    """Return package and first-level part of a dotted name: ``virtualgpu.cp.cuda`` -> ``virtualgpu.cp``."""
    return ".".join(module.split(".")[:2])


def dotted(path: Path) -> str:
    pieces = path.relative_to(ROOT).with_suffix("").parts
    return ".".join(pieces[:-1] if pieces[-1] == "__init__" else pieces)


KNOWN = {dotted(module) for module in MODULES}


@functools.lru_cache(maxsize=1024)
def imports_of(path: Path, text: str | None = None) -> list[tuple[str, int]]:
    """Return the dotted names of all project modules that a file imports, anywhere in the file."""
    return list(_imports_of(path, text))


def _imports_of(path: Path, text: str | None) -> Iterator[tuple[str, int]]:
    package = dotted(path).split(".")
    if path.name != "__init__.py":
        package = package[:-1]
    text = path.read_text(encoding="utf-8") if text is None else text
    for node in ast.walk(parsed(text)):
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            base = package[: len(package) - node.level + 1] if node.level else []
            stem = ".".join([*base, *([node.module] if node.module else [])])
            full = [f"{stem}.{alias.name}" for alias in node.names]
            names = [name if name in KNOWN else stem for name in full]
        elif isinstance(node, ast.Call) and node.args and _called(node.func) == "import_module":
            first = node.args[0]
            names = [first.value] if isinstance(first, ast.Constant) and isinstance(first.value, str) else []
        else:
            continue
        for name in names:
            if name.split(".")[0] in PACKAGES:
                yield name, node.lineno


def _called(function: ast.expr) -> str:
    """Return the last part of the name of a called function."""
    return function.attr if isinstance(function, ast.Attribute) else getattr(function, "id", "")


def module_id(path: Path) -> str:
    return str(path.relative_to(ROOT))


def tracked_files() -> list[Path]:
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True)
    if listed.returncode != 0:
        pytest.skip("needs a git checkout")
    return [ROOT / name for name in listed.stdout.split("\0") if name and (ROOT / name).is_file()]


def allowed(part: str) -> set[str] | None:
    """Return the parts that `part` may import, or None for parts without such a rule."""
    package, _, room = part.partition(".")
    if package == "virtualgpu":
        return {f"virtualgpu.{name}".rstrip(".") for name in VIRTUAL[room]}
    return UPPER.get(part)


# No package imports one that is after it.
ORDER = ("virtualgpu", "gpulab", "gpulab_course")


def test_packages_do_not_import_later_packages() -> None:
    violations = []
    for path in MODULES:
        package = dotted(path).split(".")[0]
        later = ORDER[ORDER.index(package) + 1 :]
        violations += [
            f"{module_id(path)}:{line}: {package} must not import {name}"
            for name, line in imports_of(path)
            if name.split(".")[0] in later
        ]
    assert not violations, "\n".join(violations)


def test_modules_import_only_allowed_modules() -> None:
    violations = []
    for path in MODULES:
        part = part_of(dotted(path))
        may = allowed(part)
        for name, line in imports_of(path):
            target = part_of(name)
            if target == part:
                continue
            place = f"{module_id(path)}:{line}"
            if may is not None:
                if target not in may:
                    violations.append(f"{place}: {part} must not import {name}")
            elif target in SIDES and part not in MAY_TOUCH_A_SIDE:
                violations.append(f"{place}: only the session decides which side serves, not {part} ({name})")
    assert not violations, "\n".join(violations)


def test_modules_named_in_the_import_rules_exist() -> None:
    parts = {part_of(dotted(path)) for path in MODULES}
    named = {f"virtualgpu.{room}" for room in VIRTUAL} | set(UPPER) | SIDES
    named |= {f"virtualgpu.{name}" for names in VIRTUAL.values() for name in names}
    named = {name.rstrip(".") for name in named}
    named |= MAY_TOUCH_A_SIDE | set().union(*UPPER.values())
    assert not named - parts


def absolute_imports(nodes: Iterable[ast.AST]) -> Iterator[tuple[str, int]]:
    """Return modules that statements import by their full names, with the line."""
    for node in nodes:
        if isinstance(node, ast.Import):
            yield from ((alias.name, node.lineno) for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            yield node.module, node.lineno


def all_imports(path: Path) -> Iterator[tuple[str, int]]:
    """Return the first part of each module that a file imports by its full name, with the line."""
    for name, line in absolute_imports(ast.walk(parsed(path.read_text(encoding="utf-8")))):
        yield name.split(".")[0], line


def test_the_virtual_gpu_needs_no_jupyter_and_no_matplotlib() -> None:
    """It depends only on NumPy, llvmlite, NVRTC and packages that locate them."""
    needed = {*sys.stdlib_module_names, "virtualgpu", "numpy", "llvmlite", "platformdirs", "cuda", "psutil"}
    violations = []
    home = ROOT / "virtualgpu"
    for path in {*home.rglob("*.py")} - {home / "hatch_build.py"}:
        is_for_pytest = path.name == "pytest_plugin.py" or path.parent == home / "cp" / "testing"
        packages = needed | ({"pytest", "packaging"} if is_for_pytest else set())
        violations += [
            f"{module_id(path)}:{n}: {name}" for name, n in all_imports(path) if name not in packages
        ]
    assert not violations, "\n".join(violations)


def test_the_packages_import_no_developers_tools_and_no_tests() -> None:
    """Tools and tests are not installed. The command line loads a tool by name if there is a checkout."""
    violations = [
        f"{module_id(path)}:{line}: {name}"
        for path in MODULES
        for name, line in all_imports(path)
        if name in ("tools", "tests")
    ]
    assert not violations, "\n".join(violations)


def test_modules_do_not_import_each_other_in_circles() -> None:
    graph = {dotted(path): {name for name, _ in imports_of(path)} - {dotted(path)} for path in MODULES}
    try:
        graphlib.TopologicalSorter(graph).prepare()
    except graphlib.CycleError as error:
        pytest.fail(" <- ".join(error.args[1]))


def test_import_check_finds_relative_lazy_and_dynamic_imports() -> None:
    text = (
        "from ..session import cp\nfrom gpulab import real\n"
        "def f():\n    import virtualgpu.backend\n    importlib.import_module('virtualgpu.cp.cuda')\n"
    )
    imports = imports_of(ROOT / "gpulab" / "views" / "example.py", text)
    assert {(part_of(name), line) for name, line in imports} == {
        ("gpulab.session", 1),
        ("gpulab.real", 2),
        ("virtualgpu.backend", 4),
        ("virtualgpu.cp", 5),
    }


def test_cupy_is_imported_at_module_level_only_in_gpulab_real() -> None:
    """CuPy is slow to import and can be missing, so only `gpulab.real` may import it at module level."""
    violations = [
        f"{module_id(path)}:{line}"
        for path in MODULES
        if part_of(dotted(path)) != "gpulab.real"
        for name, line in absolute_imports(parsed(path.read_text(encoding="utf-8")).body)
        if re.match(r"cupyx?\b", name)
    ]
    assert not violations


def test_importing_gpulab_loads_no_slow_packages() -> None:
    heavy = ("cupy", "llvmlite", "matplotlib", "ipywidgets", "anywidget", "IPython", "pynvml")
    code = f"import sys, gpulab; print([name for name in {heavy!r} if name in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_public_functions_document_every_parameter() -> None:
    import gpulab

    violations = []
    for name in gpulab.__all__:
        thing = getattr(gpulab, name)
        if not inspect.isfunction(thing) or not thing.__module__.startswith("gpulab"):
            continue
        text = inspect.getdoc(thing) or ""
        if not text:
            violations.append(f"gl.{name} has no docstring")
            continue
        for parameter in inspect.signature(thing).parameters:
            if not re.search(rf"\b{re.escape(parameter)}\b", text):
                violations.append(f"gl.{name} does not describe {parameter!r}")
    assert not violations, "\n".join(violations)


def test_no_tracked_file_is_large() -> None:
    large = [
        f"{module_id(p)}: {p.stat().st_size:,} bytes"
        for p in tracked_files()
        if p.stat().st_size > MAX_FILE_BYTES
    ]
    assert not large, "\n".join(large)


def test_tracked_text_names_no_registry_and_no_path_of_this_machine() -> None:
    violations = []
    for path in tracked_files():
        try:
            text = path.read_text(encoding="utf-8")
        except UnicodeDecodeError:
            continue
        for pattern in (REGISTRY_HOSTS, MACHINE_PATHS):
            for match in pattern.finditer(text):
                line = text.count("\n", 0, match.start()) + 1
                violations.append(f"{module_id(path)}:{line}: {match[0]}")
    assert not violations, "\n".join(violations)


@pytest.mark.parametrize(
    ("text", "caught"),
    [
        ("see /" + "home/ada/gpulab", True),
        ('"/' + 'root/.cache/x"', True),
        ("the / root of the tree", False),
        ("notebooks/" + "home/x", False),
    ],
)
def test_machine_path_pattern(text: str, caught: bool) -> None:
    assert bool(MACHINE_PATHS.search(text)) is caught


NOTEBOOKS = sorted((ROOT / "notebooks").glob("*.ipynb"))


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.name)
def test_notebooks_contain_no_widget_state_or_machine_details(path: Path) -> None:
    """Notebooks may contain pictures and text, but no widget state and no details of one machine."""
    notebook = json.loads(path.read_text(encoding="utf-8"))
    assert notebook["nbformat"] == 4
    assert set(notebook["metadata"]) <= {"kernelspec", "language_info"}, "run `make notebooks`"
    assert notebook["metadata"]["kernelspec"]["name"] == "python3"
    ids = [cell["id"] for cell in notebook["cells"]]
    assert len(set(ids)) == len(ids)
    for cell in notebook["cells"]:
        for output in cell.get("outputs", ()):
            assert output["output_type"] != "error", "".join(cell["source"])
            mime_types = output.get("data", {})
            assert not [mime for mime in mime_types if "widget" in mime], "run `make notebooks`"
