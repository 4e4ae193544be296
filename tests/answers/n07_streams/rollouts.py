"""Wrong and right programs for 07-rollout, of notebook 07.

Most are a whole solution with one part exchanged.
"""



from __future__ import annotations

from collections.abc import Callable
from typing import Any

from gpulab import session
from gpulab_course.content.n07_streams import work


def rollout(envs: Any, policy: Any, steps: int, **change: Any) -> Any:
    """A right rollout, with parts that can be exchanged."""
    cp = session.cp()
    streams = [cp.cuda.Stream(non_blocking=True) for _ in envs]
    shared = cp.empty(envs[0].observation.shape, dtype=cp.float32)
    inputs = [shared if change.get("shared") else cp.empty_like(shared) for _ in envs]
    events = [cp.cuda.Event() for _ in envs]

    def ask(number: int) -> None:
        with streams[number] as stream:
            inputs[number].set(change.get("seen", lambda env: env.observation)(envs[number]))
            action = policy(inputs[number])
            if change.get("early"):
                events[number].record(stream)
            change.get("get", lambda a, env: a.get(out=env.action, blocking=False))(action, envs[number])
            if not change.get("early"):
                events[number].record(stream)

    wait = change.get("wait", lambda number, streams, events: streams[number].synchronize())
    for number in range(len(envs)):
        if change.get("first", True):
            ask(number)
    for step in range(steps):
        for number in range(len(envs)):
            wait(number, streams, events)
            change.get("step", lambda envs, number: envs[number].step())(envs, number)
            if step + 1 < steps or change.get("extra"):
                ask(number)
    return envs


def rollouts(**change: Any) -> Callable[..., Any]:
    return lambda envs, policy, steps: rollout(envs, policy, steps, **change)


def lockstep(envs: Any, policy: Any, steps: int) -> Any:
    cp = session.cp()
    streams = [cp.cuda.Stream(non_blocking=True) for _ in envs]
    for _ in range(steps):
        for env, stream in zip(envs, streams, strict=True):
            with stream:
                policy(cp.asarray(env.observation)).get(out=env.action, blocking=False)
        for stream in streams:
            stream.synchronize()
        for env in envs:
            env.step()
    return envs


def asks_before_the_step(envs: Any, policy: Any, steps: int) -> Any:
    cp = session.cp()
    streams = [cp.cuda.Stream(non_blocking=True) for _ in envs]
    for step in range(steps + 1):
        for env, stream in zip(envs, streams, strict=True):
            with stream:
                if step < steps:
                    policy(cp.asarray(env.observation)).get(out=env.action, blocking=False)
            stream.synchronize()
            if step:
                env.step()
    return envs


def one_stream_two_events(envs: Any, policy: Any, steps: int) -> Any:
    cp = session.cp()
    stream = cp.cuda.Stream(non_blocking=True)
    ready = {}

    def ask(env: Any) -> None:
        with stream:
            policy(cp.asarray(env.observation)).get(out=env.action, blocking=False)
            ready[id(env)] = stream.record()

    for env in envs:
        ask(env)
    for left in reversed(range(steps)):
        for env in envs:
            ready[id(env)].synchronize()
            env.step()
            if left:
                ask(env)
    return envs


def decides_on_the_host(envs: Any, policy: Any, steps: int) -> Any:
    for _ in range(steps):
        for env in envs:
            env.action[...] = work.decide_by_numpy(env.observation)
            env.step()
    return envs
