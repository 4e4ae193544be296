"""``gl.tune``: results before times, one choice for each key, bounded, kept in files."""

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


def test_the_fastest_right_one_is_chosen_and_called() -> None:
    x = matrix()
    tuned = gl.tune({"two steps": two_steps, "first row": first_row, "at once": at_once}, x)
    (choice,) = tuned.record.choices
    assert choice.best == "at once"
    by_name = {each.name: each for each in choice.candidates}
    assert by_name["first row"].why.startswith("wrong in")
    assert not by_name["first row"].times_ns
    assert by_name["at once"].median_ns < by_name["two steps"].median_ns
    assert len(by_name["at once"].times_ns) == 20
    np.testing.assert_allclose(tuned(x).get(), x.get().sum(axis=0), rtol=1e-5)


def test_a_choice_is_made_once_for_each_key() -> None:
    seen: list[Any] = []

    def watched(x: Any) -> Any:
        seen.append(x)
        return x.sum(axis=0)

    tuned = gl.tune([watched], warmup=1, repeats=3)
    assert not seen
    x = matrix()
    tuned(x)
    once = len(seen)
    tuned(x)
    assert len(seen) == once + 1
    for other in (matrix(65), matrix(dtype="float64"), cp.asfortranarray(x), cp.ascontiguousarray(x.T)):
        before = len(seen)
        tuned(other)
        assert len(seen) > before + 3
    assert len({each.key for each in tuned.record.choices}) == 5
    gl.use_device("virtual:H100")
    tuned(gl.cp.ones((64, 32), "float32"))
    assert len(tuned.record.choices) == 6


def test_numbers_belong_to_the_key() -> None:
    tuned = gl.tune([lambda x, n: x * n], repeats=1)
    x = matrix()
    for number in (1, 1.0, True, 2):
        tuned(x, number)
    assert len(tuned.record.choices) == 4


def test_candidates_do_not_spoil_each_others_arguments() -> None:
    def doubles(x: Any) -> None:
        x *= 2

    def adds(x: Any) -> None:
        x += x

    x = matrix()
    before = x.get()
    tuned = gl.tune([doubles, adds], x)
    np.testing.assert_array_equal(x.get(), before)
    assert [each.why for each in tuned.record.choices[0].candidates] == ["", ""]
    tuned(x)
    np.testing.assert_array_equal(x.get(), 2 * before)


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        (lambda x: x.sum(axis=0) * 1.01, "wrong in"),
        (lambda x: x.sum(axis=1), "float32 (64,) for float32 (32,)"),
        (lambda x: x.sum(axis=0).astype(cp.float64), "float64"),
        (lambda x: (x.sum(axis=0), x), "2 arrays for 1"),
        (lambda x: x.nothing, "AttributeError"),
        (lambda x: 42, "it returned int: a candidate returns a device array"),
        (lambda x: x.sum(axis=0) * cp.float32(np.nan), "wrong in 32 of 32 elements"),
    ],
)
def test_what_is_wrong_is_said_and_not_timed(wrong: Any, words: str) -> None:
    tuned = gl.tune({"right": at_once, "other": wrong}, matrix())
    other = tuned.record.choices[0].candidates[1]
    assert words in other.why
    assert not other.times_ns
    assert words in tuned.describe()


def test_an_array_that_is_passed_twice_is_one_array() -> None:
    """A candidate that changes the first argument changes the second one, too."""

    def accumulated(x: Any, y: Any) -> Any:
        x += 1
        return x + y

    x = cp.zeros(8, dtype=cp.float32)
    tuned = gl.tune([accumulated], x, x, reference=lambda x, y: 2 * (x + 1))
    assert tuned.record.choices[0].candidates[0].why == ""


def test_one_wrong_element_shows() -> None:
    def one_off(x: Any) -> Any:
        y = x.sum(axis=0)
        y[-1] += 1
        return y

    tuned = gl.tune([at_once, one_off], matrix())
    assert tuned.record.choices[0].candidates[1].why == "wrong in 1 of 32 elements"


def test_integers_agree_exactly_or_not() -> None:
    x = cp.arange(100)
    tuned = gl.tune({"square": lambda x: x * x, "off by one": lambda x: x * x + (x == 99)}, x)
    assert tuned.record.choices[0].best == "square"
    assert "wrong in 1 of 100" in tuned.record.choices[0].candidates[1].why


def test_a_check_and_a_reference_of_ones_own() -> None:
    x = matrix()
    tuned = gl.tune(
        [first_row], x, check=lambda found, wanted: found.shape == wanted.shape, reference=at_once
    )
    assert tuned.record.choices[0].best == "first_row"
    with pytest.raises(GpulabError, match="No candidate's result is right"):
        gl.tune([first_row], x, reference=at_once)


