"""Random programs for memory pools, the same on every machine, and their results.

A program is a list of steps made from a seed. It never asks for a size that two free blocks fit equally
well: which of them CuPy takes depends on where its records lie in the host's memory, and differs from run to
run. `Reference` knows the pool's documented rules and nothing of any implementation; it foresees such cases.
"""

from __future__ import annotations

import base64
import gc
import lzma
import random
import threading
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager
from typing import Any

import numpy as np
import numpy.typing as npt

Step = tuple[Any, ...]
Rows = npt.NDArray[np.int32]

UNIT = 512
MIB = 1 << 20
BEYOND = 1 << 43  # no device has as much
# instead of a segment: refused, 0 bytes, no allocation
FAILED = -1
NOTHING = -2
OTHER = -3


class Reference:
    """A simple memory pool. Each segment is a pair of a stream and a list of blocks."""

    def __init__(self, budget: int) -> None:
        self.budget = budget
        self.limit = 0
        self.segments: list[tuple[int, list[list[int]]]] = []
        self.garbage: set[int] = set()

    @property
    def blocks(self) -> Iterator[list[int]]:
        return (block for _, blocks in self.segments for block in blocks)

    def total(self) -> int:
        return sum(size for size, _ in self.blocks)

    def state(self) -> tuple[int, int, int]:
        """Return bytes in use, bytes in total, and free blocks."""
        free_sizes = [size for size, name in self.blocks if name < 0]
        total_bytes = self.total()
        return total_bytes - sum(free_sizes), total_bytes, len(free_sizes)

    def fitting(self, size: int, stream: int) -> list[tuple[int, int]]:
        """Return the smallest free blocks that fit, as pairs of a segment and an index."""
        candidates = [
            (block[0], i, j)
            for i, (owner, blocks) in enumerate(self.segments)
            for j, block in enumerate(blocks)
            if owner == stream and block[1] < 0 and block[0] >= size
        ]
        return [(i, j) for block_size, i, j in candidates if block_size == min(candidates)[0]]

    def malloc(self, name: int, size: int, stream: int) -> bool:
        size = -(-size // UNIT) * UNIT
        if not size:
            return True
        candidate_indices = self.fitting(size, stream)
        if candidate_indices:
            i, j = candidate_indices[0]
            blocks = self.segments[i][1]
            remaining_size = blocks[j][0] - size
            blocks[j : j + 1] = [[size, name], *([[remaining_size, -1]] if remaining_size else [])]
            return True
        if self.limit and size > self.limit:
            return False
        for bound_bytes in (self.limit or size + self.total(), self.budget):
            for make_room in (None, self.empty, self.collect):
                if make_room and self.total() + size > bound_bytes:
                    make_room()
                    self.empty()
            if self.total() + size > bound_bytes:
                return False
        self.segments.append((stream, [[size, name]]))
        return True

    def free(self, name: int) -> None:
        for _, blocks in self.segments:
            for block in blocks:
                block[1] = -1 if block[1] == name else block[1]
            for j in reversed(range(1, len(blocks))):
                if blocks[j][1] < 0 and blocks[j - 1][1] < 0:
                    blocks[j - 1][0] += blocks.pop(j)[0]

    def collect(self) -> None:
        for name in self.garbage:
            self.free(name)
        self.garbage.clear()

    def empty(self, stream: int | None = None) -> None:
        self.segments = [
            (owner, blocks)
            for owner, blocks in self.segments
            if len(blocks) > 1 or blocks[0][1] >= 0 or stream not in (None, owner)
        ]


def _draw_block_sizes(rng: random.Random) -> list[int]:
    """Return the sizes of a program: from a byte to hundreds of MiB, also 0, and a unit plus or minus one."""
    edge_sizes = [0, *(UNIT * rng.randint(1, 6) + odd_bytes for odd_bytes in (-1, 0, 1))]
    size_makers = {
        "bytes": lambda: rng.randint(1, 8 * UNIT),
        "KiB": lambda: rng.randint(1, 1024) << 10,
        "MiB": lambda: rng.randint(1, 64) * MIB + rng.choice([0, 0, 1, -1, 777]),
        "large": lambda: rng.randint(64, 400) * MIB,
    }
    chosen_scales = rng.choice(
        [["bytes"], ["KiB"], ["MiB"], ["bytes", "KiB"], ["MiB", "large"], list(size_makers)]
    )
    sizes = [size_makers[rng.choice(chosen_scales)]() for _ in range(rng.randint(5, 9))]
    return sizes + rng.sample(edge_sizes, rng.randint(0, 3))


def program(seed: int, capacity: int, steps: int = 50, ties: bool = False) -> tuple[int, list[Step]]:
    """Draw a memory limit in bytes, or 0 for none, and a list of steps.

    ``("malloc", name, stream, bytes)``, ``("free", name)``, ``("lose", name)`` (in a cycle of garbage),
    ``("collect",)``, ``("empty", stream)`` (-1: all), ``("limit", bytes)``, ``("fraction", part)``.
    """
    rng = random.Random(seed)
    block_sizes = _draw_block_sizes(rng)
    streams = rng.randint(1, 3)
    memory_limit = 0 if rng.random() < 0.7 else int(sum(block_sizes) * rng.uniform(0.8, 3)) + UNIT
    reference_pool = Reference(memory_limit or capacity)
    live_names: list[int] = []
    program_steps: list[Step] = []
    weights = {"malloc": 50, "free": 36, "lose": 3, "collect": 1, "empty": 4, "limit": 3, "fraction": 2}
    for name in range(steps):
        match rng.choices(list(weights), list(weights.values()))[0]:
            case "malloc":
                size = rng.choice(
                    [*block_sizes, *(size // rng.randint(2, 5) for size in block_sizes), max(block_sizes)]
                )
                size = rng.choice([size, rng.randint(1, max(block_sizes))]) if rng.random() < 0.3 else size
                size = BEYOND if rng.random() < 0.005 else size
                stream = rng.randrange(streams)
                if not ties and len(reference_pool.fitting(-(-size // UNIT) * UNIT, stream)) > 1:
                    continue
                program_steps.append(("malloc", name, stream, size))
                if reference_pool.malloc(name, size, stream):
                    live_names.append(name)
            case "free" | "lose" as kind if live_names:
                freed_name = live_names.pop(rng.randrange(len(live_names)))
                program_steps.append((kind, freed_name))
                if kind == "free":
                    reference_pool.free(freed_name)
                else:
                    reference_pool.garbage.add(freed_name)
            case "collect":
                program_steps.append(("collect",))
                reference_pool.collect()
            case "empty":
                stream = rng.randint(-1, streams - 1)
                program_steps.append(("empty", stream))
                reference_pool.empty(None if stream < 0 else stream)
            case "limit" | "fraction" as kind:
                used_bytes, total_bytes, _ = reference_pool.state()
                near_limit = rng.choice(
                    [
                        0,
                        total_bytes,
                        used_bytes,
                        total_bytes + rng.choice(block_sizes),
                        int(total_bytes * rng.uniform(0.6, 3)),
                    ]
                )
                if kind == "limit":
                    reference_pool.limit = max(0, near_limit + rng.choice([-1, 0, 0, 1]))
                    program_steps.append(("limit", reference_pool.limit))
                else:
                    fraction = round(min(1.0, near_limit / capacity), 9)
                    reference_pool.limit = int(fraction * capacity)
                    program_steps.append(("fraction", fraction))
    return memory_limit, program_steps


def run(xp: Any, seed: int, capacity: int, ties: bool = False) -> Rows:
    """Run the steps of `program` with CuPy or a similar module, and return the state after each step.

    Used and total units of 512 bytes, free blocks, the limit's units rounded down, segments asked of the
    device so far; segment (numbered as they came) and offset of a new block in units, or why there is none.
    """
    memory_limit, steps = program(seed, capacity, ties=ties)
    segments: list[tuple[int, int]] = []
    segment_requests = [0]

    class Segments(xp.cuda.MemoryHook):  # type: ignore[misc]
        name = "segments"

        def alloc_postprocess(self, **event: int) -> None:
            segment_requests[0] += 1
            if event["mem_ptr"]:
                segments.append((event["mem_ptr"], event["mem_size"]))

    pool = xp.cuda.MemoryPool(_limited_malloc(xp, memory_limit) if memory_limit else None)
    streams = [xp.cuda.Stream.null, xp.cuda.Stream(non_blocking=True), xp.cuda.Stream()]
    pointers: dict[int, Any] = {}
    rows = []
    with Segments():
        for step_kind, *arguments in steps:
            segment_index = OTHER
            offset_bytes = 0
            if step_kind == "malloc":
                name, stream, size = arguments
                segment_index = FAILED
                offset_bytes = 0
                try:
                    with streams[stream]:
                        pointers[name] = pool.malloc(size)
                except xp.cuda.memory.OutOfMemoryError:
                    pass
                else:
                    segment_index, offset_bytes = _find_segment(pointers[name].ptr, segments)
            elif step_kind == "free":
                pointers.pop(arguments[0], None)
            elif step_kind == "lose":
                garbage_cycle = [pointers.pop(arguments[0], None)]
                garbage_cycle.append(garbage_cycle)
                del garbage_cycle
            elif step_kind == "collect":
                gc.collect()
            elif step_kind == "empty":
                pool.free_all_blocks(None if arguments[0] < 0 else streams[arguments[0]])
            else:
                pool.set_limit(**{"size" if step_kind == "limit" else step_kind: arguments[0]})
            used_bytes = pool.used_bytes()
            total_bytes = pool.total_bytes()
            free_block_count = pool.n_free_blocks()
            limit_bytes = pool.get_limit()
            assert pool.free_bytes() == total_bytes - used_bytes
            rows.append(
                (
                    used_bytes // UNIT,
                    total_bytes // UNIT,
                    free_block_count,
                    limit_bytes // UNIT,
                    segment_requests[0],
                    segment_index,
                    offset_bytes // UNIT,
                )
            )
        pointers.clear()
        gc.collect()
        pool.free_all_blocks()
        assert pool.total_bytes() == 0
    return np.array(rows, np.int32)


def _find_segment(address: int, segments: Sequence[tuple[int, int]]) -> tuple[int, int]:
    if not address:
        return NOTHING, 0
    for i in reversed(range(len(segments))):
        segment_start, size = segments[i]
        if segment_start <= address < segment_start + size:
            return i, address - segment_start
    raise AssertionError(f"{address:#x} lies in no segment that a hook was told of")


def _limited_malloc(xp: Any, memory_limit: int) -> Any:
    """Return an allocator of ``cudaMalloc`` that fails beyond `budget` bytes in all."""
    size_by_address: dict[int, int] = {}

    def take(size: int, device_id: int) -> int:
        free_bytes = memory_limit - sum(size_by_address.values())
        address = int(xp.cuda.runtime.malloc(size if size <= free_bytes else BEYOND))
        size_by_address[address] = size
        return address

    def give(address: int, device_id: int) -> None:
        del size_by_address[address]
        xp.cuda.runtime.free(address)

    return xp.cuda.PythonFunctionAllocator(take, give).malloc


def pinned(xp: Any, seed: int, steps: int = 40) -> Rows:
    """Run a random program with the pool of pinned memory, and return a row after each step.

    Rows: free blocks; of a new block the bytes, which of the buffers so far it is, and the buffers so far.
    """
    rng = random.Random(seed)
    buffer_sizes = [rng.choice([rng.randint(0, 3 * UNIT), rng.randint(1, 300) << 10]) for _ in range(5)]
    buffer_sizes += [UNIT * 2 ** rng.randint(0, 3) + odd_bytes for odd_bytes in (-1, 0, 1)]
    buffer_addresses: list[int] = []

    def count(size: int) -> Any:
        pointer = xp.cuda.PinnedMemoryPointer(xp.cuda.PinnedMemory(size), 0)
        buffer_addresses.append(pointer.ptr)
        return pointer

    pool = xp.cuda.PinnedMemoryPool(count)
    pointers: list[Any] = []
    rows = []
    for _ in range(steps):
        pointer_bytes = buffer_index = OTHER
        step_kind = rng.choices(["malloc", "free", "empty"], [50, 44, 6])[0]
        if step_kind == "malloc":
            pointers.append(pool.malloc(rng.choice(buffer_sizes)))
            pointer_bytes = pointers[-1].size()
            buffer_index = (
                len(buffer_addresses) - 1 - buffer_addresses[::-1].index(pointers[-1].ptr)
                if pointer_bytes
                else NOTHING
            )
        elif step_kind == "free" and pointers:
            pointers.pop(rng.randrange(len(pointers)))
        elif step_kind == "empty":
            pool.free_all_blocks()
        rows.append((pool.n_free_blocks(), pointer_bytes, buffer_index, len(buffer_addresses)))
    return np.array(rows, np.int32)


def ordered(xp: Any, seed: int, steps: int = 30) -> Rows:
    """Run a random program with `MemoryAsyncPool`. Each row contains the used and the total units."""
    rng = random.Random(seed)
    block_sizes = [rng.choice([rng.randint(0, 4 * UNIT), rng.randint(1, 80) * MIB]) for _ in range(6)]
    pool_handle = xp.cuda.runtime.memPoolCreate(_own_pool(xp))
    default_pool_handle = xp.cuda.runtime.deviceGetDefaultMemPool(0)
    pool = xp.cuda.MemoryAsyncPool(pool_handle)
    streams = [xp.cuda.Stream(non_blocking=True) for _ in range(2)]
    pointers: list[tuple[int, Any]] = []
    rows = []
    try:
        for _ in range(steps):
            step_kind = rng.choices(["malloc", "free", "synchronize", "empty"], [50, 38, 6, 6])[0]
            stream_index = rng.randrange(2)
            if step_kind == "malloc":
                with streams[stream_index]:
                    pointers.append((stream_index, pool.malloc(rng.choice(block_sizes))))
            elif step_kind == "free" and pointers:
                pointers.pop(rng.randrange(len(pointers)))
                for stream in streams:
                    stream.synchronize()
            elif step_kind == "synchronize":
                streams[stream_index].synchronize()
            elif step_kind == "empty":
                pool.free_all_blocks(streams[stream_index])
            rows.append((pool.used_bytes() // UNIT, pool.total_bytes() // UNIT))
        pointers.clear()
        xp.cuda.Device().synchronize()
    finally:
        xp.cuda.runtime.deviceSetMemPool(0, default_pool_handle)
        xp.cuda.runtime.memPoolDestroy(pool_handle)
    return np.array(rows, np.int32)


def _own_pool(xp: Any) -> Any:
    return xp.cuda.runtime.MemPoolProps(1, 0, 1, 0)


def nested(xp: Any, seed: int, steps: int = 30) -> Rows:
    """Run a random program that switches one thread or all between two memory pools or none.

    Rows: used units, total units and free blocks of both pools; whose a new block is (0 and 1: the
    pools', 2: the device's), or why there is none (`FAILED`: the allocator could not be changed).
    """
    rng = random.Random(seed)
    size_bytes = UNIT * rng.randint(
        1, 100
    )  # one alone: which of several free blocks is taken does not show then
    pools = [xp.cuda.MemoryPool() for _ in range(2)]
    allocators = [pools[0].malloc, pools[1].malloc, None]
    previous_allocator = xp.cuda.get_allocator()
    entered_contexts: list[AbstractContextManager[Any]] = []
    pointers: list[Any] = []
    rows = []

    def figures() -> list[int]:
        return [
            n for p in pools for n in (p.used_bytes() // UNIT, p.total_bytes() // UNIT, p.n_free_blocks())
        ]

    def allocate() -> None:
        pointers.append(xp.cuda.alloc(size_bytes))

    xp.cuda.set_allocator(pools[0].malloc)
    for _ in range(steps):
        owner_index = OTHER
        old_figures = figures()
        match rng.choices(["alloc", "thread", "free", "enter", "leave", "set"], [40, 10, 25, 12, 12, 4])[0]:
            case "alloc" | "thread" as kind:
                if kind == "alloc":
                    allocate()
                else:
                    thread = threading.Thread(target=allocate)
                    thread.start()
                    thread.join()
                new_figures = figures()
                owner_index = (
                    0 if new_figures[0] > old_figures[0] else 1 if new_figures[3] > old_figures[3] else 2
                )
                assert (owner_index == 2) == (type(pointers[-1].mem) is xp.cuda.Memory)
            case "free" if pointers:
                pointers.pop(rng.randrange(len(pointers)))
            case "enter":
                entered_contexts.append(xp.cuda.using_allocator(rng.choice(allocators)))
                entered_contexts[-1].__enter__()
            case "leave" if entered_contexts:
                entered_contexts.pop().__exit__(None, None, None)
            case "set":
                try:
                    xp.cuda.set_allocator(rng.choice(allocators))
                except ValueError:
                    owner_index = FAILED
        rows.append([*figures(), owner_index])
    while entered_contexts:
        entered_contexts.pop().__exit__(None, None, None)
    xp.cuda.set_allocator(previous_allocator)
    return np.array(rows, np.int32)


def pack(tables: Sequence[Rows]) -> str:
    """Convert tables with equal numbers of columns to text."""
    row_differences = np.concatenate([np.diff(table, axis=0, prepend=0) for table in tables]).astype("<i4")
    row_counts = np.array([len(table) for table in tables], "<i4")
    packed_bytes = row_counts.tobytes() + np.ascontiguousarray(row_differences.T).tobytes()
    return base64.b85encode(lzma.compress(packed_bytes, preset=9 | lzma.PRESET_EXTREME)).decode()


def unpack(text: str, count: int) -> list[Rows]:
    """Return the `count` tables from the text that `pack` returned."""
    packed_words = np.frombuffer(lzma.decompress(base64.b85decode(text)), "<i4")
    row_counts = packed_words[:count]
    row_differences = packed_words[count:].reshape(-1, int(packed_words[:count].sum())).T
    return [
        np.cumsum(table_differences, axis=0, dtype=np.int32)
        for table_differences in np.split(row_differences, np.cumsum(row_counts)[:-1])
    ]
