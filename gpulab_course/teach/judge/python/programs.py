"""Judge of device programs, which are Python functions that use ``cp``: it checks results and costs."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import replace
from typing import Any

import numpy as np

from gpulab import session
from gpulab.processes.errors import short_repr
from gpulab.processes.values import DamagedBytesError
from gpulab.words import count
from gpulab_course.teach.judge import budget
from gpulab_course.teach.judge.budget import Score
from gpulab_course.teach.judge.draw import DataGenerator
from gpulab_course.teach.judge.exercise import Budget, NotYet, ProgramCase, ProgramExercise, Stage
from gpulab_course.teach.judge.past import PastFailures
from gpulab_course.teach.judge.python.answer import Answer
from gpulab_course.teach.judge.python.counts import CHECKED_COUNTS, COUNTS, make_score
from gpulab_course.teach.judge.python.performed import RunMode, Task, perform_task
from gpulab_course.teach.judge.python.results import check_result
from gpulab_course.teach.judge.verdict import StageResult, Verdict

Counts = dict[str, int]
TestCall = tuple[ProgramCase, RunMode]
ReferenceProcess = Callable[[], AbstractContextManager[Callable[[Any], Answer]]]

# Other lawful orders in which a program has to give the same results.
STREAM_ORDERS: tuple[tuple[str, int], ...] = (("last first", 0), ("random", 1))
_RUN_MODES: tuple[RunMode, ...] = ("as given", "checked", *STREAM_ORDERS)
_LARGE_SIZES = 2  # number of the last sizes that count as large


def judge_program(
    exercise: ProgramExercise,
    answer: Answer,
    reference_process: ReferenceProcess,
    past: PastFailures | None = None,
) -> Verdict:
    """Judge a program's results, the synchronization of its streams, and its budgets at every size.

    The function `reference_process` starts a separate process for the reference. The call on which the last
    answer failed is tested first.
    """
    past = past or PastFailures()
    trial = _Trial(exercise, answer.seed, past.failed_case)
    stage_names: list[Stage] = ["results", "hazards", "orders", "counts"]
    if not exercise.checks_stream_order:
        stage_names = ["results", "counts"]
    with session.show_steps(len(stage_names), "gl.check") as begin_step:
        verdict = _judge_stages(trial, stage_names, answer, reference_process, begin_step)
    if not verdict:
        past.record_failure(verdict.failed_stage, trial.failed)
    return verdict


def _judge_stages(
    trial: _Trial,
    stage_names: Sequence[Stage],
    answer: Answer,
    reference_process: ReferenceProcess,
    begin_step: Callable[[], None],
) -> Verdict:
    exercise = trial.exercise
    name = trial.exercise.exercise_id
    stage_results: tuple[StageResult, ...] = ()
    size_indices = range(len(trial.sizes))
    checked_costs: dict[int, Counts] = {}
    try:
        begin_step()
        trial.run_failed_call(answer)
        answer_costs = {size_index: trial.run(answer, size_index) for size_index in size_indices}
        trial.run_table(answer)
        stage_results += (
            StageResult(
                "results", "passed", f"the results are right for {count(len(size_indices), 'size')}."
            ),
        )
        if not all(answer_costs.values()):  # on a real device, where nothing is counted
            return Verdict(name, True, exercise.praise, stage_results)
        if exercise.checks_stream_order:
            checked_sizes = size_indices[:-1] or size_indices
            begin_step()
            checked_costs = {
                size_index: trial.run(answer, size_index, "checked") for size_index in checked_sizes
            }
            stage_results += (
                StageResult("hazards", "passed", "all necessary waits between streams are present."),
            )
            begin_step()
            for stream_order in STREAM_ORDERS:
                # A medium size, and the last one, which has not been checked.
                for size_index in sorted({checked_sizes[len(checked_sizes) // 2], size_indices[-1]}):
                    trial.run(answer, size_index, stream_order)
            message = f"the results are right in {len(STREAM_ORDERS)} other orders that its streams allow."
            stage_results += (StageResult("orders", "passed", message),)
    except NotYet as reason:
        message = add_advice(exercise, str(reason))
        failed_stage, *later_stages = stage_names[len(stage_results) :]
        skipped_stages = (StageResult(name, "not reached") for name in later_stages)
        return Verdict(
            name,
            False,
            message,
            (*stage_results, StageResult(failed_stage, "failed", message), *skipped_stages),
        )
    if not exercise.budgets:
        return Verdict(name, True, exercise.praise, stage_results)
    begin_step()
    with reference_process() as load_reference:
        scores, message = trial.score_budgets(load_reference, answer_costs, checked_costs)
    if message:
        return Verdict(
            name, False, message, (*stage_results, StageResult("counts", "failed", message)), scores
        )
    summary = "; ".join(score.count_text for score in scores) + "."
    return Verdict(
        name, True, exercise.praise, (*stage_results, StageResult("counts", "passed", summary)), scores
    )


class _Trial:
    """The test calls of a program exercise, whose sizes and data are drawn from one seed.

    ``failed`` is the call on which the current answer has failed.
    """

    def __init__(self, exercise: ProgramExercise, seed: int, failed_call: TestCall | None = None) -> None:
        self.exercise = exercise
        self._seed = seed
        self._failed_call = failed_call
        self.failed: TestCall | None = None
        sizes = exercise.sizes
        self.sizes: Sequence[Any] = sizes(np.random.default_rng(seed)) if callable(sizes) else sizes

    def _make_case(self, size_index: int, mode: RunMode) -> ProgramCase:
        """Return a test call whose data differ between run modes, so that a result stored from an earlier
        call is wrong.
        """
        return self.exercise.case(
            DataGenerator([self._seed, size_index, _RUN_MODES.index(mode)]), self.sizes[size_index]
        )

    def run(self, program: Answer, size_index: int, mode: RunMode = "as given") -> Counts:
        """Run a program on the test case of one size, with the order of streams that `mode` selects."""
        return self._run_case(program, self._make_case(size_index, mode), mode)

    def run_failed_call(self, program: Answer) -> None:
        """Repeat the call on which the last answer failed, if there is one."""
        if self._failed_call is not None:
            self._run_case(program, *self._failed_call)

    def run_table(self, program: Answer) -> None:
        """Run the calls with the special inputs of the exercise."""
        for row_index, row in enumerate(self.exercise.table):
            for size_index, size in enumerate(row.sizes or (self.sizes[len(self.sizes) // 2],)):
                case = row.case(DataGenerator([self._seed, len(_RUN_MODES), row_index, size_index]), size)
                label = f"{_call_label(self.exercise, case)}, {row.description}"
                self._run_case(program, replace(case, label=label), "as given")

    def _run_case(self, program: Answer, case: ProgramCase, mode: RunMode) -> Counts:
        self.failed = case, mode
        program_counts = run_test_call(self.exercise, program, case, mode) or {}
        self.failed = None
        return program_counts

    def score_budgets(
        self,
        load_reference: Callable[[Any], Answer],
        answer_costs: dict[int, Counts],
        checked_costs: dict[int, Counts],
    ) -> tuple[tuple[Score, ...], str]:
        """Return the scores at the last size, and a message if the program exceeds a budget at any size."""
        exercise = self.exercise
        last_size_index = len(self.sizes) - 1
        reference_counter = self._make_cost_counter(load_reference, exercise.reference)
        naive_counter = (
            None if exercise.naive is None else self._make_cost_counter(load_reference, exercise.naive)
        )

        def score(counter_budget: Budget, size_index: int) -> Score:
            is_checked = counter_budget.counter in CHECKED_COUNTS
            counted_size = min(size_index, max(checked_costs)) if is_checked else size_index
            answer_counts = checked_costs[counted_size] if is_checked else answer_costs[counted_size]
            naive_counts = (
                naive_counter(counted_size, is_checked)
                if naive_counter is not None and size_index == last_size_index
                else None
            )
            return make_score(
                counter_budget, answer_counts, reference_counter(counted_size, is_checked), naive_counts
            )

        scores = tuple(score(counter_budget, last_size_index) for counter_budget in exercise.budgets)
        for size_index in reversed(range(last_size_index + 1)):
            for counter_budget, last_score in zip(exercise.budgets, scores, strict=True):
                if counter_budget.large_sizes_only and size_index <= last_size_index - _LARGE_SIZES:
                    continue
                size_score = (
                    last_score if size_index == last_size_index else score(counter_budget, size_index)
                )
                if not budget.is_within_budget(counter_budget, size_score):
                    label = _call_label(exercise, self._make_case(size_index, "as given"))
                    return scores, f"{label}: {budget.make_complaint(counter_budget, size_score)}"
        return scores, ""

    def _make_cost_counter(
        self, load_reference: Callable[[Any], Answer], program: Any
    ) -> Callable[[int, bool], Counts]:
        """Return a function that runs a program of the course at a size and caches its counts."""
        counts_cache: dict[tuple[int, bool], Counts] = {}

        def count_costs(size_index: int, is_checked: bool) -> Counts:
            if (size_index, is_checked) not in counts_cache:
                mode: RunMode = "checked" if is_checked else "as given"
                case = self._make_case(size_index, mode)
                counts_cache[size_index, is_checked] = (
                    run_test_call(self.exercise, load_reference(program), case, mode) or {}
                )
            return counts_cache[size_index, is_checked]

        return count_costs


def add_advice(exercise: ProgramExercise, message: str) -> str:
    """Return a message, followed by the exercise's first piece of advice that matches it."""
    advice_text = next((advice for phrase, advice in exercise.advice if phrase in message), "")
    if not advice_text:
        return message
    period = "" if message.endswith((".", "!", "?")) else "."
    return f"{message.rstrip()}{period} {advice_text}"


