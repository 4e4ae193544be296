"""Rounding of sizes, and conversion of limits, in CuPy's memory pools."""

from __future__ import annotations

ALLOCATION_UNIT_BYTES = 512
_SIZE_LIMIT = 1 << 64  # CuPy computes in 64 bits, so that sizes close to this become small ones


def round_size(size: int) -> int:
    """Return `size` rounded up to a multiple of 512 bytes, the allocation unit of memory pools."""
    return -(-size // ALLOCATION_UNIT_BYTES) * ALLOCATION_UNIT_BYTES % _SIZE_LIMIT


def round_pinned_size(size: int) -> int:
    """Return `size` rounded up to the next power of two, with a minimum of 512 bytes. All buffers in the
    pinned memory pool have such sizes.
    """
    return max(ALLOCATION_UNIT_BYTES, 1 << (size - 1).bit_length()) % _SIZE_LIMIT


def compute_limit_bytes(size: int | None, fraction: float | None, capacity_bytes: int) -> int:
    """Return the limit of a memory pool in bytes. The limit is given in bytes or as a fraction of the memory,
    and 0 means no limit.

    Raises
    ------
    ValueError
        For both at a time, a negative size, or a fraction outside 0 to 1.
    """
    if size is None:
        if fraction is not None and not 0 <= fraction <= 1:
            raise ValueError(f"memory limit fraction out of range: {fraction}")
        size = int((fraction or 0) * capacity_bytes)
    elif fraction is not None:
        raise ValueError("size and fraction cannot be specified at one time")
    if size < 0:
        raise ValueError(f"memory limit size out of range: {size}")
    return int(size)
