"""Limit the output of an answer during a check to its first lines, so that the verdict stays in sight."""

from __future__ import annotations

import contextlib
import io
import sys
from collections.abc import Iterator
from typing import TextIO

from gpulab.words import noun

MAX_LINES = 20


class _FirstLines(io.TextIOBase):
    """Output stream that passes on the first lines and counts all lines."""

    def __init__(self, target: TextIO) -> None:
        self.target = target
        self.lines = 0

    def write(self, text: str) -> int:
        written_lines = text.splitlines(keepends=True)
        self.target.write("".join(written_lines[: max(MAX_LINES - self.lines, 0)]))
        self.lines += text.count("\n")
        return len(text)

    def flush(self) -> None:
        self.target.flush()


@contextlib.contextmanager
def limit_printed_lines() -> Iterator[None]:
    """Print only the first `MAX_LINES` lines of the output of a `with` block, and the number of omitted
    lines.
    """
    output = _FirstLines(sys.stdout)
    with contextlib.redirect_stdout(output):
        yield
    print_omitted(output.lines - MAX_LINES)


def print_omitted(lines: int) -> None:
    """Print the number of omitted lines, if there are any."""
    if lines > 0:
        lines_phrase = noun(lines, "more line was", "more lines were")
        print(f"... {lines:,} {lines_phrase} printed during the check.")
