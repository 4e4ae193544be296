"""Making functions of device arrays out of NumPy's functions."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from virtualgpu.cp._core.arguments import Traceable, check_device, unsupported
from virtualgpu.cp._core.array import ndarray
from virtualgpu.cp._core.library_kernels import run_kernel
from virtualgpu.cp._routines.documented import ON_THE_DEVICE, document
from virtualgpu.cp._routines.host_operands import computes_on_the_host, read_operands
from virtualgpu.cp.cuda.stream import get_current_stream, is_capturing, refuse_in_capture, settle
from virtualgpu.model import machine as _machine
from virtualgpu.model.machine import VirtualDevice

FlopCount = Callable[..., float]


def _arrays_in(value: Any) -> Iterator[ndarray]:
    if isinstance(value, ndarray):
        yield value
    elif isinstance(value, (list, tuple)):
        for item in value:
            yield from _arrays_in(item)


def _to_host(value: Any, device: VirtualDevice) -> Any:
    if isinstance(value, ndarray):
        check_device(value, device)
        return value._host
    if isinstance(value, np.ndarray):
        raise unsupported(value)
    if isinstance(value, (list, tuple)) and any(True for _ in _arrays_in(value)):
        return type(value)(_to_host(item, device) for item in value)
    return value


def _check_operand(value: Any) -> None:
    """An operand is a device array, a scalar, or a sequence of device arrays."""
    if isinstance(value, (ndarray, bool, int, float, complex, np.generic)):
        return
    if isinstance(value, (list, tuple)) and value:
        for item in value:
            _check_operand(item)
        if any(True for _ in _arrays_in(value)):
            return
    raise unsupported(value)


def _to_device(result: Any, sources: list[ndarray]) -> Any:
    if isinstance(result, (tuple, list)):
        items = [_to_device(item, sources) for item in result]
        if isinstance(result, tuple) and hasattr(result, "_fields"):
            return type(result)(*items)
        return type(result)(items)
    if not isinstance(result, (np.ndarray, np.generic, bool, int, float, complex)):
        return result
    for source in sources:
        if result is source._host:
            return source
        view = source._adopt(result)
        if view is not None:
            return view
    return ndarray._stored(result)


# Functions that CuPy leaves to a library which it does not let into a graph.
_LIBRARIES = {
    "cuBLAS": "matmul dot vdot inner tensordot einsum matrix_power",
    "cuSOLVER": "inv pinv det slogdet solve lstsq cholesky qr svd eigh eigvalsh eig eigvals matrix_rank cond "
    "tensorsolve tensorinv",
}


def _refuse_captured(title: str, waits: bool) -> None:
    """Raise CuPy's error for a function that a graph cannot have."""
    for library, titles in _LIBRARIES.items():
        if title in titles.split():
            raise NotImplementedError(
                f"calling {library} API during stream capture is currently unsupported. Call {title} outside "
                "of the capture, or use a kernel of your own."
            )
    if waits:
        refuse_in_capture("D2H transfers")


def _refill(result: Any, raw: Any, made: list[ndarray]) -> None:
    """Write what NumPy has computed anew into the arrays of an earlier result."""
    if isinstance(result, (tuple, list)):
        for item, contents in zip(result, raw, strict=True):
            _refill(item, contents, made)
    elif any(result is array for array in made):
        result._assign(raw)


# Functions that read of their first argument only what others point at.
_PICKS = frozenset({"take", "take_along_axis"})
# Functions that write to their first argument; the others at most to `out`.
_CHANGES_FIRST = frozenset({"copyto", "put", "place", "putmask", "put_along_axis", "fill_diagonal"})


@functools.lru_cache(maxsize=512)
def _place_of_out(function: Callable[..., Any]) -> int | None:
    """Where ``out``, or SciPy's ``output``, stands among a function's positional arguments."""
    try:
        names = list(inspect.signature(function).parameters)
    except ValueError:
        return None  # it is written in C, without telling
    return next((names.index(name) for name in ("out", "output") if name in names), None)


