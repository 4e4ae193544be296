"""The table of diagnoses: ``python -m tests.causes.table SEED`` draws kernels and prints their diagnoses."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from gpulab import session
from gpulab.views.tables.diagnosis import DiagnosisTable
from gpulab_course.content.n17_interview.cards.hidden import laid_out
from gpulab_course.content.n17_interview.cards.hidden.flawed import FAMILIES, FlawedKernel, draw_flawed_kernel
from virtualgpu.protocol import Costs, Launch
from virtualgpu.records.launch.causes import LaunchCosts

LEAST_FLAW = 1.3  # a smaller flaw on the drawn device does not count, and another kernel is drawn
SOUND = "sound"
CAUSES = tuple(cause for cause in FAMILIES if cause != SOUND)
MODULES = (laid_out,)  # whose import adds families of kernels


@dataclass(frozen=True)
class Row:
    """A kernel, its diagnosis, and the gain of its remedy."""

    case: FlawedKernel
    main: str
    stated: float
    yields: float
    diagnosis: DiagnosisTable

    @property
    def right(self) -> bool:
        """Whether the main cause is the one that was put in."""
        return self.main == ("" if self.case.cause == SOUND else self.case.cause)

    @property
    def near(self) -> bool:
        """Whether the stated gain is within 1.5 times of what the remedy yields."""
        return self.case.cause == SOUND or 1 / 1.5 <= self.stated / self.yields <= 1.5

    def __str__(self) -> str:
        cause = self.main or "nothing worth fixing"
        verdict = "right" if self.right else "WRONG"
        gains = f"{self.stated:7.2f} {self.yields:7.2f} {'' if self.near else 'FAR'}" if self.yields else ""
        case = self.case
        return f"{case.cause:15}{case.family:24}{case.device:10}{cause:22}{verdict:6} {gains}"


def costs(cp: Any, case: FlawedKernel, name: str) -> LaunchCosts:
    """Return the costs of a run of ``flawed`` or ``mended`` from cold caches."""
    kernel, grid, block, args, shared_bytes = case.launch(cp, name)
    return session.observe(Launch.of(kernel, grid, block, args, shared_bytes), Costs("cold")).record


def row(seed: int, cause: str, number: int) -> Row:
    """Draw a kernel of a cause until it has a flaw on its device, and diagnose it."""
    for attempt in range(8):
        case = draw_flawed_kernel(f"{seed}.{attempt}", cause, number)
        with session.on_device(f"virtual:{case.device}") as cp:
            record = costs(cp, case, "flawed")
            yields = 0.0
            if case.mended_launch is not None:
                yields = record.time_ns / costs(cp, case, "mended").time_ns
            elif cause == "launch":
                yields = in_graphs(cp, case)
        if case.mended_launch is None or yields >= LEAST_FLAW:
            break
    table = DiagnosisTable.of(record, code=case.code)
    main = table.main
    return Row(case, main.kind if main else "", main.gain if main else 1.0, yields, table)


def in_graphs(cp: Any, case: FlawedKernel, count: int = 50) -> float:
    """Return the gain of launches as nodes of a graph, on the virtual GPU's clock."""
    kernel, grid, block, args, _ = case.launch(cp, "flawed")
    grid, block = ((each,) if isinstance(each, int) else each for each in (grid, block))
    backend = session.backend()
    stream = cp.cuda.Stream(non_blocking=True)

    def time_ns() -> float:
        begin_ns = backend.host_ns()
        with stream:
            for _ in range(count):
                kernel(grid, block, args)
        stream.synchronize()
        return float(backend.host_ns() - begin_ns)

    time_ns()
    one_by_one_ns = time_ns()
    with stream:
        stream.begin_capture()
        for _ in range(count):
            kernel(grid, block, args)
        graph = stream.end_capture()
    begin_ns = backend.host_ns()
    graph.launch(stream)
    stream.synchronize()
    return one_by_one_ns / float(backend.host_ns() - begin_ns)


def rows(seed: int, count: int = 3, sound: int = 10) -> Iterator[Row]:
    """`count` kernels per cause, and sound ones."""
    for cause in CAUSES:
        yield from (row(seed, cause, number) for number in range(count))
    yield from (row(seed, SOUND, number) for number in range(sound))


if __name__ == "__main__":
    rows_drawn = []
    for drawn in rows(int(sys.argv[1]), *map(int, sys.argv[2:4])):
        rows_drawn.append(drawn)
        print(drawn, flush=True)
    flawed = [drawn for drawn in rows_drawn if drawn.case.cause != SOUND]
    sound = [drawn for drawn in rows_drawn if drawn.case.cause == SOUND]
    print(f"main cause right: {sum(e.right for e in flawed)} of {len(flawed)}")
    print(f"gain within 1.5: {sum(e.near for e in flawed)} of {len(flawed)}")
    print(f"sound ones left alone: {sum(e.right for e in sound)} of {len(sound)}")
