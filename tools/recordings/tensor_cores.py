"""Record notebook 18 on a GPU: the speed of each version beside cuBLAS, and the bits that a sum keeps.

``python -m tools.recordings.tensor_cores`` adds the record of this GPU to the file that the notebook shows.
Run it on one GPU after the other (an H200, an H100). A second record of the same GPU and size replaces the
first.
"""

from __future__ import annotations

import argparse
import datetime
import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import gpulab as gl
from gpulab import session
from gpulab_course.content.n18_tensor_cores import probe
from gpulab_course.content.n18_tensor_cores.versions import VERSIONS, launch

SHIPPED = Path(__file__).resolve().parents[2] / "gpulab_course/content/n18_tensor_cores/recorded.json"
REPEATS = 20
# With the naive version, larger matrices would take minutes.
_MATRIX_SIDE = 8192


def main(arguments: Sequence[str] | None = None) -> int:
    """Record the session's GPU."""
    parser = argparse.ArgumentParser(prog="tensor_cores", description=__doc__)
    parser.add_argument("--out", type=Path, default=SHIPPED)
    parser.add_argument("--side", type=int, default=_MATRIX_SIDE)
    parser.add_argument("--device", default="cuda", help="for a trial: a virtual one, with a small side")
    options = parser.parse_args(arguments)
    gl.use_device(options.device)
    record = measure(options.side)
    records = json.loads(options.out.read_text(encoding="utf-8")) if options.out.is_file() else []
    other_records = [
        other_record
        for other_record in records
        if (other_record["device"], other_record["side"]) != (record["device"], record["side"])
    ]
    record_json = json.dumps([*other_records, record], indent=1, ensure_ascii=False)
    options.out.write_text(f"{record_json}\n", encoding="utf-8")
    print(json.dumps(record, indent=1))
    return 0


def measure(side: int) -> dict[str, Any]:
    """Return the speeds of all versions and of cuBLAS for square matrices, in TFLOP/s."""
    cp = session.cp()
    info = session.backend().device_info()
    cp.random.seed(18)
    a, b = ((cp.random.random((side, side)) - 0.5).astype(cp.float16) for _ in range(2))
    expected = cp.matmul(a, b).astype(cp.float32)
    flops = 2 * side**3
    tflops = {}
    for version in VERSIONS:
        c = cp.zeros((side, side), cp.float32)
        step = launch(version.name, a, b, c)
        tflops[version.name] = flops / _best_seconds(cp, step) / 1e12
        # cuBLAS rounds its result to half precision.
        largest_error = float(cp.abs(c - expected).max())
        if largest_error > 0.01 * float(cp.abs(expected).max()):
            raise SystemExit(f"{version.name} differs from cuBLAS by up to {largest_error:g}.")
    tflops["cuBLAS"] = flops / _best_seconds(cp, lambda: cp.matmul(a, b)) / 1e12
    return {
        "device": info.name,
        "driver": info.driver,
        "date": datetime.datetime.now(datetime.UTC).date().isoformat(),
        "side": side,
        "kept_bits": probe.measure_kept_bits(),
        "tflops": {name: round(speed_tflops, 2) for name, speed_tflops in tflops.items()},
    }


def _best_seconds(cp: Any, work: Callable[[], object]) -> float:
    """Return the shortest time of several calls."""
    work()
    times_s = []
    for _ in range(REPEATS):
        start_event, end_event = cp.cuda.Event(), cp.cuda.Event()
        start_event.record()
        work()
        end_event.record()
        end_event.synchronize()
        times_s.append(float(cp.cuda.get_elapsed_time(start_event, end_event)) / 1e3)
    return min(times_s)


if __name__ == "__main__":
    raise SystemExit(main())
