"""``cp.cuda.runtime``: the CUDA runtime functions of the virtual machine, under CuPy's names."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from virtualgpu.cp._missing_names import missing_attribute, public_names
from virtualgpu.cp.cuda._memory.copies import copy, device_at, set_memory
from virtualgpu.cp.cuda._memory.driver_pools import (
    MemPoolProps,
    allocate_ordered,
    device_of,
    driver_pools,
    free_ordered,
    make_pool,
)
from virtualgpu.cp.cuda._memory.ipc import ipcCloseMemHandle as ipcCloseMemHandle
from virtualgpu.cp.cuda._memory.ipc import ipcGetEventHandle as ipcGetEventHandle
from virtualgpu.cp.cuda._memory.ipc import ipcGetMemHandle as ipcGetMemHandle
from virtualgpu.cp.cuda._memory.ipc import ipcOpenEventHandle as ipcOpenEventHandle
from virtualgpu.cp.cuda._memory.ipc import ipcOpenMemHandle as ipcOpenMemHandle
from virtualgpu.cp.cuda._memory.places import (
    PointerAttributes,
    advise,
    allocate_managed,
    is_managed,
    pointer_attributes,
    prefetch,
)
from virtualgpu.cp.cuda._memory.sizes import as_integer, size_t
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
from virtualgpu.cp.cuda._runtime.handles import event_of, forget, keep, stream_of
from virtualgpu.cp.cuda.graph import Graph
from virtualgpu.cp.cuda.pinned_memory import PinnedMemory, host_bytes
from virtualgpu.cp.cuda.pinned_memory import hostRegister as hostRegister
from virtualgpu.cp.cuda.pinned_memory import hostUnregister as hostUnregister
from virtualgpu.cp.cuda.stream import Event, Stream, _BaseStream, get_elapsed_time, refuse_unsafe
from virtualgpu.cuda_errors import CUDARuntimeError
from virtualgpu.model import machine as _machine
from virtualgpu.model.clock import LEGACY_ALIAS, PER_THREAD_QUEUE
from virtualgpu.model.graph import GLOBAL_MODE, RELAXED_MODE, THREAD_LOCAL_MODE
from virtualgpu.model.machine import VirtualDevice
from virtualgpu.model.memory.textures import NUMBERS as _TEXTURES
from virtualgpu.records.device.attributes import ATTRIBUTES

# Values of the CUDA runtime's enumerations (driver_types.h).
memcpyHostToHost, memcpyHostToDevice, memcpyDeviceToHost = 0, 1, 2  # noqa: N816
memcpyDeviceToDevice, memcpyDefault = 3, 4  # noqa: N816
streamDefault, streamNonBlocking = 0, 1  # noqa: N816
eventDefault, eventBlockingSync, eventDisableTiming, eventInterprocess = 0, 1, 2, 4  # noqa: N816
hostAllocDefault, hostAllocPortable, hostAllocMapped, hostAllocWriteCombined = 0, 1, 2, 4  # noqa: N816
streamCaptureModeGlobal, streamCaptureModeThreadLocal = GLOBAL_MODE, THREAD_LOCAL_MODE  # noqa: N816
streamCaptureModeRelaxed = RELAXED_MODE  # noqa: N816
cudaGraphDebugDotFlagsVerbose, cudaGraphDebugDotFlagsKernelNodeParams = 1 << 0, 1 << 2  # noqa: N816
streamLegacy, streamPerThread = LEGACY_ALIAS, PER_THREAD_QUEUE  # noqa: N816
errorInvalidValue, errorMemoryAllocation, is_hip = 1, 2, False  # noqa: N816
errorInvalidResourceHandle, errorPeerAccessAlreadyEnabled, errorContextIsDestroyed = 400, 704, 709  # noqa: N816
memoryTypeUnregistered, memoryTypeHost, memoryTypeDevice, memoryTypeManaged = range(4)  # noqa: N816
cudaCpuDeviceId, cudaInvalidDeviceId = -1, -2  # noqa: N816
cudaMemAttachGlobal, cudaMemAttachHost, cudaMemAttachSingle = 1, 2, 4  # noqa: N816
cudaMemAdviseSetReadMostly, cudaMemAdviseUnsetReadMostly = 1, 2  # noqa: N816
cudaMemAdviseSetPreferredLocation, cudaMemAdviseUnsetPreferredLocation = 3, 4  # noqa: N816
cudaMemAdviseSetAccessedBy, cudaMemAdviseUnsetAccessedBy = 5, 6  # noqa: N816
cudaMemPoolReuseFollowEventDependencies, cudaMemPoolReuseAllowOpportunistic = 1, 2  # noqa: N816
cudaMemPoolReuseAllowInternalDependencies, cudaMemPoolAttrReleaseThreshold = 3, 4  # noqa: N816
cudaMemPoolAttrReservedMemCurrent, cudaMemPoolAttrReservedMemHigh = 5, 6  # noqa: N816
cudaMemPoolAttrUsedMemCurrent, cudaMemPoolAttrUsedMemHigh = 7, 8  # noqa: N816
cudaMemAllocationTypePinned, cudaMemHandleTypeNone, cudaMemLocationTypeDevice = 1, 0, 1  # noqa: N816

_NOT_READY = 600  # cudaErrorNotReady, which queries return
# Where else the functions of this module come from.
_HOMES = {f"virtualgpu.cp.cuda.{home}" for home in ("_memory.ipc", "_runtime.devices")}
_HOSTS = ("hostRegister", "hostUnregister")


def _device() -> VirtualDevice:
    return _machine.current().current_device


def deviceSynchronize() -> None:  # noqa: N802
    """Let the host wait for everything on the current device."""
    _device().work.synchronize()


def streamSynchronize(stream: int) -> None:  # noqa: N802
    """Let the host wait for the stream with this handle."""
    stream_of(stream).synchronize()


# Memory


def malloc(size: int) -> int:
    """``cudaMalloc``: the address of `size` bytes, which kernels may then touch."""
    refuse_unsafe()
    size = size_t(size)
    memory = _device().memory
    address = memory.malloc(size)
    memory.track(address, size, f"cudaMalloc of {size:,} bytes")
    return address


def free(ptr: int) -> None:
    """``cudaFree``, of any kind of device memory; 0 is ignored."""
    memory = (device_at(ptr := as_integer(ptr)) or _device()).memory
    memory.free(ptr)
    memory.untrack(ptr)


def memcpy(dst: int, src: int, size: int, kind: int) -> None:
    """Copy `size` bytes between addresses, host or device by `kind`; the host waits."""
    refuse_unsafe()
    _copy(dst, src, size, kind, Stream.null, waits=True)


def memcpyAsync(dst: int, src: int, size: int, kind: int, stream: int) -> None:  # noqa: N802
    """Copy `size` bytes between addresses, host or device by `kind`, on a stream."""
    _copy(dst, src, size, kind, stream_of(stream), waits=False)


def _copy(dst: int, src: int, size: int, kind: int, stream: _BaseStream, waits: bool) -> None:
    to = device_at(dst)
    source = device_at(src)
    either = is_managed(dst) or is_managed(src)  # an end in managed memory may be called host or device
    if (
        kind != memcpyDefault
        and not either
        and (to is not None, source is not None)
        != (
            kind in (memcpyHostToDevice, memcpyDeviceToDevice),
            kind in (memcpyDeviceToHost, memcpyDeviceToDevice),
        )
    ):
        raise CUDARuntimeError(
            errorInvalidValue,
            "cudaErrorInvalidValue",
            f"invalid argument: the copy kind {kind} does not fit the addresses; memcpyDefault finds it out.",
        )
    for device, address in ((to, dst), (source, src)):
        if device is not None:
            device.memory.check(address, size)
    into = host_bytes(dst, size) if to is None else to.memory.view(dst, size)
    out_of = host_bytes(src, size) if source is None else source.memory.view(src, size)

    def move() -> None:
        into[:] = out_of.copy()

    host = into if to is None else out_of
    ends = (into, out_of)
    copy(move, size, target=to, source=source, host=host, stream=stream, blocking=waits, arrays=ends)


def memset(ptr: int, value: int, size: int) -> None:
    """Set `size` bytes of device memory."""
    memsetAsync(ptr, value, size, 0)


def memsetAsync(ptr: int, value: int, size: int, stream: int) -> None:  # noqa: N802
    """Set `size` bytes of device memory on a stream."""
    if not size:
        return
    device = device_at(ptr) or _device()
    device.memory.check(ptr, size)
    view = device.memory.view(ptr, size)

    def fill() -> None:
        view[:] = value & 0xFF

    set_memory(fill, view, device, stream_of(stream))


def mallocAsync(size: int, stream: int) -> int:  # noqa: N802
    """``cudaMallocAsync``: `size` bytes of the current device's pool, in the order of a stream."""
    return allocate_ordered(size_t(size), stream_of(stream))


