"""Execution of a launch on several worker threads, with a watchdog and faults."""

from __future__ import annotations

import concurrent.futures
import functools
import os
import threading
import time
from collections import deque
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from virtualgpu.compile.interruptible import set_stack_size
from virtualgpu.engine.ir import layout
from virtualgpu.engine.run import barriers, faults
from virtualgpu.engine.run.launch import RunningLaunch
from virtualgpu.engine.run.stopwatch import Stopwatch
from virtualgpu.engine.run.watchdog import Watchdog
from virtualgpu.engine.run.worker import Worker
from virtualgpu.model.memory.host import is_nearly_full, make_out_of_memory_error
from virtualgpu.records.launch.whereabouts import LaunchObserver, LaunchProgress

_STACK_BYTES = 64 << 20
# Message for a launch that the watchdog stopped while no more blocks could start.
_ALL_WAIT_MESSAGE = (
    "the {:,} running blocks, which fill the device, wait forever, and the other {:,} blocks cannot start "
    "before a running block ends"
)
_POLL_S = 0.02
# Interval between checks of the host's free memory.
_MEMORY_CHECK_INTERVAL_S = 0.25
# Share of the watchdog's time that a traced block may run without the end of a thread; then the trace so far
# is shown.
_TRACED_TIME_SHARE = 0.06
# Below this many warps a second thread costs more than it saves.
_MIN_PARALLEL_WARPS = 2048
# Number of blocks in flight that hand over at barriers; more start only if all of them wait. In a chain,
# where each block waits for the previous one, hundreds of blocks would poll without success each time one
# continues.
_MAX_BLOCKS_IN_FLIGHT = 8
# Host memory that blocks set aside may take.
_MAX_SUSPENDED_BYTES = 256 << 20
# States of a block that waits for others, or lets them continue at a barrier.
_SUSPENDED_STATUSES = (layout.STATUS_YIELDED, layout.STATUS_HANDED_OVER)
_pool_lock = threading.Lock()


def count_cores() -> int:
    """Return the number of CPU cores that run kernels. The default is the number of cores of this process,
    and ``VIRTUALGPU_THREADS`` changes it.
    """
    thread_setting = os.environ.get("VIRTUALGPU_THREADS", "")
    if thread_setting.isdecimal() and int(thread_setting):
        return int(thread_setting)
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


@functools.cache
def _create_pool() -> concurrent.futures.ThreadPoolExecutor:
    thread_count = count_cores()
    pool = concurrent.futures.ThreadPoolExecutor(thread_count, "gpulab-engine")
    start_barrier = threading.Barrier(thread_count)
    with set_stack_size(_STACK_BYTES):
        concurrent.futures.wait([pool.submit(start_barrier.wait) for _ in range(thread_count)])
    return pool


def _get_worker_pool() -> concurrent.futures.ThreadPoolExecutor:
    """Return the pool of worker threads, which all launches share.

    Their stacks are large enough for recursive kernels.
    """
    with _pool_lock:
        return _create_pool()


