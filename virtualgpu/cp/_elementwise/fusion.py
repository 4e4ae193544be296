"""``cp.fuse``: run a function of arrays as one generated kernel instead of one kernel per operation."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from virtualgpu.cp._core.array import ndarray
from virtualgpu.cp._elementwise.elementwise import ElementwiseKernel
from virtualgpu.cp._elementwise.expressions import HELPER_FUNCTIONS
from virtualgpu.cp._elementwise.parameters import get_cpp_type
from virtualgpu.cp._elementwise.reduction import ReductionKernel
from virtualgpu.cp._elementwise.traced import (
    FusionTrace,
    NotOneLoopError,
    TracedArgument,
    TracedReduction,
    TracedValue,
)
from virtualgpu.cuda_errors import CompileException

_ACCEPTED_TYPES = (ndarray, np.ndarray, np.generic, int, float, complex, type(None))


class FusedFunction:
    """A function whose operations run as one kernel. Each combination of argument types is traced and
    compiled once.

    With device arrays, a call launches one kernel; with other arguments it calls the function.
    """

    def __init__(self, function: Callable[..., Any], name: str | None = None) -> None:
        self.func = function
        self.name = name or function.__name__
        self._plans: dict[tuple[Any, ...], FusionPlan | None] = {}

    def __repr__(self) -> str:
        return f"<Fusion {self.name!r}>"

    def clear_cache(self) -> None:
        """Delete all compiled kernels. The next call traces the function again and compiles it."""
        self._plans = {}

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        if kwargs:
            raise TypeError(
                f"{self.name}() got an unexpected keyword argument {next(iter(kwargs))!r}. Pass the "
                "arguments of a fused function by position."
            )
        if any(isinstance(a, TracedValue) for a in args) or not any(isinstance(a, ndarray) for a in args):
            return self.func(*args)
        if not all(isinstance(a, _ACCEPTED_TYPES) for a in args):
            types = ", ".join(repr(type(a)) for a in args)
            raise TypeError(
                f"Invalid argument type for {self.name!r}: ({types}). Pass device arrays and numbers."
            )
        if any(isinstance(a, np.ndarray) for a in args):
            raise AssertionError(
                f"{self.name}() got a NumPy array next to device arrays. Copy it to the device with "
                "cp.asarray(x)."
            )
        key = tuple(_describe_argument(a) for a in args)
        if key not in self._plans:
            self._plans[key] = self._make_plan(args)
        plan = self._plans[key]
        return _check_result(self.func(*args)) if plan is None else plan(args)

    def _make_plan(self, args: tuple[Any, ...]) -> FusionPlan | None:
        """Return the kernel for arguments of these types, or None if one loop cannot compute the function."""
        plan = None
        is_identifier = self.name.isascii() and self.name.isidentifier()
        with contextlib.suppress(NotOneLoopError):
            plan = _make_plan(self.func, args, self.name if is_identifier else "unnamed")
        if not is_identifier:
            raise CompileException(
                f"error: expected an identifier as the kernel's name, not {self.name!r}. Define a function "
                "with def, or pass @cp.fuse(kernel_name=...).",
                "",
                self.name,
            )
        return plan


def _check_result(result: Any) -> Any:
    """Check that the result of a function has a type that CuPy can fuse, and return the result."""
    if result is None or isinstance(result, ndarray):
        return result
    if not isinstance(result, tuple):
        raise ValueError(
            "The return value of fused functions must be `None`, ndarray or a tuple of ndarays, not a "
            f"{type(result).__name__}."
        )
    if not all(isinstance(result_item, ndarray) for result_item in result):
        raise ValueError(
            "The all elements of return value of fused function must be arrays. Return "
            "arrays only, without numbers."
        )
    return result


def _describe_argument(value: Any) -> Any:
    if isinstance(value, ndarray):
        return value.dtype.char, value.ndim
    return value.dtype.char if isinstance(value, np.generic) else type(value)


@dataclass(slots=True)
class FusionPlan:
    """A callable plan of a fused function, with its kernel and the order of its arguments."""

    kernel: ElementwiseKernel | ReductionKernel
    arguments: list[TracedArgument]
    written_positions: list[int]
    result_dtypes: list[np.dtype[Any]]
    return_kind: str
    reduction: TracedReduction | None

    def __call__(self, args: tuple[Any, ...]) -> Any:
        inputs = [a.constant_value if a.position is None else args[a.position] for a in self.arguments]
        if self.reduction is not None:
            assert isinstance(self.kernel, ReductionKernel)
            axis = self.reduction.axis
            if self.reduction.needs_nonempty_input:
                _check_elements(self.kernel.name, inputs)
            # Of several results of a reduction CuPy hands the first back, and not as a tuple.
            first_result = self.kernel(*inputs, axis=tuple(axis) if isinstance(axis, list) else axis)
            return None if self.return_kind == "none" else first_result
        if self.written_positions:
            shape = np.broadcast_shapes(*(getattr(input_value, "shape", ()) for input_value in inputs))
            new_arrays = [ndarray(shape, dtype) for dtype in self.result_dtypes]
            self.kernel(*inputs, *new_arrays, *(args[position] for position in self.written_positions))
            results = tuple(new_arrays)
        elif self.result_dtypes:
            results = self.kernel(*inputs)
        else:
            results = ()
        if self.return_kind == "none":
            return None
        return results[0] if self.return_kind == "single" else results


def _check_elements(name: str, inputs: list[Any]) -> None:
    if any(isinstance(input_value, ndarray) and input_value.size == 0 for input_value in inputs):
        raise ValueError(f"zero-size array to reduction operation {name} which has no identity")


def _make_plan(function: Callable[..., Any], args: tuple[Any, ...], name: str) -> FusionPlan:
    """Trace a function and generate its kernel.

    Raises
    ------
    Exception
        If the function is not a single loop, or cannot be fused.
    """
    fusion_trace = FusionTrace()
    function_result = function(
        *(None if a is None else fusion_trace.add_argument(a, i) for i, a in enumerate(args))
    )
    if function_result is None:
        return_kind = "none"
    elif isinstance(function_result, tuple):
        return_kind = "tuple"
    else:
        return_kind = "single"
    result_items = [
        result_item
        for result_item in (function_result if isinstance(function_result, tuple) else (function_result,))
        if result_item is not None
    ]
    if not all(isinstance(result_item, TracedValue) for result_item in result_items):
        raise NotOneLoopError
    result_values = [fusion_trace.as_operand(result_item) for result_item in result_items]
    outputs = [*result_values, *fusion_trace.written_positions.values()]
    in_declarations = ", ".join(f"{a.dtype.name} {a.name}" for a in fusion_trace.arguments)
    out_declarations = ", ".join(f"{output.dtype.name} out{k}" for k, output in enumerate(outputs))
    assignments = [f"out{k} = {output.name};" for k, output in enumerate(outputs)]
    kernel: ElementwiseKernel | ReductionKernel
    if fusion_trace.reduction is None:
        operation_code = "\n    ".join([*fusion_trace.statements[0], *assignments])
        kernel = ElementwiseKernel(
            in_declarations,
            out_declarations,
            operation_code,
            name,
            preamble=HELPER_FUNCTIONS,
            return_tuple=True,
        )
    else:
        if not outputs:
            raise NotOneLoopError
        kernel = _make_reduction_kernel(
            fusion_trace,
            fusion_trace.reduction,
            outputs,
            in_declarations,
            out_declarations,
            assignments,
            name,
        )
    result_dtypes = [output.dtype for output in result_values]
    return FusionPlan(
        kernel,
        fusion_trace.arguments,
        list(fusion_trace.written_positions),
        result_dtypes,
        return_kind,
        fusion_trace.reduction,
    )


def _make_reduction_kernel(
    fusion_trace: FusionTrace,
    reduction: TracedReduction,
    outputs: list[TracedValue],
    in_declarations: str,
    out_declarations: str,
    assignments: list[str],
    name: str,
) -> ReductionKernel:
    parameters = ", ".join(f"const {get_cpp_type(a.dtype)}& {a.name}" for a in fusion_trace.arguments)
    c_type = get_cpp_type(reduction.dtype)
    result_parameters = "".join(f", {get_cpp_type(o.dtype)}& out{k}" for k, o in enumerate(outputs))
    constants = [a for a in fusion_trace.arguments if a.position is None]
    constant_parameters = "".join(f", const {get_cpp_type(a.dtype)}& {a.name}" for a in constants)
    preamble = (
        f"{HELPER_FUNCTIONS}__device__ {c_type} _map({parameters}) {{ {' '.join(fusion_trace.statements[0])} "
        f"return {reduction.value.convert_to(reduction.dtype)}; }}\n"
        f"__device__ void _post({c_type} a{result_parameters}{constant_parameters}) "
        f"{{ {' '.join([*fusion_trace.statements[1], *assignments])} }}\n"
    )
    out_names = [f"out{k}" for k in range(len(outputs))]
    return ReductionKernel(
        in_declarations,
        out_declarations,
        f"_map({', '.join(a.name for a in fusion_trace.arguments)})",
        reduction.expression,
        f"_post({', '.join(['a', *out_names, *(a.name for a in constants)])})",
        reduction.identity,
        name,
        reduce_type=c_type,
        preamble=preamble,
    )


def fuse(*args: Any, **kwargs: Any) -> Any:
    """Decorate a function so that its array operations run as one kernel.

    The arguments of the function are device arrays and numbers. The function may contain operators,
    element-wise functions of ``cp``, ``cp.where``, ``cp.clip``, and reductions such as ``cp.sum``, but no
    methods except ``astype``, ``copy`` and the reductions. Element-wise operations with one reduction at the
    end are one kernel, as in CuPy. A longer function is one cooperative kernel in CuPy, and one kernel per
    operation here.

    Arithmetic between numbers alone uses the narrowest type, as in CuPy: ``2.0 * dt`` in float16 and ``2 *
    n`` in int8. Compute such factors outside, or write ``2.0 * (dt * x)``.

    Parameters
    ----------
    args
        The function, as in ``@cp.fuse``; nothing or the kernel's name in ``@cp.fuse()``.
    kernel_name : str, optional
        Name of the kernel; the function's by default.

    Returns
    -------
    callable
        A function that launches one kernel for device arrays and calls the original for numbers.

    Raises
    ------
    TypeError, AttributeError, NotImplementedError, ValueError
        From a call, if the function cannot be fused.
    CompileException
        From a call, if the kernel's name is not an identifier in C++, such as that of a lambda.
    """
    if len(args) == 1 and not kwargs and callable(args[0]):
        return functools.update_wrapper(FusedFunction(args[0]), args[0])

    def decorate(function: Callable[..., Any], kernel_name: str | None = None) -> Any:
        return functools.update_wrapper(FusedFunction(function, kernel_name), function)

    return lambda function: decorate(function, *args, **kwargs)
