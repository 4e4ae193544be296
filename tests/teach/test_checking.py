"""The checking machinery: nothing a learner hands in escapes it as an exception or hangs it."""

from __future__ import annotations

import sys
import threading
import time
from typing import Any

import pytest

from gpulab.teach import check
from gpulab.teach.checking import UnknownExerciseError, judge_within
from gpulab.teach.exercise import Exercise, NotYet, call
from gpulab.teach.progress import progress


def judged(answer: Any, limit_s: float = 5.0) -> str:
    exercise = Exercise("demo", "Demo", lambda given: str(call(given, 1, name="f")))
    return repr(judge_within(exercise, answer, limit_s))


def test_a_right_answer_passes() -> None:
    assert judged(lambda n: n + 1) == "demo: passed: 2"


def test_unfinished_stubs_are_told_so() -> None:
    assert "replace the TODO" in judged(None)
    assert "replace the TODO" in judged(...)
    assert judged(lambda n: None) == (
        "demo: not yet: f(1) returns nothing; replace the TODO and end with a return."
    )


def test_what_an_answer_raises_becomes_a_sentence() -> None:
    assert judged(lambda n: n / 0) == "demo: not yet: f(1) raised ZeroDivisionError: division by zero"


def test_even_sys_exit_is_only_a_wrong_answer() -> None:
    assert "raised SystemExit" in judged(lambda n: sys.exit(1))


def test_a_result_instead_of_a_function_is_named() -> None:
    assert "should be a function, not int" in judged(3)


def test_an_endless_answer_is_stopped() -> None:
    rounds = [0]

    def endless(n: int) -> None:
        while True:
            rounds[0] += 1

    start = time.monotonic()
    assert "did not finish within 0.3 s" in judged(endless, limit_s=0.3)
    assert time.monotonic() - start < 3
    time.sleep(0.1)
    seen = rounds[0]
    time.sleep(0.2)
    assert rounds[0] == seen, "the answer's thread goes on"
    assert not [thread for thread in threading.enumerate() if thread.name == "check demo"]


def test_a_failing_judge_is_not_a_crash() -> None:
    def judge(answer: Any) -> str:
        raise NotYet("because of this.")

    assert repr(judge_within(Exercise("e", "E", judge), 1, 1.0)) == "e: not yet: because of this."


def test_unknown_exercise_suggests_the_nearest() -> None:
    with pytest.raises(UnknownExerciseError, match="Did you mean '00-saxpy'"):
        check("saxpy", None)


def test_passing_is_remembered_and_a_later_slip_does_not_undo_it() -> None:
    assert not progress().exercises["00-blocks"]
    assert check("00-blocks", lambda n, threads: -(-n // threads))
    assert progress().exercises["00-blocks"]
    assert not check("00-blocks", lambda n, threads: n // threads)
    assert progress().exercises["00-blocks"]
    assert repr(progress()).startswith("Progress: 1 of ")
