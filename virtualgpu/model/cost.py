"""The virtual GPU's time model: copies, library kernels and the blocks of a traced kernel.

Every constant below was fitted to timings of one H200 at 1980 MHz (CUDA 13.0, CuPy 14.2; CUDA graphs
of 50 launches, events around 20), or is a published measurement where it says so. Clocks (`clk`)
carry over to other GPUs through their own boost clock. Data that fits in L2 counts as there already,
as in a loop that runs a kernel again and again.

A block's duration is the slowest of four things (a roofline per block):

* latency: the longest chain of one warp, instruction after instruction;
* the SM: issue slots and the load/store unit, shared by the blocks resident on that SM;
* the chip: L2, DRAM and atomic units, shared by all resident blocks;
* and blocks start no faster than the work distributor hands them out.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from virtualgpu.records import SECTOR_BYTES, WARP_SIZE, CopyKind, DeviceInfo, KernelCounters

# --- host and start of a kernel -----------------------------------------------------------------
HOST_LAUNCH_NS = 4_100.0  # small kernels in one stream follow each other at this distance
# A graph, measured on an H200 between two events: 3.5 us with one node, 13.3 with 10, 106.5 with 100 and
# 1,041 with 1,000 small kernels, memory sets or copies (in a stream: 7.4, 50.9, 478, 4,496). The host
# spends 1.4 us a launch, up to 100 nodes.
HOST_GRAPH_LAUNCH_NS = 1_400.0
GRAPH_START_NS = 1_000.0
GRAPH_NODE_NS = 1_000.0  # a node at least, until the next one of its chain starts
HOST_FUNCTION_NS = 19_000.0  # 10 Python functions as nodes took 191 us, in a stream 198 us
KERNEL_FLOOR_NS = 550.0  # an empty one-block kernel takes 620 ns in a graph, its block included
BLOCK_FLOOR_NS = 70.0
COLD_NS_PER_INSTRUCTION = 20.0  # a kernel's first instructions and parameters come from afar:
COLD_MAX_NS = 300.0  # vector addition of 1,024 elements takes 1,101 ns
DISPATCH_CLK = 1.19  # 2^20 empty blocks of up to 256 threads take 631 us: 0.602 ns a block
WARP_START_CLK = 5.5  # per SM: the same with 1,024 threads takes 713 us

# --- copies -------------------------------------------------------------------------------------
COPY_LATENCY_NS = 1_900.0  # a pinned copy of 1 MiB takes 21.0 us at 55 GB/s
PAGEABLE_LATENCY_NS = 1_000.0  # on top: the driver stages the data through its own buffer
DEVICE_COPY_LATENCY_NS = 1_000.0
PAGEABLE_MAX_GBPS = 12.0  # one CPU core's copy; 8.7 and 18.2 GB/s were seen on two H200 hosts

# --- SM -----------------------------------------------------------------------------------------
ISSUE_PER_CLK = 4.2  # PTX instructions; 4 schedulers issue one each, and ptxas removes some
INSTRUCTION_CLK = 2.5  # per PTX instruction in one warp alone; a chain of FMAs takes 4.46 an FMA
SECTOR_CLK = 0.8  # load/store unit per global sector: naive matmul, 1.24 sectors a clk
WAVEFRONT_CLK = 1.0  # per shared-memory wavefront: conflicting transpose, tiled matmul
SHARED_LATENCY_CLK = 30.0
SHARED_OVERLAP = 4.0  # shared loads in flight per warp, as compilers unroll
L1_LATENCY_CLK = 43.0  # pointer chase in 32 KiB: 21.7 ns
L2_LATENCY_CLK = 288.0  # pointer chase in 1 MiB: 145 ns
DRAM_EXTRA_LATENCY_CLK = 500.0
GLOBAL_OVERLAP = 2.5

# --- chip ---------------------------------------------------------------------------------------
L2_SECTOR_CLK = 1.5  # per SM: a copy that fits in L2 moves 5.6 TB/s
PARTIAL_STORE_CLK = 4.0  # per SM and sector: naive transpose, stores of 4 bytes to a sector
L2_USABLE_SHARE = 0.65  # 33 MB of arrays stay in the H200's 60 MiB, 50 MB do not
L1_REUSE_MAX = 8.0  # at most 7 of 8 sectors are taken to hit in L1
ATOMIC_CLK = 3.54  # between two atomic requests to one sector, and more for every lane:
ATOMIC_LANE_CLK = 0.157  # one lane 3.7, eight lanes 4.8
ATOMIC_CROWD_CLK = 1.45  # per lane if all 32 hit one address: 2^20 of them take 768 us
ATOMIC_PARALLEL = 22.0  # sectors worked on at once: 2^20 atomics over 1,024 integers take 13.5 us
DRAM_GRANULE_BYTES = 64
DRAIN = 0.4  # an SM with R resident blocks keeps memory R / (R + 0.4) busy: 704, 661, 594 of 1000

# Share of the peak that kernels reach. HBM3e: fitted; others: triad or local copy of
# te42kyfo/gpu-benches and p2pBandwidthLatencyTest over 2 x memory clock x bus.
DRAM_EFFICIENCY = {
    "HBM3e": 0.745,
    "HBM3": 0.77,
    "HBM2e": 0.86,
    "HBM2": 0.90,
    "GDDR6": 0.89,
    "GDDR6X": 0.91,
}
DEVICE_COPY_EFFICIENCY = 0.85  # H200: 4,190 of 4,917 GB/s, read and written
# Pinned copies reach this share of the PCIe rate. H200, 5.0: 55.2 of 63; nvbandwidth, 4.0: 26 of
# 31.5; te42kyfo/gpu-benches, 3.0: 12.35 of 15.75 GB/s.
PCIE_EFFICIENCY = ((60.0, 0.876), (30.0, 0.825), (0.0, 0.784))

# Copies between two GPUs with peer access, which CuPy's arrays turn on, reach this share of one direction of
# NVLink, half of the rate that datasheets give. Two H200, 18 links: 395 of 450 GB/s for 1 GiB, 686.8 us for
# 256 MiB, 49.9 us for 16 MiB. (Without peer access they go through the host's memory, at 38 GB/s.)
NVLINK_EFFICIENCY = 0.878
PEER_LATENCY_NS = 4_000.0


def clock_ghz(info: DeviceInfo) -> float:
    """Clocks per ns at boost."""
    return (info.boost_clock_mhz or 1500.0) / 1000.0


def launch_overhead_ns(info: DeviceInfo) -> float:
    """Host time of one kernel launch (driver and Python), in ns. Source: H200, small kernels in one
    stream; it belongs to the host, so it is the same for every GPU."""
    return HOST_LAUNCH_NS


def dram_gbps(info: DeviceInfo) -> float:
    """Memory bandwidth that kernels reach, in GB/s: peak times the efficiency of its memory type."""
    return (info.memory_bandwidth_gbps or 300.0) * DRAM_EFFICIENCY.get(info.memory_type or "", 0.85)


def memory_bound_ns(info: DeviceInfo, bytes_moved: float) -> float:
    """Duration in ns of a kernel that only moves `bytes_moved` bytes (read plus written).

    Start of a kernel plus bytes over the bandwidth that kernels reach.
    """
    return KERNEL_FLOOR_NS + BLOCK_FLOOR_NS + max(bytes_moved, 0.0) / dram_gbps(info)


def copy_ns(
    info: DeviceInfo, kind: CopyKind, size_bytes: int, pinned: bool = False, peer: DeviceInfo | None = None
) -> float:
    """Duration in ns of one copy on the device's time line.

    Parameters
    ----------
    info
        The device.
    kind
        ``"HtoD"``, ``"DtoH"``, ``"DtoD"`` (within its memory) or ``"PtoP"`` (to or from another device).
    size_bytes
        Size of the copy.
    pinned
        Whether the host side is page-locked; matters for ``HtoD`` and ``DtoH``.
    peer
        The other device of a ``PtoP`` copy.

    Raises
    ------
    ValueError
        For another `kind`.
    """
    if kind == "DtoD":
        peak = info.memory_bandwidth_gbps or 300.0
        return DEVICE_COPY_LATENCY_NS + 2 * size_bytes / (peak * DEVICE_COPY_EFFICIENCY)
    if kind == "PtoP":
        return PEER_LATENCY_NS + size_bytes / peer_gbps(info, peer or info)
    if kind not in ("HtoD", "DtoH"):
        raise ValueError(f"Unknown kind of copy {kind!r}; use 'HtoD', 'DtoH', 'DtoD' or 'PtoP'.")
    rate = pinned_gbps(info)
    if pinned:
        return COPY_LATENCY_NS + size_bytes / rate
    return COPY_LATENCY_NS + PAGEABLE_LATENCY_NS + size_bytes / min(rate / 2, PAGEABLE_MAX_GBPS)


def memset_ns(info: DeviceInfo, size_bytes: int) -> float:
    """Duration in ns of one memory set on the device's time line."""
    peak = info.memory_bandwidth_gbps or 300.0
    return DEVICE_COPY_LATENCY_NS + size_bytes / (peak * DEVICE_COPY_EFFICIENCY)


