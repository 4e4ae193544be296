"""Figures of notebook 14 in addition to the views of gpulab: a roulette of sums, and effects of switches."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from importlib import resources
from typing import Any

import numpy as np

from gpulab import session
from gpulab.lab.kernels import block_order
from gpulab.views._base import View
from gpulab.views.parts.boxes import Box, bars, column, fold, words
from gpulab.views.tables import Table
from gpulab_course.content.ranges import among as among
from virtualgpu.records import Provenance

RUNS = 200
_MOST_BARS = 14


def totals(kernel: Any, x: Any, blocks: int, runs: int = RUNS) -> list[float]:
    """Run ``kernel(x, total, n)`` several times and return the totals.

    On a virtual GPU each run has another order of its blocks; a real GPU chooses the order itself.
    """
    cp = session.cp()
    results = []
    for number in range(runs):
        total = cp.zeros(1, np.float32)
        with block_order("random", seed=number):
            kernel((blocks,), (256,), (x, total, np.int32(x.size)))
        results.append(float(total[0]))
    return results


class Roulette(View):
    """The number of occurrences of each result, by program; only the first program is unfolded.

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
            title="Order roulette", caption=f"Results {provenance.label}.", source=provenance.source
        )
        self.redraw()

    @property
    def record(self) -> dict[str, Counter[float]]:
        """The number of occurrences of each result, by program."""
        return {name: Counter(values) for name, values in self.results.items()}

    def sentence(self) -> str:
        counts = "; ".join(
            f"{name}: {len(counter):,} different {'result' if len(counter) == 1 else 'results'} "
            f"in {counter.total():,} runs"
            for name, counter in self.record.items()
        )
        return f"{counts}; {self.provenance.label}."

    def describe(self) -> str:
        lines = [
            f"{name}, {value:.9g}: {count} times"
            for name, counter in self.record.items()
            for value, count in sorted(counter.items())
        ]
        return "\n".join([self.sentence(), *lines])

    def draw(self) -> Box:
        first_program, *other_programs = self.record.items()
        folds = [fold(name, _histogram(counter), opened=False) for name, counter in other_programs]
        note = words("Each bar is one sum, to its last bit; its length shows how often it occurred.", "note")
        return column(words(first_program[0], "strong"), _histogram(first_program[1]), *folds, note)


def _histogram(counter: Counter[float]) -> Box:
    """Return bars of the most common results."""
    largest_count = max(counter.values())
    shown_values = sorted(counter.most_common(_MOST_BARS))
    rows = [
        {"label": f"{value:.9g}", "share": count / largest_count, "value": f"{count} of {counter.total()}"}
        for value, count in shown_values
    ]
    if len(counter) > len(shown_values):
        other_values = len(counter) - len(shown_values)
        other_runs = counter.total() - sum(count for _, count in shown_values)
        rows.append(
            {"label": f"{other_values} more", "share": None, "value": f"{other_runs} of {counter.total()}"}
        )
    return bars(rows, label=0.3)


def recorded() -> Any:
    """Return the record of an H200."""
    file = resources.files("gpulab_course.content.n14_random") / "recorded.json"
    return json.loads(file.read_text(encoding="utf-8"))


def switches() -> str:
    """Tabulate the results and times of PyTorch's operations on an H200, seeded and deterministic."""
    record = recorded()

    def cells(measurement: Any) -> tuple[str, str]:
        if measurement.get("refused"):
            return "refused", ""
        return f"{measurement['distinct']} of {measurement['runs']}", f"{measurement['median_us']:,.0f} µs"

    rows = tuple(
        (name, *cells(measurements["seeded"]), *cells(measurements["deterministic"]))
        for name, measurements in record["operations"].items()
    )
    headings = ("operation", "results, seeded", "time", "results, deterministic", "time")
    title = f"PyTorch {record['torch']}, recorded on an {record['device']}"
    return Table(title, headings, rows).text()
