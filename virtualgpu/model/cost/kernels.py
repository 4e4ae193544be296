"""Modelled duration of a kernel, block by block.

A block's time has two parts: the time that one of its warps needs alone (`KernelWork.pace`: instructions
wait for their operands, loads for memory), and the time on resources that it shares with the other blocks
of its SM (issue slots, pipes, the load/store unit) and of the chip (L2, DRAM, atomic units). Neither part
hides the other completely, so the two add up almost as the sides of a right triangle do (`OVERLAP_EXPONENT`).

Constants without a source of their own were fitted, all at once, to 208 launches on an H100 and an H200
(``tools/timing``, warm caches, CUDA graphs; 118 more were not used for the fit). Those of L1's lines and
passes, of single sectors and of stores come from launches of ``memory_probes.cu`` on an H200. Clocks (`clk`)
are converted for other GPUs by their own boost clock.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property

import numpy as np
import numpy.typing as npt

from virtualgpu.model.cost.instructions import ISSUE_PER_CLK, PIPES, pipe_clk
from virtualgpu.model.cost.pace import LATENCIES, CopyWait, Pace
from virtualgpu.model.cost.rates import DRAM_HEADROOM, clock_ghz, dram_gbps
from virtualgpu.records import SECTOR_BYTES, WARP_SIZE, AccessCounters, DeviceInfo, KernelCounters
from virtualgpu.records.kernel import LINE_BYTES

# --- start of a kernel --------------------------------------------------------------------------
KERNEL_FLOOR_NS = 490.0  # an empty kernel takes 0.66 us in a graph on an H200, its block included
BLOCK_FLOOR_NS = 208.0
COLD_START_NS_PER_INSTRUCTION = 13.1  # a kernel's first instructions and parameters are not cached
MAX_COLD_START_NS = 196.0
DISPATCH_CLK = 1.15  # 16,384 empty blocks take 10.5 us
WARP_START_CLK = 5.5  # per SM: 4,096 empty blocks of 1,024 threads take 3.9 us
BARRIER_WARP_CLK = 1.6  # of a barrier, per warp of the block
BARRIER_DRAIN_CLK = 80.0  # of a barrier, until tensor cores are busy again
# exponent with which own and shared time add up, in one wave and in many
OVERLAP_EXPONENT = 2.02
STEADY_OVERLAP_EXPONENT = 2.34
TENSOR_OVERLAP_EXPONENT = 3.0  # of tensor cores and the load/store unit: tiles of 1 to 16 warps

# --- SM -----------------------------------------------------------------------------------------
ISSUE_SURPLUS = 1.06  # machine instructions per PTX instruction
# Load/store unit, per load from global or local memory; longer if it has many lines, or many passes, each of
# one clock: 16 warps with 23 patterns of addresses (`memory_probes.cu`).
LOAD_CLK = 1.38
LINES_PER_CLK = 4.0
L1_FILL_CLK = 1.0  # per sector that comes from L2 without its neighbour
REQUEST_CLK = 1.43  # per store,
SECTOR_CLK = 0.139  # per sector of it where lanes are contiguous,
SCATTERED_SECTOR_CLK = 0.907  # and where they are not
WAVEFRONT_CLK = 1.0  # per wavefront of shared memory: 32-way conflicts
CONSTANT_PASS_CLK = 2.0  # per word of constant memory that a warp reads, two at least
L1_LATENCY_CLK = 34.0  # chains of addresses: 16 KiB, 4 MiB and more than L2, each hop 5 clk longer
L2_LATENCY_CLK = 282.0
DRAM_LATENCY_CLK = 721.0
# A request of n lines waits for the slowest of them, log2 n such shares longer than for one, and for each
# additional pass of L1: chains of 1 to 32 lanes.
L2_LATENCY_SPREAD = 0.02
DRAM_LATENCY_SPREAD = 0.11
L1_PASS_CLK = 2.3
CONFLICT_CLK = 2.0  # of a load from shared memory, for each wavefront beyond those without bank conflicts
ASYNC_COPY_CLK = 20.0  # of an asynchronous copy, in addition to the latency of its source

# --- chip ---------------------------------------------------------------------------------------
L2_SECTOR_CLK = 1.036  # per SM
L2_PORT_SHARE = 0.5  # of that, if few SMs use L2: an SM receives at most 64 bytes per clock
COPY_SECTOR_CLK = 0.65  # of a copy that bypasses L1
SINGLE_SECTOR_CLK = 0.6  # in addition, of a sector that is loaded without its neighbour
# Stores, per SM and sector; in addition if its neighbour is not stored with it, for some of its bytes only,
# and for both. An H200's SMs together store 4.2 TB/s of whole lines, and 3.1 TB/s of single sectors.
STORE_SECTOR_CLK = 1.93
SINGLE_STORE_CLK = 0.76
PARTIAL_STORE_CLK = 0.5
SINGLE_PARTIAL_STORE_CLK = 0.84
L2_USABLE_SHARE = 0.65  # arrays of this share of L2 stay there,
L2_OVERFLOW_RAMP = 0.2  # and a fifth more make it as if none did
# Atomics: clocks between two on one sector; clocks of each if many lanes use one word; the distance in bytes
# from which they run at the same time, and the number of units. 262,144 additions to one integer take 192 us,
# to one float 461 us, over 128 bytes 20.6 us either way, over 4 KiB 4.0 us.
ATOMIC_CLK = 1.08
CROWDED_INTEGER_CLK = 1.45
CROWDED_FLOAT_CLK = 3.48
INDEPENDENT_ATOMICS_DISTANCE_BYTES = 595.0
ATOMIC_UNITS = 60.0
ATOMIC_RESULT_CLK = 500.0  # until the previous value is returned
DRAM_GRANULE_BYTES = 64
SCATTERED_SECTORS = 16  # number of sectors from which a request counts as scattered


def memory_bound_ns(info: DeviceInfo, bytes_moved: float) -> float:
    """Return the duration in ns of a kernel that only reads and writes memory, `bytes_moved` bytes in total.

    The duration is the overhead of a kernel plus the bytes divided by the bandwidth that kernels reach.
    """
    return KERNEL_FLOOR_NS + BLOCK_FLOOR_NS + max(bytes_moved, 0.0) / dram_gbps(info)


@dataclass(frozen=True, slots=True)
class ArrayBytes:
    """The sizes in bytes of a kernel's arrays.

    Attributes
    ----------
    total_bytes, smallest_bytes, cold_bytes : int
        Of all arrays, of the smallest array, and of the arrays that are not in L2.
    bytes_by_atomic : mapping
        Size of the array that an atomic access changes, by the access's ``pc``, where the array is known.
    """

    total_bytes: int = 0
    smallest_bytes: int = 0
    cold_bytes: int = 0
    bytes_by_atomic: Mapping[int, int] = field(default_factory=dict)

    def target_bytes(self, access: AccessCounters) -> int:
        """Return the size of the array that an atomic access changes, or of the smallest array if it is
        unknown.
        """
        return self.bytes_by_atomic.get(access.pc, self.smallest_bytes)


@dataclass(frozen=True)
class KernelWork:
    """The counts from which the duration of a kernel launch is modelled.

    Attributes
    ----------
    warp_instructions, longest_warp_instructions, sectors : array
        By block: PTX instructions of all its warps and of its busiest warp, sectors of global memory.
    counters : KernelCounters
        Of the launch.
    executions, lane_executions : array
        Number of times that warps, and their lanes, executed each straight-line piece of the kernel's PTX.
    pace : Pace
        Cost of such a piece.
    arrays : ArrayBytes
        The sizes of the kernel's arrays.
    """

    warp_instructions: npt.NDArray[np.int64]
    longest_warp_instructions: npt.NDArray[np.int64]
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

    def select_phase(self, phase: int) -> KernelWork:
        """Return the work of one phase of the kernel. A phase is the code between two barriers."""
        accesses = tuple(
            access
            for access in self.counters.accesses
            if self.pace.phases[self.pace.piece_by_pc.get(access.pc, 0)] == phase
        )
        is_in_phase = np.array(self.pace.phases) == phase
        executions = np.where(is_in_phase, self.executions[: len(is_in_phase)], 0)
        return replace(self, counters=replace(self.counters, accesses=accesses), executions=executions)

    @cached_property
    def accesses(self) -> tuple[AccessCounters, ...]:
        """The executed accesses to global and local memory."""
        return tuple(
            access
            for access in self.counters.accesses
            if access.space not in ("shared", "const") and access.requests
        )

    def accesses_of(self, *kinds: str) -> list[AccessCounters]:
        """Return the accesses to global and local memory of the given kinds, such as ``"load"``."""
        return [access for access in self.accesses if access.kind in kinds]

    def count_atomic_operations(self, access: AccessCounters) -> int:
        """Return the number of operations that the atomic units execute for an atomic access.

        The result is the number of requests if the compiler combines the lanes of a warp, and the number of
        sectors otherwise.
        """
        return access.requests if access.pc in self.pace.combined_atomic_pcs else access.sectors

    @cached_property
    def missed_sectors(self) -> int:
        """Number of sectors that loads request from L2 because they are not in L1."""
        return sum(access.missed_sectors for access in self.accesses_of("load"))

    @cached_property
    def traffic(self) -> tuple[float, float]:
        """Number of bytes requested from L2, and how many of them are scattered. Stores to local memory are
        not included.
        """
        requested_bytes = 0.0
        scattered_bytes = 0.0
        for access in self.accesses:
            sectors = access.missed_sectors if access.kind == "load" else self.count_atomic_operations(access)
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


TRANSPOSED_PASSES = 2.0  # passes for eight rows, for each that four rows at twice the distance take
FRAGMENT_ROWS = 8  # rows of 16 or 32 bytes in one access to a fragment of wmma


def estimate_machine_counters(counters: KernelCounters) -> KernelCounters:
    """Convert the counters of memory accesses from PTX instructions to machine instructions.

    The PTX counters treat each element of a matrix fragment as a separate access. In machine code, a lane
    accesses two halves or two sums at once, and a warp eight rows. From shared memory, ``ldmatrix`` loads
    fragments. Accesses with ``.cg`` request all their sectors from L2.
    """
    return replace(counters, accesses=tuple(map(_estimate_machine_access, counters.accesses)))


def _estimate_machine_access(access: AccessCounters) -> AccessCounters:
    if ".cg" in access.text:
        return replace(access, missed_sectors=access.sectors, missed_requests=access.requests)
    if not access.text.startswith("wmma") or not access.requests:
        return access
    is_pair = access.size_bytes < 4 or ".store" in access.text or ".load.c" in access.text
    requests = max(access.requests // (2 if is_pair else 1), 1)
    sectors = min(FRAGMENT_ROWS * requests, access.sectors)
    wavefronts = round(requests * access.wavefronts / access.requests)
    return replace(
        access,
        requests=requests,
        sectors=sectors,
        missed_sectors=min(access.missed_sectors, sectors),
        missed_requests=min(access.missed_requests, requests),
        half_lines=min(access.half_lines, sectors),
        line_passes=_estimate_fragment_passes(access, requests),
        wavefronts=wavefronts,
        ideal_wavefronts=min(requests, wavefronts),
    )


def _estimate_fragment_passes(access: AccessCounters, requests: int) -> int:
    """Return the additional passes of L1 for the rows of a fragment in global memory.

    An element of a fragment that is transposed is in four rows, whose distance is twice that of the eight
    rows that a request in machine code reads. The columns of these are therefore known only roughly. The
    lanes exchange the rows of such a fragment, in one pass per request.
    """
    is_transposed = (".load.a" in access.text and ".col." in access.text) or (
        ".load.b" in access.text and ".row." in access.text
    )
    passes = access.line_passes * requests / access.requests
    return round(TRANSPOSED_PASSES * passes + requests if is_transposed else passes)


def dispatch_ns(info: DeviceInfo, block_threads: int) -> float:
    """Return the minimum time in ns between the starts of two consecutive blocks."""
    warps = -(-block_threads // WARP_SIZE)
    return max(DISPATCH_CLK, warps * WARP_START_CLK / info.sm_count) / clock_ghz(info)


def kernel_start_ns(work: KernelWork) -> float:
    """Return the time in ns that the start of a kernel and its first instructions take."""
    instructions_per_warp = work.counters.warp_instructions / work.warps
    return KERNEL_FLOOR_NS + min(
        COLD_START_NS_PER_INSTRUCTION * max(instructions_per_warp - 1.0, 0.0), MAX_COLD_START_NS
    )


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
    ``(own ^ p + max(SM, chip) ^ p) ^ (1 / p)``, but at least ``(tensor ^ q + SM ^ q) ^ (1 / q)``: all
    instructions of tensor cores take the same time, so warps wait for them only if tensor cores, or the
    units that load their factors, are busy. Blocks use a shared resource in turns: a block gets its turn as
    often as each of its neighbours, until one of them has finished.
    """
    sm_ns, tensor_ns, chip_time_ns = shared_ns(info, work, blocks_per_sm)
    steady_share = estimate_steadiness(info, work, blocks_per_sm)
    return combine_overlapped_ns(own_ns(info, work), sm_ns, tensor_ns, chip_time_ns, steady_share)


