"""The pool that serves the program's allocations: what it holds, and all that it does while a block runs."""

from __future__ import annotations

import gc
from dataclasses import replace
from typing import Any

from gpulab import session
from gpulab.lab.memory.hook import AllocationRecorder
from virtualgpu.allocators.released import named
from virtualgpu.records import Provenance
from virtualgpu.records.memory import ACTIONS, AllocatorTrace, Block, BlockMap, Segment

_SEGMENT_FREE = ACTIONS.index("segment_free")
NAME = "CuPy's pool"


def current_pool() -> Any:
    """The pool of the current allocator, or CuPy's default one where that has none."""
    cp = session.cp()
    pool = getattr(cp.cuda.get_allocator(), "__self__", None)
    return pool if hasattr(pool, "total_bytes") else cp.get_default_memory_pool()


def provenance() -> Provenance:
    """Of what the pool of the device in use is seen to do."""
    info = session.backend().device_info()
    if session.which_device().kind == "cuda":
        return Provenance("measured", info.name, "CuPy's memory hooks")
    return info.as_virtual


def block_map(pool: Any) -> tuple[BlockMap, str]:
    """What a pool holds now, and in words what of it cannot be known.

    The virtual GPU's pool tells. CuPy's does not: of it the blocks of living arrays are known.
    """
    if hasattr(pool, "block_map"):
        return pool.block_map(), ""
    cp = session.cp()
    device = int(cp.cuda.Device().id)
    total = int(pool.total_bytes())
    blocks: dict[int, Block] = {}
    for thing in gc.get_objects() if total else ():
        if not issubclass(type(thing), cp.ndarray):
            continue
        memory = thing.data.mem
        if type(memory).__name__ == "PooledMemory" and memory.device_id == device and memory.ptr:
            label = f"{thing.dtype} array of shape {thing.shape}"
            blocks[int(memory.ptr)] = Block(int(memory.ptr), int(memory.size), False, 0, label)
    found = tuple(Segment(at, block.size_bytes, 0, (block,)) for at, block in sorted(blocks.items()))
    unknown = total - sum(block.size_bytes for block in blocks.values())
    note = ""
    if total:
        note = (
            "CuPy's pool does not tell its segments: what it held before is shown as blocks of the arrays "
            f"that lived then{f', and {unknown:,} bytes of it are not shown' if unknown > 0 else ''}."
        )
    return BlockMap(provenance(), device, 0, int(pool.get_limit()), found), note


class PoolRecorder(AllocationRecorder):
    """Events of the current pool from `start` to `trace`, with the segments that it gives back.

    No hook tells of these: the pool's total is read at each event, and shrinks by what went.
    """

    def __init__(self) -> None:
        super().__init__(at_event=self._look)
        self.pool = current_pool()
        self.device = int(self._cp.cuda.Device().id)
        self.first, self.unknown = block_map(self.pool)
        self._total = int(self.pool.total_bytes())
        self._refused_at = 0
        self.capacity_bytes = self._total + int(self._cp.cuda.runtime.memGetInfo()[0])

    def trace(self) -> AllocatorTrace:
        """All that happened so far."""
        self._look()
        # The limit that refused something, or else the last one that there was.
        limit = self._refused_at or int(self.pool.get_limit()) or self.first.limit_bytes
        first = replace(self.first, limit_bytes=limit)
        events, unnamed = named(first, self.events(device=self.device))
        notes = [self.unknown, self.note]
        if unnamed:
            notes.append(
                f"{unnamed:,} bytes that went back to the device are still shown: it is not known which."
            )
        return AllocatorTrace(
            provenance(), self.device, NAME, first, events, tuple(self.stacks),
            capacity_bytes=self.capacity_bytes, note=" ".join(filter(None, notes)),
            texts=tuple(source.text for source in self.sources),
        )  # fmt: skip

    def taken(self, device: int, size: int, address: int) -> None:
        if address and device == self.device:
            self._total += size
            self._look()
        super().taken(device, size, address)

    def allocated(self, device: int, requested: int, size: int, address: int, given: bool) -> None:
        self._look()
        self._refused_at = self._refused_at if given else int(self.pool.get_limit())
        super().allocated(device, requested, size, address, given)

    def _look(self) -> None:
        """Whether the pool gave something back since the last look."""
        if self._cp.cuda.runtime.getDevice() != self.device:
            return  # a pool tells of the current device
        total = int(self.pool.total_bytes())
        gone, self._total = self._total - total, total
        if gone > 0:
            self._add((_SEGMENT_FREE, 0, gone, 0, 0, self._clock(), self._stack(), self.device))
