"""Limit what an answer prints during a check to its first lines, so that the verdict stays in sight."""

from __future__ import annotations

import contextlib
import io
import sys
from collections.abc import Iterator
from typing import TextIO

from gpulab.words import noun

MOST_LINES = 20


class _FirstLines(io.TextIOBase):
    """Passes the first lines on and counts the others."""

    def __init__(self, target: TextIO) -> None:
        self.target = target
        self.lines = 0

    def write(self, text: str) -> int:
        pieces = text.splitlines(keepends=True)
        self.target.write("".join(pieces[: max(MOST_LINES - self.lines, 0)]))
        self.lines += text.count("\n")
        return len(text)

    def flush(self) -> None:
        self.target.flush()


@contextlib.contextmanager
def first_lines() -> Iterator[None]:
    """Show at most `MOST_LINES` lines of what is printed meanwhile, and how many were left out."""
    printed = _FirstLines(sys.stdout)
    with contextlib.redirect_stdout(printed):
        yield
    say_left_out(printed.lines - MOST_LINES)


def say_left_out(lines: int) -> None:
    """Print how many lines were left out, if any."""
    if lines > 0:
        more = noun(lines, "more line was", "more lines were")
        print(f"... {lines:,} {more} printed during the check.")
