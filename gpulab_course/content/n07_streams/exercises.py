"""Exercises of notebook 07."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

from gpulab import session
from gpulab.lab.timeline import timeline
from gpulab.processes.values import find_type_name
from gpulab.words import count as counted
from gpulab_course.content.n07_streams import work
from gpulab_course.teach.judge import (
    Answer,
    Budget,
    DataGenerator,
    ExpectedFloats,
    NotYet,
    ProgramCase,
    ProgramExercise,
    PythonExercise,
)
from gpulab_course.teach.judge.python.functions import call_here

# 07-stopwatch


_TIME_TOLERANCE = 0.05
_ALLOWED_WAIT_COUNT = 2  # such as one after the warm-up


def _draw_time_shares(rng: np.random.Generator, n: int) -> list[float]:
    """Draw durations of calls as shares of their mean. Neither a duration nor the median is near the mean."""
    short_shares = [float(time_share) for time_share in rng.uniform(0.4, 0.8, n - 1)]
    return [float(time_share) for time_share in rng.permutation([*short_shares, n - sum(short_shares)])]


def judge_stopwatch(answer: Answer) -> str:
    """Judge the learner's ``stopwatch(work, n)``, which measures the mean time of `n` calls in the current
    stream after a warm-up.
    """
    for n, mean_rounds in ((1, 50_000), (5, 40_000), (int(answer.rng.integers(11, 30)), 8_000), (2, 40_000)):
        call_text = f"stopwatch(work, {n})"
        time_shares = _draw_time_shares(answer.rng, n)
        run_outcome = answer.ask(
            _run_stopwatch, n, [int(mean_rounds * time_share) for time_share in time_shares], shown=call_text
        )
        _judge_time(call_text, run_outcome, n)
    return (
        "it measures warm calls between two events of the right stream, and does not wait for other streams."
    )


def _run_stopwatch(answer: Any, n: int, round_counts: list[int]) -> dict[str, Any]:
    """Run the answer in its own process; return its result, launches, events, and the host's waits."""
    cp = session.cp()
    stream, other_stream = (cp.cuda.Stream(non_blocking=True) for _ in range(2))
    # long, and cheap to compute
    x = cp.ones(32, dtype=cp.float32)
    y = cp.ones(32, dtype=cp.float32)
    call_ends_ns: list[int] = []

    def run_work() -> None:
        # The first call does more, like a call that compiles, allocates or fills a cache. A mean that
        # includes it differs from the time of every single call.
        first_rounds = (8 if n < 10 else 3) * max(round_counts)
        call_rounds = round_counts[len(call_ends_ns) % n] if call_ends_ns else first_rounds
        work.simmer(x, call_rounds, blocks=1)
        call_ends_ns.append(session.backend().host_ns())

    cp.cuda.Device().synchronize()
    work.simmer(y, sum(round_counts), blocks=1, stream=other_stream)
    with timeline() as report, stream:
        result = call_here(answer, run_work, n, name="stopwatch", shown=f"stopwatch(work, {n})")
    host_waits = [
        wait
        for wait in report.record.synchronizations
        if wait.type != "STREAM_WAIT_EVENT" and not wait.hidden
    ]
    return {
        "result": result,
        "calls": len(call_ends_ns),
        "runs": [
            (activity.start_ns, activity.end_ns)
            for activity in report.record.activities
            if activity.name == "simmer" and activity.stream_id == stream.ptr
        ],
        "events": [call.name for call in report.record.calls].count("cudaEventRecord"),
        "early_waits": sum(wait.start_ns < call_ends_ns[-1] for wait in host_waits) if call_ends_ns else 0,
        "waits": sorted({_classify_wait(wait, stream.ptr) for wait in host_waits}),
    }


def _classify_wait(wait: Any, stream_id: int) -> str:
    """Return whether the host waited for the device, for the stopwatch's stream, or for another one."""
    if wait.type == "CONTEXT_SYNCHRONIZE":
        return "device"
    return "own" if wait.stream_id in (stream_id, None) else "other"


