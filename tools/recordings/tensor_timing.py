"""Record times of tensor cores, asynchronous copies and chains: ``python -m tools.recordings.tensor_timing``.

It needs CuPy, runs all launches of `tools.timing.tensor_launches` on the current CUDA device, and writes one
JSON file, of which the virtual GPU's clock is calibrated and judged. With ``--fresh``, it runs the programs
of `tools.timing.fresh_launches` instead. The times are taken as in `tools.recordings.timing`. The result of
each program is compared with NumPy; a wrong one counts as an error.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from tools.recordings.timing import Bench, make_header, time_launch, warm_up, write
from tools.timing.fresh_launches import make_fresh_programs
from tools.timing.launches import LAUNCHES, TimedLaunch
from tools.timing.tensor_launches import PROBES, Program, make_programs

RECORD = Path(__file__).resolve().parents[1] / "timing" / "data" / "h200_tensor.json"


def record(
    cp: Any, repeats: int, launches: Sequence[TimedLaunch], log: Callable[[str], None]
) -> dict[str, Any]:
    """Time launches on CuPy's current device, and return the recording, ready for JSON."""
    bench = Bench(cp, repeats)
    empty_launch = next(timed for timed in LAUNCHES if timed.name == "empty one")
    with bench.stream:
        warm_up(bench)
        recording = make_header(bench) | {"host": {}, "launches": {}, "checks": {}, "errors": {}}
        modules: dict[tuple[str, ...], Any] = {}
        begin_s = time.perf_counter()
        for timed in (empty_launch, *launches):
            try:
                if isinstance(timed, Program):
                    recording["checks"][timed.name] = check(cp, timed, modules)
                recording["launches"][timed.name] = time_launch(bench, timed, modules)
            except Exception as error:
                recording["errors"][timed.name] = f"{type(error).__name__}: {error}"[:200]
            log(f"{time.perf_counter() - begin_s:6.1f} s  {timed.name}")
        kernel = empty_launch.load(cp, modules)
        pair_ns = bench.pair(lambda: kernel((1,), (32,), ()))
        recording["host"]["launch between events, held"] = round(pair_ns, 1)
        recording["clock_mhz"].append(round(bench.clock_mhz(), 1))
    return recording


def check(cp: Any, program: Program, modules: dict[tuple[str, ...], Any]) -> float:
    """Run a program once, and return the largest difference of its result from NumPy's.

    Raises
    ------
    ArithmeticError
        If the difference is larger than the program's tolerance.
    """
    assert program.check is not None
    kernel = program.load(cp, modules)
    arguments = program.make_args(cp)
    inputs = [cp.asnumpy(value) if hasattr(value, "get") else value for value in arguments]
    kernel(program.grid, program.block, arguments, shared_mem=program.shared_bytes)
    difference = program.check.error(inputs, cp.asnumpy(arguments[program.check.output]))
    if not difference <= program.check.tolerance:
        raise ArithmeticError(f"the result differs from NumPy's by {difference:g}")
    return float(f"{difference:.2g}")


def main(arguments: Sequence[str] | None = None) -> int:
    """Record the current CUDA device; return the process's exit status."""
    parser = argparse.ArgumentParser(prog="tensor_timing", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--out", type=Path, default=RECORD)
    parser.add_argument("--repeats", type=int, default=7, help="measurements of which the median is taken")
    parser.add_argument("--only", default="", help="only launches whose name contains this")
    parser.add_argument("--fresh", action="store_true", help="the programs of tools.timing.fresh_launches")
    parser.add_argument("--virtual", default="", help="for a trial: the name of a virtual GPU")
    options = parser.parse_args(arguments)
    if options.virtual:
        from virtualgpu.backend import VirtualBackend
        from virtualgpu.model import machine
        from virtualgpu.model.devices import device_info

        machine.use(machine.Machine([device_info(options.virtual)]))
        cp: Any = VirtualBackend(machine.current()).cp
    else:
        import cupy

        cp = cupy

    all_launches = make_fresh_programs() if options.fresh else (*PROBES, *make_programs())
    launches = [timed for timed in all_launches if options.only in timed.name]
    recording = record(cp, options.repeats, launches, lambda text: print(text, flush=True))
    write(recording, options.out)
    print(f"{options.out}: {options.out.stat().st_size:,} bytes, {len(recording['launches'])} launches")
    for name, error in recording["errors"].items():
        print(f"failed: {name}: {error}")
    return bool(recording["errors"])


if __name__ == "__main__":
    sys.exit(main())
