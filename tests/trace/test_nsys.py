"""Databases exported by Nsight Systems: one with the documented tables, and a recorded one."""

from __future__ import annotations

import re
import sqlite3
from collections import Counter, defaultdict
from contextlib import closing
from pathlib import Path

import pytest

import gpulab as gl
from gpulab.analysis.files.read import open_file
from gpulab_course.content.n09_profiling import reports
from virtualgpu.records.io import TraceFormatError

# The columns in the user guide of Nsight Systems ("SQLite Schema Reference"), as far as they are read.
SCHEMA = """
CREATE TABLE StringIds (id INTEGER, value TEXT);
CREATE TABLE TARGET_INFO_GPU (vmId INTEGER, id INTEGER, name TEXT);
CREATE TABLE TARGET_INFO_SESSION_START_TIME (utcEpochNs INTEGER, utcTime TEXT);
CREATE TABLE CUPTI_ACTIVITY_KIND_KERNEL (start INTEGER, end INTEGER, deviceId INTEGER, contextId INTEGER,
    streamId INTEGER, correlationId INTEGER, demangledName INTEGER, registersPerThread INTEGER, gridX INTEGER,
    gridY INTEGER, gridZ INTEGER, blockX INTEGER, blockY INTEGER, blockZ INTEGER, staticSharedMemory INTEGER,
    dynamicSharedMemory INTEGER);
CREATE TABLE CUPTI_ACTIVITY_KIND_MEMCPY (start INTEGER, end INTEGER, deviceId INTEGER, streamId INTEGER,
    correlationId INTEGER, bytes INTEGER, copyKind INTEGER, srcKind INTEGER, dstKind INTEGER);
CREATE TABLE CUPTI_ACTIVITY_KIND_MEMSET (start INTEGER, end INTEGER, deviceId INTEGER, streamId INTEGER,
    correlationId INTEGER, bytes INTEGER);
CREATE TABLE CUPTI_ACTIVITY_KIND_RUNTIME (start INTEGER, end INTEGER, globalTid INTEGER,
    correlationId INTEGER, nameId INTEGER);
CREATE TABLE NVTX_EVENTS (start INTEGER, end INTEGER, text TEXT, globalTid INTEGER, textId INTEGER);
INSERT INTO StringIds VALUES (1, 'void scale<float>(float*)'), (2, 'cudaLaunchKernel_v7000'),
    (3, 'cudaMemcpyAsync_v3020'), (4, 'cudaStreamSynchronize_v3020'), (5, 'loss');
INSERT INTO TARGET_INFO_GPU VALUES (0, 0, 'NVIDIA H200');
INSERT INTO TARGET_INFO_SESSION_START_TIME VALUES (1764400000000000000, '');
INSERT INTO CUPTI_ACTIVITY_KIND_KERNEL VALUES (5001, 9003, 0, 1, 7, 21, 1, 40, 4, 2, 1, 256, 1, 1, 1024, 512);
INSERT INTO CUPTI_ACTIVITY_KIND_MEMCPY VALUES (9100, 9200, 0, 7, 22, 4, 2, 2, 1);
INSERT INTO CUPTI_ACTIVITY_KIND_MEMSET VALUES (9050, 9060, 0, 7, 24, 64);
INSERT INTO CUPTI_ACTIVITY_KIND_RUNTIME VALUES (1000, 4000, 0x1000000 * 99 + 845, 21, 2),
    (4100, 4200, 0x1000000 * 99 + 845, 22, 3), (4300, 9300, 0x1000000 * 99 + 845, 23, 4);
INSERT INTO NVTX_EVENTS VALUES (900, 9400, 'step', 0x1000000 * 99 + 845, NULL),
    (4050, 9350, NULL, 0x1000000 * 99 + 845, 5), (950, NULL, 'mark', 0x1000000 * 99 + 845, NULL);
"""
EMPTY = "".join(
    f"DELETE FROM {table};"
    for table in (
        *(f"CUPTI_ACTIVITY_KIND_{kind}" for kind in ("KERNEL", "MEMCPY", "MEMSET", "RUNTIME")),
        "NVTX_EVENTS",
    )
)


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "report.sqlite"
    with closing(sqlite3.connect(path)) as database:
        database.executescript(SCHEMA)
    return path


