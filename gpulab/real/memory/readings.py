"""Read a GPU's memory use from CuPy's pool, the driver, and NVML (for other processes)."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

import cupy

from gpulab.real.nvml import NvmlDevice
from virtualgpu.records.memory import MemoryReading


def make_reader(device: cupy.cuda.Device, nvml: NvmlDevice | None) -> Callable[[], MemoryReading]:
    """Return a function that reads the memory use of a device. Any thread can call this function."""

    def read_memory() -> MemoryReading:
        with device:
            pool = _find_pool()
            free_bytes, total_bytes = cupy.cuda.runtime.memGetInfo()
            return MemoryReading(
                used_bytes=_read_pool_value(pool, "used_bytes"),
                reserved_bytes=_read_pool_value(pool, "total_bytes"),
                limit_bytes=_read_pool_value(pool, "get_limit"),
                device_bytes=int(total_bytes - free_bytes),
                others_bytes=_read_other_bytes(nvml),
            )

    return read_memory


def _find_pool() -> Any:
    """Return the pool of the current allocator, or else CuPy's default pool."""
    pool = getattr(cupy.cuda.get_allocator(), "__self__", None)
    return pool if hasattr(pool, "total_bytes") else cupy.get_default_memory_pool()


def _read_pool_value(pool: Any, method: str) -> int | None:
    try:
        return int(getattr(pool, method)())
    except (AttributeError, RuntimeError):  # `MemoryAsyncPool` cannot say everything
        return None


def _read_other_bytes(nvml: NvmlDevice | None) -> int | None:
    """Return the bytes that other processes use, or None if NVML cannot distinguish processes."""
    process_infos = nvml.call_or_none("nvmlDeviceGetComputeRunningProcesses") if nvml else None
    if process_infos is None or not any(process.pid == os.getpid() for process in process_infos):
        return None
    process_bytes = [
        getattr(running_process, "usedGpuMemory", None)
        for running_process in process_infos
        if running_process.pid != os.getpid()
    ]
    process_sizes = [int(size) for size in process_bytes if size is not None]
    return sum(process_sizes) if len(process_sizes) == len(process_bytes) else None
