"""Plain records that measuring code produces and views show.

Everything here is a frozen dataclass over NumPy columns. Records know nothing of CuPy, of the
virtual GPU or of widgets: `probes` and `virtual` make them, `views` draw them. Quantities carry
their unit in the name, and every record says where its numbers come from (`Provenance`).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

import numpy as np
import numpy.typing as npt

from gpulab.trace_columns import SharedWrites, StepDetail

Source = Literal["measured", "recorded", "modelled"]
Dim3 = tuple[int, int, int]

WARP_SIZE = 32


@dataclass(frozen=True, slots=True)
class Provenance:
    """Where a number comes from: measured here and now, recorded earlier, or modelled."""

    source: Source
    device: str
    detail: str = ""

    @property
    def label(self) -> str:
        """One phrase for captions, such as ``measured on NVIDIA H200``."""
        tail = f" ({self.detail})" if self.detail else ""
        return f"{self.source} on {self.device}{tail}"


@dataclass(frozen=True, slots=True)
class KernelSource:
    """What identifies a kernel: its CUDA C++ text, its name in it and its NVRTC options."""

    name: str
    code: str
    options: tuple[str, ...] = ()
    name_expressions: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class DeviceInfo:
    """Capability and limits of one device. ``None`` means: not known on this machine."""

    provenance: Provenance
    name: str
    compute_capability: tuple[int, int]
    sm_count: int
    fp32_lanes_per_sm: int
    max_threads_per_block: int
    max_block_dim: Dim3
    max_grid_dim: Dim3
    max_warps_per_sm: int
    max_blocks_per_sm: int
    registers_per_sm: int
    registers_per_block: int
    shared_per_sm_bytes: int
    shared_per_block_bytes: int
    shared_per_block_optin_bytes: int
    reserved_shared_per_block_bytes: int
    l2_bytes: int
    memory_bytes: int
    memory_type: str | None
    memory_bus_bits: int | None
    memory_clock_mhz: float | None
    memory_bandwidth_gbps: float | None
    boost_clock_mhz: float | None
    copy_engines: int | None
    fp32_tflops: float | None = None
    fp16_tensor_tflops: float | None = None
    pcie_gbps: float | None = None
    nvlink_gbps: float | None = None
    driver: str | None = None
    notes: str = ""

    @property
    def max_threads_per_sm(self) -> int:
        return self.max_warps_per_sm * WARP_SIZE

    @property
    def capability(self) -> str:
        """Compute capability as people write it, such as ``9.0`` or ``12.0``."""
        return f"{self.compute_capability[0]}.{self.compute_capability[1]}"


@dataclass(frozen=True, slots=True)
class Metric:
    """One live reading. ``value`` is None where this machine cannot tell; ``why`` then says why."""

    name: str
    value: float | str | None
    unit: str = ""
    why: str = ""


@dataclass(frozen=True, slots=True)
class DeviceMetrics:
    """A snapshot of live readings (NVML), each on its own."""

    provenance: Provenance
    time_ns: int
    metrics: tuple[Metric, ...]


@dataclass(frozen=True, slots=True)
class KernelStats:
    """What the compiler decided for one kernel on one target."""

    provenance: Provenance
    name: str
    target: str
    registers_per_thread: int
    static_shared_bytes: int
    local_bytes: int
    constant_bytes: int
    max_threads_per_block: int


@dataclass(frozen=True, slots=True)
class Occupancy:
    """Theoretical occupancy of one launch shape and what limits it.

    ``blocks_by_limit`` maps each limit (``warps``, ``blocks``, ``registers``, ``shared memory``)
    to the resident blocks it alone would allow; ``limiters`` are those that equal the result.
    """

    provenance: Provenance
    block_threads: int
    registers_per_thread: int
    shared_bytes: int
    blocks_per_sm: int
    warps_per_sm: int
    max_warps_per_sm: int
    blocks_by_limit: dict[str, int]
    limiters: tuple[str, ...]

    @property
    def fraction(self) -> float:
        return self.warps_per_sm / self.max_warps_per_sm if self.max_warps_per_sm else 0.0


@dataclass(frozen=True, slots=True)
class LaunchTrace:
    """Block placement of one launch: block -> SM, start, end. Columns have one row a block.

    ``start_ns`` counts from the first block's start. Blocks are numbered x fastest:
    ``x + y * grid.x + z * grid.x * grid.y``. When ``sampled`` is above 1 only every
    ``sampled``-th block is listed.
    """

    provenance: Provenance
    kernel_name: str
    grid: Dim3
    block: Dim3
    shared_bytes: int
    sm_count: int
    block_index: npt.NDArray[np.int64]
    sm_id: npt.NDArray[np.int32]
    start_ns: npt.NDArray[np.int64]
    end_ns: npt.NDArray[np.int64]
    occupancy: Occupancy
    timer_step_ns: int = 1
    sampled: int = 1
    note: str = ""

    @property
    def span_ns(self) -> int:
        return int(self.end_ns.max()) if self.end_ns.size else 0

    @property
    def blocks_per_wave(self) -> int:
        return self.occupancy.blocks_per_sm * self.sm_count

    @property
    def waves(self) -> float:
        """Blocks in the grid over blocks that fit at once (``tail`` = the fractional part)."""
        blocks = self.grid[0] * self.grid[1] * self.grid[2]
        return blocks / self.blocks_per_wave if self.blocks_per_wave else 0.0


Space = Literal["global", "shared", "local", "const", "generic"]


@dataclass(frozen=True, slots=True)
class WarpTrace:
    """Every step of one warp. Columns have one row a step; ``[n, 32]`` columns one entry a lane.

    A step is one PTX instruction on the virtual GPU and one basic block in a trace taken on a
    real GPU (``granularity``). ``active_mask`` bit i is lane i; ``executed_mask`` also takes the
    instruction's own predicate into account. ``line`` is 1-based in ``code``, 0 if unknown.
    Memory columns hold -1 where a step does not access memory. ``value`` is the first register a step
    wrote; what else a virtual GPU tells of it is in ``detail``.
    """

    provenance: Provenance
    kernel_name: str
    code: str
    grid: Dim3
    block: Dim3
    block_index: Dim3
    warp_index: int
    granularity: Literal["instruction", "basic block"]
    instruction: tuple[str, ...]
    pc: npt.NDArray[np.int32]
    line: npt.NDArray[np.int32]
    column: npt.NDArray[np.int32]
    active_mask: npt.NDArray[np.uint32]
    executed_mask: npt.NDArray[np.uint32]
    text_index: npt.NDArray[np.int32]
    space: tuple[str, ...] = ()
    access_space: npt.NDArray[np.int8] | None = None
    access_is_store: npt.NDArray[np.bool_] | None = None
    access_size_bytes: npt.NDArray[np.int16] | None = None
    address: npt.NDArray[np.int64] | None = None
    sectors: npt.NDArray[np.int32] | None = None
    wavefronts: npt.NDArray[np.int32] | None = None
    value: npt.NDArray[np.uint64] | None = None
    value_type: tuple[str, ...] = ()
    value_register: tuple[str, ...] = ()
    truncated: bool = False
    note: str = ""
    detail: StepDetail | None = None

    def __len__(self) -> int:
        return int(self.pc.size)


@dataclass(frozen=True, slots=True)
class BlockTrace:
    """Every step of all warps of one block, in the order in which the virtual GPU ran them.

    Each warp's ``detail.sequence`` holds the places of its steps in that order, which is one of the
    orders a GPU might take. ``steps`` counts the steps of all warps.
    """

    provenance: Provenance
    kernel_name: str
    grid: Dim3
    block: Dim3
    block_index: Dim3
    warps: tuple[WarpTrace, ...]
    shared: SharedWrites
    steps: int
    truncated: bool = False
    note: str = ""


@dataclass(frozen=True, slots=True)
class AccessCounters:
    """Counts of one memory instruction over a whole launch (names follow Nsight Compute).

    ``requests`` counts executed accesses with at least one active lane, ``sectors`` the distinct
    32-byte sectors they touch (global and local), ``wavefronts`` the shared-memory passes;
    ``wavefronts - ideal_wavefronts`` are bank conflicts.
    """

    pc: int
    line: int
    text: str
    space: Space
    kind: Literal["load", "store", "atomic"]
    size_bytes: int
    requests: int
    sectors: int
    wavefronts: int
    ideal_wavefronts: int
    bytes_requested: int

    @property
    def bank_conflicts(self) -> int:
        return self.wavefronts - self.ideal_wavefronts


@dataclass(frozen=True, slots=True)
class BranchCounters:
    """Counts of one conditional branch over a whole launch."""

    pc: int
    line: int
    text: str
    executed: int
    divergent: int


@dataclass(frozen=True, slots=True)
class KernelCounters:
    """Counters of one launch, summed over the grid, as the PTX is written."""

    provenance: Provenance
    kernel_name: str
    grid: Dim3
    block: Dim3
    shared_bytes: int
    warp_instructions: int
    thread_instructions: int
    accesses: tuple[AccessCounters, ...] = ()
    branches: tuple[BranchCounters, ...] = ()
    line_warp_instructions: dict[int, int] = field(default_factory=dict)
    line_thread_instructions: dict[int, int] = field(default_factory=dict)

    def total(self, counter: str, space: str | None = None, kind: str | None = None) -> int:
        """Sum one ``AccessCounters`` field over all accesses of a space and kind (None = any)."""
        return sum(
            int(getattr(a, counter))
            for a in self.accesses
            if (space is None or a.space == space) and (kind is None or a.kind == kind)
        )

    @property
    def divergent_branches(self) -> int:
        return sum(b.divergent for b in self.branches)

    @property
    def lane_efficiency(self) -> float:
        """Mean share of a warp's 32 lanes that were active per instruction (0 to 1)."""
        return self.thread_instructions / (32 * self.warp_instructions) if self.warp_instructions else 0.0


