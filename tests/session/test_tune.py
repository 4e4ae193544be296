"""``gl.tune``: results before times, one choice for each key, bounded, kept in files."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import gpulab as gl
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
        (lambda x: x.sum(axis=0) * cp.float32(np.nan), "wrong in 32 of 32 elements"),
    ],
)
def test_what_is_wrong_is_said_and_not_timed(wrong: Any, words: str) -> None:
    tuned = gl.tune({"right": at_once, "other": wrong}, matrix())
    other = tuned.record.choices[0].candidates[1]
    assert words in other.why
    assert not other.times_ns
    assert words in tuned.describe()


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