def combine_overlapped_ns(
    own_times_ns: npt.NDArray[np.float64],
    sm_times_ns: npt.NDArray[np.float64],
    tensor_times_ns: npt.NDArray[np.float64],
    chip_times_ns: npt.NDArray[np.float64],
    steadiness: float,
) -> npt.NDArray[np.float64]:
    """Return the duration of each block, computed from its own time and its times on shared resources."""
    exponent = OVERLAP_EXPONENT + steadiness * (STEADY_OVERLAP_EXPONENT - OVERLAP_EXPONENT)
    durations: npt.NDArray[np.float64] = (
        own_times_ns**exponent + np.maximum(sm_times_ns, chip_times_ns) ** exponent
    ) ** (1.0 / exponent)
    tensor_limited_ns = np.where(
        tensor_times_ns > 0.0,
        (tensor_times_ns**TENSOR_OVERLAP_EXPONENT + sm_times_ns**TENSOR_OVERLAP_EXPONENT)
        ** (1.0 / TENSOR_OVERLAP_EXPONENT),
        0.0,
    )
    return np.maximum(durations, tensor_limited_ns)


def estimate_steadiness(info: DeviceInfo, work: KernelWork, blocks_per_sm: int) -> float:
    """Return how steadily new blocks replace finished blocks, as a number from 0 to 1. The number is 0 if all
    blocks run at the same time.
    """
    return min(max(work.blocks / (info.sm_count * blocks_per_sm) - 1.0, 0.0), 1.0)


