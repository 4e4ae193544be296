"""Times and memory of the first CUDA calls of a process, which create its CUDA context.

``python -m gpulab_course.content.n01_devices.context`` measures them in its own process and prints JSON.
Without a GPU, recorded values are used.
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

RECORDING_FILE = "h200_context.json"
_TIMEOUT_S = 120
_CUDA_LIBRARY = "nvcuda.dll" if sys.platform == "win32" else "libcuda.so.1"


@dataclass(frozen=True, slots=True)
class CallStep:
    """One CUDA call, its duration, and the state of the process after the call.

    The attribute ``active`` is true if the process has a context. ``memory_bytes`` is the device memory of
    the process.
    """

    call: str
    duration_ms: float
    active: bool
    memory_bytes: int | None


class ContextSteps:
    """A table of a process's first CUDA calls with their times. The attribute ``.record`` contains the
    data.
    """

    def __init__(self, provenance: Provenance, steps: tuple[CallStep, ...]) -> None:
        self.provenance = provenance
        self.record = steps

    def __repr__(self) -> str:
        return self._make_table().text()

    def _repr_html_(self) -> str:
        return self._make_table().card()

    def _make_table(self) -> Table:
        step_rows = tuple(
            (
                step.call,
                f"{step.duration_ms:,.1f} ms",
                "yes" if step.active else "no",
                "not available" if step.memory_bytes is None else f"{step.memory_bytes / 2**20:,.0f} MiB",
            )
            for step in self.record
        )
        title = f"The first calls of a process, {self.provenance.label}"
        return Table(title, ("call", "time", "context", "device memory used"), step_rows)


def first_calls() -> ContextSteps:
    """Measure the first CUDA calls of a new process. Without a GPU, return calls that were recorded on an
    H200.
    """
    device_choice = session.which_device()
    if device_choice.kind == "virtual":
        recording_text = resources.files(__package__).joinpath(RECORDING_FILE).read_text(encoding="utf-8")
        return _make_context_steps(json.loads(recording_text), "recorded")
    process = subprocess.run(
        [sys.executable, "-m", __name__], capture_output=True, text=True, check=True, timeout=_TIMEOUT_S
    )
    return _make_context_steps(json.loads(process.stdout), "measured")


def _make_context_steps(recording: dict[str, Any], source: Any) -> ContextSteps:
    provenance_detail = ", ".join(
        [*([recording["date"]] if source == "recorded" else []), f"driver {recording['driver']}"]
    )
    return ContextSteps(
        Provenance(source, recording["device"], provenance_detail),
        tuple(CallStep(**step) for step in recording["steps"]),
    )


def measure_first_calls() -> dict[str, Any]:
    """Measure the first CUDA calls of the current process, which must not have used the device before."""
    start_s = time.perf_counter()
    import cupy
    import pynvml

    call_steps: list[CallStep] = []
    pynvml.nvmlInit()
    device_handle = pynvml.nvmlDeviceGetHandleByIndex(0)
    initial_bytes = int(pynvml.nvmlDeviceGetMemoryInfo(device_handle).used)
    driver: Any = ctypes.CDLL(_CUDA_LIBRARY)

    def add_step(call: str, call_start_s: float) -> None:
        duration_ms = (time.perf_counter() - call_start_s) * 1e3
        memory_bytes = int(pynvml.nvmlDeviceGetMemoryInfo(device_handle).used) - initial_bytes
        call_steps.append(CallStep(call, duration_ms, _has_context(driver), memory_bytes))

    add_step("import cupy", start_s)
    function_of_call = {
        "cupy.cuda.runtime.getDeviceCount()": cupy.cuda.runtime.getDeviceCount,
        "cupy.RawKernel(code, name)": lambda: cupy.RawKernel(_KERNEL_CODE, "one"),
        "cupy.zeros(1)": lambda: cupy.zeros(1),
        "cupy.zeros(1), again": lambda: cupy.zeros(1),
    }
    for call_text, function in function_of_call.items():
        call_start_s = time.perf_counter()
        function()
        add_step(call_text, call_start_s)
    device_name = pynvml.nvmlDeviceGetName(device_handle)
    return {
        "device": device_name if isinstance(device_name, str) else device_name.decode(),
        "driver": pynvml.nvmlSystemGetDriverVersion(),
        "date": time.strftime("%Y-%m-%d"),
        "steps": [asdict(step) for step in call_steps],
    }


_KERNEL_CODE = 'extern "C" __global__ void one(int* x) { *x = 1; }'


def _has_context(driver: Any) -> bool:
    """Return whether the process has a primary context, without creating one."""
    device = ctypes.c_int()
    flags = ctypes.c_uint()
    is_active = ctypes.c_int()
    if driver.cuInit(0) or driver.cuDeviceGet(ctypes.byref(device), 0):
        return False
    status = driver.cuDevicePrimaryCtxGetState(device, ctypes.byref(flags), ctypes.byref(is_active))
    return not status and bool(is_active.value)


if __name__ == "__main__":
    print(json.dumps(measure_first_calls(), indent=1))
