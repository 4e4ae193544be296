"""Figures of notebook 06 in addition to the views of gpulab: races of kernels, and attention in tiles."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from importlib import resources
from typing import Any

import numpy as np

from gpulab import session
from gpulab.lab.kernels import count
from gpulab.lab.timeline import timeline
from gpulab.views._base import View
from gpulab.views.parts.boxes import Box, bars, column, words
from gpulab.views.tables import Table
from gpulab.words import duration, number, size
from gpulab_course.content import kernels
from gpulab_course.content.ranges import among as among
from virtualgpu.records import KernelCounters, Provenance
from virtualgpu.records.kernel import SECTOR_BYTES

ELEMENTS = 1 << 24


@dataclass(frozen=True, slots=True)
class Lap:
    """The result of one kernel of a race: its GPU time, bandwidth, and limiting counter."""

    name: str
    says: str
    held_by: str
    busy_ns: int
    gbps: float


def lap(work: Callable[[], Any]) -> tuple[int, Provenance]:
    """Return the GPU time of one warm call: the sum of the times of all its operations."""
    work()
    with timeline() as seen:
        work()
        session.cp().cuda.Device().synchronize()
    return sum(a.end_ns - a.start_ns for a in seen.record.activities), seen.record.provenance


class Race(View):
    """All kernels of a series and a copy of the same bytes, as bars of their bandwidths."""

    def __init__(self, laps: tuple[Lap, ...], copied: Lap, provenance: Provenance, title: str) -> None:
        self.laps = laps
        self.copied = copied
        self.provenance = provenance
        super().__init__(title=title, caption=f"Times {provenance.label}.", source=provenance.source)
        self.redraw()

    @property
    def record(self) -> tuple[Lap, ...]:
        """The kernels of the series, in order."""
        return self.laps

    def of_the_copy(self, rung: int) -> float:
        """Return the bandwidth of a kernel relative to that of a copy; reads and writes count alike."""
        return self.laps[rung].gbps / self.copied.gbps

    def sentence(self) -> str:
        first = self.laps[0]
        last = self.laps[-1]
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
                "label": f"{place} {each.name}",
                "share": each.gbps / most,
                "value": _result(each),
                "mark": f"held by {each.held_by}",
                "title": each.says,
                "colour": "good" if place == len(self.laps) else "accent",
            }
            for place, each in enumerate(self.laps, 1)
        ]
        finish = {
            "label": self.copied.name,
            "share": self.copied.gbps / most,
            "value": _result(self.copied),
            "mark": "the finish",
            "strong": True,
            "colour": "muted",
        }
        return column(
            bars([*rows, finish], label=0.24),
            words("GB/s of what must move: a sum reads each byte once, a copy reads and writes it.", "note"),
        )


def _result(each: Lap) -> str:
    return f"{number(each.gbps)} GB/s, {duration(each.busy_ns)}"


def counted(kinds: Mapping[str, KernelCounters], *counters: str) -> Table:
    """Tabulate counters: one row per kernel, one column per counter of the series."""
    rows = [
        (name, *(f"{kernels.COUNTERS[each](found):,}" for each in counters)) for name, found in kinds.items()
    ]
    first = next(iter(kinds.values()))
    return Table(f"Counted on {first.provenance.device}", ("kernel", *counters), tuple(rows))


def passes(ladder: str = "softmax", shape: tuple[int, ...] = (512, 1024)) -> Table:
    """Return sectors, bytes from DRAM and time of a ladder's kernels that give a warp to each row."""
    arrays = kernels.example(ladder, shape).arrays
    rows = []
    for rung in kernels.ladder(ladder).rungs[1:]:
        work = kernels.launch(rung.name, *arrays)
        busy_ns, provenance = lap(work)
        found = count(**work.step).record
        sectors = kernels.COUNTERS["sectors"](found)
        dram_bytes = found.caches.dram_read_bytes if found.caches else 0
        rows.append((rung.name, rung.says, f"{sectors:,}", size(dram_bytes), duration(busy_ns)))
    title = (
        f"Rows of {shape[1]:,} floats; sectors and bytes counted on the virtual GPU, times {provenance.label}"
    )
    return Table(title, ("kernel", "what is new", "sectors", "read from DRAM", "time"), tuple(rows))


WIDTH = 32  # floats of a row of q, k and v


def source(file: str) -> str:
    """Return the CUDA C++ of one of this notebook's kernels."""
    return (resources.files(__package__) / "kernels" / file).read_text(encoding="utf-8")


def attend(n: int, threads: int) -> tuple[KernelCounters, list[Any]]:
    """Run attention in tiles of `threads` rows; return its counters, and q, k, v and the result."""
    cp = session.cp()
    rng = np.random.default_rng(6)
    arrays = [cp.asarray(rng.standard_normal((n, WIDTH), dtype=np.float32)) for _ in range(3)]
    arrays.append(cp.empty_like(arrays[0]))
    kernel = cp.RawKernel(source("attention.cu"), "attention")
    return count(kernel, n // threads, threads, (*arrays, np.int32(n))).record, arrays


def tile_bytes(found: KernelCounters) -> int:
    """Return the bytes of k and v that blocks of attention read, from whatever memory serves them."""
    lines = source("attention.cu").splitlines()
    mine = {place for place, line in enumerate(lines, 1) if "= k[" in line or "= v[" in line}
    reads = [each for each in found.accesses if each.space == "global" and each.line in mine]
    return SECTOR_BYTES * sum(each.sectors for each in reads)


def attention() -> Table:
    """Return what attention in tiles reads, for several lengths and two heights of a tile."""
    rows = []
    for threads in (32, 128):
        for n in (256, 512, 1024):
            found, _ = attend(n, threads)
            dram_bytes = found.caches.dram_read_bytes if found.caches else 0
            rows.append((f"{threads}", f"{n:,}", size(tile_bytes(found)), size(dram_bytes), size(4 * n * n)))
    title = f"Attention in tiles, rows of {WIDTH} floats, counted on {found.provenance.device}"
    headings = "rows in a tile of q", "n", "k and v, read by the SMs", "read from DRAM", "scores, if stored"
    return Table(title, headings, tuple(rows))


def race(ladder: str = "reduction", elements: int = ELEMENTS) -> Race:
    """Time all kernels of a series on one row of floats, each warm and alone, and a copy for comparison.

    Parameters
    ----------
    ladder
        Whose rungs.
    elements
        Floats.
    """
    cp = session.cp()
    chosen = kernels.ladder(ladder)
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
