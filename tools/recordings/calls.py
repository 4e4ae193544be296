"""Record which library routines and kernels operations of CuPy and PyTorch end in, for `gl.library_calls`.

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

from tools.recordings.call_cases import CallCase, cases
from tools.recordings.library_calls import LibraryCalls
from virtualgpu.records.io import VERSION
from virtualgpu.records.libraries.known import FORMAT

PROCESSES = {"cupy": 5, "torch": 4}
_LIBRARIES = r"(lib)?(cublas|cusolver|cusparse|cufft|curand|cudnn|nccl)"
# What only prepares or asks; left are the routines that work.
_PREPARES = re.compile(
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
        package, number, of, until = options.part.split(",")
        record_part(package, int(number), int(of), float(until), options.out)
        return 0
    return record(options.out, options.seconds)


def record(out: Path, seconds: float) -> int:
    """Let all processes record, wait for them as long as there is time, and join what they wrote."""
    begun = time.time()
    parts = out / "parts"
    parts.mkdir(exist_ok=True)
    until = begun + seconds - 6
    started = {}
    for package, of in PROCESSES.items():
        for number in range(of):
            part = f"{package},{number},{of},{until}"
            call = [sys.executable, "-m", __spec__.name, "--out", str(parts), "--part", part]
            with (parts / f"{package}_{number}.log").open("wb") as log:
                started[package, number] = subprocess.Popen(call, stdout=log, stderr=subprocess.STDOUT)
    notes = []
    for (package, number), process in started.items():
        try:
            status = process.wait(max(1.0, begun + seconds - time.time()))
        except subprocess.TimeoutExpired:
            process.kill()
            status = process.wait()
        said = (parts / f"{package}_{number}.log").read_text(errors="replace").strip()
        if status or said:
            notes.append(f"{package} {number} ended with {status}: {said[-1500:]}")
    lines = [line for file in sorted(parts.glob("*.jsonl")) for line in file.read_text().splitlines()]
    told = join(lines)
    notes += told.pop("notes")
    wanted = sum(len(cases(package)) for package in PROCESSES)
    notes.append(f"{len(told['calls'])} of {wanted} cases in {time.time() - begun:.0f} s")
    device = re.sub(r"\W+", "_", told["device"].lower().removeprefix("nvidia ")).strip("_") or "gpu"
    file = out / f"{device}_calls.json.xz"
    file.write_bytes(packed(told))
    (out / "calls_notes.txt").write_text("\n".join(notes) + "\n")
    for old in parts.iterdir():
        old.unlink()
    parts.rmdir()
    print(f"{file} ({file.stat().st_size:,} bytes): {notes[-1]}")
    return 0 if told["calls"] else 1


def join(lines: list[str]) -> dict[str, Any]:
    """The shipped file's contents, of the lines that the processes wrote; ``notes`` are to be taken out."""
    told: dict[str, Any] = {"format": FORMAT, "version": VERSION, "device": "", "date": "", "versions": {}}
    found: dict[tuple[str, ...], list[Any]] = {}
    notes = []
    for line in lines:
        try:
            row = json.loads(line)
        except ValueError:  # a process that was ended as it wrote
            continue
        if "device" in row:
            told |= {"device": row["device"], "date": row["date"]}
            told["versions"] |= row["versions"]
        elif "error" in row:
            notes.append(f"{' '.join(row['key'])}: {row['error']}")
        else:
            found[tuple(row["key"])] = [*row["key"], row["routines"], row["kernels"]]
    order = [tuple(case.key) for package in PROCESSES for case in cases(package)]
    told["calls"] = [found[key] for key in order if key in found]
    return {**told, "notes": notes}


def packed(told: dict[str, Any]) -> bytes:
    """The file as it ships."""
    return lzma.compress(json.dumps(told, separators=(",", ":")).encode(), preset=9 | lzma.PRESET_EXTREME)


def working(routines: Counter[str]) -> list[tuple[str, int]]:
    """Routines that compute; those that prepare and ask are left out."""
    return sorted((name, times) for name, times in routines.items() if not _PREPARES.search(name))


