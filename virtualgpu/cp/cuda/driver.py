"""``cp.cuda.driver``: functions of the CUDA driver for modules and kernels, under CuPy's names."""

from __future__ import annotations

from virtualgpu.cp._missing_names import make_module_getattr
from virtualgpu.cp.cuda._runtime.devices import VIRTUAL_CUDA_VERSION
from virtualgpu.cp.cuda.function import Function, Module, get_loaded_object
from virtualgpu.cuda_errors import CUDADriverError
from virtualgpu.launch.compiled import check_registers_fit

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
    """Return the CUDA version that the virtual GPU emulates, as 1000 x major + 10 x minor."""
    return VIRTUAL_CUDA_VERSION


def moduleGetFunction(module: int, funcname: str) -> int:  # noqa: N802
    """Return the handle of a kernel in a module. The handle is valid until the module is destroyed."""
    loaded_module: Module = get_loaded_object(module, Module, "module")
    function = loaded_module.get_function(funcname)
    loaded_module.__dict__.setdefault("functions", []).append(function)
    return function.ptr


def moduleGetGlobal(module: int, varname: str) -> int:  # noqa: N802
    """Return the address of a ``__device__`` or ``__constant__`` variable of a module."""
    loaded_module: Module = get_loaded_object(module, Module, "module")
    return loaded_module.get_global_var(varname)


def funcGetAttribute(attribute: int, f: int) -> int:  # noqa: N802
    """Return one attribute of a kernel, such as ``CU_FUNC_ATTRIBUTE_NUM_REGS``."""
    function: Function = get_loaded_object(f, Function, "function")
    stats = function.stats
    attribute_values = {
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
    if attribute not in attribute_values:
        raise _make_invalid_value_error(f"there is no function attribute {attribute}.")
    return attribute_values[attribute]


def funcSetAttribute(f: int, attribute: int, value: int) -> None:  # noqa: N802
    """Set the maximum dynamic shared memory of a kernel. The preferred carveout can also be set, but it has
    no effect.
    """
    function: Function = get_loaded_object(f, Function, "function")
    if attribute == CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES:
        function.max_dynamic_shared_bytes = value
    elif attribute != CU_FUNC_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT or not -1 <= value <= 100:
        raise _make_invalid_value_error(f"function attribute {attribute} cannot be set to {value}.")


def occupancyMaxActiveBlocksPerMultiprocessor(  # noqa: N802
    func: int,
    blockSize: int,  # noqa: N803
    dynamicSMemSize: int,  # noqa: N803
) -> int:
    """Return how many blocks of a kernel can be resident on one SM at the same time."""
    function: Function = get_loaded_object(func, Function, "function")
    stats = function.stats
    if blockSize < 1:
        raise _make_invalid_value_error(f"the block has {blockSize} threads, but it must have at least 1.")
    if blockSize > stats.max_threads_per_block:
        return 0
    if dynamicSMemSize > function.max_dynamic_shared_bytes:
        return 0
    shared_bytes = stats.static_shared_bytes + dynamicSMemSize
    module = function.module
    return check_registers_fit(
        module.device.info, module.compiled.resources[function.name], blockSize, shared_bytes
    ).blocks_per_sm


def occupancyMaxPotentialBlockSize(  # noqa: N802
    func: int,
    dynamicSMemSize: int,  # noqa: N803
    blockSizeLimit: int,  # noqa: N803
) -> tuple[int, int]:
    """Return the number of blocks that fills the device, and the block size with the highest occupancy."""
    function: Function = get_loaded_object(func, Function, "function")
    max_block_size = function.stats.max_threads_per_block
    max_block_size = min(max_block_size, blockSizeLimit) if blockSizeLimit else max_block_size
    block_sizes = {max_block_size, *range(_WARP_THREADS, max_block_size + 1, _WARP_THREADS)}
    occupancies = [
        (occupancyMaxActiveBlocksPerMultiprocessor(func, n, dynamicSMemSize) * n, n) for n in block_sizes
    ]
    resident_threads, block_size = max(occupancies)
    return resident_threads // block_size * function.module.device.info.sm_count, block_size


def _make_invalid_value_error(reason: str) -> CUDADriverError:
    return CUDADriverError(1, "CUDA_ERROR_INVALID_VALUE", f"invalid argument: {reason}")


_LAUNCH_REMEDY = "use cp.RawKernel or cp.cuda.function.Function, which take the arguments unchanged"
_LOAD_REMEDY = "use cp.cuda.function.Module, whose `load` method takes PTX"
__getattr__ = make_module_getattr(
    "cp.cuda.driver",
    globals(),
    {
        "launchKernel": _LAUNCH_REMEDY,
        "launchCooperativeKernel": _LAUNCH_REMEDY,
        "moduleLoad": _LOAD_REMEDY,
        "moduleLoadData": _LOAD_REMEDY,
        "linkCreate": _LOAD_REMEDY,
    },
)
