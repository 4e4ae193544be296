"""Kernels that use caches each in its own way, in three sizes: for recordings, and for tests of the model.

Arrays are zeros of a given size, since no address comes from memory.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from tools.corpus import read_kernel_code
from virtualgpu.records import Dim3

FILE = "caching.cu"
MIB = 1 << 20


@dataclass(frozen=True, slots=True)
class Launch:
    """One launch. An argument is the size of an array in bytes, or a NumPy scalar that is passed by value."""

    grid: Dim3
    block: Dim3
    values: tuple[int | np.generic, ...]

    def arguments(self, cp: Any) -> tuple[Any, ...]:
        """Return the launch's arguments for the array module `cp`, with arrays on its device."""
        return tuple(
            value if isinstance(value, np.generic) else cp.zeros(value, np.uint8) for value in self.values
        )


@dataclass(frozen=True, slots=True)
class CacheCase:
    """A kernel, and how it is launched at a size. The model was not fitted to cases that are ``held_out``."""

    kernel: str
    sizes: tuple[int, int, int]
    launch: Callable[[int], Launch]
    held_out: bool = False


def read_code() -> str:
    """CUDA C++ of all the kernels."""
    return read_kernel_code(FILE)


def _launch_1d(threads: int, block: int, *values: int | np.generic) -> Launch:
    return Launch((-(-threads // block), 1, 1), (block, 1, 1), values)


def _make_int32(value: int) -> np.int32:
    return np.int32(value)


def _make_uint32(value: int) -> np.uint32:
    return np.uint32(value)


def _launch_square(n: int, block: tuple[int, int], arrays: int, rows_each: int = 1) -> Launch:
    grid = (n // block[0], n // (block[1] * rows_each), 1)
    return Launch(grid, (*block, 1), (*(4 * n * n,) * arrays, _make_int32(n)))


WORD_COUNTS = (1 << 14, 1 << 18, 3 << 20)
QUAD_COUNTS = (1 << 14, 1 << 19, 1 << 22)
SQUARE_SIDES = (256, 512, 1024)

CASES: tuple[CacheCase, ...] = (
    CacheCase("copy_words", WORD_COUNTS, lambda n: _launch_1d(n, 256, 4 * n, 4 * n, _make_int32(n))),
    CacheCase("copy_quads", QUAD_COUNTS, lambda n: _launch_1d(n, 256, 16 * n, 16 * n, _make_int32(n))),
    CacheCase(
        "add_words",
        WORD_COUNTS,
        lambda n: _launch_1d(n, 256, 4 * n, 4 * n, 4 * n, _make_int32(n)),
        held_out=True,
    ),
    # MiB: parts and multiples of L2
    CacheCase(
        "read_all",
        (16, 48, 160),
        lambda m: _launch_1d(132 * 1024, 512, m * MIB, 4096, _make_int32(m * MIB // 16)),
    ),
    CacheCase(
        "read_twice",
        (12, 32, 96),
        lambda m: _launch_1d(132 * 1024, 512, m * MIB, 4096, _make_int32(m * MIB // 16)),
    ),
    # KiB of each block
    CacheCase(
        "reread",
        (16, 160, 384),
        lambda k: _launch_1d(132 * 256, 256, k * 1024 * 132, 4096, _make_int32(k * 1024 // 16)),
    ),
    CacheCase(
        "broadcast",
        (16, 256, 2048),
        lambda k: _launch_1d(132 * 128, 128, 4 * k, 4 * 132 * 128, _make_int32(k)),
    ),
    CacheCase("product_naive", (128, 192, 256), lambda n: _launch_square(n, (16, 16), 3)),
    CacheCase("product_tiled", (128, 256, 512), lambda n: _launch_square(n, (16, 16), 3), held_out=True),
    CacheCase("turn_naive", SQUARE_SIDES, lambda n: _launch_square(n, (32, 8), 2, 4)),
    CacheCase("turn_tiled", SQUARE_SIDES, lambda n: _launch_square(n, (32, 8), 2, 4), held_out=True),
    CacheCase("five_points", SQUARE_SIDES, lambda n: _launch_square(n, (32, 8), 2)),
    CacheCase("cross_points", SQUARE_SIDES, lambda n: _launch_square(n, (64, 4), 2), held_out=True),
    # MiB of the table
    CacheCase(
        "pick", (1, 32, 256), lambda m: _launch_1d(1 << 18, 256, m * MIB, 4 << 18, _make_uint32(m * MIB // 4))
    ),
    CacheCase(
        "pick_four",
        (4, 64, 128),
        lambda m: _launch_1d(1 << 16, 128, m * MIB, 4 << 16, _make_uint32(m * MIB // 16)),
        held_out=True,
    ),
    CacheCase("strided", (2, 8, 33), lambda s: _launch_1d(1 << 18, 256, s << 20, 4 << 18, _make_int32(s))),
    CacheCase(
        "strided_stores", (2, 8, 33), lambda s: _launch_1d(1 << 18, 256, 4 << 18, s << 20, _make_int32(s))
    ),
    CacheCase(
        "members", (4, 8, 32), lambda k: _launch_1d(1 << 17, 128, 4 * k << 17, 4 << 17, _make_int32(k))
    ),
    CacheCase(
        "rows_by_warp",
        (256, 1024, 2048),
        lambda n: _launch_1d(32 * n, 256, 4 * n * n, 4 * n, 4 * n, _make_int32(n)),
    ),
    CacheCase(
        "rows_by_thread",
        (128, 512, 1024),
        lambda n: _launch_1d(n * 4, 128, 16 * n * n, 4 * n, 16 * n, _make_int32(n)),
        held_out=True,
    ),
    CacheCase("tally", (256, 4096, 1 << 20), lambda k: _launch_1d(1 << 18, 256, 4 * k, _make_uint32(k))),
    CacheCase(
        "tally_read",
        (64, 4096, 1 << 22),
        lambda k: _launch_1d(1 << 18, 256, 4 << 18, 4 * k, _make_uint32(k)),
        held_out=True,
    ),
    # threads
    CacheCase("own_array", (1 << 12, 1 << 15, 1 << 17), lambda n: _launch_1d(n, 256, 4 * n, _make_int32(64))),
    CacheCase(
        "own_array_mixed",
        (1 << 12, 1 << 14, 1 << 16),
        lambda n: _launch_1d(n, 128, 4 * n, _make_int32(64)),
        held_out=True,
    ),
    # words
    CacheCase(
        "same_weight", (64, 1024, 16384), lambda k: _launch_1d(132 * 128, 128, 4 * 132 * 128, _make_int32(k))
    ),
    CacheCase(
        "several_weights",
        (2, 8, 32),
        lambda k: _launch_1d(132 * 128, 128, 4 * 132 * 128, _make_int32(k)),
        held_out=True,
    ),
    # bytes apart
    CacheCase("store_bytes", (1, 8, 64), lambda s: _launch_1d(1 << 18, 256, s << 18, _make_int32(s))),
    CacheCase(
        "block_sums",
        WORD_COUNTS,
        lambda n: _launch_1d(256 * min(n // 256, 1056), 256, 4 * n, 4 * 1056, _make_int32(n)),
        held_out=True,
    ),
    CacheCase("write_read", WORD_COUNTS, lambda n: _launch_1d(n, 256, 4 * n, 4 * n, _make_int32(64))),
    CacheCase(
        "seven_points",
        (64, 96, 160),
        lambda n: Launch((n // 32, n // 4, n // 2), (32, 4, 2), (4 * n**3, 4 * n**3, _make_int32(n))),
        held_out=True,
    ),
    CacheCase(
        "soft_rows",
        (512, 4096, 24576),
        lambda n: _launch_1d(256 * 264, 256, 4 * 264 * n, 4 * 264 * n, _make_int32(n)),
    ),
    CacheCase(
        "pick_rows",
        (1 << 10, 1 << 14, 1 << 18),
        lambda r: _launch_1d(1 << 20, 256, 256 * r, 8 << 20, _make_uint32(r)),
        held_out=True,
    ),
    CacheCase(
        "column_sums",
        (1024, 2048, 4096),
        lambda n: _launch_1d(n, 64, 4 * n * n, 4 * n, _make_int32(n)),
        held_out=True,
    ),
)


# Recorded when the model stood.
LATE_KERNELS = ("seven_points", "pick_rows", "column_sums")


def find_case(kernel: str) -> CacheCase:
    """Return the case of a kernel by name."""
    return next(c for c in CASES if c.kernel == kernel)
