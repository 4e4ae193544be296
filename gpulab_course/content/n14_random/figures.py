"""Figures of notebook 14: results of sums in different orders, Philox, and the effects of switches."""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Mapping, Sequence
from importlib import resources
from typing import Any

import numpy as np
from matplotlib.figure import Figure

from gpulab import session
from gpulab.lab.kernels import block_order
from gpulab.views._base import View
from gpulab.views.parts.boxes import Box, bars, column, fold, words
from gpulab.views.parts.palette import find_hex
from gpulab.views.tables import Table
from gpulab_course.content.ranges import among as among
from gpulab_course.teach.drawing import draw_arrow, draw_box, draw_text, make_empty_axes
from gpulab_course.teach.picture import Picture
from virtualgpu.records import Provenance

RUN_COUNT = 200
_MAX_BARS = 14


def totals(kernel: Any, x: Any, blocks: int, runs: int = RUN_COUNT) -> list[float]:
    """Run the kernel ``kernel(x, total, n)`` several times, and return the computed total of each run.

    A virtual GPU runs the blocks in another order each time; a real GPU chooses the order itself.
    """
    cp = session.cp()
    run_totals = []
    for run_index in range(runs):
        device_sum = cp.zeros(1, np.float32)
        with block_order("random", seed=run_index):
            kernel((blocks,), (256,), (x, device_sum, np.int32(x.size)))
        run_totals.append(float(device_sum[0]))
    return run_totals


def _make_signed_text(value: float) -> str:
    """Return a number as a term of a sum, such as ``+ 1``."""
    return f"{'−' if value < 0 else '+'} {abs(value):,.0f}"


def orders_of_addition(
    elements: Sequence[float], block_sums: Sequence[float], orders: Sequence[Sequence[int]]
) -> Picture:
    """Draw the summation tree of one block, and several orders in which the block sums are added.

    Parameters
    ----------
    elements
        The elements of the block; their number is a power of two.
    block_sums
        The sums of the blocks.
    orders
        Orders of the blocks, one row of the picture per order.
    """
    height_units = 0.7 + 1.1 * math.log2(len(elements)) + 1.5 + 0.85 * len(orders) + 0.05
    figure, axes = make_empty_axes(4.5, (0, 9.8), (0, height_units), margin=0)
    tree_level = [np.float32(value) for value in elements]
    top_y = 0.7
    draw_text(axes, 0.1, 0.35, "In a block: always the same tree", weight="bold")
    level_texts = []
    while True:
        level_texts.append([f"{value:g}" for value in tree_level])
        for position, value in enumerate(tree_level):
            colour = "good" if len(tree_level) == 1 else "accent"
            draw_box(axes, 0.1 + 1.2 * position, top_y, 0.9, 0.6, colour, f"{value:g}", edge_colour="muted")
        if len(tree_level) == 1:
            break
        half_width = len(tree_level) // 2
        for position in range(half_width):
            for addend_index in (position, position + half_width):
                axes.plot(
                    (0.55 + 1.2 * addend_index, 0.55 + 1.2 * position),
                    (top_y + 0.6, top_y + 1.1),
                    color=find_hex("muted"),
                    lw=1,
                )
        tree_level = [
            tree_level[position] + tree_level[position + half_width] for position in range(half_width)
        ]
        top_y += 1.1
    order_heading = "Between blocks: the order of the atomics changes"
    draw_text(axes, 0.1, top_y + 1.15, order_heading, weight="bold")
    top_y += 1.5
    order_sentences = []
    for order in orders:
        running_sum = np.float32(0)
        partial_sums = []
        for block in order:
            running_sum = running_sum + np.float32(block_sums[block])
            partial_sums.append(running_sum)
        for position, (block, partial_sum) in enumerate(zip(order, partial_sums, strict=True)):
            is_final_sum = position == len(order) - 1
            left_x = 0.1 + 3.2 * position
            draw_text(axes, left_x, top_y + 0.3, _make_signed_text(block_sums[block]))
            colour = "good" if is_final_sum else "accent"
            draw_box(axes, left_x + 1.5, top_y, 1.5, 0.6, colour, f"{partial_sum:,.0f}", edge_colour="muted")
        block_numbers = ", ".join(map(str, order))
        order_sentences.append(
            f"in the order {block_numbers} the totals are "
            f"{', '.join(f'{partial_sum:,.0f}' for partial_sum in partial_sums)}"
        )
        top_y += 0.85
    tree_text = ", then ".join(" ".join(level_values) for level_values in level_texts)
    sums_text = ", ".join(f"{value:,.0f}" for value in block_sums)
    return Picture.of(
        figure,
        f"A tree in a block adds {tree_text}. The sums of {len(block_sums)} blocks are {sums_text}: "
        f"{'; '.join(order_sentences)}.",
    )


