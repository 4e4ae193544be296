"""Results of the analysis of a timeline: overlap, gaps, the critical path, and advice."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from virtualgpu.records.timeline import SourceLine

GapCause = Literal[
    "launch-bound",
    "waiting for an event",
    "waiting for its stream",
    "default stream",
    "hidden synchronisation",
    "synchronisation",
    "pageable copy",
    "host computing",
    "engine busy",
    "start-up",
    "nothing to do",
]
StepKind = Literal["operation", "host", "start-up"]


@dataclass(frozen=True, slots=True)
class Overlap:
    """The time during which two engines or two streams were busy simultaneously.

    The fields ``first_ns`` and ``second_ns`` are the busy times of the two, and ``both_ns`` is the time of
    overlap.
    """

    first: str
    second: str
    first_ns: int
    second_ns: int
    both_ns: int

    @property
    def fraction(self) -> float:
        """The overlap time ``both_ns`` divided by the shorter of the two busy times. The fraction is 1 for
        complete overlap.
        """
        shorter = min(self.first_ns, self.second_ns)
        return self.both_ns / shorter if shorter else 0.0

    @property
    def percent(self) -> float:
        return 100 * self.fraction


@dataclass(frozen=True, slots=True, kw_only=True)
class Gap:
    """An interval in which a stream or an engine was idle, and the cause.

    The field ``reason`` is the cause in words, and ``source`` is the responsible line if there is one.
    ``before`` is the operation that ended the gap, or 0.
    """

    where: str
    start_ns: int
    end_ns: int
    cause: GapCause
    reason: str
    source: SourceLine | None = None
    before: int = 0

    @property
    def duration_ns(self) -> int:
        return self.end_ns - self.start_ns


@dataclass(frozen=True, slots=True, kw_only=True)
class PathStep:
    """A step of the critical path of a timeline. Each step begins at the end of the previous one.

    A step is an operation (``correlation_id``), an interval in which the host computed or submitted work, or
    the time that an operation needed to start after all its predecessors had ended.
    """

    kind: StepKind
    name: str
    start_ns: int
    end_ns: int
    where: str
    correlation_id: int = 0
    source: SourceLine | None = None

    @property
    def duration_ns(self) -> int:
        return self.end_ns - self.start_ns


@dataclass(frozen=True, slots=True)
class Advice:
    """Advice on how to make a program faster, with the approximate gain."""

    topic: Literal["pin", "overlap", "wait", "graph", "stream", "host"]
    text: str
    gain_ns: int
    sources: tuple[SourceLine, ...] = ()
