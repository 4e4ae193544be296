"""Recorders of pools, called directly: their columns, limits, and what they cannot know."""

from __future__ import annotations

import gc
import sys
import threading
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import gpulab as gl
from gpulab.session import current
from gpulab.session.pools import hook, pinned, pool
from gpulab.session.pools.hook import AllocationRecorder
from gpulab.session.pools.pinned import PinnedRecorder
from gpulab.session.pools.pool import PoolRecorder, find_current_pool, is_on_current_device
from gpulab.session.pools.readings import MemoryRecorder, _MemoryRowReader, summarize_events
from virtualgpu.records import Provenance
from virtualgpu.records.memory import ACTIONS, AllocatorEvents, MemoryReading


@pytest.fixture(autouse=True)
def device() -> Iterator[None]:
    gl.use_device("virtual:T4")
    yield
    gl.use_device("virtual:T4")


def rows(recorder: AllocationRecorder, **options: Any) -> list[tuple[Any, ...]]:
    """Return action, address, size, requested bytes and stream of each event."""
    return [row[:5] for row in recorder.events(**options).rows()]


# -- events -----------------------------------------------------------------------------------------------


def test_recorder_keeps_the_last_events_and_their_numbers() -> None:
    recorder = AllocationRecorder(max_events=4)
    addresses = []
    for number in range(1, 11):
        recorder.on_segment_allocation(0, 512, number)
        addresses.append([row[1] for row in recorder.events().rows()])
        assert len(recorder) == number
    assert addresses[7] == [1, 2, 3, 4, 5, 6, 7, 8]
    assert addresses[8] == [6, 7, 8, 9], "up to twice as many as are kept"
    assert addresses[9] == [6, 7, 8, 9, 10]
    assert [row[1] for row in recorder.events(since=7).rows()] == [8, 9, 10]
    assert [row[1] for row in recorder.events(since=2).rows()] == [6, 7, 8, 9, 10]
    events, following = recorder.events_and_next(9)
    assert (len(events), following) == (1, 10)
    assert [len(recorder.events_and_next(10)[0]), recorder.events_and_next(10)[1]] == [0, 10]
    assert recorder.events_and_next(0, 1)[1] == 10


def test_a_recorder_in_another_thread_records_nothing_after_its_end() -> None:
    recorder = AllocationRecorder()
    begun = threading.Event()
    ended = threading.Event()

    def work() -> None:
        recorder.start()
        gl.cp.cuda.alloc(10)
        begun.set()
        ended.wait(20)
        gl.cp.cuda.alloc(10)

    thread = threading.Thread(target=work)
    thread.start()
    begun.wait(20)
    recorder.stop()
    ended.set()
    thread.join()
    assert [row[0] for row in recorder.events().rows()].count("alloc") == 1


# -- stacks -----------------------------------------------------------------------------------------------


def library(code: str, name: str = "numpy.fake") -> dict[str, Any]:
    variables: dict[str, Any] = {"__name__": name}
    exec(compile(code, "<string>", "exec"), variables)
    return variables


THROUGH = library("def through(f, depth):\n    return through(f, depth - 1) if depth > 1 else f()\n")[
    "through"
]


def stack_of(recorder: AllocationRecorder) -> list[str]:
    """Return the functions in the stack of the last event."""
    number = [*recorder.events().rows()][-1][6]
    return [frame.function for frame in recorder.stacks[number]] if number >= 0 else []


def test_stacks_have_only_lines_of_the_program() -> None:
    recorder = AllocationRecorder()

    def inner() -> None:
        recorder.on_segment_allocation(0, 512, 1)

    def outer(depth: int) -> list[str]:
        THROUGH(inner, depth)
        return stack_of(recorder)

    me = "test_stacks_have_only_lines_of_the_program"
    assert outer(1)[:3] == ["inner", "outer", me]
    assert outer(hook.MAX_FOREIGN_FRAMES)[:3] == ["inner", "outer", me]
    assert outer(hook.MAX_FOREIGN_FRAMES + 1) == ["inner"]
    THROUGH(lambda: THROUGH(inner, hook.MAX_FOREIGN_FRAMES), hook.MAX_FOREIGN_FRAMES)
    assert stack_of(recorder)[:3] == ["inner", "<lambda>", me], "each stretch of a library counts by itself"
    assert outer(1)[:3] == ["inner", "outer", me]
    assert len(recorder.stacks) == len({*recorder.stacks}) == len(recorder.source_lines)
    assert recorder.source_lines[0].text == "recorder.on_segment_allocation(0, 512, 1)"
    code = (
        "def call(recorder, depth):\n    call(recorder, depth - 1) if depth else "
        "recorder.on_segment_allocation(0, 512, 1)\n"
    )
    library(code)["call"](recorder, 3 * hook.MAX_FOREIGN_FRAMES)
    assert stack_of(recorder)[0] == me, "above the first line of the program a library may be deep"


