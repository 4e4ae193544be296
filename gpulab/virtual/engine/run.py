"""Running generated code: buffers, worker threads, watchdog and faults."""

from __future__ import annotations

import concurrent.futures
import dataclasses
import functools
import os
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol

import numpy as np
import numpy.typing as npt

from gpulab.ptx import ir
from gpulab.records import Dim3
from gpulab.virtual.engine import faults, jit, layout
from gpulab.virtual.engine.codegen import Kernel
from gpulab.virtual.engine.services import Heap
from gpulab.virtual.engine.trace_buffers import TraceBuffers
from gpulab.virtual.engine.worker import Worker
from gpulab.virtual.memory import DeviceMemory

if TYPE_CHECKING:
    from gpulab.virtual.engine.program import TraceRequest

_STACK_BYTES = 64 << 20
_POLL_S = 0.02
# Below this many warps a second thread costs more than it saves.
_PARALLEL_WARPS = 2048
_PRINTF_LIMIT_BYTES = 1 << 20
_PATIENCE_ROUNDS = 16
# Host memory that blocks set aside may take.
_ASIDE_BYTES = 256 << 20


@functools.cache
def _pool() -> concurrent.futures.ThreadPoolExecutor:
    """Worker threads with stacks deep enough for recursive kernels."""
    count = os.cpu_count() or 1
    pool = concurrent.futures.ThreadPoolExecutor(count, "gpulab-engine")
    before = threading.stack_size()
    threading.stack_size(_STACK_BYTES)
    try:
        gate = threading.Barrier(count)
        concurrent.futures.wait([pool.submit(gate.wait) for _ in range(count)])
    finally:
        threading.stack_size(before)
    return pool


class Observer(Protocol):
    """Sees every access of a launch before it happens, in order, from one thread.

    Arrays of 32 lanes are valid during the call only.
    """

    def access(
        self,
        block: int,
        warp: int,
        i: ir.Instruction,
        addresses: npt.NDArray[np.int64],
        mask: int,
        stored: npt.NDArray[np.int64] | None,
    ) -> bool:
        """An access of the lanes in `mask`, and the bits they store if it is a scalar store.

        Shared and local addresses are offsets; generic ones carry their space's tag. True ends the
        warp's turn: other warps go on before it passes its next branch.
        """

    def warp_sync(self, block: int, warp: int, mask: int, members: npt.NDArray[np.int64]) -> None:
        """Lanes of a warp met at ``__syncwarp``, each with the lanes its own mask names."""

    def shuffle(
        self, block: int, warp: int, i: ir.Instruction, sources: npt.NDArray[np.int64], mask: int
    ) -> None:
        """The lanes in `mask` each read a register of the lane that `sources` names."""

    def fence(self, block: int, warp: int, mask: int) -> None:
        """Lanes of a warp executed a memory fence."""

    def copy(
        self,
        block: int,
        warp: int,
        i: ir.Instruction,
        addresses: npt.NDArray[np.int64],
        mask: int,
        event: int,
    ) -> None:
        """Something happens to what the lanes in `mask` copied with ``cp.async`` to shared memory.

        It arrives as they wait (``layout.BY_WAIT``), is bound to a phase of an mbarrier
        (``TO_BARRIER``), or arrives as the phase ends (``BY_BARRIER``).
        """

    def barrier(self, block: int, threads: npt.NDArray[np.bool_], everyone: bool, number: int = 0) -> None:
        """Threads of a block, shape (warps, 32), passed a barrier; `everyone`: all that live."""

    def arrive(self, block: int, warp: int, mask: int, number: int) -> None:
        """Lanes of a warp arrived at a barrier and went on."""

    def block_end(self, block: int) -> None:
        """A block that was told of is over. The last ones of a launch are not announced."""


