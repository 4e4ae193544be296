"""Storage of a launch's arguments for later use, which does not keep a learner's arrays alive."""

from __future__ import annotations

import sys
import weakref
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any

from virtualgpu.errors import GpulabError

# Arrays made for a launch alone, as in `gl.launch(kernel, 4, 256, (cp.zeros(1024), n))`: those of the last
# few launches stay, if each takes no more than this.
_MAX_KEPT_BYTES = 4 << 20
_MAX_KEPT_LAUNCHES = 8


class StoredArguments:
    """The stored arguments of a launch, for repeating the launch while its arrays exist.

    Parameters
    ----------
    args
        The arguments. An array that is referenced only by this tuple belongs to the launch.
    is_array
        Returns whether an argument is a device array.
    recent_arrays
        The arrays that belong to the most recent launches; older arrays are dropped.
    """

    def __init__(
        self, args: Sequence[Any], is_array: Callable[[Any], bool], recent_arrays: deque[list[Any]]
    ) -> None:
        owned_indices = [
            argument_index
            for argument_index, reference_count in enumerate(_count_references(args))
            if reference_count <= _UNSHARED_COUNT
        ]
        array_indices = {argument_index for argument_index, argument in enumerate(args) if is_array(argument)}
        self._other_arguments = [
            None if argument_index in array_indices else args[argument_index]
            for argument_index in range(len(args))
        ]
        self._arrays = {argument_index: weakref.ref(args[argument_index]) for argument_index in array_indices}
        recent_arrays.append(
            [
                args[n]
                for n in owned_indices
                if n in array_indices and _find_kept_bytes(args[n]) <= _MAX_KEPT_BYTES
            ]
        )

    def find_current(self) -> tuple[Any, ...]:
        """Return the arguments of the launch if all arrays still exist.

        Raises
        ------
        GpulabError
            If an array no longer exists.
        """
        args = list(self._other_arguments)
        for argument_index, array in self._arrays.items():
            args[argument_index] = array()
            if args[argument_index] is None:
                raise GpulabError(
                    "The arrays of this launch have been freed. Assign them to "
                    "variables, and run the cell again."
                )
        return tuple(args)


def make_recent_arrays() -> deque[list[Any]]:
    """Return an empty queue for the arrays of the most recent launches. Arrays in the queue stay alive even
    if the program no longer refers to them.
    """
    return deque(maxlen=_MAX_KEPT_LAUNCHES)


def _count_references(args: Sequence[Any]) -> list[int]:
    """Return the number of references to each argument."""
    return [sys.getrefcount(argument) for argument in args]


# The same of an object that only a tuple has.
(_UNSHARED_COUNT,) = _count_references((object(),))


def _find_kept_bytes(array: Any) -> int:
    """Return the number of bytes that an array keeps alive. A view keeps the whole memory block alive."""
    return max(int(getattr(array, "nbytes", 0)), int(getattr(getattr(array.data, "mem", None), "size", 0)))
