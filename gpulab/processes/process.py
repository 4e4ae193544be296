"""Start processes that run functions. They are forks of a process with all modules loaded, or new processes.

A new process takes 0.6 s to import gpulab, a forked one some milliseconds. Processes are forked on Linux
only, because libraries of other systems do not support it. The fork server never uses a device.

A supervisor process is the parent of an answer's process. All processes that the answer starts remain
descendants of the supervisor (``PR_SET_CHILD_SUBREAPER``) and end with it. The supervisor ends them all when
its connection is closed, for example because the notebook's kernel was restarted.
"""

from __future__ import annotations

import contextlib
import ctypes
import functools
import gc
import importlib
import json
import os
import select
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import IO, Any

from gpulab.processes.tree import end_descendants, find_children, is_stopped
from virtualgpu.compile import nvrtc

CHILD_MODULE = "gpulab.processes.child"
# Modules that most functions need.
_PRELOADED_MODULES = (
    CHILD_MODULE,
    "cloudpickle",
    "concurrent.futures.thread",
    "gpulab.lab.graphs",
    "gpulab.lab.kernels",
    "gpulab.lab.streams",
    "gpulab.lab.timeline",
    "virtualgpu.backend",
    "virtualgpu.cp",
    "virtualgpu.cupyx",
    "virtualgpu.sanitizer",
)
_MESSAGE_BYTES = 1 << 20
_MAX_FDS = 4
_MAX_START_S = 60.0  # limit on the start of a process, which a busy machine can delay
_CHECK_INTERVAL_S = 0.1
_PR_SET_PDEATHSIG = 1
_PR_SET_CHILD_SUBREAPER = 36


class Process:
    """A running process whose main program is the module `child`.

    Parameters
    ----------
    environment
        The environment variables of the process.
    modules
        Additional modules that the process needs.

    Attributes
    ----------
    pid : int
        The process number.
    top_pid : int
        The number of the process whose descendants include all processes that the answer starts.
    stdin, stdout, stderr : file
        The parent's ends of its standard streams.
    """

    def __init__(self, environment: dict[str, str], modules: Sequence[str] = ()) -> None:
        self.stdin: IO[bytes]
        self.stdout: IO[bytes]
        self.stderr: IO[bytes]
        self._supervisor_pipe: IO[bytes] | None = None
        self._supervisor_fd: int | None = None  # a file descriptor of the supervisor process
        self._popen: subprocess.Popen[bytes] | None = None
        self._status: int | None = None
        if sys.platform != "linux" or not self._fork(environment, modules):
            self._start(environment)

    def _fork(self, environment: dict[str, str], modules: Sequence[str]) -> bool:
        process_pipes = _fork_process(environment, modules)
        if process_pipes is None:
            return False
        self.stdin, self.stdout, self.stderr, self._supervisor_pipe, first_line = process_pipes
        os.set_blocking(self._supervisor_pipe.fileno(), False)
        self.top_pid, self.pid = map(int, first_line.split())
        with contextlib.suppress(OSError, AttributeError):
            self._supervisor_fd = os.pidfd_open(self.top_pid)
        return True

    def _start(self, environment: dict[str, str]) -> None:
        pipe_option = subprocess.PIPE
        self._popen = subprocess.Popen(
            [sys.executable, "-m", CHILD_MODULE],
            stdin=pipe_option,
            stdout=pipe_option,
            stderr=pipe_option,
            env=environment,
            start_new_session=True,
        )
        assert self._popen.stdin is not None
        assert self._popen.stdout is not None
        assert self._popen.stderr is not None
        self.stdin = self._popen.stdin
        self.stdout = self._popen.stdout
        self.stderr = self._popen.stderr
        self.pid = self.top_pid = self._popen.pid

    def poll(self) -> int | None:
        """Return the exit status as ``Popen.returncode`` does, or None while the process is running."""
        if self._popen is not None:
            return self._popen.poll()
        if self._status is None and self._supervisor_pipe is not None:
            # This does not wait: the text is None, or empty if the supervisor was killed.
            status_text = self._supervisor_pipe.read()
            if status_text is not None:
                self._status = int(status_text or -signal.SIGKILL)
                self._supervisor_pipe.close()
                self._supervisor_pipe = None
        return self._status

    def kill(self) -> None:
        """Kill the process and all its descendants. The process ends even if its supervisor, which started
        it, does not respond.
        """
        if self._popen is not None:
            end_descendants(self.pid)
            self._popen.kill()
            self._popen.wait()
            return
        self.poll()
        if self._supervisor_pipe is None:
            self._close_supervisor()
            return
        end_descendants(self.top_pid)
        deadline_s = time.monotonic() + 1
        while self.poll() is None and time.monotonic() < deadline_s and not is_stopped(self.top_pid):
            time.sleep(0.001)
        if self._supervisor_pipe is not None:
            with contextlib.suppress(OSError):
                if self._supervisor_fd is None:
                    os.kill(self.top_pid, signal.SIGKILL)
                else:
                    signal.pidfd_send_signal(self._supervisor_fd, signal.SIGKILL)
            self._status = -signal.SIGKILL
            self._supervisor_pipe.close()
            self._supervisor_pipe = None
        self._close_supervisor()

    def _close_supervisor(self) -> None:
        if self._supervisor_fd is not None:
            os.close(self._supervisor_fd)
            self._supervisor_fd = None


