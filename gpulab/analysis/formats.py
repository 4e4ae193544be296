"""Floating-point formats: bits of a number, its neighbours, and rounding to nearest, ties to even.

The results are exact: numbers are fractions or float64 arrays, and each is rounded once. Sources of the
formats and their special values: IEEE 754-2019 (FP64, FP32, FP16), Google's BF16, NVIDIA's TF32 (PTX ISA,
"Alternate floating-point data formats"), Micikevicius et al., "FP8 formats for deep learning", 2022
(E4M3, E5M2), and the OCP Microscaling Formats (MX) Specification 1.0, 2023 (E2M1).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property

import numpy as np
import numpy.typing as npt

Number = int | float | Fraction
Doubles = npt.NDArray[np.float64]


@dataclass(frozen=True)
class Format:
    """A binary floating-point format with a sign bit, an exponent and a fraction.

    Parameters
    ----------
    name
        Name of the format, such as ``"BF16"``.
    exponent_bits, fraction_bits
        Numbers of bits of the exponent and of the fraction.
    has_infinity
        False for E4M3: its highest exponent is used for numbers, too, and only a fraction of ones is NaN.
    has_nan
        False for E2M1, all of whose bits are numbers. A number that is too large becomes the largest one, and
        so does NaN, as in CUDA's ``cuda_fp4.h``.

    Examples
    --------
    >>> FP16.round(2049)
    2048.0
    >>> FP16.neighbours(0.1)
    (0.09991455078125, 0.10003662109375)
    """

    name: str
    exponent_bits: int
    fraction_bits: int
    has_infinity: bool = True
    has_nan: bool = True

    @property
    def bits(self) -> int:
        """The number of bits of the sign, the exponent and the fraction together."""
        return 1 + self.exponent_bits + self.fraction_bits

    @property
    def bias(self) -> int:
        """The exponent bias, which is subtracted from a stored exponent."""
        return int(2 ** (self.exponent_bits - 1) - 1)

    @property
    def least_exponent(self) -> int:
        """The exponent (base 2) of the smallest normal number. Subnormal numbers have the same exponent."""
        return 1 - self.bias

    @cached_property
    def _largest_code(self) -> int:
        """The bits of the largest finite number."""
        highest_code = (1 << self.exponent_bits + self.fraction_bits) - 1
        return highest_code - (1 << self.fraction_bits if self.has_infinity else int(self.has_nan))

    @cached_property
    def largest(self) -> float:
        """The largest finite number."""
        return float(self.value(self._largest_code))

    @property
    def smallest_normal(self) -> float:
        """The smallest positive normal number."""
        return 2.0**self.least_exponent

    @property
    def smallest(self) -> float:
        """The smallest positive number, which is subnormal."""
        return math.ldexp(1.0, self.least_exponent - self.fraction_bits)

    @property
    def roundoff(self) -> float:
        """The largest relative error of rounding a number in the normal range, which is 2**-(fraction bits +
        1).
        """
        return 2.0 ** -(self.fraction_bits + 1)

    def code(self, number: Number) -> int:
        """Return the bit pattern of the representable number that is nearest to `number`. Ties are rounded to
        even.

        A number that exceeds the largest by half a step or more becomes infinity, or NaN if the format has no
        infinity, or the largest number if it has neither. Zero keeps its sign if it is a float.
        """
        sign_bit = 0
        if isinstance(number, float):
            sign_bit = int(math.copysign(1.0, number) < 0)
            if math.isnan(number):
                return self._signed(0, self._nan)
            if math.isinf(number):
                return self._signed(sign_bit, self._overflow)
        exact_number = Fraction(number)
        sign_bit = sign_bit or int(exact_number < 0)
        exact_number = abs(exact_number)
        if not exact_number:
            return self._signed(sign_bit, 0)
        exponent = exact_number.numerator.bit_length() - exact_number.denominator.bit_length()
        if exact_number < Fraction(2) ** exponent:
            exponent -= 1
        exponent = max(exponent, self.least_exponent)
        # round() of a Fraction rounds a tie to the even number. A fraction that is rounded up to 2 carries
        # into the exponent, as the bits themselves do.
        significand = round(exact_number / Fraction(2) ** (exponent - self.fraction_bits))
        magnitude_code = (exponent - self.least_exponent << self.fraction_bits) + significand
        return self._signed(
            sign_bit, magnitude_code if magnitude_code <= self._largest_code else self._overflow
        )

    def value(self, code: int) -> Fraction | float:
        """Return the number that a bit pattern represents, as a Fraction. Infinities, NaN and negative zero
        are returned as floats.
        """
        sign = -1 if code >> self.bits - 1 else 1
        exponent = code >> self.fraction_bits & (1 << self.exponent_bits) - 1
        fraction = code & (1 << self.fraction_bits) - 1
        magnitude_code = code & (1 << self.bits - 1) - 1
        if magnitude_code > self._largest_code:
            return sign * math.inf if self.has_infinity and not fraction else math.nan
        if not magnitude_code and sign < 0:
            return -0.0
        hidden_bit = (1 << self.fraction_bits) if exponent else 0
        power_of_two = max(exponent, 1) - self.bias - self.fraction_bits
        return sign * (hidden_bit + fraction) * Fraction(2) ** power_of_two

    def round(self, number: Number) -> float:
        """Return the representable number that is nearest to `number`, as a float."""
        return float(self.value(self.code(number)))

    def neighbours(self, number: Number) -> tuple[float, float]:
        """Return the two numbers of this format that are adjacent to the rounded `number`, with the smaller
        one first. If `number` is NaN, both results are NaN.
        """
        nearest = self.round(number)
        if math.isnan(nearest):
            return nearest, nearest
        magnitude_code = self.code(abs(nearest))
        next_larger = self._float_of(magnitude_code + 1)
        next_smaller = self._float_of(magnitude_code - 1) if magnitude_code else -self.smallest
        return (-next_larger, -next_smaller) if nearest < 0 else (next_smaller, next_larger)

    def parts(self, code: int) -> tuple[str, str, str]:
        """Return the sign, exponent and fraction of a bit pattern as strings of zeros and ones."""
        bits_text = f"{code:0{self.bits}b}"
        return bits_text[0], bits_text[1 : 1 + self.exponent_bits], bits_text[1 + self.exponent_bits :]

    def round_all(self, numbers: npt.ArrayLike) -> Doubles:
        """Round each number of a float64 array to this format. The result is a float64 array.

        The rule is the same as that of `round`. FP64 returns a copy.
        """
        with np.errstate(invalid="ignore"):  # of signalling NaN
            x = np.asarray(numbers, np.float64)
        if self.fraction_bits >= 52:
            return x.copy()
        _, exponents = np.frexp(x)  # x = m 2**power, m in [0.5, 1)
        step_exponents = np.maximum(exponents - 1, self.least_exponent) - self.fraction_bits
        with np.errstate(invalid="ignore"):
            rounded_values = np.ldexp(np.rint(np.ldexp(x, -step_exponents)), step_exponents)
        overflow_value = float(self.value(self._overflow))
        overflows = np.abs(rounded_values) > self.largest
        nan_results = x if self.has_nan else self.largest
        return np.where(
            np.isfinite(x) & ~overflows,
            rounded_values,
            np.where(np.isnan(x), nan_results, np.copysign(overflow_value, x)),
        )

    @property
    def _overflow(self) -> int:
        """Bits of the value for a number that is too large: infinity, NaN, or the largest number."""
        return self._largest_code + 1 if self.has_nan else self._largest_code

    @property
    def _nan(self) -> int:
        """Bits of a quiet NaN with a positive sign, or of the largest number."""
        quiet_bit = 1 << self.fraction_bits - 1 if self.has_infinity else 0
        return self._overflow + quiet_bit

    def _float_of(self, magnitude: int) -> float:
        """Return the non-negative number that the bits represent. Bits above those of the overflow value are
        treated as the overflow value.
        """
        return float(self.value(min(magnitude, self._overflow)))

    def _signed(self, sign_bit: int, magnitude: int) -> int:
        """Combine a sign bit and the remaining bits of a number."""
        return sign_bit << self.bits - 1 | magnitude


FP64 = Format("FP64", 11, 52)
FP32 = Format("FP32", 8, 23)
TF32 = Format("TF32", 8, 10)
BF16 = Format("BF16", 8, 7)
FP16 = Format("FP16", 5, 10)
E4M3 = Format("FP8 E4M3", 4, 3, has_infinity=False)
E5M2 = Format("FP8 E5M2", 5, 2)
E2M1 = Format("FP4 E2M1", 2, 1, has_infinity=False, has_nan=False)
FORMATS = (FP64, FP32, TF32, BF16, FP16, E4M3, E5M2)


@dataclass(frozen=True, slots=True, kw_only=True)
class Rounded:
    """A number that is rounded to a floating-point format, with the two neighbouring numbers of that format.

    Attributes
    ----------
    form : Format
        The format.
    number : Fraction or float
        The number before rounding; a float if it is infinite, NaN or zero.
    code : int
        The bits of the nearest number.
    value, below, above : float
        The nearest number, and the next numbers below and above it.
    """

    form: Format
    number: Number
    code: int
    value: float
    below: float
    above: float

    @classmethod
    def of(cls, number: Number, number_format: Format) -> Rounded:
        """Round a number to a floating-point format."""
        code = number_format.code(number)
        below, above = number_format.neighbours(number)
        return cls(
            form=number_format,
            number=number,
            code=code,
            value=float(number_format.value(code)),
            below=below,
            above=above,
        )

    @property
    def error(self) -> float | None:
        """The rounded number minus the exact number, or None if one of them is not finite."""
        if not math.isfinite(self.value) or (
            isinstance(self.number, float) and not math.isfinite(self.number)
        ):
            return None
        return float(Fraction(self.value) - Fraction(self.number))
