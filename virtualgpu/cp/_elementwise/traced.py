"""Placeholder values that record the operations of a fused function as C++ statements.

`NotOneLoopError` means that a function has to run operation by operation. All other errors are meant for the
learner; most of them are also CuPy's.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from virtualgpu.cp._core.arguments import Traceable
from virtualgpu.cp._core.array import ndarray
from virtualgpu.cp._core.dtypes import check_dtype
from virtualgpu.cp._elementwise.expressions import find_expression
from virtualgpu.cp._elementwise.parameters import get_cpp_type

_SUM_REDUCTIONS = {"sum": ("a + b", "0"), "prod": ("a * b", "1")}
_EXTREME_REDUCTIONS = {"max": "(a != a || a > b) ? a : b", "min": "(a != a || a < b) ? a : b"}
_BOOLEAN_REDUCTIONS = {"all": ("a && b", "true"), "any": ("a || b", "false")}
_UNSUPPORTED_TYPES = frozenset("gGOSUVMm")
# NumPy's functions that work on any Python object with operators, and so on a fused value.
_OPERATOR_UFUNCS = frozenset(
    {
        *("add", "subtract", "multiply", "divide", "floor_divide", "remainder", "power", "negative"),
        *("left_shift", "right_shift", "bitwise_and", "bitwise_or", "bitwise_xor", "invert"),
    }
)
_REPLACED_UFUNCS: dict[str, Callable[[Any], Any]] = {"square": lambda x: x * x, "reciprocal": lambda x: 1 / x}
_METHOD_UFUNCS = frozenset({"fmod", "arctan2", "hypot"})
_REDUCTION_NAMES = frozenset({"sum", "prod", "max", "min", "all", "any", "nansum", "nanprod"})
# CuPy fuses these too, but not into one plain loop.
_UNFUSED_NAMES = frozenset({"round", "real", "imag", "angle", "sinc", "copyto"})
_WHERE_REMEDY = "use cp.where(condition, x, y), and combine conditions with & or |"


class NotOneLoopError(Exception):
    """Error for a function that cannot be fused into one loop with a final reduction."""


@dataclass(frozen=True, slots=True)
class TracedReduction:
    """A recorded reduction of a fused function, with its axes and its C++ expression."""

    value: TracedValue
    expression: str
    identity: str
    dtype: np.dtype[Any]
    axis: Any
    needs_nonempty_input: bool


@dataclass(slots=True)
class TracedArgument:
    """A parameter of a fused kernel. The parameter is an argument of the function, or a constant in its
    code.
    """

    name: str
    dtype: np.dtype[Any]
    position: int | None
    constant_value: Any


@dataclass(slots=True)
class FusionTrace:
    """A record of a fused function's operations as C++ statements before and after its reduction."""

    arguments: list[TracedArgument] = field(default_factory=list)
    statements: tuple[list[str], list[str]] = field(default_factory=lambda: ([], []))
    written_positions: dict[int, TracedValue] = field(default_factory=dict)
    reduction: TracedReduction | None = None
    value_count: int = 0

    @property
    def stage(self) -> int:
        """Number of the current stage: 0 before the reduction, and 1 after it."""
        return int(self.reduction is not None)

    def add_argument(self, value: Any, position: int | None = None) -> TracedValue:
        """Add a kernel parameter for an argument or a constant of the function."""
        if isinstance(value, ndarray):
            scalar_type = None
            dtype = value.dtype
        elif isinstance(value, (bool, int, float, complex, np.generic)):
            scalar_type = type(value)
            dtype = check_dtype(np.dtype(scalar_type))
        elif isinstance(value, np.ndarray):
            raise _make_concrete_array_error()
        else:
            raise TypeError(
                f"{type(value)} type is not supported in cp.fuse. Pass device arrays and numbers."
            )
        name = f"in{len(self.arguments)}"
        self.arguments.append(TracedArgument(name, dtype, position, value if position is None else None))
        ndim = value.ndim if isinstance(value, ndarray) else -1
        stage = 0 if position is not None else self.stage
        return (TracedValue if scalar_type else TracedArray)(
            self, name, dtype, ndim, scalar_type, stage, position
        )

    def as_operand(self, value: Any) -> TracedValue:
        """Return an operand as a traced value. The error `NotOneLoopError` is raised if the operand was
        computed before the reduction.
        """
        if isinstance(value, ndarray):
            raise _make_concrete_array_error()
        traced_value = value if isinstance(value, TracedValue) else self.add_argument(value)
        if traced_value.stage != self.stage:
            raise NotOneLoopError
        return traced_value

    def add_value(self, text: str, dtype: np.dtype[Any], operands: Sequence[TracedValue]) -> TracedValue:
        """Add a C++ variable for an expression, and return it as a traced value."""
        name = f"v{self.value_count}"
        self.value_count += 1
        self.statements[self.stage].append(f"const {get_cpp_type(dtype)} {name} = {text};")
        ndim = max(operand.ndim for operand in operands)
        traced_class = TracedArray if ndim >= 0 else TracedValue
        return traced_class(self, name, dtype, ndim, None, self.stage, None)

    def record_ufunc(self, function: np.ufunc, inputs: Sequence[Any], out: Any, dtype: Any) -> Any:
        """Record the call of an element-wise function, and return its result."""
        operands = [self.as_operand(input_value) for input_value in inputs]
        if function.nout != 1 or dtype is not None:
            raise NotOneLoopError
        loop_dtypes = _find_ufunc_loop(function, operands)
        operand_dtype = loop_dtypes[0]
        result_dtype = check_dtype(loop_dtypes[-1])
        cpp_text = find_expression(function, operand_dtype)
        if cpp_text is None or any(k != operand_dtype for k in loop_dtypes[1 : function.nin]):
            raise NotOneLoopError
        operand_texts = [operand.convert_to(operand_dtype) for operand in operands]
        result_value = self.add_value(
            _convert_text(cpp_text.format(*operand_texts), result_dtype), result_dtype, operands
        )
        return result_value if out is None else self.record_assignment(out, result_value)

    def record_assignment(self, target: Any, value: TracedValue) -> TracedValue:
        """Record an assignment to an argument, such as ``x += y`` or ``out=x``. The argument becomes an
        output of the kernel.
        """
        if not isinstance(target, TracedArray) or target.stage != self.stage or target.ndim < value.ndim:
            raise NotOneLoopError
        if not np.can_cast(value.dtype, target.dtype, "same_kind"):
            raise NotOneLoopError
        new_value = self.add_value(value.convert_to(target.dtype), target.dtype, [value, target])
        target.name = new_value.name
        if target.position is not None:
            self.written_positions[target.position] = target
        return target

    def record_where(self, condition: Any, x: Any, y: Any) -> TracedValue:
        """Record a call of ``cp.where`` with three arguments."""
        condition_value, *choice_values = (self.as_operand(argument) for argument in (condition, x, y))
        if condition_value.dtype.kind != "b":
            raise TypeError(
                "Wrong type of arguments for cupy_where. Inside cp.fuse the condition must be a boolean, "
                "such as x != 0."
            )
        dtype = _find_narrowest_loop(
            [(type_letter, type_letter) for type_letter in "?bBhHiIlLefdFD"], choice_values
        )[0]
        choice_texts = [operand.convert_to(dtype) for operand in choice_values]
        return self.add_value(
            f"{condition_value.name} ? {choice_texts[0]} : {choice_texts[1]}",
            dtype,
            [condition_value, *choice_values],
        )

    def record_reduction(self, name: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> TracedValue:
        """Record a reduction. Operations after the reduction can use only its result."""
        options = _parse_reduction(name, args, kwargs)
        reduced_value = args[0]
        if (
            self.stage
            or not isinstance(reduced_value, TracedArray)
            or options.get("out") is not None
            or self.written_positions
        ):
            raise NotOneLoopError
        dtype = reduced_value.dtype
        if name in _SUM_REDUCTIONS:
            reduction_text, identity = _SUM_REDUCTIONS[name]
            if options.get("dtype") is None:  # with one, CuPy's kernel keeps the elements' type
                dtype = getattr(np, name)(np.zeros(1, dtype)).dtype
        elif name in _EXTREME_REDUCTIONS and dtype.kind != "c":
            reduction_text = _EXTREME_REDUCTIONS[name]
            identity = _format_extreme(dtype, lowest=name == "max")
        elif name in _BOOLEAN_REDUCTIONS and dtype.kind != "c":
            (reduction_text, identity), dtype = _BOOLEAN_REDUCTIONS[name], np.dtype(bool)
        else:
            raise NotOneLoopError
        axis = options.get("axis")
        ndim = (
            0 if axis is None else reduced_value.ndim - (len(axis) if isinstance(axis, (tuple, list)) else 1)
        )
        if ndim < 0:
            raise NotOneLoopError
        self.reduction = TracedReduction(
            reduced_value, reduction_text, identity, check_dtype(dtype), axis, name in _EXTREME_REDUCTIONS
        )
        return (TracedArray if ndim else TracedValue)(self, "a", dtype, ndim or -1, None, 1, None)


def _find_ufunc_loop(function: np.ufunc, operands: Sequence[TracedValue]) -> tuple[np.dtype[Any], ...]:
    """Return the operand and result dtypes with which a fused kernel computes an element-wise function.

    If some operands are numbers, the result is the first loop whose types can represent the values of all
    arrays, as in CuPy's fusion; a number does not widen the type. Numbers alone use the narrowest type.
    """
    operand_dtypes = [operand.dtype for operand in operands]
    try:
        dtypes = function.resolve_dtypes((*operand_dtypes, None))
        if all(operand.scalar_type is None for operand in operands):
            return tuple(dtypes)
    except TypeError:  # which the function itself explains
        raise NotOneLoopError from None
    signatures = [types.replace("->", "") for types in function.types]
    supported_loops = [tuple(types) for types in signatures if not _UNSUPPORTED_TYPES & set(types)]
    return _find_narrowest_loop(supported_loops, operands)


def _find_narrowest_loop(
    loops: Sequence[tuple[str, ...]], operands: Sequence[TracedValue]
) -> tuple[np.dtype[Any], ...]:
    for loop_types in loops:
        dtypes = [np.dtype(type_char) for type_char in loop_types]
        if all(
            _accepts_operand(candidate_dtype, operand)
            for candidate_dtype, operand in zip(dtypes, operands, strict=False)
        ):
            return tuple(dtypes)
    raise NotOneLoopError


def _accepts_operand(loop_dtype: np.dtype[Any], operand: TracedValue) -> bool:
    if np.can_cast(operand.dtype, loop_dtype):
        return True
    return (
        operand.scalar_type is not None and np.result_type(operand.scalar_type(0), loop_dtype) == loop_dtype
    )


def _format_extreme(dtype: np.dtype[Any], lowest: bool) -> str:
    """Return the C++ expression of the smallest or largest value of a type."""
    if dtype.kind == "b":
        return "false" if lowest else "true"
    if dtype.kind == "f":
        return f"{get_cpp_type(dtype)}(__int_as_float({0xFF800000 if lowest else 0x7F800000:#x}))"
    extreme_value = np.iinfo(dtype).min if lowest else np.iinfo(dtype).max
    return f"{extreme_value + 1}LL - 1" if extreme_value < 0 else f"{extreme_value}ULL"


def _convert_text(text: str, dtype: np.dtype[Any]) -> str:
    return f"{get_cpp_type(dtype)}({text})" if dtype.char == "e" else f"({text})"


def _make_binary_method(function: np.ufunc) -> Callable[[Any, Any], Any]:
    return lambda self, other: self.record_ufunc(function, (self, other))


def _make_reflected_method(function: np.ufunc) -> Callable[[Any, Any], Any]:
    return lambda self, other: self.record_ufunc(function, (other, self))


def _make_in_place_method(function: np.ufunc) -> Callable[[Any, Any], Any]:
    return lambda self, other: self.record_ufunc(function, (self, other), self)


class TracedValue(Traceable):
    """A placeholder for a scalar or a reduction's result while a fused function is traced.

    The attribute `scalar_type` is the Python type of a number from outside of the function.
    """

    __slots__ = ("dtype", "name", "ndim", "position", "scalar_type", "stage", "trace")
    __hash__ = None  # type: ignore[assignment]

    def __init__(
        self,
        trace: FusionTrace,
        name: str,
        dtype: np.dtype[Any],
        ndim: int,
        scalar_type: type | None,
        stage: int,
        position: int | None,
    ) -> None:
        self.trace = trace
        self.name = name
        self.dtype = dtype
        self.ndim = ndim
        self.scalar_type = scalar_type
        self.stage = stage
        self.position = position

    def __repr__(self) -> str:
        return f"<{self.dtype} value within cp.fuse>"

    def convert_to(self, dtype: np.dtype[Any]) -> str:
        """Return the C++ expression that converts the value to another type."""
        if dtype == self.dtype:
            return f"float({self.name})" if dtype.char == "e" else self.name
        if dtype.kind == "b":
            return f"({self.name} != 0)"
        if self.dtype.kind == "c" and dtype.kind != "c":
            return f"{get_cpp_type(dtype)}({self.name}.real())"
        c_type = "float" if dtype.char == "e" else get_cpp_type(dtype)
        rounded_text = f"{get_cpp_type(dtype)}({self.name})" if dtype.char == "e" else self.name
        return f"(({c_type})({rounded_text}))"

    def copy(self) -> TracedValue:
        """Return a copy of the value as a new traced value."""
        return self.astype(self.dtype)

    def astype(
        self, dtype: Any, order: Any = None, casting: Any = None, subok: Any = None, copy: Any = True
    ) -> TracedValue:
        """Return the value converted to another dtype."""
        for keyword, option in (("order", order), ("casting", casting), ("subok", subok)):
            if option is not None:
                raise TypeError(
                    f"{keyword} is not supported yet by astype inside cp.fuse. Remove this argument."
                )
        target_dtype = check_dtype(dtype)
        value = self.trace.as_operand(self)
        if not copy and target_dtype == self.dtype:
            return self
        return self.trace.add_value(
            _convert_text(value.convert_to(target_dtype), target_dtype), target_dtype, [value]
        )

    def record_ufunc(
        self, function: np.ufunc, inputs: Sequence[Any], out: Any = None, dtype: Any = None
    ) -> Any:
        """Record the call of an element-wise function."""
        return self.trace.record_ufunc(function, inputs, out, dtype)

    def fused_call(self, name: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Record the call of a ``cp`` function that is not a NumPy ufunc, such as ``cp.where``."""
        if name in _REDUCTION_NAMES:
            return self.trace.record_reduction(name, args, kwargs)
        if name == "where" and len(args) == 3:
            return self.trace.record_where(*args)
        if name == "clip":
            lower_bound, upper_bound = _parse_clip_bounds(args, kwargs)
            return np.minimum(np.maximum(args[0], lower_bound, dtype=None), upper_bound, dtype=None)
        if name in _UNFUSED_NAMES:
            raise NotOneLoopError
        raise AttributeError(
            f"A fused value has no attribute {name!r}. cp.{name} cannot be fused, because it is neither an "
            "element-wise function nor one of cp.sum, prod, max, min, all and any. Call it outside of "
            "cp.fuse."
        )

    @property
    def shape(self) -> Any:
        raise NotImplementedError(
            "`shape` is not supported, currently. A fused function is compiled for any shape. Pass sizes as "
            "arguments, such as x.size."
        )

    def _raise_not_one_loop(self, *_: Any, **__: Any) -> Any:
        """Raise `NotOneLoopError` for a reduction called as a method, which CuPy fuses in another way."""
        raise NotOneLoopError

    sum = prod = max = min = all = any = _raise_not_one_loop

    __add__ = _make_binary_method(np.add)
    __radd__ = _make_reflected_method(np.add)
    __sub__ = _make_binary_method(np.subtract)
    __rsub__ = _make_reflected_method(np.subtract)
    __mul__ = _make_binary_method(np.multiply)
    __rmul__ = _make_reflected_method(np.multiply)
    __truediv__ = _make_binary_method(np.true_divide)
    __rtruediv__ = _make_reflected_method(np.true_divide)
    __floordiv__ = _make_binary_method(np.floor_divide)
    __rfloordiv__ = _make_reflected_method(np.floor_divide)
    __mod__ = _make_binary_method(np.remainder)
    __rmod__ = _make_reflected_method(np.remainder)
    __pow__ = _make_binary_method(np.power)
    __lshift__ = _make_binary_method(np.left_shift)
    __rlshift__ = _make_reflected_method(np.left_shift)
    __rshift__ = _make_binary_method(np.right_shift)
    __rrshift__ = _make_reflected_method(np.right_shift)
    __and__ = _make_binary_method(np.bitwise_and)
    __rand__ = _make_reflected_method(np.bitwise_and)
    __or__ = _make_binary_method(np.bitwise_or)
    __ror__ = _make_reflected_method(np.bitwise_or)
    __xor__ = _make_binary_method(np.bitwise_xor)
    __rxor__ = _make_reflected_method(np.bitwise_xor)
    __lt__ = _make_binary_method(np.less)
    __le__ = _make_binary_method(np.less_equal)
    __gt__ = _make_binary_method(np.greater)
    __ge__ = _make_binary_method(np.greater_equal)
    __eq__ = _make_binary_method(np.equal)
    __ne__ = _make_binary_method(np.not_equal)

    def __neg__(self) -> Any:
        return self.record_ufunc(np.negative, (self,))

    def __invert__(self) -> Any:
        return self.record_ufunc(np.invert, (self,))

    def __array_ufunc__(self, function: np.ufunc, method: str, *inputs: Any, **kwargs: Any) -> Any:
        """Record a ufunc that NumPy or ``cp`` calls; ``cp`` passes a dtype with each call."""
        name = function.__name__
        if method != "__call__":
            raise TypeError(f"np.{name}.{method} cannot be fused. Call cp.sum, cp.prod, cp.max or cp.min.")
        if "dtype" in kwargs:
            out = kwargs.pop("out", None)
            return self.record_ufunc(function, inputs, None if out is None else out[0], kwargs["dtype"])
        if name in _OPERATOR_UFUNCS and not kwargs:
            if name == "power" and not isinstance(inputs[0], TracedValue):
                return self.__rpow__(inputs[0])
            return self.record_ufunc(function, inputs)
        if name in _REPLACED_UFUNCS and not kwargs:
            return _REPLACED_UFUNCS[name](self)
        if name in _METHOD_UFUNCS:
            raise AttributeError(f"A fused value has no attribute {name!r}. Call cp.{name} inside cp.fuse.")
        raise TypeError(
            f"loop of ufunc does not support a fused value, which has no callable {name} method. Inside "
            f"cp.fuse, call cp.{name} instead of np.{name}."
        )

    def __rpow__(self, base: Any) -> Any:
        raise TypeError(
            f"unsupported operand type(s) for ** or pow(): {type(base).__name__} and a fused value. "
            "Inside cp.fuse write cp.power(base, x)."
        )

    def __pos__(self) -> Any:
        raise TypeError("bad operand type for unary +: a fused value. Remove the +.")

    def __abs__(self) -> Any:
        raise TypeError("bad operand type for abs(): a fused value. Inside cp.fuse write cp.absolute(x).")

    def __matmul__(self, other: Any) -> Any:
        raise TypeError(
            "unsupported operand type(s) for @: a fused value. cp.fuse joins element-wise functions and "
            "reductions only. Multiply matrices outside of cp.fuse."
        )

    __rmatmul__ = __matmul__

    def __bool__(self) -> bool:
        raise TypeError(
            "Cannot convert to Python scalar in cupy.fuse. The function is traced without values, so `if`, "
            "`and`, `or`, `while`, max() and min() cannot depend on values. To choose between values, "
            f"{_WHERE_REMEDY}."
        )

    def _raise_no_scalar(self) -> Any:
        raise TypeError(
            "Cannot convert to Python scalar in cupy.fuse. The function is traced without values. Call "
            "functions of cp instead of math, and convert values outside of cp.fuse."
        )

    __int__ = __float__ = __complex__ = __index__ = _raise_no_scalar

    def __iter__(self) -> Any:
        raise TypeError("A fused value cannot be iterated over. Loop outside of cp.fuse.")

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        raise AttributeError(
            f"A fused value has no attribute {name!r}. Inside cp.fuse only operators, element-wise functions "
            f"such as cp.sqrt, cp.where, cp.clip, and reductions such as cp.sum work. Call cp.{name} outside "
            "of cp.fuse."
        )


class TracedArray(TracedValue):
    """The placeholder for an array while a fused function is traced. The shape of the array is unknown while
    the function is traced.
    """

    __slots__ = ()

    __iadd__ = _make_in_place_method(np.add)
    __isub__ = _make_in_place_method(np.subtract)
    __imul__ = _make_in_place_method(np.multiply)
    __itruediv__ = _make_in_place_method(np.true_divide)
    __ifloordiv__ = _make_in_place_method(np.floor_divide)
    __imod__ = _make_in_place_method(np.remainder)
    __ipow__ = _make_in_place_method(np.power)
    __ilshift__ = _make_in_place_method(np.left_shift)
    __irshift__ = _make_in_place_method(np.right_shift)
    __iand__ = _make_in_place_method(np.bitwise_and)
    __ior__ = _make_in_place_method(np.bitwise_or)
    __ixor__ = _make_in_place_method(np.bitwise_xor)

    def __getitem__(self, key: Any) -> Any:
        for key_part in key if isinstance(key, tuple) else (key,):
            if isinstance(key_part, slice):
                if (
                    key_part.start is not None
                    or key_part.stop is not None
                    or key_part.step not in (1, -1, None)
                ):
                    raise NotImplementedError(
                        "Only full range ``x[::]`` or reverse ``x[::-1]`` is supported "
                        "for basic slicing in CuPy fusion. Slice arrays outside of the "
                        "fused function."
                    )
            elif not (key_part is None or key_part is Ellipsis or isinstance(key_part, int)):
                raise IndexError(
                    "Indices must be integers, slices, ellipsis or None inside cp.fuse. Select elements with "
                    "cp.where, or index the array outside of cp.fuse."
                )
        raise NotOneLoopError

    def __setitem__(self, key: Any, value: Any) -> None:
        if key is not Ellipsis and not (isinstance(key, slice) and key == slice(None)):
            raise ValueError("The fusion supports `[...]` or `[:]`. Select elements with cp.where.")
        self.trace.record_assignment(self, self.trace.as_operand(value))


def _make_concrete_array_error() -> TypeError:
    return TypeError(
        "Concrete ndarray is not supported in fusion: make every array an argument of the fused function."
    )


def _parse_reduction(name: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> dict[str, Any]:
    """Return ``axis``, ``dtype`` and ``out`` of a call such as ``cp.sum(a, ...)`` in a fused function."""
    has_dtype = name in {"sum", "prod", "nansum", "nanprod"}
    parameter_names = ("axis", "dtype", "out", "keepdims") if has_dtype else ("axis", "out", "keepdims")
    options = {**dict(zip(parameter_names, args[1:], strict=False)), **kwargs}
    unknown_names = set(options) - set(parameter_names)
    if unknown_names or len(args) > 1 + len(parameter_names):
        raise TypeError(
            f"Inside cp.fuse, cp.{name} takes only the arguments {', '.join(parameter_names)}, and does "
            f"not take {', '.join(unknown_names)}."
        )
    if options.pop("keepdims", False):
        raise NotImplementedError(
            f"cupy.{ {'max': 'amax', 'min': 'amin'}.get(name, name) } does not support `keepdims` in fusion "
            "yet. Add the axis outside, with x[:, None] or cp.expand_dims."
        )
    return options


def _parse_clip_bounds(args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[Any, Any]:
    """Return both bounds of ``cp.clip``, which must not be None inside a fused function."""
    lower_bound, upper_bound = (*args[1:], None, None)[:2]
    lower_bound = kwargs.get("a_min", kwargs.get("min", lower_bound))
    upper_bound = kwargs.get("a_max", kwargs.get("max", upper_bound))
    if lower_bound is None or upper_bound is None:
        raise TypeError(
            "Unsupported type <class 'NoneType'>. Inside cp.fuse, cp.clip needs both bounds. For one bound "
            "use cp.maximum or cp.minimum."
        )
    return lower_bound, upper_bound
