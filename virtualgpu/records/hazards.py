"""What checking a launch found."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from virtualgpu.records.kernel import Dim3
from virtualgpu.records.origin import Provenance

Severity = Literal["error", "warning", "info"]


@dataclass(frozen=True, slots=True)
class Place:
    """One thread at one source line (1-based, 0 if unknown); ``source`` is the line's text."""

    line: int
    source: str
    block: Dim3
    thread: Dim3


@dataclass(frozen=True, slots=True)
class Hazard:
    """One kind of mistake between two source lines, or at one, with its first occurrence.

    ``tool`` is the check that found it (``memory``, ``race``, ``init``, ``sync``, ``nan`` or
    ``program``), ``kind`` names it (``RAW``, ``WAR``, ``WAW``, ``lost update``, ``uninitialised
    read``, ``out of bounds`` ...). ``second`` is where it showed, ``first`` the earlier access it
    clashes with.
    ``address`` is a device address in global memory and an offset in shared or local memory.
    ``count`` counts occurrences: accesses of one thread to one word.
    """

    tool: str
    kind: str
    severity: Severity
    space: str
    kernel: str
    first: Place | None
    second: Place
    address: int | None
    array: str
    count: int
    message: str


@dataclass(frozen=True, slots=True)
class SanitizerReport:
    """What checking one launch found. ``hazards`` come in the order of their severity.

    ``fault`` names the exception an ordinary launch would raise, and is empty if it would end well.
    ``left_out`` says what the checks did not cover. Where time ran out on a launch that was getting on,
    ``blocks_checked`` are the blocks that came to their end; it is None where all did, or a fault ended it.
    """

    provenance: Provenance
    kernel_name: str
    grid: Dim3
    block: Dim3
    shared_bytes: int
    tools: tuple[str, ...]
    block_order: str
    hazards: tuple[Hazard, ...] = ()
    fault: str = ""
    left_out: str = ""
    blocks_checked: int | None = None

    @property
    def complete(self) -> bool:
        """Whether the checks saw the launch to its end."""
        return not self.fault and self.blocks_checked is None

    @property
    def clean(self) -> bool:
        """Whether nothing above the severity ``info`` was found in what was checked (see `complete`)."""
        return not self.fault and all(hazard.severity == "info" for hazard in self.hazards)

    def found(self, kind: str) -> tuple[Hazard, ...]:
        """The hazards of one kind, such as ``RAW``."""
        return tuple(hazard for hazard in self.hazards if hazard.kind == kind)
