"""Kernels of CuPy's own functions: NumPy does the work on the host, the stream's clock takes its time."""

from __future__ import annotations

from collections.abc import Callable, Iterable

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
    touches: Iterable[HostAccess] = (),
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
    touches : iterable of arrays
        What it reads and writes: some of them may have to come over the bus.
    """
    duration_ns = device.kernel_ns(bytes_moved, flop)
    places = {a._host.ctypes.data: a._host.nbytes for a in touches} if device.memory.reaches_out else {}

    def kernel() -> float:
        device.machine.count_launch()
        run()
        return bus.kernel_ns(device, duration_ns, places, bytes_moved) if places else duration_ns

    get_current_stream(device.id).enqueue(
        "CONCURRENT_KERNEL", name, kernel, size_bytes=int(bytes_moved), device=device
    )
