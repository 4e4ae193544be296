"""The drawing of timelines as one plot: rows of bars, arrows, frames of graph launches, and a time axis."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from gpulab.views.parts import plots
from gpulab.views.parts.boxes import Plot
from gpulab.views.parts.items import Item, Labels, LineSegments, Rects, TimeAxis, Tracks
from gpulab.views.parts.palette import KERNEL_COLOURS
from gpulab.views.parts.pen import shorten, text_width
from gpulab.views.timeline.lanes import (
    DEVICE_ENGINES,
    ENGINES,
    HIDDEN_WAIT_ENGINE,
    NVTX_MARK_DETAIL,
    RowKey,
    TimelinePanel,
    get_stream_key,
)
from gpulab.words import count, listing
from virtualgpu.records import Advice, Timeline

HEADING_PX = 18
ROW_GAP_PX = 2
MIN_LEFT_PX = 80
MAX_LEFT_PX = 150
# Limits of the space for streams, next to other rows; streams that do not fit share the last row.
MAX_ROWS_PX = 276
STREAM_ROW_PX = 30
MIN_STREAM_PX = 13
SMALL_ROW_PX = 13
MAX_ARROWS = 150
SELECTION_TRAITS = {"selected": "operation", "node": "node", "panel": "panel"}


@dataclass(frozen=True, slots=True)
class RowPositions:
    """The vertical positions of the rows in all panels of a timeline chart."""

    index_of_row: dict[tuple[int, RowKey], int]
    tops: list[float]
    heights: list[float]

    def find_middle(self, panel_index: int, row_key: RowKey) -> float:
        """Return the y coordinate of the middle of a row."""
        row_index = self.index_of_row[panel_index, row_key]
        return self.tops[row_index] + self.heights[row_index] / 2


def make_panels(
    records: Sequence[Timeline], names: Sequence[str] = (), rows_px: float = MAX_ROWS_PX
) -> list[TimelinePanel]:
    """Return the bars and rows of the timelines that are drawn in one plot. If there are too many streams,
    some of them share a row.

    `names` distinguish several timelines.
    """
    max_depth = 4 if len(records) == 1 else 2
    panels = [
        TimelinePanel(record, max_depth, "".join(names[index : index + 1]))
        for index, record in enumerate(records)
    ]
    max_streams = int(_compute_streams_px(panels, rows_px) / (MIN_STREAM_PX + ROW_GAP_PX) / len(panels))
    for panel in panels:
        panel.fold_streams(max(2, max_streams))
    return panels


def _compute_streams_px(panels: Sequence[TimelinePanel], rows_px: float) -> float:
    """Return the height in pixels that remains for the rows of streams."""
    small_row_count = sum(panel.small_row_count for panel in panels)
    return float(
        rows_px - small_row_count * (SMALL_ROW_PX + ROW_GAP_PX) - HEADING_PX * len(panels) * (len(panels) > 1)
    )


def draw_chart(
    panels: Sequence[TimelinePanel],
    label: str,
    selection_traits: Mapping[str, str] = SELECTION_TRAITS,
    rows_px: float = MAX_ROWS_PX,
    advice: Sequence[Advice] = (),
    moment_trait: str = "",
    **options: Any,
) -> Plot:
    """Draw several timelines below each other in one plot. All timelines start at time zero.

    Parameters
    ----------
    panels
        The timelines, as `make_panels` returns them.
    selection_traits
        For each trait of the view, the column (``operation``, ``node``, ``panel``) by which it selects bars.
    rows_px
        Approximate height of all rows, as passed to `make_panels`.
    advice
        The pieces of advice. The trait ``advised`` selects one of them; then only the bars of its source
        lines are in colour.
    moment_trait
        The trait with the current time of a replay; later bars are dim.
    """
    stream_count = sum(len(panel.row_keys) - panel.small_row_count for panel in panels)
    stream_px = min(
        STREAM_ROW_PX,
        max(MIN_STREAM_PX, _compute_streams_px(panels, rows_px) / max(1, stream_count) - ROW_GAP_PX),
    )
    row_positions = RowPositions({}, [], [])
    heading_ys: list[float] = []
    y = 0.0
    for panel_index, panel in enumerate(panels):
        if len(panels) > 1:
            heading_ys.append(y + HEADING_PX / 2)
            y += HEADING_PX
        for row_key in panel.row_keys:
            row_positions.index_of_row[panel_index, row_key] = len(row_positions.tops)
            row_positions.tops.append(y)
            row_positions.heights.append(stream_px if row_key[0] == "stream" else SMALL_ROW_PX)
            y += row_positions.heights[-1] + ROW_GAP_PX
        row_positions.index_of_row.update(
            {(panel_index, row_key): len(row_positions.tops) - 1 for row_key in panel.folded_row_keys}
        )
        y += 4
    y = max(y, 40.0)
    tracks_item = _draw_tracks(panels, row_positions, selection_traits, advice, moment_trait)
    time_range = (
        float(tracks_item.x0.min(initial=0)),
        float(max(1, tracks_item.x1.max(initial=0), *(panel.record.duration_ns for panel in panels))),
    )
    longest_name_px = max((text_width(name, 11) for name in tracks_item.row_names), default=0.0)
    left_px = round(min(MAX_LEFT_PX, max(MIN_LEFT_PX, longest_name_px + 12)))
    names = [shorten(name, left_px - 8, 11) for name in tracks_item.row_names]
    row_centres = [
        row_top + height / 2
        for row_top, height in zip(row_positions.tops, row_positions.heights, strict=True)
    ]
    return plots.plot(
        y + 36,
        time_range,
        tracks_item,
        _draw_frames(panels, row_positions),
        *_draw_arrows(panels, row_positions),
        *_draw_marks(panels, row_positions),
        plots.make_y_ticks(row_centres, names, time_range),
        Labels(
            [time_range[0]] * len(heading_ys),
            heading_ys,
            [panel.heading for panel in panels if heading_ys],
            weight="bold",
            dx=-left_px,
            pin=True,
        ),
        TimeAxis(y),
        label=label,
        left=left_px,
        zoom=True,
        name="tracks",
        most_zoom=max(1.0, (time_range[1] - time_range[0]) / 20),
        **options,
    )


def _draw_tracks(
    panels: Sequence[TimelinePanel],
    row_positions: RowPositions,
    selection_traits: Mapping[str, str],
    advice: Sequence[Advice],
    moment_trait: str,
) -> Tracks:
    columns_by_name: dict[str, list[Any]] = {}
    texts_by_column: dict[str, Any] = {"names": [], "details": [], "lines": []}
    for panel_index, panel in enumerate(panels):
        panel_columns = {
            "x0": panel.start - panel.record.start_ns,
            "x1": panel.end - panel.record.start_ns,
            "row": panel.row + row_positions.index_of_row[panel_index, panel.row_keys[0]]
            if panel.row_keys
            else panel.row,
            "lane": panel.lane,
            "colour": panel.engine,
            "name": panel.name + len(texts_by_column["names"]),
            "detail": panel.detail + len(texts_by_column["details"]),
            "line": panel.line + len(texts_by_column["lines"]),
            "size": panel.size,
            "operation": panel.operation,
            "node": panel.node,
            "panel": np.full(panel.row.size, panel_index),
        }
        for name, column in panel_columns.items():
            columns_by_name.setdefault(name, []).append(column)
        for name, texts_of_column in texts_by_column.items():
            texts_of_column += getattr(panel, name)
    start_order = np.argsort(np.concatenate(columns_by_name["x0"]), kind="stable")
    merged_columns: dict[str, Any] = {
        name: _narrow_integers(np.concatenate(panel_arrays)[start_order])
        for name, panel_arrays in columns_by_name.items()
    }
    # A kernel's name has the same colour in every panel.
    colour_of_kernel = choose_kernel_colours(name for panel in panels for name in panel.kernels)
    colour_of_name = np.array([colour_of_kernel.get(name, 0) for name in texts_by_column["names"]], np.uint8)
    is_kernel = merged_columns["colour"] == 0
    merged_columns["colour"][is_kernel] = colour_of_name[merged_columns["name"][is_kernel]]
    device_names = {*np.unique(merged_columns["name"][merged_columns["colour"] < DEVICE_ENGINES]).tolist()}
    short_names = [
        _shorten_name(name) if index in device_names else name
        for index, name in enumerate(texts_by_column["names"])
    ]
    return Tracks(
        colours=[colour for colour, _ in ENGINES.values()],
        tops=row_positions.tops,
        heights=row_positions.heights,
        lanes=[lane_count for panel in panels for lane_count in panel.lane_counts],
        row_names=[panel.row_name(row_key) for panel in panels for row_key in panel.row_keys],
        **{name: merged_columns.pop(name) for name in ("x0", "x1", "row", "lane", "colour")},
        columns={
            **merged_columns,
            **texts_by_column,
            "shorts": short_names,
            "picks": dict(selection_traits),
            "moment": moment_trait,
            "measured": _make_measured_names(panels),
            "origin": listing([*dict.fromkeys(panel.record.provenance.source for panel in panels)]),
            "advised": [_find_advised_lines(panels, advice_piece) for advice_piece in advice],
        },
        say=[
            ["name", "names"],
            ": ",
            ["x1", "time", "x0"],
            " from ",
            ["x0", "time"],
            ["size", "moved", "x1", "x0"],
            ["detail", "details"],
            ["line", "lines"],
            ".",
        ],
    )


def _make_measured_names(panels: Sequence[TimelinePanel]) -> list[str]:
    """Return the names of the rows for the measurement of a selected time span. The names of NVTX rows are
    empty, because these rows are not measured.
    """
    name_prefixes = [
        f"{panel.timeline_name or f'timeline {panel_number}'}, " if len(panels) > 1 else ""
        for panel_number, panel in enumerate(panels, 1)
    ]
    return [
        "" if row_key[0] == "range" else f"{prefix}{panel.row_name(row_key)}"
        for prefix, panel in zip(name_prefixes, panels, strict=True)
        for row_key in panel.row_keys
    ]


def _find_advised_lines(panels: Sequence[TimelinePanel], advice: Advice) -> list[int]:
    """Return the indices of the source lines that a piece of advice names."""
    source_lines = [source_line for panel in panels for source_line in panel.sources]
    return [index for index, source_line in enumerate(source_lines) if source_line in advice.sources]


def _narrow_integers(column: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """Return integers in the smallest type that can store all of them."""
    value_range = (int(column.min()), int(column.max())) if column.size else (0, 0)
    fits_int32 = value_range[0] >= -(1 << 31) and value_range[1] < 1 << 31
    return column.astype(np.result_type(*map(np.min_scalar_type, value_range))) if fits_int32 else column


# Names of CuPy's own kernels, such as cupy_multiply__float32_float32_float32.
CUPY_KERNEL_PATTERN = re.compile(r"cupy_(\w+?)(?:__\w+)?")
_COPY_PATTERN = re.compile(r"(?i)\W*(?:cuda )?memcpy (\w)to(\w)")
_ARGUMENTS_PATTERN = re.compile(r"<[^<>]*>|\([^()]*\)")
_MAX_LEGEND_NAME_LENGTH = 56  # of a kernel's name; those of libraries have more than a hundred


def _shorten_name(name: str) -> str:
    """Return the text on a bar: ``H2D`` for a copy, the name without arguments for a C++ function."""
    if match := CUPY_KERNEL_PATTERN.fullmatch(name):
        return match[1]
    if match := _COPY_PATTERN.match(name):
        return f"{match[1]}2{match[2]}".upper()
    bare_name = name
    while (shortened := _ARGUMENTS_PATTERN.sub("", bare_name)) != bare_name:
        bare_name = shortened
    return (
        bare_name.strip().split(" ")[-1].split("::")[-1] if "::" in bare_name or bare_name != name else name
    )


def _draw_frames(panels: Sequence[TimelinePanel], row_positions: RowPositions) -> Item | None:
    """Return the outlines around graph launches, or None if there are none."""
    frame_spans = [
        (
            start_ns - panel.record.start_ns,
            end_ns - panel.record.start_ns,
            row_positions.index_of_row[panel_index, row_key],
        )
        for panel_index, panel in enumerate(panels)
        for (row_key, *_), (start_ns, end_ns) in panel.graph_launches.items()
    ]
    if not frame_spans:
        return None
    start_ns, end_ns, row = np.array(frame_spans, np.int64).T
    row_top = np.array(row_positions.tops)[row]
    height = np.array(row_positions.heights)[row]
    return Rects(start_ns, end_ns, row_top - 1, row_top + height + 1, "fg", outline=True)


def _draw_arrows(panels: Sequence[TimelinePanel], row_positions: RowPositions) -> Iterator[Item]:
    """Yield arrows from the end of an operation to the start of the operation that waited for it."""
    for arrow_kind, colour in ((0, "fg"), (1, "tail-text"), (2, "error")):
        arrow_lines = []
        for panel_index, panel in enumerate(panels):
            activities = panel.record.activities
            origin_ns = panel.record.start_ns
            for start_index, end_index in (*panel.arrows, panel.faults)[arrow_kind]:
                source_operation = activities[start_index]
                target_operation = activities[end_index]
                source_y, target_y = (
                    row_positions.find_middle(panel_index, ("stream", *get_stream_key(operation)))
                    for operation in (source_operation, target_operation)
                )
                arrow_lines.append(
                    (
                        source_operation.end_ns - origin_ns,
                        source_y,
                        target_operation.start_ns - origin_ns,
                        target_y,
                    )
                )
        if arrow_lines:
            x0, y0, x1, y1 = np.array(arrow_lines, np.float64).T
            arrow_width = 2.5 if arrow_kind == 2 else 1.5
            yield LineSegments(
                x0, y0, x1, y1, colour, width=arrow_width, arrow=True, dash=arrow_kind == 1, most=MAX_ARROWS
            )


def _draw_marks(panels: Sequence[TimelinePanel], row_positions: RowPositions) -> Iterator[Item]:
    """Yield symbols at NVTX marks and hidden waits, which may be too short to see."""
    range_marks: list[tuple[int, float, str]] = []
    hidden_waits: list[tuple[int, float, str]] = []
    for panel_index, panel in enumerate(panels):
        start = panel.start - panel.record.start_ns
        is_mark = np.array([detail == NVTX_MARK_DETAIL for detail in panel.details], bool)
        for symbols, is_selected, mark_symbol in (
            (range_marks, is_mark[panel.detail], "◆ "),
            (hidden_waits, panel.engine == HIDDEN_WAIT_ENGINE, "!"),
        ):
            for bar_index in np.flatnonzero(is_selected).tolist():
                y = row_positions.find_middle(panel_index, panel.row_keys[panel.row[bar_index]])
                mark_name = panel.names[panel.name[bar_index]] if symbols is range_marks else ""
                symbols.append((int(start[bar_index]), y, mark_symbol + mark_name))
    if range_marks:
        yield plots.make_labels(
            [(*symbol_position, 0) for symbol_position in range_marks],
            room=None,
            anchor="start",
            dx=-4,
            spread=True,
        )
    if hidden_waits:
        yield plots.make_labels(
            [(*symbol_position, 0) for symbol_position in hidden_waits],
            room=None,
            anchor="end",
            dx=-2,
            weight="bold",
            colour="error",
            spread=True,
        )


def find_tracks(plot: Plot) -> Tracks:
    """Return the plot item that draws the bars of a timeline with `draw_chart`."""
    return next(item for item in plot.items if isinstance(item, Tracks))


def choose_kernel_colours(names: Iterable[str]) -> dict[str, int]:
    """Return a colour index for each kernel name. If there are many names, the last ones share a colour."""
    return {name: min(index, len(KERNEL_COLOURS) - 1) for index, name in enumerate(dict.fromkeys(names))}


def make_kernel_legend(names: Sequence[str]) -> list[tuple[str, str]]:
    """Return the legend entries for the colours of kernels in a timeline chart."""
    shown_names = names if len(names) <= len(KERNEL_COLOURS) else names[: len(KERNEL_COLOURS) - 1]
    short_names = [_shorten_name(name) for name in shown_names]
    kernel_labels = [
        name if len(name) <= _MAX_LEGEND_NAME_LENGTH else f"{name[: _MAX_LEGEND_NAME_LENGTH - 1]}…"
        for name in short_names
    ]
    entries = [
        (colour, f"kernel {label}") for colour, label in zip(KERNEL_COLOURS, kernel_labels, strict=False)
    ]
    if further_kernel_count := len(names) - len(shown_names):
        entries.append((KERNEL_COLOURS[-1], f"{further_kernel_count} further kernels"))
    return entries


def make_legend_entries(plot: Plot) -> list[tuple[str, str]]:
    """Return the legend entries for all colours that occur in a timeline with `draw_chart`."""
    tracks = find_tracks(plot)
    is_kernel = tracks.colour < len(KERNEL_COLOURS)
    colour_indices = tracks.colour[is_kernel]
    name_indices = tracks.columns["name"][is_kernel]
    kernel_names = tracks.columns["names"]
    colour_name_pairs = sorted({*zip(colour_indices.tolist(), name_indices.tolist(), strict=True)})
    ordered_names = dict.fromkeys(kernel_names[name_index] for _, name_index in colour_name_pairs)
    engine_entries = [*ENGINES.values()]
    other_engines = np.unique(tracks.colour[~is_kernel]).tolist()
    return [*make_kernel_legend([*ordered_names]), *(engine_entries[index] for index in other_engines)]


def describe_arrows(panels: Sequence[TimelinePanel]) -> str:
    """Return a sentence that explains the arrows and frames in a timeline chart."""
    wait_count, implicit_order_count = (
        sum(len(panel.arrows[arrow_kind]) for panel in panels) for arrow_kind in (0, 1)
    )
    fault_count = sum(len(panel.faults) for panel in panels)
    launch_count = sum(len({launch_key[1:] for launch_key in panel.graph_launches}) for panel in panels)
    phrases = [
        *([f"Arrows: {count(wait_count, 'wait')} for an event"] if wait_count else []),
        *(
            [f"dashed arrows: {count(implicit_order_count, 'order')} between streams without an event"]
            if implicit_order_count
            else []
        ),
        *(
            [f"red arrows: {count(fault_count, 'read')} of data that was not yet written"]
            if fault_count
            else []
        ),
        *([f"frames: {count(launch_count, 'graph launch', 'graph launches')}"] if launch_count else []),
    ]
    if wait_count + implicit_order_count > MAX_ARROWS:
        phrases.append(f"arrows are drawn only if at most {MAX_ARROWS} are visible")
    phrases_text = "; ".join(phrases)
    return f"{phrases_text[0].upper()}{phrases_text[1:]}." if phrases_text else ""
