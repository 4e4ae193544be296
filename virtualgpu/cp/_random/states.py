"""States of cuRAND's generators, one a thread: the same seed, and thread t's numbers from subsequence t.

They lie in memory as cuRAND's device API has them, so that a kernel may go on where an array ended. The
generators are published: Philox4x32-10 (Salmon et al., 2011), XORWOW (Marsaglia, 2003), MRG32k3a
(L'Ecuyer, 1999); how cuRAND spreads a seed over them was read off its headers.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt

Words = npt.NDArray[np.uint32]

_EXTRA = [("has_float", "<i4"), ("has_double", "<i4"), ("float", "<f4")]


def _struct(size: int, offset: int, *fields: Any) -> np.dtype[Any]:
    """A state's layout: its own fields, then what is left of a pair of normal numbers."""
    kind = np.dtype([*fields, *_EXTRA])
    offsets = [kind.fields[name][1] for name in kind.names] if kind.fields and kind.names else []
    formats: Any = [*(kind[name] for name in kind.names or ()), np.dtype("<f8")]
    names = [*(kind.names or ()), "double"]
    return np.dtype({"names": names, "formats": formats, "offsets": [*offsets, offset], "itemsize": size})


PHILOX = _struct(64, 56, ("counter", "<u4", 4), ("output", "<u4", 4), ("key", "<u4", 2), ("next", "<u4"))
XORWOW = _struct(48, 40, ("d", "<u4"), ("v", "<u4", 5))
MRG32K3A = _struct(48, 40, ("s1", "<u4", 3), ("s2", "<u4", 3))

_MODULI = 4294967087, 4294944443


def philox(seed: int, threads: int) -> npt.NDArray[Any]:
    """The states of threads 0 to `threads` - 1; so the two below."""
    states = np.zeros(threads, PHILOX)
    states["counter"][:, 2] = np.arange(threads)
    states["key"] = seed & 0xFFFFFFFF, seed >> 32
    states["output"] = _ten_rounds(states["counter"], seed)
    return states


def xorwow(seed: int, threads: int) -> npt.NDArray[Any]:
    low = 1099087573 * ((seed & 0xFFFFFFFF) ^ 0xAAD26B49) & 0xFFFFFFFF
    high = 2591861531 * ((seed >> 32) ^ 0xF7DCEFDD) & 0xFFFFFFFF
    first = 123456789 + low, 362436069 ^ low, 521288629 + high, 88675123 ^ high, 5783321 + low
    states = np.zeros(threads, XORWOW)
    # A whole subsequence later the counter d is where it was: 2^67 steps are a multiple of its period.
    states["d"] = 6615241 + low + high & 0xFFFFFFFF
    start = np.array([word & 0xFFFFFFFF for word in first], np.uint32)
    states["v"] = _doubled(start, threads, _xorwow_on)
    return states


def mrg32k3a(seed: int, threads: int) -> npt.NDArray[Any]:
    low = (seed & 0xFFFFFFFF) ^ 0x55555555
    high = (seed >> 32) ^ 0xAAAAAAAA
    states = np.zeros(threads, MRG32K3A)
    for number, (field, salts) in enumerate((("s1", (low, high, low)), ("s2", (high, low, high)))):
        modulus = _MODULI[number]
        words = [12345 * salt % modulus if seed else 12345 for salt in salts]
        states[field] = _doubled(
            np.array(words, np.uint32),
            threads,
            partial(_subsequences_on, number),
        )
    return states


def _ten_rounds(counter: Words, seed: int) -> Words:
    x, y, z, w = (counter[:, i].astype(np.uint64) for i in range(4))
    keys = seed & 0xFFFFFFFF, seed >> 32
    for step in range(10):
        k0, k1 = ((key + step * bump) & 0xFFFFFFFF for key, bump in zip(keys, _BUMPS, strict=True))
        one = x * np.uint64(0xD2511F53)
        two = z * np.uint64(0xCD9E8D57)
        x = (two >> _32) ^ y ^ np.uint64(k0)
        y = two & _LOW
        z = (one >> _32) ^ w ^ np.uint64(k1)
        w = one & _LOW
    return np.stack([x, y, z, w], axis=1).astype(np.uint32)


_BUMPS = 0x9E3779B9, 0xBB67AE85
_32 = np.uint64(32)
_LOW = np.uint64(0xFFFFFFFF)


def _doubled(first: Words, threads: int, step: Callable[[int, Words], Words]) -> Words:
    """Vectors of all threads: thread t + 2^level is 2^level subsequences behind thread t."""
    vectors = first[None]
    level = 0
    while len(vectors) < threads:
        vectors = np.concatenate([vectors, step(level, vectors[: threads - len(vectors)])])
        level += 1
    return vectors[:threads]


@functools.lru_cache(maxsize=128)
def _matrix(power: int) -> Words:
    """2^power steps of XORWOW: what each of the 160 bits alone becomes."""
    if power:
        half = _matrix(power - 1)
        return _times(_tables(half), half)
    v = np.packbits(np.eye(160, dtype=np.uint8), axis=1, bitorder="little").view("<u4")
    t = v[:, 0] ^ v[:, 0] >> np.uint32(2)
    last = v[:, 4] ^ v[:, 4] << np.uint32(4) ^ t ^ t << np.uint32(1)
    return np.column_stack([v[:, 1:], last])


def _tables(matrix: Words) -> Words:
    """What each of the 256 values of each of the 20 bytes becomes."""
    tables = np.zeros((20, 256, 5), np.uint32)
    for bit in range(8):
        tables[:, 1 << bit : 2 << bit] = tables[:, : 1 << bit] ^ matrix[bit::8, None]
    return tables


def _times(tables: Words, vectors: Words) -> Words:
    parts = np.ascontiguousarray(vectors).view(np.uint8)
    result: Words = tables[0][parts[:, 0]]
    for place in range(1, 20):
        result ^= tables[place][parts[:, place]]
    return result


def _xorwow_on(level: int, vectors: Words) -> Words:
    """2^level subsequences of XORWOW, of 2^67 steps each."""
    return _times(_tables(_matrix(67 + level)), vectors)


@functools.lru_cache(maxsize=128)
def _subsequences(number: int, level: int) -> tuple[tuple[int, ...], ...]:
    """2^level subsequences, of 2^76 steps each, of one half of MRG32k3a."""
    modulus = _MODULI[number]
    last = ((-810728, 1403580, 0), (-1370589, 0, 527612))[number]
    matrix: Any = np.array([[0, 1, 0], [0, 0, 1], last], object)
    for _ in range(76 + level):
        matrix = matrix @ matrix % modulus
    return tuple(tuple(int(x) for x in row) for row in matrix)


def _subsequences_on(number: int, level: int, vectors: Words) -> Words:
    wide = vectors.astype(np.uint64)
    m = np.uint64(_MODULI[number])
    rows: list[Any] = [
        sum(wide[:, i] * np.uint64(row[i]) % m for i in range(3)) % m for row in _subsequences(number, level)
    ]
    return np.stack(rows, axis=1).astype(np.uint32)
