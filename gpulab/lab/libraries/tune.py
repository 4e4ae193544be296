"""``gl.tune``: choose the fastest of several functions that compute the same result."""

from __future__ import annotations

import json
import statistics
from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np

from gpulab import session
from gpulab.lab._base import PicturedResult
from gpulab.views.tables.libraries import TuningTable
from gpulab.words import count, number
from virtualgpu.errors import GpulabError
from virtualgpu.records import Provenance
from virtualgpu.records.libraries import Candidate, Choice, Tuning

CandidateFunction = Callable[..., Any]
FORMAT = "gpulab-tuning"
_MAX_RELATIVE_ERROR = {"float16": 2e-2, "float32": 1e-4, "complex64": 1e-4}  # relative to the largest element


def tune(
    candidates: Mapping[str, CandidateFunction] | Iterable[CandidateFunction],
    *args: Any,
    reference: CandidateFunction | None = None,
    check: Callable[..., bool] | None = None,
    warmup: int = 2,
    repeats: int = 20,
    max_ms: float = 30.0,
    tolerance: float | None = None,
) -> Tuner:
    """Measure functions that compute the same result, and use the fastest one for arguments of each shape and
    dtype.

    PyTorch's TunableOp selects the fastest implementation of a matrix multiplication in the same way. Here
    the code is short enough to read. It compares the results first, and then the times.

    Parameters
    ----------
    candidates
        A dictionary of names and functions, or a list of functions, all with the same arguments. A candidate
        returns one or several arrays, or changes its arguments.
    args
        Arguments for which to choose immediately. By default, the first call of the result chooses.
    reference
        A function that computes the correct result; the first candidate by default.
    check
        ``check(found, wanted)`` returns whether a result is correct. By default, no element may differ by
        more than `tolerance` times the largest element. Integers must be equal.
    warmup, repeats
        The number of calls of each candidate before the timed calls, and the maximum number of timed calls.
    max_ms
        The maximum total time of a candidate's timed calls, in milliseconds. A slow candidate is called less
        often, but at least once.
    tolerance
        The allowed relative error: 0.02 for float16, 1e-4 for float32 and 1e-10 for float64 by default.

    Returns
    -------
    Tuner
        A callable: ``tuned(*args)`` calls the best candidate for arguments of this kind, which the first call
        chooses. It is displayed as a table of the choices; ``.record`` holds them
        (`virtualgpu.records.libraries`).

    Raises
    ------
    GpulabError
        If no candidate returns a correct result.
    TypeError
        If a candidate is not a function, or there is no candidate.
    ValueError
        If `repeats` or `max_ms` is not positive, or `warmup` negative.

    Notes
    -----
    A choice is stored under a key: the device, the versions of CUDA and of the array library, and for each
    argument its dtype, shape and layout, or the type and value of a number. If a property were missing from
    the key, a choice could be used where another candidate is faster.

    Each candidate gets its own copies of the arguments. Two events around each call measure its time, and the
    median is used. Warm-up calls come first, because the first call compiles and fills caches. A candidate
    with a wrong result is not timed. Times are measured on a real GPU, and modelled on a virtual one.

    Examples
    --------
    >>> tuned = gl.tune({"at once": lambda x: x.sum(), "by rows": lambda x: x.sum(axis=1).sum()})
    >>> tuned(cp.ones((512, 512), cp.float32))
    """
    functions = candidates if isinstance(candidates, Mapping) else _name_functions(candidates)
    if not functions or not all(map(callable, functions.values())):
        raise TypeError("gl.tune needs a dictionary of functions, as in gl.tune({'name': function, ...}).")
    if repeats < 1 or max_ms <= 0 or warmup < 0:
        raise ValueError("`repeats` and `max_ms` must be positive, and `warmup` must not be negative.")
    tuner = Tuner(dict(functions), reference or next(iter(functions.values())), check, tolerance)
    tuner.warmup = warmup
    tuner.repeats = repeats
    tuner.max_ms = max_ms
    if args:
        tuner.choose(*args)
    return tuner


