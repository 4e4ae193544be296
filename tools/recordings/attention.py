"""Record times of the kernels of notebook 19 on a GPU: ``python -m tools.recordings.attention``.

Run it on one GPU after the other. A second record of the same GPU and number of tokens replaces the first.
The record has the speed of the forward pass on CUDA cores, on tensor cores and in PyTorch, in TFLOP/s, and
these times in µs: the causal mask with and without skipped tiles, decoding by the number of blocks, and the
last two versions of the attention layer. It takes 16 s on an H200.
"""

from __future__ import annotations

import argparse
import datetime
import importlib
import json
from collections.abc import Callable, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np

import gpulab as gl
from gpulab import session
from gpulab_course.content import story
from gpulab_course.content.kernels import Step
from gpulab_course.content.n19_attention import figures

RECORD = Path(figures.__file__).with_name("recorded.json")
REPEATS = 10
HEIGHT = 32  # rows of a block of the forward pass on CUDA cores
HEADS = 16
LANES = 4  # threads per row there
_ALLOWED_ERROR = 0.01


def main(arguments: Sequence[str] | None = None) -> int:
    """Record the times on the session's GPU, and add them to a JSON file."""
    parser = argparse.ArgumentParser(prog="attention", description=__doc__)
    parser.add_argument("--out", type=Path, default=RECORD)
    parser.add_argument("--device", default="cuda", help="for a trial: a virtual one")
    parser.add_argument("--tokens", type=int, default=4096, help="the largest number of tokens")
    parser.add_argument("--heads", type=int, default=HEADS)
    options = parser.parse_args(arguments)
    gl.use_device(options.device)
    record = measure(options.tokens, options.heads)
    records = json.loads(options.out.read_text(encoding="utf-8")) if options.out.is_file() else []
    other_records = [
        other_record
        for other_record in records
        if (other_record["device"], other_record["tokens"]) != (record["device"], record["tokens"])
    ]
    record_json = json.dumps([*other_records, record], indent=1, ensure_ascii=False)
    options.out.write_text(f"{record_json}\n", encoding="utf-8")
    print(json.dumps(record, indent=1))
    return 0


def measure(tokens: int, heads: int) -> dict[str, Any]:
    """Return the record for up to `tokens` tokens."""
    info = session.backend().device_info()
    masked_kernel_files = {"all tiles": "masked_naive.cu", "needed tiles": "masked.cu"}
    return {
        "device": info.name,
        "driver": info.driver,
        "date": datetime.datetime.now(datetime.UTC).date().isoformat(),
        "tokens": tokens,
        "heads": heads,
        "library": _find_library_name(),
        "tflops": {f"d = {d}": measure_forward_speeds(tokens, d, heads) for d in (64, 128)},
        "mask_us": {
            file_label: round(
                time_best_us(Step(**figures.masked_launch(file, tokens, height=64, window=tokens))), 2
            )
            for file_label, file in masked_kernel_files.items()
        },
        "decode_us": {blocks: round(time_decode_us(tokens, blocks), 2) for blocks in (1, 4, 16, 64)},
        "layer_us": {
            f"n = {n:,}, version {version}": round(
                sum(time_best_us(step) for step in story.steps(session.cp(), n=n, rung=version)[0].values()),
                2,
            )
            for n in (tokens // 16, tokens)
            for version in ("15", "19")
        },
    }


def measure_forward_speeds(tokens: int, d: int, heads: int) -> dict[str, float]:
    """Return the speeds of the forward pass in TFLOP/s; a causal mask halves the operations."""
    speeds_tflops: dict[str, float] = {}
    for dtype, is_causal in (("float32", False), ("float16", False), ("float16", True)):
        arrays = q, k, v, out = figures.tensors(tokens, d, heads=heads, dtype=dtype)
        if dtype == "float32":
            kernel_name, launch = "CUDA cores", forward_launch(arrays)
        else:
            kernel_name, launch = "tensor cores", figures.tensor_launch(q, k, v, out, is_causal)
        times_us = {kernel_name: time_best_us(Step(**launch))}
        if session.real_cp() is not None and find_spec("torch"):
            times_us["PyTorch"] = _time_library_us(arrays, is_causal)
        operation_count = 4 * tokens**2 * d * heads // (1 + is_causal)
        dtype_text = f"FP{dtype[-2:]}{', causal' if is_causal else ''}"
        speeds_tflops |= {
            f"{kernel_name}, {dtype_text}": round(operation_count / us / 1e6, 1)
            for kernel_name, us in times_us.items()
        }
    return speeds_tflops


def forward_launch(arrays: Sequence[Any]) -> dict[str, Any]:
    """Return the launch of the forward pass on CUDA cores for several heads."""
    heads, n, d = arrays[0].shape
    args = (*arrays, np.int32(n), np.int32(n))
    grid = -(-n // HEIGHT), heads
    return {"kernel": figures.forward(d, LANES), "grid": grid, "block": (HEIGHT * LANES,), "args": args}


def _find_library_name() -> str:
    """Return the name and the version of PyTorch, or an empty string without it."""
    if not find_spec("torch"):
        return ""
    torch = importlib.import_module("torch")

    return f"PyTorch {torch.__version__}, scaled_dot_product_attention"


def _time_library_us(arrays: Sequence[Any], causal: bool) -> float:
    """Return the time of PyTorch's attention in µs, after a comparison with the result in ``arrays[3]``."""
    torch = importlib.import_module("torch")

    q, k, v, own_result = (torch.from_dlpack(array)[None] for array in arrays)
    attend = torch.nn.functional.scaled_dot_product_attention
    largest_difference = float((attend(q, k, v, is_causal=causal) - own_result).abs().max())
    if largest_difference > _ALLOWED_ERROR:
        raise SystemExit(f"The kernel differs from PyTorch by up to {largest_difference:g}.")
    return time_best_us(lambda: attend(q, k, v, is_causal=causal))


def time_decode_us(tokens: int, blocks: int) -> float:
    """Return the shortest time of split decoding in µs."""
    launch = figures.decode_launch(tokens, blocks)
    return time_best_us(Step(**launch), before=lambda: launch["args"][6].fill(0))


def time_best_us(work: Callable[[], object], before: Callable[[], object] = lambda: None) -> float:
    """Return the shortest time of several calls in µs.

    The GPU computes something else while the host starts a call, so that the time of the host is not
    included.
    """
    cp = session.cp()
    matrix = cp.ones((1024, 1024), cp.float32)
    times_us = []
    for _ in range(REPEATS):
        start_event, end_event = cp.cuda.Event(), cp.cuda.Event()
        before()
        cp.matmul(matrix, matrix)
        start_event.record()
        work()
        end_event.record()
        end_event.synchronize()
        times_us.append(float(cp.cuda.get_elapsed_time(start_event, end_event)) * 1e3)
    return min(times_us)


if __name__ == "__main__":
    raise SystemExit(main())
