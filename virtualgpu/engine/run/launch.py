"""One launch as the engine runs it: code, shape, parameters, and the columns its blocks fill."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from virtualgpu.engine.ir import layout
from virtualgpu.engine.lower.codegen import Kernel
from virtualgpu.engine.observe.observer import Observer
from virtualgpu.engine.observe.trace_buffers import TraceBuffers, TraceRequest
from virtualgpu.engine.run import jit
from virtualgpu.engine.run.services import Heap
from virtualgpu.model.memory import DeviceMemory
from virtualgpu.records import Dim3

_PATIENCE_ROUNDS = 16


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
