"""Figures of notebook 13: counters that stop growing, number formats, rounding errors, and speeds."""

from __future__ import annotations

import itertools
import json
from collections.abc import Sequence
from importlib import resources
from typing import Any

from matplotlib.figure import Figure
from matplotlib.patches import Patch, Rectangle

from gpulab.analysis.formats import BF16, E4M3, E5M2, FP16, FP32, TF32, Format
from gpulab.views._base import View
from gpulab.views.parts.axes import Axes, Axis, make_log_axis
from gpulab.views.parts.boxes import Box, bars, column, table, words
from gpulab.views.parts.items import Item, Labels, Polyline
from gpulab.views.parts.palette import find_hex
from gpulab.views.tables import Table
from gpulab.words import number
from gpulab_course.content.n13_libraries import errors
from gpulab_course.content.ranges import among as among
from gpulab_course.teach.picture import Picture
from virtualgpu.records import Provenance

COUNTERS = (FP32, TF32, FP16, BF16, E4M3)
COLOURS = ("accent", "good", "purple", "warn", "tail")


def count_by_ones(number_format: Format, additions: int = 10_000) -> list[int]:
    """Return the values of a counter that starts at 0, after each addition of 1 in a number format.

    Each sum is rounded to the nearest number of the format, so that a counter stops at a large value.
    """
    values_after_step = [0]
    while len(values_after_step) <= additions:
        next_count = int(number_format.round(values_after_step[-1] + 1))
        if next_count == values_after_step[-1]:
            values_after_step += [next_count] * (additions + 1 - len(values_after_step))
            break
        values_after_step.append(next_count)
    return values_after_step


def stops_at(number_format: Format) -> int:
    """Return the value at which a counter in this number format stops because adding 1 has no effect.

    Only powers of two are tried, because the spacing of the numbers increases only there.
    """
    exponent = 0
    while number_format.round(2**exponent + 1) != 2**exponent:
        exponent += 1
    return int(2**exponent)


class Counters(View):
    """A chart of counters that repeatedly add 1, with one counter for each number format.

    Parameters
    ----------
    formats
        The formats of the counters.
    max_additions
        The number of additions.
    """

    def __init__(self, formats: Sequence[Format] = COUNTERS, max_additions: int = 10_000) -> None:
        self.max_additions = max_additions
        self.values_by_format = {
            number_format.name: count_by_ones(number_format, max_additions) for number_format in formats
        }
        super().__init__(
            title=f"Count to {max_additions:,} by ones",
            caption="Each sum computed exactly, then rounded to the nearest number of the format, ties to "
            "even.",
        )
        self.redraw()

    @property
    def record(self) -> dict[str, int]:
        """The final value of each counter, with the name of the number format as the key."""
        return {name: counter_values[-1] for name, counter_values in self.values_by_format.items()}

    def sentence(self) -> str:
        last_counts = ", ".join(f"{name} at {last_count:,}" for name, last_count in self.record.items())
        return f"After {self.max_additions:,} additions of 1, the counters are: {last_counts}; computed."

    def describe(self) -> str:
        return self.sentence()

    def draw(self) -> Box:
        axes = Axes(
            make_log_axis(1, self.max_additions, "ones added", (1,)),
            make_log_axis(1, self.max_additions, "counter", (1,)),
            210,
            12,
        )
        counter_lines: list[Item] = []
        names_by_count: dict[int, list[str]] = {}
        for (name, counter_values), colour in zip(self.values_by_format.items(), COLOURS, strict=False):
            last_count = counter_values[-1]
            x_values = [1.0, float(max(last_count, 1)), float(self.max_additions)]
            counter_lines.append(
                Polyline(
                    axes.x(x_values), axes.y([1.0, float(last_count), float(last_count)]), colour, width=2
                )
            )
            names_by_count.setdefault(last_count, []).append(name)
        label_y = axes.y([float(last_count) for last_count in names_by_count])
        names = [" and ".join(format_names) for format_names in names_by_count.values()]
        labels = Labels(axes.x([float(self.max_additions)] * len(names_by_count)), label_y, names, dx=6)
        table_rows = [
            {
                "label": name,
                "share": counter_values[-1] / self.max_additions,
                "value": f"{counter_values[-1]:,}",
                "colour": colour,
            }
            for (name, counter_values), colour in zip(self.values_by_format.items(), COLOURS, strict=False)
        ]
        return column(
            bars(table_rows, label=0.15),
            axes.draw_plot(*counter_lines, labels, label=self.sentence(), left=58, right=110),
            words(
                "Where a line becomes horizontal, the counter has stopped: a further 1 is rounded away.",
                "note",
            ),
        )


