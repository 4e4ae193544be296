"""Timelines of a GPU by CUPTI: nothing lost, in order, with the program's lines; or by pairs of events."""

from __future__ import annotations

import contextlib
import gc
import statistics
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable
from itertools import pairwise
from typing import Any

import numpy as np
import pytest

import gpulab as gl
from virtualgpu.errors import GpulabError
from virtualgpu.records import Activity, Timeline

pytestmark = pytest.mark.gpu

SOURCE = r"""
extern "C" __global__ void spin(long long clocks, float* out) {
    long long begun = clock64();
    while (clock64() - begun < clocks) {}
    if (out) out[0] = 1.0f;
}
extern "C" __global__ void add(const float* a, const float* b, float* c, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) c[i] = a[i] + b[i];
}
template <typename T> __global__ void twice(T* a) { a[threadIdx.x] *= 2; }
"""
N = 1 << 16


class Program:
    """Kernels and arrays for a test's program."""

    def __init__(self, cp: Any) -> None:
        module = cp.RawModule(code=SOURCE, name_expressions=("twice<float>",))
        self.spin, self.add = module.get_function("spin"), module.get_function("add")
        self.twice = module.get_function("twice<float>")
        self.a, self.b, self.c = (cp.ones(N, cp.float32) for _ in range(3))
        for kernel, args in ((self.spin, (1, 0)), (self.add, self.args), (self.twice, (self.a,))):
            kernel((1,), (1,), args)
        cp.cuda.Device().synchronize()

    @property
    def args(self) -> tuple[Any, ...]:
        return self.a, self.b, self.c, N

    def launch(self) -> None:
        self.add((N // 256,), (256,), self.args)


@pytest.fixture
def program(cp: Any) -> Program:
    return Program(cp)


@pytest.fixture
def pinned(cp: Any) -> np.ndarray[Any, Any]:
    return np.frombuffer(cp.cuda.alloc_pinned_memory(4 * N), np.float32, N)


@pytest.fixture
def without_cupti(monkeypatch: pytest.MonkeyPatch) -> None:
    from gpulab.real.cupti import library

    monkeypatch.setattr(library, "load_cupti", lambda: None)


def recorded(work: Callable[[], object]) -> Timeline:
    with gl.timeline() as t:
        work()
    return t.record


def kernels(record: Timeline) -> list[Activity]:
    return [a for a in record.activities if a.kind == "CONCURRENT_KERNEL"]


def follows(record: Timeline, later: Activity, earlier: Activity) -> bool:
    """Whether `after` leads from one operation to another."""
    by_number = {a.correlation_id: a for a in record.activities}
    open_ = [later.correlation_id]
    while open_:
        number = open_.pop()
        if number == earlier.correlation_id:
            return True
        open_ += by_number[number].after
    return False


class TestOperations:
    def test_each_kind_of_operation_is_recorded(self, cp: Any, program: Program, pinned: Any) -> None:
        pageable = np.ones(N, np.float32)
        stream = cp.cuda.Stream(non_blocking=True)

        def work() -> None:
            program.launch()
            program.a.set(pinned, stream=stream)
            program.b.set(pageable)
            program.c.get(out=pageable)
            cp.copyto(program.a, program.b)
            program.twice((1,), (32,), (program.a,), shared_mem=512)

        record = recorded(work)
        assert record.method == "CUPTI"
        assert record.provenance.source == "measured"
        assert record.lost == 0
        launched = {a.name: a for a in kernels(record)}
        assert (launched["add"].grid, launched["add"].block) == ((N // 256, 1, 1), (256, 1, 1))
        assert launched["twice<float>"].shared_bytes == 512
        copies = Counter(
            (a.copy_kind, a.pinned, a.size_bytes)
            for a in record.activities
            if a.copy_kind in ("HtoD", "DtoH") and a.size_bytes == 4 * N
        )
        assert copies == {("HtoD", True, 4 * N): 1, ("HtoD", False, 4 * N): 1, ("DtoH", False, 4 * N): 1}
        by_stream = {s.stream_id: s for s in record.streams}
        upload = next(a for a in record.activities if a.pinned)
        assert by_stream[upload.stream_id].non_blocking
        assert by_stream[launched["add"].stream_id].name == "default stream"

    def test_times_are_in_order_and_within_the_timeline(self, cp: Any, program: Program) -> None:
        record = recorded(lambda: [program.launch() for _ in range(50)])
        assert record.start_ns < record.activities[0].start_ns
        assert record.activities[-1].end_ns <= record.end_ns
        assert all(one.end_ns <= other.start_ns for one, other in pairwise(kernels(record)))
        assert [a.correlation_id for a in kernels(record)] == list(range(1, 51))

    @pytest.mark.parametrize("streams", [1, 4])
    def test_every_launch_is_recorded(self, cp: Any, program: Program, streams: int, request: Any) -> None:
        count = 1_000 if request.config.getoption("--fake-gpu", default=False) else 100_000
        those = [cp.cuda.Stream(non_blocking=True) for _ in range(streams)]

        def work() -> None:
            for number in range(count):
                with those[number % streams]:
                    program.spin((1,), (1,), (1, 0))

        record = recorded(work)
        assert (len(kernels(record)), record.lost) == (count, 0)
        assert Counter(a.stream_id for a in kernels(record)) == Counter(
            {s.stream_id: count // streams for s in record.streams}
        )
        launches = [c for c in record.calls if c.name.startswith("cuLaunchKernel")]
        assert len(launches) == count
        assert {c.correlation_id for c in launches} == {a.correlation_id for a in kernels(record)}

    def test_a_launch_begins_after_its_call(self, program: Program) -> None:
        record = recorded(lambda: [program.launch() for _ in range(20)])
        began = {c.correlation_id: c.start_ns for c in record.calls}
        assert all(began[a.correlation_id] <= a.start_ns for a in record.activities)

    def test_earlier_launches_are_not_recorded(self, cp: Any, program: Program) -> None:
        for _ in range(3):
            program.spin((1,), (1,), (300_000, 0))
        assert kernels(recorded(lambda: None)) == []
        assert len(kernels(recorded(program.launch))) == 1


class TestCost:
    @pytest.mark.hardware("what recording costs")
    def test_recording_adds_less_than_40_percent_per_launch(
        self, cp: Any, record_property: Callable[[str, object], None]
    ) -> None:
        """Recorded and plain runs alternate, because hosts are noisy. CUPTI was used before both."""
        empty = cp.RawKernel('extern "C" __global__ void empty() {}', "empty")
        count = 20_000

        def loop() -> float:
            gc.collect()
            begun = time.perf_counter()
            for _ in range(count):
                empty((1,), (32,), ())
            spent = time.perf_counter() - begun
            cp.cuda.Device().synchronize()
            return spent / count * 1e6

        recorded(loop)
        plain = []
        seen = []
        for _ in range(9):
            plain.append(loop())
            with gl.timeline() as t:
                seen.append(loop())
            assert (len(kernels(t.record)), t.record.lost) == (count, 0)
        said = [f"{statistics.median(times):.2f} (least {min(times):.2f})" for times in (plain, seen)]
        more = statistics.median(b / a for a, b in zip(plain, seen, strict=True)) - 1
        record_property(
            "figure", f"a launch: {said[0]} µs, under a timeline {said[1]} µs; median of pairs {more:+.0%}"
        )
        assert more < 0.4


class TestOrder:
    def test_order_within_streams_and_by_events_is_recorded(self, cp: Any, program: Program) -> None:
        first, second = (cp.cuda.Stream(non_blocking=True) for _ in range(2))
        event = cp.cuda.Event()

        def work() -> None:
            with first:
                program.spin((1,), (1,), (200_000, 0))
                event.record()
                program.spin((2,), (1,), (1, 0))
            with second:
                program.spin((3,), (1,), (1, 0))
                second.wait_event(event)
                program.spin((4,), (1,), (1, 0))

        record = recorded(work)
        by_grid = {a.grid[0]: a for a in kernels(record) if a.grid}
        pairs = {
            (later, earlier)
            for later in by_grid
            for earlier in by_grid
            if later != earlier and follows(record, by_grid[later], by_grid[earlier])
        }
        assert pairs == {(2, 1), (4, 3), (4, 1)}
        wait = next(s for s in record.synchronizations if s.type == "STREAM_WAIT_EVENT")
        assert (wait.stream_id, wait.event_stream_id) == (by_grid[3].stream_id, by_grid[1].stream_id)
        assert wait.after == (by_grid[1].correlation_id,)

    def test_the_default_stream_waits_for_blocking_streams(self, cp: Any, program: Program) -> None:
        blocking = cp.cuda.Stream()
        apart = cp.cuda.Stream(non_blocking=True)

        def work() -> None:
            for number, stream in enumerate((blocking, apart, cp.cuda.Stream.null, blocking, apart), 1):
                with stream:
                    program.spin((number,), (1,), (1, 0))

        record = recorded(work)
        by_grid = {a.grid[0]: a for a in kernels(record) if a.grid}
        after = {
            grid: {other for other in by_grid if other != grid and follows(record, a, by_grid[other])}
            for grid, a in by_grid.items()
        }
        assert after == {1: set(), 2: set(), 3: {1}, 4: {1, 3}, 5: {2}}

    def test_operations_start_after_their_predecessors_end(self, cp: Any, program: Program) -> None:
        streams = [cp.cuda.Stream(non_blocking=True) for _ in range(3)]
        event = cp.cuda.Event()

        def work() -> None:
            for number in range(60):
                with streams[number % 3] as stream:
                    if number % 5 == 0:
                        event.record(stream)
                    if number % 7 == 0:
                        stream.wait_event(event)
                    program.spin((1,), (1,), (1 + 500 * (number % 4), 0))

        record = recorded(work)
        by_number = {a.correlation_id: a for a in record.activities}
        assert any(len(a.after) > 1 for a in record.activities)
        for activity in record.activities:
            assert all(by_number[number].end_ns <= activity.start_ns for number in activity.after)


class TestWaits:
    def test_implicit_waits_are_reported_with_their_line(self, cp: Any, program: Program) -> None:
        stream = cp.cuda.Stream(non_blocking=True)
        event = cp.cuda.Event()
        here = sys._getframe().f_lineno
        with gl.timeline() as t:
            program.launch()
            float(program.c[0])
            program.c.get()
            stream.synchronize()
            event.record(stream)
            event.synchronize()
            cp.cuda.Device().synchronize()
        record = t.record
        hidden = {s.source.line - here for s in record.synchronizations if s.hidden and s.source}
        assert hidden == {3, 4}
        asked = {(s.type, s.source.line - here) for s in record.synchronizations if not s.hidden and s.source}
        assert asked == {("STREAM_SYNCHRONIZE", 5), ("EVENT_SYNCHRONIZE", 7), ("CONTEXT_SYNCHRONIZE", 8)}
        assert all(s.start_ns <= s.end_ns for s in record.synchronizations)

    def test_the_host_waits_until_the_work_has_ended(
        self, cp: Any, program: Program, request: pytest.FixtureRequest
    ) -> None:
        # Long enough that the host, which is slow where Python's lines are new, waits for it.
        clocks = 3_000_000 if request.config.getoption("--fake-gpu", default=False) else 40_000_000

        def work() -> None:
            program.spin((1,), (1,), (clocks, 0))
            cp.cuda.Device().synchronize()

        record = recorded(work)
        wait = record.synchronizations[-1]
        kernel = kernels(record)[0]
        assert kernel.duration_ns > 500_000
        assert abs(wait.end_ns - kernel.end_ns) < 200_000
        assert wait.start_ns < kernel.end_ns


class TestLines:
    def test_calls_in_functions_and_loops_have_their_lines(self, cp: Any, program: Program) -> None:
        def step(number: int) -> None:
            program.launch() if number % 2 else program.spin((1,), (1,), (1, 0))
            program.twice((1,), (32,), (program.a,))

        here = sys._getframe().f_lineno
        with gl.timeline() as t:
            for number in range(4):
                step(number)
            program.a.fill(0)
        own = Program.launch.__code__.co_firstlineno + 1
        seen = [c.source.line for c in t.record.calls if c.source and c.correlation_id]
        inner = step.__code__.co_firstlineno
        assert seen == [inner + 1, inner + 2, own, inner + 2] * 2 + [here + 4]
        texts = {c.source.text for c in t.record.calls if c.source}
        assert "program.twice((1,), (32,), (program.a,))" in texts
        assert {c.source.file for c in t.record.calls if c.source} == {"test_timeline_gpu.py"}

    def test_lines_after_the_limit_of_line_events(
        self, program: Program, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        from virtualgpu.model.recording import line_watch

        monkeypatch.setattr(line_watch, "MAX_LINE_EVENTS", 20)
        here = sys._getframe().f_lineno
        with gl.timeline() as t:
            for _ in range(60):
                program.spin((1,), (1,), (1, 0))
                program.twice((1,), (32,), (program.a,))
            program.spin((1,), (1,), (1, 0))
        seen = Counter(c.source.line - here for c in t.record.calls if c.source)
        if sys.version_info >= (3, 12):
            assert seen == {3: 60, 4: 60, 5: 1}
        else:  # lines cannot be silenced one by one
            assert seen == {3: 19, 4: 19} or seen == {3: 20, 4: 19} or seen == {3: 20, 4: 20}


class TestRanges:
    def test_nested_ranges_and_marks_are_recorded(self, cp: Any, program: Program) -> None:
        nvtx = cp.cuda.nvtx

        def work() -> None:
            nvtx.RangePushC("step", 0xFF00FF00)
            for name in ("one", "two"):
                nvtx.RangePush(name)
                program.launch()
                nvtx.RangePop()
            nvtx.Mark("here")
            nvtx.RangePop()

        record = recorded(work)
        assert [(r.name, r.depth, r.is_mark) for r in record.ranges] == [
            ("step", 0, False),
            ("one", 1, False),
            ("two", 1, False),
            ("here", 1, True),
        ]
        step, one, two, here = record.ranges
        assert step.color == 0xFF00FF00
        assert step.start_ns <= one.start_ns <= one.end_ns <= two.start_ns <= two.end_ns
        assert two.end_ns <= here.start_ns == here.end_ns <= step.end_ns
        launch = next(c for c in record.calls if c.correlation_id)
        assert one.start_ns <= launch.start_ns <= launch.end_ns <= one.end_ns
        assert one.thread == launch.thread

    @pytest.mark.hardware("NVTX itself, in a process of its own")
    def test_ranges_from_before_the_first_timeline_are_not_recorded(self) -> None:
        code = """
import gpulab as gl
from cupyx.profiler import time_range
x = gl.cp.zeros(10)
with time_range("before"):
    x += 1
with gl.timeline() as t:
    with time_range("within"):
        x += 1
print([r.name for r in t.record.ranges])
"""
        done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
        assert done.stdout == "['within']\n", done.stderr


class TestGraphs:
    def test_nodes_of_a_graph_launch_are_recorded(self, cp: Any, program: Program) -> None:
        stream, side = (cp.cuda.Stream(non_blocking=True) for _ in range(2))
        with stream:
            stream.begin_capture()
            program.launch()
            side.wait_event(stream.record())
            with side:
                program.spin((1,), (1,), (1000, 0))
            program.twice((1,), (32,), (program.a,))
            stream.wait_event(side.record())
            program.launch()
            graph = stream.end_capture()
        graph.launch(stream)
        stream.synchronize()

        def work() -> None:
            graph.launch(stream)
            graph.launch(stream)
            with stream:
                program.spin((5,), (1,), (1, 0))

        record = recorded(work)
        nodes = [a for a in kernels(record) if a.graph_id]
        assert Counter(a.name for a in nodes) == {"add": 4, "spin": 2, "twice<float>": 2}
        assert len({a.graph_id for a in nodes}) == 1
        assert Counter(a.graph_node_id for a in nodes) == {a.graph_node_id: 2 for a in nodes}
        assert len({a.correlation_id for a in record.activities}) == len(record.activities)
        launches = [c for c in record.calls if c.name == "cudaGraphLaunch"]
        assert {c.correlation_id for c in launches} == {nodes[0].correlation_id, nodes[4].correlation_id}
        last = next(a for a in kernels(record) if not a.graph_id)
        assert all(follows(record, last, node) for node in nodes)
        assert all(follows(record, later, nodes[0]) for later in nodes[4:])


class TestRefusals:
    def test_nested_timelines_and_captures_are_refused(self, cp: Any, program: Program) -> None:
        with gl.timeline() as t:
            with pytest.raises(GpulabError, match="nest"), gl.timeline():
                pass
            program.launch()
        assert len(kernels(t.record)) == 1
        stream = cp.cuda.Stream(non_blocking=True)
        with stream:
            stream.begin_capture(cp.cuda.runtime.streamCaptureModeRelaxed)
            with pytest.raises(GpulabError, match="capturing a graph"), gl.timeline():
                pass
            with contextlib.suppress(cp.cuda.runtime.CUDARuntimeError):  # the question has spoilt it
                stream.end_capture()
        assert len(kernels(recorded(program.launch))) == 1

    def test_an_error_inside_the_block_ends_the_recording(self, program: Program) -> None:
        t = gl.timeline()
        with contextlib.suppress(ZeroDivisionError), t:
            program.launch()
            1 / 0  # noqa: B018
        assert len(kernels(t.record)) == 1
        assert sys.gettrace() is None
        assert len(kernels(recorded(program.launch))) == 1


class TestEvents:
    """Timelines that are measured by pairs of events, without CUPTI."""

    @pytest.mark.usefixtures("without_cupti")
    def test_ranges_take_their_time_on_the_stream(self, cp: Any, program: Program) -> None:
        stream = cp.cuda.Stream(non_blocking=True)

        def work() -> None:
            with stream:
                cp.cuda.nvtx.RangePush("long")
                program.spin((1,), (1,), (3_000_000, 0))
                cp.cuda.nvtx.RangePop()
            cp.cuda.nvtx.RangePush("short")
            cp.cuda.nvtx.RangePop()

        push = cp.cuda.nvtx.RangePush
        record = recorded(work)
        assert cp.cuda.nvtx.RangePush is push
        assert record.method == "events"
        assert "not installed" in record.note
        assert "pairs of events" in record.note
        by_name = {a.name: a for a in record.activities}
        assert {a.kind for a in record.activities} == {"RANGE"}
        assert by_name["long"].duration_ns > 20 * by_name["short"].duration_ns
        assert by_name["long"].duration_ns > 500_000
        assert [r.name for r in record.ranges] == ["long", "short"]
        assert {s.stream_id: s.name for s in record.streams}[by_name["short"].stream_id] == "default stream"
        assert record.start_ns <= by_name["long"].start_ns <= by_name["long"].end_ns <= record.end_ns

    @pytest.mark.usefixtures("without_cupti")
    def test_nvtx_calls_are_still_forwarded(self, cp: Any, monkeypatch: pytest.MonkeyPatch) -> None:
        """Another tool may observe the NVTX functions."""
        nvtx = cp.cuda.nvtx
        heard = []
        monkeypatch.setattr(nvtx, "RangePush", lambda name, color: heard.append((name, color)))
        monkeypatch.setattr(nvtx, "RangePushC", lambda name, color: heard.append((name, color)))
        monkeypatch.setattr(nvtx, "RangePop", lambda: heard.append("pop"))

        def work() -> None:
            nvtx.RangePush("one", 3)
            nvtx.RangePushC("two", 0xFF00FF00)
            nvtx.RangePop()
            nvtx.RangePop()

        record = recorded(work)
        assert heard == [("one", 3), ("two", 0xFF00FF00), "pop", "pop"]
        assert [(r.name, r.depth) for r in record.ranges] == [("one", 0), ("two", 1)]

    @pytest.mark.usefixtures("without_cupti")
    def test_launches_of_gpulab_are_ranges(self, program: Program) -> None:
        record = recorded(lambda: gl.launch(program.add, N // 256, 256, program.args))
        assert "add" in [a.name for a in record.activities]

    @pytest.mark.usefixtures("without_cupti")
    def test_event_timelines_do_not_nest(self, cp: Any) -> None:
        push = cp.cuda.nvtx.RangePush
        with gl.timeline(), pytest.raises(GpulabError, match="nest"), gl.timeline():
            pass
        assert cp.cuda.nvtx.RangePush is push

    def test_another_active_profiling_tool_is_reported(
        self, program: Program, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setenv("NSYS_PROFILING_SESSION_ID", "1")
        record = recorded(program.launch)
        assert record.method == "events"
        assert "Nsight Systems" in record.note
