"""How long a kernel takes, block by block.

A block's time is made of two things: what one warp of it needs alone (`KernelWork.pace`: instructions wait
for
what they use, loads for the memory they come from), and what it needs of things it shares, with the other
blocks on its SM (issue slots, pipes, the load/store unit) and on the chip (L2, DRAM, atomic units). Neither
hides the other quite, so the two add up as lengths of a right triangle do, nearly (`OVERLAP`).

Constants without a source of their own were fitted, all at once, to 208 launches on an H100 and an H200
(``tools/timing``, warm caches, CUDA graphs; 118 more were kept from it). Clocks (`clk`) carry over to other
GPUs through their own boost clock.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
import numpy.typing as npt

from virtualgpu.model.cost.instructions import PIPES, pipe_clk
from virtualgpu.model.cost.pace import LATENCIES, Pace
from virtualgpu.model.cost.rates import DRAM_HEADROOM, clock_ghz, dram_gbps
from virtualgpu.records import SECTOR_BYTES, WARP_SIZE, AccessCounters, DeviceInfo, KernelCounters
from virtualgpu.records.kernel import LINE_BYTES

# --- start of a kernel --------------------------------------------------------------------------
KERNEL_FLOOR_NS = 490.0  # an empty kernel takes 0.66 us in a graph on an H200, its block included
BLOCK_FLOOR_NS = 208.0
COLD_NS_PER_INSTRUCTION = 13.1  # a kernel's first instructions and parameters come from afar
COLD_MAX_NS = 196.0
DISPATCH_CLK = 1.15  # 16,384 empty blocks take 10.5 us
WARP_START_CLK = 5.5  # per SM: 4,096 empty blocks of 1,024 threads take 3.9 us
BARRIER_WARP_CLK = 1.6  # a barrier takes so much more for every warp of the block
# the power in which own and shared time add up, in one wave and in many
OVERLAP = 2.02
STEADY_OVERLAP = 2.34

# --- SM -----------------------------------------------------------------------------------------
ISSUE_SURPLUS = 1.06  # machine instructions that PTX does not show
REQUEST_CLK = 1.43  # load/store unit, per request to global or local memory,
SECTOR_CLK = 0.139  # per sector of it where lanes lie together,
SCATTERED_SECTOR_CLK = 0.907  # and where they do not
WAVEFRONT_CLK = 1.0  # per wavefront of shared memory: 32-way conflicts
CONSTANT_PASS_CLK = 2.0  # per word of constant memory that a warp asks for, two at least
L1_LATENCY_CLK = 34.0  # chains of addresses: 16 KiB, 4 MiB and more than L2, each hop 5 clk longer
L2_LATENCY_CLK = 282.0
DRAM_LATENCY_CLK = 721.0

# --- chip ---------------------------------------------------------------------------------------
L2_SECTOR_CLK = 1.036  # per SM
PARTIAL_STORE_CLK = 4.24  # per SM and sector: stores of some bytes of a sector
L2_USABLE_SHARE = 0.65  # arrays of this share of L2 stay there,
L2_RAMP = 0.2  # and a fifth more make it as if none did
# Atomics: between two to one sector; if many lanes want one word, for each; how many bytes apart they must
# be to
# be worked on at once, and by how many units. 262,144 additions to one integer take 192 us, to one float
# 461 us,
# over 128 bytes 20.6 us either way, over 4 KiB 4.0 us.
ATOMIC_CLK = 1.08
CROWDED_INTEGER_CLK = 1.45
CROWDED_FLOAT_CLK = 3.48
ATOMIC_APART_BYTES = 595.0
ATOMIC_UNITS = 60.0
ATOMIC_ANSWER_CLK = 500.0  # until the value that was there comes back
DRAM_GRANULE_BYTES = 64
SCATTERED = 16  # sectors of one request from which on it counts as scattered


def memory_bound_ns(info: DeviceInfo, bytes_moved: float) -> float:
    """Duration in ns of a kernel that only moves `bytes_moved` bytes (read plus written).

    Start of a kernel plus bytes over the bandwidth that kernels reach.
    """
    return KERNEL_FLOOR_NS + BLOCK_FLOOR_NS + max(bytes_moved, 0.0) / dram_gbps(info)


@dataclass(frozen=True, slots=True)
class ArrayBytes:
    """Sizes in bytes of the arrays a kernel was given: together, the smallest, and what is not in L2."""

    total: int = 0
    smallest: int = 0
    cold: int = 0


@dataclass(frozen=True)
class KernelWork:
    """What the blocks of one launch do.

    Attributes
    ----------
    warp_instructions, longest_warp, sectors : array
        By block: PTX instructions of all its warps and of its busiest warp, sectors of global memory.
    counters : KernelCounters
        Of the launch.
    executions, lane_executions : array
        How often warps, and their lanes, went through each straight piece of the kernel's PTX.
    pace : Pace
        What such a piece costs.
    arrays : ArrayBytes
        What the kernel was given; atomics are taken to go to the smallest, as in a sum or a histogram.
    """

    warp_instructions: npt.NDArray[np.int64]
    longest_warp: npt.NDArray[np.int64]
    sectors: npt.NDArray[np.int64]
    counters: KernelCounters
    executions: npt.NDArray[np.int64]
    lane_executions: npt.NDArray[np.int64]
    pace: Pace
    arrays: ArrayBytes = field(default_factory=ArrayBytes)

    @property
    def blocks(self) -> int:
        return int(self.warp_instructions.size)

    @property
    def warps_per_block(self) -> int:
        return -(-math.prod(self.counters.block) // WARP_SIZE)

    @property
    def warps(self) -> int:
        return max(self.blocks * self.warps_per_block, 1)

    @cached_property
    def accesses(self) -> tuple[AccessCounters, ...]:
        """Those to global and local memory that took place."""
        return tuple(a for a in self.counters.accesses if a.space not in ("shared", "const") and a.requests)

    def of(self, *kinds: str) -> list[AccessCounters]:
        return [a for a in self.accesses if a.kind in kinds]

    def units(self, access: AccessCounters) -> int:
        """What an atomic puts to the units that do it: a combined one its requests, else its sectors."""
        return access.requests if access.pc in self.pace.combined else access.sectors

    @cached_property
    def missed_sectors(self) -> int:
        """Loads that the L1 caches ask L2 for."""
        return sum(a.missed_sectors for a in self.of("load"))

    @cached_property
    def traffic(self) -> tuple[float, float]:
        """Bytes asked of L2 other than local ones, and how many of them lie scattered."""
        asked = scattered = 0.0
        for a in self.accesses:
            count = a.missed_sectors if a.kind == "load" else self.units(a)
            if a.space == "local" and a.kind == "store":
                continue
            asked += SECTOR_BYTES * count
            if a.space != "local" and a.sectors >= SCATTERED * a.requests and a.kind != "atomic":
                alone = max(2.0 * a.half_lines / a.sectors - 1.0, 0.0)
                scattered += SECTOR_BYTES * alone * (a.missed_sectors if a.kind == "load" else a.sectors)
        return asked, scattered


def dispatch_ns(info: DeviceInfo, block_threads: int) -> float:
    """Time between two block starts, as fast as blocks can be handed out and started, in ns."""
    warps = -(-block_threads // WARP_SIZE)
    return max(DISPATCH_CLK, warps * WARP_START_CLK / info.sm_count) / clock_ghz(info)


def kernel_start_ns(work: KernelWork) -> float:
    """Fixed part of a kernel's duration: starting it, and its first instructions from cold caches."""
    per_warp = work.counters.warp_instructions / work.warps
    return KERNEL_FLOOR_NS + min(COLD_NS_PER_INSTRUCTION * max(per_warp - 1.0, 0.0), COLD_MAX_NS)


