"""``gl.who_wrote``: from a wrong number in a result to the line that made it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from gpulab import session
from gpulab._deprecated import old_parameters
from gpulab.session.history import element_history
from gpulab.views.tables.history import HistoryTable


@old_parameters
def who_wrote(array: Any, index: int | tuple[int, ...], fn: Callable[..., Any], *args: Any) -> HistoryTable:
    """Call a function, and list every write to one element of an array during the call, in order.

    Parameters
    ----------
    array
        A device array that is there before the function begins; it may be any other one's memory, too.
    index
        Which element: a number, or a tuple of one for each dimension.
    fn, args
        The function and its arguments. An exception of the function ends the history, which then names it.

    Returns
    -------
    HistoryTable
        The history (`virtualgpu.records.faults.history.ElementHistory`), which displays as a table: what the
        element held before, then each store and atomic with kernel, launch, block, thread, line and value,
        each copy, memset and kernel of the library with its Python line. ``.last`` is who wrote what it holds
        now.

    Raises
    ------
    IndexError, TypeError
        For an index that means no element, no array, or no function.
    NotSupportedError
        On a real GPU.

    Notes
    -----
    Blocks run one after the other here; where several write one element, a GPU may have another order.

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
    places = index if isinstance(index, tuple) else (index,)
    if len(places) != array.ndim or not all(hasattr(place, "__index__") for place in places):
        raise IndexError(
            f"The index of an element of an array of shape {array.shape} must be "
            f"{array.ndim} integers, not {index!r}."
        )
    element = array[tuple(slice(place, place + 1 or None) for place in map(int, places))]
    if element.size != 1:
        raise IndexError(f"{index!r} is outside an array of shape {array.shape}.")
    names, (frame, _) = session.program_names(), session.program_lines().frame()
    if frame is not None:
        names.look(frame)
    array_name = names.array(id(array)) or "array"
    index_text = ", ".join(str(int(place)) for place in places)
    return HistoryTable.of(element_history(element, f"{array_name}[{index_text}]", lambda: fn(*args)))
