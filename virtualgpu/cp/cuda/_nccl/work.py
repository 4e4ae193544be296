"""Execute NCCL calls that all ranks have made: move the data, and run a kernel on each device."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from itertools import groupby
from typing import cast

import numpy as np

from virtualgpu.cp.cuda._nccl.calls import (
    INVALID_USAGE_STATUS,
    NCCL_DTYPES,
    UNHANDLED_CUDA_STATUS,
    NcclCall,
    NcclError,
)
from virtualgpu.cp.cuda._nccl.numbers import Array, all_reduce_rank_arrays, reduce_rank_arrays
from virtualgpu.model import cost
from virtualgpu.model.links.rings import RingCall, count_moved_bytes, count_steps, make_adding_order
from virtualgpu.model.links.together import KernelPart, run_together
from virtualgpu.model.machine import VirtualDevice
from virtualgpu.records.traffic.ports import Route


def view_buffer(call: NcclCall, address: int, count: int, parameter: str) -> Array:
    """Return the array at the buffer address that a rank passed to an NCCL call.

    Raises
    ------
    NcclError
        Status 1 for memory that the rank's device cannot access, or that is too small.
    """
    device = call.member.device
    size_bytes = count * call.item_bytes
    if not size_bytes:
        return np.empty(0, NCCL_DTYPES[call.dtype][2])
    dtype_name = NCCL_DTYPES[call.dtype][0]
    call_and_buffer = (
        f"{call.name} of rank {call.rank}: {parameter} ({count:,} x {dtype_name} at {address:#x})"
    )
    allocation = device.memory.find_nearest_allocation(address)
    if allocation is None or not allocation.address <= address < allocation.end:
        owner = device.machine.device_at(address)
        error_reason = "is not in a live array"
        if owner is not None and owner is not device:
            error_reason = f"is in the memory of device {owner.id}, but the rank's device is {device.id}"
        raise NcclError(
            UNHANDLED_CUDA_STATUS,
            f"{call_and_buffer} {error_reason}. On a GPU this is an illegal memory access.",
        )
    if address + size_bytes > allocation.end:
        remaining_count = (allocation.end - address) // call.item_bytes
        raise NcclError(
            UNHANDLED_CUDA_STATUS,
            f"{call_and_buffer} goes past the end of a {allocation.label}, which has only "
            f"{remaining_count:,} elements from that address on. Counts are numbers of "
            "elements. A buffer for the data of n ranks (allGather, reduceScatter) must "
            "be n times as long.",
        )
    if address % call.item_bytes:
        raise NcclError(
            UNHANDLED_CUDA_STATUS,
            f"{call_and_buffer} is not aligned to its element size, {call.item_bytes} bytes.",
        )
    return device.memory.view(address, size_bytes).view(NCCL_DTYPES[call.dtype][2])


def check_call(call: NcclCall, rank_count: int) -> None:
    """Find the arrays of an NCCL call, and check that the arrays and the stream belong to the rank's device.

    Raises
    ------
    NcclError
        Status 1 for wrong pointers and streams, 5 in a stream that captures a graph.
    """
    call.arrays = _find_call_arrays(call, rank_count)
    device = call.member.device
    for other_device in device.machine.devices:
        if other_device is not device and other_device.schedule.has_queue(call.stream):
            raise NcclError(
                UNHANDLED_CUDA_STATUS,
                f"{call.name} of rank {call.rank}: its stream belongs to device {other_device.id}, but the "
                f"rank's device is {device.id}. Make the stream within `with cp.cuda.Device({device.id}):`.",
            )
    if device.work_queue.find_capture(call.stream) is not None:
        raise NcclError(
            INVALID_USAGE_STATUS,
            f"{call.name} of rank {call.rank}: its stream is capturing a graph, which the "
            "virtual NCCL does not support. Call it outside of the capture.",
        )


def _find_call_arrays(call: NcclCall, rank_count: int) -> tuple[Array, Array]:
    """Return the arrays that a call reads and writes."""
    read_count = write_count = call.count
    if call.name == "allGather":
        write_count *= rank_count
    elif call.name == "reduceScatter":
        read_count *= rank_count
    is_root = call.rank == call.other_rank
    if call.name == "recv" or (call.name == "broadcast" and not is_root):
        read_count = 0
    if call.name == "send" or (call.name == "reduce" and not is_root):
        write_count = 0
    return view_buffer(call, call.send_address, read_count, "sendbuf"), view_buffer(
        call, call.receive_address, write_count, "recvbuf"
    )


def run_collective(call_rows: Sequence[Sequence[NcclCall]]) -> None:
    """Execute collective NCCL calls of one group that share a kernel on each device.

    Each row contains the matching calls of all ranks. NCCL also merges equal calls of a group into one
    kernel.
    """
    call_rows = [calls for calls in call_rows if calls[0].count]
    if not call_rows:
        return
    first_call = call_rows[0][0]
    rank_count = len(call_rows[0])
    ring_call = cast(RingCall, first_call.name)
    transferred_bytes: Counter[tuple[int, int]] = Counter()
    for calls in call_rows:
        transferred_bytes.update(
            count_moved_bytes(
                ring_call, rank_count, calls[0].count, first_call.item_bytes, calls[0].other_rank or 0
            )
        )

    def move_data() -> None:
        for calls in call_rows:
            _store_results(calls)

    device_by_rank = {call.rank: call.member.device for call in call_rows[0]}
    calls = [calls[rank] for rank in range(rank_count) for calls in call_rows]
    _run_on_devices(
        first_call.kernel_name,
        calls,
        move_data,
        _list_transfers(device_by_rank, transferred_bytes),
        count_steps(ring_call, rank_count),
    )


def _store_results(calls: Sequence[NcclCall]) -> None:
    """Write the results of one collective call to the receive arrays of all ranks."""
    first_call = calls[0]
    rank_count = len(calls)
    root_rank = calls[0].other_rank or 0
    inputs = [call.arrays[0] for call in calls]
    if first_call.name == "broadcast":
        results = [inputs[root_rank].copy()] * rank_count
    elif first_call.name == "allGather":
        results = [np.concatenate(inputs)] * rank_count
    else:
        assert first_call.op is not None
        if first_call.name == "reduceScatter":
            chunk_rows = [array.reshape(rank_count, first_call.count) for array in inputs]
            results = [
                reduce_rank_arrays(
                    [chunk_rows[rank][chunk_index] for rank in make_adding_order(rank_count, chunk_index)],
                    first_call.dtype,
                    first_call.op,
                )
                for chunk_index in range(rank_count)
            ]
        elif first_call.name == "reduce":
            results = [
                reduce_rank_arrays(
                    [inputs[rank] for rank in make_adding_order(rank_count, root_rank)],
                    first_call.dtype,
                    first_call.op,
                )
            ] * rank_count
        else:
            results = [all_reduce_rank_arrays(inputs, first_call.dtype, first_call.op)] * rank_count
    for call, result in zip(calls, results, strict=True):
        if call.arrays[1].size:
            call.arrays[1][...] = result


def run_exchange(call_pairs: Sequence[tuple[NcclCall, NcclCall]]) -> None:
    """Execute matched pairs of sends and receives at the same time."""
    array_pairs = [(send.arrays[0], recv.arrays[1]) for send, recv in call_pairs]

    def move_data() -> None:
        sent_copies = [np.array(sent_array) for sent_array, _ in array_pairs]
        for sent_copy, (_, received_array) in zip(sent_copies, array_pairs, strict=True):
            received_array[...] = sent_copy

    device_by_rank = {call.rank: call.member.device for call_pair in call_pairs for call in call_pair}
    transferred_bytes: Counter[tuple[int, int]] = Counter()
    for send, recv in call_pairs:
        transferred_bytes[send.rank, recv.rank] += send.count * send.item_bytes
    calls = sorted((call for call_pair in call_pairs for call in call_pair), key=lambda call: call.rank)
    _run_on_devices(
        "ncclDevKernel_SendRecv", calls, move_data, _list_transfers(device_by_rank, transferred_bytes), 1
    )


def _list_transfers(
    device_by_rank: Mapping[int, VirtualDevice], transferred_bytes: Mapping[tuple[int, int], int]
) -> list[tuple[int, int, int, Route]]:
    """Return the transfers between the devices of ranks: source, target, bytes and link.

    Like NCCL, they use NVLink if there is one, even if peer access is not enabled.
    """
    transfers: list[tuple[int, int, int, Route]] = []
    for (source_rank, target_rank), size_bytes in transferred_bytes.items():
        device_ids = device_by_rank[source_rank].id, device_by_rank[target_rank].id
        if source_rank != target_rank:
            has_nvlink = device_by_rank[source_rank].machine.links.can_access(*device_ids)
            transfers.append((*device_ids, size_bytes, "NVLink" if has_nvlink else "PCIe"))
    return transfers


def _run_on_devices(
    name: str,
    calls: Sequence[NcclCall],
    move_data: Callable[[], object],
    transfers: list[tuple[int, int, int, Route]],
    step_count: int,
) -> None:
    """Run one kernel per device; `calls` contains the calls of all ranks, sorted by rank."""
    machine = calls[0].member.device.machine
    device_infos = [device.info for device in machine.devices]
    if transfers:
        sent_bytes: Counter[tuple[int, Route]] = Counter()
        received_bytes: Counter[tuple[int, Route]] = Counter()
        for source_rank, target_rank, size_bytes, link in transfers:
            sent_bytes[source_rank, link] += size_bytes
            received_bytes[target_rank, link] += size_bytes
        # Transfers of one port share its bandwidth.
        transfer_costs = [
            (
                device_infos[source_rank],
                device_infos[target_rank],
                max(sent_bytes[source_rank, link], received_bytes[target_rank, link]),
                link == "NVLink",
            )
            for source_rank, target_rank, _, link in transfers
        ]
        duration_ns = cost.collective_ns(transfer_costs, step_count)
    else:
        moved_bytes = sum(call.arrays[0].nbytes for call in calls)
        duration_ns = cost.copy_ns(calls[0].member.device.info, "DtoD", moved_bytes)
    kernel_parts = []
    other_streams = []
    for _, group_calls in groupby(calls, key=lambda call: call.rank):
        rank_calls = list(group_calls)
        read_arrays, written_arrays = (
            [call.arrays[array_index] for call in rank_calls if call.arrays[array_index].size]
            for array_index in (0, 1)
        )
        streams = list(dict.fromkeys(call.stream for call in rank_calls))
        kernel_parts.append(KernelPart(rank_calls[0].member.device, streams[0], read_arrays, written_arrays))
        other_streams += [KernelPart(rank_calls[0].member.device, stream) for stream in streams[1:]]
    run_together(name, kernel_parts, move_data, duration_ns, transfers, other_streams)
