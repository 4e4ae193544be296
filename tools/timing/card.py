"""The model card: errors of the modelled clock by kernel; ``python -m tools.timing.card``."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tools.timing import compare
from tools.timing.compare import Compared, Score, score
from tools.timing.launches import LAUNCHES

CARD = Path(__file__).resolve().parents[2] / "virtualgpu" / "model" / "MODEL_CARD.md"
GPUS = {"h100": "H100", "h200": "H200"}

HEAD = """# How far the modelled clock can be believed

Made by `python -m tools.timing.card`; do not edit. Every time here is *recorded* on a GPU or *modelled* by
the virtual one; nothing is measured on your machine.

The clock is calibrated with {calibrating} launches recorded on an H100 and an H200 (`tools/timing`), and
judged by {kept} others, of {families} families that had no part in it. An error of 10 % says that the longer
of the two times is 1.1 times the shorter.

## The goals, and what was reached

{goals}

Order: of two kernels whose recorded times differ by 15 % or more, which is faster. Cold: a memory set four
times as large as L2 ran in between.

## Where the recordings are from

{origins}

Kernel times are the distance of the same launch in a CUDA graph, so that launching does not count, with warm
caches; cold ones are between two events, an empty kernel's taken off. Copies are between two events in a
stream that is kept busy, pageable ones in a row.

## What is not modelled

- Lanes and blocks that disturb each other by chance: compare-and-swap loops get a rule of thumb, locks none.
- Clocks below boost (power, heat), other programs on the GPU, ECC, page faults of its own memory, TLBs.
- Which SM and which part of L2 are near each other; L2 keeps whole arrays or does not.
- Machine code: PTX is taken for what ptxas usually makes of it. What it keeps in registers, and how far it
  moves loads, is guessed; tensor cores are priced by a rule of thumb.
- The host: launches cost what they cost on one recorded host (`virtualgpu/model/cost/host.py`). Pageable
  copies of more than 16 MiB differ by a factor of 2 between hosts and from run to run.
- GPUs other than these two follow from published figures, and have not been compared.
- Several GPUs: copies and all-reduces are fitted to records of two H200, NVLink SHARP (NVLS) off. Four H200
  were held out: NCCL's all-reduce, and rings, trees and stars as CUDA graphs, differ from the model by less
  than 1.4 times from 4 KiB to 256 MiB (`tests/session/test_collective.py`). NCCL's other calls and more GPUs
  are extrapolated; its choice of algorithms (trees, NVLS), its set-up and its graphs are left out.
- CuPy's own kernels are priced by their traffic and arithmetic only, not by their blocks.

The kept launches are no clean test. Their recordings had been seen before the model was built, and their
scores were looked at while it grew: the rule for compare-and-swap came in because of the worst of them,
though its constant comes from another launch, and additions to one float or to a few moved from them to
those that calibrate. Recorded workloads of more than 20 us (`tests/recordings`) took part in the calibration,
too. Expect somewhat worse of a kernel that nobody has tried.
"""


def card(modelled_times: dict[str, dict[str, tuple[float, float]]]) -> str:
    """Return the card's text from the modelled times of all launches."""
    data = {gpu: compare.recorded(gpu) for gpu in GPUS}
    warm_and_cold = {gpu: compare.kernels(data[gpu], modelled_times[gpu]) for gpu in GPUS}
    warm = {gpu: rows[0] for gpu, rows in warm_and_cold.items()}
    families = {timed.family for timed in LAUNCHES if timed.is_kept}
    parts = [
        HEAD.format(
            calibrating=sum(not row.is_kept for row in warm["h200"]),
            kept=sum(row.is_kept for row in warm["h200"]),
            families=len(families),
            goals=_goals(data, warm_and_cold),
            origins="\n".join(_origin(GPUS[gpu], data[gpu]) for gpu in GPUS),
        )
    ]
    for title, is_kept in (("Launches kept from calibration", True), ("Launches that calibrate", False)):
        parts.append(f"## {title}\n\n" + _launches(warm, is_kept))
    parts.append("## Copies and memory sets\n\n" + _copies(data))
    return "\n".join(parts)


def kept_scores(modelled_times: dict[str, dict[str, tuple[float, float]]]) -> dict[str, Score]:
    """Return the scores of the launches kept from calibration, by GPU, with warm caches."""
    return {
        gpu: score(
            [row for row in compare.kernels(compare.recorded(gpu), modelled_times[gpu])[0] if row.is_kept]
        )
        for gpu in GPUS
    }


