"""Programs that answer the exercises of notebook 11, rightly and wrongly.

Most are a whole solution with one part exchanged, as a learner would have it.
"""



from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from gpulab import session


@contextmanager
def own_stream(*, wait: bool = True, **made: Any) -> Iterator[Any]:
    """A stream of its own that follows what was given so far, and is waited for at the end."""
    cp = session.cp()
    stream = cp.cuda.Stream(**made) if made else cp.cuda.Stream(non_blocking=True)
    stream.wait_event(cp.cuda.get_current_stream().record())
    with stream:
        yield stream
    if wait:
        stream.synchronize()


def captured(stream: Any, work: Callable[[], Any]) -> Any:
    stream.begin_capture()
    work()
    return stream.end_capture()


# 11-replay


def recaptures(x: Any, rounds: int, one_round: Any) -> Any:
    with own_stream() as stream:
        for _ in range(rounds):
            captured(stream, lambda: one_round(x)).launch(stream)
    return x


def never_launches(x: Any, rounds: int, one_round: Any) -> Any:
    with own_stream() as stream:
        for _ in range(rounds):
            captured(stream, lambda: one_round(x))
    return x


def capture_is_a_round(x: Any, rounds: int, one_round: Any) -> Any:
    with own_stream() as stream:
        graph = captured(stream, lambda: one_round(x))
        for _ in range(rounds - 1):
            graph.launch(stream)
    return x


def warms_up_on_x(x: Any, rounds: int, one_round: Any) -> Any:
    one_round(x)
    with own_stream() as stream:
        graph = captured(stream, lambda: one_round(x))
        for _ in range(rounds):
            graph.launch(stream)
    return x


def default_stream(x: Any, rounds: int, one_round: Any) -> Any:
    cp = session.cp()
    graph = captured(cp.cuda.Stream.null, lambda: one_round(x))
    for _ in range(rounds):
        graph.launch()
    return x


def looks_inside(x: Any, rounds: int, one_round: Any) -> Any:
    def work() -> None:
        one_round(x)
        assert float(x[0]) == float(x[0])

    with own_stream() as stream:
        graph = captured(stream, work)
        for _ in range(rounds):
            graph.launch(stream)
    return x


def waits_inside(x: Any, rounds: int, one_round: Any) -> Any:
    with own_stream() as stream:
        graph = captured(stream, lambda: (one_round(x), stream.synchronize()))
        for _ in range(rounds):
            graph.launch(stream)
    return x


def rebinds(x: Any, rounds: int, one_round: Any) -> Any:
    kept = [x]

    def work() -> None:
        kept.append(kept[-1] * 0.5)
        kept.append(kept[-1] + 1)
        kept.append(-kept[-1])

    with own_stream() as stream:
        graph = captured(stream, work)
        for _ in range(rounds):
            graph.launch(stream)
    return kept[-1] if rounds else x


def blocking_stream(x: Any, rounds: int, one_round: Any) -> Any:
    stream = session.cp().cuda.Stream()
    graph = captured(stream, lambda: one_round(x))  # the work goes to the default stream
    for _ in range(rounds):
        graph.launch(stream)
    stream.synchronize()
    return x


def nobody_waits(x: Any, rounds: int, one_round: Any) -> Any:
    with own_stream(wait=False) as stream:
        graph = captured(stream, lambda: one_round(x))
        for _ in range(rounds):
            graph.launch(stream)
    return x


def warms_up_unseen(x: Any, rounds: int, one_round: Any) -> Any:
    """The own stream does not wait for the copy that it is to change."""
    cp = session.cp()
    y = x.copy()
    stream = cp.cuda.Stream(non_blocking=True)
    with stream:
        graph = captured(stream, lambda: one_round(y))
        for _ in range(rounds):
            graph.launch(stream)
        stream.synchronize()
    return y


def two_graphs(x: Any, rounds: int, one_round: Any) -> Any:
    with own_stream() as stream:
        graphs = [captured(stream, lambda: one_round(x)) for _ in range(2)]
        for turn in range(rounds):
            graphs[turn % 2].launch(stream)
    return x


