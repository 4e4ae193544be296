"""Exercises of notebook 04."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from gpulab import session
from gpulab.processes.errors import short_repr
from gpulab.words import count as counted
from gpulab_course.teach.judge import (
    Advice,
    Answer,
    Budget,
    Case,
    DataGenerator,
    KernelExercise,
    Mistake,
    NotYet,
    ProgramCase,
    ProgramExercise,
    PythonExercise,
    SpecialInput,
    advice,
    draw,
)
from gpulab_course.teach.judge.python.functions import equals, is_integer, list_parts, must_be_a_function
from virtualgpu.records import Dim3

# 04-whodunit

SUSPECT_KERNEL_NAMES = ("load_tokens", "scale", "add_bias")
_STRAY_OFFSET = 1 << 44  # elements: far outside of all allocations
_ELEMENT_COUNT = 64


def judge_whodunit(answer: Answer) -> str:
    """Judge the learner's ``whodunit(program)``, which finds the first failed launch of a program and its
    kernel.
    """
    rng = answer.rng
    for fault_count, wait_count in ((1, 0), (0, 2), (1, 2), (2, 0), (1, 1), (0, 0), (2, 1)):
        launch_count = int(rng.integers(6, 14))
        # Not 0, so that neighbours differ.
        index_steps = rng.integers(1, len(SUSPECT_KERNEL_NAMES), launch_count)
        name_indices = np.cumsum(index_steps) % len(SUSPECT_KERNEL_NAMES)
        kernel_names = [SUSPECT_KERNEL_NAMES[index] for index in name_indices]
        failing_launches = sorted(
            int(n) for n in rng.choice(np.arange(2, launch_count), fault_count, replace=False)
        )
        if failing_launches and fault_count + wait_count == 2:
            failing_launches[0] = 1  # the very first
        elif failing_launches and not wait_count:
            failing_launches[-1] = launch_count  # the very last
        waiting_launches = sorted(
            int(n) for n in rng.choice(np.arange(2, launch_count), wait_count, replace=False)
        )
        launch_counts: list[int] = []  # launches of each run

        def find_stray_offset(
            is_new_run: bool,
            launch_counts: list[int] = launch_counts,
            failing_launches: list[int] = failing_launches,
        ) -> int:
            if is_new_run:
                launch_counts.append(0)
                return 0
            launch_counts[-1] += 1
            return _STRAY_OFFSET if launch_counts[-1] in failing_launches else 0

        run_facts = answer.ask(
            _run_whodunit, kernel_names, waiting_launches, shown="whodunit(program)", back=find_stray_offset
        )
        if launch_counts != run_facts["started_launches"]:
            raise NotYet(
                "whodunit(program) inspects the program. Run it instead, and use the error that CUDA reports."
            )
        _judge_launch(run_facts, kernel_names, failing_launches)
    return (
        "your function returns the first launch that failed, and runs a program without errors without waits."
    )


def _run_whodunit(
    answer: Any, request_offset: Callable[[bool], int], kernel_names: list[str], waiting_launches: list[int]
) -> dict[str, Any]:
    """Run the answer in its own process; return its result, its program runs, and the host's waits."""
    must_be_a_function("whodunit", callable(answer), type(answer).__name__)
    cp = session.cp()
    kernels = _compile_suspect_kernels()
    fault_records: list[Any] = []
    finished_calls: list[int] = []
    started_launches: list[int] = []
    with ExitStack() as contexts:

        def run_launches(after: Callable[[str, int], Any]) -> None:
            contexts.close()  # each run has a context of its own
            fault_record = contexts.enter_context(session.report_late_faults())
            fault_records.append(fault_record)
            finished_calls.append(0)
            started_launches.append(request_offset(True))
            x = cp.zeros(_ELEMENT_COUNT, dtype=cp.float32)
            for launch_number, name in enumerate(kernel_names, 1):
                started_launches[-1] = launch_number
                kernels[name]((2,), (32,), (x, np.int32(_ELEMENT_COUNT), np.int64(request_offset(False))))
                finished_calls[-1] = launch_number
                after(name, launch_number)
                if launch_number in waiting_launches:
                    cp.cuda.get_current_stream().synchronize()
            if waiting_launches:
                cp.cuda.get_current_stream().synchronize()

        try:
            result = answer(run_launches)
        except cp.cuda.runtime.CUDARuntimeError as error:
            raise NotYet(
                "whodunit(program) does not catch the error. Catch it, and return the launch that failed."
            ) from error
        wait_counts = [fault_record.wait_count for fault_record in fault_records]
        has_fault = [fault_record.fault is not None for fault_record in fault_records]
    return {
        "result": result,
        "runs": len(fault_records),
        "waits": wait_counts,
        "has_fault": has_fault,
        "finished_calls": finished_calls,
        "started_launches": started_launches,
        "program_waits": len(waiting_launches) + bool(waiting_launches),
    }


