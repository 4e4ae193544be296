"""Record Nsight Compute's counters of `cases` and `patterns` on a real GPU.

    python -m tests.counters.record --images FOLDER --make      # where NVRTC is: machine code into FOLDER
    python -m tests.counters.record --images FOLDER --out FILE  # where the GPU and ncu are

Machine code is made once and carried to the GPU, so that what was counted can be disassembled anywhere.
"""

from __future__ import annotations

import argparse
import datetime
import json
import subprocess
import sys
import time
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from tests.counters import patterns
from tests.counters.cases import CASES, Shape, source
from tools.recordings import nsight
from virtualgpu.compile import nvrtc

TARGET = 90
VERSION = 1
BUDGET_S = 215.0
GROUP_S = 75.0

_MEMORY = tuple(
    f"l1tex__t_{what}_pipe_lsu_mem_global_op_{op}.sum"
    for what in ("requests", "sectors")
    for op in ("ld", "st", "red", "atom")
)
_SHARED = tuple(
    name.format(op)
    for op in ("ld", "st", "atom")
    for name in (
        "l1tex__data_bank_conflicts_pipe_lsu_mem_shared_op_{}.sum",
        "l1tex__data_pipe_lsu_wavefronts_mem_shared_op_{}.sum",
        "smsp__inst_executed_op_shared_{}.sum",
    )
)
_SHARED_ALL = (
    "l1tex__data_bank_conflicts_pipe_lsu_mem_shared.sum",
    "l1tex__data_pipe_lsu_wavefronts_mem_shared.sum",
)
_SASS = (
    *(f"smsp__sass_inst_executed_op_global_{op}.sum" for op in ("ld", "st", "atom", "red")),
    *(f"smsp__sass_inst_executed_op_shared_{op}.sum" for op in ("ld", "st", "atom")),
    "smsp__sass_branch_targets_threads_divergent.sum",
    "smsp__sass_branch_targets.sum",
    "smsp__inst_executed.sum",
)


def files() -> tuple[str, ...]:
    """Return every source file that is measured."""
    return tuple(sorted({c.file for c in CASES} | {patterns.FILE}))


def make(folder: Path) -> None:
    """Compile every file to machine code as `RawKernel` does, with line information."""
    folder.mkdir(parents=True, exist_ok=True)
    for file in files():
        image = nvrtc.compile_cubin(source(file), target=TARGET, options=("-lineinfo", *nvrtc.CUPY_OPTIONS))
        (folder / f"{file}bin").write_bytes(image.cubin)
    (folder / "nvrtc.txt").write_text(".".join(map(str, nvrtc.read_version())))


def record(images: Path, out: Path) -> None:
    """Run everything under ncu, and keep the results up to the time limit."""
    start = time.monotonic()
    known = _known_metrics()
    recording: dict[str, Any] = {
        "format": "gpulab-counters",
        "version": VERSION,
        **_machine(images),
        "kernels": {},
        "patterns": {},
        "notes": [],
    }

    def run(name: str, launches: Sequence[tuple[str, str]], names: Iterable[str]) -> dict[str, Any]:
        metrics = [m for m in names if m in known]
        start_s = time.monotonic()
        left = BUDGET_S - (start_s - start)
        if left < 10:
            recording["notes"].append(f"{name}: no time left")
            return {}
        command = [sys.executable, "-m", "tests.counters.record", "--images", str(images), "--launch", name]
        try:
            values = nsight.profile(
                command, [kernel for kernel, _ in launches], metrics, timeout_s=min(left, GROUP_S)
            )
        except (nsight.NsightError, subprocess.TimeoutExpired) as error:
            recording["notes"].append(f"{name}: {str(error)[:300]}")
            return {}
        print(
            f"{name}: {len(values)} of {len(launches)} launches, {len(metrics)} metrics, "
            f"{time.monotonic() - start_s:.1f} s",
            flush=True,
        )
        table: dict[str, Any] = {"metrics": metrics}
        for (kernel, key), launch in zip(launches, values, strict=False):
            if kernel != launch.kernel:
                recording["notes"].append(f"{name}: {kernel} expected, {launch.kernel} seen")
                return {}
            table.setdefault(kernel, {})[key] = [int(launch.metrics.get(m, -1)) for m in metrics]
        out.write_text(dump(recording))
        return table

    groups = patterns.groups()
    recording["kernels"] = run("kernels", _kernel_launches(), [*_MEMORY, *_SHARED, *_SHARED_ALL, *_SASS])
    for prefix, metrics in (
        ("shared_load", [m for m in _SHARED if "_ld" in m]),
        ("shared_store", [m for m in _SHARED if "_st" in m]),
        *(
            (f"shared_{kind}_", (*_SHARED, *_SHARED_ALL))
            for kind in ("red", "atom", "count", "ticket", "max", "exch", "cas")
        ),
        ("global", _MEMORY),
    ):
        chosen = [g for g in groups if g.startswith(prefix)]
        launches = [(g, p.name) for g in chosen for p in groups[g]]
        recording["patterns"][prefix.rstrip("_")] = run(prefix, launches, metrics)
    out.write_text(dump(recording))
    print("\n".join(recording["notes"]))


