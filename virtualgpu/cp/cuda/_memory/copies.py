"""One copy with one rule, whichever function asks for it.

What a copy costs follows from where its two ends are: host memory or the memory of a device, and
whether the host's end is page-locked. Which function was called decides only whether the host waits.
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
from virtualgpu.model.links.ports import Passage
from virtualgpu.model.machine import VirtualDevice, current
from virtualgpu.records import CopyKind
from virtualgpu.records.acts import LEGACY

# One core's copy to a page-locked buffer (64 MiB in 10.4 ms on the host of an H200, 7.9 ms on that of an
# H100), and what the driver takes along with a call: 1 MiB, not 4 MiB.
STAGING_GBPS = 7.3
_TAKEN_ALONG = 1 << 20


def copy(
    move: Callable[[], object],
    size_bytes: int,
    *,
    to: VirtualDevice | None = None,
    source: VirtualDevice | None = None,
    host: np.ndarray[Any, Any] | None = None,
    stream: _BaseStream | None = None,
    waits: bool = False,
    staged: bool = False,
    ends: tuple[npt.NDArray[Any], npt.NDArray[Any]],
) -> None:
    """Copy in a stream.

    Parameters
    ----------
    move : callable
        Moves the bytes.
    size_bytes : int
        How many; nothing happens for 0.
    to, source : VirtualDevice, optional
        The device at either end; None for host memory.
    host : numpy.ndarray, optional
        The host's end.
    stream : Stream, optional
        The current stream by default.
    waits : bool
        Whether the host waits for the end of the copy.
    ends : tuple of numpy.ndarray
        Where the bytes go, and where they come from.
    staged : bool
        Whether pageable memory is first copied to a page-locked buffer, as ``cp.asarray`` does.

    Notes
    -----
    Without `waits`, the host goes on at once if its memory is page-locked. Pageable memory is staged by the
    driver: the host waits for what the stream was given before and for the data to be read or written, but
    for a small copy to the device, which is taken along with the call (CUDA Runtime API, "API synchronization
    behavior"). On an H200, behind a kernel of 4 ms, 1 MiB to the device held the host up for 120 us, 4 MiB
    for 4.3 ms, and 4 KiB to the host for 4.1 ms.

    In the legacy default stream a copy between two devices waits for both, and they for it (CUDA C++
    Programming Guide, "Peer-to-Peer Memory Copy").
    """
    if size_bytes <= 0:
        return
    device = to or source
    if device is None:
        move()
        return
    kind: CopyKind
    if to is None or source is None:
        kind = "HtoD" if source is None else "DtoH"
    else:
        kind = "DtoD" if to is source else "PtoP"
    pinned = host is not None and is_pinned(host)
    # What happens to pageable memory is over when the call returns.
    into, out_of = ends
    writes = () if to is None and not pinned else (into,)
    reads = () if source is None and not pinned else (out_of,)
    if kind == "HtoD" and not pinned and device.clock.deferral is not None:
        move = partial(np.copyto, into, out_of.copy())  # the call reads the host's data, whenever they arrive
    if staged and not pinned:
        device.clock.advance(size_bytes / STAGING_GBPS)
        pinned = True
    links = device.machine.links
    passage = Passage()
    between = (source.id, to.id) if kind == "PtoP" and source is not None and to is not None else None
    duration_ns = cost.copy_ns(device.info, kind, size_bytes, pinned) if between is None else 0.0

    def run() -> float:
        move()
        for end, place in ((to, into), (source, out_of)):
            if end is not None:
                end.l2.touch({place.ctypes.data: place.nbytes})
        if between is None:
            return duration_ns
        passage.through(links, [(*between, size_bytes, links.over(*between))])
        return links.copy_ns(*between, size_bytes)

    if between is not None:  # its stream is one of the current device, whichever the ends are
        device = device.machine.current_device
    stream = stream or get_current_stream(device.id)
    both = () if between is None or stream.ptr not in LEGACY else (to, source)
    for end in both:
        if end is not None and end is not device:
            before = end.schedule.point(LEGACY_QUEUE)
            device.schedule.hold_until(stream.ptr, before.time_ns, before.after)
    done = stream.enqueue(
        "MEMCPY2" if kind == "PtoP" else "MEMCPY",
        f"Memcpy {kind}",
        run,
        device=device,
        size_bytes=size_bytes,
        copy_kind=kind,
        pinned=pinned if kind in ("HtoD", "DtoH") else None,
        reads=reads,
        writes=writes,
        passage=passage,
        between=between,
    )
    if done is None:
        return
    for end in both:
        if end is not None and end is not device:
            end.schedule.hold_until(LEGACY_QUEUE, done.end_ns, (done.correlation_id,))
    pageable = kind in ("HtoD", "DtoH") and not pinned
    blocks = waits or (pageable and (kind == "DtoH" or size_bytes > _TAKEN_ALONG))
    begun_ns = device.clock.now_ns
    if blocks:
        device.clock.wait_until(done.end_ns)
        device.work.settle((done.correlation_id,))
        if device.clock.watch is not None:
            device.clock.watch.host_waited("work", number=done.correlation_id)
    elif pageable:
        device.clock.advance(size_bytes / STAGING_GBPS)
    if device.clock.recorder is not None:
        device.clock.recorder.held_up(done, begun_ns, waited=blocks)


def set_memory(
    fill: Callable[[], object],
    target: npt.NDArray[Any],
    device: VirtualDevice,
    stream: _BaseStream | None = None,
) -> None:
    """Set the device memory `target` in a stream (the current one by default); `fill` does it."""
    size_bytes = target.nbytes
    if size_bytes <= 0:
        return
    duration_ns = device.memset_ns(size_bytes)

    def run() -> float:
        fill()
        device.l2.touch({target.ctypes.data: size_bytes})
        return duration_ns

    stream = stream or get_current_stream(device.id)
    stream.enqueue("MEMSET", "Memset", run, device=device, size_bytes=size_bytes, writes=(target,))


def reach(device: VirtualDevice, peer: VirtualDevice) -> None:
    """Turn on peer access where a link allows it, as CuPy does before it copies between devices."""
    links = device.machine.links
    if device.machine is peer.machine and links.can_access(device.id, peer.id):
        links.enable(device.id, peer.id)


def device_at(address: int) -> VirtualDevice | None:
    """The device in whose memory an address lies; None for host memory."""
    return current().device_at(address)