def shared_ns(
    info: DeviceInfo, work: KernelWork, blocks_per_sm: int
) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.float64], npt.NDArray[np.float64]]:
    """Return the time of each block on its SM, on the tensor cores, and on the units that the whole chip
    shares.

    All times are in ns. A block takes turns on these resources with the other running blocks.
    """
    slot_count = info.sm_count * blocks_per_sm
    residents_of_chip = np.full(work.blocks, float(slot_count))
    tail_blocks = work.blocks % slot_count
    if tail_blocks:
        residents_of_chip[work.blocks - tail_blocks :] = tail_blocks
    residents_of_sm = np.maximum(np.ceil(residents_of_chip / info.sm_count), 1.0)
    steadiness = estimate_steadiness(info, work, blocks_per_sm)
    clocks = sm_clk(info, work)
    tensor_clk = clocks.pop("tensor")
    instruction_shares = _to_shares(work.warp_instructions)
    sm_ns, tensor_ns = (
        _compute_service_end(instruction_shares * (clk / clock_ghz(info)), residents_of_sm, steadiness)
        for clk in (max(clocks.values()), tensor_clk)
    )
    chip_time_ns = _to_shares(work.sectors) * max(chip_ns(info, work, steadiness).values())
    return sm_ns, tensor_ns, _compute_service_end(chip_time_ns, residents_of_chip, steadiness)


