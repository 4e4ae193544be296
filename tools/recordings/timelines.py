"""Record timelines of a GPU for the package: ``python -m tools.recordings.timelines``.

Each program runs a few times through ``gl.timeline``; the run of median length is kept.
"""

from __future__ import annotations

import argparse
import datetime
import json
import re
from collections.abc import Callable, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np

import gpulab as gl
from gpulab import session
from gpulab.lab.recorded import TIMELINE_FORMAT, TIMELINE_INDEX_NAME, RecordedTimeline
from gpulab_course.content.n11_graphs.figures import record_timelines
from tools.recordings.traces import SHIPPED
from virtualgpu.records import Timeline
from virtualgpu.records.io import VERSION, as_recorded, save

REPEATS = 5
SCALE = """
extern "C" __global__ void scale(const float* x, float* y, int n, int rounds) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    float v = x[i];
    for (int k = 0; k < rounds; ++k) v = v * 0.999f + 0.001f;
    y[i] = v;
}
"""


def _make_conveyor(
    chunks: int, *, pinned: bool, streams: int, size_bytes: int = 32 << 20
) -> Callable[[], Timeline]:
    """Return a program that copies in, computes and copies out `size_bytes` in chunks on several streams."""
    cp = session.cp()
    n = size_bytes // 4
    kernel = cp.RawKernel(SCALE, "scale")

    def host_array() -> Any:
        if not pinned:
            return np.empty(n, np.float32)
        return np.frombuffer(cp.cuda.alloc_pinned_memory(size_bytes), np.float32, n)

    input_array = host_array()
    output_array = host_array()
    input_array[:] = output_array[:] = 1
    used_streams = [cp.cuda.Stream(non_blocking=True) for _ in range(streams)]
    chunk_length = n // chunks
    buffers = [(cp.empty(chunk_length, cp.float32), cp.empty(chunk_length, cp.float32)) for _ in used_streams]

    def run() -> Timeline:
        with gl.timeline() as recording:
            for chunk_index in range(chunks):
                chunk_slice = slice(chunk_index * chunk_length, (chunk_index + 1) * chunk_length)
                stream = used_streams[chunk_index % streams]
                x, y = buffers[chunk_index % streams]
                with stream:
                    x.set(input_array[chunk_slice], stream=stream)
                    kernel((-(-chunk_length // 256),), (256,), (x, y, np.int32(chunk_length), np.int32(400)))
                    y.get(stream=stream, out=output_array[chunk_slice], blocking=False)
            for stream in used_streams:
                stream.synchronize()
        return recording.record

    return run


PROGRAMS: dict[str, tuple[str, Callable[[], Callable[[], Timeline]]]] = {
    "film_eager": (
        "40 additions to 4,096 floats, launched one by one",
        lambda: lambda: record_timelines(4096)[0],
    ),
    "film_graph": ("40 additions to 4,096 floats, as one graph", lambda: lambda: record_timelines(4096)[1]),
    "conveyor_pageable": (
        "32 MiB in 8 chunks from pageable memory: in, compute, out on 3 streams",
        lambda: _make_conveyor(8, pinned=False, streams=3),
    ),
    "conveyor_one_stream": (
        "32 MiB in 8 chunks from pinned memory: in, compute, out on 1 stream",
        lambda: _make_conveyor(8, pinned=True, streams=1),
    ),
    "conveyor_pinned": (
        "32 MiB in 8 chunks from pinned memory: in, compute, out on 3 streams",
        lambda: _make_conveyor(8, pinned=True, streams=3),
    ),
}


def find_median_run(run: Callable[[], Timeline]) -> Timeline:
    """Return the run of median length, after a warm-up run."""
    run()
    runs = sorted((run() for _ in range(REPEATS)), key=lambda t: t.duration_ns)
    return runs[REPEATS // 2]


def main(arguments: Sequence[str] | None = None) -> int:
    """Record every program on the session's GPU."""
    parser = argparse.ArgumentParser(prog="timelines", description="Record timelines of a real GPU.")
    parser.add_argument("--out", type=Path, default=SHIPPED)
    parser.add_argument("--device", default="cuda", help="for a trial: a virtual one")
    options = parser.parse_args(arguments)
    device = gl.use_device(options.device).device
    prefix = re.sub(r"\W+", "_", device.lower().removeprefix("nvidia ")).split("_")[0]
    date = datetime.datetime.now(datetime.UTC).date().isoformat()
    driver = session.backend().device_info().driver
    entries = []
    for title, (description, make_run) in PROGRAMS.items():
        record = as_recorded(find_median_run(make_run()), f"{date}, driver {driver}")
        path = save(record, options.out / f"{prefix}_{title}_timeline.npz")
        entries.append(RecordedTimeline(path.stem, description, record.provenance.device, date))
        print(
            f"{path.name}: {path.stat().st_size:,} bytes, {record.method}, {record.duration_ns / 1e3:,.0f} us"
        )
    index_path = options.out / TIMELINE_INDEX_NAME
    entries_in_index = (
        json.loads(index_path.read_text(encoding="utf-8"))["timelines"] if index_path.is_file() else []
    )
    other_entries = [entry for entry in entries_in_index if not entry["name"].startswith(f"{prefix}_")]
    content = {
        "format": TIMELINE_FORMAT,
        "version": VERSION,
        "timelines": [*other_entries, *map(asdict, entries)],
    }
    index_path.write_text(json.dumps(content, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
