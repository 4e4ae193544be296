"""The line below a cell that takes long."""

from __future__ import annotations

import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from nbclient import NotebookClient
from nbclient.exceptions import CellExecutionError

import gpulab as gl
from gpulab import cp, session
from gpulab.lab.memory import hierarchy
from gpulab.session import waiting
from gpulab_course.folders import exercise
from gpulab_course.teach.judge.check import judge
from gpulab_course.teach.judge.exercise import KernelExercise
from tests.session.kernels import FOREVER
from tests.session.notebooks import printed, run
from virtualgpu.compile import nvrtc
from virtualgpu.records.launch.whereabouts import Whereabouts

pytestmark = pytest.mark.skipif(not nvrtc.available(), reason="NVRTC is not installed")

SETUP = f"""
import threading
import numpy as np
import gpulab as gl
from gpulab import cp, session
from gpulab.session import waiting
forever = cp.RawKernel(r'''{FOREVER}''', "forever")
gl.use_device(watchdog_s=1)
waiting.QUIET_S = 0.0
"""
ENDLESS = "forever((1,), (32,), (cp.zeros(1, cp.int32),))"
STEPS = """
with session.steps(4, "gl.something") as begin:
    begin()
    for thread in threading.enumerate():
        if isinstance(thread, threading.Timer):
            thread.join()
    begin()
print(sum(isinstance(thread, threading.Timer) for thread in threading.enumerate()))
"""
FAST_STEPS = """
with session.steps(4, "gl.something") as begin:
    begin()
    timers = [thread for thread in threading.enumerate() if isinstance(thread, threading.Timer)]
for timer in timers:
    timer.join(20)
print([timer.is_alive() for timer in timers])
"""
STOP = "To stop it: Kernel > Interrupt, or press I twice."


