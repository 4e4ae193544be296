"""The table of diagnoses: ``python -m tests.causes.table SEED`` draws kernels and says what was made of them."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from gpulab import session
from gpulab.views.tables.diagnosis import DiagnosisTable
from gpulab_course.content.n17_interview.cards.hidden import laid_out
from gpulab_course.content.n17_interview.cards.hidden.flawed import FAMILIES, Case, draw
from virtualgpu.protocol import Costs, Launch
from virtualgpu.records.launch.causes import LaunchCosts

LEAST_FLAW = 1.3  # a flaw that costs less on the device that was drawn is none, and another is drawn
SOUND = "sound"
CAUSES = tuple(cause for cause in FAMILIES if cause != SOUND)
MODULES = (laid_out,)


@dataclass(frozen=True)
class Row:
    """A kernel, what was said of it, and what its remedy yields."""

    case: Case
    main: str
    stated: float
    yields: float
    found: DiagnosisTable

    @property
    def right(self) -> bool:
        """Whether the main cause is the one that was put in."""
        return self.main == ("" if self.case.cause == SOUND else self.case.cause)

    @property
    def near(self) -> bool:
        """Whether the stated gain is within 1.5 times of what the remedy yields."""
        return self.case.cause == SOUND or 1 / 1.5 <= self.stated / self.yields <= 1.5

    def __str__(self) -> str:
        told = self.main or "nothing worth mending"
        verdict = "right" if self.right else "WRONG"
        gains = f"{self.stated:7.2f} {self.yields:7.2f} {'' if self.near else 'FAR'}" if self.yields else ""
        case = self.case
        return f"{case.cause:15}{case.family:24}{case.device:10}{told:22}{verdict:6} {gains}"


def costs(cp: Any, case: Case, name: str) -> LaunchCosts:
    """What a run of ``flawed`` or ``mended`` costs from cold caches."""
    kernel, grid, block, args, shared_bytes = case.launch(cp, name)
    return session.observe(Launch.of(kernel, grid, block, args, shared_bytes), Costs("cold")).record


def row(seed: int, cause: str, at: int) -> Row:
    """Draw a kernel of a cause until it has a flaw on its device, and diagnose it."""
    for attempt in range(8):
        case = draw(f"{seed}.{attempt}", cause, at)
        with session.on_device(f"virtual:{case.device}") as cp:
            seen = costs(cp, case, "flawed")
            yields = 0.0
            if case.mended is not None:
                yields = seen.time_ns / costs(cp, case, "mended").time_ns
            elif cause == "launch":
                yields = in_graphs(cp, case)
        if case.mended is None or yields >= LEAST_FLAW:
            break
    found = DiagnosisTable.of(seen, code=case.code)
    main = found.main
    return Row(case, main.kind if main else "", main.gain if main else 1.0, yields, found)


def in_graphs(cp: Any, case: Case, many: int = 50) -> float:
    """How many times as fast launches are as nodes of a graph, on the virtual GPU's clock."""
    kernel, grid, block, args, _ = case.launch(cp, "flawed")
    grid, block = ((each,) if isinstance(each, int) else each for each in (grid, block))
    backend = session.backend()
    stream = cp.cuda.Stream(non_blocking=True)

    def took() -> float:
        began = backend.host_ns()
        with stream:
            for _ in range(many):
                kernel(grid, block, args)
        stream.synchronize()
        return float(backend.host_ns() - began)

    took()
    one_by_one = took()
    with stream:
        stream.begin_capture()
        for _ in range(many):
            kernel(grid, block, args)
        graph = stream.end_capture()
    began = backend.host_ns()
    graph.launch(stream)
    stream.synchronize()
    return one_by_one / float(backend.host_ns() - began)


def rows(seed: int, each: int = 3, sound: int = 10) -> Iterator[Row]:
    """`each` kernels a cause, and sound ones."""
    for cause in CAUSES:
        yield from (row(seed, cause, at) for at in range(each))
    yield from (row(seed, SOUND, at) for at in range(sound))


if __name__ == "__main__":
    told = []
    for each in rows(int(sys.argv[1]), *map(int, sys.argv[2:4])):
        told.append(each)
        print(each, flush=True)
    flawed = [each for each in told if each.case.cause != SOUND]
    well = [each for each in told if each.case.cause == SOUND]
    print(f"main cause right: {sum(e.right for e in flawed)} of {len(flawed)}")
    print(f"gain within 1.5: {sum(e.near for e in flawed)} of {len(flawed)}")
    print(f"sound ones left alone: {sum(e.right for e in well)} of {len(well)}")
