"""Records of the library routines and kernels that array code calls, and of a tuner's choices."""

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
    """A key for looking up recorded library calls, with the package, function name, dtype, size class and
    memory layout.
    """

    package: str
    name: str
    dtype: str
    size: str
    layout: str

    def __str__(self) -> str:
        return f"{self.package} {self.name}, {self.dtype}, {self.size}, {self.layout}"


@dataclass(frozen=True, slots=True, kw_only=True)
class OperationCalls:
    """The library calls of one operation, with the names of routines and kernels and with how often they ran.

    The field ``recorded`` is True for recorded calls, None for calls that were observed now, and False if
    there is no record. In the last case, ``nearest`` is the most similar recorded operation.
    """

    operation: Operation | None
    routines: tuple[tuple[str, int], ...] = ()
    kernels: tuple[tuple[str, int], ...] = ()
    libraries: tuple[str, ...] = ()
    recorded: bool | None = None
    nearest: Operation | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Calls:
    """The library calls of all operations of a function, in order. The field ``note`` is a remark about
    missing information.
    """

    provenance: Provenance
    function: str
    endings: tuple[OperationCalls, ...]
    note: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Candidate:
    """One candidate of a tuner. The candidate is timed only if its result is correct. Otherwise the field
    ``why`` is the reason.

    ``times_ns`` are those of single calls between events, after warm-up calls.
    """

    name: str
    why: str = ""
    times_ns: tuple[int, ...] = ()

    @property
    def median_ns(self) -> float | None:
        """The median time in ns, or None if the candidate was not timed."""
        return float(statistics.median(self.times_ns)) if self.times_ns else None


@dataclass(frozen=True, slots=True, kw_only=True)
class Choice:
    """The choice of a tuner for one key. The key contains the device, the versions, and the dtypes and shapes
    of the arguments.
    """

    provenance: Provenance
    key: tuple[str, ...]
    candidates: tuple[Candidate, ...]
    best: str
    note: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Tuning:
    """The record of a tuner, with all choices that it has made so far."""

    provenance: Provenance
    choices: tuple[Choice, ...]