def _compile_suspect_kernels() -> dict[str, Any]:
    kernel_code = (Path(__file__).parent / "kernels" / "suspects.cu").read_text(encoding="utf-8")
    return {name: session.cp().RawKernel(kernel_code, name) for name in SUSPECT_KERNEL_NAMES}


def _judge_launch(run_facts: dict[str, Any], kernel_names: list[str], failing_launches: list[int]) -> None:
    result = run_facts["result"]
    if not run_facts["runs"]:
        raise NotYet("whodunit(program) never runs the program. Call program(after).")
    if not failing_launches:
        if result is not None:
            raise NotYet(
                f"whodunit(program) returns {short_repr(result)} for a program in which nothing fails. "
                "Return None for it."
            )
        if sum(run_facts["waits"]) > run_facts["program_waits"] + 2:
            wait_count = sum(run_facts["waits"])
            raise NotYet(
                f"in a program without errors, whodunit(program) lets the host wait {wait_count} times. "
                "First run the program without a wait after each launch. Only if this run fails, run the "
                "program again with a wait after each launch."
            )
        return
    first_failure = failing_launches[0]
    expected = (kernel_names[first_failure - 1], first_failure)
    if isinstance(result, list):
        result = tuple(result)
    if equals(result, expected):
        return
    if result is None and not any(run_facts["has_fault"]):
        raise NotYet(
            "whodunit(program) returns None although a launch fails: the host never waited for it. Wait for "
            "the device before you conclude that no launch failed."
        )
    message = (
        f"whodunit(program) returns {short_repr(result)}, but launch {first_failure}, {expected[0]}, "
        "failed first"
    )
    if not isinstance(result, tuple) or len(result) != 2 or not is_integer(result[1]):
        raise NotYet(f"{message}. Return the kernel's name and the number of its launch.")
    if result[1] == first_failure - 1 and equals(result[0], expected[0]):
        raise NotYet(f"{message}. Launches are numbered from 1.")
    if result[1] in failing_launches[1:]:
        raise NotYet(
            f"{message}. The launch that you returned fails as well, but the first failed launch has already "
            "made the CUDA context unusable. Return the first failed launch."
        )
    if result[1] in run_facts["finished_calls"]:
        raise NotYet(
            f"{message}. The launch that you returned is the last one before the error was reported. A "
            "launch returns before its kernel runs. Let the host wait after each launch, and store its name "
            "and number before you wait."
        )
    raise NotYet(
        f"{message}. For each launch, first store its name and number, and then wait. When the error is "
        "reported, the last launch that you stored is the launch that failed."
    )


WHODUNIT = PythonExercise("04-whodunit", "Whodunit", judge_whodunit, level="warm-up", limit_s=10.0)

# 04-hunt

_STEP_NAMES = ("normed", "scores", "weights", "mixed", "out", "gated", "masked")
HUNT_PROGRAM_KINDS = (
    "made",
    "none",
    "in place",
    "input",
    "infinite",
    "two",
    "twice",
    "over the input",
    "last",
    "alone",
)


