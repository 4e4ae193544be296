"""The static picture of a warp trace: source lines next to lanes over steps."""

from __future__ import annotations

import re
from typing import Any

import numpy as np

from gpulab.views.parts.boxes import Box, Plot, column, legend, row
from gpulab.views.parts.boxes import words as paragraph
from gpulab.views.parts.items import Item, Labels, Polyline, Rects
from gpulab.views.parts.plots import draw_lane_grid, make_x_axis, make_y_ticks, plot
from gpulab.views.warp import step_text
from gpulab.views.warp.states import ACTIVE, INACTIVE, PREDICATED_OFF
from gpulab.views.warp.steps import WarpSteps
from gpulab.words import count, number
from virtualgpu.records import WARP_SIZE
from virtualgpu.records.warp.columns import expand_lane_masks

MAX_LINES = 26
MAX_BINS = 800
MAX_LOOPS = 200
LINE_HEIGHT_PX = 16
LOOP_HEIGHT_PX = 12
ACTIVE_LANES_PLOT_PX = 36
_STATE_OF_MASK_COUNT = (
    INACTIVE,
    PREDICATED_OFF,
    ACTIVE,
)  # by the number of masks (active, executing) that contain the lane


def draw_warp(steps: WarpSteps, notes: str) -> Box:
    """Return a picture of the source lines with their counts, next to a grid of all lanes over all steps."""
    note_box = paragraph(notes, "note") if notes else None
    if not len(steps):
        return column(paragraph(step_text.NO_STEPS_SENTENCE), note_box)
    source_plot = _draw_source(steps)
    return column(
        row(source_plot, _draw_lanes(steps, max(250, source_plot.height)), least=[420, 400]), note_box
    )


def _draw_source(steps: WarpSteps) -> Plot:
    """Return a plot of the source lines that ran, with at most `MAX_LINES` lines."""
    code_lines = [text.expandtabs(4) for text in steps.trace.code.rstrip("\n").split("\n")]
    executed_lines = steps.line[steps.line > 0].tolist() or [1, len(code_lines)]
    first_line = max(1, min(executed_lines) - 1)
    last_line = min(len(code_lines), max(executed_lines) + 1, first_line + MAX_LINES - 1)
    visit_counts = np.bincount(steps.line, minlength=last_line + 1)
    active_lane_sums = np.bincount(
        steps.line, np.bitwise_count(steps.trace.active_mask), minlength=last_line + 1
    )
    label_style: dict[str, Any] = {"colour": "muted", "size": 10.5}
    plot_items: list[Item] = [Labels([22, 66], [6, 6], ["line", "steps"], anchor="end", **label_style)]
    plot_items += [Labels([80], [6], ["mean active lanes (bar) and source"], **label_style)]
    for line, text in enumerate(code_lines[first_line - 1 : last_line], first_line):
        y = (line - first_line + 1.5) * LINE_HEIGHT_PX
        visit_count = int(visit_counts[line])
        line_text = text if len(text) <= 50 else f"{text[:49]}…"
        plot_items.append(Labels([22], [y], [str(line)], anchor="end", **label_style))
        if visit_count:
            bar_width = 332 * float(active_lane_sums[line]) / visit_count / WARP_SIZE
            plot_items.append(Rects([78], [78 + bar_width], [y - 7], [y + 7], "highlight"))
            plot_items.append(Labels([66], [y], [f"{number(visit_count)}×"], anchor="end", size=10.5))
        plot_items.append(
            Labels([80], [y], [line_text], size=10.5, mono=True, colour="fg" if visit_count else "muted")
        )
    height = LINE_HEIGHT_PX * (max(0, last_line - first_line + 1) + 1)
    return plot(height, (0, 420), *plot_items, label="Source lines", left=0, right=0)


