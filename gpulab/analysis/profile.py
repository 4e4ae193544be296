"""Totals of a timeline by kernel, copy direction, source line and range."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterable, Sequence
from typing import TypeVar

from gpulab.analysis import overlap
from gpulab.analysis.flow import TimelineLookup
from virtualgpu.records import Activity, SourceLine, Timeline
from virtualgpu.records.profile import (
    Profile,
    ProfiledCopy,
    ProfiledKernel,
    ProfiledLine,
    ProfiledRange,
    ProfiledWait,
)

T = TypeVar("T")
K = TypeVar("K")


def make_profile(
    timeline: Timeline,
    name: str = "",
    occupancy: Callable[[Activity], float | None] = lambda kernel: None,
    *,
    by_shape: bool = False,
    before_bytes: int | None = None,
    peak_bytes: int | None = None,
) -> Profile:
    """Add up the operations of a timeline by kernel, copy direction, source line and NVTX range.

    Parameters
    ----------
    timeline
        The timeline.
    name
        Name of the program, for captions.
    occupancy
        Function that returns a kernel's occupancy, 0 to 1, or None if it is not known.
    by_shape
        Whether launches of one kernel with different grids or blocks are listed separately.
    before_bytes, peak_bytes
        Size of the memory pool before the program and at its peak, if known.

    Examples
    --------
    >>> profile(timeline).kernels[0].device_time_total_ns
    """
    timeline_lookup = TimelineLookup(timeline)
    operations = timeline.activities
    kernels = _group_by(
        (activity for activity in operations if activity.kind == "CONCURRENT_KERNEL"),
        lambda activity: (
            (activity.name, activity.grid, activity.block) if by_shape else (activity.name, None, None)
        ),
    )
    copies = _group_by(
        (activity for activity in operations if activity.kind in ("MEMCPY", "MEMCPY2", "MEMSET")),
        lambda activity: (activity.copy_kind, activity.pinned),
    )
    return Profile(
        provenance=timeline.provenance,
        method=timeline.method,
        name=name,
        wall_ns=timeline.duration_ns,
        busy_ns=overlap.sum_interval_ns(overlap.make_intervals(operations)),
        kernels=_sort_by_device_time([_make_kernel(group, occupancy) for group in kernels]),
        copies=_sort_by_device_time([_make_copy(group) for group in copies]),
        waits=_make_waits(timeline),
        ranges=_make_ranges(timeline_lookup),
        lines=_make_lines(timeline_lookup),
        before_bytes=before_bytes,
        peak_bytes=peak_bytes,
        note=timeline.note,
    )


def _group_by(items: Iterable[T], key: Callable[[T], K]) -> list[list[T]]:
    items_by_key: dict[K, list[T]] = {}
    for item in items:
        items_by_key.setdefault(key(item), []).append(item)
    return list(items_by_key.values())


def _sort_by_device_time(rows: list[T]) -> tuple[T, ...]:
    return tuple(sorted(rows, key=lambda row: -row.device_time_total_ns))  # type: ignore[attr-defined]


def _make_kernel(group: Sequence[Activity], occupancy: Callable[[Activity], float | None]) -> ProfiledKernel:
    launch_shapes = {(activity.grid, activity.block) for activity in group}
    grid, block = launch_shapes.pop() if len(launch_shapes) == 1 else (None, None)
    return ProfiledKernel(
        key=group[0].name,
        count=len(group),
        device_time_total_ns=_sum_device_ns(group),
        grid=grid,
        block=block,
        occupancy=_average_occupancy(group, occupancy),
        moved_bytes=_sum_if_all_known([activity.moved_bytes for activity in group]),
        flop=_sum_if_all_known([activity.flop for activity in group]),
    )


def _make_copy(group: Sequence[Activity]) -> ProfiledCopy:
    return ProfiledCopy(
        way=group[0].copy_kind,
        pinned=group[0].pinned,
        count=len(group),
        size_bytes=sum(activity.size_bytes for activity in group),
        device_time_total_ns=_sum_device_ns(group),
    )


def _sum_device_ns(group: Iterable[Activity]) -> int:
    return sum(activity.duration_ns for activity in group)


def _sum_if_all_known(values: Sequence[int | None]) -> int | None:
    """Return the sum of values, or None if one of them is not known."""
    known_values = [value for value in values if value is not None]
    return sum(known_values) if len(known_values) == len(values) else None


def _average_occupancy(
    group: Sequence[Activity], occupancy: Callable[[Activity], float | None]
) -> float | None:
    """Return the mean occupancy, weighted by device time, or None if it is not known for a launch."""
    total_ns = weighted_sum = 0.0
    for launches in _group_by(
        group, lambda activity: (activity.block, activity.registers_per_thread, activity.shared_bytes)
    ):
        launch_occupancy = occupancy(launches[0])
        weight_ns = _sum_device_ns(launches) or 1
        if launch_occupancy is None:
            return None
        total_ns = total_ns + weight_ns
        weighted_sum = weighted_sum + weight_ns * launch_occupancy
    return weighted_sum / total_ns


def _make_lines(timeline_lookup: TimelineLookup) -> tuple[ProfiledLine, ...]:
    """Return the source lines that issued work to the device, with the work's device time."""
    operations_by_line: dict[SourceLine, list[Activity]] = {}
    for activity in timeline_lookup.timeline.activities:
        issuing_call = timeline_lookup.find_issuing_call(activity)
        if issuing_call is not None and issuing_call.source is not None:
            operations_by_line.setdefault(issuing_call.source, []).append(activity)
    return _sort_by_device_time(
        [
            ProfiledLine(
                source_line,
                tuple(dict.fromkeys(a.name for a in operations)),
                len(operations),
                _sum_device_ns(operations),
            )
            for source_line, operations in operations_by_line.items()
        ]
    )


