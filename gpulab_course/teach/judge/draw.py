"""Data, sizes and block shapes to try a kernel with, all of them drawn from one seed."""

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
RANDOM = ""
DUPLICATES = "few values"
ZEROS = "0 and -0"
INFINITE = "infinities"
NAN = "NaN"
EXTREME = "extreme values"
KINDS = (RANDOM, DUPLICATES, EXTREME, ZEROS, INFINITE, NAN)
# Three of the largest still have a sum: whether a product is rounded before it is added must not decide
# between a number and infinity. CuPy has kernels compiled to take subnormal numbers for 0 (-ftz=true), so
# that they, and what makes them, come only where nothing is computed.
_EXTREMES = (3e-15, -3e-15, 16777215.0, -3e9, 1e37, -1e37)
_SUBNORMAL = (1e-45, -1e-45, 3e-42, -7e-39, 1.2e-38)
_SPECIAL = {EXTREME: _EXTREMES, ZEROS: (0.0, -0.0), INFINITE: (np.inf, -np.inf), NAN: (np.nan,)}
_SHARE = 0.2
# So many blocks at most in a launch of few elements: blocks of a single thread take a warp each.
_MOST_BLOCKS = 600
# Sizes up to this are tried with every block.
_FEW = 33


def seed_of(text: str) -> int:
    """A seed from an answer's text: the same answer is judged the same way, and editing it redraws."""
    return zlib.crc32(text.encode())


class Draw:
    """Random data of one kind.

    ``rng`` is NumPy's generator, for what the methods do not offer; ``special`` tells whether floats were
    drawn at all, without which there are no zeros, infinities and NaN to try.
    """

    def __init__(self, seed: int | Sequence[int], kind: str = RANDOM) -> None:
        self.rng = np.random.default_rng(seed)
        self.kind = kind
        self.special = False

    def floats(self, shape: Shape, dtype: Any = np.float32, moved: bool = False) -> Array:
        """Numbers around 0 with a spread of 1. If they are only moved, the extreme ones may be subnormal."""
        self.special = True
        values = self.rng.standard_normal(shape)
        if self.kind == DUPLICATES:
            values = np.rint(values)
        if self.kind in _SPECIAL:
            chosen = self.rng.random(shape) < _SHARE
            among = _SPECIAL[self.kind] + (_SUBNORMAL if moved and self.kind == EXTREME else ())
            values[chosen] = self.rng.choice(among, int(chosen.sum()))
        return values.astype(dtype)

    def whole(self, shape: Shape, low: int = -8, high: int = 9, dtype: Any = np.float32) -> Array:
        """Whole numbers in ``[low, high)`` as floats: sums of fewer than a million are exact in any order."""
        return self.integers(shape, low, high).astype(dtype)

    def integers(self, shape: Shape, low: int = -1000, high: int = 1000, dtype: Any = np.int32) -> Array:
        """Whole numbers in ``[low, high)``."""
        if self.kind == DUPLICATES:
            few = self.rng.integers(low, high, 3)
            return self.rng.choice(few, shape).astype(dtype)
        values = np.asarray(self.rng.integers(low, high, shape))
        if self.kind == EXTREME:
            chosen = self.rng.random(shape) < 0.5
            values[chosen] = self.rng.choice((low, high - 1), int(chosen.sum()))
        return values.astype(dtype)

    def any_integers(self, shape: Shape) -> Array:
        """Numbers of the whole range of an int, and among them as many that are small."""
        low = np.iinfo(np.int32).min
        high = np.iinfo(np.int32).max
        values = self.integers(shape, low, high + 1, np.int64)
        small = self.rng.random(shape) < 0.5
        values[small] %= 9
        return values.astype(np.int32)


def garbage(seed: int, shape: Shape, dtype: Any, number: int = 0) -> Array:
    """Return the first contents of output `number`: numbers that a kernel must not rely on.

    NaN, to which nothing can be added, comes for some seeds, not for 0, with which mistakes are explained.
    """
    rng = np.random.default_rng((seed, number))
    kind = np.dtype(dtype)
    if kind.kind == "f" and seed % 3 == 2:
        return np.full(shape, np.nan, kind)
    if kind.kind == "f":
        return (rng.standard_normal(shape) * 1000).astype(kind)
    return rng.integers(1, 100, shape).astype(kind)


def four_blocks(block: Dim3) -> int:
    """Return as many elements as four blocks have threads."""
    return 4 * block[0]


def six_tiles(block: Dim3) -> tuple[int, int]:
    """A matrix of two times three blocks."""
    return 2 * block[1], 3 * block[0]


def lengths(rng: np.random.Generator, at_once: int) -> list[Any]:
    """Numbers of elements: whole blocks, one, none, around a warp and powers of two, odd and even ones in
    between, 100,000, three waves."""
    small, large = (1 << int(k) for k in (rng.integers(6, 9), rng.integers(9, 13)))
    around = (small - 1, small, small + 1, large - 1, large + 1)
    between = (4 * int(rng.integers(20, 200)) + 2, 2 * int(rng.integers(500, 2400)) + 1)
    return [
        four_blocks,
        1,
        0,
        31,
        32,
        33,
        *around,
        *between,
        100_000,
        3 * at_once - int(rng.integers(1, 1000)),
    ]


