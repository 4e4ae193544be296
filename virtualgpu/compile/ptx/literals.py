"""Parsers for numbers and lists of operands in PTX."""

from __future__ import annotations

import re
import struct
from collections.abc import Iterator

from virtualgpu.compile.ptx import ir
from virtualgpu.errors import PtxError

_BRACKET_PATTERN = re.compile(r"[\[\](){}]")
_INTEGER_PATTERN = re.compile(r"-?(?:0[xX][0-9a-fA-F]+|0[bB][01]+|(?P<octal>0[0-7]+)|0|[1-9][0-9]*)U?")
_FLOAT_BITS_PATTERN = re.compile(r"(?P<single>0[fF][0-9a-fA-F]{8})|0[dD][0-9a-fA-F]{16}")
_FRACTION_PATTERN = re.compile(r"-?[0-9]*\.[0-9]*(?:[eE][-+]?[0-9]+)?")


def split_operands(text: str) -> Iterator[str]:
    """Split a text at the commas outside of brackets, and yield the parts."""
    if not text.strip():
        return
    if not _BRACKET_PATTERN.search(text):
        yield from text.split(",")
        return
    bracket_depth = part_start = 0
    for position, character in enumerate(text):
        if character in "[{(":
            bracket_depth += 1
        elif character in "]})":
            bracket_depth -= 1
        elif character == "," and bracket_depth == 0:
            yield text[part_start:position]
            part_start = position + 1
    yield text[part_start:]


def parse_integer(text: str) -> int:
    """Parse an integer constant in decimal, hexadecimal, octal or binary notation (PTX ISA 9.0, chapter
    4.5.1).

    Raises
    ------
    PtxError
        If the text is not an integer.
    """
    match = _INTEGER_PATTERN.fullmatch(text)
    if not match:
        raise PtxError(f"{text!r} is not an integer constant of PTX.")
    digits = text.rstrip("U")
    return int(digits, 8 if match["octal"] else 0)


def parse_immediate(text: str, kind: str = "f64") -> ir.Immediate:
    """Parse a numeric constant of PTX. A decimal fraction is converted to the bits of a number of type
    `kind`.

    Raises
    ------
    PtxError
        If the text is not a number.
    """
    if match := _FLOAT_BITS_PATTERN.fullmatch(text):
        return ir.Immediate(int(text[2:], 16), 32 if match["single"] else 64)
    if _FRACTION_PATTERN.fullmatch(text):
        try:
            number_bytes = struct.pack("<f" if kind == "f32" else "<d", float(text))
        except (ValueError, OverflowError):
            raise PtxError(f"{text!r} is not a constant of PTX.") from None
        return ir.Immediate(int.from_bytes(number_bytes, "little"), 8 * len(number_bytes))
    return ir.Immediate(parse_integer(text))
