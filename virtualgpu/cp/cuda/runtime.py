"""``cp.cuda.runtime``: the CUDA runtime functions of the virtual machine, under CuPy's names."""

from __future__ import annotations

from typing import Any

from virtualgpu.cp._missing_names import absent
from virtualgpu.cp.cuda.copies import copy, device_at, set_memory

# The functions by handle are part of this module as in CuPy.
from virtualgpu.cp.cuda.handles import (  # noqa: F401
    deviceCanAccessPeer,
    deviceDisablePeerAccess,
    deviceEnablePeerAccess,
    eventCreate,
    eventCreateWithFlags,
    eventDestroy,
    eventElapsedTime,
    eventQuery,
    eventRecord,
    eventSynchronize,
    freeHost,
    hostAlloc,
    launchHostFunc,
    mallocManaged,
    profilerStart,
    profilerStop,
    stream_of,
    streamCreate,
    streamCreateWithFlags,
    streamCreateWithPriority,
    streamDestroy,
    streamQuery,
    streamWaitEvent,
)
from virtualgpu.cp.cuda.pinned import host_bytes
from virtualgpu.cp.cuda.streams import Stream, _BaseStream
from virtualgpu.cuda_errors import CUDARuntimeError
from virtualgpu.model import machine as _machine
from virtualgpu.model.clock import LEGACY_ALIAS, PER_THREAD_QUEUE
from virtualgpu.model.machine import VirtualDevice

# Values of the CUDA runtime's enumerations (driver_types.h).
memcpyHostToHost, memcpyHostToDevice, memcpyDeviceToHost = 0, 1, 2  # noqa: N816
memcpyDeviceToDevice, memcpyDefault = 3, 4  # noqa: N816
streamDefault, streamNonBlocking = 0, 1  # noqa: N816
eventDefault, eventBlockingSync, eventDisableTiming, eventInterprocess = 0, 1, 2, 4  # noqa: N816
hostAllocDefault, hostAllocPortable, hostAllocMapped, hostAllocWriteCombined = 0, 1, 2, 4  # noqa: N816
is_hip = False
streamLegacy, streamPerThread = LEGACY_ALIAS, PER_THREAD_QUEUE  # noqa: N816
errorInvalidValue, errorMemoryAllocation = 1, 2  # noqa: N816

# cudaLimit (driver_types.h).
_STACK_SIZE, _PRINTF_FIFO_SIZE, _MALLOC_HEAP_SIZE = 0, 1, 2

# The CUDA version whose rules the virtual GPU follows; the compiler's is in cp.cuda.nvrtc.
VIRTUAL_CUDA_VERSION = 13000

_ATTRIBUTES = {
    "cudaDevAttrMaxThreadsPerBlock": 1,
    "cudaDevAttrMaxBlockDimX": 2,
    "cudaDevAttrMaxBlockDimY": 3,
    "cudaDevAttrMaxBlockDimZ": 4,
    "cudaDevAttrMaxGridDimX": 5,
    "cudaDevAttrMaxGridDimY": 6,
    "cudaDevAttrMaxGridDimZ": 7,
    "cudaDevAttrMaxSharedMemoryPerBlock": 8,
    "cudaDevAttrTotalConstantMemory": 9,
    "cudaDevAttrWarpSize": 10,
    "cudaDevAttrMaxRegistersPerBlock": 12,
    "cudaDevAttrClockRate": 13,
    "cudaDevAttrMultiProcessorCount": 16,
    "cudaDevAttrConcurrentKernels": 31,
    "cudaDevAttrMemoryClockRate": 36,
    "cudaDevAttrGlobalMemoryBusWidth": 37,
    "cudaDevAttrL2CacheSize": 38,
    "cudaDevAttrMaxThreadsPerMultiProcessor": 39,
    "cudaDevAttrAsyncEngineCount": 40,
    "cudaDevAttrUnifiedAddressing": 41,
    "cudaDevAttrComputeCapabilityMajor": 75,
    "cudaDevAttrComputeCapabilityMinor": 76,
    "cudaDevAttrMaxSharedMemoryPerMultiprocessor": 81,
    "cudaDevAttrMaxRegistersPerMultiprocessor": 82,
    "cudaDevAttrManagedMemory": 83,
    "cudaDevAttrCooperativeLaunch": 95,
    "cudaDevAttrMaxSharedMemoryPerBlockOptin": 97,
    "cudaDevAttrMaxBlocksPerMultiprocessor": 106,
    "cudaDevAttrReservedSharedMemoryPerBlock": 111,
}


