"""An array for others: bytes, files and DLPack capsules."""

from __future__ import annotations

from os import PathLike
from typing import Any

from virtualgpu.cp._core.host_access import HostAccess

# Device types of the DLPack standard.
DLPACK_CPU, DLPACK_CUDA = 1, 2


class Exports(HostAccess):
    """The part of an array that other libraries and files are given."""

    __slots__ = ()

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
