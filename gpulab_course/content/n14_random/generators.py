"""NumPy versions of Philox and of a fixed summation tree, the references for notebook 14."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

_MULTIPLIERS = np.uint64(0xD2511F53), np.uint64(0xCD9E8D57)
_KEY_INCREMENTS = 0x9E3779B9, 0xBB67AE85
_LOW_WORD = np.uint64(0xFFFFFFFF)
_WORD_BITS = np.uint64(32)


def philox_words(
    key: int,
    first: int,
    count: int,
    *,
    rounds: int = 10,
    key_increments: tuple[int, int] = _KEY_INCREMENTS,
    is_key_incremented_first: bool = False,
    counter_bits: int = 64,
) -> npt.NDArray[np.uint32]:
    """Return the Philox4x32 words of `count` consecutive counters from `first` on, with four words per row.

    Parameters
    ----------
    key
        The key, of 64 bits.
    first, count
        The first counter, of 64 bits, and the number of counters.
    rounds, key_increments, is_key_incremented_first, counter_bits
        Known mistakes: another number of rounds, other increments of the key, increments before a round
        instead of after it, a counter with fewer bits.
    """
    counters = np.uint64(first % 2**64) + np.arange(count, dtype=np.uint64)
    counters &= np.uint64(2**counter_bits - 1)
    x = counters & _LOW_WORD
    y = counters >> _WORD_BITS
    z = np.zeros_like(x)
    w = np.zeros_like(x)
    for round_index in range(rounds):
        round_number = round_index + is_key_incremented_first
        k0 = np.uint64((key + round_number * key_increments[0]) & 0xFFFFFFFF)
        k1 = np.uint64(((key >> 32) + round_number * key_increments[1]) & 0xFFFFFFFF)
        x_product = x * _MULTIPLIERS[0]
        z_product = z * _MULTIPLIERS[1]
        x = (z_product >> _WORD_BITS) ^ y ^ k0
        y = z_product & _LOW_WORD
        z = (x_product >> _WORD_BITS) ^ w ^ k1
        w = x_product & _LOW_WORD
    return np.stack([x, y, z, w], axis=1).astype(np.uint32)


def sum_tiles_as_trees(x: npt.NDArray[np.float32]) -> npt.NDArray[Any]:
    """Return the sum of each tile of 256 elements, added in pairs as a binary tree."""
    tile_count = -(-x.size // 256)
    padded_values = np.zeros(256 * tile_count, np.float32)
    padded_values[: x.size] = x
    partial_sums = padded_values.reshape(tile_count, 256)
    with np.errstate(invalid="ignore", over="ignore"):
        while partial_sums.shape[1] > 1:
            half_width = partial_sums.shape[1] // 2
            partial_sums = partial_sums[:, :half_width] + partial_sums[:, half_width:]
    return partial_sums[:, 0].copy()
