"""The pipeline view: the fills and uses of a block's buffers in shared memory, and the waits between them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import groupby

from gpulab.analysis.pipeline.find import find_pipeline
from gpulab.analysis.pipeline.record import Mark, Mistake, Pipeline
from gpulab.views._base import View
from gpulab.views.parts.boxes import Box, Plot, column, legend, table, words
from gpulab.views.parts.items import Item, LineSegments, Rects
from gpulab.views.parts.palette import choose_ink
from gpulab.views.parts.plots import (
    AXIS_HEIGHT_PX,
    make_labels,
    make_sentence_args,
    make_x_axis,
    make_y_ticks,
    plot,
)
from gpulab.views.pipeline.pipeline_text import PipelineText, format_lines, format_warps
from gpulab.views.tables import Table
from gpulab.words import count, number, size
from virtualgpu.records import BlockTrace

HEADER_PX = 20
BUFFER_ROW_PX = 46
BAR_HEIGHT_PX = 18
WARP_ROW_PX = 26
LEFT_MARGIN_PX = 84
MAX_BARRIERS = 60
MAX_DESCRIBED_EVENTS = 100
IN_FLIGHT_COLOUR, STORE_COLOUR, USE_COLOUR, FILLED_COLOUR, MISTAKE_COLOUR = (
    "warn",
    "good",
    "accent",
    "good-pale",
    "error",
)
MARK_COLOURS = {
    "commit": "other",
    "wait": "purple",
    "barrier": "fg",
    "arrival": "tail",
    "wait for arrivals": "kernel-4",
}
MARK_MEANINGS = {
    "commit": "close a group of copies",
    "wait": "wait for copies",
    "barrier": "barrier",
    "arrival": "arrive at an mbarrier",
    "wait for arrivals": "wait for an mbarrier",
}


@dataclass(frozen=True, slots=True)
class _PipelineBar:
    """A fill, a use or a mark: its positions, its top in pixels, and its texts."""

    start: int
    end: int
    top: float
    colour: str
    sentence: str
    name: str = ""


class PipelineView(View):
    """A view of the shared-memory buffers of one block. The view shows which warps fill and use the buffers,
    and where the warps wait.

    Parameters
    ----------
    trace
        The steps of all warps of a block.
    note
        A sentence about the origin of the trace, shown in the caption.

    Attributes
    ----------
    pipeline
        The buffers, fills, uses, waits and mistakes (`gpulab.analysis.pipeline.record.Pipeline`).

    Raises
    ------
    GpulabError
        If the block has no pipeline.
    """

    def __init__(self, trace: BlockTrace, note: str = "") -> None:
        self.pipeline = find_pipeline(trace)
        self._text = PipelineText(self.pipeline)
        # The first mistake of each use that is too early, and of each fill that overwrites.
        self._mistake_of_fill: dict[tuple[str, int, int], Mistake] = {
            (mistake.kind, *buffer_fill): mistake
            for mistake in reversed(self.pipeline.mistakes)
            for buffer_fill in mistake.fills
        }
        order_text = f"Steps {trace.provenance.of_results}, in one of the orders that a GPU can choose."
        super().__init__(
            title=f"Pipeline of block {_format_index(trace)} in {trace.kernel_name}",
            caption=" ".join(filter(None, [order_text, _explain_truncation(trace), trace.note, note])),
            source=trace.provenance.of_results.split()[0],
        )
        self.redraw()

    @property
    def record(self) -> Pipeline:
        return self.pipeline

    def sentence(self) -> str:
        pipeline = self.pipeline
        copy_count = sum(fill.asynchronous for fill in pipeline.fills)
        overlap_text = (
            f", {number(len(pipeline.overlapped()))} of them while another buffer is used"
            if copy_count
            else ""
        )
        fill_kind_text = "by asynchronous copies" if copy_count else "by stores"
        if 0 < copy_count < len(pipeline.fills):
            fill_kind_text = f"{number(copy_count)} times by asynchronous copies"
        mistakes_text = count(len(pipeline.mistakes), "mistake") if pipeline.mistakes else "no mistake found"
        return (
            f"Block {_format_index(pipeline.trace)} in kernel {pipeline.trace.kernel_name}: "
            f"{count(len(pipeline.buffers), 'buffer')}, filled {count(len(pipeline.fills), 'time')} "
            f"{fill_kind_text}"
            f"{overlap_text}; {mistakes_text}; {pipeline.trace.provenance.of_results}."
        )

    def describe(self) -> str:
        pipeline = self.pipeline
        lines = [self.sentence(), *map(self._text.describe_mistake, pipeline.mistakes)]
        for index, buffer in enumerate(pipeline.buffers):
            lines.append(
                f"Buffer {index}: "
                f"{_format_byte_range(buffer.start_byte, buffer.end_byte, buffer.size_bytes)}."
            )
        events = [(fill.start, self._text.describe_fill(fill)) for fill in pipeline.fills]
        events += [(use.start, self._text.describe_use(use)) for use in pipeline.uses]
        events += [
            (mark.position, self._text.describe_mark(mark))
            for mark in pipeline.marks
            if mark.kind != "commit"
        ]
        events.sort(key=lambda event: event[0])
        lines += [text for _, text in events[:MAX_DESCRIBED_EVENTS]]
        if len(events) > MAX_DESCRIBED_EVENTS:
            lines.append(f"… and {len(events) - MAX_DESCRIBED_EVENTS:,} more.")
        return "\n".join(lines)

    def tables(self) -> tuple[Table, ...]:
        """Return tables of the fills, the uses, the waits and the mistakes."""
        pipeline = self.pipeline
        results_label = pipeline.trace.provenance.of_results
        fill_rows = tuple(
            (
                fill.buffer,
                fill.number,
                format_warps(fill.warps),
                format_lines(fill.lines),
                format_lines(fill.wait_lines) if fill.wait_lines else None,
                fill.start,
                fill.landed,
            )
            for fill in pipeline.fills
        )
        use_rows = tuple(
            (use.buffer, use.fill, format_warps(use.warps), format_lines(use.lines), use.start, use.end)
            for use in pipeline.uses
        )
        mark_rows = tuple(
            (mark.line, MARK_MEANINGS[mark.kind], format_warps(mark.warps), mark.position)
            for mark in pipeline.marks
        )
        mistake_rows = tuple(
            (mistake.kind, mistake.use.line, mistake.fill.line, mistake.count)
            for mistake in pipeline.mistakes
        )
        return (
            Table(
                f"Fills, {results_label}",
                ("buffer", "fill", "warps", "started at", "waited for at", "start", "landed"),
                fill_rows,
            ),
            Table(f"Uses, {results_label}", ("buffer", "fill", "warps", "read at", "start", "end"), use_rows),
            Table(f"Waits, {results_label}", ("line", "action", "warps", "position"), mark_rows),
            Table(
                f"Mistakes, {results_label}", ("kind", "use at line", "fill at line", "reads"), mistake_rows
            ),
        )

    def draw(self) -> Box:
        pipeline = self.pipeline
        mark_kinds = {mark.kind for mark in pipeline.marks}
        asynchronous_flags = {fill.asynchronous for fill in pipeline.fills}
        legend_entries = [
            *([(IN_FLIGHT_COLOUR, "copies in flight")] if True in asynchronous_flags else []),
            *([(STORE_COLOUR, "stores")] if False in asynchronous_flags else []),
            (FILLED_COLOUR, "filled, not used yet"),
            (USE_COLOUR, "use"),
            *([(MISTAKE_COLOUR, "mistake")] if pipeline.mistakes else []),
        ]
        mark_entries = [
            (colour, MARK_MEANINGS[mark_kind])
            for mark_kind, colour in MARK_COLOURS.items()
            if mark_kind in mark_kinds
        ]
        mistake_of_kind = {mistake.kind: mistake for mistake in reversed(pipeline.mistakes)}
        mistake_texts = [
            self._text.describe_mistake(mistake) for mistake in reversed(mistake_of_kind.values())
        ]
        further_mistake_count = len(pipeline.mistakes) - len(mistake_texts)
        further_mistakes_text = (
            f"{count(further_mistake_count, 'more mistake')} at other lines; each marked bar names its own "
            "lines."
        )
        no_mistake_text = (
            "No mistake found: every use waits for its fill, and every fill for the use before it."
        )
        return column(
            *(words(text, "strong") for text in mistake_texts or [no_mistake_text]),
            words(further_mistakes_text, "note", only="page") if further_mistake_count else None,
            legend([*legend_entries, *mark_entries]),
            self._draw_plot(),
            self._make_line_table(),
        )

    def _draw_plot(self) -> Plot:
        pipeline = self.pipeline
        warp_groups = _group_warps(pipeline.marks)
        warp_rows_top_px = HEADER_PX + BUFFER_ROW_PX * len(pipeline.buffers) + 4
        chart_bottom_px = warp_rows_top_px + WARP_ROW_PX * len(warp_groups)
        position_range = (0.0, float(pipeline.length))
        row_names = [f"buffer {index}" for index in range(len(pipeline.buffers))]
        row_names += [format_warps(warps) for warps in warp_groups]
        row_centres = [HEADER_PX + BUFFER_ROW_PX * (index + 0.5) for index in range(len(pipeline.buffers))]
        row_centres += [warp_rows_top_px + WARP_ROW_PX * (index + 0.5) for index in range(len(warp_groups))]
        return plot(
            chart_bottom_px + AXIS_HEIGHT_PX,
            position_range,
            *self._draw_iterations(chart_bottom_px),
            *self._draw_barriers(chart_bottom_px),
            *self._draw_filled_intervals(),
            *self._draw_bars(self._make_bars(warp_groups, warp_rows_top_px)),
            make_y_ticks(row_centres, row_names, position_range),
            make_x_axis(
                chart_bottom_px,
                pipeline.length,
                number,
                "steps of a warp",
                zoom=True,
                integers_only=True,
            ),
            label=self.sentence(),
            left=LEFT_MARGIN_PX,
            zoom=True,
            hint="Point at a bar or a mark, or use the arrow keys, to see its warps and source lines. "
            "+ and − zoom.",
        )

    def _draw_iterations(self, chart_bottom_px: float) -> list[Item]:
        """Return a line where each iteration begins, and its name above the buffers."""
        start_positions = [float(iteration.position) for iteration in self.pipeline.iterations]
        if not start_positions:
            return []
        end_positions = [*start_positions[1:], float(self.pipeline.length)]
        iteration_labels = [
            ((start + end) / 2, HEADER_PX / 2, f"iteration {index}\n{index}", end - start)
            for index, (start, end) in enumerate(zip(start_positions, end_positions, strict=True))
        ]
        return [
            LineSegments(
                start_positions,
                [4.0] * len(start_positions),
                start_positions,
                [chart_bottom_px] * len(start_positions),
                "rule",
            ),
            make_labels(iteration_labels, colour="muted", size=10),
        ]

    def _draw_barriers(self, chart_bottom_px: float) -> list[Item]:
        barrier_positions = sorted(
            {mark.position + 0.5 for mark in self.pipeline.marks if mark.kind == "barrier"}
        )
        barrier_tops = [float(HEADER_PX)] * len(barrier_positions)
        barrier_bottoms = [chart_bottom_px] * len(barrier_positions)
        return (
            [
                LineSegments(
                    barrier_positions,
                    barrier_tops,
                    barrier_positions,
                    barrier_bottoms,
                    "muted",
                    dash=True,
                    most=MAX_BARRIERS,
                )
            ]
            if barrier_positions
            else []
        )

    def _draw_filled_intervals(self) -> list[Item]:
        """Return bars from the end of each fill to its first use, or to the next fill if it is never used."""
        pipeline = self.pipeline
        first_use_start = {(use.buffer, use.fill): use.start for use in pipeline.uses}
        interval_rows = []
        for fill in pipeline.fills:
            end = first_use_start.get((fill.buffer, fill.number), pipeline.length)
            if fill.landed is not None and fill.landed + 1 < end:
                top_px = HEADER_PX + BUFFER_ROW_PX * fill.buffer
                interval_rows.append((fill.landed + 1, end, top_px + 8, top_px + 18))
        if not interval_rows:
            return []
        x0, x1, y0, y1 = map(list, zip(*interval_rows, strict=True))
        return [Rects(x0, x1, y0, y1, FILLED_COLOUR)]

    def _make_bars(self, warp_groups: Sequence[tuple[int, ...]], warp_rows_top_px: int) -> list[_PipelineBar]:
        """Return the fills, the uses, and the marks of groups of warps, in the order of their starts."""
        pipeline = self.pipeline
        start_of_fill = {(fill.buffer, fill.number): fill.start for fill in pipeline.fills}
        bars = []
        for fill in pipeline.fills:
            # A fill that is never waited for is drawn until the next one starts.
            next_start = start_of_fill.get((fill.buffer, fill.number + 1), pipeline.length)
            end = next_start if fill.landed is None else fill.landed + 1
            top_px = HEADER_PX + BUFFER_ROW_PX * fill.buffer + 4
            colour = IN_FLIGHT_COLOUR if fill.asynchronous else STORE_COLOUR
            bar_text = f"fill {fill.number}\n{fill.number}"
            bar = _PipelineBar(fill.start, end, top_px, colour, self._text.describe_fill(fill), bar_text)
            bars.append(self._mark_mistake(bar, "overwritten", fill.buffer, fill.number))
        for use in pipeline.uses:
            top_px = HEADER_PX + BUFFER_ROW_PX * use.buffer + 24
            bar_text = f"use {use.fill}\n{use.fill}"
            bar = _PipelineBar(use.start, use.end, top_px, USE_COLOUR, self._text.describe_use(use), bar_text)
            bars.append(self._mark_mistake(bar, "early", use.buffer, use.fill))
        for group_index, warps in enumerate(warp_groups):
            for mark in pipeline.marks:
                if warps[0] in mark.warps:
                    colour = MARK_COLOURS[mark.kind]
                    top_px = warp_rows_top_px + WARP_ROW_PX * group_index + 4
                    bars.append(
                        _PipelineBar(
                            mark.position, mark.position + 1, top_px, colour, self._text.describe_mark(mark)
                        )
                    )
        return sorted(bars, key=lambda bar: (bar.start, bar.top))

    def _mark_mistake(self, bar: _PipelineBar, kind: str, buffer: int, fill_number: int) -> _PipelineBar:
        """Return the bar in the colour of mistakes, with the sentence about its mistake. A bar without a
        mistake of this kind is returned unchanged.
        """
        mistake = self._mistake_of_fill.get((kind, buffer, fill_number))
        if mistake is None:
            return bar
        return replace(
            bar, colour=MISTAKE_COLOUR, sentence=f"{bar.sentence} {self._text.describe_mistake(mistake)}"
        )

    def _draw_bars(self, bars: Sequence[_PipelineBar]) -> list[Item]:
        """Return one plot item with all bars, which the arrow keys visit in the order of time, and items with
        the texts of the bars.
        """
        colour_names = [*dict.fromkeys(bar.colour for bar in bars)]
        bar_items: list[Item] = [
            Rects(
                [bar.start for bar in bars],
                [bar.end for bar in bars],
                [bar.top for bar in bars],
                [bar.top + BAR_HEIGHT_PX for bar in bars],
                [colour_names.index(bar.colour) for bar in bars],
                colour_names,
                inset=0.5,
                **make_sentence_args([bar.sentence for bar in bars]),
            )
        ]
        for colour_name in colour_names:
            label_rows = [
                ((bar.start + bar.end) / 2, bar.top + BAR_HEIGHT_PX / 2, bar.name, bar.end - bar.start)
                for bar in bars
                if bar.name and bar.colour == colour_name
            ]
            bar_items += (
                [make_labels(label_rows, colour=choose_ink(colour_name), size=10)] if label_rows else []
            )
        return bar_items

    def _make_line_table(self) -> Box:
        """Return a table of the source lines that fill or use a buffer, wait or synchronise, sorted by line
        number.
        """
        pipeline = self.pipeline
        actions_of_line: dict[int, set[str]] = {}
        for fill in pipeline.fills:
            for line in fill.lines:
                actions_of_line.setdefault(line, set()).add("copy" if fill.asynchronous else "store")
        for use in pipeline.uses:
            for line in use.lines:
                actions_of_line.setdefault(line, set()).add("use")
        for mark in pipeline.marks:
            actions_of_line.setdefault(mark.line, set()).add(MARK_MEANINGS[mark.kind])
        line_rows = [
            (f"{line}: {self._text.find_source_line(line)}", ", ".join(sorted(actions_of_line[line])))
            for line in sorted(actions_of_line)
        ]
        return table(line_rows, headings=("source line", "action"), only="page")


def _group_warps(marks: Iterable[Mark]) -> list[tuple[int, ...]]:
    """Return groups of warps that have the same waits and barriers at the same positions."""
    marks_of_warp: dict[int, list[tuple[object, ...]]] = {}
    for mark in marks:
        for warp in mark.warps:
            marks_of_warp.setdefault(warp, []).append((mark.position, mark.kind, mark.line, mark.pending))
    warps = sorted(marks_of_warp, key=lambda warp: (marks_of_warp[warp], warp))
    warp_groups = [tuple(sorted(group)) for _, group in groupby(warps, key=lambda warp: marks_of_warp[warp])]
    return sorted(warp_groups)


def _format_byte_range(start: int, end: int, size_bytes: int) -> str:
    size_text = f"{size(size_bytes)} of " if size_bytes < end - start else ""
    return f"{size_text}bytes {start:,} to {end - 1:,} of shared memory"


def _format_index(trace: BlockTrace) -> str:
    return f"({', '.join(map(str, trace.block_index))})"


def _explain_truncation(trace: BlockTrace) -> str:
    return f"Only the first {count(trace.steps, 'step')} were recorded." if trace.truncated else ""
