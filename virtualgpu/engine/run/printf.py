"""Device ``printf``: C formats applied to the packed argument buffer of a lane."""

from __future__ import annotations

import functools
import re
import struct
from collections.abc import Callable
from dataclasses import dataclass

_SPECIFIER = re.compile(r"%([-+ #0]*)(\*|\d+)?(?:\.(\*|\d+))?(hh|h|ll|l|j|z|t|L)?([diouxXcsfFeEgGaAp%])")
_INTEGERS = "diouxXc"
MAX_STRING_BYTES = 4096
# What CUDA's own buffer holds (cudaLimitPrintfFifoSize's default).
BUFFER_BYTES = 1 << 20
# The widest field that is printed as asked.
_MOST_COLUMNS = 4096


class Printed:
    """What a launch prints: as much as CUDA's buffer holds, then only how much more there was."""

    def __init__(self) -> None:
        self._pieces: list[str] = []
        self._size_bytes = 0
        self.dropped = 0

    @property
    def has_room(self) -> bool:
        return self._size_bytes < BUFFER_BYTES

    def add(self, text: str) -> None:
        """One call's text; a call that finds the buffer full prints nothing."""
        if not self.has_room:
            self.dropped += 1
            return
        self._pieces.append(text)
        self._size_bytes += len(text)

    @property
    def calls(self) -> int:
        """Calls of ``printf`` so far."""
        return len(self._pieces) + self.dropped

    def text(self) -> str:
        """All of it, with a last line that says what was dropped."""
        text = "".join(self._pieces)
        if self.dropped:
            text += f"\n[the printf buffer of 1 MiB is full: {self.dropped:,} more calls printed nothing]\n"
        return text


def text_at(read: Callable[[int, int], bytes], address: int) -> str:
    """The NUL-terminated string at a device address; a marker where it cannot be read."""
    out = bytearray()
    while len(out) < MAX_STRING_BYTES:
        piece = read(address + len(out), 1)
        if not piece:
            return "(unreadable string)" if not out else out.decode(errors="replace")
        if piece == b"\0":
            break
        out += piece
    return out.decode(errors="replace")


@functools.lru_cache(maxsize=256)
def arguments_of(template: str) -> int:
    """Arguments that a format asks for, which is what CUDA's ``printf`` returns."""
    found = _SPECIFIER.findall(template)
    return sum(
        1 + (width == "*") + (precision == "*") for _, width, precision, _, kind in found if kind != "%"
    )


def _clamped(columns: str | None) -> str | None:
    """A width or precision that cannot fill the host's memory."""
    return columns if columns is None or abs(int(columns)) <= _MOST_COLUMNS else str(_MOST_COLUMNS)


def _integer(spec: str, kind: str, value: int) -> str:
    """As C prints it, where Python differs: no sign of unsigned numbers, ``#`` of zero and of octals."""
    if kind in "ouxX":
        spec = spec.replace("+", "").replace(" ", "")
    if "#" in spec and (kind == "o" or not value):
        spec = spec.replace("#", "")
        digits = f"0{value:o}" if kind == "o" and value else "0"
        if "." not in spec and not re.match(r"%-?0", spec):
            return str((spec + "s") % digits)
    return str((spec + ("d" if kind == "u" else kind)) % value)


def _hexadecimal(number: float, kind: str) -> str:
    """``%a``: no more digits than it takes."""
    text = number.hex()
    if "p" in text:
        digits, exponent = text.split("p")
        text = digits.rstrip("0").rstrip(".") + "p" + exponent if "." in digits else text
    return text.upper() if kind == "A" else text


@dataclass(frozen=True, slots=True)
class _Plain:
    """A format of which Python and C think alike: its text, and how its arguments lie one after the other."""

    text: str
    packed: struct.Struct


@functools.lru_cache(maxsize=256)
def _plain(template: str) -> _Plain | None:
    """A format as Python's own, or None where it takes more than that."""
    text: list[str] = []
    packed = "<"
    at = 0
    end = 0
    for found in _SPECIFIER.finditer(template):
        flags, width, precision, length, kind = found.groups()
        text.append(template[end : found.start()].replace("%", "%%"))
        end = found.end()
        if kind == "%":
            text.append("%%")
            continue
        unsigned = kind in "uoxX"
        whole = kind in _INTEGERS
        rare = kind in "cspaA" or length in ("h", "hh") or "*" in (width, precision)
        if rare or (whole and "#" in flags) or (unsigned and ("+" in flags or " " in flags)):
            return None
        size = 8 if not whole or length in ("ll", "l", "j", "z", "t") else 4
        code = ("IQ" if unsigned else "iq")[size == 8] if whole else "d"
        packed += "x" * (-at % size) + code
        at += -at % size + size
        width = _clamped(width)
        precision = _clamped(precision)
        columns = (width or "") + (f".{precision}" if precision is not None else "")
        text.append(f"%{flags}{columns}{'d' if kind == 'u' else kind}")
    return _Plain("".join([*text, template[end:].replace("%", "%%")]), struct.Struct(packed))


def format_text(template: str, buffer: bytes, read: Callable[[int, int], bytes]) -> str:
    """Apply a C format to arguments packed as CUDA packs them: 4 or 8 bytes, aligned to their size."""
    plain = _plain(template)
    if plain is not None and len(buffer) >= plain.packed.size:
        return plain.text % plain.packed.unpack_from(buffer)
    return _format_any(template, buffer, read)


def _format_any(template: str, buffer: bytes, read: Callable[[int, int], bytes]) -> str:
    """`format_text` of every format, one argument after the other."""
    at = 0

    def take(size: int) -> bytes:
        nonlocal at
        at = -(-at // size) * size
        piece = buffer[at : at + size].ljust(size, b"\0")
        at += size
        return piece

    def one(found: re.Match[str]) -> str:
        flags, width, precision, length, kind = found.groups()
        if kind == "%":
            return "%"
        if width == "*":
            width = str(struct.unpack("<i", take(4))[0])
        if precision == "*":
            precision = str(struct.unpack("<i", take(4))[0])
        width = _clamped(width)
        precision = _clamped(precision)
        spec = "%" + flags + (width or "") + (f".{precision}" if precision is not None else "")
        if kind in _INTEGERS:
            wide = length in ("ll", "l", "j", "z", "t")
            code = "<q" if wide else "<i"
            (value,) = struct.unpack(code if kind in "di" else code.upper(), take(8 if wide else 4))
            if length in ("h", "hh") and kind != "c":
                size = 16 if length == "h" else 8
                value &= (1 << size) - 1
                if kind in "di" and value >> (size - 1):
                    value -= 1 << size
            if kind == "c":
                return str((spec + "c") % chr(value & 0xFF))
            return _integer(spec, kind, value)
        if kind == "s":
            (pointer,) = struct.unpack("<Q", take(8))
            return str((spec + "s") % (text_at(read, pointer) if pointer else "(null)"))
        if kind == "p":
            (pointer,) = struct.unpack("<Q", take(8))
            return f"{pointer:#x}"
        (number,) = struct.unpack("<d", take(8))
        if kind in "aA":
            return _hexadecimal(number, kind)
        return str((spec + kind) % number)

    return _SPECIFIER.sub(one, template)
