"""``gl.tune``: results are checked before timing, with one choice per key, time limits and saved choices."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import gpulab as gl
from gpulab import session
from gpulab.lab.libraries import tune
from virtualgpu.errors import GpulabError

cp: Any = None


@pytest.fixture(autouse=True)
def on_a_virtual_gpu() -> Iterator[None]:
    global cp
    gl.use_device("virtual:T4")
    cp = gl.cp
    yield
    cp = None


def at_once(x: Any) -> Any:
    return x.sum(axis=0)


def two_steps(x: Any) -> Any:
    half = len(x) // 2
    return x[:half].sum(axis=0) + x[half:].sum(axis=0)


def first_row(x: Any) -> Any:
    return x[0].copy()


def matrix(rows: int = 64, columns: int = 32, dtype: str = "float32") -> Any:
    return cp.asarray(np.random.default_rng(rows).standard_normal((rows, columns)).astype(dtype))


def test_the_fastest_correct_candidate_is_chosen_and_called() -> None:
    x = matrix()
    tuned = gl.tune({"two steps": two_steps, "first row": first_row, "at once": at_once}, x)
    (choice,) = tuned.record.choices
    assert choice.best == "at once"
    by_name = {candidate.name: candidate for candidate in choice.candidates}
    assert by_name["first row"].why.startswith("wrong in")
    assert not by_name["first row"].times_ns
    assert by_name["at once"].median_ns < by_name["two steps"].median_ns
    assert len(by_name["at once"].times_ns) == 20
    np.testing.assert_allclose(tuned(x).get(), x.get().sum(axis=0), rtol=1e-5)
    bundle = tuned._repr_mimebundle_()
    assert bundle is not None
    assert "executed on virtual T4; times modelled" in bundle[0]["text/plain"]
    assert "<table" in bundle[0]["text/html"]


def test_tuning_runs_once_per_key() -> None:
    arrays: list[Any] = []

    def watched(x: Any) -> Any:
        arrays.append(x)
        return x.sum(axis=0)

    tuned = gl.tune([watched], warmup=1, repeats=3)
    assert not arrays
    x = matrix()
    tuned(x)
    count = len(arrays)
    tuned(x)
    assert len(arrays) == count + 1
    for other in (matrix(65), matrix(dtype="float64"), cp.asfortranarray(x), cp.ascontiguousarray(x.T)):
        count = len(arrays)
        tuned(other)
        assert len(arrays) > count + 3
    assert len({choice.key for choice in tuned.record.choices}) == 5
    gl.use_device("virtual:H100")
    tuned(gl.cp.ones((64, 32), "float32"))
    assert len(tuned.record.choices) == 6


def test_candidates_get_copies_of_the_arguments() -> None:
    def doubles(x: Any) -> None:
        x *= 2

    def adds(x: Any) -> None:
        x += x

    x = matrix()
    before = x.get()
    tuned = gl.tune([doubles, adds], x)
    np.testing.assert_array_equal(x.get(), before)
    assert [candidate.why for candidate in tuned.record.choices[0].candidates] == ["", ""]
    tuned(x)
    np.testing.assert_array_equal(x.get(), 2 * before)


@pytest.mark.parametrize(
    ("wrong", "reason"),
    [
        (lambda x: x.sum(axis=0) * 1.01, "wrong in"),
        (lambda x: x.sum(axis=1), "float32 (64,) instead of float32 (32,)"),
        (lambda x: x.sum(axis=0).astype(cp.float64), "float64"),
        (lambda x: (x.sum(axis=0), x), "2 arrays instead of 1"),
        (lambda x: x.nothing, "AttributeError"),
        (lambda x: 42, "The candidate returned int, but it must return one or more device arrays"),
        (lambda x: x.sum(axis=0) * cp.float32(np.nan), "wrong in 32 of 32 elements"),
    ],
)
def test_a_wrong_candidate_is_not_timed_and_its_error_is_reported(wrong: Any, reason: str) -> None:
    tuned = gl.tune({"right": at_once, "other": wrong}, matrix())
    other = tuned.record.choices[0].candidates[1]
    assert reason in other.why
    assert not other.times_ns
    assert reason in tuned.describe()


def test_an_array_that_is_passed_twice_is_copied_once() -> None:
    """A candidate that changes the first argument changes the second one, too."""

    def accumulated(x: Any, y: Any) -> Any:
        x += 1
        return x + y

    x = cp.zeros(8, dtype=cp.float32)
    tuned = gl.tune([accumulated], x, x, reference=lambda x, y: 2 * (x + 1))
    assert tuned.record.choices[0].candidates[0].why == ""


def test_a_user_defined_check_and_reference_are_used() -> None:
    x = matrix()
    tuned = gl.tune([first_row], x, check=lambda a, b: a.shape == b.shape, reference=at_once)
    assert tuned.record.choices[0].best == "first_row"
    with pytest.raises(GpulabError, match="No candidate has a correct result"):
        gl.tune([first_row], x, reference=at_once)


def test_choices_are_saved_to_and_loaded_from_files(tmp_path: Path) -> None:
    x = matrix()
    tuned = gl.tune([at_once, two_steps], x)
    file = tuned.write(tmp_path / "kept.json")
    (choice,) = tuned.record.choices

    def never(x: Any) -> Any:
        raise AssertionError("it was tuned already")

    other = gl.tune({"two_steps": never, "at_once": at_once})
    other.read(str(file))
    other(x)
    (copy,) = other.record.choices
    assert (copy.best, copy.key, copy.candidates) == (choice.best, choice.key, choice.candidates)
    assert (copy.provenance.source, copy.provenance.device) == ("recorded", choice.provenance.device)
    own = tuned.record.choices
    tuned.read(file)
    assert tuned.record.choices == own, "a choice of this session is not replaced"
    unrelated = gl.tune({"another": at_once})
    unrelated.read(file)
    assert unrelated.record.choices == ()


def test_choices_of_other_versions_are_not_used_and_other_files_refused(tmp_path: Path) -> None:
    x = matrix()
    file = gl.tune([at_once], x, repeats=2).write(tmp_path / "kept.json")
    data = json.loads(file.read_text("utf-8"))
    assert (data["format"], data["version"]) == ("gpulab-tuning", 1)
    data["choices"][0]["key"][1] = "CuPy 0.1"
    file.write_text(json.dumps(data))
    tuned = gl.tune({"at_once": at_once})
    tuned.read(file)
    tuned(x)
    assert len(tuned.record.choices) == 2
    for text in ("[]", '{"format": "other", "choices": []}', '{"choices": []}', "3"):
        file.write_text(text)
        with pytest.raises(GpulabError, match=r"^kept\.json has no choices saved by gl\.tune\."):
            tuned.read(file)


@pytest.mark.parametrize("bad", [[], {}, {"one": 3}])
def test_only_functions_are_candidates(bad: Any) -> None:
    with pytest.raises(TypeError, match=r"gl\.tune needs a dictionary of functions"):
        gl.tune(bad)


def reason(result: Any, expected: Any, **options: Any) -> str:
    """Return why a result is wrong, or an empty string."""
    tuned = gl.tune(
        {"right": lambda a, b: b, "other": lambda a, b: a},
        cp.asarray(result),
        cp.asarray(expected),
        repeats=1,
        warmup=0,
        **options,
    )
    return str(tuned.record.choices[0].candidates[1].why)


@pytest.mark.parametrize(
    ("dtype", "largest", "near", "far"),
    [
        ("float16", 100.0, 1.9, 2.2),
        ("float32", 100.0, 0.0099, 0.0102),
        ("complex64", 100.0, 0.0099, 0.0102),
        ("float64", 1e6, 0.99e-4, 1.01e-4),
        ("complex128", 1e6, 0.99e-4, 1.01e-4),
        ("float32", 1e-3, 9e-8, 2e-7),
        ("float32", 0.0, 0.0, 1e-9),
    ],
)
def test_the_tolerance_is_relative_to_the_largest_element(
    dtype: str, largest: float, near: float, far: float
) -> None:
    """It is not relative to each element, because the terms of a sum can cancel out."""
    wrong = "wrong in 1 of 3 elements"
    expected = np.array([largest, 0, -largest / 2], dtype)

    def difference(size: float) -> Any:
        return expected + np.array([0, size, 0], dtype)

    assert reason(difference(near), expected) == ""
    assert reason(difference(far), expected) == wrong
    assert reason(difference(far), expected, tolerance=1) == ("" if largest else wrong)
    if near:
        assert reason(difference(near), expected, tolerance=0) == wrong


@pytest.mark.filterwarnings("error")
def test_nan_and_infinity_are_equal_to_themselves() -> None:
    nan = np.float32("nan")
    inf = np.float32("inf")
    expected = np.array([nan, inf, -inf, 1], "f4")
    assert reason(expected, expected) == ""
    assert reason(np.array([nan, inf, inf, 1], "f4"), expected) == "wrong in 1 of 4 elements"
    assert reason(np.array([1, inf, -inf, 1.001], "f4"), expected) == "wrong in 2 of 4 elements"
    assert reason(np.array([nan, nan], "f4"), np.array([nan, nan], "f4")) == ""
    assert reason(np.array([], "f4"), np.array([], "f4")) == ""
    assert reason(np.array([6e4], "f2"), np.array([-6e4], "f2")) == "wrong in 1 of 1 element"  # it overflows


def test_integers_and_booleans_are_compared_exactly() -> None:
    assert reason(np.array([10**9, 5]), np.array([10**9, 6])) == "wrong in 1 of 2 elements"
    assert reason(np.array([True, False]), np.array([True, False])) == ""
    assert reason(np.array([True, True, True]), np.array([True, False, False])) == "wrong in 2 of 3 elements"
    assert reason(np.array([1], "i4"), np.array([1], "i8")) == "wrong: int32 (1,) instead of int64 (1,)"
    assert reason(np.array([[1]]), np.array([1])) == "wrong: int64 (1, 1) instead of int64 (1,)"


def test_a_check_gets_the_results_as_they_were_returned() -> None:
    calls: list[Any] = []

    def check(result: Any, expected: Any) -> bool:
        calls.append((type(result), type(expected), result[0].shape))
        return len(calls) < 4

    def fails(x: Any) -> Any:
        raise ValueError("no")

    x = cp.ones((3, 4))
    for way in (lambda x: x, lambda x: (x, x), lambda x: [x, x[0]]):
        gl.tune([way], x, check=check, repeats=1)
    several = (tuple, tuple, (3, 4))
    assert calls == [(cp.ndarray, cp.ndarray, (4,)), several, several]
    with pytest.raises(GpulabError, match="the check rejects it"):
        gl.tune([lambda x: x], x, check=check)
    message = r"fails: failed: ValueError: no; first_row: wrong: float64 \(4,\) instead of float64 \(3, 4\)"
    with pytest.raises(GpulabError, match=message):
        gl.tune([fails, first_row], x, reference=lambda x: x)


class Clock:
    """A fake GPU. The test sets the time of each call, in ms between two events."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, *times_ms: float) -> None:
        self.steps: list[str] = []
        times = iter(times_ms)

        class Event:
            def record(event, stream: Any) -> None:  # noqa: N805
                self.steps.append("event")
                event.stream = stream

            def synchronize(event) -> None:  # noqa: N805
                self.steps.append("waits")

        def elapsed(begin: Any, end: Any) -> float:
            assert begin.stream is end.stream
            return next(times)

        stream = SimpleNamespace(synchronize=lambda: self.steps.append("all wait"))
        cuda = SimpleNamespace(Event=Event, get_current_stream=lambda: stream, get_elapsed_time=elapsed)
        self.tuner = gl.tune([lambda x: x])
        self.cp = SimpleNamespace(cuda=cuda)
        self.monkeypatch = monkeypatch

    def timed(self, **bounds: float) -> tuple[int, ...]:
        self.steps.clear()
        vars(self.tuner).update({"warmup": 1, "repeats": 9, "max_ms": 3.0, **bounds})
        with self.monkeypatch.context() as patch:
            patch.setattr(session, "cp", lambda: self.cp)
            return self.tuner._measure_ns(lambda x: self.steps.append("call"), [1])


