"""Which line of the program made a call, told from times: cheap enough to stay on while a loop launches.

Python says when each line of the program begins; a call into CUDA belongs to the line that its thread had
begun last. After a line's first `KEPT` beginnings Python is told to be silent about it, so that the cost
ends; from then on a call belongs to the line that calls of that name came from, if that was one line only.
Before Python 3.12 a single line cannot be silenced, and later calls have no line.
"""

from __future__ import annotations

import bisect
import linecache
import sys
import threading
import time
from collections import defaultdict
from collections.abc import Callable
from types import CodeType, FrameType
from typing import Any

from virtualgpu.model.recording.program_lines import ProgramLines, shown
from virtualgpu.records.timeline import SourceLine

KEPT = 1024
_MAX_BEGINNINGS = 200_000

# When, the thread's number in the system, and the line: its code and number.
_Beginning = tuple[int, int, CodeType, int]


class LineWatch:
    """Watches the lines of the program from `start` to `stop`, then answers `line`."""

    def __init__(self) -> None:
        self._program = ProgramLines()
        self._ours: dict[CodeType, bool] = {}
        self._files: dict[str, bool] = {}
        self._begun: list[_Beginning] = []
        self._counts: dict[tuple[CodeType, int], int] = defaultdict(int)
        self._silenced: dict[tuple[CodeType, int], int] = {}  # when Python fell silent about a line
        self._blind_from_ns: int | None = None
        self._stop: Callable[[], None] = lambda: None
        self._answers: _Answers | None = None

    def start(self) -> None:
        """Begin to watch; where another tool watches already, such as a debugger, no line is known."""
        if sys.version_info >= (3, 12):
            self._start_monitoring()
        elif sys.gettrace() is None:
            self._start_tracing()

    def stop(self) -> None:
        self._stop()
        self._stop = lambda: None

    def line(self, thread: int, time_ns: int, call: str) -> SourceLine | None:
        """The line that made a call; ask in the order of `time_ns` within a thread.

        Parameters
        ----------
        thread
            The system's number of the thread.
        time_ns
            When the call began, on the clock of `time.time_ns`.
        call
            What was called: a kernel's name, or CUDA's function.
        """
        if self._answers is None:
            self._answers = _Answers(self._begun, self._silenced)
        if self._blind_from_ns is not None and time_ns >= self._blind_from_ns:
            return None
        found = self._answers.line(thread, time_ns, call)
        return None if found is None else _source(*found)

    # Watching

    def _start_monitoring(self) -> None:
        monitoring = sys.monitoring  # type: ignore[attr-defined,unused-ignore]
        free = [tool for tool in (4, 3, 1, 0) if monitoring.get_tool(tool) is None]
        if not free:
            return
        tool = free[0]
        events = monitoring.events
        disable = monitoring.DISABLE
        lines = events.LINE | events.PY_RETURN | events.PY_YIELD
        watched: list[CodeType] = []

        def watch(code: CodeType) -> None:
            watched.append(code)
            monitoring.set_local_events(tool, code, lines)

        def entered(code: CodeType, _: int) -> Any:
            # Of a library's functions nothing more is told: their lines would each cost microseconds.
            if self._is_ours(code):
                watch(code)
            return disable

        def line_began(code: CodeType, line: int) -> Any:
            return disable if self._begin(code, line) else None

        def went_back(code: CodeType, offset: int, _: Any) -> Any:
            return disable if self._back(sys._getframe(1).f_back, (code, -offset)) else None

        callbacks = {
            events.PY_START: entered,
            events.LINE: line_began,
            events.PY_RETURN: went_back,
            events.PY_YIELD: went_back,
        }

        def stop() -> None:
            monitoring.set_events(tool, 0)
            for code in watched:
                monitoring.set_local_events(tool, code, 0)
            for event in callbacks:
                monitoring.register_callback(tool, event, None)
            monitoring.free_tool_id(tool)

        monitoring.use_tool_id(tool, "gpulab")
        for event, callback in callbacks.items():
            monitoring.register_callback(tool, event, callback)
        monitoring.restart_events()
        frame: FrameType | None = sys._getframe()
        while frame is not None:
            if self._is_ours(frame.f_code):
                watch(frame.f_code)
            frame = frame.f_back
        monitoring.set_events(tool, events.PY_START)
        self._stop = stop

    def _start_tracing(self) -> None:
        def in_frame(frame: FrameType, event: str, _: Any) -> Any:
            full = False
            if event == "line":
                full = self._begin(frame.f_code, frame.f_lineno)
            elif event == "return":
                full = self._back(frame.f_back, (frame.f_code, 0))
            if full:
                self._blind_from_ns = time.time_ns()
                self.stop()
                return None
            return in_frame

        def entered(frame: FrameType, event: str, _: Any) -> Any:
            return in_frame if self._is_ours(frame.f_code) else None

        traced = []
        frame: FrameType | None = sys._getframe()
        while frame is not None:
            if frame.f_trace is None and self._is_ours(frame.f_code):
                frame.f_trace = in_frame
                traced.append(frame)
            frame = frame.f_back

        def stop() -> None:
            sys.settrace(None)
            while traced:
                traced.pop().f_trace = None

        sys.settrace(entered)
        self._stop = stop

    def _begin(self, code: CodeType, line: int, key: tuple[CodeType, int] | None = None) -> bool:
        """The calling thread is at this line from now on; returns whether that was seen often enough."""
        key = key or (code, line)
        self._counts[key] = seen = self._counts[key] + 1
        now_ns = time.time_ns()
        self._begun.append((now_ns, threading.get_native_id(), code, line))
        if seen < KEPT and len(self._begun) < _MAX_BEGINNINGS:
            return False
        self._silenced[key] = now_ns
        return True

    def _back(self, frame: FrameType | None, key: tuple[CodeType, int]) -> bool:
        """A function of the program has ended: its caller's line goes on, of which Python says nothing."""
        while frame is not None and not self._is_ours(frame.f_code):
            frame = frame.f_back
        return frame is not None and self._begin(frame.f_code, frame.f_lineno, key)

    def _is_ours(self, code: CodeType) -> bool:
        """Whether code belongs to the program: in a cell or a file outside of the libraries."""
        known = self._ours.get(code)
        if known is None:
            name = code.co_filename
            known = self._files.get(name)
            if known is None:
                frame: FrameType | None = sys._getframe(1)
                while frame is not None and frame.f_code is not code:
                    frame = frame.f_back
                module = "" if frame is None else str(frame.f_globals.get("__name__"))
                known = self._program.belongs(name, module)
                if not name.startswith("<"):  # a name that several modules share
                    self._files[name] = known
            self._ours[code] = known
        return known


