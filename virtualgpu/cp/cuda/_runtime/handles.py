"""Handles, by which the runtime's functions identify objects such as streams and events."""

from __future__ import annotations

from typing import Any

from virtualgpu.cp.cuda.stream import Event, _BaseStream
from virtualgpu.cuda_errors import CUDARuntimeError
from virtualgpu.model import machine as _machine


def register_resource(resource: Any) -> int:
    """Keep an object alive until `unregister_resource` is called, and return a handle for it."""
    _machine.current().runtime_objects[resource.ptr] = resource
    return int(resource.ptr)


def get_resource(handle: int, expected_class: type, type_name: str) -> Any:
    """Return the object that was registered with a given handle.

    Raises
    ------
    CUDARuntimeError
        Status 400, ``cudaErrorInvalidResourceHandle``.
    """
    resource = _machine.current().runtime_objects.get(handle)
    if not isinstance(resource, expected_class):
        raise CUDARuntimeError(
            400,
            "cudaErrorInvalidResourceHandle",
            f"invalid resource handle: {handle:#x} is not the handle of a live {type_name}.",
        )
    return resource


def unregister_resource(handle: int, expected_class: type, type_name: str) -> None:
    """Release the object that `register_resource` keeps alive."""
    get_resource(handle, expected_class, type_name)
    del _machine.current().runtime_objects[handle]


def get_stream(handle: int) -> _BaseStream:
    """Return the stream with a given handle, including streams that no runtime function created."""
    machine = _machine.current()
    stream = machine.runtime_objects.get(handle)
    if isinstance(stream, _BaseStream):
        return stream
    owner_id = next(
        (device.id for device in machine.devices if device.work_queue.schedule.has_queue(handle)), -1
    )
    return _BaseStream(handle, owner_id)


def get_event(handle: int) -> Event:
    """Return the event with a given handle. The handle can also be the attribute `ptr` of an existing
    `Event`.
    """
    event: Event | None = _machine.current().events.get(handle)
    return event or get_resource(handle, Event, "event")