def test_operations_calls_ranges_and_waits_are_read(file: Path) -> None:
    timeline = gl.open_timeline(file).record
    kernel, fill, copy = timeline.activities
    assert (fill.kind, fill.size_bytes, fill.correlation_id) == ("MEMSET", 64, 3)
    assert (kernel.name, kernel.start_ns, kernel.end_ns) == ("void scale<float>(float*)", 5001, 9003)
    assert (kernel.grid, kernel.block, kernel.stream_id) == ((4, 2, 1), (256, 1, 1), 7)
    assert (kernel.shared_bytes, kernel.registers_per_thread) == (1536, 40)
    assert (copy.copy_kind, copy.size_bytes, copy.pinned) == ("DtoH", 4, True)
    assert [(call.name, call.thread) for call in timeline.calls] == [
        ("cudaLaunchKernel", 845),
        ("cudaMemcpyAsync", 845),
        ("cudaStreamSynchronize", 845),
    ]
    assert [timeline.calls[i].correlation_id for i in (0, 1)] == [kernel.correlation_id, copy.correlation_id]
    assert [(one.name, one.depth, one.is_mark) for one in timeline.ranges] == [
        ("step", 0, False),
        ("mark", 1, True),
        ("loss", 1, False),
    ]
    (wait,) = timeline.synchronizations
    assert (wait.type, wait.start_ns, wait.end_ns) == ("STREAM_SYNCHRONIZE", 4300, 9300)
    assert timeline.provenance.label == (
        "recorded on NVIDIA H200 (Nsight Systems, 2025-11-29, from report.sqlite)"
    )


def test_a_report_without_cuda_has_only_ranges(file: Path) -> None:
    with closing(sqlite3.connect(file)) as database:
        for table in ("KERNEL", "MEMCPY", "MEMSET", "RUNTIME"):
            database.executescript(f"DROP TABLE CUPTI_ACTIVITY_KIND_{table}")
    timeline = open_file(file)
    assert not timeline.activities
    assert [one.name for one in timeline.ranges] == ["step", "mark", "loss"]


def test_only_the_first_events_are_read(file: Path) -> None:
    timeline = open_file(file, most_events=3)
    assert "most_events=9" in timeline.note
    assert not timeline.activities


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ("DROP TABLE StringIds", "nsys export"),
        ("DROP TABLE NVTX_EVENTS; CREATE TABLE NVTX_EVENTS (start INTEGER)", "damaged"),
        (EMPTY, "has no timeline"),
    ],
)
def test_a_database_without_the_nsys_schema_is_refused(file: Path, change: str, reason: str) -> None:
    with closing(sqlite3.connect(file)) as database:
        database.executescript(change)
    with pytest.raises(TraceFormatError, match=reason):
        open_file(file)


def test_rows_of_wrong_types_are_left_out(file: Path) -> None:
    with closing(sqlite3.connect(file)) as database:
        database.executescript("UPDATE CUPTI_ACTIVITY_KIND_KERNEL SET start = 'early', gridX = 'wide'")
        database.executescript("UPDATE NVTX_EVENTS SET text = x'00ff' WHERE text = 'step'")
    timeline = open_file(file)
    assert [activity.copy_kind for activity in timeline.activities] == [None, "DtoH"]
    assert [one.name for one in timeline.ranges] == ["mark", "loss"]
    assert "2 events" in timeline.note


def test_opening_a_file_does_not_change_it(file: Path) -> None:
    before = file.read_bytes()
    open_file(file)
    assert file.read_bytes() == before
    assert [path.name for path in file.parent.iterdir()] == [file.name]


def test_a_recorded_report_has_the_totals_printed_by_nsys() -> None:
    timeline = gl.open_timeline(reports.path("loop.sqlite")).record
    sums_ns: dict[str, int] = defaultdict(int)
    counts = Counter(activity.name for activity in timeline.activities)
    for activity in timeline.activities:
        sums_ns[activity.name] += activity.end_ns - activity.start_ns
    printed = reports.nsys_summary("cuda_gpu_kern_sum", "Total Time (ns)", "Instances", "Name").rows
    assert len(printed) == 5
    for total, instances, name in printed:
        (full_name,) = (key for key in sums_ns if key[:60] == name[:60])
        assert (sums_ns[full_name], counts[full_name]) == (int(total.replace(",", "")), int(instances))
    calls = {row[1]: int(row[0]) for row in reports.nsys_summary("cuda_api_sum", "Num Calls", "Name").rows}
    read = Counter(call.name for call in timeline.calls)
    assert read == {re.sub(r"_v\d+$", "", name): count for name, count in calls.items()}
    ranges = {row[1]: int(row[0]) for row in reports.nsys_summary("nvtx_sum", "Instances", "Range").rows}
    assert Counter(f":{one.name}" for one in timeline.ranges) == ranges
    assert len(timeline.synchronizations) == 16
    assert [a.pinned for a in timeline.activities if a.copy_kind == "HtoD"] == [False] * 8
    assert timeline.provenance.label.startswith("recorded on NVIDIA H200 (Nsight Systems, 2026-11-29")
