"""Programs that learners make of the four of 09-timelines: mended, and not."""

from __future__ import annotations

from typing import Any

import numpy as np

from gpulab import session
from gpulab_course.content.n09_profiling.times import stages


def one_launch(x: Any, rounds: int) -> Any:
    """A: as many rounds in one launch."""
    stages.run("embed", x, 20 * rounds)
    return x


def in_a_graph(x: Any, rounds: int) -> Any:
    """A: a graph, which is launched once."""
    cp = session.cp()
    stream = cp.cuda.get_current_stream()
    stream.begin_capture()
    for _ in range(rounds):
        stages.run("embed", x, 20)
    graph = stream.end_capture()
    graph.launch(stream)
    stream.synchronize()
    return x


def more_blocks(x: Any, rounds: int) -> Any:
    """A: more blocks for the same elements."""
    for _ in range(rounds):
        stages.run("embed", x, 20, blocks=4)
    return x


def fewer_rounds(x: Any, rounds: int) -> Any:
    """A: a tenth of the work."""
    for _ in range(rounds):
        stages.run("embed", x, 2)
    return x


def on_a_copy(x: Any, rounds: int) -> Any:
    """A: right, and x as it was."""
    return one_launch(x.copy(), rounds)


def kept_by_length(parts: list[Any], weights: Any, kept: dict[int, Any] = {}) -> list[Any]:  # noqa: B006
    """B: one copy for ever, of weights of that length."""
    w = kept.setdefault(weights.size, session.cp().asarray(weights))
    return [part * w for part in parts]


def kept_by_array(parts: list[Any], weights: Any, kept: dict[int, Any] = {}) -> list[Any]:  # noqa: B006
    """B: one copy of each array of the host, whatever it holds later."""
    w = kept.setdefault(id(weights), session.cp().asarray(weights))
    return [part * w for part in parts]


def into_the_parts(parts: list[Any], weights: Any) -> list[Any]:
    """B: one copy, and results where the parts were."""
    w = session.cp().asarray(weights)
    for part in parts:
        part *= w
    return parts


def left_there(x: Any, rounds: int) -> list[Any]:
    """C: means that are no numbers yet."""
    means = []
    for _ in range(rounds):
        stages.run("gate", x, 500)
        means.append(x.mean())
    return means


def copied_once(parts: list[Any], weights: Any) -> list[Any]:
    """B: one copy for all parts."""
    w = session.cp().asarray(weights)
    return [part * w for part in parts]


def in_one(parts: list[Any], weights: Any) -> list[Any]:
    """B: all parts in one kernel."""
    cp = session.cp()
    return list(cp.stack(parts) * cp.asarray(weights))


def pinned_again(parts: list[Any], weights: Any) -> list[Any]:
    """B: as many copies, of page-locked memory."""
    cp = session.cp()
    memory = cp.cuda.alloc_pinned_memory(max(1, weights.nbytes))
    pinned = np.frombuffer(memory, weights.dtype, weights.size)
    pinned[...] = weights
    found = [part * cp.asarray(pinned) for part in parts]
    cp.cuda.get_current_stream().synchronize()
    return found


def in_another_stream(parts: list[Any], weights: Any) -> list[Any]:
    """B: one copy, in a stream that nobody waits for."""
    cp = session.cp()
    with cp.cuda.Stream(non_blocking=True):
        w = cp.asarray(weights)
    return [part * w for part in parts]


def collected(x: Any, rounds: int) -> list[float]:
    """C: means stay on the device until the end."""
    cp = session.cp()
    means = []
    for _ in range(rounds):
        stages.run("gate", x, 500)
        means.append(x.mean())
    found: list[float] = cp.stack(means).get().tolist()
    return found


def into_places(x: Any, rounds: int) -> list[float]:
    """C: means in one array of the device."""
    means = session.cp().empty(rounds, dtype=x.dtype)
    for at in range(rounds):
        stages.run("gate", x, 500)
        means[at] = x.mean()
    return [float(mean) for mean in means.get()]


def beside(x: Any, rounds: int) -> list[float]:
    """Means in a stream of their own, while the next stage changes what they are of."""
    cp = session.cp()
    side = cp.cuda.Stream(non_blocking=True)
    means = []
    for _ in range(rounds):
        stages.run("gate", x, 500)
        with side:
            means.append(x.mean())
    side.synchronize()
    with side:
        found: list[float] = cp.stack(means).get().tolist()
    return found


def waits_in_get(x: Any, rounds: int) -> list[float]:
    """C: a wait in another call."""
    means = []
    for _ in range(rounds):
        stages.run("gate", x, 500)
        means.append(x.mean().get().item())
    return means


def last_only(x: Any, rounds: int) -> list[float]:
    """C: the last mean instead of each."""
    for _ in range(rounds):
        stages.run("gate", x, 500)
    return [float(x.mean())] * rounds


def side_by_side(parts: list[Any]) -> Any:
    """D: a stream for each, ordered by events there and back."""
    cp = session.cp()
    here = cp.cuda.get_current_stream()
    ready = here.record()
    for part in parts:
        stream = cp.cuda.Stream(non_blocking=True)
        stream.wait_event(ready)
        with stream:
            stages.run("mix", part, 5_000)
        here.wait_event(stream.record())
    return sum(parts[1:], start=parts[0])


def two_streams(parts: list[Any]) -> Any:
    """Two streams in turns, which the host waits for."""
    cp = session.cp()
    cp.cuda.get_current_stream().synchronize()
    streams = [cp.cuda.Stream(non_blocking=True) for _ in range(2)]
    for at, part in enumerate(parts):
        with streams[at % 2]:
            stages.run("mix", part, 5_000)
    for stream in streams:
        stream.synchronize()
    return sum(parts[1:], start=parts[0])


def not_joined(parts: list[Any]) -> Any:
    """D: streams that nobody waits for."""
    cp = session.cp()
    for part in parts:
        with cp.cuda.Stream(non_blocking=True):
            stages.run("mix", part, 5_000)
    return sum(parts[1:], start=parts[0])


def not_begun_in_order(parts: list[Any]) -> Any:
    """D: streams that wait for nothing."""
    cp = session.cp()
    here = cp.cuda.get_current_stream()
    for part in parts:
        with cp.cuda.Stream(non_blocking=True) as stream:
            stages.run("mix", part, 5_000)
        here.wait_event(stream.record())
    return sum(parts[1:], start=parts[0])


def waits_between(parts: list[Any]) -> Any:
    """D: streams, with a wait after each."""
    cp = session.cp()
    cp.cuda.get_current_stream().synchronize()
    for part in parts:
        with cp.cuda.Stream(non_blocking=True) as stream:
            stages.run("mix", part, 5_000)
        stream.synchronize()
    return sum(parts[1:], start=parts[0])


def more_blocks_each(parts: list[Any]) -> Any:
    """D: more blocks for the same elements."""
    for part in parts:
        stages.run("mix", part, 5_000, blocks=8)
    return sum(parts[1:], start=parts[0])
