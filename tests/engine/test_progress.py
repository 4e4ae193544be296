"""Lanes, warps and blocks that wait for each other's results: all of them get their turns."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Iterator

import numpy as np
import numpy.typing as npt
import pytest

import gpulab as gl
from gpulab import cp, session
from virtualgpu.compile import nvrtc
from virtualgpu.cuda_errors import LaunchTimeoutError

pytestmark = pytest.mark.skipif(not nvrtc.is_available(), reason="NVRTC is not installed")

# The independent set that takes vertices in the order of their rank: a vertex is in when all neighbours of
# higher rank are out, and waits while one of those is undecided. The lanes of a warp, its neighbours and
# other blocks wait for each other without any other order between them.
INDEPENDENT_SET = r"""
extern "C" __global__ void k(int vertices, const int* first, const int* next, const int* rank,
                             volatile int* state) {
  int open;
  do {
    open = 0;
    for (int v = blockIdx.x * blockDim.x + threadIdx.x; v < vertices; v += gridDim.x * blockDim.x) {
      if (state[v]) continue;
      int e = first[v];
      while (e < first[v + 1] && (rank[next[e]] < rank[v] || state[next[e]] == 2)) e++;
      if (e == first[v + 1]) {
        state[v] = 1;
        for (e = first[v]; e < first[v + 1]; e++) state[next[e]] = 2;
      } else {
        open = 1;
      }
    }
  } while (open);
}
"""


@pytest.fixture(autouse=True)
def device() -> Iterator[None]:
    with session.on_device("virtual:A100"):
        gl.use_device(watchdog_s=20)
        yield


def graph(vertices: int, seed: int) -> tuple[npt.NDArray[np.int32], npt.NDArray[np.int32]]:
    """A random graph as the first edge of each vertex and the vertices they lead to."""
    ends = np.random.default_rng(seed).integers(0, vertices, (3 * vertices, 2))
    ends = ends[ends[:, 0] != ends[:, 1]]
    ends = np.unique(np.concatenate([ends, ends[:, ::-1]]), axis=0)
    return np.searchsorted(ends[:, 0], np.arange(vertices + 1)).astype(np.int32), ends[:, 1].astype(np.int32)


@pytest.mark.parametrize("threads", [32, 96, 256])
@pytest.mark.parametrize(("blocks", "seed"), [(1, 0), (4, 2)])
def test_threads_that_wait_for_their_neighbours_all_finish(threads: int, blocks: int, seed: int) -> None:
    vertices = 700
    first, following = graph(vertices, seed)
    rank = np.random.default_rng(seed).permutation(vertices).astype(np.int32)
    state = cp.zeros(vertices, np.int32)
    kernel = cp.RawKernel(INDEPENDENT_SET, "k")
    kernel(
        (blocks,), (threads,), (vertices, cp.asarray(first), cp.asarray(following), cp.asarray(rank), state)
    )
    expected = np.zeros(vertices, np.int32)
    for v in np.argsort(-rank):
        if not expected[v]:
            expected[v] = 1
            expected[following[first[v] : first[v + 1]]] = 2
    assert np.array_equal(state.get(), expected)


def test_a_lane_behind_spinning_lanes_makes_progress() -> None:
    """Three groups of lanes spin in different loops and wait for a lane that waits for no other lane."""
    code = r"""
extern "C" __global__ void k(volatile int* flag, int* out) {
  int lane = threadIdx.x & 31, n = 0;
  if (lane % 4 == 0) { while (flag[0] < 1) n++; out[threadIdx.x] = 1; atomicAdd((int*)flag + 1, 1); }
  else if (lane % 4 == 1) { while (flag[1] < 8) n++; out[threadIdx.x] = 2; atomicAdd((int*)flag + 2, 1); }
  else if (lane % 4 == 2) { while (flag[2] < 8) n++; out[threadIdx.x] = 3; }
  else { out[threadIdx.x] = 4; if (lane == 31) flag[0] = 1; }
}
"""
    flag = cp.zeros(3, np.int32)
    out = cp.zeros(32, np.int32)
    cp.RawKernel(code, "k")((1,), (32,), (flag, out))
    assert np.array_equal(out.get(), np.arange(32) % 4 + 1)


def test_a_flood_of_printf_is_limited(capsys: pytest.CaptureFixture[str]) -> None:
    gl.use_device(watchdog_s=4)
    code = r"""
