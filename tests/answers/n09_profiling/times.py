"""Wrong and right answers to the exercises on time."""

from __future__ import annotations

import functools
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from itertools import pairwise
from typing import Any

from gpulab import session
from gpulab_course.content.n09_profiling.times import exercises
from tests.answers import Right, Wrong
from tests.answers.n09_profiling import times_answers as answers

Layer = Callable[..., Any]


def _range(name: str, **more: Any) -> Any:
    return session.cupyx().profiler.time_range(name, **more)


def _each(make: Callable[[int, Layer], Layer]) -> Callable[[list[Layer]], list[Layer]]:
    return lambda layers: [make(number, layer) for number, layer in enumerate(layers)]


def _named(name: Callable[[int, Layer], str], **more: Any) -> Callable[[list[Layer]], list[Layer]]:
    def make(number: int, layer: Layer) -> Layer:
        def run(*args: Any, **kwargs: Any) -> Any:
            with _range(name(number, layer), **more):
                return layer(*args, **kwargs)

        return run

    return _each(make)


def _no_finally(number: int, layer: Layer) -> Layer:
    def run(*args: Any, **kwargs: Any) -> Any:
        nvtx = session.cp().cuda.nvtx
        nvtx.RangePush(f"layer {number}")
        out = layer(*args, **kwargs)
        nvtx.RangePop()
        return out

    return run


def _finally(number: int, layer: Layer) -> Layer:
    def run(*args: Any, **kwargs: Any) -> Any:
        nvtx = session.cp().cuda.nvtx
        nvtx.RangePush(f"layer {number}")
        try:
            return layer(*args, **kwargs)
        finally:
            nvtx.RangePop()

    return run


def _other_thread(number: int, layer: Layer) -> Layer:
    def run(*args: Any, **kwargs: Any) -> Any:
        nvtx = session.cp().cuda.nvtx
        nvtx.RangePush(f"layer {number}")
        try:
            return layer(*args, **kwargs)
        finally:
            ending = threading.Thread(target=nvtx.RangePop)
            ending.start()
            ending.join()

    return run


def _in_a_worker(number: int, layer: Layer) -> Layer:
    def run(*args: Any, **kwargs: Any) -> Any:
        out: list[Any] = []
        with _range(f"layer {number}"):
            worker = threading.Thread(target=lambda: out.append(layer(*args, **kwargs)))
            worker.start()
            worker.join()
        return out[0] if out else None

    return run


def _marked(number: int, layer: Layer) -> Layer:
    def run(*args: Any, **kwargs: Any) -> Any:
        session.cp().cuda.nvtx.Mark(f"layer {number}")
        return layer(*args, **kwargs)

    return run


def _around_nothing(number: int, layer: Layer) -> Layer:
    def run(*args: Any, **kwargs: Any) -> Any:
        with _range(f"layer {number}"):
            pass
        return layer(*args, **kwargs)

    return run


def _when_made(number: int, layer: Layer) -> Layer:
    with _range(f"layer {number}"):
        return lambda *args, **kwargs: layer(*args, **kwargs)


def _swallows(number: int, layer: Layer) -> Layer:
    def run(*args: Any, **kwargs: Any) -> Any:
        with _range(f"layer {number}"):
            try:
                return layer(*args, **kwargs)
            except Exception:
                return None

    return run


def _positions_only(number: int, layer: Layer) -> Layer:
    def run(x: Any, *args: Any, **kwargs: Any) -> Any:
        with _range(f"layer {number}"):
            return layer(x, *args)

    return run


def _one_and_names(number: int, layer: Layer) -> Layer:
    def run(x: Any, **kwargs: Any) -> Any:
        with _range(f"layer {number}"):
            return layer(x, **kwargs)

    return run


def _exceptions_only(number: int, layer: Layer) -> Layer:
    def run(*args: Any, **kwargs: Any) -> Any:
        nvtx = session.cp().cuda.nvtx
        nvtx.RangePush(f"layer {number}")
        try:
            out = layer(*args, **kwargs)
        except Exception:
            nvtx.RangePop()
            raise
        nvtx.RangePop()
        return out

    return run


def _no_result(number: int, layer: Layer) -> Layer:
    def run(*args: Any, **kwargs: Any) -> None:
        with _range(f"layer {number}"):
            layer(*args, **kwargs)

    return run