def record_part(package: str, number: int, of: int, until: float, out: Path) -> None:
    """Record every so many cases of a package, until the time (as `time.time` has it) is up."""
    from gpulab import session

    session.use_device("cuda")
    xp, space, versions = _package(package)
    watched = LibraryCalls(_LIBRARIES, "^lib(cu|nccl)")
    file = out / f"{package}_{number}.jsonl"
    with file.open("a") as lines:

        def tell(row: dict[str, Any]) -> None:
            lines.write(json.dumps(row) + "\n")
            lines.flush()

        info = session.backend().device_info()
        versions["driver"] = info.driver or ""
        date = datetime.datetime.now(datetime.UTC).date().isoformat()
        tell({"device": info.name, "date": date, "versions": versions})
        for case in cases(package)[number::of]:
            if time.time() > until:
                tell({"key": case.key, "error": "no time was left, nor for those behind it"})
                return
            try:
                _tensor_cores(package, xp, case.dtype == "tf32")
                routines, kernels = _one(case, space, watched)
            except Exception as error:
                tell({"key": case.key, "error": f"{type(error).__name__}: {str(error)[:300]}"})
                continue
            tell({"key": case.key, "routines": routines, "kernels": kernels})


def _one(case: CallCase, space: dict[str, Any], watched: LibraryCalls) -> tuple[Any, Any]:
    """Routines and kernels of one case, in the order of their first run; libraries are loaded by then."""
    from gpulab import session

    cp = session.cp()
    function = case.function(space)
    for _ in range(_WARM_UPS):
        function()
        cp.cuda.Device().synchronize()
    watched.watch()
    recorder = session.backend().timeline_recorder()
    recorder.start()
    if recorder.blind:
        recorder.stop()
        raise RuntimeError(recorder.blind)
    watched.clear()
    try:
        kept = function()
        cp.cuda.Device().synchronize()
        routines = watched.counted()
    finally:
        seen = recorder.stop()
    del kept
    kernels = Counter(_ran(each) for each in seen.activities)
    del kernels[""]
    return working(routines), list(kernels.items())


def _ran(activity: Any) -> str:
    """A kernel's name; of a copy or memset its kind, in the words of the shipped record."""
    if activity.kind == "CONCURRENT_KERNEL":
        return str(activity.name)
    name = str(activity.name).lower()
    return name if name.startswith(("memset", "memcpy")) else ""


def _package(package: str) -> tuple[Any, dict[str, Any], dict[str, str]]:
    """A package, what cases name of it, and its version."""
    if package == "cupy":
        import cupy

        sparse = importlib.import_module("cupyx.scipy.sparse")
        linalg = importlib.import_module("cupyx.scipy.sparse.linalg")
        space = {"xp": cupy, "np": np, "sparse": sparse, "sparse_linalg": linalg}
        return cupy, space, {"CuPy": cupy.__version__}
    torch = importlib.import_module("torch")
    torch.set_grad_enabled(False)
    versions = {"PyTorch": torch.__version__, "cuDNN": str(torch.backends.cudnn.version())}
    return torch, {"xp": torch, "np": np, "F": torch.nn.functional}, versions


def _tensor_cores(package: str, xp: Any, tf32: bool) -> None:
    """Whether float32 may be rounded to TF32."""
    if package == "torch":
        xp.backends.cuda.matmul.allow_tf32 = xp.backends.cudnn.allow_tf32 = tf32
        return
    kinds = importlib.import_module("cupy._core._routines_linalg")
    if tf32:
        kinds.set_compute_type(np.float32, kinds.COMPUTE_TYPE_TF32)
    elif kinds.get_compute_type(np.float32) == getattr(kinds, "COMPUTE_TYPE_TF32", None):
        kinds.set_compute_type(np.float32, kinds.COMPUTE_TYPE_DEFAULT)


if __name__ == "__main__":
    sys.exit(main())
