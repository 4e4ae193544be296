"""Running generated code: buffers, worker threads, watchdog and faults."""

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

from virtualgpu.compile.interruptible import stacks_of
from virtualgpu.engine.ir import layout
from virtualgpu.engine.run import barriers, faults
from virtualgpu.engine.run.launch import RunningLaunch
from virtualgpu.engine.run.stopwatch import Stopwatch
from virtualgpu.engine.run.watchdog import Watchdog
from virtualgpu.engine.run.worker import Worker
from virtualgpu.model.memory.host import is_nearly_full, out_of_host_memory
from virtualgpu.records.launch.whereabouts import Onlooker, Whereabouts

_STACK_BYTES = 64 << 20
# What is said of a launch that the watchdog stopped while no more blocks could start.
_FULL = (
    "{:,} blocks, all that the device holds at once, wait without an end, and {:,} that could help them "
    "start only as they end"
)
_POLL_S = 0.02
# How often a launch looks how much memory the host has left.
_MEMORY_S = 0.25
# Share of the watchdog's time that a traced block may compute on without a thread's end: what it did so far
# is worth showing by then.
_TRACED_SHARE = 0.06
# Below this many warps a second thread costs more than it saves.
_PARALLEL_WARPS = 2048
# Of blocks that hand over at barriers so many are on their way at once, more only if all of them wait: in a
# chain, where each waits for the one before, hundreds would look in vain each time that one goes on.
_IN_TURN = 8
# Host memory that blocks set aside may take.
_ASIDE_BYTES = 256 << 20
# A block that waits for others, or lets them go on at a barrier.
_ASIDE = (layout.YIELDS, layout.HANDED_OVER)
_making = threading.Lock()


def cores() -> int:
    """CPU cores that kernels may use: those this process may, or as many as ``VIRTUALGPU_THREADS`` says."""
    asked = os.environ.get("VIRTUALGPU_THREADS", "")
    if asked.isdecimal() and int(asked):
        return int(asked)
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


@functools.cache
def _made() -> concurrent.futures.ThreadPoolExecutor:
    count = cores()
    pool = concurrent.futures.ThreadPoolExecutor(count, "gpulab-engine")
    gate = threading.Barrier(count)
    with stacks_of(_STACK_BYTES):
        concurrent.futures.wait([pool.submit(gate.wait) for _ in range(count)])
    return pool


def _pool() -> concurrent.futures.ThreadPoolExecutor:
    """Worker threads with stacks deep enough for recursive kernels; one pool, whoever launches first."""
    with _making:
        return _made()


