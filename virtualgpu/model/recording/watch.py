"""Reports of a program's use of streams and memory to observers, one action at a time.

`HostClock.watch` is the open watch. Functions that submit work, order it or allocate memory report to it; it
adds the program's line and passes each act on (`virtualgpu.records.acts`).
"""

from __future__ import annotations

import ctypes
import itertools
import sys
import threading
import weakref
import zlib
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple, Protocol

import numpy as np
import numpy.typing as npt

from virtualgpu.model.recording.program_lines import ProgramLines
from virtualgpu.model.recording.program_names import ProgramNames
from virtualgpu.records import ActivityKind, SourceLine
from virtualgpu.records.acts import (
    HOST,
    Act,
    Allocation,
    EventRecord,
    EventWait,
    GraphLaunch,
    GraphMade,
    HostUse,
    HostWait,
    NewStream,
    Region,
    Release,
    Work,
)

Regions = tuple[Region, ...]
# Runs a launch with its options; returns its result, and the regions that it reads, writes, updates
# atomically.
RunWatched = Callable[[Any, Any], tuple[Any, tuple[Regions, ...]]]
# Limits for host buffers whose copies may still run: number of buffers, bytes that are compared at every act,
# and bytes of pinned memory that are copied before a host function.
_MAX_BUFFERS = 256
_MAX_CHEAP_BYTES = 1 << 20
_MAX_COPIED_BYTES = 64 << 20


class WatchedOperation(Protocol):
    """The interface of an operation that `StreamWatch` runs. The run of a kernel also returns the memory
    regions that the kernel accessed.
    """

    @property
    def kind(self) -> ActivityKind: ...
    @property
    def name(self) -> str: ...
    @property
    def run(self) -> Callable[[], float]: ...
    @property
    def reads(self) -> Sequence[npt.NDArray[Any]]: ...
    @property
    def writes(self) -> Sequence[npt.NDArray[Any]]: ...
    @property
    def run_watched(self) -> Callable[[RunWatched], tuple[float, tuple[Regions, ...]]] | None: ...


class DeviceAddresses(Protocol):
    """The interface of a device's memory that is used to name addresses."""

    @property
    def base_address(self) -> int: ...
    @property
    def arena_bytes(self) -> int: ...
    def find_nearest_allocation(self, address: int) -> Any: ...


class StreamRef(NamedTuple):
    """A reference to a stream, with the number of its device, its handle, and whether it is a blocking
    stream.
    """

    device_id: int
    stream_id: int
    is_blocking: bool = True


_NO_STREAM = StreamRef(0, 0)


@dataclass(slots=True)
class _BufferCopy:
    """A range of pinned host memory from which a copy to a device reads, with a checksum."""

    region: Region
    contents: npt.NDArray[np.uint8]
    digest: int


