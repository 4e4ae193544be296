"""What a timeline answers, as tables: operations, overlap, gaps, the critical path, and advice."""

from __future__ import annotations

import html
from collections.abc import Callable, Iterable
from typing import Any, Self, TypeVar

from gpulab.views.tables import NOTHING, Table, Texts
from gpulab.words import duration, number, percent
from virtualgpu.records import Advice, Gap, Overlap, PathStep, SourceLine, Timeline

R = TypeVar("R")


class Answers(Texts, tuple[R, ...]):
    """Records that display as a table, or as sentences, below a caption."""

    caption: str
    shown: Table
    sentences: tuple[str, ...]

    @classmethod
    def of(cls, records: Iterable[R], caption: str, shown: Table, sentences: tuple[str, ...] = ()) -> Self:
        answers = cls(records)
        answers.caption = caption
        answers.shown = shown
        answers.sentences = sentences
        return answers

    def __repr__(self) -> str:
        table = [self.shown.text()] if self.shown.rows else []
        return "\n".join([self.caption, *table, *self.sentences])

    def _repr_html_(self) -> str:
        table = self.shown.html() if self.shown.rows else ""
        items = "".join(f"<li>{html.escape(text)}</li>" for text in self.sentences)
        said = f"<ol>{items}</ol>" if items else ""
        return f'<div role="group"><p>{html.escape(self.caption)}</p>{table}{said}</div>'

    def _repr_pretty_(self, printer: Any, cycle: bool) -> None:
        printer.text(repr(self))


def overlaps(found: Iterable[Overlap], timeline: Timeline) -> Answers[Overlap]:
    """A row for each pair that was busy at all."""
    found = tuple(found)
    rows = tuple(
        (
            f"{o.first} and {o.second}",
            percent(o.fraction),
            *map(duration, (o.both_ns, o.first_ns, o.second_ns)),
        )
        for o in found
    )
    headings = ("pair", "overlap", "both busy", "first busy", "second busy")
    caption = "Overlap in percent of the shorter of the two busy times"
    streams = len({(a.device_id, a.stream_id) for a in timeline.activities})
    if len(found) < streams * (streams - 1) // 2:
        caption += f", of those of its {streams:,} streams with the most operations"
    return Answers.of(found, _caption(caption, timeline, rows), Table("", headings, rows))


def gaps(found: Iterable[Gap], timeline: Timeline) -> Answers[Gap]:
    """A row for all gaps of one place, cause and line, the longest first."""
    found = tuple(found)

    def kind(gap: Gap) -> tuple[str, ...]:
        hides = gap.cause in ("launch-bound", "host computing", "start-up")
        reason = NOTHING if hides and not gap.reason.startswith("the host ran ") else gap.reason
        return gap.where, gap.cause, _line(gap.source), reason

    rows = _added_up(found, kind, timeline)
    headings = ("where", "cause", "line", "why", "times", "together", "of all")
    return Answers.of(found, _caption("Gaps by cause", timeline, rows), Table("", headings, rows))


def path(found: Iterable[PathStep], timeline: Timeline) -> Answers[PathStep]:
    """A row for all links of one kind, name and line, those that took longest first."""
    found = tuple(found)

    def kind(step: PathStep) -> tuple[str, ...]:
        return step.name, step.where, _line(step.source)

    rows = _added_up(found, kind, timeline)
    headings = ("link", "where", "line", "times", "together", "of all")
    caption = "Critical path: what determines how long it takes"
    return Answers.of(found, _caption(caption, timeline, rows), Table("", headings, rows))


def advice(found: Iterable[Advice], timeline: Timeline) -> Answers[Advice]:
    """Sentences, the one with the largest gain first."""
    found = tuple(found)
    said = tuple(each.text for each in found)
    caption = f"What would help, each by itself; {timeline.provenance.label}:"
    if not found and not timeline.activities and timeline.method == "file":
        caption = f"There is no work of a GPU to advise on; {timeline.provenance.label}."
    elif not found:
        caption = f"Nothing stands out that would help much; {timeline.provenance.label}."
    return Answers.of(found, caption, Table("", (), ()), said)


def _added_up(
    found: tuple[Any, ...], kind: Callable[[Any], tuple[str, ...]], timeline: Timeline
) -> tuple[tuple[str, ...], ...]:
    times: dict[tuple[str, ...], list[int]] = {}
    for each in found:
        times.setdefault(kind(each), []).append(each.duration_ns)
    longest = sorted(times.items(), key=lambda item: -sum(item[1]))
    whole = max(1, timeline.duration_ns)
    return tuple(
        (*told, number(len(spans)), _whole(duration(sum(spans))), _whole(percent(sum(spans) / whole)))
        for told, spans in longest
    )


def _whole(quantity: str) -> str:
    """A number and its unit, which no line break may part."""
    return quantity.replace(" ", "\N{NO-BREAK SPACE}")


def _caption(text: str, timeline: Timeline, rows: tuple[tuple[str, ...], ...]) -> str:
    return f"{text}; {timeline.provenance.label}{':' if rows else ': there is none.'}"


def _line(source: SourceLine | None) -> str:
    return NOTHING if source is None else f"{source}: {source.text}" if source.text else str(source)
