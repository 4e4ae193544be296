"""Loops of a warp: sequences of steps that are iterations of one loop, which views can fold."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from virtualgpu.records import WarpTrace

Ints = npt.NDArray[np.int32]

_LOOP_PATTERN = re.compile(r"\b(?:for|while)\b")


@dataclass(frozen=True, kw_only=True)
class WarpLoops:
    """The executions of loops with at least two iterations. An iteration is called a *turn* in this class.
    Outer loops come first.

    The last evaluation of a loop's condition, which is false, belongs to the last turn.

    Run i has the turns ``run_turns[i]`` to ``run_turns[i + 1]`` and is part of the turn ``run_outer[i]`` (-1:
    none). Turns have their first and last step, a text with the outer loops (``iteration 3 of 17, inside it 1
    of 4``) and one alone, long and short. The texts of an unrolled loop say how many iterations of the source
    one turn is. ``turn`` is each step's innermost turn (-1: none); ``moves`` lead
    from each step to the begin of the next or the previous turn, and out of the loop.
    """

    run_turns: Ints
    run_outer: Ints
    turn_begin: Ints
    turn_end: Ints
    turn_run: Ints
    words: tuple[str, ...]
    alone: tuple[str, ...]
    turn: Ints
    moves: dict[str, Ints]

    def __len__(self) -> int:
        return int(self.run_outer.size)

    def turns(self, run: int) -> range:
        """Return the numbers of the iterations in one execution of a loop."""
        return range(int(self.run_turns[run]), int(self.run_turns[run + 1]))


def find_neighbour_stops(stops: npt.NDArray[Any], steps: Ints) -> tuple[Ints, Ints]:
    """Return the next and the previous element of ``stops`` for each step. If there is no such element, the
    result is the step itself.
    """
    next_index = np.searchsorted(stops, steps, side="right")
    previous_index = np.searchsorted(stops, steps) - 1
    padded_stops = np.append(stops, 0).astype(np.int32)
    return np.where(next_index < stops.size, padded_stops[next_index], steps), np.where(
        previous_index >= 0, padded_stops[previous_index], steps
    )


def find_loops(trace: WarpTrace) -> WarpLoops:
    """Return the executed loops of a trace. The result is empty if the trace does not describe the kernel's
    loops.
    """
    step_indices = np.arange(len(trace), dtype=np.int32)
    turn_of_step = np.full(len(trace), -1, np.int32)
    next_iteration = step_indices.copy()
    previous_iteration = step_indices.copy()
    after_loop = step_indices.copy()
    begin_arrays = [step_indices[:0]]
    end_arrays = [step_indices[:0]]
    run_arrays = [step_indices[:0]]
    outer_turns = []
    turn_offsets = [0]
    nested_labels = list[str]()
    own_labels = list[str]()
    for run_index, (first_step, last_step, head_steps, unroll_factor) in enumerate(_find_loop_runs(trace)):
        outer_turns.append(int(turn_of_step[first_step]))
        loop_steps = slice(first_step, last_step + 1)
        # Before its head has run for the first time a loop is in its first turn.
        turn_of_step[loop_steps] = turn_offsets[-1] + np.maximum(
            np.searchsorted(head_steps, step_indices[loop_steps], side="right") - 1, 0
        )
        next_iteration[loop_steps], previous_iteration[loop_steps] = find_neighbour_stops(
            head_steps, step_indices[loop_steps]
        )
        after_loop[loop_steps] = min(last_step + 1, len(trace) - 1)
        begin_arrays.append(np.concatenate([[first_step], head_steps[1:]]))
        end_arrays.append(np.concatenate([head_steps[1:] - 1, [last_step]]))
        run_arrays.append(np.full(head_steps.size, run_index))
        turn_offsets.append(turn_offsets[-1] + head_steps.size)
        truncation_mark = "+" if trace.truncated and last_step == len(trace) - 1 else ""
        turn_texts = [
            f"{iteration:,} of {head_steps.size:,}{truncation_mark}"
            for iteration in range(1, head_steps.size + 1)
        ]
        outer_turn_text = (
            f"{nested_labels[outer_turns[-1]]}, inside it " if outer_turns[-1] >= 0 else "iteration "
        )
        factor_note = f" (unrolled: each is {unroll_factor} in the source)" if unroll_factor else ""
        nested_labels += [f"{outer_turn_text}{turn_text}{factor_note}" for turn_text in turn_texts]
        factor_notes = [factor_note, f" ({unroll_factor} each)", ""] if unroll_factor else [""]
        own_labels += [
            "\n".join(
                [
                    *(f"iteration {turn_text}{note_form}" for note_form in factor_notes),
                    turn_text.replace(" of ", "/"),
                ]
            )
            for turn_text in turn_texts
        ]
    begin_steps = np.concatenate(begin_arrays).astype(np.int32)
    end_steps = np.concatenate(end_arrays).astype(np.int32)
    run_of_turn = np.concatenate(run_arrays).astype(np.int32)
    stop_of_move = {
        "next_iteration": next_iteration,
        "previous_iteration": previous_iteration,
        "past_loop": after_loop,
    }
    run_offsets = np.array(turn_offsets, np.int32)
    outer_turn_of_run = np.array(outer_turns, np.int32)
    return WarpLoops(
        run_turns=run_offsets,
        run_outer=outer_turn_of_run,
        turn_begin=begin_steps,
        turn_end=end_steps,
        turn_run=run_of_turn,
        words=tuple(nested_labels),
        alone=tuple(own_labels),
        turn=turn_of_step,
        moves=stop_of_move,
    )


def number_calls(depth: npt.NDArray[np.int16]) -> npt.NDArray[np.int64]:
    """Return an array with the number of the function call to which each step of a trace belongs. The number
    is 0 in the kernel itself.
    """
    call_of_step = np.zeros(depth.size, np.int64)
    call_stack: list[int] = []
    call_count = 0
    for step, call_depth in enumerate(depth.tolist() if depth.any() else []):
        del call_stack[call_depth + 1 :]
        while len(call_stack) <= call_depth:
            call_stack.append(call_count)
            call_count += 1
        call_of_step[step] = call_stack[call_depth]
    return call_of_step


def _find_loop_runs(trace: WarpTrace) -> list[tuple[int, int, Ints, int]]:
    """Return the runs of consecutive steps within one loop of one call.

    Each run has the first step of each iteration, and the unroll factor of the loop or 0.
    """
    loop_runs: list[tuple[int, int, Ints, int]] = []
    detail = trace.detail
    if detail is None or not detail.loops.size or not len(trace):
        return loop_runs
    call_of_step = number_calls(detail.depth)
    unroll_factors = detail.unroll_factors or (0,) * len(detail.loops)
    call_order = np.argsort(call_of_step, kind="stable")
    for call_steps in np.split(call_order, np.flatnonzero(np.diff(call_of_step[call_order])) + 1):
        code_positions = detail.order[trace.text_index[call_steps]]
        for (head_position, end_position), unroll_factor in zip(
            detail.loops.tolist(), unroll_factors, strict=True
        ):
            range_edges = np.diff(
                ((code_positions >= head_position) & (code_positions <= end_position)).astype(np.int8),
                prepend=0,
                append=0,
            )
            for first_index, last_index in zip(
                np.flatnonzero(range_edges == 1), np.flatnonzero(range_edges == -1), strict=True
            ):
                run_slice = slice(first_index, last_index)
                head_steps = call_steps[run_slice][code_positions[run_slice] == head_position]
                if head_steps.size >= 2 and _ends_with_check(
                    trace, call_steps[run_slice], code_positions[run_slice], head_steps
                ):
                    head_steps = head_steps[:-1]
                if head_steps.size >= 2:
                    first_step, last_step = int(call_steps[first_index]), int(call_steps[last_index - 1])
                    loop_runs.append((first_step, last_step, head_steps.astype(np.int32), unroll_factor))
    return sorted(loop_runs, key=lambda run: (run[0], -run[1]))


def _ends_with_check(
    trace: WarpTrace,
    run_steps: npt.NDArray[Any],
    positions: npt.NDArray[Any],
    head_steps: npt.NDArray[Any],
) -> bool:
    """Return whether a run's last visit of the head only finds that the condition of the loop is false.

    It stops before the end of every iteration, in the line of the ``for`` or ``while``, without an access to
    memory that other threads can see.
    """
    last_positions = np.maximum.reduceat(positions, np.searchsorted(run_steps, head_steps))
    last_turn = run_steps[run_steps >= head_steps[-1]]
    turn_lines = set(trace.line[last_turn].tolist()) - {0}
    is_truncated = trace.truncated and last_turn[-1] == len(trace) - 1
    if is_truncated or last_positions[-1] >= last_positions[:-1].min() or len(turn_lines) != 1:
        return False
    if trace.access_space is not None:
        memory_spaces = {trace.space[space] for space in trace.access_space[last_turn].tolist() if space >= 0}
        if memory_spaces & {"global", "shared", "generic"}:
            return False
    line = turn_lines.pop()
    return bool(_LOOP_PATTERN.search("".join(trace.code.split("\n")[line - 1 : line])))
