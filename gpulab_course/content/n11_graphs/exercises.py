"""Exercises of notebook 11."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from gpulab import session
from gpulab_course.teach.judge import Budget, Draw, ProgramCase, ProgramExercise

_IN_CAPTURE = (
    "While a stream captures, nothing runs: results, waits and copies to the host come after the graph's "
    "launch."
)
_UNJOINED = (
    "Record an event at the end of the second stream's work, and let the stream that captures wait for it "
    "before end_capture()."
)
_ADVICE = (
    ("is capturing", _IN_CAPTURE),
    ("StreamCaptureUnsupported", _IN_CAPTURE),
    ("cannot capture on the default", "Capture on a stream of your own: cp.cuda.Stream(non_blocking=True)."),
    (
        "legacy stream depend",
        "Make the stream with non_blocking=True, and give it all of the work: with stream: …",
    ),
    ("StreamCaptureUnjoined", _UNJOINED),
    ("StreamCaptureIsolation", "Record the event that a capturing stream waits for within the capture, too."),
)
_ONE_GRAPH = Budget(
    "graphs",
    "Capture once, before the loop: making a graph costs more than the launches that it saves.",
    most=1,
)


def noise_source() -> str:
    """CUDA C++ of the kernels ``noise`` and ``advance``."""
    return (Path(__file__).parent / "kernels" / "noise.cu").read_text(encoding="utf-8")


# 11-replay


def one_round(x: Any) -> None:
    """Three small kernels that change `x` in place."""
    cp = session.cp()
    cp.multiply(x, 0.5, out=x)
    cp.add(x, 1, out=x)
    cp.negative(x, out=x)


def _after(x: npt.NDArray[np.float32], rounds: int) -> npt.NDArray[np.float32]:
    for _ in range(rounds):
        x = -(x * np.float32(0.5) + np.float32(1))
    return x


def replay_sizes(rng: np.random.Generator) -> tuple[tuple[int, int], ...]:
    """Elements and rounds, none among them."""
    n = int(rng.integers(1000, 5000))
    some = int(rng.integers(14, 20))
    return (1, 1), (1000, 0), (33, 3), (n, 2), (int(rng.integers(100, 900)), some), (4096, 20)


def replay_case(random_data: Draw, size: Any) -> ProgramCase:
    """Some rounds of `one_round`, none among them."""
    n, rounds = size
    x = random_data.floats(n) * np.float32(1000) + np.float32(
        random_data.rng.choice([-100_000, 100, 100_000])
    )
    one = _after(x, 1)
    mistakes = [
        (
            _after(x, rounds + 1),
            (
                "A round more has run: warm up on a copy, and give the stream that captures all of the work "
                "(with stream: …)."
            ),
        )
    ]
    if rounds:
        mistakes += [(x, "Nothing has run: capturing a kernel does not run it, launching the graph does.")]
    if rounds > 1:
        mistakes += [
            (
                _after(x, rounds - 1),
                ("One round is missing: capturing is no round, so launch as often as there are rounds."),
            ),
            (
                one,
                (
                    "Every launch began with the same x: write into x itself (out=x or x[...] = …), "
                    "because a graph knows addresses, not names."
                ),
            ),
        ]
    label = f"relax(x, {rounds}, one_round) with {n:,} elements"
    wanted = _after(x, rounds)
    return ProgramCase((x, rounds, one_round), wanted, True, label, tuple(mistakes), place="device")


def relax(x: Any, rounds: int, one_round: Any) -> Any:
    """The reference: capture one round, launch it so many times."""
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


def relax_eagerly(x: Any, rounds: int, one_round: Any) -> Any:
    """The naive version: three launches a round."""
    for _ in range(rounds):
        one_round(x)
    return x


# 11-static


def serve_sizes(rng: np.random.Generator) -> tuple[tuple[int, int, int], ...]:
    """Elements of a batch, batches and requests."""
    n, count, asked = (int(rng.integers(low, 2 * low)) for low in (100, 3, 7))
    return (1, 1, 1), (2, 3, 1), (33, 3, 5), (n, count, asked), (1000, 4, 12)


def serve_case(random_data: Draw, size: Any) -> ProgramCase:
    """Requests for batches, some of which are requested twice."""
    n, count, asked = size
    batches = random_data.floats((count, n)) * np.float32(100) - np.float32(3)
    batches[:, -1] = 1 + np.arange(count)  # cut off nowhere
    requests = [
        *reversed(range(count)),
        *(random_data.rng.integers(0, count, max(asked - count, 0)).tolist()),
    ][:asked]
    if asked > count > 2:  # the last is neither that of the first request nor batch 0
        requests[-1] = int(random_data.rng.integers(1, count - 1))
    answers = np.maximum(batches * 2, 0) + 1
    wanted = answers[requests]
    mistakes = (
        (
            np.broadcast_to(answers[requests[-1]], wanted.shape),
            (
                "All rows are the last answer: the graph writes to one array again and again, so copy it "
                "before the next launch."
            ),
        ),
        (
            np.broadcast_to(answers[0], wanted.shape),
            (
                "All rows are the answer to batch 0, on which the graph was captured: another array "
                "under the same name changes nothing; copy each batch into the captured one with x[...] "
                "= batch."
            ),
        ),
        (
            np.broadcast_to(answers[requests[0]], wanted.shape),
            (
                "All rows are the answer to the first request, on which the graph was captured: copy "
                "each batch into the captured input with x[...] = batch."
            ),
        ),
    )
    label = f"serve(batches, requests) with {count} batches of {n:,} and {asked} requests"
    return ProgramCase((batches, requests), wanted, True, label, mistakes, place="device", unchanged=True)


def serve(batches: Any, requests: list[int]) -> Any:
    """The reference: a static input, a static output, one launch a request."""
    cp = session.cp()
    x = batches[0].copy()
    answers = cp.empty((len(requests), x.size), dtype=x.dtype)
    cp.maximum(x * 2, 0) + 1
    stream = cp.cuda.Stream(non_blocking=True)
    stream.wait_event(cp.cuda.get_current_stream().record())
    with stream:
        stream.begin_capture()
        doubled = x * 2
        clipped = cp.maximum(doubled, 0)
        y = clipped + 1
        graph = stream.end_capture()
        for row, number in enumerate(requests):
            x[...] = batches[number]
            graph.launch(stream)
            answers[row] = y
    stream.synchronize()
    return answers


# 11-fork


def left(x: Any, out: Any) -> None:
    """Four small kernels: ``out = 5 x + 2``."""
    cp = session.cp()
    cp.multiply(x, 2, out=out)
    cp.add(out, 1, out=out)
    cp.multiply(out, 2, out=out)
    cp.add(out, x, out=out)


def right(x: Any, out: Any) -> None:
    """Four small kernels: ``out = 5 - 2 x``."""
    cp = session.cp()
    cp.negative(x, out=out)
    cp.add(out, 1, out=out)
    cp.multiply(out, 2, out=out)
    cp.add(out, 3, out=out)


def join(a: Any, b: Any, out: Any) -> None:
    """One small kernel: ``out = a - b``."""
    session.cp().subtract(a, b, out=out)


def fork_sizes(rng: np.random.Generator) -> tuple[tuple[int, int], ...]:
    """Elements of an input, and inputs."""
    return (1, 1), (33, 3), (int(rng.integers(100, 3000)), int(rng.integers(5, 9))), (2048, 4)


def fork_case(random_data: Draw, size: Any) -> ProgramCase:
    """Some inputs, one launch each: multiples of a quarter, so that results are exact."""
    n, count = size
    inputs = random_data.whole((count, n), -4000, 4000) / np.float32(4) + np.float32(7)
    lefts = 5 * inputs + 2
    rights = 5 - 2 * inputs
    wanted = lefts - rights
    mistakes = (
        (
            np.broadcast_to(wanted[-1], wanted.shape),
            ("All rows are the last result: copy the output before the next launch overwrites it."),
        ),
        (
            np.broadcast_to(wanted[0], wanted.shape),
            ("All rows are the first result: copy each input into the captured one with x[...] = row."),
        ),
        (
            lefts - rights[0],
            (
                "The right branch has run only once, at the capture: its stream never joined. Let it wait "
                "for an event of the capturing stream first."
            ),
        ),
        (
            lefts[0] - rights,
            (
                "The left branch has run only once, at the capture: its stream never joined. Let it wait for "
                "an event of the capturing stream first."
            ),
        ),
    )
    label = f"branches(inputs, left, right, join) with {count} inputs of {n:,}"
    given = inputs, left, right, join
    return ProgramCase(given, wanted, True, label, mistakes, place="device", unchanged=True)


def branches(inputs: Any, left: Any, right: Any, join: Any) -> Any:
    """The reference: fork by one event, join by another."""
    cp = session.cp()
    x, a, b, c = (inputs[0].copy() for _ in range(4))
    results = cp.empty_like(inputs)
    left(x, a), right(x, b), join(a, b, c)
    one = cp.cuda.Stream(non_blocking=True)
    two = cp.cuda.Stream(non_blocking=True)
    one.wait_event(cp.cuda.get_current_stream().record())
    with one:
        one.begin_capture()
        two.wait_event(one.record())
        left(x, a)
        with two:
            right(x, b)
        one.wait_event(two.record())
        join(a, b, c)
        graph = one.end_capture()
        for row, given in enumerate(inputs):
            x[...] = given
            graph.launch(one)
            results[row] = c
    one.synchronize()
    return results


def branches_in_line(inputs: Any, left: Any, right: Any, join: Any) -> Any:
    """The naive version: one branch after the other."""
    cp = session.cp()
    x, a, b, c = (inputs[0].copy() for _ in range(4))
    results = cp.empty_like(inputs)
    left(x, a), right(x, b), join(a, b, c)
    stream = cp.cuda.Stream(non_blocking=True)
    stream.wait_event(cp.cuda.get_current_stream().record())
    with stream:
        stream.begin_capture()
        left(x, a), right(x, b), join(a, b, c)
        graph = stream.end_capture()
        for row, given in enumerate(inputs):
            x[...] = given
            graph.launch(stream)
            results[row] = c
    stream.synchronize()
    return results


# 11-noise


def hashed(seed: int, rounds: int, n: int) -> npt.NDArray[np.uint32]:
    """Compute the numbers that ``noise.cu`` draws, one row per round."""
    i = np.arange(n, dtype=np.uint64)
    r = np.arange(rounds, dtype=np.uint64)[:, None]
    mask = np.uint64(0xFFFF_FFFF)
    h = (np.uint64(seed) + r * np.uint64(0x9E3779B9) + i * np.uint64(0x85EBCA6B)) & mask
    h = ((h ^ h >> np.uint64(16)) * np.uint64(0x85EBCA6B)) & mask
    h = ((h ^ h >> np.uint64(13)) * np.uint64(0xC2B2AE35)) & mask
    return (h ^ h >> np.uint64(16)).astype(np.uint32)


def noise_sizes(rng: np.random.Generator) -> tuple[tuple[int, int], ...]:
    """Draws in a round, and rounds."""
    n = int(rng.integers(3_000, 9_000))
    rounds = int(rng.integers(6, 12))
    return (1, 1), (257, 3), (n, rounds), (1000, 9)


def noise_case(random_data: Draw, size: Any) -> ProgramCase:
    """Rounds of noise."""
    n, rounds = size
    seed = int(random_data.rng.integers(1, 1 << 31))
    if rounds > 1:  # unsigned, and more than an int holds
        seed += 1 << 31
    more = hashed(seed, rounds + 1, n)
    wanted = more[:-1]
    mistakes = (
        (
            np.broadcast_to(wanted[0], wanted.shape),
            (
                "Every launch drew round 0: the number of the round was fixed at the capture. Keep it in "
                "device memory, and let a kernel of the graph advance it."
            ),
        ),
        (
            np.broadcast_to(wanted[-1], wanted.shape),
            ("All rows are the last round: copy the output before the next launch overwrites it."),
        ),
        (
            more[1:],
            (
                "The rows are one round ahead: advance the round after the draw, and do not let the warm-up "
                "advance it."
            ),
        ),
    )
    label = f"draws(source, seed, rounds, n) with {rounds} rounds of {n:,}"
    given = noise_source(), seed, rounds, n
    return ProgramCase(given, wanted, label=label, mistakes=mistakes, place="device")


def draws(source: str, seed: int, rounds: int, n: int) -> Any:
    """The reference: the graph draws and advances the round."""
    cp = session.cp()
    noise, advance = (cp.RawKernel(source, name) for name in ("noise", "advance"))
    now = cp.zeros(1, dtype=cp.uint32)
    out = cp.empty(n, dtype=cp.uint32)
    rows = cp.empty((rounds, n), dtype=cp.uint32)
    shape = (-(-n // 256),), (256,)

    def one() -> None:
        noise(*shape, (now, np.uint32(seed), out, np.int32(n)))
        advance((1,), (1,), (now,))

    one()
    now.fill(0)
    stream = cp.cuda.Stream(non_blocking=True)
    stream.wait_event(cp.cuda.get_current_stream().record())
    with stream:
        stream.begin_capture()
        one()
        graph = stream.end_capture()
        for row in range(rounds):
            graph.launch(stream)
            rows[row] = out
    stream.synchronize()
    return rows


EXERCISES = (
    ProgramExercise(
        "11-replay",
        "Capture one round, replay them all",
        "relax",
        replay_case,
        relax,
        relax_eagerly,
        level="warm-up",
        sizes=replay_sizes,
        budgets=(
            _ONE_GRAPH,
            Budget(
                "host_launches",
                "Capture a round, and launch the graph: one launch for three kernels.",
                allowance=1.5,
                large=True,
            ),
            Budget(
                "graph_kernels",
                "Replay the rounds by launching a graph, and return what its kernels have computed.",
                least_share=0.25,
                large=True,
            ),
        ),
        checked=True,
        advice=_ADVICE,
        praise="one launch a round, and none of them begins with what is not there.",
    ),
    ProgramExercise(
        "11-static",
        "Repair the server",
        "serve",
        serve_case,
        serve,
        kind="repair",
        sizes=serve_sizes,
        budgets=(
            _ONE_GRAPH,
            Budget(
                "to_host_copies", "Keep the answers on the device: a copy to the host makes it wait.", most=0
            ),
            Budget(
                "working_graph_launches",
                "Answer every request with a launch of the graph, and return what it has computed.",
                least_share=1.0,
            ),
            Budget(
                "computed_outside",
                "Outside of the graph there is a copy in and a copy out for each request, and nothing else.",
                most=0,
            ),
        ),
        checked=True,
        advice=_ADVICE,
        praise="each answer belongs to its request, by one graph with buffers that stay where they are.",
    ),
    ProgramExercise(
        "11-fork",
        "Two branches",
        "branches",
        fork_case,
        branches,
        branches_in_line,
        sizes=fork_sizes,
        budgets=(
            _ONE_GRAPH,
            Budget(
                "working_graph_launches",
                "Launch the graph once for each input, and return what it has computed.",
                least_share=1.0,
            ),
            Budget("graph_kernels", "Both branches and the join belong in the graph.", least_share=1.0),
            Budget(
                "graph_depth",
                (
                    "The branches stand in one line: let the second stream wait for an event that is "
                    "recorded before the first branch, and join it after its own work."
                ),
                allowance=1.0,
            ),
        ),
        checked=True,
        advice=_ADVICE,
        praise="the branches run side by side, and the join waits for both.",
    ),
    ProgramExercise(
        "11-noise",
        "Noise that changes",
        "draws",
        noise_case,
        draws,
        level="stretch",
        sizes=noise_sizes,
        budgets=(
            _ONE_GRAPH,
            Budget(
                "working_graph_launches",
                "Draw each round with a launch of the graph, and return what it has drawn.",
                least_share=1.0,
            ),
            Budget("to_device_copies", "Leave the round on the device: let the graph advance it.", most=1),
            Budget("to_host_copies", "Keep the rows on the device until the end.", most=0),
        ),
        checked=True,
        advice=_ADVICE,
        praise="every replay draws anew, and the host only launches.",
    ),
)
