"""Record Nsight Compute's cache counters for the kernels of `tools.corpus.caching`.

    python -m tools.recordings.caches --out FILE      # where the GPU and ncu are; about 90 s

Each launch is counted twice: after its caches were emptied (``cold``), and as it follows a launch of its own
(``warm``), then by so few counters that it need not run again for them: what Nsight Compute does between two
runs empties L2. The launching program stops when its time is up, so that what was counted until then is kept.
"""

from __future__ import annotations

import argparse
import datetime
import json
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tools.corpus.caching import CASES, CacheCase, read_code
from tools.recordings import nsight

VERSION = 1
LAUNCH_S = 32.0
STATES = ("cold", "warm")

_L1_METRICS = tuple(
    f"l1tex__t_sectors_pipe_lsu_mem_{where}{what}.sum"
    for where in (
        "global_op_ld",
        "global_op_st",
        "global_op_red",
        "global_op_atom",
        "local_op_ld",
        "local_op_st",
    )
    for what in ("", "_lookup_hit")
)
_L2_METRICS = (
    *(
        f"lts__t_sectors{of}{what}.sum"
        for of in ("", "_op_read", "_op_write", "_op_red", "_op_atom", "_srcunit_tex", "_srcunit_ltcfabric")
        for what in ("", "_lookup_hit")
    ),
    *(
        f"lts__t_sectors_srcunit_tex_op_{op}{what}.sum"
        for op in ("read", "write")
        for what in ("", "_lookup_hit")
    ),
)
_OTHER_METRICS = (
    "l1tex__t_sector_hit_rate.pct",
    "lts__t_sector_hit_rate.pct",
    "dram__bytes_read.sum",
    "dram__bytes_write.sum",
    "idc__requests.sum",
    "idc__requests_lookup_hit.sum",
    "smsp__inst_executed.sum",
    "gpu__time_duration.sum",
    "launch__shared_mem_config_size",
    "launch__registers_per_thread",
    "launch__occupancy_limit_warps",
)
METRICS = (*_L1_METRICS, *_L2_METRICS, *_OTHER_METRICS)
WARM_METRICS = (
    "lts__t_sectors_srcunit_tex.sum",
    "lts__t_sectors_srcunit_tex_lookup_hit.sum",
    "dram__bytes_read.sum",
    "dram__bytes_write.sum",
)
# Prefixes of the metric names to list in a file, in case another metric is needed.
WORTH_KNOWING = ("l1tex__t_", "l1tex__m_", "lts__t_", "lts__d_", "idc__", "gcc__", "dram__", "sm__icc")


def record(path: Path, states: Sequence[str], kernels: Sequence[str]) -> None:
    """Run all cases under ncu; at the time limit, write the results so far."""
    expected_launches = list_launches(kernels)
    start_s = time.monotonic()
    metrics_output = subprocess.run(
        ["ncu", "--query-metrics"], capture_output=True, text=True, check=False
    ).stdout
    known_metrics = sorted({line.split()[0] for line in metrics_output.splitlines() if line.strip()})
    metrics = [m for m in METRICS if m.startswith("launch__") or m.rsplit(".", 1)[0] in known_metrics]
    print(f"{len(known_metrics)} metrics known, without {sorted(set(METRICS) - set(metrics))}", flush=True)
    names_path = path.with_name("cache_metric_names.txt")
    names_path.write_text("\n".join(b for b in known_metrics if b.startswith(WORTH_KNOWING)) + "\n")
    recording: dict[str, Any] = {
        "format": "gpulab-caches",
        "version": VERSION,
        **_describe_machine(),
        "metrics": metrics,
        "kernels": {},
        "notes": [],
    }
    for state in states:
        state_start_s = time.monotonic()
        try:
            state_metrics = metrics if state == "cold" else [m for m in metrics if m in WARM_METRICS]
            launches = _profile(state, state_metrics, kernels)
        except (nsight.NsightError, subprocess.TimeoutExpired) as error:
            recording["notes"].append(f"{state}: {str(error)[:600]}")
            print(recording["notes"][-1], flush=True)
            continue
        expected_keys = [(c.kernel, str(size)) for c, size in expected_launches]
        launches_per_case = 1 if state == "cold" else 2
        last_launches = launches[launches_per_case - 1 :: launches_per_case]
        if [launch.kernel for launch in last_launches] != [
            kernel for kernel, _ in expected_keys[: len(last_launches)]
        ]:
            recording["notes"].append(f"{state}: the launches are not those expected")
            continue
        for (kernel, size), launch in zip(expected_keys, last_launches, strict=False):
            metric_values = [round(launch.metrics.get(m, -1.0), 2) for m in metrics]
            counts_by_state = recording["kernels"].setdefault(kernel, {}).setdefault(size, {})
            counts_by_state[state] = [int(x) if x == int(x) else x for x in metric_values]
        print(
            f"{state}: {len(last_launches)} of {len(expected_keys)} launches, "
            f"{time.monotonic() - state_start_s:.1f} s",
            flush=True,
        )
        path.write_text(dump_json(recording))
    path.write_text(dump_json(recording))
    print(f"{path} ({path.stat().st_size:,} bytes), {time.monotonic() - start_s:.1f} s")


