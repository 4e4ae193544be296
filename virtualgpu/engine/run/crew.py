"""Running generated code: buffers, worker threads, watchdog and faults."""

from __future__ import annotations

import concurrent.futures
import functools
import os
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence

import numpy as np
import numpy.typing as npt

from virtualgpu.cuda_errors import Progress
from virtualgpu.engine.ir import layout
from virtualgpu.engine.run import barriers, faults
from virtualgpu.engine.run.launch import RunningLaunch
from virtualgpu.engine.run.worker import Worker
from virtualgpu.model.memory.host import is_nearly_full, out_of_host_memory

_STACK_BYTES = 64 << 20
# What is said of a launch that the watchdog stopped while no more blocks could start.
_FULL = (
    "{:,} blocks, all that the device holds at once, wait without an end, and {:,} that could help them "
    "start only as they end"
)
# Wall time that a launch may take, in watchdogs: its thread may get a small share of a core.
_BUSY_MACHINE = 20
_POLL_S = 0.02
# How often a launch looks how much memory the host has left.
_MEMORY_S = 0.25
# Share of the watchdog's time that a traced block may compute on without a thread's end: what it did so far
# is worth showing by then.
_TRACED_SHARE = 0.06
# Below this many warps a second thread costs more than it saves.
_PARALLEL_WARPS = 2048
# Host memory that blocks set aside may take.
_ASIDE_BYTES = 256 << 20


def cores() -> int:
    """CPU cores that kernels may use: those this process may, or as many as ``VIRTUALGPU_THREADS`` says."""
    asked = os.environ.get("VIRTUALGPU_THREADS", "")
    if asked.isdecimal() and int(asked):
        return int(asked)
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


@functools.cache
def _pool() -> concurrent.futures.ThreadPoolExecutor:
    """Worker threads with stacks deep enough for recursive kernels."""
    count = cores()
    pool = concurrent.futures.ThreadPoolExecutor(count, "gpulab-engine")
    before = threading.stack_size()
    threading.stack_size(_STACK_BYTES)
    try:
        gate = threading.Barrier(count)
        concurrent.futures.wait([pool.submit(gate.wait) for _ in range(count)])
    finally:
        threading.stack_size(before)
    return pool