class BlockRunner:
    """A runner that executes some blocks of a grid on one thread.

    A block that only waits in a loop is suspended while other blocks continue.

    A grid-wide barrier, or a block that waits for another's flag, needs several blocks in flight.
    """

    def __init__(
        self,
        launch: RunningLaunch,
        live_ranges: tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]],
        runner_count: int = 1,
    ) -> None:
        self.launch = launch
        self.live_ranges = live_ranges
        block_bytes = launch.warps * (launch.kernel.frame_bytes + layout.LANES * launch.kernel.local_bytes)
        self._capacity = max(16, _MAX_SUSPENDED_BYTES // max(block_bytes, 1))
        if launch.options.resident_blocks:
            self._capacity = min(self._capacity, -(-launch.options.resident_blocks // runner_count))
        self.latest_worker = Worker(launch, live_ranges)  # the worker that ran last
        self.workers = [self.latest_worker]
        self._stopwatch: Stopwatch | None = None
        self._completed_blocks = (
            0  # blocks that ended before the running worker started the block at `_first_position`
        )
        self._first_position = 0
        self._running_worker: Worker | None = None

    @property
    def is_trace_full(self) -> bool:
        return any(worker.context[0]["truncated"] for worker in self.workers)

    def run(self, order: npt.NDArray[np.int64]) -> bool:
        """Run all blocks of this runner, and return False if a fault has stopped them."""
        self._stopwatch = Stopwatch()
        try:
            return self._run_blocks(order)
        finally:
            self._stopwatch.stop()

    @property
    def spent_s(self) -> float:
        """Processor time in seconds that the runner has used so far."""
        return 0.0 if self._stopwatch is None else self._stopwatch.spent_s

    def _run_blocks(self, order: npt.NDArray[np.int64]) -> bool:
        worker = self.workers[0]
        next_position = 0
        suspended_workers: deque[Worker] = deque()
        max_suspended = len(order) if self.launch.packed_launch.cooperative else self._capacity
        turns_seed = self.launch.options.turns_seed
        turn_generator = None if turns_seed is None else np.random.default_rng(turns_seed)
        turns_without_progress = 0  # turns since a block made progress
        while next_position < len(order) or suspended_workers:
            current_worker = worker
            can_start_block = next_position < len(order) and len(suspended_workers) < max_suspended
            if turn_generator is not None and can_start_block and suspended_workers:
                can_start_block = turns_without_progress > len(suspended_workers) or (
                    len(suspended_workers) < _MAX_BLOCKS_IN_FLIGHT and turn_generator.random() < 0.5
                )
            if turn_generator is not None and not turns_without_progress:
                suspended_workers.rotate(int(turn_generator.integers(len(suspended_workers) + 1)))
            if can_start_block:
                self._first_position = next_position
                self._running_worker = worker
                self.latest_worker = worker
                status = worker.start_blocks(order, next_position)
                next_position = worker.next_position
                self._running_worker = None
                self._completed_blocks += (
                    next_position - self._first_position - (status != layout.STATUS_DONE)
                )
                if status in _SUSPENDED_STATUSES:
                    suspended_workers.append(worker)
                    worker = Worker(self.launch, self.live_ranges)
                    self.workers.append(worker)
            else:
                current_worker = resumed_worker = self.latest_worker = suspended_workers.popleft()
                status = resumed_worker.resume_block()
                if status in _SUSPENDED_STATUSES:
                    suspended_workers.append(resumed_worker)
                elif status == layout.STATUS_DONE:
                    self._completed_blocks += 1
                    worker = resumed_worker
            turns_without_progress = turns_without_progress + 1 if status == layout.STATUS_YIELDED else 0
            if status == layout.STATUS_FAULT:
                if len(suspended_workers) + 1 >= max_suspended and next_position < len(order):
                    current_worker.fault_report = _ALL_WAIT_MESSAGE.format(
                        len(suspended_workers) + 1, len(order) - next_position
                    )
                self.launch.abort_flag[0] = 1
                return False
        return True

    @property
    def ended_blocks(self) -> int:
        """Number of blocks of the runner that have finished so far."""
        running_worker = self._running_worker
        return self._completed_blocks + (
            max(running_worker.next_position - self._first_position, 0) if running_worker is not None else 0
        )

    @property
    def state(self) -> tuple[int, int, int]:
        """The progress of the runner, as a tuple of three numbers. It contains the number of finished blocks,
        the running block, and that block's number of finished threads.
        """
        running_worker = self._running_worker
        if running_worker is None:
            return self.ended_blocks, -1, 0
        exited_lanes = np.count_nonzero(barriers.read_lane_pcs(running_worker) == layout.EXITED)
        return self.ended_blocks, int(running_worker.context[0]["block_linear"]), int(exited_lanes)


def run_launch_parts(
    launch: RunningLaunch, launch_parts: Sequence[tuple[RunningLaunch, npt.NDArray[np.int64]]]
) -> list[Worker]:
    """Run the parts of a grid one after the other. Each part uses several CPU cores if that is faster.

    The calling thread only waits, so that Ctrl-C and the notebook's stop button reach it.

    Raises
    ------
    KernelFault
        After the first fault, when every worker has stopped.
    KeyboardInterrupt
        When the user stops the kernel.
    """
    watchdog = Watchdog(launch)
    workers_used: list[Worker] = []
    launch_observer = (
        None if launch.options.make_launch_observer is None else launch.options.make_launch_observer()
    )
    try:
        for part_launch, block_order in launch_parts:
            if not block_order.size:
                continue
            runner_count = 1
            if (
                not part_launch.is_serial
                and part_launch.trace is None
                and block_order.size * part_launch.warps >= _MIN_PARALLEL_WARPS
            ):
                runner_count = min(count_cores(), int(block_order.size))
            live_allocations = part_launch.memory.find_live_ranges()
            runners = [BlockRunner(part_launch, live_allocations, runner_count) for _ in range(runner_count)]
            block_orders = [
                np.ascontiguousarray(blocks) for blocks in np.array_split(block_order, runner_count)
            ]
            watchdog.begin_part(runners)
            futures = _run_blocks_of_part(part_launch, runners, block_orders, watchdog, launch_observer)
            workers_used += [worker for runner in runners for worker in runner.workers]
            if not all(future.result() for future in futures):
                if watchdog.has_stopped:
                    launch.progress = part_launch.progress = watchdog.progress
                break
    finally:
        if launch_observer is not None:
            launch_observer.end()
    _forward_output(launch)
    callback_error = next((w.callback_error for w in workers_used if w.callback_error is not None), None)
    if callback_error is not None and launch.options.observer is not None:
        raise callback_error
    is_trace_stopped = any(
        part_launch.trace is not None and part_launch.trace.is_stopped for part_launch, _ in launch_parts
    )
    worker_faults = [(w, f) for w in workers_used if (f := w.find_fault()) is not None]
    if worker_faults and not (
        is_trace_stopped and all(fault.code == layout.ABORTED for _, fault in worker_faults)
    ):
        worker_faults.sort(key=lambda pair: pair[1].code == layout.ABORTED)
        worker, fault = worker_faults[0]
        raise faults.to_exception(
            fault, launch.packed_launch.title, launch.source, launch.memory
        ) from worker.callback_error
    return workers_used


def _run_blocks_of_part(
    launch: RunningLaunch,
    runners: Sequence[BlockRunner],
    orders: Sequence[npt.NDArray[np.int64]],
    watchdog: Watchdog,
    launch_observer: LaunchObserver | None,
) -> list[concurrent.futures.Future[bool]]:
    """Run all runners to the end of their blocks.

    An interruption, such as Ctrl-C, stops the runners.

    The watchdog stops them too. A traced block is stopped earlier if none of its threads ends, and its
    trace records that.
    """
    trace = launch.trace
    is_single_block = sum(order.size for order in orders) == 1
    futures: list[concurrent.futures.Future[bool]] = []
    try:
        for runner, order in zip(runners, orders, strict=True):
            futures.append(_get_worker_pool().submit(runner.run, order))
        memory_check_s = time.monotonic() + _MEMORY_CHECK_INTERVAL_S
        while concurrent.futures.wait(futures, timeout=_POLL_S).not_done:
            if time.monotonic() > memory_check_s:
                memory_check_s = time.monotonic() + _MEMORY_CHECK_INTERVAL_S
                if is_nearly_full():
                    raise make_out_of_memory_error(
                        f"almost no free memory. Kernel '{launch.packed_launch.title}' was stopped, "
                        "because its output is kept in host memory. Use smaller arrays."
                    )
            if launch_observer is not None:
                launch_observer.look(lambda: _find_position(launch, runners, watchdog))
            if watchdog.must_stop():
                launch.abort_flag[0] = 1
            elif (
                trace is not None
                and watchdog.time_since_last_end_s > _TRACED_TIME_SHARE * launch.options.watchdog_s
            ):
                trace.is_stopped = is_single_block or any(runner.is_trace_full for runner in runners)
                launch.abort_flag[0] |= trace.is_stopped
    except BaseException as interruption:
        launch.abort_flag[0] = 1
        concurrent.futures.wait(futures)
        if isinstance(interruption, KeyboardInterrupt):
            worker_faults = [
                fault for runner in runners for worker in runner.workers if (fault := worker.find_fault())
            ]
            raise KeyboardInterrupt(
                faults.make_stop_message(worker_faults, launch.packed_launch.title, launch.source)
            ) from None
        raise
    return futures


def _find_position(
    launch: RunningLaunch, runners: Sequence[BlockRunner], watchdog: Watchdog
) -> LaunchProgress:
    """Return the kernel's position in the runner that has the most work left."""
    latest_worker = min(runners, key=lambda runner: runner.ended_blocks).latest_worker
    context_record = latest_worker.context[0]
    source_line = latest_worker.current_line
    source_lines = launch.source.split("\n")
    return LaunchProgress(
        launch.packed_launch.title,
        source_line,
        source_lines[source_line - 1].strip() if 0 < source_line <= len(source_lines) else "",
        (int(context_record["ctaid_x"]), int(context_record["ctaid_y"]), int(context_record["ctaid_z"])),
        watchdog.ended_blocks,
        launch.block_clock.size,
    )


def _forward_output(launch: RunningLaunch) -> None:
    output = launch.print_buffer.text()
    if output and launch.options.stdout is not None:
        launch.options.stdout(output)
