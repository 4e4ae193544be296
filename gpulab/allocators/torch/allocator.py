"""PyTorch's caching allocator for CUDA as a model, as of version 2.11.

The model follows ``c10/cuda/CUDACachingAllocator.cpp``, without private pools of graph captures and of
``torch.cuda.MemPool``, sharing between processes and the allocator's locks.
"""

from __future__ import annotations

from collections import deque

from gpulab.allocators.replay import EventSink, OutOfMemory, RequestError
from gpulab.allocators.torch.blocks import Block, ExpandableSegment, Pool
from gpulab.allocators.torch.device import Device
from gpulab.allocators.torch.settings import SMALL_REQUEST_BYTES, Settings
from gpulab.allocators.torch.statistics import Statistics
from virtualgpu.records import memory as records
from virtualgpu.records.memory import Action, BlockMap
from virtualgpu.records.origin import Provenance

H200_BYTES = 150_109_880_320
"""``totalGlobalMem`` of an H200."""


def _ignore_event(action: Action, address: int, size_bytes: int, requested_bytes: int, stream: int) -> None:
    """Ignore an event. An allocator calls this function until another event sink is set."""


class TorchAllocator:
    """A model of PyTorch's caching allocator for one device.

    A block belongs to the stream and the pool for which it was allocated. One pool serves requests up to 1
    MiB, and the other pool serves larger requests. A request uses the smallest free block that is large
    enough, and splits it. If there is no such block, a new segment is allocated on the device. If this fails,
    cached segments are released before another attempt.

    Parameters
    ----------
    settings : Settings or str, optional
        ``PYTORCH_CUDA_ALLOC_CONF``, parsed or not.
    capacity_bytes : int, optional
        Memory of the device; by default that of an H200.
    other_programs_bytes : int, optional
        Memory that the CUDA context and other programs use.

    Raises
    ------
    SettingsError
        If a setting is wrong.

    Examples
    --------
    >>> pool = TorchAllocator()
    >>> block = pool.malloc(1000, stream=0)
    >>> pool.statistics.read_current("allocated_bytes"), pool.statistics.read_current("reserved_bytes")
    (1024, 2097152)
    """

    name = "PyTorch's caching allocator"

    def __init__(
        self,
        settings: Settings | str = "",
        capacity_bytes: int = H200_BYTES,
        other_programs_bytes: int = 0,
        device_id: int = 0,
        device_name: str = "a GPU",
        device: Device | None = None,
    ) -> None:
        self._settings = settings if isinstance(settings, Settings) else Settings.parse(settings)
        self._device = device or Device(capacity_bytes)
        self._device.used_bytes += other_programs_bytes
        self._device_id = device_id
        self._provenance = Provenance("modelled", device_name, "PyTorch 2.11")
        self.event_sink: EventSink = _ignore_event
        max_split_mb = self._settings.max_split_size_mb
        self.statistics = Statistics(-1 if max_split_mb is None else self._settings.max_split_bytes)
        self._small, self._large = Pool(is_small=True), Pool(is_small=False)
        self._active_blocks: dict[int, Block] = {}
        self._pending_events: dict[int, deque[tuple[Block, list[bool]]]] = {}
        self._reserved_bytes = 0
        self._limit_bytes: int | None = None
        if self._settings.per_process_memory_fraction < 1:
            self._limit_bytes = int(self._settings.per_process_memory_fraction * self._device.capacity_bytes)

    # --- functions that a program calls

    @property
    def settings(self) -> str:
        return self._settings.text

    @property
    def capacity_bytes(self) -> int:
        return self._device.capacity_bytes

    def malloc(self, size_bytes: int, stream: int) -> int:
        """Allocate a block of at least `size_bytes` bytes for `stream`, and return its address. Return 0 for
        a request of 0 bytes.

        Raises
        ------
        OutOfMemory
            If the memory is not sufficient even after all cached blocks were released.
        """
        if size_bytes == 0:
            return 0
        self._process_events()
        rounded_bytes = self._settings.round_size(size_bytes)
        pool = self._small if rounded_bytes <= SMALL_REQUEST_BYTES else self._large
        segment_bytes = self._settings.segment_bytes(rounded_bytes)
        block = self._take_cached_block(pool, stream, rounded_bytes)
        if block is None:
            if self._limit_bytes is not None and self._settings.garbage_collection_threshold > 0:
                self._collect_garbage(self._limit_bytes)
            block = self._allocate_segment_block(pool, stream, rounded_bytes, segment_bytes)
        if block is None and self._release_oversize_blocks(pool, stream, rounded_bytes):
            block = self._allocate_segment_block(pool, stream, rounded_bytes, segment_bytes)
        if block is None:
            self._release_cached_segments()
            self.statistics.num_alloc_retries += 1
            block = self._allocate_segment_block(pool, stream, rounded_bytes, segment_bytes)
        if block is None:
            self.event_sink("oom", self._device.free_bytes, rounded_bytes, size_bytes, stream)
            self.statistics.num_ooms += 1
            raise OutOfMemory(
                f"{size_bytes:,} bytes do not fit: PyTorch's allocator has reserved "
                f"{self._reserved_bytes:,} bytes, of which "
                f"{self.statistics.read_current('allocated_bytes'):,} are in use, and can "
                f"reserve {self._available_bytes():,} more."
            )
        return self._allocate_block(block, pool, rounded_bytes, size_bytes)

    def free(self, address: int) -> None:
        """Free a block of memory. If other streams use the block, it is freed after their work has ended."""
        if address == 0:
            return
        block = self._find_used_block(address)
        block.is_allocated = False
        pool = block.pool.name
        self.statistics.subtract("allocation", pool, 1)
        self.statistics.subtract("allocated_bytes", pool, block.size)
        self.event_sink("free_requested", address, block.size, block.requested_bytes, block.stream)
        if block.size >= self._settings.max_split_bytes:
            self.statistics.oversize_allocations.subtract(1)
        if not block.using_streams:
            self._free_block(block)
            return
        used_streams = block.using_streams
        block.using_streams = set()
        for stream in used_streams:
            block.pending_event_count += 1
            self._pending_events.setdefault(stream, deque()).append((block, [False]))

    def record_stream(self, address: int, stream: int) -> None:
        if address == 0:
            return
        block = self._find_used_block(address)
        if stream != block.stream:
            block.using_streams.add(stream)

    def complete_stream_work(self, stream: int) -> None:
        for _, is_over in self._pending_events.get(stream, ()):
            is_over[0] = True

    def empty_cache(self) -> None:
        self._release_cached_segments()

    def set_limit(self, size_bytes: int) -> None:
        self._limit_bytes = size_bytes or None

    def set_memory_fraction(self, fraction: float) -> None:
        """Set the memory limit of the process, as ``torch.cuda.set_per_process_memory_fraction`` does. The
        value 1 removes the limit.
        """
        self._limit_bytes = None if fraction >= 1 else int(fraction * self._device.capacity_bytes)

    def block_map(self) -> BlockMap:
        """Return the current segments and blocks of the allocator. Unmapped gaps divide an expandable segment
        into parts.
        """
        first_blocks = [
            block
            for block in (*self._active_blocks.values(), *self._small, *self._large)
            if block.previous_block is None
        ]
        first_blocks += [
            block
            for pool in (self._small, self._large)
            for block in pool.list_holes()
            if block.previous_block is None
        ]
        segments = tuple(
            _make_segment(first_block)
            for first_block in sorted(first_blocks, key=lambda block: block.address)
        )
        return BlockMap(self._provenance, self._device_id, 0, self._limit_bytes or 0, segments)

    # --- finding a block

    def _take_cached_block(self, pool: Pool, stream: int, size: int) -> Block | None:
        """Remove the best free block for a request from the pool and return it, or None."""
        if self._limit_bytes is not None and self._settings.garbage_collection_threshold > 0:
            pool.search_count += 1
        block_index = pool.find_block_index(stream, size)
        block = pool.block_at(block_index)
        if block is None or block.stream != stream:
            return None
        if block.expandable_segment:
            block = self._find_best_expandable_block(pool, block_index, block)
        if block is None:
            return None
        max_split_bytes = self._settings.max_split_bytes
        if size < max_split_bytes <= block.size:
            return None
        if size >= max_split_bytes and block.size >= size + self._settings.max_rounding_bytes:
            return None
        pool.remove(block)
        return block

    def _find_best_expandable_block(self, pool: Pool, index: int, block: Block) -> Block | None:
        """Return the best free block for a request, as PyTorch selects it in expandable segments.

        A block in front of unmapped addresses counts with the size to which it can grow.
        """

        def count_growable_bytes(block: Block) -> int:
            hole = block.next_block
            return block.size + (hole.size if hole is not None and not hole.is_mapped else 0)

        while True:
            index += 1
            candidate = pool.block_at(index)
            if candidate is None or candidate.stream != block.stream:
                return block
            if not block.expandable_segment or count_growable_bytes(candidate) >= count_growable_bytes(block):
                return block
            block = candidate

    def _allocate_segment_block(self, pool: Pool, stream: int, size: int, segment_bytes: int) -> Block | None:
        if self._limit_bytes is not None and self._reserved_bytes + segment_bytes > self._limit_bytes:
            return None
        if self._settings.expandable_segments:
            return self._grow_segment(pool, stream, size)
        address = self._device.malloc(segment_bytes)
        if address is None:
            return None
        self._reserved_bytes += segment_bytes
        self.statistics.add("segment", pool.name, 1)
        self.statistics.add("reserved_bytes", pool.name, segment_bytes)
        if segment_bytes >= self._settings.max_split_bytes:
            self.statistics.oversize_segments.add(1)
        self.statistics.num_device_alloc += 1
        self.event_sink("segment_alloc", address, segment_bytes, 0, stream)
        return Block(pool, stream, address, segment_bytes)

    def _allocate_block(self, block: Block, pool: Pool, size: int, requested_bytes: int) -> int:
        """Split a block that was removed from its pool, if possible, and mark it as allocated."""
        was_split = block.is_split
        statistics = self.statistics
        if self._settings.splits_block(block.size, size, pool.is_small, self._settings.expandable_segments):
            remaining_block = block
            block = Block(
                pool,
                remaining_block.stream,
                remaining_block.address,
                size,
                remaining_block.expandable_segment,
            )
            block.insert_before(remaining_block)
            remaining_block.address += size
            remaining_block.size -= size
            pool.add(remaining_block)
            if not block.expandable_segment:
                if was_split:
                    statistics.subtract("inactive_split_bytes", pool.name, block.size)
                else:
                    statistics.add("inactive_split_bytes", pool.name, remaining_block.size)
                    statistics.add("inactive_split", pool.name, 1)
        elif was_split and not block.expandable_segment:
            statistics.subtract("inactive_split_bytes", pool.name, block.size)
            statistics.subtract("inactive_split", pool.name, 1)
        block.is_allocated = True
        block.requested_bytes = requested_bytes
        self.event_sink("alloc", block.address, block.size, requested_bytes, block.stream)
        self._active_blocks[block.address] = block
        statistics.add("allocation", pool.name, 1)
        statistics.add("allocated_bytes", pool.name, block.size)
        statistics.add("active", pool.name, 1)
        statistics.add("active_bytes", pool.name, block.size)
        statistics.add("requested_bytes", pool.name, requested_bytes)
        if block.size >= self._settings.max_split_bytes:
            statistics.oversize_allocations.add(1)
        return block.address

    # --- expandable segments

    def _grow_segment(self, pool: Pool, stream: int, size: int) -> Block | None:
        """Map memory into gaps of an expandable segment, or after its end, until `size` bytes are free."""
        block = self._find_room_to_grow(pool, stream, size)
        if not block.is_mapped and not self._map_memory(block, min(block.size, size)):
            return None
        while block.size < size:
            next_hole = block.next_block
            assert next_hole is not None
            if not self._map_memory(next_hole, min(size - block.size, next_hole.size)):
                return None
            block = next_hole
        pool.remove(block)
        return block

    def _find_room_to_grow(self, pool: Pool, stream: int, size: int) -> Block:
        """Return the block at the lowest address at which `size` consecutive bytes are free. These bytes can
        be mapped or unmapped.
        """
        for hole in pool.list_stream_holes(stream):
            first_block = hole
            if hole.previous_block is not None and not hole.previous_block.is_busy:
                first_block = hole.previous_block
            free_bytes = 0
            block: Block | None = first_block
            while free_bytes < size and block is not None and not block.is_busy:
                free_bytes += block.size
                block = block.next_block
            if free_bytes >= size:
                return first_block
        segment = ExpandableSegment(self._device, pool.page_bytes(self._settings.large_segment_bytes))
        unmapped_block = Block(pool, stream, segment.address, segment.size_bytes, segment)
        unmapped_block.is_mapped = False
        pool.add_hole(unmapped_block)
        return unmapped_block

    def _map_memory(self, block: Block, size: int) -> bool:
        """Map memory into the first pages of an unmapped block."""
        segment = block.expandable_segment
        assert segment is not None
        mapped_bytes = -(-size // segment.page_bytes) * segment.page_bytes
        if not self._device.create_memory(mapped_bytes):
            return False
        pool = block.pool
        start_address = block.address
        pool.remove_hole(block)
        block.is_mapped = True
        if mapped_bytes < block.size:
            remaining_block = Block(
                pool, block.stream, block.address + mapped_bytes, block.size - mapped_bytes, segment
            )
            remaining_block.is_mapped = False
            remaining_block.insert_after(block)
            pool.add_hole(remaining_block)
            block.size = mapped_bytes
        self._merge_neighbour(block, block.previous_block)
        self._merge_neighbour(block, block.next_block)
        pool.add(block)
        self._reserved_bytes += mapped_bytes
        self.statistics.add("reserved_bytes", pool.name, mapped_bytes)
        self.statistics.num_device_alloc += 1
        self.event_sink("segment_map", start_address, mapped_bytes, 0, block.stream)
        return True

    def _unmap_memory(self, block: Block) -> None:
        """Unmap the whole pages of a free block."""
        segment = block.expandable_segment
        assert segment is not None
        page_bytes = segment.page_bytes
        first_page = -(-(block.address - segment.address) // page_bytes)
        end_page = (block.address + block.size - segment.address) // page_bytes
        if first_page >= end_page:
            return
        start_address = segment.address + first_page * page_bytes
        unmapped_bytes = (end_page - first_page) * page_bytes
        pool = block.pool
        pool.remove(block)
        head_bytes = start_address - block.address
        tail_bytes = block.address + block.size - start_address - unmapped_bytes
        if head_bytes:
            head_block = Block(pool, block.stream, block.address, head_bytes, segment)
            head_block.insert_before(block)
            pool.add(head_block)
        if tail_bytes:
            tail_block = Block(pool, block.stream, start_address + unmapped_bytes, tail_bytes, segment)
            tail_block.insert_after(block)
            pool.add(tail_block)
        block.address = start_address
        block.size = unmapped_bytes
        block.is_mapped = False
        self._merge_neighbour(block, block.previous_block)
        self._merge_neighbour(block, block.next_block)
        pool.add_hole(block)
        self._device.release_memory(unmapped_bytes)
        self._reserved_bytes -= unmapped_bytes
        self.statistics.subtract("reserved_bytes", pool.name, unmapped_bytes)
        self.statistics.num_device_free += 1
        self.event_sink("segment_unmap", start_address, unmapped_bytes, 0, block.stream)

    # --- freeing blocks

    def _find_used_block(self, address: int) -> Block:
        block = self._active_blocks.get(address)
        if block is None or not block.is_allocated:
            raise RequestError(
                f"No block in use starts at {address:#x}. The block has been freed, or belongs to another "
                "allocator."
            )
        return block

    def _free_block(self, block: Block) -> None:
        """Return a block to its pool, after it is merged with its free neighbours."""
        pool = block.pool
        block_bytes = block.size
        requested_bytes = block.requested_bytes
        self.event_sink("free_completed", block.address, block_bytes, requested_bytes, block.stream)
        del self._active_blocks[block.address]
        split_blocks = split_bytes = 0
        for neighbour in (block.previous_block, block.next_block):
            merged_bytes = self._merge_neighbour(block, neighbour)
            if merged_bytes:
                split_blocks -= 1
                split_bytes -= merged_bytes
        pool.add(block)
        block.requested_bytes = 0
        if block.is_split:
            split_blocks += 1
            split_bytes += block.size
        statistics = self.statistics
        if not block.expandable_segment:
            statistics.change("inactive_split", pool.name, split_blocks)
            statistics.change("inactive_split_bytes", pool.name, split_bytes)
        statistics.subtract("active", pool.name, 1)
        statistics.subtract("active_bytes", pool.name, block_bytes)
        statistics.subtract("requested_bytes", pool.name, requested_bytes)

    def _merge_neighbour(self, block: Block, neighbour: Block | None) -> int:
        """Merge a neighbour in the same state into `block`; return its size, or 0 if it is not merged."""
        if neighbour is None or neighbour.is_busy or neighbour.is_mapped != block.is_mapped:
            return 0
        if neighbour.is_mapped:
            block.pool.remove(neighbour)
        else:
            block.pool.remove_hole(neighbour)
        if block.previous_block is neighbour:
            block.address = neighbour.address
            block.previous_block = neighbour.previous_block
            if block.previous_block is not None:
                block.previous_block.next_block = block
        else:
            block.next_block = neighbour.next_block
            if block.next_block is not None:
                block.next_block.previous_block = block
        block.size += neighbour.size
        return neighbour.size

    def _process_events(self) -> None:
        """Free the blocks for which all streams have finished their work."""
        for stream in self._sort_streams():
            waiting_blocks = self._pending_events[stream]
            while waiting_blocks and waiting_blocks[0][1][0]:
                self._complete_event(waiting_blocks.popleft()[0])
            if not waiting_blocks:
                del self._pending_events[stream]

    def _synchronize_events(self) -> None:
        self.statistics.num_sync_all_streams += 1
        for stream in self._sort_streams():
            for block, _ in self._pending_events.pop(stream):
                self._complete_event(block)

    def _sort_streams(self) -> list[int]:
        """Return the streams in PyTorch's order: the default stream, then the side streams, newest first.

        This order was recorded with three side streams; with more streams, PyTorch's hash table has another
        order. It affects only the order in which blocks become free, not which blocks are free at the end.
        """
        return sorted(self._pending_events, key=lambda stream: (stream != 0, -stream))

    def _complete_event(self, block: Block) -> None:
        block.pending_event_count -= 1
        if block.pending_event_count == 0:
            self._free_block(block)

    # --- releasing segments

    def _release_cached_segments(self) -> None:
        """Wait for the streams, and then release every segment that is completely free."""
        self._synchronize_events()
        for pool in (self._large, self._small):
            unused_ranges = []
            for block in pool:
                if block.expandable_segment:
                    unused_ranges.append(block)
                elif not block.is_split:
                    self._release_segment(block)
            for block in unused_ranges:
                self._unmap_memory(block)
                if not block.is_split and not block.is_mapped:
                    pool.remove_hole(block)
                    assert block.expandable_segment is not None
                    self._device.release_addresses(block.expandable_segment.address)

    def _release_segment(self, block: Block) -> None:
        pool = block.pool
        self.statistics.num_device_free += 1
        self.event_sink("segment_free", block.address, block.size, 0, block.stream)
        self._device.free(block.address, block.size)
        self._reserved_bytes -= block.size
        self.statistics.subtract("segment", pool.name, 1)
        self.statistics.subtract("reserved_bytes", pool.name, block.size)
        if block.size >= self._settings.max_split_bytes:
            self.statistics.oversize_segments.subtract(1)
        pool.remove(block)
        for stream in self._pending_events:  # cudaFree waits for the device
            self.complete_stream_work(stream)

    def _release_oversize_blocks(self, pool: Pool, stream: int, size: int) -> bool:
        """Release blocks that are too large to be split, as many as the request needs."""
        max_split_bytes = self._settings.max_split_bytes
        if self._settings.max_split_size_mb is None:
            return False
        needed_bytes = max(size, max_split_bytes)
        block_index = pool.find_block_index(stream, needed_bytes)
        block = pool.block_at(block_index)
        if block is not None and block.stream == stream and not block.expandable_segment:
            self._release_segment(block)
            return True
        released_bytes = 0
        while released_bytes < needed_bytes:
            block_index -= 1
            block = pool.block_at(block_index)
            if block is None or block.size < max_split_bytes or block.stream != stream:
                break
            if not block.expandable_segment:
                released_bytes += block.size
                self._release_segment(block)
        return released_bytes >= needed_bytes

    def _collect_garbage(self, limit_bytes: int) -> None:
        """Release large free blocks that have been unused for longer than the average large block."""
        threshold_bytes = int(self._settings.garbage_collection_threshold * limit_bytes)
        if self._reserved_bytes <= threshold_bytes:
            return
        target_bytes = self._reserved_bytes - threshold_bytes
        large_pool = self._large

        def count_searches(block: Block) -> int:
            return large_pool.search_count - block.search_count_at_insertion

        unsplit_blocks = [block for block in large_pool if not block.is_split]
        total_searches = sum(count_searches(block) for block in unsplit_blocks)
        block_count = len(unsplit_blocks)
        reclaimed_bytes = 0
        has_released = True
        while reclaimed_bytes < target_bytes and has_released and block_count > 0:
            has_released = False
            average_searches = total_searches / block_count
            for block in large_pool:
                if (
                    not block.is_split
                    and not block.expandable_segment
                    and count_searches(block) >= average_searches
                ):
                    has_released = True
                    reclaimed_bytes += block.size
                    total_searches -= count_searches(block)
                    block_count -= 1
                    self._release_segment(block)

    def _available_bytes(self) -> int:
        free_bytes = self._device.free_bytes
        return (
            free_bytes
            if self._limit_bytes is None
            else max(0, min(free_bytes, self._limit_bytes - self._reserved_bytes))
        )


def _make_segment(first_block: Block) -> records.Segment:
    blocks = []
    block: Block | None = first_block
    while block is not None:
        is_waiting = block.is_busy and not block.is_allocated
        blocks.append(
            records.Block(
                address=block.address,
                size_bytes=block.size,
                is_free=not block.is_busy,
                requested_bytes=block.requested_bytes if block.is_busy else 0,
                is_waiting=is_waiting,
                is_unmapped=not block.is_mapped,
            )
        )
        block = block.next_block
    segment_bytes = blocks[-1].end - first_block.address
    return records.Segment(
        first_block.address,
        segment_bytes,
        first_block.stream,
        tuple(blocks),
        first_block.pool.name,
        first_block.expandable_segment is not None,
    )