def judge_hunt(answer: Answer) -> str:
    """Judge the learner's ``hunt(steps, arrays)``, which finds the step that produced the first NaN, and the
    index of the NaN.
    """
    unfinished_steps = ""
    for has_stale_nan in (False, True):  # whether arrays hold NaN before their step has run
        for program_kind in HUNT_PROGRAM_KINDS:
            program = draw_program(answer.rng, program_kind, has_stale_nan)
            calls: list[str] = []
            changed_steps: list[str] = []

            def read_step(
                name: str,
                current_values: list[Any],
                program: _HuntProgram = program,
                calls: list[str] = calls,
                changed_steps: list[str] = changed_steps,
            ) -> Any:
                if not program.has_state_after(len(calls), current_values):
                    changed_steps.append(name)
                calls.append(name)
                return program.written_values[name]

            run_facts = answer.ask(
                _run_hunt,
                program.states[0],
                program.array_names,
                list(program.written_values),
                shown="hunt(steps, arrays)",
                back=read_step,
            )
            is_unchanged = not changed_steps and program.has_state_after(len(calls), run_facts["arrays"])
            _judge_cell(run_facts["result"], program, calls, is_unchanged)
            if len(calls) < len(program.written_values):
                unfinished_steps = f"{len(calls)} of {counted(len(program.written_values), 'step')}"
    if unfinished_steps:
        raise NotYet(
            f"hunt(steps, arrays) returns the right cell, but runs only {unfinished_steps}. Each step must "
            "run once, even after the first NaN."
        )
    return "your function returns the step and the cell, whatever the arrays contained before."


@dataclass(frozen=True)
class _HuntProgram:
    """A program of steps for exercise 04-hunt, with the values that each step writes and the first NaN.

    The judge's process keeps these values. A step in the answer's process requests the values that it writes.
    """

    kind: str
    has_stale_nan: bool
    written_values: dict[str, Any]
    array_names: dict[str, str]
    states: list[dict[str, Any]]
    expected: tuple[str, tuple[int, ...]] | None

    def has_state_after(self, call_count: int, current_values: list[Any]) -> bool:
        """Return whether the arrays contain the values that are expected after the first `call_count`
        steps.
        """
        expected_values = self.states[min(call_count, len(self.written_values))].values()
        return all(
            np.array_equal(a, b, equal_nan=True) for a, b in zip(expected_values, current_values, strict=True)
        )


def draw_program(rng: np.random.Generator, kind: str, has_stale_nan: bool) -> _HuntProgram:
    """Return a random program of one of `HUNT_PROGRAM_KINDS`. If `has_stale_nan` is true, the arrays of the
    program initially contain NaN.
    """
    step_count = 1 if kind == "alone" else int(rng.integers(4, len(_STEP_NAMES) + 1))
    step_names = [str(name) for name in rng.permutation(_STEP_NAMES)[:step_count]]
    rows, cols = (int(n) for n in rng.integers(2, 9, 2) + (rng.permutation(2) == 0))  # no square
    nan_step = step_count if kind in ("two", "last", "alone") else int(rng.integers(1, step_count - 1))
    if kind == "in place":
        nan_step = 3  # in an array that has an earlier name, too
    nan_cells = [divmod(int(index), cols) for index in rng.permutation(rows * cols)[:3]]
    if kind in ("two", "twice"):  # two cells: the first one by rows is the last one by columns
        top_row, bottom_row = sorted(rng.choice(rows, 2, replace=False).tolist())
        left_column, right_column = sorted(rng.choice(cols, 2, replace=False).tolist())
        nan_cells[:2] = [(bottom_row, left_column), (top_row, right_column)]
    x = rng.integers(1, 9, (rows, cols)).astype(np.float32)
    if kind == "input":
        x[nan_cells[0]] = np.nan
    names_with_input = ["x", *step_names]
    array_names = {name: name for name in names_with_input}
    if kind == "in place":
        array_names[step_names[-1]] = array_names[step_names[-2]]
        array_names[step_names[2]] = step_names[1]
    if kind == "over the input":
        array_names[step_names[0]] = "x"
    arrays = {
        name: np.full_like(x, np.nan if has_stale_nan else 1) for name in dict.fromkeys(array_names.values())
    }
    arrays["x"] = x
    array_states = [dict(arrays)]
    values_by_step = {}
    first_nan = _find_first_nan("x", x)
    for step_number, step_name in enumerate(step_names, 1):
        with np.errstate(invalid="ignore"):
            input_name = names_with_input[step_number - 1]
            step_values = arrays[array_names[input_name]] * np.float32(0.5) + np.float32(1)
            if step_number == nan_step and kind not in ("none", "input", "infinite"):
                for nan_cell in nan_cells[: 2 if kind in ("two", "twice") else 1]:
                    step_values[nan_cell] = np.nan
            if step_number == nan_step and kind == "infinite":
                step_values[nan_cells[2]] = np.inf
                step_values[nan_cells[1]] = -np.inf  # the sum of both is NaN, but no element is
                step_values[nan_cells[0]] = np.inf
            if step_number == nan_step + 1 and kind == "infinite":
                step_values[nan_cells[0]] = step_values[nan_cells[0]] - step_values[nan_cells[0]]
        if step_number == step_count and kind == "in place":
            step_values = np.nan_to_num(step_values, nan=0.0)  # the final arrays contain no NaN
        values_by_step[step_name] = step_values
        arrays = arrays | {array_names[step_name]: step_values}
        array_states.append(arrays)
        first_nan = first_nan or _find_first_nan(step_name, step_values)
    return _HuntProgram(kind, has_stale_nan, values_by_step, array_names, array_states, first_nan)


