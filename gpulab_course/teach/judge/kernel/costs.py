"""The stages ``budget`` and ``parallelism``: they compare an answer's counters with the reference's."""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache
from math import prod
from typing import Any

import numpy as np

from gpulab_course.teach.judge import budget, draw
from gpulab_course.teach.judge.draw import DataGenerator
from gpulab_course.teach.judge.exercise import Budget, Case, KernelExercise, Mistake, NotYet
from gpulab_course.teach.judge.kernel.bench import Bench, open_bench
from gpulab_course.teach.judge.kernel.trial import CountedLaunch, Trial, make_labelled_case
from virtualgpu.records import Dim3, KernelCounters, KernelSource

# Extra instructions that each warp may execute, because some references need few.
_WARP_EXTRA_INSTRUCTIONS = 50
# The busiest warp of a small launch may execute this factor of the reference's instructions, plus extra ones.
_BUSIEST_FACTOR = 20
_BUSIEST_EXTRA_INSTRUCTIONS = 300
# The busiest warp counts as alone from this factor of the instructions of the reference's busiest warp on.
_ONE_WARP_FACTOR = 1.5
_MIN_BLOCK_COLUMNS = 32


def get_counted_launches(trial: Trial) -> list[CountedLaunch]:
    """Return the launches whose costs are counted. The costs of the first launch determine the score."""
    trial.counted_launches = trial.counted_launches or list(_count_launch_costs(trial))
    return trial.counted_launches


def _count_launch_costs(trial: Trial) -> Iterator[CountedLaunch]:
    exercise = trial.exercise
    counters_option = budget.choose_counters(trial.exercise.budgets)
    stats = trial.bench.stats(trial.source)
    device = trial.bench.side.device_info().name
    measured_launch = exercise.measured_launch
    rng = np.random.default_rng(trial.seed)
    draw_launches = measured_launch.draw_launches or (
        lambda rng: draw.draw_cost_launches(measured_launch.size, exercise.blocks(rng), rng)
    )
    for launch_index, (size, block) in enumerate(
        [(measured_launch.size, measured_launch.block), *draw_launches(rng)]
    ):
        case = make_labelled_case(exercise, DataGenerator(0), size, block)
        if launch_index == 0:
            reference_costs = _count_solution_costs(exercise, exercise.reference, size, block, device)
            naive_costs = (
                _count_solution_costs(exercise, exercise.naive, size, block, device)
                if exercise.naive
                else None
            )
        else:
            reference_costs = _count_file_costs(trial.bench, exercise, exercise.reference, case)
            naive_costs = None
        launch_outcome = trial.run(case, "budget", counting=counters_option)
        yield CountedLaunch(case, budget.Costs(launch_outcome.counters, stats), reference_costs, naive_costs)
    # With few columns, good and bad solutions leave most lanes idle.
    wide_launches = [
        (case, counters)
        for case, counters in trial.large_launches
        if all(np.atleast_1d(case.size)[1:2] >= _MIN_BLOCK_COLUMNS)
    ]
    for case, counters in [] if counters_option.caches else wide_launches:
        reference_costs = _count_file_costs(trial.bench, exercise, exercise.reference, case)
        yield CountedLaunch(case, budget.Costs(counters, stats), reference_costs)


def check_budget(trial: Trial) -> str:
    """Check that an answer is within its budgets in all launches whose costs are counted."""
    budgets = trial.exercise.budgets
    if not budgets:
        return "this exercise has no budget."
    for launch in get_counted_launches(trial):
        scores = [
            budget.make_score(counter_budget, launch.yours, launch.reference, launch.naive)
            for counter_budget in budgets
        ]
        trial.scores = trial.scores or scores
        for counter_budget, score in zip(budgets, scores, strict=True):
            if _is_budget_required(counter_budget, score) and not budget.is_within_budget(
                counter_budget, score
            ):
                raise NotYet(f"{launch.case.label}: {budget.make_complaint(counter_budget, score)}")
    figures_text = "; ".join(score.count_text for score in trial.scores)
    return f"{figures_text}; within the budget in {len(get_counted_launches(trial)) - 1} other launches, too."


def _is_budget_required(counter_budget: Budget, score: budget.Score) -> bool:
    """Return whether the reference is within the budget in this launch. If it is not, the answer is not
    checked against this budget.
    """
    max_count = counter_budget.find_max_count(score.reference)
    min_count = counter_budget.find_min_count(score.reference)
    return (max_count is None or score.reference <= max_count) and (
        min_count is None or score.reference >= min_count
    )