class StreamWatch:
    """An observer of a virtual machine. It reports each use of streams and memory to other observers.

    Attributes
    ----------
    fills_host : bool
        Whether copies have written page-locked memory, which the host can read at any time.

    Parameters
    ----------
    memories
        The devices' memories.
    is_pinned
        Returns whether a host address is in page-locked memory.
    run_kernel
        Runs a launch, and returns the memory that it accesses.
    pinned_ranges
        Returns all page-locked memory as start and bytes; changes by a host function are found by comparison.
    """

    def __init__(
        self,
        memories: Sequence[DeviceAddresses],
        is_pinned: Callable[[int], bool],
        run_kernel: RunWatched,
        pinned_ranges: Callable[[], Iterable[tuple[int, int]]] = tuple,
    ) -> None:
        self._memories = memories
        self._is_pinned = is_pinned
        self._run_kernel = run_kernel
        self._pinned_ranges = pinned_ranges
        self._observers: list[Callable[[Act], None]] = []
        self._program_lines = ProgramLines()
        self._program_names = ProgramNames(self._program_lines)
        self._names_by_stream: dict[StreamRef, str | None] = {}
        self._reported_changes = 0
        self._event_numbers: weakref.WeakKeyDictionary[Any, int] = weakref.WeakKeyDictionary()
        self._new_event_numbers = itertools.count(1)
        self._buffers: dict[tuple[int, int], _BufferCopy] = {}
        self._private_blocks: set[tuple[int, int]] = set()
        self._lock = threading.RLock()
        self._pending_acts: deque[Act] = deque()
        self._is_reporting = False
        self.writes_host_memory = False

    def add_observer(self, observer: Callable[[Act], None]) -> None:
        """Add an observer, and report all known streams to it."""
        self._observers.append(observer)
        self._names_by_stream.clear()

    def remove_observer(self, observer: Callable[[Act], None]) -> bool:
        """Remove an observer, and return whether it was the last one."""
        self._observers.remove(observer)
        return not self._observers

    # Operations

    def run_operation(self, stream: StreamRef, number: int, operation: WatchedOperation) -> float:
        """Run an operation of a stream, report it to the observers, and return its duration in ns."""
        duration_ns, work_record = self.run_node(stream, number, operation, None)
        self._report_stream(stream)
        self._report_act(work_record)
        return duration_ns

    def note_graph_creation(self, graph_id: int) -> None:
        """Report that the capture of a graph has ended."""
        self._report_act(GraphMade(graph_id))

    def note_graph_launch(
        self, stream: StreamRef, nodes: Sequence[Work], edges: Iterable[tuple[int, int]], graph_id: int
    ) -> None:
        """Report the launch of a graph."""
        self._report_stream(stream)
        self._report_act(
            GraphLaunch(*stream[:2], tuple(nodes), tuple(edges), self.find_current_line(), graph_id)
        )

    def run_node(
        self, stream: StreamRef, number: int, operation: WatchedOperation, source: SourceLine | None
    ) -> tuple[float, Work]:
        """Run a node of a graph. The result is the duration in ns and a record to pass to
        `note_graph_launch`.
        """
        source = source or self.find_current_line()
        changes_host = operation.kind == "HOST_LAUNCH"
        previous_copies = self._copy_pinned_memory() if changes_host else {}
        read_regions = self._make_array_regions(operation.reads)
        written_regions = self._make_array_regions(operation.writes)
        atomic_regions: Regions = ()
        self._report_buffer_changes(source, None if changes_host else (*read_regions, *written_regions))
        if operation.run_watched is None:
            duration_ns = operation.run()
        else:
            duration_ns, accessed_regions = operation.run_watched(self._run_kernel)
            read_regions, written_regions, atomic_regions = [
                tuple(self._add_name(region) for region in regions) for regions in accessed_regions
            ]
        if changes_host:
            self._find_changed_buffers()
            written_regions = self._find_changed_regions(previous_copies)
        elif any(region.memory == HOST for region in written_regions):
            self.writes_host_memory = True
            self._find_changed_buffers()
        is_peer_copy = operation.kind == "MEMCPY2"
        for region in read_regions:
            if region.memory == HOST and not changes_host:
                self._keep_buffer(region)
        work_record = Work(
            number=number,
            name=operation.name,
            device_id=stream[0],
            stream_id=stream[1],
            reads=read_regions,
            writes=written_regions,
            source=source,
            is_peer_copy=is_peer_copy,
            atomics=atomic_regions,
        )
        return duration_ns, work_record

    # Order

    def note_event_record(self, event: Any, stream: StreamRef) -> None:
        """Report that an event was recorded in a stream."""
        self._report_stream(stream)
        self._report_act(EventRecord(self._number_event(event), *stream[:2], self.find_current_line()))

    def note_event_wait(self, event: Any, stream: StreamRef, is_recorded: bool) -> None:
        """Report that a stream waits for an event. An event that was recorded before the start of the
        observation counts as completed.
        """
        if is_recorded and event not in self._event_numbers:
            return
        self._report_stream(stream)
        self._report_act(EventWait(self._number_event(event), *stream[:2], self.find_current_line()))

    def note_host_wait(
        self,
        scope: Literal["device", "stream", "event", "work"],
        stream: StreamRef = _NO_STREAM,
        event: Any = None,
        number: int = 0,
    ) -> None:
        """Report that the host has waited for operations, or has found by a query that they have ended."""
        source_line = self.find_current_line()
        self._report_buffer_changes(source_line)
        event_id = 0 if event is None else self._number_event(event)
        self._report_act(HostWait(scope, *stream[:2], event_id, number, source_line))

    # Memory

    def note_allocation(
        self,
        device_id: int,
        address: int,
        size_bytes: int,
        stream_id: int | None = None,
        is_private: bool = False,
    ) -> None:
        """Report the allocation of a block of memory.

        If the block is allocated in the order of a stream, `stream_id` is that stream. A block with
        `is_private` comes from a pool that the program uses only for some of its arrays.
        """
        if is_private:
            self._private_blocks.add((device_id, address))
        else:
            self._private_blocks.discard((device_id, address))
        self._program_names.forget_arrays(address, address + size_bytes)
        self._report_act(
            Allocation(Region(device_id, address, size_bytes), device_id, stream_id, self.find_current_line())
        )

    def note_release(self, device_id: int, address: int, size_bytes: int, stream_id: int | None) -> None:
        """Report that a block of memory was freed and can be reused by one stream, or by all streams if
        `stream_id` is None.
        """
        source_line = self.find_current_line()
        if stream_id is None:
            self._report_act(HostWait("device", device_id, source=source_line))
        array = self._add_name(Region(device_id, address, size_bytes))
        is_private = (device_id, address) in self._private_blocks
        self._report_act(Release(array, device_id, stream_id, source_line, is_private))

    def note_host_release(self, address: int, size_bytes: int) -> None:
        """Report that pinned host memory was freed."""
        source_line = self.find_current_line()
        self._report_buffer_changes(source_line)
        with self._lock:
            for key in [key for key in self._buffers if address <= key[0] < address + size_bytes]:
                del self._buffers[key]
        self._report_act(Release(self._add_name(Region(HOST, address, size_bytes)), source=source_line))

    def forget_buffers(self, start: int = 0, end: int = 1 << 64) -> None:
        """Forget the host buffers in a memory range, because unobserved code may change them."""
        with self._lock:
            for key in [key for key in self._buffers if key[0] < end and start < key[1]]:
                del self._buffers[key]

    def report_remaining_changes(self) -> None:
        """Report the changes of host buffers since the last report."""
        self._report_buffer_changes(self.find_current_line())

    # The host's buffers, whose changes are found by comparing their contents

    def _copy_pinned_memory(self) -> dict[tuple[int, int], npt.NDArray[np.uint8]]:
        """Return copies of all pinned host memory, or only of the watched buffers if it is too large."""
        pinned_ranges = list(self._pinned_ranges())
        if sum(size for _, size in pinned_ranges) > _MAX_COPIED_BYTES:
            pinned_ranges = [(buffer.region.start, buffer.contents.size) for buffer in self._buffers.values()]
        return {(start, size): _view_bytes(start, size).copy() for start, size in pinned_ranges if size}

    def _find_changed_regions(self, previous_copies: dict[tuple[int, int], npt.NDArray[np.uint8]]) -> Regions:
        """Return for each range its changed part, from the first to the last byte that has changed."""
        regions = []
        for (start, size), previous_bytes in previous_copies.items():
            if self._is_pinned(start):
                changed_offsets = np.flatnonzero(_view_bytes(start, size) != previous_bytes)
                if changed_offsets.size:
                    first_offset = int(changed_offsets[0])
                    last_offset = int(changed_offsets[-1])
                    regions.append(
                        self._add_name(Region(HOST, start + first_offset, last_offset + 1 - first_offset))
                    )
        return tuple(regions)

    def _keep_buffer(self, region: Region) -> None:
        buffer_bytes = _view_bytes(region.start, region.end - region.start)
        if self._is_pinned(region.start):
            self._buffers.pop((region.start, region.end), None)
            self._buffers[region.start, region.end] = _BufferCopy(
                region, buffer_bytes, zlib.crc32(buffer_bytes.data)
            )
            while len(self._buffers) > _MAX_BUFFERS:
                del self._buffers[next(iter(self._buffers))]

    def _report_buffer_changes(self, source: SourceLine | None, regions: Regions | None = None) -> None:
        """Report recent changes by the host in all buffers, or only in those that overlap `regions`."""
        if not self._buffers:
            return
        buffer_keys = list(self._buffers)
        if regions is not None and sum(end - start for start, end in buffer_keys) > _MAX_CHEAP_BYTES:
            host_regions = [region for region in regions if region.memory == HOST]
            buffer_keys = [
                (start, end)
                for start, end in buffer_keys
                if any(region.start < end and start < region.end for region in host_regions)
            ]
        for buffer in self._find_changed_buffers(buffer_keys):
            self._report_act(HostUse("changed a buffer", (), (buffer.region,), source))

    def _find_changed_buffers(self, keys: Iterable[tuple[int, int]] | None = None) -> list[_BufferCopy]:
        """Return the buffers whose contents have changed since the last call."""
        changed_buffers = []
        for key in list(self._buffers) if keys is None else keys:
            buffer = self._buffers[key]
            if not self._is_pinned(key[0]):
                del self._buffers[key]
                continue
            digest = zlib.crc32(buffer.contents.data)
            if digest != buffer.digest:
                buffer.digest = digest
                changed_buffers.append(buffer)
        return changed_buffers

    # Names and addresses

    def _make_array_regions(self, arrays: Sequence[npt.NDArray[Any]]) -> Regions:
        regions = []
        for array in arrays:
            address = array.__array_interface__["data"][0]
            memory = self.memory_of(address)
            region = Region.of_array(memory, address, array.itemsize, array.shape, array.strides)
            if region is not None:
                regions.append(self._add_name(region))
        return tuple(regions)

    def memory_of(self, address: int) -> int:
        """Return the number of the device whose memory contains an address, or `HOST` for host memory."""
        for device_number, memory in enumerate(self._memories):
            if memory.base_address <= address < memory.base_address + memory.arena_bytes:
                return device_number
        return HOST

    def _add_name(self, region: Region) -> Region:
        """Return a memory region with its name in the program, else with that of its allocation."""
        name = self._program_names.find_array_name(region.start)
        if not name and region.memory != HOST:
            allocation = self._memories[region.memory].find_nearest_allocation(region.start)
            if allocation is not None and allocation.address <= region.start < allocation.end:
                name = allocation.label.split(" (parameter ")[0]
        return Region(
            region.memory,
            region.address,
            region.item_bytes,
            region.shape,
            region.strides,
            name or ("a host buffer" if region.memory == HOST else ""),
        )

    def _report_stream(self, stream: StreamRef) -> None:
        """Report a stream before its first use, and report new names of streams."""
        if stream in self._names_by_stream and self._program_names.change_count == self._reported_changes:
            return
        self._reported_changes = self._program_names.change_count
        self._names_by_stream.setdefault(stream, None)
        for known_stream, previous_name in self._names_by_stream.items():
            stream_name = self._program_names.find_stream_name(known_stream.device_id, known_stream.stream_id)
            if previous_name != stream_name:
                self._names_by_stream[known_stream] = stream_name
                self._report_act(
                    NewStream(
                        known_stream.device_id, known_stream.stream_id, stream_name, known_stream.is_blocking
                    )
                )

    def _number_event(self, event: Any) -> int:
        event_number = self._event_numbers.get(event)
        if event_number is None:
            event_number = next(self._new_event_numbers)
            self._event_numbers[event] = event_number
        return event_number

    def find_current_line(self) -> SourceLine | None:
        """Return the line that the program executes, and collect the names of its streams and arrays."""
        frame, _ = self._program_lines.find_frame()
        if frame is None:
            return None
        self._program_names.collect_names(sys._getframe(1))
        return self._program_lines.find_line(frame)

    def _report_act(self, pending_act: Act) -> None:
        """Pass an action to the observers.

        If the garbage collector causes other actions during this call, they are reported after it.
        """
        with self._lock:
            self._pending_acts.append(pending_act)
            if self._is_reporting:
                return
            self._is_reporting = True
            try:
                while self._pending_acts:
                    pending_act = self._pending_acts.popleft()
                    for observer in self._observers:
                        observer(pending_act)
            finally:
                self._is_reporting = False


def _view_bytes(address: int, size: int) -> npt.NDArray[np.uint8]:
    """Return a view of the bytes at a host address; it shows later changes of the memory."""
    return np.ctypeslib.as_array((ctypes.c_uint8 * size).from_address(address))
