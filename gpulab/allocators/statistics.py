"""Statistics of an allocator, counted from its trace."""

from __future__ import annotations

from bisect import bisect_left, bisect_right, insort
from collections.abc import Iterator
from dataclasses import dataclass, field, replace

import numpy as np

from gpulab.allocators.replay import asked_to_empty
from gpulab.allocators.torch.settings import (
    SMALL_REQUEST_BYTES,
    SMALL_SEGMENT_BYTES,
    Settings,
    SettingsError,
)
from gpulab.allocators.torch.statistics import METRICS
from gpulab.allocators.torch.statistics import Figure as Tally
from virtualgpu.records.memory import ACTIONS, AllocatorStatistics, AllocatorTrace, Figure

_TITLES = {"PyTorch": "PyTorch CUDA memory summary", "CuPy": "CuPy memory pool summary"}
_GIVEN = [ACTIONS.index(action) for action in ("segment_free", "segment_unmap")]
_TAKEN = [ACTIONS.index(action) for action in ("segment_alloc", "segment_map")]


def statistics(trace: AllocatorTrace) -> AllocatorStatistics:
    """Count the statistics of a trace at its end, under the names of ``torch.cuda.memory_stats``.

    What it held before the first event counts as current and peak; ``allocated`` and ``freed`` are what the
    events added and took away, as after ``torch.cuda.reset_accumulated_memory_stats()``. A retry is counted
    where memory went back to the device for a request that then took some, or failed. How often PyTorch
    waited for all streams (``num_sync_all_streams``) is in no trace.

    Examples
    --------
    >>> statistics(trace).figures["reserved_bytes"]["all"].peak
    2097152
    """
    return _Counter(trace).count()


def host_statistics(trace: AllocatorTrace) -> AllocatorStatistics:
    """Count the statistics of a pool of pinned (page-locked) memory, as ``torch.cuda.host_memory_stats``.

    ``allocations`` and ``allocated_bytes`` are the buffers that the pool has locked, in use and kept;
    ``active_requests`` and ``active_bytes`` those in use.
    """
    found = statistics(trace)
    names = {
        "allocations": "segment",
        "allocated_bytes": "reserved_bytes",
        "active_requests": "active",
        "active_bytes": "active_bytes",
    }
    calls = ("num_host_alloc", "num_host_free")
    return replace(
        found,
        title="Pinned host memory summary",
        figures={name: {"": found.figures[of]["all"]} for name, of in names.items()},
        counts={name: found.counts[name.replace("host", "device")] for name in calls},
        is_host=True,
    )


@dataclass(slots=True)
class _Segment:
    """A segment of fixed size, with the sorted starts and ends of its blocks in use."""

    start: int
    end: int
    used: list[tuple[int, int]] = field(default_factory=list)

    def gap(self, start: int, end: int) -> tuple[int, int]:
        """Return the free range around a free place, up to the next block on each side."""
        i = bisect_left(self.used, (start, end))
        before = self.used[i - 1][1] if i else self.start
        return before, self.used[i][0] if i < len(self.used) else self.end

    def split_off(self, *pieces: tuple[int, int]) -> tuple[int, int]:
        """Return the number and bytes of the free pieces that are a part of the segment, not all of it."""
        sizes = [end - start for start, end in pieces if 0 < end - start < self.end - self.start]
        return len(sizes), sum(sizes)


