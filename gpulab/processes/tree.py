"""A process with all its descendants: the resources that they use, their state, and their end."""

from __future__ import annotations

import contextlib
import os
import signal
import time
from dataclasses import dataclass
from pathlib import Path

import psutil

MAX_PROCESSES = 200
_PROC_FOLDER = Path("/proc")
_KILL_ROUNDS = 200  # attempts to kill all descendants; each finds processes that were started since
_KILL_PAUSE_S = 0.005
_WORKING_STATES = (psutil.STATUS_RUNNING, psutil.STATUS_DISK_SLEEP)


def find_descendants(pid: int) -> list[int]:
    """Return the IDs of all descendants of the process `pid`. Parents come before their children, and `pid`
    itself is not included.
    """
    pids = []
    unvisited_pids = [pid]
    while unvisited_pids:
        child_pids = find_children(unvisited_pids.pop())
        pids += child_pids
        unvisited_pids += child_pids
    return pids


def find_children(pid: int) -> list[int]:
    """Return the child processes of the process `pid`, including processes that were reparented to it."""
    try:
        child_lists = [
            (task / "children").read_text() for task in (_PROC_FOLDER / str(pid) / "task").iterdir()
        ]
    except OSError:  # the process has ended, or this system does not list children
        child_lists = []
        if not (_PROC_FOLDER / str(os.getpid()) / "task" / str(os.getpid()) / "children").exists():
            with contextlib.suppress(psutil.Error):
                return [child.pid for child in psutil.Process(pid).children()]
    return [int(child) for children in child_lists for child in children.split()]


def end_descendants(pid: int) -> None:
    """Kill all descendants of a process. The function searches for descendants until only zombies are
    left.
    """
    for _ in range(_KILL_ROUNDS):
        live_processes = [child for child in find_descendants(pid) if not _has_ended(child)]
        if not live_processes:
            return
        for child in live_processes:
            with contextlib.suppress(OSError):
                os.kill(child, signal.SIGKILL)
        time.sleep(_KILL_PAUSE_S)


def _has_ended(pid: int) -> bool:
    with contextlib.suppress(OSError, IndexError):
        return (_PROC_FOLDER / str(pid) / "stat").read_bytes().rpartition(b")")[2].split()[0] in (b"Z", b"X")
    try:
        return psutil.Process(pid).status() in (psutil.STATUS_ZOMBIE, psutil.STATUS_DEAD)
    except psutil.Error:
        return True


def is_stopped(pid: int) -> bool:
    """Return whether a process is stopped, for example after the signal SIGSTOP."""
    with contextlib.suppress(psutil.Error):
        return bool(psutil.Process(pid).status() == psutil.STATUS_STOPPED)
    return False


@dataclass(frozen=True, slots=True)
class ResourceUse:
    """The resources that a process and its descendants have used so far.

    The attribute ``cpu_s`` is the processor time, which includes the time of descendants that have ended.
    ``is_waiting`` is true if no thread of the processes is running or ready to run.
    """

    process_count: int
    cpu_s: float
    memory_bytes: int
    is_waiting: bool


class ResourceMeter:
    """A meter for the resources that a process and all its descendants use."""

    def __init__(self, pid: int) -> None:
        self._pid = pid
        self._cpu_s = self._last_total_cpu_s = 0.0
        self._processes: dict[int, psutil.Process] = {}

    def measure_use(self, memory_limit_bytes: int) -> ResourceUse:
        """Measure the resources that these processes use. If the sum of their memory exceeds the limit, each
        shared page is counted only once.
        """
        pids = [self._pid, *find_descendants(self._pid)]
        if len(pids) > MAX_PROCESSES:
            return ResourceUse(len(pids), self._cpu_s, 0, False)
        self._processes = {
            pid: found_process for pid in pids if (found_process := self._find_process(pid)) is not None
        }
        total_cpu_s = 0.0
        memory_bytes = 0
        is_waiting = True
        for process in self._processes.values():
            with contextlib.suppress(psutil.Error), process.oneshot():
                total_cpu_s += sum(
                    process.cpu_times()[:4]
                )  # its own time, and that of children for which it has waited
                memory_bytes += process.memory_info().rss
                is_waiting = is_waiting and not _is_working(process)
        # The sum decreases when a process ends for which its parent has not waited; its time is kept here.
        self._cpu_s += max(0.0, total_cpu_s - self._last_total_cpu_s)
        self._last_total_cpu_s = total_cpu_s
        if memory_bytes > memory_limit_bytes and len(self._processes) > 1:
            memory_bytes = sum(map(_read_proportional_bytes, self._processes.values()))
        return ResourceUse(len(pids), self._cpu_s, memory_bytes, is_waiting)

    def _find_process(self, pid: int) -> psutil.Process | None:
        with contextlib.suppress(psutil.Error):
            return self._processes.get(pid) or psutil.Process(pid)
        return None


def _is_working(process: psutil.Process) -> bool:
    """Return whether a thread of a process is running or ready to run."""
    if process.status() in _WORKING_STATES:
        return True
    task_folder = _PROC_FOLDER / str(process.pid) / "task"
    with contextlib.suppress(OSError):
        for thread_folder in task_folder.iterdir():
            if (thread_folder / "stat").read_bytes().rpartition(b")")[2].split()[0] in (b"R", b"D"):
                return True
    return False


def _read_proportional_bytes(process: psutil.Process) -> int:
    """Return the memory of a process, with shared pages divided among the processes that share them."""
    with contextlib.suppress(psutil.Error, OSError):
        memory_info = process.memory_full_info()
        return int(getattr(memory_info, "pss", memory_info.uss))
    return 0
