"""The processor time of one thread."""

from __future__ import annotations

import contextlib
import threading
import time


class Stopwatch:
    """Seconds that the thread which made it has computed since, or that have passed where no clock tells.

    On a busy machine a kernel gets a share of a core, and is not to be called endless for that. Other threads
    may read it at any time; a thread that has ended keeps its last reading.
    """

    def __init__(self) -> None:
        self._clock: int | None = None
        if hasattr(time, "pthread_getcpuclockid"):
            self._clock = time.pthread_getcpuclockid(threading.get_ident())
        self._read_s = 0.0
        self._runs = True
        self._begun_s = time.monotonic() if self._clock is None else time.clock_gettime(self._clock)

    def stop(self) -> None:
        """Keep the reading of now: the thread goes on with something else."""
        self._read_s = self.spent_s
        self._runs = False

    @property
    def spent_s(self) -> float:
        if self._runs:
            with contextlib.suppress(OSError):  # the thread has ended
                now_s = time.monotonic() if self._clock is None else time.clock_gettime(self._clock)
                self._read_s = now_s - self._begun_s
        return self._read_s
