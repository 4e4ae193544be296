"""What a program does to streams and memory, told act by act while streams are checked.

`HostClock.watch` is the open one. What gives a device work, orders it or moves memory tells it so; it adds
the program's line and hands each act on (`virtualgpu.records.acts`).
"""

from __future__ import annotations

import ctypes
import itertools
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
# Runs a launch with its options; what came of it, and what it reads, writes and changes atomically.
RunWatched = Callable[[Any, Any], tuple[Any, tuple[Regions, ...]]]
# Of the host's buffers whose copies may still run, so many are looked at again, so many bytes at every act.
_MOST_BUFFERS = 256
_CHEAP_BYTES = 1 << 20
_MOST_COPIED_BYTES = 64 << 20


class WatchedOperation(Protocol):
    """What is asked of an operation: of a kernel, to run and tell what it touched."""

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
    def watched(self) -> Callable[[RunWatched], tuple[float, tuple[Regions, ...]]] | None: ...


class Memory(Protocol):
    """A device's memory, as far as it says what lies where."""

    @property
    def base_address(self) -> int: ...
    @property
    def arena_bytes(self) -> int: ...
    def nearest(self, address: int) -> Any: ...


class StreamPlace(NamedTuple):
    """A stream: number of its device, its handle there, and whether it is a blocking one."""

    device_id: int
    stream_id: int
    blocking: bool = True


_NOWHERE = StreamPlace(0, 0)


@dataclass(slots=True)
class _Buffer:
    """Host memory that a copy to a device was given and may not have read yet."""

    region: Region
    contents: npt.NDArray[np.uint8]
    digest: int


