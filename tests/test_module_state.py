"""Modules have no mutable state, except for the names listed here with a reason.

State is a global that a function rebinds, a module's table or object that a function changes, and what
``functools.cache`` keeps between calls. Two runs in one process would see each other through it. Caches
with a bound, ``lru_cache(n)``, are for answers that depend on the arguments alone, and pass.
"""

from __future__ import annotations

import ast
import functools
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.sources import parsed

ROOT = Path(__file__).resolve().parent.parent
PACKAGES = ("gpulab", "gpulab_course", "virtualgpu")
MODULES = sorted(
    path for package in PACKAGES for path in (ROOT / package).rglob("*.py") if path.name != "hatch_build.py"
)

ALLOWED = {
    # The one session and the one virtual machine.
    "_session": "the session",
    "_cell_progress": "the progress of the notebook cell that runs",
    "_current_machine": "the virtual machine that cp works on",
    # Filled while modules load, and only read afterwards.
    "OPERANDS_BY_ROOT": "instructions register themselves",
    "FAMILIES": "ways for a kernel to be slow register themselves",
    # Facts about this computer, determined once.
    "_load_library": "NVRTC's library",
    "load_cupti": "CUPTI's library, which is one a process and calls back",
    "find_include_options": "where the CUDA headers lie",
    "read_version": "of the one library",
    "_read_targets": "of the one library",
    "_find_nvdisasm": "where the program lies",
    "_load_store": "a file of the package, read once",
    "_find_host_target": "this machine's architecture",
    "find_native_processor": "this machine's processor",
    "compile_mark_observer": "machine code of what looks on as kernels run",
    "compile_observer": "machine code of what looks on as kernels run",
    "compile_write_observer": "machine code of what looks on as kernels write",
    "compile_replay": "machine code of the cache model",
    "_make_ink_palette": "the picture's palette",
    "_find_server": "the process that those of answers are forked from",
    "_find_spare_process": "the process that waits for what runs in a sandbox next",
    "_create_pool": "worker threads, which do not end between launches",
    "_load_artefacts": "a file of the package, read once",
    "_read_layouts": "a file of the package, read once",
    "load_font": "fonts, read once",
    "text_width": "of texts in a font",
    "load_launch_records": "the index of shipped records, read once",
    "load_timeline_records": "the index of shipped timelines, read once",
    "_open_store": "a learner's folder, opened once",
    "_get_prediction": "a learner's prediction, which two cells of a notebook share",
    "_failures": "what a learner's last answers to each exercise have failed on",
    "_temporary_limits": "limits of compilations while an answer is judged",
}
CHANGES = {
    *("add", "append", "appendleft", "clear", "discard", "extend", "insert", "move_to_end", "pop", "popitem"),
    *("popleft", "remove", "setdefault", "update"),
}
UNBOUNDED = ("cache", "lru_cache", "lru_cache()", "lru_cache(None)", "lru_cache(maxsize=None)")
INSIDE = ast.arg | ast.Name | ast.Attribute | ast.Subscript | ast.Call
FUNCTIONS = ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda


def root(node: ast.AST) -> str:
    """Return the root name of an attribute or element expression."""
    while isinstance(node, (ast.Attribute, ast.Subscript)):
        node = node.value
    return node.id if isinstance(node, ast.Name) else ""


def own_names(tree: ast.Module) -> set[str]:
    """Return names that a module binds at its top level or imports from our packages."""
    names = set()
    for node in tree.body:
        if isinstance(node, (ast.Assign, ast.AnnAssign)):
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            names |= {n.id for target in targets for n in ast.walk(target) if isinstance(n, ast.Name)}
        elif isinstance(node, ast.ImportFrom) and (
            node.level or (node.module or "").startswith((*PACKAGES, "tools"))
        ):
            names |= {alias.asname or alias.name for alias in node.names}
    return names


def state(text: str) -> Iterator[tuple[str, int]]:
    """Return names of a module with contents that outlive a call, with the line that changes them."""
    tree = parsed(text)
    names = own_names(tree)
    for node in ast.walk(tree):
        if isinstance(node, ast.Global):
            yield from ((name, node.lineno) for name in node.names)
        elif isinstance(node, FUNCTIONS):
            for decorator in getattr(node, "decorator_list", ()):
                if ast.unparse(decorator).rpartition(".")[2] in UNBOUNDED:
                    yield getattr(node, "name", ""), node.lineno
            inside = [n for n in ast.walk(node) if isinstance(n, INSIDE)]
            local = {n.arg for n in inside if isinstance(n, ast.arg)}
            local |= {n.id for n in inside if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store)}
            for n in inside:
                stored = isinstance(n, (ast.Attribute, ast.Subscript)) and isinstance(
                    n.ctx, ast.Store | ast.Del
                )
                called = (
                    isinstance(n, ast.Call) and isinstance(n.func, ast.Attribute) and n.func.attr in CHANGES
                )
                name = root(n) if stored else root(n.func) if called else ""  # type: ignore[attr-defined]
                if name in names - local:
                    yield name, n.lineno  # type: ignore[attr-defined]
        elif isinstance(node, ast.Assign) and isinstance(node.value, ast.Call):
            callee = node.value.func
            if ast.unparse(callee).rpartition(".")[2] in {*UNBOUNDED} - {"lru_cache"}:
                yield ast.unparse(node.targets[0]), node.lineno


@functools.lru_cache(maxsize=1024)
def state_of(path: Path) -> dict[str, int]:
    return dict(state(path.read_text(encoding="utf-8")))


def test_modules_have_no_mutable_state() -> None:
    violations = [
        f"{path.relative_to(ROOT)}:{line}: {name}"
        for path in MODULES
        for name, line in state_of(path).items()
        if name not in ALLOWED
    ]
    assert not violations, "state at module level belongs to the session:\n" + "\n".join(violations)


def test_every_allowed_name_exists() -> None:
    names = {name for path in MODULES for name in state_of(path)}
    gone = sorted(set(ALLOWED) - names)
    assert not gone


@pytest.mark.parametrize(
    ("text", "caught"),
    [
        ("N = 0\ndef f():\n    global N\n    N = 1", {"N"}),
        ("SEEN = {}\ndef f(k):\n    SEEN[k] = 1", {"SEEN"}),
        ("SEEN: list[int] = []\ndef f(k):\n    SEEN.append(k)", {"SEEN"}),
        ("SLOT = Slot()\ndef f(k):\n    SLOT.value.inner = k", {"SLOT"}),
        ("from virtualgpu.model import machine as slot\ndef f(k):\n    slot.current = k", {"slot"}),
        ("@functools.lru_cache(maxsize=None)\ndef f(k): ...", {"f"}),
        ("@lru_cache(maxsize=3)\ndef f(k): ...", set()),
        ("class A:\n    @cache\n    def f(self): ...", {"f"}),
        ("g = functools.cache(len)", {"g"}),
        ("h = functools.lru_cache(maxsize=2)(len)", set()),
        ("TABLE = {}\ndel TABLE['a']\nTABLE['b'] = 2", set()),
        ("TABLE = {}\ndef f():\n    TABLE = {}\n    TABLE['b'] = 2", set()),
        ("import numpy as np\ndef f(a):\n    return np.append(a, 1)", set()),
        ("class A:\n    def f(self):\n        self.x = 1\n        self.y.append(2)", set()),
    ],
)
def test_the_check_detects_mutable_state(text: str, caught: set[str]) -> None:
    assert {name for name, _ in state(text)} == caught
