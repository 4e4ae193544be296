"""``gl.memory``: a device's memory over time, while cells run."""

from __future__ import annotations

import csv
import json
import math
import re
import weakref
from collections.abc import Callable, Sequence
from dataclasses import asdict
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

import numpy as np

from gpulab import session
from gpulab.lab.memory.hook import ALLOC, FREE_REQUESTED, OOM, AllocationRecorder
from gpulab.sampler import Ring, Sampler
from virtualgpu.errors import GpulabError
from virtualgpu.records.memory import AllocatorEvents, MemoryMarks, MemoryReading, MemorySamples
from virtualgpu.records.memory.samples import COLUMNS, MARKS

if TYPE_CHECKING:
    from gpulab.views import MemoryChart

KEPT_EVENTS = 50_000
KEPT_MARKS = 20_000
MARKS_A_READING = 8
_UNITS = {"": 0, "k": 10, "m": 20, "g": 30, "t": 40}


def memory(rate_hz: float = 10.0) -> MemoryRecording:
    """Show the memory of the device in use, live: used, cached, driver and others, limit and peak.

    Readings go on in the background while cells run, and allocations are marked with size and line. The
    last ten minutes are kept. Measured on a real GPU; on a virtual one by its pool, which is CuPy's to the
    byte, and a modelled driver.

    Parameters
    ----------
    rate_hz
        Readings a second, at most 100.

    Returns
    -------
    MemoryRecording
        The live chart: ``pause()``, ``resume()``, ``stop()``, ``export("x.csv")``, ``save("x.html")``;
        ``.record`` holds the data (`virtualgpu.records.memory.MemorySamples`). As a ``with`` block it records
        what happens in the block, and no longer.

    Raises
    ------
    ValueError
        For another rate.

    Examples
    --------
    >>> m = gl.memory()
    >>> m
    >>> with gl.memory() as m:
    ...     x = cp.zeros((1024, 1024))
    >>> m.record.peak
    """
    return MemoryRecording(rate_hz)


class _Readings:
    """One row of readings, with the peak since the last one by the pool's own calls."""

    def __init__(self, read: Callable[[], MemoryReading], seen: AllocationRecorder) -> None:
        self._read, self._seen = read, seen
        self._base: int | None = None  # what was used when `seen` had seen nothing

    def __call__(self) -> Sequence[float | None]:
        seen = self._seen
        before, highest = len(seen), seen.most_held
        seen.most_held = seen.held
        now = self._read()
        peak = now.used_bytes
        if now.used_bytes is not None:
            if self._base is None or before == len(seen):
                self._base = now.used_bytes - seen.held
            peak = max(now.used_bytes, self._base + highest)
        return now.used_bytes, now.reserved_bytes, peak, now.limit_bytes, now.device_bytes, now.others_bytes


def marks_of(events: AllocatorEvents, since_ns: int) -> list[tuple[float, ...]]:
    """Rows of `MemoryMarks`: the events by line, those of the least bytes in one row for several lines."""
    kinds = [events.actions == code for code in (ALLOC, FREE_REQUESTED, OOM)]
    seen = np.logical_or.reduce(kinds)
    if not seen.any():
        return []
    stacks, group = np.unique(events.stacks[seen], return_inverse=True)
    size, time_ns = events.size_bytes[seen], events.time_ns[seen] - since_ns
    sums = []
    for kind in kinds:
        mine = kind[seen].astype(np.float64)
        sums += [np.bincount(group, mine), np.bincount(group, mine * size)]
    first = np.full(len(stacks), np.inf)
    np.minimum.at(first, group, time_ns)
    table = np.column_stack((first, *sums[:4], sums[4], stacks))
    if len(table) > MARKS_A_READING:
        weight = np.where(table[:, 5] > 0, np.inf, table[:, 2] + table[:, 4])
        order = np.argsort(-weight, kind="stable")
        rest = table[order[MARKS_A_READING - 1 :]]
        together = [rest[:, 0].min(), *rest[:, 1:6].sum(axis=0), -1]
        table = np.vstack((table[order[: MARKS_A_READING - 1]], together))
    return [tuple(row) for row in table[np.argsort(table[:, 0], kind="stable")].tolist()]


