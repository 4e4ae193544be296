"""The display of a timeline's analysis: overlap, gaps, the critical path and advice."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, Self, TypeVar

from gpulab.views.tables import CardOfTables, Column, Table
from gpulab.words import duration, number, percent
from virtualgpu.records import Advice, Gap, Overlap, PathStep, SourceLine, Timeline

AnalysisRecord = TypeVar("AnalysisRecord")


class AnalysisTable(CardOfTables, tuple[AnalysisRecord, ...]):
    """The results of a timeline analysis, displayed as a table or as sentences."""

    table: Table
    _card_texts: tuple[str, str, str, tuple[str, ...]]
    has_numbered_sentences = True

    @classmethod
    def of(
        cls,
        records: Iterable[AnalysisRecord],
        heading: str,
        timeline: Timeline,
        table: Table,
        sentences: tuple[str, ...] = (),
        empty_text: str = "there is none",
    ) -> Self:
        """Create an analysis result from the records, which is displayed as the given `sentences`. If
        `sentences` is empty, the `table` is displayed.

        Without records, the text `empty_text` is shown.
        """
        analysis_table = cls(records)
        analysis_table.table = table
        analysis_table._card_texts = (
            heading,
            "" if analysis_table else empty_text,
            timeline.provenance.label,
            sentences,
        )
        return analysis_table

    @property
    def heading(self) -> str:
        """The heading of the card, which states the kind of the results."""
        return self._card_texts[0]

    @property
    def facts(self) -> str:
        """A text that states that there are no results. The text is empty if there are results."""
        return self._card_texts[1]

    @property
    def origin(self) -> str:
        """A phrase that states the origin of the times in the timeline, such as ``measured on NVIDIA
        H200``.
        """
        return self._card_texts[2]

    def tables(self) -> tuple[Table, ...]:
        """Return the table of results, unless the results are displayed as sentences."""
        return (self.table,) if self.table.rows and not self.sentences() else ()

    def sentences(self) -> tuple[str, ...]:
        """Return the results as sentences, or no sentences if the table shows the results."""
        return self._card_texts[3]

    def _list_all_tables(self) -> tuple[Table, ...]:
        return (self.table,)

    def _repr_pretty_(self, printer: Any, cycle: bool) -> None:
        printer.text(repr(self))


def make_overlap_table(records: Iterable[Overlap], timeline: Timeline) -> AnalysisTable[Overlap]:
    """Return a table of the overlap of each pair of engines or streams."""
    records = tuple(records)
    overlap_rows = tuple(
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
        Column("overlap", format_value=percent),
        Column("both busy", "both_ns", duration),
        Column("first busy", "first_ns", duration),
        Column("second busy", "second_ns", duration),
    )
    caption = "Overlap in percent of the shorter of the two busy times"
    stream_count = len({(activity.device_id, activity.stream_id) for activity in timeline.activities})
    if len(records) < stream_count * (stream_count - 1) // 2:
        caption += f", of those of its {stream_count:,} streams with the most operations"
    return AnalysisTable.of(records, caption, timeline, Table("", columns, overlap_rows))


def make_gap_table(records: Iterable[Gap], timeline: Timeline) -> AnalysisTable[Gap]:
    """Return a table of the gaps in a timeline, with the longest first. Gaps with the same row, cause and
    source line are combined.
    """
    records = tuple(records)

    def make_gap_key(gap: Gap) -> tuple[str | None, ...]:
        has_general_reason = gap.cause in ("launch-bound", "host computing", "start-up")
        gap_reason = None if has_general_reason and not gap.reason.startswith("the host ran ") else gap.reason
        return gap.where, gap.cause, _format_line(gap.source), gap_reason

    rows = _sum_by_key(records, make_gap_key, timeline)
    columns = ("where", "cause", "line", "why", *_SUM_COLUMNS)
    return AnalysisTable.of(records, "Gaps by cause", timeline, Table("", columns, rows))


def make_path_table(records: Iterable[PathStep], timeline: Timeline) -> AnalysisTable[PathStep]:
    """Return a table of the steps of the critical path, with the longest first. Equal steps are combined."""
    records = tuple(records)

    def make_step_key(step: PathStep) -> tuple[str | None, ...]:
        return step.name, step.where, _format_line(step.source)

    rows = _sum_by_key(records, make_step_key, timeline)
    columns = ("link", "where", "line", *_SUM_COLUMNS)
    caption = "Critical path: the operations that determine the total time"
    return AnalysisTable.of(records, caption, timeline, Table("", columns, rows))


def make_advice_list(records: Iterable[Advice], timeline: Timeline) -> AnalysisTable[Advice]:
    """Return advice on a timeline as sentences, with the largest expected gain first."""
    records = tuple(records)
    sentences = tuple(record.text for record in records)
    advice_heading = "Changes that would help, each by itself"
    has_no_work = not timeline.activities and timeline.method == "file"
    empty_text = "there is no GPU work to analyse" if has_no_work else "no single change would help much"
    rows = tuple((record.topic, record.gain_ns, record.text) for record in records)
    columns = ("topic", Column("gain", "gain_ns", duration), "advice")
    return AnalysisTable.of(
        records, advice_heading, timeline, Table("", columns, rows), sentences, empty_text
    )


def _sum_by_key(
    records: tuple[Any, ...], make_key: Callable[[Any], tuple[str | None, ...]], timeline: Timeline
) -> tuple[tuple[Any, ...], ...]:
    """Return rows with the number, total duration and share of the records with the same key."""
    durations_of_key: dict[tuple[str | None, ...], list[int]] = {}
    for record in records:
        durations_of_key.setdefault(make_key(record), []).append(record.duration_ns)
    sorted_groups = sorted(durations_of_key.items(), key=lambda item: -sum(item[1]))
    total_ns = max(1, timeline.duration_ns)
    return tuple(
        (*group_labels, len(group_ns), sum(group_ns), sum(group_ns) / total_ns)
        for group_labels, group_ns in sorted_groups
    )


def _bind_unit_to_number(quantity: str) -> str:
    """Return a number and its unit, without a line break between them."""
    return quantity.replace(" ", "\N{NO-BREAK SPACE}")


_SUM_COLUMNS = (
    Column("times", "count", number),
    Column("together", "total_ns", lambda time_ns: _bind_unit_to_number(duration(time_ns))),
    Column("of all", "share", lambda share: _bind_unit_to_number(percent(share))),
)


def _format_line(source: SourceLine | None) -> str | None:
    if source is None:
        return None
    return f"{source}: {source.text}" if source.text else str(source)
