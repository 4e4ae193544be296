"""Status of the NVIDIA driver, read through ctypes because CuPy may be missing or broken."""

from __future__ import annotations

import ctypes
import sys
from dataclasses import dataclass
from importlib import resources

_LIBRARIES = ("nvcuda.dll",) if sys.platform == "win32" else ("libcuda.so.1", "libcuda.so")


def read_data_rows(name: str) -> list[list[str]]:
    """Return the rows of a table in the data files of the package. The header row is not included."""
    table_text = (resources.files("gpulab") / "data" / name).read_text(encoding="utf-8")
    return [line.split("\t") for line in table_text.splitlines()[1:]]


# Why a device cannot be used, and what to do, by CUDA's error code: of cuInit (cuda.h), and of a tiny use
# of a device (driver_types.h), which number them alike.
CUDA_ERRORS = {int(code): (why, remedy) for code, why, remedy in read_data_rows("cuda_errors.tsv")}
ERROR_NO_DEVICE = 100


@dataclass(frozen=True, slots=True)
class DriverStatus:
    """The result of ``cuInit``. The attribute ``init_code`` is None if there is no driver library."""

    library: str | None
    init_code: int | None
    cuda_version: tuple[int, int] | None
    device_count: int

    @property
    def is_usable(self) -> bool:
        return self.init_code == 0 and self.device_count > 0

    @property
    def problem(self) -> str:
        """Return a short phrase that explains why the driver has no usable device, or an empty string if it
        has one.
        """
        if self.library is None:
            return "no NVIDIA driver was found"
        if not self.init_code and self.device_count:
            return ""
        error_code = self.init_code or ERROR_NO_DEVICE
        return CUDA_ERRORS.get(error_code, (f"the driver returns error {error_code}", ""))[0]

    @property
    def remedy(self) -> str:
        return CUDA_ERRORS.get(self.init_code or 0, ("", ""))[1]


def query_driver_status() -> DriverStatus:
    """Load and initialize the driver library, and query its CUDA version and number of devices."""
    for name in _LIBRARIES:
        try:
            library = ctypes.CDLL(name)
        except OSError:
            continue
        break
    else:
        return DriverStatus(None, None, None, 0)
    init_code = int(library.cuInit(0))
    version_number = ctypes.c_int()
    version = None
    if library.cuDriverGetVersion(ctypes.byref(version_number)) == 0 and version_number.value:
        version = parse_cuda_version(version_number.value)
    device_count = ctypes.c_int()
    if init_code == 0:
        library.cuDeviceGetCount(ctypes.byref(device_count))
    return DriverStatus(name, init_code, version, device_count.value)


def parse_cuda_version(number: int) -> tuple[int, int]:
    """Convert a CUDA version number such as 13020 to a pair (major, minor)."""
    return number // 1000, number % 1000 // 10
