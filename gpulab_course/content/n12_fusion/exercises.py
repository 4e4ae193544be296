"""Exercises of notebook 12."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from gpulab import session
from gpulab.session import on_device
from gpulab_course.content.n12_fusion.figures import GELU
from gpulab_course.teach.judge import (
    Advice,
    Answer,
    Budget,
    Case,
    DataGenerator,
    ExpectedFloats,
    KernelExercise,
    MeasuredLaunch,
    Mistake,
    NotYet,
    ProgramCase,
    ProgramExercise,
    PythonExercise,
    SpecialInput,
    advice,
    call,
    draw,
    short_repr,
)
from gpulab_course.teach.judge.python.functions import is_integer, must_be_a_function
from virtualgpu.records import Dim3

# 12-elementwise


def draw_affine_sizes(rng: np.random.Generator) -> tuple[tuple[int, int], ...]:
    """Return matrix sizes (rows, columns) for the tests."""
    rows, columns = (int(n) for n in rng.integers(3, 90, 2))
    return (1, 1), (1, 33), (rows, 1), (rows, columns), (columns, 257), (300, 128)


def draw_affine_case(random_data: DataGenerator, size: Any) -> ProgramCase:
    """Return a test case with a random matrix, and with a factor and an offset for each column."""
    x = (random_data.rng.standard_normal(size) * 3).astype(np.float32)
    factors, offsets = (random_data.rng.uniform(-2, 2, size[1]).astype(np.float32) for _ in range(2))
    return _make_affine_case(x, factors, offsets)


def _make_affine_case(x: Any, factors: Any, offsets: Any) -> ProgramCase:
    """Return the test call with this matrix, these factors and these offsets."""
    affine_values = x.astype(np.float64) * factors + offsets
    with np.errstate(over="ignore", invalid="ignore"):
        expected = affine_values / (
            1 + np.exp(affine_values * (affine_values * affine_values * -0.0713548 - 1.5957691))
        )
        near_expected = ExpectedFloats(
            expected.astype(np.float32), np.abs(x * factors) + np.abs(offsets) + 1e-4, ulps=16
        )
    label = f"fused_gelu(x, w, b) with {x.shape[0]} × {x.shape[1]} elements"
    return ProgramCase(
        (x, factors, offsets), near_expected, True, label, required_place="device", keeps_arguments=True
    )


def make_affine_extremes_case(random_data: DataGenerator, size: Any) -> ProgramCase:
    """Return a test case whose columns contain values of every magnitude, an infinity and a NaN."""
    magnitudes = np.array([29, 31, 40, 87, 89, 130, 1e3, 1e4, 1e7, 1e15, 1e25])
    extreme_values = random_data.rng.permutation(
        [*magnitudes, *-magnitudes, 0.0, -0.0, 1e-20, np.inf, np.nan]
    )
    column_factors = random_data.rng.choice((-2, -1, -0.5, 0.5, 1, 2), size[1]).astype(np.float32)
    return _make_affine_case(
        (extreme_values[:, None] / column_factors).astype(np.float32),
        column_factors,
        np.zeros(size[1], np.float32),
    )


def make_affine_zeros_case(random_data: DataGenerator, size: Any) -> ProgramCase:
    """Return a test case in which the factor, the offset, or both are 0 for some columns."""
    x = (random_data.rng.standard_normal(size) * 3).astype(np.float32)
    return _make_affine_case(x, np.array([0, 0, 1, -1], np.float32), np.array([0, -2, 0, 2], np.float32))


def affine_gelu(x: Any, factors: Any, offsets: Any) -> Any:
    """Compute the layer in one elementwise kernel that uses broadcasting (reference solution)."""
    kernel = session.cp().ElementwiseKernel(
        "float32 x, float32 w, float32 b", "float32 y", f"float v = x * w + b; y = {GELU};", "affine_gelu"
    )
    return kernel(x, factors, offsets)


def affine_naive(x: Any, factors: Any, offsets: Any) -> Any:
    """Compute the layer with one kernel for each operation (naive version)."""
    cp = session.cp()
    values = x * factors + offsets
    return values / (1 + cp.exp(values * (values * values * -0.0713548 - 1.5957691)))


# 12-maxabs


def draw_largest_sizes(rng: np.random.Generator) -> tuple[int, ...]:
    """Return the array lengths for the tests, beginning with 0."""
    return 0, 1, 2, 31, int(rng.integers(400, 900)), int(rng.integers(1100, 3000)), 20_000


def draw_largest_case(random_data: DataGenerator, n: Any) -> ProgramCase:
    """Return a test case whose largest magnitude may belong to a negative number, an infinity or a NaN."""
    # Some are so large or so small that their squares are infinite or 0.
    x = (random_data.rng.standard_normal(n) * 10.0 ** random_data.rng.choice((2, 36, -25))).astype(np.float32)
    if n > 1 and random_data.rng.random() < 0.3:
        x[int(random_data.rng.integers(n))] = -np.inf
    largest_magnitude: Any = np.float32(np.abs(x).max(initial=0))
    mistakes = []
    if n > 1:
        x = -np.abs(x) if random_data.rng.random() < 0.7 else x
        mistakes = [
            (
                np.asarray(x.max()),
                "This is the largest element. The largest absolute value can belong to a negative element.",
            ),
            (np.asarray(np.abs(x.max())), "Take absolute values before you compare them, not after."),
        ]
    if n in (31,) or n > 1000:
        finite_maximum = float(np.abs(x).max())
        x[int(random_data.rng.integers(0, n - 1))] = np.nan
        largest_magnitude = np.float32(np.nan)
        mistakes = [
            (
                np.asarray(np.float32(finite_maximum)),
                "One element is NaN, and it was lost: a comparison such as a > b is never true for NaN.",
            ),
        ]
    if n == 0:
        mistakes = [
            (np.asarray(np.float32(-np.inf)), "For an empty array, the result must be 0: begin there.")
        ]
    return _make_largest_case(x, largest_magnitude, mistakes)


def _make_largest_case(x: Any, expected: Any, mistakes: Sequence[tuple[Any, str]] = ()) -> ProgramCase:
    """Return the test call with this array and this largest absolute value."""
    label = f"largest(x) with {x.size:,} elements"
    expected = np.asarray(np.float32(expected))
    return ProgramCase(
        (x,), expected, True, label, tuple(mistakes), required_place="device", keeps_arguments=True
    )


def make_largest_case_maker(
    *special_values: float, first_index: int = 0, expected: float
) -> Callable[[DataGenerator, Any], ProgramCase]:
    """Return a function that creates a random test case, in which `special_values` replace some numbers."""

    def make_case(random_data: DataGenerator, n: Any) -> ProgramCase:
        x = random_data.rng.uniform(-1, 1, n).astype(np.float32)
        first_special_index = first_index % n
        x[first_special_index : first_special_index + len(special_values)] = special_values[
            : n - first_special_index
        ]
        finite_maximum = np.asarray(np.nanmax(np.abs(x), initial=0))
        lost_nan_mistake = (
            finite_maximum,
            "One element is NaN, and it was lost: a comparison such as a > b is never true for NaN.",
        )
        return _make_largest_case(x, expected, [lost_nan_mistake] if np.isnan(expected) else ())

    return make_case


def make_uniform_case_maker(value: float) -> Callable[[DataGenerator, Any], ProgramCase]:
    """Return a function that creates a test case in which all numbers equal `value`."""
    return lambda random_data, n: _make_largest_case(np.full(n, value, np.float32), abs(value))


def largest(x: Any) -> Any:
    """Compute the largest absolute value with one reduction kernel, which also takes the absolute values
    (reference solution).
    """
    kernel = session.cp().ReductionKernel(
        "float32 x", "float32 y", "fabsf(x)", "(a != a || a > b) ? a : b", "y = a", "0", "largest"
    )
    return kernel(x)


def largest_naive(x: Any) -> Any:
    """Store all absolute values, and then compute their maximum in a second step (naive version)."""
    cp = session.cp()
    return cp.abs(x).max() if x.size else cp.zeros((), cp.float32)


# 12-softmax


def draw_softmax_case(random_data: DataGenerator, size: Any, block: Dim3) -> Case:
    """Return a test case for a kernel that scales scores, adds a bias, and computes the softmax of each
    row.
    """
    rows, columns = size
    x = random_data.rng.uniform(-3, 3, size) + random_data.rng.choice((0, 0, 60, -60, 900, -3000), (rows, 1))
    steep_rows = random_data.rng.random(rows) < 0.3
    x[steep_rows] += np.linspace(0, 150, columns)[:: random_data.rng.choice((1, -1))]
    x = np.rint(x).astype(np.float32) if random_data.kind == draw.DUPLICATE_VALUES else x.astype(np.float32)
    score_scale = np.float32(random_data.rng.choice((0.125, 0.5, 1, 2)))
    bias = random_data.rng.uniform(-4, 4, columns).astype(np.float32)
    return _make_softmax_case(x, score_scale, bias)


def _make_softmax_case(x: Any, scale: Any, bias: Any) -> Case:
    """Return the test launch with these scores, this scale and these biases."""
    rows, columns = x.shape
    scores = (x * np.float32(scale)).astype(np.float64) + bias
    powers = np.exp(scores - scores.max(axis=1, keepdims=True))
    expected = powers / powers.sum(axis=1, keepdims=True)
    error_scale = np.abs(x * scale).max(axis=1, keepdims=True) + np.abs(bias).max() + 40
    near_expected = ExpectedFloats(expected.astype(np.float32), expected * error_scale + 1e-6, ulps=8)
    inputs = {"x": x, "bias": bias, "scale": scale, "rows": rows, "cols": columns}
    return Case(rows, inputs, {"y": near_expected}, 4 * columns)


def make_softmax_case_maker(
    scale: float, max_score: float, max_bias: float
) -> Callable[[DataGenerator, Any, Dim3], Case]:
    """Return a function that creates a softmax test case with this scale and with these ranges of scores and
    biases.
    """

    def make_case(random_data: DataGenerator, size: Any, block: Dim3) -> Case:
        x, bias = (
            random_data.rng.uniform(-max_magnitude, max_magnitude, shape).astype(np.float32)
            for max_magnitude, shape in ((max_score, size), (max_bias, size[1]))
        )
        return _make_softmax_case(x, np.float32(scale), bias)

    return make_case


def make_softmax_level_case(random_data: DataGenerator, size: Any, block: Dim3) -> Case:
    """Return a softmax test case with equal scores in each row. The scores of each row have a larger
    magnitude than those of the row before.
    """
    x = (-2.0) ** np.arange(3, 3 + 9 * size[0], 9)[:, None] * np.ones(size)
    return _make_softmax_case(x.astype(np.float32), np.float32(1), np.zeros(size[1], np.float32))


def make_softmax_steep_case(random_data: DataGenerator, size: Any, block: Dim3) -> Case:
    """Return a softmax test case in which one score of each row is far above all others."""
    x = random_data.rng.uniform(-3, 3, size)
    peak_columns = np.r_[0, size[1] - 1, random_data.rng.integers(0, size[1], size[0] - 2)]
    x[np.arange(size[0]), peak_columns] += random_data.rng.choice((12, 200), size[0])
    return _make_softmax_case(x.astype(np.float32), np.float32(1), np.zeros(size[1], np.float32))


def _draw_matrix_sizes(rng: np.random.Generator, threads_at_once: int) -> list[Any]:
    """Draw sizes (rows, columns): few and many columns, around a warp and a block, and long rows."""
    a, b = (int(n) for n in rng.integers(2, 40, 2))
    wide_columns = int(rng.integers(1025, 2200))
    middle_columns, many_columns, few_columns = (
        int(rng.integers(*column_limits)) for column_limits in ((34, 300), (513, 1000), (73, 95))
    )
    short_rows = [(6, 64), (1, 1), (3, 1), (a, 31), (5, 32), (b, 33), (7, middle_columns)]
    return [*short_rows, (4, many_columns), (2, wide_columns), (3, 4 * 1024 + a), (900, few_columns)]


def _compute_unscaled_softmax(mistake: Mistake) -> Any:
    """Return the result that a kernel without scale and bias would have."""
    x64 = mistake["x"].astype(np.float64)
    powers = np.exp(x64 - x64.max(axis=1, keepdims=True))
    return powers / powers.sum(axis=1, keepdims=True)


def _make_matcher(compute_mistaken_result: Callable[[Mistake], Any]) -> Callable[[Mistake], bool]:
    """Return a matcher for results that equal ``compute(mistake)``, the result of a known mistake."""
    return lambda m: (
        m.actual_values is not None
        and np.allclose(m.actual_values, compute_mistaken_result(m), rtol=1e-3, atol=1e-5)
    )


def _is_exponential_overflow(mistake: Mistake) -> bool:
    """Return whether all wrong rows have exponentials that overflow if no maximum is subtracted."""
    if mistake.actual_values is None or not mistake.wrong_elements.any():
        return False
    largest_scores = (mistake["x"] * mistake["scale"] + mistake["bias"]).max(axis=1)[
        mistake.wrong_elements.any(axis=1)
    ]
    return advice.is_not_finite(mistake) and bool(((largest_scores > 80) | (largest_scores < -80)).all())


def _has_row_sums_of_one(mistake: Mistake) -> bool:
    """Return whether the elements of each wrong row have the sum 1."""
    if mistake.actual_values is None:
        return False
    wrong_rows = mistake.actual_values[mistake.wrong_elements.any(axis=1)].astype(np.float64)
    return bool(np.allclose(wrong_rows.sum(axis=1), 1, atol=5e-5))


# 12-guards


_DEVICE_COUNT = 3
ArgumentDescription = tuple[
    Any, ...
]  # ("array", dtype, shape, contiguous, device), or ("number", type, value)
_DESCRIPTION_FIELDS = ("kind", "dtype", "shape", "contiguity", "device")
_KEY_LESSONS = {
    "dtype": "Code for one dtype reads wrong numbers from an array of another: the dtype belongs in the key.",
    "shape": "The code contains the whole shape, so another shape needs other code.",
    "contiguity": "Code for a contiguous array computes addresses that are wrong for another layout: put "
    "x.flags.c_contiguous into the key.",
    "device": "A kernel is loaded into one device: put x.device.id into the key.",
    "number": "A number is a constant of the code: its value and its type belong in the key. In Python, 1, "
    "1.0 and True are equal, so they are the same key of a dictionary.",
    "count": "Another number of arguments needs another program.",
    "kind": "A number instead of an array needs another program.",
}


_NUMBER_TYPES = {"int": int, "float": float, "bool": bool}


def _make_argument(cp: Any, description: ArgumentDescription, repetition: int) -> Any:
    """Create an array or number from a description; every second array has another memory layout."""
    if description[0] == "number":
        return _NUMBER_TYPES[description[1]](description[2])
    with cp.cuda.Device(description[4]):
        if description[3]:
            return (
                cp.empty((2, *description[2]), description[1])[1]
                if repetition % 2
                else cp.empty(description[2], description[1])
            )
        return cp.empty((*description[2], 2 + repetition % 2), description[1])[..., 0]


def _describe_arguments(values: Sequence[Any]) -> list[ArgumentDescription]:
    """Return descriptions of arrays and numbers as plain data."""
    return [
        ("array", value.dtype.name, value.shape, value.flags.c_contiguous, value.device.id)
        if hasattr(value, "device")
        else ("number", type(value).__name__, value)
        for value in values
    ]


def call_caches(
    cached: Any, send_request: Callable[..., Any], calls: Sequence[Sequence[ArgumentDescription]]
) -> list[Any]:
    """Call the learner's cache in the answer's process, and use a second cache for the last calls."""

    def make_cache(index: int) -> Any:
        def compile(*args: Any) -> Any:
            function_id = send_request("compiled", index, _describe_arguments(args))
            return lambda *arguments: send_request("ran", function_id, _describe_arguments(arguments))

        function = cached(compile)
        if not callable(function):
            raise NotYet(
                "cached(compile) should return a function that calls the program that compile(*args) returns."
            )
        return function

    with on_device("virtual:T4", count=_DEVICE_COUNT) as cp:
        caches = make_cache(0), make_cache(1)
        repetitions = Counter[ArgumentDescription]()
        run_numbers = []
        for call_arguments in calls:
            repetitions.update(call_arguments)
            run_numbers.append(
                caches[call_arguments is calls[-1]](
                    *(
                        _make_argument(cp, description, repetitions[description])
                        for description in call_arguments
                    )
                )
            )
        return run_numbers


class CompilerModel:
    """A model of two compilers, which records the compilations and the arguments of each program's runs."""

    def __init__(self) -> None:
        self.compilations: list[tuple[int, list[ArgumentDescription]]] = []
        self.runs: list[tuple[int, list[ArgumentDescription]]] = []

    def __call__(self, action: str, program_number: int, args: list[ArgumentDescription]) -> int:
        """Record a compilation or a run, and return its number."""
        recorded_requests = self.compilations if action == "compiled" else self.runs
        recorded_requests.append((program_number, args))
        return len(recorded_requests) - 1