def _to_shares(counts: npt.NDArray[np.int64]) -> npt.NDArray[np.float64]:
    count_total = int(counts.sum())
    if not count_total:
        return np.full(counts.size, 1.0 / max(counts.size, 1))
    shares: npt.NDArray[np.float64] = counts / count_total
    return shares


def _compute_service_end(
    service_ns: npt.NDArray[np.float64], resident_blocks: npt.NDArray[np.float64], steadiness: float
) -> npt.NDArray[np.float64]:
    """Return for each block the time until a resource has done its work, if the running blocks take turns.

    `service_ns` is the time that each block needs the resource. If new blocks follow those that end
    (`steadiness` is 1), a block always shares the resource with the same number of others; otherwise, it
    shares it with each of them only as long as that block needs it, too.
    """
    if not service_ns.size or np.ptp(service_ns) == 0.0:
        return resident_blocks * service_ns
    sorted_service = np.sort(service_ns)
    service_ranks = np.searchsorted(sorted_service, service_ns, side="right")
    mean_overlap = (
        np.cumsum(sorted_service)[service_ranks - 1] + (service_ns.size - service_ranks) * service_ns
    ) / service_ns.size
    wait_per_resident = steadiness * service_ns + (1.0 - steadiness) * mean_overlap
    service_end: npt.NDArray[np.float64] = service_ns + (resident_blocks - 1.0) * wait_per_resident
    return service_end


