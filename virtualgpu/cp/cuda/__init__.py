"""``cp.cuda`` of the virtual GPU: devices, streams, events, graphs and memory.

`is_available` is True: the virtual GPU stands in for a CUDA device, so the same cells run everywhere.
``gl.device()`` and the first output of a notebook tell it apart from a real one.
"""

from __future__ import annotations

import importlib
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from virtualgpu.cp._missing_names import AttributeNamespace, make_module_getattr
from virtualgpu.cp.cuda import (
    device,
    memory,
    memory_hook,
    memory_hooks,
    nvtx,
    pinned_memory,
    runtime,
    stream,
    texture,
)
from virtualgpu.cp.cuda._memory.functions import CFunctionAllocator, PythonFunctionAllocator
from virtualgpu.cp.cuda._memory.managed import ManagedMemory, malloc_managed
from virtualgpu.cp.cuda._memory.pointer import BaseMemory, Memory, MemoryPointer, UnownedMemory
from virtualgpu.cp.cuda._memory.pool import (
    MemoryPool,
    alloc,
    get_allocator,
    set_allocator,
    using_allocator,
)
from virtualgpu.cp.cuda._memory.stream_ordered import MemoryAsync, MemoryAsyncPool, malloc_async
from virtualgpu.cp.cuda.device import Device, get_device_id
from virtualgpu.cp.cuda.graph import Graph
from virtualgpu.cp.cuda.memory_hook import MemoryHook
from virtualgpu.cp.cuda.pinned_memory import (
    PinnedMemory,
    PinnedMemoryPointer,
    PinnedMemoryPool,
    alloc_pinned_memory,
    set_pinned_memory_allocator,
)
from virtualgpu.cp.cuda.stream import Event, ExternalStream, Stream, get_current_stream, get_elapsed_time
from virtualgpu.cuda_errors import CUDADriverError, CUDARuntimeError

__all__ = [
    "BaseMemory",
    "CFunctionAllocator",
    "Device",
    "Event",
    "ExternalStream",
    "Graph",
    "ManagedMemory",
    "Memory",
    "MemoryAsync",
    "MemoryAsyncPool",
    "MemoryHook",
    "MemoryPointer",
    "MemoryPool",
    "PinnedMemory",
    "PinnedMemoryPointer",
    "PinnedMemoryPool",
    "PythonFunctionAllocator",
    "Stream",
    "UnownedMemory",
    "alloc",
    "alloc_pinned_memory",
    "compiler",
    "device",
    "driver",
    "get_allocator",
    "get_current_stream",
    "get_device_id",
    "get_elapsed_time",
    "get_local_runtime_version",
    "graph",
    "is_available",
    "malloc_async",
    "malloc_managed",
    "memory",
    "memory_hook",
    "memory_hooks",
    "nvrtc",
    "nvtx",
    "pinned_memory",
    "profile",
    "profiler",
    "runtime",
    "set_allocator",
    "set_pinned_memory_allocator",
    "stream",
    "texture",
    "using_allocator",
]


def is_available() -> bool:
    """Return whether kernels can run: always True on the virtual GPU."""
    return True


def get_local_runtime_version() -> int:
    """Return the CUDA version that the virtual GPU emulates."""
    return runtime.runtimeGetVersion()


@contextmanager
def profile() -> Iterator[None]:
    """Context manager without effect, because external profilers cannot record a virtual GPU."""
    yield


profiler = AttributeNamespace(
    "cp.cuda.profiler", start=runtime.profilerStart, stop=runtime.profilerStop, profile=profile
)

_REMEDY_BY_NAME = {
    **memory.REMEDIES,
    "cublas": "use cp.dot, cp.matmul and cp.linalg",
    "cusolver": "use cp.linalg",
    "cusparse": "the virtual GPU has no sparse arrays; use dense arrays, or write a kernel",
    "cufft": "use cp.fft",
    "curand": "use cp.random, or include curand_kernel.h in your own kernel",
}
_raise_missing_name = make_module_getattr("cp.cuda", globals(), _REMEDY_BY_NAME)


# Modules that need the compiler or are seldom used; they are loaded at their first use.
_LAZY_MODULES = ("compiler", "driver", "function", "nccl", "nvrtc")


def __getattr__(name: str) -> Any:
    if name in _LAZY_MODULES:
        return importlib.import_module(f"virtualgpu.cp.cuda.{name}")
    if name in ("Function", "Module"):
        return getattr(importlib.import_module("virtualgpu.cp.cuda.function"), name)
    if name in ("CUDARuntimeError", "CUDADriverError"):
        return {"CUDARuntimeError": CUDARuntimeError, "CUDADriverError": CUDADriverError}[name]
    return _raise_missing_name(name)


def __dir__() -> list[str]:
    return sorted({*__all__, *_LAZY_MODULES, "Function", "Module", "CUDARuntimeError", "CUDADriverError"})
