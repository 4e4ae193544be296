"""Free memory of the host computer, and errors if it is too small.

Array contents are stored in host memory. An array that does not fit must raise an exception, because the
operating system would otherwise end the whole Jupyter kernel.
"""

from __future__ import annotations

import contextlib
import ctypes
from collections.abc import Iterator
from pathlib import Path, PurePosixPath

import numpy as np
import numpy.typing as npt
import psutil

from virtualgpu.cuda_errors import OutOfMemoryError

# Smaller sizes are not checked, because the check would take longer than the copy.
_MIN_CHECKED_BYTES = 256 << 20
_MARGIN_BYTES = 256 << 20
_GROUP_FILE = Path("/proc/self/cgroup")
_GROUP_ROOT = Path("/sys/fs/cgroup")
# Files of versions 2 and 1: limit, use, and the name of the file cache in it, which is freed when needed.
_GROUP_FILE_NAMES = (
    ("memory.max", "memory.current", "inactive_file"),
    ("memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file"),
)


def _read_available_bytes() -> int:
    """Return the free host memory in bytes, within the limits of this process's control groups."""
    return int(min(psutil.virtual_memory().available, *_read_remaining_group_bytes(), 1 << 62))


def _read_remaining_group_bytes() -> Iterator[int]:
    """Yield for each memory limit of this process (container, batch system) the bytes that are left."""
    try:
        group_lines = _GROUP_FILE.read_text(encoding="utf-8").splitlines()
    except OSError:
        return
    for group_line in group_lines:
        _, controllers, path = group_line.split(":", 2)
        if controllers and "memory" not in controllers.split(","):
            continue
        groups_folder = _GROUP_ROOT / "memory" if controllers else _GROUP_ROOT
        limit_file, use_file, cache_key = _GROUP_FILE_NAMES[bool(controllers)]
        control_group = PurePosixPath(path)
        for ancestor in (control_group, *control_group.parents):  # a limit applies to all groups within
            folder = groups_folder / ancestor.relative_to("/")
            with contextlib.suppress(OSError, ValueError, KeyError):  # no file, or no limit ("max")
                memory_statistics = dict(
                    group_line.split() for group_line in (folder / "memory.stat").read_text().splitlines()
                )
                limit_bytes = int((folder / limit_file).read_text())
                used_bytes = int((folder / use_file).read_text())
                yield limit_bytes - used_bytes + int(memory_statistics[cache_key])


def view_host_memory(address: int, size_bytes: int) -> npt.NDArray[np.uint8]:
    """Return the bytes at a host address as an array. The caller must keep the memory alive."""
    return np.ctypeslib.as_array((ctypes.c_uint8 * size_bytes).from_address(address))


def is_nearly_full() -> bool:
    """Return whether the host has so little free memory that the operating system may soon stop processes."""
    return _read_available_bytes() < _MARGIN_BYTES


def check_host_memory(size_bytes: int, purpose: str = "") -> None:
    """Raise an error if the host does not have enough free memory for an array or for the given purpose.

    Raises
    ------
    OutOfMemoryError
        If it cannot, although the virtual device may have enough memory; the message contains a remedy.
    """
    if size_bytes < _MIN_CHECKED_BYTES:
        return
    free_bytes = _read_available_bytes()
    if size_bytes + _MARGIN_BYTES > free_bytes:
        purpose = purpose or (
            "of this array: the virtual GPU stores the contents of arrays in host memory. Use a smaller "
            "array. Arrays of cp.empty and cp.zeros use host memory only after they are written"
        )
        raise make_out_of_memory_error(
            f"{free_bytes / 2**30:.1f} GiB of free memory, which is too little for the "
            f"{size_bytes / 2**30:,.1f} GiB {purpose}.",
            size_bytes,
        )


def make_out_of_memory_error(reason: str, size_bytes: int = 0) -> OutOfMemoryError:
    """Return the error to raise if the host has too little memory."""
    return OutOfMemoryError(size_bytes, 0, message=f"This computer has {reason}")
