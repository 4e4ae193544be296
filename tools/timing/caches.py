"""The cache card: errors of hit rates and bytes of memory; ``python -m tools.timing.caches``."""

from __future__ import annotations

import argparse
import json
import math
import sys
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, cast

from gpulab import session
from tools.corpus.caching import CASES, LATE, CacheCase, code
from virtualgpu.protocol import Counters, Launch
from virtualgpu.records import CacheCounters, KernelSource

ROOT = Path(__file__).resolve().parents[2]
CARD = ROOT / "virtualgpu" / "model" / "caches" / "CARD.md"
RECORDING = ROOT / "tests" / "counters" / "data" / "h200_caches.json"
State = Literal["cold", "warm"]
# Bytes from which on a ratio is told.
READ_BYTES = 1_000_000
WRITTEN_BYTES = 4_000_000

HEAD = """# How far the cache model can be believed

Made by `python -m tools.timing.caches`; do not edit. Hit rates and bytes here are *recorded* on an H200 by
Nsight Compute or *modelled* by the virtual one; nothing is measured on your machine.

{count} launches of {kernels} kernels (`tools/corpus/caching.py`), each from empty caches. The model's
constants were chosen by {fitted} of the kernels; marked with * are the {held} others, whose figures were
looked at, too, while it grew; of them {late} (**) were recorded only when it stood.

## What was reached

| | launches | median error | nine of ten within | worst |
| --- | ---: | ---: | ---: | ---: |
{scores}

L1 hit rate: sectors of loads of global and local memory that L1 held, in Nsight Compute's terms
`l1tex__t_sectors_pipe_lsu_mem_*_op_ld_lookup_hit` of `..._op_ld`. L2 hit rate: of what the SMs ask,
`lts__t_sectors_srcunit_tex_lookup_hit` of `lts__t_sectors_srcunit_tex`. The rate that Nsight Compute shows
first, `lts__t_sector_hit_rate`, also counts what the parts of L2 ask each other, instructions and constants;
of launches of a few microseconds it says 120 % and more. Bytes are compared from {read:,} read or {written:,}
written on: Nsight Compute itself leaves up to 2.6 million to be written.

Warm launches, each the second of two: the median error of L2's hit rate is {warm} points over {warm_count}
launches. Nsight Compute takes L2's counters in several runs then, with other work between them, and says up
to 116 %; its bytes of memory are those of a cold run, and are not compared.

## What is not modelled

- Which SMs lie where. Blocks go to SMs by number; six in a row are taken to lie beside one part of L2,
  requests of four in a row for the same sectors become one. So how often L2 is asked, and how often both
  parts have to fetch a line, is right on average only; where many SMs share lines at once, an H200 misses
  more often (the largest naive product, stencils in three dimensions).
- Sectors that are stored in part, but for a rule of thumb: a set of L2 keeps four pieces of 64 bytes with
  such sectors; others are read, completed and written.
- Whether a store finds its line in L1: Nsight Compute's own rate of L1 counts that.
- An array that just fills L1 or L2: whether it stays is a matter of a per cent of their size.
- Hits in the constant cache: only how many different words a warp asks for.
- Caches of instructions, address translation, textures, compression, other programs.
- GPUs other than the H200: sizes are published, behaviour is taken to be the H200's.
- Launches of more than two million accesses a line: a part of the caches' sets stands for all.

## Every launch

Rates in per cent, bytes in millions.

| kernel | size | L1 rec. | mod. | L2 rec. | mod. | read rec. | mod. | written rec. | mod. |
| --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: |
"""


@dataclass(frozen=True, slots=True)
class Compared:
    """A launch with the counters of an H200 and those of the model."""

    case: CacheCase
    size: int
    metrics: dict[str, float]
    found: CacheCounters

    @property
    def l1(self) -> tuple[float, float] | None:
        """Return hit rates of L1 in per cent, recorded and modelled; None without loads."""
        requested = self._sum("l1tex__t_sectors_pipe_lsu_mem_{}_op_ld.sum", ("global", "local"))
        hits = self._sum("l1tex__t_sectors_pipe_lsu_mem_{}_op_ld_lookup_hit.sum", ("global", "local"))
        rate = self.found.l1_hit_rate
        return None if rate is None or not requested else (100 * hits / requested, 100 * rate)

    @property
    def l2(self) -> tuple[float, float]:
        """Return hit rates of L2 in per cent, recorded and modelled."""
        name = "lts__t_sectors_srcunit_tex{}.sum"
        rate = self.metrics[name.format("_lookup_hit")] / self.metrics[name.format("")]
        return 100 * rate, 100 * (self.found.l2_hit_rate or 0.0)

    @property
    def read(self) -> tuple[float, float]:
        """Return bytes from memory, recorded and modelled."""
        return self.metrics["dram__bytes_read.sum"], float(self.found.dram_read_bytes)

    @property
    def written(self) -> tuple[float, float]:
        """Return bytes to memory, recorded and modelled."""
        return self.metrics["dram__bytes_write.sum"], float(self.found.dram_write_bytes)

    def _sum(self, name: str, parts: Sequence[str]) -> float:
        return sum(self.metrics[name.format(part)] for part in parts)