def test_timing_stops_before_the_time_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    assert Clock(monkeypatch, 1, 1, 1, 1).timed() == (10**6,) * 3  # limited to 3 ms
    assert Clock(monkeypatch, 1, 1, 1.0001, 9).timed() == (10**6, 10**6, 1_000_100)
    assert Clock(monkeypatch, 0.5, 2, 9).timed() == (500_000, 2 * 10**6)  # another call would take 2 ms again
    assert Clock(monkeypatch, 50, 9).timed() == (50 * 10**6,)  # at least one
    assert Clock(monkeypatch, *[0.001] * 9).timed() == (1000,) * 9
    assert Clock(monkeypatch, *[0.001] * 9).timed(repeats=2) == (1000,) * 2
    assert Clock(monkeypatch, 0.0000004, 0.0000006, 5).timed() == (0, 1, 5 * 10**6)
    clock = Clock(monkeypatch, 1, 9)
    clock.timed(warmup=2, repeats=1)
    assert clock.steps == ["call", "call", "all wait", "event", "call", "event", "waits"]


def test_the_smallest_median_wins_and_incomplete_timings_are_noted(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    times = {"slow": (5, 5, 5), "fast": (4, 4, 900), "wrong": (1, 1, 1), "cut": (6,), "short": (7, 8)}

    def way(name: str) -> Any:
        return lambda x: (name, x) and (x + 1 if name == "wrong" else x)

    ways = {name: way(name) for name in times}
    monkeypatch.setattr(
        tune.Tuner, "_measure_ns", lambda self, way, args: times[next(n for n, w in ways.items() if w is way)]
    )
    tuned = gl.tune(ways, cp.ones(3), repeats=3, max_ms=1.5)
    (choice,) = tuned.record.choices
    assert choice.best == "fast"
    assert choice.note == "Because of max_ms=1.5, fewer than 3 calls were timed for cut, short."
    assert choice.note in tuned.describe()
    assert [(c.name, c.times_ns) for c in choice.candidates] == [
        (name, () if name == "wrong" else times_ns) for name, times_ns in times.items()
    ]
    assert choice.key == tune.make_key((cp.ones(3),))
    assert choice.provenance == tuned.record.provenance == session.backend().provenance
    for part in ("5 candidates", "1 key", "fast", choice.provenance.of_results_and_times):
        assert part in repr(tuned)
    assert "none yet" in repr(gl.tune([at_once]))


def test_a_key_names_the_device_the_versions_and_the_arguments() -> None:
    x = cp.ones((4, 6), "f4")
    device, versions, *args = tune.make_key((x, x.T, x[:, ::2], cp.ones((), "i8"), 3, "a"))
    assert device == "virtual T4 (sm_75, 40 SMs)"
    assert versions == f"CuPy {cp.__version__}, CUDA {cp.cuda.runtime.runtimeGetVersion()}"
    assert args == [
        "float32 4×6 C",
        "float32 6×4 F",
        "float32 4×3 strides (24, 8)",
        "int64 scalar C",
        "int 3",
        "str 'a'",
    ]


def test_a_candidate_without_a_return_value_is_checked_by_its_arrays() -> None:
    def changes(x: Any, n: int, y: Any) -> None:
        x += n
        y *= n

    def reasons(other: Any) -> list[str]:
        tuned = gl.tune({"one": changes, "other": other}, cp.ones(3), 2, cp.ones(4))
        return [candidate.why for candidate in tuned.record.choices[0].candidates]

    assert reasons(lambda x, n, y: [x + n, y * n]) == ["", ""]
    assert reasons(lambda x, n, y: x + n) == ["", "wrong: 1 array instead of 2"]


def test_candidates_have_distinct_names() -> None:
    class Way:
        def __call__(self, x: Any) -> Any:
            return x

    ways = [Way(), at_once, Way(), at_once, lambda x: x]
    tuned = gl.tune(ways, check=lambda *_: True, repeats=1)
    tuned.choose(matrix())
    names = [candidate.name for candidate in tuned.record.choices[0].candidates]
    assert names == ["Way", "at_once", "Way (3)", "at_once (4)", "<lambda>"]


@pytest.mark.parametrize(
    "bounds",
    [{"repeats": 0}, {"max_ms": 0}, {"warmup": -1}, {"repeats": 0.5}, {"max_ms": -1}, {"warmup": -0.5}],
)
def test_invalid_timing_limits_are_refused(bounds: dict[str, Any]) -> None:
    with pytest.raises(
        ValueError, match="`repeats` and `max_ms` must be positive, and `warmup` must not be negative"
    ):
        gl.tune([at_once], **bounds)