class Tuner(PicturedResult):
    """A callable that runs the fastest candidate for its arguments. The first call with arguments of a new
    shape or dtype measures the candidates and selects one.
    """

    warmup: int
    repeats: int
    max_ms: float

    def __init__(
        self,
        candidate_functions: dict[str, CandidateFunction],
        reference: CandidateFunction,
        check_results: Any,
        tolerance: float | None,
    ) -> None:
        self._functions = candidate_functions
        self._reference = reference
        self._check_results = check_results
        self._tolerance = tolerance
        self._choices: dict[tuple[str, ...], Choice] = {}

    def __call__(self, *args: Any) -> Any:
        """Call the best candidate for these arguments."""
        return self._functions[self.choose(*args).best](*args)

    def choose(self, *args: Any) -> Choice:
        """Return the selected candidate for these arguments. If no candidate has been selected, measure and
        select one first.
        """
        arguments_key = make_key(args)
        if arguments_key not in self._choices:
            self._choices[arguments_key] = self._choose_candidate(arguments_key, args)
        return self._choices[arguments_key]

    def _choose_candidate(self, key: tuple[str, ...], args: tuple[Any, ...]) -> Choice:
        expected_arrays = _compute_results(self._reference, args)
        candidates = [
            self._measure_candidate(name, function, args, expected_arrays)
            for name, function in self._functions.items()
        ]
        correct_candidates = [candidate for candidate in candidates if candidate.times_ns]
        if not correct_candidates:
            refusal_reasons = [f"{candidate.name}: {candidate.why}" for candidate in candidates]
            raise GpulabError(f"No candidate has a correct result: {'; '.join(refusal_reasons)}.")
        best_candidate = min(correct_candidates, key=lambda candidate: statistics.median(candidate.times_ns))
        stopped_names = [
            candidate.name for candidate in correct_candidates if len(candidate.times_ns) < self.repeats
        ]
        limit_note = (
            f"Because of max_ms={number(self.max_ms)}, fewer than {self.repeats} calls were timed for "
            f"{', '.join(stopped_names)}."
            if stopped_names
            else ""
        )
        return Choice(
            provenance=session.backend().provenance,
            key=key,
            candidates=tuple(candidates),
            best=best_candidate.name,
            note=limit_note,
        )

    def _measure_candidate(
        self, name: str, function: CandidateFunction, args: tuple[Any, ...], expected: list[Any]
    ) -> Candidate:
        """Check the result of a candidate, and time the candidate if the result is correct."""
        try:
            results = _compute_results(function, args)
        except Exception as error:  # whatever a candidate does, the others are tried
            return Candidate(name=name, why=f"failed: {type(error).__name__}: {error}")
        failure_text = self._describe_error(results, expected)
        return Candidate(
            name=name,
            why=failure_text,
            times_ns=() if failure_text else self._measure_ns(function, copy_arguments(args)),
        )

    def _describe_error(self, results: list[Any], expected: list[Any]) -> str:
        """Return a description of the difference from the expected results, or an empty string."""
        if self._check_results is not None:
            array_pair = [arrays[0] if len(arrays) == 1 else tuple(arrays) for arrays in (results, expected)]
            return "" if self._check_results(*array_pair) else "wrong: the check rejects it"
        if len(results) != len(expected):
            return f"wrong: {count(len(results), 'array')} instead of {len(expected)}"
        for result, expected_array in zip(results, expected, strict=True):
            if result.shape != expected_array.shape or result.dtype != expected_array.dtype:
                return (
                    f"wrong: {result.dtype} {result.shape} instead of {expected_array.dtype} "
                    f"{expected_array.shape}"
                )
            if wrong_count := self._count_wrong_elements(result.get(), expected_array.get()):
                return f"wrong in {number(wrong_count)} of {count(result.size, 'element')}"
        return ""

    def _count_wrong_elements(self, result: Any, expected: Any) -> int:
        """Return the number of elements whose error is larger than the tolerance."""
        if expected.dtype.kind not in "fc":
            return int(np.count_nonzero(result != expected))
        max_relative_error = (
            _MAX_RELATIVE_ERROR.get(expected.dtype.name, 1e-10)
            if self._tolerance is None
            else self._tolerance
        )
        largest_value = float(np.abs(expected[np.isfinite(expected)]).max(initial=0))
        with np.errstate(all="ignore"):
            return int(
                np.count_nonzero(
                    ~np.isclose(result, expected, 0, max_relative_error * largest_value, equal_nan=True)
                )
            )

    def _measure_ns(self, function: CandidateFunction, args: list[Any]) -> tuple[int, ...]:
        """Return the times of single calls in ns; `repeats` and `max_ms` limit the number of calls."""
        cp = session.cp()
        stream = cp.cuda.get_current_stream()
        times_ns = list[int]()
        for _ in range(self.warmup):
            function(*args)
        stream.synchronize()
        while len(times_ns) < self.repeats and (
            not times_ns or sum(times_ns) + times_ns[-1] <= self.max_ms * 1e6
        ):
            begin_event = cp.cuda.Event()
            end_event = cp.cuda.Event()
            begin_event.record(stream)
            function(*args)
            end_event.record(stream)
            end_event.synchronize()
            times_ns.append(round(cp.cuda.get_elapsed_time(begin_event, end_event) * 1e6))
        return tuple(times_ns)

    @property
    def record(self) -> Tuning:
        """All choices of candidates so far."""
        return Tuning(provenance=session.backend().provenance, choices=tuple(self._choices.values()))

    def write(self, path: str | Path) -> Path:
        """Save the choices to a file, which the method `read` can load in another process."""
        choices_document = {
            "format": FORMAT,
            "version": 1,
            "choices": [asdict(choice) for choice in self._choices.values()],
        }
        Path(path).write_text(json.dumps(choices_document), encoding="utf-8")
        return Path(path)

    def read(self, path: str | Path) -> None:
        """Read choices from a file. A choice is ignored if this tuner does not contain its fastest candidate.
        The times of the choices are marked as *recorded*.
        """
        choices_document = json.loads(Path(path).read_text(encoding="utf-8"))
        if not isinstance(choices_document, dict) or choices_document.get("format") != FORMAT:
            raise GpulabError(f"{Path(path).name} has no choices saved by gl.tune.")
        for choice_data in choices_document["choices"]:
            choice_data["provenance"] = Provenance(**{**choice_data["provenance"], "source": "recorded"})
            choice_data["candidates"] = tuple(
                Candidate(**{**candidate, "times_ns": tuple(candidate["times_ns"])})
                for candidate in choice_data["candidates"]
            )
            choice = Choice(**{**choice_data, "key": tuple(choice_data["key"])})
            if choice.best in self._functions:
                self._choices.setdefault(choice.key, choice)

    def _picture(self) -> TuningTable:
        return TuningTable.of(self.record)

    def __repr__(self) -> str:
        best_names = ", ".join(dict.fromkeys(choice.best for choice in self._choices.values())) or "none yet"
        key_text = count(len(self._choices), "key")
        count_text = count(len(self._functions), "candidate")
        return (
            f"Tuner of {count_text}, {key_text} so far: {best_names}; "
            f"{self.record.provenance.of_results_and_times}."
        )


