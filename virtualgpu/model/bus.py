"""Extra time of kernels whose arrays are in host memory, managed memory or another device's memory.

A kernel reads data in another device's memory over the link between the two devices. It reads and writes
pinned host memory over the bus, every time and at the bus's rate. Pages of managed memory are moved to the
device when the kernel touches them: the kernel waits until its page faults have been handled.
"""

from __future__ import annotations

from collections.abc import Mapping

from virtualgpu.model import cost
from virtualgpu.model.links.ports import PeerTransfers
from virtualgpu.model.machine import VirtualDevice
from virtualgpu.model.memory.managed import BLOCK_BYTES, PAGE_BYTES, ManagedPages, Migration
from virtualgpu.records import SECTOR_BYTES, CopyKind, DeviceInfo
from virtualgpu.records.traffic.ports import Route

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


def add_bus_time_ns(
    device: VirtualDevice, duration_ns: float, arrays: Mapping[int, int], requested_bytes: float
) -> float:
    """Return the duration of a kernel in ns, including the transfer of arrays that are not in device memory.

    Parameters
    ----------
    device : VirtualDevice
        The device that runs the kernel.
    duration_ns : float
        From the time model.
    arrays : mapping
        Address -> bytes of the arrays among its arguments.
    requested_bytes : float
        Bytes that it requests from memory, assumed to be spread over these arrays by their sizes.
    """
    memory = device.memory
    if not memory.uses_remote_memory:
        return duration_ns
    total_bytes = max(sum(arrays.values()), 1)
    host_bytes = 0.0
    faults_ns = 0.0
    for address, size_bytes in arrays.items():
        array_request_bytes = requested_bytes * size_bytes / total_bytes
        if memory.is_host_address(address):
            host_bytes += array_request_bytes
            continue
        allocation_start = memory.find_segment(address)[0]
        managed_pages = memory.managed_pages.get(allocation_start)
        if managed_pages is not None:
            migration = managed_pages.move_to_device(
                address - allocation_start, size_bytes, -int(-array_request_bytes // SECTOR_BYTES)
            )
            memory.page_faults += migration.faulted_blocks
            memory.bus_bytes += migration.copied_bytes
            faults_ns += _fault_wait_ns(device.info, migration)
    if host_bytes:
        memory.bus_bytes += round(host_bytes)
        bus_gbps = ZERO_COPY_SHARE * cost.pinned_gbps(device.info)
        duration_ns = max(duration_ns, ZERO_COPY_LATENCY_NS + cost.KERNEL_FLOOR_NS + host_bytes / bus_gbps)
    return duration_ns + faults_ns


def add_link_time_ns(
    device: VirtualDevice,
    duration_ns: float,
    moved_bytes: Mapping[tuple[int, int], int],
    passage: PeerTransfers,
) -> float:
    """Return the duration in ns of a kernel that moves bytes between devices.

    The argument `duration_ns` is the duration without these transfers, and `moved_bytes` maps (source,
    target) to bytes. The transfers are stored in `passage`.
    """
    links = device.machine.links
    transfer_ns = 0.0
    for (source_id, target_id), size_bytes in moved_bytes.items():
        peer = device.machine.device(target_id if source_id == device.id else source_id)
        transfer_ns = max(transfer_ns, cost.remote_kernel_ns(device.info, peer.info, size_bytes))
    duration_ns = max(duration_ns, transfer_ns + cost.KERNEL_FLOOR_NS if moved_bytes else 0.0)
    hops: list[tuple[int, int, int, Route]] = [
        (*device_pair, size, "NVLink") for device_pair, size in moved_bytes.items()
    ]
    passage.set_transfers(links, hops, min(1.0, transfer_ns / duration_ns))
    return duration_ns


def _fault_wait_ns(info: DeviceInfo, migration: Migration) -> float:
    """Return the time that a kernel waits for its page faults, in ns."""
    page_count = (migration.new_bytes + migration.copied_bytes) / PAGE_BYTES
    return (
        migration.faulted_blocks * FAULT_BLOCK_NS
        + page_count * FAULT_PAGE_NS
        + migration.copied_bytes / cost.pinned_gbps(info)
    )


def host_touch_ns(info: DeviceInfo, migration: Migration) -> float:
    """Return the time in ns for which the host waits when it accesses managed memory. Only new pages and
    pages on the device add to this time.
    """
    faults_ns = migration.new_bytes * HOST_NEW_PAGE_NS + migration.copied_bytes * HOST_PAGE_NS
    return faults_ns / PAGE_BYTES + migration.copied_bytes / cost.pinned_gbps(info)


def prefetch_ns(info: DeviceInfo, kind: CopyKind, migration: Migration) -> float:
    """Return the time in ns that ``cudaMemPrefetchAsync`` takes on the device."""
    blocks = -(-(migration.copied_bytes + migration.new_bytes) // BLOCK_BYTES)
    return cost.copy_ns(info, kind, migration.copied_bytes, is_pinned=True) + blocks * PREFETCH_BLOCK_NS


def migrate_to_host(device: VirtualDevice, pages: ManagedPages, start: int, size_bytes: int) -> None:
    """Move the managed pages that the host accesses from the device to the host. The host waits until the
    pages have been transferred.
    """
    migration = pages.move_to_host(start, size_bytes)
    device.memory.bus_bytes += migration.copied_bytes
    device.clock.advance(host_touch_ns(device.info, migration))
