"""CuPy's memory API: each test runs on the virtual GPU and, marked ``gpu``, with CuPy on a real one."""

from __future__ import annotations

import ctypes
import gc
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import gpulab as gl

ADD_ONE = 'extern "C" __global__ void add_one(float *a) { a[threadIdx.x] += 1.0f; }'
SPIN = """extern "C" __global__ void spin(long long clocks, int *out) {
    long long start = clock64(); while (clock64() - start < clocks) { } out[0] = 1; }"""
MIB = 1 << 20
NO_LIMIT = 2**64 - 1
RELEASE_THRESHOLD = 4
RESERVED = 5
USED = 7
USED_HIGH = 8


@pytest.fixture(params=["virtual", pytest.param("gpu", marks=pytest.mark.gpu)])
def cp(request: pytest.FixtureRequest) -> Iterator[Any]:
    if request.param == "virtual":
        request.getfixturevalue("machine")
        import virtualgpu.cp as cp
    else:
        cp = pytest.importorskip("cupy")
    yield cp
    runtime = cp.cuda.runtime
    cp.cuda.set_allocator(cp.get_default_memory_pool().malloc)
    gc.collect()
    default = runtime.deviceGetDefaultMemPool(0)
    runtime.deviceSetMemPool(0, default)
    runtime.memPoolSetAttribute(default, RELEASE_THRESHOLD, 0)
    runtime.deviceSynchronize()
    runtime.memPoolTrimTo(default, 0)


def host(address: int, count: int, kind: Any = ctypes.c_float) -> Any:
    """Return the host's view of an address."""
    return np.ctypeslib.as_array((kind * count).from_address(address))


def attributes_of(cp: Any, address: int) -> tuple[int, int, int, int]:
    attributes = cp.cuda.runtime.pointerGetAttributes(address)
    return attributes.type, attributes.device, attributes.devicePointer, attributes.hostPointer


def status(cp: Any, call: Any) -> int:
    with pytest.raises(cp.cuda.runtime.CUDARuntimeError) as error:
        call()
    return int(error.value.status)


# Managed memory


def test_host_and_kernel_use_a_managed_array_at_one_address(cp: Any) -> None:
    memory = cp.cuda.malloc_managed(128)
    assert type(memory.mem).__name__ == "ManagedMemory"
    assert memory.mem.size == 128
    view = host(memory.ptr, 32)
    view[:] = np.arange(32)
    x = cp.ndarray((32,), cp.float32, memory)
    cp.RawKernel(ADD_ONE, "add_one")((1,), (32,), (x,))
    cp.cuda.Device().synchronize()
    assert view.tolist() == list(range(1, 33))
    view[3] = -7
    assert float(x[3]) == -7
    assert float(x.sum()) == sum(range(1, 33)) - 4 - 7


def test_pointer_attributes_contain_the_memory_type(cp: Any) -> None:
    runtime = cp.cuda.runtime
    managed = cp.cuda.malloc_managed(64)
    x = cp.zeros(16)
    pinned = cp.cuda.alloc_pinned_memory(64)
    host_array = np.zeros(16)
    for offset in (0, 8):
        address = managed.ptr + offset
        assert attributes_of(cp, address) == (runtime.memoryTypeManaged, 0, address, address)
        address = x.data.ptr + offset
        assert attributes_of(cp, address) == (runtime.memoryTypeDevice, 0, address, 0)
        address = pinned.ptr + offset
        assert attributes_of(cp, address) == (runtime.memoryTypeHost, 0, address, address)
    address = host_array.ctypes.data
    assert attributes_of(cp, address) == (runtime.memoryTypeUnregistered, -2, 0, address)
    assert attributes_of(cp, 0) == (0, -2, 0, 0)
    assert runtime.pointerGetMemoryType(managed.ptr) == 3
    raw = runtime.mallocManaged(64)
    runtime.free(raw)
    assert attributes_of(cp, raw) == (0, -2, 0, raw)
    assert status(cp, lambda: runtime.free(raw)) == 1


