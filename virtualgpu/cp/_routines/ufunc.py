"""CuPy's universal functions: NumPy computes them, with CuPy's rules for operands and results."""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import numpy as np

from virtualgpu.cp._core.arguments import Traceable, check_device, make_type_error
from virtualgpu.cp._core.array import ndarray
from virtualgpu.cp._core.dtypes import check_dtype
from virtualgpu.cp._core.library_kernels import run_kernel
from virtualgpu.cp._routines.documented import make_ufunc_docstring, make_ufunc_signature
from virtualgpu.cp.cuda.stream import run_deferred_work
from virtualgpu.model import machine as _machine
from virtualgpu.model.machine import VirtualDevice
from virtualgpu.model.memory.host import check_host_memory

_REDUCIBLE_UFUNCS = frozenset({"add", "multiply"})
_SCATTER_UFUNCS = frozenset(
    {"add", "subtract", "maximum", "minimum", "bitwise_and", "bitwise_or", "bitwise_xor"}
)


@lru_cache(maxsize=4096)
def _resolve_output_dtypes(function: np.ufunc, operand_types: tuple[Any, ...]) -> tuple[np.dtype[Any], ...]:
    """Return a ufunc's output dtypes for operand types; Python's int, float and complex are weak scalars."""
    loop_dtypes = function.resolve_dtypes((*operand_types, *[None] * function.nout))
    return tuple(check_dtype(dtype) for dtype in loop_dtypes[function.nin :])


@lru_cache(maxsize=64)
def _get_dtype_name(dtype: np.dtype[Any]) -> str:
    return dtype.name  # cached because NumPy computes it at each access


