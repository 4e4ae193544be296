"""What a value inside a fused function can do, and what it cannot: the rules CuPy has for both its ways."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from virtualgpu.cp._core.device_rules import Traceable

# NumPy's functions that work on any Python object with operators, and so on a fused value.
_BY_OPERATOR = frozenset(
    {
        *("add", "subtract", "multiply", "divide", "floor_divide", "remainder", "power", "negative"),
        *("left_shift", "right_shift", "bitwise_and", "bitwise_or", "bitwise_xor", "invert"),
    }
)
_AS_OPERATION: dict[str, Callable[[Any], Any]] = {"square": lambda x: x * x, "reciprocal": lambda x: 1 / x}
_BY_METHOD = frozenset({"fmod", "arctan2", "hypot"})
REDUCTIONS = frozenset({"sum", "prod", "max", "min", "all", "any", "nansum", "nanprod"})
_SELECT = "use cp.where(condition, x, y), and & and | for conditions"


def _binary(function: np.ufunc) -> Callable[[Any, Any], Any]:
    return lambda self, other: self.ufunc(function, (self, other))


def _reflected(function: np.ufunc) -> Callable[[Any, Any], Any]:
    return lambda self, other: self.ufunc(function, (other, self))


def _in_place(function: np.ufunc) -> Callable[[Any, Any], Any]:
    return lambda self, other: self.ufunc(function, (self, other), self)


class FusedValue(Traceable):
    """A number or array inside a fused function. Subclasses note or compute what is done with it."""

    __slots__ = ()
    __hash__ = None  # type: ignore[assignment]

    def ufunc(self, function: np.ufunc, inputs: Sequence[Any], out: Any = None, dtype: Any = None) -> Any:
        """One element-wise function."""
        raise NotImplementedError(function.__name__)

    __add__, __radd__ = _binary(np.add), _reflected(np.add)
    __sub__, __rsub__ = _binary(np.subtract), _reflected(np.subtract)
    __mul__, __rmul__ = _binary(np.multiply), _reflected(np.multiply)
    __truediv__, __rtruediv__ = _binary(np.true_divide), _reflected(np.true_divide)
    __floordiv__, __rfloordiv__ = _binary(np.floor_divide), _reflected(np.floor_divide)
    __mod__, __rmod__ = _binary(np.remainder), _reflected(np.remainder)
    __pow__ = _binary(np.power)
    __lshift__, __rlshift__ = _binary(np.left_shift), _reflected(np.left_shift)
    __rshift__, __rrshift__ = _binary(np.right_shift), _reflected(np.right_shift)
    __and__, __rand__ = _binary(np.bitwise_and), _reflected(np.bitwise_and)
    __or__, __ror__ = _binary(np.bitwise_or), _reflected(np.bitwise_or)
    __xor__, __rxor__ = _binary(np.bitwise_xor), _reflected(np.bitwise_xor)
    __lt__, __le__ = _binary(np.less), _binary(np.less_equal)
    __gt__, __ge__ = _binary(np.greater), _binary(np.greater_equal)
    __eq__, __ne__ = _binary(np.equal), _binary(np.not_equal)

    def __neg__(self) -> Any:
        return self.ufunc(np.negative, (self,))

    def __invert__(self) -> Any:
        return self.ufunc(np.invert, (self,))

    def __array_ufunc__(self, function: np.ufunc, method: str, *inputs: Any, **kwargs: Any) -> Any:
        """NumPy's functions, and those of ``cp``, which name a dtype with each call."""
        name = function.__name__
        if method != "__call__":
            raise TypeError(f"np.{name}.{method} cannot be fused: call cp.sum, cp.prod, cp.max or cp.min.")
        if "dtype" in kwargs:
            out = kwargs.pop("out", None)
            return self.ufunc(function, inputs, None if out is None else out[0], kwargs["dtype"])
        if name in _BY_OPERATOR and not kwargs:
            if name == "power" and not isinstance(inputs[0], FusedValue):
                return self.__rpow__(inputs[0])
            return self.ufunc(function, inputs)
        if name in _AS_OPERATION and not kwargs:
            return _AS_OPERATION[name](self)
        if name in _BY_METHOD:
            raise AttributeError(f"A fused value has no attribute {name!r}: call cp.{name} inside cp.fuse.")
        raise TypeError(
            f"loop of ufunc does not support a fused value, which has no callable {name} method: "
            f"inside cp.fuse call cp.{name} instead of np.{name}."
        )

    def __rpow__(self, base: Any) -> Any:
        raise TypeError(
            f"unsupported operand type(s) for ** or pow(): {type(base).__name__} and a fused value. "
            "Inside cp.fuse write cp.power(base, x)."
        )

    def __pos__(self) -> Any:
        raise TypeError("bad operand type for unary +: a fused value. Leave the + out.")

    def __abs__(self) -> Any:
        raise TypeError("bad operand type for abs(): a fused value. Inside cp.fuse write cp.absolute(x).")

    def __matmul__(self, other: Any) -> Any:
        raise TypeError(
            "unsupported operand type(s) for @: a fused value. cp.fuse joins element-wise functions and "
            "reductions only; multiply matrices outside of it."
        )

    __rmatmul__ = __matmul__

    def __bool__(self) -> bool:
        raise TypeError(
            "Cannot convert to Python scalar in cupy.fuse: the function is traced without values, so "
            f"`if`, `and`, `or`, `while`, max() and min() cannot depend on them; {_SELECT}."
        )

    def _scalar(self) -> Any:
        raise TypeError(
            "Cannot convert to Python scalar in cupy.fuse: the function is traced without values. "
            "Call cp's functions rather than math's, and convert outside."
        )

    __int__ = __float__ = __complex__ = __index__ = _scalar

    def __iter__(self) -> Any:
        raise TypeError("A fused value cannot be iterated over: loop outside of cp.fuse.")

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        raise AttributeError(
            f"A fused value has no attribute {name!r}: inside cp.fuse only operators, element-wise functions "
            f"such as cp.sqrt, cp.where, cp.clip, and reductions such as cp.sum work; do cp.{name} outside."
        )

    @staticmethod
    def refuse_function(name: str) -> AttributeError:
        """The error for a function of ``cp`` that cannot be fused."""
        return AttributeError(
            f"A fused value has no attribute {name!r}: cp.{name} cannot be fused, for it is neither "
            "element-wise nor one of cp.sum, prod, max, min, all and any. Call it outside of cp.fuse."
        )

    @staticmethod
    def check_astype(order: Any, casting: Any, subok: Any) -> None:
        """Keywords that ``astype`` does not take inside a fused function."""
        for name, value in (("order", order), ("casting", casting), ("subok", subok)):
            if value is not None:
                raise TypeError(f"{name} is not supported yet by astype inside cp.fuse: leave it out.")


