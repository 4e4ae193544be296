"""Static picture of a warp trace: source lines beside lanes over steps."""

from __future__ import annotations

import numpy as np

from gpulab.views._text import count, number
from gpulab.views.parts import (
    Box,
    column,
    labels,
    lane_grid,
    legend,
    line,
    plot,
    rects,
    row,
    words,
    x_axis,
    y_ticks,
)
from gpulab.views.warp.steps import WarpSteps
from gpulab.views.warp.words import EMPTY
from virtualgpu.records import SECTOR_BYTES, WARP_SIZE
from virtualgpu.records.columns import lanes_of

MOST_LINES = 26
MOST_BINS = 800
MOST_LOOPS = 200
LINE_PX = 16
CODE_PX = 420
LEFT_PX = 34
LOOP_PX = 12
ACTIVE_PX = 36
_COLOURS = ("grid", "warn", "accent")
_STATES = ("inactive", "predicated off", "active")


def draw(steps: WarpSteps, confirmation: str) -> Box:
    """Source lines with how often they ran and how full, beside all lanes over all steps."""
    note = words(confirmation, "note") if confirmation else None
    if not len(steps):
        return column(words(EMPTY), note)
    first, texts = _window(steps)
    body = max(250, len(texts) * LINE_PX)
    return column(
        row(_source(steps, first, texts), _lanes(steps, body), weights=[1, 1], least=[CODE_PX, 400]), note
    )


def _window(steps: WarpSteps) -> tuple[int, list[str]]:
    """The lines that ran, at most `MOST_LINES`; returns the first line's number and the texts."""
    code = [text.expandtabs(4) for text in steps.trace.code.splitlines()]
    run = steps.line[steps.line > 0]
    if not run.size or not code:
        return 1, code[:MOST_LINES]
    first = max(1, int(run.min()) - 1)
    last = min(len(code), int(run.max()) + 1, first + MOST_LINES - 1)
    return first, code[first - 1 : last]


def _source(steps: WarpSteps, first: int, texts: list[str]) -> Box:
    size = first + len(texts)
    visits = np.bincount(steps.line, minlength=size)[first:size].tolist()
    lanes = np.bitwise_count(steps.trace.active_mask)
    sums = np.bincount(steps.line, lanes, minlength=size)[first:size].tolist()
    middle = [LINE_PX * (at + 1.5) for at in range(len(texts))]
    share = [total / max(1, seen) / WARP_SIZE for seen, total in zip(visits, sums, strict=True)]
    shown = [text if len(text) <= 50 else f"{text[:49]}…" for text in texts]
    ran = [at for at, seen in enumerate(visits) if seen]
    idle = [at for at, seen in enumerate(visits) if not seen]
    return plot(
        LINE_PX * (len(texts) + 1),
        (0, CODE_PX),
        labels([22, 66], [6, 6], ["line", "steps"], anchor="end", colour="muted", size=10.5),
        labels([80], [6], ["mean active lanes (bar) and source"], colour="muted", size=10.5),
        rects([78] * len(ran), [78 + 332 * share[at] for at in ran], [middle[at] - 7 for at in ran],
              [middle[at] + 7 for at in ran], "highlight"),
        labels([22] * len(texts), middle, [str(first + at) for at in range(len(texts))], anchor="end",
               colour="muted", size=10.5),
        labels([66] * len(ran), [middle[at] for at in ran], [f"{number(visits[at])}×" for at in ran],
               anchor="end", size=10.5),
        *(labels([80] * len(rows), [middle[at] for at in rows], [shown[at] for at in rows], colour=colour,
                 size=10.5, mono=True) for rows, colour in ((ran, "fg"), (idle, "muted"))),
        label="Source lines", left=0, right=0,
    )  # fmt: skip


def _lanes(steps: WarpSteps, body: int) -> Box:
    trace, total = steps.trace, len(steps)
    domain = (0, total)
    state = lanes_of(trace.active_mask).astype(np.uint8)
    state += lanes_of(trace.active_mask & trace.executed_mask)
    raster = body - ACTIVE_PX - LOOP_PX - 8
    edges = np.unique(np.linspace(0, total, MOST_BINS + 1).astype(np.int64))[:-1]
    widths = np.diff(edges, append=total)
    active = np.add.reduceat(np.bitwise_count(trace.active_mask).astype(np.int64), edges) / widths
    base = raster + LOOP_PX + ACTIVE_PX
    heights = base - ACTIVE_PX * np.append(active, active[-1]) / WARP_SIZE
    marks = np.unique(np.searchsorted(edges, steps.accesses, side="right") - 1)
    return column(
        legend(list(zip(_COLOURS, _STATES, strict=True))[::-1]),
        plot(
            base + 40,
            domain,
            lane_grid(state.T, _COLOURS, top=0, row_height=raster / WARP_SIZE),
            y_ticks([(lane + 0.5) * raster / WARP_SIZE for lane in (0, 8, 16, 24, 31)],
                    ["0", "8", "16", "24", "31"], domain),
            *_loops(steps, raster + 1),
            line(np.append(edges, total), heights, "accent", fill="accent-2", base=base, step=True),
            y_ticks([base - ACTIVE_PX + 4, base - 4], ["32", "0"], domain),
            rects(edges[marks], edges[marks], [base + 1] * marks.size, [base + 5] * marks.size, "tail",
                  inset=-0.5),
            x_axis(base + 6, total, number, "step\nlanes above, active lanes below", whole=True),
            label="Lanes over steps", left=LEFT_PX, right=8,
        ),
        words(_access_summary(steps), "note"),
    )  # fmt: skip


def _loops(steps: WarpSteps, top: float) -> list[dict[str, object]]:
    """Outer loops as bars below the lanes, with their turns where there is room."""
    loops = steps.loops
    runs = np.flatnonzero(loops.parent < 0)[:MOST_LOOPS]
    left, right = loops.first[runs].astype(float), loops.last[runs] + 1.0
    turns = [f"{loops.turns(run).size}{'+' if loops.open[run] else ''} iterations" for run in runs.tolist()]
    middle = top + LOOP_PX / 2 - 1
    return [
        rects(left, right, [top] * runs.size, [top + LOOP_PX - 2] * runs.size, "accent-2"),
        labels((left + right) / 2, [middle] * runs.size, turns, anchor="middle", size=9, room=right - left),
    ]


def _access_summary(steps: WarpSteps) -> str:
    if not steps.accesses.size or steps.trace.access_space is None:
        return "No memory access."
    spaces = np.array(steps.trace.space)[steps.trace.access_space[steps.accesses]]
    found = []
    wide, shared = np.isin(spaces, ("global", "generic")), spaces == "shared"
    if wide.any():
        spent, ideal = int(steps.sectors[wide].sum()), int(steps.ideal_sectors[wide].sum())
        found.append(f"{number(spent)} sectors of {SECTOR_BYTES} B, at best {number(ideal)}")
    if shared.any() and steps.wavefronts[shared].sum():
        spent, ideal = int(steps.wavefronts[shared].sum()), int(steps.ideal_wavefronts[shared].sum())
        found.append(f"{number(spent)} shared passes, at best {number(ideal)}")
    return "; ".join(
        [f"Orange marks: {count(steps.accesses.size, 'memory access', 'memory accesses')}", *found]
    )
