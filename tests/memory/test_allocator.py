"""``gl.allocator``: its record is what the pool holds, whatever the program did to it."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import gpulab as gl
from gpulab.allocators.replay import replay
from gpulab.allocators.snapshot import write_snapshot
from gpulab.allocators.torch import TorchAllocator
from gpulab.lab.memory import allocator
from gpulab.lab.memory.allocator import AllocatorReport
from gpulab.session.pools.pool import make_block_map
from gpulab.views.allocator import columns
from virtualgpu.errors import GpulabError
from virtualgpu.records.memory import ACTIONS, BlockMap, Request

MIB = 1 << 20


@pytest.fixture(autouse=True)
def device() -> Iterator[None]:
    gl.use_device("virtual:T4")
    gl.use_device("virtual")
    yield
    gl.use_device("virtual:T4")


def layout(blocks: BlockMap) -> list[object]:
    return [
        (s.address, s.size_bytes, s.stream, [(b.address, b.size_bytes, b.state) for b in s.blocks])
        for s in blocks.segments
    ]


@pytest.mark.parametrize("seed", range(2))
def test_the_last_step_equals_the_pools_block_map(seed: int) -> None:
    """The program uses two streams, reaches the limit, and releases segments in three different ways."""
    cp = gl.cp
    draw = random.Random(seed)
    pool = cp.get_default_memory_pool()
    pool.set_limit(size=30 * MIB)
    side = cp.cuda.Stream(non_blocking=True)
    arrays = [cp.empty(3 * MIB, cp.uint8)]
    refused = 0
    with gl.allocator() as a:
        for _ in range(200):
            act = draw.random()
            if act < 0.55:
                with draw.choice((cp.cuda.Stream.null, side)):
                    try:
                        arrays.append(cp.empty(draw.randint(1, 4 * MIB), cp.uint8))
                    except cp.cuda.memory.OutOfMemoryError:
                        refused += 1
            elif act < 0.95 and arrays:
                del arrays[draw.randrange(len(arrays))]
            elif act > 0.98:
                pool.free_all_blocks(draw.choice((None, side)))
    assert layout(a.at(-1)) == layout(pool.block_map())
    assert a.at(0).used_bytes == 3 * MIB
    actions = [row[0] for row in a.events.rows()]
    assert actions.count("oom") == refused > 0
    assert "segment_free" in actions
    assert a.record.note == ""
    figures = a.fragmentation()
    assert (figures.reserved_bytes, figures.used_bytes) == (pool.total_bytes(), pool.used_bytes())
    assert figures.free_bytes == pool.free_bytes()
    assert figures.room_bytes == 30 * MIB - pool.total_bytes()
    assert sum(arena.free_blocks for arena in figures.arenas) == pool.n_free_blocks()
    before = layout(pool.block_map())
    snapshot = gl.allocator()
    arrays.append(cp.empty(512, cp.uint8))
    assert layout(snapshot.at(0)) == before, "the state when the report was made"
    assert layout(pool.block_map()) != before
    assert len(snapshot.events) == 0


def test_blocks_have_their_source_lines_and_the_page_shows_them() -> None:
    with gl.allocator() as a:
        kept = gl.cp.zeros(1000, gl.cp.float32)
    block = next(b for b in a.at(-1).blocks if b.state == "used")
    frame = a.record.stacks[block.stack][0]
    assert frame.filename == "test_allocator.py"
    assert frame.function == "test_blocks_have_their_source_lines_and_the_page_shows_them"
    assert a.record.texts[block.stack] == "kept = gl.cp.zeros(1000, gl.cp.float32)"
    assert block.requested_bytes == kept.nbytes
    assert "kept = gl.cp.zeros" in a._picture().html()


def test_requests_are_replayed_in_pytorchs_allocator() -> None:
    a = one_and_another()
    view = a.compare("PyTorch")
    ours, theirs = view.panels
    assert [r.kind for r in view.maps.requests] == ["alloc", "alloc", "alloc", "free"]
    used_bytes = [ours.map_after(ours.find_step(request)).used_bytes for request in range(5)]
    assert used_bytes == [0, 300_032, 300_032 + 3 * MIB, 301_056 + 3 * MIB, 301_056]
    # Blocks of up to 1 MiB come from segments of 2 MiB, larger ones up to 10 MiB from segments of 20 MiB.
    total_mib = [theirs.map_after(theirs.find_step(request)).total_bytes // MIB for request in range(5)]
    assert total_mib == [0, 2, 22, 22, 22]
    assert "expandable_segments=True" in a.compare("PyTorch", expandable_segments=True).panels[1].name
    mirrored = a.compare("CuPy").panels[1]
    last = mirrored.map_after(mirrored.find_step(4))
    assert sorted(b.size_bytes for b in last.blocks) == sorted(b.size_bytes for b in a.at(-1).blocks)


def test_earlier_blocks_were_requested_before_the_first_event() -> None:
    before = gl.cp.empty(5 * MIB, gl.cp.uint8)
    with gl.allocator() as a:
        kept = gl.cp.empty(MIB, gl.cp.uint8)
        more = gl.cp.empty(2 * MIB, gl.cp.uint8)
    record = a.record
    # As in a snapshot of PyTorch: the first state has the time of the first event.
    late = replace(record, first=replace(record.first, time_ns=int(record.events.time_ns[0])))
    ours, theirs = AllocatorReport(late).compare("PyTorch").panels
    steps = [ours.find_step(request) for request in range(4)]
    assert steps[:2] == [0, 0]
    assert 0 < steps[2] < steps[3] == a.history.last_step
    assert ours.map_after(steps[2]).used_bytes == before.nbytes + kept.nbytes
    used_bytes = [theirs.map_after(theirs.find_step(request)).used_bytes for request in (1, 2, 3)]
    assert used_bytes == [5 * MIB, 6 * MIB, 6 * MIB + more.nbytes]


def test_a_request_keeps_its_name_and_colour_in_the_other_allocator() -> None:
    cp = gl.cp
    before = cp.zeros(40 << 20, cp.uint8)
    with gl.allocator() as a:
        kept = cp.zeros(8 << 20, cp.uint8)
        small = cp.zeros(3 << 20, cp.uint8)
    view = a.compare("PyTorch")
    names = view.maps.owners.names
    sizes_by_name = [
        dict(zip((names[owner] for owner in owners), panel.history.blocks.size_bytes.tolist(), strict=True))
        for panel, owners in zip(view.panels, view.maps.owners.owners_of_blocks, strict=True)
    ]
    assert sizes_by_name[0] == sizes_by_name[1]
    assert set(sizes_by_name[0].values()) == {before.nbytes, kept.nbytes, small.nbytes}
    assert columns.make_legends(view.maps)["line"] == columns.make_legends(a._maps)["line"]


def test_free_memory_is_measured_with_the_limit_of_the_refusal() -> None:
    pool = gl.cp.get_default_memory_pool()
    with gl.allocator() as a:
        pool.set_limit(size=10 * MIB)
        with pytest.raises(gl.cp.cuda.memory.OutOfMemoryError):
            gl.cp.empty(20 * MIB, gl.cp.uint8)
        pool.set_limit(size=0)
    assert a.fragmentation().room_bytes == 10 * MIB
    assert "20 MiB refused" in repr(a)
    assert "room for 10 MiB more" in repr(a)


def test_statistics_and_saved_reports_equal_the_record(tmp_path: Path) -> None:
    a = one_and_another()
    figures = a.statistics().figures["reserved_bytes"]
    assert next(iter(figures.values())).peak == 300_032 + 3 * MIB + 1024
    assert "GPU reserved memory" in a.summary()
    again = gl.open_allocator(a.save(tmp_path / "x.pickle"))
    assert again.record.provenance == a.record.provenance  # modelled, and still so
    for step in range(a.history.last_step + 1):
        assert layout(again.at(step)) == layout(a.at(step)), step
    assert repr(again.record.stacks[0][0]) == repr(a.record.stacks[0][0])
    with pytest.raises(GpulabError, match="these devices: 0"):
        gl.open_allocator(tmp_path / "x.pickle", device=3)


def test_invalid_arguments_are_reported() -> None:
    with gl.allocator() as a:
        pass
    with pytest.raises(ValueError, match=r"CuPy or PyTorch\. Did you mean"):
        a.compare("PyTorc")
    with pytest.raises(ValueError, match="belong to PyTorch's"):
        a.compare("CuPy", max_split_size_mb=64)
    with pytest.raises(ValueError, match="max_split_size_mb"):
        a.compare("PyTorch", max_split_size_mb=1)
    with pytest.raises(IndexError):
        a.at(5)


def one_and_another() -> AllocatorReport:
    """Return a report of a pool that grew, shrank and grew."""
    cp = gl.cp
    with gl.allocator() as a:
        arrays = [cp.empty(n, cp.uint8) for n in (300_000, 3 * MIB, 600)]
        del arrays[1]
    return a


def test_negative_steps_count_from_the_end() -> None:
    a = one_and_another()
    last = a.history.last_step
    for step in range(last + 1):
        assert layout(a.at(step)) == layout(a.at(step - last - 1))
        assert a.fragmentation(step).used_bytes == a.at(step).used_bytes
    assert a.fragmentation().used_bytes == a.at(last).used_bytes
    with pytest.raises(IndexError):
        a.at(-last - 2)
    assert a.record.capacity_bytes
    assert a.fragmentation(0).room_bytes == a.record.capacity_bytes
    for panel in (*a._picture().panels, *a.compare("CuPy").panels):
        assert panel.fragmentation_of(panel.map_after(0)).room_bytes == a.record.capacity_bytes


def test_replay_in_another_allocator_returns_a_report() -> None:
    a = one_and_another()
    theirs = a.replayed("pytorch", max_split_size_mb=64)
    assert theirs.record.settings == "max_split_size_mb:64"
    assert theirs.at(-1).total_bytes == 22 * MIB
    assert (theirs.record.device_id, theirs.record.provenance.device) == (0, a.record.provenance.device)
    assert theirs.record.capacity_bytes == a.record.capacity_bytes
    assert theirs.record.texts == a.record.texts
    assert theirs.record.stacks == a.record.stacks
    # The time of an event is the number of its request.
    assert theirs.events.time_ns.tolist()[:2] == [1, 1]
    assert theirs.events.time_ns.max() == len(a.requests)
    assert "PyTorch CUDA memory summary" in theirs.summary()
    names = [panel.name for panel in a.compare("CuPy").panels]
    assert names == [a.record.allocator, "CuPy's allocator"]


def test_numbers_of_shown_events_and_replayed_requests_are_limited(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    a = one_and_another()
    events = len(a.events)
    requests = len(a.requests)
    monkeypatch.setattr(allocator, "MAX_EVENTS", events)
    assert "Only the last" not in a._picture().html()
    assert a.replayed().events
    again = AllocatorReport(a.record)
    monkeypatch.setattr(allocator, "MAX_EVENTS", requests - 1)
    with pytest.raises(GpulabError, match=f"{requests} requests are too many to compare two"):
        again.compare()
    assert f"Only the last {requests - 1} of {events} events are shown." in again._picture().html()


def test_the_busiest_device_of_a_snapshot_is_shown_by_default(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    short = gl.allocator().record
    long = one_and_another().record
    traces = {1: replace(short, device_id=1), 0: replace(long, device_id=0), 2: replace(short, device_id=2)}
    snapshot = SimpleNamespace(traces=traces)
    monkeypatch.setattr("gpulab.allocators.snapshot.read_snapshot", lambda path: snapshot)
    assert gl.open_allocator("x.pickle").record.device_id == 0
    assert gl.open_allocator("x.pickle", 2).record.device_id == 2
    with pytest.raises(GpulabError, match=r"x\.pickle has no data of device 3.*: 1, 0, 2\."):
        gl.open_allocator("x.pickle", 3)
    traces.clear()
    with pytest.raises(GpulabError, match=r"x\.pickle contains no data, because"):
        gl.open_allocator("x.pickle")
    with pytest.raises(GpulabError, match=r"has no data of device 0.*: none"):
        gl.open_allocator("x.pickle", 0)


def test_a_pool_without_a_block_map_is_shown_by_its_arrays() -> None:
    """CuPy's pool on a real GPU has totals, but neither segments nor blocks."""
    cp = gl.cp
    kept = [cp.zeros(1000), cp.zeros((64, 64), cp.float32)]
    cp.zeros(5000)
    pool = cp.get_default_memory_pool()
    silent = SimpleNamespace(total_bytes=pool.total_bytes, get_limit=lambda: 77)
    blocks, note = make_block_map(silent)
    sizes = [b.size_bytes for b in blocks.blocks if b.address in {a.data.ptr for a in kept}]
    assert sizes == [8192, 16384]
    assert blocks.limit_bytes == 77
    assert {b.label for b in blocks.blocks} >= {"kept[1]: float32 array of shape (64, 64)"}
    missing = pool.total_bytes() - blocks.used_bytes
    assert f"arrays that existed then, and {missing:,} bytes of it are not shown" in note
    empty, note = make_block_map(SimpleNamespace(total_bytes=lambda: 0, get_limit=lambda: 0))
    assert (empty.segments, note) == ((), "")


