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
        free = [size for size, name in self.blocks if name < 0]
        total = self.total()
        return total - sum(free), total, len(free)

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
        indices = self.fitting(size, stream)
        if indices:
            i, j = indices[0]
            blocks = self.segments[i][1]
            remaining_size = blocks[j][0] - size
            blocks[j : j + 1] = [[size, name], *([[remaining_size, -1]] if remaining_size else [])]
            return True
        if self.limit and size > self.limit:
            return False
        for bound in (self.limit or size + self.total(), self.budget):
            for make_room in (None, self.empty, self.collect):
                if make_room and self.total() + size > bound:
                    make_room()
                    self.empty()
            if self.total() + size > bound:
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


def _draw_block_sizes(draw: random.Random) -> list[int]:
    """Return the sizes of a program: from a byte to hundreds of MiB, also 0, and a unit plus or minus one."""
    edge_sizes = [0, *(UNIT * draw.randint(1, 6) + odd_bytes for odd_bytes in (-1, 0, 1))]
    scales = {
        "bytes": lambda: draw.randint(1, 8 * UNIT),
        "KiB": lambda: draw.randint(1, 1024) << 10,
        "MiB": lambda: draw.randint(1, 64) * MIB + draw.choice([0, 0, 1, -1, 777]),
        "large": lambda: draw.randint(64, 400) * MIB,
    }
    chosen_scales = draw.choice(
        [["bytes"], ["KiB"], ["MiB"], ["bytes", "KiB"], ["MiB", "large"], list(scales)]
    )
    sizes = [scales[draw.choice(chosen_scales)]() for _ in range(draw.randint(5, 9))]
    return sizes + draw.sample(edge_sizes, draw.randint(0, 3))


