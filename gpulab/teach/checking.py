"""Exercise checks: run the learner's answer on several inputs, and say why it is not yet right.

A check never raises and never hangs: the answer runs in a watched thread, and whatever it does wrong
comes back as a sentence that names the smallest failing case.
"""

from __future__ import annotations

import ctypes
import threading
import time
from dataclasses import dataclass
from typing import Any

from gpulab.teach import folders, page
from gpulab.teach.exercise import Exercise, NotYet, unexpected
from gpulab.teach.first_lines import first_lines
from gpulab.teach.store import store
from virtualgpu.errors import GpulabError, did_you_mean

TIME_LIMIT_S = 30.0
_POLL_S = 0.05
_SECTION = "exercises"


class _Abandoned(BaseException):
    """Thrown into the thread of an answer that ran past its time."""


@dataclass(frozen=True, slots=True)
class Verdict:
    """What a check found. True in a boolean context if the answer passed."""

    exercise_id: str
    passed: bool
    message: str

    def __bool__(self) -> bool:
        return self.passed

    def __repr__(self) -> str:
        return f"{self.opening} {self.message}"

    @property
    def opening(self) -> str:
        return f"{self.exercise_id}: {'passed' if self.passed else 'not yet'}:"

    def _repr_html_(self) -> str:
        return page.verdict_page(self.opening, self.message, self.passed)


class UnknownExerciseError(GpulabError, ValueError):
    """An exercise that does not exist; the message names the nearest."""


def check(exercise_id: str, answer: Any) -> Verdict:
    """Try `answer` on the inputs of an exercise, edge cases included.

    Parameters
    ----------
    exercise_id
        The exercise's name in the notebook, such as ``"00-saxpy"``.
    answer
        What the exercise asks for: a kernel (``cp.RawKernel`` or its CUDA C++ text), a function
        or a value.

    Returns
    -------
    Verdict
        ``passed`` and a sentence. A wrong, crashing or endless answer is a verdict, not an error.

    Raises
    ------
    UnknownExerciseError
        If there is no such exercise.
    """
    exercise = folders.exercise(exercise_id)
    if exercise is None:
        names = folders.exercises()
        raise UnknownExerciseError(
            f"There is no exercise {exercise_id!r}.{did_you_mean(exercise_id, names)} "
            f"Exercises: {', '.join(names)}."
        )
    with first_lines():
        verdict = judge_within(exercise, answer, TIME_LIMIT_S)
    if verdict.passed or not store().get(_SECTION, exercise_id):
        store().put(_SECTION, exercise_id, verdict.passed)
    return verdict


def judge_within(exercise: Exercise, answer: Any, limit_s: float) -> Verdict:
    """Judge `answer` in a thread of its own and give up after `limit_s` seconds."""

    def not_yet(message: str) -> Verdict:
        return Verdict(exercise.exercise_id, False, message)

    if answer is None or answer is ...:
        return not_yet("nothing to check; replace the TODO with your answer.")
    box: list[Verdict] = []

    def work() -> None:
        try:
            box.append(Verdict(exercise.exercise_id, True, exercise.judge(answer)))
        except NotYet as reason:
            box.append(not_yet(str(reason)))
        except _Abandoned:
            pass
        except BaseException as error:
            # sys.exit() in an answer is a wrong answer, too.
            box.append(not_yet(unexpected(error)))

    thread = threading.Thread(target=work, name=f"check {exercise.exercise_id}", daemon=True)
    thread.start()
    deadline = time.monotonic() + limit_s
    try:
        while thread.is_alive() and time.monotonic() < deadline:
            thread.join(_POLL_S)
    except KeyboardInterrupt:
        _abandon(thread)
        return not_yet("you stopped the check.")
    if thread.is_alive():
        _abandon(thread)
        return not_yet(f"it did not finish within {limit_s:g} s; look for a loop that never ends.")
    return box[0]


def _abandon(thread: threading.Thread) -> None:
    # The only way to end a Python loop in another thread; it acts at the next bytecode.
    if thread.ident is not None:
        ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(thread.ident), ctypes.py_object(_Abandoned))
        thread.join(0.5)
