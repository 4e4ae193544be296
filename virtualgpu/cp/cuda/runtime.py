"""``cp.cuda.runtime``: the CUDA runtime functions of the virtual machine, under CuPy's names."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from virtualgpu.cp._missing_names import list_public_names, make_missing_name_error
from virtualgpu.cp.cuda._memory.addresses import (
    PointerAttributes,
    advise_managed,
    allocate_managed,
    is_managed,
    prefetch_managed,
    read_pointer_attributes,
)
from virtualgpu.cp.cuda._memory.copies import enqueue_copy, enqueue_memset, find_device_at
from virtualgpu.cp.cuda._memory.driver_pools import (
    MemPoolProps,
    allocate_in_stream_order,
    create_pool,
    free_in_stream_order,
    get_device_of_id,
    get_driver_pools,
)
from virtualgpu.cp.cuda._memory.ipc import ipcCloseMemHandle as ipcCloseMemHandle
from virtualgpu.cp.cuda._memory.ipc import ipcGetEventHandle as ipcGetEventHandle
from virtualgpu.cp.cuda._memory.ipc import ipcGetMemHandle as ipcGetMemHandle
from virtualgpu.cp.cuda._memory.ipc import ipcOpenEventHandle as ipcOpenEventHandle
from virtualgpu.cp.cuda._memory.ipc import ipcOpenMemHandle as ipcOpenMemHandle
from virtualgpu.cp.cuda._memory.sizes import convert_integer, convert_size
from virtualgpu.cp.cuda._runtime.devices import deviceCanAccessPeer as deviceCanAccessPeer
from virtualgpu.cp.cuda._runtime.devices import deviceDisablePeerAccess as deviceDisablePeerAccess
from virtualgpu.cp.cuda._runtime.devices import deviceEnablePeerAccess as deviceEnablePeerAccess
from virtualgpu.cp.cuda._runtime.devices import deviceGetAttribute as deviceGetAttribute
from virtualgpu.cp.cuda._runtime.devices import deviceGetByPCIBusId as deviceGetByPCIBusId
from virtualgpu.cp.cuda._runtime.devices import deviceGetLimit as deviceGetLimit
from virtualgpu.cp.cuda._runtime.devices import deviceGetPCIBusId as deviceGetPCIBusId
from virtualgpu.cp.cuda._runtime.devices import deviceSetLimit as deviceSetLimit
from virtualgpu.cp.cuda._runtime.devices import driverGetVersion as driverGetVersion
from virtualgpu.cp.cuda._runtime.devices import getDevice as getDevice
from virtualgpu.cp.cuda._runtime.devices import getDeviceCount as getDeviceCount
from virtualgpu.cp.cuda._runtime.devices import getDeviceProperties as getDeviceProperties
from virtualgpu.cp.cuda._runtime.devices import memGetInfo as memGetInfo
from virtualgpu.cp.cuda._runtime.devices import runtimeGetVersion as runtimeGetVersion
from virtualgpu.cp.cuda._runtime.devices import setDevice as setDevice
from virtualgpu.cp.cuda._runtime.handles import get_event, get_stream, register_resource, unregister_resource
from virtualgpu.cp.cuda.graph import Graph
from virtualgpu.cp.cuda.pinned_memory import PinnedMemory, view_host_bytes
from virtualgpu.cp.cuda.pinned_memory import hostRegister as hostRegister
from virtualgpu.cp.cuda.pinned_memory import hostUnregister as hostUnregister
from virtualgpu.cp.cuda.stream import Event, Stream, _BaseStream, get_elapsed_time, refuse_unsafe_in_capture
from virtualgpu.cuda_errors import CUDARuntimeError
from virtualgpu.model import machine as _machine
from virtualgpu.model.clock import LEGACY_ALIAS, PER_THREAD_QUEUE
from virtualgpu.model.graph import GLOBAL_MODE, RELAXED_MODE, THREAD_LOCAL_MODE
from virtualgpu.model.machine import VirtualDevice
from virtualgpu.model.memory.textures import ENUMERATION_VALUES as _TEXTURES
from virtualgpu.records.device.attributes import ATTRIBUTES

# Values of the CUDA runtime's enumerations (driver_types.h).
memcpyHostToHost = 0  # noqa: N816
memcpyHostToDevice = 1  # noqa: N816
memcpyDeviceToHost = 2  # noqa: N816
memcpyDeviceToDevice = 3  # noqa: N816
memcpyDefault = 4  # noqa: N816
streamDefault = 0  # noqa: N816
streamNonBlocking = 1  # noqa: N816
eventDefault = 0  # noqa: N816
eventBlockingSync = 1  # noqa: N816
eventDisableTiming = 2  # noqa: N816
eventInterprocess = 4  # noqa: N816
hostAllocDefault = 0  # noqa: N816
hostAllocPortable = 1  # noqa: N816
hostAllocMapped = 2  # noqa: N816
hostAllocWriteCombined = 4  # noqa: N816
streamCaptureModeGlobal = GLOBAL_MODE  # noqa: N816
streamCaptureModeThreadLocal = THREAD_LOCAL_MODE  # noqa: N816
streamCaptureModeRelaxed = RELAXED_MODE  # noqa: N816
cudaGraphDebugDotFlagsVerbose = 1 << 0  # noqa: N816
cudaGraphDebugDotFlagsKernelNodeParams = 1 << 2  # noqa: N816
streamLegacy = LEGACY_ALIAS  # noqa: N816
streamPerThread = PER_THREAD_QUEUE  # noqa: N816
errorInvalidValue = 1  # noqa: N816
errorMemoryAllocation = 2  # noqa: N816
is_hip = False
errorInvalidResourceHandle = 400  # noqa: N816
errorPeerAccessAlreadyEnabled = 704  # noqa: N816
errorContextIsDestroyed = 709  # noqa: N816
memoryTypeUnregistered = 0  # noqa: N816
memoryTypeHost = 1  # noqa: N816
memoryTypeDevice = 2  # noqa: N816
memoryTypeManaged = 3  # noqa: N816
cudaCpuDeviceId = -1  # noqa: N816
cudaInvalidDeviceId = -2  # noqa: N816
cudaMemAttachGlobal = 1  # noqa: N816
cudaMemAttachHost = 2  # noqa: N816
cudaMemAttachSingle = 4  # noqa: N816
cudaMemAdviseSetReadMostly = 1  # noqa: N816
cudaMemAdviseUnsetReadMostly = 2  # noqa: N816
cudaMemAdviseSetPreferredLocation = 3  # noqa: N816
cudaMemAdviseUnsetPreferredLocation = 4  # noqa: N816
cudaMemAdviseSetAccessedBy = 5  # noqa: N816
cudaMemAdviseUnsetAccessedBy = 6  # noqa: N816
cudaMemPoolReuseFollowEventDependencies = 1  # noqa: N816
cudaMemPoolReuseAllowOpportunistic = 2  # noqa: N816
cudaMemPoolReuseAllowInternalDependencies = 3  # noqa: N816
cudaMemPoolAttrReleaseThreshold = 4  # noqa: N816
cudaMemPoolAttrReservedMemCurrent = 5  # noqa: N816
cudaMemPoolAttrReservedMemHigh = 6  # noqa: N816
cudaMemPoolAttrUsedMemCurrent = 7  # noqa: N816
cudaMemPoolAttrUsedMemHigh = 8  # noqa: N816
cudaMemAllocationTypePinned = 1  # noqa: N816
cudaMemHandleTypeNone = 0  # noqa: N816
cudaMemLocationTypeDevice = 1  # noqa: N816

_NOT_READY_STATUS = 600  # cudaErrorNotReady, the return value of queries
# Modules that define further functions of this module.
_FUNCTION_MODULES = {f"virtualgpu.cp.cuda.{submodule}" for submodule in ("_memory.ipc", "_runtime.devices")}
_PINNING_FUNCTIONS = ("hostRegister", "hostUnregister")


def _get_current_device() -> VirtualDevice:
    return _machine.current().current_device


def deviceSynchronize() -> None:  # noqa: N802
    """Wait on the host until all work of the current device is done."""
    _get_current_device().work_queue.synchronize()


def streamSynchronize(stream: int) -> None:  # noqa: N802
    """Wait on the host until all work of a stream is done. The stream is identified by its handle."""
    get_stream(stream).synchronize()


# Memory


def malloc(size: int) -> int:
    """Allocate `size` bytes of device memory, like ``cudaMalloc``, and return the address."""
    refuse_unsafe_in_capture()
    size = convert_size(size)
    device_memory = _get_current_device().memory
    address = device_memory.malloc(size)
    device_memory.track_allocation(address, size, f"cudaMalloc of {size:,} bytes")
    return address


def free(ptr: int) -> None:
    """Free device memory of any kind, like ``cudaFree``. The address 0 is ignored."""
    device_memory = (find_device_at(ptr := convert_integer(ptr)) or _get_current_device()).memory
    device_memory.free(ptr)
    device_memory.untrack_allocation(ptr)


def memcpy(dst: int, src: int, size: int, kind: int) -> None:
    """Copy `size` bytes between host or device addresses, as `kind` specifies, and wait for the copy."""
    refuse_unsafe_in_capture()
    _copy_bytes(dst, src, size, kind, Stream.null, is_blocking=True)


def memcpyAsync(dst: int, src: int, size: int, kind: int, stream: int) -> None:  # noqa: N802
    """Copy `size` bytes between host or device addresses in a stream, as `kind` specifies."""
    _copy_bytes(dst, src, size, kind, get_stream(stream), is_blocking=False)


def _copy_bytes(dst: int, src: int, size: int, kind: int, stream: _BaseStream, is_blocking: bool) -> None:
    target_device = find_device_at(dst)
    source_device = find_device_at(src)
    has_managed_end = is_managed(dst) or is_managed(src)  # managed memory counts as host or device memory
    if (
        kind != memcpyDefault
        and not has_managed_end
        and (target_device is not None, source_device is not None)
        != (
            kind in (memcpyHostToDevice, memcpyDeviceToDevice),
            kind in (memcpyDeviceToHost, memcpyDeviceToDevice),
        )
    ):
        raise CUDARuntimeError(
            errorInvalidValue,
            "cudaErrorInvalidValue",
            f"invalid argument: the copy kind {kind} does not match the addresses. "
            "memcpyDefault determines the kind by itself.",
        )
    for device, address in ((target_device, dst), (source_device, src)):
        if device is not None:
            device.memory.check_range(address, size)
    target_bytes = (
        view_host_bytes(dst, size) if target_device is None else target_device.memory.view(dst, size)
    )
    source_bytes = (
        view_host_bytes(src, size) if source_device is None else source_device.memory.view(src, size)
    )

    def move_bytes() -> None:
        target_bytes[:] = source_bytes.copy()

    host_bytes = target_bytes if target_device is None else source_bytes
    arrays = (target_bytes, source_bytes)
    enqueue_copy(
        move_bytes,
        size,
        target=target_device,
        source=source_device,
        host_array=host_bytes,
        stream=stream,
        is_blocking=is_blocking,
        arrays=arrays,
    )


def memset(ptr: int, value: int, size: int) -> None:
    """Set each of `size` bytes of device memory to `value`."""
    memsetAsync(ptr, value, size, 0)


def memsetAsync(ptr: int, value: int, size: int, stream: int) -> None:  # noqa: N802
    """Set each of `size` bytes of device memory to `value` in a stream."""
    if not size:
        return
    device = find_device_at(ptr) or _get_current_device()
    device.memory.check_range(ptr, size)
    target_bytes = device.memory.view(ptr, size)

    def fill_bytes() -> None:
        target_bytes[:] = value & 0xFF

    enqueue_memset(fill_bytes, target_bytes, device, get_stream(stream))


def mallocAsync(size: int, stream: int) -> int:  # noqa: N802
    """Allocate `size` bytes from the current device's pool in stream order, like ``cudaMallocAsync``."""
    return allocate_in_stream_order(convert_size(size), get_stream(stream))


