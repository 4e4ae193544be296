"""Plots and what can stand in them: x in data units, y in pixels from the plot's top."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from gpulab.views._text import time_unit
from gpulab.views.parts.boxes import Box, Item, part

Numbers = Sequence[float] | npt.NDArray[Any]
AXIS_PX = 34
FINEST = 64
MOST_POINTS = 4096


def plot(
    height: float, domain: tuple[float, float], *items: Item | None, label: str = "", left: int = 8,
    right: int = 8, zoom: bool = False, **more: Any,
) -> Box:  # fmt: skip
    """A plot `height` pixels high whose width stands for `domain`; `label` is read aloud.

    With `zoom`, ``+``, ``-`` and ``0``, Ctrl and the wheel, and dragging change what is in sight; at most
    64 times as wide, or ``most_zoom`` times.
    """
    low, high = map(float, domain)
    return {
        "box": "plot", "height": height, "domain": [low, high if high > low else low + 1], "left": left,
        "right": right, "label": label, "zoom": zoom, "items": [item for item in items if item], **more,
    }  # fmt: skip


def spans(
    x0: npt.NDArray[Any], x1: npt.NDArray[Any], row: npt.NDArray[Any], colour: npt.NDArray[Any],
    colours: Sequence[str], *, rows: int, top: float, height: float, lane: npt.NDArray[Any] | None = None,
    lanes: int = 1, ground: str = "grid", joined: bool = False, busy: Mapping[str, Any] | None = None,
    written: Sequence[Any] = (), row_names: Sequence[str] = (), **more: Any,
) -> Item:  # fmt: skip
    """Intervals over `rows` rows between `top` and `top + height`, in order of their start `x0`.

    Parameters
    ----------
    row, lane
        Row of each and place in it, from 0; what lies outside is not drawn.
    colour
        Index into `colours` of each; `ground` is what no interval covers.
    joined
        Leave no gap between rows and neighbours.
    busy
        Stretches (``row``, ``x0``, ``x1``) in a ``colour`` of their own under the intervals: what an item
        that holds only some of them leaves out.
    written
        Written into intervals that have room for it, in pieces like ``say``.
    row_names
        With them a click or Enter shows one row alone.
    """
    return part("item", "spans", locals(), rows=max(1, rows), lanes=max(1, lanes))


def tracks(
    *, x0: npt.NDArray[Any], x1: npt.NDArray[Any], row: npt.NDArray[Any], lane: npt.NDArray[Any],
    colour: npt.NDArray[Any], colours: Sequence[str], tops: Sequence[float], heights: Sequence[float],
    lanes: Sequence[int], row_names: Sequence[str], ground: str = "panel", **more: Any,
) -> Item:  # fmt: skip
    """Very many intervals over rows of their own heights, zoomed to any depth, in order of their start.

    A pixel has the colour of what takes most of it, pale where its row was busy for less than half of it.
    The plot gets a search among ``names`` and a toolbar. It is the first item of its plot.

    Parameters
    ----------
    row, lane
        Row of each and place in it, from 0; the intervals of one place do not overlap.
    colour
        Index into `colours` of each; these are among `palette.PALE`.
    tops, heights, lanes, row_names
        Of each row: pixels from the plot's top, pixels, places side by side in it, and its name.
    **more
        ``name`` (index into ``names``) is searched, its ``shorts`` written where there is room. ``picks``
        (trait -> column) ties traits to what is clicked: those intervals are outlined of which every
        trait that is not -1 equals the column.
    """
    return part("item", "tracks", locals())


def rects(
    x0: Numbers, x1: Numbers, y0: Numbers, y1: Numbers, colour: str | Sequence[int] | npt.NDArray[Any],
    colours: Sequence[str] = (), *, inset: float = 0, outline: bool = False, hatch: bool = False, **more: Any,
) -> Item:  # fmt: skip
    """Rectangles, `inset` pixels narrower on the left and right; `colour` is one name or indices into
    `colours`. An `outline` is drawn where it is at least 4 pixels wide; with `hatch` they are filled with
    slanted lines."""
    given = locals()
    named = {"colour": [0] * len(x0), "colours": [colour]} if isinstance(colour, str) else {}
    return part("item", "rects", given, **named)


def line(
    x: Numbers, y: Numbers, colour: str, *, width: float = 1, fill: str = "", base: float = 0,
    step: bool = False, **more: Any,
) -> Item:  # fmt: skip
    """A line through points; `step` makes it a staircase, `fill` colours the area down to y = `base`.

    A staircase of very many points keeps the highest and the last of each of `MOST_POINTS` stretches.
    """
    given = locals()
    xs, ys = np.asarray(x, np.float64), np.asarray(y, np.float32)
    if step and xs.size > 2 * MOST_POINTS:
        bounds = np.linspace(0, xs.size, MOST_POINTS, endpoint=False).astype(np.int64)
        highest = np.minimum.reduceat(ys, bounds)  # y grows downwards
        last = np.append(bounds[1:], xs.size) - 1
        xs, ys = np.column_stack((xs[bounds], xs[last])).ravel(), np.column_stack((highest, ys[last])).ravel()
    return part("item", "line", given, x=xs, y=ys)


def rules(
    x0: Numbers, y0: Numbers, x1: Numbers, y1: Numbers, colour: str = "muted", *, width: float = 1,
    dash: bool = False, arrow: bool = False, most: int = 0, **more: Any,
) -> Item:  # fmt: skip
    """Straight segments, dashed or with an arrow's head; none while more than `most`, if not 0,
    are in sight."""
    return part("item", "rules", locals())


def labels(
    x: Numbers, y: Numbers, text: Sequence[str], *, anchor: str = "start", colour: str = "fg",
    size: float = 11, weight: str = "normal", dx: float = 0, room: Numbers | None = None,
    spread: bool = False, turn: bool = False, mono: bool = False, pin: bool = False, **more: Any,
) -> Item:  # fmt: skip
    """Texts, their vertical middle at `y` and their `anchor` (start, middle, end) at `x` plus `dx` pixels.

    Parameters
    ----------
    room
        Data units that each text may take: one that does not fit is left out. A text may have shorter
        forms after a line break, the first that fits is taken.
    spread
        Leave out a text that would touch the last one drawn.
    turn
        Read upwards (a y axis' name).
    pin
        Stay where they are when the plot is zoomed, as the names of rows do.
    """
    return part("item", "labels", locals())


def nice_step(raw: float) -> float:
    """The smallest of 1, 2, 5 times a power of ten that is not below `raw`."""
    power = 10.0 ** math.floor(math.log10(raw))
    return next(m * power for m in (1, 2, 5, 10) if m * power >= raw * (1 - 1e-9))


def nice_ticks(limit: float, wanted: int) -> list[float]:
    """Round positions from 0 to `limit`, about `wanted` of them."""
    step = nice_step(limit / wanted) if limit > 0 else math.inf
    return [i * step for i in range(int(limit / step * 1.0001) + 1)] if limit > 0 else [0.0]


def x_axis(
    y: float, limit: float, text: Callable[[float], str], title: str, *, scale: float = 1,
    zoom: bool = False, whole: bool = False,
) -> Item:  # fmt: skip
    """Ticks from 0 to `limit` below y, in several finenesses of which the painter takes one that fits.

    Parameters
    ----------
    text
        Writes a tick's value, given in units of `scale`.
    title
        What the axis shows; shorter forms follow after a line break.
    zoom
        Also ticks so fine that the plot can be zoomed.
    whole
        No ticks between whole numbers (of `scale`).
    """
    levels: list[list[Any]] = []
    step = nice_step(limit / scale / 2) if limit > 0 else 1.0
    finest = limit / scale / (FINEST * 5 if zoom else 12)
    while limit > 0 and step >= finest and (not whole or step >= 1):
        ticks = [at * step for at in range(int(limit / scale / step * 1.0001) + 1)]
        levels.append([step * scale, [text(tick) for tick in ticks]])
        step = nice_step(step / 2.6)
    return {"item": "axis", "y": y, "levels": levels or [[1.0, [text(0)]]], "title": title.split("\n")}


def time_axis(y: float, since: str = "the start") -> Item:
    """Ticks of a time in nanoseconds below y, whatever is in sight; its zero is at `since`."""
    return {"item": "time", "y": y, "since": since}


def time_ticks(low: float, high: float, wanted: float, since: str) -> tuple[str, list[tuple[float, str]]]:
    """The axis' name and its ticks, position and text, from `low` to `high` ns; ``plot.js`` has the same.

    Where the times would be long beside what is in sight, they are told from a round time before it.
    """
    unit, scale = time_unit(high - low)
    larger, larger_unit = scale * 1000, {"ns": "µs", "µs": "ms"}.get(unit, "s")
    base = math.floor(low / larger) * larger if scale < 1e9 else 0.0
    step = max(1.0, nice_step((high - low) / max(1.0, wanted)))
    digits = max(0, -math.floor(math.log10(step / scale) + 1e-9))
    first = math.ceil((low - base) / step - 1e-9)
    last = math.floor((high - base) / step + 1e-9)
    ticks = [(base + at * step, f"{at * step / scale:,.{digits}f}") for at in range(first, last + 1)]
    after = f" + {base / larger:,.0f} {larger_unit}" if base else ""
    return f"time since {since}{after} ({unit})", ticks


def y_ticks(
    positions: Sequence[float], texts: Sequence[str], domain: tuple[float, float], of_rows: bool = False
) -> Item:
    """Texts left of a plot, at heights in pixels; those `of_rows` go when one row is shown alone."""
    at = [float(domain[0])] * len(texts)
    return labels(at, list(positions), texts, anchor="end", dx=-5, pin=True, of_rows=of_rows)


def y_name(text: str, y: float, domain: tuple[float, float], left: int, of_rows: bool = False) -> Item:
    """The name of a y axis, read upwards at the left edge, its middle at y; `of_rows` as in `y_ticks`."""
    at = [float(domain[0])]
    return labels(at, [y], [text], anchor="middle", dx=8 - left, turn=True, pin=True, of_rows=of_rows)


def lane_grid(
    states: npt.NDArray[Any], colours: Sequence[str], *, top: float, row_height: float, **more: Any
) -> Item:
    """Lanes over steps: `states` (lanes, steps) are indices into `colours`; equal neighbours are one span.

    The plot's domain is (0, steps).
    """
    rows, steps = states.shape
    change = np.ones((rows, steps), bool)
    change[:, 1:] = states[:, 1:] != states[:, :-1]
    row, start = np.nonzero(change)
    end = np.append(start[1:], steps)
    end[np.append(row[1:] != row[:-1], True)] = steps
    order = np.argsort(start, kind="stable")
    return spans(
        start[order].astype(np.float32), end[order].astype(np.float32), row[order].astype(np.uint16),
        states[row, start][order].astype(np.uint8), colours, rows=rows, top=top, height=rows * row_height,
        joined=True, **more,
    )  # fmt: skip