def judge_cached(answer: Answer) -> str:
    """Judge the learner's ``cached(compile)`` with calls that differ in one property, and with repeated
    calls.
    """
    must_be_a_function("cached", answer.is_function, answer.kind)
    argument_lists = _draw_calls(answer.rng)
    compilers = CompilerModel()
    argument_lists.append(list(argument_lists[0]))  # with the other compiler
    run_numbers = answer.ask(call_caches, argument_lists, shown="cached(compile)", back=compilers)
    for call_index, (call_arguments, run_number) in enumerate(zip(argument_lists, run_numbers, strict=True)):
        if not is_integer(run_number) or not 0 <= run_number < len(compilers.runs):
            raise NotYet(
                f"{_make_call_text(call_arguments)} returns {short_repr(run_number)}. Return what the "
                "program returns."
            )
        program, run_arguments = compilers.runs[run_number]
        compiler, compiled_arguments = compilers.compilations[program]
        if run_arguments != call_arguments:
            raise NotYet("The program was not called with the arguments of the call. Pass on all of them.")
        if compiler != (call_index == len(argument_lists) - 1):
            raise NotYet(
                "cached(compile) was called with two compilers, and one cache ran a "
                "program of the other cache. Each cache must have its own programs."
            )
        if compiled_arguments != call_arguments:
            raise NotYet(
                f"{_make_call_text(call_arguments)} ran the program that was compiled for "
                f"{_make_call_text(compiled_arguments)}. "
                f"{_explain_wrong_key(compiled_arguments, call_arguments)}"
            )
        if run_number < call_index:
            raise NotYet(
                f"{_make_call_text(call_arguments)} was called again, and returned the result of an "
                "earlier call. Keep programs, not their results, because the contents of the arrays may "
                "have changed."
            )
        if run_number > call_index:
            raise NotYet("A program ran more than once for one call. Call the program only once.")
    compilations = sum(not compiler for compiler, _ in compilers.compilations)
    distinct_calls = len({tuple(argument_list) for argument_list in argument_lists})
    if compilations > distinct_calls:
        raise NotYet(
            f"{len(argument_lists)} calls compiled {compilations} programs, but {distinct_calls} are "
            "enough. Arrays with the same dtype, shape, layout and device must have the same key, and the "
            "cache must keep earlier programs."
        )
    return (
        f"{distinct_calls} programs for {len(argument_lists)} calls; "
        "each call ran a program that was compiled for it."
    )


