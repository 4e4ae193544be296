"""Limit the output of an answer during a check to its first lines, so that the verdict stays in sight."""

from __future__ import annotations

import contextlib
import io
import sys
from collections.abc import Iterator
from typing import TextIO

from gpulab.words import noun

MAX_LINES = 20


class _FirstLinesStream(io.TextIOBase):
    """Output stream that passes on the first lines and counts all lines."""

    def __init__(self, output_stream: TextIO) -> None:
        self.output_stream = output_stream
        self.line_count = 0

    def write(self, text: str) -> int:
        written_lines = text.splitlines(keepends=True)
        self.output_stream.write("".join(written_lines[: max(MAX_LINES - self.line_count, 0)]))
        self.line_count += text.count("\n")
        return len(text)

    def flush(self) -> None:
        self.output_stream.flush()


@contextlib.contextmanager
def limit_printed_lines() -> Iterator[None]:
    """Print only the first `MAX_LINES` lines of the output of a `with` block, and the number of omitted
    lines.
    """
    output = _FirstLinesStream(sys.stdout)
    with contextlib.redirect_stdout(output):
        yield
    print_omitted_count(output.line_count - MAX_LINES)


def print_omitted_count(omitted_count: int) -> None:
    """Print the number of omitted lines, if there are any."""
    if omitted_count > 0:
        lines_phrase = noun(omitted_count, "more line was", "more lines were")
        print(f"... {omitted_count:,} {lines_phrase} printed during the check.")
