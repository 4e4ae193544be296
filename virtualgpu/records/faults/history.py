"""Record of all writes to one element of an array, in order."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

from virtualgpu.records.hazards import Place
from virtualgpu.records.origin import Provenance
from virtualgpu.records.timeline import SourceLine

WriteKind = Literal["initial", "store", "atomic", "operation"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Write:
    """One write to the watched array element, or the value of the element before the first write.

    The field ``operation`` is a copy, a memset or a library kernel, which has no thread. ``launch`` counts
    the program's kernels from 1. ``value`` is the value of the element afterwards; None if another lane of
    the same instruction also wrote it, later.
    """

    kind: WriteKind
    name: str = ""
    launch: int = 0
    place: Place | None = None
    source: SourceLine | None = None
    value: Any = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ElementHistory:
    """All writes to an array element while a function ran, in the order in which they happened.

    The first element of ``writes`` is the initial value. Only the last writes are kept; ``left_out`` counts
    the others. ``error`` is the exception of the function. ``note`` is the origin of the history, if it is
    not from the device in use.
    """

    provenance: Provenance
    element: str
    writes: tuple[Write, ...]
    launches: int
    left_out: int = 0
    error: str = ""
    note: str = ""

    @property
    def last(self) -> Write:
        """The last write to the array element. This write stored the current value of the element."""
        return self.writes[-1]