def _draw_calls(rng: np.random.Generator) -> list[list[ArgumentDescription]]:
    """Draw calls as lists of descriptions of their arguments."""
    rows, columns = (int(n) for n in rng.integers(2, 40, 2))

    def describe_array(
        *shape: int, dtype: str = "float32", contiguous: bool = True, device: int = 0
    ) -> ArgumentDescription:
        return "array", dtype, shape, contiguous, device

    def describe_number(value: float) -> ArgumentDescription:
        return "number", type(value).__name__, value

    base_array = describe_array(rows, columns)
    second_array = describe_array(columns)
    changed_arguments = [
        describe_array(rows, columns, dtype="float16"),
        describe_array(rows + 1, columns),
        describe_array(columns, rows + 2 * (rows == columns)),
        describe_array(rows, columns, contiguous=False),
        describe_array(rows, columns, device=1),
        describe_array(rows * columns),
        describe_array(rows, columns, device=2),
        describe_array(rows, columns, dtype="int32"),
        describe_array(1, 11),
        describe_array(11, 1),
        describe_array(),
        describe_array(1),
        describe_array(1, 1),
        describe_array(rows, columns, dtype="uint32"),
        describe_array(1, rows, columns),
    ]
    second_arguments = [
        describe_array(columns, dtype="float16"),
        describe_array(columns, contiguous=False),
        describe_array(columns, device=1),
    ]
    argument_lists = [[base_array, second_array], [base_array, second_array]]
    for changed_argument in changed_arguments:
        argument_lists += [
            [changed_argument, second_array],
            [base_array, changed_argument],
            [base_array, second_array],
        ]
    float_argument = float(rng.uniform(1, 2))
    # Pairs that are equal, that are equal in fewer digits or bits, or that have the same hash.
    number_types = (
        1,
        1.0,
        True,
        0,
        0.0,
        False,
        2,
        2.5,
        2.25,
        -2,
        -1,
        -1.0,
        float_argument,
        float_argument + 1e-9,
        float_argument + 4e-15,
        10**6,
        10**6 + 1,
        2**61 - 1,
        5,
        5 + 2**32,
        1e-9,
        2e-9,
    )
    argument_lists += [[base_array, describe_number(value)] for value in number_types]
    value_pairs = ((1, 2), (2, 1), (1, -1), (-1, 1), (-1, -2), (-2, -2), (1.0, 2), (12, 0), (1, 20))
    argument_lists += [
        [describe_number(first_value), describe_number(second_value)]
        for first_value, second_value in value_pairs
    ]
    argument_lists += [[describe_array(rows, columns, contiguous=False)], [describe_array(rows, columns)]] * 2
    argument_lists += [[base_array, second_argument] for second_argument in second_arguments] + [
        [base_array, second_array, third_argument]
        for third_argument in (base_array, *second_arguments, describe_number(1))
    ]
    argument_lists += [
        [describe_number(1), base_array],
        [base_array],
        [second_array, base_array],
        [base_array, describe_number(1)],
        [base_array, second_array],
    ]
    argument_lists += [argument_lists[int(k)] for k in rng.integers(0, len(argument_lists), 12)]
    return argument_lists


