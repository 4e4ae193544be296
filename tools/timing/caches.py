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
from tools.corpus.caching import CASES, LATE_KERNELS, CacheCase, read_code
from virtualgpu.protocol import Counters, Launch
from virtualgpu.records import CacheCounters, KernelSource

ROOT = Path(__file__).resolve().parents[2]
CARD = ROOT / "virtualgpu" / "model" / "caches" / "CARD.md"
RECORDING = ROOT / "tests" / "counters" / "data" / "h200_caches.json"
State = Literal["cold", "warm"]
# Bytes from which on a ratio is told.
READ_BYTES = 1_000_000
WRITTEN_BYTES = 4_000_000

HEAD = """# Accuracy of the cache model

`python -m tools.timing.caches` writes this page; do not edit it. Each hit rate and each number of bytes is
either *recorded* with Nsight Compute on an H200 or *modelled* by the virtual H200. No number is measured on
your computer.

The page compares {count} launches of {kernels} kernels (`tools/corpus/caching.py`). The caches were empty
before each launch. The constants of the model were chosen with {fitted} of these kernels. The {held} other
kernels are held out and marked with `*`. Their results were also examined while the model was developed,
except for the {late} kernels with `**`, which were recorded after the model was finished.

## Results

| | launches | median error | nine of ten within | worst |
| --- | ---: | ---: | ---: | ---: |
{scores}

The rates are defined by metrics of Nsight Compute. The L1 hit rate is the share of the sectors loaded from
global and local memory that were in L1: `l1tex__t_sectors_pipe_lsu_mem_*_op_ld_lookup_hit` divided by
`l1tex__t_sectors_pipe_lsu_mem_*_op_ld`. The L2 hit rate is the share of the sectors requested by SMs that
were in L2: `lts__t_sectors_srcunit_tex_lookup_hit` divided by `lts__t_sectors_srcunit_tex`.

The rate that Nsight Compute shows first, `lts__t_sector_hit_rate`, also counts instructions, constants, and
requests between the two parts of L2. For launches of a few microseconds it can exceed 120 %. Bytes are
compared only for launches that read at least {read:,} bytes or write at least {written:,} bytes, because
Nsight Compute itself leaves up to 2.6 million bytes that are still to be written.

Each of {warm_count} launches was also measured with warm caches, as the second of two equal launches. The
median error of the L2 hit rate is then {warm} points. For warm launches, Nsight Compute measures the
counters of L2 in several runs with other work between them, and reports hit rates of up to 116 %. Its
numbers of bytes are those of a cold run, so they are not compared.

## What is not modelled

- **Positions of the SMs.** The model gives blocks to SMs by number. It assumes that six successive SMs are
  next to the same part of L2, and that requests of four successive SMs for the same sectors are combined.
  The number of requests to L2, and the number of lines that both parts of L2 fetch, are therefore right
  only on average. If many SMs share lines at the same time, an H200 has more misses than the model (the
  largest naive matrix multiplication, stencils in three dimensions).
- **Partly written sectors.** The model uses a simple rule: each set of L2 keeps four pieces of 64 bytes
  with such sectors. Other partly written sectors are read, completed and written back.
- **Stores in L1.** The model does not compute whether a store finds its line in L1. Nsight Compute's own L1
  hit rate counts this.
- **Arrays that just fit into L1 or L2.** A difference of one per cent of the cache size decides whether
  such an array stays in the cache.
- **The constant cache.** The model counts how many different words a warp requests, but no hits.
- **Other parts.** Instruction caches, address translation, textures, compression, and other programs.
- **Other GPUs.** Their cache sizes are published, and their behaviour is assumed to be that of the H200.
- **Very large launches.** If a source line makes more than two million accesses, the model simulates only
  some of the sets of the caches.

## All launches

Rates are in per cent, and bytes are in millions.

| kernel | size | L1 rec. | mod. | L2 rec. | mod. | read rec. | mod. | written rec. | mod. |
| --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: |
"""


@dataclass(frozen=True, slots=True)
class Compared:
    """A launch with its recorded counters of an H200 and the counters of the model."""

    case: CacheCase
    size: int
    metrics: dict[str, float]
    found: CacheCounters

    @property
    def l1(self) -> tuple[float, float] | None:
        """Return hit rates of L1 in per cent, recorded and modelled; None without loads."""
        requested_sectors = self._sum("l1tex__t_sectors_pipe_lsu_mem_{}_op_ld.sum", ("global", "local"))
        hit_sectors = self._sum("l1tex__t_sectors_pipe_lsu_mem_{}_op_ld_lookup_hit.sum", ("global", "local"))
        modelled_rate = self.found.l1_hit_rate
        return (
            None
            if modelled_rate is None or not requested_sectors
            else (100 * hit_sectors / requested_sectors, 100 * modelled_rate)
        )

    @property
    def l2(self) -> tuple[float, float]:
        """Return hit rates of L2 in per cent, recorded and modelled."""
        metric_format = "lts__t_sectors_srcunit_tex{}.sum"
        recorded_rate = (
            self.metrics[metric_format.format("_lookup_hit")] / self.metrics[metric_format.format("")]
        )
        return 100 * recorded_rate, 100 * (self.found.l2_hit_rate or 0.0)

    @property
    def read(self) -> tuple[float, float]:
        """Return bytes from memory, recorded and modelled."""
        return self.metrics["dram__bytes_read.sum"], float(self.found.dram_read_bytes)

    @property
    def written(self) -> tuple[float, float]:
        """Return bytes to memory, recorded and modelled."""
        return self.metrics["dram__bytes_write.sum"], float(self.found.dram_write_bytes)

    def _sum(self, name: str, parts: Sequence[str]) -> float:
        return sum(self.metrics[name.format(name_part)] for name_part in parts)


