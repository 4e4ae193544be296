"""The rules that a pool must follow, checked on its return values and driver calls for a trace."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from gpulab.processes.values import DamagedBytesError, find_type_name
from gpulab_course.content.n10_allocator.pool import UNIT_BYTES, PoolRequest
from gpulab_course.teach.judge import NotYet, is_integer

_POOL_COUNT = 2
_JOIN_ADVICE = "join free neighbours, and return each free pool block that is a whole segment."


@dataclass(slots=True)
class _PoolBlock:
    """A free or used range of bytes in a segment; a used one contains allocation `number`."""

    start: int
    size: int
    stream: int
    segment: int
    number: int | None = None

    @property
    def end(self) -> int:
        """The address after the last byte of the memory block."""
        return self.start + self.size


class _PoolState:
    """The expected state of a pool: its blocks, sorted by address."""

    def __init__(self) -> None:
        self.blocks: list[_PoolBlock] = []
        self.segments: dict[int, int] = {}

    def find_fitting_blocks(self, size: int, stream: int) -> list[_PoolBlock]:
        """Return the free blocks of this stream with a size of at least `size` bytes."""
        return [
            block
            for block in self.blocks
            if block.number is None and block.stream == stream and block.size >= size
        ]

    def add_segment(self, address: int, size: int, stream: int) -> _PoolBlock:
        """Add a new memory segment to the pool as one free block."""
        self.segments[address] = size
        block = _PoolBlock(address, size, stream, address)
        self.blocks.append(block)
        self.blocks.sort(key=lambda b: b.start)
        return block

    def take_block(self, block: _PoolBlock, start: int, size: int, number: int) -> None:
        """Split a free block into a used block at the address `start` and the free remainders."""
        block_index = self.blocks.index(block)
        split_blocks = [
            _PoolBlock(block.start, start - block.start, block.stream, block.segment),
            _PoolBlock(start, size, block.stream, block.segment, number),
            _PoolBlock(start + size, block.end - start - size, block.stream, block.segment),
        ]
        self.blocks[block_index : block_index + 1] = [
            split_block for split_block in split_blocks if split_block.size > 0
        ]

    def free_block(self, block: _PoolBlock) -> None:
        """Free a memory block, and join it with its free neighbours."""
        block.number = None
        block_index = self.blocks.index(block)
        for left_index in (block_index, block_index - 1):
            if 0 <= left_index < len(self.blocks) - 1:
                left_block = self.blocks[left_index]
                right_block = self.blocks[left_index + 1]
                if (
                    left_block.number is right_block.number is None
                    and left_block.segment == right_block.segment
                ):
                    left_block.size += right_block.size
                    del self.blocks[left_index + 1]

    def find_free_segments(self) -> list[_PoolBlock]:
        """Return the memory segments that contain no used block."""
        return [
            block
            for block in self.blocks
            if block.number is None and block.size == self.segments[block.segment]
        ]

    def drop_segment(self, segment: int) -> None:
        """Remove a memory segment and its blocks from the pool."""
        del self.segments[segment]
        self.blocks = [block for block in self.blocks if block.segment != segment]


def check_log(requests: tuple[PoolRequest, ...], call_log: Any) -> None:
    """Check the return values and driver calls of two memory pools for a trace of requests.

    Raises
    ------
    NotYet
        For the first violation of a rule.
    """
    if not isinstance(call_log, list | tuple) or not all(
        isinstance(log_entry, tuple) and len(log_entry) == 3 for log_entry in call_log
    ):
        raise DamagedBytesError("the log of the pool is invalid")
    pools = [_PoolState() for _ in range(_POOL_COUNT)]
    for error_text, _, driver_calls in call_log[:_POOL_COUNT]:
        if error_text:
            raise NotYet(f"MyPool(driver) {error_text.removeprefix('it ')}")
        if driver_calls:
            raise NotYet(
                "MyPool(driver) calls the driver when the pool is created. Call the driver "
                "only when memory is requested."
            )
    for request, (error_text, return_value, driver_calls) in zip(
        requests, call_log[_POOL_COUNT:], strict=False
    ):
        check_request = _CHECK_FUNCTIONS[request.kind]
        check_request(pools[request.pool], request, error_text, return_value, driver_calls)
    if len(call_log) != len(requests) + _POOL_COUNT:
        raise DamagedBytesError("the log of the pool is incomplete")
    for pool in pools:
        if pool.segments:
            segments_text = f"{len(pool.segments)} segment{'s have' if len(pool.segments) > 1 else ' has'}"
            raise NotYet(
                f"no pool block is in use, but after empty_cache() {segments_text} not been returned to the "
                f"driver: {_JOIN_ADVICE}"
            )


def _check_malloc(
    pool: _PoolState, request: PoolRequest, error_text: str, return_value: Any, driver_calls: Any
) -> None:
    """Check the result of one allocation."""
    call_text = f"malloc({request.size:,}, stream {request.stream})"
    if error_text:
        raise NotYet(f"{call_text} {error_text.removeprefix('it ')}")
    if not is_integer(return_value):
        raise NotYet(
            f"{call_text} should return an address as an integer, but it returns "
            f"{find_type_name(return_value)}."
        )
    address = int(return_value)
    rounded_size_bytes = -(-request.size // UNIT_BYTES) * UNIT_BYTES
    smallest_size = min(
        (block.size for block in pool.find_fitting_blocks(rounded_size_bytes, request.stream)), default=None
    )
    for driver_function, *arguments in driver_calls:
        if driver_function != "malloc":
            raise NotYet(
                f"{call_text} returns a segment to the driver. Only empty_cache() may return segments."
            )
        if smallest_size is not None:
            raise NotYet(
                f"{call_text} takes a new segment, although a free pool block of {smallest_size:,} "
                "bytes of that "
                "stream would fit. Keep freed pool blocks for the next request, cut large ones, and join "
                "free neighbours."
            )
        pool.add_segment(arguments[1], arguments[0], request.stream)
    blocks = [candidate for candidate in pool.blocks if candidate.start <= address < candidate.end]
    for block in blocks:
        if (address - block.segment) % UNIT_BYTES:
            raise NotYet(
                f"{call_text} returns the address {address:#x}, but pool blocks start at multiples of "
                "512 bytes. Round sizes up."
            )
        if block.number is not None:
            raise NotYet(
                f"{call_text} returns memory that overlaps allocation {block.number}, which is still in use."
            )
        if block.stream != request.stream:
            raise NotYet(
                f"{call_text} gets a pool block that stream {block.stream} has used, and the "
                "work of that stream may not be finished. Keep separate lists of free "
                "pool blocks for the streams."
            )
    segment_end = blocks[0].segment + pool.segments[blocks[0].segment] if blocks else 0
    if blocks and segment_end % UNIT_BYTES and address + request.size > segment_end:
        raise NotYet(
            f"{call_text} returns memory that extends beyond the end of its segment, for which your pool "
            f"requested only {pool.segments[blocks[0].segment]:,} bytes from the driver. Round sizes up "
            "before you request a segment."
        )
    if address + request.size > segment_end:
        raise NotYet(
            f"{call_text} returns memory that does not lie in a single segment from the driver. Do not "
            "join pool "
            "blocks of two segments, even if they are neighbours, and use only the segments that your pool "
            "requested."
        )
    block = blocks[0]
    if address + request.size > block.end:
        next_block = next(candidate for candidate in pool.blocks if candidate.start == block.end)
        raise NotYet(
            f"{call_text} returns memory that overlaps allocation {next_block.number}, which is still in use."
        )
    if smallest_size is not None and block.size > smallest_size:
        raise NotYet(
            f"{call_text} uses a pool block of {block.size:,} bytes, although a pool block of "
            f"{smallest_size:,} bytes is free. Take the smallest pool block that fits."
        )
    pool.take_block(block, address, min(rounded_size_bytes, block.end - address), request.number)


def _check_free(
    pool: _PoolState, request: PoolRequest, error_text: str, return_value: Any, driver_calls: Any
) -> None:
    """Check that a call of `free` does not call the driver."""
    (block,) = [candidate for candidate in pool.blocks if candidate.number == request.number]
    if error_text:
        raise NotYet(f"free({block.start:#x}) {error_text.removeprefix('it ')}")
    pool.free_block(block)
    if driver_calls:
        raise NotYet(
            f"free({block.start:#x}) calls the driver: keep the pool block for the next request; only "
            "empty_cache() returns segments."
        )


def _check_refused_free(
    pool: _PoolState, request: PoolRequest, error_text: str, return_value: Any, driver_calls: Any
) -> None:
    """Check that `free` raised an error for an address that is not an allocation."""
    if not error_text:
        address_text = (
            "an address within a pool block in use" if request.size else "a pool block that was freed before"
        )
        raise NotYet(f"free() of {address_text} should raise an error, but your pool accepts the address.")


def _check_empty_cache(
    pool: _PoolState, request: PoolRequest, error_text: str, return_value: Any, driver_calls: Any
) -> None:
    """Check that `empty_cache` returned exactly the segments without used blocks."""
    if error_text:
        raise NotYet(f"empty_cache() {error_text.removeprefix('it ')}")
    for driver_function, *arguments in driver_calls:
        if driver_function == "malloc":
            raise NotYet("empty_cache() takes a segment from the driver, but it should only return segments.")
        if driver_function != "free":
            raise NotYet(
                "your pool returns an address to the driver that is not the start of a segment, or that it "
                "has already returned."
            )
        used_numbers = [
            block.number
            for block in pool.blocks
            if block.segment == arguments[0] and block.number is not None
        ]
        if used_numbers:
            raise NotYet(
                f"empty_cache() returned a segment that contains allocation {used_numbers[0]}, "
                "which is still in use."
            )
        pool.drop_segment(arguments[0])
    if pool.find_free_segments():
        segment_count = len(pool.find_free_segments())
        raise NotYet(
            f"after empty_cache() {segment_count} segment{'s have' if segment_count > 1 else ' has'} not "
            "been returned to the driver, although no pool block in "
            f"{'them' if segment_count > 1 else 'it'} is in use: {_JOIN_ADVICE}"
        )


_CHECK_FUNCTIONS = {
    "malloc": _check_malloc,
    "free": _check_free,
    "refuse": _check_refused_free,
    "empty": _check_empty_cache,
}
