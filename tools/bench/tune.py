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
import statistics
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any

import gpulab as gl
from gpulab import session
from gpulab.course.kernels import launches

Variant = tuple[str, dict[str, int]]


def _grid(**axes: Sequence[int]) -> Iterator[dict[str, int]]:
    for values in itertools.product(*axes.values()):
        yield dict(zip(axes, values, strict=True))


def _sgemm() -> list[Variant]:
    shapes = (
        # BM, BN, BK, WM, WN, TM, TN
        (128, 128, 16, 64, 32, 8, 8), (128, 128, 16, 32, 64, 8, 8), (128, 128, 8, 64, 32, 8, 8),
        (256, 128, 16, 64, 64, 8, 16), (128, 256, 16, 64, 64, 8, 16),
        (128, 128, 16, 64, 64, 8, 16), (256, 128, 8, 64, 64, 8, 16), (128, 256, 16, 32, 128, 8, 16),
        (256, 128, 16, 64, 64, 16, 8), (256, 128, 16, 128, 32, 16, 8), (128, 64, 16, 64, 32, 8, 8),
        (256, 128, 16, 64, 32, 8, 8), (128, 256, 8, 64, 64, 8, 16),
    )  # fmt: skip
    found: list[Variant] = []
    for bm, bn, bk, wm, wn, tm, tn in shapes:
        tile = {"BM": bm, "BN": bn, "BK": bk, "WM": wm, "WN": wn, "TM": tm, "TN": tn}
        threads = (bm // wm) * (bn // wn) * 32
        two = 65536 // (2 * threads) >= (200 if tm * tn > 64 else 100) and 2
        for stages, unroll, blocks in itertools.product((3, 4), (1, 4), {1, two or 1}):
            if unroll * 4 <= 2 * bk and stages * (bm + bn) * bk * 4 * blocks <= 200 << 10:
                more = {"STAGES": stages, "UNROLL": unroll, "MIN_BLOCKS": blocks}
                found.append(("sgemm_async", {**tile, **more}))
        if tm * tn == 64:
            found.extend(("sgemm_double", {**tile, "UNROLL": u}) for u in (1, 2) if 4 * u <= bk
                         and 2 * (bm + bn) * bk * 4 <= 48 << 10)  # fmt: skip
    return found


def _hgemm() -> list[Variant]:
    shapes = (
        # BM, BN, BK, WM, WN
        (128, 128, 32, 64, 64), (128, 128, 64, 64, 64), (128, 256, 32, 64, 64), (256, 128, 32, 64, 64),
        (128, 128, 32, 64, 32), (128, 256, 64, 64, 64), (256, 128, 64, 64, 64), (128, 128, 64, 64, 32),
    )  # fmt: skip
    return [
        ("hgemm_async", {"BM": bm, "BN": bn, "BK": bk, "WM": wm, "WN": wn, "STAGES": stages, "GROUP": group})
        for bm, bn, bk, wm, wn in shapes
        for stages in (3, 4)
        for group in (8, 16)
        if stages * (bm + bn) * bk * 2 <= 220 << 10
    ]


VARIANTS: dict[str, Callable[[], list[Variant]]] = {
    "copy": lambda: [
        *[(name, {"THREADS": t}) for name in ("copy_floats", "copy_vectors") for t in (256, 512, 1024)],
        *[("copy_in_flight", v) for v in _grid(COPY_UNROLL=(2, 4, 8), THREADS=(128, 256, 512, 1024))],
    ],
    "transpose": lambda: [
        ("transpose_naive", {}), ("transpose_tiled", {}), ("transpose_padded", {}),
        *[("transpose_vectors", {"SIDE": side}) for side in (8, 16)],
    ],
    "reduction": lambda: [
        *[(f"sum_{name}", {}) for name in ("interleaved", "halves", "shuffled", "grid_stride")],
        *[("sum_one_pass", v) for v in _grid(SUM_UNROLL=(2, 4, 8), THREADS=(256, 512, 1024), BLOCKS=(2, 4, 8))
          if v["THREADS"] * v["BLOCKS"] <= 4096],
    ],
    "scan": lambda: [
        ("scan_steps", {}), ("scan_shuffled", {}),
        *[("scan_look_back", {"ITEMS": items}) for items in (8, 16, 24, 32)],
    ],
    "by_row": lambda: [
        *[("softmax_three_pass", {}), ("softmax_online", {}), ("layer_norm_three_pass", {})],
        *[(f"{name}_registers", {"THREADS": t})
          for name in ("softmax", "layer_norm") for t in (64, 128, 256)],
    ],
    "histogram": lambda: [(f"histogram_{name}", {}) for name in ("global", "shared", "private")],
    "stencil": lambda: [
        ("stencil_naive", {}), ("stencil_tiled", {}), *[("stencil_sliding", {"ROWS": r}) for r in (4, 8, 16)],
    ],
    "sgemm": _sgemm,
    "tensor_cores": _hgemm,
}  # fmt: skip


def arrays(subject: str, large: bool) -> tuple[tuple[Any, ...], float, Any]:
    """Inputs and the output, the work of one call (GB moved or TFLOP), and what the output is to be."""
    cp = session.cp()
    cp.random.seed(1)

    def floats(*shape: int) -> Any:
        return cp.random.standard_normal(shape, dtype=cp.float32)

    n = 1 << (28 if large else 14)
    side = 4096 if large else 128
    if subject == "copy":
        x = floats(n)
        return (x, cp.empty_like(x)), 8e-9 * n, x
    if subject == "reduction":
        x = floats(n)
        return (x, cp.empty(1, cp.float32)), 4e-9 * n, x.astype(cp.float64).sum()[None]
    if subject == "transpose":
        x = floats(4 * side, 4 * side)
        return (x, cp.empty_like(x)), 8e-9 * x.size, x.T
    if subject == "scan":
        x = cp.random.randint(-9, 10, n).astype(cp.int32)
        return (x, cp.empty_like(x)), 8e-9 * n, cp.cumsum(x).astype(cp.int32)
    if subject == "histogram":
        x = cp.random.randint(0, 256, 4 * n).astype(cp.uint8)
        return (x, cp.zeros(256, cp.uint32)), 4e-9 * n, cp.bincount(x, minlength=256)
    if subject == "stencil":
        x = floats(4 * side, 4 * side)
        return (x, cp.empty_like(x)), 8e-9 * x.size, None
    if subject == "by_row":
        x = floats(16 * side, 1024)
        return (x, cp.empty_like(x)), 8e-9 * x.size, None
    a, b = floats(side, side), floats(side, side)
    if subject == "tensor_cores":
        a, b = a.astype(cp.float16), b.astype(cp.float16)
    c = cp.empty((side, side), cp.float32)
    return (a, b, c), 2e-12 * side**3, cp.matmul(a, b).astype(cp.float32)


def library(subject: str, given: tuple[Any, ...]) -> dict[str, Callable[[], Any]]:
    """What CUDA's own libraries offer for the same."""
    cp = session.cp()
    if subject == "copy":
        x, out = given
        return {"cudaMemcpy": lambda: out.data.copy_from_device_async(x.data, x.nbytes)}
    if subject in ("sgemm", "tensor_cores"):
        a, b, c = given
        half = cp.empty(c.shape, a.dtype)
        return {"cuBLAS": lambda: cp.matmul(a, b, out=half)}
    return {}


def prepared(subject: str, variant: Variant, given: tuple[Any, ...]) -> Any:
    """The launches of a variant, compiled."""
    steps = getattr(launches, subject)(variant[0], given, variant[1])
    for step in steps:
        step.kernel.num_regs  # noqa: B018
    return steps


def compile_in_advance(subject: str, part: int, parts: int) -> None:
    """Leave a part of the variants in CuPy's cache; in a process of its own, one of several."""
    gl.use_device("cuda")
    given = arrays(subject, False)[0]
    for variant in VARIANTS[subject]()[part::parts]:
        try:
            prepared(subject, variant, given)
        except Exception:  # said when it is its turn to be timed
            continue


def tune(subject: str, *, large: bool, rounds: int, budget_s: float) -> list[dict[str, Any]]:
    """Time every variant; the fastest comes first."""
    cp = session.cp()
    given, work, expected = arrays(subject, large)
    out = given[-1]
    ready: list[tuple[Variant, Any]] = []
    found: list[dict[str, Any]] = []

    for variant in VARIANTS[subject]():
        try:
            ready.append((variant, prepared(subject, variant, given)))
        except Exception as error:
            found.append({"kernel": variant[0], **variant[1], "error": f"{type(error).__name__}: {error}"})
    timed: list[tuple[Variant, Any, dict[str, int], list[float]]] = []
    for variant, steps in ready:
        out.fill(0)
        try:
            for step in steps:
                step()
            cp.cuda.Device().synchronize()
        except Exception as error:
            found.append({"kernel": variant[0], **variant[1], "error": f"{type(error).__name__}: {error}"})
            continue
        if expected is not None:
            wrong = float(abs(out.astype(cp.float64) - expected).max())
            if wrong > (0.1 if subject in ("sgemm", "tensor_cores", "reduction") else 0):
                found.append({"kernel": variant[0], **variant[1], "error": f"wrong by {wrong:g}"})
                continue
        main = next(step for step in steps if step.kernel.name == variant[0])
        about = {"regs": main.kernel.num_regs, "local": main.kernel.local_size_bytes}
        timed.append((variant, steps, about, []))
    for name, call in library(subject, given).items():
        timed.append(((name, {}), (call,), {}, []))
    begin, until = cp.cuda.Event(), cp.cuda.Event()
    started = time.perf_counter()
    for at in range(rounds):
        if at > 1 and time.perf_counter() - started > budget_s:
            break
        for _, steps, _, times in timed:
            begin.record()
            for step in steps:
                step()
            until.record()
            until.synchronize()
            times.append(cp.cuda.get_elapsed_time(begin, until))
    for (name, values), _, about, times in timed:
        ms = statistics.median(times)
        found.append({"kernel": name, **values, **about, "ms": ms, "rate": work / ms * 1e3})
    return sorted(found, key=lambda row: -row.get("rate", 0))


def main(arguments: Sequence[str] | None = None) -> int:
    """Tune the subjects named, or all; rates are in GB/s of what must move, or TFLOP/s."""
    parser = argparse.ArgumentParser(prog="tune", description=__doc__)
    parser.add_argument("subjects", nargs="*", metavar="subject", help=", ".join(VARIANTS))
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--seconds", type=float, default=8, help="at most, for the rounds of one subject")
    parser.add_argument("--best", type=int, default=12, help="how many to print of each subject")
    parser.add_argument("--out", type=Path, help="a file for all of them, as JSON")
    options = parser.parse_args(arguments)
    large = gl.use_device(options.device, watchdog_s=100).kind == "cuda"
    all_found: dict[str, Any] = {}
    if large:
        start, cores = time.perf_counter(), 12
        with ProcessPoolExecutor(cores, multiprocessing.get_context("spawn")) as pool:
            for subject in options.subjects or VARIANTS:
                for part in range(cores):
                    pool.submit(compile_in_advance, subject, part, cores)
        print(f"compiled in {time.perf_counter() - start:.0f} s")
    for subject in options.subjects or VARIANTS:
        start = time.perf_counter()
        rows = all_found[subject] = tune(
            subject, large=large, rounds=options.rounds if large else 1, budget_s=options.seconds
        )
        wrong = [row for row in rows if "error" in row]
        print(f"{subject}: {len(rows)} variants, {len(wrong)} failed, {time.perf_counter() - start:.0f} s")
        for row in [*rows[: options.best], *wrong[:3]]:
            print(
                "   ",
                " ".join(f"{k}={v:.4g}" if isinstance(v, float) else f"{k}={v}" for k, v in row.items()),
            )
        if options.out:
            options.out.write_text(json.dumps(all_found, indent=1), encoding="utf-8")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