class _Counter:
    """Counts the statistics in one pass over a trace."""

    def __init__(self, trace: AllocatorTrace) -> None:
        self.trace = trace
        self.of_torch = "PyTorch" in trace.allocator
        pools = ("all", "small_pool", "large_pool") if self.of_torch else ("all",)
        self.tallies = {metric: {pool: Tally() for pool in pools} for metric in METRICS}
        self.oversize = {name: Tally() for name in ("oversize_allocations", "oversize_segments")}
        names = ("num_alloc_retries", "num_ooms", "num_device_alloc", "num_device_free")
        self.counts = dict.fromkeys(names, 0)
        self.most_split = _most_split(trace.settings) if self.of_torch else None
        self.segments: dict[int, _Segment] = {}
        self.starts: list[int] = []  # of the segments
        self.mapped: dict[int, str] = {}  # pools of the mapped ranges of expandable segments, by address
        self.blocks: dict[int, tuple[int, int]] = {}  # bytes, and bytes asked for, of blocks in use
        self.asked: set[int] = set()  # those of them that the program has freed

    def count(self) -> AllocatorStatistics:
        self._begin()
        for action, address, size, asked, _, _, _ in self.trace.events.rows():
            match action:
                case "alloc":
                    self._alloc(address, size, asked)
                case "free_requested":
                    self._ask(address)
                case "free_completed":
                    self._free(address)
                case "segment_alloc" | "segment_map":
                    self._take(address, size, action == "segment_map")
                case "segment_free" | "segment_unmap":
                    self._give(address, size, action == "segment_unmap")
                case "oom":
                    self.counts["num_ooms"] += 1
        self.counts["num_alloc_retries"] = self.counts["num_ooms"] + _emptied_for_a_request(self.trace)
        figures = {metric: _figures(tallies) for metric, tallies in self.tallies.items()}
        if self.of_torch:
            figures |= {name: _figures({"": tally}) for name, tally in self.oversize.items()}
            self.counts["max_split_size"] = -1 if self.most_split is None else self.most_split
        trace = self.trace
        title = next((words for name, words in _TITLES.items() if name in trace.allocator), trace.allocator)
        return AllocatorStatistics(
            provenance=trace.provenance,
            device_id=trace.device_id,
            title=title,
            figures=figures,
            counts=self.counts,
            note=trace.note,
        )

    def _begin(self) -> None:
        """Count the segments and blocks that exist before the first event."""
        for segment in self.trace.first.segments:
            if not segment.is_expandable:
                self._take(segment.address, segment.size_bytes, False, segment.pool)
            for block in segment.blocks:
                if segment.is_expandable and not block.is_unmapped:
                    self._take(block.address, block.size_bytes, True, segment.pool)
                if block.state in ("used", "waiting"):
                    self._alloc(block.address, block.size_bytes, block.requested_bytes)
                if block.state == "waiting":
                    self._ask(block.address)
        self.counts = dict.fromkeys(self.counts, 0)
        for tally in self._all():
            tally.peak = tally.current
            tally.allocated = 0
            tally.freed = 0

    def _all(self) -> Iterator[Tally]:
        for tallies in self.tallies.values():
            yield from tallies.values()
        yield from self.oversize.values()

    # Memory of the device

    def _take(self, address: int, size: int, is_map: bool, pool: str = "") -> None:
        pool = pool or ("small" if size == SMALL_SEGMENT_BYTES else "large")
        self._change("reserved_bytes", pool, size)
        self.counts["num_device_alloc"] += 1
        self.mapped[address] = pool
        if not is_map:
            self.segments[address] = _Segment(address, address + size)
            insort(self.starts, address)
            self._change("segment", pool, 1)
            self._oversize("oversize_segments", size, 1)

    def _give(self, address: int, size: int, is_map: bool) -> None:
        pool = self.mapped.get(address) or ("small" if size == SMALL_SEGMENT_BYTES else "large")
        self._change("reserved_bytes", pool, -size)
        self.counts["num_device_free"] += 1
        if not is_map and self.segments.pop(address, None) is not None:
            del self.starts[bisect_left(self.starts, address)]
            self._change("segment", pool, -1)
            self._oversize("oversize_segments", size, -1)

    def _segment_of(self, address: int) -> _Segment | None:
        """Return the segment of fixed size around an address, or None within an expandable segment."""
        i = bisect_right(self.starts, address) - 1
        found = self.segments[self.starts[i]] if i >= 0 else None
        return found if found is not None and address < found.end else None

    # Blocks

    def _alloc(self, address: int, size: int, asked: int) -> None:
        pool = "small" if size <= SMALL_REQUEST_BYTES else "large"
        self.blocks[address] = size, asked
        segment = self._segment_of(address)
        end = address + size
        if segment is not None:
            start, stop = segment.gap(address, end)
            insort(segment.used, (address, end))
            count, size_bytes = segment.split_off((start, stop))
            self._split(pool, (-count, -size_bytes), segment.split_off((start, address), (end, stop)))
        for metric, amount in (("allocation", 1), ("allocated_bytes", size), *_active(size, asked)):
            self._change(metric, pool, amount)
        self._oversize("oversize_allocations", size, 1)

    def _ask(self, address: int) -> None:
        if address not in self.blocks or address in self.asked:
            return
        size = self.blocks[address][0]
        self.asked.add(address)
        pool = "small" if size <= SMALL_REQUEST_BYTES else "large"
        self._change("allocation", pool, -1)
        self._change("allocated_bytes", pool, -size)
        self._oversize("oversize_allocations", size, -1)

    def _free(self, address: int) -> None:
        self._ask(address)  # for traces that do not distinguish the two events
        if address not in self.blocks:
            return
        self.asked.discard(address)
        size, asked = self.blocks.pop(address)
        pool = "small" if size <= SMALL_REQUEST_BYTES else "large"
        segment = self._segment_of(address)
        end = address + size
        if segment is not None:
            segment.used.remove((address, end))
            start, stop = segment.gap(address, end)
            count, size_bytes = segment.split_off((start, address), (end, stop))
            self._split(pool, (-count, -size_bytes), segment.split_off((start, stop)))
        for metric, amount in _active(size, asked):
            self._change(metric, pool, -amount)

    # Figures

    def _split(self, pool: str, gone: tuple[int, int], come: tuple[int, int]) -> None:
        self._change("inactive_split", pool, gone[0] + come[0])
        self._change("inactive_split_bytes", pool, gone[1] + come[1])

    def _change(self, metric: str, pool: str, amount: int) -> None:
        tallies = self.tallies[metric]
        for name in ("all", f"{pool}_pool") if self.of_torch else ("all",):
            _add(tallies[name], amount)

    def _oversize(self, name: str, size: int, amount: int) -> None:
        if self.most_split is not None and size >= self.most_split:
            _add(self.oversize[name], amount)


