"""A small simulator of host and streams, apart from the virtual GPU's: timelines of made-up programs.

Kernels never wait for an engine: one begins when what it follows has ended and its call has returned, and the
time of a whole program is the longest chain of its parts.
"""

from __future__ import annotations

import random
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from typing import Any

from virtualgpu.records import (
    Activity,
    HostCall,
    Provenance,
    SourceLine,
    StreamInfo,
    Synchronization,
    Timeline,
)

MODELLED = Provenance("modelled", "virtual test GPU")


def kernel(
    number: int, stream: int, start_ns: int, end_ns: int, after: tuple[int, ...] = (), **changes: Any
) -> Activity:
    """The kernel ``k<number>`` of device 0."""
    fields = {
        "kind": "CONCURRENT_KERNEL",
        "name": f"k{number}",
        "device_id": 0,
        "stream_id": stream,
        "correlation_id": number,
        "start_ns": start_ns,
        "end_ns": end_ns,
        "after": after,
    }
    return Activity(**fields | changes)


def timeline_of(activities: Iterable[Activity] = (), end_ns: int | None = None, **fields: Any) -> Timeline:
    """A modelled timeline from 0 to the end of its last activity, or to `end_ns`."""
    activities = tuple(activities)
    last_ns = max((activity.end_ns for activity in activities), default=0)
    times = {"start_ns": 0, "end_ns": last_ns if end_ns is None else end_ns}
    return Timeline(provenance=MODELLED, method="model", activities=activities, **times | fields)


@dataclass(frozen=True)
class Step:
    """``launch`` (stream, time, streams whose work it waits for), ``wait`` (stream) or ``compute`` (time)."""

    what: str
    stream: int = 0
    time_ns: int = 0
    call_ns: int = 4
    waits_for: tuple[int, ...] = ()


@dataclass
class Run:
    now: int = 0
    activities: list[Activity] = field(default_factory=list)
    calls: list[HostCall] = field(default_factory=list)
    waits: list[Synchronization] = field(default_factory=list)

    def timeline(self) -> Timeline:
        order = sorted(self.activities, key=lambda a: (a.start_ns, a.correlation_id))
        streams = sorted({a.stream_id for a in self.activities})
        return timeline_of(
            order,
            max([self.now, *(a.end_ns for a in self.activities)]),
            calls=tuple(self.calls),
            synchronizations=tuple(self.waits),
            streams=tuple(StreamInfo(0, stream, f"stream {stream}") for stream in streams),
        )


def simulate(steps: list[Step]) -> Timeline:
    run = Run()
    last = {}
    for number, step in enumerate(steps, 1):
        line = SourceLine("made_up.py", number)
        begun = run.now
        if step.what == "compute":
            run.now += step.time_ns
        elif step.what == "launch":
            run.now += step.call_ns
            follows = [last[s] for s in (step.stream, *step.waits_for) if s in last]
            start = max([run.now, *(a.end_ns for a in follows)])
            predecessors = tuple(dict.fromkeys(a.correlation_id for a in follows))
            for stream in step.waits_for:
                if stream in last and stream != step.stream:
                    event_of = (last[stream].correlation_id,)
                    run.waits.append(
                        Synchronization(
                            type="STREAM_WAIT_EVENT",
                            device_id=0,
                            stream_id=step.stream,
                            start_ns=begun,
                            end_ns=begun,
                            name="cudaStreamWaitEvent",
                            event_stream_id=stream,
                            after=event_of,
                            source=line,
                        )
                    )
            activity = kernel(number, step.stream, start, start + step.time_ns, predecessors)
            last[step.stream] = activity
            run.activities.append(activity)
            run.calls.append(HostCall("cuLaunchKernel", begun, run.now, 1, number, line))
        else:
            until = max([run.now, *(a.end_ns for s, a in last.items() if s == step.stream)])
            run.now = until
            run.calls.append(HostCall("cudaStreamSynchronize", begun, until, 1, 0, line))
            run.waits.append(
                Synchronization(
                    type="STREAM_SYNCHRONIZE",
                    device_id=0,
                    stream_id=step.stream,
                    start_ns=begun,
                    end_ns=until,
                    name="cudaStreamSynchronize",
                    source=line,
                )
            )
    return run.timeline()


def program(seed: int, length: int = 14) -> list[Step]:
    rng = random.Random(seed)
    steps = []
    for _ in range(length):
        kind = rng.choices(("launch", "wait", "compute"), (6, 2, 2))[0]
        waits_for = tuple(s for s in range(1, 4) if rng.random() < 0.25)
        steps.append(Step(kind, rng.randrange(1, 4), rng.randrange(1, 60), rng.randrange(1, 9), waits_for))
    return steps


def longer(steps: list[Step], index: int, by_ns: int) -> list[Step]:
    """The same program with one part that takes longer."""
    return [*steps[:index], replace(steps[index], time_ns=steps[index].time_ns + by_ns), *steps[index + 1 :]]
