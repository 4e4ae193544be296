"""Random data, array sizes and block shapes with which a kernel is tested, all drawn from one seed."""

from __future__ import annotations

import zlib
from collections.abc import Sequence
from math import prod
from typing import Any

import numpy as np
import numpy.typing as npt

from virtualgpu.records import Dim3

Array = npt.NDArray[Any]
Shape = int | tuple[int, ...]

# What floats and whole numbers are drawn as. Zeros, infinities and NaN come apart from each other, so that
# none of them hides what another would show.
RANDOM_VALUES = ""
DUPLICATE_VALUES = "few values"
ZERO_VALUES = "0 and -0"
INFINITE_VALUES = "infinities"
NAN_VALUES = "NaN"
EXTREME_VALUES = "extreme values"
DATA_KINDS = (RANDOM_VALUES, DUPLICATE_VALUES, EXTREME_VALUES, ZERO_VALUES, INFINITE_VALUES, NAN_VALUES)
# Three of the largest still have a sum: whether a product is rounded before it is added must not decide
# between a number and infinity. CuPy has kernels compiled to take subnormal numbers for 0 (-ftz=true), so
# that they, and what makes them, come only where nothing is computed.
_EXTREME_VALUES = (3e-15, -3e-15, 16777215.0, -3e9, 1e37, -1e37)
_SUBNORMAL_VALUES = (1e-45, -1e-45, 3e-42, -7e-39, 1.2e-38)
_SPECIAL_VALUES = {
    EXTREME_VALUES: _EXTREME_VALUES,
    ZERO_VALUES: (0.0, -0.0),
    INFINITE_VALUES: (np.inf, -np.inf),
    NAN_VALUES: (np.nan,),
}
_SPECIAL_SHARE = 0.2
# So many blocks at most in a launch of few elements: blocks of a single thread take a warp each.
_MAX_BLOCKS = 600
# Sizes up to this are tried with every block.
_MAX_TINY_ELEMENTS = 33


def make_text_seed(text: str) -> int:
    """Return a seed that depends only on the text of an answer. An edited text gets another seed."""
    return zlib.crc32(text.encode())


class DataGenerator:
    """A generator of random input arrays, which contain special values such as zeros or NaN if `kind` names
    them.

    The attribute ``rng`` is a NumPy generator for random data that the methods do not provide.
    ``has_special_values`` is true after a call of `floats`: only floats can be zeros with a sign, infinities
    and NaN.
    """

    def __init__(self, seed: int | Sequence[int], kind: str = RANDOM_VALUES) -> None:
        self.rng = np.random.default_rng(seed)
        self.kind = kind
        self.has_special_values = False

    def floats(self, shape: Shape, dtype: Any = np.float32, is_only_copied: bool = False) -> Array:
        """Return normally distributed floats, some of which are replaced by special values.

        With ``is_only_copied=True``, for kernels that only copy data, the special values include subnormal
        numbers.
        """
        self.has_special_values = True
        values = self.rng.standard_normal(shape)
        if self.kind == DUPLICATE_VALUES:
            values = np.rint(values)
        if self.kind in _SPECIAL_VALUES:
            is_special = self.rng.random(shape) < _SPECIAL_SHARE
            special_values = _SPECIAL_VALUES[self.kind] + (
                _SUBNORMAL_VALUES if is_only_copied and self.kind == EXTREME_VALUES else ()
            )
            values[is_special] = self.rng.choice(special_values, int(is_special.sum()))
        return values.astype(dtype)

    def integer_floats(self, shape: Shape, low: int = -8, high: int = 9, dtype: Any = np.float32) -> Array:
        """Return random integers in ``[low, high)`` as floats. The sum of a million of them is exact."""
        return self.integers(shape, low, high).astype(dtype)

    def integers(self, shape: Shape, low: int = -1000, high: int = 1000, dtype: Any = np.int32) -> Array:
        """Return random integers in ``[low, high)``."""
        if self.kind == DUPLICATE_VALUES:
            candidates = self.rng.integers(low, high, 3)
            return self.rng.choice(candidates, shape).astype(dtype)
        values = np.asarray(self.rng.integers(low, high, shape))
        if self.kind == EXTREME_VALUES:
            is_extreme = self.rng.random(shape) < 0.5
            values[is_extreme] = self.rng.choice((low, high - 1), int(is_extreme.sum()))
        return values.astype(dtype)

    def any_integers(self, shape: Shape) -> Array:
        """Return random int32 values. Half of the values are from 0 to 8, and the others are from the whole
        range of an int.
        """
        min_value = np.iinfo(np.int32).min
        max_value = np.iinfo(np.int32).max
        values = self.integers(shape, min_value, max_value + 1, np.int64)
        is_reduced = self.rng.random(shape) < 0.5
        values[is_reduced] %= 9
        return values.astype(np.int32)


