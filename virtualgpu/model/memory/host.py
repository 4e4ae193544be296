"""What the host computer can still hold.

Array contents live in host memory. An array that would not fit must end in an exception, since the
operating system would otherwise kill the whole Jupyter kernel.
"""

from __future__ import annotations

from pathlib import Path

# Below this size nobody looks: reading /proc takes longer than the copy.
_CHECKED_BYTES = 256 << 20
_MARGIN_BYTES = 256 << 20


def _available_bytes() -> int | None:
    """Free host memory, within this process's cgroup where there is one; None if unknown."""
    try:
        lines = Path("/proc/meminfo").read_text(encoding="ascii").splitlines()
        free = next(int(line.split()[1]) * 1024 for line in lines if line.startswith("MemAvailable:"))
    except (OSError, StopIteration, ValueError):
        return None
    group = Path("/sys/fs/cgroup")
    try:
        limit = int((group / "memory.max").read_text(encoding="ascii"))
        free = min(free, limit - int((group / "memory.current").read_text(encoding="ascii")))
    except (OSError, ValueError):
        pass  # no cgroup v2, or no limit ("max")
    return free


def check_host_memory(size_bytes: int) -> None:
    """Make sure that the host can hold `size_bytes` more.

    Raises
    ------
    MemoryError
        If it cannot. The virtual device may well have the room: say so and what to do.
    """
    if size_bytes < _CHECKED_BYTES:
        return
    free = _available_bytes()
    if free is not None and size_bytes + _MARGIN_BYTES > free:
        raise MemoryError(
            f"This computer has {free / 2**30:.1f} GiB free, too little for the {size_bytes / 2**30:.1f} GiB "
            "of contents of this array: the virtual GPU keeps contents in host memory. Use a smaller array; "
            "cp.empty and cp.zeros cost no host memory until something writes to them."
        )