@pytest.mark.parametrize(("capacity_bytes", "refused"), [(10 * MIB, 1), (100 * MIB, 0), (None, 0)])
@pytest.mark.parametrize("other", ["PyTorch", "CuPy"])
def test_another_allocator_has_as_much_memory_as_the_device(
    other: str, capacity_bytes: int | None, refused: int
) -> None:
    record = one_and_another().record
    report = AllocatorReport(
        replace(record, capacity_bytes=capacity_bytes, first=replace(record.first, limit_bytes=0))
    )
    report.requests[1:2] = [replace(report.requests[1], size_bytes=30 * MIB)]
    theirs = report.replayed(other)
    assert [row[0] for row in theirs.events.rows()].count("oom") == refused
    assert theirs.record.capacity_bytes == capacity_bytes


class Times:
    """Events of which only the times are known."""

    def __init__(self, *time_ns: int) -> None:
        self.time_ns = np.array(time_ns, np.int64)

    def __len__(self) -> int:
        return len(self.time_ns)


def after(states: str, limit_bytes: int, times: tuple[int, ...], *request_times: int) -> list[int]:
    """Return the events before each request; the pool held blocks used (u), waiting (w) or free (f)."""
    kinds = {"u": "used", "w": "waiting", "f": "free"}
    blocks = [SimpleNamespace(state=kinds[state]) for state in states]
    first = SimpleNamespace(segments=[SimpleNamespace(blocks=blocks)], limit_bytes=limit_bytes)
    record: Any = SimpleNamespace(events=Times(*times), first=first)
    requests: Any = [SimpleNamespace(time_ns=time_ns) for time_ns in request_times]
    return list(allocator._count_events_at_requests(record, requests))


