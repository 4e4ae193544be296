"""The function ``printf`` of kernels: it applies C formats to the packed arguments of a lane."""

from __future__ import annotations

import functools
import re
import struct
from collections.abc import Callable
from dataclasses import dataclass

_SPECIFIER_PATTERN = re.compile(
    r"%([-+ #0]*)(\*|\d+)?(?:\.(\*|\d+))?(hh|h|ll|l|j|z|t|L)?([diouxXcsfFeEgGaAp%])"
)
_INTEGER_CONVERSIONS = "diouxXc"
MAX_STRING_BYTES = 4096
# Size of CUDA's own buffer (the default of cudaLimitPrintfFifoSize).
BUFFER_BYTES = 1 << 20
# The widest field that is printed with its full width.
_MAX_WIDTH_COLUMNS = 4096


class PrintBuffer:
    """A buffer for the printed output of a kernel launch. The buffer has the same size as CUDA's buffer.

    Further calls of ``printf`` are only counted.
    """

    def __init__(self) -> None:
        self._call_outputs: list[str] = []
        self._size_bytes = 0
        self.dropped_calls = 0

    @property
    def has_space(self) -> bool:
        return self._size_bytes < BUFFER_BYTES

    def add(self, text: str) -> None:
        """Add the output of one ``printf`` call, or discard it if the buffer is full."""
        if not self.has_space:
            self.dropped_calls += 1
            return
        self._call_outputs.append(text)
        self._size_bytes += len(text)

    @property
    def call_count(self) -> int:
        """Number of ``printf`` calls in the launch so far."""
        return len(self._call_outputs) + self.dropped_calls

    def text(self) -> str:
        """Return the complete output. If calls were discarded, the last line states their number."""
        output = "".join(self._call_outputs)
        if self.dropped_calls:
            output += (
                f"\n[the printf buffer of 1 MiB is full: the output of {self.dropped_calls:,} more calls was "
                "discarded]\n"
            )
        return output


def read_string(read_memory: Callable[[int, int], bytes], address: int) -> str:
    """Return the NUL-terminated string at a device address, or a marker if it cannot be read."""
    string_bytes = bytearray()
    while len(string_bytes) < MAX_STRING_BYTES:
        byte = read_memory(address + len(string_bytes), 1)
        if not byte:
            return "(unreadable string)" if not string_bytes else string_bytes.decode(errors="replace")
        if byte == b"\0":
            break
        string_bytes += byte
    return string_bytes.decode(errors="replace")


@functools.lru_cache(maxsize=256)
def count_arguments(template: str) -> int:
    """Return the number of arguments that a format string needs. CUDA's ``printf`` returns this number."""
    specifiers = _SPECIFIER_PATTERN.findall(template)
    return sum(
        1 + (width == "*") + (precision == "*")
        for _, width, precision, _, conversion in specifiers
        if conversion != "%"
    )


def _limit_width(columns: str | None) -> str | None:
    """Return a width or precision, limited so that the output cannot fill the host's memory."""
    return columns if columns is None or abs(int(columns)) <= _MAX_WIDTH_COLUMNS else str(_MAX_WIDTH_COLUMNS)


def _format_integer(format_spec: str, conversion: str, value: int) -> str:
    """Format an integer as C does where Python differs: for signs and for the flag ``#``."""
    if conversion in "ouxX":
        format_spec = format_spec.replace("+", "").replace(" ", "")
    if "#" in format_spec and (conversion == "o" or not value):
        format_spec = format_spec.replace("#", "")
        digits = f"0{value:o}" if conversion == "o" and value else "0"
        if "." not in format_spec and not re.match(r"%-?0", format_spec):
            return str((format_spec + "s") % digits)
    return str((format_spec + ("d" if conversion == "u" else conversion)) % value)


def _format_hexadecimal(float_value: float, conversion: str) -> str:
    """Format a floating-point number as ``%a`` does, with no more digits than necessary."""
    hex_text = float_value.hex()
    if "p" in hex_text:
        mantissa_text, exponent_text = hex_text.split("p")
        hex_text = (
            mantissa_text.rstrip("0").rstrip(".") + "p" + exponent_text if "." in mantissa_text else hex_text
        )
    return hex_text.upper() if conversion == "A" else hex_text


@dataclass(frozen=True, slots=True)
class _PythonFormat:
    """A format string with the same meaning in Python and C: its text, and the layout of its arguments."""

    text: str
    argument_layout: struct.Struct