def test_stacks_end_at_the_cell_or_the_maximum_depth() -> None:
    recorder = AllocationRecorder()

    def deep(depth: int) -> None:
        if depth:
            deep(depth - 1)
        else:
            recorder.on_segment_allocation(0, 512, 1)

    deep(200)
    assert stack_of(recorder) == ["deep"] * hook.MAX_FRAMES
    cell = "def in_cell(f):\n    return f()\nin_cell(function)\n"
    for name, ends in (("__main__", True), ("mine", False)):
        variables: dict[str, Any] = {
            "__name__": name,
            "function": lambda: recorder.on_segment_allocation(0, 512, 2),
        }
        exec(compile(cell, "<cell>", "exec"), variables)
        functions = stack_of(recorder)
        assert functions[:3] == ["<lambda>", "in_cell", "<module>"]
        assert (len(functions) == 3) is ends


def test_an_event_without_a_line_of_the_program_has_no_stack() -> None:
    recorder = AllocationRecorder()
    thread = threading.Thread(target=recorder.on_free, args=(0, 512, 1))
    thread.start()
    thread.join()
    assert [row[6] for row in recorder.events().rows()] == [-1, -1]
    assert recorder.stacks == recorder.source_lines == []


def test_stacks_beyond_the_maximum_number_are_not_stored(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hook, "MAX_STACKS", 2)
    recorder = AllocationRecorder()
    first = lambda: recorder.on_segment_allocation(0, 512, 1)  # noqa: E731
    second = lambda: recorder.on_segment_allocation(0, 512, 2)  # noqa: E731
    third = lambda: recorder.on_segment_allocation(0, 512, 3)  # noqa: E731
    for function in (first, second, third) * 2:
        function()
    stacks = [row[6] for row in recorder.events().rows()]
    assert stacks[:3] == [0, 1, -1]
    assert stacks[5] == -1
    assert len(recorder.stacks) == 2


# -- pinned memory ----- -----------------------------------------------------------------------------------


def test_events_of_a_pool_of_pinned_memory() -> None:
    recorder = PinnedRecorder()
    cuda = gl.cp.cuda
    recorder.start()
    try:
        first = cuda.alloc_pinned_memory(1000)
        address = first.ptr
        del first
        second = cuda.alloc_pinned_memory(700)
    finally:
        trace = recorder.stop()
    assert second.ptr == address
    assert [row[:5] for row in trace.events.rows()] == [
        ("segment_alloc", address, 1024, 0, 0),
        ("alloc", address, 1024, 1000, 0),
        ("free_completed", address, 1024, 1000, 0),
        ("alloc", address, 1024, 700, 0),
    ]
    times = trace.events.time_ns.tolist()
    assert times == sorted(times)
    assert 0 <= times[0] <= times[-1] < 60e9
    assert (trace.device_id, trace.first.limit_bytes, trace.first.segments) == (0, 0, ())
    outside = cuda.alloc_pinned_memory(5000)
    assert len(recorder.record().events) == 4
    assert outside.ptr
    del second
    assert [row[0] for row in recorder.record().events.rows()][4:] == ["free_completed"]
    recorder.pool.free_all_blocks()
    gc.collect()
    assert [row[:4] for row in recorder.record().events.rows()][5:] == [("segment_free", address, 1024, 0)]


def test_provenance_of_pinned_memory_on_a_real_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    assert PinnedRecorder().record().provenance.source == "modelled"
    backend = SimpleNamespace(provenance=Provenance("measured", "an L4"))
    monkeypatch.setattr(pinned.current, "backend", lambda: backend)
    provenance = PinnedRecorder().record().provenance
    assert provenance == Provenance("measured", "this computer", "CuPy's pinned memory for an L4")


def test_buffers_are_pinned_for_all_devices(monkeypatch: pytest.MonkeyPatch) -> None:
    flags: list[int] = []
    recorder = PinnedRecorder()
    memory = gl.cp.cuda.PinnedMemory
    monkeypatch.setattr(
        recorder._cp.cuda, "PinnedMemory", lambda size, flag: (flags.append(flag), memory(size, flag))[1]
    )
    recorder.pool.malloc(10)
    assert flags == [1], "cudaHostAllocPortable (driver_types.h)"


