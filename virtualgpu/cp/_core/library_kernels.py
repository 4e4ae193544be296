"""Kernels of CuPy's own functions: NumPy does the work on the host, the stream's clock takes its time."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import numpy.typing as npt

from virtualgpu.cp._core.host_access import HostAccess
from virtualgpu.cp.cuda.stream import get_current_stream
from virtualgpu.model import bus
from virtualgpu.model.graph import Counted
from virtualgpu.model.links.ports import Passage
from virtualgpu.model.machine import VirtualDevice
from virtualgpu.records.libraries import ArrayLayout


def run_kernel(
    device: VirtualDevice,
    name: str,
    bytes_moved: float,
    run: Callable[[], object],
    flop: float = 0.0,
    reads: Iterable[object] = (),
    writes: Iterable[object] = (),
    passes: float = 1.0,
    least_ns: float = 0.0,
) -> None:
    """Let one library kernel run in the current stream.

    Parameters
    ----------
    device : VirtualDevice
        Where it runs.
    name : str
        The kernel's name.
    bytes_moved, flop : float
        What its modelled duration follows from: bytes read and written, floating-point operations.
    run : callable
        Does the work. A graph calls it at every launch, so it must hold on to the arrays it needs.
    passes : float
        How often the bytes are moved, by as many kernels as the library has for it.
    least_ns : float
        What it takes at least.
    reads, writes : iterable
        The arrays that it uses, in lists or tuples or not; what is no array is left out. Some may have to
        come over the bus.
    """
    duration_ns = max(device.kernel_ns(bytes_moved * passes, flop), least_ns)
    sources = list(_arrays(reads))
    results = list(_arrays(writes))
    touched = (*sources, *results)
    if device.machine.library_calls is not None:
        call = name, tuple(map(_layout, sources)), tuple(map(_layout, results))
        device.machine.library_calls.append(call)
    places = {a.ctypes.data: a.nbytes for a in touched} if device.memory.reaches_out else {}
    # CuPy's kernels have a thread for each element, in blocks of 128; a library's products fill the device.
    blocks = -(-max((a.size for a in touched), default=0) // 128) if touched and not flop else 0
    resident = device.info.sm_count * (device.info.max_warps_per_sm // 4)

    passage = Passage()

    def kernel() -> float:
        device.machine.count_launch()
        run()
        if not places:
            return duration_ns
        taken_ns = bus.kernel_ns(device, duration_ns, places, bytes_moved)
        return bus.over_links_ns(device, taken_ns, _between(device, sources, results), passage)

    get_current_stream(device.id).enqueue(
        "CONCURRENT_KERNEL",
        name,
        kernel,
        size_bytes=int(bytes_moved),
        counted=Counted(int(bytes_moved), int(flop) or None),
        device=device,
        sm_share=min(1.0, blocks / resident) if blocks else 1.0,
        waves=max(1, -(-blocks // resident)),
        reads=sources,
        writes=results,
        passage=passage,
    )


def _between(
    device: VirtualDevice, reads: list[npt.NDArray[Any]], writes: list[npt.NDArray[Any]]
) -> dict[tuple[int, int], int]:
    """Bytes that a kernel reads and writes of other devices' memories, by source and target."""
    moved: Counter[tuple[int, int]] = Counter()
    for arrays, reading in ((reads, True), (writes, False)):
        for array in arrays:
            peer = device.machine.device_at(array.ctypes.data)
            if peer is not None and peer is not device:
                moved[(peer.id, device.id) if reading else (device.id, peer.id)] += array.nbytes
    return moved


def _layout(array: npt.NDArray[Any]) -> ArrayLayout:
    return array.dtype.name, array.shape, array.strides


def _arrays(values: Iterable[object]) -> Iterator[npt.NDArray[Any]]:
    for value in values:
        if isinstance(value, HostAccess):
            yield value._host
        elif isinstance(value, (list, tuple)):
            yield from _arrays(value)
