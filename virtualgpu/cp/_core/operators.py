"""Operators and methods of the virtual GPU's arrays, and errors for missing attributes.

Operators call NumPy's ufuncs, which call ``__array_ufunc__``. CuPy does the same, so that operands of other
types raise the same errors.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from virtualgpu.cp._core.arguments import check_device
from virtualgpu.cp._core.indexing import flatiter
from virtualgpu.cp._core.library_kernels import run_kernel
from virtualgpu.cp._missing_names import describe_missing_attribute
from virtualgpu.model.machine import current


def _must_defer(other: Any) -> bool:
    """Return whether an operator must leave the operation to `other`, according to NumPy's rules."""
    if isinstance(other, (OperatorMethods, np.ndarray, np.generic, int, float, complex)):
        return False
    if hasattr(other, "__array_ufunc__"):
        return other.__array_ufunc__ is None
    return float(getattr(other, "__array_priority__", -1.0)) > OperatorMethods.__array_priority__


def _make_binary_method(ufunc: Callable[..., Any]) -> Callable[[Any, Any], Any]:
    return lambda self, other: NotImplemented if _must_defer(other) else ufunc(self, other)


def _make_reflected_method(ufunc: Callable[..., Any]) -> Callable[[Any, Any], Any]:
    return lambda self, other: NotImplemented if _must_defer(other) else ufunc(other, self)


def _make_in_place_method(ufunc: Callable[..., Any]) -> Callable[[Any, Any], Any]:
    return lambda self, other: ufunc(self, other, out=self)


def _compares_by_identity(value: Any) -> bool:
    """Return whether the class of a value does not define ``==``, so that no array element equals it."""
    return getattr(type(value), "__eq__", None) is getattr(object, "__eq__", None)


def _make_comparison_method(
    ufunc: Callable[..., Any], result_for_others: bool | None = None
) -> Callable[[Any, Any], Any]:
    def compare(self: Any, other: Any) -> Any:
        if _must_defer(other):
            return NotImplemented
        if isinstance(other, np.ndarray) and other.ndim == 0:
            other = other.item()
        if result_for_others is not None and (other is None or _compares_by_identity(other)):
            return type(self)._make_filled(self.shape, np.dtype(np.bool_), result_for_others)
        return ufunc(self, other)

    return compare


def _make_forwarded_method(name: str) -> Callable[..., Any]:
    """Return a method that passes the array to the function of ``cp`` with the same name."""

    def method(self: Any, *args: Any, **kwargs: Any) -> Any:
        return getattr(self._module, name)(self, *args, **kwargs)

    method.__name__ = name
    method.__doc__ = f"Like ``cp.{name}(a, ...)``."
    return method


class OperatorMethods:
    """Base class of `ndarray` with the arithmetic, comparison and bitwise operators."""

    __slots__ = ()
    __array_priority__ = 100.0

    __add__ = _make_binary_method(np.add)
    __radd__ = _make_reflected_method(np.add)
    __iadd__ = _make_in_place_method(np.add)
    __sub__ = _make_binary_method(np.subtract)
    __rsub__ = _make_reflected_method(np.subtract)
    __isub__ = _make_in_place_method(np.subtract)
    __mul__ = _make_binary_method(np.multiply)
    __rmul__ = _make_reflected_method(np.multiply)
    __imul__ = _make_in_place_method(np.multiply)
    __truediv__ = _make_binary_method(np.true_divide)
    __rtruediv__ = _make_reflected_method(np.true_divide)
    __itruediv__ = _make_in_place_method(np.true_divide)
    __floordiv__ = _make_binary_method(np.floor_divide)
    __rfloordiv__ = _make_reflected_method(np.floor_divide)
    __ifloordiv__ = _make_in_place_method(np.floor_divide)
    __mod__ = _make_binary_method(np.remainder)
    __rmod__ = _make_reflected_method(np.remainder)
    __imod__ = _make_in_place_method(np.remainder)
    __pow__ = _make_binary_method(np.power)
    __rpow__ = _make_reflected_method(np.power)
    __ipow__ = _make_in_place_method(np.power)
    __divmod__ = _make_binary_method(np.divmod)
    __rdivmod__ = _make_reflected_method(np.divmod)
    __matmul__ = _make_binary_method(np.matmul)
    __rmatmul__ = _make_reflected_method(np.matmul)
    __lshift__ = _make_binary_method(np.left_shift)
    __rlshift__ = _make_reflected_method(np.left_shift)
    __ilshift__ = _make_in_place_method(np.left_shift)
    __rshift__ = _make_binary_method(np.right_shift)
    __rrshift__ = _make_reflected_method(np.right_shift)
    __irshift__ = _make_in_place_method(np.right_shift)
    __and__ = _make_binary_method(np.bitwise_and)
    __rand__ = _make_reflected_method(np.bitwise_and)
    __iand__ = _make_in_place_method(np.bitwise_and)
    __or__ = _make_binary_method(np.bitwise_or)
    __ror__ = _make_reflected_method(np.bitwise_or)
    __ior__ = _make_in_place_method(np.bitwise_or)
    __xor__ = _make_binary_method(np.bitwise_xor)
    __rxor__ = _make_reflected_method(np.bitwise_xor)
    __ixor__ = _make_in_place_method(np.bitwise_xor)
    __lt__ = _make_comparison_method(np.less)
    __le__ = _make_comparison_method(np.less_equal)
    __gt__ = _make_comparison_method(np.greater)
    __ge__ = _make_comparison_method(np.greater_equal)
    __eq__ = _make_comparison_method(np.equal, result_for_others=False)
    __ne__ = _make_comparison_method(np.not_equal, result_for_others=True)

    def __neg__(self) -> Any:
        return np.negative(self)  # type: ignore[call-overload]

    def __pos__(self) -> Any:
        return np.positive(self)  # type: ignore[call-overload]

    def __abs__(self) -> Any:
        return np.absolute(self)  # type: ignore[call-overload]

    def __invert__(self) -> Any:
        return np.invert(self)  # type: ignore[call-overload]


