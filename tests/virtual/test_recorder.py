"""Timelines of the virtual GPU: operations, calls and waits, each with the program's line."""

from __future__ import annotations

import inspect
import threading
from typing import Any

import numpy as np
import pytest

import virtualgpu.cp as cp
from virtualgpu.errors import GpulabError
from virtualgpu.model.machine import Machine
from virtualgpu.model.recording.ranges import MAX_RANGES
from virtualgpu.model.recording.timeline import Recording
from virtualgpu.records import HostCall, Timeline

pytestmark = pytest.mark.usefixtures("machine")

ADD = 'extern "C" __global__ void add(float* x) { x[blockIdx.x * blockDim.x + threadIdx.x] += 1.0f; }'
Stream = cp.cuda.Stream


def recorded(machine: Machine, work: Any) -> Timeline:
    recorder = Recording(machine)
    recorder.start()
    try:
        work()
    finally:
        timeline = recorder.stop()
    return timeline


def call_of(timeline: Timeline, text: str) -> HostCall:
    """Return the only call of the test's line that contains `text`."""
    calls = [c for c in timeline.calls if c.source is not None and text in c.source.text]
    assert len(calls) == 1
    return calls[0]


def test_operations_are_those_of_the_log(machine: Machine) -> None:
    add = cp.RawKernel(ADD, "add")
    x = cp.zeros(64, cp.float32)
    first = Stream(non_blocking=True)
    second = Stream(priority=-1)

    def work() -> None:
        for stream in (first, second, first):
            add((2,), (32,), (x,), stream=stream)
        x.get()

    before = len(machine.current_device.work_queue.log)
    timeline = recorded(machine, work)
    log = list(machine.current_device.work_queue.log)[before:]
    assert sorted(timeline.activities, key=lambda a: a.correlation_id) == log
    assert [a.start_ns for a in timeline.activities] == sorted(a.start_ns for a in log)
    assert [(s.name, s.non_blocking, s.priority) for s in timeline.streams] == [
        ("stream 1", True, 0),
        ("stream 2", False, -1),
        ("default stream", False, 0),
    ]
    assert timeline.end_ns == max(machine.clock.now_ns, *(a.end_ns for a in log))
    assert timeline.provenance.label == "modelled on virtual A100-SXM4-80GB"


def test_each_call_has_its_line_and_operation(machine: Machine) -> None:
    add = cp.RawKernel(ADD, "add")
    x = cp.zeros(64, cp.float32)
    stream = Stream(non_blocking=True)
    other = Stream(non_blocking=True)

    def work() -> None:
        add((2,), (32,), (x,), stream=stream)  # launched
        event = stream.record()
        other.wait_event(event)
        other.launch_host_func(lambda _: None, None)
        event.synchronize()
        cp.cuda.Device().synchronize()

    timeline = recorded(machine, work)
    lines, first = inspect.getsourcelines(work)
    for text, name in {
        "# launched": "cuLaunchKernel",
        "stream.record()": "cudaEventRecord",
        "wait_event": "cudaStreamWaitEvent",
        "launch_host_func": "cudaLaunchHostFunc",
        "event.synchronize": "cudaEventSynchronize",
        "Device().synchronize": "cudaDeviceSynchronize",
    }.items():
        call = call_of(timeline, text)
        assert call.name == name
        assert call.source is not None
        assert call.source.file == "test_recorder.py"
        assert text in lines[call.source.line - first]
    launch = call_of(timeline, "# launched")
    assert launch.correlation_id == timeline.activities[0].correlation_id
    assert launch.end_ns <= timeline.activities[0].start_ns
    waits = timeline.synchronizations
    assert [w.type for w in waits] == ["STREAM_WAIT_EVENT", "EVENT_SYNCHRONIZE", "CONTEXT_SYNCHRONIZE"]
    assert (waits[0].stream_id, waits[0].event_stream_id) == (other.ptr, stream.ptr)
    assert waits[0].after == (timeline.activities[0].correlation_id,)
    assert waits[0].event_id == waits[1].event_id
    assert not any(wait.hidden for wait in waits)


@pytest.mark.parametrize(
    ("hidden", "ask"),
    [
        (True, lambda x: x.get()),
        (True, lambda x: float(x[0])),
        (True, lambda x: bool(x[0] > 3)),
        (True, lambda x: x[x > 0]),
        (True, lambda x: cp.asnumpy(x)),
        (True, lambda x: f"{x[0]}"),
        (False, lambda x: cp.cuda.Stream.null.synchronize()),
        (False, lambda x: cp.cuda.runtime.streamSynchronize(0)),
        (False, lambda x: cp.cuda.runtime.deviceSynchronize()),
    ],
)
def test_implicit_waits_are_marked_as_hidden(machine: Machine, hidden: bool, ask: Any) -> None:
    x = cp.ones(1 << 20, cp.float32)
    waits = machine.clock.waits
    timeline = recorded(machine, lambda: ask(x))
    assert len(timeline.synchronizations) == machine.clock.waits - waits == 1
    wait = timeline.synchronizations[0]
    assert wait.hidden is hidden
    assert wait.end_ns == machine.clock.now_ns
    assert wait.source is not None
    assert wait.source.line == ask.__code__.co_firstlineno


