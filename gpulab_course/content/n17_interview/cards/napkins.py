"""Interview cards about estimates from data sheets, such as a quotient of two published values."""

from __future__ import annotations

import math
from random import Random

import numpy as np

from gpulab.words import number, size
from gpulab_course.content.n17_interview.cards.laboratory import (
    ARITHMETIC_SOURCE,
    DEVICES,
    choose_article,
    compile_kernel,
    draw_other_device,
    read_published_info,
    read_tensor_tflops,
    use_device,
)
from gpulab_course.teach.interview import Card, CardQuestion, DrawnCard, TrueValue
from virtualgpu.records import Provenance

MIB = 1 << 20
GIB = 1 << 30


# --- what the card can do ---------------------------------------------------------------------------
def make_ridge_card(rng: Random) -> DrawnCard:
    device, other_device = rng.sample(DEVICES, 2)

    def compute_ridge(name: str, uses_tensor_cores: bool) -> TrueValue:
        device_info = read_published_info(name)
        tflops = device_info.fp16_tensor_tflops if uses_tensor_cores else device_info.fp32_tflops
        return TrueValue(
            round(tflops * 1000 / device_info.memory_bandwidth_gbps, 1),
            device_info.provenance,
            f"{tflops} TFLOPS over {device_info.memory_bandwidth_gbps:,} GB/s.",
        )

    def make_part(name: str, uses_tensor_cores: bool = False) -> CardQuestion:
        operation_kind = (
            "FP16 operations on tensor cores (dense, sums in FP32)"
            if uses_tensor_cores
            else "FP32 operations outside tensor cores"
        )
        return CardQuestion(
            question=f"From how many {operation_kind} per byte of DRAM traffic on is a kernel bound by "
            f"arithmetic on {choose_article(name)} {name}? A multiply-add counts as two operations.",
            measure=lambda: compute_ridge(name, uses_tensor_cores),
            unit="operations",
            max_error_factor=1.4,
        )

    return DrawnCard(
        questions=(make_part(device), make_part(other_device), make_part(device, uses_tensor_cores=True)),
        rubric_points=(
            "It is the ridge of the roofline, that is, peak rate / bandwidth.",
            "A multiply-add counts as two operations.",
            "With tensor cores, the ridge is at many times as many operations per byte.",
            "Bytes are those that are moved, not those that the kernel requests.",
        ),
        strong_answer="Peak FLOPS divided by bandwidth. With fewer operations per byte, memory is the limit, and with more, arithmetic is.",
        parameters={"device": device, "then": other_device},
    )


def make_product_card(rng: Random) -> DrawnCard:
    device = rng.choice(DEVICES)
    n = rng.choice([2048, 4096, 6144, 8192])
    other_device = draw_other_device(rng, device)

    def compute_time(name: str, uses_tensor_cores: bool) -> TrueValue:
        device_info = read_published_info(name)
        tflops, element_bytes = (
            (device_info.fp16_tensor_tflops, 2) if uses_tensor_cores else (device_info.fp32_tflops, 4)
        )
        time_ms = 2 * n**3 / (tflops * 1e9)
        memory_ms = 3 * element_bytes * n * n / (device_info.memory_bandwidth_gbps * 1e6)
        return TrueValue(
            round(time_ms, 3),
            device_info.provenance,
            f"2 × {n:,}³ operations at {tflops} TFLOPS; memory alone, each matrix moved once, would take "
            f"{number(memory_ms)} ms.",
        )

    def make_part(name: str, uses_tensor_cores: bool = False) -> CardQuestion:
        method_text = (
            "in FP16 on tensor cores (dense, sums in FP32)"
            if uses_tensor_cores
            else "in FP32, without tensor cores"
        )
        return CardQuestion(
            question=f"What is the shortest time for the multiplication of two {n:,} × {n:,} matrices {method_text}, on {choose_article(name)} {name}?",
            measure=lambda: compute_time(name, uses_tensor_cores),
            unit="ms",
            max_error_factor=1.3,
        )

    return DrawnCard(
        questions=(make_part(device), make_part(other_device), make_part(device, uses_tensor_cores=True)),
        rubric_points=(
            "2 n³ operations on 3 n² numbers, so the operations per byte grow with n.",
            "There are two lower bounds, arithmetic and memory, and the larger one counts.",
            "For large n, cuBLAS reaches most of this rate, and a naive kernel a few percent.",
        ),
        strong_answer="2 n³ divided by the peak rate, after I have checked that memory is not the larger bound.",
        parameters={"device": device, "n": n, "then": other_device},
    )