def block_durations_ns(info: DeviceInfo, work: KernelWork, blocks_per_sm: int) -> npt.NDArray[np.float64]:
    """Modelled duration of every block in ns.

    Parameters
    ----------
    info
        The device.
    work
        Counts of the launch.
    blocks_per_sm
        Blocks that fit on an SM at once (occupancy), at least 1.

    Notes
    -----
    ``(own ^ p + max(SM, chip) ^ p) ^ (1 / p)``. What is shared goes round: a block gets its turn as often as
    each of its neighbours, until it or they have no more to do.
    """
    shared = np.maximum(*shared_ns(info, work, blocks_per_sm))
    return overlapped_ns(own_ns(info, work), shared, steadiness(info, work, blocks_per_sm))


def overlapped_ns(
    own: npt.NDArray[np.float64], shared: npt.NDArray[np.float64], steady: float
) -> npt.NDArray[np.float64]:
    """What a block takes that needs so much alone and so much of what it shares."""
    power = OVERLAP + steady * (STEADY_OVERLAP - OVERLAP)
    durations: npt.NDArray[np.float64] = (own**power + shared**power) ** (1.0 / power)
    return durations


def steadiness(info: DeviceInfo, work: KernelWork, blocks_per_sm: int) -> float:
    """0 where all blocks run at once, 1 where others follow those that end."""
    return min(max(work.blocks / (info.sm_count * blocks_per_sm) - 1.0, 0.0), 1.0)


