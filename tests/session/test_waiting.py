"""What is said below a cell that takes long."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import pytest
from nbclient import NotebookClient
from nbclient.exceptions import CellExecutionError

import gpulab as gl
from gpulab import cp, session
from gpulab.lab.memory import hierarchy
from gpulab.teach.folders import exercise
from gpulab.teach.judge.check import judge
from gpulab.teach.judge.exercise import KernelExercise
from tests.session.kernels import FOREVER
from tests.session.notebooks import printed, run
from virtualgpu.compile import nvrtc

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
    done = subprocess.run([sys.executable, "-c", f"{SETUP}\n{swallowed}{STEPS}"],
                          capture_output=True, text=True, check=True)  # fmt: skip
    assert (done.stdout.split(), done.stderr) == (["stopped", "0"], "")


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
        gl.graph(lambda x: x * 2 + 1, x).beside(repeats=1)
    assert counted == {"gl.ladder": [sizes + 1, sizes + 1], "graph.beside": [4, 4]}