_BIT_FIELD_COLOURS = (("sign", "warn"), ("exponent", "accent"), ("fraction", "good"))
_MEMORY_BITS = {"TF32": 32}  # an element of the other formats has as many bits as the format
_MAX_EXPONENT_BITS = 8


def format_bits(value: float, formats: Sequence[Format] = (FP32, TF32, BF16, FP16, E4M3, E5M2)) -> Picture:
    """Draw the bits of a number in several formats, one format per row, with the fractions aligned.

    Parameters
    ----------
    value
        The number, which is rounded to each format.
    formats
        The formats, from top to bottom.
    """
    figure = Figure(figsize=(7.6, 0.42 * len(formats) + 0.75), dpi=100)
    axes = figure.add_axes((0.0, 0.0, 1.0, 1.0))
    format_rows = []
    for format_index, number_format in enumerate(formats):
        bit_text = f"{number_format.code(value):0{number_format.bits}b}"
        rounded_text = f"{float(number_format.round(value)):g}"
        left_x = _MAX_EXPONENT_BITS - number_format.exponent_bits
        unused_bits = _MEMORY_BITS.get(number_format.name, number_format.bits) - number_format.bits
        for bit_index, bit in enumerate(bit_text + " " * unused_bits):
            part_index = 0 if bit_index == 0 else 1 if bit_index <= number_format.exponent_bits else 2
            colour = find_hex(_BIT_FIELD_COLOURS[part_index][1]) if bit_index < len(bit_text) else "none"
            axes.add_patch(
                Rectangle(
                    (left_x + bit_index, format_index),
                    1,
                    0.72,
                    facecolor=colour,
                    edgecolor=find_hex("muted"),
                    lw=0.6,
                )
            )
            if bit_index < len(bit_text):
                text_colour = find_hex(f"on-{_BIT_FIELD_COLOURS[part_index][1]}")
                axes.text(
                    left_x + bit_index + 0.5,
                    format_index + 0.38,
                    bit,
                    ha="center",
                    va="center",
                    fontsize=9,
                    color=text_colour,
                )
        axes.text(-0.4, format_index + 0.38, number_format.name, ha="right", va="center", fontsize=10)
        axes.text(32.6, format_index + 0.38, rounded_text, va="center", fontsize=10)
        unused_bits_text = f" and {unused_bits} bits that are not used" if unused_bits else ""
        exponent, fraction = (
            bit_text[1 : number_format.exponent_bits + 1],
            bit_text[number_format.exponent_bits + 1 :],
        )
        format_rows.append(
            f"{number_format.name} has exponent {exponent}, fraction {fraction}{unused_bits_text}, "
            f"and is {rounded_text}"
        )
    axes.text(32.6, -0.35, "value", va="center", fontsize=10, color=find_hex("muted"))
    legend = [Patch(facecolor=find_hex(colour), label=name) for name, colour in _BIT_FIELD_COLOURS]
    legend.append(Patch(facecolor="none", edgecolor=find_hex("muted"), label="in memory, not used"))
    axes.legend(handles=legend, ncols=4, loc="lower center", frameon=False, fontsize=10)
    axes.set_xlim(-5.2, 35.4)
    axes.set_ylim(len(formats) + 0.9, -0.75)
    axes.set_axis_off()
    return Picture.of(
        figure, f"The bits of {value:g} in {len(formats)} formats, after the sign: {'; '.join(format_rows)}."
    )


