"""Count the statistics of an allocator from its trace."""

from __future__ import annotations

from bisect import bisect_left, bisect_right, insort
from collections.abc import Iterator
from dataclasses import dataclass, field, replace

import numpy as np

from gpulab.allocators.replay import find_release_starts
from gpulab.allocators.torch.settings import (
    SMALL_REQUEST_BYTES,
    SMALL_SEGMENT_BYTES,
    Settings,
    SettingsError,
)
from gpulab.allocators.torch.statistics import METRICS, Tally
from virtualgpu.records.memory import ACTIONS, AllocatorStatistics, AllocatorTrace, Figure

_SUMMARY_TITLES = {"PyTorch": "PyTorch CUDA memory summary", "CuPy": "CuPy memory pool summary"}
_RELEASE_CODES = [ACTIONS.index(action) for action in ("segment_free", "segment_unmap")]
_ALLOCATION_CODES = [ACTIONS.index(action) for action in ("segment_alloc", "segment_map")]


def count_statistics(trace: AllocatorTrace) -> AllocatorStatistics:
    """Return the statistics at the end of an allocator trace, under the names that
    ``torch.cuda.memory_stats`` uses.

    Memory from before the first event counts as current and peak memory. The figures ``allocated`` and
    ``freed`` count only the changes by events, as after ``torch.cuda.reset_accumulated_memory_stats()``. A
    retry is counted if memory was returned to the device before an allocation succeeded or failed. A trace
    does not contain the number of waits for all streams (``num_sync_all_streams``).

    Examples
    --------
    >>> count_statistics(trace).figures["reserved_bytes"]["all"].peak
    2097152
    """
    return _StatisticsCounter(trace).count()


def count_host_statistics(trace: AllocatorTrace) -> AllocatorStatistics:
    """Return the statistics of a pool of pinned (page-locked) memory, under the names that
    ``torch.cuda.host_memory_stats`` uses.

    The figures ``allocations`` and ``allocated_bytes`` count all buffers that the pool has locked, and
    ``active_requests`` and ``active_bytes`` count only the buffers in use.
    """
    device_statistics = count_statistics(trace)
    metric_names = {
        "allocations": "segment",
        "allocated_bytes": "reserved_bytes",
        "active_requests": "active",
        "active_bytes": "active_bytes",
    }
    count_names = ("num_host_alloc", "num_host_free")
    return replace(
        device_statistics,
        title="Pinned host memory summary",
        figures={
            name: {"": device_statistics.figures[metric]["all"]} for name, metric in metric_names.items()
        },
        counts={name: device_statistics.counts[name.replace("host", "device")] for name in count_names},
        is_host=True,
    )


@dataclass(slots=True)
class _Segment:
    """A segment of fixed size, with the sorted starts and ends of its blocks in use."""

    start: int
    end: int
    used_ranges: list[tuple[int, int]] = field(default_factory=list)

    def find_gap(self, start: int, end: int) -> tuple[int, int]:
        """Return the largest free address range that contains the addresses from `start` to `end`."""
        i = bisect_left(self.used_ranges, (start, end))
        gap_start = self.used_ranges[i - 1][1] if i else self.start
        return gap_start, self.used_ranges[i][0] if i < len(self.used_ranges) else self.end

    def measure_free_parts(self, *address_ranges: tuple[int, int]) -> tuple[int, int]:
        """Return the number and the total size in bytes of the segment's free parts. A segment that is
        completely free is not counted.
        """
        free_sizes = [end - start for start, end in address_ranges if 0 < end - start < self.end - self.start]
        return len(free_sizes), sum(free_sizes)