def mallocFromPoolAsync(size: int, pool: int, stream: int) -> int:  # noqa: N802
    """Allocate `size` bytes in stream order from the pool with the handle `pool`."""
    return allocate_in_stream_order(
        convert_size(size), get_stream(stream), get_driver_pools().find_pool(pool)
    )


def freeAsync(ptr: int, stream: int) -> None:  # noqa: N802
    """Free device memory in stream order, like ``cudaFreeAsync``. The address 0 is ignored."""
    free_in_stream_order(ptr, get_stream(stream))


def deviceGetDefaultMemPool(device: int) -> int:  # noqa: N802
    """Return the handle of a device's default pool for `mallocAsync`."""
    return get_driver_pools().get_default_pool(_machine.current().device(device)).handle


def deviceGetMemPool(device: int) -> int:  # noqa: N802
    """Return the handle of the pool that `mallocAsync` uses on a device."""
    return get_driver_pools().get_current_pool(get_device_of_id(device)).handle


def deviceSetMemPool(device: int, pool: int) -> None:  # noqa: N802
    """Set the pool that `mallocAsync` uses on a device."""
    get_driver_pools().set_current_pool(get_device_of_id(device), pool)


def memPoolCreate(props: MemPoolProps) -> int:  # noqa: N802
    """Create a stream-ordered memory pool, and return its handle. The pool is released with
    `memPoolDestroy`.
    """
    return create_pool(props)


