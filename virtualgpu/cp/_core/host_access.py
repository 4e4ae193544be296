"""Copies between device arrays and the host, and conversions to Python objects."""

from __future__ import annotations

import warnings
from typing import Any, ClassVar

import numpy as np

from virtualgpu.cp.cuda._memory.copies import enqueue_copy
from virtualgpu.cp.cuda._memory.pointer import BaseMemory
from virtualgpu.cp.cuda._runtime.sync_detection import declare_synchronize
from virtualgpu.cp.cuda.stream import _BaseStream, refuse_in_capture
from virtualgpu.model.memory.host import check_host_memory


class HostAccess:
    """Base class of `ndarray` with the methods that copy its contents to and from the host.

    Every conversion to a Python object copies the data and waits for the device, as on a GPU.
    """

    __slots__ = ()

    _host: np.ndarray[Any, Any]
    _mem: BaseMemory
    # The module `cp`, whose functions are methods of arrays. It imports this module, so it sets this
    # attribute.
    _module: ClassVar[Any]

    def get(
        self,
        stream: _BaseStream | None = None,
        order: str = "C",
        out: np.ndarray[Any, Any] | None = None,
        blocking: bool = True,
    ) -> np.ndarray[Any, Any]:
        """Return a copy of the array in host memory.

        Parameters
        ----------
        stream : Stream, optional
            Stream of the copy; the current one by default.
        order : {'C', 'F', 'A'}
            Layout of the result.
        out : numpy.ndarray, optional
            Write here. With pinned memory and ``blocking=False`` the copy is asynchronous.
        blocking : bool
            Wait for the copy.
        """
        refuse_in_capture("D2H transfers", stream, self._mem.owner)
        if out is not None:
            if not isinstance(out, np.ndarray):
                raise TypeError("Only numpy.ndarray can be obtained from cupy.ndarray")
            if self._host.dtype != out.dtype:
                raise TypeError(f"{out.dtype} array cannot be obtained from {self._host.dtype} array")
            if self._host.shape != out.shape:
                raise ValueError(
                    f"Shape mismatch. Expected shape: {self._host.shape}, actual shape: {out.shape}"
                )
            result = out
        else:
            memory_order: Any = order.upper()
            if memory_order == "A":
                memory_order = "F" if self._host.flags.f_contiguous else "C"
            result = np.empty_like(self._host, order=memory_order)

        declare_synchronize()

        def copy_contents() -> None:
            result[...] = self._host

        size_bytes = self._host.nbytes
        enqueue_copy(
            copy_contents,
            size_bytes,
            source=self._mem.owner,
            host_array=result,
            stream=stream,
            is_blocking=blocking,
            arrays=(result, self._host),
        )
        return result

    def set(self, arr: np.ndarray[Any, Any], stream: _BaseStream | None = None) -> None:
        """Copy a NumPy array of the same shape and dtype into this array.

        The copy is asynchronous if `arr` is in pinned memory; otherwise, the host waits until `arr` has been
        read.
        """
        self._copy_from_host(arr, stream)

    def _copy_from_host(
        self, arr: np.ndarray[Any, Any], stream: _BaseStream | None = None, is_staged: bool = False
    ) -> None:
        if not isinstance(arr, np.ndarray):
            raise TypeError("Only numpy.ndarray can be set to cupy.ndarray")
        if self._host.dtype != arr.dtype:
            raise TypeError(f"{arr.dtype} array cannot be set to {self._host.dtype} array")
        if self._host.shape != arr.shape:
            raise ValueError(f"Shape mismatch. Old shape: {self._host.shape}, new shape: {arr.shape}")
        if not self._host.flags.forc:
            raise RuntimeError("Cannot set to non-contiguous array")
        refuse_in_capture("H2D transfers", stream, self._mem.owner)
        check_host_memory(self._host.nbytes)

        def copy_contents() -> None:
            self._host[...] = arr

        enqueue_copy(
            copy_contents,
            self._host.nbytes,
            target=self._mem.owner,
            host_array=arr,
            stream=stream,
            is_staged=is_staged,
            arrays=(self._host, arr),
        )

    def item(self) -> Any:
        """Return the only element of the array as a Python scalar. The host waits for the device."""
        if self._host.size != 1:
            raise ValueError("can only convert an array of size 1 to a Python scalar")
        return self.get().item()

    def tolist(self) -> Any:
        return self.get().tolist()

    def tobytes(self, order: Any = "C") -> bytes:
        return self.get().tobytes(order)

    # Scalars and text

    def __bool__(self) -> bool:
        if self._host.size > 1:
            raise ValueError(
                "The truth value of an array with more than one element is ambiguous. Use a.any() or a.all()"
            )
        if not self._host.size:
            warnings.warn(
                "The truth value of an empty array is ambiguous. Returning False, but in future this will "
                "result in an error. Use `array.size > 0` to check that an array is not empty.",
                DeprecationWarning,
                stacklevel=2,
            )
            return False
        return bool(self.get())

    def __int__(self) -> int:
        return int(self.get())

    def __float__(self) -> float:
        return float(self.get())

    def __complex__(self) -> complex:
        return complex(self.get())

    def __repr__(self) -> str:
        return repr(self.get())

    def __str__(self) -> str:
        return str(self.get())

    def __format__(self, spec: str) -> str:
        return format(self.get(), spec)
