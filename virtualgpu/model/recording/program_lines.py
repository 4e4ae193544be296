"""Which line of the program makes a call: the first frame that is neither ours nor an installed library's."""

from __future__ import annotations

import linecache
import re
import sys
import sysconfig
from collections.abc import Iterator
from pathlib import Path
from types import FrameType
from typing import Any

from virtualgpu.records.timeline import SourceLine

_OURS = ("virtualgpu", "gpulab", "gpulab_course")
_PACKAGES = (*_OURS, "numpy", "cupy", "cupyx", "cupy_backends", "IPython", "ipykernel")


class ProgramLines:
    """Finds the program's line cheaply: what is known of a file and of a line is kept.

    Examples
    --------
    >>> lines = ProgramLines()
    >>> lines.here()[0].text
    'lines.here()[0].text'
    """

    def __init__(self) -> None:
        places = ("stdlib", "platstdlib", "purelib", "platlib")
        folders = {Path(sysconfig.get_path(name)).resolve() for name in places}
        # A module of ours that a process was started with is called __main__.
        here = Path(__file__).resolve().parents[3]
        folders |= {here / package for package in _OURS}
        self._libraries = tuple(f"{folder.as_posix()}/" for folder in folders)
        self._outside: dict[str, bool] = {}  # by file name: whether it belongs to the program
        self._lines: dict[tuple[str, int], SourceLine] = {}

    def here(self) -> tuple[SourceLine | None, str]:
        """The line of the program that the calling thread is at, and the name of the function it called.

        None where the thread runs nothing of the program, such as a widget's callback.
        """
        frame, called = self.frame()
        return None if frame is None else self.line(frame), called

    def frame(self) -> tuple[FrameType | None, str]:
        """The frame of the program that the calling thread is in, and the function that it called."""
        frame: FrameType | None = sys._getframe(1)
        called = ""
        while frame is not None:
            if self._is_own(frame):
                return frame, called
            called = frame.f_code.co_name
            frame = frame.f_back
        return None, called

    def outward(self, frame: FrameType | None) -> Iterator[FrameType]:
        """Those of the program among a frame and its callers, the innermost first."""
        while frame is not None:
            if self._is_own(frame):
                yield frame
            frame = frame.f_back

    def _is_own(self, frame: FrameType) -> bool:
        name = frame.f_code.co_filename
        belongs = self._outside.get(name)
        if belongs is None:
            belongs = self.belongs(name, str(frame.f_globals.get("__name__")))
            if not name.startswith("<"):  # a name that several modules share
                self._outside[name] = belongs
        return belongs

    def line(self, frame: FrameType) -> SourceLine:
        """The line that a frame is at."""
        name = frame.f_code.co_filename
        key = name, frame.f_lineno
        line = self._lines.get(key)
        if line is None:
            text = linecache.getline(name, key[1], frame.f_globals).strip()
            line = self._lines[key] = SourceLine(shown(name), key[1], text)
        return line

    def is_own_class(self, cls: type) -> bool:
        """Whether a class is one of the program's, or of a library that is none of ours."""
        return cls.__module__.partition(".")[0] not in (*_PACKAGES, *sys.stdlib_module_names)

    def belongs(self, name: str, module: str) -> bool:
        """Whether a file is the program's own. What is made from strings has no file, but a module's name:
        ours for dataclasses, one of its own for a named tuple. What the course's folders run for a notebook
        is program, too.

        Cython's sources, such as CuPy's, make no frames.
        """
        if module.startswith("gpulab_course.content."):
            return True
        if module.partition(".")[0] in _PACKAGES or module.startswith("namedtuple_"):
            return False
        if name.startswith(("<frozen", "<__array")):
            return False
        if name.startswith("<"):
            return True
        return not Path(name).resolve().as_posix().startswith(self._libraries)


def shown(name: str) -> str:
    """A file's name as a page shows it: ``cell [12]`` for a notebook's cell."""
    ipython: Any = sys.modules.get("IPython")
    shell = ipython.get_ipython() if hasattr(ipython, "get_ipython") else None
    told = getattr(getattr(shell, "compile", None), "format_code_name", lambda _: None)(name)
    cell = re.fullmatch(r"In\s?(\[\d+\])", told[1]) if told else None
    if cell:
        return f"cell {cell[1]}"
    return name if name.startswith("<") else Path(name).name
