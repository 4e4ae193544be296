"""Methods that export an array as bytes, as a file or as a DLPack capsule."""

from __future__ import annotations

from os import PathLike
from typing import Any

import numpy as np

from virtualgpu.cp._core.host_access import HostAccess
from virtualgpu.cp.cuda._memory.addresses import is_managed, move_to_host
from virtualgpu.cp.cuda.stream import _BaseStream, get_current_stream

# Device types of the DLPack standard.
DLPACK_CPU = 1
DLPACK_CUDA = 2
DLPACK_MANAGED = 13


class _SharedArray:
    """A wrapper of managed memory that NumPy can read and that keeps the owning array alive."""

    def __init__(self, owner: HostAccess) -> None:
        self._owner = owner
        self.__array_interface__ = owner._host.__array_interface__


class ExportMethods(HostAccess):
    """Base class of `ndarray` with the methods that write files or pass the array to other libraries."""

    __slots__ = ()

    def tofile(self, fid: Any, sep: str = "", format: str = "%s") -> None:
        """Write the elements of the array to a file, like `numpy.ndarray.tofile`."""
        self.get().tofile(fid, sep, format)

    def dump(self, file: str | PathLike[str]) -> None:
        """Write a pickle of the array to a file."""
        self.get().dump(file)

    def dumps(self) -> bytes:
        """Return a pickle of the array."""
        return self.get().dumps()

    def __bytes__(self) -> bytes:
        return bytes(self.get())

    def __dlpack_device__(self) -> tuple[int, int]:
        is_managed_memory = self._host.size > 0 and is_managed(self._host.ctypes.data)
        return DLPACK_MANAGED if is_managed_memory else DLPACK_CUDA, self._mem.device_id

    def __dlpack__(
        self,
        *,
        stream: int | None = None,
        max_version: tuple[int, int] | None = None,
        dl_device: tuple[int, int] | None = None,
        copy: bool | None = None,
    ) -> Any:
        """Return a DLPack capsule of the array.

        Managed memory is shared. Any other array must be copied to the host (`dl_device`).

        Parameters
        ----------
        stream
            Stream in which the other library will use it: None, 0 or 1 for the legacy default stream, 2 for
            the thread's own, a stream's handle, or -1 for "do not order". That stream waits for the current
            one.
        dl_device
            ``(1, 0)`` requests host memory. Managed memory is in host memory already; other arrays are
            copied.

        Raises
        ------
        BufferError
            For any other request: no other library can access the memory of a virtual GPU.
        """
        if self.__dlpack_device__()[0] == DLPACK_MANAGED and not copy:
            current_stream = get_current_stream(self._mem.owner.id)
            if dl_device is not None and stream is None:
                current_stream.synchronize()
            elif stream != -1:
                _BaseStream(stream or 1, -1).wait_event(current_stream.record())
            move_to_host(self._host.ctypes.data, self._host.nbytes)
            shared_view: Any = np.asarray(_SharedArray(self))
            return (
                shared_view.__dlpack__()
                if max_version is None
                else shared_view.__dlpack__(max_version=max_version)
            )
        if dl_device != (DLPACK_CPU, 0):
            raise BufferError(
                "Other libraries cannot use the memory of a virtual GPU. Pass x.get() to "
                "them, or ask for a copy in host memory: np.from_dlpack(x, device='cpu')."
            )
        if copy is False:
            raise ValueError("GPU memory cannot be exported to CPU without copy.")
        if max_version is None:
            return self.get().__dlpack__()
        return self.get().__dlpack__(max_version=max_version)

    def toDlpack(self) -> Any:  # noqa: N802 - CuPy's name
        """Return a DLPack capsule of the array. The array must be in managed memory."""
        return self.__dlpack__()
