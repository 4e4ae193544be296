"""Durations of copies and memory sets on the device.

Fitted to an H100 and an H200 (``tools/timing/data``, 4 bytes to 256 MiB), between two events in a stream
that other work keeps busy, so that the host's own time is not included.
"""

from __future__ import annotations

from virtualgpu.model.cost.rates import peak_gbps
from virtualgpu.records import CopyKind, DeviceInfo

KIB = 1 << 10
MIB = 1 << 20

TO_DEVICE_LATENCY_NS = 2_500.0
TO_HOST_LATENCY_NS = 1_450.0
DEVICE_COPY_LATENCY_NS = 1_850.0
# Sets of up to 4 KiB, and larger ones, which are done by a kernel.
SMALL_SET_LATENCY_NS = 750.0
SMALL_SET_GBPS = 6.7
SET_LATENCY_NS = 1_950.0
SMALL_SET_BYTES = 4 * KIB
# Copies and sets that stay in L2 are faster: 4 MiB in 1.1 us and 0.6 us above the latency.
L2_COPY_GBPS = 6_500.0
L2_SET_GBPS = 6_000.0
L2_SHARE = 0.55
H200_GBPS = 4814.0  # other GPUs' L2 is taken to be as much slower as their memory
DEVICE_COPY_EFFICIENCY = 0.87
SET_EFFICIENCY = 0.92
# Pinned copies reach this share of the PCIe rate. H100 and H200, 5.0: 55.2 of 63; nvbandwidth, 4.0: 26 of
# 31.5; te42kyfo/gpu-benches, 3.0: 12.35 of 15.75 GB/s.
PCIE_EFFICIENCY = ((60.0, 0.876), (30.0, 0.825), (0.0, 0.784))

# Pageable memory is copied by a core of the host to the driver's own buffer, piece by piece; small copies to
# the device are part of the command. Copies larger than the host's caches run at the rate of its memory,
# which differs between hosts, and from run to run: 64 MiB to the device took 5.4 to 9.6 ms, to the host 4.0
# to 6.1 ms.
EMBEDDED_BYTES = 48 * KIB
EMBEDDED_LATENCY_NS = 2_900.0
EMBEDDED_GBPS = 12.5
STAGED_LATENCY_NS = 5_500.0
TO_DEVICE_STAGED_GBPS = ((MIB, 17.0), (16 * MIB, 14.3), (None, 8.0))
TO_HOST_STAGED_LATENCY_NS = 9_000.0
TO_HOST_STAGED_GBPS = ((MIB, 9.7), (None, 12.8))
# A host's core moves at most this share of what the bus moves.
STAGED_SHARE_OF_BUS = 0.5


def copy_ns(info: DeviceInfo, kind: CopyKind, size_bytes: int, is_pinned: bool = False) -> float:
    """Return the duration in ns of a copy within a device, or between a device and the host.

    Parameters
    ----------
    info
        The device.
    kind
        ``"HtoD"``, ``"DtoH"`` or ``"DtoD"`` (within its memory).
    size_bytes
        Size of the copy.
    is_pinned
        Whether the host side is page-locked; matters for ``HtoD`` and ``DtoH``.

    Raises
    ------
    ValueError
        For another `kind`; `virtualgpu.model.cost.links` has copies between devices.
    """
    if kind == "DtoD":
        return DEVICE_COPY_LATENCY_NS + _device_transfer_ns(
            info, 2 * size_bytes, L2_COPY_GBPS, DEVICE_COPY_EFFICIENCY
        )
    if kind not in ("HtoD", "DtoH"):
        raise ValueError(f"Unknown kind of copy {kind!r}. Use 'HtoD', 'DtoH' or 'DtoD'.")
    bus_gbps = pinned_gbps(info)
    if is_pinned:
        return (TO_DEVICE_LATENCY_NS if kind == "HtoD" else TO_HOST_LATENCY_NS) + size_bytes / bus_gbps
    if kind == "HtoD" and size_bytes <= EMBEDDED_BYTES:
        return EMBEDDED_LATENCY_NS + size_bytes / min(EMBEDDED_GBPS, STAGED_SHARE_OF_BUS * bus_gbps)
    latency_ns = STAGED_LATENCY_NS if kind == "HtoD" else TO_HOST_STAGED_LATENCY_NS
    staged_rates = TO_DEVICE_STAGED_GBPS if kind == "HtoD" else TO_HOST_STAGED_GBPS
    begin_bytes = 0
    for end_bytes, gbps in staged_rates:
        piece_bytes = (
            size_bytes - begin_bytes if end_bytes is None else min(size_bytes, end_bytes) - begin_bytes
        )
        latency_ns += max(piece_bytes, 0) / min(gbps, STAGED_SHARE_OF_BUS * bus_gbps)
        begin_bytes = end_bytes or size_bytes
    return latency_ns


def _device_transfer_ns(info: DeviceInfo, moved_bytes: float, l2_gbps: float, efficiency: float) -> float:
    """Return the time in ns to move bytes within a device: at the rate of L2 if they fit, else of DRAM."""
    memory_ns = moved_bytes / (peak_gbps(info) * efficiency)
    l2_usable_bytes = info.l2_bytes * L2_SHARE
    memory_share = min(max(moved_bytes / max(l2_usable_bytes, 1.0) - 1.0, 0.0), 1.0)
    memory_speed_ratio = peak_gbps(info) / H200_GBPS
    return min(
        memory_ns,
        moved_bytes / (l2_gbps * memory_speed_ratio) * (1.0 - memory_share) + memory_ns * memory_share,
    )


def memset_ns(info: DeviceInfo, size_bytes: int) -> float:
    """Return the duration in ns of a memset on the device."""
    if size_bytes <= SMALL_SET_BYTES:
        return SMALL_SET_LATENCY_NS + size_bytes / SMALL_SET_GBPS
    return SET_LATENCY_NS + _device_transfer_ns(info, size_bytes, L2_SET_GBPS, SET_EFFICIENCY)


def pinned_gbps(info: DeviceInfo) -> float:
    """Return the bandwidth in GB/s of large copies from or to pinned host memory."""
    peak_rate_gbps = info.pcie_gbps or 15.75
    return peak_rate_gbps * next(
        efficiency for peak_limit_gbps, efficiency in PCIE_EFFICIENCY if peak_rate_gbps >= peak_limit_gbps
    )
