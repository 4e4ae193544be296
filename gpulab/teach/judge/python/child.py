"""The process in which `apart` judges a Python answer: ``python -m gpulab.teach.judge.python.child``."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import os
import pickle
import sys

from gpulab.teach.judge.exercise import NotYet, ProgramExercise
from gpulab.teach.judge.python.apart import READY, Told
from gpulab.teach.judge.python.functions import unexpected

_LONGEST = 600  # a value in a message may be of any size


def main() -> None:
    """Read an exercise and an answer, judge, tell."""
    sent = sys.stdin.buffer.read()
    # From here on the answer's output and input are its own; only `told` leads to the judge.
    told = os.dup(1)
    os.dup2(2, 1)
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    os.write(told, READY)
    try:
        verdict = judge(sent)
    except NotYet as reason:
        text = str(reason)
        verdict = Told(False, text if len(text) <= _LONGEST else f"{text[:_LONGEST]}…")
    except SystemExit as error:
        verdict = Told(
            False, f"it calls exit({'' if error.code is None else error.code}), which would end Python."
        )
    except BaseException as error:
        verdict = Told(False, unexpected(error))
    status = 1
    with contextlib.suppress(Exception):  # an answer may have closed or changed anything
        sys.stdout.flush()
    with contextlib.suppress(Exception):
        os.write(told, json.dumps(dataclasses.asdict(verdict)).encode() + b"\n")
        status = 0
    os._exit(status)  # threads that the answer left behind do not matter


def judge(sent: bytes) -> Told:
    """The verdict on what was sent."""
    import gpulab.course

    folders, *pickled = pickle.loads(sent)
    gpulab.course.__path__[:] = folders
    if b"cupy" in sent:
        _let_cupy_be_found()
    exercise, answer = map(pickle.loads, pickled)
    if isinstance(exercise, ProgramExercise):
        from gpulab.teach.judge.python.programs import judge_program

        return judge_program(exercise, answer)
    return Told(True, exercise.judge(answer))


def _let_cupy_be_found() -> None:
    """What an answer calls cupy is the virtual GPU's, where that is in use."""
    import virtualgpu
    from gpulab import session

    if session.real_cp() is None:
        virtualgpu.as_cupy()


if __name__ == "__main__":
    main()