def make_key(args: Iterable[Any]) -> tuple[str, ...]:
    """Return the key of a tuning choice. It contains the device, the versions, and the dtype, shape and
    layout of each argument.
    """
    cp = session.cp()
    properties = cp.cuda.runtime.getDeviceProperties(cp.cuda.Device().id)
    device_name = session.backend().provenance.device
    capability = f"sm_{properties['major']}{properties['minor']}, {properties['multiProcessorCount']} SMs"
    versions = f"CuPy {cp.__version__}, CUDA {cp.cuda.runtime.runtimeGetVersion()}"
    return f"{device_name} ({capability})", versions, *map(_make_argument_key, args)


def _make_argument_key(value: Any) -> str:
    if not isinstance(value, session.cp().ndarray):
        return f"{type(value).__name__} {value!r}"
    memory_order = (
        "C" if value.flags.c_contiguous else "F" if value.flags.f_contiguous else f"strides {value.strides}"
    )
    return f"{value.dtype} {'×'.join(map(str, value.shape)) or 'scalar'} {memory_order}"


def copy_arguments(args: Iterable[Any]) -> list[Any]:
    """Return the arguments with copies of their arrays. The copies keep the layout, and each array is copied
    once.
    """
    array_type = session.cp().ndarray
    copy_of_array = dict[int, Any]()
    for argument in args:
        if isinstance(argument, array_type) and id(argument) not in copy_of_array:
            copy_of_array[id(argument)] = argument.copy(order="K")
    return [copy_of_array.get(id(argument), argument) for argument in args]


def _compute_results(function: CandidateFunction, args: tuple[Any, ...]) -> list[Any]:
    """Return copies of the arrays that a candidate returns, or of its arguments if it returns nothing."""
    copies = copy_arguments(args)
    array_type = session.cp().ndarray
    result_value = function(*copies)
    result_value = (
        [result for result in copies if isinstance(result, array_type)]
        if result_value is None
        else result_value
    )
    results = result_value if isinstance(result_value, tuple | list) else [result_value]
    for result in results:
        if not isinstance(result, array_type):
            raise TypeError(
                f"The candidate returned {type(result).__name__}, but it must return one or "
                "more device arrays, or change its arguments."
            )
    return [result.copy() for result in results]


def _name_functions(functions: Iterable[CandidateFunction]) -> dict[str, CandidateFunction]:
    """Return a dictionary of functions by name; a number distinguishes functions with equal names."""
    function_of_name: dict[str, CandidateFunction] = {}
    for function in functions:
        name = getattr(function, "__name__", type(function).__name__)
        function_of_name[f"{name} ({len(function_of_name) + 1})" if name in function_of_name else name] = (
            function
        )
    return function_of_name
