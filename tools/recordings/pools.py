"""Record the behaviour of CuPy's memory pools on a GPU: ``python -m tools.recordings.pools --out FILE``.

Random programs (`pool_programs`) for the memory pool, the pool of page-locked memory, the driver's pool and
for changes of the allocator, and what unusual calls say (`pool_cases`). ``--virtual NAME`` lets a virtual GPU
stand for the real one, to try it out. Each part runs in a process of its own; a case that ends the process is
noted and passed over. About a minute.
"""

from __future__ import annotations

import argparse
import gc
import json
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from importlib import import_module
from pathlib import Path
from typing import Any

from tools.recordings import pool_cases, pool_programs

FORMAT = "gpulab-pools"
LIMIT_S = 45
COUNTS = {"pool": 1050, "ties": 150, "pinned": 250, "ordered": 60, "nested": 150}
TIES_FROM = 10_000  # seeds of the programs in which free blocks may fit equally well


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the parts and write their results; return the process's exit status."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, help="file for the results, as JSON")
    parser.add_argument("--virtual", default="", help="a virtual GPU's name, in the place of a real one")
    parser.add_argument("--only", nargs="*", choices=PARTS, help="these parts alone")
    parser.add_argument("--count", type=int, default=0, help="how many programs of each kind")
    parser.add_argument("--part", help=argparse.SUPPRESS)
    parser.add_argument("--after", default="", help=argparse.SUPPRESS)
    options = parser.parse_args(arguments)
    if options.part:
        cp = _import_cupy(options.virtual)
        COUNTS.update(dict.fromkeys(COUNTS, options.count) if options.count else {})
        for line in PARTS[options.part](cp, options.after):
            print(json.dumps(line), flush=True)
        return 0
    results: dict[str, Any] = {"format": FORMAT, "version": 1}
    for part in options.only or PARTS:
        start_s = time.perf_counter()
        results[part] = _run_part(part, options)
        print(
            f"{part}: {time.perf_counter() - start_s:.1f} s, {results[part].get('failed', 'ok')}", flush=True
        )
    results_json = json.dumps(results, separators=(",", ":"))
    if options.out:
        options.out.write_text(f"{results_json}\n", encoding="utf-8")
    print(f"{len(results_json):,} bytes")
    return 0


def _import_cupy(virtual: str) -> Any:
    if virtual:
        return import_module("tests.real.second_copy").dress(virtual)
    cupy = import_module("cupy")
    cupy.zeros(1)
    return cupy


def _run_part(part: str, options: argparse.Namespace) -> dict[str, Any]:
    """Return the results of a part; its process prints each ``[name, value]`` on a line."""
    results: dict[str, Any] = {}
    while True:
        last_name = next(reversed(results), "")
        command = [sys.executable, "-m", "tools.recordings.pools", "--part", part, "--after", last_name]
        command += ["--virtual", options.virtual, "--count", str(options.count)]
        try:
            process = subprocess.run(
                command,
                capture_output=True,
                text=True,
                timeout=LIMIT_S,
                check=False,
                stdin=subprocess.DEVNULL,
            )
        except subprocess.TimeoutExpired as timeout:
            output = (timeout.stdout or b"").decode()
            failure_text = f"not done within {LIMIT_S} s"
        else:
            output = process.stdout
            failure_text = (
                f"ended with {process.returncode}: {(process.stderr.strip().splitlines() or [''])[-1][:300]}"
            )
            failure_text = "" if process.returncode == 0 else failure_text
        results |= dict(json.loads(line) for line in output.splitlines() if line.startswith("["))
        if not failure_text:
            return results
        names = list(pool_cases.CASES) if part == "cases" else []
        fatal_names = (
            names[names.index(next(reversed(results), "")) + 1 :][:1] if results and names else names[:1]
        )
        if not fatal_names:
            return results | {"failed": failure_text}
        results[fatal_names[0]] = failure_text


def _describe_device(cp: Any, last_name: str) -> Any:
    properties = cp.cuda.runtime.getDeviceProperties(0)
    runtime = cp.cuda.runtime
    yield "device", properties["name"].decode()
    yield "capacity_bytes", runtime.memGetInfo()[1]
    yield "cupy", cp.__version__
    yield "driver", runtime.driverGetVersion()
    yield "python", sys.version.split()[0]
    yield "date", time.strftime("%Y-%m-%d")


def _make_recorder(kind: str) -> Callable[[Any, str], Any]:
    def record(cp: Any, last_name: str) -> Any:
        gc.freeze()
        gc.disable()
        capacity_bytes = cp.cuda.runtime.memGetInfo()[1]
        program_count = COUNTS[kind]
        state_tables = []
        error_by_program = {}
        for program_number in range(program_count):
            try:
                if kind in ("pool", "ties"):
                    seed = program_number + (TIES_FROM if kind == "ties" else 0)
                    state_tables.append(pool_programs.run(cp, seed, capacity_bytes, kind == "ties"))
                else:
                    state_tables.append(getattr(pool_programs, kind)(cp, program_number))
            except Exception as error:
                error_by_program[program_number] = f"{type(error).__name__}: {error}"
                state_tables.append(state_tables[-1][:0])
        yield "count", program_count
        yield "failed programs", error_by_program
        yield "tables", pool_programs.pack(state_tables)

    return record


def _run_cases(cp: Any, last_name: str) -> Any:
    names = list(pool_cases.CASES)
    for name in names[names.index(last_name) + 1 if last_name else 0 :]:
        yield name, pool_cases.run_case(cp, name)


PARTS: dict[str, Callable[[Any, str], Any]] = {
    "about": _describe_device,
    **{kind: _make_recorder(kind) for kind in COUNTS},
    "cases": _run_cases,
}


if __name__ == "__main__":
    sys.exit(main())
