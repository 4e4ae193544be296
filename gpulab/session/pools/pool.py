"""The memory pool of the program: its present contents, and the recording of its operations."""

from __future__ import annotations

import gc
import sys
import time
from dataclasses import replace
from typing import Any

from gpulab.allocators import released
from gpulab.session import current
from gpulab.session.pools.hook import AllocationRecorder
from gpulab.words import count
from virtualgpu.model import machine
from virtualgpu.records import Provenance
from virtualgpu.records.memory import ACTIONS, AllocatorTrace, Block, BlockMap, Segment

SEGMENT_FREE = ACTIONS.index("segment_free")


def find_current_pool() -> Any:
    """Return the memory pool of the current allocator. If this allocator has no pool, return CuPy's default
    pool.
    """
    cp = current.cp()
    pool = getattr(cp.cuda.get_allocator(), "__self__", None)
    return pool if hasattr(pool, "total_bytes") else cp.get_default_memory_pool()


def is_on_current_device(array: Any) -> bool:
    """Return whether an array is on the device in use."""
    array_memory = array.data.mem
    if memory_owner := getattr(array_memory, "owner", None):  # a virtual array's
        return memory_owner is machine.current().current_device
    return bool(array_memory.device_id == current.cp().cuda.Device().id)


def find_provenance() -> Provenance:
    """Return the origin of memory pool recordings on the device in use, such as measured or modelled."""
    device_provenance = current.backend().provenance
    return (
        replace(device_provenance, detail="CuPy's memory hooks")
        if device_provenance.source == "measured"
        else device_provenance
    )


def make_block_map(pool: Any) -> tuple[BlockMap, str]:
    """Return the present blocks of a memory pool, and a note about information that is not available.

    The virtual GPU's pool can list all of its blocks. CuPy's pool cannot, so only the blocks of existing
    arrays are known.
    """
    cp = current.cp()
    variable_names = current.make_program_names(lambda array: int(array.data.mem.ptr))
    variable_names.collect_names(sys._getframe())

    def add_label(block: Block) -> Block:
        array_name = "" if block.is_free else variable_names.find_array_name(block.address)
        return replace(block, label=f"{array_name}: {block.label}") if array_name else block

    if hasattr(pool, "block_map"):
        pool_map = pool.block_map()
        segments = (
            replace(segment, blocks=tuple(map(add_label, segment.blocks))) for segment in pool_map.segments
        )
        return replace(pool_map, segments=tuple(segments)), ""
    device = int(cp.cuda.Device().id)
    total_bytes = int(pool.total_bytes())
    blocks: dict[int, Block] = {}
    for live_object in gc.get_objects() if total_bytes else ():
        if not issubclass(type(live_object), cp.ndarray):
            continue
        array_memory = live_object.data.mem
        if (
            type(array_memory).__name__ == "PooledMemory"
            and array_memory.device_id == device
            and array_memory.ptr
        ):
            array_label = f"{live_object.dtype} array of shape {live_object.shape}"
            blocks[int(array_memory.ptr)] = Block(
                address=int(array_memory.ptr),
                size_bytes=int(array_memory.size),
                is_free=False,
                requested_bytes=0,
                label=array_label,
            )
    array_segments = tuple(
        Segment(address, block.size_bytes, 0, (add_label(block),))
        for address, block in sorted(blocks.items())
    )
    unknown_bytes = total_bytes - sum(block.size_bytes for block in blocks.values())
    unknown_note = ""
    if total_bytes:
        unknown_bytes_text = (
            f", and {count(unknown_bytes, 'byte')} of it are not shown" if unknown_bytes > 0 else ""
        )
        unknown_note = (
            "CuPy's pool does not report its segments. Memory from before this recording "
            f"is shown as blocks of the arrays that existed then{unknown_bytes_text}."
        )
    return BlockMap(find_provenance(), device, 0, int(pool.get_limit()), array_segments), unknown_note


class SegmentRecorder(AllocationRecorder):
    """A recorder of memory pool events. It also detects segments that the pool returns to the device.

    No hook reports returned segments. The pool's total size is therefore read at each event, and a decrease
    is the size of the returned segments.
    """

    def __init__(self, max_events: int | None = None) -> None:
        self.device = int(current.cp().cuda.Device().id)
        super().__init__(max_events, self.device, before_event=self.record_released_segments)
        self.pool = find_current_pool()
        self._total_bytes = int(self.pool.total_bytes())

    def on_segment_allocation(self, device: int, size: int, address: int) -> None:
        if address and device == self.device:
            self._total_bytes += size
            self.record_released_segments()
        super().on_segment_allocation(device, size, address)

    def on_allocation(self, device: int, requested: int, size: int, address: int, succeeded: bool) -> None:
        self.record_released_segments()
        super().on_allocation(device, requested, size, address, succeeded)

    def record_released_segments(self) -> None:
        """Record an event if the memory pool has returned memory to the device since the last check."""
        if self._cp.cuda.runtime.getDevice() != self.device:
            return  # a pool reports the current device
        total_bytes = int(self.pool.total_bytes())
        released_bytes = self._total_bytes - total_bytes
        self._total_bytes = total_bytes
        if released_bytes > 0:
            self._add_events(
                (
                    SEGMENT_FREE,
                    0,
                    released_bytes,
                    0,
                    0,
                    time.perf_counter_ns(),
                    self._find_stack_index(),
                    self.device,
                )
            )


class PoolRecorder(SegmentRecorder):
    """A recorder of all events of the current memory pool. It also records the contents of the pool before
    the first event.
    """

    def __init__(self) -> None:
        super().__init__()
        self._provenance = find_provenance()
        self.first_map, self.unknown_note = make_block_map(self.pool)
        self._refused_limit_bytes = 0
        self.capacity_bytes = self._total_bytes + int(self._cp.cuda.runtime.memGetInfo()[0])

    def stop(self) -> AllocatorTrace:
        """Stop the recording, and return all events. If the recorder was not started, return the contents of
        the memory pool.
        """
        super().stop()
        self.record_released_segments()
        # The limit that refused something, or else the last one that there was.
        limit_bytes = self._refused_limit_bytes or int(self.pool.get_limit()) or self.first_map.limit_bytes
        first_map = replace(self.first_map, limit_bytes=limit_bytes)
        events, unnamed_bytes = released.name_released_segments(first_map, self.events(device=self.device))
        notes = [self.unknown_note, self.note]
        if unnamed_bytes:
            notes.append(
                f"{count(unnamed_bytes, 'byte')} that the pool returned to the device are "
                "still shown, because it is not known which bytes these are."
            )
        return AllocatorTrace(
            provenance=self._provenance,
            device_id=self.device,
            allocator="CuPy's pool",
            first=first_map,
            events=events,
            stacks=tuple(self.stacks),
            capacity_bytes=self.capacity_bytes,
            note=" ".join(filter(None, notes)),
            texts=tuple(source_line.text for source_line in self.source_lines),
        )

    def on_allocation(self, device: int, requested: int, size: int, address: int, succeeded: bool) -> None:
        self._refused_limit_bytes = self._refused_limit_bytes if succeeded else int(self.pool.get_limit())
        super().on_allocation(device, requested, size, address, succeeded)
