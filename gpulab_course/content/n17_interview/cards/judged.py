"""Functions for interview cards whose answers are kernels, which are judged as exercises."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import wraps
from math import prod
from typing import Any

import numpy as np

from gpulab_course.content.own import import_own_module
from gpulab_course.teach.interview import Outcome
from gpulab_course.teach.judge import Case, DataGenerator, KernelExercise
from gpulab_course.teach.judge.check import judge
from gpulab_course.teach.judge.kernel.bench import KernelFault, open_bench, read_kernel_answer
from gpulab_course.teach.judge.kernel.trial import Trial
from gpulab_course.teach.judge.verdict import Verdict
from virtualgpu.errors import GpulabError
from virtualgpu.records import Dim3

# The score of an answer that fails in a stage.
_STAGE_SCORES = {"results": 0.0, "orders": 0.25, "hazards": 0.35, "budget": 0.6, "parallelism": 0.5}
# An interview limits instructions less strictly than an exercise does. With the candidate's own launch, a
# thread may compute several elements, so that fewer warps do more work each.
_SLACK_FACTOR = 6.0
_BUSIEST_FACTOR = 40.0
_MAX_THREADS = 1024


class UntriedError(GpulabError):
    """Error for a kernel that cannot be run because it does not compile or has other parameters."""


def find_exercise(name: str) -> KernelExercise:
    """Return the kernel exercise with this name."""
    kernel_exercise = next(
        candidate
        for candidate in import_own_module(name, "exercises").EXERCISES
        if candidate.exercise_id == name
    )
    assert isinstance(kernel_exercise, KernelExercise), name
    return kernel_exercise


def read_model_answer(name: str) -> str:
    """Return the course's own solution of an exercise."""
    kernel_exercise = find_exercise(name)
    return kernel_exercise.source(kernel_exercise.reference)


def judge_kernel(name: str, code: str, *, grid: Any = None, block: Any = None) -> Outcome:
    """Judge a kernel in all stages of an exercise, and return its result as an interview answer.

    Raises
    ------
    UntriedError
        If the kernel cannot be run at all.
    ValueError
        If the launch is not valid.
    """
    kernel_exercise = find_exercise(name)
    kernel_exercise = replace(
        kernel_exercise,
        measured_launch=replace(
            kernel_exercise.measured_launch,
            max_instruction_factor=max(_SLACK_FACTOR, kernel_exercise.measured_launch.max_instruction_factor),
        ),
    )
    if grid is not None or block is not None:
        kernel_exercise = replace_launch(kernel_exercise, grid, block)
    verdict = judge(kernel_exercise, code)
    if not verdict and (
        not verdict.stages or verdict.message.endswith(f"keep the given list: {kernel_exercise.signature}.")
    ):
        raise UntriedError(f"The kernel could not be tested, so your answer is not locked: {verdict.message}")
    score = 1.0 if verdict else _STAGE_SCORES.get(verdict.failed_stage, 0.0)
    stages = ", ".join(f"{stage.name} {stage.state}" for stage in verdict.stages)
    return Outcome(score, verdict.passed, verdict.message, f"judged as {name}: {stages}")


# --- a launch of the candidate's own ----------------------------------------------------------------
def _accept_any_block(block: Dim3) -> Dim3:
    """Return the candidate's block unchanged."""
    return block


def _choose_linear_block(block: Dim3) -> Dim3:
    """Return the candidate's block if it is one-dimensional, else the exercise's default block."""
    return block if block[1:] == (1, 1) else (256, 1, 1)


def _choose_warp_block(block: Dim3) -> Dim3:
    """Return the candidate's block if it is one-dimensional with full warps, else the default block."""
    return block if block[1:] == (1, 1) and block[0] % 32 == 0 else (256, 1, 1)


def _choose_tile_block(block: Dim3) -> Dim3:
    """Return the candidate's block if it is two-dimensional and 32 threads wide, else the default block."""
    return block if block[0] == 32 and block[2] == 1 else (32, 8, 1)


