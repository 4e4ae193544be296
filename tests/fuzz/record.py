"""Run the generated kernels on a real GPU through CuPy and keep what they answer.

``python -m tests.fuzz.record --count 2000 --output tests/fuzz/data/h200.json`` on a machine with a
GPU. Every kernel runs twice; one whose answers differ would show a race in the generator. With
``--values FOLDER`` the outputs themselves are kept too, to look for the place of a difference.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import multiprocessing
import os
import time
from pathlib import Path
from typing import Any

import numpy as np

from tests.fuzz import generator

FORMAT = 1


def source_digest(source: str) -> str:
    """What tells a recording of another generator from ours."""
    return hashlib.sha256(source.encode()).hexdigest()[:12]


def run_pack(first: int) -> dict[str, Any]:
    """Answers of one program's kernels."""
    import cupy

    source, kernels = generator.program(range(first, first + generator.PACK))
    started = time.monotonic()
    module = cupy.RawModule(code=source, options=generator.OPTIONS)
    found: dict[str, Any] = {"first": first, "source": source_digest(source), "digests": [], "odd": []}
    found["values"] = {}
    for k in kernels:
        answers = []
        for _ in range(2):
            data = generator.data(k)
            inputs = [cupy.asarray(array) for array in data.inputs]
            outputs = [cupy.asarray(array) for array in data.outputs]
            function = module.get_function(k.name)
            arguments = (*inputs, *outputs, np.int32(data.n), data.scale)
            function(k.grid, k.block, arguments, shared_mem=k.dynamic_shared_bytes)
            answers.append([array.get() for array in outputs])
        digests = [generator.digest(answer) for answer in answers]
        found["digests"].append(digests[0])
        if digests[0] != digests[1]:
            found["odd"].append(k.seed)
        found["values"][k.seed] = answers[0]
    found["seconds"] = time.monotonic() - started
    return found


def attempt(first: int) -> dict[str, Any]:
    try:
        return run_pack(first)
    except Exception as error:
        return {"first": first, "error": f"{type(error).__name__}: {error}"[:2000]}


def environment() -> dict[str, Any]:
    import cupy

    properties = cupy.cuda.runtime.getDeviceProperties(0)
    return {
        "device": properties["name"].decode(),
        "compute_capability": [properties["major"], properties["minor"]],
        "driver_cuda": cupy.cuda.runtime.driverGetVersion(),
        "nvrtc": list(cupy.cuda.nvrtc.getVersion()),
        "cupy": cupy.__version__,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--count", type=int, default=2000)
    parser.add_argument("--workers", type=int, default=min(12, os.cpu_count() or 1))
    parser.add_argument("--output", type=Path, required=True)
    parser.add_argument("--values", type=Path)
    arguments = parser.parse_args()
    os.environ["CUPY_CACHE_IN_MEMORY"] = "1"
    context = multiprocessing.get_context("spawn")
    firsts = range(0, arguments.count, generator.PACK)
    packs: dict[int, dict[str, Any]] = {}
    # A fault ruins a process's context: few packs for each process, and a fresh one for a second try.
    for per_process in (8, 1):
        missing = [f for f in firsts if "digests" not in packs.get(f, {})]
        with context.Pool(arguments.workers, maxtasksperchild=per_process) as pool:
            for pack in pool.imap_unordered(attempt, missing):
                packs[pack["first"]] = pack
                outcome = pack.get("error") or f"{pack['seconds']:.1f} s"
                print(pack["first"], outcome, pack.get("odd") or "", flush=True)
        if all("digests" in packs[f] for f in firsts):
            break
    good = [packs[f] for f in firsts if "digests" in packs[f]]
    record = {
        "format": FORMAT,
        **environment(),
        "options": list(generator.OPTIONS),
        "pack": generator.PACK,
        "sources": {str(p["first"]): p["source"] for p in good},
        "digests": {str(p["first"]): " ".join(p["digests"]) for p in good},
        "differed_between_runs": sorted(seed for p in good for seed in p["odd"]),
    }
    arguments.output.write_text(json.dumps(record, indent=0) + "\n", encoding="utf-8")
    if arguments.values:
        keep(arguments.values, good)


def keep(folder: Path, packs: list[dict[str, Any]]) -> None:
    """The outputs as they are, in files of moderate size."""
    for number, part in enumerate(np.array_split(np.arange(len(packs)), 4)):
        arrays = {
            f"{seed}_{position}": array
            for pack in part
            for seed, outputs in packs[pack]["values"].items()
            for position, array in enumerate(outputs)
        }
        np.savez_compressed(folder / f"values_{number}.npz", **arrays)


if __name__ == "__main__":
    main()
