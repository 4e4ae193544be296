"""Read the database that Nsight Systems exports: ``nsys export -t sqlite report.nsys-rep``.

Its rows become events as `foreign` reads them from other profilers. The tables, and the numbers of the kinds
of copies and memory, are those in the user guide of Nsight Systems, "SQLite Schema Reference".
"""

from __future__ import annotations

import re
import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

from gpulab.analysis.files import foreign
from virtualgpu.records import Timeline
from virtualgpu.records.io import TraceFormatError

SQLITE_SIGNATURE = b"SQLite format 3\0"
_COPY_KINDS = {1: "HtoD", 2: "DtoH", 8: "DtoD", 10: "PtoP"}
_MEMORY_KINDS = {0: "Pageable", 1: "Pinned", 2: "Device", 3: "Array", 4: "Managed"}
_VERSION_SUFFIX = re.compile(r"_v\d+$|_ptsz$")
_KERNEL_QUERY = """
    SELECT start, end, deviceId, streamId, correlationId, s.value, registersPerThread,
        staticSharedMemory + dynamicSharedMemory, gridX, gridY, gridZ, blockX, blockY, blockZ
    FROM CUPTI_ACTIVITY_KIND_KERNEL JOIN StringIds s ON s.id = demangledName ORDER BY start"""
_COPY_QUERY = """
    SELECT start, end, deviceId, streamId, correlationId, bytes, copyKind, srcKind, dstKind
    FROM CUPTI_ACTIVITY_KIND_MEMCPY ORDER BY start"""
_MEMSET_QUERY = """
    SELECT start, end, deviceId, streamId, correlationId, bytes
    FROM CUPTI_ACTIVITY_KIND_MEMSET ORDER BY start"""
_CALL_QUERY = """
    SELECT start, end, globalTid, correlationId, s.value
    FROM CUPTI_ACTIVITY_KIND_RUNTIME JOIN StringIds s ON s.id = nameId ORDER BY start"""
_RANGE_QUERY = """
    SELECT start, end, globalTid, coalesce(text, s.value)
    FROM NVTX_EVENTS LEFT JOIN StringIds s ON s.id = textId
    WHERE coalesce(text, s.value) NOT NULL ORDER BY start"""
EVENT_TABLES = (
    "StringIds",
    "CUPTI_ACTIVITY_KIND_KERNEL",
    "CUPTI_ACTIVITY_KIND_MEMCPY",
    "CUPTI_ACTIVITY_KIND_MEMSET",
    "CUPTI_ACTIVITY_KIND_RUNTIME",
    "NVTX_EVENTS",
    "TARGET_INFO_GPU",
    "TARGET_INFO_SESSION_START_TIME",
)
"""The tables that are read."""
STRING_TABLES = (
    ("CUPTI_ACTIVITY_KIND_KERNEL", "demangledName"),
    ("CUPTI_ACTIVITY_KIND_RUNTIME", "nameId"),
    ("NVTX_EVENTS", "textId"),
)
"""The columns that refer to strings, with their tables."""
_GPU_QUERY = "SELECT name FROM TARGET_INFO_GPU"
_START_QUERY = "SELECT utcEpochNs FROM TARGET_INFO_SESSION_START_TIME"


def read_timeline(path: Path, most_events: int) -> Timeline:
    """Read a timeline from a database that Nsight Systems exported.

    Raises
    ------
    TraceFormatError
        If the file is another database, is damaged, or contains no event with a time.
    """
    try:
        with closing(sqlite3.connect(f"{path.resolve().as_uri()}?mode=ro&immutable=1", uri=True)) as database:
            database.execute("PRAGMA trusted_schema = OFF")  # the file can be of any origin
            table_names = {
                row[0] for row in database.execute("SELECT name FROM sqlite_master WHERE type = 'table'")
            }
            if "StringIds" not in table_names:
                raise TraceFormatError(
                    f"{path.name} is an SQLite database, but was not exported by Nsight Systems. Export a "
                    "report with: nsys export -t sqlite report.nsys-rep"
                )
            header = _read_header(database, table_names)
            contents = foreign.read_slices(_read_events(database, table_names), most_events, path.name)
    except sqlite3.Error as error:
        raise TraceFormatError(f"{path.name} is damaged: {error}.") from error
    return foreign.make_timeline(contents, header, path.name, tool="Nsight Systems")


