"""``gpulab record``: record a real GPU's results, for users without a GPU and for tests.

It runs every case of `tools.corpus` through CuPy, reads hardware counters with Nsight
Compute, times `tools.corpus.workloads`, and takes a few block and warp traces.
"""

from __future__ import annotations

import argparse
import datetime
import os
import re
import statistics
import sys
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from gpulab import session
from gpulab.real.driver import parse_cuda_version
from tools.corpus import CASES, Case, find_case
from tools.corpus.inputs import Arguments
from tools.corpus.workloads import WORKLOADS, Workload, find_workload
from tools.json_rows import json_rows
from tools.recordings import FOLDER, FORMAT, compute_digest, nsight, pack_output, pack_text, timing
from tools.recordings.traces import (
    SHIPPED,
    Recorder,
    ShownLaunch,
    copy_to_device,
    list_shown_launches,
    read_shown,
    record_blocks,
    record_warps,
    write_shown_launches,
)
from virtualgpu.errors import GpulabError
from virtualgpu.protocol import Launch
from virtualgpu.records import KernelSource
from virtualgpu.records.io import VERSION

SEED = 1
# Arrays up to this size are kept whole; of larger exact ones the hash is enough.
SMALL_BYTES = 512
REPEATS = 15
ROW = 20

WARP_TRACES = (
    "two_ways",
    "four_ways",
    "stairs",
    "gcd",
    "maze",
    "mandelbrot",
    "block_sum",
    "inclusive_scan",
    "bitonic_sort",
    "stencil",
)
BLOCK_TRACES = {
    "vector_add": "vector_add_2^20",
    "mandelbrot": "mandelbrot_512x384",
    "matmul_tiled": "matmul_tiled_512",
}


def main(arguments: Sequence[str] | None = None) -> int:
    """Record the current CUDA device; return the process's exit status."""
    parser = argparse.ArgumentParser(
        prog="gpulab record", description="Record a real GPU's answers to the course's kernels."
    )
    parser.add_argument("--out", type=Path, help="one folder for everything, instead of this checkout's")
    parser.add_argument("--name", help="name of the recording; by default made from the GPU's name")
    parser.add_argument("--no-ncu", action="store_true", help="without Nsight Compute's counters")
    parser.add_argument(
        "--traces-only", action="store_true", help="only the traces that ship, not the tests' answers"
    )
    parser.add_argument("--note", type=Path, help="only note the launches that notebooks show; needs no GPU")
    parser.add_argument("--shown", type=Path, help="record launches noted elsewhere; runs no notebook")
    parser.add_argument(
        "--timing", type=Path, help="only time launches, copies and graphs, in a minute; the file to write"
    )
    parser.add_argument("--launch-only", choices=("cases", "workloads"), help=argparse.SUPPRESS)
    options = parser.parse_args(arguments)
    if options.note:
        write_shown_launches(options.note, options.name or "H200")
        return 0
    if session.use_device("cuda").kind != "cuda":
        raise GpulabError("Recording needs a real GPU.")
    if options.timing:
        timing.write(timing.record(session.cp(), log=print), options.timing)
        print(f"{options.timing} ({options.timing.stat().st_size:,} bytes)")
        return 0
    if options.launch_only:
        _launch_only(options.launch_only)
        return 0
    device = session.which_device().device
    name = options.name or re.sub(r"\W+", "_", device.lower().removeprefix("nvidia ")).strip("_")
    answers = options.out or FOLDER
    shipped = options.out or SHIPPED
    for folder in (answers, shipped):
        folder.mkdir(parents=True, exist_ok=True)
    date = datetime.datetime.now(datetime.UTC).date().isoformat()
    if not options.traces_only:
        recording = record(date, with_ncu=not options.no_ncu and nsight.is_available())
        path = answers / f"{name}.json"
        path.write_text(json_rows(recording, 3) + "\n", encoding="utf-8")
        print(f"{path} ({path.stat().st_size:,} bytes)")
    driver = session.backend().device_info().driver
    recorder = Recorder(shipped, name, date, f"driver {driver}")
    record_traces(read_shown(options.shown) if options.shown else list_shown_launches(device), recorder)
    print(f"{recorder.write_index()}: {', '.join(entry.name for entry in recorder.entries)}")
    return 0


def record(date: str, *, with_ncu: bool = True) -> dict[str, Any]:
    """Run everything and return the recording as JSON-ready data."""
    info = session.backend().device_info()
    cases = {c.name: record_case(c) for c in CASES}
    timings = [_time_workload(w) for w in WORKLOADS]
    if with_ncu:
        for case_entry, launch in zip(
            cases.values(), _profile("cases", [c.kernel for c in CASES]), strict=True
        ):
            case_entry["counters"] = launch.metrics
        for timing, launch in zip(timings, _profile("workloads", [w.kernel for w in WORKLOADS]), strict=True):
            timing["kernel_ns"] = launch.metrics[nsight.DURATION_METRIC]
    backend: Any = session.backend()
    return {
        "format": FORMAT,
        "version": VERSION,
        "device": info.name,
        "date": date,
        "versions": _read_versions(info.driver, with_ncu=with_ncu),
        "seed": SEED,
        "cases": cases,
        "timings": timings,
        "ptx": {
            name: pack_text(strip_paths(backend.ptx(_make_kernel(find_case(name))))) for name in WARP_TRACES
        },
    }


def record_case(c: Case) -> dict[str, Any]:
    """Run one case with CuPy and return its recorded outputs."""
    arguments = c.make_args(SEED)
    kernel = _make_kernel(c)
    outputs, printed_text = run_case(c, arguments, kernel)
    case_entry: dict[str, Any] = {
        "inputs_sha256": compute_inputs_digest(arguments),
        "outputs": [
            pack_output(array, with_values=not c.exact or array.nbytes <= SMALL_BYTES) for array in outputs
        ],
        "registers": kernel.num_regs,
    }
    if printed_text:
        case_entry["stdout"] = printed_text
    return case_entry


