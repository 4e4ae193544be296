"""Do the tests bite? Plant small faults in a copy of the package and see which ones the tests catch.

``python -m tools.mutate virtualgpu/compile --sample 30`` plants thirty faults in that room, one at a time,
runs those of the room's own tests that pass over the changed line, and lists the faults that no test saw.
``--list`` names the rooms and their tests. Nothing is changed in the checkout.

A fault is a comparison or an operator exchanged, a whole number off by one, ``and`` for ``or``, a condition
negated, a statement or a keyword left out, nothing returned, an error not raised. Texts of messages,
annotations, ``assert``, documentation and a picture's measures (constants called ``*_PX``) are left alone.
Faults that change no behaviour are listed in ``tools/equivalent_mutants.tsv`` with the reason, and are not
counted. Tests that want a GPU run with its stand-in where ``ROOMS`` says ``gpu:``.
"""

from __future__ import annotations

import argparse
import ast
import contextlib
import copy
import hashlib
import importlib
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn

from tools import passed

ROOT = Path(__file__).resolve().parent.parent
EQUIVALENT = Path(__file__).with_name("equivalent_mutants.tsv")
_REPORT = "GPULAB_MUTATE_REPORT"
# What the tests of one mutant may take without the fault, and how much longer with it.
_BUDGET_S = 6.0
_PATIENCE = 4.0
_GRACE_S = 40.0
# What a module of functions that are compiled imports, and how much longer its tests may take.
_TRANSLATED = "from virtualgpu.engine.ir.compiled import"
_MORE = 4


