"""Position of a launch that is still running, and the interface of its observers."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from virtualgpu.records.kernel import Dim3


@dataclass(frozen=True, slots=True)
class Whereabouts:
    """The approximate position of a launch that is still running.

    ``line`` is the line where the threads of a ``block`` last yielded to others or were about to begin; 0 if
    not known. ``ended`` of the ``blocks`` have finished.
    """

    kernel: str
    line: int
    source_text: str
    block: Dim3
    ended: int
    blocks: int


class Onlooker(Protocol):
    """An observer of one running launch. It is created when the launch begins."""

    def look(self, whereabouts: Callable[[], Whereabouts]) -> None:
        """Observe the running launch. The thread that waits for the launch calls this every few hundredths of
        a second.
        """

    def end(self) -> None:
        """End the observation after the launch has succeeded or failed."""
