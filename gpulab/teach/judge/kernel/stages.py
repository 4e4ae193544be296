"""The five stages in which a kernel is judged; the first that it fails ends the check."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import lru_cache
from math import prod
from typing import Any

import numpy as np

from gpulab import session
from gpulab.teach.judge import budget, draw
from gpulab.teach.judge.exercise import Case, KernelExercise, Mistake, NotYet, Stage, Unwritten
from gpulab.teach.judge.kernel.bench import Fault, Run, bench, compiled, on_gpu, read
from gpulab.teach.judge.kernel.trial import Trial, measured_case
from gpulab.teach.judge.verdict import StageResult, Verdict
from virtualgpu.records import KernelCounters, KernelSource

STAGES: tuple[Stage, ...] = ("results", "orders", "hazards", "budget", "parallelism")
_ORDERS = (
    ("reversed", 0, "in reverse order"),
    ("random", 1, "in random order"),
    ("random", 2, "in random order"),
)
# So many times the reference's instructions, and large sizes would take minutes.
_HOPELESS = 40


def judge_kernel(exercise: KernelExercise, answer: Any) -> Verdict:
    """Judge a kernel in five stages."""
    name = exercise.exercise_id
    with bench() as place:
        try:
            source = read(exercise, answer)
            compiled(place, exercise, source)
            trial = Trial(exercise, source, place, draw.seed_of(name + source.code))
            done = _judged(trial)
        except NotYet as reason:
            return Verdict(name, False, str(reason))
    failed = [stage for stage in done if stage.state == "failed"]
    # What few threads do alone costs more as well: the last stage that failed has the reason.
    message = failed[-1].said if failed else exercise.praise
    return Verdict(name, not failed, message, tuple(done), tuple(trial.scores))


def _judged(trial: Trial) -> list[StageResult]:
    found = {stage: StageResult(stage, "not reached") for stage in STAGES}
    for stage, step in _STEPS:
        failed = [stage for stage in STAGES if found[stage].state == "failed"]
        if failed and not (failed == ["budget"] and stage == "parallelism"):
            break
        if trial.hopeless and stage == "budget":
            continue
        try:
            said = " ".join(filter(None, (found[stage].said, step(trial))))
            found[stage] = StageResult(stage, "passed", said)
        except Unwritten:
            raise
        except NotYet as reason:
            found[stage] = StageResult(stage, "failed", str(reason))
    return list(found.values())


def results(trial: Trial) -> str:
    """Small sizes with every block shape, and every kind of data."""
    cases = [*trial.small_cases, *trial.data_cases()]
    runs = [trial.run(case, "results", number) for number, case in enumerate(cases)]
    trial.hopeless = _hopeless(trial, cases, runs)
    sizes, shapes = len({case.size for case in cases}), len({case.block for case in cases})
    return f"{len(cases)} launches with {sizes} small sizes and {shapes} block shapes"


def large_results(trial: Trial) -> str:
    """Large sizes with one shape each: last, for a race shows there by chance and elsewhere for sure."""
    if trial.hopeless:
        return "."
    sizes = []
    for case in trial.large_cases():
        trial.run(case, "results")
        sizes.append(" × ".join(f"{n:,}" for n in np.atleast_1d(case.size)))
    return f"and with {' and '.join(sizes)}." if sizes else "."


def orders(trial: Trial) -> str:
    """Blocks in reverse and in two random orders."""
    for case in trial.order_cases():
        for order, seed, words in _ORDERS:
            with trial.bench.order(order, seed):
                try:
                    trial.run(replace(case, label=f"{case.label}, run {words}"), "orders", seed)
                except NotYet as reason:
                    raise NotYet(
                        f"{reason} CUDA promises no order of blocks: let them work on different elements, or "
                        "use atomics."
                    ) from None
    return "the same with blocks in order, reversed, and in two random orders."


def hazards(trial: Trial) -> str:
    """Small launches of every block shape under the sanitizer's checks."""
    cases = trial.hazard_cases()
    for case in cases:
        try:
            report = trial.bench.sanitize(trial.exercise, trial.source, case)
        except Fault as stop:
            raise trial.stopped("hazards", case, stop) from None
        for found in report.hazards:
            if found.severity == "info" and trial.exercise.once and found.kind == "WAW":
                both = found.message.partition(", and nothing says")[0]
                raise trial.mistaken(Mistake("hazards", case, f"{case.label}: {both}.", hazard=found.kind))
            if found.severity != "info":
                said = f"{case.label}: the result is right by luck only: {found.message}"
                raise trial.mistaken(Mistake("hazards", case, said, hazard=found.kind))
        if not report.complete:
            seen = f"{report.blocks_checked or 0:,} of {prod(case.launch_grid):,} blocks"
            raise NotYet(
                f"{case.label}: it takes so long that the checks saw only {seen}; let threads share the work."
            )
    return f"no races or stray accesses, nothing read unwritten, masks in order ({len(cases)} launches)."


