"""Work that several devices do together: one kernel each, which end at one time.

A kernel begins when its stream comes to it, and waits there, on the device, for those of the other devices.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy.typing as npt

from virtualgpu.model import cost
from virtualgpu.model.graph import Operation
from virtualgpu.model.links.ports import Passage
from virtualgpu.model.machine import VirtualDevice
from virtualgpu.records.traffic.ports import Over


@dataclass(frozen=True, slots=True, eq=False)
class Part:
    """A device of it, the stream that its kernel is in, and the arrays of that device that it uses."""

    device: VirtualDevice
    stream: int
    reads: Sequence[npt.NDArray[Any]] = ()
    writes: Sequence[npt.NDArray[Any]] = ()


class _Mark:
    """Stands for an event between two of the streams."""


def run_together(
    name: str,
    parts: Sequence[Part],
    move: Callable[[], object],
    duration_ns: float,
    hops: Sequence[tuple[int, int, int, Over]],
    also: Sequence[Part] = (),
) -> None:
    """Give each device its kernel.

    Parameters
    ----------
    name
        Of the kernels.
    parts
        The devices, in the order in which the host launches on them.
    move
        Does the work of all.
    duration_ns
        What it takes once all are there and their ports are free.
    hops
        Source, target, bytes and way of what passes ports.
    also
        More streams that it follows, and that wait for it.
    """
    machine = parts[0].device.machine
    clock = machine.clock
    last = parts[-1]
    passage = Passage()
    passage.through(machine.links, hops)
    share = {part: min(1.0, cost.CHANNELS / part.device.info.sm_count) for part in parts}
    with clock.lock:
        begin_ns = clock.now_ns + round(len(parts) * cost.call_ns("CONCURRENT_KERNEL"))
        begin_ns = max(begin_ns, *(p.device.schedule.ready_ns(p.stream) for p in (*parts, *also)))
        needed = [(part.device.schedule.engine("compute"), share[part]) for part in parts]
        needed += passage.engines
        before = -1
        while begin_ns != before:  # until all are free at once
            before = begin_ns
            for engine, taken in needed:
                begin_ns = engine.earliest(begin_ns, max(1, round(duration_ns)), taken, clock.now_ns)
        end_ns = begin_ns + duration_ns
        for part in (*parts[:-1], *also):
            _order(part, last)
        for part in parts[:-1]:
            waiting = Operation(
                "CONCURRENT_KERNEL",
                name,
                _waiting(part, end_ns),
                sm_share=share[part],
                reads=part.reads,
                writes=part.writes,
            )
            part.device.work.enqueue(part.stream, waiting)
        last.device.schedule.hold_until(last.stream, begin_ns)

        def run() -> float:
            move()
            for part in parts:
                machine.count_launch()
                for array in (*part.reads, *part.writes):
                    part.device.l2.touch({array.ctypes.data: array.nbytes})
            return duration_ns

        last.device.work.enqueue(
            last.stream,
            Operation(
                "CONCURRENT_KERNEL",
                name,
                run,
                sm_share=share[last],
                reads=last.reads,
                writes=last.writes,
                passage=passage,
            ),
        )
        for part in (*parts[:-1], *also):
            _order(last, part)


def _waiting(part: Part, end_ns: float) -> Callable[[], float]:
    """What a kernel takes on its device that waits for the others, and ends with them."""
    clock = part.device.clock
    schedule = part.device.schedule

    def run() -> float:
        called_ns = clock.now_ns + round(cost.call_ns("CONCURRENT_KERNEL"))
        return max(1.0, end_ns - max(called_ns, schedule.ready_ns(part.stream)))

    return run


def _order(first: Part, then: Part) -> None:
    """Let what a stream is given from now on wait for what another was given."""
    moment = first.device.schedule.point(first.stream)
    then.device.schedule.hold_until(then.stream, moment.time_ns, moment.after)
    watch = first.device.clock.watch
    if watch is not None:
        mark = _Mark()
        watch.recorded(mark, first.device.work.place(first.stream))
        watch.waits(mark, then.device.work.place(then.stream), True)
