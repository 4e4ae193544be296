"""Effects of environment variables, verified in separate processes; PyTorch's as recorded on an H200."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from gpulab import session
from gpulab.views.tables import Table
from gpulab_course.content.n16_platform.figures import recorded
from virtualgpu.errors import GpulabError

LIMIT_S = 90
TRIED = {"CUPY_GPU_MEMORY_LIMIT": "1048576", "CUDA_VISIBLE_DEVICES": "", "GPULAB_DEVICE": "virtual:T4"}
_PROGRAM = """
import json, os, sys
late = json.loads(sys.argv[1])
import gpulab
if late:
    gpulab.cp.ones(1)
    os.environ.update(late)
cp = gpulab.cp
try:
    cp.ones(1 << 20)
    given = "given"
except Exception as error:
    given = type(error).__name__
seen = {"device": str(gpulab.which_device().device), "devices": cp.cuda.runtime.getDeviceCount(),
        "pool limit": cp.get_default_memory_pool().get_limit(), "larger array": given}
print(json.dumps(seen))
"""


def child(before: Mapping[str, str] | None = None, late: Mapping[str, str] | None = None) -> dict[str, Any]:
    """Return the state of a new process, with variables set before it starts, or after its first array.

    Raises
    ------
    GpulabError
        If it ends with an error, or takes longer than `LIMIT_S` seconds.
    """
    here = session.which_device()
    # Not by its number: a variable may hide it, and then another device serves.
    name = f"virtual:{here.device}" if here.kind == "virtual" else "auto"
    environment = {**os.environ, "GPULAB_DEVICE": name, **(before or {})}
    environment["PYTHONPATH"] = os.pathsep.join(filter(None, sys.path))
    command = [sys.executable, "-c", _PROGRAM, json.dumps(dict(late or {}))]
    try:
        done = subprocess.run(command, capture_output=True, text=True, env=environment, timeout=LIMIT_S)
    except subprocess.TimeoutExpired:
        raise GpulabError(
            f"The process took longer than {LIMIT_S} s; try again on a quieter machine."
        ) from None
    if done.returncode:
        raise GpulabError(f"The process ended with an error: {done.stderr.strip().splitlines()[-1:]}")
    return dict(json.loads(done.stdout.splitlines()[-1]))


def verified() -> Table:
    """Each variable of `TRIED`: what a process sees with it set before the start, and set late."""
    with ThreadPoolExecutor(2) as pool:
        plain = pool.submit(child)
        late = pool.submit(child, None, TRIED)
        started = {name: pool.submit(child, {name: value}) for name, value in TRIED.items()}
        ordinary = plain.result()
        at_last = late.result()
        rows = [
            (name, value or '""', _changes(ordinary, seen.result()), _changes(ordinary, at_last))
            for (name, seen), value in zip(started.items(), TRIED.values(), strict=True)
        ]
    title = f"Verified in processes of their own, {session.backend().provenance.device}"
    return Table(
        title, ("variable", "value", "set before the start", "all set after the first array"), tuple(rows)
    )


def _changes(plain: Mapping[str, Any], seen: Mapping[str, Any]) -> str:
    return (
        ", ".join(f"{what}: {plain[what]} → {seen[what]}" for what in plain if plain[what] != seen[what])
        or "nothing"
    )


def on_an_h200() -> Table:
    """Tabulate the recorded effects of PyTorch's, CuPy's and CUDA's variables on an H200."""
    known = recorded()
    if not known:
        return Table(
            "Variables on an H200: not recorded yet", ("variable", "set before the start", "set late"), ()
        )
    rows = tuple((row["variable"], row["before"], row["late"]) for row in known["variables"])
    return Table(
        f"Recorded on an {known['device']}, PyTorch {known['torch']}, CuPy {known['cupy']}, "
        f"driver {known['driver']}",
        ("variable", "set before the start", "set late"),
        rows,
    )


def options() -> Table:
    """Every option of ``PYTORCH_ALLOC_CONF`` that the recorded PyTorch's own parser takes."""
    known = recorded()
    rows = tuple((o["option"], o["value"], o["changes"]) for o in known["options"]) if known else ()
    named = f"PyTorch {known['torch']}, recorded on an {known['device']}" if known else "not recorded yet"
    return Table(f"Options of PYTORCH_ALLOC_CONF, {named}", ("option", "tried with", "what changed"), rows)
