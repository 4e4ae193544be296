"""The results of ``gl.library_calls`` and ``gl.tune`` as tables."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from gpulab.views.tables import Cell, Column, Shown, Table, times
from gpulab.words import count, duration, listing, number
from virtualgpu.records.libraries import Calls, Candidate, Choice, Ending, Tuning

MOST_CALLS = 40
_NAME_CHARACTERS = 48


@dataclass(frozen=True, slots=True, repr=False)
class CallsTable(Shown[Calls], Calls):
    """Operations with the library routines and kernels that they call, as a table."""

    @property
    def caption(self) -> str:
        """The function, the number of its operations, and the origin of the answer."""
        return f"{self.function}: {count(len(self.endings), 'operation')}; {self.provenance.label}."

    def tables(self) -> tuple[Table, ...]:
        """Return one row per operation, for the first `MOST_CALLS` operations."""
        rows = tuple(_row(ending) for ending in self.endings)
        left_out = len(self.endings) - MOST_CALLS
        title = f"The first {MOST_CALLS}; {number(left_out)} more." if left_out > 0 else ""
        headings = ("operation", "dtype", "size", "layout", "library", "routine", "kernels")
        return (Table(title, headings, rows, hide_empty=True, most=MOST_CALLS),) if rows else ()

    def sentences(self) -> Sequence[str]:
        """Name operations that were not recorded, with the nearest recorded one."""
        sentences = []
        for ending in dict.fromkeys(one for one in self.endings if one.recorded is False):
            near = f"; the nearest that was: {ending.nearest}" if ending.nearest else ""
            sentences.append(f"{ending.operation} was not recorded{near}.")
        if not self.endings:
            sentences.append("No kernel ran.")
        return [*sentences, *([self.note] if self.note else [])]


def _row(ending: Ending) -> tuple[Any, ...]:
    operation = ending.operation
    words: tuple[Any, ...] = (None,) * 4
    if operation:
        words = operation.name, operation.dtype, operation.size, operation.layout
    if ending.recorded is False:
        return *words, Cell(None, "not recorded"), None, None
    routines = ", ".join(times(count, name) for name, count in ending.routines)
    kernels = ", ".join(times(count, name) for name, count in ending.kernels)
    shortened = ", ".join(times(count, _short(name)) for name, count in ending.kernels)
    return (
        *words,
        listing(ending.libraries) or None,
        routines or None,
        Cell(kernels, shortened) if kernels else None,
    )


def _short(kernel: str) -> str:
    """A kernel's name that is not longer than a line."""
    return kernel if len(kernel) <= _NAME_CHARACTERS else f"{kernel[: _NAME_CHARACTERS - 1]}…"


@dataclass(frozen=True, slots=True, repr=False)
class TuningTable(Shown[Tuning], Tuning):
    """The choices of a tuner, with a table for each key."""

    @property
    def caption(self) -> str:
        """The number of choices, and the origin of the times."""
        return f"{count(len(self.choices), 'choice')}; times {self.provenance.label}."

    def tables(self) -> tuple[Table, ...]:
        """A table for each key: right candidates by their medians, then those that were refused."""
        return tuple(_choice(choice) for choice in self.choices)

    def sentences(self) -> Sequence[str]:
        """Notes on choices that were cut short."""
        return [choice.note for choice in self.choices if choice.note]


def _choice(choice: Choice) -> Table:
    fastest = min((one.median_ns for one in choice.candidates if one.median_ns), default=None)
    ordered = sorted(choice.candidates, key=lambda one: (bool(one.why), one.median_ns or 0))
    rows = tuple(_candidate(one, fastest) for one in ordered)
    columns = (
        "candidate",
        "result",
        Column("median", "median_ns", duration),
        Column("shortest", "shortest_ns", duration),
        Column("longest", "longest_ns", duration),
        Column("calls", show=number),
        Column("of the fastest's time", "of_fastest", _factor),
    )
    return Table("; ".join(choice.key), columns, rows)


def _candidate(one: Candidate, fastest: float | None) -> tuple[Any, ...]:
    if one.median_ns is None:
        return one.name, one.why or "right", *(None,) * 5
    factor = one.median_ns / fastest if fastest else None
    spread = (one.median_ns, min(one.times_ns), max(one.times_ns))
    return one.name, one.why or "right", *spread, len(one.times_ns), factor


def _factor(value: float) -> str:
    return f"{number(value)} ×"
