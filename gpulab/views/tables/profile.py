"""``gl.profile``'s answer as tables, under the names that PyTorch's profiler has for its columns."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from gpulab.views.tables import SOURCE, Cell, Column, Shown, Table, Texts
from gpulab.words import duration, listing, number, percent, shape, size
from virtualgpu.records import Dim3
from virtualgpu.records.profile import Profile, ProfiledCopy

MOST_ROWS = 20


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
        return tuple(table for table in made if table.rows)

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
                each.count,
                each.sectors,
                each.dram_bytes,
                each.warp_instructions,
                each.flop,
                each.l1_hit_rate,
                each.l2_hit_rate,
            )
            for each in self.counters
        ]
        columns = (
            "key",
            _COUNT,
            Column("sectors", show=_whole),
            Column("DRAM bytes", "dram_bytes", _whole),
            Column("warp instructions", "warp_instructions", _whole),
            Column("FLOP", "flop", _whole),
            Column("L1 hits", "l1_hit_rate", percent),
            Column("L2 hits", "l2_hit_rate", percent),
        )
        return _table("Hardware counters", columns, rows)

    def _kernels(self) -> Table:
        device = sum(kernel.device_time_total_ns for kernel in self.kernels)
        rows = [
            (
                each.key,
                each.count,
                each.device_time_total_ns,
                each.device_time_ns,
                _share(each.device_time_total_ns, device),
                _share(each.device_time_total_ns, self.wall_ns),
                _launch(each.grid, each.block),
                each.occupancy,
                each.gb_per_s,
                each.gflop_per_s,
            )
            for each in self.kernels
        ]
        columns = (
            "key",
            _COUNT,
            _DEVICE_TIME,
            Column("device_time", "device_time_ns", duration),
            Column("of device", "share_of_device", percent),
            _OF_WALL,
            "grid × block",
            Column("occupancy", show=percent),
            Column("GB/s", "gb_per_s", number),
            Column("GFLOP/s", "gflop_per_s", number),
        )
        return _table("Kernels", columns, rows)

    def _copies(self) -> Table:
        rows = [
            (
                _copy(each),
                each.count,
                each.device_time_total_ns,
                _share(each.device_time_total_ns, self.wall_ns),
                each.size_bytes,
                each.gb_per_s,
            )
            for each in self.copies
        ]
        columns = (
            "key",
            _COUNT,
            _DEVICE_TIME,
            _OF_WALL,
            Column("bytes", "size_bytes", size),
            Column("GB/s", "gb_per_s", number),
        )
        return _table("Copies and memsets", columns, rows)

    def _waits(self) -> Table:
        rows = [
            (
                each.key,
                each.count,
                each.cpu_time_total_ns,
                _share(each.cpu_time_total_ns, self.wall_ns),
                "hidden: the line asks for none" if each.hidden else "asked for",
                str(each.source) if each.source else None,
                each.source.text.strip() if each.source else None,
            )
            for each in self.waits
        ]
        columns = ("key", _COUNT, _CPU_TIME, _OF_WALL, "wait", "line", SOURCE)
        return _table("Waits of the host", columns, rows)

    def _ranges(self) -> Table:
        rows = [
            (each.key, each.count, each.cpu_time_total_ns, each.device_time_total_ns, each.operations)
            for each in self.ranges
        ]
        columns = ("key", _COUNT, _CPU_TIME, _DEVICE_TIME, Column("operations", show=number))
        return _table(
            "NVTX ranges: the host's time in them, and that of the work given in them", columns, rows
        )

    def _lines(self) -> Table:
        rows = [
            (
                str(each.source),
                each.source.text.strip(),
                each.count,
                each.device_time_total_ns,
                _share(each.device_time_total_ns, self.wall_ns),
                Cell(listing(each.keys), listing(each.keys[:3]) + (" …" if len(each.keys) > 3 else "")),
            )
            for each in self.lines
        ]
        columns = ("line", SOURCE, _COUNT, _DEVICE_TIME, _OF_WALL, Column("gives", "keys"))
        return _table("Lines that give the device work", columns, rows)


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
        columns = (
            "key",
            Column("of", "kind"),
            Column("count", "count_before", number),
            Column("then", "count_after", number),
            Column("device_time_total", "device_time_total_before_ns", duration),
            Column("then", "device_time_total_after_ns", duration),
            Column("change", "change_ns", _change),
            Column("times as fast", "factor", _factor),
        )
        return _table("", columns, rows, hide_empty=False)

    def to_pandas(self) -> Any:
        """Return the table as a `pandas.DataFrame`; see `Table.to_pandas`."""
        return self.table().to_pandas()

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


def _compared(key: tuple[str, str], before: _Row | None, after: _Row | None) -> tuple[Any, ...]:
    counts = [row[0] if row else None for row in (before, after)]
    times_ns = [row[1] if row else None for row in (before, after)]
    unknown = any(row and row[1] is None for row in (before, after))
    first = _took(before)
    second = _took(after)
    change = None if unknown else second - first
    return *key, *counts, *times_ns, change, first / second if first and second else None


def _change(change_ns: float) -> str:
    sign = "+" if change_ns > 0 else "−" if change_ns else ""
    return f"{sign}{duration(abs(change_ns))}"


def _factor(value: float) -> str:
    return f"{number(value)} ×"


def _times(before: float, after: float) -> str:
    return f", {number(before / after)} times as fast" if before and after else ""


def _copy(each: ProfiledCopy) -> str:
    kind = {None: "", True: ", page-locked", False: ", pageable"}[each.pinned]
    return f"memcpy {each.way}{kind}" if each.way else "memset"


def _share(part: float, whole: float) -> float | None:
    return part / whole if whole else None


def _whole(value: int) -> str:
    return f"{value:,}"


def _launch(grid: Dim3 | None, block: Dim3 | None) -> str | None:
    return f"{shape(grid)} × {shape(block)}" if grid and block else None


_COUNT = Column("count", show=number)
_DEVICE_TIME = Column("device_time_total", "device_time_total_ns", duration)
_CPU_TIME = Column("cpu_time_total", "cpu_time_total_ns", duration)
_OF_WALL = Column("of wall", "share_of_wall", percent)


def _table(
    title: str, columns: tuple[Column | str, ...], rows: Sequence[tuple[Any, ...]], hide_empty: bool = True
) -> Table:
    """A table that shows the `MOST_ROWS` rows that took longest."""
    left_out = len(rows) - MOST_ROWS
    if left_out > 0:
        title += f", without {number(left_out)} that took less"
    return Table(title, columns, tuple(rows), hide_empty=hide_empty, most=MOST_ROWS)
