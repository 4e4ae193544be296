"""``gl.library_calls``: the libraries, routines and kernels that a line of array code uses."""

from __future__ import annotations

import json
import lzma
from collections import Counter
from collections.abc import Callable
from importlib import resources
from typing import Any

from gpulab import session
from gpulab._deprecated import accept_old_parameters
from gpulab.lab._base import PicturedResult
from gpulab.lab.timeline import timeline
from gpulab.views.tables.libraries import CallsTable
from gpulab.words import count, listing
from virtualgpu.records.libraries import Calls
from virtualgpu.records.libraries.known import KnownCalls, read_known_calls

RECORD_FILE = "h200_calls.json.xz"


@accept_old_parameters
def library_calls(fn: Callable[..., Any] | str | None = None, *args: Any, **filters: str) -> CallsReport:
    """Show the libraries, routines and kernels that a function uses for its array operations.

    Parameters
    ----------
    fn
        A function of arrays, which is called once with `args`. Or the name of a recorded operation, such as
        ``"torch.addmm"`` or ``"cupy.matmul"``. By default, all recorded operations are shown.
    args
        The function's arguments.
    **filters
        Select records of an operation: ``dtype="float16"``, ``size="large"``, ``layout="row-major"``.

    Returns
    -------
    CallsReport
        A table. ``.record`` holds the data (`virtualgpu.records.libraries.Calls`).

    Raises
    ------
    GpulabError
        For an operation that was never recorded (the message names similar operations), or if a timeline
        is already being recorded.
    TypeError
        If `fn` is neither a function nor a name.

    Notes
    -----
    On a real GPU, CUPTI records the kernels while the function runs, and their names show the library. CUPTI
    does not record routines, so they come from the shipped record of the same kernels. A virtual GPU has none
    of the libraries. There, the operation is identified by the arrays that it reads and writes, and its
    routines and kernels come from the record of the same dtype, layout and class of size. If there is none,
    the result is "not recorded" and names the most similar record.

    Sizes are divided into classes. A matrix multiplication is small if the cube root of M × N × K is below
    256, and large from 2,048. Other operations are small below 65,536 elements, and large from 16,777,216.

    Examples
    --------
    >>> a = cp.ones((1024, 1024), cp.float32)
    >>> gl.library_calls(lambda: a @ a)
    >>> gl.library_calls("torch.addmm", dtype="float16")
    """
    if callable(fn):
        return CallsReport(_observe_calls(fn, args))
    if fn is not None and not isinstance(fn, str):
        raise TypeError(
            f"gl.library_calls needs a function or a recorded operation's name, not {type(fn).__name__}."
        )
    known_calls = read_recorded_calls()
    function_name = fn or "all that was recorded"
    endings = known_calls.named(fn or "", **filters)
    return CallsReport(Calls(provenance=known_calls.provenance, function=function_name, endings=endings))


class CallsReport(PicturedResult):
    """The libraries, routines and kernels of array operations, displayed as a table."""

    def __init__(self, record: Calls) -> None:
        self.record = record

    @property
    def libraries(self) -> tuple[str, ...]:
        """The libraries that were called. Each library is listed once."""
        return tuple(dict.fromkeys(library for ending in self.record.endings for library in ending.libraries))

    def _picture(self) -> CallsTable:
        return CallsTable.of(self.record)

    def __repr__(self) -> str:
        record = self.record
        missing_count = sum(ending.recorded is False for ending in self.record.endings)
        missing_text = f"; {missing_count} not recorded" if missing_count else ""
        libraries_text = f" into {listing(self.libraries)}" if self.libraries else ""
        operations_text = count(len(record.endings), "operation")
        return (
            f"{record.function}: {operations_text}{libraries_text}{missing_text}; {record.provenance.label}."
        )


def _observe_calls(fn: Callable[..., Any], args: tuple[Any, ...]) -> Calls:
    """Call a function once, and return the operations that ran, with their libraries and kernels."""
    backend = session.backend()
    machine = session.virtual_side().machine
    session.cp().cuda.Device().synchronize()
    previous_calls = machine.library_calls
    machine.library_calls = []
    try:
        with timeline() as recorded_timeline:  # which waits at its end
            fn(*args)
        virtual_operations = machine.library_calls
    finally:
        machine.library_calls = previous_calls
    kernel_names = [
        activity.name
        for activity in recorded_timeline.record.activities
        if activity.kind == "CONCURRENT_KERNEL"
    ]
    name = getattr(fn, "__name__", type(fn).__name__)
    known_calls = read_recorded_calls()
    origin = backend.provenance
    if origin.source == "measured":
        measured_calls = tuple(known_calls.find_real_kernels(Counter(kernel_names)))
        return Calls(
            provenance=origin, function=name, endings=measured_calls, note=recorded_timeline.record.note
        )
    library_note = (
        f"The table shows the operations of the {origin.device}, which does not use any of these libraries."
    )
    endings = tuple(known_calls.find_virtual_kernels(kernel_names, virtual_operations))
    return Calls(provenance=known_calls.provenance, function=name, endings=endings, note=library_note)


def read_recorded_calls() -> KnownCalls:
    """Return the recorded library calls. The recording is part of gpulab."""
    file = resources.files("gpulab") / "data" / "recordings" / RECORD_FILE
    return read_known_calls(json.loads(lzma.decompress(file.read_bytes())), RECORD_FILE)
