"""Counters of one launch: instructions, memory accesses, branches and caches."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

from virtualgpu.records.kernel import SECTOR_BYTES, Dim3
from virtualgpu.records.origin import Provenance

# Formats of tensor cores: types of the factors and of the accumulator. ``f8`` is E4M3 or E5M2, and ``s8``
# includes u8.
TENSOR_FORMATS = (
    "f16 to f16",
    "f16 to f32",
    "bf16 to f32",
    "tf32 to f32",
    "f8 to f32",
    "s8 to s32",
    "f64 to f64",
)
INTEGER_FORMATS = ("s8 to s32",)
Space = Literal["global", "shared", "local", "const", "generic"]


@dataclass(frozen=True, slots=True, kw_only=True)
class AccessCounters:
    """The counts of one memory instruction in a whole launch. The names of the counts are based on those of
    Nsight Compute.

    ``requests`` counts executed accesses with at least one active lane, ``sectors`` the distinct
    32-byte sectors they touch (global and local), ``wavefronts`` the shared-memory passes;
    ``wavefronts - ideal_wavefronts`` are bank conflicts. ``column`` is the column of the access in its line,
    from 1; 0 if unknown. ``missed_sectors`` are the ``sectors`` that its block had not touched recently,
    which the device's L1 cache would request from L2. ``half_lines`` are the units of 64 bytes that contain
    the sectors, in which memory is fetched. ``line_passes`` are additional passes of L1 because pieces of 16
    bytes are in the same column of different lines. ``missed_requests`` are the requests with a missed
    sector. ``l1_hit_sectors`` are the ``sectors`` that the modelled L1 caches contained (`CacheCounters`).
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
    column: int = 0
    missed_sectors: int = field(default=0, compare=False)
    half_lines: int = field(default=0, compare=False)
    l1_hit_sectors: int = field(default=0, compare=False)
    line_passes: int = field(default=0, compare=False)
    missed_requests: int = field(default=0, compare=False)

    @property
    def ideal_sectors(self) -> int:
        """Number of sectors that the lanes would need if their bytes were distinct and contiguous.

        The number of requested bytes is divided by 32, and each request counts at least one sector. If the
        access needs fewer sectors, because lanes access the same bytes, the result is its actual number of
        sectors.
        """
        return min(self.sectors, max(self.requests, -(-self.bytes_requested // SECTOR_BYTES)))

    @property
    def bank_conflicts(self) -> int:
        """Number of additional wavefronts that bank conflicts cause."""
        return self.wavefronts - self.ideal_wavefronts


@dataclass(frozen=True, slots=True)
class BranchCounters:
    """The counts of one conditional branch in a whole launch."""

    pc: int
    line: int
    text: str
    executed: int
    divergent: int
    column: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class CacheCounters:
    """The counts of the modelled caches for one launch, in sectors of 32 bytes.

    Attributes
    ----------
    start : {"cold", "warm"}
        Whether the caches were empty before it, or L2 contained data of earlier launches.
    l1_sectors, l1_hit_sectors : int
        Sectors that loads of global and local memory requested from the L1 caches, and hits among them,
        including pending ones. Stores write through to L2.
    l2_sectors, l2_hit_sectors : int
        Sectors that the SMs requested from L2, and hits among them; a store counts as a hit (as in Nsight
        Compute's ``lts__t_sectors_srcunit_tex``).
    dram_read_bytes, dram_write_bytes : int
        Bytes moved between L2 and memory during the launch. Data that stays in L2 has not been written.
    constant_requests, constant_passes : int
        Accesses of warps to constant memory, and their passes through the constant cache: one for each
        distinct word.
    one_in : int
        Part of the caches that was modelled: all of it (1), or one line in this many, if a launch makes more
        accesses than are kept.
    """

    start: Literal["cold", "warm"]
    l1_sectors: int = 0
    l1_hit_sectors: int = 0
    l2_sectors: int = 0
    l2_hit_sectors: int = 0
    dram_read_bytes: int = 0
    dram_write_bytes: int = 0
    constant_requests: int = 0
    constant_passes: int = 0
    one_in: int = 1

    @property
    def l1_hit_rate(self) -> float | None:
        """Fraction of the requested sectors that were in L1, from 0 to 1. The rate is None if there were no
        requests.
        """
        return self.l1_hit_sectors / self.l1_sectors if self.l1_sectors else None

    @property
    def l2_hit_rate(self) -> float | None:
        """Fraction of the requested sectors that were in L2, from 0 to 1. The rate is None if there were no
        requests.
        """
        return self.l2_hit_sectors / self.l2_sectors if self.l2_sectors else None

    @property
    def constant_replays(self) -> int:
        """Number of additional passes through the constant cache for lanes that access different
        addresses.
        """
        return self.constant_passes - self.constant_requests


@dataclass(frozen=True, slots=True, kw_only=True)
class KernelCounters:
    """The counters of one launch in PTX instructions, summed over all blocks.

    The field ``longest_warp_instructions`` is the number of instructions of the busiest warp. The dictionary
    ``opcode_warp_instructions`` counts instructions by the first word of the opcode. In addition,
    ``cp.async.commit_group`` counts groups of asynchronous copies, ``cp.async.wait_all`` counts waits for all
    of them, and ``cp.async.pending`` is the sum of the groups that waits may leave pending. ``flops`` are
    floating-point operations of CUDA cores by type (``f16``, ``bf16``, ``f32``, ``f64``). A multiply-add
    counts two, a sum, product, quotient, root or function one, for each active lane, also one that a
    predicate switches off. ``tensor_operations`` are operations of tensor cores by format (`TENSOR_FORMATS`),
    such as ``f16 to f32`` for FP16 factors with an FP32 accumulator: 2 m n k for each matrix multiplication
    of a warp. ``caches`` is None if no model of the caches was requested.
    """

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
    longest_warp_instructions: int = 0
    opcode_warp_instructions: dict[str, int] = field(default_factory=dict)
    flops: dict[str, int] = field(default_factory=dict)
    tensor_operations: dict[str, int] = field(default_factory=dict)
    caches: CacheCounters | None = field(default=None, compare=False)

    def total(self, counter: str, space: str | None = None, kind: str | None = None) -> int:
        """Return the sum of a field of `AccessCounters` over all accesses of a space and kind. If ``space``
        or ``kind`` is None, all spaces or kinds are included.
        """
        return sum(
            int(getattr(access, counter))
            for access in self.accesses
            if (space is None or access.space == space) and (kind is None or access.kind == kind)
        )

    @property
    def total_flops(self) -> int:
        """Number of floating-point operations of CUDA cores and tensor cores."""
        tensor_flops = sum(
            count for name, count in self.tensor_operations.items() if name not in INTEGER_FORMATS
        )
        return sum(self.flops.values()) + tensor_flops

    @property
    def divergent_branches(self) -> int:
        """Number of branch executions in which a warp diverged."""
        return sum(branch.divergent for branch in self.branches)

    @property
    def lane_efficiency(self) -> float:
        """Mean fraction of the 32 lanes of a warp that were active per instruction, from 0 to 1."""
        return self.thread_instructions / (32 * self.warp_instructions) if self.warp_instructions else 0.0
