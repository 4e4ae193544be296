"""When a launch is stopped, and what is said of it."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from types import SimpleNamespace

import numpy as np
import pytest

import gpulab as gl
from gpulab import cp, session
from virtualgpu.compile import nvrtc
from virtualgpu.cuda_errors import LaunchTimeoutError, Progress
from virtualgpu.engine.run import stopwatch
from virtualgpu.model import choice, machine

pytestmark = pytest.mark.skipif(not nvrtc.is_available(), reason="NVRTC is not installed")

KERNEL = """extern "C" __global__ void k(volatile int* out, int n) {{
  volatile __shared__ int s[32];
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  s[threadIdx.x % 32] = 0;
  for (int j = 0; n > 0; j++) {{ {body} }}
  out[i] = s[0];
}}"""
SILENT = "if (out[0]) break;"
STORES = {
    "global": "out[i] += 1;",
    "shared": "s[threadIdx.x % 32] += 1;",
    "atomic": "atomicAdd((int*)out, 1);",
    "printf": r'if (j % 100000 == 0) printf("%d\n", j);',
}
NOTHING_NEW = {
    "nothing": SILENT,
    "the same": "out[i] = 5;",
    "a lock": "if (!atomicCAS((int*)out, 7, 0)) j = 0;",
}
SLOW = """extern "C" __global__ void k(volatile int* out, int n) {
  float v = threadIdx.x;
  for (int j = 0; j < n; j++) v = v * 1.0001f + 1.0f;
  out[blockIdx.x * blockDim.x + threadIdx.x] = v;
}"""


@pytest.fixture(autouse=True)
def device() -> Iterator[None]:
    with session.on_device("virtual:A100"):
        gl.use_device(watchdog_s=0.3)
        yield


def stopped(code: str, grid: int = 1, n: int = 1) -> LaunchTimeoutError:
    out = cp.zeros(32 * grid, np.int32)
    with pytest.raises(LaunchTimeoutError) as error:
        cp.RawKernel(code, "k")((grid,), (32,), (out, np.int32(n)))
    return error.value


def progress(error: LaunchTimeoutError) -> Progress:
    assert error.progress is not None
    return error.progress


@pytest.mark.parametrize("body", STORES.values(), ids=STORES)
def test_a_kernel_that_stores_or_prints_is_not_endless(body: str) -> None:
    error = stopped(KERNEL.format(body=body))
    assert error.kind == "too long"
    assert "after 0.3 s of processor time" in str(error)
    assert "still storing or printing" in str(error)
    assert "cannot end" not in str(error)


@pytest.mark.parametrize("body", NOTHING_NEW.values(), ids=NOTHING_NEW)
def test_a_kernel_that_stores_nothing_new_is_endless(body: str) -> None:
    error = stopped(KERNEL.format(body=body))
    assert error.kind == "endless"
    assert "stored and printed nothing new" in str(error)


def test_a_kernel_with_unchecked_memory_is_not_called_endless(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("virtualgpu.engine.run.watchdog._MAX_CHECKED_BYTES", 1000)
    assert stopped(KERNEL.format(body=SILENT)).kind == "too long"


def test_idle_kernels_have_a_shorter_limit() -> None:
    gl.use_device(watchdog_s=2)
    device = machine.current().current_device
    device.idle_s = 0.5  # time for several checks of memory on a busy machine, too
    assert progress(stopped(KERNEL.format(body=SILENT))).spent_s < 1.5
    assert progress(stopped(KERNEL.format(body=STORES["global"]))).spent_s == 2


@pytest.mark.skipif(not hasattr(time, "pthread_getcpuclockid"), reason="threads have no clocks here")
def test_wall_time_counts_on_a_busy_machine_if_no_block_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    """The stopwatch sees only a third of the time, as if the thread had a third of a core."""
    slow = SimpleNamespace(
        pthread_getcpuclockid=time.pthread_getcpuclockid,
        clock_gettime=lambda clock: time.clock_gettime(clock) / 3,
        monotonic=time.monotonic,
    )
    monkeypatch.setattr(stopwatch, "time", slow)
    monkeypatch.setattr("virtualgpu.engine.run.watchdog._MIN_WALL_S", 0.4)
    gl.use_device(watchdog_s=0.4)
    for body in (SILENT, STORES["global"]):
        assert progress(stopped(KERNEL.format(body=body))).spent_s < 0.36
    blocks = 30_000 * (os.cpu_count() or 1)
    error = stopped(SLOW, grid=blocks, n=100_000)
    assert "The launch was still making progress" in str(error)
    assert progress(error).spent_s == 0.4
    assert 0 < progress(error).ended_blocks < blocks


def test_by_default_a_launch_whose_blocks_end_is_not_stopped(monkeypatch: pytest.MonkeyPatch) -> None:
    gl.use_device(watchdog_s=0.1)
    blocks = 400 * (os.cpu_count() or 1)
    n = 100_000
    assert "The launch was still making progress" in str(stopped(SLOW, grid=blocks, n=n))
    monkeypatch.setattr("virtualgpu.launch.prepare.DEFAULT_WATCHDOG_S", 0.1)
    out = cp.zeros(32 * blocks, np.int32)
    cp.RawKernel(SLOW, "k")((blocks,), (32,), (out, np.int32(n)))
    assert out.all()
    assert progress(stopped(KERNEL.format(body=SILENT))).spent_s == 0.1


def test_the_environment_sets_the_limit_of_programs_without_gpulab(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("VIRTUALGPU_WATCHDOG_S", "90")
    assert choice.read_initial_watchdog_s() == 90
    monkeypatch.setenv("VIRTUALGPU_WATCHDOG_S", "soon")
    with pytest.raises(ValueError, match="VIRTUALGPU_WATCHDOG_S must be a number of seconds"):
        choice.read_initial_watchdog_s()
    monkeypatch.delenv("VIRTUALGPU_WATCHDOG_S")
    assert choice.read_initial_watchdog_s() == choice.DEFAULT_WATCHDOG_S
