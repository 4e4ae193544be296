"""``gl.profile``'s answer as tables, under the names that PyTorch's profiler has for its columns."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from gpulab.views.tables import NOTHING, Shown, Table, Texts, short
from gpulab.words import duration, listing, number, percent, shape, size
from virtualgpu.records import Dim3
from virtualgpu.records.profile import Profile, ProfiledCopy

MOST_ROWS = 20
_KERNEL = (
    "key",
    "count",
    "device_time_total",
    "device_time",
    "of device",
    "of wall",
    "grid × block",
    "occupancy",
    "GB/s",
    "GFLOP/s",
)


@dataclass(frozen=True, slots=True, repr=False)
class ProfileTable(Shown[Profile], Profile):
    """A profile, shown as tables."""

    @property
    def caption(self) -> str:
        """How long it took, how long the device was busy, and what memory it needed."""
        busy = f"the device was busy {duration(self.busy_ns)} of it"
        share = f" ({percent(self.busy_ns / self.wall_ns)})" if self.wall_ns else ""
        return f"{self.name}: {duration(self.wall_ns)}; {busy}{share}; {self.provenance.label}."

    def tables(self) -> tuple[Table, ...]:
        """Kernels, copies, waits of the host, ranges: those that there are."""
        made = (
            self._kernels(),
            self._counters(),
            self._copies(),
            self._waits(),
            self._ranges(),
            self._lines(),
        )
        return tuple(table.without_empty_columns() for table in made if table.rows)

    def sentences(self) -> Sequence[str]:
        """What memory it took, and what the columns mean."""
        said = []
        if self.peak_bytes is not None and self.before_bytes is not None:
            more = self.peak_bytes - self.before_bytes
            said.append(
                f"The memory pool held {size(self.before_bytes)} before and {size(self.peak_bytes)} at its "
                f"peak{f', {size(more)} more' if more else ''}."
            )
        if self.kernels:
            said.append(
                "device_time is a launch's mean, occupancy the theoretical one. Shares of the wall add up to "
                "more than the device was busy where kernels ran side by side."
            )
        if any(kernel.moved_bytes is not None for kernel in self.kernels):
            said.append(
                "GB/s is what SMs and L2 exchange, in sectors of 32 bytes; gl.count tells it by line."
            )
        elif self.kernels and not self.counters:
            said.append(
                "What kernels move and compute is not known here: hardware counters tell it (ncu), or "
                "gl.count for one launch."
            )
        if self.counters:
            said.append(
                "Hardware counters are measured by Nsight Compute in a run of its own, after one that is not "
                "counted; sectors are those of loads and stores of global memory, FLOP without tensor cores."
            )
        if self.no_counters:
            said.append(f"Hardware counters: {self.no_counters}.")
        return [*said, *([self.note] if self.note else [])]

    def _counters(self) -> Table:
        rows = [
            (
                each.key,
                number(each.count),
                *map(_whole, (each.sectors, each.dram_bytes)),
                *map(_whole, (each.warp_instructions, each.flop)),
                *map(_rate, (each.l1_hit_rate, each.l2_hit_rate)),
            )
            for each in self.counters
        ]
        headings = (
            "key",
            "count",
            "sectors",
            "DRAM bytes",
            "warp instructions",
            "FLOP",
            "L1 hits",
            "L2 hits",
        )
        return _table("Hardware counters", headings, rows)

    def _kernels(self) -> Table:
        device = sum(kernel.device_time_total_ns for kernel in self.kernels)
        rows = [
            (
                each.key,
                number(each.count),
                duration(each.device_time_total_ns),
                duration(each.device_time_ns),
                _share(each.device_time_total_ns, device),
                _share(each.device_time_total_ns, self.wall_ns),
                _launch(each.grid, each.block),
                NOTHING if each.occupancy is None else percent(each.occupancy),
                _number(each.gb_per_s),
                _number(each.gflop_per_s),
            )
            for each in self.kernels
        ]
        return _table("Kernels", _KERNEL, rows)

    def _copies(self) -> Table:
        rows = [
            (
                _copy(each),
                number(each.count),
                duration(each.device_time_total_ns),
                _share(each.device_time_total_ns, self.wall_ns),
                size(each.size_bytes),
                _number(each.gb_per_s),
            )
            for each in self.copies
        ]
        headings = ("key", "count", "device_time_total", "of wall", "bytes", "GB/s")
        return _table("Copies and memsets", headings, rows)

    def _waits(self) -> Table:
        rows = [
            (
                each.key,
                number(each.count),
                duration(each.cpu_time_total_ns),
                _share(each.cpu_time_total_ns, self.wall_ns),
                "hidden: the line asks for none" if each.hidden else "asked for",
                *((str(each.source), short(each.source.text)) if each.source else (NOTHING, NOTHING)),
            )
            for each in self.waits
        ]
        headings = ("key", "count", "cpu_time_total", "of wall", "wait", "line", "source")
        return _table("Waits of the host", headings, rows)

    def _ranges(self) -> Table:
        rows = [
            (
                each.key,
                number(each.count),
                duration(each.cpu_time_total_ns),
                NOTHING if each.device_time_total_ns is None else duration(each.device_time_total_ns),
                number(each.operations),
            )
            for each in self.ranges
        ]
        headings = ("key", "count", "cpu_time_total", "device_time_total", "operations")
        return _table(
            "NVTX ranges: the host's time in them, and that of the work given in them", headings, rows
        )

    def _lines(self) -> Table:
        rows = [
            (
                str(each.source),
                short(each.source.text),
                number(each.count),
                duration(each.device_time_total_ns),
                _share(each.device_time_total_ns, self.wall_ns),
                listing(each.keys[:3]) + (" …" if len(each.keys) > 3 else ""),
            )
            for each in self.lines
        ]
        headings = ("line", "source", "count", "device_time_total", "of wall", "gives")
        return _table("Lines that give the device work", headings, rows)


class ProfileComparison(Texts):
    """Two profiles, row by row; ``records`` holds them."""

    def __init__(self, before: Profile, after: Profile) -> None:
        self.records = before, after

    @property
    def caption(self) -> str:
        """What both took."""
        before, after = self.records
        origins = dict.fromkeys(each.provenance.label for each in self.records)
        return (
            f"{before.name}, then {after.name}: {duration(before.wall_ns)}, then {duration(after.wall_ns)}"
            f"{_times(before.wall_ns, after.wall_ns)}; {'; '.join(origins)}."
        )

    def table(self) -> Table:
        """A row for all that ran in either, what changed most first."""
        parts = [_parts(record) for record in self.records]
        keys = sorted(
            dict.fromkeys([*parts[0], *parts[1]]),
            key=lambda key: -abs(_took(parts[0].get(key)) - _took(parts[1].get(key))),
        )
        rows = [_compared(key, *(each.get(key) for each in parts)) for key in keys]
        headings = ("key", "of", "count", "then", "device_time_total", "then", "change", "times as fast")
        return _table("", headings, rows)

    def __repr__(self) -> str:
        return f"{self.caption}\n\n{self.table().text()}"

    def _repr_html_(self) -> str:
        from html import escape

        return f'<div role="group"><p>{escape(self.caption)}</p>{self.table().html()}</div>'


_Row = tuple[int, float | None]  # count, and time where it is known


def _parts(record: Profile) -> dict[tuple[str, str], _Row]:
    """What ran, by name and kind; of kernels that are told apart by shape the sum."""
    found: dict[tuple[str, str], _Row] = {}
    for kind, rows in (
        ("kernel", [(each.key, each.count, each.device_time_total_ns) for each in record.kernels]),
        ("copy", [(_copy(each), each.count, each.device_time_total_ns) for each in record.copies]),
        ("wait", [(each.key, each.count, each.cpu_time_total_ns) for each in record.waits]),
        ("range", [(r.key, r.count, r.device_time_total_ns) for r in record.ranges]),
    ):
        for key, count, time_ns in rows:
            before, took = found.get((key, kind), (0, 0))
            known = None if took is None or time_ns is None else took + time_ns
            found[key, kind] = before + count, known
    return found


def _took(row: _Row | None) -> float:
    return (row[1] or 0) if row else 0


def _compared(key: tuple[str, str], before: _Row | None, after: _Row | None) -> tuple[str, ...]:
    cells = [*key]
    cells += [number(each[0]) if each else NOTHING for each in (before, after)]
    times = [NOTHING if not each or each[1] is None else duration(each[1]) for each in (before, after)]
    first = _took(before)
    second = _took(after)
    more = second - first
    change = f"{'+' if more > 0 else '−' if more else ''}{duration(abs(more))}"
    cells += [*times, NOTHING if any(each and each[1] is None for each in (before, after)) else change]
    return *cells, f"{number(first / second)} ×" if first and second else NOTHING


def _times(before: float, after: float) -> str:
    return f", {number(before / after)} times as fast" if before and after else ""


def _copy(each: ProfiledCopy) -> str:
    kind = {None: "", True: ", page-locked", False: ", pageable"}[each.pinned]
    return f"memcpy {each.way}{kind}" if each.way else "memset"


def _share(part: float, whole: float) -> str:
    return percent(part / whole) if whole else NOTHING


def _rate(value: float | None) -> str:
    return NOTHING if value is None else percent(value)


def _whole(value: int | None) -> str:
    return NOTHING if value is None else f"{value:,}"


def _number(value: float | None) -> str:
    return NOTHING if value is None else number(value)


def _launch(grid: Dim3 | None, block: Dim3 | None) -> str:
    return f"{shape(grid)} × {shape(block)}" if grid and block else NOTHING


def _table(title: str, headings: tuple[str, ...], rows: Sequence[tuple[str, ...]]) -> Table:
    """The rows that took longest."""
    left_out = len(rows) - MOST_ROWS
    if left_out > 0:
        title += f", without {number(left_out)} that took less"
    return Table(title, headings, tuple(rows[:MOST_ROWS]))
