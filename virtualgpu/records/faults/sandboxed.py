"""Result of code that ran in a separate process."""

from __future__ import annotations

from dataclasses import dataclass

from virtualgpu.records.hazards import Place
from virtualgpu.records.origin import Provenance
from virtualgpu.records.timeline import SourceLine


@dataclass(frozen=True, slots=True)
class Culprit:
    """The kernel launch in which a fault happened, with its number in the program and its source line. The
    first launch has the number 1.

    A virtual GPU also knows ``kernel``, ``place`` (the thread at its line) and ``said`` (the cause in a
    sentence). On a real GPU the line is that of a run with launch blocking, and ``launch`` is 0.
    """

    launch: int
    source: SourceLine | None
    kernel: str = ""
    place: Place | None = None
    said: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class SandboxRun:
    """Result of a function or cell that ran in a sandbox.

    Parameters
    ----------
    name
        Name of the function or cell.
    output, output_lines
        The first part of its output, and the total number of lines.
    ended
        Why the process was ended, or how it ended itself; empty if the code ran to its end.
    error, frames
        The exception, and the lines that led to it, the outermost line first.
    status
        CUDA's number of the error; 0 for other errors.
    sticky
        Whether every later call failed as well because the context was lost.
    at_end
        Whether nothing in the program waited for the work that failed.
    culprit
        The launch in which the fault happened, which can differ from the call that raised.
    blocking
        Whether every launch waited for its end.
    notes
        Further remarks, in sentences.
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
        """Return whether the code ran to its end without an error."""
        return not self.ended and not self.error

    @property
    def raised(self) -> SourceLine | None:
        """The line of the program that raised the error, or None if there was no error."""
        return self.frames[-1] if self.error and self.frames else None
