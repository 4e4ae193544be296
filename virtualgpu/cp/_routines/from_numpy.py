"""Build functions of device arrays from NumPy's functions."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from virtualgpu.cp._core.arguments import Traceable, check_device, make_type_error
from virtualgpu.cp._core.array import ndarray
from virtualgpu.cp._core.library_kernels import run_kernel
from virtualgpu.cp._routines.documented import DEVICE_PLACE_NOTE, document_wrapper
from virtualgpu.cp._routines.host_operands import computes_on_the_host, read_operands
from virtualgpu.cp.cuda.stream import get_current_stream, is_capturing, refuse_in_capture, run_deferred_work
from virtualgpu.model import machine as _machine
from virtualgpu.model.machine import VirtualDevice

FlopCount = Callable[..., float]


def _find_arrays(value: Any) -> Iterator[ndarray]:
    if isinstance(value, ndarray):
        yield value
    elif isinstance(value, (list, tuple)):
        for item in value:
            yield from _find_arrays(item)


def _convert_to_host(value: Any, device: VirtualDevice) -> Any:
    if isinstance(value, ndarray):
        check_device(value, device)
        return value._host
    if isinstance(value, np.ndarray):
        raise make_type_error(value)
    if isinstance(value, (list, tuple)) and any(True for _ in _find_arrays(value)):
        return type(value)(_convert_to_host(item, device) for item in value)
    return value


def _check_operand(value: Any) -> None:
    """Check that an operand is a device array, a scalar, or a sequence of device arrays."""
    if isinstance(value, (ndarray, bool, int, float, complex, np.generic)):
        return
    if isinstance(value, (list, tuple)) and value:
        for item in value:
            _check_operand(item)
        if any(True for _ in _find_arrays(value)):
            return
    raise make_type_error(value)


def _convert_to_device(result: Any, source_arrays: list[ndarray]) -> Any:
    if isinstance(result, (tuple, list)):
        device_items = [_convert_to_device(item, source_arrays) for item in result]
        if isinstance(result, tuple) and hasattr(result, "_fields"):
            return type(result)(*device_items)
        return type(result)(device_items)
    if not isinstance(result, (np.ndarray, np.generic, bool, int, float, complex)):
        return result
    for source_array in source_arrays:
        if result is source_array._host:
            return source_array
        view = source_array._make_inside_view(result)
        if view is not None:
            return view
    return ndarray._from_host(result)


# Functions for which CuPy calls a library that it does not support in graphs.
_UNCAPTURED_LIBRARIES = {
    "cuBLAS": "matmul dot vdot inner tensordot einsum matrix_power",
    "cuSOLVER": "inv pinv det slogdet solve lstsq cholesky qr svd eigh eigvalsh eig eigvals matrix_rank cond "
    "tensorsolve tensorinv",
}


def _check_capture(name: str, synchronizes: bool) -> None:
    """Raise CuPy's error for a function that cannot be part of the graph that a stream captures."""
    for library, function_names in _UNCAPTURED_LIBRARIES.items():
        if name in function_names.split():
            raise NotImplementedError(
                f"calling {library} API during stream capture is currently unsupported. Call {name} outside "
                "of the capture, or use a kernel of your own."
            )
    if synchronizes:
        refuse_in_capture("D2H transfers")


def _copy_results(result: Any, contents: Any, new_arrays: list[ndarray]) -> None:
    """Copy the results of a repeated computation into the arrays that the first computation returned."""
    if isinstance(result, (tuple, list)):
        for item, item_contents in zip(result, contents, strict=True):
            _copy_results(item, item_contents, new_arrays)
    elif any(result is array for array in new_arrays):
        result._assign_values(contents)


# Functions that read only the indexed elements of their first argument.
_GATHER_FUNCTIONS = frozenset({"take", "take_along_axis"})
# Functions that write to their first argument; all others write to `out` at most.
_MODIFYING_FUNCTIONS = frozenset({"copyto", "put", "place", "putmask", "put_along_axis", "fill_diagonal"})


@functools.lru_cache(maxsize=512)
def _find_output_position(function: Callable[..., Any]) -> int | None:
    """Return the index of ``out`` (SciPy: ``output``) among a function's positional arguments."""
    try:
        names = list(inspect.signature(function).parameters)
    except ValueError:
        return None  # written in C, without a signature
    return next((names.index(name) for name in ("out", "output") if name in names), None)