def _find_first_nan(name: str, values: Any) -> tuple[str, tuple[int, ...]] | None:
    nan_cells = np.argwhere(np.isnan(values))
    return (name, tuple(int(v) for v in nan_cells[0])) if nan_cells.size else None


def _run_hunt(
    answer: Any,
    request_values: Callable[..., Any],
    initial_arrays: dict[str, Any],
    array_names: dict[str, str],
    step_names: list[str],
) -> dict[str, Any]:
    """Run the answer in its own process; return its result and the final values of the arrays."""
    must_be_a_function("hunt", callable(answer), type(answer).__name__)
    cp = session.cp()
    arrays = {name: cp.asarray(values) for name, values in initial_arrays.items()}

    def read_arrays() -> list[Any]:
        return [array.get() for array in arrays.values()]

    def make_step(name: str) -> Callable[[], None]:
        def launch() -> None:
            arrays[array_names[name]][...] = cp.asarray(request_values(name, read_arrays()))

        return launch

    result = answer(
        {name: make_step(name) for name in step_names},
        {name: arrays[array_name] for name, array_name in array_names.items()},
    )
    return {"result": result, "arrays": read_arrays()}


def _is_initial_nan(result: Any, program: _HuntProgram) -> bool:
    """Return whether the answer's step writes a finite number to the answer's cell. A NaN in this cell is
    then from before the program.
    """
    if not isinstance(result, tuple) or not isinstance(result[0], str):
        return False
    if result[0] not in program.written_values:
        return False
    step_values = program.written_values[result[0]]
    result_cell = result[1]
    if len(result_cell) != 2:
        return False
    row, col = result_cell
    is_inside = 0 <= row < step_values.shape[0] and 0 <= col < step_values.shape[1]
    return is_inside and bool(np.isfinite(step_values[result_cell]))