def _active(size: int, asked: int) -> tuple[tuple[str, int], ...]:
    return ("active", 1), ("active_bytes", size), ("requested_bytes", asked)


def _add(tally: Tally, amount: int) -> None:
    if amount > 0:
        tally.add(amount)
    else:
        tally.take(-amount)


def _figures(tallies: dict[str, Tally]) -> dict[str, Figure]:
    return {pool: Figure(**tally.as_dict()) for pool, tally in tallies.items()}


def _most_split(settings: str) -> int | None:
    """Return the bytes from which PyTorch does not split a block, or None without such a limit."""
    try:
        parsed = Settings.parse(settings)
    except SettingsError:
        return None  # settings of another version
    return None if parsed.max_split_size_mb is None else parsed.max_split_bytes


def _emptied_for_a_request(trace: AllocatorTrace) -> int:
    """Count the releases of memory to the device that the allocator did to serve a request."""
    codes = trace.events.actions
    given = np.isin(codes, _GIVEN)
    begins = np.flatnonzero(given & ~np.r_[False, given[:-1]]).tolist()
    ends = np.flatnonzero(given & ~np.r_[given[1:], False]).tolist()
    asked = asked_to_empty(trace)
    return sum(
        begin not in asked and end + 1 < len(codes) and codes[end + 1] in _TAKEN
        for begin, end in zip(begins, ends, strict=True)
    )