def _device() -> VirtualDevice:
    return _machine.current().current_device


def getDeviceCount() -> int:  # noqa: N802
    """Number of virtual GPUs."""
    return len(_machine.current().devices)


def getDevice() -> int:  # noqa: N802
    """Number of the calling thread's current device."""
    return _machine.current().current_device_id


def setDevice(device: int) -> None:  # noqa: N802
    """Choose the calling thread's current device; an unknown number is error 101."""
    _machine.current().current_device_id = device


def deviceSynchronize() -> None:  # noqa: N802
    """Let the host wait for everything on the current device."""
    _device().work.schedule.synchronize()


def streamSynchronize(stream: int) -> None:  # noqa: N802
    """Let the host wait for the stream with this handle."""
    _device().work.schedule.synchronize(stream)


def runtimeGetVersion() -> int:  # noqa: N802
    """CUDA version that the virtual GPU follows, as 1000 x major + 10 x minor."""
    return VIRTUAL_CUDA_VERSION


def driverGetVersion() -> int:  # noqa: N802
    """Driver version of the virtual GPU, as 1000 x major + 10 x minor."""
    return VIRTUAL_CUDA_VERSION


def deviceGetLimit(limit: int) -> int:  # noqa: N802
    """A ``cudaLimit`` of the current device: 0 stack, 1 ``printf`` buffer, 2 device heap, each in bytes."""
    memory = _machine.current().current_device.memory
    limits = {_STACK_SIZE: 1024, _PRINTF_FIFO_SIZE: 1 << 20, _MALLOC_HEAP_SIZE: memory.heap_bytes}
    if limit not in limits:
        raise _unsupported_limit(limit)
    return limits[limit]


def deviceSetLimit(limit: int, value: int) -> None:  # noqa: N802
    """Set the size of the device heap (2). Stack and ``printf`` buffer grow by themselves here.

    Raises
    ------
    CUDARuntimeError
        Status 1 once a kernel has used the heap; 215 for a limit that there is not.
    """
    if limit not in (_STACK_SIZE, _PRINTF_FIFO_SIZE, _MALLOC_HEAP_SIZE):
        raise _unsupported_limit(limit)
    if limit == _MALLOC_HEAP_SIZE:
        _machine.current().current_device.memory.heap_bytes = int(value)


def _unsupported_limit(limit: int) -> CUDARuntimeError:
    return CUDARuntimeError(
        215,
        "cudaErrorUnsupportedLimit",
        f"limit is not supported on this architecture: {limit}; 0 is the stack, 1 the printf buffer, 2 the "
        "device heap.",
    )


def memGetInfo() -> tuple[int, int]:  # noqa: N802
    """Free and total memory of the current device in bytes."""
    memory = _device().memory
    return memory.free_bytes, memory.capacity_bytes


