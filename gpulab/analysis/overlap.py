"""Overlap: the time in which two engines, or two streams, were busy at the same time.

An engine or a stream is *busy* while at least one of its operations runs: the union of their intervals
``[start, end)``. Two are busy together for ``|A ∩ B| = |A| + |B| - |A ∪ B|``. Each term is the length of a
union, which one pass over the sorted intervals computes. The overlap in percent is that time divided by the
shorter of the two busy times, so 100 % means that the shorter one was completely hidden. Operations that take
no time are ignored.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import combinations

import numpy as np
import numpy.typing as npt

from virtualgpu.records import Activity, NvtxRange, Timeline
from virtualgpu.records.analysis import Overlap

_COPY_ENGINES = {"HtoD": "H2D", "DtoH": "D2H", "DtoD": "D2D", "PtoP": "P2P"}
_ENGINE_OF_KIND = {"CONCURRENT_KERNEL": "compute", "MEMSET": "memset", "RANGE": "range"}
ENGINES = ("compute", "H2D", "D2H", "D2D", "P2P", "memset", "range", "other copies")

# Largest number of streams that are compared: the number of pairs grows with its square.
MAX_STREAMS = 64

Intervals = npt.NDArray[np.int64]


def find_engine(activity: Activity) -> str | None:
    """Return the engine that runs an operation (an element of `ENGINES`), or None for host functions.

    A range between two events has the engine ``range``, because the operations in the range are not known
    individually.
    """
    if activity.kind in ("MEMCPY", "MEMCPY2"):
        return _COPY_ENGINES.get(activity.copy_kind or "", "other copies")
    return _ENGINE_OF_KIND.get(activity.kind)


def make_stream_names(timeline: Timeline) -> dict[tuple[int, int], str]:
    """Return the names of streams in a dictionary with keys of the form (device, stream). If there are
    several devices, names include the device.
    """
    given_names = {
        (stream_info.device_id, stream_info.stream_id): stream_info.name for stream_info in timeline.streams
    }
    stream_keys = dict.fromkeys(
        (*((activity.device_id, activity.stream_id) for activity in timeline.activities), *given_names)
    )
    has_many_devices = len({device for device, _ in stream_keys}) > 1
    display_names: dict[tuple[int, int], str] = {}
    used_names: set[str] = set()
    for key in stream_keys:
        name = given_names.get(key, f"stream {key[1]}") + (f" of device {key[0]}" if has_many_devices else "")
        display_names[key] = f"{name} ({key[1]})" if name in used_names else name
        used_names.add(display_names[key])
    return display_names


def group_by_engine(timeline: Timeline) -> dict[str, list[Activity]]:
    """Group the operations of a timeline by engine, in the order of `ENGINES`. If there are several devices,
    each device has its own groups.
    """
    has_many_devices = len({activity.device_id for activity in timeline.activities}) > 1
    operations_of_engine: dict[tuple[int, int], list[Activity]] = {}
    for activity in timeline.activities:
        engine = find_engine(activity)
        if engine is not None:
            operations_of_engine.setdefault((activity.device_id, ENGINES.index(engine)), []).append(activity)
    return {
        ENGINES[engine] + (f" of device {device}" if has_many_devices else ""): operations_of_engine[
            device, engine
        ]
        for device, engine in sorted(operations_of_engine)
    }


def group_by_stream(timeline: Timeline) -> dict[str, list[Activity]]:
    """Group the device operations by stream. The stream with the earliest operation comes first."""
    names = make_stream_names(timeline)
    operations: dict[tuple[int, int], list[Activity]] = {}
    for activity in timeline.activities:
        if find_engine(activity) is not None:
            operations.setdefault((activity.device_id, activity.stream_id), []).append(activity)
    return {names[key]: operations[key] for key in operations}


def make_intervals(activities: Sequence[Activity | NvtxRange]) -> Intervals:
    """Return the start and end times of operations in ns, as an array of shape (2, n)."""
    start_end_pairs = [(activity.start_ns, activity.end_ns) for activity in activities]
    return np.array(start_end_pairs, np.int64).reshape(-1, 2).T


def merge_intervals(spans: Intervals) -> Intervals:
    """Return the union of time intervals as sorted intervals that neither overlap nor touch, as an array of
    shape (2, m).
    """
    start_times, end_times = spans[:, spans[1] > spans[0]]
    if not start_times.size:
        return np.empty((2, 0), np.int64)
    start_order = np.argsort(start_times, kind="stable")
    start_times = start_times[start_order]
    end_times = np.maximum.accumulate(end_times[start_order])
    gap_indices = np.flatnonzero(start_times[1:] > end_times[:-1])
    return np.array([start_times[[0, *(gap_indices + 1)]], end_times[[*gap_indices, -1]]])


def sum_interval_ns(spans: Intervals) -> int:
    """Return the total time in ns that the intervals cover. Overlapping parts are counted once."""
    disjoint_spans = merge_intervals(spans)
    return int((disjoint_spans[1] - disjoint_spans[0]).sum())


def find_pair_overlaps(groups: Mapping[str, Sequence[Activity]]) -> tuple[Overlap, ...]:
    """Return the time during which the operations of each pair of groups ran simultaneously."""
    merged_intervals = {
        name: merge_intervals(make_intervals(activities)) for name, activities in groups.items()
    }
    busy_ns = {name: int((spans[1] - spans[0]).sum()) for name, spans in merged_intervals.items()}
    overlaps = []
    for first_group, second_group in combinations(groups, 2):
        union_ns = sum_interval_ns(
            np.concatenate([merged_intervals[first_group], merged_intervals[second_group]], axis=1)
        )
        overlap_ns = busy_ns[first_group] + busy_ns[second_group] - union_ns
        overlaps.append(
            Overlap(first_group, second_group, busy_ns[first_group], busy_ns[second_group], overlap_ns)
        )
    return tuple(overlaps)


def find_overlaps(timeline: Timeline) -> tuple[Overlap, ...]:
    """Return the time during which each pair of engines and each pair of streams worked simultaneously.

    The docstring of the module defines "busy" and the percentage of overlap. If there are more than
    `MAX_STREAMS` streams, those with the most operations are compared.

    Examples
    --------
    >>> overlap(timeline)[0].percent
    62.5
    """
    operations_of_stream = group_by_stream(timeline)
    busiest_names = {
        *sorted(operations_of_stream, key=lambda name: -len(operations_of_stream[name]))[:MAX_STREAMS]
    }
    busiest_streams = {
        name: operations_of_stream[name] for name in operations_of_stream if name in busiest_names
    }
    return (*find_pair_overlaps(group_by_engine(timeline)), *find_pair_overlaps(busiest_streams))