def make_formats_card(rng: Random) -> DrawnCard:
    n = rng.choice([4096, 6144, 8192])
    device, other_device = (
        rng.choice([name for name in DEVICES if read_tensor_tflops(name, format_name)] or ["H100"])
        for format_name in ("tf32 to f32", "f8 to f32")
    )

    def make_part(name: str, format_name: str, format_text: str) -> CardQuestion:
        fp16_tflops = read_published_info(name).fp16_tensor_tflops

        def find_shortest_time() -> TrueValue:
            tflops = read_tensor_tflops(name, format_name)
            return TrueValue(
                round(2 * n**3 / (tflops * 1e9), 3),
                read_published_info(name).provenance,
                f"2 × {n:,}³ operations at {number(tflops)} TFLOPS, {number(tflops / fp16_tflops)} times the "
                "rate of FP16.",
            )

        return CardQuestion(
            question=f"The tensor cores of {choose_article(name)} {name} reach {fp16_tflops} TFLOPS with FP16 factors (dense, sums in FP32). "
            f"What is the shortest time in which they multiply two {n:,} × {n:,} matrices of {format_text} numbers, "
            "also dense and with sums in FP32?",
            measure=find_shortest_time,
            unit="ms",
            max_error_factor=1.3,
        )

    return DrawnCard(
        questions=(make_part(device, "tf32 to f32", "TF32"), make_part(other_device, "f8 to f32", "FP8")),
        rubric_points=(
            "The rate doubles when the factors have half the width. TF32 numbers are stored in 32 bits.",
            "2 n³ operations: a multiply-add counts as two.",
            "The accumulator matters, too: on GeForce cards, sums in FP16 are twice as fast as sums in FP32.",
            (
                "Narrower numbers also move fewer bytes, so the operations per number at the ridge stay the "
                "same."
            ),
        ),
        strong_answer="2 n³ divided by the rate: half of the FP16 rate with TF32, and twice the FP16 rate with FP8.",
        parameters={"device": device, "n": n, "then": other_device},
    )


