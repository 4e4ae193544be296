"""The driver's pools behind ``cudaMallocAsync``: memory that is allocated and freed in the order of streams.

A pool takes granules of 32 MiB from the device, cuts blocks out of them, and gives granules that nobody
uses back when the host has waited for the device, down to its release threshold. The figures, the moment
of each change and which block is used again were recorded on an H200 (driver 580, CUDA 13).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Protocol

from virtualgpu.cuda_errors import CUDARuntimeError
from virtualgpu.model.clock import HostClock

GRANULE_BYTES = 32 << 20
UNIT_BYTES = 512
# cudaMemPoolAttr (driver_types.h); the first three are the ways to use a freed block again.
RELEASE_THRESHOLD = 4
RESERVED = 5
RESERVED_HIGH = 6
USED = 7
USED_HIGH = 8


class Pages(Protocol):
    """What a pool needs of a device's memory."""

    lock: Any

    @property
    def base_address(self) -> int: ...
    @property
    def arena_bytes(self) -> int: ...
    @property
    def free_bytes(self) -> int: ...
    def free_pages(self) -> list[tuple[int, int]]: ...
    def take_pages_at(self, address: int, size_bytes: int) -> None: ...
    def return_pages(self, address: int, size_bytes: int) -> None: ...
    def open_block(self, address: int, size_bytes: int) -> None: ...
    def close_block(self, address: int) -> None: ...


@dataclass(slots=True)
class _Piece:
    """Free bytes of the pool. Until `ready_ns`, only `stream` may have them; None: everybody may.

    `waits`: how often the host had waited for the device when they were freed.
    """

    start: int
    end: int
    stream: int | None = None
    ready_ns: int = 0
    waits: int = -1


@dataclass(frozen=True, slots=True)
class _Block:
    start: int
    end: int
    asked_bytes: int


