"""The driver's pools of ``cudaMallocAsync``, which allocates and frees memory in the order of streams.

A pool reserves granules of 32 MiB of the device and divides them into blocks. It releases unused granules,
down to its release threshold, when the host has waited for the device. The numbers, the time of each change
and the block that is reused were recorded on an H200 (driver 580, CUDA 13).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any, Protocol

from virtualgpu.cuda_errors import CUDARuntimeError
from virtualgpu.model.clock import HostClock

GRANULE_BYTES = 32 << 20
UNIT_BYTES = 512
# cudaMemPoolAttr (driver_types.h); the first three are the ways to reuse a freed block.
RELEASE_THRESHOLD = 4
RESERVED_BYTES = 5
PEAK_RESERVED_BYTES = 6
USED_BYTES = 7
PEAK_USED_BYTES = 8


class PageSource(Protocol):
    """The interface of a device's memory that a memory pool uses."""

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
class _FreePiece:
    """A range of free bytes in a pool, which only `stream` can use before `ready_ns`.

    If `stream` is None, every stream can use it. `host_waits` is the number of times that the host had waited
    for the device when the range was freed.
    """

    start: int
    end: int
    stream: int | None = None
    ready_ns: int = 0
    host_waits: int = -1


@dataclass(frozen=True, slots=True)
class _Block:
    start: int
    end: int
    requested_bytes: int


