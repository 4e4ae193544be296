"""Python answers are judged in a process of their own: whatever they do there, the notebook lives on."""

from __future__ import annotations

import contextlib
import json
import os
import pickle
import re
import signal
import sys
import threading
import time
from dataclasses import dataclass, replace
from typing import IO, Any

import psutil

import gpulab.course
from gpulab import session
from gpulab.teach.judge.budget import Score
from gpulab.teach.judge.exercise import ProgramExercise, PythonExercise
from gpulab.teach.judge.python.processes import Process
from gpulab.teach.judge.verdict import StageResult, Verdict
from virtualgpu.errors import UnknownDeviceError

MEMORY_BYTES = 3 << 30
SHOWN_LINES = 20
_SHOWN_BYTES = 8192
_SENT_BYTES = 256 << 20
_POLL_S = 0.02
_START_S = 60.0  # until the process stands; a busy machine may take long
_PATIENCE = 4  # an answer that does not compute, but waits, has so many times its seconds
READY = b"ready\n"
_CONTROL = re.compile(r"\x1b\[[\d;]*[A-Za-z]|[\x00-\x08\x0b-\x1f\x7f]")


def judge_apart(exercise: PythonExercise | ProgramExercise, answer: Any) -> Verdict:
    """Judge a Python answer in a process of its own, and a program on a real GPU as well, if there is one.

    An answer that does not end, takes too much memory or ends Python is a verdict, not an error; Ctrl-C
    stops the check.
    """
    verdict = _judged(exercise, answer, _virtual_device())
    if not verdict or not isinstance(exercise, ProgramExercise) or session.real_cp() is None:
        return verdict
    choice = session.which_device()
    real = _judged(exercise, answer, f"cuda:{choice.index}")
    if real:
        first = replace(verdict.stages[0], said=f"{verdict.stages[0].said} The same on the {choice.device}.")
        return replace(verdict, stages=(first, *verdict.stages[1:]))
    return replace(real, message=f"on the {choice.device}: {real.message}")


def _judged(exercise: PythonExercise | ProgramExercise, answer: Any, device: str) -> Verdict:
    import cloudpickle

    def not_yet(message: str) -> Verdict:
        return Verdict(exercise.exercise_id, False, message)

    try:
        sent = pickle.dumps((list(gpulab.course.__path__), *map(cloudpickle.dumps, (exercise, answer))))
    except Exception as error:
        return not_yet(_unsendable(error))
    if len(sent) > _SENT_BYTES:
        return not_yet("it brings very large data along; make them inside the function.")
    child = _Child(sent, device)
    try:
        trouble = child.wait(exercise.limit_s)
    except KeyboardInterrupt:
        return not_yet("you stopped the check.")
    finally:
        child.end()
        child.show_printed()
    if trouble:
        return not_yet(trouble)
    try:
        told = json.loads(child.told.bytes.removeprefix(READY).splitlines()[0])
    except (ValueError, IndexError):
        return not_yet(_ended(child.process.poll() or 0))
    stages = tuple(StageResult(**stage) for stage in told["stages"])
    scores = tuple(Score(**score) for score in told["scores"])
    return Verdict(exercise.exercise_id, told["passed"], told["message"], stages, scores)


class _Child:
    """The process: its standard output is what the judge tells, its standard error what the answer prints."""

    def __init__(self, sent: bytes, device: str) -> None:
        environment = os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
        environment["GPULAB_DEVICE"] = device
        self.process = Process(environment)
        self.told = _Heard(self.process.stdout, 1 << 20)
        self.printed = _Heard(self.process.stderr, _SHOWN_BYTES)
        with contextlib.suppress(OSError), self.process.stdin as pipe:
            pipe.write(sent)

    def wait(self, limit_s: float) -> str:
        """Wait for the end; why it was not awaited, or nothing."""
        begun = time.monotonic()
        ready: tuple[float, float] | None = None
        with contextlib.suppress(psutil.Error):
            seen = psutil.Process(self.process.pid)
            while self.process.poll() is None:
                time.sleep(_POLL_S)
                now, used = time.monotonic(), sum(seen.cpu_times()[:2])
                if seen.memory_info().rss > MEMORY_BYTES:
                    return (
                        f"it takes more than {MEMORY_BYTES >> 30} GiB of memory; look for a list that grows "
                        "on and on."
                    )
                if ready is None:
                    if self.told.bytes.startswith(READY):
                        ready = now, used
                    elif now - begun > _START_S:
                        return "the check could not start in time: this computer is very busy; try again."
                elif used - ready[1] > limit_s or now - ready[0] > limit_s * _PATIENCE:
                    return f"it did not finish within {limit_s:g} s; look for a loop that never ends."
        return ""

    def end(self) -> None:
        """Stop it, with all that it has started."""
        self.process.kill()
        self.told.thread.join(5)
        self.printed.thread.join(5)

    def show_printed(self) -> None:
        """The first lines that the answer printed, and how many more there were."""
        text = _CONTROL.sub("", self.printed.bytes.decode(errors="replace"))
        lines = text.splitlines()[:SHOWN_LINES]
        if lines:
            print("\n".join(lines))
        left_out = self.printed.lines - len(lines)
        if left_out > 0:
            print(f"... {left_out:,} more lines were printed during the check.")


class _Heard:
    """What comes through a pipe: the first bytes kept, lines counted, the pipe never full."""

    def __init__(self, pipe: IO[bytes], most: int) -> None:
        self.bytes = b""
        self.lines = 0
        self.thread = threading.Thread(target=self._listen, args=(pipe, most), daemon=True)
        self.thread.start()

    def _listen(self, pipe: IO[bytes], most: int) -> None:
        with contextlib.suppress(OSError, ValueError), pipe:
            while piece := os.read(pipe.fileno(), 1 << 16):
                self.lines += piece.count(b"\n")
                self.bytes += piece[: most - len(self.bytes)]


@dataclass(frozen=True, slots=True)
class Told:
    """What the process tells: the fields of a verdict."""

    passed: bool
    message: str
    stages: tuple[StageResult, ...] = ()
    scores: tuple[Score, ...] = ()


def _virtual_device() -> str:
    name = session.which_device().device
    try:
        return f"virtual:{session.table_info(name).name}"
    except UnknownDeviceError:
        return "virtual"


def _unsendable(error: Exception) -> str:
    if isinstance(error, RecursionError | MemoryError):
        return "it holds too much to be checked; keep what it needs inside the function."
    what = str(error).splitlines()[0] if str(error) else type(error).__name__
    if isinstance(error, pickle.PicklingError | TypeError | AttributeError):
        return (
            f"it holds something that cannot leave this notebook ({what}); make streams, files, locks and "
            "the like inside the function."
        )
    return f"it cannot be checked: {what}."


def _ended(status: int) -> str:
    if status < 0:
        return f"it crashed Python ({signal.Signals(-status).name})."
    return f"it ended Python with status {status} before it returned; leave out exit() and its kin."
