"""What recorders of pools note, asked directly: each column, what is kept, and what cannot be known."""

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
from gpulab.session.pools import hook, pinned, pool, readings
from gpulab.session.pools.hook import AllocationRecorder
from gpulab.session.pools.pinned import PinnedRecorder
from gpulab.session.pools.pool import PoolRecorder, block_map, current_pool, lies_here
from gpulab.session.pools.readings import MemoryRecorder, _Readings, marks_of
from virtualgpu.records import Provenance
from virtualgpu.records.memory import ACTIONS, AllocatorEvents, MemoryReading


@pytest.fixture(autouse=True)
def device() -> Iterator[None]:
    gl.use_device("virtual:T4")
    yield
    gl.use_device("virtual:T4")


def rows(seen: AllocationRecorder, **how: Any) -> list[tuple[Any, ...]]:
    """Action, address, size, requested bytes and stream of each event."""
    return [row[:5] for row in seen.events(**how).rows()]


# -- events -----------------------------------------------------------------------------------------------


def test_each_event_has_its_columns() -> None:
    seen = AllocationRecorder(device=1)
    side = gl.cp.cuda.Stream()
    seen.taken(1, 2048, 9000)
    with side:
        seen.allocated(1, 1000, 1024, 9000, True)
    seen.allocated(0, 7, 512, 9000, True)
    seen.allocated(1, 0, 0, 9100, True)
    seen.freed(1, 1024, 9000)
    seen.freed(1, 512, 9200)
    assert rows(seen) == [
        ("segment_alloc", 9000, 2048, 0, 0),
        ("alloc", 9000, 1024, 1000, side.ptr),
        ("alloc", 9000, 512, 7, 0),
        ("free_requested", 9000, 1024, 1000, side.ptr),
        ("free_completed", 9000, 1024, 1000, side.ptr),
        ("free_requested", 9200, 512, 0, 0),
        ("free_completed", 9200, 512, 0, 0),
    ]
    assert rows(seen, device=0) == [("alloc", 9000, 512, 7, 0)]
    assert len(rows(seen, device=1)) == 6
    assert rows(seen, device=2) == []
    found = seen.events()
    assert (found.actions.dtype, found.stacks.dtype) == (np.uint8, np.int32)
    assert (np.diff(found.time_ns) >= 0).all()


def test_a_refused_request_tells_what_was_free() -> None:
    seen = AllocationRecorder()
    free = gl.cp.cuda.runtime.memGetInfo()[0]
    seen.allocated(0, 1 << 40, 1 << 40, 0, False)
    assert rows(seen) == [("oom", free, 1 << 40, 1 << 40, 0)]
    assert (seen.held, seen.most_held) == (0, 0)


def test_bytes_held_are_those_of_one_device() -> None:
    seen = AllocationRecorder(device=1)
    held = []
    for device, what, size in ((1, "a", 512), (0, "a", 4096), (1, "b", 1024), (0, "a", 4096), (1, "a", 512)):
        place = 1000 if what == "a" else 2000
        (
            seen.allocated(device, size, size, place, True)
            if len(held) < 3
            else seen.freed(device, size, place)
        )
        held.append((seen.held, seen.most_held))
    assert held == [(512, 512), (512, 512), (1536, 1536), (1536, 1536), (1024, 1536)]


def test_a_block_given_out_again_was_freed_by_another_thread() -> None:
    seen = AllocationRecorder()
    for turn in range(3):
        seen.allocated(0, 100 + turn, 512, 1000, True)
    assert [row[:4] for row in rows(seen)] == [
        ("alloc", 1000, 512, 100),
        ("free_requested", 1000, 512, 100),
        ("free_completed", 1000, 512, 100),
        ("alloc", 1000, 512, 101),
        ("free_requested", 1000, 512, 101),
        ("free_completed", 1000, 512, 101),
        ("alloc", 1000, 512, 102),
    ]
    stacks = [row[6] for row in seen.events().rows()]
    assert stacks[1] == stacks[2] == -1 != stacks[0]
    assert (seen.missed, seen.held, seen.most_held) == (2, 512, 512)
    again = "freed by another thread, and seen so when the address was given out again."
    assert seen.note == f"2 blocks were {again}"
    seen.missed = 1
    seen.failed = 1
    assert seen.note == f"1 block was {again} 1 event could not be recorded."


