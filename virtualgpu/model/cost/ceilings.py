"""What a device can do at most: the ceilings of a roofline."""

from __future__ import annotations

from virtualgpu.model.cost.instructions import WARP, pipe_clk
from virtualgpu.model.cost.kernels import L2_SECTOR_CLK
from virtualgpu.model.cost.rates import clock_ghz, peak_gbps
from virtualgpu.records import SECTOR_BYTES, DeviceInfo
from virtualgpu.records.launch.roofline import WAVEFRONT_BYTES, Ceilings

# Of what a tensor core does in half precision; compute capability 8.0 and later (architecture white papers).
_TENSOR = {"f16": 1.0, "bf16": 1.0, "tf32": 0.5}


def ceilings(info: DeviceInfo) -> Ceilings:
    """Peaks of memory by level and of arithmetic by type.

    Arithmetic is a multiply-add, two operations, for each result that an SM gives a clock at boost (CUDA C++
    Programming Guide, "Arithmetic Instructions"), or what the vendor publishes; `half2` counts two numbers.
    """
    clocks = info.sm_count * clock_ghz(info)
    pipes = pipe_clk(info.compute_capability)
    lanes = {kind: WARP / pipes[pipe] for kind, pipe in (("f32", "fma"), ("f64", "fp64"), ("f16", "half"))}
    gflops = {kind: 2.0 * each * clocks for kind, each in lanes.items()}
    if info.fp32_tflops is not None:
        gflops["f32"] = 1e3 * info.fp32_tflops
    gflops["f16"] *= 2.0
    gflops["bf16"] = gflops["f16"]
    tensor = 1e3 * info.fp16_tensor_tflops if info.fp16_tensor_tflops else 4.0 * gflops["f16"]
    gflops |= {f"tensor {kind}": share * tensor for kind, share in _TENSOR.items()}
    return Ceilings(
        device=info.name,
        gbps={
            "DRAM": peak_gbps(info),
            "L2": SECTOR_BYTES / L2_SECTOR_CLK * clocks,
            "shared": WAVEFRONT_BYTES * clocks,
        },
        gflops=gflops,
    )
