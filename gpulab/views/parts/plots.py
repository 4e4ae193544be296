"""Plots and their items: x in data units, y in pixels from the plot's top."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from gpulab.views.parts.boxes import Plot
from gpulab.views.parts.items import Item, Labels, Numbers, Rects, Spans, Ticks
from gpulab.words import time_unit

AXIS_PX = 34
FINEST = 64


def plot(
    height: float,
    domain: tuple[float, float],
    *items: Item | None,
    label: str = "",
    left: int = 8,
    right: int = 8,
    zoom: bool = False,
    **more: Any,
) -> Plot:
    """Return a plot `height` pixels high whose width represents `domain`; `label` is read aloud.

    With `zoom`, ``+``, ``-`` and ``0``, Ctrl and the wheel, and dragging change what is in sight; at most
    64 times as wide, or ``most_zoom`` times.
    """
    low, high = map(float, domain)
    drawn = [item for item in items if item is not None]
    return Plot(height, [low, high if high > low else low + 1], left, right, label, zoom, drawn, **more)


def _columns(rows: Sequence[Sequence[Any]], many: int) -> list[list[Any]]:
    return [*map(list, zip(*rows, strict=True))] or [[] for _ in range(many)]


def boxes(rows: Sequence[Sequence[Any]], colours: Sequence[str], **more: Any) -> Item:
    """Rectangles as rows: x0, x1, y0, y1 and the number of its colour."""
    x0, x1, y0, y1, colour = _columns(rows, 5)
    return Rects(x0, x1, y0, y1, colour, colours, **more)


def texts(rows: Sequence[Sequence[Any]], **more: Any) -> Item:
    """Texts around their places, as rows: x, y, text and the data units that it may take."""
    x, y, text, room = _columns(rows, 4)
    return Labels(x, y, text, **{"anchor": "middle", "room": room, **more})


def nice_step(raw: float) -> float:
    """Return the smallest of 1, 2, 5 times a power of ten that is not below `raw`."""
    power = 10.0 ** math.floor(math.log10(raw))
    return next(m * power for m in (1, 2, 5, 10) if m * power >= raw * (1 - 1e-9))


def nice_ticks(limit: float, wanted: int) -> list[float]:
    """Return round positions from 0 to `limit`, about `wanted` of them."""
    step = nice_step(limit / wanted) if limit > 0 else math.inf
    return [i * step for i in range(int(limit / step * 1.0001) + 1)] if limit > 0 else [0.0]


def x_axis(
    y: float,
    limit: float,
    text: Callable[[float], str],
    title: str,
    *,
    scale: float = 1,
    zoom: bool = False,
    whole: bool = False,
) -> Item:
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
    levels: list[tuple[float, list[str]]] = []
    step = nice_step(limit / scale / 2) if limit > 0 else 1.0
    finest = limit / scale / (FINEST * 5 if zoom else 12)
    while limit > 0 and step >= finest and (not whole or step >= 1):
        ticks = [step_index * step for step_index in range(int(limit / scale / step * 1.0001) + 1)]
        levels.append((step * scale, [text(tick) for tick in ticks]))
        step = nice_step(step / 2.6)
    return Ticks(y, levels or [(1.0, [text(0)])], title.split("\n"))


def time_ticks(low: float, high: float, count: float, since: str) -> tuple[str, list[tuple[float, str]]]:
    """The axis' name and its ticks, position and text, from `low` to `high` ns; ``plot.js`` has the same.

    Where the times would be long beside what is in sight, they are told from a round time before it.
    """
    unit, scale = time_unit(high - low)
    larger = scale * 1000
    larger_unit = {"ns": "µs", "µs": "ms"}.get(unit, "s")
    base = math.floor(low / larger) * larger if scale < 1e9 else 0.0
    step = max(1.0, nice_step((high - low) / max(1.0, count)))
    digits = max(0, -math.floor(math.log10(step / scale) + 1e-9))
    first = math.ceil((low - base) / step - 1e-9)
    last = math.floor((high - base) / step + 1e-9)
    ticks = [(base + tick * step, f"{tick * step / scale:,.{digits}f}") for tick in range(first, last + 1)]
    after = f" + {base / larger:,.0f} {larger_unit}" if base else ""
    return f"time since {since}{after} ({unit})", ticks


def speaking(sentences: Sequence[str]) -> dict[str, Any]:
    """Return the arguments that give each of an item's spans or rects its own sentence."""
    return {"columns": {"which": [*range(len(sentences))]}, "say": [["which", sentences]]}


def y_ticks(
    positions: Numbers, texts: Sequence[str], domain: tuple[float, float], of_rows: bool = False
) -> Item:
    """Texts left of a plot, at heights in pixels; those `of_rows` go when one row is shown alone."""
    at = [float(domain[0])] * len(texts)
    return Labels(at, list(positions), texts, anchor="end", dx=-5, pin=True, of_rows=of_rows)


def y_name(text: str, y: float, domain: tuple[float, float], left: int, of_rows: bool = False) -> Item:
    """The name of a y axis, read upwards at the left edge, its middle at y; `of_rows` as in `y_ticks`."""
    at = [float(domain[0])]
    return Labels(at, [y], [text], anchor="middle", dx=8 - left, turn=True, pin=True, of_rows=of_rows)


def lane_grid(
    states: npt.NDArray[Any], colours: Sequence[str], *, top: float, row_height: float, **more: Any
) -> Item:
    """Draw lanes over steps: `states` (lanes, steps) index `colours`; equal neighbours are merged.

    The plot's domain is (0, steps).
    """
    rows, steps = states.shape
    change = np.ones((rows, steps), bool)
    change[:, 1:] = states[:, 1:] != states[:, :-1]
    row, start = np.nonzero(change)
    end = np.append(start[1:], steps)
    end[np.append(row[1:] != row[:-1], True)] = steps
    order = np.argsort(start, kind="stable")
    return Spans(
        start[order].astype(np.float32),
        end[order].astype(np.float32),
        row[order].astype(np.uint16),
        states[row, start][order].astype(np.uint8),
        colours,
        rows=rows,
        top=top,
        height=rows * row_height,
        joined=True,
        **more,
    )
