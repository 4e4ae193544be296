"""Main program of the NVRTC process: it reads requests from standard input and writes replies.

``python server.py LIBRARY``. It needs only the standard library, so that it starts quickly. A request is a
line of JSON. A reply is a line of JSON and the images, whose sizes are in the line. The process ends when its
parent has ended, or when a request exceeds its limits of processor time or memory.
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
_MEMORY_FILE = Path("/proc/self/statm")


class CompilationRefusedError(Exception):
    """Error for source code that does not compile. The error message is NVRTC's log."""


def compile_request(library: ctypes.CDLL, request: dict[str, Any]) -> tuple[list[bytes], str, dict[str, str]]:
    """Compile source code, and return the requested images, the compiler's log and the mangled names.

    Raises
    ------
    CompilationRefusedError
        With the log of a source that does not compile.
    RuntimeError
        If a call of NVRTC fails otherwise.
    """
    expressions = request["expressions"]
    image_kinds = request["kinds"]
    program = ctypes.c_void_p()
    code_bytes = request["code"].encode()
    file_name_bytes = request["file_name"].encode()
    _check_status(
        library, library.nvrtcCreateProgram(ctypes.byref(program), code_bytes, file_name_bytes, 0, None, None)
    )
    try:
        for expression in expressions:
            _check_status(library, library.nvrtcAddNameExpression(program, expression.encode()))
        encoded_options = [option.encode() for option in request["options"]]
        option_array = (ctypes.c_char_p * len(encoded_options))(*encoded_options)
        status = library.nvrtcCompileProgram(program, len(encoded_options), option_array)
        log = _read_output(library, program, "ProgramLog").rstrip(b"\0").decode(errors="replace").strip()
        if status:
            raise CompilationRefusedError(
                log or f"NVRTC cannot compile this source: {_read_error_text(library, status)}."
            )
        lowered_names = {}
        for expression in expressions:
            lowered_name = ctypes.c_char_p()
            _check_status(
                library, library.nvrtcGetLoweredName(program, expression.encode(), ctypes.byref(lowered_name))
            )
            lowered_names[expression] = (lowered_name.value or b"").decode()
        return [_read_output(library, program, image_kind) for image_kind in image_kinds], log, lowered_names
    finally:
        library.nvrtcDestroyProgram(ctypes.byref(program))


def _read_output(library: ctypes.CDLL, program: ctypes.c_void_p, output_kind: str) -> bytes:
    size = ctypes.c_size_t()
    _check_status(library, getattr(library, f"nvrtcGet{output_kind}Size")(program, ctypes.byref(size)))
    buffer = ctypes.create_string_buffer(size.value)
    _check_status(library, getattr(library, f"nvrtcGet{output_kind}")(program, buffer))
    return buffer.raw


def _read_error_text(library: ctypes.CDLL, status: int) -> str:
    error_text: bytes = library.nvrtcGetErrorString(status)
    return error_text.decode()


def _check_status(library: ctypes.CDLL, status: int) -> None:
    if status:
        raise RuntimeError(f"NVRTC call failed: {_read_error_text(library, status)}.")


def reply_to(library: ctypes.CDLL, request: dict[str, Any]) -> tuple[dict[str, Any], list[bytes]]:
    """Handle a compilation request, and return the reply and the compiled images. The reply is a dictionary
    that contains the status.
    """
    try:
        images, log, lowered_names = compile_request(library, request)
        return {"log": log, "lowered": lowered_names, "sizes": [len(image) for image in images]}, images
    except CompilationRefusedError as error:
        return {"refused": str(error)}, []
    except RuntimeError as error:
        return {"failed": str(error)}, []


class _LimitWatch(threading.Thread):
    """A thread that ends this process if its parent has ended, or if a request exceeds its limits."""

    def __init__(self, reply_stream: BinaryIO) -> None:
        super().__init__(daemon=True)
        self._reply_stream = reply_stream
        self._parent_pid = os.getppid()
        self.request_limits: tuple[float, int] | None = None  # limits of the current request

    def run(self) -> None:
        while True:
            time.sleep(_POLL_S)
            if os.getppid() != self._parent_pid:
                os._exit(1)
            limits = self.request_limits
            exceeded_limit = "" if limits is None else self._find_exceeded_limit(*limits)
            if exceeded_limit:
                self._reply_stream.write(json.dumps({"over": exceeded_limit}).encode() + b"\n")
                self._reply_stream.flush()
                os._exit(1)

    @staticmethod
    def _find_exceeded_limit(deadline_s: float, max_bytes: int) -> str:
        if time.process_time() > deadline_s:
            return "time"
        used_bytes = (
            int(_MEMORY_FILE.read_bytes().split()[1]) * os.sysconf("SC_PAGE_SIZE")
            if _MEMORY_FILE.exists()
            else 0
        )
        return "memory" if used_bytes > max_bytes else ""


def _load_library(path: Path) -> ctypes.CDLL:
    """Load NVRTC, and the builtins library next to it, which older versions do not find by themselves."""
    for builtins_path in path.parent.glob("libnvrtc-builtins.so*"):
        ctypes.CDLL(str(builtins_path))
    return ctypes.CDLL(str(path))


def main(library_path: str) -> None:
    """Handle compilation requests until standard input ends."""
    signal.signal(
        signal.SIGINT, signal.SIG_IGN
    )  # the requesting process is interrupted, and ends this process
    reply_stream = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # output of NVRTC is not a reply
    limit_watch = _LimitWatch(reply_stream)
    limit_watch.start()
    library = _load_library(Path(library_path))
    library.nvrtcGetErrorString.restype = ctypes.c_char_p
    for request_line in sys.stdin.buffer:
        request = json.loads(request_line)
        limit_watch.request_limits = (time.process_time() + request["limit_s"], request["limit_bytes"])
        os.chdir(request["folder"])  # headers are searched for here
        reply, images = reply_to(library, request)
        limit_watch.request_limits = None
        reply_stream.write(b"".join([json.dumps(reply).encode(), b"\n", *images]))
        reply_stream.flush()


if __name__ == "__main__":
    main(sys.argv[1])
