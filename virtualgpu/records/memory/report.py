"""Memory use of one call: its peak, the blocks alive at the peak, and the devices on which it fits."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from virtualgpu.records.memory.events import Stack
from virtualgpu.records.origin import Provenance
from virtualgpu.records.timeline import SourceLine

Stay = Literal["before the call", "kept", "temporary", "at the failure"]
"""Whether a block existed before the call, outlived it, was freed within it, or existed when it failed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AliveBlocks:
    """The blocks of memory that one source line allocated and that existed at the peak of memory use.

    The field ``arrays`` describes the contents if they are known, such as ``"x: float32 (1024, 1024)"``.
    ``size_bytes`` are rounded up by the pool, ``requested_bytes`` are not. ``source`` is None if no line of
    the program allocated them during the observation.
    """

    source: SourceLine | None
    stack: Stack
    arrays: str
    blocks: int
    size_bytes: int
    requested_bytes: int
    stay: Stay


@dataclass(frozen=True, slots=True)
class FailedRequest:
    """The memory request that failed because it exceeded the device's memory or a limit."""

    size_bytes: int
    source: SourceLine | None
    message: str


@dataclass(frozen=True, slots=True)
class Room:
    """The available memory of a device compared with the memory that a call allocates.

    The field ``room_bytes`` is the memory available to the call, and ``times`` is its ratio to the memory
    that the call allocates, or None if the call allocates none. ``provenance`` is the origin of the device's
    numbers.
    """

    provenance: Provenance
    memory_bytes: int
    room_bytes: int
    times: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryReport:
    """The memory use of one function call on the device of the pool.

    Parameters
    ----------
    name
        Name of the function.
    before_bytes
        Bytes in use before the call.
    peak_bytes
        Largest number of bytes in use, each block rounded up, including earlier blocks. If a request failed:
        the bytes in use then, and the request.
    peak_reserved_bytes
        Largest number of bytes that the pool had reserved of the device.
    after_bytes
        Bytes in use when the call returned, including its result.
    source, stack
        The program's line at the peak; None for the time before the call.
    alive
        Blocks alive at the peak, the largest first.
    allocations, frees
        Numbers of allocations and frees of the call.
    rooms
        Devices on which it would fit or not, this one first.
    failed
        The request that failed and ended the call, None if it returned.
    note
        Description of events that could not be observed, or an empty string.
    """

    provenance: Provenance
    device_id: int
    name: str
    before_bytes: int
    peak_bytes: int
    peak_reserved_bytes: int
    after_bytes: int
    source: SourceLine | None
    stack: Stack
    alive: tuple[AliveBlocks, ...]
    allocations: int
    frees: int
    rooms: tuple[Room, ...]
    failed: FailedRequest | None = None
    note: str = ""

    @property
    def needed_bytes(self) -> int:
        """Number of bytes that the call needed in addition to those already in use."""
        return self.peak_bytes - self.before_bytes

    @property
    def temporary_bytes(self) -> int:
        """Number of bytes in use at the peak that the call freed before it returned."""
        return sum(group.size_bytes for group in self.alive if group.stay == "temporary")