def own_ns(info: DeviceInfo, work: KernelWork) -> npt.NDArray[np.float64]:
    """Return the time in ns that each block takes if it runs alone.

    The time on shared resources is not included; `block_durations_ns` adds it.
    """
    barrier_count = sum(work.counters.opcode_warp_instructions.get(name, 0) for name in ("bar", "barrier"))
    barrier_clk = BARRIER_WARP_CLK * work.warps_per_block
    if (
        work.counters.opcode_warp_instructions.keys() & {"mma", "wmma"}
        and work.warps_per_block >= ISSUE_PER_CLK
    ):
        barrier_clk += BARRIER_DRAIN_CLK
    clk = block_clk(info, work) + barrier_count / work.warps * barrier_clk
    mean_instructions = work.warp_instructions.mean() / work.warps_per_block if work.blocks else 1.0
    longest_warp_ratio = work.longest_warp_instructions / max(float(mean_instructions), 1.0)
    durations_ns: npt.NDArray[np.float64] = BLOCK_FLOOR_NS + clk * longest_warp_ratio / clock_ghz(info)
    return durations_ns


def block_clk(info: DeviceInfo, work: KernelWork) -> float:
    """Return the number of clocks of an average block, excluding its use of the SM's busiest unit.

    Within a phase between barriers, the warps of a block share the SM, so the block takes T = sum of (chain ^
    p + busy ^ p) ^ (1 / p) over all phases. Since the block's use of the busiest resource is counted with
    that of other blocks, the result is (T ^ p - busy ^ p) ^ (1 / p).
    """
    piece_clk = piece_clocks(info, work)
    phases = np.array(work.pace.phases[: len(piece_clk)])
    phase_numbers = np.unique(phases[piece_clk > 0.0])
    if len(phase_numbers) < 2:
        return float(piece_clk.sum()) / work.warps
    total_clk = 0.0
    busy_clk_by_unit: Counter[str] = Counter()
    for phase_number in phase_numbers:
        phase_work = work.select_phase(phase_number)
        clocks = {name: clk / work.blocks for name, clk in sm_clk(info, phase_work).items()}
        clocks["L2"] = (
            l2_clk(phase_work) / work.blocks * max(min(work.blocks / info.sm_count, 1.0), L2_PORT_SHARE)
        )
        tensor_clk = clocks.pop("tensor")
        busy_clk_by_unit.update(clocks)
        phase_clk = float(piece_clk[phases == phase_number].sum()) / work.warps
        phase_clk = (phase_clk**OVERLAP_EXPONENT + max(clocks.values()) ** OVERLAP_EXPONENT) ** (
            1.0 / OVERLAP_EXPONENT
        )
        total_clk += max(phase_clk, tensor_clk)
    return float(
        max(total_clk**OVERLAP_EXPONENT - max(busy_clk_by_unit.values()) ** OVERLAP_EXPONENT, 0.0)
        ** (1.0 / OVERLAP_EXPONENT)
    )


def chain_clk(info: DeviceInfo, work: KernelWork) -> float:
    """Return the number of clocks that an average warp takes if it runs alone."""
    return float(piece_clocks(info, work).sum()) / work.warps


