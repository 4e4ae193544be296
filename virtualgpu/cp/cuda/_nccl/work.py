"""What happens when all ranks of a call have come: the bytes move, and each device gets its kernel."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from itertools import groupby
from typing import cast

import numpy as np

from virtualgpu.cp.cuda._nccl.calls import (
    DTYPES,
    INVALID_USAGE,
    UNHANDLED_CUDA,
    Call,
    NcclError,
)
from virtualgpu.cp.cuda._nccl.numbers import Array, all_reduced, reduced
from virtualgpu.model import cost
from virtualgpu.model.links.rings import RingCall, adding_order, moved, step_count
from virtualgpu.model.links.together import Part, run_together
from virtualgpu.model.machine import VirtualDevice
from virtualgpu.records.traffic.ports import Over


def buffer(call: Call, address: int, count: int, which: str) -> Array:
    """The elements that a pointer of a call means.

    Raises
    ------
    NcclError
        Status 1 for what the rank's device cannot reach, or that is too short.
    """
    device = call.member.device
    size_bytes = count * call.item_bytes
    if not size_bytes:
        return np.empty(0, DTYPES[call.dtype][2])
    what = f"{call.name} of rank {call.rank}: {which} ({count:,} x {DTYPES[call.dtype][0]} at {address:#x})"
    found = device.memory.nearest(address)
    if found is None or not found.address <= address < found.end:
        owner = device.machine.device_at(address)
        why = "is in no array that lives"
        if owner is not None and owner is not device:
            why = f"is in the memory of device {owner.id}, but the rank's device is {device.id}"
        raise NcclError(UNHANDLED_CUDA, f"{what} {why}. An illegal memory access on a GPU.")
    if address + size_bytes > found.end:
        rest = (found.end - address) // call.item_bytes
        raise NcclError(
            UNHANDLED_CUDA,
            f"{what} goes past the end of a {found.label}, which has {rest:,} from there on. Counts are of "
            "elements, and what is gathered from or scattered to n ranks is n times as long.",
        )
    if address % call.item_bytes:
        raise NcclError(UNHANDLED_CUDA, f"{what} is not aligned to its {call.item_bytes} bytes.")
    return device.memory.view(address, size_bytes).view(DTYPES[call.dtype][2])


def check(call: Call, ranks: int) -> None:
    """Note the arrays of a call, and refuse one whose pointers or stream its device does not know.

    Raises
    ------
    NcclError
        Status 1 for pointers and streams, 5 in a stream that captures a graph.
    """
    call.ends = _buffers(call, ranks)
    device = call.member.device
    for other in device.machine.devices:
        if other is not device and other.schedule.has(call.stream):
            raise NcclError(
                UNHANDLED_CUDA,
                f"{call.name} of rank {call.rank}: its stream belongs to device {other.id}, but the rank's "
                f"device is {device.id}. Make the stream within `with cp.cuda.Device({device.id}):`.",
            )
    if device.work.capturing(call.stream) is not None:
        raise NcclError(
            INVALID_USAGE,
            f"{call.name} of rank {call.rank}: its stream captures a graph, which the virtual NCCL cannot be "
            "part of. Call it outside of the capture.",
        )


def _buffers(call: Call, ranks: int) -> tuple[Array, Array]:
    """What a call reads and what it writes."""
    reads = writes = call.count
    if call.name == "allGather":
        writes *= ranks
    elif call.name == "reduceScatter":
        reads *= ranks
    rooted = call.rank == call.other
    if call.name == "recv" or (call.name == "broadcast" and not rooted):
        reads = 0
    if call.name == "send" or (call.name == "reduce" and not rooted):
        writes = 0
    return buffer(call, call.send, reads, "sendbuf"), buffer(call, call.recv, writes, "recvbuf")


def collective(rows: Sequence[Sequence[Call]]) -> None:
    """Calls of all ranks in their order, one after the other, in one kernel of each device.

    NCCL makes one kernel, too, of the calls of a group that are of one kind.
    """
    rows = [calls for calls in rows if calls[0].count]
    if not rows:
        return
    first = rows[0][0]
    n = len(rows[0])
    ring = cast(RingCall, first.name)
    sums: Counter[tuple[int, int]] = Counter()
    for calls in rows:
        sums.update(moved(ring, n, calls[0].count, first.item_bytes, calls[0].other or 0))

    def move() -> None:
        for calls in rows:
            _move(calls)

    devices = {call.rank: call.member.device for call in rows[0]}
    calls = [calls[rank] for rank in range(n) for calls in rows]
    _run(first.kernel, calls, move, _hops(devices, sums), step_count(ring, n))


def _move(calls: Sequence[Call]) -> None:
    """What one call gives all ranks."""
    first = calls[0]
    n = len(calls)
    root = calls[0].other or 0
    sent = [call.ends[0] for call in calls]
    if first.name == "broadcast":
        results = [sent[root].copy()] * n
    elif first.name == "allGather":
        results = [np.concatenate(sent)] * n
    else:
        assert first.op is not None
        if first.name == "reduceScatter":
            rows = [read.reshape(n, first.count) for read in sent]
            results = [
                reduced([rows[rank][mine] for rank in adding_order(n, mine)], first.dtype, first.op)
                for mine in range(n)
            ]
        elif first.name == "reduce":
            results = [reduced([sent[rank] for rank in adding_order(n, root)], first.dtype, first.op)] * n
        else:
            results = [all_reduced(sent, first.dtype, first.op)] * n
    for call, result in zip(calls, results, strict=True):
        if call.ends[1].size:
            call.ends[1][...] = result


def exchange(pairs: Sequence[tuple[Call, Call]]) -> None:
    """Sends with their receives, all at once."""
    ends = [(send.ends[0], recv.ends[1]) for send, recv in pairs]

    def move() -> None:
        sent = [np.array(read) for read, _ in ends]
        for values, (_, write) in zip(sent, ends, strict=True):
            write[...] = values

    devices = {call.rank: call.member.device for pair in pairs for call in pair}
    sums: Counter[tuple[int, int]] = Counter()
    for send, recv in pairs:
        sums[send.rank, recv.rank] += send.count * send.item_bytes
    calls = sorted((call for pair in pairs for call in pair), key=lambda call: call.rank)
    _run("ncclDevKernel_SendRecv", calls, move, _hops(devices, sums), 1)


def _hops(
    devices: Mapping[int, VirtualDevice], sums: Mapping[tuple[int, int], int]
) -> list[tuple[int, int, int, Over]]:
    """What passes between ranks' devices, and which way: NCCL takes NVLink where there is one, unasked."""
    found: list[tuple[int, int, int, Over]] = []
    for (source, target), size_bytes in sums.items():
        ends = devices[source].id, devices[target].id
        if source != target:
            near = devices[source].machine.links.can_access(*ends)
            found.append((*ends, size_bytes, "NVLink" if near else "PCIe"))
    return found


