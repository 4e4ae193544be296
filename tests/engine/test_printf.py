"""Device printf prints what C's own printf does."""

from __future__ import annotations

import ctypes
import math
import struct
import sys

import pytest

from virtualgpu.engine.run import printf

INTEGERS = [0, 1, -1, 255, -2_147_483_648, 2_147_483_647]
FLOATS = [0.0, -0.0, 1.5, -1e300, 1e-310, math.pi, math.inf, -math.inf]
WHOLE = "%d,%i,%u,%x,%X,%o,%+d,% d,%-6d|,%06d,%.3d,%8.3d,%+u,%#x,%hd,%hhu,%#o,%c"
LONG = ["%lld", "%llu", "%lx", "%-24ld|", "%zu"]
REAL = ["%f", "%e", "%g", "%.3f", "%10.2e", "%+g", "%-12G|", "%#g", "%F"]


def unreadable(address: int, size: int) -> bytes:
    return b""


def said_by_c(text: str, *values: object) -> str:
    out = ctypes.create_string_buffer(1000)
    ctypes.CDLL(None).snprintf(out, 1000, text.encode(), *values)
    return out.value.decode()


@pytest.mark.skipif(sys.platform != "linux", reason="C's printf is called by ctypes")
def test_every_conversion_equals_c_printf() -> None:
    for text in WHOLE.split(","):
        for value in INTEGERS if text != "%c" else [65, 122]:
            result = printf.format_text(text, struct.pack("<i", value), unreadable)
            assert result == said_by_c(text, ctypes.c_int(value)), (text, value)
    for text in LONG:
        for value in [*INTEGERS, 1 << 62, -(1 << 63)]:
            result = printf.format_text(text, struct.pack("<q", value), unreadable)
            assert result == said_by_c(text, ctypes.c_int64(value)), (text, value)
    for text in REAL:
        for number in FLOATS:
            result = printf.format_text(text, struct.pack("<d", number), unreadable)
            assert result == said_by_c(text, ctypes.c_double(number)), (text, number)


@pytest.mark.skipif(sys.platform != "linux", reason="C's printf is called by ctypes")
def test_arguments_are_aligned_to_their_size() -> None:
    text = "100%% %d of %lld, %u: %.2f, %5.1e%% %x\n"
    packed = struct.pack("<ixxxxqIxxxxddi", -3, 1 << 40, 7, 2.5, 1e9, 255)
    values = [ctypes.c_int(-3), ctypes.c_int64(1 << 40), ctypes.c_uint(7), ctypes.c_double(2.5)]
    text_of_c = said_by_c(text, *values, ctypes.c_double(1e9), ctypes.c_int(255))
    assert printf.format_text(text, packed, unreadable) == text_of_c


def test_a_buffer_that_ends_early_reads_as_zeros() -> None:
    assert printf.format_text("%d %d", struct.pack("<i", 5), unreadable) == "5 0"


def test_a_full_buffer_counts_dropped_calls() -> None:
    printed = printf.PrintBuffer()
    printed.add("x" * printf.BUFFER_BYTES)
    printed.add("more")
    printed.add("and more")
    assert printed.dropped_calls == 2
    assert "2 more calls was discarded" in printed.text()
