"""Interview cards about a common claim: choose an experiment that can refute it, and predict its result."""

from __future__ import annotations

from collections.abc import Callable
from random import Random

import numpy as np

from gpulab import session
from gpulab.lab.kernels import count
from gpulab.lab.why.diagnose import diagnose as diagnosis
from gpulab.words import duration, percent, size
from gpulab_course.content import kernels
from gpulab_course.content.n17_interview.cards import estimates
from gpulab_course.content.n17_interview.cards.laboratory import (
    ARITHMETIC_SOURCE,
    compile_kernel,
    read_published_info,
    use_device,
)
from gpulab_course.teach.interview import Card, CardQuestion, DrawnCard, TrueValue
from virtualgpu.records import Provenance

FAIR_EXPERIMENT = "can fail, and changes one thing"
_CLAIM_POINTS = (
    "Said what the experiment would show if the claim were true.",
    "Changed one thing, on the device of the claim, from the same state of the caches.",
    "Measured, and gave the number with its unit, its device and its origin.",
    "Corrected the claim, instead of only denying it.",
)


def _make_claim_card(
    claim_key: str,
    claim_source: str,
    claim: str,
    experiments: tuple[tuple[str, str], ...],
    draw_claim: Callable[[Random], tuple[str, str, str, float, Callable[[], TrueValue], dict[str, object]]],
    sentence: str,
    section: str,
    level: str = "L4",
    follow_up: Callable[[dict[str, object]], CardQuestion] | None = None,
) -> Card:
    """Return a card about a claim, with a question about experiments and one about the result.

    `experiments` are pairs of an experiment's description and its flaw, `FAIR_EXPERIMENT` for the right one.
    `draw_claim(rng)` returns the text of the claim, a question, its unit, the accepted factor, the
    measurement, and the parameters. `follow_up` creates another question from these parameters.
    """

    def draw(rng: Random) -> DrawnCard:
        drawn_claim, question, answer_unit, accepted_factor, measure_claim, parameters = draw_claim(rng)
        shuffled_experiments = list(experiments)
        rng.shuffle(shuffled_experiments)

        def find_fair_experiment() -> TrueValue:
            explanation = " ".join(
                f"“{experiment}”: {experiment_flaw}." for experiment, experiment_flaw in shuffled_experiments
            )
            fair_experiment = next(
                experiment
                for experiment, experiment_flaw in shuffled_experiments
                if experiment_flaw == FAIR_EXPERIMENT
            )
            return TrueValue(fair_experiment, "by design of experiments", explanation)

        claim_text = f"Claimed ({claim_source}): “{drawn_claim or claim}” "
        return DrawnCard(
            questions=(
                CardQuestion(
                    question=f"{claim_text}Which experiment can refute it?",
                    measure=find_fair_experiment,
                    choices=tuple(experiment for experiment, _ in shuffled_experiments),
                ),
                CardQuestion(
                    question=question,
                    measure=measure_claim,
                    unit=answer_unit,
                    max_error_factor=accepted_factor,
                ),
                *([follow_up(parameters)] if follow_up else []),
            ),
            rubric_points=_CLAIM_POINTS,
            strong_answer=sentence,
            parameters=parameters,
        )

    return Card(f"refute-{claim_key}", "refute", level, "A common claim", draw, (section,))


# --- occupancy --------------------------------------------------------------------------------------
def _draw_blocks_claim(
    rng: Random,
) -> tuple[str, str, str, float, Callable[[], TrueValue], dict[str, object]]:
    device = rng.choice(["A100", "H100", "H200", "L40S"])
    block_kib = rng.choice([6, 10, 12])
    shared_kib = read_published_info(device).shared_per_sm_bytes >> 10
    claim = f"{read_published_info(device).name}: blocks of 32 threads with {block_kib} KiB of shared memory: {shared_kib} / {block_kib} = {shared_kib // block_kib} blocks per SM."
    return (
        claim,
        "How many blocks does the occupancy calculator find?",
        "blocks",
        1.0,
        lambda: estimates.measure_resident(device, 32, block_kib),
        {"device": device, "kib": block_kib},
    )


