"""Inputs of the corpus: a function per kernel that returns the arguments for a seed.

Inputs come from a small generator of our own (`_bits`), so that the same seed gives the same bits
whatever NumPy's version.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[Any]


@dataclass(frozen=True, slots=True)
class Arguments:
    """Kernel arguments in order.

    An array is passed as a pointer to its copy on the device, a NumPy scalar by value, and a
    ``numpy.void`` scalar is a struct passed by value. ``outputs`` are the positions of the arrays
    the kernel writes.
    """

    values: tuple[Array | np.generic, ...]
    outputs: tuple[int, ...]


def _draw_bits(seed: int, count: int) -> npt.NDArray[np.uint64]:
    """Return ``count`` pseudo-random 64-bit numbers from SplitMix64 (Steele, Lea, Flood, OOPSLA 2014)."""
    with np.errstate(over="ignore"):
        z = (np.arange(1, count + 1, dtype=np.uint64) + np.uint64(seed << 32)) * np.uint64(0x9E3779B97F4A7C15)
        z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        return z ^ (z >> np.uint64(31))


def _draw_uint32(seed: int, count: int) -> npt.NDArray[np.uint32]:
    return (_draw_bits(seed, count) >> np.uint64(32)).astype(np.uint32)


def _draw_int32(seed: int, count: int, low: int, high: int) -> npt.NDArray[np.int32]:
    """Return random integers from ``low`` to ``high - 1``."""
    offsets = (_draw_bits(seed, count) >> np.uint64(33)) % np.uint64(high - low)
    return (offsets.astype(np.int64) + low).astype(np.int32)


def _draw_float32(seed: int, count: int, low: float = -1.0, high: float = 1.0) -> npt.NDArray[np.float32]:
    return _draw_float64(seed, count, low, high).astype(np.float32)


def _draw_float64(seed: int, count: int, low: float = -1.0, high: float = 1.0) -> npt.NDArray[np.float64]:
    unit_values = (_draw_bits(seed, count) >> np.uint64(11)).astype(np.float64) / float(1 << 53)
    return low + (high - low) * unit_values


def _make_int32(value: int) -> np.int32:
    return np.int32(value)


def _ceil_div(n: int, block: int) -> int:
    return -(-n // block)


def vector_add(seed: int) -> Arguments:
    n = 10_000
    return Arguments(
        (_draw_float32(seed, n), _draw_float32(seed + 1, n), np.zeros(n, np.float32), _make_int32(n)),
        outputs=(2,),
    )


def saxpy(seed: int) -> Arguments:
    n = 5_000
    return Arguments(
        (np.float32(2.5), _draw_float32(seed, n), _draw_float32(seed + 1, n), _make_int32(n)),
        outputs=(2,),
    )


def matmul(seed: int, n: int = 64) -> Arguments:
    a = _draw_float32(seed, n * n).reshape(n, n)
    b = _draw_float32(seed + 1, n * n).reshape(n, n)
    return Arguments((a, b, np.zeros((n, n), np.float32), _make_int32(n)), outputs=(2,))


def transpose(seed: int, n: int = 128) -> Arguments:
    return Arguments(
        (_draw_float32(seed, n * n).reshape(n, n), np.zeros((n, n), np.float32), _make_int32(n)), outputs=(1,)
    )


def block_sums(seed: int, n: int = 5_000) -> Arguments:
    return Arguments(
        (_draw_float32(seed, n, 0.0, 1.0), np.zeros(_ceil_div(n, 256), np.float32), _make_int32(n)),
        outputs=(1,),
    )


def shuffles(seed: int) -> Arguments:
    return Arguments((_draw_int32(seed, 256, -1000, 1000), np.zeros(1024, np.int32)), outputs=(1,))


def vote(seed: int) -> Arguments:
    n = 1_000
    values = _draw_uint32(seed, n)
    values[64:96] |= np.uint32(1 << 20)  # one warp whose values are all above 1000
    warps = 4 * 256 // 32
    outputs = (np.zeros(warps, np.uint32), np.zeros(n, np.uint32), np.zeros(warps, np.uint32))
    return Arguments((values, *outputs, _make_int32(n)), outputs=(1, 2, 3))


def two_ways(seed: int) -> Arguments:
    n = 2_000
    return Arguments((_draw_uint32(seed, n), _draw_uint32(seed + 1, n), _make_int32(n)), outputs=(1,))


def words(seed: int) -> Arguments:
    return Arguments((_draw_uint32(seed, 512),), outputs=(0,))


def gcd(seed: int) -> Arguments:
    n = 700
    a = _draw_uint32(seed, n) % np.uint32(100_000)
    b = _draw_uint32(seed + 1, n) % np.uint32(100_000)
    return Arguments((a, b, np.zeros(n, np.uint32), _make_int32(n)), outputs=(2,))


def maze(seed: int) -> Arguments:
    n = 1_500
    return Arguments(
        (_draw_uint32(seed, n) % np.uint32(5000), np.zeros(n, np.uint32), _make_int32(n)), outputs=(1,)
    )


def collatz(seed: int) -> Arguments:
    n = 500
    return Arguments((np.zeros(n, np.uint32), _make_int32(n)), outputs=(0,))


def histogram(seed: int) -> Arguments:
    n = 20_000
    byte_values = (_draw_uint32(seed, n) >> np.uint32(24)).astype(np.uint8)
    return Arguments((byte_values, np.zeros(64, np.uint32), _make_int32(n)), outputs=(1,))


def totals(seed: int) -> Arguments:
    n = 3_000
    initial_totals = np.array([5, 2**31 - 1, -(2**31), 0, 0, -1, 0], np.int32)
    return Arguments(
        (_draw_int32(seed, n, -100_000, 100_000), initial_totals, np.zeros(1, np.uint64), _make_int32(n)),
        outputs=(1, 2),
    )


def scan(seed: int) -> Arguments:
    n = 3_000
    return Arguments((_draw_int32(seed, n, -50, 50), np.zeros(n, np.int32), _make_int32(n)), outputs=(1,))


def stencil(seed: int) -> Arguments:
    n = 5_000
    return Arguments((_draw_float32(seed, n), np.zeros(n, np.float32), _make_int32(n)), outputs=(1,))


def mandelbrot(seed: int) -> Arguments:
    width = 96
    height = 64
    max_iterations = 100
    return Arguments(
        (
            np.zeros((height, width), np.int32),
            _make_int32(width),
            _make_int32(height),
            _make_int32(max_iterations),
        ),
        outputs=(0,),
    )


def copy_strided(seed: int, stride: int) -> Arguments:
    n = 8_192
    return Arguments(
        (_draw_float32(seed, n), np.zeros(n, np.float32), _make_int32(n), _make_int32(stride)), outputs=(1,)
    )


def gather(seed: int) -> Arguments:
    n = 4_000
    return Arguments(
        (_draw_float32(seed, n), _draw_int32(seed + 1, n, 0, n), np.zeros(n, np.float32), _make_int32(n)),
        outputs=(2,),
    )


def copy_float4(seed: int) -> Arguments:
    n = 1_000
    return Arguments((_draw_float32(seed, 4 * n), np.zeros(4 * n, np.float32), _make_int32(n)), outputs=(1,))


def copy_double(seed: int) -> Arguments:
    n = 3_000
    return Arguments(
        (_draw_float64(seed, n), np.zeros(n, np.float64), _make_int32(n), _make_int32(3)), outputs=(1,)
    )


def bank_stride(seed: int, stride: int) -> Arguments:
    return Arguments(
        (_draw_int32(seed, 1024, -99, 100), np.zeros(1024, np.int32), _make_int32(stride)), outputs=(1,)
    )


def sort(seed: int) -> Arguments:
    return Arguments((_draw_int32(seed, 1024, -(10**6), 10**6),), outputs=(0,))


def mix32(seed: int) -> Arguments:
    n = 3_000
    return Arguments((_draw_uint32(seed, n), np.zeros(n, np.uint32), _make_int32(n)), outputs=(1,))


def mix64(seed: int) -> Arguments:
    n = 2_000
    return Arguments((_draw_bits(seed, n), np.zeros(n, np.uint64), _make_int32(n)), outputs=(1,))


def polynomial(seed: int) -> Arguments:
    n = 2_000
    return Arguments((_draw_float64(seed, n), np.zeros(n, np.float64), _make_int32(n)), outputs=(1,))


def ieee(seed: int) -> Arguments:
    n = 2_000
    x = _draw_float32(seed, n, -50.0, 50.0)
    x[:4] = (1e-41, 3e7, -2.5, 0.5)  # a subnormal, a conversion that saturates, and ties
    outputs = (np.zeros(n, np.float32), np.zeros(n, np.float32), np.zeros(n, np.int32), np.zeros(n))
    return Arguments((x, *outputs, _make_int32(n)), outputs=(1, 2, 3, 4))


def fast_functions(seed: int) -> Arguments:
    n = 1_000
    return Arguments(
        (_draw_float32(seed, n, -3.0, 3.0), np.zeros((n, 5), np.float32), _make_int32(n)), outputs=(1,)
    )


def library_functions(seed: int) -> Arguments:
    n = 1_000
    x = _draw_float32(seed, n, -20.0, 20.0)
    x[::100] *= np.float32(30.0)
    x[50] = 150_000.0  # an angle this large takes another path through sinf
    return Arguments((x, np.zeros((n, 6), np.float32), _make_int32(n)), outputs=(1,))


def softmax(seed: int) -> Arguments:
    rows = 16
    columns = 300
    return Arguments(
        (
            _draw_float32(seed, rows * columns, -4.0, 4.0).reshape(rows, columns),
            np.zeros((rows, columns), np.float32),
            _make_int32(columns),
        ),
        outputs=(1,),
    )


def life(seed: int) -> Arguments:
    width = 100
    height = 60
    cells = (_draw_uint32(seed, width * height) % np.uint32(3) == 0).astype(np.uint8).reshape(height, width)
    return Arguments(
        (cells, np.zeros((height, width), np.uint8), _make_int32(width), _make_int32(height)), outputs=(1,)
    )


def median(seed: int) -> Arguments:
    n = 1_000
    return Arguments((_draw_int32(seed, n, 0, 10_000), np.zeros(n, np.int32), _make_int32(n)), outputs=(1,))


def hello(seed: int) -> Arguments:
    return Arguments((), outputs=())


def make_hello_lines() -> tuple[str, ...]:
    return tuple(
        f"hello from block {b}, thread {t} ({'odd' if i % 2 else 'even'}), half of me is {i / 2:.2f}"
        for b in range(2)
        for t in range(4)
        for i in (4 * b + t,)
    )


def tile_sum(seed: int) -> Arguments:
    return Arguments((_draw_int32(seed, 512, -1000, 1000), np.zeros(64, np.int32)), outputs=(1,))


#: `struct Line` of params.cu, with the padding a C++ compiler puts in.
LINE = np.dtype(
    [("slope", np.float32), ("intercept", np.float64), ("scale", np.int16), ("offsets", np.int32, 3)],
    align=True,
)


def params(seed: int) -> Arguments:
    n = 500
    line = np.zeros(1, LINE)  # with zeros in the padding, too
    for name, value in (("slope", 1.5), ("intercept", -0.25), ("scale", 7), ("offsets", (10, 20, 30))):
        line[name] = value
    return Arguments((line[0], _draw_float32(seed, n), np.zeros(n), _make_int32(n)), outputs=(2,))
