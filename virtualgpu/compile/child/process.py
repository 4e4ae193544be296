"""Client of the NVRTC process; it starts a new process after the old one has ended."""

from __future__ import annotations

import atexit
import contextlib
import json
import os
import subprocess
import sys
import threading
from typing import Any

from virtualgpu.compile.child import server


class CompilerEndedError(Exception):
    """Error raised when a compiler process ends during a request."""


class Compiler:
    """A connection to a compiler process. Requests from several threads are processed one after another."""

    def __init__(self) -> None:
        self._reset()

    def _reset(self) -> None:
        """Forget the process, because a forked Python process must not use its parent's compiler process."""
        self._lock = threading.Lock()
        self._process: subprocess.Popen[bytes] | None = None
        self._was_interrupted = False

    def send(self, library_path: str, request: dict[str, Any]) -> tuple[dict[str, Any], list[bytes]]:
        """Send a request to the compiler process, and return its reply and the compiled images.

        Raises
        ------
        CompilerEndedError
            If the process ends without a reply.
        InterruptedError
            If it was ended by `interrupt`.
        OSError
            If no process can be started.
        """
        request_bytes = json.dumps(request).encode() + b"\n"
        with self._lock:
            self._was_interrupted = False
            process = self._ensure_running(library_path)
            assert process.stdin is not None
            assert process.stdout is not None
            try:
                process.stdin.write(request_bytes)
                process.stdin.flush()
                reply_line = process.stdout.readline()
                if not reply_line.endswith(b"\n"):
                    raise BrokenPipeError
                reply = json.loads(reply_line)
                images = [process.stdout.read(size) for size in reply.get("sizes", ())]
            except (BrokenPipeError, ValueError):
                self.stop()
                if self._was_interrupted:
                    raise InterruptedError from None
                raise CompilerEndedError from None
            if "over" in reply:
                self.stop()
            return reply, images

    def _ensure_running(self, library_path: str) -> subprocess.Popen[bytes]:
        if self._process is None or self._process.poll() is not None:
            self.stop()
            self._process = subprocess.Popen(
                [sys.executable, "-I", "-S", server.__file__, library_path],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
            )
        return self._process

    def interrupt(self) -> None:
        """End the compiler process, because no caller waits for its reply any more."""
        self._was_interrupted = True
        self.stop()

    def stop(self) -> None:
        """End the compiler process, even if it is handling a request. The next request starts a new
        process.
        """
        process = self._process
        self._process = None
        if process is not None:
            process.kill()
            process.wait()
            for pipe in (process.stdin, process.stdout):
                with contextlib.suppress(OSError, ValueError):
                    if pipe is not None:
                        pipe.close()


compiler = Compiler()
atexit.register(compiler.stop)
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=compiler._reset)
