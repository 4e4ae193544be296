"""Programs that answer the exercises of notebook 11, rightly and wrongly.

Most are a whole solution with one part exchanged, as a learner would have it.
"""

# ruff: noqa: D103 - names and declarations say what each gets wrong

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from gpulab import session


@contextmanager
def _own_stream(*, wait: bool = True, **made: Any) -> Iterator[Any]:
    """A stream of its own that follows what was given so far, and is waited for at the end."""
    cp = session.cp()
    stream = cp.cuda.Stream(**made) if made else cp.cuda.Stream(non_blocking=True)
    stream.wait_event(cp.cuda.get_current_stream().record())
    with stream:
        yield stream
    if wait:
        stream.synchronize()


def _captured(stream: Any, work: Callable[[], Any]) -> Any:
    stream.begin_capture()
    work()
    return stream.end_capture()


# 11-replay


def recaptures(x: Any, rounds: int, one_round: Any) -> Any:
    with _own_stream() as stream:
        for _ in range(rounds):
            _captured(stream, lambda: one_round(x)).launch(stream)
    return x


def never_launches(x: Any, rounds: int, one_round: Any) -> Any:
    with _own_stream() as stream:
        for _ in range(rounds):
            _captured(stream, lambda: one_round(x))
    return x


def capture_is_a_round(x: Any, rounds: int, one_round: Any) -> Any:
    with _own_stream() as stream:
        graph = _captured(stream, lambda: one_round(x))
        for _ in range(rounds - 1):
            graph.launch(stream)
    return x


def warms_up_on_x(x: Any, rounds: int, one_round: Any) -> Any:
    one_round(x)
    with _own_stream() as stream:
        graph = _captured(stream, lambda: one_round(x))
        for _ in range(rounds):
            graph.launch(stream)
    return x


def default_stream(x: Any, rounds: int, one_round: Any) -> Any:
    cp = session.cp()
    graph = _captured(cp.cuda.Stream.null, lambda: one_round(x))
    for _ in range(rounds):
        graph.launch()
    return x


def looks_inside(x: Any, rounds: int, one_round: Any) -> Any:
    def work() -> None:
        one_round(x)
        assert float(x[0]) == float(x[0])

    with _own_stream() as stream:
        graph = _captured(stream, work)
        for _ in range(rounds):
            graph.launch(stream)
    return x


def waits_inside(x: Any, rounds: int, one_round: Any) -> Any:
    with _own_stream() as stream:
        graph = _captured(stream, lambda: (one_round(x), stream.synchronize()))
        for _ in range(rounds):
            graph.launch(stream)
    return x


def rebinds(x: Any, rounds: int, one_round: Any) -> Any:
    kept = [x]

    def work() -> None:
        kept.append(kept[-1] * 0.5)
        kept.append(kept[-1] + 1)
        kept.append(-kept[-1])

    with _own_stream() as stream:
        graph = _captured(stream, work)
        for _ in range(rounds):
            graph.launch(stream)
    return kept[-1] if rounds else x


def blocking_stream(x: Any, rounds: int, one_round: Any) -> Any:
    stream = session.cp().cuda.Stream()
    graph = _captured(stream, lambda: one_round(x))  # the work goes to the default stream
    for _ in range(rounds):
        graph.launch(stream)
    stream.synchronize()
    return x


def nobody_waits(x: Any, rounds: int, one_round: Any) -> Any:
    with _own_stream(wait=False) as stream:
        graph = _captured(stream, lambda: one_round(x))
        for _ in range(rounds):
            graph.launch(stream)
    return x


def warms_up_unseen(x: Any, rounds: int, one_round: Any) -> Any:
    """The own stream does not wait for the copy that it is to change."""
    cp = session.cp()
    y = x.copy()
    stream = cp.cuda.Stream(non_blocking=True)
    with stream:
        graph = _captured(stream, lambda: one_round(y))
        for _ in range(rounds):
            graph.launch(stream)
        stream.synchronize()
    return y


def two_graphs(x: Any, rounds: int, one_round: Any) -> Any:
    with _own_stream() as stream:
        graphs = [_captured(stream, lambda: one_round(x)) for _ in range(2)]
        for turn in range(rounds):
            graphs[turn % 2].launch(stream)
    return x