# --- coalescing -------------------------------------------------------------------------------------
def _draw_sgemm_claim(
    rng: Random,
) -> tuple[str, str, str, float, Callable[[], TrueValue], dict[str, object]]:
    n = rng.choice([128, 192, 256])

    def measure() -> TrueValue:
        with use_device("A100"):
            kernel_launch = kernels.launch("sgemm_naive", *kernels.example("sgemm", (n, n, n)).arrays)
            counters = count(**kernel_launch.step)
        requests = counters.total("requests", "global", "load")
        sectors = counters.total("sectors", "global", "load")
        return TrueValue(
            round(sectors / requests, 2),
            counters.provenance,
            f"{sectors:,} sectors in {requests:,} requests: the lanes of a row load the same element of A, "
            "and neighbouring elements of B. The kernel is slow because it loads each element many times.",
        )

    return (
        "",
        f"How many sectors does a load request take on average, for n = {n}? (32 would be uncoalesced.)",
        "sectors",
        1.5,
        measure,
        {"n": n},
    )


# --- data sheets ------------------------------------------------------------------------------------
def _draw_registers_claim(
    rng: Random,
) -> tuple[str, str, str, float, Callable[[], TrueValue], dict[str, object]]:
    device = rng.choice(["T4", "A100", "H100", "L40S"])

    def measure() -> TrueValue:
        device_info = read_published_info(device)
        return TrueValue(
            device_info.registers_per_sm * 4 >> 10,
            device_info.provenance,
            f"{device_info.registers_per_sm:,} registers of 4 bytes.",
        )

    return (
        "",
        f"How many KiB of registers does an SM of the {read_published_info(device).name} have?",
        "KiB",
        1.0,
        measure,
        {"device": device},
    )


def _draw_decode_claim(
    rng: Random,
) -> tuple[str, str, str, float, Callable[[], TrueValue], dict[str, object]]:
    old_device, new_device = rng.choice([("A100", "H100"), ("A100", "H200"), ("T4", "L40S")])
    claim = f"Decoding is bound by memory, so going from {read_published_info(old_device).name} to {read_published_info(new_device).name} makes it exactly 0 % faster."

    def measure() -> TrueValue:
        time_ratio = (
            read_published_info(new_device).memory_bandwidth_gbps
            / read_published_info(old_device).memory_bandwidth_gbps
        )
        return TrueValue(
            round(time_ratio, 2),
            read_published_info(new_device).provenance,
            f"{read_published_info(old_device).memory_bandwidth_gbps:,} → {read_published_info(new_device).memory_bandwidth_gbps:,} GB/s: a memory-bound "
            "kernel gains at most as much as the memory.",
        )

    return (
        claim,
        "How many times as fast can it become?",
        "times",
        1.15,
        measure,
        {"old": old_device, "new": new_device},
    )


def _draw_energy_claim(
    rng: Random,
) -> tuple[str, str, str, float, Callable[[], TrueValue], dict[str, object]]:
    energy_pj = rng.choice([1, 2, 5])
    claim = f"10¹² operations at {energy_pj} pJ each cost {energy_pj} mJ."

    def measure() -> TrueValue:
        return TrueValue(
            10**12 * energy_pj / 10**12,
            ARITHMETIC_SOURCE,
            f"10¹² × {energy_pj} × 10⁻¹² J: a thousand times what was claimed.",
        )

    return claim, "How many joules is that?", "J", 1.01, measure, {"pj": energy_pj}


