"""Which lines of a folder's modules are passed over, in this process and in those that it starts.

All of them mark a byte for each line in one file that they share: what is forked goes on marking, and what is
killed has marked. `environment` makes each Python process that is started with it do so from its beginning.
"""

from __future__ import annotations

import mmap
import os
import sys
import threading
from pathlib import Path
from types import FrameType
from typing import Any

FOLDER = "GPULAB_MUTATE_WATCH"
SHARED = "GPULAB_MUTATE_SHARED"
# Python imports it at each start, wherever it lies on the path.
_CUSTOM = "from tools import passed\n\npassed.Passed.of_environment().watch()\n"


class Passed:
    """Lines of the modules below a folder, as they are passed over.

    Parameters
    ----------
    folder
        What is watched.
    shared
        The file that processes share; made if it is not there.
    """

    def __init__(self, folder: Path, shared: Path) -> None:
        self._starts: dict[str, int] = {}
        size = 1
        for file in sorted(folder.rglob("*.py")):
            self._starts[str(file)] = size
            size += 1 + len(file.read_bytes().splitlines())
        with shared.open("a+b") as file_:
            file_.truncate(size)
            self._marks = mmap.mmap(file_.fileno(), size)

    @classmethod
    def of_environment(cls) -> Passed:
        """What this process was started with."""
        return cls(Path(os.environ[FOLDER]), Path(os.environ[SHARED]))

    def watch(self) -> None:
        """Mark what this thread passes over, and each that is started from now on."""
        threading.settrace(self._called)
        sys.settrace(self._called)

    def taken(self) -> dict[str, list[int]]:
        """The lines that were passed over since this was last asked, by file."""
        held, self._marks[:] = self._marks[:], bytes(len(self._marks))
        ends = [*self._starts.values(), len(held)][1:]
        found = {
            name: [n for n, mark in enumerate(held[start:end]) if mark and n]
            for (name, start), end in zip(self._starts.items(), ends, strict=True)
        }
        return {name: lines for name, lines in found.items() if lines}

    def _called(self, frame: FrameType, event: str, _arg: object) -> Any:
        start = self._starts.get(frame.f_code.co_filename)
        if start is None:
            return None
        marks = self._marks
        marks[start + (frame.f_lineno or 0)] = 1

        def line(inner: FrameType, _event: str, _arg: object) -> Any:
            marks[start + (inner.f_lineno or 0)] = 1
            return line

        return line


def environment(folder: Path, shared: Path, custom: Path) -> dict[str, str]:
    """Variables with which Python processes mark what they pass over; `custom` is a folder for that alone.

    ``PYTHONPATH`` is among them, and has to go on with where these tools are.
    """
    (custom / "sitecustomize.py").write_text(_CUSTOM, encoding="utf-8")
    return {FOLDER: str(folder), SHARED: str(shared), "PYTHONPATH": str(custom)}
