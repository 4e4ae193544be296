"""Exercises of notebook 07."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

from gpulab import session
from gpulab.lab.timeline import timeline
from gpulab.processes.values import kind_of
from gpulab.words import count as counted
from gpulab_course.content.n07_streams import work
from gpulab_course.teach.judge import (
    Answer,
    Budget,
    Draw,
    Near,
    NotYet,
    ProgramCase,
    ProgramExercise,
    PythonExercise,
)
from gpulab_course.teach.judge.python.functions import call_here

# 07-stopwatch


_SAME = 0.05
_FEW_WAITS = 2  # such as one behind the warm-up


def _shares(rng: np.random.Generator, n: int) -> list[float]:
    """Draw times of calls as shares of their mean; neither a single time nor the median is near the mean."""
    short = [float(share) for share in rng.uniform(0.4, 0.8, n - 1)]
    return [float(share) for share in rng.permutation([*short, n - sum(short)])]


def judge_stopwatch(answer: Answer) -> str:
    """``stopwatch(work, n)``: the mean of `n` calls in ms, warm, of the current stream's own time."""
    for n, rounds in ((1, 50_000), (5, 40_000), (int(answer.rng.integers(11, 30)), 8_000), (2, 40_000)):
        shown = f"stopwatch(work, {n})"
        shares = _shares(answer.rng, n)
        seen = answer.ask(_timed, n, [int(rounds * share) for share in shares], shown=shown)
        _judge_time(shown, seen, n)
    return "warm, between two events of the right stream, and nobody else was waited for."


def _timed(answer: Any, n: int, rounds: list[int]) -> dict[str, Any]:
    """Run the answer in its own process; return its result and what was done in the meantime."""
    cp = session.cp()
    stream, other = (cp.cuda.Stream(non_blocking=True) for _ in range(2))
    # long, and cheap to compute
    x = cp.ones(32, dtype=cp.float32)
    y = cp.ones(32, dtype=cp.float32)
    calls: list[int] = []

    def timed() -> None:
        # The first call does more, as where something is compiled, allocated or brought into a cache: so much
        # that the mean with it is no single call's time.
        work.simmer(x, rounds[len(calls) % n] if calls else (8 if n < 10 else 3) * max(rounds), blocks=1)
        calls.append(session.backend().host_ns())

    cp.cuda.Device().synchronize()
    work.simmer(y, sum(rounds), blocks=1, stream=other)
    with timeline() as seen, stream:
        found = call_here(answer, timed, n, name="stopwatch", shown=f"stopwatch(work, {n})")
    waits = [w for w in seen.record.synchronizations if w.type != "STREAM_WAIT_EVENT" and not w.hidden]
    return {
        "found": found,
        "calls": len(calls),
        "runs": [
            (a.start_ns, a.end_ns)
            for a in seen.record.activities
            if a.name == "simmer" and a.stream_id == stream.ptr
        ],
        "events": [call.name for call in seen.record.calls].count("cudaEventRecord"),
        "between": sum(wait.start_ns < calls[-1] for wait in waits) if calls else 0,
        "waits": sorted(
            {
                "device"
                if w.type == "CONTEXT_SYNCHRONIZE"
                else "own"
                if w.stream_id in (stream.ptr, None)
                else "other"
                for w in waits
            }
        ),
    }


