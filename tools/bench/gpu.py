"""``gpulab bench --gpu``: the teaching kernels beside CUDA's own libraries, on the GPU of this machine.

All ratios are taken in one run on one GPU. What is compared takes turns, so that whatever the clock does
falls on all of it, each figure is a median between two events, results are checked before anything is timed,
and arrays are many times as large as L2.
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import gpulab as gl
from gpulab import session
from gpulab.views.tables import Table
from gpulab_course.content import kernels
from virtualgpu.errors import GpulabError
from virtualgpu.records import Provenance

SIZES: Mapping[str, tuple[tuple[int, ...], ...]] = {
    "copy": ((1 << 28,),),
    "reduction": ((1 << 28,),),
    "transpose": ((1 << 14, 1 << 14),),
    "scan": ((1 << 28,),),
    "histogram": ((1 << 30,),),
    "stencil": ((1 << 14, 1 << 14),),
    "softmax": ((1 << 18, 1024),),
    "layer_norm": ((1 << 18, 1024),),
    "sgemm": ((4096, 4096, 4096), (8192, 8192, 8192)),
    "tensor_cores": ((4096, 4096, 4096), (8192, 8192, 8192)),
}
# For trials on a virtual GPU.
SMALL_SIZES: Mapping[str, tuple[int, ...]] = {
    "reduction": (1 << 14,),
    "histogram": (1 << 14,),
    "scan": (1 << 15,),
}
# What the best rung is to reach of what it is compared with.
TARGET_SHARES = {"copy": 0.92, "reduction": 0.92, "transpose": 0.88, "sgemm": 0.80}
# With checks in double precision beside it, the largest array takes as much.
ROOM_BYTES = 24 << 30
ROUNDS = 11


@dataclass(frozen=True, slots=True)
class Row:
    """Result of one kernel at one size.

    ``rate`` is in ``unit``: GB/s of the least bytes that must move, or TFLOP/s. ``ratio`` is ``rate`` over
    the rate of the kernel ``against``, and ``target`` its lower limit.
    """

    ladder: str
    kernel: str
    size: tuple[int, ...]
    median_ms: float
    rate: float
    unit: str
    against: str = ""
    ratio: float | None = None
    target: float | None = None

    @property
    def verdict(self) -> str:
        """Return ``ok`` or ``slow``, or an empty string if there is no target."""
        if self.target is None or self.ratio is None:
            return ""
        return "ok" if self.ratio >= self.target else "slow"


def list_sizes(ladder: str, free_bytes: int) -> list[tuple[int, ...]]:
    """Return the sizes to measure, which are smaller or fewer if there is little free memory."""
    if free_bytes >= ROOM_BYTES:
        return [*SIZES[ladder]]
    if ladder in ("sgemm", "tensor_cores"):
        return [SIZES[ladder][0]]
    return [(size[0] // 8, *size[1:]) for size in SIZES[ladder]]


def make_library_calls(ladder: str, example: kernels.Example) -> dict[str, Callable[[], Any]]:
    """Return calls of CUDA libraries that compute the same result from the example's arrays, by name."""
    cp, (*inputs, output) = session.cp(), example.arrays
    if ladder in ("copy", "reduction", "transpose", "softmax", "layer_norm", "stencil"):
        copy_target = cp.empty_like(inputs[0])
        return {
            "cudaMemcpy": lambda: copy_target.data.copy_from_device_async(inputs[0].data, copy_target.nbytes)
        }
    if ladder in ("sgemm", "tensor_cores"):
        product_array = cp.empty(output.shape, inputs[0].dtype)
        return {"cuBLAS": lambda: cp.matmul(*inputs, out=product_array)}
    if ladder == "scan":
        scan_input = inputs[0].copy()
        cub = getattr(cp.cuda, "cub", None)
        if cub is None:
            return {"cumsum": lambda: cp.cumsum(inputs[0], dtype=scan_input.dtype, out=scan_input)}
        return {"CUB": lambda: cub.device_scan(scan_input, cub.CUPY_CUB_CUMSUM)}  # in place
    return {}


def measure_medians_ms(calls: Sequence[Callable[[], Any]], rounds: int, budget_s: float) -> list[float]:
    """Time calls in turn, for at least two rounds, and return their medians. Stop after `budget_s`."""
    cp = session.cp()
    begin_event = cp.cuda.Event()
    end_event = cp.cuda.Event()
    times_ms: list[list[float]] = [[] for _ in calls]
    start_s = time.perf_counter()
    for round_number in range(rounds):
        if round_number > 1 and time.perf_counter() - start_s > budget_s:
            break
        for launch, call_times in zip(calls, times_ms, strict=True):
            begin_event.record()
            launch()
            end_event.record()
            end_event.synchronize()
            call_times.append(cp.cuda.get_elapsed_time(begin_event, end_event))
    return [statistics.median(call_times) for call_times in times_ms]


def check(ladder: str, name: str, example: kernels.Example, work: Callable[[], Any]) -> None:
    """Run a kernel once and compare its result with the expected one.

    Raises
    ------
    GpulabError
        If the result is wrong, so that its time would mean nothing.
    """
    example.arrays[-1].fill(0)
    work()
    result_error = example.error()
    if not result_error <= example.tolerance:
        raise GpulabError(f"{name} of {ladder} is wrong by {result_error:g}, so its time means nothing.")