def mallocFromPoolAsync(size: int, pool: int, stream: int) -> int:  # noqa: N802
    """Like `mallocAsync`, from the pool with a handle."""
    return allocate_ordered(size_t(size), stream_of(stream), driver_pools().get(pool))


def freeAsync(ptr: int, stream: int) -> None:  # noqa: N802
    """``cudaFreeAsync``: free in the order of a stream; 0 is ignored."""
    free_ordered(ptr, stream_of(stream))


def deviceGetDefaultMemPool(device: int) -> int:  # noqa: N802
    """Handle of the pool that `mallocAsync` takes from unless another was chosen."""
    return driver_pools().default(_machine.current().device(device)).handle


def deviceGetMemPool(device: int) -> int:  # noqa: N802
    """Handle of the pool that `mallocAsync` takes from."""
    return driver_pools().current(device_of(device)).handle


def deviceSetMemPool(device: int, pool: int) -> None:  # noqa: N802
    """Choose the pool that `mallocAsync` takes from."""
    driver_pools().choose(device_of(device), pool)


def memPoolCreate(props: MemPoolProps) -> int:  # noqa: N802
    """Handle of a new stream-ordered pool; end it with `memPoolDestroy`."""
    return make_pool(props)


def memPoolDestroy(pool: int) -> None:  # noqa: N802
    """End a pool; a device whose current pool it was takes its default pool again."""
    driver_pools().destroy(pool)


