"""Directed rounding against exact fractions: sums, products, quotients, roots and fused ones."""

from __future__ import annotations

import math
import struct
from collections.abc import Callable
from fractions import Fraction

import numpy as np
import numpy.typing as npt
import pytest

from tests.engine.ptx_runner import apply

MODES = ("rn", "rz", "rm", "rp")
# Bits of the significand, exponent of the smallest subnormal, exponent just beyond the largest number.
FORMATS = {"f16": (11, -24, 16), "f32": (24, -149, 128), "f64": (53, -1074, 1024)}
KINDS = ("f32", "f64")
DTYPES = {"f32": np.float32, "f64": np.float64}
Floats = npt.NDArray[np.floating]


def power(exponent: int) -> Fraction:
    return Fraction(2) ** exponent


def rounded(value: Fraction, mode: str, kind: str) -> float:
    """A number other than zero in a format, rounded once, by the definition."""
    digits, smallest, end = FORMATS[kind]
    sign, size = (-1.0, -value) if value < 0 else (1.0, value)
    exponent = size.numerator.bit_length() - size.denominator.bit_length()
    if size < power(exponent):
        exponent -= 1
    unit = max(exponent - digits + 1, smallest)
    whole, remainder = divmod(size / power(unit), 1)
    up = {
        "rn": remainder > Fraction(1, 2) or (remainder == Fraction(1, 2) and whole & 1),
        "rz": False,
        "rm": remainder and sign < 0,
        "rp": remainder and sign > 0,
    }[mode]
    result = (whole + bool(up)) * power(unit)
    if result >= power(end):
        inward = mode == "rz" or (mode == "rm" and sign > 0) or (mode == "rp" and sign < 0)
        return sign * (float(power(end) - power(end - digits)) if inward else math.inf)
    return math.copysign(float(result), sign)


def exact_sum(x: Fraction, y: Fraction, sign_x: float, sign_y: float, mode: str, kind: str) -> float:
    """The sum of two finite numbers, one of which may be a product; the signs matter for zeros."""
    total = x + y
    if total:
        return rounded(total, mode, kind)
    if not x and sign_x == sign_y:
        return math.copysign(0.0, sign_x)
    return -0.0 if mode == "rm" else 0.0


def sign(value: float) -> float:
    return math.copysign(1.0, value)


def of_size_one(value: float) -> float:
    """The sign of an ordinary number; others as they are."""
    return sign(value) if value and math.isfinite(value) else value


def fma(mode: str, kind: str, a: float, b: float, c: float) -> float:
    if not (math.isfinite(a) and math.isfinite(b)):
        return of_size_one(a) * of_size_one(b) + (c if not math.isfinite(c) else 0.0)
    if not math.isfinite(c):
        return c
    return exact_sum(Fraction(a) * Fraction(b), Fraction(c), sign(a) * sign(b), sign(c), mode, kind)


def add(mode: str, kind: str, a: float, b: float) -> float:
    if not (math.isfinite(a) and math.isfinite(b)):
        return a + b
    return exact_sum(Fraction(a), Fraction(b), sign(a), sign(b), mode, kind)


def sub(mode: str, kind: str, a: float, b: float) -> float:
    return add(mode, kind, a, -b)


def mul(mode: str, kind: str, a: float, b: float) -> float:
    if not (math.isfinite(a) and math.isfinite(b)) or not a or not b:
        return a * b
    return rounded(Fraction(a) * Fraction(b), mode, kind)


def div(mode: str, kind: str, a: float, b: float) -> float:
    if not (math.isfinite(a) and math.isfinite(b)) or not a or not b:
        with np.errstate(all="ignore"):
            return float(np.float64(a) / np.float64(b))
    return rounded(Fraction(a) / Fraction(b), mode, kind)


def rcp(mode: str, kind: str, a: float) -> float:
    return div(mode, kind, 1.0, a)


