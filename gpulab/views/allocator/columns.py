"""What the browser needs of histories: columns that it reads any step from, and texts that these number."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from gpulab.views.allocator import words
from virtualgpu.records.memory import ACTIONS, AllocatorHistory

if TYPE_CHECKING:
    from gpulab.views.allocator.layout import Places
    from gpulab.views.allocator.view import AllocatorView, Panel

MOST_POINTS, MOST_FRAMES, MOST_STACKS = 1200, 12, 20_000
COLOURS = ("accent", "good", "warn", "purple", "tail", "range", "accent-2")
"""Of the owners, or streams, with the most memory; the others share one more."""
REST = "other"
AGES = ((1, "made by this event", "tail"), (10, "≤ 10 events ago", "warn"), (100, "≤ 100", "good"),
        (1000, "≤ 1,000", "accent-2"), (1 << 31, "older", "accent"))  # fmt: skip

Column = npt.NDArray[Any]


class Owners:
    """Whose each block is: the line that allocated it, or what it is called; in the order of bytes."""

    def __init__(self, histories: Sequence[AllocatorHistory]) -> None:
        self.stack_owner: list[list[str]] = []
        self.of_blocks: list[Column] = []
        weight: dict[str, int] = {}
        named: list[list[str]] = []
        for history in histories:
            texts = [words.owner_of(stack) for stack in history.trace.stacks]
            self.stack_owner.append(texts)
            lives = history.blocks
            mine = [texts[at] if at >= 0 else "" for at in lives.stacks.tolist()]
            for at, begin in enumerate(lives.begins.tolist()):
                mine[at] = mine[at] or lives.labels.get(at, "") or ("" if begin else words.BEFORE)
            for name, bytes_ in zip(mine, lives.size_bytes.tolist(), strict=True):
                weight[name] = weight.get(name, 0) + bytes_
            named.append(mine)
        # Of the first history, whose stacks the slider's words name: each line once.
        self.lines = list(dict.fromkeys(self.stack_owner[0]))
        numbers = {name: at if name else -1 for at, name in enumerate(self.lines)}
        self.stack_line = np.array([*(numbers[name] for name in self.stack_owner[0]), -1], np.int32)
        code = zip(self.stack_owner[0], histories[0].trace.texts, strict=False)
        self.code = {name: text for name, text in code if name}
        self.names = sorted(weight, key=lambda name: (not name, -weight[name]))
        place = {name: at for at, name in enumerate(self.names)}
        self.of_blocks = [np.array([place[name] for name in mine], np.int32) for mine in named]

    def of_stack(self, panel: int, stack: int) -> str:
        """The line of a stack trace, nothing for none."""
        return self.stack_owner[panel][stack] if 0 <= stack < len(self.stack_owner[panel]) else ""


def moment(view: AllocatorView, at: int) -> tuple[str, int, int, int, int]:
    """What happened at a place of the slider: kind, bytes, bytes asked, stream, stack."""
    if view.requests:
        request = view.requests[at]
        kind = "ask" if request.kind == "alloc" else request.kind
        return kind, request.size_bytes, 0, request.stream, request.stack
    events = view.panels[0].history.trace.events
    return (
        ACTIONS[events.actions[at]], int(events.size_bytes[at]), int(events.requested_bytes[at]),
        int(events.streams[at]), int(events.stacks[at]),
    )  # fmt: skip


def refusals(view: AllocatorView, panel: Panel) -> list[int]:
    """The places of the slider at which a pool refused a request."""
    steps = np.flatnonzero(panel.history.trace.events.actions == ACTIONS.index("oom")) + 1
    return [int(at) for at in moments_of(panel, steps)]


def moments_of(panel: Panel, steps: Column) -> Column:
    """The places of the slider by which steps have been reached."""
    return steps if panel.after is None else np.unique(np.searchsorted(panel.after, steps, "left"))


def contents(view: AllocatorView, keys: str) -> dict[str, Any]:
    """Everything, for `pack`."""
    streams = {handle: at for at, handle in enumerate(view.streams)}
    stops = np.unique(np.concatenate([moments_of(panel, panel.stops) for panel in view.panels]))
    return {
        "panels": [_panel(view, at, streams) for at in range(len(view.panels))],
        "row_bytes": view.places[0].row_bytes,
        "streams": list(view.streams.values()),
        "owners": view.owners.names,
        "code": [view.owners.code.get(name, "") for name in view.owners.names], "lines": view.owners.lines,
        "colours": list(COLOURS), "rest": REST, "ages": [list(age) for age in AGES],
        "moments": _moments(view, streams), "last": view.last, "stops": stops,
        "refused": np.unique(np.array([m for panel in view.panels for m in refusals(view, panel)], np.int64)),
        "done": list(words.DONE.values()), "unit": "request" if view.requests else "event",
        "curves": _curves(view), "keys": keys,
    }  # fmt: skip


def _moments(view: AllocatorView, streams: dict[int, int]) -> dict[str, Any]:
    lines = view.owners.stack_line
    if view.requests:
        rows = [moment(view, at) for at in range(len(view.requests))]
        kind, sizes, asked, stream, stack = (list(column) for column in zip(*rows, strict=True))
        kinds = np.array([words.KINDS.index(name) for name in kind], np.uint8)
        table: list[Column] = [np.array(column, np.int64) for column in (sizes, asked, stream, stack)]
    else:
        events = view.panels[0].history.trace.events
        kinds = events.actions  # ACTIONS come first among the kinds
        table = [events.size_bytes, events.requested_bytes, events.streams, events.stacks]
    line = np.where(table[3] >= 0, lines[table[3]], -1).astype(np.int32)
    return {"kind": kinds, "size": table[0], "asked": table[1], "stream": _streams(table[2], streams),
            "line": line}  # fmt: skip


def _streams(handles: Column, streams: dict[int, int]) -> Column:
    known, back = np.unique(handles, return_inverse=True)
    numbers = np.array([streams.get(handle, -1) for handle in known.tolist()], np.int32)
    return numbers[back] if numbers.size else np.empty(0, np.int32)


def _panel(view: AllocatorView, at: int, streams: dict[int, int]) -> dict[str, Any]:
    panel, places = view.panels[at], view.places[at]
    history = panel.history
    trace, lives, ranges = history.trace, history.blocks, history.ranges
    limits = [each for each in (trace.first.limit_bytes, trace.capacity_bytes) if each]
    rows = np.flatnonzero(trace.events.actions == ACTIONS.index("oom"))
    asked = np.where(trace.events.requested_bytes > 0, trace.events.requested_bytes, trace.events.size_bytes)
    labels: dict[str, int] = {}
    labelled = np.full(len(lives), -1, np.int32)
    for row, label in lives.labels.items():
        labelled[row] = labels.setdefault(label, len(labels))
    return {
        "name": panel.name, "limit": min(limits, default=0), "known": bool(limits),
        "after": panel.after,
        "block": {
            "address": lives.addresses, "size": lives.size_bytes, "asked": lives.requested_bytes,
            "stack": lives.stacks, "segment": lives.segments, "begin": lives.begins, "freed": lives.freed,
            "end": lives.ends, "owner": view.owners.of_blocks[at], "label": labelled,
        },
        "range": {"address": ranges.addresses, "size": ranges.size_bytes, "segment": ranges.segments,
                  "begin": ranges.begins, "end": ranges.ends},
        "segment": _segments(history, places, streams),
        "groups": [[_group(view, group.stream, group.pool), group.first_row, group.rows]
                   for group in places.groups],
        "rows": places.rows,
        "refused": {"step": rows + 1, "asked": asked[rows],
                    "stream": _streams(trace.events.streams[rows], streams)},
        "labels": list(labels), **_stacks(history),
    }  # fmt: skip


def _group(view: AllocatorView, stream: int, pool: str) -> str:
    return f"{view.streams.get(stream, 'others')}{f' · {pool}' if pool else ''}"


def _segments(history: AllocatorHistory, places: Places, streams: dict[int, int]) -> dict[str, Any]:
    kinds = history.segments
    pools = ["", "small", "large"]
    return {
        "start": places.start, "wide": places.wide, "low": places.low, "size": places.size_bytes,
        "stream": _streams(np.array(kinds.streams, np.int64), streams),
        "pool": np.array([pools.index(p) if p in pools else 0 for p in kinds.pools], np.uint8),
        "expandable": np.array(kinds.is_expandable, np.uint8), "seen": np.array(kinds.is_seen, np.uint8),
    }  # fmt: skip


def _stacks(history: AllocatorHistory) -> dict[str, Any]:
    """Frames as texts, each once; stacks as numbers of frames, one behind the other."""
    frames: dict[str, int] = {}
    flat: list[int] = []
    bounds = [0]
    for stack in history.trace.stacks[:MOST_STACKS]:
        for frame in stack[:MOST_FRAMES]:
            text = f"{frame.filename}:{frame.line} in {frame.function}"
            flat.append(frames.setdefault(text, len(frames)))
        bounds.append(len(flat))
    return {"frames": list(frames), "stack_frames": np.array(flat, np.int32),
            "stack_bounds": np.array(bounds, np.int32)}  # fmt: skip


def _curves(view: AllocatorView) -> dict[str, Any]:
    """Used and reserved over the slider's places; of very many the highest of each stretch."""
    moments = np.arange(view.last + 1)
    bounds = np.unique(np.linspace(0, view.last + 1, MOST_POINTS, endpoint=False).astype(np.int64))
    found: dict[str, Any] = {"at": moments[bounds], "used": [], "reserved": []}
    for panel in view.panels:
        for name, sums in (("used", panel.history.used_bytes), ("reserved", panel.history.reserved_bytes)):
            over = sums if panel.after is None else sums[panel.after]
            found[name].append(np.maximum.reduceat(over, bounds).astype(np.float64))
    return found