class ufunc:  # noqa: N801 - CuPy's name
    """An element-wise function of device arrays and scalars.

    The results are new C-ordered device arrays, and Python scalars take the dtype of the arrays (NEP 50).
    Division by zero and invalid values never warn, as on a GPU.
    """

    def __init__(self, function: np.ufunc, name: str = "") -> None:
        self._function = function
        self.__name__ = name or function.__name__
        self.name = f"cupy_{self.__name__}"
        self.nin = function.nin
        self.nout = function.nout
        self.nargs = function.nargs
        self.__doc__ = make_ufunc_docstring(function)
        self.__signature__ = make_ufunc_signature(function)

    def __repr__(self) -> str:
        return f"<ufunc '{self.name}'>"

    def __call__(
        self,
        *args: Any,
        out: Any = None,
        dtype: Any = None,
        casting: Any = "same_kind",
        **extra_arguments: Any,
    ) -> Any:
        if extra_arguments:
            raise TypeError(f"Wrong arguments {extra_arguments}{_make_where_hint(extra_arguments)}")
        if not self.nin <= len(args) <= self.nargs:
            raise TypeError(
                f"Wrong number of arguments for {self.name!r}. It must be either {self.nin} or {self.nargs} "
                f"(with outputs), but given {len(args)}."
            )
        input_args = args[: self.nin]
        output_args = args[self.nin :]
        if out is not None:
            if output_args:
                raise ValueError("Cannot specify 'out' as both a positional and keyword argument")
            output_args = out if isinstance(out, tuple) else (out,)
        if any(isinstance(input_value, Traceable) for input_value in input_args):
            keywords: dict[str, Any] = {"out": output_args} if output_args else {}
            return self._function(*input_args, dtype=dtype, **keywords)  # which calls the traced value
        device = _machine.current().current_device
        operands = [read_operand(input_value, device) for input_value in input_args]
        if not any(isinstance(input_value, ndarray) for input_value in (*input_args, *output_args)):
            operands = [_as_strong_scalar(input_value) for input_value in operands]
        results = self._prepare_results(input_args, operands, output_args, dtype, device)
        moved_bytes = sum(a.nbytes for a in (*input_args, *results) if isinstance(a, ndarray))

        def compute_results(_kept_arrays: Any = input_args) -> None:
            self._compute_results(operands, results, dtype, casting)

        if moved_bytes:
            run_kernel(
                device,
                self._make_kernel_name(input_args, results),
                moved_bytes,
                compute_results,
                0.0,
                input_args,
                results,
            )
        else:
            compute_results()
        return results[0] if self.nout == 1 else tuple(results)

    def _prepare_results(
        self, inputs: Any, operands: list[Any], outputs: Any, dtype: Any, device: VirtualDevice
    ) -> list[ndarray]:
        output_arrays = list(outputs) + [None] * (self.nout - len(outputs))
        for array in output_arrays:
            if array is not None and not isinstance(array, ndarray):
                raise TypeError("Output arguments must be cupy.ndarray")
            if array is not None:
                check_device(array, device)
        if all(array is not None for array in output_arrays):
            return output_arrays
        if dtype is None:
            operand_types = tuple(_find_operand_type(operand_value) for operand_value in operands)
            output_dtypes = _resolve_output_dtypes(self._function, operand_types)
        else:
            loop_dtypes = self._function.resolve_dtypes(
                tuple(_find_operand_type(operand_value) for operand_value in operands) + (None,) * self.nout,
                signature=(None,) * self.nin + (np.dtype(dtype),) * self.nout,
                casting="unsafe",
            )
            output_dtypes = tuple(check_dtype(output_dtype) for output_dtype in loop_dtypes[self.nin :])
        shape = np.broadcast_shapes(*(np.shape(operand_value) for operand_value in operands))
        check_host_memory(
            int(np.prod(shape, dtype=np.int64)) * max(output_dtype.itemsize for output_dtype in output_dtypes)
        )
        return [
            ndarray(shape, output_dtype) if array is None else array
            for array, output_dtype in zip(output_arrays, output_dtypes, strict=True)
        ]

    def _compute_results(self, operands: list[Any], results: list[ndarray], dtype: Any, casting: Any) -> None:
        host_results = tuple(result._host for result in results)
        keywords: dict[str, Any] = {"out": host_results, "casting": casting}
        if dtype is not None:
            keywords["signature"] = (None,) * self.nin + (np.dtype(dtype),) * self.nout
            keywords["casting"] = "unsafe"
        with np.errstate(all="ignore"):
            if self._function is np.power and all(
                host_result.dtype.kind in "iu" for host_result in host_results
            ):
                _compute_integer_power(operands, host_results[0])
            else:
                self._function(*operands, **keywords)

    def _make_kernel_name(self, inputs: Any, results: list[ndarray]) -> str:
        dtype_names = []
        for array_or_scalar in (*inputs, *results):
            if isinstance(array_or_scalar, ndarray):
                dtype_names.append(_get_dtype_name(array_or_scalar.dtype))
            else:
                dtype_names.append(_get_dtype_name(np.result_type(array_or_scalar)).rstrip("0123456789"))
        return f"{self.name}__{'_'.join(dtype_names)}"

    @property
    def types(self) -> list[str]:
        """Supported combinations of operand and result types, in NumPy's notation such as ``"ff->f"``."""
        supported_characters = set("?bBhHiIlLqQefdFD->")
        return [types for types in self._function.types if set(types) <= supported_characters]

    def at(self, a: ndarray, indices: Any, b: Any = None) -> None:
        """Apply the function in place at the given indices, like `numpy.ufunc.at`."""
        if self.__name__ not in _SCATTER_UFUNCS:
            raise NotImplementedError(f"`{self.name}.at` is not supported yet")
        device = _machine.current().current_device
        host_key = a._make_host_key(indices)
        second_operand = b if isinstance(b, np.ndarray) else read_operand(b, device)

        def apply_at_indices(_kept_arrays: Any = b) -> None:
            with np.errstate(all="ignore"):
                self._function.at(a._host, a._make_host_key(indices).key, second_operand)

        moved_bytes = 2 * np.size(second_operand) * a.itemsize + host_key.index_bytes
        run_kernel(device, f"{self.name}_at", moved_bytes, apply_at_indices, 0.0, (a, indices, b), (a,))

    def outer(self, a: Any, b: Any, **kwargs: Any) -> Any:
        """Apply the function to each pair of one element of `a` and one element of `b`."""
        first_operand = a if isinstance(a, ndarray) else ndarray._from_host(a)
        return self(first_operand.reshape(first_operand.shape + (1,) * np.ndim(read_operand(b))), b, **kwargs)

    def reduce(
        self, array: ndarray, axis: Any = 0, dtype: Any = None, out: Any = None, keepdims: bool = False
    ) -> Any:
        """Reduce an array along an axis. CuPy supports this method only for ``add`` and ``multiply``."""
        if self.__name__ not in _REDUCIBLE_UFUNCS:
            raise NotImplementedError(f"`{self.name}.reduce` is not supported yet")
        return (array.sum if self.__name__ == "add" else array.prod)(axis, dtype, out, keepdims)

    def accumulate(self, array: ndarray, axis: int = 0, dtype: Any = None, out: Any = None) -> Any:
        """Return the cumulative results along an axis. CuPy supports this method only for ``add`` and
        ``multiply``.
        """
        if self.__name__ not in _REDUCIBLE_UFUNCS:
            raise NotImplementedError(f"`{self.name}.accumulate` is not supported yet")
        return (array.cumsum if self.__name__ == "add" else array.cumprod)(axis, dtype, out)

    def reduceat(
        self, array: ndarray, indices: Any, axis: int = 0, dtype: Any = None, out: Any = None
    ) -> Any:
        """Reduce slices that start at the given indices. CuPy supports this method only for ``add``."""
        if self.__name__ != "add":
            raise NotImplementedError(f"`{self.name}.reduceat` is not supported yet")
        slice_starts = read_operand(indices) if isinstance(indices, ndarray) else indices

        def reduce_slices(_kept_arrays: Any = indices) -> Any:
            return np.add.reduceat(read_operand(array), slice_starts, axis, dtype)

        run_deferred_work(array._mem.owner)
        result = ndarray._from_library_kernel(
            f"{self.name}_reduceat", reduce_slices(), reduce_slices, array.nbytes, reads=(array, indices)
        )
        if out is None:
            return result
        out[...] = result
        return out