def memPoolDestroy(pool: int) -> None:  # noqa: N802
    """Destroy a memory pool. Devices that used this pool return to their default pools."""
    get_driver_pools().destroy_pool(pool)


def memPoolTrimTo(pool: int, size: int) -> None:  # noqa: N802
    """Release unused memory of a memory pool until it reserves at most `size` bytes."""
    get_driver_pools().find_pool(pool).trim(convert_size(size))


def memPoolGetAttribute(pool: int, attr: int) -> int:  # noqa: N802
    """Return an attribute of a memory pool, such as ``cudaMemPoolAttrUsedMemCurrent``. All sizes are in
    bytes.
    """
    return get_driver_pools().find_pool(pool).get_attribute(attr)


def memPoolSetAttribute(pool: int, attr: int, value: int) -> None:  # noqa: N802
    """Set an attribute of a memory pool. The high-water marks can only be reset to 0."""
    get_driver_pools().find_pool(pool).set_attribute(attr, value)


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
    """Copy `size` bytes between the memories of two devices in a stream."""
    if not size:
        return
    machine = _machine.current()
    for address, device in ((dst, dstDevice), (src, srcDevice)):
        if find_device_at(address) is not machine.device(device):
            raise CUDARuntimeError(
                errorInvalidValue,
                "cudaErrorInvalidValue",
                f"invalid argument: {address:#x} is not in the memory of device {device}.",
            )
    memcpyAsync(dst, src, size, memcpyDeviceToDevice, stream)