def host_numbers(x: Any, rounds: int, one_round: Any) -> Any:
    y = x.get()
    for _ in range(rounds):
        y = -(y * 0.5 + 1)
    return y


def warm_round_counts(x: Any, rounds: int, one_round: Any) -> Any:
    if rounds:
        one_round(x)
    if rounds < 2:
        return x
    with _own_stream() as stream:
        graph = _captured(stream, lambda: one_round(x))
        for _ in range(rounds - 1):
            graph.launch(stream)
    return x


def all_rounds_in_one(x: Any, rounds: int, one_round: Any) -> Any:
    if not rounds:
        return x
    with _own_stream() as stream:
        _captured(stream, lambda: [one_round(x) for _ in range(rounds)]).launch(stream)
    return x


def in_place_by_hand(x: Any, rounds: int, one_round: Any) -> Any:
    """Temporaries are kept, and the last one is copied back: no rebinding."""
    kept: list[Any] = []

    def work() -> None:
        half = x * 0.5
        more = half + 1
        kept.extend((half, more, -more))
        x[...] = kept[-1]

    with _own_stream() as stream:
        graph = _captured(stream, work)
        for _ in range(rounds):
            graph.launch(stream)
    return x


def fused(x: Any, rounds: int, one_round: Any) -> Any:
    cp = session.cp()
    step = cp.ElementwiseKernel("float32 a", "float32 b", "b = -(a * 0.5f + 1)", "relax_step")
    y = x.copy()
    step(x.copy(), y.copy())
    with _own_stream() as stream:
        graph = _captured(stream, lambda: step(y, y))
        for _ in range(rounds):
            graph.launch(stream)
    return y


def host_func(x: Any, rounds: int, one_round: Any) -> Any:
    """The order is right, with an event instead of a wait of the host."""
    cp = session.cp()
    stream = cp.cuda.Stream(non_blocking=True)
    stream.wait_event(cp.cuda.get_current_stream().record())
    with stream:
        graph = _captured(stream, lambda: one_round(x))
        for _ in range(rounds):
            graph.launch(stream)
        done = stream.record()
    cp.cuda.get_current_stream().wait_event(done)
    return x


# 11-static


def serve(
    *, rebind: bool = False, alias: bool = False, late: bool = False, view: bool = False,
    recapture: bool = False, host: bool = False, sync: bool = True, outside: bool = False,
    early_wait: bool = True,
) -> Any:  # fmt: skip
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
            graph = _captured(stream, work)
            for number in requests:
                if rebind:
                    x = batches[number]
                elif outside:
                    with cp.cuda.Stream.null:
                        x[...] = batches[number]
                else:
                    x[...] = batches[number]
                if recapture:
                    graph = _captured(stream, work)
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


def serve_once(batches: Any, requests: list[int]) -> Any:
    """One graph for all requests: right, but it must be made anew for every list of them."""
    cp = session.cp()
    wanted = batches[requests]
    kept: list[Any] = []

    def work() -> None:
        kept.append(wanted * 2)
        kept.append(cp.maximum(kept[0], 0))
        kept.append(kept[1] + 1)

    with _own_stream() as stream:
        graph = _captured(stream, work)
        graph.launch(stream)
    return kept[-1]


def serve_in_place(batches: Any, requests: list[int]) -> Any:
    """Without temporaries: input and output are one buffer."""
    cp = session.cp()
    x = cp.empty_like(batches[0])
    answers = cp.empty((len(requests), x.size), x.dtype)

    def work() -> None:
        cp.multiply(x, 2, out=x)
        cp.maximum(x, 0, out=x)
        cp.add(x, 1, out=x)

    with _own_stream() as stream:
        graph = _captured(stream, work)
        for row, number in enumerate(requests):
            cp.copyto(x, batches[number])
            graph.launch(stream)
            cp.copyto(answers[row], x)
    return answers


