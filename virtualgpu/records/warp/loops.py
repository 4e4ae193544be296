"""Loops in a warp's steps: which runs of steps are turns of one loop, so that views can fold them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from virtualgpu.records import WarpTrace

Ints = npt.NDArray[np.int32]


@dataclass(frozen=True, kw_only=True)
class Loops:
    """Every time a warp went through a loop, if it took at least two turns; outer loops first.

    Run i has the turns ``run_turns[i]`` to ``run_turns[i + 1]`` and lies in the turn ``run_outer[i]`` (-1:
    none). Turns have their first and last step, a text with the loops around them (``iteration 3 of 17,
    inside it 1 of 4``) and one alone, long and short. ``turn`` is each step's innermost turn (-1: none);
    ``moves`` lead from each step to the next or the previous turn's begin, and out of the loop.
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
        return range(int(self.run_turns[run]), int(self.run_turns[run + 1]))


def neighbours(stops: npt.NDArray[Any], here: Ints) -> tuple[Ints, Ints]:
    """Of some ascending steps the next and the last before each step; the step itself where there is none."""
    after = np.searchsorted(stops, here, side="right")
    before = np.searchsorted(stops, here) - 1
    padded = np.append(stops, 0).astype(np.int32)
    return np.where(after < stops.size, padded[after], here), np.where(before >= 0, padded[before], here)


def find_loops(trace: WarpTrace) -> Loops:
    """Find the loops in a trace that says where the kernel's loops are; no loops in any other."""
    here = np.arange(len(trace), dtype=np.int32)
    turn = np.full(len(trace), -1, np.int32)
    on = here.copy()
    back = here.copy()
    past = here.copy()
    begins = [here[:0]]
    ends = [here[:0]]
    runs = [here[:0]]
    outer = []
    ats = [0]
    words = list[str]()
    alone = list[str]()
    for number, (first, last, heads) in enumerate(_runs(trace)):
        outer.append(int(turn[first]))
        inside = slice(first, last + 1)
        # Before its head has run for the first time a loop is in turn 1.
        turn[inside] = ats[-1] + np.maximum(np.searchsorted(heads, here[inside], side="right") - 1, 0)
        on[inside], back[inside] = neighbours(heads, here[inside])
        past[inside] = min(last + 1, len(trace) - 1)
        begins.append(np.concatenate([[first], heads[1:]]))
        ends.append(np.concatenate([heads[1:] - 1, [last]]))
        runs.append(np.full(heads.size, number))
        ats.append(ats[-1] + heads.size)
        more = "+" if trace.truncated and last == len(trace) - 1 else ""
        turns = [f"{at:,} of {heads.size:,}{more}" for at in range(1, heads.size + 1)]
        around = f"{words[outer[-1]]}, inside it " if outer[-1] >= 0 else "iteration "
        words += [around + each for each in turns]
        alone += [f"iteration {each}\n{each.replace(' of ', '/')}" for each in turns]
    begin, end, of = (np.concatenate(parts).astype(np.int32) for parts in (begins, ends, runs))
    moves = {"next_iteration": on, "previous_iteration": back, "past_loop": past}
    starts = np.array(ats, np.int32)
    inside_of = np.array(outer, np.int32)
    return Loops(
        run_turns=starts,
        run_outer=inside_of,
        turn_begin=begin,
        turn_end=end,
        turn_run=of,
        words=tuple(words),
        alone=tuple(alone),
        turn=turn,
        moves=moves,
    )


def calls_of(depth: npt.NDArray[np.int16]) -> npt.NDArray[np.int64]:
    """A number for each step: the same for all steps of one call of a function, 0 in the kernel itself."""
    number = np.zeros(depth.size, np.int64)
    stack: list[int] = []
    count = 0
    for step, level in enumerate(depth.tolist() if depth.any() else []):
        del stack[level + 1 :]
        while len(stack) <= level:
            stack.append(count)
            count += 1
        number[step] = stack[level]
    return number


def _runs(trace: WarpTrace) -> list[tuple[int, int, Ints]]:
    """Unbroken runs of steps within one loop of one call, with the steps at which its head ran."""
    found: list[tuple[int, int, Ints]] = []
    detail = trace.detail
    if detail is None or not detail.loops.size or not len(trace):
        return found
    calls = calls_of(detail.depth)
    order = np.argsort(calls, kind="stable")
    for steps in np.split(order, np.flatnonzero(np.diff(calls[order])) + 1):
        place = detail.order[trace.text_index[steps]]
        for head, end in detail.loops.tolist():
            edges = np.diff(((place >= head) & (place <= end)).astype(np.int8), prepend=0, append=0)
            for first, last in zip(np.flatnonzero(edges == 1), np.flatnonzero(edges == -1), strict=True):
                heads = steps[first:last][place[first:last] == head]
                if heads.size >= 2:
                    found.append((int(steps[first]), int(steps[last - 1]), heads.astype(np.int32)))
    return sorted(found, key=lambda run: (run[0], -run[1]))
