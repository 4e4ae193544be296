"""Costs of an answer compared with those of the course's solutions, in the launches of the budgets."""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache
from math import prod
from typing import Any

import numpy as np

from gpulab_course.teach.judge import budget, draw
from gpulab_course.teach.judge.draw import Draw
from gpulab_course.teach.judge.exercise import Budget, Case, KernelExercise, Mistake, NotYet
from gpulab_course.teach.judge.kernel.bench import Bench, bench
from gpulab_course.teach.judge.kernel.trial import Counted, Trial, made_case
from virtualgpu.records import Dim3, KernelCounters, KernelSource

# So many instructions more each warp may execute, whatever the reference needs: some of them need few.
_MORE = 50
# The busiest warp of a small launch may execute so many times the reference's, and so many more.
_ALONE = 20
_MORE_ALONE = 300
# A warp is busy alone only with so many times the instructions of the reference's busiest.
_BUSY = 1.5
_WIDE = 32


def counted(trial: Trial) -> list[Counted]:
    """Return the counted launches: that of the score first, then two random ones, then the large ones."""
    trial.counted = trial.counted or list(_count(trial))
    return trial.counted


def _count(trial: Trial) -> Iterator[Counted]:
    exercise = trial.exercise
    counting = budget.counting(trial.exercise.budgets)
    stats = trial.bench.stats(trial.source)
    device = trial.bench.side.device_info().name
    measured = exercise.measured
    rng = np.random.default_rng(trial.seed)
    drawn = measured.drawn or (lambda rng: draw.cost_launches(measured.size, exercise.blocks(rng), rng))
    for number, (size, block) in enumerate([(measured.size, measured.block), *drawn(rng)]):
        case = made_case(exercise, Draw(0), size, block)
        if number == 0:
            reference = _shipped(exercise, exercise.reference, size, block, device)
            naive = _shipped(exercise, exercise.naive, size, block, device) if exercise.naive else None
        else:
            reference = _costs(trial.bench, exercise, exercise.reference, case)
            naive = None
        run = trial.run(case, "budget", counting=counting)
        yield Counted(case, budget.Costs(run.counters, stats), reference, naive)
    # With few columns, good and bad solutions leave most lanes idle.
    large = [
        (case, counters) for case, counters in trial.large if all(np.atleast_1d(case.size)[1:2] >= _WIDE)
    ]
    for case, counters in [] if counting.caches else large:
        reference = _costs(trial.bench, exercise, exercise.reference, case)
        yield Counted(case, budget.Costs(counters, stats), reference)


def keep_budget(trial: Trial) -> str:
    """Check the counters of the budgets, next to those of the reference and of the naive version."""
    budgets = trial.exercise.budgets
    if not budgets:
        return "this exercise has no budget."
    for launch in counted(trial):
        scores = [budget.score(item, launch.yours, launch.reference, launch.naive) for item in budgets]
        trial.scores = trial.scores or scores
        for item, score in zip(budgets, scores, strict=True):
            if _asked(item, score) and not budget.passes(item, score):
                raise NotYet(f"{launch.case.label}: {budget.complaint(item, score)}")
    counts = "; ".join(score.figure for score in trial.scores)
    return f"{counts}; within bounds in {len(counted(trial)) - 1} other launches, too."


def _asked(item: Budget, score: budget.Score) -> bool:
    """Return whether the reference keeps a budget in this launch: a narrow block may need conflicts."""
    limit = item.limit(score.reference)
    least = item.floor(score.reference)
    return (limit is None or score.reference <= limit) and (least is None or score.reference >= least)


def share_work(trial: Trial) -> str:
    """Check that the work is shared: instructions, busiest warp and active lanes next to the reference's."""
    for launch in counted(trial):
        said = _complaint(trial, launch)
        if said:
            raise trial.mistaken(Mistake("parallelism", launch.case, said))
    if trial.longest is not None:
        case, counters = trial.longest
        reference = _costs(trial.bench, trial.exercise, trial.exercise.reference, case).counters
        if counters.longest_warp_instructions > _ALONE * reference.longest_warp_instructions + _MORE_ALONE:
            raise trial.mistaken(Mistake("parallelism", case, _alone(case, counters, reference)))
    yours = counted(trial)[0].yours.counters
    longest = yours.longest_warp_instructions
    return f"{yours.lane_efficiency:.0%} of the lanes at work, {longest:,} instructions in the busiest warp."


def _complaint(trial: Trial, launch: Counted) -> str:
    limits = trial.exercise.measured
    yours = launch.yours.counters
    reference = launch.reference.counters
    right = f"{launch.case.label}: the results are right, but"
    lopsided = _share_of_busiest(yours) > limits.busiest * _share_of_busiest(reference)
    warps = prod(launch.case.launch_grid) * -(-prod(launch.case.block) // 32)
    if lopsided and yours.longest_warp_instructions > _BUSY * reference.longest_warp_instructions:
        return _alone(launch.case, yours, reference)
    if yours.warp_instructions > limits.slack * reference.warp_instructions + _MORE * warps:
        return repeated(launch.case, yours, reference)
    if yours.lane_efficiency < limits.lanes * reference.lane_efficiency:
        return (
            f"{right} on average {yours.lane_efficiency:.0%} of the lanes are at work (reference "
            f"{reference.lane_efficiency:.0%}): one lane does what 32 could share."
        )
    return ""


def _share_of_busiest(counters: KernelCounters) -> float:
    """Return the busiest warp's share of all instructions; evenly shared costly work does not change it."""
    return counters.longest_warp_instructions / max(1, counters.warp_instructions)


def _alone(case: Case, yours: KernelCounters, reference: KernelCounters) -> str:
    return (
        f"{case.label}: the results are right, but its busiest warp executes "
        f"{yours.longest_warp_instructions:,} instructions where {reference.longest_warp_instructions:,} are "
        "enough: few threads do the work of many. Give every thread its own share."
    )


def repeated(case: Case, yours: KernelCounters, reference: KernelCounters) -> str:
    """Return the message for a kernel that executes far more instructions than the reference."""
    return (
        f"{case.label}: the results are right, but it executes {yours.warp_instructions:,} instructions "
        f"where {reference.warp_instructions:,} are enough: threads repeat each other's work."
    )


def _costs(place: Bench, exercise: KernelExercise, file: str, case: Case) -> budget.Costs:
    source = KernelSource(exercise.kernel, exercise.source(file))
    run = place.run(exercise, source, case.shipped or case, counting=budget.counting(exercise.budgets))
    return budget.Costs(run.counters, place.stats(source))


@lru_cache(maxsize=128)
def _shipped(exercise: KernelExercise, file: str, size: Any, block: Dim3, device: str) -> budget.Costs:
    """Return the costs of one of the course's solutions on the current device, which `device` names."""
    with bench() as place:
        return _costs(place, exercise, file, made_case(exercise, Draw(0), size, block))
