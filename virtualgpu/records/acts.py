"""Acts of a program (its operations on streams and memory), from which stream hazards are found.

The real and the virtual side record the acts in the order of the host. A stream is the number of its device
and its handle; 0 and 1 are the legacy default stream. Handles and events must not be reused: a recorder of
acts numbers new ones itself.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from virtualgpu.records.timeline import SourceLine

HOST = -1  # the host's memory, in the place of a device's number
LEGACY = (0, 1)  # cudaStreamLegacy, by both its handles
PER_THREAD = 2  # cudaStreamPerThread


@dataclass(frozen=True, slots=True)
class Region:
    """A region of memory that contains an array. The region has gaps if the array is not contiguous.

    The region consists of items of ``item_bytes`` bytes with a shape and strides, as in NumPy; without a
    shape it is one item. ``address`` is the address of the item with all indices 0; strides can be negative.
    ``memory`` is the number of a device or `HOST`, and ``array`` the name of the array in the program.
    """

    memory: int
    address: int
    item_bytes: int
    shape: tuple[int, ...] = ()
    strides: tuple[int, ...] = ()
    array: str = ""

    @property
    def start(self) -> int:
        """The lowest address of the region."""
        axes = zip(self.shape, self.strides, strict=True)
        return self.address + sum((length - 1) * stride for length, stride in axes if stride < 0)

    @property
    def end(self) -> int:
        """The address after the last byte of the region."""
        axes = zip(self.shape, self.strides, strict=True)
        last_offset = sum((length - 1) * stride for length, stride in axes if stride > 0)
        return self.address + last_offset + self.item_bytes

    @classmethod
    def of_array(
        cls,
        memory: int,
        address: int,
        item_bytes: int,
        shape: tuple[int, ...],
        strides: tuple[int, ...],
        array: str = "",
    ) -> Region | None:
        """Return the memory region of an array, or None if the array has no elements."""
        axes = sorted(
            (abs(stride), length, stride)
            for length, stride in zip(shape, strides, strict=True)
            if length != 1 and stride != 0
        )
        if 0 in shape:
            return None
        for _, length, stride in axes:
            if stride < 0:  # the same bytes in ascending order
                address += (length - 1) * stride
        axis_lengths: list[int] = []
        axis_strides: list[int] = []
        for axis_stride, length, _ in axes:
            if not axis_lengths and axis_stride == item_bytes:
                item_bytes *= length
            else:
                axis_lengths.append(length)
                axis_strides.append(axis_stride)
        return cls(memory, address, item_bytes, tuple(axis_lengths), tuple(axis_strides), array)


@dataclass(frozen=True, slots=True)
class NewStream:
    """Announcement of a stream's name and kind, blocking or not, before the first use of the stream.

    A blocking stream and the legacy default stream wait for each other. A stream without this act is
    blocking.
    """

    device_id: int
    stream_id: int
    name: str = ""
    blocking: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class Work:
    """Submission of an operation to a stream, with the memory regions that the operation reads and writes.

    Bytes that the operation both reads and writes are included in both lists. Bytes that it accesses by
    atomic operations only are in ``atomics``: atomic operations need no order between them. Host memory is
    only listed if the operation uses it after the call has returned; a pageable copy has finished with host
    memory by then.
    """

    number: int
    name: str
    device_id: int
    stream_id: int
    reads: tuple[Region, ...] = ()
    writes: tuple[Region, ...] = ()
    source: SourceLine | None = None
    is_peer_copy: bool = False
    atomics: tuple[Region, ...] = ()


@dataclass(frozen=True, slots=True)
class GraphMade:
    """End of the capture of a graph. Later launches of the graph use its memory even after the program has
    freed it.
    """

    graph_id: int


@dataclass(frozen=True, slots=True)
class GraphLaunch:
    """Launch of a graph, with its nodes and its edges. Each edge is a pair (earlier node, later node).

    The stream of a node is the one that it was captured in. Every edge leads to a later node. A graph without
    a `GraphMade` existed from the beginning.
    """

    device_id: int
    stream_id: int
    nodes: tuple[Work, ...]
    edges: tuple[tuple[int, int], ...]
    source: SourceLine | None = None
    graph_id: int = 0


@dataclass(frozen=True, slots=True)
class EventRecord:
    """Recording of an event in a stream."""

    event_id: int
    device_id: int
    stream_id: int
    source: SourceLine | None = None


@dataclass(frozen=True, slots=True)
class EventWait:
    """Wait of a stream for the last record of an event. If the event was never recorded, the stream does not
    wait.
    """

    event_id: int
    device_id: int
    stream_id: int
    source: SourceLine | None = None


@dataclass(frozen=True, slots=True)
class HostWait:
    """Wait of the host for a device, a stream, an event or a single operation.

    A query that finds the work finished also counts as a wait. Ids that do not belong to the scope are
    ignored.
    """

    scope: Literal["device", "stream", "event", "work"]
    device_id: int = 0
    stream_id: int = 0
    event_id: int = 0
    number: int = 0
    source: SourceLine | None = None


@dataclass(frozen=True, slots=True)
class HostUse:
    """Access of the host to memory. The field ``name`` describes the access in words."""

    name: str
    reads: tuple[Region, ...] = ()
    writes: tuple[Region, ...] = ()
    source: SourceLine | None = None


@dataclass(frozen=True, slots=True)
class Allocation:
    """Allocation of a block from a pool or the device. If ``stream_id`` is set, the block is allocated in the
    order of that stream.

    Later work of that stream then follows all work that the release of the block followed.
    """

    region: Region
    device_id: int = 0
    stream_id: int | None = None
    source: SourceLine | None = None


@dataclass(frozen=True, slots=True)
class Release:
    """Release of a block of memory. Afterwards, the stream ``stream_id`` can reuse the block, or every stream
    if ``stream_id`` is None.

    ``stream_id`` is the stream that can use the block next: that of an arena, or of memory that is freed in
    stream order. It is None for ``cudaFree``, which waits for the device itself, and for memory of the host.
    ``is_private`` is true for a block of a pool that the program uses for some of its arrays only: a graph
    can continue to use the address, as long as no other array gets it.
    """

    region: Region
    device_id: int = 0
    stream_id: int | None = None
    source: SourceLine | None = None
    is_private: bool = False


Act = (
    NewStream
    | Work
    | GraphMade
    | GraphLaunch
    | EventRecord
    | EventWait
    | HostWait
    | HostUse
    | Allocation
    | Release
)