def serve_by_callable(batches: Any, requests: list[int]) -> Any:
    """A callable with static buffers, as frameworks make it."""
    cp = session.cp()
    fused = cp.ElementwiseKernel("float32 a", "float32 b", "b = max(a * 2, 0.0f) + 1", "answer")
    given, given_back = cp.zeros_like(batches[0]), cp.zeros_like(batches[0])
    with _own_stream() as stream:
        fused(given, given_back)
        graph = _captured(stream, lambda: fused(given, given_back))

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
    *, fork: bool = True, fork_late: bool = False, joined: str = "after", alias: bool = False,
    rebind: bool = False, host_wait: bool = False, other: bool = False, blocking: bool = False,
) -> Any:  # fmt: skip
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
    one, two = cp.cuda.Stream(non_blocking=True), cp.cuda.Stream(non_blocking=True)
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


def branches_eagerly(inputs: Any, left: Any, right: Any, join: Any) -> Any:
    cp = session.cp()
    a, b, c = (cp.empty_like(inputs) for _ in range(3))
    left(inputs, a), right(inputs, b), join(a, b, c)
    return c


# 11-noise


def draws(
    *, fixed: bool = False, first: bool = False, alias: bool = False, host: bool = False,
    set_it: bool = False, recapture: bool = False, warm: bool = False, wait: bool = True,
) -> Any:  # fmt: skip
    """Rounds of noise with parts done wrongly."""

    def draws(source: str, seed: int, rounds: int, n: int) -> Any:
        import numpy as np

        cp = session.cp()
        noise, advance = (cp.RawKernel(source, name) for name in ("noise", "advance"))
        now, out = cp.zeros(1, dtype=cp.uint32), cp.empty(n, dtype=cp.uint32)
        shape = (-(-n // 128),), (128,)

        def one() -> None:
            if first:
                advance((1,), (1,), (now,))
            noise(*shape, (now, np.uint32(seed), out, np.int32(n)))
            if not (fixed or first or set_it):
                advance((1,), (1,), (now,))

        if warm:
            one()
        rows = []
        with _own_stream(wait=wait) as stream:
            graph = _captured(stream, one)
            for number in range(rounds):
                if set_it:
                    now.set(np.array([number], np.uint32))
                if recapture:
                    graph = _captured(stream, one)
                graph.launch(stream)
                rows.append(out.get() if host else out if alias else out.copy())
            return np.stack(rows) if host else cp.stack(rows)

    return draws


def draws_eagerly(source: str, seed: int, rounds: int, n: int) -> Any:
    import numpy as np

    cp = session.cp()
    noise = cp.RawKernel(source, "noise")
    rows = cp.empty((rounds, n), dtype=cp.uint32)
    for number in range(rounds):
        noise(
            (-(-n // 256),),
            (256,),
            (cp.full(1, number, dtype=cp.uint32), np.uint32(seed), rows[number], np.int32(n)),
        )
    return rows


def draws_by_copies(source: str, seed: int, rounds: int, n: int) -> Any:
    """The round is copied on the device, from a row of numbers."""
    import numpy as np

    cp = session.cp()
    noise = cp.RawKernel(source, "noise")
    numbers = cp.arange(rounds, dtype=cp.uint32)
    now, out = cp.zeros(1, dtype=cp.uint32), cp.empty(n, dtype=cp.uint32)
    rows = cp.empty((rounds, n), dtype=cp.uint32)
    with _own_stream() as stream:
        graph = _captured(
            stream, lambda: noise((-(-n // 64),), (64,), (now, np.uint32(seed), out, np.int32(n)))
        )
        for number in range(rounds):
            now[...] = numbers[number]
            graph.launch(stream)
            rows[number] = out
    return rows


def draws_by_add(source: str, seed: int, rounds: int, n: int) -> Any:
    """CuPy's addition advances the round, and rewinds it after the warm-up."""
    import numpy as np

    cp = session.cp()
    noise = cp.RawKernel(source, "noise")
    now, out = cp.zeros(1, dtype=cp.uint32), cp.empty(n, dtype=cp.uint32)

    def one() -> None:
        noise((-(-n // 32),), (32,), (now, np.uint32(seed), out, np.int32(n)))
        cp.add(now, 1, out=now)

    one()
    now[...] = 0
    rows = []
    with _own_stream() as stream:
        graph = _captured(stream, one)
        for _ in range(rounds):
            graph.launch(stream)
            rows.append(out.copy())
        return cp.stack(rows)