def _make_waits(timeline: Timeline) -> tuple[ProfiledWait, ...]:
    wait_groups = _group_by(
        (wait for wait in timeline.synchronizations if wait.type != "STREAM_WAIT_EVENT"),
        lambda wait: (wait.name or wait.type, wait.source, wait.hidden),
    )
    profiled_waits = [
        ProfiledWait(
            key=waits[0].name or waits[0].type,
            source=waits[0].source,
            hidden=waits[0].hidden,
            count=len(waits),
            cpu_time_total_ns=sum(wait.end_ns - wait.start_ns for wait in waits),
        )
        for waits in wait_groups
    ]
    return tuple(sorted(profiled_waits, key=lambda row: -row.cpu_time_total_ns))


def _make_ranges(timeline_lookup: TimelineLookup) -> tuple[ProfiledRange, ...]:
    """Return the ranges by name; each contains the operations that were issued within it."""
    timeline = timeline_lookup.timeline
    issued_operations: dict[int, list[tuple[int, Activity]]] = {}
    for activity in timeline.activities:
        issuing_call = timeline_lookup.find_issuing_call(activity)
        if issuing_call is not None:
            issued_operations.setdefault(issuing_call.thread, []).append((issuing_call.start_ns, activity))
    for thread_calls in issued_operations.values():
        thread_calls.sort(key=lambda pair: (pair[0], pair[1].correlation_id))
    call_starts_of_thread = {
        thread: [start for start, _ in thread_calls] for thread, thread_calls in issued_operations.items()
    }
    profiled_ranges = []
    for ranges_of_name in _group_by(
        (time_range for time_range in timeline.ranges if not time_range.is_mark),
        lambda time_range: time_range.name,
    ):
        operations: dict[int, Activity] = {}
        for time_range in ranges_of_name:
            call_starts = call_starts_of_thread.get(time_range.thread, [])
            first_index, last_index = (
                bisect_left(call_starts, time_ns) for time_ns in (time_range.start_ns, time_range.end_ns)
            )
            operations.update(
                (activity.correlation_id, activity)
                for _, activity in issued_operations.get(time_range.thread, [])[first_index:last_index]
            )
        profiled_ranges.append(
            ProfiledRange(
                key=ranges_of_name[0].name,
                count=len(ranges_of_name),
                cpu_time_total_ns=overlap.sum_interval_ns(overlap.make_intervals(ranges_of_name)),
                device_time_total_ns=_sum_device_ns(operations.values()) if timeline.calls else None,
                operations=len(operations),
            )
        )
    return tuple(sorted(profiled_ranges, key=lambda row: -row.cpu_time_total_ns))
