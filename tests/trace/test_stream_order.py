"""The stream checker, compared with plain reachability on random programs."""

from __future__ import annotations

import random
from itertools import count

import pytest

from gpulab.analysis import hazards
from gpulab.analysis.hazards import find_stream_hazards
from gpulab.analysis.uses import regions_overlap
from virtualgpu.records import Provenance, SourceLine
from virtualgpu.records.acts import (
    HOST,
    Act,
    Allocation,
    EventRecord,
    EventWait,
    GraphLaunch,
    HostUse,
    HostWait,
    NewStream,
    Region,
    Release,
    Work,
)

HERE = Provenance("modelled", "test")
STREAMS = [(0, 0), (0, 1), (0, 2), (0, 0x10), (0, 0x20), (0, 0x30), (1, 0), (1, 0x10)]
NON_BLOCKING = {(0, 0x20), (0, 0x30), (1, 0x10)}
BASE = 0x1000
BYTES = 24


def program(draw: random.Random, length: int) -> list[Act]:
    """Return a program of random acts. Every operation has its own line."""
    numbers = count(1)
    acts: list[Act] = [NewStream(d, s, f"s{d}{s}", False) for d, s in sorted(NON_BLOCKING)]
    streams = draw.sample(STREAMS, draw.randint(2, 5))

    def region(memories: list[int]) -> Region:
        memory = draw.choice(memories)
        address = BASE + draw.randrange(BYTES)
        if draw.random() < 0.4:
            return Region(
                memory, address, draw.randint(1, 2), (draw.randint(1, 4),), (draw.choice([2, 3, 5, -2]),)
            )
        return Region(memory, address, draw.randint(1, 6))

    def work(device: int, stream: int) -> Work:
        number = next(numbers)
        peer = draw.random() < 0.15
        memories = [0, 1] if peer else [device, HOST] if draw.random() < 0.2 else [device]
        reads = tuple(region(memories) for _ in range(draw.randint(0, 2)))
        writes = tuple(region(memories) for _ in range(draw.randint(0, 1)))
        atomics = tuple(region([device]) for _ in range(draw.random() < 0.2))
        return Work(
            number=number,
            name="op",
            device_id=device,
            stream_id=stream,
            reads=reads,
            writes=writes,
            source=SourceLine("p", number),
            is_peer_copy=peer,
            atomics=atomics,
        )

    for _ in range(length):
        device, stream = draw.choice(streams)
        chance = draw.random()
        if chance < 0.45:
            acts.append(work(device, stream))
        elif chance < 0.60:
            acts.append(EventRecord(draw.randrange(3), device, stream))
        elif chance < 0.78:
            acts.append(EventWait(draw.randrange(3), device, stream))
        elif chance < 0.86:
            scope = draw.choice(["device", "stream", "event", "work"])
            acts.append(HostWait(scope, device, stream, draw.randrange(3), draw.randint(1, 9)))  # type: ignore[arg-type]
        elif chance < 0.92:
            nodes = tuple(work(device, stream) for _ in range(draw.randint(1, 5)))
            pairs = [(a, b) for b in range(len(nodes)) for a in range(b) if draw.random() < 0.4]
            acts.append(GraphLaunch(device, stream, nodes, tuple(pairs)))
        else:
            number = next(numbers)
            used = (region([HOST]),)
            reads, writes = (used, ()) if draw.random() < 0.5 else ((), used)
            acts.append(HostUse("looks", reads, writes, SourceLine("p", number)))
    return acts


def touched(region: Region) -> set[int]:
    starts = [region.address]
    for n, step in zip(region.shape, region.strides, strict=True):
        starts = [start + k * step for start in starts for k in range(n)]
    return {(region.memory, start + k) for start in starts for k in range(region.item_bytes)}  # type: ignore[misc]


CLASHING = {"rw", "wr", "ww", "ra", "ar", "wa", "aw"}


def uses(work: Work | HostUse) -> list[tuple[Region, str]]:
    atomics = work.atomics if isinstance(work, Work) else ()
    return [*((r, "r") for r in work.reads), *((r, "w") for r in work.writes), *((r, "a") for r in atomics)]