def _in(folder: str, names: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(f"tests/{folder}/test_{name}.py" for name in names)


def _virtual(*names: str) -> tuple[str, ...]:
    return _in("virtual", names)


def _allocators(*names: str) -> tuple[str, ...]:
    return _in("allocators", names)


def _sanitizer(*names: str) -> tuple[str, ...]:
    return _in("engine", tuple(f"sanitizer{name}" for name in names))


# What every view says and draws of records made for that.
_DRAWN = "tests/views/test_snapshots.py"


def _views(*names: str) -> tuple[str, ...]:
    return (*_in("views", names), _DRAWN)


def _teach(*names: str) -> tuple[str, ...]:
    return _in("teach", names)


# Tests that run with a virtual GPU in a real one's place, as the stage `fake-gpu` runs them.
_GPU = "gpu:"
_GPU_PLUGIN = ("-p", "tests.real.fake_gpu", "--fake-gpu")
_ON_A_GPU = ("gpu:tests/real", "gpu:tests/session/test_real_gpu.py")
_WATCHERS = tuple(f"gpu:{name}" for name in _in("gpu", ("check_streams_gpu", "graphs_gpu", "timeline_gpu")))

# Room -> the tests that belong to it: files and folders, the quickest first.
ROOMS: dict[str, tuple[str, ...]] = {
    "virtualgpu/compile": (
        "tests/ptx",
        "tests/recordings/test_instrument.py",
        "tests/counters/test_as_run.py",
        *_virtual("signature"),
    ),
    "virtualgpu/compile/ptx": ("tests/ptx", "tests/engine", "tests/fuzz/test_parser_fuzz.py"),
    "virtualgpu/sanitizer": (
        *_sanitizer(
            "", "_order", "_copies", "_patterns", "_blocks", "_words", "_touched", "_report", "_shadow"
        ),
        "tests/session/test_who_wrote.py",
    ),
    "virtualgpu/sanitizer/report": _sanitizer("_report", "_words", "_patterns", ""),
    "virtualgpu/engine/run": ("tests/engine", *_virtual("kernels")),
    "virtualgpu/engine/ir": ("tests/engine", "tests/counters"),
    "virtualgpu/engine/machine": ("tests/engine",),
    "virtualgpu/engine/lower": ("tests/engine",),
    "virtualgpu/engine/lower/ops": ("tests/engine",),
    "virtualgpu/engine/observe": ("tests/engine", "tests/counters"),
    "virtualgpu/launch": (
        *_virtual("launch", "launch_parts", "params", "signature", "kernels", "backend", "generated"),
        *_virtual("loaded_code"),
        "tests/session/test_arguments.py",
    ),
    "virtualgpu/model": _virtual(
        *(
            "cost",
            "devices",
            "memory",
            "occupancy",
            "placement",
            "streams",
            "copies",
            "graphs",
            "pool",
            "clock_model",
        ),
        *("pool_model", "backend", "fork", "published"),
    ),
    "gpulab/allocators": _allocators("released", "fragments", "statistics", "replay", "steps"),
    "gpulab/allocators/snapshot": _allocators("snapshot", "torch_recorded"),
    "gpulab/allocators/torch": _allocators("torch_model", "torch_recorded"),
    "virtualgpu/allocators": (
        *_allocators("cupy"),
        *_virtual("memory_hooks", "pool", "pool_recorded"),
    ),
    "virtualgpu/cp": _virtual("random", "cupy_names", "as_cupy", "arrays_rules"),
    "virtualgpu/cp/cuda": _virtual(
        *(
            "streams",
            "pool",
            "pool_model",
            "copies",
            "graphs",
            "memory",
            "memory_hooks",
            "cupy_names",
            "runtime",
        ),
        *("arrays_rules", "nvtx", "loaded_code", "clock_model", "as_cupy"),
    ),
    "virtualgpu/cp/_core": _virtual(
        *(
            "array_methods",
            "arrays_rules",
            "arrays_values",
            "indexing_model",
            "cupy_names",
            "kernels",
            "copies",
            "as_cupy",
        ),
        *("published", "launch", "graphs"),
    ),
    "virtualgpu/cp/_routines": _virtual("arrays_rules", "arrays_values", "against_cupy", "cupy_names"),
    "virtualgpu/cp/_elementwise": _virtual("fuse", "fuse_refusals", "fuse_machine", "generated"),
    "virtualgpu/records": (
        "tests/records",
        *_virtual("memory_hooks", "device_attributes"),
        "tests/recordings/test_files.py",
        "tests/views",
    ),
    "gpulab/analysis": ("tests/trace", "tests/session/test_check_streams.py"),
    "gpulab/analysis/files": ("tests/trace/test_files.py", "tests/session/test_recorded_timelines.py"),
    "gpulab/analysis/cupti": ("tests/trace/test_cupti_records.py", "tests/trace/test_stream_order.py"),
    "virtualgpu/model/recording": (
        *_virtual("program_names", "recorder", "nvtx", "line_watch"),
        "tests/session/test_timeline.py",
        "tests/session/test_check_streams.py",
    ),
    "gpulab/session": (
        *_in("session", ("sides", "choice", "arguments", "waiting", "observe")),
        "gpu:tests/real/test_order.py",
        "gpu:tests/session/test_real_gpu.py",
    ),
    "gpulab/session/pools": ("tests/memory",),
    "gpulab/lab": ("tests/session", "tests/recordings", *_ON_A_GPU),
    "gpulab/lab/faults": _in("session", ("sandbox_parts", "under", "who_wrote", "sandbox", "nvidia_tools")),
    "gpulab/lab/fusion": ("tests/session/test_traffic.py",),
    "gpulab/lab/fusion/compiler": ("tests/session/test_traffic.py", "tests/session/test_tracing_compiler.py"),
    "gpulab/lab/libraries": (
        "tests/session/test_calls.py",
        "tests/session/test_follow.py",
        "tests/session/test_tune.py",
    ),
    "gpulab/lab/links": _in("session", ("collective_parts", "collective", "slices", "ranks")),
    "gpulab/lab/monitor": ("tests/session/test_monitor.py", "tests/real/test_load.py"),
    "gpulab/lab/precision": ("tests/session/test_precision.py",),
    "gpulab/lab/profiling": ("tests/session/test_profile.py", "tests/trace/test_profile.py"),
    "gpulab/lab/why": ("tests/session/test_diagnose.py", "tests/session/test_roofline.py"),
    "gpulab/lab/memory": ("tests/memory", "tests/session/test_ladder.py"),
    "gpulab/real": (*_ON_A_GPU, *_WATCHERS, "tests/real", "tests/session/test_doctor.py"),
    "gpulab/real/cupti": (
        *_ON_A_GPU,
        "tests/trace/test_cupti_library.py",
        "tests/trace/test_cupti_records.py",
    ),
    "gpulab/real/memory": ("tests/memory",),
    "gpulab/views": (
        *_views("common", "launch_chart", "device_and_occupancy", "timeline"),
        "tests/session/test_saving.py",
    ),
    "gpulab/views/access": _views("access"),
    "gpulab/views/allocator": _views("allocator_view"),
    "gpulab/views/collective": ("tests/session/test_collective.py", _DRAWN),
    "gpulab/views/device": _views("device_and_occupancy"),
    "gpulab/views/graph": _views("graph_view"),
    "gpulab/views/ladder": _views("ladder_chart"),
    "gpulab/views/launch": _views("launch_chart"),
    "gpulab/views/memory": ("tests/memory/test_chart.py", _DRAWN),
    "gpulab/views/monitor": ("tests/session/test_monitor.py", _DRAWN),
    "gpulab/views/roofline": (*_views("roofline"), "tests/session/test_roofline.py"),
    "gpulab/views/layers": ("tests/session/test_follow.py", _DRAWN),
    "gpulab/views/traffic": ("tests/session/test_traffic.py", _DRAWN),
    "gpulab/views/occupancy": _views("device_and_occupancy"),
    "gpulab/views/precision": ("tests/session/test_precision.py", _DRAWN),
    "gpulab/views/parts": _views(
        "scenes",
        "parts",
        "picture",
        "axes",
        "boxes",
        "layers",
        "contrast",
        "common",
        "graph_view",
        "timeline",
    ),
    "gpulab/views/tables": (
        "tests/views/test_snapshots.py",
        *_in("session", ("tables", "diagnose", "profile", "calls", "who_wrote", "check_streams", "sandbox")),
        *("tests/memory/test_report.py", "tests/counters/test_as_run.py", _DRAWN),
        *_sanitizer("_words"),
    ),
    "gpulab/views/timeline": _views("timeline", "trace_views"),
    "gpulab/views/warp": _views("warp_stepper"),
    "gpulab_course/teach": (
        *_teach("store", "folders", "prediction", "quiz", "progress", "widgets", "first_lines", "figures"),
        "tests/session/test_names.py",
    ),
    "gpulab_course/teach/interview": ("tests/interview",),
    "gpulab_course/teach/predictions": _teach("numbers", "prediction", "course_predictions", "widgets"),
    "gpulab_course/classroom": _teach("classroom_made_up", "classroom"),
    "gpulab_course/teach/judge": _teach("draw", "advice", "exercises", "judge", "kernel_costs"),
    "gpulab_course/teach/judge/kernel": _teach("kernels_judged", "judge", "kernel_costs"),
    "gpulab_course/teach/judge/python": _teach(
        *("counts", "results", "judging_programs", "programs", "n15", "judge", "processes")
    ),
    "gpulab/processes": (
        "tests/processes",
        *_teach("judge", "processes"),
        "tests/session/test_ranks.py",
    ),
    "gpulab/diagnosis": ("tests/session/test_doctor.py",),
    "gpulab_course/content": ("tests/teach",),
}


@dataclass(frozen=True, slots=True)
class Mutant:
    """One small fault: where it is and what the file holds with it."""

    path: str
    line: int
    last_line: int
    what: str
    code: str
    text: str
    at_import: bool = False

    @property
    def key(self) -> tuple[str, str, str]:
        """What stays the same when lines above it are added."""
        return self.path, self.code, self.what


# Faults ------------------------------------------------------------------------------------------------

_COMPARED: dict[type[ast.cmpop], type[ast.cmpop]] = {
    ast.Lt: ast.LtE,
    ast.LtE: ast.Lt,
    ast.Gt: ast.GtE,
    ast.GtE: ast.Gt,
    ast.Eq: ast.NotEq,
    ast.NotEq: ast.Eq,
    ast.Is: ast.IsNot,
    ast.IsNot: ast.Is,
    ast.In: ast.NotIn,
    ast.NotIn: ast.In,
}
_COMPUTED: dict[type[ast.operator], type[ast.operator]] = {
    ast.Add: ast.Sub,
    ast.Sub: ast.Add,
    ast.Mult: ast.FloorDiv,
    ast.FloorDiv: ast.Mult,
    ast.Div: ast.Mult,
    ast.Mod: ast.FloorDiv,
    ast.LShift: ast.RShift,
    ast.RShift: ast.LShift,
    ast.BitAnd: ast.BitOr,
    ast.BitOr: ast.BitAnd,
    ast.BitXor: ast.BitOr,
    ast.Pow: ast.Mult,
    ast.MatMult: ast.Mult,
}


# Keywords that only guard: lengths that are equal anyway, a text's encoding, where a warning points.
_GUARDS = {"strict", "encoding", "stacklevel"}


def _changed(node: Any, **fields: Any) -> Any:
    new = copy.copy(node)
    for name, value in fields.items():
        setattr(new, name, value)
    return new


def faults_of(node: Any) -> Iterator[tuple[Any, str]]:
    """Faulty versions of one node and a name for each."""
    match node:
        case ast.Compare(ops=[op, *rest]) if type(op) in _COMPARED:
            new = _COMPARED[type(op)]
            yield _changed(node, ops=[new(), *rest]), f"{type(op).__name__} -> {new.__name__}"
        case ast.BinOp(op=op) if type(op) in _COMPUTED and not _is_text(node):
            yield (
                _changed(node, op=_COMPUTED[type(op)]()),
                f"{type(op).__name__} -> {_COMPUTED[type(op)].__name__}",
            )
        case ast.BoolOp(op=op):
            other = ast.Or if isinstance(op, ast.And) else ast.And
            yield _changed(node, op=other()), f"{type(op).__name__} -> {other.__name__}"
        case ast.UnaryOp(op=ast.Not(), operand=operand):
            yield operand, "not left out"
        case ast.UnaryOp(op=ast.USub(), operand=operand) if not isinstance(operand, ast.Constant):
            yield operand, "minus left out"
        case ast.Constant(value=bool() as value):
            yield _changed(node, value=not value), f"{value} -> {not value}"
        case ast.Constant(value=int() as value):
            yield _changed(node, value=value + 1), f"{value} -> {value + 1}"
            if value:
                yield _changed(node, value=value - 1), f"{value} -> {value - 1}"
        case ast.Constant(value=float() as value):
            yield _changed(node, value=2 * value + 1), f"{value} -> {2 * value + 1}"
        case ast.If(test=test) | ast.While(test=test) | ast.IfExp(test=test):
            negated = ast.UnaryOp(op=ast.Not(), operand=test)
            yield _changed(node, test=negated), "condition negated"
        case ast.Return(value=value) if value is not None and ast.unparse(value) != "None":
            yield _changed(node, value=None), "nothing returned"
        case ast.Raise():
            yield ast.Pass(), "nothing raised"
        case ast.AugAssign(op=op) if type(op) in _COMPUTED:
            new_op = _COMPUTED[type(op)]
            yield _changed(node, op=new_op()), f"{type(op).__name__}= -> {new_op.__name__}="
            yield ast.Pass(), "statement left out"
        case ast.Expr(value=ast.Call()):
            yield ast.Pass(), "statement left out"
        case ast.Assign(targets=[ast.Attribute() | ast.Subscript()]) | ast.Delete():
            yield ast.Pass(), "statement left out"
        case ast.Break():
            yield ast.Continue(), "break -> continue"
        case ast.Continue():
            yield ast.Break(), "continue -> break"
        case ast.Call(keywords=keywords):
            for n, keyword in enumerate(keywords):
                if keyword.arg is not None and keyword.arg not in _GUARDS:
                    yield (
                        _changed(node, keywords=keywords[:n] + keywords[n + 1 :]),
                        f"{keyword.arg}= left out",
                    )


def _is_text(node: ast.AST) -> bool:
    """Whether an operator joins or formats text."""
    return any(
        isinstance(n, ast.JoinedStr) or (isinstance(n, ast.Constant) and isinstance(n.value, (str, bytes)))
        for n in (getattr(node, "left", None), getattr(node, "right", None))
    )


def _is_measure(targets: list[ast.expr]) -> bool:
    """Whether a statement gives pixels of a picture, one more or less of which is a matter of taste."""
    names = [n.id for target in targets for n in ast.walk(target) if isinstance(n, ast.Name)]
    return bool(names) and all(name.endswith("_PX") for name in names)


def _sites(node: Any, statement: Any, inside: bool = False) -> Iterator[tuple[Any, Any, bool]]:
    """Nodes that faults may go into, with the statement that each is in, and whether it is in a function."""
    if isinstance(node, (ast.JoinedStr, ast.Assert, ast.Import, ast.ImportFrom, ast.Global, ast.Nonlocal)):
        return
    if isinstance(node, ast.If) and ast.unparse(node.test).endswith("TYPE_CHECKING"):
        return
    if isinstance(node, ast.keyword) and node.arg in _GUARDS:
        return
    if isinstance(node, ast.Assign) and not inside and _is_measure(node.targets):
        return
    simple = isinstance(node, ast.stmt) and not hasattr(node, "body")
    statement = node if simple else statement
    yield node, statement, inside
    if isinstance(node, ast.Raise):
        return
    function = isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda))
    for name, value in ast.iter_fields(node):
        if name in ("annotation", "returns", "decorator_list", "type_params"):
            continue
        for child in value if isinstance(value, list) else [value]:
            if isinstance(child, ast.AST):
                around = statement if not isinstance(child, ast.stmt) else child
                yield from _sites(child, around, inside or (function and name == "body"))


