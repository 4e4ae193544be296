"""Kernels on several devices that wait for each other and end at the same time, as in a collective call.

A kernel begins when its stream reaches it, and waits on the device for the kernels of the other devices.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy.typing as npt

from virtualgpu.model import cost
from virtualgpu.model.graph import Operation
from virtualgpu.model.links.ports import PeerTransfers
from virtualgpu.model.machine import VirtualDevice
from virtualgpu.records.traffic.ports import Route


@dataclass(frozen=True, slots=True, eq=False)
class KernelPart:
    """One device of a joint kernel launch, with the stream and the arrays that it uses."""

    device: VirtualDevice
    stream: int
    reads: Sequence[npt.NDArray[Any]] = ()
    writes: Sequence[npt.NDArray[Any]] = ()


class _StreamEvent:
    """An event between two streams, which makes their order visible to the observers of the machine."""


def run_together(
    name: str,
    kernel_parts: Sequence[KernelPart],
    compute_results: Callable[[], object],
    duration_ns: float,
    transfers: Sequence[tuple[int, int, int, Route]],
    other_streams: Sequence[KernelPart] = (),
) -> None:
    """Launch one kernel on each of several devices. All kernels end at the same time.

    Parameters
    ----------
    name
        Name of the kernels.
    kernel_parts
        The devices, in the order in which the host launches on them.
    compute_results
        Does the work of all kernels.
    duration_ns
        Duration once all kernels have started and their ports are free.
    transfers
        Source, target, bytes and route of each transfer.
    other_streams
        Other streams that the work follows, and that wait for it.
    """
    machine = kernel_parts[0].device.machine
    clock = machine.clock
    last_part = kernel_parts[-1]
    peer_transfers = PeerTransfers()
    peer_transfers.set_transfers(machine.links, transfers)
    sm_shares = {part: min(1.0, cost.CHANNELS / part.device.info.sm_count) for part in kernel_parts}
    with clock.lock:
        begin_ns = clock.now_ns + round(len(kernel_parts) * cost.call_ns("CONCURRENT_KERNEL"))
        begin_ns = max(
            begin_ns,
            *(part.device.schedule.ready_ns(part.stream) for part in (*kernel_parts, *other_streams)),
        )
        engine_shares = [(part.device.schedule.engine("compute"), sm_shares[part]) for part in kernel_parts]
        engine_shares += peer_transfers.engines
        previous_ns = -1
        while begin_ns != previous_ns:  # until all engines are free at the same time
            previous_ns = begin_ns
            for engine, required_share in engine_shares:
                begin_ns = engine.find_earliest_start(
                    begin_ns, max(1, round(duration_ns)), required_share, clock.now_ns
                )
        end_ns = begin_ns + duration_ns
        for part in (*kernel_parts[:-1], *other_streams):
            _wait_for_stream(part, last_part)
        for part in kernel_parts[:-1]:
            waiting_kernel = Operation(
                "CONCURRENT_KERNEL",
                name,
                _make_waiting_kernel(part, end_ns),
                sm_share=sm_shares[part],
                reads=part.reads,
                writes=part.writes,
            )
            part.device.work_queue.enqueue(part.stream, waiting_kernel)
        last_part.device.schedule.hold_until(last_part.stream, begin_ns)

        def run() -> float:
            compute_results()
            for part in kernel_parts:
                machine.count_launch()
                for array in (*part.reads, *part.writes):
                    part.device.l2.mark_used({array.ctypes.data: array.nbytes})
            return duration_ns

        last_part.device.work_queue.enqueue(
            last_part.stream,
            Operation(
                "CONCURRENT_KERNEL",
                name,
                run,
                sm_share=sm_shares[last_part],
                reads=last_part.reads,
                writes=last_part.writes,
                peer_transfers=peer_transfers,
            ),
        )
        for part in (*kernel_parts[:-1], *other_streams):
            _wait_for_stream(last_part, part)


def _make_waiting_kernel(part: KernelPart, end_ns: float) -> Callable[[], float]:
    """Return a function that returns the duration of a kernel which waits until `end_ns`."""
    clock = part.device.clock
    schedule = part.device.schedule

    def run() -> float:
        call_ns = clock.now_ns + round(cost.call_ns("CONCURRENT_KERNEL"))
        return max(1.0, end_ns - max(call_ns, schedule.ready_ns(part.stream)))

    return run


def _wait_for_stream(first_part: KernelPart, second_part: KernelPart) -> None:
    """Let later operations in the stream of `second_part` wait for the present ones of `first_part`."""
    queue_end = first_part.device.schedule.find_queue_end(first_part.stream)
    second_part.device.schedule.hold_until(
        second_part.stream, queue_end.time_ns, queue_end.awaited_operations
    )
    stream_watch = first_part.device.clock.watch
    if stream_watch is not None:
        stream_event = _StreamEvent()
        stream_watch.note_event_record(
            stream_event, first_part.device.work_queue.make_stream_ref(first_part.stream)
        )
        stream_watch.note_event_wait(
            stream_event, second_part.device.work_queue.make_stream_ref(second_part.stream), True
        )
