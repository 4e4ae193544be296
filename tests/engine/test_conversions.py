"""Every conversion between integers and floats, in every rounding mode, against exact fractions."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from fractions import Fraction
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from tests.engine.ptx_runner import apply, dtype_of
from tests.engine.test_rounding import rounded

INTEGERS = ("s8", "u8", "s16", "u16", "s32", "u32", "s64", "u64")
FLOATS = ("f16", "f32", "f64")
TO_INTEGER: dict[str, Callable[[Fraction], int]] = {
    "rni": round,
    "rzi": math.trunc,
    "rmi": math.floor,
    "rpi": math.ceil,
}


def values_of(kind: str) -> npt.NDArray[Any]:
    """Ends of the range, neighbours of the powers of two, halves, random bits."""
    rng = np.random.default_rng(len(kind) + int(kind[1:]))
    dtype = dtype_of(kind)
    if kind in INTEGERS:
        limits = np.iinfo(dtype)
        steps = [(1 << bit) + delta for bit in range(limits.bits - 1) for delta in (-1, 0, 1)]
        chosen = {0, 1, limits.min, limits.max, limits.max - 1, *steps, *(-step for step in steps)}
        random = rng.integers(limits.min, limits.max, 100, dtype, endpoint=True)
        return np.concatenate(
            [np.array(sorted(v for v in chosen if limits.min <= v <= limits.max), dtype), random]
        )
    raw = rng.integers(0, 256, 8 * 300, np.uint8).view(f"u{np.dtype(dtype).itemsize}").view(dtype)
    with np.errstate(over="ignore", under="ignore"):
        ends = np.array([0.0, -0.0, math.inf, -math.inf, 0.5, -0.5, 1.5, 2.5, 65519, 65520], dtype)
        usual = (rng.standard_normal(300) * 10.0 ** rng.integers(-8, 8, 300)).astype(dtype)
    return np.concatenate([raw[~np.isnan(raw)], usual, ends])


def to_float(value: float, mode: str, kind: str) -> float:
    if not value or (isinstance(value, float) and math.isinf(value)):
        return float(value)
    return rounded(Fraction(value), mode, kind)


def to_integer(value: float, mode: str, kind: str) -> int:
    limits = np.iinfo(dtype_of(kind))
    low = int(limits.min)
    high = int(limits.max)
    if isinstance(value, float):
        if math.isinf(value):
            return high if value > 0 else low
        return max(low, min(high, TO_INTEGER[mode](Fraction(value))))
    return max(low, min(high, value)) if mode == "sat" else (value - low) % (1 << limits.bits) + low


def modes(target: str, source: str) -> tuple[str, ...]:
    if target in FLOATS:
        narrows = source in INTEGERS or FLOATS.index(source) > FLOATS.index(target)
        return ("rn", "rz", "rm", "rp") if narrows else ("",)
    if source in FLOATS:
        return tuple(TO_INTEGER)
    inner, outer = (np.iinfo(dtype_of(kind)) for kind in (source, target))
    return ("",) if outer.min <= inner.min and inner.max <= outer.max else ("", "sat")


@pytest.mark.parametrize("source", [*INTEGERS, *FLOATS])
def test_every_conversion_is_exact_or_rounded_once(source: str) -> None:
    values = values_of(source)
    for target in (*INTEGERS, *FLOATS):
        convert = to_float if target in FLOATS else to_integer
        for mode in modes(target, source):
            name = ".".join(part for part in ("cvt", mode, target, source) if part)
            results = apply(f"{name} %out, %in0;", target, (source,), (values,))
            expected_values = [convert(value, mode or "rn", target) for value in values.tolist()]
            differences = [
                (name, value, result, expected)
                for value, result, expected in zip(
                    values.tolist(), results.tolist(), expected_values, strict=True
                )
                if result != expected or math.copysign(1, result) != math.copysign(1, expected)
            ]
            assert differences == []


def bf16(value: float, mode: str) -> int:
    """Bits of a number rounded to bf16: the upper half of a float rounded to 8 digits."""
    number = Fraction(value)
    size = abs(number)
    exponent = size.numerator.bit_length() - size.denominator.bit_length()
    exponent -= size < Fraction(2) ** exponent
    unit = Fraction(2) ** max(exponent - 7, -133)
    whole, remainder = divmod(number / unit, 1)
    up = {
        "rn": round(remainder + whole) > whole,
        "rz": remainder and number < 0,
        "rm": False,
        "rp": remainder > 0,
    }[mode]
    result = float((whole + bool(up)) * unit)
    return int(np.float32(result).view(np.uint32)) >> 16 | (0x8000 if number < 0 else 0)


@pytest.mark.parametrize(
    ("source", "mode"), [*itertools.product(["s16", "u32", "s64", "f32", "f64"], ["rn", "rz", "rm", "rp"])]
)
def test_bfloat16_is_rounded_once(source: str, mode: str) -> None:
    values = values_of(source)
    if source[0] == "f":
        values = values[(np.abs(values) < 1e38) & (np.abs(values) > 1e-38)]
        half_way = np.array([1 + 2.0**-8, 1 + 3 * 2.0**-8], values.dtype)
        values = np.concatenate([values, half_way, -half_way, half_way * (1 + 2.0**-40)])
    values = values[values != 0].astype(dtype_of(source))
    result = apply(f"cvt.{mode}.bf16.{source} %out, %in0;", "b16", (source,), (values,), target=90)
    assert result.tolist() == [bf16(value, mode) for value in values.tolist()]
