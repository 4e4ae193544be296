"""Name the CuPy extra that fits this machine's driver: ``cuda13``, ``cuda12`` or nothing.

Prints the extra on stdout (an empty line without a usable GPU) and the reason on stderr.
``GPULAB_CUDA`` overrides the choice: ``13``, ``12`` or ``none``. Standard library only: it runs before
anything is installed.
"""

from __future__ import annotations

import ctypes
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Mapping

OLDEST_MAJOR = 12
NEWEST_MAJOR = 13
Version = tuple[int, int]


def from_libcuda() -> Version | None:
    """Return the newest CUDA version that the driver library supports; None without a driver or a device."""
    for name in ("libcuda.so.1", "libcuda.so", "nvcuda.dll", "/usr/lib/wsl/lib/libcuda.so.1"):
        try:
            library = ctypes.CDLL(name)
        except OSError:
            continue
        device_count = ctypes.c_int()
        driver_version = ctypes.c_int()
        has_device = (
            library.cuInit(0) == 0
            and library.cuDeviceGetCount(ctypes.byref(device_count)) == 0
            and device_count.value > 0
            and library.cuDriverGetVersion(ctypes.byref(driver_version)) == 0
        )
        return (driver_version.value // 1000, driver_version.value % 1000 // 10) if has_device else None
    return None


def from_smi_text(text: str) -> Version | None:
    """Return the CUDA version in nvidia-smi's banner, after ``CUDA Version:`` or ``CUDA UMD Version:``."""
    match = re.search(r"CUDA (?:UMD )?Version:\s*(\d+)\.(\d+)", text)
    return (int(match[1]), int(match[2])) if match else None


def from_nvidia_smi() -> Version | None:
    """Return the CUDA version that nvidia-smi shows, or None if it is missing, fails or lists no GPU."""
    program = shutil.which("nvidia-smi")
    if program is None:
        return None
    try:
        device_list = subprocess.run([program, "-L"], capture_output=True, text=True, timeout=30, check=True)
        banner = subprocess.run([program], capture_output=True, text=True, timeout=30, check=True)
    except (OSError, subprocess.SubprocessError):
        return None
    return from_smi_text(banner.stdout) if "GPU 0" in device_list.stdout else None


def choose(version: Version | None, environment: Mapping[str, str]) -> tuple[str, str]:
    """Return the name of the CUDA extra to install, or "" for none, and a sentence with the reason."""
    wanted_version = environment.get("GPULAB_CUDA", "").strip().lower().removeprefix("cuda")
    if wanted_version in ("none", "0", "off"):
        return "", "GPULAB_CUDA=none: no CuPy, the notebooks run on the virtual GPU."
    if wanted_version:
        cuda_major = wanted_version.split(".")[0]
        if cuda_major not in (str(OLDEST_MAJOR), str(NEWEST_MAJOR)):
            raise SystemExit(f"GPULAB_CUDA={wanted_version}: use {OLDEST_MAJOR}, {NEWEST_MAJOR} or none.")
        return f"cuda{cuda_major}", f"GPULAB_CUDA={wanted_version}: CuPy for CUDA {cuda_major}."
    if version is None:
        return "", "No NVIDIA GPU found: no CuPy, the notebooks run on the virtual GPU."
    version_text = f"{version[0]}.{version[1]}"
    if version[0] < OLDEST_MAJOR:
        return "", (
            f"The driver serves CUDA {version_text}, CuPy needs {OLDEST_MAJOR} or newer: update the driver "
            "to use this GPU. Until then the notebooks run on the virtual GPU."
        )
    return f"cuda{min(version[0], NEWEST_MAJOR)}", f"The driver serves CUDA {version_text}."


def main() -> None:
    """Print the choice for this machine."""
    cuda_extra, reason = choose(from_libcuda() or from_nvidia_smi(), os.environ)
    print(cuda_extra)
    print(reason, file=sys.stderr)


if __name__ == "__main__":
    main()