def test_prefetch_and_advice_accept_only_managed_ranges(cp: Any) -> None:
    runtime = cp.cuda.runtime
    stream = cp.cuda.Stream()
    memory = cp.cuda.malloc_managed(1024)
    memory.mem.prefetch(stream)
    memory.mem.prefetch(stream, device_id=0)
    memory.mem.advise(runtime.cudaMemAdviseSetReadMostly, cp.cuda.Device(0))
    runtime.memPrefetchAsync(memory.ptr + 100, 100, 0, stream.ptr)
    assert status(cp, lambda: memory.mem.prefetch(stream, device_id=-1)) == 101
    assert status(cp, lambda: memory.mem.prefetch(stream, device_id=10**8)) == 101
    assert status(cp, lambda: memory.mem.advise(-1, cp.cuda.Device(0))) == 1
    device = cp.zeros(100)
    host_array = np.zeros(100)
    for address, size in (
        (memory.ptr, 0),
        (memory.ptr, 1 << 30),
        (device.data.ptr, 8),
        (host_array.ctypes.data, 8),
    ):
        assert status(cp, lambda a=address, n=size: runtime.memPrefetchAsync(a, n, 0, 0)) == 1
        assert status(cp, lambda a=address, n=size: runtime.memAdvise(a, n, 1, 0)) == 1
    refused = {
        (advice, number)
        for advice in range(8)
        for number in (0, -1, 10**8)
        if _refuses(cp, lambda a=advice, n=number: runtime.memAdvise(memory.ptr, 1024, a, n))
    }
    everywhere = {(a, n) for a in (0, 7) for n in (0, -1, 10**8)}
    elsewhere = (-1, 10**8)
    assert refused == everywhere | {(a, n) for a in (3, 5, 6) for n in elsewhere}
    allowed = [
        flags
        for flags in range(5)
        if not _refuses(cp, lambda f=flags: runtime.free(runtime.mallocManaged(64, f)))
    ]
    assert allowed == [1, 2]


def _refuses(cp: Any, call: Any) -> bool:
    try:
        call()
    except cp.cuda.runtime.CUDARuntimeError as error:
        return bool(error.status == 1)
    return False


def test_a_memory_pool_can_allocate_managed_memory(cp: Any) -> None:
    pool = cp.cuda.MemoryPool(cp.cuda.malloc_managed)
    with cp.cuda.using_allocator(pool.malloc):
        x = cp.arange(10, dtype=cp.float32)
    assert (x.data.mem.identity, pool.used_bytes(), pool.total_bytes()) == ("ManagedMemory", 512, 512)
    x.data.mem.prefetch(cp.cuda.Stream.null)
    x.data.mem.advise(1, cp.cuda.Device(0))
    cp.cuda.Device().synchronize()
    assert host(x.data.ptr, 10).tolist() == list(range(10))
    plain = cp.cuda.MemoryPool().malloc(10)
    assert plain.mem.identity == "Memory"
    assert not hasattr(plain.mem, "prefetch")


def test_copies_accept_managed_memory_as_host_or_device(cp: Any) -> None:
    runtime = cp.cuda.runtime
    memory = cp.cuda.malloc_managed(64)
    host_array = np.arange(16, dtype=np.float32)
    for kind in (runtime.memcpyHostToHost, runtime.memcpyHostToDevice, runtime.memcpyDefault):
        host(memory.ptr, 16)[:] = 0
        runtime.memcpy(memory.ptr, host_array.ctypes.data, 64, kind)
        assert host(memory.ptr, 16).tolist() == host_array.tolist()


def test_more_managed_memory_than_is_free_is_refused(machine: Any) -> None:
    """On the virtual GPU only, because a real one may hang."""
    import virtualgpu.cp as cp

    runtime = cp.cuda.runtime
    free = cp.cuda.runtime.memGetInfo()[0]
    for call in (cp.cuda.malloc_managed, runtime.mallocManaged):
        with pytest.raises(runtime.CUDARuntimeError, match=r"managed memory requested.*can hang a") as error:
            call(free + 1)
        assert error.value.status == 2
    with pytest.raises(cp.cuda.memory.OutOfMemoryError):
        cp.cuda.MemoryPool(cp.cuda.malloc_managed).malloc(free + 1)
    assert runtime.memGetInfo()[0] == free
    assert cp.cuda.malloc_managed(free).ptr


# Stream-ordered allocation


