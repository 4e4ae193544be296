"""What a real GPU says of itself: limits, live readings, occupancy."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from tools.corpus import find_case
from virtualgpu.errors import NotSupportedError
from virtualgpu.model.occupancy import occupancy
from virtualgpu.protocol import Counters, Launch

if TYPE_CHECKING:
    from gpulab.real.backend import CudaBackend

pytestmark = pytest.mark.gpu


def test_device_info_agrees_with_the_runtime(cuda: CudaBackend, cp: Any) -> None:
    info = cuda.device_info()
    properties = cp.cuda.runtime.getDeviceProperties(0)
    assert info.provenance.source == "measured"
    assert info.name.encode() == properties["name"]
    assert info.compute_capability == (properties["major"], properties["minor"])
    assert info.sm_count == properties["multiProcessorCount"]
    assert info.max_threads_per_sm == properties["maxThreadsPerMultiProcessor"]
    assert info.shared_per_block_bytes == properties["sharedMemPerBlock"]
    assert info.l2_bytes == properties["l2CacheSize"]
    assert info.max_grid_dim == tuple(properties["maxGridSize"])
    assert info.memory_bytes == cp.cuda.runtime.memGetInfo()[1]
    assert info.fp32_lanes_per_sm in (64, 128)


def test_device_info_agrees_with_the_table(cuda: CudaBackend) -> None:
    """If this GPU is in the table of virtual devices, its entry is right."""
    from virtualgpu.errors import UnknownDeviceError
    from virtualgpu.model.devices import device_info

    info = cuda.device_info()
    try:
        row = device_info(info.name.removeprefix("NVIDIA "))
    except UnknownDeviceError:
        pytest.skip(f"the table has no {info.name}")
    for name in (
        "compute_capability",
        "sm_count",
        "fp32_lanes_per_sm",
        "max_threads_per_block",
        "max_block_dim",
        "max_grid_dim",
        "max_warps_per_sm",
        "max_blocks_per_sm",
        "registers_per_sm",
        "registers_per_block",
        "shared_per_sm_bytes",
        "shared_per_block_bytes",
        "shared_per_block_optin_bytes",
        "reserved_shared_per_block_bytes",
        "copy_engines",
    ):
        assert getattr(row, name) == getattr(info, name), name
    assert row.l2_bytes == pytest.approx(info.l2_bytes, rel=0.05)
    # Data sheets count memory stacks that the driver's number leaves out (H200: 6144 and 6016 bit).
    assert row.memory_bus_bits == pytest.approx(info.memory_bus_bits, rel=0.05)
    assert row.memory_bandwidth_gbps == pytest.approx(info.memory_bandwidth_gbps, rel=0.05)


def test_every_reading_has_a_value_or_a_reason(cuda: CudaBackend) -> None:
    metrics = cuda.metrics()
    assert metrics.time_ns > 0
    assert metrics.provenance.source == "measured"
    found = {metric.name: metric for metric in metrics.metrics}
    for metric in metrics.metrics:
        assert (metric.value is None) == bool(metric.why), metric
    assert 0 <= float(found["GPU utilization"].value or 0) <= 100
    used = found["memory used"].value
    total = found["memory total"].value
    if used is not None and total is not None:
        assert 0 < float(used) <= float(total)


@pytest.mark.parametrize("name", ["vector_add", "matmul_tiled", "warp_sum", "maze", "softmax"])
def test_occupancy_rules_agree_with_the_driver(cuda: CudaBackend, cp: Any, name: str) -> None:
    c = find_case(name)
    kernel = cp.RawKernel(c.code, c.kernel)
    driver = cp.cuda.driver.occupancyMaxActiveBlocksPerMultiprocessor
    for threads in (1, 32, 48, 64, 96, 128, 192, 256, 384, 512, 640, 768, 1000, 1024):
        for shared in (0, 1000, 16 << 10, 40 << 10):
            expected = driver(kernel.kernel.ptr, threads, shared)
            found = cuda.occupancy(kernel, threads, shared)
            assert found.blocks_per_sm == expected
            rules = occupancy(cuda.device_info(), threads, kernel.num_regs, kernel.shared_size_bytes + shared)
            assert rules.blocks_per_sm == expected, (threads, shared, rules)


def test_the_counter_error_refers_to_nsight_compute(cuda: CudaBackend) -> None:
    with pytest.raises(NotSupportedError, match="Nsight Compute"):
        cuda.observe(Launch(None, (1, 1, 1), (1, 1, 1)), Counters())
