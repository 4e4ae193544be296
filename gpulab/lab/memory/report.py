"""``gl.memory_report``: the peak memory of a call, its source line, and the GPUs where the call fits."""

from __future__ import annotations

import gc
import re
import sys
import time
from collections import defaultdict
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np

from gpulab import session
from gpulab.session.pools.hook import ALLOC, FREE_COMPLETED, OOM, AllocationRecorder
from gpulab.session.pools.pool import is_on_current_device
from gpulab.views.tables.memory import MemoryReportTable
from virtualgpu.records.memory import (
    AliveBlocks,
    AllocatorEvents,
    FailedRequest,
    MemoryReading,
    MemoryReport,
    Room,
    Stack,
)
from virtualgpu.records.memory.report import Stay
from virtualgpu.records.timeline import SourceLine

MAX_RECORDED_EVENTS = 1_000_000
# Looking for arrays may take this time, and this part of the call's own; then only among the young ones, and
# where a peak is so much higher than the last one.
MIN_SEARCH_BUDGET_S = 0.05
SEARCH_TIME_SHARE = 0.1
NEAR_PEAK_FACTOR = 1.02
_INDEX_PATTERN = re.compile(r"\[[^]]*\](?=.*: )")  # of a list that has a name
# What the driver takes of a GPU of the table; see `CONTEXT_BYTES` of the virtual machine.
DRIVER_MEMORY_BYTES = 512 << 20


def memory_report(fn: Callable[..., Any], *args: Any, **kwargs: Any) -> MemoryReportTable:
    """Call a function, and report its peak of device memory. The report contains the source line of the peak
    and the arrays at the peak.

    Parameters
    ----------
    fn
        The function to call. Its result is dropped when the report is made.
    *args, **kwargs
        The arguments of the function.

    Returns
    -------
    MemoryReportTable
        Tables. They list the memory in use at the peak by line, with the arrays if they are known. They also
        show how much larger the call could be on this device and on the GPUs of the table, if all its
        allocations grow by the same factor. If the call runs out of memory, the report describes that moment,
        and ``.failed`` is the failed request. ``.record`` is a
        `virtualgpu.records.memory.report.MemoryReport`.

    Raises
    ------
    Exception
        Any exception of `fn` except `OutOfMemoryError`. Its attribute ``memory_report`` is the report so far.

    Examples
    --------
    >>> x = cp.ones((4096, 4096), cp.float32)
    >>> gl.memory_report(lambda a: (a * 2 + 1).sum(), x)
    """
    if not callable(fn):
        raise TypeError(f"gl.memory_report needs a function and its arguments, not {type(fn).__name__}.")
    recorded_call = _RecordedCall(getattr(fn, "__name__", type(fn).__name__))
    memory_error: type[Exception] = session.cp().cuda.memory.OutOfMemoryError
    try:
        with recorded_call.allocation_recorder:
            _result = fn(*args, **kwargs)  # there until its end has been read
            recorded_call.record_end()
    except memory_error as error:
        return recorded_call.make_report(str(error))
    except Exception as error:
        recorded_call.record_end()
        error.memory_report = recorded_call.make_report()  # type: ignore[attr-defined]
        error.add_note(
            "gl.memory_report: this exception has an attribute memory_report, which contains the "
            "report up to the error."
        )
        raise
    return recorded_call.make_report()


class _ReservedPeakRecorder(AllocationRecorder):
    """A recorder of allocations that also records the peak of the pool's reserved memory."""

    def __init__(self, device: int, read_reserved_bytes: Callable[[], int | None]) -> None:
        super().__init__(MAX_RECORDED_EVENTS, device)
        self._read_reserved_bytes = read_reserved_bytes
        self.most_reserved_bytes = read_reserved_bytes() or 0

    def on_segment_allocation(self, device: int, size: int, address: int) -> None:
        super().on_segment_allocation(device, size, address)
        self.most_reserved_bytes = max(self.most_reserved_bytes, self._read_reserved_bytes() or 0)