def piece_clocks(info: DeviceInfo, work: KernelWork) -> npt.NDArray[np.float64]:
    """Return the total clocks of all warps in each piece of code, as if each warp ran alone.

    If a piece of code waits for several loads at once, the slowest load determines the wait.
    """
    requested_bytes, _ = work.traffic
    dram_share = min(dram_bytes(info, work) / max(requested_bytes, 1.0), 1.0)
    miss_clk = L2_LATENCY_CLK + dram_share * (DRAM_LATENCY_CLK - L2_LATENCY_CLK)
    latency_spread = L2_LATENCY_SPREAD + dram_share * (DRAM_LATENCY_SPREAD - L2_LATENCY_SPREAD)
    miss_rates = {}
    lines_by_pc = {}
    passes_by_pc = {}
    for access in work.accesses_of("load"):
        if not access.sectors:  # of shared memory, by a generic address
            continue
        lines_by_pc[access.pc] = _lines_per_request(access)
        passes_by_pc[access.pc] = access.line_passes / access.requests
        # Other warps of the block request the same lines soon after, and wait for them as long.
        miss_rates[access.pc] = 1.0 - (1.0 - access.missed_requests / access.requests) ** work.warps_per_block
    piece_clk = np.zeros(len(work.pace.load_pcs))
    for piece_index in np.flatnonzero(work.executions[: len(work.pace.load_pcs)]).tolist():
        latency_clk = work.pace.chain_clk[piece_index]
        load_miss_rates = [miss_rates[pc] for pc in work.pace.load_pcs[piece_index] if pc in miss_rates]
        serial_loads = (latency_clk[3] - latency_clk[2]) / (LATENCIES[3] - LATENCIES[2])
        load_clk = L1_LATENCY_CLK
        if load_miss_rates and serial_loads > 0.01:
            simultaneous_loads = max(len(load_miss_rates) / serial_loads, 1.0)
            if simultaneous_loads > len(load_miss_rates) - 0.5:  # all of them wait for the slowest
                miss_rate = 1.0 - math.prod(1.0 - rate for rate in load_miss_rates)
            else:
                miss_rate = 1.0 - (1.0 - sum(load_miss_rates) / len(load_miss_rates)) ** simultaneous_loads
            line_count = max(lines_by_pc[pc] for pc in work.pace.load_pcs[piece_index] if pc in lines_by_pc)
            slowest_clk = miss_clk * (1.0 + latency_spread * math.log2(line_count * simultaneous_loads))
            pass_count = max(passes_by_pc[pc] for pc in work.pace.load_pcs[piece_index] if pc in passes_by_pc)
            load_clk += L1_PASS_CLK * pass_count + miss_rate * (slowest_clk - L1_LATENCY_CLK)
        piece_clk[piece_index] = float(work.executions[piece_index]) * float(
            np.interp(load_clk, LATENCIES, latency_clk)
        )
    for access in work.counters.accesses:
        if access.space == "shared" and access.kind == "load" and access.pc in work.pace.piece_by_pc:
            piece_clk[work.pace.piece_by_pc[access.pc]] += CONFLICT_CLK * access.bank_conflicts
    waited_clk = np.zeros(len(piece_clk))
    for copy_wait in work.pace.copy_waits:
        copy_accesses = [access for access in work.accesses_of("load") if access.pc in copy_wait.copy_pcs]
        line_count = sum(access.requests * lines_by_pc[access.pc] for access in copy_accesses)
        line_count = max(line_count / max(int(work.executions[copy_wait.wait_piece]), 1), 1.0)
        slowest_clk = miss_clk * (1.0 + latency_spread * math.log2(line_count))
        missed_share = sum(miss_rates[access.pc] for access in copy_accesses) / max(len(copy_accesses), 1)
        latency_clk = ASYNC_COPY_CLK + L1_LATENCY_CLK + missed_share * (slowest_clk - L1_LATENCY_CLK)
        waited_clk[copy_wait.wait_piece] += _copy_wait_clk(work, copy_wait, piece_clk, latency_clk)
    return piece_clk + waited_clk


def _ideal_passes(access: AccessCounters) -> float:
    """Return the number of passes in which L1 could return the bytes of a request: each has 128 bytes."""
    lane_bytes = access.bytes_requested / access.requests
    return max(math.ceil(min(lane_bytes, SECTOR_BYTES * access.sectors / access.requests) / LINE_BYTES), 1.0)


def _lines_per_request(access: AccessCounters) -> float:
    """Return the mean number of 128-byte lines per request: its half lines, unless it needs both halves."""
    return max(access.half_lines / access.requests * (1.0 + _single_sector_share(access)) / 2.0, 1.0)


def _single_sector_share(access: AccessCounters) -> float:
    """Return the share of sectors whose neighbour, in the same half of a line, is not accessed with them."""
    return min(max(2.0 * access.half_lines / access.sectors - 1.0, 0.0), 1.0)


