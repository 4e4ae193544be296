"""What is said below a cell that takes long."""

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

    def look(message: dict[str, Any], *rest: Any) -> Any:
        if message["msg_type"] in ("display_data", "update_display_data"):
            texts.append(message["content"]["data"]["text/plain"])
        return process(message, *rest)

    monkeypatch.setattr(jupyter, "process_message", look)
    run(jupyter, SETUP)
    return texts


def test_a_cell_says_where_its_kernel_is_and_takes_it_back(jupyter: NotebookClient, shown: list[str]) -> None:
    with pytest.raises(CellExecutionError, match="LaunchTimeout"):
        run(jupyter, ENDLESS)
    source = FOREVER.split("\n")[1]
    assert shown[0] == (
        f"Kernel 'forever' has run for 0 s: near line 2 `{source}`, block (0, 0, 0), "
        f"0 of 1 block done. {STOP}"
    )
    assert shown[-1] == ""
    (line, error) = jupyter.nb.cells[-1].outputs
    assert (line.output_type, line.data, error.output_type) == ("display_data", {"text/plain": ""}, "error")


def test_nothing_is_said_before_the_time_nor_where_output_is_captured(
    jupyter: NotebookClient, shown: list[str]
) -> None:
    swallowed = f"try: {ENDLESS}\nexcept cp.cuda.runtime.CUDARuntimeError: pass"
    text = printed(jupyter, f"%%capture kept\n{swallowed}")
    assert printed(jupyter, "print(len(kept.outputs), repr(kept.stdout + kept.stderr))").split() == [
        "0",
        "''",
    ]
    run(jupyter, "waiting.QUIET_S = 3600.0")
    assert run(jupyter, swallowed) == []
    assert printed(jupyter, FAST_STEPS).strip() == "[False]"
    assert (text, shown) == ("", [])


def test_steps_are_counted_and_leave_no_thread(jupyter: NotebookClient, shown: list[str]) -> None:
    assert printed(jupyter, STEPS).strip() == "0"
    assert [*dict.fromkeys(shown)] == [f"gl.something: 1 of 4. {STOP}", f"gl.something: 2 of 4. {STOP}", ""]


def test_a_program_says_nothing() -> None:
    swallowed = f"try: {ENDLESS}\nexcept cp.cuda.runtime.CUDARuntimeError: print('stopped')"
    done = subprocess.run(
        [sys.executable, "-c", f"{SETUP}\n{swallowed}{STEPS}"], capture_output=True, text=True, check=True
    )
    assert (done.stdout.split(), done.stderr) == (["stopped", "0"], "")