def philox_round(counter: Sequence[int], key: Sequence[int]) -> Picture:
    """Draw one round of Philox4x32, with its two products and the movement of their halves to other words.

    Parameters
    ----------
    counter
        The four words before the round.
    key
        The two words of the key.
    """
    x, y, z, w = (int(word) for word in counter)
    high_0, low_0 = divmod(0xD2511F53 * x, 1 << 32)
    high_1, low_1 = divmod(0xCD9E8D57 * z, 1 << 32)
    new_words = (high_1 ^ y ^ key[0], low_1, high_0 ^ w ^ key[1], low_0)
    figure, axes = make_empty_axes(3.7, (0, 9.7), (0.2, 5.6), margin=0)
    box_lefts = (0.3, 2.7, 5.1, 7.5)
    box_width = 1.9
    for left_x, word_name, word in zip(box_lefts, "xyzw", (x, y, z, w), strict=True):
        draw_box(axes, left_x, 0.4, box_width, 0.6, "accent", f"{word_name}  {word:08x}", edge_colour="muted")
    product_halves = {"high0": (box_lefts[0], high_0), "low0": (box_lefts[1], low_0)}
    product_halves |= {"high1": (box_lefts[2], high_1), "low1": (box_lefts[3], low_1)}
    for half_name, (left_x, product_half) in product_halves.items():
        draw_box(
            axes, left_x, 2.1, box_width, 0.6, "warn", f"{half_name}  {product_half:08x}", edge_colour="muted"
        )

    def find_middle(index: int) -> float:
        return box_lefts[index] + box_width / 2

    for from_index, multiplier in ((0, "0xD2511F53"), (2, "0xCD9E8D57")):
        draw_text(axes, find_middle(from_index) + 1.95, 1.22, f"× {multiplier}", ha="center")
        for to_index in (from_index, from_index + 1):
            draw_arrow(axes, (find_middle(from_index), 1.0), (find_middle(to_index), 2.1), "muted")
    formulas = ("high1 ^ y ^ key.x", "low1", "high0 ^ w ^ key.y", "low0")
    for word_index, (word_name, word, formula) in enumerate(zip("xyzw", new_words, formulas, strict=True)):
        draw_box(
            axes,
            box_lefts[word_index],
            4.4,
            box_width,
            0.6,
            "good",
            f"{word_name}  {word:08x}",
            edge_colour="muted",
        )
        draw_text(axes, find_middle(word_index), 5.25, formula, ha="center")
    for from_index, to_index in ((2, 0), (3, 1), (0, 2), (1, 3)):
        draw_arrow(axes, (find_middle(from_index), 2.7), (find_middle(to_index), 4.4), "purple")
    new_words_text = ", ".join(
        f"{word_name} = {word:08x}" for word_name, word in zip("xyzw", new_words, strict=True)
    )
    return Picture.of(
        figure,
        f"One round of Philox. The words x = {x:08x} and z = {z:08x} are multiplied by constants. The halves "
        f"of the products cross over and are combined with y = {y:08x}, w = {w:08x} and the key: "
        f"{new_words_text}.",
    )