def _goals(data: dict[str, Any], warm_and_cold: dict[str, tuple[list[Compared], list[Compared]]]) -> str:
    lines = ["| | goal | H100 | H200 |", "| --- | --- | --- | --- |"]
    scores: dict[str, dict[str, Score]] = {}
    for gpu, (warm, cold_times) in warm_and_cold.items():
        scores[gpu] = {
            "kept": score([row for row in warm if row.is_kept]),
            "calibrating": score([row for row in warm if not row.is_kept]),
            "cold": score([row for row in cold_times if row.is_kept]),
            "copies": score(compare.copies(gpu, data[gpu])),
            "graphs": score(compare.graphs(data[gpu])),
        }

    def row(title: str, goal: str, group: str, form: str) -> None:
        cells = []
        for gpu in GPUS:
            value = scores[gpu][group]
            cells.append(form.format(s=value, worst=1 + value.worst))
        lines.append(f"| {title} | {goal} | {cells[0]} | {cells[1]} |")

    row("kept kernels, median error", "12 %", "kept", "{s.median:.1%}")
    row("kept kernels, nine of ten within", "", "kept", "{s.ninth_decile:.0%}")
    row("kept kernels, worst", "1.6x", "kept", "{worst:.2f}x")
    row("kept kernels, order right", "97 %", "kept", "{s.ranked:.1%}")
    row("calibrating kernels, median error", "", "calibrating", "{s.median:.1%}")
    row("calibrating kernels, worst", "", "calibrating", "{worst:.2f}x")
    row("kept kernels, cold, median error", "", "cold", "{s.median:.1%}")
    row("copies and sets, median error", "8 %", "copies", "{s.median:.1%}")
    row("copies and sets, nine of ten within", "", "copies", "{s.ninth_decile:.0%}")
    row("copies and sets, worst", "1.3x", "copies", "{worst:.2f}x")
    row("graphs of 10 to 1,000 nodes, worst error", "15 %", "graphs", "{s.worst:.1%}")
    return "\n".join(lines)


def _origin(title: str, data: dict[str, Any]) -> str:
    versions = data["versions"]
    return (
        f"- {title}: {data['device']}, {data['date']}, driver {versions['driver']}, CuPy {versions['CuPy']}, "
        f"NVRTC {versions['NVRTC']}, {data['clock_mhz'][0]:.0f} MHz while it worked."
    )


def _launches(warm: dict[str, list[Compared]], is_kept: bool) -> str:
    lines = [
        "| launch | H100 recorded, us | modelled | ratio | H200 recorded, us | modelled | ratio |",
        "| --- | ---: | ---: | ---: | ---: | ---: | ---: |",
    ]
    for h100_row, h200_row in zip(*(warm[gpu] for gpu in GPUS), strict=True):
        if h100_row.is_kept == is_kept:
            cells = " | ".join(
                f"{row.recorded_ns / 1000:,.2f} | {row.modelled_ns / 1000:,.2f} | {row.ratio:.2f}"
                for row in (h100_row, h200_row)
            )
            lines.append(f"| {h100_row.name} | {cells} |")
    return "\n".join(lines) + "\n"


def _copies(data: dict[str, Any]) -> str:
    lines = [
        "| what | H100 recorded, us | modelled | ratio | H200 recorded, us | modelled | ratio |",
        "| --- | ---: | ---: | ---: | ---: | ---: | ---: |",
    ]
    rows_by_gpu = [[*compare.copies(gpu, data[gpu]), *compare.graphs(data[gpu])] for gpu in GPUS]
    for h100_row, h200_row in zip(*rows_by_gpu, strict=True):
        cells = " | ".join(
            f"{row.recorded_ns / 1000:,.2f} | {row.modelled_ns / 1000:,.2f} | {row.ratio:.2f}"
            for row in (h100_row, h200_row)
        )
        lines.append(f"| {h100_row.name} | {cells} |")
    return "\n".join(lines) + "\n"


def main(arguments: Sequence[str] | None = None) -> int:
    """Write the card."""
    parser = argparse.ArgumentParser(prog="tools.timing.card", description=(__doc__ or "").splitlines()[0])
    parser.parse_args(arguments)
    modelled_times = compare.modelled([*GPUS])
    CARD.write_text(card(modelled_times), encoding="utf-8")
    for gpu, value in kept_scores(modelled_times).items():
        print(f"{GPUS[gpu]}, kept: {value}")
    print(CARD)
    return 0


if __name__ == "__main__":
    sys.exit(main())