def mutants(path: str, source: str) -> list[Mutant]:
    """Every fault that can be planted in a file."""
    lines = source.encode().splitlines(keepends=True)
    starts = [0]
    for line in lines:
        starts.append(starts[-1] + len(line))
    data = source.encode()
    found: list[Mutant] = []
    place: Any
    tree = ast.parse(source)
    for node, statement, inside in _sites(tree, tree):
        if not hasattr(node, "lineno"):
            continue
        for new, what in faults_of(node):
            # Of a compound statement only the condition is written anew.
            if isinstance(node, (ast.If, ast.While)):
                place = node.test
                piece = new.test
            else:
                place = node
                piece = new
            begin = starts[place.lineno - 1] + place.col_offset
            end = starts[(place.end_lineno or 1) - 1] + (place.end_col_offset or 0)
            text = ast.unparse(piece)
            if isinstance(place, ast.expr):
                text = f"({text})"
            changed = (data[:begin] + text.encode() + data[end:]).decode()
            try:
                compile(changed, path, "exec")
            except (SyntaxError, ValueError):
                continue
            code = source.splitlines()[place.lineno - 1].strip()
            last = max(getattr(statement, "end_lineno", None) or place.lineno, place.lineno)
            found.append(
                Mutant(path, place.lineno, min(last, place.lineno + 12), what, code, changed, not inside)
            )
    return found