class OrderedPool:
    """A stream-ordered memory pool of the driver, ``cudaMemPool_t``.

    Positions in the pool count down from the top of device memory, because ``cudaMalloc`` allocates from the
    bottom.

    Parameters
    ----------
    memory : PageSource
        Source of the granules.
    clock : HostClock
        Decides when a block that a stream freed is free for other streams, too.
    """

    def __init__(self, memory: PageSource, clock: HostClock) -> None:
        self._memory = memory
        self._clock = clock
        self._top_address = memory.base_address + memory.arena_bytes // GRANULE_BYTES * GRANULE_BYTES
        self._granules: set[int] = set()
        self._free_pieces: list[_FreePiece] = []  # in the order of their positions
        self._blocks: dict[int, _Block] = {}  # by address
        self._last_host_waits = clock.waits
        self._used_bytes = self._peak_used_bytes = self._peak_reserved_bytes = 0
        self._settings = {1: 1, 2: 1, 3: 1, RELEASE_THRESHOLD: 0}
        self._pending_frees: list[tuple[int, _Block, _FreePiece]] = []  # not yet added to the free pieces
        self._is_changing = False

    @property
    def handle(self) -> int:
        """The CUDA handle of the pool."""
        return id(self)

    def owns_block(self, address: int) -> bool:
        """Return whether a live block of the pool starts at the given address."""
        return address in self._blocks

    # Blocks

    def malloc(self, size_bytes: int, stream: int) -> tuple[int, int]:
        """Allocate a block. The result is the block's address and the time in ns until which the stream must
        wait.

        The pool first uses memory that is free or was freed by the same stream, then new granules, and
        finally memory that another stream still uses.

        Raises
        ------
        CUDARuntimeError
            Status 2, ``cudaErrorMemoryAllocation``.
        """
        rounded_bytes = -(-size_bytes // UNIT_BYTES) * UNIT_BYTES
        with self._locked() as can_change:
            block_start = self._find_space(rounded_bytes, stream) if can_change else None
            if block_start is None:
                raise CUDARuntimeError(
                    2,
                    "cudaErrorMemoryAllocation",
                    f"out of memory: {size_bytes:,} bytes requested from a stream-ordered "
                    f"pool, {self._memory.free_bytes:,} bytes free on the device.",
                )
            wait_ns = self._remove_range(block_start, block_start + rounded_bytes, stream)
            address = self._top_address - block_start - rounded_bytes
            self._blocks[address] = _Block(block_start, block_start + rounded_bytes, size_bytes)
            self._memory.open_block(address, rounded_bytes)
            self._used_bytes += size_bytes
            self._peak_used_bytes = max(self._peak_used_bytes, self._used_bytes)
            return address, wait_ns

    def _find_space(self, size: int, stream: int) -> int | None:
        usable_pieces = [
            free_piece for free_piece in self._free_pieces if free_piece.stream in (None, stream)
        ]
        range_start = _find_first_range(usable_pieces, size)
        if range_start is None:
            range_start = self._reserve_granules(usable_pieces, size)
        return _find_first_range(self._free_pieces, size) if range_start is None else range_start

    def free(self, address: int, stream: int | None = None, ready_ns: int = 0) -> None:
        """Free a block of the pool.

        The stream `stream` can reuse the block at once, and other streams can reuse it from `ready_ns` on.
        """
        block = self._blocks.pop(address)
        free_piece = _FreePiece(block.start, block.end, stream, ready_ns, self._clock.waits)
        self._pending_frees.append((address, block, free_piece))
        self.update_pool()

    def update_pool(self) -> None:
        """Update the pool for frees that have taken effect and for waits of the host."""
        with self._locked():
            pass

    @contextmanager
    def _locked(self) -> Iterator[bool]:
        """Context manager that locks the pool; its value is True if the pool may be changed.

        It is False within another call of the same thread, because the garbage collector can run in the
        middle of that call and free an array.
        """
        with self._memory.lock:
            is_outermost = not self._is_changing
            self._is_changing = True
            try:
                if is_outermost:
                    self._apply_frees()
                yield is_outermost
            finally:
                self._is_changing = not is_outermost

    def _apply_frees(self) -> None:
        now_ns = self._clock.now_ns
        host_waits = self._clock.waits
        while self._pending_frees:
            address, block, free_piece = self._pending_frees.pop(0)
            if free_piece.host_waits < host_waits:  # freed before the host waited, and not used since
                self._last_host_waits = min(self._last_host_waits, free_piece.host_waits)
            self._memory.close_block(address)
            self._used_bytes -= block.requested_bytes
            self._add_free_piece(free_piece)
        for free_piece in self._free_pieces:
            if free_piece.ready_ns <= now_ns:
                free_piece.stream = None
        if host_waits != self._last_host_waits:
            self._last_host_waits = host_waits
            self._release_granules(self._settings[RELEASE_THRESHOLD])

    def trim(self, keep_bytes: int) -> None:
        """Return unused granules to the device as long as more than `keep_bytes` bytes are reserved.

        Memory counts as unused only if it was freed before the host's last wait for the device.
        """
        with self._locked() as can_change:
            if can_change:
                self._release_granules(keep_bytes)

    def _release_granules(self, keep_bytes: int) -> None:
        unused_pieces = [
            free_piece
            for free_piece in self._free_pieces
            if free_piece.stream is None and free_piece.host_waits < self._clock.waits
        ]
        unused_runs = list(_find_contiguous_ranges(unused_pieces))
        for granule in sorted(self._granules, reverse=True):
            if len(self._granules) * GRANULE_BYTES <= keep_bytes:
                return
            granule_start = granule * GRANULE_BYTES
            granule_end = (granule + 1) * GRANULE_BYTES
            if any(
                run_start <= granule_start and granule_end <= run_end for run_start, run_end in unused_runs
            ):
                self._remove_range(granule_start, granule_end, None)
                self._granules.remove(granule)
                self._memory.return_pages(self._top_address - granule_end, GRANULE_BYTES)

    def _reserve_granules(self, usable_pieces: list[_FreePiece], size: int) -> int | None:
        """Reserve granules for `size` contiguous bytes; return their start, or None without free memory."""
        free_ranges = []
        for page_start, page_end in self._memory.free_pages():
            grown_start = (
                -(-(self._top_address - page_end) // GRANULE_BYTES) * GRANULE_BYTES
                if page_end < self._top_address
                else 0
            )
            grown_end = (self._top_address - page_start) // GRANULE_BYTES * GRANULE_BYTES
            if grown_end > grown_start:
                free_ranges.append(_FreePiece(grown_start, grown_end))
        run_start = _find_first_range(
            sorted([*usable_pieces, *free_ranges], key=lambda piece: piece.start), size
        )
        if run_start is None:
            return None
        for granule in range(run_start // GRANULE_BYTES, -(-(run_start + size) // GRANULE_BYTES)):
            if granule not in self._granules:
                grown_end = (granule + 1) * GRANULE_BYTES
                self._memory.take_pages_at(self._top_address - grown_end, GRANULE_BYTES)
                self._granules.add(granule)
                self._add_free_piece(_FreePiece(granule * GRANULE_BYTES, grown_end))
        self._peak_reserved_bytes = max(self._peak_reserved_bytes, len(self._granules) * GRANULE_BYTES)
        return run_start

    def _add_free_piece(self, piece: _FreePiece) -> None:
        """Add a free range, and merge it with neighbours that can be used by the same stream."""
        sorted_pieces = sorted([*self._free_pieces, piece], key=lambda free_piece: free_piece.start)
        merged_pieces = [sorted_pieces[0]]
        for piece in sorted_pieces[1:]:
            last_piece = merged_pieces[-1]
            same_owner = (last_piece.stream, last_piece.ready_ns, last_piece.host_waits) == (
                piece.stream,
                piece.ready_ns,
                piece.host_waits,
            )
            if last_piece.end == piece.start and same_owner:
                last_piece.end = piece.end
            else:
                merged_pieces.append(piece)
        self._free_pieces = merged_pieces

    def _remove_range(self, start: int, end: int, stream: int | None) -> int:
        """Remove a range from the free pieces.

        Return the time when other streams have finished with the range, or 0 if none uses it.
        """
        remaining_pieces = []
        wait_ns = 0
        for free_piece in self._free_pieces:
            if free_piece.end <= start or end <= free_piece.start:
                remaining_pieces.append(free_piece)
                continue
            if free_piece.stream not in (None, stream):
                wait_ns = max(wait_ns, free_piece.ready_ns)
            for part_start, part_end in ((free_piece.start, start), (end, free_piece.end)):
                if part_start < part_end:
                    remaining_pieces.append(replace(free_piece, start=part_start, end=part_end))
        self._free_pieces = remaining_pieces
        return wait_ns

    # Attributes

    def get_attribute(self, number: int) -> int:
        """Return the value of an attribute (``cudaMemPoolAttr``) of the pool.

        Raises
        ------
        CUDARuntimeError
            Status 1 for an unknown number.
        """
        with self._locked():
            attribute_values = {
                **self._settings,
                RESERVED_BYTES: len(self._granules) * GRANULE_BYTES,
                PEAK_RESERVED_BYTES: self._peak_reserved_bytes,
                USED_BYTES: self._used_bytes,
                PEAK_USED_BYTES: self._peak_used_bytes,
            }
        if number not in attribute_values:
            raise _make_invalid_value_error(
                f"{number} is not an attribute of a memory pool. The attributes are 1 to 8."
            )
        return attribute_values[number]

    def set_attribute(self, number: int, value: int) -> None:
        """Set the value of an attribute (``cudaMemPoolAttr``) of the pool.

        The attributes with numbers up to 4 accept any value; the high-water marks (6 and 8) only accept 0.

        Raises
        ------
        CUDARuntimeError
            Status 1 for anything else.
        """
        with self._locked():
            if number == PEAK_RESERVED_BYTES and value == 0:
                self._peak_reserved_bytes = len(self._granules) * GRANULE_BYTES
            elif number == PEAK_USED_BYTES and value == 0:
                self._peak_used_bytes = self._used_bytes
            elif number in self._settings:
                self._settings[number] = value
            else:
                raise _make_invalid_value_error(
                    f"attribute {number} of a memory pool cannot be set to {value}. Attributes 1 to 4 can be "
                    "set, and the high marks 6 and 8 can be reset to 0."
                )


def _find_contiguous_ranges(pieces: Iterable[_FreePiece]) -> Iterator[tuple[int, int]]:
    """Yield start and end of each contiguous range of adjacent pieces."""
    range_start = range_end = -1
    for free_piece in pieces:
        if free_piece.start != range_end:
            if range_end > range_start:
                yield range_start, range_end
            range_start = free_piece.start
        range_end = free_piece.end
    if range_end > range_start:
        yield range_start, range_end


def _find_first_range(pieces: Iterable[_FreePiece], size: int) -> int | None:
    return next((start for start, end in _find_contiguous_ranges(pieces) if end - start >= size), None)


def _make_invalid_value_error(reason: str) -> CUDARuntimeError:
    return CUDARuntimeError(1, "cudaErrorInvalidValue", f"invalid argument: {reason}")
