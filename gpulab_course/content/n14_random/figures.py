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

    On a virtual GPU each run has its blocks in another order; a real one has its own.
    """
    cp = session.cp()
    found = []
    for number in range(runs):
        total = cp.zeros(1, np.float32)
        with block_order("random", seed=number):
            kernel((blocks,), (256,), (x, total, np.int32(x.size)))
        found.append(float(total[0]))
    return found


class Roulette(View):
    """The number of occurrences of each result, by program; the first is open, the others wait for a click.

    Parameters
    ----------
    results
        What each program gave, run after run.
    provenance
        Where the results come from.
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
        counted = "; ".join(
            f"{name}: {len(found):,} different {'result' if len(found) == 1 else 'results'} "
            f"in {found.total():,} runs"
            for name, found in self.record.items()
        )
        return f"{counted}; {self.provenance.label}."

    def describe(self) -> str:
        lines = [
            f"{name}, {value:.9g}: {count} times"
            for name, found in self.record.items()
            for value, count in sorted(found.items())
        ]
        return "\n".join([self.sentence(), *lines])

    def draw(self) -> Box:
        first, *others = self.record.items()
        folds = [fold(name, _histogram(found), opened=False) for name, found in others]
        note = words("Each bar is one sum, to its last bit; its length says how often it came.", "note")
        return column(words(first[0], "strong"), _histogram(first[1]), *folds, note)


def _histogram(found: Counter[float]) -> Box:
    most = max(found.values())
    kept = sorted(found.most_common(_MOST_BARS))
    rows = [
        {"label": f"{value:.9g}", "share": count / most, "value": f"{count} of {found.total()}"}
        for value, count in kept
    ]
    if len(found) > len(kept):
        left = len(found) - len(kept)
        rest = found.total() - sum(count for _, count in kept)
        rows.append({"label": f"{left} more", "share": None, "value": f"{rest} of {found.total()}"})
    return bars(rows, label=0.3)


def recorded() -> Any:
    """Return the record of an H200."""
    file = resources.files("gpulab_course.content.n14_random") / "recorded.json"
    return json.loads(file.read_text(encoding="utf-8"))


def switches() -> str:
    """Operations of PyTorch on an H200: different results and time, seeded, and with "
    "deterministic algorithms."""
    known = recorded()

    def told(cell: Any) -> tuple[str, str]:
        if cell.get("refused"):
            return "refused", ""
        return f"{cell['distinct']} of {cell['runs']}", f"{cell['median_us']:,.0f} µs"

    rows = tuple(
        (name, *told(both["seeded"]), *told(both["deterministic"]))
        for name, both in known["operations"].items()
    )
    headings = ("operation", "results, seeded", "time", "results, deterministic", "time")
    title = f"PyTorch {known['torch']}, recorded on an {known['device']}"
    return Table(title, headings, rows).text()
