"""Numbers and lists of operands as PTX spells them (PTX ISA 9.0, chapter 4.5), against rules written anew."""

from __future__ import annotations

import re
import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from virtualgpu.compile.ptx import literals
from virtualgpu.errors import PtxError

# Hexadecimal, binary, octal and decimal integers, with U behind them or not, after an optional minus.
RADIX = {r"0[xX][0-9a-fA-F]+": 16, r"0[bB][01]+": 2, r"0[0-7]*": 8, r"[1-9][0-9]*": 10}


def integer(text: str) -> int | None:
    """Parse an integer constant as the ISA defines it; None if the text is not one."""
    sign, digits = (-1, text[1:]) if text.startswith("-") else (1, text)
    for pattern, base in RADIX.items():
        if re.fullmatch(pattern + "U?", digits):
            return sign * int(re.sub("^0[xXbB]", "", digits).rstrip("U"), base)
    return None


@given(st.text("0123456789abcdefxXbBoU_-+ .", max_size=12))
def test_integers(text: str) -> None:
    expected = integer(text)
    if expected is None:
        with pytest.raises(PtxError, match="not an integer constant of PTX"):
            literals.parse_integer(text)
    else:
        assert literals.parse_integer(text) == expected


@given(st.integers(-(2**63), 2**64 - 1), st.sampled_from(["{}", "{:#x}", "{:#b}", "{}U"]))
def test_integers_of_every_size(value: int, form: str) -> None:
    assert literals.parse_integer(form.format(value)) == value
    assert literals.parse_immediate(form.format(value)).value == value


@given(st.floats(allow_nan=False, allow_infinity=False), st.sampled_from(["f32", "f64"]))
def test_decimal_fractions_have_the_bits_of_the_type(value: float, kind: str) -> None:
    text = f"{value:.17e}" if abs(value) >= 1e16 or 0 < abs(value) < 1e-4 else f"{value:.20f}"
    code = "f" if kind == "f32" else "d"
    try:
        expected = int.from_bytes(struct.pack(f"<{code}", float(text)), "little")
    except OverflowError:
        with pytest.raises(PtxError, match="not a constant of PTX"):
            literals.parse_immediate(text, kind)
    else:
        result = literals.parse_immediate(text, kind)
        assert (result.value, result.float_bits) == (expected, 32 if kind == "f32" else 64)


@given(st.integers(0, 2**32 - 1), st.integers(0, 2**64 - 1))
def test_bits_of_floats_in_hexadecimal(single: int, double: int) -> None:
    for prefix in ("0f", "0F"):
        result = literals.parse_immediate(f"{prefix}{single:08X}")
        assert (result.value, result.float_bits) == (single, 32)
    result = literals.parse_immediate(f"0d{double:016x}")
    assert (result.value, result.float_bits) == (double, 64)


@pytest.mark.parametrize(
    "text", ["0f3F80", "0f3F8000001", "0d0", "0f-3F80000", "0f3F8000_0", ".", "1.5.2", "0dxyz"]
)
def test_invalid_constants_are_refused(text: str) -> None:
    with pytest.raises(PtxError, match=r"is not an? (?:integer )?constant of PTX"):
        literals.parse_immediate(text)


LISTS = st.recursive(
    st.text("%abr1+", max_size=4),
    lambda inner: st.tuples(st.sampled_from(["[]", "{}", "()"]), st.lists(inner, min_size=1, max_size=3)).map(
        lambda made: made[0][0] + ",".join(made[1]) + made[0][1]
    ),
    max_leaves=8,
)


@given(st.lists(LISTS, min_size=1, max_size=5))
def test_operands_are_split_only_at_top_level_commas(parts: list[str]) -> None:
    text = ",".join(parts)
    assert list(literals.split_operands(text)) == (parts if text.strip() else [])
