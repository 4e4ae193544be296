"""Columns of a pool's history from which the browser computes any step; strings are stored by index."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from gpulab.views.allocator import pool_text
from gpulab.views.parts.axes import Axes, Axis
from gpulab.views.parts.boxes import Plot
from gpulab.views.parts.items import Labels, Line, Rules
from gpulab.words import size
from virtualgpu.records.memory import ACTIONS, AllocatorHistory

if TYPE_CHECKING:
    from gpulab.views.allocator.layout import Places
    from gpulab.views.allocator.maps import Maps, PoolPanel

CURVE_PX = 46
LEFT_PX = 96
MOST_MARKS = 200
MOST_POINTS = 1200
MOST_FRAMES = 12
MOST_STACKS = 20_000
COLOURS = ("accent", "good", "warn", "purple", "tail", "range", "accent-2")
"""Colours of the owners, or streams, with the most memory; the others share one more."""
REST = "other"
AGES = (
    (1, "made by this event", "tail"),
    (10, "≤ 10 events ago", "warn"),
    (100, "≤ 100", "good"),
    (1000, "≤ 1,000", "accent-2"),
    (1 << 31, "older", "accent"),
)

Column = npt.NDArray[Any]


def contents(maps: Maps, keys: str) -> dict[str, Any]:
    """Return the complete data for `pack`."""
    streams = {handle: index for index, handle in enumerate(maps.streams)}
    stops = np.unique(np.concatenate([panel.slider_positions(panel.notable_steps) for panel in maps.panels]))
    return {
        "panels": [_panel(maps, index, streams) for index in range(len(maps.panels))],
        "row_bytes": maps.places[0].row_bytes,
        "streams": list(maps.streams.values()),
        "owners": maps.owners.names,
        "code": [maps.owners.code.get(name, "") for name in maps.owners.names],
        "lines": maps.owners.lines,
        "colours": list(COLOURS),
        "rest": REST,
        "ages": [list(age) for age in AGES],
        "moments": _moments(maps, streams),
        "last": maps.last,
        "stops": stops,
        "refused": np.array(maps.refusals(), np.int64),
        "done": list(pool_text.DONE.values()),
        "said": pool_text.PAGE,
        "figures": pool_text.FIGURES,
        "unit": maps.unit,
        "curve": curve(maps),
        "keys": keys,
    }


def _moments(maps: Maps, streams: dict[int, int]) -> dict[str, Any]:
    lines = maps.owners.stack_line
    if maps.requests:
        rows = [maps.operation_at(position) for position in range(len(maps.requests))]
        kind, sizes, requested, stream, stack = (list(column) for column in zip(*rows, strict=True))
        kinds = np.array([pool_text.KINDS.index(name) for name in kind], np.uint8)
        table: list[Column] = [np.array(column, np.int64) for column in (sizes, requested, stream, stack)]
    else:
        events = maps.panels[0].history.trace.events
        kinds = events.actions  # ACTIONS come first among the kinds
        table = [events.size_bytes, events.requested_bytes, events.streams, events.stacks]
    line = np.where(table[3] >= 0, lines[table[3]], -1).astype(np.int32)
    return {
        "kind": kinds,
        "size": table[0],
        "asked": table[1],
        "stream": _streams(table[2], streams),
        "line": line,
    }


def _streams(handles: Column, streams: dict[int, int]) -> Column:
    known, back = np.unique(handles, return_inverse=True)
    numbers = np.array([streams.get(handle, -1) for handle in known.tolist()], np.int32)
    return numbers[back] if numbers.size else np.empty(0, np.int32)


def limit_of(panel: PoolPanel) -> int:
    """Return the most that the pool may reserve, or 0 if it is not known."""
    trace = panel.history.trace
    return min((size for size in (trace.first.limit_bytes, trace.capacity_bytes) if size), default=0)


def _panel(maps: Maps, at: int, streams: dict[int, int]) -> dict[str, Any]:
    panel = maps.panels[at]
    places = maps.places[at]
    history = panel.history
    trace = history.trace
    lives = history.blocks
    ranges = history.ranges
    limit = limit_of(panel)
    rows = np.flatnonzero(trace.events.actions == ACTIONS.index("oom"))
    asked = np.where(trace.events.requested_bytes > 0, trace.events.requested_bytes, trace.events.size_bytes)
    labels: dict[str, int] = {}
    labelled = np.full(len(lives), -1, np.int32)
    for row, label in lives.labels.items():
        labelled[row] = labels.setdefault(label, len(labels))
    return {
        "name": panel.name,
        "limit": limit,
        "known": bool(limit),
        "after": panel.events_at_request,
        "block": {
            "address": lives.addresses,
            "size": lives.size_bytes,
            "asked": lives.requested_bytes,
            "stack": lives.stacks,
            "segment": lives.segments,
            "begin": lives.begins,
            "freed": lives.freed,
            "end": lives.ends,
            "owner": maps.owners.of_blocks[at],
            "label": labelled,
        },
        "range": {
            "address": ranges.addresses,
            "size": ranges.size_bytes,
            "segment": ranges.segments,
            "begin": ranges.begins,
            "end": ranges.ends,
        },
        "segment": _segments(history, places, streams),
        "groups": [
            [group_name(maps, group.stream, group.pool), group.first_row, group.rows]
            for group in places.groups
        ],
        "rows": places.rows,
        "refused": {
            "step": rows + 1,
            "asked": asked[rows],
            "stream": _streams(trace.events.streams[rows], streams),
        },
        "labels": list(labels),
        **_stacks(history),
    }


def group_name(maps: Maps, stream: int, pool: str) -> str:
    """Return the name of the rows of one stream and pool."""
    return f"{maps.streams.get(stream, 'others')}{f' · {pool}' if pool else ''}"


def _segments(history: AllocatorHistory, places: Places, streams: dict[int, int]) -> dict[str, Any]:
    kinds = history.segments
    pools = ["", "small", "large"]
    return {
        "start": places.start,
        "wide": places.wide,
        "low": places.low,
        "size": places.size_bytes,
        "stream": _streams(np.array(kinds.streams, np.int64), streams),
        "pool": np.array([pools.index(p) if p in pools else 0 for p in kinds.pools], np.uint8),
        "expandable": np.array(kinds.is_expandable, np.uint8),
        "seen": np.array(kinds.is_seen, np.uint8),
    }


def _stacks(history: AllocatorHistory) -> dict[str, Any]:
    """Return the frames as texts, each stored once, and the stacks as concatenated frame numbers."""
    frames: dict[str, int] = {}
    flat: list[int] = []
    bounds = [0]
    for stack in history.trace.stacks[:MOST_STACKS]:
        for frame in stack[:MOST_FRAMES]:
            text = f"{frame.filename}:{frame.line} in {frame.function}"
            flat.append(frames.setdefault(text, len(frames)))
        bounds.append(len(flat))
    return {
        "frames": list(frames),
        "stack_frames": np.array(flat, np.int32),
        "stack_bounds": np.array(bounds, np.int32),
    }


def curve(maps: Maps) -> Plot:
    """Return used and reserved bytes over the slider, the peak of each interval if needed, and refusals."""
    last = maps.last
    bounds = np.unique(np.linspace(0, last + 1, MOST_POINTS, endpoint=False).astype(np.int64))
    after = [
        slice(None) if panel.events_at_request is None else panel.events_at_request for panel in maps.panels
    ]
    used, *reserved = (
        np.append(highest := np.maximum.reduceat(sums, bounds), highest[-1])
        for sums in (
            maps.panels[0].history.used_bytes[after[0]],
            *(p.history.reserved_bytes[index] for p, index in zip(maps.panels, after, strict=True)),
        )
    )
    top = max(1, *(int(series.max()) for series in reserved))
    limit = max(limit_of(panel) for panel in maps.panels)
    shown = max(limit, top) if limit <= 1.6 * top else top
    axes = Axes(Axis(0, max(1, last)), Axis(0, shown, {shown: size(shown), 0: "0"}), CURVE_PX - 10, 7)
    x = np.append(bounds, last)
    refused = np.array(maps.refusals(), np.int64)
    _, points = np.unique(refused * MOST_MARKS // (last + 1), return_index=True)
    lines = zip(reserved, ("fg", "tail"), strict=False)
    return axes.plot(
        Line(x, axes.y(used), "accent-2", width=0, fill="accent-2", base=axes.bottom, step=True),
        *(Line(x, axes.y(series), colour, width=1.5, step=True) for series, colour in lines),
        Rules([0], [axes.top], [max(1, last)], [axes.top], "error", dash=True) if shown == limit else None,
        Labels(refused[points], 0 * points + 5, ["▼"] * points.size, anchor="middle", colour="error"),
        label="Memory over all steps",
        left=LEFT_PX,
        below_px=3,
    )
