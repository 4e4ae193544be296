"""Durations of transfers between two GPUs: copies over NVLink or the host, and kernels on remote memory.

From two H200 of one host (18 links of NVLink, driver 580, CuPy 14.2), between two events, the call included.
``memcpyPeerAsync`` of 256 MiB, 1 MiB and 4 KiB: 388, 68 and 0.31 GB/s with peer access; 38, 16 and 0.22 GB/s
without, through the host's memory. A kernel of one that reads 256 MiB of the other: 366 GB/s.
On another day, two and four H200 reached 383 to 389, 69 to 75 and 0.32 to 0.37 GB/s with peer access, and 38
to 39, 14 to 16 and 0.21 to 0.22 GB/s without.
"""

from __future__ import annotations

from virtualgpu.model.cost.copies import MIB, pinned_gbps
from virtualgpu.records import DeviceInfo

# Over NVLink, in one direction, which is half of the rate in data sheets. An H200 has 450 GB/s.
DIRECT_LATENCY_NS = 9_200.0
NVLINK_EFFICIENCY = 0.878
KERNEL_NVLINK_EFFICIENCY = 0.825
KERNEL_LATENCY_NS = 1_700.0
# Through the host's memory, as shares of the rate of a pinned copy: the first MiB reaches the host before it
# is sent on; of larger copies, pieces go both ways at the same time.
STAGED_LATENCY_NS = 14_800.0
STAGED_BUS_SHARE = 0.404
PIPELINED_BUS_SHARE = 0.692


def nvlink_gbps(info: DeviceInfo, peer: DeviceInfo) -> float:
    """Return the peak bandwidth of NVLink between two devices in one direction in GB/s, or 0 without
    NVLink.
    """
    return min(info.nvlink_gbps or 0.0, peer.nvlink_gbps or 0.0) / 2


def peer_gbps(info: DeviceInfo, peer: DeviceInfo, is_direct: bool = True) -> float:
    """Return the bandwidth in GB/s of large copies between two devices in one direction.

    Parameters
    ----------
    info, peer
        The devices.
    is_direct
        Whether it goes over NVLink, where both have it, instead of through the host.
    """
    if is_direct and nvlink_gbps(info, peer):
        return nvlink_gbps(info, peer) * NVLINK_EFFICIENCY
    return min(pinned_gbps(info), pinned_gbps(peer)) * PIPELINED_BUS_SHARE


def peer_copy_ns(info: DeviceInfo, peer: DeviceInfo, size_bytes: int, is_direct: bool = True) -> float:
    """Return the device time in ns of a copy between two devices."""
    rate_gbps = peer_gbps(info, peer, is_direct)
    if is_direct and nvlink_gbps(info, peer):
        return DIRECT_LATENCY_NS + size_bytes / rate_gbps
    first_bytes = min(size_bytes, MIB)
    return (
        STAGED_LATENCY_NS
        + first_bytes / rate_gbps * PIPELINED_BUS_SHARE / STAGED_BUS_SHARE
        + (size_bytes - first_bytes) / rate_gbps
    )


def remote_kernel_ns(info: DeviceInfo, peer: DeviceInfo, size_bytes: float) -> float:
    """Return the minimum time in ns that a kernel needs to move bytes to or from another device."""
    return KERNEL_LATENCY_NS + size_bytes / (nvlink_gbps(info, peer) * KERNEL_NVLINK_EFFICIENCY)