def memPoolTrimTo(pool: int, size: int) -> None:  # noqa: N802
    """Give unused memory of a pool back to the device while more than `size` bytes are reserved."""
    driver_pools().get(pool).trim(size_t(size))


def memPoolGetAttribute(pool: int, attr: int) -> int:  # noqa: N802
    """An attribute of a pool, such as ``cudaMemPoolAttrUsedMemCurrent``; sizes are in bytes."""
    return driver_pools().get(pool).attribute(attr)


def memPoolSetAttribute(pool: int, attr: int, value: int) -> None:  # noqa: N802
    """Set an attribute of a pool; the high marks take 0 only."""
    driver_pools().get(pool).set_attribute(attr, value)


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
    if not size:
        return
    machine = _machine.current()
    for address, device in ((dst, dstDevice), (src, srcDevice)):
        if device_at(address) is not machine.device(device):
            raise CUDARuntimeError(
                errorInvalidValue,
                "cudaErrorInvalidValue",
                f"invalid argument: {address:#x} is not in the memory of device {device}.",
            )
    memcpyAsync(dst, src, size, memcpyDeviceToDevice, stream)


# Streams and events


def streamCreate() -> int:  # noqa: N802
    """Handle of a new blocking stream."""
    return keep(Stream())


def streamCreateWithFlags(flags: int) -> int:  # noqa: N802
    """Handle of a new stream; ``streamNonBlocking`` does not wait for the default stream."""
    return keep(Stream(non_blocking=flags == streamNonBlocking))


