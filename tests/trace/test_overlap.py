"""Overlap of generated and recorded timelines, compared with SQL over the same events."""

from __future__ import annotations

import random
import sqlite3
from collections.abc import Callable, Iterator

import numpy as np
import pytest

import virtualgpu.cp as cp
from gpulab.analysis.overlap import (
    MAX_STREAMS,
    find_overlaps,
    group_by_engine,
    group_by_stream,
    sum_interval_ns,
)
from tests.trace.programs import kernel, timeline_of
from virtualgpu.model import machine as slot
from virtualgpu.model.devices import device_info
from virtualgpu.model.machine import Machine
from virtualgpu.model.recording.timeline import Recording
from virtualgpu.records import StreamInfo, Timeline

# Kind and copy kind of each engine.
KINDS = {
    "compute": ("CONCURRENT_KERNEL", None),
    "H2D": ("MEMCPY", "HtoD"),
    "D2H": ("MEMCPY", "DtoH"),
    "D2D": ("MEMCPY", "DtoD"),
    "memset": ("MEMSET", None),
}
# Running sums over all events: the number of active operations per group between consecutive events.
QUERY = """
WITH edges AS (
  SELECT ts AS t, 1 AS step, grp FROM events WHERE grp IN (:a, :b)
  UNION ALL SELECT ts + dur, -1, grp FROM events WHERE grp IN (:a, :b)
), sums AS (
  SELECT t, LEAD(t) OVER (ORDER BY t) AS next,
         SUM(CASE WHEN grp = :a THEN step ELSE 0 END) OVER (ORDER BY t) AS a,
         SUM(CASE WHEN grp = :b THEN step ELSE 0 END) OVER (ORDER BY t) AS b
  FROM edges
)
SELECT COALESCE(SUM(CASE WHEN a > 0 THEN next - t END), 0),
       COALESCE(SUM(CASE WHEN b > 0 THEN next - t END), 0),
       COALESCE(SUM(CASE WHEN a > 0 AND b > 0 THEN next - t END), 0)
FROM sums
"""


def by_sql(timeline: Timeline, column: str, first: str, second: str) -> tuple[int, int, int]:
    names = {(s.device_id, s.stream_id): s.name for s in timeline.streams}
    engines = {kind: engine for engine, kind in KINDS.items()}
    rows = []
    for a in timeline.activities:
        engine = engines.get((a.kind, a.copy_kind))
        group = engine if column == "engine" else names[a.device_id, a.stream_id]
        if engine is not None:
            rows.append((a.start_ns, a.duration_ns, group))
    with sqlite3.connect(":memory:") as db:
        db.execute("CREATE TABLE events (ts INTEGER, dur INTEGER, grp TEXT)")
        db.executemany("INSERT INTO events VALUES (?, ?, ?)", rows)
        times: tuple[int, int, int] = db.execute(QUERY, {"a": first, "b": second}).fetchone()
    return times


def generated(seed: int, count: int, span: int, longest: int) -> Timeline:
    """Return random intervals, some of them nested, adjacent, equal or empty."""
    rng = random.Random(seed)
    activities = []
    for number in range(1, count + 1):
        kind, copy_kind = KINDS[rng.choice(list(KINDS))]
        start = rng.randrange(span)
        length = rng.choice((0, 1, rng.randrange(longest), rng.randrange(longest)))
        stream = rng.randrange(3)
        fields = {"kind": kind, "name": "x", "copy_kind": copy_kind}
        activities.append(kernel(number, stream, start, start + length, **fields))
    activities.append(kernel(count + 1, 0, 0, span, kind="HOST_LAUNCH"))  # belongs to no engine
    streams = tuple(StreamInfo(0, s, f"stream {s}") for s in range(3))
    return timeline_of(sorted(activities, key=lambda a: a.start_ns), span + longest, streams=streams)


