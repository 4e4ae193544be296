"""Modelled duration of a kernel, block by block.

A block's time has two parts: the time that one of its warps needs alone (`KernelWork.pace`: instructions
wait for their operands, loads for memory), and the time on resources that it shares with the other blocks
of its SM (issue slots, pipes, the load/store unit) and of the chip (L2, DRAM, atomic units). Neither part
hides the other completely, so the two add up almost as the sides of a right triangle do (`OVERLAP`).

Constants without a source of their own were fitted, all at once, to 208 launches on an H100 and an H200
(``tools/timing``, warm caches, CUDA graphs; 118 more were not used for the fit). Clocks (`clk`) are converted
for other GPUs by their own boost clock.
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
COLD_NS_PER_INSTRUCTION = 13.1  # a kernel's first instructions and parameters are not cached
COLD_MAX_NS = 196.0
DISPATCH_CLK = 1.15  # 16,384 empty blocks take 10.5 us
WARP_START_CLK = 5.5  # per SM: 4,096 empty blocks of 1,024 threads take 3.9 us
BARRIER_WARP_CLK = 1.6  # of a barrier, per warp of the block
# exponent with which own and shared time add up, in one wave and in many
OVERLAP = 2.02
STEADY_OVERLAP = 2.34

# --- SM -----------------------------------------------------------------------------------------
ISSUE_SURPLUS = 1.06  # machine instructions per PTX instruction
REQUEST_CLK = 1.43  # load/store unit, per request to global or local memory,
SECTOR_CLK = 0.139  # per sector of it where lanes are contiguous,
SCATTERED_SECTOR_CLK = 0.907  # and where they are not
WAVEFRONT_CLK = 1.0  # per wavefront of shared memory: 32-way conflicts
CONSTANT_PASS_CLK = 2.0  # per word of constant memory that a warp reads, two at least
L1_LATENCY_CLK = 34.0  # chains of addresses: 16 KiB, 4 MiB and more than L2, each hop 5 clk longer
L2_LATENCY_CLK = 282.0
DRAM_LATENCY_CLK = 721.0

# --- chip ---------------------------------------------------------------------------------------
L2_SECTOR_CLK = 1.036  # per SM
PARTIAL_STORE_CLK = 4.24  # per SM and sector: stores of some bytes of a sector
L2_USABLE_SHARE = 0.65  # arrays of this share of L2 stay there,
L2_RAMP = 0.2  # and a fifth more make it as if none did
# Atomics: clocks between two on one sector; clocks of each if many lanes use one word; the distance in bytes
# from which they run at the same time, and the number of units. 262,144 additions to one integer take 192 us,
# to one float 461 us, over 128 bytes 20.6 us either way, over 4 KiB 4.0 us.
ATOMIC_CLK = 1.08
CROWDED_INTEGER_CLK = 1.45
CROWDED_FLOAT_CLK = 3.48
ATOMIC_APART_BYTES = 595.0
ATOMIC_UNITS = 60.0
ATOMIC_ANSWER_CLK = 500.0  # until the previous value is returned
DRAM_GRANULE_BYTES = 64
SCATTERED_SECTORS = 16  # number of sectors from which a request counts as scattered


def memory_bound_ns(info: DeviceInfo, bytes_moved: float) -> float:
    """Return the duration in ns of a kernel that only reads and writes `bytes_moved` bytes in total.

    It is the time to start the kernel, plus the bytes divided by the bandwidth that kernels reach.
    """
    return KERNEL_FLOOR_NS + BLOCK_FLOOR_NS + max(bytes_moved, 0.0) / dram_gbps(info)


@dataclass(frozen=True, slots=True)
class ArrayBytes:
    """The sizes in bytes of a kernel's arrays: all together, the smallest, and those not in L2."""

    total: int = 0
    smallest: int = 0
    cold: int = 0