def streamCreateWithPriority(flags: int, priority: int) -> int:  # noqa: N802
    """Handle of a new stream with a priority; lower numbers are more urgent."""
    return keep(Stream(non_blocking=flags == streamNonBlocking, priority=priority))


def streamDestroy(stream: int) -> None:  # noqa: N802
    """End a stream that `streamCreate` made."""
    forget(stream, _BaseStream, "stream")


def streamQuery(stream: int) -> int:  # noqa: N802
    """0 once all work of the stream is done, 600 (``cudaErrorNotReady``) before, which is no exception."""
    return 0 if stream_of(stream).done else _NOT_READY


def streamWaitEvent(stream: int, event: int, flags: int = 0) -> None:  # noqa: N802
    """Let later work of the stream wait for an event."""
    stream_of(stream).wait_event(event_of(event))


def launchHostFunc(stream: int, callback: Callable[[Any], object], arg: Any) -> None:  # noqa: N802
    """Call ``callback(arg)`` after the stream's work."""
    stream_of(stream).launch_host_func(callback, arg)


def eventCreate() -> int:  # noqa: N802
    """Handle of a new event."""
    return keep(Event())


def eventCreateWithFlags(flags: int) -> int:  # noqa: N802
    """Handle of a new event; flag 2, ``eventDisableTiming``, makes one without time."""
    return keep(Event(disable_timing=bool(flags & eventDisableTiming)))


def eventDestroy(event: int) -> None:  # noqa: N802
    """End an event that `eventCreate` made."""
    forget(event, Event, "event")


def eventRecord(event: int, stream: int) -> None:  # noqa: N802
    """Put an event behind the queued work of a stream."""
    stream_of(stream).record(event_of(event))


def eventQuery(event: int) -> int:  # noqa: N802
    """0 once the work before the event is done, 600 (``cudaErrorNotReady``) before, which is no exception."""
    return 0 if event_of(event).done else _NOT_READY


def eventSynchronize(event: int) -> None:  # noqa: N802
    """Let the host wait for an event."""
    event_of(event).synchronize()


def eventElapsedTime(start: int, end: int) -> float:  # noqa: N802
    """Modelled milliseconds between two events."""
    return get_elapsed_time(event_of(start), event_of(end))


# Graphs


def streamBeginCapture(stream: int, mode: int = streamCaptureModeRelaxed) -> None:  # noqa: N802
    """Let a stream keep its work as the nodes of a graph; see `Stream.begin_capture`."""
    stream_of(stream).begin_capture(mode)


def streamEndCapture(stream: int) -> int:  # noqa: N802
    """Handle of the graph that a stream has captured; end it with `graphDestroy`."""
    graph = stream_of(stream).end_capture()
    _machine.current().handles[graph.graph] = graph
    return graph.graph


def streamIsCapturing(stream: int) -> bool:  # noqa: N802
    """Whether a stream takes part in the capture of a graph."""
    return stream_of(stream).is_capturing()


def _graph(handle: int) -> Graph:
    found: Graph | None = _machine.current().graphs.get(handle)
    if found is None:
        raise CUDARuntimeError(
            errorInvalidValue,
            "cudaErrorInvalidValue",
            f"invalid argument: {handle:#x} is no graph that lives.",
        )
    return found


def graphInstantiate(graph: int) -> int:  # noqa: N802
    """Handle of a graph in the form that `graphLaunch` takes; end it with `graphExecDestroy`."""
    found = _graph(graph)
    _machine.current().handles[found.graphExec] = found
    return found.graphExec


