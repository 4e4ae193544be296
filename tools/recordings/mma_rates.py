"""Record the speed that ``mma.sync`` reaches on a GPU: ``python -m tools.recordings.mma_rates``.

The kernel multiplies fragments that stay in registers: all SMs, many warps, independent sums. The result is
in TFLOP/s (integers: TOP/s) by format of the tensor cores (`virtualgpu.records.counters.TENSOR_FORMATS`), for
``MMA_SYNC_TFLOPS`` in `virtualgpu.model.tensor_rates`. All factors are zero, so that power does
not limit its clock.
"""

from __future__ import annotations

import argparse
import json
import re
from collections.abc import Sequence

import numpy as np

import gpulab as gl
from gpulab import session

Form = tuple[str, int, int, int]
# The shape and types of an instruction, and its registers for the sum, for A and for B.
FORMS: dict[str, Form] = {
    "f16 to f32": ("m16n8k16.row.col.f32.f16.f16.f32", 4, 4, 2),
    "f16 to f16": ("m16n8k16.row.col.f16.f16.f16.f16", 2, 4, 2),
    "bf16 to f32": ("m16n8k16.row.col.f32.bf16.bf16.f32", 4, 4, 2),
    "tf32 to f32": ("m16n8k8.row.col.f32.tf32.tf32.f32", 4, 4, 2),
    "f8 to f32": ("m16n8k32.row.col.f32.e4m3.e4m3.f32", 4, 4, 2),
    "s8 to s32": ("m16n8k32.row.col.s32.s8.s8.s32", 4, 4, 2),
    "f64 to f64": ("m16n8k16.row.col.f64.f64.f64.f64", 4, 8, 4),
}
WARPS = 8  # of a block
SUMS = (4, 8)  # independent sums of a warp
BLOCKS = (1, 2)  # per SM
REPEATS = 5


def main(arguments: Sequence[str] | None = None) -> int:
    """Print the device and the speed of each format."""
    parser = argparse.ArgumentParser(prog="mma_rates", description=__doc__)
    parser.add_argument("--device", default="cuda", help="for a trial: a virtual one")
    parser.add_argument("--steps", type=int, default=20_000, help="multiplications of each sum")
    options = parser.parse_args(arguments)
    gl.use_device(options.device)
    info = session.backend().device_info()
    rates = {
        name: max(
            measure_tflops(name, sums, blocks * info.sm_count, options.steps)
            for sums in SUMS
            for blocks in BLOCKS
        )
        for name in FORMS
    }
    print(json.dumps({"device": info.name, "driver": info.driver, "tflops": rates}, indent=1))
    return 0


def measure_tflops(name: str, sums: int, blocks: int, steps: int) -> float:
    """Return the highest speed of several launches in TFLOP/s."""
    cp = session.cp()
    form, sum_count, _, _ = FORMS[name]
    kernel = cp.RawKernel(make_code(FORMS[name], sums), "k")
    word_dtype = np.float64 if name.startswith("f64") else np.uint32
    sum_array = cp.zeros(sum_count * 32 * WARPS, word_dtype)
    times_ms = []
    for _ in range(REPEATS):
        start_event, end_event = cp.cuda.Event(), cp.cuda.Event()
        start_event.record()
        kernel((blocks,), (32 * WARPS,), (sum_array, np.int32(steps)))
        end_event.record()
        end_event.synchronize()
        times_ms.append(float(cp.cuda.get_elapsed_time(start_event, end_event)))
    shape = re.match(r"m(\d+)n(\d+)k(\d+)", form)
    assert shape is not None
    operation_count = 2 * int(np.prod([int(size) for size in shape.groups()])) * blocks * WARPS * sums * steps
    return round(operation_count / min(times_ms) / 1e9, 1)


def make_code(form: Form, sums: int) -> str:
    """Return a kernel with independent sums, whose factors are zero."""
    shape_and_types, sum_count, a_count, b_count = form
    instruction = f"mma.sync.aligned.{shape_and_types}"
    operand_numbers = iter(range(sum_count + a_count + b_count))
    operands = [
        "{" + ",".join(f"%{next(operand_numbers)}" for _ in range(n)) + "}"
        for n in (sum_count, a_count, b_count)
    ]
    constraint_letter, cpp_type = ("d", "double") if "f64" in instruction else ("r", "unsigned")
    output_operands = ", ".join(f'"+{constraint_letter}"(all[s][{n}])' for n in range(sum_count))
    input_operands = ", ".join(
        f'"{constraint_letter}"({matrix}[{n}])'
        for matrix, register_count in (("a", a_count), ("b", b_count))
        for n in range(register_count)
    )
    return f"""
    extern "C" __global__ void k({cpp_type}* out, int steps) {{
        {cpp_type} a[{a_count}], b[{b_count}], all[{sums}][{sum_count}] = {{}};
        for (int n = 0; n < {a_count}; ++n) a[n] = out[n];
        for (int n = 0; n < {b_count}; ++n) b[n] = out[n];
        #pragma unroll 4
        for (int step = 0; step < steps; ++step)
            #pragma unroll
            for (int s = 0; s < {sums}; ++s)
                asm volatile("{instruction} {operands[0]}, {operands[1]}, {operands[2]}, {operands[0]};"
                             : {output_operands} : {input_operands});
        for (int n = 0; n < {sum_count}; ++n) {{
            {cpp_type} sum = 0;
            for (int s = 0; s < {sums}; ++s) sum += all[s][n];
            if (sum != 0) out[n * blockDim.x + threadIdx.x] = sum;
        }}
    }}"""


if __name__ == "__main__":
    raise SystemExit(main())
