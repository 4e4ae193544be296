"""Records as the course's kernels would give them, made by plain arithmetic and no GPU code."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from gpulab.views.parts.boxes import Box
from virtualgpu.records import (
    DeviceInfo,
    DeviceMetrics,
    LaunchTrace,
    Metric,
    Occupancy,
    Provenance,
    SourceLine,
    WarpTrace,
)
from virtualgpu.records.device.load import LOAD_COLUMNS, LoadSamples
from virtualgpu.records.launch.roofline import Ceilings, Roofline, RooflinePoint
from virtualgpu.records.memory import CacheCapacity, LevelBandwidth, MemoryLadder, MemoryMarks, MemorySamples

MODELLED = Provenance("modelled", "A100-SXM4-80GB", "virtual GPU")
MEASURED = Provenance("measured", "NVIDIA H200")

KERNEL = """\
extern "C" __global__
void scale_roots(const float* x, float* y, int n)
{
    __shared__ float tile[32 * 33];
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) {
        float v = x[2 * i];            // stride of two: half of each sector is wasted
        if (v >= 0.0f)
            v = sqrtf(v);
        else
            v = -v;
        tile[threadIdx.x * 32] = v;    // every lane in the same bank
        __syncwarp();
        y[i] = tile[threadIdx.x * 32];
    }
}
"""

FULL = 0xFFFFFFFF
TEXTS = (
    "mov.u32 %r1, %tid.x;",
    "mad.lo.s32 %r2, %r3, %r4, %r1;",
    "setp.ge.s32 %p1, %r2, %r5;",
    "@%p1 bra $L__exit;",
    "ld.global.f32 %f1, [%rd6];",
    "setp.lt.f32 %p2, %f1, 0f00000000;",
    "@%p2 bra $L__negative;",
    "sqrt.rn.f32 %f2, %f1;",
    "neg.f32 %f2, %f1;",
    "st.shared.f32 [%r7], %f2;",
    "bar.warp.sync -1;",
    "ld.shared.f32 %f3, [%r7];",
    "st.global.f32 [%rd8], %f3;",
    "ret;",
)
REGISTERS = ("%r1", "%r2", "%p1", "", "%f1", "%p2", "", "%f2", "%f2", "", "", "%f3", "", "")
TYPES = ("u32", "s32", "pred", "", "f32", "pred", "", "f32", "f32", "", "", "f32", "", "")
SPACES = ("global", "shared")


def float_bits(values: np.ndarray) -> np.ndarray:
    return values.astype(np.float32).view(np.uint32).astype(np.uint64)


def warp_trace(threads: int = 256, warp: int = 0, n: int = 10_000, repeat: int = 1) -> WarpTrace:
    """The warp's way through `KERNEL`: odd lanes hold negative values and take the other branch."""
    lane = np.arange(32)
    alive = sum(1 << i for i in range(min(32, threads - 32 * warp)))
    index = 32 * warp + lane
    inside = sum(1 << i for i in lane.tolist() if index[i] < n) & alive
    negative = sum(1 << i for i in range(1, 32, 2)) & inside
    positive = inside & ~negative
    x = np.where(lane % 2 == 1, -(1.0 + lane), 1.0 + lane)
    y = np.where(lane % 2 == 1, -x, np.sqrt(np.abs(x)))
    gathered = 0x7F00_0000_0000 + 8 * index
    bank = 128 * index
    written = 0x7F00_0010_0000 + 4 * index
    # text, line, active mask, executing mask, space, store, addresses, values
    rows: list[tuple] = [
        (0, 5, alive, alive, -1, False, None, index),
        (1, 5, alive, alive, -1, False, None, index),
        (2, 6, alive, alive, -1, False, None, (index >= n).astype(np.uint64)),
        (3, 6, alive, alive & ~inside, -1, False, None, None),
        (4, 7, inside, inside, 0, False, gathered, float_bits(x)),
        (5, 8, inside, inside, -1, False, None, (x < 0).astype(np.uint64)),
        (6, 8, inside, negative, -1, False, None, None),
        (7, 9, positive, positive, -1, False, None, float_bits(y)),
        (8, 11, negative, negative, -1, False, None, float_bits(y)),
        (9, 12, inside, inside, 1, True, bank, None),
        (10, 13, inside, inside, -1, False, None, None),
        (11, 14, inside, inside, 1, False, bank, float_bits(y)),
        (12, 14, inside, inside, 0, True, written, None),
        (13, 16, alive, alive, -1, False, None, None),
    ]
    rows = [row for row in rows if row[2]] * repeat
    lanes = np.array([[mask >> i & 1 for i in range(32)] for mask in (row[3] for row in rows)], bool)
    address = np.array([np.full(32, -1) if row[6] is None else row[6] for row in rows], np.int64)
    address[~lanes] = -1
    space = np.array([row[4] for row in rows], np.int8)
    sectors = [
        len(set((a[a >= 0] // 32).tolist())) if s == 0 else 0 for a, s in zip(address, space, strict=True)
    ]
    passes = [
        int(np.bincount((a[a >= 0] // 4) % 32).max()) if s == 1 else 0
        for a, s in zip(address, space, strict=True)
    ]
    return WarpTrace(
        provenance=MODELLED,
        kernel_name="scale_roots",
        code=KERNEL,
        grid=(40, 1, 1),
        block=(threads, 1, 1),
        block_index=(0, 0, 0),
        warp_index=warp,
        granularity="instruction",
        instruction=TEXTS,
        pc=np.array([row[0] for row in rows], np.int32),
        line=np.array([row[1] for row in rows], np.int32),
        column=np.ones(len(rows), np.int32),
        active_mask=np.array([row[2] for row in rows], np.uint32),
        executed_mask=np.array([row[3] for row in rows], np.uint32),
        text_index=np.array([row[0] for row in rows], np.int32),
        space=SPACES,
        access_space=space,
        access_is_store=np.array([row[5] for row in rows], bool),
        access_size_bytes=np.where(space >= 0, 4, -1).astype(np.int16),
        address=address,
        sectors=np.array(sectors, np.int32),
        wavefronts=np.array(passes, np.int32),
        value=np.array([np.zeros(32) if row[7] is None else row[7] for row in rows], np.uint64),
        value_type=TYPES,
        value_register=REGISTERS,
    )


def measured_blocks(trace: WarpTrace, flip_at: int | None = None) -> WarpTrace:
    """The basic blocks of `trace` as a GPU would report them, one mask changed at `flip_at`."""
    leaders = {0, 4, 7, 8, 9, 13}
    rows = [i for i, pc in enumerate(trace.pc.tolist()) if pc in leaders]
    masks = trace.active_mask[rows].copy()
    if flip_at is not None:
        masks[flip_at] ^= 1
    return WarpTrace(
        provenance=MEASURED,
        kernel_name=trace.kernel_name,
        code=trace.code,
        grid=trace.grid,
        block=trace.block,
        block_index=trace.block_index,
        warp_index=trace.warp_index,
        granularity="basic block",
        instruction=trace.instruction,
        pc=trace.pc[rows],
        line=trace.line[rows],
        column=trace.column[rows],
        active_mask=masks,
        executed_mask=masks,
        text_index=trace.text_index[rows],
    )


def occupancy(
    threads: int, registers: int = 40, shared_bytes: int = 4096, provenance: Provenance = MODELLED
) -> Occupancy:
    """Occupancy on an A100: 64 warps, 32 blocks, 65536 registers in units of 256 a warp, 164 KiB shared."""
    warps = -(-threads // 32)
    registers_a_warp = -(-registers * 32 // 256) * 256
    limits = {
        "warps": 64 // warps,
        "blocks": 32,
        "registers": 65536 // registers_a_warp // 4 * 4 // warps,
        "shared memory": 164 * 1024 // (shared_bytes + 1024),
    }
    blocks = min(limits.values())
    return Occupancy(
        provenance=provenance,
        block_threads=threads,
        registers_per_thread=registers,
        shared_bytes=shared_bytes,
        blocks_per_sm=blocks,
        warps_per_sm=blocks * warps,
        max_warps_per_sm=64,
        blocks_by_limit=limits,
        limiters=tuple(name for name, value in limits.items() if value == blocks),
    )


def occupancies(registers: int = 40) -> list[Occupancy]:
    return [occupancy(threads, registers) for threads in range(32, 1025, 32)]


def launch_trace(
    threads: int = 256,
    elements: int = 250_000,
    sm_count: int = 108,
    provenance: Provenance = MODELLED,
    jitter: float = 0.06,
    blocks: int | None = None,
) -> LaunchTrace:
    """Blocks given to SMs as places come free, a little slower on some than on others."""
    fit = occupancy(threads, provenance=provenance)
    total = blocks if blocks is not None else -(-elements // threads)
    random = np.random.default_rng(threads)
    length = (2_000 + 9.0 * threads) * (1 + jitter * random.standard_normal(total).clip(-2, 2))
    free = np.zeros(sm_count * fit.blocks_per_sm)
    start = np.empty(total)
    end = np.empty(total)
    sm = np.empty(total, np.int32)
    for block in range(total):
        place = int(free.argmin())
        start[block], end[block], sm[block] = free[place], free[place] + length[block], place % sm_count
        free[place] = end[block]
    step = 32 if provenance.source == "measured" else 1
    return LaunchTrace(
        provenance=provenance,
        kernel_name="scale_roots",
        grid=(total, 1, 1),
        block=(threads, 1, 1),
        shared_bytes=fit.shared_bytes,
        sm_count=sm_count,
        block_index=np.arange(total, dtype=np.int64),
        sm_id=sm,
        start_ns=(start // step * step).astype(np.int64),
        end_ns=(end // step * step).astype(np.int64),
        occupancy=fit,
        timer_step_ns=step,
    )


def wide_launch(blocks: int) -> LaunchTrace:
    """Very many equal blocks, placed round robin."""
    fit = occupancy(256)
    slots = fit.blocks_per_sm * 108
    order = np.arange(blocks)
    start = order // slots * 4_000
    return LaunchTrace(
        provenance=MODELLED,
        kernel_name="scale_roots",
        grid=(blocks, 1, 1),
        block=(256, 1, 1),
        shared_bytes=0,
        sm_count=108,
        block_index=order.astype(np.int64),
        sm_id=(order % 108).astype(np.int32),
        start_ns=start.astype(np.int64),
        end_ns=(start + 4_000).astype(np.int64),
        occupancy=fit,
    )


def _device(
    name: str,
    capability: tuple[int, int],
    sm_count: int,
    lanes: int,
    shared_kib: int,
    l2_mib: int,
    memory_gib: int,
    memory_type: str,
    bus_bits: int,
    clock_mhz: float,
    bandwidth: float,
    boost_mhz: float,
    **fields: float | str | None,
) -> DeviceInfo:
    return DeviceInfo(
        provenance=Provenance("modelled", name, "published figures"),
        name=name,
        compute_capability=capability,
        sm_count=sm_count,
        fp32_lanes_per_sm=lanes,
        max_threads_per_block=1024,
        max_block_dim=(1024, 1024, 64),
        max_grid_dim=(2**31 - 1, 65535, 65535),
        max_warps_per_sm=32 if capability == (7, 5) else 64 if capability[1] == 0 else 48,
        max_blocks_per_sm=16 if capability == (7, 5) else 32,
        registers_per_sm=65536,
        registers_per_block=65536,
        shared_per_sm_bytes=shared_kib * 1024,
        shared_per_block_bytes=48 * 1024,
        shared_per_block_optin_bytes=(shared_kib - 1) * 1024,
        reserved_shared_per_block_bytes=1024,
        l2_bytes=l2_mib << 20,
        memory_bytes=memory_gib << 30,
        memory_type=memory_type,
        memory_bus_bits=bus_bits,
        memory_clock_mhz=clock_mhz,
        memory_bandwidth_gbps=bandwidth,
        boost_clock_mhz=boost_mhz,
        copy_engines=3,
        **fields,
    )


def devices() -> tuple[DeviceInfo, ...]:
    return (
        _device(
            "A100-SXM4-80GB",
            (8, 0),
            108,
            64,
            164,
            40,
            80,
            "HBM2e",
            5120,
            1593,
            2039,
            1410,
            fp32_tflops=19.5,
            fp16_tensor_tflops=312,
            pcie_gbps=31.5,
            nvlink_gbps=600,
        ),
        _device(
            "Tesla T4",
            (7, 5),
            40,
            64,
            64,
            4,
            16,
            "GDDR6",
            256,
            5001,
            320,
            1590,
            pcie_gbps=15.75,
            nvlink_gbps=0,
        ),
        _device(
            "GeForce RTX 4090",
            (8, 9),
            128,
            128,
            100,
            72,
            24,
            "GDDR6X",
            384,
            10501,
            1008,
            2520,
            fp32_tflops=82.6,
            pcie_gbps=31.5,
            nvlink_gbps=0,
        ),
        _device(
            "H100 SXM5 80GB",
            (9, 0),
            132,
            128,
            228,
            50,
            80,
            "HBM3",
            5120,
            2619,
            3352,
            1980,
            fp32_tflops=67,
            fp16_tensor_tflops=989,
            pcie_gbps=63,
            nvlink_gbps=900,
        ),
        _device(
            "B200 (HGX) 180GB",
            (10, 0),
            148,
            128,
            228,
            126,
            180,
            "HBM3e",
            8192,
            None,
            7700,
            1965,
            fp32_tflops=75,
            fp16_tensor_tflops=2250,
            pcie_gbps=63,
            nvlink_gbps=1800,
        ),
    )


def metrics(reading: int = 0) -> DeviceMetrics:
    """A snapshot in which one reading is not available."""
    wave = 0.5 + 0.5 * np.sin(reading / 3)
    return DeviceMetrics(
        provenance=MEASURED,
        time_ns=1_000_000_000 * reading,
        metrics=(
            Metric("GPU utilization", round(100 * wave), "%"),
            Metric("Memory used", round(3.2 + 20 * wave, 1), "GiB"),
            Metric("Power", round(90 + 300 * wave), "W"),
            Metric("Temperature", 41.0, "°C"),
            Metric("SM clock", 1980.0, "MHz"),
            Metric("Performance state", "P0"),
            Metric("Fan speed", None, "%", "This board has no fan of its own."),
        ),
    )


def names(infos: Sequence[DeviceInfo]) -> list[str]:
    return [info.name for info in infos]


def boxes(tree: object, kind: str) -> list[dict]:
    """All boxes of a kind in a display list."""
    if isinstance(tree, Box):
        tree = tree.wire()
    if isinstance(tree, dict):
        own = [tree] if tree.get("box") == kind else []
        return own + [result for value in tree.values() for result in boxes(value, kind)]
    return [result for child in tree for result in boxes(child, kind)] if isinstance(tree, list) else []


def items(box: Any, kind: str) -> list[dict[str, Any]]:
    """All items of one kind in a box and those inside it."""
    result = [item.wire() for item in getattr(box, "items", ()) if item.kind == kind]
    for inner in getattr(box, "boxes", ()):
        result += items(inner, kind)
    return result


def pairs_of_gpus(gpus: int) -> dict[tuple[int, int], bool]:
    """Return which GPUs reach each other if 0 is joined with 1, 2 with 3, and so on."""
    return {(a, b): a != b and a // 2 == b // 2 for a in range(gpus) for b in range(gpus)}


def ladder(provenance: Provenance = MODELLED, slower: float = 1.0) -> MemoryLadder:
    """Three steps, 20, 150 and 500 ns, to 256 MiB."""
    sizes = np.array([1 << power for power in range(10, 29)])
    times = np.where(sizes <= 192 << 10, 20.0, np.where(sizes <= 40 << 20, 150.0, 500.0)) * slower
    return MemoryLadder(
        provenance,
        sizes,
        times,
        "A chain of addresses.",
        (
            LevelBandwidth("registers", 250_000.0, "Multiply and add.", 300_000.0, "a data sheet"),
            LevelBandwidth("L2", 4000.0, "All read the same."),
            LevelBandwidth("memory, read", 1700.0, "All read once.", 2039.0, "a data sheet"),
            LevelBandwidth("peer", None, "Copies.", why="there is one GPU"),
        ),
        (CacheCapacity("L1", 192 << 10, "a guide"), CacheCapacity("L2", 40 << 20, "a data sheet")),
    )


def roofline(provenance: Provenance = MODELLED, modelled: bool = False) -> Roofline:
    """Three kernels, and a copy that computes nothing; DRAM gives 2,000 GB/s, FP32 20 TFLOP/s."""
    ceilings = Ceilings(
        device="A100-SXM4-80GB",
        gbps={"DRAM": 2000.0, "L2": 5000.0, "shared": 20_000.0},
        gflops={"f32": 20_000.0, "f64": 10_000.0},
    )
    kernels = (
        ("saxpy", {"f32": 2_000_000}, (8_000_000, 12_000_000, 0), 8e3),
        ("stencil", {"f32": 20_000_000, "f64": 10_000_000}, (20_000_000, 30_000_000, 0), 16e3),
        ("matmul", {"f32": 2_000_000_000}, (20_000_000, 200_000_000, 4_000_000_000), 250e3),
        ("copy", {}, (4_000_000, 8_000_000, 0), 8e3),
    )
    points = [
        RooflinePoint(
            name=name,
            provenance=provenance,
            flops=flops,
            time_ns=time_ns,
            size_bytes=dict(zip(("DRAM", "L2", "shared"), moved, strict=True)),
            modelled_ns=time_ns * 1.25 if modelled else None,
        )
        for name, flops, moved, time_ns in kernels
    ]
    return Roofline(ceilings=ceilings, points=tuple(points), path=True)


def load_samples(readings: int = 60) -> LoadSamples:
    """Half a minute in two phases: busy, then held back by its power."""
    seconds = np.arange(readings) / 2
    nothing = np.full(readings, np.nan)
    busy = np.where(seconds < 12, 20 + 2 * seconds, 95.0)
    columns = {
        "utilization": busy,
        "sm_active": 0.8 * busy,
        "sm_occupancy": busy / 2,
        "dram": 0.6 * busy,
        "power": 100 + 6 * busy,
        "temperature": 40 + busy / 4,
        "sm_clock": 1980 - 3 * busy,
        "memory_used": 1000 + 40 * seconds,
        "clock_reasons": np.where(seconds < 12, 1.0, 4.0),
    }
    return LoadSamples(
        provenance=MEASURED,
        time_ns=seconds * 1e9,
        sms=108,
        phases=(("copy", 0.0), ("compute", 12e9)),
        columns={name: columns.get(name, nothing) for name in LOAD_COLUMNS},
    )


def memory_samples(readings: int = 600) -> MemorySamples:
    """A minute of ten readings a second: used memory climbs and falls, with a pause in the middle."""
    time_ns = np.arange(readings) * 1e8
    used = (np.arange(readings) % 100) * float(1 << 24)
    used[readings // 2] = np.nan
    reserved = np.maximum.accumulate(np.nan_to_num(used)) + 0 * used
    every = time_ns[::10]
    marks = [every, np.ones_like(every), 10 * used[9] + 0 * every, *[0 * every] * 5]
    return MemorySamples(
        provenance=MODELLED,
        device_id=0,
        capacity_bytes=80 << 30,
        time_ns=time_ns,
        used_bytes=used,
        reserved_bytes=reserved,
        peak_bytes=used * 1.1,
        limit_bytes=0 * used,
        device_bytes=reserved + (1 << 29),
        others_bytes=0 * used,
        marks=MemoryMarks.of(np.array(marks).T),
        lines=(SourceLine("cell [3]", 2, "x = cp.zeros(n)"),),
    )