def _judge_cell(result: Any, program: _HuntProgram, calls: list[str], is_unchanged: bool) -> None:
    program_kind = program.kind
    expected = program.expected
    if isinstance(result, tuple | list) and len(result) == 2:
        result_cell = list_parts(result[1])
        if result_cell is not None:
            result = (
                result[0],
                tuple(int(coordinate) for coordinate in result_cell if is_integer(coordinate)),
            )
    message = f"hunt(steps, arrays) returns {short_repr(result)}"
    if calls != list(program.written_values)[: len(calls)]:
        raise NotYet(f"{message}, but runs the steps {', '.join(calls)}. Each step must run once, in order.")
    if not is_unchanged:
        raise NotYet(
            f"{message}, but the arrays do not contain the numbers that the steps have "
            "written. The search for a NaN must not change an array. Replacing a NaN "
            "does not fix its cause."
        )
    if equals(result, expected):
        return
    if program.has_stale_nan and _is_initial_nan(result, program):
        raise NotYet(
            f"{message}, but no step makes a NaN there. Before the step that writes an "
            "array has run, the array contains old values."
        )
    if expected is None:
        raise NotYet(f"{message} for a program without NaN. Return None.")
    expected_message = f"{message}, but the first NaN is in {expected[0]!r} at {expected[1]}"
    if result is None:
        hint = "Use cp.isnan: NaN is not equal to any number, not even to NaN."
        if program.has_stale_nan:
            hint = (
                "A step may make a NaN where the array contained one before: look at the array after "
                "its step."
            )
        if program_kind == "in place":
            hint = "Look at the array after each step: a later step may overwrite the NaN."
        raise NotYet(f"{expected_message}. {hint}")
    if not isinstance(result, tuple) or len(result) != 2 or not isinstance(result[0], str):
        raise NotYet(f"{expected_message}. Return the name of the array, and the row and column of the cell.")
    if program_kind == "infinite" and result[0] != expected[0]:
        raise NotYet(f"{expected_message}. Infinity is not NaN.")
    if result[0] != expected[0] and program.array_names.get(result[0]) == program.array_names[expected[0]]:
        raise NotYet(
            f"{expected_message}. Both names mean the same array. Return the name of the step that made the "
            "NaN."
        )
    if result[0] != expected[0]:
        raise NotYet(
            f"{expected_message}. NaN spreads, so look at the input first, and then, after each step, at "
            "the array that it has written."
        )
    raise NotYet(
        f"{expected_message}. If several cells have a NaN, return the first one, row by row, as a tuple "
        "(row, column)."
    )


HUNT = PythonExercise("04-hunt", "The first NaN", judge_hunt, level="core", limit_s=12.0)

# 04-places

_MATRIX_SIDES = (1, 33, 40_000, 46_341, 50_000, 70_000, 1_500_000)


def draw_places_case(data: DataGenerator, size: Any, block: Dim3) -> Case:
    """Return a test case for a kernel that computes 64-bit indices into a large matrix and its transpose."""
    rows, cols = (int(n) for n in data.rng.choice(_MATRIX_SIDES, 2))
    case_choice = data.rng.random()
    if case_choice < 0.2:  # just beyond an int, with sides below those that the text names
        rows, cols = (int(n) for n in data.rng.integers(46_341, 50_000, 2))
    elif case_choice < 0.35:  # more than 40 bits
        rows, cols = (int(n) for n in data.rng.integers(1_200_000, 1_500_000, 2))
    elif case_choice < 0.65:  # one of a side whose square would fit into an int
        matrix_sides = int(data.rng.integers(31_000, 46_341)), int(data.rng.integers(70_000, 1_500_000))
        rows, cols = matrix_sides if case_choice < 0.5 else matrix_sides[::-1]
    row = data.rng.integers(0, rows, size).astype(np.int32)
    col = data.rng.integers(0, cols, size).astype(np.int32)
    is_last_cell = data.rng.random(size) < 0.3
    row[is_last_cell] = rows - 1
    col[is_last_cell] = cols - 1
    return _make_places_case(row, col, rows, cols, block)


def _make_corners_row(rows: int, cols: int) -> SpecialInput:
    """Return a table row for a matrix of this size, with elements at its corners and next to them."""

    def make_case(data: DataGenerator, size: Any, block: Dim3) -> Case:
        row = data.rng.choice((0, min(1, rows - 1), rows - 1), size).astype(np.int32)
        col = data.rng.choice((0, min(1, cols - 1), cols - 1), size).astype(np.int32)
        row[-1] = rows - 1
        col[-1] = cols - 1
        return _make_places_case(row, col, rows, cols, block)

    return SpecialInput(f"corners of a matrix of {rows:,} × {cols:,}", make_case, (40,))


