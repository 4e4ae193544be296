"""Make NumPy's functions call the function of ``cp`` with the same name if they receive a device array.

`array_class` is the class of device arrays.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from virtualgpu.cp._core.arguments import make_type_error

_COMPARISON_UFUNCS = (np.greater, np.greater_equal, np.less, np.less_equal, np.equal, np.not_equal)


def call_numpy_ufunc(
    array_class: Any, function: Any, method: str, inputs: tuple[Any, ...], kwargs: dict[str, Any]
) -> Any:
    """Evaluate a NumPy ufunc or an operator on device arrays, as CuPy's ``__array_ufunc__`` does."""
    cupy_function = getattr(array_class._module, function.__name__, None)
    output_arrays = kwargs.pop("out", None)
    if cupy_function is None or (method != "__call__" and not hasattr(cupy_function, method)):
        return NotImplemented
    supported_types = (array_class, np.ndarray, np.generic, bool, int, float, complex)
    for operand in (*inputs, *(output_arrays or ())):
        if isinstance(operand, (list, tuple, range)):
            raise make_type_error(operand)
        if not isinstance(operand, supported_types):
            return NotImplemented
    if (
        function in _COMPARISON_UFUNCS
    ):  # NumPy scalars come here as arrays of no dimension (numpy/numpy#12142)
        inputs = tuple(x[()] if isinstance(x, np.ndarray) and not x.ndim else x for x in inputs)
    if output_arrays is not None:
        kwargs["out"] = output_arrays[0] if len(output_arrays) == 1 else output_arrays
    return (cupy_function if method == "__call__" else getattr(cupy_function, method))(*inputs, **kwargs)


def call_numpy_function(array_class: Any, function: Any, types: Any, args: Any, kwargs: Any) -> Any:
    """Evaluate a NumPy function on device arrays by calling the function of the same name in ``cp``."""
    cupy_object: Any = array_class._module
    try:
        for attribute_name in (*function.__module__.split(".")[1:], function.__name__):
            cupy_object = getattr(cupy_object, attribute_name)
    except AttributeError:
        return NotImplemented
    if not all(issubclass(array_type, (array_class, np.ndarray)) for array_type in types):
        return NotImplemented
    return cupy_object(*args, **kwargs)
