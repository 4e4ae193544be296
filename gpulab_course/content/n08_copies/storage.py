"""A file straight to device memory: cuFile (GPUDirect Storage), by ctypes.

The disk writes to device memory where cuFile finds a way: for local NVMe by the kernel's own PCI peer-to-peer
(CUDA 12.8, Linux 6.2, an open driver, Ampere), elsewhere by the kernel module ``nvidia-fs``. Without either
it works in *compatibility mode*: the same calls, but the bytes go by way of the host's memory after all.
``python -m gpulab_course.content.n08_copies.storage`` tries it in the current folder, whose disk
is the one that is read, and prints JSON; it needs CuPy and ``libcufile``, which comes with CUDA and
with torch.
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

SIZE_BYTES = 64 << 20
_REPEATS = 4


class _Status(ctypes.Structure):
    _fields_ = (("error", ctypes.c_int), ("cuda", ctypes.c_int))


class _Handle(ctypes.Union):
    _fields_ = (("fd", ctypes.c_int), ("handle", ctypes.c_void_p))


class _Description(ctypes.Structure):
    _fields_ = (("type", ctypes.c_int), ("handle", _Handle), ("operations", ctypes.c_void_p))


def measure() -> dict[str, Any]:
    """Read 64 MiB from a file into device memory by cuFile, and by way of NumPy; times in ms."""
    # Not the system's folder for temporary files, which may be memory.
    with tempfile.TemporaryDirectory(dir=Path.cwd()) as folder:
        return _measure(Path(folder))


def _measure(folder: Path) -> dict[str, Any]:
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

    library, where = _library()
    told: dict[str, Any] = {"library": where, "kernel module": Path("/proc/driver/nvidia-fs").exists()}
    told |= {"mode": "as cuFile chose", "from": "the disk: dropped from the page cache before each read"}
    data = np.random.default_rng(1).random(SIZE_BYTES // 4, np.float32)
    path = folder / "data.bin"
    x = cp.zeros(SIZE_BYTES // 4, cp.float32)
    data.tofile(path)
    if library is not None:
        told["open"] = int(library.cuFileDriverOpen().error)
        told |= _read(cp, library, path, x)
        told["right"] = bool((x.get() == data).all())
    told["by NumPy"] = []
    for _ in range(_REPEATS):
        _drop_cached(path)
        since = time.perf_counter()
        cp.asarray(np.fromfile(path, np.float32), blocking=True)
        told["by NumPy"].append(round((time.perf_counter() - since) * 1e3, 2))
    lines = [line for log in folder.glob("cufile*.log") for line in log.read_text().splitlines()]
    told["errors"] = [line.split("ERROR")[-1].strip()[:120] for line in lines if "ERROR" in line][:6]
    return told


def _drop_cached(path: Path) -> None:
    """Write and drop the host's cache of the file, so that the next read accesses the disk."""
    file = os.open(path, os.O_RDONLY)
    try:
        os.fsync(file)
        os.posix_fadvise(file, 0, 0, os.POSIX_FADV_DONTNEED)
    finally:
        os.close(file)


def _read(cp: Any, library: Any, path: Path, x: Any) -> dict[str, Any]:
    try:
        file = os.open(path, os.O_RDONLY | os.O_DIRECT)
    except OSError:  # a file system that always caches
        file = os.open(path, os.O_RDONLY)
    handle = ctypes.c_void_p()
    description = _Description(1, _Handle(fd=file), None)  # 1: a file descriptor
    try:
        registered = library.cuFileHandleRegister(ctypes.byref(handle), ctypes.byref(description))
        told: dict[str, Any] = {"register": int(registered.error), "by cuFile": []}
        for _ in range(0 if registered.error else _REPEATS):
            x.fill(0)
            cp.cuda.Device().synchronize()
            _drop_cached(path)
            since = time.perf_counter()
            told["bytes"] = int(library.cuFileRead(handle, x.data.ptr, x.nbytes, 0, 0))
            told["by cuFile"].append(round((time.perf_counter() - since) * 1e3, 2))
        if not registered.error:
            library.cuFileHandleDeregister(handle)
        return told
    finally:
        os.close(file)


def _library() -> tuple[Any, str]:
    """The library and its name, or None and why not."""
    folders = [Path(folder) / "nvidia" for folder in sys.path if (Path(folder) / "nvidia").is_dir()]
    found = [str(path) for folder in folders for path in folder.glob("**/libcufile.so*")]
    found += [str(path) for path in Path("/usr/local").glob("cuda*/**/libcufile.so*")]
    for name in [*found, "libcufile.so.0"]:
        with contextlib.suppress(OSError):
            library = ctypes.CDLL(name)
            library.cuFileDriverOpen.restype = library.cuFileHandleRegister.restype = _Status
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
    print(json.dumps(measure(), separators=(",", ":")))