_INT_MAX = (1 << 31) - 1
_MATRIX_ROWS = tuple(
    _make_corners_row(rows, cols)
    for rows, cols in (
        (1, 1),
        (7, 5),
        (46_341, 46_341),
        (50_000, 50_000),
        (65_536, 65_536),
        (1, _INT_MAX),
        (_INT_MAX, 1),
        (1_500_000, 1_500_000),
        (40_000_000, 40_000_000),
    )
)


def _make_places_case(row: Any, col: Any, rows: int, cols: int, block: Dim3) -> Case:
    size = row.size
    inputs = {"row": row, "col": col, "rows": rows, "cols": cols, "n": size}
    wide_row = row.astype(np.int64)
    wide_col = col.astype(np.int64)
    expected = {"from": wide_row * cols + wide_col, "to": wide_col * rows + wide_row}
    return Case(draw.count_blocks(size, block[0]), inputs, expected)


def _make_narrow_product_matcher(dtype: Any) -> Callable[[Mistake], bool]:
    """Return a matcher for results that were computed in 32 bits and then widened to 64."""

    def is_match(mistake: Mistake) -> bool:
        if mistake.actual_values is None or mistake.expected_values is None:
            return False
        factor_name, length_name, addend_name = (
            ("row", "cols", "col") if mistake.name == "from" else ("col", "rows", "row")
        )
        addend = mistake[addend_name]
        product = mistake[factor_name].astype(np.int64) * mistake[length_name]
        sum_with_wrapped_product = (product.astype(dtype).astype(np.int64) + addend).astype(np.int64)
        wrapped_sum = (product + addend).astype(dtype).astype(np.int64)
        return bool(
            (mistake.actual_values == sum_with_wrapped_product).all()
            or (mistake.actual_values == wrapped_sum).all()
        )

    return is_match


PLACES = KernelExercise(
    "04-places",
    "Repair: positions in a large matrix",
    kernel="places",
    parameters="const int* row, const int* col, long long* from, long long* to, int rows, int cols, int n",
    forbids_double_writes=True,
    case=draw_places_case,
    table=_MATRIX_ROWS,
    reference="places.cu",
    kind="repair",
    advice=(
        Advice(
            _make_narrow_product_matcher(np.int32),
            "The product of two ints is an int, which cannot be above 2,147,483,647, even if you assign it "
            "to a long long: widen a factor before you multiply, in both lines.",
        ),
        Advice(
            _make_narrow_product_matcher(np.uint32),
            "unsigned wraps around as well, only later: widen a factor to 64 bits before you multiply.",
        ),
        Advice(
            advice.is_partly_unwritten,
            "Every element has a position, also a very large one. A guard only hides the mistake.",
        ),
        Advice(advice.is_out_of_bounds, "Threads beyond n have no element."),
        Advice(
            lambda mistake: mistake.actual_values is not None,
            "A position is the row times the length of a row, plus the column. In the transposed matrix, a "
            "row has `rows` elements.",
        ),
    ),
    praise="the positions are right beyond 2³¹, in the matrix and in the transposed one.",
)

# 04-barrier


def make_tree_sum_case(data: DataGenerator, size: Any, block: Dim3) -> Case:
    """Return a test case for a kernel that sums the elements of each block."""
    return _make_sum_case(data.integers(size, -(1 << 20), 1 << 20), block)


def _make_last_differs_case_maker(value: int, other_value: int) -> Any:
    """Return a function that creates a test case of equal elements, except the last one of each block."""

    def make_case(data: DataGenerator, size: Any, block: Dim3) -> Case:
        x = np.full(size, other_value, np.int32)
        x[block[0] - 1 :: block[0]] = value
        return _make_sum_case(x, block)

    return make_case


_SUM_ROWS = (
    SpecialInput("0 except for the largest int", _make_last_differs_case_maker((1 << 31) - 1, 0)),
    SpecialInput("0 except for the least int", _make_last_differs_case_maker(-(1 << 31), 0)),
    SpecialInput("all -1,000,001", _make_last_differs_case_maker(-1_000_001, -1_000_001)),
)


