"""Exercises of notebook 07."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from gpulab import session
from gpulab.course.n07_streams import work
from gpulab.lab.timeline import timeline
from gpulab.teach.judge import Budget, Draw, NotYet, ProgramCase, ProgramExercise, PythonExercise, call
from virtualgpu.records import Activity, Timeline

# 07-stopwatch


def judge_stopwatch(answer: Any) -> str:
    """``stopwatch(work, n)``: the mean of `n` calls in ms, warm, of the current stream's own time."""
    cp = session.cp()
    for n, rounds in ((1, 20_000), (5, 8_000), (8, 10_000)):
        stream, x = cp.cuda.Stream(non_blocking=True), cp.ones(2048, dtype=cp.float32)
        calls: list[int] = []

        def timed(rounds: int = rounds, x: Any = x, calls: list[int] = calls) -> None:
            # The first call does more, as where something is compiled, allocated or brought into a cache.
            for _ in range(1 if calls else 6):
                work.simmer(x, rounds)
            calls.append(len(calls))

        cp.cuda.Device().synchronize()
        with timeline() as seen, stream:
            found = call(answer, timed, n, name="stopwatch", shown=f"stopwatch(work, {n})")
        _judge_time(found, n, len(calls), seen.record, rounds)
    return "warm, between two events of the right stream, and nobody else was waited for."


def _judge_time(found: Any, n: int, calls: int, seen: Timeline, rounds: int) -> None:
    shown = f"stopwatch(work, {n})"
    if isinstance(found, bool) or not isinstance(found, int | float | np.number):
        raise NotYet(f"{shown} returns {type(found).__name__}; return a number of milliseconds.")
    if not calls:
        raise NotYet(f"{shown} never calls work().")
    runs = [a for a in seen.activities if a.kind == "CONCURRENT_KERNEL"]
    if calls <= n:
        raise NotYet(
            f"{shown} calls work() {calls} times, so the first, cold call is among those that are timed; "
            "call it once before you start."
        )
    right = _per_call_ms(runs[-n:])
    whole_ms = (runs[-1].end_ns - runs[0].start_ns) / 1e6
    told = f"{shown} returns {found:.4g}, and one warm call takes {right:.4g} ms"
    if not np.isclose(found, right, rtol=0.1):
        raise NotYet(f"{told}: {_what_is_wrong(float(found), right, n, calls, whole_ms, seen)}")
    last = max(call.start_ns for call in seen.calls if call.name == "cuLaunchKernel")
    for wait in seen.synchronizations:
        if wait.type == "CONTEXT_SYNCHRONIZE" and wait.start_ns > last:
            raise NotYet(
                f"{shown} is right here, but it waits for the whole device, and so for everybody's streams: "
                "wait for the event alone, with end.synchronize()."
            )


def _per_call_ms(runs: list[Activity]) -> float:
    return (runs[-1].end_ns - runs[0].start_ns) / len(runs) / 1e6


def _what_is_wrong(found: float, right: float, n: int, calls: int, whole_ms: float, seen: Timeline) -> str:
    names = [call.name for call in seen.calls]
    if names.count("cudaEventRecord") < 2:
        return (
            "the host's clock does not see the device work; record one event before and one after, in the "
            "stream in which work() runs."
        )
    if n > 1 and np.isclose(found, right * n, rtol=0.1):
        return "that is the time of all calls together; divide by n."
    if np.isclose(found * 1000, right, rtol=0.1):
        return "get_elapsed_time gives milliseconds already."
    if np.isclose(found, right * 1000, rtol=0.1):
        return "return milliseconds, not microseconds."
    if calls > n and found > right and np.isclose(found, whole_ms / n, rtol=0.2):
        return "the warm-up is among what is timed; record the first event after it."
    if found < right / 2:
        return (
            "so little lies between the two events. Both belong in the stream in which work() runs, the "
            "current one, one before the calls and one after."
        )
    return "record one event before the n calls and one after them, and nothing else between."


STOPWATCH = PythonExercise(
    "07-stopwatch", "A stopwatch that can be trusted", judge_stopwatch, level="warm-up"
)

# 07-race


def energy_case(drawn: Draw, size: int) -> ProgramCase:
    """Numbers whose squares are exact."""
    x = drawn.whole(size)
    half = x * np.float32(0.5)
    return ProgramCase((x,), np.float32((half * half).sum()), True, f"energy(x) of {size:,} elements")


def energy(x: Any) -> Any:
    """The reference: a wait on the way there, and one on the way back."""
    cp = session.cp()
    here, stream = cp.cuda.get_current_stream(), cp.cuda.Stream(non_blocking=True)
    scaled = x * 0.5
    stream.wait_event(here.record())
    with stream:
        total = (scaled * scaled).sum()
    here.wait_event(stream.record())
    return total


def in_a_stream(bench: Any, program: Callable[..., Any], *arguments: Any) -> Any:
    """Call a program in a stream that does not wait for the default stream; read the result there."""
    with bench.cp.cuda.Stream(non_blocking=True) as current:
        current.wait_event(bench.cp.cuda.Stream.null.record())
        return bench.read(program(*arguments))


RACE = ProgramExercise(
    "07-race",
    "The published race",
    "energy",
    energy_case,
    energy,
    kind="repair",
    sizes=(1, 1000, 100_000),
    checked=True,
    calls=in_a_stream,
    budgets=(
        Budget("streams", "Keep the two streams: let one wait for the other.", least=2),
        Budget(
            "waits", "An event that one stream records and the other waits for leaves the host free.", most=0
        ),
    ),
    praise="ordered there and back by events, and the host never waits.",
)