def recorded() -> dict[str, Any]:
    """The recording that ships with the tests."""
    return dict(json.loads(RECORDING.read_text(encoding="utf-8")))


def modelled(case: CacheCase, size: int, state: State = "cold") -> CacheCounters:
    """Return the modelled counters of a launch; for ``"warm"`` those of the second of two."""
    case_launch = case.launch(size)
    launch = Launch.of(
        KernelSource(case.kernel, code()),
        case_launch.grid,
        case_launch.block,
        case_launch.arguments(session.cp()),
    )
    if state == "warm":
        session.backend().observe(launch, Counters())
    counters = session.backend().observe(launch, Counters(state)).caches
    return cast(CacheCounters, counters)


def compare(state: State = "cold", cases: Iterable[CacheCase] = CASES) -> list[Compared]:
    """Every launch that was recorded in a state, beside the model's."""
    data = recorded()
    names = data["metrics" if state == "cold" else "warm_metrics"]
    return [
        Compared(case, size, dict(zip(names, rows[state], strict=True)), modelled(case, size, state))
        for case in cases
        for size in case.sizes
        if state in (rows := data["kernels"].get(case.kernel, {}).get(str(size), {}))
    ]


def points(pair: tuple[float, float] | None) -> float | None:
    """Return the difference of two rates in percentage points."""
    return None if pair is None else abs(pair[1] - pair[0])


def ratio(pair: tuple[float, float], smallest_bytes: float) -> float | None:
    """Return by how many per cent the larger number of bytes exceeds the smaller; None for few bytes."""
    if max(pair) < smallest_bytes:
        return None
    return 100 * (max(pair) / max(min(pair), 1.0) - 1)


def _scores(rows: Sequence[Compared]) -> str:
    lines = []
    errors: tuple[tuple[str, str, Callable[[Compared], float | None]], ...] = (
        ("L1 hit rate", " points", lambda row: points(row.l1)),
        ("L2 hit rate", " points", lambda row: points(row.l2)),
        ("bytes read from memory", " %", lambda row: ratio(row.read, READ_BYTES)),
        ("bytes written to memory", " %", lambda row: ratio(row.written, WRITTEN_BYTES)),
    )
    for name, unit, error_of in errors:
        for title, selected in (("", rows), (", held out", [row for row in rows if row.case.held_out])):
            sorted_errors = sorted(error for row in selected if (error := error_of(row)) is not None)
            figures = (
                sorted_errors[len(sorted_errors) // 2],
                sorted_errors[math.ceil(0.9 * len(sorted_errors)) - 1],
                sorted_errors[-1],
            )
            cells = " | ".join(f"{figure:,.1f}{unit}" for figure in figures)
            lines.append(f"| {name}{title} | {len(sorted_errors)} | {cells} |")
    return "\n".join(lines)


def card(rows: Sequence[Compared], warm: Sequence[Compared]) -> str:
    """Return the card's text."""
    kernels = {row.case.kernel: row.case for row in rows}
    held_out_count = sum(case.held_out for case in kernels.values())
    text = HEAD.format(
        count=len(rows),
        kernels=len(kernels),
        fitted=len(kernels) - held_out_count,
        held=held_out_count,
        late=sum(case.kernel in LATE for case in kernels.values()),
        scores=_scores(rows),
        read=READ_BYTES,
        written=WRITTEN_BYTES,
        warm_count=len(warm),
        warm=f"{sorted(points(row.l2) or 0.0 for row in warm)[len(warm) // 2]:.1f}",
    )
    for row in rows:
        mark = "**" if row.case.kernel in LATE else "*" if row.case.held_out else ""
        rates = [("–", "–") if pair is None else tuple(f"{x:.1f}" for x in pair) for pair in (row.l1, row.l2)]
        sizes = [tuple(f"{x / 1e6:.2f}" for x in pair) for pair in (row.read, row.written)]
        cells = [cell for pair in (*rates, *sizes) for cell in pair]
        text += f"| {row.case.kernel}{mark} | {row.size} | {' | '.join(cells)} |\n"
    return text


def main(arguments: Sequence[str] | None = None) -> int:
    """Write the card; the result is the process's exit status."""
    parser = argparse.ArgumentParser(prog="python -m tools.timing.caches", description=__doc__)
    parser.parse_args(arguments)
    session.use_device("virtual:H200")
    CARD.write_text(card(compare(), compare("warm")), encoding="utf-8")
    print(CARD)
    return 0


if __name__ == "__main__":
    sys.exit(main())
