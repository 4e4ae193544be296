"""Where a launch is while it runs, and who is told."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from virtualgpu.records.kernel import Dim3


@dataclass(frozen=True, slots=True)
class Whereabouts:
    """Where a launch is that still runs: about, for nothing stops to be looked at.

    ``line`` is where the threads of a ``block`` last gave others a turn or were about to begin; 0: not known.
    """

    kernel: str
    line: int
    source_text: str
    block: Dim3
    ended: int
    blocks: int


class Onlooker(Protocol):
    """Looks on at one launch, made as it begins."""

    def look(self, where: Callable[[], Whereabouts]) -> None:
        """Called every few hundredths of a second, by the thread that waits for the launch."""

    def end(self) -> None:
        """The launch has ended, however it did."""
