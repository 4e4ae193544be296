"""Record the library routines and kernels of operations of CuPy and PyTorch, for `gl.library_calls`.

    python -m tools.recordings.calls --out FOLDER [--seconds 90]     # where a GPU, CuPy and PyTorch are

Several processes take turns through `tools.recordings.call_cases`, most wanted cases first; each writes a
line for each case, so that what there is when time is up is kept. Kernels are seen by CUPTI under the names
that `gl.timeline` shows; routines are counted by `tools.recordings.library_calls`. Into FOLDER go
``h200_calls.json.xz`` (the shipped file, named after the GPU) and ``calls_notes.txt``: what failed, and why.
"""

from __future__ import annotations

import argparse
import datetime
import importlib
import json
import lzma
import re
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np

from tools.recordings.call_cases import CallCase, list_cases
from tools.recordings.library_calls import LibraryCalls
from virtualgpu.records.io import VERSION
from virtualgpu.records.libraries.known import FORMAT

PROCESSES = {"cupy": 5, "torch": 4}
_LIBRARIES = r"(lib)?(cublas|cusolver|cusparse|cufft|curand|cudnn|nccl)"
# What only prepares or asks; left are the routines that work.
_PREPARING_NAMES = re.compile(
    r"Create|Destroy|Set[A-Z]|Get[A-Z]|Plan|Finalize|[bB]ufferSize|Attribute|Heuristic|Descr$|Init$|Logger"
    r"|Estimate|Version|Workspace|_get"
)
_WARM_UPS = 2


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--out", type=Path, required=True, help="folder to write to")
    parser.add_argument("--seconds", type=float, default=90.0, help="for all of it together")
    parser.add_argument("--part", help=argparse.SUPPRESS)  # package, number, of how many, until
    options = parser.parse_args()
    options.out.mkdir(parents=True, exist_ok=True)
    if options.part:
        package, process_number, process_count, until_s = options.part.split(",")
        record_part(package, int(process_number), int(process_count), float(until_s), options.out)
        return 0
    return record(options.out, options.seconds)


def record(folder: Path, seconds: float) -> int:
    """Run all recording processes within the time limit, and join their results."""
    start_s = time.time()
    parts_folder = folder / "parts"
    parts_folder.mkdir(exist_ok=True)
    deadline_s = start_s + seconds - 6
    process_by_part = {}
    for package, process_count in PROCESSES.items():
        for process_number in range(process_count):
            part_arguments = f"{package},{process_number},{process_count},{deadline_s}"
            command = [
                sys.executable,
                "-m",
                __spec__.name,
                "--out",
                str(parts_folder),
                "--part",
                part_arguments,
            ]
            with (parts_folder / f"{package}_{process_number}.log").open("wb") as log:
                process_by_part[package, process_number] = subprocess.Popen(
                    command, stdout=log, stderr=subprocess.STDOUT
                )
    notes = []
    for (package, process_number), process in process_by_part.items():
        try:
            status = process.wait(max(1.0, start_s + seconds - time.time()))
        except subprocess.TimeoutExpired:
            process.kill()
            status = process.wait()
        log_text = (parts_folder / f"{package}_{process_number}.log").read_text(errors="replace").strip()
        if status or log_text:
            notes.append(f"{package} {process_number} ended with {status}: {log_text[-1500:]}")
    result_lines = [
        line for file in sorted(parts_folder.glob("*.jsonl")) for line in file.read_text().splitlines()
    ]
    recording = join(result_lines)
    notes += recording.pop("notes")
    case_count = sum(len(list_cases(package)) for package in PROCESSES)
    notes.append(f"{len(recording['calls'])} of {case_count} cases in {time.time() - start_s:.0f} s")
    device = re.sub(r"\W+", "_", recording["device"].lower().removeprefix("nvidia ")).strip("_") or "gpu"
    file = folder / f"{device}_calls.json.xz"
    file.write_bytes(pack_content(recording))
    (folder / "calls_notes.txt").write_text("\n".join(notes) + "\n")
    for part_path in parts_folder.iterdir():
        part_path.unlink()
    parts_folder.rmdir()
    print(f"{file} ({file.stat().st_size:,} bytes): {notes[-1]}")
    return 0 if recording["calls"] else 1


def join(lines: list[str]) -> dict[str, Any]:
    """Join the processes' lines to the contents of the shipped file. ``notes`` is removed later."""
    content: dict[str, Any] = {"format": FORMAT, "version": VERSION, "device": "", "date": "", "versions": {}}
    rows_by_key: dict[tuple[str, ...], list[Any]] = {}
    notes = []
    for line in lines:
        try:
            row = json.loads(line)
        except ValueError:  # a process that was ended as it wrote
            continue
        if "device" in row:
            content |= {"device": row["device"], "date": row["date"]}
            content["versions"] |= row["versions"]
        elif "error" in row:
            notes.append(f"{' '.join(row['key'])}: {row['error']}")
        else:
            rows_by_key[tuple(row["key"])] = [*row["key"], row["routines"], row["kernels"]]
    key_order = [tuple(case.key) for package in PROCESSES for case in list_cases(package)]
    content["calls"] = [rows_by_key[key] for key in key_order if key in rows_by_key]
    return {**content, "notes": notes}


