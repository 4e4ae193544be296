"""The precision view: the bits of a number in several formats, with its neighbours and its error."""

from __future__ import annotations

import math
from collections.abc import Sequence
from fractions import Fraction
from typing import Any

import traitlets

from gpulab.analysis.formats import BF16, Format, Number, Rounded
from gpulab.views._steered import Steered
from gpulab.views.parts.boxes import Box, column, fold, legend, slider, table, words
from gpulab.views.parts.items import Item, Labels, Rects
from gpulab.views.parts.palette import choose_ink
from gpulab.views.parts.plots import make_sentence_args, make_y_ticks, plot
from gpulab.views.tables import Column, Table

BIT_FIELD_NAMES = ("sign", "exponent", "fraction")
BIT_FIELD_COLOURS = ("tail", "good", "accent")
BIT_CELL_PX = 19
ROW_PX = 26
LEFT_MARGIN_PX = 72
MAX_BITS = 64
STEP_POSITIONS = range(-64, 65)
POWER_EXPONENTS = range(-48, 49)
CAPTION_TEXT = (
    "Computed exactly from the formats' definitions (IEEE 754-2019, PTX ISA, OCP FP8): rounded to "
    "nearest, ties to even."
)


class PrecisionView(Steered):
    """A view of a number in several floating-point formats, with bits, nearest value and error.

    Parameters
    ----------
    value
        The exact number, or a float that is infinite or NaN.
    formats
        The formats, from top to bottom.
    """

    step = traitlets.Int(0).tag(sync=True, echo_update=False)
    power = traitlets.Int(0).tag(sync=True, echo_update=False)

    def __init__(self, value: Number, formats: Sequence[Format]) -> None:
        self.value, self.formats = value, tuple(formats)
        super().__init__(title="A number in bits", caption=CAPTION_TEXT)
        if _is_finite(value):
            step_texts = [
                f"{position:+d}/8 of BF16's step" if position else "as given" for position in STEP_POSITIONS
            ]
            power_texts = [f"times 2^{position}" if position else "as given" for position in POWER_EXPONENTS]
            self.controls = [
                slider("Move", "step", STEP_POSITIONS, step_texts).wire(),
                slider("Scale", "power", POWER_EXPONENTS, power_texts).wire(),
            ]
        self.pictured = {"step": 0, "power": 0}
        self.redraw()
        self.observe(self._on_slider, ["step", "power"])

    @property
    def shown(self) -> Number:
        """The number that is selected by the sliders."""
        if not (self.step or self.power):
            return self.value
        magnitude = max(abs(BF16.round(self.value)), BF16.smallest_normal)
        bf16_spacing = (
            Fraction(BF16.neighbours(magnitude)[1]) - Fraction(magnitude)
            if magnitude < BF16.largest
            else Fraction(1)
        )
        return (Fraction(self.value) + self.step * bf16_spacing / 8) * Fraction(2) ** self.power

    @property
    def record(self) -> tuple[Rounded, ...]:
        """The record of the number in each floating-point format."""
        return tuple(Rounded.of(self.shown, number_format) for number_format in self.formats)

    def sentence(self) -> str:
        value_texts = ", ".join(
            f"{rounding.form.name} {_format_number(rounding.value)}" for rounding in self.record
        )
        return f"{_format_number(self.shown)} is {value_texts}; computed exactly."

    def describe(self) -> str:
        return "\n".join([self.sentence(), *(_describe_number(rounding) for rounding in self.record)])

    def tables(self) -> tuple[Table, ...]:
        """Return a table with one row per floating-point format."""
        format_rows = tuple(
            (
                rounding.form.name,
                *(
                    _to_float(value)
                    for value in (rounding.value, rounding.below, rounding.above, rounding.error)
                ),
            )
            for rounding in self.record
        )
        columns = ("format", "nearest", Column("next below", "below"), Column("next above", "above"), "error")
        return (Table("Nearest numbers", columns, format_rows),)

    def plot(self, ax: Any = None) -> Any:
        """Draw the bits of each floating-point format with matplotlib, for the number that the sliders
        select.

        Parameters
        ----------
        ax
            Axes to draw on. Without them a new pyplot figure is made.

        Returns
        -------
        matplotlib.axes.Axes
            The axes.
        """
        from gpulab.views._figure import WIDTH_IN, colour

        record = self.record
        if ax is None:
            from matplotlib import pyplot

            figure_size_in = (WIDTH_IN, 1 + 0.3 * len(record))
            ax = pyplot.figure(figsize=figure_size_in, layout="constrained").subplots()
        for row, rounding in enumerate(record):
            bit_position = 0
            for name, bits in zip(BIT_FIELD_COLOURS, rounding.form.parts(rounding.code), strict=True):
                for bit in bits:
                    colour_name = name if bit == "1" else f"{name}-pale"
                    ax.barh(row, 0.92, 0.75, left=bit_position, color=colour(colour_name))
                    ink_name = choose_ink(name) if bit == "1" else "fg"
                    ax.text(
                        bit_position + 0.46,
                        row,
                        bit,
                        ha="center",
                        va="center",
                        fontsize=7,
                        color=colour(ink_name),
                    )
                    bit_position += 1
        for name, bit_field_name in zip(BIT_FIELD_COLOURS, BIT_FIELD_NAMES, strict=True):
            ax.bar(0, 0, color=colour(name), label=bit_field_name)
        ax.set_yticks(range(len(record)), [rounded.form.name for rounded in record])
        ax.set_ylim(len(record) - 0.4, -0.6)
        ax.set_xlim(-0.3, MAX_BITS)
        ax.set_xticks([])
        ax.spines[:].set_visible(False)
        ax.tick_params(left=False)
        ax.legend(loc="lower right", ncols=3, frameon=False, handlelength=1)
        ax.set_title(
            f"{_format_number(self.shown)}, to the nearest number of each format; computed exactly",
            loc="left",
        )
        return ax

    def draw(self) -> Box:
        record = self.record
        format_rows = []
        for rounding in record:
            number_format = rounding.form
            value_texts = (
                _format_number(value, number_format)
                for value in (rounding.value, rounding.below, rounding.above)
            )
            format_rows.append((number_format.name, *value_texts, _format_error(rounding)))
        return column(
            words(f"{_format_number(self.shown)}, to the nearest number of each format", "heading"),
            legend(zip(BIT_FIELD_COLOURS, BIT_FIELD_NAMES, strict=True)),
            self._draw_bit_cells(record),
            table(format_rows, headings=("format", "nearest", "next below", "next above", "error")),
            fold(
                "Ranges, and the values beyond them",
                table(
                    [_describe_range(number_format) for number_format in self.formats],
                    headings=("format", "largest", "smallest normal", "smallest", "too large becomes"),
                ),
                opened=False,
            ),
        )

    def _on_slider(self, _: Any) -> None:
        with self._lock, self.hold_sync():
            with self._show_errors("Moving the number"):
                self.redraw()
            self.confirm_picture({"step": self.step, "power": self.power})

    def _draw_bit_cells(self, record: Sequence[Rounded]) -> Box:
        x = []
        y = []
        shade_indices = []
        cell_sentences = []
        digits_by_ink: dict[str, list[tuple[float, float, str]]] = {}
        for row, rounding in enumerate(record):
            row_top = float(row * ROW_PX + 2)
            bit_position = 0
            for bit_field_index, bits in enumerate(rounding.form.parts(rounding.code)):
                for bit in bits:
                    is_one = bit == "1"
                    x.append(float(bit_position))
                    y.append(row_top)
                    shade_indices.append(2 * bit_field_index + is_one)
                    bit_number = rounding.form.bits - 1 - bit_position
                    cell_sentences.append(
                        f"{rounding.form.name}, {BIT_FIELD_NAMES[bit_field_index]}: bit {bit_number} is {bit}"
                    )
                    ink_name = choose_ink(BIT_FIELD_COLOURS[bit_field_index]) if is_one else "fg"
                    digits_by_ink.setdefault(ink_name, []).append(
                        (bit_position + 0.5, row_top + BIT_CELL_PX / 2, bit)
                    )
                    bit_position += 1
        shade_names = [name for colour in BIT_FIELD_COLOURS for name in (f"{colour}-pale", colour)]
        bit_cells = Rects(
            x,
            [row + 1 for row in x],
            y,
            [row + BIT_CELL_PX for row in y],
            shade_indices,
            shade_names,
            inset=0.5,
            **make_sentence_args(cell_sentences),
        )
        bit_labels: list[Item] = []
        for ink_name, ink_digits in digits_by_ink.items():
            xs, ys, bit_texts = zip(*ink_digits, strict=True)
            bit_labels.append(Labels(xs, ys, bit_texts, anchor="middle", colour=ink_name, size=10, mono=True))
        row_middles = [row * ROW_PX + 2 + BIT_CELL_PX / 2 for row in range(len(record))]
        format_ticks = make_y_ticks(row_middles, [rounded.form.name for rounded in record], (0, MAX_BITS))
        return plot(
            len(record) * ROW_PX + 4,
            (0, MAX_BITS),
            bit_cells,
            *bit_labels,
            format_ticks,
            left=LEFT_MARGIN_PX,
            label=self.sentence(),
            hint="Point at a bit, or use the arrow keys.",
        )


