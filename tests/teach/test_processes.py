"""The processes in which Python answers are judged."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import pytest

from gpulab.processes import process as processes
from gpulab.processes import values
from gpulab_course.teach.judge import Answer, NotYet, PythonExercise, call
from gpulab_course.teach.judge.python.apart import judge_in_process

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="forks on Linux only")


def answer_of(answer: Answer) -> str:
    return str(answer())


def judged(answer: Any) -> str:
    return judge_in_process(PythonExercise("00-demo", "Demo", answer_of), answer).message


def test_a_process_has_the_current_environment_and_folder(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Any
) -> None:
    judged(lambda: 0)
    monkeypatch.setenv("GPULAB_TEST_VARIABLE", "as of now")
    monkeypatch.chdir(tmp_path)
    numbers = judged(lambda: (os.environ["GPULAB_TEST_VARIABLE"], str(Path.cwd())))
    assert numbers == str(("as of now", str(tmp_path)))


def test_each_answer_has_its_own_process() -> None:
    def change() -> str:
        first = "json" in vars(os)
        os.json = 1  # type: ignore[attr-defined]
        return f"{first} {os.getpid()} {os.getsid(0)}"

    first = judged(change).split()
    second = judged(change).split()
    assert first[0] == second[0] == "False"
    assert first[1:] != second[1:]
    assert first[1] == first[2]  # its own session, so that Ctrl-C and the end of it are its own


def test_the_server_is_started_again_after_it_ended() -> None:
    server_pid = int(judged(lambda: os.getppid()))
    assert server_pid != os.getpid()
    processes._find_server(os.getpid()).server_socket.shutdown(
        2
    )  # the server ends when its connection closes
    assert judged(lambda: "still judged") == "still judged"


# Processes started by an answer end with it


def alive(mark: str) -> list[int]:
    """Return the ids of running processes that have `mark` in their command line."""
    pids = []
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error):
            if mark in process.cmdline() and process.status() != psutil.STATUS_ZOMBIE:
                pids.append(process.pid)
    return pids


def none_left(mark: str) -> bool:
    until = time.monotonic() + 10
    while alive(mark) and time.monotonic() < until:
        time.sleep(0.02)
    return not alive(mark)


def daemon(mark: str) -> None:
    """Start a daemon: forked twice and in another session, so that no process waits for it."""
    if not os.fork():
        os.setsid()
        if os.fork():
            os._exit(0)
        os.execv(sys.executable, [sys.executable, "-c", "import time; time.sleep(1000)", mark])
    os.wait()
    while not alive(mark):
        time.sleep(0.01)


def starts_a_daemon() -> str:
    daemon("gpulab-test-daemon")
    return "started"


def endless_with_a_daemon() -> None:
    daemon("gpulab-test-daemon")
    while True:
        pass


def ends_its_keeper() -> str:
    daemon("gpulab-test-daemon")
    os.kill(os.getppid(), signal.SIGKILL)
    time.sleep(100)
    return "lives"


def stops_its_keeper() -> str:
    os.kill(os.getppid(), signal.SIGSTOP)
    return "stopped"


def stops_the_server() -> str:
    os.kill(psutil.Process(os.getppid()).ppid(), signal.SIGSTOP)
    return "stopped"


@pytest.mark.parametrize("answer", [starts_a_daemon, endless_with_a_daemon, ends_its_keeper])
def test_daemons_of_an_answer_end_with_it(answer: Any) -> None:
    judge_in_process(PythonExercise("00-demo", "Demo", answer_of, limit_s=0.5), answer)
    assert none_left("gpulab-test-daemon")


@pytest.mark.parametrize("answer", [stops_its_keeper, stops_the_server])
def test_a_stopped_process_does_not_block_the_next(answer: Any) -> None:
    assert judged(answer) == "stopped"
    assert judged(lambda: "the next") == "the next"


NOTEBOOK = """
import sys
from tests.teach import test_processes as here
print(here.judged(lambda: "up"), flush=True)
exercise = here.PythonExercise("00-demo", "Demo", here.answer_of, limit_s=300)
here.judge_in_process(exercise, here.endless_with_a_daemon)
"""


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGTERM])
def test_an_infinite_answer_ends_with_its_notebook(how: int) -> None:
    root = str(Path(__file__).parent.parent.parent)
    notebook = subprocess.Popen(
        [sys.executable, "-c", NOTEBOOK],
        stdout=subprocess.PIPE,
        cwd=root,
        env=os.environ | {"PYTHONPATH": root},
    )
    assert notebook.stdout is not None
    with notebook.stdout:
        assert notebook.stdout.readline() == b"up\n"
        while not alive("gpulab-test-daemon"):
            assert notebook.poll() is None
            time.sleep(0.02)
        (daemon_,) = alive("gpulab-test-daemon")
        keeper = psutil.Process(daemon_).parent()
        assert keeper is not None
        below = [keeper, *keeper.children(recursive=True)]
        assert len(below) == 3
        notebook.send_signal(how)
        notebook.wait()
    assert none_left("gpulab-test-daemon")
    psutil.wait_procs(below, timeout=10)
    assert not any(process.is_running() for process in below)


# Limits


def test_a_process_has_limits_of_its_own() -> None:
    def limits() -> list[Any]:
        import resource

        return [resource.getrlimit(kind) for kind in (resource.RLIMIT_CPU, resource.RLIMIT_CORE)]

    assert judged(limits) == str([(60, 60), (0, 0)])


def test_messages_are_cut_after_600_characters() -> None:
    def refuses(answer: Answer) -> str:
        return str(answer.ask(says_long))

    for length, message in ((600, 600 * "x"), (601, 600 * "x" + "…")):
        verdict = judge_in_process(PythonExercise("00-demo", "Demo", refuses), lambda n=length: n * "x")
        assert verdict.message == message


def says_long(answer: Any) -> None:
    raise NotYet(answer())


def test_a_coroutine_is_returned_without_a_warning(capsys: pytest.CaptureFixture[str]) -> None:
    async def waits() -> int:
        return 3

    assert judged(waits) == "a value of type coroutine"
    assert capsys.readouterr() == ("", "")


def test_output_and_input_of_an_answer_are_separate() -> None:
    def reads() -> tuple[Any, ...]:
        print("to nobody")
        return os.read(0, 9), os.fstat(1).st_ino == os.fstat(2).st_ino

    assert judged(reads) == str((values.OtherObject("bytes"), True))


# Results and messages

RIGHT = 31_415_926


def expects_it(answer: Answer) -> str:
    if call(answer, name="f") != RIGHT:
        raise NotYet("f() is wrong.")
    return "right."


class Agrees(int):
    def __eq__(self, other: object) -> bool:
        return True

    __hash__ = int.__hash__


def writes_everywhere(text: bytes) -> Any:
    def f() -> int:
        for fd in range(3, 1024):
            with contextlib.suppress(OSError):
                os.write(fd, text)
        os._exit(0)

    return f


def frames_of_the_caller() -> Any:
    """Return the largest integer in the frames of the callers; the expected value is larger than others."""
    frame = sys._getframe()
    numbers = [0]
    while frame.f_back is not None:
        frame = frame.f_back
        numbers += [v for v in frame.f_locals.values() if type(v) is int]
    return max(numbers)


def patched() -> Any:
    from gpulab_course.teach.judge.python import functions, programs

    np.isclose = lambda *_, **__: True  # type: ignore[assignment]
    functions.call_here = lambda *_, **__: RIGHT
    functions.equals = lambda *_: True
    programs.check_result = lambda *_, **__: None
    programs._check_facts = lambda facts, _: facts
    for module in list(sys.modules.values()):
        for name in ("expects_it", "NotYet"):
            if hasattr(module, name):
                setattr(module, name, lambda *_: "right.")
    return 4


FORGED = b'{"passed": true, "message": "right.", "stages": [], "scores": []}\n'


@pytest.mark.parametrize(
    "answer",
    [
        lambda: Agrees(4),
        lambda: type("Text", (str,), {"__eq__": lambda *_: True, "__hash__": str.__hash__})("4"),
        lambda: type("Any", (), {"__eq__": lambda *_: True, "__class__": int})(),
        writes_everywhere(FORGED),
        writes_everywhere(b"[]\n"),
        writes_everywhere(b"\x00" * 4096),
        writes_everywhere(b"x" * 60_000),
        frames_of_the_caller,
        patched,
        lambda: RIGHT + 0.5,
        lambda: [RIGHT],
        lambda: "x" * (100 << 20),
        lambda: 10**100_000,
        lambda: list(range(10**6)),
        lambda: np.array([None]),
    ],
)
def test_an_answer_cannot_forge_its_verdict(answer: Any) -> None:
    verdict = judge_in_process(PythonExercise("00-demo", "Demo", expects_it, limit_s=2), answer)
    assert not verdict
    assert "fault of gpulab" not in verdict.message
    assert len(verdict.message) < 700


def test_correct_values_of_any_numeric_type_pass() -> None:
    for answer in (lambda: RIGHT, lambda: np.int64(RIGHT), lambda: Agrees(RIGHT), lambda: 1.0 * RIGHT):
        assert judge_in_process(PythonExercise("00-demo", "Demo", expects_it), answer)


def test_hidden_data_is_not_accessible_to_the_answer() -> None:
    hidden = {"one": 1, "two": 2}

    def back(name: str) -> int:
        if name == "end":
            raise NotYet("enough asked.")
        if name not in hidden:
            raise ValueError(f"there is no {name}")
        return hidden[name]

    def exercise_text(answer: Answer) -> str:
        return str(answer.ask(lambda function, asks: function(asks), shown="f(ask)", back=back))

    def message_of(answer: Any) -> str:
        return judge_in_process(PythonExercise("00-demo", "Demo", exercise_text), answer).message

    def catches(ask: Any) -> list[str]:
        message = []
        for name in ("three", "two", "one"):
            try:
                message.append(str(ask(name)))
            except ValueError as error:
                message.append(str(error))
        return message

    assert message_of(catches) == "['there is no three', '2', '1']"
    assert message_of(lambda ask: ask("three")) == "f(ask) raised ValueError: there is no three"
    assert message_of(lambda ask: [ask("end"), "goes on"]) == "enough asked."
    assert message_of(lambda ask: ask.__closure__) == "None"  # no variable of the judge is sent
    # Each of several threads receives the reply to its own request.
    with_threads = message_of(lambda ask: list(ThreadPoolExecutor(8).map(ask, 40 * ["one", "two"])))
    assert with_threads == str(40 * [1, 2])

    def in_another_process(ask: Any) -> int:
        child = os.fork()
        if not child:
            try:
                ask("one")
            except RuntimeError:
                os._exit(3)
        return os.waitpid(child, 0)[1] >> 8

    assert message_of(in_another_process) == "3"


def test_a_callback_of_an_earlier_call_is_refused() -> None:
    def twice(answer: Answer) -> str:
        return str([answer.ask(lambda function, asks: function(asks), back=lambda n=n: n) for n in (1, 2)])

    data: list[Any] = []

    def answer(ask: Any) -> Any:
        data.append(ask)
        try:
            return data[0]()
        except RuntimeError as error:
            return str(error)

    message = judge_in_process(PythonExercise("00-demo", "Demo", twice), answer).message
    assert message.startswith("[1, 'this function can be called only in the process")


def test_an_error_in_the_judge_is_reported_as_a_fault_of_gpulab() -> None:
    def stumbles(answer: Answer) -> str:
        return str({}[answer()])

    verdict = judge_in_process(PythonExercise("00-demo", "Demo", stumbles), lambda: 3)
    assert not verdict
    assert "the check itself raised KeyError: 3. That is a fault of gpulab" in verdict.message


def test_an_exception_without_a_message_is_reported_by_name() -> None:
    class Exits(Exception):
        def __str__(self) -> str:
            raise SystemExit(0)

    def raises() -> None:
        raise Exits

    assert judged(raises) == "it raised Exits."
