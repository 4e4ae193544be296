"""The progress line below a notebook cell in which gpulab runs for a long time, and how to stop it.

The line disappears when the cell ends. Nothing is shown outside notebooks, or in cells whose output is
captured. Nothing is shown either if a program runs the notebook, so that stored outputs have no such line.
"""

from __future__ import annotations

import contextvars
import linecache
import sys
import threading
import time
import uuid
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from types import FrameType
from typing import TYPE_CHECKING, Any, Protocol

from gpulab.words import count

if TYPE_CHECKING:
    from virtualgpu.records.launch.whereabouts import LaunchProgress

# Nothing is shown for work that takes less.
QUIET_S = 2.0
_UPDATE_INTERVAL_S = 1.0
# Pause between looks whether a cell still runs.
_IDLE_POLL_S = 0.2
_STOP_HINT = "To stop it: Kernel > Interrupt, or press I twice."
_MAX_CODE_LENGTH = 60
# What the innermost frame of a package does; the first entry that matches counts.
_ACTIVITIES = (
    ("virtualgpu.compile.", ", compiles a kernel"),
    ("virtualgpu.engine.machine.", ", compiles a kernel"),
    ("virtualgpu.engine.", ", runs a kernel"),
    ("gpulab.processes.", ", waiting for another process"),
    ("virtualgpu.", ""),
    ("gpulab.", ""),
    ("gpulab_course.", ""),
)
MimeBundle = tuple[dict[str, Any], dict[str, Any]]


class StepCallback(Protocol):
    """The type of a callback that a long-running call invokes at the beginning of each step."""

    def __call__(self, make_picture: Callable[[], MimeBundle] | None = None) -> None:
        """Begin the next step. `make_picture` returns an output with the results so far, as data and
        metadata.
        """


class _Display:
    """An output of the running cell, which is updated and is removed at the end."""

    def __init__(self) -> None:
        self._display_id: dict[str, str] = {}

    def show(self, data: dict[str, Any], metadata: dict[str, Any] | None = None) -> None:
        is_update = bool(self._display_id)
        self._display_id = self._display_id or {"display_id": uuid.uuid4().hex}
        _find_shell().display_pub.publish(data, metadata or {}, transient=self._display_id, update=is_update)

    def end(self) -> None:
        if self._display_id:
            self.show({"text/plain": ""})


class _CellProgress:
    """The progress display of the running cell: a thread that checks the cell once per second."""

    def __init__(self) -> None:
        self._start_s = time.monotonic()
        self._line, self._picture = _Display(), _Display()
        self._ended, self._lock = threading.Event(), threading.Lock()
        self.is_shown = False
        # Sentences or parts of sentences by what they are about; the last entry is the innermost activity.
        self.activities: dict[object, str] = {}

    def start(self) -> None:
        """Start the thread that shows the progress of the cell, in a copy of the current context. The copied
        context ensures that the outputs of the thread appear below that cell.
        """
        run_in_context = contextvars.copy_context().run
        threading.Thread(
            target=run_in_context, args=(self._update_until_end,), name="gpulab progress", daemon=True
        ).start()

    def _update_until_end(self) -> None:
        wait_s = QUIET_S
        while not self._ended.wait(wait_s):
            self.update_progress()
            wait_s = _UPDATE_INTERVAL_S

    def update_progress(self) -> None:
        """Show how long the notebook cell has been running and what gpulab is doing."""
        activities = [*self.activities.values()][-1:] or _find_running_line()
        if activities and not _is_captured():
            (progress_text,) = activities
            if not progress_text.endswith("."):
                progress_text = (
                    f"The cell has run for {int(time.monotonic() - self._start_s)} s: {progress_text}."
                )
            with self._lock:
                if not self._ended.is_set():
                    self.is_shown = True
                    self._line.show({"text/plain": f"{progress_text} {_STOP_HINT}"})

    def show_picture(self, bundle: MimeBundle) -> None:
        """Show a picture of the results so far below the running notebook cell."""
        self._picture.show(*bundle)

    def end(self) -> None:
        """Remove the progress line and the picture below the cell."""
        with self._lock:
            self._ended.set()
            self._line.end()
            self._picture.end()


_cell_progress: _CellProgress | None = None


def watch_cells(shell: Any) -> None:
    """Show the progress of each notebook cell that runs for a long time, from the current cell on."""
    shell.events.register("pre_run_cell", _begin_cell)
    shell.events.register("post_run_cell", _end_cell)
    _begin_cell()


def _begin_cell(*_: Any) -> None:
    global _cell_progress
    _end_cell()
    if _is_person_waiting():
        _cell_progress = _CellProgress()
        _cell_progress.start()


def _end_cell(*_: Any) -> None:
    global _cell_progress
    if _cell_progress is not None:
        _cell_progress.end()
        _cell_progress = None


