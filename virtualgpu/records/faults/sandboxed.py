"""What came of code that ran in a process of its own."""

from __future__ import annotations

from dataclasses import dataclass

from virtualgpu.records.hazards import Place
from virtualgpu.records.origin import Provenance
from virtualgpu.records.timeline import SourceLine


@dataclass(frozen=True, slots=True)
class Culprit:
    """The launch that a fault happened in: which of the program's launches, counted from 1, and its line.

    ``kernel``, ``place`` and ``said`` are what a virtual GPU knows besides: the thread at its line, and the
    cause in a sentence. On a real one the launch's line comes from a run with launch blocking, and the
    ``launch`` has no number there (0).
    """

    launch: int
    source: SourceLine | None
    kernel: str = ""
    place: Place | None = None
    said: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class SandboxRun:
    """A function or cell that ran in a sandbox.

    Parameters
    ----------
    name
        What ran.
    output, output_lines
        The first of what it printed, and how many lines that was in all.
    ended
        Why it was ended, or how it ended itself; empty where it came to its end.
    error, frames
        What it raised, and the lines that led there, the outermost first.
    status
        CUDA's number of that error; 0 for others.
    sticky
        Whether every call after it failed as well: the context was lost.
    at_end
        Whether nothing in the program waited for the work that failed.
    culprit
        The launch that the fault happened in, which need not be the one that raised.
    blocking
        Whether every launch waited for its end.
    notes
        What else is to be said, in sentences.
    """

    provenance: Provenance
    name: str
    seconds: float
    output: str = ""
    output_lines: int = 0
    ended: str = ""
    error: str = ""
    frames: tuple[SourceLine, ...] = ()
    status: int = 0
    sticky: bool = False
    at_end: bool = False
    culprit: Culprit | None = None
    blocking: bool = False
    notes: tuple[str, ...] = ()

    @property
    def ok(self) -> bool:
        """Whether it came to its end without an error."""
        return not self.ended and not self.error

    @property
    def raised(self) -> SourceLine | None:
        """The program's line that raised; None where nothing did."""
        return self.frames[-1] if self.error and self.frames else None