class MemoryRecording:
    """A device's memory over time: live from the beginning until `stop`; see `memory`."""

    def __init__(self, rate_hz: float = 10.0) -> None:
        backend = session.backend()
        self._here = session.here()
        self._provenance = backend.provenance
        self._capacity_bytes = backend.device_info().memory_bytes
        self._device_id = int(session.cp().cuda.Device().id)
        self._seen = AllocationRecorder(KEPT_EVENTS, self._device_id)
        self._marks = Ring(len(MARKS), KEPT_MARKS)
        self._next = self._lines = 0  # of the events and lines: what the next reading begins with
        self._held: list[Any] = []  # what the chart's button has allocated
        self._view: MemoryChart | None = None
        after = weakref.WeakMethod(self._after)
        self._sampler = Sampler(
            _Readings(backend.memory_reader(), self._seen), len(COLUMNS) - 1, rate_hz, then=_weakly(after)
        )
        self._seen.start()
        self._sampler.start()

    def _after(self, number: int, row: Sequence[float | None]) -> None:
        """Note what was allocated since the reading before, and tell the chart; on the sampler's thread."""
        events, self._next = self._seen.news(self._next, self._device_id)
        marks = marks_of(events, self._sampler.began_ns)
        for mark in marks:
            self._marks.add(mark)
        if self._view is not None:
            lines = self._seen.sources[self._lines :]
            self._lines += len(lines)
            self._view.tick(number, row, marks, lines, self._sampler.failure)

    # What a learner asks

    @property
    def record(self) -> MemorySamples:
        """Everything up to now."""
        columns = dict(zip(COLUMNS, self._sampler.rows().T.copy(), strict=True))
        said = self._seen.note, self._sampler.failure and f"The last reading failed: {self._sampler.failure}."
        return MemorySamples(
            self._provenance,
            self._device_id,
            self._capacity_bytes,
            **columns,
            marks=MemoryMarks.of(self._marks.since()),
            lines=tuple(self._seen.sources),
            note=" ".join(filter(None, said)),
        )

    @property
    def state(self) -> str:
        """``"live"``, ``"paused"`` or ``"stopped"``."""
        return self._sampler.state

    @property
    def cpu_ns(self) -> int:
        """Processor time that all readings have taken, with the messages to the browser."""
        return self._sampler.cpu_ns

    def pause(self) -> None:
        """Take no readings until `resume`."""
        self._sampler.pause()
        self._tell_state()

    def resume(self) -> None:
        """Go on after a `pause`.

        Raises
        ------
        GpulabError
            If it has been stopped.
        """
        if self.state == "stopped":
            raise GpulabError("This recording has ended; gl.memory() begins another one.")
        self._sampler.resume()
        self._tell_state()

    def stop(self) -> None:
        """End the recording; the chart stays. What its button has allocated is freed."""
        if self.state == "stopped":
            return
        self._sampler.stop()
        self._held.clear()
        self._sampler.take()
        self._seen.stop()
        self._tell_state()

    def _tell_state(self) -> None:
        if self._view is not None:
            self._view.show_state(self.state)

    def __enter__(self) -> Self:
        if self.state == "stopped":
            raise GpulabError("This recording has ended; gl.memory() begins another one.")
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def export(self, path: str | Path) -> Path:
        """Write readings and marks to a file.

        Parameters
        ----------
        path
            ``x.csv``: a row a reading; ``x.json``: readings, marks, lines, and where they come from.

        Returns
        -------
        Path
            The file.

        Raises
        ------
        ValueError
            For another ending.
        """
        path, record = Path(path), self.record
        if path.suffix.lower() == ".csv":
            with path.open("w", newline="", encoding="utf-8") as file:
                writer = csv.writer(file)
                writer.writerow(COLUMNS)
                writer.writerows([_plain(value) for value in row] for row in record.rows())
        elif path.suffix.lower() == ".json":
            path.write_text(json.dumps(_tree(asdict(record)), indent=1), encoding="utf-8")
        else:
            raise ValueError(f"Readings are exported as .csv or .json, not as {path.name!r}.")
        return path

    def save(self, path: str | Path) -> None:
        """Write a page that works alone (``x.html``) or the picture (any other name: PNG)."""
        self._chart().save(path)

    # Buttons of the chart

    def _act(self, what: str, size: str) -> str:
        """What a button does, in whichever thread; the words to show."""
        if what == "pause":
            self.pause()
        elif what == "resume":
            self.resume()
        else:
            with self._here(), self._seen.in_this_thread():
                return self._change(what, size)
        return ""

    def _change(self, what: str, size: str) -> str:
        cp = session.cp()
        own = getattr(cp.cuda.get_allocator(), "__self__", None)
        pool = own if isinstance(own, cp.cuda.MemoryPool) else cp.get_default_memory_pool()
        if what == "allocate":
            self._held.append(cp.cuda.alloc(parse_size(size)))
            return f"Allocated {size}."
        if what == "free":
            if not self._held:
                return "Nothing allocated by this button; del frees an array of yours."
            freed = self._held.pop()
            size_bytes = freed.mem.size
            del freed
            return f"Freed {size_bytes:,} B; the pool keeps it."
        if what == "empty":
            pool.free_all_blocks()
            return "Free blocks went back to the device."
        if what == "limit":
            pool.set_limit(size=parse_size(size))
            return f"Limit set to {size}." if parse_size(size) else "The pool has no limit now."
        raise ValueError(f"There is no button {what!r}.")

    # Display

    def _chart(self) -> MemoryChart:
        if self._view is None:
            from gpulab.views import MemoryChart

            lines = len(self._seen.sources)
            view = MemoryChart(lambda: self.record, self.state, self._act, self.stop)
            self._lines, self._view = lines, view
        return self._view

    def __repr__(self) -> str:
        from gpulab.views.memory.words import sentence

        return sentence(self.record, self.state)

    def _repr_mimebundle_(self, **kwargs: Any) -> tuple[dict[str, Any], dict[str, Any]]:
        return self._chart()._repr_mimebundle_(**kwargs)

    def _repr_pretty_(self, printer: Any, cycle: bool) -> None:
        printer.text(repr(self))


