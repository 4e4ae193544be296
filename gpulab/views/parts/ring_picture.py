"""Painter of devices on a circle on the static picture; ``ring.js`` paints the same on a canvas."""

from __future__ import annotations

import math
from collections import Counter

from gpulab.views.parts import palette
from gpulab.views.parts.items import Ring
from gpulab.views.parts.pen import Pen, text_width
from gpulab.views.parts.tracks_picture import PlotScale

# Largest sizes, and sizes as shares of the distance between neighbours on the circle.
MAX_NODE_RADIUS_PX, MAX_MARK_PX, MAX_ARROW_HEAD_PX = 19, 17, 8
NODE_SHARE, MARK_SHARE, ARROW_HEAD_SHARE = 0.28, 0.25, 0.12
MIN_MARK_PX = 12  # for a text
ARROW_OFFSET_PX = (
    5  # distance of an arrow from the line between its devices, so that opposite arrows are apart
)


def paint_ring(pen: Pen, item: Ring, scale: PlotScale) -> None:
    """Paint devices on a circle, the links between them, and an arrow with a mark at its end for each
    move.
    """
    device_count = len(item.names)
    radius = min(scale.width, scale.box.height) / 2 - MAX_NODE_RADIUS_PX - 2
    neighbour_distance_px = 2 * radius * math.sin(math.pi / device_count)
    node_radius_px = min(MAX_NODE_RADIUS_PX, NODE_SHARE * neighbour_distance_px)
    mark_px = min(MAX_MARK_PX, MARK_SHARE * neighbour_distance_px)
    arrow_head_px = min(MAX_ARROW_HEAD_PX, ARROW_HEAD_SHARE * neighbour_distance_px)
    font_px = 9 if node_radius_px < MAX_NODE_RADIUS_PX - 1 else 10
    centre = (scale.left + scale.width / 2, scale.top + scale.box.height / 2)
    node_centres = [
        (centre[0] + radius * math.sin(angle), centre[1] - radius * math.cos(angle))
        for angle in (2 * math.pi * index / device_count for index in range(device_count))
    ]
    for source_device, target_device in item.links:
        pen.line([node_centres[source_device], node_centres[target_device]], "rule", 2)
    for (x, y), name in zip(node_centres, item.names, strict=True):
        pen.disc(x, y, node_radius_px, "panel", "muted")
        name_forms = name.split("\n")
        fitting_name_forms = [
            name_form for name_form in name_forms if text_width(name_form, font_px) <= 2 * node_radius_px - 3
        ]
        pen.text(x, y, (fitting_name_forms or name_forms[-1:])[0], font_size=font_px, anchor="middle")
    mark_count_of_pair: Counter[tuple[int, int]] = Counter()
    for source_device, target_device, message_text, colour_index in zip(
        item.source, item.target, item.text, item.colour, strict=True
    ):
        (x0, y0), (x1, y1) = node_centres[source_device], node_centres[target_device]
        centre_distance = math.dist((x0, y0), (x1, y1))
        unit_x = (x1 - x0) / centre_distance
        unit_y = (y1 - y0) / centre_distance
        arrow_start, mark_centre, arrow_end = (
            (
                x0 + unit_x * distance - unit_y * ARROW_OFFSET_PX,
                y0 + unit_y * distance + unit_x * ARROW_OFFSET_PX,
            )
            for distance in (
                node_radius_px,
                max(
                    node_radius_px,
                    centre_distance
                    - node_radius_px
                    - arrow_head_px
                    - mark_px / 2
                    - mark_count_of_pair[source_device, target_device] * (mark_px + 1),
                ),
                centre_distance - node_radius_px,
            )
        )
        if not mark_count_of_pair[source_device, target_device]:
            pen.line([arrow_start, arrow_end], "muted", 1.5)
            pen.arrow_head(arrow_start, arrow_end, "muted", arrow_head_px)
        mark_count_of_pair[source_device, target_device] += 1
        mark_left, mark_top = (coordinate - mark_px / 2 for coordinate in mark_centre)
        pen.rect(mark_left, mark_top, mark_left + mark_px, mark_top + mark_px, item.colours[colour_index])
        pen.outline(mark_left, mark_top, mark_left + mark_px, mark_top + mark_px, "fg", 2)
        if mark_px >= MIN_MARK_PX:
            pen.text(
                *mark_centre,
                message_text,
                font_size=font_px,
                colour=palette.choose_ink(item.colours[colour_index]),
                anchor="middle",
            )