def equivalents() -> dict[tuple[str, str, str], str]:
    """Faults known to change nothing, and why."""
    rows: dict[tuple[str, str, str], str] = {}
    if EQUIVALENT.exists():
        for line in EQUIVALENT.read_text(encoding="utf-8").splitlines():
            if line and not line.startswith("#"):
                path, code, what, why = line.split("\t")
                assert why.strip(), f"an equivalent mutant needs a reason: {line}"
                rows[path, code, what] = why
    return rows


# Running -----------------------------------------------------------------------------------------------


@dataclass(slots=True)
class Passage:
    """Which tests of a room run over which lines, and how long each takes."""

    seconds: dict[str, float]
    tests_of: dict[str, dict[int, list[str]]]

    def tests(self, mutant: Mutant) -> tuple[list[str], bool]:
        """Tests that pass over a fault, the quick first, and whether one was seen to.

        Where none was, it may be in another process: then those that come nowhere near the room are tried.
        What runs when a module is imported belongs to every test that comes to the module, first to those
        that have its name, or begin with it.
        """
        lines = self.tests_of.get(mutant.path, {})
        # What is compiled is passed over by whichever test comes first, and run by all.
        compiled = _TRANSLATED in (ROOT / mutant.path).read_text(encoding="utf-8")
        if mutant.at_import:
            lines = {mutant.line: [test for tests in lines.values() for test in tests]}
        elif compiled:
            lines = {mutant.line: [*self.seconds]}
        found = lines.get(mutant.line) or []
        if not found:
            found = [t for n in range(mutant.line, mutant.last_line + 1) for t in lines.get(n, ())]
        near = {test for by_line in self.tests_of.values() for tests in by_line.values() for test in tests}
        chosen = {*found} - {""} or ({*self.seconds} if found else {*self.seconds} - near)
        total = 0.0
        out: list[str] = []
        stem = Path(mutant.path).stem
        own = f"/test_{stem}.py::", f"/test_{stem}_"
        of_others = {t for t in chosen if mutant.at_import and not any(name in t for name in own)}
        for test in sorted(chosen, key=lambda t: (t in of_others, self.seconds[t], t)):
            total += self.seconds[test]
            if total > _BUDGET_S * (_MORE if compiled else 1) and out:
                break
            out.append(test)
        return out, bool(found)