def _draw_hbm_stack_claim(
    rng: Random,
) -> tuple[str, str, str, float, Callable[[], TrueValue], dict[str, object]]:
    moved_mib = rng.choice([128, 160, 192])

    def measure() -> TrueValue:
        n = moved_mib << 17  # floats: half is read, half is written
        with use_device("A100") as cp:
            x = cp.zeros(n, "float32")
            y = cp.empty(n, "float32")
            diagnosis_table = diagnosis(compile_kernel(cp, "scaled"), 864, 256, (x, y, np.int32(n)))
        return TrueValue(
            round(8 * n / diagnosis_table.time_ns),
            diagnosis_table.provenance,
            f"{size(8 * n)} in {duration(diagnosis_table.time_ns)}. 460 GB/s is one stack of HBM2e; the "
            "card has five.",
        )

    return (
        "",
        f"How many GB/s does a kernel that moves {moved_mib} MiB reach on the A100?",
        "GB/s",
        1.3,
        measure,
        {"mib": moved_mib},
    )


# --- memory -----------------------------------------------------------------------------------------
def _draw_freed_claim(
    rng: Random,
) -> tuple[str, str, str, float, Callable[[], TrueValue], dict[str, object]]:
    array_mib = rng.choice([64, 100, 256])

    def measure() -> TrueValue:
        with use_device("T4") as cp:
            pool = cp.cuda.MemoryPool()
            cp.cuda.set_allocator(pool.malloc)
            array = cp.empty(array_mib << 20, "uint8")
            del array
            reserved_mib = pool.total_bytes() >> 20
            cp.cuda.set_allocator(cp.get_default_memory_pool().malloc)
        return TrueValue(
            reserved_mib,
            Provenance("modelled", "virtual T4", "CuPy's pool"),
            "The pool keeps the memory, and `free_all_blocks` returns it.",
        )

    return (
        "",
        f"How many MiB does the pool still have after an array of {array_mib} MiB was deleted?",
        "MiB",
        1.0,
        measure,
        {"mib": array_mib},
    )


def _draw_million_claim(
    rng: Random,
) -> tuple[str, str, str, float, Callable[[], TrueValue], dict[str, object]]:
    n = rng.choice([1_000_000, 2_000_000, 500_000])
    claim = f"{n:,} floats take exactly {4 * n:,} bytes of the pool."

    def measure() -> TrueValue:
        with use_device("T4") as cp:
            pool = cp.cuda.MemoryPool()
            cp.cuda.set_allocator(pool.malloc)
            array = cp.empty(n, "float32")
            used_bytes = pool.used_bytes()
            del array
            cp.cuda.set_allocator(cp.get_default_memory_pool().malloc)
        return TrueValue(
            used_bytes,
            Provenance("modelled", "virtual T4", "CuPy's pool"),
            "Sizes are rounded up to 512 bytes.",
        )

    return claim, "How many bytes are in use?", "bytes", 1.0, measure, {"n": n}


# --- time -------------------------------------------------------------------------------------------
def _draw_graphs_claim(
    rng: Random,
) -> tuple[str, str, str, float, Callable[[], TrueValue], dict[str, object]]:
    device = rng.choice(["A100", "H100", "L40S"])
    launch_count = rng.choice([100, 200])

    def measure() -> TrueValue:
        launch_time = estimates.measure_launches(device, launch_count, uses_graph=True)
        assert isinstance(launch_time.value, float | int)
        return TrueValue(
            round(launch_time.value / launch_count, 2),
            launch_time.origin,
            "A node takes less time than a launch, but not zero, because the device starts each node.",
        )

    return (
        "",
        (
            f"A graph has {launch_count} tiny kernels in one chain, on {read_published_info(device).name}. How many µs "
            "does it take per kernel?"
        ),
        "µs",
        2.0,
        measure,
        {"device": device, "many": launch_count},
    )


