"""Common parts of cards with kernels, whose answers an exercise of the course judges."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import wraps
from math import prod
from typing import Any

import numpy as np

from gpulab_course.content.own import module_of
from gpulab_course.teach.interview import Outcome
from gpulab_course.teach.judge import Case, Draw, KernelExercise
from gpulab_course.teach.judge.check import judge
from gpulab_course.teach.judge.kernel.bench import Fault, bench, read
from gpulab_course.teach.judge.kernel.trial import Trial
from gpulab_course.teach.judge.verdict import Verdict
from virtualgpu.errors import GpulabError
from virtualgpu.records import Dim3

# The worth of an answer that fails in a stage.
_WORTH = {"results": 0.0, "orders": 0.25, "hazards": 0.35, "budget": 0.6, "parallelism": 0.5}
# An interview limits instructions less closely than an exercise does. And with a launch of one's own a
# thread may compute several elements, so that few warps have more to do each.
_SLACK = 6.0
_BUSIEST = 40.0
_MOST_THREADS = 1024


class UntriedError(GpulabError):
    """A program that cannot be tried at all, because it does not compile or has other parameters."""


def exercise(name: str) -> KernelExercise:
    """A kernel exercise of the course."""
    found = next(each for each in module_of(name, "exercises").EXERCISES if each.exercise_id == name)
    assert isinstance(found, KernelExercise), name
    return found


def model(name: str) -> str:
    """The course's own solution of an exercise."""
    of = exercise(name)
    return of.source(of.reference)


def outcome(name: str, code: str, *, grid: Any = None, block: Any = None) -> Outcome:
    """Judge a kernel in all stages of an exercise.

    Raises
    ------
    UntriedError
        If the kernel cannot be tried at all.
    ValueError
        If the launch is not one.
    """
    of = exercise(name)
    of = replace(of, measured=replace(of.measured, slack=max(_SLACK, of.measured.slack)))
    if grid is not None or block is not None:
        of = with_launch(of, grid, block)
    verdict = judge(of, code)
    if not verdict and (
        not verdict.stages or verdict.message.endswith(f"keep the given list: {of.signature}.")
    ):
        raise UntriedError(f"Nothing is locked: {verdict.message}")
    worth = 1.0 if verdict else _WORTH.get(verdict.failed_stage, 0.0)
    stages = ", ".join(f"{stage.name} {stage.state}" for stage in verdict.stages)
    return Outcome(worth, verdict.passed, verdict.message, f"judged as {name}: {stages}")


# --- a launch of the candidate's own ----------------------------------------------------------------
def _any(block: Dim3) -> Dim3:
    return block


def _in_line(block: Dim3) -> Dim3:
    return block if block[1:] == (1, 1) else (256, 1, 1)


def _warps(block: Dim3) -> Dim3:
    return block if block[1:] == (1, 1) and block[0] % 32 == 0 else (256, 1, 1)


def _flat(block: Dim3) -> Dim3:
    return block if block[0] == 32 and block[2] == 1 else (32, 8, 1)


def _square(block: Dim3) -> Dim3:
    if block[0] == block[1] and block[2] == 1 and 2 <= block[0] <= 32:
        return block
    return (32, 32, 1) if prod(block) > 256 else (16, 16, 1)


# By exercise: which block of a candidate the course's own solution can be launched with, for comparison, or
# another one. What is not here has no launch to choose: the task itself is about any launch.
CONVENTIONS: dict[str, Callable[[Dim3], Dim3]] = {
    "02-index": _any,
    "03-bins": _in_line,
    "05-copy4": _in_line,
    "05-split": _in_line,
    "05-transpose": _flat,
    "05-matmul": _square,
    "06-blur": _any,
    "06-softmax": _warps,
}


