"""The model card: errors of the modelled clock by kernel; ``python -m tools.timing.card``."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tools.timing import compare
from tools.timing.compare import Compared, Score, score
from tools.timing.fresh_launches import make_fresh_programs
from tools.timing.launches import LAUNCHES

CARD = Path(__file__).resolve().parents[2] / "virtualgpu" / "model" / "MODEL_CARD.md"
GPUS = {"h100": "H100", "h200": "H200"}
TENSOR = "h200_tensor"
FRESH = "h200_fresh"

HEAD = """# Accuracy of the modelled times

`python -m tools.timing.card` writes this page; do not edit it. Each time is either *recorded* on a GPU or
*modelled* by the virtual GPU. No time is measured on your computer.

The time model was calibrated with {calibrating} launches that were recorded on an H100 and an H200
(`tools/timing`). It was then tested with {kept} held-out launches. They belong to {families} families of
kernels that were not used for the calibration. An error of 10 % means that the longer of the two times is
1.1 times the shorter one.

## Goals and results

{goals}

*Order right* is the share of kernel pairs whose faster kernel the model predicts correctly. It counts pairs
whose recorded times differ by 15 % or more. *Cold* means that a memory set four times as large as L2 ran
before the launch. All other kernels were measured with warm caches.

## Origin of the recordings

{origins}

A recorded kernel time is the time between two successive launches of the same kernel in a CUDA graph. It
therefore does not include the time that the host needs for a launch. Cold kernels were measured between two
events, and the time of an empty kernel was subtracted. Copies were measured between two events in a stream
that was kept busy, and pageable copies were measured one directly after the other.

## What is not modelled

- **Contention by chance.** The time of a compare-and-swap loop is only a rough estimate. The time that
  threads wait for a lock is not modelled.
- **Conditions of the GPU.** Clocks below the boost clock (because of power or heat), other programs on the
  GPU, ECC, page faults of device memory, and TLBs.
- **Distances on the chip.** The model does not know which SM is close to which part of L2. It assumes that
  L2 contains an array either completely or not at all.
- **Machine code.** The model assumes that ptxas translates PTX in its usual way. It estimates which values
  stay in registers and how far ptxas moves loads. The time of tensor cores is a rough estimate.
- **Other hosts.** The time that the host needs for a launch is taken from one recorded host
  (`virtualgpu/model/cost/host.py`). Pageable copies of more than 16 MiB differ by a factor of 2 between
  hosts, and between runs on the same host.
- **Other GPUs.** The times of other GPUs are computed from published numbers and were not compared with
  recordings.
- **Several GPUs.** The times of copies and all-reduces were fitted to recordings of two H200 without NVLink
  SHARP (NVLS). Recordings of four H200 were held out. For 4 KiB to 256 MiB, the model differs from them by
  a factor of less than 1.4, both for NCCL's all-reduce and for rings, trees and stars as CUDA graphs
  (`tests/session/test_collective.py`). Other calls of NCCL and more GPUs are extrapolated. NCCL's choice of
  algorithms (trees, NVLS), its initialization and its graphs are not modelled.
- **CuPy's own kernels.** Their times are computed from their memory traffic and arithmetic only, and not
  from their blocks.

The held-out launches are not a completely independent test. Their recordings were known before the model
was built, and their errors were examined while it was developed. The rule for compare-and-swap was added
because of the held-out launch with the largest error, but the constant in this rule comes from another
launch. Launches that add to one float, or to a few floats, were moved from the held-out launches to the
calibration. Recorded workloads of more than 20 us (`tests/recordings`) were also used for the calibration.
Expect a somewhat larger error for a new kernel.
"""


def make_card(modelled_times: dict[str, dict[str, tuple[float, float]]]) -> str:
    """Return the card's text from the modelled times of all launches."""
    recording_by_gpu = {gpu: compare.load_recording(gpu) for gpu in GPUS}
    warm_and_cold = {gpu: compare.compare_kernels(recording_by_gpu[gpu], modelled_times[gpu]) for gpu in GPUS}
    warm_rows_by_gpu = {gpu: rows[0] for gpu, rows in warm_and_cold.items()}
    families = {timed.family for timed in LAUNCHES if timed.is_kept}
    sections = [
        HEAD.format(
            calibrating=sum(not row.is_kept for row in warm_rows_by_gpu["h200"]),
            kept=sum(row.is_kept for row in warm_rows_by_gpu["h200"]),
            families=len(families),
            goals=_format_goals(recording_by_gpu, warm_and_cold),
            origins="\n".join(_format_origin(GPUS[gpu], recording_by_gpu[gpu]) for gpu in GPUS),
        )
    ]
    for title, is_kept in (("Held-out launches", True), ("Launches used for the calibration", False)):
        sections.append(f"## {title}\n\n" + _format_launches(warm_rows_by_gpu, is_kept))
    sections.append("## Copies and memory sets\n\n" + _format_copies(recording_by_gpu))
    return "\n".join(sections)