def getDeviceProperties(device: int) -> dict[str, Any]:  # noqa: N802
    """Properties of a device under CuPy's keys. Clocks are in kHz, sizes in bytes; keys whose value no
    specification gives (textures, PCI addresses) are left out."""
    info = _machine.current().device(device).info
    return {
        "name": info.name.encode(),
        "totalGlobalMem": info.memory_bytes,
        "sharedMemPerBlock": info.shared_per_block_bytes,
        "sharedMemPerBlockOptin": info.shared_per_block_optin_bytes,
        "sharedMemPerMultiprocessor": info.shared_per_sm_bytes,
        "reservedSharedMemPerBlock": info.reserved_shared_per_block_bytes,
        "regsPerBlock": info.registers_per_block,
        "regsPerMultiprocessor": info.registers_per_sm,
        "warpSize": 32,
        "maxThreadsPerBlock": info.max_threads_per_block,
        "maxThreadsDim": info.max_block_dim,
        "maxGridSize": info.max_grid_dim,
        "maxThreadsPerMultiProcessor": info.max_threads_per_sm,
        "maxBlocksPerMultiProcessor": info.max_blocks_per_sm,
        "multiProcessorCount": info.sm_count,
        "clockRate": round((info.boost_clock_mhz or 0) * 1000),
        "memoryClockRate": round((info.memory_clock_mhz or 0) * 1000),
        "memoryBusWidth": info.memory_bus_bits or 0,
        "l2CacheSize": info.l2_bytes,
        "totalConstMem": 65536,
        "major": info.compute_capability[0],
        "minor": info.compute_capability[1],
        "asyncEngineCount": info.copy_engines or 0,
        "deviceOverlap": int(bool(info.copy_engines)),
        "concurrentKernels": 1,
        "cooperativeLaunch": 1,
        "cooperativeMultiDeviceLaunch": 0,
        "streamPrioritiesSupported": 1,
        "unifiedAddressing": 1,
        "managedMemory": 0,
        "concurrentManagedAccess": 0,
        "pageableMemoryAccess": 0,
        "integrated": 0,
        "canMapHostMemory": 0,
        "computeMode": 0,
        "kernelExecTimeoutEnabled": 1,  # the watchdog
        "isMultiGpuBoard": 0,
        "ECCEnabled": 0,
        "tccDriver": 0,
    }


def deviceGetAttribute(attrib: int, device: int) -> int:  # noqa: N802
    """One attribute of a device by CUDA's number; unknown numbers are error 1."""
    info = _machine.current().device(device).info
    name = next((key for key, value in _ATTRIBUTES.items() if value == attrib), "")
    if not name:
        raise CUDARuntimeError(
            errorInvalidValue,
            "cudaErrorInvalidValue",
            f"invalid argument: the virtual GPU does not model device attribute {attrib}; "
            "cp.cuda.Device().attributes lists those it does.",
        )
    return device_attributes(info)[name.removeprefix("cudaDevAttr")]


def device_attributes(info: Any) -> dict[str, int]:
    """All modelled attributes by their CUDA names without ``cudaDevAttr``."""
    values = {
        "MaxThreadsPerBlock": info.max_threads_per_block,
        "MaxBlockDimX": info.max_block_dim[0],
        "MaxBlockDimY": info.max_block_dim[1],
        "MaxBlockDimZ": info.max_block_dim[2],
        "MaxGridDimX": info.max_grid_dim[0],
        "MaxGridDimY": info.max_grid_dim[1],
        "MaxGridDimZ": info.max_grid_dim[2],
        "MaxSharedMemoryPerBlock": info.shared_per_block_bytes,
        "TotalConstantMemory": 65536,
        "WarpSize": 32,
        "MaxRegistersPerBlock": info.registers_per_block,
        "ClockRate": (info.boost_clock_mhz or 0) * 1000,
        "MultiProcessorCount": info.sm_count,
        "ConcurrentKernels": 1,
        "MemoryClockRate": (info.memory_clock_mhz or 0) * 1000,
        "GlobalMemoryBusWidth": info.memory_bus_bits or 0,
        "L2CacheSize": info.l2_bytes,
        "MaxThreadsPerMultiProcessor": info.max_threads_per_sm,
        "AsyncEngineCount": info.copy_engines or 0,
        "UnifiedAddressing": 1,
        "ComputeCapabilityMajor": info.compute_capability[0],
        "ComputeCapabilityMinor": info.compute_capability[1],
        "MaxSharedMemoryPerMultiprocessor": info.shared_per_sm_bytes,
        "MaxRegistersPerMultiprocessor": info.registers_per_sm,
        "ManagedMemory": 0,
        "CooperativeLaunch": 1,
        "MaxSharedMemoryPerBlockOptin": info.shared_per_block_optin_bytes,
        "MaxBlocksPerMultiprocessor": info.max_blocks_per_sm,
        "ReservedSharedMemoryPerBlock": info.reserved_shared_per_block_bytes,
    }
    return {name: round(value) for name, value in values.items()}