def run_test_call(
    exercise: ProgramExercise, program: Answer, case: ProgramCase, mode: RunMode = "as given"
) -> Counts | None:
    """Call a program in the answer's process, and check its result and the order of its streams.

    Returns
    -------
    dict, optional
        The counts of the program; None on a real GPU.

    Raises
    ------
    NotYet
        If the program raises an exception, returns a wrong result, changes an argument, or does not order
        its streams.
    """
    label = _call_label(exercise, case)
    case_data = case.arguments, case.on_device, case.keeps_arguments
    task = Task(exercise.name, label, exercise.call_program, *case_data, mode, exercise.returns_result)
    program_facts = _check_facts(program.ask(perform_task, task, shown=label), len(case.arguments))
    if program_facts["hazards"]:
        raise NotYet(f"{label}: {program_facts['hazards'][0]}")
    try:
        check_result(label, program_facts["result"], case)
    except NotYet as reason:
        if isinstance(mode, tuple):
            raise NotYet(f"In another order that its streams allow, {reason}") from None
        if mode == "checked":
            raise NotYet(
                f"{reason} The result was right for other numbers, so do not keep results of an earlier call."
            ) from None
        raise
    if program_facts["changed"]:
        parameter_names = list(inspect.signature(exercise.reference).parameters)
        raise NotYet(
            f"{label} changes {parameter_names[program_facts['changed'][0]]}, which belongs to its caller."
        )
    program_counts: Counts | None = program_facts["counts"]
    return program_counts


