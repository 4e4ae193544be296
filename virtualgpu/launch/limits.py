"""Checks of a launch against a device's limits, with CUDA's error names."""

from __future__ import annotations

from math import prod

from virtualgpu.cuda_errors import CUDADriverError
from virtualgpu.records import DeviceInfo, Dim3, KernelStats

_AXES = "xyz"

# Maximum local memory per thread, for all compute capabilities (CUDA C++ Programming Guide).
_MAX_LOCAL_BYTES = 512 << 10


def check_shape(info: DeviceInfo, grid: Dim3, block: Dim3) -> None:
    """Raise ``CUDA_ERROR_INVALID_VALUE`` for a grid or block that exceeds the device's limits."""
    for shape_name, size_unit, sizes, limits in (
        ("grid", "blocks", grid, info.max_grid_dim),
        ("block", "threads", block, info.max_block_dim),
    ):
        for axis, size, limit in zip(_AXES, sizes, limits, strict=True):
            if size > limit and not (shape_name == "block" and prod(block) > info.max_threads_per_block):
                raise _invalid_value_error(
                    f"{shape_name}.{axis} is {size:,} {size_unit}, but the {info.name} allows "
                    f"at most {limit:,}. Also use another dimension of the {shape_name}, "
                    f"or fewer {size_unit}."
                )
    threads = prod(block)
    if threads > info.max_threads_per_block:
        raise _invalid_value_error(
            f"a block has {threads:,} threads, but the {info.name} allows at most "
            f"{info.max_threads_per_block:,}. Use smaller blocks and more of them."
        )


def check_kernel(info: DeviceInfo, stats: KernelStats, launch_bound_threads: int | None, block: Dim3) -> None:
    """Raise an error if the block size exceeds the kernel's launch bounds or the available registers."""
    threads = prod(block)
    if stats.local_bytes > _MAX_LOCAL_BYTES:
        raise CUDADriverError(
            701,
            "CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES",
            f"too many resources requested for launch: kernel '{stats.name}' needs "
            f"{stats.local_bytes:,} bytes of local memory per thread, and the maximum is "
            f"{_MAX_LOCAL_BYTES:,} (512 KiB). Keep large arrays in global memory, one "
            "part per thread.",
        )
    if launch_bound_threads is not None and threads > launch_bound_threads:
        raise _invalid_value_error(
            f"a block has {threads:,} threads, but kernel '{stats.name}' was compiled with "
            f"__launch_bounds__({launch_bound_threads}). Use at most {launch_bound_threads} threads or "
            "raise the bound."
        )
    if threads > stats.max_threads_per_block:
        raise CUDADriverError(
            701,
            "CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES",
            f"too many resources requested for launch: {threads:,} threads of "
            f"{stats.registers_per_thread} registers each do not fit into the {info.registers_per_block:,} "
            f"registers of a block on the {info.name}. Use at most {stats.max_threads_per_block:,} "
            f"threads per block, or let the compiler use fewer registers with __launch_bounds__({threads}).",
        )


def check_shared(
    info: DeviceInfo, stats: KernelStats, shared_bytes: int, max_dynamic_shared_bytes: int | None
) -> None:
    """Raise an error if a launch uses more dynamic shared memory than its kernel or the device permits."""
    device_limit = info.shared_per_block_optin_bytes - stats.static_shared_bytes
    allowed_bytes = (
        device_limit if max_dynamic_shared_bytes is None else min(max_dynamic_shared_bytes, device_limit)
    )
    if shared_bytes <= allowed_bytes:
        return
    static_note = (
        f" in addition to its {stats.static_shared_bytes:,} static bytes" if stats.static_shared_bytes else ""
    )
    if shared_bytes <= device_limit:
        remedy = f"Set kernel.max_dynamic_shared_size_bytes = {shared_bytes} first."
    else:
        remedy = (
            f"The {info.name} has at most {info.shared_per_block_optin_bytes:,} bytes per block, including "
            "the opt-in. Use less shared memory."
        )
    raise _invalid_value_error(
        f"a block requests {shared_bytes:,} bytes of dynamic shared memory, but kernel '{stats.name}' "
        f"may use {allowed_bytes:,}{static_note}. {remedy}"
    )


def check_cooperative(info: DeviceInfo, blocks: int, resident_blocks: int) -> None:
    """Raise ``CUDA_ERROR_COOPERATIVE_LAUNCH_TOO_LARGE`` if the device cannot run all blocks at the same
    time.
    """
    if blocks > resident_blocks:
        raise CUDADriverError(
            720,
            "CUDA_ERROR_COOPERATIVE_LAUNCH_TOO_LARGE",
            f"too many blocks in cooperative launch: {blocks:,} blocks, but the {info.name} can "
            f"hold {resident_blocks:,} of this kernel at once, and all blocks must be resident to wait for "
            "each other. Use fewer blocks.",
        )


def _invalid_value_error(message: str) -> CUDADriverError:
    return CUDADriverError(1, "CUDA_ERROR_INVALID_VALUE", f"invalid argument: {message}")