def numbers_next_to_zero(number_format: Format = E4M3, powers: int = 2) -> Picture:
    """Draw the numbers of a format near 0 as marks on a number line.

    Parameters
    ----------
    number_format
        The format.
    powers
        The number of intervals between two powers of two that are drawn after the subnormal numbers.
    """
    step_count = 1 << number_format.fraction_bits
    representable_values = [float(number_format.value(code)) for code in range((powers + 1) * step_count + 1)]
    subnormal_count = step_count  # 0 has the smallest exponent as well
    figure = Figure(figsize=(7.6, 1.6), dpi=100)
    axes = figure.add_axes((0.03, 0.33, 0.94, 0.6))
    axes.axhline(0, color=find_hex("muted"), lw=1)
    number_groups = (
        ("0 and subnormal", "warn", representable_values[:subnormal_count]),
        ("normal", "accent", representable_values[subnormal_count:]),
    )
    for group_name, colour_name, group_values in number_groups:
        axes.vlines(group_values, 0, 0.6, color=find_hex(colour_name), lw=2, label=group_name)
    interval_ends = [representable_values[0], *representable_values[subnormal_count::step_count]]
    min_exponent = number_format.least_exponent
    superscript_table = str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹")
    labels = [
        "0",
        *(
            f"2{str(min_exponent + power_index).translate(superscript_table)}"
            for power_index in range(len(interval_ends) - 1)
        ),
    ]
    axes.vlines(interval_ends, 0, 0.9, color=find_hex("muted"), lw=1)
    for left_end, right_end in itertools.pairwise(interval_ends):
        axes.text(
            (left_end + right_end) / 2, 0.95, f"{step_count} steps", ha="center", va="center", fontsize=10
        )
    axes.set_xticks(interval_ends, labels, fontsize=10)
    axes.set_yticks([])
    axes.set_ylim(0, 1.15)
    axes.set_xlim(-representable_values[-1] * 0.01, representable_values[-1] * 1.01)
    for spine in axes.spines.values():
        spine.set_visible(False)
    axes.legend(ncols=2, loc="upper center", bbox_to_anchor=(0.5, -0.28), frameon=False, fontsize=10)
    return Picture.of(
        figure,
        f"The numbers of {number_format.name} from 0 to {representable_values[-1]:g}: {step_count} "
        f"steps from 0 to the smallest normal number, {interval_ends[1]:g}, and {step_count} steps from "
        f"each power of two to the next. A step is {representable_values[1]:g} from 0 to "
        f"{interval_ends[2]:g}, and {representable_values[-1] - representable_values[-2]:g} "
        "above.",
    )


def recorded() -> Any:
    """Load the measurements that were recorded on an H200."""
    file = resources.files("gpulab_course.content.n13_libraries") / "recorded.json"
    return json.loads(file.read_text(encoding="utf-8"))


def origin() -> Provenance:
    """Return the provenance of the recorded measurements."""
    record = recorded()
    return Provenance("recorded", record["device"], f"PyTorch {record['torch']}")


# What the recorded cases of CuPy set.
_TEXT_OF_SETTING = {
    "env before import": "CUPY_TF32=1, before the import",
    "env late": "CUPY_TF32=1, after the import",
    "env after a product": "CUPY_TF32=1, after a first multiplication",
    "compute type after a product": "compute type TF32, after a first multiplication",
    "NVIDIA_TF32_OVERRIDE=1 before": "NVIDIA_TF32_OVERRIDE=1, set early",
    "allow_tf32 = True, after products": "allow_tf32 = True, after multiplications",
}


def switches() -> str:
    """Return a table of the errors of FP32 matrix products on an H200 under the precision settings of CuPy
    and PyTorch.
    """
    record = recorded()

    def make_rows(library_name: str, switch_records: Sequence[Any]) -> list[tuple[str, ...]]:
        format_names = {True: "TF32", False: "FP32"}
        return [
            (
                library_name,
                _TEXT_OF_SETTING.get(switch_record["case"], switch_record["case"]),
                f"{switch_record['rms']:.1e}",
                format_names[switch_record["rms"] > 1e-5],
            )
            for switch_record in switch_records
        ]

    torch_cases = [
        switch_record
        for switch_record in record["torch_switches"]
        if not switch_record["case"].startswith("autocast")
    ]
    title = f"CuPy {record['cupy']} and PyTorch {record['torch']}, recorded on an {record['device']}"
    switch_rows = make_rows("CuPy", record["cupy_switches"]) + make_rows("PyTorch", torch_cases)
    return Table(title, ("library", "setting", "typical error", "computed in"), tuple(switch_rows)).text()


def autocast() -> str:
    """Return a table of the result types of PyTorch operations on an H200 with autocast to FP16 and to
    BF16.
    """
    record = recorded()
    rows = tuple((name, *result_types) for name, result_types in record["autocast"].items())
    title = f"Autocast of PyTorch {record['torch']}, recorded on an {record['device']}"
    return Table(title, ("operation", "to float16", "to bfloat16"), rows).text()


def accumulators() -> Table:
    """Return a table of the number of bits of a sum that the tensor cores of an H200 keep."""
    record = recorded()
    recorded_keys = {
        "FP16, BF16 or TF32": "FP16",
        "FP8 E4M3": "FP8",
        "FP8 E4M3, use_fast_accum=True": "FP8 fast",
    }
    term_positions = ("(0, 1, 2)", "(0, 64, 128)", "(0, 128, 256)")
    rows = tuple(
        (
            product_name,
            *(
                str(record["accumulators"][f"{recorded_key} {position_text}"])
                for position_text in term_positions
            ),
        )
        for product_name, recorded_key in recorded_keys.items()
    )
    headings = ("multiplication", "terms next to each other", "64 terms apart", "128 terms apart")
    return Table(f"Bits that a sum keeps, cuBLAS, {origin().label}", headings, rows)


