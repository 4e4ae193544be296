"""The history of one element of an array: who wrote it, in order."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

from virtualgpu.records.hazards import Place
from virtualgpu.records.origin import Provenance
from virtualgpu.records.timeline import SourceLine

WriteKind = Literal["initial", "store", "atomic", "operation"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Write:
    """One write to the element, or what it held before the first one (``initial``).

    An ``operation`` is a copy, a memset or a kernel of the library's, which names no thread. ``launch``
    counts the program's kernels from 1. ``value`` is what the element held afterwards; None where another
    lane of the same instruction wrote it, too, and later.
    """

    kind: WriteKind
    name: str = ""
    launch: int = 0
    place: Place | None = None
    source: SourceLine | None = None
    value: Any = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ElementHistory:
    """All writes to an element while a function ran, in the order in which they happened.

    ``writes`` begins with what was there before. Of very many, the last are kept, and ``left_out`` counts the
    others. ``error`` is what the function raised. ``note`` says where the history comes from, if not from the
    device in use.
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
        """Who wrote what the element holds now."""
        return self.writes[-1]
