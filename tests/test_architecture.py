"""The package's shape: who may import whom, how large a module may grow, what may be committed."""

from __future__ import annotations

import ast
import graphlib
import inspect
import json
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
PACKAGE = ROOT / "gpulab"
MODULES = sorted(path for path in PACKAGE.rglob("*.py"))

BASE = {"records", "errors"}
# What each part of the package may import of the others. Parts are first-level names; a part may
# always import itself. Everything not listed is a front (session, lab, cli, ...), bound only by FRONT_ONLY.
MAY_IMPORT = {
    "records": {"trace_columns"},
    "trace_columns": set[str](),
    "trace_state": BASE | {"trace_columns"},
    "errors": {"records"},
    "backend": BASE,
    "machine_code": {"records"},
    "disk_cache": set[str](),
    "driver": {"errors"},
    "occupancy_rules": BASE,
    "trace_io": BASE,
    "sampler": BASE,
    "tables": BASE | {"machine_code"},
    "ptx": BASE | {"backend", "disk_cache", "machine_code"},
    "virtual": BASE | {"backend", "disk_cache", "ptx", "occupancy_rules", "trace_columns"},
    "probes": BASE | {"backend", "ptx", "trace_io", "driver", "occupancy_rules"},
    "views": BASE | {"sampler", "trace_columns", "trace_state"},
}
# Only the session decides which side serves a call. The doctor and the benchmark examine one side.
SIDES = {"probes", "virtual"}
MAY_TOUCH_A_SIDE = {"session", "diagnosis", "bench"}
# Modules that hold the one current session or machine.
MAY_HAVE_STATE = {"gpulab/session.py", "gpulab/virtual/machine.py"}

MAX_LINES = 400
LONGER_WITH_REASON: dict[str, str] = {}

MAX_FILE_BYTES = 1_000_000
# Package registries' and script hosts' names, cut in two so that this file does not name them either.
REGISTRY_HOSTS = re.compile(
    "|".join(
        first + rest
        for first, rest in (
            ("py", r"pi\.org"), ("python", r"hosted\.org"), ("pypi.nvi", r"dia\.com"),
            ("npm", r"js\.(?:org|com)"),
            ("yarn", r"pkg\.com"), ("conda.ana", r"conda\.org"), ("deb.de", r"bian\.org"),
            ("archive.ubu", r"ntu\.com"), ("cra", r"tes\.io"), ("jsde", r"livr\.net"), ("unp", r"kg\.com"),
            ("cdn", r"js\."), ("es", r"m\.sh"), ("sky", r"pack\.dev"),
        )
    )
)  # fmt: skip
MACHINE_PATHS = re.compile(r"""(?<![\w./<{$~-])/(?:work|root|Users|home)/[\w.-]+""")


def part_of(module: str) -> str:
    """First-level part of a dotted name: ``gpulab.virtual.cp`` -> ``virtual``."""
    pieces = module.split(".")
    return pieces[1] if len(pieces) > 1 else ""


def dotted(path: Path) -> str:
    pieces = path.relative_to(ROOT).with_suffix("").parts
    return ".".join(pieces[:-1] if pieces[-1] == "__init__" else pieces)


def imports_of(path: Path, text: str | None = None) -> Iterator[tuple[str, int]]:
    """Every module of ours that a file imports, wherever in the file, as dotted names."""
    package = dotted(path).split(".")
    if path.name != "__init__.py":
        package = package[:-1]
    text = path.read_text(encoding="utf-8") if text is None else text
    known = {dotted(module) for module in MODULES}
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            base = package[: len(package) - node.level + 1] if node.level else []
            stem = ".".join([*base, *([node.module] if node.module else [])])
            full = [f"{stem}.{alias.name}" for alias in node.names]
            names = [name if name in known else stem for name in full]
        elif isinstance(node, ast.Call) and ast.unparse(node.func).endswith("import_module") and node.args:
            first = node.args[0]
            names = [first.value] if isinstance(first, ast.Constant) and isinstance(first.value, str) else []
        else:
            continue
        for name in names:
            if name == "gpulab" or name.startswith("gpulab."):
                yield name, node.lineno


def module_id(path: Path) -> str:
    return str(path.relative_to(ROOT))


def tracked_files() -> list[Path]:
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True)
    if listed.returncode != 0:
        pytest.skip("needs a git checkout")
    return [ROOT / name for name in listed.stdout.split("\0") if name and (ROOT / name).is_file()]


