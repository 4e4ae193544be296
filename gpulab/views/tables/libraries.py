"""``gl.calls``'s and ``gl.tune``'s answers as tables."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from gpulab.views.tables import NOTHING, Shown, Table, times
from gpulab.words import count, duration, listing, number
from virtualgpu.records.libraries import Calls, Candidate, Choice, Ending, Tuning

MOST_CALLS = 40
_NAME_CHARACTERS = 48


@dataclass(frozen=True, slots=True, repr=False)
class CallsTable(Shown[Calls], Calls):
    """What operations end in, shown as a table."""

    @property
    def caption(self) -> str:
        """Whose operations, and where the answer comes from."""
        return f"{self.function}: {count(len(self.endings), 'operation')}; {self.provenance.label}."

    def tables(self) -> tuple[Table, ...]:
        """One row an operation; the first ones of many."""
        rows = tuple(_row(each) for each in self.endings[:MOST_CALLS])
        left_out = len(self.endings) - MOST_CALLS
        title = f"The first {MOST_CALLS}; {number(left_out)} more." if left_out > 0 else ""
        headings = ("operation", "dtype", "size", "layout", "library", "routine", "kernels")
        return (Table(title, headings, rows).without_empty_columns(),) if rows else ()

    def sentences(self) -> Sequence[str]:
        """What was not recorded, and what was that is nearest to it."""
        said = []
        for each in dict.fromkeys(one for one in self.endings if one.recorded is False):
            near = f"; the nearest that was: {each.nearest}" if each.nearest else ""
            said.append(f"{each.operation} was not recorded{near}.")
        if not self.endings:
            said.append("No kernel ran.")
        return [*said, *([self.note] if self.note else [])]


def _row(each: Ending) -> tuple[str, ...]:
    one = each.operation
    told = (one.name, one.dtype, one.size, one.layout) if one else (NOTHING,) * 4
    if each.recorded is False:
        return *told, "not recorded", NOTHING, NOTHING
    routines = ", ".join(times(n, name) for name, n in each.routines)
    kernels = ", ".join(times(n, _short(name)) for name, n in each.kernels)
    return *told, listing(each.libraries) or NOTHING, routines or NOTHING, kernels or NOTHING


def _short(kernel: str) -> str:
    """A kernel's name that is not longer than a line."""
    return kernel if len(kernel) <= _NAME_CHARACTERS else f"{kernel[: _NAME_CHARACTERS - 1]}…"


@dataclass(frozen=True, slots=True, repr=False)
class TuningTable(Shown[Tuning], Tuning):
    """What a tuner chose, shown as a table for each key."""

    @property
    def caption(self) -> str:
        """How often it chose, and whose times they are."""
        return f"{count(len(self.choices), 'choice')}; times {self.provenance.label}."

    def tables(self) -> tuple[Table, ...]:
        """A table for each key: right candidates by their medians, then those that were refused."""
        return tuple(_choice(each) for each in self.choices)

    def sentences(self) -> Sequence[str]:
        """What was cut short."""
        return [each.note for each in self.choices if each.note]


def _choice(each: Choice) -> Table:
    fastest = min((one.median_ns for one in each.candidates if one.median_ns), default=None)
    ordered = sorted(each.candidates, key=lambda one: (bool(one.why), one.median_ns or 0))
    rows = tuple(_candidate(one, fastest) for one in ordered)
    headings = ("candidate", "result", "median", "shortest", "longest", "calls", "of the fastest's time")
    return Table("; ".join(each.key), headings, rows)


def _candidate(one: Candidate, fastest: float | None) -> tuple[str, ...]:
    if one.median_ns is None:
        return one.name, one.why or "right", *(NOTHING,) * 5
    factor = f"{number(one.median_ns / fastest)} ×" if fastest else NOTHING
    spread = (duration(one.median_ns), duration(min(one.times_ns)), duration(max(one.times_ns)))
    return one.name, one.why or "right", *spread, number(len(one.times_ns)), factor