class FunctionMethods:
    """Base class of `ndarray` with the methods that are also functions of ``cp``, such as `sum`."""

    __slots__ = ()

    all = _make_forwarded_method("all")
    any = _make_forwarded_method("any")
    sum = _make_forwarded_method("sum")
    prod = _make_forwarded_method("prod")
    mean = _make_forwarded_method("mean")
    std = _make_forwarded_method("std")
    var = _make_forwarded_method("var")
    ptp = _make_forwarded_method("ptp")
    max = _make_forwarded_method("max")
    min = _make_forwarded_method("min")
    argmax = _make_forwarded_method("argmax")
    argmin = _make_forwarded_method("argmin")
    cumsum = _make_forwarded_method("cumsum")
    cumprod = _make_forwarded_method("cumprod")
    trace = _make_forwarded_method("trace")
    clip = _make_forwarded_method("clip")
    round = _make_forwarded_method("round")
    conj = _make_forwarded_method("conj")
    conjugate = _make_forwarded_method("conjugate")
    dot = _make_forwarded_method("dot")
    take = _make_forwarded_method("take")
    repeat = _make_forwarded_method("repeat")
    ravel = _make_forwarded_method("ravel")
    squeeze = _make_forwarded_method("squeeze")
    swapaxes = _make_forwarded_method("swapaxes")
    nonzero = _make_forwarded_method("nonzero")
    compress = _make_forwarded_method("compress")
    diagonal = _make_forwarded_method("diagonal")
    argsort = _make_forwarded_method("argsort")
    searchsorted = _make_forwarded_method("searchsorted")
    argpartition = _make_forwarded_method("argpartition")
    put = _make_forwarded_method("put")
    choose = _make_forwarded_method("choose")

    def sort(self: Any, axis: int = -1, kind: str | None = None) -> None:
        """Sort the array in place with a stable algorithm."""
        check_sort_kind(kind)
        check_device(self)

        def sort() -> None:
            self._host.sort(axis=axis, kind="stable")

        device = current().current_device
        run_kernel(device, "cupy_sort", 2 * self._host.nbytes, sort, 0.0, (self,), (self,))

    def partition(self: Any, kth: Any, axis: int = -1) -> None:
        """Partition the array in place, like `numpy.ndarray.partition`."""
        self[...] = self._module.partition(self, kth, axis=axis)

    @property
    def flat(self: Any) -> flatiter:
        """Elements of the array in C order, as an iterator that can also be indexed."""
        return flatiter(self)

    def scatter_add(self: Any, slices: Any, value: Any) -> None:
        """Add `value` atomically to the elements at the given indices, once for each time an index occurs."""
        self._module.add.at(self, slices, value)

    def scatter_max(self: Any, slices: Any, value: Any) -> None:
        """Set each element at the given indices to the maximum of its value and `value`."""
        self._module.maximum.at(self, slices, value)

    def scatter_min(self: Any, slices: Any, value: Any) -> None:
        """Set each element at the given indices to the minimum of its value and `value`."""
        self._module.minimum.at(self, slices, value)

    def __getattr__(self, name: str) -> Any:
        raise AttributeError(describe_missing_attribute(type(self), name))


def check_sort_kind(kind: str | None) -> None:
    """Raise ``ValueError`` for a sort `kind` other than ``"stable"`` or None, as CuPy does."""
    if kind is not None and kind != "stable":
        raise ValueError(f"kind can only be None or 'stable', not {kind!r}")