def circle_points(points_of_versions: Mapping[str, Any], most: int = 20_000) -> Picture:
    """Draw random points and a quarter circle in the unit square, in one picture per version.

    Parameters
    ----------
    points_of_versions
        The points of each version by its title, one row per point.
    most
        The largest number of points that are drawn per version.
    """
    figure = Figure(figsize=(7.6, 4.1), dpi=100)
    sentences = []
    for version_index, (version_title, points) in enumerate(points_of_versions.items()):
        axes = figure.add_axes((0.03 + 0.5 * version_index, 0.03, 0.44, 0.82))
        unique_points = np.unique(points, axis=0)
        shown_points = unique_points if len(unique_points) < 1000 else points[:: max(1, len(points) // most)]
        is_inside = (shown_points**2).sum(axis=1) < 1
        for is_chosen, colour in ((is_inside, "accent"), (~is_inside, "warn")):
            marker_size = 9 if shown_points is unique_points else 0.6
            axes.scatter(
                shown_points[is_chosen, 0],
                shown_points[is_chosen, 1],
                s=marker_size,
                color=find_hex(colour),
                linewidths=0,
            )
        angles = np.linspace(0, np.pi / 2, 100)
        axes.plot(np.cos(angles), np.sin(angles), color="black", lw=1.2)
        axes.set_xlim(0, 1)
        axes.set_ylim(0, 1)
        axes.set_xticks([])
        axes.set_yticks([])
        inside_share = float(((points**2).sum(axis=1) < 1).mean())
        axes.set_title(
            f"{version_title}\n{len(unique_points):,} different points, π ≈ {4 * inside_share:.4f}",
            fontsize=10,
        )
        sentences.append(
            f"{version_title}: {len(unique_points):,} different points, {inside_share:.1%} inside the circle"
        )
    return Picture.of(figure, f"Points in a square and a quarter of a circle. {'; '.join(sentences)}.")


class Roulette(View):
    """A chart of the results of several programs, which shows how often each result occurs.

    Parameters
    ----------
    results
        The result of each run, by program.
    provenance
        The provenance of the results.
    """

    def __init__(self, results: Mapping[str, Sequence[float]], provenance: Provenance) -> None:
        self.results = dict(results)
        self.provenance = provenance
        super().__init__(
            title="Order roulette",
            caption=f"Results {provenance.of_results}.",
            source=provenance.of_results.split()[0],
        )
        self.redraw()

    @property
    def record(self) -> dict[str, Counter[float]]:
        """The number of occurrences of each result in the runs of each program."""
        return {name: Counter(run_results) for name, run_results in self.results.items()}

    def sentence(self) -> str:
        counts_text = "; ".join(
            f"{name}: {len(result_counter):,} different "
            f"{'result' if len(result_counter) == 1 else 'results'} "
            f"in {result_counter.total():,} runs"
            for name, result_counter in self.record.items()
        )
        return f"{counts_text}; {self.provenance.of_results}."

    def describe(self) -> str:
        lines = [
            f"{name}, {value:.9g}: {occurrences} times"
            for name, result_counter in self.record.items()
            for value, occurrences in sorted(result_counter.items())
        ]
        return "\n".join([self.sentence(), *lines])

    def draw(self) -> Box:
        first_program, *other_programs = self.record.items()
        folded_histograms = [
            fold(name, _draw_histogram(result_counter), opened=False)
            for name, result_counter in other_programs
        ]
        bar_note = words(
            "Each bar is one sum, to its last bit; its length shows how often it occurred.", "note"
        )
        return column(
            words(first_program[0], "strong"), _draw_histogram(first_program[1]), *folded_histograms, bar_note
        )


def _draw_histogram(result_counter: Counter[float]) -> Box:
    """Return bars for the results that occur most often."""
    largest_count = max(result_counter.values())
    shown_values = sorted(result_counter.most_common(_MAX_BARS))
    bar_rows = [
        {
            "label": f"{value:.9g}",
            "share": occurrences / largest_count,
            "value": f"{occurrences} of {result_counter.total()}",
        }
        for value, occurrences in shown_values
    ]
    if len(result_counter) > len(shown_values):
        other_value_count = len(result_counter) - len(shown_values)
        other_run_count = result_counter.total() - sum(occurrences for _, occurrences in shown_values)
        bar_rows.append(
            {
                "label": f"{other_value_count} more",
                "share": None,
                "value": f"{other_run_count} of {result_counter.total()}",
            }
        )
    return bars(bar_rows, label=0.3)


def recorded() -> Any:
    """Load the measurements that were recorded on an H200."""
    file = resources.files("gpulab_course.content.n14_random") / "recorded.json"
    return json.loads(file.read_text(encoding="utf-8"))


def switches() -> str:
    """Return a table of the results and times of PyTorch operations on an H200, by seed and deterministic
    mode.
    """
    record = recorded()

    def make_cells(measurement: Any) -> tuple[str, str]:
        if measurement.get("refused"):
            return "refused", ""
        return f"{measurement['distinct']} of {measurement['runs']}", f"{measurement['median_us']:,.0f} µs"

    rows = tuple(
        (name, *make_cells(measurements["seeded"]), *make_cells(measurements["deterministic"]))
        for name, measurements in record["operations"].items()
    )
    headings = ("operation", "results, seeded", "time", "results, deterministic", "time")
    title = f"PyTorch {record['torch']}, recorded on an {record['device']}"
    return Table(title, headings, rows).text()