def list_launches(kernels: Sequence[str]) -> list[tuple[CacheCase, int]]:
    """Return all launches, those of middle sizes first, so that the time limit leaves out no kernel."""
    return [(c, c.sizes[k]) for k in (1, 0, 2) for c in CASES if c.kernel in kernels or not kernels]


def _profile(state: str, metrics: list[str], kernels: Sequence[str]) -> list[nsight.Launch]:
    names = "|".join(sorted(c.kernel for c in CASES))
    cache_control = "all" if state == "cold" else "none"
    command = [
        "ncu",
        "--clock-control",
        "none",
        "--cache-control",
        cache_control,
        "--csv",
        "--print-units",
        "base",
    ]
    command += ["--kernel-name", f"regex:^({names})$", "--metrics", ",".join(metrics)]
    command += [
        sys.executable,
        "-m",
        "tools.recordings.caches",
        "--launch",
        state,
        "--kernels",
        ",".join(kernels),
    ]
    process = subprocess.run(command, capture_output=True, text=True, timeout=3 * LAUNCH_S, check=False)
    launches = nsight.parse_csv(process.stdout)
    if not launches:
        raise nsight.NsightError(f"no counters: {(process.stdout + process.stderr)[-600:]}")
    return launches


def launch(state: str, kernels: Sequence[str]) -> None:
    """Run every case at every size, once or twice, in the process that ncu profiles."""
    import cupy as cp

    module = cp.RawModule(code=read_code())
    start_s = time.monotonic()
    for case, size in list_launches(kernels):
        if time.monotonic() - start_s > LAUNCH_S:
            return
        case_launch = case.launch(size)
        arguments = case_launch.arguments(cp)
        for _ in range(1 if state == "cold" else 2):
            module.get_function(case.kernel)(case_launch.grid, case_launch.block, arguments)
            cp.cuda.Device().synchronize()


def dump_json(data: dict[str, Any]) -> str:
    """Return JSON with one launch per line."""
    header_lines = [
        f"{json.dumps(key)}: {json.dumps(value)}" for key, value in data.items() if key != "kernels"
    ]
    kernel_lines = [
        f'"{kernel}": {{\n'
        + ",\n".join(
            f'"{size}": {json.dumps(counts_by_state, separators=(",", ":"))}'
            for size, counts_by_state in counts_by_size.items()
        )
        + "}"
        for kernel, counts_by_size in data["kernels"].items()
    ]
    return "{\n" + ",\n".join([*header_lines, '"kernels": {\n' + ",\n".join(kernel_lines) + "\n}"]) + "\n}\n"


def _describe_machine() -> dict[str, Any]:
    import cupy as cp

    query = ["nvidia-smi", "--query-gpu=driver_version", "--format=csv,noheader"]
    driver_words = subprocess.run(query, capture_output=True, text=True, check=False).stdout.split()
    return {
        "device": cp.cuda.runtime.getDeviceProperties(0)["name"].decode(),
        "date": datetime.datetime.now(datetime.UTC).date().isoformat(),
        "versions": {
            "driver": driver_words[0] if driver_words else "",
            "ncu": nsight.read_version(),
            "CuPy": cp.__version__,
            "NVRTC": ".".join(map(str, cp.cuda.nvrtc.getVersion())),
        },
    }


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--out", type=Path)
    parser.add_argument("--states", default=",".join(STATES))
    parser.add_argument("--kernels", default="", help="names with commas between; all by default")
    parser.add_argument("--launch", choices=STATES)
    options = parser.parse_args()
    kernels = [name for name in options.kernels.split(",") if name]
    if options.launch:
        launch(options.launch, kernels)
    else:
        record(options.out, options.states.split(","), kernels)
    return 0


if __name__ == "__main__":
    sys.exit(main())
