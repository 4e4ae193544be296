"""Interview cards about a number of a launch, a copy or an allocation, which is then counted or modelled."""

from __future__ import annotations

from random import Random
from typing import Any

import numpy as np

from gpulab import session
from gpulab.lab.kernels import count
from gpulab.lab.memory.allocator import allocator
from gpulab.lab.timeline import timeline
from gpulab.lab.why.diagnose import diagnose as diagnosis
from gpulab.words import count as counted_noun
from gpulab.words import number, size
from gpulab_course.content.n17_interview.cards.laboratory import (
    DEVICES,
    choose_article,
    compile_kernel,
    draw_other_device,
    make_provenance,
    read_published_info,
    use_device,
)
from gpulab_course.teach.interview import Card, CardQuestion, DrawnCard, TrueValue
from virtualgpu.records import Provenance

MIB = 1 << 20
GIB = 1 << 30


# --- how many fit -----------------------------------------------------------------------------------
def measure_resident(device: str, threads: int, shared_kib: int) -> TrueValue:
    with use_device(device) as cp:
        occupancy = session.backend().occupancy(
            compile_kernel(cp, "resident", shared_kib << 10), threads, shared_kib << 10
        )
    limits_text = ", ".join(f"{name} {blocks}" for name, blocks in occupancy.blocks_by_limit.items())
    return TrueValue(
        occupancy.blocks_per_sm,
        occupancy.provenance,
        f"Blocks that each limit allows: {limits_text}. Since compute capability 8.0, CUDA "
        "reserves 1 KiB of shared memory for each block, in addition to its own.",
    )


def make_resident_card(rng: Random) -> DrawnCard:
    device = rng.choice(DEVICES)
    threads = rng.choice([32, 64, 96, 128])
    shared_kib = rng.choice([4, 6, 10, 12, 14, 20, 27])
    other_device = draw_other_device(rng, device)
    question = (
        "Each block has {threads} threads, requests {kib} KiB of dynamic shared memory and uses few "
        "registers. How many such blocks fit on one SM of {a} {device} at the same time?"
    )
    question_fields = {"threads": threads, "kib": shared_kib}

    def make_part(name: str) -> CardQuestion:
        return CardQuestion(
            question=question.format(device=name, a=choose_article(name), **question_fields),
            measure=lambda: measure_resident(name, threads, shared_kib),
            unit="blocks",
            max_error_factor=1.0,
        )

    return DrawnCard(
        questions=(make_part(device), make_part(other_device)),
        rubric_points=(
            "There are four limits: warps, blocks, registers and shared memory. The tightest one decides.",
            (
                "The shared memory of an SM is more than one block may use, and CUDA reserves a little for "
                "each block."
            ),
            "Registers are allocated per warp, in units, so their number is rounded up.",
            "More resident blocks hide more latency. As soon as it is hidden, more of them do not help.",
        ),
        strong_answer="I divide each of the four limits of the SM by what a block needs, round down, and take the smallest result.",
        parameters={"device": device, "then": other_device, **question_fields},
    )


