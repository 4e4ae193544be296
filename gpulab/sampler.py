"""Background readings at a fixed rate, stored in a table of fixed size."""

from __future__ import annotations

import atexit
import threading
import time
import weakref
from collections.abc import Callable, Sequence

import numpy as np
import numpy.typing as npt

SECONDS = 600.0
MOST_HZ = 100.0
_END_S = 1.0  # how long the process' end waits for a reading that is on its way

Table = npt.NDArray[np.float64]


class Ring:
    """The last rows of a table of numbers, in a fixed amount of memory.

    Parameters
    ----------
    columns, capacity
        How many numbers a row has, and how many rows are kept.
    """

    def __init__(self, columns: int, capacity: int) -> None:
        self._rows = np.full((capacity, columns), np.nan)
        self._lock = threading.Lock()
        self.added = 0

    def add(self, row: Sequence[float | None]) -> None:
        """Add a row; None becomes NaN."""
        with self._lock:
            self._rows[self.added % len(self._rows)] = row
            self.added += 1

    def since(self, number: int = 0) -> Table:
        """Return rows from this number on, counted from 0, as far as they are still stored."""
        with self._lock:
            held = len(self._rows)
            first = max(0, number, self.added - held)
            return self._rows[np.arange(first, self.added) % held]


def check_rate(rate_hz: float) -> float:
    """Return the rate unchanged, after a check.

    Raises
    ------
    ValueError
        If it is none that a sampler can have.
    """
    given: object = rate_hz  # of a learner
    if not isinstance(given, (int, float)) or not 0 < given <= MOST_HZ:
        raise ValueError(f"rate_hz is above 0 and at most {MOST_HZ:g} readings a second, not {rate_hz!r}.")
    return rate_hz


class Sampler:
    """Calls a function at a rate, in a separate thread that ends when this object is deleted.

    What the function raises does not reach the program: the row is one of NaN then, and `failure` says why
    until a reading succeeds.

    Parameters
    ----------
    read
        Gives the numbers of one row; None is one that is not available. It runs in the sampler's thread.
    columns
        How many there are.
    rate_hz
        Readings a second, at most `MOST_HZ`; fewer where one takes long.
    seconds
        Of how long a time readings are kept.
    then
        Called after each reading with its number and its row, time in front, in the sampler's thread. What
        it holds must not hold the sampler, or neither ever ends.

    Examples
    --------
    >>> load = Sampler(lambda: os.getloadavg(), columns=3, rate_hz=2)
    >>> load.start()
    >>> load.rows()[:, 1]
    """

    def __init__(
        self,
        read: Callable[[], Sequence[float | None]],
        columns: int,
        rate_hz: float = 10.0,
        seconds: float = SECONDS,
        then: Callable[[int, Sequence[float | None]], None] | None = None,
    ) -> None:
        check_rate(rate_hz)
        self._read = read
        self._nothing = (None,) * columns
        self._ring = Ring(1 + columns, int(rate_hz * seconds) + 1)
        self._period_s = 1 / rate_hz
        self._then = then
        self.began_ns = time.perf_counter_ns()
        self._going = threading.Event()  # set while readings are taken
        self._over = threading.Event()
        self._thread: threading.Thread | None = None
        self.failure = ""
        self.cpu_ns = 0
        """Processor time that all readings and what follows them have taken."""

    @property
    def state(self) -> str:
        """``"live"``, ``"paused"`` or ``"stopped"``."""
        if self._thread is None or self._over.is_set():
            return "stopped"
        return "live" if self._going.is_set() else "paused"

    @property
    def now_ns(self) -> int:
        """Nanoseconds since this object was created: the clock of its rows."""
        return time.perf_counter_ns() - self.began_ns

    def start(self) -> None:
        """Take a reading now, and continue in the background."""
        if self._thread is not None:
            return
        self.take()
        self._going.set()
        mine = weakref.ref(self, lambda _: over.set())
        over = self._over
        going = self._going
        self._thread = threading.Thread(
            target=_run, args=(mine, going, over, self._period_s), name="gpulab sampler", daemon=True
        )
        self._thread.start()

    def pause(self) -> None:
        """Take no readings until `resume`; a row of NaN separates earlier from later readings."""
        if self.state == "live":
            self._going.clear()
            self._ring.add((self.now_ns, *self._nothing))

    def resume(self) -> None:
        """Continue after a `pause`."""
        if self.state == "paused":
            self._going.set()

    def stop(self) -> bool:
        """End permanently; the readings are kept. Return False if a pending reading does not return."""
        self._over.set()
        if self._thread is None or self._thread is threading.current_thread():
            return True
        self._thread.join(_END_S)
        return not self._thread.is_alive()

    def take(self) -> None:
        """Take one reading now, on the calling thread."""
        began = time.thread_time_ns()
        number = self._ring.added
        at = self.now_ns
        row: tuple[float | None, ...] = (at, *self._nothing)
        try:
            row = (at, *self._read())
            self._ring.add(row)
            self.failure = ""
        except Exception as error:
            self.failure = f"{type(error).__name__}: {error}"
            row = (at, *self._nothing)
            self._ring.add(row)
        if self._then is not None:
            try:
                self._then(number, row)
            except Exception as error:
                self.failure = f"{type(error).__name__}: {error}"
        self.cpu_ns += time.thread_time_ns() - began

    @property
    def added(self) -> int:
        """Number of rows that were added, including those that are no longer kept."""
        return self._ring.added

    def rows(self, since: int = 0) -> Table:
        """Rows from this number on, as far as they are kept: time in nanoseconds, then what was read."""
        return self._ring.since(since)


def _run(mine: weakref.ref[Sampler], going: threading.Event, over: threading.Event, period_s: float) -> None:
    """Run the thread, which has a reference to the sampler only during a reading."""
    at_exit = over.set
    atexit.register(at_exit)
    due = time.perf_counter()
    while True:
        due = max(due + period_s, time.perf_counter())
        if over.wait(max(period_s / 4, due - time.perf_counter())):
            break
        while not going.wait(1.0) and not over.is_set():
            pass
        sampler = mine()
        if sampler is None or over.is_set():
            break
        if going.is_set():
            sampler.take()
        del sampler
    atexit.unregister(at_exit)
