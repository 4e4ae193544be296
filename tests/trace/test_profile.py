"""Profiles of timelines, compared with SQL over the same records or with values computed by hand."""

from __future__ import annotations

import sqlite3
from dataclasses import replace

import numpy as np

from gpulab.analysis.profile import make_profile
from tests.trace.programs import kernel, timeline_of
from virtualgpu.records import Activity, HostCall, NvtxRange, SourceLine, Synchronization, Timeline

KERNELS = """
SELECT name, COUNT(*), SUM(stop - start), AVG(stop - start), SUM(moved), SUM(flop)
FROM ran WHERE kind = 'CONCURRENT_KERNEL' GROUP BY name ORDER BY SUM(stop - start) DESC
"""
RANGES = """
SELECT r.name, SUM(a.stop - a.start), COUNT(*) FROM (SELECT DISTINCT name FROM ranges) r
JOIN ran a ON EXISTS (
  SELECT 1 FROM calls c JOIN ranges o ON o.thread = c.thread
  WHERE c.number = a.number AND o.name = r.name AND o.start <= c.start AND c.start < o.stop
) GROUP BY r.name
"""


def made_up(seed: int = 0) -> Timeline:
    """Return launches and copies of two threads, with ranges that nest, overlap and repeat."""
    rng = np.random.default_rng(seed)
    activities = []
    calls = []
    ranges = []
    for number in range(1, 200):
        begun = number * 100
        thread = int(rng.integers(2))
        copy = bool(rng.random() < 0.3)
        start = begun + int(rng.integers(10, 5_000))
        activities.append(
            Activity(
                kind="MEMCPY" if copy else "CONCURRENT_KERNEL",
                name="Memcpy HtoD" if copy else f"kernel_{rng.integers(4)}",
                device_id=0,
                stream_id=int(rng.integers(2)),
                correlation_id=number,
                start_ns=start,
                end_ns=start + int(rng.integers(1, 3_000)),
                size_bytes=64,
                copy_kind="HtoD" if copy else None,
                grid=None if copy else (1, 1, 1),
                block=None if copy else (int(rng.integers(1, 3)), 1, 1),
                moved_bytes=None if copy else int(rng.integers(9_000)),
                flop=None if copy else int(rng.integers(9_000)),
            )
        )
        line = SourceLine("cell [1]", number % 5)
        calls.append(HostCall("cuLaunchKernel", begun, begun + 90, thread, number, line))
    for _ in range(40):
        start = int(rng.integers(18_000))
        name = f"layer {rng.integers(3)}"
        thread = int(rng.integers(2))
        end = start + int(rng.integers(1, 3_000))
        ranges.append(NvtxRange(name=name, color=None, start_ns=start, end_ns=end, thread=thread))
    activities.sort(key=lambda a: a.start_ns)
    return timeline_of(activities, 30_000, ranges=tuple(ranges), calls=tuple(calls))


def in_sql(timeline: Timeline) -> sqlite3.Connection:
    db = sqlite3.connect(":memory:")
    db.execute("CREATE TABLE ran (number, name, kind, start, stop, moved, flop)")
    db.execute("CREATE TABLE calls (number, thread, start)")
    db.execute("CREATE TABLE ranges (name, thread, start, stop)")
    for a in timeline.activities:
        row = (a.correlation_id, a.name, a.kind, a.start_ns, a.end_ns, a.moved_bytes, a.flop)
        db.execute("INSERT INTO ran VALUES (?, ?, ?, ?, ?, ?, ?)", row)
    for c in timeline.calls:
        db.execute("INSERT INTO calls VALUES (?, ?, ?)", (c.correlation_id, c.thread, c.start_ns))
    for r in timeline.ranges:
        db.execute("INSERT INTO ranges VALUES (?, ?, ?, ?)", (r.name, r.thread, r.start_ns, r.end_ns))
    return db


def test_sums_of_kernels_and_ranges_equal_sql() -> None:
    for seed in range(5):
        timeline = made_up(seed)
        summary = make_profile(timeline)
        db = in_sql(timeline)
        rows = [
            (k.key, k.count, k.device_time_total_ns, k.device_time_ns, k.moved_bytes, k.flop)
            for k in summary.kernels
        ]
        assert rows == db.execute(KERNELS).fetchall()
        ranges = {r.key: (r.device_time_total_ns, r.operations) for r in summary.ranges}
        assert ranges == {name: (time, count) for name, time, count in db.execute(RANGES)}
        lines = sum(line.device_time_total_ns for line in summary.lines)
        assert lines == sum(a.duration_ns for a in timeline.activities)
        assert sum(line.count for line in summary.lines) == len(timeline.activities)


def test_copies_are_summed_by_direction_and_kind_of_memory() -> None:
    timeline = made_up()
    kinds = [
        ("MEMCPY", "HtoD", True),
        ("MEMCPY", "HtoD", False),
        ("MEMCPY2", "PtoP", None),
        ("MEMSET", None, None),
    ]
    activities = [
        replace(a, kind=kind, copy_kind=way, pinned=pinned, size_bytes=100 * index)
        for index, a in enumerate(timeline.activities)
        for kind, way, pinned in [kinds[index % 4]]
    ]
    summary = make_profile(
        replace(timeline, activities=tuple(activities), note="cut"), "mine", before_bytes=7, peak_bytes=9
    )
    expected = []
    for _, way, pinned in kinds:
        group = [a for a in activities if (a.copy_kind, a.pinned) == (way, pinned)]
        expected.append(
            (
                way,
                pinned,
                len(group),
                sum(a.size_bytes for a in group),
                sum(a.end_ns - a.start_ns for a in group),
            )
        )
    assert [
        (c.way, c.pinned, c.count, c.size_bytes, c.device_time_total_ns) for c in summary.copies
    ] == sorted(expected, key=lambda row: -row[-1])
    assert summary.kernels == ()
    (copies,) = make_profile(replace(timeline, activities=tuple(activities[1:2]))).copies
    assert (copies.way, copies.pinned, copies.count, copies.size_bytes) == ("HtoD", False, 1, 100)
    busy = {t for a in activities for t in range(a.start_ns, a.end_ns)}
    assert (summary.busy_ns, summary.wall_ns) == (len(busy), 30_000)
    assert (summary.name, summary.note, summary.method) == ("mine", "cut", "model")
    assert (summary.before_bytes, summary.peak_bytes) == (7, 9)


