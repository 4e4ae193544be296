"""Rooflines: operations, bytes and times of launches, and the peak rates of their device."""

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
    """Peak rates of a device: bandwidth of each memory level, and operations per second by type.

    Attributes
    ----------
    device : str
        Name of the device.
    gbps : mapping
        Bytes by level in GB/s: DRAM as published; L2 by the time model; shared memory 128 bytes per clock
        and SM.
    gflops : mapping
        Operations by type in GFLOP/s: ``f32``, ``f64``, ``f16``, ``bf16``, and ``tensor f16`` and so on of
        tensor cores.
    """

    device: str
    gbps: Mapping[Level, float]
    gflops: Mapping[str, float]


@dataclass(frozen=True, slots=True, kw_only=True)
class RooflinePoint:
    """One launch in a roofline: its floating-point operations by type, bytes moved by level, and time.

    Bytes are those that were moved, not those that the kernel requested: sectors of DRAM and L2, and a whole
    pass of the banks (128 bytes) for each wavefront of shared memory. ``modelled_ns`` is the virtual GPU's
    time next to a measured one, or None.
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
        """Return the point of a launch from its counters, including those of caches, and its time."""
        flops: dict[str, int] = {}
        for kind, total in counters.flops.items():
            count = total - counters.tensor_flops.get(kind, 0)
            if count:
                flops[kind] = count
        flops |= {f"tensor {kind}": count for kind, count in counters.tensor_flops.items() if count}
        caches = counters.caches
        dram_bytes = caches.dram_read_bytes + caches.dram_write_bytes if caches is not None else 0
        moved_bytes: dict[Level, int] = {
            "DRAM": dram_bytes,
            "L2": SECTOR_BYTES * caches.l2_sectors if caches is not None else 0,
            "shared": WAVEFRONT_BYTES * counters.total("wavefronts", "shared"),
        }
        return cls(
            name=name,
            provenance=provenance,
            flops=flops,
            size_bytes=moved_bytes,
            time_ns=time_ns,
            modelled_ns=modelled_ns,
        )

    @property
    def operations(self) -> int:
        """Number of floating-point operations of all types."""
        return sum(self.flops.values())

    @property
    def gflops(self) -> float:
        """Floating-point operations per second, in GFLOP/s."""
        return self.operations / self.time_ns if self.time_ns else 0.0

    @property
    def intensities(self) -> dict[Level, float]:
        """Arithmetic intensity (operations per byte) for each memory level that moved bytes."""
        return {
            level: self.operations / self.size_bytes[level] for level in LEVELS if self.size_bytes.get(level)
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class Roofline:
    """Launches and the peak rates of one device; with ``path`` each launch improves the previous one."""

    ceilings: Ceilings
    points: tuple[RooflinePoint, ...] = ()
    path: bool = False
    note: str = field(default="", compare=False)

    def peak(self, point: RooflinePoint) -> float:
        """Return the ceiling of a launch by arithmetic alone, in GFLOP/s.

        Operations of different types are assumed to run one after another.
        """
        arithmetic_ns = sum(count / self.ceilings.gflops[kind] for kind, count in point.flops.items())
        return point.operations / arithmetic_ns if arithmetic_ns else 0.0

    def roof(self, point: RooflinePoint) -> tuple[Level | None, float]:
        """Return the memory level that limits a launch (None for arithmetic), and its ceiling in GFLOP/s."""
        limits: list[tuple[float, Level | None]] = [(self.peak(point), None)]
        for level, intensity in point.intensities.items():
            limits.append((intensity * self.ceilings.gbps[level], level))
        ceiling_gflops, limiting_level = min(limits, key=lambda limit: limit[0])
        return limiting_level, ceiling_gflops