def host_numbers(x: Any, rounds: int, one_round: Any) -> Any:
    y = x.get()
    for _ in range(rounds):
        y = -(y * 0.5 + 1)
    return y


def follows_the_default_stream(x: Any, rounds: int, one_round: Any) -> Any:
    """The caller's stream need not be the default one."""
    cp = session.cp()
    stream = cp.cuda.Stream(non_blocking=True)
    stream.wait_event(cp.cuda.Stream.null.record())
    with stream:
        graph = captured(stream, lambda: one_round(x))
        for _ in range(rounds):
            graph.launch(stream)
    stream.synchronize()
    return x


def graph_for_show(x: Any, rounds: int, one_round: Any) -> Any:
    """A kernel for each round beside a graph that nobody needs."""
    cp = session.cp()
    step = cp.ElementwiseKernel("float32 a", "float32 b", "b = -(a * 0.5f + 1)", "relax_step")
    y = x.copy()
    spare = x.copy()
    with own_stream() as stream:
        captured(stream, lambda: one_round(spare)).launch(stream)
        for _ in range(rounds):
            step(y, y)
    return y


def in_the_callers_stream(x: Any, rounds: int, one_round: Any) -> Any:
    """Nothing has to wait for anything."""
    stream = session.cp().cuda.get_current_stream()
    for _ in range(3):
        one_round(x.copy())
    graph = captured(stream, lambda: one_round(x))
    for _ in range(rounds):
        graph.launch()
    return x


def warm_round_counts(x: Any, rounds: int, one_round: Any) -> Any:
    if rounds:
        one_round(x)
    if rounds < 2:
        return x
    with own_stream() as stream:
        graph = captured(stream, lambda: one_round(x))
        for _ in range(rounds - 1):
            graph.launch(stream)
    return x


def all_rounds_in_one(x: Any, rounds: int, one_round: Any) -> Any:
    if not rounds:
        return x
    with own_stream() as stream:
        captured(stream, lambda: [one_round(x) for _ in range(rounds)]).launch(stream)
    return x


def in_place_by_hand(x: Any, rounds: int, one_round: Any) -> Any:
    """Temporaries are kept, and the last one is copied back: no rebinding."""
    kept: list[Any] = []

    def work() -> None:
        half = x * 0.5
        more = half + 1
        kept.extend((half, more, -more))
        x[...] = kept[-1]

    with own_stream() as stream:
        graph = captured(stream, work)
        for _ in range(rounds):
            graph.launch(stream)
    return x


def fused(x: Any, rounds: int, one_round: Any) -> Any:
    cp = session.cp()
    step = cp.ElementwiseKernel("float32 a", "float32 b", "b = -(a * 0.5f + 1)", "relax_step")
    y = x.copy()
    step(x.copy(), y.copy())
    with own_stream() as stream:
        graph = captured(stream, lambda: step(y, y))
        for _ in range(rounds):
            graph.launch(stream)
    return y


def host_func(x: Any, rounds: int, one_round: Any) -> Any:
    """The order is right, with an event instead of a wait of the host."""
    cp = session.cp()
    stream = cp.cuda.Stream(non_blocking=True)
    stream.wait_event(cp.cuda.get_current_stream().record())
    with stream:
        graph = captured(stream, lambda: one_round(x))
        for _ in range(rounds):
            graph.launch(stream)
        done = stream.record()
    cp.cuda.get_current_stream().wait_event(done)
    return x


# 11-static


