"""The launch configuration of each kernel for given arrays, and the scratch memory that some kernels need."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from gpulab import session
from gpulab_course.content.kernels.work import Step, count_blocks, kernel, read_tunable_macros
from virtualgpu.errors import GpulabError

BLOCK_THREADS = 256
# Blocks for each SM where a fixed number of them walks over everything.
BLOCKS_PER_SM = 8
# The last sum's own: on an H200 two blocks of all 1,024 threads are the fastest.
SUM_BLOCK_THREADS = 1024
SUM_BLOCKS_PER_SM = 2
Tuning = Mapping[str, int]
Launches = Callable[[str, tuple[Any, ...], Tuning], tuple[Step, ...]]


class ShapeError(GpulabError, ValueError):
    """Error for arrays that a kernel does not support. The message names the supported shapes."""


def _require_shapes(condition: bool, name: str, required_shapes: str) -> None:
    if not condition:
        raise ShapeError(f"{name} does not support arrays of these shapes. It needs {required_shapes}.")


def _read_sm_count() -> int:
    return session.backend().device_info().sm_count


def make_copy_launch(name: str, arrays: tuple[Any, ...], tuning: Tuning) -> tuple[Step, ...]:
    """Return the launch that copies the array `x` (n) to `out`, with ``THREADS`` threads per block."""
    x, out = arrays
    n = x.size
    threads = tuning.get("THREADS", BLOCK_THREADS)
    grid = count_blocks(n if name == "copy_floats" else n // 4 + n % 4, threads)
    return (Step(kernel("copy.cu", name), (grid,), (threads,), (x, out, np.int32(n))),)


def make_transpose_launch(name: str, arrays: tuple[Any, ...], tuning: Tuning) -> tuple[Step, ...]:
    """Return the launch that transposes the matrix `x` (rows, columns) into `out` (columns, rows)."""
    x, out = arrays
    rows, columns = x.shape
    tile_extent = 32
    block = (32, 8)
    if name == "transpose_vectors":
        _require_shapes(rows % 4 == columns % 4 == 0, name, "rows and columns that are multiples of 4")
        tile_side = {**read_tunable_macros("transpose.cu"), **tuning}["SIDE"]
        tile_extent = 4 * tile_side
        block = (tile_side * tile_side, 1)
    grid = (count_blocks(columns, tile_extent), count_blocks(rows, tile_extent))
    raw_kernel = kernel("transpose.cu", name, tuning)
    return (Step(raw_kernel, grid, block, (x, out, np.int32(rows), np.int32(columns))),)


def make_sum_launches(name: str, arrays: tuple[Any, ...], tuning: Tuning) -> tuple[Step, ...]:
    """Return the launches that write the sum of the array `x` (n) to `out` (1).

    Blocks have ``THREADS`` threads. Kernels with a fixed grid launch ``BLOCKS`` blocks per SM.
    """
    x, out = arrays
    is_one_pass = name == "sum_one_pass"
    cp = session.cp()
    threads = tuning.get("THREADS", SUM_BLOCK_THREADS if is_one_pass else BLOCK_THREADS)
    resident_blocks = (
        tuning.get("BLOCKS", SUM_BLOCKS_PER_SM if is_one_pass else BLOCKS_PER_SM) * _read_sm_count()
    )
    raw_kernel = kernel(
        "reduction.cu", name, {k: v for k, v in tuning.items() if k not in ("THREADS", "BLOCKS")}
    )
    if is_one_pass:
        grid = min(resident_blocks, count_blocks(x.size, 4 * threads))
        scratch_arrays = cp.empty(grid, cp.float32), cp.zeros(1, cp.uint32)
        return (Step(raw_kernel, (grid,), (threads,), (x, *scratch_arrays, out, np.int32(x.size))),)
    launch_steps: list[Step] = []
    step_input = x
    n = x.size
    shared_bytes = 0 if name in ("sum_shuffled", "sum_grid_stride") else 4 * threads
    while not launch_steps or n > 1:
        grid = count_blocks(n, 2 * threads if name in ("sum_on_load", "sum_shuffled") else threads)
        if name == "sum_grid_stride":
            grid = min(grid, resident_blocks) if not launch_steps else 1
        step_output = out if grid == 1 else cp.empty(grid, cp.float32)
        launch_steps.append(
            Step(raw_kernel, (grid,), (threads,), (step_input, step_output, np.int32(n)), shared_bytes)
        )
        step_input = step_output
        n = grid
    return tuple(launch_steps)


def make_scan_launches(name: str, arrays: tuple[Any, ...], tuning: Tuning) -> tuple[Step, ...]:
    """Return the launches that write the inclusive prefix sums of the array `x` (n, int32) to `out`."""
    x, out = arrays
    cp = session.cp()
    n = x.size
    raw_kernel = kernel("scan.cu", name, tuning)
    macro_values = {**read_tunable_macros("scan.cu"), **tuning}
    threads = macro_values["BLOCK"]
    if name == "scan_look_back":
        grid = count_blocks(n, threads * macro_values["ITEMS"])
        tile_states = cp.zeros(grid + 1, cp.uint64)
        clear_kernel = kernel("scan.cu", "clear_tiles", tuning)
        return (
            Step(raw_kernel, (grid,), (threads,), (x, out, tile_states, np.int32(n))),
            Step(
                clear_kernel,
                (count_blocks(grid + 1, threads),),
                (threads,),
                (tile_states, np.int32(grid + 1)),
            ),
        )
    grid = count_blocks(n, threads)
    if grid == 1:
        return (Step(raw_kernel, (1,), (threads,), (x, out, np.uint64(0), np.int32(n))),)
    block_sums = cp.empty(grid, cp.int32)
    add_step = Step(
        kernel("scan.cu", "add_before", tuning), (grid,), (threads,), (out, block_sums, np.int32(n))
    )
    tile_step = Step(raw_kernel, (grid,), (threads,), (x, out, block_sums, np.int32(n)))
    return (tile_step, *make_scan_launches(name, (block_sums, block_sums), tuning), add_step)


def make_histogram_launches(name: str, arrays: tuple[Any, ...], tuning: Tuning) -> tuple[Step, ...]:
    """Return the launches that count the bytes of `x` (n, uint8) by value in `bins` (256, uint32)."""
    x, bins = arrays
    threads = (
        32 * {**read_tunable_macros("histogram.cu"), **tuning}["COPIES"]
        if name == "histogram_private"
        else BLOCK_THREADS
    )
    thread_bytes = 16 if name == "histogram_private" else 1
    grid = max(1, min(BLOCKS_PER_SM * _read_sm_count(), count_blocks(x.size, thread_bytes * threads)))
    clear_step = Step(kernel("histogram.cu", "clear_bins"), (1,), (BLOCK_THREADS,), (bins,))
    raw_kernel = kernel("histogram.cu", name, tuning)
    return (clear_step, Step(raw_kernel, (grid,), (threads,), (x, bins, np.int32(x.size))))


def make_stencil_launch(name: str, arrays: tuple[Any, ...], tuning: Tuning) -> tuple[Step, ...]:
    """Return the launch that writes the mean of the 5 x 5 cells around each cell of `x` to `out`."""
    x, out = arrays
    height, width = x.shape
    macro_values = {**read_tunable_macros("stencil.cu"), **tuning}
    rows_per_thread = macro_values["ROWS"] if name == "stencil_sliding" else 1
    block = (32, macro_values["TY"])
    grid = (count_blocks(width, 32), count_blocks(height, block[1] * rows_per_thread))
    raw_kernel = kernel("stencil.cu", name, tuning)
    return (Step(raw_kernel, grid, block, (x, out, np.int32(height), np.int32(width))),)


def make_row_launch(name: str, arrays: tuple[Any, ...], tuning: Tuning) -> tuple[Step, ...]:
    """Return the launch that computes softmax or layer norm of each row of `x` (rows, columns).

    A block has ``THREADS`` threads.
    """
    x, out = arrays
    rows, columns = x.shape
    file = "softmax.cu" if name.startswith("softmax") else "layer_norm.cu"
    if name.endswith("registers"):
        max_columns = 128 * {**read_tunable_macros(file), **tuning}["VECTORS"]
        _require_shapes(
            columns % 4 == 0 and columns <= max_columns,
            name,
            f"rows of at most {max_columns:,} floats, a multiple of 4",
        )
    block = tuning.get("THREADS", 128)
    grid = count_blocks(rows, block if name.endswith("naive") else block // 32)
    raw_kernel = kernel(file, name, {k: v for k, v in tuning.items() if k != "THREADS"})
    return (Step(raw_kernel, (grid,), (block,), (x, out, np.int32(rows), np.int32(columns))),)


def make_sgemm_launch(name: str, arrays: tuple[Any, ...], tuning: Tuning) -> tuple[Step, ...]:
    """Return the launch that multiplies two float32 matrices, `a` (m, k) and `b` (k, n), into `c`."""
    a, b, c = arrays
    (m, k), n = a.shape, b.shape[1]
    shared_bytes = 0
    grid = (count_blocks(n, 16), count_blocks(m, 16))
    block = (16, 16)
    if name == "sgemm_registers":
        grid = (count_blocks(n, 64), count_blocks(m, 64))
        block = (256, 1)
    elif name in ("sgemm_vectors", "sgemm_double", "sgemm_async"):
        _require_shapes(k % 4 == n % 4 == 0, name, "k and n that are multiples of 4")
        tuning = _fit_stages("sgemm.cu", tuning, 4)
        grid, block, shared_bytes = _make_tile_launch("sgemm.cu", m, n, tuning, 4)
        shared_bytes = shared_bytes if name == "sgemm_async" else 0
    raw_kernel = kernel("sgemm.cu", name, tuning, shared_bytes)
    return (Step(raw_kernel, grid, block, (a, b, c, np.int32(m), np.int32(n), np.int32(k)), shared_bytes),)


def make_hgemm_launch(name: str, arrays: tuple[Any, ...], tuning: Tuning) -> tuple[Step, ...]:
    """Return the launch that multiplies two float16 matrices `a` and `b` into a float32 matrix `c`."""
    a, b, c = arrays
    (m, k), n = a.shape, b.shape[1]
    shared_bytes = 0
    grid = (count_blocks(n, 8), count_blocks(m, 64))
    block = (128, 1)
    if name == "hgemm_async":
        _require_shapes(k % 8 == n % 8 == 0, name, "k and n that are multiples of 8")
        tuning = _fit_stages("tensor_cores.cu", tuning, 2)
        grid, block, shared_bytes = _make_tile_launch("tensor_cores.cu", m, n, tuning, 2)
    raw_kernel = kernel("tensor_cores.cu", name, tuning, shared_bytes)
    return (Step(raw_kernel, grid, block, (a, b, c, np.int32(m), np.int32(n), np.int32(k)), shared_bytes),)


def _fit_stages(file: str, tuning: Tuning, element_bytes: int) -> Tuning:
    """Return `tuning` with as many pipeline stages as fit into the shared memory of a block, at least two."""
    shared_limit_bytes = session.backend().device_info().shared_per_block_optin_bytes
    stage_count = {**read_tunable_macros(file), **tuning}["STAGES"]
    while (
        stage_count > 2
        and _make_tile_launch(file, 1, 1, {**tuning, "STAGES": stage_count}, element_bytes)[2]
        > shared_limit_bytes
    ):
        stage_count -= 1
    return (
        tuning
        if stage_count == {**read_tunable_macros(file), **tuning}["STAGES"]
        else {**tuning, "STAGES": stage_count}
    )


def _make_tile_launch(
    file: str, m: int, n: int, tuning: Tuning, element_bytes: int
) -> tuple[tuple[int, int], tuple[int, int], int]:
    """Return grid, block and dynamic shared memory of a tiled matrix multiplication."""
    macro_values = {**read_tunable_macros(file), **tuning}
    warps = (macro_values["BM"] // macro_values["WM"]) * (macro_values["BN"] // macro_values["WN"])
    grid = count_blocks(m, macro_values["BM"]) * count_blocks(n, macro_values["BN"])
    return (
        (grid, 1),
        (32 * warps, 1),
        macro_values["STAGES"]
        * (macro_values["BM"] + macro_values["BN"])
        * macro_values["BK"]
        * element_bytes,
    )
