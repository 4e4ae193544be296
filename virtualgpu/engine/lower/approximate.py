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
_MAX_REDUCIBLE = 2.0**30
# pi/2 in three pieces; the first two leave room for a product with an integer of 30 bits.
_QUARTER_TURN_PARTS = tuple(map(float.fromhex, ("0x1.921fb4p+0", "0x1.4442dp-24", "0x1.8469898cc517p-48")))


class _SeriesEmitter(Emitter):
    """An emitter with operations on vectors of doubles."""

    def emit_number(self, value: float) -> str:
        return float_constant("double", _get_double_bits(value))

    def emit_float_operation(self, operation: str, a: str, b: str | float) -> str:
        return self.binary(f"f{operation}", "double", a, self.emit_number(b) if isinstance(b, float) else b)

    def emit_polynomial(self, x: str, coefficients: Sequence[float]) -> str:
        """Emit the value of a polynomial. The coefficients are in ascending order of powers."""
        result = self.emit_number(coefficients[-1])
        for coefficient in coefficients[-2::-1]:
            result = self.emit_float_operation(
                "add", self.emit_float_operation("mul", result, x), coefficient
            )
        return result

    def emit_nearest_integer(self, x: str) -> tuple[str, str]:
        """Emit the nearest integer as a double, and as an i64 with only its low bits valid."""
        shifted_number = self.emit_float_operation("add", x, _ROUNDING_OFFSET)
        return self.convert("bitcast", "double", shifted_number, "i64"), self.emit_float_operation(
            "sub", shifted_number, _ROUNDING_OFFSET
        )

    def emit_power_of_two(self, x: str) -> str:
        """Emit 2 to the power of a number between -1000 and 1000."""
        integer_bits, nearest_integer = self.emit_nearest_integer(x)
        fraction = self.emit_float_operation("sub", x, nearest_integer)
        power_of_fraction = self.emit_polynomial(
            fraction, [math.log(2) ** n / math.factorial(n) for n in range(14)]
        )
        scaled_exponent = self.binary("shl", "i64", integer_bits, constant("i64", 52))
        scaled_exponent = self.binary(
            "add", "i64", scaled_exponent, self.convert("bitcast", "double", power_of_fraction, "i64")
        )
        return self.convert("bitcast", "i64", scaled_exponent, "double")

    def emit_clamped(self, x: str, bound: float) -> str:
        """Emit the value of `x`, limited to the range from ``-bound`` to `bound`."""
        bounded_below = self.intrinsic("maximumnum", "double", x, self.emit_number(-bound))
        return self.intrinsic("minimumnum", "double", bounded_below, self.emit_number(bound))

    def emit_nan_propagation(self, x: str, value: str) -> str:
        return self.select("double", self.compare("uno", "double", x, x), x, value)


def _get_double_bits(value: float) -> int:
    """Return the bits of a double as an integer."""
    return int.from_bytes(struct.pack("<d", value), "little")


def _emit_exp2(emitter: _SeriesEmitter, x: str) -> str:
    return emitter.emit_nan_propagation(x, emitter.emit_power_of_two(emitter.emit_clamped(x, 200.0)))


def _emit_log2(emitter: _SeriesEmitter, x: str) -> str:
    """Emit the logarithm of x = m 2^k with m around 1, as k + 2 atanh((m - 1) / (m + 1)) / ln 2."""
    bit_pattern = emitter.convert("bitcast", "double", x, "i64")
    sqrt_half_bits = constant("i64", _get_double_bits(math.sqrt(0.5)))
    exponent = emitter.binary(
        "ashr", "i64", emitter.binary("sub", "i64", bit_pattern, sqrt_half_bits), constant("i64", 52)
    )
    mantissa = emitter.binary(
        "sub", "i64", bit_pattern, emitter.binary("shl", "i64", exponent, constant("i64", 52))
    )
    m = emitter.convert("bitcast", "i64", mantissa, "double")
    rounding_offset = constant("i64", _get_double_bits(_ROUNDING_OFFSET))
    k = emitter.convert("bitcast", "i64", emitter.binary("add", "i64", exponent, rounding_offset), "double")
    mantissa_ratio = emitter.emit_float_operation(
        "div", emitter.emit_float_operation("sub", m, 1.0), emitter.emit_float_operation("add", m, 1.0)
    )
    log2_value = emitter.emit_polynomial(
        emitter.emit_float_operation("mul", mantissa_ratio, mantissa_ratio),
        [2 / math.log(2) / (2 * n + 1) for n in range(10)],
    )
    log2_value = emitter.emit_float_operation(
        "add",
        emitter.emit_float_operation("mul", log2_value, mantissa_ratio),
        emitter.emit_float_operation("sub", k, _ROUNDING_OFFSET),
    )
    zero = emitter.emit_number(0.0)
    infinity = emitter.emit_number(math.inf)
    log2_value = emitter.select("double", emitter.compare("oeq", "double", x, infinity), x, log2_value)
    log2_value = emitter.select(
        "double", emitter.compare("olt", "double", x, zero), emitter.emit_number(math.nan), log2_value
    )
    log2_value = emitter.select(
        "double", emitter.compare("oeq", "double", x, zero), emitter.emit_number(-math.inf), log2_value
    )
    return emitter.emit_nan_propagation(x, log2_value)