# 07-conveyor


def conveyor_case(drawn: Draw, size: int) -> ProgramCase:
    """Numbers from 0 to 1, which `work.simmer` keeps there."""
    x = drawn.rng.random(size, dtype=np.float32)
    return ProgramCase(
        (x, work.simmer), work.simmered(x), label=f"conveyor(x, y, step) with {size:,} elements"
    )


def on_pinned(bench: Any, program: Callable[..., Any], x: Any, step: Any) -> Any:
    """Call a program with page-locked arrays; the second is its result."""
    x, y = bench.pinned(x), bench.pinned(np.zeros_like(x))
    program(x, y, step)
    return bench.read(y)


def conveyor(x: Any, y: Any, step: Any, pieces: int = 8) -> Any:
    """The reference: pieces in three streams, in turns."""
    cp = session.cp()
    streams = [cp.cuda.Stream(non_blocking=True) for _ in range(3)]
    size = max(1, -(-x.size // pieces))
    for number, start in enumerate(range(0, x.size, size)):
        with streams[number % 3]:
            piece = cp.empty(x[start : start + size].shape, dtype=x.dtype)
            piece.set(x[start : start + size])
            step(piece)
            piece.get(out=y[start : start + size], blocking=False)
    for stream in streams:
        stream.synchronize()
    return y


def one_after_the_other(x: Any, y: Any, step: Any) -> Any:
    """The naive version: all there, the work, all back."""
    cp = session.cp()
    a = cp.asarray(x)
    step(a)
    a.get(out=y)
    return y


CONVEYOR = ProgramExercise(
    "07-conveyor",
    "The conveyor",
    "conveyor",
    conveyor_case,
    conveyor,
    naive=one_after_the_other,
    sizes=(1, 33, 10_007, (1 << 19) + 5),
    checked=True,
    calls=on_pinned,
    budgets=(
        Budget("to_device_bytes", "Each element crosses the bus once each way.", allowance=1.0),
        Budget("to_host_bytes", "Each element crosses the bus once each way.", allowance=1.0),
        Budget(
            "pageable_copies", "x and y are page-locked: copy straight out of them and into them.", most=0
        ),
        Budget("device_waits", "Wait for your own streams, at the end; the device has others, too.", most=0),
        Budget(
            "hidden_percent",
            "Cut x into pieces, and give the pieces to several non-blocking streams in turns: each goes in "
            "with set(), through step() and out with get(out=…, blocking=False).",
            least_share=0.7,
        ),
    ),
    praise="copies in, work and copies out run at the same time.",
)

# 07-rollout

ENVIRONMENTS, WIDTH = 2, 32


def rollout_case(drawn: Draw, size: int) -> ProgramCase:
    """Two environments, some steps each."""
    starts = drawn.rng.random((ENVIRONMENTS, WIDTH), dtype=np.float32)
    found = starts.copy()
    for _ in range(size):
        found = work.Environment.answer(found, work.decided(found))
    return ProgramCase((starts, size), found, label=f"rollout(envs, policy, {size})")


def with_environments(bench: Any, program: Callable[..., Any], starts: Any, steps: int) -> Any:
    """Call a program with environments that are page-locked; where they end up is its result."""
    envs = [work.Environment(start, bench.pinned, bench.compute, bench.uses) for start in starts]
    program(envs, work.decide, steps)
    for env in envs:
        if env.steps != steps:
            raise NotYet(f"an environment made {env.steps} steps instead of {steps}.")
    return np.stack([bench.read(env.observation) for env in envs])


def rollout(envs: Any, policy: Any, steps: int) -> Any:
    """The reference: while the host steps one environment, the device decides for the other."""
    cp = session.cp()
    streams = [cp.cuda.Stream(non_blocking=True) for _ in envs]
    inputs = [cp.empty(env.observation.shape, dtype=cp.float32) for env in envs]

    def ask(number: int) -> None:
        with streams[number]:
            inputs[number].set(envs[number].observation)
            policy(inputs[number]).get(out=envs[number].action, blocking=False)

    for number in range(len(envs)):
        ask(number)
    for step in range(steps):
        for number, env in enumerate(envs):
            streams[number].synchronize()
            env.step()
            if step + 1 < steps:
                ask(number)
    return envs


def in_turns(envs: Any, policy: Any, steps: int) -> Any:
    """The naive version: ask, wait, step."""
    cp = session.cp()
    for _ in range(steps):
        for env in envs:
            policy(cp.asarray(env.observation)).get(out=env.action)
            env.step()
    return envs


ROLLOUT = ProgramExercise(
    "07-rollout",
    "Play while the device thinks",
    "rollout",
    rollout_case,
    rollout,
    naive=in_turns,
    level="stretch",
    sizes=(1, 2, 12),
    checked=True,
    calls=with_environments,
    budgets=(
        Budget(
            "device_waits", "Wait for the stream of the environment whose turn it is, not for both.", most=0
        ),
        Budget("launches", "One decision for each step of each environment.", allowance=1.0),
        Budget(
            "microseconds",
            "While the host steps one environment, the device should decide for the other: give each a "
            "stream, and ask again as soon as its step is done.",
            allowance=1.1,
        ),
    ),
    praise="the host and the device work at the same time, and nobody reads what is not there yet.",
)

EXERCISES = (STOPWATCH, RACE, CONVEYOR, ROLLOUT)