# Memory


def malloc(size: int) -> int:
    """``cudaMalloc``: the address of `size` bytes, which kernels may then touch."""
    memory = _device().memory
    address = memory.malloc(size)
    memory.track(address, size, f"cudaMalloc of {size:,} bytes")
    return address


def free(ptr: int) -> None:
    """``cudaFree``."""
    memory = _device().memory
    memory.free(ptr)
    memory.untrack(ptr)


def memcpy(dst: int, src: int, size: int, kind: int) -> None:
    """Copy `size` bytes between addresses, host or device by `kind`; the host waits."""
    _copy(dst, src, size, kind, Stream.null, waits=True)


def memcpyAsync(dst: int, src: int, size: int, kind: int, stream: int) -> None:  # noqa: N802
    """Copy `size` bytes between addresses, host or device by `kind`, on a stream."""
    _copy(dst, src, size, kind, stream_of(stream), waits=False)


def _copy(dst: int, src: int, size: int, kind: int, stream: _BaseStream, waits: bool) -> None:
    to, source = device_at(dst), device_at(src)
    if kind != memcpyDefault and (to is not None, source is not None) != (
        kind in (memcpyHostToDevice, memcpyDeviceToDevice),
        kind in (memcpyDeviceToHost, memcpyDeviceToDevice),
    ):
        raise CUDARuntimeError(
            errorInvalidValue,
            "cudaErrorInvalidValue",
            f"invalid argument: the copy kind {kind} does not fit the addresses; memcpyDefault finds it out.",
        )
    into = host_bytes(dst, size) if to is None else to.memory.view(dst, size)
    out_of = host_bytes(src, size) if source is None else source.memory.view(src, size)

    def move() -> None:
        into[:] = out_of.copy()

    host = into if to is None else out_of
    copy(move, size, to=to, source=source, host=host, stream=stream, waits=waits)


def memset(ptr: int, value: int, size: int) -> None:
    """Set `size` bytes of device memory."""
    memsetAsync(ptr, value, size, 0)


def memsetAsync(ptr: int, value: int, size: int, stream: int) -> None:  # noqa: N802
    """Set `size` bytes of device memory on a stream."""
    device = device_at(ptr) or _device()
    view = device.memory.view(ptr, size)

    def fill() -> None:
        view[:] = value & 0xFF

    set_memory(fill, size, device, stream_of(stream))


def mallocAsync(size: int, stream: int) -> int:  # noqa: N802
    """Like `malloc`: the virtual GPU has no stream-ordered pool."""
    return malloc(size)


def freeAsync(ptr: int, stream: int) -> None:  # noqa: N802
    """Like `free`: the virtual GPU has no stream-ordered pool."""
    free(ptr)


def memcpyPeer(dst: int, dstDevice: int, src: int, srcDevice: int, size: int) -> None:  # noqa: N802, N803
    """Copy `size` bytes between the memories of two devices."""
    memcpyPeerAsync(dst, dstDevice, src, srcDevice, size, 0)


def memcpyPeerAsync(  # noqa: N802
    dst: int,
    dstDevice: int,  # noqa: N803
    src: int,
    srcDevice: int,  # noqa: N803
    size: int,
    stream: int,
) -> None:
    """Copy `size` bytes between the memories of two devices on a stream."""
    machine = _machine.current()
    for address, device in ((dst, dstDevice), (src, srcDevice)):
        if size and device_at(address) is not machine.device(device):
            raise CUDARuntimeError(
                errorInvalidValue,
                "cudaErrorInvalidValue",
                f"invalid argument: {address:#x} is not in the memory of device {device}.",
            )
    memcpyAsync(dst, src, size, memcpyDeviceToDevice, stream)


def __getattr__(name: str) -> Any:
    if name in _ATTRIBUTES:
        return _ATTRIBUTES[name]
    raise absent("cp.cuda.runtime", name, globals())