Severity = Literal["error", "warning", "info"]


@dataclass(frozen=True, slots=True)
class Place:
    """One thread at one source line (1-based, 0 if unknown); ``source`` is the line's text."""

    line: int
    source: str
    block: Dim3
    thread: Dim3


@dataclass(frozen=True, slots=True)
class Hazard:
    """One kind of mistake between two source lines, or at one, with its first occurrence.

    ``tool`` is the check that found it (``memory``, ``race``, ``init``, ``sync``, ``nan`` or
    ``program``), ``kind`` names it (``RAW``, ``WAR``, ``WAW``, ``uninitialised read``, ``out of
    bounds`` ...). ``second`` is where it showed, ``first`` the earlier access it clashes with.
    ``address`` is a device address in global memory and an offset in shared or local memory.
    ``count`` counts occurrences: accesses of one thread to one word.
    """

    tool: str
    kind: str
    severity: Severity
    space: str
    kernel: str
    first: Place | None
    second: Place
    address: int | None
    array: str
    count: int
    message: str


@dataclass(frozen=True, slots=True)
class SanitizerReport:
    """What checking one launch found. ``hazards`` come in the order of their severity.

    ``fault`` names the exception an ordinary launch would raise, and is empty if it would end well.
    ``left_out`` says what the checks did not cover.
    """

    provenance: Provenance
    kernel_name: str
    grid: Dim3
    block: Dim3
    shared_bytes: int
    tools: tuple[str, ...]
    block_order: str
    hazards: tuple[Hazard, ...] = ()
    fault: str = ""
    left_out: str = ""

    @property
    def clean(self) -> bool:
        """Whether nothing above the severity ``info`` was found."""
        return not self.fault and all(hazard.severity == "info" for hazard in self.hazards)

    def found(self, kind: str) -> tuple[Hazard, ...]:
        """The hazards of one kind, such as ``RAW``."""
        return tuple(hazard for hazard in self.hazards if hazard.kind == kind)
