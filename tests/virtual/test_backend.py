"""The virtual backend: the records that it makes."""

from __future__ import annotations

import numpy as np
import pytest

from virtualgpu import cp
from virtualgpu.backend import NO_SENSORS, VirtualBackend
from virtualgpu.compile import nvrtc
from virtualgpu.cp._core.raw_kernel import RawKernel
from virtualgpu.cuda_errors import CUDADriverError, KernelFault
from virtualgpu.model.machine import Machine
from virtualgpu.protocol import Blocks, Launch, Warp
from virtualgpu.records import KernelSource

pytestmark = pytest.mark.skipif(not nvrtc.is_available(), reason="NVRTC is not installed")

CODE = r"""
extern "C" __global__ void add(const float* a, const float* b, float* c, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) c[i] = a[i] + b[i];
}
extern "C" __global__ void uneven(float* x) {
    float v = x[threadIdx.x];
    for (int i = 0; i < 40 * (blockIdx.x % 4 + 1); i++) v = v * 1.5f + 1.0f;
    x[blockIdx.x * blockDim.x + threadIdx.x] = v;
}
extern "C" __global__ void sum(const int* x, int* total) { atomicAdd(total, x[threadIdx.x]); }
extern "C" __global__ void reverse(float* x) {
    extern __shared__ float s[];
    s[threadIdx.x] = x[threadIdx.x];
    __syncthreads();
    x[threadIdx.x] = s[blockDim.x - 1 - threadIdx.x];
}
extern "C" __global__ void split(int* x) {
    if (threadIdx.x % 2) x[threadIdx.x] = 1;
    else atomicExch(&x[threadIdx.x], 2);
}
template <typename T> __global__ void twice(T* x) { x[threadIdx.x] *= 2; }
"""
N = 5000
GRID = (20, 1, 1)
BLOCK = (256, 1, 1)


@pytest.fixture
def backend(machine: Machine) -> VirtualBackend:
    return VirtualBackend(machine)


def arrays() -> tuple[cp.ndarray, cp.ndarray, cp.ndarray]:
    return cp.arange(N, dtype=cp.float32), cp.ones(N, cp.float32), cp.zeros(N, cp.float32)


def test_metrics_have_names_units_and_reasons_but_no_values(backend: VirtualBackend) -> None:
    metrics = backend.metrics().metrics
    assert {"temperature", "power", "SM clock"} <= {metric.name for metric in metrics}
    assert all(metric.value is None and metric.why == NO_SENSORS for metric in metrics)


def test_trace_launch_runs_the_kernel_and_places_every_block(backend: VirtualBackend) -> None:
    a, b, c = arrays()
    trace = backend.observe(Launch.of(RawKernel(CODE, "add"), GRID, BLOCK, (a, b, c, np.int32(N))), Blocks())
    np.testing.assert_array_equal(c.get(), np.arange(N, dtype=np.float32) + 1)
    assert trace.provenance.source == "modelled"
    assert trace.block_index.tolist() == list(range(20))
    assert trace.sm_id.tolist() == list(range(20))  # 20 blocks, 108 SMs: one each
    assert (trace.start_ns[0], trace.sampled, trace.sm_count) == (0, 1, 108)
    assert (trace.end_ns > trace.start_ns).all()
    assert trace.occupancy.block_threads == 256
    assert 0 < trace.waves < 1


def test_blocks_with_more_work_take_longer(backend: VirtualBackend) -> None:
    x = cp.zeros(1024 * 64, cp.float32)
    trace = backend.observe(Launch.of(RawKernel(CODE, "uneven"), (64, 1, 1), (1024, 1, 1), (x,)), Blocks())
    durations = (trace.end_ns - trace.start_ns).reshape(16, 4)
    assert (np.diff(durations, axis=1) > 0).all()


def test_a_second_wave_starts_when_slots_come_free(backend: VirtualBackend) -> None:
    x = cp.zeros(1024 * 500, cp.float32)
    trace = backend.observe(Launch.of(RawKernel(CODE, "uneven"), (500, 1, 1), (1024, 1, 1), (x,)), Blocks())
    first = trace.blocks_per_wave
    assert first == 216
    assert trace.start_ns[first:].min() >= trace.end_ns[:first].min() - 1
    assert np.bincount(trace.sm_id, minlength=108).min() >= 4


def test_restore_puts_arrays_back_even_after_a_fault(backend: VirtualBackend, machine: Machine) -> None:
    a, b, c = arrays()
    add = RawKernel(CODE, "add")
    clock = machine.clock.now_ns
    backend.observe(Launch.of(add, GRID, BLOCK, (a, b, c, np.int32(N))), Blocks(restore=True))
    assert not c.get().any()
    with pytest.raises(KernelFault):
        backend.observe(Launch.of(add, (40, 1, 1), BLOCK, (a, b, c, np.int32(2 * N))), Blocks(restore=True))
    assert not c.get().any()
    assert machine.clock.now_ns - clock < 1e6  # reading back, but no launches


def test_trace_warp_shows_the_chosen_warp(backend: VirtualBackend) -> None:
    x = cp.zeros(64, cp.int32)
    trace = backend.observe(Launch.of(RawKernel(CODE, "split"), 1, 64, (x,)), Warp(warp=1))
    assert x.get().tolist() == [2, 1] * 32
    assert (trace.warp_index, trace.block_index) == (1, (0, 0, 0))
    assert {0x55555555, 0xAAAAAAAA} <= set(trace.executed_mask.tolist())
    assert trace.address is not None
    first_lane = x.data.ptr + 32 * 4
    touched = {int(address) for step in trace.address for address in step if address >= first_lane}
    assert touched == set(range(first_lane, first_lane + 128, 4))


def test_stats_and_occupancy_use_the_compiled_kernel(backend: VirtualBackend) -> None:
    kernel = RawKernel(CODE, "reverse")
    stats = backend.kernel_stats(kernel)
    assert stats.target == "sm_80"
    assert stats.registers_per_thread == kernel.num_regs
    chosen = backend.occupancy(kernel, 256, shared_bytes=40_000)
    assert chosen.limiters == ("shared memory",)
    # 164 KiB an SM over 40,000 bytes and the 1 KiB the driver keeps, in units of 128 bytes.
    assert chosen.blocks_per_sm == 164 * 1024 // (-(-(40_000 + 1024) // 128) * 128)


def test_kernel_sources_opt_in_to_more_shared_memory(backend: VirtualBackend) -> None:
    x = cp.zeros(32, cp.float32)
    with pytest.raises(CUDADriverError, match="max_dynamic_shared_size_bytes"):
        backend.observe(Launch.of(RawKernel(CODE, "reverse"), 1, 32, (x,), 60_000), Blocks())
    backend.observe(Launch.of(KernelSource("reverse", CODE), 1, 32, (x,), 60_000), Blocks())


def test_a_kernel_without_source_is_refused(backend: VirtualBackend) -> None:
    with pytest.raises(TypeError, match="has no CUDA C\\+\\+ source"):
        backend.kernel_stats(len)