TENSOR_HEAD = """## Tensor cores, asynchronous copies and chains of addresses

Recorded on an {device} ({date}, driver {driver}). No H100 was available. Its chip is
the same (GH100), with the same SM and boost clock, so the model uses the same constants for it; they were not
compared. For other GPUs the model uses the published rate of their tensor cores
(`virtualgpu/model/tensor_rates.py`) with the latency in steps and the overlap of the H200. For Blackwell it
assumes that ``mma.sync`` reaches the same share of the rate as on Hopper.

The constants come from {probes} launches of small kernels (`tensor_probes.cu`, `copy_probes.cu` and
`memory_probes.cu` in `tools/timing/kernels`). The {programs} programs below are the development set. No
constant was fitted to their times. However, their errors, their counters in Nsight Compute and their machine
code were examined in order to find mechanisms that the model lacked. One constant, the number of stores that
a load passes (`MAX_PASSED_STORES`), comes from such machine code and from launches that were held out above.
Two others come from machine code, too: the number of instructions that another one passes (`REORDER_WINDOW`)
and the number of sums from which ptxas loads factors in advance (`MANY_SUM_REGISTERS`). `REORDER_WINDOW` was
chosen among values that fit the small kernels equally well by the errors of these programs. The result of
each program was compared with NumPy's.

The largest errors have these causes. The model does not know how many registers ptxas uses for loads from
shared memory, so it is too fast for the attention of notebook 19 with several lanes. It estimates which
loads wait for lines that another warp has requested, and is therefore too slow for kernels whose warps read
different lines. Of the small kernels, stores of every second sector miss most: the model takes them for
sectors of different lines.

| | goal | H200 |
| --- | --- | --- |
| programs, median error | 10 % | {kept.median:.1%} |
| programs, nine of ten within | | {kept.ninth_decile:.0%} |
| programs, worst | 1.6x | {worst:.2f}x |
| programs, order right | | {kept.ranked:.1%} |
| small kernels, median error | | {calibrating.median:.1%} |
| small kernels, nine of ten within | | {calibrating.ninth_decile:.0%} |
| small kernels, worst | | {calibrating_worst:.2f}x |
| chains by 1 to 32 lanes, worst | | {chains:.2f}x |
| programs, cold, median error | | {cold.median:.1%} |

| program | H200 recorded, us | modelled | ratio |
| --- | ---: | ---: | ---: |
{rows}
"""


def make_tensor_rows(modelled_times: dict[str, tuple[float, float]]) -> tuple[list[Compared], list[Compared]]:
    """Return the recorded and modelled times of tensor cores, copies and chains, warm and cold."""
    return compare.compare_kernels(
        compare.load_recording(TENSOR), modelled_times, compare.list_tensor_launches()
    )


