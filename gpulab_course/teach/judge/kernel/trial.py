"""The trial of one answer: its launches, and the messages for launches that fail."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import cached_property
from math import prod
from typing import Any

import numpy as np

from gpulab.words import count, noun
from gpulab_course.teach.judge import draw
from gpulab_course.teach.judge.advice import advised
from gpulab_course.teach.judge.budget import Costs, Score
from gpulab_course.teach.judge.compare import Array, first_wrong, values_of, wrong_elements
from gpulab_course.teach.judge.draw import Draw
from gpulab_course.teach.judge.exercise import Case, KernelExercise, Mistake, NotYet, Stage
from gpulab_course.teach.judge.kernel.bench import Bench, Fault, Run, has_todo, unwritten
from gpulab_course.teach.judge.past import Past
from virtualgpu.protocol import Counters
from virtualgpu.records import Dim3, KernelCounters, KernelSource

# Sizes up to this are small: tried with every block shape, and before any other.
SMALL = 5000
# About so many elements show every kind of data.
_DATA_SIZE = 1000
# Launches under checks have at most so many threads.
_HAZARD_THREADS = 4096
# Rows of a table are tried with so many blocks at most, where there is such a block.
_MOST_BLOCKS = 600


@dataclass(frozen=True, slots=True)
class Counted:
    """A launch of an answer and of the reference, with the naive version where the score is counted."""

    case: Case
    yours: Costs
    reference: Costs
    naive: Costs | None = None


@dataclass
class Trial:
    """An answer, the bench it runs on, and what has been found out about it.

    ``hopeless`` is the mistake of a kernel that works so much more than the reference that large sizes are
    left out: its small results are right, and it fails for its cost. ``large`` are the large launches with
    what was counted in them, ``longest`` is the small one with the busiest warp. ``failed`` is the launch
    that went wrong.
    """

    exercise: KernelExercise
    source: KernelSource
    bench: Bench
    seed: int = 0
    past: Past = field(default_factory=Past)
    failed: Case | None = None
    scores: list[Score] = field(default_factory=list)
    hopeless: Mistake | None = None
    large: list[tuple[Case, KernelCounters]] = field(default_factory=list)
    longest: tuple[Case, KernelCounters] | None = None
    counted: list[Counted] = field(default_factory=list)

    @cached_property
    def plan(self) -> list[tuple[Any, Dim3]]:
        """Sizes and blocks in the order in which they are tried."""
        rng = np.random.default_rng(self.seed)
        blocks = self.exercise.blocks(rng)
        return draw.tried(self.exercise.sizes(rng, self.bench.threads_at_once), blocks, SMALL)

    @cached_property
    def small_cases(self) -> list[Case]:
        """The launch on which the last answer failed, and the plan's small ones with random data."""
        own = [self.case(size, block) for size, block in self.plan if np.prod(size) <= SMALL]
        return [*self._again(True), *own]

    def _again(self, small: bool, *stages: str) -> list[Case]:
        """The launch on which the last answer failed, if it is small or large and was in such a stage."""
        case = self.past.again_in(*stages) if stages else self.past.again
        return [case] if case is not None and (np.prod(case.size) <= SMALL) == small else []

    def large_cases(self) -> Iterator[Case]:
        """Yield the large launches, each made when it is needed."""
        yield from self._again(False)
        yield from (self.case(size, block) for size, block in self.plan if np.prod(size) > SMALL)

    def data_cases(self) -> list[Case]:
        """Return a launch of middle size for every kind of data, and one with the largest block."""
        data = Draw(self.seed)
        size, block = min(self.plan, key=lambda entry: abs(int(np.prod(entry[0])) - _DATA_SIZE))
        self.exercise.case(data, size, block)
        kinds = draw.KINDS[1:] if data.special else (draw.DUPLICATES, draw.EXTREME)
        small = [entry for entry in self.plan if np.prod(entry[0]) <= SMALL]
        widest = max(small, key=lambda entry: (prod(entry[1]), np.prod(entry[0])))
        return [self.case(*entry, kind) for kind in kinds for entry in dict.fromkeys(((size, block), widest))]

    def table_cases(self) -> list[Case]:
        """The rows of the exercise's table, with blocks of the plan."""
        middling, block = min(self.plan, key=lambda entry: abs(int(np.prod(entry[0])) - _DATA_SIZE))
        blocks = list(dict.fromkeys(entry[1] for entry in self.plan))
        cases = []
        for number, row in enumerate(self.exercise.table):
            for turn, size in enumerate(row.sizes or (middling,)):
                fit = [b for b in blocks if np.prod(size) <= _MOST_BLOCKS * prod(b)] if row.sizes else [block]
                chosen = row.block or (fit or blocks)[(number + turn) % len(fit or blocks)]
                data = Draw([self.seed, number, turn])
                cases.append(made_case(self.exercise, data, size, chosen, row.case, row.what))
        return cases

    def order_cases(self) -> list[Case]:
        """Return a medium and a larger launch of several blocks, and one of three waves if blocks wait."""
        several = [case for case in self.small_cases if prod(case.launch_grid) > 1]
        several.sort(key=lambda case: prod(case.launch_grid))
        chosen = self._again(True, "orders")
        chosen += [several[len(several) // 2], several[-1]] if several else []
        if self.exercise.crowded:
            chosen.append(self.case(*max(self.plan, key=lambda entry: int(np.prod(entry[0])))))
        return chosen

    def hazard_cases(self) -> list[Case]:
        """Return launches for the sanitizer: of many blocks, of many idle threads, and of one element."""
        chosen = self._again(True, "hazards")
        small = [case for case in self.small_cases if case.threads <= _HAZARD_THREADS]
        for shape in dict.fromkeys(case.block for case in small):
            own = [case for case in small if case.block == shape]
            chosen.append(max(own, key=lambda case: (prod(case.launch_grid), np.prod(case.size))))
            chosen.append(
                max(own, key=lambda case: (case.threads - np.prod(case.size)) * (np.prod(case.size) > 1))
            )
        chosen += [case for case in small if np.prod(case.size) == 1][:1]
        return list({id(case): case for case in chosen}.values())

    def case(self, size: Any, block: Dim3, kind: str = draw.RANDOM) -> Case:
        """Return a launch to try, with its own random numbers, so that scalar parameters vary in sign."""
        seed = [self.seed, *(int(side) for side in np.atleast_1d(size)), *block]
        return made_case(self.exercise, Draw(seed, kind), size, block)

    def run(self, case: Case, stage: Stage, seed: int = 0, counting: Counters | None = None) -> Run:
        """Launch and compare.

        Raises
        ------
        NotYet
            For whatever is wrong, with the exercise's advice.
        """
        try:
            run = self.bench.run(self.exercise, self.source, case, seed, counting)
        except Fault as stop:
            raise self.stopped(stage, case, stop) from None
        for name in run.overwritten:
            raise NotYet(f"{case.label}: it writes to `{name}`, which it may only read.")
        try:
            self.compare(stage, case, run.found, run.start)
        except NotYet:
            if not seed:
                raise
            # Other garbage in the outputs tells better what is wrong with it.
            self.run(case, stage)
            raise NotYet(
                f"{case.label}: the result depends on what the output held before, and that can be anything: "
                "write it, and do not read it first."
            ) from None
        return run

    def stopped(self, stage: Stage, case: Case, stop: Fault) -> NotYet:
        """The verdict on a kernel that was stopped."""
        if stop.kind == "parameters":
            return NotYet(stop.said)
        mistake = Mistake(stage, case, f"{case.label}: {stop.said}", fault=stop.kind, array=stop.array)
        return self.mistaken(mistake)

    def mistaken(self, mistake: Mistake) -> NotYet:
        """The verdict on a mistake: what was found, and what helps."""
        self.failed = mistake.case
        return NotYet(advised(self.exercise.advice, mistake))

    def compare(self, stage: Stage, case: Case, outputs: dict[str, Array], start: dict[str, Array]) -> None:
        """Raise `NotYet` for the first output that is not as wanted."""
        for name, expected in case.wanted.items():
            wrong = wrong_elements(outputs[name], expected)
            if not wrong.any():
                continue
            if has_todo(self.source) and all(outputs[n].tobytes() == start[n].tobytes() for n in outputs):
                raise unwritten()
            values = values_of(expected)
            message = f"{case.label}: {first_wrong(name, outputs[name], values, wrong)}."
            raise self.mistaken(
                Mistake(stage, case, message, name, outputs[name], values, start[name], wrong)
            )


def made_case(
    exercise: KernelExercise,
    drawn: Draw,
    size: Any,
    block: Dim3,
    make: Callable[..., Case] | None = None,
    what: str = "",
) -> Case:
    """A launch with the label that messages open with: the exercise's own, or a row of its table."""
    case = (make or exercise.case)(drawn, size, block)
    case.block = block
    case.size = size
    threads = "×".join(str(n) for n in block if n > 1) or "1"
    shape = f"{count(prod(case.launch_grid), 'block')} of {threads} {noun(prod(block), 'thread')}"
    numbers = {p.name: case.values.get(p.name) for p in exercise.arguments if not p.pointer}
    whole = [f"{name} = {n:,}" for name, n in numbers.items() if isinstance(n, int | np.integer)]
    data = f", data with {drawn.kind}" if drawn.kind else f", {what}" if what else ""
    case.label = f"{', '.join([*whole, shape])}{data}"
    return case