def peer_gbps(info: DeviceInfo, peer: DeviceInfo) -> float:
    """Rate of a large copy between two devices in one direction, in GB/s: over NVLink if both have it,
    else over PCIe."""
    if info.nvlink_gbps and peer.nvlink_gbps:
        return min(info.nvlink_gbps, peer.nvlink_gbps) / 2 * NVLINK_EFFICIENCY
    return min(pinned_gbps(info), pinned_gbps(peer))


def pinned_gbps(info: DeviceInfo) -> float:
    """Rate of a large pinned copy in one direction, in GB/s."""
    peak = info.pcie_gbps or 15.75
    return peak * next(share for above, share in PCIE_EFFICIENCY if peak >= above)


@dataclass(frozen=True, slots=True)
class KernelWork:
    """What the blocks of one launch do: columns have one row a block, totals are of the launch.

    ``footprint_bytes`` is the size of the arrays the kernel was given, 0 if unknown, and
    ``smallest_array_bytes`` that of the smallest: atomics are taken to go there, as in a sum or a
    histogram.
    """

    warp_instructions: npt.NDArray[np.int64]
    sectors: npt.NDArray[np.int64]
    wavefronts: npt.NDArray[np.int64]
    counters: KernelCounters
    footprint_bytes: int = 0
    smallest_array_bytes: int = 0

    @property
    def blocks(self) -> int:
        return int(self.warp_instructions.size)

    @property
    def reuse(self) -> float:
        """How often a byte of the arrays is asked for, at least 1."""
        asked = SECTOR_BYTES * int(self.sectors.sum())
        return max(asked / self.footprint_bytes, 1.0) if self.footprint_bytes else 1.0


