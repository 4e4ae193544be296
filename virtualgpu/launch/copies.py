"""Copies of a launch's arguments on another device, on which the kernel is replayed.

Arrays that share memory on one device also share it on the other, so that a kernel sees the same aliasing.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any


@dataclass(slots=True)
class _MemoryRange:
    """A range of device memory that contains one or more arguments."""

    start: int
    end: int
    positions: list[int]


def count_array_bytes(args: Sequence[Any], source_module: Any) -> int:
    """Return the number of bytes of device memory that the arrays of module `source_module` occupy."""
    return sum(region.end - region.start for region in _find_memory_ranges(args, source_module))


def make_placeholders(args: Sequence[Any], source_module: Any, target_module: Any) -> tuple[Any, ...]:
    """Return the arguments, with an uninitialized array of module `target_module` in place of each array of
    module `source_module`.
    """
    return tuple(
        target_module.empty(arg.shape, arg.dtype) if isinstance(arg, source_module.ndarray) else arg
        for arg in args
    )


def view_array_memory(args: Sequence[Any], source_module: Any) -> list[Any]:
    """Return the device memory of the array arguments as byte arrays that do not overlap."""
    return [
        _view_bytes(args[region.positions[0]], region, source_module)
        for region in _find_memory_ranges(args, source_module)
    ]


class ArgumentCopies:
    """The arguments of a launch, with arrays that can be copied to another device.

    Parameters
    ----------
    args
        Kernel arguments.
    source_module
        The array module of their device, with CuPy's interface.
    keep_contents
        Whether to copy the contents within the same device now; otherwise `copy_to` copies the contents that
        the arrays have when it is called.
    """

    def __init__(self, args: Sequence[Any], source_module: Any, *, keep_contents: bool = False) -> None:
        self._args = tuple(args)
        self._regions: list[tuple[_MemoryRange, Any, bool]] = []
        for region in _find_memory_ranges(args, source_module):
            first_array = args[region.positions[0]]
            is_whole_array = len(region.positions) == 1 and first_array.flags.c_contiguous
            array = first_array if is_whole_array else _view_bytes(first_array, region, source_module)
            self._regions.append((region, array.copy() if keep_contents else array, is_whole_array))

    def copy_to(self, target_module: Any) -> tuple[Any, ...]:
        """Return the arguments with copies of their arrays on the device of `target_module`."""
        args = list(self._args)
        for region, array, is_whole_array in self._regions:
            array_copy = target_module.asarray(array.get())
            for position in region.positions:
                args[position] = (
                    array_copy if is_whole_array else array_copy[args[position].data.ptr - region.start :]
                )
        return tuple(args)


def _find_memory_ranges(args: Sequence[Any], array_module: Any) -> list[_MemoryRange]:
    byte_ranges = sorted(
        (*_find_byte_range(argument), position)
        for position, argument in enumerate(args)
        if isinstance(argument, array_module.ndarray)
    )
    regions: list[_MemoryRange] = []
    for start, end, position in byte_ranges:
        if regions and start < regions[-1].end:
            regions[-1].end = max(regions[-1].end, end)
            regions[-1].positions.append(position)
        else:
            regions.append(_MemoryRange(start, end, [position]))
    return regions


def _find_byte_range(array: Any) -> tuple[int, int]:
    """Return the address of an array's first byte and the address after its last byte."""
    start_address = end_address = int(array.data.ptr)
    if array.size:
        for length, stride in zip(array.shape, array.strides, strict=True):
            if stride < 0:
                start_address += (length - 1) * stride
            else:
                end_address += (length - 1) * stride
        end_address += array.itemsize
    return start_address, end_address


def _view_bytes(array: Any, region: _MemoryRange, array_module: Any) -> Any:
    pointer = array.data + (region.start - array.data.ptr)
    return array_module.ndarray((region.end - region.start,), dtype="uint8", memptr=pointer)