def _written(
    function: Callable[..., Any], title: str, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> list[ndarray]:
    """The arguments that a function writes to."""
    place = _place_of_out(function)
    found = [args[0]] if title in _CHANGES_FIRST and args else []
    found += [args[place]] if place is not None and place < len(args) else []
    named = (kwargs.get("out"), kwargs.get("output"))
    return [array for array in (*found, *named) if isinstance(array, ndarray)]


def lift(
    function: Callable[..., Any],
    *,
    name: str = "",
    operands: int = 1,
    lacks: tuple[str, ...] = (),
    waits: bool = False,
    flop: FlopCount | None = None,
    place: str = ON_THE_DEVICE,
    passes: FlopCount | None = None,
    least_ns: FlopCount | None = None,
) -> Callable[..., Any]:
    """A function of device arrays that computes with NumPy's `function`.

    Results that share an argument's memory become views of it; others become new device arrays, also
    where NumPy returns scalars. Work goes to the modelled clock unless all results are views.

    Parameters
    ----------
    name : str
        Name of the function and of its kernel; NumPy's by default.
    operands : int
        So many leading arguments must be device arrays or scalars.
    lacks : tuple of str
        Keywords that NumPy has and CuPy has not.
    waits : bool
        CuPy reads a size back from the device, so the host waits.
    flop : callable, optional
        Floating-point operations, from the positional arguments.
    place : str
        A sentence of its documentation on where it computes.
    passes, least_ns : callable, optional
        How often the arrays' bytes are moved, and what it takes at least, from all arguments.
    """
    title = name or function.__name__

    def call(*args: Any, **kwargs: Any) -> Any:
        for keyword in lacks:
            if keyword in kwargs:
                raise TypeError(f"{title}() got an unexpected keyword argument '{keyword}'")
        for value in args:
            if isinstance(value, Traceable):
                return value.fused_call(title, args, kwargs)
        if computes_on_the_host(title, args):
            return function(*args, **kwargs)
        args, kwargs = read_operands(title, args, kwargs)
        for value in args[:operands]:
            _check_operand(value)
        device = _machine.current().current_device
        sources = [*_arrays_in(args), *_arrays_in(tuple(kwargs.values()))]
        hosts = [_to_host(value, device) for value in args]
        host_kwargs = {key: _to_host(value, device) for key, value in kwargs.items()}
        capturing = is_capturing(device=device)
        if not capturing:
            settle(device)
        if capturing:
            _refuse_captured(title, waits)

        def compute() -> Any:
            with np.errstate(all="ignore"):
                return function(*hosts, **host_kwargs)

        # The result's shape follows from computing it; a graph computes it again at each launch.
        before = [array._host.copy() for array in sources] if capturing else []
        result = _to_device(compute(), sources)
        for array, contents in zip(sources, before, strict=False):
            array._assign(contents)
        made = [array for array in _arrays_in(result) if array.base is None]

        def run() -> None:
            if capturing:
                _refill(result, compute(), made)

        taken = _written(function, title, args, kwargs)
        if made or taken or not any(True for _ in _arrays_in(result)):
            read = sources[1:] if title in _PICKS and len(sources) > 1 else sources
            moved = sum(array.nbytes for array in (*read, *made))
            operations = flop(*hosts) if flop else 0.0
            priced = {"passes": passes(*hosts, **host_kwargs)} if passes else {}
            priced |= {"least_ns": least_ns(*hosts, **host_kwargs)} if least_ns else {}
            run_kernel(device, f"cupy_{title}", moved, run, operations, sources, (*made, *taken), **priced)
            if waits:
                get_current_stream(device.id).synchronize()
        return result

    document(call, function, title, lacks, place)
    return call


def host_only(function: Callable[..., Any], name: str = "") -> Callable[..., Any]:
    """NumPy's `function` of shapes and dtypes, which never touches device memory."""

    def stand_in(value: Any) -> Any:
        if isinstance(value, ndarray):
            return np.broadcast_to(np.empty((), value.dtype), value.shape)
        return value

    def call(*args: Any, **kwargs: Any) -> Any:
        return function(*(stand_in(value) for value in args), **kwargs)

    place = "As NumPy's function of this name; device arrays count by their shape and dtype."
    document(call, function, name or function.__name__, place=place)
    return call
