"""The creation of a process's CUDA context and its cost: measured here, or recorded on an H200.

``python -m gpulab_course.content.n01_devices.context`` measures in this very process and prints JSON.
"""

from __future__ import annotations

import ctypes
import json
import subprocess
import sys
import time
from dataclasses import asdict, dataclass
from importlib import resources
from typing import Any

from gpulab import session
from gpulab.views.tables import Table
from virtualgpu.records import Provenance

RECORDED = "h200_context.json"
_LIMIT_S = 120
_LIBRARY = "nvcuda.dll" if sys.platform == "win32" else "libcuda.so.1"


@dataclass(frozen=True, slots=True)
class Step:
    """One call, and how things stood after it. ``memory_bytes`` is what the process holds of the device."""

    call: str
    took_ms: float
    active: bool
    memory_bytes: int | None


class ContextSteps:
    """The steps of a process's first calls, as a table; ``.record`` holds them as data."""

    def __init__(self, provenance: Provenance, steps: tuple[Step, ...]) -> None:
        self.provenance = provenance
        self.record = steps

    def __repr__(self) -> str:
        return self._table().text()

    def _repr_html_(self) -> str:
        return self._table().html()

    def _table(self) -> Table:
        rows = tuple(
            (
                step.call,
                f"{step.took_ms:,.1f} ms",
                "yes" if step.active else "no",
                "not available" if step.memory_bytes is None else f"{step.memory_bytes / 2**20:,.0f} MiB",
            )
            for step in self.record
        )
        title = f"The first calls of a process, {self.provenance.label}"
        return Table(title, ("call", "took", "context", "memory held on the device"), rows)


def first_calls() -> ContextSteps:
    """The first calls of a fresh process on this machine's GPU; without one, those recorded on an H200."""
    choice = session.which_device()
    if choice.kind == "virtual":
        text = resources.files(__package__).joinpath(RECORDED).read_text(encoding="utf-8")
        return _read(json.loads(text), "recorded")
    done = subprocess.run(
        [sys.executable, "-m", __name__], capture_output=True, text=True, check=True, timeout=_LIMIT_S
    )
    return _read(json.loads(done.stdout), "measured")


def _read(data: dict[str, Any], source: Any) -> ContextSteps:
    detail = ", ".join([*([data["date"]] if source == "recorded" else []), f"driver {data['driver']}"])
    return ContextSteps(
        Provenance(source, data["device"], detail), tuple(Step(**step) for step in data["steps"])
    )


def measure() -> dict[str, Any]:
    """Take the steps in this process, which must not have touched the device yet."""
    begun = time.perf_counter()
    import cupy
    import pynvml

    steps: list[Step] = []
    pynvml.nvmlInit()
    handle = pynvml.nvmlDeviceGetHandleByIndex(0)
    before = int(pynvml.nvmlDeviceGetMemoryInfo(handle).used)
    driver: Any = ctypes.CDLL(_LIBRARY)

    def note(call: str, since: float) -> None:
        took_ms = (time.perf_counter() - since) * 1e3
        held = int(pynvml.nvmlDeviceGetMemoryInfo(handle).used) - before
        steps.append(Step(call, took_ms, _active(driver), held))

    note("import cupy", begun)
    calls = {
        "cupy.cuda.runtime.getDeviceCount()": cupy.cuda.runtime.getDeviceCount,
        "cupy.RawKernel(code, name)": lambda: cupy.RawKernel(_KERNEL, "one"),
        "cupy.zeros(1)": lambda: cupy.zeros(1),
        "cupy.zeros(1), again": lambda: cupy.zeros(1),
    }
    for call, run in calls.items():
        since = time.perf_counter()
        run()
        note(call, since)
    name = pynvml.nvmlDeviceGetName(handle)
    return {
        "device": name if isinstance(name, str) else name.decode(),
        "driver": pynvml.nvmlSystemGetDriverVersion(),
        "date": time.strftime("%Y-%m-%d"),
        "steps": [asdict(step) for step in steps],
    }


_KERNEL = 'extern "C" __global__ void one(int* x) { *x = 1; }'


def _active(driver: Any) -> bool:
    """Return whether the process has a primary context, without creating one."""
    device = ctypes.c_int()
    flags = ctypes.c_uint()
    active = ctypes.c_int()
    if driver.cuInit(0) or driver.cuDeviceGet(ctypes.byref(device), 0):
        return False
    failed = driver.cuDevicePrimaryCtxGetState(device, ctypes.byref(flags), ctypes.byref(active))
    return not failed and bool(active.value)


if __name__ == "__main__":
    print(json.dumps(measure(), indent=1))
