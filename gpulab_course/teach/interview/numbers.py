"""Parsing of the numbers that candidates type, with conversion of units, shares and percentages."""

from __future__ import annotations

import re
from fractions import Fraction

from gpulab_course.teach.predictions.numbers import Number, read_number

# All factors are integers, so that an answer in exact bytes stays exact when its unit is converted.
_TIME_FACTORS = {"ns": 1, "µs": 1_000, "μs": 1_000, "us": 1_000, "ms": 10**6, "s": 10**9}
_DECIMAL_PREFIXES = {"": 1, "k": 10**3, "K": 10**3, "M": 10**6, "G": 10**9, "T": 10**12}
_BINARY_PREFIXES = {"Ki": 1 << 10, "Mi": 1 << 20, "Gi": 1 << 30, "Ti": 1 << 40}
_BYTE_FACTORS = {
    **{f"{prefix}B": factor for prefix, factor in (_DECIMAL_PREFIXES | _BINARY_PREFIXES).items()},
    **dict.fromkeys(("byte", "bytes"), 1),
}
_RATE_FACTORS = {f"{unit}/s": factor for unit, factor in _BYTE_FACTORS.items()}
_UNIT_FAMILIES = (_TIME_FACTORS, _BYTE_FACTORS, _RATE_FACTORS)
# Units of integers: with other units, a point before three digits is a decimal point.
_COUNT_UNITS = ("", "blocks", "waves", "warps", "sectors", "wavefronts", "bytes")
# Other words for a unit.
_UNIT_WORDS = {
    "times": ("x", "×", "-fold", "fold"),
    "wavefronts": ("passes", "pass", "-way", "ways", "way"),
    "operations": ("FLOP/byte", "FLOPs/byte", "FLOP/B", "FLOPs", "FLOP", "ops/byte", "ops"),
    "tokens/s": ("tok/s", "tokens per second", "/s"),
    "%": ("percent", "per cent"),
}


def read_answer(value: str | int | float, unit: str) -> Number:
    """Return the number in a candidate's answer after conversion to `unit`.

    A text may contain another unit of the same quantity (``"0.3 ms"`` where µs are expected). Where the
    unit is ``%``, a number below 1 without a percent sign is a share: ``"1/32"`` and ``0.25`` are 3.125 % and
    25 %.

    Raises
    ------
    ValueError
        If the text is not a number, or could be two (see `read_number`).

    Examples
    --------
    >>> read_answer("5 ms", "µs"), read_answer("1/32", "%"), read_answer("2 KiB", "bytes")
    (5000, 3.125, 2048)
    """
    if not isinstance(value, str):
        return 100 * value if unit == "%" and isinstance(value, float) and 0 < value <= 1 else value
    number_text = value.strip()
    for factor_of_unit in _UNIT_FAMILIES:
        unit_pattern = "|".join(map(re.escape, factor_of_unit))
        if unit in factor_of_unit and (match := re.fullmatch(rf"(.*\d\.?)\s*({unit_pattern})", number_text)):
            converted_value = (
                Fraction(read_answer(match[1], match[2])) * factor_of_unit[match[2]] / factor_of_unit[unit]
            )
            return int(converted_value) if converted_value.denominator == 1 else float(converted_value)
    has_percent_sign = False
    for unit_word in (unit, *_UNIT_WORDS.get(unit, ())) if unit else ():
        if number_text.casefold().endswith(unit_word.casefold()):
            number_text = number_text[: -len(unit_word)].strip()
            has_percent_sign = unit == "%"
            break
    number_text = number_text.lstrip("~≈ ")
    if unit not in _COUNT_UNITS and re.fullmatch(r"\d{1,3}\.\d{3}", number_text):
        number_text += "0"  # three decimals, and no thousands
    if unit in ("%", "times") and re.fullmatch(r"\d{1,3},\d{3}", number_text):
        number_text = f"{number_text.replace(',', '.')}0"  # thousands of them make no sense
    answer = read_number(number_text, unit)
    if unit == "%" and not has_percent_sign:
        is_share = 0 < answer < 1 or (answer == 1 and re.search("[/.,]", number_text))
        return 100 * answer if is_share else answer
    return answer