# Streams and events


def streamCreate() -> int:  # noqa: N802
    """Create a blocking stream and return its handle."""
    return register_resource(Stream())


def streamCreateWithFlags(flags: int) -> int:  # noqa: N802
    """Create a stream and return its handle. With the flag ``streamNonBlocking``, the stream does not wait
    for the default stream.
    """
    return register_resource(Stream(non_blocking=flags == streamNonBlocking))


def streamCreateWithPriority(flags: int, priority: int) -> int:  # noqa: N802
    """Create a stream with a priority and return its handle. A lower number means a higher priority."""
    return register_resource(Stream(non_blocking=flags == streamNonBlocking, priority=priority))


def streamDestroy(stream: int) -> None:  # noqa: N802
    """Destroy a stream that `streamCreate` created."""
    unregister_resource(stream, _BaseStream, "stream")


def streamQuery(stream: int) -> int:  # noqa: N802
    """Return 0 if all work of the stream is done, else 600 (``cudaErrorNotReady``)."""
    return 0 if get_stream(stream).done else _NOT_READY_STATUS


def streamWaitEvent(stream: int, event: int, flags: int = 0) -> None:  # noqa: N802
    """Make later work of a stream wait for an event."""
    get_stream(stream).wait_event(get_event(event))


def launchHostFunc(stream: int, callback: Callable[[Any], object], arg: Any) -> None:  # noqa: N802
    """Call ``callback(arg)`` on the host after the work that is queued in a stream."""
    get_stream(stream).launch_host_func(callback, arg)


