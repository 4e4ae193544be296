"""Records of a pipeline: buffers of shared memory, their fills and uses, the waits, and the mistakes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from virtualgpu.records import BlockTrace

MarkKind = Literal["commit", "wait", "barrier", "arrival", "wait for arrivals"]
Warps = tuple[int, ...]
Lines = tuple[int, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Buffer:
    """A part of shared memory that a block fills as a unit. It extends from ``start_byte`` up to, but not
    including, ``end_byte``.

    It has ``size_bytes``, fewer than its range if parts of the range belong to other buffers.
    """

    start_byte: int
    end_byte: int
    size_bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Fill:
    """One fill of a shared-memory buffer by asynchronous copies or by stores.

    ``number`` counts the fills of a buffer from 0. ``start`` is the position at which the first warp starts
    it, and ``landed`` the position at which the last warp knows that its data have arrived, None if it never
    waits for them. ``lines`` start it, and ``wait_lines`` wait for it.
    """

    buffer: int
    number: int
    asynchronous: bool
    start: int
    landed: int | None
    warps: Warps
    lines: Lines
    wait_lines: Lines


@dataclass(frozen=True, slots=True, kw_only=True)
class Use:
    """All reads of the data from one fill of a buffer. The reads occur between the positions ``start`` and
    ``end``.
    """

    buffer: int
    fill: int
    start: int
    end: int
    warps: Warps
    lines: Lines


@dataclass(frozen=True, slots=True, kw_only=True)
class Mark:
    """A step in which warps synchronise, with its kind, its position and its source line.

    A *commit* combines the preceding asynchronous copies of a thread into a group. A *wait* waits until at
    most ``pending`` groups of the thread are in flight. At a *barrier*, warps wait for each other. With an
    mbarrier, an *arrival* and the *wait for arrivals* are separate.
    """

    kind: MarkKind
    position: int
    line: int
    warps: Warps
    pending: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Site:
    """One of the two accesses of a synchronisation mistake, with its warp, position and source line."""

    warp: int
    position: int
    line: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Mistake:
    """A use and a fill of the same buffer in an undefined order. No wait or barrier separates the use from
    the fill.

    *early*: the use does not wait for the fill whose data it reads. *overwritten*: the next fill does not
    wait for the use. ``use`` and ``fill`` are the first of all such pairs at these two lines. ``fills`` are
    the fills in all of them, as pairs of a buffer and a number; ``count`` is the number of reading steps.
    """

    kind: Literal["early", "overwritten"]
    use: Site
    fill: Site
    fills: tuple[tuple[int, int], ...]
    count: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Iteration:
    """An iteration of the loop in which the warps wait for data. Each iteration starts at a wait in the
    source line `line`.
    """

    position: int
    line: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Pipeline:
    """The shared-memory buffers of a block, with their fills, uses, waits and mistakes.

    Positions count the steps in which a warp copies data, uses shared memory, waits or synchronises. Warps
    that wait for each other continue at the same position, so two steps of different warps that no wait or
    barrier orders can be at the same position.
    """

    trace: BlockTrace
    buffers: tuple[Buffer, ...]
    fills: tuple[Fill, ...]
    uses: tuple[Use, ...]
    marks: tuple[Mark, ...]
    mistakes: tuple[Mistake, ...]
    iterations: tuple[Iteration, ...]
    length: int

    def overlapped(self) -> list[Fill]:
        """Return the fills of a buffer that are in progress while another buffer is used."""
        return [
            fill
            for fill in self.fills
            if fill.asynchronous
            and any(
                use.buffer != fill.buffer
                and use.start < (self.length if fill.landed is None else fill.landed)
                and use.end > fill.start
                for use in self.uses
            )
        ]
