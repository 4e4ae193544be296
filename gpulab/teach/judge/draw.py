"""Data, sizes and block shapes to try a kernel with, all of them drawn from one seed."""

from __future__ import annotations

import zlib
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from virtualgpu.records import Dim3

Array = npt.NDArray[Any]
Shape = int | tuple[int, ...]

# What floats and whole numbers are drawn as. Zeros, infinities and NaN come apart from each other, so that
# none of them hides what another would show.
RANDOM, DUPLICATES, ZEROS, INFINITE, NAN = "", "few values", "0 and -0", "infinities", "NaN"
KINDS = (RANDOM, DUPLICATES, ZEROS, INFINITE, NAN)
_SPECIAL = {ZEROS: (0.0, -0.0), INFINITE: (np.inf, -np.inf), NAN: (np.nan,)}
_SHARE = 0.2


def seed_of(text: str) -> int:
    """A seed from an answer's text: the same answer is judged the same way, and editing it redraws."""
    return zlib.crc32(text.encode())


class Draw:
    """Random data of one kind.

    ``rng`` is NumPy's generator, for what the methods do not offer; ``special`` tells whether floats were
    drawn at all, without which there are no zeros, infinities and NaN to try.
    """

    def __init__(self, seed: int, kind: str = RANDOM) -> None:
        self.rng = np.random.default_rng(seed)
        self.kind = kind
        self.special = False

    def floats(self, shape: Shape, dtype: Any = np.float32) -> Array:
        """Numbers around 0 with a spread of 1."""
        self.special = True
        values = self.rng.standard_normal(shape)
        if self.kind == DUPLICATES:
            values = np.rint(values)
        if self.kind in _SPECIAL:
            chosen = self.rng.random(shape) < _SHARE
            values[chosen] = self.rng.choice(_SPECIAL[self.kind], int(chosen.sum()))
        return values.astype(dtype)

    def whole(self, shape: Shape, low: int = -8, high: int = 9, dtype: Any = np.float32) -> Array:
        """Whole numbers in ``[low, high)`` as floats: sums of fewer than a million are exact in any order."""
        return self.integers(shape, low, high).astype(dtype)

    def integers(self, shape: Shape, low: int = -1000, high: int = 1000, dtype: Any = np.int32) -> Array:
        """Whole numbers in ``[low, high)``."""
        if self.kind == DUPLICATES:
            few = self.rng.integers(low, high, 3)
            return self.rng.choice(few, shape).astype(dtype)
        return self.rng.integers(low, high, shape).astype(dtype)


def garbage(seed: int, shape: Shape, dtype: Any) -> Array:
    """What an output holds before the kernel writes it: numbers that a kernel must not rely on."""
    rng = np.random.default_rng(seed)
    kind = np.dtype(dtype)
    if kind.kind == "f" and seed % 3 == 2:
        return np.full(shape, np.nan, kind)
    if kind.kind == "f":
        return (rng.standard_normal(shape) * 1000).astype(kind)
    return rng.integers(1, 100, shape).astype(kind)


def four_blocks(block: Dim3) -> int:
    """As many elements as four blocks have threads."""
    return 4 * block[0]


def six_tiles(block: Dim3) -> tuple[int, int]:
    """A matrix of two times three blocks."""
    return 2 * block[1], 3 * block[0]


def lengths(rng: np.random.Generator, at_once: int) -> list[Any]:
    """Numbers of elements: whole blocks, one, none, around a warp and powers of two, 100,000, three waves."""
    small, large = (1 << int(k) for k in (rng.integers(6, 9), rng.integers(9, 13)))
    around = (small - 1, small, small + 1, large - 1, large + 1)
    return [four_blocks, 1, 0, 31, 32, 33, *around, 100_000, 3 * at_once - int(rng.integers(1, 1000))]


def some_lengths(rng: np.random.Generator, at_once: int) -> list[Any]:
    """`lengths` without 0, for what is not defined without elements."""
    return [size for size in lengths(rng, at_once) if size != 0]


def matrices(rng: np.random.Generator, at_once: int) -> list[Any]:
    """(rows, columns): whole blocks, a single element, lines, ragged on either side, about three waves."""
    a, b, c, d = (int(n) for n in rng.integers(2, 70, 4))
    small = [(1, 1), (1, 33), (33, 1), (32, 32), (31, 33), (a, 64), (64, b), (c, d)]
    side = int((3 * at_once) ** 0.5)
    return [six_tiles, *small, (257, 65), (side - 5, side + 3)]


def lines(rng: np.random.Generator, multiple: int = 1) -> list[Dim3]:
    """Four one-dimensional blocks, from a few threads to many. Only by chance a multiple of 32."""
    limits = ((8, 64), (65, 160), (161, 320), (321, 640))
    return [(int(rng.integers(low, high)) // multiple * multiple or multiple, 1, 1) for low, high in limits]


def whole_warps(rng: np.random.Generator) -> list[Dim3]:
    """Four one-dimensional blocks of whole warps, the first of a single one."""
    return [
        (32 * int(warps), 1, 1)
        for warps in (1, rng.integers(2, 6), rng.integers(6, 12), rng.integers(12, 25))
    ]


def planes(rng: np.random.Generator) -> list[Dim3]:
    """Four two-dimensional blocks: wide, high, square and a line; none of them a fixed one."""
    wide = (int(rng.integers(20, 64)), int(rng.integers(2, 8)), 1)
    high = (int(rng.integers(3, 9)), int(rng.integers(17, 40)), 1)
    side = int(rng.integers(6, 20))
    return [wide, high, (side, side, 1), (int(rng.integers(33, 200)), 1, 1)]


def tried(sizes: Sequence[Any], blocks: Sequence[Dim3], many: int = 5000) -> list[tuple[Any, Dim3]]:
    """Which sizes to try with which blocks: small ones with each, larger ones with one each.

    A size may be a function of the block, such as `four_blocks`.
    """
    plan: list[tuple[Any, Dim3]] = []
    for number, size in enumerate(sizes):
        if callable(size):
            plan += [(size(block), block) for block in blocks]
        else:
            own = blocks if np.prod(size) <= many else [blocks[-1 - number % 2]]
            plan += [(size, block) for block in own]
    return plan


def blocks_for(count: int, threads: int) -> int:
    """Blocks that cover `count` elements, at least one."""
    return max(1, -(-count // threads))
