"""``cp.cuda.driver``: the CUDA driver's functions of loaded code, under CuPy's names."""

from __future__ import annotations

from virtualgpu.cp._missing_names import module_getattr
from virtualgpu.cp.cuda._runtime.devices import VIRTUAL_CUDA_VERSION
from virtualgpu.cp.cuda.function import Function, Module, loaded
from virtualgpu.cuda_errors import CUDADriverError
from virtualgpu.launch.compiled import fit

__all__ = [
    "CUDADriverError",
    "funcGetAttribute",
    "funcSetAttribute",
    "get_build_version",
    "moduleGetFunction",
    "moduleGetGlobal",
    "occupancyMaxActiveBlocksPerMultiprocessor",
    "occupancyMaxPotentialBlockSize",
]

# CUfunction_attribute (cuda.h).
CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK = 0
CU_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES = 1
CU_FUNC_ATTRIBUTE_CONST_SIZE_BYTES = 2
CU_FUNC_ATTRIBUTE_LOCAL_SIZE_BYTES = 3
CU_FUNC_ATTRIBUTE_NUM_REGS = 4
CU_FUNC_ATTRIBUTE_PTX_VERSION = 5
CU_FUNC_ATTRIBUTE_BINARY_VERSION = 6
CU_FUNC_ATTRIBUTE_CACHE_MODE_CA = 7
CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES = 8
CU_FUNC_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT = 9
_WARP_THREADS = 32


def get_build_version() -> int:
    """CUDA version that the virtual GPU follows, as 1000 x major + 10 x minor."""
    return VIRTUAL_CUDA_VERSION


def moduleGetFunction(module: int, funcname: str) -> int:  # noqa: N802
    """Handle of a kernel; it lives as long as the module."""
    owner: Module = loaded(module, Module, "module")
    function = owner.get_function(funcname)
    owner.__dict__.setdefault("functions", []).append(function)
    return function.ptr


def moduleGetGlobal(module: int, varname: str) -> int:  # noqa: N802
    """Address of a ``__device__`` or ``__constant__`` variable of a module."""
    owner: Module = loaded(module, Module, "module")
    return owner.get_global_var(varname)


def funcGetAttribute(attribute: int, f: int) -> int:  # noqa: N802
    """One attribute of a kernel, such as ``CU_FUNC_ATTRIBUTE_NUM_REGS``."""
    function: Function = loaded(f, Function, "function")
    stats = function.stats
    values = {
        CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK: stats.max_threads_per_block,
        CU_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES: stats.static_shared_bytes,
        CU_FUNC_ATTRIBUTE_CONST_SIZE_BYTES: stats.constant_bytes,
        CU_FUNC_ATTRIBUTE_LOCAL_SIZE_BYTES: stats.local_bytes,
        CU_FUNC_ATTRIBUTE_NUM_REGS: stats.registers_per_thread,
        CU_FUNC_ATTRIBUTE_PTX_VERSION: function.module.compiled.target,
        CU_FUNC_ATTRIBUTE_BINARY_VERSION: function.module.compiled.target,
        CU_FUNC_ATTRIBUTE_CACHE_MODE_CA: 0,
        CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES: function.max_dynamic_shared_bytes,
        CU_FUNC_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT: -1,
    }
    if attribute not in values:
        raise _invalid(f"there is no function attribute {attribute}.")
    return values[attribute]


def funcSetAttribute(f: int, attribute: int, value: int) -> None:  # noqa: N802
    """Set the most dynamic shared memory of a kernel; the carveout is accepted and changes nothing."""
    function: Function = loaded(f, Function, "function")
    if attribute == CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES:
        function.max_dynamic_shared_bytes = value
    elif attribute != CU_FUNC_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT or not -1 <= value <= 100:
        raise _invalid(f"function attribute {attribute} cannot be set to {value}.")


def occupancyMaxActiveBlocksPerMultiprocessor(  # noqa: N802
    func: int,
    blockSize: int,  # noqa: N803
    dynamicSMemSize: int,  # noqa: N803
) -> int:
    """Blocks of a kernel that fit on an SM at once: 0 if not even one does."""
    function: Function = loaded(func, Function, "function")
    stats = function.stats
    if blockSize < 1:
        raise _invalid(f"a block of {blockSize} threads; it has at least one.")
    if blockSize > stats.max_threads_per_block:
        return 0
    if dynamicSMemSize > function.max_dynamic_shared_bytes:
        return 0
    shared_bytes = stats.static_shared_bytes + dynamicSMemSize
    module = function.module
    return fit(
        module.device.info, module.compiled.resources[function.name], blockSize, shared_bytes
    ).blocks_per_sm


def occupancyMaxPotentialBlockSize(  # noqa: N802
    func: int,
    dynamicSMemSize: int,  # noqa: N803
    blockSizeLimit: int,  # noqa: N803
) -> tuple[int, int]:
    """Blocks that fill the device, and the largest of the block sizes with the most threads on an SM."""
    function: Function = loaded(func, Function, "function")
    most = function.stats.max_threads_per_block
    most = min(most, blockSizeLimit) if blockSizeLimit else most
    sizes = {most, *range(_WARP_THREADS, most + 1, _WARP_THREADS)}
    found = [(occupancyMaxActiveBlocksPerMultiprocessor(func, n, dynamicSMemSize) * n, n) for n in sizes]
    threads, size = max(found)
    return threads // size * function.module.device.info.sm_count, size


def _invalid(why: str) -> CUDADriverError:
    return CUDADriverError(1, "CUDA_ERROR_INVALID_VALUE", f"invalid argument: {why}")


_KERNELS = "use cp.RawKernel or cp.cuda.function.Function, which take the arguments as they are"
_MODULES = "use cp.cuda.function.Module, whose load takes PTX"
__getattr__ = module_getattr(
    "cp.cuda.driver",
    globals(),
    {
        "launchKernel": _KERNELS,
        "launchCooperativeKernel": _KERNELS,
        "moduleLoad": _MODULES,
        "moduleLoadData": _MODULES,
        "linkCreate": _MODULES,
    },
)
