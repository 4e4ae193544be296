"""What ``torch.cuda.memory_stats`` counts, and how ``torch.cuda.memory_summary`` prints it."""

from __future__ import annotations

from collections.abc import Callable
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
class Figure:
    """One quantity over time: what it is now, was at most, and all that was added and taken away."""

    current: int = 0
    peak: int = 0
    allocated: int = 0
    freed: int = 0

    def add(self, amount: int) -> None:
        self.current += amount
        self.allocated += amount
        if self.current > self.peak:
            self.peak = self.current

    def take(self, amount: int) -> None:
        self.current -= amount
        self.freed += amount

    def as_dict(self) -> dict[str, int]:
        return {"current": self.current, "peak": self.peak, "allocated": self.allocated, "freed": self.freed}


def _by_pool() -> dict[str, Figure]:
    return {pool: Figure() for pool in POOLS}


@dataclass(slots=True)
class Statistics:
    """All figures of one device's allocator."""

    max_split_bytes: int = -1
    figures: dict[str, dict[str, Figure]] = field(
        default_factory=lambda: {metric: _by_pool() for metric in METRICS}
    )
    oversize_allocations: Figure = field(default_factory=Figure)
    oversize_segments: Figure = field(default_factory=Figure)
    num_alloc_retries: int = 0
    num_ooms: int = 0
    num_sync_all_streams: int = 0
    num_device_alloc: int = 0
    num_device_free: int = 0

    def add(self, metric: str, pool: str, amount: int) -> None:
        """Count `amount` up for a pool (``"small"`` or ``"large"``) and for all."""
        of = self.figures[metric]
        of["all"].add(amount)
        of[f"{pool}_pool"].add(amount)

    def take(self, metric: str, pool: str, amount: int) -> None:
        of = self.figures[metric]
        of["all"].take(amount)
        of[f"{pool}_pool"].take(amount)

    def change(self, metric: str, pool: str, amount: int) -> None:
        """Count up or down; a net change of nothing leaves no mark."""
        if amount > 0:
            self.add(metric, pool, amount)
        elif amount < 0:
            self.take(metric, pool, -amount)

    def current(self, metric: str) -> int:
        return self.figures[metric]["all"].current

    def nested(self) -> dict[str, Any]:
        """As ``torch.cuda.memory_stats_as_nested_dict()`` returns them."""
        return {
            "num_alloc_retries": self.num_alloc_retries,
            "num_ooms": self.num_ooms,
            "max_split_size": self.max_split_bytes,
            "num_sync_all_streams": self.num_sync_all_streams,
            "num_device_alloc": self.num_device_alloc,
            "num_device_free": self.num_device_free,
            **{m: {p: f.as_dict() for p, f in by_pool.items()} for m, by_pool in self.figures.items()},
            "oversize_allocations": self.oversize_allocations.as_dict(),
            "oversize_segments": self.oversize_segments.as_dict(),
        }

    def summary(self, device_id: int = 0) -> str:
        """As ``torch.cuda.memory_summary()`` prints them."""
        rule, double = "-" * 75, "=" * 75
        lines = [
            double,
            f"{'PyTorch CUDA memory summary, device ID':>56} {device_id:<17d} ",
            rule,
            (
                f"{'CUDA OOMs':>21}: {self.num_ooms:<12d} | {'cudaMalloc retries':>25}: "
                f"{self.num_alloc_retries:<8d}  "
            ),
            double,
            f"{'Metric':>14}         | Cur Usage  | Peak Usage | Tot Alloc  | Tot Freed  ",
        ]
        for metric, title in _TITLES.items():
            by_pool = self.figures[metric]
            shown = _size if metric.endswith("_bytes") else _count
            lines.append(rule)
            lines.append(_row(title, by_pool["all"], by_pool["all"], shown))
            for pool in ("large", "small"):
                lines.append(_row(f"      from {pool} pool", by_pool[f"{pool}_pool"], by_pool["all"], shown))
        for title, figure in (
            ("Oversize allocations", self.oversize_allocations),
            ("Oversize GPU segments", self.oversize_segments),
        ):
            lines += [rule, _row(title, figure, figure, _count)]
        lines.append(double)
        return "".join(f"|{line}|\n" for line in lines)


_TITLES = {
    "allocated_bytes": "Allocated memory",
    "active_bytes": "Active memory",
    "requested_bytes": "Requested memory",
    "reserved_bytes": "GPU reserved memory",
    "inactive_split_bytes": "Non-releasable memory",
    "allocation": "Allocations",
    "active": "Active allocs",
    "segment": "GPU reserved segments",
    "inactive_split": "Non-releasable allocs",
}


def _row(title: str, figure: Figure, of_all: Figure, shown: Callable[[int, int], str]) -> str:
    """One line; the pools' figures have the unit of those for all."""
    parts = ("current", "peak", "allocated", "freed")
    cells = " | ".join(shown(getattr(figure, part), getattr(of_all, part)) for part in parts)
    return f" {title:<21} | {cells} "


def _size(amount: int, of_all: int) -> str:
    unit, divisor = _unit(of_all, 768 * 1024, 1024, ("B  ", "KiB", "MiB", "GiB", "TiB", "PiB"))
    return f"{amount // divisor:6d} {unit}"


def _count(amount: int, of_all: int) -> str:
    unit, divisor = _unit(of_all, 750_000, 1000, (" ", "K", "M"))
    return f"{amount // divisor:7d} {unit} "


def _unit(amount: int, most: int, step: int, units: tuple[str, ...]) -> tuple[str, int]:
    """The first unit in which an amount stays under `most`, and what it divides by."""
    power = 0
    while power < len(units) - 1 and amount >= most * step**power:
        power += 1
    return units[power], step**power