def _pytest(tree: Path, arguments: list[str], environment: dict[str, str], limit_s: float) -> int | None:
    """Exit status of pytest in a tree, or None past the limit; whatever it started ends with it."""
    arguments = ["-q", "-p", "no:cacheprovider", "-p", "no:xdist", *arguments]
    paths = [str(tree), str(tree / "tools")]
    path = os.pathsep.join(filter(None, [environment.get("PYTHONPATH"), *paths]))
    # What a process wrote of a module with one fault would pass for the next of the same second and length.
    environment = {**environment, "PYTHONPATH": path, "PYTHONDONTWRITEBYTECODE": "1"}
    if _REPORT not in environment and hasattr(os, "fork"):
        child = os.fork()
        if child == 0:
            _run_here(tree, paths, arguments, environment)
        deadline = time.monotonic() + limit_s
        while time.monotonic() < deadline:
            ended, status = os.waitpid(child, os.WNOHANG)
            if ended:
                return os.waitstatus_to_exitcode(status)
            time.sleep(0.02)
        with contextlib.suppress(ProcessLookupError):
            os.killpg(child, signal.SIGKILL)
        os.waitpid(child, 0)
        return None
    command = [sys.executable, "-m", "pytest", *arguments]
    with subprocess.Popen(
        command, cwd=tree, env={**os.environ, **environment}, stdin=subprocess.DEVNULL
    ) as run:
        try:
            return run.wait(limit_s)
        except subprocess.TimeoutExpired:
            run.kill()
            return None


