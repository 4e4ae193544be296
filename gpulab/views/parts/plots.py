"""Functions that create plots and their items, with x in data units and y in pixels from the plot's top."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from gpulab.views.parts.boxes import Plot
from gpulab.views.parts.items import Item, Labels, Numbers, Rects, Spans, TickAxis
from gpulab.words import time_unit

AXIS_HEIGHT_PX = 34
MAX_ZOOM = 64


def plot(
    height: float,
    domain: tuple[float, float],
    *items: Item | None,
    label: str = "",
    left: int = 8,
    right: int = 8,
    zoom: bool = False,
    **options: Any,
) -> Plot:
    """Return a plot that is `height` pixels high. The width represents `domain`, and screen readers read
    `label` aloud.

    With `zoom`, the keys ``+``, ``-`` and ``0``, Ctrl and the wheel, and dragging change the visible
    interval, up to a magnification of 64 or ``most_zoom``.
    """
    lowest_x, highest_x = map(float, domain)
    visible_items = [item for item in items if item is not None]
    return Plot(
        height,
        [lowest_x, highest_x if highest_x > lowest_x else lowest_x + 1],
        left,
        right,
        label,
        zoom,
        visible_items,
        **options,
    )


def _split_columns(rows: Sequence[Sequence[Any]], column_count: int) -> list[list[Any]]:
    return [*map(list, zip(*rows, strict=True))] or [[] for _ in range(column_count)]


def make_rects(rows: Sequence[Sequence[Any]], colours: Sequence[str], **options: Any) -> Item:
    """Return a plot item with one rectangle for each element of `rows`. Each row contains x0, x1, y0, y1
    and the index of a colour.
    """
    x0, x1, y0, y1, colour_index = _split_columns(rows, 5)
    return Rects(x0, x1, y0, y1, colour_index, colours, **options)


def make_labels(rows: Sequence[Sequence[Any]], **options: Any) -> Item:
    """Return a plot item with one centred text for each element of `rows`. Each row contains x, y, the
    text, and its maximum width in data units.
    """
    x, y, text, max_widths = _split_columns(rows, 4)
    return Labels(x, y, text, **{"anchor": "middle", "room": max_widths, **options})


def nice_step(min_step: float) -> float:
    """Return the smallest number that is at least `min_step` and is 1, 2 or 5 times a power of ten."""
    power_of_ten = 10.0 ** math.floor(math.log10(min_step))
    return next(
        multiple * power_of_ten
        for multiple in (1, 2, 5, 10)
        if multiple * power_of_ten >= min_step * (1 - 1e-9)
    )


def nice_ticks(limit: float, tick_count: int) -> list[float]:
    """Return about `tick_count` round tick positions from 0 to `limit`."""
    tick_step = nice_step(limit / tick_count) if limit > 0 else math.inf
    return [i * tick_step for i in range(int(limit / tick_step * 1.0001) + 1)] if limit > 0 else [0.0]


def make_x_axis(
    y: float,
    limit: float,
    format_tick: Callable[[float], str],
    title: str,
    *,
    scale: float = 1,
    zoom: bool = False,
    integers_only: bool = False,
) -> Item:
    """Return a horizontal axis below y with ticks from 0 to `limit`. The axis has several tick distances, of
    which the first one that fits is drawn.

    Parameters
    ----------
    format_tick
        Function that returns the text of a tick's value in units of `scale`.
    title
        The name of the axis; shorter forms follow after line breaks.
    zoom
        Whether to add ticks for a plot that can be zoomed.
    integers_only
        Whether ticks are at integers (of `scale`) only.
    """
    tick_levels: list[tuple[float, list[str]]] = []
    tick_step = nice_step(limit / scale / 2) if limit > 0 else 1.0
    finest_step = limit / scale / (MAX_ZOOM * 5 if zoom else 12)
    while limit > 0 and tick_step >= finest_step and (not integers_only or tick_step >= 1):
        ticks = [step_index * tick_step for step_index in range(int(limit / scale / tick_step * 1.0001) + 1)]
        tick_levels.append((tick_step * scale, [format_tick(tick) for tick in ticks]))
        tick_step = nice_step(tick_step / 2.6)
    return TickAxis(y, tick_levels or [(1.0, [format_tick(0)])], title.split("\n"))


def make_time_ticks(
    low: float, high: float, tick_count: float, origin_name: str
) -> tuple[str, list[tuple[float, str]]]:
    """Return the name of a time axis, and its ticks (position, text) from `low` to `high` ns.

    ``plot.js`` computes the same ticks.

    If the times are large compared with the visible interval, they are counted from a round time before it.
    """
    time_unit_name, ns_per_unit = time_unit(high - low)
    larger_scale = ns_per_unit * 1000
    larger_unit = {"ns": "µs", "µs": "ms"}.get(time_unit_name, "s")
    base_ns = math.floor(low / larger_scale) * larger_scale if ns_per_unit < 1e9 else 0.0
    step_ns = max(1.0, nice_step((high - low) / max(1.0, tick_count)))
    decimals = max(0, -math.floor(math.log10(step_ns / ns_per_unit) + 1e-9))
    first_tick = math.ceil((low - base_ns) / step_ns - 1e-9)
    last_tick = math.floor((high - base_ns) / step_ns + 1e-9)
    ticks = [
        (base_ns + tick_index * step_ns, f"{tick_index * step_ns / ns_per_unit:,.{decimals}f}")
        for tick_index in range(first_tick, last_tick + 1)
    ]
    base_text = f" + {base_ns / larger_scale:,.0f} {larger_unit}" if base_ns else ""
    return f"time since {origin_name}{base_text} ({time_unit_name})", ticks


def make_sentence_args(sentences: Sequence[str]) -> dict[str, Any]:
    """Return keyword arguments that give each span or rectangle of a plot item its own sentence."""
    return {"columns": {"which": [*range(len(sentences))]}, "say": [["which", sentences]]}


def make_y_ticks(
    positions: Numbers, texts: Sequence[str], domain: tuple[float, float], of_rows: bool = False
) -> Item:
    """Return tick labels to the left of a plot at the given y in pixels. If `of_rows` is true, the labels are
    hidden while only one row is shown.
    """
    x = [float(domain[0])] * len(texts)
    return Labels(x, list(positions), texts, anchor="end", dx=-5, pin=True, of_rows=of_rows)


def make_y_name(text: str, y: float, domain: tuple[float, float], left: int, of_rows: bool = False) -> Item:
    """Return the name of a y axis as vertical text at the left edge. The text is centred at y."""
    x = [float(domain[0])]
    return Labels(x, [y], [text], anchor="middle", dx=8 - left, turn=True, pin=True, of_rows=of_rows)


def draw_lane_grid(
    states: npt.NDArray[Any], colours: Sequence[str], *, top: float, row_height: float, **options: Any
) -> Item:
    """Return a plot item that shows the state of each lane in each step as coloured spans.

    The array `states` (lanes, steps) contains indices into `colours`. The plot's domain is (0, steps).
    """
    row_count, step_count = states.shape
    is_run_start = np.ones((row_count, step_count), bool)
    is_run_start[:, 1:] = states[:, 1:] != states[:, :-1]
    run_rows, run_starts = np.nonzero(is_run_start)
    run_ends = np.append(run_starts[1:], step_count)
    run_ends[np.append(run_rows[1:] != run_rows[:-1], True)] = step_count
    start_order = np.argsort(run_starts, kind="stable")
    return Spans(
        run_starts[start_order].astype(np.float32),
        run_ends[start_order].astype(np.float32),
        run_rows[start_order].astype(np.uint16),
        states[run_rows, run_starts][start_order].astype(np.uint8),
        colours,
        rows=row_count,
        top=top,
        height=row_count * row_height,
        joined=True,
        **options,
    )
