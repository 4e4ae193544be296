"""Read files that gpulab wrote, without loss."""

from __future__ import annotations

import types
import typing
from collections.abc import Callable, Iterable
from dataclasses import fields
from functools import lru_cache
from typing import Any, TypeVar

from gpulab.analysis.files.write import CATEGORIES, DRIVER, NVTX, RUNTIME, SYNC, VERSION
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
Check = Callable[[Any], bool]
_RECORDS: dict[str, type[Any]] = {
    **dict.fromkeys(CATEGORIES.values(), Activity),
    RUNTIME: HostCall,
    DRIVER: HostCall,
    SYNC: Synchronization,
    NVTX: NvtxRange,
}
# Times in ns that records and NumPy's 64-bit integers can hold, with room for sums.
_MAX_NS = 1 << 62


def timeline(whole: dict[str, Any], events: Iterable[Any], name: str) -> Timeline:
    """Build the timeline of a file in gpulab's format from its events and its other contents.

    Raises
    ------
    TraceFormatError
        If a newer gpulab wrote it, or something in it is missing or of another kind.
    """
    about = whole["otherData"]
    version = about.get("version")
    if isinstance(version, int) and version > VERSION:
        raise TraceFormatError(f"{name} was written by a newer gpulab; update this one to read it.")
    try:
        return _timeline(events, about)
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise TraceFormatError(f"{name} is damaged or incomplete: {_why(error)}.") from error


def _why(error: Exception) -> str:
    return f"{error} is missing" if isinstance(error, KeyError) else str(error)


def _timeline(events: Iterable[Any], about: dict[str, Any]) -> Timeline:
    origin = record(Provenance, about["provenance"])
    if origin.source == "measured":
        detail = "; ".join(part for part in (origin.detail, str(about["saved"])) if part)
        origin = Provenance("recorded", origin.device, detail)
    base = about["start_ns"]
    found: dict[type[Any], list[Any]] = {kind: [] for kind in _RECORDS.values()}
    for event in events:
        kind = _RECORDS.get(event.get("cat")) if event["ph"] in ("X", "i") else None
        if kind is not None:
            start = base + _ns(event["ts"])
            end = start + _ns(event.get("dur", 0))
            args = {"name": event["name"], **event["args"], "start_ns": start, "end_ns": end}
            found[kind].append(record(kind, args))
    whole = {key: about[key] for key in ("method", "start_ns", "end_ns", "lost", "note")}
    return record(
        Timeline,
        {
            **whole,
            "provenance": origin,
            "activities": tuple(found[Activity]),
            "calls": tuple(found[HostCall]),
            "synchronizations": tuple(found[Synchronization]),
            "ranges": tuple(found[NvtxRange]),
            "streams": tuple(record(StreamInfo, stream) for stream in about["streams"]),
        },
    )


def _ns(time_us: Any) -> int:
    """Return a time in µs as ns. Checks the type, since text and lists can be multiplied, too."""
    if isinstance(time_us, bool) or not isinstance(time_us, (int, float)):
        raise ValueError(f"a time cannot be {time_us!r:.40}")
    return round(time_us * 1_000)


def record(kind: type[R], values: dict[str, Any]) -> R:
    """Build a record from values, after a check that each has the type of its field.

    Raises
    ------
    ValueError
        If one is not.
    """
    checks = _checks(kind)  # type: ignore[arg-type]
    read = {}
    for key, value in values.items():
        check = checks.get(key)
        if check is None:
            continue
        if type(value) is list:
            value = _line(value) if key == "source" else tuple(value)
        if not check(value):
            raise ValueError(f"{key} of a {kind.__name__} cannot be {value!r:.40}")
        read[key] = value
    if "start_ns" in read and not read["start_ns"] <= read["end_ns"]:
        raise ValueError(f"a {kind.__name__} ends before it begins")
    return kind(**read)


def _line(value: list[Any]) -> SourceLine:
    file, line, text = value
    return record(SourceLine, {"file": file, "line": line, "text": text})


@lru_cache(16)
def _checks(kind: type[Any]) -> dict[str, Check]:
    """Return a check of its values for each field of a record."""
    hints = typing.get_type_hints(kind)
    return {field.name: _check(hints[field.name]) for field in fields(kind)}


def _check(hint: Any) -> Check:
    """Return a check whether a value has the annotated type."""
    origin = typing.get_origin(hint)
    inner = typing.get_args(hint)
    if origin in (types.UnionType, typing.Union):
        either = [_check(each) for each in inner]
        return lambda value: any(check(value) for check in either)
    if origin is typing.Literal:
        return lambda value: type(value) is str and value in inner
    if origin is tuple:
        each = [_check(one) for one in inner if one is not Ellipsis]
        if Ellipsis in inner:
            return lambda value: type(value) is tuple and all(map(each[0], value))
        return lambda value: (
            type(value) is tuple
            and len(value) == len(each)
            and all(check(one) for check, one in zip(each, value, strict=True))
        )
    if hint is int:
        return lambda value: type(value) is int and -_MAX_NS < value < _MAX_NS
    return lambda value: isinstance(value, hint)