def _choose_square_block(block: Dim3) -> Dim3:
    """Return the candidate's block if it is square, else a square one of a similar size."""
    if block[0] == block[1] and block[2] == 1 and 2 <= block[0] <= 32:
        return block
    return (32, 32, 1) if prod(block) > 256 else (16, 16, 1)


# The block with which the course's own solution is launched for comparison, by exercise: the candidate's
# block or another one. For other exercises the launch cannot be chosen, because they allow any launch.
BLOCK_CONVENTIONS: dict[str, Callable[[Dim3], Dim3]] = {
    "02-index": _accept_any_block,
    "03-bins": _choose_linear_block,
    "05-copy4": _choose_linear_block,
    "05-split": _choose_linear_block,
    "05-transpose": _choose_tile_block,
    "05-matmul": _choose_square_block,
    "06-blur": _accept_any_block,
    "06-softmax": _choose_warp_block,
}


def replace_launch(kernel_exercise: KernelExercise, grid: Any, block: Any) -> KernelExercise:
    """Return a copy of an exercise whose launches all use the candidate's grid and block.

    Raises
    ------
    ValueError
        If grid or block cannot be launched.
    """
    choose_block = BLOCK_CONVENTIONS[kernel_exercise.exercise_id]
    if block is None:
        raise ValueError("Choose the block as well: block=(32, 8).")
    own_block = _convert_to_dim3("block", block)
    if prod(own_block) > _MAX_THREADS:
        raise ValueError(f"A block has at most {_MAX_THREADS:,} threads, not {prod(own_block):,}.")
    reference_block = choose_block(own_block)
    if grid is None and reference_block != own_block:
        raise ValueError("Choose the grid for this block, too: grid=lambda ...: (blocks in x, blocks in y).")
    size_names = [
        argument.name
        for argument in kernel_exercise.arguments
        if not argument.is_pointer and argument.type == "int"
    ]
    compute_own_grid = _make_grid_function(grid, size_names)

    def wrap_case_maker(make_case: Callable[..., Case]) -> Callable[..., Case]:
        @wraps(make_case)
        def make_own_case(random_data: DataGenerator, size: Any, _block: Dim3) -> Case:
            reference_case = make_case(random_data, size, reference_block)
            reference_case.block = reference_block
            if compute_own_grid is None:
                return reference_case
            own_grid = compute_own_grid([int(reference_case.values[name]) for name in size_names])
            return replace(
                reference_case,
                grid=tuple(max(1, block_count) for block_count in own_grid),
                shipped=reference_case,
            )

        return make_own_case

    measured_launch = kernel_exercise.measured_launch
    draw_launches = measured_launch.draw_launches

    def draw_sizes(rng: np.random.Generator) -> list[tuple[Any, Dim3]]:
        assert draw_launches is not None
        return [(size, own_block) for size, _ in draw_launches(rng)]

    return replace(
        kernel_exercise,
        case=wrap_case_maker(kernel_exercise.case),
        table=tuple(
            replace(table_row, case=wrap_case_maker(table_row.case), block=None)
            for table_row in kernel_exercise.table
        ),
        blocks=lambda rng: [own_block],
        measured_launch=replace(
            measured_launch,
            block=own_block,
            max_busiest_share_factor=_BUSIEST_FACTOR,
            draw_launches=draw_sizes if draw_launches else None,
        ),
    )


def _convert_to_dim3(name: str, extents: Any) -> Dim3:
    """Convert one to three sizes to a `Dim3`."""
    extent_list = list(extents) if isinstance(extents, tuple | list) else [extents]
    if not (
        1 <= len(extent_list) <= 3 and all(isinstance(n, int | np.integer) and n >= 0 for n in extent_list)
    ):
        raise ValueError(f"{name} is {extents!r}. Give one to three integers, such as (32, 8).")
    padded_extents = [*map(int, extent_list), 1, 1]
    x, y, z = padded_extents[:3]
    if name == "block" and not prod((x, y, z)):
        raise ValueError("A block must have at least one thread.")
    return x, y, z


