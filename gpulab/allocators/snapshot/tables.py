"""Conversion of a snapshot's dictionaries to columns, with checks."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np

from gpulab.allocators.snapshot.plain import SnapshotError
from gpulab.allocators.snapshot.ranges import Range
from virtualgpu.records.memory import ACTIONS

ACTION_CODES = {name: code for code, name in enumerate(ACTIONS)}
_STATE_CODES = {"inactive": 0, "active_allocated": 1, "active_pending_free": 2, "active_awaiting_free": 2}
FREE = 0
USED = 1
WAITING = 2
_MAX_DEVICES = 1024
_NUMBER_LIMIT = 1 << 62


class FinalBlock(NamedTuple):
    """A memory block of the final state, with its address, size, requested bytes, state and stack trace."""

    address: int
    size: int
    requested_bytes: int
    state_code: int
    stack_number: int


@dataclass(slots=True)
class DeviceTables:
    """The data of one device in a memory snapshot. It contains the final segments and blocks, and the events
    as columns.
    """

    segments: list[Range] = field(default_factory=list)
    blocks: list[FinalBlock] = field(default_factory=list)
    actions: list[int] = field(default_factory=list)
    addresses: list[int] = field(default_factory=list)
    sizes: list[int] = field(default_factory=list)
    streams: list[int] = field(default_factory=list)
    times_us: list[int] = field(default_factory=list)
    stacks: list[int] = field(default_factory=list)
    omitted_event_counts: dict[str, int] = field(default_factory=dict)
    impossible_event_count: int = 0
    """Events left out because of a size or an address that no device has."""
    block_sizes: list[int] = field(default_factory=list)
    """Sizes of blocks, for each event, in files that `write_snapshot` wrote."""


class SnapshotTables:
    """The data of all devices in a memory snapshot. Each device refers to the stack traces and memory pools
    of this object by number.
    """

    def __init__(self, snapshot: Any) -> None:
        if isinstance(snapshot, list):  # what torch.cuda.memory_snapshot() returns
            snapshot = {"segments": snapshot, "device_traces": []}
        if not isinstance(snapshot, dict) or "segments" not in snapshot:
            raise SnapshotError(
                "This pickle is not a snapshot of PyTorch's allocator: it has no list "
                "'segments'. Write a snapshot with "
                'torch.cuda.memory._dump_snapshot("file.pickle").'
            )
        self.frames: dict[tuple[str, int, str], int] = {}
        self.stacks: dict[tuple[int, ...], int] = {}
        self.pools: dict[str, int] = {"small": 0, "large": 1}
        self._frame_numbers: dict[int, int] = {}
        self._stack_numbers: dict[int, int] = {}
        self._stacks_by_sample: dict[tuple[int, ...], list[tuple[list[Any], int]]] = {}
        self.allocator = _shorten_text(snapshot.get("allocator", "PyTorch's caching allocator"), 60)
        provenance = snapshot.get("provenance", ())
        self.provenance = (
            [_shorten_text(text, 200) for text in provenance[:3]]
            if isinstance(provenance, tuple | list)
            else []
        )
        self.settings = _format_settings(snapshot.get("allocator_settings"))
        self.devices: dict[int, DeviceTables] = {}
        device_traces = _check_type(list, snapshot.get("device_traces", []), "device_traces")
        if len(device_traces) > _MAX_DEVICES:
            raise SnapshotError(
                f"This file has traces of {len(device_traces):,} devices, but at most {_MAX_DEVICES} can "
                "exist. It is damaged, or it is not a snapshot."
            )
        for segment in _check_type(list, snapshot["segments"], "segments"):
            self._read_segment(_check_type(dict, segment, "segment"))
        for device, trace in enumerate(device_traces):
            if trace:
                self._read_trace(self._find_device_tables(device), _check_type(list, trace, "trace"))
        for device_tables in self.devices.values():
            device_tables.segments.sort()
            device_tables.blocks.sort()
            for previous_segment, next_segment in zip(
                device_tables.segments, device_tables.segments[1:], strict=False
            ):
                if previous_segment.end > next_segment.address:
                    raise SnapshotError(
                        f"This snapshot is damaged: two of its segments overlap at {next_segment.address:#x}."
                    )

    def _find_device_tables(self, device_id: int) -> DeviceTables:
        if not 0 <= device_id < _MAX_DEVICES:
            raise SnapshotError(
                f"This snapshot is damaged: it refers to device {device_id}, which cannot exist."
            )
        return self.devices.setdefault(device_id, DeviceTables())

    def _read_segment(self, segment: dict[Any, Any]) -> None:
        device_tables = self._find_device_tables(_read_number(segment, "device", 0))
        address = _read_number(segment, "address")
        segment_bytes = _read_number(segment, "total_size")
        pool_name = _shorten_text(segment.get("pool_name", segment.get("segment_type", "large")), 60)
        pool_id = segment.get("segment_pool_id", (0, 0))
        if isinstance(pool_id, tuple | list) and any(pool_id[:2]) and "pool_name" not in segment:
            pool_name += (
                f" of private pool {'.'.join(_shorten_text(pool_number) for pool_number in pool_id[:2])}"
            )
        device_tables.segments.append(
            Range(
                address,
                segment_bytes,
                _read_number({"stream": _make_stream_handle(segment.get("stream", 0))}, "stream"),
                self.pools.setdefault(pool_name, len(self.pools)),
                bool(segment.get("is_expandable", False)),
            )
        )
        block_address = address
        for block in _check_type(list, segment.get("blocks", []), "blocks"):
            block = _check_type(dict, block, "block")
            block_state = _shorten_text(block.get("state"))
            if block_state not in _STATE_CODES:
                raise SnapshotError(f"This snapshot is damaged: a block has the state {block_state!r}.")
            block_bytes = _read_number(block, "size")
            # Before PyTorch 2.1 a block had a history instead of its own size and frames.
            block_history = block.get("history")
            allocation_entry = (
                _check_type(dict, block_history[0], "history")
                if isinstance(block_history, list) and block_history
                else block
            )
            requested_bytes = block.get("requested_size", allocation_entry.get("real_size", block_bytes))
            requested_bytes = _read_number(
                {"requested_size": _replace_negative(requested_bytes, block_bytes)}, "requested_size"
            )
            stack_number = self._number_stack(allocation_entry.get("frames", ()))
            device_tables.blocks.append(
                FinalBlock(
                    block_address, block_bytes, requested_bytes, _STATE_CODES[block_state], stack_number
                )
            )
            block_address += block_bytes
        if block_address != address + segment_bytes:
            raise SnapshotError(
                f"This snapshot is damaged: the blocks of the segment at {address:#x} do not fill it."
            )

    def _read_trace(self, device_tables: DeviceTables, trace: list[Any]) -> None:
        try:
            known_entries = [trace_entry for trace_entry in trace if trace_entry["action"] in ACTION_CODES]
            possible_entries = [
                trace_entry for trace_entry in known_entries if _is_possible_entry(trace_entry)
            ]
            device_tables.impossible_event_count = len(known_entries) - len(possible_entries)
            device_tables.actions = [ACTION_CODES[trace_entry["action"]] for trace_entry in possible_entries]
            device_tables.addresses = [
                trace_entry["addr"]
                if "addr" in trace_entry
                else _replace_negative(trace_entry["device_free"])
                for trace_entry in possible_entries
            ]
            device_tables.sizes = [trace_entry["size"] for trace_entry in possible_entries]
            device_tables.streams = [
                _make_stream_handle(trace_entry["stream"]) for trace_entry in possible_entries
            ]
            device_tables.times_us = [trace_entry.get("time_us", 0) for trace_entry in possible_entries]
            if possible_entries and "block_size" in possible_entries[0]:
                device_tables.block_sizes = [trace_entry["block_size"] for trace_entry in possible_entries]
            device_tables.stacks = [
                self._number_stack(trace_entry.get("frames", ())) for trace_entry in possible_entries
            ]
        except (KeyError, TypeError, AttributeError, IndexError) as error:
            raise SnapshotError(
                "An event of this snapshot's trace does not have PyTorch's format "
                f"({type(error).__name__}: {str(error)[:60]})."
            ) from None
        for column in (
            device_tables.addresses,
            device_tables.sizes,
            device_tables.streams,
            device_tables.times_us,
            device_tables.block_sizes,
        ):
            _check_column(column)
        if len(known_entries) < len(trace):
            for trace_entry in trace:
                action = _shorten_text(trace_entry["action"])
                if action not in ACTION_CODES:
                    device_tables.omitted_event_counts[action] = (
                        device_tables.omitted_event_counts.get(action, 0) + 1
                    )

    def _number_stack(self, frames: Any) -> int:
        """Return the number of a stack trace. A list or a frame that the pickle shares between stack traces
        is read only once.
        """
        if not frames:
            return -1
        stack_number = self._stack_numbers.get(id(frames))
        if stack_number is None:
            stack_number = self._add_stack(_check_type(list, frames, "frames"))
            self._stack_numbers[id(frames)] = stack_number
        return stack_number

    def _add_stack(self, frames: list[Any]) -> int:
        """Return the number of a list of frames; equal lists have the same number."""
        # The snapshot keeps its objects, so that their identities stay theirs. Some frames of each list tell
        # most lists apart; to hash them all would take most of the time that a large snapshot takes.
        stack_sample = (len(frames), *map(id, frames[:: len(frames) // 8 + 1]))
        similar_stacks = self._stacks_by_sample.setdefault(stack_sample, [])
        for known_frames, stack_number in similar_stacks:
            if known_frames == frames:  # identical frames cost nothing to compare
                return stack_number
        frame_numbers = tuple([self._number_frame(frame) for frame in frames])
        stack_number = self.stacks.setdefault(frame_numbers, len(self.stacks))
        similar_stacks.append((frames, stack_number))
        return stack_number

    def _number_frame(self, frame: Any) -> int:
        frame_number = self._frame_numbers.get(id(frame))
        if frame_number is None:
            frame = _check_type(dict, frame, "frame")
            line = _read_number(frame, "line", 0)
            frame_key = (
                _shorten_text(frame.get("filename", ""), 1000),
                line,
                _shorten_text(frame.get("name", ""), 1000),
            )
            frame_number = self.frames.setdefault(frame_key, len(self.frames))
            self._frame_numbers[id(frame)] = frame_number
        return frame_number


def _check_type(expected_type: type, value: Any, name: str) -> Any:
    if not isinstance(value, expected_type):
        raise SnapshotError(
            f"{name!r} of this snapshot is a {type(value).__name__}, not a {expected_type.__name__}."
        )
    return value


def _shorten_text(value: Any, max_length: int = 30) -> str:
    """Convert a value to a short text. Strings are cut off after `max_length` characters, and other objects
    except integers are replaced by the names of their types.
    """
    if isinstance(value, str):
        return value[:max_length]
    if isinstance(value, int) and abs(value) < _NUMBER_LIMIT * 4:
        return str(value)
    return f"a {type(value).__name__}"


def _read_number(record: dict[Any, Any], key: str, default: int | None = None) -> int:
    value = record.get(key, default)
    if type(value) is not int or not -_NUMBER_LIMIT < value < _NUMBER_LIMIT or (value < 0 and key != "line"):
        raise SnapshotError(
            f"{key!r} of this snapshot is {_shorten_text(value)!r}, not a size or an address."
        )
    return value


def _replace_negative(value: Any, default: int = 0) -> Any:
    """Return `value`, or `default` if the value is a counter of PyTorch that has wrapped around below 0."""
    return default if type(value) is int and (value < 0 or value >= _NUMBER_LIMIT) else value


def _make_stream_handle(value: Any) -> Any:
    """Return the handle of a stream as a non-negative int that fits into an array."""
    return value % _NUMBER_LIMIT if type(value) is int else value


def _is_possible_entry(entry: dict[Any, Any]) -> bool:
    """Return whether all numbers of an event are possible values; `_check_column` rejects wrong types."""
    entry_numbers = [entry.get(key, 0) for key in ("addr", "size", "time_us", "block_size")]
    return all(
        type(entry_number) is not int or 0 <= entry_number < _NUMBER_LIMIT for entry_number in entry_numbers
    )


def _check_column(column: list[Any]) -> None:
    if not set(map(type, column)) <= {int}:
        raise SnapshotError("An event of this snapshot has a size or an address that is not an integer.")
    if column and not (min(column) >= 0 and max(column) < _NUMBER_LIMIT):
        raise SnapshotError(
            "An event of this snapshot has a size or an address that is outside the memory of any device."
        )


def _format_settings(record: Any) -> str:
    """Return the allocator's settings in PyTorch's notation; empty if the snapshot has none."""
    if not isinstance(record, dict):
        return ""
    text = _shorten_text(record.get("PYTORCH_CUDA_ALLOC_CONF", ""), 500)
    if not text and record.get("expandable_segments") is True:
        text = "expandable_segments:True"
    return text


def make_table(rows: Iterable[Iterable[int]], width: int) -> np.ndarray[Any, Any]:
    """Convert rows of integers to an array with `width` columns."""
    return np.array([list(row) for row in rows], dtype=np.int64).reshape(-1, width)