def make_registers_card(rng: Random) -> DrawnCard:
    device = rng.choice(DEVICES)
    registers_per_thread = rng.choice([40, 64, 72, 96, 128, 168])
    other_device = draw_other_device(rng, device)

    def compute_file_size(name: str) -> TrueValue:
        device_info = read_published_info(name)
        return TrueValue(
            device_info.registers_per_sm * 4 // 1024,
            device_info.provenance,
            f"{device_info.registers_per_sm:,} registers of 4 bytes. A common wrong answer, 64 KB, "
            "forgets that a register has 4 bytes.",
        )

    def compute_warp_limit(name: str) -> TrueValue:
        device_info = read_published_info(name)
        # Rounded up to units of 256 registers per warp (CUDA's occupancy rules since compute capability 3).
        registers_per_warp = -(-registers_per_thread * 32 // 256) * 256
        warp_count = device_info.registers_per_sm // registers_per_warp // 4 * 4
        return TrueValue(
            warp_count,
            device_info.provenance,
            f"{device_info.registers_per_sm:,} / {registers_per_warp:,} registers per warp, over four "
            f"schedulers. The SM holds at most {device_info.max_warps_per_sm} warps.",
        )

    return DrawnCard(
        questions=(
            CardQuestion(
                question=f"How many KiB is the register file of one SM of {choose_article(device)} {device}?",
                measure=lambda: compute_file_size(device),
                unit="KiB",
                max_error_factor=1.03,
            ),
            CardQuestion(
                question=f"A kernel uses {registers_per_thread} registers per thread. How many warps do the registers of an SM of "
                f"{choose_article(other_device)} {other_device} allow, whatever its other limits are?",
                measure=lambda: compute_warp_limit(other_device),
                unit="warps",
                max_error_factor=1.1,
            ),
        ),
        rubric_points=(
            "An SM has 65,536 registers of 32 bits.",
            "They are allocated per warp, in units of 256.",
            (
                "If a thread needs more registers than its limit, values spill into local memory, which is "
                "cached DRAM."
            ),
        ),
        strong_answer="64 K registers of four bytes are 256 KiB per SM, usually its largest memory.",
        parameters={"device": device, "registers": registers_per_thread, "then": other_device},
    )


def make_in_flight_card(rng: Random) -> DrawnCard:
    device = rng.choice(DEVICES)
    latency_ns = rng.choice([400, 500, 600, 800])
    other_device = draw_other_device(rng, device)

    def compute_bytes_in_flight(name: str) -> TrueValue:
        device_info = read_published_info(name)
        bytes_per_sm_kib = device_info.memory_bandwidth_gbps * latency_ns / device_info.sm_count / 1024
        return TrueValue(
            round(bytes_per_sm_kib, 1),
            device_info.provenance,
            f"{device_info.memory_bandwidth_gbps:,} GB/s × {latency_ns} ns = "
            f"{size(device_info.memory_bandwidth_gbps * latency_ns)}, over {device_info.sm_count} SMs.",
        )

    def make_part(name: str) -> CardQuestion:
        return CardQuestion(
            question=f"A load from DRAM takes {latency_ns} ns. How many KiB must each SM of {choose_article(name)} {name} "
            "have in flight to use all of its bandwidth?",
            measure=lambda: compute_bytes_in_flight(name),
            unit="KiB",
            max_error_factor=1.4,
        )

    return DrawnCard(
        questions=(make_part(device), make_part(other_device)),
        rubric_points=(
            "Little's law: bytes in flight = bandwidth × latency.",
            "More warps, more independent loads per thread, or wider loads all put more bytes in flight.",
            "So full occupancy is one way, but not the only one.",
        ),
        strong_answer="Bandwidth times latency, divided by the number of SMs. This many bytes must be in flight at any time.",
        parameters={"device": device, "latency_ns": latency_ns, "then": other_device},
    )


def make_key_cache_card(rng: Random) -> DrawnCard:
    layer_count, head_count, head_dimension = rng.choice(
        [(32, 8, 128), (80, 8, 128), (32, 32, 128), (40, 10, 128)]
    )
    token_count = rng.choice([4096, 8192, 32768])
    batch_size = rng.choice([1, 4, 8])
    device = rng.choice(["A100", "H100", "H200"])
    cache_bytes = 2 * layer_count * head_count * head_dimension * token_count * batch_size * 2

    def compute_cache_size() -> TrueValue:
        # Keys and values of one token.
        token_bytes = np.empty((2, layer_count, head_count, head_dimension), np.float16).nbytes
        return TrueValue(
            round(token_bytes * token_count * batch_size / GIB, 2),
            ARITHMETIC_SOURCE,
            f"2 × {layer_count} layers × {head_count} heads × {head_dimension} × 2 bytes = {token_bytes:,} bytes per token.",
        )

    def compute_step_time() -> TrueValue:
        device_info = read_published_info(device)
        time_ms = cache_bytes / (device_info.memory_bandwidth_gbps * 1e6)
        return TrueValue(
            round(time_ms, 3),
            device_info.provenance,
            f"{size(cache_bytes)} at {device_info.memory_bandwidth_gbps:,} GB/s.",
        )

    return DrawnCard(
        questions=(
            CardQuestion(
                question=f"A model has {layer_count} layers with {head_count} key-value heads of {head_dimension} numbers, in FP16. How many GiB do "
                f"the keys and values of {batch_size} × {token_count:,} tokens take?",
                measure=compute_cache_size,
                unit="GiB",
                max_error_factor=1.1,
            ),
            CardQuestion(
                question="One decoding step adds a token to "
                f"{(f'each of the {batch_size} sequences' if batch_size > 1 else 'the sequence')}, and "
                "reads all these keys and values once. How long does that take at least on "
                f"{choose_article(device)} {device}, if they fit into its memory?",
                measure=compute_step_time,
                unit="ms",
                max_error_factor=1.3,
            ),
        ),
        rubric_points=(
            (
                "Two (keys and values) × layers × key-value heads × head size × bytes, for each token of "
                "each sequence."
            ),
            "A step reads all of this and the weights for one token of each sequence, so it is memory-bound.",
            (
                "Grouped heads, narrower formats and paging make the cache smaller. A larger batch shares "
                "only the weights."
            ),
        ),
        strong_answer="2 × layers × key-value heads × head size × bytes for every stored token, and then divided by the bandwidth.",
        parameters={
            "layers": layer_count,
            "heads": head_count,
            "dim": head_dimension,
            "tokens": token_count,
            "batch": batch_size,
            "device": device,
        },
    )


def make_decoding_card(rng: Random) -> DrawnCard:
    billion_parameters = rng.choice([7, 8, 13, 70])
    weight_bytes = rng.choice([1, 2])
    device, other_device = rng.choice(
        [("A100", "H100"), ("T4", "A100"), ("H100", "H200"), ("RTX 3090", "RTX 4090")]
    )

    def compute_token_rate() -> TrueValue:
        device_info = read_published_info(device)
        return TrueValue(
            round(device_info.memory_bandwidth_gbps / (billion_parameters * weight_bytes), 1),
            device_info.provenance,
            f"{billion_parameters * weight_bytes} GB of weights per token, at {device_info.memory_bandwidth_gbps:,} "
            "GB/s.",
        )

    def compute_bandwidth_gain() -> TrueValue:
        old_info = read_published_info(device)
        new_info = read_published_info(other_device)
        return TrueValue(
            round(new_info.memory_bandwidth_gbps / old_info.memory_bandwidth_gbps, 2),
            new_info.provenance,
            f"{old_info.memory_bandwidth_gbps:,} → {new_info.memory_bandwidth_gbps:,} GB/s. A memory-bound "
            "program can gain on another card: it gains as much as the bandwidth does.",
        )

    return DrawnCard(
        questions=(
            CardQuestion(
                question=f"A model of {billion_parameters} billion weights of {weight_bytes} "
                f"byte{('s' if weight_bytes > 1 else '')} decodes one sequence. How many tokens per "
                f"second does the bandwidth of {choose_article(device)} {device} allow at most, if they "
                "fit into its memory?",
                measure=compute_token_rate,
                unit="tokens/s",
                max_error_factor=1.3,
            ),
            CardQuestion(
                question=f"How many times as fast is it at most on {choose_article(other_device)} {other_device}?",
                measure=compute_bandwidth_gain,
                unit="times",
                max_error_factor=1.15,
            ),
        ),
        rubric_points=(
            "Each token reads every weight once, so the time is bytes of the weights / bandwidth.",
            "With batch size 1, bandwidth matters, and tensor cores do not.",
            (
                "The sequences of a batch share the weights, until arithmetic or the cache of keys and "
                "values is the limit."
            ),
        ),
        strong_answer="Bandwidth divided by the bytes of the weights, because every token reads all of them.",
        parameters={
            "billions": billion_parameters,
            "bytes": weight_bytes,
            "device": device,
            "then": other_device,
        },
    )


def make_halves_card(rng: Random) -> DrawnCard:
    addition_count = rng.choice([3000, 4096, 6000])

    def count_ones_in_half() -> TrueValue:
        with use_device("A100") as cp:
            device_sum = cp.zeros(1, "float32")
            compile_kernel(cp, "ones")((1,), (1,), (device_sum, np.int32(addition_count)))
            last_count = int(device_sum[0])
        return TrueValue(
            last_count,
            Provenance("modelled", "virtual A100", "results are exact"),
            "Above this number, neighbouring numbers differ by 2, and a tie is rounded to the even one.",
        )

    def find_count_limit_in_single() -> TrueValue:
        next_sum = np.float32(0)
        for exponent in range(24, 26):
            next_sum = np.float32(2**exponent) + np.float32(1)
            if next_sum == 2**exponent:
                return TrueValue(2**exponent, "computed by NumPy", "FP32 has 24 bits of significand.")
        raise AssertionError(next_sum)

    return DrawnCard(
        questions=(
            CardQuestion(
                question=f"A kernel adds 1 to an FP16 sum {addition_count:,} times. The sum starts at 0. What "
                "is it at the end?",
                measure=count_ones_in_half,
                max_error_factor=1.0,
            ),
            CardQuestion(
                question="And at which number does an FP32 sum of ones stop?",
                measure=find_count_limit_in_single,
                max_error_factor=1.0,
            ),
        ),
        rubric_points=(
            "The significand has 11 bits in FP16, 24 in FP32 and 8 in BF16.",
            "A sum stops growing when 1 is at most half of the distance to the next number.",
            "So accumulate in FP32, or in a tree, or with compensation.",
        ),
        strong_answer="The sum counts to 2 to the power of the number of significand bits, and stays there.",
        parameters={"times": addition_count},
    )


def make_all_reduce_card(rng: Random) -> DrawnCard:
    gpu_count = rng.choice([4, 8, 16])
    array_mib = rng.choice([256, 512, 1024])

    def compute_ring_traffic() -> TrueValue:
        # Each rank's buffer has `gpu_count` chunks. Count the MiB that rank 0 sends, step by step.
        chunk_mib = array_mib / gpu_count
        sent_mib = 0.0
        for _ in range(gpu_count - 1):  # reduce-scatter
            sent_mib += chunk_mib
        for _ in range(gpu_count - 1):  # all-gather
            sent_mib += chunk_mib
        return TrueValue(
            sent_mib,
            "counted over the ring's steps",
            f"2 × ({gpu_count} − 1) / {gpu_count} × {array_mib} MiB.",
        )

    def compute_star_traffic() -> TrueValue:
        return TrueValue(
            (gpu_count - 1) * array_mib,
            "counted over the copies",
            f"{gpu_count - 1} others send all of it to GPU 0.",
        )

    return DrawnCard(
        questions=(
            CardQuestion(
                question=f"A ring all-reduce adds arrays of {array_mib} MiB on {gpu_count} GPUs. How many MiB does "
                "each GPU send?",
                measure=compute_ring_traffic,
                unit="MiB",
                max_error_factor=1.05,
            ),
            CardQuestion(
                question="If all other GPUs send their arrays to GPU 0, which adds them up, how many MiB "
                "does GPU 0 receive?",
                measure=compute_star_traffic,
                unit="MiB",
                max_error_factor=1.05,
            ),
        ),
        rubric_points=(
            "Reduce-scatter and all-gather, with n − 1 steps each, and one n-th of the data per step.",
            (
                "It is less than twice the data for any n. The bandwidth of a ring does not fall with n, "
                "but its latency grows."
            ),
            "Traffic is counted per port, and a port that all data must pass is the limit.",
        ),
        strong_answer="2 (n − 1) / n times the data, in and out of every port, for any number of GPUs.",
        parameters={"gpus": gpu_count, "mib": array_mib},
    )


def make_amdahl_card(rng: Random) -> DrawnCard:
    kernel_percent = rng.choice([20, 35, 60, 80])
    kernel_factor = rng.choice([3, 5, 10])

    def compute_speedup(kernel_speedup: float) -> TrueValue:
        total_speedup = 100 / (100 - kernel_percent + kernel_percent / kernel_speedup)
        term_text = (
            f" + {kernel_percent / 100:g} / {kernel_speedup:g}" if math.isfinite(kernel_speedup) else ""
        )
        return TrueValue(
            round(total_speedup, 2), ARITHMETIC_SOURCE, f"1 / ({(100 - kernel_percent) / 100:g}{term_text})."
        )

    return DrawnCard(
        questions=(
            CardQuestion(
                question=f"A kernel takes {kernel_percent} % of a step and becomes {kernel_factor} times as fast. How many times as fast is the step?",
                measure=lambda: compute_speedup(kernel_factor),
                unit="times",
                max_error_factor=1.05,
            ),
            CardQuestion(
                question="How many times as fast is the step if the kernel takes no time at all?",
                measure=lambda: compute_speedup(math.inf),
                unit="times",
                max_error_factor=1.05,
            ),
        ),
        rubric_points=(
            "Amdahl's law: the time of the unchanged part stays the same.",
            "Shares refer to wall time, not to the busy time of the GPU.",
            "After each improvement the shares are different, so measure again.",
        ),
        strong_answer="1 divided by the remaining time: the unchanged share, plus the changed share divided by its speed-up.",
        parameters={"share": kernel_percent, "factor": kernel_factor},
    )


CARDS = (
    Card("estimate-ridge", "estimate", "L4", "The ridge of a roofline", make_ridge_card, ("09",)),
    Card(
        "estimate-product",
        "estimate",
        "L4",
        "Shortest time of a matrix multiplication",
        make_product_card,
        ("05b", "09"),
    ),
    Card("estimate-formats", "estimate", "L4", "Formats of tensor cores", make_formats_card, ("13a", "18")),
    Card("estimate-registers", "estimate", "L3", "The register file", make_registers_card, ("01", "02")),
    Card("estimate-flight", "estimate", "L5", "Bytes in flight", make_in_flight_card, ("02",)),
    Card("estimate-keys", "estimate", "L5", "Keys and values", make_key_cache_card, ("16",)),
    Card("estimate-decode", "estimate", "L5", "Tokens a second", make_decoding_card, ("09", "01")),
    Card("estimate-halves", "estimate", "L4", "Counting in half precision", make_halves_card, ("13a",)),
    Card("estimate-ring", "estimate", "L5", "Traffic of an all-reduce", make_all_reduce_card, ("15",)),
    Card("estimate-amdahl", "estimate", "L3", "A faster kernel in a step", make_amdahl_card, ("09",)),
)