class Watch:
    """Tells acts.

    Attributes
    ----------
    fills_host : bool
        Whether copies have gone to page-locked memory, which the host may read at any time.

    Parameters
    ----------
    memories
        The devices' memories.
    is_pinned
        Whether a host address lies in page-locked memory.
    run_kernel
        Runs a launch, and tells what it touches.
    pinned_ranges
        Gives all page-locked memory, start and bytes: what a host function changes of it is found by
        comparing.
    """

    def __init__(
        self,
        memories: Sequence[Memory],
        is_pinned: Callable[[int], bool],
        run_kernel: RunWatched,
        pinned_ranges: Callable[[], Iterable[tuple[int, int]]] = tuple,
    ) -> None:
        self._memories = memories
        self._is_pinned = is_pinned
        self._run_kernel = run_kernel
        self._pinned_ranges = pinned_ranges
        self._see: list[Callable[[Act], None]] = []
        self._lines = ProgramLines()
        self._names = ProgramNames(self._lines)
        self._streams: dict[StreamPlace, str | None] = {}
        self._told = 0
        self._events: weakref.WeakKeyDictionary[Any, int] = weakref.WeakKeyDictionary()
        self._numbers = itertools.count(1)
        self._buffers: dict[tuple[int, int], _Buffer] = {}
        self._private: set[tuple[int, int]] = set()
        self._lock = threading.RLock()
        self._waiting: deque[Act] = deque()
        self._busy = False
        self.fills_host = False

    def begin(self, see: Callable[[Act], None]) -> None:
        """Give each act to somebody more, who has not heard of the streams yet."""
        self._see.append(see)
        self._streams.clear()

    def end(self, see: Callable[[Act], None]) -> bool:
        """Give them to somebody no more; True if nobody is left."""
        self._see.remove(see)
        return not self._see

    # Operations

    def run(self, stream: StreamPlace, number: int, operation: WatchedOperation) -> float:
        """Run an operation of a stream, and tell of it; its duration in ns."""
        duration_ns, work = self.node(stream, number, operation, None)
        self._announce(stream)
        self._tell(work)
        return duration_ns

    def graph_made(self, graph_id: int) -> None:
        """A capture has ended with a graph."""
        self._tell(GraphMade(graph_id))

    def launched(
        self, stream: StreamPlace, nodes: Sequence[Work], edges: Iterable[tuple[int, int]], graph_id: int
    ) -> None:
        """A graph was launched."""
        self._announce(stream)
        self._tell(GraphLaunch(*stream[:2], tuple(nodes), tuple(edges), self.here(), graph_id))

    def node(
        self, stream: StreamPlace, number: int, operation: WatchedOperation, source: SourceLine | None
    ) -> tuple[float, Work]:
        """Run a node of a graph, captured in a stream and a line: its duration in ns, and what `launched`
        is to be told."""
        source = source or self.here()
        changes_host = operation.kind == "HOST_LAUNCH"
        before = self._locked() if changes_host else {}
        reads = self._regions(operation.reads)
        writes = self._regions(operation.writes)
        atomics: Regions = ()
        self._look_at_buffers(source, None if changes_host else (*reads, *writes))
        if operation.watched is None:
            duration_ns = operation.run()
        else:
            duration_ns, touched = operation.watched(self._run_kernel)
            reads, writes, atomics = (tuple(map(self._named, regions)) for regions in touched)
        if changes_host:
            self._changed()
            writes = self._changes(before)
        elif any(region.memory == HOST for region in writes):
            self.fills_host = True
            self._changed()
        peer = operation.kind == "MEMCPY2"
        for region in reads:
            if region.memory == HOST and not changes_host:
                self._keep(region)
        work = Work(
            number=number,
            name=operation.name,
            device_id=stream[0],
            stream_id=stream[1],
            reads=reads,
            writes=writes,
            source=source,
            is_peer_copy=peer,
            atomics=atomics,
        )
        return duration_ns, work

    # Order

    def recorded(self, event: Any, stream: StreamPlace) -> None:
        """An event was recorded."""
        self._announce(stream)
        self._tell(EventRecord(self._event(event), *stream[:2], self.here()))

    def waits(self, event: Any, stream: StreamPlace, recorded: bool) -> None:
        """A stream was told to wait for an event. What was recorded before the check counts as over."""
        if recorded and event not in self._events:
            return
        self._announce(stream)
        self._tell(EventWait(self._event(event), *stream[:2], self.here()))

    def host_waited(
        self,
        scope: Literal["device", "stream", "event", "work"],
        stream: StreamPlace = _NOWHERE,
        event: Any = None,
        number: int = 0,
    ) -> None:
        """The host waited, or asked and heard that something has ended."""
        source = self.here()
        self._look_at_buffers(source)
        event_id = 0 if event is None else self._event(event)
        self._tell(HostWait(scope, *stream[:2], event_id, number, source))

    # Memory

    def allocated(
        self,
        device_id: int,
        address: int,
        size_bytes: int,
        stream_id: int | None = None,
        private: bool = False,
    ) -> None:
        """A block was given out: to a stream, where the driver keeps the order; from a pool that the program
        uses for some of its arrays only."""
        (self._private.add if private else self._private.discard)((device_id, address))
        self._names.forget(address, address + size_bytes)
        self._tell(Allocation(Region(device_id, address, size_bytes), device_id, stream_id, self.here()))

    def released(self, device_id: int, address: int, size_bytes: int, stream_id: int | None) -> None:
        """A block went back to a stream's arena, or to the device, which waits for its work first."""
        source = self.here()
        if stream_id is None:
            self._tell(HostWait("device", device_id, source=source))
        array = self._named(Region(device_id, address, size_bytes))
        private = (device_id, address) in self._private
        self._tell(Release(array, device_id, stream_id, source, private))

    def host_released(self, address: int, size_bytes: int) -> None:
        """Page-locked memory was given back."""
        source = self.here()
        self._look_at_buffers(source)
        with self._lock:
            for key in [k for k in self._buffers if address <= k[0] < address + size_bytes]:
                del self._buffers[key]
        self._tell(Release(self._named(Region(HOST, address, size_bytes)), source=source))

    def forget_buffers(self, start: int = 0, end: int = 1 << 64) -> None:
        """What changes host memory between these addresses from now on need not be the host itself."""
        with self._lock:
            for key in [(a, b) for a, b in self._buffers if a < end and start < b]:
                del self._buffers[key]

    def finish(self) -> None:
        """The last look at the host's buffers."""
        self._look_at_buffers(self.here())

    # The host's buffers: changes show in their contents only

    def _locked(self) -> dict[tuple[int, int], npt.NDArray[np.uint8]]:
        """Copies of all page-locked memory, as far as they take moments."""
        ranges = list(self._pinned_ranges())
        if sum(size for _, size in ranges) > _MOST_COPIED_BYTES:
            ranges = [(buffer.region.start, buffer.contents.size) for buffer in self._buffers.values()]
        return {(start, size): _bytes_at(start, size).copy() for start, size in ranges if size}

    def _changes(self, before: dict[tuple[int, int], npt.NDArray[np.uint8]]) -> Regions:
        """What of these bytes is no longer as it was: from the first to the last such byte of each range."""
        found = []
        for (start, size), contents in before.items():
            if self._is_pinned(start):
                changed = np.flatnonzero(_bytes_at(start, size) != contents)
                if changed.size:
                    first = int(changed[0])
                    last = int(changed[-1])
                    found.append(self._named(Region(HOST, start + first, last + 1 - first)))
        return tuple(found)

    def _keep(self, region: Region) -> None:
        contents = _bytes_at(region.start, region.end - region.start)
        if self._is_pinned(region.start):
            self._buffers.pop((region.start, region.end), None)
            self._buffers[region.start, region.end] = _Buffer(region, contents, zlib.crc32(contents.data))
            while len(self._buffers) > _MOST_BUFFERS:
                del self._buffers[next(iter(self._buffers))]

    def _look_at_buffers(self, source: SourceLine | None, regions: Regions | None = None) -> None:
        """Tell what the host has changed since the last look: in all buffers, or where regions meet them."""
        if not self._buffers:
            return
        among = list(self._buffers)
        if regions is not None and sum(end - start for start, end in among) > _CHEAP_BYTES:
            among = [
                (start, end)
                for start, end in among
                if any(r.memory == HOST and r.start < end and start < r.end for r in regions)
            ]
        for buffer in self._changed(among):
            self._tell(HostUse("changed a buffer", (), (buffer.region,), source))

    def _changed(self, among: Iterable[tuple[int, int]] | None = None) -> list[_Buffer]:
        """The buffers whose contents are others than before; what they are now counts from here on."""
        found = []
        for key in list(self._buffers) if among is None else among:
            buffer = self._buffers[key]
            if not self._is_pinned(key[0]):
                del self._buffers[key]
                continue
            digest = zlib.crc32(buffer.contents.data)
            if digest != buffer.digest:
                buffer.digest = digest
                found.append(buffer)
        return found

    # Words and places

    def _regions(self, arrays: Sequence[npt.NDArray[Any]]) -> Regions:
        found = []
        for array in arrays:
            address = array.__array_interface__["data"][0]
            memory = self.memory_of(address)
            region = Region.of_array(memory, address, array.itemsize, array.shape, array.strides)
            if region is not None:
                found.append(self._named(region))
        return tuple(found)

    def memory_of(self, address: int) -> int:
        """The device that an address belongs to, or `HOST`."""
        for number, memory in enumerate(self._memories):
            if memory.base_address <= address < memory.base_address + memory.arena_bytes:
                return number
        return HOST

    def _named(self, region: Region) -> Region:
        """A region with what the program calls it, else with what it holds."""
        name = self._names.array(region.start)
        if not name and region.memory != HOST:
            known = self._memories[region.memory].nearest(region.start)
            inside = known is not None and known.address <= region.start < known.end
            name = known.label.split(" (parameter ")[0] if inside else ""
        return Region(
            region.memory,
            region.address,
            region.item_bytes,
            region.shape,
            region.strides,
            name or ("a host buffer" if region.memory == HOST else ""),
        )

    def _announce(self, stream: StreamPlace) -> None:
        """Tell of a stream before its first use, and of what the program calls streams by now."""
        if stream in self._streams and self._names.changes == self._told:
            return
        self._told = self._names.changes
        self._streams.setdefault(stream, None)
        for known, before in self._streams.items():
            name = self._names.stream(known.device_id, known.stream_id)
            if before != name:
                self._streams[known] = name
                self._tell(NewStream(known.device_id, known.stream_id, name, known.blocking))

    def _event(self, event: Any) -> int:
        number = self._events.get(event)
        if number is None:
            number = self._events[event] = next(self._numbers)
        return number

    def here(self) -> SourceLine | None:
        frame, _ = self._lines.frame()
        if frame is None:
            return None
        self._names.look(frame)
        return self._lines.line(frame)

    def _tell(self, act: Act) -> None:
        """Hand an act on. What the garbage collector frees meanwhile is told after it."""
        with self._lock:
            self._waiting.append(act)
            if self._busy:
                return
            self._busy = True
            try:
                while self._waiting:
                    act = self._waiting.popleft()
                    for see in self._see:
                        see(act)
            finally:
                self._busy = False


def _bytes_at(address: int, size: int) -> npt.NDArray[np.uint8]:
    """Host memory as it is at any time."""
    return np.ctypeslib.as_array((ctypes.c_uint8 * size).from_address(address))
