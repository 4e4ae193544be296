"""What a program does to streams and memory, act by act: the input of the check for hazards between streams.

Either side notes the acts in the order in which the host made them. A stream is a device's number and the
stream's handle there; 0 and 1 are the legacy default stream. Handles and events must not be those of others
that are gone: whoever notes acts gives new ones numbers of their own.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from virtualgpu.records.timeline import SourceLine

HOST = -1  # the memory of the host, where devices have their number
LEGACY = (0, 1)  # cudaStreamLegacy, by both its handles
PER_THREAD = 2  # cudaStreamPerThread


@dataclass(frozen=True, slots=True)
class Region:
    """Bytes of one memory: items of ``item_bytes`` each, laid out like a NumPy array with these strides.

    Without a shape it is one item. ``address`` is that of the item with all indices 0; strides may be
    negative. ``array`` says what lies there, in the program's words.
    """

    memory: int
    address: int
    item_bytes: int
    shape: tuple[int, ...] = ()
    strides: tuple[int, ...] = ()
    array: str = ""

    @property
    def start(self) -> int:
        """The lowest address."""
        return self.address + sum(
            (n - 1) * step for n, step in zip(self.shape, self.strides, strict=True) if step < 0
        )

    @property
    def end(self) -> int:
        """The address behind the highest byte."""
        last = sum((n - 1) * step for n, step in zip(self.shape, self.strides, strict=True) if step > 0)
        return self.address + last + self.item_bytes

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
        """What an array covers, as few long items as its layout allows; None if it has no elements."""
        axes = sorted(
            (abs(step), n, step) for n, step in zip(shape, strides, strict=True) if n != 1 and step != 0
        )
        if 0 in shape:
            return None
        for _, n, step in axes:
            address += (n - 1) * step if step < 0 else 0  # backwards covers what forwards does
        kept: list[tuple[int, int]] = []
        for step, n, _ in axes:
            if not kept and step == item_bytes:
                item_bytes *= n
            else:
                kept.append((n, step))
        return cls(
            memory, address, item_bytes, tuple(n for n, _ in kept), tuple(step for _, step in kept), array
        )


@dataclass(frozen=True, slots=True)
class NewStream:
    """A stream, before its first use: what the program calls it, and whether the legacy default stream and
    it wait for each other. One that was never announced is blocking."""

    device_id: int
    stream_id: int
    name: str = ""
    blocking: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class Work:
    """An operation given to a stream, with the bytes that it reads and writes.

    What it both reads and writes is under both. What it touches by atomic operations only is in ``atomics``:
    atomic operations need no order between them. Host memory is only named where the operation uses it
    after the call has returned: that of a pageable copy is read, or complete, by then.
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
    """A graph is complete: whatever is freed from here on, its launches still use the address of."""

    graph_id: int


@dataclass(frozen=True, slots=True)
class GraphLaunch:
    """A graph given to a stream: its nodes, and the pairs of them that are ordered, earlier one first.

    A node's own stream is the one that it was captured in. Every edge leads to a later node. A graph that
    was never announced by `GraphMade` was there from the beginning.
    """

    device_id: int
    stream_id: int
    nodes: tuple[Work, ...]
    edges: tuple[tuple[int, int], ...]
    source: SourceLine | None = None
    graph_id: int = 0


@dataclass(frozen=True, slots=True)
class EventRecord:
    """An event was recorded in a stream."""

    event_id: int
    device_id: int
    stream_id: int
    source: SourceLine | None = None


@dataclass(frozen=True, slots=True)
class EventWait:
    """A stream was told to wait for an event as it was recorded last; one that never was holds nothing up."""

    event_id: int
    device_id: int
    stream_id: int
    source: SourceLine | None = None


@dataclass(frozen=True, slots=True)
class HostWait:
    """The host knows that something has ended: all of a device, a stream's work, an event, one operation.

    A query that answered "done" counts, too. Ids that do not belong to the scope are ignored.
    """

    scope: Literal["device", "stream", "event", "work"]
    device_id: int = 0
    stream_id: int = 0
    event_id: int = 0
    number: int = 0
    source: SourceLine | None = None


@dataclass(frozen=True, slots=True)
class HostUse:
    """The host read or wrote memory itself; ``name`` says in words what it did."""

    name: str
    reads: tuple[Region, ...] = ()
    writes: tuple[Region, ...] = ()
    source: SourceLine | None = None


@dataclass(frozen=True, slots=True)
class Allocation:
    """A pool or the device gave out a block; to a stream, where the driver sees to the order.

    Whatever comes in that stream then follows what the release of the block followed.
    """

    region: Region
    device_id: int = 0
    stream_id: int | None = None
    source: SourceLine | None = None


@dataclass(frozen=True, slots=True)
class Release:
    """A block went back to where ``stream_id`` may have it next: a stream's arena, or memory that is freed in
    the order of a stream. None: to nobody in particular, as with ``cudaFree``, which waits for the device
    itself, and with memory of the host.

    ``is_private`` says that the program has a pool for the block which serves only what asks for it: a graph
    may go on using the address, as long as nobody else gets it.
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