def draw_garbage(seed: int, shape: Shape, dtype: Any, output_number: int = 0) -> Array:
    """Return random initial contents for output `output_number`, which must not affect a kernel's results.

    Some seeds produce NaN. Seed 0, which is used to explain mistakes, does not, because a value that is added
    to NaN cannot be recognised.
    """
    rng = np.random.default_rng((seed, output_number))
    numpy_dtype = np.dtype(dtype)
    if numpy_dtype.kind == "f" and seed % 3 == 2:
        return np.full(shape, np.nan, numpy_dtype)
    if numpy_dtype.kind == "f":
        return (rng.standard_normal(shape) * 1000).astype(numpy_dtype)
    return rng.integers(1, 100, shape).astype(numpy_dtype)


def count_four_blocks(block: Dim3) -> int:
    """Return the total number of threads of four one-dimensional blocks."""
    return 4 * block[0]


def measure_six_tiles(block: Dim3) -> tuple[int, int]:
    """Return the number of rows and columns of a matrix that 2 × 3 blocks cover exactly."""
    return 2 * block[1], 3 * block[0]


def draw_lengths(rng: np.random.Generator, threads_at_once: int) -> list[Any]:
    """Return array lengths to test, such as 0, 1, full blocks, numbers near powers of two and large ones."""
    small_power, large_power = (1 << int(k) for k in (rng.integers(6, 9), rng.integers(9, 13)))
    near_powers = (small_power - 1, small_power, small_power + 1, large_power - 1, large_power + 1)
    random_lengths = (4 * int(rng.integers(20, 200)) + 2, 2 * int(rng.integers(500, 2400)) + 1)
    return [
        count_four_blocks,
        1,
        0,
        31,
        32,
        33,
        *near_powers,
        *random_lengths,
        100_000,
        3 * threads_at_once - int(rng.integers(1, 1000)),
    ]


def draw_nonzero_lengths(rng: np.random.Generator, threads_at_once: int) -> list[Any]:
    """Return the array lengths to test without 0, for operations that are undefined for an empty array."""
    return [size for size in draw_lengths(rng, threads_at_once) if size != 0]


def draw_matrix_sizes(rng: np.random.Generator, threads_at_once: int) -> list[Any]:
    """Return matrix sizes (rows, columns) to test, such as single rows and columns, and large ones."""
    a, b, c, d = (int(n) for n in rng.integers(2, 70, 4))
    small_sizes = [(1, 1), (1, 33), (33, 1), (32, 32), (31, 33), (a, 64), (64, b), (c, d)]
    narrow_sizes = [(1, int(rng.integers(1025, 1400))), (int(rng.integers(300, 900)), 2)]
    long_narrow_sizes = [
        (1, int(rng.integers(65_600, 68_000))),
        (int(rng.integers(65_600, 68_000)), 1),
    ]  # beyond 16 bits
    square_side = int((3 * threads_at_once) ** 0.5)
    return [
        measure_six_tiles,
        *small_sizes,
        *narrow_sizes,
        (257, 65),
        *long_narrow_sizes,
        (square_side - 5, square_side + 3),
    ]


def draw_line_blocks(rng: np.random.Generator) -> list[Dim3]:
    """Return one-dimensional block shapes to test, including partial warps, 1 thread and 1,024 threads."""
    partial_warp = int(rng.integers(2, 31))
    ragged_size = 32 * int(rng.integers(1, 6)) + 31
    random_sizes = (int(rng.integers(65, 240)), int(rng.integers(241, 640)))
    return [(threads, 1, 1) for threads in (*random_sizes, ragged_size, 33, partial_warp, 1, 1024)]


