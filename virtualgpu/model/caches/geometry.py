"""Cache sizes of a GPU, and the part of an SM's memory that a launch leaves to L1."""

from __future__ import annotations

from dataclasses import dataclass

from virtualgpu.records import DeviceInfo

KIB = 1024
# Memory of an SM that L1 and shared memory divide, and the sizes that the shared part may have, in KiB: CUDA
# C++ Programming Guide, "Shared Memory" of each compute capability.
_UNIFIED_CACHE_SIZES: tuple[tuple[tuple[int, int], int, tuple[int, ...]], ...] = (
    ((12, 0), 128, (0, 8, 16, 32, 64, 100)),
    ((11, 0), 256, (0, 8, 16, 32, 64, 100, 132, 164, 196, 228)),
    ((10, 0), 256, (0, 8, 16, 32, 64, 100, 132, 164, 196, 228)),
    ((9, 0), 256, (0, 8, 16, 32, 64, 100, 132, 164, 196, 228)),
    ((8, 9), 128, (0, 8, 16, 32, 64, 100)),
    ((8, 7), 192, (0, 8, 16, 32, 64, 100, 132, 164)),
    ((8, 6), 128, (0, 8, 16, 32, 64, 100)),
    ((8, 0), 192, (0, 8, 16, 32, 64, 100, 132, 164)),
    ((7, 5), 96, (32, 64)),
    ((7, 0), 128, (0, 8, 16, 32, 64, 96)),
)
# Before Volta the two are separate: "Architecture" of compute capability 5.x and 6.x.
_SEPARATE_KIB = {(5, 0): 24, (5, 2): 24, (5, 3): 24, (6, 0): 24, (6, 1): 48, (6, 2): 48}


@dataclass(frozen=True, slots=True)
class CacheSizes:
    """The sizes of the L1 cache of each SM and of the L2 cache, in bytes.

    The L2 cache has ``l2_parts`` parts, and each part keeps copies of the data that its SMs read.
    ``merging_sms`` is the number of SMs whose requests for the same sectors are merged on the way to L2.
    """

    l1_bytes: int
    l2_bytes: int
    l2_parts: int = 1
    merging_sms: int = 0


def compute_cache_sizes(info: DeviceInfo, shared_bytes: int, blocks_per_sm: int) -> CacheSizes:
    """Return the cache sizes of a GPU while it runs blocks that each use the given amount of shared memory.

    The argument `shared_bytes` includes the shared memory that the driver reserves per block.

    The driver reserves more shared memory than the resident blocks need. On an H200 it chooses the smallest
    available size that is at least twice the need, up to 100 KiB, and four times the need, up to 32 KiB.
    """
    capability = info.compute_capability
    merging_sms = 4 if capability >= (8, 0) else 0
    l2_parts = 2 if capability in ((8, 0), (9, 0), (10, 0), (10, 3)) else 1
    if capability in _SEPARATE_KIB:
        return CacheSizes(_SEPARATE_KIB[capability] * KIB, info.l2_bytes, l2_parts, merging_sms)
    unified_kib, carve_outs_kib = next(
        (size_kib, sizes_kib)
        for first_capability, size_kib, sizes_kib in _UNIFIED_CACHE_SIZES
        if capability >= first_capability
    )
    needed_bytes = shared_bytes * blocks_per_sm
    target_bytes = max(needed_bytes, min(2 * needed_bytes, 100 * KIB), min(4 * needed_bytes, 32 * KIB))
    shared_kib = next((kib for kib in carve_outs_kib if kib * KIB >= target_bytes), carve_outs_kib[-1])
    return CacheSizes((unified_kib - shared_kib) * KIB, info.l2_bytes, l2_parts, merging_sms)
