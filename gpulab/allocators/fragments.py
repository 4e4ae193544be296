"""Fragmentation of a memory pool in numbers: free bytes, free blocks, and the largest possible request."""

from __future__ import annotations

from virtualgpu.records.memory import Arena, BlockMap, Fragmentation, Segment

# PyTorch's caching allocator: sizes up to 1 MiB are served from segments of 2 MiB, those below 10 MiB from
# segments of 20 MiB, larger ones from segments of their own, in steps of 2 MiB; the pages of expandable
# segments have 2 and 20 MiB (CUDACachingAllocator.cpp: kSmallSize, kSmallBuffer, kLargeBuffer, kRoundLarge).
SMALL_REQUEST_BYTES = 1 << 20
SMALL_PAGE_BYTES = 2 << 20
LARGE_PAGE_BYTES = 20 << 20
OWN_SEGMENT_BYTES = 10 << 20


def measure_fragmentation(block_map: BlockMap, capacity_bytes: int = 0) -> Fragmentation:
    """Return the free memory of a memory pool, in total and for each stream.

    Only requests in the stream of a segment can use its free blocks. In PyTorch's allocator, the segment must
    also belong to the pool for the size of the request. Other requests need memory of the device, as far as
    the limit or `capacity_bytes` allows after unused segments were returned.

    Parameters
    ----------
    capacity_bytes
        Total memory that the pool could allocate on the device; 0 if it is not known.

    Examples
    --------
    >>> measure_fragmentation(pool.block_map()).external
    0.5
    """
    reserved_bytes = block_map.total_bytes
    used_bytes = block_map.used_bytes
    limits_bytes = [limit_bytes for limit_bytes in (block_map.limit_bytes, capacity_bytes) if limit_bytes]
    available_bytes = max(0, min(limits_bytes) - reserved_bytes) if limits_bytes else None
    releasable_bytes = sum(map(count_releasable_bytes, block_map.segments))
    arena_keys = {(segment.stream, segment.pool) for segment in block_map.segments}
    if any(pool for _, pool in arena_keys):  # large requests go to a pool that may have nothing yet
        arena_keys |= {(stream, "large") for stream, _ in arena_keys}
    has_expandable_segment = any(segment.is_expandable for segment in block_map.segments)
    arenas = tuple(
        _make_arena(
            stream,
            pool,
            [segment for segment in block_map.segments if (segment.stream, segment.pool) == (stream, pool)],
            None if available_bytes is None else available_bytes + releasable_bytes,
            has_expandable_segment,
        )
        for stream, pool in sorted(arena_keys)
    )
    rounding_bytes = sum(
        block.size_bytes - block.requested_bytes
        for block in block_map.blocks
        if block.requested_bytes and block.state in ("used", "waiting")
    )
    return Fragmentation(
        provenance=block_map.provenance,
        reserved_bytes=reserved_bytes,
        used_bytes=used_bytes,
        free_bytes=reserved_bytes - used_bytes,
        largest_free_bytes=block_map.largest_free_bytes,
        rounding_bytes=rounding_bytes,
        releasable_bytes=releasable_bytes,
        room_bytes=available_bytes,
        arenas=arenas,
    )


def count_releasable_bytes(segment: Segment) -> int:
    """Return the number of bytes in a segment that `empty_cache` would release to the device."""
    if not segment.is_expandable:
        is_unused = all(block.state == "free" for block in segment.blocks)
        return segment.size_bytes if is_unused else 0
    page_bytes = SMALL_PAGE_BYTES if segment.pool == "small" else LARGE_PAGE_BYTES
    released_bytes = 0
    for block in segment.blocks:
        if block.state == "free":
            start_bytes = -(-(block.address - segment.address) // page_bytes) * page_bytes
            end_bytes = (block.end - segment.address) // page_bytes * page_bytes
            released_bytes += max(0, end_bytes - start_bytes)
    return released_bytes


def _make_arena(
    stream: int, pool: str, segments: list[Segment], device_bytes: int | None, has_expandable_segment: bool
) -> Arena:
    blocks = [block for segment in segments for block in segment.blocks]
    free_sizes = [block.size_bytes for block in blocks if block.state == "free"]
    largest_free_bytes = max(free_sizes, default=0)
    tail_sizes = [_count_tail_bytes(segment) for segment in segments if segment.is_expandable]
    tail_sizes += [0] * (has_expandable_segment and not tail_sizes)
    largest_request_bytes = (
        None
        if device_bytes is None
        else max(
            _find_largest_request(pool, largest_free_bytes),
            _find_largest_new_request(pool, device_bytes, tail_sizes),
        )
    )
    used_bytes = sum(block.size_bytes for block in blocks if block.state in ("used", "waiting"))
    return Arena(
        stream=stream,
        pool=pool,
        used_bytes=used_bytes,
        free_bytes=sum(free_sizes),
        largest_free_bytes=largest_free_bytes,
        free_blocks=len(free_sizes),
        largest_request_bytes=largest_request_bytes,
    )


def _count_tail_bytes(segment: Segment) -> int:
    """Return the free bytes at the end of the mapped part of a segment."""
    mapped_blocks = [block for block in segment.blocks if not block.is_unmapped][-1:]
    return mapped_blocks[0].size_bytes if mapped_blocks and mapped_blocks[0].is_free else 0


def _find_largest_request(pool: str, free_bytes: int) -> int:
    """Return the largest request that a free block of this size can satisfy in a pool."""
    return min(free_bytes, SMALL_REQUEST_BYTES) if pool == "small" else free_bytes


def _find_largest_new_request(pool: str, device_bytes: int, tail_sizes: list[int]) -> int:
    """Return the largest request that new device memory and the free end of a segment can satisfy."""
    if pool == "small":
        return SMALL_REQUEST_BYTES if device_bytes >= SMALL_PAGE_BYTES else 0
    if pool == "large" and tail_sizes:  # whole pages of a tail are among the device's bytes already
        return device_bytes // LARGE_PAGE_BYTES * LARGE_PAGE_BYTES + max(tail_sizes) % LARGE_PAGE_BYTES
    if pool == "large":
        whole_page_bytes = device_bytes // SMALL_PAGE_BYTES * SMALL_PAGE_BYTES
        return whole_page_bytes if whole_page_bytes >= OWN_SEGMENT_BYTES else 0
    return device_bytes
