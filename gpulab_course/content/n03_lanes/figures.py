"""Figures of notebook 03: the bits of a mask, the steps of a sum by shuffles, and a compaction."""

from __future__ import annotations

from typing import Any

from matplotlib.axes import Axes

from gpulab.views.parts.palette import find_hex
from gpulab_course.teach.drawing import draw_arrow, draw_box, draw_text, make_empty_axes
from gpulab_course.teach.picture import Picture

_LANE_COUNT = 32
_DIGIT_BITS = 4


def _has_bit(mask: int, lane: int) -> bool:
    return bool(mask >> lane & 1)


def _draw_cell(axes: Axes, x: float, y: float, text: str, colour: str | None, height: float = 1) -> None:
    """Draw a cell of width 1 with text; without a colour, the cell is shown as unused."""
    text_colour = None if colour else "muted"
    draw_box(
        axes,
        x,
        y,
        1,
        height,
        colour or "grid",
        text,
        edge_colour="bg",
        text_colour=text_colour,
        linewidth=1.5,
    )


def mask_strip(mask: int) -> Picture:
    """Draw the 32 bits of a lane mask, with bit 0 at the right, above its hexadecimal digits."""
    figure, axes = make_empty_axes(1.25, (0, _LANE_COUNT + 3.4), (0, 4.1))
    for lane in range(_LANE_COUNT):
        x = 3.4 + _LANE_COUNT - 1 - lane
        _draw_cell(
            axes, x, 1, str(int(_has_bit(mask, lane))), "accent" if _has_bit(mask, lane) else None, 1.3
        )
        draw_text(axes, x + 0.5, 0.5, str(lane), "muted", ha="center", fontsize=9)
    for digit in range(_LANE_COUNT // _DIGIT_BITS):
        x = 3.4 + _LANE_COUNT - _DIGIT_BITS * (digit + 1)
        axes.plot(
            [x + 0.2, x + 0.2, x + 3.8, x + 3.8],
            [2.5, 2.8, 2.8, 2.5],
            color=find_hex("muted"),
            linewidth=1,
        )
        text = f"{mask >> _DIGIT_BITS * digit & 15:x}"
        draw_text(axes, x + 2, 3.45, text, ha="center", fontsize=12)
    for y, text in ((0.5, "lane"), (1.65, "bit"), (3.45, "hex digit")):
        draw_text(axes, 0, y, text)
    active_lanes = [lane for lane in range(_LANE_COUNT) if _has_bit(mask, lane)]
    return Picture.of(
        figure,
        f"The 32 bits of the mask {mask:#010x}, with lane 0 at the right; each hexadecimal digit has four "
        f"bits. The bits of the lanes {', '.join(map(str, active_lanes))} are 1.",
    )


def shuffle_sum(values: Any) -> Picture:
    """Draw the values of some lanes before and after each step of a sum with `__shfl_down_sync`.

    Parameters
    ----------
    values
        The values, with a row before the first step and one after each step, and a column for each lane.
    """
    rows, lanes = values.shape
    left_x = 2.4
    figure, axes = make_empty_axes(
        0.42 * (1.9 * rows + 0.2), (0, left_x + lanes), (0, 0.8 + 1.9 * (rows - 1) + 0.9)
    )
    for lane in range(lanes):
        draw_text(axes, left_x + lane + 0.5, 0.4, f"lane {lane}", ha="center")
    adding_lane_count = lanes
    for row in range(rows):
        top_y = 0.8 + 1.9 * row
        if row:
            adding_lane_count //= 2
            draw_text(axes, 0, top_y - 0.5, f"offset {adding_lane_count}")
            for lane in range(adding_lane_count):
                draw_arrow(axes, (left_x + lane + 0.5, top_y - 1.1), (left_x + lane + 0.5, top_y))
                draw_arrow(
                    axes, (left_x + lane + adding_lane_count + 0.5, top_y - 1.1), (left_x + lane + 0.6, top_y)
                )
        draw_text(axes, 0, top_y + 0.4, "at first" if row == 0 else f"after step {row}")
        for lane in range(lanes):
            _draw_cell(
                axes,
                left_x + lane,
                top_y,
                str(int(values[row, lane])),
                "accent" if lane < adding_lane_count else None,
                0.8,
            )
    return Picture.of(
        figure,
        f"The sum of {lanes} lanes in {rows - 1} steps: in each step, the lanes whose values are still "
        f"needed add the value of a lane further on. In the end lane 0 has {int(values[-1, 0])}, the sum "
        f"of all values, and lane 1 has {int(values[-1, 1])}.",
    )


def compaction(ballot: int, lanes: int = 8) -> Picture:
    """Draw the lanes that keep their elements, and the position of each kept element in the output."""
    left_x = 2.6
    figure, axes = make_empty_axes(2.2, (0, left_x + lanes), (0, 5.1))
    kept_lanes = [lane for lane in range(lanes) if _has_bit(ballot, lane)]
    for lane in range(lanes):
        is_kept = lane in kept_lanes
        draw_text(axes, left_x + lane + 0.5, 0.4, f"lane {lane}", ha="center")
        _draw_cell(axes, left_x + lane, 0.8, f"x[{lane}]", "accent" if is_kept else None, 0.9)
    for position, lane in enumerate(kept_lanes):
        draw_arrow(axes, (left_x + lane + 0.5, 1.75), (left_x + position + 0.5, 3.45))
    for position in range(lanes):
        is_written = position < len(kept_lanes)
        text = f"x[{kept_lanes[position]}]" if is_written else ""
        _draw_cell(axes, left_x + position, 3.5, text, "good" if is_written else None, 0.9)
        draw_text(axes, left_x + position + 0.5, 4.8, str(position), ha="center")
    for y, text in ((1.25, "element"), (3.95, "output"), (4.8, "position")):
        draw_text(axes, 0, y, text)
    moves_text = ", ".join(f"lane {lane} to position {position}" for position, lane in enumerate(kept_lanes))
    return Picture.of(
        figure,
        f"A compaction: the lanes that keep their elements write them next to each other, {moves_text}.",
    )