def make_tensor_section(modelled_times: dict[str, tuple[float, float]]) -> str:
    """Return the card's section on tensor cores, asynchronous copies and chains."""
    recording = compare.load_recording(TENSOR)
    warm_rows, cold_rows = make_tensor_rows(modelled_times)
    kept_rows = [row for row in warm_rows if row.is_kept]
    calibration_rows = [row for row in warm_rows if not row.is_kept]
    kept_score = score(kept_rows)
    return TENSOR_HEAD.format(
        device=recording["device"],
        date=recording["date"],
        driver=recording["versions"]["driver"],
        probes=len(calibration_rows),
        programs=len(kept_rows),
        kept=kept_score,
        worst=1 + kept_score.worst,
        calibrating=score(calibration_rows),
        calibrating_worst=1 + score(calibration_rows).worst,
        chains=1 + score([row for row in calibration_rows if row.name.startswith("chase")]).worst,
        cold=score([row for row in cold_rows if row.is_kept]),
        rows=_format_programs(kept_rows),
    )


FRESH_HEAD = """## Programs written after the development of the model

These {programs} programs test the model once more (`tools/timing/fresh_launches.py`). They multiply matrices
of several formats with tensor cores, compute attention and convolutions, copy data asynchronously, and follow
chains of addresses. Their author had not read the model's code, and knew its errors only from a summary. The
programs were recorded before any of them was compared with the model. The result of each program was compared
with NumPy's. Recorded on an {device} ({date}, driver {driver}).

In the first comparison, the median error was 13.6 % and the largest error was 15.0x. The largest errors
belonged to the two products that are split over k and added with atomic operations: the model assumed that
atomic operations change the smallest array of a kernel. It now uses the array that they change, so these two
programs no longer test it independently. Most other products are modelled 10 % to 30 % too short.

| | goal | H200 |
| --- | --- | --- |
| median error | 10 % | {warm.median:.1%} |
| nine of ten within | | {warm.ninth_decile:.0%} |
| worst | 1.6x | {worst:.2f}x |
| order right | | {warm.ranked:.1%} |
| cold, median error | | {cold.median:.1%} |
| cold, worst | | {cold_worst:.2f}x |

| program | H200 recorded, us | modelled | ratio |
| --- | ---: | ---: | ---: |
{rows}
"""


def make_fresh_section(modelled_times: dict[str, tuple[float, float]]) -> str:
    """Return the card's section on the programs that were written after the development of the model."""
    recording = compare.load_recording(FRESH)
    warm_rows, cold_rows = compare.compare_kernels(recording, modelled_times, make_fresh_programs())
    return FRESH_HEAD.format(
        programs=len(warm_rows),
        device=recording["device"],
        date=recording["date"],
        driver=recording["versions"]["driver"],
        warm=score(warm_rows),
        worst=1 + score(warm_rows).worst,
        cold=score(cold_rows),
        cold_worst=1 + score(cold_rows).worst,
        rows=_format_programs(warm_rows),
    )


def _format_programs(compared: Sequence[Compared]) -> str:
    return "\n".join(
        f"| {row.name} | {row.recorded_ns / 1000:,.2f} | {row.modelled_ns / 1000:,.2f} | {row.ratio:.2f} |"
        for row in compared
    )


def compute_kept_scores(modelled_times: dict[str, dict[str, tuple[float, float]]]) -> dict[str, Score]:
    """Return the warm-cache scores of launches that were not used for calibration, by GPU."""
    return {
        gpu: score(
            [
                row
                for row in compare.compare_kernels(compare.load_recording(gpu), modelled_times[gpu])[0]
                if row.is_kept
            ]
        )
        for gpu in GPUS
    }