def _make_where_hint(extra_arguments: dict[str, Any]) -> str:
    if "where" not in extra_arguments:
        return ""
    return ": CuPy's element-wise functions have no where=; select with cp.where(condition, new, old)."


def read_operand(value: Any, device: VirtualDevice | None = None) -> Any:
    """Convert a device array to a NumPy array that shares its memory. Scalars are returned unchanged.

    Any other value raises ``TypeError``.
    """
    if isinstance(value, ndarray):
        check_device(value, device or _machine.current().current_device)
        return value._host
    if isinstance(value, (bool, int, float, complex)):
        return value
    if isinstance(value, np.generic):
        check_dtype(value.dtype)
        return value
    raise make_type_error(value)


def _as_strong_scalar(value: Any) -> Any:
    """Convert a Python scalar to a NumPy scalar of its default dtype, if no array determines a dtype."""
    return np.asarray(value)[()]


def _find_operand_type(value: Any) -> Any:
    if isinstance(value, bool):
        return np.dtype(np.bool_)
    return (
        type(value)
        if isinstance(value, (int, float, complex)) and not isinstance(value, np.generic)
        else value.dtype
    )


def _compute_integer_power(operands: list[Any], out: np.ndarray[Any, Any]) -> None:
    """Compute powers of integers with CuPy's rules.

    A negative exponent returns 1 / a**n truncated to an integer, where NumPy raises.
    """
    base, exponent = (np.asarray(operand_value, dtype=out.dtype) for operand_value in operands)
    if not (exponent < 0).any():
        np.power(base, exponent, out=out)
        return
    np.power(base, np.where(exponent < 0, 0, exponent), out=out)
    negative_power = np.where(base == 1, 1, np.where(base == -1, np.where(exponent % 2 == 0, 1, -1), 0))
    np.copyto(
        out,
        np.broadcast_to(negative_power, out.shape).astype(out.dtype),
        where=np.broadcast_to(exponent < 0, out.shape),
    )
