"""Device memory: segments in cudaMalloc's granularity, live allocations and the device heap."""

from __future__ import annotations

import gc
import json
import subprocess
import sys

import numpy as np
import pytest

from virtualgpu.cuda_errors import CUDARuntimeError
from virtualgpu.model.memory import DeviceMemory
from virtualgpu.model.memory.heap import DeviceHeap

MIB = 1 << 20
GIB = 1 << 30


@pytest.fixture
def memory() -> DeviceMemory:
    return DeviceMemory(64 * MIB)


def test_addresses_of_equal_programs_are_equal() -> None:
    def addresses() -> list[int]:
        fresh = DeviceMemory(8 * MIB)
        return [fresh.malloc(size) - fresh.base_address for size in (100, 5000, 3 * MIB)]

    assert addresses() == addresses() == [0, 512, 2 * MIB]


def test_untouched_device_memory_uses_no_host_memory() -> None:
    big = DeviceMemory(80 * GIB)
    if big.arena_bytes < 80 * GIB:
        pytest.skip(f"this computer reserves only {big.arena_bytes} bytes of address space")
    address = big.malloc(70 * GIB)
    big.view(address + 69 * GIB, 4)[:] = 7
    big.zero(address, 70 * GIB)
    assert not big.view(address + 69 * GIB, 4).any()
    assert big.free_bytes == 10 * GIB


def test_small_segments_share_a_page_and_large_ones_round_to_pages(memory: DeviceMemory) -> None:
    first = memory.malloc(1)
    second = memory.malloc(513)
    assert second - first == 512
    assert memory.used_bytes == 2 * MIB
    third = memory.malloc(2 * MIB + 1)
    assert (third - memory.base_address) % (2 * MIB) == 0
    assert memory.used_bytes == 6 * MIB
    for address in (first, second, third):
        memory.free(address)
    assert memory.used_bytes == 0


def test_freed_pages_read_as_zero(memory: DeviceMemory) -> None:
    address = memory.malloc(4 * MIB)
    memory.view(address, 4 * MIB)[:] = 255
    memory.free(address)
    second_address = memory.malloc(4 * MIB)
    assert second_address == address
    assert not memory.view(second_address, 4 * MIB).any()


def test_out_of_memory_is_cudas_error(memory: DeviceMemory) -> None:
    addresses = [memory.malloc(16 * MIB) for _ in range(4)]
    with pytest.raises(CUDARuntimeError, match="cudaErrorMemoryAllocation") as error:
        memory.malloc(1)
    assert error.value.status == 2
    memory.free(addresses[0])
    memory.free(addresses[2])
    with pytest.raises(CUDARuntimeError, match="fragmented"):
        memory.malloc(32 * MIB)


def test_live_ranges_are_sorted_and_exact(memory: DeviceMemory) -> None:
    base = memory.malloc(4096)
    for offset, size in ((2048, 10), (0, 1000), (1024, 3)):
        memory.track_allocation(base + offset, size, f"at {offset}")
    starts, ends = memory.find_live_ranges()
    assert (starts - base).tolist() == [0, 1024, 2048]
    assert (ends - starts).tolist() == [1000, 3, 10]
    assert memory.find_live_ranges()[0] is starts
    memory.untrack_allocation(base + 1024)
    assert (memory.find_live_ranges()[0] - base).tolist() == [0, 2048]
    memory.untrack_allocation(base + 1)


@pytest.mark.parametrize(
    ("offset", "name"), [(0, "a"), (99, "a"), (100, "a"), (520, "b"), (499, "b"), (700, "b"), (-8, "a")]
)
def test_nearest_allocation(memory: DeviceMemory, offset: int, name: str) -> None:
    base = memory.malloc(4096)
    memory.track_allocation(base, 100, "a")
    memory.track_allocation(base + 512, 100, "b")
    allocation = memory.find_nearest_allocation(base + offset)
    assert allocation is not None
    assert allocation.label == name


def test_views_outlive_the_device() -> None:
    memory = DeviceMemory(4 * MIB)
    view = memory.view(memory.malloc(1024), 1024)
    del memory
    gc.collect()
    view[:] = 3
    assert int(view.sum()) == 3 * 1024


def test_views_outside_of_the_memory_are_refused(memory: DeviceMemory) -> None:
    with pytest.raises(ValueError, match="outside"):
        memory.view(memory.base_address - 1, 1)
    with pytest.raises(ValueError, match="outside"):
        memory.view(memory.base_address, memory.arena_bytes + 1)


def test_random_allocations_never_overlap() -> None:
    rng = np.random.default_rng(5)
    memory = DeviceMemory(32 * MIB)
    sizes: dict[int, int] = {}
    for _ in range(600):
        if sizes and rng.random() < 0.45:
            address = list(sizes)[rng.integers(len(sizes))]
            del sizes[address]
            memory.free(address)
            continue
        size = int(2 ** rng.uniform(3, 22))
        try:
            address = memory.malloc(size)
        except CUDARuntimeError:
            continue
        assert all(address + size <= other or other + sizes[other] <= address for other in sizes)
        sizes[address] = size
    for address in sizes:
        memory.free(address)
    assert memory.free_bytes == memory.capacity_bytes