class _StatisticsCounter:
    """Counter of the statistics in one pass over a trace."""

    def __init__(self, trace: AllocatorTrace) -> None:
        self.trace = trace
        self.is_torch = "PyTorch" in trace.allocator
        pools = ("all", "small_pool", "large_pool") if self.is_torch else ("all",)
        self.tallies = {metric: {pool: Tally() for pool in pools} for metric in METRICS}
        self.oversize_tallies = {name: Tally() for name in ("oversize_allocations", "oversize_segments")}
        counter_names = ("num_alloc_retries", "num_ooms", "num_device_alloc", "num_device_free")
        self.counts = dict.fromkeys(counter_names, 0)
        self.max_split_bytes = _read_max_split_bytes(trace.settings) if self.is_torch else None
        self.segments: dict[int, _Segment] = {}
        self.segment_starts: list[int] = []  # of the segments
        self.pool_by_address: dict[
            int, str
        ] = {}  # pools of the mapped ranges of expandable segments, by address
        self.used_block_sizes: dict[int, tuple[int, int]] = {}  # bytes, and bytes asked for, of blocks in use
        self.freed_addresses: set[int] = set()  # those of them that the program has freed

    def count(self) -> AllocatorStatistics:
        self._count_initial_state()
        for action, address, size_bytes, requested_bytes, _, _, _ in self.trace.events.rows():
            match action:
                case "alloc":
                    self._count_alloc(address, size_bytes, requested_bytes)
                case "free_requested":
                    self._count_free_request(address)
                case "free_completed":
                    self._count_free(address)
                case "segment_alloc" | "segment_map":
                    self._count_segment_alloc(address, size_bytes, action == "segment_map")
                case "segment_free" | "segment_unmap":
                    self._count_segment_free(address, size_bytes, action == "segment_unmap")
                case "oom":
                    self.counts["num_ooms"] += 1
        self.counts["num_alloc_retries"] = self.counts["num_ooms"] + _count_forced_releases(self.trace)
        figures = {metric: _make_figures(tallies) for metric, tallies in self.tallies.items()}
        if self.is_torch:
            figures |= {name: _make_figures({"": tally}) for name, tally in self.oversize_tallies.items()}
            self.counts["max_split_size"] = -1 if self.max_split_bytes is None else self.max_split_bytes
        trace = self.trace
        title = next(
            (allocator_title for name, allocator_title in _SUMMARY_TITLES.items() if name in trace.allocator),
            trace.allocator,
        )
        return AllocatorStatistics(
            provenance=trace.provenance,
            device_id=trace.device_id,
            title=title,
            figures=figures,
            counts=self.counts,
            note=trace.note,
        )

    def _count_initial_state(self) -> None:
        """Count the segments and blocks that exist before the first event."""
        for segment in self.trace.first.segments:
            if not segment.is_expandable:
                self._count_segment_alloc(segment.address, segment.size_bytes, False, segment.pool)
            for block in segment.blocks:
                if segment.is_expandable and not block.is_unmapped:
                    self._count_segment_alloc(block.address, block.size_bytes, True, segment.pool)
                if block.state in ("used", "waiting"):
                    self._count_alloc(block.address, block.size_bytes, block.requested_bytes)
                if block.state == "waiting":
                    self._count_free_request(block.address)
        self.counts = dict.fromkeys(self.counts, 0)
        for tally in self._list_tallies():
            tally.peak = tally.current
            tally.allocated = 0
            tally.freed = 0

    def _list_tallies(self) -> Iterator[Tally]:
        for tallies in self.tallies.values():
            yield from tallies.values()
        yield from self.oversize_tallies.values()

    # Memory of the device

    def _count_segment_alloc(self, address: int, size: int, is_mapping: bool, pool: str = "") -> None:
        pool = pool or ("small" if size == SMALL_SEGMENT_BYTES else "large")
        self._change_tally("reserved_bytes", pool, size)
        self.counts["num_device_alloc"] += 1
        self.pool_by_address[address] = pool
        if not is_mapping:
            self.segments[address] = _Segment(address, address + size)
            insort(self.segment_starts, address)
            self._change_tally("segment", pool, 1)
            self._count_oversize("oversize_segments", size, 1)

    def _count_segment_free(self, address: int, size: int, is_mapping: bool) -> None:
        pool_name = self.pool_by_address.get(address) or ("small" if size == SMALL_SEGMENT_BYTES else "large")
        self._change_tally("reserved_bytes", pool_name, -size)
        self.counts["num_device_free"] += 1
        if not is_mapping and self.segments.pop(address, None) is not None:
            del self.segment_starts[bisect_left(self.segment_starts, address)]
            self._change_tally("segment", pool_name, -1)
            self._count_oversize("oversize_segments", size, -1)

    def _find_segment(self, address: int) -> _Segment | None:
        """Return the segment of fixed size around an address, or None within an expandable segment."""
        i = bisect_right(self.segment_starts, address) - 1
        segment = self.segments[self.segment_starts[i]] if i >= 0 else None
        return segment if segment is not None and address < segment.end else None

    # Blocks

    def _count_alloc(self, address: int, size: int, requested_bytes: int) -> None:
        pool_name = "small" if size <= SMALL_REQUEST_BYTES else "large"
        self.used_block_sizes[address] = size, requested_bytes
        segment = self._find_segment(address)
        end_address = address + size
        if segment is not None:
            gap_start_address, gap_end_address = segment.find_gap(address, end_address)
            insort(segment.used_ranges, (address, end_address))
            split_count, size_bytes = segment.measure_free_parts((gap_start_address, gap_end_address))
            self._count_split(
                pool_name,
                (-split_count, -size_bytes),
                segment.measure_free_parts((gap_start_address, address), (end_address, gap_end_address)),
            )
        for metric, metric_increase in (
            ("allocation", 1),
            ("allocated_bytes", size),
            *_list_active_amounts(size, requested_bytes),
        ):
            self._change_tally(metric, pool_name, metric_increase)
        self._count_oversize("oversize_allocations", size, 1)

    def _count_free_request(self, address: int) -> None:
        if address not in self.used_block_sizes or address in self.freed_addresses:
            return
        block_bytes = self.used_block_sizes[address][0]
        self.freed_addresses.add(address)
        pool_name = "small" if block_bytes <= SMALL_REQUEST_BYTES else "large"
        self._change_tally("allocation", pool_name, -1)
        self._change_tally("allocated_bytes", pool_name, -block_bytes)
        self._count_oversize("oversize_allocations", block_bytes, -1)

    def _count_free(self, address: int) -> None:
        self._count_free_request(address)  # for traces that do not distinguish the two events
        if address not in self.used_block_sizes:
            return
        self.freed_addresses.discard(address)
        block_bytes, requested_bytes = self.used_block_sizes.pop(address)
        pool_name = "small" if block_bytes <= SMALL_REQUEST_BYTES else "large"
        segment = self._find_segment(address)
        end_address = address + block_bytes
        if segment is not None:
            segment.used_ranges.remove((address, end_address))
            gap_start_address, gap_end_address = segment.find_gap(address, end_address)
            split_count, size_bytes = segment.measure_free_parts(
                (gap_start_address, address), (end_address, gap_end_address)
            )
            self._count_split(
                pool_name,
                (-split_count, -size_bytes),
                segment.measure_free_parts((gap_start_address, gap_end_address)),
            )
        for metric, metric_decrease in _list_active_amounts(block_bytes, requested_bytes):
            self._change_tally(metric, pool_name, -metric_decrease)

    # Figures

    def _count_split(self, pool: str, removed_pieces: tuple[int, int], added_pieces: tuple[int, int]) -> None:
        self._change_tally("inactive_split", pool, removed_pieces[0] + added_pieces[0])
        self._change_tally("inactive_split_bytes", pool, removed_pieces[1] + added_pieces[1])

    def _change_tally(self, metric: str, pool: str, amount: int) -> None:
        tallies = self.tallies[metric]
        for pool_key in ("all", f"{pool}_pool") if self.is_torch else ("all",):
            _add_amount(tallies[pool_key], amount)

    def _count_oversize(self, name: str, size: int, amount: int) -> None:
        if self.max_split_bytes is not None and size >= self.max_split_bytes:
            _add_amount(self.oversize_tallies[name], amount)


