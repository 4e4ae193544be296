"""Display of a timeline's analysis: overlap, gaps, the critical path, and advice."""

from __future__ import annotations

import html
from collections.abc import Callable, Iterable
from typing import Any, Self, TypeVar

from gpulab.views.tables import Column, Table, Texts
from gpulab.words import duration, number, percent
from virtualgpu.records import Advice, Gap, Overlap, PathStep, SourceLine, Timeline

R = TypeVar("R")


class Answers(Texts, tuple[R, ...]):
    """Records that are displayed as a table, or as sentences, below a caption."""

    caption: str
    table: Table
    sentences: tuple[str, ...]

    @classmethod
    def of(cls, records: Iterable[R], caption: str, table: Table, sentences: tuple[str, ...] = ()) -> Self:
        """Return records with their display: sentences if there are any, otherwise the table."""
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
    """Return a table with a row for each pair of engines or streams and their overlap."""
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
    """Return a table with a row for all gaps with the same place, cause and line, the longest first."""
    records = tuple(records)

    def key(gap: Gap) -> tuple[str | None, ...]:
        has_general_reason = gap.cause in ("launch-bound", "host computing", "start-up")
        reason = None if has_general_reason and not gap.reason.startswith("the host ran ") else gap.reason
        return gap.where, gap.cause, _line(gap.source), reason

    rows = _sums_by_key(records, key, timeline)
    columns = ("where", "cause", "line", "why", *_SUMS)
    return Answers.of(records, _caption("Gaps by cause", timeline, rows), Table("", columns, rows))


def path(records: Iterable[PathStep], timeline: Timeline) -> Answers[PathStep]:
    """Return a table with a row for all path steps with the same name, place and line, the longest first."""
    records = tuple(records)

    def key(step: PathStep) -> tuple[str | None, ...]:
        return step.name, step.where, _line(step.source)

    rows = _sums_by_key(records, key, timeline)
    columns = ("link", "where", "line", *_SUMS)
    caption = "Critical path: the operations that determine the total time"
    return Answers.of(records, _caption(caption, timeline, rows), Table("", columns, rows))


def advice(records: Iterable[Advice], timeline: Timeline) -> Answers[Advice]:
    """Return the pieces of advice as sentences, the one with the largest gain first."""
    records = tuple(records)
    sentences = tuple(record.text for record in records)
    caption = f"Changes that would help, each by itself; {timeline.provenance.label}:"
    if not records and not timeline.activities and timeline.method == "file":
        caption = f"There is no GPU work to analyse; {timeline.provenance.label}."
    elif not records:
        caption = f"No single change would help much; {timeline.provenance.label}."
    rows = tuple((record.topic, record.gain_ns, record.text) for record in records)
    columns = ("topic", Column("gain", "gain_ns", duration), "advice")
    return Answers.of(records, caption, Table("", columns, rows), sentences)


def _sums_by_key(
    records: tuple[Any, ...], key: Callable[[Any], tuple[str | None, ...]], timeline: Timeline
) -> tuple[tuple[Any, ...], ...]:
    """Return rows with the number, total duration and share of the records with the same key."""
    durations: dict[tuple[str | None, ...], list[int]] = {}
    for record in records:
        durations.setdefault(key(record), []).append(record.duration_ns)
    sorted_groups = sorted(durations.items(), key=lambda item: -sum(item[1]))
    total_ns = max(1, timeline.duration_ns)
    return tuple(
        (*labels, len(group_ns), sum(group_ns), sum(group_ns) / total_ns)
        for labels, group_ns in sorted_groups
    )


def _unbroken(quantity: str) -> str:
    """Return a number and its unit, without a line break between them."""
    return quantity.replace(" ", "\N{NO-BREAK SPACE}")


_SUMS = (
    Column("times", "count", number),
    Column("together", "total_ns", lambda time_ns: _unbroken(duration(time_ns))),
    Column("of all", "share", lambda share: _unbroken(percent(share))),
)


def _caption(text: str, timeline: Timeline, rows: tuple[tuple[Any, ...], ...]) -> str:
    return f"{text}; {timeline.provenance.label}{':' if rows else ': there is none.'}"


def _line(source: SourceLine | None) -> str | None:
    if source is None:
        return None
    return f"{source}: {source.text}" if source.text else str(source)
