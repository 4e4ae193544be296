"""Advice: followed on the virtual GPU, it makes the program faster by about what was promised."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np
import pytest

import virtualgpu.cp as cp
from gpulab.analysis.advice import MAX_ADVICE, advice
from tests.trace.programs import MODELLED, Step, simulate
from virtualgpu.model import machine as slot
from virtualgpu.model.devices import device_info
from virtualgpu.model.machine import Machine
from virtualgpu.model.recording.timeline import Recording
from virtualgpu.records import Advice, Timeline

SIZE = 1 << 20


@pytest.fixture(autouse=True, params=["A100", "T4"])
def machine(request: pytest.FixtureRequest) -> Iterator[Machine]:
    previous = slot._slot.machine
    made = Machine([device_info(request.param)])
    slot.use(made)
    yield made
    slot._slot.machine = previous


def recorded(work: Callable[[], object]) -> Timeline:
    recording = Recording(slot.current())
    recording.start()
    work()
    return recording.stop()


def promised(timeline: Timeline, topic: str) -> Advice:
    return next(each for each in advice(timeline) if each.topic == topic)


def pinned() -> np.ndarray:
    return np.frombuffer(cp.cuda.alloc_pinned_memory(4 * SIZE), np.float32, SIZE)


def saved(before: Callable[[], object], after: Callable[[], object], topic: str) -> float:
    """What following an advice saved, as a part of what it promised."""
    before(), after()
    first = recorded(before)
    second = recorded(after)
    told = promised(first, topic)
    assert told.text.endswith(").")
    assert "up to about" in told.text
    return (first.duration_ns - second.duration_ns) / told.gain_ns


def test_pinning_a_buffer_saves_what_was_promised() -> None:
    x = cp.zeros(SIZE, cp.float32)
    slow = np.ones(SIZE, np.float32)
    fast = pinned()

    def copies(host: np.ndarray) -> None:
        for _ in range(4):
            x.set(host)
            x.fill(1)
        cp.cuda.Device().synchronize()

    assert 0.8 < saved(lambda: copies(slow), lambda: copies(fast), "pin") < 1.25
    lines = promised(recorded(lambda: copies(slow)), "pin").sources
    assert [line.text for line in lines] == ["x.set(host)"]


def test_removing_a_wait_saves_what_was_promised() -> None:
    x = cp.ones(SIZE, cp.float32)

    def steps(look: bool) -> None:
        for _ in range(10):
            x.fill(1)
            x.fill(2)
            if look:
                float(x[0])
        cp.cuda.Device().synchronize()

    # Where the launches alone take longer than the work, less is won than the idle time.
    assert 0.6 < saved(lambda: steps(True), lambda: steps(False), "wait") < 1.25
    told = promised(recorded(lambda: steps(True)), "wait")
    assert "`float(x[0])`" in told.text


def test_a_graph_saves_what_was_promised() -> None:
    stream = cp.cuda.Stream(non_blocking=True)
    x = cp.zeros(64, cp.float32)

    def steps() -> None:
        for _ in range(100):
            x.fill(1)

    with stream:
        stream.begin_capture()
        steps()
        graph = stream.end_capture()

        def launches() -> None:
            graph.launch()
            stream.synchronize()

        assert 0.8 < saved(lambda: (steps(), stream.synchronize()), launches, "graph") < 1.25


def test_a_second_stream_saves_what_was_promised() -> None:
    hosts = [pinned() for _ in range(4)]
    arrays = [cp.zeros(SIZE, cp.float32) for _ in range(4)]

    def pieces(streams: int) -> None:
        made = [cp.cuda.Stream(non_blocking=True) for _ in range(streams)]
        for at, (host, x) in enumerate(zip(hosts, arrays, strict=True)):
            with made[at % streams]:
                x.set(host)
                for _ in range(20):
                    x.fill(1)
        cp.cuda.Device().synchronize()

    assert 0.8 < saved(lambda: pieces(1), lambda: pieces(2), "overlap") < 1.25


def test_the_default_stream_s_rule_is_named() -> None:
    x = cp.zeros(SIZE, cp.float32)
    y = cp.zeros(SIZE)
    host = pinned()
    stream = cp.cuda.Stream()

    def work() -> None:
        x.set(host)
        with stream:
            y.fill(2)

    assert "non_blocking=True" in promised(recorded(work), "stream").text


def test_there_are_few_and_the_first_saves_most() -> None:
    x = cp.ones(SIZE, cp.float32)
    host = np.ones(SIZE, np.float32)

    def work() -> None:
        for _ in range(5):
            x.set(host)
            x.fill(3)
            float(x[0])
            cp.cuda.Device().synchronize()

    found = advice(recorded(work))
    assert 0 < len(found) <= MAX_ADVICE
    assert [a.gain_ns for a in found] == sorted((a.gain_ns for a in found), reverse=True)


def test_nothing_is_said_where_nothing_stands_out() -> None:
    assert advice(Timeline(provenance=MODELLED, method="model", start_ns=0, end_ns=0)) == ()
    assert advice(simulate([Step("launch", 1, 5_000, 4), Step("launch", 1, 5_000, 4), Step("wait", 1)])) == ()


def test_copies_alone_are_not_to_be_cut_for_overlap() -> None:
    x = cp.zeros(SIZE, cp.float32)
    y = cp.zeros(SIZE, cp.float32)
    there = pinned()
    back = pinned()

    def copies() -> None:
        for _ in range(3):
            x.set(there)
            y.get(out=back)

    def computes() -> None:
        for _ in range(3):
            x.set(there)
            cp.multiply(x, 2, out=y)
            y.get(out=back)

    for work in (copies, computes):
        work()
    assert "overlap" not in {each.topic for each in advice(recorded(copies))}
    assert "overlap" in {each.topic for each in advice(recorded(computes))}
