"""The process in which NVRTC runs: a request on standard input, an answer on standard output, and so on.

``python server.py LIBRARY``. It needs the standard library alone, so that it starts within moments. A request
is a line of JSON. An answer is a line of JSON and the images, whose sizes the line tells. It ends when nobody
can ask any more, and itself when a request takes more processor time or memory than it may.
"""

from __future__ import annotations

import ctypes
import json
import os
import signal
import sys
import threading
import time
from pathlib import Path
from typing import Any, BinaryIO

_POLL_S = 0.1
_MEMORY = Path("/proc/self/statm")


class Refused(Exception):
    """The source does not compile; the text is NVRTC's log."""


def compile_now(library: ctypes.CDLL, request: dict[str, Any]) -> tuple[list[bytes], str, dict[str, str]]:
    """Compile: one image a kind, the log, and the lowered name of each expression.

    Raises
    ------
    Refused
        With the log of a source that does not compile.
    RuntimeError
        If a call of NVRTC fails otherwise.
    """
    expressions = request["expressions"]
    kinds = request["kinds"]
    program = ctypes.c_void_p()
    code = request["code"].encode()
    name = request["file_name"].encode()
    _check(library, library.nvrtcCreateProgram(ctypes.byref(program), code, name, 0, None, None))
    try:
        for expression in expressions:
            _check(library, library.nvrtcAddNameExpression(program, expression.encode()))
        encoded = [option.encode() for option in request["options"]]
        array = (ctypes.c_char_p * len(encoded))(*encoded)
        status = library.nvrtcCompileProgram(program, len(encoded), array)
        log = _read(library, program, "ProgramLog").rstrip(b"\0").decode(errors="replace").strip()
        if status:
            raise Refused(log or f"NVRTC gave up: {_reason(library, status)}.")
        lowered = {}
        for expression in expressions:
            found = ctypes.c_char_p()
            _check(library, library.nvrtcGetLoweredName(program, expression.encode(), ctypes.byref(found)))
            lowered[expression] = (found.value or b"").decode()
        return [_read(library, program, kind) for kind in kinds], log, lowered
    finally:
        library.nvrtcDestroyProgram(ctypes.byref(program))


def _read(library: ctypes.CDLL, program: ctypes.c_void_p, what: str) -> bytes:
    size = ctypes.c_size_t()
    _check(library, getattr(library, f"nvrtcGet{what}Size")(program, ctypes.byref(size)))
    buffer = ctypes.create_string_buffer(size.value)
    _check(library, getattr(library, f"nvrtcGet{what}")(program, buffer))
    return buffer.raw


def _reason(library: ctypes.CDLL, status: int) -> str:
    text: bytes = library.nvrtcGetErrorString(status)
    return text.decode()


def _check(library: ctypes.CDLL, status: int) -> None:
    if status:
        raise RuntimeError(f"NVRTC call failed: {_reason(library, status)}.")


def answer(library: ctypes.CDLL, request: dict[str, Any]) -> tuple[dict[str, Any], list[bytes]]:
    """What became of a request: facts, and images."""
    try:
        images, log, lowered = compile_now(library, request)
        return {"log": log, "lowered": lowered, "sizes": [len(image) for image in images]}, images
    except Refused as error:
        return {"refused": str(error)}, []
    except RuntimeError as error:
        return {"failed": str(error)}, []


class _Watch(threading.Thread):
    """Ends the process when its parent has ended, or a request goes over its limits."""

    def __init__(self, answers: BinaryIO) -> None:
        super().__init__(daemon=True)
        self._answers, self._parent = answers, os.getppid()
        self.limits: tuple[float, int] | None = None  # of the request that is worked on

    def run(self) -> None:
        while True:
            time.sleep(_POLL_S)
            if os.getppid() != self._parent:
                os._exit(1)
            limits = self.limits
            over = "" if limits is None else self._over(*limits)
            if over:
                self._answers.write(json.dumps({"over": over}).encode() + b"\n")
                self._answers.flush()
                os._exit(1)

    @staticmethod
    def _over(until_s: float, most_bytes: int) -> str:
        if time.process_time() > until_s:
            return "time"
        used = int(_MEMORY.read_bytes().split()[1]) * os.sysconf("SC_PAGE_SIZE") if _MEMORY.exists() else 0
        return "memory" if used > most_bytes else ""


def _loaded(path: Path) -> ctypes.CDLL:
    """NVRTC, with the library beside it that older ones do not find by themselves."""
    for builtins in path.parent.glob("libnvrtc-builtins.so*"):
        ctypes.CDLL(str(builtins))
    return ctypes.CDLL(str(path))


def main(library_path: str) -> None:
    """Answer requests until there are no more."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # whoever asks is interrupted, and ends this process
    answers = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # what NVRTC may print is no answer
    watch = _Watch(answers)
    watch.start()
    library = _loaded(Path(library_path))
    library.nvrtcGetErrorString.restype = ctypes.c_char_p
    for line in sys.stdin.buffer:
        request = json.loads(line)
        watch.limits = (time.process_time() + request["limit_s"], request["limit_bytes"])
        os.chdir(request["folder"])  # where headers are looked for
        facts, images = answer(library, request)
        watch.limits = None
        answers.write(b"".join([json.dumps(facts).encode(), b"\n", *images]))
        answers.flush()


if __name__ == "__main__":
    main(sys.argv[1])