def test_time_is_bounded() -> None:
    x = matrix(4096, 512)
    tuned = gl.tune([at_once], x, max_ms=1e-6, repeats=50)
    (choice,) = tuned.record.choices
    assert len(choice.candidates[0].times_ns) == 1
    assert "cut at_once short of 50 calls" in choice.note
    assert choice.note in tuned.describe()


def test_choices_travel_in_files(tmp_path: Path) -> None:
    x = matrix()
    kept = gl.tune([at_once, two_steps], x).write(tmp_path / "kept.json")

    def never(x: Any) -> Any:
        raise AssertionError("it was tuned already")

    other = gl.tune({"two_steps": never, "at_once": at_once})
    other.read(kept)
    other(x)
    assert other.record.choices[0].provenance.source == "recorded"
    data = json.loads(kept.read_text())
    data["choices"][0]["key"][1] = "CuPy 0.1"
    kept.write_text(json.dumps(data))
    fresh = gl.tune({"at_once": at_once})
    fresh.read(kept)
    fresh(x)
    assert len(fresh.record.choices) == 2
    kept.write_text("[]")
    with pytest.raises(GpulabError, match="holds no choices"):
        fresh.read(kept)


def test_functions_of_one_name_stay_apart() -> None:
    tuned = gl.tune([lambda x: x + 1, lambda x: 1 + x], matrix())
    assert [each.name for each in tuned.record.choices[0].candidates] == ["<lambda>", "<lambda> (2)"]


@pytest.mark.parametrize("bad", [[], {}, {"one": 3}])
def test_only_functions_are_candidates(bad: Any) -> None:
    with pytest.raises(TypeError, match=r"gl\.tune takes functions"):
        gl.tune(bad)


@pytest.mark.parametrize("bad", [{"repeats": 0}, {"max_ms": 0}, {"warmup": -1}])
def test_bounds_are_checked(bad: dict[str, int]) -> None:
    with pytest.raises(ValueError, match="positive"):
        gl.tune([at_once], **bad)


def test_it_shows_as_a_table() -> None:
    tuned = gl.tune([at_once, two_steps, first_row], matrix())
    assert "at_once" in repr(tuned)
    assert "modelled on virtual T4" in repr(tuned)
    bundle = tuned._repr_mimebundle_()
    assert bundle is not None
    assert "<table" in bundle[0]["text/html"]
    assert "two_steps" in bundle[0]["text/plain"]


def why(found: Any, wanted: Any, **how: Any) -> str:
    """What is said of a result beside the right one."""
    tuned = gl.tune(
        {"right": lambda f, w: w, "other": lambda f, w: f},
        cp.asarray(found),
        cp.asarray(wanted),
        repeats=1,
        warmup=0,
        **how,
    )
    return str(tuned.record.choices[0].candidates[1].why)


