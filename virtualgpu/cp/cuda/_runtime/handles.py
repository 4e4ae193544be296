"""Streams, events and what else the runtime's functions know by a handle."""

from __future__ import annotations

from typing import Any

from virtualgpu.cp.cuda.stream import Event, _BaseStream
from virtualgpu.cuda_errors import CUDARuntimeError
from virtualgpu.model import machine as _machine


def keep(thing: Any) -> int:
    """Let something live until `forget` gets its handle, which this is."""
    _machine.current().handles[thing.ptr] = thing
    return int(thing.ptr)


def kept(handle: int, kind: type, what: str) -> Any:
    """What `keep` gave a handle.

    Raises
    ------
    CUDARuntimeError
        Status 400, ``cudaErrorInvalidResourceHandle``.
    """
    found = _machine.current().handles.get(handle)
    if not isinstance(found, kind):
        raise CUDARuntimeError(
            400,
            "cudaErrorInvalidResourceHandle",
            f"invalid resource handle: {handle:#x} is no {what} that lives.",
        )
    return found


def forget(handle: int, kind: type, what: str) -> None:
    """End what `keep` began."""
    kept(handle, kind, what)
    del _machine.current().handles[handle]


def stream_of(handle: int) -> _BaseStream:
    """The stream with a handle, made here or elsewhere."""
    machine = _machine.current()
    found = machine.handles.get(handle)
    if isinstance(found, _BaseStream):
        return found
    owner = next((device.id for device in machine.devices if device.work.schedule.has(handle)), -1)
    return _BaseStream(handle, owner)


def event_of(handle: int) -> Event:
    """The event with a handle: of the runtime's functions, or the `ptr` of an `Event` that lives."""
    found: Event | None = _machine.current().events.get(handle)
    return found or kept(handle, Event, "event")
