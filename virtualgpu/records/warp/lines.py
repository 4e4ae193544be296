"""Visits of source lines: the steps of a warp grouped by line.

A compiler moves instructions. Parts of a line that only compute are not where the line "runs" if its memory
accesses, barriers or shuffles are elsewhere, or if the line continues later in the same straight-line code.
Such a part belongs to the visit next to it, which lists its line in ``moved_lines``.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from virtualgpu.records import WarpTrace
from virtualgpu.records.warp.loops import Ints

# Instructions that load parameters or convert addresses do not belong to a source line.
_SETUP_PATTERN = re.compile(r"(?:@!?%\w+\s+)?(?:ld\.param|st\.param|cvta|bra\.uni)\b")
_EFFECT_PATTERN = re.compile(
    r"(?:@!?%\w+\s+)?(?:bar|barrier|call|shfl|vote|match|redux|membar|fence|nanosleep|trap)\b"
)
_JUMP_PATTERN = re.compile(r"(?:@!?%\w+\s+)?(?:bra|brx|call|ret|exit)\b")
# A line with a branch or loop can be visited in several parts, by some lanes only.
_CONTROL_PATTERN = re.compile(r"\b(?:if|else|for|while|do|switch|case)\b|\?|&&|\|\|")
_COMMENT_PATTERN = re.compile(r"//.*|/\*.*?\*/")


@dataclass(frozen=True, kw_only=True)
class LineVisits:
    """The visits of a warp to source lines in the order of time. Visit number i consists of the steps from
    ``begin[i]`` to ``end[i]``.

    ``lane_mask`` has the active lanes: those of the line's memory accesses if it has any. ``moved_lines``
    lists, for each visit, the lines whose instructions run within it because the compiler moved them there.
    ``visit_of_step`` is the visit of each step, ``step_line`` its line, or the one next to it for a step
    without a line.
    """

    begin: Ints
    end: Ints
    line: Ints
    active_mask: npt.NDArray[np.uint32]
    lane_mask: npt.NDArray[np.uint32]
    moved_lines: tuple[tuple[int, ...], ...]
    visit_of_step: Ints
    step_line: Ints

    def __len__(self) -> int:
        return int(self.begin.size)


def find_visits(trace: WarpTrace) -> LineVisits:
    """Group the steps of a trace into visits of source lines."""
    step_count = len(trace)
    if not step_count:
        no_steps = np.zeros(0, np.int32)
        no_masks = np.zeros(0, np.uint32)
        return LineVisits(
            begin=no_steps,
            end=no_steps,
            line=no_steps,
            active_mask=no_masks,
            lane_mask=no_masks,
            moved_lines=(),
            visit_of_step=no_steps,
            step_line=no_steps,
        )
    step_indices = np.arange(step_count)
    active_masks = trace.active_mask
    is_setup = _match_steps(trace, _SETUP_PATTERN)
    has_effect = _match_steps(trace, _EFFECT_PATTERN)
    is_jump = _match_steps(trace, _JUMP_PATTERN)
    if trace.access_space is not None:
        is_far_space = np.array(
            [name in ("global", "shared", "generic") for name in (*trace.space, "")], np.bool_
        )
        has_effect |= is_far_space[trace.access_space] & ~is_setup
    is_iteration_start = np.zeros(step_count, np.bool_)
    code_positions = trace.pc if trace.detail is None else trace.detail.order[trace.text_index]
    is_iteration_start[1:] = (np.diff(code_positions) <= 0) | (active_masks[1:] != active_masks[:-1])
    if trace.detail is not None:
        is_iteration_start[1:] |= np.diff(trace.detail.depth) != 0
    is_run_start = is_iteration_start.copy()
    is_run_start[1:] |= is_jump[:-1]
    step_lines = _find_step_lines(trace, is_setup, np.cumsum(is_iteration_start))
    is_part_start = is_iteration_start.copy()
    is_part_start[1:] |= step_lines[1:] != step_lines[:-1]
    is_part_start[0] = True
    part_starts = np.flatnonzero(is_part_start)
    part_runs = np.cumsum(is_run_start)[part_starts].astype(np.int64)
    part_lines = step_lines[part_starts]
    part_effects = np.logical_or.reduceat(has_effect, part_starts)
    joins_next, joins_previous = _find_moved_parts(
        trace.code, part_runs, part_lines, part_effects, active_masks[part_starts]
    )
    is_moved = joins_next | joins_previous
    # A part that moves forward joins the next one, one that moves backward the previous one.
    is_visit_start = ~joins_previous
    is_visit_start[1:] &= ~joins_next[:-1]
    is_visit_start[0] = True
    group_of_part = np.cumsum(is_visit_start) - 1
    group_lines = np.full(int(group_of_part[-1]) + 1, -1)
    group_lines[group_of_part[is_moved]] = part_lines[is_moved]
    group_lines[group_of_part[~is_moved]] = part_lines[~is_moved]
    opening_steps = part_starts[is_visit_start]
    is_continuation = np.zeros(opening_steps.size, np.bool_)
    is_continuation[1:] = (group_lines[1:] == group_lines[:-1]) & (
        part_runs[is_visit_start][1:] == part_runs[is_visit_start][:-1]
    )
    begin_steps = opening_steps[~is_continuation].astype(np.int32)
    visit_lines = group_lines[~is_continuation].astype(np.int32)
    visit_of_step = (np.searchsorted(begin_steps, step_indices, side="right") - 1).astype(np.int32)
    moved_line_sets: list[set[int]] = [set() for _ in begin_steps]
    for part_index in np.flatnonzero(is_moved).tolist():
        visit = int(visit_of_step[part_starts[part_index]])
        if part_lines[part_index] != visit_lines[visit]:
            moved_line_sets[visit].add(int(part_lines[part_index]))
    end_steps = np.append(begin_steps[1:] - 1, step_count - 1).astype(np.int32)
    effect_lanes = np.bitwise_or.reduceat(
        np.where(has_effect, trace.executed_mask, 0).astype(np.uint32), begin_steps
    )
    active_at_begin = active_masks[begin_steps].astype(np.uint32)
    step_line = np.where(trace.line > 0, trace.line, step_lines).astype(np.int32)
    moved_lines = tuple(tuple(sorted(lines)) for lines in moved_line_sets)
    return LineVisits(
        begin=begin_steps,
        end=end_steps,
        line=visit_lines,
        active_mask=active_at_begin,
        lane_mask=np.where(effect_lanes > 0, effect_lanes, active_at_begin),
        moved_lines=moved_lines,
        visit_of_step=visit_of_step,
        step_line=step_line,
    )


def _match_steps(trace: WarpTrace, pattern: re.Pattern[str]) -> npt.NDArray[np.bool_]:
    """Return for each step whether its instruction matches a pattern."""
    matching_texts = np.array([bool(pattern.match(text.strip())) for text in trace.instruction], np.bool_)
    return matching_texts[trace.text_index]


def _find_step_lines(
    trace: WarpTrace, is_setup: npt.NDArray[np.bool_], iterations: npt.NDArray[np.int64]
) -> npt.NDArray[np.int64]:
    """Return the source line of each step; a step without a line has that of the next or previous step."""
    has_line = (trace.line > 0) & ~is_setup
    step_indices = np.arange(len(trace))
    step_count = len(trace)
    next_step = np.minimum.accumulate(np.where(has_line, step_indices, step_count)[::-1])[::-1]
    previous_step = np.maximum.accumulate(np.where(has_line, step_indices, -1))
    padded_iterations = np.append(iterations, -1)
    is_same_iteration = padded_iterations[next_step] == iterations
    source_step = np.where(
        is_same_iteration, next_step, np.where(previous_step >= 0, previous_step, next_step)
    )
    return np.append(trace.line, 0)[source_step].astype(np.int64)


def _find_moved_parts(
    code: str,
    runs: npt.NDArray[np.int64],
    lines: npt.NDArray[np.int64],
    has_effect: npt.NDArray[np.bool_],
    masks: npt.NDArray[np.uint32],
) -> tuple[npt.NDArray[np.bool_], npt.NDArray[np.bool_]]:
    """Return the parts of lines that join the next visit, and those that join the previous visit."""
    source_lines = [_COMMENT_PATTERN.sub("", line_text) for line_text in code.splitlines()]
    is_control = np.array(
        [True, *(bool(_CONTROL_PATTERN.search(line_text)) for line_text in source_lines), True], np.bool_
    )
    is_plain = ~is_control[np.minimum(lines, len(source_lines) + 1)]
    part_order = np.lexsort((np.arange(lines.size), lines, runs))
    is_continued = np.zeros(lines.size, np.bool_)
    is_same_line = (lines[part_order][1:] == lines[part_order][:-1]) & (
        runs[part_order][1:] == runs[part_order][:-1]
    )
    is_continued[part_order[:-1]] = is_same_line
    line_has_effect = np.isin(lines, np.unique(lines[has_effect]))
    is_moved = ~has_effect & (is_continued | (line_has_effect & is_plain))
    has_next = np.zeros(lines.size, np.bool_)
    has_previous = np.zeros(lines.size, np.bool_)
    has_next[:-1] = runs[1:] == runs[:-1]
    has_previous[1:] = masks[1:] == masks[:-1]
    joins_next = is_moved & has_next
    return joins_next, is_moved & ~joins_next & has_previous