def _late(layers: list[Layer]) -> list[Layer]:
    made = []
    for number, layer in enumerate(layers):

        def run(*args: Any, **kwargs: Any) -> Any:
            with _range(f"layer {number}"):  # noqa: B023
                return layer(*args, **kwargs)  # noqa: B023

        made.append(run)
    return made


def _ended_by_the_next(layers: list[Layer]) -> list[Layer]:
    opened: list[int] = []

    def make(number: int, layer: Layer) -> Layer:
        def run(*args: Any, **kwargs: Any) -> Any:
            nvtx = session.cp().cuda.nvtx
            if opened:
                nvtx.RangePop()
            opened[:] = [number]
            nvtx.RangePush(f"layer {number}")
            return layer(*args, **kwargs)

        return run

    return _each(make)(layers)


def _stack(layers: list[Layer]) -> list[Layer]:
    stack = ExitStack()

    def make(number: int, layer: Layer) -> Layer:
        def run(*args: Any, **kwargs: Any) -> Any:
            stack.enter_context(_range(f"layer {number}"))
            return layer(*args, **kwargs)

        return run

    return _each(make)(layers)


@contextmanager
def _pushed(name: str) -> Iterator[None]:
    nvtx = session.cp().cuda.nvtx
    nvtx.RangePushC(name, 0xFF76B900)
    try:
        yield
    finally:
        nvtx.RangePop()


def _in_a_context(number: int, layer: Layer) -> Layer:
    @functools.wraps(layer)
    def run(*args: Any, **kwargs: Any) -> Any:
        with _pushed(f"layer {number}"):
            return layer(*args, **kwargs)

    return run


class _Named:
    def __init__(self, number: int, layer: Layer) -> None:
        self.name, self.layer = f"layer {number}", layer

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        with _range(self.name, color_id=3):
            return self.layer(*args, **kwargs)


def _decorated(number: int, layer: Layer) -> Layer:
    found: Layer = _range(f"layer {number}")(layer)
    return found


def _again_and_again(layers: list[Layer]) -> list[Layer]:
    """One range object a layer, begun anew at each call."""
    ranges = [_range(f"layer {number}") for number in range(len(layers))]

    def make(number: int, layer: Layer) -> Layer:
        def run(*args: Any, **kwargs: Any) -> Any:
            with ranges[number]:
                return layer(*args, **kwargs)

        return run

    return _each(make)(layers)


def _tuple(layers: list[Layer]) -> tuple[Layer, ...]:
    return tuple(map(_finally, range(len(layers)), layers))


_RANGES = (
    Wrong("09-nvtx", "not ended after an exception", _each(_no_finally), "", "an exception prevents its end"),
    Wrong("09-nvtx", "ended in another thread", _each(_other_thread), "", "of its own thread only"),
    Wrong("09-nvtx", "the layer in another thread", _each(_in_a_worker), "", "in another thread"),
    Wrong("09-nvtx", "marks instead of ranges", _each(_marked), "", 'no range has the name "layer 0"'),
    Wrong("09-nvtx", "a range around nothing", _each(_around_nothing), "", "no work is launched in"),
    Wrong(
        "09-nvtx",
        "ranges where the functions are made",
        _each(_when_made),
        "",
        "no work is launched in",
    ),
    Wrong(
        "09-nvtx", "named after the function", _named(lambda number, layer: layer.__name__), "", "by position"
    ),
    Wrong("09-nvtx", "one name for all", _named(lambda number, layer: "layer"), "", "by position"),
    Wrong(
        "09-nvtx",
        "names that come again",
        _named(lambda number, layer: f"layer {number % 10}"),
        "",
        'no range has the name "layer 10"',
    ),
    Wrong("09-nvtx", "numbered from 1", _named(lambda number, layer: f"layer {number + 1}"), "", "from 0"),
    Wrong(
        "09-nvtx",
        "waits, so that the host's time is the device's",
        _named(lambda n, _: f"layer {n}", sync=True),
        "",
        "no wait is needed",
    ),
    Wrong("09-nvtx", "the loop's last variables", _late, "", "created in a loop"),
    Wrong("09-nvtx", "ended by the next layer", _ended_by_the_next, "", "never ended"),
    Wrong("09-nvtx", "the range is never ended", _stack, "", "never ended"),
    Wrong("09-nvtx", "swallows the exception", _each(_swallows), "", "does not reach the caller"),
    Wrong("09-nvtx", "arguments by place only", _each(_positions_only), "", "by position and by name"),
    Wrong("09-nvtx", "one array and names", _each(_one_and_names), "", "takes 1 positional argument"),
    Wrong("09-nvtx", "not ended after Ctrl-C", _each(_exceptions_only), "", "an exception prevents its end"),
    Wrong("09-nvtx", "does not return the result", _each(_no_result), "", "does not come back"),
    Wrong("09-nvtx", "returns one function", lambda layers: layers[0], "", "a list of 4 functions"),
    Wrong("09-nvtx", "the layers as they are", lambda layers: layers, "", 'no range has the name "layer 0"'),
    Right("09-nvtx", "a with block", _named(lambda number, layer: f"layer {number}")),
    Right("09-nvtx", "a finally", _each(_finally)),
    Right("09-nvtx", "a context of one's own, in colour", _each(_in_a_context)),
    Right("09-nvtx", "objects that can be called", _each(_Named)),
    Right("09-nvtx", "as a decorator", _each(_decorated)),
    Right("09-nvtx", "ranges kept", _again_and_again),
    Right("09-nvtx", "a tuple", _tuple),
)