def serve(
    *,
    rebind: bool = False,
    alias: bool = False,
    late: bool = False,
    view: bool = False,
    recapture: bool = False,
    host: bool = False,
    sync: bool = True,
    outside: bool = False,
    early_wait: bool = True,
) -> Any:
    """The server with some of its parts done wrongly."""

    def serve(batches: Any, requests: list[int]) -> Any:
        cp = session.cp()
        x = batches[0] if view or rebind else batches[0].copy()
        kept: list[Any] = []

        def work() -> None:
            kept[:] = [x * 2]
            kept.append(cp.maximum(kept[0], 0))
            kept.append(kept[1] + 1)

        work()
        answers = []
        stream = cp.cuda.Stream(non_blocking=True)
        if early_wait:
            stream.wait_event(cp.cuda.get_current_stream().record())
        with stream:
            graph = captured(stream, work)
            for number in requests:
                if rebind:
                    x = batches[number]
                elif outside:
                    with cp.cuda.Stream.null:
                        x[...] = batches[number]
                else:
                    x[...] = batches[number]
                if recapture:
                    graph = captured(stream, work)
                if late:
                    answers.append(kept[-1].copy())
                    graph.launch(stream)
                    continue
                graph.launch(stream)
                answers.append(kept[-1].get() if host else kept[-1] if alias else kept[-1].copy())
            result = cp.asarray(answers) if host else cp.stack(answers)
        if sync:
            stream.synchronize()
        return result

    return serve


def serve_eagerly(batches: Any, requests: list[int]) -> Any:
    return session.cp().maximum(batches[requests] * 2, 0) + 1


def serve_beside_a_graph(batches: Any, requests: list[int]) -> Any:
    """Launches a graph for each request, and computes the answer itself."""
    cp = session.cp()
    x = batches[0].copy()
    answers = []
    with own_stream() as stream:
        graph = captured(stream, lambda: cp.multiply(x, 2, out=x))
        for number in requests:
            graph.launch(stream)
            answers.append(cp.maximum(batches[number] * 2, 0) + 1)
        return cp.stack(answers)


def serve_once(batches: Any, requests: list[int]) -> Any:
    """One graph for all requests: right, but it must be made anew for every list of them."""
    cp = session.cp()
    wanted = batches[requests]
    kept: list[Any] = []

    def work() -> None:
        kept.append(wanted * 2)
        kept.append(cp.maximum(kept[0], 0))
        kept.append(kept[1] + 1)

    with own_stream() as stream:
        graph = captured(stream, work)
        graph.launch(stream)
    return kept[-1]


def serve_in_place(*, outside: bool = False) -> Any:
    """Without temporaries: input and output are one buffer; the last step may be left to the host."""

    def serve(batches: Any, requests: list[int]) -> Any:
        cp = session.cp()
        x = cp.empty_like(batches[0])
        answers = cp.empty((len(requests), x.size), x.dtype)

        def work() -> None:
            cp.multiply(x, 2, out=x)
            cp.maximum(x, 0, out=x)
            if not outside:
                cp.add(x, 1, out=x)

        with own_stream() as stream:
            graph = captured(stream, work)
            for row, number in enumerate(requests):
                cp.copyto(x, batches[number])
                graph.launch(stream)
                if outside:
                    cp.add(x, 1, out=x)
                cp.copyto(answers[row], x)
        return answers

    return serve


def serve_by_callable(batches: Any, requests: list[int]) -> Any:
    """A callable with static buffers, as frameworks make it."""
    cp = session.cp()
    fused = cp.ElementwiseKernel("float32 a", "float32 b", "b = max(a * 2, 0.0f) + 1", "answer")
    given = cp.zeros_like(batches[0])
    given_back = cp.zeros_like(batches[0])
    with own_stream() as stream:
        fused(given, given_back)
        graph = captured(stream, lambda: fused(given, given_back))

        def answer(batch: Any) -> Any:
            given[...] = batch
            graph.launch(stream)
            return given_back.copy()

        return cp.stack([answer(batches[number]) for number in requests])


def serve_as_given(batches: Any, requests: list[int]) -> Any:
    cp = session.cp()
    stream = cp.cuda.Stream(non_blocking=True)
    x = batches[requests[0]]
    answers = []
    with stream:
        stream.begin_capture()
        y = cp.maximum(x * 2, 0) + 1
        graph = stream.end_capture()
        for number in requests:
            x = batches[number]
            graph.launch(stream)
            answers.append(y)
    return cp.stack(answers)


# 11-fork