class OrderedPool:
    """One ``cudaMemPool_t``.

    Places in it count from the top of the device's memory downwards, so that a pool can grow without
    meeting what ``cudaMalloc`` gives out from the bottom.

    Parameters
    ----------
    memory : Pages
        What the granules are taken from.
    clock : HostClock
        Tells when a block that a stream freed is free for others, too.
    """

    def __init__(self, memory: Pages, clock: HostClock) -> None:
        self._memory = memory
        self._clock = clock
        self._top = memory.base_address + memory.arena_bytes // GRANULE_BYTES * GRANULE_BYTES
        self._granules: set[int] = set()
        self._free: list[_Piece] = []  # in the order of their places
        self._blocks: dict[int, _Block] = {}  # by address
        self._waits = clock.waits
        self._used = self._used_high = self._reserved_high = 0
        self._settings = {1: 1, 2: 1, 3: 1, RELEASE_THRESHOLD: 0}
        self._freed: list[tuple[int, _Block, _Piece]] = []  # not taken in yet
        self._changing = False

    @property
    def handle(self) -> int:
        """A number that stands for CUDA's pool handle."""
        return id(self)

    def owns(self, address: int) -> bool:
        """Whether a block that lives starts at `address`."""
        return address in self._blocks

    # Blocks

    def malloc(self, size_bytes: int, stream: int) -> tuple[int, int]:
        """Address of a new block for a stream, and the time in ns until which the stream has to wait for it.

        First what is free, or was freed by the same stream; then new granules; at last what another stream
        is still busy with, for which this one then waits.

        Raises
        ------
        CUDARuntimeError
            Status 2, ``cudaErrorMemoryAllocation``.
        """
        size = -(-size_bytes // UNIT_BYTES) * UNIT_BYTES
        with self._alone() as alone:
            start = self._place(size, stream) if alone else None
            if start is None:
                raise CUDARuntimeError(
                    2,
                    "cudaErrorMemoryAllocation",
                    f"out of memory: {size_bytes:,} bytes asked of a stream-ordered pool, "
                    f"{self._memory.free_bytes:,} bytes free on the device.",
                )
            wait_ns = self._cut(start, start + size, stream)
            address = self._top - start - size
            self._blocks[address] = _Block(start, start + size, size_bytes)
            self._memory.open_block(address, size)
            self._used += size_bytes
            self._used_high = max(self._used_high, self._used)
            return address, wait_ns

    def _place(self, size: int, stream: int) -> int | None:
        mine = [piece for piece in self._free if piece.stream in (None, stream)]
        found = _first_run(mine, size)
        if found is None:
            found = self._grow(mine, size)
        return _first_run(self._free, size) if found is None else found

    def free(self, address: int, stream: int | None = None, ready_ns: int = 0) -> None:
        """Free a block that the pool `owns`: for `stream` at once, for others from `ready_ns` on."""
        block = self._blocks.pop(address)
        piece = _Piece(block.start, block.end, stream, ready_ns, self._clock.waits)
        self._freed.append((address, block, piece))
        self.settle()

    def settle(self) -> None:
        """Take note of what has happened: frees, work that has ended, and the host's waits."""
        with self._alone():
            pass

    @contextmanager
    def _alone(self) -> Iterator[bool]:
        """Hold the pool as it is now; True if it may be changed.

        False within another call of the same thread: the garbage collector may run at any place of it and
        free an array.
        """
        with self._memory.lock:
            alone = not self._changing
            self._changing = True
            try:
                if alone:
                    self._take_in()
                yield alone
            finally:
                self._changing = not alone

    def _take_in(self) -> None:
        now = self._clock.now_ns
        waits = self._clock.waits
        while self._freed:
            address, block, piece = self._freed.pop(0)
            if piece.waits < waits:  # freed before the host waited, and nobody has asked since
                self._waits = min(self._waits, piece.waits)
            self._memory.close_block(address)
            self._used -= block.asked_bytes
            self._add(piece)
        for piece in self._free:
            if piece.ready_ns <= now:
                piece.stream = None
        if waits != self._waits:
            self._waits = waits
            self._give_back(self._settings[RELEASE_THRESHOLD])

    def trim(self, keep_bytes: int) -> None:
        """Give unused granules back to the device while more than `keep_bytes` are reserved.

        Only what was freed before the host last waited for the device counts as unused.
        """
        with self._alone() as alone:
            if alone:
                self._give_back(keep_bytes)

    def _give_back(self, keep_bytes: int) -> None:
        sure = [p for p in self._free if p.stream is None and p.waits < self._clock.waits]
        runs = list(_runs(sure))
        for granule in sorted(self._granules, reverse=True):
            if len(self._granules) * GRANULE_BYTES <= keep_bytes:
                return
            start = granule * GRANULE_BYTES
            end = (granule + 1) * GRANULE_BYTES
            if any(low <= start and end <= high for low, high in runs):
                self._cut(start, end, None)
                self._granules.remove(granule)
                self._memory.return_pages(self._top - end, GRANULE_BYTES)

    def _grow(self, mine: list[_Piece], size: int) -> int | None:
        """Reserve the granules that a run of `size` bytes needs; where it starts, None without room."""
        holes = []
        for low, high in self._memory.free_pages():
            start = -(-(self._top - high) // GRANULE_BYTES) * GRANULE_BYTES if high < self._top else 0
            end = (self._top - low) // GRANULE_BYTES * GRANULE_BYTES
            if end > start:
                holes.append(_Piece(start, end))
        found = _first_run(sorted([*mine, *holes], key=lambda piece: piece.start), size)
        if found is None:
            return None
        for granule in range(found // GRANULE_BYTES, -(-(found + size) // GRANULE_BYTES)):
            if granule not in self._granules:
                end = (granule + 1) * GRANULE_BYTES
                self._memory.take_pages_at(self._top - end, GRANULE_BYTES)
                self._granules.add(granule)
                self._add(_Piece(granule * GRANULE_BYTES, end))
        self._reserved_high = max(self._reserved_high, len(self._granules) * GRANULE_BYTES)
        return found

    def _add(self, piece: _Piece) -> None:
        """Add a free piece; neighbours that everybody may have become one with it."""
        pieces = sorted([*self._free, piece], key=lambda each: each.start)
        joined = [pieces[0]]
        for each in pieces[1:]:
            last = joined[-1]
            alike = (last.stream, last.ready_ns, last.waits) == (each.stream, each.ready_ns, each.waits)
            if last.end == each.start and alike:
                last.end = each.end
            else:
                joined.append(each)
        self._free = joined

    def _cut(self, start: int, end: int, stream: int | None) -> int:
        """Take a range out of the free pieces; returns when other streams are done with it, 0 for now."""
        kept = []
        wait_ns = 0
        for piece in self._free:
            if piece.end <= start or end <= piece.start:
                kept.append(piece)
                continue
            if piece.stream not in (None, stream):
                wait_ns = max(wait_ns, piece.ready_ns)
            ends = ((piece.start, start), (end, piece.end))
            kept += [_Piece(a, b, piece.stream, piece.ready_ns, piece.waits) for a, b in ends if a < b]
        self._free = kept
        return wait_ns

    # Attributes

    def attribute(self, number: int) -> int:
        """A ``cudaMemPoolAttr`` of the pool.

        Raises
        ------
        CUDARuntimeError
            Status 1 for a number that there is not.
        """
        with self._alone():
            values = {
                **self._settings,
                RESERVED: len(self._granules) * GRANULE_BYTES,
                RESERVED_HIGH: self._reserved_high,
                USED: self._used,
                USED_HIGH: self._used_high,
            }
        if number not in values:
            raise _invalid(f"{number} is no attribute of a memory pool; they are 1 to 8.")
        return values[number]

    def set_attribute(self, number: int, value: int) -> None:
        """Set a ``cudaMemPoolAttr``: those up to 4, and the high marks (6, 8) to 0.

        Raises
        ------
        CUDARuntimeError
            Status 1 for anything else.
        """
        with self._alone():
            if number == RESERVED_HIGH and value == 0:
                self._reserved_high = len(self._granules) * GRANULE_BYTES
            elif number == USED_HIGH and value == 0:
                self._used_high = self._used
            elif number in self._settings:
                self._settings[number] = value
            else:
                raise _invalid(
                    f"attribute {number} of a memory pool cannot be set to {value}; those up to 4 can be "
                    "set, the high marks 6 and 8 to 0."
                )


def _runs(pieces: Iterable[_Piece]) -> Iterator[tuple[int, int]]:
    """Start and end of what adjacent pieces, in order, make together."""
    start = end = -1
    for piece in pieces:
        if piece.start != end:
            if end > start:
                yield start, end
            start = piece.start
        end = piece.end
    if end > start:
        yield start, end


def _first_run(pieces: Iterable[_Piece], size: int) -> int | None:
    return next((start for start, end in _runs(pieces) if end - start >= size), None)


def _invalid(why: str) -> CUDARuntimeError:
    return CUDARuntimeError(1, "cudaErrorInvalidValue", f"invalid argument: {why}")
