"""Descriptions of a launch for the engine: code, grid, parameters, and the arrays that its blocks fill."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from virtualgpu.cuda_errors import Progress
from virtualgpu.engine.ir import layout
from virtualgpu.engine.lower.codegen import GeneratedKernel
from virtualgpu.engine.machine import jit
from virtualgpu.engine.observe.observer import Observer
from virtualgpu.engine.observe.trace_buffers import TraceBuffers, TraceRequest
from virtualgpu.engine.run.printf import PrintBuffer
from virtualgpu.model.memory import DeviceMemory
from virtualgpu.records import Dim3
from virtualgpu.records.launch.whereabouts import LaunchObserver

_PATIENCE_ROUNDS = 16


@dataclass(frozen=True, slots=True)
class PackedLaunch:
    """A request to the engine to launch a kernel, with the arguments packed as bytes.

    The field ``shared_bytes`` is the dynamic shared memory of a block. ``cooperative`` keeps all blocks in
    flight and gives cooperative groups a grid workspace. ``source_name`` is the name in messages and records.
    """

    name: str
    grid: Dim3
    block: Dim3
    params: bytes
    shared_bytes: int = 0
    cooperative: bool = False
    source_name: str = ""

    @property
    def title(self) -> str:
        """The name of the kernel in its source code."""
        return self.source_name or self.name


@dataclass(frozen=True, slots=True, kw_only=True)
class RunOptions:
    """The options of a kernel launch, such as device settings and observers.

    Parameters
    ----------
    device_name
        Name of the device for the provenance of records.
    sm_count
        Number of SMs for ``%smid`` and ``%nsmid``.
    l1_bytes
        Size of an SM's L1 cache, for the counter ``missed_sectors``.
    resident_blocks
        Blocks that the device holds at once; 0: as many as the host has memory for. Other blocks start when
        these end, so a block that waits for a later one may wait forever.
    watchdog_s
        Processor time in seconds after which the launch is stopped.
    patient
        Do not stop the launch while its threads or blocks still end, because then it will end too.
    idle_s
        Processor time in seconds after which the launch is stopped if no thread has ended and nothing new was
        stored or printed; None: no such limit.
    stdout
        Called once with the kernel's printed output, when the kernel ends.
    make_launch_observer
        Makes the object that receives the position of the launch while it runs.
    independent_threads
        Let diverged lanes that wait for each other alternate, as GPUs do since Volta.
    block_order
        Order in which blocks run (linear indices); ascending by default.
    turns_seed
        Let blocks alternate: a block hands over at each of its barriers, and the next block to continue or
        start is chosen at random from this seed. None: a block runs to its end unless it waits for another.
    instrument
        ``"counters"`` or ``"none"``.
    trace
        A warp, or a block, to record step by step.
    observer
        Receives every memory access and every synchronisation, for checking tools.
    trap_nan
        Stop at the first instruction whose result is NaN although none of its operands is.
    """

    device_name: str = "virtual GPU"
    sm_count: int = 1
    l1_bytes: int = 128 * 1024
    resident_blocks: int = 0
    watchdog_s: float = 20.0
    patient: bool = False
    idle_s: float | None = None
    stdout: Callable[[str], None] | None = None
    make_launch_observer: Callable[[], LaunchObserver] | None = None
    independent_threads: bool = True
    block_order: npt.NDArray[np.int64] | None = None
    turns_seed: int | None = None
    instrument: str = "counters"
    trace: TraceRequest | None = None
    observer: Observer | None = None
    trap_nan: bool = False


@dataclass(slots=True)
class RunningLaunch:
    """The state of a kernel launch that is running. The object contains the code, the shared state of the
    workers, and the arrays that blocks fill.

    ``shared_bytes`` is all shared memory of a block, static and dynamic.
    """

    kernel: GeneratedKernel
    machine_code: jit.KernelCode
    source: str
    packed_launch: PackedLaunch
    options: RunOptions
    shared_bytes: int
    memory: DeviceMemory
    global_addresses: npt.NDArray[np.int64]
    is_serial: bool
    grid_workspace: int = 0
    block_clock: npt.NDArray[np.int64] = field(default_factory=lambda: np.zeros(0, np.int64))
    block_sectors: npt.NDArray[np.int64] = field(default_factory=lambda: np.zeros(0, np.int64))
    block_wavefronts: npt.NDArray[np.int64] = field(default_factory=lambda: np.zeros(0, np.int64))
    block_longest_warp: npt.NDArray[np.int64] = field(default_factory=lambda: np.zeros(0, np.int64))
    abort_flag: npt.NDArray[np.int32] = field(default_factory=lambda: np.zeros(1, np.int32))
    print_buffer: PrintBuffer = field(default_factory=PrintBuffer)
    trace_block: int = -1
    trace_warp: int = -1
    trace: TraceBuffers | None = None
    progress: Progress | None = None  # of a launch that was stopped

    def __post_init__(self) -> None:
        blocks = math.prod(self.packed_launch.grid)
        if not self.block_clock.size:
            self.block_clock = np.zeros(blocks, np.int64)
            self.block_sectors = np.zeros(blocks, np.int64)
            self.block_wavefronts = np.zeros(blocks, np.int64)
            self.block_longest_warp = np.zeros(blocks, np.int64)

    @property
    def patience_rounds(self) -> int:
        """Number of rounds that a block may wait in a loop before other blocks run.

        With an observer, the number is 1, because frequent changes between blocks reveal more access orders.
        """
        runs_alone = not self.packed_launch.cooperative and self.options.turns_seed is None
        return _PATIENCE_ROUNDS if runs_alone and self.options.observer is None else 1

    @property
    def threads(self) -> int:
        return math.prod(self.packed_launch.block)

    @property
    def warps(self) -> int:
        return -(-self.threads // layout.LANES)

    def with_trace(
        self,
        kernel: GeneratedKernel,
        code: jit.KernelCode,
        global_addresses: npt.NDArray[np.int64],
        block: int,
        request: TraceRequest,
    ) -> RunningLaunch:
        """Return a copy of the launch whose code records the steps of one warp or of one block."""
        return dataclasses.replace(
            self,
            kernel=kernel,
            machine_code=code,
            global_addresses=global_addresses,
            trace_block=block,
            trace_warp=layout.EVERY_WARP if request.is_whole_block else request.warp_index,
            trace=TraceBuffers(request.max_steps, not request.is_whole_block and self.warps > 1),
        )