def eventCreate() -> int:  # noqa: N802
    """Create an event and return its handle."""
    return register_resource(Event())


def eventCreateWithFlags(flags: int) -> int:  # noqa: N802
    """Create an event and return its handle. An event with flag 2 (``eventDisableTiming``) cannot measure
    time.
    """
    return register_resource(Event(disable_timing=bool(flags & eventDisableTiming)))


def eventDestroy(event: int) -> None:  # noqa: N802
    """Destroy an event that `eventCreate` created."""
    unregister_resource(event, Event, "event")


def eventRecord(event: int, stream: int) -> None:  # noqa: N802
    """Record an event after the work that is queued in a stream."""
    get_stream(stream).record(get_event(event))


def eventQuery(event: int) -> int:  # noqa: N802
    """Return 0 if the work before the event is done, else 600 (``cudaErrorNotReady``)."""
    return 0 if get_event(event).done else _NOT_READY_STATUS


def eventSynchronize(event: int) -> None:  # noqa: N802
    """Wait on the host until the work before an event is done."""
    get_event(event).synchronize()


def eventElapsedTime(start: int, end: int) -> float:  # noqa: N802
    """Return the modelled time between two events, in milliseconds."""
    return get_elapsed_time(get_event(start), get_event(end))


# Graphs


def streamBeginCapture(stream: int, mode: int = streamCaptureModeRelaxed) -> None:  # noqa: N802
    """Start to capture the work of a stream as the nodes of a graph, like `Stream.begin_capture`."""
    get_stream(stream).begin_capture(mode)


def streamEndCapture(stream: int) -> int:  # noqa: N802
    """End a capture and return the handle of the graph. The graph is released with `graphDestroy`."""
    graph = get_stream(stream).end_capture()
    _machine.current().runtime_objects[graph.graph] = graph
    return graph.graph


def streamIsCapturing(stream: int) -> bool:  # noqa: N802
    """Return whether a stream takes part in the capture of a graph."""
    return get_stream(stream).is_capturing()


def _get_graph(handle: int) -> Graph:
    graph: Graph | None = _machine.current().graphs.get(handle)
    if graph is None:
        raise CUDARuntimeError(
            errorInvalidValue,
            "cudaErrorInvalidValue",
            f"invalid argument: {handle:#x} is not the handle of a live graph.",
        )
    return graph


def graphInstantiate(graph: int) -> int:  # noqa: N802
    """Return the handle of an executable graph for `graphLaunch`. The executable graph is released with
    `graphExecDestroy`.
    """
    graph_object = _get_graph(graph)
    _machine.current().runtime_objects[graph_object.graphExec] = graph_object
    return graph_object.graphExec


def graphLaunch(graphExec: int, stream: int) -> None:  # noqa: N802, N803
    """Run the nodes of a graph in a stream."""
    _get_graph(graphExec).launch(get_stream(stream))


