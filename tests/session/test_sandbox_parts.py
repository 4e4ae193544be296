"""The sandbox's parts in this process: a job that is run, what crosses, and a process that is made up."""

from __future__ import annotations

import inspect
import linecache
import os
import pickle
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from contextlib import nullcontext
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import gpulab as gl
from gpulab import session
from gpulab.lab.faults import child, jobs, sandbox
from gpulab.lab.faults.jobs import Call, Cell
from gpulab.processes.errors import ProcessError
from gpulab.processes.values import DamagedError
from gpulab.views.tables.sandbox import SandboxTable
from virtualgpu.errors import GpulabError
from virtualgpu.records.faults.sandboxed import Culprit, SandboxRun
from virtualgpu.records.hazards import Place
from virtualgpu.records.timeline import SourceLine

FAULT = 'extern "C" __global__ void k(float* x) {\n  x[1ll << 40] = 1;\n}'
NOTHING = {
    "error": "",
    "frames": [],
    "status": 0,
    "sticky": False,
    "at_end": False,
    "notes": [],
    "figures": [],
    "shown": {},
    "result": None,
    "given": None,
}
LOCK = threading.Lock()


# What runs in there -------------------------------------------------------------------------------------


def ran(job: Any, *args: Any, returns: bool = False, blocking: bool = False, watchdog_s: float = 5.0) -> Any:
    """What `child.run` says of a job, which it is given as it comes out of the pickle."""
    held = Call(job, args) if callable(job) and not isinstance(job, Cell) else job
    return child.run(None, jobs.packed(held), returns, blocking, watchdog_s)