def make_waves_card(rng: Random) -> DrawnCard:
    device = rng.choice(DEVICES)
    threads = rng.choice([128, 256, 512])
    other_device = draw_other_device(rng, device)
    extra_waves = rng.choice([0.1, 0.4, 1.2, 2.6])
    blocks = int(
        read_published_info(device).sm_count
        * (read_published_info(device).max_warps_per_sm * 32 // threads)
        * (1 + extra_waves)
    )

    def count_waves(name: str) -> TrueValue:
        with use_device(name) as cp:
            occupancy = session.backend().occupancy(compile_kernel(cp, "scaled"), threads)
        blocks_at_once = occupancy.blocks_per_sm * read_published_info(name).sm_count
        return TrueValue(
            -(-blocks // blocks_at_once),
            occupancy.provenance,
            f"{read_published_info(name).sm_count} SMs × {occupancy.blocks_per_sm} blocks = {blocks_at_once:,} at once; "
            f"{blocks:,} / {blocks_at_once:,} = {number(blocks / blocks_at_once)}, rounded up.",
        )

    def make_part(name: str) -> CardQuestion:
        return CardQuestion(
            question=f"A launch has {blocks:,} equal blocks of {threads} threads, few registers, no shared "
            f"memory. In how many waves does {choose_article(name)} {name} run them? The last wave "
            "counts even if it is not full.",
            measure=lambda: count_waves(name),
            unit="waves",
            max_error_factor=1.0,
        )

    return DrawnCard(
        questions=(make_part(device), make_part(other_device)),
        rubric_points=(
            "Blocks at the same time = SMs × resident blocks per SM.",
            "A last wave that is nearly empty (the tail) can take almost as long as a full one.",
            "Smaller blocks shorten the tail, because its threads are spread over more SMs.",
        ),
        strong_answer="I compute how many blocks run at the same time, divide, and look at how full the last wave is.",
        parameters={"device": device, "then": other_device, "threads": threads, "blocks": blocks},
    )


# --- what moves -------------------------------------------------------------------------------------
def _measure_sectors(device: str, stride_floats: int, n: int) -> TrueValue:
    with use_device(device) as cp:
        x = cp.zeros(n * stride_floats, "float32")
        y = cp.zeros(n, "float32")
        counters = count(
            compile_kernel(cp, "strided"), n // 256, 256, (x, y, np.int32(stride_floats), np.int32(n))
        )
    load_accesses = [
        access for access in counters.accesses if access.space == "global" and access.kind == "load"
    ]
    sector_count = sum(access.sectors for access in load_accesses)
    request_count = sum(access.requests for access in load_accesses)
    return TrueValue(
        sector_count // request_count,
        counters.provenance,
        f"{sector_count:,} sectors in {request_count:,} requests: 32 lanes, {4 * stride_floats} bytes apart, touch sectors "
        "of 32 bytes.",
    )


def make_sectors_card(rng: Random) -> DrawnCard:
    device = rng.choice(DEVICES)
    stride = rng.choice([2, 3, 4, 5, 6, 8, 16])
    other_stride = rng.choice(
        [stride_choice for stride_choice in (1, 2, 4, 7, 8, 32) if stride_choice != stride]
    )
    n = 1 << 13

    def make_part(stride_floats: int) -> CardQuestion:
        return CardQuestion(
            question=f"Lane i of a warp loads the float `x[{stride_floats} * i]`; the array is aligned. How many sectors of "
            "32 bytes does one such request touch?",
            measure=lambda: _measure_sectors(device, stride_floats, n),
            unit="sectors",
            max_error_factor=1.0,
        )

    return DrawnCard(
        questions=(make_part(stride), make_part(other_stride)),
        rubric_points=(
            "A request is one instruction of one warp. Memory moves sectors of 32 bytes, four per line.",
            "32 neighbouring floats are 128 bytes, so 4 sectors is the smallest number.",
            (
                "From a stride of 8 floats, each lane has its own sector. These are 32 sectors, of which "
                "seven eighths are not used."
            ),
        ),
        strong_answer="I count the different 32-byte sectors that the 32 addresses fall into.",
        parameters={"device": device, "stride": stride, "then": other_stride},
    )


def _measure_wavefronts(device: str, stride_words: int) -> TrueValue:
    with use_device(device) as cp:
        x = cp.zeros(32 * stride_words, "float32")
        y = cp.zeros(32, "float32")
        args = (x, y, np.int32(stride_words), np.int32(16))
        counters = count(compile_kernel(cp, "banks"), 1, 32, args, shared_mem=128 * stride_words)
    load_accesses = [
        access for access in counters.accesses if access.space == "shared" and access.kind == "load"
    ]
    wavefront_count = sum(access.wavefronts for access in load_accesses)
    request_count = sum(access.requests for access in load_accesses)
    return TrueValue(
        round(wavefront_count / request_count),
        counters.provenance,
        f"{wavefront_count:,} passes for {request_count:,} requests. Word {stride_words} × lane is in bank {stride_words} × lane "
        "modulo 32.",
    )


def make_conflicts_card(rng: Random) -> DrawnCard:
    device = rng.choice(DEVICES)
    stride = rng.choice([2, 4, 6, 8, 12, 16, 24, 32])
    other_stride = rng.choice([5, 9, 17, 31, 33])

    def make_part(stride_words: int) -> CardQuestion:
        return CardQuestion(
            question=f"Lane i of a warp reads word `{stride_words} * i` of shared memory, 4 bytes wide. How many wavefronts does "
            "one request take?",
            measure=lambda: _measure_wavefronts(device, stride_words),
            unit="wavefronts",
            max_error_factor=1.0,
        )

    return DrawnCard(
        questions=(make_part(stride), make_part(other_stride)),
        rubric_points=(
            "There are 32 banks of 4 bytes, and a pass returns one word per bank.",
            (
                "The number of passes is the greatest common divisor of the stride and 32. With an odd "
                "stride, it is 1."
            ),
            "Lanes that read the same word do not conflict, because the word is broadcast.",
            "One padding column, a swizzle or another layout avoids the conflicts.",
        ),
        strong_answer="I take the addresses modulo 32 banks, and count the different words in the bank that has the most.",
        parameters={"device": device, "stride": stride, "then": other_stride},
    )


def _measure_matrices(device: str, row_bytes: int) -> TrueValue:
    with use_device(device) as cp:
        x = cp.zeros(8 * row_bytes, "uint32")
        y = cp.zeros(32, "uint32")
        matrices = compile_kernel(cp, "matrices", 32 * row_bytes)
        counters = count(matrices, 1, 32, (x, y, np.int32(row_bytes)), shared_mem=32 * row_bytes)
    (load_access,) = (access for access in counters.accesses if access.text.startswith("ldmatrix"))
    passes_per_matrix = load_access.wavefronts // load_access.ideal_wavefronts
    return TrueValue(
        load_access.wavefronts,
        counters.provenance,
        f"Four matrices, {counted_noun(passes_per_matrix, 'pass', 'passes')} each: row r starts at vector "
        f"{row_bytes // 16} × r of 16 bytes, and this number modulo 8 is the same for {passes_per_matrix} of the 8 rows "
        "of a matrix.",
    )


def make_matrices_card(rng: Random) -> DrawnCard:
    device = rng.choice(DEVICES)
    row_bytes = rng.choice([32, 64, 128, 256])

    def make_part(bytes_per_row: int) -> CardQuestion:
        return CardQuestion(
            question="A tile in shared memory starts at a multiple of 128 bytes and has rows of "
            f"{bytes_per_row} bytes. `ldmatrix.x4` loads four 8 × 8 matrices of FP16 numbers, and "
            "lane i passes the address of row i of the tile. How many passes of the 32 banks "
            "does the instruction take?",
            measure=lambda: _measure_matrices(device, bytes_per_row),
            unit="passes",
            max_error_factor=1.0,
        )

    return DrawnCard(
        questions=(make_part(row_bytes), make_part(row_bytes + 16)),
        rubric_points=(
            "A pass reads 128 bytes from 32 banks, which are the 8 rows of 16 bytes of one matrix.",
            "Without conflicts, ldmatrix.x4 takes 4 passes.",
            "Rows whose distance is a multiple of 128 bytes are in the same banks.",
            "16 more bytes per row, or a swizzle of the vectors in a row, avoid the conflicts.",
        ),
        strong_answer="I divide the addresses of 8 rows by 16, take them modulo 8, and count how often the most frequent value occurs. The four matrices take that many passes each.",
        parameters={"device": device, "row_bytes": row_bytes},
    )


def make_stages_card(rng: Random) -> DrawnCard:
    device = rng.choice([name for name in DEVICES if read_published_info(name).has_async_copies])
    tile_side, tile_depth, stage_count = rng.choice(
        [(64, 32, 2), (64, 32, 3), (64, 32, 4), (128, 32, 2), (128, 32, 3), (128, 32, 4), (64, 64, 3)]
    )
    threads = rng.choice([128, 256])
    stage_kib = 2 * tile_side * tile_depth * 2 // 1024

    def measure_blocks() -> TrueValue:
        return measure_resident(device, threads, stage_count * stage_kib)

    def compute_pending_kib() -> TrueValue:
        blocks = measure_blocks()
        return TrueValue(
            int(blocks.value) * (stage_count - 1) * stage_kib,
            blocks.origin,
            f"{blocks.value} blocks × {counted_noun(stage_count - 1, 'stage')} × {stage_kib} KiB.",
        )

    return DrawnCard(
        questions=(
            CardQuestion(
                question=f"A block of {threads} threads multiplies matrices in FP16 and has {stage_count} stages in dynamic shared "
                f"memory. A stage contains a tile of {tile_side} × {tile_depth} numbers and one of {tile_depth} × {tile_side}. The threads "
                f"use few registers. How many such blocks fit on one SM of {choose_article(device)} {device} at the same time?",
                measure=measure_blocks,
                unit="blocks",
                max_error_factor=1.0,
            ),
            CardQuestion(
                question="All of these blocks run. Each of them reads one stage, while asynchronous copies fill all its other "
                "stages. How many KiB are in flight to this SM?",
                measure=compute_pending_kib,
                unit="KiB",
                max_error_factor=1.05,
            ),
        ),
        rubric_points=(
            "A stage has the bytes of both tiles: 2 × side × depth × 2 bytes.",
            "Shared memory of all stages limits the blocks on an SM.",
            (
                "A block waits for its oldest stage and computes with it, so all of its other stages are in "
                "flight."
            ),
            "Bytes in flight = bandwidth × latency. Stages beyond that only occupy shared memory.",
        ),
        strong_answer="The bytes of all stages of a block determine the blocks per SM. All stages but one are "
        "in flight.",
        parameters={
            "device": device,
            "side": tile_side,
            "depth": tile_depth,
            "stages": stage_count,
            "threads": threads,
        },
    )


def _measure_scaling(device: str, n: int) -> TrueValue:
    with use_device(device) as cp:
        x = cp.zeros(n, "float32")
        y = cp.empty(n, "float32")
        blocks = read_published_info(device).sm_count * 8
        diagnosis_table = diagnosis(compile_kernel(cp, "scaled"), blocks, 256, (x, y, np.int32(n)))
    bound_ns = 8 * n / read_published_info(device).memory_bandwidth_gbps
    return TrueValue(
        round(diagnosis_table.time_ns / 1000, 1),
        diagnosis_table.provenance,
        f"{size(8 * n)} at {read_published_info(device).memory_bandwidth_gbps:,} GB/s, {make_provenance(device).label}, take "
        f"{number(bound_ns / 1000)} µs at least.",
    )


def make_scaling_card(rng: Random) -> DrawnCard:
    device = rng.choice(DEVICES)
    n = rng.choice([8, 12, 16]) << 20
    other_device = draw_other_device(rng, device)

    def make_part(name: str) -> CardQuestion:
        return CardQuestion(
            question=f"`y = 2 * x` for {n:,} floats, from cold caches, on {choose_article(name)} {name}. How long does the kernel "
            "take?",
            measure=lambda: _measure_scaling(name, n),
            unit="µs",
            max_error_factor=1.6,
        )

    return DrawnCard(
        questions=(make_part(device), make_part(other_device)),
        rubric_points=(
            "The kernel is memory-bound, because it computes one operation per 8 bytes.",
            "The bytes that are read and the bytes that are written both count.",
            (
                "The time is bytes / bandwidth, and a long kernel reaches about 80 to 95 % of the published "
                "bandwidth."
            ),
            "If the data fits into L2 and is used again, it does not come from DRAM.",
        ),
        strong_answer="Eight bytes per element, divided by the bandwidth of the card, plus a few microseconds for the start.",
        parameters={"device": device, "n": n, "then": other_device},
    )


def _measure_copy(device: str, size_bytes: int, is_pinned: bool) -> TrueValue:
    with use_device(device) as cp:
        device_array = cp.empty(size_bytes, "uint8")
        if is_pinned:
            host_array = np.frombuffer(cp.cuda.alloc_pinned_memory(size_bytes), np.uint8, size_bytes)
        else:
            host_array = np.zeros(size_bytes, np.uint8)
        stream = cp.cuda.Stream(non_blocking=True)
        with timeline() as copy_timeline:
            device_array.set(host_array, stream=stream)
            stream.synchronize()
    copy_activities = [
        activity for activity in copy_timeline.record.activities if activity.copy_kind is not None
    ]
    copy_ns = sum(activity.end_ns - activity.start_ns for activity in copy_activities)
    return TrueValue(
        round(copy_ns / 1e6, 3),
        copy_timeline.record.provenance,
        f"{size(size_bytes)} in {number(copy_ns / 1e6)} ms are {number(size_bytes / copy_ns)} GB/s. "
        f"The published rate of the bus is {read_published_info(device).pcie_gbps} GB/s.",
    )


def make_copy_card(rng: Random) -> DrawnCard:
    device = rng.choice(DEVICES)
    copy_mib = rng.choice([32, 48, 64, 96])
    first_is_pinned = rng.random() < 0.5
    other_device = draw_other_device(rng, device)

    def make_part(name: str, is_pinned: bool) -> CardQuestion:
        return CardQuestion(
            question=f"How long does a copy of {copy_mib} MiB from {'pinned' if is_pinned else 'pageable'} host memory "
            f"to {choose_article(name)} {name} take (PCIe {_make_pcie_text(name)})?",
            measure=lambda: _measure_copy(name, copy_mib * MIB, is_pinned),
            unit="ms",
            max_error_factor=1.6 if is_pinned else 2.0,
        )

    return DrawnCard(
        questions=(
            make_part(device, first_is_pinned),
            make_part(device, not first_is_pinned),
            make_part(other_device, True),
        ),
        rubric_points=(
            "The bus is the limit, because it is tens of times slower than the memory of the card.",
            "Pageable memory is first copied into a pinned (page-locked) buffer, and the host waits.",
            "Only a copy from pinned memory can overlap with kernels.",
        ),
        strong_answer="Bytes divided by the rate of the bus. From pageable memory, the host copies first, so I calculate with about 8 GB/s for any bus. And I ask whether the data must move at all.",
        parameters={"device": device, "mib": copy_mib, "pinned": first_is_pinned, "then": other_device},
    )


def _make_pcie_text(name: str) -> str:
    return {15.75: "3.0 x16", 31.5: "4.0 x16", 63: "5.0 x16"}.get(read_published_info(name).pcie_gbps, "x16")


# --- execution --------------------------------------------------------------------------------------
def _measure_lanes(device: str, path_count: int) -> TrueValue:
    with use_device(device) as cp:
        x = cp.ones(256, "float32")
        y = cp.zeros(256, "float32")
        counters = count(compile_kernel(cp, "forked"), 1, 256, (x, y, np.int32(path_count), np.int32(400)))
    return TrueValue(
        round(100 * counters.lane_efficiency, 2),
        counters.provenance,
        f"{counters.thread_instructions:,} of 32 × {counters.warp_instructions:,} lanes were active.",
    )


def make_divergence_card(rng: Random) -> DrawnCard:
    device = rng.choice(DEVICES)
    path_count = rng.choice([2, 4, 8, 16])
    other_path_count = rng.choice([path_choice for path_choice in (2, 4, 8, 32) if path_choice != path_count])

    def make_part(branch_count: int) -> CardQuestion:
        return CardQuestion(
            question=f"A kernel has {branch_count} long branches of equal length, and thread i takes branch `i "
            f"% {branch_count}`. What share of the lanes is active, on average over the instructions?",
            measure=lambda: _measure_lanes(device, branch_count),
            unit="%",
            max_error_factor=1.2,
        )

    return DrawnCard(
        questions=(make_part(path_count), make_part(other_path_count)),
        rubric_points=(
            "A warp runs its branches one after the other, while the other lanes are idle.",
            (
                "Divergence happens within one warp. It costs nothing if different warps take different "
                "branches."
            ),
            "It can be avoided by sorting the work, so that all lanes of a warp take the same branch.",
        ),
        strong_answer="The warp runs every branch that one of its lanes takes, so the share is one divided by the number of branches.",
        parameters={"device": device, "ways": path_count, "then": other_path_count},
    )


def measure_launches(device: str, launch_count: int, uses_graph: bool) -> TrueValue:
    with use_device(device) as cp:
        x = cp.zeros(256, "float32")
        y = cp.zeros(256, "float32")
        scale_kernel = compile_kernel(cp, "scaled")
        args = (x, y, np.int32(256))
        backend = session.backend()
        stream = cp.cuda.Stream(non_blocking=True)
        with stream:
            scale_kernel((1,), (256,), args)
            stream.synchronize()
            if uses_graph:
                stream.begin_capture()
            start_ns = backend.host_ns()
            for _ in range(launch_count):
                scale_kernel((1,), (256,), args)
        if uses_graph:
            captured_graph = stream.end_capture()
            captured_graph.launch(stream)
            stream.synchronize()
            start_ns = backend.host_ns()
            captured_graph.launch(stream)
        stream.synchronize()
        time_ns = backend.host_ns() - start_ns
        origin = Provenance("modelled", f"virtual {read_published_info(device).name}")
    return TrueValue(
        round(time_ns / 1000, 1), origin, f"{number(time_ns / 1000 / launch_count)} µs per kernel."
    )


def make_launches_card(rng: Random) -> DrawnCard:
    device = rng.choice(DEVICES)
    launch_count = rng.choice([100, 200, 400])

    def make_part(uses_graph: bool) -> CardQuestion:
        method_text = (
            "replayed as one CUDA graph"
            if uses_graph
            else "launched one by one from Python by CuPy into one stream"
        )
        return CardQuestion(
            question=f"{launch_count} kernels that do almost nothing are {method_text}. How long does it take until the last one has ended, on "
            f"{choose_article(device)} {device}?",
            measure=lambda: measure_launches(device, launch_count, uses_graph),
            unit="µs",
            max_error_factor=2.5,
        )

    return DrawnCard(
        questions=(make_part(False), make_part(True)),
        rubric_points=(
            (
                "A launch from Python takes the host about 5 to 10 µs, and from C++ about 2 to 3 µs: with "
                "short kernels the host is the limit."
            ),
            "A graph is launched once. Then the device needs 1 to 2 µs for each kernel of a chain.",
            "Fusing the kernels removes launches, and memory traffic as well.",
            "A kernel that takes longer than a launch hides the next launch.",
        ),
        strong_answer="About 6 µs per launch from Python, unless the kernels take longer. In a graph, 1 to 2 µs per kernel.",
        parameters={"device": device, "launches": launch_count},
    )


# --- memory of the device ---------------------------------------------------------------------------
def make_pool_card(rng: Random) -> DrawnCard:
    n = rng.choice([1_000_001, 250_001, 2_500_003, 700_001])
    array_count = rng.choice([2, 3])

    def count_bytes(is_total: bool) -> TrueValue:
        with use_device("T4") as cp:
            pool = cp.cuda.MemoryPool()
            cp.cuda.set_allocator(pool.malloc)
            arrays = [cp.empty(n, "float32") for _ in range(array_count)]
            del arrays[0]
            counted_bytes = pool.total_bytes() if is_total else pool.used_bytes()
            arrays.clear()
            cp.cuda.set_allocator(cp.get_default_memory_pool().malloc)
        block_bytes = -(-4 * n // 512) * 512
        explanation = (
            f"Each array of {4 * n:,} bytes uses a pool block of {block_bytes:,}; {array_count} "
            "were made and one was freed."
        )
        return TrueValue(counted_bytes, Provenance("modelled", "virtual T4", "CuPy's pool"), explanation)

    def make_part(is_total: bool) -> CardQuestion:
        state_text = (
            "has the pool taken from the driver (`total_bytes()`)"
            if is_total
            else "are in use (`used_bytes()`)"
        )
        return CardQuestion(
            question=f"{array_count} arrays of {n:,} floats are made with CuPy's pool, and the first is deleted. How many bytes "
            f"{state_text} then?",
            measure=lambda: count_bytes(is_total),
            unit="bytes",
            max_error_factor=1.0,
        )

    return DrawnCard(
        questions=(make_part(False), make_part(True)),
        rubric_points=(
            "Sizes are rounded up to 512 bytes.",
            "Freed memory stays in the pool, for the next array of this size.",
            "`nvidia-smi` shows all memory of the process: pools, context, and freed memory in the pools.",
        ),
        strong_answer="Each array is rounded up to 512 bytes. A deleted array goes back to the pool, not to the driver.",
        parameters={"n": n, "arrays": array_count},
    )


def make_segments_card(rng: Random) -> DrawnCard:
    tensor_kib, tensor_count = rng.choice([(300, 5), (700, 4), (900, 3), (1500, 3)])
    request_sizes_bytes = [tensor_kib << 10] * tensor_count

    def measure_reserved_mib() -> TrueValue:
        with use_device("A100") as cp:
            with allocator() as recorded_allocator:
                arrays = [cp.empty(request_bytes, "uint8") for request_bytes in request_sizes_bytes]
            arrays.clear()
            replay_report = recorded_allocator.replayed("PyTorch")
        last_state: Any = replay_report.at(-1)
        return TrueValue(
            int(last_state.total_bytes) // MIB,
            Provenance("modelled", "virtual A100", "PyTorch's caching allocator"),
            "Tensors of up to 1 MiB are in segments of 2 MiB. Larger ones, below 10 MiB, are in segments of "
            "20 MiB.",
        )

    return DrawnCard(
        questions=(
            CardQuestion(
                question=f"PyTorch's caching allocator is empty. A program then makes {tensor_count} tensors of {tensor_kib} KiB each. How many MiB "
                "has it reserved then?",
                measure=measure_reserved_mib,
                unit="MiB",
                max_error_factor=1.0,
            ),
        ),
        rubric_points=(
            (
                "*Reserved* memory is the memory that was taken from the driver. It is not the same as "
                "*allocated* memory."
            ),
            "Small requests share segments of 2 MiB, and medium ones share segments of 20 MiB.",
            "A segment goes back to the driver only if all of it is free.",
        ),
        strong_answer="I assign each request to its kind of segment, and count segments instead of tensors.",
        parameters={"kib": tensor_kib, "tensors": tensor_count},
    )


CARDS = (
    Card("estimate-resident", "estimate", "L3", "Resident blocks", make_resident_card, ("02",)),
    Card("estimate-waves", "estimate", "L3", "Waves of a launch", make_waves_card, ("02",)),
    Card("estimate-sectors", "estimate", "L3", "Sectors of a request", make_sectors_card, ("05a",)),
    Card("estimate-banks", "estimate", "L4", "Passes of shared memory", make_conflicts_card, ("05b",)),
    Card("estimate-matrices", "estimate", "L5", "Passes of ldmatrix", make_matrices_card, ("18",)),
    Card("estimate-stages", "estimate", "L5", "Stages of a pipeline", make_stages_card, ("18",)),
    Card(
        "estimate-scaling",
        "estimate",
        "L4",
        "Time of an element-wise kernel",
        make_scaling_card,
        ("05a", "07"),
    ),
    Card("estimate-copy", "estimate", "L4", "Time of a copy", make_copy_card, ("08",)),
    Card("estimate-lanes", "estimate", "L3", "Active lanes", make_divergence_card, ("03",)),
    Card("estimate-launches", "estimate", "L4", "Launches and a graph", make_launches_card, ("11a",)),
    Card("estimate-pool", "estimate", "L4", "Bytes of a pool", make_pool_card, ("10a",)),
    Card("estimate-segments", "estimate", "L5", "Reserved by PyTorch", make_segments_card, ("10a", "10b")),
)
