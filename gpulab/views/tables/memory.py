"""The result of ``gl.memory_report`` as tables: live memory at the peak, and GPUs that would fit."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from gpulab.views.tables import SOURCE, Cell, Column, Shown, Table
from gpulab.words import count, number, percent, size
from virtualgpu.records import SourceLine
from virtualgpu.records.memory import AllocatorStatistics, MemoryReport, Room

MOST_ROWS = 12
_FEW = 0.01  # smaller factors are shown as "less than"


@dataclass(frozen=True, slots=True, repr=False)
class MemoryReportTable(Shown[MemoryReport], MemoryReport):
    """A call's memory, shown as tables."""

    @property
    def caption(self) -> str:
        """Return the peak, and the part of it that belongs to the call."""
        if self.failed is not None:
            used = self.peak_bytes - self.failed.size_bytes
            more = self.failed.size_bytes
            request = f"{size(used)} used, {size(more)} more asked for"
            return f"{self.name} ran out of memory: {request}; {self.provenance.label}."
        return (
            f"{self.name}: peak {size(self.peak_bytes)} used, {size(self.needed_bytes)} of it by the call, "
            f"{size(self.peak_reserved_bytes)} reserved; {self.provenance.label}."
        )

    def tables(self) -> tuple[Table, ...]:
        """Blocks that were alive, the largest first; then the GPUs on which the call would fit."""
        return tuple(table for table in (self._alive(), self._rooms()) if table.rows)

    def sentences(self) -> Sequence[str]:
        """Explain the place of the peak, the temporary memory, and the assumptions."""
        return list(filter(None, (self._where(), self._temporaries(), self._fit(), self.note)))

    def _where(self) -> str:
        if self.failed is not None:
            return f"The request that failed: {_named(self.failed.source)}. {self.failed.message}"
        if self.source is None:
            return "The call never used more than was in use before it."
        within = f"in {self.stack[0].function}, " if self.stack else ""
        return f"Reached {within}at {_named(self.source)}"

    def _temporaries(self) -> str:
        if self.failed is not None or not self.needed_bytes:
            return ""
        share = self.temporary_bytes / self.needed_bytes
        left = self.after_bytes - self.before_bytes
        rest = f"{size(left)} stayed" if left >= 0 else f"{size(-left)} of what was there before were freed"
        return (
            f"{size(self.temporary_bytes)} of it ({percent(share)}) were temporary; {rest} when the call "
            f"returned. {count(self.allocations, 'allocation')}, {count(self.frees, 'free')}."
        )

    def _fit(self) -> str:
        room = self.rooms[0]
        if room.times is None:
            return ""
        larger = (
            f"{_times(room.times)} the size" if room.times >= 1 else f"only {percent(room.times)} of its size"
        )
        return (
            f"On {room.provenance.device} there is room for {larger}, if all that the call allocates grows "
            f"alike and what was there before stays; sides of matrices could be {_times(room.times**0.5)} "
            "as long. Of other GPUs 512 MiB count as the driver's. Rounding and fragmentation are left out."
        )

    def _alive(self) -> Table:
        title = "Alive when it failed" if self.failed is not None else "Alive at the peak"
        held = self.peak_bytes - (self.failed.size_bytes if self.failed is not None else 0)
        rows = tuple(
            (
                group.size_bytes,
                group.size_bytes / held if held else None,
                group.blocks or None,
                group.arrays or None,
                group.stay,
                str(group.source) if group.source else None,
                group.source.text.strip() if group.source else "",
            )
            for group in self.alive
        )
        others = self.alive[MOST_ROWS:]
        together = sum(group.size_bytes for group in others)
        blocks = sum(group.blocks for group in others)
        rest = (together, together / held if held else None, blocks, None, "", "other lines", "")
        columns = (
            Column("bytes", "size_bytes", size),
            Column("share", show=percent),
            Column("blocks", show=number),
            "array",
            "stays",
            "line",
            SOURCE,
        )
        return Table(title, columns, rows, most=MOST_ROWS, rest=rest)

    def _rooms(self) -> Table:
        if self.rooms[0].times is None:
            return Table("", (), ())
        rows = tuple(_room(room, is_current=index == 0) for index, room in enumerate(self.rooms))
        columns = (
            "GPU",
            Column("memory", "memory_bytes", size),
            Column("room for the call", "room_bytes", size),
            Column("times as large", "factor", _times),
            Column("by side", "factor_by_side", _times),
        )
        return Table("What would fit", columns, rows)


def _room(room: Room, is_current: bool) -> tuple[Any, ...]:
    assert room.times is not None
    device = f"{room.provenance.device} (now)" if is_current else room.provenance.device
    side = room.times**0.5 if room.times >= 1 else Cell(None, "does not fit")
    return device, room.memory_bytes, max(0, room.room_bytes), room.times, side


def _times(factor: float) -> str:
    return f"{number(max(factor, 0), 3)} ×" if factor >= _FEW else f"less than {_FEW} ×"


def _named(source: SourceLine | None) -> str:
    if source is None:
        return "no line of the program"
    return f"{source}: {source.text}" if source.text else str(source)


@dataclass(frozen=True, slots=True, repr=False)
class HostMemoryTable(Shown[AllocatorStatistics], AllocatorStatistics):
    """Statistics of pinned (page-locked) memory, as a table."""

    @property
    def caption(self) -> str:
        """The kind of memory, and the origin of the numbers."""
        return f"Pinned host memory; {self.provenance.label}."

    def tables(self) -> tuple[Table, ...]:
        """A row for requests and for buffers, and their bytes."""
        rows = []
        for name, (figure,) in ((name, pools.values()) for name, pools in self.figures.items()):
            values = (figure.current, figure.peak, figure.allocated, figure.freed)
            show = size if name.endswith("bytes") else number
            rows.append((name.replace("_", " "), *(Cell(value, show(value)) for value in values)))
        return (Table("", (Column("", "quantity"), "now", "at most", "in all", "given back"), tuple(rows)),)