def test_the_last_events_are_kept_and_numbers_go_on() -> None:
    seen = AllocationRecorder(keep=4)
    kept = []
    for at in range(1, 11):
        seen.taken(0, 512, at)
        kept.append([row[1] for row in seen.events().rows()])
        assert len(seen) == at
    assert kept[7] == [1, 2, 3, 4, 5, 6, 7, 8]
    assert kept[8] == [6, 7, 8, 9], "twice as many as are kept, and one more"
    assert kept[9] == [6, 7, 8, 9, 10]
    assert [row[1] for row in seen.events(since=7).rows()] == [8, 9, 10]
    assert [row[1] for row in seen.events(since=5).rows()] == [6, 7, 8, 9, 10]
    assert [row[1] for row in seen.events(since=2).rows()] == [6, 7, 8, 9, 10]
    events, following = seen.news(9)
    assert (len(events), following) == (1, 10)
    assert [len(seen.news(10)[0]), seen.news(10)[1]] == [0, 10]
    assert seen.news(0, 1)[1] == 10
    everything = AllocationRecorder()
    for at in range(100):
        everything.taken(0, 512, at + 1)
    assert len(everything.events()) == len(everything) == 100


def test_a_callback_comes_before_each_allocation_and_each_free() -> None:
    order: list[str] = []
    seen = AllocationRecorder(at_event=lambda: order.append(f"before {len(seen)}"))
    with seen:
        block = gl.cp.cuda.alloc(1000)
        order.append(f"after {len(seen)}")
        del block
    assert order == ["before 0", "after 2", "before 2"]
    assert len(seen) == 4
    silent = AllocationRecorder()
    silent.before()


def test_memory_that_comes_from_no_pool_is_noted() -> None:
    cuda = gl.cp.cuda
    note = "Allocations come from no MemoryPool here, and only such pools tell of them."
    seen = AllocationRecorder()
    assert seen.note == ""
    with cuda.using_allocator(None), seen:
        assert seen.note == note
    own = cuda.MemoryPool()
    with cuda.using_allocator(own.malloc), seen:
        assert seen.note == ""


def test_hooks_of_a_recorder_leave_with_it() -> None:
    hooks = gl.cp.cuda.memory_hook.get_memory_hooks()
    before = dict(hooks)
    seen = AllocationRecorder()
    other = AllocationRecorder()
    with other:
        with seen:
            with seen.in_this_thread():
                assert len(hooks) == len(before) + 2, "it is seen already"
            assert len(hooks) == len(before) + 2
        assert len(hooks) == len(before) + 1
        with seen.in_this_thread():
            assert len(hooks) == len(before) + 2
            gl.cp.cuda.alloc(10)
        assert len(hooks) == len(before) + 1
        gl.cp.cuda.alloc(10)
        assert seen.stop() is None
        assert len(hooks) == len(before) + 1, "another's stays"
    assert dict(hooks) == before
    assert [row[0] for row in seen.events().rows()].count("alloc") == 1
    assert [row[0] for row in other.events().rows()].count("alloc") == 2


def test_a_recorder_in_another_thread_sees_nothing_after_its_end() -> None:
    seen = AllocationRecorder()
    begun = threading.Event()
    ended = threading.Event()
    left: list[int] = []

    def work() -> None:
        seen.start()
        gl.cp.cuda.alloc(10)
        begun.set()
        ended.wait(20)
        gl.cp.cuda.alloc(10)
        left.append(len(gl.cp.cuda.memory_hook.get_memory_hooks()))

    thread = threading.Thread(target=work)
    thread.start()
    begun.wait(20)
    seen.stop()
    ended.set()
    thread.join()
    assert [row[0] for row in seen.events().rows()].count("alloc") == 1


# -- stacks -----------------------------------------------------------------------------------------------


def library(code: str, name: str = "numpy.fake") -> dict[str, Any]:
    variables: dict[str, Any] = {"__name__": name}
    exec(compile(code, "<string>", "exec"), variables)
    return variables


