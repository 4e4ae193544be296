"""Variables named in a trace: what they are said to hold against what the kernel itself tells of them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import gpulab as gl
from gpulab import cp, session
from virtualgpu.launch import debugging
from virtualgpu.protocol import Block, Launch, Warp
from virtualgpu.records import BlockTrace, WarpTrace
from virtualgpu.records.warp.columns import Variable, expand_lane_masks

CODE = r"""
extern "C" __global__ void branches(const float* x, float* y, int n)
{
    int t = threadIdx.x;
    float v = x[t];
    for (int k = 0; k < (t & 7); ++k) {
        v = v * 0.5f + k;
    }
    if (t < n) {
        v += 1.0f;
    } else {
        v -= 1.0f;
    }
    y[t] = v;
}
__device__ float warp_sum(float part)
{
    for (int gap = 16; gap > 0; gap /= 2) part += __shfl_down_sync(0xffffffff, part, gap);
    return part;
}
extern "C" __global__ void unrolled(const float* x, float* y, int n)
{
    float all = warp_sum(x[threadIdx.x]);
    unsigned char low = threadIdx.x;
    double wide = all;
    y[threadIdx.x] = wide + low;
}
extern "C" __global__ void counted(int** rows, int* count, int n)
{
    int mine = atomicAdd(count, 1);
    rows[0][threadIdx.x] += mine;
    if (threadIdx.x == 0) printf("once\\n");
}
extern "C" __global__ void apart(int* x, int n)
{
    int side = 0;
    if (threadIdx.x < 32) {
        side = 3 * x[0];
    } else {
        side = 5 * x[1] + threadIdx.x;
    }
    __syncthreads();
    x[threadIdx.x] = side;
}
"""


@pytest.fixture(autouse=True)
def on_a_virtual_gpu() -> Iterator[None]:
    gl.use_device("virtual:A100")
    yield
    session.use_device("auto")


def observed(name: str, threads: int, *args: Any, observation: Any = None) -> Any:
    launch = Launch.of(cp.RawKernel(CODE, name), 1, threads, args)
    return session.backend().observe(launch, observation or Warp())


def of(trace: WarpTrace, name: str) -> Variable:
    (match,) = [variable for variable in trace.variables if variable.name == name]
    return match


def history(trace: WarpTrace, name: str) -> list[np.ndarray]:
    """What each lane is said to have put into a variable, in the order of time."""
    variable = of(trace, name)
    assert trace.value is not None
    steps = np.flatnonzero(np.isin(trace.text_index, variable.written_by))
    lanes = expand_lane_masks(trace.executed_mask[steps])
    bits = int(variable.kind[1:])
    kind = {"f": f"f{bits // 8}", "s": f"i{bits // 8}", "u": f"u{bits // 8}"}[variable.kind[0]]
    values = trace.value[steps].astype(f"u{bits // 8}").view(kind)
    return [values[lanes[:, lane], lane] for lane in range(32)]


def test_variables_have_the_values_that_the_source_computes() -> None:
    x = cp.arange(32, dtype=np.float32)
    y = cp.zeros(32, dtype=np.float32)
    trace = observed("branches", 32, x, y, np.int32(9))
    for lane in range(32):
        assert history(trace, "t")[lane].tolist() == [lane]
        value = np.float32(lane)
        values = [np.float32(lane)]
        for k in range(lane & 7):
            value = np.float32(value * np.float32(0.5) + np.float32(k))
            values.append(value)
        values.append(value + np.float32(1 if lane < 9 else -1))
        np.testing.assert_allclose(history(trace, "v")[lane], values, rtol=1e-6)
        assert history(trace, "v")[lane][-1] == float(y[lane])
        # The compiler may leave the first k, 0, out.
        assert [0, *history(trace, "k")[lane].tolist()][-1 - (lane & 7) :] == [*range((lane & 7) + 1)]
    assert of(trace, "k").first_line == 6
    assert of(trace, "k").last_line == 7
    assert of(trace, "v").last_line == 15
    assert [variable.name for variable in trace.variables if variable.written_by][-3:] == ["x", "y", "n"]


def test_variables_without_a_register_are_unknown() -> None:
    x = cp.arange(32, dtype=np.float32)
    y = cp.zeros(32, dtype=np.float32)
    trace = observed("unrolled", 32, x, y, np.int32(9))
    assert of(trace, "gap").written_by == ()
    assert of(trace, "gap").type == "int"
    part = np.arange(32, dtype=np.float32)
    for gap in (16, 8, 4, 2, 1):
        part = part + np.where(np.arange(32) + gap < 32, np.roll(part, -gap), part)
    assert [values[-1] for values in history(trace, "part")] == part.tolist()
    assert "n" not in [variable.name for variable in trace.variables]  # a parameter that is nowhere used


def test_observing_variables_has_the_effects_of_one_launch(capfd: pytest.CaptureFixture[str]) -> None:
    """Counters, memory that is reached through stored pointers, and output are as after one launch."""
    row = cp.zeros(32, dtype=np.int32)
    count = cp.zeros(1, dtype=np.int32)
    rows = cp.asarray(np.array([row.data.ptr], np.uint64))
    trace = observed("counted", 32, rows, count, np.int32(0))
    assert int(count[0]) == 32
    assert sorted(row.get().tolist()) == [*range(32)]
    assert of(trace, "mine").written_by
    assert capfd.readouterr().out.count("once") == 1


def test_variables_of_a_block_trace_are_known_for_all_warps() -> None:
    x = cp.arange(64, dtype=np.int32)
    block = observed("apart", 64, x, np.int32(0), observation=Block())
    assert isinstance(block, BlockTrace)
    for number, warp in enumerate(block.warps):
        sides = [0] * 32 if number == 0 else [5 + 32 + lane for lane in range(32)]
        assert [values[-1] for values in history(warp, "side")] == sides


def test_a_trace_without_a_debug_build_has_no_variables(monkeypatch: pytest.MonkeyPatch) -> None:
    x = cp.arange(32, dtype=np.float32)
    y = cp.zeros(32, dtype=np.float32)
    monkeypatch.setattr(debugging, "_MAX_SAVED_BYTES", 64)  # so much memory that it is not kept
    assert observed("branches", 32, x, y, np.int32(9)).variables == ()