def run_case(c: Case, arguments: Arguments, kernel: Any) -> tuple[list[Any], str]:
    """Launch a case on the session's device; return its output arrays from NumPy, and its printed text."""
    cp = session.cp()
    values = copy_arguments(arguments, cp)

    def launch() -> None:
        kernel(c.grid, c.block, values, shared_mem=c.shared_bytes)
        cp.cuda.Device().synchronize()

    printed_text = ""
    if c.stdout_lines:
        printed_text = _capture_output(launch)
    else:
        launch()
    return [cp.asnumpy(values[position]) for position in arguments.outputs], printed_text


def copy_arguments(arguments: Arguments, cp: Any) -> tuple[Any, ...]:
    """Return a case's kernel arguments with their arrays on the device."""
    return copy_to_device(arguments.values, cp)


def compute_inputs_digest(arguments: Arguments) -> str:
    """Return the SHA-256 of all arguments, so that a comparison can check for the same inputs."""
    digests = "".join(compute_digest(np.asarray(value)) for value in arguments.values)
    return compute_digest(np.frombuffer(digests.encode(), np.uint8))


def strip_paths(ptx: str) -> str:
    """Return PTX without the folder of its source file."""
    return re.sub(r'(\.file\s+\d+\s+")[^"]*?([^"/\\]+")', r"\1\2", ptx)


def _make_kernel(c: Case | Workload) -> Any:
    return session.cp().RawKernel(c.code, c.kernel, options=getattr(c, "options", ()))


def _capture_output(action: Callable[[], None]) -> str:
    """Return the text that the device prints while `action` runs, from the process's standard output."""
    sys.stdout.flush()
    stdout_copy = os.dup(1)
    with tempfile.TemporaryFile() as file:
        os.dup2(file.fileno(), 1)
        try:
            action()
        finally:
            os.dup2(stdout_copy, 1)
            os.close(stdout_copy)
        file.seek(0)
        return file.read().decode()


def _launch_only(kind: str) -> None:
    """Run every case or workload once, in order; Nsight Compute profiles this process."""
    cp = session.cp()
    if kind == "cases":
        for c in CASES:
            run_case(c, c.make_args(SEED), _make_kernel(c))
    else:
        for w in WORKLOADS:
            arguments = w.make_args(cp)
            _make_kernel(w)(w.grid, w.block, arguments, shared_mem=w.shared_bytes)
            cp.cuda.Device().synchronize()


def _profile(kind: str, kernels: Sequence[str]) -> list[nsight.Launch]:
    command = [sys.executable, "-m", "tools.recordings.record", "--launch-only", kind]
    if kind == "workloads":
        launches = nsight.profile(command, kernels, [nsight.DURATION_METRIC])
    else:
        try:
            launches = nsight.profile(command, kernels, [*nsight.CORE_METRICS, *nsight.SASS_METRICS])
        except nsight.NsightError as error:
            print(f"{error}\nTrying fewer metrics.", file=sys.stderr)
            launches = nsight.profile(command, kernels, nsight.CORE_METRICS)
    if [launch.kernel for launch in launches] != list(kernels):
        raise nsight.NsightError(
            f"Nsight Compute saw {len(launches)} launches where {len(kernels)} were made."
        )
    return launches


def _time_workload(w: Workload) -> dict[str, Any]:
    """Time a workload by events: medians of `REPEATS` single launches and of rows of `ROW`."""
    cp = session.cp()
    kernel = _make_kernel(w)
    arguments = w.make_args(cp)

    def elapsed_ns(launches: int) -> float:
        begin_event = cp.cuda.Event()
        end_event = cp.cuda.Event()
        begin_event.record()
        for _ in range(launches):
            kernel(w.grid, w.block, arguments, shared_mem=w.shared_bytes)
        end_event.record()
        end_event.synchronize()
        return float(cp.cuda.get_elapsed_time(begin_event, end_event) * 1e6 / launches)

    elapsed_ns(3)
    single_ns = statistics.median(elapsed_ns(1) for _ in range(REPEATS))
    in_a_row_ns = statistics.median(elapsed_ns(ROW) for _ in range(REPEATS))
    return {"name": w.name, "alone_ns": round(single_ns, 1), "in_a_row_ns": round(in_a_row_ns, 1)}


def record_traces(launches: list[ShownLaunch], recorder: Recorder) -> None:
    """Record the notebooks' launches, and some of the corpus."""
    session.use_device("cuda")
    for title, workload_name in BLOCK_TRACES.items():
        traced_workload = find_workload(workload_name)
        source = KernelSource(traced_workload.kernel, traced_workload.code)
        launches.append(
            ShownLaunch(
                title,
                Launch(
                    source,
                    traced_workload.grid,
                    traced_workload.block,
                    traced_workload.make_args(np),
                    traced_workload.shared_bytes,
                ),
            )
        )
    record_blocks(launches, recorder)
    record_warps(map(find_case, WARP_TRACES), SEED, recorder)


def _read_versions(driver: str | None, *, with_ncu: bool) -> dict[str, str]:
    import cupy

    runtime = cupy.cuda.runtime
    versions = {
        "driver": driver or "",
        "CUDA": ".".join(map(str, parse_cuda_version(runtime.runtimeGetVersion()))),
        "NVRTC": ".".join(map(str, cupy.cuda.nvrtc.getVersion())),
        "CuPy": cupy.__version__,
        "NumPy": np.__version__,
    }
    return {**versions, "ncu": nsight.read_version()} if with_ncu else versions


if __name__ == "__main__":
    sys.exit(main())
