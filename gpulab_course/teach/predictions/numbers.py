"""Parsing of numbers as people type them: with decimal point or comma, digit groups, fractions and powers."""

from __future__ import annotations

import math
import re

Number = int | float

_SPACE_REMOVAL = str.maketrans("", "", " \t\u00a0\u2009\u202f_'\u2019")
_SIGN_REPLACEMENTS = str.maketrans({"\u2212": "-", "\u2013": "-", "\u00d7": "*", "\u00b7": "*"})
_PLAIN_NUMBER = re.compile(r"[0-9]+(?:\.[0-9]+)?|\.[0-9]+")
_DIGIT_GROUPS = re.compile(r"[0-9]{1,3}(?:([.,])[0-9]{3})(?:\1[0-9]{3})*")
_SPACED_NUMBER = re.compile(r"[+-]?[0-9]{1,3}(?:[ \u00a0\u2009\u202f_'\u2019][0-9]{3})+(?:[.,][0-9]+)?")
_POWER_PATTERN = re.compile(
    r"(?:(?P<factor>[0-9.,]+)\*)?(?P<base>[0-9.,]+)(?:\^|\*\*)(?P<sign>[+-]?)(?P<exponent>[0-9]{1,3})"
)


def read_number(text: str, unit: str = "") -> Number:
    """Parse a number that a learner typed, which may be followed by a unit.

    A comma before exactly three digits groups thousands (``1,000``); any other comma is a decimal comma
    (``3,9``). Fractions (``1/2``), powers (``2^20``, ``2**20``), exponents (``1e6``) and digit groups that
    are separated by spaces are also supported.

    Raises
    ------
    ValueError
        If `text` is not a number or is ambiguous: ``1.000`` is one in English and a thousand in German.
        The message shows both readings.

    Examples
    --------
    >>> read_number("3,9"), read_number("1,000"), read_number("1/2"), read_number("4 blocks", "blocks")
    (3.9, 1000, 0.5, 4)
    """
    number_text = _remove_unit(text.strip().lstrip("~≈").strip(), unit)
    if re.search(r"[0-9][ \u00a0\u2009\u202f]+[0-9]", number_text) and not _SPACED_NUMBER.fullmatch(
        number_text
    ):
        raise _make_number_error(text)  # "1 2" is two numbers
    normalized_text = number_text.translate(_SPACE_REMOVAL).translate(_SIGN_REPLACEMENTS)
    sign = -1 if normalized_text.startswith("-") else 1
    try:
        value = sign * _read_unsigned(normalized_text.removeprefix("-").removeprefix("+"))
        if not math.isfinite(value):
            raise _NoNumberError
    except (ArithmeticError, _NoNumberError):
        raise _make_number_error(text) from None
    return int(value) if value == int(value) else value


class _NoNumberError(Exception):
    pass


def _make_number_error(text: str) -> ValueError:
    return ValueError(f"{text!r} is not a number; this prediction takes one, such as 12, 0.5 or 1/2.")


def make_singular(unit: str) -> str:
    """Return the singular of a unit, such as ``pass`` for ``passes``, or ``block`` for ``blocks``."""
    return re.sub(r"(?<=ss)es$|(?<=ch)es$|s$", "", unit)


def _remove_unit(text: str, unit: str) -> str:
    for unit_form in (unit, make_singular(unit)):
        if unit_form and text.casefold().endswith(unit_form.casefold()):
            return text[: -len(unit_form)].strip()
    return text


def _read_unsigned(text: str) -> Number:
    """Parse a number without a sign: a fraction, a power, a number with an exponent, or plain digits."""
    operands = text.split("/")
    if len(operands) == 2:
        return _read_unsigned(operands[0]) / _read_unsigned(operands[1])
    if power_match := _POWER_PATTERN.fullmatch(text):
        factor = _read_decimal(power_match["factor"]) if power_match["factor"] else 1
        power_value: Number = _read_decimal(power_match["base"]) ** int(
            power_match["sign"] + power_match["exponent"]
        )
        return factor * power_value
    mantissa_text, exponent_marker, exponent_text = text.lower().partition("e")
    if exponent_marker:
        if not re.fullmatch(r"[+-]?[0-9]{1,3}", exponent_text):
            raise _NoNumberError
        return _read_decimal(mantissa_text) * 10.0 ** int(exponent_text)
    return _read_decimal(text)


def _read_decimal(text: str) -> Number:
    """Parse a number that consists of digits, points and commas."""
    if "," in text and "." in text:
        decimal_mark = max(",.", key=text.rfind)  # whichever comes last
        integer, _, decimals = text.rpartition(decimal_mark)
        if not (_DIGIT_GROUPS.fullmatch(integer) and re.fullmatch(r"[0-9]+", decimals)):
            raise _NoNumberError
        return float(f"{re.sub('[.,]', '', integer)}.{decimals}")
    if _DIGIT_GROUPS.fullmatch(text) and not text.startswith("0"):
        digits = re.sub("[.,]", "", text)
        if text.count(".") == 1:
            raise ValueError(
                f"{text} means {int(digits):,} in some countries. {_make_readings_hint(text, digits)}"
            )
        return int(digits)
    dotted_text = text.replace(",", ".")
    if not _PLAIN_NUMBER.fullmatch(dotted_text):
        raise _NoNumberError
    return float(dotted_text) if "." in dotted_text else int(dotted_text)


def _make_readings_hint(text: str, digits: str) -> str:
    """Return a hint that shows the two possible meanings of a number such as ``1.000``."""
    other_text = text.rstrip("0").rstrip(".")
    if other_text == text:
        other_text = f"{text}0"
    return f"Write {other_text} or {digits}."
