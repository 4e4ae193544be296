"""Progress line below a notebook cell that takes long, with the way to stop it.

The line goes when the work has ended. Outside notebooks, and in cells whose output is captured, nothing is
said.
"""

from __future__ import annotations

import contextvars
import sys
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from gpulab.words import count
from virtualgpu.records.launch.whereabouts import Whereabouts

# Nothing is said of work that takes less.
QUIET_S = 3.0
_AGAIN_S = 1.0
_STOP = "To stop it: Kernel > Interrupt, or press I twice."


class _Line:
    """A line of text below the cell that runs now."""

    def __init__(self) -> None:
        self._transient: dict[str, str] = {}

    def show(self, text: str) -> None:
        update = bool(self._transient)
        self._transient = self._transient or {"display_id": uuid.uuid4().hex}
        _shell().display_pub.publish({"text/plain": text}, {}, transient=self._transient, update=update)

    def end(self) -> None:
        if self._transient:
            self.show("")


class KernelLine:
    """Progress line of a kernel that has run for a while."""

    def __init__(self) -> None:
        self._line, self._began_s = _Line(), time.monotonic()
        self._next_s = self._began_s + QUIET_S

    def look(self, whereabouts: Callable[[], Whereabouts]) -> None:
        """Update the line from time to time."""
        now_s = time.monotonic()
        if now_s < self._next_s:
            return
        self._next_s = now_s + _AGAIN_S
        if _cell_runs():
            self._line.show(f"{_words(whereabouts(), now_s - self._began_s)} {_STOP}")

    def end(self) -> None:
        """Remove the line."""
        self._line.end()


class _Steps:
    """Progress line of a call with several steps, such as "2 of 4"."""

    def __init__(self, total: int, call: str) -> None:
        self._total, self._call, self._line = total, call, _Line()
        self._step_count, self._is_shown, self._lock = 0, False, threading.Lock()
        # In the cell's context, which tells what is shown below which cell.
        self._timer = threading.Timer(QUIET_S, contextvars.copy_context().run, (self._say,))
        self._timer.daemon = True
        self._timer.start()

    def begin(self) -> None:
        """Begin the next step."""
        with self._lock:
            self._step_count += 1
        if self._is_shown:
            self._say()

    def _say(self) -> None:
        with self._lock:
            if not self._timer.finished.is_set() or self._is_shown:
                self._is_shown = True
                self._line.show(f"{self._call}: {max(self._step_count, 1)} of {self._total}. {_STOP}")

    def end(self) -> None:
        """Remove the line."""
        self._timer.cancel()
        with self._lock:
            self._line.end()


@contextmanager
def steps(total: int, call: str) -> Iterator[Callable[[], None]]:
    """Show "2 of 4" below a cell once a call of several launches has taken a while.

    Parameters
    ----------
    total
        How many steps it has at most.
    call
        What it is, such as ``"gl.check"``.

    Yields
    ------
    callable
        To be called as each step begins.
    """
    if not _cell_runs():
        yield lambda: None
        return
    counter = _Steps(total, call)
    try:
        yield counter.begin
    finally:
        counter.end()


def _shell() -> Any:
    """IPython's shell, where it runs."""
    ipython = sys.modules.get("IPython")
    return ipython.get_ipython() if ipython is not None else None


def _cell_runs() -> bool:
    """Return whether this thread runs a notebook cell whose output is shown."""
    shell = _shell()
    if getattr(shell, "kernel", None) is None or threading.current_thread() is not threading.main_thread():
        return False
    from IPython.core.displaypub import CapturingDisplayPublisher

    cell = shell.get_parent().get("header", {}).get("msg_type") == "execute_request"
    return cell and not isinstance(shell.display_pub, CapturingDisplayPublisher)


def _words(whereabouts: Whereabouts, seconds: float) -> str:
    source = f" `{whereabouts.source_text}`" if whereabouts.source_text else ""
    line = f"near line {whereabouts.line}{source}, " if whereabouts.line else ""
    return (
        f"Kernel '{whereabouts.kernel}' has run for {int(seconds)} s: {line}block {whereabouts.block}, "
        f"{whereabouts.ended:,} of {count(whereabouts.blocks, 'block')} done."
    )