def _explain_wrong_key(
    compiled_key: Sequence[ArgumentDescription], requested_key: Sequence[ArgumentDescription]
) -> str:
    """Return the feedback that names the property which is missing in the key of the cache."""
    if len(compiled_key) != len(requested_key):
        return _KEY_LESSONS["count"]
    for compiled_argument, requested_argument in zip(compiled_key, requested_key, strict=True):
        if compiled_argument[0] != requested_argument[0]:
            return _KEY_LESSONS["kind"]
        if compiled_argument != requested_argument and compiled_argument[0] == "number":
            return _KEY_LESSONS["number"]
        for field_name, compiled_value, requested_value in zip(
            _DESCRIPTION_FIELDS, compiled_argument, requested_argument, strict=False
        ):
            if compiled_value != requested_value:
                return _KEY_LESSONS[field_name]
    return ""


def _make_call_text(call_arguments: Sequence[ArgumentDescription]) -> str:
    """Return the arguments of a call as text."""

    def make_argument_text(description: ArgumentDescription) -> str:
        if description[0] == "number":
            return repr(description[2])
        layout = "" if description[3] else ", not contiguous"
        device = f", device {description[4]}" if description[4] else ""
        return f"{description[1]} {tuple(description[2])}{layout}{device}"

    return f"({'; '.join(map(make_argument_text, call_arguments))})"