class _RecordedCall:
    """A call whose allocations are recorded, from its start to its report."""

    def __init__(self, name: str) -> None:
        self.name = name
        backend = session.backend()
        self._backend, self._read_memory = backend, backend.memory_reader()
        self._device = int(session.cp().cuda.Device().id)
        self._memory_before = self._read_memory()
        self._memory_after: MemoryReading | None = None
        self.allocation_recorder = _ReservedPeakRecorder(
            self._device, lambda: self._read_memory().reserved_bytes
        )
        self._array_sightings = _ArraySightings(self.allocation_recorder)
        self.allocation_recorder.before_event = self._array_sightings.search_near_peak

    def record_end(self) -> None:
        """Record the memory use at the end of the call, before the result of the call is freed."""
        if self._memory_after is None:
            self.allocation_recorder.stop()
            self._memory_after = self._read_memory()
            self._array_sightings.record_sightings(searches_all_objects=True)

    def make_report(self, failure: str = "") -> MemoryReportTable:
        """Stop the recording, and return the memory report."""
        self.record_end()
        initial_bytes = self._memory_before.used_bytes or 0
        pool_events = self.allocation_recorder.events(device=self._device)
        lost_events = len(self.allocation_recorder) - len(self.allocation_recorder.events())
        size_changes = pool_events.size_bytes * (
            (pool_events.actions == ALLOC).astype(int) - (pool_events.actions == FREE_COMPLETED)
        )
        used_bytes = np.concatenate(([initial_bytes], initial_bytes + np.cumsum(size_changes)))
        failed_indices = np.flatnonzero(pool_events.actions == OOM)
        events_before = int(used_bytes.argmax())  # the number of events that had happened
        if failure:
            events_before = int(failed_indices[-1]) + 1 if len(failed_indices) else len(used_bytes) - 1
        source_line, stack = self._find_source_and_stack(
            int(pool_events.stacks[events_before - 1]) if events_before else -1
        )
        failed_request = FailedRequest(0, None, failure) if failure else None
        if failure and len(failed_indices):
            failed_request = FailedRequest(
                int(pool_events.size_bytes[events_before - 1]), source_line, failure
            )
        peak_bytes = int(used_bytes[events_before]) + (failed_request.size_bytes if failed_request else 0)
        record = MemoryReport(
            provenance=self._backend.provenance,
            device_id=self._device,
            name=self.name,
            before_bytes=initial_bytes,
            peak_bytes=peak_bytes,
            peak_reserved_bytes=self.allocation_recorder.most_reserved_bytes,
            after_bytes=(self._memory_after.used_bytes if self._memory_after else None) or 0,
            source=source_line,
            stack=stack,
            alive=self._group_live_blocks(
                pool_events, events_before, "at the failure" if failed_request else None
            ),
            allocations=int(np.count_nonzero(pool_events.actions == ALLOC)),
            frees=int(np.count_nonzero(pool_events.actions == FREE_COMPLETED)),
            rooms=self._compute_rooms(initial_bytes, peak_bytes - initial_bytes),
            failed=failed_request,
            note=" ".join(
                filter(
                    None,
                    (
                        self.allocation_recorder.note,
                        f"The first {lost_events:,} events of the call are not recorded."
                        if lost_events
                        else "",
                    ),
                )
            ),
        )
        return MemoryReportTable.of(record)

    def _find_source_and_stack(self, stack: int) -> tuple[SourceLine | None, Stack]:
        """Return the source line and the call stack of an allocation. The stack is given by its number."""
        return (
            (self.allocation_recorder.source_lines[stack], self.allocation_recorder.stacks[stack])
            if stack >= 0
            else (None, ())
        )

    def _group_live_blocks(
        self, events: AllocatorEvents, event_count: int, stay: Stay | None
    ) -> tuple[AliveBlocks, ...]:
        """Return the blocks in use after `event_count` events, grouped by line, array and later use."""
        times_ns: list[int] = events.time_ns.tolist()
        live_blocks: dict[int, tuple[int, int, int, int]] = {}
        freed_addresses: set[int] = set()  # blocks from before the call that the call has freed
        event_rows = list(
            zip(
                events.actions.tolist(),
                events.addresses.tolist(),
                events.size_bytes.tolist(),
                events.requested_bytes.tolist(),
                events.stacks.tolist(),
                strict=True,
            )
        )
        for event_index, (action, address, size_bytes, requested_bytes, stack_index) in enumerate(
            event_rows[:event_count]
        ):
            if action == ALLOC:
                live_blocks[address] = event_index, size_bytes, requested_bytes, stack_index
            elif action == FREE_COMPLETED and live_blocks.pop(address, None) is None:
                freed_addresses.add(address)
        next_events: dict[int, int] = {}
        for event_index, (action, address, *_) in enumerate(event_rows[event_count:], event_count):
            if action == FREE_COMPLETED:
                next_events.setdefault(address, event_index)
        # Arrays, bytes and requested bytes of each block; a list is one group.
        blocks_by_group: defaultdict[tuple[int, str, Stay], list[tuple[str, int, int]]] = defaultdict(list)
        for address, (event_index, size_bytes, requested_bytes, stack_index) in live_blocks.items():
            block_stay: Stay = stay or ("temporary" if address in next_events else "kept")
            freed_ns = times_ns[next_events[address]] if address in next_events else np.inf
            arrays = self._array_sightings.describe_array_at(address, times_ns[event_index], freed_ns)
            blocks_by_group[stack_index, _INDEX_PATTERN.sub("[…]", arrays), block_stay].append(
                (arrays, size_bytes, requested_bytes)
            )
        groups_of_blocks = []
        for (stack_index, array_names, block_stay), blocks in blocks_by_group.items():
            source_line, call_stack = self._find_source_and_stack(stack_index)
            array_texts, block_sizes, requested_sizes = zip(*blocks, strict=True)
            groups_of_blocks.append(
                AliveBlocks(
                    source=source_line,
                    stack=call_stack,
                    arrays=array_names if array_texts[1:] else array_texts[0],
                    blocks=len(blocks),
                    size_bytes=sum(block_sizes),
                    requested_bytes=sum(requested_sizes),
                    stay=block_stay,
                )
            )
        unnamed_bytes = (self._memory_before.used_bytes or 0) - sum(
            event_row[2]
            for event_row in event_rows[:event_count]
            if event_row[0] == FREE_COMPLETED and event_row[1] in freed_addresses
        )
        initial_blocks = partial(AliveBlocks, source=None, stack=(), stay="before the call")
        for arrays, size_bytes, requested_bytes in self._array_sightings.find_arrays_except(
            {event_row[1] for event_row in event_rows if event_row[0] == ALLOC} | freed_addresses
        ):
            if size_bytes <= unnamed_bytes:
                groups_of_blocks.append(
                    initial_blocks(
                        arrays=arrays, blocks=1, size_bytes=size_bytes, requested_bytes=requested_bytes
                    )
                )
                unnamed_bytes -= size_bytes
        if unnamed_bytes > 0:
            groups_of_blocks.append(
                initial_blocks(arrays="", blocks=0, size_bytes=unnamed_bytes, requested_bytes=0)
            )
        return tuple(sorted(groups_of_blocks, key=lambda group: -group.size_bytes))

    def _compute_rooms(self, initial_bytes: int, needed_bytes: int) -> tuple[Room, ...]:
        device_info = self._backend.device_info()
        initial_reading = self._memory_before
        free_bytes = (
            device_info.memory_bytes
            - (initial_reading.device_bytes or 0)
            + (initial_reading.reserved_bytes or 0)
            - initial_bytes
        )
        room_bytes = (
            min(free_bytes, initial_reading.limit_bytes - initial_bytes)
            if initial_reading.limit_bytes
            else free_bytes
        )
        device_rooms = [(self._backend.provenance, device_info.memory_bytes, room_bytes)]
        for other_device in session.list_table_devices():
            device_rooms.append(
                (
                    other_device.provenance,
                    other_device.memory_bytes,
                    other_device.memory_bytes - DRIVER_MEMORY_BYTES - initial_bytes,
                )
            )
        return tuple(
            Room(*device_room, device_room[-1] / needed_bytes if needed_bytes else None)
            for device_room in device_rooms
        )