class Crew:
    """Runs an order of blocks on one thread; blocks that only spin are set aside while others go on.

    A grid-wide barrier, or a block that waits for another's flag, needs several blocks in flight.
    """

    def __init__(
        self, launch: RunningLaunch, live: tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]], crews: int = 1
    ) -> None:
        self.launch, self.live = launch, live
        size = launch.warps * (launch.kernel.frame_bytes + layout.LANES * launch.kernel.local_bytes)
        self._room = max(16, _ASIDE_BYTES // max(size, 1))
        if launch.options.resident_blocks:
            self._room = min(self._room, -(-launch.options.resident_blocks // crews))
        self.workers = [Worker(launch, live)]
        self.spent_s: Callable[[], float] = lambda: 0.0
        self._over = 0  # blocks that have ended before the running worker took up the block at `_first`
        self._first = 0
        self._running: Worker | None = None

    @property
    def trace_is_full(self) -> bool:
        return any(worker.context[0]["truncated"] for worker in self.workers)

    def run(self, order: npt.NDArray[np.int64]) -> bool:
        """Run all blocks; False after a fault."""
        self.spent_s = _stopwatch()
        worker, position = self.workers[0], 0
        aside: deque[Worker] = deque()
        room = len(order) if self.launch.packed.cooperative else self._room
        while position < len(order) or aside:
            running = worker
            if position < len(order) and len(aside) < room:
                self._first, self._running = position, worker
                status = worker.start(order, position)
                position, self._running = worker.next, None
                self._over += position - self._first - (status != layout.DONE)
                if status == layout.YIELDS:
                    aside.append(worker)
                    worker = Worker(self.launch, self.live)
                    self.workers.append(worker)
            else:
                running = oldest = aside.popleft()
                status = oldest.resume()
                if status == layout.YIELDS:
                    aside.append(oldest)
                elif status == layout.DONE:
                    self._over += 1
                    worker = oldest
            if status == layout.FAULT:
                if len(aside) + 1 >= room and position < len(order):
                    running.report = _FULL.format(len(aside) + 1, len(order) - position)
                self.launch.abort[0] = 1
                return False
        return True

    @property
    def ended(self) -> int:
        """Blocks that have come to their end so far."""
        running = self._running
        return self._over + (max(running.next - self._first, 0) if running is not None else 0)

    @property
    def seen(self) -> tuple[int, int, int]:
        """Blocks that have ended, the block that runs, and how many of its threads have ended."""
        running = self._running
        if running is None:
            return self.ended, -1, 0
        exited = np.count_nonzero(barriers.lane_pcs(running) == layout.EXITED)
        return self.ended, int(running.context[0]["block_linear"]), int(exited)


def _moved(before: tuple[int, int, int], now: tuple[int, int, int]) -> bool:
    """Whether a block has ended, or a thread of the block that runs."""
    return now[0] > before[0] or (now[1] == before[1] and now[2] > before[2])


def run(launch: RunningLaunch, pieces: Sequence[tuple[RunningLaunch, npt.NDArray[np.int64]]]) -> list[Worker]:
    """Run pieces of a grid one after the other, each on as many cores as pay.

    The calling thread only waits, so that Ctrl-C and the notebook's stop button reach it.

    Raises
    ------
    KernelFault
        After the first fault, when every worker has stopped.
    KeyboardInterrupt
        When the user stops the kernel.
    """
    deadline = time.monotonic() + _BUSY_MACHINE * launch.options.watchdog_s
    left_s = launch.options.watchdog_s
    ended = 0
    done: list[Worker] = []
    for piece, order in pieces:
        if not order.size:
            continue
        workers = 1
        if not piece.serial and piece.trace is None and order.size * piece.warps >= _PARALLEL_WARPS:
            workers = min(cores(), int(order.size))
        live = piece.memory.live()
        crews = [Crew(piece, live, workers) for _ in range(workers)]
        parts = [np.ascontiguousarray(part) for part in np.array_split(order, workers)]
        futures, moved_s = _run(piece, crews, parts, left_s, deadline)
        left_s -= max(crew.spent_s() for crew in crews)
        done += [worker for crew in crews for worker in crew.workers]
        fine = all(future.result() for future in futures)
        ended += sum(crew.ended for crew in crews)
        if not fine:
            idle_s = max(crew.spent_s() for crew in crews) - moved_s
            launch.progress = piece.progress = Progress(
                ended, launch.block_clock.size, idle_s < launch.options.watchdog_s / 2
            )
            break
    _print(launch)
    broken = next((w.error for w in done if w.error is not None), None)
    if broken is not None and launch.options.observer is not None:
        raise broken
    stopped = any(piece.trace is not None and piece.trace.stopped for piece, _ in pieces)
    found = [(w, f) for w in done if (f := w.fault()) is not None]
    if found and not (stopped and all(fault.code == layout.ABORTED for _, fault in found)):
        found.sort(key=lambda pair: pair[1].code == layout.ABORTED)
        worker, fault = found[0]
        raise faults.to_exception(fault, launch.packed.title, launch.source, launch.memory) from worker.error
    return done


def _stopwatch() -> Callable[[], float]:
    """Seconds that the calling thread has computed since, or that have passed where no clock tells.

    On a busy machine a kernel gets a share of a core, and is not to be called endless for that.
    """
    if hasattr(time, "pthread_getcpuclockid"):
        clock = time.pthread_getcpuclockid(threading.get_ident())
        begun = time.clock_gettime(clock)
        return lambda: time.clock_gettime(clock) - begun
    started = time.monotonic()
    return lambda: time.monotonic() - started


def _run(
    launch: RunningLaunch,
    crews: Sequence[Crew],
    parts: Sequence[npt.NDArray[np.int64]],
    left_s: float,
    deadline: float,
) -> tuple[list[concurrent.futures.Future[bool]], float]:
    """Each crew's part of the order, to the end; whatever interrupts the wait also stops the crews.

    The watchdog stops them, too: after `left_s` of computing, or at the `deadline` of a busy machine. A block
    that is traced is stopped earlier where nothing of it ends, and its trace says so.

    Returns
    -------
    tuple
        The parts, and after how many seconds of computing the last thread or block was seen to end.
    """
    trace, alone = launch.trace, sum(part.size for part in parts) == 1
    futures: list[concurrent.futures.Future[bool]] = []
    seen, moved_s = [crew.seen for crew in crews], 0.0
    try:
        for crew, part in zip(crews, parts, strict=True):
            futures.append(_pool().submit(crew.run, part))
        look_s = time.monotonic() + _MEMORY_S
        while concurrent.futures.wait(futures, timeout=_POLL_S).not_done:
            spent_s = max(crew.spent_s() for crew in crews)
            now = [crew.seen for crew in crews]
            if any(map(_moved, seen, now)):
                moved_s = spent_s
            seen = now
            if time.monotonic() > look_s:
                look_s = time.monotonic() + _MEMORY_S
                if is_nearly_full():
                    raise out_of_host_memory(
                        f"hardly any memory left: kernel '{launch.packed.title}' was stopped, since what it "
                        "writes is kept in host memory. Use smaller arrays."
                    )
            if spent_s > left_s or time.monotonic() > deadline:
                launch.abort[0] = 1
            elif trace is not None and spent_s - moved_s > _TRACED_SHARE * launch.options.watchdog_s:
                trace.stopped = alone or any(crew.trace_is_full for crew in crews)
                launch.abort[0] |= trace.stopped
    except BaseException as interruption:
        launch.abort[0] = 1
        concurrent.futures.wait(futures)
        if isinstance(interruption, KeyboardInterrupt):
            faulty = [fault for crew in crews for worker in crew.workers if (fault := worker.fault())]
            raise KeyboardInterrupt(faults.stopped(faulty, launch.packed.title, launch.source)) from None
        raise
    return futures, moved_s


def _print(launch: RunningLaunch) -> None:
    text = launch.printed.text()
    if text and launch.options.stdout is not None:
        launch.options.stdout(text)