# -- pools that report only totals ------------------------------------------------------------------------


class Silent:
    """A pool as CuPy's on a real GPU: totals, but neither segments nor blocks."""

    def __init__(self, total: int, limit: int = 0) -> None:
        self.total = total
        self.limit = limit

    def total_bytes(self) -> int:
        return self.total

    def get_limit(self) -> int:
        return self.limit


def test_current_pool_is_that_of_the_active_allocator() -> None:
    cp = gl.cp
    assert find_current_pool() is cp.get_default_memory_pool()
    own_pool = cp.cuda.MemoryPool()
    with cp.cuda.using_allocator(own_pool.malloc):
        assert find_current_pool() is own_pool
    with cp.cuda.using_allocator(lambda size: own_pool.malloc(size)):
        assert find_current_pool() is cp.get_default_memory_pool()


def test_is_on_current_device() -> None:
    x = gl.cp.zeros(4)
    assert is_on_current_device(x) is True
    gl.use_device("virtual:A100")
    assert is_on_current_device(x) is False
    gl.use_device("virtual:T4")
    for device_id in (0, 1):
        real: Any = SimpleNamespace(data=SimpleNamespace(mem=SimpleNamespace(device_id=device_id)))
        assert is_on_current_device(real) is (device_id == 0)


def test_returned_segments_are_detected_at_the_next_event(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    recorder = PoolRecorder()
    recorder.pool = silent = Silent(3000)
    recorder._total_bytes = 3000
    reported = 0

    def news() -> list[tuple[Any, ...]]:
        nonlocal reported
        events = [*recorder.events().rows()]
        fresh = events[reported:]
        reported = len(events)
        return [row[:3] for row in fresh]

    recorder.on_request()
    assert news() == []
    silent.total = 2000
    recorder.on_request()
    assert news() == [("segment_free", 0, 1000)]
    recorder.on_request()
    assert news() == []
    silent.total = 2512
    recorder.on_segment_allocation(recorder.device, 512, 8000)
    assert news() == [("segment_alloc", 8000, 512)], "a new segment is no other change"
    silent.total = 2000
    recorder.on_segment_allocation(recorder.device, 1024, 8100)
    assert news() == [("segment_free", 0, 1536), ("segment_alloc", 8100, 1024)]
    silent.total = 2400
    recorder.on_request()
    assert news() == [], "growth without an event"
    silent.total = 2399
    recorder.on_allocation(recorder.device, 10, 512, 8000, True)
    assert news() == [("segment_free", 0, 1), ("alloc", 8000, 512)]
    monkeypatch.setattr(recorder._cp.cuda.runtime, "getDevice", lambda: recorder.device + 1)
    silent.total = 5
    recorder.on_request()
    assert news() == [], "a pool's total is that of the current device"


def test_note_of_a_trace_reports_missed_events() -> None:
    recorder = PoolRecorder()
    recorder.pool = Silent(100)
    recorder._total_bytes = 300
    trace = recorder.stop()
    assert "200 bytes that the pool returned to the device are still shown" in trace.note
    assert (trace.allocator, trace.device_id) == ("CuPy's pool", 0)
    assert trace.capacity_bytes == recorder.capacity_bytes > 0
    assert [stack[0].function for stack in trace.stacks] == ["test_note_of_a_trace_reports_missed_events"]
    assert trace.texts == ("trace = recorder.stop()",)
    recorder = PoolRecorder()
    recorder.unknown_note = "First."
    recorder.failed_events = 2
    assert recorder.stop().note == "First. 2 events could not be recorded."


def test_provenance_of_a_measured_trace_names_cupys_hooks(monkeypatch: pytest.MonkeyPatch) -> None:
    assert pool.find_provenance() == current.backend().provenance
    backend = SimpleNamespace(provenance=Provenance("measured", "an L4"))
    monkeypatch.setattr(pool.current, "backend", lambda: backend)
    assert pool.find_provenance() == Provenance("measured", "an L4", "CuPy's memory hooks")


# -- readings ---------------------------------------------------------------------------------------------


def events(*rows: tuple[str, int, int, int]) -> AllocatorEvents:
    """Events of rows (action, bytes, time, stack)."""
    columns = list(zip(*rows, strict=True)) if rows else [()] * 4
    zeros = np.zeros(len(rows), np.int64)
    return AllocatorEvents(
        actions=np.array([ACTIONS.index(action) for action in columns[0]], np.uint8),
        addresses=zeros,
        size_bytes=np.array(columns[1], np.int64),
        requested_bytes=zeros,
        streams=zeros,
        time_ns=np.array(columns[2], np.int64),
        stacks=np.array(columns[3], np.int32),
    )


def test_marks_sum_events_by_source_line() -> None:
    assert summarize_events(events(), 0) == []
    assert summarize_events(events(("segment_alloc", 512, 5, 1), ("free_completed", 5, 5, 1)), 0) == []
    rows = (
        ("segment_alloc", 9999, 100, 3),
        ("alloc", 512, 130, 3),
        ("alloc", 1024, 120, 3),
        ("free_requested", 512, 140, 3),
        ("free_completed", 512, 140, 3),
        ("oom", 4096, 110, -1),
        ("free_requested", 256, 105, 7),
    )
    expected = [(5, 0, 0, 1, 256, 0, 7, 0), (10, 0, 0, 0, 0, 1, -1, 0), (20, 2, 1536, 1, 512, 0, 3, 9999)]
    assert summarize_events(events(*rows), 100) == expected


def test_detailed_marks_have_one_row_per_event() -> None:
    rows = (
        ("segment_alloc", 4096, 100, 3),
        ("alloc", 512, 110, 3),
        ("alloc", 1024, 120, 3),
        ("free_requested", 512, 130, 4),
        ("free_completed", 512, 130, 4),
        ("segment_free", 4096, 140, 5),
        ("oom", 8192, 150, 5),
    )
    assert summarize_events(events(*rows), 100, is_detailed=True) == [
        (10, 1, 512, 0, 0, 0, 3, 4096),
        (20, 1, 1024, 0, 0, 0, 3, 0),
        (30, 0, 0, 1, 512, 0, 4, 0),
        (40, 0, 0, 0, 0, 0, -1, -4096),
        (50, 0, 0, 0, 0, 1, 5, 0),
    ]


def test_beyond_eight_lines_the_smallest_are_merged_into_one() -> None:
    eight = [("alloc", 100 * n, 10 * n, n) for n in range(1, 9)]
    assert [row[6] for row in summarize_events(events(*eight), 0)] == [1, 2, 3, 4, 5, 6, 7, 8]
    nine = summarize_events(events(*eight, ("free_requested", 1000, 90, 9)), 0)
    assert [row[6] for row in nine] == [-1, 3, 4, 5, 6, 7, 8, 9]
    assert nine[0] == (10, 2, 300, 0, 0, 0, -1, 0)
    refused = summarize_events(events(*eight, ("oom", 0, 95, 9), ("free_requested", 60, 96, 10)), 0)
    assert [row[6] for row in refused] == [-1, 3, 4, 5, 6, 7, 8, 9], "a refusal matters more than bytes"
    assert refused[0] == (10, 2, 300, 1, 60, 0, -1, 0)


def test_the_peak_between_two_readings_follows_from_the_events() -> None:
    recorder = AllocationRecorder()
    used: list[Any] = []

    def read() -> MemoryReading:
        return MemoryReading(used.pop(0), 4000, 9000, 500, 50)

    readings = _MemoryRowReader(read, recorder, 1 << 20)

    def reading(used_bytes: int | None) -> tuple[Any, ...]:
        used.append(used_bytes)
        return tuple(readings())

    assert reading(1000) == (1000, 4000, 1000, 9000, 500, 50)
    recorder.on_allocation(0, 0, 600, 1, True)
    recorder.on_free(0, 600, 1)
    assert reading(1000)[2] == 1600
    assert reading(1000)[2] == 1000
    recorder.on_allocation(0, 0, 600, 1, True)
    assert reading(1600)[2] == 1600
    assert reading(1700)[2] == 1700, "bytes without an event count from now on"
    recorder.on_free(0, 600, 1)
    recorder.on_allocation(0, 0, 200, 1, True)
    assert reading(1300)[2] == 1700
    assert reading(None)[2] is None
    assert reading(5000)[2] == 5000


def test_reserved_bytes_are_limited_to_the_device_s_memory() -> None:
    """A pool counts a segment before the device refuses it."""
    reserved = iter([100, 1024, 1025, None, 50])
    readings = _MemoryRowReader(lambda: MemoryReading(1, next(reserved), 0, 4, 0), AllocationRecorder(), 1024)
    assert [readings()[1] for _ in range(5)] == [100, 1024, 1024, None, 50]


def test_readings_do_not_keep_the_recorder_alive() -> None:
    recorder = MemoryRecorder(1.0)
    sampler = recorder.sampler
    before = sys.getrefcount(recorder)
    sampler.take_reading()
    assert sys.getrefcount(recorder) == before
    del recorder
    gc.collect()
    sampler.take_reading()
    assert sampler.failure == ""
