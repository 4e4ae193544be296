"""The implementation of memory copies, which all functions of ``cp`` that copy use.

The cost of a copy depends on its two ends (host memory or the memory of a device) and on whether host
memory is pinned. The function that is called only determines whether the host waits.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt

from virtualgpu.cp.cuda.pinned_memory import is_pinned
from virtualgpu.cp.cuda.stream import _BaseStream, get_current_stream
from virtualgpu.model import cost
from virtualgpu.model.clock import LEGACY_QUEUE
from virtualgpu.model.links.ports import PeerTransfers
from virtualgpu.model.machine import VirtualDevice, current
from virtualgpu.records import CopyKind
from virtualgpu.records.acts import LEGACY

# Rate of one core's copy to a pinned buffer (64 MiB in 10.4 ms on the host of an H200, 7.9 ms on that of an
# H100), and the largest copy that the driver stages within the call: 1 MiB, not 4 MiB.
STAGING_GBPS = 7.3
_MAX_STAGED_BYTES = 1 << 20


def enqueue_copy(
    move_bytes: Callable[[], object],
    size_bytes: int,
    *,
    target: VirtualDevice | None = None,
    source: VirtualDevice | None = None,
    host_array: np.ndarray[Any, Any] | None = None,
    stream: _BaseStream | None = None,
    is_blocking: bool = False,
    is_staged: bool = False,
    arrays: tuple[npt.NDArray[Any], npt.NDArray[Any]],
) -> None:
    """Copy bytes between host and device memory, or between devices, in a stream.

    Parameters
    ----------
    move_bytes : callable
        Moves the bytes.
    size_bytes : int
        Number of bytes; nothing happens for 0.
    target, source : VirtualDevice, optional
        Devices of the target and the source; None for host memory.
    host_array : numpy.ndarray, optional
        The array in host memory.
    stream : Stream, optional
        The current stream by default.
    is_blocking : bool
        Whether the host waits for the end of the copy.
    arrays : tuple of numpy.ndarray
        Target array and source array.
    is_staged : bool
        Whether pageable memory is first copied to a pinned buffer, as ``cp.asarray`` does.

    Notes
    -----
    Without `is_blocking`, the host continues at once if its memory is pinned. Pageable memory is staged by
    the driver: the host waits for earlier work of the stream and until the data have been read or written. A
    small copy to the device is an exception, since its data are read within the call (CUDA Runtime API,
    "API synchronization behavior"). On an H200, after a kernel of 4 ms, a copy of 1 MiB to the device
    blocked the host for 120 us, 4 MiB for 4.3 ms, and 4 KiB to the host for 4.1 ms.

    In the legacy default stream a copy between two devices waits for both, and both wait for it (CUDA C++
    Programming Guide, "Peer-to-Peer Memory Copy").
    """
    if size_bytes <= 0:
        return
    device = target or source
    if device is None:
        move_bytes()
        return
    copy_kind: CopyKind
    if target is None or source is None:
        copy_kind = "HtoD" if source is None else "DtoH"
    else:
        copy_kind = "DtoD" if target is source else "PtoP"
    is_host_pinned = host_array is not None and is_pinned(host_array)
    # Accesses to pageable memory are finished when the call returns.
    target_array, source_array = arrays
    written_arrays = () if target is None and not is_host_pinned else (target_array,)
    read_arrays = () if source is None and not is_host_pinned else (source_array,)
    if copy_kind == "HtoD" and not is_host_pinned and device.clock.deferral is not None:
        move_bytes = partial(
            np.copyto, target_array, source_array.copy()
        )  # the call reads the host's data, even if the copy is deferred
    if is_staged and not is_host_pinned:
        device.clock.advance(size_bytes / STAGING_GBPS)
        is_host_pinned = True
    links = device.machine.links
    link_passage = PeerTransfers()
    device_pair = (
        (source.id, target.id) if copy_kind == "PtoP" and source is not None and target is not None else None
    )
    duration_ns = (
        cost.copy_ns(device.info, copy_kind, size_bytes, is_host_pinned) if device_pair is None else 0.0
    )

    def run_and_time() -> float:
        move_bytes()
        for end_device, array in ((target, target_array), (source, source_array)):
            if end_device is not None:
                end_device.l2.mark_used({array.ctypes.data: array.nbytes})
        if device_pair is None:
            return duration_ns
        link_passage.set_transfers(links, [(*device_pair, size_bytes, links.find_route(*device_pair))])
        return links.copy_ns(*device_pair, size_bytes)

    if device_pair is not None:  # its stream belongs to the current device
        device = device.machine.current_device
    stream = stream or get_current_stream(device.id)
    synchronized_devices = () if device_pair is None or stream.ptr not in LEGACY else (target, source)
    for endpoint_device in synchronized_devices:
        if endpoint_device is not None and endpoint_device is not device:
            queue_point = endpoint_device.schedule.find_queue_end(LEGACY_QUEUE)
            device.schedule.hold_until(stream.ptr, queue_point.time_ns, queue_point.awaited_operations)
    operation = stream.enqueue(
        "MEMCPY2" if copy_kind == "PtoP" else "MEMCPY",
        f"Memcpy {copy_kind}",
        run_and_time,
        device=device,
        size_bytes=size_bytes,
        copy_kind=copy_kind,
        pinned=is_host_pinned if copy_kind in ("HtoD", "DtoH") else None,
        reads=read_arrays,
        writes=written_arrays,
        peer_transfers=link_passage,
        copy_devices=device_pair,
    )
    if operation is None:
        return
    for endpoint_device in synchronized_devices:
        if endpoint_device is not None and endpoint_device is not device:
            endpoint_device.schedule.hold_until(LEGACY_QUEUE, operation.end_ns, (operation.correlation_id,))
    is_pageable = copy_kind in ("HtoD", "DtoH") and not is_host_pinned
    host_waits = is_blocking or (is_pageable and (copy_kind == "DtoH" or size_bytes > _MAX_STAGED_BYTES))
    start_ns = device.clock.now_ns
    if host_waits:
        device.clock.wait_until(operation.end_ns)
        device.work_queue.run_delayed_operations((operation.correlation_id,))
        if device.clock.watch is not None:
            device.clock.watch.note_host_wait("work", number=operation.correlation_id)
    elif is_pageable:
        device.clock.advance(size_bytes / STAGING_GBPS)
    if device.clock.recorder is not None:
        device.clock.recorder.extend_call_to_now(operation, start_ns, has_waited=host_waits)


def enqueue_memset(
    fill_target: Callable[[], object],
    target: npt.NDArray[Any],
    device: VirtualDevice,
    stream: _BaseStream | None = None,
) -> None:
    """Set device memory in a stream by calling the function `fill_target`. The default stream is the current
    one.
    """
    size_bytes = target.nbytes
    if size_bytes <= 0:
        return
    duration_ns = device.memset_ns(size_bytes)

    def run_and_time() -> float:
        fill_target()
        device.l2.mark_used({target.ctypes.data: size_bytes})
        return duration_ns

    stream = stream or get_current_stream(device.id)
    stream.enqueue("MEMSET", "Memset", run_and_time, device=device, size_bytes=size_bytes, writes=(target,))


def enable_peer_access(device: VirtualDevice, peer: VirtualDevice) -> None:
    """Enable access from one device to another if a link connects them. CuPy also does this before copies
    between devices.
    """
    links = device.machine.links
    if device.machine is peer.machine and links.can_access(device.id, peer.id):
        links.enable_access(device.id, peer.id)


def find_device_at(address: int) -> VirtualDevice | None:
    """Return the device whose memory contains an address, or None if it is a host address."""
    return current().device_at(address)
