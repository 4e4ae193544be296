"""``gl.roofline``: intensities worked out by hand, of bytes that were moved; refusals."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import gpulab as gl
from gpulab import session

N = 1 << 16
CODE = r"""
#define FMA(v) v = fmaf(v, 1.5f, 2.0f)
extern "C" {
// Eight multiply-adds, 16 operations, for each float read; nothing is written.
__global__ void dense(const float* x, float* out) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    float v = x[i];
    FMA(v); FMA(v); FMA(v); FMA(v); FMA(v); FMA(v); FMA(v); FMA(v);
    if (v == -1.0f) out[0] = v;
}
// The same of every 16th float: each stands in a sector, and in 64 bytes, of its own.
__global__ void sparse(const float* x, float* out) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    float v = x[16 * i];
    FMA(v); FMA(v); FMA(v); FMA(v); FMA(v); FMA(v); FMA(v); FMA(v);
    if (v == -1.0f) out[0] = v;
}
// A store without and a load with four-way conflicts: five wavefronts a warp, and one multiply-add a lane.
__global__ void banks(const float* x, float* out) {
    __shared__ float s[128];
    s[threadIdx.x] = x[threadIdx.x];
    s[threadIdx.x + 32] = 0; s[threadIdx.x + 64] = 0; s[threadIdx.x + 96] = 0;
    __syncthreads();
    float v = s[4 * threadIdx.x];
    FMA(v);
    if (v == -1.0f) out[0] = v;
}
__global__ void doubles(const double* x, double* out) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    double v = fma(x[i], 1.5, 2.0);
    if (v == -1.0) out[0] = v;
}
__global__ void integers(const int* x, int* out) { out[threadIdx.x] = x[threadIdx.x] + 1; }
}"""


@pytest.fixture(autouse=True)
def device(request: pytest.FixtureRequest) -> Iterator[None]:
    with session.on_device(f"virtual:{getattr(request, 'param', 'T4')}"):
        yield


on_several_gpus = pytest.mark.parametrize("device", ["T4", "A100", "RTX 4090", "H100"], indirect=True)


def launch(name: str, threads: int = N, floats: int = N, kind: type[Any] = np.float32) -> tuple[Any, ...]:
    cp = session.cp()
    arrays = cp.zeros(floats, kind), cp.zeros(32, kind)
    return cp.RawModule(code=CODE).get_function(name), threads // 32, 32, arrays


@on_several_gpus
def test_multiply_add_counts_two_and_moved_bytes_are_counted() -> None:
    chart = gl.roofline(launch("dense"), launch("sparse", N // 16))
    dense, sparse = chart.record.points
    assert dense.flops == {"f32": 16 * N}
    assert dense.size_bytes["L2"] == dense.size_bytes["DRAM"] == 4 * N
    assert dense.intensities == {"DRAM": 4.0, "L2": 4.0}
    # Each lane loads 4 bytes. A sector of 32 comes from L2, and 32 or 64 bytes from DRAM.
    assert sparse.flops == {"f32": N}
    assert sparse.intensities["L2"] == 16 / 32
    assert sparse.intensities["DRAM"] in (16 / 32, 16 / 64)
    assert dense.gflops == dense.operations / dense.time_ns


def test_a_wavefront_of_shared_memory_moves_128_bytes() -> None:
    (point,) = gl.roofline(launch("banks", 32)).record.points
    assert point.size_bytes["shared"] == (4 + 4) * 128
    assert point.intensities["shared"] == 64 / 1024


@on_several_gpus
def test_ceilings_are_the_published_ones() -> None:
    record = gl.roofline(launch("dense"), launch("doubles", kind=np.float64)).record
    info = session.backend().device_info()
    ceilings = record.ceilings
    assert ceilings.gbps["DRAM"] == info.memory_bandwidth_gbps
    assert info.boost_clock_mhz is not None
    clocks = info.sm_count * info.boost_clock_mhz / 1e3
    assert ceilings.gbps["shared"] == pytest.approx(128 * clocks)
    assert ceilings.gbps["DRAM"] < ceilings.gbps["L2"] < ceilings.gbps["shared"]
    assert ceilings.gflops["f32"] == pytest.approx(2 * info.fp32_lanes_per_sm * clocks, rel=0.05)
    ratio = {(7, 5): 32, (8, 0): 2, (8, 9): 64, (9, 0): 2}[info.compute_capability]
    assert ceilings.gflops["f32"] / ceilings.gflops["f64"] == pytest.approx(ratio, rel=0.05)
    assert record.points[1].flops == {"f64": 2 * N}
    assert all(point.gflops <= record.find_ceiling(point)[1] for point in record.points)


def test_points_have_distinct_names() -> None:
    chart = gl.roofline(launch("dense"), launch("dense"), launch("integers", 32, kind=np.int32))
    assert [point.name for point in chart.record.points] == ["dense 1", "dense 2", "integers"]
    assert "integers is not in the chart" in chart.describe()
    step = dict(zip(("kernel", "grid", "block", "args"), launch("dense"), strict=True))
    named = gl.roofline(step, launch("sparse", N // 16), names=("before", "after"), path=True)
    assert "before → after: " in named.describe()


@pytest.mark.parametrize(
    ("launches", "options", "error", "message"),
    [
        ((), {}, ValueError, "at least one launch"),
        ((3,), {}, TypeError, "Launch 1 must be a launch, not int"),
        (((1, 2),), {}, TypeError, "Launch 1 is a sequence of 2 elements"),
        (({"grid": 1},), {}, TypeError, "no value for 'kernel'"),
        (("dense",), {"names": "dense"}, ValueError, "one name per launch"),
        (("dense",), {"names": ("a", "b")}, ValueError, "one name per launch"),
        (({"kernel": 1, "grid": 1, "block": 1, "arg": 2},), {}, TypeError, "unknown name 'arg'"),
    ],
)
def test_wrong_launches_are_named(
    launches: tuple[Any, ...], options: dict[str, Any], error: type[Exception], message: str
) -> None:
    with pytest.raises(error, match=message):
        gl.roofline(*(launch(name) if isinstance(name, str) else name for name in launches), **options)