def _run(
    name: str,
    calls: Sequence[Call],
    move: Callable[[], object],
    hops: list[tuple[int, int, int, Over]],
    steps: int,
) -> None:
    """One kernel a device; `calls` has those of each rank one behind the other."""
    machine = calls[0].member.device.machine
    infos = [device.info for device in machine.devices]
    if hops:
        out: Counter[tuple[int, Over]] = Counter()
        into: Counter[tuple[int, Over]] = Counter()
        for source, target, size_bytes, over in hops:
            out[source, over] += size_bytes
            into[target, over] += size_bytes
        # Several hops of one port share it.
        busiest = [
            (infos[source], infos[target], max(out[source, over], into[target, over]), over == "NVLink")
            for source, target, _, over in hops
        ]
        duration_ns = cost.collective_ns(busiest, steps)
    else:
        moved_bytes = sum(call.ends[0].nbytes for call in calls)
        duration_ns = cost.copy_ns(calls[0].member.device.info, "DtoD", moved_bytes)
    parts = []
    also = []
    for _, group in groupby(calls, key=lambda call: call.rank):
        mine = list(group)
        reads, writes = ([call.ends[side] for call in mine if call.ends[side].size] for side in (0, 1))
        streams = list(dict.fromkeys(call.stream for call in mine))
        parts.append(Part(mine[0].member.device, streams[0], reads, writes))
        also += [Part(mine[0].member.device, stream) for stream in streams[1:]]
    run_together(name, parts, move, duration_ns, hops, also)
