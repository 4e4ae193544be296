"""Random choices that are the same on every machine and with every version of every library."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeVar

import numpy as np
import numpy.typing as npt

T = TypeVar("T")
_MASK = (1 << 64) - 1
_GOLDEN = 0x9E3779B97F4A7C15
_MIX = (0xBF58476D1CE4E5B9, 0x94D049BB133111EB)


def _scramble(value: int) -> int:
    """The finaliser of SplitMix64 (G. L. Steele, D. Lea and C. H. Flood, 2014)."""
    value = ((value ^ value >> 30) * _MIX[0]) & _MASK
    value = ((value ^ value >> 27) * _MIX[1]) & _MASK
    return value ^ value >> 31


class Rng:
    """SplitMix64 over Python integers."""

    def __init__(self, *seeds: int) -> None:
        self.state = 0
        for seed in seeds:
            self.state = _scramble((self.state + seed + 1) * _GOLDEN & _MASK)

    def word(self) -> int:
        self.state = (self.state + _GOLDEN) & _MASK
        return _scramble(self.state)

    def below(self, limit: int) -> int:
        return self.word() % limit

    def between(self, low: int, high: int) -> int:
        return low + self.below(high - low + 1)

    def chance(self, percent: int) -> bool:
        return self.below(100) < percent

    def choice(self, items: Sequence[T]) -> T:
        return items[self.below(len(items))]

    def weighted(self, items: Sequence[tuple[int, T]]) -> T:
        position = self.below(sum(weight for weight, _ in items))
        for weight, item in items:
            position -= weight
            if position < 0:
                return item
        raise AssertionError


def words(seed: int, count: int) -> npt.NDArray[np.uint64]:
    """SplitMix64's scrambled counter as an array."""
    value = (np.arange(count, dtype=np.uint64) + np.uint64(seed << 20)) * np.uint64(_GOLDEN)
    value = (value ^ value >> np.uint64(30)) * np.uint64(_MIX[0])
    value = (value ^ value >> np.uint64(27)) * np.uint64(_MIX[1])
    return value ^ value >> np.uint64(31)


_SPECIAL_WORDS = """
00000000 80000000 3F800000 BF800000 7F800000 FF800000 7FC00000 00000001 807FFFFF 00800000 80800001
7F7FFFFF 4B000000 4B800001 4F000000 CF000000 4EFFFFFF 4F7FFFFF 5F000000 DF000001 3F000000 BF000000
3FC00000 40200000
"""
_SPECIAL = np.array([int(word, 16) for word in _SPECIAL_WORDS.split()], np.uint32)


def float_words(seed: int, count: int) -> npt.NDArray[np.uint32]:
    """Bits of float32: mostly of moderate size, some small integers, some special values."""
    raw = words(seed, count)
    low = raw.astype(np.uint32)
    high = (raw >> np.uint64(32)).astype(np.uint32)
    exponent = np.uint32(107) + high % np.uint32(41)
    moderate = (low & np.uint32(0x807FFFFF)) | exponent << np.uint32(23)
    small = (low % np.uint32(41)).astype(np.float32) - np.float32(20)
    kind = high >> np.uint32(28)
    out = np.where(kind < 2, _SPECIAL[low % np.uint32(len(_SPECIAL))], moderate)
    return np.where(kind == 2, small.view(np.uint32), out).astype(np.uint32)


_EDGES_WORDS = """
00000000 00000001 00000002 0000001F 00000020 0000007F 00000080 000000FF 00007FFF 00008000 0000FFFF
7FFFFFFF 80000000 FFFFFFFF FFFFFFFE AAAAAAAA
"""
_EDGES = np.array([int(word, 16) for word in _EDGES_WORDS.split()], np.uint32)


def integer_words(seed: int, count: int) -> npt.NDArray[np.uint32]:
    """Bits of 32-bit integers: half of any size, some small, some at the edges of types."""
    raw = words(seed, count)
    low = raw.astype(np.uint32)
    kind = (raw >> np.uint64(61)).astype(np.uint32)
    out = np.where(kind == 0, _EDGES[low % np.uint32(len(_EDGES))], low)
    out = np.where((kind == 1) | (kind == 2), low % np.uint32(100), out)
    return np.where(kind == 3, np.uint32(0) - low % np.uint32(100), out).astype(np.uint32)
