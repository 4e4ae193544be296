"""What notebook 06 shows besides the laboratory's own views: the race of the reductions."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from gpulab import session
from gpulab.course import kernels
from gpulab.course.ranges import among as among
from gpulab.lab.timeline import timeline
from gpulab.views._base import View
from gpulab.views.parts.boxes import Box, bars, column, words
from gpulab.views.tables import Table
from virtualgpu.records import KernelCounters, Provenance
from virtualgpu.words import duration, number

ELEMENTS = 1 << 24


@dataclass(frozen=True, slots=True)
class Lap:
    """One kernel of a race: how long the GPU worked for it, and the counter that holds it."""

    name: str
    says: str
    held_by: str
    busy_ns: int
    gbps: float


def lap(work: Callable[[], Any]) -> tuple[int, Provenance]:
    """How long the GPU works for a call, warm: all its operations one after the other."""
    work()
    with timeline() as seen:
        work()
        session.cp().cuda.Device().synchronize()
    return sum(a.end_ns - a.start_ns for a in seen.record.activities), seen.record.provenance


class Race(View):
    """All rungs of a ladder and a copy of the same bytes, as bars of what each of them moves a second."""

    def __init__(self, laps: tuple[Lap, ...], copied: Lap, provenance: Provenance, title: str) -> None:
        self.laps, self.copied, self.provenance = laps, copied, provenance
        super().__init__(title=title, caption=f"Times {provenance.label}.", source=provenance.source)
        self.redraw()

    @property
    def record(self) -> tuple[Lap, ...]:
        """The rungs, in order."""
        return self.laps

    def of_the_copy(self, rung: int) -> float:
        """What a rung moves a second over what a copy does: reads and writes counted alike."""
        return self.laps[rung].gbps / self.copied.gbps

    def sentence(self) -> str:
        first, last = self.laps[0], self.laps[-1]
        return (
            f"From {number(first.gbps)} to {number(last.gbps)} GB/s in {len(self.laps)} rungs, "
            f"{self.of_the_copy(-1):.0%} of a copy's {number(self.copied.gbps)}; {self.provenance.label}."
        )

    def describe(self) -> str:
        lines = [f"{each.name}: {each.says}. {_result(each)}; held by {each.held_by}." for each in self.laps]
        return "\n".join([self.sentence(), *lines, f"{self.copied.name}: {_result(self.copied)}."])

    def draw(self) -> Box:
        most = max(each.gbps for each in (*self.laps, self.copied))
        rows = [
            {
                "label": f"{place} {each.name}", "share": each.gbps / most, "value": _result(each),
                "mark": f"held by {each.held_by}", "title": each.says,
                "colour": "good" if place == len(self.laps) else "accent",
            }
            for place, each in enumerate(self.laps, 1)
        ]  # fmt: skip
        finish = {
            "label": self.copied.name, "share": self.copied.gbps / most, "value": _result(self.copied),
            "mark": "the finish", "strong": True, "colour": "muted",
        }  # fmt: skip
        return column(
            bars([*rows, finish], label=0.24),
            words("GB/s of what must move: a sum reads each byte once, a copy reads and writes it.", "note"),
        )


def _result(each: Lap) -> str:
    return f"{number(each.gbps)} GB/s, {duration(each.busy_ns)}"


def counted(kinds: Mapping[str, KernelCounters], *counters: str) -> Table:
    """A row a kernel, a column a counter of the ladders."""
    rows = [
        (name, *(f"{kernels.COUNTERS[each](found):,}" for each in counters)) for name, found in kinds.items()
    ]
    first = next(iter(kinds.values()))
    return Table(f"Counted on {first.provenance.device}", ("kernel", *counters), tuple(rows))


def race(ladder: str = "reduction", elements: int = ELEMENTS) -> Race:
    """Let all rungs of a ladder over one row of floats run, each warm and alone, and a copy beside them.

    Parameters
    ----------
    ladder
        Whose rungs.
    elements
        Floats.
    """
    cp, chosen = session.cp(), kernels.ladder(ladder)
    example = kernels.example(ladder, (elements,))
    x, out = example.arrays
    held = [rung.mends for rung in chosen.rungs[1:]] + ["memory itself"]
    laps = []
    for rung, what in zip(chosen.rungs, held, strict=True):
        busy_ns, provenance = lap(kernels.launch(rung.name, x, out))
        laps.append(Lap(rung.name, rung.says, what, busy_ns, example.moved_bytes / busy_ns))
    target = cp.empty_like(x)
    copied_ns, provenance = lap(lambda: target.data.copy_from_device_async(x.data, x.nbytes))
    copied = Lap("cudaMemcpy", "a copy on the device", "", copied_ns, 2 * x.nbytes / copied_ns)
    return Race(tuple(laps), copied, provenance, f"{chosen.title}: n = {elements:,}")
