"""What kernels take longer whose arrays are not in the device's own memory.

What lies in another device's memory comes over the link between them. Page-locked host memory is read and
written over the bus, every time and at the bus's rate. Managed memory comes over it page by page when it is
touched: the kernel waits for its faults to be served.
"""

from __future__ import annotations

from collections.abc import Mapping

from virtualgpu.model import cost
from virtualgpu.model.links.ports import Passage
from virtualgpu.model.machine import VirtualDevice
from virtualgpu.model.memory.managed import BLOCK_BYTES, PAGE_BYTES, ManagedPages, Moved
from virtualgpu.records import SECTOR_BYTES, CopyKind, DeviceInfo
from virtualgpu.records.traffic.ports import Over

# All from an H200 and an H100 (CUDA 13.0, PCIe 5.0, 64 MiB; tests/recordings/data/moving_data_*.json).
# Over the bus: 64 MiB read once in 1.33 ms, where a pinned copy takes 1.22 ms; read 8 times in 12.5 ms, so
# nothing of it is kept in a cache; 4 KiB take 1.4 to 2 us longer than at home.
ZERO_COPY_LATENCY_NS = 1_700.0
ZERO_COPY_SHARE = 0.91
# A kernel's faults: 64 MiB that the host has take 6.2 to 8.5 ms, new ones 5.5 to 6.9 ms, one page of 64 KiB
# in each block of 2 MiB 0.8 to 1 ms (and one word of each page, which this makes too slow, 4.1 to 5.2 ms).
FAULT_BLOCK_NS = 25_000.0
FAULT_PAGE_NS = 4_800.0
# The host's faults, for 64 MiB: new pages 21 ms, pages that the device has 9.7 ms.
HOST_NEW_PAGE_NS = 20_500.0
HOST_PAGE_NS = 8_500.0
# A prefetch: 64 MiB in 1.43 ms.
PREFETCH_BLOCK_NS = 6_500.0


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
    host_bytes = 0.0
    faults_ns = 0.0
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


def over_links_ns(
    device: VirtualDevice, duration_ns: float, moved: Mapping[tuple[int, int], int], passage: Passage
) -> float:
    """Duration of a kernel that moves bytes between its device and others, by source and target."""
    links = device.machine.links
    taken_ns = 0.0
    for (source, target), size_bytes in moved.items():
        peer = device.machine.device(target if source == device.id else source)
        taken_ns = max(taken_ns, cost.kernel_over_ns(device.info, peer.info, size_bytes))
    duration_ns = max(duration_ns, taken_ns + cost.KERNEL_FLOOR_NS if moved else 0.0)
    hops: list[tuple[int, int, int, Over]] = [(*ends, size, "NVLink") for ends, size in moved.items()]
    passage.through(links, hops, min(1.0, taken_ns / duration_ns))
    return duration_ns


def _served_ns(info: DeviceInfo, moved: Moved) -> float:
    """What the faults of a kernel take."""
    pages = (moved.new_bytes + moved.copied_bytes) / PAGE_BYTES
    return moved.blocks * FAULT_BLOCK_NS + pages * FAULT_PAGE_NS + moved.copied_bytes / cost.pinned_gbps(info)


def host_touch_ns(info: DeviceInfo, moved: Moved) -> float:
    """What the host waits for pages that it touches: new ones, and those that the device has."""
    faults_ns = moved.new_bytes * HOST_NEW_PAGE_NS + moved.copied_bytes * HOST_PAGE_NS
    return faults_ns / PAGE_BYTES + moved.copied_bytes / cost.pinned_gbps(info)


def prefetch_ns(info: DeviceInfo, kind: CopyKind, moved: Moved) -> float:
    """What ``cudaMemPrefetchAsync`` takes on the device: a copy in blocks, without faults."""
    blocks = -(-(moved.copied_bytes + moved.new_bytes) // BLOCK_BYTES)
    return cost.copy_ns(info, kind, moved.copied_bytes, pinned=True) + blocks * PREFETCH_BLOCK_NS


def touched_by_host(device: VirtualDevice, pages: ManagedPages, start: int, size_bytes: int) -> None:
    """Let the host have pages of managed memory, and wait for them."""
    moved = pages.to_host(start, size_bytes)
    device.memory.bus_bytes += moved.copied_bytes
    device.clock.advance(host_touch_ns(device.info, moved))
