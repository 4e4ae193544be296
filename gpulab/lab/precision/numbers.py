"""``gl.precision``: a number in each number format of a GPU."""

from __future__ import annotations

import math
from collections.abc import Sequence
from fractions import Fraction
from typing import Any

from gpulab import views
from gpulab.analysis.formats import FORMATS, Format, Number
from virtualgpu.errors import did_you_mean

_MAX_DIGITS = 400  # digits and exponents of what is typed: beyond every format's range


def precision(value: Any, formats: Sequence[str] = ()) -> views.PrecisionView:
    """Show the bits of a number after rounding to FP64, FP32, TF32, BF16, FP16 and FP8.

    Parameters
    ----------
    value
        A Python or NumPy number, a `fractions.Fraction`, or a string such as ``"0.1"``, ``"1/3"``,
        ``"0x1.8p-3"``, ``"inf"``, ``"nan"``. A string is taken exactly, but the float ``0.1`` is already
        rounded to FP64.
    formats
        The names of the formats to show, such as ``("FP16", "BF16")``; all seven by default.

    Returns
    -------
    PrecisionView
        For each format, the picture shows the nearest number (ties go to the even number) as bits of sign,
        exponent and fraction, its error, its two neighbours, and the range. Sliders move and scale the
        number. ``.record`` holds one `gpulab.analysis.formats.Rounded` per format. E4M3 has no infinity, so
        a number that is too large becomes NaN, as in the OCP's specification. PTX's conversions to FP8
        (``cvt.satfinite``) return the largest number instead.

    Raises
    ------
    TypeError
        If `value` is not a real number.
    ValueError
        For a string that is not a number, or an unknown format.

    Examples
    --------
    >>> gl.precision("0.1", formats=("FP16", "FP8 E4M3")).record[1].value
    0.1015625
    """
    return views.PrecisionView(_to_exact_number(value), [_find_format(name) for name in formats] or FORMATS)


def _find_format(name: str) -> Format:
    known_format = next(
        (
            number_format
            for number_format in FORMATS
            if name.upper() in (number_format.name, number_format.name.split()[-1])
        ),
        None,
    )
    if known_format is None:
        format_names = [number_format.name for number_format in FORMATS]
        raise ValueError(
            f"There is no format {name!r}.{did_you_mean(name, format_names)} The formats are "
            f"{', '.join(format_names)}."
        )
    return known_format


def _to_exact_number(value: Any) -> Number:
    """Return the exact value of the argument; infinities, NaN and negative zero remain floats."""
    if isinstance(value, str):
        return _parse_number(value)
    if isinstance(value, (int, Fraction)) and not isinstance(value, bool):
        return Fraction(value)
    try:
        approximation = float(value)
    except (TypeError, ValueError):
        raise TypeError(
            f"`value` must be a number or a str such as 0.1 or '0.1', not {type(value).__name__}."
        ) from None
    return Fraction(approximation) if math.isfinite(approximation) and approximation else approximation


def _parse_number(text: str) -> Number:
    clean_text = text.strip().replace("_", "").replace("\N{MINUS SIGN}", "-")
    try:
        if "x" in clean_text.lower() or clean_text.lower().lstrip("+-") in (
            "inf",
            "infinity",
            "nan",
            "0",
            "0.0",
        ):
            approximation = float.fromhex(clean_text) if "x" in clean_text.lower() else float(clean_text)
            return (
                Fraction(approximation) if math.isfinite(approximation) and approximation else approximation
            )
        exponent_text = clean_text.lower().partition("e")[2]
        if len(clean_text) > _MAX_DIGITS or (exponent_text and abs(int(exponent_text)) > _MAX_DIGITS):
            raise ValueError
        return Fraction(clean_text)
    except (ValueError, ZeroDivisionError, OverflowError):
        raise ValueError(
            f"{text[:40]!r} is not a number. Write one such as '0.1', '1/3', '6.1e-5', '0x1p-14', 'inf' or "
            "'nan'."
        ) from None
