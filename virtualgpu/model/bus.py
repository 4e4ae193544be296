"""What kernels take longer whose arrays are not in the device's own memory.

Page-locked host memory is read and written over the bus, every time and at the bus's rate. Managed memory
comes over it page by page when it is touched: the kernel waits for its faults to be served.
"""

from __future__ import annotations

from collections.abc import Mapping

from virtualgpu.model import cost
from virtualgpu.model.machine import VirtualDevice
from virtualgpu.model.memory.managed import BLOCK_BYTES, ManagedPages, Moved
from virtualgpu.records import SECTOR_BYTES, CopyKind, DeviceInfo

# Reading over the bus: the first answer, and the share of a pinned copy's rate that kernels reach.
ZERO_COPY_LATENCY_NS = 1_500.0
ZERO_COPY_SHARE = 0.9
# One block of 2 MiB with faults: the driver is told, makes room, maps. Its copies come on top.
FAULT_BLOCK_NS = 45_000.0
NEW_BLOCK_NS = 12_000.0
HOST_BLOCK_NS = 90_000.0
PREFETCH_BLOCK_NS = 1_500.0


def kernel_ns(
    device: VirtualDevice, duration_ns: float, arrays: Mapping[int, int], asked_bytes: float
) -> float:
    """Duration of a kernel, given what it would take if all its arrays lay in the device's memory.

    Parameters
    ----------
    device : VirtualDevice
        Where it runs.
    duration_ns : float
        From the time model.
    arrays : mapping
        Address -> bytes of the arrays that it was given.
    asked_bytes : float
        What it asks of memory, taken to be spread over these arrays by their sizes.
    """
    memory = device.memory
    if not memory.reaches_out:
        return duration_ns
    whole = max(sum(arrays.values()), 1)
    host_bytes, faults_ns = 0.0, 0.0
    for address, size_bytes in arrays.items():
        asked = asked_bytes * size_bytes / whole
        if memory.is_lent(address):
            host_bytes += asked
            continue
        start = memory.segment(address)[0]
        pages = memory.managed.get(start)
        if pages is not None:
            moved = pages.to_device(address - start, size_bytes, -int(-asked // SECTOR_BYTES))
            memory.page_faults += moved.blocks
            memory.bus_bytes += moved.copied_bytes
            faults_ns += _served_ns(device.info, moved)
    if host_bytes:
        memory.bus_bytes += round(host_bytes)
        rate = ZERO_COPY_SHARE * cost.pinned_gbps(device.info)
        duration_ns = max(duration_ns, ZERO_COPY_LATENCY_NS + cost.KERNEL_FLOOR_NS + host_bytes / rate)
    return duration_ns + faults_ns


def _served_ns(info: DeviceInfo, moved: Moved) -> float:
    """What the faults of a kernel take."""
    new_blocks = moved.blocks * moved.new_bytes / max(moved.new_bytes + moved.copied_bytes, 1)
    copied_ns = moved.copied_bytes / cost.pinned_gbps(info)
    return new_blocks * NEW_BLOCK_NS + (moved.blocks - new_blocks) * FAULT_BLOCK_NS + copied_ns


def host_touch_ns(info: DeviceInfo, moved: Moved) -> float:
    """What the host waits for pages that it touches and the device had."""
    if not moved.copied_bytes:
        return 0.0
    return moved.blocks * HOST_BLOCK_NS + moved.copied_bytes / cost.pinned_gbps(info)


def prefetch_ns(info: DeviceInfo, kind: CopyKind, moved: Moved) -> float:
    """What ``cudaMemPrefetchAsync`` takes on the device: a copy in blocks, without faults."""
    blocks = -(-(moved.copied_bytes + moved.new_bytes) // BLOCK_BYTES)
    return cost.copy_ns(info, kind, moved.copied_bytes, pinned=True) + blocks * PREFETCH_BLOCK_NS


def touched_by_host(device: VirtualDevice, pages: ManagedPages, start: int, size_bytes: int) -> None:
    """Let the host have pages of managed memory, and wait for them."""
    moved = pages.to_host(start, size_bytes)
    device.memory.bus_bytes += moved.copied_bytes
    device.clock.advance(host_touch_ns(device.info, moved))
