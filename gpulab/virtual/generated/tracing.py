"""Values that write down what is computed with them: the inside of a fused function."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from gpulab.errors import NotSupportedError
from gpulab.virtual.array import ndarray
from gpulab.virtual.generated.expressions import expression
from gpulab.virtual.generated.operands import Shape
from gpulab.virtual.generated.params import c_name
from gpulab.virtual.layout import checked_dtype
from gpulab.virtual.operators import Operators
from gpulab.virtual.rules import Traceable

_WEAK = {
    bool: np.dtype(bool),
    int: np.dtype(np.int64),
    float: np.dtype(np.float64),
    complex: np.dtype(complex),
}
_ZERO = {int: 0, float: 0.0, complex: 0j}
_SUMS = {"sum": ("a + b", "0"), "prod": ("a * b", "1")}
_EXTREMES = {"max": "(a != a || a > b) ? a : b", "min": "(a != a || a < b) ? a : b"}
_TESTS = {"all": ("a && b", "true"), "any": ("a || b", "false")}


def refuse(what: str, instead: str) -> NotSupportedError:
    """The error for something that one generated kernel cannot do."""
    return NotSupportedError(f"cp.fuse cannot put {what} into a kernel: {instead}.")


@dataclass(frozen=True, slots=True)
class Reduction:
    """The one reduction of a fused function, and the axes it was asked for."""

    value: Traced
    expression: str
    identity: str | None
    dtype: np.dtype[Any]
    axis: Any
    keepdims: bool


@dataclass(slots=True)
class Trace:
    """What a fused function computed: statements for each element, then for each reduced value."""

    arguments: list[tuple[str, Any, np.dtype[Any]]] = field(default_factory=list)
    statements: tuple[list[str], list[str]] = field(default_factory=lambda: ([], []))
    written: dict[str, Traced] = field(default_factory=dict)
    reduction: Reduction | None = None
    count: int = 0

    def used(self, outputs: Sequence[Traced]) -> list[tuple[str, Any, np.dtype[Any]]]:
        """The arguments that the statements or `outputs` mention."""
        ends = [o.name for o in outputs]
        if self.reduction is not None:
            ends.append(self.reduction.value.name)
        text = " ".join([*self.statements[0], *self.statements[1], *ends])
        return [known for known in self.arguments if re.search(rf"\b{known[0]}\b", text)]

    def argument(self, value: Any) -> Traced:
        """A value from outside as a parameter of the kernel."""
        for name, known, dtype in self.arguments:
            if known is value and isinstance(value, ndarray):
                return Traced(self, name, dtype, value.shape, None, 0, name)
        weak = type(value) if type(value) in _ZERO else None
        if isinstance(value, ndarray):
            dtype = value.dtype
        elif type(value) in _WEAK:
            dtype = _WEAK[type(value)]
        elif isinstance(value, np.generic):
            dtype = checked_dtype(value.dtype)
        else:
            raise refuse(f"a {type(value).__name__}", "pass device arrays and numbers")
        name = f"in{len(self.arguments)}"
        self.arguments.append((name, value, dtype))
        return Traced(self, name, dtype, getattr(value, "shape", ()), weak, 0, name)

    def value(self, text: str, dtype: np.dtype[Any], operands: Sequence[Traced]) -> Traced:
        """A new variable holding an expression of other values."""
        stages = {o.stage for o in operands if not o.is_number}
        if len(stages) > 1:
            raise refuse(
                "elements and what they were reduced to", "end with the reduction, or write two functions"
            )
        stage = max(stages, default=0)
        name = f"v{self.count}"
        self.count += 1
        self.statements[stage].append(f"const {c_name(dtype)} {name} = {text};")
        shape = np.broadcast_shapes(*(o.shape for o in operands))
        return Traced(self, name, dtype, shape, None, stage, "")

    def apply(self, function: np.ufunc, inputs: Sequence[Any], out: Any, dtype: Any) -> Any:
        """One element-wise function."""
        operands = [self.traced(value) for value in inputs]
        if function.nout != 1:
            raise refuse(f"np.{function.__name__}", "it has several results; compute them one by one")
        kinds: Any = (*(o.weak or o.dtype for o in operands), None)
        if dtype is None:
            loop = function.resolve_dtypes(kinds)
        else:
            signature = (*[None] * function.nin, np.dtype(dtype))
            loop = function.resolve_dtypes(kinds, signature=signature, casting="unsafe")
        kind, result = loop[0], checked_dtype(loop[-1])
        text = expression(function, kind)
        if text is None or any(k != kind for k in loop[1 : function.nin]):
            raise refuse(f"np.{function.__name__} of {kind}", "call it outside of the fused function")
        terms = [o.converted(kind) for o in operands]
        made = self.value(_into(text.format(*terms), result), result, operands)
        return made if out is None else self.assign(out, made)

    def assign(self, target: Traced, value: Traced) -> Traced:
        """In-place operators and ``out=``: an argument becomes an output too."""
        if not target.argument:
            raise refuse("out= of an intermediate value", "use what the function returns")
        if not np.can_cast(value.dtype, target.dtype, "same_kind"):
            raise TypeError(
                f"output (typecode {value.dtype.char!r}) could not be coerced to provided output parameter "
                f"(typecode {target.dtype.char!r}) according to the casting rule 'same_kind'"
            )
        changed = self.value(value.converted(target.dtype), target.dtype, [value, target])
        changed.argument = target.argument
        self.written[target.argument] = changed
        target.name = changed.name
        return target

    def traced(self, value: Any) -> Traced:
        return value if isinstance(value, Traced) else self.argument(value)

    def where(self, condition: Any, x: Any, y: Any) -> Traced:
        """``cp.where`` with three arguments."""
        test, *both = (self.traced(value) for value in (condition, x, y))
        strong = [_ZERO[o.weak] if o.weak else o.dtype for o in both]
        kind = np.result_type(*strong)
        terms = [o.converted(kind) for o in both]
        return self.value(f"{test.converted(np.dtype(bool))} ? {terms[0]} : {terms[1]}", kind, [test, *both])

    def reduce(self, name: str, value: Traced, axis: Any = None, dtype: Any = None, **rest: Any) -> Traced:
        """The reduction, after which only its result goes on."""
        keepdims = bool(rest.pop("keepdims", False))
        if any(item is not None for item in rest.values()):
            raise refuse(f"{', '.join(rest)}= of cp.{name}", "assign the result instead")
        if self.reduction is not None or value.is_number:
            raise refuse("a second reduction", "write two functions")
        if name in _SUMS:
            text, identity = _SUMS[name]
            kind = getattr(np, name)(np.zeros(1, value.dtype), dtype=dtype).dtype
        elif name in _EXTREMES:
            text, identity, kind = _EXTREMES[name], None, value.dtype
            if kind.kind == "c":
                raise refuse(f"cp.{name} of complex numbers", "reduce their magnitude")
        else:
            (text, identity), kind = _TESTS[name], np.dtype(bool)
        self.reduction = Reduction(value, text, identity, checked_dtype(kind), axis, keepdims)
        return Traced(self, "a", kind, (), None, 1, "")


def _into(text: str, dtype: np.dtype[Any]) -> str:
    return f"{c_name(dtype)}({text})" if dtype.char == "e" else f"({text})"


class Traced(Operators, Traceable):
    """A value inside a fused function: its C++ variable, dtype and shape, but no contents.

    `weak` is the Python type of a number that takes other operands' dtype; `stage` is 1 behind the
    reduction; `argument` names the parameter it came in as.
    """

    __slots__ = ("argument", "dtype", "name", "shape", "stage", "trace", "weak")
    __hash__ = None  # type: ignore[assignment]

    def __init__(
        self,
        trace: Trace,
        name: str,
        dtype: np.dtype[Any],
        shape: Shape,
        weak: type | None,
        stage: int,
        argument: str,
    ) -> None:
        self.trace, self.name, self.dtype, self.shape = trace, name, dtype, shape
        self.weak, self.stage, self.argument = weak, stage, argument

    def __repr__(self) -> str:
        return f"<{self.dtype} value within cp.fuse>"

    @property
    def is_number(self) -> bool:
        """Whether it is a number from outside, which the kernel knows everywhere."""
        return any(
            name == self.argument and not isinstance(v, ndarray) for name, v, _ in self.trace.arguments
        )

    @property
    def ndim(self) -> int:
        return len(self.shape)

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

    def astype(
        self, dtype: Any, order: Any = None, casting: Any = None, subok: Any = None, copy: Any = True
    ) -> Traced:
        """The value converted to another dtype."""
        kind = checked_dtype(dtype)
        return self.trace.value(_into(self.converted(kind), kind), kind, [self])

    def __array_ufunc__(self, function: np.ufunc, method: str, *inputs: Any, **kwargs: Any) -> Any:
        out, dtype = kwargs.pop("out", None), kwargs.pop("dtype", None)
        kwargs.pop("casting", None)
        if method != "__call__" or kwargs:
            raise refuse(f"np.{function.__name__}.{method} with {sorted(kwargs)}", "call it outside")
        return self.trace.apply(function, inputs, None if out is None else out[0], dtype)

    def fused_call(self, name: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """A function of the ``cp`` namespace that is no element-wise function of NumPy."""
        name = {"amax": "max", "amin": "min"}.get(name, name)
        if name in (*_SUMS, *_EXTREMES, *_TESTS):
            return self.trace.reduce(name, args[0], *args[1:], **kwargs)
        if name == "where" and len(args) == 3:
            return self.trace.where(*args)
        if name == "clip":
            low, high = (*args[1:], None, None)[:2]
            low, high = (
                kwargs.get("min", kwargs.get("a_min", low)),
                kwargs.get("max", kwargs.get("a_max", high)),
            )
            result = args[0] if low is None else np.maximum(args[0], low)
            return result if high is None else np.minimum(result, high)
        raise refuse(f"cp.{name}", "call it outside of the fused function")

    def _method(name: str) -> Callable[..., Any]:  # type: ignore[misc]  # noqa: N805 - used in the class only
        def method(self: Traced, *args: Any, **kwargs: Any) -> Any:
            return self.fused_call(name, (self, *args), kwargs)

        method.__name__ = name
        return method

    sum, prod, max, min = _method("sum"), _method("prod"), _method("max"), _method("min")
    all, any, clip = _method("all"), _method("any"), _method("clip")
    del _method

    def __bool__(self) -> bool:
        raise TypeError(
            "A fused function is traced without values, so `if`, `and`, `or` and `while` cannot depend on "
            "them: use cp.where(condition, x, y), and & and | for conditions."
        )

    def __getitem__(self, key: Any) -> Any:
        raise refuse("indexing", "index before or after the call")

    def __iter__(self) -> Any:
        raise refuse("iteration", "loop over the arrays outside")

    def __matmul__(self, other: Any) -> Any:
        raise refuse("a matrix product", "call it outside of the fused function")
