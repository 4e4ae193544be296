"""``cp.cuda.memory``: device memory, memory pools and allocators, under CuPy's names."""

from __future__ import annotations

from virtualgpu.cp._missing_names import make_module_getattr
from virtualgpu.cp.cuda._memory.functions import (
    CFunctionAllocator,
    CFunctionAllocatorMemory,
    PythonFunctionAllocator,
    PythonFunctionAllocatorMemory,
)
from virtualgpu.cp.cuda._memory.managed import ManagedMemory, malloc_managed
from virtualgpu.cp.cuda._memory.pointer import BaseMemory, Memory, MemoryPointer, UnownedMemory
from virtualgpu.cp.cuda._memory.pool import (
    MemoryPool,
    PooledMemory,
    SingleDeviceMemoryPool,
    alloc,
    get_allocator,
    set_allocator,
    using_allocator,
)
from virtualgpu.cp.cuda._memory.stream_ordered import MemoryAsync, MemoryAsyncPool, malloc_async
from virtualgpu.cuda_errors import OutOfMemoryError

__all__ = [
    "BaseMemory",
    "CFunctionAllocator",
    "CFunctionAllocatorMemory",
    "ManagedMemory",
    "Memory",
    "MemoryAsync",
    "MemoryAsyncPool",
    "MemoryPointer",
    "MemoryPool",
    "OutOfMemoryError",
    "PooledMemory",
    "PythonFunctionAllocator",
    "PythonFunctionAllocatorMemory",
    "SingleDeviceMemoryPool",
    "UnownedMemory",
    "alloc",
    "get_allocator",
    "malloc_async",
    "malloc_managed",
    "set_allocator",
    "using_allocator",
]

_NO_SYSTEM_MEMORY = "virtual GPUs cannot access memory of the host's malloc; use cp.cuda.malloc_managed"
REMEDIES = {"SystemMemory": _NO_SYSTEM_MEMORY, "malloc_system": _NO_SYSTEM_MEMORY}
__getattr__ = make_module_getattr("cp.cuda.memory", globals(), REMEDIES)