@dataclass(slots=True)
class Launch:
    """One launch: code, shape, parameters and the columns its blocks fill."""

    kernel: Kernel
    code: jit.Code
    source: str
    grid: Dim3
    block: Dim3
    params: bytes
    shared_bytes: int
    dynamic_shared_bytes: int
    memory: DeviceMemory
    globals: npt.NDArray[np.int64]
    watchdog_s: float
    sm_count: int
    stdout: Callable[[str], None] | None
    serial: bool
    cooperative: bool = False
    grid_workspace: int = 0
    observer: Observer | None = None
    independent_threads: bool = True
    heap: Heap | None = None
    block_clock: npt.NDArray[np.int64] = field(default_factory=lambda: np.zeros(0, np.int64))
    block_sectors: npt.NDArray[np.int64] = field(default_factory=lambda: np.zeros(0, np.int64))
    block_wavefronts: npt.NDArray[np.int64] = field(default_factory=lambda: np.zeros(0, np.int64))
    abort: npt.NDArray[np.int32] = field(default_factory=lambda: np.zeros(1, np.int32))
    printed: list[str] = field(default_factory=list)
    trace_block: int = -1
    trace_warp: int = -1
    trace: TraceBuffers | None = None

    def __post_init__(self) -> None:
        blocks = self.grid[0] * self.grid[1] * self.grid[2]
        if not self.block_clock.size:
            self.block_clock = np.zeros(blocks, np.int64)
            self.block_sectors = np.zeros(blocks, np.int64)
            self.block_wavefronts = np.zeros(blocks, np.int64)

    @property
    def patience(self) -> int:
        """Rounds of pure spinning after which a block is set aside for others to go on.

        An observer learns more from blocks that take turns.
        """
        return 1 if self.cooperative or self.observer is not None else _PATIENCE_ROUNDS

    @property
    def threads(self) -> int:
        return self.block[0] * self.block[1] * self.block[2]

    @property
    def warps(self) -> int:
        return -(-self.threads // layout.LANES)

    def traced(
        self,
        kernel: Kernel,
        code: jit.Code,
        addresses: npt.NDArray[np.int64],
        block: int,
        request: TraceRequest,
    ) -> Launch:
        """The same launch in code that records the steps of one warp, or of all warps of a block."""
        return dataclasses.replace(
            self, kernel=kernel, code=code, globals=addresses, trace_block=block,
            trace_warp=layout.EVERY_WARP if request.whole_block else request.warp_index,
            trace=TraceBuffers(request.max_steps, not request.whole_block and self.warps > 1),
        )  # fmt: skip


class Crew:
    """Runs an order of blocks on one thread; blocks that only spin are set aside while others go on.

    A grid-wide barrier, or a block that waits for another's flag, needs several blocks in flight.
    """

    def __init__(self, launch: Launch, live: tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]) -> None:
        self.launch, self.live = launch, live
        self.workers = [Worker(launch, live)]

    def run(self, order: npt.NDArray[np.int64]) -> bool:
        """Run all blocks; False after a fault."""
        worker, position = self.workers[0], 0
        aside: deque[Worker] = deque()
        size = self.launch.warps * (self.launch.kernel.frame_bytes + 32 * self.launch.kernel.local_bytes)
        room = len(order) if self.launch.cooperative else max(16, _ASIDE_BYTES // max(size, 1))
        while position < len(order) or aside:
            if position < len(order) and len(aside) < room:
                status = worker.start(order, position)
                position = worker.next
                if status == layout.YIELDS:
                    aside.append(worker)
                    worker = Worker(self.launch, self.live)
                    self.workers.append(worker)
            else:
                oldest = aside.popleft()
                status = oldest.resume()
                if status == layout.YIELDS:
                    aside.append(oldest)
                elif status == layout.DONE:
                    worker = oldest
            if status == layout.FAULT:
                self.launch.abort[0] = 1
                return False
        return True


def run(launch: Launch, pieces: Sequence[tuple[Launch, npt.NDArray[np.int64]]]) -> list[Worker]:
    """Run pieces of a grid one after the other, each on as many cores as pay.

    The calling thread only waits, so that Ctrl-C and the notebook's stop button reach it.

    Raises
    ------
    KernelFault
        After the first fault, when every worker has stopped.
    KeyboardInterrupt
        When the user stops the kernel.
    """
    deadline = time.monotonic() + launch.watchdog_s
    done: list[Worker] = []
    for piece, order in pieces:
        if not order.size:
            continue
        workers = 1
        if not piece.serial and piece.trace is None and order.size * piece.warps >= _PARALLEL_WARPS:
            workers = min(os.cpu_count() or 1, int(order.size))
        live = piece.memory.live()
        crews = [Crew(piece, live) for _ in range(workers)]
        parts = [np.ascontiguousarray(part) for part in np.array_split(order, workers)]
        futures = [_pool().submit(crew.run, part) for crew, part in zip(crews, parts, strict=True)]
        _wait(launch, futures, deadline)
        done += [worker for crew in crews for worker in crew.workers]
        fine = all(future.result() for future in futures)
        if not fine:
            break
    _print(launch)
    broken = next((w.error for w in done if w.error is not None), None)
    if broken is not None and launch.observer is not None:
        raise broken
    found = [(w, f) for w in done if (f := w.fault()) is not None]
    if found:
        found.sort(key=lambda pair: pair[1].code == layout.ABORTED)
        worker, fault = found[0]
        raise faults.to_exception(fault, launch.kernel.name, launch.source, launch.memory) from worker.error
    return done


def _wait(launch: Launch, futures: Sequence[concurrent.futures.Future[bool]], deadline: float) -> None:
    pending: set[concurrent.futures.Future[bool]] = set(futures)
    try:
        while pending:
            _, pending = concurrent.futures.wait(pending, timeout=_POLL_S)
            if pending and time.monotonic() > deadline:
                launch.abort[0] = 1
    except BaseException:
        launch.abort[0] = 1
        concurrent.futures.wait(pending)
        raise


def _print(launch: Launch) -> None:
    if not launch.printed or launch.stdout is None:
        return
    text = "".join(launch.printed)
    if len(text) > _PRINTF_LIMIT_BYTES:
        text = text[:_PRINTF_LIMIT_BYTES] + "\n[printf output cut at 1 MiB]\n"
    launch.stdout(text)