def test_only_pageable_copies_block_their_host_call(machine: Machine) -> None:
    x = cp.zeros(1 << 20, cp.float32)
    size = 4 << 20
    pinned = np.frombuffer(cp.cuda.alloc_pinned_memory(size), np.float32, x.size)
    pageable = np.ones(x.size, np.float32)

    def work() -> None:
        x.set(pageable)
        x.set(pinned)

    timeline = recorded(machine, work)
    copies = timeline.activities
    slow = call_of(timeline, "(pageable)")
    fast = call_of(timeline, "(pinned)")
    assert slow.end_ns - slow.start_ns >= copies[0].duration_ns
    assert slow.end_ns == timeline.synchronizations[0].end_ns
    assert fast.end_ns - fast.start_ns < copies[1].duration_ns
    assert [(w.hidden, w.source) for w in timeline.synchronizations] == [(True, slow.source)]


def test_copies_and_memory_sets_have_names_of_runtime_calls(two_gpus: Machine) -> None:
    x = cp.ones(1 << 20, cp.float32)
    with cp.cuda.Device(1):
        y = cp.ones(1 << 20, cp.float32)

    def work() -> None:
        x.fill(0)
        cp.cuda.runtime.memcpyPeer(y.data.ptr, 1, x.data.ptr, 0, y.nbytes)

    timeline = recorded(two_gpus, work)
    assert [call.name for call in timeline.calls] == ["cudaMemsetAsync", "cudaMemcpyPeerAsync"]


def test_graph_nodes_share_the_correlation_id_of_their_launch(machine: Machine) -> None:
    add = cp.RawKernel(ADD, "add")
    x = cp.zeros(64, cp.float32)
    stream = Stream(non_blocking=True)
    graphs = []

    def capture() -> None:
        with stream:
            stream.begin_capture()
            add((2,), (32,), (x,))
            add((2,), (32,), (x,))
            graphs.append(stream.end_capture())

    captured = recorded(machine, capture)
    assert not captured.activities
    names = ["cudaStreamBeginCapture", "cuLaunchKernel", "cuLaunchKernel", "cudaStreamEndCapture"]
    assert [call.name for call in captured.calls] == names
    launched = recorded(machine, lambda: graphs[0].launch(stream))
    assert [call.name for call in launched.calls] == ["cudaGraphLaunch"]
    assert launched.calls[0].correlation_id == launched.activities[0].correlation_id
    assert {a.graph_id for a in launched.activities} == {1}


def test_ranges_are_cut_to_the_timeline(machine: Machine) -> None:
    nvtx = cp.cuda.nvtx
    nvtx.RangePush("ended before")
    nvtx.RangePop()
    machine.clock.advance(10)
    nvtx.RangePush("begun before")
    machine.clock.advance(10)

    def work() -> None:
        machine.clock.advance(100)
        nvtx.RangePop()
        nvtx.RangePush("ends after")
        nvtx.Mark("mark")
        machine.clock.advance(7)

    start = machine.clock.now_ns
    timeline = recorded(machine, work)
    assert [(r.name, r.start_ns - start, r.end_ns - start, r.is_mark) for r in timeline.ranges] == [
        ("begun before", 0, 100, False),
        ("ends after", 100, 107, False),
        ("mark", 100, 100, True),
    ]


def test_other_threads_are_recorded_with_their_own_lines(machine: Machine) -> None:
    x = cp.ones(64, cp.float32)
    threads: list[int] = []

    def asks() -> None:
        threads.append(threading.get_ident())
        float(x[0])  # elsewhere

    def work() -> None:
        worker = threading.Thread(target=asks)
        worker.start()
        worker.join()

    assert call_of(recorded(machine, work), "# elsewhere").thread == threads[0]


def test_records_beyond_the_limit_are_counted(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("virtualgpu.model.recording.recorder.MAX_RECORDS", 3)
    x = cp.zeros(64, cp.float32)

    def work() -> None:
        for _ in range(5):
            x.fill(1)

    timeline = recorded(machine, work)
    assert (len(timeline.activities), len(timeline.calls), timeline.lost) == (3, 3, 4)
    with Stream(non_blocking=True) as stream:
        stream.begin_capture()
        work()
        graph = stream.end_capture()
    timeline = recorded(machine, graph.launch)
    assert (len(timeline.activities), len(timeline.calls), timeline.lost) == (3, 1, 0)


def test_dropped_ranges_are_counted(machine: Machine) -> None:
    def marks(count: int) -> None:
        for _ in range(count):
            cp.cuda.nvtx.Mark("x")
            machine.clock.advance(1)

    marks(5)
    fits = recorded(machine, lambda: marks(10))
    assert (len(fits.ranges), fits.lost) == (10, 0)
    too_many = recorded(machine, lambda: marks(MAX_RANGES + 3))
    assert (len(too_many.ranges), too_many.lost) == (MAX_RANGES, 3)


def test_a_refused_nested_timeline_keeps_the_outer_one_open(machine: Machine) -> None:
    x = cp.zeros(64, cp.float32)

    def work() -> None:
        inner = Recording(machine)
        with pytest.raises(
            GpulabError, match=r"begun in test_recorder.py, line \d+\), and .* cannot be nested"
        ):
            inner.start()
        x.fill(1)

    assert len(recorded(machine, work).activities) == 1
    assert machine.clock.recorder is None


def test_a_timeline_cannot_begin_within_a_capture(machine: Machine) -> None:
    add = cp.RawKernel(ADD, "add")
    x = cp.zeros(64, cp.float32)
    stream = Stream(non_blocking=True)
    with stream:
        stream.begin_capture()
        with pytest.raises(GpulabError, match=r"capturing a graph.*begin_capture"):
            Recording(machine).start()
        add((2,), (32,), (x,))
        stream.end_capture().launch()
    assert machine.clock.recorder is None
    assert x.get().tolist() == [1.0] * 64
