"""Faults of kernels as CUDA reports them: later, without the kernel's name, and at every following call.

The virtual GPU raises a kernel's fault where the kernel was launched, with thread and line. On a GPU the host
is far ahead by then: the next call that waits gets an error number, and so does every call after it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, NamedTuple

from virtualgpu.cuda_errors import CUDARuntimeError, KernelFault
from virtualgpu.model.orders.deferral import StreamDeferral
from virtualgpu.model.recording.program_lines import ProgramLines

if TYPE_CHECKING:
    from virtualgpu.model.machine import Machine

_ERROR_MESSAGES = {
    700: "an illegal memory access was encountered",
    702: "the launch timed out and was terminated",
    710: "device-side assert triggered",
    716: "misaligned address",
    719: "unspecified launch failure",
}


class LaunchSite(NamedTuple):
    """The source location of a kernel launch, with the number of the launch in the program."""

    launch_number: int
    file: str
    line: int


class LateFaults(StreamDeferral):
    """The delayed operations of a program. The operations run in the order of submission when a call waits
    for them.

    Parameters
    ----------
    is_blocking
        Whether every launch waits for its end, as with ``CUDA_LAUNCH_BLOCKING=1``.

    Attributes
    ----------
    fault : KernelFault or None
        The first fault, with all that the virtual GPU knows about it.
    faulty_launch : LaunchSite or None
        The launch in which it happened.
    wait_count : int
        Number of waits.
    """

    def __init__(self, is_blocking: bool) -> None:
        super().__init__("last first")
        self._is_blocking = is_blocking
        self._program_lines = ProgramLines()
        self._launch_count = 0
        self._current_launch: LaunchSite | None = None
        self._context_error: tuple[int, str] | None = None
        self.fault: KernelFault | None = None
        self.faulty_launch: LaunchSite | None = None
        self.wait_count = 0

    def delay_operation(
        self,
        number: int,
        run: Callable[[], object],
        after: Iterable[int],
        keeps_arrays: bool = True,
        is_kernel: bool = False,
    ) -> None:
        """Delay an operation, or raise the error of an earlier fault that has ended the context.

        Raises
        ------
        CUDARuntimeError
            The error after which the context was lost.
        """
        self._raise_error()
        if is_kernel:
            self._launch_count += 1
            frame, _ = self._program_lines.find_frame()
            launch_site = LaunchSite(self._launch_count, "", 0)
            if frame is not None:
                launch_site = LaunchSite(self._launch_count, frame.f_code.co_filename, frame.f_lineno)
            super().delay_operation(number, lambda: self._run_kernel(launch_site, run), after, keeps_arrays)
        else:
            super().delay_operation(number, run, after, keeps_arrays)
        if self._is_blocking:
            self.run_required([number])

    def run_before_free(self) -> None:
        """Run the operations that may use an array before it is freed. If a kernel fault happens, the next
        call that waits reports it.
        """
        if self._context_error is None:
            self.run_without_raising(
                [
                    operation_number
                    for operation_number, operation in list(self._delayed_operations.items())
                    if not operation.keeps_arrays
                ]
            )

    def run_without_raising(self, numbers: Iterable[int] | None = None) -> None:
        """Run the operations with the given numbers. If a kernel fault happens, the next call that waits
        reports it.

        A call from within a running operation does nothing.
        """
        if self._context_error is not None or self._is_running:
            return
        try:
            super().run_required(numbers)
        except KernelFault as fault:
            self.fault = fault
            self.faulty_launch = self._current_launch
            self._context_error = fault.status, fault.error_name
            self._delayed_operations.clear()

    def run_required(self, numbers: Iterable[int] | None = None) -> None:
        """Run the operations with the given numbers because a call waits for them.

        Raises
        ------
        CUDARuntimeError
            CUDA's message for a fault that has happened by now, in any launch.
        """
        if not self._is_running:
            self.wait_count += 1
            self.run_without_raising(numbers)
            self._raise_error()

    def _raise_error(self) -> None:
        if self._context_error is not None:
            status, error_name = self._context_error
            raise CUDARuntimeError(
                status, error_name, _ERROR_MESSAGES.get(status, "unspecified launch failure")
            )

    def _run_kernel(self, launch_site: LaunchSite, run: Callable[[], object]) -> None:
        self._current_launch = launch_site
        run()

    def _compute_rank(self, operation_number: int) -> float:
        return operation_number


@contextmanager
def delay_faults(machine: Machine, is_blocking: bool = False) -> Iterator[LateFaults]:
    """Context manager that reports kernel faults as late as CUDA does. The next call that waits and every
    later call raise the error.

    Parameters
    ----------
    machine
        The machine whose faults are reported late.
    is_blocking
        Let every launch wait for its end, as ``CUDA_LAUNCH_BLOCKING=1`` does.
    """
    deferral = LateFaults(is_blocking)
    machine.clock.deferral = deferral

    def run_before_free(_address: int, _size_bytes: int, is_allocation: bool) -> None:
        if not is_allocation:
            deferral.run_without_raising()

    for device in machine.devices:
        device.memory.segment_callback = run_before_free
    try:
        yield deferral
    finally:
        machine.clock.deferral = None
        for device in machine.devices:
            device.memory.segment_callback = None