def dispatch_ns(info: DeviceInfo, block_threads: int) -> float:
    """Time between two block starts, as fast as blocks can be handed out and started, in ns."""
    warps = -(-block_threads // WARP_SIZE)
    return max(DISPATCH_CLK, warps * WARP_START_CLK / info.sm_count) / clock_ghz(info)


def kernel_start_ns(work: KernelWork) -> float:
    """Fixed part of a kernel's duration: starting it, and its first instructions from cold caches."""
    per_warp = work.counters.warp_instructions / max(_warps_per_block(work) * work.blocks, 1)
    return KERNEL_FLOOR_NS + min(COLD_NS_PER_INSTRUCTION * (per_warp - 1.0), COLD_MAX_NS)


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
    ``max(floor + latency, resident x SM time, resident on chip x chip time)``. Residents are those
    of a full wave, fewer for the blocks of the last, partial wave. The throughput terms conserve
    work: R blocks that each take R times their own service time keep the SM exactly busy.
    """
    clk = clock_ghz(info)
    on_sm, on_chip = _residents(work.blocks, info.sm_count, blocks_per_sm)
    latency = BLOCK_FLOOR_NS + _latency_clk(info, work) / clk
    sm = np.maximum(
        work.warp_instructions / ISSUE_PER_CLK,
        work.wavefronts * WAVEFRONT_CLK + work.sectors * SECTOR_CLK,
    )
    chip = _shares(work) * _chip_ns(info, work, min(blocks_per_sm, float(on_sm.max(initial=1.0))))
    durations: npt.NDArray[np.float64] = np.maximum(latency, np.maximum(on_sm * sm / clk, on_chip * chip))
    return durations


def _residents(
    blocks: int, sm_count: int, blocks_per_sm: int
) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.float64]]:
    """Blocks on the same SM and on the whole chip while each block runs."""
    slots = sm_count * blocks_per_sm
    on_chip = np.full(blocks, float(slots))
    tail = blocks % slots
    if tail:
        on_chip[blocks - tail :] = tail
    return np.maximum(np.ceil(on_chip / sm_count), 1.0), on_chip


def _latency_clk(info: DeviceInfo, work: KernelWork) -> npt.NDArray[np.float64]:
    counters = work.counters
    hit = 1.0 - 1.0 / min(work.reuse, L1_REUSE_MAX)
    total_sectors = max(int(work.sectors.sum()), 1)
    from_dram = min(_dram_bytes(info, work) / (SECTOR_BYTES * total_sectors), 1.0)
    load_clk = hit * L1_LATENCY_CLK + (1.0 - hit) * (L2_LATENCY_CLK + from_dram * DRAM_EXTRA_LATENCY_CLK)
    shared = counters.total("requests", "shared") / SHARED_OVERLAP * SHARED_LATENCY_CLK
    loads = sum(counters.total("requests", space, "load") for space in ("global", "local", "generic"))
    chain = counters.warp_instructions * INSTRUCTION_CLK + shared + loads / GLOBAL_OVERLAP * load_clk
    per_instruction = chain / max(counters.warp_instructions, 1)
    return work.warp_instructions / _warps_per_block(work) * per_instruction


def _warps_per_block(work: KernelWork) -> int:
    block = work.counters.block
    return -(-block[0] * block[1] * block[2] // WARP_SIZE)


def _chip_ns(info: DeviceInfo, work: KernelWork, resident: float) -> float:
    """Time the whole launch needs from what the SMs share: the slowest of L2, DRAM and atomics."""
    clk = clock_ghz(info)
    l2_clk = atomic_clk = 0.0
    for access in work.counters.accesses:
        if access.space in ("shared", "const") or not access.sectors:
            continue
        if access.kind == "load":
            l2_clk += access.sectors * L2_SECTOR_CLK / min(work.reuse, L1_REUSE_MAX)
        elif access.kind == "store":
            used = min(access.bytes_requested / (SECTOR_BYTES * access.sectors), 1.0)
            l2_clk += access.sectors * (used * L2_SECTOR_CLK + (1.0 - used) * PARTIAL_STORE_CLK)
        else:
            lanes = access.bytes_requested / access.size_bytes / access.sectors
            targets = max(work.smallest_array_bytes / SECTOR_BYTES, 1.0)
            # A sector counts as often as its most wanted word; more of them than there are: a crowd.
            crowded = access.sectors / max(access.requests, 1) > targets
            clk_each = lanes * ATOMIC_CROWD_CLK if crowded else ATOMIC_CLK + lanes * ATOMIC_LANE_CLK
            atomic_clk += access.sectors * clk_each / min(targets, ATOMIC_PARALLEL)
    dram = _dram_bytes(info, work) / (dram_gbps(info) * resident / (resident + DRAIN))
    return max(l2_clk / info.sm_count / clk, atomic_clk / clk, dram)


def _dram_bytes(info: DeviceInfo, work: KernelWork) -> float:
    """DRAM traffic of the launch: none if the arrays stay in L2, else what a least-recently-used
    cache of that size would miss; scattered sectors are fetched in granules of 64 bytes."""
    asked = float(SECTOR_BYTES * int(work.sectors.sum()))
    footprint = float(work.footprint_bytes or asked)
    cache = L2_USABLE_SHARE * info.l2_bytes
    if footprint <= cache:
        return 0.0
    if asked <= footprint:
        scattered = sum(
            a.sectors
            for a in work.counters.accesses
            if a.space not in ("shared", "const") and a.sectors >= 16 * a.requests
        )
        return min(asked + scattered * (DRAM_GRANULE_BYTES - SECTOR_BYTES), footprint)
    return footprint + (asked - footprint) * (1.0 - cache / footprint)


def _shares(work: KernelWork) -> npt.NDArray[np.float64]:
    total = int(work.sectors.sum())
    if not total:
        return np.full(work.blocks, 1.0 / max(work.blocks, 1))
    shares: npt.NDArray[np.float64] = work.sectors / total
    return shares
