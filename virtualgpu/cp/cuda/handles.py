"""The CUDA runtime's functions of streams, events and peers, by handle."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from virtualgpu.cp.cuda.pinned import PinnedMemory
from virtualgpu.cp.cuda.streams import Event, Stream, _BaseStream, get_elapsed_time
from virtualgpu.cuda_errors import CUDARuntimeError
from virtualgpu.errors import NotSupportedError
from virtualgpu.model import machine as _machine

_DISABLE_TIMING = 2  # cudaEventDisableTiming
_NON_BLOCKING = 1  # cudaStreamNonBlocking
_INVALID_HANDLE = (400, "cudaErrorInvalidResourceHandle")
_PEER = "virtual GPUs have no peer access; copy with cp.asarray or copy_from_device"


def _keep(thing: Any) -> int:
    _machine.current().handles[thing.ptr] = thing
    return int(thing.ptr)


def _kept(handle: int, kind: type, what: str) -> Any:
    found = _machine.current().handles.get(handle)
    if not isinstance(found, kind):
        raise CUDARuntimeError(
            *_INVALID_HANDLE, f"invalid resource handle: {handle:#x} is no {what} that lives."
        )
    return found


def _forget(handle: int, kind: type, what: str) -> None:
    _kept(handle, kind, what)
    del _machine.current().handles[handle]


def stream_of(handle: int) -> _BaseStream:
    """The stream with a handle, made here or elsewhere."""
    found = _machine.current().handles.get(handle)
    return found if isinstance(found, _BaseStream) else _BaseStream(handle, -1)


def streamCreate() -> int:  # noqa: N802
    """Handle of a new blocking stream."""
    return _keep(Stream())


def streamCreateWithFlags(flags: int) -> int:  # noqa: N802
    """Handle of a new stream; ``streamNonBlocking`` does not wait for the default stream."""
    return _keep(Stream(non_blocking=flags == _NON_BLOCKING))


def streamCreateWithPriority(flags: int, priority: int) -> int:  # noqa: N802
    """Handle of a new stream with a priority; lower numbers are more urgent."""
    return _keep(Stream(non_blocking=flags == _NON_BLOCKING, priority=priority))


def streamDestroy(stream: int) -> None:  # noqa: N802
    """End a stream that `streamCreate` made."""
    _forget(stream, _BaseStream, "stream")


def streamQuery(stream: int) -> int:  # noqa: N802
    """0 once all work of the stream is done; error 600, ``cudaErrorNotReady``, before."""
    if not stream_of(stream).done:
        raise CUDARuntimeError(600, "cudaErrorNotReady", "device not ready: the stream still has work.")
    return 0


def streamWaitEvent(stream: int, event: int, flags: int = 0) -> None:  # noqa: N802
    """Let later work of the stream wait for an event."""
    stream_of(stream).wait_event(_kept(event, Event, "event"))


def launchHostFunc(stream: int, callback: Callable[[Any], object], arg: Any) -> None:  # noqa: N802
    """Call ``callback(arg)`` after the stream's work; the virtual GPU has run it already."""
    callback(arg)


def eventCreate() -> int:  # noqa: N802
    """Handle of a new event."""
    return _keep(Event())


def eventCreateWithFlags(flags: int) -> int:  # noqa: N802
    """Handle of a new event; flag 2, ``eventDisableTiming``, makes one without time."""
    return _keep(Event(disable_timing=bool(flags & _DISABLE_TIMING)))


def eventDestroy(event: int) -> None:  # noqa: N802
    """End an event that `eventCreate` made."""
    _forget(event, Event, "event")


def eventRecord(event: int, stream: int) -> None:  # noqa: N802
    """Put an event behind the queued work of a stream."""
    stream_of(stream).record(_kept(event, Event, "event"))


def eventQuery(event: int) -> int:  # noqa: N802
    """0 once the work before the event is done; error 600, ``cudaErrorNotReady``, before."""
    if not _kept(event, Event, "event").done:
        raise CUDARuntimeError(600, "cudaErrorNotReady", "device not ready: work before the event is left.")
    return 0


def eventSynchronize(event: int) -> None:  # noqa: N802
    """Let the host wait for an event."""
    _kept(event, Event, "event").synchronize()


def eventElapsedTime(start: int, end: int) -> float:  # noqa: N802
    """Modelled milliseconds between two events."""
    return get_elapsed_time(_kept(start, Event, "event"), _kept(end, Event, "event"))


# Peers, host memory, profiler


def deviceCanAccessPeer(device: int, peerDevice: int) -> int:  # noqa: N802, N803
    """0: virtual GPUs cannot read each other's memory in kernels."""
    machine = _machine.current()
    machine.device(device), machine.device(peerDevice)
    return 0


def deviceEnablePeerAccess(peerDevice: int) -> None:  # noqa: N802, N803
    """Error 217: virtual GPUs have no peer access."""
    _machine.current().device(peerDevice)
    raise CUDARuntimeError(217, "cudaErrorPeerAccessUnsupported", f"peer access is not supported: {_PEER}.")


def deviceDisablePeerAccess(peerDevice: int) -> None:  # noqa: N802, N803
    """Error 705: it was never enabled."""
    _machine.current().device(peerDevice)
    raise CUDARuntimeError(
        705, "cudaErrorPeerAccessNotEnabled", f"peer access has not been enabled: {_PEER}."
    )


def hostAlloc(size: int, flags: int = 0) -> int:  # noqa: N802
    """Address of page-locked host memory; end it with `freeHost`."""
    return _keep(PinnedMemory(size, flags))


def freeHost(ptr: int) -> None:  # noqa: N802
    """Free what `hostAlloc` gave."""
    _forget(ptr, PinnedMemory, "page-locked memory")


def mallocManaged(size: int, flags: int = 1) -> int:  # noqa: N802
    """Managed memory: not on the virtual GPU."""
    raise NotSupportedError(
        "The virtual GPU has no managed memory, since it does not model page migration; use "
        "cp.cuda.runtime.malloc(size) and copies, or cp.cuda.alloc(size)."
    )


def profilerStart() -> None:  # noqa: N802
    """Region for an external profiler; none watches a virtual GPU."""


def profilerStop() -> None:  # noqa: N802
    """See `profilerStart`."""