@dataclass(frozen=True)
class KernelWork:
    """The work of a launch from which its duration is modelled: counts per block and per instruction.

    Attributes
    ----------
    warp_instructions, longest_warp, sectors : array
        By block: PTX instructions of all its warps and of its busiest warp, sectors of global memory.
    counters : KernelCounters
        Of the launch.
    executions, lane_executions : array
        Number of times that warps, and their lanes, executed each straight-line piece of the kernel's PTX.
    pace : Pace
        Cost of such a piece.
    arrays : ArrayBytes
        The kernel's arrays; atomics are assumed to go to the smallest, as in a sum or a histogram.
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
        """Accesses of the kernel to global and local memory that were executed."""
        return tuple(
            access
            for access in self.counters.accesses
            if access.space not in ("shared", "const") and access.requests
        )

    def of(self, *kinds: str) -> list[AccessCounters]:
        """Return the accesses to global and local memory of these kinds, such as ``"load"``."""
        return [access for access in self.accesses if access.kind in kinds]

    def units(self, access: AccessCounters) -> int:
        """Return the number of operations that an atomic causes on the atomic units.

        These are its requests if the compiler combines the lanes of a warp, else its sectors.
        """
        return access.requests if access.pc in self.pace.combined else access.sectors

    @cached_property
    def missed_sectors(self) -> int:
        """Number of sectors that the L1 caches request from L2 for loads."""
        return sum(access.missed_sectors for access in self.of("load"))

    @cached_property
    def traffic(self) -> tuple[float, float]:
        """Bytes that are requested from L2, without local stores, and the scattered bytes among them."""
        requested_bytes = 0.0
        scattered_bytes = 0.0
        for access in self.accesses:
            sectors = access.missed_sectors if access.kind == "load" else self.units(access)
            if access.space == "local" and access.kind == "store":
                continue
            requested_bytes += SECTOR_BYTES * sectors
            if (
                access.space != "local"
                and access.sectors >= SCATTERED_SECTORS * access.requests
                and access.kind != "atomic"
            ):
                single_share = max(2.0 * access.half_lines / access.sectors - 1.0, 0.0)
                scattered_bytes += (
                    SECTOR_BYTES
                    * single_share
                    * (access.missed_sectors if access.kind == "load" else access.sectors)
                )
        return requested_bytes, scattered_bytes


def dispatch_ns(info: DeviceInfo, block_threads: int) -> float:
    """Return the shortest time between the starts of two blocks, in ns."""
    warps = -(-block_threads // WARP_SIZE)
    return max(DISPATCH_CLK, warps * WARP_START_CLK / info.sm_count) / clock_ghz(info)


def kernel_start_ns(work: KernelWork) -> float:
    """Return the fixed part of a kernel's duration in ns: its start, and its first instructions."""
    instructions_per_warp = work.counters.warp_instructions / work.warps
    return KERNEL_FLOOR_NS + min(COLD_NS_PER_INSTRUCTION * max(instructions_per_warp - 1.0, 0.0), COLD_MAX_NS)


def block_durations_ns(info: DeviceInfo, work: KernelWork, blocks_per_sm: int) -> npt.NDArray[np.float64]:
    """Return the modelled duration of every block in ns.

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
    ``(own ^ p + max(SM, chip) ^ p) ^ (1 / p)``. Blocks use a shared resource in turns: a block gets its turn
    as often as each of its neighbours, until one of them has finished.
    """
    shared = np.maximum(*shared_ns(info, work, blocks_per_sm))
    return overlapped_ns(own_ns(info, work), shared, steadiness(info, work, blocks_per_sm))


def overlapped_ns(
    own: npt.NDArray[np.float64], shared: npt.NDArray[np.float64], steady: float
) -> npt.NDArray[np.float64]:
    """Return the durations of blocks from the time they need alone and the time on shared resources."""
    power = OVERLAP + steady * (STEADY_OVERLAP - OVERLAP)
    durations: npt.NDArray[np.float64] = (own**power + shared**power) ** (1.0 / power)
    return durations


def steadiness(info: DeviceInfo, work: KernelWork, blocks_per_sm: int) -> float:
    """Return how steadily new blocks follow the blocks that end: 0 if all run at once, up to 1."""
    return min(max(work.blocks / (info.sm_count * blocks_per_sm) - 1.0, 0.0), 1.0)


def shared_ns(
    info: DeviceInfo, work: KernelWork, blocks_per_sm: int
) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.float64]]:
    """Return for each block its time on the resources of its SM and on those of the chip, in ns.

    A block takes turns on these resources with the other running blocks.
    """
    slots = info.sm_count * blocks_per_sm
    residents_of_chip = np.full(work.blocks, float(slots))
    tail_blocks = work.blocks % slots
    if tail_blocks:
        residents_of_chip[work.blocks - tail_blocks :] = tail_blocks
    residents_of_sm = np.maximum(np.ceil(residents_of_chip / info.sm_count), 1.0)
    steady = steadiness(info, work, blocks_per_sm)
    sm_time_ns = _shares(work.warp_instructions) * (max(sm_clk(info, work).values()) / clock_ghz(info))
    chip_time_ns = _shares(work.sectors) * max(chip_ns(info, work).values())
    return _in_turn(sm_time_ns, residents_of_sm, steady), _in_turn(chip_time_ns, residents_of_chip, steady)


