"""Random programs of streams against a reference scheduler, and their graphs against stream order."""

from __future__ import annotations

from typing import Any

import numpy as np
from hypothesis import example, given, settings
from hypothesis import strategies as st

import virtualgpu.cp as cp
from virtualgpu.model import machine as slot
from virtualgpu.model.clock import Engine
from virtualgpu.model.cost import HOST
from virtualgpu.model.devices import device_info
from virtualgpu.model.machine import Machine

LEGACY, BLOCKING, OTHER_BLOCKING, NON_BLOCKING = range(4)
# Whose work a stream waits for.
SEEN = {LEGACY: [0, 1, 2], BLOCKING: [0, 1], OTHER_BLOCKING: [0, 2], NON_BLOCKING: [3]}
STREAMS = st.integers(0, 3)
EVENTS = st.integers(0, 2)
KINDS = {"kernel": "compute", "DtoD": "compute", "memset": "compute", "HtoD": "in", "DtoH": "out"}

WORK = st.tuples(
    st.just("work"),
    STREAMS,
    st.sampled_from(sorted(KINDS)),
    st.integers(1, 60).map(lambda us: 1000 * us),
    st.sampled_from([0.25, 0.5, 0.75, 1.0]),
)
ACTIONS = st.one_of(
    *[WORK] * 5,
    st.tuples(st.just("record"), STREAMS, EVENTS),
    st.tuples(st.just("wait"), STREAMS, EVENTS),
    st.tuples(st.just("follow"), STREAMS, STREAMS),
    st.tuples(st.just("synchronize"), STREAMS),
    st.tuples(st.just("host"), st.integers(1, 40_000)),
)
PROGRAMS = st.lists(ACTIONS, min_size=5, max_size=40)


class Reference:
    """A simple scheduler: in-order queues, the legacy stream's rule, events, engines with a capacity of 1."""

    def __init__(self) -> None:
        self.now = 0
        self.tails = [0, 0, 0, 0]
        self.events: dict[int, int] = {}
        self.busy: dict[str, list[tuple[int, int, float]]] = {"compute": [], "in": [], "out": []}

    def ready(self, stream: int) -> int:
        return max(self.now, *(self.tails[other] for other in SEEN[stream]))

    def work(self, stream: int, kind: str, duration: int, share: float) -> tuple[int, int]:
        calls = {"kernel": HOST.kernel_ns, "memset": HOST.memory_set_ns}
        self.now += round(calls.get(kind, HOST.copy_ns))
        engine = self.busy[KINDS[kind]]
        ready = self.ready(stream)
        share = share if kind == "kernel" else 1.0

        def fits(start: int) -> bool:
            moments = [start, *(s for s, _, _ in engine if start < s < start + duration)]
            return all(sum(p for s, e, p in engine if s <= m < e) + share <= 1 for m in moments)

        start = min(t for t in [ready, *(e for _, e, _ in engine if e > ready)] if fits(t))
        engine.append((start, start + duration, share))
        self.tails[stream] = start + duration
        return start, start + duration

    def record(self, stream: int, event: int) -> None:
        self.events[event] = self.ready(stream)

    def wait(self, stream: int, event: int) -> None:
        self.tails[stream] = max(self.tails[stream], self.events.get(event, 0))

    def follow(self, stream: int, other: int) -> None:
        self.tails[stream] = max(self.tails[stream], self.ready(other))

    def synchronize(self, stream: int) -> None:
        self.now = max(self.now, self.ready(LEGACY) if stream == LEGACY else self.tails[stream])

    def host(self, duration: int) -> None:
        self.now += duration


class Streams:
    """The same actions on the virtual GPU."""

    def __init__(self) -> None:
        self.machine = Machine([device_info("A100")])
        slot.use(self.machine)
        make = cp.cuda.Stream
        self.streams: list[Any] = [make(null=True), make(), make(), make(non_blocking=True)]
        self.events = [cp.cuda.Event() for _ in range(3)]

    @property
    def now(self) -> int:
        return self.machine.clock.now_ns

    def work(self, stream: int, kind: str, duration: int, share: float) -> tuple[int, int]:
        options: dict[str, Any] = {"sm_share": share} if kind == "kernel" else {}
        if kind in ("HtoD", "DtoH", "DtoD"):
            options["copy_kind"] = kind
        name = {"kernel": "CONCURRENT_KERNEL", "memset": "MEMSET"}.get(kind, "MEMCPY")
        done = self.streams[stream].enqueue(name, kind, lambda: float(duration), **options)
        assert done is not None
        assert done is self.machine.devices[0].work_queue.log[-1]
        return done.start_ns, done.end_ns

    def record(self, stream: int, event: int) -> None:
        self.streams[stream].record(self.events[event])

    def wait(self, stream: int, event: int) -> None:
        self.streams[stream].wait_event(self.events[event])

    def follow(self, stream: int, other: int) -> None:
        self.streams[stream].wait_event(self.streams[other].record())

    def synchronize(self, stream: int) -> None:
        self.streams[stream].synchronize()

    def host(self, duration: int) -> None:
        self.machine.clock.advance(duration)


@settings(max_examples=150, deadline=None)
@given(PROGRAMS)
def test_start_and_end_times_equal_the_reference_scheduler(program: list[Any]) -> None:
    previous = slot._current_machine.machine
    try:
        reference = Reference()
        streams = Streams()
        for step, (name, *arguments) in enumerate(program):
            expected = getattr(reference, name)(*arguments)
            assert getattr(streams, name)(*arguments) == expected, (step, name, arguments)
            assert streams.now == reference.now, (step, name, arguments)
    finally:
        slot._current_machine.machine = previous


