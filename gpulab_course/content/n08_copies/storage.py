"""Reads of a file directly into device memory with cuFile (GPUDirect Storage), which is called by ctypes.

The disk can write to device memory in two ways. For local NVMe, cuFile uses PCI peer-to-peer of the Linux
kernel (CUDA 12.8, Linux 6.2, an open driver, Ampere). Elsewhere it needs the kernel module ``nvidia-fs``.
Without either, it works in *compatibility mode*: the calls are the same, but the bytes pass through the
host's memory. ``python -m gpulab_course.content.n08_copies.storage`` reads a file in the current folder and
prints JSON; it needs CuPy and ``libcufile``, which comes with CUDA and with torch.
"""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np

FILE_SIZE_BYTES = 64 << 20
_REPEAT_COUNT = 4


class _CuFileStatus(ctypes.Structure):
    _fields_ = (("error", ctypes.c_int), ("cuda", ctypes.c_int))


class _CuFileHandle(ctypes.Union):
    _fields_ = (("fd", ctypes.c_int), ("handle", ctypes.c_void_p))


class _CuFileDescription(ctypes.Structure):
    _fields_ = (("type", ctypes.c_int), ("handle", _CuFileHandle), ("operations", ctypes.c_void_p))


def measure_file_reads() -> dict[str, Any]:
    """Read 64 MiB from a file into device memory with cuFile and with NumPy, and return both times in ms."""
    # Not in the system's folder for temporary files, which may be in memory.
    with tempfile.TemporaryDirectory(dir=Path.cwd()) as folder:
        return _measure_file_reads_in(Path(folder))


def _measure_file_reads_in(folder: Path) -> dict[str, Any]:
    settings = {
        "properties": {"allow_compat_mode": True},
        "logging": {"dir": str(folder), "level": "ERROR"},
    }
    (folder / "cufile.json").write_text(json.dumps(settings))
    os.environ |= {
        "CUFILE_ENV_PATH_JSON": str(folder / "cufile.json"),
        "CUFILE_ALLOW_COMPAT_MODE": "true",
    }
    import cupy as cp

    library, library_name = _load_cufile()
    measurements: dict[str, Any] = {
        "library": library_name,
        "kernel module": Path("/proc/driver/nvidia-fs").exists(),
    }
    measurements |= {
        "mode": "as cuFile chose",
        "from": "the disk: dropped from the page cache before each read",
    }
    file_contents = np.random.default_rng(1).random(FILE_SIZE_BYTES // 4, np.float32)
    path = folder / "data.bin"
    x = cp.zeros(FILE_SIZE_BYTES // 4, cp.float32)
    file_contents.tofile(path)
    if library is not None:
        measurements["open"] = int(library.cuFileDriverOpen().error)
        measurements |= _read_by_cufile(cp, library, path, x)
        measurements["right"] = bool((x.get() == file_contents).all())
    measurements["by NumPy"] = []
    for _ in range(_REPEAT_COUNT):
        _drop_from_page_cache(path)
        start_s = time.perf_counter()
        cp.asarray(np.fromfile(path, np.float32), blocking=True)
        measurements["by NumPy"].append(round((time.perf_counter() - start_s) * 1e3, 2))
    log_lines = [
        line for log_file in folder.glob("cufile*.log") for line in log_file.read_text().splitlines()
    ]
    measurements["errors"] = [line.split("ERROR")[-1].strip()[:120] for line in log_lines if "ERROR" in line][
        :6
    ]
    return measurements


def _drop_from_page_cache(path: Path) -> None:
    """Remove a file from the page cache, so that the next read accesses the disk."""
    file = os.open(path, os.O_RDONLY)
    try:
        os.fsync(file)
        os.posix_fadvise(file, 0, 0, os.POSIX_FADV_DONTNEED)
    finally:
        os.close(file)


def _read_by_cufile(cp: Any, library: Any, path: Path, x: Any) -> dict[str, Any]:
    try:
        file = os.open(path, os.O_RDONLY | os.O_DIRECT)
    except OSError:  # a file system that always caches
        file = os.open(path, os.O_RDONLY)
    file_handle = ctypes.c_void_p()
    description = _CuFileDescription(1, _CuFileHandle(fd=file), None)  # 1: a file descriptor
    try:
        status = library.cuFileHandleRegister(ctypes.byref(file_handle), ctypes.byref(description))
        result: dict[str, Any] = {"register": int(status.error), "by cuFile": []}
        for _ in range(0 if status.error else _REPEAT_COUNT):
            x.fill(0)
            cp.cuda.Device().synchronize()
            _drop_from_page_cache(path)
            start_s = time.perf_counter()
            result["bytes"] = int(library.cuFileRead(file_handle, x.data.ptr, x.nbytes, 0, 0))
            result["by cuFile"].append(round((time.perf_counter() - start_s) * 1e3, 2))
        if not status.error:
            library.cuFileHandleDeregister(file_handle)
        return result
    finally:
        os.close(file)


def _load_cufile() -> tuple[Any, str]:
    """Load cuFile and return it with its file name; without cuFile, return None and the reason."""
    folders = [Path(folder) / "nvidia" for folder in sys.path if (Path(folder) / "nvidia").is_dir()]
    paths = [str(path) for folder in folders for path in folder.glob("**/libcufile.so*")]
    paths += [str(path) for path in Path("/usr/local").glob("cuda*/**/libcufile.so*")]
    for name in [*paths, "libcufile.so.0"]:
        with contextlib.suppress(OSError):
            library = ctypes.CDLL(name)
            library.cuFileDriverOpen.restype = _CuFileStatus
            library.cuFileHandleRegister.restype = _CuFileStatus
            library.cuFileRead.restype = ctypes.c_ssize_t
            library.cuFileRead.argtypes = [
                ctypes.c_void_p,
                ctypes.c_void_p,
                ctypes.c_size_t,
                ctypes.c_int64,
                ctypes.c_int64,
            ]
            return library, Path(name).name
    return None, "libcufile is not installed"


if __name__ == "__main__":
    print(json.dumps(measure_file_reads(), separators=(",", ":")))