def _list_active_amounts(size: int, requested_bytes: int) -> tuple[tuple[str, int], ...]:
    return ("active", 1), ("active_bytes", size), ("requested_bytes", requested_bytes)


def _add_amount(tally: Tally, amount: int) -> None:
    if amount > 0:
        tally.add(amount)
    else:
        tally.subtract(-amount)


def _make_figures(tallies: dict[str, Tally]) -> dict[str, Figure]:
    return {pool: Figure(**tally.as_dict()) for pool, tally in tallies.items()}


def _read_max_split_bytes(settings: str) -> int | None:
    """Return the bytes from which PyTorch does not split a block, or None without such a limit."""
    try:
        parsed_settings = Settings.parse(settings)
    except SettingsError:
        return None  # settings of another version
    return None if parsed_settings.max_split_size_mb is None else parsed_settings.max_split_bytes


def _count_forced_releases(trace: AllocatorTrace) -> int:
    """Count the series of releases in which the allocator returned memory to the device to make room for a
    request.
    """
    action_codes = trace.events.actions
    is_release = np.isin(action_codes, _RELEASE_CODES)
    first_indices = np.flatnonzero(is_release & ~np.r_[False, is_release[:-1]]).tolist()
    last_indices = np.flatnonzero(is_release & ~np.r_[is_release[1:], False]).tolist()
    requested_starts = find_release_starts(trace)
    return sum(
        first_index not in requested_starts
        and last_index + 1 < len(action_codes)
        and action_codes[last_index + 1] in _ALLOCATION_CODES
        for first_index, last_index in zip(first_indices, last_indices, strict=True)
    )