def _copy_wait_clk(
    work: KernelWork, wait: CopyWait, piece_clk: npt.NDArray[np.float64], latency_clk: float
) -> float:
    """Return the clocks that all warps wait for asynchronous copies at one place.

    The copies of a group take the latency of memory. While n = `CopyWait.pending_groups` younger groups are
    started, the warp does other work, which hides as much of the latency. The wait w itself hides a part of
    the next one. In a loop of c clocks, w = latency - n (c + w) - b, thus
    w = (latency - n c - b) / (n + 1), where b is the time of the pieces between.
    """
    wait_count = int(work.executions[wait.wait_piece])
    if not wait_count:
        return 0.0
    loop_clk, code_clk = (
        float(piece_clk[list(piece_rows)].sum()) / wait_count
        for piece_rows in (wait.loop_pieces, wait.pieces_between)
    )
    hidden_clk = wait.pending_groups * loop_clk + code_clk
    return wait_count * max(latency_clk - hidden_clk, 0.0) / (wait.pending_groups + 1)


def sm_clk(info: DeviceInfo, work: KernelWork) -> dict[str, float]:
    """Return the number of clocks for which the launch occupies each unit of an SM."""
    executions_by_pipe = (
        work.executions[: len(work.pace.pipe_instructions)].astype(np.float64) @ work.pace.pipe_instructions
    )
    clk_by_pipe = pipe_clk(info)
    clk_by_name = {
        name: float(pipe_executions) * clk_by_pipe[name]
        for name, pipe_executions in zip(PIPES, executions_by_pipe, strict=True)
    }
    clk_by_name["issue"] *= ISSUE_SURPLUS
    del clk_by_name["lsu"]
    clk_by_name["fma"] += (
        clk_by_name["imad"] * clk_by_pipe["fma"] / clk_by_pipe["imad"]
        if clk_by_pipe["imad"] >= clk_by_pipe["fma"]
        else 0.0
    )
    memory_clk = 0.0
    for access in work.counters.accesses:
        if access.space == "shared":
            merged_share = (
                work.pace.merged_load_shares.get(access.pc, 1.0)
                if access.wavefronts == access.requests
                else 1.0
            )
            memory_clk += access.wavefronts * merged_share * WAVEFRONT_CLK
        elif access.space == "generic" and not access.sectors:  # shared memory, by generic addresses
            memory_clk += (access.wavefronts + access.requests) * WAVEFRONT_CLK
    fill_clk = 0.0
    for access in work.accesses_of("load"):
        if access.sectors:
            line_clk = access.requests * _lines_per_request(access) / LINES_PER_CLK
            pass_clk = access.requests * _ideal_passes(access) + access.line_passes
            memory_clk += max(access.requests * LOAD_CLK, line_clk, pass_clk)
            fill_clk += access.missed_sectors * _single_sector_share(access) * L1_FILL_CLK
    port_clk = max(fill_clk, L2_PORT_SHARE * _store_clk(work.accesses_of("store")))
    for access in work.accesses_of("store"):
        is_merged = access.sectors <= 1.5 * max(access.bytes_requested / SECTOR_BYTES, access.requests)
        memory_clk += access.requests * REQUEST_CLK + (
            access.sectors * (SECTOR_CLK if is_merged else SCATTERED_SECTOR_CLK)
        )
    constant_pass_count = sum(
        _constant_passes(access)
        for access in work.counters.accesses
        if access.space == "const" and access.requests
    )
    return clk_by_name | {
        "load/store": max(memory_clk, port_clk),
        "constant": constant_pass_count * CONSTANT_PASS_CLK,
    }


def _constant_passes(access: AccessCounters) -> float:
    """Return the number of passes for a load of constants: warps read different words one after another."""
    sectors_per_request = access.sectors / access.requests
    return access.requests * (
        max(2.0, min(8.0 * sectors_per_request, WARP_SIZE)) if sectors_per_request > 1.01 else 2.0
    )


def chip_ns(info: DeviceInfo, work: KernelWork, steadiness: float = 1.0) -> dict[str, float]:
    """Return the time in ns for which the launch occupies L2, DRAM and the atomic units.

    Loads and stores use separate connections between the SMs and L2. If new blocks follow ended ones
    (`steadiness` is 1), blocks store while others load. If all blocks run at once, they load before the
    stores outside of loops.
    """
    atomic_clk = sum(_atomic_clk(work, access) for access in work.accesses_of("atomic") if access.sectors)
    sm_clock_ghz = clock_ghz(info)
    dram_ns = dram_bytes(info, work) / (dram_gbps(info) * DRAM_HEADROOM)
    return {
        "L2": l2_clk(work, steadiness) / info.sm_count / sm_clock_ghz,
        "atomics": atomic_clk / sm_clock_ghz,
        "DRAM": dram_ns,
    }