def _run_here(tree: Path, paths: list[str], arguments: list[str], environment: dict[str, str]) -> NoReturn:
    """Run pytest in this process, which has been forked for it and has everything heavy loaded."""
    try:
        os.setsid()
        quiet = os.open(os.devnull, os.O_RDWR)
        for stream in (0, 1, 2):
            os.dup2(quiet, stream)
        os.chdir(tree)
        os.environ.update(environment)
        sys.dont_write_bytecode = True
        sys.path[:] = paths + [p for p in sys.path if p and Path(p).resolve() not in (ROOT, ROOT / "tools")]
        import pytest

        os._exit(int(pytest.main(arguments)))
    finally:
        os._exit(70)


def load_what_tests_share() -> None:
    """Load what takes long to import and is not ours, for the forked processes to have."""
    drawing = ("PIL.Image", "ipywidgets", "nbformat")
    for name in ("pytest", "numpy", "llvmlite.binding", "hypothesis", "psutil", *drawing):
        with contextlib.suppress(ImportError):
            importlib.import_module(name)


def _tracked(root: Path) -> list[str]:
    listed = subprocess.run(
        ["git", "ls-files", "-coz", "--exclude-standard"],
        cwd=root,
        capture_output=True,
        text=True,
        check=True,
    )
    return [name for name in listed.stdout.split("\0") if name and (root / name).is_file()]


def copy_tree(target: Path) -> None:
    """The checkout's files under `target`."""
    for name in _tracked(ROOT):
        place = target / name
        place.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(ROOT / name, place)


def passage(tree: Path, room: str, tests: list[str], cache: Path) -> Passage:
    """Run a room's tests once without any fault, and note what runs where."""
    digest = hashlib.sha256()
    places = [tree / test.removeprefix(_GPU) for test in tests]
    own = {
        *files_of(room, tree),
        *(str(f.relative_to(tree)) for place in places for f in _python_files(place)),
        # What the tests beside it lean on decides, too, where they pass.
        *(
            str(f.relative_to(tree))
            for place in places
            for f in place.parent.glob("*.py")
            if not f.name.startswith("test_")
        ),
    }
    for name in sorted({*own, str(Path(passed.__file__).relative_to(ROOT))}):
        digest.update(name.encode() + b"\0" + (tree / name).read_bytes())
    kept = (
        Path(tempfile.gettempdir())
        / "gpulab-mutate"
        / f"{digest.hexdigest()[:16]}-{room.replace('/', '.')}.json"
    )
    if not kept.exists():
        kept.parent.mkdir(exist_ok=True)
        temporary = kept.with_suffix(f".{os.getpid()}")
        own_folder = tempfile.TemporaryDirectory(prefix="gpulab-passed-")
        environment = passed.environment(tree / room, Path(own_folder.name) / "shared", Path(own_folder.name))
        environment |= {_REPORT: str(temporary), "GPULAB_CACHE_DIR": str(cache)}
        facts: dict[str, Any] = {"seconds": {}, "lines": {}}
        for prefix, mine in _by_device(tests):
            chosen = (*_GPU_PLUGIN, "-m", "gpu") if prefix else ("-m", "not gpu and not browser and not slow")
            if _pytest(tree, ["-p", "mutate", *chosen, *mine], environment, 3600) not in (0, 1):
                raise SystemExit(f"The tests of {room} do not run.")
            _add_facts(facts, json.loads(temporary.read_text(encoding="utf-8")), prefix)
        own_folder.cleanup()
        temporary.write_text(json.dumps(facts), encoding="utf-8")
        temporary.replace(kept)
    facts = json.loads(kept.read_text(encoding="utf-8"))
    lines = {
        name: {int(n): found for n, found in by_line.items()} for name, by_line in facts["lines"].items()
    }
    return Passage(facts["seconds"], lines)


def _by_device(tests: list[str]) -> list[tuple[str, list[str]]]:
    """The tests as they are, and those with a GPU's stand-in, where there are any of a kind."""
    gpu = [test.removeprefix(_GPU) for test in tests if test.startswith(_GPU)]
    plain = [test for test in tests if not test.startswith(_GPU)]
    return [(prefix, names) for prefix, names in (("", plain), (_GPU, gpu)) if names]


