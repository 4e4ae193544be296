"""Programs that run while notebook 09 monitors the GPU: they spin, stream and multiply for seconds each."""

from __future__ import annotations

import time
from collections.abc import Callable

import numpy as np

from gpulab import session

SPIN_KERNEL_CODE = r"""
extern "C" __global__ void spin(long long for_ns) {
    long long begin, now;
    asm volatile("mov.u64 %0, %globaltimer;" : "=l"(begin));
    do { asm volatile("mov.u64 %0, %globaltimer;" : "=l"(now)); } while (now - begin < for_ns);
}
"""
WIDE_KERNEL_CODE = r"""
extern "C" __global__ void add_one(float4* x, long long n) {
    long long step = (long long)gridDim.x * blockDim.x;
    for (long long i = (long long)blockIdx.x * blockDim.x + threadIdx.x; i < n; i += step) {
        float4 v = x[i];
        x[i] = make_float4(v.x + 1, v.y + 1, v.z + 1, v.w + 1);
    }
}
"""
# Blocks and threads of the launches that only spin.
SPIN_LAUNCH_SHAPES = ((1, 32), (1, 1024), (66, 1024), (132, 256), (264, 1024))
ADDITION = "x += 1 over 1 GiB"
ADDITION_WIDE = "x += 1, 16 bytes per lane"
ONES = "FP16 product 8192³, ones"
PRODUCT = "FP16 product 8192³, random"
LOADER_PHASE = "loader that stalls"
SMALL_KERNELS_PHASE = "small kernels from Python"
_PHASE_DURATION_S = 2.0


def spinning(blocks: int, threads: int) -> str:
    """Return the name of a phase with spinning blocks, such as ``spin: 1 block of 1,024``."""
    return f"spin: {blocks} {'block' if blocks == 1 else 'blocks'} of {threads:,}"


def phases() -> list[tuple[str, Callable[[], object]]]:
    """Return the programs to monitor by name, or none on a virtual GPU, which has no sensors."""
    if session.which_device().kind == "virtual":
        return []
    cp = session.cp()
    spin = cp.RawKernel(SPIN_KERNEL_CODE, "spin")
    add_one = cp.RawKernel(WIDE_KERNEL_CODE, "add_one")
    x = cp.zeros(1 << 28, cp.float32)
    small_array = cp.zeros(1024, cp.float32)
    ones_matrix = cp.ones((8192, 8192), cp.float16)
    random_values = (
        cp.random.default_rng(9).standard_normal(ones_matrix.size, dtype=cp.float32).astype(cp.float16)
    )
    half_matrix = random_values.reshape(ones_matrix.shape)
    product = cp.empty_like(ones_matrix)
    synchronize = cp.cuda.Device().synchronize
    blocks = 8 * session.backend().device_info().sm_count

    def spin_program(blocks: int, threads: int) -> Callable[[], object]:
        return lambda: (spin((blocks,), (threads,), (np.int64(_PHASE_DURATION_S * 1e9),)), synchronize())

    def make_repeating_program(
        operation: Callable[[], object], repetitions: int, pause_s: float = 0.0
    ) -> Callable[[], object]:
        def run_repeatedly() -> None:
            end_s = time.perf_counter() + _PHASE_DURATION_S
            while time.perf_counter() < end_s:
                time.sleep(pause_s)
                for _ in range(repetitions):
                    operation()
                synchronize()

        return run_repeatedly

    named_programs: list[tuple[str, Callable[[], object]]] = [
        (ADDITION, make_repeating_program(lambda: cp.add(x, 1, out=x), 20)),
        (
            ADDITION_WIDE,
            make_repeating_program(lambda: add_one((blocks,), (256,), (x, np.int64(x.size // 4))), 20),
        ),
        (ONES, make_repeating_program(lambda: cp.matmul(ones_matrix, ones_matrix, out=product), 20)),
        (PRODUCT, make_repeating_program(lambda: cp.matmul(half_matrix, half_matrix, out=product), 20)),
        (
            LOADER_PHASE,
            make_repeating_program(lambda: cp.matmul(half_matrix, half_matrix, out=product), 4, pause_s=0.03),
        ),
        (SMALL_KERNELS_PHASE, make_repeating_program(lambda: cp.add(small_array, 1, out=small_array), 2000)),
    ]
    return [
        ("idle", lambda: time.sleep(_PHASE_DURATION_S)),
        *((spinning(*launch_shape), spin_program(*launch_shape)) for launch_shape in SPIN_LAUNCH_SHAPES),
        *named_programs,
    ]