class _ForkServer:
    """The fork server of this process and the socket to it; closing the socket ends the server."""

    def __init__(self) -> None:
        self.server_socket, server_end = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self.server_socket.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 2 * _MESSAGE_BYTES)
        environment = os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
        with server_end:
            self.process = subprocess.Popen(
                [sys.executable, "-m", __name__, str(server_end.fileno())],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                pass_fds=(server_end.fileno(),),
                env=environment,
                start_new_session=True,
            )

    def is_running(self) -> bool:
        """Return whether the fork server is running and has not been stopped."""
        return self.process.poll() is None and not is_stopped(self.process.pid)

    def end(self) -> None:
        self.server_socket.close()
        with contextlib.suppress(OSError):
            self.process.kill()


@functools.cache
def _find_server(parent_pid: int) -> _ForkServer:
    """Return the fork server of this process, whose number is `parent_pid`. A fork of this process gets its
    own server.
    """
    return _ForkServer()


def _fork_process(
    environment: dict[str, str], modules: Sequence[str]
) -> tuple[IO[bytes], IO[bytes], IO[bytes], IO[bytes], bytes] | None:
    """Let the fork server start a process; return pipes to it and its supervisor, or None on failure.

    The last item of the result is the supervisor's first message.
    """
    start_request = json.dumps(
        {"environment": environment, "path": sys.path, "folder": _find_folder(), "modules": [*modules]}
    ).encode()
    for _ in range(2 if len(start_request) <= _MESSAGE_BYTES else 0):
        server = _find_server(os.getpid())
        if not server.is_running():  # for example, an answer has ended or stopped it
            server.end()
            _find_server.cache_clear()
            server = _find_server(os.getpid())
        pipes = [os.pipe() for _ in range(_MAX_FDS)]
        (child_stdin_fd, parent_stdin_fd), *output_pipes = pipes
        child_ends = [child_stdin_fd, *(write_fd for _, write_fd in output_pipes)]
        parent_ends = [parent_stdin_fd, *(read_fd for read_fd, _ in output_pipes)]
        with contextlib.suppress(OSError, ValueError):
            socket.send_fds(server.server_socket, [start_request], child_ends)
        for fd in child_ends:
            os.close(fd)
        stdin, stdout, stderr, supervisor_pipe = (
            os.fdopen(fd, mode, 0) for fd, mode in zip(parent_ends, ("wb", "rb", "rb", "rb"), strict=True)
        )
        first_message = _read_first_line(supervisor_pipe, server)
        if first_message:
            return stdin, stdout, stderr, supervisor_pipe, first_message
        for pipe in (stdin, stdout, stderr, supervisor_pipe):
            pipe.close()
        server.end()
        _find_server.cache_clear()
    return None


def _read_first_line(supervisor_pipe: IO[bytes], server: _ForkServer) -> bytes:
    """Read the first message of a supervisor; it is empty if the server has ended or is stopped."""
    deadline_s = time.monotonic() + _MAX_START_S
    while time.monotonic() < deadline_s:
        if select.select([supervisor_pipe], [], [], _CHECK_INTERVAL_S)[0]:
            return supervisor_pipe.readline()
        if not server.is_running():
            break
    return b""


def _find_folder() -> str:
    with contextlib.suppress(OSError):
        return str(Path.cwd())
    return ""


