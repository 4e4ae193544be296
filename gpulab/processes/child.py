"""Main program of a process that runs functions for its parent: ``python -m gpulab.processes.child``.

The process calls the functions that its parent names, and returns their results as plain data (`values`).
"""

from __future__ import annotations

import contextlib
import os
import pickle
import sys
import threading
import warnings
from collections.abc import Callable, Sequence
from typing import Any, BinaryIO

from gpulab.processes import values
from gpulab.processes.errors import ProcessError, describe_error, describe_exit

NONCE_BYTES = 16
LENGTH_BYTES = 8
EXIT_CONNECTION_CLOSED = 87  # the exit status if the connection to the parent is closed
_MAX_MESSAGE_LENGTH = 600  # because a value in a message can have any size
_FIRST_HIGH_FD = 200  # above the descriptors that an answer closes or writes to by mistake
_MAX_CPU_S = 60  # limit on the processor time of each process, in case the parent is gone


def main() -> None:
    """Read requests from the parent process, execute them, and send back the results."""
    request_file = os.fdopen(_move_to_high_fd(0), "rb")
    reply_fd = _move_to_high_fd(1)
    # From here on the answer's output and input are its own.
    os.dup2(2, 1)
    null_fd = os.open(os.devnull, os.O_RDONLY)
    os.dup2(null_fd, 0)
    _limit_resources()
    warnings.filterwarnings("ignore", "coroutine .* was never awaited")  # the verdict says so
    # NumPy warns about infinity minus infinity, which a GPU computes without a warning.
    warnings.filterwarnings("ignore", ".*(encountered|All-NaN)", RuntimeWarning)
    nonce = request_file.read(NONCE_BYTES)
    _send_reply(reply_fd, nonce, values.encode("ready"))
    last_answer: Any = None
    while request := _read_request(request_file):
        callback = _ParentCalls(request_file, reply_fd, nonce)
        try:
            function, has_callback, *arguments = pickle.loads(request)
            last_answer, reply = _execute_request(
                function, last_answer, [callback.call_parent, *arguments] if has_callback else arguments
            )
        except BaseException as error:
            reply = _make_error_reply(error)
        callback.close()
        _send_reply(reply_fd, nonce, reply)
    os._exit(0)  # threads that the answer left behind do not matter


def load_answer(_: Any, pickled: bytes) -> Any:
    """Unpickle an object, such as the answer of a learner, on which later requests operate."""
    return pickle.loads(pickled)


def return_answer(answer: Any) -> Any:
    """Return the answer of a learner unchanged. Requests call this function if the answer is a value and not
    a function.
    """
    return answer


def call_answer(answer: Any, *arguments: Any) -> Any:
    """Call the answer of a learner with the given arguments, and return its result."""
    return answer(*arguments)


class _ParentCalls:
    """An interface through which an answer calls functions of the parent process, so that hidden data stays
    there.
    """

    def __init__(self, request_file: BinaryIO, reply_fd: int, nonce: bytes) -> None:
        self._request_file = request_file
        self._reply_fd = reply_fd
        self._nonce = nonce
        self._lock = threading.Lock()
        self._process_id: int | None = os.getpid()

    def close(self) -> None:
        """Reject all later calls, so that threads of the answer cannot read replies to other requests."""
        with self._lock:
            self._process_id = None

    def call_parent(self, *arguments: Any) -> Any:
        """Call a function in the parent process with plain data. Return its result or raise its error."""
        encoded_call = values.encode(("asks", arguments))
        with self._lock:
            if os.getpid() != self._process_id:
                raise RuntimeError(
                    "this function can be called only in the process and during the call "
                    "that received it as an argument"
                )
            _send_reply(self._reply_fd, self._nonce, encoded_call)
            is_error, call_result = pickle.loads(_read_request(self._request_file))
        if is_error:
            raise call_result
        return call_result


def _execute_request(
    function: Callable[..., Any], answer: Any, arguments: Sequence[Any]
) -> tuple[Any, bytes]:
    if function is load_answer:
        answer = load_answer(answer, *arguments)
        return answer, values.encode(("value", (callable(answer), type(answer).__name__)))
    return answer, values.encode(("value", function(answer, *arguments)))


def _make_error_reply(error: BaseException) -> bytes:
    """Return a reply that describes an error of the program or of the parent's functions."""
    if isinstance(error, ProcessError):
        error_text = str(error)
        return values.encode(
            (
                "not yet",
                error_text
                if len(error_text) <= _MAX_MESSAGE_LENGTH
                else f"{error_text[:_MAX_MESSAGE_LENGTH]}…",
            )
        )
    if isinstance(error, SystemExit):
        return values.encode(("not yet", describe_exit(error)))
    if isinstance(error, values.ValueTooLargeError):
        return values.encode(("not yet", f"its result is too large to be checked: {error}."))
    return values.encode(("raised", describe_error(error)))


def _read_request(request_file: BinaryIO) -> bytes:
    return request_file.read(int.from_bytes(request_file.read(LENGTH_BYTES), "big"))


def _send_reply(reply_fd: int, nonce: bytes, reply: bytes) -> None:
    with contextlib.suppress(Exception):  # an answer may have closed or changed anything
        sys.stdout.flush()
    unsent_bytes = memoryview(nonce + len(reply).to_bytes(LENGTH_BYTES, "big") + reply)
    try:
        while unsent_bytes:
            unsent_bytes = unsent_bytes[os.write(reply_fd, unsent_bytes) :]
    except BaseException:
        os._exit(EXIT_CONNECTION_CLOSED)


def _move_to_high_fd(fd: int) -> int:
    """Duplicate a file descriptor to a high number that an answer is unlikely to use, and return it."""
    try:
        import fcntl

        return fcntl.fcntl(fd, fcntl.F_DUPFD_CLOEXEC, _FIRST_HIGH_FD)
    except (ImportError, OSError):
        return os.dup(fd)


def _limit_resources() -> None:
    """Limit the processor time, so that an infinite loop ends even if the parent is gone."""
    with contextlib.suppress(ImportError, OSError, ValueError):
        import resource

        resource.setrlimit(resource.RLIMIT_CPU, (_MAX_CPU_S, _MAX_CPU_S))
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))


if __name__ == "__main__":
    from gpulab.processes.child import main as start  # as the requests know it

    start()
