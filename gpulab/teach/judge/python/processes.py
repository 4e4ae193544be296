"""The processes that Python answers run in: forked from one that has everything loaded, or started anew.

A new process takes 0.6 s until gpulab stands in it, a forked one some milliseconds. Only Linux forks:
elsewhere libraries do not survive it. The process that is forked from never touches a device.
"""

from __future__ import annotations

import contextlib
import functools
import gc
import importlib
import json
import os
import signal
import socket
import subprocess
import sys
from pathlib import Path
from typing import IO

MAIN = "gpulab.teach.judge.python.child"
# What a judged answer is sure to need.
_LOADED = (
    MAIN,
    "gpulab.course",
    "gpulab.lab.graphs",
    "gpulab.lab.kernels",
    "gpulab.lab.streams",
    "gpulab.lab.timeline",
    "gpulab.teach.judge.python.programs",
    "virtualgpu.backend",
    "virtualgpu.cp",
    "virtualgpu.cupyx",
)
_MESSAGE_BYTES = 1 << 20
_FDS = 4


class Process:
    """A process that judges one answer.

    Attributes
    ----------
    pid : int
        Its number.
    stdin, stdout, stderr : file
        Our ends of its standard streams.
    """

    def __init__(self, environment: dict[str, str]) -> None:
        self.stdin: IO[bytes]
        self.stdout: IO[bytes]
        self.stderr: IO[bytes]
        self._told: IO[bytes] | None = None
        self._started: subprocess.Popen[bytes] | None = None
        self._status: int | None = None
        forked = _forked(environment) if sys.platform == "linux" else None
        if forked is None:
            self._start(environment)
        else:
            self.stdin, self.stdout, self.stderr, self._told = forked
            self.pid = int(self._told.readline() or 0)
            os.set_blocking(self._told.fileno(), False)
            if not self.pid:
                for pipe in forked:
                    pipe.close()
                self._told = None
                self._start(environment)

    def _start(self, environment: dict[str, str]) -> None:
        pipe = subprocess.PIPE
        self._started = subprocess.Popen(
            [sys.executable, "-m", MAIN],
            stdin=pipe, stdout=pipe, stderr=pipe, env=environment, start_new_session=True,
        )  # fmt: skip
        assert self._started.stdin is not None
        assert self._started.stdout is not None
        assert self._started.stderr is not None
        self.stdin = self._started.stdin
        self.stdout = self._started.stdout
        self.stderr = self._started.stderr
        self.pid = self._started.pid

    def poll(self) -> int | None:
        """How it ended, as ``Popen.returncode`` says it; None while it runs."""
        if self._started is not None:
            return self._started.poll()
        if self._status is None and self._told is not None:
            said = self._told.read()  # does not wait: None, or nothing where even the keeper was killed
            if said is not None:
                self._status = int(said or -signal.SIGKILL)
                self._told.close()
                self._told = None
        return self._status

    def kill(self) -> None:
        """End it with all that it has started."""
        running = self.poll() is None
        if hasattr(os, "killpg"):
            with contextlib.suppress(OSError):
                os.killpg(self.pid, signal.SIGKILL)
        if self._started is not None:
            self._started.kill()
            self._started.wait()
        if self._told is not None:
            if running:
                with contextlib.suppress(OSError):  # it may not lead its group yet
                    os.kill(self.pid, signal.SIGKILL)
            os.set_blocking(self._told.fileno(), True)
            self.poll()


def _forked(environment: dict[str, str]) -> tuple[IO[bytes], IO[bytes], IO[bytes], IO[bytes]] | None:
    """Pipes to a new process, and one that tells its number and how it ends; None if it cannot be had."""
    pipes = [os.pipe() for _ in range(_FDS)]
    (stdin, to), *back = pipes
    theirs, ours = [stdin, *(write for _, write in back)], [to, *(read for read, _ in back)]
    wanted = json.dumps({"environment": environment, "path": sys.path, "folder": _folder()}).encode()
    try:
        for fresh in (False, True):
            if fresh:  # it may have been ended from outside
                _server.cache_clear()
            with contextlib.suppress(OSError, ValueError):
                if len(wanted) <= _MESSAGE_BYTES and socket.send_fds(_server(os.getpid()), [wanted], theirs):
                    modes = ("wb", "rb", "rb", "rb")
                    files = [os.fdopen(fd, mode, 0) for fd, mode in zip(ours, modes, strict=True)]
                    return files[0], files[1], files[2], files[3]
        for fd in ours:
            os.close(fd)
        return None
    finally:
        for fd in theirs:
            os.close(fd)


def _folder() -> str:
    with contextlib.suppress(OSError):
        return str(Path.cwd())
    return ""


@functools.cache
def _server(parent: int) -> socket.socket:
    """Our line to the process that is forked from; it ends when the line does. One for each of our forks."""
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    ours.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 2 * _MESSAGE_BYTES)
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    with theirs:
        subprocess.Popen(
            [sys.executable, "-m", __name__, str(theirs.fileno())],
            stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
            pass_fds=(theirs.fileno(),), env=environment, start_new_session=True,
        )  # fmt: skip
    return ours


def serve(line: socket.socket) -> None:
    """Fork a process for each message that comes."""
    for name in _LOADED:
        importlib.import_module(name)
    gc.collect()
    gc.freeze()
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    while True:
        message, fds, _, _ = socket.recv_fds(line, _MESSAGE_BYTES, _FDS)
        if not message:
            return
        if not os.fork():
            line.close()
            _keep(json.loads(message), *fds)
        for fd in fds:
            os.close(fd)


def _keep(wanted: dict[str, object], stdin: int, stdout: int, stderr: int, told: int) -> None:
    """Fork the process itself, tell its number, and how it ended."""
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    pid = os.fork()
    if not pid:
        os.close(told)
        os.setsid()
        for number, fd in enumerate((stdin, stdout, stderr)):
            os.dup2(fd, number)
            os.close(fd)
        _become(wanted)
        importlib.import_module(MAIN).main()
    for fd in (stdin, stdout, stderr):
        os.close(fd)
    os.write(told, b"%d\n" % pid)
    status = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    os.write(told, b"%d" % status)
    os._exit(0)


def _become(wanted: dict[str, object]) -> None:
    """Take over the environment of who asks."""
    environment, path, folder = wanted["environment"], wanted["path"], wanted["folder"]
    assert isinstance(environment, dict)
    assert isinstance(path, list)
    os.environ.clear()
    os.environ.update(environment)
    sys.path[:] = path
    with contextlib.suppress(OSError):
        os.chdir(str(folder))


if __name__ == "__main__":
    with socket.socket(fileno=int(sys.argv[1])) as to_parent:
        serve(to_parent)