def _query_rows(database: sqlite3.Connection, table_names: set[str], query: str) -> Iterator[tuple[Any, ...]]:
    """Yield the rows of a query, or nothing if the report has no such table."""
    table_match = re.search(r"FROM (\w+)", query)
    if table_match is not None and table_match[1] in table_names:
        yield from database.execute(query)


def _read_header(database: sqlite3.Connection, table_names: set[str]) -> dict[str, Any]:
    """Return the devices and the start of the recording, named as in a file of the PyTorch profiler."""
    starts_ns = [row[0] for row in _query_rows(database, table_names, _START_QUERY)]
    return {
        "deviceProperties": [{"name": name} for (name,) in _query_rows(database, table_names, _GPU_QUERY)],
        "baseTimeNanoseconds": starts_ns[0] if starts_ns else 0,
    }


def _read_events(database: sqlite3.Connection, table_names: set[str]) -> Iterator[dict[str, Any]]:
    """Yield the rows of all tables as trace events, with the categories of the PyTorch profiler."""
    for (
        *operation_fields,
        name,
        registers,
        shared_bytes,
        grid_x,
        grid_y,
        grid_z,
        block_x,
        block_y,
        block_z,
    ) in _query_rows(database, table_names, _KERNEL_QUERY):
        resource_args = {"registers per thread": registers, "shared memory": shared_bytes}
        event_args = resource_args | {"grid": [grid_x, grid_y, grid_z], "block": [block_x, block_y, block_z]}
        yield _make_operation_event("kernel", name, operation_fields, event_args)
    for *operation_fields, size_bytes, copy_kind, source_kind, target_kind in _query_rows(
        database, table_names, _COPY_QUERY
    ):
        memory_kinds = " -> ".join(
            _MEMORY_KINDS.get(memory_kind, "Unknown") for memory_kind in (source_kind, target_kind)
        )
        name = f"Memcpy {_COPY_KINDS.get(copy_kind, 'other')} ({memory_kinds})"
        yield _make_operation_event("gpu_memcpy", name, operation_fields, {"bytes": size_bytes})
    for *operation_fields, size_bytes in _query_rows(database, table_names, _MEMSET_QUERY):
        yield _make_operation_event("gpu_memset", "Memset (Device)", operation_fields, {"bytes": size_bytes})
    for start_ns, end_ns, thread, correlation_id, name in _query_rows(database, table_names, _CALL_QUERY):
        plain_name = _VERSION_SUFFIX.sub("", str(name))
        event = _make_event("cuda_runtime", plain_name, start_ns, end_ns, 0, _make_thread_id(thread))
        yield event | {"args": {"correlation": correlation_id}}
    for start_ns, end_ns, thread, name in _query_rows(database, table_names, _RANGE_QUERY):
        range_end_ns = start_ns if end_ns is None else end_ns
        event = _make_event("user_annotation", name, start_ns, range_end_ns, 0, _make_thread_id(thread))
        yield event | {"ph": "i"} if end_ns is None else event


def _make_operation_event(
    category: str, name: Any, operation_fields: Sequence[Any], args: dict[str, Any]
) -> dict[str, Any]:
    """Return the trace event of an operation. The list `operation_fields` contains its start, end, device,
    stream and correlation ID.
    """
    start_ns, end_ns, device, stream, correlation_id = operation_fields
    operation_ids = {"device": device, "stream": stream, "correlation": correlation_id}
    return _make_event(category, name, start_ns, end_ns, device, stream) | {"args": operation_ids | args}


def _make_event(category: str, name: Any, start_ns: Any, end_ns: Any, pid: Any, tid: Any) -> dict[str, Any]:
    """Return a complete event with times in µs, as in a file of trace events."""
    is_timed = isinstance(start_ns, int) and isinstance(end_ns, int)
    times_us = {"ts": start_ns / 1000, "dur": (end_ns - start_ns) / 1000} if is_timed else {}
    return {"ph": "X", "cat": category, "name": name, "pid": pid, "tid": tid, **times_us}


def _make_thread_id(global_id: Any) -> int:
    """Return the operating system's number of a thread, which is in the lower 24 bits of its ID in Nsight
    Systems.
    """
    return global_id & 0xFFFFFF if isinstance(global_id, int) else 0
