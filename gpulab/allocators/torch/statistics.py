"""The statistics of ``torch.cuda.memory_stats`` for the allocator model."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

METRICS = (
    "allocation",
    "segment",
    "active",
    "inactive_split",
    "allocated_bytes",
    "reserved_bytes",
    "active_bytes",
    "inactive_split_bytes",
    "requested_bytes",
)
POOLS = ("all", "small_pool", "large_pool")


@dataclass(slots=True)
class Tally:
    """The current value of one quantity, its peak, and the totals of all increases and decreases."""

    current: int = 0
    peak: int = 0
    allocated: int = 0
    freed: int = 0

    def add(self, amount: int) -> None:
        self.current += amount
        self.allocated += amount
        if self.current > self.peak:
            self.peak = self.current

    def subtract(self, amount: int) -> None:
        self.current -= amount
        self.freed += amount

    def as_dict(self) -> dict[str, int]:
        return {"current": self.current, "peak": self.peak, "allocated": self.allocated, "freed": self.freed}


def _make_tallies_by_pool() -> dict[str, Tally]:
    return {pool: Tally() for pool in POOLS}


@dataclass(slots=True)
class Statistics:
    """All statistics of the allocator of one device."""

    max_split_bytes: int = -1
    tallies: dict[str, dict[str, Tally]] = field(
        default_factory=lambda: {metric: _make_tallies_by_pool() for metric in METRICS}
    )
    oversize_allocations: Tally = field(default_factory=Tally)
    oversize_segments: Tally = field(default_factory=Tally)
    num_alloc_retries: int = 0
    num_ooms: int = 0
    num_sync_all_streams: int = 0
    num_device_alloc: int = 0
    num_device_free: int = 0

    def add(self, metric: str, pool: str, amount: int) -> None:
        """Increase a metric by `amount`, both for one pool (``"small"`` or ``"large"``) and for all pools
        together.
        """
        tally_by_pool = self.tallies[metric]
        tally_by_pool["all"].add(amount)
        tally_by_pool[f"{pool}_pool"].add(amount)

    def subtract(self, metric: str, pool: str, amount: int) -> None:
        tally_by_pool = self.tallies[metric]
        tally_by_pool["all"].subtract(amount)
        tally_by_pool[f"{pool}_pool"].subtract(amount)

    def change(self, metric: str, pool: str, amount: int) -> None:
        """Add `amount` to a metric of a pool. A negative amount decreases the metric."""
        if amount > 0:
            self.add(metric, pool, amount)
        elif amount < 0:
            self.subtract(metric, pool, -amount)

    def read_current(self, metric: str) -> int:
        return self.tallies[metric]["all"].current

    def nested(self) -> dict[str, Any]:
        """Return the statistics as nested dictionaries, like ``torch.cuda.memory_stats_as_nested_dict()``."""
        return {
            "num_alloc_retries": self.num_alloc_retries,
            "num_ooms": self.num_ooms,
            "max_split_size": self.max_split_bytes,
            "num_sync_all_streams": self.num_sync_all_streams,
            "num_device_alloc": self.num_device_alloc,
            "num_device_free": self.num_device_free,
            **{
                metric: {pool: tally.as_dict() for pool, tally in tally_by_pool.items()}
                for metric, tally_by_pool in self.tallies.items()
            },
            "oversize_allocations": self.oversize_allocations.as_dict(),
            "oversize_segments": self.oversize_segments.as_dict(),
        }
