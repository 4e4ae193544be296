"""The tables of ``gl.profile``, with the column names of PyTorch's profiler."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from gpulab.views.parts.card import make_bars
from gpulab.views.tables import (
    SOURCE_COLUMN,
    CardOfTables,
    Cell,
    Column,
    RecordTable,
    Table,
    compare_times,
    make_share_cell,
)
from gpulab.words import duration, listing, number, percent, shape, size
from virtualgpu.records import Dim3
from virtualgpu.records.profile import Profile, ProfiledCopy

MAX_ROWS = 20


@dataclass(frozen=True, slots=True, repr=False)
class ProfileTable(RecordTable[Profile], Profile):
    """The tables that show the kernels, copies, host waits and NVTX ranges of a profile."""

    @property
    def heading(self) -> str:
        """The heading of the card, with the kind of the tables and the function."""
        return f"Profile of {self.name}"

    @property
    def facts(self) -> str:
        """The part of the caption that states the duration, and the share of it in which the device was
        busy.
        """
        share_text = f" ({percent(self.busy_ns / self.wall_ns)})" if self.wall_ns else ""
        return f"{duration(self.wall_ns)}, the device was busy {duration(self.busy_ns)} of it{share_text}"

    @property
    def origin(self) -> str:
        """A phrase that states the origin of the counts and times in the profile, such as ``measured on
        NVIDIA H200``.
        """
        return self.provenance.of_results_and_times

    def tables(self) -> tuple[Table, ...]:
        """Return tables of kernels, copies, host waits and NVTX ranges. Empty tables are left out."""
        all_tables = (
            self._make_kernel_table(),
            self._make_counter_table(),
            self._make_copy_table(),
            self._make_wait_table(),
            self._make_range_table(),
            self._make_line_table(),
        )
        return tuple(table for table in all_tables if table.rows)

    def sentences(self) -> Sequence[str]:
        """Return explanations of the memory use and of the table columns."""
        sentences = []
        if self.peak_bytes is not None and self.before_bytes is not None:
            growth_bytes = self.peak_bytes - self.before_bytes
            sentences.append(
                f"The memory pool held {size(self.before_bytes)} before and {size(self.peak_bytes)} at its "
                f"peak{f', {size(growth_bytes)} more' if growth_bytes else ''}."
            )
        if self.kernels:
            sentences.append(
                "device_time is the mean of the launches, and occupancy is the theoretical one. Where "
                "kernels ran side by side, the shares of the wall time add up to more than the busy time."
            )
        if any(kernel.moved_bytes is not None for kernel in self.kernels):
            sentences.append(
                "GB/s counts the sectors of 32 bytes between SMs and L2; gl.count lists them by line."
            )
        elif self.kernels and not self.counters:
            sentences.append(
                "The bytes and operations of the kernels are unknown here. Hardware counters (ncu) measure "
                "them, or gl.count counts them for one launch."
            )
        if self.counters:
            sentences.append(
                "Hardware counters are measured by Nsight Compute in a separate run, after a first run "
                "that is not counted. Sectors are those of loads and stores of global memory, and FLOP "
                "excludes tensor cores."
            )
        if self.no_counters:
            sentences.append(f"Hardware counters: {self.no_counters}.")
        return [*sentences, *([self.note] if self.note else [])]

    def _make_body(self) -> str:
        busy_share = self.busy_ns / self.wall_ns if self.wall_ns else 0.0
        return (
            make_bars([("device busy", busy_share, percent(busy_share), "accent")])
            + super(ProfileTable, self)._make_body()
        )

    def _make_counter_table(self) -> Table:
        rows = [
            (
                counter.key,
                counter.count,
                counter.sectors,
                counter.dram_bytes,
                counter.warp_instructions,
                counter.flop,
                counter.l1_hit_rate,
                counter.l2_hit_rate,
            )
            for counter in self.counters
        ]
        columns = (
            "key",
            _COUNT_COLUMN,
            Column("sectors", format_value=_format_integer),
            Column("DRAM bytes", "dram_bytes", _format_integer),
            Column("warp instructions", "warp_instructions", _format_integer),
            Column("FLOP", "flop", _format_integer),
            Column("L1 hits", "l1_hit_rate", percent),
            Column("L2 hits", "l2_hit_rate", percent),
        )
        return _make_table("Hardware counters", columns, rows)

    def _make_kernel_table(self) -> Table:
        device_ns = sum(kernel.device_time_total_ns for kernel in self.kernels)
        rows = [
            (
                row.key,
                row.count,
                row.device_time_total_ns,
                row.device_time_ns,
                _make_percent_cell(row.device_time_total_ns, device_ns),
                _make_percent_cell(row.device_time_total_ns, self.wall_ns),
                _format_launch(row.grid, row.block),
                row.occupancy,
                row.gb_per_s,
                row.gflop_per_s,
            )
            for row in self.kernels
        ]
        columns = (
            "key",
            _COUNT_COLUMN,
            _DEVICE_TIME_COLUMN,
            Column("device_time", "device_time_ns", duration),
            Column("of device", "share_of_device", percent),
            _WALL_SHARE_COLUMN,
            "grid × block",
            Column("occupancy", format_value=percent),
            Column("GB/s", "gb_per_s", number),
            Column("GFLOP/s", "gflop_per_s", number),
        )
        return _make_table("Kernels", columns, rows)

    def _make_copy_table(self) -> Table:
        rows = [
            (
                _describe_copy(copy),
                copy.count,
                copy.device_time_total_ns,
                _make_percent_cell(copy.device_time_total_ns, self.wall_ns),
                copy.size_bytes,
                copy.gb_per_s,
            )
            for copy in self.copies
        ]
        columns = (
            "key",
            _COUNT_COLUMN,
            _DEVICE_TIME_COLUMN,
            _WALL_SHARE_COLUMN,
            Column("bytes", "size_bytes", size),
            Column("GB/s", "gb_per_s", number),
        )
        return _make_table("Copies and memsets", columns, rows)

    def _make_wait_table(self) -> Table:
        rows = [
            (
                wait.key,
                wait.count,
                wait.cpu_time_total_ns,
                _make_percent_cell(wait.cpu_time_total_ns, self.wall_ns),
                "hidden: the line has no explicit wait" if wait.hidden else "asked for",
                str(wait.source) if wait.source else None,
                wait.source.text.strip() if wait.source else None,
            )
            for wait in self.waits
        ]
        columns = ("key", _COUNT_COLUMN, _CPU_TIME_COLUMN, _WALL_SHARE_COLUMN, "wait", "line", SOURCE_COLUMN)
        return _make_table("Waits of the host", columns, rows)

    def _make_range_table(self) -> Table:
        rows = [
            (span.key, span.count, span.cpu_time_total_ns, span.device_time_total_ns, span.operations)
            for span in self.ranges
        ]
        columns = (
            "key",
            _COUNT_COLUMN,
            _CPU_TIME_COLUMN,
            _DEVICE_TIME_COLUMN,
            Column("operations", format_value=number),
        )
        return _make_table(
            "NVTX ranges: the host's time in them, and that of the work launched in them", columns, rows
        )

    def _make_line_table(self) -> Table:
        rows = [
            (
                str(line.source),
                line.source.text.strip(),
                line.count,
                line.device_time_total_ns,
                _make_percent_cell(line.device_time_total_ns, self.wall_ns),
                Cell(listing(line.keys), listing(line.keys[:3]) + (" …" if len(line.keys) > 3 else "")),
            )
            for line in self.lines
        ]
        columns = (
            "line",
            SOURCE_COLUMN,
            _COUNT_COLUMN,
            _DEVICE_TIME_COLUMN,
            _WALL_SHARE_COLUMN,
            Column("gives", "keys"),
        )
        return _make_table("Lines that launch work on the device", columns, rows)


class ProfileComparison(CardOfTables):
    """A row-by-row comparison of two profiles. The attribute ``records`` contains both profiles."""

    def __init__(self, before: Profile, after: Profile) -> None:
        self.records = before, after

    @property
    def heading(self) -> str:
        """The heading of the card, with the names of both profiles."""
        before, after = self.records
        return f"Profiles of {before.name}, then {after.name}"

    @property
    def facts(self) -> str:
        """The part of the caption that states the durations of both profiles."""
        before, after = self.records
        return (
            f"{duration(before.wall_ns)}, then {duration(after.wall_ns)}"
            f"{_format_time_factor(before.wall_ns, after.wall_ns)}"
        )

    @property
    def origin(self) -> str:
        """A phrase that states the origin of the counts and times in both profiles, such as ``measured on
        NVIDIA H200``.
        """
        origins = dict.fromkeys(profile.provenance.of_results_and_times for profile in self.records)
        return "; ".join(origins)

    def table(self) -> Table:
        """Return a table with one row for each kernel, copy, wait and range. The first row has the largest
        change.
        """
        rows_by_profile = [_collect_rows(record) for record in self.records]
        row_keys = sorted(
            dict.fromkeys([*rows_by_profile[0], *rows_by_profile[1]]),
            key=lambda key: (
                -abs(_read_time_ns(rows_by_profile[0].get(key)) - _read_time_ns(rows_by_profile[1].get(key)))
            ),
        )
        longest_ns = max(
            (_read_time_ns(row) for rows in rows_by_profile for row in rows.values()), default=0.0
        )
        rows = [
            _make_comparison_row(key, rows_by_profile[0].get(key), rows_by_profile[1].get(key), longest_ns)
            for key in row_keys
        ]
        columns = (
            "key",
            Column("of", "kind"),
            Column("count", "count_before", number),
            Column("then", "count_after", number),
            Column("device_time_total", "device_time_total_before_ns", duration),
            Column("then", "device_time_total_after_ns", duration),
            Column("change", "change_ns", _format_change),
            Column("times as fast", "factor", _format_factor),
        )
        return _make_table("", columns, rows, hide_empty=False)

    def tables(self) -> tuple[Table, ...]:
        """Return the table of the comparison in a tuple of one element."""
        return (self.table(),)

    def _make_body(self) -> str:
        before, after = self.records
        return (
            compare_times((before.name, before.wall_ns), (after.name, after.wall_ns)) + super()._make_body()
        )


_CountAndTime = tuple[int, float | None]  # count, and time where it is known


def _collect_rows(record: Profile) -> dict[tuple[str, str], _CountAndTime]:
    """Return the count and the time of each profile entry by its name and kind. Entries of one kernel with
    several launch shapes are summed.
    """
    rows_by_key: dict[tuple[str, str], _CountAndTime] = {}
    for entry_kind, entry_rows in (
        (
            "kernel",
            [
                (profile_entry.key, profile_entry.count, profile_entry.device_time_total_ns)
                for profile_entry in record.kernels
            ],
        ),
        (
            "copy",
            [
                (_describe_copy(profile_entry), profile_entry.count, profile_entry.device_time_total_ns)
                for profile_entry in record.copies
            ],
        ),
        (
            "wait",
            [
                (profile_entry.key, profile_entry.count, profile_entry.cpu_time_total_ns)
                for profile_entry in record.waits
            ],
        ),
        ("range", [(span.key, span.count, span.device_time_total_ns) for span in record.ranges]),
    ):
        for entry_key, entry_count, time_ns in entry_rows:
            previous_count, previous_ns = rows_by_key.get((entry_key, entry_kind), (0, 0))
            total_ns = None if previous_ns is None or time_ns is None else previous_ns + time_ns
            rows_by_key[entry_key, entry_kind] = previous_count + entry_count, total_ns
    return rows_by_key


def _read_time_ns(row: _CountAndTime | None) -> float:
    return (row[1] or 0) if row else 0


def _make_comparison_row(
    key: tuple[str, str], before: _CountAndTime | None, after: _CountAndTime | None, longest_ns: float
) -> tuple[Any, ...]:
    entry_counts = [row[0] if row else None for row in (before, after)]
    times_ns = [row[1] if row else None for row in (before, after)]
    has_unknown_time = any(row and row[1] is None for row in (before, after))
    time_before_ns = _read_time_ns(before)
    time_after_ns = _read_time_ns(after)
    change_ns = None if has_unknown_time else time_after_ns - time_before_ns
    time_cells = (_make_time_cell(time_ns, longest_ns) for time_ns in times_ns)
    return (
        *key,
        *entry_counts,
        *time_cells,
        change_ns,
        time_before_ns / time_after_ns if time_before_ns and time_after_ns else None,
    )


def _make_time_cell(time_ns: float | None, longest_ns: float) -> Cell | None:
    if time_ns is None:
        return None
    return Cell(time_ns, duration(time_ns), ((time_ns / longest_ns, "accent"),) if longest_ns else ())


def _format_change(change_ns: float) -> str:
    sign_text = ""
    if change_ns:
        sign_text = "+" if change_ns > 0 else "−"
    return f"{sign_text}{duration(abs(change_ns))}"


def _format_factor(value: float) -> str:
    return f"{number(value)} ×"


def _format_time_factor(before_ns: float, after_ns: float) -> str:
    return f", {number(before_ns / after_ns)} times as fast" if before_ns and after_ns else ""


def _describe_copy(copy: ProfiledCopy) -> str:
    memory_text = {None: "", True: ", page-locked", False: ", pageable"}[copy.pinned]
    return f"memcpy {copy.way}{memory_text}" if copy.way else "memset"


def _make_percent_cell(time_ns: float, total_ns: float) -> Cell | None:
    return make_share_cell(time_ns / total_ns, percent) if total_ns else None


def _format_integer(value: int) -> str:
    return f"{value:,}"


def _format_launch(grid: Dim3 | None, block: Dim3 | None) -> str | None:
    return f"{shape(grid)} × {shape(block)}" if grid and block else None


_COUNT_COLUMN = Column("count", format_value=number)
_DEVICE_TIME_COLUMN = Column("device_time_total", "device_time_total_ns", duration)
_CPU_TIME_COLUMN = Column("cpu_time_total", "cpu_time_total_ns", duration)
_WALL_SHARE_COLUMN = Column("of wall", "share_of_wall", percent)


def _make_table(
    title: str, columns: tuple[Column | str, ...], rows: Sequence[tuple[Any, ...]], hide_empty: bool = True
) -> Table:
    """Return a table that shows the `MAX_ROWS` rows with the longest times."""
    omitted_count = len(rows) - MAX_ROWS
    if omitted_count > 0:
        title += f", without {number(omitted_count)} that took less"
    return Table(title, columns, tuple(rows), hide_empty=hide_empty, max_rows=MAX_ROWS)
