"""The history of a pool as columns, from which the browser computes the state after any step."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from gpulab.views.allocator import pool_text
from gpulab.views.parts.axes import Axes, Axis
from gpulab.views.parts.boxes import Plot
from gpulab.views.parts.items import Labels, LineSegments, Polyline
from gpulab.words import size
from virtualgpu.records.memory import ACTIONS, AllocatorHistory

if TYPE_CHECKING:
    from gpulab.views.allocator.layout import MapLayout
    from gpulab.views.allocator.maps import PoolMaps, PoolPanel

CURVE_PX = 46
LEFT_PX = 96
MAX_MARKS = 200
MAX_POINTS = 1200
MAX_FRAMES = 12
MAX_STACKS = 20_000
COLOURS = ("accent", "good", "warn", "purple", "tail", "range", "accent-2")
"""Colours of the owners or streams with the most memory; all others share `OTHER_COLOUR`."""
OTHER_COLOUR = "other"
UNKNOWN_COLOUR = "kernels"
CURVE_COLOUR = "rule"
RESERVED_COLOURS = ("fg", "kernel-3")
"""Colours of the curves of reserved memory, which no block has."""
AGE_CLASSES = (
    (1, "allocated by this event", "tail"),
    (10, "≤ 10 events ago", "warn"),
    (100, "≤ 100", "good"),
    (1000, "≤ 1,000", "accent-2"),
    (1 << 31, "older", "accent"),
)

Column = npt.NDArray[Any]


def make_contents(maps: PoolMaps, keys: str) -> dict[str, Any]:
    """Return all data for the browser as dictionaries and arrays, which the function `pack` can convert."""
    stream_index = {handle: index for index, handle in enumerate(maps.streams)}
    slider_stops = np.unique(
        np.concatenate([panel.find_slider_positions(panel.notable_steps) for panel in maps.panels])
    )
    return {
        "panels": [_make_panel(maps, index, stream_index) for index in range(len(maps.panels))],
        "row_bytes": maps.layouts[0].row_bytes,
        "streams": list(maps.streams.values()),
        "owners": maps.owners.names,
        "lines": maps.owners.lines,
        "colours": {
            "line": choose_colours(maps.owners.names),
            "stream": choose_colours([*maps.streams.values()]),
        },
        "ages": [list(age_class) for age_class in AGE_CLASSES],
        "legend": {
            colour_by: [
                [colour, text, maps.owners.text_of_line.get(text, "")] for colour, text in legend_entries
            ]
            for colour_by, legend_entries in make_legends(maps).items()
        },
        "curves": make_curve_legend(maps),
        "moments": _make_moments(maps, stream_index),
        "last": maps.last_position,
        "stops": slider_stops,
        "refused": np.array(maps.find_refusals(), np.int64),
        "done": list(pool_text.OPERATION_TEXTS.values()),
        "said": pool_text.PAGE_TEXTS,
        "figures": pool_text.FIGURE_TEMPLATES,
        "unit": maps.unit,
        "curve": draw_curve(maps),
        "keys": keys,
    }


def choose_colours(names: Sequence[str]) -> list[str]:
    """Return a colour for each owner or stream. Owners with an empty name have the colour for unknown
    owners.
    """
    return [
        (COLOURS[index] if index < len(COLOURS) else OTHER_COLOUR) if name else UNKNOWN_COLOUR
        for index, name in enumerate(names)
    ]


def make_legends(maps: PoolMaps) -> dict[str, list[tuple[str, str]]]:
    """Return the legend entries (colour, meaning) for each way of colouring the blocks."""
    legend_by_kind = {}
    names_by_kind = ("line", maps.owners.names), ("stream", [*maps.streams.values()])
    for colour_kind, names in names_by_kind:
        legend_entries = zip(choose_colours(names), names, strict=True)
        special_names = {OTHER_COLOUR: f"other {colour_kind}s", UNKNOWN_COLOUR: "unknown line"}
        legend_by_kind[colour_kind] = list(
            dict.fromkeys((colour, special_names.get(colour, name)) for colour, name in legend_entries)
        )
    return {**legend_by_kind, "age": [(colour, text) for _, text, colour in AGE_CLASSES]}


def make_curve_legend(maps: PoolMaps) -> list[tuple[str, str]]:
    """Return the legend entries (colour, meaning) for the curves of memory use over all steps."""
    if not maps.last_position:
        return []
    names = [f"reserved, {panel.name}" if len(maps.panels) > 1 else "reserved" for panel in maps.panels]
    return [(CURVE_COLOUR, "curve: in use"), *zip(RESERVED_COLOURS, names, strict=False)]


def _make_moments(maps: PoolMaps, stream_indices: dict[int, int]) -> dict[str, Any]:
    line_of_stack = maps.owners.line_of_stack
    if maps.requests:
        operations = [maps.find_operation(position) for position in range(len(maps.requests))]
        kind_names, size_list, requested_list, stream_handles, stack_indices = (
            list(column) for column in zip(*operations, strict=True)
        )
        kind_codes = np.array([pool_text.OPERATION_KINDS.index(name) for name in kind_names], np.uint8)
        integer_columns: list[Column] = [
            np.array(column, np.int64)
            for column in (size_list, requested_list, stream_handles, stack_indices)
        ]
    else:
        events = maps.panels[0].history.trace.events
        kind_codes = events.actions  # ACTIONS come first among the kinds
        integer_columns = [events.size_bytes, events.requested_bytes, events.streams, events.stacks]
    line_indices = np.where(integer_columns[3] >= 0, line_of_stack[integer_columns[3]], -1).astype(np.int32)
    return {
        "kind": kind_codes,
        "size": integer_columns[0],
        "asked": integer_columns[1],
        "stream": _find_stream_indices(integer_columns[2], stream_indices),
        "line": line_indices,
    }


def _find_stream_indices(handles: Column, streams: dict[int, int]) -> Column:
    distinct_handles, handle_index = np.unique(handles, return_inverse=True)
    stream_indices = np.array([streams.get(handle, -1) for handle in distinct_handles.tolist()], np.int32)
    return stream_indices[handle_index] if stream_indices.size else np.empty(0, np.int32)


def find_limit_bytes(panel: PoolPanel) -> int:
    """Return the limit of the memory pool in bytes, or 0 if it is not known."""
    trace = panel.history.trace
    return min(
        (byte_limit for byte_limit in (trace.first.limit_bytes, trace.capacity_bytes) if byte_limit),
        default=0,
    )


def _make_panel(maps: PoolMaps, index: int, streams: dict[int, int]) -> dict[str, Any]:
    panel = maps.panels[index]
    layout = maps.layouts[index]
    history = panel.history
    trace = history.trace
    blocks = history.blocks
    ranges = history.ranges
    limit_bytes = find_limit_bytes(panel)
    refused_events = np.flatnonzero(trace.events.actions == ACTIONS.index("oom"))
    requested_bytes = np.where(
        trace.events.requested_bytes > 0, trace.events.requested_bytes, trace.events.size_bytes
    )
    labels: dict[str, int] = {}
    label_indices = np.full(len(blocks), -1, np.int32)
    for block_row, label in blocks.labels.items():
        label_indices[block_row] = labels.setdefault(label, len(labels))
    return {
        "name": panel.name,
        "limit": limit_bytes,
        "known": bool(limit_bytes),
        "after": panel.events_at_request,
        "block": {
            "address": blocks.addresses,
            "size": blocks.size_bytes,
            "asked": blocks.requested_bytes,
            "stack": blocks.stacks,
            "segment": blocks.segments,
            "begin": blocks.begins,
            "freed": blocks.freed,
            "end": blocks.ends,
            "owner": maps.owners.owners_of_blocks[index],
            "label": label_indices,
        },
        "range": {
            "address": ranges.addresses,
            "size": ranges.size_bytes,
            "segment": ranges.segments,
            "begin": ranges.begins,
            "end": ranges.ends,
        },
        "segment": _make_segment_columns(history, layout, streams),
        "groups": [
            [format_group_name(maps, row_group.stream, row_group.pool), row_group.first_row, row_group.rows]
            for row_group in layout.groups
        ],
        "rows": layout.rows,
        "refused": {
            "step": refused_events + 1,
            "asked": requested_bytes[refused_events],
            "stream": _find_stream_indices(trace.events.streams[refused_events], streams),
        },
        "labels": list(labels),
        **_make_stack_columns(history),
    }


def format_group_name(maps: PoolMaps, stream: int, pool: str) -> str:
    """Return the heading of the rows that belong to one stream and memory pool."""
    return f"{maps.streams.get(stream, 'others')}{f' · {pool}' if pool else ''}"


def _make_segment_columns(
    history: AllocatorHistory, layout: MapLayout, streams: dict[int, int]
) -> dict[str, Any]:
    segments = history.segments
    pool_names = ["", "small", "large"]
    return {
        "start": layout.start_bytes,
        "wide": layout.drawn_bytes,
        "widened": layout.is_widened.astype(np.uint8),
        "low": layout.low_addresses,
        "size": layout.size_bytes,
        "stream": _find_stream_indices(np.array(segments.streams, np.int64), streams),
        "pool": np.array(
            [pool_names.index(pool) if pool in pool_names else 0 for pool in segments.pools], np.uint8
        ),
        "expandable": np.array(segments.is_expandable, np.uint8),
        "seen": np.array(segments.is_seen, np.uint8),
    }


def _make_stack_columns(history: AllocatorHistory) -> dict[str, Any]:
    """Return the distinct frames as strings, and all stacks as one array of frame numbers."""
    frame_number_of_text: dict[str, int] = {}
    frame_numbers: list[int] = []
    stack_bounds = [0]
    for stack in history.trace.stacks[:MAX_STACKS]:
        for frame in stack[:MAX_FRAMES]:
            frame_text = f"{frame.filename}:{frame.line} in {frame.function}"
            frame_numbers.append(frame_number_of_text.setdefault(frame_text, len(frame_number_of_text)))
        stack_bounds.append(len(frame_numbers))
    return {
        "frames": list(frame_number_of_text),
        "stack_frames": np.array(frame_numbers, np.int32),
        "stack_bounds": np.array(stack_bounds, np.int32),
    }


def draw_curve(maps: PoolMaps) -> Plot:
    """Return a plot of the used and reserved bytes at each slider position. Failed requests are marked."""
    last_position = maps.last_position
    interval_starts = np.unique(
        np.linspace(0, last_position + 1, MAX_POINTS, endpoint=False).astype(np.int64)
    )
    event_selections = [
        slice(None) if panel.events_at_request is None else panel.events_at_request for panel in maps.panels
    ]
    used_bytes, *reserved_curves = (
        np.append(interval_maxima := np.maximum.reduceat(byte_counts, interval_starts), interval_maxima[-1])
        for byte_counts in (
            maps.panels[0].history.used_bytes[event_selections[0]],
            *(
                pool_panel.history.reserved_bytes[event_selection]
                for pool_panel, event_selection in zip(maps.panels, event_selections, strict=True)
            ),
        )
    )
    max_reserved = max(1, *(int(reserved_curve.max()) for reserved_curve in reserved_curves))
    limit_bytes = max(find_limit_bytes(panel) for panel in maps.panels)
    axis_top_bytes = max(limit_bytes, max_reserved) if limit_bytes <= 1.6 * max_reserved else max_reserved
    axes = Axes(
        Axis(0, max(1, last_position)),
        Axis(0, axis_top_bytes, {axis_top_bytes: size(axis_top_bytes), 0: "0"}),
        CURVE_PX - 10,
        7,
    )
    x = np.append(interval_starts, last_position)
    refused_positions = np.array(maps.find_refusals(), np.int64)
    _, mark_indices = np.unique(refused_positions * MAX_MARKS // (last_position + 1), return_index=True)
    curves_and_colours = zip(reserved_curves, RESERVED_COLOURS, strict=False)
    return axes.draw_plot(
        Polyline(
            x, axes.y(used_bytes), CURVE_COLOUR, width=0, fill=CURVE_COLOUR, base=axes.bottom, step=True
        ),
        *(
            Polyline(x, axes.y(reserved_curve), colour, width=1.5, step=True)
            for reserved_curve, colour in curves_and_colours
        ),
        LineSegments([0], [axes.top], [max(1, last_position)], [axes.top], "error", dash=True)
        if axis_top_bytes == limit_bytes
        else None,
        Labels(
            refused_positions[mark_indices],
            0 * mark_indices + 5,
            ["▼"] * mark_indices.size,
            anchor="middle",
            colour="error",
        ),
        label="Memory over all steps",
        left=LEFT_PX,
        below_px=3,
    )
