"""What the host computer can still hold.

Array contents live in host memory. An array that would not fit must end in an exception, since the
operating system would otherwise kill the whole Jupyter kernel.
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

# Below this size nobody looks: asking takes longer than the copy.
_CHECKED_BYTES = 256 << 20
_MARGIN_BYTES = 256 << 20
_SELF = Path("/proc/self/cgroup")
_GROUPS = Path("/sys/fs/cgroup")
# Of versions 2 and 1: limit, use, and the part of it that is file cache and makes room when needed.
_FILES = (
    ("memory.max", "memory.current", "inactive_file"),
    ("memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file"),
)


def _available_bytes() -> int:
    """Free host memory, within this process's control groups where there are such."""
    return int(min(psutil.virtual_memory().available, *_left_in_groups(), 1 << 62))


def _left_in_groups() -> Iterator[int]:
    """What each memory limit on this process leaves: containers', batch systems', JupyterHub's (Linux)."""
    try:
        lines = _SELF.read_text(encoding="utf-8").splitlines()
    except OSError:
        return
    for line in lines:
        _, controllers, path = line.split(":", 2)
        if controllers and "memory" not in controllers.split(","):
            continue
        root = _GROUPS / "memory" if controllers else _GROUPS
        limit, use, cache = _FILES[bool(controllers)]
        group = PurePosixPath(path)
        for place in (group, *group.parents):  # a limit holds for all groups within
            folder = root / place.relative_to("/")
            with contextlib.suppress(OSError, ValueError, KeyError):  # none here, or no limit ("max")
                facts = dict(line.split() for line in (folder / "memory.stat").read_text().splitlines())
                limit_bytes, used_bytes = (int((folder / name).read_text()) for name in (limit, use))
                yield limit_bytes - used_bytes + int(facts[cache])


def host_view(address: int, size_bytes: int) -> npt.NDArray[np.uint8]:
    """The bytes at a host address, which somebody else keeps alive."""
    return np.ctypeslib.as_array((ctypes.c_uint8 * size_bytes).from_address(address))


def is_nearly_full() -> bool:
    """Whether so little host memory is left that the operating system may soon end processes."""
    return _available_bytes() < _MARGIN_BYTES


def check_host_memory(size_bytes: int, what: str = "") -> None:
    """Make sure that the host can hold `size_bytes` more: of an array's contents, or of `what`.

    Raises
    ------
    OutOfMemoryError
        If it cannot. The virtual device may well have the room: say so and what to do.
    """
    if size_bytes < _CHECKED_BYTES:
        return
    free = _available_bytes()
    if size_bytes + _MARGIN_BYTES > free:
        what = what or (
            "of contents of this array: the virtual GPU keeps contents in host memory. Use a smaller array; "
            "cp.empty and cp.zeros cost no host memory until something writes to them"
        )
        raise out_of_host_memory(
            f"{free / 2**30:.1f} GiB free, too little for the {size_bytes / 2**30:,.1f} GiB {what}.",
            size_bytes,
        )


def out_of_host_memory(why: str, size_bytes: int = 0) -> OutOfMemoryError:
    """The error for a computer, not a device, that has too little memory."""
    return OutOfMemoryError(size_bytes, 0, why=f"This computer has {why}")
