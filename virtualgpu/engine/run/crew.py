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

from virtualgpu.engine.ir import layout
from virtualgpu.engine.run import faults
from virtualgpu.engine.run.launch import RunningLaunch
from virtualgpu.engine.run.worker import Worker

_STACK_BYTES = 64 << 20
# What is said of a launch that the watchdog stopped while no more blocks could start.
_FULL = (
    "{:,} blocks, all that the device holds at once, wait without an end, and {:,} that could help them "
    "start only as they end"
)
# Wall time that a launch may take, in watchdogs: its thread may get a small share of a core.
_BUSY_MACHINE = 20
_POLL_S = 0.02
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

    def run(self, order: npt.NDArray[np.int64]) -> bool:
        """Run all blocks; False after a fault."""
        self.spent_s = _stopwatch()
        worker, position = self.workers[0], 0
        aside: deque[Worker] = deque()
        room = len(order) if self.launch.packed.cooperative else self._room
        while position < len(order) or aside:
            running = worker
            if position < len(order) and len(aside) < room:
                status = worker.start(order, position)
                position = worker.next
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
                    worker = oldest
            if status == layout.FAULT:
                if len(aside) + 1 >= room and position < len(order):
                    running.report = _FULL.format(len(aside) + 1, len(order) - position)
                self.launch.abort[0] = 1
                return False
        return True


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
        futures = _run(launch, crews, parts, left_s, deadline)
        left_s -= max(crew.spent_s() for crew in crews)
        done += [worker for crew in crews for worker in crew.workers]
        fine = all(future.result() for future in futures)
        if not fine:
            break
    _print(launch)
    broken = next((w.error for w in done if w.error is not None), None)
    if broken is not None and launch.options.observer is not None:
        raise broken
    found = [(w, f) for w in done if (f := w.fault()) is not None]
    if found:
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
) -> list[concurrent.futures.Future[bool]]:
    """Each crew's part of the order, to the end; whatever interrupts the wait also stops the crews.

    The watchdog stops them, too: after `left_s` of computing, or at the `deadline` of a busy machine.
    """
    futures: list[concurrent.futures.Future[bool]] = []
    try:
        for crew, part in zip(crews, parts, strict=True):
            futures.append(_pool().submit(crew.run, part))
        while concurrent.futures.wait(futures, timeout=_POLL_S).not_done:
            spent_s = max(crew.spent_s() for crew in crews)
            if spent_s > left_s or time.monotonic() > deadline:
                launch.abort[0] = 1
    except BaseException as interruption:
        launch.abort[0] = 1
        concurrent.futures.wait(futures)
        if isinstance(interruption, KeyboardInterrupt):
            faulty = [fault for crew in crews for worker in crew.workers if (fault := worker.fault())]
            raise KeyboardInterrupt(faults.stopped(faulty, launch.packed.title, launch.source)) from None
        raise
    return futures


def _print(launch: RunningLaunch) -> None:
    text = launch.printed.text()
    if text and launch.options.stdout is not None:
        launch.options.stdout(text)