THROUGH = library("def through(f, depth):\n    return through(f, depth - 1) if depth > 1 else f()\n")[
    "through"
]


def stack_of(seen: AllocationRecorder) -> list[str]:
    number = [*seen.events().rows()][-1][6]
    return [frame.function for frame in seen.stacks[number]] if number >= 0 else []


def test_stacks_hold_the_program_s_lines_alone() -> None:
    seen = AllocationRecorder()

    def inner() -> None:
        seen.taken(0, 512, 1)

    def outer(depth: int) -> list[str]:
        THROUGH(inner, depth)
        return stack_of(seen)

    me = "test_stacks_hold_the_program_s_lines_alone"
    assert outer(1)[:3] == ["inner", "outer", me]
    assert outer(hook.MOST_FOREIGN)[:3] == ["inner", "outer", me]
    assert outer(hook.MOST_FOREIGN + 1) == ["inner"]
    THROUGH(lambda: THROUGH(inner, 2), 2)
    assert stack_of(seen)[:3] == ["inner", "<lambda>", me]
    THROUGH(lambda: THROUGH(inner, hook.MOST_FOREIGN), hook.MOST_FOREIGN)
    assert stack_of(seen)[:3] == ["inner", "<lambda>", me], "each stretch of a library is counted by itself"
    assert outer(1)[:3] == ["inner", "outer", me]
    assert len(seen.stacks) == len({*seen.stacks}) == len(seen.sources)
    assert seen.sources[0].text == "seen.taken(0, 512, 1)"


def test_before_the_program_s_first_line_a_library_may_be_deep() -> None:
    seen = AllocationRecorder()
    THROUGH(lambda: None, 1)
    ask = library(
        "def ask(seen, depth):\n    return ask(seen, depth - 1) if depth else seen.taken(0, 512, 1)\n"
    )
    ask["ask"](seen, 3 * hook.MOST_FOREIGN)
    assert stack_of(seen)[0] == "test_before_the_program_s_first_line_a_library_may_be_deep"


def test_stacks_end_where_the_program_does_and_at_a_depth() -> None:
    seen = AllocationRecorder()

    def deep(left: int) -> None:
        if left:
            deep(left - 1)
        else:
            seen.taken(0, 512, 1)

    deep(200)
    assert stack_of(seen) == ["deep"] * hook.MOST_FRAMES
    cell = "def in_cell(f):\n    return f()\nin_cell(given)\n"
    for name, ends in (("__main__", True), ("mine", False)):
        variables: dict[str, Any] = {"__name__": name, "given": lambda: seen.taken(0, 512, 2)}
        exec(compile(cell, "<cell>", "exec"), variables)
        found = stack_of(seen)
        assert found[:3] == ["<lambda>", "in_cell", "<module>"]
        assert (len(found) == 3) is ends


def test_what_no_line_of_the_program_asked_for_has_no_stack() -> None:
    seen = AllocationRecorder()
    thread = threading.Thread(target=seen.freed, args=(0, 512, 1))
    thread.start()
    thread.join()
    assert [row[6] for row in seen.events().rows()] == [-1, -1]
    assert seen.stacks == seen.sources == []


def test_of_very_many_stacks_the_first_are_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hook, "MOST_STACKS", 2)
    seen = AllocationRecorder()
    first = lambda: seen.taken(0, 512, 1)  # noqa: E731
    second = lambda: seen.taken(0, 512, 2)  # noqa: E731
    third = lambda: seen.taken(0, 512, 3)  # noqa: E731
    for each in (first, second, third):
        each()
    for each in (first, second, third):
        each()
    found = [row[6] for row in seen.events().rows()]
    assert found[:3] == [0, 1, -1]
    assert found[5] == -1
    assert len(seen.stacks) == 2


# -- page-locked memory -----------------------------------------------------------------------------------