def l2_clk(work: KernelWork, steadiness: float = 1.0) -> float:
    """Return the number of clocks that L2 takes for all loads and stores, as if a single SM did all of the
    work.
    """
    load_clk = 0.0
    for access in work.accesses_of("load"):
        if access.sectors:
            is_copy = access.text.startswith("cp.async.cg")
            sector_clk = COPY_SECTOR_CLK if is_copy else L2_SECTOR_CLK
            load_clk += access.missed_sectors * (
                sector_clk + SINGLE_SECTOR_CLK * _single_sector_share(access)
            )
    stores = work.accesses_of("store")
    piece_by_pc = work.pace.piece_by_pc
    last_stores = [s for s in stores if work.executions[piece_by_pc.get(s.pc, 0)] <= work.warps]
    last_clk = min(load_clk, _store_clk(last_stores)) if steadiness < 1.0 else 0.0
    return max(load_clk, _store_clk(stores)) + (1.0 - steadiness) * last_clk


def _store_clk(stores: Sequence[AccessCounters]) -> float:
    """Return the clocks that L2 takes for stores if a single SM does all of the work."""
    store_clk = 0.0
    for access in stores:
        if access.sectors:
            single_share = _single_sector_share(access)
            partial_share = min(2.0 * (1.0 - access.bytes_requested / (SECTOR_BYTES * access.sectors)), 1.0)
            store_clk += access.sectors * (
                STORE_SECTOR_CLK
                + single_share * SINGLE_STORE_CLK
                + max(partial_share, 0.0) * (PARTIAL_STORE_CLK + single_share * SINGLE_PARTIAL_STORE_CLK)
            )
    return store_clk


def _atomic_clk(work: KernelWork, access: AccessCounters) -> float:
    target_bytes = max(work.arrays.target_bytes(access), 4)
    lanes = access.bytes_requested / access.size_bytes
    parallel_atomics = min(max(target_bytes / INDEPENDENT_ATOMICS_DISTANCE_BYTES, 1.0), ATOMIC_UNITS)
    if ".cas" in access.text:
        # One of the lanes that use the same word succeeds; the others retry when they have the result.
        return lanes / (target_bytes / access.size_bytes) * ATOMIC_RESULT_CLK
    if access.pc in work.pace.combined_atomic_pcs:
        return work.count_atomic_operations(access) * CROWDED_INTEGER_CLK / parallel_atomics
    target_sectors = max(target_bytes / SECTOR_BYTES, 1.0)
    # A sector counts as often as its most used word: more of them than exist, or one for each lane.
    is_crowded = access.sectors / access.requests > min(target_sectors, WARP_SIZE) * 8.08 or (
        lanes < 2 * access.sectors and target_bytes <= 4 * LINE_BYTES
    )
    crowd_clk = CROWDED_FLOAT_CLK if ".f" in access.text else CROWDED_INTEGER_CLK
    return access.sectors * (crowd_clk if is_crowded else ATOMIC_CLK) / parallel_atomics


def dram_bytes(info: DeviceInfo, work: KernelWork) -> float:
    """Return the number of bytes that the launch transfers from and to DRAM.

    Arrays that stay in L2 cause no traffic; the traffic of other arrays is computed with a model of L2.
    Scattered sectors are fetched in granules of 64 bytes and occupy whole lines of L2.
    """
    requested_bytes, scattered_bytes = work.traffic
    array_bytes = float(work.arrays.total_bytes or requested_bytes)
    touched_bytes = min(array_bytes, requested_bytes + scattered_bytes * (LINE_BYTES / SECTOR_BYTES - 1))
    fetched_bytes = requested_bytes + scattered_bytes * (DRAM_GRANULE_BYTES / SECTOR_BYTES - 1)
    cold_bytes = min(float(work.arrays.cold_bytes), fetched_bytes)
    cache_bytes = L2_USABLE_SHARE * info.l2_bytes
    if touched_bytes <= cache_bytes:
        return cold_bytes
    missed_bytes = (
        fetched_bytes
        if requested_bytes <= array_bytes
        else touched_bytes + (fetched_bytes - touched_bytes) * (1.0 - cache_bytes / touched_bytes)
    )
    return max(
        missed_bytes * min((touched_bytes - cache_bytes) / (cache_bytes * L2_OVERFLOW_RAMP), 1.0), cold_bytes
    )
