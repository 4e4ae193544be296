"""Loops in a warp's steps: which runs of steps are turns of one loop, so that views can fold them."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from virtualgpu.records import WarpTrace

Ints = npt.NDArray[np.int32]


@dataclass(frozen=True)
class Loops:
    """Every time a warp went through a loop, if it took at least two turns; outer loops first.

    Steps ``first`` to ``last`` are one such run; its turns begin at ``starts[at[i]:at[i + 1]]``.
    ``parent`` is the run it lies in (-1: none) and ``of_step`` each step's innermost run (-1: none).
    ``open`` tells runs that the end of a cut trace leaves unfinished.
    """

    first: Ints
    last: Ints
    at: Ints
    starts: Ints
    parent: Ints
    of_step: Ints
    open: npt.NDArray[np.bool_]

    def __len__(self) -> int:
        return int(self.first.size)

    def innermost(self, step: int) -> int:
        return int(self.of_step[step]) if self.of_step.size else -1

    def turns(self, run: int) -> Ints:
        return self.starts[self.at[run] : self.at[run + 1]]

    def starts_around(self, step: int) -> Ints:
        """Where the turns of the innermost loop around a step begin."""
        run = self.innermost(step)
        return self.turns(run) if run >= 0 else self.starts[:0]

    def turn(self, run: int, step: int) -> int:
        """Which turn of a run a step belongs to, from 1."""
        return max(1, int(np.searchsorted(self.turns(run), step, side="right")))

    def words(self, step: int) -> str:
        """Such as ``iteration 3 of 17``; an outer loop's comes first."""
        runs: list[int] = []
        run = self.innermost(step)
        while run >= 0:
            runs.insert(0, run)
            run = int(self.parent[run])
        turns = [f"{self.turn(r, step)} of {self.turns(r).size}{'+' if self.open[r] else ''}" for r in runs]
        return f"iteration {', inside it '.join(turns)}" if turns else ""


def find_loops(trace: WarpTrace) -> Loops:
    """Find the loops in a trace that says where the kernel's loops are; no loops in any other."""
    runs: list[tuple[int, int, Ints]] = []
    detail = trace.detail
    if detail is not None and detail.loops.size and len(trace):
        place = detail.order[trace.text_index]
        for steps in _activations(detail.depth):
            for head, end in detail.loops.tolist():
                runs += _runs(steps, place[steps], head, end)
    runs.sort(key=lambda run: (run[0], -run[1]))
    of_step = np.full(len(trace), -1, np.int32)
    parent = []
    for number, (first, last, _) in enumerate(runs):
        parent.append(int(of_step[first]))
        of_step[first : last + 1] = number
    sizes = [starts.size for _, _, starts in runs]
    cut = [trace.truncated and last == len(trace) - 1 for _, last, _ in runs]
    return Loops(
        np.array([first for first, _, _ in runs], np.int32),
        np.array([last for _, last, _ in runs], np.int32),
        np.cumsum([0, *sizes]).astype(np.int32),
        np.concatenate([np.zeros(0, np.int32), *(starts for _, _, starts in runs)]).astype(np.int32),
        np.array(parent, np.int32),
        of_step,
        np.array(cut, np.bool_),
    )


def _activations(depth: npt.NDArray[np.int16]) -> list[npt.NDArray[np.int64]]:
    """The steps of each call of a function, without those of the functions it calls."""
    if not depth.any():
        return [np.arange(depth.size)]
    number = np.zeros(depth.size, np.int64)
    stack: list[int] = []
    count = 0
    for step, level in enumerate(depth.tolist()):
        del stack[level + 1 :]
        while len(stack) <= level:
            stack.append(count)
            count += 1
        number[step] = stack[level]
    order = np.argsort(number, kind="stable")
    return np.split(order, np.flatnonzero(np.diff(number[order])) + 1)


def _runs(
    steps: npt.NDArray[np.int64], place: npt.NDArray[np.int32], head: int, end: int
) -> list[tuple[int, int, Ints]]:
    """Unbroken runs of steps within one loop, with the steps at which its head ran."""
    inside = ((place >= head) & (place <= end)).astype(np.int8)
    edges = np.diff(inside, prepend=0, append=0)
    found = []
    for first, last in zip(np.flatnonzero(edges == 1), np.flatnonzero(edges == -1) - 1, strict=True):
        starts = steps[first : last + 1][place[first : last + 1] == head]
        if starts.size >= 2:
            found.append((int(steps[first]), int(steps[last]), starts.astype(np.int32)))
    return found