def _draw_divergence_claim(
    rng: Random,
) -> tuple[str, str, str, float, Callable[[], TrueValue], dict[str, object]]:
    device = rng.choice(["T4", "A100", "RTX 4090"])

    def measure() -> TrueValue:
        with use_device(device) as cp:
            x = cp.ones(256, "float32")
            y = cp.zeros(256, "float32")
            counters = count(compile_kernel(cp, "by_warp"), 1, 256, (x, y))
        return TrueValue(
            round(100 * counters.lane_efficiency),
            counters.provenance,
            f"{counters.divergent_branches} divergent branches: all lanes of a warp take the same branch.",
        )

    return (
        "",
        "Odd warps take one branch, even warps the other. What share of the lanes is active?",
        "%",
        1.1,
        measure,
        {"device": device},
    )


# KiB of unused shared memory per block of 128 threads: a moderate and a low occupancy.
_UNUSED_KIB = {"A100": (12, 32), "H100": (20, 48), "L40S": (12, 48), "RTX 4090": (12, 48)}


def _measure_slowdown(device: str, shared_kib: int) -> TrueValue:
    n = 1 << 22
    times_and_occupancies = []
    with use_device(device) as cp:
        x = cp.zeros(n, "float32")
        y = cp.empty(n, "float32")
        for shared_bytes in (0, shared_kib << 10):
            diagnosis_table = diagnosis(
                compile_kernel(cp, "scaled", shared_bytes),
                n // 128,
                128,
                (x, y, np.int32(n)),
                shared_mem=shared_bytes,
            )
            times_and_occupancies.append(
                (
                    diagnosis_table.time_ns,
                    diagnosis_table.occupancy.warps_per_sm / diagnosis_table.occupancy.max_warps_per_sm,
                )
            )
    (full_occupancy_ns, full_occupancy), (low_occupancy_ns, low_occupancy) = times_and_occupancies
    assert low_occupancy < full_occupancy, "an experiment that changes nothing"
    return TrueValue(
        round(low_occupancy_ns / full_occupancy_ns, 2),
        diagnosis_table.provenance,
        f"{duration(full_occupancy_ns)} at {percent(full_occupancy)} occupancy, {duration(low_occupancy_ns)} at "
        f"{percent(low_occupancy)}: bytes in flight decide.",
    )


def _draw_occupancy_claim(
    rng: Random,
) -> tuple[str, str, str, float, Callable[[], TrueValue], dict[str, object]]:
    device = rng.choice(list(_UNUSED_KIB))
    unused_kib, _ = _UNUSED_KIB[device]
    question = (
        f"An element-wise kernel runs on {read_published_info(device).name} in blocks of 128 threads, first without "
        f"shared memory, and then with {unused_kib} KiB of unused shared memory per block. How many times as long "
        "does the second run take?"
    )
    return "", question, "times", 1.25, lambda: _measure_slowdown(device, unused_kib), {"device": device}


def _make_occupancy_part(parameters: dict[str, object]) -> CardQuestion:
    device = str(parameters["device"])
    _, unused_kib = _UNUSED_KIB[device]
    return CardQuestion(
        question=f"With {unused_kib} KiB per block, how many times as long does it take as without shared memory?",
        measure=lambda: _measure_slowdown(device, unused_kib),
        unit="times",
        max_error_factor=1.6,
    )


def _draw_async_copy_claim(
    rng: Random,
) -> tuple[str, str, str, float, Callable[[], TrueValue], dict[str, object]]:
    device = rng.choice(["T4", "A100", "H100"])
    copy_mib = rng.choice([32, 64])

    def measure() -> TrueValue:
        size_bytes = copy_mib << 20
        with use_device(device) as cp:
            device_array = cp.empty(size_bytes, "uint8")
            host_array = np.zeros(size_bytes, np.uint8)
            stream = cp.cuda.Stream(non_blocking=True)
            backend = session.backend()
            start_ns = backend.host_ns()
            device_array.set(host_array, stream=stream)
            call_ns = backend.host_ns() - start_ns
            stream.synchronize()
            copy_ns = backend.host_ns() - start_ns
        return TrueValue(
            round(100 * call_ns / copy_ns),
            Provenance("modelled", f"virtual {read_published_info(device).name}"),
            f"The call returned after {duration(call_ns)} of {duration(copy_ns)}: the driver copies "
            "pageable memory to a pinned buffer first, and the host waits.",
        )

    question = (
        f"{copy_mib} MiB are copied from pageable memory to {read_published_info(device).name}, in a separate stream. "
        "After what share of the copy's time does the call return?"
    )
    return ("", question, "%", 1.3, measure, {"device": device, "mib": copy_mib})


