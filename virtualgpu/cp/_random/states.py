"""Initial states of cuRAND's generators: all threads share a seed, and thread t uses subsequence t.

They have the memory layout of cuRAND's device API, so that a kernel can continue after an array. The
generators are published: Philox4x32-10 (Salmon et al., 2011), XORWOW (Marsaglia, 2003), MRG32k3a (L'Ecuyer,
1999). The initialization from a seed follows cuRAND's headers.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt

UInt32Array = npt.NDArray[np.uint32]

_SPARE_NORMAL_FIELDS = [("has_float", "<i4"), ("has_double", "<i4"), ("float", "<f4")]


def _make_state_dtype(size: int, double_offset: int, *fields: Any) -> np.dtype[Any]:
    """Return the memory layout of a state: its own fields, then the second number of a normal pair."""
    dtype = np.dtype([*fields, *_SPARE_NORMAL_FIELDS])
    offsets = [dtype.fields[name][1] for name in dtype.names] if dtype.fields and dtype.names else []
    formats: Any = [*(dtype[name] for name in dtype.names or ()), np.dtype("<f8")]
    names = [*(dtype.names or ()), "double"]
    return np.dtype(
        {"names": names, "formats": formats, "offsets": [*offsets, double_offset], "itemsize": size}
    )


PHILOX_DTYPE = _make_state_dtype(
    64, 56, ("counter", "<u4", 4), ("output", "<u4", 4), ("key", "<u4", 2), ("next", "<u4")
)
XORWOW_DTYPE = _make_state_dtype(48, 40, ("d", "<u4"), ("v", "<u4", 5))
MRG32K3A_DTYPE = _make_state_dtype(48, 40, ("s1", "<u4", 3), ("s2", "<u4", 3))

_MRG_MODULI = 4294967087, 4294944443


def make_philox_states(seed: int, threads: int) -> npt.NDArray[Any]:
    """Return the initial states of the Philox generator for `threads` threads."""
    states = np.zeros(threads, PHILOX_DTYPE)
    states["counter"][:, 2] = np.arange(threads)
    states["key"] = seed & 0xFFFFFFFF, seed >> 32
    states["output"] = _compute_philox_outputs(states["counter"], seed)
    return states


def make_xorwow_states(seed: int, threads: int) -> npt.NDArray[Any]:
    low_word = 1099087573 * ((seed & 0xFFFFFFFF) ^ 0xAAD26B49) & 0xFFFFFFFF
    high_word = 2591861531 * ((seed >> 32) ^ 0xF7DCEFDD) & 0xFFFFFFFF
    state_words = (
        123456789 + low_word,
        362436069 ^ low_word,
        521288629 + high_word,
        88675123 ^ high_word,
        5783321 + low_word,
    )
    states = np.zeros(threads, XORWOW_DTYPE)
    # The counter d is equal in all subsequences, since their length, 2^67 steps, is a multiple of its period.
    states["d"] = 6615241 + low_word + high_word & 0xFFFFFFFF
    first_state = np.array([state_word & 0xFFFFFFFF for state_word in state_words], np.uint32)
    states["v"] = _double_states(first_state, threads, _advance_xorwow)
    return states


def make_mrg_states(seed: int, threads: int) -> npt.NDArray[Any]:
    low_seed = (seed & 0xFFFFFFFF) ^ 0x55555555
    high_seed = (seed >> 32) ^ 0xAAAAAAAA
    states = np.zeros(threads, MRG32K3A_DTYPE)
    for component, (state_field, component_seeds) in enumerate(
        (("s1", (low_seed, high_seed, low_seed)), ("s2", (high_seed, low_seed, high_seed)))
    ):
        modulus = _MRG_MODULI[component]
        state_words = [12345 * seed_half % modulus if seed else 12345 for seed_half in component_seeds]
        states[state_field] = _double_states(
            np.array(state_words, np.uint32),
            threads,
            partial(_advance_mrg, component),
        )
    return states


def _compute_philox_outputs(counter: UInt32Array, seed: int) -> UInt32Array:
    x, y, z, w = (counter[:, i].astype(np.uint64) for i in range(4))
    key_words = seed & 0xFFFFFFFF, seed >> 32
    for round_index in range(10):
        key0, key1 = (
            (key + round_index * increment) & 0xFFFFFFFF
            for key, increment in zip(key_words, _KEY_INCREMENTS, strict=True)
        )
        product_x = x * np.uint64(0xD2511F53)
        product_z = z * np.uint64(0xCD9E8D57)
        x = (product_z >> _SHIFT_32) ^ y ^ np.uint64(key0)
        y = product_z & _LOW_32_BITS
        z = (product_x >> _SHIFT_32) ^ w ^ np.uint64(key1)
        w = product_x & _LOW_32_BITS
    return np.stack([x, y, z, w], axis=1).astype(np.uint32)


_KEY_INCREMENTS = 0x9E3779B9, 0xBB67AE85
_SHIFT_32 = np.uint64(32)
_LOW_32_BITS = np.uint64(0xFFFFFFFF)


def _double_states(
    first_states: UInt32Array, threads: int, advance_states: Callable[[int, UInt32Array], UInt32Array]
) -> UInt32Array:
    """Return the states of all threads. Each iteration doubles the number of computed states.

    The state of thread t + 2^level is the state of thread t, advanced by 2^level subsequences.
    """
    state_vectors = first_states[None]
    doubling_count = 0
    while len(state_vectors) < threads:
        state_vectors = np.concatenate(
            [state_vectors, advance_states(doubling_count, state_vectors[: threads - len(state_vectors)])]
        )
        doubling_count += 1
    return state_vectors[:threads]


@functools.lru_cache(maxsize=128)
def _make_xorwow_matrix(power: int) -> UInt32Array:
    """Return the matrix of 2^power steps of XORWOW: one row for each of the 160 state bits."""
    if power:
        half_matrix = _make_xorwow_matrix(power - 1)
        return _multiply_by_tables(_make_lookup_tables(half_matrix), half_matrix)
    state_words = np.packbits(np.eye(160, dtype=np.uint8), axis=1, bitorder="little").view("<u4")
    shifted_word = state_words[:, 0] ^ state_words[:, 0] >> np.uint32(2)
    last_word = (
        state_words[:, 4] ^ state_words[:, 4] << np.uint32(4) ^ shifted_word ^ shifted_word << np.uint32(1)
    )
    return np.column_stack([state_words[:, 1:], last_word])


def _make_lookup_tables(matrix: UInt32Array) -> UInt32Array:
    """Return lookup tables for the product with a matrix: one entry for each value of each of 20 bytes."""
    tables = np.zeros((20, 256, 5), np.uint32)
    for bit_in_byte in range(8):
        tables[:, 1 << bit_in_byte : 2 << bit_in_byte] = (
            tables[:, : 1 << bit_in_byte] ^ matrix[bit_in_byte::8, None]
        )
    return tables


def _multiply_by_tables(lookup_tables: UInt32Array, vectors: UInt32Array) -> UInt32Array:
    state_bytes = np.ascontiguousarray(vectors).view(np.uint8)
    result: UInt32Array = lookup_tables[0][state_bytes[:, 0]]
    for byte_index in range(1, 20):
        result ^= lookup_tables[byte_index][state_bytes[:, byte_index]]
    return result


def _advance_xorwow(doubling_count: int, vectors: UInt32Array) -> UInt32Array:
    """Advance XORWOW's states by 2^doubling_count subsequences of 2^67 steps each."""
    return _multiply_by_tables(_make_lookup_tables(_make_xorwow_matrix(67 + doubling_count)), vectors)


@functools.lru_cache(maxsize=128)
def _make_mrg_matrix(component: int, power: int) -> tuple[tuple[int, ...], ...]:
    """Return the matrix that advances one half of MRG32k3a by 2^power subsequences of 2^76 steps each."""
    modulus = _MRG_MODULI[component]
    last_row = ((-810728, 1403580, 0), (-1370589, 0, 527612))[component]
    matrix: Any = np.array([[0, 1, 0], [0, 0, 1], last_row], object)
    for _ in range(76 + power):
        matrix = matrix @ matrix % modulus
    return tuple(tuple(int(x) for x in matrix_row) for matrix_row in matrix)


def _advance_mrg(component: int, doubling_count: int, vectors: UInt32Array) -> UInt32Array:
    wide_vectors = vectors.astype(np.uint64)
    modulus = np.uint64(_MRG_MODULI[component])
    new_rows: list[Any] = [
        sum(wide_vectors[:, i] * np.uint64(matrix_row[i]) % modulus for i in range(3)) % modulus
        for matrix_row in _make_mrg_matrix(component, doubling_count)
    ]
    return np.stack(new_rows, axis=1).astype(np.uint32)
