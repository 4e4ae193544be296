"""Statistics of an allocator: current values, peaks, and totals."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from typing import Any

from virtualgpu.records.origin import Provenance

_TABLE_WIDTH = 75
_BYTE_UNITS = ("B  ", "KiB", "MiB", "GiB", "TiB", "PiB")
_POOL_LABELS = {"large_pool": "      from large pool", "small_pool": "      from small pool"}
_LINE_TITLES = {
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
# The pool of page-locked host memory uses other names, as ``torch.cuda.host_memory_stats`` does.
_HOST_LINES = {
    "allocated_bytes": "Pinned memory",
    "active_bytes": "Pinned memory in use",
    "allocations": "Pinned buffers",
    "active_requests": "Pinned buffers in use",
}


@dataclass(frozen=True, slots=True)
class Figure:
    """A statistic of an allocator, with its current value, its peak, and the sums of its increases and
    decreases.
    """

    current: int = 0
    peak: int = 0
    allocated: int = 0
    freed: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class AllocatorStatistics:
    """The statistics of one allocator, with the names that ``torch.cuda.memory_stats`` uses.

    Parameters
    ----------
    title : str
        Title of the summary, such as ``"PyTorch CUDA memory summary"``.
    figures : mapping
        For each metric, such as ``"allocated_bytes"``, the quantities by pool: ``"all"``, and
        ``"small_pool"`` and ``"large_pool"`` if the allocator has them; ``""`` if it does not distinguish
        pools. Bytes, or numbers of blocks, segments and requests.
    counts : mapping
        ``num_alloc_retries``, ``num_ooms`` and the like.
    is_host : bool
        Whether the allocator manages pinned (page-locked) host memory, under the names of
        ``torch.cuda.host_memory_stats``.
    note : str
        Description of events that could not be observed, or an empty string.

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
        used_figure = self._find_total_figure("active_bytes")
        reserved_figure = self._find_total_figure("allocated_bytes" if self.is_host else "reserved_bytes")
        return (
            f"<{self.title}: {used_figure.current:,} bytes in use (at most {used_figure.peak:,}), "
            f"{reserved_figure.current:,} held (at most {reserved_figure.peak:,}), {self.provenance.label}>"
        )

    def nested(self) -> dict[str, Any]:
        """Return the statistics in the form of ``torch.cuda.memory_stats_as_nested_dict()``.

        The outer keys are names of metrics, and the inner keys are names of pools and of values such as
        ``peak``.
        """
        nested_values: dict[str, Any] = dict(self.counts)
        for metric, pools in self.figures.items():
            if "" in pools:
                nested_values[metric] = asdict(pools[""])
            else:
                nested_values[metric] = {pool: asdict(figure) for pool, figure in pools.items()}
        return nested_values

    def flat(self) -> dict[str, int]:
        """Return the statistics in the form of ``torch.cuda.memory_stats()``.

        The keys are sorted, as in ``{"active.all.current": 3, ...}``.
        """
        return dict(sorted(_flatten(self.nested())))

    def summary(self, abbreviated: bool = False) -> str:
        """Return a text in the format of ``torch.cuda.memory_summary()``, followed by a line about the origin
        of the numbers.

        Parameters
        ----------
        abbreviated
            Omit the values of each pool.
        """
        source_text = " ".join(
            text_part for text_part in (self.provenance.label + ".", self.note) if text_part
        )
        return self.table(abbreviated) + source_text[:1].upper() + source_text[1:] + "\n"

    def table(self, abbreviated: bool = False) -> str:
        """Return the text of `summary` without the last line."""
        suffix = "" if self.is_host else f", device ID {self.device_id}"
        table_rows = [
            "=" * _TABLE_WIDTH,
            f"{'':18}{self.title + suffix:<{_TABLE_WIDTH - 18}}",
            "-" * _TABLE_WIDTH,
        ]
        if self.is_host:
            allocation_count = self.counts.get("num_host_alloc", 0)
            free_count = self.counts.get("num_host_free", 0)
            table_rows.append(
                f"{'':8}cudaHostAllocs: {allocation_count:<12d} | {'':7}cudaFreeHosts: {free_count:<14d}"
            )
        else:
            oom_count = self.counts.get("num_ooms", 0)
            retry_count = self.counts.get("num_alloc_retries", 0)
            table_rows.append(
                f"{'':12}CUDA OOMs: {oom_count:<12d} | {'':7}cudaMalloc retries: {retry_count:<8d}  "
            )
        table_rows += [
            "=" * _TABLE_WIDTH,
            "        Metric         | Cur Usage  | Peak Usage | Tot Alloc  | Tot Freed  ",
        ]
        for metric, metric_title in (_HOST_LINES if self.is_host else _LINE_TITLES).items():
            pools = self.figures.get(metric, {})
            labels = {"": metric_title, "all": metric_title}
            if not abbreviated:
                labels |= _POOL_LABELS
            labelled_figures = [(label, pools[pool]) for pool, label in labels.items() if pool in pools]
            if labelled_figures:
                table_rows.append("-" * _TABLE_WIDTH)
            format_value = _format_size if metric.endswith("_bytes") else _format_count
            for label, figure in labelled_figures:
                table_rows.append(
                    f" {label:<21} | {_format_summary_row(figure, labelled_figures[0][1], format_value)} "
                )
        table_rows.append("=" * _TABLE_WIDTH)
        return "|" + "|\n|".join(table_rows) + "|\n"

    def _find_total_figure(self, metric: str) -> Figure:
        pools = self.figures.get(metric, {})
        return pools.get("all") or pools.get("") or Figure()


def _flatten(nested: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, int]]:
    for key, value in nested.items():
        if isinstance(value, Mapping):
            yield from _flatten(value, f"{prefix}{key}.")
        else:
            yield prefix + key, value


def _format_summary_row(figure: Figure, first_figure: Figure, format_value: Any) -> str:
    """Format one line of the summary, with the units of the line for all pools."""
    value_pairs = zip(asdict(figure).values(), asdict(first_figure).values(), strict=True)
    return " | ".join(format_value(value, first_value) for value, first_value in value_pairs)


def _format_size(value: int, reference: int) -> str:
    scaled_value, unit = _scale_value(value, reference, 1024, 768 * 1024, _BYTE_UNITS)
    return f"{scaled_value:6d} {unit}"


def _format_count(value: int, reference: int) -> str:
    scaled_value, unit = _scale_value(value, reference, 1000, 750 * 1000, (" ", "K", "M"))
    return f"{scaled_value:7d} {unit} "


def _scale_value(
    value: int, reference: float, unit_factor: int, scaling_limit: int, units: tuple[str, ...]
) -> tuple[int, str]:
    unit_index = 0
    while unit_index < len(units) - 1 and reference >= scaling_limit:
        value = value // unit_factor
        reference = reference / unit_factor
        unit_index = unit_index + 1
    return value, units[unit_index]
