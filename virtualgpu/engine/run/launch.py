"""One launch as the engine runs it: code, shape, parameters, and the columns its blocks fill."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from virtualgpu.cuda_errors import Progress
from virtualgpu.engine.ir import layout
from virtualgpu.engine.lower.codegen import Kernel
from virtualgpu.engine.machine import jit
from virtualgpu.engine.observe.observer import Observer
from virtualgpu.engine.observe.trace_buffers import TraceBuffers, TraceRequest
from virtualgpu.engine.run.printf import Printed
from virtualgpu.model.memory import DeviceMemory
from virtualgpu.records import Dim3
from virtualgpu.records.launch.whereabouts import Onlooker

_PATIENCE_ROUNDS = 16


@dataclass(frozen=True, slots=True)
class PackedLaunch:
    """What the engine is asked to run: a kernel by its (mangled) name, its shape, its arguments as bytes.

    ``shared_bytes`` is the dynamic shared memory of a block. ``cooperative`` keeps all blocks in flight
    and gives cooperative groups a grid workspace. ``spelled`` is the name that messages and records tell.
    """

    name: str
    grid: Dim3
    block: Dim3
    params: bytes
    shared_bytes: int = 0
    cooperative: bool = False
    spelled: str = ""

    @property
    def title(self) -> str:
        """The kernel's name as its author writes it."""
        return self.spelled or self.name


@dataclass(frozen=True, slots=True, kw_only=True)
class RunOptions:
    """How a launch runs: what its device settles, and what is watched.

    Parameters
    ----------
    device_name
        For the provenance of records.
    sm_count
        For ``%smid`` and ``%nsmid``.
    resident_blocks
        Blocks that the device holds at once; 0: as many as the host has memory for. Others start as these
        end, so that one waiting for a later one may wait in vain.
    watchdog_s
        Seconds that its threads may compute before the launch is stopped.
    patient
        Never stop it while its threads or blocks still come to their end: so it comes to its own.
    idle_s
        Of these, seconds after which it is stopped if no thread has ended and nothing new was stored or
        printed; None: as many as there are.
    stdout
        Receives what the kernel prints, once, when it ends.
    onlooker
        Makes who is told, while the launch runs, where it is.
    independent_threads
        Let diverged lanes that wait for each other take turns, as GPUs do since Volta.
    block_order
        Order in which blocks run (linear indices); ascending by default.
    turns_seed
        Let blocks take turns: one hands over at each of its barriers, and which goes on, or begins, is drawn
        from this seed. None: a block runs to its end unless it waits for another.
    instrument
        ``"counters"`` or ``"none"``.
    trace
        A warp, or a block, to record step by step.
    observer
        Is told of every memory access and every synchronisation, for checking tools.
    trap_nan
        Stop at the first instruction that makes a NaN of operands that are none.
    """

    device_name: str = "virtual GPU"
    sm_count: int = 1
    resident_blocks: int = 0
    watchdog_s: float = 20.0
    patient: bool = False
    idle_s: float | None = None
    stdout: Callable[[str], None] | None = None
    onlooker: Callable[[], Onlooker] | None = None
    independent_threads: bool = True
    block_order: npt.NDArray[np.int64] | None = None
    turns_seed: int | None = None
    instrument: str = "counters"
    trace: TraceRequest | None = None
    observer: Observer | None = None
    trap_nan: bool = False


@dataclass(slots=True)
class RunningLaunch:
    """One launch while it runs: its code, what it shares between workers, and the columns its blocks fill.

    ``shared_bytes`` is all shared memory of a block, static and dynamic.
    """

    kernel: Kernel
    code: jit.Code
    source: str
    packed: PackedLaunch
    options: RunOptions
    shared_bytes: int
    memory: DeviceMemory
    globals: npt.NDArray[np.int64]
    serial: bool
    grid_workspace: int = 0
    block_clock: npt.NDArray[np.int64] = field(default_factory=lambda: np.zeros(0, np.int64))
    block_sectors: npt.NDArray[np.int64] = field(default_factory=lambda: np.zeros(0, np.int64))
    block_wavefronts: npt.NDArray[np.int64] = field(default_factory=lambda: np.zeros(0, np.int64))
    block_longest: npt.NDArray[np.int64] = field(default_factory=lambda: np.zeros(0, np.int64))
    abort: npt.NDArray[np.int32] = field(default_factory=lambda: np.zeros(1, np.int32))
    printed: Printed = field(default_factory=Printed)
    trace_block: int = -1
    trace_warp: int = -1
    trace: TraceBuffers | None = None
    progress: Progress | None = None  # of a launch that was stopped

    def __post_init__(self) -> None:
        blocks = math.prod(self.packed.grid)
        if not self.block_clock.size:
            self.block_clock = np.zeros(blocks, np.int64)
            self.block_sectors = np.zeros(blocks, np.int64)
            self.block_wavefronts = np.zeros(blocks, np.int64)
            self.block_longest = np.zeros(blocks, np.int64)

    @property
    def patience(self) -> int:
        """Rounds of pure spinning after which a block is set aside for others to go on.

        An observer learns more from blocks that take turns.
        """
        alone = not self.packed.cooperative and self.options.turns_seed is None
        return _PATIENCE_ROUNDS if alone and self.options.observer is None else 1

    @property
    def threads(self) -> int:
        return math.prod(self.packed.block)

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
    ) -> RunningLaunch:
        """The same launch in code that records the steps of one warp, or of all warps of a block."""
        return dataclasses.replace(
            self,
            kernel=kernel,
            code=code,
            globals=addresses,
            trace_block=block,
            trace_warp=layout.EVERY_WARP if request.whole_block else request.warp_index,
            trace=TraceBuffers(request.max_steps, not request.whole_block and self.warps > 1),
        )