def some_lengths(rng: np.random.Generator, at_once: int) -> list[Any]:
    """Sizes of `lengths` without 0, for results that are not defined without elements."""
    return [size for size in lengths(rng, at_once) if size != 0]


def matrices(rng: np.random.Generator, at_once: int) -> list[Any]:
    """(rows, columns): whole blocks, one element, lines, ragged on either side, long, about three waves."""
    a, b, c, d = (int(n) for n in rng.integers(2, 70, 4))
    small = [(1, 1), (1, 33), (33, 1), (32, 32), (31, 33), (a, 64), (64, b), (c, d)]
    lines = [(1, int(rng.integers(1025, 1400))), (int(rng.integers(300, 900)), 2)]
    long = [(1, int(rng.integers(65_600, 68_000))), (int(rng.integers(65_600, 68_000)), 1)]  # beyond 16 bits
    side = int((3 * at_once) ** 0.5)
    return [six_tiles, *small, *lines, (257, 65), *long, (side - 5, side + 3)]


def lines(rng: np.random.Generator) -> list[Dim3]:
    """One-dimensional blocks: two drawn, a thread off whole warps, below a warp, one thread, the most."""
    few = int(rng.integers(2, 31))
    short = 32 * int(rng.integers(1, 6)) + 31
    drawn = (int(rng.integers(65, 240)), int(rng.integers(241, 640)))
    return [(threads, 1, 1) for threads in (*drawn, short, 33, few, 1, 1024)]


def whole_warps(rng: np.random.Generator, warps: int = 1) -> list[Dim3]:
    """One-dimensional blocks of multiples of so many warps: some drawn, the fewest, one more, the most."""
    counts = (*(int(rng.integers(low, high)) for low, high in ((3, 6), (6, 12), (12, 25))), 1, 2, 32)
    return [(threads, 1, 1) for threads in dict.fromkeys(32 * max(warps, n // warps * warps) for n in counts)]


def planes(rng: np.random.Generator) -> list[Dim3]:
    """Two-dimensional blocks: wide, a line of two warps, high and square ones, a single thread, the most."""
    wide = (int(rng.integers(20, 64)), int(rng.integers(2, 8)), 1)
    high = (int(rng.integers(3, 9)), int(rng.integers(17, 40)), 1)
    side = int(rng.integers(6, 20))
    line = (int(rng.integers(33, 65)), 1, 1)
    return [wide, line, high, (side, side, 1), (1, 1, 1), (32, 32, 1)]


def tried(sizes: Sequence[Any], blocks: Sequence[Dim3], many: int = 5000) -> list[tuple[Any, Dim3]]:
    """Which sizes to try with which blocks: the smallest with each, others with four, large ones with
    one of the first two.

    A size may be a function of the block, such as `four_blocks`.
    """
    plan: list[tuple[Any, Dim3]] = []
    for number, size in enumerate(sizes):
        count = 0 if callable(size) else int(np.prod(size))
        if callable(size):
            plan += [(size(block), block) for block in blocks]
        elif count > many:
            plan.append((size, blocks[(1 - number % 2) % len(blocks)]))
        else:
            fit = [block for block in blocks if count <= _MOST_BLOCKS * prod(block)] or list(blocks)
            first = number if count > _FEW else 0
            own = [
                fit[(first + k) % len(fit)] for k in range(len(fit) if count <= _FEW else min(4, len(fit)))
            ]
            plan += [(size, block) for block in own]
    return plan


def cost_launches(size: Any, blocks: Sequence[Dim3], rng: np.random.Generator) -> list[tuple[Any, Dim3]]:
    """Two launches in which to count costs, a smaller and a larger one than `size`, each with another block.

    Only blocks that fill a warp with neighbours along x: in others, good and bad solutions cost the same.
    """
    full = [block for block in dict.fromkeys(blocks) if block[0] >= 20 and prod(block) >= 48] or list(blocks)
    odd = [block for block in full if prod(block) % 32] or full
    first = odd[int(rng.integers(len(odd)))]
    others = [block for block in full if block != first] or full
    second = others[int(rng.integers(len(others)))]
    return [
        (_scaled(size, rng, 0.15, 0.4) if isinstance(size, int) else _scaled(size, rng, 0.4, 0.8), first),
        (_scaled(size, rng, 1.1, 1.5), second),
    ]


def _scaled(size: Any, rng: np.random.Generator, low: float, high: float) -> Any:
    sides = [int(side * rng.uniform(low, high)) | 1 for side in np.atleast_1d(size)]
    return tuple(sides) if isinstance(size, tuple) else sides[0]


def blocks_for(count: int, threads: int) -> int:
    """Blocks that cover `count` elements, at least one."""
    return max(1, -(-count // threads))