def sqrt(mode: str, kind: str, a: float) -> float:
    if not a or not 0 < a < math.inf:
        return a if not a or a == math.inf else math.nan
    digits, _, _ = FORMATS[kind]
    value = Fraction(a)
    shift = 2 * (digits + 40 + max(0, value.denominator.bit_length()))
    scaled = value * (1 << shift)
    root = math.isqrt(int(scaled))
    root_below = Fraction(root, 1 << (shift // 2))
    # A root that is no fraction lies a little above: far less than rounding sees, but not nothing.
    return rounded(root_below if root * root == scaled else root_below + Fraction(1, 1 << shift), mode, kind)


FUNCTIONS: dict[str, tuple[int, Callable[..., float]]] = {
    "add": (2, add),
    "sub": (2, sub),
    "mul": (2, mul),
    "div": (2, div),
    "rcp": (1, rcp),
    "sqrt": (1, sqrt),
    "fma": (3, fma),
}


def special(kind: str) -> list[float]:
    """Zeros, the ends of the subnormals and of the normal numbers, infinities, NaN."""
    digits, smallest, end = FORMATS[kind]
    tiny = float(power(smallest))
    normal = float(power(smallest + digits - 1))
    huge = float(power(end) - power(end - digits))
    above_one = 1 + float(power(1 - digits))
    sizes = [0.0, tiny, 3 * tiny, normal - tiny, normal, 1.0, above_one, 3.0, huge / 2, huge, math.inf]
    return [s * size for size in sizes for s in (1.0, -1.0)] + [math.nan]


def random_bits(kind: str, count: int, seed: int) -> Floats:
    """Numbers of every exponent, half of them with few digits so that results are often exact."""
    rng = np.random.default_rng(seed)
    raw = rng.integers(0, 1 << 63, count, np.uint64) * np.uint64(2) + rng.integers(0, 2, count, np.uint64)
    if kind == "f32":
        word = (raw >> np.uint64(32)).astype(np.uint32)
        word[::2] &= np.uint32(0xFFF00000)
        word[np.isnan(word.view(np.float32))] = 0x7FC00000  # no signalling ones: NumPy warns of them
        return word.view(np.float32)
    raw[::2] &= np.uint64(0xFFFFF00000000000)
    return raw.view(np.float64)


def cancelling(kind: str, count: int, seed: int) -> list[Floats]:
    """Operands of fused operations whose product all but cancels with what is added, or is far from it."""
    rng = np.random.default_rng(seed)
    dtype = DTYPES[kind]
    digits, smallest, _ = FORMATS[kind]
    half = (-smallest - digits) // 2
    a, b = (
        (
            rng.choice([-1, 1], count) * rng.uniform(1, 2, count) * 2.0 ** rng.integers(-half, half, count)
        ).astype(dtype)
        for _ in range(2)
    )
    with np.errstate(over="ignore", under="ignore"):
        c = -(a.astype(np.float64) * b.astype(np.float64)).astype(dtype)
        c = np.where(rng.random(count) < 0.5, np.nextafter(c, dtype(np.inf)), c)
        shifts = rng.integers(-2 * digits, 2 * digits, count)
        c = np.where(rng.random(count) < 0.3, np.ldexp(c, shifts), c).astype(dtype)
    return [a, b, c]


def operands(name: str, kind: str) -> list[Floats]:
    count, _ = FUNCTIONS[name]
    grid = [g.ravel() for g in np.meshgrid(*([np.array(special(kind), DTYPES[kind])] * count))]
    keep = slice(None) if count < 3 else slice(None, None, 5)
    parts = [[g[keep] for g in grid], [random_bits(kind, 1500, 10 * count + n) for n in range(count)]]
    if name == "fma":
        parts.append(cancelling(kind, 1500, 7))
    if name in ("add", "sub", "div"):
        randoms = random_bits(kind, 1000, 3)
        steps = np.random.default_rng(4).integers(-70, 70, 1000)
        with np.errstate(all="ignore"):
            parts.append([randoms, np.ldexp(-randoms, steps).astype(DTYPES[kind])])
    return [np.concatenate([part[n] for part in parts]) for n in range(count)]


def bits_of(values: Floats) -> list[bytes]:
    return [b"nan" if math.isnan(v) else struct.pack("<d", v) for v in values.astype(np.float64).tolist()]


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", FUNCTIONS)
def test_results_are_exact_values_rounded_once(name: str, kind: str, mode: str) -> None:
    count, function = FUNCTIONS[name]
    arrays = operands(name, kind)
    inputs = ", ".join(f"%in{n}" for n in range(count))
    results = apply(f"{name}.{mode}.{kind} %out, {inputs};", kind, (kind,) * count, arrays)
    expected_values = [
        function(mode, kind, *row) for row in zip(*(g.astype(float).tolist() for g in arrays), strict=True)
    ]
    different = [
        (*row, result, expected)
        for *row, result, expected in zip(
            *arrays, bits_of(results), bits_of(np.array(expected_values)), strict=True
        )
        if result != expected
    ]
    assert different == []


def bf16_of(value: Fraction) -> int:
    """Bits of the bf16 nearest to a number that is no zero, ties to even."""
    size = abs(value)
    exponent = size.numerator.bit_length() - size.denominator.bit_length()
    exponent -= size < power(exponent)
    unit = max(exponent - 7, -133)
    whole = round(size / power(unit))
    bits = min(whole + ((unit + 133) << 7), 0x7F80)
    return bits | 0x8000 * (value < 0)


@pytest.mark.parametrize("packed", [False, True])
def test_fused_bfloat16_rounds_once(packed: bool) -> None:
    """A sum in single precision would already have been rounded."""
    rng = np.random.default_rng(5)
    # Products half way between two results, and something tiny that says which one it is.
    halves = [(x, y) for x in range(128, 256) for y in range(128, 256) if f"{x * y:b}"[8:].strip("0") == "1"]
    a, b = (np.array([0x3F80 + pair[n] - 128 for pair in halves], np.uint16) for n in range(2))
    c = rng.integers(0, 1 << 16, len(halves)).astype(np.uint16) & 0xAFFF
    random_operands = [rng.integers(0, 0x7F80, 2000).astype(np.uint16) for _ in range(3)]
    a, b, c = (np.concatenate([v, w]) for v, w in zip((a, b, c), random_operands, strict=True))
    values = [[Fraction(float(x)) for x in (v.astype(np.uint32) << 16).view(np.float32)] for v in (a, b, c)]
    exact = [x * y + z for x, y, z in zip(*values, strict=True)]
    expected_bits = [bf16_of(value) if value else 0 for value in exact]
    if packed:
        words = [v.astype(np.uint32) | v.astype(np.uint32) << 16 for v in (a, b, c)]
        packed_results = apply("fma.rn.bf16x2 %out, %in0, %in1, %in2;", "b32", ["b32"] * 3, words)
        assert ((packed_results & 0xFFFF) == (packed_results >> 16)).all()
        results = packed_results & 0xFFFF
    else:
        results = apply("fma.rn.bf16 %out, %in0, %in1, %in2;", "b16", ["b16"] * 3, [a, b, c])
    assert [
        n
        for n, (result, expected) in enumerate(zip(results.tolist(), expected_bits, strict=True))
        if result != expected
    ] == []
    twice = [bf16_of(Fraction(float(np.float32(float(value))))) for value in exact[: len(halves)]]
    assert twice != expected_bits[: len(halves)]
