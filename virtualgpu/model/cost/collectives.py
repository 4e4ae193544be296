"""Durations of collective calls on several GPUs: NCCL's ring algorithm, and schedules of copies and sums.

NCCL as recorded on two H200 of one host (NVLink, NCCL 2.28.9, NVLink SHARP off: ``NCCL_NVLS_ENABLE=0``),
all-reduce of int32 through ``cupy.cuda.nccl``, a process for each rank, twenty calls in a row: 4 KiB 10 us,
1 MiB 16 us, 16 MiB 75 us, 256 MiB 895 us. The bytes of a ring's steps and NCCL's latency of a step (its
``graph/tuning.cc``: ring, LL, 0.6 us over NVLink and 1.0 us over PCIe) extrapolate from two. Four H200 were
recorded and not fitted to: 4 KiB 11 us, 1 MiB 17 us, 16 MiB 94 us, 256 MiB 1,183 us; this differs from every
recorded size by 1.36 times at most. Small calls of ranks that are threads of one process take twice as long.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from virtualgpu.model.cost.links import DIRECT_LATENCY_NS, nvlink_gbps, peer_copy_ns, peer_gbps
from virtualgpu.model.cost.rates import dram_gbps
from virtualgpu.records import DeviceInfo

RING_NVLINK_EFFICIENCY = 0.69
RING_START_NS = 11_000.0
NVLINK_STEP_NS = 600.0
HOST_STEP_NS = 1_000.0
# Blocks of a NCCL kernel, one per channel: an assumption, so that other kernels run at the same time.
CHANNELS = 24


def ring_gbps(info: DeviceInfo, peer: DeviceInfo, is_direct: bool) -> float:
    """Return the rate in GB/s at which a GPU sends data to the next one in a ring."""
    if is_direct and nvlink_gbps(info, peer):
        return nvlink_gbps(info, peer) * RING_NVLINK_EFFICIENCY
    return peer_gbps(info, peer, is_direct=False)


def collective_ns(hops: Iterable[tuple[DeviceInfo, DeviceInfo, int, bool]], step_count: int) -> float:
    """Return the duration of a collective operation in ns, counted from the time when all ranks have called
    it.

    Parameters
    ----------
    hops
        Source device, target device, bytes in total, and whether the hop uses NVLink. All hops run at the
        same time; the slowest decides.
    step_count
        Number of consecutive steps.
    """
    hops = list(hops)
    step_ns = HOST_STEP_NS if any(not is_direct for *_, is_direct in hops) else NVLINK_STEP_NS
    slowest_ns = max(
        (size / ring_gbps(info, peer, is_direct) for info, peer, size, is_direct in hops), default=0.0
    )
    return RING_START_NS + step_count * step_ns + slowest_ns


# Schedules: copies by the copy engines, sums by kernels of their own, events between GPUs, all in one graph.
# From two H200 (`tools.recordings.captured`): rings, trees and stars of 4 KiB to 256 MiB, and messages that
# take turns at a port. The same of four H200 was not fitted to: this differs from it by 1.3 times at most.
STEP_NS = 11_000.0
SUM_NS = 9_500.0
FURTHER_MESSAGE_NS = 2_200.0
FURTHER_SUM_NS = 1_300.0
COPY_NVLINK_EFFICIENCY = 0.86
SUM_DRAM_SHARE = 0.70
SUM_ACCESSES = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class StepPrices:
    """The costs of one step of copies and sums between GPUs. The step runs as part of a graph.

    ``step_ns`` is the time of the step's copies, the first of which waits for an event of another GPU;
    ``sum_ns`` is the time of the sums after them. ``turn_ns`` is added for each further message at a port,
    ``sum_turn_ns`` for each further sum on a GPU. ``link_gbps`` is the rate at which bytes pass a port in
    one direction, ``sum_gbps`` the rate at which bytes are added.
    """

    step_ns: float
    sum_ns: float
    turn_ns: float
    sum_turn_ns: float
    link_gbps: float
    sum_gbps: float


def step_prices(info: DeviceInfo) -> StepPrices:
    """Return the costs of one step of copies and sums between GPUs of the same model."""
    return StepPrices(
        step_ns=STEP_NS,
        sum_ns=SUM_NS,
        turn_ns=FURTHER_MESSAGE_NS,
        sum_turn_ns=FURTHER_SUM_NS,
        link_gbps=nvlink_gbps(info, info) * COPY_NVLINK_EFFICIENCY,
        sum_gbps=dram_gbps(info) * SUM_DRAM_SHARE / SUM_ACCESSES,
    )


def step_ns(
    infos: Sequence[DeviceInfo],
    messages: Sequence[tuple[int, int, int, bool]],
    sums: Sequence[tuple[int, int]],
) -> tuple[float, float]:
    """Return the duration of the copies in one step, and the duration of the whole step, in ns.

    A message waits while the output port of its source or the input port of its target is busy.

    Parameters
    ----------
    infos
        The devices.
    messages
        Source, target, bytes, and whether the message uses NVLink.
    sums
        Device and number of bytes that are added to an array, one sum after another.
    """
    prices = [step_prices(info) for info in infos]
    transfers_by_port: dict[tuple[int, bool, bool], list[float]] = {}
    for source_rank, target_rank, size_bytes, is_over_link in messages:
        rate_gbps = min(prices[source_rank].link_gbps, prices[target_rank].link_gbps)
        is_direct = is_over_link and rate_gbps > 0
        if is_direct:
            transfer_ns = size_bytes / rate_gbps
        else:
            transfer_ns = (
                peer_copy_ns(infos[source_rank], infos[target_rank], size_bytes, False) - DIRECT_LATENCY_NS
            )
        for port in ((source_rank, is_direct, True), (target_rank, is_direct, False)):
            transfers_by_port.setdefault(port, []).append(transfer_ns)
    copies_ns = max(
        (STEP_NS + (len(port) - 1) * FURTHER_MESSAGE_NS + sum(port) for port in transfers_by_port.values()),
        default=0.0,
    )
    sums_ns: dict[int, list[float]] = {}
    for device_index, size_bytes in sums:
        sums_ns.setdefault(device_index, []).append(size_bytes / prices[device_index].sum_gbps)
    slowest_sums_ns = max(
        (
            SUM_NS + (len(device_sums_ns) - 1) * FURTHER_SUM_NS + sum(device_sums_ns)
            for device_sums_ns in sums_ns.values()
        ),
        default=0.0,
    )
    return copies_ns, copies_ns + slowest_sums_ns
