"""Which lanes, warps and blocks run when: divergence, progress, barriers, the order of blocks."""

from __future__ import annotations

import _thread
import signal
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from typing import Any

import numpy as np
import pytest
from llvmlite.binding.executionengine import ExecutionEngine

from tests.engine import ptx_runner
from virtualgpu.compile import nvrtc
from virtualgpu.cuda_errors import LaunchTimeoutError
from virtualgpu.engine.run import crew

pytestmark = pytest.mark.skipif(not nvrtc.is_available(), reason="NVRTC is not installed")

HEAD = 'extern "C" __global__ void k'
LOCK = """extern "C" __global__ void k(int* lock, int* count) {
    while (atomicCAS(lock, 0, 1) != 0) {}
    *count = *count + 1;
    __threadfence();
    atomicExch(lock, 0);
}"""


def run(
    code: str, *arrays: np.ndarray, grid: int = 1, block: int = 32, **options: object
) -> list[np.ndarray]:
    ptx = nvrtc.compile_ptx(code, target=80).ptx
    return ptx_runner.launch(ptx, "k", arrays, grid, block, **options)  # type: ignore[arg-type]


def ints(count: int, value: int = 0) -> np.ndarray:
    return np.full(count, value, np.int32)


def test_a_lock_within_a_warp_hangs_before_volta() -> None:
    with pytest.raises(LaunchTimeoutError, match=r"still running after 0\.5 s"):
        run(LOCK, ints(1), ints(1), watchdog_s=0.5, independent_threads=False)


def test_lanes_reconverge_after_a_loop() -> None:
    code = """extern "C" __global__ void k(int* out) {
        int n = 0;
        for (int k = 0; k < threadIdx.x % 8; ++k) n += k;
        out[threadIdx.x] = n + __popc(__activemask()) * 1000;
    }"""
    (out,) = run(code, ints(32))
    assert list(out) == [sum(range(t % 8)) + 32_000 for t in range(32)]


def test_an_early_exit_does_not_affect_other_threads() -> None:
    code = """extern "C" __global__ void k(int* out) {
        if (threadIdx.x % 3 == 0) return;
        __syncthreads();
        out[threadIdx.x] = __popc(__activemask());
    }"""
    (out,) = run(code, ints(40), block=40)
    assert list(out) == [0 if t % 3 == 0 else (21 if t < 32 else 5) for t in range(40)]


@pytest.mark.parametrize(
    ("call", "expected"),
    [
        ("__syncthreads_count(t % 3 == 0)", lambda t: t % 3 == 0),
        ("__syncthreads_and(t < 90)", None),
        ("__syncthreads_or(t == 89)", None),
    ],
)
def test_barriers_with_a_reduction(call: str, expected: object) -> None:
    code = HEAD + f"(int* out) {{ int t = threadIdx.x; int r = {call}; out[t] = r; }}"
    (out,) = run(code, ints(90), block=90)
    assert (out == (30 if expected else 1)).all()


def test_named_barriers_with_counts() -> None:
    code = """extern "C" __global__ void k(int* out) {
        __shared__ int box;
        if (threadIdx.x < 32) {
            if (threadIdx.x == 5) box = 42;
            asm volatile("bar.arrive 3, 96;" ::: "memory");
        } else if (threadIdx.x < 96) {
            asm volatile("bar.sync 3, 96;" ::: "memory");
            out[threadIdx.x] = box;
        }
    }"""
    (out,) = run(code, ints(96), block=128)
    assert (out[32:] == 42).all()


def test_member_masks_may_differ_between_tiles() -> None:
    code = """extern "C" __global__ void k(unsigned* out) {
        unsigned mask = 0xFFu << (threadIdx.x & 24);
        out[threadIdx.x] = __ballot_sync(mask, threadIdx.x & 1) + __reduce_add_sync(mask, 1u);
    }"""
    (out,) = run(code, np.zeros(32, np.uint32))
    assert list(out) == [(0xAA << (t & 24)) + 8 for t in range(32)]


@pytest.fixture
def stop_button() -> Iterator[Callable[[], None]]:
    """What Jupyter's stop button does; a shell starts its background jobs, maybe these tests, without it."""
    handler = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield _thread.interrupt_main
    signal.signal(signal.SIGINT, handler)


ENDLESS = """extern "C" __global__ void k(volatile int* out) { while (out[0] == 0) {} }"""


def runs_again() -> None:
    (out,) = run(HEAD + "(int* out) { out[threadIdx.x] = threadIdx.x; }", ints(32))
    np.testing.assert_array_equal(out, np.arange(32))


def test_an_infinite_kernel_can_be_interrupted(stop_button: Callable[[], None]) -> None:
    timer = threading.Timer(0.4, stop_button)
    timer.start()
    with pytest.raises(KeyboardInterrupt):
        run(ENDLESS, ints(1), watchdog_s=20)
    runs_again()


def test_an_interrupt_while_work_is_distributed_stops_the_launch(monkeypatch: pytest.MonkeyPatch) -> None:
    futures: list[Future[bool]] = []
    pool = crew._get_worker_pool()

    class Interrupted:
        def submit(self, *work: Any) -> None:
            futures.append(pool.submit(*work))
            raise KeyboardInterrupt

    monkeypatch.setattr(crew, "_get_worker_pool", Interrupted)
    with pytest.raises(KeyboardInterrupt):
        run(ENDLESS, ints(1), watchdog_s=20)
    assert futures[0].result(timeout=5) is False
    monkeypatch.undo()
    runs_again()


def test_an_interrupt_in_a_compiler_callback_is_not_lost(
    monkeypatch: pytest.MonkeyPatch, stop_button: Callable[[], None]
) -> None:
    """LLVM requests cached code through a C callback, in which Python prints and discards exceptions."""
    keep = ExecutionEngine.set_object_cache

    def interrupted(engine: Any, notify: Any, load: Callable[[Any], bytes]) -> None:
        def find(module: Any) -> bytes:
            stop_button()
            return load(module)

        keep(engine, notify, find)

    monkeypatch.setattr(ExecutionEngine, "set_object_cache", interrupted)
    with pytest.raises(KeyboardInterrupt):
        run(HEAD + f"(int* out) {{ out[threadIdx.x] = {time.time_ns()}; }}", ints(32))
    monkeypatch.undo()
    runs_again()