@pytest.mark.parametrize("path", MODULES, ids=module_id)
def test_imports_keep_their_direction(path: Path) -> None:
    part = part_of(dotted(path))
    wrong = []
    for name, line in imports_of(path):
        target = part_of(name)
        if target == part:
            continue
        if part in MAY_IMPORT:
            if target not in MAY_IMPORT[part]:
                wrong.append(f"line {line}: {part} must not import {name}")
        elif target in SIDES and part not in MAY_TOUCH_A_SIDE:
            wrong.append(f"line {line}: only the session decides which side serves, not {part} ({name})")
    assert not wrong, "\n".join(wrong)


def test_modules_do_not_import_each_other_in_circles() -> None:
    graph = {dotted(path): {name for name, _ in imports_of(path)} - {dotted(path)} for path in MODULES}
    try:
        graphlib.TopologicalSorter(graph).prepare()
    except graphlib.CycleError as error:
        pytest.fail(" <- ".join(error.args[1]))


def test_import_check_sees_relative_lazy_and_dynamic_imports() -> None:
    text = (
        "from ..virtual import cp\nfrom gpulab import probes\n"
        "def f():\n    import gpulab.session\n    importlib.import_module('gpulab.virtual.pool')\n"
    )
    found = imports_of(PACKAGE / "views" / "example.py", text)
    assert {(part_of(name), line) for name, line in found} == {
        ("virtual", 1), ("probes", 2), ("session", 4), ("virtual", 5)
    }  # fmt: skip


@pytest.mark.parametrize("path", MODULES, ids=module_id)
def test_modules_stay_small(path: Path) -> None:
    lines = len(path.read_text(encoding="utf-8").splitlines())
    reason = LONGER_WITH_REASON.get(module_id(path))
    if reason is None:
        assert lines <= MAX_LINES, f"{lines} lines: split it by subject, or list it with a reason"
    else:
        assert lines > MAX_LINES, "short enough now: take it off the list"


@pytest.mark.parametrize("path", MODULES, ids=module_id)
def test_only_session_and_machine_rebind_module_state(path: Path) -> None:
    tree = ast.parse(path.read_text(encoding="utf-8"))
    rebound = [f"line {n.lineno}: {', '.join(n.names)}" for n in ast.walk(tree) if isinstance(n, ast.Global)]
    if module_id(path) not in MAY_HAVE_STATE:
        assert not rebound, "module-level state belongs to the session: " + "; ".join(rebound)


def test_cupy_is_imported_only_where_a_gpu_is_in_use() -> None:
    """CuPy takes seconds to import and is absent without a GPU, so never at a module's top outside probes."""
    wrong = []
    for path in MODULES:
        if part_of(dotted(path)) == "probes":
            continue
        for node in ast.parse(path.read_text(encoding="utf-8")).body:
            names = [a.name for a in node.names] if isinstance(node, ast.Import) else []
            names += [node.module or ""] if isinstance(node, ast.ImportFrom) else []
            wrong += [f"{module_id(path)}:{node.lineno}" for n in names if re.match(r"cupyx?\b", n)]
    assert not wrong


def test_importing_the_package_loads_nothing_heavy() -> None:
    heavy = ("cupy", "llvmlite", "matplotlib", "ipywidgets", "anywidget", "IPython", "pynvml")
    code = f"import sys, gpulab; print([name for name in {heavy!r} if name in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_public_functions_document_every_parameter() -> None:
    import gpulab

    wrong = []
    for name in gpulab.__all__:
        thing = getattr(gpulab, name)
        if not inspect.isfunction(thing) or not thing.__module__.startswith("gpulab"):
            continue
        text = inspect.getdoc(thing) or ""
        if not text:
            wrong.append(f"gl.{name} has no docstring")
            continue
        for parameter in inspect.signature(thing).parameters:
            if not re.search(rf"\b{re.escape(parameter)}\b", text):
                wrong.append(f"gl.{name} does not describe {parameter!r}")
    assert not wrong, "\n".join(wrong)


def test_no_tracked_file_is_large() -> None:
    large = [f"{module_id(p)}: {p.stat().st_size:,} bytes" for p in tracked_files()
             if p.stat().st_size > MAX_FILE_BYTES]  # fmt: skip
    assert not large, "\n".join(large)


def test_tracked_text_names_no_registry_and_no_path_of_this_machine() -> None:
    wrong = []
    for path in tracked_files():
        try:
            text = path.read_text(encoding="utf-8")
        except UnicodeDecodeError:
            continue
        for pattern in (REGISTRY_HOSTS, MACHINE_PATHS):
            for match in pattern.finditer(text):
                line = text.count("\n", 0, match.start()) + 1
                wrong.append(f"{module_id(path)}:{line}: {match[0]}")
    assert not wrong, "\n".join(wrong)


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
def test_notebooks_are_clean(path: Path) -> None:
    """Pictures and text stay in a notebook, widget state and the machine's own particulars do not."""
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