@settings(max_examples=150, deadline=None)
@given(PROGRAMS)
@example([("work", 2, "DtoD", 1000, 1.0), ("follow", 0, 0), ("work", 1, "DtoD", 1000, 1.0)])
def test_recorded_predecessors_equal_the_reference(program: list[Any]) -> None:
    """The transitive closure of ``after`` equals the set of operations that must end earlier."""
    previous = slot._current_machine.machine
    try:
        streams = Streams()
        fronts = [set[int]() for _ in range(4)]
        marks: dict[int, set[int]] = {}
        predecessors: dict[int, set[int]] = {}

        def front(stream: int) -> set[int]:
            return fronts[stream].union(*(fronts[other] for other in SEEN[stream]))

        for name, *arguments in program:
            getattr(streams, name)(*arguments)
            if name == "work":
                a = streams.machine.devices[0].work_queue.log[-1]
                predecessors[a.correlation_id] = set(a.after).union(
                    *(predecessors[number] for number in a.after)
                )
                assert predecessors[a.correlation_id] == front(arguments[0])
                fronts[arguments[0]] = front(arguments[0]) | {a.correlation_id}
            elif name == "record":
                marks[arguments[1]] = front(arguments[0])
            elif name == "follow":
                fronts[arguments[0]] |= front(arguments[1])
            elif name == "wait":
                fronts[arguments[0]] |= marks.get(arguments[1], set())
    finally:
        slot._current_machine.machine = previous


ADD = st.tuples(st.just("add"), st.integers(0, 2), st.integers(0, 3), st.integers(0, 3))
NODES = st.one_of(
    ADD,
    ADD,
    st.tuples(st.just("record"), st.integers(0, 2), EVENTS),
    st.tuples(st.just("wait"), st.integers(0, 2), EVENTS),
    st.tuples(st.just("follow"), st.integers(0, 2), st.integers(0, 2)),
)


@settings(max_examples=150, deadline=None)
@given(st.lists(NODES, min_size=5, max_size=30))
def test_graph_edges_give_the_same_order_as_streams_and_events(program: list[Any]) -> None:
    """The graph's edges define the same order as streams and events. A launch computes the same arrays."""
    previous = slot._current_machine.machine
    slot.use(Machine([device_info("A100")]))
    try:
        streams = [cp.cuda.Stream(non_blocking=True) for _ in range(3)]
        events = [cp.cuda.Event() for _ in range(3)]
        x = cp.ones(4, dtype=cp.int64)
        plain = [1, 1, 1, 1]
        before: list[set[int]] = []  # of each node: all that come before it
        front: list[set[int] | None] = [set(), None, None]  # None: not in the capture yet
        marks: dict[int, set[int]] = {}

        streams[0].begin_capture()
        for name, stream, *arguments in program:
            stream_front = front[stream]
            if name == "follow" and (other_front := front[arguments[0]]) is not None:
                streams[stream].wait_event(streams[arguments[0]].record())
                front[stream] = (stream_front or set()) | other_front
            elif name == "wait" and arguments[0] in marks:
                streams[stream].wait_event(events[arguments[0]])
                front[stream] = (stream_front or set()) | marks[arguments[0]]
            elif stream_front is not None and name == "record":
                streams[stream].record(events[arguments[0]])
                marks[arguments[0]] = stream_front
            elif stream_front is not None and name == "add":
                with streams[stream]:
                    x[arguments[0] : arguments[0] + 1] += x[arguments[1] : arguments[1] + 1]
                plain[arguments[0]] += plain[arguments[1]]
                for _ in range(2):  # the sum, and its assignment
                    before.append(front[stream] or set())
                    front[stream] = before[-1] | {len(before) - 1}
        for stream in (1, 2):
            if front[stream] is not None:
                streams[0].wait_event(streams[stream].record())
        graph = streams[0].end_capture()

        predecessors: list[set[int]] = []
        for node in graph._nodes:
            predecessors.append(
                set(node.predecessors).union(*(predecessors[number] for number in node.predecessors))
            )
        assert predecessors == before
        np.testing.assert_array_equal(x.get(), [1, 1, 1, 1])
        graph.launch()
        np.testing.assert_array_equal(x.get(), plain)
        ran = {a.graph_node_id: a for a in slot.current().devices[0].work_queue.log if a.graph_id}
        assert all(
            ran[b].end_ns <= ran[n].start_ns for n, numbers in enumerate(predecessors) for b in numbers
        )
    finally:
        slot._current_machine.machine = previous


def test_an_engine_drops_old_work_and_never_overlaps_it() -> None:
    """Above its capacity, the engine drops the older half. No work starts before the end of that half."""
    engine = Engine()
    capacity = 256

    def place(ready_ns: int, duration_ns: int, share: float) -> int:
        start = engine.find_earliest_start(ready_ns, duration_ns, share, 0)
        engine.reserve(start, start + duration_ns, share)
        return start

    for n in range(capacity + 1):
        assert place(20 * n, 10, 1.0) == 20 * n
    # Of 257 pieces the first 128 are gone: the gap after the 128th is the first that can be had.
    assert place(0, 10, 1.0) == 20 * 127 + 10
    assert place(0, 10, 1.0) == 20 * 128 + 10
    assert place(0, 11, 1.0) == 20 * capacity + 10
    assert place(20 * 300, 5, 0.5) == place(20 * 300, 5, 0.5) == 20 * 300
    assert place(20 * 300, 5, 0.5) == 20 * 300 + 5