def _to_float(value: Number | None) -> float | None:
    """Return a number as a float; a number that is too large becomes infinite."""
    if value is None:
        return None
    try:
        return float(value)
    except OverflowError:
        return math.inf if value > 0 else -math.inf


def _is_finite(value: Number) -> bool:
    return not isinstance(value, float) or math.isfinite(value)


def _format_number(value: Number, number_format: Format | None = None) -> str:
    """Return a number as text, with enough digits to distinguish the format's numbers."""
    if not _is_finite(value):
        if math.isnan(value):
            return "NaN"
        return "∞" if value > 0 else "−∞"
    try:
        nearest_value = float(value)
    except OverflowError:
        return "more than FP64 can hold" if value > 0 else "less than FP64 can hold"
    if value and not nearest_value:
        return "closer to 0 than FP64 can show"
    digits = 17 if number_format and number_format.fraction_bits > 30 else 10
    return f"{nearest_value:,.{digits}g}".replace("-", "\N{MINUS SIGN}")


def _format_error(rounding: Rounded) -> str:
    if rounding.error is None:
        return "too large" if _is_finite(rounding.number) else "none"
    exact_error = Fraction(rounding.value) - Fraction(rounding.number)
    if not exact_error:
        return "0"
    percentage = float(100 * abs(exact_error / Fraction(rounding.number)))
    percent_text = f"{percentage:.2g}" if percentage < 99.5 else f"{percentage:.0f}"
    error_text = f"{rounding.error:+.3g}" if rounding.error else "less than FP64 can show"
    return f"{error_text} ({percent_text} %)".replace("-", "\N{MINUS SIGN}")


def _describe_range(number_format: Format) -> tuple[str, ...]:
    overflow_text = "∞" if number_format.has_infinity else "NaN (there is no ∞)"
    range_limits = (
        f"{value:,.6g}".replace("-", "\N{MINUS SIGN}")
        for value in (number_format.largest, number_format.smallest_normal, number_format.smallest)
    )
    return (number_format.name, *range_limits, overflow_text)


def _describe_number(rounding: Rounded) -> str:
    sign_bit, exponent_bits, fraction_bits = rounding.form.parts(rounding.code)
    nearest_text, below_text, above_text = (
        _format_number(value, rounding.form) for value in (rounding.value, rounding.below, rounding.above)
    )
    return (
        f"{rounding.form.name}: sign {sign_bit}, exponent {exponent_bits}, fraction {fraction_bits}; "
        f"nearest {nearest_text}, error {_format_error(rounding)}, next below {below_text}, next above "
        f"{above_text}."
    )