class Crew:
    """Runs an order of blocks on one thread; blocks that only spin are set aside while others go on.

    A grid-wide barrier, or a block that waits for another's flag, needs several blocks in flight.
    """

    def __init__(
        self, launch: RunningLaunch, live: tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]], crews: int = 1
    ) -> None:
        self.launch = launch
        self.live = live
        size = launch.warps * (launch.kernel.frame_bytes + layout.LANES * launch.kernel.local_bytes)
        self._room = max(16, _ASIDE_BYTES // max(size, 1))
        if launch.options.resident_blocks:
            self._room = min(self._room, -(-launch.options.resident_blocks // crews))
        self.latest = Worker(launch, live)  # that was given a turn
        self.workers = [self.latest]
        self._stopwatch: Stopwatch | None = None
        self._over = 0  # blocks that have ended before the running worker took up the block at `_first`
        self._first = 0
        self._running: Worker | None = None

    @property
    def trace_is_full(self) -> bool:
        return any(worker.context[0]["truncated"] for worker in self.workers)

    def run(self, order: npt.NDArray[np.int64]) -> bool:
        """Run all blocks; False after a fault."""
        self._stopwatch = Stopwatch()
        try:
            return self._run(order)
        finally:
            self._stopwatch.stop()

    @property
    def spent_s(self) -> float:
        """Seconds that it has computed."""
        return 0.0 if self._stopwatch is None else self._stopwatch.spent_s

    def _run(self, order: npt.NDArray[np.int64]) -> bool:
        worker = self.workers[0]
        position = 0
        aside: deque[Worker] = deque()
        room = len(order) if self.launch.packed.cooperative else self._room
        seed = self.launch.options.turns_seed
        drawn = None if seed is None else np.random.default_rng(seed)
        in_vain = 0  # turns since a block went on
        while position < len(order) or aside:
            running = worker
            begins = position < len(order) and len(aside) < room
            if drawn is not None and begins and aside:
                begins = in_vain > len(aside) or (len(aside) < _IN_TURN and drawn.random() < 0.5)
            if drawn is not None and not in_vain:
                aside.rotate(int(drawn.integers(len(aside) + 1)))
            if begins:
                self._first = position
                self._running = worker
                self.latest = worker
                status = worker.start(order, position)
                position = worker.next
                self._running = None
                self._over += position - self._first - (status != layout.DONE)
                if status in _ASIDE:
                    aside.append(worker)
                    worker = Worker(self.launch, self.live)
                    self.workers.append(worker)
            else:
                running = oldest = self.latest = aside.popleft()
                status = oldest.resume()
                if status in _ASIDE:
                    aside.append(oldest)
                elif status == layout.DONE:
                    self._over += 1
                    worker = oldest
            in_vain = in_vain + 1 if status == layout.YIELDS else 0
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
    watchdog = Watchdog(launch)
    done: list[Worker] = []
    onlooker = None if launch.options.onlooker is None else launch.options.onlooker()
    try:
        for piece, order in pieces:
            if not order.size:
                continue
            workers = 1
            if not piece.serial and piece.trace is None and order.size * piece.warps >= _PARALLEL_WARPS:
                workers = min(cores(), int(order.size))
            live = piece.memory.live()
            crews = [Crew(piece, live, workers) for _ in range(workers)]
            parts = [np.ascontiguousarray(part) for part in np.array_split(order, workers)]
            watchdog.begin(crews)
            futures = _run(piece, crews, parts, watchdog, onlooker)
            done += [worker for crew in crews for worker in crew.workers]
            if not all(future.result() for future in futures):
                if watchdog.has_stopped:
                    launch.progress = piece.progress = watchdog.progress
                break
    finally:
        if onlooker is not None:
            onlooker.end()
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


def _run(
    launch: RunningLaunch,
    crews: Sequence[Crew],
    parts: Sequence[npt.NDArray[np.int64]],
    watchdog: Watchdog,
    onlooker: Onlooker | None,
) -> list[concurrent.futures.Future[bool]]:
    """Each crew's part of the order, to the end; whatever interrupts the wait also stops the crews.

    The watchdog stops them, too. A block that is traced is stopped earlier where nothing of it ends, and its
    trace says so.
    """
    trace = launch.trace
    alone = sum(part.size for part in parts) == 1
    futures: list[concurrent.futures.Future[bool]] = []
    try:
        for crew, part in zip(crews, parts, strict=True):
            futures.append(_pool().submit(crew.run, part))
        look_s = time.monotonic() + _MEMORY_S
        while concurrent.futures.wait(futures, timeout=_POLL_S).not_done:
            if time.monotonic() > look_s:
                look_s = time.monotonic() + _MEMORY_S
                if is_nearly_full():
                    raise out_of_host_memory(
                        f"hardly any memory left: kernel '{launch.packed.title}' was stopped, since what it "
                        "writes is kept in host memory. Use smaller arrays."
                    )
            if onlooker is not None:
                onlooker.look(lambda: _whereabouts(launch, crews, watchdog))
            if watchdog.is_over():
                launch.abort[0] = 1
            elif trace is not None and watchdog.still_s > _TRACED_SHARE * launch.options.watchdog_s:
                trace.stopped = alone or any(crew.trace_is_full for crew in crews)
                launch.abort[0] |= trace.stopped
    except BaseException as interruption:
        launch.abort[0] = 1
        concurrent.futures.wait(futures)
        if isinstance(interruption, KeyboardInterrupt):
            faulty = [fault for crew in crews for worker in crew.workers if (fault := worker.fault())]
            raise KeyboardInterrupt(faults.stopped(faulty, launch.packed.title, launch.source)) from None
        raise
    return futures


def _whereabouts(launch: RunningLaunch, crews: Sequence[Crew], watchdog: Watchdog) -> Whereabouts:
    """Where the crew is that has most left to do."""
    worker = min(crews, key=lambda crew: crew.ended).latest
    row = worker.context[0]
    line = worker.line
    lines = launch.source.split("\n")
    return Whereabouts(
        launch.packed.title,
        line,
        lines[line - 1].strip() if 0 < line <= len(lines) else "",
        (int(row["ctaid_x"]), int(row["ctaid_y"]), int(row["ctaid_z"])),
        watchdog.ended,
        launch.block_clock.size,
    )


def _print(launch: RunningLaunch) -> None:
    text = launch.printed.text()
    if text and launch.options.stdout is not None:
        launch.options.stdout(text)
