"""The recorder of allocations: what it sees, of whom, with which lines, and that it harms nobody."""

from __future__ import annotations

import gc
import threading

import pytest

import gpulab as gl
from gpulab.session.pools.hook import AllocationRecorder
from virtualgpu.records.memory import ACTIONS


@pytest.fixture(autouse=True)
def device() -> None:
    gl.use_device("virtual:T4")
    gl.use_device("virtual")


def made(n: int):
    return gl.cp.zeros(n, gl.cp.uint8)


def count(seen: AllocationRecorder, action: str) -> int:
    return [row[0] for row in seen.events().rows()].count(action)


def test_events_tell_sizes_streams_and_lines():
    cp = gl.cp
    side = cp.cuda.Stream(non_blocking=True)
    with AllocationRecorder() as seen:
        a = made(1000)
        with side:
            b = made(513)
        at = a.data.ptr
        other = b.data.ptr
        del a, b
    rows = list(seen.events().rows())
    assert [row[:5] for row in rows] == [
        ("segment_alloc", at, 1024, 0, 0),
        ("alloc", at, 1024, 1000, 0),
        ("segment_alloc", other, 1024, 0, side.ptr),
        ("alloc", other, 1024, 513, side.ptr),
        ("free_requested", at, 1024, 1000, 0),
        ("free_completed", at, 1024, 1000, 0),
        ("free_requested", other, 1024, 513, side.ptr),
        ("free_completed", other, 1024, 513, side.ptr),
    ]
    first, second = (seen.stacks[rows[i][6]] for i in (1, 3))
    assert [frame.function for frame in first][:2] == [
        "made",
        test_events_tell_sizes_streams_and_lines.__name__,
    ]
    here = made.__code__.co_firstlineno + 1
    assert first[0] == second[0] == ("test_hook.py", here, "made")
    assert second[1].line - first[1].line == 2  # as the calls above stand
    assert [r[5] for r in rows] == sorted(r[5] for r in rows)
    made(5)
    assert len(seen) == len(rows)


def test_a_request_that_fails_is_an_event_and_fails_as_before():
    with AllocationRecorder() as seen, pytest.raises(gl.cp.cuda.memory.OutOfMemoryError):
        gl.cp.cuda.alloc(1 << 45)
    assert [(row[0], row[2]) for row in seen.events().rows()] == [("oom", 1 << 45)]


def test_equal_stacks_are_kept_once_and_the_last_events_stay():
    with AllocationRecorder(keep=10_000) as seen:
        for _ in range(20_000):
            gl.cp.cuda.alloc(1000)
    assert len(seen) == 60_001  # the segment, and three events a turn
    kept = seen.events()
    assert 10_000 <= len(kept) < 30_000
    assert len(seen.stacks) <= 3
    assert len(seen.events(since=60_000)) == 1
    assert seen.news(0, None)[1] == len(seen)
    last = kept.actions[-3:].tolist()
    assert [ACTIONS[code] for code in last] == ["alloc", "free_requested", "free_completed"]


def test_two_places_of_one_line_are_one_stack():
    with AllocationRecorder() as seen:
        arrays = [made(1), made(2)]
    stacks = {row[6] for row in seen.events().rows() if row[0] == "alloc"}
    assert len(stacks) == len(seen.stacks) == len(seen.sources) == 1
    assert arrays[0].size < arrays[1].size


def test_a_block_that_another_thread_frees_is_freed_once():
    with AllocationRecorder() as seen:
        held = [made(1000)]
        thread = threading.Thread(target=held.clear)
        thread.start()
        thread.join()
        assert count(seen, "free_completed") == 0
        again = made(1000)
    rows = [(row[0], row[1]) for row in seen.events().rows()]
    expected = ("segment_alloc", "alloc", "free_requested", "free_completed", "alloc")
    assert rows == [(action, again.data.ptr) for action in expected]
    assert seen.note.startswith("1 block was freed by another thread")


def test_two_recorders_and_one_that_is_gone_disturb_nobody():
    hooks = gl.cp.cuda.memory_hook.get_memory_hooks()
    one = AllocationRecorder()
    other = AllocationRecorder()
    one.start()
    with other:
        one.start()  # a second time changes nothing
        made(1)
        del one
        gc.collect()
        made(1)
        with AllocationRecorder():
            assert len(hooks) == 2  # the one that is gone has left
    assert not hooks
    assert count(other, "alloc") == 2


def test_what_fails_in_a_callback_does_not_reach_the_program():
    def broken() -> None:
        raise RuntimeError("broken")

    with AllocationRecorder(at_event=broken) as seen:
        made(1)
    assert count(seen, "alloc") == 1
    assert seen.note == "2 events could not be recorded."


def test_a_callback_of_another_thread_is_seen_where_it_asks():
    seen = AllocationRecorder()

    def work() -> None:
        made(1)
        with seen.in_this_thread():
            made(1)
        made(1)

    thread = threading.Thread(target=work)
    with seen:
        thread.start()
        thread.join()
        with seen.in_this_thread():
            made(1)
    assert count(seen, "alloc") == 2
