"""Library routines and kernels that array code calls, and the choices of a tuner."""

from __future__ import annotations

import statistics
from dataclasses import dataclass

from virtualgpu.records.origin import Provenance

ArrayLayout = tuple[str, tuple[int, ...], tuple[int, ...]]
"""An array's dtype, shape and strides in bytes."""
LibraryCall = tuple[str, tuple[ArrayLayout, ...], tuple[ArrayLayout, ...]]
"""A library kernel's name, and the arrays that it reads and writes."""


@dataclass(frozen=True, slots=True)
class Operation:
    """Key of a record of calls: package, name, dtype, class of size, and layout."""

    package: str
    name: str
    dtype: str
    size: str
    layout: str

    def __str__(self) -> str:
        return f"{self.package} {self.name}, {self.dtype}, {self.size}, {self.layout}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Ending:
    """Library calls of one operation: ``routines`` and ``kernels`` by name, with their numbers of calls.

    ``recorded`` is None if the calls were observed now, and False if there is no record of the operation;
    ``nearest`` is then the most similar recorded one.
    """

    operation: Operation | None
    routines: tuple[tuple[str, int], ...] = ()
    kernels: tuple[tuple[str, int], ...] = ()
    libraries: tuple[str, ...] = ()
    recorded: bool | None = None
    nearest: Operation | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Calls:
    """Library calls of a function's operations, in order; ``note`` describes what is not known."""

    provenance: Provenance
    function: str
    endings: tuple[Ending, ...]
    note: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Candidate:
    """A candidate of a tuner; it is timed only if its result is right (``why`` is empty).

    ``times_ns`` are those of single calls between events, after warm-up calls.
    """

    name: str
    why: str = ""
    times_ns: tuple[int, ...] = ()

    @property
    def median_ns(self) -> float | None:
        """The median time in nanoseconds, None without times."""
        return float(statistics.median(self.times_ns)) if self.times_ns else None


@dataclass(frozen=True, slots=True, kw_only=True)
class Choice:
    """A tuner's choice for one ``key``: device, versions and the arguments' dtypes, shapes and layouts."""

    provenance: Provenance
    key: tuple[str, ...]
    candidates: tuple[Candidate, ...]
    best: str
    note: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Tuning:
    """All choices of a tuner so far."""

    provenance: Provenance
    choices: tuple[Choice, ...]