def _shares(counts: npt.NDArray[np.int64]) -> npt.NDArray[np.float64]:
    total = int(counts.sum())
    if not total:
        return np.full(counts.size, 1.0 / max(counts.size, 1))
    shares: npt.NDArray[np.float64] = counts / total
    return shares


def _in_turn(
    service: npt.NDArray[np.float64], residents: npt.NDArray[np.float64], steady: float
) -> npt.NDArray[np.float64]:
    """Return for each block the time until it is served, if the running blocks take turns on a resource.

    `service` is the time that each block needs the resource. If new blocks follow those that end (`steady`
    is 1), a block always shares the resource with the same number of others; otherwise, it shares it with
    each of them only as long as that block needs it, too.
    """
    if not service.size or np.ptp(service) == 0.0:
        return residents * service
    sorted_service = np.sort(service)
    ranks = np.searchsorted(sorted_service, service, side="right")
    mean_overlap = (np.cumsum(sorted_service)[ranks - 1] + (service.size - ranks) * service) / service.size
    neighbours = steady * service + (1.0 - steady) * mean_overlap
    served: npt.NDArray[np.float64] = service + (residents - 1.0) * neighbours
    return served


def own_ns(info: DeviceInfo, work: KernelWork) -> npt.NDArray[np.float64]:
    """Return the time in ns that each block takes if it runs alone: its longest warp, and its barriers."""
    barriers = sum(work.counters.opcode_warp_instructions.get(name, 0) for name in ("bar", "barrier"))
    clk = chain_clk(info, work) + barriers / work.warps * BARRIER_WARP_CLK * work.warps_per_block
    mean_instructions = work.warp_instructions.mean() / work.warps_per_block if work.blocks else 1.0
    scale = work.longest_warp / max(float(mean_instructions), 1.0)
    durations_ns: npt.NDArray[np.float64] = BLOCK_FLOOR_NS + clk * scale / clock_ghz(info)
    return durations_ns


def chain_clk(info: DeviceInfo, work: KernelWork) -> float:
    """Return the clocks that a warp of average length takes if it runs alone.

    Each straight-line piece of code waits as long as the slowest of the loads that it waits for together:
    if some of them usually come from L2, it waits for L2.
    """
    requested_bytes, _ = work.traffic
    dram_share = min(dram_bytes(info, work) / max(requested_bytes, 1.0), 1.0)
    far_clk = L2_LATENCY_CLK + dram_share * (DRAM_LATENCY_CLK - L2_LATENCY_CLK)
    miss_rates = {}
    for access in work.of("load"):
        # A value that all lanes read is read by the other warps of the block, too, which wait as long.
        warps = work.warps_per_block if access.sectors == access.requests else 1
        miss_rates[access.pc] = min(warps * access.missed_sectors / access.requests, 1.0)
    total_clk = 0.0
    for row in np.flatnonzero(work.executions[: len(work.pace.loads)]).tolist():
        latency_clk = work.pace.chain_clk[row]
        load_miss_rates = [miss_rates[pc] for pc in work.pace.loads[row] if pc in miss_rates]
        serial_loads = (latency_clk[3] - latency_clk[2]) / (LATENCIES[3] - LATENCIES[2])
        load_clk = L1_LATENCY_CLK
        if load_miss_rates and serial_loads > 0.01:
            loads_together = max(len(load_miss_rates) / serial_loads, 1.0)
            miss_rate = 1.0 - (1.0 - sum(load_miss_rates) / len(load_miss_rates)) ** loads_together
            load_clk += miss_rate * (far_clk - L1_LATENCY_CLK)
        total_clk += float(work.executions[row]) * float(np.interp(load_clk, LATENCIES, latency_clk))
    return total_clk / work.warps


def sm_clk(info: DeviceInfo, work: KernelWork) -> dict[str, float]:
    """Return the clocks that the launch occupies issue slots, pipes, load/store unit and constant cache."""
    executions = work.executions[: len(work.pace.pipes)].astype(np.float64) @ work.pace.pipes
    clk_by_pipe = pipe_clk(info.compute_capability)
    clocks = {name: float(count) * clk_by_pipe[name] for name, count in zip(PIPES, executions, strict=True)}
    clocks["issue"] *= ISSUE_SURPLUS
    del clocks["lsu"]
    clocks["fma"] += (
        clocks["imad"] * clk_by_pipe["fma"] / clk_by_pipe["imad"]
        if clk_by_pipe["imad"] >= clk_by_pipe["fma"]
        else 0.0
    )
    memory_clk = 0.0
    for access in work.counters.accesses:
        if access.space == "shared":
            merged_share = (
                work.pace.merged.get(access.pc, 1.0) if access.wavefronts == access.requests else 1.0
            )
            memory_clk += access.wavefronts * merged_share * WAVEFRONT_CLK
    for access in work.of("load", "store"):
        merged_share = access.sectors <= 1.5 * max(access.bytes_requested / SECTOR_BYTES, access.requests)
        memory_clk += access.requests * REQUEST_CLK + access.sectors * (
            SECTOR_CLK if merged_share else SCATTERED_SECTOR_CLK
        )
    constant_pass_count = sum(
        _constant_passes(access)
        for access in work.counters.accesses
        if access.space == "const" and access.requests
    )
    return clocks | {"load/store": memory_clk, "constant": constant_pass_count * CONSTANT_PASS_CLK}


