"""Conversions to fp8 and tf32, against every value the format has."""

from __future__ import annotations

from bisect import bisect_left
from fractions import Fraction

import numpy as np
import pytest

from tests.engine.ptx_runner import apply

TARGET = 90
FORMATS = {"e4m3": (4, 3, 0x7E), "e5m2": (5, 2, 0x7B)}
"""Exponent bits, mantissa bits and the code of the largest finite number."""


def decoded(kind: str, code: int) -> float:
    """The number that a code without its sign stands for (OCP 8-bit floating point, table 1)."""
    exponent_bits, mantissa_bits, largest = FORMATS[kind]
    if code > largest:
        return float("inf") if kind == "e5m2" and code == 0x7C else float("nan")
    exponent = code >> mantissa_bits
    mantissa = code & ((1 << mantissa_bits) - 1)
    bias = (1 << (exponent_bits - 1)) - 1
    if exponent == 0:
        return float(mantissa * 2.0 ** (1 - bias - mantissa_bits))
    return float((1 + mantissa / (1 << mantissa_bits)) * 2.0 ** (exponent - bias))


def encoded(kind: str, value: float) -> int:
    """The nearest code, ties to the even one, at most the largest finite number."""
    if np.isnan(value):
        return 0x7F
    largest = FORMATS[kind][2]
    values = [decoded(kind, code) for code in range(largest + 1)]
    sign = 0x80 if np.signbit(value) else 0
    size = abs(float(value))
    if size >= values[-1]:
        return sign | largest
    above = bisect_left(values, size)
    if values[above] == size:
        return sign | above
    low = Fraction(size) - Fraction(values[above - 1])
    high = Fraction(values[above]) - Fraction(size)
    return sign | (above if high < low or (high == low and above % 2 == 0) else above - 1)


def interesting(kind: str) -> np.ndarray:
    """Every number of the format, the middles between neighbours and what lies beside them, and more."""
    codes = [decoded(kind, code) for code in range(FORMATS[kind][2] + 1)]
    exact = np.array(codes, np.float32)
    middles = (exact[1:] + exact[:-1]) / 2
    beside = [np.nextafter(middles, np.float32(side)) for side in (-np.inf, np.inf)]
    more = np.array([1e-30, 1e-45, 460, 464, 465, 480, 6e4, 7e4, 3e38, np.inf], np.float32)
    values = np.concatenate([exact, middles, *beside, more])
    return np.concatenate([values, -values, np.array([np.nan], np.float32)])


@pytest.mark.parametrize("kind", FORMATS)
def test_float_to_fp8(kind: str) -> None:
    values = interesting(kind)
    other = np.roll(values, 7)
    result = apply(
        f"cvt.rn.satfinite.{kind}x2.f32 %out, %in0, %in1;", "b16", ["f32"] * 2, [values, other], TARGET
    )
    expected = [encoded(kind, a) << 8 | encoded(kind, b) for a, b in zip(values, other, strict=True)]
    np.testing.assert_array_equal(result, expected)


@pytest.mark.parametrize("kind", FORMATS)
def test_negative_numbers_become_zero_with_relu(kind: str) -> None:
    values = interesting(kind)
    result = apply(f"cvt.rn.satfinite.relu.{kind}x2.f32 %out, %in0, %in0;", "b16", ["f32"], [values], TARGET)
    expected = [0 if np.signbit(v) and not np.isnan(v) else encoded(kind, v) for v in values]
    np.testing.assert_array_equal(result, [code << 8 | code for code in expected])


@pytest.mark.parametrize("kind", FORMATS)
def test_halves_to_fp8(kind: str) -> None:
    codes = np.arange(0, 1 << 16, 37, dtype=np.uint32)
    other = codes[::-1]
    result = apply(
        f"cvt.rn.satfinite.{kind}x2.f16x2 %out, %in0;", "b16", ["b32"], [codes << 16 | other], TARGET
    )
    upper, lower = (part.astype(np.uint16).view(np.float16) for part in (codes, other))
    expected = [encoded(kind, a) << 8 | encoded(kind, b) for a, b in zip(upper, lower, strict=True)]
    np.testing.assert_array_equal(result, expected)


@pytest.mark.parametrize("kind", FORMATS)
def test_fp8_to_halves(kind: str) -> None:
    codes = np.arange(256, dtype=np.uint16)
    result = apply(f"cvt.rn.f16x2.{kind}x2 %out, %in0;", "b32", ["b16"], [codes << 8 | codes[::-1]], TARGET)
    sizes = np.array([decoded(kind, int(code) & 0x7F) for code in codes])
    with np.errstate(invalid="ignore"):
        expected_halves = np.where(codes & 0x80, -sizes, sizes).astype(np.float16)
    for half, expected in ((result >> 16, expected_halves), (result & 0xFFFF, expected_halves[::-1])):
        halves = half.astype(np.uint16).view(np.float16)
        np.testing.assert_array_equal(halves, expected)
        np.testing.assert_array_equal(np.signbit(halves[expected == 0]), np.signbit(expected[expected == 0]))


@pytest.mark.parametrize("mode", ["rna", "rn", "rz"])
def test_float_to_tf32(mode: str) -> None:
    """The result has 10 bits of mantissa and is the nearest such number, or the one toward zero."""
    rng = np.random.default_rng(6)
    values = (rng.standard_normal(2000) * 10.0 ** rng.integers(-30, 30, 2000)).astype(np.float32)
    ties = (values.view(np.uint32) & np.uint32(0xFFFFE000) | np.uint32(0x1000)).view(np.float32)
    values = np.concatenate([values, ties, np.array([0, -0.0, np.inf, -np.inf, np.nan, 1.0], np.float32)])
    result = apply(f"cvt.{mode}.tf32.f32 %out, %in0;", "b32", ["f32"], [values], TARGET)
    for value, word in zip(values, result, strict=True):
        bits = np.uint32(word).view(np.float32)
        if np.isnan(value) or np.isinf(value):
            assert np.array_equal(bits, value, equal_nan=True)
            continue
        assert word & 0x1FFF == 0
        assert np.signbit(bits) == np.signbit(value)
        size = Fraction(float(abs(value)))
        down = Fraction(float((abs(value).view(np.uint32) & np.uint32(0xFFFFE000)).view(np.float32)))
        up = Fraction(
            float(((abs(value).view(np.uint32) & np.uint32(0xFFFFE000)) + np.uint32(0x2000)).view(np.float32))
        )
        even = (abs(value).view(np.uint32) >> 13) % 2 == 0
        middle = size - down == up - size
        nearer = {"rna": up, "rn": down if even else up}.get(mode, down) if middle else None
        nearest = nearer if middle else (down if size - down < up - size else up)
        assert Fraction(float(abs(bits))) == (down if mode == "rz" else nearest)
