"""Running generated code: buffers, worker threads, watchdog and faults."""

from __future__ import annotations

import concurrent.futures
import ctypes
import dataclasses
import functools
import os
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import PurePath
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from gpulab.ptx import ir
from gpulab.records import Dim3
from gpulab.virtual.engine import faults, jit, layout, printf, results
from gpulab.virtual.engine.codegen import Kernel
from gpulab.virtual.memory import DeviceMemory

if TYPE_CHECKING:
    from gpulab.virtual.engine.program import TraceRequest

_STACK_BYTES = 64 << 20
_POLL_S = 0.02
# Below this many warps a second thread costs more than it saves.
_PARALLEL_WARPS = 2048
_PRINTF_LIMIT_BYTES = 1 << 20
_PRINTF = ctypes.CFUNCTYPE(ctypes.c_int32, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_uint32)


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


def _aligned(size_bytes: int, align: int = 128) -> tuple[npt.NDArray[np.uint8], int]:
    buffer = np.empty(size_bytes + align, np.uint8)
    return buffer, buffer.ctypes.data + (-buffer.ctypes.data) % align


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
    block_clock: npt.NDArray[np.int64] = field(default_factory=lambda: np.zeros(0, np.int64))
    block_sectors: npt.NDArray[np.int64] = field(default_factory=lambda: np.zeros(0, np.int64))
    block_wavefronts: npt.NDArray[np.int64] = field(default_factory=lambda: np.zeros(0, np.int64))
    abort: npt.NDArray[np.int32] = field(default_factory=lambda: np.zeros(1, np.int32))
    printed: list[str] = field(default_factory=list)
    trace_block: int = -1
    trace_warp: int = -1
    trace_buffer: npt.NDArray[Any] | None = None
    trace_count: int = 0
    truncated: bool = False

    def __post_init__(self) -> None:
        blocks = self.grid[0] * self.grid[1] * self.grid[2]
        if not self.block_clock.size:
            self.block_clock = np.zeros(blocks, np.int64)
            self.block_sectors = np.zeros(blocks, np.int64)
            self.block_wavefronts = np.zeros(blocks, np.int64)

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
        """The same launch in code that records the steps of one warp."""
        buffer = np.zeros(request.max_steps, layout.TRACE_STEP)
        buffer["address"] = -1
        return dataclasses.replace(
            self, kernel=kernel, code=code, globals=addresses, trace_block=block,
            trace_warp=request.warp_index, trace_buffer=buffer,
        )  # fmt: skip

    def steps(self) -> npt.NDArray[Any]:
        assert self.trace_buffer is not None
        return self.trace_buffer[: self.trace_count]


