"""Copies of a launch's arguments on another device, so that a kernel can be replayed there.

Arrays that share memory on the one device share it on the other: a kernel sees the same aliasing.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any


@dataclass(slots=True)
class _Region:
    """Bytes of device memory that some arguments lie in."""

    start: int
    end: int
    positions: list[int]


def size_bytes(args: Sequence[Any], source: Any) -> int:
    """Bytes of device memory that the array arguments span; `source` is their array module."""
    return sum(region.end - region.start for region in _regions(args, source))


def stand_ins(args: Sequence[Any], source: Any, target: Any) -> tuple[Any, ...]:
    """Arrays of module `target` with the types and shapes of `source`'s, their contents undefined."""
    return tuple(
        target.empty(arg.shape, arg.dtype) if isinstance(arg, source.ndarray) else arg for arg in args
    )


def memory_of(args: Sequence[Any], source: Any) -> list[Any]:
    """Return the device memory that the array arguments lie in, as arrays of bytes that do not overlap."""
    return [_bytes_of(args[region.positions[0]], region, source) for region in _regions(args, source)]


class Copies:
    """The contents of a launch's array arguments at one moment, to be copied to another device.

    Parameters
    ----------
    args
        Kernel arguments.
    source
        The array module, with CuPy's interface, of their device.
    kept
        Keep the contents in memory of the same device, for a copy that is made later; else `on` copies
        what the arrays hold when it is called.
    """

    def __init__(self, args: Sequence[Any], source: Any, *, kept: bool = False) -> None:
        self._args = tuple(args)
        self._regions: list[tuple[_Region, Any, bool]] = []
        for region in _regions(args, source):
            first = args[region.positions[0]]
            whole = len(region.positions) == 1 and first.flags.c_contiguous
            array = first if whole else _bytes_of(first, region, source)
            self._regions.append((region, array.copy() if kept else array, whole))

    def on(self, target: Any) -> tuple[Any, ...]:
        """The arguments on the device of array module `target`; what is no array is passed on."""
        args = list(self._args)
        for region, array, whole in self._regions:
            copy = target.asarray(array.get())
            for position in region.positions:
                args[position] = copy if whole else copy[args[position].data.ptr - region.start :]
        return tuple(args)


def _regions(args: Sequence[Any], source: Any) -> list[_Region]:
    spans = sorted(
        (*_span(argument), position)
        for position, argument in enumerate(args)
        if isinstance(argument, source.ndarray)
    )
    regions: list[_Region] = []
    for start, end, position in spans:
        if regions and start < regions[-1].end:
            regions[-1].end = max(regions[-1].end, end)
            regions[-1].positions.append(position)
        else:
            regions.append(_Region(start, end, [position]))
    return regions


def _span(array: Any) -> tuple[int, int]:
    """The first byte of an array and the one after its last, whichever way its strides run."""
    start = end = int(array.data.ptr)
    if array.size:
        for length, stride in zip(array.shape, array.strides, strict=True):
            if stride < 0:
                start += (length - 1) * stride
            else:
                end += (length - 1) * stride
        end += array.itemsize
    return start, end


def _bytes_of(array: Any, region: _Region, source: Any) -> Any:
    pointer = array.data + (region.start - array.data.ptr)
    return source.ndarray((region.end - region.start,), dtype="uint8", memptr=pointer)