def _judge_time(call_text: str, run_outcome: dict[str, Any], n: int) -> None:
    result = run_outcome["result"]
    work_call_count = run_outcome["calls"]
    run_spans = run_outcome["runs"]
    if isinstance(result, bool) or not isinstance(result, int | float | np.integer | np.floating):
        raise NotYet(f"{call_text} returns {find_type_name(result)}. Return a number of milliseconds.")
    if not work_call_count:
        raise NotYet(f"{call_text} never calls work().")
    if len(run_spans) < work_call_count:
        raise NotYet(
            f"{call_text} lets work() run in a stream that is not the caller's. Call it in the current "
            "stream."
        )
    if work_call_count < n:
        raise NotYet(
            f"{call_text} calls work() {counted(work_call_count, 'time')}. Call it once to warm up, "
            f"and then {n} times."
        )
    if work_call_count == n:
        raise NotYet(
            f"{call_text} calls work() {counted(work_call_count, 'time')}, so the first, cold call is "
            "timed as well: call it once before you start."
        )
    result = float(result)
    expected_ms = (run_spans[-1][1] - run_spans[-n][0]) / n / 1e6
    total_ms = (run_spans[-1][1] - run_spans[0][0]) / 1e6
    if not np.isclose(result, expected_ms, rtol=_TIME_TOLERANCE):
        message = f"{call_text} returns {result:.4g}, but the mean of {n} warm calls is {expected_ms:.4g} ms"
        call_times_ms = [(end - start) / 1e6 for start, end in run_spans[-n:]]
        raise NotYet(
            f"{message}: {_explain_time(result, expected_ms, n, total_ms, call_times_ms, run_outcome)}"
        )
    if "device" in run_outcome["waits"]:
        raise NotYet(
            f"{call_text} returns the right time, but it waits for the whole device, and so for other "
            "streams. Wait only for the event, with end.synchronize()."
        )
    if "other" in run_outcome["waits"]:
        raise NotYet(
            f"{call_text} returns the right time, but it waits for another stream than the current one. Wait "
            "only for the event, with end.synchronize()."
        )
    if run_outcome["early_waits"] > max(_ALLOWED_WAIT_COUNT, n // 2):
        raise NotYet(
            f"{call_text} lets the host wait {run_outcome['early_waits']} times between its calls. "
            "Such a wait is followed by a gap, which is timed as well. Enqueue all calls, and then wait once."
        )


def _explain_time(
    result_ms: float,
    expected_ms: float,
    n: int,
    total_ms: float,
    call_times_ms: list[float],
    facts: dict[str, Any],
) -> str:
    def is_near(value: float, tolerance: float = 0.1) -> bool:
        return bool(np.isclose(result_ms, value, rtol=tolerance))

    if facts["events"] < 2:
        return (
            "the host's clock does not measure the work on the device: record one event before the calls "
            "and one after them, in the stream in which work() runs."
        )
    if n > 1 and is_near(expected_ms * n):
        return "that is the time of all calls together: divide by n."
    if is_near(expected_ms / 1000):
        return "get_elapsed_time returns milliseconds already."
    if is_near(expected_ms * 1000):
        return "return milliseconds, not microseconds."
    if result_ms > expected_ms and is_near(total_ms / n, 0.2):
        return "the time includes the warm-up call: record the first event after it."
    if n > 1 and any(is_near(time_ms) for time_ms in [*call_times_ms, float(np.median(call_times_ms))]):
        return "calls differ: add up all n of them, and divide by n."
    if result_ms < expected_ms / 2:
        return (
            "there is little work between the two events. Record both in the stream in which work() runs, "
            "which is the current stream: one before the calls and one after them."
        )
    return "record one event before the n calls and one after them, with nothing else in between."


STOPWATCH = PythonExercise(
    "07-stopwatch", "A stopwatch that can be trusted", judge_stopwatch, level="warm-up"
)

# 07-race


def draw_race_sizes(rng: np.random.Generator) -> tuple[int, ...]:
    """Return the input lengths for the tests. The score of an answer is based on the input with the last
    length.
    """
    return 1, 33, 1000, int(rng.integers(5_000, 50_000)), 100_000


def make_energy_case(data: DataGenerator, size: int) -> ProgramCase:
    """Return a test case whose numbers have both signs. In large arrays, the numbers are chosen so that their
    squares are exact.
    """
    x = (
        data.integer_floats(size)
        if size > 50_000
        else data.floats(size) * np.float32(data.rng.integers(1, 100))
    )
    half_x = x * np.float32(0.5)
    total_energy = np.float32((half_x * half_x).sum(dtype=np.float64))
    label = f"energy(x) of {counted(size, 'element')}"
    expected = ExpectedFloats(np.asarray(total_energy), float(total_energy), 8)
    return ProgramCase((x,), expected, True, label, required_place="device", keeps_arguments=True)


def energy(x: Any) -> Any:
    """The reference solution, in which each of two streams waits once for the other."""
    cp = session.cp()
    current_stream = cp.cuda.get_current_stream()
    side_stream = cp.cuda.Stream(non_blocking=True)
    scaled_x = x * 0.5
    side_stream.wait_event(current_stream.record())
    with side_stream:
        total_energy = (scaled_x * scaled_x).sum()
    current_stream.wait_event(side_stream.record())
    return total_energy


RACE = ProgramExercise(
    "07-race",
    "Repair a program with two missing waits",
    "energy",
    make_energy_case,
    energy,
    kind="repair",
    sizes=draw_race_sizes,
    checks_stream_order=True,
    budgets=(
        Budget("streams", "Keep the two streams, and let one wait for the other.", min_count=2),
        Budget(
            "waits",
            "Let one stream record an event and the other one wait for it. This leaves the host free.",
            max_count=0,
        ),
    ),
    praise="two events order the streams in both directions, and the host never waits.",
)

# 07-conveyor


SMALL_ROUND_COUNT = 3


def draw_conveyor_sizes(rng: np.random.Generator) -> tuple[tuple[int, int], ...]:
    """Return pairs of a length and a number of iterations for the tests, including empty arrays."""
    long_length = int(rng.integers(1_200_000, 1_300_000))
    medium_length = int(rng.integers(400_000, 500_000))
    small_sizes = (
        (0, SMALL_ROUND_COUNT),
        (1, SMALL_ROUND_COUNT),
        (33, work.ROUNDS),
        (10_007, work.ROUNDS),
        (long_length, SMALL_ROUND_COUNT),
    )
    return *small_sizes, (medium_length, work.ROUNDS), ((1 << 19) + 5, work.ROUNDS)


def make_conveyor_case(data: DataGenerator, size: tuple[int, int]) -> ProgramCase:
    """Return a test case with numbers from 0 to 1, a range that the kernel of `work.simmer` preserves."""
    n, round_count = size
    x = data.rng.random(n, dtype=np.float32)
    simmer_step = partial(work.simmer, rounds=round_count)
    label = f"conveyor(x, y, step) with {n:,} elements"
    return ProgramCase(
        (x, simmer_step), work.simmer_by_numpy(x, round_count), label=label, required_place="host"
    )


def call_with_pinned_arrays(bench: Any, program: Callable[..., Any], x: Any, step: Any) -> Any:
    """Call a program with two pinned arrays, and return the second array. The second array initially contains
    NaN.
    """
    pinned_x = bench.copy_to_pinned(x)
    pinned_y = bench.copy_to_pinned(np.full_like(x, np.nan))
    original_x = pinned_x.copy()
    program(pinned_x, pinned_y, step)
    if not np.array_equal(pinned_x, original_x):
        raise NotYet(
            "conveyor(x, y, step) changes x, which belongs to the caller. Change a copy on the device."
        )
    return pinned_y


def conveyor(x: Any, y: Any, step: Any, pieces: int = 8) -> Any:
    """The reference solution, which distributes the pieces of the array over three streams in turn."""
    cp = session.cp()
    streams = [cp.cuda.Stream(non_blocking=True) for _ in range(3)]
    chunk_size = max(1, -(-x.size // pieces))
    for chunk_index, chunk_start in enumerate(range(0, x.size, chunk_size)):
        with streams[chunk_index % 3]:
            device_chunk = cp.empty(x[chunk_start : chunk_start + chunk_size].shape, dtype=x.dtype)
            device_chunk.set(x[chunk_start : chunk_start + chunk_size])
            step(device_chunk)
            device_chunk.get(out=y[chunk_start : chunk_start + chunk_size], blocking=False)
    for stream in streams:
        stream.synchronize()
    return y


def conveyor_in_one_piece(x: Any, y: Any, step: Any) -> Any:
    """The naive version, which copies the whole array to the device, processes it and copies it back."""
    cp = session.cp()
    device_x = cp.asarray(x)
    step(device_x)
    device_x.get(out=y)
    return y


CONVEYOR = ProgramExercise(
    "07-conveyor",
    "Overlap copies and work",
    "conveyor",
    make_conveyor_case,
    conveyor,
    naive=conveyor_in_one_piece,
    sizes=draw_conveyor_sizes,
    checks_stream_order=True,
    call_program=call_with_pinned_arrays,
    returns_result=False,
    budgets=(
        Budget(
            "to_device_bytes",
            "Copy each element over the bus once in each direction.",
            max_reference_factor=1.0,
        ),
        Budget(
            "to_host_bytes",
            "Copy each element over the bus once in each direction.",
            max_reference_factor=1.0,
        ),
        Budget("pageable_copies", "x and y are pinned: copy directly from x and directly to y.", max_count=0),
        Budget(
            "device_waits",
            "Wait only for your own streams, at the end, because the device can have other streams.",
            max_count=0,
        ),
        Budget(
            "hidden_percent",
            "Cut x into pieces, and use several non-blocking streams in turn. For each piece, call set(), "
            "step(), and get(out=…, blocking=False).",
            min_reference_share=0.7,
        ),
    ),
    praise="copies to the device, work and copies to the host run at the same time.",
)

# 07-rollout

ENVIRONMENT_COUNT = 2


def draw_rollout_sizes(rng: np.random.Generator) -> tuple[tuple[int, int], ...]:
    """Return pairs of a number of steps and the length of an observation for the tests."""
    observation_widths = (int(n) for n in rng.integers(1, 100, 3))
    return *zip((1, 2, int(rng.integers(8, 11))), observation_widths, strict=True), (12, 32)


def make_rollout_case(data: DataGenerator, size: tuple[int, int]) -> ProgramCase:
    """Return a test case with a number of steps and the initial observations of two environments."""
    step_count, observation_width = size
    initial_observations = data.rng.random((ENVIRONMENT_COUNT, observation_width), dtype=np.float32)
    observations = initial_observations.copy()
    for _ in range(step_count):
        observations = work.Environment.compute_next_observation(
            observations, work.decide_by_numpy(observations)
        )
    return ProgramCase(
        (initial_observations, step_count), observations, label=f"rollout(envs, policy, {step_count})"
    )


def call_with_environments(
    bench: Any, program: Callable[..., Any], initial_observations: Any, steps: int
) -> Any:
    """Call a program with environments in pinned memory, and return the last observation of each one."""
    envs = [
        work.Environment(
            initial_observation, bench.copy_to_pinned, bench.keep_host_busy, bench.record_host_use
        )
        for initial_observation in initial_observations
    ]
    result = program(envs, work.decide, steps)
    if not isinstance(result, list | tuple) or [id(env) for env in result] != [id(env) for env in envs]:
        raise NotYet(f"rollout(envs, policy, {steps}) must return `envs`.")
    for env in envs:
        if env.steps != steps:
            raise NotYet(f"an environment made {env.steps} steps instead of {steps}.")
    return np.stack([bench.read(env.observation) for env in envs])


def rollout(envs: Any, policy: Any, steps: int) -> Any:
    """The reference solution, in which the device decides for one environment while the host advances the
    other one.
    """
    cp = session.cp()
    streams = [cp.cuda.Stream(non_blocking=True) for _ in envs]
    inputs = [cp.empty(env.observation.shape, dtype=cp.float32) for env in envs]

    def request_decision(env_index: int) -> None:
        with streams[env_index]:
            inputs[env_index].set(envs[env_index].observation)
            policy(inputs[env_index]).get(out=envs[env_index].action, blocking=False)

    for env_index in range(len(envs) if steps else 0):
        request_decision(env_index)
    for step in range(steps):
        for env_index, env in enumerate(envs):
            streams[env_index].synchronize()
            env.step()
            if step + 1 < steps:
                request_decision(env_index)
    return envs


def in_turns(envs: Any, policy: Any, steps: int) -> Any:
    """The naive version, which launches the policy, waits, and advances the environment in each step."""
    cp = session.cp()
    for _ in range(steps):
        for env in envs:
            policy(cp.asarray(env.observation)).get(out=env.action)
            env.step()
    return envs


ROLLOUT = ProgramExercise(
    "07-rollout",
    "Overlap decisions and steps",
    "rollout",
    make_rollout_case,
    rollout,
    naive=in_turns,
    level="stretch",
    sizes=draw_rollout_sizes,
    checks_stream_order=True,
    call_program=call_with_environments,
    budgets=(
        Budget(
            "device_waits",
            "Wait for the stream of the environment that steps next, not for both.",
            max_count=0,
        ),
        Budget(
            "launches",
            "Call `policy` exactly once on the device for each step of each environment.",
            max_reference_factor=1.0,
            min_reference_share=1.0,
        ),
        Budget(
            "microseconds",
            "While the host steps one environment, the device should decide for the other: use a stream "
            "for each, and request the next decision as soon as its step is done.",
            max_reference_factor=1.1,
            large_sizes_only=True,
        ),
    ),
    praise="the host and the device work at the same time, and no data is read too early.",
)

EXERCISES = (STOPWATCH, RACE, CONVEYOR, ROLLOUT)
