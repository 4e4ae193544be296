"""``cp.fuse``: a function of arrays as one generated kernel instead of one per operation."""

from __future__ import annotations

import functools
import re
from collections.abc import Callable
from typing import Any

import numpy as np

from gpulab.virtual.array import ndarray
from gpulab.virtual.generated.elementwise import ElementwiseKernel
from gpulab.virtual.generated.expressions import HELPERS
from gpulab.virtual.generated.params import c_name
from gpulab.virtual.generated.reduction import ReductionKernel
from gpulab.virtual.generated.tracing import Trace, Traced, refuse

_NAME = re.compile(r"\W")


class Fused:
    """A fused function. Each combination of argument types is traced and compiled once.

    Called with device arrays it launches one kernel; called with anything else it is the function.
    """

    def __init__(self, function: Callable[..., Any], kernel_name: str | None = None) -> None:
        functools.update_wrapper(self, function)
        self._function = function
        self._name = kernel_name or _NAME.sub("_", getattr(function, "__name__", "fused"))
        if not re.match("[A-Za-z_]", self._name):
            self._name = f"fused{self._name}"
        self._kernels: dict[Any, Any] = {}

    def __repr__(self) -> str:
        return f"<fused function {self._name!r}>"

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        values = (*args, *kwargs.values())
        if any(isinstance(v, (Traced, np.ndarray)) for v in values) or not any(
            isinstance(v, ndarray) for v in values
        ):
            return self._function(*args, **kwargs)
        trace = Trace()
        result = self._function(
            *(_enter(trace, value) for value in args),
            **{key: _enter(trace, value) for key, value in kwargs.items()},
        )
        single = not isinstance(result, tuple)
        results = () if result is None else (result,) if single else result
        # A returned argument is the array itself, as it would be without fuse.
        arrays = {name: value for name, value, _ in trace.arguments}
        wanted = [r for r in results if isinstance(r, Traced) and not r.argument]
        made = self._run(trace, wanted, arrays)
        final = tuple(
            (arrays[r.argument] if r.argument else made.pop(0)) if isinstance(r, Traced) else r
            for r in results
        )
        return None if result is None else final[0] if single else final

    def _run(self, trace: Trace, wanted: list[Traced], arrays: dict[str, Any]) -> list[Any]:
        outputs = [*wanted, *trace.written.values()]
        if trace.reduction is not None:
            return self._reduce(trace, outputs)
        if not outputs:
            return []
        used = trace.used(outputs)
        shape = np.broadcast_shapes(*(getattr(value, "shape", ()) for _, value, _ in used))
        if any(o.shape != shape for o in outputs):
            raise refuse("outputs of different shapes", "write one function for each, or broadcast first")
        kernel = self._cached(
            ElementwiseKernel,
            _declared(used),
            ", ".join(f"{o.dtype.name} out{k}" for k, o in enumerate(outputs)),
            "\n    ".join([*trace.statements[0], *(f"out{k} = {o.name};" for k, o in enumerate(outputs))]),
            self._name,
            preamble=HELPERS,
            return_tuple=True,
        )
        targets = [arrays[name] for name in trace.written]
        inputs = [value for _, value, _ in used]
        if not targets:
            return list(kernel(*inputs))
        made = [ndarray(shape, o.dtype) for o in wanted]
        kernel(*inputs, *made, *targets)
        return made

    def _reduce(self, trace: Trace, outputs: list[Traced]) -> list[Any]:
        reduction = trace.reduction
        assert reduction is not None
        if not outputs or trace.written or any(o.stage == 0 for o in outputs):
            raise refuse("a reduction whose result is not what it returns", "return it alone")
        used = trace.used(outputs)
        mapped = ", ".join(f"const {c_name(dtype)}& {name}" for name, _, dtype in used)
        steps = " ".join(trace.statements[0])
        kind = c_name(reduction.dtype)
        preamble = (
            f"{HELPERS}__device__ {kind} _map({mapped}) {{ {steps} "
            f"return {reduction.value.converted(reduction.dtype)}; }}\n"
        )
        # What follows the reduction is computed where the outputs are written; numbers come along.
        numbers = [(name, dtype) for name, value, dtype in used if not isinstance(value, ndarray)]
        targets = [*(f"const {c_name(dtype)}& {name}" for name, dtype in numbers)]
        targets += [f"{c_name(o.dtype)}& out{k}" for k, o in enumerate(outputs)]
        lines = " ".join([*trace.statements[1], *(f"out{k} = {o.name};" for k, o in enumerate(outputs))])
        preamble += f"__device__ void _post({', '.join([f'{kind} a', *targets])}) {{ {lines} }}\n"
        passed = ", ".join(["a", *(name for name, _ in numbers), *(f"out{k}" for k in range(len(outputs)))])
        kernel = self._cached(
            ReductionKernel,
            _declared(used),
            ", ".join(f"{o.dtype.name} out{k}" for k, o in enumerate(outputs)),
            f"_map({', '.join(name for name, _, _ in used)})",
            reduction.expression,
            f"_post({passed})",
            reduction.identity,
            self._name,
            reduce_type=kind,
            preamble=preamble,
        )
        found = kernel(*(value for _, value, _ in used), axis=reduction.axis, keepdims=reduction.keepdims)
        return list(found) if isinstance(found, tuple) else [found]

    def _cached(self, kind: Any, *parts: Any, **named: Any) -> Any:
        key = (kind, parts, tuple(sorted(named.items())))
        if key not in self._kernels:
            self._kernels[key] = kind(*parts, **named)
        return self._kernels[key]


def _enter(trace: Trace, value: Any) -> Any:
    return (
        trace.argument(value)
        if isinstance(value, (ndarray, np.generic, bool, int, float, complex))
        else value
    )


def _leave(result: Any, arrays: dict[str, Any], made: list[Any]) -> Any:
    if not isinstance(result, Traced):
        return result
    return arrays[result.argument] if result.argument else made.pop(0)


def _declared(used: list[tuple[str, Any, np.dtype[Any]]]) -> str:
    return ", ".join(f"{dtype.name} {name}" for name, _, dtype in used)


def fuse(*args: Any, kernel_name: str | None = None) -> Any:
    """Decorate a function of arrays so that its element-wise operations run as one kernel.

    Parameters
    ----------
    args
        The function, as in ``@cp.fuse``; none in ``@cp.fuse(kernel_name=...)``.
    kernel_name : str, optional
        Name of the kernel; the function's by default.

    Returns
    -------
    callable
        With device arrays one launch, with NumPy arrays or numbers the function itself. It may end
        with one reduction and element-wise operations on its result.

    Raises
    ------
    NotSupportedError
        From a call, if the function does what one kernel cannot do.
    """
    if args and callable(args[0]):
        return Fused(args[0], kernel_name)
    return lambda function: Fused(function, kernel_name)
