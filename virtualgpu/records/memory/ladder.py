"""The memory hierarchy: latency of loads by working set, and bandwidth of each level."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from virtualgpu.records.origin import Provenance


@dataclass(frozen=True, slots=True)
class LevelBandwidth:
    """The bandwidth of one level of the memory hierarchy for the whole GPU.

    The field ``gbps`` is the bandwidth in GB/s (10^9 bytes), or None if it is unknown; ``why`` is then the
    reason. ``method`` describes how it was determined. ``published_gbps`` is the value of ``document`` or
    follows from it; None if there is none.
    """

    level: str
    gbps: float | None
    method: str
    published_gbps: float | None = None
    document: str = ""
    why: str = ""


@dataclass(frozen=True, slots=True)
class CacheCapacity:
    """The size of a cache, as published in the document that ``document`` names."""

    level: str
    size_bytes: int
    document: str


@dataclass(frozen=True, slots=True)
class MemoryLadder:
    """The memory latency of a device for each working set size, and the bandwidth of each memory level.

    Attributes
    ----------
    working_set_bytes
        (points,) Size of the chain of addresses in bytes, ascending.
    latency_ns
        (points,) Latency of one load of that chain.
    latency_method
        Method of the measurement, in a sentence.
    bandwidths
        Bandwidth by level, from the registers outwards.
    capacities
        Sizes of the caches.
    """

    provenance: Provenance
    working_set_bytes: npt.NDArray[np.int64]
    latency_ns: npt.NDArray[np.float64]
    latency_method: str
    bandwidths: tuple[LevelBandwidth, ...]
    capacities: tuple[CacheCapacity, ...]

    def latency_at(self, size_bytes: float) -> float:
        """Return the latency in ns for a working set of the given size. The latency is interpolated
        logarithmically.
        """
        log2_sizes = np.log2(self.working_set_bytes)
        return float(2 ** np.interp(np.log2(size_bytes), log2_sizes, np.log2(self.latency_ns)))

    def bandwidth(self, level: str) -> float | None:
        """Return the bandwidth of a memory level such as ``"L2"`` in GB/s, or None if it is not known."""
        for bandwidth in self.bandwidths:
            if bandwidth.level == level:
                return bandwidth.gbps
        return None
