"""The memory hierarchy as a ladder: how long a load takes and how much each level delivers."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from virtualgpu.records.origin import Provenance


@dataclass(frozen=True, slots=True)
class LevelBandwidth:
    """What one level of the hierarchy delivers to the whole GPU.

    ``gbps`` is in GB/s (10^9), None where this machine cannot tell; ``why`` then says why. ``method`` says
    how it was found. ``published_gbps`` is what ``document`` says or what follows from it; None if nothing
    does.
    """

    level: str
    gbps: float | None
    method: str
    published_gbps: float | None = None
    document: str = ""
    why: str = ""


@dataclass(frozen=True, slots=True)
class CacheCapacity:
    """How much a cache holds, as ``document`` says."""

    level: str
    size_bytes: int
    document: str


@dataclass(frozen=True, slots=True)
class MemoryLadder:
    """Latency over the working set, and bandwidth by level, of one device.

    Attributes
    ----------
    working_set_bytes
        (points,) How many bytes the chain of addresses runs through, rising.
    latency_ns
        (points,) What one load of that chain takes.
    latency_method
        How that was found, in a sentence.
    bandwidths
        From the registers outwards.
    capacities
        Of the caches.
    """

    provenance: Provenance
    working_set_bytes: npt.NDArray[np.int64]
    latency_ns: npt.NDArray[np.float64]
    latency_method: str
    bandwidths: tuple[LevelBandwidth, ...]
    capacities: tuple[CacheCapacity, ...]

    def latency_at(self, size_bytes: float) -> float:
        """Latency in ns at a working set, on a straight line between the logarithms of its neighbours."""
        sizes = np.log2(self.working_set_bytes)
        return float(2 ** np.interp(np.log2(size_bytes), sizes, np.log2(self.latency_ns)))

    def bandwidth(self, level: str) -> float | None:
        """GB/s of a level, such as ``"L2"``; None if it has none."""
        return next((b.gbps for b in self.bandwidths if b.level == level), None)