def figures(cp: Any, pool: int | None = None) -> tuple[int, ...]:
    """Return reserved MiB and used bytes."""
    runtime = cp.cuda.runtime
    pool = pool or runtime.deviceGetDefaultMemPool(0)
    return (runtime.memPoolGetAttribute(pool, RESERVED) // MIB, runtime.memPoolGetAttribute(pool, USED))


@pytest.mark.parametrize(
    ("size", "reserved"), [(1, 32), (513, 32), (32 * MIB, 32), (32 * MIB + 1, 64), (100 * MIB, 128)]
)
def test_the_drivers_pool_grows_by_32_mib_and_shrinks_at_a_wait(cp: Any, size: int, reserved: int) -> None:
    runtime = cp.cuda.runtime
    free = runtime.memGetInfo()[0]
    address = runtime.mallocAsync(size, 0)
    assert address % 512 == 0
    assert figures(cp) == (reserved, size)
    assert runtime.memGetInfo()[0] == free - reserved * MIB
    runtime.freeAsync(address, 0)
    assert figures(cp) == (reserved, 0)
    runtime.deviceSynchronize()
    assert figures(cp) == (0, 0)
    assert runtime.memGetInfo()[0] == free


def test_the_release_threshold_keeps_memory_in_the_pool(cp: Any) -> None:
    runtime = cp.cuda.runtime
    pool = runtime.deviceGetDefaultMemPool(0)
    assert runtime.memPoolGetAttribute(pool, RELEASE_THRESHOLD) == 0
    for threshold, left in ((40 * MIB, 32), (MIB, 0), (100 * MIB, 96)):
        runtime.memPoolSetAttribute(pool, RELEASE_THRESHOLD, threshold)
        blocks = [runtime.mallocAsync(10 * MIB, 0) for _ in range(12)]
        assert figures(cp) == (128, 120 * MIB)
        for address in blocks:
            runtime.freeAsync(address, 0)
        cp.cuda.Stream.null.synchronize()
        assert figures(cp) == (left, 0)
    short = runtime.mallocAsync(1, 0)
    runtime.freeAsync(short, 0)
    runtime.memPoolTrimTo(pool, 0)
    assert figures(cp)[0] >= 32  # freed, but the host has not waited since
    cp.cuda.Stream.null.synchronize()
    runtime.memPoolTrimTo(pool, 0)
    assert figures(cp) == (0, 0)


def test_a_user_created_memory_pool(cp: Any) -> None:
    runtime = cp.cuda.runtime
    kind = runtime.cudaMemAllocationTypePinned, runtime.cudaMemHandleTypeNone
    pool = runtime.memPoolCreate(runtime.MemPoolProps(*kind, runtime.cudaMemLocationTypeDevice, 0))
    values = [runtime.memPoolGetAttribute(pool, n) for n in range(1, 9)]
    assert values == [1, 1, 1, 0, 0, 0, 0, 0]
    block = runtime.mallocFromPoolAsync(1000, pool, 0)
    assert figures(cp, pool) == (32, 1000)
    runtime.freeAsync(block, 0)
    runtime.deviceSynchronize()
    assert [runtime.memPoolGetAttribute(pool, n) for n in (5, 6, 7, 8)] == [0, 32 * MIB, 0, 1000]
    runtime.memPoolSetAttribute(pool, USED_HIGH, 0)
    assert runtime.memPoolGetAttribute(pool, USED_HIGH) == 0
    runtime.memPoolSetAttribute(pool, 1, 0)
    assert runtime.memPoolGetAttribute(pool, 1) == 0
    for number, value in ((USED_HIGH, 5), (RESERVED, 0)):
        assert status(cp, lambda n=number, v=value: runtime.memPoolSetAttribute(pool, n, v)) == 1
    for number in (0, 99):
        assert status(cp, lambda n=number: runtime.memPoolGetAttribute(pool, n)) == 1
    default = runtime.deviceGetDefaultMemPool(0)
    assert runtime.deviceGetMemPool(0) == default
    runtime.deviceSetMemPool(0, pool)
    assert runtime.deviceGetMemPool(0) == pool
    cp.cuda.MemoryAsyncPool("default")
    assert runtime.deviceGetMemPool(0) == default
    if runtime.getDeviceCount() == 1:  # CuPy sets the pool on all devices, and it belongs to device 0
        cp.cuda.MemoryAsyncPool(pool)
        assert runtime.deviceGetMemPool(0) == pool
    runtime.memPoolDestroy(pool)
    assert runtime.deviceGetMemPool(0) == default
    assert status(cp, lambda: runtime.memPoolDestroy(default)) == 1
    assert status(cp, lambda: runtime.deviceGetMemPool(9)) == 1
    assert status(cp, lambda: runtime.memPoolGetAttribute(0, USED)) == 1
    assert status(cp, lambda: runtime.memPoolCreate(runtime.MemPoolProps(1, 0, 1, 77))) == 1


def test_arrays_from_malloc_async(cp: Any) -> None:
    stream = cp.cuda.Stream(non_blocking=True)
    used = cp.get_default_memory_pool().used_bytes()
    with cp.cuda.using_allocator(cp.cuda.malloc_async), stream:
        x = cp.arange(128, dtype=cp.int64)
        y = x * 2
    assert cp.get_default_memory_pool().used_bytes() == used
    assert type(x.data.mem).__name__ == "MemoryAsync"
    assert x.data.mem.stream_ref().ptr == stream.ptr
    stream.synchronize()
    assert y.get().tolist() == [2 * n for n in range(128)]
    assert attributes_of(cp, x.data.ptr)[:2] == (2, 0)
    del stream
    gc.collect()
    del x, y  # the stream of their own is gone
    assert cp.cuda.malloc_async(0).ptr == 0


def test_a_freed_block_is_reused_first_in_its_own_stream(cp: Any) -> None:
    pool = cp.cuda.MemoryAsyncPool()
    busy, other = (cp.cuda.Stream(non_blocking=True) for _ in range(2))
    out = cp.zeros(1, cp.int32)
    spin = cp.RawKernel(SPIN, "spin")
    spin((1,), (1,), (np.int64(1), out))
    cp.cuda.Device().synchronize()

    def block(stream: Any) -> Any:
        with stream:
            return pool.malloc(3 * MIB)

    first = block(busy)
    address = first.ptr
    with busy:
        # Long enough that a real stream is still busy when the other one asks.
        spin((1,), (1,), (np.int64(50_000 if cp.__name__ == "virtualgpu.cp" else 200_000_000), out))
        del first
    assert pool.used_bytes() == 0
    elsewhere = block(other)
    assert elsewhere.ptr != address
    second = block(busy)
    assert second.ptr == address
    del second, elsewhere
    cp.cuda.Device().synchronize()
    later_blocks = block(other), block(other)
    assert address in {pointer.ptr for pointer in later_blocks}  # the work before the free has ended


def test_used_free_and_total_bytes_of_an_async_pool(cp: Any) -> None:
    pool = cp.cuda.MemoryAsyncPool()
    assert pool.get_limit() == NO_LIMIT

    def shows(total_mib: int, used: int) -> bool:
        assert pool.free_bytes() == pool.total_bytes() - pool.used_bytes()
        return (pool.total_bytes() // MIB, pool.used_bytes()) == (total_mib, used)

    first = pool.malloc(100)
    assert first.mem.size == 512
    assert shows(32, 512)
    second = pool.malloc(40 * MIB)
    third = pool.malloc(20 * MIB)
    assert shows(64, 60 * MIB + 512)
    del second
    cp.cuda.Device().synchronize()
    pool.free_all_blocks()
    assert shows(64, 20 * MIB + 512)
    del third
    pool.free_all_blocks()
    assert shows(32, 512)
    del first
    assert shows(32, 0)
    pool.free_all_blocks()
    assert shows(0, 0)
    with pytest.raises(NotImplementedError, match="not supported in MemoryAsyncPool"):
        pool.n_free_blocks()


def test_limits_of_an_async_pool(cp: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    pool = cp.cuda.MemoryAsyncPool()
    total = cp.cuda.Device().mem_info[1]
    pool.set_limit(size=1024)
    with pytest.raises(cp.cuda.memory.OutOfMemoryError, match=r"5,000 bytes .*: 0 bytes, .*to: 1,024 bytes"):
        pool.malloc(5000)
    blocks = [pool.malloc(1000), pool.malloc(MIB)]  # memory that the pool has already does not count
    del blocks
    pool.set_limit(fraction=0.5)
    assert pool.get_limit() == int(total * 0.5)
    pool.set_limit()
    with pytest.raises(cp.cuda.memory.OutOfMemoryError, match=f"{1 << 42:,}.*limit set to: {NO_LIMIT:,}"):
        pool.malloc(1 << 42)
    monkeypatch.setenv("CUPY_GPU_MEMORY_LIMIT", "25%")
    assert cp.cuda.MemoryAsyncPool().get_limit() == int(total * 0.25)


def test_memory_reserved_by_an_async_pool_is_unavailable(cp: Any) -> None:
    if type(cp.cuda.Device()).__module__.startswith("cupy"):
        pytest.skip("takes 70 % of the memory of a GPU that others may use")
    pool = cp.cuda.MemoryAsyncPool()
    plain = cp.cuda.MemoryPool()
    total = cp.cuda.Device().mem_info[1]
    del_me = pool.malloc(int(0.7 * total))
    del del_me
    with pytest.raises(cp.cuda.memory.OutOfMemoryError):
        plain.malloc(int(0.5 * total))
    pool.free_all_blocks()
    block = plain.malloc(int(0.7 * total))
    with pytest.raises(cp.cuda.memory.OutOfMemoryError):
        pool.malloc(int(0.5 * total))
    del block
    plain.free_all_blocks()
    pool.malloc(int(0.5 * total))


# Allocators that a program brings along


def test_an_allocator_can_return_parts_of_an_array(cp: Any) -> None:
    slab = cp.zeros(1024, cp.float32)
    places = iter((0, 512, 0))
    allocator = cp.cuda.PythonFunctionAllocator(
        lambda size, dev: slab.data.ptr + next(places), lambda p, d: None
    )
    add = cp.RawKernel(ADD_ONE, "add_one")
    with cp.cuda.using_allocator(allocator.malloc):
        x = cp.zeros(32, cp.float32)
        y = cp.zeros(32, cp.float32)
        add((1,), (32,), (x,))
        add((1,), (32,), (y,))
        add((1,), (32,), (y,))
        assert slab.get()[:160:32].tolist() == [1, 0, 0, 0, 2]
        del x, y
    add((1,), (1024,), (slab,))
    assert float(slab.sum()) == 1024 + 32 + 64


# Hooks

# Sizes and foreign addresses


def test_a_pinned_pool_frees_blocks_and_retries_an_allocation(cp: Any) -> None:
    tries: list[int] = []

    def tight(size: int) -> Any:
        tries.append(pool.n_free_blocks())
        if pool.n_free_blocks():
            return cp.cuda.PinnedMemoryPointer(cp.cuda.PinnedMemory(1 << 50), 0)
        return plain(size)

    plain = cp.cuda.PinnedMemoryPool().malloc
    pool = cp.cuda.PinnedMemoryPool(tight)
    first = pool.malloc(100)
    del first
    second = pool.malloc(5000)
    assert (second.size(), tries) == (8192, [0, 1, 0])


def test_pinned_arrays(cp: Any, request: pytest.FixtureRequest) -> None:
    if "gpu" in request.node.name.split("[")[-1]:
        import cupyx
    else:
        from virtualgpu import cupyx
    turned = np.arange(24, dtype=np.int16).reshape(2, 3, 4).transpose(2, 0, 1)
    for a in (turned, cp.asarray(turned)):
        like = cupyx.empty_like_pinned(a)
        assert (like.shape, like.dtype, like.strides) == (a.shape, a.dtype, a.strides)
    zeros = cupyx.zeros_like_pinned(turned, dtype=np.float32, order="F")
    assert zeros.flags.f_contiguous
    assert not zeros.any()
    assert cupyx.zeros_pinned((0, 3), "i4").shape == (0, 3)
    assert cupyx.empty_pinned(0).size == 0
    assert cupyx.zeros_pinned(5).tolist() == [0.0] * 5
    assert cp.cuda.pinned_memory.is_memory_pinned(zeros.ctypes.data)
    assert not cp.cuda.pinned_memory.is_memory_pinned(turned.ctypes.data)
    with pytest.raises(OverflowError, match="negative"):
        cupyx.empty_pinned(-1)
    with pytest.raises(TypeError, match="subok"):
        cupyx.empty_like_pinned(turned, subok=True)


def test_unowned_memory_detects_its_device(cp: Any) -> None:
    unowned = cp.cuda.UnownedMemory
    with pytest.raises(RuntimeError, match="explicit device ID for a null pointer"):
        unowned(0, 0, None)
    assert unowned(0, 0, None, 0).device_id == 0
    host_array = np.zeros(8)
    assert unowned(host_array.ctypes.data, 64, host_array).device_id == -2
    for malloc in (cp.cuda.alloc, cp.cuda.malloc_managed, cp.cuda.malloc_async):
        memory = malloc(24)
        wrapped = unowned(memory.ptr, 24, memory)
        assert wrapped.device_id == 0
        x = cp.ndarray((2, 3), cp.float32, cp.cuda.MemoryPointer(wrapped, 0))
        del memory
        x[:] = 2
        assert (x.get() == 2).all()


@pytest.mark.filterwarnings("error::pytest.PytestUnraisableExceptionWarning")
def test_async_memory_is_freed_on_its_device_after_a_switch() -> None:
    """A learner may change the device while arrays of the last one live."""
    before = gl.use_device("virtual:A100").cp
    with before.cuda.using_allocator(before.cuda.MemoryAsyncPool().malloc):
        x = before.zeros(1000)
    owner = x.data.mem.owner
    gl.use_device("virtual:T4")
    used = owner.memory.memory_totals.array_bytes
    del x
    gc.collect()
    assert owner.memory.memory_totals.array_bytes == used - 8000
