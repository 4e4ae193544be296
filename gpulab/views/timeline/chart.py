"""Timelines as one plot: rows of bars, arrows, frames of graph launches, one time axis."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from gpulab.views.parts import plots
from gpulab.views.parts.boxes import Plot
from gpulab.views.parts.items import Item, Labels, Rects, Rules, Time, Tracks
from gpulab.views.parts.pen import shorten, text_width
from gpulab.views.timeline.lanes import ENGINES, HIDDEN, MARK, OF_DEVICE, STREAM_OF, Lanes, Place
from gpulab.words import count
from virtualgpu.records import Timeline

HEADING_PX = 18
GAP_PX = 2
LEAST_LEFT_PX = 80
MOST_LEFT_PX = 150
# Limits of the space for streams, next to other rows; streams that do not fit share the last row.
ROWS_PX = 276
STREAM_PX = 30
LEAST_STREAM_PX = 13
SMALL_PX = 13
MOST_ARROWS = 150
PICKS = {"selected": "operation", "node": "node", "panel": "panel"}


@dataclass(frozen=True, slots=True)
class Rows:
    """Positions of the rows of the panels: row of each place and panel, top and height of each row."""

    number: dict[tuple[int, Place], int]
    tops: list[float]
    heights: list[float]

    def middle(self, panel: int, place: Place) -> float:
        row = self.number[panel, place]
        return self.tops[row] + self.heights[row] / 2


def lanes_of(records: Sequence[Timeline], names: Sequence[str] = (), rows_px: float = ROWS_PX) -> list[Lanes]:
    """Return the rows of timelines in one plot, as many as fit; `names` distinguish the timelines."""
    depth = 4 if len(records) == 1 else 2
    panels = [Lanes(record, depth, "".join(names[at : at + 1])) for at, record in enumerate(records)]
    most = int(_room(panels, rows_px) / (LEAST_STREAM_PX + GAP_PX) / len(panels))
    for lanes in panels:
        lanes.fold(max(2, most))
    return panels


def _room(panels: Sequence[Lanes], rows_px: float) -> float:
    """Pixels for the rows of streams."""
    small = sum(lanes.small_rows for lanes in panels)
    return float(rows_px - small * (SMALL_PX + GAP_PX) - HEADING_PX * len(panels) * (len(panels) > 1))


def chart(
    panels: Sequence[Lanes],
    label: str,
    picks: Mapping[str, str] = PICKS,
    rows_px: float = ROWS_PX,
    **more: Any,
) -> Plot:
    """Draw timelines in one plot, one below the other, each from its own start on one axis.

    Parameters
    ----------
    panels
        As `lanes_of` gives them.
    picks
        Trait of the view -> column (``operation``, ``node``, ``panel``) that it selects by.
    rows_px
        What the rows take together, about, as given to `lanes_of`.
    """
    streams = sum(len(lanes.places) - lanes.small_rows for lanes in panels)
    stream_px = min(STREAM_PX, max(LEAST_STREAM_PX, _room(panels, rows_px) / max(1, streams) - GAP_PX))
    rows = Rows({}, [], [])
    headings: list[float] = []
    y = 0.0
    for panel, lanes in enumerate(panels):
        if len(panels) > 1:
            headings.append(y + HEADING_PX / 2)
            y += HEADING_PX
        for place in lanes.places:
            rows.number[panel, place] = len(rows.tops)
            rows.tops.append(y)
            rows.heights.append(stream_px if place[0] == "stream" else SMALL_PX)
            y += rows.heights[-1] + GAP_PX
        rows.number.update({(panel, place): len(rows.tops) - 1 for place in lanes.folded})
        y += 4
    y = max(y, 40.0)
    track = _tracks(panels, rows, picks)
    domain = (
        float(track.x0.min(initial=0)),
        float(max(1, track.x1.max(initial=0), *(lanes.record.duration_ns for lanes in panels))),
    )
    widest = max((text_width(name, 11) for name in track.row_names), default=0.0)
    left = round(min(MOST_LEFT_PX, max(LEAST_LEFT_PX, widest + 12)))
    names = [shorten(name, left - 8, 11) for name in track.row_names]
    middle = [top + high / 2 for top, high in zip(rows.tops, rows.heights, strict=True)]
    return plots.plot(
        y + 36,
        domain,
        track,
        _frames(panels, rows),
        *_arrows(panels, rows),
        *_marks(panels, rows),
        plots.y_ticks(middle, names, domain),
        Labels(
            [domain[0]] * len(headings),
            headings,
            [lanes.heading for lanes in panels if headings],
            weight="bold",
            dx=-left,
            pin=True,
        ),
        Time(y),
        label=label,
        left=left,
        zoom=True,
        name="tracks",
        most_zoom=max(1.0, (domain[1] - domain[0]) / 20),
        **more,
    )


def _tracks(panels: Sequence[Lanes], rows: Rows, picks: Mapping[str, str]) -> Tracks:
    columns: dict[str, list[Any]] = {}
    texts: dict[str, Any] = {"names": [], "details": [], "lines": []}
    for panel, lanes in enumerate(panels):
        given = {
            "x0": lanes.start - lanes.record.start_ns,
            "x1": lanes.end - lanes.record.start_ns,
            "row": lanes.row + rows.number[panel, lanes.places[0]] if lanes.places else lanes.row,
            "lane": lanes.lane,
            "colour": lanes.engine,
            "name": lanes.name + len(texts["names"]),
            "detail": lanes.detail + len(texts["details"]),
            "line": lanes.line + len(texts["lines"]),
            "size": lanes.size,
            "operation": lanes.operation,
            "node": lanes.node,
            "panel": np.full(lanes.row.size, panel),
        }
        for name, column in given.items():
            columns.setdefault(name, []).append(column)
        for name, table in texts.items():
            table += getattr(lanes, name)
    order = np.argsort(np.concatenate(columns["x0"]), kind="stable")
    whole: dict[str, Any] = {name: _small(np.concatenate(parts)[order]) for name, parts in columns.items()}
    # Kernels of different names take turns at two shades; one name has one shade, in every panel.
    kernels = dict.fromkeys(name for lanes in panels for name in lanes.kernels)
    every_second = {*[*kernels][1::2]}
    second = np.array([name in every_second for name in texts["names"]], bool)
    whole["colour"] += (whole["colour"] == 0) & second[whole["name"]]
    device = {*np.unique(whole["name"][whole["colour"] < OF_DEVICE]).tolist()}
    shorts = [_short(name) if at in device else name for at, name in enumerate(texts["names"])]
    return Tracks(
        colours=[colour for colour, _ in ENGINES.values()],
        tops=rows.tops,
        heights=rows.heights,
        lanes=[n for lanes in panels for n in lanes.lanes],
        row_names=[lanes.row_name(place) for lanes in panels for place in lanes.places],
        **{name: whole.pop(name) for name in ("x0", "x1", "row", "lane", "colour")},
        columns={**whole, **texts, "shorts": shorts, "picks": dict(picks)},
        say=[
            ["name", "names"],
            ": ",
            ["x1", "time", "x0"],
            " from ",
            ["x0", "time"],
            ["size", "moved", "x1", "x0"],
            ["detail", "details"],
            ["line", "lines"],
            ".",
        ],
    )


def _small(column: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """Return integers in the smallest type that fits all of them."""
    ends = (int(column.min()), int(column.max())) if column.size else (0, 0)
    fits = ends[0] >= -(1 << 31) and ends[1] < 1 << 31
    return column.astype(np.result_type(*map(np.min_scalar_type, ends))) if fits else column


_COPY = re.compile(r"(?i)\W*(?:cuda )?memcpy (\w)to(\w)")
_ARGUMENTS = re.compile(r"<[^<>]*>|\([^()]*\)")


def _short(name: str) -> str:
    """Return the text on a bar: ``H2D`` for a copy, the bare name of a C++ function."""
    if copied := _COPY.match(name):
        return f"{copied[1]}2{copied[2]}".upper()
    bare = name
    while (fewer := _ARGUMENTS.sub("", bare)) != bare:
        bare = fewer
    return bare.strip().split(" ")[-1].split("::")[-1] if "::" in bare or bare != name else name


def _frames(panels: Sequence[Lanes], rows: Rows) -> Item | None:
    """Outlines around the launches of graphs."""
    frames = [
        (begin - lanes.record.start_ns, until - lanes.record.start_ns, rows.number[panel, place])
        for panel, lanes in enumerate(panels)
        for (place, *_), (begin, until) in lanes.launches.items()
    ]
    if not frames:
        return None
    begin, until, row = np.array(frames, np.int64).T
    top = np.array(rows.tops)[row]
    high = np.array(rows.heights)[row]
    return Rects(begin, until, top - 1, top + high + 1, "fg", outline=True)


def _arrows(panels: Sequence[Lanes], rows: Rows) -> Iterator[Item]:
    """Yield arrows from the end of an operation to the start of the operation that waited for it."""
    for told, colour in ((0, "fg"), (1, "tail-text"), (2, "error")):
        lines = []
        for panel, lanes in enumerate(panels):
            activities = lanes.record.activities
            origin = lanes.record.start_ns
            for source, target in (*lanes.arrows, lanes.faults)[told]:
                a = activities[source]
                b = activities[target]
                above, below = (rows.middle(panel, ("stream", *STREAM_OF(each))) for each in (a, b))
                lines.append((a.end_ns - origin, above, b.start_ns - origin, below))
        if lines:
            x0, y0, x1, y1 = np.array(lines, np.float64).T
            width = 2.5 if told == 2 else 1.5
            yield Rules(x0, y0, x1, y1, colour, width=width, arrow=True, dash=told == 1, most=MOST_ARROWS)


def _marks(panels: Sequence[Lanes], rows: Rows) -> Iterator[Item]:
    """Yield marks of bars that are too short to see or must not be missed: NVTX marks, hidden waits."""
    marks: list[tuple[int, float, str]] = []
    hidden: list[tuple[int, float, str]] = []
    for panel, lanes in enumerate(panels):
        start = lanes.start - lanes.record.start_ns
        is_mark = np.array([detail == MARK for detail in lanes.details], bool)
        for found, which, sign in (
            (marks, is_mark[lanes.detail], "◆ "),
            (hidden, lanes.engine == HIDDEN, "!"),
        ):
            for at in np.flatnonzero(which).tolist():
                y = rows.middle(panel, lanes.places[lanes.row[at]])
                name = lanes.names[lanes.name[at]] if found is marks else ""
                found.append((int(start[at]), y, sign + name))
    if marks:
        yield plots.texts([(*mark, 0) for mark in marks], room=None, anchor="start", dx=-4, spread=True)
    if hidden:
        yield plots.texts(
            [(*mark, 0) for mark in hidden],
            room=None,
            anchor="end",
            dx=-2,
            weight="bold",
            colour="error",
            spread=True,
        )


def tracks_of(plot: Plot) -> Tracks:
    """The bars of a `chart`."""
    return next(item for item in plot.items if isinstance(item, Tracks))


def legend_entries(plot: Plot) -> list[tuple[str, str]]:
    """Return the meanings of the colours that occur in a `chart`."""
    entries = [*ENGINES.values()]
    return [entries[index] for index in np.unique(tracks_of(plot).colour).tolist()]


def arrow_words(panels: Sequence[Lanes]) -> str:
    """Return the meanings of the arrows and frames that occur."""
    waits, implicit = (sum(len(lanes.arrows[sentences]) for lanes in panels) for sentences in (0, 1))
    faults = sum(len(lanes.faults) for lanes in panels)
    launches = sum(len({launch[1:] for launch in lanes.launches}) for lanes in panels)
    parts = [
        *([f"Arrows: {count(waits, 'wait')} for an event"] if waits else []),
        *(
            [f"dashed arrows: {count(implicit, 'order')} between streams without an event"]
            if implicit
            else []
        ),
        *([f"red arrows: {count(faults, 'read')} that came before what was to be read"] if faults else []),
        *([f"frames: {count(launches, 'graph launch', 'graph launches')}"] if launches else []),
    ]
    if waits + implicit > MOST_ARROWS:
        parts.append(f"arrows are drawn where no more than {MOST_ARROWS} are in sight")
    text = "; ".join(parts)
    return f"{text[0].upper()}{text[1:]}." if text else ""