class _ArraySightings:
    """A record of the arrays that use each memory block. Arrays are found by a search of all objects near
    each new peak.

    The array of a block is not known when the block is allocated. Living objects are therefore searched soon
    afterwards, for a small part of the call's time.
    """

    def __init__(self, recorder: AllocationRecorder) -> None:
        self._recorder = recorder
        self._ndarray = session.cp().ndarray
        self._names = session.make_program_names()
        self._start_s = time.perf_counter()
        self._spent_s = 0.0
        self._last_held_bytes = 0
        # By address: when, what, bytes of the block and of the array.
        self._sightings_by_address: dict[int, list[tuple[int, str, int, int]]] = {}

    def search_near_peak(self) -> None:
        """If the memory use is near its peak, record new arrays before the next allocation or free."""
        recorder = self._recorder
        if recorder.held_bytes * NEAR_PEAK_FACTOR < recorder.most_held_bytes or not recorder.held_bytes:
            return
        search_budget_s = MIN_SEARCH_BUDGET_S + SEARCH_TIME_SHARE * (time.perf_counter() - self._start_s)
        is_new_peak = recorder.held_bytes > NEAR_PEAK_FACTOR * self._last_held_bytes
        if is_new_peak or self._spent_s <= search_budget_s:
            self._last_held_bytes = max(recorder.held_bytes, self._last_held_bytes)
            self.record_sightings(self._spent_s <= search_budget_s)

    def record_sightings(self, searches_all_objects: bool = False) -> None:
        """Record the addresses and names of recently created arrays, or of all arrays if
        `searches_all_objects` is true.
        """
        start_s = time.perf_counter()
        search_ns = time.perf_counter_ns()
        self._names.collect_again(sys._getframe())
        for array in gc.get_objects() if searches_all_objects else gc.get_objects(0) + gc.get_objects(1):
            if not issubclass(type(array), self._ndarray):
                continue
            memory_block = getattr(getattr(array, "data", None), "mem", None)
            name = self._names.find_array_name(id(array))
            if (
                memory_block is None
                or (array.base is not None and not name)
                or not is_on_current_device(array)
            ):
                continue  # one that is being made, a view, or one of another device
            array_text = f"{array.dtype} {tuple(array.shape)}"
            sighting = (
                search_ns,
                f"{name}: {array_text}" if name else array_text,
                int(memory_block.size),
                int(array.nbytes),
            )
            self._sightings_by_address.setdefault(int(memory_block.ptr), []).append(sighting)
        self._spent_s += time.perf_counter() - start_s

    def describe_array_at(self, address: int, allocated_ns: int, freed_ns: float) -> str:
        """Return a description of the array that used a memory block in a time interval, or an empty
        string.
        """
        sightings = [
            sighting
            for sighting in self._sightings_by_address.get(address, ())
            if allocated_ns <= sighting[0] <= freed_ns
        ]
        return _choose_sighting(sightings)[1] if sightings else ""

    def find_arrays_except(self, excluded_addresses: set[int]) -> list[tuple[str, int, int]]:
        """Return the arrays whose addresses are not in `excluded_addresses`, with the size of their blocks
        and of their data.
        """
        other_arrays = [
            _choose_sighting(array_sightings)[1:]
            for address, array_sightings in self._sightings_by_address.items()
            if address and address not in excluded_addresses
        ]
        return sorted(other_arrays, key=lambda row: (-row[1], ": " not in row[0]))


def _choose_sighting(sightings: Sequence[tuple[int, str, int, int]]) -> tuple[int, str, int, int]:
    """Return the largest array that had a name when it was found, or the first array if none had a name."""
    return max(sightings, key=lambda sighting: sighting[3] if ": " in sighting[1] else -1)