extern "C" __global__ void k(int* out) {
  for (int i = 0; i < 1000; i++) out[threadIdx.x] = printf("line %d of thread %d\n", i, threadIdx.x);
}
"""
    out = cp.zeros(256, np.int32)
    cp.RawKernel(code, "k")((4,), (256,), (out,))
    text = capsys.readouterr().out
    assert text.startswith("line 0 of thread 0\n")
    assert len(text) < 1_100_000
    lines = text.count("line ")
    assert f"{4 * 256 * 1000 - lines:,} more calls was discarded" in text
    assert out.get().tolist() == [2] * 256


def test_huge_printf_widths_are_clamped(capsys: pytest.CaptureFixture[str]) -> None:
    cp.RawKernel('extern "C" __global__ void k() { printf("%300000000d|%.*d", 1, 200000000, 2); }', "k")(
        (1,), (1,), ()
    )
    assert 4096 < len(capsys.readouterr().out) < 10_000


@pytest.mark.slow
def test_the_watchdog_counts_processor_time_of_the_kernel() -> None:
    """The watchdog counts what the kernel computes, not what other processes do meanwhile."""
    code = r"""
extern "C" __global__ void k(unsigned* out, int n) {
  unsigned x = threadIdx.x;
  for (int i = 0; i < n; i++) x = x * 1664525u + 1013904223u;
  out[threadIdx.x] = x;
}
"""
    kernel = cp.RawKernel(code, "k")
    out = cp.zeros(32, np.uint32)
    kernel((1,), (32,), (out, np.int32(1)))
    turns = 1 << 20
    while True:
        began_s = time.perf_counter()
        kernel((1,), (32,), (out, np.int32(turns)))
        took_s = time.perf_counter() - began_s
        if took_s > 0.2:
            break
        turns *= 2
    spin = [sys.executable, "-c", "while True: pass"]
    others: list[subprocess.Popen[bytes]] = []
    try:
        gl.use_device(watchdog_s=2.5 * took_s)
        for _ in range(4):
            # As many more as keep every core busy: where others were before, the first are not enough.
            others += [subprocess.Popen(spin) for _ in range(4 * (os.cpu_count() or 1))]
            began_s = time.perf_counter()
            kernel((1,), (32,), (out, np.int32(turns)))
            if time.perf_counter() - began_s > 2.5 * took_s:
                return
        pytest.skip("this machine has cores to spare")
    finally:
        for other in others:
            other.kill()
            other.wait()


WAIT_FOR_THE_LAST = r"""
extern "C" __global__ void k(volatile int* flag, int* out) {
  if (blockIdx.x == gridDim.x - 1) flag[0] = 1;
  if (threadIdx.x == 0) while (flag[0] == 0) {}
  __syncthreads();
  if (threadIdx.x == 0) atomicAdd(out, 1);
}
"""


def test_resident_blocks_can_wait_for_the_last_block() -> None:
    gl.use_device("virtual:T4")
    kernel = cp.RawKernel(WAIT_FOR_THE_LAST, "k")
    out = cp.zeros(1, np.int32)
    blocks = 40  # a T4 holds one block of 1,024 threads on each of its 40 SMs
    kernel((blocks,), (1024,), (cp.zeros(1, np.int32), out))
    assert int(out[0]) == blocks


def test_waiting_for_a_block_that_cannot_start_is_reported() -> None:
    gl.use_device("virtual:T4", watchdog_s=1)
    kernel = cp.RawKernel(WAIT_FOR_THE_LAST, "k")
    out = cp.zeros(1, np.int32)
    with pytest.raises(
        LaunchTimeoutError, match=r"40 running blocks, which fill the device.*other 14 blocks"
    ):
        kernel((54,), (1024,), (cp.zeros(1, np.int32), out))