def positive_sums(k: int = 4096) -> str:
    """Return a sentence about the errors of sums of positive FP8 products on an H200."""
    errors_by_case = next(
        sums_record["rms"] for sums_record in recorded()["positive_sums"] if sums_record["k"] == k
    )
    fast_error, slow_error, half_error = (
        errors_by_case[name] for name in ("fp8 fast=True", "fp8 fast=False", "the same numbers as fp16")
    )
    return (
        f"Sums of {k:,} products of positive FP8 numbers: typical error {slow_error:.1e}, with "
        f"use_fast_accum {fast_error:.1e}; with the same numbers in FP16 {half_error:.1e}; {origin().label}"
    )


def tf32_rounding() -> str:
    """Return a sentence about the rounding of FP32 numbers to TF32 by cuBLAS on an H200."""
    record = recorded()["tf32"]
    nearest_share = record["identity"]["PyTorch"]["nearest, ties to even"]
    return (
        f"cuBLAS: typical error {record['errors']['normal']['cuBLAS']:.1e}; multiplied by the identity "
        f"matrix, {nearest_share:.0%} of the elements are rounded to the nearest; {origin().label}"
    )


class ErrorsAndSpeeds(View):
    """A chart of the errors and the speeds of matrix products on an H200 in several number formats.

    Parameters
    ----------
    k
        The number of products per element of the result; one of the recorded values.
    """

    def __init__(self, k: int = 4096) -> None:
        record = recorded()
        self.k = k
        self.provenance = origin()
        errors_by_format = {
            measurement["format"]: measurement["rms"]
            for measurement in record["errors"]
            if measurement["k"] == k
        }
        if not errors_by_format:
            lengths = sorted({measurement["k"] for measurement in record["errors"]})
            raise ValueError(
                f"No product with k = {k} was recorded. Choose one of {', '.join(map(str, lengths))}."
            )
        formats = {number_format.name: number_format for number_format in COUNTERS}
        self.rows = [
            (
                measurement["format"],
                measurement["tflops"],
                errors_by_format[measurement["format"]],
                errors.product_rms(k, formats[measurement["format"]]),
            )
            for measurement in record["speed"]
            if measurement["format"] in formats
        ]
        super().__init__(
            title="Error against speed of one matrix multiplication",
            caption=f"Speeds of n = {record['speed'][0]['n']:,} and errors {self.provenance.label}; model: "
            "inputs rounded, sums a random walk in FP32.",
            source=self.provenance.source,
        )
        self.redraw()

    @property
    def record(self) -> list[tuple[str, float, float, float]]:
        """The name of each number format, with its speed in TFLOP/s, its recorded error and its modelled
        error.
        """
        return self.rows

    def sentence(self) -> str:
        format_texts = "; ".join(
            f"{name} {number(speed)} TFLOP/s, {error:.1e}" for name, speed, error, _ in self.rows
        )
        return f"Error against speed, k = {self.k:,}: {format_texts}; {self.provenance.label}."

    def describe(self) -> str:
        return self.sentence()

    def draw(self) -> Box:
        speeds_tflops = [format_row[1] for format_row in self.rows]
        recorded_errors = [format_row[2] for format_row in self.rows]
        speed_axis = make_log_axis(min(speeds_tflops) / 1.3, max(speeds_tflops) * 1.3, "TFLOP/s", (1, 2, 5))
        error_axis = make_log_axis(min(recorded_errors) / 2, max(recorded_errors) * 2, "typical error", (1,))
        error_axis = Axis(
            error_axis.low,
            error_axis.high,
            {tick: f"{tick:.0e}" for tick in error_axis.ticks},
            error_axis.name,
            error_axis.log_base,
            has_grid=True,
        )
        axes = Axes(speed_axis, error_axis, 220, 12)
        descriptions = [
            f"{name}: {number(speed)} TFLOP/s, error {error:.1e}" for name, speed, error, _ in self.rows
        ]
        format_labels = Labels(
            axes.x(speeds_tflops), axes.y(recorded_errors), [format_row[0] for format_row in self.rows], dx=8
        )
        table_rows = [
            (name, number(speed), f"{error:.2e}", f"{modelled_error:.2e}")
            for name, speed, error, modelled_error in self.rows
        ]
        headings = ("format", "TFLOP/s, recorded", "typical error, recorded", "as modelled")
        return column(
            axes.draw_plot(
                axes.draw_points(speeds_tflops, recorded_errors, descriptions),
                format_labels,
                label=self.sentence(),
                left=58,
                right=80,
            ),
            table(table_rows, headings=headings),
        )