# 12-fuses


@dataclass(frozen=True)
class Step:
    """A step of a program, with its name, its operation and its inputs.

    The attribute ``does`` is "map", "shift", "reduce" or "product". A shift is a map that reads other
    elements than the element that it writes. ``into`` is the array that a map overwrites with its result.
    """

    name: str
    does: str
    reads: tuple[str, ...]
    into: str | None = None


def kernels_of(steps: Sequence[Step]) -> list[list[str]]:
    """Group the steps of a program into kernels by the fusion rules (reference solution).

    A product has its own kernel. Other kernels have maps, shifts and at most one reduction. The result of a
    reduction is complete only at the end of its kernel, so no step of that kernel reads it. A kernel with a
    reduction stores only its result, so no other value of it is needed later, and it changes nothing in
    place. A shift does not read elements that other threads of the same kernel write, under any name.
    """
    return [[step.name for step in step_group] for step_group in _group_steps(steps)]


def _group_steps(steps: Sequence[Step]) -> list[list[Step]]:
    """Divide a program into kernels, and return the steps of each kernel."""
    step_groups: list[list[Step]] = []
    array_of_value = _find_memory_of_steps(steps)
    for step_index, step in enumerate(steps):
        enlarged_group = [*step_groups[-1], step] if step_groups else [step]
        if step_groups and not _make_conflict_text(enlarged_group, steps[step_index + 1 :], array_of_value):
            step_groups[-1] = enlarged_group
        else:
            step_groups.append([step])
    return step_groups