def _constant_passes(access: AccessCounters) -> float:
    """Return the number of passes for a load of constants: warps read different words one after another."""
    sectors_per_request = access.sectors / access.requests
    return access.requests * (
        max(2.0, min(8.0 * sectors_per_request, WARP_SIZE)) if sectors_per_request > 1.01 else 2.0
    )


def chip_ns(info: DeviceInfo, work: KernelWork) -> dict[str, float]:
    """Return the time in ns that the launch occupies each shared resource: L2, DRAM, atomic units."""
    l2_clk = work.missed_sectors * L2_SECTOR_CLK
    for access in work.of("store"):
        used_share = (
            min(access.bytes_requested / (SECTOR_BYTES * access.sectors), 1.0) if access.sectors else 1.0
        )
        l2_clk += access.sectors * (used_share * L2_SECTOR_CLK + (1.0 - used_share) * PARTIAL_STORE_CLK)
    atomic_clk = sum(_atomic_clk(work, access) for access in work.of("atomic") if access.sectors)
    clk = clock_ghz(info)
    dram_ns = dram_bytes(info, work) / (dram_gbps(info) * DRAM_HEADROOM)
    return {"L2": l2_clk / info.sm_count / clk, "atomics": atomic_clk / clk, "DRAM": dram_ns}


def _atomic_clk(work: KernelWork, access: AccessCounters) -> float:
    target_bytes = max(work.arrays.smallest, 4)
    lanes = access.bytes_requested / access.size_bytes
    parallel_atomics = min(max(target_bytes / ATOMIC_APART_BYTES, 1.0), ATOMIC_UNITS)
    if ".cas" in access.text:
        # One of the lanes that use the same word succeeds; the others retry when they have the result.
        return lanes / (target_bytes / access.size_bytes) * ATOMIC_ANSWER_CLK
    if access.pc in work.pace.combined:
        return work.units(access) * CROWDED_INTEGER_CLK / parallel_atomics
    target_sectors = max(target_bytes / SECTOR_BYTES, 1.0)
    # A sector counts as often as its most used word: more of them than exist, or one for each lane.
    is_crowded = access.sectors / access.requests > min(target_sectors, WARP_SIZE) * 8.08 or (
        lanes < 2 * access.sectors and target_bytes <= 4 * LINE_BYTES
    )
    crowd_clk = CROWDED_FLOAT_CLK if ".f" in access.text else CROWDED_INTEGER_CLK
    return access.sectors * (crowd_clk if is_crowded else ATOMIC_CLK) / parallel_atomics


def dram_bytes(info: DeviceInfo, work: KernelWork) -> float:
    """Return the number of bytes that the launch moves from and to DRAM.

    Arrays that stay in L2 cause no traffic; for others, a cache of the size of L2 is modelled. Scattered
    sectors are fetched in granules of 64 bytes and occupy whole lines of L2.
    """
    requested_bytes, scattered_bytes = work.traffic
    array_bytes = float(work.arrays.total or requested_bytes)
    touched_bytes = min(array_bytes, requested_bytes + scattered_bytes * (LINE_BYTES / SECTOR_BYTES - 1))
    fetched_bytes = requested_bytes + scattered_bytes * (DRAM_GRANULE_BYTES / SECTOR_BYTES - 1)
    cold_bytes = min(float(work.arrays.cold), fetched_bytes)
    cache_bytes = L2_USABLE_SHARE * info.l2_bytes
    if touched_bytes <= cache_bytes:
        return cold_bytes
    missed_bytes = (
        fetched_bytes
        if requested_bytes <= array_bytes
        else touched_bytes + (fetched_bytes - touched_bytes) * (1.0 - cache_bytes / touched_bytes)
    )
    return max(missed_bytes * min((touched_bytes - cache_bytes) / (cache_bytes * L2_RAMP), 1.0), cold_bytes)
