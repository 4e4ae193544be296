"""What gpulab measures on a GPU is of the launch that was asked for. With `--fake-gpu` on any machine."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import gpulab as gl
from gpulab import session

pytestmark = pytest.mark.gpu

# The number of lanes that take the branch depends on the warp, so a mask identifies its warp.
WARPS_APART = r"""
extern "C" __global__ void apart(int* out) {
    int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    if (lane <= warp + 8 * (blockIdx.x % 2)) {
        for (int i = 0; i < 3; ++i) out[atomicAdd(&out[0], 1) % 4 + 1] = lane;
    }
}"""
WITH_VARIABLES = r"""
__constant__ float factor;
__constant__ int offset[2];
__device__ int calls;
__device__ float last;
extern "C" __global__ void scale(float* x) {
    x[threadIdx.x] = x[threadIdx.x] * factor + offset[threadIdx.x % 2];
    if (threadIdx.x == 0) { atomicAdd(&calls, 1); last = x[0]; }
}"""
SHARED = r"""
extern "C" __global__ void reverse(int* x) {
    extern __shared__ int tile[];
    tile[threadIdx.x] = x[blockIdx.x * blockDim.x + threadIdx.x];
    __syncthreads();
    x[blockIdx.x * blockDim.x + threadIdx.x] = tile[blockDim.x - 1 - threadIdx.x];
}"""


@pytest.fixture(autouse=True)
def on_the_gpu() -> Any:
    pytest.importorskip("cupy")
    assert gl.use_device("auto").kind == "cuda"
    yield
    gl.use_device("auto")


@pytest.mark.parametrize(("block", "warp"), [(0, 0), (0, 3), (1, 0), (1, 5), (2, 7)])
def test_masks_are_of_the_requested_warp(block: int, warp: int) -> None:
    out = gl.cp.zeros(5, gl.cp.int32)
    stepper = gl.warps(gl.cp.RawKernel(WARPS_APART, "apart"), 3, 256, (out,), block_index=block, warp=warp)
    lanes = warp + 1 + 8 * (block % 2)
    assert stepper.measured is not None
    assert stepper.measured.provenance.source == "measured"
    masks = set(stepper.measured.active_mask.tolist())
    assert masks == {0xFFFF_FFFF, (1 << lanes) - 1}
    assert (stepper.measured.warp_index, stepper.measured.block_index) == (warp, (block, 0, 0))


def test_every_block_is_recorded_once_on_its_sm() -> None:
    sm_count = session.backend().device_info().sm_count
    blocks = 4 * sm_count
    x = gl.cp.arange(128 * blocks, dtype=gl.cp.int32)
    kernel = gl.cp.RawKernel(SHARED, "reverse")
    trace = gl.launch(kernel, blocks, 128, (x,), shared_mem=512).trace
    assert trace.provenance.source == "measured"
    assert trace.block_index.tolist() == list(range(blocks))
    assert len(set(trace.sm_id.tolist())) == sm_count
    assert trace.shared_bytes == 512
    assert np.all(trace.end_ns >= trace.start_ns)
    assert trace.end_ns.max() > 0
    expected = np.arange(128 * blocks).reshape(blocks, 128)[:, ::-1]
    np.testing.assert_array_equal(x.get().reshape(blocks, 128), expected)


def test_probes_use_the_variables_of_the_original_module() -> None:
    cp = gl.cp
    module = cp.RawModule(code=WITH_VARIABLES)
    views = {
        name: cp.ndarray(shape, dtype, module.get_global(name))
        for name, shape, dtype in (
            ("factor", (1,), cp.float32),
            ("offset", (2,), cp.int32),
            ("calls", (1,), cp.int32),
            ("last", (1,), cp.float32),
        )
    }
    views["factor"][...] = 3
    views["offset"][...] = cp.array([5, 7], cp.int32)
    views["calls"][...] = 10
    x = cp.ones(32, cp.float32)
    gl.launch(module.get_function("scale"), 1, 32, (x,))
    expected = np.where(np.arange(32) % 2, 10.0, 8.0)
    np.testing.assert_array_equal(x.get(), expected)
    assert views["calls"].get().tolist() == [11]
    assert views["last"].get().tolist() == [8]
    assert views["factor"].get().tolist() == [3]
    assert views["offset"].get().tolist() == [5, 7]
    gl.warps(module.get_function("scale"), 1, 32, (x,))
    assert views["calls"].get().tolist() == [12]


def test_device_info_equals_the_drivers_attributes() -> None:
    import cupy

    info = session.backend().device_info()
    ask = cupy.cuda.runtime.deviceGetAttribute
    assert info.provenance.source == "measured"
    assert (info.memory_bus_bits, info.sm_count, info.l2_bytes) == (ask(37, 0), ask(16, 0), ask(38, 0))
    assert info.memory_clock_mhz == ask(36, 0) / 1e3
    assert info.boost_clock_mhz == ask(13, 0) / 1e3
    assert info.memory_bandwidth_gbps == pytest.approx(2 * ask(36, 0) * ask(37, 0) / 8e6, abs=0.1)
    assert info.shared_per_sm_bytes == ask(81, 0)
    assert info.shared_per_block_optin_bytes == ask(97, 0)
    assert info.registers_per_sm == ask(82, 0)
    assert info.max_grid_dim == (ask(5, 0), ask(6, 0), ask(7, 0))


def test_refused_launch_does_not_change_the_arrays() -> None:
    x = gl.cp.arange(256, dtype=gl.cp.int32)
    kernel = gl.cp.RawKernel(SHARED, "reverse")
    for call in ((kernel, 1, 256, ()), (kernel, 1, 256, (x, x)), (kernel, 1, 4096, (x,))):
        for run in (gl.launch, gl.warps, gl.count):
            with pytest.raises((TypeError, RuntimeError)):
                run(*call)
    with pytest.raises(gl.errors.GpulabError):  # it reads past its shared memory
        gl.launch(kernel, 1, 256, (x,), shared_mem=64)
    assert x.get().tolist() == list(range(256))


def test_sanitizer_runs_on_copies_of_the_arrays() -> None:
    x = gl.cp.arange(256, dtype=gl.cp.int32)
    assert gl.sanitize(gl.cp.RawKernel(SHARED, "reverse"), 1, 256, (x,), shared_mem=1024).clean
    raced = gl.cp.RawKernel(SHARED.replace("__syncthreads();", ""), "reverse")
    assert not gl.sanitize(raced, 1, 256, (x,), shared_mem=1024).clean
    assert x.get().tolist() == list(range(256))


def test_cupys_compiler_is_the_fallback(monkeypatch: pytest.MonkeyPatch) -> None:
    from gpulab.real import modules

    monkeypatch.setattr(modules, "shared", SimpleNamespace(supported_targets=lambda: ()))
    code = "#ifndef FACTOR\n#error no factor\n#endif\n"
    code += "template <typename T> __global__ void k(T* x) { *x *= FACTOR; }"
    module = gl.cp.RawModule(code=code, options=("-DFACTOR=6",), name_expressions=("k<float>",))
    x = gl.cp.full(1, 7, gl.cp.float32)
    trace = gl.launch(module.get_function("k<float>"), 1, 1, (x,)).trace
    assert trace.provenance.source == "measured"
    assert x.get().tolist() == [42]
    with pytest.raises(gl.errors.GpulabError, match="no factor"):
        session.backend().ptx(gl.cp.RawKernel(code, "k"))


def test_shared_memory_that_was_opted_in_reaches_the_probe() -> None:
    kernel = gl.cp.RawKernel(SHARED, "reverse")
    most = session.backend().device_info().shared_per_block_optin_bytes
    kernel.max_dynamic_shared_size_bytes = most
    x = gl.cp.arange(128, dtype=gl.cp.int32)
    trace = gl.launch(kernel, 1, 128, (x,), shared_mem=most).trace
    assert trace.occupancy.limiters == ("shared memory",)
    assert x.get().tolist() == list(range(127, -1, -1))


def test_recorded_block_times_grow_with_the_work() -> None:
    code = r"""
    extern "C" __global__ void spin(int* out) {
        long long start = clock64();
        int turns = blockIdx.x % 2 ? 200000 : 2000;
        while (clock64() - start < turns) {}
        out[blockIdx.x] = turns;
    }"""
    out = gl.cp.zeros(8, gl.cp.int32)
    trace = gl.launch(gl.cp.RawKernel(code, "spin"), 8, 32, (out,)).trace
    took_ns = trace.end_ns - trace.start_ns
    assert took_ns[1::2].min() > 3 * took_ns[::2].max()
    assert trace.start_ns.min() == 0


def test_other_device_facts_are_available_without_nvml(monkeypatch: pytest.MonkeyPatch) -> None:
    from gpulab.real import backend, device
    from gpulab.real.nvml import NvmlError

    def refuses(*_: Any) -> Any:
        raise NvmlError("no NVML")

    usual = session.backend()
    monkeypatch.setattr(device, "NvmlDevice", refuses)
    bare = backend.CudaBackend(0)
    (reading,) = bare.metrics().metrics
    assert (reading.name, reading.value, reading.why) == (
        "NVML",
        None,
        "NVML is not available on this machine",
    )
    with pytest.raises(gl.errors.NotSupportedError, match="NVML is not available on this machine"):
        bare.load_reader()
    names = {metric.name for metric in bare.setup().metrics}
    assert names < {metric.name for metric in usual.setup().metrics}
    assert "MIG" not in names
    assert names
    info = bare.device_info()
    whole = usual.device_info()
    assert bare.device_info() is info
    assert (info.pcie_gbps, info.notes) == (None, "")
    assert info.driver is not None
    assert whole.driver is not None
    assert info.driver.startswith("CUDA ")
    assert whole.driver.endswith(f"({info.driver})")
    assert info.memory_bytes == whole.memory_bytes == gl.cp.cuda.runtime.memGetInfo()[1]
    assert info.fp32_tflops == round(
        2 * info.fp32_lanes_per_sm * info.sm_count * info.boost_clock_mhz / 1e6, 1
    )


@pytest.mark.parametrize(
    ("capability", "cores", "sms", "lanes"),
    [
        ((6, 0), None, 56, 64),
        ((6, 1), None, 20, 128),
        ((7, 5), None, 40, 64),
        ((7, 0), 0, 80, 64),
        ((8, 0), None, 108, 64),
        ((8, 6), None, 82, 128),
        ((9, 0), None, 132, 128),
        ((9, 0), 16896, 132, 128),
        ((9, 0), 16897, 132, 128),
        ((12, 0), 640, 10, 64),
    ],
)
def test_lanes_per_sm_come_from_nvml_or_the_guide(
    capability: tuple[int, int], cores: int | None, sms: int, lanes: int
) -> None:
    from gpulab.real import device

    nvml: Any = SimpleNamespace(
        call_or_none=lambda name: cores if name == "nvmlDeviceGetNumGpuCores" else None
    )
    assert device._find_lanes_per_sm(capability, sms, nvml) == lanes
    if cores is None:
        assert device._find_lanes_per_sm(capability, sms, None) == lanes


def test_note_reports_probe_registers_if_fewer_blocks_fit(monkeypatch: pytest.MonkeyPatch) -> None:
    from gpulab.real import modules

    x = gl.cp.arange(1024, dtype=gl.cp.int32)
    kernel = gl.cp.RawKernel(SHARED, "reverse")
    assert gl.launch(kernel, 1, 1024, (x,), shared_mem=4096).trace.note == ""
    plain = session.backend().occupancy(kernel, 1024, 4096)
    monkeypatch.setattr(modules.Probe, "registers", property(lambda self: 64))
    trace = gl.launch(kernel, 1, 1024, (x,), shared_mem=4096).trace
    assert trace.occupancy.registers_per_thread == 64
    assert trace.note == (
        f"the instrumentation needs registers ({plain.registers_per_thread} to 64 per thread), so that "
        f"{trace.occupancy.blocks_per_sm} blocks fit on an SM instead of {plain.blocks_per_sm}"
        if trace.occupancy.blocks_per_sm != plain.blocks_per_sm
        else ""
    )


def test_large_grids_record_one_block_in_a_power_of_two(monkeypatch: pytest.MonkeyPatch) -> None:
    from gpulab.real import blocks

    x = gl.cp.zeros(32 * 16, gl.cp.int32)
    for most, sampled in ((16, 1), (15, 2), (8, 2), (7, 4), (4, 4)):
        monkeypatch.setattr(blocks, "MAX_RECORDED_BLOCKS", most)
        trace = gl.launch(gl.cp.RawKernel(SHARED, "reverse"), 16, 32, (x,), shared_mem=128).trace
        assert (trace.sampled, len(trace.block_index)) == (sampled, 16 // sampled)
        assert trace.start_ns.min() == 0


def test_kernel_stats_equal_the_drivers_attributes() -> None:
    code = (
        'extern "C" __global__ void k(int* x) { __shared__ int t[96]; t[threadIdx.x] = *x; __syncthreads();'
    )
    kernel = gl.cp.RawKernel(code + " *x = t[95 - threadIdx.x]; }", "k")
    stats = session.backend().kernel_stats(kernel)
    assert (stats.name, stats.provenance) == ("k", session.backend().provenance)
    assert (stats.registers_per_thread, stats.local_bytes) == (kernel.num_regs, kernel.local_size_bytes)
    assert (stats.static_shared_bytes, stats.constant_bytes) == (384, kernel.const_size_bytes)
    assert stats.max_threads_per_block == kernel.max_threads_per_block
    assert stats.target == f"sm_{gl.cp.cuda.Device().compute_capability}"
