"""The five stages in which a kernel is judged; the check ends at the first stage that fails."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from math import prod
from typing import Any

import numpy as np

from gpulab import session
from gpulab.words import count
from gpulab_course.teach.judge import draw
from gpulab_course.teach.judge.compare import find_wrong_elements
from gpulab_course.teach.judge.exercise import (
    Case,
    KernelExercise,
    Mistake,
    NotYet,
    Stage,
    UnwrittenAnswerError,
)
from gpulab_course.teach.judge.kernel.bench import (
    KernelFault,
    LaunchOutcome,
    check_compiles,
    launch_on_gpu,
    open_bench,
    read_kernel_answer,
)
from gpulab_course.teach.judge.kernel.costs import (
    check_budget,
    check_shared_work,
    get_counted_launches,
    make_repeated_work_message,
)
from gpulab_course.teach.judge.kernel.trial import Trial
from gpulab_course.teach.judge.past import PastFailures
from gpulab_course.teach.judge.verdict import StageResult, Verdict
from virtualgpu.records import KernelSource

STAGES: tuple[Stage, ...] = ("results", "orders", "hazards", "budget", "parallelism")
_BLOCK_ORDERS = (
    ("reversed", 0, "in reverse order"),
    ("random", 1, "in random order"),
    ("in turns", 2, "with blocks that are interleaved at barriers"),
)
_ORDER_ADVICE = (
    "CUDA does not guarantee an order of blocks. Let blocks work on different elements, or use atomics."
)
_BARRIER_ADVICE = (
    "Blocks run at the same time. While one block waits at a barrier, other blocks continue and can change "
    "the memory that it reads afterwards."
)
_StageStep = tuple[Stage, Callable[[Trial], str]]
# The sanitizer's name for a value that a shuffle takes from a missing lane.
_ABSENT_LANE = "shuffle from an absent lane"
# The device on which exercises are judged that need more than the device in use has.
_CAPABLE_DEVICE = "A100"
# With this factor of the reference's instructions, large sizes would take minutes.
_HOPELESS_FACTOR = 40


def judge_kernel(exercise: KernelExercise, answer: Any, past: PastFailures) -> Verdict:
    """Judge a kernel in five stages, and return the verdict.

    If the device in use lacks something that the exercise needs, the kernel is judged on a virtual A100.
    """
    device = session.virtual_side().device_info()
    if device.compute_capability >= exercise.capability:
        return _judge_on_bench(exercise, answer, past)
    with session.on_device(f"virtual:{_CAPABLE_DEVICE}"):
        verdict = _judge_on_bench(exercise, answer, past)
    needed_version, device_version = (
        ".".join(map(str, c)) for c in (exercise.capability, device.compute_capability)
    )
    device_note = (
        f"Judged on a virtual {_CAPABLE_DEVICE}: the exercise needs compute capability {needed_version}, and "
        f"{device.name} has {device_version}."
    )
    return replace(verdict, message=f"{verdict.message} {device_note}") if verdict else verdict


def _judge_on_bench(exercise: KernelExercise, answer: Any, past: PastFailures) -> Verdict:
    name = exercise.exercise_id
    stage_steps = _STAGE_STEPS if session.real_cp() is not None else _STAGE_STEPS[:-1]
    with session.show_steps(len(stage_steps), "gl.check") as begin_step, open_bench() as test_bench:
        try:
            source = read_kernel_answer(exercise, answer)
            if exercise.adapt_to_answer is not None:
                exercise = exercise.adapt_to_answer(exercise, source.code)
            check_compiles(test_bench, exercise, source)
            seed = past.choose_seed(draw.make_text_seed(name + source.code))
            trial = Trial(exercise, source, test_bench, seed, past)
            stages = _judge_stages(trial, stage_steps, begin_step)
        except NotYet as reason:
            return Verdict(name, False, str(reason))
    failed_stages = [stage for stage in stages if stage.state == "failed"]
    if failed_stages:
        past.record_failure(failed_stages[-1].name, trial.failed_case)
    # Work of few threads also costs more, so the last failed stage has the reason.
    message = failed_stages[-1].said if failed_stages else exercise.praise
    return Verdict(name, not failed_stages, message, tuple(stages), tuple(trial.scores))


def _judge_stages(
    trial: Trial, stage_steps: Sequence[_StageStep], begin_step: Callable[[], None]
) -> list[StageResult]:
    stage_results = {stage: StageResult(stage, "not reached") for stage in STAGES}
    for stage, run_stage in stage_steps:
        begin_step()
        failed_stages = [stage for stage in STAGES if stage_results[stage].state == "failed"]
        if failed_stages and not (failed_stages == ["budget"] and stage == "parallelism"):
            break
        if trial.hopeless_mistake and stage == "budget":
            continue
        try:
            message = " ".join(filter(None, (stage_results[stage].said, run_stage(trial))))
            stage_results[stage] = StageResult(stage, "passed", message)
        except UnwrittenAnswerError:
            raise
        except NotYet as reason:
            stage_results[stage] = StageResult(stage, "failed", str(reason))
    return list(stage_results.values())


def check_results(trial: Trial) -> str:
    """Check the results for small sizes with all block shapes, and for special values and inputs."""
    cases = [*trial.small_cases, *trial.make_data_cases(), *trial.make_table_cases()]
    launch_outcomes = [trial.run(case, "results", seed) for seed, case in enumerate(cases)]
    trial.hopeless_mistake = _find_hopeless_mistake(trial, cases, launch_outcomes)
    size_count = len({case.size for case in cases})
    shape_count = len({case.block for case in cases})
    launches_text = count(len(cases), "launch", "launches")
    return f"{launches_text} with {count(size_count, 'small size')} and {count(shape_count, 'block shape')}"


def check_large_results(trial: Trial) -> str:
    """Check the results for large sizes. This stage runs after the faster stages."""
    if trial.hopeless_mistake:
        return "."
    size_texts = []
    trial.bench.be_patient()
    for case in trial.make_large_cases():
        trial.large_launches.append((case, trial.run(case, "results").counters))
        size_texts.append(" × ".join(f"{n:,}" for n in np.atleast_1d(case.size)))
    return f"and with {' and '.join(size_texts)}." if size_texts else "."


def check_counted_results(trial: Trial) -> str:
    """Check the results of the launches whose costs are counted."""
    if trial.hopeless_mistake is None:
        get_counted_launches(trial)
    return ""


def check_orders(trial: Trial) -> str:
    """Check that the results are the same if blocks run in reverse, random or interleaved order."""
    for case in trial.choose_order_cases():
        for order, seed, order_text in _BLOCK_ORDERS:
            with trial.bench.order(order, seed):
                try:
                    trial.run(replace(case, label=f"{case.label}, run {order_text}"), "orders", seed)
                except NotYet as reason:
                    if order != "in turns":
                        raise NotYet(f"{reason} {_ORDER_ADVICE}") from None
                    check_hazards(trial)  # a hazard report names the line
                    raise NotYet(f"{reason} {_BARRIER_ADVICE}") from None
    return (
        "the results are the same with blocks in order, reversed, in random order, and interleaved at "
        "barriers."
    )


def check_hazards(trial: Trial) -> str:
    """Run small launches under the sanitizer, and check that it finds no races and no invalid accesses."""
    cases = trial.choose_hazard_cases()
    for case in cases:
        try:
            report, outputs = trial.bench.sanitize(trial.exercise, trial.source, case)
        except KernelFault as stop:
            raise trial.make_fault_error("hazards", case, stop) from None
        is_result_right = all(
            not find_wrong_elements(outputs[name], expected).any()
            for name, expected in case.expected_outputs.items()
        )
        for hazard in report.hazards:
            if hazard.kind == _ABSENT_LANE and is_result_right:
                continue  # a lane may receive an undefined value and ignore it
            is_double_write = hazard.kind == "WAW" and hazard.space == "global"
            if hazard.severity == "info" and trial.exercise.forbids_double_writes and is_double_write:
                sentence = hazard.message.partition(", without synchronisation")[0]
                raise trial.record_mistake(
                    Mistake("hazards", case, f"{case.label}: {sentence}.", hazard_kind=hazard.kind)
                )
            if hazard.severity != "info":
                message = f"{case.label}: the result is right only by chance: {hazard.message}"
                raise trial.record_mistake(Mistake("hazards", case, message, hazard_kind=hazard.kind))
        if not report.complete:
            blocks_text = f"{report.blocks_checked or 0:,} of {prod(case.launch_grid):,} blocks"
            raise NotYet(
                f"{case.label}: it takes so long that only {blocks_text} could be checked. "
                "Divide the work among more threads."
            )
    launches_text = count(len(cases), "launch", "launches")
    return f"no races, no out-of-bounds accesses, no uninitialized reads, valid masks ({launches_text})."


def check_parallelism(trial: Trial) -> str:
    """Check that the work is distributed over many threads, and that no two threads do the same work."""
    if trial.hopeless_mistake is not None:
        raise trial.record_mistake(trial.hopeless_mistake)
    return check_shared_work(trial)


def check_on_real_gpu(trial: Trial) -> str:
    """Check the results on the real GPU. This stage is last, because a fault makes the GPU unusable."""
    cp: Any = session.real_cp()
    device = session.which_device().device
    cases = [
        *trial.small_cases,
        *trial.make_data_cases(),
        *trial.make_table_cases(),
        *trial.make_large_cases(),
    ]
    for case in cases:
        outputs, initial_arrays = launch_on_gpu(cp, trial.exercise, trial.source, case)
        trial.compare(
            "results", replace(case, label=f"{case.label}, on the {device}"), outputs, initial_arrays
        )
    return f"The same on the {device}."


# The last step needs a real GPU.
_STAGE_STEPS: tuple[_StageStep, ...] = (
    ("results", check_results),
    ("orders", check_orders),
    ("hazards", check_hazards),
    ("results", check_large_results),
    ("results", check_counted_results),
    ("budget", check_budget),
    ("parallelism", check_parallelism),
    ("results", check_on_real_gpu),
)


def _find_hopeless_mistake(
    trial: Trial, cases: list[Case], launch_outcomes: list[LaunchOutcome]
) -> Mistake | None:
    # Blocks below a warp are left out, because work per block dominates there.
    candidate_indices = [
        case_index for case_index, case in enumerate(cases) if prod(case.block) > 32
    ] or range(len(cases))
    most_work_index = max(
        candidate_indices, key=lambda number: launch_outcomes[number].counters.warp_instructions
    )
    busiest_index = max(
        candidate_indices, key=lambda number: launch_outcomes[number].counters.longest_warp_instructions
    )
    trial.busiest_launch = cases[busiest_index], launch_outcomes[busiest_index].counters
    exercise = trial.exercise
    counters = launch_outcomes[most_work_index].counters
    source = KernelSource(exercise.kernel, exercise.source(exercise.reference))
    reference_counters = trial.bench.run(
        exercise, source, cases[most_work_index].shipped or cases[most_work_index]
    ).counters
    if counters.warp_instructions <= _HOPELESS_FACTOR * reference_counters.warp_instructions:
        return None
    return Mistake(
        "parallelism",
        cases[most_work_index],
        make_repeated_work_message(cases[most_work_index], counters, reference_counters),
    )
