"""NumPy's own functions on device arrays: they are answered by ``cp``'s functions of the same name.

`kind` is the class of device arrays throughout.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from virtualgpu.cp._core.arguments import unsupported

_COMPARISONS = (np.greater, np.greater_equal, np.less, np.less_equal, np.equal, np.not_equal)


def call_numpy_ufunc(
    kind: Any, function: Any, method: str, inputs: tuple[Any, ...], kwargs: dict[str, Any]
) -> Any:
    """Answer ``numpy.add(device_array, ...)`` and operators, as CuPy's ``__array_ufunc__`` does."""
    target = getattr(kind._module, function.__name__, None)
    out = kwargs.pop("out", None)
    if target is None or (method != "__call__" and not hasattr(target, method)):
        return NotImplemented
    known = (kind, np.ndarray, np.generic, bool, int, float, complex)
    for value in (*inputs, *(out or ())):
        if isinstance(value, (list, tuple, range)):
            raise unsupported(value)
        if not isinstance(value, known):
            return NotImplemented
    if function in _COMPARISONS:  # NumPy scalars come here as arrays of no dimension (numpy/numpy#12142)
        inputs = tuple(x[()] if isinstance(x, np.ndarray) and not x.ndim else x for x in inputs)
    if out is not None:
        kwargs["out"] = out[0] if len(out) == 1 else out
    return (target if method == "__call__" else getattr(target, method))(*inputs, **kwargs)


def call_numpy_function(kind: Any, function: Any, types: Any, args: Any, kwargs: Any) -> Any:
    """Answer ``numpy.sum(device_array)`` and the like with the function of the same name."""
    target: Any = kind._module
    try:
        for part in (*function.__module__.split(".")[1:], function.__name__):
            target = getattr(target, part)
    except AttributeError:
        return NotImplemented
    if not all(issubclass(t, (kind, np.ndarray)) for t in types):
        return NotImplemented
    return target(*args, **kwargs)