def _judge_time(shown: str, seen: dict[str, Any], n: int) -> None:
    found = seen["found"]
    calls = seen["calls"]
    runs = seen["runs"]
    if isinstance(found, bool) or not isinstance(found, int | float | np.integer | np.floating):
        raise NotYet(f"{shown} returns {kind_of(found)}; return a number of milliseconds.")
    if not calls:
        raise NotYet(f"{shown} never calls work().")
    if len(runs) < calls:
        raise NotYet(
            f"{shown} lets work() run in another stream than the caller's: call it in the current stream."
        )
    if calls < n:
        raise NotYet(f"{shown} calls work() {calls} times: call it once to warm up, and then {n} times.")
    if calls == n:
        raise NotYet(
            f"{shown} calls work() {calls} times, so the first, cold call is among those that are timed; "
            "call it once before you start."
        )
    found = float(found)
    right = (runs[-1][1] - runs[-n][0]) / n / 1e6
    whole_ms = (runs[-1][1] - runs[0][0]) / 1e6
    if not np.isclose(found, right, rtol=_SAME):
        told = f"{shown} returns {found:.4g}, and the mean of {n} warm calls is {right:.4g} ms"
        each = [(end - start) / 1e6 for start, end in runs[-n:]]
        raise NotYet(f"{told}: {_what_is_wrong(found, right, n, whole_ms, each, seen)}")
    if "device" in seen["waits"]:
        raise NotYet(
            f"{shown} is right here, but it waits for the whole device, and so for everybody's streams: "
            "wait for the event alone, with end.synchronize()."
        )
    if "other" in seen["waits"]:
        raise NotYet(
            f"{shown} is right here, but it waits for another stream than the current one: wait for the "
            "event alone, with end.synchronize()."
        )
    if seen["between"] > max(_FEW_WAITS, n // 2):
        raise NotYet(
            f"{shown} lets the host wait {seen['between']} times between its calls. Such a wait is "
            "followed by a gap, which counts as their time: give all calls, then wait once."
        )


def _what_is_wrong(
    found: float, right: float, n: int, whole_ms: float, each: list[float], seen: dict[str, Any]
) -> str:
    def near(value: float, room: float = 0.1) -> bool:
        return bool(np.isclose(found, value, rtol=room))

    if seen["events"] < 2:
        return (
            "the host's clock does not see the device work; record one event before and one after, in the "
            "stream in which work() runs."
        )
    if n > 1 and near(right * n):
        return "that is the time of all calls together; divide by n."
    if near(right / 1000):
        return "get_elapsed_time gives milliseconds already."
    if near(right * 1000):
        return "return milliseconds, not microseconds."
    if found > right and near(whole_ms / n, 0.2):
        return "the warm-up is among what is timed; record the first event after it."
    if n > 1 and any(near(one) for one in [*each, float(np.median(each))]):
        return "calls differ: add up all n of them, and divide by n."
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


def race_sizes(rng: np.random.Generator) -> tuple[int, ...]:
    """Sizes of inputs: small ones, a random one, and that of the score."""
    return 1, 33, 1000, int(rng.integers(5_000, 50_000)), 100_000


def energy_case(drawn: Draw, size: int) -> ProgramCase:
    """Fractions of both signs; for large sizes, numbers whose squares are exact."""
    x = drawn.whole(size) if size > 50_000 else drawn.floats(size) * np.float32(drawn.rng.integers(1, 100))
    half = x * np.float32(0.5)
    total = np.float32((half * half).sum(dtype=np.float64))
    label = f"energy(x) of {counted(size, 'element')}"
    near = Near(np.asarray(total), float(total), 8)
    return ProgramCase((x,), near, True, label, place="device", unchanged=True)


def energy(x: Any) -> Any:
    """The reference: each of the two streams waits once for the other."""
    cp = session.cp()
    here = cp.cuda.get_current_stream()
    stream = cp.cuda.Stream(non_blocking=True)
    scaled = x * 0.5
    stream.wait_event(here.record())
    with stream:
        total = (scaled * scaled).sum()
    here.wait_event(stream.record())
    return total


RACE = ProgramExercise(
    "07-race",
    "The published race",
    "energy",
    energy_case,
    energy,
    kind="repair",
    sizes=race_sizes,
    checked=True,
    budgets=(
        Budget("streams", "Keep the two streams, and let one wait for the other.", least=2),
        Budget(
            "waits", "An event that one stream records and the other waits for leaves the host free.", most=0
        ),
    ),
    praise="ordered there and back by events, and the host never waits.",
)

# 07-conveyor


FEW_ROUNDS = 3


def conveyor_sizes(rng: np.random.Generator) -> tuple[tuple[int, int], ...]:
    """Elements, and rounds of the work: nothing, little, more than fits into a few pieces, much work."""
    long = int(rng.integers(1_200_000, 1_300_000))
    some = int(rng.integers(400_000, 500_000))
    small = ((0, FEW_ROUNDS), (1, FEW_ROUNDS), (33, work.ROUNDS), (10_007, work.ROUNDS), (long, FEW_ROUNDS))
    return *small, (some, work.ROUNDS), ((1 << 19) + 5, work.ROUNDS)


def conveyor_case(drawn: Draw, size: tuple[int, int]) -> ProgramCase:
    """Numbers from 0 to 1, which `work.simmer` keeps there."""
    n, rounds = size
    x = drawn.rng.random(n, dtype=np.float32)
    step = partial(work.simmer, rounds=rounds)
    label = f"conveyor(x, y, step) with {n:,} elements"
    return ProgramCase((x, step), work.simmered(x, rounds), label=label, place="host")


def on_pinned(bench: Any, program: Callable[..., Any], x: Any, step: Any) -> Any:
    """Call a program with two pinned arrays; the second, filled with NaN before, is its result."""
    x, y = bench.pinned(x), bench.pinned(np.full_like(x, np.nan))
    before = x.copy()
    program(x, y, step)
    if not np.array_equal(x, before):
        raise NotYet("conveyor(x, y, step) changes x, which belongs to its caller.")
    return y


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
    """The naive version: copy everything in, do the work, copy everything out."""
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
    sizes=conveyor_sizes,
    checked=True,
    calls=on_pinned,
    returns=False,
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

ENVIRONMENTS = 2


def rollout_sizes(rng: np.random.Generator) -> tuple[tuple[int, int], ...]:
    """Steps, and the width of what is observed: few steps, and many."""
    widths = (int(n) for n in rng.integers(1, 100, 3))
    return *zip((1, 2, int(rng.integers(8, 11))), widths, strict=True), (12, 32)


def rollout_case(drawn: Draw, size: tuple[int, int]) -> ProgramCase:
    """Two environments, some steps each."""
    steps, width = size
    starts = drawn.rng.random((ENVIRONMENTS, width), dtype=np.float32)
    found = starts.copy()
    for _ in range(steps):
        found = work.Environment.answer(found, work.decided(found))
    return ProgramCase((starts, steps), found, label=f"rollout(envs, policy, {steps})")


def with_environments(bench: Any, program: Callable[..., Any], starts: Any, steps: int) -> Any:
    """Call a program with pinned environments and return their last observations."""
    envs = [work.Environment(start, bench.pinned, bench.compute, bench.uses) for start in starts]
    returned = program(envs, work.decide, steps)
    if not isinstance(returned, list | tuple) or [id(env) for env in returned] != [id(env) for env in envs]:
        raise NotYet(f"rollout(envs, policy, {steps}) should return `envs`.")
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

    for number in range(len(envs) if steps else 0):
        ask(number)
    for step in range(steps):
        for number, env in enumerate(envs):
            streams[number].synchronize()
            env.step()
            if step + 1 < steps:
                ask(number)
    return envs


def in_turns(envs: Any, policy: Any, steps: int) -> Any:
    """The naive version: let the policy decide, wait, step."""
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
    sizes=rollout_sizes,
    checked=True,
    calls=with_environments,
    budgets=(
        Budget(
            "device_waits", "Wait for the stream of the environment whose turn it is, not for both.", most=0
        ),
        Budget(
            "launches",
            "One decision of `policy` on the device for each step of each environment.",
            allowance=1.0,
            least_share=1.0,
        ),
        Budget(
            "microseconds",
            "While the host steps one environment, the device should decide for the other: give each a "
            "stream, and ask again as soon as its step is done.",
            allowance=1.1,
            large=True,
        ),
    ),
    praise="the host and the device work at the same time, and nobody reads what is not there yet.",
)

EXERCISES = (STOPWATCH, RACE, CONVEYOR, ROLLOUT)
