"""Timelines as one plot: rows of bars, arrows, frames of graph launches, one time axis."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from gpulab.views._text import count
from gpulab.views.parts import plots
from gpulab.views.parts.boxes import Box, Item
from gpulab.views.parts.pen import shortened
from gpulab.views.timeline.lanes import COLOURS, ENGINES, HIDDEN, MARK, REST, Lanes
from virtualgpu.records import Timeline

LEFT_PX, HEADING_PX, GAP_PX = 108, 18, 2
# Streams have what the other rows leave, between these; more than fit share the last row.
ROWS_PX, STREAM_PX, LEAST_STREAM_PX, SMALL_PX = 276, 30, 13, 13
MOST_ZOOM = 1e7
MOST_ARROWS = 150
PICKS = {"selected": "operation", "node": "node", "panel": "panel"}


def lanes_of(records: Sequence[Timeline], names: Sequence[str] = ()) -> list[Lanes]:
    """The rows of timelines that share a plot: as many as there is room for; `names` tell them apart."""
    depth = 4 if len(records) == 1 else 2
    panels = [Lanes(record, depth, "".join(names[at : at + 1])) for at, record in enumerate(records)]
    most = int(_room(panels) / (LEAST_STREAM_PX + GAP_PX) / len(panels))
    for lanes in panels:
        lanes.fold(max(2, most))
    return panels


def _room(panels: Sequence[Lanes]) -> float:
    """Pixels for the rows of streams."""
    small = sum(lanes.small_rows for lanes in panels)
    return float(ROWS_PX - small * (SMALL_PX + GAP_PX) - HEADING_PX * len(panels) * (len(panels) > 1))


def chart(panels: Sequence[Lanes], label: str, picks: Mapping[str, str] = PICKS, **more: Any) -> Box:
    """One plot of timelines, one below the other, each from its own start on one axis."""
    several = len(panels) > 1
    streams = sum(len(lanes.places) - lanes.small_rows for lanes in panels)
    stream_px = min(STREAM_PX, max(LEAST_STREAM_PX, _room(panels) / max(1, streams) - GAP_PX))
    tops: list[float] = []
    heights: list[float] = []
    firsts, headings = [], []
    y = 0.0
    for lanes in panels:
        firsts.append(len(tops))
        if several:
            headings.append(y + HEADING_PX / 2)
            y += HEADING_PX
        for place in lanes.places:
            tops.append(y)
            heights.append(stream_px if place[0] == "stream" else SMALL_PX)
            y += heights[-1] + GAP_PX
        y += 4
    y = max(y, 40.0)
    longest = max(1, *(lanes.record.duration_ns for lanes in panels))
    domain = (0.0, float(longest))
    tracks = _tracks(panels, firsts, tops, heights, picks)
    rows = [lanes.row_name(place) for lanes in panels for place in lanes.places]
    middle = [top + high / 2 for top, high in zip(tops, heights, strict=True)]
    return plots.plot(
        y + 36,
        domain,
        tracks,
        *_frames(panels, firsts, tops, heights),
        *_arrows(panels, firsts, middle),
        *_marks(panels, firsts, middle),
        plots.y_ticks(middle, [shortened(name, LEFT_PX - 8, 11) for name in rows], domain),
        plots.labels([0.0] * len(headings), headings, [lanes.heading for lanes in panels][: len(headings)],
                     weight="bold", dx=-LEFT_PX, pin=True),
        plots.time_axis(y),
        label=label,
        left=LEFT_PX,
        zoom=True,
        name="tracks",
        most_zoom=max(1.0, min(MOST_ZOOM, longest / 20)),
        **more,
    )  # fmt: skip


def _tracks(
    panels: Sequence[Lanes], firsts: Sequence[int], tops: Sequence[float], heights: Sequence[float],
    picks: Mapping[str, str],
) -> Item:  # fmt: skip
    columns: dict[str, list[Any]] = {}
    texts: dict[str, Any] = {"names": [], "details": [], "lines": []}
    for at, (lanes, first) in enumerate(zip(panels, firsts, strict=True)):
        given = {
            "x0": lanes.start - lanes.record.start_ns, "x1": lanes.end - lanes.record.start_ns,
            "row": lanes.row + first, "lane": lanes.lane, "engine": lanes.engine,
            "name": lanes.name + len(texts["names"]), "detail": lanes.detail + len(texts["details"]),
            "line": lanes.line + len(texts["lines"]), "size": lanes.size, "operation": lanes.operation,
            "node": lanes.node, "panel": np.full(lanes.row.size, at, np.uint8),
        }  # fmt: skip
        for name, column in given.items():
            columns.setdefault(name, []).append(column)
        for name, table in texts.items():
            table += getattr(lanes, name)
    order = np.argsort(np.concatenate(columns["x0"]), kind="stable")
    whole: dict[str, Any] = {name: np.concatenate(parts)[order] for name, parts in columns.items()}
    engine = whole["engine"]
    # Kernels of one name have one shade, in every panel.
    kernels = dict.fromkeys(texts["names"][at] for at in np.unique(whole["name"][engine == 0]).tolist())
    turn = {name: at % 2 for at, name in enumerate(kernels)}
    second = np.array([turn.get(name, 0) for name in texts["names"]], np.int64)[whole["name"]]
    shades = np.array([[COLOURS.index(used[0]), COLOURS.index(used[-1])] for used, _ in ENGINES.values()])
    for name, column in whole.items():
        whole[name] = _small(column)
    return plots.tracks(
        colour=shades[engine, second].astype(np.uint8), colours=COLOURS, tops=list(tops),
        heights=list(heights), lanes=[n for lanes in panels for n in lanes.lanes],
        row_names=[lanes.row_name(place) for lanes in panels for place in lanes.places],
        **whole, **texts, shorts=[_short(name) for name in texts["names"]], picks=dict(picks),
        say=[["name", "names"], ": ", ["x1", "time", "x0"], " from ", ["x0", "time"],
             ["size", "moved", "x1", "x0"], ["detail", "details"], ["line", "lines"], "."],
    )  # fmt: skip


def _small(column: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """Whole numbers in as few bytes as hold them all."""
    ends = (int(column.min()), int(column.max())) if column.size else (0, 0)
    fits = ends[0] >= -(1 << 31) and ends[1] < 1 << 31
    return column.astype(np.result_type(*map(np.min_scalar_type, ends))) if fits else column


_COPY = re.compile(r"(?i)\W*(?:cuda )?memcpy (\w)to(\w)")
_ARGUMENTS = re.compile(r"<[^<>]*>|\([^()]*\)")


def _short(name: str) -> str:
    """What is written on a bar: ``H2D`` for a copy, the bare name of a C++ function."""
    if copied := _COPY.match(name):
        return f"{copied[1]}2{copied[2]}".upper()
    bare = name
    while (fewer := _ARGUMENTS.sub("", bare)) != bare:
        bare = fewer
    return bare.strip().split(" ")[-1].split("::")[-1] if "::" in bare or bare != name else name


def _frames(
    panels: Sequence[Lanes], firsts: Sequence[int], tops: Sequence[float], heights: Sequence[float]
) -> list[Item]:
    """Outlines around the launches of graphs."""
    found = [
        (begin - lanes.record.start_ns, until - lanes.record.start_ns, _row(lanes, place) + first)
        for lanes, first in zip(panels, firsts, strict=True) for place, begin, until, _ in lanes.launches
    ]  # fmt: skip
    if not found:
        return []
    begin, until, row = np.array(sorted(found), np.int64).T
    top, high = np.array(tops)[row], np.array(heights)[row]
    return [plots.rects(begin, until, top - 1, top + high + 1, "fg", outline=True)]


def _row(lanes: Lanes, place: Any) -> int:
    return lanes.places.index(REST if place in lanes.folded else place)


def _arrows(panels: Sequence[Lanes], firsts: Sequence[int], middle: Sequence[float]) -> list[Item]:
    """From the end of what had to end first to the start of what waited for it."""
    items = []
    for told, colour in ((0, "fg"), (1, "tail-text")):
        lines = []
        for lanes, first in zip(panels, firsts, strict=True):
            row = {place: at + first for at, place in enumerate(lanes.places)}
            row |= dict.fromkeys(lanes.folded, row.get(REST, 0))
            activities, origin = lanes.record.activities, lanes.record.start_ns
            for source, target in lanes.arrows[told]:
                a, b = activities[source], activities[target]
                ends = [middle[row["stream", each.device_id, each.stream_id]] for each in (a, b)]
                lines.append((b.start_ns - origin, a.end_ns - origin, ends[0], ends[1]))
        if lines:
            x1, x0, y0, y1 = np.array(sorted(lines), np.float64).T
            items.append(plots.rules(x0, y0, x1, y1, colour, width=1.5, arrow=True, dash=bool(told),
                                     most=MOST_ARROWS))  # fmt: skip
    return items


def _marks(panels: Sequence[Lanes], firsts: Sequence[int], middle: Sequence[float]) -> list[Item]:
    """What is too short to be seen or must not be missed: NVTX marks, hidden waits."""
    marks, hidden = [], []
    for lanes, first in zip(panels, firsts, strict=True):
        told = {row for row, place in enumerate(lanes.places) if place[0] in ("range", "wait")}
        for at in np.flatnonzero(np.isin(lanes.row, list(told))).tolist():
            row = int(lanes.row[at])
            where = (int(lanes.start[at]) - lanes.record.start_ns, middle[row + first])
            if lanes.details[lanes.detail[at]] == MARK:
                marks.append((*where, lanes.names[lanes.name[at]]))
            elif lanes.engine[at] == HIDDEN:
                hidden.append(where)
    items = []
    if marks:
        x, y, names = zip(*marks, strict=True)
        items.append(plots.labels(x, y, [f"◆ {name}" for name in names], dx=-4, spread=True))
    if hidden:
        x, y = zip(*hidden, strict=True)
        items.append(plots.labels(x, y, ["!"] * len(x), anchor="end", dx=-2, weight="bold", colour="error",
                                  spread=True))  # fmt: skip
    return items


def legend_entries(panels: Sequence[Lanes]) -> list[tuple[str, str]]:
    """What the colours mean, of those that occur."""
    used = {at for lanes in panels for at in np.unique(lanes.engine).tolist()}
    kernels = {
        lanes.names[at] for lanes in panels for at in np.unique(lanes.name[lanes.engine == 0]).tolist()
    }
    entries = [(names[0], text) for at, (names, text) in enumerate(ENGINES.values()) if at in used]
    return (
        [*entries[:1], ("accent-2", "kernel of another name"), *entries[1:]] if len(kernels) > 1 else entries
    )


def arrow_words(panels: Sequence[Lanes]) -> str:
    """What arrows and frames mean, of those that occur."""
    waits, implicit = (sum(len(lanes.arrows[told]) for lanes in panels) for told in (0, 1))
    launches = sum(len({(begin, graph) for _, begin, _, graph in lanes.launches}) for lanes in panels)
    parts = [
        *([f"Arrows: {count(waits, 'wait')} for an event"] if waits else []),
        *([f"dashed arrows: {count(implicit, 'order')} between streams without an event"]
          if implicit else []),
        *([f"frames: {count(launches, 'graph launch', 'graph launches')}"] if launches else []),
    ]  # fmt: skip
    if waits + implicit > MOST_ARROWS:
        parts.append(f"arrows are drawn where no more than {MOST_ARROWS} are in sight")
    text = "; ".join(parts)
    return f"{text[0].upper()}{text[1:]}." if text else ""