def _find_written_arguments(
    function: Callable[..., Any], name: str, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> list[ndarray]:
    """Return the arguments that a function writes to."""
    output_position = _find_output_position(function)
    possible_outputs = [args[0]] if name in _MODIFYING_FUNCTIONS and args else []
    possible_outputs += (
        [args[output_position]] if output_position is not None and output_position < len(args) else []
    )
    keyword_arguments = (kwargs.get("out"), kwargs.get("output"))
    return [array for array in (*possible_outputs, *keyword_arguments) if isinstance(array, ndarray)]


def lift_to_device(
    function: Callable[..., Any],
    *,
    name: str = "",
    operand_count: int = 1,
    missing_keywords: tuple[str, ...] = (),
    synchronizes: bool = False,
    count_flop: FlopCount | None = None,
    place_note: str = DEVICE_PLACE_NOTE,
    count_passes: FlopCount | None = None,
    compute_minimum_ns: FlopCount | None = None,
) -> Callable[..., Any]:
    """Wrap a NumPy function in a function that accepts and returns device arrays.

    A result that shares memory with an argument becomes a view of that argument. Other results become new
    device arrays, also where NumPy returns scalars. Time is added to the modelled clock unless all results
    are views.

    Parameters
    ----------
    name : str
        Name of the function and of its kernel; NumPy's by default.
    operand_count : int
        Number of leading arguments that must be device arrays or scalars.
    missing_keywords : tuple of str
        Keywords that NumPy has and CuPy does not have.
    synchronizes : bool
        Whether CuPy reads a size back from the device, so that the host waits.
    count_flop : callable, optional
        Floating-point operations, from the positional arguments.
    place_note : str
        Sentence of the documentation that says where the function computes.
    count_passes, compute_minimum_ns : callable, optional
        Functions of all arguments: how many times the arrays' bytes are moved, and the minimum duration.
    """
    name = name or function.__name__

    def call(*args: Any, **kwargs: Any) -> Any:
        for keyword in missing_keywords:
            if keyword in kwargs:
                raise TypeError(f"{name}() got an unexpected keyword argument '{keyword}'")
        for argument in args:
            if isinstance(argument, Traceable):
                return argument.fused_call(name, args, kwargs)
        if computes_on_the_host(name, args):
            return function(*args, **kwargs)
        args, kwargs = read_operands(name, args, kwargs)
        for argument in args[:operand_count]:
            _check_operand(argument)
        device = _machine.current().current_device
        source_arrays = [*_find_arrays(args), *_find_arrays(tuple(kwargs.values()))]
        host_args = [_convert_to_host(argument, device) for argument in args]
        host_kwargs = {key: _convert_to_host(argument, device) for key, argument in kwargs.items()}
        is_captured = is_capturing(device=device)
        if not is_captured:
            run_deferred_work(device)
        if is_captured:
            _check_capture(name, synchronizes)

        def compute_result() -> Any:
            with np.errstate(all="ignore"):
                return function(*host_args, **host_kwargs)

        # The result's shape follows from computing it; a graph computes it again at each launch.
        old_contents = [array._host.copy() for array in source_arrays] if is_captured else []
        result = _convert_to_device(compute_result(), source_arrays)
        for array, array_contents in zip(source_arrays, old_contents, strict=False):
            array._assign_values(array_contents)
        new_arrays = [array for array in _find_arrays(result) if array.base is None]

        def repeat_if_captured() -> None:
            if is_captured:
                _copy_results(result, compute_result(), new_arrays)

        written_arrays = _find_written_arguments(function, name, args, kwargs)
        if new_arrays or written_arrays or not any(True for _ in _find_arrays(result)):
            inputs = (
                source_arrays[1:] if name in _GATHER_FUNCTIONS and len(source_arrays) > 1 else source_arrays
            )
            moved_bytes = sum(array.nbytes for array in (*inputs, *new_arrays))
            flop_count = count_flop(*host_args) if count_flop else 0.0
            time_options = {"pass_count": count_passes(*host_args, **host_kwargs)} if count_passes else {}
            time_options |= (
                {"min_ns": compute_minimum_ns(*host_args, **host_kwargs)} if compute_minimum_ns else {}
            )
            run_kernel(
                device,
                f"cupy_{name}",
                moved_bytes,
                repeat_if_captured,
                flop_count,
                source_arrays,
                (*new_arrays, *written_arrays),
                **time_options,
            )
            if synchronizes:
                get_current_stream(device.id).synchronize()
        return result

    document_wrapper(call, function, name, missing_keywords, place_note)
    return call


def adapt_host_function(function: Callable[..., Any], name: str = "") -> Callable[..., Any]:
    """Adapt a NumPy function to device arrays if it needs only their shapes and dtypes."""

    def make_stand_in_array(argument: Any) -> Any:
        if isinstance(argument, ndarray):
            return np.broadcast_to(np.empty((), argument.dtype), argument.shape)
        return argument

    def call(*args: Any, **kwargs: Any) -> Any:
        return function(*(make_stand_in_array(argument) for argument in args), **kwargs)

    host_note = (
        "Like NumPy's function of the same name. It uses only the shape and the dtype of device arrays."
    )
    document_wrapper(call, function, name or function.__name__, place_note=host_note)
    return call
