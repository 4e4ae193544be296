"""Faults as CUDA tells them: late, without the culprit's name, and again at every call that follows.

The virtual GPU raises a kernel's fault where the kernel was launched, with thread and line. A GPU's host is
far ahead by then: whichever call waits next gets an error number, and so does every call from there on.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, NamedTuple

from virtualgpu.cuda_errors import CUDARuntimeError, KernelFault
from virtualgpu.model.orders.deferral import Deferral
from virtualgpu.model.recording.program_lines import ProgramLines

if TYPE_CHECKING:
    from virtualgpu.model.machine import Machine

_SAID = {
    700: "an illegal memory access was encountered",
    702: "the launch timed out and was terminated",
    710: "device-side assert triggered",
    716: "misaligned address",
    719: "unspecified launch failure",
}


class Given(NamedTuple):
    """Who gave a device work: which of the program's launches it was, in which file and line."""

    launch: int
    file: str
    line: int


class LateFaults(Deferral):
    """Operations in the order of the program, run when something waits for them.

    Parameters
    ----------
    blocking
        Every launch waits for its end, as with ``CUDA_LAUNCH_BLOCKING=1``.

    Attributes
    ----------
    fault : KernelFault or None
        What the virtual GPU knows of the first fault.
    given : Given or None
        The launch that it happened in.
    waits : int
        How often somebody waited.
    """

    def __init__(self, blocking: bool) -> None:
        super().__init__("last first")
        self._blocking, self._lines, self._launches = blocking, ProgramLines(), 0
        self._given: dict[int, Given] = {}
        self._under_way: Given | None = None
        self._lost: tuple[int, str] | None = None
        self.fault: KernelFault | None = None
        self.given: Given | None = None
        self.waits = 0

    def hold(
        self,
        number: int,
        run: Callable[[], object],
        after: Iterable[int],
        keeps: bool = True,
        kernel: bool = False,
    ) -> None:
        """Keep operation `number`; a context that is lost takes none.

        Raises
        ------
        CUDARuntimeError
            The error that the context was lost by.
        """
        self._refuse()
        if kernel:
            self._launches += 1
            frame, _ = self._lines.frame()
            place = (frame.f_code.co_filename, frame.f_lineno) if frame is not None else ("", 0)
            given = Given(self._launches, *place)
            super().hold(number, lambda: self._run_kernel(given, run), after, keeps)
        else:
            super().hold(number, run, after, keeps)
        if self._blocking:
            self.require([number])

    def let_go(self) -> None:
        """An array dies; whatever has gone wrong is told to who waits, not here."""
        if self._lost is None:
            self.attempt([number for number, held in list(self._held.items()) if not held.keeps])

    def attempt(self, numbers: Iterable[int] | None = None) -> None:
        """Run these operations; a fault in them is told at the next call that waits.

        Whatever dies while one runs, on a thread of that one, waits for nothing.
        """
        if self._lost is not None or self._running:
            return
        try:
            super().require(numbers)
        except KernelFault as fault:
            self.fault = fault
            self.given = self._under_way
            self._lost = fault.status, fault.error_name
            self._held.clear()

    def require(self, numbers: Iterable[int] | None = None) -> None:
        """Run these operations, since somebody waits for them.

        Raises
        ------
        CUDARuntimeError
            CUDA's words for the fault that has happened by now, in whichever launch.
        """
        if not self._running:
            self.waits += 1
            self.attempt(numbers)
            self._refuse()

    def _refuse(self) -> None:
        if self._lost is not None:
            status, name = self._lost
            raise CUDARuntimeError(status, name, _SAID.get(status, "unspecified launch failure"))

    def _run_kernel(self, given: Given, run: Callable[[], object]) -> None:
        self._under_way = given
        run()

    def _rank(self, number: int) -> float:
        return number


@contextmanager
def late_faults(machine: Machine, blocking: bool = False) -> Iterator[LateFaults]:
    """Tell faults as CUDA does: at the next call that waits, in CUDA's words, and at every call after it.

    Parameters
    ----------
    machine
        Whose.
    blocking
        Let every launch wait for its end, as ``CUDA_LAUNCH_BLOCKING=1`` does.
    """
    late = machine.clock.deferral = LateFaults(blocking)
    for device in machine.devices:
        device.memory.watched = lambda _address, _size, taken: None if taken else late.attempt()
    try:
        yield late
    finally:
        machine.clock.deferral = None
        for device in machine.devices:
            device.memory.watched = None
