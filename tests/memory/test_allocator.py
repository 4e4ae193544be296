"""``gl.allocator``: what it recorded is what the pool holds, whatever the program did to it."""

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
from gpulab.session.pools.pool import block_map
from virtualgpu.errors import GpulabError
from virtualgpu.records.memory import ACTIONS, BlockMap, Request

MIB = 1 << 20


@pytest.fixture(autouse=True)
def device() -> Iterator[None]:
    gl.use_device("virtual:T4")
    gl.use_device("virtual")
    yield
    gl.use_device("virtual:T4")


def held(now: BlockMap) -> list[object]:
    return [
        (s.address, s.size_bytes, s.stream, [(b.address, b.size_bytes, b.state) for b in s.blocks])
        for s in now.segments
    ]


@pytest.mark.parametrize("seed", range(2))
def test_the_last_step_is_what_the_pool_holds(seed: int) -> None:
    """Two streams, a limit that is met, segments given back by the program, for a stream, and by the pool."""
    cp = gl.cp
    draw = random.Random(seed)
    pool = cp.get_default_memory_pool()
    pool.set_limit(size=30 * MIB)
    side = cp.cuda.Stream(non_blocking=True)
    kept = [cp.empty(3 * MIB, cp.uint8)]
    refused = 0
    with gl.allocator() as a:
        assert repr(a) == "Memory pool that is being recorded."
        for _ in range(200):
            act = draw.random()
            if act < 0.55:
                with draw.choice((cp.cuda.Stream.null, side)):
                    try:
                        kept.append(cp.empty(draw.randint(1, 4 * MIB), cp.uint8))
                    except cp.cuda.memory.OutOfMemoryError:
                        refused += 1
            elif act < 0.95 and kept:
                del kept[draw.randrange(len(kept))]
            elif act > 0.98:
                pool.free_all_blocks(draw.choice((None, side)))
    assert held(a.at(-1)) == held(pool.block_map())
    assert a.at(0).used_bytes == 3 * MIB
    actions = [row[0] for row in a.events.rows()]
    assert actions.count("oom") == refused > 0
    assert "segment_free" in actions
    assert a.record.note == ""
    found = a.fragmentation()
    assert (found.reserved_bytes, found.used_bytes) == (pool.total_bytes(), pool.used_bytes())
    assert found.free_bytes == pool.free_bytes()
    assert found.room_bytes == 30 * MIB - pool.total_bytes()
    assert sum(arena.free_blocks for arena in found.arenas) == pool.n_free_blocks()
    now = held(pool.block_map())
    again = gl.allocator()
    kept.append(cp.empty(512, cp.uint8))
    assert held(again.at(0)) == now, "it is of the moment when it was asked for"
    assert held(pool.block_map()) != now
    assert len(again.events) == 0


def test_blocks_tell_the_programs_lines_and_the_page_shows_their_text() -> None:
    with gl.allocator() as a:
        kept = gl.cp.zeros(1000, gl.cp.float32)
    block = next(b for b in a.at(-1).blocks if b.state == "used")
    frame = a.record.stacks[block.stack][0]
    assert frame.filename == "test_allocator.py"
    assert frame.function == test_blocks_tell_the_programs_lines_and_the_page_shows_their_text.__name__
    assert a.record.texts[block.stack] == "kept = gl.cp.zeros(1000, gl.cp.float32)"
    assert block.requested_bytes == kept.nbytes
    assert "kept = gl.cp.zeros" in a._picture().html()