def draw_warp_blocks(rng: np.random.Generator, warp_multiple: int = 1) -> list[Dim3]:
    """Return one-dimensional block shapes to test, in which the number of warps is a multiple of
    `warp_multiple`.
    """
    warp_counts = (*(int(rng.integers(low, high)) for low, high in ((3, 6), (6, 12), (12, 25))), 1, 2, 32)
    return [
        (threads, 1, 1)
        for threads in dict.fromkeys(
            32 * max(warp_multiple, n // warp_multiple * warp_multiple) for n in warp_counts
        )
    ]


def draw_plane_blocks(rng: np.random.Generator) -> list[Dim3]:
    """Return two-dimensional block shapes to test, such as wide, tall and square ones."""
    wide_block = (int(rng.integers(20, 64)), int(rng.integers(2, 8)), 1)
    tall_block = (int(rng.integers(3, 9)), int(rng.integers(17, 40)), 1)
    square_side = int(rng.integers(6, 20))
    line_block = (int(rng.integers(33, 65)), 1, 1)
    return [wide_block, line_block, tall_block, (square_side, square_side, 1), (1, 1, 1), (32, 32, 1)]


def pair_sizes_with_blocks(
    sizes: Sequence[Any], blocks: Sequence[Dim3], max_small_elements: int = 5000
) -> list[tuple[Any, Dim3]]:
    """Return pairs of a size and a block shape for the tests.

    Small sizes are tested with many block shapes, and sizes above `max_small_elements` with only one.

    A size may be a function of the block, such as `count_four_blocks`.
    """
    size_block_pairs: list[tuple[Any, Dim3]] = []
    for size_index, size in enumerate(sizes):
        element_count = 0 if callable(size) else int(np.prod(size))
        if callable(size):
            size_block_pairs += [(size(block), block) for block in blocks]
        elif element_count > max_small_elements:
            size_block_pairs.append((size, blocks[(1 - size_index % 2) % len(blocks)]))
        else:
            suitable_blocks = [
                block for block in blocks if element_count <= _MAX_BLOCKS * prod(block)
            ] or list(blocks)
            first_block_index = size_index if element_count > _MAX_TINY_ELEMENTS else 0
            block_count = (
                len(suitable_blocks) if element_count <= _MAX_TINY_ELEMENTS else min(4, len(suitable_blocks))
            )
            chosen_blocks = [
                suitable_blocks[(first_block_index + k) % len(suitable_blocks)] for k in range(block_count)
            ]
            size_block_pairs += [(size, block) for block in chosen_blocks]
    return size_block_pairs


def draw_cost_launches(size: Any, blocks: Sequence[Dim3], rng: np.random.Generator) -> list[tuple[Any, Dim3]]:
    """Return two launches for counting costs, as pairs of a size and a block; one is smaller and one larger
    than `size`.

    Only blocks with at least 20 threads along x are used, because narrower blocks hide the difference between
    good and bad solutions.
    """
    wide_blocks = [block for block in dict.fromkeys(blocks) if block[0] >= 20 and prod(block) >= 48] or list(
        blocks
    )
    ragged_blocks = [block for block in wide_blocks if prod(block) % 32] or wide_blocks
    small_block = ragged_blocks[int(rng.integers(len(ragged_blocks)))]
    other_blocks = [block for block in wide_blocks if block != small_block] or wide_blocks
    large_block = other_blocks[int(rng.integers(len(other_blocks)))]
    return [
        (
            _scale_size(size, rng, 0.15, 0.4) if isinstance(size, int) else _scale_size(size, rng, 0.4, 0.8),
            small_block,
        ),
        (_scale_size(size, rng, 1.1, 1.5), large_block),
    ]


def _scale_size(size: Any, rng: np.random.Generator, min_factor: float, max_factor: float) -> Any:
    extents = [int(extent * rng.uniform(min_factor, max_factor)) | 1 for extent in np.atleast_1d(size)]
    return tuple(extents) if isinstance(size, tuple) else extents[0]


def count_blocks(element_count: int, threads: int) -> int:
    """Return the number of blocks that cover `element_count` elements, but at least 1."""
    return max(1, -(-element_count // threads))