def load_when_idle(loaders: Iterable[Callable[[], object]]) -> None:
    """Call functions in a background thread while no notebook cell runs. The functions are called only if a
    person started the current cell.

    Errors are ignored here. They appear again when the program needs the loaded objects.
    """

    def run() -> None:
        for load_objects in loaders:
            while _cell_progress is not None:
                time.sleep(_IDLE_POLL_S)
            with suppress(Exception):
                load_objects()

    if _is_person_waiting():
        threading.Thread(target=run, name="gpulab names", daemon=True).start()


class KernelProgressLine:
    """A line below the notebook cell that shows the progress of a long-running kernel."""

    def __init__(self) -> None:
        self._start_s = time.monotonic()
        self._next_update_s = self._start_s + QUIET_S

    def look(self, find_progress: Callable[[], LaunchProgress]) -> None:
        """Update the progress text of the kernel, at most once per interval."""
        now_s = time.monotonic()
        if now_s < self._next_update_s:
            return
        self._next_update_s = now_s + _UPDATE_INTERVAL_S
        if cell_progress := _find_own_cell():
            cell_progress.activities[self] = _make_waiting_message(find_progress(), now_s - self._start_s)

    def end(self) -> None:
        """Remove the progress text of the kernel."""
        if cell_progress := _find_own_cell():
            cell_progress.activities.pop(self, None)


@contextmanager
def show_steps(total: int, call_name: str) -> Iterator[StepCallback]:
    """Show progress such as "2 of 4" below a notebook cell if a call with several kernel launches takes a
    long time.

    Parameters
    ----------
    total
        The maximum number of steps.
    call_name
        The name of the call, such as ``"gl.check"``.

    Yields
    ------
    Begin
        A function to call at the beginning of each step, optionally with a picture of the results so far.
    """
    cell_progress, step_count, activity_key = _find_own_cell(), 0, object()

    def begin(make_picture: Callable[[], MimeBundle] | None = None) -> None:
        nonlocal step_count
        step_count += 1
        if cell_progress is not None:
            cell_progress.activities[activity_key] = f"{call_name}, {step_count} of {total}"
            if make_picture is not None and cell_progress.is_shown:
                cell_progress.show_picture(make_picture())

    try:
        yield begin
    finally:
        if cell_progress is not None:
            cell_progress.activities.pop(activity_key, None)


def _find_own_cell() -> _CellProgress | None:
    """Return the running cell if it runs in this thread."""
    return _cell_progress if threading.current_thread() is threading.main_thread() else None


def _find_shell() -> Any:
    """Return IPython's shell if IPython is running."""
    ipython = sys.modules.get("IPython")
    return ipython.get_ipython() if ipython is not None else None


def _is_person_waiting() -> bool:
    """Return whether a notebook cell is running that a person has started.

    A program that runs a notebook, such as nbconvert, does not allow requests for input.
    """
    shell = _find_shell()
    if getattr(shell, "kernel", None) is None:
        return False
    request = shell.get_parent()
    is_cell = request.get("header", {}).get("msg_type") == "execute_request"
    return is_cell and bool(request.get("content", {}).get("allow_stdin"))


def _is_captured() -> bool:
    from IPython.core.displaypub import CapturingDisplayPublisher

    return isinstance(_find_shell().display_pub, CapturingDisplayPublisher)


def _find_running_line() -> list[str]:
    """Return a list with a text that names the running line of the cell and gpulab's current activity. The
    list is empty if gpulab is not running.
    """
    code_name = _find_shell().compile.format_code_name
    frame: FrameType | None = sys._current_frames().get(threading.main_thread().ident or 0)
    activity_text, line_text = None, ""
    while frame is not None:
        if activity_text is None:
            module = f"{frame.f_globals.get('__name__', '')}."
            activity_text = next((text for package, text in _ACTIVITIES if module.startswith(package)), None)
        elif code_name(frame.f_code.co_filename):
            source_text = linecache.getline(frame.f_code.co_filename, frame.f_lineno).strip()
            if len(source_text) > _MAX_CODE_LENGTH:
                source_text = source_text[: _MAX_CODE_LENGTH - 1] + "…"
            line_text = f"line {frame.f_lineno} `{source_text}`"
        frame = frame.f_back
    return [line_text + activity_text] if line_text and activity_text is not None else []


def _make_waiting_message(launch_progress: LaunchProgress, seconds: float) -> str:
    line_code = f" `{launch_progress.source_text}`" if launch_progress.source_text else ""
    line_text = f"near line {launch_progress.line}{line_code}, " if launch_progress.line else ""
    return (
        f"Kernel '{launch_progress.kernel}' has run for {int(seconds)} s: {line_text}"
        f"block {launch_progress.block}, "
        f"{launch_progress.ended:,} of {count(launch_progress.blocks, 'block')} done."
    )
