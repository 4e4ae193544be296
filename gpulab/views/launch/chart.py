"""The launch chart: the SM and the time of each block of a launch."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, Self

import numpy as np
import numpy.typing as npt
import traitlets

from gpulab._deprecated import make_old_method
from gpulab.views._steered import Steered
from gpulab.views._waves import Waves, describe_limiters, describe_occupancy, make_limit_bars
from gpulab.views.parts import plots
from gpulab.views.parts.axes import Axes, Axis
from gpulab.views.parts.boxes import Box, bars, column, fold, legend, numbers, row, slider, table, words
from gpulab.views.parts.items import Item, Labels, LineSegments, Polyline, Rects, Spans
from gpulab.words import count, duration, noun, number, percent, shape, size, time_unit
from virtualgpu.records import LaunchTrace

BLOCK_SIZES = range(32, 1025, 32)
LEFT_PX = 54
# Height of the rows of a few busy SMs. Many rows share the available height; up to 16 rows have names.
ROW_PX = 26
MAX_ROWS_PX = 170
MAX_NARROW_ROWS_PX = 120
MIN_NAMED_ROW_PX = 13.5
IDLE_LINE_PX = 18
GAP_PX = 10
OCCUPANCY_PX = 46
SHADES = ("accent", "accent-2", "tail")
OCCUPANCY_MEANING = (
    "Occupancy is the fraction of an SM's warp slots in use. Theoretical: the slots that this launch can "
    "fill. Achieved: the slots that were filled on average, while an SM was busy. The more block slots of an "
    "SM are in use, the stronger the colour of its row."
)


class LaunchChart(Steered):
    """A view of a launch that shows the SM and the time of each block, the waves, and the limits of
    occupancy.

    Parameters
    ----------
    trace
        The launch.
    launch_at_block_size
        A function that returns the launch for another number of threads per block (32 to 1024). If it is
        passed, the view has a slider. If it fails, the view shows the error and keeps its last picture.
    beside
        A launch to show for comparison, such as a recording from another GPU.
    """

    block_threads = traitlets.Int(0).tag(sync=True, echo_update=False)

    def __init__(
        self,
        trace: LaunchTrace,
        launch_at_block_size: Callable[[int], LaunchTrace] | None = None,
        beside: LaunchTrace | None = None,
    ) -> None:
        self.waves = Waves(trace)
        self._other_waves = Waves(beside) if beside is not None else None
        self._launch_at_block_size = launch_at_block_size
        block_sizes = sorted({*BLOCK_SIZES, math.prod(trace.block)})
        warp_texts = [f"{count(size, 'thread')} = {count(-(-size // 32), 'warp')}" for size in block_sizes]
        size_slider = slider("Threads per block", "block_threads", block_sizes, warp_texts)
        super().__init__(
            title=f"Launch of {trace.kernel_name}: blocks on SMs over time",
            source=trace.provenance.source,
            controls=[size_slider.wire()] if launch_at_block_size else [],
            block_threads=math.prod(trace.block),
            pictured={"block_threads": math.prod(trace.block)},
        )
        self._show_trace(trace)
        self.observe(self._on_block_threads, "block_threads")

    @property
    def trace(self) -> LaunchTrace:
        """The launch trace that the view displays."""
        return self.waves.trace

    @property
    def other(self) -> LaunchTrace | None:
        """The launch trace that is shown for comparison, or None."""
        return self._other_waves.trace if self._other_waves is not None else None

    @property
    def record(self) -> LaunchTrace | tuple[LaunchTrace, LaunchTrace]:
        """The displayed launch trace, or a tuple with both traces if two launches are compared."""
        return self.trace if self.other is None else (self.trace, self.other)

    beside = make_old_method("beside", "compare")

    def compare(self, other: LaunchTrace | Callable[[], LaunchTrace | None]) -> Self:
        """Show another launch next to this one. The other launch is given as a record, or as a function that
        returns a record.

        The view shows an error of the function.
        """
        with self._lock, self._show_errors("The other launch"):
            compared_trace = other() if callable(other) else other
            if compared_trace is not None:
                self._other_waves = Waves(compared_trace)
                self._show_trace(self.trace)
        return self

    def close(self) -> None:
        """Close the widget, and release the arrays that its slider uses to repeat the launch."""
        super().close()
        self._launch_at_block_size = None

    def _on_block_threads(self, change: Any) -> None:
        with self._lock, self.hold_sync():
            try:
                with self._show_errors(f"The launch with {count(change['new'], 'thread')} per block"):
                    if self._launch_at_block_size is None:
                        raise TypeError("this view was made without launch_at_block_size")
                    self._show_trace(self._launch_at_block_size(int(change["new"])))
            finally:
                displayed_text = count(math.prod(self.trace.block), "thread")
                error_text = self.error.partition(" failed. ")[2].partition(":")[0]
                self.failed = f"failed: {error_text}; still showing {displayed_text}" if error_text else ""
                self.confirm_picture({"block_threads": math.prod(self.trace.block)})

    def _show_trace(self, trace: LaunchTrace) -> None:
        self.waves = Waves(trace)
        self.redraw(
            caption=_make_caption(trace, self.other),
            status=f"{self.waves.describe_waves()}. {_describe_occupancy(self.waves)}",
        )

    def sentence(self) -> str:
        trace = self.trace
        waves = self.waves
        launch_text = (
            f"Launch of kernel {trace.kernel_name}: {count(waves.blocks, 'block')} of "
            f"{count(math.prod(trace.block), 'thread')} on {count(trace.sm_count, 'SM')} in "
            f"{waves.describe_waves()}, occupancy {percent(trace.occupancy.fraction)} "
            f"{describe_limiters(trace.occupancy)}; {trace.provenance.label}"
        )
        if self.other is not None:
            launch_text += f", compared with a launch {self.other.provenance.label}"
        return f"{launch_text}."

    def describe(self) -> str:
        lines = [self.sentence(), OCCUPANCY_MEANING]
        for waves in filter(None, (self.waves, self._other_waves)):
            trace = waves.trace
            occupancy = waves.trace.occupancy
            limits_text = ", ".join(
                f"{resource} {blocks}" for resource, blocks in occupancy.blocks_by_limit.items()
            )
            lines.append(
                f"{trace.provenance.label[0].upper()}{trace.provenance.label[1:]}: grid {shape(trace.grid)}, "
                f"block {shape(trace.block)}, {count(trace.blocks_per_wave, 'block')} at once, span "
                f"{duration(trace.span_ns)}, {number(waves.idle_sms)} of {count(trace.sm_count, 'SM')} idle."
            )
            lines.append(
                f"{_describe_occupancy(waves)}, {describe_occupancy(occupancy)} at most. "
                f"Blocks per SM by limit: {limits_text}."
            )
            if trace.note:
                lines.append(trace.note)
        return "\n".join(lines)

    def draw(self) -> Box:
        launches = [self.waves] if self._other_waves is None else [self.waves, self._other_waves]
        span_ns = max(1, *(waves.trace.span_ns for waves in launches))
        if self._other_waves is None:
            return column(_make_legend(launches), _draw_panel(self.waves, span_ns))
        is_steered = self._launch_at_block_size is not None
        return column(
            _make_legend(launches), *_compare_launches(self.waves, self._other_waves, span_ns, is_steered)
        )


def _make_legend(launches: list[Waves]) -> Box:
    """Return a legend of the colours that occur in the chart."""
    has_many_waves = any(waves.full_waves > 1 for waves in launches)
    has_tail = any(waves.in_tail.any() for waves in launches)
    sampling_step = max(waves.block_sample.trace.sampled for waves in launches)
    return legend(
        [
            ("accent", "odd waves" if has_many_waves else "first wave"),
            *([("accent-2", "even waves")] if has_many_waves else []),
            *([("tail", "tail: last, partly filled wave")] if has_tail else []),
            *(
                [("other", f"busy (1 of {number(sampling_step)} blocks is drawn, on every SM)")]
                if sampling_step > 1
                else []
            ),
            ("grid", "idle"),
        ]
    )


def _describe_occupancy(waves: Waves) -> str:
    theoretical_text = percent(waves.trace.occupancy.fraction)
    achieved_text = f"{percent(waves.achieved_occupancy)} ({waves.achieved_occupancy_note})"
    return f"Theoretical occupancy {theoretical_text}, achieved {achieved_text}"


def _draw_panel(waves: Waves, span_ns: int) -> Box:
    """Return the picture, numbers and limits of one launch; in a narrow view the numbers are above."""
    waves_picture = column(
        words(_make_heading(waves), name="waves"),
        _draw_chart(waves, span_ns, _compute_rows_px(waves, MAX_ROWS_PX)),
    )
    numbers_box = column(numbers(waves.make_number_rows(), least=168), _draw_limits(waves), gap=8)
    return row(waves_picture, numbers_box, weights=[2.6, 1], least=[440, 200], above=True)


def _compare_launches(left_waves: Waves, right_waves: Waves, span_ns: int, is_steered: bool) -> list[Box]:
    """Return the pictures of two launches on the same time axis, and their numbers in a table."""
    # The date and the driver are in the caption, so that the two headings fit on one line.
    launches = (left_waves, right_waves)
    origins = [waves.trace.provenance for waves in launches]
    headings = [f"{origin.source.capitalize()} on {origin.device}" for origin in origins]
    note_boxes = [None, words(_make_fixed_note(right_waves), "note", only="page") if is_steered else None]
    heading_boxes = [
        column(words(heading, "strong"), words(_make_heading(waves), name="waves"), note_box, gap=2)
        for heading, waves, note_box in zip(headings, launches, note_boxes, strict=True)
    ]
    rows_px = max(_compute_rows_px(waves, MAX_NARROW_ROWS_PX) for waves in launches)
    idle_px = IDLE_LINE_PX if left_waves.idle_sms or right_waves.idle_sms else 0
    number_pairs = zip(left_waves.make_number_rows(), right_waves.make_number_rows(), strict=True)
    number_rows = [
        [term, f"{left_value} ({left_detail})", f"{right_value} ({right_detail})"]
        for (term, left_value, left_detail), (_, right_value, right_detail) in number_pairs
    ]
    # Texts of different lengths are in a row of their own, so that the plots below them are aligned.
    return [
        row(*heading_boxes, least=[240, 240]),
        row(*(_draw_chart(waves, span_ns, rows_px, idle_px) for waves in launches), least=[240, 240]),
        table(number_rows, ["", *headings]),
        row(_draw_limits(left_waves), _draw_limits(right_waves), least=[240, 240]),
    ]


def _make_fixed_note(waves: Waves) -> str:
    """Return a sentence about the launch for comparison, which the slider does not change."""
    return f"{count(math.prod(waves.trace.block), 'thread')}; the slider has no effect."


def _make_heading(waves: Waves) -> str:
    text = f"{count(math.prod(waves.trace.block), 'thread')} per block: {waves.describe_waves()}"
    max_running_blocks = float(waves.running()[1].max(initial=0))
    if waves.full_waves and max_running_blocks < 0.6 * waves.trace.blocks_per_wave:
        most_text = number(round(max_running_blocks))
        text += f". At most {most_text} ran at once, because blocks ended before others started"
    return text


def _draw_limits(waves: Waves) -> Box:
    occupancy = waves.trace.occupancy
    registers_text = count(occupancy.registers_per_thread, "register")
    resources_text = f"{registers_text} per thread and {size(occupancy.shared_bytes)} of shared memory"
    contents = column(
        words(f"Blocks per SM that each limit alone would allow, with {resources_text} per block:", "note"),
        bars(make_limit_bars(occupancy), label=0.44),
        gap=3,
    )
    return fold(f"Theoretical occupancy {describe_limiters(occupancy)}", contents, opened=False)


def _find_shown_sms(waves: Waves) -> npt.NDArray[Any]:
    """Return the SMs that get a row: all SMs, or only the busy ones if some are idle."""
    if waves.idle_sms:
        return waves.sms
    return np.arange(max(waves.trace.sm_count, int(waves.sms.max(initial=0)) + 1))


def _compute_rows_px(waves: Waves, max_height_px: float) -> float:
    """Return the height in pixels of the rows of all SMs; rows are higher if there are few SMs."""
    rows = max(1, _find_shown_sms(waves).size)
    return float(min(rows * ROW_PX, max(max_height_px, rows * MIN_NAMED_ROW_PX if rows <= 16 else 0)))


def _draw_chart(waves: Waves, span_ns: int, height: float, idle_px: float | None = None) -> Box:
    """Draw the blocks of a launch, with the number of warps per SM below; idle SMs share one line."""
    trace = waves.trace
    time_range = (0.0, float(span_ns))
    shown_sms = _find_shown_sms(waves)
    if idle_px is None:
        idle_px = IDLE_LINE_PX if waves.idle_sms else 0
    warps_top = height + idle_px + GAP_PX
    warps_bottom = warps_top + OCCUPANCY_PX
    time_unit_name, ns_per_unit = time_unit(span_ns)
    axis_title = "time since the first block started"
    warps_text = "warps per SM busy at that moment, dashed: as many as fit"
    axis_text = (
        f"{axis_title} ({time_unit_name}); {warps_text}\n{axis_title} ({time_unit_name})\n({time_unit_name})"
    )
    chart_label = (
        f"Blocks of {count(math.prod(trace.block), 'thread')} on {count(trace.sm_count, 'SM')} over time"
    )
    return plots.plot(
        warps_bottom + 34,
        time_range,
        _draw_blocks(waves, shown_sms, height),
        _draw_sm_ticks(shown_sms, height, time_range),
        *(_draw_idle_line(waves, height + 3, time_range) if waves.idle_sms else ()),
        *_draw_occupancy(waves, warps_top, time_range),
        plots.make_y_name(
            "SM" if height < 80 else "one row per SM", height / 2, time_range, LEFT_PX, of_rows=True
        ),
        plots.make_x_axis(warps_bottom, span_ns, number, axis_text, scale=ns_per_unit, zoom=True),
        label=f"{chart_label}: {waves.describe_waves()}. Arrow keys go from block to block, Enter shows "
        "an SM alone; + and - zoom.",
        left=LEFT_PX,
        hint="Click a row or press Enter to see one SM alone.",
        zoom=True,
    )


def _draw_blocks(waves: Waves, sms: npt.NDArray[Any], height: float) -> Item:
    busy_spans = None
    if waves.block_sample is not waves:
        sm, start_ns, ends_ns = waves.trace.busy(waves.trace.span_ns / 2000)
        busy_spans = {
            "row": np.searchsorted(sms, sm).astype(np.int32),
            "x0": start_ns,
            "x1": ends_ns,
            "colour": "other",
        }
    waves = waves.block_sample
    trace = waves.trace
    block_order = waves.order
    # Four bytes represent times up to 2.1 s exactly, and halve the data that a slider sends.
    time_type = np.int32 if max(trace.span_ns, waves.blocks) < 1 << 31 else np.float64
    starts_ns = trace.start_ns[block_order]
    ends_ns = trace.end_ns[block_order]
    # Slots that a sample or a small launch does not use would only make its rows look empty.
    is_partial = trace.sampled > 1 or sms.size < trace.sm_count
    slots_per_sm = 1 if is_partial else trace.occupancy.blocks_per_sm
    block_index = trace.block_index[block_order]
    x, y, _ = trace.grid
    axes: dict[str, Any] = {"x": block_index % x, "y": block_index // x % y, "z": block_index // (x * y)}
    used_axes = [
        axis_name
        for axis_name, grid_length in zip(axes, trace.grid, strict=True)
        if axis_name == "x" or grid_length > 1
    ]
    if len(used_axes) > 1:
        used_axes = [*axes][: 3 if "z" in used_axes else 2]
    index_pieces = [text_piece for axis_name in used_axes for text_piece in (", ", [f"block_{axis_name}"])][
        1:
    ]
    index_pieces = index_pieces if len(used_axes) == 1 else ["(", *index_pieces, ")"]
    return Spans(
        starts_ns.astype(time_type),
        ends_ns.astype(time_type),
        np.searchsorted(sms, trace.sm_id[block_order]).astype(np.uint16),
        np.where(waves.in_tail, 2, waves.wave % 2).astype(np.uint8),
        SHADES,
        rows=max(1, sms.size),
        top=0,
        height=height,
        lane=waves.slot.astype(np.uint16),
        lanes=max(1, slots_per_sm, int(waves.slot.max(initial=0)) + 1),
        busy=busy_spans,
        row_names=[f"SM {sm}" for sm in sms.tolist()],
        written=index_pieces,
        columns={f"block_{axis_name}": axes[axis_name].astype(time_type) for axis_name in used_axes}
        | {"wave": waves.wave + np.uint16(1)},
        say=[
            "Block ",
            *index_pieces,
            " on ",
            ["row", "row_names"],
            ": from ",
            ["x0", "time"],
            " to ",
            ["x1", "time"],
            " (",
            ["x1", "time", "x0"],
            "), wave ",
            ["wave"],
            ["colour", ["", "", ", the tail"]],
            ".",
        ],
    )


def _draw_sm_ticks(sms: npt.NDArray[Any], height: float, domain: tuple[float, float]) -> Item:
    """Return the ticks of the SM axis: every SM number if there are few, otherwise round numbers."""
    row_height = height / max(1, sms.size)
    labelled_rows = (
        [*range(sms.size)]
        if row_height >= 13
        else [int(row_index) for row_index in plots.nice_ticks(sms.size, 8) if row_index < sms.size]
    )
    sm_labels = [str(sms[row_index]) for row_index in labelled_rows]
    return plots.make_y_ticks(
        [max(6.0, (row_index + 0.5) * row_height) for row_index in labelled_rows],
        sm_labels,
        domain,
        of_rows=True,
    )


def _draw_idle_line(waves: Waves, top_px: float, domain: tuple[float, float]) -> list[Item]:
    text = f"{count(waves.idle_sms, 'SM')} idle: {noun(waves.idle_sms, 'it', 'they')} got no block"
    return [
        Rects([domain[0]], [domain[1]], [top_px], [top_px + IDLE_LINE_PX - 4], "grid"),
        Labels([domain[0]], [top_px + (IDLE_LINE_PX - 4) / 2], [text], dx=6, pin=True),
    ]


def _draw_occupancy(waves: Waves, top_px: float, domain: tuple[float, float]) -> list[Item]:
    """Return a plot of warps per busy SM over time, with a line at the maximum and a mark at the tail."""
    trace = waves.trace
    occupancy = waves.trace.occupancy
    times_ns, running_warps = waves.count_running_on_busy()
    warp_counts = running_warps * trace.warps_per_block
    axis_top_warps = max(1.0, occupancy.warps_per_sm, float(warp_counts.max(initial=0)))
    warps_axis = Axis(0, axis_top_warps, {occupancy.warps_per_sm: number(occupancy.warps_per_sm), 0: "0"})
    axes = Axes(Axis(*domain), warps_axis, OCCUPANCY_PX - 8, top_px + 8)
    line_y = float(axes.y(occupancy.warps_per_sm))
    axis_bottom = axes.bottom
    plot_items = [
        Polyline(times_ns, axes.y(warp_counts), "accent", fill="other", base=axis_bottom, step=True, width=0),
        LineSegments([domain[0]], [line_y], [domain[1]], [line_y], dash=True),
        *axes.draw_sides(LEFT_PX),
        plots.make_y_name("warps", (top_px + axis_bottom) / 2, domain, LEFT_PX),
    ]
    if waves.in_tail.any():
        tail_start_ns = float(waves.trace.start_ns[waves.order][waves.in_tail.argmax()])
        is_tail_late = tail_start_ns > 0.9 * domain[1]
        tail_text, text_anchor, text_offset_px = (
            ("◂ tail", "end", -4) if is_tail_late else ("tail ▸", "start", 4)
        )
        plot_items.append(
            LineSegments([tail_start_ns], [top_px - GAP_PX], [tail_start_ns], [axis_bottom], "fg")
        )
        plot_items.append(
            Labels([tail_start_ns], [axis_bottom - 9], [tail_text], anchor=text_anchor, dx=text_offset_px)
        )
    return plot_items


def _make_caption(trace: LaunchTrace, other: LaunchTrace | None) -> str:
    origin = f"Placement and times {trace.provenance.label}"
    step_text = f"; timer step {trace.timer_step_ns} ns" if trace.timer_step_ns > 1 else ""
    other_text = f"; compared with a launch {other.provenance.label}" if other is not None else ""
    no_slider_note = ""
    if math.prod(trace.grid) != trace.grid[0] or math.prod(trace.block) != trace.block[0]:
        no_slider_note = (
            " There is no slider for the block size, because a launch of several dimensions can be divided "
            "in several ways."
        )
    return f"{origin}{step_text}{other_text}. {trace.note} {OCCUPANCY_MEANING}{no_slider_note}".replace(
        "  ", " "
    )
