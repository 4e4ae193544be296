"""Recorder of Python lines that finds the source line of a CUDA call from the time of the call.

It is fast enough to stay on while a loop launches kernels.

Python reports when each line of the program begins; a call into CUDA belongs to the line that its thread
began last. After the first `MAX_LINE_EVENTS` beginnings of a line its events are switched off, so that it
costs nothing any more; from then on a call belongs to the line from which calls of that name came, if that
was one line only. Before Python 3.12 the events of a single line cannot be switched off, and later calls have
no line.
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

from virtualgpu.model.recording.program_lines import ProgramLines, display_name
from virtualgpu.records.timeline import SourceLine

MAX_LINE_EVENTS = 1024
_MAX_LINE_STARTS = 200_000

# Time in ns, the thread's number in the system, and the line: its code and number.
_LineStart = tuple[int, int, CodeType, int]


class LineWatch:
    """A recorder of the lines that a program executes. The recorder can later find the source line of each
    call.
    """

    def __init__(self) -> None:
        self._program_lines = ProgramLines()
        self._is_program_code: dict[CodeType, bool] = {}
        self._is_program_file: dict[str, bool] = {}
        self._line_starts: list[_LineStart] = []
        self._start_counts: dict[tuple[CodeType, int], int] = defaultdict(int)
        self._switch_off_times_ns: dict[
            tuple[CodeType, int], int
        ] = {}  # time when the events of a line were switched off
        self._blind_from_ns: int | None = None
        self._stop_callback: Callable[[], None] = lambda: None
        self._line_search: _LineSearch | None = None

    def start(self) -> None:
        """Begin to record the lines that the program executes.

        If another tool, such as a debugger, already uses the events, no lines are recorded.
        """
        if sys.version_info >= (3, 12):
            self._start_monitoring()
        elif sys.gettrace() is None:
            self._start_tracing()

    def stop(self) -> None:
        """End the recording of lines."""
        self._stop_callback()
        self._stop_callback = lambda: None

    def line(self, thread: int, time_ns: int, call_name: str) -> SourceLine | None:
        """Return the source line of a call. For each thread, calls must be passed in chronological order.

        Parameters
        ----------
        thread
            Number of the thread in the system.
        time_ns
            Begin of the call, on the clock of `time.time_ns`.
        call_name
            Name of the kernel or of CUDA's function.
        """
        if self._line_search is None:
            self._line_search = _LineSearch(self._line_starts, self._switch_off_times_ns)
        if self._blind_from_ns is not None and time_ns >= self._blind_from_ns:
            return None
        code_and_line = self._line_search.line(thread, time_ns, call_name)
        return None if code_and_line is None else _make_source_line(*code_and_line)

    # Recording

    def _start_monitoring(self) -> None:
        monitoring = sys.monitoring  # type: ignore[attr-defined,unused-ignore]
        free_tools = [tool_id for tool_id in (4, 3, 1, 0) if monitoring.get_tool(tool_id) is None]
        if not free_tools:
            return
        tool_id = free_tools[0]
        events = monitoring.events
        disable_event = monitoring.DISABLE
        line_events = events.LINE | events.PY_RETURN | events.PY_YIELD
        code_objects: list[CodeType] = []

        def watch_code(code: CodeType) -> None:
            code_objects.append(code)
            monitoring.set_local_events(tool_id, code, line_events)

        def handle_function_entry(code: CodeType, _: int) -> Any:
            # Events of libraries are switched off: each of their lines would cost microseconds.
            if self._is_learner_code(code):
                watch_code(code)
            return disable_event

        def handle_line(code: CodeType, line: int) -> Any:
            return disable_event if self._begin_line(code, line) else None

        def handle_function_exit(code: CodeType, offset: int, _: Any) -> Any:
            return disable_event if self._continue_caller(sys._getframe(1).f_back, (code, -offset)) else None

        callbacks = {
            events.PY_START: handle_function_entry,
            events.LINE: handle_line,
            events.PY_RETURN: handle_function_exit,
            events.PY_YIELD: handle_function_exit,
        }

        def stop() -> None:
            monitoring.set_events(tool_id, 0)
            for code_object in code_objects:
                monitoring.set_local_events(tool_id, code_object, 0)
            for event in callbacks:
                monitoring.register_callback(tool_id, event, None)
            monitoring.free_tool_id(tool_id)

        monitoring.use_tool_id(tool_id, "gpulab")
        for event, callback in callbacks.items():
            monitoring.register_callback(tool_id, event, callback)
        monitoring.restart_events()
        frame: FrameType | None = sys._getframe()
        while frame is not None:
            if self._is_learner_code(frame.f_code):
                watch_code(frame.f_code)
            frame = frame.f_back
        monitoring.set_events(tool_id, events.PY_START)
        self._stop_callback = stop

    def _start_tracing(self) -> None:
        def trace_lines(frame: FrameType, event: str, _: Any) -> Any:
            is_finished = False
            if event == "line":
                is_finished = self._begin_line(frame.f_code, frame.f_lineno)
            elif event == "return":
                is_finished = self._continue_caller(frame.f_back, (frame.f_code, 0))
            if is_finished:
                self._blind_from_ns = time.time_ns()
                self.stop()
                return None
            return trace_lines

        def trace_calls(frame: FrameType, event: str, _: Any) -> Any:
            return trace_lines if self._is_learner_code(frame.f_code) else None

        traced_frames = []
        frame: FrameType | None = sys._getframe()
        while frame is not None:
            if frame.f_trace is None and self._is_learner_code(frame.f_code):
                frame.f_trace = trace_lines
                traced_frames.append(frame)
            frame = frame.f_back

        def stop() -> None:
            sys.settrace(None)
            while traced_frames:
                traced_frames.pop().f_trace = None

        sys.settrace(trace_calls)
        self._stop_callback = stop

    def _begin_line(self, code: CodeType, line: int, line_start: tuple[CodeType, int] | None = None) -> bool:
        """Record that the calling thread begins a line; return whether its events can be switched off."""
        line_start = line_start or (code, line)
        self._start_counts[line_start] += 1
        now_ns = time.time_ns()
        self._line_starts.append((now_ns, threading.get_native_id(), code, line))
        if self._start_counts[line_start] < MAX_LINE_EVENTS and len(self._line_starts) < _MAX_LINE_STARTS:
            return False
        self._switch_off_times_ns[line_start] = now_ns
        return True

    def _continue_caller(self, frame: FrameType | None, line_start: tuple[CodeType, int]) -> bool:
        """Record that the caller's line continues after a function returns, for which Python has no event."""
        while frame is not None and not self._is_learner_code(frame.f_code):
            frame = frame.f_back
        return frame is not None and self._begin_line(frame.f_code, frame.f_lineno, line_start)

    def _is_learner_code(self, code: CodeType) -> bool:
        """Return whether the learner wrote the code: a cell, or a file outside of the libraries."""
        is_program = self._is_program_code.get(code)
        if is_program is None:
            file_name = code.co_filename
            is_program = self._is_program_file.get(file_name)
            if is_program is None:
                frame: FrameType | None = sys._getframe(1)
                while frame is not None and frame.f_code is not code:
                    frame = frame.f_back
                module = "" if frame is None else str(frame.f_globals.get("__name__"))
                is_program = self._program_lines.is_learner_file(file_name, module)
                if not file_name.startswith("<"):  # a name that several modules share
                    self._is_program_file[file_name] = is_program
            self._is_program_code[code] = is_program
        return is_program


