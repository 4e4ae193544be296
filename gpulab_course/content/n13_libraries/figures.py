"""Figures of notebook 13 in addition to the views of gpulab: counters that stop, errors and speeds."""

from __future__ import annotations

import json
from collections.abc import Sequence
from importlib import resources
from typing import Any

from gpulab.analysis.formats import BF16, E4M3, FP16, FP32, TF32, Format
from gpulab.views._base import View
from gpulab.views.parts.axes import Axes, Axis, log_axis
from gpulab.views.parts.boxes import Box, bars, column, table, words
from gpulab.views.parts.items import Item, Labels, Line
from gpulab.views.tables import Table
from gpulab.words import number
from gpulab_course.content.n13_libraries import errors
from gpulab_course.content.ranges import among as among
from virtualgpu.records import Provenance

COUNTERS = (FP32, TF32, FP16, BF16, E4M3)
COLOURS = ("accent", "good", "purple", "warn", "tail")


def count_by_ones(form: Format, most: int = 10_000) -> list[int]:
    """A counter of this format: 0, and what it holds after each of `most` additions of 1.

    Each sum is rounded to the nearest number of the format; a counter that stays where it is has stopped.
    """
    held = [0]
    while len(held) <= most:
        following = int(form.round(held[-1] + 1))
        if following == held[-1]:
            held += [following] * (most + 1 - len(held))
            break
        held.append(following)
    return held


def stops_at(form: Format) -> int:
    """Return the value at which a counter of this format stops: the first power of two that loses 1.

    Below a power of two that still counts, numbers lie no further apart, so nothing in between stops.
    """
    power = 0
    while form.round(2**power + 1) != 2**power:
        power += 1
    return int(2**power)


class Counters(View):
    """Counters that 1 is added to again and again, one for each format.

    Parameters
    ----------
    formats
        Those to count in.
    most
        How many ones are added.
    """

    def __init__(self, formats: Sequence[Format] = COUNTERS, most: int = 10_000) -> None:
        self.most = most
        self.counts = {form.name: count_by_ones(form, most) for form in formats}
        super().__init__(
            title=f"Count to {most:,} by ones",
            caption="Each sum computed exactly, then rounded to the nearest number of the format, ties to "
            "even.",
        )
        self.redraw()

    @property
    def record(self) -> dict[str, int]:
        """The last value of each counter, by name."""
        return {name: held[-1] for name, held in self.counts.items()}

    def sentence(self) -> str:
        ends = ", ".join(f"{name} at {end:,}" for name, end in self.record.items())
        return f"After {self.most:,} ones the counters stand: {ends}; computed."

    def describe(self) -> str:
        return self.sentence()

    def draw(self) -> Box:
        axes = Axes(
            log_axis(1, self.most, "ones added", (1,)), log_axis(1, self.most, "counter", (1,)), 210, 12
        )
        lines: list[Item] = []
        ends: dict[int, list[str]] = {}
        for (name, held), colour in zip(self.counts.items(), COLOURS, strict=False):
            end = held[-1]
            xs = [1.0, float(max(end, 1)), float(self.most)]
            lines.append(Line(axes.x(xs), axes.y([1.0, float(end), float(end)]), colour, width=2))
            ends.setdefault(end, []).append(name)
        places = axes.y([float(end) for end in ends])
        names = [" and ".join(each) for each in ends.values()]
        named = Labels(axes.x([float(self.most)] * len(ends)), places, names, dx=6)
        rows = [
            {"label": name, "share": held[-1] / self.most, "value": f"{held[-1]:,}", "colour": colour}
            for (name, held), colour in zip(self.counts.items(), COLOURS, strict=False)
        ]
        return column(
            bars(rows, label=0.15),
            axes.plot(*lines, named, label=self.sentence(), left=58, right=110),
            words("Where a line turns, the counter has stopped: one more is rounded away.", "note"),
        )


def recorded() -> Any:
    """Return the record of an H200."""
    file = resources.files("gpulab_course.content.n13_libraries") / "recorded.json"
    return json.loads(file.read_text(encoding="utf-8"))


def origin() -> Provenance:
    """Return the provenance of `recorded`."""
    known = recorded()
    return Provenance("recorded", known["device"], f"PyTorch {known['torch']}")


def switches() -> str:
    """The error of one product of FP32 matrices, with each switch of CuPy's and PyTorch's, on an H200."""
    known = recorded()

    def rows(name: str, cases: Sequence[Any]) -> list[tuple[str, ...]]:
        by_tf32 = {True: "TF32", False: "FP32"}
        return [(name, each["case"], f"{each['rms']:.1e}", by_tf32[each["rms"] > 1e-5]) for each in cases]

    told = [each for each in known["torch_switches"] if not each["case"].startswith("autocast")]
    title = f"CuPy {known['cupy']} and PyTorch {known['torch']}, recorded on an {known['device']}"
    both = rows("CuPy", known["cupy_switches"]) + rows("PyTorch", told)
    return Table(title, ("library", "what was set", "typical error", "so it was"), tuple(both)).text()


