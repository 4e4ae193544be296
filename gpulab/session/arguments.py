"""A launch's arguments, stored for some time without keeping a learner's arrays alive."""

from __future__ import annotations

import sys
import weakref
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any

from virtualgpu.errors import GpulabError

# Arrays made for a launch alone, as in `gl.launch(kernel, 4, 256, (cp.zeros(1024), n))`: those of the last
# few launches stay, if each takes no more than this.
_MOST_BYTES = 4 << 20
_LAST_LAUNCHES = 8


class Arguments:
    """Arguments of a launch, usable for another launch while its arrays exist.

    Parameters
    ----------
    args
        The arguments; arrays that nobody but this tuple has are the launch's own.
    is_array
        Whether one of them holds device memory.
    recent
        The own arrays of the last launches; those of earlier ones are dropped.
    """

    def __init__(
        self, args: Sequence[Any], is_array: Callable[[Any], bool], recent: deque[list[Any]]
    ) -> None:
        own_numbers = [number for number, references in enumerate(_holders(args)) if references <= _ALONE]
        arrays = {number for number, argument in enumerate(args) if is_array(argument)}
        self._other_arguments = [None if number in arrays else args[number] for number in range(len(args))]
        self._arrays = {number: weakref.ref(args[number]) for number in arrays}
        recent.append([args[n] for n in own_numbers if n in arrays and _memory_bytes(args[n]) <= _MOST_BYTES])

    def now(self) -> tuple[Any, ...]:
        """Return the arguments.

        Raises
        ------
        GpulabError
            If an array is gone.
        """
        args = list(self._other_arguments)
        for number, array in self._arrays.items():
            args[number] = array()
            if args[number] is None:
                raise GpulabError(
                    "The arrays of this launch have been freed. Assign them to "
                    "variables, and run the cell again."
                )
        return tuple(args)


def recent_arrays() -> deque[list[Any]]:
    """Return a container for the own arrays of the last launches."""
    return deque(maxlen=_LAST_LAUNCHES)


def _holders(args: Sequence[Any]) -> list[int]:
    """Return the number of references to each argument."""
    return [sys.getrefcount(argument) for argument in args]


# The same of an object that only a tuple has.
(_ALONE,) = _holders((object(),))


def _memory_bytes(array: Any) -> int:
    """Return the bytes that an array keeps alive; a view's memory may be larger than the view."""
    return max(int(getattr(array, "nbytes", 0)), int(getattr(getattr(array.data, "mem", None), "size", 0)))