def _find_memory_of_steps(steps: Sequence[Step]) -> dict[str, str]:
    """Return for each name the array in whose memory its values are stored."""
    memory_of_step = {"x": "x"}
    for step in steps:
        memory_of_step[step.name] = memory_of_step[step.into] if step.into else step.name
    return memory_of_step


def _make_conflict_text(
    step_group: Sequence[Step], later_steps: Sequence[Step], memory_of_step: dict[str, str]
) -> str:
    """Return the reason why these steps cannot be one kernel, or "" if they can."""
    reductions = [step.name for step in step_group if step.does == "reduce"]
    if any(step.does == "product" for step in step_group):
        return "a product must be alone in its kernel"
    if len(reductions) > 1:
        return "a kernel must not have more than one reduction"
    if any(name in step.reads for step in step_group for name in reductions):
        return "the result of a reduction is complete only at the end of its kernel"
    names = {step.name for step in step_group} - {*reductions}
    if reductions and (
        step_group[-1].does != "reduce" or names & {name for step in later_steps for name in step.reads}
    ):
        return "a kernel that ends in a reduction stores only its result, but other values are needed later"
    if reductions and any(step.into for step in step_group):
        return (
            "a kernel that ends in a reduction stores only its result, so it cannot change an array in place"
        )
    shifted_memory = {
        memory_of_step[name] for step in step_group if step.does == "shift" for name in step.reads
    }
    if any(step.into and memory_of_step[step.name] in shifted_memory for step in step_group):
        return (
            "a shift reads other elements of memory that the same kernel changes in place. Other threads may "
            "already have changed these elements, whatever the array is called"
        )
    if any(memory_of_step[step.name] in shifted_memory for step in step_group):
        return "a shift reads other elements than its own, and other threads of the same kernel write them"
    return ""


def judge_kernels(answer: Answer) -> str:
    """Judge the learner's function `kernels` with programs for each fusion rule, and then with random
    programs.
    """
    rng = answer.rng
    programs = [
        *_EXAMPLE_PROGRAMS.values(),
        *(_draw_program(rng, int(rng.integers(2, 9))) for _ in range(60)),
    ]
    for program_steps in programs:
        descriptions = [(step.name, step.does, step.reads, step.into) for step in program_steps]
        call_text = f"kernels({'; '.join(map(_make_step_text, program_steps))})"
        result = call(answer, descriptions, name="kernels", shown=call_text)
        step_groups = (
            [[str(name) for name in step_group] for step_group in result]
            if _is_list_of_groups(result)
            else None
        )
        if step_groups is None:
            raise NotYet(
                f"{call_text} should return a list that contains, for each kernel, a list of the names of "
                "its steps."
            )
        if [name for step_group in step_groups for name in step_group] != [
            step.name for step in program_steps
        ]:
            raise NotYet(
                f"{call_text} should contain every step once, in the order of the program, but it is "
                f"{step_groups}."
            )
        expected = kernels_of(program_steps)
        if step_groups != expected:
            raise NotYet(
                f"{call_text} returns {step_groups}, but it should return {expected}: "
                f"{_make_difference_text(program_steps, step_groups)}."
            )
    return "every kernel is as long as the rules allow."


def _make_step_text(step: Step) -> str:
    """Return a step as text, such as ``y = map(x)``."""
    return f"{step.name} = {step.does}({', '.join(step.reads)})" + (f" into {step.into}" if step.into else "")


def _is_list_of_groups(result: Any) -> bool:
    """Return whether a value is a list of non-empty lists."""
    list_types = (list, tuple)
    return isinstance(result, list_types) and all(
        isinstance(step_group, list_types) and step_group for step_group in result
    )


def _make_difference_text(steps: Sequence[Step], step_groups: Sequence[Sequence[str]]) -> str:
    """Return the feedback for a wrong division into kernels."""
    steps_by_name = {step.name: step for step in steps}
    memory_of_step = _find_memory_of_steps(steps)
    for step_group in step_groups:
        last_index = max(step_index for step_index, step in enumerate(steps) if step.name in step_group)
        conflict_text = _make_conflict_text(
            [steps_by_name[name] for name in step_group], steps[last_index + 1 :], memory_of_step
        )
        if conflict_text:
            return conflict_text
    return "more steps fit into one kernel"