# 09-first

Found = tuple[str, float]


def _amdahl(wall: float, part: float, speed: float) -> float:
    return wall / (wall - part * (1 - 1 / speed))


def _first_by(
    times: Callable[[Any, dict[str, float], str], float],
) -> Callable[[Any, dict[str, float]], Found]:
    """The kernel whose mending gives most by some reckoning."""

    def first(p: Any, faster: dict[str, float]) -> Found:
        found = {name: times(p, faster, name) for name in faster}
        best = max(found, key=lambda name: found[name])
        return best, found[best]

    return first


def _on_path(p: Any) -> dict[str, float]:
    parts: dict[str, float] = {}
    for step in p.timeline.critical_path():
        parts[step.name] = parts.get(step.name, 0) + step.duration_ns
    return parts


def _path_times(p: Any, faster: dict[str, float], name: str) -> float:
    return _amdahl(p.record.wall_ns, _on_path(p).get(name, 0), faster[name])


def _of_all_calls(p: Any, faster: dict[str, float], found: Found) -> Found:
    total = p.record.kernel(found[0]).device_time_total_ns
    return found[0], _amdahl(p.record.wall_ns, total, faster[found[0]])


def _of_a_stream(at: int) -> Callable[[Any, dict[str, float]], Found]:
    """Reckons with the kernels of one stream, as if nothing else kept the program waiting."""

    def times(p: Any, faster: dict[str, float], name: str) -> float:
        ran = [a for a in p.timeline.record.activities if a.name in faster]
        stream = sorted({a.stream_id for a in ran})[at]
        mine = sum(a.duration_ns for a in ran if a.name == name and a.stream_id == stream)
        return _amdahl(p.record.wall_ns, mine, faster[name])

    return _first_by(times)


def _picked(pick: Callable[[Any, str], float]) -> Callable[[Any, dict[str, float]], Found]:
    """A kernel by what catches the eye, with the right formula for it."""

    def first(p: Any, faster: dict[str, float]) -> Found:
        name = max(faster, key=lambda name: pick(p, name))
        return name, _path_times(p, faster, name)

    return first


def _total(p: Any, name: str) -> float:
    return float(p.record.kernel(name).device_time_total_ns)


def _gpu_share(p: Any, faster: dict[str, float], name: str) -> float:
    return _amdahl(sum(_total(p, each) for each in faster), _total(p, name), faster[name])


def _largest_factor(p: Any, faster: dict[str, float]) -> Found:
    name = max(faster, key=lambda name: faster[name])
    return name, _path_times(p, faster, name)


def _said(change: Callable[[Any, dict[str, float], Found], Any]) -> Callable[[Any, dict[str, float]], Any]:
    """The right kernel, with another figure."""
    return lambda p, faster: change(p, faster, _first_by(_path_times)(p, faster))


def _alone(p: Any, name: str) -> float:
    """How long nothing but this kernel ran."""
    record = p.timeline.record
    edges = sorted({t for a in record.activities for t in (a.start_ns, a.end_ns)})
    total = 0.0
    for begin, end in pairwise(edges):
        running = {a.name for a in record.activities if a.start_ns <= begin and a.end_ns >= end}
        total += (end - begin) * (running == {name})
    return total