def test_the_same_requests_beside_pytorchs_allocator() -> None:
    cp = gl.cp
    with gl.allocator() as a:
        kept = [cp.empty(n, cp.uint8) for n in (300_000, 3 * MIB, 600)]
        del kept[1]
    view = a.compare("PyTorch")
    ours, theirs = view.panels
    assert [r.kind for r in view.maps.requests] == ["alloc", "alloc", "alloc", "free"]
    assert [ours.map_after(ours.step(at)).used_bytes for at in range(5)] == [
        0,
        300_032,
        300_032 + 3 * MIB,
        301_056 + 3 * MIB,
        301_056,
    ]
    # Blocks of up to 1 MiB come from segments of 2 MiB, larger ones up to 10 MiB from segments of 20 MiB.
    assert [theirs.map_after(theirs.step(at)).total_bytes // MIB for at in range(5)] == [0, 2, 22, 22, 22]
    view = a.compare("PyTorch", expandable_segments=True)
    assert view.panels[1].name == "PyTorch's allocator (expandable_segments=True)"
    mirrored = a.compare("CuPy").panels[1]
    last = mirrored.map_after(mirrored.step(4))
    assert sorted(b.size_bytes for b in last.blocks) == sorted(b.size_bytes for b in a.at(-1).blocks)


def test_what_was_there_before_was_asked_for_before_the_first_event() -> None:
    before = gl.cp.empty(5 * MIB, gl.cp.uint8)
    with gl.allocator() as a:
        kept = gl.cp.empty(MIB, gl.cp.uint8)
        more = gl.cp.empty(2 * MIB, gl.cp.uint8)
    record = a.record
    # As in a snapshot of PyTorch: what it held first has the time of the first event.
    late = replace(record, first=replace(record.first, time_ns=int(record.events.time_ns[0])))
    view = AllocatorReport(late).compare("PyTorch")
    ours, theirs = view.panels
    steps = [ours.step(at) for at in range(4)]
    assert steps[:2] == [0, 0]
    assert 0 < steps[2] < steps[3] == a.history.last_step
    assert ours.map_after(steps[2]).used_bytes == before.nbytes + kept.nbytes
    assert theirs.map_after(theirs.step(1)).used_bytes == before.nbytes
    assert theirs.map_after(theirs.step(2)).used_bytes == before.nbytes + kept.nbytes
    assert theirs.map_after(theirs.step(3)).used_bytes == before.nbytes + kept.nbytes + more.nbytes


def test_the_limit_is_the_one_that_refused() -> None:
    pool = gl.cp.get_default_memory_pool()
    with gl.allocator() as a:
        pool.set_limit(size=10 * MIB)
        with pytest.raises(gl.cp.cuda.memory.OutOfMemoryError):
            gl.cp.empty(20 * MIB, gl.cp.uint8)
        pool.set_limit(size=0)
    assert a.fragmentation().room_bytes == 10 * MIB
    assert "20 MiB refused" in repr(a)
    assert "room for 10 MiB more" in repr(a)


def test_figures_and_files(tmp_path: Path) -> None:
    cp = gl.cp
    with gl.allocator() as a:
        kept = [cp.empty(n, cp.uint8) for n in (300_000, 3 * MIB, 600)]
        del kept[1]
    figures = a.statistics().figures["reserved_bytes"]
    assert next(iter(figures.values())).peak == 300_032 + 3 * MIB + 1024
    assert "GPU reserved memory" in a.summary()
    again = gl.open_allocator(a.save(tmp_path / "x.pickle"))
    assert again.record.provenance == a.record.provenance  # modelled, and still so
    for step in range(a.history.last_step + 1):
        assert held(again.at(step)) == held(a.at(step)), step
    assert repr(again.record.stacks[0][0]) == repr(a.record.stacks[0][0])
    a.save(tmp_path / "x.html")
    a.save(tmp_path / "x.png")
    assert (tmp_path / "x.png").read_bytes()[:4] == b"\x89PNG"
    with pytest.raises(GpulabError, match="devices 0"):
        gl.open_allocator(tmp_path / "x.pickle", device=3)


def test_mistakes_are_named() -> None:
    a = gl.allocator()
    with a, pytest.raises(GpulabError, match="being recorded"):
        _ = a.record
    with pytest.raises(GpulabError, match="make a new one"), a:
        pass
    with pytest.raises(ValueError, match="CuPy or PyTorch"):
        a.compare("TensorFlow")
    with pytest.raises(ValueError, match="are PyTorch's"):
        a.compare("CuPy", max_split_size_mb=64)
    with pytest.raises(ValueError, match="max_split_size_mb"):
        a.compare("PyTorch", max_split_size_mb=1)
    with pytest.raises(ValueError, match=r"x\.doc"):
        a.save("x.doc")
    with pytest.raises(IndexError):
        a.at(5)


def one_and_another() -> AllocatorReport:
    """A report of a pool that grew, shrank and grew."""
    cp = gl.cp
    with gl.allocator() as a:
        kept = [cp.empty(n, cp.uint8) for n in (300_000, 3 * MIB, 600)]
        del kept[1]
    return a


def test_a_step_is_counted_from_either_end() -> None:
    a = one_and_another()
    last = a.history.last_step
    for step in range(last + 1):
        assert held(a.at(step)) == held(a.at(step - last - 1))
        assert a.fragmentation(step).used_bytes == a.at(step).used_bytes
    assert a.fragmentation().used_bytes == a.at(last).used_bytes
    with pytest.raises(IndexError):
        a.at(-last - 2)
    assert a.record.capacity_bytes
    assert a.fragmentation(0).room_bytes == a.record.capacity_bytes
    for panel in (*a._picture().panels, *a.compare("CuPy").panels):
        assert panel.fragmentation_of(panel.map_after(0)).room_bytes == a.record.capacity_bytes


def test_what_another_allocator_does_is_a_report_of_its_own() -> None:
    a = one_and_another()
    theirs = a.replayed("pytorch", max_split_size_mb=64)
    assert theirs.record.settings == "max_split_size_mb:64"
    assert theirs.at(-1).total_bytes == 22 * MIB
    assert (theirs.record.device_id, theirs.record.provenance.device) == (0, a.record.provenance.device)
    assert theirs.record.capacity_bytes == a.record.capacity_bytes
    assert theirs.record.texts == a.record.texts
    assert theirs.record.stacks == a.record.stacks
    # A request is a moment, and its events have its number.
    assert theirs.events.time_ns.tolist()[:2] == [1, 1]
    assert theirs.events.time_ns.max() == len(a.requests)
    assert held(a.replayed("CuPy").at(-1)) != held(a.at(0))
    assert "PyTorch CUDA memory summary" in theirs.summary()
    shown = a.compare("CuPy").panels
    assert [panel.name for panel in shown] == [a.record.allocator, "CuPy's allocator"]
    name = a.compare("PyTorch", max_split_size_mb=64, expandable_segments=False).panels[1].name
    assert name == "PyTorch's allocator (max_split_size_mb=64, expandable_segments=False)"
    with pytest.raises(
        ValueError, match=r"'PyTorc' is no allocator known here: CuPy or PyTorch\. Did you mean"
    ):
        a.replayed("PyTorc")


def test_of_very_many_events_the_last_are_shown_and_too_many_requests_are_not_replayed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    a = one_and_another()
    whole = len(a.events)
    monkeypatch.setattr(allocator, "MOST_EVENTS", whole)
    assert "Only the last" not in a._picture().html()
    assert a.replayed().events
    again = AllocatorReport(a.record)
    monkeypatch.setattr(allocator, "MOST_EVENTS", len(again.requests) - 1)
    with pytest.raises(GpulabError, match=f"{len(again.requests)} requests are too many to step two"):
        again.compare()
    assert f"Only the last {len(again.requests) - 1} of {whole} events are shown." in again._picture().html()


def test_of_a_snapshot_of_several_devices_the_busiest_is_shown_unless_one_is_named(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    few = gl.allocator().record
    many = one_and_another().record
    found = {1: replace(few, device_id=1), 0: replace(many, device_id=0), 2: replace(few, device_id=2)}
    monkeypatch.setattr(
        "gpulab.allocators.snapshot.read_snapshot", lambda path: SimpleNamespace(traces=found)
    )
    assert gl.open_allocator("x.pickle").record.device_id == 0
    assert gl.open_allocator("x.pickle", 2).record.device_id == 2
    with pytest.raises(GpulabError, match=r"x\.pickle has nothing of device 3; it has devices 1, 0, 2\."):
        gl.open_allocator(tmp_path / "x.pickle", 3)
    found.clear()
    with pytest.raises(GpulabError, match=r"x\.pickle is a snapshot of no device: nothing was"):
        gl.open_allocator("x.pickle")
    with pytest.raises(GpulabError, match="has nothing of device 0; it has devices none"):
        gl.open_allocator("x.pickle", 0)


def test_a_report_that_records_forgets_what_it_showed_before() -> None:
    a = gl.allocator()
    before = a.history.last_step, len(a.requests), repr(a)
    with a:
        kept = gl.cp.empty(MIB, gl.cp.uint8)
    assert before[0] == 0
    assert a.history.last_step == len(a.events) > 0
    assert len(a.requests) > before[1]
    assert repr(a) != before[2]
    assert kept.size


def test_a_pool_that_tells_nothing_is_shown_by_the_arrays_that_live() -> None:
    """As CuPy's on a real GPU: totals, but neither segments nor blocks."""
    cp = gl.cp
    kept = [cp.zeros(1000), cp.zeros((64, 64), cp.float32)]
    cp.zeros(5000)
    pool = cp.get_default_memory_pool()

    class Silent:
        total_bytes = pool.total_bytes
        get_limit = pool.get_limit

    now, note = block_map(Silent())
    assert [b.size_bytes for b in now.blocks if b.address in {a.data.ptr for a in kept}] == [8192, 16384]
    assert "arrays that lived" in note
    assert {b.label for b in now.blocks} >= {"kept[1]: float32 array of shape (64, 64)"}


def test_a_pool_of_ones_own_is_the_one_that_is_shown() -> None:
    cp = gl.cp
    own = cp.cuda.MemoryPool()
    with cp.cuda.using_allocator(own.malloc), gl.allocator() as a:
        kept = cp.zeros(5 * MIB, cp.uint8)
    assert a.at(-1).total_bytes == own.total_bytes() == kept.nbytes


@pytest.mark.parametrize(("capacity_bytes", "refused"), [(10 * MIB, 1), (100 * MIB, 0), (None, 0)])
@pytest.mark.parametrize("other", ["PyTorch", "CuPy"])
def test_another_allocator_has_as_much_memory_as_the_device(
    other: str, capacity_bytes: int | None, refused: int
) -> None:
    a = one_and_another()
    record = replace(a.record, capacity_bytes=capacity_bytes, first=replace(a.record.first, limit_bytes=0))
    more = AllocatorReport(record)
    more.requests[1:2] = [replace(more.requests[1], size_bytes=30 * MIB)]
    theirs = more.replayed(other)
    assert [row[0] for row in theirs.events.rows()].count("oom") == refused
    assert theirs.record.capacity_bytes == capacity_bytes


class Times:
    """Events of which only the times are known."""

    def __init__(self, *time_ns: int) -> None:
        self.time_ns = np.array(time_ns, np.int64)

    def __len__(self) -> int:
        return len(self.time_ns)


def after(states: str, limit_bytes: int, times: tuple[int, ...], *asked: int) -> list[int]:
    """Events that had happened at each request; the pool held blocks used (u), waiting (w) or free (f)."""
    kinds = {"u": "used", "w": "waiting", "f": "free"}
    blocks = [SimpleNamespace(state=kinds[state]) for state in states]
    first = SimpleNamespace(segments=[SimpleNamespace(blocks=blocks)], limit_bytes=limit_bytes)
    record: Any = SimpleNamespace(events=Times(*times), first=first)
    requests: Any = [SimpleNamespace(time_ns=at) for at in asked]
    return list(allocator._after(record, requests))


def test_what_the_pool_held_first_was_asked_for_before_any_event() -> None:
    assert after("", 0, (5, 5, 9, 12), 5, 9, 9, 10) == [0, 2, 3, 3, 4]  # the last has them all
    assert after("", 0, (0, 5), 5) == [0, 2]
    assert after("uf", 0, (5, 5, 9), 5, 9) == [0, 0, 3]
    assert after("u", 0, (5, 5, 9), 5, 5, 9) == [0, 0, 2, 3]
    assert after("u", 8, (5, 5, 9), 0, 5, 5, 9) == [0, 0, 0, 2, 3]
    # A block that waits is asked for, used by another stream, and freed.
    assert after("wu", 0, (5, 5, 9), 5, 0, 0, 5, 5, 9) == [0, 0, 0, 0, 0, 2, 3]
    assert after("", 0, (5, 9), 9, 5, 9) == [0, 2, 2, 2]  # never back


def test_another_allocator_has_the_same_limit() -> None:
    pool = gl.cp.get_default_memory_pool()
    pool.set_limit(size=30 * MIB)
    a = one_and_another()
    theirs = a.replayed("PyTorch").record
    assert theirs.first.limit_bytes == a.record.first.limit_bytes == 30 * MIB


def test_two_maps_beside_each_other() -> None:
    cp = gl.cp
    with gl.allocator() as one:
        x = cp.zeros(MIB, cp.uint8)
        del x
    with gl.allocator() as two:
        kept = [cp.zeros(2 * MIB, cp.uint8) for _ in range(5)]
    assert len(kept) == 5
    for other in (two, two.record):
        view = one.compare(other)
        first, second = view.panels
        assert (first.history.trace, second.history.trace) == (one.record, two.record)
        for moment, share in ((0, 0), (view.maps.last, 1)):
            for panel, report in ((first, one), (second, two)):
                now = panel.map_after(panel.step(moment))
                assert held(now) == held(report.at(-1 if share else 0))
        assert "10 MiB in use" in one.compare(two).maps.status_text(second, view.maps.last)
    assert "the other" in repr(gl.allocator().compare(two))
    assert len(two.compare(gl.allocator()).panels) == 2
    with pytest.raises(ValueError, match=r"max_split_size_mb: settings are of an allocator"):
        one.compare(two, max_split_size_mb=64)


def test_a_replayed_snapshot_has_no_more_memory_than_the_device_had(tmp_path: Path) -> None:
    """The file does not tell the device's memory; a request that was refused does."""
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