def _add_facts(facts: dict[str, Any], more: dict[str, Any], prefix: str) -> None:
    facts["seconds"].update({prefix + test: took for test, took in more["seconds"].items()})
    for name, by_line in more["lines"].items():
        known = facts["lines"].setdefault(name, {})
        for line, found in by_line.items():
            known.setdefault(line, []).extend(test and prefix + test for test in found)


def _python_files(place: Path) -> list[Path]:
    return sorted(place.rglob("*.py")) if place.is_dir() else [place]


def outcome(tree: Path, mutant: Mutant, tests: list[str], expected_s: float, cache: Path) -> str:
    """``killed``, ``survived`` or ``timeout`` of one fault; the tree is as before afterwards."""
    file = tree / mutant.path
    before = file.read_bytes()
    with tempfile.TemporaryDirectory(prefix="gpulab-mutant-") as folder:
        # Whatever a faulty compiler writes into its cache stays there.
        own = Path(folder) / "cache"
        shutil.copytree(cache, own, copy_function=_linked) if cache.exists() else own.mkdir()
        listed = Path(folder) / "tests.txt"
        file.write_text(mutant.text, encoding="utf-8")
        status: int | None = 0
        try:
            for prefix, mine in _by_device(tests):
                listed.write_text("\n".join(mine), encoding="utf-8")
                arguments = ["-x", *(_GPU_PLUGIN if prefix else ()), f"@{listed}"]
                limit_s = (expected_s * _PATIENCE + _GRACE_S) * _crowd()
                status = _pytest(tree, arguments, {"GPULAB_CACHE_DIR": str(own)}, limit_s)
                if status not in (0, 5):
                    break
        finally:
            file.write_bytes(before)
    return "timeout" if status is None else "survived" if status in (0, 5) else "killed"


def _crowd() -> float:
    """How many times longer things take while others compute, too."""
    return max(1.0, os.getloadavg()[0] / (os.cpu_count() or 1)) if hasattr(os, "getloadavg") else 1.0


def _linked(source: str, target: str) -> None:
    """The same file at another place; a cache replaces its files whole and so never writes into one."""
    with contextlib.suppress(FileNotFoundError):  # another process was still writing it
        try:
            os.link(source, target)
        except OSError:
            shutil.copyfile(source, target)


def files_of(room: str, root: Path = ROOT) -> list[str]:
    """A room's own modules, without those of rooms inside it."""
    folder = root / room
    if not folder.is_dir():
        return [f"{room}.py"] if folder.with_suffix(".py").exists() else []
    inner = [other for other in ROOMS if other.startswith(f"{room}/")]
    names = [str(path.relative_to(root)) for path in sorted(folder.rglob("*.py"))]
    return [name for name in names if not any(name.startswith(f"{other}/") for other in inner)]


def examine(
    room: str, sample: int, seed: int, tree: Path, say: Callable[[str], None], only: str = ""
) -> dict[str, int]:
    """Plant a sample of faults in one room; counts by outcome."""
    names = [name for name in files_of(room, tree) if only in name]
    every = [m for name in names for m in mutants(name, (tree / name).read_text(encoding="utf-8"))]
    known = equivalents()
    counted = [m for m in every if m.key not in known]
    chosen = random.Random(f"{seed} {room}").sample(counted, min(sample, len(counted)))
    tests = [name for name in ROOMS[room] if (tree / name.removeprefix(_GPU)).exists()]
    find = "from virtualgpu.compile.cache import directory; print(directory())"
    found_at = subprocess.run(
        [sys.executable, "-c", find],
        cwd=tree,
        env={**os.environ, "PYTHONPATH": str(tree)},
        capture_output=True,
        text=True,
        check=True,
    )
    cache = Path(found_at.stdout.strip())
    runs = passage(tree, room, tests, cache)
    result = {"killed": 0, "timeout": 0, "survived": 0}
    for n, mutant in enumerate(sorted(chosen, key=lambda m: (m.path, m.line)), 1):
        started = time.monotonic()
        selected, seen = runs.tests(mutant)
        if not selected:
            found = "survived"
            note = " (no test comes here)"
        else:
            expected = sum(runs.seconds[test] for test in selected)
            found = outcome(tree, mutant, selected, expected, cache)
            note = f" ({len(selected)} tests)" if seen else " (no test was seen here)"
        result[found] += 1
        if found != "killed":
            say(f"  {found:8} {mutant.path}:{mutant.line}: {mutant.what}: {mutant.code}{note}")
        print(
            f"\r{room} {n}/{len(chosen)} {time.monotonic() - started:5.1f} s ",
            end="",
            file=sys.stderr,
            flush=True,
        )
    print(file=sys.stderr)
    total = sum(result.values())
    caught = result["killed"] + result["timeout"]
    share = f"{caught / total:.0%}" if total else "no faults"
    say(
        f"{room}: {share} caught of {total} ({result['killed']} killed, {result['timeout']} timeout, "
        f"{result['survived']} survived; {len(every)} possible, {len(every) - len(counted)} known to change "
        "nothing)"
    )
    return result