def _draw_program(rng: np.random.Generator, length: int) -> list[Step]:
    """Draw a random program with this number of steps."""
    steps: list[Step] = []
    for step_index in range(length):
        step_kind = str(rng.choice(("map", "map", "map", "shift", "reduce", "product")))
        value_names = ["x", *(step.name for step in steps)]
        main_input = value_names[-1] if rng.random() < 0.8 else str(rng.choice(value_names))
        second_input = (str(rng.choice(value_names)),) if step_kind == "map" and rng.random() < 0.4 else ()
        step_inputs = tuple(dict.fromkeys((main_input, *second_input)))
        stored_inputs = [
            name for name in step_inputs if name not in {step.name for step in steps if step.does == "reduce"}
        ]
        in_place_input = (
            stored_inputs[-1] if step_kind == "map" and stored_inputs and rng.random() < 0.4 else None
        )
        steps.append(Step("abcdefghi"[step_index], step_kind, step_inputs, in_place_input))
    return steps


_EXAMPLE_PROGRAMS = {
    "gelu": [Step("a", "map", ("x",)), Step("b", "map", ("a",)), Step("c", "map", ("a", "b"))],
    "mean square": [Step("a", "map", ("x",)), Step("b", "reduce", ("a",))],
    "centred": [Step("a", "reduce", ("x",)), Step("b", "map", ("x", "a"))],
    "softmax": [
        Step("a", "reduce", ("x",)),
        Step("b", "map", ("x", "a")),
        Step("c", "reduce", ("b",)),
        Step("d", "map", ("b", "c")),
    ],
    "twice": [Step("a", "map", ("x",)), Step("b", "reduce", ("a",)), Step("c", "map", ("a",))],
    "read much later": [
        Step("a", "map", ("x",)),
        Step("b", "reduce", ("a",)),
        Step("c", "map", ("b",)),
        Step("d", "product", ("c",)),
        Step("e", "map", ("a", "d")),
    ],
    "two sums": [Step("a", "reduce", ("x",)), Step("b", "reduce", ("x",))],
    "product": [Step("a", "map", ("x",)), Step("b", "product", ("a",)), Step("c", "map", ("b",))],
    "shifted": [Step("a", "shift", ("x",)), Step("b", "map", ("a", "x")), Step("c", "shift", ("b",))],
    "in place": [Step("a", "map", ("x",), "x"), Step("b", "map", ("a",), "a"), Step("c", "map", ("b",))],
    "in place, shifted": [Step("a", "map", ("x",), "x"), Step("b", "shift", ("x",))],
    "shifted, in place": [Step("a", "shift", ("x",)), Step("b", "map", ("a", "x"), "x")],
    "by its other name": [
        Step("a", "map", ("x",), "x"),
        Step("b", "product", ("x",)),
        Step("c", "shift", ("x",)),
        Step("d", "map", ("c", "a"), "a"),
    ],
    "in place, reduced": [Step("a", "map", ("x",), "x"), Step("b", "reduce", ("a",))],
}


