"""Run the kernels of CuPy's own functions: NumPy computes the result, the modelled clock adds the time."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import numpy.typing as npt

from virtualgpu.cp._core.host_access import HostAccess
from virtualgpu.cp.cuda.stream import get_current_stream
from virtualgpu.model import bus
from virtualgpu.model.graph import KernelCounts
from virtualgpu.model.links.ports import PeerTransfers
from virtualgpu.model.machine import VirtualDevice
from virtualgpu.records.libraries import ArrayLayout


def run_kernel(
    device: VirtualDevice,
    name: str,
    bytes_moved: float,
    compute_result: Callable[[], object],
    flop: float = 0.0,
    reads: Iterable[object] = (),
    writes: Iterable[object] = (),
    pass_count: float = 1.0,
    min_ns: float = 0.0,
) -> None:
    """Run one library kernel in the current stream.

    Parameters
    ----------
    device : VirtualDevice
        Device of the kernel.
    name : str
        The kernel's name.
    bytes_moved, flop : float
        Bytes read and written, and floating-point operations: the modelled duration depends on them.
    compute_result : callable
        Does the work. A graph calls it at every launch, so it must keep references to the arrays it needs.
    pass_count : float
        Number of times that the bytes are moved, if the library uses several kernels.
    min_ns : float
        Minimum duration.
    reads, writes : iterable
        Arrays that the kernel uses, possibly inside lists or tuples; other objects are ignored. Arrays of
        other devices are read over the bus or a link.
    """
    duration_ns = max(device.kernel_ns(bytes_moved * pass_count, flop), min_ns)
    sources = list(_find_numpy_arrays(reads))
    results = list(_find_numpy_arrays(writes))
    arrays = (*sources, *results)
    if device.machine.library_calls is not None:
        library_call = name, tuple(map(_describe_layout, sources)), tuple(map(_describe_layout, results))
        device.machine.library_calls.append(library_call)
    size_bytes_by_address = (
        {a.ctypes.data: a.nbytes for a in arrays} if device.memory.uses_remote_memory else {}
    )
    # CuPy's kernels have a thread for each element, in blocks of 128; a library's products fill the device.
    block_count = -(-max((a.size for a in arrays), default=0) // 128) if arrays and not flop else 0
    resident_blocks = device.info.sm_count * (device.info.max_warps_per_sm // 4)

    link_passage = PeerTransfers()

    def run_and_time() -> float:
        device.machine.count_launch()
        compute_result()
        if not size_bytes_by_address:
            return duration_ns
        local_duration_ns = bus.add_bus_time_ns(device, duration_ns, size_bytes_by_address, bytes_moved)
        return bus.add_link_time_ns(
            device, local_duration_ns, _count_peer_bytes(device, sources, results), link_passage
        )

    get_current_stream(device.id).enqueue(
        "CONCURRENT_KERNEL",
        name,
        run_and_time,
        size_bytes=int(bytes_moved),
        kernel_counts=KernelCounts(int(bytes_moved), int(flop) or None),
        device=device,
        sm_share=min(1.0, block_count / resident_blocks) if block_count else 1.0,
        waves=max(1, -(-block_count // resident_blocks)),
        reads=sources,
        writes=results,
        peer_transfers=link_passage,
    )


def _count_peer_bytes(
    device: VirtualDevice, reads: list[npt.NDArray[Any]], writes: list[npt.NDArray[Any]]
) -> dict[tuple[int, int], int]:
    """Return the bytes that a kernel moves from and to other devices, by (source, target) device."""
    moved_bytes: Counter[tuple[int, int]] = Counter()
    for arrays, is_read in ((reads, True), (writes, False)):
        for array in arrays:
            peer = device.machine.device_at(array.ctypes.data)
            if peer is not None and peer is not device:
                moved_bytes[(peer.id, device.id) if is_read else (device.id, peer.id)] += array.nbytes
    return moved_bytes


def _describe_layout(array: npt.NDArray[Any]) -> ArrayLayout:
    return array.dtype.name, array.shape, array.strides


def _find_numpy_arrays(values: Iterable[object]) -> Iterator[npt.NDArray[Any]]:
    for array_or_value in values:
        if isinstance(array_or_value, HostAccess):
            yield array_or_value._host
        elif isinstance(array_or_value, (list, tuple)):
            yield from _find_numpy_arrays(array_or_value)
