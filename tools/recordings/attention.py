"""Record times of the kernels of notebook 19 on a GPU: ``python -m tools.recordings.attention``.

The record has the provenance, and for each case the shortest of several spans in ns: the forward pass by head
dimension and lanes, the causal mask with and without skipped tiles, decoding by the number of blocks, and
the last two versions of the attention layer by the number of tokens.
"""

from __future__ import annotations

import argparse
import datetime
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

import gpulab as gl
from gpulab import session
from gpulab_course.content import story
from gpulab_course.content.n19_attention import figures

RECORD = Path(figures.__file__).with_name("recorded.json")
REPEATS = 5
HEIGHT = 32  # rows of a block of the forward pass


def main(arguments: Sequence[str] | None = None) -> int:
    """Record the times on the session's GPU, and write them to a JSON file."""
    parser = argparse.ArgumentParser(prog="attention", description=__doc__)
    parser.add_argument("--out", type=Path, default=RECORD)
    parser.add_argument("--device", default="cuda", help="for a trial: a virtual one")
    parser.add_argument("--tokens", type=int, default=4096, help="the largest number of tokens")
    options = parser.parse_args(arguments)
    device = gl.use_device(options.device).device
    driver = session.backend().device_info().driver
    date = datetime.datetime.now(datetime.UTC).date().isoformat()
    record = {"device": device, "date": date, "driver": driver, "tokens": options.tokens}
    record |= measure(options.tokens)
    options.out.write_text(json.dumps(record, indent=1) + "\n", encoding="utf-8")
    print(json.dumps(record, indent=1))
    return 0


def measure(tokens: int) -> dict[str, Any]:
    """Return the times of all cases in ns, for up to `tokens` tokens."""
    layers = {
        f"n = {n}, version {version}": sum(
            span_ns(step) for step in story.steps(session.cp(), n=n, rung=version)[0].values()
        )
        for n in (tokens // 16, tokens // 4, tokens)
        for version in ("15", "19")
    }
    return {
        "forward_ns": {
            f"d = {d}, lanes = {lanes}": span_ns(forward_launch(tokens, d, lanes))
            for d in (64, 128)
            for lanes in (1, 2, 4, 8)
        },
        "mask_ns": {
            file: span_ns(figures.masked_launch(file, tokens, height=64, window=tokens))
            for file in ("masked_naive.cu", "masked.cu")
        },
        "decode_ns": {blocks: decode_span_ns(tokens, blocks) for blocks in (1, 2, 4, 8, 16, 32, 64, 128)},
        "layer_ns": layers,
    }


def forward_launch(tokens: int, d: int, lanes: int) -> dict[str, Any]:
    """Return the launch of the forward pass for `tokens` queries and keys."""
    args = (*figures.tensors(tokens, d), np.int32(tokens), np.int32(tokens))
    grid = (-(-tokens // HEIGHT),)
    return {"kernel": figures.forward(d, lanes), "grid": grid, "block": (HEIGHT * lanes,), "args": args}


def span_ns(launch: Any) -> float:
    """Return the shortest of several spans of a launch, in ns."""
    return float(min(gl.launch(**launch).trace.span_ns for _ in range(REPEATS)))


def decode_span_ns(tokens: int, blocks: int) -> float:
    """Return the shortest of several spans of split decoding, in ns."""
    launch = figures.decode_launch(tokens, blocks)
    spans = []
    for _ in range(REPEATS):
        launch["args"][6].fill(0)
        spans.append(gl.launch(**launch).trace.span_ns)
    return float(min(spans))


if __name__ == "__main__":
    raise SystemExit(main())
