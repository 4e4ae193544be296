"""How large a GPU's caches are, and how much of an SM's memory a launch leaves to L1."""

from __future__ import annotations

from dataclasses import dataclass

from virtualgpu.records import DeviceInfo

KIB = 1024
# Memory of an SM that L1 and shared memory divide, and the sizes that the shared part may have, in KiB: CUDA
# C++ Programming Guide, "Shared Memory" of each compute capability.
_UNIFIED: tuple[tuple[tuple[int, int], int, tuple[int, ...]], ...] = (
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
# Before Volta the two are apart: "Architecture" of compute capability 5.x and 6.x.
_SEPARATE_KIB = {(5, 0): 24, (5, 2): 24, (5, 3): 24, (6, 0): 24, (6, 1): 48, (6, 2): 48}


@dataclass(frozen=True, slots=True)
class CacheSizes:
    """Bytes of each SM's L1 cache and of L2.

    ``l2_parts`` is into how many parts L2 is divided, which each keep copies of what their SMs read;
    ``merging_sms`` of how many SMs requests for the same sectors become one on their way there.
    """

    l1_bytes: int
    l2_bytes: int
    l2_parts: int = 1
    merging_sms: int = 0


def cache_sizes(info: DeviceInfo, shared_bytes: int, blocks_per_sm: int) -> CacheSizes:
    """The caches as they are while blocks with so much shared memory each, the driver's included, run.

    The driver gives shared memory more than the blocks need which run at once: on an H200, the smallest of
    its sizes of at least twice as much, up to 100 KiB, and of 4 KiB for each 1 KiB, up to 32 KiB.
    """
    capability = info.compute_capability
    merging = 4 if capability >= (8, 0) else 0
    parts = 2 if capability in ((8, 0), (9, 0), (10, 0), (10, 3)) else 1
    if capability in _SEPARATE_KIB:
        return CacheSizes(_SEPARATE_KIB[capability] * KIB, info.l2_bytes, parts, merging)
    unified, carve_outs = next((size, outs) for since, size, outs in _UNIFIED if capability >= since)
    needed = shared_bytes * blocks_per_sm
    wanted = max(needed, min(2 * needed, 100 * KIB), min(4 * needed, 32 * KIB))
    carve_out = next((kib for kib in carve_outs if kib * KIB >= wanted), carve_outs[-1])
    return CacheSizes((unified - carve_out) * KIB, info.l2_bytes, parts, merging)
