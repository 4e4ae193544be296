"""Source line of a call: the innermost frame outside of this project and of installed libraries."""

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

_OWN_PACKAGES = ("virtualgpu", "gpulab", "gpulab_course")
_LIBRARY_PACKAGES = (*_OWN_PACKAGES, "numpy", "cupy", "cupyx", "cupy_backends", "IPython", "ipykernel")


class ProgramLines:
    """A finder of the source line that the program executes, with a cache of files and lines.

    Examples
    --------
    >>> lines = ProgramLines()
    >>> lines.find_current_line()[0].text
    'lines.find_current_line()[0].text'
    """

    def __init__(self) -> None:
        path_names = ("stdlib", "platstdlib", "purelib", "platlib")
        folders = {Path(sysconfig.get_path(name)).resolve() for name in path_names}
        # A module of this project that was started as a script is called __main__.
        project_folder = Path(__file__).resolve().parents[3]
        folders |= {project_folder / package for package in _OWN_PACKAGES}
        self._library_folders = tuple(f"{folder.as_posix()}/" for folder in folders)
        self._is_program: dict[str, bool] = {}  # whether a file belongs to the program, by name
        self._lines: dict[tuple[str, int], SourceLine] = {}

    def find_current_line(self) -> tuple[SourceLine | None, str]:
        """Return the line that the program executes in the calling thread, and the name of the function it
        calls.

        The line is None if the thread runs no code of the program.
        """
        frame, function_name = self.find_frame()
        return None if frame is None else self.find_line(frame), function_name

    def find_frame(self) -> tuple[FrameType | None, str]:
        """Return the frame of the program in the calling thread, and the library function that it calls.

        The frame is the innermost frame of the learner's code. A frame of the course's helpers is returned
        only if the learner's code did not call them.
        """
        frame: FrameType | None = sys._getframe(1)
        helper_frame: FrameType | None = None
        function_name = ""
        while frame is not None:
            if self._is_program_frame(frame):
                if not _is_helper(str(frame.f_globals.get("__name__"))):
                    return frame, function_name
                helper_frame = helper_frame or frame
            elif helper_frame is None:
                function_name = frame.f_code.co_name
            frame = frame.f_back
        return helper_frame, function_name

    def walk_program_frames(self, frame: FrameType | None) -> Iterator[FrameType]:
        """Yield the frames of the program, beginning with the given frame and continuing with its callers."""
        while frame is not None:
            if self._is_program_frame(frame):
                yield frame
            frame = frame.f_back

    def _is_program_frame(self, frame: FrameType) -> bool:
        file_name = frame.f_code.co_filename
        is_program = self._is_program.get(file_name)
        if is_program is None:
            is_program = self.is_program_file(file_name, str(frame.f_globals.get("__name__")))
            if not file_name.startswith("<"):  # a name that several modules share
                self._is_program[file_name] = is_program
        return is_program

    def find_line(self, frame: FrameType) -> SourceLine:
        """Return the source line that a frame is executing."""
        file_name = frame.f_code.co_filename
        key = file_name, frame.f_lineno
        line = self._lines.get(key)
        if line is None:
            line_text = linecache.getline(file_name, key[1], frame.f_globals).strip()
            line = self._lines[key] = SourceLine(display_name(file_name), key[1], line_text)
        return line

    def is_learner_file(self, file_name: str, module: str) -> bool:
        """Return whether a file was written by the learner. Helper files of the course are not included."""
        return not _is_helper(module) and self.is_program_file(file_name, module)

    def is_program_class(self, cls: type) -> bool:
        """Return whether a class is defined neither by this project nor by Python's standard library."""
        return cls.__module__.partition(".")[0] not in (*_LIBRARY_PACKAGES, *sys.stdlib_module_names)

    def is_program_file(self, file_name: str, module: str) -> bool:
        """Return whether a file belongs to the program, and not to Python, a library or this project.

        Code that was compiled from a string has no file and is identified by its module. The helpers that the
        course's notebooks call belong to the program, too. Cython code, such as CuPy's, has no frames.
        """
        if _is_helper(module):
            return True
        if module.partition(".")[0] in _LIBRARY_PACKAGES or module.startswith("namedtuple_"):
            return False
        if file_name.startswith(("<frozen", "<__array")):
            return False
        if file_name.startswith("<"):
            return True
        return not Path(file_name).resolve().as_posix().startswith(self._library_folders)


def _is_helper(module: str) -> bool:
    """Return whether a module belongs to the functions that the course's notebooks call."""
    return module.startswith("gpulab_course.content.")


def display_name(file_name: str) -> str:
    """Return the name of a file as it is displayed, such as ``cell [12]`` for a notebook cell."""
    ipython: Any = sys.modules.get("IPython")
    shell = ipython.get_ipython() if hasattr(ipython, "get_ipython") else None
    format_code_name = getattr(getattr(shell, "compile", None), "format_code_name", None)
    description = format_code_name(file_name) if format_code_name is not None else None
    cell = re.fullmatch(r"In\s?(\[\d+\])", description[1]) if description else None
    if cell:
        return f"cell {cell[1]}"
    return file_name if file_name.startswith("<") else Path(file_name).name