def shared_ns(
    info: DeviceInfo, work: KernelWork, blocks_per_sm: int
) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.float64]]:
    """What each block takes of its SM, and of the chip, in turn with the others."""
    slots = info.sm_count * blocks_per_sm
    on_chip = np.full(work.blocks, float(slots))
    tail = work.blocks % slots
    if tail:
        on_chip[work.blocks - tail :] = tail
    on_sm = np.maximum(np.ceil(on_chip / info.sm_count), 1.0)
    steady = steadiness(info, work, blocks_per_sm)
    sm = _shares(work.warp_instructions) * (max(sm_clk(info, work).values()) / clock_ghz(info))
    chip = _shares(work.sectors) * max(chip_ns(info, work).values())
    return _in_turn(sm, on_sm, steady), _in_turn(chip, on_chip, steady)


def _shares(counts: npt.NDArray[np.int64]) -> npt.NDArray[np.float64]:
    total = int(counts.sum())
    if not total:
        return np.full(counts.size, 1.0 / max(counts.size, 1))
    shares: npt.NDArray[np.float64] = counts / total
    return shares


def _in_turn(
    service: npt.NDArray[np.float64], residents: npt.NDArray[np.float64], steady: float
) -> npt.NDArray[np.float64]:
    """When each block is served if the residents take turns.

    If others follow those that end (`steady` 1), it always shares with as many; else with each neighbour
    as long
    as that one needs, too.
    """
    if not service.size or np.ptp(service) == 0.0:
        return residents * service
    ordered = np.sort(service)
    places = np.searchsorted(ordered, service, side="right")
    beside = (np.cumsum(ordered)[places - 1] + (service.size - places) * service) / service.size
    neighbours = steady * service + (1.0 - steady) * beside
    turns: npt.NDArray[np.float64] = service + (residents - 1.0) * neighbours
    return turns


def own_ns(info: DeviceInfo, work: KernelWork) -> npt.NDArray[np.float64]:
    """What each block needs if it is alone: its longest warp, and barriers."""
    barriers = sum(work.counters.opcode_warp_instructions.get(name, 0) for name in ("bar", "barrier"))
    clk = chain_clk(info, work) + barriers / work.warps * BARRIER_WARP_CLK * work.warps_per_block
    mean = work.warp_instructions.mean() / work.warps_per_block if work.blocks else 1.0
    scale = work.longest_warp / max(float(mean), 1.0)
    own: npt.NDArray[np.float64] = BLOCK_FLOOR_NS + clk * scale / clock_ghz(info)
    return own


def chain_clk(info: DeviceInfo, work: KernelWork) -> float:
    """Clocks that a warp of mean length takes alone.

    Each straight piece waits for loads as long as the slowest of those that it waits for together: if some
    come
    from L2 as a rule, it is L2.
    """
    asked, _ = work.traffic
    from_dram = min(dram_bytes(info, work) / max(asked, 1.0), 1.0)
    far_clk = L2_LATENCY_CLK + from_dram * (DRAM_LATENCY_CLK - L2_LATENCY_CLK)
    missing = {}
    for a in work.of("load"):
        # What all lanes read, the other warps of the block read, too, at the same time, and wait as long.
        warps = work.warps_per_block if a.sectors == a.requests else 1
        missing[a.pc] = min(warps * a.missed_sectors / a.requests, 1.0)
    total = 0.0
    for row in np.flatnonzero(work.executions[: len(work.pace.loads)]).tolist():
        clk = work.pace.chain_clk[row]
        sites = [missing[pc] for pc in work.pace.loads[row] if pc in missing]
        one_by_one = (clk[3] - clk[2]) / (LATENCIES[3] - LATENCIES[2])
        load_clk = L1_LATENCY_CLK
        if sites and one_by_one > 0.01:
            together = max(len(sites) / one_by_one, 1.0)
            missed = 1.0 - (1.0 - sum(sites) / len(sites)) ** together
            load_clk += missed * (far_clk - L1_LATENCY_CLK)
        total += float(work.executions[row]) * float(np.interp(load_clk, LATENCIES, clk))
    return total / work.warps


