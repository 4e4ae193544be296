"""The progress line below a long-running cell."""

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
from gpulab import _waiting as waiting
from gpulab import cp, session
from gpulab.lab.memory import hierarchy
from gpulab_course.folders import find_exercise
from gpulab_course.teach.judge.check import judge
from gpulab_course.teach.judge.exercise import KernelExercise
from tests.session.kernels import FOREVER
from tests.session.notebooks import printed, run
from virtualgpu.compile import nvrtc
from virtualgpu.records.launch.whereabouts import LaunchProgress

pytestmark = pytest.mark.skipif(not nvrtc.is_available(), reason="NVRTC is not installed")

SETUP = f"""
import threading
import numpy as np
import gpulab as gl
from gpulab import _waiting as waiting
from gpulab import cp, session
forever = cp.RawKernel(r'''{FOREVER}''', "forever")
gl.use_device(watchdog_s=1)
waiting.QUIET_S, waiting._UPDATE_INTERVAL_S = 0.0, 0.1
"""
ENDLESS = "forever((1,), (32,), (cp.zeros(1, cp.int32),))"
STEPS = """
import time
with session.show_steps(4, "gl.something") as begin:
    begin()
    time.sleep(0.5)
    begin()
    time.sleep(1.0)
"""
PROGRESS_THREADS = "print(sum(thread.name == 'gpulab progress' for thread in threading.enumerate()))"
SEQUENCE = """import time
end_s = time.monotonic() + 1.0
while time.monotonic() < end_s:
    cp.zeros(100_000).sum()
"""
STOP = "To stop it: Kernel > Interrupt, or press I twice."


