"""The processes that Python answers are judged in."""

from __future__ import annotations

import os
import signal
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from gpulab.teach.judge import PythonExercise
from gpulab.teach.judge.python import processes
from gpulab.teach.judge.python.apart import judge_apart
from gpulab.teach.judge.python.processes import Process

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="forks on Linux only")


def answer_of(answer: Any) -> str:
    return str(answer())


def judged(answer: Any) -> str:
    return judge_apart(PythonExercise("00-demo", "Demo", answer_of), answer).message


def test_a_process_has_the_environment_and_the_folder_of_now(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Any
) -> None:
    judged(lambda: 0)
    monkeypatch.setenv("GPULAB_TEST_VARIABLE", "as of now")
    monkeypatch.chdir(tmp_path)
    seen = judged(lambda: (os.environ["GPULAB_TEST_VARIABLE"], str(Path.cwd())))
    assert seen == str(("as of now", str(tmp_path)))


def test_what_one_answer_changes_the_next_does_not_see() -> None:
    def change() -> str:
        first = "json" in vars(os)
        os.json = 1  # type: ignore[attr-defined]
        return f"{first} {os.getpid()} {os.getsid(0)}"

    first, second = judged(change).split(), judged(change).split()
    assert first[0] == second[0] == "False"
    assert first[1:] != second[1:]
    assert first[1] == first[2]  # its own session, so that Ctrl-C and the end of it are its own


def test_it_is_forked_anew_where_the_first_process_was_ended() -> None:
    begun = int(judged(lambda: os.getppid()))
    assert begun != os.getpid()
    line = processes._server(os.getpid())
    line.shutdown(2)  # it ends as its line does
    assert judged(lambda: "still judged") == "still judged"


def test_where_none_can_be_forked_one_is_started(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(processes, "_forked", lambda environment: None)
    assert judged(lambda: "started") == "started"


@pytest.mark.parametrize("ended", [signal.SIGKILL, signal.SIGSEGV])
def test_the_status_is_the_signal_that_ended_it(ended: int) -> None:
    said = judged(lambda: os.kill(os.getpid(), ended))
    assert f"it crashed Python ({signal.Signals(ended).name})" in said


def test_killing_it_ends_what_it_has_started() -> None:
    process = Process(dict(os.environ))
    try:
        assert process.poll() is None
        process.kill()
        until = time.monotonic() + 5
        while Path(f"/proc/{process.pid}").exists() and time.monotonic() < until:
            time.sleep(0.01)
        assert not Path(f"/proc/{process.pid}").exists()
        assert process.poll() == -signal.SIGKILL
    finally:
        for pipe in (process.stdin, process.stdout, process.stderr):
            pipe.close()
