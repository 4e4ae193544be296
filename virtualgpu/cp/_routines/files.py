"""Load and save device arrays in NumPy's file formats, with a copy to or from the host."""

from __future__ import annotations

from typing import Any

import numpy as np

from virtualgpu.cp._core.array import ndarray
from virtualgpu.cp._routines.creation import array, asnumpy
from virtualgpu.cp._routines.from_numpy import lift_to_device

__all__ = [
    *("fromfile", "fromiter", "fromstring", "genfromtxt", "load", "loadtxt"),
    *("save", "savetxt", "savez", "savez_compressed"),
]


class NpzFile:
    """An open ``.npz`` file that loads its arrays as device arrays."""

    def __init__(self, npz: Any) -> None:
        self.npz_file = npz

    def __enter__(self) -> NpzFile:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __getitem__(self, key: str) -> ndarray:
        return array(self.npz_file[key])

    def __contains__(self, key: str) -> bool:
        return key in self.npz_file

    def __iter__(self) -> Any:
        return iter(self.npz_file.files)

    def __len__(self) -> int:
        return len(self.npz_file.files)

    @property
    def files(self) -> list[str]:
        """Names of the arrays in the file."""
        return list(self.npz_file.files)

    def close(self) -> None:
        """Close the file."""
        self.npz_file.close()


def load(file: Any, mmap_mode: Any = None, allow_pickle: bool = False) -> Any:
    """Load a ``.npy`` file onto the device, or open a ``.npz`` file of device arrays."""
    file_contents = np.load(file, mmap_mode=mmap_mode, allow_pickle=allow_pickle)
    return array(file_contents) if isinstance(file_contents, np.ndarray) else NpzFile(file_contents)


def save(file: Any, arr: Any, allow_pickle: bool = True) -> None:
    """Save an array to a ``.npy`` file."""
    np.save(file, asnumpy(arr), allow_pickle=allow_pickle)


# Functions that NumPy runs on the host, with a device array as result.
fromfile = lift_to_device(np.fromfile, operand_count=0)
fromstring = lift_to_device(np.fromstring, operand_count=0)
fromiter = lift_to_device(np.fromiter, operand_count=0)
loadtxt = lift_to_device(np.loadtxt, operand_count=0)
genfromtxt = lift_to_device(np.genfromtxt, operand_count=0)


def savetxt(fname: Any, X: Any, *args: Any, **kwargs: Any) -> None:  # noqa: N803 - NumPy's name
    """Save an array to a text file, like ``numpy.savetxt``."""
    np.savetxt(fname, asnumpy(X), *args, **kwargs)


def _host_copies(arrays: dict[str, Any]) -> dict[str, Any]:
    return {name: asnumpy(a) for name, a in arrays.items()}


def savez(file: Any, *args: Any, **kwds: Any) -> None:
    """Save several arrays to one uncompressed ``.npz`` file."""
    np.savez(file, *(asnumpy(a) for a in args), **_host_copies(kwds))


def savez_compressed(file: Any, *args: Any, **kwds: Any) -> None:
    """Save several arrays to one compressed ``.npz`` file."""
    np.savez_compressed(file, *(asnumpy(a) for a in args), **_host_copies(kwds))
