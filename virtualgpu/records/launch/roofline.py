"""Rooflines: what launches computed, moved and took, under what their device can do."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from virtualgpu.records.counters import KernelCounters
from virtualgpu.records.kernel import SECTOR_BYTES
from virtualgpu.records.origin import Provenance

Level = Literal["DRAM", "L2", "shared"]
LEVELS: tuple[Level, ...] = ("DRAM", "L2", "shared")
WAVEFRONT_BYTES = 128


@dataclass(frozen=True, slots=True, kw_only=True)
class Ceilings:
    """What a device can do at most.

    Attributes
    ----------
    device : str
        Its name.
    gbps : mapping
        Bytes by level in GB/s: DRAM as published; L2 by the time model; shared memory 128 bytes a clock and
        SM.
    gflops : mapping
        Operations by type in GFLOP/s: ``f32``, ``f64``, ``f16``, ``bf16``, and ``tensor f16`` and so on of
        tensor cores.
    """

    device: str
    gbps: Mapping[Level, float]
    gflops: Mapping[str, float]


@dataclass(frozen=True, slots=True, kw_only=True)
class RooflinePoint:
    """One launch: its floating-point operations by type, bytes moved by level, and time.

    Bytes are those that were moved, not those that the kernel asked for: sectors of DRAM and L2, and a whole
    pass of the banks (128 bytes) for each wavefront of shared memory. ``modelled_ns`` is the virtual GPU's
    time beside a measured one, None where there is none.
    """

    name: str
    provenance: Provenance
    flops: Mapping[str, int]
    size_bytes: Mapping[Level, int]
    time_ns: float
    modelled_ns: float | None = None

    @classmethod
    def of(
        cls,
        name: str,
        counters: KernelCounters,
        provenance: Provenance,
        time_ns: float,
        modelled_ns: float | None = None,
    ) -> RooflinePoint:
        """A launch from its counters, those of caches with them, and its time."""
        flops = {
            kind: many
            for kind, every in counters.flops.items()
            if (many := every - counters.tensor_flops.get(kind, 0))
        }
        flops |= {f"tensor {kind}": many for kind, many in counters.tensor_flops.items() if many}
        caches = counters.caches
        dram = caches.dram_read_bytes + caches.dram_write_bytes if caches is not None else 0
        moved: dict[Level, int] = {
            "DRAM": dram,
            "L2": SECTOR_BYTES * caches.l2_sectors if caches is not None else 0,
            "shared": WAVEFRONT_BYTES * counters.total("wavefronts", "shared"),
        }
        return cls(
            name=name,
            provenance=provenance,
            flops=flops,
            size_bytes=moved,
            time_ns=time_ns,
            modelled_ns=modelled_ns,
        )

    @property
    def operations(self) -> int:
        """Floating-point operations of every type."""
        return sum(self.flops.values())

    @property
    def gflops(self) -> float:
        """Operations a second, in GFLOP/s."""
        return self.operations / self.time_ns if self.time_ns else 0.0

    @property
    def intensities(self) -> dict[Level, float]:
        """Operations a byte by level, of those that moved any."""
        return {
            level: self.operations / self.size_bytes[level] for level in LEVELS if self.size_bytes.get(level)
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class Roofline:
    """Launches under the ceilings of one device; with ``path`` each is what became of the one before it."""

    ceilings: Ceilings
    points: tuple[RooflinePoint, ...] = ()
    path: bool = False
    note: str = field(default="", compare=False)

    def peak(self, point: RooflinePoint) -> float:
        """What arithmetic alone would let a launch reach, in GFLOP/s: its types take turns."""
        took = sum(many / self.ceilings.gflops[kind] for kind, many in point.flops.items())
        return point.operations / took if took else 0.0

    def roof(self, point: RooflinePoint) -> tuple[Level | None, float]:
        """What holds a launch down first, a level of memory or arithmetic (None), and where, in GFLOP/s."""
        roofs: list[tuple[float, Level | None]] = [(self.peak(point), None)]
        roofs += [(each * self.ceilings.gbps[level], level) for level, each in point.intensities.items()]
        most, level = min(roofs, key=lambda roof: roof[0])
        return level, most