def sm_clk(info: DeviceInfo, work: KernelWork) -> dict[str, float]:
    """What the whole launch needs of one SM's issue slots, pipes, load/store unit and constant cache."""
    executed = work.executions[: len(work.pace.pipes)].astype(np.float64) @ work.pace.pipes
    clk = pipe_clk(info.compute_capability)
    used = {name: float(count) * clk[name] for name, count in zip(PIPES, executed, strict=True)}
    used["issue"] *= ISSUE_SURPLUS
    del used["lsu"]
    used["fma"] += used["imad"] * clk["fma"] / clk["imad"] if clk["imad"] >= clk["fma"] else 0.0
    memory = 0.0
    for a in work.counters.accesses:
        if a.space == "shared":
            together = work.pace.merged.get(a.pc, 1.0) if a.wavefronts == a.requests else 1.0
            memory += a.wavefronts * together * WAVEFRONT_CLK
    for a in work.of("load", "store"):
        together = a.sectors <= 1.5 * max(a.bytes_requested / SECTOR_BYTES, a.requests)
        memory += a.requests * REQUEST_CLK + a.sectors * (SECTOR_CLK if together else SCATTERED_SECTOR_CLK)
    constant = sum(_constant_passes(a) for a in work.counters.accesses if a.space == "const" and a.requests)
    return used | {"load/store": memory, "constant": constant * CONSTANT_PASS_CLK}


def _constant_passes(a: AccessCounters) -> float:
    """Words of constant memory that warps ask for one after another; sectors tell of eight words each."""
    each = a.sectors / a.requests
    return a.requests * (max(2.0, min(8.0 * each, WARP_SIZE)) if each > 1.01 else 2.0)


def chip_ns(info: DeviceInfo, work: KernelWork) -> dict[str, float]:
    """Time the whole launch needs from what the SMs share: L2, DRAM and atomic units."""
    l2_clk = work.missed_sectors * L2_SECTOR_CLK
    for a in work.of("store"):
        used = min(a.bytes_requested / (SECTOR_BYTES * a.sectors), 1.0) if a.sectors else 1.0
        l2_clk += a.sectors * (used * L2_SECTOR_CLK + (1.0 - used) * PARTIAL_STORE_CLK)
    atomic_clk = sum(_atomic_clk(work, a) for a in work.of("atomic") if a.sectors)
    clk = clock_ghz(info)
    dram_ns = dram_bytes(info, work) / (dram_gbps(info) * DRAM_HEADROOM)
    return {"L2": l2_clk / info.sm_count / clk, "atomics": atomic_clk / clk, "DRAM": dram_ns}


def _atomic_clk(work: KernelWork, a: AccessCounters) -> float:
    room = max(work.arrays.smallest, 4)
    lanes = a.bytes_requested / a.size_bytes
    at_once = min(max(room / ATOMIC_APART_BYTES, 1.0), ATOMIC_UNITS)
    if ".cas" in a.text:
        # Of those that want one word at a time one wins, and the others ask again when they have the answer.
        return lanes / (room / a.size_bytes) * ATOMIC_ANSWER_CLK
    if a.pc in work.pace.combined:
        return work.units(a) * CROWDED_INTEGER_CLK / at_once
    targets = max(room / SECTOR_BYTES, 1.0)
    # A sector counts as often as its most wanted word: more of them than there are, or one for each lane.
    crowded = a.sectors / a.requests > min(targets, WARP_SIZE) * 8.08 or (
        lanes < 2 * a.sectors and room <= 4 * LINE_BYTES
    )
    crowd_clk = CROWDED_FLOAT_CLK if ".f" in a.text else CROWDED_INTEGER_CLK
    return a.sectors * (crowd_clk if crowded else ATOMIC_CLK) / at_once


def dram_bytes(info: DeviceInfo, work: KernelWork) -> float:
    """DRAM traffic of the launch: none if its arrays stay in L2 and are there, else what a cache of that size
    would miss; scattered sectors are fetched in granules of 64 bytes and take lines of L2."""
    asked, scattered = work.traffic
    given = float(work.arrays.total or asked)
    touched = min(given, asked + scattered * (LINE_BYTES / SECTOR_BYTES - 1))
    fetched = asked + scattered * (DRAM_GRANULE_BYTES / SECTOR_BYTES - 1)
    cold = min(float(work.arrays.cold), fetched)
    cache = L2_USABLE_SHARE * info.l2_bytes
    if touched <= cache:
        return cold
    missed = fetched if asked <= given else touched + (fetched - touched) * (1.0 - cache / touched)
    return max(missed * min((touched - cache) / (cache * L2_RAMP), 1.0), cold)
