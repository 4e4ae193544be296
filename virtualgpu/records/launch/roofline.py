"""Rooflines: operations, bytes and times of launches, and the peak rates of their device."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from virtualgpu.records.counters import KernelCounters
from virtualgpu.records.kernel import SECTOR_BYTES
from virtualgpu.records.origin import Provenance

Level = Literal["DRAM", "L2", "shared"]
LEVELS: tuple[Level, ...] = ("DRAM", "L2", "shared")
WAVEFRONT_BYTES = 128
Limit = Literal["DRAM", "L2", "shared", "CUDA cores", "tensor cores"]
TENSOR_PREFIX = "tensor "
"""Start of the name of a type of operations that tensor cores do, before their format."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Ceilings:
    """The peak rates of a device. These are the bandwidth of each memory level and the operations per second
    for each data type.

    Attributes
    ----------
    device : str
        Name of the device.
    gbps : mapping
        Bytes by level in GB/s: DRAM as published; L2 by the time model; shared memory 128 bytes per clock
        and SM.
    gflops : mapping
        Operations by type in GFLOP/s: ``f32``, ``f64``, ``f16``, ``bf16`` of CUDA cores, and those of tensor
        cores by format, such as ``tensor f16 to f32``; integers in billions per second. A format that the
        device does not have is absent.
    mma_sync_shares : mapping
        Share of the rate of tensor cores that ``mma.sync`` reached on an H200, by format. It is empty for
        devices on which no other instruction is faster.
    """

    device: str
    gbps: Mapping[Level, float]
    gflops: Mapping[str, float]
    mma_sync_shares: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class RooflinePoint:
    """A launch in a roofline diagram, with its operations by data type, its bytes by memory level, and its
    time.

    Bytes are counted as transferred, with whole sectors of DRAM and L2, and with 128 bytes for each wavefront
    of shared memory. ``modelled_ns`` is the virtual GPU's time next to a measured one, or None.
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
        """Return the point of a launch in a roofline diagram. The counters must include those of the
        caches.
        """
        tensor_operations = {
            f"{TENSOR_PREFIX}{name}": count for name, count in counters.tensor_operations.items()
        }
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
            flops={**counters.flops, **tensor_operations},
            size_bytes=moved_bytes,
            time_ns=time_ns,
            modelled_ns=modelled_ns,
        )

    @property
    def operations(self) -> int:
        """Number of operations of all data types."""
        return sum(self.flops.values())

    @property
    def gflops(self) -> float:
        """The rate of the launch in GFLOP/s."""
        return self.operations / self.time_ns if self.time_ns else 0.0

    @property
    def intensities(self) -> dict[Level, float]:
        """The arithmetic intensity in operations per byte for each memory level that moved bytes."""
        return {
            level: self.operations / self.size_bytes[level] for level in LEVELS if self.size_bytes.get(level)
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class Roofline:
    """Launches and the peak rates of one device. If the field ``path`` is true, each launch is an improved
    version of the previous one.
    """

    ceilings: Ceilings
    points: tuple[RooflinePoint, ...] = ()
    path: bool = False
    note: str = field(default="", compare=False)

    def peak(self, point: RooflinePoint) -> float:
        """Return the highest rate in GFLOP/s at which the device can execute the operations of a launch.

        The model assumes that operations of different types run one after another, but that CUDA cores and
        tensor cores work at the same time. The result is infinite if the device has no rate for the
        operations.
        """
        arithmetic_ns = max(self._arithmetic_ns(point).values())
        if not arithmetic_ns:
            return math.inf if point.operations else 0.0
        return point.operations / arithmetic_ns

    def _arithmetic_ns(self, point: RooflinePoint) -> dict[Limit, float]:
        """Return the shortest time of a launch's operations on CUDA cores and on tensor cores."""
        times_ns: dict[Limit, float] = {"CUDA cores": 0.0, "tensor cores": 0.0}
        for operation_kind, operation_count in point.flops.items():
            compute_unit: Limit = "tensor cores" if operation_kind.startswith(TENSOR_PREFIX) else "CUDA cores"
            if operation_kind in self.ceilings.gflops:
                times_ns[compute_unit] += operation_count / self.ceilings.gflops[operation_kind]
        return times_ns

    def find_ceiling(self, point: RooflinePoint) -> tuple[Limit, float]:
        """Return the memory level or the arithmetic units that limit a launch, and the limit in GFLOP/s."""
        arithmetic_ns = self._arithmetic_ns(point)
        limits_gflops: list[tuple[float, Limit]] = [
            (self.peak(point), max(arithmetic_ns, key=lambda unit: arithmetic_ns[unit]))
        ]
        for level, intensity in point.intensities.items():
            limits_gflops.append((intensity * self.ceilings.gbps[level], level))
        ceiling_gflops, limiting_level = min(limits_gflops, key=lambda limit: limit[0])
        return limiting_level, ceiling_gflops
