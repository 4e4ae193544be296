"""Read trace files that gpulab wrote, without loss of information."""

from __future__ import annotations

import types
import typing
from collections.abc import Callable, Iterable
from dataclasses import fields
from functools import lru_cache
from typing import Any, TypeVar

from gpulab.analysis.files.write import (
    CATEGORY_OF_KIND,
    DRIVER_CATEGORY,
    NVTX_CATEGORY,
    RUNTIME_CATEGORY,
    SYNC_CATEGORY,
    VERSION,
)
from virtualgpu.records import (
    Activity,
    HostCall,
    NvtxRange,
    Provenance,
    SourceLine,
    StreamInfo,
    Synchronization,
    Timeline,
)
from virtualgpu.records.io import TraceFormatError

R = TypeVar("R")
ValueCheck = Callable[[Any], bool]
_RECORD_TYPES: dict[str, type[Any]] = {
    **dict.fromkeys(CATEGORY_OF_KIND.values(), Activity),
    RUNTIME_CATEGORY: HostCall,
    DRIVER_CATEGORY: HostCall,
    SYNC_CATEGORY: Synchronization,
    NVTX_CATEGORY: NvtxRange,
}
# Largest time in ns; sums of several such times must fit into NumPy's 64-bit integers.
_MAX_NS = 1 << 62


def make_timeline(contents: dict[str, Any], events: Iterable[Any], name: str) -> Timeline:
    """Build a timeline from the header and the events of a file that gpulab saved.

    Raises
    ------
    TraceFormatError
        If a newer gpulab wrote it, or if a value is missing or has another type.
    """
    header = contents["otherData"]
    version = header.get("version")
    if isinstance(version, int) and version > VERSION:
        raise TraceFormatError(f"{name} was written by a newer version of gpulab. Update gpulab to read it.")
    try:
        return _build_timeline(events, header)
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise TraceFormatError(f"{name} is damaged or incomplete: {_describe_error(error)}.") from error


def _describe_error(error: Exception) -> str:
    return f"{error} is missing" if isinstance(error, KeyError) else str(error)


def _build_timeline(events: Iterable[Any], header: dict[str, Any]) -> Timeline:
    provenance = make_record(Provenance, header["provenance"])
    if provenance.source == "measured":
        provenance_detail = "; ".join(
            detail_text for detail_text in (provenance.detail, str(header["saved"])) if detail_text
        )
        provenance = Provenance("recorded", provenance.device, provenance_detail)
    start_ns = header["start_ns"]
    records: dict[type[Any], list[Any]] = {record_type: [] for record_type in _RECORD_TYPES.values()}
    for event in events:
        record_type = _RECORD_TYPES.get(event.get("cat")) if event["ph"] in ("X", "i") else None
        if record_type is not None:
            event_start_ns = start_ns + _parse_ns(event["ts"])
            event_end_ns = event_start_ns + _parse_ns(event.get("dur", 0))
            args = {
                "name": event["name"],
                **event["args"],
                "start_ns": event_start_ns,
                "end_ns": event_end_ns,
            }
            records[record_type].append(make_record(record_type, args))
    timeline_values = {key: header[key] for key in ("method", "start_ns", "end_ns", "lost", "note")}
    return make_record(
        Timeline,
        {
            **timeline_values,
            "provenance": provenance,
            "activities": tuple(records[Activity]),
            "calls": tuple(records[HostCall]),
            "synchronizations": tuple(records[Synchronization]),
            "ranges": tuple(records[NvtxRange]),
            "streams": tuple(make_record(StreamInfo, stream) for stream in header["streams"]),
        },
    )


def _parse_ns(time_us: Any) -> int:
    """Convert a time from µs to ns. Raise an error if it is not a number."""
    if isinstance(time_us, bool) or not isinstance(time_us, (int, float)):
        raise ValueError(f"{time_us!r:.40} is not a time")
    return round(time_us * 1_000)


def make_record(record_type: type[R], values: dict[str, Any]) -> R:
    """Create a record of the given type from a dictionary of field values. Each value must have the type of
    its field.

    Raises
    ------
    ValueError
        If a value has another type.
    """
    field_checks = _make_field_checks(record_type)  # type: ignore[arg-type]
    field_values = {}
    for key, value in values.items():
        check = field_checks.get(key)
        if check is None:
            continue
        if type(value) is list:
            value = _parse_source_line(value) if key == "source" else tuple(value)
        if not check(value):
            raise ValueError(f"{key} of a {record_type.__name__} cannot be {value!r:.40}")
        field_values[key] = value
    if "start_ns" in field_values and not field_values["start_ns"] <= field_values["end_ns"]:
        raise ValueError(f"a {record_type.__name__} ends before it begins")
    return record_type(**field_values)


def _parse_source_line(value: list[Any]) -> SourceLine:
    file, line, text = value
    return make_record(SourceLine, {"file": file, "line": line, "text": text})


@lru_cache(16)
def _make_field_checks(record_type: type[Any]) -> dict[str, ValueCheck]:
    """Return the check of each field of a record, by the field's name."""
    type_hints = typing.get_type_hints(record_type)
    return {field.name: _make_type_check(type_hints[field.name]) for field in fields(record_type)}


def _make_type_check(type_hint: Any) -> ValueCheck:
    """Return a function that checks whether a value has the type of an annotation."""
    origin = typing.get_origin(type_hint)
    inner_types = typing.get_args(type_hint)
    if origin in (types.UnionType, typing.Union):
        type_checks = [_make_type_check(inner_hint) for inner_hint in inner_types]
        return lambda value: any(check(value) for check in type_checks)
    if origin is typing.Literal:
        return lambda value: type(value) is str and value in inner_types
    if origin is tuple:
        type_checks = [
            _make_type_check(inner_hint) for inner_hint in inner_types if inner_hint is not Ellipsis
        ]
        if Ellipsis in inner_types:
            return lambda value: type(value) is tuple and all(map(type_checks[0], value))
        return lambda value: (
            type(value) is tuple
            and len(value) == len(type_checks)
            and all(check(inner_value) for check, inner_value in zip(type_checks, value, strict=True))
        )
    if type_hint is int:
        return lambda value: type(value) is int and -_MAX_NS < value < _MAX_NS
    return lambda value: isinstance(value, type_hint)