def within_budget(trial: Trial) -> str:
    """Named counters beside the reference's and the naive version's."""
    exercise = trial.exercise
    if not exercise.budgets:
        return "this exercise has no budget."
    case = measured_case(exercise)
    run = trial.run(case, "budget", counting=budget.counting(exercise.budgets))
    yours = budget.Costs(run.counters, trial.bench.stats(trial.source))
    reference, naive = _shipped(trial, exercise.reference), None
    if exercise.naive:
        naive = _shipped(trial, exercise.naive)
    trial.scores += [budget.score(item, yours, reference, naive) for item in exercise.budgets]
    for item, score in zip(exercise.budgets, trial.scores, strict=True):
        if not budget.passes(item, score):
            raise NotYet(f"{case.label}: {budget.complaint(item, score)}")
    return "; ".join(f"{score.yours:,} {score.words}" for score in trial.scores) + "."


def parallelism(trial: Trial) -> str:
    """Instructions, the busiest warp and the lanes at work beside the reference's: no serial kernel."""
    case, limits = measured_case(trial.exercise), trial.exercise.measured
    if trial.hopeless:
        raise trial.mistaken(Mistake("parallelism", case, trial.hopeless))
    yours = trial.run(case, "parallelism").counters
    reference = _shipped(trial, trial.exercise.reference).counters
    longest, own_longest = yours.longest_warp_instructions, reference.longest_warp_instructions
    right = f"{case.label}: the results are right, but"
    said = ""
    if longest > limits.slack * own_longest:
        said = (
            f"{right} its busiest warp executes {longest:,} instructions where {own_longest:,} are enough: "
            "few threads do the work of many. Give every thread its own share."
        )
    elif yours.warp_instructions > limits.slack * reference.warp_instructions:
        said = _repeated(case, yours, reference)
    elif yours.lane_efficiency < limits.lanes * reference.lane_efficiency:
        said = (
            f"{right} on average {yours.lane_efficiency:.0%} of the lanes are at work (reference "
            f"{reference.lane_efficiency:.0%}): one lane does what 32 could share."
        )
    if said:
        raise trial.mistaken(Mistake("parallelism", case, said))
    return f"{yours.lane_efficiency:.0%} of the lanes at work, {longest:,} instructions in the busiest warp."


def on_real_gpu(trial: Trial) -> str:
    """The same launches on the real GPU, if there is one: last, for a fault would end its context."""
    cp = session.real_cp()
    if cp is None:
        return ""
    device = session.which_device().device
    cases = [*trial.small_cases, *trial.data_cases(), *trial.large_cases()]
    for case in cases:
        found, start = on_gpu(cp, trial.exercise, trial.source, case)
        trial.compare("results", replace(case, label=f"{case.label}, on the {device}"), found, start)
    return f"The same on the {device}."


_STEPS: tuple[tuple[Stage, Callable[[Trial], str]], ...] = (
    ("results", results),
    ("orders", orders),
    ("hazards", hazards),
    ("results", large_results),
    ("budget", within_budget),
    ("parallelism", parallelism),
    ("results", on_real_gpu),
)


def _hopeless(trial: Trial, cases: list[Case], runs: list[Run]) -> str:
    most = max(range(len(runs)), key=lambda number: runs[number].counters.warp_instructions)
    exercise, yours = trial.exercise, runs[most].counters
    source = KernelSource(exercise.kernel, exercise.source(exercise.reference))
    reference = trial.bench.run(exercise, source, cases[most]).counters
    too_many = yours.warp_instructions > _HOPELESS * reference.warp_instructions
    return _repeated(cases[most], yours, reference) if too_many else ""


def _repeated(case: Case, yours: KernelCounters, reference: KernelCounters) -> str:
    return (
        f"{case.label}: the results are right, but it executes {yours.warp_instructions:,} instructions "
        f"where {reference.warp_instructions:,} are enough: threads repeat each other's work."
    )


@lru_cache(maxsize=128)
def _counted(exercise: KernelExercise, file: str, device: str) -> budget.Costs:
    """What a solution that the course ships costs on the device in use, which `device` names."""
    with bench() as place:
        source = KernelSource(exercise.kernel, exercise.source(file))
        counting = budget.counting(exercise.budgets)
        run = place.run(exercise, source, measured_case(exercise), counting=counting)
        return budget.Costs(run.counters, place.stats(source))


def _shipped(trial: Trial, file: str) -> budget.Costs:
    """What a solution that the course ships costs on the bench's device."""
    return _counted(trial.exercise, file, trial.bench.side.device_info().name)
