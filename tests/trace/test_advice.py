"""Following the advice on the virtual GPU saves about the predicted time."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np
import pytest

import virtualgpu.cp as cp
from gpulab.analysis.advice import make_advice
from tests.trace.programs import Step, simulate, timeline_of
from virtualgpu.model import machine as slot
from virtualgpu.model.devices import device_info
from virtualgpu.model.machine import Machine
from virtualgpu.model.recording.timeline import Recording
from virtualgpu.records import Advice, Timeline

SIZE = 1 << 20


@pytest.fixture(autouse=True, params=["A100", "T4"])
def machine(request: pytest.FixtureRequest) -> Iterator[Machine]:
    previous = slot._current_machine.machine
    chosen = Machine([device_info(request.param)])
    slot.use(chosen)
    yield chosen
    slot._current_machine.machine = previous


def recorded(work: Callable[[], object]) -> Timeline:
    recording = Recording(slot.current())
    recording.start()
    work()
    return recording.stop()


def promised(timeline: Timeline, topic: str) -> Advice:
    return next(piece for piece in make_advice(timeline) if piece.topic == topic)


def pinned() -> np.ndarray:
    return np.frombuffer(cp.cuda.alloc_pinned_memory(4 * SIZE), np.float32, SIZE)


def saved(slow: Callable[[], object], fast: Callable[[], object], topic: str) -> float:
    """Return the saved time as a fraction of the time that the advice predicted."""
    slow(), fast()
    first = recorded(slow)
    second = recorded(fast)
    piece = promised(first, topic)
    return (first.duration_ns - second.duration_ns) / piece.gain_ns


def test_pinning_a_buffer_saves_the_predicted_time() -> None:
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


def test_removing_a_wait_saves_the_predicted_time() -> None:
    x = cp.ones(SIZE, cp.float32)

    def steps(look: bool) -> None:
        for _ in range(10):
            x.fill(1)
            x.fill(2)
            if look:
                float(x[0])
        cp.cuda.Device().synchronize()

    # If launches take longer than the work, the gain is less than the idle time.
    assert 0.6 < saved(lambda: steps(True), lambda: steps(False), "wait") < 1.25
    piece = promised(recorded(lambda: steps(True)), "wait")
    assert "`float(x[0])`" in piece.text


def test_a_graph_saves_the_predicted_time() -> None:
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


def test_a_second_stream_saves_the_predicted_time() -> None:
    hosts = [pinned() for _ in range(4)]
    arrays = [cp.zeros(SIZE, cp.float32) for _ in range(4)]

    def pieces(streams: int) -> None:
        queues = [cp.cuda.Stream(non_blocking=True) for _ in range(streams)]
        for index, (host, x) in enumerate(zip(hosts, arrays, strict=True)):
            with queues[index % streams]:
                x.set(host)
                for _ in range(20):
                    x.fill(1)
        cp.cuda.Device().synchronize()

    assert 0.8 < saved(lambda: pieces(1), lambda: pieces(2), "overlap") < 1.25


def test_a_program_without_a_weakness_gets_no_advice() -> None:
    assert make_advice(timeline_of()) == ()
    assert (
        make_advice(simulate([Step("launch", 1, 5_000, 4), Step("launch", 1, 5_000, 4), Step("wait", 1)]))
        == ()
    )


def test_copies_without_computation_get_no_overlap_advice() -> None:
    x = cp.zeros(SIZE, cp.float32)
    y = cp.zeros(SIZE, cp.float32)
    upload = pinned()
    download = pinned()

    def copies() -> None:
        for _ in range(3):
            x.set(upload)
            y.get(out=download)

    def computes() -> None:
        for _ in range(3):
            x.set(upload)
            cp.multiply(x, 2, out=y)
            y.get(out=download)

    for work in (copies, computes):
        work()
    assert "overlap" not in {piece.topic for piece in make_advice(recorded(copies))}
    assert "overlap" in {piece.topic for piece in make_advice(recorded(computes))}
