"""Numbers and sizes as people write them, one way in every view."""

from __future__ import annotations

from virtualgpu.records import Dim3


def number(value: float, digits: int = 3) -> str:
    """`value` with `digits` significant digits and commas at thousands: ``1,234``, ``19.5``, ``0.125``."""
    if value == 0:
        return "0"
    if abs(value) >= 10 ** (digits - 1) or float(value).is_integer():
        return f"{value:,.0f}"
    return f"{value:.{digits}g}"


def count(value: int, noun: str, plural: str = "") -> str:
    """``1 block``, ``2 blocks``; a plural that is not the noun with an s is given."""
    return f"{number(value)} {noun if value == 1 else plural or f'{noun}s'}"


def percent(fraction: float) -> str:
    """``0.5`` as ``50 %``; what is above 0 never reads as 0, what is below 1 never as 100."""
    share = 100 * fraction
    if 99.5 <= share < 100:
        return f"{min(share, 99.9):.1f} %"
    return f"{share:.0f} %" if share == 0 or share >= 1 else f"{share:.1g} %"


def size(size_bytes: float) -> str:
    """A byte count in binary units: ``227 KiB``, ``79.2 GiB``."""
    for unit, scale in (("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10)):
        if size_bytes >= scale:
            return f"{number(size_bytes / scale)} {unit}"
    return f"{number(size_bytes)} B"


def time_unit(time_ns: float) -> tuple[str, float]:
    """The unit that suits a time, and its nanoseconds."""
    return next((u for u in (("s", 1e9), ("ms", 1e6), ("µs", 1e3)) if time_ns >= u[1]), ("ns", 1.0))


def duration(time_ns: float) -> str:
    """A time in the unit that suits it: ``640 ns``, ``12.3 µs``, ``4.1 ms``."""
    unit, scale = time_unit(time_ns)
    return f"{number(time_ns / scale)} {unit}"


def shape(dim: Dim3) -> str:
    """``(256, 1, 1)`` as ``256``, ``(16, 16, 1)`` as ``16 × 16``: trailing ones say nothing."""
    parts = list(dim)
    while len(parts) > 1 and parts[-1] == 1:
        parts.pop()
    return " × ".join(number(p) for p in parts)


def product(dim: Dim3) -> int:
    return dim[0] * dim[1] * dim[2]


def listing(words: tuple[str, ...] | list[str]) -> str:
    """``a``, ``a and b``, ``a, b and c``."""
    if len(words) < 2:
        return "".join(words)
    return f"{', '.join(words[:-1])} and {words[-1]}"