def with_launch(of: KernelExercise, grid: Any, block: Any) -> KernelExercise:
    """The exercise for kernels that are launched as the candidate says, and in no other way.

    Raises
    ------
    ValueError
        If grid or block cannot be launched.
    """
    convention = CONVENTIONS[of.exercise_id]
    if block is None:
        raise ValueError("Choose the block, too: block=(32, 8).")
    own = _dim3("block", block)
    if prod(own) > _MOST_THREADS:
        raise ValueError(f"A block has at most {_MOST_THREADS:,} threads, not {prod(own):,}.")
    shipped = convention(own)
    if grid is None and shipped != own:
        raise ValueError("Choose the grid for this block, too: grid=lambda ...: (blocks in x, blocks in y).")
    names = [each.name for each in of.arguments if not each.pointer and each.type == "int"]
    blocks_of = _grid_of(grid, names)

    def launched(make: Callable[..., Case]) -> Callable[..., Case]:
        @wraps(make)
        def case(random_data: Draw, size: Any, _: Dim3) -> Case:
            usual = make(random_data, size, shipped)
            usual.block = shipped
            if blocks_of is None:
                return usual
            chosen = blocks_of([int(usual.values[name]) for name in names])
            return replace(usual, grid=tuple(max(1, side) for side in chosen), shipped=usual)

        return case

    measured = of.measured
    drawn_launches = measured.drawn

    def drawn_sizes(rng: np.random.Generator) -> list[tuple[Any, Dim3]]:
        assert drawn_launches is not None
        return [(size, own) for size, _ in drawn_launches(rng)]

    return replace(
        of,
        case=launched(of.case),
        table=tuple(replace(row, case=launched(row.case), block=None) for row in of.table),
        blocks=lambda rng: [own],
        measured=replace(
            measured,
            block=own,
            busiest=_BUSIEST,
            drawn=drawn_sizes if drawn_launches else None,
        ),
    )


def _dim3(name: str, sides: Any) -> Dim3:
    listed = list(sides) if isinstance(sides, tuple | list) else [sides]
    if not (1 <= len(listed) <= 3 and all(isinstance(n, int | np.integer) and n >= 0 for n in listed)):
        raise ValueError(f"{name} is {sides!r}: give one to three integers, such as (32, 8).")
    x, y, z = (*map(int, listed), 1, 1)[:3]
    if name == "block" and not prod((x, y, z)):
        raise ValueError("A block has at least one thread.")
    return x, y, z


def _grid_of(grid: Any, names: list[str]) -> Callable[[list[int]], Dim3] | None:
    if grid is None:
        return None
    if not callable(grid):
        fixed = _dim3("grid", grid)
        return lambda numbers: fixed

    def blocks(numbers: list[int]) -> Dim3:
        try:
            return _dim3("grid", grid(*numbers))
        except Exception as error:
            called = ", ".join(names)
            given = ", ".join(map(str, numbers))
            raise ValueError(
                f"grid({given}) fails ({error}). Write grid=lambda {called}: (blocks in x, blocks in y)."
            ) from None

    blocks([1000 + n for n in range(len(names))])
    return blocks


# --- what is wrong with a program -------------------------------------------------------------------
RESULTS = "it computes something else for some input, in whatever order threads run"
RACE = "a race: what comes out depends on the order in which threads or blocks run"
MEMORY = "it accesses memory outside of an array, or reads what was never written"
ENDLESS = "it does not end, or stops at a barrier or a warp's mask that not all threads reach"
COSTS = "the results are right, but it moves or waits more than it has to"
IDLE = "the results are right, but few threads do the work"
FAULTS = (RESULTS, RACE, MEMORY, ENDLESS, COSTS, IDLE)
_TOOLS = {"race": RACE, "sync": ENDLESS}
# What else stops a launch says nothing of the program, such as registers that one device does not have.
_STOPS = dict.fromkeys(("out of bounds", "misaligned"), MEMORY) | dict.fromkeys(
    ("endless", "barrier deadlock", "divergent barrier", "lanes missing", "lane outside its mask"), ENDLESS
)
_STAGES = {"results": RESULTS, "orders": RACE, "hazards": MEMORY, "budget": COSTS, "parallelism": IDLE}


def faults(name: str, code: str) -> tuple[list[str], Verdict]:
    """Return the kinds of fault of a wrong program, the plainest first, and the judge's verdict.

    The sanitizer looks at small launches for races and stray accesses; where it finds none, the stage of the
    judge that refuses the program decides.
    """
    of = exercise(name)
    verdict = judge(of, code)
    assert not verdict, "a wrong program"
    found: list[str] = []
    with bench() as place:
        trial = Trial(of, read(of, code), place)
        for case in trial.hazard_cases():
            try:
                report, _ = place.sanitize(of, trial.source, case)
            except Fault as stop:
                found += [_STOPS[stop.kind]] if stop.kind in _STOPS else []
                continue
            found += [_TOOLS.get(each.tool, MEMORY) for each in report.hazards if each.severity != "info"]
    if not found:
        found = [_STAGES[verdict.failed_stage]]
    return list(dict.fromkeys(found)), verdict
