"""The tables of ``gl.memory_report``: memory in use at the peak, and GPUs on which the call would fit."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from gpulab.views.tables import SOURCE_COLUMN, Cell, Column, RecordTable, Table, make_share_cell
from gpulab.words import count, number, percent, size
from virtualgpu.records import SourceLine
from virtualgpu.records.memory import AllocatorStatistics, MemoryReport, Room

MAX_ROWS = 12
_MIN_SHOWN_FACTOR = 0.01  # smaller factors are shown as "less than"


@dataclass(frozen=True, slots=True, repr=False)
class MemoryReportTable(RecordTable[MemoryReport], MemoryReport):
    """The tables of the memory that a function call uses."""

    @property
    def heading(self) -> str:
        """The heading of the card, with the kind of the tables and the function."""
        return f"Memory of {self.name}"

    @property
    def facts(self) -> str:
        """The part of the caption that states the memory peak, and how much of it belongs to the call."""
        if self.failed is not None:
            used_bytes = self.peak_bytes - self.failed.size_bytes
            request_bytes = self.failed.size_bytes
            return f"out of memory, {size(used_bytes)} used, {size(request_bytes)} more requested"
        return (
            f"peak {size(self.peak_bytes)} used, {size(self.needed_bytes)} of it by the call, "
            f"{size(self.peak_reserved_bytes)} reserved"
        )

    @property
    def origin(self) -> str:
        """A phrase that states the origin of the memory sizes, such as ``measured on NVIDIA H200``."""
        return self.provenance.label

    def tables(self) -> tuple[Table, ...]:
        """Return a table of the memory in use at the peak, and a table of GPUs on which the call fits."""
        return tuple(
            table for table in (self._make_memory_in_use_table(), self._make_room_table()) if table.rows
        )

    def sentences(self) -> Sequence[str]:
        """Return explanations of the source line of the memory peak, the temporary memory, and the
        assumptions.
        """
        return list(
            filter(
                None, (self._describe_peak(), self._describe_temporaries(), self._describe_room(), self.note)
            )
        )

    def _describe_peak(self) -> str:
        if self.failed is not None:
            return f"The request that failed: {_format_source(self.failed.source)}. {self.failed.message}"
        if self.source is None:
            return "The call never used more memory than was in use before the call."
        function_text = f"in {self.stack[0].function}, " if self.stack else ""
        return f"Reached {function_text}at {_format_source(self.source)}"

    def _describe_temporaries(self) -> str:
        if self.failed is not None or not self.needed_bytes:
            return ""
        temporary_share = self.temporary_bytes / self.needed_bytes
        remaining_bytes = self.after_bytes - self.before_bytes
        change_text = (
            f"{size(remaining_bytes)} remained in use"
            if remaining_bytes >= 0
            else f"{size(-remaining_bytes)} of earlier allocations were freed"
        )
        return (
            f"{size(self.temporary_bytes)} of it ({percent(temporary_share)}) were temporary; {change_text} "
            f"when the call returned. {count(self.allocations, 'allocation')}, {count(self.frees, 'free')}."
        )

    def _describe_room(self) -> str:
        device_room = self.rooms[0]
        if device_room.times is None:
            return ""
        factor_text = (
            f"{_format_factor(device_room.times)} the size"
            if device_room.times >= 1
            else f"only {percent(device_room.times)} of its size"
        )
        return (
            f"On {device_room.provenance.device} there is room for {factor_text}, if all allocations of "
            "the call grow by the same factor and earlier allocations remain. The sides of matrices could be "
            f"{_format_factor(device_room.times**0.5)} as long. For other GPUs, 512 MiB are reserved "
            "for the driver. Rounding and fragmentation are not included."
        )

    def _make_memory_in_use_table(self) -> Table:
        title = "Alive when it failed" if self.failed is not None else "Alive at the peak"
        total_bytes = self.peak_bytes - (self.failed.size_bytes if self.failed is not None else 0)
        block_rows = tuple(
            (
                block_group.size_bytes,
                _make_percent_cell(block_group.size_bytes, total_bytes),
                block_group.blocks or None,
                block_group.arrays or None,
                block_group.stay,
                str(block_group.source) if block_group.source else None,
                block_group.source.text.strip() if block_group.source else "",
            )
            for block_group in self.alive
        )
        omitted_block_groups = self.alive[MAX_ROWS:]
        omitted_bytes = sum(block_group.size_bytes for block_group in omitted_block_groups)
        omitted_block_count = sum(block_group.blocks for block_group in omitted_block_groups)
        omission_row = (
            omitted_bytes,
            _make_percent_cell(omitted_bytes, total_bytes),
            omitted_block_count,
            None,
            "",
            "other lines",
            "",
        )
        columns = (
            Column("bytes", "size_bytes", size),
            Column("share", format_value=percent),
            Column("blocks", format_value=number),
            "array",
            "stays",
            "line",
            SOURCE_COLUMN,
        )
        return Table(title, columns, block_rows, max_rows=MAX_ROWS, omission_row=omission_row)

    def _make_room_table(self) -> Table:
        if self.rooms[0].times is None:
            return Table("", (), ())
        room_rows = tuple(
            _make_room_row(device_room, is_current=index == 0) for index, device_room in enumerate(self.rooms)
        )
        columns = (
            "GPU",
            Column("memory", "memory_bytes", size),
            Column("room for the call", "room_bytes", size),
            Column("times as large", "factor", _format_factor),
            Column("by side", "factor_by_side", _format_factor),
        )
        return Table("Sizes that would fit", columns, room_rows)


def _make_percent_cell(size_bytes: int, total_bytes: int) -> Cell | None:
    return make_share_cell(size_bytes / total_bytes, percent) if total_bytes else None


def _make_room_row(device_room: Room, is_current: bool) -> tuple[Any, ...]:
    assert device_room.times is not None
    device_text = f"{device_room.provenance.device} (now)" if is_current else device_room.provenance.device
    side_length_factor = device_room.times**0.5 if device_room.times >= 1 else Cell(None, "does not fit")
    return (
        device_text,
        device_room.memory_bytes,
        max(0, device_room.room_bytes),
        device_room.times,
        side_length_factor,
    )


def _format_factor(factor: float) -> str:
    return (
        f"{number(max(factor, 0), 3)} ×"
        if factor >= _MIN_SHOWN_FACTOR
        else f"less than {_MIN_SHOWN_FACTOR} ×"
    )


def _format_source(source: SourceLine | None) -> str:
    if source is None:
        return "not from a line of the program"
    return f"{source}: {source.text}" if source.text else str(source)


@dataclass(frozen=True, slots=True, repr=False)
class HostMemoryTable(RecordTable[AllocatorStatistics], AllocatorStatistics):
    """A table of the statistics of pinned (page-locked) memory."""

    @property
    def heading(self) -> str:
        """The heading of the card, which states the kind of memory."""
        return "Pinned host memory"

    @property
    def origin(self) -> str:
        """A phrase that states the origin of the memory statistics, such as ``measured on NVIDIA H200``."""
        return self.provenance.label

    def tables(self) -> tuple[Table, ...]:
        """Return a table with rows for requests and buffers, and for the bytes of both."""
        statistic_rows = []
        for statistic_name, (statistics,) in (
            (statistic_name, pools.values()) for statistic_name, pools in self.figures.items()
        ):
            statistic_values = (statistics.current, statistics.peak, statistics.allocated, statistics.freed)
            format_value = size if statistic_name.endswith("bytes") else number
            statistic_rows.append(
                (
                    statistic_name.replace("_", " "),
                    *(Cell(value, format_value(value)) for value in statistic_values),
                )
            )
        return (
            Table(
                "", (Column("", "quantity"), "now", "at most", "in all", "given back"), tuple(statistic_rows)
            ),
        )
