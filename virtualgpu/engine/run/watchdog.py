"""The time limit of a launch, and checks of whether the launch makes progress."""

from __future__ import annotations

import math
import time
import zlib
from collections.abc import Sequence
from typing import Protocol

from virtualgpu.cuda_errors import Progress
from virtualgpu.engine.run.launch import RunningLaunch
from virtualgpu.engine.run.worker import Worker

# Above this, wall time counts too, if the launch has used a share of its limit in the meantime: its thread
# may get only a small share of a core.
_MIN_WALL_S = 20.0
_MIN_CPU_SHARE = 0.2
# Number of memory checks within the limit, and the least computation between two checks.
_MEMORY_CHECK_COUNT = 10
_MIN_INTERVAL_S = 0.1
# Memory above this size is not checked, because a check would take too long.
_MAX_CHECKED_BYTES = 256 << 20
# Lanes store one after the other, and a check may fall between two stores, on a busy machine for
# milliseconds. So memory is checked repeatedly, with pauses, for this long before its contents count as new.
_RECHECK_S = 0.05
_RECHECK_PAUSE_S = 0.002


class BlockRunner(Protocol):
    """The interface of a runner, which runs some blocks of a launch on one thread."""

    workers: list[Worker]

    @property
    def spent_s(self) -> float:
        """Processor time in seconds that the runner has used so far."""

    @property
    def ended_blocks(self) -> int:
        """Number of blocks of the runner that have finished so far."""

    @property
    def state(self) -> tuple[int, int, int]:
        """The progress of the runner, as a tuple of three numbers. It contains the number of finished blocks,
        the running block, and that block's number of finished threads.
        """


