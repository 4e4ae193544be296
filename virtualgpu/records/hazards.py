"""Findings of the checks of one launch, and of the order between streams."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from virtualgpu.records.kernel import Dim3
from virtualgpu.records.origin import Provenance
from virtualgpu.records.timeline import SourceLine

Severity = Literal["error", "warning", "info"]


@dataclass(frozen=True, slots=True)
class Place:
    """A source line that a thread executes. Line numbers start at 1, and 0 means that the line is unknown."""

    line: int
    source: str
    block: Dim3
    thread: Dim3


@dataclass(frozen=True, slots=True, kw_only=True)
class Hazard:
    """A hazard between two source lines, or at a single line, with its first occurrence.

    The field ``tool`` is the check that found the hazard, and ``kind`` is its type, such as ``RAW``, ``lost
    update`` or ``out of bounds``. ``second`` is where it was detected, ``first`` the earlier access it
    conflicts with. ``address`` is a device address in global memory and an offset in shared or local memory.
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


@dataclass(frozen=True, slots=True, kw_only=True)
class SanitizerReport:
    """The result of checking one launch. The hazards are sorted by severity.

    ``fault`` names the exception that an ordinary launch would raise, and is empty without one. ``left_out``
    describes what the checks did not cover. ``blocks_checked`` are the finished blocks of a launch that made
    progress until its time limit; it is None if all blocks finished, or a fault ended the launch. ``checker``
    is the tool of the checks; ``unavailable`` is the reason why there were none.
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
    checker: str = "gpulab"
    unavailable: str = ""

    @property
    def complete(self) -> bool:
        """Return whether the checks covered the launch up to its end."""
        return not self.fault and self.blocks_checked is None and not self.unavailable

    @property
    def clean(self) -> bool:
        """Return whether the checks found no hazard that is more severe than ``info``."""
        is_checked = not self.fault and not self.unavailable
        return is_checked and all(hazard.severity == "info" for hazard in self.hazards)

    def found(self, kind: str) -> tuple[Hazard, ...]:
        """Return the hazards of the given kind, such as ``RAW``."""
        return tuple(hazard for hazard in self.hazards if hazard.kind == kind)


# Accesses of two unordered operations to the same bytes, in the order of their submission; or a change of the
# memory, or of the host's buffer, before an operation had ended.
StreamHazardKind = Literal[
    "write after write",
    "read after write",
    "write after read",
    "freed too early",
    "reused too early",
    "host changed too early",
    "host read too early",
    "used after it was freed",
]


@dataclass(frozen=True, slots=True)
class StreamUse:
    """One of the two accesses of a stream hazard. The field ``stream`` is empty if the host makes the access.

    ``name`` is that of the operation (a kernel, ``Memcpy HtoD``), or the act of the host in words.
    """

    name: str
    device_id: int
    stream: str
    source: SourceLine | None
    writes: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamHazard:
    """A pair of accesses to the same memory without a guaranteed order, and the number of such pairs.

    The field ``array`` is the name of the memory in the program, or a description. ``cause`` is the reason
    why the order is missing, ``remedy`` the code to add, and ``where`` its location.
    """

    kind: StreamHazardKind
    first: StreamUse
    second: StreamUse
    array: str
    cause: str
    remedy: str
    where: str
    count: int = 1

    @property
    def message(self) -> str:
        """A message that describes the hazard and its remedy."""
        return f"{self.cause} {self.where} {self.remedy}".rstrip()


@dataclass(frozen=True, slots=True)
class StreamReport:
    """The findings of a check whether streams access memory in a guaranteed order.

    The field ``operations`` is the number of stream operations, including the nodes of graphs at each launch.
    ``left_out`` describes uses that the check could not observe.
    """

    provenance: Provenance
    findings: tuple[StreamHazard, ...]
    operations: int
    streams: tuple[str, ...]
    left_out: str = ""

    @property
    def clean(self) -> bool:
        """Return whether the check has no findings."""
        return not self.findings