def program(seed: int, capacity: int, steps: int = 50, ties: bool = False) -> tuple[int, list[Step]]:
    """Draw a memory limit in bytes, or 0 for none, and a list of steps.

    ``("malloc", name, stream, bytes)``, ``("free", name)``, ``("lose", name)`` (in a cycle of garbage),
    ``("collect",)``, ``("empty", stream)`` (-1: all), ``("limit", bytes)``, ``("fraction", part)``.
    """
    draw = random.Random(seed)
    block_sizes = _draw_block_sizes(draw)
    streams = draw.randint(1, 3)
    memory_limit = 0 if draw.random() < 0.7 else int(sum(block_sizes) * draw.uniform(0.8, 3)) + UNIT
    model = Reference(memory_limit or capacity)
    live_names: list[int] = []
    result: list[Step] = []
    weights = {"malloc": 50, "free": 36, "lose": 3, "collect": 1, "empty": 4, "limit": 3, "fraction": 2}
    for name in range(steps):
        match draw.choices(list(weights), list(weights.values()))[0]:
            case "malloc":
                size = draw.choice(
                    [*block_sizes, *(size // draw.randint(2, 5) for size in block_sizes), max(block_sizes)]
                )
                size = draw.choice([size, draw.randint(1, max(block_sizes))]) if draw.random() < 0.3 else size
                size = BEYOND if draw.random() < 0.005 else size
                stream = draw.randrange(streams)
                if not ties and len(model.fitting(-(-size // UNIT) * UNIT, stream)) > 1:
                    continue
                result.append(("malloc", name, stream, size))
                if model.malloc(name, size, stream):
                    live_names.append(name)
            case "free" | "lose" as kind if live_names:
                freed_name = live_names.pop(draw.randrange(len(live_names)))
                result.append((kind, freed_name))
                if kind == "free":
                    model.free(freed_name)
                else:
                    model.garbage.add(freed_name)
            case "collect":
                result.append(("collect",))
                model.collect()
            case "empty":
                stream = draw.randint(-1, streams - 1)
                result.append(("empty", stream))
                model.empty(None if stream < 0 else stream)
            case "limit" | "fraction" as kind:
                used, total, _ = model.state()
                near_limit = draw.choice(
                    [0, total, used, total + draw.choice(block_sizes), int(total * draw.uniform(0.6, 3))]
                )
                if kind == "limit":
                    model.limit = max(0, near_limit + draw.choice([-1, 0, 0, 1]))
                    result.append(("limit", model.limit))
                else:
                    fraction = round(min(1.0, near_limit / capacity), 9)
                    model.limit = int(fraction * capacity)
                    result.append(("fraction", fraction))
    return memory_limit, result


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
        for kind, *arguments in steps:
            segment = OTHER
            offset = 0
            if kind == "malloc":
                name, stream, size = arguments
                segment = FAILED
                offset = 0
                try:
                    with streams[stream]:
                        pointers[name] = pool.malloc(size)
                except xp.cuda.memory.OutOfMemoryError:
                    pass
                else:
                    segment, offset = _find_segment(pointers[name].ptr, segments)
            elif kind == "free":
                pointers.pop(arguments[0], None)
            elif kind == "lose":
                loop = [pointers.pop(arguments[0], None)]
                loop.append(loop)
                del loop
            elif kind == "collect":
                gc.collect()
            elif kind == "empty":
                pool.free_all_blocks(None if arguments[0] < 0 else streams[arguments[0]])
            else:
                pool.set_limit(**{"size" if kind == "limit" else kind: arguments[0]})
            used = pool.used_bytes()
            total = pool.total_bytes()
            free = pool.n_free_blocks()
            limit = pool.get_limit()
            assert pool.free_bytes() == total - used
            rows.append(
                (
                    used // UNIT,
                    total // UNIT,
                    free,
                    limit // UNIT,
                    segment_requests[0],
                    segment,
                    offset // UNIT,
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
    sizes: dict[int, int] = {}

    def take(size: int, device_id: int) -> int:
        free_bytes = memory_limit - sum(sizes.values())
        address = int(xp.cuda.runtime.malloc(size if size <= free_bytes else BEYOND))
        sizes[address] = size
        return address

    def give(address: int, device_id: int) -> None:
        del sizes[address]
        xp.cuda.runtime.free(address)

    return xp.cuda.PythonFunctionAllocator(take, give).malloc


def pinned(xp: Any, seed: int, steps: int = 40) -> Rows:
    """Run a random program with the pool of pinned memory, and return a row after each step.

    Rows: free blocks; of a new block the bytes, which of the buffers so far it is, and the buffers so far.
    """
    draw = random.Random(seed)
    buffer_sizes = [draw.choice([draw.randint(0, 3 * UNIT), draw.randint(1, 300) << 10]) for _ in range(5)]
    buffer_sizes += [UNIT * 2 ** draw.randint(0, 3) + odd for odd in (-1, 0, 1)]
    buffers: list[int] = []

    def count(size: int) -> Any:
        pointer = xp.cuda.PinnedMemoryPointer(xp.cuda.PinnedMemory(size), 0)
        buffers.append(pointer.ptr)
        return pointer

    pool = xp.cuda.PinnedMemoryPool(count)
    pointers: list[Any] = []
    rows = []
    for _ in range(steps):
        size = buffer = OTHER
        kind = draw.choices(["malloc", "free", "empty"], [50, 44, 6])[0]
        if kind == "malloc":
            pointers.append(pool.malloc(draw.choice(buffer_sizes)))
            size = pointers[-1].size()
            buffer = len(buffers) - 1 - buffers[::-1].index(pointers[-1].ptr) if size else NOTHING
        elif kind == "free" and pointers:
            pointers.pop(draw.randrange(len(pointers)))
        elif kind == "empty":
            pool.free_all_blocks()
        rows.append((pool.n_free_blocks(), size, buffer, len(buffers)))
    return np.array(rows, np.int32)


def ordered(xp: Any, seed: int, steps: int = 30) -> Rows:
    """Run a random program with `MemoryAsyncPool`. Each row contains the used and the total units."""
    draw = random.Random(seed)
    menu = [draw.choice([draw.randint(0, 4 * UNIT), draw.randint(1, 80) * MIB]) for _ in range(6)]
    handle = xp.cuda.runtime.memPoolCreate(_own_pool(xp))
    default = xp.cuda.runtime.deviceGetDefaultMemPool(0)
    pool = xp.cuda.MemoryAsyncPool(handle)
    streams = [xp.cuda.Stream(non_blocking=True) for _ in range(2)]
    pointers: list[tuple[int, Any]] = []
    rows = []
    try:
        for _ in range(steps):
            kind = draw.choices(["malloc", "free", "synchronize", "empty"], [50, 38, 6, 6])[0]
            number = draw.randrange(2)
            if kind == "malloc":
                with streams[number]:
                    pointers.append((number, pool.malloc(draw.choice(menu))))
            elif kind == "free" and pointers:
                pointers.pop(draw.randrange(len(pointers)))
                for stream in streams:
                    stream.synchronize()
            elif kind == "synchronize":
                streams[number].synchronize()
            elif kind == "empty":
                pool.free_all_blocks(streams[number])
            rows.append((pool.used_bytes() // UNIT, pool.total_bytes() // UNIT))
        pointers.clear()
        xp.cuda.Device().synchronize()
    finally:
        xp.cuda.runtime.deviceSetMemPool(0, default)
        xp.cuda.runtime.memPoolDestroy(handle)
    return np.array(rows, np.int32)


def _own_pool(xp: Any) -> Any:
    return xp.cuda.runtime.MemPoolProps(1, 0, 1, 0)


def nested(xp: Any, seed: int, steps: int = 30) -> Rows:
    """Run a random program that switches one thread or all between two memory pools or none.

    Rows: used units, total units and free blocks of both pools; whose a new block is (0 and 1: the
    pools', 2: the device's), or why there is none (`FAILED`: the allocator could not be changed).
    """
    draw = random.Random(seed)
    size = UNIT * draw.randint(1, 100)  # one alone: which of several free blocks is taken does not show then
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
        pointers.append(xp.cuda.alloc(size))

    xp.cuda.set_allocator(pools[0].malloc)
    for _ in range(steps):
        owner = OTHER
        old_figures = figures()
        match draw.choices(["alloc", "thread", "free", "enter", "leave", "set"], [40, 10, 25, 12, 12, 4])[0]:
            case "alloc" | "thread" as kind:
                if kind == "alloc":
                    allocate()
                else:
                    thread = threading.Thread(target=allocate)
                    thread.start()
                    thread.join()
                new_figures = figures()
                owner = 0 if new_figures[0] > old_figures[0] else 1 if new_figures[3] > old_figures[3] else 2
                assert (owner == 2) == (type(pointers[-1].mem) is xp.cuda.Memory)
            case "free" if pointers:
                pointers.pop(draw.randrange(len(pointers)))
            case "enter":
                entered_contexts.append(xp.cuda.using_allocator(draw.choice(allocators)))
                entered_contexts[-1].__enter__()
            case "leave" if entered_contexts:
                entered_contexts.pop().__exit__(None, None, None)
            case "set":
                try:
                    xp.cuda.set_allocator(draw.choice(allocators))
                except ValueError:
                    owner = FAILED
        rows.append([*figures(), owner])
    while entered_contexts:
        entered_contexts.pop().__exit__(None, None, None)
    xp.cuda.set_allocator(previous_allocator)
    return np.array(rows, np.int32)


def pack(tables: Sequence[Rows]) -> str:
    """Convert tables with equal numbers of columns to text."""
    rows = np.concatenate([np.diff(table, axis=0, prepend=0) for table in tables]).astype("<i4")
    lengths = np.array([len(table) for table in tables], "<i4")
    data = lengths.tobytes() + np.ascontiguousarray(rows.T).tobytes()
    return base64.b85encode(lzma.compress(data, preset=9 | lzma.PRESET_EXTREME)).decode()


def unpack(text: str, count: int) -> list[Rows]:
    """Return the `count` tables from the text that `pack` returned."""
    data = np.frombuffer(lzma.decompress(base64.b85decode(text)), "<i4")
    lengths = data[:count]
    rows = data[count:].reshape(-1, int(data[:count].sum())).T
    return [np.cumsum(part, axis=0, dtype=np.int32) for part in np.split(rows, np.cumsum(lengths)[:-1])]