def test_a_pool_of_page_locked_memory_tells_its_events() -> None:
    made = PinnedRecorder()
    cuda = gl.cp.cuda
    made.start()
    try:
        first = cuda.alloc_pinned_memory(1000)
        at = first.ptr
        del first
        second = cuda.alloc_pinned_memory(700)
    finally:
        trace = made.stop()
    assert second.ptr == at
    assert [row[:5] for row in trace.events.rows()] == [
        ("segment_alloc", at, 1024, 0, 0),
        ("alloc", at, 1024, 1000, 0),
        ("free_completed", at, 1024, 1000, 0),
        ("alloc", at, 1024, 700, 0),
    ]
    times = trace.events.time_ns.tolist()
    assert times == sorted(times)
    assert 0 <= times[0] <= times[-1] < 60e9
    assert (trace.device_id, trace.allocator) == (0, "CuPy's pool of pinned memory")
    first_map = trace.first
    assert (first_map.device_id, first_map.time_ns) == (0, 0)
    assert (first_map.limit_bytes, first_map.segments) == (0, ())
    outside = cuda.alloc_pinned_memory(5000)
    assert len(made.record().events) == 4
    assert outside.ptr
    del second
    assert [row[0] for row in made.record().events.rows()][4:] == ["free_completed"]
    made.pool.free_all_blocks()
    gc.collect()
    assert [row[:4] for row in made.record().events.rows()][5:] == [("segment_free", at, 1024, 0)]


def test_page_locked_memory_is_measured_on_this_computer(monkeypatch: pytest.MonkeyPatch) -> None:
    assert PinnedRecorder().record().provenance.source == "modelled"
    found = SimpleNamespace(provenance=Provenance("measured", "an L4"))
    monkeypatch.setattr(pinned.current, "backend", lambda: found)
    made = PinnedRecorder().record().provenance
    assert made == Provenance("measured", "this computer", "CuPy's pinned memory for an L4")


def test_buffers_are_locked_for_all_devices(monkeypatch: pytest.MonkeyPatch) -> None:
    flags: list[int] = []
    made = PinnedRecorder()
    memory = gl.cp.cuda.PinnedMemory
    monkeypatch.setattr(
        made._cp.cuda, "PinnedMemory", lambda size, flag: (flags.append(flag), memory(size, flag))[1]
    )
    made.pool.malloc(10)
    assert flags == [1], "cudaHostAllocPortable (driver_types.h)"


# -- pools that tell nothing ------------------------------------------------------------------------------


class Silent:
    """As CuPy's pool on a real GPU: totals, but neither segments nor blocks."""

    def __init__(self, total: int, limit: int = 0) -> None:
        self.total = total
        self.limit = limit

    def total_bytes(self) -> int:
        return self.total

    def get_limit(self) -> int:
        return self.limit


def test_the_pool_of_the_allocator_is_the_current_one() -> None:
    cp = gl.cp
    assert current_pool() is cp.get_default_memory_pool()
    own = cp.cuda.MemoryPool()
    with cp.cuda.using_allocator(own.malloc):
        assert current_pool() is own
    with cp.cuda.using_allocator(lambda size: own.malloc(size)):
        assert current_pool() is cp.get_default_memory_pool()


def test_where_an_array_lies(monkeypatch: pytest.MonkeyPatch) -> None:
    x = gl.cp.zeros(4)
    assert lies_here(x) is True
    gl.use_device("virtual:A100")
    assert lies_here(x) is False
    gl.use_device("virtual:T4")

    def real(device_id: int) -> Any:
        return SimpleNamespace(data=SimpleNamespace(mem=SimpleNamespace(device_id=device_id)))

    assert lies_here(real(0)) is True
    assert lies_here(real(1)) is False


