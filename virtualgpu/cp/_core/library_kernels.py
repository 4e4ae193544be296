"""Kernels of CuPy's own functions: NumPy does the work on the host, the stream's clock takes its time."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any

import numpy.typing as npt

from virtualgpu.cp._core.host_access import HostAccess
from virtualgpu.cp.cuda.stream import get_current_stream
from virtualgpu.model import bus
from virtualgpu.model.machine import VirtualDevice


def run_kernel(
    device: VirtualDevice,
    name: str,
    bytes_moved: float,
    run: Callable[[], object],
    flop: float = 0.0,
    reads: Iterable[object] = (),
    writes: Iterable[object] = (),
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
    reads, writes : iterable
        The arrays that it uses, in lists or tuples or not; what is no array is left out. Some may have to
        come over the bus.
    """
    duration_ns = device.kernel_ns(bytes_moved, flop)
    sources, results = list(_arrays(reads)), list(_arrays(writes))
    touched = (*sources, *results)
    places = {a.ctypes.data: a.nbytes for a in touched} if device.memory.reaches_out else {}
    # CuPy's kernels have a thread for each element, in blocks of 128; a library's products fill the device.
    blocks = -(-max((a.size for a in touched), default=0) // 128) if touched and not flop else 0
    resident = device.info.sm_count * (device.info.max_warps_per_sm // 4)

    def kernel() -> float:
        device.machine.count_launch()
        run()
        return bus.kernel_ns(device, duration_ns, places, bytes_moved) if places else duration_ns

    get_current_stream(device.id).enqueue(
        "CONCURRENT_KERNEL",
        name,
        kernel,
        size_bytes=int(bytes_moved),
        device=device,
        sm_share=min(1.0, blocks / resident) if blocks else 1.0,
        waves=max(1, -(-blocks // resident)),
        reads=sources,
        writes=results,
    )


def _arrays(values: Iterable[object]) -> Iterator[npt.NDArray[Any]]:
    for value in values:
        if isinstance(value, HostAccess):
            yield value._host
        elif isinstance(value, (list, tuple)):
            yield from _arrays(value)