def _draw_lanes(steps: WarpSteps, height_px: float) -> Box:
    trace = steps.trace
    step_count = len(steps)
    step_domain = (0, step_count)
    grid_height_px = height_px - ACTIVE_LANES_PLOT_PX - LOOP_HEIGHT_PX - 8
    executing_mask = trace.active_mask & trace.executed_mask
    state_index = expand_lane_masks(trace.active_mask).astype(np.uint8) + expand_lane_masks(executing_mask)
    bin_edges = np.unique(np.linspace(0, step_count, MAX_BINS + 1).astype(np.int64))
    active_lane_sums = np.add.reduceat(np.bitwise_count(trace.active_mask).astype(np.int64), bin_edges[:-1])
    base_y = grid_height_px + LOOP_HEIGHT_PX + ACTIVE_LANES_PLOT_PX
    active_lanes_y = base_y - ACTIVE_LANES_PLOT_PX / WARP_SIZE * active_lane_sums / np.diff(bin_edges)
    access_mark_steps = bin_edges[np.unique(np.searchsorted(bin_edges, steps.accesses, side="right") - 1)]
    cost_texts = [
        f"{count(int(costs.sum()), singular, plural)}, at best {number(int(ideal_costs[costs > 0].sum()))}"
        for costs, ideal_costs, singular, plural in (
            (steps.sectors, steps.ideal_sectors, "sector of 32 B", "sectors of 32 B"),
            (steps.wavefronts, steps.ideal_wavefronts, "shared pass", "shared passes"),
        )
        if costs.sum()
    ]
    accesses_text = count(steps.accesses.size, "memory access", "memory accesses")
    return column(
        legend((lane_state.colour, lane_state.name) for lane_state in _STATE_OF_MASK_COUNT[::-1]),
        plot(
            base_y + 40,
            step_domain,
            draw_lane_grid(
                state_index.T,
                [lane_state.colour for lane_state in _STATE_OF_MASK_COUNT],
                top=0,
                row_height=grid_height_px / WARP_SIZE,
            ),
            make_y_ticks(
                [(lane + 0.5) * grid_height_px / WARP_SIZE for lane in (0, 8, 16, 24, 31)],
                ["0", "8", "16", "24", "31"],
                step_domain,
            ),
            *_draw_loops(steps, grid_height_px + 1),
            Polyline(
                bin_edges,
                np.append(active_lanes_y, active_lanes_y[-1]),
                "accent",
                fill="accent-2",
                base=base_y,
                step=True,
            ),
            make_y_ticks([base_y - ACTIVE_LANES_PLOT_PX + 4, base_y - 4], ["32", "0"], step_domain),
            Rects(
                access_mark_steps,
                access_mark_steps,
                [base_y + 1] * access_mark_steps.size,
                [base_y + 5] * access_mark_steps.size,
                "tail",
                inset=-0.5,
            ),
            make_x_axis(
                base_y + 6, step_count, number, "step\nlanes above, active lanes below", integers_only=True
            ),
            label="Lanes over steps",
            left=34,
            right=8,
        ),
        paragraph("; ".join([f"Orange marks: {accesses_text}", *cost_texts]), "note"),
    )


def _draw_loops(steps: WarpSteps, top: float) -> list[Item]:
    """Return bars for outer loops, with their numbers of iterations if they fit."""
    loops = steps.loops
    loop_runs = np.flatnonzero(loops.run_outer < 0)[:MAX_LOOPS]
    first_iterations = loops.run_turns[loop_runs]
    last_iterations = loops.run_turns[loop_runs + 1] - 1
    first_step = loops.turn_begin[first_iterations].astype(float)
    end_step = loops.turn_end[last_iterations] + 1.0
    # The forms of the first iteration, "iteration 1 of 25 (8 each)" and so on, become those of the loop.
    loop_texts = [
        re.sub(r"iteration 1 of (\S+)", r"\1 iterations", loops.alone[iteration]).rpartition("\n")[0]
        for iteration in first_iterations.tolist()
    ]
    top_ys, middle_ys, bottom_ys = (
        [top + offset_y] * loop_runs.size for offset_y in (0, LOOP_HEIGHT_PX / 2 - 1, LOOP_HEIGHT_PX - 2)
    )
    loop_labels = Labels(
        (first_step + end_step) / 2,
        middle_ys,
        loop_texts,
        anchor="middle",
        size=10,
        room=end_step - first_step,
    )
    return [Rects(first_step, end_step, top_ys, bottom_ys, "accent-2"), loop_labels]
