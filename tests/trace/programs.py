"""A small simulator of host and streams, apart from the virtual GPU's: timelines of made-up programs.

Kernels never wait for an engine: one begins when what it follows has ended and its call has returned, and the
time of a whole program is the longest chain of its parts.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, field, replace

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
        end = max([self.now, *(a.end_ns for a in self.activities)])
        streams = tuple(
            StreamInfo(0, s, f"stream {s}") for s in sorted({a.stream_id for a in self.activities})
        )
        order = sorted(self.activities, key=lambda a: (a.start_ns, a.correlation_id))
        return Timeline(
            provenance=MODELLED,
            method="model",
            start_ns=0,
            end_ns=end,
            activities=tuple(order),
            calls=tuple(self.calls),
            synchronizations=tuple(self.waits),
            streams=streams,
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
            after = tuple(dict.fromkeys(a.correlation_id for a in follows))
            for stream in step.waits_for:
                if stream in last and stream != step.stream:
                    of = (last[stream].correlation_id,)
                    run.waits.append(
                        Synchronization(
                            type="STREAM_WAIT_EVENT",
                            device_id=0,
                            stream_id=step.stream,
                            start_ns=begun,
                            end_ns=begun,
                            name="cudaStreamWaitEvent",
                            event_stream_id=stream,
                            after=of,
                            source=line,
                        )
                    )
            name = f"k{number}"
            end = start + step.time_ns
            made = Activity(
                kind="CONCURRENT_KERNEL",
                name=name,
                device_id=0,
                stream_id=step.stream,
                correlation_id=number,
                start_ns=start,
                end_ns=end,
                after=after,
            )
            last[step.stream] = made
            run.activities.append(made)
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
        what = rng.choices(("launch", "wait", "compute"), (6, 2, 2))[0]
        waits_for = tuple(s for s in range(1, 4) if rng.random() < 0.25)
        steps.append(Step(what, rng.randrange(1, 4), rng.randrange(1, 60), rng.randrange(1, 9), waits_for))
    return steps


def longer(steps: list[Step], at: int, by_ns: int) -> list[Step]:
    """The same program with one part that takes longer."""
    return [*steps[:at], replace(steps[at], time_ns=steps[at].time_ns + by_ns), *steps[at + 1 :]]