def _make_grid_function(grid: Any, parameter_names: list[str]) -> Callable[[list[int]], Dim3] | None:
    """Return a function that computes the candidate's grid from problem sizes; None for the default grid."""
    if grid is None:
        return None
    if not callable(grid):
        fixed_grid = _convert_to_dim3("grid", grid)
        return lambda size_values: fixed_grid

    def compute_blocks(numbers: list[int]) -> Dim3:
        try:
            return _convert_to_dim3("grid", grid(*numbers))
        except Exception as error:
            parameter_text = ", ".join(parameter_names)
            argument_text = ", ".join(map(str, numbers))
            raise ValueError(
                f"grid({argument_text}) fails ({error}). Write grid=lambda {parameter_text}: (blocks in x, "
                "blocks in y)."
            ) from None

    compute_blocks([1000 + n for n in range(len(parameter_names))])
    return compute_blocks


# --- what is wrong with a program -------------------------------------------------------------------
WRONG_RESULTS_FAULT = "its results are wrong for some input, in whatever order threads run"
RACE_FAULT = "a race: the results depend on the order in which threads or blocks run"
MEMORY_FAULT = "it accesses memory outside of an array, or reads memory that was never written"
ENDLESS_FAULT = "it does not end, or stops at a barrier or a warp's mask that not all threads reach"
COST_FAULT = "the results are right, but it moves more data or waits more often than necessary"
IDLE_FAULT = "the results are right, but few threads do the work"
FAULT_TEXTS = (WRONG_RESULTS_FAULT, RACE_FAULT, MEMORY_FAULT, ENDLESS_FAULT, COST_FAULT, IDLE_FAULT)
_FAULT_OF_TOOL = {"race": RACE_FAULT, "sync": ENDLESS_FAULT}
# Other faults, such as too many registers for one device, are not faults of the program.
_FAULT_OF_HAZARD = dict.fromkeys(("out of bounds", "misaligned"), MEMORY_FAULT) | dict.fromkeys(
    ("endless", "barrier deadlock", "divergent barrier", "lanes missing", "lane outside its mask"),
    ENDLESS_FAULT,
)
_FAULT_OF_STAGE = {
    "results": WRONG_RESULTS_FAULT,
    "orders": RACE_FAULT,
    "hazards": MEMORY_FAULT,
    "budget": COST_FAULT,
    "parallelism": IDLE_FAULT,
}


def find_faults(name: str, code: str) -> tuple[list[str], Verdict]:
    """Return the kinds of fault in a wrong kernel, the most obvious one first, and the verdict of the judge.

    The sanitizer checks small launches for races and out-of-bounds accesses. If it finds none, the kind
    depends on the stage in which the program fails.
    """
    kernel_exercise = find_exercise(name)
    verdict = judge(kernel_exercise, code)
    assert not verdict, "a wrong program"
    fault_kinds: list[str] = []
    with open_bench() as kernel_bench:
        answer_trial = Trial(kernel_exercise, read_kernel_answer(kernel_exercise, code), kernel_bench)
        for case in answer_trial.choose_hazard_cases():
            try:
                report, _ = kernel_bench.sanitize(kernel_exercise, answer_trial.source, case)
            except KernelFault as fault:
                fault_kinds += [_FAULT_OF_HAZARD[fault.kind]] if fault.kind in _FAULT_OF_HAZARD else []
                continue
            fault_kinds += [
                _FAULT_OF_TOOL.get(hazard.tool, MEMORY_FAULT)
                for hazard in report.hazards
                if hazard.severity != "info"
            ]
    if not fault_kinds:
        fault_kinds = [_FAULT_OF_STAGE[verdict.failed_stage]]
    return list(dict.fromkeys(fault_kinds)), verdict
