"""What collective calls of several GPUs take: a ring, as NCCL's own cost model has it.

From two H200 of one host (NVLink, NCCL 2.28.9, ``NCCL_NVLS_ENABLE=0``), all-reduce of float32 through
``cupy.cuda.nccl``, ranks as threads of one process, as they are here: 4 KiB 22 us, 1 MiB 23 us, 16 MiB 79 us,
256 MiB 900 us. The bytes of a ring's steps and NCCL's latency of a step (its ``graph/tuning.cc``: ring, LL,
0.6 us over NVLink and 1.0 us over PCIe) extrapolate from two. Four H200, a process each, were recorded since
and not fitted: 1 MiB 25 us, 16 MiB 95 us, 256 MiB 1,180 us, for which this gives 11 to 13 % more. Where every
rank has a process of its own, small calls take half of what they take in threads (4 KiB: 10 us of two).
"""

from __future__ import annotations

from collections.abc import Iterable

from virtualgpu.model.cost.links import nvlink_gbps, peer_gbps
from virtualgpu.records import DeviceInfo

RING_NVLINK_EFFICIENCY = 0.681
RING_START_NS = 19_300.0
NVLINK_STEP_NS, HOST_STEP_NS = 600.0, 1_000.0
# Blocks of a NCCL kernel, one a channel: an assumption, so that kernels run beside it.
CHANNELS = 24


def ring_gbps(info: DeviceInfo, peer: DeviceInfo, direct: bool) -> float:
    """What one hop of a ring moves in one direction, in GB/s: over NVLink, or through the host's memory."""
    if direct and nvlink_gbps(info, peer):
        return nvlink_gbps(info, peer) * RING_NVLINK_EFFICIENCY
    return peer_gbps(info, peer, direct=False)


def collective_ns(hops: Iterable[tuple[DeviceInfo, DeviceInfo, int, bool]], steps: int) -> float:
    """Duration in ns of a collective call once all ranks have come, on their time lines.

    Parameters
    ----------
    hops
        From which device to which, how many bytes in all, and whether over NVLink. All go on at once; the
        slowest decides.
    steps
        How many steps follow each other.
    """
    hops = list(hops)
    step_ns = HOST_STEP_NS if any(not direct for *_, direct in hops) else NVLINK_STEP_NS
    slowest = max((size / ring_gbps(info, peer, direct) for info, peer, size, direct in hops), default=0.0)
    return RING_START_NS + steps * step_ns + slowest
