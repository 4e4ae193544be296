"""Send requests to another process and receive replies, with limits on time, memory and output."""

from __future__ import annotations

import contextlib
import os
import re
import select
import signal
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from typing import IO, Any, Self

from gpulab.processes import child, values
from gpulab.processes.errors import ProcessError
from gpulab.processes.process import Process
from gpulab.processes.tree import MAX_PROCESSES, ResourceMeter

MAX_MEMORY_BYTES = 3 << 30
_MAX_SHOWN_BYTES = 8192
_MAX_PRINTED_BYTES = 256 << 20
_CHECK_INTERVAL_S = 0.02
_MAX_START_S = 60.0  # limit on the start of the process, which a busy machine can delay
_WAIT_FACTOR = 2  # a waiting answer may take this multiple of its processor time limit
MAX_ELAPSED_S = 20.0  # limit on the elapsed time, however busy the machine is
_CHUNK_BYTES = 1 << 16
_CONTROL_CHARACTERS = re.compile(r"\x1b\[[\d;]*[A-Za-z]|[\x00-\x08\x0b-\x1f\x7f]")


class RequestProcess:
    """A process with resource limits that executes requests.

    Parameters
    ----------
    device
        The device that the process uses, in the notation of ``GPULAB_DEVICE``.
    limit_s
        Limit on the processor time of the process and its descendants together.
    max_elapsed_s
        Limit on the elapsed time, however busy the machine is.
    memory_bytes
        Limit on the memory of the process and its descendants together.
    kept_bytes
        Number of printed bytes that are kept.
    environment_variables
        Additional environment variables.
    modules
        Additional modules that the process needs, loaded once for all processes.
    """

    def __init__(
        self,
        device: str,
        limit_s: float,
        max_elapsed_s: float | None = None,
        memory_bytes: int | None = None,
        kept_bytes: int = _MAX_SHOWN_BYTES,
        environment_variables: Mapping[str, str] | None = None,
        modules: Sequence[str] = (),
    ) -> None:
        environment = os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
        environment |= {"GPULAB_DEVICE": device, **(environment_variables or {})}
        self._limit_s = limit_s
        self._max_elapsed_s = max_elapsed_s or MAX_ELAPSED_S
        self._memory_bytes = memory_bytes or MAX_MEMORY_BYTES
        self._nonce = os.urandom(child.NONCE_BYTES)
        self._process = Process(environment, modules)
        self._resource_meter = ResourceMeter(self._process.top_pid)
        self._printed_output = _PrintedOutput(self._process.stderr, kept_bytes)
        self._received_bytes = bytearray()
        self._last_printed_bytes = 0
        self._elapsed_s = self._waited_s = self._initial_cpu_s = 0.0
        self._has_limits = False
        self._next_check_interval_s = _CHECK_INTERVAL_S
        os.set_blocking(self._process.stdin.fileno(), False)
        os.set_blocking(self._process.stdout.fileno(), False)

    def __enter__(self) -> Self:
        try:
            self._exchange("", self._nonce)
            self.begin_limits()
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self._process.kill()
        for pipe in (self._process.stdin, self._process.stdout):
            with contextlib.suppress(OSError):
                pipe.close()

    def begin_limits(self) -> None:
        """Begin to apply the resource limits. Time and memory that were used before this call do not
        count.
        """
        self._initial_cpu_s = self._resource_meter.measure_use(self._memory_bytes).cpu_s
        self._has_limits = True
        self._elapsed_s = 0.0
        self._waited_s = 0.0

    def set_limits(self, limit_s: float, max_elapsed_s: float, memory_bytes: int) -> None:
        """Change the resource limits. The new limits apply from now on."""
        self._limit_s = limit_s
        self._max_elapsed_s = max_elapsed_s
        self._memory_bytes = memory_bytes
        self.begin_limits()

    def ask(
        self,
        call_text: str,
        function: Callable[..., Any],
        *arguments: Any,
        back: Callable[..., Any] | None = None,
    ) -> Any:
        """Call ``function(subject, *arguments)`` in the process, and return its result as plain data.

        If `back` is given, the function also receives `asks`, which calls `back` in this process.

        Raises
        ------
        ProcessError
            With the error of the answer, or the reason why it was ended; `call_text` is the text of the call.
        """
        import cloudpickle

        request: Any = (function, back is not None, *arguments)
        while True:
            pickled_request = cloudpickle.dumps(request)
            length_header = len(pickled_request).to_bytes(child.LENGTH_BYTES, "big")
            match values.decode(self._exchange(call_text, length_header + pickled_request)):
                case ("asks", tuple(question)) if back is not None:
                    request = _call_back(back, question)
                case ("value", value):
                    return value
                case ("raised", str(message)):
                    message = f"{call_text} {message.removeprefix('it ')}" if call_text else message
                    raise ProcessError(_make_printable(message))
                case ("not yet", str(message)):
                    raise ProcessError(_make_printable(message))
                case _:
                    raise values.DamagedBytesError("no reply")

    def _exchange(self, function_text: str, request: bytes) -> bytes:
        """Send bytes, check the limits while the process works, and return its reply."""
        unsent_bytes = memoryview(request)
        last_check_s = time.monotonic()
        request_fd = self._process.stdin.fileno()
        reply_fd = self._process.stdout.fileno()
        while True:
            if (reply := self._take_reply()) is not None:
                self._elapsed_s += time.monotonic() - last_check_s
                return reply
            readable_files, writable_files, _ = select.select(
                [reply_fd], [request_fd] if unsent_bytes else [], [], _CHECK_INTERVAL_S
            )
            if writable_files:
                try:
                    unsent_bytes = unsent_bytes[os.write(request_fd, unsent_bytes[:_CHUNK_BYTES]) :]
                except BlockingIOError:
                    pass
                except OSError:
                    unsent_bytes = memoryview(b"")  # the process has ended, as the read below shows
            if readable_files:
                chunk = os.read(reply_fd, _CHUNK_BYTES)
                if not chunk:
                    raise ProcessError(self._explain_end())
                self._received_bytes += chunk
                continue  # the process has replied, so that it is not waiting
            now_s = time.monotonic()
            if now_s - last_check_s >= self._next_check_interval_s:
                self._check_limits(now_s - last_check_s, function_text)
                last_check_s = now_s
                # A process with thousands of threads is checked less often.
                self._next_check_interval_s = max(_CHECK_INTERVAL_S, 5 * (time.monotonic() - now_s))

    def _take_reply(self) -> bytes | None:
        """Return the next complete reply among the received bytes, or None."""
        header_length = child.NONCE_BYTES + child.LENGTH_BYTES
        nonce = self._received_bytes[: child.NONCE_BYTES]
        if nonce != self._nonce[: len(nonce)]:
            raise values.DamagedBytesError("no reply")
        if len(self._received_bytes) < header_length:
            return None
        reply_length = int.from_bytes(self._received_bytes[child.NONCE_BYTES : header_length], "big")
        if reply_length > values.MAX_VALUE_BYTES:
            raise values.DamagedBytesError("the reply is too long")
        if len(self._received_bytes) < header_length + reply_length:
            return None
        reply = bytes(self._received_bytes[header_length : header_length + reply_length])
        del self._received_bytes[: header_length + reply_length]
        return reply

    def _check_limits(self, elapsed_s: float, function_text: str) -> None:
        """End the process if it exceeds a limit."""
        resource_use = self._resource_meter.measure_use(self._memory_bytes)
        location_text = f" (in {function_text})" if function_text else ""
        if resource_use.process_count > MAX_PROCESSES:
            raise ProcessError(
                f"it has started more than {MAX_PROCESSES} processes{location_text}. End the processes that "
                "you start, or start none."
            )
        if resource_use.memory_bytes > self._memory_bytes:
            raise ProcessError(
                f"it takes more than {self._memory_bytes / (1 << 30):g} GiB of memory{location_text}. Look "
                "for a list that keeps growing."
            )
        self._elapsed_s += elapsed_s
        if not self._has_limits:
            if self._elapsed_s > _MAX_START_S:
                raise ProcessError(
                    "the check could not start in time, because this computer is very busy. Try again."
                )
            return
        if resource_use.is_waiting and self._printed_output.byte_count == self._last_printed_bytes:
            self._waited_s += elapsed_s
        self._last_printed_bytes = self._printed_output.byte_count
        if self._last_printed_bytes > _MAX_PRINTED_BYTES:
            raise ProcessError(
                f"it prints more than {_MAX_PRINTED_BYTES >> 20} MiB{location_text}. Print less, and look "
                "for an infinite loop."
            )
        used_cpu_s = resource_use.cpu_s - self._initial_cpu_s
        if used_cpu_s > self._limit_s:
            raise ProcessError(
                f"it takes longer than {self._limit_s:g} s of processor time{location_text}. Look for a loop "
                "that does too much or never ends."
            )
        if self._waited_s > self._limit_s * _WAIT_FACTOR:
            raise ProcessError(
                f"it waits{location_text}: for {self._waited_s:.0f} s it computed almost nothing. "
                "Look for a sleep(), or for a wait that never ends."
            )
        if self._elapsed_s > self._max_elapsed_s:
            raise ProcessError(
                f"it did not finish within {self._max_elapsed_s:g} s{location_text}, and this busy "
                f"computer gave it only {used_cpu_s:.1f} s of processor time. Try again when "
                "the computer is less busy."
            )

    def _explain_end(self) -> str:
        """Return a sentence about why the process has ended by itself."""
        deadline_s = time.monotonic() + 1
        while (exit_status := self._process.poll()) is None and time.monotonic() < deadline_s:
            time.sleep(0.001)
        if exit_status in (None, child.EXIT_CONNECTION_CLOSED):
            return "it closed the connection to the check. Close only file descriptors that you opened."
        if exit_status < 0:
            return f"it crashed Python ({signal.Signals(-exit_status).name})."
        return (
            f"it ended Python with status {exit_status} before it returned. Remove exit() and similar calls."
        )

    def end_and_read_output(self) -> tuple[str, int]:
        """End the process. Return the first lines that the process printed and the total number of printed
        lines.
        """
        self._process.kill()
        self._printed_output.thread.join(1)
        return _CONTROL_CHARACTERS.sub(
            "", self._printed_output.first_bytes.decode(errors="replace")
        ), self._printed_output.line_count