@pytest.fixture
def shown(jupyter: NotebookClient, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The texts that the kernel displays, one after the other."""
    texts: list[str] = []
    process = jupyter.process_message

    def look(message: dict[str, Any], *others: Any) -> Any:
        if message["msg_type"] in ("display_data", "update_display_data"):
            texts.append(message["content"]["data"]["text/plain"])
        return process(message, *others)

    monkeypatch.setattr(jupyter, "process_message", look)
    run(jupyter, SETUP)
    return texts


def test_a_cell_shows_where_its_kernel_is_until_it_ends(jupyter: NotebookClient, shown: list[str]) -> None:
    with pytest.raises(CellExecutionError, match="LaunchTimeout"):
        run(jupyter, ENDLESS)
    source = FOREVER.split("\n")[1]
    for part in ("'forever'", f"line 2 `{source}`", "block (0, 0, 0), 0 of 1 block done", STOP):
        assert part in shown[0]
    assert shown[-1] == ""
    (line, error) = jupyter.nb.cells[-1].outputs
    assert (line.output_type, line.data, error.output_type) == ("display_data", {"text/plain": ""}, "error")


def test_nothing_is_shown_early_nor_where_output_is_captured(
    jupyter: NotebookClient, shown: list[str]
) -> None:
    swallowed = f"try: {ENDLESS}\nexcept cp.cuda.runtime.CUDARuntimeError: pass"
    text = printed(jupyter, f"%%capture kept\n{swallowed}")
    captured = printed(jupyter, "print(len(kept.outputs), repr(kept.stdout + kept.stderr))")
    assert captured.split() == ["0", "''"]
    run(jupyter, "waiting.QUIET_S = 3600.0")
    assert run(jupyter, swallowed) == []
    assert printed(jupyter, FAST_STEPS).strip() == "[False]"
    assert (text, shown) == ("", [])


def test_steps_are_counted_and_leave_no_thread(jupyter: NotebookClient, shown: list[str]) -> None:
    assert printed(jupyter, STEPS).strip() == "0"
    assert [*dict.fromkeys(shown)] == [f"gl.something: 1 of 4. {STOP}", f"gl.something: 2 of 4. {STOP}", ""]


def test_a_program_outside_of_notebooks_shows_nothing() -> None:
    swallowed = f"try: {ENDLESS}\nexcept cp.cuda.runtime.CUDARuntimeError: print('stopped')"
    process = subprocess.run(
        [sys.executable, "-c", f"{SETUP}\n{swallowed}{STEPS}"], capture_output=True, text=True, check=True
    )
    assert (process.stdout.split(), process.stderr) == (["stopped", "0"], "")


class Cell:
    """A running notebook cell in this process, with a clock and timers that a test controls."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now_s = 100.0
        self.texts: list[str] = []
        self.displays: list[tuple[str, bool]] = []
        self.timers: list[Any] = []
        self.shell = SimpleNamespace(
            kernel=object(),
            get_parent=lambda: {"header": {"msg_type": "execute_request"}},
            display_pub=SimpleNamespace(publish=self._publish),
        )
        monkeypatch.setattr(waiting, "_shell", lambda: self.shell)
        monkeypatch.setattr(waiting.time, "monotonic", lambda: self.now_s)
        monkeypatch.setattr(waiting.threading, "Timer", self._timer)

    def _publish(self, data: Any, _: Any, transient: dict[str, str], update: bool) -> None:
        self.texts.append(data["text/plain"])
        self.displays.append((transient["display_id"], update))

    def _timer(self, seconds: float, function: Any, args: Any) -> Any:
        timer = SimpleNamespace(seconds=seconds, finished=threading.Event(), start=lambda: None)
        timer.fire = lambda: function(*args)
        timer.cancel = timer.finished.set
        self.timers.append(timer)
        return timer


@pytest.fixture
def cell(monkeypatch: pytest.MonkeyPatch) -> Cell:
    return Cell(monkeypatch)


def test_a_kernel_s_line_comes_after_three_seconds_and_then_every_second(cell: Cell) -> None:
    line = waiting.KernelLine()
    where = Whereabouts("spin", line=0, source_text="", block=(2, 0, 0), ended=1200, blocks=5000)
    lengths = []
    for after_s in (2.9, 3.0, 3.9, 4.0, 9.5, 10.4, 10.5):
        cell.now_s = 100.0 + after_s
        line.look(lambda: where)
        lengths.append(len(cell.texts))
    assert lengths == [0, 1, 1, 2, 3, 3, 4]
    for part in ("'spin' has run for 10 s", "block (2, 0, 0), 1,200 of 5,000 blocks done", STOP):
        assert part in cell.texts[-1]
    assert "line" not in cell.texts[-1], "the source line is not known"
    line.end()
    waiting.KernelLine().end()  # one that has shown nothing removes nothing
    assert cell.texts[4:] == [""]
    (display,) = {display for display, _ in cell.displays}
    assert cell.displays == [(display, False), *[(display, True)] * 4]


def test_steps_are_shown_after_three_seconds_until_the_end(cell: Cell) -> None:
    with session.steps(4, "gl.something") as begin:
        (timer,) = cell.timers
        assert (timer.seconds, timer.daemon) == (3, True)
        begin()
        begin()
        assert cell.texts == []
        timer.fire()
        assert cell.texts == [f"gl.something: 2 of 4. {STOP}"]
        timer.finished.set()
        begin()
    assert cell.texts[1:] == [f"gl.something: 3 of 4. {STOP}", ""]
    cell.texts.clear()
    with session.steps(4, "gl.quick"):
        pass
    assert cell.timers[1].finished.is_set()
    cell.timers[1].fire()  # as it may once it is over
    assert cell.texts == []
    with session.steps(4, "gl.slow"):
        cell.timers[2].fire()
    assert cell.texts == [f"gl.slow: 1 of 4. {STOP}", ""]


@pytest.mark.parametrize(
    "parent", [{"header": {"msg_type": "comm_msg"}}, {}], ids=["widget message", "no message"]
)
def test_nothing_is_shown_outside_of_cells(cell: Cell, parent: dict[str, Any]) -> None:
    cell.shell.get_parent = lambda: parent
    with session.steps(3, "gl.something") as begin:
        begin()
    assert (cell.timers, cell.texts) == ([], [])


def test_nothing_is_shown_from_other_threads(cell: Cell) -> None:
    def work() -> None:
        with session.steps(3, "gl.something") as begin:
            begin()

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert (cell.timers, cell.texts) == ([], [])


@pytest.fixture
def counted(monkeypatch: pytest.MonkeyPatch) -> dict[str, list[int]]:
    """Steps that were announced and begun, by call."""
    counts: dict[str, list[int]] = {}

    @contextmanager
    def steps(total: int, call: str) -> Iterator[Callable[[], None]]:
        count = counts[call] = [total, 0]

        def begin() -> None:
            count[1] += 1

        yield begin

    monkeypatch.setattr(session, "steps", steps)
    return counts


@pytest.mark.parametrize("name", ["00-saxpy", "07-race"])
def test_a_check_begins_as_many_steps_as_it_announces(name: str, counted: dict[str, list[int]]) -> None:
    with session.on_device("virtual:A100"):
        task = exercise(name)
        reference: Any = task.reference  # type: ignore[union-attr]
        answer = task.source(reference) if isinstance(task, KernelExercise) else reference
        verdict = judge(task, answer)  # type: ignore[arg-type]
    assert verdict, verdict
    total, begun = counted["gl.check"]
    assert total == begun > 1


def test_ladders_and_comparisons_begin_as_many_steps_as_they_announce(counted: dict[str, list[int]]) -> None:
    with session.on_device("virtual:T4"):
        assert counted == {}
        sizes = hierarchy.measure().working_set_bytes.size
        x = cp.arange(1000, dtype=np.float32)
        gl.graph(lambda x: x * 2 + 1, x).compare(repeats=1)
    assert counted == {"gl.memory_hierarchy": [sizes + 1, sizes + 1], "graph.compare": [4, 4]}
