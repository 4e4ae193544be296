"""The session and the public functions on a real GPU: measured, and predicted by the virtual twin."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import gpulab as gl
from gpulab import session
from tests.session.kernels import COUNT_UP, FOREVER, NO_TAIL_CHECK, STAGES, VECTOR_ADD
from virtualgpu.cuda_errors import IllegalAddressError
from virtualgpu.errors import GpulabError

pytestmark = pytest.mark.gpu
# c += a b for 16 x 8 x 8 halves, with PTX's layout.
PRODUCT = r"""
extern "C" __global__ void product(const unsigned short* a, const unsigned short* b, float* c) {
    int g = threadIdx.x / 4, t = 2 * (threadIdx.x % 4);
    unsigned x[2], y = b[8 * t + g] | b[8 * (t + 1) + g] << 16;
    for (int i = 0; i < 2; ++i) x[i] = a[8 * (g + 8 * i) + t] | a[8 * (g + 8 * i) + t + 1] << 16;
    float d[4] = {};
    asm volatile("mma.sync.aligned.m16n8k8.row.col.f32.f16.f16.f32 "
        "{%0,%1,%2,%3}, {%4,%5}, {%6}, {%0,%1,%2,%3};"
        : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3]) : "r"(x[0]), "r"(x[1]), "r"(y));
    for (int i = 0; i < 4; ++i) c[8 * (g + 8 * (i / 2)) + t + i % 2] += d[i];
}"""
N = 100_000
GRID = -(-N // 256)


@pytest.fixture
def addition() -> tuple[Any, tuple[Any, ...], Any]:
    cp = gl.cp
    a, b = np.random.default_rng(0).random((2, N), dtype=np.float32)
    args = (cp.asarray(a), cp.asarray(b), cp.zeros(N, cp.float32), np.int32(N))
    return cp.RawKernel(VECTOR_ADD, "vector_add"), args, a + b


def test_the_session_uses_cupy_and_numbers_are_measured() -> None:
    import cupy

    assert gl.cp is cupy
    choice = gl.which_device()
    assert choice.kind == "cuda"
    assert choice.device == cupy.cuda.runtime.getDeviceProperties(0)["name"].decode()
    assert "measured" in str(choice)


def test_a_launch_in_a_capture_is_refused_and_the_capture_goes_on(addition: Any) -> None:
    kernel, args, expected = addition
    stream = gl.cp.cuda.Stream(non_blocking=True)
    with stream:
        stream.begin_capture()
        with pytest.raises(gl.errors.GpulabError, match="end_capture"):
            gl.launch(kernel, GRID, 256, args)
        kernel((GRID,), (256,), args)
        graph = stream.end_capture()
        graph.launch(stream)
    stream.synchronize()
    np.testing.assert_array_equal(args[2].get(), expected)


def test_a_launch_is_measured_and_predicted(addition: Any) -> None:
    kernel, args, expected = addition
    chart = gl.launch(kernel, GRID, 256, args)
    np.testing.assert_array_equal(args[2].get(), expected)
    assert chart.trace.provenance.source == "measured"
    assert chart.other is not None
    assert chart.other.provenance.source == "modelled"
    assert chart.other.sm_count == chart.trace.sm_count
    assert chart.other.occupancy.blocks_per_sm == chart.trace.occupancy.blocks_per_sm
    args[2].fill(3)
    chart.block_threads = 128
    assert chart.error == ""
    assert chart.trace.block == (128, 1, 1)
    assert bool((args[2] == 3).all())


def test_warps_includes_the_active_masks_of_the_hardware(addition: Any) -> None:
    kernel, args, expected = addition
    stepper = gl.warps(kernel, GRID, 256, args, block_index=GRID - 1, warp=5)
    np.testing.assert_array_equal(args[2].get(), expected)
    assert stepper.trace.granularity == "instruction"
    assert stepper.measured is not None
    assert stepper.measured.provenance.source == "measured"
    assert set(stepper.measured.active_mask.tolist()) <= set(stepper.trace.active_mask.tolist())


def test_count_is_modelled_and_runs_the_kernel_once() -> None:
    x = gl.cp.zeros(1000, gl.cp.int32)
    table = gl.count(gl.cp.RawKernel(COUNT_UP, "count_up"), 4, 256, (x, np.int32(1000)))
    assert bool((x == 1).all())
    assert table.provenance.source == "modelled"
    assert table.total("sectors", "global", "load") == 125
    assert "Counted in a replay on the virtual GPU" in str(table)


def test_accesses_are_traced_in_a_replay_and_the_kernel_runs_once() -> None:
    x = gl.cp.zeros(1000, gl.cp.int32)
    kernel = gl.cp.RawKernel(COUNT_UP, "count_up")
    view = gl.access(kernel, 4, 256, (x, np.int32(1000)), block_index=3, warp=7)
    assert bool((x == 1).all())
    assert view.source == "executed"
    assert "replay on the virtual GPU" in view.caption
    assert [row.cells[4] for row in view.rows] == ["3.91 sectors"] * 2
    assert view.access is not None
    assert view.access.lanes == tuple(range(8))


def test_fragments_come_from_a_replay_and_the_kernel_runs_once() -> None:
    rng = np.random.default_rng(1)
    a = rng.integers(-7, 8, (16, 8)).astype(np.float16)
    b = rng.integers(-7, 8, (8, 8)).astype(np.float16)
    c = gl.cp.ones((16, 8), np.float32)
    view = gl.fragments(gl.cp.RawKernel(PRODUCT, "product"), 1, 32, (gl.cp.asarray(a), gl.cp.asarray(b), c))
    exact = a.astype(np.float32) @ b.astype(np.float32)
    np.testing.assert_array_equal(c.get(), 1 + exact, "the real GPU has run the kernel once")
    np.testing.assert_array_equal(view.record.values(view.chosen, "d"), exact)
    assert view.source == "executed"
    assert "replay on the virtual GPU" in view.caption


def test_pipeline_comes_from_a_replay_and_the_kernel_runs_once() -> None:
    x, y = gl.cp.arange(64 * 6, dtype=np.float32), gl.cp.zeros(64, np.float32)
    view = gl.pipeline(gl.cp.RawKernel(STAGES, "stages"), 1, 64, (x, y, np.int32(64 * 6)))
    np.testing.assert_array_equal(y.get(), x.get().reshape(6, 64)[:, ::-1].sum(axis=0))
    assert (len(view.record.buffers), len(view.record.fills), view.record.mistakes) == (2, 6, ())
    assert view.source == "executed"
    assert "virtual" in view.caption


def test_pipeline_too_large_to_replay_suggests_fewer_blocks() -> None:
    gl.use_device(watchdog_s=0.3)
    x, y = gl.cp.zeros(64 * 6, np.float32), gl.cp.zeros(64, np.float32)
    with pytest.raises(GpulabError, match="fewer blocks"):
        gl.pipeline(gl.cp.RawKernel(STAGES, "stages"), 1 << 20, 64, (x, y, np.int32(64 * 6)))


def test_a_replay_that_takes_too_long_is_stopped() -> None:
    gl.use_device(watchdog_s=0.3)
    x = gl.cp.zeros(1, gl.cp.int32)
    with pytest.raises(gl.errors.GpulabError, match="watchdog_s=60"):
        gl.count(gl.cp.RawKernel(FOREVER, "forever"), 1, 32, (x,))


def test_a_fault_is_reported_before_it_can_end_the_cuda_context(addition: Any) -> None:
    kernel, args, expected = addition
    x = gl.cp.ones(1000, gl.cp.float32)
    for function in (gl.launch, gl.warps, gl.count, gl.access):
        with pytest.raises(IllegalAddressError, match="line 4"):
            function(gl.cp.RawKernel(NO_TAIL_CHECK, "double_all"), 4, 256, (x,))
    kernel((GRID,), (256,), args)
    np.testing.assert_array_equal(args[2].get(), expected)
    assert bool((x == 1).all())


@pytest.mark.parametrize("function", ["launch", "warps", "count"])
def test_arguments_that_would_end_the_process_are_refused(addition: Any, function: str) -> None:
    kernel, args, expected = addition
    run = getattr(gl, function)
    with pytest.raises(TypeError, match="takes 4 arguments but 2"):
        run(kernel, GRID, 256, args[:2])
    with pytest.raises(TypeError, match=r"np\.int32"):
        run(kernel, GRID, 256, (*args[:3], np.int16(100)))
    with pytest.raises(TypeError, match=r"numpy\.ndarray"):
        run(kernel, GRID, 256, (np.zeros(N, np.float32), *args[1:]))
    with pytest.raises(RuntimeError, match=r"CUDA_ERROR_INVALID_VALUE.*allows at most 1,024"):
        run(kernel, GRID, 2048, args)
    run(kernel, GRID, 256, args)
    np.testing.assert_array_equal(args[2].get(), expected)


def test_occupancy_is_limited_by_the_drivers_value(addition: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    from gpulab.real import backend

    class Fewer:
        def __getattr__(self, name: str) -> Any:
            return getattr(driver, name)

        def occupancyMaxActiveBlocksPerMultiprocessor(self, *_: Any) -> int:
            return 2

    driver = backend.driver
    assert gl.occupancy(addition[0], 256).point.provenance.source == "measured"
    monkeypatch.setattr(backend, "driver", Fewer())
    point = gl.occupancy(addition[0], 96).point
    assert (point.blocks_per_sm, point.warps_per_sm) == (2, 6)
    assert point.blocks_by_limit["driver"] == 2
    assert point.limiters == ("driver",)


def test_device_shows_live_readings() -> None:
    card = gl.device()
    assert card.has_metrics
    assert card.info.provenance.source == "measured"
    assert not [other.name for other in card.other_devices if other.name in card.info.name], (
        "not next to itself"
    )


def test_switch_to_a_virtual_device_and_back(addition: Any) -> None:
    import cupy

    kernel, args, expected = addition
    choice = gl.use_device("virtual:T4")
    assert choice.cp is not cupy
    x = choice.cp.arange(10)
    assert int(x.sum()) == 45
    assert gl.use_device("cuda").cp is cupy
    kernel((GRID,), (256,), args)
    np.testing.assert_array_equal(args[2].get(), expected)


def test_the_twin_has_the_real_devices_limits() -> None:
    twin = session.find_twin()
    assert twin is not None
    real = session.backend().device_info()
    virtual = twin.device_info()
    for name in ("sm_count", "compute_capability", "max_warps_per_sm", "shared_per_sm_bytes", "l2_bytes"):
        assert getattr(real, name) == getattr(virtual, name), name
    assert virtual.provenance.source == "modelled"


def test_driver_calls_are_counted() -> None:
    stream = gl.cp.cuda.Stream(non_blocking=True)
    x = gl.cp.zeros(64, gl.cp.uint8)

    def work(times: int) -> None:
        for _ in range(times):
            x.data.memset_async(0, 64, stream)
        stream.synchronize()

    calls, _ = session.count_driver_calls(work, (3,))
    counted = dict(calls)
    assert (counted["cudaMemsetAsync"], counted["cudaStreamSynchronize"]) == (3, 1)


@pytest.mark.hardware("the doctor asks the driver's library itself")
def test_the_doctor_finds_the_gpu() -> None:
    diagnosis = gl.doctor()
    for part in ("NVIDIA driver", "CUDA version", "CuPy", "CuPy's NVRTC", "real GPU", "NVML"):
        assert diagnosis[part].status == "ok", diagnosis[part]
    assert diagnosis.real_gpu
