"""Tracks and their time axis on the static picture: the same as ``tracks.js`` paints on a canvas."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
from PIL import Image

from gpulab.views.parts import palette
from gpulab.views.parts.boxes import Box, Item
from gpulab.views.parts.pen import SHARPNESS, Pen, shortened, text_width
from gpulab.views.parts.plots import time_ticks

LEAST_NAMED_PX = 11
LEAST_NAME_PX = 26
TICK_PX = 72


class Scale:
    """Where a plot's x values are on the picture."""

    def __init__(self, box: Box, left: float, top: float, width: float) -> None:
        self.left, self.top, self.box = left + box["left"], top, box
        self.width = width - box["left"] - box["right"]
        self.low, self.high = map(float, box["domain"])
        self.px: float = self.width / (self.high - self.low)

    def x(self, value: float) -> float:
        return float(self.left + (value - self.low) * self.px)


def paint_tracks(pen: Pen, item: Item, scale: Scale) -> None:
    """Each place of each row, pixel by pixel, and the names that there is room for."""
    width = max(1, round(scale.width * SHARPNESS))
    starts, ends = (
        np.clip((np.asarray(item[name], np.float64) - scale.low) * scale.px * SHARPNESS, 0, width)
        for name in ("x0", "x1")
    )
    colour = np.asarray(item["colour"], np.int64)
    firsts = np.concatenate([[0], np.cumsum(item["lanes"])])
    key = firsts[np.asarray(item["row"], np.int64)] + np.asarray(item["lane"], np.int64)
    order = np.argsort(key, kind="stable")
    bounds = np.searchsorted(key[order], np.arange(firsts[-1] + 1))
    names = [item["ground"], *(f"{name}{pale}" for name in item["colours"] for pale in ("", "-pale"))]
    inks = b"".join(bytes.fromhex(palette.light(name)[1:]) for name in names)
    for row, (top, high, lanes) in enumerate(zip(item["tops"], item["heights"], item["lanes"], strict=True)):
        edges = [round((top + at * high / lanes) * SHARPNESS + 1e-6) for at in range(lanes + 1)]
        paper = np.zeros((edges[-1] - edges[0], width), np.uint8)
        for lane in range(lanes):
            mine = order[bounds[firsts[row] + lane] : bounds[firsts[row] + lane + 1]]
            gap = 1 if lanes > 1 and edges[lane + 1] - edges[lane] > 4 * SHARPNESS else 0
            paper[edges[lane] - edges[0] : edges[lane + 1] - edges[0] - gap] = _shades(
                starts[mine], ends[mine], colour[mine], width
            )
        pixels = Image.fromarray(paper)
        pixels.putpalette(inks)
        place = (round(scale.left * SHARPNESS), round(scale.top * SHARPNESS) + edges[0])
        pen.image.paste(pixels.convert("RGB"), place)
    for row, (high, lanes) in enumerate(zip(item["heights"], item["lanes"], strict=True)):
        for lane in range(lanes):
            mine = order[bounds[firsts[row] + lane] : bounds[firsts[row] + lane + 1]]
            if high / lanes >= LEAST_NAMED_PX:
                middle = scale.top + item["tops"][row] + (lane + 0.5) * high / lanes
                _names(pen, item, scale, mine[(ends - starts)[mine] > LEAST_NAME_PX * SHARPNESS], middle)


def _shades(
    starts: npt.NDArray[Any], ends: npt.NDArray[Any], colour: npt.NDArray[Any], width: int
) -> npt.NDArray[Any]:
    """What each pixel shows: 0 for the ground, 1 + 2 × colour, and one more where it is pale."""
    ends = ends - ((ends - starts) > 5)
    first = np.minimum(starts.astype(np.int64), width - 1)
    last = np.minimum(ends.astype(np.int64), width - 1)
    within = first == last
    cover, best = np.zeros(width), np.zeros(width)
    shade = np.zeros(width, np.int64)
    steps = np.zeros(width + 1, np.int64)
    wide = np.flatnonzero(last > first + 1)
    np.add.at(steps, first[wide] + 1, 1)
    np.add.at(steps, last[wide], -1)
    inside = np.cumsum(steps[:-1]) > 0
    if wide.size:
        owner = wide[np.clip(np.searchsorted(first[wide], np.arange(width)) - 1, 0, wide.size - 1)]
        shade[inside] = colour[owner[inside]]
        cover[inside] = best[inside] = 1
    # The pixels at an interval's ends are covered in part; an interval of no length shows, too.
    at = np.concatenate([first, last[~within]])
    part = np.concatenate([np.where(within, ends - starts, first + 1 - starts), (ends - last)[~within]])
    part = np.maximum(part, 1e-3 * np.concatenate([within, np.zeros(at.size - first.size)]))
    which = np.concatenate([colour, colour[~within]])
    np.add.at(cover, at, part)
    rank = np.lexsort((part, at))
    most = rank[np.append(at[rank][1:] != at[rank][:-1], True)] if rank.size else rank
    better = most[part[most] > best[at[most]]]
    shade[at[better]] = which[better]
    return np.where(cover > 0, 1 + 2 * shade + (cover < 0.5), 0).astype(np.uint8)


def _names(pen: Pen, item: Item, scale: Scale, which: npt.NDArray[Any], middle: float) -> None:
    for at in which.tolist():
        left, right = max(scale.left, scale.x(item["x0"][at])), scale.x(item["x1"][at])
        text = shortened(item["shorts"][item["name"][at]], right - left - 7, 11)
        if len(text) > 3 or "…" not in text:
            pen.text(left + 3, middle, text, colour=palette.ink(item["colours"][int(item["colour"][at])]))


def paint_time(pen: Pen, item: Item, scale: Scale) -> None:
    """The axis, its ticks and its name."""
    title, ticks = time_ticks(scale.low, scale.high, scale.width / TICK_PX, item["since"])
    y, right = scale.top + item["y"], scale.left + scale.width
    pen.rect(scale.left, y, right, y + 1, "muted")
    for value, text in ticks:
        x = scale.x(value)
        pen.rect(x, y, x + 1, y + 4, "muted")
        at = min(x, right + scale.box["right"] - text_width(text, 11) / 2)
        pen.text(at, y + 12, text, anchor="middle")
    pen.text(scale.left, y + 26, title, colour="muted")
