"""LLVM IR functions for powers, logarithms, sines and hyperbolic tangents of floats in 32 lanes.

They are computed in doubles, by series that are longer than the result needs, without fused operations.
Every processor returns the same bits, and they are at least as accurate as a GPU's approximate instructions.
"""

from __future__ import annotations

import functools
import math
import struct
from collections.abc import Callable, Sequence

from virtualgpu.engine.ir.emit import Emitter, constant, float_constant, vector

# Adding this leaves the nearest integer of a number in the last bits of the sum.
_ROUNDING_OFFSET = 1.5 * 2.0**52
# Above this a GPU's own reduction to one turn leaves no fraction.
_MOST_REDUCIBLE = 2.0**30
# pi/2 in three pieces; the first two leave room for a product with an integer of 30 bits.
_QUARTER_TURN = tuple(map(float.fromhex, ("0x1.921fb4p+0", "0x1.4442dp-24", "0x1.8469898cc517p-48")))


class _Series(Emitter):
    """An emitter with operations on vectors of doubles."""

    def number(self, value: float) -> str:
        return float_constant("double", _double_bits(value))

    def float_operation(self, operation: str, a: str, b: str | float) -> str:
        return self.binary(f"f{operation}", "double", a, self.number(b) if isinstance(b, float) else b)

    def series(self, x: str, coefficients: Sequence[float]) -> str:
        """Emit the value of a polynomial. The coefficients are in ascending order of powers."""
        result = self.number(coefficients[-1])
        for coefficient in coefficients[-2::-1]:
            result = self.float_operation("add", self.float_operation("mul", result, x), coefficient)
        return result

    def nearest_integer(self, x: str) -> tuple[str, str]:
        """Emit the nearest integer as a double, and as an i64 with only its low bits valid."""
        shifted = self.float_operation("add", x, _ROUNDING_OFFSET)
        return self.convert("bitcast", "double", shifted, "i64"), self.float_operation(
            "sub", shifted, _ROUNDING_OFFSET
        )

    def power_of_two(self, x: str) -> str:
        """Emit 2 to the power of a number between -1000 and 1000."""
        raw, nearest = self.nearest_integer(x)
        fraction = self.float_operation("sub", x, nearest)
        value = self.series(fraction, [math.log(2) ** n / math.factorial(n) for n in range(14)])
        scaled = self.binary("shl", "i64", raw, constant("i64", 52))
        scaled = self.binary("add", "i64", scaled, self.convert("bitcast", "double", value, "i64"))
        return self.convert("bitcast", "i64", scaled, "double")

    def bounded(self, x: str, bound: float) -> str:
        """Emit the value of `x`, limited to the range from ``-bound`` to `bound`."""
        bounded_below = self.intrinsic("maximumnum", "double", x, self.number(-bound))
        return self.intrinsic("minimumnum", "double", bounded_below, self.number(bound))

    def unless_nan(self, x: str, value: str) -> str:
        return self.select("double", self.compare("uno", "double", x, x), x, value)


def _double_bits(value: float) -> int:
    """Return the bits of a double as an integer."""
    return int.from_bytes(struct.pack("<d", value), "little")


def _exp2(emitter: _Series, x: str) -> str:
    return emitter.unless_nan(x, emitter.power_of_two(emitter.bounded(x, 200.0)))


def _log2(emitter: _Series, x: str) -> str:
    """Emit the logarithm of x = m 2^k with m around 1, as k + 2 atanh((m - 1) / (m + 1)) / ln 2."""
    bit_pattern = emitter.convert("bitcast", "double", x, "i64")
    sqrt_half_bits = constant("i64", _double_bits(math.sqrt(0.5)))
    exponent = emitter.binary(
        "ashr", "i64", emitter.binary("sub", "i64", bit_pattern, sqrt_half_bits), constant("i64", 52)
    )
    mantissa = emitter.binary(
        "sub", "i64", bit_pattern, emitter.binary("shl", "i64", exponent, constant("i64", 52))
    )
    m = emitter.convert("bitcast", "i64", mantissa, "double")
    offset = constant("i64", _double_bits(_ROUNDING_OFFSET))
    k = emitter.convert("bitcast", "i64", emitter.binary("add", "i64", exponent, offset), "double")
    ratio = emitter.float_operation(
        "div", emitter.float_operation("sub", m, 1.0), emitter.float_operation("add", m, 1.0)
    )
    value = emitter.series(
        emitter.float_operation("mul", ratio, ratio), [2 / math.log(2) / (2 * n + 1) for n in range(10)]
    )
    value = emitter.float_operation(
        "add",
        emitter.float_operation("mul", value, ratio),
        emitter.float_operation("sub", k, _ROUNDING_OFFSET),
    )
    zero = emitter.number(0.0)
    infinity = emitter.number(math.inf)
    value = emitter.select("double", emitter.compare("oeq", "double", x, infinity), x, value)
    value = emitter.select(
        "double", emitter.compare("olt", "double", x, zero), emitter.number(math.nan), value
    )
    value = emitter.select(
        "double", emitter.compare("oeq", "double", x, zero), emitter.number(-math.inf), value
    )
    return emitter.unless_nan(x, value)