@functools.lru_cache(maxsize=256)
def _make_python_format(template: str) -> _PythonFormat | None:
    """Return a C format as a Python format, or None if Python has no equivalent."""
    format_parts: list[str] = []
    struct_format = "<"
    offset = 0
    previous_end = 0
    for match in _SPECIFIER_PATTERN.finditer(template):
        flags, width, precision, length, conversion = match.groups()
        format_parts.append(template[previous_end : match.start()].replace("%", "%%"))
        previous_end = match.end()
        if conversion == "%":
            format_parts.append("%%")
            continue
        is_unsigned = conversion in "uoxX"
        is_integer = conversion in _INTEGER_CONVERSIONS
        differs_from_python = conversion in "cspaA" or length in ("h", "hh") or "*" in (width, precision)
        if (
            differs_from_python
            or (is_integer and "#" in flags)
            or (is_unsigned and ("+" in flags or " " in flags))
        ):
            return None
        value_bytes = 8 if not is_integer or length in ("ll", "l", "j", "z", "t") else 4
        struct_code = "d"
        if is_integer:
            struct_code = "q" if value_bytes == 8 else "i"
            struct_code = struct_code.upper() if is_unsigned else struct_code
        struct_format += "x" * (-offset % value_bytes) + struct_code
        offset += -offset % value_bytes + value_bytes
        width = _limit_width(width)
        precision = _limit_width(precision)
        width_and_precision = (width or "") + (f".{precision}" if precision is not None else "")
        format_parts.append(f"%{flags}{width_and_precision}{'d' if conversion == 'u' else conversion}")
    return _PythonFormat(
        "".join([*format_parts, template[previous_end:].replace("%", "%%")]), struct.Struct(struct_format)
    )


def format_text(template: str, buffer: bytes, read_memory: Callable[[int, int], bytes]) -> str:
    """Return the text that a ``printf`` call prints. The buffer contains the arguments in CUDA's format."""
    python_format = _make_python_format(template)
    if python_format is not None and len(buffer) >= python_format.argument_layout.size:
        return python_format.text % python_format.argument_layout.unpack_from(buffer)
    return _format_any_template(template, buffer, read_memory)


def _format_any_template(template: str, buffer: bytes, read_memory: Callable[[int, int], bytes]) -> str:
    """Apply any C format to packed arguments, one argument after the other."""
    offset = 0

    def next_bytes(size: int) -> bytes:
        nonlocal offset
        offset = -(-offset // size) * size
        argument = buffer[offset : offset + size].ljust(size, b"\0")
        offset += size
        return argument

    def replacement(match: re.Match[str]) -> str:
        flags, width, precision, length, conversion = match.groups()
        if conversion == "%":
            return "%"
        if width == "*":
            width = str(struct.unpack("<i", next_bytes(4))[0])
        if precision == "*":
            precision = str(struct.unpack("<i", next_bytes(4))[0])
        width = _limit_width(width)
        precision = _limit_width(precision)
        format_spec = "%" + flags + (width or "") + (f".{precision}" if precision is not None else "")
        if conversion in _INTEGER_CONVERSIONS:
            is_64_bit = length in ("ll", "l", "j", "z", "t")
            struct_code = "<q" if is_64_bit else "<i"
            (value,) = struct.unpack(
                struct_code if conversion in "di" else struct_code.upper(), next_bytes(8 if is_64_bit else 4)
            )
            if length in ("h", "hh") and conversion != "c":
                width_bits = 16 if length == "h" else 8
                value &= (1 << width_bits) - 1
                if conversion in "di" and value >> (width_bits - 1):
                    value -= 1 << width_bits
            if conversion == "c":
                return str((format_spec + "c") % chr(value & 0xFF))
            return _format_integer(format_spec, conversion, value)
        if conversion == "s":
            (pointer,) = struct.unpack("<Q", next_bytes(8))
            return str((format_spec + "s") % (read_string(read_memory, pointer) if pointer else "(null)"))
        if conversion == "p":
            (pointer,) = struct.unpack("<Q", next_bytes(8))
            return f"{pointer:#x}"
        (float_value,) = struct.unpack("<d", next_bytes(8))
        if conversion in "aA":
            return _format_hexadecimal(float_value, conversion)
        return str((format_spec + conversion) % float_value)

    return _SPECIFIER_PATTERN.sub(replacement, template)
