"""The reference pool of exercise 10-pool, traces of requests, and a driver that records its calls."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from gpulab import session
from gpulab.processes.errors import describe_error
from gpulab_course.teach.judge import DataGenerator

UNIT_BYTES = 512


class MyPool:
    """The reference memory pool, which uses best fit, and keeps free blocks separately for each stream."""

    def __init__(self, driver: Any) -> None:
        self.driver = driver
        self.blocks: dict[int, list[Any]] = {}  # address -> [size, stream, segment, free]

    def malloc(self, size: int, stream: int) -> int:
        """Return the address of a block of at least `size` bytes for a stream."""
        size = -(-size // UNIT_BYTES) * UNIT_BYTES
        candidates = [
            (block[0], address)
            for address, block in self.blocks.items()
            if block[3] and block[1] == stream and block[0] >= size
        ]
        if not candidates:
            address = int(self.driver.malloc(size))
            self.blocks[address] = [size, stream, address, False]
            return address
        free_size, address = min(candidates)
        segment = self.blocks[address][2]
        self.blocks[address] = [size, stream, segment, False]
        if free_size > size:
            self.blocks[address + size] = [free_size - size, stream, segment, True]
        return address

    def free(self, address: int) -> None:
        """Mark a block as free and join it with its free neighbours."""
        block = self.blocks.get(address)
        if block is None or block[3]:
            raise ValueError(f"no block in use starts at {address:#x}")
        block[3] = True
        right_block = self.blocks.get(address + block[0])
        if right_block is not None and right_block[3] and right_block[2] == block[2]:
            del self.blocks[address + block[0]]
            block[0] += right_block[0]
        for left_address, left_block in self.blocks.items():
            if left_block[3] and left_block[2] == block[2] and left_address + left_block[0] == address:
                left_block[0] += block[0]
                del self.blocks[address]
                break

    def empty_cache(self) -> None:
        """Return each memory segment without used blocks to the driver."""
        segments = {block[2] for block in self.blocks.values()}
        for segment in segments:
            addresses = [address for address, block in self.blocks.items() if block[2] == segment]
            if len(addresses) == 1 and self.blocks[segment][3]:
                del self.blocks[segment]
                self.driver.free(segment)


class NoPool:
    """The naive memory pool, which calls the driver for each allocation and each release."""

    def __init__(self, driver: Any) -> None:
        self.driver = driver
        self.sizes: dict[int, int] = {}

    def malloc(self, size: int, stream: int) -> int:
        """Return the address of a new memory segment."""
        address = int(self.driver.malloc(size))
        self.sizes[address] = size
        return address

    def free(self, address: int) -> None:
        """Return a memory segment to the driver."""
        if address not in self.sizes:
            raise ValueError("not mine")
        del self.sizes[address]
        self.driver.free(address)

    def empty_cache(self) -> None:
        """Do nothing, because this pool keeps no memory."""


@dataclass(frozen=True, slots=True)
class PoolRequest:
    """One request to a memory pool, as a part of a trace.

    A ``malloc`` request allocates `size` bytes under the number `number`, and a ``free`` request with this
    number frees them. ``refuse`` frees an address `size` bytes after the start of the allocation, which must
    raise an error. ``empty`` calls `empty_cache`. ``pool`` is 0 or 1, the index of one of two independent
    pools.
    """

    kind: str
    number: int = 0
    size: int = 0
    stream: int = 0
    pool: int = 0


def draw_requests(random_data: DataGenerator, count: int) -> tuple[PoolRequest, ...]:
    """Return a trace of requests to a memory pool. The first requests test each rule of a pool, and the
    following requests are random.
    """
    rng = random_data.rng
    unit_bytes = UNIT_BYTES
    request_number = 0
    requests: list[PoolRequest] = []
    # A pool must compare all bits of stream numbers.
    base_stream = int(rng.integers(1, 9))
    streams = 0, base_stream, base_stream + (1 << int(rng.integers(2, 21)))
    high_stream = streams[2]

    def allocate(size: int, stream: int = 0, pool: int = 0) -> int:
        nonlocal request_number
        requests.append(PoolRequest("malloc", request_number, size, stream, pool))
        request_number += 1
        return request_number - 1

    def release(*block_numbers: int, pool: int = 0) -> None:
        requests.extend(PoolRequest("free", block_number, pool=pool) for block_number in block_numbers)

    # Sizes are rounded up: a freed block of 100 bytes can hold 500 bytes, but not 513.
    small_block = allocate(100)
    release(small_block)
    requests.append(PoolRequest("refuse", small_block))
    release(allocate(500))
    requests += [PoolRequest("empty"), PoolRequest("refuse", small_block)]  # a block of a returned segment
    if count > 1:
        # Cut one segment into four blocks, free them in random order, and request the whole size again.
        release(allocate(64 * unit_bytes))
        quarter_blocks = [allocate(16 * unit_bytes) for _ in range(4)]
        requests.append(PoolRequest("refuse", quarter_blocks[1], unit_bytes))
        release(*(quarter_blocks[k] for k in rng.permutation(4)))
        requests.append(PoolRequest("refuse", quarter_blocks[2]))
        half_blocks = allocate(64 * unit_bytes), allocate(64 * unit_bytes)
        release(*half_blocks)
        # Two segments are adjacent: no block may reach from one into the other.
        release(allocate(65 * unit_bytes))
        # The remainder of a block must serve a request of exactly its size.
        requests.append(PoolRequest("empty"))
        release(allocate(64 * unit_bytes))
        for first_size, second_size in (
            (1, 63 * unit_bytes),
            (unit_bytes + 1, 62 * unit_bytes),
            (3 * unit_bytes, 61 * unit_bytes - 1),
            (63 * unit_bytes, 1),
            (62 * unit_bytes - 1, 2 * unit_bytes),
        ):
            release(allocate(first_size), allocate(second_size))
        requests.append(PoolRequest("empty"))
        # The smallest block that fits, whatever the order of addresses and of frees.
        for _ in range(3):
            sizes_bytes = [int(n) * unit_bytes for n in rng.permutation([9, 14, 20, 31])]
            blocks = [allocate(size_bytes) for size_bytes in sizes_bytes]
            release(*(blocks[k] for k in rng.permutation(4)))
            release(
                *[
                    allocate(int(n))
                    for n in rng.permutation(
                        [9 * unit_bytes - 7, 10 * unit_bytes, 15 * unit_bytes, 21 * unit_bytes]
                    )
                ]
            )
            requests.append(PoolRequest("empty"))
        # The same within one segment, with blocks in use between.
        release(allocate(100 * unit_bytes))
        blocks = [allocate(int(n) * unit_bytes) for n in (30, 1, 12, 1, 20, 1, 35)]
        release(*(blocks[k] for k in rng.permutation([0, 2, 4, 6])))
        release(
            *[allocate(int(n) * unit_bytes) for n in rng.permutation([11, 19, 29])],
            blocks[1],
            blocks[3],
            blocks[5],
        )
        requests.append(PoolRequest("empty"))
        # Neighbours on both sides, on the left, on the right.
        release(allocate(48 * unit_bytes))
        blocks = [allocate(8 * unit_bytes) for _ in range(6)]
        release(blocks[0], blocks[2], blocks[1])
        left_block = allocate(24 * unit_bytes)
        release(blocks[5], blocks[4])
        right_block = allocate(16 * unit_bytes)
        release(left_block, right_block, blocks[3])
        # A segment with a block in use stays; a segment that is completely free is returned.
        block_pair = allocate(20 * unit_bytes), allocate(20 * unit_bytes)
        large_block = allocate(90 * unit_bytes)
        release(block_pair[0], large_block)
        requests.append(PoolRequest("empty"))
        release(block_pair[1])
        requests.append(PoolRequest("empty"))
        # Blocks of different streams and of different pools must not be mixed.
        release(allocate(16 * unit_bytes, high_stream))
        release(allocate(16 * unit_bytes, 0))
        release(allocate(16 * unit_bytes, high_stream))
        release(allocate(40 * unit_bytes, pool=1), pool=1)
        release(allocate(16 * unit_bytes, high_stream, 1), allocate(40 * unit_bytes, pool=1), pool=1)
        release(allocate(40 * unit_bytes))
        requests += [PoolRequest("empty", pool=1), PoolRequest("empty")]
    live_numbers: list[int] = []
    for _ in range(count if count > 1 else 0):
        if rng.random() < 0.02:
            requests.append(PoolRequest("empty"))
        elif live_numbers and rng.random() < 0.47:
            release(live_numbers.pop(int(rng.integers(len(live_numbers)))))
        else:
            size_bytes = int(rng.integers(1, 9)) * int(
                rng.choice([100, unit_bytes, 4 * unit_bytes, 40 * unit_bytes])
            )
            live_numbers.append(allocate(size_bytes + int(rng.integers(-1, 2)), int(rng.choice(streams))))
    release(*live_numbers)
    if live_numbers:
        requests.append(PoolRequest("refuse", live_numbers[-1]))
    return (*requests, PoolRequest("empty"))


class DriverModel:
    """A model of the device driver, which records the calls of ``malloc(size)`` and ``free(address)`` by a
    pool.

    Consecutive memory segments are adjacent, as on a real device.
    """

    def __init__(self, start_address: int) -> None:
        self._runtime = session.cp().cuda.runtime
        self._next_address = start_address
        self._pointers: dict[int, int] = {}  # by the address for the pool
        self.calls: list[tuple[Any, ...]] = []

    def malloc(self, size: int) -> int:
        """Return the address of a new memory segment of `size` bytes."""
        size = int(size)
        if size <= 0:
            raise ValueError(f"the pool requests {size} bytes from the driver")
        pointer = self._runtime.malloc(size)
        address = self._next_address
        self._next_address = self._next_address + -(-size // UNIT_BYTES) * UNIT_BYTES
        self._pointers[address] = pointer
        self.calls.append(("malloc", size, address))
        return address

    def free(self, address: int) -> None:
        """Return a memory segment to the device."""
        if address not in self._pointers:
            self.calls.append(("no segment",))
            raise ValueError("no segment starts at this address, or it was returned before")
        self._runtime.free(self._pointers.pop(address))
        self.calls.append(("free", int(address)))


def replay_requests(
    make_pool: Callable[[Any], Any], requests: tuple[PoolRequest, ...]
) -> list[tuple[Any, ...]]:
    """Send a trace of requests to two memory pools, until a pool raises an unexpected error.

    Returns
    -------
    list
        One entry for the construction of each pool and for each request: the error text or "", the returned
        value, and the driver calls during the request. `pool_rules` checks the entries.
    """
    drivers = DriverModel(1 << 40), DriverModel(1 << 44)
    call_log: list[tuple[Any, ...]] = []
    pools: list[Any] = []
    addresses: dict[int, Any] = {}

    def record_call(driver: DriverModel, function: Any, *arguments: Any) -> Any:
        error_text = ""
        return_value = None
        first_call_index = len(driver.calls)
        try:
            return_value = function(*arguments)
        except Exception as error:
            error_text = describe_error(error)
        call_log.append((error_text, return_value, driver.calls[first_call_index:]))
        return return_value

    for driver in drivers:
        pools.append(record_call(driver, make_pool, driver))
        call_log[-1] = call_log[-1][0], None, call_log[-1][2]
    for request in requests:
        if call_log[-1][0] and (
            len(call_log) <= len(drivers) or requests[len(call_log) - len(drivers) - 1].kind != "refuse"
        ):
            break
        driver = drivers[request.pool]
        pool = pools[request.pool]
        if request.kind == "empty":
            record_call(driver, lambda pool=pool: pool.empty_cache())
        elif request.kind == "malloc":
            addresses[request.number] = record_call(
                driver, lambda *a, pool=pool: pool.malloc(*a), request.size, request.stream
            )
            if type(addresses[request.number]) is not int and not hasattr(
                addresses[request.number], "__index__"
            ):
                break
        else:
            address = addresses[request.number] + (request.size if request.kind == "refuse" else 0)
            record_call(driver, lambda *a, pool=pool: pool.free(*a), address)
    return call_log
