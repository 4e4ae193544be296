"""Where a launch is, as it is told while it runs."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np
import pytest

import gpulab as gl
import virtualgpu
from gpulab import cp, session
from virtualgpu.compile import nvrtc
from virtualgpu.cuda_errors import IllegalAddressError, LaunchTimeoutError
from virtualgpu.model import machine
from virtualgpu.records.launch.whereabouts import LaunchProgress

pytestmark = pytest.mark.skipif(not nvrtc.is_available(), reason="NVRTC is not installed")

WAITS = """extern "C" __global__ void k(volatile int* out, int last) {
  int turns = 0;
  if (blockIdx.x == last)
    while (out[0] == 0)
      turns++;
  out[1] = turns;
}"""
MEETS = """extern "C" __global__ void k(volatile int* out, int n) {
  while (n == 1) {
    __syncthreads();
    out[1] = 5;
    __syncthreads();
  }
}"""
TWO_WAIT = """extern "C" __global__ void k(volatile int* out, int n) {
  while (out[0] == 0) out[1] = 5;
}"""


class Seen:
    """Keeps what is told, and counts beginnings and ends."""

    def __init__(self) -> None:
        self.places: list[LaunchProgress] = []
        self.begun = self.ended = 0

    def __call__(self) -> Seen:
        self.begun += 1
        return self

    def look(self, where: Callable[[], LaunchProgress]) -> None:
        self.places.append(where())

    def end(self) -> None:
        self.ended += 1


@pytest.fixture
def seen(monkeypatch: pytest.MonkeyPatch) -> Iterator[Seen]:
    with session.on_device("virtual:A100"):
        gl.use_device(watchdog_s=0.5)
        seen = Seen()
        monkeypatch.setattr(machine.current(), "make_launch_observer", seen)
        yield seen
    assert seen.begun == seen.ended


def stopped(code: str, grid: int, n: int) -> LaunchTimeoutError:
    with pytest.raises(LaunchTimeoutError) as error:
        cp.RawKernel(code, "k")((grid,), (64,), (cp.zeros(64 * grid, np.int32), np.int32(n)))
    return error.value


def test_a_running_launch_reports_line_block_and_progress(seen: Seen) -> None:
    error = stopped(WAITS, 8, 3)
    assert error.progress is not None
    last = seen.places[-1]
    assert (last.kernel, last.block, last.ended, last.blocks) == ("k", (3, 0, 0), 7, 8)  # it was set aside
    assert (last.line, last.source_text) == (error.site.line, error.site.source_text)
    assert last.line in (4, 5)
    assert seen.begun == 1


def test_the_slowest_thread_is_reported(seen: Seen, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("virtualgpu.engine.run.crew._MIN_PARALLEL_WARPS", 1)
    monkeypatch.setenv("VIRTUALGPU_THREADS", "2")
    stopped(WAITS, 8, 5)
    last = seen.places[-1]
    assert (last.block, last.ended, last.line in (4, 5)) == ((5, 0, 0), 7, True)


def test_a_block_with_barriers_reports_a_line(seen: Seen) -> None:
    stopped(MEETS, 1, 1)
    lines = {place.line for place in seen.places}
    assert lines & {2, 3, 4, 5}
    assert lines <= {0, 1, 2, 3, 4, 5}  # 0: all waited


def test_suspended_blocks_are_reported(seen: Seen) -> None:
    stopped(TWO_WAIT, 3, 0)
    assert {place.block for place in seen.places} <= {(0, 0, 0), (1, 0, 0), (2, 0, 0)}
    assert {place.line for place in seen.places} == {2}


def test_faults_and_interrupts_end_the_observation(seen: Seen, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(IllegalAddressError):
        cp.RawKernel('extern "C" __global__ void k(int* x) { x[1 << 30] = 1; }', "k")((1,), (1,), (0,))
    assert (seen.begun, seen.ended) == (1, 1)

    def interrupt(where: Callable[[], LaunchProgress]) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(seen, "look", interrupt)
    with pytest.raises(KeyboardInterrupt, match="kernel 'k' was stopped at line"):
        cp.RawKernel(WAITS, "k")((1,), (1,), (cp.zeros(2, np.int32), np.int32(0)))
    assert (seen.begun, seen.ended) == (2, 2)


def test_a_machine_without_gpulab_has_no_observer() -> None:
    machine_before = machine.current()
    try:
        virtualgpu.use_device("A100")
        assert machine.current().make_launch_observer is None
    finally:
        machine.use(machine_before)
