"""Loops in a warp's steps: which runs of steps are turns of one loop, so that views can fold them."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property, lru_cache

import numpy as np
import numpy.typing as npt

from virtualgpu.records import WarpTrace

Ints = npt.NDArray[np.int32]


@dataclass(frozen=True)
class Loops:
    """Every time a warp went through a loop, if it took at least two turns; outer loops first.

    Steps ``first`` to ``last`` are one such run; the head of its turns runs at ``starts[at[i]:at[i + 1]]``.
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

    def turns(self, run: int) -> Ints:
        return self.starts[self.at[run] : self.at[run + 1]]

    @cached_property
    def turn_run(self) -> Ints:
        """The run that each turn belongs to; turns are numbered as in ``starts``."""
        return np.repeat(np.arange(len(self), dtype=np.int32), np.diff(self.at))

    @cached_property
    def turn_of(self) -> Ints:
        """Each step's innermost turn; -1 outside of loops."""
        inside = self.of_step >= 0
        first = np.append(self.at[:-1], 0)[self.of_step]  # before its head has run a loop is in turn 1
        return np.where(inside, np.maximum(first, self._heads_before("right") - 1), -1).astype(np.int32)

    @cached_property
    def turn_end(self) -> Ints:
        """The last step of each turn."""
        end = np.append(self.starts[1:] - 1, 0).astype(np.int32)
        end[self.at[1:] - 1] = self.last
        return end[: self.starts.size]

    @cached_property
    def outer(self) -> Ints:
        """The turn that each run lies in; -1 for none."""
        turns = [
            self.at[run] + max(0, int(np.searchsorted(self.turns(run), first, side="right")) - 1)
            if run >= 0
            else -1
            for run, first in zip(self.parent.tolist(), self.first.tolist(), strict=True)
        ]
        return np.array(turns, np.int32)

    @cached_property
    def turn_words(self) -> list[tuple[str, str]]:
        """Each turn in words, with the loops around it and alone: ``iteration 3 of 17, inside it 1 of 4``."""
        words: list[tuple[str, str]] = []
        sizes = np.diff(self.at).tolist()
        for outer, turns, cut in zip(self.outer.tolist(), sizes, self.open.tolist(), strict=True):
            around = f"{words[outer][0]}, inside it " if outer >= 0 else "iteration "
            words += _turn_words(around, turns, "+" if cut else "")
        return words

    def words(self, step: int) -> str:
        """Such as ``iteration 3 of 17``; an outer loop's comes first."""
        turn = int(self.turn_of[step])
        return self.turn_words[turn][0] if turn >= 0 else ""

    def moves(self) -> dict[str, Ints]:
        """Where each step's next and previous turn begin, and the first step after its innermost loop."""
        steps, run = np.arange(self.of_step.size), self.of_step
        inside = run >= 0
        starts = np.append(self.starts, 0)
        later, earlier = self._heads_before("right"), self._heads_before("left") - 1
        on = inside & (later < self.at[run + 1])
        back = inside & (earlier >= np.append(self.at[:-1], 0)[run])
        after = np.minimum(np.append(self.last, 0)[run] + 1, steps.size - 1)
        return {
            "next_iteration": np.where(on, starts[np.where(on, later, -1)], steps).astype(np.int32),
            "previous_iteration": np.where(back, starts[np.where(back, earlier, -1)], steps).astype(np.int32),
            "past_loop": np.where(inside, after, steps).astype(np.int32),
        }

    def _heads_before(self, side: str) -> npt.NDArray[np.int64]:
        """For each step the first turn of its run, or of a later run, whose head runs not before it."""
        # Heads ascend within a run and runs follow each other: one search finds a run's own.
        far = self.of_step.size
        heads = self.turn_run.astype(np.int64) * far + self.starts
        wanted = self.of_step.astype(np.int64) * far + np.arange(far)
        return np.searchsorted(heads, wanted, side=side)  # type: ignore[call-overload,no-any-return]


@lru_cache(4096)
def _turn_words(around: str, turns: int, more: str) -> tuple[tuple[str, str], ...]:
    of = [f"{turn} of {turns}{more}" for turn in range(1, turns + 1)]
    return tuple((f"{around}{each}", f"iteration {each}\n{each.replace(' of ', '/')}") for each in of)


def find_loops(trace: WarpTrace) -> Loops:
    """Find the loops in a trace that says where the kernel's loops are; no loops in any other."""
    runs: list[tuple[int, int, Ints]] = []
    detail = trace.detail
    if detail is not None and detail.loops.size and len(trace):
        place = detail.order[trace.text_index]
        calls = calls_of(detail.depth)
        order = np.argsort(calls, kind="stable")
        for steps in np.split(order, np.flatnonzero(np.diff(calls[order])) + 1):
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


def calls_of(depth: npt.NDArray[np.int16]) -> npt.NDArray[np.int64]:
    """A number for each step: the same for all steps of one call of a function, 0 in the kernel itself."""
    number = np.zeros(depth.size, np.int64)
    if not depth.any():
        return number
    stack: list[int] = []
    count = 0
    for step, level in enumerate(depth.tolist()):
        del stack[level + 1 :]
        while len(stack) <= level:
            stack.append(count)
            count += 1
        number[step] = stack[level]
    return number


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
