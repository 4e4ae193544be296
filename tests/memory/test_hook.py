"""The recorder of allocations: its events, their lines, and that it disturbs no program."""

from __future__ import annotations

import gc
import threading

import pytest

import gpulab as gl
from gpulab.session.pools.hook import AllocationRecorder


@pytest.fixture(autouse=True)
def device() -> None:
    gl.use_device("virtual:T4")
    gl.use_device("virtual")


def zeros(n: int):
    return gl.cp.zeros(n, gl.cp.uint8)


def count(recorder: AllocationRecorder, action: str) -> int:
    return [row[0] for row in recorder.events().rows()].count(action)


def test_events_have_sizes_streams_and_lines():
    cp = gl.cp
    side = cp.cuda.Stream(non_blocking=True)
    with AllocationRecorder() as recorder:
        a = zeros(1000)
        with side:
            b = zeros(513)
        first_ptr = a.data.ptr
        second_ptr = b.data.ptr
        del a, b
    rows = list(recorder.events().rows())
    assert [row[:5] for row in rows] == [
        ("segment_alloc", first_ptr, 1024, 0, 0),
        ("alloc", first_ptr, 1024, 1000, 0),
        ("segment_alloc", second_ptr, 1024, 0, side.ptr),
        ("alloc", second_ptr, 1024, 513, side.ptr),
        ("free_requested", first_ptr, 1024, 1000, 0),
        ("free_completed", first_ptr, 1024, 1000, 0),
        ("free_requested", second_ptr, 1024, 513, side.ptr),
        ("free_completed", second_ptr, 1024, 513, side.ptr),
    ]
    first, second = (recorder.stacks[rows[i][6]] for i in (1, 3))
    assert [frame.function for frame in first][:2] == ["zeros", "test_events_have_sizes_streams_and_lines"]
    assert first[0] == second[0] == ("test_hook.py", zeros.__code__.co_firstlineno + 1, "zeros")
    assert second[1].line - first[1].line == 2  # the distance of the calls above
    assert [row[5] for row in rows] == sorted(row[5] for row in rows)
    zeros(5)
    assert len(recorder) == len(rows)


def test_a_request_that_fails_is_an_event_with_the_free_bytes():
    free_bytes = gl.cp.cuda.runtime.memGetInfo()[0]
    with AllocationRecorder() as recorder, pytest.raises(gl.cp.cuda.memory.OutOfMemoryError):
        gl.cp.cuda.alloc(1 << 45)
    assert [row[:4] for row in recorder.events().rows()] == [("oom", free_bytes, 1 << 45, 1 << 45)]
    assert (recorder.held_bytes, recorder.most_held_bytes) == (0, 0)


def test_two_calls_on_one_line_share_one_stack():
    with AllocationRecorder() as recorder:
        arrays = [zeros(1), zeros(2)]
    stacks = {row[6] for row in recorder.events().rows() if row[0] == "alloc"}
    assert len(stacks) == len(recorder.stacks) == len(recorder.source_lines) == 1
    assert arrays[0].size < arrays[1].size


def test_a_block_that_another_thread_frees_is_freed_once():
    with AllocationRecorder() as recorder:
        arrays = [zeros(1000)]
        thread = threading.Thread(target=arrays.clear)
        thread.start()
        thread.join()
        assert count(recorder, "free_completed") == 0
        again = zeros(1000)
    rows = [*recorder.events().rows()]
    expected = ("segment_alloc", "alloc", "free_requested", "free_completed", "alloc")
    assert [row[:2] for row in rows] == [(action, again.data.ptr) for action in expected]
    assert rows[2][6] == rows[3][6] == -1, "the line of the other thread is not known"
    assert recorder.note.startswith("1 block was freed by another thread")
    assert (recorder.missed_frees, recorder.held_bytes, recorder.most_held_bytes) == (1, 1024, 1024)


def test_unreferenced_recorder_is_removed_from_the_hooks():
    hooks = gl.cp.cuda.memory_hook.get_memory_hooks()
    lost = AllocationRecorder()
    other = AllocationRecorder()
    lost.start()
    with other:
        lost.start()  # a second time changes nothing
        zeros(1)
        del lost
        gc.collect()
        zeros(1)
        with AllocationRecorder():
            assert len(hooks) == 2
    assert not hooks
    assert count(other, "alloc") == 2


def test_an_error_in_a_callback_does_not_reach_the_program():
    def broken() -> None:
        raise RuntimeError("broken")

    with AllocationRecorder(before_event=broken) as recorder:
        zeros(1)
    assert count(recorder, "alloc") == 1
    assert recorder.note == "2 events could not be recorded."


def test_allocations_of_another_thread_are_recorded_on_request():
    recorder = AllocationRecorder()

    def work() -> None:
        zeros(1)
        with recorder.record_this_thread():
            zeros(1)
        zeros(1)

    thread = threading.Thread(target=work)
    with recorder:
        thread.start()
        thread.join()
        with recorder.record_this_thread():
            zeros(1)
    assert count(recorder, "alloc") == 2
