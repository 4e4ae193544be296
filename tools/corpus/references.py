"""Expected results by NumPy and Python: a function per kernel that returns output arrays for arguments.

References are written from the kernel's purpose rather than from its code, where that can be.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from tools.corpus.inputs import Array


def _split_into_blocks(values: Array, block: int, fill_value: Any = 0) -> Array:
    """Return ``values`` padded to whole blocks, with one row per block."""
    rows = -(-values.size // block)
    padded_values = np.full(rows * block, fill_value, dtype=values.dtype)
    padded_values[: values.size] = values
    return padded_values.reshape(rows, block)


def matmul(values: Sequence[Any]) -> tuple[Array, ...]:
    return (values[0].astype(np.float64) @ values[1].astype(np.float64),)


def transpose(values: Sequence[Any]) -> tuple[Array, ...]:
    return (np.ascontiguousarray(values[0].T),)


def block_sums(values: Sequence[Any]) -> tuple[Array, ...]:
    return (_split_into_blocks(values[0].astype(np.float64), 256).sum(axis=1),)


def shuffles(values: Sequence[Any]) -> tuple[Array, ...]:
    warps = values[0].reshape(-1, 32)
    lanes = np.arange(32)
    up_lanes = np.where(lanes < 3, lanes, lanes - 3)
    down_lanes = np.where(lanes % 8 == 7, lanes, lanes + 1)
    columns = [
        np.broadcast_to(warps[:, 5:6], warps.shape),
        warps[:, up_lanes],
        warps[:, down_lanes],
        warps[:, lanes ^ 16],
    ]
    return (np.stack(columns, axis=-1).reshape(-1),)


def vote(values: Sequence[Any]) -> tuple[Array, ...]:
    votes = values[0]
    is_odd = _split_into_blocks(votes % 2 == 1, 1024, False).reshape(-1, 32)
    ballots = (is_odd.astype(np.uint64) << np.arange(32, dtype=np.uint64)).sum(axis=1).astype(np.uint32)
    lower_votes = np.cumsum(is_odd, axis=1) - is_odd
    ranks = np.where(is_odd, lower_votes, 0xFFFFFFFF).astype(np.uint32).reshape(-1)[: votes.size]
    has_large_value = _split_into_blocks(votes > 4_000_000_000, 1024, False).reshape(-1, 32).any(axis=1)
    is_above = _split_into_blocks(votes > 1000, 1024, True).reshape(-1, 32).all(axis=1)
    return ballots, ranks, np.asarray(2 * has_large_value + is_above, np.uint32)


def _select_by_branch(v: Array, addend: Array, first_way: Array) -> Array:
    v = v.copy()
    with np.errstate(over="ignore"):
        for _ in range(20):
            v = np.where(first_way, v * np.uint32(1664525) + (v >> np.uint32(13)) + addend, v)
        for _ in range(10):
            v = np.where(first_way, v, (v ^ (v << np.uint32(7))) + np.uint32(1013904223) * addend)
    return v


def two_ways(values: Sequence[Any]) -> tuple[Array, ...]:
    return (_select_by_branch(values[0], values[1], np.arange(int(values[2])) % 2 == 1),)


def two_ways_by_warp(values: Sequence[Any]) -> tuple[Array, ...]:
    return (_select_by_branch(values[0], values[1], np.arange(int(values[2])) // 32 % 2 == 1),)


def four_ways(values: Sequence[Any]) -> tuple[Array, ...]:
    v = values[0].copy()
    with np.errstate(over="ignore"):
        for _ in range(5):
            v[0::4] = v[0::4] * np.uint32(69069) + np.uint32(1)
        for _ in range(7):
            v[1::4] ^= v[1::4] >> np.uint32(5) ^ v[1::4] << np.uint32(3)
        for _ in range(9):
            v[2::4] = v[2::4] // np.uint32(3) + np.uint32(0x9E3779B9)
        for _ in range(11):
            v[3::4] -= v[3::4] >> np.uint32(7)
    return (v,)


def stairs(values: Sequence[Any]) -> tuple[Array, ...]:
    results = []
    for i, v in enumerate(int(word) for word in values[0]):
        for k in range(i % 32 + 1):
            v = v * 33 + k & 0xFFFFFFFF
        results.append(v)
    return (np.array(results, np.uint32),)


def gcd(values: Sequence[Any]) -> tuple[Array, ...]:
    return (np.gcd(values[0], values[1]),)


def maze(values: Sequence[Any]) -> tuple[Array, ...]:
    words = [int(v) for v in values[0]]
    mask32 = 0xFFFFFFFF
    results = []
    for v in words:
        step_count = 0
        for k in range(40):
            if v % 7 == 3:
                break
            if v % 5 == 0:
                v = (v + 11) & mask32
                continue
            direction = v & 3
            if direction == 0:
                v = (v // 2 + words[k]) & mask32
            elif direction == 1:
                v = (3 * v + 1) & mask32
                if v > 1_000_000:
                    v -= 1_000_000
                    if v & 16:
                        step_count += 100
            else:
                if direction == 2:
                    v ^= v >> 3
                v = (v + k) & mask32
            step_count += 1
        results.append((v + (step_count << 24)) & mask32)
    return (np.array(results, np.uint32),)


def collatz(values: Sequence[Any]) -> tuple[Array, ...]:
    def steps(v: int) -> int:
        step_count = 0
        while v != 1:
            v = 3 * v + 1 if v % 2 else v // 2
            step_count += 1
        return step_count

    return (np.array([steps(i + 1) for i in range(int(values[1]))], np.uint32),)


def histogram(values: Sequence[Any]) -> tuple[Array, ...]:
    return (np.bincount(values[0] // 4, minlength=64).astype(np.uint32),)


def totals(values: Sequence[Any]) -> tuple[Array, ...]:
    v = values[0].astype(np.int64)
    statistics = np.array(
        [
            5 + v.sum(),
            v.min(),
            v.max(),
            np.bitwise_xor.reduce(v),
            np.bitwise_or.reduce(v & 0x00FF00FF),
            np.bitwise_and.reduce(v | 0xF),
            min(100, v.size),
        ]
    )
    return statistics.astype(np.int32), np.array([(v * v).sum()], np.uint64)


def scan(values: Sequence[Any]) -> tuple[Array, ...]:
    block_sums = np.cumsum(_split_into_blocks(values[0], 256), axis=1).astype(np.int32)
    return (block_sums.reshape(-1)[: values[0].size],)


def stencil(values: Sequence[Any]) -> tuple[Array, ...]:
    weights = np.array([0.03125, 0.109375, 0.21875, 0.28125, 0.21875, 0.109375, 0.03125])
    return (np.convolve(values[0].astype(np.float64), weights, mode="same"),)


def copy_strided(values: Sequence[Any]) -> tuple[Array, ...]:
    n = int(values[2])
    stride = int(values[3])
    return (values[0][np.arange(n) * stride % n],)


def gather(values: Sequence[Any]) -> tuple[Array, ...]:
    return (values[0][values[1]],)


def copy_double(values: Sequence[Any]) -> tuple[Array, ...]:
    result = np.zeros_like(values[0])
    result[:-3] = values[0][3:]
    return (result,)


def bank_stride(values: Sequence[Any]) -> tuple[Array, ...]:
    words = values[0]
    stride = int(values[2])
    thread = np.arange(256)
    sums = np.zeros(256, np.int32)
    for k in range(8):
        sums = 3 * sums + words[(thread * stride + 33 * k) % 1024]
    return (np.tile(sums, 4).astype(np.int32),)


def sort(values: Sequence[Any]) -> tuple[Array, ...]:
    return (np.sort(values[0].reshape(-1, 256), axis=1).reshape(-1),)


def _to_signed32(v: int) -> int:
    v &= 0xFFFFFFFF
    return v - (1 << 32) if v >> 31 else v


def _to_signed64(v: int) -> int:
    v &= (1 << 64) - 1
    return v - (1 << 64) if v >> 63 else v


def _divide_as_in_c(a: int, b: int) -> int:
    """Return the quotient of an integer division as in C, rounded towards zero."""
    return abs(a) // abs(b) * (1 if (a < 0) == (b < 0) else -1)


def mix32(values: Sequence[Any]) -> tuple[Array, ...]:
    words = [int(v) for v in values[0]]
    mask32 = 0xFFFFFFFF
    results = []
    for i, hash_value in enumerate(words):
        hash_value ^= hash_value >> 16
        hash_value = hash_value * 0x85EBCA6B & mask32
        hash_value ^= hash_value * 0xC2B2AE35 >> 32
        hash_value = hash_value + hash_value // (words[(i + 1) % len(words)] | 1) & mask32
        hash_value -= hash_value % 10007
        signed_value = _to_signed32(hash_value)
        quotient = _divide_as_in_c(signed_value, 1000)
        signed_value = _to_signed32(
            _divide_as_in_c(signed_value, -17) + (signed_value - 1000 * quotient) + (signed_value >> 5)
        )
        low_bits = signed_value & mask32
        hash_value = low_bits ^ ((hash_value << 9 | low_bits >> 23) & mask32)
        results.append(
            min(hash_value, ~hash_value & mask32) + max(_to_signed32(hash_value), signed_value) & mask32
        )
    return (np.array(results, np.uint32),)


def mix64(values: Sequence[Any]) -> tuple[Array, ...]:
    words = [int(v) for v in values[0]]
    mask64 = (1 << 64) - 1
    results = []
    for i, hash_value in enumerate(words):
        hash_value = (hash_value ^ hash_value >> 30) * 0xBF58476D1CE4E5B9 & mask64
        hash_value ^= hash_value * 0x94D049BB133111EB >> 64
        hash_value = hash_value + hash_value // (words[(i + 3) % len(words)] >> 20 | 1) & mask64
        hash_value -= hash_value % 1000003
        signed_value = _to_signed64(hash_value)
        signed_value = _divide_as_in_c(signed_value, -12345) + (signed_value >> 7)
        results.append((signed_value & mask64) ^ (hash_value << 13 & mask64))
    return (np.array(results, np.uint64),)


def bits(values: Sequence[Any]) -> tuple[Array, ...]:
    mask32 = 0xFFFFFFFF
    results = []
    for v in (int(x) for x in values[0]):
        lowest_set_bit = (v & -v).bit_length()
        result = v.bit_count() + 64 * (32 - v.bit_length()) + 4096 * lowest_set_bit & mask32
        result ^= int(f"{v:032b}"[::-1], 2)
        byte_pool = v.to_bytes(4, "little") + (~v & mask32).to_bytes(4, "little")
        result = result + int.from_bytes(bytes(byte_pool[s] for s in (2, 1, 7, 4)), "little") & mask32
        signed_bytes = [int(b) - 256 * (b >> 7) for b in v.to_bytes(4, "little")]
        result ^= sum(a * b for a, b in zip(signed_bytes, (4, 3, 2, 1), strict=True)) + result & mask32
        results.append(result + (v >> 3 & 0xFFFF) + signed_bytes[0] & mask32)
    return (np.array(results, np.uint32),)


def polynomial(values: Sequence[Any]) -> tuple[Array, ...]:
    factorials = [5040.0, 720.0, 120.0, 24.0, 6.0, 2.0, 1.0, 1.0]
    return (np.polyval([1.0 / f for f in factorials], values[0]),)


def ieee(values: Sequence[Any]) -> tuple[Array, ...]:
    x = values[0]
    v = np.where(np.abs(x) < np.finfo(np.float32).tiny, np.float32(0), x)  # CuPy compiles with -ftz=true
    neighbours = np.roll(v, -1)
    double_v = v.astype(np.float64)
    double_w = neighbours.astype(np.float64)
    with np.errstate(over="ignore", divide="ignore"):
        rounded_values = np.clip(np.rint(v * np.float32(100.0)).astype(np.int64), -(2**31), 2**31 - 1)
        whole_numbers = (
            rounded_values
            + np.floor(neighbours).astype(np.int64)
            - np.ceil(v).astype(np.int64)
            + v.astype(np.int64)
        )
        return (
            v / neighbours,
            np.sqrt(np.abs(v)),
            whole_numbers.astype(np.int32),
            double_v / double_w + np.sqrt(np.abs(double_w)),
        )


def fast_functions(values: Sequence[Any]) -> tuple[Array, ...]:
    v = values[0].astype(np.float64)
    magnitude = np.abs(v)
    return (
        np.stack(
            [np.sin(v), np.cos(v), np.exp(v), np.log(magnitude + 1.5), 1 / np.sqrt(magnitude + 0.5)], axis=1
        ),
    )


def library_functions(values: Sequence[Any]) -> tuple[Array, ...]:
    v = values[0].astype(np.float64)
    tenth = (values[0] * np.float32(0.1)).astype(np.float64)
    base = (np.abs(values[0]) + np.float32(0.1)).astype(np.float64)
    with np.errstate(over="ignore"):
        function_values = [np.exp(tenth), np.log(base), np.tanh(v), base ** float(np.float32(0.7))]
    return (np.stack([np.sin(v), np.cos(v), *function_values], axis=1),)


def softmax(values: Sequence[Any]) -> tuple[Array, ...]:
    x = values[0].astype(np.float64)
    exponentials = np.exp(x - x.max(axis=1, keepdims=True))
    return (exponentials / exponentials.sum(axis=1, keepdims=True),)


def life(values: Sequence[Any]) -> tuple[Array, ...]:
    cells = values[0].astype(np.int64)
    shifts = [(dy, dx) for dy in (-1, 0, 1) for dx in (-1, 0, 1) if dy or dx]
    neighbours = sum(np.roll(cells, shift, axis=(0, 1)) for shift in shifts)
    return (((neighbours == 3) | ((neighbours == 2) & (cells == 1))).astype(np.uint8),)


def median(values: Sequence[Any]) -> tuple[Array, ...]:
    padded_image = np.pad(values[0], 4, mode="edge")
    windows = np.lib.stride_tricks.sliding_window_view(padded_image, 9)
    return (np.sort(windows, axis=1)[:, 4].astype(np.int32),)


def tile_sum(values: Sequence[Any]) -> tuple[Array, ...]:
    return (values[0].reshape(-1, 8).sum(axis=1).astype(np.int32),)


def params(values: Sequence[Any]) -> tuple[Array, ...]:
    line = values[0]
    x = values[1]
    product = (line["slope"] * x).astype(np.float64) * float(line["scale"])
    return (product + line["intercept"] + line["offsets"][np.arange(x.size) % 3],)