def test_number_of_events_before_each_request() -> None:
    assert after("", 0, (5, 5, 9, 12), 5, 9, 9, 10) == [0, 2, 3, 3, 4]
    assert after("", 0, (0, 5), 5) == [0, 2]
    assert after("uf", 0, (5, 5, 9), 5, 9) == [0, 0, 3]
    assert after("u", 0, (5, 5, 9), 5, 5, 9) == [0, 0, 2, 3]
    assert after("u", 8, (5, 5, 9), 0, 5, 5, 9) == [0, 0, 0, 2, 3]
    # A waiting block was requested, used by another stream, and freed.
    assert after("wu", 0, (5, 5, 9), 5, 0, 0, 5, 5, 9) == [0, 0, 0, 0, 0, 2, 3]
    assert after("", 0, (5, 9), 9, 5, 9) == [0, 2, 2, 2]  # never back


def test_another_allocator_has_the_same_limit() -> None:
    pool = gl.cp.get_default_memory_pool()
    pool.set_limit(size=30 * MIB)
    a = one_and_another()
    theirs = a.replayed("PyTorch").record
    assert theirs.first.limit_bytes == a.record.first.limit_bytes == 30 * MIB


def test_two_reports_are_compared() -> None:
    cp = gl.cp
    own_pool = cp.cuda.MemoryPool()
    with cp.cuda.using_allocator(own_pool.malloc), gl.allocator() as first_report:
        x = cp.zeros(MIB, cp.uint8)
        del x
    assert first_report.at(-1).total_bytes == own_pool.total_bytes() == MIB, "the pool in use is recorded"
    with gl.allocator() as second_report:
        arrays = [cp.zeros(2 * MIB, cp.uint8) for _ in range(5)]
    assert len(arrays) == 5
    for other in (second_report, second_report.record):
        view = first_report.compare(other)
        first, second = view.panels
        assert (first.history.trace, second.history.trace) == (first_report.record, second_report.record)
        for position, step in ((0, 0), (view.maps.last_position, -1)):
            for panel, report in ((first, first_report), (second, second_report)):
                assert layout(panel.map_after(panel.find_step(position))) == layout(report.at(step))
        assert "10 MiB in use" in view.maps.describe_status(second, view.maps.last_position)
    assert len(second_report.compare(gl.allocator()).panels) == 2
    with pytest.raises(ValueError, match=r"The settings max_split_size_mb can be used only with"):
        first_report.compare(second_report, max_split_size_mb=64)


def test_replay_of_a_snapshot_infers_the_device_memory(tmp_path: Path) -> None:
    """The file does not contain the size of the device's memory, but a refused request shows it."""
    pool = TorchAllocator("", capacity_bytes=80 * MIB)
    sizes = [30 * MIB, 30 * MIB, 50 * MIB]
    requests = [Request("alloc", n, size, 0, n) for n, size in enumerate(sizes)]
    trace = replay(requests, pool)
    path = write_snapshot(tmp_path / "oom.pickle", replace(trace, capacity_bytes=0), pool.block_map())
    snapshot = gl.open_allocator(path)
    for other in ("CuPy", "PyTorch"):
        theirs = snapshot.replayed(other)
        assert ACTIONS.index("oom") in theirs.events.actions
        assert theirs.at(-1).used_bytes == 60 * MIB
        assert "50 MiB refused" in repr(snapshot.compare(other))
    fits = replay(
        [*requests[:2], Request("free", 0), Request("alloc", 3, 50 * MIB, 0, 4)], TorchAllocator("")
    )
    assert AllocatorReport(replace(fits, capacity_bytes=0)).replayed("CuPy").at(-1).used_bytes == 80 * MIB
