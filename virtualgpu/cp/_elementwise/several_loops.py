"""Fused functions that are more than one loop: several reductions, or elements mixed with reduced values.

CuPy runs those as one cooperative kernel that synchronises the grid between the steps. Here each step
is a kernel of its own, with the same results.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from virtualgpu.cp._core.array import ndarray
from virtualgpu.cp._elementwise.values import (
    REDUCTIONS,
    FusedValue,
    InPlace,
    clip_bounds,
    reduction_arguments,
    whole,
)

# Element-wise functions of CuPy that are none of NumPy's universal functions.
_FUNCTIONS = frozenset({"round", "real", "imag", "angle", "sinc", "i0"})


def _content(value: Any) -> Any:
    """The array or number behind an operand."""
    if isinstance(value, StepValue):
        return value.content
    if isinstance(value, (bool, int, float, complex, np.generic)):
        return value
    if isinstance(value, (ndarray, np.ndarray)):
        raise TypeError(
            "Concrete ndarray is not supported in fusion: make every array an argument of the fused function."
        )
    raise TypeError(f"{type(value)} type is not supported in cp.fuse: pass device arrays and numbers.")


def _call(name: str, *args: Any, **kwargs: Any) -> Any:
    """A function of ``cp`` on what is behind its operands."""
    from virtualgpu.cp._routines import functions

    result = getattr(functions, name)(*args, **kwargs)
    return tuple(StepArray(r) for r in result) if isinstance(result, tuple) else StepArray(result)


class StepValue(FusedValue):
    """A number; for arrays there is `StepArray`."""

    __slots__ = ("content",)

    def __init__(self, content: Any) -> None:
        self.content = content

    def __repr__(self) -> str:
        return f"<{self.dtype} value within cp.fuse>"

    @property
    def dtype(self) -> np.dtype[Any]:
        return np.result_type(self.content) if not isinstance(self.content, ndarray) else self.content.dtype

    @property
    def ndim(self) -> int:
        return np.ndim(self.content)

    @property
    def shape(self) -> Any:
        raise NotImplementedError(
            "`shape` is not supported, currently: a fused function is compiled for any shape. Pass sizes "
            "as arguments, such as x.size."
        )

    def ufunc(self, function: np.ufunc, inputs: Sequence[Any], out: Any = None, dtype: Any = None) -> Any:
        """One element-wise function."""
        operands = [_content(value) for value in inputs]
        if out is None:
            return _call(function.__name__, *operands, dtype=dtype)
        if not isinstance(out, StepArray):
            raise TypeError("Return arrays must be of ArrayType: out= takes an array of the fused function.")
        _call(function.__name__, *operands, out=out.content, dtype=dtype)
        return out

    def copy(self) -> Any:
        """A new array of the same values."""
        return self.astype(self.dtype)

    def astype(
        self, dtype: Any, order: Any = None, casting: Any = None, subok: Any = None, copy: bool = True
    ) -> Any:
        """The values converted to another dtype."""
        self.check_astype(order, casting, subok)
        from virtualgpu.cp._routines import creation

        array = self.content if isinstance(self.content, ndarray) else creation.asarray(self.content)
        return self if not copy and array.dtype == np.dtype(dtype) else StepArray(array.astype(dtype))

    def fused_call(self, name: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """A function of the ``cp`` namespace that is no element-wise function of NumPy."""
        if name in REDUCTIONS:
            return _reduce(name, args, kwargs)
        if name == "where" and len(args) == 3:
            condition, x, y = (_content(value) for value in args)
            if np.dtype(getattr(condition, "dtype", type(condition))) != np.bool_:
                raise TypeError(
                    "Wrong type of arguments for cupy_where: inside cp.fuse the condition is a boolean, such "
                    "as x != 0."
                )
            return _call("where", condition, x, y)
        if name == "clip":
            operands = [_content(value) for value in (args[0], *clip_bounds(args, kwargs))]
            return _call("clip", *operands)
        if name in _FUNCTIONS:
            return _call(name, *(_content(value) for value in args), **kwargs)
        if name == "copyto":
            return _copy_to(*args, **kwargs)
        raise self.refuse_function(name)

    def sum(self, axis: Any = None, dtype: Any = None, out: Any = None, keepdims: bool = False) -> Any:
        """Like ``cp.sum``."""
        return self.fused_call("sum", (self, axis, dtype, out, keepdims), {})

    def prod(self, axis: Any = None, dtype: Any = None, out: Any = None, keepdims: bool = False) -> Any:
        """Like ``cp.prod``."""
        return self.fused_call("prod", (self, axis, dtype, out, keepdims), {})

    def _method(name: str) -> Callable[..., Any]:  # type: ignore[misc]  # noqa: N805 - used in the class only
        def method(self: StepValue, axis: Any = None, out: Any = None, keepdims: bool = False) -> Any:
            return self.fused_call(name, (self, axis, out, keepdims), {})

        method.__name__ = name
        method.__doc__ = f"Like ``cp.{name}``."
        return method

    max, min, all, any = _method("max"), _method("min"), _method("all"), _method("any")
    del _method


class StepArray(InPlace, StepValue):
    """An array inside a fused function."""

    __slots__ = ()

    def __getitem__(self, key: Any) -> Any:
        for part in key if isinstance(key, tuple) else (key,):
            if isinstance(part, slice):
                if part.start is not None or part.stop is not None or part.step not in (1, -1, None):
                    raise NotImplementedError(
                        "Only full range ``x[::]`` or reverse ``x[::-1]`` is supported for basic slicing in "
                        "CuPy fusion: cut parts of arrays outside of the fused function."
                    )
            elif not (part is None or part is Ellipsis or isinstance(part, int)):
                raise IndexError(
                    "Indices must be integers, slices, ellipsis or None inside cp.fuse: select elements "
                    "with cp.where, or outside."
                )
        return StepArray(self.content[key])

    def __setitem__(self, key: Any, value: Any) -> None:
        whole(key)
        self.content[...] = _content(value)


def _reduce(name: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    given = reduction_arguments(name, args, kwargs)
    if not isinstance(args[0], StepArray):
        raise NotImplementedError("Reduction for scalar arguments is not supported: reduce an array.")
    out = given.pop("out", None)
    if out is None:
        return _call(name, args[0].content, **given)
    _call(name, args[0].content, out=_content(out), **given)
    return out


def _copy_to(dst: Any, src: Any, casting: Any = "same_kind", where: Any = None) -> None:
    target, value = _content(dst), _content(src)
    if not np.can_cast(getattr(value, "dtype", None) or np.min_scalar_type(value), target.dtype, casting):
        raise TypeError(f"Cannot cast {value} to {target.dtype} in {casting} casting mode")
    if where is not None:
        value = _call("where", _content(where), value, target).content
    target[...] = value


def run(function: Callable[..., Any], args: Sequence[Any]) -> Any:
    """What a function of arrays and numbers returns, computed step by step under the rules of ``cp.fuse``.

    Raises
    ------
    TypeError, AttributeError, NotImplementedError, ValueError, IndexError
        If the function does what CuPy cannot fuse.
    """
    result = function(*(_entered(value) for value in args))
    if result is None:
        return None
    if isinstance(result, StepArray):
        return result.content
    if not isinstance(result, tuple):
        raise ValueError(
            "The return value of fused functions must be `None`, ndarray or a tuple of ndarays, not a "
            f"{type(result).__name__}."
        )
    if not all(isinstance(item, StepArray) for item in result):
        raise ValueError(
            "The all elements of return value of fused function must be arrays: leave the numbers out."
        )
    return tuple(item.content for item in result)


def _entered(value: Any) -> Any:
    if value is None:
        return None
    return StepArray(value) if isinstance(value, ndarray) else StepValue(value)
