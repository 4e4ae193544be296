"""The history of one element, as text and HTML."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from gpulab.views.tables import NOTHING, Shown, Table, short
from gpulab.words import count, number
from virtualgpu.records.faults.history import ElementHistory, Write

_SHOWN = 60
_HEADINGS = ("", "value", "by", "launch", "block", "thread", "line", "source", "Python line")


@dataclass(frozen=True, slots=True, repr=False)
class HistoryTable(Shown[ElementHistory], ElementHistory):
    """Every write to an element, the first one on top."""

    @property
    def caption(self) -> str:
        """Whose history, and where it was seen."""
        writes = len(self.writes) - 1 + self.left_out
        seen = f"{count(writes, 'write')} in {count(self.launches, 'launch', 'launches')}"
        return f"{self.element}: {seen}, seen on {self.provenance.device}."

    @property
    def verdict(self) -> str:
        """Who wrote what it holds now."""
        last = self.last
        if last.kind == "initial":
            return f"Nothing wrote {self.element}: its {_value(last.value)} was there before."
        where = f" of launch {last.launch}" if last.launch else ""
        by = f"{last.name}{where}"
        if last.place is not None:
            by += f", block {last.place.block}, thread {last.place.thread}"
            by += f", line {last.place.line}" if last.place.line else ""
        at = f" ({last.source})" if last.source else ""
        return f"{self.element} is {_value(last.value)}, written by {by}{at}."

    def tables(self) -> tuple[Table, ...]:
        """A row for each write; of many, the first and the last."""
        rows = [(str(at), *_row(write)) for at, write in enumerate(self.writes, self.left_out)]
        if len(rows) > _SHOWN:
            skipped = len(rows) - _SHOWN
            gap = ("", f"{number(skipped)} more", *[""] * (len(_HEADINGS) - 2))
            rows = [*rows[: _SHOWN // 2], gap, *rows[-_SHOWN // 2 :]]
        return (Table("", _HEADINGS, tuple(rows)).without_empty_columns(),)

    def sentences(self) -> list[str]:
        """The verdict, and what else is to be said."""
        said = [self.verdict]
        if self.left_out:
            said.append(f"The first {count(self.left_out, 'entry', 'entries')} of the history left no room.")
        if any(write.value is None for write in self.writes):
            said.append("Lanes of one instruction wrote it together: the last of them stays.")
        if self.error:
            said.append(f"Then came {self.error}")
        return [*said, *filter(None, [self.note])]


def _row(write: Write) -> tuple[str, ...]:
    block = thread = line = source = NOTHING
    if write.place is not None:
        block = str(write.place.block)
        thread = str(write.place.thread)
        line = str(write.place.line or NOTHING)
        source = short(write.place.source)
    by = {"initial": "before", "atomic": f"{write.name} (atomic)"}.get(write.kind, write.name)
    launch = str(write.launch) if write.launch else NOTHING
    python = (
        f"{write.source.file}:{write.source.line} {short(write.source.text)}" if write.source else NOTHING
    )
    return _value(write.value), by, launch, block, thread, line, source, python


def _value(value: Any) -> str:
    return NOTHING if value is None else f"{value:.7g}" if isinstance(value, float) else str(value)