@pytest.mark.parametrize("seed", range(4))
def test_the_device_heap_equals_a_first_fit_model(seed: int) -> None:
    """First fit in units of 16 bytes; freed neighbours merge."""
    rng = np.random.default_rng(seed)
    base = 4096
    units = 64
    heap = DeviceHeap(base, np.zeros(16 * units, np.uint8))
    busy = [False] * units
    lengths = dict[int, int]()
    for _ in range(300):
        if lengths and rng.random() < 0.45:
            unit = list(lengths)[rng.integers(len(lengths))]
            heap.free_block(base + 16 * unit)
            length = lengths.pop(unit)
            busy[unit : unit + length] = [False] * length
            continue
        size = int(rng.integers(0, 200))
        need = max(1, (size + 15) // 16)
        fits = [n for n in range(units - need + 1) if not any(busy[n : n + need])]
        assert heap.allocate_block(size) == (base + 16 * fits[0] if fits else 0)
        if fits:
            lengths[fits[0]] = need
            busy[fits[0] : fits[0] + need] = [True] * need
        assert {*heap.used_blocks} == {base + 16 * unit for unit in lengths}
    for unit in lengths:
        heap.free_block(base + 16 * unit)
    assert heap.allocate_block(16 * units) == base
    assert heap.allocate_block(1) == 0
    heap.free_block(0)
    heap.free_block(base)
    with pytest.raises(ValueError, match="already been freed"):
        heap.free_block(base)


def test_the_device_heap_allocates_for_active_lanes() -> None:
    contents = np.arange(16 * 64, dtype=np.uint8)
    heap = DeviceHeap(4096, contents)
    sizes = np.full(32, 20, np.uint64)
    addresses = heap.execute_calls("malloc", sizes, 0b1010)
    assert addresses.tolist() == [0, 4096, 0, 4128, *[0] * 28]
    with heap.keep_freed_blocks():
        assert heap.allocate_block(20) == 4160
        assert heap.allocate_block(1) == 4160 + 48, "under checks, a unit after each block belongs to nobody"
        heap.free_block(4160)
        assert heap.freed_blocks == {4160: 20}
        assert heap.allocate_block(20) == 4160 + 80, "what is free is not given out again"
        contents[:] = 0
    assert heap.freed_blocks is None
    assert (contents == np.arange(16 * 64, dtype=np.uint8)).all()
    assert {*heap.used_blocks} == {4096, 4128}
    assert not heap.execute_calls("free", addresses, 0b1000).any()
    assert heap.allocate_block(20) == 4128


def test_the_heap_size_cannot_change_after_first_use(memory: DeviceMemory) -> None:
    memory.heap_bytes = 4 * MIB
    heap = memory.open_heap()
    assert heap is memory.open_heap()
    assert (heap.size_bytes, memory.heap_bytes, memory.used_bytes) == (4 * MIB, 4 * MIB, 4 * MIB)
    allocation = memory.find_allocation(heap.address)
    assert allocation is not None
    assert (allocation.size_bytes, allocation.label) == (4 * MIB, "device heap")
    memory.heap_bytes = 4 * MIB
    with pytest.raises(CUDARuntimeError, match="cudaErrorInvalidValue") as error:
        memory.heap_bytes = 8 * MIB
    assert error.value.status == 1


def test_freed_pages_of_small_segments_read_as_zero(memory: DeviceMemory) -> None:
    pieces = [memory.malloc(MIB // 2) for _ in range(8)]
    assert memory.used_bytes == 4 * MIB
    memory.view(pieces[0], 4 * MIB)[:] = 9
    for n, left in ((5, 4), (4, 4), (1, 4), (7, 4), (6, 2), (0, 2), (3, 2), (2, 0)):
        memory.free(pieces[n])
        assert memory.used_bytes == left * MIB
    assert memory.malloc(64 * MIB) == pieces[0]
    assert not memory.view(pieces[0], 4 * MIB).any()


def test_uninitialized_words_are_marked(memory: DeviceMemory) -> None:
    address = memory.malloc(4096)
    memory.view(address, 4096)[:] = 1
    memory.mark_unwritten(address + 64, 18)
    marked = memory.find_unwritten_words(address, 4096)
    assert np.flatnonzero(marked).tolist() == [16, 17, 18, 19]
    assert (memory.view(address + 80, 2) == 1).all()
    memory.view(address + 68, 1)[:] = 0
    assert np.flatnonzero(memory.find_unwritten_words(address, 4096)).tolist() == [16, 18, 19]
    # What a checking tool shows of a float nobody wrote is a NaN no program computes by chance.
    assert memory.view(address + 64, 4).view(np.uint32)[0] == 0xFFB75EED


@pytest.mark.skipif(sys.platform != "linux", reason="addresses are chosen on Linux")
def test_processes_see_the_same_pointers() -> None:
    code = "from virtualgpu.model.memory import DeviceMemory as M; m = M(1 << 22), M(1 << 22); "
    code += "print([x.base_address for x in m])"
    output = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    first, second = json.loads(output)
    assert 0 <= first - 0x7000_0000_0000 < 4 * MIB
    assert 0 <= second - 0x7080_0000_0000 < 4 * MIB