def test_each_line_lists_its_operations_once() -> None:
    timeline = made_up()
    first = make_profile(timeline).lines[0]
    activities = [a for a in timeline.activities if a.correlation_id % 5 == first.source.line]
    assert (first.source.file, first.count) == ("cell [1]", len(activities))
    assert first.keys == tuple(dict.fromkeys(a.name for a in activities))
    times = [line.device_time_total_ns for line in make_profile(timeline).lines]
    assert times == sorted(times, reverse=True)


def test_graph_nodes_have_the_line_of_the_graph_launch() -> None:
    """In CUPTI, the correlation ids of graph nodes follow the id of their launch."""
    nodes = [kernel(n, 0, 10 * n, 11 * n, graph_id=1) for n in (3, 5, 6, 7, 8, 9)]
    calls = [HostCall("cudaGraphLaunch", 2 * n, 2 * n + 1, 0, n, SourceLine("p", n)) for n in (5, 8)]
    timeline = replace(made_up(), activities=tuple(nodes), calls=tuple(calls), ranges=())
    assert [(line.source.line, line.keys, line.count) for line in make_profile(timeline).lines] == [
        (5, ("k5", "k6", "k7"), 3),
        (8, ("k8", "k9"), 2),
    ]
    assert make_profile(replace(timeline, calls=())).lines == ()


def test_a_nested_range_of_the_same_name_counts_once() -> None:
    nested = [
        NvtxRange(name="step", color=None, start_ns=start, end_ns=end, thread=thread, depth=depth)
        for start, end, thread, depth in ((0, 100, 0, 0), (10, 60, 0, 1), (200, 230, 0, 0))
    ]
    call = HostCall("cuLaunchKernel", 20, 25, 0, 1)
    timeline = replace(made_up(), ranges=tuple(nested), calls=(call,), activities=(kernel(1, 0, 30, 530),))
    (step,) = make_profile(timeline).ranges
    assert (step.count, step.cpu_time_total_ns) == (3, 130)
    assert (step.device_time_total_ns, step.operations) == (500, 1)
    assert make_profile(replace(timeline, calls=())).ranges[0].device_time_total_ns is None


def test_launch_shapes_are_separate_rows_and_unknown_bytes_none() -> None:
    timeline = made_up()
    summary = make_profile(timeline, by_shape=True, occupancy=lambda kernel: 0.5)
    assert {(k.key, k.block) for k in summary.kernels} == {
        (a.name, a.block) for a in timeline.activities if a.block
    }
    assert all(k.occupancy == 0.5 for k in summary.kernels)
    (first, *others) = (a for a in timeline.activities if a.name == "kernel_0")
    other = make_profile(
        replace(timeline, activities=(replace(first, moved_bytes=None), *others)),
        occupancy=lambda kernel: None if kernel == first else 1.0,
    ).kernel("kernel_0")
    assert other.moved_bytes is other.gb_per_s is None
    assert other.gflop_per_s is not None


def test_occupancy_is_averaged_over_time() -> None:
    launches = [kernel(n, 0, 0, time_ns, name="k", block=(n, 1, 1)) for n, time_ns in ((1, 100), (2, 300))]
    timeline = replace(made_up(), activities=tuple(launches))
    shares = {(1, 1, 1): 1.0, (2, 1, 1): 0.2}
    row = make_profile(timeline, occupancy=lambda a: shares[a.block or (0, 0, 0)]).kernel("k")
    assert np.isclose(row.occupancy or 0, (100 * 1.0 + 300 * 0.2) / 400)


def test_waits_of_the_host_are_summed_by_line() -> None:
    def wait(kind: str, line: int, hidden: bool = False) -> Synchronization:
        return Synchronization(
            type=kind,
            device_id=0,
            stream_id=0,
            start_ns=0,
            end_ns=10 * line,
            name="call",
            source=SourceLine("cell [1]", line),
            hidden=hidden,
        )  # type: ignore[arg-type]

    waits = (
        wait("STREAM_SYNCHRONIZE", 1),
        wait("STREAM_SYNCHRONIZE", 1),
        wait("STREAM_WAIT_EVENT", 9),
        wait("STREAM_SYNCHRONIZE", 3, hidden=True),
    )
    summary = make_profile(replace(made_up(), synchronizations=waits)).waits
    assert {w.key for w in summary} == {"call"}
    unnamed = make_profile(replace(made_up(), synchronizations=(replace(waits[0], name=""),))).waits
    assert [w.key for w in unnamed] == ["STREAM_SYNCHRONIZE"]
    assert [(w.source.line, w.count, w.cpu_time_total_ns, w.hidden) for w in summary if w.source] == [
        (3, 1, 30, True),
        (1, 2, 20, False),
    ]