def _check_facts(program_facts: Any, argument_count: int) -> dict[str, Any]:
    """Check the dict that `perform_task` returned, because an answer may have replaced `perform_task`."""
    if isinstance(program_facts, dict) and program_facts.keys() == {"result", "counts", "hazards", "changed"}:
        program_counts = program_facts["counts"]
        hazards = program_facts["hazards"]
        changed_indices = program_facts["changed"]
        counts_are_valid = program_counts is None or (
            isinstance(program_counts, dict)
            and program_counts.keys() == COUNTS.keys()
            and all(type(count) is int for count in program_counts.values())
        )
        hazards_are_valid = isinstance(hazards, list) and all(type(hazard) is str for hazard in hazards)
        changes_are_valid = isinstance(changed_indices, list) and all(
            index in range(argument_count) for index in changed_indices
        )
        if counts_are_valid and hazards_are_valid and changes_are_valid:
            return program_facts
    raise DamagedBytesError("the facts of the program are missing")


def _call_label(exercise: ProgramExercise, case: ProgramCase) -> str:
    return case.label or f"{exercise.name}({', '.join(map(_format_argument, case.arguments))})"


def _format_argument(argument: Any) -> str:
    return f"array of {argument.shape}" if isinstance(argument, np.ndarray) else short_repr(argument)