def _call_back(function: Callable[..., Any], arguments: tuple[Any, ...]) -> tuple[bool, Any]:
    """Call the parent's function; return whether it raised an error, and the error or the result."""
    try:
        return False, function(*arguments)
    except (ValueError, TypeError) as error:
        return True, error


def _make_printable(text: str) -> str:
    """Return text from an answer on one line, without characters that terminals or files cannot show."""
    return "".join(letter if letter.isprintable() else " " for letter in text)


class _PrintedOutput:
    """A thread that reads the output of a process, so that the pipe never fills. It keeps the first bytes and
    counts all bytes and lines.
    """

    def __init__(self, pipe: IO[bytes], kept_bytes: int) -> None:
        self.first_bytes = b""
        self._kept_bytes = kept_bytes
        self.byte_count = self.line_count = 0
        self.thread = threading.Thread(target=self._read_pipe, args=(pipe,), daemon=True)
        self.thread.start()

    def _read_pipe(self, pipe: IO[bytes]) -> None:
        with contextlib.suppress(OSError, ValueError), pipe:
            while chunk := os.read(pipe.fileno(), _CHUNK_BYTES):
                self.byte_count += len(chunk)
                self.line_count += chunk.count(b"\n")
                self.first_bytes += chunk[: self._kept_bytes - len(self.first_bytes)]
