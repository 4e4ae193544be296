"""Pictures of notebooks 06a and 06b: fences, scans, look-back, private bins, a halo and flash attention."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from matplotlib.patches import Rectangle

from gpulab.views.parts.palette import find_hex
from gpulab_course.teach.drawing import WIDTH_IN, draw_arrow, draw_box, draw_text, make_empty_axes
from gpulab_course.teach.picture import Picture

_ELEMENT_COLOURS = ("accent-2", "warn", "good", "purple")


# What two blocks do over time: the start, the end, the text and the colour of each part.
_BLOCK_TIME_LINES = (
    (
        "Without fences: the flag can become visible before the data",
        ((0, 2.2, "data = 42", "accent-2"), (2.2, 4.4, "flag = 1", "accent-2")),
        ((0, 4.9, "waits for the flag", "other-pale"), (4.9, 7.3, "reads data: 0", "error-bg")),
        ((4.4, 4.9, "accent"), (2.2, 8.2, "tail")),
    ),
    (
        "Flag and fences: block 1 waits, and each block orders its own two accesses",
        ((0, 2.2, "data = 42", "accent-2"), (2.2, 3.8, "fence", "good"), (3.8, 6.0, "flag = 1", "accent-2")),
        (
            (0, 6.5, "waits for the flag", "other-pale"),
            (6.5, 8.1, "fence", "good"),
            (8.1, 10.6, "reads data: 42", "accent-2"),
        ),
        ((6.0, 6.5, "accent"),),
    ),
    (
        "Barrier of the whole grid: every block waits for the last one, and memory is ordered, too",
        (
            (0, 2.2, "data = 42", "accent-2"),
            (2.2, 6.0, "waits at the barrier", "other-pale"),
            (6.0, 8.5, "goes on", "accent-2"),
        ),
        ((0, 6.0, "other work", "accent-2"), (6.0, 8.5, "reads data: 42", "accent-2")),
        (),
    ),
)


def fence_and_barrier() -> Picture:
    """Draw two communicating blocks over time, without fences, with a flag and fences, and with a barrier."""
    figure, axes = make_empty_axes(5.3, (-1.5, 12.2), (-0.2, 11.6))
    for panel_index, (title, first_block, second_block, arrows) in enumerate(_BLOCK_TIME_LINES):
        panel_top = 3.95 * panel_index
        draw_text(axes, -1.45, panel_top + 0.2, title, weight="bold")
        for block_index, labelled_spans in enumerate((first_block, second_block)):
            y = panel_top + 0.7 + 1.5 * block_index
            draw_text(axes, -1.45, y + 0.4, f"block {block_index}")
            for start_x, end_x, span_text, colour in labelled_spans:
                draw_box(axes, start_x, y, end_x - start_x, 0.8, colour, span_text)
        for start_x, end_x, colour in arrows:
            draw_arrow(axes, (start_x, panel_top + 1.5), (end_x, panel_top + 2.2), colour)
    draw_text(axes, 8.4, 2.0, "data becomes visible")
    axes.plot([6.0, 6.0], [8.45, 11.0], color=find_hex("tail"), linewidth=2.5)
    draw_text(axes, 6.15, 9.75, "barrier")
    draw_arrow(axes, (9.2, 11.4), (12.1, 11.4), "muted")
    draw_text(axes, 9.1, 11.4, "time", ha="right")
    return Picture.of(
        figure,
        "Three time lines of two blocks. Without fences, block 0 writes data and sets the flag; the flag "
        "becomes visible first, and block 1 reads 0. With fences, block 0 writes data, passes a fence and "
        "sets the flag; block 1 waits for the flag, passes a fence and reads 42. With a barrier of the "
        "whole grid, block 0 waits until block 1 reaches the barrier as well; after it, block 1 reads 42.",
    )


def scan_steps(values: Sequence[int]) -> Picture:
    """Draw the steps of a Hillis-Steele scan over a row of numbers.

    Parameters
    ----------
    values
        The numbers; at most 16, so that the picture can be read.
    """
    value_count = len(values)
    sums_by_step = [np.array(values)]
    distances: list[int] = []
    while (distance := 1 << len(distances)) < value_count:
        distances.append(distance)
        sums_by_step.append(
            sums_by_step[-1] + np.concatenate((np.zeros(distance, int), sums_by_step[-1][:-distance]))
        )
    figure, axes = make_empty_axes(
        1.05 * len(sums_by_step), (-2.3, value_count + 0.1), (-0.15, 2 * len(sums_by_step) - 0.9)
    )
    for step, step_sums in enumerate(sums_by_step):
        draw_text(axes, -2.25, 2 * step + 0.5, "start" if step == 0 else f"distance {distances[step - 1]}")
        for i, prefix_sum in enumerate(step_sums):
            is_done = i < 1 << step
            draw_box(axes, i + 0.08, 2 * step, 0.84, 1, "good" if is_done else "panel", str(prefix_sum))
            if step and i >= distances[step - 1]:
                arrow_start = (i - distances[step - 1] + 0.5, 2 * step - 1)
                draw_arrow(axes, arrow_start, (i + 0.42, 2 * step), "accent")
    last_row_text = ", ".join(str(prefix_sum) for prefix_sum in sums_by_step[-1])
    return Picture.of(
        figure,
        f"{len(distances)} steps for {value_count} numbers. In the step with distance d, each element adds "
        "the element that is d positions to its left; arrows show it, and finished elements are green. At "
        f"the end: {last_row_text}.",
    )


def look_back(own_sums: Sequence[int], known: int) -> Picture:
    """Draw how the block of the last tile computes the sum of all previous tiles.

    Parameters
    ----------
    own_sums
        The sum of each tile; the last tile looks back.
    known
        The last tile that has published the sum from the start of the array to its own end.
    """
    last_tile = len(own_sums) - 1
    published_sum = int(sum(own_sums[: known + 1]))
    figure, axes = make_empty_axes(2.3, (-0.1, last_tile + 1.1), (-0.75, 3.2))
    for tile_index, own_sum in enumerate(own_sums):
        has_published_sum = tile_index <= known
        draw_text(axes, tile_index + 0.5, -0.4, f"tile {tile_index}", ha="center")
        shown_sum = sum(own_sums[: tile_index + 1]) if has_published_sum else own_sum
        tile_text = f"{shown_sum}\nfrom the start" if has_published_sum else f"{shown_sum}\nown sum"
        draw_box(
            axes, tile_index + 0.05, 0, 0.9, 1, "good" if has_published_sum else "warn", tile_text, fontsize=9
        )
    draw_arrow(axes, (last_tile + 0.5, 1.75), (known + 0.5, 1.75), "accent")
    axes.plot([last_tile + 0.5] * 2, [1.05, 1.75], color=find_hex("accent"), linewidth=1)
    for tile_index in range(known, last_tile):
        axes.plot(
            [tile_index + 0.5] * 2,
            [1.05, 1.75],
            color=find_hex("accent"),
            linewidth=1,
            linestyle=":",
        )
    added_sums = [*(own_sums[tile_index] for tile_index in range(last_tile - 1, known, -1)), published_sum]
    prefix_sum = int(sum(own_sums[:last_tile]))
    added_sums_text = " + ".join(str(added_sum) for added_sum in added_sums)
    added_text = f"tile {last_tile} looks back and adds {added_sums_text} = {prefix_sum}"
    draw_text(axes, (known + last_tile + 1) / 2, 2.1, added_text, ha="center")
    last_sum = own_sums[last_tile]
    publish_text = f"then it publishes {prefix_sum} + {last_sum} = {prefix_sum + last_sum}, from the start"
    draw_text(axes, (known + last_tile + 1) / 2, 2.7, publish_text, ha="center")
    return Picture.of(
        figure,
        f"A row of {last_tile + 1} tiles. Tiles 0 to {known} show the sum from the start of the array, the "
        f"others their own sum. Tile {last_tile} looks back from tile {last_tile - 1} to tile {known}, the "
        f"first one with a sum from the start, and adds {added_sums_text} = {prefix_sum}.",
    )


def private_bins(values: Any, blocks: int) -> Picture:
    """Draw a histogram for which each block has its own set of bins.

    Parameters
    ----------
    values
        The elements as integers from 0; each block counts an equal part of them.
    blocks
        The number of blocks.
    """
    values_by_block = np.asarray(values).reshape(blocks, -1)
    bins = int(values_by_block.max()) + 1
    bin_counts = np.stack([np.bincount(elements, minlength=bins) for elements in values_by_block])
    block_width = max(values_by_block.shape[1], bins) + 1.5
    figure, axes = make_empty_axes(3.5, (-3.4, blocks * block_width - 1.2), (-0.8, 6.9))
    totals_left = (blocks * block_width - 1.5 - bins) / 2
    for y, row_label in (
        (0.5, "elements"),
        (3.0, "bins of the block,\nin shared memory"),
        (6.0, "bins in\nglobal memory"),
    ):
        draw_text(axes, -3.35, y, row_label)
    for block, (elements, block_counts) in enumerate(zip(values_by_block, bin_counts, strict=True)):
        block_left = block * block_width
        draw_text(axes, block_left + elements.size / 2, -0.45, f"block {block}", ha="center")
        for i, value in enumerate(elements):
            draw_box(axes, block_left + i, 0, 1, 1, _ELEMENT_COLOURS[value % 4], str(value))
        bins_left = block_left + (elements.size - bins) / 2
        for value, bin_count in enumerate(block_counts):
            draw_box(axes, bins_left + value, 2.5, 1, 1, _ELEMENT_COLOURS[value % 4], str(bin_count))
            draw_arrow(
                axes,
                (bins_left + value + 0.5, 3.5),
                (totals_left + value + 0.5 + 0.3 * (block - (blocks - 1) / 2), 5.5),
                "muted",
            )
        draw_arrow(
            axes, (block_left + elements.size / 2, 1.05), (block_left + elements.size / 2, 2.4), "accent"
        )
        draw_text(axes, block_left + elements.size / 2 + 0.2, 1.7, f"{elements.size} atomics")
    for value, bin_count in enumerate(bin_counts.sum(axis=0)):
        draw_box(axes, totals_left + value, 5.5, 1, 1, _ELEMENT_COLOURS[value % 4], str(bin_count))
    draw_text(axes, totals_left + bins + 0.3, 6.0, f"{blocks} × {bins} = {blocks * bins} atomics")
    total_text = ", ".join(
        f"{bin_count} times {value}" for value, bin_count in enumerate(bin_counts.sum(axis=0))
    )
    return Picture.of(
        figure,
        f"{values_by_block.size} elements in {blocks} blocks. Each block counts its "
        f"{values_by_block.shape[1]} elements in {bins} bins of its own in shared memory, and then adds each "
        f"of these bins once to the {bins} bins in global memory: {total_text}.",
    )


def halo(block_x: int, block_y: int, radius: int) -> Picture:
    """Draw the tile of a block with its halo, and the pixels that contribute to one result.

    Parameters
    ----------
    block_x, block_y
        The block, with one thread per pixel of the tile.
    radius
        The width of the halo in pixels.
    """
    width = block_x + 2 * radius
    height = block_y + 2 * radius
    inches_per_pixel = WIDTH_IN * 0.98 / (width + 0.4)
    figure, axes = make_empty_axes(
        inches_per_pixel * (height + 4.2) / 0.98, (-0.2, width + 0.2), (-0.2, height + 4.0)
    )
    center_x = width - radius - 1  # at the right edge of the tile, so that the halo is needed
    center_y = radius + block_y // 2
    for y in range(height):
        for x in range(width):
            is_tile = radius <= x < width - radius and radius <= y < height - radius
            is_in_window = abs(x - center_x) <= radius and abs(y - center_y) <= radius
            colour_name = "accent-2" if is_tile else "other-pale"
            cell_text = "×" if is_in_window else ""
            draw_box(axes, x, y, 1, 1, colour_name, cell_text, edge_colour="bg", text_colour="fg", fontsize=9)
    window_side = 2 * radius + 1
    axes.add_patch(
        Rectangle(
            (center_x - radius, center_y - radius),
            window_side,
            window_side,
            fill=False,
            edgecolor=find_hex("tail"),
            linewidth=2,
        )
    )
    draw_box(axes, center_x, center_y, 1, 1, "warn", edge_colour="tail")
    pixel_count = block_x * block_y
    loaded_pixels = width * height
    legend_entries = (
        ("accent-2", f"tile: the {block_x} × {block_y} = {pixel_count} pixels that this block computes"),
        (
            "other-pale",
            (
                f"halo: {loaded_pixels - pixel_count} more pixels that it loads; "
                "their results belong to other blocks"
            ),
        ),
        ("warn", f"one result, which needs the {window_side} × {window_side} pixels with ×"),
    )
    for line_index, (colour_name, text) in enumerate(legend_entries):
        line_y = height + 0.5 + 1.2 * line_index
        draw_box(axes, 0, line_y, 1, 1, colour_name, edge_colour="bg")
        draw_text(axes, 1.5, line_y + 0.5, text)
    return Picture.of(
        figure,
        f"A tile of {block_x} × {block_y} pixels with a halo of {radius} pixels on each side: "
        f"{loaded_pixels} pixels are loaded for {pixel_count} results. A result at the right edge of the "
        f"tile needs {window_side} × {window_side} pixels, of which {radius} columns are in the halo.",
    )


def attention_tiles(tiles: int, block: int, current: int) -> Picture:
    """Draw how one block of flash attention iterates over the tiles of k and v.

    Parameters
    ----------
    tiles
        The number of tiles of q, and of k and v.
    block
        The block that is shown, which is also the number of its tile of q.
    current
        The tile of k and v of the current iteration.
    """
    figure, axes = make_empty_axes(4.0, (-3.6, tiles + 4.4), (-3.3, tiles + 0.5))
    for i in range(tiles):
        draw_box(axes, -2.2, i, 1.2, 1, "accent-2" if i == block else "panel", "q" if i == block else "")
        tile_colour_name = "good" if i == current else ("other-pale" if i < current else "panel")
        draw_box(axes, i, -1.4, 1, 0.9, tile_colour_name, "k" if i == current else "")
        draw_box(axes, i, -2.5, 1, 0.9, tile_colour_name, "v" if i == current else "")
        for j in range(tiles):
            draw_box(axes, j, i, 1, 1, "bg", edge_colour="other", linestyle=":")
        row_colour_name = "accent-2" if i == block else "panel"
        draw_box(axes, tiles + 1.2, i, 2.0, 1, row_colour_name, "result" if i == block else "")
    for j in range(current):
        draw_box(axes, j, block, 1, 1, "other-pale", edge_colour="other")
    draw_box(axes, current, block, 1, 1, "warn", "scores", fontsize=9)
    draw_arrow(axes, (current + 1.05, block + 0.5), (tiles + 1.15, block + 0.5), "accent")
    draw_arrow(axes, (current + 0.1, -2.85), (tiles, -2.85), "accent")
    draw_text(axes, current, -2.85, "next tiles", ha="right")
    draw_text(axes, -3.55, -0.95, "tiles of k")
    draw_text(axes, -3.55, -2.05, "tiles of v")
    draw_text(axes, -3.55, block + 0.5, f"block {block}")
    draw_text(axes, tiles / 2, tiles + 0.25, "n × n scores: one tile at a time, on the SM only", ha="center")
    return Picture.of(
        figure,
        f"Block {block} keeps its tile of q. It is at tile {current} of {tiles} of k and v, computes the "
        "tile of scores where they meet, and updates its rows of the result; then it goes on to the next "
        "tile. Only one tile of the n × n scores exists at a time.",
    )