def _weakly(method: weakref.WeakMethod[Callable[..., None]]) -> Callable[..., None]:
    def call(*args: Any) -> None:
        alive = method()
        if alive is not None:
            alive(*args)

    return call


def parse_size(text: str) -> int:
    """Bytes of a size as people write it: ``64 MiB``, ``1.5 GB`` (as GiB), ``4096``.

    Raises
    ------
    ValueError
        For anything else.
    """
    bare = text.replace(",", "").replace("_", "").strip().lower()
    found = re.fullmatch(r"(\d+(?:\.\d+)?) *([kmgt]?)(?:i?b)?", bare)
    if not found:
        raise ValueError(f'{text!r} is no size: write "64 MiB", or bytes.')
    return int(float(found[1]) * 2 ** _UNITS[found[2]])


def _plain(value: float) -> int | float | str:
    if math.isnan(value):
        return ""
    return int(value) if value.is_integer() else value


def _tree(value: Any) -> Any:
    """What JSON can hold: arrays as lists, NaN as null."""
    if isinstance(value, np.ndarray):
        return [None if math.isnan(each) else _plain(each) for each in value.tolist()]
    if isinstance(value, dict):
        return {key: _tree(each) for key, each in value.items()}
    if isinstance(value, (list, tuple)):
        return [_tree(each) for each in value]
    return value
