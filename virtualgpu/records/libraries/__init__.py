"""What lines of array code end in: library routines and kernels, and which candidate a tuner chose."""

from __future__ import annotations

from dataclasses import dataclass

from virtualgpu.records.origin import Provenance

ArrayLayout = tuple[str, tuple[int, ...], tuple[int, ...]]
"""An array's dtype, shape and strides in bytes."""
LibraryCall = tuple[str, tuple[ArrayLayout, ...], tuple[ArrayLayout, ...]]
"""A library kernel's name, what it reads and what it writes."""


@dataclass(frozen=True, slots=True)
class Operation:
    """What a record of calls is found by: whose function, what it does, of what, how large, how laid out."""

    package: str
    name: str
    dtype: str
    size: str
    layout: str

    def __str__(self) -> str:
        return f"{self.package} {self.name}, {self.dtype}, {self.size}, {self.layout}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Ending:
    """What one operation ends in. ``routines`` and ``kernels`` are names with how often each is called.

    ``recorded`` is None where it was seen here and now; False where there is no record of it: ``nearest`` is
    then what there is one of.
    """

    operation: Operation | None
    routines: tuple[tuple[str, int], ...] = ()
    kernels: tuple[tuple[str, int], ...] = ()
    libraries: tuple[str, ...] = ()
    recorded: bool | None = None
    nearest: Operation | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Calls:
    """What a function's operations end in, in their order; ``note`` says what is not known."""

    provenance: Provenance
    function: str
    endings: tuple[Ending, ...]
    note: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Candidate:
    """A way to compute something. ``why`` is empty where its result is right; only then it was timed.

    ``times_ns`` are those of single calls between events, after warm-up calls.
    """

    name: str
    why: str = ""
    times_ns: tuple[int, ...] = ()

    @property
    def median_ns(self) -> float | None:
        """The median time in nanoseconds, None without one."""
        ordered = sorted(self.times_ns)
        n = len(self.times_ns)
        return (ordered[(n - 1) // 2] + ordered[n // 2]) / 2 if n else None


@dataclass(frozen=True, slots=True, kw_only=True)
class Choice:
    """What a tuner chose for one ``key``: device, versions and the arguments' dtypes, shapes and layouts."""

    provenance: Provenance
    key: tuple[str, ...]
    candidates: tuple[Candidate, ...]
    best: str
    note: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Tuning:
    """All that a tuner chose so far."""

    provenance: Provenance
    choices: tuple[Choice, ...]
