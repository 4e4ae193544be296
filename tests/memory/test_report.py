"""``gl.memory_report`` compared with arithmetic by hand: calls that return, fail, run out of memory."""

from __future__ import annotations

import gc
import re
from functools import partial
from types import SimpleNamespace

import numpy as np
import pytest

import gpulab as gl
from gpulab import session
from gpulab.lab.memory import report
from virtualgpu.records.memory import MemoryReading

MIB = 1 << 20


@pytest.fixture(autouse=True)
def device() -> None:
    gl.use_device("virtual:T4")
    gl.use_device("virtual:A100")


def zeros(mib: int):
    return gl.cp.zeros(mib * MIB, gl.cp.uint8)


def climb(argument):
    first = zeros(10)
    second = zeros(20)
    del first
    third = zeros(5)
    return second, third, argument


def groups(report) -> list[tuple[str, str, int]]:
    return [(group.arrays, group.stay, group.size_bytes // MIB) for group in report.alive]


def test_report_has_the_peak_its_line_and_the_live_arrays():
    held = zeros(3)
    r = gl.memory_report(climb, held)
    assert (r.before_bytes, r.peak_bytes, r.after_bytes) == (3 * MIB, 33 * MIB, 28 * MIB)
    assert r.peak_reserved_bytes == 33 * MIB  # the 5 MiB come out of the block of 10
    assert r.needed_bytes == 30 * MIB
    assert (r.source.text, r.stack[0].function) == ("return gl.cp.zeros(mib * MIB, gl.cp.uint8)", "zeros")
    assert r.stack[1].function == "climb"
    assert r.stack[1].line == climb.__code__.co_firstlineno + 2
    assert groups(r) == [
        ("second: uint8 (20971520,)", "kept", 20),
        ("first: uint8 (10485760,)", "temporary", 10),
        ("held: uint8 (3145728,)", "before the call", 3),
    ]
    assert r.temporary_bytes == 10 * MIB
    assert (r.allocations, r.frees) == (3, 1)
    assert gl.cp.get_default_memory_pool().used_bytes() == 3 * MIB, "the result is dropped"
    assert not gl.cp.cuda.memory_hook.get_memory_hooks()
    text = repr(r)
    page = r._repr_html_()
    for part in (
        "climb: peak 33 MiB",
        "30 MiB",
        "modelled on virtual A100",
        "10 MiB",
        "25 MiB remained in use",
    ):
        assert part in text
    assert re.search(r"T4 +16 GiB +15.5 GiB", text)
    assert page.count("<table") == 2


def test_room_on_each_gpu_is_computed_from_the_peak():
    held = zeros(3)
    r = gl.memory_report(climb, held)
    here, *others = r.rooms
    free, total = gl.cp.cuda.Device().mem_info
    pool = gl.cp.get_default_memory_pool()
    assert here.room_bytes == free + pool.total_bytes() - 3 * MIB
    assert here.times == pytest.approx(here.room_bytes / (30 * MIB))
    t4 = next(room for room in others if room.provenance.device == "T4")
    assert t4.room_bytes == t4.memory_bytes - (512 + 3) * MIB
    assert t4.provenance.source == "published"
    pool.set_limit(size=63 * MIB)
    limited = gl.memory_report(climb, held).rooms[0]
    assert (limited.room_bytes, limited.times) == (60 * MIB, 2.0)
    assert held.size
    assert total == here.memory_bytes


def test_call_fits_at_the_reported_factor_and_fails_above_it():
    pool = gl.cp.get_default_memory_pool()
    pool.set_limit(size=64 * MIB)

    def work(mib: int):
        return zeros(mib), zeros(mib)

    times = gl.memory_report(work, 1).rooms[0].times
    assert times == 32
    pool.free_all_blocks()
    assert gl.memory_report(work, int(times)).failed is None
    pool.free_all_blocks()
    failed = gl.memory_report(work, int(times) + 1)
    assert failed.failed is not None
    assert failed.rooms[0].times < 1


def test_out_of_memory_report_names_the_request_and_frees_arrays():
    gl.cp.get_default_memory_pool().set_limit(size=50 * MIB)

    def fill():
        arrays = []
        while True:
            arrays.append(zeros(8))

    r = gl.memory_report(fill)
    assert (r.failed.size_bytes, r.peak_bytes) == (8 * MIB, 56 * MIB)
    assert "limit set to" in r.failed.message
    assert [(g.blocks, g.size_bytes // MIB, g.stay) for g in r.alive] == [(6, 48, "at the failure")]
    assert "48 MiB used, 8 MiB more requested" in repr(r)
    assert gl.cp.get_default_memory_pool().used_bytes() == 0
    assert not gl.cp.cuda.memory_hook.get_memory_hooks()


def test_a_failure_that_the_call_handles_is_not_reported():
    def careful():
        try:
            gl.cp.cuda.alloc(1 << 50)
        except gl.cp.cuda.memory.OutOfMemoryError:
            return zeros(2)

    r = gl.memory_report(careful)
    assert r.failed is None
    assert r.peak_bytes == 2 * MIB


def test_an_error_of_the_call_is_raised_with_the_report():
    def broken(n: int):
        _ = zeros(n)
        raise KeyError("mine")

    with pytest.raises(KeyError, match="mine") as caught:
        gl.memory_report(broken, n=4)
    assert caught.value.memory_report.peak_bytes == 4 * MIB
    assert "memory_report" in caught.value.__notes__[0]
    assert not gl.cp.cuda.memory_hook.get_memory_hooks()
    with pytest.raises(TypeError, match="needs a function"):
        gl.memory_report(3)


def test_memory_without_a_pool_is_noted_as_not_recorded():
    before = gl.cp.cuda.get_allocator()
    gl.cp.cuda.set_allocator(None)
    try:
        r = gl.memory_report(zeros, 2)
    finally:
        gl.cp.cuda.set_allocator(before)
    assert "do not use a MemoryPool" in r.note
    assert r.note in repr(r)
    assert gl.memory_report(zeros, 2).note == ""


def test_sizes_of_random_programs_equal_a_simple_count():
    """Compare sizes, peaks and remaining bytes of 8 programs with sums that the test computes."""
    rng = np.random.default_rng(5)
    for _ in range(8):
        steps = rng.integers(1, 5000, 30).tolist()
        drops = (rng.random(30) < 0.5).tolist()

        def program(steps=steps, drops=drops):
            blocks: list[object] = []
            for size, drop in zip(steps, drops, strict=True):
                blocks.append(gl.cp.cuda.alloc(size))
                if drop:
                    del blocks[0]
            return blocks

        sizes = []
        used = 0
        most = 0
        for size, drop in zip(steps, drops, strict=True):
            sizes.append(-(-size // 512) * 512)
            used += sizes[-1]
            most = max(most, used)
            if drop:
                used -= sizes.pop(0)
        r = gl.memory_report(program)
        assert (r.peak_bytes, r.after_bytes) == (most, used)
        assert sum(group.size_bytes for group in r.alive) == most
        assert r.frees == sum(drops)


def test_list_arrays_are_grouped_and_raw_memory_is_unnamed():
    unnamed = gl.cp.cuda.alloc(7 * MIB)
    xs = [zeros(1)]

    def fill(count: int):
        for _ in range(count):
            xs.append(zeros(2))
        return zeros(4)

    r = gl.memory_report(fill, 3)
    assert [(g.arrays, g.blocks, g.size_bytes // MIB, g.stay) for g in r.alive] == [
        ("", 0, 7, "before the call"),
        ("xs[…]: uint8 (2097152,)", 3, 6, "kept"),
        ("uint8 (4194304,)", 1, 4, "kept"),
        ("xs[0]: uint8 (1048576,)", 1, 1, "before the call"),
    ]
    assert r.alive[1].requested_bytes == 6 * MIB
    del xs[:]
    second = gl.memory_report(fill, 1)
    assert ("xs[0]: uint8 (2097152,)", "kept", 2) in groups(second)
    assert unnamed.mem.size == 7 * MIB


def test_lost_events_are_noted(monkeypatch: pytest.MonkeyPatch):
    def busy():
        for _ in range(5):
            zeros(1)
        return zeros(3)

    assert gl.memory_report(busy).note == ""
    monkeypatch.setattr(report, "MAX_RECORDED_EVENTS", 4)
    lost = re.fullmatch(r"The first (\d+) events of the call are not recorded\.", gl.memory_report(busy).note)
    assert lost is not None
    # Of 16: six allocations, and five frees that are requested and completed.
    assert 16 - 2 * 4 <= int(lost[1]) <= 16 - 4


def test_peak_before_the_call_is_not_attributed_to_it():
    arrays = [zeros(9)]

    def shrink():
        arrays.clear()
        return zeros(2)

    r = gl.memory_report(shrink)
    assert (r.before_bytes, r.peak_bytes, r.after_bytes, r.needed_bytes) == (9 * MIB, 9 * MIB, 2 * MIB, 0)
    assert (r.source, r.stack, r.rooms[0].times) == (None, (), None)
    assert groups(r) == [("", "before the call", 9)]


def test_a_request_that_fails_outside_of_the_pool_has_no_size():
    def runs_out():
        zeros(2)
        raise gl.cp.cuda.memory.OutOfMemoryError(512, 1024)

    r = gl.memory_report(runs_out)
    assert r.failed is not None
    assert (r.failed.size_bytes, r.failed.source) == (0, None)
    assert r.failed.message
    assert (r.peak_bytes, r.name) == (0, "runs_out")
    assert gl.memory_report(partial(zeros, 1)).name == "partial"


def test_searching_for_array_names_keeps_no_array_alive() -> None:
    def again() -> None:
        y = zeros(1)
        for _ in range(6):
            y = y + 1
            gc.collect()

    assert gl.memory_report(again).record.needed_bytes == 2 * MIB


def test_arrays_of_an_earlier_device_are_not_listed():
    before = zeros(5)
    gl.use_device("virtual:T4")
    mine = [zeros(2) for _ in range(3)]
    assert before.nbytes < sum(array.nbytes for array in mine), "or it would not fit anyway"
    names = [group.arrays.partition(":")[0] for group in gl.memory_report(lambda: None).alive]
    assert names == ["mine[0]", "mine[1]", "mine[2]"]


# Figures of records that are made up, to the byte -------------------------------------------------------


@pytest.mark.parametrize(
    ("reserved", "device", "limit", "room"),
    [
        (30, 0, 0, 1010),
        (30, 100, 0, 910),
        (None, None, 0, 980),
        (30, 100, 400, 380),
        (30, 100, 930, 910),
        (30, 100, 929, 909),
        (None, None, None, 980),
    ],
)
def test_room_is_free_and_cached_memory_up_to_the_limit(
    reserved: int | None, device: int | None, limit: int | None, room: int
) -> None:
    run = report._RecordedCall("f")
    run._memory_before = MemoryReading(20, reserved, limit, device, None)
    info = SimpleNamespace(memory_bytes=1000)
    run._backend = SimpleNamespace(device_info=lambda: info, provenance="here")
    here, *others = run._compute_rooms(20, 40)
    assert (here.provenance, here.memory_bytes, here.room_bytes) == ("here", 1000, room)
    assert here.times == room / 40
    table = session.list_table_devices()
    assert [o.room_bytes for o in others] == [info.memory_bytes - (512 << 20) - 20 for info in table]
    assert {o.times for o in run._compute_rooms(20, 0)} == {None}


def test_peak_reserved_bytes_are_read_at_each_new_segment() -> None:
    totals: list[int | None] = [5, 9, 3, None]
    recorder = report._ReservedPeakRecorder(0, lambda: totals.pop(0))
    assert recorder.most_reserved_bytes == 5
    for most in (9, 9, 9):
        recorder.on_segment_allocation(0, 64, 1)
        assert recorder.most_reserved_bytes == most
    silent = report._ReservedPeakRecorder(0, lambda: None)
    silent.on_segment_allocation(0, 64, 1)
    assert silent.most_reserved_bytes == 0


def test_the_last_failure_is_reported() -> None:
    gl.cp.get_default_memory_pool().set_limit(size=50 * MIB)

    def tries():
        array = zeros(4)
        for mib in (60, 70):
            try:
                zeros(mib)
            except gl.cp.cuda.memory.OutOfMemoryError:
                array = zeros(8)
        return array, zeros(80)

    r = gl.memory_report(tries)
    assert (r.failed.size_bytes, r.peak_bytes) == (80 * MIB, 88 * MIB)
    assert r.failed.source.text == r.source.text == "return gl.cp.zeros(mib * MIB, gl.cp.uint8)"
    assert r.stack[1].line == tries.__code__.co_firstlineno + 7
    assert (r.allocations, r.frees, r.device_id) == (3, 2, 0)
    assert r.after_bytes == 8 * MIB
    assert r.provenance.label.startswith("modelled on virtual A100")


def test_reused_pool_blocks_are_attributed_to_the_call() -> None:
    """The call owns arrays in reused blocks, even if they would fit into unnamed memory from before."""
    zeros(5)
    zeros(3)
    unnamed = gl.cp.cuda.alloc(20 * MIB)
    mine = []

    def fill():
        mine.append(zeros(5))
        mine.append(zeros(3))

    r = gl.memory_report(fill)
    (old,) = (group for group in r.alive if not group.arrays)
    assert (old.blocks, old.requested_bytes, old.source, old.stack) == (0, 0, None, ())
    assert sorted(groups(r)) == [
        ("", "before the call", 20),
        ("mine[0]: uint8 (5242880,)", "kept", 5),
        ("mine[1]: uint8 (3145728,)", "kept", 3),
    ]
    assert unnamed.mem.size == 20 * MIB


def test_blocks_freed_by_the_call_are_not_alive_at_its_peak() -> None:
    held = [zeros(9), zeros(4)]
    name = gl.cp.zeros(100, gl.cp.uint8)

    def trades():
        del held[0]
        return zeros(30)

    r = gl.memory_report(trades)
    assert (r.before_bytes, r.peak_bytes) == (13 * MIB + 512, 34 * MIB + 512)
    assert [(g.arrays, g.stay, g.size_bytes, g.requested_bytes, g.blocks) for g in r.alive] == [
        ("uint8 (31457280,)", "kept", 30 * MIB, 30 * MIB, 1),
        ("held[0]: uint8 (4194304,)", "before the call", 4 * MIB, 4 * MIB, 1),
        ("name: uint8 (100,)", "before the call", 512, 100, 1),
    ]
    assert [(g.source is None, g.stack == ()) for g in r.alive] == [
        (False, False),
        (True, True),
        (True, True),
    ]
    assert name.size == 100


# Looking for arrays -------------------------------------------------------------------------------------


def test_only_the_two_youngest_gc_generations_are_searched() -> None:
    arrays = report._ArraySightings(SimpleNamespace(held_bytes=1, most_held_bytes=1))
    old = zeros(1)
    gc.collect()
    gc.disable()
    try:
        young = zeros(2)
        gc.collect(0)
        new = zeros(3)
        arrays.record_sightings()
        assert {row[-1] for rows in arrays._sightings_by_address.values() for row in rows} == {
            2 * MIB,
            3 * MIB,
        }
        arrays.record_sightings(searches_all_objects=True)
    finally:
        gc.enable()
    assert {row[1] for rows in arrays._sightings_by_address.values() for row in rows} >= {
        "old: uint8 (1048576,)",
        "young: uint8 (2097152,)",
        "new: uint8 (3145728,)",
    }
    assert old.size < young.size < new.size


def test_views_without_a_name_are_left_out() -> None:
    arrays = report._ArraySightings(SimpleNamespace(held_bytes=0, most_held_bytes=0))
    whole = [zeros(1)]
    part = whole[0][:512]
    nameless = [whole[0][512:]]
    arrays.record_sightings(searches_all_objects=True)
    (rows,) = arrays._sightings_by_address.values()
    names = sorted(row[1] for row in rows)
    assert "part: uint8 (512,)" in names
    assert "whole[0]: uint8 (1048576,)" in names
    assert len({row[2] for row in rows}) == 1
    assert part.size == 512
    assert nameless
