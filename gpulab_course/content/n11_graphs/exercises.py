"""Exercises of notebook 11."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from gpulab import session
from gpulab_course.teach.judge import Budget, DataGenerator, ProgramCase, ProgramExercise

_IN_CAPTURE_ADVICE = (
    "While a stream captures, nothing runs. Wait for results and copy them to the host after the "
    "launch of the graph."
)
_UNJOINED_ADVICE = (
    "Record an event at the end of the second stream's work, and let the stream that captures wait for it "
    "before end_capture()."
)
_ADVICE_OF_MISTAKE = (
    ("is capturing", _IN_CAPTURE_ADVICE),
    ("StreamCaptureUnsupported", _IN_CAPTURE_ADVICE),
    ("cannot capture on the default", "Capture in a stream of your own: cp.cuda.Stream(non_blocking=True)."),
    (
        "legacy stream depend",
        "Make the stream with non_blocking=True, and put all of the work into it: with stream: …",
    ),
    ("StreamCaptureUnjoined", _UNJOINED_ADVICE),
    (
        "StreamCaptureIsolation",
        "The stream waits for an event from before the capture. Record it during the capture.",
    ),
)
_ONE_GRAPH_BUDGET = Budget(
    "graphs",
    "Capture once, before the loop: making a graph costs more than the launches that it saves.",
    max_count=1,
)


def noise_source() -> str:
    """Return the CUDA C++ source of the kernels ``noise`` and ``advance``."""
    return (Path(__file__).parent / "kernels" / "noise.cu").read_text(encoding="utf-8")


# 11-replay


def one_round(x: Any) -> None:
    """Launch three small kernels that change the array `x` in place."""
    cp = session.cp()
    cp.multiply(x, 0.5, out=x)
    cp.add(x, 1, out=x)
    cp.negative(x, out=x)


def _compute_relaxed(x: npt.NDArray[np.float32], round_count: int) -> npt.NDArray[np.float32]:
    """Compute `x` after `rounds` calls of `one_round` with NumPy."""
    for _ in range(round_count):
        x = -(x * np.float32(0.5) + np.float32(1))
    return x


def draw_replay_sizes(rng: np.random.Generator) -> tuple[tuple[int, int], ...]:
    """Return element counts and round counts for the tests, as pairs. One of the round counts is 0."""
    n = int(rng.integers(1000, 5000))
    round_count = int(rng.integers(14, 20))
    return (1, 1), (1000, 0), (33, 3), (n, 2), (int(rng.integers(100, 900)), round_count), (4096, 20)


def make_replay_case(random_data: DataGenerator, size: Any) -> ProgramCase:
    """Return a test case whose expected result is the array `x` after some calls of `one_round`."""
    n, round_count = size
    x = random_data.floats(n) * np.float32(1000) + np.float32(
        random_data.rng.choice([-100_000, 100, 100_000])
    )
    first_round = _compute_relaxed(x, 1)
    mistakes = [
        (
            _compute_relaxed(x, round_count + 1),
            (
                "One round too many has run. Make sure that you warm up on a copy, and put all of the work "
                "into the stream that captures (with stream: …)."
            ),
        )
    ]
    if round_count:
        mistakes += [
            (x, "No round has run: capturing a kernel does not run it, but launching the graph does.")
        ]
    if round_count > 1:
        mistakes += [
            (
                _compute_relaxed(x, round_count - 1),
                ("One round is missing: capturing does not run a round, so launch the graph once per round."),
            ),
            (
                first_round,
                (
                    "Every launch began with the same x: write into x itself (out=x or x[...] = …), "
                    "because a graph contains addresses, not names."
                ),
            ),
        ]
    label = f"relax(x, {round_count}, one_round) with {n:,} elements"
    expected = _compute_relaxed(x, round_count)
    return ProgramCase(
        (x, round_count, one_round), expected, True, label, tuple(mistakes), required_place="device"
    )


def relax(x: Any, rounds: int, one_round: Any) -> Any:
    """Capture one round as a graph, and launch the graph once per round (reference solution)."""
    cp = session.cp()
    one_round(x.copy())
    stream = cp.cuda.Stream(non_blocking=True)
    stream.wait_event(cp.cuda.get_current_stream().record())
    with stream:
        stream.begin_capture()
        one_round(x)
        graph = stream.end_capture()
        for _ in range(rounds):
            graph.launch(stream)
    stream.synchronize()
    return x


def relax_naive(x: Any, rounds: int, one_round: Any) -> Any:
    """Launch the three kernels of each round separately (naive version)."""
    for _ in range(rounds):
        one_round(x)
    return x


# 11-static


def draw_serve_sizes(rng: np.random.Generator) -> tuple[tuple[int, int, int], ...]:
    """Return elements per batch, batch counts and request counts for the tests, as triples."""
    n, batch_count, request_count = (int(rng.integers(min_count, 2 * min_count)) for min_count in (100, 3, 7))
    return (1, 1, 1), (2, 3, 1), (33, 3, 5), (n, batch_count, request_count), (1000, 4, 12)


def make_serve_case(random_data: DataGenerator, size: Any) -> ProgramCase:
    """Return a test case with several batches of data, and a list of requests for these batches. Some batches
    are requested twice.
    """
    n, batch_count, request_count = size
    batches = random_data.floats((batch_count, n)) * np.float32(100) - np.float32(3)
    batches[:, -1] = 1 + np.arange(batch_count)  # positive, so that no element is clipped
    repeated_requests = random_data.rng.integers(0, batch_count, max(request_count - batch_count, 0)).tolist()
    requests = [*reversed(range(batch_count)), *repeated_requests]
    requests = requests[:request_count]
    if request_count > batch_count > 2:  # the last request differs from the first one and from batch 0
        requests[-1] = int(random_data.rng.integers(1, batch_count - 1))
    batch_answers = np.maximum(batches * 2, 0) + 1
    expected = batch_answers[requests]
    mistakes = (
        (
            np.broadcast_to(batch_answers[requests[-1]], expected.shape),
            (
                "All rows contain the last answer, because the graph writes to the same array each time. "
                "Copy the array before the next launch."
            ),
        ),
        (
            np.broadcast_to(batch_answers[0], expected.shape),
            (
                "All rows contain the answer to batch 0, with which the graph was captured. Assigning "
                "another array to the name changes nothing in the graph: copy each batch into the captured "
                "array with x[...] = batch."
            ),
        ),
        (
            np.broadcast_to(batch_answers[requests[0]], expected.shape),
            (
                "All rows contain the answer to the first request, with which the graph was captured. Copy "
                "each batch into the captured input with x[...] = batch."
            ),
        ),
    )
    label = f"serve(batches, requests) with {batch_count} batches of {n:,} and {request_count} requests"
    return ProgramCase(
        (batches, requests), expected, True, label, mistakes, required_place="device", keeps_arguments=True
    )


def serve(batches: Any, requests: list[int]) -> Any:
    """Launch one graph per request, which reads a static input and writes a static output (reference
    solution).
    """
    cp = session.cp()
    x = batches[0].copy()
    answers = cp.empty((len(requests), x.size), dtype=x.dtype)
    cp.maximum(x * 2, 0) + 1
    stream = cp.cuda.Stream(non_blocking=True)
    stream.wait_event(cp.cuda.get_current_stream().record())
    with stream:
        stream.begin_capture()
        doubled_values = x * 2
        clipped_values = cp.maximum(doubled_values, 0)
        y = clipped_values + 1
        graph = stream.end_capture()
        for request_index, batch_index in enumerate(requests):
            x[...] = batches[batch_index]
            graph.launch(stream)
            answers[request_index] = y
    stream.synchronize()
    return answers


# 11-fork


def left(x: Any, out: Any) -> None:
    """Launch four small kernels that compute ``out = 5 x + 2``."""
    cp = session.cp()
    cp.multiply(x, 2, out=out)
    cp.add(out, 1, out=out)
    cp.multiply(out, 2, out=out)
    cp.add(out, x, out=out)


def right(x: Any, out: Any) -> None:
    """Launch four small kernels that compute ``out = 5 - 2 x``."""
    cp = session.cp()
    cp.negative(x, out=out)
    cp.add(out, 1, out=out)
    cp.multiply(out, 2, out=out)
    cp.add(out, 3, out=out)


def join(a: Any, b: Any, out: Any) -> None:
    """Launch one small kernel that computes ``out = a - b``."""
    session.cp().subtract(a, b, out=out)


def draw_fork_sizes(rng: np.random.Generator) -> tuple[tuple[int, int], ...]:
    """Return the elements per input and the input counts for the tests, as pairs."""
    return (1, 1), (33, 3), (int(rng.integers(100, 3000)), int(rng.integers(5, 9))), (2048, 4)


def make_fork_case(random_data: DataGenerator, size: Any) -> ProgramCase:
    """Return a test case with one input per graph launch. The elements of the inputs are multiples of 1/4."""
    n, input_count = size
    inputs = random_data.integer_floats((input_count, n), -4000, 4000) / np.float32(4) + np.float32(7)
    left_results = 5 * inputs + 2
    right_results = 5 - 2 * inputs
    expected = left_results - right_results
    mistakes = (
        (
            np.broadcast_to(expected[-1], expected.shape),
            ("All rows contain the last result: copy the output before the next launch overwrites it."),
        ),
        (
            np.broadcast_to(expected[0], expected.shape),
            ("All rows contain the first result: copy each input into the captured one with x[...] = row."),
        ),
        (
            left_results - right_results[0],
            (
                "The right branch has run only once, immediately: it is not in the graph, because its "
                "stream did not join the capture. Let this stream wait for an event of the capturing stream "
                "first."
            ),
        ),
        (
            left_results[0] - right_results,
            (
                "The left branch has run only once, immediately: it is not in the graph, because its stream "
                "did not join the capture. Let this stream wait for an event of the capturing stream first."
            ),
        ),
    )
    label = f"branches(inputs, left, right, join) with {input_count} inputs of {n:,}"
    arguments = inputs, left, right, join
    return ProgramCase(
        arguments, expected, True, label, mistakes, required_place="device", keeps_arguments=True
    )


def branches(inputs: Any, left: Any, right: Any, join: Any) -> Any:
    """Capture the branches in two streams, which one event forks and another event joins (reference
    solution).
    """
    cp = session.cp()
    x, left_result, right_result, result = (inputs[0].copy() for _ in range(4))
    results = cp.empty_like(inputs)
    left(x, left_result)
    right(x, right_result)
    join(left_result, right_result, result)
    main_stream = cp.cuda.Stream(non_blocking=True)
    side_stream = cp.cuda.Stream(non_blocking=True)
    main_stream.wait_event(cp.cuda.get_current_stream().record())
    with main_stream:
        main_stream.begin_capture()
        side_stream.wait_event(main_stream.record())
        left(x, left_result)
        with side_stream:
            right(x, right_result)
        main_stream.wait_event(side_stream.record())
        join(left_result, right_result, result)
        graph = main_stream.end_capture()
        for input_index, input_values in enumerate(inputs):
            x[...] = input_values
            graph.launch(main_stream)
            results[input_index] = result
    main_stream.synchronize()
    return results


def branches_naive(inputs: Any, left: Any, right: Any, join: Any) -> Any:
    """Capture the branches one after the other in one stream (naive version)."""
    cp = session.cp()
    x, left_result, right_result, result = (inputs[0].copy() for _ in range(4))
    results = cp.empty_like(inputs)
    left(x, left_result)
    right(x, right_result)
    join(left_result, right_result, result)
    stream = cp.cuda.Stream(non_blocking=True)
    stream.wait_event(cp.cuda.get_current_stream().record())
    with stream:
        stream.begin_capture()
        left(x, left_result)
        right(x, right_result)
        join(left_result, right_result, result)
        graph = stream.end_capture()
        for input_index, input_values in enumerate(inputs):
            x[...] = input_values
            graph.launch(stream)
            results[input_index] = result
    stream.synchronize()
    return results


# 11-noise


def compute_noise(seed: int, rounds: int, n: int) -> npt.NDArray[np.uint32]:
    """Compute the random numbers of ``noise.cu`` with NumPy, and return one row per round."""
    element_indices = np.arange(n, dtype=np.uint64)
    round_numbers = np.arange(rounds, dtype=np.uint64)[:, None]
    uint32_mask = np.uint64(0xFFFF_FFFF)
    hashes = (
        np.uint64(seed) + round_numbers * np.uint64(0x9E3779B9) + element_indices * np.uint64(0x85EBCA6B)
    ) & uint32_mask
    hashes = ((hashes ^ hashes >> np.uint64(16)) * np.uint64(0x85EBCA6B)) & uint32_mask
    hashes = ((hashes ^ hashes >> np.uint64(13)) * np.uint64(0xC2B2AE35)) & uint32_mask
    return (hashes ^ hashes >> np.uint64(16)).astype(np.uint32)


def draw_noise_sizes(rng: np.random.Generator) -> tuple[tuple[int, int], ...]:
    """Return random numbers per round and round counts for the tests, as pairs."""
    n = int(rng.integers(3_000, 9_000))
    round_count = int(rng.integers(6, 12))
    return (1, 1), (257, 3), (n, round_count), (1000, 9)


def make_noise_case(random_data: DataGenerator, size: Any) -> ProgramCase:
    """Return a test case with a random seed. The expected result contains the random numbers of each
    round.
    """
    n, round_count = size
    seed = int(random_data.rng.integers(1, 1 << 31))
    if round_count > 1:  # unsigned, and too large for an int
        seed += 1 << 31
    noise_rows = compute_noise(seed, round_count + 1, n)
    expected = noise_rows[:-1]
    mistakes = (
        (
            np.broadcast_to(expected[0], expected.shape),
            (
                "Every launch drew round 0: the number of the round was captured as a constant. Keep it in "
                "device memory, and let a kernel of the graph advance it."
            ),
        ),
        (
            np.broadcast_to(expected[-1], expected.shape),
            ("All rows contain the last round: copy the output before the next launch overwrites it."),
        ),
        (
            noise_rows[1:],
            (
                "The rows are one round ahead. Advance the round after the draw, and reset it to 0 after the "
                "warm-up."
            ),
        ),
    )
    label = f"draws(source, seed, rounds, n) with {round_count} rounds of {n:,}"
    arguments = noise_source(), seed, round_count, n
    return ProgramCase(arguments, expected, label=label, known_mistakes=mistakes, required_place="device")


def draws(source: str, seed: int, rounds: int, n: int) -> Any:
    """Launch one graph per round, which generates noise and advances the round (reference solution)."""
    cp = session.cp()
    noise_kernel, advance_kernel = (cp.RawKernel(source, name) for name in ("noise", "advance"))
    round_number = cp.zeros(1, dtype=cp.uint32)
    round_numbers = cp.empty(n, dtype=cp.uint32)
    noise_rows = cp.empty((rounds, n), dtype=cp.uint32)
    launch_shape = (-(-n // 256),), (256,)

    def draw_round() -> None:
        noise_kernel(*launch_shape, (round_number, np.uint32(seed), round_numbers, np.int32(n)))
        advance_kernel((1,), (1,), (round_number,))

    draw_round()
    round_number.fill(0)
    stream = cp.cuda.Stream(non_blocking=True)
    stream.wait_event(cp.cuda.get_current_stream().record())
    with stream:
        stream.begin_capture()
        draw_round()
        graph = stream.end_capture()
        for round_index in range(rounds):
            graph.launch(stream)
            noise_rows[round_index] = round_numbers
    stream.synchronize()
    return noise_rows


EXERCISES = (
    ProgramExercise(
        "11-replay",
        "Capture one round, replay them all",
        "relax",
        make_replay_case,
        relax,
        relax_naive,
        level="warm-up",
        sizes=draw_replay_sizes,
        budgets=(
            _ONE_GRAPH_BUDGET,
            Budget(
                "host_launches",
                "Capture one round and launch the graph: then there is one launch for three kernels.",
                max_reference_factor=1.5,
                large_sizes_only=True,
            ),
            Budget(
                "graph_kernels",
                "Replay the rounds by launching a graph, and return what its kernels have computed.",
                min_reference_share=0.25,
                large_sizes_only=True,
            ),
        ),
        checks_stream_order=True,
        advice=_ADVICE_OF_MISTAKE,
        praise="there is one launch per round, and no launch starts before its data is ready.",
    ),
    ProgramExercise(
        "11-static",
        "Repair the server",
        "serve",
        make_serve_case,
        serve,
        kind="repair",
        sizes=draw_serve_sizes,
        budgets=(
            _ONE_GRAPH_BUDGET,
            Budget(
                "to_host_copies",
                "Keep the answers on the device: a copy to the host makes it wait.",
                max_count=0,
            ),
            Budget(
                "working_graph_launches",
                "Answer every request with a launch of the graph, and return what it has computed.",
                min_reference_share=1.0,
            ),
            Budget(
                "computed_outside",
                "Outside of the graph, only copy: one batch into the graph's input and one answer out of "
                "it per request.",
                max_count=0,
            ),
        ),
        checks_stream_order=True,
        advice=_ADVICE_OF_MISTAKE,
        praise="each answer belongs to its request, and one graph with static buffers computes all of them.",
    ),
    ProgramExercise(
        "11-fork",
        "Two branches",
        "branches",
        make_fork_case,
        branches,
        branches_naive,
        sizes=draw_fork_sizes,
        budgets=(
            _ONE_GRAPH_BUDGET,
            Budget(
                "working_graph_launches",
                "Launch the graph once for each input, and return what it has computed.",
                min_reference_share=1.0,
            ),
            Budget(
                "graph_kernels",
                "Both branches and the join belong in the graph: capture all three.",
                min_reference_share=1.0,
            ),
            Budget(
                "graph_depth",
                (
                    "The branches run one after the other. Let the second stream wait for an event that is "
                    "recorded before the first branch, and join it after its own branch."
                ),
                max_reference_factor=1.0,
            ),
        ),
        checks_stream_order=True,
        advice=_ADVICE_OF_MISTAKE,
        praise="the branches can run at the same time, and the join waits for both.",
    ),
    ProgramExercise(
        "11-noise",
        "Noise that changes",
        "draws",
        make_noise_case,
        draws,
        level="stretch",
        sizes=draw_noise_sizes,
        budgets=(
            _ONE_GRAPH_BUDGET,
            Budget(
                "working_graph_launches",
                "Draw each round with a launch of the graph, and return what it has drawn.",
                min_reference_share=1.0,
            ),
            Budget(
                "to_device_copies",
                "Leave the round on the device, and let the graph advance it.",
                max_count=1,
            ),
            Budget("to_host_copies", "Keep the rows on the device until the end.", max_count=0),
        ),
        checks_stream_order=True,
        advice=_ADVICE_OF_MISTAKE,
        praise="every replay draws new numbers, and the host only launches.",
    ),
)