def whole(key: Any) -> None:
    """Raise ``ValueError`` unless an assignment is to all elements."""
    if key is not Ellipsis and not (isinstance(key, slice) and key == slice(None)):
        raise ValueError("The fusion supports `[...]` or `[:]`. Select elements with cp.where.")


class InPlace:
    """The operators that change an array."""

    __slots__ = ()

    __iadd__, __isub__, __imul__ = _in_place(np.add), _in_place(np.subtract), _in_place(np.multiply)
    __itruediv__, __ifloordiv__ = _in_place(np.true_divide), _in_place(np.floor_divide)
    __imod__, __ipow__ = _in_place(np.remainder), _in_place(np.power)
    __ilshift__, __irshift__ = _in_place(np.left_shift), _in_place(np.right_shift)
    __iand__, __ior__, __ixor__ = (
        _in_place(np.bitwise_and),
        _in_place(np.bitwise_or),
        _in_place(np.bitwise_xor),
    )


def reduction_arguments(name: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> dict[str, Any]:
    """``axis``, ``dtype`` and ``out`` of a call such as ``cp.sum(a, ...)`` inside a fused function."""
    has_dtype = name in {"sum", "prod", "nansum", "nanprod"}
    names = ("axis", "dtype", "out", "keepdims") if has_dtype else ("axis", "out", "keepdims")
    given = {**dict(zip(names, args[1:], strict=False)), **kwargs}
    unknown = set(given) - set(names)
    if unknown or len(args) > 1 + len(names):
        raise TypeError(f"cp.{name} takes {', '.join(names)} inside cp.fuse, not {', '.join(unknown)}.")
    if given.pop("keepdims", False):
        raise NotImplementedError(
            f"cupy.{ {'max': 'amax', 'min': 'amin'}.get(name, name) } does not support `keepdims` in fusion "
            "yet: add the axis outside, with x[:, None] or cp.expand_dims."
        )
    return given


def clip_bounds(args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[Any, Any]:
    """Both bounds of ``cp.clip``, which may not be None inside a fused function."""
    low, high = (*args[1:], None, None)[:2]
    low, high = kwargs.get("a_min", kwargs.get("min", low)), kwargs.get("a_max", kwargs.get("max", high))
    if low is None or high is None:
        raise TypeError(
            "Unsupported type <class 'NoneType'>: inside cp.fuse cp.clip takes both bounds; for one of them "
            "use cp.maximum or cp.minimum."
        )
    return low, high
