"""Figures of notebook 04 in addition to the views of gpulab: a write into a neighbouring array."""

from __future__ import annotations

import html
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from gpulab import session
from gpulab.views import WarpStepper
from virtualgpu.errors import WatchError
from virtualgpu.records.faults.history import Write


@contextmanager
def on_virtual() -> Iterator[Any]:
    """Use the virtual device in use, or a virtual device in place of a real one; yields its array module."""
    if session.real_cp() is None:
        yield session.cp()
        return
    with session.on_device("virtual") as cp:
        yield cp


def by_name(step: Callable[[str], WarpStepper], name: str, value: str) -> WarpStepper:
    """Step through a variable or through the expression of its value if names are unknown, without NVRTC."""
    try:
        return step(name)
    except WatchError:
        return step(f"({value})")


# The neighbour's bytes

_WIDTH = 640
_ROW = 46


class Stray:
    """A picture of arrays in memory, with an arrow from the thread to the bytes that it wrote."""

    def __init__(self, arrays: dict[str, Any], write: Write, meant: str, element: int) -> None:
        assert write.place is not None
        self._arrays = arrays
        self._write = write
        self._meant = meant
        self._element = element
        self._start = min(array.data.ptr for array in arrays.values())
        self._end = max(array.data.ptr + array.nbytes for array in arrays.values())

    def describe(self) -> str:
        """The picture in words."""
        return (
            f"{self._who} means {self._meant} and writes {self._hit}[{self._index}], its neighbour in memory."
        )

    @property
    def _who(self) -> str:
        place = self._write.place
        assert place is not None
        return f"{self._write.name}, block {place.block}, thread {place.thread}, line {place.line},"

    @property
    def _hit(self) -> str:
        return next(name for name, array in self._arrays.items() if self._holds(array))

    @property
    def _index(self) -> int:
        array = self._arrays[self._hit]
        return (self._address - int(array.data.ptr)) // int(array.itemsize)

    @property
    def _address(self) -> int:
        meant = self._arrays[self._meant]
        return int(meant.data.ptr) + self._element * int(meant.itemsize)

    def _holds(self, array: Any) -> bool:
        return int(array.data.ptr) <= self._address < int(array.data.ptr) + int(array.nbytes)

    def __repr__(self) -> str:
        return self.describe()

    def _repr_html_(self) -> str:
        scale = (_WIDTH - 20) / (self._end - self._start)
        pieces = []
        for name, array in self._arrays.items():
            left = 10 + (array.data.ptr - self._start) * scale
            wide = array.nbytes * scale
            label = html.escape(f"{name} ({array.size:,} × {array.itemsize} B)")
            pieces.append(
                f'<rect x="{left:.1f}" y="60" width="{wide:.1f}" height="{_ROW}" fill="none" '
                f'stroke="currentColor"/><text x="{left + 6:.1f}" y="{60 + _ROW / 2 + 4}" font-size="12" '
                f'fill="currentColor">{label}</text>'
            )
        at = 10 + (self._address - self._start) * scale
        begin = _WIDTH / 2 - 60
        pieces.append(
            f'<text x="10" y="18" font-size="12" fill="currentColor">{html.escape(self._who)}</text>'
            f'<text x="10" y="34" font-size="12" fill="currentColor">'
            f"means {self._meant}[{self._element:,}], hits {self._hit}[{self._index}]</text>"
            f'<path d="M{begin:.1f} 38 L{at:.1f} 58" stroke="#d55e00" stroke-width="2" fill="none"/>'
            f'<path d="M{at - 5:.1f} 50 L{at + 2:.1f} 60 L{at - 11:.1f} 58 Z" fill="#d55e00"/>'
            f'<rect x="{at:.1f}" y="60" width="4" height="{_ROW}" fill="#d55e00"/>'
        )
        return (
            f'<svg role="img" aria-label="{html.escape(self.describe())}" viewBox="0 0 {_WIDTH} 116" '
            f'width="{_WIDTH}">{"".join(pieces)}</svg>'
        )