def pack_content(content: dict[str, Any]) -> bytes:
    """Return the contents as a compressed file."""
    return lzma.compress(json.dumps(content, separators=(",", ":")).encode(), preset=9 | lzma.PRESET_EXTREME)


def filter_working_routines(routines: Counter[str]) -> list[tuple[str, int]]:
    """Return the routines that compute, without those that prepare or query."""
    return sorted(
        (name, call_count) for name, call_count in routines.items() if not _PREPARING_NAMES.search(name)
    )


def record_part(package: str, number: int, process_count: int, until: float, folder: Path) -> None:
    """Record every `process_count`-th case of a package until a given time."""
    from gpulab import session

    session.use_device("cuda")
    xp, namespace, versions = _import_package(package)
    library_calls = LibraryCalls(_LIBRARIES, "^lib(cu|nccl)")
    file = folder / f"{package}_{number}.jsonl"
    with file.open("a") as lines_file:

        def write_row(row: dict[str, Any]) -> None:
            lines_file.write(json.dumps(row) + "\n")
            lines_file.flush()

        info = session.backend().device_info()
        versions["driver"] = info.driver or ""
        date = datetime.datetime.now(datetime.UTC).date().isoformat()
        write_row({"device": info.name, "date": date, "versions": versions})
        for case in list_cases(package)[number::process_count]:
            if time.time() > until:
                write_row({"key": case.key, "error": "no time was left, nor for those behind it"})
                return
            try:
                _set_tensor_cores(package, xp, case.dtype == "tf32")
                routines, kernels = _run_case(case, namespace, library_calls)
            except Exception as error:
                write_row({"key": case.key, "error": f"{type(error).__name__}: {str(error)[:300]}"})
                continue
            write_row({"key": case.key, "routines": routines, "kernels": kernels})


def _run_case(case: CallCase, space: dict[str, Any], library_calls: LibraryCalls) -> tuple[Any, Any]:
    """Return routines and kernels of one case, in the order of their first run, after warm-up calls."""
    from gpulab import session

    cp = session.cp()
    function = case.function(space)
    for _ in range(_WARM_UPS):
        function()
        cp.cuda.Device().synchronize()
    library_calls.watch()
    recorder = session.backend().timeline_recorder()
    recorder.start()
    if recorder.blind_reason:
        recorder.stop()
        raise RuntimeError(recorder.blind_reason)
    library_calls.clear()
    try:
        result = function()
        cp.cuda.Device().synchronize()
        routines = library_calls.counted()
    finally:
        timeline = recorder.stop()
    del result
    kernels = Counter(_name_activity(activity) for activity in timeline.activities)
    del kernels[""]
    return filter_working_routines(routines), list(kernels.items())


def _name_activity(activity: Any) -> str:
    """Return a kernel's name, or the kind of a copy or memset in the words of the shipped record."""
    if activity.kind == "CONCURRENT_KERNEL":
        return str(activity.name)
    name = str(activity.name).lower()
    return name if name.startswith(("memset", "memcpy")) else ""


def _import_package(package: str) -> tuple[Any, dict[str, Any], dict[str, str]]:
    """Return a package, the names that its cases use, and its version."""
    if package == "cupy":
        import cupy

        sparse = importlib.import_module("cupyx.scipy.sparse")
        linalg = importlib.import_module("cupyx.scipy.sparse.linalg")
        namespace = {"xp": cupy, "np": np, "sparse": sparse, "sparse_linalg": linalg}
        return cupy, namespace, {"CuPy": cupy.__version__}
    torch = importlib.import_module("torch")
    torch.set_grad_enabled(False)
    versions = {"PyTorch": torch.__version__, "cuDNN": str(torch.backends.cudnn.version())}
    return torch, {"xp": torch, "np": np, "F": torch.nn.functional}, versions


def _set_tensor_cores(package: str, xp: Any, tf32: bool) -> None:
    """Set whether float32 is rounded to TF32."""
    if package == "torch":
        xp.backends.cuda.matmul.allow_tf32 = xp.backends.cudnn.allow_tf32 = tf32
        return
    routines = importlib.import_module("cupy._core._routines_linalg")
    if tf32:
        routines.set_compute_type(np.float32, routines.COMPUTE_TYPE_TF32)
    elif routines.get_compute_type(np.float32) == getattr(routines, "COMPUTE_TYPE_TF32", None):
        routines.set_compute_type(np.float32, routines.COMPUTE_TYPE_DEFAULT)


if __name__ == "__main__":
    sys.exit(main())