@pytest.fixture
def alone(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """No processes but those that a test puts into this list, and no figures."""
    pids: list[int] = []

    def ends(status: int) -> None:
        raise AssertionError(f"it would have ended this process, with {status}")

    monkeypatch.setattr(os, "_exit", ends)
    monkeypatch.setattr(child, "children", lambda me: pids)
    monkeypatch.delitem(sys.modules, "matplotlib.pyplot", raising=False)
    gl.use_device("virtual:T4")
    return pids


@pytest.mark.usefixtures("alone")
def test_a_job_that_ends_well_says_nothing_else() -> None:
    assert ran(lambda: 3) == NOTHING
    seen = ran(lambda a: {"twice": 2 * a}, 21, returns=True)
    assert pickle.loads(seen.pop("result").tobytes()) == {"twice": 42}
    assert seen == {key: value for key, value in NOTHING.items() if key != "result"}


class Silent(Exception):
    def __str__(self) -> str:
        raise RuntimeError("no words")


class Numbered(Exception):
    status: Any = 7


class Named(Numbered):
    status = "seven"


@pytest.mark.usefixtures("alone")
def test_an_error_is_told_in_a_line_with_its_number() -> None:
    def fails(error: BaseException) -> None:
        raise error

    seen = ran(fails, ValueError("here"), returns=True)
    assert (seen["error"], seen["status"], seen["sticky"]) == ("ValueError: here", 0, False)
    assert seen["result"] is None
    assert [file for file, _ in seen["frames"]] == [__file__]
    assert ran(fails, ValueError("x" * 4001))["error"] == "ValueError: " + "x" * 4000
    assert ran(fails, ValueError())["error"] == ran(fails, ValueError(""))["error"] == "ValueError"
    assert ran(fails, SystemExit(3))["error"] == "SystemExit: calls exit(3), which would end Python."
    child._failed(Silent(), seen)
    assert seen["error"] == "Silent"
    child._failed(Numbered("n"), seen)
    assert (seen["error"], seen["status"]) == ("Numbered: n", 7)
    child._failed(Named(), seen)
    assert (seen["error"], seen["status"]) == ("Named", 0)


@pytest.mark.usefixtures("alone")
def test_of_a_deep_call_the_innermost_twenty_lines_are_kept() -> None:
    def deep(n: int) -> int:
        return 1 // n + deep(n - 1)

    for depth, lines in ((18, 19), (19, 20), (30, 20)):
        frames = ran(deep, depth)["frames"]
        assert len(frames) == lines
        assert len({*frames}) == 1


def faulty(waits: bool) -> None:
    x = gl.cp.zeros(1, dtype="f4")
    gl.cp.RawKernel(FAULT, "k")((1,), (1,), (x,))
    if waits:
        x.get()


@pytest.mark.usefixtures("alone")
@pytest.mark.parametrize("waits", [True, False])
def test_a_fault_is_told_where_something_waits_or_at_the_end(waits: bool) -> None:
    first = faulty.__code__.co_firstlineno
    seen = ran(faulty, waits)
    assert "an illegal memory access was encountered" in seen["error"]
    assert (seen["status"], seen["sticky"], seen["at_end"]) == (700, True, not waits)
    assert seen["frames"] == ([(__file__, first + 4)] if waits else [])
    assert seen["given"]["given"] == (1, __file__, first + 2)
    assert seen["given"]["kernel"] == "k"
    assert seen["given"]["place"] == (2, "x[1ll << 40] = 1;", (0, 0, 0), (0, 0, 0))
    assert "out of bounds" in seen["given"]["said"] or "outside" in seen["given"]["said"]
    blocked = ran(faulty, waits, blocking=True)
    assert (blocked["frames"], blocked["at_end"]) == ([(__file__, first + 2)], False)


@pytest.mark.usefixtures("alone")
def test_an_error_that_no_call_repeats_is_not_sticky() -> None:
    def numbered() -> None:
        raise Numbered

    seen = ran(numbered)
    assert (seen["status"], seen["sticky"], seen["given"]) == (7, False, None)


@pytest.mark.parametrize(("error", "said"), [(None, 0), (Numbered(), 7), (Named(), 0), (ValueError(), 0)])
def test_what_the_next_call_says(error: Exception | None, said: int) -> None:
    def synchronize() -> None:
        if error is not None:
            raise error

    runtime = SimpleNamespace(deviceSynchronize=synchronize)
    assert child._again(SimpleNamespace(cuda=SimpleNamespace(runtime=runtime))) == said


@pytest.mark.usefixtures("alone")
def test_a_virtual_device_gets_the_watchdogs_time_and_a_real_one_tells_no_culprit(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    given: list[Any] = []
    monkeypatch.setattr(session, "use_device", lambda **how: given.append(how))
    assert ran(len, (), watchdog_s=2.5) == NOTHING
    assert given == [{"watchdog_s": 2.5}]
    monkeypatch.setattr(session, "which_device", lambda: SimpleNamespace(kind="cuda"))
    monkeypatch.setattr(session, "late_faults", lambda blocking: nullcontext(None))
    assert ran(len, (), watchdog_s=2.5) == NOTHING
    assert len(given) == 1
    seen = ran(lambda: 1 // 0)
    assert (seen["error"].split(":")[0], seen["given"]) == ("ZeroDivisionError", None)


@pytest.mark.usefixtures("alone")
def test_what_cannot_leave_is_named() -> None:
    def words(made: Callable[[], Any], returns: bool = True) -> Any:
        return ran(made, returns=returns)["notes"]

    class Axis:
        held = property(lambda self: None)

        def __reduce__(self) -> Any:
            raise TypeError("no")

    end = "cannot leave the sandbox (TypeError): return numbers, texts, arrays or containers of them."
    seen: dict[str, Any] = {"notes": [], "result": None}
    child._bring(Axis(), True, seen)
    child._bring((n for n in range(3)), True, seen)
    assert seen == {
        "notes": [f"The result, an Axis, {end}", f"The result, a generator, {end}"],
        "result": None,
    }
    assert words(lambda: iter([1]), returns=False) == []


@pytest.mark.usefixtures("alone")
def test_a_cell_gives_its_names_and_how_its_last_line_shows_itself() -> None:
    seen = ran(Cell("y = x + 1\ny", "cell", {"x": 2}, ("y",)), returns=True)
    assert pickle.loads(seen["result"].tobytes()) == {"y": 3}
    assert seen["shown"] == {"text/plain": "3"}
    assert ran(Cell("y = x + 1\ny", "cell", {"x": 2}, ("y",)))["result"] is None


def test_processes_that_were_left_are_told_but_for_the_compilers(alone: list[int]) -> None:
    code = "import sys; sys.stdin.read()"
    pipe = subprocess.PIPE
    with (
        subprocess.Popen(["/bin/sh", "-c", "read x; :", "sh"], stdin=pipe) as left,
        subprocess.Popen(["/bin/sh", "-c", "read x; :", "/x/virtualgpu/compile/apart.py"], stdin=pipe) as own,
        subprocess.Popen([sys.executable, "-c", code], stdin=pipe) as ended,
    ):
        ended.kill()
        ended.wait()
        alone[:] = [own.pid, ended.pid]
        assert ran(len, ())["notes"] == []
        alone.append(left.pid)
        assert ran(len, ())["notes"] == ["It left processes behind, which were ended with it."]
        left.kill()
        own.kill()


def test_of_open_figures_sixteen_come_along_as_they_can_be_drawn(
    alone: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    def drawn(number: int, how: dict[str, Any]) -> bytes:
        if number == 2:
            raise ValueError("cannot be drawn")
        return repr((number, sorted(how.items()))).encode()

    def figure(number: int) -> Any:
        return SimpleNamespace(savefig=lambda file, **how: file.write(drawn(number, how)))

    pyplot = SimpleNamespace(get_fignums=lambda: list(range(1, 19)), figure=figure)
    monkeypatch.setitem(sys.modules, "matplotlib.pyplot", pyplot)
    how = [("bbox_inches", "tight"), ("dpi", 72), ("format", "png")]
    told = [each.tobytes().decode() for each in ran(len, ())["figures"]]
    assert told == [repr((number, how)) for number in (1, *range(3, 17))]
    assert alone == []


def test_a_process_that_gets_ready_opens_its_devices() -> None:
    gl.use_device("virtual:T4")
    child.warm(None, 1)
    assert session.virtual_side().machine.kernel_launches > 0
    assert session.which_device().count == 1
    child.warm(None, 2)
    assert session.which_device().count == 2
    child.warm(None, 1)
    assert session.which_device().count == 2  # what is there already stays
    assert child.there(None) is True


# What crosses -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("code", "bundle"),
    [
        ("x * 2", {"text/plain": "6"}),
        ("x * 2;", {}),
        ("x * 2 ; \n", {}),
        ("None", {}),
        ("y = x", {}),
        ("", {}),
        ("x\ny = 1", {}),
        ("x = 5\nx", {"text/plain": "5"}),
    ],
)
def test_only_a_last_expression_shows_itself(code: str, bundle: dict[str, str]) -> None:
    shown = Cell(code, "cell", {"x": 3}, ())()
    assert (shown.values, shown.bundle) == ({}, bundle)


def test_texts_and_pictures_as_text_are_kept_of_what_shows_itself() -> None:
    class Rich:
        def __repr__(self) -> str:
            return "rich"

        def _repr_html_(self) -> str:
            return "<b>rich</b>"

        def _repr_svg_(self) -> str:
            return "<svg/>"

        def _repr_latex_(self) -> str:
            return "$rich$"

        def _repr_png_(self) -> bytes:
            return b"png"

    shown = Cell("rich", "cell", {"rich": Rich()}, ())()
    assert shown.bundle == {"text/plain": "rich", "text/html": "<b>rich</b>", "image/svg+xml": "<svg/>"}


def test_a_cell_that_makes_not_all_that_it_was_to_give() -> None:
    assert Cell("a, b = 1, 2", "cell", {}, ("b",))().values == {"b": 2}
    with pytest.raises(NameError, match="the cell was to give b, c, and has not made it"):
        Cell("a = 1", "cell", {}, ("a", "b", "c"))()


def test_a_cell_takes_the_names_that_it_names() -> None:
    space = {"a": 1, "b": 2, "c": 3}
    assert list(jobs.used_by("print(b.real)\nfor c in d: a", space)) == ["a", "b", "c"]
    assert jobs.used_by("b.a + e", space) == {"b": 2}


class Stream:
    """Of the name of a handle, and none."""


class Sized:
    """Says of itself how large it would be elsewhere."""

    nbytes = 10**9


def test_handles_of_the_device_are_refused_and_others_of_their_name_cross() -> None:
    with pytest.raises(GpulabError) as told:
        jobs.packed(Cell("", "cell", {"np": np, "s": gl.cp.cuda.Stream(), "n": 1, "held": LOCK}, ()))
    assert str(told.value) == (
        "Cannot cross into the sandbox: s (a Stream), held (lock). Whatever belongs to this process, such as "
        "streams, events, graphs, files and locks, is to be made in there."
    )
    whole = jobs.packed(Cell("", "cell", {"s": Stream(), "pool": gl.cp.zeros(2)}, ()))
    assert isinstance(pickle.loads(whole).names["s"], Stream)


def test_arguments_are_told_by_number_and_globals_by_name() -> None:
    def refused(job: Any, *args: Any) -> str:
        with pytest.raises(GpulabError) as told:
            jobs.packed(Call(job, args))
        return str(told.value).partition(": ")[2].partition(". ")[0]

    inner = LOCK
    assert refused(len, 1, LOCK) == "argument 2 (lock)"
    assert refused(lambda: LOCK) == "LOCK (lock)"
    assert refused(lambda a: (LOCK, inner, a), LOCK) == "LOCK (lock), inner (lock), argument 1 (lock)"
    assert refused(imported, LOCK) == "argument 1 (lock)"  # it crosses by its name, its globals not at all


def imported() -> Any:
    return LOCK


def test_a_function_of_a_module_crosses_by_name_and_one_of_the_notebook_by_value(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assert pickle.loads(jobs.packed(Call(imported, ()))).function is imported
    made: dict[str, Any] = {"__name__": "__main__", "LOCK": LOCK}
    exec(compile("def late():\n    return LOCK", "cell-7", "exec"), made)
    late = made["late"]
    monkeypatch.setattr(sys.modules["__main__"], "late", late, raising=False)
    with pytest.raises(GpulabError, match=r"sandbox: LOCK \(lock\)\. "):
        jobs.packed(Call(late, ()))
    made["LOCK"] = 5
    came = pickle.loads(jobs.packed(Call(late, ()))).function
    assert (came(), came.__code__.co_filename, came.__code__.co_name) == (5, "cell-7", "late")


def test_what_cannot_be_pickled_after_all_is_told_with_its_reason() -> None:
    array = np.array([LOCK], dtype=object)
    with pytest.raises(GpulabError, match=r"sandbox \(TypeError: .*lock.*\): make in there what belongs to"):
        jobs.packed(Cell("", "cell", {"array": array}, ()))


def test_what_crosses_is_limited_to_the_byte(monkeypatch: pytest.MonkeyPatch) -> None:
    names = {
        "a": np.zeros(10, "u1"),
        "b": gl.cp.zeros(3000, "u1"),
        "c": Sized(),
        "d": np.zeros(2000, "u1"),
        "text": "x" * 1000,
    }
    monkeypatch.setattr(jobs, "_with_places", lambda job: bytes(256 << 20))  # all of it zeros, never touched
    assert len(jobs.packed(Cell("", "cell", names, ()))) == 256 << 20
    monkeypatch.setattr(jobs, "_with_places", lambda job: bytes((256 << 20) + 1))
    with pytest.raises(GpulabError) as told:
        jobs.packed(Cell("", "cell", names, ()))
    text = str(told.value)
    assert text.startswith(
        "What is to cross into the sandbox takes 268,435,457 bytes, and 268,435,456 may: "
        "b with 3,000 bytes, d with 2,000 bytes, text with 1,0"
    )
    assert text.count(" with ") == 3
    assert text.endswith(" bytes. Make large arrays in there.")


# Around the process -------------------------------------------------------------------------------------


class MadeUp:
    """A process that is made up: it notes what it is asked, and answers as the test wants."""

    made: list[MadeUp]
    answers: dict[str, Any]

    def __init__(self, *how: Any) -> None:
        self.how, self.asked, self.entered, self.ended = how, list[Any](), False, False
        self.limits: tuple[Any, ...] = ()
        self.made.append(self)

    def __enter__(self) -> MadeUp:
        self.entered = True
        return self

    def __exit__(self, *_: object) -> None:
        self.ended = True

    def limit(self, *limits: Any) -> None:
        self.limits = limits

    def ask(self, shown: str, function: Callable[..., Any], *args: Any) -> Any:
        answer = self.answers.get(function.__name__, True)
        answer = answer.pop(0) if isinstance(answer, list) else answer
        if function is child.warm:
            time.sleep(0.01)
        self.asked.append((function.__name__, *args))
        if isinstance(answer, Exception):
            raise answer
        return answer

    def printed(self) -> tuple[str, int]:
        return "so far\n", 3


@pytest.fixture
def made(monkeypatch: pytest.MonkeyPatch) -> type[MadeUp]:
    """Processes that are made up; `made` is all of them."""
    MadeUp.made, MadeUp.answers = [], {"run": dict(NOTHING)}
    keep = sandbox._Keep()
    monkeypatch.setattr(sandbox, "_keep", lambda pid: keep)
    monkeypatch.setattr(sandbox, "Talk", MadeUp)
    gl.use_device("virtual:T4")
    return MadeUp


STARTED = ("virtual:T4", 50.0, 60.0, 4 << 30, 64 << 10, {"MPLBACKEND": "Agg"})


def settled(talk: MadeUp, asked: int) -> list[Any]:
    """What it was asked, when that is so much."""
    for thread in threading.enumerate():
        if thread is not threading.current_thread() and getattr(thread, "_target", None) is sandbox._warmed:
            thread.join(5)
    assert len(talk.asked) == asked
    return talk.asked


def test_a_job_has_the_limits_that_are_documented(made: type[MadeUp]) -> None:
    seen = gl.sandbox(len, ())
    first, spare = made.made
    assert first.how == spare.how == STARTED
    assert first.limits == (20.0, 60.0, 4 << 30)
    ((what, whole, returns, blocking, watchdog_s),) = first.asked
    assert (what, returns, blocking, watchdog_s) == ("run", False, False, pytest.approx(20 / 3))
    assert pickle.loads(whole) == Call(len, ((),))
    assert (first.entered, first.ended, spare.entered, spare.ended) == (True, True, True, False)
    assert settled(spare, 1) == [("warm", 1)]
    assert seen.record.seconds < 60
    assert seen.record == SandboxRun(
        provenance=session.backend().provenance,
        name="len",
        seconds=seen.record.seconds,
        output="so far\n",
        output_lines=3,
    )
    assert (seen.ok, seen.output, seen.figures) == (True, "so far\n", [])
    gl.sandbox(len, (), launch_blocking=True, limit_s=50, memory_bytes=7)
    assert spare.limits == (50, 150, 7)
    assert spare.asked[-1][3] is True


def test_what_comes_back_is_all_in_the_record(made: type[MadeUp]) -> None:
    code = inspect.unwrap(gl.sandbox).__code__
    line = code.co_firstlineno + 1  # after the decorator
    file = code.co_filename
    given = {"given": (4, file, line), "kernel": "k", "said": "why", "place": (3, "x", (1, 0, 0), (2, 0, 0))}
    told = {
        "error": "E: 1\nand more",
        "frames": [(file, 1), (file, line)],
        "status": 700,
        "sticky": True,
        "notes": ["noted"],
        "given": given,
    }
    made.answers["run"] = NOTHING | told
    record = gl.sandbox(len, (), returns=True).record
    source = SourceLine("sandbox.py", line, "def sandbox(")
    assert record.frames == (SourceLine("sandbox.py", 1, linecache.getline(file, 1).strip()), source)
    assert record.culprit == Culprit(4, source, "k", Place(3, "x", (1, 0, 0), (2, 0, 0)), "why")
    assert (record.error, record.status, record.sticky) == ("E: 1\nand more", 700, True)
    assert (record.at_end, record.notes, record.blocking) == (False, ("noted",), False)
    assert len(made.made) == 2  # one, and the next that gets ready
    assert made.made[0].asked[0][2] is True
    made.answers["run"] = NOTHING | {**told, "at_end": True, "given": given | {"given": (4, "", 0)}}
    record = gl.sandbox(len, ()).record
    assert record.at_end
    assert record.culprit is not None
    assert record.culprit.source is None


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (ProcessError("it was too slow."), "it was too slow."),
        (DamagedError("no reply"), "it wrote to a file descriptor that is not its own"),
    ],
)
def test_a_process_that_was_ended_says_why(error: Exception, said: str, made: type[MadeUp]) -> None:
    made.answers["run"] = error
    seen = gl.sandbox(len, (), returns=True)
    assert (seen.record.output, seen.ok) == ("so far\n", False)
    assert repr(seen).startswith(f"len was ended: {said}")
    with pytest.raises(GpulabError, match=r"There is no result\. len was ended: "):
        _ = seen.result
    assert made.made[0].ended


LOST = {"error": "E: 1", "status": 700, "sticky": True}


def raised(line: int) -> dict[str, Any]:
    return NOTHING | LOST | {"frames": [(__file__, line)]}


@pytest.mark.parametrize("blocking", [False, True])
def test_where_only_launch_blocking_tells_the_launch_it_runs_once_more(
    blocking: bool, made: type[MadeUp]
) -> None:
    made.answers["run"] = [raised(5), raised(7)]
    record = gl.sandbox(len, (), returns=True, launch_blocking=blocking).record
    runs = [ask for talk in made.made for ask in talk.asked if ask[0] == "run"]
    assert [ask[2:4] for ask in runs] == ([(True, True)] if blocking else [(True, False), (False, True)])
    assert record.raised is not None
    assert record.raised.line == 5
    assert record.blocking is blocking
    assert record.culprit is not None
    assert (record.culprit.launch, record.culprit.source.line) == (0, 5 if blocking else 7)  # type: ignore[union-attr]
    assert "did it (a launch)" in repr(SandboxTable.of(record))


def test_a_launch_that_the_second_run_does_not_name_is_not_made_up(made: type[MadeUp]) -> None:
    made.answers["run"] = [raised(5), dict(NOTHING)]
    assert gl.sandbox(len, ()).record.culprit is None
    for other in (
        {"sticky": False},
        {"given": {"given": (1, "", 0), "kernel": "", "said": "", "place": (0, "", (0, 0, 0), (0, 0, 0))}},
    ):
        made.made.clear()
        made.answers["run"] = [raised(5) | other]  # another run would find no answer
        gl.sandbox(len, ())


def test_a_result_comes_back_where_it_was_declared(made: type[MadeUp]) -> None:
    made.answers["run"] = NOTHING | {"result": np.frombuffer(pickle.dumps([1, 2]), np.uint8)}
    assert gl.sandbox(len, (), returns=True).result == [1, 2]
    with pytest.raises(GpulabError, match=r"declared: gl\.sandbox\(\.\.\., returns=True\)"):
        _ = gl.sandbox(len, ()).result


def test_what_a_cell_shows_and_its_figures_stand_below_the_table(made: type[MadeUp]) -> None:
    def page(**shown: str) -> Any:
        figures = [np.frombuffer(b"fig", np.uint8)] if shown.pop("figure", "") else []
        bundle = {
            {"html": "text/html", "svg": "image/svg+xml", "plain": "text/plain"}[k]: v
            for k, v in shown.items()
        }
        made.answers["run"] = NOTHING | {"shown": bundle, "figures": figures}
        return gl.sandbox(len, ())._repr_mimebundle_()[0]  # type: ignore[index]

    bare = page()
    assert page(svg="<svg/>")["text/html"] == bare["text/html"] + "<svg/>"
    both = page(html="<b>", svg="<svg/>", plain="6", figure="yes")
    image = '<img alt="a figure from the sandbox" src="data:image/png;base64,Zmln">'
    assert both["text/html"] == bare["text/html"] + "<b>" + image
    assert both["text/plain"] == bare["text/plain"] + "\n6"


@pytest.mark.parametrize("limit_s", [0, -1, 50.5, float("nan")])
def test_a_limit_outside_of_its_bounds_is_told_with_them(limit_s: float, made: type[MadeUp]) -> None:
    with pytest.raises(ValueError, match=f"above 0 and up to 50, not {limit_s}"):
        gl.sandbox(len, (), limit_s=limit_s)
    assert gl.sandbox(len, (), limit_s=0.5).ok
    assert made.made[0].limits == (0.5, 1.5, 4 << 30)


def test_what_is_no_function_is_named(made: type[MadeUp]) -> None:
    with pytest.raises(TypeError, match="takes a function, not int: pass it without calling it"):
        gl.sandbox(3)  # type: ignore[arg-type]

    class Made:
        def __call__(self) -> None:
            pass

    assert gl.sandbox(Made()).record.name == "Made"
    assert len(made.made) == 2


# The process that waits ---------------------------------------------------------------------------------


def test_the_process_that_waits_is_taken_when_it_is_ready(made: type[MadeUp]) -> None:
    keep = sandbox._Keep()
    keep.prepare()
    keep.prepare()
    (spare,) = made.made
    assert keep.taken(False) is spare  # type: ignore[comparison-overlap]
    assert spare.asked == [("warm", 1), ("there",)]
    assert not spare.ended
    assert keep.taken(True) is made.made[1]  # type: ignore[comparison-overlap]
    assert made.made[1].asked == []


@pytest.mark.parametrize("error", [ProcessError("it has ended"), DamagedError("no reply")])
def test_one_that_no_longer_answers_is_replaced(error: Exception, made: type[MadeUp]) -> None:
    keep = sandbox._Keep()
    made.answers["there"] = error
    keep.prepare()
    taken = keep.taken(False)
    assert [talk.ended for talk in made.made] == [True, False]
    assert taken is made.made[1]  # type: ignore[comparison-overlap]


def test_one_of_another_device_is_replaced(made: type[MadeUp]) -> None:
    keep = sandbox._Keep()
    keep.prepare()
    gl.use_device("virtual:A100", count=2)
    keep.taken(False)
    first, second = made.made
    assert (first.ended, second.ended) == (True, False)
    assert ("there",) not in first.asked
    assert second.how[0] == "virtual:A100-SXM4-80GB"
    assert second.asked == [("warm", 2)]


def test_one_that_cannot_start_or_get_ready_disturbs_nobody(
    made: type[MadeUp], monkeypatch: pytest.MonkeyPatch
) -> None:
    keep = sandbox._Keep()
    made.answers["warm"] = ProcessError("busy")
    keep.prepare()
    assert keep.taken(False) is made.made[0]  # type: ignore[comparison-overlap]

    def busy(self: MadeUp) -> None:
        raise OSError("no process")

    monkeypatch.setattr(MadeUp, "__enter__", busy)
    keep.prepare()
    with pytest.raises(OSError, match="no process"):
        keep.taken(False)


def test_python_ends_without_waiting_for_one_that_gets_ready(
    made: type[MadeUp], monkeypatch: pytest.MonkeyPatch
) -> None:
    begun: list[threading.Thread] = []
    go = threading.Event()
    monkeypatch.setattr(child, "warm", lambda *_: None)
    monkeypatch.setattr(MadeUp, "ask", lambda *_: begun.append(threading.current_thread()) or go.wait(5))
    sandbox._Keep().prepare()
    while not begun:
        time.sleep(0.001)
    go.set()
    assert begun[0].daemon
    assert begun[0] is not threading.current_thread()
    assert len(made.made) == 1


@pytest.mark.parametrize(("free_bytes", "room"), [(2 << 30, False), ((2 << 30) + 1, True)])
def test_a_gpu_with_little_memory_left_has_no_second_context_beforehand(
    free_bytes: int, room: bool, made: type[MadeUp], monkeypatch: pytest.MonkeyPatch
) -> None:
    runtime = SimpleNamespace(memGetInfo=lambda: (free_bytes, 1 << 40))
    cuda = SimpleNamespace(runtime=runtime, Device=lambda: SimpleNamespace(id=np.int64(3)))
    monkeypatch.setattr(session, "which_device", lambda: SimpleNamespace(kind="cuda", device="H200", count=8))
    monkeypatch.setattr(session, "cp", lambda: SimpleNamespace(cuda=cuda))
    keep = sandbox._Keep()
    keep.prepare()
    assert settled(made.made[0], int(room)) == ([("warm", 1)] if room else [])
    assert keep.taken(False) is made.made[0]  # type: ignore[comparison-overlap]
    keep.prepare()
    keep.taken(True)  # the driver reads it before there is a context: another process
    assert [talk.ended for talk in made.made] == [False, True, False]
    assert [talk.how for talk in made.made] == [
        ("cuda:3", *STARTED[1:]),
        ("cuda:3", *STARTED[1:]),
        ("cuda:3", *STARTED[1:5], {"MPLBACKEND": "Agg", "CUDA_LAUNCH_BLOCKING": "1"}),
    ]
    assert made.made[2].asked == []


def test_each_fork_has_a_process_of_its_own() -> None:
    assert isinstance(sandbox._keep(-1), sandbox._Keep)
    assert sandbox._keep(-1) is sandbox._keep(-1)
    assert sandbox._keep(-1) is not sandbox._keep(-2)