def load_recording() -> dict[str, Any]:
    """The recording that ships with the tests."""
    return dict(json.loads(RECORDING.read_text(encoding="utf-8")))


def model_caches(case: CacheCase, size: int, state: State = "cold") -> CacheCounters:
    """Return the modelled counters of a launch, or of its repetition for ``"warm"``."""
    case_launch = case.launch(size)
    launch = Launch.of(
        KernelSource(case.kernel, read_code()),
        case_launch.grid,
        case_launch.block,
        case_launch.arguments(session.cp()),
    )
    if state == "warm":
        session.backend().observe(launch, Counters())
    counters = session.backend().observe(launch, Counters(state)).caches
    return cast(CacheCounters, counters)


def compare(state: State = "cold", cases: Iterable[CacheCase] = CASES) -> list[Compared]:
    """Return every launch that was recorded in a state, with the recorded and the modelled counters."""
    recording = load_recording()
    metric_names = recording["metrics" if state == "cold" else "warm_metrics"]
    return [
        Compared(
            case,
            size,
            dict(zip(metric_names, values_by_state[state], strict=True)),
            model_caches(case, size, state),
        )
        for case in cases
        for size in case.sizes
        if state in (values_by_state := recording["kernels"].get(case.kernel, {}).get(str(size), {}))
    ]


def subtract_rates(pair: tuple[float, float] | None) -> float | None:
    """Return the difference of two rates in percentage points."""
    return None if pair is None else abs(pair[1] - pair[0])


def compute_ratio(pair: tuple[float, float], smallest_bytes: float) -> float | None:
    """Return by how many per cent the larger number of bytes exceeds the smaller; None for few bytes."""
    if max(pair) < smallest_bytes:
        return None
    return 100 * (max(pair) / max(min(pair), 1.0) - 1)


def _score_rows(rows: Sequence[Compared]) -> str:
    score_lines = []
    error_columns: tuple[tuple[str, str, Callable[[Compared], float | None]], ...] = (
        ("L1 hit rate", " points", lambda row: subtract_rates(row.l1)),
        ("L2 hit rate", " points", lambda row: subtract_rates(row.l2)),
        ("bytes read from memory", " %", lambda row: compute_ratio(row.read, READ_BYTES)),
        ("bytes written to memory", " %", lambda row: compute_ratio(row.written, WRITTEN_BYTES)),
    )
    for name, unit, error_of in error_columns:
        for title, selected_rows in (("", rows), (", held out", [row for row in rows if row.case.held_out])):
            sorted_errors = sorted(error for row in selected_rows if (error := error_of(row)) is not None)
            error_figures = (
                sorted_errors[len(sorted_errors) // 2],
                sorted_errors[math.ceil(0.9 * len(sorted_errors)) - 1],
                sorted_errors[-1],
            )
            cells_text = " | ".join(f"{figure:,.1f}{unit}" for figure in error_figures)
            score_lines.append(f"| {name}{title} | {len(sorted_errors)} | {cells_text} |")
    return "\n".join(score_lines)


def make_card(rows: Sequence[Compared], warm: Sequence[Compared]) -> str:
    """Return the card's text."""
    case_by_kernel = {row.case.kernel: row.case for row in rows}
    held_out_count = sum(case.held_out for case in case_by_kernel.values())
    card_text = HEAD.format(
        count=len(rows),
        kernels=len(case_by_kernel),
        fitted=len(case_by_kernel) - held_out_count,
        held=held_out_count,
        late=sum(case.kernel in LATE_KERNELS for case in case_by_kernel.values()),
        scores=_score_rows(rows),
        read=READ_BYTES,
        written=WRITTEN_BYTES,
        warm_count=len(warm),
        warm=f"{sorted(subtract_rates(row.l2) or 0.0 for row in warm)[len(warm) // 2]:.1f}",
    )
    for row in rows:
        footnote_mark = "**" if row.case.kernel in LATE_KERNELS else "*" if row.case.held_out else ""
        rate_pairs = [
            ("–", "–") if measured_pair is None else tuple(f"{x:.1f}" for x in measured_pair)
            for measured_pair in (row.l1, row.l2)
        ]
        megabyte_pairs = [
            tuple(f"{x / 1e6:.2f}" for x in measured_pair) for measured_pair in (row.read, row.written)
        ]
        cells = [cell for measured_pair in (*rate_pairs, *megabyte_pairs) for cell in measured_pair]
        card_text += f"| {row.case.kernel}{footnote_mark} | {row.size} | {' | '.join(cells)} |\n"
    return card_text


def main(arguments: Sequence[str] | None = None) -> int:
    """Write the card; the result is the process's exit status."""
    parser = argparse.ArgumentParser(prog="python -m tools.timing.caches", description=__doc__)
    parser.parse_args(arguments)
    session.use_device("virtual:H200")
    CARD.write_text(make_card(compare(), compare("warm")), encoding="utf-8")
    print(CARD)
    return 0


if __name__ == "__main__":
    sys.exit(main())
