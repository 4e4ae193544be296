"""Figures of notebook 04 in addition to gpulab's views: a write into a neighbouring array."""

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
    """Use a virtual device, also in place of a real one, and yield its array module."""
    if session.real_cp() is None:
        yield session.cp()
        return
    with session.on_device("virtual") as cp:
        yield cp


def by_name(step: Callable[[str], WarpStepper], name: str, value: str) -> WarpStepper:
    """Step through a variable by its name, or by the expression of its value if names need NVRTC."""
    try:
        return step(name)
    except WatchError:
        return step(f"({value})")


# The neighbour's bytes

_WIDTH = 640
_ROW_HEIGHT = 46


class Stray:
    """A picture of arrays in memory, with an arrow from the thread to the bytes that it wrote."""

    def __init__(self, arrays: dict[str, Any], write: Write, target_name: str, element_index: int) -> None:
        assert write.place is not None
        self._arrays = arrays
        self._write = write
        self._target_name = target_name
        self._element_index = element_index
        self._start = min(array.data.ptr for array in arrays.values())
        self._end = max(array.data.ptr + array.nbytes for array in arrays.values())

    def describe(self) -> str:
        """Describe the picture in one sentence."""
        return (
            f"{self._thread_text} uses {self._target_name}[{self._element_index}] and writes "
            f"{self._hit_name}[{self._hit_index}], which has this address."
        )

    @property
    def _thread_text(self) -> str:
        place = self._write.place
        assert place is not None
        return f"{self._write.name}, block {place.block}, thread {place.thread}, line {place.line},"

    @property
    def _hit_name(self) -> str:
        return next(name for name, array in self._arrays.items() if self._contains_address(array))

    @property
    def _hit_index(self) -> int:
        array = self._arrays[self._hit_name]
        return (self._address - int(array.data.ptr)) // int(array.itemsize)

    @property
    def _address(self) -> int:
        target = self._arrays[self._target_name]
        return int(target.data.ptr) + self._element_index * int(target.itemsize)

    def _contains_address(self, array: Any) -> bool:
        return int(array.data.ptr) <= self._address < int(array.data.ptr) + int(array.nbytes)

    def __repr__(self) -> str:
        return self.describe()

    def _repr_html_(self) -> str:
        scale = (_WIDTH - 20) / (self._end - self._start)
        elements = []
        for name, array in self._arrays.items():
            left = 10 + (array.data.ptr - self._start) * scale
            width = array.nbytes * scale
            label = html.escape(f"{name} ({array.size:,} × {array.itemsize} B)")
            elements.append(
                f'<rect x="{left:.1f}" y="60" width="{width:.1f}" height="{_ROW_HEIGHT}" fill="none" '
                f'stroke="currentColor"/><text x="{left + 6:.1f}" y="{60 + _ROW_HEIGHT / 2 + 4}" '
                f'font-size="12" fill="currentColor">{label}</text>'
            )
        arrow_x = 10 + (self._address - self._start) * scale
        arrow_start_x = _WIDTH / 2 - 60
        elements.append(
            f'<text x="10" y="18" font-size="12" fill="currentColor">{html.escape(self._thread_text)}</text>'
            f'<text x="10" y="34" font-size="12" fill="currentColor">'
            f"uses {self._target_name}[{self._element_index:,}], "
            f"writes {self._hit_name}[{self._hit_index}]</text>"
            f'<path d="M{arrow_start_x:.1f} 38 L{arrow_x:.1f} 58" '
            'stroke="#d55e00" stroke-width="2" fill="none"/>'
            f'<path d="M{arrow_x - 5:.1f} 50 L{arrow_x + 2:.1f} 60 L{arrow_x - 11:.1f} 58 Z" fill="#d55e00"/>'
            f'<rect x="{arrow_x:.1f}" y="60" width="4" height="{_ROW_HEIGHT}" fill="#d55e00"/>'
        )
        return (
            f'<svg role="img" aria-label="{html.escape(self.describe())}" viewBox="0 0 {_WIDTH} 116" '
            f'width="{_WIDTH}">{"".join(elements)}</svg>'
        )
