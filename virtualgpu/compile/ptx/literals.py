"""Numbers as PTX spells them, and lists of operands."""

from __future__ import annotations

import re
import struct
from collections.abc import Iterator

from virtualgpu.compile.ptx import ir
from virtualgpu.errors import PtxError


def split(text: str) -> Iterator[str]:
    """Pieces between the commas that are in no brackets."""
    depth = start = 0
    if not text.strip():
        return
    for position, character in enumerate(text):
        if character in "[{(":
            depth += 1
        elif character in "]})":
            depth -= 1
        elif character == "," and depth == 0:
            yield text[start:position]
            start = position + 1
    yield text[start:]


def integer(text: str) -> int:
    """An integer constant: decimal, hexadecimal, octal or binary.

    Raises
    ------
    PtxError
        If it is none.
    """
    text = text.rstrip("uU") or "0"
    try:
        if len(text) > 1 and text[0] == "0" and text[1] in "01234567":
            return int(text, 8)
        return int(text, 0)
    except ValueError:
        raise PtxError(f"{text!r} is no integer PTX knows.") from None


def immediate(text: str, kind: str = "f64") -> ir.Immediate:
    """A constant; a decimal fraction has the bits of the given type.

    Raises
    ------
    PtxError
        If it is no number.
    """
    try:
        if text[:2] in ("0f", "0F"):
            return ir.Immediate(int(text[2:], 16) & 0xFFFFFFFF, 32)
        if text[:2] in ("0d", "0D"):
            return ir.Immediate(int(text[2:], 16) & 0xFFFFFFFFFFFFFFFF, 64)
        if re.fullmatch(r"-?\d*\.\d*(?:[eE][-+]?\d+)?", text):
            packed = struct.pack("<f" if kind == "f32" else "<d", float(text))
            return ir.Immediate(int.from_bytes(packed, "little"), 8 * len(packed))
    except (ValueError, OverflowError):
        raise PtxError(f"{text!r} is no number PTX knows.") from None
    return ir.Immediate(integer(text))
