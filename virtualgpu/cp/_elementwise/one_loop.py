"""Values that write down what is computed with them, for fused functions that are one loop."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from virtualgpu.cp._core.array import ndarray
from virtualgpu.cp._core.dtypes import checked_dtype
from virtualgpu.cp._elementwise.expressions import expression
from virtualgpu.cp._elementwise.parameters import c_name
from virtualgpu.cp._elementwise.values import (
    REDUCTIONS,
    FusedValue,
    InPlace,
    clip_bounds,
    reduction_arguments,
    whole,
)

_SUMS = {"sum": ("a + b", "0"), "prod": ("a * b", "1")}
_EXTREMES = {"max": "(a != a || a > b) ? a : b", "min": "(a != a || a < b) ? a : b"}
_TESTS = {"all": ("a && b", "true"), "any": ("a || b", "false")}
_NOT_ON_DEVICES = frozenset("gGOSUVMm")


class NotOneLoop(Exception):
    """A fused function is no loop with one reduction at its end; it is then computed step by step."""


@dataclass(frozen=True, slots=True)
class Reduction:
    """The one reduction of a fused function, and the axes it was asked for."""

    value: Traced
    expression: str
    identity: str
    dtype: np.dtype[Any]
    axis: Any
    needs_elements: bool


@dataclass(slots=True)
class Argument:
    """A parameter of the kernel: an argument of the function by its place, or a number in it."""

    name: str
    dtype: np.dtype[Any]
    place: int | None
    constant: Any


@dataclass(slots=True)
class Trace:
    """What a fused function computed: statements for each element, then for each reduced value."""

    arguments: list[Argument] = field(default_factory=list)
    statements: tuple[list[str], list[str]] = field(default_factory=lambda: ([], []))
    written: dict[int, Traced] = field(default_factory=dict)
    reduction: Reduction | None = None
    count: int = 0

    @property
    def stage(self) -> int:
        """1 behind the reduction."""
        return int(self.reduction is not None)

    def argument(self, value: Any, place: int | None = None) -> Traced:
        """A value from outside as a parameter of the kernel."""
        if isinstance(value, ndarray):
            weak, dtype = None, value.dtype
        elif isinstance(value, (bool, int, float, complex, np.generic)):
            weak = type(value)
            dtype = checked_dtype(np.dtype(weak))
        else:
            raise NotOneLoop
        name = f"in{len(self.arguments)}"
        self.arguments.append(Argument(name, dtype, place, value if place is None else None))
        ndim = value.ndim if isinstance(value, ndarray) else -1
        stage = 0 if place is not None else self.stage
        return (Traced if weak else TracedArray)(self, name, dtype, ndim, weak, stage, place)

    def operand(self, value: Any) -> Traced:
        """An operand as it can be used now: nothing from before a reduction after it."""
        if isinstance(value, ndarray) or value is None:
            raise NotOneLoop
        traced = value if isinstance(value, Traced) else self.argument(value)
        if traced.stage != self.stage:
            raise NotOneLoop
        return traced

    def value(self, text: str, dtype: np.dtype[Any], operands: Sequence[Traced]) -> Traced:
        """A new variable holding an expression of other values."""
        name = f"v{self.count}"
        self.count += 1
        self.statements[self.stage].append(f"const {c_name(dtype)} {name} = {text};")
        ndim = max(o.ndim for o in operands)
        kind = TracedArray if ndim >= 0 else Traced
        return kind(self, name, dtype, ndim, None, self.stage, None)

    def apply(self, function: np.ufunc, inputs: Sequence[Any], out: Any, dtype: Any) -> Any:
        """One element-wise function."""
        operands = [self.operand(value) for value in inputs]
        if function.nout != 1 or dtype is not None:
            raise NotOneLoop
        loop = _loop(function, operands)
        kind, result = loop[0], checked_dtype(loop[-1])
        text = expression(function, kind)
        if text is None or any(k != kind for k in loop[1 : function.nin]):
            raise NotOneLoop
        terms = [o.converted(kind) for o in operands]
        made = self.value(_into(text.format(*terms), result), result, operands)
        return made if out is None else self.assign(out, made)

    def assign(self, target: Any, value: Traced) -> Traced:
        """In-place operators and ``out=``: an argument becomes an output too."""
        if not isinstance(target, TracedArray) or target.stage != self.stage or target.ndim < value.ndim:
            raise NotOneLoop
        if not np.can_cast(value.dtype, target.dtype, "same_kind"):
            raise NotOneLoop
        changed = self.value(value.converted(target.dtype), target.dtype, [value, target])
        target.name = changed.name
        if target.place is not None:
            self.written[target.place] = target
        return target

    def where(self, condition: Any, x: Any, y: Any) -> Traced:
        """``cp.where`` with three arguments."""
        test, *both = (self.operand(value) for value in (condition, x, y))
        if test.dtype.kind != "b":
            raise NotOneLoop
        kind = _narrowest([(d, d) for d in "?bBhHiIlLefdFD"], both)[0]
        terms = [o.converted(kind) for o in both]
        return self.value(f"{test.name} ? {terms[0]} : {terms[1]}", kind, [test, *both])

    def reduce(self, name: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Traced:
        """The reduction, after which only its result goes on."""
        given = reduction_arguments(name, args, kwargs)
        value = args[0]
        if self.stage or not isinstance(value, TracedArray) or given.get("out") is not None or self.written:
            raise NotOneLoop
        kind = value.dtype
        if name in _SUMS:
            text, identity = _SUMS[name]
            if given.get("dtype") is None:  # with one, CuPy's kernel keeps the elements' type
                kind = getattr(np, name)(np.zeros(1, kind)).dtype
        elif name in _EXTREMES and kind.kind != "c":
            text, identity = _EXTREMES[name], _extreme(kind, lowest=name == "max")
        elif name in _TESTS and kind.kind != "c":
            (text, identity), kind = _TESTS[name], np.dtype(bool)
        else:
            raise NotOneLoop
        axis = given.get("axis")
        ndim = 0 if axis is None else value.ndim - (len(axis) if isinstance(axis, (tuple, list)) else 1)
        if ndim < 0:
            raise NotOneLoop
        self.reduction = Reduction(value, text, identity, checked_dtype(kind), axis, name in _EXTREMES)
        return (TracedArray if ndim else Traced)(self, "a", kind, ndim or -1, None, 1, None)


def _loop(function: np.ufunc, operands: Sequence[Traced]) -> tuple[np.dtype[Any], ...]:
    """The types that a function works with.

    With numbers among the operands it is the first loop that holds every array's values and whose type
    a number does not widen, as in CuPy's fusion: numbers alone take the narrowest, float16 for floats.
    """
    kinds = [o.dtype for o in operands]
    try:
        strong = function.resolve_dtypes((*kinds, None))
        if all(o.weak is None for o in operands):
            return tuple(strong)
    except TypeError:  # which the step-by-step way explains
        raise NotOneLoop from None
    known = [types.replace("->", "") for types in function.types]
    usable = [tuple(types) for types in known if not _NOT_ON_DEVICES & set(types)]
    return _narrowest(usable, operands)


def _narrowest(loops: Sequence[tuple[str, ...]], operands: Sequence[Traced]) -> tuple[np.dtype[Any], ...]:
    for loop in loops:
        kinds = [np.dtype(char) for char in loop]
        if all(_takes(kind, o) for kind, o in zip(kinds, operands, strict=False)):
            return tuple(kinds)
    raise NotOneLoop


def _takes(kind: np.dtype[Any], operand: Traced) -> bool:
    if np.can_cast(operand.dtype, kind):
        return True
    return operand.weak is not None and np.result_type(operand.weak(0), kind) == kind


def _extreme(kind: np.dtype[Any], lowest: bool) -> str:
    """The least or greatest value of a type, in C++."""
    if kind.kind == "b":
        return "false" if lowest else "true"
    if kind.kind == "f":
        return f"{c_name(kind)}(__int_as_float({0xFF800000 if lowest else 0x7F800000:#x}))"
    value = np.iinfo(kind).min if lowest else np.iinfo(kind).max
    return f"{value + 1}LL - 1" if value < 0 else f"{value}ULL"


def _into(text: str, dtype: np.dtype[Any]) -> str:
    return f"{c_name(dtype)}({text})" if dtype.char == "e" else f"({text})"


class Traced(FusedValue):
    """A number inside a fused function, or what an array was reduced to: its C++ variable and dtype.

    `weak` is its type if it comes from outside, `stage` is 1 behind the reduction, `place` is the
    argument that it is.
    """

    __slots__ = ("dtype", "name", "ndim", "place", "stage", "trace", "weak")

    def __init__(
        self,
        trace: Trace,
        name: str,
        dtype: np.dtype[Any],
        ndim: int,
        weak: type | None,
        stage: int,
        place: int | None,
    ) -> None:
        self.trace, self.name, self.dtype, self.ndim = trace, name, dtype, ndim
        self.weak, self.stage, self.place = weak, stage, place

    def __repr__(self) -> str:
        return f"<{self.dtype} value within cp.fuse>"

    def converted(self, dtype: np.dtype[Any]) -> str:
        """Its value as another type, in C++."""
        if dtype == self.dtype:
            return f"float({self.name})" if dtype.char == "e" else self.name
        if dtype.kind == "b":
            return f"({self.name} != 0)"
        if self.dtype.kind == "c" and dtype.kind != "c":
            return f"{c_name(dtype)}({self.name}.real())"
        target = "float" if dtype.char == "e" else c_name(dtype)
        rounded = f"{c_name(dtype)}({self.name})" if dtype.char == "e" else self.name
        return f"(({target})({rounded}))"

    def copy(self) -> Traced:
        """The same value."""
        return self.astype(self.dtype)

    def astype(
        self, dtype: Any, order: Any = None, casting: Any = None, subok: Any = None, copy: Any = True
    ) -> Traced:
        """The value converted to another dtype."""
        self.check_astype(order, casting, subok)
        kind, value = checked_dtype(dtype), self.trace.operand(self)
        if not copy and kind == self.dtype:
            return self
        return self.trace.value(_into(value.converted(kind), kind), kind, [value])

    def ufunc(self, function: np.ufunc, inputs: Sequence[Any], out: Any = None, dtype: Any = None) -> Any:
        """One element-wise function."""
        return self.trace.apply(function, inputs, out, dtype)

    def fused_call(self, name: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """A function of the ``cp`` namespace that is no element-wise function of NumPy."""
        if name in REDUCTIONS:
            return self.trace.reduce(name, args, kwargs)
        if name == "where" and len(args) == 3:
            return self.trace.where(*args)
        if name == "clip":
            low, high = clip_bounds(args, kwargs)
            return np.minimum(np.maximum(args[0], low, dtype=None), high, dtype=None)
        raise NotOneLoop


class TracedArray(InPlace, Traced):
    """An array inside a fused function; its shape is not known."""

    __slots__ = ()

    def __setitem__(self, key: Any, value: Any) -> None:
        whole(key)
        self.trace.assign(self, self.trace.operand(value))