def serve(server_socket: socket.socket) -> None:
    """Run the fork server, which forks one supervisor for each message that it receives. A supervisor starts
    one process and ends it with all its descendants.
    """
    loaded_modules: set[str] = set()
    _import_modules(_PRELOADED_MODULES, loaded_modules)
    nvrtc.is_available()  # searches for NVRTC once for all processes
    _prctl(_PR_SET_CHILD_SUBREAPER, 1)
    supervisor_pids: set[int] = set()
    while True:
        while not select.select([server_socket], [], [], _CHECK_INTERVAL_S if supervisor_pids else None)[0]:
            _reap_supervisors(supervisor_pids)
        request_json, received_fds, _, _ = socket.recv_fds(server_socket, _MESSAGE_BYTES, _MAX_FDS)
        if not request_json:
            break
        start_request = json.loads(request_json)
        _import_modules(start_request["modules"], loaded_modules)
        server_pid = os.getpid()
        supervisor_pid = os.fork()
        if not supervisor_pid:
            server_socket.close()
            _prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
            if os.getppid() == server_pid:
                _run_supervisor(start_request, *received_fds)
            os._exit(1)
        supervisor_pids.add(supervisor_pid)
        for fd in received_fds:
            os.close(fd)
    end_descendants(os.getpid())


def _import_modules(modules: Sequence[str], loaded_modules: set[str]) -> None:
    """Import modules in the fork server, so that all later processes have them."""
    missing_modules = [name for name in modules if name not in loaded_modules]
    for name in missing_modules:
        loaded_modules.add(name)
        with contextlib.suppress(ImportError):  # the process itself reports what it cannot import
            importlib.import_module(name)
    if missing_modules:
        gc.collect()
        gc.freeze()


def _reap_supervisors(supervisor_pids: set[int]) -> None:
    """Remove supervisors that have ended, and kill processes whose supervisor was killed."""
    with contextlib.suppress(ChildProcessError):
        while (pid := os.waitpid(-1, os.WNOHANG)[0]) != 0:
            supervisor_pids.discard(pid)
    for orphan_pid in set(find_children(os.getpid())) - supervisor_pids:
        with contextlib.suppress(OSError):
            os.kill(orphan_pid, signal.SIGKILL)


def _run_supervisor(request: dict[str, Any], stdin: int, stdout: int, stderr: int, parent_pipe: int) -> None:
    """Run a supervisor: fork the process, send both process numbers and the exit status, and end all
    descendants.
    """
    _prctl(_PR_SET_CHILD_SUBREAPER, 1)
    supervisor_pid = os.getpid()
    child_pid = os.fork()
    if not child_pid:
        os.close(parent_pipe)
        os.setsid()
        _prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() != supervisor_pid:
            os._exit(1)
        for standard_fd, fd in enumerate((stdin, stdout, stderr)):
            os.dup2(fd, standard_fd)
            os.close(fd)
        _apply_environment(request)
        importlib.import_module(CHILD_MODULE).main()
    for fd in (stdin, stdout, stderr):
        os.close(fd)
    with contextlib.suppress(OSError):
        os.write(parent_pipe, b"%d %d\n" % (supervisor_pid, child_pid))
    listener = select.poll()
    listener.register(parent_pipe, 0)  # an error there means that nobody reads it any more
    exit_status = None
    signal_read_fd, signal_write_fd = os.pipe()
    os.set_blocking(signal_write_fd, False)
    signal.set_wakeup_fd(signal_write_fd)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    listener.register(signal_read_fd, select.POLLIN)
    while exit_status is None:
        with contextlib.suppress(ChildProcessError):
            while exit_status is None and (child_status := os.waitpid(-1, os.WNOHANG))[0]:
                if child_status[0] == child_pid:
                    exit_status = os.waitstatus_to_exitcode(child_status[1])
        if exit_status is None and any(fd == parent_pipe for fd, _ in listener.poll(1000)):
            break
        with contextlib.suppress(OSError):
            os.set_blocking(signal_read_fd, False)
            os.read(signal_read_fd, 1 << 10)
    end_descendants(supervisor_pid)
    if exit_status is not None:
        with contextlib.suppress(OSError):
            os.write(parent_pipe, b"%d" % exit_status)
    os._exit(0)


def _prctl(option: int, value: int) -> None:
    ctypes.CDLL(None).prctl(option, ctypes.c_ulong(value), 0, 0, 0)


def _apply_environment(request: dict[str, Any]) -> None:
    """Set the environment variables, import path and folder of the requesting process."""
    os.environ.clear()
    os.environ.update(request["environment"])
    sys.path[:] = request["path"]
    with contextlib.suppress(OSError):
        os.chdir(str(request["folder"]))


if __name__ == "__main__":
    with socket.socket(fileno=int(sys.argv[1])) as parent_socket:
        serve(parent_socket)
