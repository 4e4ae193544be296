"""A model of CuPy's memory pool, which handles requests without a device."""

from __future__ import annotations

from dataclasses import dataclass

from gpulab.allocators.replay import EventSink, OutOfMemory, RequestError
from gpulab.allocators.torch.allocator import H200_BYTES
from gpulab.allocators.torch.device import Device
from virtualgpu.allocators.chunks import Chunk
from virtualgpu.allocators.pool import ChunkPool
from virtualgpu.allocators.sizes import round_size
from virtualgpu.records.memory import Action, Block, BlockMap, Segment
from virtualgpu.records.origin import Provenance


@dataclass(frozen=True, slots=True)
class _AddressRange:
    """A range of addresses in the memory of the modelled device."""

    ptr: int
    size: int


def _ignore_event(action: Action, address: int, size_bytes: int, requested_bytes: int, stream: int) -> None:
    """Ignore an event. An allocator calls this function until another event sink is set."""


class CuPyAllocator:
    """A model of the memory pool of CuPy 14.2 for one device. The model uses the same algorithm as the memory
    pool of the virtual GPU.

    Parameters
    ----------
    limit_bytes : int
        Bytes that the pool can allocate on the device; 0 for no limit.
    capacity_bytes : int
        Memory of the device; an H200's by default.

    Examples
    --------
    >>> pool = CuPyAllocator()
    >>> block = pool.malloc(1000, stream=0)
    >>> pool.used_bytes, pool.total_bytes, pool.n_free_blocks
    (1024, 1024, 0)
    """

    name = "CuPy's pool"
    settings = ""

    def __init__(
        self,
        limit_bytes: int = 0,
        capacity_bytes: int = H200_BYTES,
        device_id: int = 0,
        device_name: str = "a GPU",
    ) -> None:
        self.event_sink: EventSink = _ignore_event
        self._device = Device(capacity_bytes)
        self._pool: ChunkPool[_AddressRange] = ChunkPool(handle_release=self._release_segment)
        self._request_stream = 0  # of the current request
        self._used_chunks: dict[
            int, tuple[Chunk[_AddressRange], int]
        ] = {}  # by address, with the requested bytes
        self._device_id = device_id
        self._provenance = Provenance("modelled", device_name, "CuPy 14.2")
        self.set_limit(limit_bytes)

    @property
    def capacity_bytes(self) -> int:
        return self._device.capacity_bytes

    @property
    def used_bytes(self) -> int:
        """The total size in bytes of the blocks in use. The size of each block is rounded up to a multiple of
        512.
        """
        return self._pool.used_bytes()

    @property
    def total_bytes(self) -> int:
        """The number of bytes that the memory pool has allocated on the device."""
        return self._pool.total_bytes()

    @property
    def n_free_blocks(self) -> int:
        return self._pool.n_free_blocks()

    def malloc(self, size_bytes: int, stream: int) -> int:
        """Allocate a block of memory for `stream`, and return its address. Return 0 for a request of 0 bytes.

        Raises
        ------
        OutOfMemory
            If the limit or the device's memory is exceeded even after all free blocks were released.
        """
        if size_bytes == 0:
            return 0
        rounded_bytes = round_size(size_bytes)
        self._request_stream = stream
        chunk = self._pool.take_chunk(rounded_bytes, stream, self._allocate_segment)
        if chunk is None:
            self.event_sink("oom", self._device.free_bytes, rounded_bytes, size_bytes, stream)
            limit_bytes = self._pool.limit_bytes
            raise OutOfMemory(
                f"{size_bytes:,} bytes do not fit: CuPy's pool has reserved {self.total_bytes:,} bytes, "
                f"of which {self.used_bytes:,} are in use"
                + (
                    f", and its limit is {limit_bytes:,} bytes."
                    if limit_bytes
                    else ", and the device is full."
                )
            )
        self._used_chunks[chunk.address] = chunk, size_bytes
        self.event_sink("alloc", chunk.address, rounded_bytes, size_bytes, stream)
        return chunk.address

    def free(self, address: int) -> None:
        """Free a block of memory. Later requests in the stream of the block can reuse it immediately."""
        if address == 0:
            return
        if address not in self._used_chunks:
            raise RequestError(
                f"No block in use starts at {address:#x}. The block has been freed, or was never allocated."
            )
        chunk, requested_bytes = self._used_chunks.pop(address)
        freed_bytes = chunk.size
        stream = chunk.arena.stream
        self._pool.return_chunk(chunk)
        self.event_sink("free_requested", address, freed_bytes, requested_bytes, stream)
        self.event_sink("free_completed", address, freed_bytes, requested_bytes, stream)

    def record_stream(self, address: int, stream: int) -> None:
        """Do nothing, because CuPy's memory pool knows only the stream in which a block was allocated."""

    def complete_stream_work(self, stream: int) -> None:
        """Do nothing, because CuPy's memory pool does not wait for streams."""

    def empty_cache(self) -> None:
        """Release all completely free segments, so that the device can reuse their memory
        (``free_all_blocks()``).
        """
        self._pool.free_all_blocks()

    def set_limit(self, size_bytes: int) -> None:
        """Limit the number of bytes that the memory pool may hold on the device. The value 0 removes the
        limit.
        """
        if size_bytes < 0:
            raise RequestError(
                f"The limit is {size_bytes:,} bytes, but it must not be negative. 0 means no limit."
            )
        self._pool.limit_bytes = size_bytes

    def block_map(self) -> BlockMap:
        """Return the current segments and blocks of the memory pool."""
        segments = tuple(
            Segment(
                chunk.mem.ptr,
                chunk.mem.size,
                chunk.arena.stream,
                tuple(map(self._make_block, chunk.iterate_to_end())),
            )
            for chunk in self._pool.segments()
        )
        return BlockMap(self._provenance, self._device_id, 0, self._pool.limit_bytes, segments)

    def _make_block(self, chunk: Chunk[_AddressRange]) -> Block:
        requested_bytes = 0 if chunk.is_free else self._used_chunks[chunk.address][1]
        return Block(
            address=chunk.address,
            size_bytes=chunk.size,
            is_free=chunk.is_free,
            requested_bytes=requested_bytes,
        )

    def _allocate_segment(self, size: int) -> _AddressRange | None:
        address = self._device.malloc(size)
        if address is None:
            return None
        self.event_sink("segment_alloc", address, size, 0, self._request_stream)
        return _AddressRange(address, size)

    def _release_segment(self, chunk: Chunk[_AddressRange]) -> None:
        self._device.free(chunk.address, chunk.size)
        self.event_sink("segment_free", chunk.address, chunk.size, 0, chunk.arena.stream)
