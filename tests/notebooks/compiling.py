"""What a notebook's kernel compiles, noted from within: its first and last cell call this."""

from __future__ import annotations

import contextlib
import pickle
from collections.abc import Sequence
from pathlib import Path

from tools import shipped_ptx
from tools.shipped_ptx import CompiledImage

_open = contextlib.ExitStack()
_made: list[CompiledImage] = []

BEGIN = "from tests.notebooks import compiling; compiling.begin()"


def end_in(path: Path) -> str:
    """The last cell, which writes to a file."""
    return f"compiling.end({str(path)!r})"


def begin() -> None:
    _open.enter_context(shipped_ptx.record_images(_made))


def end(path: str) -> None:
    _open.close()
    Path(path).write_bytes(pickle.dumps(_made))


def noted(path: Path) -> Sequence[CompiledImage]:
    images: list[CompiledImage] = pickle.loads(path.read_bytes())
    return images