def test_living_arrays_stand_for_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    class PooledMemory:
        def __init__(self, ptr: int, size: int, device_id: int = 0) -> None:
            self.ptr = ptr
            self.size = size
            self.device_id = device_id

    class Other(PooledMemory):
        pass

    class Array:
        shape = (7,)
        dtype = "int8"
        __cuda_array_interface__: Any = None

        def __init__(self, mem: Any) -> None:
            self.data = SimpleNamespace(mem=mem, ptr=mem.ptr)
            self.size = 1
            self.base = None

    cp = SimpleNamespace(ndarray=Array, cuda=gl.cp.cuda)
    monkeypatch.setattr(pool.current, "cp", lambda: cp)
    one = PooledMemory(5000, 1024)
    one_of_two = Array(one)
    kept = [
        Array(PooledMemory(9000, 512)),
        one_of_two,
        Array(one),
        Array(PooledMemory(6000, 512, 1)),
        Array(Other(7000, 512)),
        Array(PooledMemory(0, 512)),
    ]
    now, note = block_map(Silent(1536, 77))
    assert [(s.address, s.size_bytes, s.stream) for s in now.segments] == [(5000, 1024, 0), (9000, 512, 0)]
    blocks = [block for segment in now.segments for block in segment.blocks]
    assert [(b.address, b.size_bytes, b.is_free, b.requested_bytes) for b in blocks] == [
        (5000, 1024, False, 0),
        (9000, 512, False, 0),
    ]
    assert [b.label for b in blocks] == [
        "one_of_two: int8 array of shape (7,)",
        "kept[0]: int8 array of shape (7,)",
    ]
    assert (now.device_id, now.limit_bytes) == (0, 77)
    told = "CuPy's pool does not tell its segments: what it held before is shown as blocks of the arrays "
    assert note == f"{told}that lived then."
    assert block_map(Silent(1537))[1] == f"{told}that lived then, and 1 byte of it are not shown."
    assert block_map(Silent(1535))[1] == f"{told}that lived then."
    empty, note = block_map(Silent(0))
    assert (empty.segments, note) == ((), "")
    assert len(kept) == 6


def test_blocks_of_a_pool_that_tells_have_the_program_s_names() -> None:
    kept = gl.cp.zeros(100, gl.cp.int8)
    now, note = block_map(gl.cp.get_default_memory_pool())
    labels = [block.label for block in now.blocks if block.address == int(kept.data.ptr)]
    assert len(labels) == 1
    assert labels[0].startswith("kept: ")
    assert note == ""


def test_what_a_pool_gave_back_is_seen_at_the_next_event(monkeypatch: pytest.MonkeyPatch) -> None:
    made = PoolRecorder()
    made.pool = silent = Silent(3000)
    made._total = 3000
    assert made.capacity_bytes > 0

    told = 0

    def news() -> list[tuple[Any, ...]]:
        nonlocal told
        found = [*made.events().rows()]
        new = found[told:]
        told = len(found)
        for action, _, _, requested, stream, _, stack in new:
            assert action != "segment_free" or (requested, stream) == (0, 0)
            assert made.stacks[stack][0].function in ("test_what_a_pool_gave_back_is_seen_at_the_next_event",)
        return [row[:3] for row in new]

    made.before()
    assert news() == [], "nothing went"
    silent.total = 2000
    made.before()
    assert news() == [("segment_free", 0, 1000)]
    made.before()
    assert news() == []
    silent.total = 2512
    made.taken(made.device, 512, 8000)
    assert news() == [("segment_alloc", 8000, 512)], "what it took is no change"
    silent.total = 2000
    made.taken(made.device, 1024, 8100)
    assert news() == [("segment_free", 0, 1536), ("segment_alloc", 8100, 1024)]
    silent.total = 2400
    made.before()
    assert news() == [], "it took some unseen"
    silent.total = 2399
    made.allocated(made.device, 10, 512, 8000, True)
    assert news() == [("segment_free", 0, 1), ("alloc", 8000, 512)]
    made.taken(made.device, 600, 0)
    made.taken(made.device + 1, 600, 9000)
    assert [action for action, *_ in news()] == ["segment_alloc", "segment_alloc"]
    monkeypatch.setattr(made._cp.cuda.runtime, "getDevice", lambda: made.device + 1)
    silent.total = 5
    made.before()
    assert news() == [], "a pool tells of the current device"


def test_the_limit_that_refused_is_the_one_that_is_told() -> None:
    def of(*steps: tuple[int, bool], end: int = 0, first: int = 0) -> int:
        made = PoolRecorder()
        made.first = made.first.__class__(made.first.provenance, 0, 0, first, ())
        made.pool = silent = Silent(0)
        made._total = 0
        for at, (limit, given) in enumerate(steps):
            silent.limit = limit
            made.allocated(0, 10, 512, 1000 + at, given)
        silent.limit = end
        return made.stop().first.limit_bytes

    assert of((700, True)) == 0
    assert of((700, True), end=900) == 900
    assert of(end=0, first=300) == 300
    assert of((700, False), (800, True), end=900) == 700
    assert of((700, False), (800, False), end=900) == 800


