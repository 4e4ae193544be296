"""The history of one element, as text and HTML."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from gpulab.views.tables import NOTHING, SOURCE, Cell, Column, Shown, Table, short
from gpulab.words import count, number
from virtualgpu.records.faults.history import ElementHistory, Write

_SHOWN = 60


@dataclass(frozen=True, slots=True, repr=False)
class HistoryTable(Shown[ElementHistory], ElementHistory):
    """Table of every write to an element, the first write on top."""

    @property
    def caption(self) -> str:
        """The element, the number of its writes, and the device."""
        writes = len(self.writes) - 1 + self.left_out
        text = f"{count(writes, 'write')} in {count(self.launches, 'launch', 'launches')}"
        return f"{self.element}: {text}, seen on {self.provenance.device}."

    @property
    def verdict(self) -> str:
        """The last writer of the element, and its value."""
        last = self.last
        if last.kind == "initial":
            return f"Nothing wrote {self.element}: its {_value(last.value)} was there before."
        launch_text = f" of launch {last.launch}" if last.launch else ""
        by = f"{last.name}{launch_text}"
        if last.place is not None:
            by += f", block {last.place.block}, thread {last.place.thread}"
            by += f", line {last.place.line}" if last.place.line else ""
        source_text = f" ({last.source})" if last.source else ""
        return f"{self.element} is {_value(last.value)}, written by {by}{source_text}."

    def tables(self) -> tuple[Table, ...]:
        """A row for each write; of many, the first and the last."""
        rows = self._rows()
        if len(rows) > _SHOWN:
            skipped = len(rows) - _SHOWN
            gap = ("", Cell(None, f"{number(skipped)} more"), *[""] * (len(_COLUMNS) - 2))
            rows = [*rows[: _SHOWN // 2], gap, *rows[-_SHOWN // 2 :]]
        return (Table("", _COLUMNS, tuple(rows), hide_empty=True),)

    def _all_tables(self) -> tuple[Table, ...]:
        return (Table("", _COLUMNS, tuple(self._rows())),)

    def _rows(self) -> list[tuple[Any, ...]]:
        return [(index, *_row(write)) for index, write in enumerate(self.writes, self.left_out)]

    def sentences(self) -> list[str]:
        """Return the verdict and further notes."""
        sentences = [self.verdict]
        if self.left_out:
            sentences.append(
                f"The first {count(self.left_out, 'entry', 'entries')} of the history left no room."
            )
        if any(write.value is None for write in self.writes):
            sentences.append("Lanes of one instruction wrote it together: the last of them stays.")
        if self.error:
            sentences.append(f"Then came {self.error}")
        return [*sentences, *filter(None, [self.note])]


def _row(write: Write) -> tuple[Any, ...]:
    place = write.place
    position: tuple[Any, ...] = (None, None, None, None)
    if place is not None:
        position = place.block, place.thread, place.line or None, place.source.strip()
    by = {"initial": "before", "atomic": f"{write.name} (atomic)"}.get(write.kind, write.name)
    python = None
    if write.source is not None:
        line = f"{write.source.file}:{write.source.line}"
        python = Cell(f"{line} {write.source.text.strip()}", f"{line} {short(write.source.text)}")
    return write.value, by, write.launch or None, *position, python


def _value(value: Any) -> str:
    return NOTHING if value is None else f"{value:.7g}" if isinstance(value, float) else str(value)


_COLUMNS = (
    Column("", "write_index"),
    Column("value", show=_value),
    "by",
    "launch",
    "block",
    "thread",
    "line",
    SOURCE,
    "Python line",
)
