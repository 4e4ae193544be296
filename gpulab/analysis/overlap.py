"""Overlap: the time in which two engines, or two streams, were busy at the same time.

An engine or a stream is *busy* while at least one of its operations runs: the union of their intervals
``[start, end)``. Two are busy together for ``|A ∩ B| = |A| + |B| - |A ∪ B|``, each of them the length of
a union, which one sweep over the sorted intervals gives. The overlap in percent is that time over the shorter
of the two busy times, so that 100 % means: all that could be hidden behind the other was. Operations
that take no time count for nothing.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import combinations

import numpy as np
import numpy.typing as npt

from virtualgpu.records import Activity, NvtxRange, Timeline
from virtualgpu.records.analysis import Overlap

_COPY_ENGINES = {"HtoD": "H2D", "DtoH": "D2H", "DtoD": "D2D", "PtoP": "P2P"}
_ENGINES = {"CONCURRENT_KERNEL": "compute", "MEMSET": "memset", "RANGE": "range"}
ENGINES = ("compute", "H2D", "D2H", "D2D", "P2P", "memset", "range", "other copies")

# Largest number of streams that are compared: the number of pairs grows with its square.
MOST_STREAMS = 64

Intervals = npt.NDArray[np.int64]


def engine_of(activity: Activity) -> str | None:
    """Return the engine of `ENGINES` that runs an operation, or None for host functions.

    A range between events, where single operations cannot be seen, is an engine of its own.
    """
    if activity.kind in ("MEMCPY", "MEMCPY2"):
        return _COPY_ENGINES.get(activity.copy_kind or "", "other copies")
    return _ENGINES.get(activity.kind)


def stream_names(timeline: Timeline) -> dict[tuple[int, int], str]:
    """Return the names of the streams by device and stream; they name the device if there are several."""
    told = {(s.device_id, s.stream_id): s.name for s in timeline.streams}
    keys = dict.fromkeys((*((a.device_id, a.stream_id) for a in timeline.activities), *told))
    several = len({device for device, _ in keys}) > 1
    found: dict[tuple[int, int], str] = {}
    taken: set[str] = set()
    for key in keys:
        name = told.get(key, f"stream {key[1]}") + (f" of device {key[0]}" if several else "")
        found[key] = f"{name} ({key[1]})" if name in taken else name
        taken.add(found[key])
    return found


def by_engine(timeline: Timeline) -> dict[str, list[Activity]]:
    """Return the operations of each engine in the order of `ENGINES`; keys name the device if needed."""
    several = len({a.device_id for a in timeline.activities}) > 1
    found: dict[tuple[int, int], list[Activity]] = {}
    for activity in timeline.activities:
        engine = engine_of(activity)
        if engine is not None:
            found.setdefault((activity.device_id, ENGINES.index(engine)), []).append(activity)
    return {
        ENGINES[engine] + (f" of device {device}" if several else ""): found[device, engine]
        for device, engine in sorted(found)
    }


def by_stream(timeline: Timeline) -> dict[str, list[Activity]]:
    """Return the device operations of each stream, in the order of the streams' first ones."""
    names = stream_names(timeline)
    found: dict[tuple[int, int], list[Activity]] = {}
    for activity in timeline.activities:
        if engine_of(activity) is not None:
            found.setdefault((activity.device_id, activity.stream_id), []).append(activity)
    return {names[key]: found[key] for key in found}


def intervals(activities: Sequence[Activity | NvtxRange]) -> Intervals:
    """Return the start and end of each operation in ns, shape (2, n)."""
    pairs = [(a.start_ns, a.end_ns) for a in activities]
    return np.array(pairs, np.int64).reshape(-1, 2).T


def union(spans: Intervals) -> Intervals:
    """Return the union of intervals as disjoint intervals that do not touch, sorted: shape (2, m)."""
    starts, ends = spans[:, spans[1] > spans[0]]
    if not starts.size:
        return np.empty((2, 0), np.int64)
    order = np.argsort(starts, kind="stable")
    starts = starts[order]
    ends = np.maximum.accumulate(ends[order])
    breaks = np.flatnonzero(starts[1:] > ends[:-1])
    return np.array([starts[[0, *(breaks + 1)]], ends[[*breaks, -1]]])


def length_ns(spans: Intervals) -> int:
    """Return the length of the union in ns."""
    joined = union(spans)
    return int((joined[1] - joined[0]).sum())


def pairs(groups: Mapping[str, Sequence[Activity]]) -> tuple[Overlap, ...]:
    """Return the overlap of each pair of groups."""
    joined = {name: union(intervals(activities)) for name, activities in groups.items()}
    busy = {name: int((spans[1] - spans[0]).sum()) for name, spans in joined.items()}
    found = []
    for first, second in combinations(groups, 2):
        either = length_ns(np.concatenate([joined[first], joined[second]], axis=1))
        both = busy[first] + busy[second] - either
        found.append(Overlap(first, second, busy[first], busy[second], both))
    return tuple(found)


def overlap(timeline: Timeline) -> tuple[Overlap, ...]:
    """Return the overlap of each pair of engines, then of each pair of streams.

    See the module's text for what is busy, and percent of what. Of more streams than `MOST_STREAMS`
    those with the most operations are compared.

    Examples
    --------
    >>> overlap(timeline)[0].percent
    62.5
    """
    streams = by_stream(timeline)
    most = {*sorted(streams, key=lambda name: -len(streams[name]))[:MOST_STREAMS]}
    compared = {name: streams[name] for name in streams if name in most}
    return (*pairs(by_engine(timeline)), *pairs(compared))
