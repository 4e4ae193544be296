"""Contents of memory at every step of a trace, as far as the accesses of the traced block show them."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from math import prod
from typing import Any

import numpy as np
import numpy.typing as npt

from virtualgpu.records import WARP_SIZE, WarpTrace
from virtualgpu.records.warp.columns import expand_lane_masks

Ints = npt.NDArray[np.int64]
Bits = npt.NDArray[np.uint64]

# A tag in the high bits of an address identifies its space; local addresses also contain their lane.
TAG_SHIFT = 56
LANE_SHIFT = 48
SHARED, LOCAL, PARAMETER = (tag << TAG_SHIFT for tag in (1, 2, 3))
_SPACE_TAGS = {"shared": SHARED, "local": LOCAL}
_LANES = np.arange(WARP_SIZE, dtype=np.int64)
_OPCODE_PATTERN = re.compile(r"(?:@!?%\w+\s+)?(\w+)([.\w:]*)")


@dataclass(frozen=True, slots=True)
class MemoryRegion:
    """A range of device memory, with its bytes before and after a launch."""

    start: int
    bytes_before: npt.NDArray[np.uint8]
    bytes_after: npt.NDArray[np.uint8]


def addresses_of(trace: WarpTrace, steps: npt.NDArray[np.integer[Any]]) -> Ints:
    """Return the addresses of the memory accesses at the given steps. Each address contains a tag for its
    state space.

    The address of a lane that takes no part is -1.
    """
    assert trace.address is not None
    assert trace.access_space is not None
    tags = np.array([_SPACE_TAGS.get(name, 0) for name in trace.space], np.int64)
    tag = tags[trace.access_space[steps]][:, None]
    address = trace.address[steps]
    return np.where(address >= 0, (address | tag) + _make_lane_bits(tag), -1)


def _make_lane_bits(address: Ints) -> Ints:
    return np.where(address >> TAG_SHIFT == LOCAL >> TAG_SHIFT, _LANES << LANE_SHIFT, 0)


def addresses_of_pointers(pointer: npt.NDArray[np.uint64]) -> Ints:
    """Convert the generic pointers of 32 lanes to addresses. An address in local memory also contains the
    lane number.
    """
    address = pointer.astype(np.int64)
    return np.asarray(address + _make_lane_bits(address))


def pointer_of(address: Ints) -> npt.NDArray[np.uint64]:
    """Convert addresses to generic pointers. This function is the inverse of `addresses_of_pointers`."""
    is_local = address >> TAG_SHIFT == LOCAL >> TAG_SHIFT
    return np.where(is_local, address & ~np.int64(255 << LANE_SHIFT), address).astype(np.uint64)


# A byte is stored (its old value is unknown), loaded, or changed by an atomic.
_STORE_EVENT, _LOAD_EVENT, _ATOMIC_EVENT = range(3)


@dataclass(frozen=True, slots=True)
class _ByteEvents:
    """The bytes that a block wrote to memory or loaded from it, in the order of time."""

    address: Ints
    byte: npt.NDArray[np.uint8]
    time: Ints
    kind: npt.NDArray[np.int8]


def _make_byte_events(
    address: Ints, bits: Bits, width: Ints, time: Ints, event_kind: Ints
) -> Iterable[_ByteEvents]:
    for byte_index in range(int(width.max(initial=0))):
        has_byte = width > byte_index
        byte_values = (bits[has_byte] >> np.uint64(8 * byte_index)).astype(np.uint8)
        yield _ByteEvents(
            address[has_byte] + byte_index, byte_values, time[has_byte], event_kind[has_byte].astype(np.int8)
        )


def _find_global_events(trace: WarpTrace) -> Iterable[_ByteEvents]:
    """Yield the bytes that a warp stored to or loaded from memory other than shared memory."""
    detail = trace.detail
    if detail is None or trace.address is None or trace.access_space is None or trace.value is None:
        return
    opcode_matches = [_OPCODE_PATTERN.match(text.strip()) for text in trace.instruction]
    opcodes = [(match[1], match[2]) if match else ("", "") for match in opcode_matches]
    is_not_shared = np.array([name != "shared" for name in (*trace.space, "")], np.bool_)[trace.access_space]
    is_store = np.array([root in ("st", "atom", "red") for root, _ in opcodes], np.bool_)[trace.text_index]
    event_kind = np.array([_STORE_EVENT if root == "st" else _ATOMIC_EVENT for root, _ in opcodes], np.int64)[
        trace.text_index
    ]
    is_scalar_load = [root == "ld" and not re.search(r"\.v\d", modifiers) for root, modifiers in opcodes]
    is_stored = (is_store & is_not_shared & (trace.access_space >= 0))[detail.stored_step]
    store_steps = detail.stored_step[is_stored]
    width_bytes = detail.stored_width_bytes[is_stored].astype(np.int64)
    is_first_part = detail.stored_part[is_stored] == 0
    store_ends = np.cumsum(width_bytes)
    access_start = np.repeat(
        (store_ends - width_bytes)[is_first_part],
        np.diff(np.append(np.flatnonzero(is_first_part), width_bytes.size)),
    )
    addresses = addresses_of(trace, store_steps)
    row_indices, lane_indices = np.nonzero(
        expand_lane_masks(trace.executed_mask[store_steps]) & (addresses >= 0)
    )
    yield from _make_byte_events(
        addresses[row_indices, lane_indices] + (store_ends - width_bytes - access_start)[row_indices],
        detail.stored_value[is_stored][row_indices, lane_indices],
        width_bytes[row_indices],
        detail.sequence[store_steps][row_indices],
        event_kind[store_steps][row_indices],
    )
    load_steps = np.flatnonzero(
        np.array(is_scalar_load, np.bool_)[trace.text_index] & is_not_shared & (trace.access_space >= 0)
    )
    addresses = addresses_of(trace, load_steps)
    row_indices, lane_indices = np.nonzero(
        expand_lane_masks(trace.executed_mask[load_steps]) & (addresses >= 0)
    )
    access_bytes = (
        np.zeros(load_steps.size) if trace.access_size_bytes is None else trace.access_size_bytes[load_steps]
    )
    yield from _make_byte_events(
        addresses[row_indices, lane_indices],
        trace.value[load_steps][row_indices, lane_indices],
        access_bytes.astype(np.int64)[row_indices],
        detail.sequence[load_steps][row_indices],
        np.full(row_indices.size, _LOAD_EVENT),
    )


def _find_shared_events(trace: WarpTrace) -> Iterable[_ByteEvents]:
    """Yield the bytes that all warps of the block stored to shared memory."""
    if trace.detail is None:
        return
    shared_writes = trace.detail.shared
    write_rows, write_lanes = np.nonzero(expand_lane_masks(shared_writes.mask))
    yield from _make_byte_events(
        shared_writes.offset[write_rows, write_lanes].astype(np.int64) | SHARED,
        shared_writes.value[write_rows, write_lanes],
        shared_writes.width_bytes[write_rows].astype(np.int64),
        shared_writes.sequence[write_rows],
        np.full(write_rows.size, _STORE_EVENT),
    )


class WatchedMemory:
    """The contents of memory at every step, as far as the trace reveals them.

    The value of a byte is the one that the block last wrote or read there. If the block's next access, or the
    end of the launch, shows another value, another block has written in between at an unknown time; then the
    value is known only at the accesses themselves. If the block's next access is a store, no other block is
    assumed to have written before it. Other blocks may change operands of atomics, unless the whole grid is
    traced.

    Parameters
    ----------
    traces
        The traced warps of one block.
    regions
        Device memory before and after the launch, sorted, and the parameters.
    """

    def __init__(self, traces: tuple[WarpTrace, ...], regions: list[MemoryRegion]) -> None:
        event_parts = [*_find_shared_events(traces[0])] if traces else []
        event_parts += [events for trace in traces for events in _find_global_events(trace)]
        self._is_truncated = any(trace.truncated for trace in traces)
        address = np.concatenate([np.zeros(0, np.int64), *(event_part.address for event_part in event_parts)])
        byte = np.concatenate([np.zeros(0, np.uint8), *(event_part.byte for event_part in event_parts)])
        time = np.concatenate([np.zeros(0, np.int64), *(event_part.time for event_part in event_parts)])
        event_kind = np.concatenate([np.zeros(0, np.int8), *(event_part.kind for event_part in event_parts)])
        event_order = np.lexsort((np.arange(time.size), time, address))
        self._event_addresses = address[event_order]
        self._event_bytes = byte[event_order]
        self._event_times = time[event_order]
        event_kind = event_kind[event_order]
        self._addresses, first_event = np.unique(self._event_addresses, return_index=True)
        self._event_keys = (
            np.searchsorted(self._addresses, self._event_addresses) << np.int64(41)
        ) + self._event_times
        self._region_starts = np.array([region.start for region in regions], np.int64)
        self._region_ends = np.array(
            [region.start + region.bytes_before.size for region in regions], np.int64
        )
        self._regions = regions
        self.distinct_event_times = np.unique(self._event_times)
        bytes_before, bytes_after, is_recorded = self._recorded_bytes(self._addresses)
        # Whether each event's byte is valid until the next event: a store of this block, or the same value.
        last_event = np.append(first_event[1:], self._event_times.size) - 1
        matches_next = np.roll(self._event_bytes, -1) == self._event_bytes
        next_kind = np.roll(event_kind, -1)
        is_whole_grid = (
            bool(traces) and len(traces) * WARP_SIZE >= prod(traces[0].block) and prod(traces[0].grid) == 1
        )
        self._is_valid_after_event = (
            (next_kind == _STORE_EVENT)
            | ((next_kind == _LOAD_EVENT) & matches_next)
            | ((next_kind == _ATOMIC_EVENT) & is_whole_grid)
        )
        last_event = last_event[: first_event.size]  # empty if there are no events
        self._is_valid_after_event[last_event] = (
            ~is_recorded | (bytes_after == self._event_bytes[last_event]) | self._is_truncated
        )
        matches_initial_byte = bytes_before == self._event_bytes[first_event]
        self._is_valid_before_first_event = is_recorded & np.where(
            event_kind[first_event] == _LOAD_EVENT,
            matches_initial_byte,
            (event_kind[first_event] == _STORE_EVENT) | is_whole_grid,
        )

    def _recorded_bytes(
        self, address: Ints
    ) -> tuple[npt.NDArray[np.uint8], npt.NDArray[np.uint8], npt.NDArray[np.bool_]]:
        """Return the bytes at addresses before and after the launch, and whether they were recorded."""
        bytes_before, bytes_after = np.zeros((2, address.size), np.uint8)
        region_index = np.searchsorted(self._region_starts, address, side="right") - 1
        is_recorded = (region_index >= 0) & (
            address < self._region_ends[region_index] if self._region_ends.size else False
        )
        for region_number in np.flatnonzero(np.bincount(region_index[is_recorded])).tolist():
            positions = np.flatnonzero(is_recorded & (region_index == region_number))
            region = self._regions[region_number]
            bytes_before[positions] = region.bytes_before[address[positions] - region.start]
            bytes_after[positions] = region.bytes_after[address[positions] - region.start]
        return bytes_before, bytes_after, is_recorded

    def is_allocated(self, address: Ints) -> npt.NDArray[np.bool_]:
        """Return whether each address is in allocated memory."""
        region_index = np.searchsorted(self._region_starts, address, side="right") - 1
        return np.asarray(
            (region_index >= 0)
            & (address < self._region_ends[region_index] if self._region_ends.size else False)
        )

    def _bytes_at(self, address: Ints, time: Ints) -> tuple[npt.NDArray[np.uint8], npt.NDArray[np.bool_]]:
        address_index = np.searchsorted(self._addresses, address)
        has_events = address_index < self._addresses.size
        has_events[has_events] = self._addresses[address_index[has_events]] == address[has_events]
        event_index = (
            np.searchsorted(self._event_keys, (address_index << np.int64(41)) + time, side="right") - 1
        )
        has_earlier_event = has_events & (event_index >= 0)
        has_earlier_event[has_earlier_event] = (
            self._event_addresses[event_index[has_earlier_event]] == address[has_earlier_event]
        )
        byte_values, bytes_after, is_recorded = self._recorded_bytes(address)
        is_known = is_recorded & ((byte_values == bytes_after) | self._is_truncated)
        is_before_first_event = has_events & ~has_earlier_event
        is_known[is_before_first_event] = self._is_valid_before_first_event[
            address_index[is_before_first_event]
        ]
        byte_values[has_earlier_event] = self._event_bytes[event_index[has_earlier_event]]
        is_known[has_earlier_event] = self._is_valid_after_event[event_index[has_earlier_event]] | (
            self._event_times[event_index[has_earlier_event]] == time[has_earlier_event]
        )
        return byte_values, is_known

    def read(
        self, address: Ints, size_bytes: int, sequence: Ints, is_requested: npt.NDArray[np.bool_]
    ) -> tuple[Bits, npt.NDArray[np.bool_]]:
        """Return the bits that are stored at the addresses ``[step, 32]`` after the given steps.

        Returns
        -------
        bits, known_lanes
            For each lane; only `is_requested` values can be known.
        """
        step_count = sequence.size
        is_requested = np.broadcast_to(is_requested, (step_count, WARP_SIZE))
        address = np.broadcast_to(address, (step_count, WARP_SIZE))
        # Most steps change neither an address nor memory: each such run of steps is evaluated once, at its
        # first step. An access is a separate run, and a new run starts after it.
        event_count = np.searchsorted(self.distinct_event_times, sequence, side="right")
        is_at_event = np.isin(sequence, self.distinct_event_times) & (not self._is_valid_after_event.all())
        is_changed = np.ones(step_count, np.bool_)
        is_changed[1:] = (
            (event_count[1:] != event_count[:-1])
            | is_at_event[1:]
            | is_at_event[:-1]
            | (address[1:] != address[:-1]).any(axis=1)
            | (is_requested[1:] != is_requested[:-1]).any(axis=1)
        )
        run_starts = np.flatnonzero(is_changed)
        row_of_step = np.cumsum(is_changed) - 1
        request_rows, request_lanes = np.nonzero(is_requested[run_starts])
        bits = np.zeros((run_starts.size, WARP_SIZE), np.uint64)
        known_lanes = np.zeros((run_starts.size, WARP_SIZE), np.bool_)
        known_lanes[request_rows, request_lanes] = True
        for byte_index in range(size_bytes):
            byte_values, is_known = self._bytes_at(
                address[run_starts[request_rows], request_lanes] + byte_index,
                sequence[run_starts[request_rows]],
            )
            bits[request_rows, request_lanes] |= byte_values.astype(np.uint64) << np.uint64(8 * byte_index)
            known_lanes[request_rows, request_lanes] &= is_known
        return bits[row_of_step], known_lanes[row_of_step]
