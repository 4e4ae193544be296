"""Kernels in three sizes each, launched alike on a real GPU under Nsight Compute and on the virtual one."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from tools.corpus import list_kernel_files, read_kernel_code
from virtualgpu.records import Dim3

KERNELS = Path(__file__).parent / "kernels"
Array = npt.NDArray[Any]


@dataclass(frozen=True, slots=True)
class Shape:
    """One launch: arrays are copied to the device, NumPy scalars passed by value."""

    grid: Dim3
    block: Dim3
    values: tuple[Array | np.generic, ...]
    shared_bytes: int = 0


@dataclass(frozen=True, slots=True)
class CounterCase:
    """A kernel and how to launch it at a size."""

    kernel: str
    file: str
    sizes: tuple[int, int, int]
    shape: Callable[[int], Shape]

    @property
    def code(self) -> str:
        return source(self.file)


def source(file: str) -> str:
    """Return the CUDA C++ code of a file of the course or of this folder."""
    return (
        read_kernel_code(file)
        if file in list_kernel_files()
        else (KERNELS / file).read_text(encoding="utf-8")
    )


def words(seed: int, count: int) -> npt.NDArray[np.uint32]:
    """Well-mixed 32-bit numbers: the finaliser of MurmurHash3 over a counter."""
    with np.errstate(over="ignore"):
        h = np.arange(count, dtype=np.uint32) + np.uint32(seed * 0x9E3779B1 & 0xFFFFFFFF)
        h = (h ^ (h >> np.uint32(16))) * np.uint32(0x85EBCA6B)
        h = (h ^ (h >> np.uint32(13))) * np.uint32(0xC2B2AE35)
        return h ^ (h >> np.uint32(16))


def floats(seed: int, count: int) -> npt.NDArray[np.float32]:
    return (words(seed, count) >> np.uint32(8)).astype(np.float32) / np.float32(1 << 24)


def doubles(seed: int, count: int) -> npt.NDArray[np.float64]:
    return words(seed, count).astype(np.float64) / 2.0**32


def below(seed: int, count: int, limit: int) -> npt.NDArray[np.int32]:
    return (words(seed, count) % np.uint32(limit)).astype(np.int32)


def _i(value: int) -> np.int32:
    return np.int32(value)


def _line(n: int, block: int, *values: Any, shared_bytes: int = 0) -> Shape:
    """Return a launch with enough blocks for n threads."""
    return Shape((-(-n // block), 1, 1), (block, 1, 1), values, shared_bytes)


def _empty(n: int, kind: type[np.generic] = np.float32) -> Array:
    return np.zeros(n, kind)


def _matmul(n: int, naive: bool = False) -> Shape:
    blocks = -(-n // 16)
    return Shape((blocks, blocks, 1), (16, 16, 1), (floats(1, n * n), floats(2, n * n), _empty(n * n), _i(n)))


def _matmul_quads(n: int) -> Shape:
    return Shape(
        (n // 32, n // 32, 1), (8, 32, 1), (floats(1, n * n), floats(2, n * n), _empty(n * n), _i(n))
    )


def _transpose(n: int) -> Shape:
    return Shape((n // 32, n // 32, 1), (32, 8, 1), (floats(1, n * n), _empty(n * n), _i(n)))


def _transpose_wide(tile: int, floats_each: int) -> Callable[[int], Shape]:
    def shape(n: int) -> Shape:
        count = n * n * floats_each
        return Shape((n // tile, n // tile, 1), (tile, tile, 1), (floats(1, count), _empty(count), _i(n)))

    return shape


def _block_sums(n: int, shared_bytes: int) -> Shape:
    return _line(n, 256, floats(1, n), _empty(-(-n // 256)), _i(n), shared_bytes=shared_bytes)


def _strided(kind: type[np.generic], per_item: int) -> Callable[[int], Shape]:
    """The size is the stride."""

    def shape(stride: int) -> Shape:
        n = 6_000
        data = doubles(1, n * per_item).astype(kind)
        return _line(n, 256, data, np.zeros(n * per_item, kind), _i(n), _i(stride))

    return shape


def _shifted(kind: type[np.generic], per_item: int) -> Callable[[int], Shape]:
    return lambda n: _line(n, 128, doubles(1, n * per_item).astype(kind), np.zeros(n * per_item, kind), _i(n))


def _gather(kind: type[np.generic], per_item: int) -> Callable[[int], Shape]:
    """Indices among the first third, so that many repeat within a warp."""

    def shape(n: int) -> Shape:
        data = doubles(1, n * per_item).astype(kind)
        return _line(n, 256, data, below(2, n, n // 3), np.zeros(n * per_item, kind), _i(n))

    return shape


def _scatter(n: int) -> Shape:
    order = np.argsort(words(3, n), kind="stable").astype(np.int32)
    return _line(n, 256, doubles(1, n), order, _empty(n, np.float64), _i(n))


def _shared_strided(kind: type[np.generic], units: int, per_item: int) -> Callable[[int], Shape]:
    """The size is the stride."""

    def shape(stride: int) -> Shape:
        data = doubles(1, units * per_item).astype(kind)
        return Shape((6, 1, 1), (256, 1, 1), (data, np.zeros(6 * 256 * per_item, kind), _i(stride)))

    return shape


def _part_of_warp(width: int) -> Shape:
    n = 4096
    return Shape((16, 1, 1), (256, 1, 1), (doubles(1, n), _empty(n, np.float64), _i(width)))


def _sparse(rows: int) -> Shape:
    lengths = below(4, rows, 12)
    starts = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int32)
    total = int(starts[-1])
    columns = below(5, total, rows)
    return _line(rows, 128, starts, columns, floats(6, total), floats(7, rows), _empty(rows), _i(rows))


def _first_above(n: int) -> Shape:
    return _line(n, 128, words(8, 64), words(9, n), _empty(n, np.int32), _i(n), _i(64))


def _words_in_place(n: int) -> Shape:
    return Shape((n, 1, 1), (128, 1, 1), (words(10, 128 * n),))


def _words_out(n: int) -> Shape:
    return _line(n, 128, words(11, n), words(12, n), _i(n))


def _gcd(n: int) -> Shape:
    limit = np.uint32(100_000)
    return _line(n, 128, words(13, n) % limit, words(14, n) % limit, _empty(n, np.uint32), _i(n))


def _histogram(n: int) -> Shape:
    data = (words(15, n) >> np.uint32(24)).astype(np.uint8)
    return Shape((8, 1, 1), (256, 1, 1), (data, _empty(64, np.uint32), _i(n)))


def _mandelbrot(width: int) -> Shape:
    height = width * 2 // 3
    grid = (-(-width // 16), -(-height // 8), 1)
    return Shape(grid, (16, 8, 1), (_empty(width * height, np.int32), _i(width), _i(height), _i(100)))


def _life(width: int) -> Shape:
    height = width // 2 + 3
    cells = (words(16, width * height) & np.uint32(1)).astype(np.uint8)
    grid = (-(-width // 16), -(-height // 8), 1)
    return Shape(grid, (16, 8, 1), (cells, np.zeros_like(cells), _i(width), _i(height)))


def _sort(threads: int) -> Callable[[int], Shape]:
    """The size is the number of blocks, which sort 256 keys each."""
    return lambda n: Shape((n, 1, 1), (threads, 1, 1), (words(17, 256 * n).view(np.int32),), 1024)


MANY = (1_000, 10_007, 60_000)
SQUARES = (64, 128, 256)

CASES: tuple[CounterCase, ...] = (
    CounterCase(
        "vector_add",
        "vector_add.cu",
        MANY,
        lambda n: _line(n, 256, floats(1, n), floats(2, n), _empty(n), _i(n)),
    ),
    CounterCase(
        "saxpy", "saxpy.cu", MANY, lambda n: _line(n, 192, np.float32(2.5), floats(1, n), floats(2, n), _i(n))
    ),
    CounterCase("strided_words", "global_wide.cu", (2, 7, 33), _strided(np.float32, 1)),
    CounterCase("strided_doubles", "global_wide.cu", (2, 3, 16), _strided(np.float64, 1)),
    CounterCase("strided_quads", "global_wide.cu", (2, 3, 9), _strided(np.float32, 4)),
    CounterCase("shifted_words", "global_wide.cu", MANY, _shifted(np.float32, 1)),
    CounterCase("shifted_doubles", "global_wide.cu", MANY, _shifted(np.float64, 1)),
    CounterCase("shifted_quads", "global_wide.cu", MANY, _shifted(np.float32, 4)),
    CounterCase("gather", "copy.cu", MANY, _gather(np.float32, 1)),
    CounterCase("gather_doubles", "global_wide.cu", MANY, _gather(np.float64, 1)),
    CounterCase("gather_quads", "global_wide.cu", MANY, _gather(np.float32, 4)),
    CounterCase("scatter_doubles", "global_wide.cu", MANY, _scatter),
    CounterCase("part_of_warp", "global_wide.cu", (3, 16, 29), _part_of_warp),
    CounterCase(
        "triples", "global_wide.cu", MANY, lambda n: _line(n, 128, floats(1, 3 * n), _empty(n), _i(n))
    ),
    CounterCase(
        "count_keys",
        "global_wide.cu",
        MANY,
        lambda n: _line(n, 128, below(1, n, 300), _empty(300, np.uint32), _i(n)),
    ),
    CounterCase(
        "take_tickets",
        "global_wide.cu",
        MANY,
        lambda n: _line(n, 128, below(1, n, 300), _empty(300, np.uint32), _empty(n, np.uint32), _i(n)),
    ),
    CounterCase(
        "sum_keys_64",
        "global_wide.cu",
        MANY,
        lambda n: _line(n, 128, below(1, n, 300), _empty(300, np.uint64), _i(n)),
    ),
    CounterCase("histogram", "histogram.cu", MANY, _histogram),
    CounterCase("matmul_naive", "matmul.cu", (40, 64, 100), _matmul),
    CounterCase("matmul_tiled", "matmul.cu", SQUARES, _matmul),
    CounterCase("matmul_quads", "shared_wide.cu", SQUARES, _matmul_quads),
    CounterCase("transpose_naive", "transpose.cu", SQUARES, _transpose),
    CounterCase("transpose_conflicts", "transpose.cu", SQUARES, _transpose),
    CounterCase("transpose_padded", "transpose.cu", SQUARES, _transpose),
    CounterCase("pairs_transposed", "shared_wide.cu", SQUARES, _transpose_wide(16, 2)),
    CounterCase("pairs_transposed_padded", "shared_wide.cu", SQUARES, _transpose_wide(16, 2)),
    CounterCase("quads_transposed", "shared_wide.cu", SQUARES, _transpose_wide(8, 4)),
    CounterCase("bank_stride", "banks.cu", (1, 6, 32), _shared_strided(np.int32, 1024, 1)),
    CounterCase("doubles_strided", "shared_wide.cu", (1, 2, 16), _shared_strided(np.float64, 1024, 1)),
    CounterCase("quads_strided", "shared_wide.cu", (1, 3, 8), _shared_strided(np.float32, 512, 4)),
    CounterCase("half_warps", "shared_wide.cu", (1, 3, 8), _shared_strided(np.float64, 512, 1)),
    CounterCase(
        "bytes_reversed",
        "shared_wide.cu",
        MANY,
        lambda n: _line(n, 256, words(1, n).astype(np.uint8), _empty(n, np.uint8), _i(n)),
    ),
    CounterCase("block_sum", "reduce.cu", MANY, lambda n: _block_sums(n, 1024)),
    CounterCase("warp_sum", "reduce.cu", MANY, lambda n: _block_sums(n, 0)),
    CounterCase(
        "inclusive_scan",
        "scan.cu",
        MANY,
        lambda n: _line(n, 256, below(1, n, 99), _empty(n, np.int32), _i(n), shared_bytes=2048),
    ),
    CounterCase(
        "stencil",
        "stencil.cu",
        MANY,
        lambda n: _line(n, 128, floats(1, n), _empty(n), _i(n), shared_bytes=(128 + 6) * 4),
    ),
    CounterCase("bitonic_sort", "sort.cu", (2, 5, 20), _sort(256)),
    CounterCase("odd_even_sort", "sort.cu", (2, 5, 20), _sort(128)),
    CounterCase("two_ways", "divergence.cu", MANY, _words_out),
    CounterCase("two_ways_by_warp", "divergence.cu", MANY, _words_out),
    CounterCase("four_ways", "divergence.cu", (4, 16, 60), _words_in_place),
    CounterCase("stairs", "divergence.cu", (4, 16, 60), _words_in_place),
    CounterCase("gcd", "divergence.cu", MANY, _gcd),
    CounterCase("collatz", "divergence.cu", MANY, lambda n: _line(n, 128, _empty(n, np.uint32), _i(n))),
    CounterCase("nested", "branches.cu", MANY, _words_out),
    CounterCase("agreed", "branches.cu", MANY, _words_out),
    CounterCase("sparse_rows", "branches.cu", MANY, _sparse),
    CounterCase("first_above", "branches.cu", MANY, _first_above),
    CounterCase("life", "life.cu", (48, 100, 200), _life),
    CounterCase("mandelbrot", "mandelbrot.cu", (48, 96, 192), _mandelbrot),
)


def case(kernel: str) -> CounterCase:
    """Return a case by its kernel's name."""
    return next(c for c in CASES if c.kernel == kernel)
