"""Memory that a kernel of a real GPU accesses, found from its launch arguments and its PTX.

CuPy passes arrays with their shape and strides to its own kernels, so their memory is known. A kernel of the
program receives addresses: each array at such an address counts as accessed as a whole, and the PTX shows
whether the kernel loads from it, stores to it or changes it atomically. The memory of library kernels is
unknown.
"""

from __future__ import annotations

import ctypes
import gc
import math
import struct
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import cupy

from gpulab.analysis.cupti.names import shorten_kernel_name
from virtualgpu.compile.ptx.parameter_uses import (
    PARAMETER_ATOMIC,
    PARAMETER_READ,
    PARAMETER_WRITTEN,
    find_parameter_uses,
)
from virtualgpu.errors import GpulabError
from virtualgpu.protocol import kernel_source
from virtualgpu.records.acts import Region

Regions = tuple[Region, ...]
_WORD_BYTES = 8


@dataclass(frozen=True, slots=True)
class AccessedRegions:
    """The memory regions that a launch reads, writes, and changes atomically."""

    reads: Regions = ()
    writes: Regions = ()
    atomics: Regions = ()


class KernelRegions:
    """A helper that finds the memory that a launch accesses. The helper uses the function handle and the
    parameters of the launch.

    Parameters
    ----------
    device_id
        The device's number.
    ptx
        Function that returns the PTX of a kernel.
    """

    def __init__(self, device_id: int, ptx: Any) -> None:
        self._device_id = device_id
        self._ptx = ptx
        self._parameter_uses: dict[int, list[int] | None] = {}
        self._is_cupy_function: dict[int, bool] = {}
        # Blocks of memory by their start, with the size, and what the device itself gave out.
        self.block_sizes: dict[int, int] = {}
        self.segment_sizes: dict[int, int] = {}

    def is_from_cupy(self, function: int, symbol: str) -> bool:
        """Return whether CuPy loaded a kernel function. The parameters of other functions cannot be read."""
        if function not in self._is_cupy_function:
            kernel_names = (symbol, shorten_kernel_name(symbol))
            self._is_cupy_function[function] = symbol.startswith("cupy_") or any(
                kernel.name in kernel_names if type(kernel) is cupy.RawKernel else kernel.ptr == function
                for kernel in _find_live_objects(cupy.cuda.function.Function, cupy.RawKernel)
            )
        return self._is_cupy_function[function]

    def find_accessed_regions(self, function: int, symbol: str, params: Sequence[bytes]) -> AccessedRegions:
        """Return the memory that a kernel launch accesses."""
        arrays = [array for array in map(self._parse_carray, params) if array is not None]
        if arrays:
            return self._split_cupy_arrays(symbol, arrays)
        parameter_uses = self._find_parameter_uses(function, symbol)
        parameter_regions = self._find_regions(params)
        if parameter_uses is None or len(parameter_uses) != len(params):
            # Its source cannot be had: it may do anything with what it is given.
            passed_regions = tuple(region for region in parameter_regions if region is not None)
            return AccessedRegions(passed_regions, passed_regions)
        used_regions = [
            (use, region)
            for use, region in zip(parameter_uses, parameter_regions, strict=True)
            if region is not None
        ]
        use_kinds = (PARAMETER_READ, PARAMETER_WRITTEN, PARAMETER_ATOMIC)
        return AccessedRegions(
            *(tuple(region for use, region in used_regions if use & use_kind) for use_kind in use_kinds)
        )

    # CuPy's own kernels

    def _parse_carray(self, param: bytes) -> Region | None:
        """Return the region of a parameter with CuPy's type ``CArray`` (cupy/carray.cuh), or None."""
        parameter_bytes = len(param)
        if parameter_bytes < 2 * _WORD_BYTES or parameter_bytes % (2 * _WORD_BYTES):
            return None
        address, element_count, *shape_and_strides = struct.unpack(
            f"<{parameter_bytes // _WORD_BYTES}q", param
        )
        shape = shape_and_strides[: len(shape_and_strides) // 2]
        strides = shape_and_strides[len(shape_and_strides) // 2 :]
        if math.prod(shape) != element_count or not element_count or self._find_block(address) is None:
            return None
        known_array = _find_array_at(address)
        item_bytes = (
            known_array.itemsize
            if known_array is not None
            else min((abs(stride) for stride in strides if stride), default=4)
        )
        return Region.of_array(self._device_id, address, item_bytes, tuple(shape), tuple(strides))

    @staticmethod
    def _split_cupy_arrays(symbol: str, arrays: list[Region]) -> AccessedRegions:
        """Divide the array arguments of a CuPy kernel into inputs and results; results come last.

        A ufunc has one result or `nout` results.
        """
        name = symbol.removeprefix("cupy_").split("__")[0]
        output_count = min(int(getattr(getattr(cupy, name, None), "nout", 1)), len(arrays))
        return AccessedRegions(
            tuple(arrays[: len(arrays) - output_count]), tuple(arrays[len(arrays) - output_count :])
        )

    # The program's kernels

    def _find_parameter_uses(self, function: int, symbol: str) -> list[int] | None:
        if function not in self._parameter_uses:
            # Kernels are told apart by their source: to ask one for its handle would compile it, here.
            kernels = [
                kernel
                for kernel in _find_live_objects(cupy.RawKernel)
                if kernel.name in (symbol, shorten_kernel_name(symbol))
            ]
            self._parameter_uses[function] = None
            with suppress(GpulabError, KeyError, TypeError, ValueError):
                if len({kernel_source(kernel) for kernel in kernels}) == 1:
                    self._parameter_uses[function] = find_parameter_uses(self._ptx(kernels[0]), symbol)
        return self._parameter_uses[function]

    def _find_regions(self, params: Sequence[bytes]) -> list[Region | None]:
        """Return the memory region of each parameter that is an address."""
        parameter_words = [
            struct.unpack("<Q", param)[0] if len(param) == _WORD_BYTES else 0 for param in params
        ]
        return list(
            map(
                self._find_region, parameter_words, _find_passed_arguments(parameter_words) or parameter_words
            )
        )

    def _find_region(self, address: int, argument: Any) -> Region | None:
        """Return the memory region at an address: the passed array, or the rest of its memory block."""
        block = self._find_block(address) if address else None
        if block is None:
            return None
        if isinstance(argument, cupy.ndarray):
            return Region.of_array(
                self._device_id, address, argument.itemsize, argument.shape, argument.strides
            )
        return Region(self._device_id, address, block[0] + block[1] - address)

    def _find_block(self, address: int) -> tuple[int, int] | None:
        """Return the start and size of the memory block that contains an address, or None."""
        if address in self.block_sizes:
            return address, self.block_sizes[address]
        memory_ranges = (*self.block_sizes.items(), *self.segment_sizes.items())
        return next(
            (
                (start, size_bytes)
                for start, size_bytes in memory_ranges
                if start <= address < start + size_bytes
            ),
            None,
        )


def load_driver() -> Any:
    """Load the CUDA driver, which reports the sizes of kernel parameters."""
    return ctypes.CDLL("libcuda.so.1")


def read_parameters(driver: Any, function: int, value_addresses: Any) -> list[bytes]:
    """Return the bytes of a launch's parameters. The bytes are read from the addresses that
    ``cuLaunchKernel`` received.
    """
    params: list[bytes] = []
    offset = ctypes.c_size_t()
    parameter_bytes = ctypes.c_size_t()
    while not driver.cuFuncGetParamInfo(
        ctypes.c_void_p(function),
        ctypes.c_size_t(len(params)),
        ctypes.byref(offset),
        ctypes.byref(parameter_bytes),
    ):
        address = value_addresses[len(params)]
        params.append(ctypes.string_at(address, parameter_bytes.value) if address else b"")
    return params


def _find_array_at(address: int) -> Any:
    """Return an array that begins at an address, or None."""
    return next((array for array in _find_live_objects(cupy.ndarray) if array.data.ptr == address), None)


def _find_passed_arguments(parameter_values: Sequence[int]) -> tuple[Any, ...] | None:
    """Return the tuple of arguments of the current launch, identified by the addresses of its arrays."""
    for arguments in _find_live_objects(tuple):
        if len(arguments) == len(parameter_values):
            value_pairs = zip(parameter_values, arguments, strict=True)
            arrays = [(value, argument) for value, argument in value_pairs if type(argument) is cupy.ndarray]
            if arrays and all(argument.data.ptr == value for value, argument in arrays):
                return tuple(arguments)
    return None


def _find_live_objects(*classes: type) -> Iterator[Any]:
    """Yield all live objects of these classes, the newest first.

    The list of the garbage collector must not be kept while the generator is suspended. It contains the
    generator itself, and this reference cycle would keep arrays alive that the program frees.
    """
    for gc_generation in range(3):
        yield from [
            live_object for live_object in gc.get_objects(gc_generation) if type(live_object) in classes
        ]
