"""``cp.cuda`` of the virtual GPU.

`is_available` is True: the virtual GPU answers for a CUDA device, so the same cells run everywhere.
What tells it apart is ``gl.device()`` and the first sentence a notebook prints.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from virtualgpu.cp._missing_names import Namespace, module_getattr
from virtualgpu.cp.cuda import memory_hook, memory_hooks, pinned, runtime
from virtualgpu.cp.cuda.device import Device
from virtualgpu.cp.cuda.graph import Graph
from virtualgpu.cp.cuda.memory_hook import MemoryHook
from virtualgpu.cp.cuda.pinned import (
    PinnedMemory,
    PinnedMemoryPointer,
    PinnedMemoryPool,
    alloc_pinned_memory,
    set_pinned_memory_allocator,
)
from virtualgpu.cp.cuda.pointer import BaseMemory, Memory, MemoryPointer, UnownedMemory
from virtualgpu.cp.cuda.pool import (
    MemoryPool,
    PooledMemory,
    SingleDeviceMemoryPool,
    alloc,
    get_allocator,
    set_allocator,
    using_allocator,
)
from virtualgpu.cp.cuda.streams import Event, ExternalStream, Stream, get_current_stream, get_elapsed_time
from virtualgpu.cuda_errors import CompileException, CUDADriverError, CUDARuntimeError, OutOfMemoryError

__all__ = [
    "BaseMemory",
    "Device",
    "Event",
    "ExternalStream",
    "Graph",
    "Memory",
    "MemoryHook",
    "MemoryPointer",
    "MemoryPool",
    "PinnedMemory",
    "PinnedMemoryPointer",
    "PinnedMemoryPool",
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
    "using_allocator",
]


def is_available() -> bool:
    """Whether kernels can run: always True on the virtual GPU."""
    return True


def get_device_id() -> int:
    """Number of the current device."""
    return runtime.getDevice()


def get_local_runtime_version() -> int:
    """CUDA version that the virtual GPU follows."""
    return runtime.runtimeGetVersion()


@contextmanager
def profile() -> Iterator[None]:
    """Region for an external profiler; none watches a virtual GPU."""
    yield


def _nvrtc_version() -> tuple[int, int]:
    from virtualgpu.compile import nvrtc as compiler_library

    return compiler_library.version()


def _nvrtc_targets() -> list[int]:
    from virtualgpu.compile import nvrtc as compiler_library

    return list(compiler_library.supported_targets())


def _ignore(*_: Any, **__: Any) -> None:
    """Accept what NVTX accepts; nothing collects ranges on the virtual GPU."""


def _capability() -> str:
    return Device().compute_capability


nvrtc = Namespace("cp.cuda.nvrtc", getVersion=_nvrtc_version, getSupportedArchs=_nvrtc_targets)
nvtx = Namespace(
    "cp.cuda.nvtx", RangePush=_ignore, RangePushC=_ignore, RangePop=_ignore, Mark=_ignore, MarkC=_ignore
)
compiler = Namespace("cp.cuda.compiler", CompileException=CompileException)
driver = Namespace(
    "cp.cuda.driver", CUDADriverError=CUDADriverError, get_build_version=runtime.runtimeGetVersion
)
memory = Namespace(
    "cp.cuda.memory",
    BaseMemory=BaseMemory,
    Memory=Memory,
    MemoryPointer=MemoryPointer,
    MemoryPool=MemoryPool,
    OutOfMemoryError=OutOfMemoryError,
    PooledMemory=PooledMemory,
    SingleDeviceMemoryPool=SingleDeviceMemoryPool,
    UnownedMemory=UnownedMemory,
    alloc=alloc,
    get_allocator=get_allocator,
    set_allocator=set_allocator,
    using_allocator=using_allocator,
)
pinned_memory = Namespace(
    "cp.cuda.pinned_memory",
    PinnedMemory=PinnedMemory,
    PinnedMemoryPointer=PinnedMemoryPointer,
    PinnedMemoryPool=PinnedMemoryPool,
    alloc_pinned_memory=alloc_pinned_memory,
    is_memory_pinned=pinned.is_pinned_address,
    set_pinned_memory_allocator=set_pinned_memory_allocator,
)
stream = Namespace(
    "cp.cuda.stream",
    Event=Event,
    ExternalStream=ExternalStream,
    Stream=Stream,
    get_current_stream=get_current_stream,
    get_elapsed_time=get_elapsed_time,
)
device = Namespace(
    "cp.cuda.device", Device=Device, get_device_id=get_device_id, get_compute_capability=_capability
)


graph = Namespace("cp.cuda.graph", Graph=Graph)
profiler = Namespace(
    "cp.cuda.profiler", start=runtime.profilerStart, stop=runtime.profilerStop, profile=profile
)

_NO_MANAGED = "the virtual GPU does not model page migration; use cp.cuda.alloc and copies"
_POOL = "use cp.cuda.MemoryPool, the default, whose rules are CuPy's"
_KERNELS = "use cp.RawKernel and cp.RawModule"
_REMEDIES = {
    "ManagedMemory": _NO_MANAGED,
    "malloc_managed": _NO_MANAGED,
    "MemoryAsync": _POOL,
    "MemoryAsyncPool": _POOL,
    "malloc_async": _POOL,
    "Function": _KERNELS,
    "Module": _KERNELS,
    "function": _KERNELS,
    "nccl": "copy between virtual GPUs with cp.asarray, within `with cp.cuda.Device(...)`",
    "texture": "virtual GPUs have no textures; read global memory with __ldg or const __restrict__",
    "cublas": "use cp.dot, cp.matmul and cp.linalg",
}
_explain = module_getattr("cp.cuda", globals(), _REMEDIES)


def __getattr__(name: str) -> Any:
    if name in ("CUDARuntimeError", "CUDADriverError"):
        return {"CUDARuntimeError": CUDARuntimeError, "CUDADriverError": CUDADriverError}[name]
    return _explain(name)