class _LineSearch:
    """A lookup of the source line that a thread executed at a given time, by recorded starts."""

    def __init__(
        self, line_starts: list[_LineStart], switch_off_times_ns: dict[tuple[CodeType, int], int]
    ) -> None:
        self._start_times_ns: dict[int, list[int]] = defaultdict(list)
        self._code_lines: dict[int, list[tuple[CodeType, int]]] = defaultdict(list)
        for time_ns, thread, code_object, line in line_starts:
            self._start_times_ns[thread].append(time_ns)
            self._code_lines[thread].append((code_object, line))
        self._exact_until_ns = min(switch_off_times_ns.values(), default=None)
        self._lines_by_call: dict[str, set[tuple[CodeType, int]]] = defaultdict(set)
        self._early_lines: set[tuple[CodeType, int]] | None = None
        self._last_line_indices: dict[
            int, int
        ] = {}  # by thread: index of the last beginning that a call was assigned to

    def line(self, thread: int, time_ns: int, call_name: str) -> tuple[CodeType, int] | None:
        line_index = bisect.bisect_right(self._start_times_ns.get(thread, ()), time_ns) - 1
        if line_index < 0:
            return None
        code_line = self._code_lines[thread][line_index]
        if self._exact_until_ns is None or time_ns < self._exact_until_ns:
            self._lines_by_call[call_name].add(code_line)
            return code_line
        # Some lines have no events any more: the call belongs to this line, which began last, or to one of
        # them.
        known_lines = self._lines_by_call[call_name]
        is_first_call = self._last_line_indices.get(thread) != line_index
        self._last_line_indices[thread] = line_index
        if code_line in known_lines:
            return code_line
        if code_line in self._find_lines_before(self._exact_until_ns) or not is_first_call:
            return next(iter(known_lines)) if len(known_lines) == 1 else None
        if any(code_object is not code_line[0] for code_object, _ in known_lines):
            return None  # a new line, which may call a function whose lines have no events any more
        known_lines.add(code_line)
        return code_line

    def _find_lines_before(self, time_ns: int) -> set[tuple[CodeType, int]]:
        """Return all lines that had begun before `time_ns`, in any thread."""
        if self._early_lines is None:
            self._early_lines = {
                code_line
                for thread, start_times_ns in self._start_times_ns.items()
                for code_line in self._code_lines[thread][: bisect.bisect_left(start_times_ns, time_ns)]
            }
        return self._early_lines


def _make_source_line(code: CodeType, line: int) -> SourceLine:
    name = code.co_filename
    return SourceLine(display_name(name), line, linecache.getline(name, line).strip())
