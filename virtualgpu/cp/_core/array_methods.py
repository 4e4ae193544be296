"""The less common methods of device arrays: sorting, flat access, files, scattering, DLPack."""

from __future__ import annotations

import difflib
from os import PathLike
from typing import Any

import numpy as np

from virtualgpu.cp._core.device_rules import check_device, launch
from virtualgpu.cp._core.transfer import HostAccess

# Device types of the DLPack standard.
DLPACK_CPU, DLPACK_CUDA = 1, 2


class flatiter:  # noqa: N801 - CuPy's name
    """The elements of an array in C order: an iterator that takes integers and slices as indices."""

    def __init__(self, a: Any) -> None:
        self.base = a
        self._next = 0

    def __iter__(self) -> flatiter:
        return self

    def __next__(self) -> Any:
        if self._next == self.base.size:
            raise StopIteration
        self._next += 1
        return self[self._next - 1]

    def __len__(self) -> int:
        return int(self.base.size)

    def copy(self) -> Any:
        """The elements as a new one-dimensional array."""
        return self.base.flatten()

    def __getitem__(self, ind: Any) -> Any:
        if isinstance(ind, slice) or ind is Ellipsis:
            return self.base.ravel()[ind].copy()
        return self.base[self._place(ind)].copy()

    def __setitem__(self, ind: Any, value: Any) -> None:
        if isinstance(ind, slice) or ind is Ellipsis:
            every = np.arange(self.base.size)[ind]
            values = np.resize(np.asarray(value._host if hasattr(value, "_host") else value), every.size)
            flat = self.base.ravel().get()
            flat[every] = values
            self.base[...] = type(self.base)._stored(flat.reshape(self.base.shape))
        else:
            self.base[self._place(ind)] = value

    def _place(self, ind: Any) -> tuple[int, ...]:
        if isinstance(ind, bool) or not isinstance(ind, (int, np.integer)):
            raise IndexError("unsupported iterator index")
        number = int(ind)
        size = self.base.size
        if not -size <= number < size:
            raise IndexError(f"index {number} is out of bounds for size {size}")
        return tuple(int(i) for i in np.unravel_index(number % size, self.base.shape))


class MoreMethods(HostAccess):
    """Methods of `ndarray` that need nothing but its other methods and functions."""

    __slots__ = ()

    def sort(self, axis: int = -1, kind: str | None = None) -> None:
        """Sort in place, always stably."""
        check_kind(kind)
        check_device(self)
        self._host.sort(axis=axis, kind="stable")
        launch(self._mem.owner, "cupy_sort", 2 * self._host.nbytes)

    def partition(self, kth: Any, axis: int = -1) -> None:
        """Partition in place, as `numpy.ndarray.partition`."""
        array: Any = self
        array[...] = self._module.partition(self, kth, axis=axis)

    @property
    def flat(self) -> flatiter:
        """The elements in C order, to iterate over or to index."""
        return flatiter(self)

    def scatter_add(self, slices: Any, value: Any) -> None:
        """Add to indexed elements, counting repeated indices each time (atomically)."""
        self._module.add.at(self, slices, value)

    def scatter_max(self, slices: Any, value: Any) -> None:
        """Set indexed elements to the maximum of themselves and `value`."""
        self._module.maximum.at(self, slices, value)

    def scatter_min(self, slices: Any, value: Any) -> None:
        """Set indexed elements to the minimum of themselves and `value`."""
        self._module.minimum.at(self, slices, value)

    # Files and bytes

    def tofile(self, fid: Any, sep: str = "", format: str = "%s") -> None:
        """Write the elements to a file, as `numpy.ndarray.tofile`."""
        self.get().tofile(fid, sep, format)

    def dump(self, file: str | PathLike[str]) -> None:
        """Write a pickle of the array to a file."""
        self.get().dump(file)

    def dumps(self) -> bytes:
        """A pickle of the array."""
        return self.get().dumps()

    def __bytes__(self) -> bytes:
        return bytes(self.get())

    # Exchange with other libraries

    def __dlpack_device__(self) -> tuple[int, int]:
        return DLPACK_CUDA, self._mem.device_id

    def __dlpack__(
        self,
        *,
        stream: int | None = None,
        max_version: tuple[int, int] | None = None,
        dl_device: tuple[int, int] | None = None,
        copy: bool | None = None,
    ) -> Any:
        """The array for another library: a copy in host memory, if ``dl_device`` asks for one.

        Raises
        ------
        BufferError
            For anything else: no other library can reach the memory of a virtual GPU.
        """
        if dl_device != (DLPACK_CPU, 0):
            raise BufferError(
                "Other libraries cannot use the memory of a virtual GPU. Give them x.get(), or ask for a "
                "copy in host memory: np.from_dlpack(x, device='cpu')."
            )
        if copy is False:
            raise ValueError("GPU memory cannot be exported to CPU without copy.")
        if max_version is None:
            return self.get().__dlpack__()
        return self.get().__dlpack__(max_version=max_version)

    def toDlpack(self) -> Any:  # noqa: N802 - CuPy's name
        """The array as a capsule for another library: not on a virtual GPU."""
        return self.__dlpack__()

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(f"'cupy.ndarray' object has no attribute {name!r}")
        raise AttributeError(_why_no_attribute(type(self), name))


def check_kind(kind: str | None) -> None:
    """CuPy sorts stably or not at all: raise ``ValueError`` for any other `kind`."""
    if kind is not None and kind != "stable":
        raise ValueError(f"kind can only be None or 'stable', not {kind!r}")


def _why_no_attribute(kind: type, name: str) -> str:
    text = f"'cupy.ndarray' object has no attribute {name!r}"
    near = difflib.get_close_matches(name, [n for n in dir(kind) if not n.startswith("_")], n=1, cutoff=0.75)
    if hasattr(np.ndarray, name):
        return f"{text}. NumPy arrays have it: copy the array to the host first, x.get().{name}"
    if near:
        return f"{text}. Did you mean {near[0]!r}?"
    return f"{text}. See dir(x) for what device arrays have."