class Reachability:
    """The same ordering rules as edges between points, with their transitive closure."""

    def __init__(self, acts: list[Act]) -> None:
        self.before: list[set[int]] = []  # all points before a point
        self.works: list[tuple[int, Work | HostUse]] = []
        self.streams: dict[tuple[int, int], list[int]] = {}
        self.host = [self.point([])]
        events: dict[int, int] = {}
        numbers: dict[int, int] = {}
        for act in acts:
            if isinstance(act, NewStream):
                continue
            if isinstance(act, HostUse):
                self.host.append(self.point(self.host[-1:]))
                self.works.append((self.host[-1], act))
                continue
            key = (act.device_id, 0 if act.stream_id == 1 else act.stream_id)
            if isinstance(act, HostWait):
                known = {
                    "device": [p for k, points in self.streams.items() if k[0] == key[0] for p in points],
                    "stream": self.ends_of(key) if key[1] == 0 else self.streams.get(key, []),
                    "event": [events[act.event_id]] if act.event_id in events else [],
                    "work": [numbers[act.number]] if act.number in numbers else [],
                }[act.scope]
                self.host.append(self.point([*self.host[-1:], *known]))
            elif isinstance(act, Work):
                predecessors = self.ends_of(key)
                peers = {region.memory for region in (*act.reads, *act.writes)} - {HOST}
                both = [(d, 0) for d in peers] if act.is_peer_copy and key[1] == 0 else []
                for peer in both:
                    predecessors = [*predecessors, *self.ends_of(peer)]
                point = numbers[act.number] = self.place(key, predecessors)
                for peer in both:
                    self.streams.setdefault(peer, []).append(point)
                self.works.append((point, act))
            elif isinstance(act, GraphLaunch):
                start = self.place(key, self.ends_of(key))
                points: list[int] = []
                for number, node in enumerate(act.nodes):
                    points.append(self.point([start, *(points[a] for a, b in act.edges if b == number)]))
                    numbers[node.number] = points[-1]
                    self.works.append((points[-1], node))
                self.place(key, points)
            elif isinstance(act, EventRecord):
                events[act.event_id] = self.place(key, self.ends_of(key))
            elif isinstance(act, EventWait) and act.event_id in events:
                self.place(key, [*self.ends_of(key), events[act.event_id]])

    def point(self, predecessors: list[int]) -> int:
        self.before.append(set(predecessors).union(*(self.before[p] for p in predecessors)))
        return len(self.before) - 1

    def place(self, key: tuple[int, int], predecessors: list[int]) -> int:
        self.streams.setdefault(key, []).append(self.point([*predecessors, self.host[-1]]))
        return self.streams[key][-1]

    def ends_of(self, key: tuple[int, int]) -> list[int]:
        endpoints = list(self.streams.get(key, []))
        for other, points in self.streams.items():
            blocking = other not in NON_BLOCKING and other[0] == key[0]
            if blocking and (key[1] == 0 or (other[1] == 0 and key not in NON_BLOCKING)):
                endpoints += points
        return endpoints

    def races(self) -> set[tuple[int, int]]:
        """Return pairs of lines of conflicting operations."""
        pairs = set()
        for n, (later, b) in enumerate(self.works):
            for earlier, a in self.works[:n]:
                if earlier in self.before[later]:
                    continue
                later_uses = uses(b)
                earlier_uses = uses(a)
                if any(
                    w + v in CLASHING and touched(r) & touched(s)
                    for r, w in later_uses
                    for s, v in earlier_uses
                ):
                    assert a.source is not None
                    assert b.source is not None
                    pairs.add((a.source.line, b.source.line))
        return pairs


@pytest.mark.parametrize("seed", range(12))
def test_hazards_of_random_programs_equal_a_reachability_check(seed: int) -> None:
    draw = random.Random(seed)
    racy = 0
    for _ in range(150):
        acts = program(draw, draw.randint(4, 30))
        findings = find_stream_hazards(acts, HERE).findings
        pairs = {
            (f.first.source.line, f.second.source.line)
            for f in findings
            if f.first.source and f.second.source
        }
        expected = Reachability(acts).races()
        assert pairs <= expected, acts
        # If several operations conflict with a later one, the checker may report only the last of a chain.
        assert {b for _, b in pairs} == {b for _, b in expected}, acts
        racy += bool(expected)
    assert 20 < racy < 150