class _Answers:
    """Finds lines among the beginnings seen."""

    def __init__(self, begun: list[_Beginning], silenced: dict[tuple[CodeType, int], int]) -> None:
        self._times: dict[int, list[int]] = defaultdict(list)
        self._lines: dict[int, list[tuple[CodeType, int]]] = defaultdict(list)
        for time_ns, thread, code, line in begun:
            self._times[thread].append(time_ns)
            self._lines[thread].append((code, line))
        self._exact_until = min(silenced.values(), default=None)
        self._learnt: dict[str, set[tuple[CodeType, int]]] = defaultdict(set)
        self._early: set[tuple[CodeType, int]] | None = None
        self._used: dict[int, int] = {}  # by thread: since then, the last beginning that a call was given to

    def line(self, thread: int, time_ns: int, call: str) -> tuple[CodeType, int] | None:
        at = bisect.bisect_right(self._times.get(thread, ()), time_ns) - 1
        if at < 0:
            return None
        begun = self._lines[thread][at]
        if self._exact_until is None or time_ns < self._exact_until:
            self._learnt[call].add(begun)
            return begun
        # Lines have fallen silent: this one, which began last, or a silent one makes the call.
        known = self._learnt[call]
        fresh, self._used[thread] = self._used.get(thread) != at, at
        if begun in known:
            return begun
        if begun in self._before(self._exact_until) or not fresh:
            return next(iter(known)) if len(known) == 1 else None
        if any(code is not begun[0] for code, _ in known):
            return None  # a new line, which may call a function whose lines are silent
        known.add(begun)
        return begun

    def _before(self, time_ns: int) -> set[tuple[CodeType, int]]:
        """The lines that had begun by then."""
        if self._early is None:
            self._early = {
                line
                for thread, times in self._times.items()
                for line in self._lines[thread][: bisect.bisect_left(times, time_ns)]
            }
        return self._early


def _source(code: CodeType, line: int) -> SourceLine:
    name = code.co_filename
    return SourceLine(shown(name), line, linecache.getline(name, line).strip())
