"""Effects of environment variables on new processes; the effects on PyTorch were recorded on an H200."""

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
VARIABLES = {"CUPY_GPU_MEMORY_LIMIT": "1048576", "CUDA_VISIBLE_DEVICES": "", "GPULAB_DEVICE": "virtual:T4"}
_REPORT_PROGRAM = """
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
    """Start a Python process with environment variables, and return the values that the process reports.

    The variables `before` are set before the process starts, and `late` after it has created its first array.

    Raises
    ------
    GpulabError
        If the process ends with an error or takes longer than `LIMIT_S` seconds.
    """
    device_choice = session.which_device()
    # Not by its number: a variable may hide the device, and then another one is used.
    name = f"virtual:{device_choice.device}" if device_choice.kind == "virtual" else "auto"
    environment = {**os.environ, "GPULAB_DEVICE": name, **(before or {})}
    environment["PYTHONPATH"] = os.pathsep.join(filter(None, sys.path))
    command = [sys.executable, "-c", _REPORT_PROGRAM, json.dumps(dict(late or {}))]
    try:
        process = subprocess.run(command, capture_output=True, text=True, env=environment, timeout=LIMIT_S)
    except subprocess.TimeoutExpired:
        raise GpulabError(
            f"The process took longer than {LIMIT_S} s. Try again on a quieter machine."
        ) from None
    if process.returncode:
        raise GpulabError(f"The process ended with an error: {process.stderr.strip().splitlines()[-1:]}")
    return dict(json.loads(process.stdout.splitlines()[-1]))


def verified() -> Table:
    """Return a table of the effect of each variable in `VARIABLES` when it is set early, and when it is set
    too late.
    """
    with ThreadPoolExecutor(2) as pool:
        ordinary_run = pool.submit(child)
        late_process = pool.submit(child, None, VARIABLES)
        early_processes = {name: pool.submit(child, {name: value}) for name, value in VARIABLES.items()}
        ordinary_values = ordinary_run.result()
        late_values = late_process.result()
        variable_rows = [
            (
                name,
                value or '""',
                _make_changes_text(ordinary_values, early_process.result()),
                _make_changes_text(ordinary_values, late_values),
            )
            for (name, early_process), value in zip(early_processes.items(), VARIABLES.values(), strict=True)
        ]
    title = f"Verified in separate processes, {session.backend().provenance.device}"
    return Table(
        title,
        ("variable", "value", "set before the start", "all set after the first array"),
        tuple(variable_rows),
    )


def _make_changes_text(ordinary_state: Mapping[str, Any], new_state: Mapping[str, Any]) -> str:
    """Return the differences between the observations of two processes as text."""
    return (
        ", ".join(
            f"{key}: {ordinary_state[key]} → {new_state[key]}"
            for key in ordinary_state
            if ordinary_state[key] != new_state[key]
        )
        or "nothing"
    )


def on_an_h200() -> Table:
    """Return a table of recorded effects of environment variables of PyTorch, CuPy and CUDA on an H200."""
    record = recorded()
    if not record:
        return Table(
            "Variables on an H200: not recorded yet", ("variable", "set before the start", "set late"), ()
        )
    rows = tuple((row["variable"], row["before"], row["late"]) for row in record["variables"])
    return Table(
        f"Recorded on an {record['device']}, PyTorch {record['torch']}, CuPy {record['cupy']}, "
        f"driver {record['driver']}",
        ("variable", "set before the start", "set late"),
        rows,
    )


def options() -> Table:
    """Return a table of all options that PyTorch accepts in ``PYTORCH_ALLOC_CONF``."""
    record = recorded()
    option_rows = (
        tuple((option["option"], option["value"], option["changes"]) for option in record["options"])
        if record
        else ()
    )
    origin = f"PyTorch {record['torch']}, recorded on an {record['device']}" if record else "not recorded yet"
    return Table(
        f"Options of PYTORCH_ALLOC_CONF, {origin}", ("option", "tried with", "what changed"), option_rows
    )