def branches(
    *,
    fork: bool = True,
    fork_late: bool = False,
    joined: str = "after",
    alias: bool = False,
    rebind: bool = False,
    host_wait: bool = False,
    other: bool = False,
    blocking: bool = False,
) -> Any:
    """Two branches with parts done wrongly; ``joined``: where the event of the join is recorded."""

    def branches(inputs: Any, left: Any, right: Any, join: Any) -> Any:
        cp = session.cp()
        x, a, b, c = (inputs[0].copy() for _ in range(4))
        left(x, a), right(x, b), join(a, b, c)
        one = cp.cuda.Stream(non_blocking=True)
        two = cp.cuda.Stream(non_blocking=not blocking)
        one.wait_event(cp.cuda.get_current_stream().record())
        two.wait_event(cp.cuda.get_current_stream().record())
        results = []
        with one:
            one.begin_capture()
            if fork and not fork_late:
                two.wait_event(one.record())
            if other:
                left, right = right, left
                a, b = b, a
            left(x, a)
            if fork_late:
                two.wait_event(one.record())
            early = two.record() if joined == "early" else None
            with two:
                right(x, b)
            if host_wait:
                two.synchronize()
            if early is not None:
                one.wait_event(early)
            elif joined == "after":
                one.wait_event(two.record())
            if other:
                a, b = b, a
            join(a, b, c)
            if joined == "too late":
                one.wait_event(two.record())
            graph = one.end_capture()
            for row in inputs:
                if rebind:
                    x = row
                else:
                    x[...] = row
                graph.launch(one)
                results.append(c if alias else c.copy())
            result = cp.stack(results)
        one.synchronize()
        return result

    return branches


def three_streams(inputs: Any, left: Any, right: Any, join: Any) -> Any:
    """Each branch on a stream of its own, joined by the first."""
    cp = session.cp()
    x, a, b, c = (cp.empty_like(inputs[0]) for _ in range(4))
    one, two, three = (cp.cuda.Stream(non_blocking=True) for _ in range(3))
    one.wait_event(cp.cuda.get_current_stream().record())
    results = cp.empty_like(inputs)
    with one:
        one.begin_capture()
        begun = one.record()
        for stream, branch, out in ((two, left, a), (three, right, b)):
            stream.wait_event(begun)
            with stream:
                branch(x, out)
            one.wait_event(stream.record())
        join(a, b, c)
        graph = one.end_capture()
        for row in range(len(inputs)):
            cp.copyto(x, inputs[row])
            graph.launch(one)
            cp.copyto(results[row], c)
    one.synchronize()
    return results


def join_on_the_second(inputs: Any, left: Any, right: Any, join: Any) -> Any:
    """The join runs in the second stream, which then hands over to the first."""
    cp = session.cp()
    x, a, b, c = (inputs[0].copy() for _ in range(4))
    one = cp.cuda.Stream(non_blocking=True)
    two = cp.cuda.Stream(non_blocking=True)
    one.wait_event(cp.cuda.get_current_stream().record())
    results = cp.empty_like(inputs)
    with one:
        one.begin_capture()
        two.wait_event(one.record())
        left(x, a)
        half = one.record()
        with two:
            right(x, b)
            two.wait_event(half)
            join(a, b, c)
            one.wait_event(two.record())
        graph = one.end_capture()
        for row, given in enumerate(inputs):
            x[...] = given
            graph.launch(one)
            results[row] = c
    one.synchronize()
    return results


def joins_outside(inputs: Any, left: Any, right: Any, join: Any) -> Any:
    """The join is no part of the graph."""
    cp = session.cp()
    x, a, b = (cp.empty_like(inputs[0]) for _ in range(3))
    results = cp.empty_like(inputs)
    two = cp.cuda.Stream(non_blocking=True)
    with own_stream() as one:
        one.begin_capture()
        two.wait_event(one.record())
        left(x, a)
        with two:
            right(x, b)
        one.wait_event(two.record())
        graph = one.end_capture()
        for row, given in enumerate(inputs):
            x[...] = given
            graph.launch(one)
            join(a, b, results[row])
    return results


def branches_eagerly(inputs: Any, left: Any, right: Any, join: Any) -> Any:
    cp = session.cp()
    a, b, c = (cp.empty_like(inputs) for _ in range(3))
    left(inputs, a), right(inputs, b), join(a, b, c)
    return c
