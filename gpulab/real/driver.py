"""What the NVIDIA driver says about itself and its GPUs, asked without CuPy.

The driver's library is called through ctypes and NVML through `pynvml`, so that a machine on which
CuPy is absent or broken can still be diagnosed.
"""

from __future__ import annotations

import ctypes
import sys
from contextlib import suppress
from dataclasses import dataclass

_LIBRARIES = ("nvcuda.dll",) if sys.platform == "win32" else ("libcuda.so.1", "libcuda.so")

# Why a device cannot be used, and what to do, by CUDA's error code: of cuInit (cuda.h), and of a tiny use
# of a device (driver_types.h), which number them alike.
CUDA_ERRORS = {
    2: ("its memory is used up by other processes", "Close programs that use the GPU, then try again."),
    3: (
        "CUDA cannot be initialised (with MIG on, no instance may be assigned)",
        "Restart the machine or the container that holds the GPU.",
    ),
    34: (
        "a stub library stands in for the driver",
        "Remove the toolkit's `stubs` folder from LD_LIBRARY_PATH.",
    ),
    35: ("the NVIDIA driver is too old for this CuPy", "Update the driver, or install an older CuPy."),
    46: (
        "it is busy in exclusive mode, or MIG is on without an instance",
        "`nvidia-smi` shows which process holds it, and the MIG instances.",
    ),
    100: (
        "the driver finds no CUDA device",
        "Nothing to do without a GPU; in a container, start it with `--gpus all`.",
    ),
    101: ("there is no such device", "`nvidia-smi` lists those there are."),
    209: ("this CuPy has no code for its compute capability", "Install a newer CuPy."),
    222: ("the driver is too old for the PTX of this CuPy", "Update the driver."),
    802: (
        "the system is not ready yet (NVIDIA's fabric manager)",
        "Start NVIDIA's fabric manager service.",
    ),
    803: (
        "the driver's kernel module and its library differ in version",
        "Restart the machine; in a container, remove the cuda-compat package.",
    ),
    804: (
        "the driver is used in forward compatibility on a GPU without it",
        "Remove the cuda-compat package.",
    ),
    999: (
        "the driver reports an unknown error",
        "Restart the machine, or run `sudo nvidia-modprobe -u`.",
    ),
}
NO_DEVICE = 100


@dataclass(frozen=True, slots=True)
class DriverStatus:
    """What ``cuInit`` found. ``init_code`` is None where there is no driver library at all."""

    library: str | None
    init_code: int | None
    cuda_version: tuple[int, int] | None
    device_count: int

    @property
    def usable(self) -> bool:
        return self.init_code == 0 and self.device_count > 0

    @property
    def problem(self) -> str:
        """Why the driver offers no device, in a few words; empty if it does."""
        if self.library is None:
            return "no NVIDIA driver was found"
        if not self.init_code and self.device_count:
            return ""
        code = self.init_code or NO_DEVICE
        return CUDA_ERRORS.get(code, (f"the driver gives error {code}", ""))[0]

    @property
    def remedy(self) -> str:
        return CUDA_ERRORS.get(self.init_code or 0, ("", ""))[1]


def driver_status() -> DriverStatus:
    """Load the driver's library, initialise it and ask for CUDA version and device count."""
    for name in _LIBRARIES:
        try:
            library = ctypes.CDLL(name)
        except OSError:
            continue
        break
    else:
        return DriverStatus(None, None, None, 0)
    code = int(library.cuInit(0))
    number = ctypes.c_int()
    version = None
    if library.cuDriverGetVersion(ctypes.byref(number)) == 0 and number.value:
        version = cuda_version(number.value)
    count = ctypes.c_int()
    if code == 0:
        library.cuDeviceGetCount(ctypes.byref(count))
    return DriverStatus(name, code, version, count.value)


def cuda_version(number: int) -> tuple[int, int]:
    """CUDA's packed version (13020) as (major, minor)."""
    return number // 1000, number % 1000 // 10


@dataclass(frozen=True, slots=True)
class Sharing:
    """How one GPU is shared. None: this machine cannot tell."""

    name: str
    driver_version: str | None
    mig: bool | None
    exclusive: bool | None
    other_processes: int | None

    @property
    def phrase(self) -> str:
        """What makes measured times vary or the device refuse work; empty if nothing does."""
        parts = []
        if self.mig:
            parts.append("MIG is on, so it may be a slice of the GPU")
        if self.other_processes:
            noun = "process" if self.other_processes == 1 else "processes"
            parts.append(f"{self.other_processes} other {noun} on it, so times vary")
        if self.exclusive:
            parts.append("exclusive mode lets one process in at a time")
        return "; ".join(parts)


class NvmlError(RuntimeError):
    """NVML is absent or refuses to start; the message says which."""


def sharing(pci_bus_id: str | None = None) -> Sharing:
    """Ask NVML how one GPU is shared: the one at a PCI bus id, or else the machine's first.

    Every reading stands alone, as MIG and containers lack some.

    Raises
    ------
    NvmlError
        If `pynvml` is not installed, or NVML finds no driver or no such device.
    """
    import os

    try:
        import pynvml
    except ImportError as error:
        raise NvmlError("nvidia-ml-py is not installed") from error
    try:
        pynvml.nvmlInit()
    except pynvml.NVMLError as error:
        raise NvmlError(str(error)) from error
    try:
        if pci_bus_id is None:
            handle = pynvml.nvmlDeviceGetHandleByIndex(0)
        else:
            handle = pynvml.nvmlDeviceGetHandleByPciBusId(pci_bus_id)
        name = _text(pynvml.nvmlDeviceGetName(handle))
        driver = mig = exclusive = others = None
        with suppress(pynvml.NVMLError):
            driver = _text(pynvml.nvmlSystemGetDriverVersion())
        with suppress(pynvml.NVMLError):
            mig = bool(pynvml.nvmlDeviceGetMigMode(handle)[0])
        with suppress(pynvml.NVMLError):
            mode = pynvml.nvmlDeviceGetComputeMode(handle)
            exclusive = mode == pynvml.NVML_COMPUTEMODE_EXCLUSIVE_PROCESS
        with suppress(pynvml.NVMLError):
            running = pynvml.nvmlDeviceGetComputeRunningProcesses(handle)
            others = sum(process.pid != os.getpid() for process in running)
        return Sharing(name, driver, mig, exclusive, others)
    except pynvml.NVMLError as error:
        raise NvmlError(str(error)) from error
    finally:
        with suppress(pynvml.NVMLError):
            pynvml.nvmlShutdown()


def _text(value: str | bytes) -> str:
    return value.decode() if isinstance(value, bytes) else value
