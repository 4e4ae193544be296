"""Exercises of notebook 13 about libraries."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import cycle
from typing import Any

import numpy as np

from gpulab_course.content.n13_libraries.libraries.blas import gemm
from gpulab_course.teach.judge import Answer, NotYet, PythonExercise

# 13-columns

Shape = tuple[int, int, int]
_GEMM_PARAMETERS = ("trans_a", "trans_b", "m", "n", "k", "a", "lda", "b", "ldb", "c", "ldc")
_PRODUCT_CALL = "product(gemm, a, b, c, m, n, k, lda, ldb, ldc)"


def run_product(
    product: Any, matrices: Sequence[Any], shape: Shape, leading_dimensions: Shape
) -> tuple[Any, list[Any]]:
    """Run the answer in its own process. Return the matrices after the call, and the calls of the library
    function that the answer made.
    """
    a, b, c = (np.array(matrix) for matrix in matrices)
    arrays: dict[str, Any] = {"a": a, "b": b, "c": c}
    gemm_calls: list[Any] = []

    def record_gemm(*args: Any, **kwargs: Any) -> None:
        arguments: dict[str, Any] = {**dict(zip(_GEMM_PARAMETERS, args, strict=False)), **kwargs}
        for parameter_name in "abc":
            memory = arguments.get(parameter_name)
            arguments[parameter_name] = "", 0, 0
            for name, array in arrays.items():
                if isinstance(memory, np.ndarray) and np.shares_memory(array, memory):
                    element_offset = (memory.ctypes.data - array.ctypes.data) // array.itemsize
                    arguments[parameter_name] = name, element_offset, element_offset + memory.size
        gemm_calls.append([arguments.get(name) for name in _GEMM_PARAMETERS])
        gemm(*args, **kwargs)

    product(record_gemm, a, b, c, *shape, *leading_dimensions)
    inputs_unchanged = np.array_equal(a, matrices[0]) and np.array_equal(b, matrices[1])
    return [c, inputs_unchanged], gemm_calls


def judge_product(answer: Answer) -> str:
    """Judge the learner's function `product` with matrices of several shapes, with and without padding after
    rows.
    """
    for shape, leading_dimensions in _draw_products(answer.rng):
        m, n, k = shape
        lda, ldb, ldc = leading_dimensions
        matrices = [
            _draw_memory(answer.rng, rows, leading_dimension)
            for rows, leading_dimension in ((m, lda), (k, ldb), (m, ldc))
        ]
        a, b, c = (
            matrix.reshape(-1, leading_dimension)
            for matrix, leading_dimension in zip(matrices, leading_dimensions, strict=True)
        )
        expected = c.copy()
        expected[:, :n] = a[:, :k] @ b[:, :n]
        size_text = f"m={m}, n={n}, k={k}, lda={lda}, ldb={ldb}, ldc={ldc}"
        call_text = _PRODUCT_CALL.replace("m, n, k, lda, ldb, ldc", size_text)
        (memory, inputs_unchanged), gemm_calls = answer.ask(
            run_product, matrices, shape, leading_dimensions, shown=call_text
        )
        if not gemm_calls:
            raise NotYet(f"{call_text} never called gemm. Let the library compute the product.")
        if any(argument[0] == "" for call in gemm_calls for argument in call[5:10:2]):
            raise NotYet(
                f"{call_text} passed memory to gemm that is neither a nor b nor c. No copy is needed: read "
                "by columns, the memory of each matrix is its transpose."
            )
        if not inputs_unchanged:
            raise NotYet(f"{call_text} changed a or b, which are only read.")
        if len(gemm_calls) > 1:
            raise NotYet(
                f"{call_text} called gemm {len(gemm_calls)} times, but one call computes the whole product."
            )
        result = np.asarray(memory).reshape(-1, ldc)
        if not np.array_equal(result, expected):
            raise NotYet(f"{call_text} {_explain_wrong_product(result, expected, a[:, :k], b[:, :n], shape)}")
        replay_arrays = dict(zip("abc", (np.array(matrix) for matrix in matrices), strict=True))
        args: Any = [
            replay_arrays[argument[0]][argument[1] : argument[2]] if isinstance(argument, tuple) else argument
            for argument in gemm_calls[0]
        ]
        gemm(*args)
        if not np.array_equal(replay_arrays["c"].reshape(-1, ldc), expected):
            raise NotYet(
                f"{call_text}: gemm did not compute the contents of c. Let the library compute the product."
            )
    return (
        "the library computes the product in one call, without a copy, for every shape and leading dimension."
    )


def _explain_wrong_product(result: Any, expected: Any, a: Any, b: Any, shape: Shape) -> str:
    """Return the feedback for a wrong product."""
    m, n, k = shape
    if not np.array_equal(result[:, n:], expected[:, n:]):
        return "wrote into the space after the rows of c: rows start ldc elements apart."
    elements = result[:, :n].ravel()
    product = a @ b
    if m == n and np.array_equal(result[:, :n], product.T):
        return "left the transpose of a @ b in c: gemm writes columns, which are the rows of c."
    if m == n == k and np.array_equal(result[:, :n], b @ a):
        return "left b @ a in c: the library reads both as transposes, so exchange the two factors."
    if np.isin(elements, product.ravel()).all() and m != n:
        return (
            "left the elements of a @ b at other positions: is m or n the number of rows of the matrix that "
            "gemm writes?"
        )
    return "did not leave a @ b in c: gemm reads a as a matrix of k rows and m columns, its transpose."


def _draw_products(rng: np.random.Generator) -> list[tuple[Shape, Shape]]:
    """Draw the shapes of matrices and their leading dimensions."""
    square_side = int(rng.integers(2, 7))
    shape_pairs: list[tuple[Shape, Shape]] = [
        ((square_side, square_side, square_side), (square_side, square_side, square_side))
    ]
    random_shapes = [tuple(int(x) for x in rng.permutation(np.arange(2, 12))[:3]) for _ in range(4)]
    product_shapes = [
        *random_shapes,
        (1, random_shapes[0][0], random_shapes[0][1]),
        (random_shapes[1][0], 1, random_shapes[1][1]),
        (random_shapes[2][0], random_shapes[2][1], 1),
    ]
    for m, n, k in (
        *product_shapes,
        (square_side, square_side, square_side + 1),
        (square_side, square_side, square_side),
    ):
        shape_pairs.append(((m, n, k), (k, n, n)))
        leading_padding = [int(x) for x in rng.integers(1, 6, 3)]
        shape_pairs.append(
            ((m, n, k), (k + leading_padding[0], n + leading_padding[1], n + leading_padding[2]))
        )
    return shape_pairs


def _draw_memory(rng: np.random.Generator, rows: int, leading_dimension: int) -> Any:
    """Draw integers for the memory of a matrix, so that sums are exact in any order."""
    return rng.integers(-40, 40, rows * leading_dimension).astype(np.float32)


# 13-tuner


@dataclass(frozen=True)
class _Device:
    id: int


@dataclass(frozen=True, eq=False)
class ArrayDescription:
    """The dtype, shape and device of an array, which can affect the choice of a tuner."""

    dtype: np.dtype[Any]
    shape: tuple[int, ...]
    device: _Device

    @property
    def ndim(self) -> int:
        return len(self.shape)

    @property
    def size(self) -> int:
        return int(np.prod(self.shape))


ArrayKind = tuple[str, tuple[int, ...], int]  # dtype, shape, device
# The first call's µs, later calls' µs, factors of delay, and the mistake.
CandidateBehaviour = tuple[float, float, tuple[float, ...], str]
_CANDIDATE_NAMES = ("blocked", "naive", "split k", "tiles of 16", "tiles of 32", "vectorized")
_EXPECTED_RESULT = (1.0, -2.5, 3.25, 0.125, 12.0)
_WRONG_RESULTS = {
    "last": (*_EXPECTED_RESULT[:-1], 12.5),
    "first": (1.5, *_EXPECTED_RESULT[1:]),
    "nan": (*_EXPECTED_RESULT[:2], float("nan"), *_EXPECTED_RESULT[3:]),
    "scaled": _EXPECTED_RESULT,  # every element is scaled by 1 %
    "short": _EXPECTED_RESULT[:-1],
    "exchanged": (_EXPECTED_RESULT[1], _EXPECTED_RESULT[0], *_EXPECTED_RESULT[2:]),
}
_MAX_TIMINGS = 60  # of a candidate for one kind
_TUNER_CALL = "tuner(candidates, reference, timed)"


class CandidateModel:
    """A model of several implementations of one function, with a result and a time for each kind of array.
    The model counts how often each implementation is timed.
    """

    def __init__(
        self, kinds_of_calls: Sequence[ArrayKind], behaviour: dict[str, dict[ArrayKind, CandidateBehaviour]]
    ) -> None:
        self._index_of_kind = {kind: index for index, kind in enumerate(dict.fromkeys(kinds_of_calls))}
        self._behaviour = behaviour
        self._timing_counts: dict[tuple[str, ArrayKind], int] = {}
        self.timings_of_calls: list[dict[str, int]] = []

    def __call__(self, request_kind: str, name: str, array_kind: ArrayKind) -> Any:
        """Handle a request: begin a call, run a candidate or the reference, or time a candidate."""
        if request_kind == "begins":
            self.timings_of_calls.append({})
            return None
        if name not in self._behaviour and request_kind != "reference":
            raise ValueError(f"There is no candidate {name!r}.")
        if array_kind not in self._index_of_kind:
            raise ValueError(
                f"There is no array of {array_kind[0]} {array_kind[1]} on device {array_kind[2]} here."
            )
        index = self._index_of_kind[array_kind]
        if request_kind == "reference":
            return [value + index for value in _EXPECTED_RESULT]
        cold_us, warm_us, delay_factors, mistake = self._behaviour[name][array_kind]
        if request_kind == "runs":
            # As if the sums had another order.
            error_factor = 1 + 1e-7 * (list(self._behaviour).index(name) + 1)
            error_factor *= 1.01 if mistake == "scaled" else 1
            return [error_factor * (value + index) for value in _WRONG_RESULTS.get(mistake, _EXPECTED_RESULT)]
        call_index = self._timing_counts.get((name, array_kind), 0)
        self._timing_counts[name, array_kind] = call_index + 1
        self.timings_of_calls[-1][name] = self.timings_of_calls[-1].get(name, 0) + 1
        return cold_us if call_index == 0 else warm_us * delay_factors[(call_index - 1) % len(delay_factors)]


def call_tuner(
    tuner: Any,
    send_request: Callable[..., Any],
    kinds_of_calls: Sequence[ArrayKind],
    candidate_names: Sequence[str],
) -> list[str]:
    """Run the answer in its own process, and return its choices. The answer creates a second tuner for the
    last choice.
    """

    def find_kind(x: Any) -> ArrayKind:
        return np.dtype(x.dtype).name, tuple(map(int, x.shape)), int(x.device.id)

    def make_candidate(name: str) -> Any:
        return lambda x: send_request("runs", name, find_kind(x))

    def make_chooser() -> Any:
        candidates = {name: make_candidate(name) for name in candidate_names}
        choose = tuner(
            candidates,
            lambda x: send_request("reference", "", find_kind(x)),
            lambda name, x: send_request("timed", str(name), find_kind(x)),
        )
        if not callable(choose):
            raise NotYet(f"{_TUNER_CALL} should return a function, choose(x).")
        return choose

    def record_choice(choose: Any, array_kind: ArrayKind) -> str:
        send_request("begins", "", array_kind)
        name = choose(ArrayDescription(np.dtype(array_kind[0]), array_kind[1], _Device(array_kind[2])))
        return name if isinstance(name, str) else repr(name)

    choose = make_chooser()
    return [
        *(record_choice(choose, array_kind) for array_kind in kinds_of_calls),
        record_choice(make_chooser(), kinds_of_calls[0]),
    ]


def judge_tuner(answer: Answer) -> str:
    """Judge a tuner with kinds of arrays that have different fastest candidates, and with repeated kinds."""
    rng = answer.rng
    array_kinds = _draw_kinds(rng)
    behaviour, best_names = _draw_behaviour(rng, array_kinds)
    kinds_of_calls = [
        *array_kinds,
        *(array_kinds[int(index)] for index in rng.integers(0, len(array_kinds), 10)),
    ]
    candidates = CandidateModel(kinds_of_calls, behaviour)
    choices = answer.ask(call_tuner, kinds_of_calls, list(behaviour), shown=_TUNER_CALL, back=candidates)
    earlier_kinds: list[ArrayKind] = []
    for array_kind, choice, timings in zip(
        kinds_of_calls, choices[:-1], candidates.timings_of_calls[:-1], strict=True
    ):
        is_new = array_kind not in earlier_kinds
        call_text = f"for {_make_kind_text(array_kind)} choose(x)"
        if choice not in behaviour:
            raise NotYet(f"{call_text} returns {choice}, but it should return the name of a candidate.")
        if choice != best_names[array_kind] or (is_new and not timings):
            raise NotYet(
                f"{call_text} is {choice!r}: "
                f"{_explain_wrong_choice(array_kind, choice, timings, earlier_kinds, behaviour, best_names)}"
            )
        if not is_new and timings:
            raise NotYet(
                f"{call_text} timed candidates again, although it had already chosen a "
                "candidate for such an array. Keep this choice."
            )
        if is_new and set(timings) < {name for name in behaviour if not behaviour[name][array_kind][3]}:
            raise NotYet(
                f"{call_text} did not time every candidate whose result is right, so it "
                "can miss a faster one."
            )
        if max(timings.values(), default=0) > _MAX_TIMINGS:
            raise NotYet(
                f"{call_text} timed one candidate {max(timings.values())} times. The median of a few calls "
                "is enough."
            )
        earlier_kinds.append(array_kind)
    if not candidates.timings_of_calls[-1]:
        raise NotYet(f"{_TUNER_CALL} shares choices between tuners. Each tuner must have its own choices.")
    return "it checks results, takes medians of warm calls, and has one choice per device, dtype and shape."


def _explain_wrong_choice(
    array_kind: ArrayKind,
    choice: str,
    timings: dict[str, int],
    earlier_kinds: Sequence[ArrayKind],
    behaviour: dict[str, dict[ArrayKind, CandidateBehaviour]],
    best_names: dict[ArrayKind, str],
) -> str:
    """Return the feedback for a wrong choice of a candidate."""
    if not timings and not earlier_kinds:
        return "it was chosen without timing a candidate. Time each one whose result is right."
    if not timings and array_kind not in earlier_kinds:
        for earlier_kind in reversed(earlier_kinds):
            changed_fields = [
                field_name
                for field_name, earlier_value, field_value in zip(
                    ("dtype", "shape", "device"), earlier_kind, array_kind, strict=True
                )
                if earlier_value != field_value
            ]
            if best_names[earlier_kind] == choice and len(changed_fields) == 1:
                return (
                    f"it is the choice for {_make_kind_text(earlier_kind)}. The {changed_fields[0]} "
                    "belongs in the key."
                )
        return "it was chosen for another kind of array. Device, dtype and shape belong in the key."
    mistake = behaviour[choice][array_kind][3]
    if mistake == "nan":
        return (
            "it is fast, but one element is NaN. No comparison with NaN is true, so test whether elements "
            "are close."
        )
    if mistake:
        return (
            "it is fast, but wrong. Before it is timed, compare its whole result with the reference, for "
            "each kind of array."
        )
    max_timings = max(timings.values(), default=0)
    if max_timings <= 1:
        return "it was chosen by its first call. The first call compiles, so call once before you time."
    if max_timings == 2:
        return (
            "it was chosen by one call after the first. Any single call can be disturbed, so take the "
            "median of several."
        )
    advice = "Warm up first, then take the median, because a disturbed call spoils a mean."
    return f"it is not the fastest; {best_names[array_kind]!r} is. {advice}"


def _draw_kinds(rng: np.random.Generator) -> list[ArrayKind]:
    """Draw kinds of arrays, each of which differs from one base kind."""
    rows, columns = (64 * int(n) for n in rng.permutation(np.arange(1, 30))[:2])
    base_kind: ArrayKind = ("float32", (rows, columns), 0)
    neighbour_kinds: list[ArrayKind] = [
        ("float16", (rows, columns), 0),
        ("float64", (rows, columns), 0),
        ("float32", (rows, columns), 1),
        ("float32", (columns, rows), 0),
        ("float32", (rows, 2 * columns), 0),
        ("float32", (rows * columns,), 0),
        ("float16", (rows, columns), 1),
        ("float32", (1, rows, columns), 0),
        ("float32", (rows + 1, columns), 0),
        ("float32", (rows, columns - 1), 0),
    ]
    neighbour_order = rng.permutation(len(neighbour_kinds))
    return [base_kind, *(neighbour_kinds[int(index)] for index in neighbour_order)]


def _draw_behaviour(
    rng: np.random.Generator, array_kinds: Sequence[ArrayKind]
) -> tuple[dict[str, dict[ArrayKind, CandidateBehaviour]], dict[ArrayKind, str]]:
    """Draw each candidate's result and time for each kind of array, with different best candidates."""
    names = [str(name) for name in rng.permutation(_CANDIDATE_NAMES)[:4]]
    mistake_names = cycle(str(name) for name in rng.permutation(list(_WRONG_RESULTS)))
    behaviour: dict[str, dict[ArrayKind, CandidateBehaviour]] = {name: {} for name in names}
    best_names: dict[ArrayKind, str] = {}
    for index, array_kind in enumerate(array_kinds):
        ranking = [names[(index + int(n)) % 4] for n in (0, *rng.permutation([1, 2, 3]))]
        best_names[array_kind] = ranking[0]
        mistake_of_candidate = dict.fromkeys(names, "")
        if index % 3 != 2:
            mistake_of_candidate[ranking[1]] = next(mistake_names)
        for rank, name in enumerate(ranking):
            warm_us = float(rng.uniform(20, 400)) if rank == 0 else 0.0
            if rank:
                fastest_us = behaviour[ranking[0]][array_kind][1]
                warm_us = fastest_us * (0.5 if mistake_of_candidate[name] else 1.1 + 0.2 * rank)
            # The fastest candidate takes longest to compile.
            cold_us = float(40_000 * (1 - 0.2 * rank) * rng.uniform(0.95, 1.05))
            # Whichever single call of the fastest candidate is used, for some kinds it is a disturbed call.
            behaviour[name][array_kind] = (
                cold_us,
                warm_us,
                _draw_delays(rng, index + rank, 3 if rank else 15),
                mistake_of_candidate[name],
            )
    return behaviour, best_names


def _draw_delays(rng: np.random.Generator, phase: int, min_factor: float) -> tuple[float, ...]:
    """Return factors for the durations of four calls, of which one is disturbed and takes longer.

    The position of the disturbed call rotates, so that each call is disturbed for some kinds. The fastest
    candidate has the largest delay.
    """
    delay_factors: list[float] = []
    for _ in range(20):
        delay_group = rng.uniform(0.99, 1.01, 4)
        delay_group[phase // 4 % 2] *= rng.uniform(min_factor, 2 * min_factor)
        delay_factors += [float(delay_factor) for delay_factor in delay_group]
    return tuple(np.roll(delay_factors, phase % 4).tolist())


def _make_kind_text(array_kind: ArrayKind) -> str:
    """Return a kind of array as text."""
    return f"{array_kind[0]} {'×'.join(map(str, array_kind[1]))} on device {array_kind[2]}"


EXERCISES = (
    PythonExercise("13-columns", "Row-major through a column-major library", judge_product),
    PythonExercise("13-tuner", "A tuner with a cache", judge_tuner),
)
