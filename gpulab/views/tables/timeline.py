"""Tables of a timeline's analysis: overlap, gaps, the critical path, and advice."""

from __future__ import annotations

import html
from collections.abc import Callable, Iterable
from typing import Any, Self, TypeVar

from gpulab.views.tables import Column, Table, Texts
from gpulab.words import duration, number, percent
from virtualgpu.records import Advice, Gap, Overlap, PathStep, SourceLine, Timeline

R = TypeVar("R")


class Answers(Texts, tuple[R, ...]):
    """Records that display as a table, or as sentences, below a caption."""

    caption: str
    table: Table
    sentences: tuple[str, ...]

    @classmethod
    def of(cls, records: Iterable[R], caption: str, table: Table, sentences: tuple[str, ...] = ()) -> Self:
        """Return records with their display: sentences if there are any, else the table."""
        answers = cls(records)
        answers.caption = caption
        answers.table = table
        answers.sentences = sentences
        return answers

    def __repr__(self) -> str:
        table = [self.table.text()] if self.table.rows and not self.sentences else []
        return "\n".join([self.caption, *table, *self.sentences])

    def _repr_html_(self) -> str:
        table = self.table.html() if self.table.rows and not self.sentences else ""
        items = "".join(f"<li>{html.escape(text)}</li>" for text in self.sentences)
        sentences = f"<ol>{items}</ol>" if items else ""
        return f'<div role="group"><p>{html.escape(self.caption)}</p>{table}{sentences}</div>'

    def to_pandas(self) -> Any:
        """Return the table as a `pandas.DataFrame`; see `Table.to_pandas`."""
        return self.table.to_pandas()

    def _repr_pretty_(self, printer: Any, cycle: bool) -> None:
        printer.text(repr(self))


def overlaps(records: Iterable[Overlap], timeline: Timeline) -> Answers[Overlap]:
    """Return a row for each pair of engines or streams, with their overlap."""
    records = tuple(records)
    rows = tuple(
        (
            f"{overlap.first} and {overlap.second}",
            overlap.fraction,
            overlap.both_ns,
            overlap.first_ns,
            overlap.second_ns,
        )
        for overlap in records
    )
    columns = (
        "pair",
        Column("overlap", show=percent),
        Column("both busy", "both_ns", duration),
        Column("first busy", "first_ns", duration),
        Column("second busy", "second_ns", duration),
    )
    caption = "Overlap in percent of the shorter of the two busy times"
    streams = len({(a.device_id, a.stream_id) for a in timeline.activities})
    if len(records) < streams * (streams - 1) // 2:
        caption += f", of those of its {streams:,} streams with the most operations"
    return Answers.of(records, _caption(caption, timeline, rows), Table("", columns, rows))


def gaps(records: Iterable[Gap], timeline: Timeline) -> Answers[Gap]:
    """Return a row for all gaps with the same place, cause and line, the longest first."""
    records = tuple(records)

    def kind(gap: Gap) -> tuple[str | None, ...]:
        hides = gap.cause in ("launch-bound", "host computing", "start-up")
        reason = None if hides and not gap.reason.startswith("the host ran ") else gap.reason
        return gap.where, gap.cause, _line(gap.source), reason

    rows = _added_up(records, kind, timeline)
    columns = ("where", "cause", "line", "why", *_SUMS)
    return Answers.of(records, _caption("Gaps by cause", timeline, rows), Table("", columns, rows))


def path(records: Iterable[PathStep], timeline: Timeline) -> Answers[PathStep]:
    """Return a row for all links with the same kind, name and line, the longest first."""
    records = tuple(records)

    def kind(step: PathStep) -> tuple[str | None, ...]:
        return step.name, step.where, _line(step.source)

    rows = _added_up(records, kind, timeline)
    columns = ("link", "where", "line", *_SUMS)
    caption = "Critical path: what determines how long it takes"
    return Answers.of(records, _caption(caption, timeline, rows), Table("", columns, rows))


def advice(records: Iterable[Advice], timeline: Timeline) -> Answers[Advice]:
    """Return sentences, the one with the largest gain first."""
    records = tuple(records)
    sentences = tuple(record.text for record in records)
    caption = f"What would help, each by itself; {timeline.provenance.label}:"
    if not records and not timeline.activities and timeline.method == "file":
        caption = f"There is no work of a GPU to advise on; {timeline.provenance.label}."
    elif not records:
        caption = f"Nothing stands out that would help much; {timeline.provenance.label}."
    rows = tuple((record.topic, record.gain_ns, record.text) for record in records)
    columns = ("topic", Column("gain", "gain_ns", duration), "advice")
    return Answers.of(records, caption, Table("", columns, rows), sentences)


def _added_up(
    records: tuple[Any, ...], kind: Callable[[Any], tuple[str | None, ...]], timeline: Timeline
) -> tuple[tuple[Any, ...], ...]:
    durations: dict[tuple[str | None, ...], list[int]] = {}
    for record in records:
        durations.setdefault(kind(record), []).append(record.duration_ns)
    longest = sorted(durations.items(), key=lambda item: -sum(item[1]))
    whole = max(1, timeline.duration_ns)
    return tuple((*words, len(spans), sum(spans), sum(spans) / whole) for words, spans in longest)


def _whole(quantity: str) -> str:
    """A number and its unit, with no line break between them."""
    return quantity.replace(" ", "\N{NO-BREAK SPACE}")


_SUMS = (
    Column("times", "count", number),
    Column("together", "total_ns", lambda time_ns: _whole(duration(time_ns))),
    Column("of all", "share", lambda share: _whole(percent(share))),
)


def _caption(text: str, timeline: Timeline, rows: tuple[tuple[Any, ...], ...]) -> str:
    return f"{text}; {timeline.provenance.label}{':' if rows else ': there is none.'}"


def _line(source: SourceLine | None) -> str | None:
    if source is None:
        return None
    return f"{source}: {source.text}" if source.text else str(source)
