"""Rules for a pool, checked afterwards on its results for a trace and on its calls of the driver."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from gpulab.processes.values import DamagedError, kind_of
from gpulab_course.content.n10_allocator.pool import UNIT_BYTES, Ask
from gpulab_course.teach.judge import NotYet, is_whole

_POOLS = 2
_JOIN = "join what is free, and give back each block that is a whole segment."


@dataclass(slots=True)
class _Block:
    """Bytes of a segment: free, or in use as allocation `number`."""

    start: int
    size: int
    stream: int
    segment: int
    number: int | None = None

    @property
    def end(self) -> int:
        return self.start + self.size


class _Pool:
    """The state of a pool that follows the rules: blocks in order of their addresses."""

    def __init__(self) -> None:
        self.blocks: list[_Block] = []
        self.segments: dict[int, int] = {}
        self._last: dict[int, int] = {}  # multiple of 512 bytes: the stream that had it

    def fits(self, size: int, stream: int) -> list[_Block]:
        return [b for b in self.blocks if b.number is None and b.stream == stream and b.size >= size]

    def add(self, address: int, size: int, stream: int) -> _Block:
        self.segments[address] = size
        block = _Block(address, size, stream, address)
        self.blocks.append(block)
        self.blocks.sort(key=lambda b: b.start)
        return block

    def take(self, block: _Block, start: int, size: int, number: int) -> None:
        """Cut an allocation out of a free block."""
        at = self.blocks.index(block)
        parts = [
            _Block(block.start, start - block.start, block.stream, block.segment),
            _Block(start, size, block.stream, block.segment, number),
            _Block(start + size, block.end - start - size, block.stream, block.segment),
        ]
        self.blocks[at : at + 1] = [part for part in parts if part.size > 0]

    def free(self, block: _Block) -> None:
        """Free a block, and join it with its free neighbours."""
        block.number = None
        at = self.blocks.index(block)
        for first in (at, at - 1):
            if 0 <= first < len(self.blocks) - 1:
                one = self.blocks[first]
                two = self.blocks[first + 1]
                if one.number is two.number is None and one.segment == two.segment:
                    one.size += two.size
                    del self.blocks[first + 1]

    def whole(self) -> list[_Block]:
        """Return the segments that are completely free."""
        return [b for b in self.blocks if b.number is None and b.size == self.segments[b.segment]]

    def drop(self, segment: int) -> None:
        del self.segments[segment]
        self.blocks = [b for b in self.blocks if b.segment != segment]


def look_at(asks: tuple[Ask, ...], log: Any) -> None:
    """Check the actions of a pool.

    Raises
    ------
    NotYet
        For the first thing that a pool may not do.
    """
    if not isinstance(log, list | tuple) or not all(
        isinstance(part, tuple) and len(part) == 3 for part in log
    ):
        raise DamagedError("no log of a pool")
    pools = [_Pool() for _ in range(_POOLS)]
    for said, _, noted in log[:_POOLS]:
        if said:
            raise NotYet(f"MyPool(driver) {said.removeprefix('it ')}")
        if noted:
            raise NotYet("MyPool(driver) asks the driver for memory already: wait until somebody needs it.")
    for ask, (said, returned, noted) in zip(asks, log[_POOLS:], strict=False):
        {"malloc": _malloc, "free": _free, "refuse": _refuse, "empty": _empty}[ask.kind](
            pools[ask.pool], ask, said, returned, noted
        )
    if len(log) != len(asks) + _POOLS:
        raise DamagedError("no whole log of a pool")
    for pool in pools:
        if pool.segments:
            left = f"{len(pool.segments)} segment{'s have' if len(pool.segments) > 1 else ' has'}"
            raise NotYet(
                f"nothing is in use any more, and after empty_cache() {left} not gone back to the "
                f"driver: {_JOIN}"
            )


def _malloc(pool: _Pool, ask: Ask, said: str, returned: Any, noted: Any) -> None:
    name = f"malloc({ask.size:,}, stream {ask.stream})"
    if said:
        raise NotYet(f"{name} {said.removeprefix('it ')}")
    if not is_whole(returned):
        raise NotYet(f"{name} should return an address, a whole number, not {kind_of(returned)}.")
    address = int(returned)
    size = -(-ask.size // UNIT_BYTES) * UNIT_BYTES
    smallest = min((block.size for block in pool.fits(size, ask.stream)), default=None)
    for what, *about in noted:
        if what != "malloc":
            raise NotYet(f"{name} gives a segment back to the driver: only empty_cache() does.")
        if smallest is not None:
            raise NotYet(
                f"{name} takes a new segment, though a free block of {smallest:,} bytes of that stream "
                "would do: keep what is freed for the next request, cut large blocks, and join free "
                "neighbours."
            )
        pool.add(about[1], about[0], ask.stream)
    inside = [b for b in pool.blocks if b.start <= address < b.end]
    for block in inside:
        if (address - block.segment) % UNIT_BYTES:
            raise NotYet(
                f"{name} is at {address:#x}: blocks start at multiples of 512 bytes; round sizes up."
            )
        if block.number is not None:
            raise NotYet(f"{name} lies on top of allocation {block.number}, which is still in use.")
        if block.stream != ask.stream:
            raise NotYet(
                f"{name} is given a block that stream {block.stream} has used, and nothing says that its "
                "work is over: keep the free blocks of each stream apart."
            )
    end = inside[0].segment + pool.segments[inside[0].segment] if inside else 0
    if inside and end % UNIT_BYTES and address + ask.size > end:
        raise NotYet(
            f"{name} reaches beyond its segment, for which the driver was asked for only "
            f"{pool.segments[inside[0].segment]:,} bytes: round sizes up before you ask."
        )
    if address + ask.size > end:
        raise NotYet(
            f"{name} does not lie within one segment of the driver: blocks of two segments must not be "
            "joined, even where they lie side by side, and each pool has segments of its own."
        )
    block = inside[0]
    if address + ask.size > block.end:
        after = next(b for b in pool.blocks if b.start == block.end)
        raise NotYet(f"{name} lies on top of allocation {after.number}, which is still in use.")
    if smallest is not None and block.size > smallest:
        raise NotYet(
            f"{name} is cut out of a block of {block.size:,} bytes, though one of {smallest:,} bytes is "
            "free: take the smallest block that fits."
        )
    pool.take(block, address, min(size, block.end - address), ask.number)


def _free(pool: _Pool, ask: Ask, said: str, returned: Any, noted: Any) -> None:
    (block,) = [b for b in pool.blocks if b.number == ask.number]
    if said:
        raise NotYet(f"free({block.start:#x}) {said.removeprefix('it ')}")
    pool.free(block)
    if noted:
        raise NotYet(
            f"free({block.start:#x}) calls the driver: keep what is freed for the next request; only "
            "empty_cache() gives segments back."
        )


def _refuse(pool: _Pool, ask: Ask, said: str, returned: Any, noted: Any) -> None:
    if not said:
        what = "an address within a block in use" if ask.size else "a block that was freed before"
        raise NotYet(f"free() of {what} should raise an error; your pool takes it.")


def _empty(pool: _Pool, ask: Ask, said: str, returned: Any, noted: Any) -> None:
    if said:
        raise NotYet(f"empty_cache() {said.removeprefix('it ')}")
    for what, *about in noted:
        if what == "malloc":
            raise NotYet("empty_cache() takes a segment of the driver.")
        if what != "free":
            raise NotYet("your pool gives the driver an address that starts no segment, or gives it twice.")
        used = [b.number for b in pool.blocks if b.segment == about[0] and b.number is not None]
        if used:
            raise NotYet(f"empty_cache() gave back a segment with allocation {used[0]} in it.")
        pool.drop(about[0])
    if pool.whole():
        left = len(pool.whole())
        raise NotYet(
            f"after empty_cache() {left} segment{'s have' if left > 1 else ' has'} not gone back to the "
            f"driver, though nothing is in use there: {_JOIN}"
        )