@pytest.fixture
def shown(jupyter: NotebookClient, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Collect the texts that the kernel displays, in order."""
    texts: list[str] = []
    process = jupyter.process_message

    def look(message: dict[str, Any], *others: Any) -> Any:
        if message["msg_type"] in ("display_data", "update_display_data"):
            texts.append(message["content"]["data"]["text/plain"])
        return process(message, *others)

    monkeypatch.setattr(jupyter, "process_message", look)
    monkeypatch.setattr(jupyter.kc, "allow_stdin", True)  # type: ignore[union-attr]
    run(jupyter, SETUP)
    return texts


def test_a_cell_shows_the_position_of_its_running_kernel(jupyter: NotebookClient, shown: list[str]) -> None:
    with pytest.raises(CellExecutionError, match="LaunchTimeout"):
        run(jupyter, f"gl.use_device(watchdog_s=2)\n{ENDLESS}")
    source = FOREVER.split("\n")[1]
    text = next(text for text in shown if "'forever'" in text)
    for part in (f"line 2 `{source}`", "block (0, 0, 0), 0 of 1 block done", STOP):
        assert part in text
    assert shown[-1] == ""
    (line, error) = jupyter.nb.cells[-1].outputs
    assert (line.output_type, line.data, error.output_type) == ("display_data", {"text/plain": ""}, "error")


def test_a_sequence_of_calls_shows_the_line_of_the_cell(jupyter: NotebookClient, shown: list[str]) -> None:
    run(jupyter, SEQUENCE)
    assert "line 4 `cp.zeros(100_000).sum()`" in shown[0] or "line 3 " in shown[0]
    assert STOP in shown[0]
    assert shown[-1] == ""


def test_progress_is_not_shown_early_or_in_captured_output(jupyter: NotebookClient, shown: list[str]) -> None:
    swallowed = f"try: {ENDLESS}\nexcept cp.cuda.runtime.CUDARuntimeError: pass"
    text = printed(jupyter, f"%%capture kept\n{swallowed}")
    captured = printed(jupyter, "print(len(kept.outputs), repr(kept.stdout + kept.stderr))")
    assert captured.split() == ["0", "''"]
    run(jupyter, "waiting.QUIET_S = 3600.0")
    assert run(jupyter, swallowed) == []
    assert (text, shown) == ("", [])


def test_steps_are_counted_and_no_extra_thread_remains(jupyter: NotebookClient, shown: list[str]) -> None:
    run(jupyter, STEPS)
    assert "gl.something, 1 of 4" in shown[0]
    assert "gl.something, 2 of 4" in shown[-2]
    assert (STOP in shown[0], shown[-1]) == (True, "")
    run(jupyter, "waiting.QUIET_S = 3600.0")
    run(jupyter, "pass")
    assert printed(jupyter, PROGRESS_THREADS).strip() == "1", "the thread of the cell that counts"


def test_partial_results_are_shown_until_the_end(jupyter: NotebookClient, shown: list[str]) -> None:
    outputs = run(
        jupyter,
        """
import time
with session.show_steps(2, "gl.something") as begin:
    begin(lambda: ({"text/plain": "too early"}, {}))
    time.sleep(0.5)
    begin(lambda: ({"text/plain": "one bar"}, {}))
""",
    )
    assert ("too early" in shown, "one bar" in shown) == (False, True)
    assert {output.data["text/plain"] for output in outputs} == {""}


def test_a_program_outside_of_notebooks_shows_nothing() -> None:
    swallowed = f"try: {ENDLESS}\nexcept cp.cuda.runtime.CUDARuntimeError: print('stopped')"
    process = subprocess.run(
        [sys.executable, "-c", f"{SETUP}\n{swallowed}{STEPS}"], capture_output=True, text=True, check=True
    )
    assert (process.stdout.split(), process.stderr) == (["stopped"], "")


class Cell:
    """A running notebook cell in this process, with a clock that a test controls."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now_s = 100.0
        self.texts: list[str] = []
        self.displays: list[tuple[str, bool]] = []
        self.shell = SimpleNamespace(display_pub=SimpleNamespace(publish=self._publish))
        monkeypatch.setattr(waiting, "_find_shell", lambda: self.shell)
        monkeypatch.setattr(waiting.time, "monotonic", lambda: self.now_s)
        self.progress = waiting._CellProgress()
        monkeypatch.setattr(waiting, "_cell_progress", self.progress)

    def _publish(self, data: Any, _: Any, transient: dict[str, str], update: bool) -> None:
        self.texts.append(data["text/plain"])
        self.displays.append((transient["display_id"], update))


@pytest.fixture
def cell(monkeypatch: pytest.MonkeyPatch) -> Cell:
    return Cell(monkeypatch)


def test_kernel_progress_appears_after_two_seconds_then_every_second(cell: Cell) -> None:
    line = waiting.KernelProgressLine()
    where = LaunchProgress("spin", line=0, source_text="", block=(2, 0, 0), ended=1200, blocks=5000)
    texts = []
    for after_s in (1.9, 2.0, 2.9, 3.0, 9.5, 10.4, 10.5):
        cell.now_s = 100.0 + after_s
        line.look(lambda: where)
        texts.append("".join(cell.progress.activities.values()))
    assert len(texts[0]) == 0 < len(texts[1])
    assert (texts[1] == texts[2], texts[2] == texts[3], texts[4] == texts[5]) == (True, False, True)
    cell.progress.update_progress()
    for part in ("'spin' has run for 10 s", "block (2, 0, 0), 1,200 of 5,000 blocks done", STOP):
        assert part in cell.texts[0]
    assert "line" not in cell.texts[0], "the source line is not known"
    line.end()
    assert cell.progress.activities == {}


def test_the_progress_line_is_one_output_and_is_cleared_at_the_end(cell: Cell) -> None:
    with session.show_steps(4, "gl.something") as begin:
        begin()
        cell.now_s += 5
        cell.progress.update_progress()
        begin()
        cell.progress.update_progress()
        cell.progress.end()
        cell.progress.update_progress()  # the thread can call this after the end of the cell
    assert [text.removesuffix(STOP).rpartition(": ")[2].strip() for text in cell.texts] == [
        "gl.something, 1 of 4.",
        "gl.something, 2 of 4.",
        "",
    ]
    assert "for 5 s" in cell.texts[0]
    (display,) = {display for display, _ in cell.displays}
    assert cell.displays == [(display, False), (display, True), (display, True)]


def test_a_quick_cell_publishes_nothing(cell: Cell) -> None:
    with session.show_steps(4, "gl.quick") as begin:
        begin()
    cell.progress.end()
    assert cell.texts == []


@pytest.mark.parametrize("request_type", ["comm_msg", "execute_request", ""])
def test_progress_is_shown_only_for_execute_requests(
    request_type: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    request = {"header": {"msg_type": request_type}, "content": {"allow_stdin": True}}
    shell = SimpleNamespace(kernel=object(), get_parent=lambda: request)
    monkeypatch.setattr(waiting, "_find_shell", lambda: shell)
    assert waiting._is_person_waiting() == (request_type == "execute_request")


def test_steps_in_other_threads_do_not_change_the_progress_line(cell: Cell) -> None:
    def work() -> None:
        with session.show_steps(3, "gl.something") as begin:
            begin()
            cell.texts.extend(cell.progress.activities.values())

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert cell.texts == []


@pytest.fixture
def counted(monkeypatch: pytest.MonkeyPatch) -> dict[str, list[int]]:
    """Count the announced and the started steps per call."""
    counts: dict[str, list[int]] = {}

    @contextmanager
    def show_steps(total: int, call: str) -> Iterator[Callable[[], None]]:
        count = counts[call] = [total, 0]

        def begin(_: object = None) -> None:
            count[1] += 1

        yield begin

    monkeypatch.setattr(session, "show_steps", show_steps)
    return counts


@pytest.mark.parametrize("name", ["00-saxpy", "07-race"])
def test_a_check_runs_as_many_steps_as_it_announces(name: str, counted: dict[str, list[int]]) -> None:
    with session.on_device("virtual:A100"):
        task = find_exercise(name)
        reference: Any = task.reference  # type: ignore[union-attr]
        answer = task.source(reference) if isinstance(task, KernelExercise) else reference
        verdict = judge(task, answer)  # type: ignore[arg-type]
    assert verdict, verdict
    total, begun = counted["gl.check"]
    assert total == begun > 1


def test_hierarchy_and_graph_comparison_run_all_announced_steps(counted: dict[str, list[int]]) -> None:
    with session.on_device("virtual:T4"):
        assert counted == {}
        sizes = hierarchy.measure_hierarchy().working_set_bytes.size
        x = cp.arange(1000, dtype=np.float32)
        gl.graph(lambda x: x * 2 + 1, x).compare(repeats=1)
    assert counted == {"gl.memory_hierarchy": [sizes + 1, sizes + 1], "graph.compare": [4, 4]}
