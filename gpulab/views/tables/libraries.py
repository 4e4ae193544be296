"""The tables of ``gl.library_calls`` and ``gl.tune``."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from gpulab.views.tables import Cell, Column, RecordTable, Table, format_counted_name
from gpulab.words import count, duration, listing, number
from virtualgpu.records.libraries import Calls, Candidate, Choice, OperationCalls, Tuning

MAX_CALLS = 40
_MAX_NAME_LENGTH = 48


@dataclass(frozen=True, slots=True, repr=False)
class CallsTable(RecordTable[Calls], Calls):
    """A table of array operations with the library routines and kernels that they call."""

    @property
    def heading(self) -> str:
        """The heading of the card, with the kind of the table and the function."""
        return f"Library calls of {self.function}"

    @property
    def facts(self) -> str:
        """The part of the caption that states the number of operations."""
        return count(len(self.endings), "operation")

    @property
    def origin(self) -> str:
        """A phrase that states the origin of the recorded library calls, such as ``measured on NVIDIA
        H200``.
        """
        return self.provenance.label

    def tables(self) -> tuple[Table, ...]:
        """Return a table with one row for each of the first `MAX_CALLS` operations."""
        rows = tuple(_make_row(operation_calls) for operation_calls in self.endings)
        omitted_count = len(self.endings) - MAX_CALLS
        title = f"The first {MAX_CALLS}; {number(omitted_count)} more." if omitted_count > 0 else ""
        headings = ("operation", "dtype", "size", "layout", "library", "routine", "kernels")
        return (Table(title, headings, rows, hide_empty=True, max_rows=MAX_CALLS),) if rows else ()

    def sentences(self) -> Sequence[str]:
        """Return sentences about operations that were not recorded, with the most similar recorded
        operations.
        """
        sentences = []
        unrecorded_operations = [
            operation_calls for operation_calls in self.endings if operation_calls.recorded is False
        ]
        for operation_calls in dict.fromkeys(unrecorded_operations):
            similar_operation_text = (
                f"; the nearest that was: {operation_calls.nearest}" if operation_calls.nearest else ""
            )
            sentences.append(f"{operation_calls.operation} was not recorded{similar_operation_text}.")
        if not self.endings:
            sentences.append("No kernel ran.")
        return [*sentences, *([self.note] if self.note else [])]


def _make_row(operation_calls: OperationCalls) -> tuple[Any, ...]:
    operation = operation_calls.operation
    operation_values: tuple[Any, ...] = (None,) * 4
    if operation:
        operation_values = operation.name, operation.dtype, operation.size, operation.layout
    if operation_calls.recorded is False:
        return *operation_values, Cell(None, "not recorded"), None, None
    routines_text = ", ".join(
        format_counted_name(use_count, name) for name, use_count in operation_calls.routines
    )
    kernels_text = ", ".join(
        format_counted_name(use_count, name) for name, use_count in operation_calls.kernels
    )
    short_kernels_text = ", ".join(
        format_counted_name(use_count, _shorten_name(name)) for name, use_count in operation_calls.kernels
    )
    return (
        *operation_values,
        listing(operation_calls.libraries) or None,
        routines_text or None,
        Cell(kernels_text, short_kernels_text) if kernels_text else None,
    )


def _shorten_name(kernel_name: str) -> str:
    """Return a kernel's name, cut to at most `_MAX_NAME_LENGTH` characters."""
    return kernel_name if len(kernel_name) <= _MAX_NAME_LENGTH else f"{kernel_name[: _MAX_NAME_LENGTH - 1]}…"


@dataclass(frozen=True, slots=True, repr=False)
class TuningTable(RecordTable[Tuning], Tuning):
    """The tables that show which candidates a tuner chose. There is one table per key."""

    @property
    def heading(self) -> str:
        """The heading of the card, with the kind of the tables and the number of choices."""
        return f"Tuning of {count(len(self.choices), 'choice')}"

    @property
    def origin(self) -> str:
        """A phrase that states the origin of the results and times, such as ``measured on NVIDIA H200``."""
        return self.provenance.of_results_and_times

    def tables(self) -> tuple[Table, ...]:
        """Return one table per key. Correct candidates are sorted by median time, and rejected candidates
        follow.
        """
        return tuple(_make_choice_table(choice) for choice in self.choices)

    def sentences(self) -> Sequence[str]:
        """Return the notes on the choices of the tuner."""
        return [choice.note for choice in self.choices if choice.note]


def _make_choice_table(choice: Choice) -> Table:
    fastest_ns = min(
        (candidate.median_ns for candidate in choice.candidates if candidate.median_ns), default=None
    )
    sorted_candidates = sorted(
        choice.candidates, key=lambda candidate: (bool(candidate.why), candidate.median_ns or 0)
    )
    slowest_ns = max((candidate.median_ns or 0.0 for candidate in choice.candidates), default=0.0)
    rows = tuple(_make_candidate_row(candidate, fastest_ns, slowest_ns) for candidate in sorted_candidates)
    columns = (
        "candidate",
        "result",
        Column("median", "median_ns", duration),
        Column("shortest", "shortest_ns", duration),
        Column("longest", "longest_ns", duration),
        Column("calls", format_value=number),
        Column("of the fastest's time", "of_fastest", _format_factor),
    )
    return Table("; ".join(choice.key), columns, rows)


def _make_candidate_row(candidate: Candidate, fastest_ns: float | None, slowest_ns: float) -> tuple[Any, ...]:
    if candidate.median_ns is None:
        return candidate.name, candidate.why or "right", *(None,) * 5
    time_factor = candidate.median_ns / fastest_ns if fastest_ns else None
    colour = "good" if candidate.median_ns == fastest_ns else "accent"
    time_bar = ((candidate.median_ns / slowest_ns, colour),) if slowest_ns else ()
    median_cell = Cell(candidate.median_ns, duration(candidate.median_ns), time_bar)
    time_cells = (median_cell, min(candidate.times_ns), max(candidate.times_ns))
    return candidate.name, candidate.why or "right", *time_cells, len(candidate.times_ns), time_factor


def _format_factor(value: float) -> str:
    return f"{number(value)} ×"
