"""What an allocator has counted: now, at most, and in all."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from typing import Any

from virtualgpu.records.origin import Provenance

_WIDTH = 75
_BYTES = ("B  ", "KiB", "MiB", "GiB", "TiB", "PiB")
_POOLS = {"large_pool": "      from large pool", "small_pool": "      from small pool"}
_LINES = {
    "allocated_bytes": "Allocated memory",
    "active_bytes": "Active memory",
    "requested_bytes": "Requested memory",
    "reserved_bytes": "GPU reserved memory",
    "inactive_split_bytes": "Non-releasable memory",
    "allocation": "Allocations",
    "active": "Active allocs",
    "segment": "GPU reserved segments",
    "inactive_split": "Non-releasable allocs",
    "oversize_allocations": "Oversize allocations",
    "oversize_segments": "Oversize GPU segments",
}
# The pool of page-locked host memory counts under other names, as ``torch.cuda.host_memory_stats`` does.
_HOST_LINES = {
    "allocated_bytes": "Pinned memory",
    "active_bytes": "Pinned memory in use",
    "allocations": "Pinned buffers",
    "active_requests": "Pinned buffers in use",
}


@dataclass(frozen=True, slots=True)
class Figure:
    """One quantity: what it is, was at most, and all that was added to it and taken away."""

    current: int = 0
    peak: int = 0
    allocated: int = 0
    freed: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class AllocatorStatistics:
    """Statistics of one allocator, under the names of ``torch.cuda.memory_stats``.

    Parameters
    ----------
    title : str
        What the summary is called, such as ``"PyTorch CUDA memory summary"``.
    figures : mapping
        For each metric, such as ``"allocated_bytes"``, figures by pool: ``"all"``, and ``"small_pool"`` and
        ``"large_pool"`` where the allocator has them; ``""`` where it does not tell pools apart. Bytes, or
        numbers of blocks, segments and requests.
    counts : mapping
        ``num_alloc_retries``, ``num_ooms`` and the like.
    is_host : bool
        Whether it is of page-locked host memory, under the names of ``torch.cuda.host_memory_stats``.
    note : str
        What could not be seen; empty for nothing.

    Examples
    --------
    >>> statistics = a.statistics()
    >>> statistics.nested()["allocated_bytes"]["all"]["peak"]
    8192
    >>> print(statistics.summary())
    """

    provenance: Provenance
    device_id: int
    title: str
    figures: Mapping[str, Mapping[str, Figure]]
    counts: Mapping[str, int]
    is_host: bool = False
    note: str = ""

    def __repr__(self) -> str:
        used = self._of("active_bytes")
        held = self._of("allocated_bytes" if self.is_host else "reserved_bytes")
        return (
            f"<{self.title}: {used.current:,} bytes in use (at most {used.peak:,}), {held.current:,} held "
            f"(at most {held.peak:,}), {self.provenance.label}>"
        )

    def nested(self) -> dict[str, Any]:
        """As ``torch.cuda.memory_stats_as_nested_dict()`` has them: by metric, pool and kind."""
        return dict(self.counts) | {
            metric: asdict(pools[""]) if "" in pools else {pool: asdict(each) for pool, each in pools.items()}
            for metric, pools in self.figures.items()
        }

    def flat(self) -> dict[str, int]:
        """As ``torch.cuda.memory_stats()`` has them: ``{"active.all.current": 3, ...}``, sorted."""
        return dict(sorted(_flat(self.nested())))

    def summary(self, abbreviated: bool = False) -> str:
        """The figures as ``torch.cuda.memory_summary()`` prints them, and a line on where they come from.

        Parameters
        ----------
        abbreviated
            Leave out what each pool has of them.
        """
        source = " ".join(part for part in (self.provenance.label + ".", self.note) if part)
        return self.table(abbreviated) + source[:1].upper() + source[1:] + "\n"

    def table(self, abbreviated: bool = False) -> str:
        """`summary` without its last line."""
        where = "" if self.is_host else f", device ID {self.device_id}"
        rows = ["=" * _WIDTH, f"{'':18}{self.title + where:<{_WIDTH - 18}}", "-" * _WIDTH]
        if self.is_host:
            new = self.counts.get("num_host_alloc", 0)
            back = self.counts.get("num_host_free", 0)
            rows.append(f"{'':8}cudaHostAllocs: {new:<12d} | {'':7}cudaFreeHosts: {back:<14d}")
        else:
            ooms = self.counts.get("num_ooms", 0)
            retries = self.counts.get("num_alloc_retries", 0)
            rows.append(f"{'':12}CUDA OOMs: {ooms:<12d} | {'':7}cudaMalloc retries: {retries:<8d}  ")
        rows += ["=" * _WIDTH, "        Metric         | Cur Usage  | Peak Usage | Tot Alloc  | Tot Freed  "]
        for metric, name in (_HOST_LINES if self.is_host else _LINES).items():
            pools = self.figures.get(metric, {})
            shown = {"": name, "all": name, **({} if abbreviated else _POOLS)}
            lines = [(words, pools[pool]) for pool, words in shown.items() if pool in pools]
            rows += ["-" * _WIDTH] if lines else []
            of = _size if metric.endswith("_bytes") else _count
            rows += [f" {words:<21} | {_row(figure, lines[0][1], of)} " for words, figure in lines]
        rows.append("=" * _WIDTH)
        return "|" + "|\n|".join(rows) + "|\n"

    def _of(self, metric: str) -> Figure:
        pools = self.figures.get(metric, {})
        return pools.get("all") or pools.get("") or Figure()


def _flat(nested: Mapping[str, Any], before: str = "") -> Iterator[tuple[str, int]]:
    for key, value in nested.items():
        if isinstance(value, Mapping):
            yield from _flat(value, f"{before}{key}.")
        else:
            yield before + key, value


def _row(figure: Figure, first: Figure, of: Any) -> str:
    """Its columns, in the units of the first line."""
    pairs = zip(asdict(figure).values(), asdict(first).values(), strict=True)
    return " | ".join(of(value, unit_of) for value, unit_of in pairs)


def _size(value: int, unit_of: int) -> str:
    return "{:6d} {}".format(*_scaled(value, unit_of, 1024, 768 * 1024, _BYTES))


def _count(value: int, unit_of: int) -> str:
    return "{:7d} {} ".format(*_scaled(value, unit_of, 1000, 750 * 1000, (" ", "K", "M")))


def _scaled(value: int, unit_of: float, step: int, most: int, units: tuple[str, ...]) -> tuple[int, str]:
    unit = 0
    while unit < len(units) - 1 and unit_of >= most:
        value = value // step
        unit_of = unit_of / step
        unit = unit + 1
    return value, units[unit]