def graphUpload(graphExec: int, stream: int) -> None:  # noqa: N802, N803
    """Check that a handle belongs to an executable graph. The function does nothing else on the virtual
    GPU.
    """
    _get_graph(graphExec)


def graphDestroy(graph: int) -> None:  # noqa: N802
    """Destroy a captured graph. Executable graphs that were created from it remain valid."""
    unregister_resource(graph, Graph, "graph")


def graphExecDestroy(graphExec: int) -> None:  # noqa: N802, N803
    """Destroy an executable graph that `graphInstantiate` returned."""
    unregister_resource(graphExec, Graph, "graph")


# Peers, host memory, profiler


def hostAlloc(size: int, flags: int = 0) -> int:  # noqa: N802
    """Allocate pinned host memory and return its address (0 for 0 bytes). The memory is freed with
    `freeHost`.
    """
    memory = PinnedMemory(size, flags)
    return register_resource(memory) if memory.ptr else 0


def freeHost(ptr: int) -> None:  # noqa: N802
    """Free host memory that `hostAlloc` allocated. The address 0 is ignored."""
    if not ptr:
        return
    if not isinstance(_machine.current().runtime_objects.get(ptr), PinnedMemory):
        raise CUDARuntimeError(
            errorInvalidValue,
            "cudaErrorInvalidValue",
            f"invalid argument: {ptr:#x} was not returned by hostAlloc, or has already been freed.",
        )
    del _machine.current().runtime_objects[ptr]


def mallocManaged(size: int, flags: int = cudaMemAttachGlobal) -> int:  # noqa: N802
    """Allocate managed memory, which host and device can access, and return its address.

    Raises
    ------
    CUDARuntimeError
        Status 2 for more than the device's free memory; 1 for flags other than global (1) and host (2).
    """
    if flags not in (cudaMemAttachGlobal, cudaMemAttachHost):
        raise CUDARuntimeError(
            errorInvalidValue,
            "cudaErrorInvalidValue",
            f"invalid argument: the flags {flags} of managed memory are neither cudaMemAttachGlobal (1) nor "
            "cudaMemAttachHost (2).",
        )
    return allocate_managed(convert_size(size), _get_current_device())


def memPrefetchAsync(devPtr: int, count: int, dstDevice: int, stream: int) -> None:  # noqa: N802, N803
    """Move managed memory to a device after the work that is queued in a stream."""
    prefetch_managed(devPtr, count, dstDevice, get_stream(stream))


def memAdvise(devPtr: int, count: int, advice: int, device: int) -> None:  # noqa: N802, N803
    """Tell the driver how a program will use managed memory. Only the advice "read mostly" has an effect on
    the virtual GPU.
    """
    advise_managed(devPtr, count, advice, device)


def pointerGetAttributes(ptr: int) -> PointerAttributes:  # noqa: N802
    """Return the memory type, device and addresses of a pointer. An address that is unknown to CUDA has
    memory type 0 and device -2.
    """
    return read_pointer_attributes(ptr)


def pointerGetMemoryType(ptr: int) -> int:  # noqa: N802
    """Return the memory type of an address, such as ``memoryTypeDevice`` or ``memoryTypeUnregistered``."""
    return read_pointer_attributes(ptr).type


def profilerStart() -> None:  # noqa: N802
    """Do nothing, because no external profiler can record a virtual GPU."""


profilerStop = profilerStart  # noqa: N816


def __getattr__(name: str) -> Any:
    constant_values = {
        f"cudaDevAttr{attribute.name}": attribute.number for attribute in ATTRIBUTES
    } | _TEXTURES
    if name in constant_values:
        return constant_values[name]
    raise make_missing_name_error("cp.cuda.runtime", name, __dir__())


def __dir__() -> list[str]:
    imported_names = [
        name for name, value in globals().items() if getattr(value, "__module__", "") in _FUNCTION_MODULES
    ]
    return sorted([*list_public_names(globals()), *imported_names, *_PINNING_FUNCTIONS, *_TEXTURES])