def check(timeline: Timeline) -> int:
    engines = group_by_engine(timeline)
    streams = group_by_stream(timeline)
    pairs = find_overlaps(timeline)
    assert len(pairs) == sum(len(g) * (len(g) - 1) // 2 for g in (engines, streams))
    for pair in pairs:
        column = "engine" if pair.first in engines else "stream"
        first_ns, second_ns, both_ns = by_sql(timeline, column, pair.first, pair.second)
        assert (pair.first_ns, pair.second_ns, pair.both_ns) == (first_ns, second_ns, both_ns)
        assert pair.percent == pytest.approx(100 * both_ns / max(1, min(first_ns, second_ns)), abs=0.5)
    return len(pairs)


@pytest.mark.parametrize("seed", range(6))
def test_overlap_of_generated_timelines_equals_sql(seed: int) -> None:
    assert check(generated(seed, 60, (40, 400, 4_000)[seed % 3], 50)) == 13


@pytest.mark.parametrize(
    ("spans", "length"),
    [
        ([], 0),
        ([(3, 3)], 0),
        ([(0, 5), (5, 9)], 9),
        ([(0, 9), (2, 3), (4, 4)], 9),
        ([(7, 9), (0, 2), (1, 3)], 5),
        ([(0, 4), (0, 4)], 4),
    ],
)
def test_length_of_a_union(spans: list[tuple[int, int]], length: int) -> None:
    assert sum_interval_ns(np.array(spans, np.int64).reshape(-1, 2).T) == length
    assert len({t for a, b in spans for t in range(a, b)}) == length


@pytest.fixture
def machine() -> Iterator[Machine]:
    previous = slot._current_machine.machine
    chosen = Machine([device_info("H200"), device_info("H200")])
    slot.use(chosen)
    yield chosen
    slot._current_machine.machine = previous


def recorded(machine: Machine, work: Callable[[], object]) -> Timeline:
    recording = Recording(machine)
    recording.start()
    work()
    return recording.stop()


def overlapped(streams: int) -> None:
    """Run copies in, kernels and copies out, in pieces that are distributed over the streams."""
    queues = [cp.cuda.Stream(non_blocking=True) for _ in range(streams)]
    size = 1 << 20
    buffers = [np.frombuffer(cp.cuda.alloc_pinned_memory(4 * size), np.float32, size) for _ in queues]
    arrays = [cp.empty(size, cp.float32) for _ in queues]
    for piece in range(8):
        index = piece % streams
        with queues[index]:
            arrays[index].set(buffers[index])
            for _ in range(10):
                arrays[index] *= 2
            arrays[index].get(out=buffers[index], blocking=False)
    cp.cuda.Device().synchronize()


def test_overlap_of_recorded_timelines_equals_sql_and_grows_with_streams(machine: Machine) -> None:
    shares = []
    for streams in (1, 3):
        timeline = recorded(machine, lambda streams=streams: overlapped(streams))  # type: ignore[misc]
        check(timeline)
        shares.append({(o.first, o.second): o.percent for o in find_overlaps(timeline)}["compute", "H2D"])
    assert shares[0] == 0
    assert shares[1] > 30


def test_the_streams_with_most_operations_are_compared() -> None:
    activities = [
        kernel(1 + stream + 200 * turn, stream, 10 * turn, 10 * turn + 5)
        for stream in range(200)
        for turn in range(1 + stream)
    ]
    pairs = find_overlaps(timeline_of(sorted(activities, key=lambda a: a.start_ns), 5000))
    assert len(pairs) == MAX_STREAMS * (MAX_STREAMS - 1) // 2
    names = {name for pair in pairs for name in (pair.first, pair.second)}
    assert names == {f"stream {stream}" for stream in range(200 - MAX_STREAMS, 200)}


def test_engines_of_two_devices_are_separate(machine: Machine) -> None:
    def work() -> None:
        for device in (0, 1):
            with cp.cuda.Device(device):
                cp.zeros(1 << 22, cp.float32).fill(1)

    pairs = {(o.first, o.second) for o in find_overlaps(recorded(machine, work))}
    assert ("compute of device 0", "compute of device 1") in pairs
    assert ("default stream of device 0", "default stream of device 1") in pairs
