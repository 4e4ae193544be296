"""The judge's small parts, each alone: matchers of failures, drawn sizes, comparisons, words of limits."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from gpulab_course.teach.judge import advice, budget, draw
from gpulab_course.teach.judge.budget import Budget, Score
from gpulab_course.teach.judge.compare import Near, wrong_elements
from gpulab_course.teach.judge.exercise import Case, Mistake

WANTED = np.arange(1, 7, dtype=np.float32)
START = np.full(6, -3, np.float32)


def case(**values: Any) -> Case:
    return Case(grid=(1, 1, 1), values=values, wanted={"y": WANTED})


def mistake(found: Any = None, *, wanted: Any = WANTED, start: Any = START, **more: Any) -> Mistake:
    array = found if found is None or isinstance(found, np.ndarray) else np.asarray(found, np.float32)
    return Mistake(
        more.pop("stage", "results"), more.pop("case", case()), "said.", "y", array, wanted, start, **more
    )


STOPPED = mistake(fault="out of bounds", array="x")
SLOW = mistake(fault="too long")
RACE = mistake(stage="hazards", hazard="RAW")
TWICE = mistake(stage="hazards", hazard="WAW")
AS_BEFORE = mistake(START)
FIRST = mistake([1, *START[1:]])
LAST_TWO = mistake([1, 2, 3, 4, -3, 9])
HOLE = mistake([1, 2, -3, 4, 5, 6])
NOT_A_NUMBER = mistake([1, 2, np.nan, 4, 5, 6])
NEAR = mistake(WANTED * np.float32(1 + 1e-6), differs=np.full(6, True))
DOUBLED = mistake(2 * WANTED)
ADDED = mistake(WANTED + START)
SQUARE = np.arange(4, dtype=np.float32).reshape(2, 2)
TURNED = mistake(SQUARE.T, wanted=SQUARE, start=np.full((2, 2), -3, np.float32))
ALL = {
    "stopped": STOPPED,
    "slow": SLOW,
    "race": RACE,
    "twice": TWICE,
    "as before": AS_BEFORE,
    "first": FIRST,
    "last two": LAST_TWO,
    "hole": HOLE,
    "nan": NOT_A_NUMBER,
    "near": NEAR,
    "doubled": DOUBLED,
    "added": ADDED,
    "turned": TURNED,
}
MATCHED = {
    "out of bounds": (advice.out_of_bounds, {"stopped"}),
    "of x": (advice.fault("out of bounds", "x"), {"stopped"}),
    "of y": (advice.fault("out of bounds", "y"), set()),
    "endless": (advice.endless, {"slow"}),
    "any hazard": (advice.hazard(), {"race", "twice"}),
    "RAW": (advice.hazard("RAW", "WAR"), {"race"}),
    "in hazards": (advice.in_stage("hazards"), {"race", "twice"}),
    "unchanged": (advice.unchanged, {"as before"}),
    "partly unwritten": (advice.partly_unwritten, {"as before", "first", "hole"}),
    "nearly": (advice.nearly, {"near"}),
    "not finite": (advice.not_finite, {"nan"}),
    "only the first": (advice.only_first, {"first"}),
    "written twice": (advice.written_twice, {"twice"}),
    "tail": (advice.tail_wrong, {"first", "last two"}),
    "doubles": (advice.times(2), {"doubled"}),
    "holds": (advice.holds(lambda m: m.wanted + m["add"]), {"added"}),
    "transposed": (advice.transposed, {"turned"}),
    "both": (advice.both(advice.partly_unwritten, advice.tail_wrong), {"first"}),
    "either": (advice.either(advice.unchanged, advice.endless), {"as before", "slow"}),
    "not": (advice.both(advice.hazard(), advice.not_(advice.written_twice)), {"race"}),
}


@pytest.mark.parametrize("name", MATCHED)
def test_each_matcher_knows_its_failure_among_all(name: str) -> None:
    matcher, wanted = MATCHED[name]
    for each in ALL.values():
        each.case.values["add"] = -3
    assert {of for of, one in ALL.items() if matcher(one)} == wanted


def test_what_always_helps_is_said_after_the_exercises_own() -> None:
    assert advice.advised((), TWICE) == "said. Every element belongs to one thread."
    assert advice.advised((), AS_BEFORE).startswith("said. Nothing was written")
    assert advice.advised((), ADDED).startswith("said. It adds to what the output held before")
    given = mistake(WANTED + START, case=case(y=START))  # it is told what the output holds
    assert advice.advised((), given) == "said."
    own = (advice.Advice(advice.unchanged, "Store it."), advice.Advice(advice.unchanged, "Later."))
    assert advice.advised(own, AS_BEFORE) == "said. Store it."
    assert advice.advised(own, HOLE) == "said."


def test_the_first_and_the_last_of_few_elements() -> None:
    def of(found: list[float], wanted: list[float]) -> Mistake:
        return mistake(found, wanted=np.array(wanted, np.float32), start=np.full(len(found), -3, np.float32))

    assert advice.tail_wrong(of([1, -3], [1, 2]))
    assert advice.only_first(of([1, -3], [1, 2]))
    assert not advice.only_first(of([-3, 2], [1, 2]))
    for none in (of([], []), of([1], [1]), of([-3], [1]), of([1, 2], [1, 2])):
        assert not advice.tail_wrong(none)
        assert not advice.only_first(none)


def test_what_is_close_is_the_same_to_advice_and_no_more() -> None:
    wanted = np.array([0, 100, np.nan, np.inf], np.float32)
    for found, close in (
        ([0, 200, np.nan, np.inf], True),
        ([9e-7, 200.01, np.nan, np.inf], True),
        ([2e-6, 200, np.nan, np.inf], False),
        ([0, 200.03, np.nan, np.inf], False),
        ([0, 200, 1, np.inf], False),
        ([0, 200, np.nan, -np.inf], False),
    ):
        assert advice.times(2)(mistake(found, wanted=wanted)) is close
        assert advice.holds(lambda m: 2 * wanted)(mistake(found, wanted=wanted)) is close
    for off, close in ((1 + 9e-5, True), (1 + 2e-4, False)):
        assert advice.nearly(mistake(WANTED * np.float32(off))) is close
    assert not advice.nearly(mistake([0, 1e-20], wanted=np.zeros(2, np.float32))), "next to 0 all is far"
    assert advice.nearly(mistake([np.nan], wanted=np.array([np.nan], np.float32)))
    assert not advice.times(2)(mistake([2], wanted=np.ones(2, np.float32))), "of another shape"


def test_what_was_added_to_garbage_that_is_no_number_is_not_told() -> None:
    for garbage in (np.nan, np.inf):
        start = np.array([-3, garbage, -3, -3, -3, -3], np.float32)
        assert advice.advised((), mistake(WANTED + start, start=start)) == "said."
    assert "adds to what the output held" not in advice.advised((), mistake(START, wanted=np.zeros(6)))


def test_nearly_what_was_added_to_garbage_is_another_mistake() -> None:
    start = np.array([7, 60, 99, 3], np.int32)
    wanted = np.array([10**7, -(10**8), 10**9, 2**31 - 2], np.int32)
    with np.errstate(over="ignore"):
        added = wanted + start  # the last wraps around, as it does on the device
    assert "adds to what the output held" in advice.advised((), mistake(added, wanted=wanted, start=start))
    for off in (1, -1):
        assert advice.advised((), mistake(added + off, wanted=wanted, start=start)) == "said."
    assert not advice.times(1)(mistake(added, wanted=wanted)), "integers are the same or they are not"
    floats = np.array([1e6, -3e6], np.float32)
    before = np.array([900, -500], np.float32)
    assert "adds to" in advice.advised((), mistake(floats + before, wanted=floats, start=before))
    assert advice.advised((), mistake(floats * np.float32(1.00001), wanted=floats, start=before)) == "said."
    assert advice.advised((), mistake([np.nan, np.nan], wanted=floats, start=before)) == "said."


@pytest.mark.parametrize("seed", range(20))
def test_sizes_hold_what_kernels_get_wrong(seed: int) -> None:
    rng = np.random.default_rng(seed)
    at_once = 20_480
    whole, *sizes = draw.lengths(rng, at_once)
    assert whole((96, 1, 1)) == 384
    assert {0, 1, 31, 32, 33, 100_000} <= set(sizes)
    powers = {size for size in sizes if size > 33 and not size & (size - 1)}
    assert powers
    assert all({size - 1, size + 1} <= set(sizes) for size in powers)
    assert {size % 4 for size in sizes} == {0, 1, 2, 3}
    assert 2 * at_once < max(size for size in sizes if size != 100_000) < 3 * at_once
    assert 0 not in draw.some_lengths(rng, at_once)

    wide, line, high, square, one, most = draw.planes(rng)
    assert (one, most) == ((1, 1, 1), (32, 32, 1))
    assert wide[0] >= 20 > high[0]
    assert high[1] >= 17 > wide[1]
    assert (line[1], square[0] == square[1]) == (1, True)
    assert 32 < line[0] <= 64
    assert {z for _, _, z in (wide, line, high, square)} == {1}

    tiles, *shapes = draw.matrices(rng, at_once)
    assert tiles((32, 8, 1)) == (16, 96)
    assert {(1, 1), (1, 33), (33, 1), (32, 32), (31, 33), (257, 65)} <= set(shapes)
    assert all(rows > 0 and columns > 0 for rows, columns in shapes)
    assert any(rows == 1 and columns > 1024 for rows, columns in shapes)
    assert any(rows > 256 and columns == 2 for rows, columns in shapes)
    assert {rows > columns for rows, columns in shapes if max(rows, columns) > 1 << 16} == {False, True}
    assert 2 * at_once < max(rows * columns for rows, columns in shapes)


def test_drawn_numbers_and_garbage_are_what_they_are_called() -> None:
    some = draw.Draw(3).any_integers((4000,))
    assert some.dtype == np.int32
    assert (np.abs(some.astype(np.int64)) < 9).mean() == pytest.approx(0.5, abs=0.05)
    assert (some < -(1 << 30)).any()
    assert (some > 1 << 30).any()
    left = draw.garbage(1, (5000,), np.int32)
    assert 0 not in left
    assert (left.min(), left.max()) == (1, 99)
    assert np.isnan(draw.garbage(2, (3,), np.float32)).all()
    assert np.isfinite(draw.garbage(3, (3,), np.float32)).all()


def test_subnormal_numbers_are_drawn_where_no_thread_computes_with_them() -> None:
    moved = draw.Draw(5, draw.EXTREME).floats((20_000,), moved=True)
    least = np.finfo(np.float32).smallest_normal
    assert ((moved != 0) & (np.abs(moved) < least)).any()
    assert ((np.abs(moved) >= least) & (np.abs(moved) < 2 * least)).any()  # and the least that are none
    computed = draw.Draw(5, draw.EXTREME).floats((20_000,))
    assert not ((computed != 0) & (np.abs(computed) < least)).any()


def test_exact_results_are_compared_by_their_bits_where_that_is_asked() -> None:
    wanted = np.array([0.0, 1.0, np.nan], np.float32)
    found = np.array([-0.0, 1.0, np.nan], np.float32)
    assert wrong_elements(found, Near(wanted, 1.0, ulps=0)).tolist() == [True, False, False]
    assert not wrong_elements(found, Near(wanted, 1.0)).any()
    low = np.array([0.0, np.float32(1) + np.finfo(np.float32).eps, np.nan], np.float32)
    assert wrong_elements(low, Near(wanted, 1.0, ulps=2, zero_bits=1)).tolist() == [False, True, False]
    assert not wrong_elements(low, Near(wanted, 1.0, ulps=2)).any()


def test_what_is_no_number_is_wrong_where_floats_are_wanted() -> None:
    wanted = np.arange(3, dtype=np.float32)
    for found in (wanted.astype(np.complex64), wanted.astype("U3"), wanted.astype(object)):
        assert wrong_elements(found, wanted).tolist() == [True] * 3
    for kind in (np.int8, np.uint32, np.float64, np.float16):
        assert wrong_elements(wanted.astype(kind), wanted).tolist() == [False] * 3
    assert wrong_elements(np.array([True, False]), np.array([1.0, 1.0])).tolist() == [False, True]


def test_signs_of_zero_count_where_bits_do() -> None:
    wanted = Near(np.array([0.0, -0.0, 1.0, -1.0], np.float32), 1.0, ulps=0)
    assert not wrong_elements(wanted.values.copy(), wanted).any()
    turned = np.array([-0.0, 0.0, -1.0, -1.0], np.float32)
    assert wrong_elements(turned, wanted).tolist() == [True, True, True, False]


def test_a_best_is_kept_of_what_has_no_limit() -> None:
    costs: Any = SimpleNamespace(stats=SimpleNamespace(local_bytes=8))
    limits: tuple[dict[str, int], ...] = ({}, {"most": 9}, {"least": 1})
    scores = [budget.score(Budget("local_bytes", **limit), costs, costs, None) for limit in limits]
    assert [score.golf for score in scores] == [True, False, False]
    assert {(score.yours, score.reference, score.naive) for score in scores} == {(8, 8, None)}


@pytest.mark.parametrize(
    ("most", "yours", "says"),
    [
        (0, 3, "and none is allowed (reference 0)"),
        (1, 2, "and 1 is allowed (ref"),
        (2, 5, "and 2 are allowed ("),
    ],
)
def test_a_budget_says_what_is_allowed(most: int, yours: int, says: str) -> None:
    one = Budget("atomics", most=most)
    words = budget.COUNTERS["atomics"][0]
    seen = Score("atomics", words, yours, 0)
    assert not budget.passes(one, seen)
    assert says in budget.complaint(one, seen)
    assert budget.passes(one, Score("atomics", words, most, 0))