def _by_stream(p: Any, faster: dict[str, float], name: str) -> float:
    """Of the stream that is busy for longest."""
    sums: dict[int, float] = {}
    parts: dict[int, float] = {}
    for a in p.timeline.record.activities:
        sums[a.stream_id] = sums.get(a.stream_id, 0) + a.duration_ns
        parts[a.stream_id] = parts.get(a.stream_id, 0) + a.duration_ns * (a.name == name)
    longest = max(sums, key=lambda stream: sums[stream])
    return _amdahl(p.record.wall_ns, parts[longest], faster[name])


def _replayed(p: Any, faster: dict[str, float], name: str) -> float:
    """Every operation again, with this kernel's times divided: each begins when what it follows has ended."""
    record = p.timeline.record
    calls = {c.correlation_id: c.start_ns for c in record.calls}

    def end(speed: float) -> float:
        ends: dict[int, float] = {}
        for a in sorted(record.activities, key=lambda a: a.correlation_id):
            start = max([calls[a.correlation_id], *(ends[n] for n in a.after if n in ends)])
            ends[a.correlation_id] = start + a.duration_ns / (speed if a.name == name else 1)
        return max(ends.values())

    return float(record.duration_ns / (record.duration_ns - end(1) + end(faster[name])))


def _from_the_end(p: Any, faster: dict[str, float], name: str) -> float:
    """The chain from the last operation backwards, through what each had to follow."""
    record = p.timeline.record
    by_number = {a.correlation_id: a for a in record.activities}
    at, part = max(record.activities, key=lambda a: a.end_ns), 0
    while True:
        part += at.duration_ns * (at.name == name)
        before = [by_number[n] for n in at.after if n in by_number]
        if not before:
            return _amdahl(p.record.wall_ns, part, faster[name])
        at = max(before, key=lambda a: a.end_ns)


_FIRSTS = (
    Wrong(
        "09-first",
        "the slowest call",
        _picked(lambda p, name: p.record.kernel(name).device_time_ns),
        "",
        "longest time per call",
    ),
    Wrong("09-first", "the most calls", _picked(lambda p, name: p.record.kernel(name).count), "", ""),
    Wrong("09-first", "the largest share of the GPU", _picked(_total), "", "does not wait for hidden work"),
    Wrong("09-first", "the least efficient", _largest_factor, "", "how far a kernel is below its peak"),
    Wrong("09-first", "shares of the GPU instead of the wall", _first_by(_gpu_share), "", ""),
    Wrong(
        "09-first",
        "all of the kernel's time on the wall",
        _first_by(lambda p, faster, name: _amdahl(p.record.wall_ns, _total(p, name), faster[name])),
        "",
        "does not wait for hidden work",
    ),
    Wrong(
        "09-first",
        "only while nothing else runs",
        _first_by(lambda p, faster, name: _amdahl(p.record.wall_ns, _alone(p, name), faster[name])),
        "",
        "",
    ),
    Wrong(
        "09-first",
        "the kernel's own factor",
        _said(lambda p, faster, found: (found[0], faster[found[0]])),
        "",
        "the rest of the program stays",
    ),
    Wrong(
        "09-first",
        "the share of the time that is saved",
        _said(lambda p, faster, found: (found[0], 1 - 1 / found[1])),
        "",
        "the share of the time that is saved",
    ),
    Wrong(
        "09-first",
        "the time after divided by the time before",
        _said(lambda p, faster, found: (found[0], 1 / found[1])),
        "",
        "the other way round",
    ),
    Wrong(
        "09-first",
        "as if it went away",
        _said(
            lambda p, faster, found: (found[0], p.record.wall_ns / (p.record.wall_ns - _on_path(p)[found[0]]))
        ),
        "",
        "it does not go away",
    ),
    Wrong(
        "09-first",
        "the GPU's share in the formula",
        _said(lambda p, faster, found: (found[0], _gpu_share(p, faster, found[0]))),
        "",
        "the share of the GPU's time",
    ),
    Wrong("09-first", "the first stream's kernels", _of_a_stream(0), "", ""),
    Wrong("09-first", "the last stream's kernels", _of_a_stream(-1), "", ""),
    Wrong(
        "09-first", "the path's kernel, and all of its time", _said(_of_all_calls), "", "behind other work"
    ),
    Wrong("09-first", "returns only the name", _said(lambda p, faster, found: found[0]), "", "how many times as fast"),
    Wrong("09-first", "names a copy instead of a kernel", _said(lambda p, faster, found: ("memcpy", 2.0)), "", "the program's kernels are"),
    Right("09-first", "the critical path", _first_by(_path_times)),
    Right("09-first", "the longest stream", _first_by(_by_stream)),
    Right("09-first", "played again with other times", _first_by(_replayed)),
    Right("09-first", "backwards from the end", _first_by(_from_the_end)),
)


