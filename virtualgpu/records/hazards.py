"""What checking a launch found."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from virtualgpu.records.kernel import Dim3
from virtualgpu.records.origin import Provenance
from virtualgpu.records.timeline import SourceLine

Severity = Literal["error", "warning", "info"]


@dataclass(frozen=True, slots=True)
class Place:
    """One thread at one source line (1-based, 0 if unknown); ``source`` is the line's text."""

    line: int
    source: str
    block: Dim3
    thread: Dim3


@dataclass(frozen=True, slots=True, kw_only=True)
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


@dataclass(frozen=True, slots=True, kw_only=True)
class SanitizerReport:
    """What checking one launch found. ``hazards`` come in the order of their severity.

    ``fault`` names the exception an ordinary launch would raise, and is empty if it would end well.
    ``left_out`` says what the checks did not cover. Where time ran out on a launch that was getting on,
    ``blocks_checked`` are the blocks that came to their end; it is None where all did, or a fault ended it.
    ``checker`` is whose checks they were; ``unavailable`` says why there were none.
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
        """Whether the checks saw the launch to its end."""
        return not self.fault and self.blocks_checked is None and not self.unavailable

    @property
    def clean(self) -> bool:
        """Whether nothing above the severity ``info`` was found in what was checked (see `complete`)."""
        checked = not self.fault and not self.unavailable
        return checked and all(hazard.severity == "info" for hazard in self.hazards)

    def found(self, kind: str) -> tuple[Hazard, ...]:
        """The hazards of one kind, such as ``RAW``."""
        return tuple(hazard for hazard in self.hazards if hazard.kind == kind)


# What two operations without order do to the same bytes, in the order in which the program gave them; or what
# became of the memory, or of the host's buffer, before an operation had ended.
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
    """One side of a hazard: an operation of a stream, or what the host did (``stream`` is empty).

    ``name`` is the operation's (a kernel, ``Memcpy HtoD``), or the act of the host in words.
    """

    name: str
    device_id: int
    stream: str
    source: SourceLine | None
    writes: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamHazard:
    """Two uses of the same bytes that nothing orders, with the first pair of them and how many there were.

    ``array`` is what the program calls the memory, or what it holds. ``cause`` says why the order is
    missing, ``remedy`` is the code to add, and ``where`` the place for it.
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
        """The finding and its remedy in two sentences."""
        return f"{self.cause} {self.where} {self.remedy}".rstrip()


@dataclass(frozen=True, slots=True)
class StreamReport:
    """What checking the order between streams found in a piece of a program.

    ``operations`` counts those of streams, graphs' nodes at each launch. ``left_out`` says in words what the
    check could not see.
    """

    provenance: Provenance
    findings: tuple[StreamHazard, ...]
    operations: int
    streams: tuple[str, ...]
    left_out: str = ""

    @property
    def clean(self) -> bool:
        """Whether nothing was found."""
        return not self.findings
