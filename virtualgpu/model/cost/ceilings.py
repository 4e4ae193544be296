"""Peak rates of a device: the ceilings of a roofline."""

from __future__ import annotations

from virtualgpu.model.cost.instructions import WARP, pipe_clk
from virtualgpu.model.cost.kernels import L2_SECTOR_CLK
from virtualgpu.model.cost.rates import clock_ghz, peak_gbps
from virtualgpu.records import SECTOR_BYTES, DeviceInfo
from virtualgpu.records.launch.roofline import WAVEFRONT_BYTES, Ceilings

# Share of the half-precision tensor rate; compute capability 8.0 and later (architecture white papers).
_TENSOR = {"f16": 1.0, "bf16": 1.0, "tf32": 0.5}


def ceilings(info: DeviceInfo) -> Ceilings:
    """Return the peak rates of memory by level and of arithmetic by type.

    Arithmetic is a multiply-add, two operations, for each result per SM and clock at boost (CUDA C++
    Programming Guide, "Arithmetic Instructions"), or the published rate; `half2` counts two numbers.
    """
    clocks_per_ns = info.sm_count * clock_ghz(info)
    pipes = pipe_clk(info.compute_capability)
    lanes = {
        type_name: WARP / pipes[pipe]
        for type_name, pipe in (("f32", "fma"), ("f64", "fp64"), ("f16", "half"))
    }
    gflops = {
        type_name: 2.0 * results_per_clk * clocks_per_ns for type_name, results_per_clk in lanes.items()
    }
    if info.fp32_tflops is not None:
        gflops["f32"] = 1e3 * info.fp32_tflops
    gflops["f16"] *= 2.0
    gflops["bf16"] = gflops["f16"]
    tensor_gflops = 1e3 * info.fp16_tensor_tflops if info.fp16_tensor_tflops else 4.0 * gflops["f16"]
    gflops |= {f"tensor {type_name}": share * tensor_gflops for type_name, share in _TENSOR.items()}
    return Ceilings(
        device=info.name,
        gbps={
            "DRAM": peak_gbps(info),
            "L2": SECTOR_BYTES / L2_SECTOR_CLK * clocks_per_ns,
            "shared": WAVEFRONT_BYTES * clocks_per_ns,
        },
        gflops=gflops,
    )
