"""Numbers as candidates write them: in another unit, as a share or a percentage."""

from __future__ import annotations

import re
from fractions import Fraction

from gpulab_course.teach.predictions.numbers import Number, read_number

# Reading a text in another unit must not lose what a question about exact bytes compares: all are integers.
_TIMES = {"ns": 1, "µs": 1_000, "μs": 1_000, "us": 1_000, "ms": 10**6, "s": 10**9}
_DECIMAL = {"": 1, "k": 10**3, "K": 10**3, "M": 10**6, "G": 10**9, "T": 10**12}
_BINARY = {"Ki": 1 << 10, "Mi": 1 << 20, "Gi": 1 << 30, "Ti": 1 << 40}
_BYTES = {
    **{f"{prefix}B": factor for prefix, factor in (_DECIMAL | _BINARY).items()},
    **dict.fromkeys(("byte", "bytes"), 1),
}
_RATES = {f"{unit}/s": factor for unit, factor in _BYTES.items()}
_FAMILIES = (_TIMES, _BYTES, _RATES)
# What comes in whole numbers: in texts of others a point before three digits is a decimal point.
_COUNTED = ("", "blocks", "waves", "warps", "sectors", "wavefronts", "bytes")
# Other words for a unit.
_WORDS = {
    "times": ("x", "×", "-fold", "fold"),
    "wavefronts": ("passes", "pass", "-way", "ways", "way"),
    "operations": ("FLOP/byte", "FLOPs/byte", "FLOP/B", "FLOPs", "FLOP", "ops/byte", "ops"),
    "tokens/s": ("tok/s", "tokens per second", "/s"),
    "%": ("percent", "per cent"),
}


def read_answer(value: str | int | float, unit: str) -> Number:
    """Return the number that an answer means in `unit`.

    A text may have a unit of its own that measures the same (``"0.3 ms"`` where µs are expected). Where the
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
    text = value.strip()
    for family in _FAMILIES:
        endings = "|".join(map(re.escape, family))
        if unit in family and (own := re.fullmatch(rf"(.*\d\.?)\s*({endings})", text)):
            exact = Fraction(read_answer(own[1], own[2])) * family[own[2]] / family[unit]
            return int(exact) if exact.denominator == 1 else float(exact)
    percent = False
    for word in (unit, *_WORDS.get(unit, ())) if unit else ():
        if text.casefold().endswith(word.casefold()):
            text = text[: -len(word)].strip()
            percent = unit == "%"
            break
    text = text.lstrip("~≈ ")
    if unit not in _COUNTED and re.fullmatch(r"\d{1,3}\.\d{3}", text):
        text += "0"  # three decimals, and no thousands
    if unit in ("%", "times") and re.fullmatch(r"\d{1,3},\d{3}", text):
        text = f"{text.replace(',', '.')}0"  # thousands of them make no sense
    number = read_number(text, unit)
    if unit == "%" and not percent and (0 < number < 1 or (number == 1 and re.search("[/.,]", text))):
        return 100 * number
    return number
