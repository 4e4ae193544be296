"""Damaged PTX in a process of its own: read it, make code of it, and on request run that.

``python -m tests.fuzz.damage_worker FIRST COUNT [run]`` prints what happened as JSON. A crash, a hang
or memory without bound would end this process, not the tests.
"""

from __future__ import annotations

import contextlib
import json
import re
import sys
import traceback
from collections import Counter
from functools import lru_cache
from typing import Any

import llvmlite.binding as llvm
import numpy as np

from tests.fuzz.mutations import damaged
from tools.corpus import CASES, Case
from virtualgpu.compile import nvrtc
from virtualgpu.compile.ptx import ir, parser
from virtualgpu.cuda_errors import CUDARuntimeError
from virtualgpu.engine import PackedLaunch, Program, RunOptions
from virtualgpu.engine.lower import codegen
from virtualgpu.errors import NotSupportedError, PtxError
from virtualgpu.model.memory import DeviceMemory

TARGETS = (75, 90, 100)
MEMORY_LIMIT_BYTES = 4 << 30
ARENA_BYTES = 64 << 20
WATCHDOG_S = 2.0
CLEAN = (PtxError, NotSupportedError)
# The folder's name would make the damage differ from one machine to the next.
_FILE = re.compile(r'\.file\s+(\d+)\s+"[^"]*"')


@lru_cache(maxsize=256)
def original(number: int) -> tuple[Case, str]:
    """A case of the corpus and its PTX; neighbours have different targets."""
    case = CASES[number % len(CASES)]
    target = TARGETS[(number + number // len(CASES)) % len(TARGETS)]
    options = (*case.options, *nvrtc.CUPY_OPTIONS)
    ptx = nvrtc.compile_ptx(case.code, target=target, options=options).ptx
    return case, _FILE.sub('.file \\1 "kernel.cu"', ptx)


def make_code(module: ir.Module, seed: int) -> None:
    """Code of every kernel, which LLVM must accept."""
    for name in module.entries:
        kernel = codegen.generate_kernel(
            module, name, with_counters=bool(seed & 1), with_trace=bool(seed & 2)
        )
        llvm.parse_assembly(kernel.text).verify()


def execute(ptx: str, case: Case, seed: int) -> None:
    """One small launch with the case's own arguments, as far as they still fit the parameters."""
    program = Program(ptx, case.code)
    name = case.kernel if case.kernel in program.entries else next(iter(program.entries), "")
    if not name:
        return
    entry = program.entries[name]
    memory = DeviceMemory(ARENA_BYTES)
    params = bytearray(max(entry.param_bytes, 8))
    for param, value in zip(entry.params, case.make_args(seed).values, strict=False):
        raw = np.asarray(value).tobytes()
        if isinstance(value, np.ndarray):
            address = memory.malloc(max(len(raw), 1))
            memory.track_allocation(address, max(len(raw), 1), "argument")
            memory.view(address, len(raw))[:] = np.frombuffer(raw, np.uint8)
            raw = address.to_bytes(8, "little")
        end = min(param.offset + len(raw), len(params))
        params[param.offset : end] = raw[: max(end - param.offset, 0)]
    grid = tuple(min(n, 2) for n in case.grid)
    program.launch(
        PackedLaunch(name, grid, case.block, bytes(params), case.shared_bytes),  # type: ignore[arg-type]
        memory,
        RunOptions(watchdog_s=WATCHDOG_S, stdout=lambda text: None),
    )


def attempt(seed: int, run: bool) -> tuple[str, str]:
    """What became of one damaged text: an outcome, and where an unexpected error came from."""
    case, text = original(seed)
    changed = damaged(seed, text)
    try:
        if run:
            execute(changed, case, seed)
        else:
            make_code(parser.parse(changed), seed)
    except CLEAN as error:
        return type(error).__name__, ""
    except CUDARuntimeError as error:  # a fault of the kernel, or variables larger than the memory
        return f"fault: {type(error).__name__}", ""
    except Exception as error:
        last = traceback.extract_tb(error.__traceback__)[-1]
        return "unexpected", f"{seed}: {type(error).__name__}: {error} [{last.name}, line {last.lineno}]"[
            :300
        ]
    return "unchanged" if changed == text else "fine", ""


def main() -> None:
    first = int(sys.argv[1])
    count = int(sys.argv[2])
    run = "run" in sys.argv[3:]
    with contextlib.suppress(ImportError):
        import resource

        resource.setrlimit(resource.RLIMIT_AS, (MEMORY_LIMIT_BYTES, MEMORY_LIMIT_BYTES))
        # Whoever computes without an end is ended by the system, however busy the machine is.
        resource.setrlimit(resource.RLIMIT_CPU, (60 + 2 * count, 90 + 2 * count))
    outcomes: Counter[str] = Counter()
    unexpected = []
    for seed in range(first, first + count):
        print(seed, file=sys.stderr, flush=True)
        outcome, where = attempt(seed, run)
        outcomes[outcome] += 1
        if where:
            unexpected.append(where)
    report: dict[str, Any] = {"outcomes": outcomes, "unexpected": unexpected}
    print(json.dumps(report))


if __name__ == "__main__":
    main()