def main() -> None:
    """Read the command line and examine the rooms it names."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("rooms", nargs="*", help="rooms, such as virtualgpu/model; all of them by default")
    parser.add_argument("--sample", type=int, default=20, help="faults planted in each room")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--only", default="", help="only files whose path contains this")
    parser.add_argument("--out", type=Path, help="append the report to this file")
    parser.add_argument("--nice", type=int, default=19, help="how far to stand back for other processes")
    parser.add_argument("--list", action="store_true", help="list rooms, faults and tests and stop")
    chosen = parser.parse_args()
    rooms = chosen.rooms or [room for room in ROOMS if files_of(room)]
    if unknown := set(rooms) - set(ROOMS):
        raise SystemExit(f"No rooms: {', '.join(unknown)}. There are {', '.join(ROOMS)}.")
    if chosen.list:
        for room in rooms:
            faults = sum(len(mutants(n, (ROOT / n).read_text(encoding="utf-8"))) for n in files_of(room))
            print(f"{room:30} {faults:6} faults  {' '.join(ROOMS[room])}")
        return

    def say(text: str) -> None:
        print(text, flush=True)
        if chosen.out:
            with chosen.out.open("a", encoding="utf-8") as file:
                file.write(text + "\n")

    os.nice(chosen.nice)
    load_what_tests_share()
    total = {"killed": 0, "timeout": 0, "survived": 0}
    with tempfile.TemporaryDirectory(prefix="gpulab-mutate-") as folder:
        tree = Path(folder)
        copy_tree(tree)
        for room in rooms:
            for found, count in examine(room, chosen.sample, chosen.seed, tree, say, chosen.only).items():
                total[found] += count
    every = sum(total.values())
    if every and len(rooms) > 1:
        say(f"all: {(total['killed'] + total['timeout']) / every:.0%} caught of {every}")


# The pytest plugin that notes which test runs over which line -------------------------------------------

if _REPORT in os.environ:
    import pytest

    _root = str(ROOT) + os.sep
    _lines: dict[str, dict[int, list[str]]] = {}
    _seconds: dict[str, float] = {}
    _failed: set[str] = set()
    _passed = passed.Passed.of_environment()

    def _note(test: str) -> None:
        for name, numbers in _passed.taken().items():
            by_line = _lines.setdefault(name.removeprefix(_root), {})
            for number in numbers:
                by_line.setdefault(number, []).append(test)

    _passed.watch()  # already here, for what conftest.py imports

    def pytest_sessionstart() -> None:
        """Take fewer examples of each property."""
        with contextlib.suppress(ImportError):
            from hypothesis import settings

            settings.register_profile("watched", max_examples=15, deadline=None)
            settings.load_profile("watched")

    @pytest.hookimpl(hookwrapper=True)
    def pytest_runtest_protocol(item: pytest.Item) -> Iterator[None]:
        """Watch one test, and the processes that it starts."""
        _note("")  # whatever ran outside of tests: imports
        started = sum(os.times()[:4])  # processor time, children's too: others compute meanwhile
        _passed.watch()
        yield
        if item.nodeid in _failed:  # as some do that measure time, which watching takes
            _passed.taken()
            return
        _note(item.nodeid)
        _seconds[item.nodeid] = sum(os.times()[:4]) - started

    def pytest_runtest_logreport(report: pytest.TestReport) -> None:
        """Leave tests out that fail without any fault, or do not run here."""
        if not report.passed:
            _failed.add(report.nodeid)

    def pytest_sessionfinish() -> None:
        """Write down what was seen."""
        sys.settrace(None)
        with contextlib.suppress(KeyError):
            facts = {"seconds": _seconds, "lines": _lines}
            Path(os.environ[_REPORT]).write_text(json.dumps(facts), encoding="utf-8")


if __name__ == "__main__":
    main()
