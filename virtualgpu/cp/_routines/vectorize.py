"""``cp.vectorize``: a Python function of scalars as one kernel over arrays."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from virtualgpu.cp._core.array import ndarray
from virtualgpu.cp._routines.from_numpy import lift


class vectorize:  # noqa: N801 - CuPy's name
    """A function of scalars that takes arrays: broadcast, element by element, in one kernel.

    CuPy translates the function into CUDA C++. Here Python calls it for every element on the host, so more is
    allowed than on a GPU: there it can hold arithmetic, comparisons, conditions, loops over ``range`` and
    calls of NumPy's and ``math``'s functions, and no lists, texts or exceptions.

    Parameters
    ----------
    pyfunc : callable
        Of scalars, which have the arrays' dtypes.
    otypes : str or list of dtypes, optional
        The results' dtypes; by default those that the function gives.
    doc : str, optional
        Instead of the function's own.

    Raises
    ------
    NotImplementedError
        For `excluded`, `cache` and `signature`, as in CuPy.

    Examples
    --------
    >>> clipped = cp.vectorize(lambda x: x if x < 1 else 1.0)
    >>> clipped(cp.array([0.5, 2.0]))
    array([0.5, 1. ])
    """

    def __init__(
        self,
        pyfunc: Callable[..., Any],
        otypes: Any = None,
        doc: str | None = None,
        excluded: Any = None,
        cache: bool = False,
        signature: Any = None,
    ) -> None:
        for name, value in (("excluded", excluded), ("cache", cache), ("signature", signature)):
            if value:
                raise NotImplementedError(f"cupy.vectorize does not support `{name}` option currently.")
        if not callable(pyfunc):
            raise TypeError(f"cp.vectorize takes a function, not {type(pyfunc).__name__}.")
        self.pyfunc = pyfunc
        self.otypes = otypes
        self.__doc__ = doc if doc is not None else pyfunc.__doc__
        self.__name__ = getattr(pyfunc, "__name__", "function")

    def __call__(self, *args: Any) -> Any:
        """Call the function for each element of the arrays.

        Raises
        ------
        TypeError
            For arguments that are neither device arrays nor scalars.
        """
        if not any(isinstance(each, ndarray) for each in args):
            raise TypeError(
                "cp.vectorize's function takes at least one device array: cp.asarray(x) makes one."
            )
        name = self.__name__.strip("<>")
        return lift(self._over, name=f"vectorize_{name}", operands=len(args))(*args)

    def _over(self, *args: Any) -> Any:
        """As NumPy's vectorize, which hands elements over as Python's own numbers where these do not."""
        arrays = np.broadcast_arrays(*args)
        shape = arrays[0].shape
        # NumPy's scalars, so that float32 stays float32; without an element, one of ones tells the dtype.
        of = (
            [each.ravel() for each in arrays]
            if arrays[0].size
            else [np.ones(1, each.dtype) for each in arrays]
        )
        found = [self.pyfunc(*values) for values in zip(*of, strict=True)]
        several = isinstance(found[0], tuple)
        columns = list(zip(*found, strict=True)) if several else [found]
        kinds = self.otypes or [None] * len(columns)
        made = []
        for column, kind in zip(columns, kinds, strict=True):
            whole = np.array(column, kind or np.result_type(*{np.asarray(one).dtype for one in column}))
            made.append(whole[: arrays[0].size].reshape(shape))
        return tuple(made) if several else made[0]
