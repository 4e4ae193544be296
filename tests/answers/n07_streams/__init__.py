"""Wrong and right answers to the exercises of notebook 07.

Most are a whole solution with one part exchanged, as a learner would have it.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import numpy as np

from gpulab import session
from gpulab_course.content.n07_streams import exercises, work
from tests.answers import Right, Wrong
from tests.answers.n07_streams import rollouts

# 07-stopwatch


def _waits_between(work: Callable[[], Any], n: int) -> float:
    def and_waits() -> None:
        work()
        session.cp().cuda.get_current_stream().synchronize()

    return _events(and_waits, n)


def _events(work: Callable[[], Any], n: int, **change: Any) -> float:
    """A right stopwatch, with parts that can be exchanged."""
    cp = session.cp()
    start, end = cp.cuda.Event(), cp.cuda.Event()
    stream = change.get("stream", cp.cuda.get_current_stream)()
    if change.get("warm", True):
        work()
    if change.get("early"):
        work, first = work, work
        start.record(stream)
        first()
    else:
        start.record(stream)
    for _ in range(change.get("calls", lambda n: n)(n)):
        work()
    end.record(stream)
    change.get("wait", lambda end: end.synchronize())(end)
    over: int = change.get("over", lambda n: n)(n)
    return float(cp.cuda.get_elapsed_time(start, end)) / over


def _host_clock(work: Callable[[], Any], n: int) -> float:
    work()
    start = time.perf_counter()
    for _ in range(n):
        work()
    session.cp().cuda.get_current_stream().synchronize()
    return 1e3 * (time.perf_counter() - start) / n


def _host_clock_alone(work: Callable[[], Any], n: int) -> float:
    work()
    start = time.perf_counter()
    for _ in range(n):
        work()
    return 1e3 * (time.perf_counter() - start) / n


def _both_before(work: Callable[[], Any], n: int) -> float:
    cp = session.cp()
    work()
    start, end = cp.cuda.Event(), cp.cuda.Event()
    start.record()
    end.record()
    for _ in range(n):
        work()
    end.synchronize()
    return float(cp.cuda.get_elapsed_time(start, end)) / n


def _untimed(work: Callable[[], Any], n: int) -> float:
    cp = session.cp()
    work()
    start, end = (cp.cuda.Event(disable_timing=True) for _ in range(2))
    start.record()
    for _ in range(n):
        work()
    end.record()
    end.synchronize()
    return float(cp.cuda.get_elapsed_time(start, end)) / n


def _each(work: Callable[[], Any], n: int) -> list[float]:
    return [_events(work, 1, warm=not number) for number in range(n)]


def _pairs(work: Callable[[], Any], n: int) -> float:
    cp = session.cp()
    work()
    pairs = []
    for _ in range(n):
        begin = cp.cuda.get_current_stream().record()
        work()
        pairs.append((begin, cp.cuda.get_current_stream().record()))
    pairs[-1][1].synchronize()
    return sum(float(cp.cuda.get_elapsed_time(*pair)) for pair in pairs) / n


def _aside(work: Callable[[], Any], n: int) -> float:
    with session.cp().cuda.Stream(non_blocking=True):
        return _events(work, n)


def _waits_for(what: Callable[[Any], Any]) -> Callable[..., float]:
    return lambda work, n: _events(work, n, wait=what)


_STOPWATCHES = (
    Wrong("07-stopwatch", "the host's clock alone", _host_clock_alone, "", "the host's clock"),
    Wrong("07-stopwatch", "the host's clock, with a wait", _host_clock, "", "the host's clock"),
    Wrong("07-stopwatch", "waits after each call", _waits_between, "", "Enqueue all calls, and then wait once"),
    Wrong("07-stopwatch", "no warm-up", lambda w, n: _events(w, n, warm=False), "", "first, cold call"),
    Wrong("07-stopwatch", "no wait", _waits_for(lambda end: None), "", "not ready"),
    Wrong("07-stopwatch", "events on the default stream",
          lambda w, n: _events(w, n, stream=lambda: session.cp().cuda.Stream.null), "", "Record both in the stream"),
    Wrong("07-stopwatch", "events on a new stream",
          lambda w, n: _events(w, n, stream=lambda: session.cp().cuda.Stream(non_blocking=True)), "",
          "Record both in the stream"),
    Wrong("07-stopwatch", "the whole device", _waits_for(lambda end: session.cp().cuda.Device().synchronize()), "",
          "the whole device"),
    Wrong("07-stopwatch", "does not divide by n", lambda w, n: _events(w, n, over=lambda n: 1), "", "divide by n"),
    Wrong("07-stopwatch", "in seconds", lambda w, n: _events(w, n) / 1e3, "", "milliseconds already"),
    Wrong("07-stopwatch", "microseconds", lambda w, n: _events(w, n) * 1e3, "", "not microseconds"),
    Wrong("07-stopwatch", "warm-up timed as well", lambda w, n: _events(w, n, warm=False, early=True), "",
          "record the first event after it"),
    Wrong("07-stopwatch", "both events before", _both_before, "", "one after"),
    Wrong("07-stopwatch", "events without time", _untimed, "", "disable_timing"),
    Wrong("07-stopwatch", "calls nothing", lambda w, n: 0.5, "", "never calls"),
    Wrong("07-stopwatch", "returns a string", lambda w, n: f"{_events(w, n)} ms", "", "Return a number"),
    Wrong("07-stopwatch", "one timed call", lambda w, n: [w() for _ in range(n)] and _events(w, 1), "", "calls differ"),
    Wrong("07-stopwatch", "the fastest", lambda w, n: min(_each(w, n)), "", "calls differ"),
    Wrong("07-stopwatch", "the middle one", lambda w, n: sorted(_each(w, n))[n // 2], "", "calls differ"),
    Wrong("07-stopwatch", "waits for all before it starts",
          lambda w, n: (session.cp().cuda.Device().synchronize(), _events(w, n))[1], "", "the whole device"),
    Wrong("07-stopwatch", "waits for the default stream",
          lambda w, n: (_events(w, n), session.cp().cuda.Stream.null.synchronize())[0], "", "another stream"),
    Wrong("07-stopwatch", "ten calls at most", lambda w, n: _events(w, min(n, 10)), "", "and then"),
    Wrong("07-stopwatch", "in a stream of its own", _aside, "", "Call it in the current stream"),
    Wrong("07-stopwatch", "one call too many", lambda w, n: _events(w, n, calls=lambda n: n + 1), "", "nothing else in between"),
    Right("07-stopwatch", "two events", _events),
    Right("07-stopwatch", "several calls to warm up", lambda w, n: [w() for _ in range(3)] and _events(w, n)),
    Right("07-stopwatch", "an event pair for each call", _pairs),
    Right("07-stopwatch", "the stream is waited for",
          _waits_for(lambda end: session.cp().cuda.get_current_stream().synchronize())),
    Right("07-stopwatch", "polling", _waits_for(lambda end: [None for _ in iter(lambda: end.done, True)])),
    Right("07-stopwatch", "work of its own afterwards", lambda w, n: (_events(w, n), session.cp().zeros(9).sum())[0]),
    Right("07-stopwatch", "NumPy's number", lambda w, n: np.float32(_events(w, n))),
)

# 07-race


def _energy(x: Any, there: bool = True, back: bool = True, **change: Any) -> Any:
    cp = session.cp()
    here = cp.cuda.get_current_stream()
    stream = change.get("make", lambda: cp.cuda.Stream(non_blocking=True))()
    scaled = x * 0.5
    if there:
        change.get("before", lambda: stream.wait_event(here.record()))()
    with stream:
        total = (scaled * scaled).sum()
    if back:
        change.get("after", lambda: here.wait_event(stream.record()))()
    return total


def _early_event(x: Any) -> Any:
    cp = session.cp()
    here, stream = cp.cuda.get_current_stream(), cp.cuda.Stream(non_blocking=True)
    ready = here.record()
    scaled = x * 0.5
    stream.wait_event(ready)
    with stream:
        total = (scaled * scaled).sum()
    here.wait_event(stream.record())
    return total


def _the_wrong_way_round(x: Any) -> Any:
    cp = session.cp()
    here, stream = cp.cuda.get_current_stream(), cp.cuda.Stream(non_blocking=True)
    scaled = x * 0.5
    here.wait_event(stream.record())
    with stream:
        total = (scaled * scaled).sum()
    here.wait_event(stream.record())
    return total


def _wait_after_the_work(x: Any) -> Any:
    cp = session.cp()
    here, stream = cp.cuda.get_current_stream(), cp.cuda.Stream(non_blocking=True)
    scaled = x * 0.5
    with stream:
        total = (scaled * scaled).sum()
    stream.wait_event(here.record())
    here.wait_event(stream.record())
    return total


def _never_recorded(x: Any) -> Any:
    cp = session.cp()
    here, stream, ready = cp.cuda.get_current_stream(), cp.cuda.Stream(non_blocking=True), cp.cuda.Event()
    scaled = x * 0.5
    stream.wait_event(ready)
    with stream:
        total = (scaled * scaled).sum()
    here.wait_event(stream.record())
    return total


def _default_event(x: Any) -> Any:
    cp = session.cp()
    here, stream = cp.cuda.get_current_stream(), cp.cuda.Stream(non_blocking=True)
    scaled = x * 0.5
    stream.wait_event(cp.cuda.Stream.null.record())
    with stream:
        total = (scaled * scaled).sum()
    here.wait_event(stream.record())
    return total


def _host_waits(x: Any) -> Any:
    cp = session.cp()
    here, stream = cp.cuda.get_current_stream(), cp.cuda.Stream(non_blocking=True)
    scaled = x * 0.5
    here.synchronize()
    with stream:
        total = (scaled * scaled).sum()
    stream.synchronize()
    return total


def _device_waits(x: Any) -> Any:
    cp = session.cp()
    stream = cp.cuda.Stream(non_blocking=True)
    scaled = x * 0.5
    cp.cuda.Device().synchronize()
    with stream:
        total = (scaled * scaled).sum()
    cp.cuda.get_current_stream().wait_event(stream.record())
    return total


def _one_stream(x: Any) -> Any:
    scaled = x * 0.5
    return (scaled * scaled).sum()


def _finishes_here(x: Any) -> Any:
    cp = session.cp()
    here, stream = cp.cuda.get_current_stream(), cp.cuda.Stream(non_blocking=True)
    stream.wait_event(here.record())
    with stream:
        scaled = x * 0.5
        total = (scaled * scaled).sum()
    here.wait_event(stream.record())
    result = total * 1
    stream.wait_event(here.record())  # the pool may give total to it again
    return result


def _timeless_events(x: Any) -> Any:
    cp = session.cp()
    here, stream = cp.cuda.get_current_stream(), cp.cuda.Stream(non_blocking=True, priority=-1)
    there, back = (cp.cuda.Event(disable_timing=True) for _ in range(2))
    scaled = x * 0.5
    there.record()
    stream.wait_event(there)
    with stream:
        total = (scaled * scaled).sum()
        back.record()
    here.wait_event(back)
    return total


def _three_streams(x: Any) -> Any:
    cp = session.cp()
    here, scaling, adding = (
        cp.cuda.get_current_stream(),
        *(cp.cuda.Stream(non_blocking=True) for _ in range(2)),
    )
    scaling.wait_event(here.record())
    with scaling:
        scaled = x * 0.5
    adding.wait_event(scaling.record())
    with adding:
        total = (scaled * scaled).sum()
    for stream in (scaling, here):  # the pool may give scaled to scaling again
        stream.wait_event(adding.record())
    return total


def _for_show(x: Any) -> Any:
    """The work in one stream, and the same in another one for nobody."""
    cp = session.cp()
    here, stream = cp.cuda.get_current_stream(), cp.cuda.Stream(non_blocking=True)
    scaled = x * 0.5
    stream.wait_event(here.record())
    total = (scaled * scaled).sum()
    with stream:
        (scaled * scaled).sum()
    here.wait_event(stream.record())
    return total


def _in_place(x: Any) -> Any:
    x *= np.float32(0.5)
    total = _energy(x * 2)
    x *= np.float32(2)
    return total


def _asks_until_it_is_done(x: Any) -> Any:
    cp = session.cp()
    stream = cp.cuda.Stream(non_blocking=True)
    scaled = x * 0.5
    ready = cp.cuda.get_current_stream().record()
    while not ready.done:
        pass
    with stream:
        total = (scaled * scaled).sum()
    cp.cuda.get_current_stream().wait_event(stream.record())
    return total


def _by_the_runtime(x: Any) -> Any:
    cp = session.cp()
    runtime, here, stream = cp.cuda.runtime, cp.cuda.get_current_stream(), cp.cuda.Stream(non_blocking=True)
    event = runtime.eventCreateWithFlags(runtime.eventDisableTiming)
    scaled = x * 0.5
    runtime.eventRecord(event, here.ptr)
    runtime.streamWaitEvent(stream.ptr, event)
    with stream:
        total = cp.dot(scaled, scaled)
    runtime.eventRecord(event, stream.ptr)
    runtime.streamWaitEvent(here.ptr, event)
    return total


_RACES = (
    Wrong("07-race", "the given program, unchanged", lambda x: _energy(x, there=False, back=False), "hazards", "wait"),
    Wrong("07-race", "only the way back", lambda x: _energy(x, there=False), "hazards", "wait"),
    Wrong("07-race", "only the way there", lambda x: _energy(x, back=False), "hazards", "wait"),
    Wrong("07-race", "the event is recorded too early", _early_event, "hazards", ""),
    Wrong("07-race", "the other one waits", _the_wrong_way_round, "hazards", ""),
    Wrong("07-race", "waits after the work", _wait_after_the_work, "hazards", ""),
    Wrong("07-race", "an event that was never recorded", _never_recorded, "hazards", ""),
    Wrong("07-race", "an event of the default stream", _default_event, "hazards", ""),
    Wrong("07-race", "a blocking stream", lambda x: _energy(x, False, False, make=lambda: session.cp().cuda.Stream()),
          "hazards", ""),
    Wrong("07-race", "the host waits", _host_waits, "counts", "leaves the host free"),
    Wrong("07-race", "the device is waited for", _device_waits, "counts", "leaves the host free"),
    Wrong("07-race", "a single stream", _one_stream, "counts", "Keep the two streams"),
    Wrong("07-race", "on the host", lambda x: np.float32(((x.get() * 0.5) ** 2).sum()), "results", "stay on the device"),
    Wrong("07-race", "forgets to halve", lambda x: _energy(2 * x), "results", ""),
    Wrong("07-race", "the second stream is for show", _for_show, "counts", "1 stream with work on which the result depends"),
    Wrong("07-race", "the host polls the event", _asks_until_it_is_done, "counts", "leaves the host free"),
    Wrong("07-race", "in double precision", lambda x: _energy(x).astype(np.float64), "results", "should be float32"),
    Wrong("07-race", "halves x itself", _in_place, "hazards", "belongs to its caller"),
    Right("07-race", "two events", _energy),
    Right("07-race", "one event of the runtime, twice", _by_the_runtime),
    Right("07-race", "events without time, an urgent stream", _timeless_events),
    Right("07-race", "most in the other stream", _finishes_here),
    Right("07-race", "three streams", _three_streams),
)

# 07-conveyor


def _conveyor(x: Any, y: Any, step: Any, **change: Any) -> Any:
    """A right conveyor, with parts that can be exchanged."""
    cp = session.cp()
    make = change.get("make", lambda: cp.cuda.Stream(non_blocking=True))
    streams = [make() for _ in range(change.get("streams", 3))]
    size = change.get("size", lambda n: max(1, -(-n // 8)))(x.size)
    buffers = {}
    for number, start in enumerate(range(0, change.get("until", lambda n: n)(x.size), size)):
        part = slice(start, start + size)
        with streams[number % len(streams)] as stream:
            buffer = change.get("buffer", lambda n: n)(number)
            if buffer not in buffers:
                buffers[buffer] = cp.empty(size, dtype=x.dtype)
            piece = buffers[buffer][: x[part].size]
            piece.set(change.get("source", lambda x: x)(x)[part])
            change.get("work", lambda step, piece: step(piece))(step, piece)
            piece.get(out=y[part], blocking=change.get("blocking", False))
            change.get("then", lambda stream: None)(stream)
    change.get("finally", lambda streams: [stream.synchronize() for stream in streams])(streams)
    return y


def _conveyors(**change: Any) -> Callable[..., Any]:
    return lambda x, y, step: _conveyor(x, y, step, **change)


def _three_stations(x: Any, y: Any, step: Any, hold: bool = True) -> Any:
    """One stream in, one to work, one out."""
    cp = session.cp()
    into, working, out = (cp.cuda.Stream(non_blocking=True) for _ in range(3))
    size = max(1, -(-x.size // 16))
    kept = []
    for start in range(0, x.size, size):
        part = slice(start, start + size)
        with into:
            piece = cp.empty(x[part].shape, dtype=x.dtype)
            piece.set(x[part])
        if hold:
            working.wait_event(into.record())
        with working:
            step(piece)
        out.wait_event(working.record())
        piece.get(stream=out, out=y[part], blocking=False)
        kept.append(piece)
    out.synchronize()
    return y


def _an_event_for_each(x: Any, y: Any, step: Any) -> Any:
    cp = session.cp()
    ends, size = [], max(1, -(-x.size // 6))
    for start in range(0, x.size, size):
        with cp.cuda.Stream(non_blocking=True) as stream:
            piece = cp.asarray(x[start : start + size])
            step(piece)
            piece.get(out=y[start : start + size], blocking=False)
            ends.append((stream.record(cp.cuda.Event(block=True, disable_timing=True)), piece, stream))
    for end, *_ in ends:
        end.synchronize()
    return y


def _all_in_first(x: Any, y: Any, step: Any) -> Any:
    cp = session.cp()
    streams = [cp.cuda.Stream(non_blocking=True) for _ in range(4)]
    a = cp.asarray(x)
    size = max(1, -(-x.size // 4))
    cp.cuda.get_current_stream().synchronize()
    for number, start in enumerate(range(0, x.size, size)):
        with streams[number]:
            step(a[start : start + size])
    for stream in streams:
        stream.synchronize()
    a.get(out=y)
    return y


def _whole_for_each(x: Any, y: Any, step: Any) -> Any:
    cp = session.cp()
    streams = [cp.cuda.Stream(non_blocking=True) for _ in range(3)]
    size, kept = max(1, -(-x.size // 8)), []
    for number, start in enumerate(range(0, x.size, size)):
        with streams[number % 3]:
            a = cp.asarray(x)
            piece = a[start : start + size]
            step(piece)
            piece.get(out=y[start : start + size], blocking=False)
            kept.append(a)
    for stream in streams:
        stream.synchronize()
    return y


def _nine_pieces(x: Any, y: Any, step: Any) -> Any:
    _conveyor(x[: 9 << 16], y[: 9 << 16], step, size=lambda n: 1 << 16)
    return y


_CONVEYORS = (
    Wrong("07-conveyor", "nobody waits", _conveyors(**{"finally": lambda streams: None}), "hazards", ""),
    Wrong("07-conveyor", "waits for one stream", _conveyors(**{"finally": lambda streams: streams[0].synchronize()}),
          "hazards", ""),
    Wrong("07-conveyor", "one buffer", _conveyors(buffer=lambda number: 0), "hazards", ""),
    Wrong("07-conveyor", "two buffers for three streams", _conveyors(buffer=lambda number: number % 2), "hazards", ""),
    Wrong("07-conveyor", "work does not wait for its piece", lambda x, y, step: _three_stations(x, y, step, hold=False),
          "hazards", ""),
    Wrong("07-conveyor", "waits for the whole device",
          _conveyors(**{"finally": lambda streams: session.cp().cuda.Device().synchronize()}), "counts", "your own streams"),
    Wrong("07-conveyor", "one stream", _conveyors(streams=1), "counts", "several non-blocking streams"),
    Wrong("07-conveyor", "one after the other", exercises.conveyor_in_one_piece, "counts", "Cut x into pieces"),
    Wrong("07-conveyor", "pageable copies", _conveyors(source=np.array), "counts", "x and y are pinned"),
    Wrong("07-conveyor", "waits for each piece", _conveyors(then=lambda stream: stream.synchronize()), "counts", ""),
    Wrong("07-conveyor", "get() that blocks", _conveyors(blocking=True), "counts", "blocking=False"),
    Wrong("07-conveyor", "one piece", _conveyors(size=lambda n: max(1, n)), "counts", "Cut x into pieces"),
    Wrong("07-conveyor", "all in first, all out last", _all_in_first, "counts", "Cut x into pieces"),
    Wrong("07-conveyor", "everything for each piece", _whole_for_each, "counts", "over the bus once"),
    Wrong("07-conveyor", "loses the rest", _conveyors(until=lambda n: n // 8 * 8, size=lambda n: max(1, n // 8)),
          "results", ""),
    Wrong("07-conveyor", "forgets the work", _conveyors(work=lambda step, piece: None), "results", ""),
    Wrong("07-conveyor", "works twice", _conveyors(work=lambda step, piece: [step(piece), step(piece)]), "results", ""),
    Wrong("07-conveyor", "fails for an empty array", _conveyors(size=lambda n: -(-n // 8)), "results", "with 0 elements"),
    Wrong("07-conveyor", "nine pieces at most", _nine_pieces, "results", "nan"),
    Right("07-conveyor", "three streams in turns", exercises.conveyor),
    Right("07-conveyor", "pieces of one size", _conveyors(size=lambda n: 1 << 16)),
    Right("07-conveyor", "a buffer for each stream", _conveyors(buffer=lambda number: number % 3)),
    Right("07-conveyor", "two streams, 16 pieces, and nothing is returned", lambda x, y, step: [
          _conveyors(streams=2, size=lambda n: max(1, -(-n // 16)))(x, y, step), None][1]),
    Right("07-conveyor", "a stream for copies in, one for work, one for copies out", _three_stations),
    Right("07-conveyor", "a stream and an event for each piece", _an_event_for_each),
    Right("07-conveyor", "blocking streams", _conveyors(make=lambda: session.cp().cuda.Stream())),
)

# 07-rollout


_ROLLOUTS = (
    Wrong("07-rollout", "nobody waits", rollouts.rollouts(wait=lambda number, streams, events: None), "hazards", ""),
    Wrong("07-rollout", "waits for the other one", rollouts.rollouts(wait=lambda n, streams, events: streams[1 - n].synchronize()),
          "hazards", ""),
    Wrong("07-rollout", "the event comes before the copy", rollouts.rollouts(early=True, wait=lambda n, s, events: events[n].synchronize()),
          "hazards", ""),
    Wrong("07-rollout", "one input for both", rollouts.rollouts(shared=True), "hazards", ""),
    Wrong("07-rollout", "waits for the whole device", rollouts.rollouts(wait=lambda n, s, e: session.cp().cuda.Device().synchronize()), "counts",
          "not for both"),
    Wrong("07-rollout", "waits for both streams", rollouts.rollouts(wait=lambda n, streams, e: [s.synchronize() for s in streams]), "counts",
          "request the next decision"),
    Wrong("07-rollout", "ask, wait, step", exercises.in_turns, "counts", "While the host steps one"),
    Wrong("07-rollout", "both environments in lockstep", rollouts.lockstep, "counts", "While the host steps one"),
    Wrong("07-rollout", "get() that blocks", rollouts.rollouts(get=lambda a, env: a.get(out=env.action)), "counts",
          "While the host steps one"),
    Wrong("07-rollout", "nobody waits for the last decision", rollouts.rollouts(extra=True), "hazards", "is freed"),
    Wrong("07-rollout", "calls the policy twice per step",
          rollouts.rollouts(get=lambda a, env: [a.get(out=env.action, blocking=False), work.decide(a)]), "counts", "Call `policy` exactly once"),
    Wrong("07-rollout", "steps before the first decision", rollouts.rollouts(first=False, extra=True), "results", ""),
    Wrong("07-rollout", "decides before the step", rollouts.asks_before_the_step, "results", ""),
    Wrong("07-rollout", "sees the other one's world", rollouts.rollouts(seen=lambda env: env.action), "results", ""),
    Wrong("07-rollout", "steps one environment only", rollouts.rollouts(step=lambda envs, n: envs[0].step()), "results", "steps instead of"),
    Wrong("07-rollout", "the host decides", rollouts.decides_on_the_host, "counts", "on the device"),
    Wrong("07-rollout", "returns what is seen", lambda envs, policy, steps: [e.observation for e in rollouts.rollout(envs, policy, steps)],
          "results", "must return `envs`"),
    Right("07-rollout", "a stream for each", exercises.rollout),
    Right("07-rollout", "an event for each", rollouts.rollouts(wait=lambda n, streams, events: events[n].synchronize())),
    Right("07-rollout", "polling", rollouts.rollouts(wait=lambda n, s, events: [None for _ in iter(lambda: events[n].done, True)])),
    Right("07-rollout", "one stream, two events", rollouts.one_stream_two_events),
    Right("07-rollout", "through memory that it page-locks itself",
          rollouts.rollouts(get=lambda a, env: a.get(out=env.action, blocking=False), seen=lambda env: np.array(env.observation))),
)

_ALL: tuple[Wrong | Right, ...] = (*_STOPWATCHES, *_RACES, *_CONVEYORS, *_ROLLOUTS)
WRONG = [one for one in _ALL if isinstance(one, Wrong)]
RIGHT = [one for one in _ALL if isinstance(one, Right)]