def test_notes_of_a_trace() -> None:
    made = PoolRecorder()
    made.pool = Silent(100)
    made._total = 300
    trace = made.stop()
    assert trace.note == "200 bytes that went back to the device are still shown: it is not known which."
    assert (trace.allocator, trace.device_id) == ("CuPy's pool", 0)
    assert trace.capacity_bytes == made.capacity_bytes > 0
    assert [stack[0].function for stack in trace.stacks] == ["test_notes_of_a_trace"]
    made = PoolRecorder()
    made.unknown = "First."
    made.failed = 2
    assert made.stop().note == "First. 2 events could not be recorded."


def test_a_trace_has_the_text_of_its_lines() -> None:
    made = PoolRecorder()
    made.pool = Silent(made._total + 512)
    made.taken(0, 512, 1000)
    trace = made.stop()
    assert trace.texts == ("made.taken(0, 512, 1000)",)
    assert trace.note == ""


def test_what_is_measured_says_by_what(monkeypatch: pytest.MonkeyPatch) -> None:
    assert pool.provenance() == current.backend().provenance
    found = SimpleNamespace(provenance=Provenance("measured", "an L4"))
    monkeypatch.setattr(pool.current, "backend", lambda: found)
    assert pool.provenance() == Provenance("measured", "an L4", "CuPy's memory hooks")


# -- readings ---------------------------------------------------------------------------------------------


def events(*given: tuple[str, int, int, int]) -> AllocatorEvents:
    """Of (action, bytes, time, stack)."""
    columns = list(zip(*given, strict=True)) if given else [()] * 4
    zeros = np.zeros(len(given), np.int64)
    return AllocatorEvents(
        actions=np.array([ACTIONS.index(action) for action in columns[0]], np.uint8),
        addresses=zeros,
        size_bytes=np.array(columns[1], np.int64),
        requested_bytes=zeros,
        streams=zeros,
        time_ns=np.array(columns[2], np.int64),
        stacks=np.array(columns[3], np.int32),
    )


def test_marks_are_sums_by_line() -> None:
    assert marks_of(events(), 0) == []
    assert marks_of(events(("segment_alloc", 512, 5, 1), ("free_completed", 5, 5, 1)), 0) == []
    found = marks_of(
        events(
            ("segment_alloc", 9999, 100, 3),
            ("alloc", 512, 130, 3),
            ("alloc", 1024, 120, 3),
            ("free_requested", 512, 140, 3),
            ("free_completed", 512, 140, 3),
            ("oom", 4096, 110, -1),
            ("free_requested", 256, 105, 7),
        ),
        100,
    )
    assert found == [(5, 0, 0, 1, 256, 0, 7), (10, 0, 0, 0, 0, 1, -1), (20, 2, 1536, 1, 512, 0, 3)]


def test_of_more_lines_than_eight_the_least_are_one_mark() -> None:
    eight = [("alloc", 100 * n, 10 * n, n) for n in range(1, 9)]
    assert [row[6] for row in marks_of(events(*eight), 0)] == [1, 2, 3, 4, 5, 6, 7, 8]
    found = marks_of(events(*eight, ("free_requested", 1000, 90, 9)), 0)
    assert [row[6] for row in found] == [-1, 3, 4, 5, 6, 7, 8, 9]
    assert found[0] == (10, 2, 300, 0, 0, 0, -1)
    refused = marks_of(events(*eight, ("oom", 0, 95, 9), ("free_requested", 60, 96, 10)), 0)
    assert [row[6] for row in refused] == [-1, 3, 4, 5, 6, 7, 8, 9], "a refusal goes before any bytes"
    assert refused[0] == (10, 2, 300, 1, 60, 0, -1)