_SHARED_MEMORY_ADVICE = (
    "If one warp stores values for other warps, a __syncthreads() must come before they are read, and "
    "another one before they are overwritten."
)
EXERCISES = (
    ProgramExercise(
        "12-elementwise",
        "Nine passes in one kernel",
        "fused_gelu",
        draw_affine_case,
        affine_gelu,
        affine_naive,
        level="warm-up",
        kind="repair",
        sizes=draw_affine_sizes,
        table=(
            SpecialInput("values of every size, ∞ and NaN", make_affine_extremes_case, ((27, 5), (27, 70))),
            SpecialInput("factors and offsets of 0", make_affine_zeros_case, ((9, 4),)),
            SpecialInput("no rows", draw_affine_case, ((0, 7),)),
        ),
        budgets=(
            Budget(
                "launches", "One kernel is enough: put the whole expression into its operation.", max_count=1
            ),
            Budget(
                "memsets",
                "Do not fill an array first: the kernel allocates and writes its result.",
                max_count=0,
            ),
            Budget(
                "copies",
                "Nothing has to be copied, because an ElementwiseKernel broadcasts its arguments.",
                max_count=0,
            ),
            Budget(
                "peak_used_bytes",
                "Use memory only for the result, and not for temporary arrays.",
                max_reference_factor=1.05,
                large_sizes_only=True,
            ),
            Budget(
                "double_flop",
                "A constant without an f is a double, and so is every expression that contains it. Write "
                "1.5f, not 1.5.",
                max_count=0,
            ),
        ),
        advice=(
            ("is nan, but it should be", "An exponential overflows. Use it only in the divisor."),
            ("it should be nan", "NaN must stay NaN, but fminf and fmaxf return the other operand."),
        ),
        praise="the kernel reads and writes each element once, without other passes.",
    ),
    ProgramExercise(
        "12-maxabs",
        "The largest absolute value in one pass",
        "largest",
        draw_largest_case,
        largest,
        largest_naive,
        sizes=draw_largest_sizes,
        table=(
            SpecialInput("0 and −0 throughout", make_uniform_case_maker(-0.0), (40,)),
            SpecialInput("all equal, below 0", make_uniform_case_maker(-2.5), (1, 700)),
            SpecialInput("all tiny", make_uniform_case_maker(1e-30), (300,)),
            SpecialInput(
                "the largest float, below 0", make_largest_case_maker(-3.4e38, expected=3.4e38), (50, 1000)
            ),
            SpecialInput(
                "−∞", make_largest_case_maker(-np.inf, first_index=-1, expected=np.inf), (1, 33, 3000)
            ),
            SpecialInput("∞", make_largest_case_maker(np.inf, first_index=5, expected=np.inf), (33,)),
            SpecialInput(
                "NaN as its first element", make_largest_case_maker(np.nan, expected=np.nan), (1, 32, 2000)
            ),
            SpecialInput(
                "NaN as its last element",
                make_largest_case_maker(np.nan, first_index=-1, expected=np.nan),
                (31, 2000),
            ),
            SpecialInput(
                "NaN before ∞",
                make_largest_case_maker(np.nan, np.inf, first_index=7, expected=np.nan),
                (64, 1500),
            ),
            SpecialInput(
                "NaN after −∞",
                make_largest_case_maker(-np.inf, np.nan, first_index=7, expected=np.nan),
                (64, 1500),
            ),
            SpecialInput(
                "NaN below 0", make_largest_case_maker(-np.nan, np.nan, first_index=3, expected=np.nan), (64,)
            ),
            SpecialInput("NaN throughout", make_uniform_case_maker(np.nan), (40,)),
        ),
        budgets=(
            Budget(
                "launches",
                "Map and reduce in one kernel, so that the absolute values are not stored.",
                max_count=1,
            ),
            Budget(
                "waits", "Leave the result on the device, so that the host does not wait for it.", max_count=0
            ),
            Budget("copies", "Nothing has to be copied.", max_count=0),
        ),
        advice=(
            (
                "has no identity",
                "For an empty array, the result must be 0. Choose an identity for the reduction.",
            ),
            ("zero-size", "For an empty array, the result must be 0. Choose an identity for the reduction."),
        ),
        praise="the kernel needs one pass, and is right for empty arrays and for NaN.",
    ),
    KernelExercise(
        "12-softmax",
        "Scale, bias and softmax in one kernel",
        kernel="softmax",
        parameters="const float* x, const float* bias, float* y, float scale, int rows, int cols",
        forbids_double_writes=True,
        case=draw_softmax_case,
        reference="softmax_fused.cu",
        naive="softmax_passes.cu",
        level="stretch",
        sizes=_draw_matrix_sizes,
        table=(
            SpecialInput("a scale below 0", make_softmax_case_maker(-1, 100, 4), ((5, 70), (2, 1300))),
            SpecialInput("a scale of 0", make_softmax_case_maker(0, 100, 30), ((3, 200),)),
            SpecialInput("biases of hundreds", make_softmax_case_maker(0.5, 3, 300), ((5, 70), (2, 1300))),
            SpecialInput(
                "scores of thousands on both sides", make_softmax_case_maker(1, 5000, 4), ((5, 33), (2, 700))
            ),
            SpecialInput("rows of equal scores", make_softmax_level_case, ((5, 64), (5, 31))),
            SpecialInput("a long row", draw_softmax_case, ((1, 11_000),)),
            SpecialInput(
                "one score far above all others", make_softmax_steep_case, ((6, 40), (5, 900), (2, 2))
            ),
        ),
        blocks=draw.draw_warp_blocks,
        budgets=(
            Budget(
                "load_sectors",
                "Read each score once: keep the row in shared memory until its sum is known.",
                max_reference_factor=1.1,
            ),
        ),
        measured_launch=MeasuredLaunch((24, 700), (128, 1, 1)),
        advice=(
            Advice(
                advice.match_all(advice.is_out_of_bounds, advice.is_fault("out of bounds", "x")),
                "A row has cols elements, which can be more or fewer than the threads of the block.",
            ),
            Advice(
                advice.is_out_of_bounds,
                "A row has cols elements, and its array in shared memory must have as many.",
            ),
            Advice(advice.is_written_twice, "Each element must be written by only one thread."),
            Advice(advice.is_hazard("RAW", "WAR", "WAW"), _SHARED_MEMORY_ADVICE),
            Advice(
                _make_matcher(_compute_unscaled_softmax),
                "This is the softmax of x. Apply scale and bias first.",
            ),
            Advice(
                _is_exponential_overflow, "expf overflows from 89 on. Subtract the row's largest score first."
            ),
            Advice(
                advice.is_partly_unwritten,
                "Some elements were never written. A row can be longer than the block.",
            ),
            Advice(
                advice.is_not_finite,
                "Is the row complete before it is read? All threads of the block must subtract the same "
                "largest score and divide by the same sum, after a barrier.",
            ),
            Advice(
                _has_row_sums_of_one,
                "The row adds up to 1, but with other weights. A score is x * scale + bias, with the bias "
                "of its own column.",
            ),
            Advice(
                lambda m: m.actual_values is not None,
                "The elements of each row must add up to 1. Is the sum that of all threads of the block?",
            ),
        ),
        praise="each score is read once and written once, because the block keeps the row until it is "
        "complete.",
    ),
    PythonExercise("12-guards", "A cache with guards", judge_cached),
    PythonExercise("12-fuses", "Which steps share a kernel?", judge_kernels),
)
