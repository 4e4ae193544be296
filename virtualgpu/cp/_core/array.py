"""The virtual GPU's ``ndarray``: a NumPy view of device memory with CuPy's rules.

Arithmetic and functions run at once through NumPy on the host. The time that they would take on the device
is added to the current stream of the modelled clock.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from virtualgpu.cp._core.arguments import check_device
from virtualgpu.cp._core.dtypes import LayoutFlags, check_dtype, parse_shape
from virtualgpu.cp._core.exports import ExportMethods
from virtualgpu.cp._core.indexing import make_host_key
from virtualgpu.cp._core.library_kernels import run_kernel
from virtualgpu.cp._core.numpy_protocols import call_numpy_function, call_numpy_ufunc
from virtualgpu.cp._core.operators import FunctionMethods, OperatorMethods
from virtualgpu.cp.cuda._memory.copies import enable_peer_access, enqueue_copy
from virtualgpu.cp.cuda._memory.pointer import BaseMemory, MemoryPointer
from virtualgpu.cp.cuda._memory.pool import alloc
from virtualgpu.cp.cuda.stream import get_current_stream, is_capturing, refuse_in_capture, run_deferred_work
from virtualgpu.launch.arguments import DeviceArray
from virtualgpu.model.machine import current
from virtualgpu.model.memory.host import check_host_memory


class ndarray(OperatorMethods, FunctionMethods, ExportMethods, DeviceArray):  # noqa: N801 - CuPy's name
    """An array in the memory of a virtual GPU.

    Parameters
    ----------
    shape : int or tuple of int
        Lengths of the axes.
    dtype : dtype
        Element type; one of CuPy's (bool, integers, float16 to float64, complex).
    memptr : MemoryPointer, optional
        Use this memory instead of allocating.
    strides : tuple of int, optional
        Steps in bytes.
    order : {'C', 'F'}
        Memory layout.
    """

    __slots__ = ("__weakref__", "_host", "_mem", "base")
    __module__ = "cupy"

    _host: np.ndarray[Any, Any]
    _mem: BaseMemory
    base: ndarray | None

    def __init__(
        self,
        shape: Any,
        dtype: Any = float,
        memptr: MemoryPointer | None = None,
        strides: tuple[int, ...] | None = None,
        order: str | None = "C",
    ) -> None:
        extents = parse_shape(shape)
        element_dtype = check_dtype(dtype)
        element_count = 1
        for n in extents:
            element_count *= n
        size_bytes = element_count * element_dtype.itemsize
        if memptr is None:
            memptr = alloc(size_bytes)
            label = f"{element_dtype.name} array of shape {extents}"
            memptr.mem.owner.memory.track_allocation(memptr.ptr, size_bytes, label)
        elif strides is not None and element_count:
            size_bytes = (
                sum((n - 1) * abs(stride) for n, stride in zip(extents, strides, strict=True))
                + element_dtype.itemsize
            )
        self._mem = memptr.mem
        self.base = None
        buffer = memptr.mem.owner.memory.view(memptr.ptr, size_bytes) if size_bytes else None
        layout: Any = "F" if order and order.upper() == "F" else "C"
        self._host = np.ndarray(extents, element_dtype, buffer=buffer, strides=strides, order=layout)

    # Creation

    @classmethod
    def _make_filled(cls, shape: Any, dtype: np.dtype[Any], value: Any, order: str = "C") -> ndarray:
        array = cls(shape, dtype, order=order)
        array.fill(value)
        return array

    @classmethod
    def _from_host(cls, host: Any, order: str = "C") -> ndarray:
        """Return a new array with the contents of a NumPy array; the copy takes no modelled time."""
        host = np.asarray(host)
        check_host_memory(host.nbytes)
        array = cls(host.shape, host.dtype, order=order)
        array._host[...] = host
        return array

    @classmethod
    def _from_library_kernel(
        cls,
        kernel: str,
        host_result: Any,
        recompute: Callable[[], Any],
        bytes_read: float = 0.0,
        *,
        flop: float = 0.0,
        order: str = "C",
        reads: tuple[Any, ...] = (),
    ) -> ndarray:
        """Launch a library kernel, and return the new array that contains its result.

        Parameters
        ----------
        kernel
            The kernel's name.
        host_result
            The kernel's result for the present contents of its inputs.
        recompute
            Computes the result again when a graph launches the kernel.
        bytes_read, flop
            Bytes that the kernel reads, and floating-point operations.
        reads
            Arguments of the kernel; those that are arrays count as read.
        """
        host_result = np.asarray(host_result)
        check_host_memory(host_result.nbytes)
        array = cls(host_result.shape, host_result.dtype, order=order)
        device = array._mem.owner
        result_contents = None if is_capturing(device=device) else host_result
        run_kernel(
            device,
            kernel,
            bytes_read + array.nbytes,
            lambda: array._assign_values(recompute() if result_contents is None else result_contents),
            flop,
            reads,
            (array,),
        )
        return array

    def _assign_values(self, host: Any) -> None:
        """Copy values from the host into this array, without NumPy's warnings."""
        with np.errstate(all="ignore"):
            self._host[...] = host

    def _make_view(self, host: np.ndarray[Any, Any]) -> ndarray:
        if not host.flags.writeable:
            host.flags.writeable = True  # NumPy guards diagonals and broadcast views, CuPy does not
        view: ndarray = ndarray.__new__(type(self))
        view._host = host
        view._mem = self._mem
        view.base = self if self.base is None else self.base
        return view

    def _make_outside_view(self, host: np.ndarray[Any, Any]) -> ndarray:
        """Return an array that is a view of `host`, which can be outside this array's allocation."""
        array: ndarray = ndarray.__new__(type(self))
        array._host = host
        array._mem = BaseMemory(self._mem.ptr, self._mem.size, self._mem.owner)
        array.base = None
        return array

    def _make_inside_view(self, host: Any) -> ndarray | None:
        """Return an array view of `host` if it is in this array's memory, else None."""
        if not isinstance(host, np.ndarray) or not host.size or not self._mem.ptr:
            return None
        start_address = host.__array_interface__["data"][0]
        is_inside = self._mem.ptr <= start_address < self._mem.ptr + self._mem.size
        return self._make_view(host) if is_inside else None

    # Layout

    @property
    def data(self) -> MemoryPointer:
        """Pointer to the first element of the array. The attribute ``data.ptr`` is its address."""
        if not self._mem.ptr or not self.size:
            return MemoryPointer(self._mem, 0)
        return MemoryPointer(self._mem, int(self._host.__array_interface__["data"][0]) - self._mem.ptr)

    @property
    def device(self) -> Any:
        """The ``cp.cuda.Device`` that holds the array."""
        return self._mem.device

    @property
    def dtype(self) -> np.dtype[Any]:
        host_dtype: np.dtype[Any] = self._host.dtype
        return host_dtype

    @property
    def shape(self) -> tuple[int, ...]:
        extents: tuple[int, ...] = self._host.shape
        return extents

    @shape.setter
    def shape(self, shape: Any) -> None:
        reshaped = self._host.reshape(shape)
        if self._make_inside_view(reshaped) is None and self.size:
            raise AttributeError("incompatible shape for a non-contiguous array")
        self._host = reshaped

    @property
    def strides(self) -> tuple[int, ...]:
        return self._host.strides

    @property
    def ndim(self) -> int:
        return self._host.ndim

    @property
    def size(self) -> int:
        return int(self._host.size)

    @property
    def itemsize(self) -> int:
        return int(self._host.itemsize)

    @property
    def nbytes(self) -> int:
        return int(self._host.nbytes)

    @property
    def flags(self) -> LayoutFlags:
        return LayoutFlags(self._host, self.base is None)

    @property
    def T(self) -> ndarray:  # noqa: N802 - NumPy's name
        """View of the array with its axes reversed."""
        return self if self.ndim < 2 else self._make_view(self._host.T)

    @property
    def mT(self) -> ndarray:  # noqa: N802 - NumPy's name
        """View of the array with its last two axes exchanged."""
        return self._make_view(self._host.mT)

    @property
    def real(self) -> ndarray:
        return self._make_view(self._host.real) if self.dtype.kind == "c" else self

    @real.setter
    def real(self, value: Any) -> None:
        self.real[...] = value

    @property
    def imag(self) -> ndarray:
        if self.dtype.kind == "c":
            return self._make_view(self._host.imag)
        return ndarray._make_filled(self.shape, self.dtype, 0)

    @imag.setter
    def imag(self, value: Any) -> None:
        if self.dtype.kind != "c":
            raise TypeError("cupy.ndarray does not have imaginary part to set")
        self.imag[...] = value

    @property
    def __cuda_array_interface__(self) -> dict[str, Any]:
        return {
            "shape": self.shape,
            "typestr": self.dtype.str,
            "descr": self.dtype.descr,
            "stream": get_current_stream(self._mem.owner.id).ptr or 1,
            "version": 3,
            "strides": None if self._host.flags.c_contiguous else self.strides,
            "data": (self.data.ptr, False),
        }

    # NumPy's protocols

    def __array__(self, dtype: Any = None, copy: Any = None) -> Any:
        raise TypeError(
            "Implicit conversion to a NumPy array is not allowed. "
            "Please use `.get()` to construct a NumPy array explicitly."
        )

    def __array_ufunc__(self, ufunc: Any, method: str, *inputs: Any, **kwargs: Any) -> Any:
        return call_numpy_ufunc(ndarray, ufunc, method, inputs, kwargs)

    def __array_function__(self, func: Any, types: Any, args: Any, kwargs: Any) -> Any:
        return call_numpy_function(ndarray, func, types, args, kwargs)

    # Copies and views

    def fill(self, value: Any) -> None:
        """Set all elements of the array to a scalar."""
        if isinstance(value, ndarray):
            check_device(value)
            if value.ndim:
                raise ValueError("non-scalar cupy.ndarray cannot be used for fill")
            value = value._host
        else:
            value = np.asarray(value, dtype=self.dtype)
            if value.ndim:
                raise ValueError(
                    "non-scalar numpy.ndarray cannot be used for fill. Copy it to the "
                    "device with cp.asarray(x)."
                )
        device = self._mem.owner
        if not self.size:
            return
        if device.machine is not current():
            check_device(self)
        if np.ndim(value) == 0 and not value and not np.signbit(np.real(value)) and self.flags.forc:
            self.data.memset_async(0, self.nbytes)
            return
        check_device(self)
        check_host_memory(self.nbytes)
        name = f"cupy_fill__{self.dtype.name}"
        run_kernel(
            current().current_device, name, self.nbytes, lambda: self._assign_values(value), writes=(self,)
        )

    def copy(self, order: Any = "C") -> ndarray:
        """Return a copy of the array on the current device."""
        check_host_memory(self.nbytes)
        strides = np.empty_like(self._host, order=order).strides  # takes no memory: nothing writes to it
        result = ndarray(self.shape, self.dtype, strides=strides)
        source_device = self._mem.owner
        host = self._host if source_device.memory.is_host_address(self._mem.ptr) else None
        enable_peer_access(source_device, result._mem.owner)
        enqueue_copy(
            lambda: result._assign_values(self._host),
            self.nbytes,
            target=result._mem.owner,
            source=source_device if host is None else None,
            host_array=host,
            arrays=(result._host, self._host),
        )
        return result

    def astype(
        self, dtype: Any, order: str = "K", casting: Any = "unsafe", subok: Any = None, copy: bool = True
    ) -> ndarray:
        """Return the array converted to another dtype.

        With ``copy=False``, the array itself is returned if its dtype and order already match.
        """
        target_dtype = check_dtype(dtype)
        layout: Any = order or "K"
        if not copy and target_dtype == self.dtype and self._has_order(layout):
            return self
        check_device(self)
        if not np.can_cast(self.dtype, target_dtype, casting or "unsafe"):
            raise TypeError(
                f"Cannot cast array data from {self.dtype!r} to {target_dtype!r} "
                f"according to the rule '{casting}'"
            )
        check_host_memory(self.size * target_dtype.itemsize)
        strides = np.empty_like(self._host, dtype=target_dtype, order=layout).strides
        result = ndarray(self.shape, target_dtype, strides=strides)
        name = f"cupy_copy__{self.dtype.name}_{target_dtype.name}"
        run_kernel(
            result._mem.owner,
            name,
            self.nbytes + result.nbytes,
            lambda: result._assign_values(self._host),
            reads=(self,),
            writes=(result,),
        )
        return result

    def _has_order(self, order: str) -> bool:
        """Return whether the elements' layout in memory satisfies an ``order=`` argument."""
        c_contiguous = self.flags.c_contiguous
        f_contiguous = self.flags.f_contiguous
        return bool(
            {"C": c_contiguous, "F": f_contiguous, "A": c_contiguous or f_contiguous}.get(order.upper(), True)
        )

    def view(self, dtype: Any = None, type: Any = None) -> ndarray:
        """Return a view of the same memory with another dtype."""
        return self._make_view(self._host.view() if dtype is None else self._host.view(check_dtype(dtype)))

    def reshape(self, *shape: Any, order: Any = "C", copy: bool | None = None) -> ndarray:
        """Return the array with another shape. The result is a view if possible."""
        new_shape = shape[0] if len(shape) == 1 and not isinstance(shape[0], (int, np.integer)) else shape
        return self._module.reshape(self, new_shape, order=order, copy=copy)  # type: ignore[no-any-return]

    def transpose(self, *axes: Any) -> ndarray:
        """Return a view of the array with permuted axes."""
        return self._make_view(self._host.transpose(*axes))

    def flatten(self, order: Any = "C") -> ndarray:
        """Return a one-dimensional copy of the array."""
        return self.ravel(order).copy() if self.size else self.copy().ravel()  # type: ignore[no-any-return]

    # Indexing

    def _make_host_key(self, key: Any) -> Any:
        def to_host(key_part: Any) -> Any:
            if not isinstance(key_part, ndarray):
                return None
            check_device(key_part)
            run_deferred_work(self._mem.owner)
            return key_part._host

        return make_host_key(key, self.shape, to_host)

    def __getitem__(self, key: Any) -> ndarray:
        index_key = self._make_host_key(key)
        if not index_key.is_advanced:
            return self._make_view(self._host[index_key.key])
        check_device(self)
        if index_key.has_mask:
            refuse_in_capture("D2H transfers", device=self._mem.owner)  # the result's size depends on data
        run_deferred_work(self._mem.owner)
        host = self._host[index_key.key]
        result = ndarray._from_library_kernel(
            "cupy_take",
            host,
            lambda: self._host[self._make_host_key(key).key],
            host.nbytes + index_key.index_bytes,
            reads=(self, key),
        )
        if index_key.has_mask:
            get_current_stream(self._mem.owner.id).synchronize()
        return result

    def __setitem__(self, key: Any, value: Any) -> None:
        index_key = self._make_host_key(key)
        if index_key.is_advanced or isinstance(value, ndarray):
            check_device(self)
        if isinstance(value, ndarray):
            check_device(value)
            source_array = value._host
        elif index_key.is_advanced:
            source_array = np.asarray(value)
        else:
            self._make_view(self._host[index_key.key]).fill(value)
            return
        target_view = self._host[index_key.key]
        if index_key.is_advanced:
            moved_bytes = 2 * target_view.nbytes + index_key.index_bytes
        else:
            moved_bytes = 2 * target_view.nbytes
            while source_array.ndim > target_view.ndim and source_array.shape[0] == 1:
                source_array = source_array[0]

        def store(_reference: Any = value) -> None:
            with np.errstate(all="ignore"):
                if index_key.is_advanced:
                    self._host[self._make_host_key(key).key] = source_array
                else:
                    target_view[...] = source_array

        output = self if index_key.is_advanced else self._make_view(target_view)
        device = current().current_device
        run_kernel(device, "cupy_copy", moved_bytes, store, reads=(value, key), writes=(output,))

    def __len__(self) -> int:
        if self.ndim == 0:
            raise TypeError("len() of unsized object")
        return self.shape[0]

    def __iter__(self) -> Iterator[ndarray]:
        if self.ndim == 0:
            raise TypeError("iteration over a 0-d array")
        return (self[i] for i in range(self.shape[0]))

    # Copies for the copy module

    def __copy__(self) -> ndarray:
        return self.copy()

    def __deepcopy__(self, memo: Any) -> ndarray:
        return self.copy()

    def __reduce__(self) -> Any:
        return self._module.array, (self.get(order="A"),)

    __hash__ = None  # type: ignore[assignment]