_WRONG_DEVICE_FLAW = "wrong device: it shows nothing about the device of the claim"
_CANNOT_FAIL_FLAW = "cannot fail: the result is the same whether the claim is true or not"
_CONFOUNDED_FLAW = "confounded: two things change at once"

CARDS = (
    _make_claim_card(
        "blocks",
        "a GPU glossary",
        "",
        (
            ("use the occupancy rules for this kernel, block and device", FAIR_EXPERIMENT),
            ("use them for a kernel without shared memory", _CANNOT_FAIL_FLAW),
            ("use them for a T4 instead", _WRONG_DEVICE_FLAW),
            ("double shared memory and threads together", _CONFOUNDED_FLAW),
        ),
        _draw_blocks_claim,
        "Since compute capability 8.0, CUDA reserves 1 KiB for each block, in addition to its own memory.",
        "02",
    ),
    _make_claim_card(
        "naive",
        "a collection of practice kernels",
        "The naive matrix multiplication with `A[row*N+k] * B[k*N+col]` is slow because it is uncoalesced.",
        (
            ("count the sectors per request of its two loads", FAIR_EXPERIMENT),
            ("time it against cuBLAS", "confounded: everything differs, not only coalescing"),
            ("count the operations", _CANNOT_FAIL_FLAW),
            ("count the loads of the tiled version", "wrong kernel: it shows nothing about this one"),
        ),
        _draw_sgemm_claim,
        "It is coalesced, but it reads each element n times.",
        "05b",
    ),
    _make_claim_card(
        "registers",
        "a list of interview questions",
        "An SM typically has 64 KB of registers.",
        (
            ("look up the registers per SM, and multiply by their width", FAIR_EXPERIMENT),
            ("compile a kernel with 64 registers per thread", _CANNOT_FAIL_FLAW),
            ("look up the shared memory per SM", "another memory: it shows nothing about registers"),
            ("compare two cards of one architecture", "cannot fail: both have the same number"),
        ),
        _draw_registers_claim,
        "64 K registers of four bytes are 256 KiB.",
        "02",
        "L3",
    ),
    _make_claim_card(
        "decode",
        "a set of systems cards",
        "",
        (
            ("compare the two cards' bandwidths", FAIR_EXPERIMENT),
            ("compare their tensor rates", _CANNOT_FAIL_FLAW),
            ("compare two models, one on each card", _CONFOUNDED_FLAW),
            ("compare the bandwidths of two T4", _WRONG_DEVICE_FLAW),
        ),
        _draw_decode_claim,
        "A memory-bound kernel is as fast as the memory, so it gains fully from a faster memory.",
        "09",
    ),
    _make_claim_card(
        "energy",
        "a set of systems cards",
        "",
        (
            ("multiply, with the powers of ten written out", FAIR_EXPERIMENT),
            ("compare with another number of the same card", "cannot fail: both can contain the same error"),
            ("measure the board's power while idle", "wrong quantity: no operations run"),
            ("measure a kernel that also moves memory", _CONFOUNDED_FLAW),
        ),
        _draw_energy_claim,
        "10¹² picojoules are one joule.",
        "09",
        "L3",
    ),
    _make_claim_card(
        "stack",
        "notes that colleagues pass on",
        "The memory of an A100 delivers 460 GB/s.",
        (
            (
                "time a kernel that streams several times as much as fits into L2, and count its bytes",
                FAIR_EXPERIMENT,
            ),
            ("time one that fits into L2", "confounded: the data comes from L2, not from DRAM"),
            ("time it on a T4", _WRONG_DEVICE_FLAW),
            (
                "check whether it is slower than the data sheet says",
                "cannot fail: everything is a little slower than that",
            ),
        ),
        _draw_hbm_stack_claim,
        "This is the highest rate of one stack, and the card has five stacks.",
        "05a",
    ),
    _make_claim_card(
        "freed",
        "forum answers",
        "`del x` returns the memory to the GPU.",
        (
            ("read the pool's total before and after", FAIR_EXPERIMENT),
            ("read its used bytes before and after", "cannot fail: the used bytes fall in both cases"),
            ("delete and make another array, then look", _CONFOUNDED_FLAW),
            ("look at the host's memory", "wrong memory"),
        ),
        _draw_freed_claim,
        "The memory goes back to the pool, and only `free_all_blocks` returns it to the driver.",
        "10a",
    ),
    _make_claim_card(
        "million",
        "a tutorial",
        "",
        (
            ("read the used bytes of the pool", FAIR_EXPERIMENT),
            ("read `nbytes` of the array", "cannot fail: this is computed from its shape"),
            ("ask `nvidia-smi`", "confounded: it includes the context and the free memory of the pool"),
            ("make ten arrays of other sizes", _CONFOUNDED_FLAW),
        ),
        _draw_million_claim,
        "The size is rounded up to 512 bytes.",
        "10a",
        "L3",
    ),
    _make_claim_card(
        "graphs",
        "a blog",
        "With CUDA graphs, there is no launch overhead.",
        (
            ("time a graph of many empty kernels in a chain, per kernel", FAIR_EXPERIMENT),
            (
                "time a graph of one long kernel",
                "cannot fail: the overhead is too small to see in both cases",
            ),
            ("time a graph of fused kernels", _CONFOUNDED_FLAW),
            ("count the graph's nodes", "wrong quantity: a number of nodes is not a time"),
        ),
        _draw_graphs_claim,
        "The host launches once, but the device still starts each node.",
        "11a",
    ),
    _make_claim_card(
        "diverging",
        "many slides",
        "An `if` in a kernel halves its speed.",
        (
            ("count active lanes if whole warps take one branch, and if they do not", FAIR_EXPERIMENT),
            ("count instructions of a kernel without an `if`", _CANNOT_FAIL_FLAW),
            ("time it with another block size as well", _CONFOUNDED_FLAW),
            ("look at its source", "no measurement: the source does not show which lanes go where"),
        ),
        _draw_divergence_claim,
        "Only a warp whose lanes take different branches becomes slower.",
        "03",
    ),
    _make_claim_card(
        "full",
        "many slides",
        "Occupancy should always be as high as possible.",
        (
            ("the same kernel with unused shared memory, which lowers only the occupancy", FAIR_EXPERIMENT),
            ("another block size and another unrolling", _CONFOUNDED_FLAW),
            ("two kernels of full occupancy", _CANNOT_FAIL_FLAW),
            ("read the occupancy calculator", "no measurement of speed"),
        ),
        _draw_occupancy_claim,
        "As soon as the latency is hidden, more occupancy does not help. Below that, the time grows when "
        "occupancy falls.",
        "02",
        "L5",
        _make_occupancy_part,
    ),
    _make_claim_card(
        "asynchronous",
        "documentation of a framework, read in haste",
        "`non_blocking=True` makes a copy asynchronous.",
        (
            ("note when the call returns, from pageable memory", FAIR_EXPERIMENT),
            ("note when the call returns, from pinned memory", "cannot fail: there it is asynchronous"),
            ("note when the data have arrived", "wrong moment: of the copy, not of the call"),
            ("copy another amount in the other direction", _CONFOUNDED_FLAW),
        ),
        _draw_async_copy_claim,
        "From pageable memory, the host waits until the data is in a pinned buffer.",
        "08",
    ),
)