def thread_indices(block: Dim3) -> npt.NDArray[np.int32]:
    """``%tid`` of every lane, shape (warps, 3, 32)."""
    warps = -(-block[0] * block[1] * block[2] // layout.LANES)
    lane = np.arange(warps * layout.LANES, dtype=np.int32)
    columns = np.stack([lane % block[0], lane // block[0] % block[1], lane // (block[0] * block[1])])
    return np.ascontiguousarray(columns.reshape(3, warps, layout.LANES).transpose(1, 0, 2).astype(np.int32))


class Worker:
    """The buffers of one thread of execution, and its turn through a range of blocks."""

    def __init__(self, launch: Launch, live: tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]) -> None:
        kernel = launch.kernel
        self.launch = launch
        self.error: BaseException | None = None
        tables = kernel.tables
        self.accesses = np.zeros(max(len(tables.accesses), 1) * layout.ACCESS_STRIDE // 8, np.int64)
        self.branches = np.zeros(max(len(tables.branches), 1) * layout.BRANCH_STRIDE // 8, np.int64)
        self.blocks = np.zeros(max(len(tables.blocks), 1) * layout.BLOCK_STRIDE // 8, np.int64)
        cache = np.zeros(max(len(tables.accesses), 1) * 2, np.int64)
        warps = launch.warps
        frames, frames_at = _aligned(warps * kernel.frame_bytes + 64)
        local_stride = -(-32 * kernel.local_bytes // 64) * 64
        local, local_at = _aligned(warps * local_stride + 64)
        # Shared memory starts as garbage on a GPU too; all ones read as NaN or -1 and so show up.
        shared, shared_at = _aligned(launch.shared_bytes + 64)
        shared[:] = 0xFF
        status = np.zeros(warps, np.int32)
        tids = thread_indices(launch.block)
        params = np.frombuffer(launch.params, np.uint8).copy()
        starts, ends = _with_range(live, params.ctypes.data, params.size)
        self.printf = _PRINTF(self.on_printf)
        self.context = np.zeros(1, layout.CONTEXT)
        self.readable = starts, ends
        self._keep = [cache, frames, local, shared, status, tids, params, starts, ends]
        buffers: dict[str, npt.NDArray[Any]] = {
            "params": params, "access_counters": self.accesses, "branch_counters": self.branches,
            "block_counters": self.blocks, "access_cache": cache, "live_starts": starts, "live_ends": ends,
            "abort_flag": launch.abort, "globals": launch.globals, "tids": tids, "status": status,
            "block_clock": launch.block_clock, "block_sectors": launch.block_sectors,
            "block_wavefronts": launch.block_wavefronts,
        }  # fmt: skip
        numbers: dict[str, int] = {
            "shared": shared_at, "shared_bytes": launch.shared_bytes, "live_count": len(starts),
            "frames": frames_at, "frame_stride": kernel.frame_bytes, "local": local_at,
            "local_bytes": kernel.local_bytes, "local_stride": local_stride,
            "threads": launch.threads, "warps": warps, "trace_block": launch.trace_block,
            "trace_warp": launch.trace_warp, "budget": layout.BACK_EDGE_BUDGET, "sm_count": launch.sm_count,
            "dynamic_shared_bytes": launch.dynamic_shared_bytes,
            "printf": ctypes.cast(self.printf, ctypes.c_void_p).value or 0,
        }  # fmt: skip
        for axis, n in zip("xyz", launch.block, strict=True):
            numbers[f"ntid_{axis}"] = n
        for axis, n in zip("xyz", launch.grid, strict=True):
            numbers[f"nctaid_{axis}"] = n
        if launch.trace_buffer is not None:
            start = launch.trace_buffer.ctypes.data
            numbers |= {"trace_cursor": start, "trace_end": start + launch.trace_buffer.nbytes}
        row = self.context[0]
        for name, array in buffers.items():
            row[name] = array.ctypes.data
        for name, number in numbers.items():
            row[name] = number

    def run(self, order: npt.NDArray[np.int64]) -> bool:
        """Run blocks in order; False after a fault."""
        row = self.context[0]
        row["block_order"] = order.ctypes.data
        status = self.launch.code.run_blocks(self.context.ctypes.data, 0, len(order))
        if self.launch.trace_buffer is not None:
            used = int(row["trace_cursor"]) - self.launch.trace_buffer.ctypes.data
            self.launch.trace_count = used // layout.TRACE_STEP.itemsize
            self.launch.truncated = bool(row["truncated"])
        if status != layout.DONE:
            self.launch.abort[0] = 1
            return False
        return True

    # -- printf ------------------------------------------------------------------------------------

    def read(self, address: int, size: int) -> bytes:
        """Device memory for format strings and ``%s``; nothing where no allocation is live."""
        starts, ends = self.readable
        at = int(np.searchsorted(starts, address, side="right")) - 1
        if at < 0 or address + size > int(ends[at]):
            return b""
        return ctypes.string_at(address, size)

    def on_printf(self, _context: int, formats: int, values: int, mask: int) -> int:
        try:
            templates = np.ctypeslib.as_array((ctypes.c_uint64 * 32).from_address(formats))
            pointers = np.ctypeslib.as_array((ctypes.c_uint64 * 32).from_address(values))
            row = self.context[0]
            for lane in range(32):
                if mask >> lane & 1:
                    template = printf.text_at(self.read, int(templates[lane]))
                    packed = self.argument_bytes(int(pointers[lane]), lane, row)
                    self.launch.printed.append(printf.format_text(template, packed, self.read))
        except BaseException as error:
            self.error = error
            return 1
        return 0

    def argument_bytes(self, pointer: int, lane: int, row: Any) -> bytes:
        """The packed arguments: a pointer into the lane's own stack, or 0 for none."""
        if pointer >> 56 != 2:
            return b""
        offset = pointer & ((1 << 56) - 1)
        room = int(row["local_bytes"])
        start = int(row["local_base"]) + lane * room
        return ctypes.string_at(start + offset, max(0, room - offset))

    # -- faults ------------------------------------------------------------------------------------

    def fault(self) -> faults.Fault | None:
        row = self.context[0]
        if not row["fault_code"]:
            return None
        launch = self.launch
        function = launch.kernel.plans[int(row["fault_function"])].function
        pc = int(row["fault_pc"])
        instruction: ir.Instruction | None = (
            function.instructions[pc] if 0 <= pc < len(function.instructions) else None
        )
        number = int(row["warp"]) * 32 + (int(row["fault_lane"]) & 31)
        message = str(self.error) if self.error else ""
        if row["fault_code"] == layout.ASSERTED:
            text, file, line, _ = (int(v) for v in row["fault_extra"][:4])
            name = PurePath(printf.text_at(self.read, file)).name
            message = f"`{printf.text_at(self.read, text)}` ({name}:{line & 0xFFFFFFFF})"
        return faults.Fault(
            int(row["fault_code"]), function, instruction,
            (int(row["ctaid_x"]), int(row["ctaid_y"]), int(row["ctaid_z"])),
            results.unlinear(number, launch.block), int(row["fault_address"]), int(row["fault_size"]),
            launch.shared_bytes, launch.kernel.local_bytes, launch.watchdog_s, message,
        )  # fmt: skip


def _with_range(
    live: tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]], start: int, size: int
) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    """The live ranges and one more, sorted; kernel parameters can be read through pointers too."""
    at = int(np.searchsorted(live[0], start))
    return np.insert(live[0], at, start), np.insert(live[1], at, start + size)


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
        if not piece.serial and piece.trace_buffer is None and order.size * piece.warps >= _PARALLEL_WARPS:
            workers = min(os.cpu_count() or 1, int(order.size))
        live = piece.memory.live()
        crew = [Worker(piece, live) for _ in range(workers)]
        done += crew
        parts = [np.ascontiguousarray(part) for part in np.array_split(order, workers)]
        futures = [_pool().submit(w.run, part) for w, part in zip(crew, parts, strict=True)]
        _wait(launch, futures, deadline)
        fine = all(future.result() for future in futures)
        if not fine:
            break
    _print(launch)
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
