"""Peak rates of a device: the ceilings of a roofline."""

from __future__ import annotations

from virtualgpu.model.cost.instructions import WARP_LANES, pipe_clk
from virtualgpu.model.cost.kernels import L2_SECTOR_CLK
from virtualgpu.model.cost.rates import clock_ghz, peak_gbps
from virtualgpu.model.tensor_rates import find_mma_sync_shares, find_tensor_tflops
from virtualgpu.records import SECTOR_BYTES, DeviceInfo
from virtualgpu.records.launch.roofline import TENSOR_PREFIX, WAVEFRONT_BYTES, Ceilings


def compute_ceilings(info: DeviceInfo) -> Ceilings:
    """Return the peak bandwidth of each memory level and the peak arithmetic rate of each data type.

    Arithmetic rates are published, or follow from the multiply-adds per SM and clock at boost (CUDA C++
    Programming Guide, "Arithmetic Instructions"). A multiply-add counts as two operations, and `half2` as two
    numbers. Rates of tensor cores are published (`virtualgpu.model.tensor_rates`).
    """
    clocks_per_ns = info.sm_count * clock_ghz(info)
    pipes = pipe_clk(info)
    results_per_clk_by_type = {
        type_name: WARP_LANES / pipes[pipe]
        for type_name, pipe in (("f32", "fma"), ("f64", "fp64"), ("f16", "half"))
    }
    gflops = {
        type_name: 2.0 * results_per_clk * clocks_per_ns
        for type_name, results_per_clk in results_per_clk_by_type.items()
    }
    if info.fp32_tflops is not None:
        gflops["f32"] = 1e3 * info.fp32_tflops
    gflops["f16"] *= 2.0
    gflops["bf16"] = gflops["f16"]
    gflops |= {f"{TENSOR_PREFIX}{name}": 1e3 * tflops for name, tflops in find_tensor_tflops(info).items()}
    return Ceilings(
        device=info.name,
        gbps={
            "DRAM": peak_gbps(info),
            "L2": SECTOR_BYTES / L2_SECTOR_CLK * clocks_per_ns,
            "shared": WAVEFRONT_BYTES * clocks_per_ns,
        },
        gflops=gflops,
        mma_sync_shares=find_mma_sync_shares(info),
    )