def graphLaunch(graphExec: int, stream: int) -> None:  # noqa: N802, N803
    """Run the nodes of a graph in a stream."""
    _graph(graphExec).launch(stream_of(stream))


def graphUpload(graphExec: int, stream: int) -> None:  # noqa: N802, N803
    """Prepare a launch; on the virtual GPU there is nothing to prepare."""
    _graph(graphExec)


def graphDestroy(graph: int) -> None:  # noqa: N802
    """End a graph that `streamEndCapture` gave; what was instantiated from it lives on."""
    forget(graph, Graph, "graph")


def graphExecDestroy(graphExec: int) -> None:  # noqa: N802, N803
    """End a graph that `graphInstantiate` gave."""
    forget(graphExec, Graph, "graph")


# Peers, host memory, profiler


def hostAlloc(size: int, flags: int = 0) -> int:  # noqa: N802
    """Address of page-locked host memory, 0 for 0 bytes; end it with `freeHost`."""
    memory = PinnedMemory(size, flags)
    return keep(memory) if memory.ptr else 0


def freeHost(ptr: int) -> None:  # noqa: N802
    """Free what `hostAlloc` gave; 0 is ignored."""
    if not ptr:
        return
    if not isinstance(_machine.current().handles.get(ptr), PinnedMemory):
        raise CUDARuntimeError(
            errorInvalidValue,
            "cudaErrorInvalidValue",
            f"invalid argument: {ptr:#x} is not what hostAlloc gave, or was freed already.",
        )
    del _machine.current().handles[ptr]


def mallocManaged(size: int, flags: int = cudaMemAttachGlobal) -> int:  # noqa: N802
    """Address of managed memory, for host and device; see `cp.cuda.ManagedMemory` for what is modelled.

    Raises
    ------
    CUDARuntimeError
        Status 2 for more than the device has free; 1 for other flags than global (1) and host (2).
    """
    if flags not in (cudaMemAttachGlobal, cudaMemAttachHost):
        raise CUDARuntimeError(
            errorInvalidValue,
            "cudaErrorInvalidValue",
            f"invalid argument: the flags {flags} of managed memory are neither cudaMemAttachGlobal (1) nor "
            "cudaMemAttachHost (2).",
        )
    return allocate_managed(size_t(size), _device())


def memPrefetchAsync(devPtr: int, count: int, dstDevice: int, stream: int) -> None:  # noqa: N802, N803
    """Bring managed memory to a device, in the order of a stream."""
    prefetch(devPtr, count, dstDevice, stream_of(stream))


def memAdvise(devPtr: int, count: int, advice: int, device: int) -> None:  # noqa: N802, N803
    """Tell how managed memory will be used; the virtual GPU heeds "read mostly" and checks the others."""
    advise(devPtr, count, advice, device)


def pointerGetAttributes(ptr: int) -> PointerAttributes:  # noqa: N802
    """Kind of memory, device and addresses of a pointer; type 0 and device -2 for what CUDA does not know."""
    return pointer_attributes(ptr)


def pointerGetMemoryType(ptr: int) -> int:  # noqa: N802
    """``memoryTypeUnregistered``, ``...Host``, ``...Device`` or ``...Managed``."""
    return pointer_attributes(ptr).type


def profilerStart() -> None:  # noqa: N802
    """Region for an external profiler; none watches a virtual GPU."""


profilerStop = profilerStart  # noqa: N816


def __getattr__(name: str) -> Any:
    numbers = {f"cudaDevAttr{known.name}": known.number for known in ATTRIBUTES} | _TEXTURES
    if name in numbers:
        return numbers[name]
    raise missing_attribute("cp.cuda.runtime", name, __dir__())


def __dir__() -> list[str]:
    elsewhere = [name for name, value in globals().items() if getattr(value, "__module__", "") in _HOMES]
    return sorted([*public_names(globals()), *elsewhere, *_HOSTS, *_TEXTURES])