class Watchdog:
    """A timer that stops a kernel launch after it has used too much processor time.

    The limit is processor time instead of wall time, because a busy machine slows a kernel down. However, if
    no thread ends any more, a launch is stopped when its limit, and at least 20 s, have passed as wall time.
    A patient watchdog lets a launch continue while threads end, because then it will end too. All readings
    are seconds of computation of the launch, over all its parts.
    """

    def __init__(self, launch: RunningLaunch) -> None:
        self._launch = launch
        self._limit_s = launch.options.watchdog_s
        self._is_patient = launch.options.patient
        self._idle_limit_s = launch.options.idle_s or math.inf
        self._runners: Sequence[BlockRunner] = ()
        self._states: list[tuple[int, int, int]] = []
        self._ended_blocks_before = 0  # blocks of earlier parts
        self._spent_before_s = 0.0
        self._start_s: float | None = None  # wall time
        self._last_end_s = 0.0  # time of the last end of a thread or block
        self._last_output_s = 0.0  # time of the last new store or output
        self._printed_count = 0
        self._checksums: set[int] = set()  # checksums of all memory contents so far
        self._interval_s = max(
            min(self._limit_s, 2 * self._idle_limit_s) / _MEMORY_CHECK_COUNT, _MIN_INTERVAL_S
        )
        self._next_check_s = self._interval_s
        self.progress: Progress | None = None  # progress of a launch when it was stopped

    def begin_part(self, runners: Sequence[BlockRunner]) -> None:
        """Start to watch the runners that run the next part of the kernel launch."""
        self._spent_before_s = self.spent_s
        self._ended_blocks_before = self.ended_blocks
        self._runners = runners
        self._states = [runner.state for runner in runners]
        self._last_end_s = self._last_output_s = self._spent_before_s

    @property
    def spent_s(self) -> float:
        """Processor time in seconds that all runners of the launch have used so far."""
        return self._spent_before_s + max((runner.spent_s for runner in self._runners), default=0.0)

    @property
    def ended_blocks(self) -> int:
        """Number of blocks of the launch that have finished so far."""
        return self._ended_blocks_before + sum(runner.ended_blocks for runner in self._runners)

    @property
    def time_since_last_end_s(self) -> float:
        """Processor time in seconds that the launch has used since a thread or block last finished."""
        return self.spent_s - self._last_end_s

    def must_stop(self) -> bool:
        """Return whether the launch must be stopped because its time limit is exceeded."""
        if self.has_stopped:
            return True
        spent_s = self.spent_s
        if spent_s and self._start_s is None:
            self._start_s = time.monotonic()
        states = [runner.state for runner in self._runners]
        if any(map(_has_thread_ended, self._states, states)):
            self._last_end_s = spent_s
        self._states = states
        if self._launch.print_buffer.call_count > self._printed_count:
            self._printed_count = self._launch.print_buffer.call_count
            self._last_output_s = spent_s
        if spent_s >= self._next_check_s:
            self._check_memory(spent_s)
        idle_s = spent_s - max(self._last_end_s, self._last_output_s)
        wall_limit_exceeded = (
            self._wall_time_s > max(self._limit_s, _MIN_WALL_S) and spent_s > _MIN_CPU_SHARE * self._limit_s
        )
        is_exceeded = spent_s > self._limit_s and not (
            self._is_patient and not self._is_without_progress(spent_s)
        )
        if (
            is_exceeded
            or idle_s > self._idle_limit_s
            or (wall_limit_exceeded and self._is_without_progress(spent_s))
        ):
            # As of this moment: workers may take long to stop on a busy machine, and memory checks take a
            # while.
            is_moving = not self._is_without_progress(spent_s)
            self._check_memory(spent_s)
            self.progress = Progress(
                self.ended_blocks,
                self._launch.block_clock.size,
                is_moving,
                spent_s - self._last_output_s < min(spent_s / 2, self._idle_limit_s),
                min(spent_s, self._limit_s),
            )
        return self.has_stopped

    @property
    def has_stopped(self) -> bool:
        """Return whether the watchdog has stopped the launch."""
        return self.progress is not None

    @property
    def _wall_time_s(self) -> float:
        return 0.0 if self._start_s is None else time.monotonic() - self._start_s

    def _is_without_progress(self, spent_s: float) -> bool:
        """Return whether no thread has ended during half of the processor time."""
        return spent_s - self._last_end_s >= min(spent_s, self._limit_s) / 2

    def _check_memory(self, spent_s: float) -> None:
        """Record whether memory has new contents; contents that cannot be checked count as new."""
        checksums: set[int] = set()
        deadline_s = time.monotonic() + _RECHECK_S
        while True:
            checksum = self._compute_checksum()
            if checksum is None or checksum in self._checksums:
                break
            checksums.add(checksum)
            if time.monotonic() > deadline_s:
                break
            time.sleep(_RECHECK_PAUSE_S)
        if checksum is None or (checksum in checksums and self._checksums):
            self._last_output_s = spent_s
        self._checksums |= checksums
        self._next_check_s = spent_s + self._interval_s

    def _compute_checksum(self) -> int | None:
        """Return a checksum of all memory that the kernel can write to: the device's, and its blocks' own."""
        memory = self._launch.memory
        range_starts, range_ends = (column.tolist() for column in memory.find_live_ranges())
        workers = [worker for runner in self._runners for worker in list(runner.workers)]
        block_memory = [array for worker in workers for array in worker.own_memory]
        if (
            memory.uses_remote_memory
            or sum(range_ends) - sum(range_starts) + sum(a.nbytes for a in block_memory) > _MAX_CHECKED_BYTES
        ):
            return None
        checksum = 0
        for range_start, range_end in zip(range_starts, range_ends, strict=True):
            checksum = zlib.crc32(memory.view(range_start, range_end - range_start).data, checksum)
        for array in block_memory:
            checksum = zlib.crc32(array.data, checksum)
        return checksum


def _has_thread_ended(old_state: tuple[int, int, int], new_state: tuple[int, int, int]) -> bool:
    """Return whether a block, or a thread of the running block, has ended between two states."""
    return new_state[0] > old_state[0] or (new_state[1] == old_state[1] and new_state[2] > old_state[2])
