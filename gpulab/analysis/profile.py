"""Sums of a timeline by kernel, copy direction, line and range."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterable, Sequence
from typing import TypeVar

from gpulab.analysis import overlap
from gpulab.analysis.flow import Flow
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


def profile(
    timeline: Timeline,
    name: str = "",
    occupancy: Callable[[Activity], float | None] = lambda kernel: None,
    *,
    by_shape: bool = False,
    before_bytes: int | None = None,
    peak_bytes: int | None = None,
) -> Profile:
    """Add up the operations of a timeline.

    Parameters
    ----------
    timeline
        What was recorded.
    name
        What ran, for captions.
    occupancy
        Tells a kernel's occupancy, 0 to 1; None where it is not known.
    by_shape
        Whether launches of one kernel with other grids and blocks are told apart.
    before_bytes, peak_bytes
        Of the memory pool, where they are known.

    Examples
    --------
    >>> profile(timeline).kernels[0].device_time_total_ns
    """
    flow = Flow(timeline)
    ran = timeline.activities
    kernels = _groups(
        (a for a in ran if a.kind == "CONCURRENT_KERNEL"),
        lambda a: (a.name, a.grid, a.block) if by_shape else (a.name, None, None),
    )
    copies = _groups(
        (a for a in ran if a.kind in ("MEMCPY", "MEMCPY2", "MEMSET")), lambda a: (a.copy_kind, a.pinned)
    )
    return Profile(
        provenance=timeline.provenance,
        method=timeline.method,
        name=name,
        wall_ns=timeline.duration_ns,
        busy_ns=overlap.length_ns(overlap.intervals(ran)),
        kernels=_longest([_kernel(group, occupancy) for group in kernels]),
        copies=_longest([_copy(group) for group in copies]),
        waits=_waits(timeline),
        ranges=_ranges(flow),
        lines=_lines(flow),
        before_bytes=before_bytes,
        peak_bytes=peak_bytes,
        note=timeline.note,
    )


def _groups(items: Iterable[T], key: Callable[[T], K]) -> list[list[T]]:
    found: dict[K, list[T]] = {}
    for item in items:
        found.setdefault(key(item), []).append(item)
    return list(found.values())


def _longest(rows: list[T]) -> tuple[T, ...]:
    return tuple(sorted(rows, key=lambda row: -row.device_time_total_ns))  # type: ignore[attr-defined]


def _kernel(group: Sequence[Activity], occupancy: Callable[[Activity], float | None]) -> ProfiledKernel:
    shapes = {(a.grid, a.block) for a in group}
    grid, block = shapes.pop() if len(shapes) == 1 else (None, None)
    return ProfiledKernel(
        key=group[0].name,
        count=len(group),
        device_time_total_ns=_device_ns(group),
        grid=grid,
        block=block,
        occupancy=_mean(group, occupancy),
        moved_bytes=_sum([a.moved_bytes for a in group]),
        flop=_sum([a.flop for a in group]),
    )


def _copy(group: Sequence[Activity]) -> ProfiledCopy:
    return ProfiledCopy(
        way=group[0].copy_kind,
        pinned=group[0].pinned,
        count=len(group),
        size_bytes=sum(a.size_bytes for a in group),
        device_time_total_ns=_device_ns(group),
    )


def _device_ns(group: Iterable[Activity]) -> int:
    return sum(a.duration_ns for a in group)


def _sum(values: Sequence[int | None]) -> int | None:
    """Return the sum, or None if a value is not known."""
    known = [value for value in values if value is not None]
    return sum(known) if len(known) == len(values) else None


def _mean(group: Sequence[Activity], occupancy: Callable[[Activity], float | None]) -> float | None:
    """Return the mean over the device time, or None if the value of a launch is not known."""
    whole = weighted = 0.0
    for same in _groups(group, lambda a: (a.block, a.registers_per_thread, a.shared_bytes)):
        each = occupancy(same[0])
        weight = _device_ns(same) or 1
        if each is None:
            return None
        whole = whole + weight
        weighted = weighted + weight * each
    return weighted / whole


def _lines(flow: Flow) -> tuple[ProfiledLine, ...]:
    """Return the source lines that issued work to the device."""
    found: dict[SourceLine, list[Activity]] = {}
    for activity in flow.timeline.activities:
        call = flow.call(activity)
        if call is not None and call.source is not None:
            found.setdefault(call.source, []).append(activity)
    return _longest(
        [
            ProfiledLine(source, tuple(dict.fromkeys(a.name for a in given)), len(given), _device_ns(given))
            for source, given in found.items()
        ]
    )


def _waits(timeline: Timeline) -> tuple[ProfiledWait, ...]:
    groups = _groups(
        (wait for wait in timeline.synchronizations if wait.type != "STREAM_WAIT_EVENT"),
        lambda wait: (wait.name or wait.type, wait.source, wait.hidden),
    )
    rows = [
        ProfiledWait(
            key=same[0].name or same[0].type,
            source=same[0].source,
            hidden=same[0].hidden,
            count=len(same),
            cpu_time_total_ns=sum(wait.end_ns - wait.start_ns for wait in same),
        )
        for same in groups
    ]
    return tuple(sorted(rows, key=lambda row: -row.cpu_time_total_ns))


def _ranges(flow: Flow) -> tuple[ProfiledRange, ...]:
    """Return the ranges by name; an operation belongs to the ranges around the call that issued it."""
    timeline = flow.timeline
    given: dict[int, list[tuple[int, Activity]]] = {}
    for activity in timeline.activities:
        call = flow.call(activity)
        if call is not None:
            given.setdefault(call.thread, []).append((call.start_ns, activity))
    for calls in given.values():
        calls.sort(key=lambda pair: (pair[0], pair[1].correlation_id))
    starts = {thread: [start for start, _ in calls] for thread, calls in given.items()}
    rows = []
    for same in _groups((each for each in timeline.ranges if not each.is_mark), lambda each: each.name):
        inside: dict[int, Activity] = {}
        for one in same:
            times = starts.get(one.thread, [])
            first, last = (bisect_left(times, time) for time in (one.start_ns, one.end_ns))
            inside.update((a.correlation_id, a) for _, a in given.get(one.thread, [])[first:last])
        rows.append(
            ProfiledRange(
                key=same[0].name,
                count=len(same),
                cpu_time_total_ns=overlap.length_ns(overlap.intervals(same)),
                device_time_total_ns=_device_ns(inside.values()) if timeline.calls else None,
                operations=len(inside),
            )
        )
    return tuple(sorted(rows, key=lambda row: -row.cpu_time_total_ns))