class Cell:
    """A notebook's cell that runs now, in this process, with a clock and timers that a test turns."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now_s, self.said, self.timers = 100.0, list[tuple[str, str, bool]](), list[Any]()
        self.shell = SimpleNamespace(
            kernel=object(),
            get_parent=lambda: {"header": {"msg_type": "execute_request"}},
            display_pub=SimpleNamespace(publish=self._publish),
        )
        monkeypatch.setattr(waiting, "_shell", lambda: self.shell)
        monkeypatch.setattr(waiting.time, "monotonic", lambda: self.now_s)
        monkeypatch.setattr(waiting.threading, "Timer", self._timer)

    def _publish(self, data: Any, _: Any, transient: dict[str, str], update: bool) -> None:
        self.said.append((data["text/plain"], transient["display_id"], update))

    def _timer(self, seconds: float, function: Any, args: Any) -> Any:
        made = SimpleNamespace(seconds=seconds, finished=threading.Event(), start=lambda: None)
        made.fire = lambda: function(*args)
        made.cancel = made.finished.set
        made.daemon = False
        self.timers.append(made)
        return made


@pytest.fixture
def cell(monkeypatch: pytest.MonkeyPatch) -> Cell:
    return Cell(monkeypatch)


def test_a_kernel_s_line_comes_after_three_seconds_and_again_after_one(cell: Cell) -> None:
    line = waiting.KernelLine()
    where = Whereabouts("spin", line=7, source_text="x += 1;", block=(2, 0, 0), ended=1200, blocks=5000)
    for after, words in ((2.9, None), (3.0, 3), (3.9, None), (4.0, 4), (9.5, 9), (10.4, None), (10.5, 10)):
        cell.now_s, before = 100.0 + after, len(cell.said)
        line.look(lambda: where)
        assert len(cell.said) - before == (words is not None)
        if words is not None:
            assert cell.said[-1][0] == (
                f"Kernel 'spin' has run for {words} s: near line 7 `x += 1;`, block (2, 0, 0), 1,200 of "
                f"5,000 blocks done. {STOP}"
            )
    line.end()
    assert cell.said[-1][0] == ""
    assert len({place for _, place, _ in cell.said}) == 1
    assert [update for *_, update in cell.said] == [False, *[True] * (len(cell.said) - 1)]
    short = waiting.KernelLine()
    short.end()
    assert cell.said[-1][0] == "", "nothing was said, and nothing is taken back"
    assert len(cell.said) == 5


def test_without_lines_the_block_is_told(cell: Cell) -> None:
    where = Whereabouts("spin", line=0, source_text="", block=(0, 0, 0), ended=0, blocks=1)
    line = waiting.KernelLine()
    cell.now_s += 3
    line.look(lambda: where)
    line.look(lambda: 1 / 0)  # not asked before its time
    assert cell.said[0][0].startswith("Kernel 'spin' has run for 3 s: block (0, 0, 0), 0 of 1 block done.")


def test_it_is_said_below_cells_alone(cell: Cell, monkeypatch: pytest.MonkeyPatch) -> None:
    from IPython.core.displaypub import CapturingDisplayPublisher

    assert waiting._cell_runs()
    seen: list[bool] = []
    thread = threading.Thread(target=lambda: seen.append(waiting._cell_runs()))
    thread.start()
    thread.join()
    assert seen == [False]
    cell.shell.get_parent = lambda: {"header": {"msg_type": "comm_msg"}}
    assert not waiting._cell_runs()
    cell.shell.get_parent = dict
    assert not waiting._cell_runs()
    cell.shell.get_parent = lambda: {"header": {"msg_type": "execute_request"}}
    cell.shell.display_pub = CapturingDisplayPublisher()
    assert not waiting._cell_runs()
    cell.shell = SimpleNamespace(kernel=None)
    assert not waiting._cell_runs()
    with session.steps(3, "gl.something") as begin:
        begin()
    assert (cell.timers, cell.said) == ([], [])


def test_steps_are_told_from_the_time_on_and_the_last_word_is_taken_back(cell: Cell) -> None:
    with session.steps(4, "gl.something") as begin:
        (timer,) = cell.timers
        assert (timer.seconds, timer.daemon) == (3, True)
        begin()
        begin()
        assert cell.said == []
        timer.fire()
        assert [text for text, *_ in cell.said] == [f"gl.something: 2 of 4. {STOP}"]
        timer.finished.set()
        begin()
    assert [text for text, *_ in cell.said[1:]] == [f"gl.something: 3 of 4. {STOP}", ""]
    cell.said.clear()
    with session.steps(4, "gl.quick"):
        pass
    assert cell.timers[1].finished.is_set()
    cell.timers[1].fire()  # as it may once it is over
    assert cell.said == []
    with session.steps(4, "gl.slow"):
        cell.timers[2].fire()
    assert [text for text, *_ in cell.said] == [f"gl.slow: 1 of 4. {STOP}", ""]


@pytest.fixture
def counted(monkeypatch: pytest.MonkeyPatch) -> dict[str, list[int]]:
    """Steps that were announced and begun, by call."""
    found: dict[str, list[int]] = {}

    @contextmanager
    def steps(total: int, call: str) -> Iterator[Callable[[], None]]:
        of_call = found[call] = [total, 0]

        def begin() -> None:
            of_call[1] += 1

        yield begin

    monkeypatch.setattr(session, "steps", steps)
    return found


@pytest.mark.parametrize("name", ["00-saxpy", "07-race"])
def test_a_check_begins_as_many_steps_as_it_says(name: str, counted: dict[str, list[int]]) -> None:
    with session.on_device("virtual:A100"):
        asked = exercise(name)
        reference: Any = asked.reference  # type: ignore[union-attr]
        answer = asked.source(reference) if isinstance(asked, KernelExercise) else reference
        verdict = judge(asked, answer)  # type: ignore[arg-type]
    assert verdict, verdict
    total, begun = counted["gl.check"]
    assert total == begun > 1


def test_ladders_and_comparisons_begin_as_many_steps_as_they_say(counted: dict[str, list[int]]) -> None:
    with session.on_device("virtual:T4"):
        assert counted == {}
        sizes = hierarchy.measure().working_set_bytes.size
        x = cp.arange(1000, dtype=np.float32)
        gl.graph(lambda x: x * 2 + 1, x).compare(repeats=1)
    assert counted == {"gl.memory_hierarchy": [sizes + 1, sizes + 1], "graph.compare": [4, 4]}