def dump(data: dict[str, Any]) -> str:
    """Return JSON with one kernel per line."""
    head = {key: value for key, value in data.items() if key not in ("kernels", "patterns")}
    sections = {"kernels": {"": data["kernels"]}, "patterns": data["patterns"]}
    lines = [f"{json.dumps(key)}: {json.dumps(value)}" for key, value in head.items()]
    for section, tables in sections.items():
        parts = [
            (f"{json.dumps(name)}: " if name else "")
            + "{\n"
            + ",\n".join(f"{json.dumps(k)}: {json.dumps(v, separators=(',', ':'))}" for k, v in table.items())
            + "\n}"
            for name, table in tables.items()
        ]
        body = ",\n".join(parts)
        lines.append(f'"{section}": ' + (body if section == "kernels" else "{\n" + body + "\n}"))
    return "{\n" + ",\n".join(lines) + "\n}\n"


def launch(images: Path, name: str) -> None:
    """Run every case in every size, or the patterns of some kernels, under ncu."""
    import cupy as cp

    modules = {file: cp.RawModule(path=str(images / f"{file}bin")) for file in files()}
    if name == "kernels":
        for c in CASES:
            kernel = modules[c.file].get_function(c.kernel)
            for size in c.sizes:
                _launch(cp, kernel, c.shape(size))
        return
    import numpy as np

    for group, chosen in patterns.groups().items():
        if not group.startswith(name):
            continue
        kernel = modules[patterns.FILE].get_function(group)
        data = cp.zeros(2048 * 16, cp.uint8)
        for pattern in chosen:
            places = cp.asarray(np.array(pattern.places, np.int32))
            kernel((1,), (32,), (places, np.uint32(pattern.mask), data), shared_mem=patterns.SHARED_BYTES)
    cp.cuda.Device().synchronize()


def _launch(cp: Any, kernel: Any, shape: Shape) -> None:
    import numpy as np

    values = tuple(cp.asarray(v) if isinstance(v, np.ndarray) else v for v in shape.values)
    kernel(shape.grid, shape.block, values, shared_mem=shape.shared_bytes)
    cp.cuda.Device().synchronize()


def _kernel_launches() -> list[tuple[str, str]]:
    return [(c.kernel, str(size)) for c in CASES for size in c.sizes]


def _known_metrics() -> set[str]:
    """Return the metrics that this ncu has for this GPU."""
    done = subprocess.run(["ncu", "--query-metrics"], capture_output=True, text=True, check=False)
    bases = {line.split()[0] for line in done.stdout.splitlines() if line.strip()}
    metrics = (*_MEMORY, *_SHARED, *_SHARED_ALL, *_SASS)
    missing = [m for m in metrics if m.removesuffix(".sum") not in bases]
    print(f"{len(bases)} metrics; missing: {', '.join(missing)}", flush=True)
    return set(metrics) - set(missing)


def _machine(images: Path) -> dict[str, Any]:
    import cupy as cp

    query = ["nvidia-smi", "--query-gpu=driver_version", "--format=csv,noheader"]
    smi = subprocess.run(query, capture_output=True, text=True, check=False).stdout.split()
    return {
        "device": cp.cuda.runtime.getDeviceProperties(0)["name"].decode(),
        "date": datetime.datetime.now(datetime.UTC).date().isoformat(),
        "versions": {
            "driver": smi[0] if smi else "",
            "ncu": nsight.read_version(),
            "CuPy": cp.__version__,
            "NVRTC": (images / "nvrtc.txt").read_text(),
        },
    }


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--images", type=Path, required=True)
    parser.add_argument("--out", type=Path)
    parser.add_argument("--make", action="store_true")
    parser.add_argument("--launch")
    options = parser.parse_args()
    if options.make:
        make(options.images)
    elif options.launch:
        launch(options.images, options.launch)
    else:
        record(options.images, options.out)
    return 0


if __name__ == "__main__":
    sys.exit(main())
