"""Stopwatch for the processor time of one thread."""

from __future__ import annotations

import contextlib
import threading
import time


class Stopwatch:
    """A stopwatch that measures the processor time of the thread that created it.

    If the system has no clock for processor time, the stopwatch measures wall time.

    On a busy machine a kernel gets only a share of a core, and must not be reported as endless for that.
    Other threads may read it at any time; after the thread has ended, the last reading remains.
    """

    def __init__(self) -> None:
        self._clock_id: int | None = None
        if hasattr(time, "pthread_getcpuclockid"):
            self._clock_id = time.pthread_getcpuclockid(threading.get_ident())
        self._last_reading_s = 0.0
        self._is_running = True
        self._start_s = time.monotonic() if self._clock_id is None else time.clock_gettime(self._clock_id)

    def stop(self) -> None:
        """Stop the measurement now, because the thread continues with other work."""
        self._last_reading_s = self.spent_s
        self._is_running = False

    @property
    def spent_s(self) -> float:
        if self._is_running:
            with contextlib.suppress(OSError):  # the thread has ended
                now_s = time.monotonic() if self._clock_id is None else time.clock_gettime(self._clock_id)
                self._last_reading_s = now_s - self._start_s
        return self._last_reading_s
