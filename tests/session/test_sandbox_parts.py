"""Parts of the sandbox, tested in this process: jobs, values sent to the process, and a fake process."""

from __future__ import annotations

import os
import pickle
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import gpulab as gl
from gpulab import session
from gpulab.lab.faults import child, jobs, sandbox
from gpulab.lab.faults.jobs import Call, Cell
from gpulab.processes.errors import ProcessError
from gpulab.processes.values import DamagedBytesError
from virtualgpu.errors import GpulabError
from virtualgpu.records.faults.sandboxed import SandboxRun

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


# Jobs in the process ------------------------------------------------------------------------------------


def ran(job: Any, *args: Any, returns: bool = False) -> Any:
    """Pickle and unpickle a job, run it, and return the reply."""
    call = Call(job, args) if callable(job) and not isinstance(job, Cell) else job
    return child.run_job(None, jobs.pack_job(call), returns, False, 5.0)


@pytest.fixture
def alone(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Simulate that only the child processes in this list exist, and no figures."""
    pids: list[int] = []

    def ends(status: int) -> None:
        raise AssertionError(f"it would have ended this process, with {status}")

    monkeypatch.setattr(os, "_exit", ends)
    monkeypatch.setattr(child, "find_children", lambda me: pids)
    monkeypatch.delitem(sys.modules, "matplotlib.pyplot", raising=False)
    gl.use_device("virtual:T4")
    return pids


class Silent(Exception):
    def __str__(self) -> str:
        raise RuntimeError("no words")


class Numbered(Exception):
    status: Any = 7


class Named(Numbered):
    status = "seven"


@pytest.mark.usefixtures("alone")
def test_a_failing_job_returns_message_status_and_frames() -> None:
    def fails(error: BaseException) -> None:
        raise error

    reply = ran(fails, ValueError("here"), returns=True)
    assert (reply["error"], reply["status"], reply["sticky"]) == ("ValueError: here", 0, False)
    assert reply["result"] is None
    assert [file for file, _ in reply["frames"]] == [__file__]
    assert ran(fails, ValueError("x" * 4001))["error"] == "ValueError: " + "x" * 4000
    assert ran(fails, ValueError())["error"] == ran(fails, ValueError(""))["error"] == "ValueError"
    assert "exit(3)" in ran(fails, SystemExit(3))["error"]
    for error, text, status in (
        (Silent(), "Silent", 0),
        (Numbered("n"), "Numbered: n", 7),
        (Named(), "Named", 0),
    ):
        reply = dict(NOTHING)
        child._add_error(error, reply)
        assert (reply["error"], reply["status"]) == (text, status)


@pytest.mark.usefixtures("alone")
def test_a_deep_traceback_keeps_its_innermost_twenty_frames() -> None:
    def deep(n: int) -> int:
        return 1 // n + deep(n - 1)

    for depth, lines in ((18, 19), (19, 20), (30, 20)):
        frames = ran(deep, depth)["frames"]
        assert len(frames) == lines
        assert len({*frames}) == 1


def test_running_child_processes_are_noted_except_the_compiler(alone: list[int]) -> None:
    pipe = subprocess.PIPE
    with (
        subprocess.Popen(["/bin/sh", "-c", "read x; :", "sh"], stdin=pipe) as other,
        subprocess.Popen(["/bin/sh", "-c", "read x; :", "/x/virtualgpu/compile/apart.py"], stdin=pipe) as own,
        subprocess.Popen([sys.executable, "-c", "input()"], stdin=pipe) as ended,
    ):
        ended.kill()
        ended.wait()
        alone[:] = [own.pid, ended.pid]
        assert ran(len, ())["notes"] == []
        alone.append(other.pid)
        (note,) = ran(len, ())["notes"]
        assert "processes that were still running" in note
        other.kill()
        own.kill()


@pytest.mark.usefixtures("alone")
def test_sixteen_figures_are_drawn_and_failing_ones_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    def save(number: int, file: Any) -> None:
        if number == 2:
            raise ValueError("cannot be drawn")
        file.write(bytes([number]))

    def figure(number: int) -> Any:
        return SimpleNamespace(savefig=lambda file, **options: save(number, file))

    pyplot = SimpleNamespace(get_fignums=lambda: list(range(1, 19)), figure=figure)
    monkeypatch.setitem(sys.modules, "matplotlib.pyplot", pyplot)
    assert [picture.tobytes()[0] for picture in ran(len, ())["figures"]] == [1, *range(3, 17)]


# Values sent to the process -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("code", "bundle"),
    [
        ("x * 2", {"text/plain": "6"}),
        ("x * 2 ; \n", {}),
        ("None", {}),
        ("", {}),
        ("x\ny = 1", {}),
        ("x = 5\nx", {"text/plain": "5"}),
    ],
)
def test_only_a_last_expression_is_shown(code: str, bundle: dict[str, str]) -> None:
    result = Cell(code, "cell", {"x": 3}, ())()
    assert (result.values, result.display_bundle) == ({}, bundle)


def test_an_expression_is_displayed_as_text_html_and_svg() -> None:
    class Rich:
        def __repr__(self) -> str:
            return "rich"

        def _repr_html_(self) -> str:
            return "<b>rich</b>"

        def _repr_svg_(self) -> str:
            return "<svg/>"

        def _repr_png_(self) -> bytes:
            return b"png"

    bundle = Cell("rich", "cell", {"rich": Rich()}, ())().display_bundle
    assert bundle == {"text/plain": "rich", "text/html": "<b>rich</b>", "image/svg+xml": "<svg/>"}


class Stream:
    """A class that has the name of a device handle but is not one."""


def test_device_handles_cannot_be_sent_but_classes_of_that_name_can() -> None:
    with pytest.raises(GpulabError, match=r"sandbox: s \(a Stream\), held \(lock\)\. "):
        jobs.pack_job(Cell("", "cell", {"np": np, "s": gl.cp.cuda.Stream(), "n": 1, "held": LOCK}, ()))
    whole = jobs.pack_job(Cell("", "cell", {"s": Stream(), "pool": gl.cp.zeros(2)}, ()))
    assert isinstance(pickle.loads(whole).variables["s"], Stream)


def test_unpicklable_arguments_are_named_by_number_globals_by_name() -> None:
    def refused(job: Any, *args: Any) -> str:
        with pytest.raises(GpulabError) as error:
            jobs.pack_job(Call(job, args))
        return str(error.value).partition(": ")[2].partition(". ")[0]

    inner = LOCK
    assert refused(len, 1, LOCK) == "argument 2 (lock)"
    assert refused(lambda: LOCK) == "LOCK (lock)"
    assert refused(lambda a: (LOCK, inner, a), LOCK) == "LOCK (lock), inner (lock), argument 1 (lock)"
    assert refused(imported, LOCK) == "argument 1 (lock)"  # the function is sent by name, without globals


def imported() -> Any:
    return LOCK


def test_module_functions_are_sent_by_name_notebook_ones_by_value(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assert pickle.loads(jobs.pack_job(Call(imported, ()))).function is imported
    space: dict[str, Any] = {"__name__": "__main__", "LOCK": LOCK}
    exec(compile("def late():\n    return LOCK", "cell-7", "exec"), space)
    monkeypatch.setattr(sys.modules["__main__"], "late", space["late"], raising=False)
    with pytest.raises(GpulabError, match=r"sandbox: LOCK \(lock\)\. "):
        jobs.pack_job(Call(space["late"], ()))
    space["LOCK"] = 5
    function = pickle.loads(jobs.pack_job(Call(space["late"], ()))).function
    assert (function(), function.__code__.co_filename, function.__code__.co_name) == (5, "cell-7", "late")


def test_the_reason_why_a_value_cannot_be_pickled_is_named() -> None:
    array = np.array([LOCK], dtype=object)
    with pytest.raises(
        GpulabError, match=r"sandbox \(TypeError: .*lock.*\)\. Inside the sandbox, create objects"
    ):
        jobs.pack_job(Cell("", "cell", {"array": array}, ()))


# Results of the process ---------------------------------------------------------------------------------


class MadeUp:
    """A fake process that records its calls and returns the answers set by the test."""

    made: list[MadeUp]
    answers: dict[str, Any]

    def __init__(self, *options: Any) -> None:
        self.options = options
        self.calls: list[Any] = []
        self.entered = False
        self.ended = False
        self.limits: tuple[Any, ...] = ()
        self.made.append(self)

    def __enter__(self) -> MadeUp:
        self.entered = True
        return self

    def __exit__(self, *_: object) -> None:
        self.ended = True

    def set_limits(self, *limits: Any) -> None:
        self.limits = limits

    def ask(self, shown: str, function: Callable[..., Any], *args: Any) -> Any:
        answer = self.answers.get(function.__name__, True)
        answer = answer.pop(0) if isinstance(answer, list) else answer
        if function is child.warm_up:
            time.sleep(0.01)
        self.calls.append((function.__name__, *args))
        if isinstance(answer, Exception):
            raise answer
        return answer

    def end_and_read_output(self) -> tuple[str, int]:
        return "so far\n", 3


@pytest.fixture
def made(monkeypatch: pytest.MonkeyPatch) -> type[MadeUp]:
    """Replace processes by fake ones; `made` lists all of them."""
    MadeUp.made = []
    MadeUp.answers = {"run_job": dict(NOTHING)}
    keep = sandbox._SpareProcess()
    monkeypatch.setattr(sandbox, "_find_spare_process", lambda pid: keep)
    monkeypatch.setattr(sandbox, "RequestProcess", MadeUp)
    gl.use_device("virtual:T4")
    return MadeUp


STARTED = ("virtual:T4", 50.0, 60.0, 4 << 30, 64 << 10, {"MPLBACKEND": "Agg"})


def settled(talk: MadeUp, count: int) -> list[Any]:
    """Wait until a process has received `count` calls, and return them."""
    for thread in threading.enumerate():
        if thread is not threading.current_thread() and getattr(thread, "_target", None) is sandbox._warm_up:
            thread.join(5)
    assert len(talk.calls) == count
    return talk.calls


def test_a_job_has_the_limits_that_are_documented(made: type[MadeUp]) -> None:
    run = gl.sandbox(len, ())
    first, spare = made.made
    assert first.options == spare.options == STARTED
    assert first.limits == (20.0, 60.0, 4 << 30)
    ((name, job, returns, blocking, watchdog_s),) = first.calls
    assert (name, returns, blocking, watchdog_s) == ("run_job", False, False, pytest.approx(20 / 3))
    assert pickle.loads(job) == Call(len, ((),))
    assert (first.entered, first.ended, spare.entered, spare.ended) == (True, True, True, False)
    assert settled(spare, 1) == [("warm_up", 1)]
    assert run.record == SandboxRun(
        provenance=session.backend().provenance,
        name="len",
        seconds=run.record.seconds,
        output="so far\n",
        output_lines=3,
    )
    gl.sandbox(len, (), launch_blocking=True, limit_s=50, memory_bytes=7)
    assert spare.limits == (50, 150, 7)
    assert spare.calls[-1][3] is True


@pytest.mark.parametrize(
    ("error", "reason"),
    [
        (ProcessError("it was too slow."), "it was too slow."),
        (DamagedBytesError("no reply"), "it wrote to a file descriptor that it did not open"),
    ],
)
def test_the_reason_why_a_process_was_ended_is_in_the_result(
    error: Exception, reason: str, made: type[MadeUp]
) -> None:
    made.answers["run_job"] = error
    run = gl.sandbox(len, (), returns=True)
    assert (run.record.output, run.ok) == ("so far\n", False)
    assert reason in repr(run)
    with pytest.raises(GpulabError, match="There is no result"):
        _ = run.result
    assert made.made[0].ended


LOST = {"error": "E: 1", "status": 700, "sticky": True}


def raised(line: int) -> dict[str, Any]:
    return NOTHING | LOST | {"frames": [(__file__, line)]}


@pytest.mark.parametrize("blocking", [False, True])
def test_a_second_run_with_launch_blocking_finds_the_launch(blocking: bool, made: type[MadeUp]) -> None:
    made.answers["run_job"] = [raised(5), raised(7)]
    record = gl.sandbox(len, (), returns=True, launch_blocking=blocking).record
    runs = [call for talk in made.made for call in talk.calls if call[0] == "run_job"]
    assert [call[2:4] for call in runs] == ([(True, True)] if blocking else [(True, False), (False, True)])
    assert record.raised is not None
    assert record.raised.line == 5
    assert record.blocking is blocking
    assert record.culprit is not None
    assert record.culprit.source is not None
    assert (record.culprit.launch, record.culprit.source.line) == (0, 5 if blocking else 7)


def test_no_launch_is_blamed_if_the_second_run_names_none(made: type[MadeUp]) -> None:
    made.answers["run_job"] = [raised(5), dict(NOTHING)]
    assert gl.sandbox(len, ()).record.culprit is None
    for other in (
        {"sticky": False},
        {"given": {"given": (1, "", 0), "kernel": "", "said": "", "place": (0, "", (0, 0, 0), (0, 0, 0))}},
    ):
        made.made.clear()
        made.answers["run_job"] = [raised(5) | other]  # a second run would fail, because no answer is left
        gl.sandbox(len, ())


def test_cell_output_and_figures_are_shown_after_the_table(made: type[MadeUp]) -> None:
    def bundle(figures: Any = (), **shown: str) -> Any:
        kinds = {"html": "text/html", "svg": "image/svg+xml", "plain": "text/plain"}
        content = {kinds[kind]: text for kind, text in shown.items()}
        made.answers["run_job"] = NOTHING | {"shown": content, "figures": figures}
        return gl.sandbox(len, ())._repr_mimebundle_()[0]  # type: ignore[index]

    bare = bundle()
    assert bundle(svg="<svg/>")["text/html"] == bare["text/html"] + "<svg/>"
    both = bundle([np.frombuffer(b"fig", np.uint8)], html="<b>", svg="<svg/>", plain="6")
    extra = both["text/html"].removeprefix(bare["text/html"])
    assert extra.startswith("<b><img alt=")
    assert extra.endswith('src="data:image/png;base64,Zmln">')
    assert both["text/plain"] == bare["text/plain"] + "\n6"


# The spare process --------------------------------------------------------------------------------------


def test_a_spare_process_is_used_when_it_is_ready(made: type[MadeUp]) -> None:
    keep = sandbox._SpareProcess()
    keep.prepare_process()
    keep.prepare_process()
    (spare,) = made.made
    assert keep.take_process(False) is spare  # type: ignore[comparison-overlap]
    assert spare.calls == [("warm_up", 1), ("confirm_alive",)]
    assert not spare.ended
    assert keep.take_process(True) is made.made[1]  # type: ignore[comparison-overlap]
    assert made.made[1].calls == []


def test_a_spare_process_of_another_device_is_replaced(made: type[MadeUp]) -> None:
    keep = sandbox._SpareProcess()
    keep.prepare_process()
    gl.use_device("virtual:A100", count=2)
    keep.take_process(False)
    first, second = made.made
    assert (first.ended, second.ended) == (True, False)
    assert ("confirm_alive",) not in first.calls
    assert second.options[0] == "virtual:A100-SXM4-80GB"
    assert second.calls == [("warm_up", 2)]


def test_a_failing_spare_process_raises_no_error(made: type[MadeUp], monkeypatch: pytest.MonkeyPatch) -> None:
    keep = sandbox._SpareProcess()
    made.answers["warm_up"] = ProcessError("busy")
    keep.prepare_process()
    assert keep.take_process(False) is made.made[0]  # type: ignore[comparison-overlap]

    def busy(self: MadeUp) -> None:
        raise OSError("no process")

    monkeypatch.setattr(MadeUp, "__enter__", busy)
    keep.prepare_process()
    with pytest.raises(OSError, match="no process"):
        keep.take_process(False)


@pytest.mark.parametrize(("free_bytes", "spare"), [(2 << 30, False), ((2 << 30) + 1, True)])
def test_the_spare_process_creates_no_context_if_memory_is_low(
    free_bytes: int, spare: bool, made: type[MadeUp], monkeypatch: pytest.MonkeyPatch
) -> None:
    runtime = SimpleNamespace(memGetInfo=lambda: (free_bytes, 1 << 40))
    cuda = SimpleNamespace(runtime=runtime, Device=lambda: SimpleNamespace(id=np.int64(3)))
    monkeypatch.setattr(session, "which_device", lambda: SimpleNamespace(kind="cuda", device="H200", count=8))
    monkeypatch.setattr(session, "cp", lambda: SimpleNamespace(cuda=cuda))
    keep = sandbox._SpareProcess()
    keep.prepare_process()
    assert settled(made.made[0], int(spare)) == ([("warm_up", 1)] if spare else [])
    assert keep.take_process(False) is made.made[0]  # type: ignore[comparison-overlap]
    keep.prepare_process()
    keep.take_process(True)  # a new context needs a new process
    assert [talk.ended for talk in made.made] == [False, True, False]
    assert [talk.options for talk in made.made] == [
        ("cuda:3", *STARTED[1:]),
        ("cuda:3", *STARTED[1:]),
        ("cuda:3", *STARTED[1:5], {"MPLBACKEND": "Agg", "CUDA_LAUNCH_BLOCKING": "1"}),
    ]
    assert made.made[2].calls == []