@pytest.mark.parametrize(
    ("dtype", "largest", "near", "off"),
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
def test_what_may_differ_is_a_part_of_the_largest_element(
    dtype: str, largest: float, near: float, off: float
) -> None:
    """Whatever the element itself is: what is added up may cancel out."""
    wanted = np.array([largest, 0, -largest / 2], dtype)
    for by, said in ((near, ""), (off, "wrong in 1 of 3 elements")):
        assert why(wanted + np.array([0, by, 0], dtype), wanted) == said
    assert why(wanted + np.array([0, off, 0], dtype), wanted, tolerance=1) == (
        "" if largest else "wrong in 1 of 3 elements"
    )
    if near:
        assert why(wanted + np.array([0, near, 0], dtype), wanted, tolerance=0) == "wrong in 1 of 3 elements"


@pytest.mark.filterwarnings("error")
def test_numbers_that_are_none_agree_with_their_like() -> None:
    nan = np.float32("nan")
    inf = np.float32("inf")
    wanted = np.array([nan, inf, -inf, 1], "f4")
    assert why(wanted, wanted) == ""
    assert why(np.array([nan, inf, inf, 1], "f4"), wanted) == "wrong in 1 of 4 elements"
    assert why(np.array([1, inf, -inf, 1.001], "f4"), wanted) == "wrong in 2 of 4 elements"
    assert why(np.array([nan, nan], "f4"), np.array([nan, nan], "f4")) == ""
    assert why(np.array([], "f4"), np.array([], "f4")) == ""
    assert why(np.array([6e4], "f2"), np.array([-6e4], "f2")) == "wrong in 1 of 1 element"  # it overflows


def test_integers_and_truth_differ_by_nothing() -> None:
    assert why(np.array([10**9, 5]), np.array([10**9, 6])) == "wrong in 1 of 2 elements"
    assert why(np.array([True, False]), np.array([True, False])) == ""
    assert why(np.array([True, True, True]), np.array([True, False, False])) == "wrong in 2 of 3 elements"
    assert why(np.array([1], "i4"), np.array([1], "i8")) == "wrong: int32 (1,) for int64 (1,)"
    assert why(np.array([[1]]), np.array([1])) == "wrong: int64 (1, 1) for int64 (1,)"


def test_a_check_gets_what_a_candidate_gives() -> None:
    seen: list[Any] = []

    def check(found: Any, wanted: Any) -> bool:
        seen.append((type(found), type(wanted), found[0].shape))
        return len(seen) < 4

    x = cp.ones((3, 4))
    for way in (lambda x: x, lambda x: (x, x), lambda x: [x, x[0]]):
        gl.tune([way], x, check=check, repeats=1)
    one = (cp.ndarray, cp.ndarray, (4,))
    several = (tuple, tuple, (3, 4))
    assert seen == [one, several, several]
    with pytest.raises(GpulabError, match="right: <lambda>: wrong: the check refuses it"):
        gl.tune([lambda x: x], x, check=check)
    refused = (
        r"right: raises: refused: ValueError: no; first_row: wrong: float64 \(4,\) for float64 \(3, 4\)\."
    )

    def raises(x: Any) -> Any:
        raise ValueError("no")

    with pytest.raises(GpulabError, match=refused):
        gl.tune([raises, first_row], x, reference=lambda x: x)


class Clock:
    """A GPU that is made up: calls take what a test says, in ms between two events."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, *times_ms: float) -> None:
        self.said: list[str] = []
        times = iter(times_ms)

        class Event:
            def record(event, stream: Any) -> None:  # noqa: N805
                self.said.append("event")
                event.stream = stream

            def synchronize(event) -> None:  # noqa: N805
                self.said.append("waits")

        def elapsed(begin: Any, end: Any) -> float:
            assert begin.stream is end.stream
            return next(times)

        stream = SimpleNamespace(synchronize=lambda: self.said.append("all wait"))
        cuda = SimpleNamespace(Event=Event, get_current_stream=lambda: stream, get_elapsed_time=elapsed)
        self.tuner = gl.tune([lambda x: x])
        self.cp = SimpleNamespace(cuda=cuda)
        self.monkeypatch = monkeypatch

    def timed(self, **how: float) -> tuple[int, ...]:
        self.said.clear()
        vars(self.tuner).update({"warmup": 1, "repeats": 9, "max_ms": 3.0, **how})
        with self.monkeypatch.context() as patch:
            patch.setattr(session, "cp", lambda: self.cp)
            return self.tuner._timed(lambda x: self.said.append("call"), [1])


def test_calls_are_timed_until_the_next_would_be_too_long(monkeypatch: pytest.MonkeyPatch) -> None:
    assert Clock(monkeypatch, 1, 1, 1, 1).timed() == (10**6,) * 3  # 3 ms and no more
    assert Clock(monkeypatch, 1, 1, 1.0001, 9).timed() == (10**6, 10**6, 1_000_100)
    assert Clock(monkeypatch, 0.5, 2, 9).timed() == (500_000, 2 * 10**6)  # one more would take 2 ms again
    assert Clock(monkeypatch, 50, 9).timed() == (50 * 10**6,)  # at least one
    assert Clock(monkeypatch, *[0.001] * 9).timed() == (1000,) * 9
    assert Clock(monkeypatch, *[0.001] * 9).timed(repeats=2) == (1000,) * 2
    assert Clock(monkeypatch, 0.0000004, 0.0000006, 5).timed() == (0, 1, 5 * 10**6)
    clock = Clock(monkeypatch, 1, 9)
    clock.timed(warmup=2, repeats=1)
    assert clock.said == ["call", "call", "all wait", "event", "call", "event", "waits"]


def test_bounds_are_what_is_documented_where_none_are_given(monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[int] = []

    def counted(x: Any) -> Any:
        calls.append(1)
        return x

    gl.tune([counted], matrix())
    assert len(calls) == 2 + 2 + 20  # for the reference and for its result; before; timed
    monkeypatch.setattr(tune.Tuner, "_timed", lambda self, *_: (7,))
    choice = gl.tune([counted], matrix()).record.choices[0]
    assert choice.note == "max_ms=30 cut counted short of 20 calls."
    for how in ({"repeats": 1}, {"max_ms": 0.5, "repeats": 1}, {"warmup": 0, "repeats": 1}):
        assert gl.tune([counted], matrix(), **how).record.choices[0].note == ""  # type: ignore[arg-type]


def test_the_fastest_by_its_median_is_best_and_who_was_cut_short_is_said(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    times = {"slow": (5, 5, 5), "fast": (4, 4, 900), "wrong": (1, 1, 1), "cut": (6,), "short": (7, 8)}

    def way(name: str) -> Any:
        return lambda x: (name, x) and (x + 1 if name == "wrong" else x)

    ways = {name: way(name) for name in times}
    monkeypatch.setattr(
        tune.Tuner, "_timed", lambda self, way, args: times[next(n for n, w in ways.items() if w is way)]
    )
    tuned = gl.tune(ways, cp.ones(3), repeats=3, max_ms=1.5)
    (choice,) = tuned.record.choices
    assert choice.best == "fast"
    assert choice.note == "max_ms=1.5 cut cut, short short of 3 calls."
    assert [(c.name, c.times_ns) for c in choice.candidates] == [
        (name, () if name == "wrong" else took) for name, took in times.items()
    ]
    assert choice.candidates[2].why == "wrong in 3 of 3 elements"
    assert choice.key == tune.key_of((cp.ones(3),))
    assert choice.provenance == tuned.record.provenance == session.backend().provenance
    assert repr(tuned) == f"Tuner of 5 candidates, 1 key so far: fast; {choice.provenance.label}."
    assert repr(gl.tune([at_once])).startswith("Tuner of 1 candidate, 0 keys so far: none yet; ")


def test_a_key_names_the_device_the_versions_and_the_arguments() -> None:
    x = cp.ones((4, 6), "f4")
    device, versions, *args = tune.key_of((x, x.T, x[:, ::2], cp.ones((), "i8"), 3, "a"))
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


def test_copies_have_the_layout_of_what_they_are_copies_of() -> None:
    x = cp.asfortranarray(cp.ones((4, 6)))
    one, two = tune.copied((x, 7))
    assert one.flags.f_contiguous
    assert not one.flags.c_contiguous
    assert one.data.ptr != x.data.ptr
    assert two == 7
    given: list[Any] = []
    gl.tune([lambda x, n: given.append(x) or x * n], x, 2, repeats=1, warmup=0)  # type: ignore[func-returns-value]
    assert [each.flags.f_contiguous for each in given] == [True] * 3
    assert x.data.ptr not in {each.data.ptr for each in given}


def test_what_changes_its_arguments_gives_those_that_are_arrays() -> None:
    def changes(x: Any, n: int, y: Any) -> None:
        x += n
        y *= n

    tuned = gl.tune({"one": changes, "other": lambda x, n, y: [x + n, y * n]}, cp.ones(3), 2, cp.ones(4))
    assert [each.why for each in tuned.record.choices[0].candidates] == ["", ""]
    assert (
        gl.tune({"one": changes, "less": lambda x, n, y: x + n}, cp.ones(3), 2, cp.ones(4))
        .record.choices[0]
        .candidates[1]
        .why
        == "wrong: 1 array for 2"
    )


def test_functions_are_named_by_what_they_are() -> None:
    class Way:
        def __call__(self, x: Any) -> Any:
            return x

    tuned = gl.tune([Way(), at_once, Way(), at_once], check=lambda *_: True, repeats=1)
    tuned.choose(matrix())
    assert [c.name for c in tuned.record.choices[0].candidates] == [
        "Way",
        "at_once",
        "Way (3)",
        "at_once (4)",
    ]


def test_a_file_of_choices_says_what_it_is(tmp_path: Path) -> None:
    x = matrix()
    tuned = gl.tune([at_once, two_steps], x, repeats=2)
    data = json.loads(tuned.write(tmp_path / "kept.json").read_text("utf-8"))
    assert {key: data[key] for key in ("format", "version")} == {"format": "gpulab-tuning", "version": 1}
    (choice,) = tuned.record.choices
    other = gl.tune([at_once, two_steps])
    other.read(str(tmp_path / "kept.json"))
    (read,) = other.record.choices
    assert (read.best, read.key, read.candidates) == (choice.best, choice.key, choice.candidates)
    assert (read.provenance.source, read.provenance.device) == ("recorded", choice.provenance.device)
    mine = gl.tune([at_once], x, repeats=1)
    own = mine.record.choices
    mine.read(tmp_path / "kept.json")
    assert mine.record.choices == own  # what was measured here stays
    elsewhere = gl.tune({"another": at_once})
    elsewhere.read(tmp_path / "kept.json")
    assert elsewhere.record.choices == ()
    for text in ("[]", '{"format": "other", "choices": []}', '{"choices": []}', "3"):
        (tmp_path / "bad.json").write_text(text)
        with pytest.raises(GpulabError, match=r"^bad\.json holds no choices of gl\.tune's\."):
            mine.read(tmp_path / "bad.json")


@pytest.mark.parametrize("bad", [{"repeats": 0.5}, {"max_ms": -1}, {"warmup": -0.5}])
def test_bounds_just_outside_are_refused(bad: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="repeats and max_ms are positive, and warmup is not negative"):
        gl.tune([at_once], **bad)
