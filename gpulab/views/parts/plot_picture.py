"""Items of a plot on the static picture: the same as ``plot.js`` paints on a canvas."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
from PIL import Image

from gpulab.views.parts import palette
from gpulab.views.parts.boxes import Plot
from gpulab.views.parts.items import Item, Labels, Line, Nodes, Rects, Rules, Spans, Ticks, Time, Tracks
from gpulab.views.parts.pen import SHARPNESS, Pen, shortened, text_width
from gpulab.views.parts.tracks_picture import Scale, paint_time, paint_tracks
from gpulab.words import duration, number, size

ROW_GAP_FROM_PX = 6
LEAST_NAMED_PX = 13
SLANT_PX = 8
HATCH_PX = 5
LEAST_OUTLINED_PX = 4


def paint_plot(pen: Pen, box: Plot, left: float, top: float, width: float) -> None:
    """Paint every item, and the outline and mark of what is chosen."""
    scale = Scale(box, left, top, width)
    for item in box.items:
        _PAINTERS[type(item)](pen, item, scale)
    if box.chosen is not None:
        _chosen(pen, box, box.chosen, scale)


def _spans(pen: Pen, item: Spans, scale: Scale) -> None:
    width = max(1, round(scale.width * SHARPNESS))
    rows = item.rows
    above = round(item.top * SHARPNESS)
    high = item.height / rows
    lanes = max(1, min(item.lanes, int(high * SHARPNESS)))
    joined = bool(item.joined)
    row = np.asarray(item.row, np.int64)
    start, end = (np.asarray(item.column(name), np.float64) - scale.low for name in ("x0", "x1"))
    seen = (row >= 0) & (row < rows)
    row = row[seen]
    start = start[seen]
    end = end[seen]
    key = row * lanes
    if item.lane is not None:
        key = key + np.asarray(item.lane, np.int64)[seen] * lanes // item.lanes
    colour = np.asarray(item.colour, np.int64)[seen] + 1
    first = np.clip(np.floor(start * scale.px * SHARPNESS).astype(np.int64), 0, width - 1)
    last = np.minimum(width, np.maximum(first + 1, np.floor(end * scale.px * SHARPNESS).astype(np.int64)))
    # An interval inside a pixel that is already painted changes nothing.
    order = np.argsort(key, kind="stable")
    reach = key[order] * (width + 1) + last[order]
    new = np.ones(reach.size, bool)
    new[1:] = reach[1:] > np.maximum.accumulate(reach)[:-1]
    kept = np.sort(order[new])
    last = last - ((last - first > 5) & (not joined))
    image = np.zeros(rows * lanes * width, np.uint8)
    if busy := item.busy:
        edges = (
            np.clip((np.asarray(busy[x]) - scale.low) * scale.px * SHARPNESS, 0, width) for x in ("x0", "x1")
        )
        for at, begin, until in zip(
            busy["row"].tolist(), *(e.astype(int).tolist() for e in edges), strict=True
        ):
            image.reshape(rows, lanes, width)[at, :, begin:until] = len(item.colours) + 1
    columns = (key * width + first, key * width + last, colour)
    for begin, end_, shade in zip(*(each[kept].tolist() for each in columns), strict=True):
        image[begin:end_] = shade
    picture = image.reshape(rows * lanes, width)
    paper = np.zeros((max(1, round((item.top + item.height) * SHARPNESS) - above), width), np.uint8)
    inner = high - (1 if high > ROW_GAP_FROM_PX and not joined else 0)
    for at in range(rows * lanes):
        base = item.top + at // lanes * high
        # The grain keeps the end of a row and the start of the next, equal but for rounding, on one pixel.
        edge = [round((base + (at % lanes + i) * inner / lanes) * SHARPNESS + 1e-6) - above for i in (0, 1)]
        tall = max(1, edge[1] - edge[0])
        paper[edge[0] : edge[0] + tall - (SHARPNESS // 2 if tall > 4 * SHARPNESS and not joined else 0)] = (
            picture[at]
        )
    pixels = Image.fromarray(paper)
    pixels.putpalette(b"".join(bytes.fromhex(palette.light(name)[1:]) for name in _grounds(item)))
    pen.image.paste(
        pixels.convert("RGB"), (round(scale.left * SHARPNESS), round(scale.top * SHARPNESS) + above)
    )
    if item.written and high / item.lanes >= LEAST_NAMED_PX:
        _span_names(pen, item, scale, high, inner)


def _grounds(item: Spans) -> list[str]:
    return [item.ground, *item.colours, *([item.busy["colour"]] if item.busy else [])]


def _span_names(pen: Pen, item: Spans, scale: Scale, high: float, inner: float) -> None:
    """Draw the names of spans that have room for them."""
    lane = item.lane if item.lane is not None else np.zeros(len(item.row), int)
    span = inner / item.lanes
    inks = [palette.ink(name) for name in item.colours]
    for index, (x0, x1) in enumerate(zip(item.x0.tolist(), item.x1.tolist(), strict=True)):
        room = (x1 - x0) * scale.px - 6
        if room >= 6 and text_width(text := said(item, index, item.written), 11) <= room:
            y = scale.top + item.top + item.row[index] * high + (lane[index] + 0.5) * span
            pen.text(scale.x(x0) + 3, y, text, colour=inks[int(item.colour[index])])


def said(item: Item, at: int, pieces: Sequence[Any]) -> str:
    """Return the text of several pieces, as ``said`` in ``plot.js``."""
    texts = []
    for piece in pieces:
        if isinstance(piece, str):
            texts.append(piece)
            continue
        column, *named = piece
        value = int(item.column(column)[at])
        if named[:1] == ["time"]:
            texts.append(duration(value - sum(int(item.column(other)[at]) for other in named[1:])))
            continue
        if named[:1] == ["moved"]:
            took = max(1, int(item.column(named[1])[at]) - int(item.column(named[2])[at]))
            texts.append(f", {size(value)} at {number(value / took)} GB/s" if value else "")
            continue
        among = item.column(named[0]) if named and isinstance(named[0], str) else named[0] if named else None
        texts.append(f"{value:,}" if among is None else among[value])
    return "".join(texts)


def _rects(pen: Pen, item: Rects, scale: Scale) -> None:
    for x0, x1, y0, y1, colour in zip(item.x0, item.x1, item.y0, item.y1, item.colour, strict=True):
        left = scale.x(x0) + item.inset
        right = max(left + 1, scale.x(x1) - item.inset)
        if item.outline:
            if right - left >= LEAST_OUTLINED_PX:
                pen.outline(left, scale.top + y0, right, scale.top + y1, item.colours[int(colour)], 1)
            continue
        if item.hatch:
            _hatch(pen, left, right, scale.top + y0, scale.top + y1, item.colours[int(colour)])
            continue
        pen.rect(left, scale.top + y0, right, scale.top + y1, item.colours[int(colour)])


def _hatch(pen: Pen, left: float, right: float, top: float, bottom: float, colour: str) -> None:
    """Slanted lines across a rectangle, in one pattern over all of them."""
    offset = (left + top) // HATCH_PX * HATCH_PX
    while offset < right + bottom:
        # Where x + y is `at`, inside.
        upper = max(top, offset - right)
        lower = min(bottom, offset - left)
        if upper < lower:
            pen.line([(offset - upper, upper), (offset - lower, lower)], colour, 1.2)
        offset += HATCH_PX


def _line(pen: Pen, item: Line, scale: Scale) -> None:
    if not len(item.x):
        return
    xs: npt.NDArray[np.float64] = scale.left + (np.asarray(item.x, np.float64) - scale.low) * scale.px
    ys = scale.top + np.asarray(item.y, np.float64)
    if item.step:
        xs = np.repeat(xs, 2)[1:]
        ys = np.repeat(ys, 2)[:-1]
    points = list(zip(xs.tolist(), ys.tolist(), strict=True))
    if item.fill:
        base = scale.top + item.base
        pen.polygon([(points[0][0], base), *points, (points[-1][0], base)], item.fill)
    if item.width:
        pen.line(points, item.colour, item.width)


def _rules(pen: Pen, item: Rules, scale: Scale) -> None:
    if item.most and len(item.x0) > item.most:
        return
    for x0, y0, x1, y1 in zip(item.x0, item.y0, item.x1, item.y1, strict=True):
        a = (scale.x(x0), scale.top + y0)
        b = (scale.x(x1), scale.top + y1)
        length = math.dist(a, b)
        if item.dash and length:
            ux = (b[0] - a[0]) / length
            uy = (b[1] - a[1]) / length
            for index in np.arange(0, length, 7).tolist():
                to = min(length, index + 4)
                pen.line(
                    [(a[0] + ux * index, a[1] + uy * index), (a[0] + ux * to, a[1] + uy * to)],
                    item.colour,
                    item.width,
                )
        else:
            pen.line([a, b], item.colour, item.width)
        if item.arrow:
            angle = math.atan2(b[1] - a[1], b[0] - a[0])
            wings = [(b[0] + 8 * math.cos(angle + t), b[1] + 8 * math.sin(angle + t)) for t in (2.7, -2.7)]
            pen.polygon([b, *wings], item.colour)


def _labels(pen: Pen, item: Labels, scale: Scale) -> None:
    weight = "mono" if item.mono else item.weight
    size = item.size - (1 if item.mono else 0)
    reached: dict[float, float] = {}
    for index, forms in enumerate(item.text):
        choices = forms.split("\n")
        if item.room is not None:
            room = item.room[index] * scale.px - 4
            choices = [form for form in choices if text_width(form, size, weight) <= room]
        if not choices or not choices[0]:
            continue
        x = scale.x(item.x[index]) + item.dx
        y = float(item.y[index])
        wide = text_width(choices[0], size, weight)
        left = x - {"start": 0, "middle": wide / 2, "end": wide}[item.anchor]
        if item.spread and left < reached.get(y, -math.inf) + 6:
            continue
        reached[y] = left + wide
        pen.text(
            x,
            scale.top + y,
            choices[0],
            size=size,
            weight=weight,
            colour=item.colour,
            anchor=item.anchor,
            turn=item.turn,
        )


def _axis(pen: Pen, item: Ticks, scale: Scale) -> None:
    chosen = item.levels[0]
    for level in item.levels:
        texts = level[1]
        if level[0] * scale.px >= 16 + max(text_width(texts[-1], 11), text_width(texts[len(texts) // 2], 11)):
            chosen = level
    y = scale.top + item.y
    right = scale.left + scale.width
    pen.rect(scale.left, y, right, y + 1, "muted")
    for index, text in enumerate(chosen[1]):
        x = scale.x(index * chosen[0])
        if x > right + 1:
            break
        pen.rect(x, y, x + 1, y + 4, "muted")
        pen.text(min(x, right + scale.box.right - text_width(text, 11) / 2), y + 12, text, anchor="middle")
    title = next((t for t in item.title if text_width(t, 11) <= scale.width), item.title[-1])
    pen.text(scale.left, y + 26, title, colour="muted")


def _chosen(pen: Pen, box: Plot, index: int, scale: Scale) -> None:
    item = next(item for item in box.items if isinstance(item, Rects) and item.say)
    left = scale.x(item.x0[index]) + item.inset
    right = scale.x(item.x1[index]) - item.inset
    top = scale.top + item.y0[index]
    bottom = scale.top + item.y1[index]
    pen.outline(left - 1, top - 1, right + 1, bottom + 1, "fg")
    if not box.marks:
        return
    late = left > scale.left + scale.width / 2
    mark = f"{box.marks[index]} ▼" if late else f"▼ {box.marks[index]}"
    pen.text(
        (left + right) / 2 + (5 if late else -5),
        scale.top + (box.mark_y or 0),
        mark,
        weight="bold",
        anchor="end" if late else "start",
    )


def _nodes(pen: Pen, item: Nodes, scale: Scale) -> None:
    for index, (text, detail) in enumerate(zip(item.text, item.detail, strict=True)):
        left = scale.x(item.x0[index])
        right = scale.x(item.x1[index])
        top = scale.top + item.y0[index]
        bottom = scale.top + item.y1[index]
        shape = item.shape[index]
        colour = item.colours[item.colour[index]]
        mark = item.mark[index]
        if mark >= 0:
            pen.polygon(_outline(shape, left - 3, top - 3, right + 3, bottom + 3), item.colours[mark])
        pen.polygon(_outline(shape, left, top, right, bottom), colour)
        room = right - left - 10 - (SLANT_PX if shape in (1, 2, 4) else 0)
        lines = [(words, px) for words, px in ((text, 11), (detail, 10)) if words]
        for line, (words, px) in enumerate(lines):
            middle = (top + bottom) / 2 + (line - (len(lines) - 1) / 2) * 14
            pen.text(
                (left + right) / 2,
                middle,
                shortened(words, room, px),
                size=px,
                colour=palette.ink(colour),
                anchor="middle",
            )


def _outline(shape: int, left: float, top: float, right: float, bottom: float) -> list[tuple[float, float]]:
    """Return the corners of a node, as ``outline`` in ``dag.js``."""
    slant = min(SLANT_PX, (right - left) / 4)
    middle = (top + bottom) / 2
    if shape == 1:
        return [(left + slant, top), (right - slant, top), (right, bottom), (left, bottom)]
    if shape == 2:
        return [(left, top), (right, top), (right - slant, bottom), (left + slant, bottom)]
    if shape == 4:
        return [
            (left, middle),
            (left + slant, top),
            (right - slant, top),
            (right, middle),
            (right - slant, bottom),
            (left + slant, bottom),
        ]
    radius = (bottom - top) / 2 if shape == 3 else 5
    arcs = (
        (right - radius, top + radius, -90),
        (right - radius, bottom - radius, 0),
        (left + radius, bottom - radius, 90),
        (left + radius, top + radius, 180),
    )
    return [
        (x + radius * math.cos(math.radians(turn + part)), y + radius * math.sin(math.radians(turn + part)))
        for x, y, turn in arcs
        for part in range(0, 91, 15)
    ]


_PAINTERS: dict[type[Item], Callable[[Pen, Any, Scale], None]] = {
    Spans: _spans,
    Rects: _rects,
    Line: _line,
    Rules: _rules,
    Labels: _labels,
    Ticks: _axis,
    Tracks: paint_tracks,
    Time: paint_time,
    Nodes: _nodes,
}
