"""The address range of the host that contains a virtual device's memory.

Device pointers are host addresses inside one arena, so the engine reads and writes them without
translation. The arena is reserved, not used: the operating system backs a page with memory only
when something writes to it, which lets an 80 GB device fit on a laptop.
"""

from __future__ import annotations

import ctypes
import sys
import weakref
from typing import Any

import numpy as np
import numpy.typing as npt

# First address tried, and the distance to the next try, so that runs show the same pointers.
_HINT_ADDRESS = 0x7000_0000_0000
_HINT_STRIDE = 0x0080_0000_0000
_MAX_HINT_TRIES = 32

_PROT_READ_WRITE = 0x1 | 0x2
_MAP_PRIVATE = 0x02
_MAP_FLAGS = {
    # MAP_ANONYMOUS | MAP_NORESERVE of each system's <sys/mman.h>
    "linux": _MAP_PRIVATE | 0x20 | 0x4000,
    "darwin": _MAP_PRIVATE | 0x1000 | 0x0040,
}
_MADV_DONTNEED = 4

_PAGE_BYTES = 1 << 16  # a multiple of every page size in use (4, 16 and 64 KiB)
_ALIGNMENT = 1 << 21
_MIN_DISCARD_BYTES = 8 << 20  # for fewer bytes, writing zeros is faster than new pages
_MIN_ARENA_BYTES = 64 << 20
_PLAIN_BUFFER_BYTES = 2 << 30


class _Mapping:
    """A reserved address range that is unmapped when the last NumPy view of it is deleted."""

    def __init__(self, libc: Any, address: int, size_bytes: int) -> None:
        self.address = address
        self.size_bytes = size_bytes
        weakref.finalize(self, libc.munmap, address, size_bytes).atexit = False

    @property
    def __array_interface__(self) -> dict[str, Any]:
        return {"shape": (self.size_bytes,), "typestr": "|u1", "data": (self.address, False), "version": 3}


def _load_libc() -> Any:
    libc = ctypes.CDLL(None, use_errno=True)
    libc.mmap.restype = ctypes.c_void_p
    libc.mmap.argtypes = [
        ctypes.c_void_p,
        ctypes.c_size_t,
        ctypes.c_int,
        ctypes.c_int,
        ctypes.c_int,
        ctypes.c_long,
    ]
    libc.munmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t]
    libc.madvise.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int]
    return libc


def _map_memory(libc: Any, size_bytes: int) -> _Mapping | None:
    """Reserve `size_bytes` at the first free preferred address, or anywhere; return None if that fails."""
    flags = _MAP_FLAGS[sys.platform]
    failure_address = ctypes.c_void_p(-1).value
    for attempt in range(_MAX_HINT_TRIES + 1):
        hint = _HINT_ADDRESS + attempt * _HINT_STRIDE if attempt < _MAX_HINT_TRIES else None
        address = libc.mmap(hint, size_bytes, _PROT_READ_WRITE, flags, -1, 0)
        if address is None or address == failure_address:
            return None
        if hint is None or address == hint:
            return _Mapping(libc, address, size_bytes)
        libc.munmap(address, size_bytes)
    return None


class Arena:
    """A reserved address range that is initially zero. Only pages that have been written use memory of the
    host.

    Parameters
    ----------
    size_bytes : int
        Requested size. `size_bytes` of the result may be smaller if the system refuses that much
        address space (strict overcommit, Windows).
    """

    def __init__(self, size_bytes: int) -> None:
        self._libc: Any = None
        mapping: _Mapping | None = None
        requested_bytes = -(-max(size_bytes, _ALIGNMENT) // _ALIGNMENT) * _ALIGNMENT
        if sys.platform in _MAP_FLAGS:
            self._libc = _load_libc()
            while mapping is None and requested_bytes >= _ALIGNMENT:
                mapping = _map_memory(self._libc, requested_bytes + _ALIGNMENT)
                if mapping is None:
                    if requested_bytes <= _MIN_ARENA_BYTES:
                        break
                    requested_bytes = max(requested_bytes // 2 // _ALIGNMENT * _ALIGNMENT, _MIN_ARENA_BYTES)
        buffer: npt.NDArray[np.uint8]
        if mapping is not None:
            buffer = np.asarray(mapping)
        else:
            requested_bytes = min(requested_bytes, _PLAIN_BUFFER_BYTES)
            buffer = np.zeros(requested_bytes + _ALIGNMENT, dtype=np.uint8)
        buffer_address = int(buffer.ctypes.data)
        alignment_bytes = -buffer_address % _ALIGNMENT
        self.address = buffer_address + alignment_bytes
        self.size_bytes = requested_bytes
        self.bytes: npt.NDArray[np.uint8] = buffer[alignment_bytes : alignment_bytes + requested_bytes]
        self._can_discard = mapping is not None and sys.platform == "linux"

    def view(self, address: int, size_bytes: int) -> npt.NDArray[np.uint8]:
        """Return a memory range as a NumPy array of bytes without copying it. The array keeps the arena
        alive.
        """
        offset = address - self.address
        return self.bytes[offset : offset + size_bytes]

    def zero(self, address: int, size_bytes: int) -> None:
        """Set a memory range to zero. Whole pages are returned to the host instead of being written."""
        first_page = -(-address // _PAGE_BYTES) * _PAGE_BYTES
        last_page = (address + size_bytes) // _PAGE_BYTES * _PAGE_BYTES
        if not self._can_discard or last_page - first_page < _MIN_DISCARD_BYTES:
            self.view(address, size_bytes)[:] = 0
            return
        self.view(address, first_page - address)[:] = 0
        self.view(last_page, address + size_bytes - last_page)[:] = 0
        if self._libc.madvise(first_page, last_page - first_page, _MADV_DONTNEED) != 0:
            self.view(first_page, last_page - first_page)[:] = 0

    def discard(self, address: int, size_bytes: int) -> None:
        """Return the pages of a range to the host, because their contents are no longer needed."""
        if self._can_discard:
            first_page = -(-address // _PAGE_BYTES) * _PAGE_BYTES
            last_page = (address + size_bytes) // _PAGE_BYTES * _PAGE_BYTES
            if last_page > first_page:
                self._libc.madvise(first_page, last_page - first_page, _MADV_DONTNEED)