def test_the_peak_between_two_readings_is_what_the_pool_s_calls_say() -> None:
    seen = AllocationRecorder()
    used: list[Any] = []

    def read() -> MemoryReading:
        return MemoryReading(used.pop(0), 4000, 9000, 500, 50)

    made = _Readings(read, seen, 1 << 20)

    def reading(now: int | None) -> tuple[Any, ...]:
        used.append(now)
        return tuple(made())

    assert reading(1000) == (1000, 4000, 1000, 9000, 500, 50)
    seen.allocated(0, 0, 600, 1, True)
    seen.freed(0, 600, 1)
    assert reading(1000)[2] == 1600, "between them it was more"
    assert reading(1000)[2] == 1000
    seen.allocated(0, 0, 600, 1, True)
    assert reading(1600)[2] == 1600
    assert reading(1700)[2] == 1700, "what no hook told counts from now on"
    seen.freed(0, 600, 1)
    seen.allocated(0, 0, 200, 1, True)
    assert reading(1300)[2] == 1700
    assert reading(None)[2] is None
    assert reading(5000)[2] == 5000


def test_more_than_there_is_was_never_reserved() -> None:
    reserved = iter([100, 1024, 1025, None, 50])
    made = _Readings(lambda: MemoryReading(1, next(reserved), 0, 4, 0), AllocationRecorder(), 1024)
    assert [made()[1] for _ in range(5)] == [100, 1024, 1024, None, 50]


def test_a_recording_of_a_device_s_memory() -> None:
    cp = gl.cp
    made = MemoryRecorder(1.0)
    told: list[tuple[Any, ...]] = []
    made.sampler.start = lambda: made.sampler.take()
    before = cp.cuda.alloc(512)
    made.start()
    kept = cp.cuda.alloc(1 << 20)
    made.tell(lambda *tick: told.append(tick), 0)
    made.sampler.take()
    other = cp.cuda.alloc(1 << 21)
    found = made.stop()
    assert [number for number, *_ in told] == [1, 2]
    assert [[row[1:3] for row in marks] for _, _, marks, _, _ in told] == [[(1, 1 << 20)], [(1, 1 << 21)]]
    assert [[line.text for line in lines] for *_, lines, _ in told] == [
        ["kept = cp.cuda.alloc(1 << 20)"],
        ["other = cp.cuda.alloc(1 << 21)"],
    ]
    assert [line.text for line in found.lines] == [lines[0].text for *_, lines, _ in told]
    assert found.marks.allocated_bytes.tolist() == [1 << 20, 1 << 21]
    assert found.marks.line.tolist() == [0, 1]
    assert (found.device_id, found.note) == (0, "")
    assert found.capacity_bytes == current.backend().device_info().memory_bytes
    assert found.provenance == current.backend().provenance
    steps = np.diff(found.used_bytes)
    assert steps.tolist() == [1 << 20, 1 << 21]
    assert (np.diff(found.time_ns) > 0).all()
    cp.cuda.alloc(512)
    made.sampler.take()
    assert len(made.record().marks) == 2, "its hooks have left"
    assert before.ptr
    assert kept.ptr != other.ptr


def test_lines_that_are_known_are_not_told_again() -> None:
    made = MemoryRecorder(1.0)
    told: list[list[str]] = []
    with made.seen:
        one = gl.cp.cuda.alloc(512)
        made.tell(lambda number, row, marks, lines, failure: told.append([each.text for each in lines]), 1)
        made.sampler.take()
        two = gl.cp.cuda.alloc(512)
        made.sampler.take()
        made.sampler.take()
    assert told == [[], ["two = gl.cp.cuda.alloc(512)"], []]
    assert one.ptr != two.ptr


def test_a_reading_that_fails_is_noted() -> None:
    made = MemoryRecorder(1.0)
    made.sampler.take()
    made.seen.failed = 1

    def fails() -> Any:
        raise RuntimeError("no device")

    made.sampler._read = fails
    made.sampler.take()
    failure = "The last reading failed: RuntimeError: no device."
    assert made.record().note == f"1 event could not be recorded. {failure}"
    assert np.isnan(made.record().used_bytes[-1])


def test_readings_keep_no_recorder_alive() -> None:
    made = MemoryRecorder(1.0)
    sampler = made.sampler
    before = sys.getrefcount(made)
    sampler.take()
    assert sys.getrefcount(made) == before
    del made
    gc.collect()
    sampler.take()
    assert sampler.failure == ""
    assert readings.MARKS_A_READING == 8