@pytest.mark.parametrize("size", [2**31 - 1, 2**31, 2**33])
def test_overlap_of_regions_larger_than_a_numpy_item(size: int) -> None:
    large = Region(0, BASE, size)
    for address, meets in ((BASE + size - 6, True), (BASE + size, False)):
        assert regions_overlap(large, Region(0, address, 1, (3,), (2,))) is meets
    rows = Region(0, BASE, size, (2,), (2 * size,))
    assert regions_overlap(rows, Region(0, BASE + size + 2, 1, (3,), (2,))) is False
    assert regions_overlap(rows, Region(0, BASE + 2 * size, 1, (3,), (2,))) is True


def test_an_atomic_operation_does_not_hide_an_earlier_write() -> None:
    """Atomic operations of two streams need no order, but an atomic and an earlier write do."""
    x = Region(0, BASE, 4)
    acts: list[Act] = [
        Work(number=1, name="fill", device_id=0, stream_id=0x20, writes=(x,), source=SourceLine("p", 1)),
        Work(number=2, name="count", device_id=0, stream_id=0x20, atomics=(x,), source=SourceLine("p", 2)),
        Work(number=3, name="count", device_id=0, stream_id=0x30, atomics=(x,), source=SourceLine("p", 3)),
    ]
    (finding,) = find_stream_hazards(
        [NewStream(0, 0x20, "a", False), NewStream(0, 0x30, "b", False), *acts], HERE
    ).findings
    assert finding.first.source == SourceLine("p", 1)
    assert not find_stream_hazards(acts[1:], HERE).findings


def test_the_most_recent_releases_are_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    """The finding for two unordered writes reports that the memory was freed between them."""
    monkeypatch.setattr(hazards, "_MAX_RELEASES", 4)
    x = Region(0, BASE, 4)
    others = [Region(0, BASE + 0x100 * index, 4) for index in range(1, 13)]
    for earlier_releases in range(10):
        acts: list[Act] = [
            NewStream(0, 0x20, "a", False),
            NewStream(0, 0x30, "b", False),
            *(Release(region, 0, 0x20) for region in others[:earlier_releases]),
            Work(number=1, name="fill", device_id=0, stream_id=0x20, writes=(x,), source=SourceLine("p", 1)),
            Release(x, 0, 0x20, SourceLine("p", 2)),
            Release(others[10], 0, 0x20),
            Allocation(x, 0, None, SourceLine("p", 3)),
            Work(number=2, name="fill", device_id=0, stream_id=0x30, writes=(x,), source=SourceLine("p", 4)),
        ]
        assert [finding.kind for finding in find_stream_hazards(acts, HERE).findings] == [
            "reused too early"
        ], earlier_releases


@pytest.mark.parametrize("late", [True, False])
def test_a_wait_for_a_third_stream_is_named_if_recorded_after_the_operation(late: bool) -> None:
    """An event that was recorded before the operation was submitted cannot order it."""
    x = Region(0, BASE, 4)
    y = Region(0, BASE + 16, 4)
    fill = Work(number=1, name="fill", device_id=0, stream_id=0x20, writes=(x,), source=SourceLine("p", 1))
    record = EventRecord(7, 1, 0x10, SourceLine("p", 2))
    acts: list[Act] = [
        NewStream(0, 0x20, "a", False),
        NewStream(0, 0x30, "b", False),
        NewStream(1, 0x10, "c", False),
        Work(number=2, name="other", device_id=1, stream_id=0x10, writes=(y,)),
        *((fill, record) if late else (record, fill)),
        EventWait(7, 0, 0x30, SourceLine("p", 3)),
        Work(number=3, name="read", device_id=0, stream_id=0x30, reads=(x,)),
    ]
    (finding,) = find_stream_hazards(acts, HERE).findings
    named = "b waits in line 3 for c only, which does not wait for a." in str(finding)
    assert named == late
    assert ("nothing orders the two" in str(finding)) == (not late)
