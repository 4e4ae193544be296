"""Static picture of a warp trace: source lines next to lanes over steps."""

from __future__ import annotations

from typing import Any

import numpy as np

from gpulab.views.parts.boxes import Box, Plot, column, legend, row
from gpulab.views.parts.boxes import words as paragraph
from gpulab.views.parts.items import Item, Labels, Line, Rects
from gpulab.views.parts.plots import lane_grid, plot, x_axis, y_ticks
from gpulab.views.warp import step_text
from gpulab.views.warp.states import ACTIVE, INACTIVE, OFF
from gpulab.views.warp.steps import WarpSteps
from gpulab.words import count, number
from virtualgpu.records import WARP_SIZE
from virtualgpu.records.warp.columns import lanes_of

MOST_LINES = 26
MOST_BINS = 800
MOST_LOOPS = 200
LINE_PX = 16
LOOP_PX = 12
ACTIVE_PX = 36
_STATES = (INACTIVE, OFF, ACTIVE)  # the number of masks that have the lane


def draw(steps: WarpSteps, notes: str) -> Box:
    """Draw source lines with their run counts and active lanes, next to all lanes over all steps."""
    note = paragraph(notes, "note") if notes else None
    if not len(steps):
        return column(paragraph(step_text.EMPTY), note)
    source = _source(steps)
    return column(row(source, _lanes(steps, max(250, source.height)), least=[420, 400]), note)


def _source(steps: WarpSteps) -> Plot:
    """The lines that ran, at most `MOST_LINES`."""
    code = [text.expandtabs(4) for text in steps.trace.code.rstrip("\n").split("\n")]
    run = steps.line[steps.line > 0].tolist() or [1, len(code)]
    first = max(1, min(run) - 1)
    last = min(len(code), max(run) + 1, first + MOST_LINES - 1)
    visits = np.bincount(steps.line, minlength=last + 1)
    lanes = np.bincount(steps.line, np.bitwise_count(steps.trace.active_mask), minlength=last + 1)
    quiet: dict[str, Any] = {"colour": "muted", "size": 10.5}
    items: list[Item] = [Labels([22, 66], [6, 6], ["line", "steps"], anchor="end", **quiet)]
    items += [Labels([80], [6], ["mean active lanes (bar) and source"], **quiet)]
    for line, text in enumerate(code[first - 1 : last], first):
        y = (line - first + 1.5) * LINE_PX
        visits_of_line = int(visits[line])
        shown = text if len(text) <= 50 else f"{text[:49]}…"
        items.append(Labels([22], [y], [str(line)], anchor="end", **quiet))
        if visits_of_line:
            wide = 332 * float(lanes[line]) / visits_of_line / WARP_SIZE
            items.append(Rects([78], [78 + wide], [y - 7], [y + 7], "highlight"))
            items.append(Labels([66], [y], [f"{number(visits_of_line)}×"], anchor="end", size=10.5))
        items.append(
            Labels([80], [y], [shown], size=10.5, mono=True, colour="fg" if visits_of_line else "muted")
        )
    height = LINE_PX * (max(0, last - first + 1) + 1)
    return plot(height, (0, 420), *items, label="Source lines", left=0, right=0)


def _lanes(steps: WarpSteps, body: float) -> Box:
    trace = steps.trace
    total = len(steps)
    domain = (0, total)
    raster = body - ACTIVE_PX - LOOP_PX - 8
    ran = trace.active_mask & trace.executed_mask
    state = lanes_of(trace.active_mask).astype(np.uint8) + lanes_of(ran)
    edges = np.unique(np.linspace(0, total, MOST_BINS + 1).astype(np.int64))
    sums = np.add.reduceat(np.bitwise_count(trace.active_mask).astype(np.int64), edges[:-1])
    base = raster + LOOP_PX + ACTIVE_PX
    heights = base - ACTIVE_PX / WARP_SIZE * sums / np.diff(edges)
    marks = edges[np.unique(np.searchsorted(edges, steps.accesses, side="right") - 1)]
    spent = [
        f"{count(int(took.sum()), one, many)}, at best {number(int(best[took > 0].sum()))}"
        for took, best, one, many in (
            (steps.sectors, steps.ideal_sectors, "sector of 32 B", "sectors of 32 B"),
            (steps.wavefronts, steps.ideal_wavefronts, "shared pass", "shared passes"),
        )
        if took.sum()
    ]
    accesses = count(steps.accesses.size, "memory access", "memory accesses")
    return column(
        legend((state.colour, state.name) for state in _STATES[::-1]),
        plot(
            base + 40,
            domain,
            lane_grid(state.T, [state.colour for state in _STATES], top=0, row_height=raster / WARP_SIZE),
            y_ticks(
                [(lane + 0.5) * raster / WARP_SIZE for lane in (0, 8, 16, 24, 31)],
                ["0", "8", "16", "24", "31"],
                domain,
            ),
            *_loops(steps, raster + 1),
            Line(edges, np.append(heights, heights[-1]), "accent", fill="accent-2", base=base, step=True),
            y_ticks([base - ACTIVE_PX + 4, base - 4], ["32", "0"], domain),
            Rects(marks, marks, [base + 1] * marks.size, [base + 5] * marks.size, "tail", inset=-0.5),
            x_axis(base + 6, total, number, "step\nlanes above, active lanes below", integers_only=True),
            label="Lanes over steps",
            left=34,
            right=8,
        ),
        paragraph("; ".join([f"Orange marks: {accesses}", *spent]), "note"),
    )


def _loops(steps: WarpSteps, top: float) -> list[Item]:
    """Draw outer loops as bars below the lanes, with iteration numbers if they fit."""
    loops = steps.loops
    runs = np.flatnonzero(loops.run_outer < 0)[:MOST_LOOPS]
    first = loops.run_turns[runs]
    last = loops.run_turns[runs + 1] - 1
    left = loops.turn_begin[first].astype(float)
    right = loops.turn_end[last] + 1.0
    texts = [f"{loops.words[turn].split(' of ')[-1]} iterations" for turn in first.tolist()]
    upper, middle, lower = ([top + down] * runs.size for down in (0, LOOP_PX / 2 - 1, LOOP_PX - 2))
    labels = Labels((left + right) / 2, middle, texts, anchor="middle", size=10, room=right - left)
    return [Rects(left, right, upper, lower, "accent-2"), labels]
