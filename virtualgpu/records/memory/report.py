"""What a call needed of a device's memory: its peak, what was alive then, and where it would fit."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from virtualgpu.records.memory.events import Stack
from virtualgpu.records.origin import Provenance
from virtualgpu.records.timeline import SourceLine

Stay = Literal["before the call", "kept", "temporary", "at the failure"]
"""Whether a block was there before, outlived the call, was freed within it, or was there when it failed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AliveBlocks:
    """Blocks that one line allocated and that were alive at the peak.

    ``arrays`` says what lies in them where that is known, such as ``"x: float32 (1024, 1024)"``.
    ``size_bytes`` are rounded up by the pool, ``requested_bytes`` are not; ``source`` is None where no line
    of the program allocated them while it was watched.
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
    """The request that the device or a limit refused."""

    size_bytes: int
    source: SourceLine | None
    message: str


@dataclass(frozen=True, slots=True)
class Room:
    """How often what the call allocates fits on a device.

    ``room_bytes`` is what is there for it; ``times`` how much larger all of it could be (below 1: it does not
    fit), None where the call allocates nothing. ``provenance`` says where the device's figures are from.
    """

    provenance: Provenance
    memory_bytes: int
    room_bytes: int
    times: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryReport:
    """What one call needed of the pool's device.

    Parameters
    ----------
    name
        Of the function.
    before_bytes
        Used before the call.
    peak_bytes
        The most that was used, each block rounded up, what was there before included. Where a request
        failed: what was used then, and the request.
    peak_reserved_bytes
        The most that the pool had taken from the device.
    after_bytes
        Used when the call returned, its result included.
    source, stack
        The program's line at which the peak was reached; None for the time before the call.
    alive
        What was alive then, the largest first.
    allocations, frees
        Of the call.
    rooms
        Where it would fit: this device first.
    failed
        The request that failed and ended the call, None if it returned.
    note
        What could not be seen, in words; empty for nothing.
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
        """What the call needed beyond what was there before."""
        return self.peak_bytes - self.before_bytes

    @property
    def temporary_bytes(self) -> int:
        """Of what was alive at the peak, what the call had freed when it returned."""
        return sum(group.size_bytes for group in self.alive if group.stay == "temporary")
