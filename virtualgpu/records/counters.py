"""Counts of one launch, by instruction."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

from virtualgpu.records.kernel import SECTOR_BYTES, Dim3
from virtualgpu.records.origin import Provenance

Space = Literal["global", "shared", "local", "const", "generic"]


@dataclass(frozen=True, slots=True, kw_only=True)
class AccessCounters:
    """Counts of one memory instruction over a whole launch (names follow Nsight Compute).

    ``requests`` counts executed accesses with at least one active lane, ``sectors`` the distinct
    32-byte sectors they touch (global and local), ``wavefronts`` the shared-memory passes;
    ``wavefronts - ideal_wavefronts`` are bank conflicts. ``column`` is where in its line the access
    stands, from 1; 0 is not known. ``missed_sectors`` are those of ``sectors`` that its block had not touched
    before, or not lately: what an L1 cache of 128 KiB would ask L2 for;
    ``half_lines`` are the pieces of 64 bytes that sectors lie in, in which memory is fetched.
    ``l1_hit_sectors`` are those of ``sectors`` that the modelled L1 caches held (`CacheCounters`).
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

    @property
    def ideal_sectors(self) -> int:
        """Sectors that the same lanes would take if each wanted bytes of its own, side by side.

        That is bytes requested over 32, and a sector a request at least. Where lanes want the same bytes an
        access takes fewer; then these are its own.
        """
        return min(self.sectors, max(self.requests, -(-self.bytes_requested // SECTOR_BYTES)))

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
    column: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class CacheCounters:
    """What a model of the caches makes of one launch's accesses, in sectors of 32 bytes.

    Attributes
    ----------
    start : {"cold", "warm"}
        Whether the caches were empty before it, or L2 held what earlier launches left there.
    l1_sectors, l1_hit_sectors : int
        Asked of the L1 caches by loads of global and local memory, and found there or on their way. Stores go
        through to L2.
    l2_sectors, l2_hit_sectors : int
        Asked of L2 by the SMs, and found there; a store counts as found (as in Nsight Compute's
        ``lts__t_sectors_srcunit_tex``).
    dram_read_bytes, dram_write_bytes : int
        Moved between L2 and memory while the launch ran. What stays in L2 has not been written.
    constant_requests, constant_passes : int
        Accesses of warps to constant memory, and how often they went through the constant cache: once for
        each different word, one after another.
    one_in : int
        The caches' part that was modelled: all of it (1), or one line in so many, as where a launch makes
        more accesses than are kept.
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
        """Share of the sectors that L1 held, 0 to 1; None where nothing was asked of it."""
        return self.l1_hit_sectors / self.l1_sectors if self.l1_sectors else None

    @property
    def l2_hit_rate(self) -> float | None:
        """Share of the sectors that L2 held, 0 to 1; None where nothing was asked of it."""
        return self.l2_hit_sectors / self.l2_sectors if self.l2_sectors else None

    @property
    def constant_replays(self) -> int:
        """Passes that a broadcast would have saved."""
        return self.constant_passes - self.constant_requests


@dataclass(frozen=True, slots=True, kw_only=True)
class KernelCounters:
    """Counters of one launch, summed over the grid, as the PTX is written.

    ``longest_warp_instructions`` is what the busiest warp executed; ``opcode_warp_instructions`` counts by
    the first word of an opcode, such as ``shfl`` or ``bar``. ``flops`` are floating-point operations by type
    (``f16``, ``bf16``, ``tf32``, ``f32``, ``f64``), ``tensor_flops`` those of them that tensor cores did: a
    multiply-add counts two, a sum, product, quotient, root or function one, for each active lane, also one
    that a predicate switches off. ``caches`` is None where no model of them was asked for.
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
    tensor_flops: dict[str, int] = field(default_factory=dict)
    caches: CacheCounters | None = field(default=None, compare=False)

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
