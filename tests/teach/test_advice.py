"""Advice in verdicts: which advice each kind of mistake gets."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from gpulab_course.teach.judge import advice
from gpulab_course.teach.judge.exercise import Case, Mistake

WANTED = np.arange(1, 7, dtype=np.float32)
START = np.full(6, -3, np.float32)


def case(**values: Any) -> Case:
    return Case(grid=(1, 1, 1), values=values, expected_outputs={"y": WANTED})


def mistake(result: Any = None, *, expected: Any = WANTED, start: Any = START, **fields: Any) -> Mistake:
    array = result if result is None or isinstance(result, np.ndarray) else np.asarray(result, np.float32)
    return Mistake(
        fields.pop("stage", "results"),
        fields.pop("case", case()),
        "said.",
        "y",
        array,
        expected,
        start,
        **fields,
    )


STOPPED = mistake(fault_kind="out of bounds", fault_array="x")
SLOW = mistake(fault_kind="too long")
RACE = mistake(stage="hazards", hazard_kind="RAW")
TWICE = mistake(stage="hazards", hazard_kind="WAW")
AS_BEFORE = mistake(START)
FIRST = mistake([1, *START[1:]])
LAST_TWO = mistake([1, 2, 3, 4, -3, 9])
HOLE = mistake([1, 2, -3, 4, 5, 6])
NOT_A_NUMBER = mistake([1, 2, np.nan, 4, 5, 6])
NEAR = mistake(WANTED * np.float32(1 + 1e-6), is_wrong=np.full(6, True))
DOUBLED = mistake(2 * WANTED)
ADDED = mistake(WANTED + START)
SQUARE = np.arange(4, dtype=np.float32).reshape(2, 2)
TURNED = mistake(SQUARE.T, expected=SQUARE, start=np.full((2, 2), -3, np.float32))
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
    "out of bounds": (advice.is_out_of_bounds, {"stopped"}),
    "of x": (advice.is_fault("out of bounds", "x"), {"stopped"}),
    "of y": (advice.is_fault("out of bounds", "y"), set()),
    "endless": (advice.is_endless, {"slow"}),
    "any hazard": (advice.is_hazard(), {"race", "twice"}),
    "RAW": (advice.is_hazard("RAW", "WAR"), {"race"}),
    "in hazards": (advice.is_in_stage("hazards"), {"race", "twice"}),
    "unchanged": (advice.is_unchanged, {"as before"}),
    "partly unwritten": (advice.is_partly_unwritten, {"as before", "first", "hole"}),
    "nearly": (advice.is_nearly_right, {"near"}),
    "not finite": (advice.is_not_finite, {"nan"}),
    "only the first": (advice.is_only_first_right, {"first"}),
    "written twice": (advice.is_written_twice, {"twice"}),
    "tail": (advice.is_tail_wrong, {"first", "last two"}),
    "doubles": (advice.is_multiple(2), {"doubled"}),
    "holds": (advice.is_result_of(lambda m: m.expected_values + m["add"]), {"added"}),
    "transposed": (advice.is_transposed, {"turned"}),
    "both": (advice.match_all(advice.is_partly_unwritten, advice.is_tail_wrong), {"first"}),
    "either": (advice.match_any(advice.is_unchanged, advice.is_endless), {"as before", "slow"}),
    "not": (advice.match_all(advice.is_hazard(), advice.match_not(advice.is_written_twice)), {"race"}),
}


@pytest.mark.parametrize("name", MATCHED)
def test_each_matcher_accepts_only_its_expected_mistakes(name: str) -> None:
    matcher, expected = MATCHED[name]
    for mistake_ in ALL.values():
        mistake_.case.values["add"] = -3
    assert {of for of, item in ALL.items() if matcher(item)} == expected


def test_advice_of_the_exercise_has_priority_over_general_advice() -> None:
    assert advice.add_advice((), TWICE) == "said. Each element must be written by only one thread."
    assert advice.add_advice((), AS_BEFORE).startswith("said. Nothing was written")
    assert advice.add_advice((), ADDED).startswith(
        "said. The kernel adds to the initial contents of the output"
    )
    given = mistake(WANTED + START, case=case(y=START))  # the kernel receives the initial output as an input
    assert advice.add_advice((), given) == "said."
    own = (advice.Advice(advice.is_unchanged, "Store it."), advice.Advice(advice.is_unchanged, "Later."))
    assert advice.add_advice(own, AS_BEFORE) == "said. Store it."
    assert advice.add_advice(own, HOLE) == "said."


def test_advice_compares_within_a_tolerance() -> None:
    expected = np.array([0, 100, np.nan, np.inf], np.float32)
    for result, close in (
        ([0, 200, np.nan, np.inf], True),
        ([9e-7, 200.01, np.nan, np.inf], True),
        ([2e-6, 200, np.nan, np.inf], False),
        ([0, 200.03, np.nan, np.inf], False),
        ([0, 200, 1, np.inf], False),
        ([0, 200, np.nan, -np.inf], False),
    ):
        assert advice.is_multiple(2)(mistake(result, expected=expected)) is close
        assert advice.is_result_of(lambda m: 2 * expected)(mistake(result, expected=expected)) is close
    for off, close in ((1 + 9e-5, True), (1 + 2e-4, False)):
        assert advice.is_nearly_right(mistake(WANTED * np.float32(off))) is close
    assert not advice.is_nearly_right(mistake([0, 1e-20], expected=np.zeros(2, np.float32))), (
        "next to 0 all is far"
    )
    assert advice.is_nearly_right(mistake([np.nan], expected=np.array([np.nan], np.float32)))
    assert not advice.is_multiple(2)(mistake([2], expected=np.ones(2, np.float32))), "of another shape"


def test_nan_and_infinite_outputs_get_no_advice() -> None:
    for garbage in (np.nan, np.inf):
        start = np.array([-3, garbage, -3, -3, -3, -3], np.float32)
        assert advice.add_advice((), mistake(WANTED + start, start=start)) == "said."
    assert "adds to the initial contents" not in advice.add_advice((), mistake(START, expected=np.zeros(6)))


def test_inexact_additions_get_no_advice() -> None:
    start = np.array([7, 60, 99, 3], np.int32)
    expected = np.array([10**7, -(10**8), 10**9, 2**31 - 2], np.int32)
    with np.errstate(over="ignore"):
        added = expected + start  # the last wraps around, as it does on the device
    assert "adds to the initial contents" in advice.add_advice(
        (), mistake(added, expected=expected, start=start)
    )
    for off in (1, -1):
        assert advice.add_advice((), mistake(added + off, expected=expected, start=start)) == "said."
    assert not advice.is_multiple(1)(mistake(added, expected=expected)), (
        "integers are the same or they are not"
    )
    floats = np.array([1e6, -3e6], np.float32)
    before = np.array([900, -500], np.float32)
    assert "adds to" in advice.add_advice((), mistake(floats + before, expected=floats, start=before))
    assert (
        advice.add_advice((), mistake(floats * np.float32(1.00001), expected=floats, start=before)) == "said."
    )
    assert advice.add_advice((), mistake([np.nan, np.nan], expected=floats, start=before)) == "said."
