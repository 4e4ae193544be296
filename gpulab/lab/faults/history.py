"""``gl.who_wrote``: the history of an array element, to find the line that wrote a wrong value."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from gpulab import session
from gpulab._deprecated import accept_old_parameters
from gpulab.session.history import record_element_history
from gpulab.views.tables.history import HistoryTable


@accept_old_parameters
def who_wrote(array: Any, index: int | tuple[int, ...], fn: Callable[..., Any], *args: Any) -> HistoryTable:
    """Call a function, and list all writes to one array element during the call, in order.

    Parameters
    ----------
    array
        A device array that exists before the function begins. It may share memory with other arrays.
    index
        The index of the element: a number, or a tuple with one number per dimension.
    fn, args
        The function and its arguments. An exception of the function ends the history, which then names it.

    Returns
    -------
    HistoryTable
        The history (`virtualgpu.records.faults.history.ElementHistory`), displayed as a table. It starts with
        the value before the call. Stores and atomics are listed with kernel, launch, block, thread, line and
        value; copies, memsets and library kernels with their Python line. ``.last`` is the write of the
        current value.

    Raises
    ------
    IndexError, TypeError
        For an index outside the array, or arguments that are not an array or not a function.
    NotSupportedError
        On a real GPU.

    Notes
    -----
    The virtual GPU runs blocks one after the other. If several blocks write to one element, a real GPU may
    have a different order.

    Examples
    --------
    >>> x = cp.zeros(8)
    >>> gl.who_wrote(x, 3, lambda: x.fill(2.0)).last.value
    2.0
    """
    if not callable(fn):
        raise TypeError(f"gl.who_wrote needs a function, not {type(fn).__name__}.")
    if not isinstance(array, session.cp().ndarray):
        raise TypeError(f"gl.who_wrote needs a device array, not {type(array).__name__}.")
    indices = index if isinstance(index, tuple) else (index,)
    if len(indices) != array.ndim or not all(hasattr(axis_index, "__index__") for axis_index in indices):
        raise IndexError(
            f"The index {index!r} does not fit the array of shape {array.shape}. Pass an index of "
            f"{array.ndim} integers."
        )
    element = array[tuple(slice(axis_index, axis_index + 1 or None) for axis_index in map(int, indices))]
    if element.size != 1:
        raise IndexError(f"{index!r} is outside an array of shape {array.shape}.")
    program_names, (frame, _) = session.make_program_names(), session.make_program_lines().find_frame()
    if frame is not None:
        program_names.collect_names(frame)
    array_name = program_names.find_array_name(id(array)) or "array"
    index_text = ", ".join(str(int(axis_index)) for axis_index in indices)
    return HistoryTable.of(record_element_history(element, f"{array_name}[{index_text}]", lambda: fn(*args)))
