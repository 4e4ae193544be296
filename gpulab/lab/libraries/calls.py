"""``gl.library_calls``: the library, the routine and the kernels that a line of array code calls."""

from __future__ import annotations

import json
import lzma
from collections import Counter
from collections.abc import Callable
from importlib import resources
from typing import Any

from gpulab import session
from gpulab._deprecated import old_parameters
from gpulab.lab._base import Pictured
from gpulab.lab.timeline import timeline
from gpulab.views.tables.libraries import CallsTable
from gpulab.words import count, listing
from virtualgpu.records.libraries import Calls
from virtualgpu.records.libraries.known import KnownCalls, known_calls

RECORD = "h200_calls.json.xz"


@old_parameters
def library_calls(fn: Callable[..., Any] | str | None = None, *args: Any, **filters: str) -> CallsReport:
    """Show which library, routines and kernels a function of arrays calls.

    Parameters
    ----------
    fn
        A function of arrays, which is called once with `args`. Or an operation's name as it was recorded,
        such as ``"torch.addmm"`` or ``"cupy.matmul"``. Without it: all operations that were recorded.
    args
        The function's arguments.
    **filters
        Which of an operation's records: ``dtype="float16"``, ``size="large"``, ``layout="row-major"``.

    Returns
    -------
    CallsReport
        A table. ``.record`` holds the data (`virtualgpu.records.libraries.Calls`).

    Raises
    ------
    GpulabError
        For an operation that was never recorded; the message names the nearest. Or where a timeline is being
        recorded already.
    TypeError
        For anything but a function or a name.

    Notes
    -----
    On a real GPU kernels are seen by CUPTI as the function runs, and belong to a library by their names;
    routines, which CUPTI does not see, are those that the shipped record has with the same kernels. On a
    virtual GPU, which has none of the libraries, the operation is told from what it reads and writes, and its
    routines and kernels come from the record: of the same dtype, layout and class of size, or else the answer
    is "not recorded" and names the nearest that was.

    Sizes are classes. Of a product: small below 256 (the cube root of the product of its three edges), large
    from 2,048 on. Of other operations: small below 65,536 elements, large from 16,777,216 on.

    Examples
    --------
    >>> a = cp.ones((1024, 1024), cp.float32)
    >>> gl.library_calls(lambda: a @ a)
    >>> gl.library_calls("torch.addmm", dtype="float16")
    """
    if callable(fn):
        return CallsReport(_observed(fn, args))
    if fn is not None and not isinstance(fn, str):
        raise TypeError(
            f"gl.library_calls needs a function or a recorded operation's name, not {type(fn).__name__}."
        )
    known_calls = recorded()
    title = fn or "all that was recorded"
    endings = known_calls.named(fn or "", **filters)
    return CallsReport(Calls(provenance=known_calls.provenance, function=title, endings=endings))


class CallsReport(Pictured):
    """Libraries, routines and kernels of operations, displayed as a table."""

    def __init__(self, record: Calls) -> None:
        self.record = record

    @property
    def libraries(self) -> tuple[str, ...]:
        """The libraries that were called, each once."""
        return tuple(dict.fromkeys(library for ending in self.record.endings for library in ending.libraries))

    def _picture(self) -> CallsTable:
        return CallsTable.of(self.record)

    def __repr__(self) -> str:
        record = self.record
        missing = sum(ending.recorded is False for ending in self.record.endings)
        missing_text = f"; {missing} not recorded" if missing else ""
        into = f" into {listing(self.libraries)}" if self.libraries else ""
        operations = count(len(record.endings), "operation")
        return f"{record.function}: {operations}{into}{missing_text}; {record.provenance.label}."


def _observed(fn: Callable[..., Any], args: tuple[Any, ...]) -> Calls:
    """Call a function once, and return the operations that ran with their libraries and kernels."""
    backend = session.backend()
    machine = session.virtual_side().machine
    session.cp().cuda.Device().synchronize()
    previous_calls = machine.library_calls
    machine.library_calls = []
    try:
        with timeline() as line:  # which waits at its end
            fn(*args)
        operations = machine.library_calls
    finally:
        machine.library_calls = previous_calls
    kernels = [activity.name for activity in line.record.activities if activity.kind == "CONCURRENT_KERNEL"]
    name = getattr(fn, "__name__", type(fn).__name__)
    known_calls = recorded()
    origin = backend.provenance
    if origin.source == "measured":
        measured_calls = tuple(known_calls.of_real_kernels(Counter(kernels)))
        return Calls(provenance=origin, function=name, endings=measured_calls, note=line.record.note)
    note = f"Operations are those that the {origin.device} ran, without any of these libraries."
    endings = tuple(known_calls.of_virtual_kernels(kernels, operations))
    return Calls(provenance=known_calls.provenance, function=name, endings=endings, note=note)


def recorded() -> KnownCalls:
    """The shipped record."""
    file = resources.files("gpulab") / "data" / "recordings" / RECORD
    return known_calls(json.loads(lzma.decompress(file.read_bytes())), RECORD)
