"""``cp.vectorize``: apply a Python function of scalars to arrays in one kernel."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from virtualgpu.cp._core.array import ndarray
from virtualgpu.cp._routines.from_numpy import lift_to_device


class vectorize:  # noqa: N801 - CuPy's name
    """A Python function of scalars that is compiled to a kernel. The kernel applies it to each element of
    broadcast arrays.

    CuPy translates the function into CUDA C++. Here Python calls it for every element on the host, so more
    is allowed than on a GPU. There it can contain arithmetic, comparisons, conditions, loops over ``range``
    and calls of NumPy's and ``math``'s functions, but no lists, strings or exceptions.

    Parameters
    ----------
    pyfunc : callable
        Function of scalars, which have the arrays' dtypes.
    otypes : str or list of dtypes, optional
        Dtypes of the results; by default those of the function's values.
    doc : str, optional
        Docstring in place of the function's.

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
        for name, option_value in (("excluded", excluded), ("cache", cache), ("signature", signature)):
            if option_value:
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
        if not any(isinstance(argument, ndarray) for argument in args):
            raise TypeError(
                "A function of cp.vectorize needs at least one device array. Convert one with cp.asarray(x)."
            )
        name = self.__name__.strip("<>")
        return lift_to_device(self._apply_function, name=f"vectorize_{name}", operand_count=len(args))(*args)

    def _apply_function(self, *args: Any) -> Any:
        """Apply the function to NumPy scalars, because `numpy.vectorize` would pass Python numbers."""
        arrays = np.broadcast_arrays(*args)
        shape = arrays[0].shape
        # NumPy's scalars, so that float32 stays float32; without elements, a one determines the dtype.
        input_columns = (
            [array.ravel() for array in arrays]
            if arrays[0].size
            else [np.ones(1, array.dtype) for array in arrays]
        )
        outputs = [self.pyfunc(*values) for values in zip(*input_columns, strict=True)]
        has_several_outputs = isinstance(outputs[0], tuple)
        output_columns = list(zip(*outputs, strict=True)) if has_several_outputs else [outputs]
        dtypes = self.otypes or [None] * len(output_columns)
        results = []
        for column, dtype in zip(output_columns, dtypes, strict=True):
            output = np.array(column, dtype or np.result_type(*{np.asarray(value).dtype for value in column}))
            results.append(output[: arrays[0].size].reshape(shape))
        return tuple(results) if has_several_outputs else results[0]
