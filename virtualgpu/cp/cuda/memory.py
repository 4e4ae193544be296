"""``cp.cuda.memory``: device memory, pools and the choice of allocator, under CuPy's names."""

from __future__ import annotations

from virtualgpu.cp._missing_names import module_getattr
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
from virtualgpu.cuda_errors import OutOfMemoryError

__all__ = [
    "BaseMemory",
    "Memory",
    "MemoryPointer",
    "MemoryPool",
    "OutOfMemoryError",
    "PooledMemory",
    "SingleDeviceMemoryPool",
    "UnownedMemory",
    "alloc",
    "get_allocator",
    "set_allocator",
    "using_allocator",
]

_NO_MANAGED = "the virtual GPU does not model page migration; use cp.cuda.alloc and copies"
_POOL = "use cp.cuda.MemoryPool, the default, whose rules are CuPy's"
REMEDIES = {
    "ManagedMemory": _NO_MANAGED,
    "malloc_managed": _NO_MANAGED,
    "SystemMemory": _NO_MANAGED,
    "malloc_system": _NO_MANAGED,
    "MemoryAsync": _POOL,
    "MemoryAsyncPool": _POOL,
    "malloc_async": _POOL,
}
__getattr__ = module_getattr("cp.cuda.memory", globals(), REMEDIES)