def measure(
    ladder: kernels.KernelSeries, size: tuple[int, ...], rounds: int, *, all_rungs: bool
) -> list[Row]:
    """Time the best or all kernels of a series, and the library call with which they are compared."""
    example = kernels.example(ladder.name, size)
    library_calls = make_library_calls(ladder.name, example)
    rungs = ladder.rungs if all_rungs else ladder.rungs[-1:]
    kernel_calls = {rung.name: kernels.launch(rung.name, *example.arrays) for rung in rungs}
    for name, kernel_work in kernel_calls.items():
        check(ladder.name, name, example, kernel_work)
    calls: dict[str, Callable[[], Any]] = {**library_calls, **kernel_calls}
    for call in library_calls.values():
        call()
    times_ms = dict(zip(calls, measure_medians_ms([*calls.values()], rounds, 3.0), strict=True))
    library_name = next(iter(library_calls), "")
    copied_bytes = 2 * example.arrays[0].nbytes
    rows = []
    for name, ms in times_ms.items():
        moved_bytes = copied_bytes if name == "cudaMemcpy" else example.moved_bytes
        tflops_or_gbps = example.flops / ms / 1e9 if example.flops else moved_bytes / ms / 1e6
        rows.append(Row(ladder.name, name, size, ms, tflops_or_gbps, "TFLOP/s" if example.flops else "GB/s"))
    rates = {row.kernel: row.rate for row in rows}
    best_name = ladder.best.name
    return [
        Row(
            row.ladder,
            row.kernel,
            size,
            row.median_ms,
            row.rate,
            row.unit,
            library_name,
            row.rate / rates[library_name],
            TARGET_SHARES.get(ladder.name) if row.kernel == best_name else None,
        )
        if library_name and row.kernel != library_name
        else row
        for row in rows
    ]


def make_table(rows: Sequence[Row], origin: Provenance) -> Table:
    """Return the rows as a table to be printed."""
    cells = tuple(
        (
            row.ladder,
            row.kernel,
            " × ".join(f"{n:,}" for n in row.size),
            f"{row.median_ms:,.3f}",
            f"{row.rate:,.1f}" if row.rate < 100 else f"{row.rate:,.0f}",
            row.unit,
            f"{row.ratio:.1%} of {row.against}" if row.ratio is not None else "",
            f"≥ {row.target:.0%} {row.verdict}" if row.target is not None else "",
        )
        for row in rows
    )
    headings = ("subject", "kernel", "size", "median ms", "rate", "unit", "compared", "target")
    return Table(origin.label, headings, cells)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run ``gpulab bench --gpu``.

    Returns
    -------
    int
        0, or 1 with ``--check`` if a target was missed, or if there is no GPU.
    """
    parser = argparse.ArgumentParser(
        prog="gpulab bench --gpu", description="Time the teaching kernels beside CUDA's own libraries."
    )
    parser.add_argument("ladders", nargs="*", metavar="ladder", help=", ".join(SIZES))
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the rows to a file, too")
    parser.add_argument("--rounds", type=int, default=ROUNDS, metavar="N", help=f"default: {ROUNDS}")
    parser.add_argument("--all", action="store_true", help="every rung of each ladder, not the last alone")
    parser.add_argument("--check", action="store_true", help="exit with 1 if a target is missed")
    parser.add_argument("--device", default="cuda", help=argparse.SUPPRESS)
    options = parser.parse_args(arguments)
    unknown_names = sorted(set(options.ladders) - set(SIZES))
    if unknown_names:
        parser.error(f"there is no ladder {unknown_names[0]}; choose among {', '.join(SIZES)}")
    try:
        is_real = gl.use_device(options.device).kind == "cuda"
    except GpulabError:
        print(
            "gpulab bench --gpu compares kernels on a real NVIDIA GPU, and CuPy can use none here; "
            "`gpulab doctor` says why."
        )
        return 1
    info = session.backend().device_info()
    origin = Provenance("measured", info.name, f"driver {info.driver}") if is_real else info.as_virtual
    rows: list[Row] = []
    for name in options.ladders or SIZES:
        ladder = kernels.ladder(name)
        free_bytes = session.cp().cuda.runtime.memGetInfo()[0]
        for size in list_sizes(name, free_bytes) if is_real else [SMALL_SIZES.get(name, ladder.input_size)]:
            rows += measure(ladder, size, max(2, options.rounds), all_rungs=options.all)
            session.cp().get_default_memory_pool().free_all_blocks()
    print(make_table(rows, origin).text())
    if options.json:
        row_dicts = [{**asdict(row), "verdict": row.verdict} for row in rows]
        report = {"provenance": asdict(origin), "rows": row_dicts}
        options.json.write_text(json.dumps(report, indent=1) + "\n", encoding="utf-8")
    return int(options.check and any(row.verdict == "slow" for row in rows))


if __name__ == "__main__":
    raise SystemExit(main())
