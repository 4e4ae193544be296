"""Try many tile sizes of the teaching kernels on a GPU: ``python -m tools.bench.tune [subject ...]``.

All variants of a subject run in turns, so that whatever the GPU's clock does falls on all of them; each row
is a median. A variant whose result is wrong or that spills says so. ``--device virtual:A100`` tries all of
them at small sizes, for their results.
"""

from __future__ import annotations

import argparse
import itertools
import json
import multiprocessing
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any

import gpulab as gl
from gpulab import session
from gpulab_course.content import kernels
from tools.bench.gpu import SIZES, SMALL_SIZES, check, make_library_calls, measure_medians_ms

Variant = tuple[str, dict[str, int]]


def _combine_axes(**axes: Sequence[int]) -> Iterator[dict[str, int]]:
    for values in itertools.product(*axes.values()):
        yield dict(zip(axes, values, strict=True))


def _list_sgemm_variants() -> list[Variant]:
    tile_shapes = (
        # BM, BN, BK, WM, WN, TM, TN, MIN_BLOCKS
        (128, 256, 16, 64, 64, 8, 16, 1),
        (256, 128, 16, 64, 64, 8, 16, 1),
        (128, 128, 16, 64, 64, 8, 16, 2),
        (128, 128, 16, 64, 32, 8, 8, 1),
        (128, 128, 16, 64, 32, 8, 8, 2),
        (128, 256, 32, 64, 64, 8, 16, 1),
        (128, 256, 8, 64, 64, 8, 16, 1),
        (128, 64, 16, 64, 32, 8, 8, 3),
        (128, 256, 16, 32, 128, 8, 16, 1),
        (128, 256, 16, 64, 64, 16, 8, 1),
        (256, 128, 32, 64, 64, 8, 16, 1),
    )
    variants: list[Variant] = []
    for bm, bn, bk, wm, wn, tm, tn, blocks in tile_shapes:
        tile_macros = {
            "BM": bm,
            "BN": bn,
            "BK": bk,
            "WM": wm,
            "WN": wn,
            "TM": tm,
            "TN": tn,
            "MIN_BLOCKS": blocks,
        }
        variants += [
            ("sgemm_async", {**tile_macros, "STAGES": stage_count, "A_WIDTH": 2, "UNROLL": bk // 2})
            for stage_count in (2, 3, 4)
            if stage_count * (bm + bn) * bk * 4 * blocks <= 200 << 10 and (stage_count > 2 or bk == 32)
        ]
    best_macros = {"BN": 256, "WN": 64, "TN": 16, "A_WIDTH": 2, "UNROLL": 8}
    variants += [("sgemm_async", {**best_macros, "GROUP": group_tiles}) for group_tiles in (4, 16)]
    variants += [("sgemm_async", {**best_macros, "A_WIDTH": 4, "UNROLL": 4})]
    variants += [
        (name, tile_macros)
        for name in ("sgemm_vectors", "sgemm_double")
        for tile_macros in (best_macros, {"A_WIDTH": 2, "UNROLL": 8}, {"UNROLL": 2})
    ]
    return variants


def _list_hgemm_variants() -> list[Variant]:
    tile_shapes = (
        # BM, BN, BK, WM, WN, MIN_BLOCKS
        (128, 128, 32, 64, 64, 2),
        (128, 128, 64, 64, 64, 1),
        (128, 256, 32, 64, 64, 1),
        (256, 128, 32, 64, 64, 1),
        (128, 128, 32, 64, 32, 2),
        (128, 256, 64, 64, 64, 1),
        (256, 128, 64, 64, 64, 1),
        (128, 128, 64, 64, 32, 2),
    )
    return [
        (
            "hgemm_async",
            {"BM": bm, "BN": bn, "BK": bk, "WM": wm, "WN": wn, "MIN_BLOCKS": blocks, "STAGES": stage_count},
        )
        for bm, bn, bk, wm, wn, blocks in tile_shapes
        for stage_count in (3, 4, 5)
        if stage_count * (bm + bn) * bk * 2 * blocks <= 220 << 10
    ]


VARIANTS: dict[str, Callable[[], list[Variant]]] = {
    "copy": lambda: [
        *[(name, {"THREADS": t}) for name in ("copy_floats", "copy_vectors") for t in (256, 512, 1024)],
    ],
    "transpose": lambda: [
        ("transpose_naive", {}),
        ("transpose_tiled", {}),
        ("transpose_padded", {}),
        *[("transpose_vectors", {"SIDE": side}) for side in (8, 16)],
    ],
    "reduction": lambda: [
        *[(f"sum_{name}", {}) for name in ("interleaved", "halves", "shuffled", "grid_stride")],
        *[
            ("sum_one_pass", v)
            for v in _combine_axes(SUM_UNROLL=(2, 4, 8), THREADS=(256, 512, 1024), BLOCKS=(2, 4, 8))
            if v["THREADS"] * v["BLOCKS"] <= 4096
        ],
    ],
    "scan": lambda: [
        ("scan_steps", {}),
        ("scan_shuffled", {}),
        *[
            ("scan_look_back", v)
            for v in _combine_axes(BLOCK=(128, 256, 512, 1024), ITEMS=(8, 12, 16, 20, 24, 28))
            if v["BLOCK"] * v["ITEMS"] * 4 <= 47 << 10
        ],
    ],
    "softmax": lambda: [
        ("softmax_three_pass", {}),
        ("softmax_online", {}),
        *[("softmax_registers", v) for v in _combine_axes(THREADS=(64, 128, 256))],
    ],
    "layer_norm": lambda: [
        ("layer_norm_three_pass", {}),
        *[("layer_norm_registers", v) for v in _combine_axes(THREADS=(64, 128, 256))],
    ],
    "histogram": lambda: [(f"histogram_{name}", {}) for name in ("global", "shared", "private")],
    "stencil": lambda: [
        ("stencil_naive", {}),
        *[("stencil_tiled", v) for v in _combine_axes(TY=(8, 16))],
        *[
            ("stencil_sliding", v)
            for v in _combine_axes(TY=(4, 8, 16), ROWS=(8, 16))
            if v["TY"] * v["ROWS"] <= 256
        ],
    ],
    "sgemm": _list_sgemm_variants,
    "tensor_cores": _list_hgemm_variants,
}


def compile_variant(subject: str, variant: Variant, example: kernels.Example) -> kernels.Work:
    """Compile a variant of a kernel, and return its launches."""
    kernel_work = kernels.launch(variant[0], *example.arrays, **variant[1])
    for step in kernel_work.steps:
        step.kernel.num_regs  # noqa: B018
    return kernel_work


def compile_in_advance(subject: str, part: int, parts: int) -> None:
    """Compile one of `parts` parts of the variants into CuPy's cache, for use in several processes."""
    gl.use_device("cuda")
    example = kernels.example(subject, SMALL_SIZES.get(subject))
    for variant in VARIANTS[subject]()[part::parts]:
        try:
            compile_variant(subject, variant, example)
        except Exception:  # said when it is its turn to be timed
            continue


def tune(subject: str, size: tuple[int, ...] | None, rounds: int, budget_s: float) -> list[dict[str, Any]]:
    """Time every variant at one size, and return a row for each, the fastest first."""
    example = kernels.example(subject, size)
    calls: list[tuple[dict[str, Any], Callable[[], Any]]] = []
    rows: list[dict[str, Any]] = []
    for variant in VARIANTS[subject]():
        columns: dict[str, Any] = {"kernel": variant[0], **variant[1]}
        try:
            kernel_work = compile_variant(subject, variant, example)
            check(subject, variant[0], example, kernel_work)
        except Exception as error:
            rows.append({**columns, "error": f"{type(error).__name__}: {error}"})
            continue
        kernel = kernel_work.step.kernel
        calls.append(({**columns, "regs": kernel.num_regs, "local": kernel.local_size_bytes}, kernel_work))
    calls += [
        ({"kernel": name}, run_variant) for name, run_variant in make_library_calls(subject, example).items()
    ]
    times_ms = measure_medians_ms([run_variant for _, run_variant in calls], rounds, budget_s)
    for (columns, _), ms in zip(calls, times_ms, strict=True):
        moved_bytes = (
            2 * example.arrays[0].nbytes if columns["kernel"] == "cudaMemcpy" else example.moved_bytes
        )
        tflops_or_gbps = example.flops / ms / 1e9 if example.flops else moved_bytes / ms / 1e6
        rows.append({**columns, "ms": ms, "rate": tflops_or_gbps})
    return sorted(rows, key=lambda row: -row.get("rate", 0))


def main(arguments: Sequence[str] | None = None) -> int:
    """Tune the named subjects, or all. Rates are in GB/s of the bytes that must move, or in TFLOP/s."""
    parser = argparse.ArgumentParser(prog="tune", description=__doc__)
    parser.add_argument("subjects", nargs="*", metavar="subject", help=", ".join(VARIANTS))
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--seconds", type=float, default=8, help="at most, for the rounds of one subject")
    parser.add_argument("--best", type=int, default=12, help="how many to print of each subject")
    parser.add_argument("--out", type=Path, help="a file for all of them, as JSON")
    options = parser.parse_args(arguments)
    is_real_gpu = gl.use_device(options.device, watchdog_s=100).kind == "cuda"
    rows_by_run: dict[str, Any] = {}
    if is_real_gpu:
        start_s = time.perf_counter()
        cores = 12
        with ProcessPoolExecutor(cores, multiprocessing.get_context("spawn")) as pool:
            for subject in options.subjects or VARIANTS:
                for part_index in range(cores):
                    pool.submit(compile_in_advance, subject, part_index, cores)
        print(f"compiled in {time.perf_counter() - start_s:.0f} s")
    subject_sizes = [
        (subject, size)
        for subject in options.subjects or VARIANTS
        for size in (SIZES[subject] if is_real_gpu else (SMALL_SIZES.get(subject),))
    ]
    for subject, size in subject_sizes:
        start_s = time.perf_counter()
        name = " ".join(map(str, (subject, *(size or ()))))
        rows = rows_by_run[name] = tune(subject, size, options.rounds if is_real_gpu else 1, options.seconds)
        session.cp().get_default_memory_pool().free_all_blocks()
        error_rows = [row for row in rows if "error" in row]
        print(
            f"{name}: {len(rows)} variants, {len(error_rows)} failed, {time.perf_counter() - start_s:.0f} s"
        )
        for row in [*rows[: options.best], *error_rows[:3]]:
            print(
                "   ",
                " ".join(f"{k}={v:.4g}" if isinstance(v, float) else f"{k}={v}" for k, v in row.items()),
            )
        if options.out:
            options.out.write_text(json.dumps(rows_by_run, indent=1), encoding="utf-8")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