def autocast() -> str:
    """Types of results under autocast to FP16 and to BF16, on an H200."""
    known = recorded()
    rows = tuple((name, *types) for name, types in known["autocast"].items())
    title = f"Autocast of PyTorch {known['torch']}, recorded on an {known['device']}"
    return Table(title, ("operation", "to float16", "to bfloat16"), rows).text()


def accumulators() -> Table:
    """Bits of a sum that an H200's tensor cores keep, by how far apart its terms are."""
    known = recorded()
    products = {
        "FP16, BF16 or TF32": "FP16",
        "FP8 E4M3": "FP8",
        "FP8 E4M3, use_fast_accum=True": "FP8 fast",
    }
    places = ("(0, 1, 2)", "(0, 64, 128)", "(0, 128, 256)")
    rows = tuple(
        (name, *(str(known["accumulators"][f"{key} {place}"]) for place in places))
        for name, key in products.items()
    )
    headings = ("product", "terms next to each other", "64 terms apart", "128 terms apart")
    return Table(f"Bits that a sum keeps, cuBLAS, {origin().label}", headings, rows)


def positive_sums(k: int = 4096) -> str:
    """Errors of sums of so many products of positive FP8 numbers, on an H200."""
    row = next(each["rms"] for each in recorded()["positive_sums"] if each["k"] == k)
    fast, slow, half = (row[name] for name in ("fp8 fast=True", "fp8 fast=False", "the same numbers as fp16"))
    return (
        f"Sums of {k:,} products of positive FP8 numbers: typical error {slow:.1e}, with use_fast_accum "
        f"{fast:.1e}, of the same numbers as FP16 {half:.1e}; {origin().label}"
    )


def tf32_rounding() -> str:
    """Describe how cuBLAS on an H200 rounds the bits that TF32 cannot represent."""
    known = recorded()["tf32"]
    share = known["identity"]["PyTorch"]["nearest, ties to even"]
    return (
        f"cuBLAS: typical error {known['errors']['normal']['cuBLAS']:.1e}; in a product with the identity "
        f"{share:.0%} of the elements are rounded to the nearest; {origin().label}"
    )


class ErrorsAndSpeeds(View):
    """One product of matrices in each format: its typical error over its speed, as an H200 had them.

    Parameters
    ----------
    k
        Products that are added up for each element whose error is told: one of those recorded.
    """

    def __init__(self, k: int = 4096) -> None:
        known = recorded()
        self.k, self.provenance = k, origin()
        found = {each["format"]: each["rms"] for each in known["errors"] if each["k"] == k}
        if not found:
            there = sorted({each["k"] for each in known["errors"]})
            raise ValueError(f"No product with k = {k} was recorded; there are {', '.join(map(str, there))}.")
        formats = {form.name: form for form in COUNTERS}
        self.rows = [
            (
                each["format"],
                each["tflops"],
                found[each["format"]],
                errors.product_rms(k, formats[each["format"]]),
            )
            for each in known["speed"]
            if each["format"] in formats
        ]
        super().__init__(
            title="Error against speed of one product",
            caption=f"Speeds of n = {known['speed'][0]['n']:,} and errors {self.provenance.label}; model: "
            "inputs rounded, sums a random walk in FP32.",
            source=self.provenance.source,
        )
        self.redraw()

    @property
    def record(self) -> list[tuple[str, float, float, float]]:
        """Format, TFLOP/s, typical error as recorded and as modelled, of each format."""
        return self.rows

    def sentence(self) -> str:
        told = "; ".join(
            f"{name} {number(speed)} TFLOP/s, {found:.1e}" for name, speed, found, _ in self.rows
        )
        return f"Error against speed, k = {self.k:,}: {told}; {self.provenance.label}."

    def describe(self) -> str:
        return self.sentence()

    def draw(self) -> Box:
        speeds = [row[1] for row in self.rows]
        found = [row[2] for row in self.rows]
        across = log_axis(min(speeds) / 1.3, max(speeds) * 1.3, "TFLOP/s", (1, 2, 5))
        up = log_axis(min(found) / 2, max(found) * 2, "typical error", (1,))
        up = Axis(up.low, up.high, {at: f"{at:.0e}" for at in up.ticks}, up.name, up.base, grid=True)
        axes = Axes(across, up, 220, 12)
        said = [f"{name}: {number(speed)} TFLOP/s, error {e:.1e}" for name, speed, e, _ in self.rows]
        names = Labels(axes.x(speeds), axes.y(found), [row[0] for row in self.rows], dx=8)
        rows = [
            (name, number(speed), f"{each:.2e}", f"{model:.2e}") for name, speed, each, model in self.rows
        ]
        headings = ("format", "TFLOP/s, recorded", "typical error, recorded", "as modelled")
        return column(
            axes.plot(axes.points(speeds, found, said), names, label=self.sentence(), left=58, right=80),
            table(rows, headings=headings),
        )
