"""Theoretical occupancy, by the rules of CUDA's occupancy calculator.

Rules and allocation units are those of ``cuda_occupancy.h`` (CUDA 13), which
``cudaOccupancyMaxActiveBlocksPerMultiprocessor`` follows:

* warps: an SM holds ``max_warps_per_sm`` warps; a block takes whole warps.
* blocks: an SM holds ``max_blocks_per_sm`` blocks.
* registers: a warp takes ``registers x 32`` rounded up to 256; the register file is split evenly
  over the SM's partitions, and a warp lives in one of them. One block's warps, rounded up to a
  multiple of the partitions, must also fit ``registers_per_block``.
* shared memory: static + dynamic + what the driver reserves (1 KiB from compute capability 8.0),
  rounded up to 128 bytes (256 before 8.0).
"""

from __future__ import annotations

from dataclasses import replace

from virtualgpu.records import WARP_SIZE, DeviceInfo, Occupancy, Provenance

REGISTER_ALLOCATION_UNIT = 256


def partitions_per_sm(capability: tuple[int, int]) -> int:
    """Return the number of partitions of an SM. Each partition has its own warp scheduler and registers."""
    return 2 if capability == (6, 0) else 4


def shared_allocation_unit_bytes(capability: tuple[int, int]) -> int:
    """Return the granularity in bytes with which shared memory is allocated."""
    return 128 if capability >= (8, 0) else 256


def occupancy(
    info: DeviceInfo,
    block_threads: int,
    registers_per_thread: int,
    shared_bytes: int = 0,
    *,
    provenance: Provenance | None = None,
) -> Occupancy:
    """Return the number of blocks of a kernel that an SM can hold at the same time, and the resources that
    limit it.

    Parameters
    ----------
    info
        The device.
    block_threads
        Threads per block, at least 1.
    registers_per_thread
        As the compiler reports it.
    shared_bytes
        Shared memory per block, static plus dynamic. Above the device's default of 48 KiB the
        kernel is taken to have opted in (``max_dynamic_shared_size_bytes``).
    provenance
        Default: modelled on `info`'s device.

    Returns
    -------
    Occupancy
        With 0 blocks if a single block exceeds a limit. A kernel without shared memory or registers is
        counted with one allocation unit, which never limits.
    """
    if block_threads < 1:
        raise ValueError(f"The block size is {block_threads}, but a block must have at least 1 thread.")
    if registers_per_thread < 0 or shared_bytes < 0:
        raise ValueError("Registers per thread and shared memory per block cannot be negative.")
    warps = -(-block_threads // WARP_SIZE)
    blocks_by_limit = {
        "warps": info.max_warps_per_sm // warps if block_threads <= info.max_threads_per_block else 0,
        "blocks": info.max_blocks_per_sm,
        "registers": _compute_register_limit(info, warps, registers_per_thread),
        "shared memory": _compute_shared_limit(info, shared_bytes),
    }
    blocks_per_sm = min(blocks_by_limit.values())
    return Occupancy(
        provenance=provenance or replace(info.as_virtual, detail="occupancy rules"),
        block_threads=block_threads,
        registers_per_thread=registers_per_thread,
        shared_bytes=shared_bytes,
        blocks_per_sm=blocks_per_sm,
        warps_per_sm=blocks_per_sm * warps,
        max_warps_per_sm=info.max_warps_per_sm,
        blocks_by_limit=blocks_by_limit,
        limiters=tuple(name for name, block_limit in blocks_by_limit.items() if block_limit == blocks_per_sm),
    )


def _compute_register_limit(info: DeviceInfo, warps: int, registers_per_thread: int) -> int:
    partitions = partitions_per_sm(info.compute_capability)
    registers_per_warp = _round_up(max(registers_per_thread, 1) * WARP_SIZE, REGISTER_ALLOCATION_UNIT)
    # CUDA lets no block run on 6.0 that the other Pascals, with 4 partitions, could not hold.
    assumed_per_block = registers_per_warp * _round_up(warps, 4)
    max_registers_per_thread = 255 if info.compute_capability < (7, 0) else 256
    if registers_per_thread > max_registers_per_thread or assumed_per_block > info.registers_per_block:
        return 0
    warps_per_partition = (info.registers_per_sm // partitions) // registers_per_warp
    return warps_per_partition * partitions // warps


def _compute_shared_limit(info: DeviceInfo, shared_bytes: int) -> int:
    unit_bytes = shared_allocation_unit_bytes(info.compute_capability)
    allocated_bytes = max(
        _round_up(shared_bytes + info.reserved_shared_per_block_bytes, unit_bytes), unit_bytes
    )
    is_opted_in = shared_bytes > info.shared_per_block_bytes
    max_block_bytes = info.shared_per_block_optin_bytes if is_opted_in else info.shared_per_block_bytes
    if allocated_bytes > max_block_bytes + info.reserved_shared_per_block_bytes:
        return 0
    return info.shared_per_sm_bytes // allocated_bytes


def _round_up(value: int, unit: int) -> int:
    return -(-value // unit) * unit