def _emit_sine_or_cosine(emitter: _SeriesEmitter, x: str, first_quarter: int) -> str:
    """Emit the sine, or the cosine if `first_quarter` is 1.

    The argument is reduced by multiples of a quarter turn; the remainder is put into a series.
    """
    quarter_bits, quarter_count = emitter.emit_nearest_integer(
        emitter.emit_float_operation("mul", x, 2 / math.pi)
    )
    remainder = x
    for quarter_turn in _QUARTER_TURN_PARTS:
        remainder = emitter.emit_float_operation(
            "sub", remainder, emitter.emit_float_operation("mul", quarter_count, quarter_turn)
        )
    remainder_squared = emitter.emit_float_operation("mul", remainder, remainder)
    signs = [(-1.0) ** n for n in range(9)]
    sine = emitter.emit_float_operation(
        "mul",
        emitter.emit_polynomial(remainder_squared, [signs[n] / math.factorial(2 * n + 1) for n in range(8)]),
        remainder,
    )
    cosine = emitter.emit_polynomial(remainder_squared, [signs[n] / math.factorial(2 * n) for n in range(9)])
    quarter_number = emitter.binary("add", "i64", quarter_bits, constant("i64", first_quarter))
    is_odd_quarter = emitter.convert("trunc", "i64", quarter_number, "i1")
    series_value = emitter.convert(
        "bitcast", "double", emitter.select("double", is_odd_quarter, cosine, sine), "i64"
    )
    half_turn = emitter.binary("and", "i64", quarter_number, constant("i64", 2))
    sign_bit = emitter.binary("shl", "i64", half_turn, constant("i64", 62))
    series_value = emitter.convert(
        "bitcast", "i64", emitter.binary("xor", "i64", series_value, sign_bit), "double"
    )
    magnitude = emitter.intrinsic("fabs", "double", x)
    is_large = emitter.compare("ogt", "double", magnitude, emitter.emit_number(_MAX_REDUCIBLE))
    series_value = emitter.select("double", is_large, emitter.emit_number(float(first_quarter)), series_value)
    is_infinite = emitter.compare("oeq", "double", magnitude, emitter.emit_number(math.inf))
    return emitter.emit_nan_propagation(
        x, emitter.select("double", is_infinite, emitter.emit_number(math.nan), series_value)
    )


def _emit_tanh(emitter: _SeriesEmitter, x: str) -> str:
    magnitude = emitter.intrinsic("fabs", "double", x)
    exponential = emitter.emit_power_of_two(
        emitter.emit_clamped(emitter.emit_float_operation("mul", magnitude, -2 / math.log(2)), 200.0)
    )
    large_result = emitter.emit_float_operation(
        "div",
        emitter.emit_float_operation("sub", emitter.emit_number(1.0), exponential),
        emitter.emit_float_operation("add", emitter.emit_number(1.0), exponential),
    )
    magnitude_squared = emitter.emit_float_operation("mul", magnitude, magnitude)
    coefficients = [1.0, -1 / 3, 2 / 15, -17 / 315, 62 / 2835, -1382 / 155925]
    small_result = emitter.emit_float_operation(
        "mul", emitter.emit_polynomial(magnitude_squared, coefficients), magnitude
    )
    tanh_value = emitter.select(
        "double",
        emitter.compare("olt", "double", magnitude, emitter.emit_number(0.0625)),
        small_result,
        large_result,
    )
    return emitter.emit_nan_propagation(x, emitter.intrinsic("copysign", "double", tanh_value, x))


_EMITTERS_BY_ROOT: dict[str, Callable[[_SeriesEmitter, str], str]] = {
    "ex2": _emit_exp2,
    "lg2": _emit_log2,
    "sin": lambda e, x: _emit_sine_or_cosine(e, x, 0),
    "cos": lambda e, x: _emit_sine_or_cosine(e, x, 1),
    "tanh": _emit_tanh,
}


@functools.lru_cache(maxsize=8)
def make_function(root: str) -> tuple[str, str]:
    """Return the name and the LLVM text of the function for a PTX instruction such as ``ex2``."""
    emitter = _SeriesEmitter()
    name = f"approximate_{root}"
    value = _EMITTERS_BY_ROOT[root](emitter, emitter.convert("fpext", "float", "%x", "double"))
    result = emitter.convert("fptrunc", "double", value, "float")
    row_type = vector("float")
    function_body = "\n".join(
        [
            *sorted(emitter.declared),
            f"define internal {row_type} @{name}({row_type} %x) noinline {{",
            *emitter.lines,
        ]
    )
    return name, f"{function_body}\n  ret {row_type} {result}\n}}\n"
