"""Position of a launch that is still running, and the interface of its observers."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from virtualgpu.records.kernel import Dim3


@dataclass(frozen=True, slots=True)
class LaunchProgress:
    """A snapshot of a launch that is still running, with the source line that it has approximately reached.

    The field ``line`` is the source line at which the threads of ``block`` were last observed, or 0 if it is
    unknown. ``ended`` of the ``blocks`` have finished.
    """

    kernel: str
    line: int
    source_text: str
    block: Dim3
    ended: int
    blocks: int


class LaunchObserver(Protocol):
    """An observer of one running launch. The observer is created at the beginning of the launch."""

    def look(self, find_progress: Callable[[], LaunchProgress]) -> None:
        """Observe the running launch. The thread that waits for the launch calls this method every few
        hundredths of a second.
        """

    def end(self) -> None:
        """End the observation after the launch has succeeded or failed."""