def _format_goals(
    data: dict[str, Any], warm_and_cold: dict[str, tuple[list[Compared], list[Compared]]]
) -> str:
    table_lines = ["| | goal | H100 | H200 |", "| --- | --- | --- | --- |"]
    scores: dict[str, dict[str, Score]] = {}
    for gpu, (warm_rows, cold_rows) in warm_and_cold.items():
        scores[gpu] = {
            "kept": score([row for row in warm_rows if row.is_kept]),
            "calibrating": score([row for row in warm_rows if not row.is_kept]),
            "cold": score([row for row in cold_rows if row.is_kept]),
            "copies": score(compare.compare_copies(gpu, data[gpu])),
            "graphs": score(compare.compare_graphs(data[gpu])),
        }

    def row(title: str, goal: str, group: str, form: str) -> None:
        cells = []
        for gpu in GPUS:
            group_score = scores[gpu][group]
            cells.append(form.format(s=group_score, worst=1 + group_score.worst))
        table_lines.append(f"| {title} | {goal} | {cells[0]} | {cells[1]} |")

    row("held-out kernels, median error", "12 %", "kept", "{s.median:.1%}")
    row("held-out kernels, nine of ten within", "", "kept", "{s.ninth_decile:.0%}")
    row("held-out kernels, worst", "1.6x", "kept", "{worst:.2f}x")
    row("held-out kernels, order right", "97 %", "kept", "{s.ranked:.1%}")
    row("calibration kernels, median error", "", "calibrating", "{s.median:.1%}")
    row("calibration kernels, worst", "", "calibrating", "{worst:.2f}x")
    row("held-out kernels, cold, median error", "", "cold", "{s.median:.1%}")
    row("copies and sets, median error", "8 %", "copies", "{s.median:.1%}")
    row("copies and sets, nine of ten within", "", "copies", "{s.ninth_decile:.0%}")
    row("copies and sets, worst", "1.3x", "copies", "{worst:.2f}x")
    row("graphs of 10 to 1,000 nodes, worst error", "15 %", "graphs", "{s.worst:.1%}")
    return "\n".join(table_lines)


def _format_origin(title: str, data: dict[str, Any]) -> str:
    versions = data["versions"]
    return (
        f"- {title}: {data['device']}, {data['date']}, driver {versions['driver']}, CuPy {versions['CuPy']}, "
        f"NVRTC {versions['NVRTC']}, {data['clock_mhz'][0]:.0f} MHz during the recording."
    )


def _format_launches(warm: dict[str, list[Compared]], is_kept: bool) -> str:
    table_lines = [
        "| launch | H100 recorded, us | modelled | ratio | H200 recorded, us | modelled | ratio |",
        "| --- | ---: | ---: | ---: | ---: | ---: | ---: |",
    ]
    for h100_row, h200_row in zip(*(warm[gpu] for gpu in GPUS), strict=True):
        if h100_row.is_kept == is_kept:
            cells_text = " | ".join(
                f"{row.recorded_ns / 1000:,.2f} | {row.modelled_ns / 1000:,.2f} | {row.ratio:.2f}"
                for row in (h100_row, h200_row)
            )
            table_lines.append(f"| {h100_row.name} | {cells_text} |")
    return "\n".join(table_lines) + "\n"


def _format_copies(data: dict[str, Any]) -> str:
    table_lines = [
        "| operation | H100 recorded, us | modelled | ratio | H200 recorded, us | modelled | ratio |",
        "| --- | ---: | ---: | ---: | ---: | ---: | ---: |",
    ]
    rows_by_gpu = [
        [*compare.compare_copies(gpu, data[gpu]), *compare.compare_graphs(data[gpu])] for gpu in GPUS
    ]
    for h100_row, h200_row in zip(*rows_by_gpu, strict=True):
        cells_text = " | ".join(
            f"{row.recorded_ns / 1000:,.2f} | {row.modelled_ns / 1000:,.2f} | {row.ratio:.2f}"
            for row in (h100_row, h200_row)
        )
        table_lines.append(f"| {h100_row.name} | {cells_text} |")
    return "\n".join(table_lines) + "\n"


def main(arguments: Sequence[str] | None = None) -> int:
    """Write the card."""
    parser = argparse.ArgumentParser(prog="tools.timing.card", description=(__doc__ or "").splitlines()[0])
    parser.parse_args(arguments)
    modelled_times = compare.model_times([*GPUS])
    tensor_times = compare.model_times(["h200"], compare.list_tensor_launches())["h200"]
    fresh_times = compare.model_times(["h200"], make_fresh_programs())["h200"]
    sections = (make_card(modelled_times), make_tensor_section(tensor_times), make_fresh_section(fresh_times))
    card_text = "\n".join(sections)
    CARD.write_text(card_text, encoding="utf-8")
    for gpu, kept_score in compute_kept_scores(modelled_times).items():
        print(f"{GPUS[gpu]}, kept: {kept_score}")
    print(CARD)
    return 0


if __name__ == "__main__":
    sys.exit(main())