def _sine_or_cosine(emitter: _Series, x: str, first_quarter: int) -> str:
    """Emit the sine, or the cosine if `first_quarter` is 1.

    The argument is reduced by multiples of a quarter turn; the remainder is put into a series.
    """
    quarter_bits, quarters = emitter.nearest_integer(emitter.float_operation("mul", x, 2 / math.pi))
    remainder = x
    for quarter_turn in _QUARTER_TURN:
        remainder = emitter.float_operation(
            "sub", remainder, emitter.float_operation("mul", quarters, quarter_turn)
        )
    square = emitter.float_operation("mul", remainder, remainder)
    signs = [(-1.0) ** n for n in range(9)]
    sine = emitter.float_operation(
        "mul", emitter.series(square, [signs[n] / math.factorial(2 * n + 1) for n in range(8)]), remainder
    )
    cosine = emitter.series(square, [signs[n] / math.factorial(2 * n) for n in range(9)])
    quarter_number = emitter.binary("add", "i64", quarter_bits, constant("i64", first_quarter))
    is_odd_quarter = emitter.convert("trunc", "i64", quarter_number, "i1")
    value = emitter.convert(
        "bitcast", "double", emitter.select("double", is_odd_quarter, cosine, sine), "i64"
    )
    half_turn = emitter.binary("and", "i64", quarter_number, constant("i64", 2))
    sign_bit = emitter.binary("shl", "i64", half_turn, constant("i64", 62))
    value = emitter.convert("bitcast", "i64", emitter.binary("xor", "i64", value, sign_bit), "double")
    magnitude = emitter.intrinsic("fabs", "double", x)
    is_large = emitter.compare("ogt", "double", magnitude, emitter.number(_MOST_REDUCIBLE))
    value = emitter.select("double", is_large, emitter.number(float(first_quarter)), value)
    is_infinite = emitter.compare("oeq", "double", magnitude, emitter.number(math.inf))
    return emitter.unless_nan(x, emitter.select("double", is_infinite, emitter.number(math.nan), value))


def _tanh(emitter: _Series, x: str) -> str:
    size = emitter.intrinsic("fabs", "double", x)
    power = emitter.power_of_two(
        emitter.bounded(emitter.float_operation("mul", size, -2 / math.log(2)), 200.0)
    )
    large = emitter.float_operation(
        "div",
        emitter.float_operation("sub", emitter.number(1.0), power),
        emitter.float_operation("add", emitter.number(1.0), power),
    )
    square = emitter.float_operation("mul", size, size)
    terms = [1.0, -1 / 3, 2 / 15, -17 / 315, 62 / 2835, -1382 / 155925]
    small = emitter.float_operation("mul", emitter.series(square, terms), size)
    value = emitter.select(
        "double", emitter.compare("olt", "double", size, emitter.number(0.0625)), small, large
    )
    return emitter.unless_nan(x, emitter.intrinsic("copysign", "double", value, x))


_FUNCTIONS: dict[str, Callable[[_Series, str], str]] = {
    "ex2": _exp2,
    "lg2": _log2,
    "sin": lambda e, x: _sine_or_cosine(e, x, 0),
    "cos": lambda e, x: _sine_or_cosine(e, x, 1),
    "tanh": _tanh,
}


@functools.lru_cache(maxsize=8)
def function(root: str) -> tuple[str, str]:
    """Return the name and the LLVM text of the function for a PTX instruction such as ``ex2``."""
    emitter = _Series()
    name = f"approximate_{root}"
    value = _FUNCTIONS[root](emitter, emitter.convert("fpext", "float", "%x", "double"))
    result = emitter.convert("fptrunc", "double", value, "float")
    row_type = vector("float")
    lines = "\n".join(
        [
            *sorted(emitter.declared),
            f"define internal {row_type} @{name}({row_type} %x) noinline {{",
            *emitter.lines,
        ]
    )
    return name, f"{lines}\n  ret {row_type} {result}\n}}\n"