# 09-timelines

_MENDED: dict[str, tuple[str, Any]] = {
    "A": ("launches", answers.one_launch), "B": ("copies", answers.copied_once), "C": ("waits", answers.collected),
    "D": ("one stream", answers.side_by_side),
}


def _with(**other: Any) -> dict[str, Any]:
    return _MENDED | other


_TIMELINES = (
    Wrong("09-timelines", "the programs as they are", {key: tuple(pair) for key, pair in exercises.PROGRAMS.items()},
          "", "still has this cause"),
    Wrong("09-timelines", "the most frequent thing", _with(C=("launches", answers.collected)),
          "", "in each iteration the host waits"),
    Wrong("09-timelines", "copies, since there are some", _with(C=("copies", answers.collected)),
          "", "in each iteration the host waits"),
    Wrong("09-timelines", "waits, since the host waits", _with(B=("waits", answers.copied_once)),
          "", "a copy of data that does not change"),
    Wrong("09-timelines", "launches, since it has some", _with(D=("launches", answers.side_by_side)),
          "", "independent pieces of work"),
    Wrong("09-timelines", "a cause that is not in the list", _with(A=("latency", answers.one_launch)), "", "is not one of"),
    Wrong("09-timelines", "returns only the causes", {key: cause for key, (cause, _) in _MENDED.items()},
          "", "four pairs"),
    Wrong("09-timelines", "three of four", {key: pair for key, pair in _MENDED.items() if key != "D"},
          "", "four pairs"),
    Wrong("09-timelines", "faster kernels where the host is the limit", _with(A=("launches", answers.more_blocks)),
          "", "the host still launches"),
    Wrong("09-timelines", "a graph that runs once", _with(A=("launches", answers.in_a_graph)),
          "", "hardly shorter"),
    Wrong("09-timelines", "A on a copy", _with(A=("launches", answers.on_a_copy)), "", "leaves other values in its arguments"),
    Wrong("09-timelines", "B changes its arguments", _with(B=("copies", answers.into_the_parts)),
          "", "leaves other values in its arguments"),
    Wrong("09-timelines", "B keeps results by array", _with(B=("copies", answers.kept_by_array)), "", "not the same as"),
    Wrong("09-timelines", "B by length", _with(B=("copies", answers.kept_by_length)), "", "not the same as"),
    Wrong("09-timelines", "C on the device", _with(C=("waits", answers.left_there)),
          "", "numbers must stay numbers"),
    Wrong("09-timelines", "A does less work", _with(A=("launches", answers.fewer_rounds)), "", "not the same as"),
    Wrong("09-timelines", "page-locked, and copied again", _with(B=("copies", answers.pinned_again)),
          "", "still go to the device"),
    Wrong("09-timelines", "a copy that nobody waits for", _with(B=("copies", answers.in_another_stream)),
          "", "a race"),
    Wrong("09-timelines", "means beside the next stage", _with(C=("waits", answers.beside)), "", "a race"),
    Wrong("09-timelines", "get instead of float", _with(C=("waits", answers.waits_in_get)),
          "", "the host still waits"),
    Wrong("09-timelines", "the last mean for all", _with(C=("waits", answers.last_only)),
          "", "not the same as"),
    Wrong("09-timelines", "streams that nobody joins", _with(D=("one stream", answers.not_joined)),
          "", "a race"),
    Wrong("09-timelines", "streams that wait for nothing", _with(D=("one stream", answers.not_begun_in_order)),
          "", "a race"),
    Wrong("09-timelines", "a wait after each", _with(D=("one stream", answers.waits_between)),
          "", "hardly shorter"),
    Wrong("09-timelines", "more blocks than there is work for", _with(D=("one stream", answers.more_blocks_each)),
          "", "still share one stream"),
    Right("09-timelines", "one launch, one copy, one wait, a stream each", _with()),
    Right("09-timelines", "all parts in one kernel", _with(B=["copies", answers.in_one])),
    Right("09-timelines", "means in their places", _with(C=("waits", answers.into_places))),
    Right("09-timelines", "two streams and the host", _with(D=("one stream", answers.two_streams))),
)

DECLARED = (*_TIMELINES, *_RANGES, *_FIRSTS)
