"""A thread that takes readings at a fixed rate, and a table of fixed size that stores them."""

from __future__ import annotations

import atexit
import threading
import time
import weakref
from collections.abc import Callable, Sequence

import numpy as np
import numpy.typing as npt

MAX_KEPT_S = 600.0
MAX_RATE_HZ = 100.0
_MAX_END_WAIT_S = 1.0  # limit on the wait for a pending reading at the end of the process

Table = npt.NDArray[np.float64]


class RingBuffer:
    """A table of numbers with a fixed number of rows. New rows replace the oldest rows.

    Parameters
    ----------
    column_count, capacity
        The number of values per row, and the number of rows that are kept.
    """

    def __init__(self, column_count: int, capacity: int) -> None:
        self._rows = np.full((capacity, column_count), np.nan)
        self._lock = threading.Lock()
        self.added_rows = 0

    def add(self, row: Sequence[float | None]) -> None:
        """Add a row to the table. The value None is stored as NaN."""
        with self._lock:
            self._rows[self.added_rows % len(self._rows)] = row
            self.added_rows += 1

    def rows_since(self, first_number: int = 0) -> Table:
        """Return the stored rows, starting with row `first_number`. The first row that was ever added has the
        number 0.
        """
        with self._lock:
            capacity = len(self._rows)
            first_row = max(0, first_number, self.added_rows - capacity)
            return self._rows[np.arange(first_row, self.added_rows) % capacity]


def check_rate(rate_hz: float) -> float:
    """Return the sampling rate unchanged if it is valid, and raise an error otherwise.

    Raises
    ------
    ValueError
        If the rate is not a number above 0 and at most `MAX_RATE_HZ`.
    """
    given_rate: object = rate_hz  # of a learner
    if not isinstance(given_rate, (int, float)) or not 0 < given_rate <= MAX_RATE_HZ:
        raise ValueError(
            f"rate_hz must be above 0 and at most {MAX_RATE_HZ:g} readings per second, not {rate_hz!r}."
        )
    return rate_hz


class Sampler:
    """A thread that calls a function at a fixed rate. The thread ends when this object is deleted.

    An exception of the function does not reach the program. The row then contains NaN, and `failure` has the
    message until a reading succeeds.

    Parameters
    ----------
    read_row
        Returns the numbers of one row, with None for values that are not available. It runs in the thread.
    column_count
        The number of values in a row.
    rate_hz
        Readings per second, at most `MAX_RATE_HZ`; fewer if a reading takes long.
    kept_s
        The time for which readings are kept.
    on_reading
        Called in the thread after each reading, with its number and its row, which starts with the time. It
        must not refer to the sampler, or the thread never ends.

    Examples
    --------
    >>> load = Sampler(lambda: os.getloadavg(), column_count=3, rate_hz=2)
    >>> load.start()
    >>> load.rows()[:, 1]
    """

    def __init__(
        self,
        read_row: Callable[[], Sequence[float | None]],
        column_count: int,
        rate_hz: float = 10.0,
        kept_s: float = MAX_KEPT_S,
        on_reading: Callable[[int, Sequence[float | None]], None] | None = None,
    ) -> None:
        check_rate(rate_hz)
        self._read_row = read_row
        self._empty_row = (None,) * column_count
        self._ring = RingBuffer(1 + column_count, int(rate_hz * kept_s) + 1)
        self._period_s = 1 / rate_hz
        self._on_reading = on_reading
        self.start_ns = time.perf_counter_ns()
        self._active_event = threading.Event()  # set while readings are taken
        self._ended_event = threading.Event()
        self._thread: threading.Thread | None = None
        self.failure = ""
        self.cpu_ns = 0
        """Processor time of all readings and of the calls after them."""

    @property
    def state(self) -> str:
        """The state of the thread, which is ``"live"``, ``"paused"`` or ``"stopped"``."""
        if self._thread is None or self._ended_event.is_set():
            return "stopped"
        return "live" if self._active_event.is_set() else "paused"

    @property
    def now_ns(self) -> int:
        """The time in nanoseconds since this object was created. The times of all rows refer to this
        clock.
        """
        return time.perf_counter_ns() - self.start_ns

    def start(self) -> None:
        """Take a reading now, and start the thread that takes further readings."""
        if self._thread is not None:
            return
        self.take_reading()
        self._active_event.set()
        sampler_reference = weakref.ref(self, lambda _: ended_event.set())
        ended_event = self._ended_event
        active_event = self._active_event
        self._thread = threading.Thread(
            target=_run_sampler,
            args=(sampler_reference, active_event, ended_event, self._period_s),
            name="gpulab sampler",
            daemon=True,
        )
        self._thread.start()

    def pause(self) -> None:
        """Pause the readings until `resume` is called. A row of NaN separates earlier from later readings."""
        if self.state == "live":
            self._active_event.clear()
            self._ring.add((self.now_ns, *self._empty_row))

    def resume(self) -> None:
        """Continue the readings after a call of `pause`."""
        if self.state == "paused":
            self._active_event.set()

    def stop(self) -> bool:
        """Stop the readings permanently, but keep the stored ones. Return False if a reading hangs."""
        self._ended_event.set()
        if self._thread is None or self._thread is threading.current_thread():
            return True
        self._thread.join(_MAX_END_WAIT_S)
        return not self._thread.is_alive()

    def take_reading(self) -> None:
        """Take one reading now, in the calling thread."""
        start_ns = time.thread_time_ns()
        reading_index = self._ring.added_rows
        time_ns = self.now_ns
        reading_row: tuple[float | None, ...] = (time_ns, *self._empty_row)
        try:
            reading_row = (time_ns, *self._read_row())
            self._ring.add(reading_row)
            self.failure = ""
        except Exception as error:
            self.failure = f"{type(error).__name__}: {error}"
            reading_row = (time_ns, *self._empty_row)
            self._ring.add(reading_row)
        if self._on_reading is not None:
            try:
                self._on_reading(reading_index, reading_row)
            except Exception as error:
                self.failure = f"{type(error).__name__}: {error}"
        self.cpu_ns += time.thread_time_ns() - start_ns

    @property
    def added_rows(self) -> int:
        """The number of rows that were added so far, including rows that are no longer stored."""
        return self._ring.added_rows

    def rows(self, since: int = 0) -> Table:
        """Return the stored rows, starting with row `since`. A row contains the time in nanoseconds and the
        values of a reading.
        """
        return self._ring.rows_since(since)


def _run_sampler(
    sampler_reference: weakref.ref[Sampler],
    active_event: threading.Event,
    ended_event: threading.Event,
    period_s: float,
) -> None:
    """Run the sampler's thread, which refers to the sampler only during a reading."""
    set_ended = ended_event.set
    atexit.register(set_ended)
    next_reading_s = time.perf_counter()
    while True:
        next_reading_s = max(next_reading_s + period_s, time.perf_counter())
        if ended_event.wait(max(period_s / 4, next_reading_s - time.perf_counter())):
            break
        while not active_event.wait(1.0) and not ended_event.is_set():
            pass
        sampler = sampler_reference()
        if sampler is None or ended_event.is_set():
            break
        if active_event.is_set():
            sampler.take_reading()
        del sampler
    atexit.unregister(set_ended)