def check_shared_work(trial: Trial) -> str:
    """Check that all threads share the work, using counters of instructions and active lanes."""
    for launch in get_counted_launches(trial):
        message = _describe_busy_warp(trial, launch)
        if message:
            raise trial.record_mistake(Mistake("parallelism", launch.case, message))
    if trial.busiest_launch is not None:
        case, counters = trial.busiest_launch
        reference_counters = _count_file_costs(
            trial.bench, trial.exercise, trial.exercise.reference, case
        ).counters
        if (
            counters.longest_warp_instructions
            > _BUSIEST_FACTOR * reference_counters.longest_warp_instructions + _BUSIEST_EXTRA_INSTRUCTIONS
        ):
            raise trial.record_mistake(
                Mistake("parallelism", case, _make_busiest_message(case, counters, reference_counters))
            )
    answer_counters = get_counted_launches(trial)[0].yours.counters
    busiest_count = answer_counters.longest_warp_instructions
    return (
        f"{answer_counters.lane_efficiency:.0%} of the lanes at work, "
        f"{busiest_count:,} instructions in the busiest warp."
    )


def _describe_busy_warp(trial: Trial, launch: CountedLaunch) -> str:
    limits = trial.exercise.measured_launch
    counters = launch.yours.counters
    reference_counters = launch.reference.counters
    prefix = f"{launch.case.label}: the results are right, but"
    is_lopsided = _compute_busiest_share(counters) > limits.max_busiest_share_factor * _compute_busiest_share(
        reference_counters
    )
    warps = prod(launch.case.launch_grid) * -(-prod(launch.case.block) // 32)
    if (
        is_lopsided
        and counters.longest_warp_instructions
        > _ONE_WARP_FACTOR * reference_counters.longest_warp_instructions
    ):
        return _make_busiest_message(launch.case, counters, reference_counters)
    if (
        counters.warp_instructions
        > limits.max_instruction_factor * reference_counters.warp_instructions
        + _WARP_EXTRA_INSTRUCTIONS * warps
    ):
        return make_repeated_work_message(launch.case, counters, reference_counters)
    if counters.lane_efficiency < limits.min_lane_efficiency_factor * reference_counters.lane_efficiency:
        return (
            f"{prefix} on average {counters.lane_efficiency:.0%} of the lanes are at work (reference "
            f"{reference_counters.lane_efficiency:.0%}): one lane does what 32 could share."
        )
    return ""


def _compute_busiest_share(counters: KernelCounters) -> float:
    """Return the share of the busiest warp in all executed warp instructions."""
    return counters.longest_warp_instructions / max(1, counters.warp_instructions)


def _make_busiest_message(case: Case, counters: KernelCounters, reference_counters: KernelCounters) -> str:
    return (
        f"{case.label}: the results are right, but its busiest warp executes "
        f"{counters.longest_warp_instructions:,} instructions where "
        f"{reference_counters.longest_warp_instructions:,} are enough: "
        "few threads do the work of many. Give every thread its own share."
    )


def make_repeated_work_message(
    case: Case, counters: KernelCounters, reference_counters: KernelCounters
) -> str:
    """Return the message for a kernel that executes far more instructions than the reference solution."""
    return (
        f"{case.label}: the results are right, but it executes {counters.warp_instructions:,} instructions "
        f"where {reference_counters.warp_instructions:,} are enough: threads repeat each other's work."
    )


def _count_file_costs(test_bench: Bench, exercise: KernelExercise, file: str, case: Case) -> budget.Costs:
    source = KernelSource(exercise.kernel, exercise.source(file))
    launch_outcome = test_bench.run(
        exercise, source, case.shipped or case, counting=budget.choose_counters(exercise.budgets)
    )
    return budget.Costs(launch_outcome.counters, test_bench.stats(source))


@lru_cache(maxsize=128)
def _count_solution_costs(
    exercise: KernelExercise, file: str, size: Any, block: Dim3, device: str
) -> budget.Costs:
    """Return the costs of the reference or the naive version on the current device.

    The name `device` is only a part of the cache key.
    """
    with open_bench() as test_bench:
        return _count_file_costs(
            test_bench, exercise, file, make_labelled_case(exercise, DataGenerator(0), size, block)
        )