def _make_sum_case(x: Any, block: Dim3) -> Case:
    size = x.size
    threads = block[0]
    blocks = draw.count_blocks(size, threads)
    block_sums = np.zeros(blocks, np.int32)
    for index in range(-(-size // threads)):
        block_sums[index] = x[index * threads : (index + 1) * threads].sum()
    return Case(blocks, {"x": x, "n": size}, {"sums": block_sums})


BARRIER = KernelExercise(
    "04-barrier",
    "Repair: half a barrier",
    kernel="tree_sum",
    parameters="const int* x, int* sums, int n",
    forbids_double_writes=True,
    case=make_tree_sum_case,
    table=_SUM_ROWS,
    reference="tree_sum.cu",
    kind="repair",
    level="stretch",
    advice=(
        Advice(advice.is_out_of_bounds, "Threads beyond n must add 0, and `part` has 1,024 elements."),
        Advice(
            advice.is_hazard("RAW", "WAR", "WAW"),
            "Without a __syncthreads() between storing and reading, a warp can read a value that another "
            "warp has not stored yet. Put one after the first store, and one after each step.",
        ),
        Advice(
            lambda mistake: (
                "barrier" in mistake.message or mistake.fault_kind in ("threads missing", "barrier")
            ),
            "__syncthreads() is for all threads of the block: put it where every one of them reaches it, "
            "whether it adds or not.",
        ),
        Advice(advice.is_written_twice, "Only one thread of each block must write the sum of the block."),
        Advice(
            lambda mistake: mistake.actual_values is not None,
            "Does every element reach thread 0, for blocks of any size? And do all threads wait after each "
            "step?",
        ),
    ),
    praise="all threads of the block wait for each other after each step.",
)

# 04-freed


def make_freed_case(data: DataGenerator, size: int) -> ProgramCase:
    """Return a test case with integers, whose products are exact in floating point."""
    x = data.rng.integers(-900, 900, size).astype(np.float32)
    label = f"both(x) of {counted(size, 'element')}"
    return ProgramCase(
        (x,), (x * 2 + 1) * (x - 3), True, label, required_place="device", keeps_arguments=True
    )


def both(x: Any) -> Any:
    """The reference solution, which frees the memory only after all work that uses it has ended."""
    cp = session.cp()
    current_stream = cp.cuda.get_current_stream()
    side_stream = cp.cuda.Stream(non_blocking=True)
    doubled_x = x * np.float32(2)
    y = cp.empty_like(x)
    side_stream.wait_event(current_stream.record())
    with side_stream:
        cp.add(doubled_x, np.float32(1), out=y)
    current_stream.wait_event(side_stream.record())
    del doubled_x
    z = x - np.float32(3)
    return y * z


FREED = ProgramExercise(
    "04-freed",
    "Repair: freed too early",
    "both",
    make_freed_case,
    both,
    kind="repair",
    sizes=lambda rng: (1, 33, 1000, int(rng.integers(5_000, 50_000)), 100_000),
    checks_stream_order=True,
    budgets=(
        Budget("streams", "Keep the two streams, and let one wait for an event of the other.", min_count=2),
        Budget(
            "waits",
            "The host must not wait: an event orders the streams and leaves the host free.",
            max_count=0,
        ),
        Budget(
            "kept_bytes",
            "After the call, only the memory of the result may be in use: order the streams, and then let "
            "the memory of `doubled` go back to the pool.",
            max_reference_factor=1.05,
            large_sizes_only=True,
        ),
        Budget(
            "driver_calls",
            "cudaFree lets the host wait for the whole device: return the memory to the pool instead.",
            max_reference_factor=2.0,
        ),
    ),
    advice=(
        (
            "reused too early",
            "The memory goes back to the pool when its array is deleted: order the streams before that.",
        ),
    ),
    praise="the memory returns to the pool after the other stream has read it, and the host never waits.",
)

EXERCISES = (WHODUNIT, PLACES, FREED, HUNT, BARRIER)
