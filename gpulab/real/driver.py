"""What the NVIDIA driver says about itself, asked through ctypes: CuPy may be absent or broken."""

from __future__ import annotations

import ctypes
import sys
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
    802: ("the system is not ready yet (NVIDIA's fabric manager)", "Start NVIDIA's fabric manager service."),
    803: (
        "the driver's kernel module and its library differ in version",
        "Restart the machine; in a container, remove the cuda-compat package.",
    ),
    804: (
        "the driver is used in forward compatibility on a GPU without it",
        "Remove the cuda-compat package.",
    ),
    999: ("the driver reports an unknown error", "Restart the machine, or run `sudo nvidia-modprobe -u`."),
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
