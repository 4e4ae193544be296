"""Figures of notebook 04: a write into a neighbouring array, and memory that is freed too early."""

from __future__ import annotations

import html
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from matplotlib.patches import Rectangle

from gpulab import session
from gpulab.views import WarpStepper
from gpulab.views.parts.palette import find_hex
from gpulab_course.teach.drawing import draw_arrow, draw_box, draw_text, make_empty_axes
from gpulab_course.teach.picture import Picture
from virtualgpu.errors import WatchError
from virtualgpu.records.faults.history import Write


@contextmanager
def on_virtual() -> Iterator[Any]:
    """Use a virtual device in a `with` block, even if there is a real GPU, and yield its array module."""
    if session.real_cp() is None:
        yield session.cp()
        return
    with session.on_device("virtual") as cp:
        yield cp


def by_name(step: Callable[[str], WarpStepper], name: str, value: str) -> WarpStepper:
    """Return a stepper that shows the values of a variable in a warp. Without NVRTC, the stepper shows the
    expression that is assigned to the variable.
    """
    try:
        return step(name)
    except WatchError:
        return step(f"({value})")


# The neighbour's bytes

_PICTURE_WIDTH_PX = 640
_ARRAY_HEIGHT_PX = 46


class Stray:
    """A picture of arrays in memory, with an arrow to the bytes that a thread wrote outside of its array."""

    def __init__(self, arrays: dict[str, Any], write: Write, target_name: str, element_index: int) -> None:
        assert write.place is not None
        self._arrays = arrays
        self._write = write
        self._target_name = target_name
        self._element_index = element_index
        self._start_address = min(array.data.ptr for array in arrays.values())
        self._end_address = max(array.data.ptr + array.nbytes for array in arrays.values())

    def describe(self) -> str:
        """Return a sentence that describes the picture."""
        return (
            f"{self._thread_text} uses {self._target_name}[{self._element_index}] and writes "
            f"{self._written_array_name}[{self._written_index}], which is at this address."
        )

    @property
    def _thread_text(self) -> str:
        place = self._write.place
        assert place is not None
        return f"{self._write.name}, block {place.block}, thread {place.thread}, line {place.line},"

    @property
    def _written_array_name(self) -> str:
        return next(name for name, array in self._arrays.items() if self._has_address(array))

    @property
    def _written_index(self) -> int:
        array = self._arrays[self._written_array_name]
        return (self._written_address - int(array.data.ptr)) // int(array.itemsize)

    @property
    def _written_address(self) -> int:
        target_array = self._arrays[self._target_name]
        return int(target_array.data.ptr) + self._element_index * int(target_array.itemsize)

    def _has_address(self, array: Any) -> bool:
        return int(array.data.ptr) <= self._written_address < int(array.data.ptr) + int(array.nbytes)

    def __repr__(self) -> str:
        return self.describe()

    def _repr_html_(self) -> str:
        px_per_byte = (_PICTURE_WIDTH_PX - 20) / (self._end_address - self._start_address)
        svg_elements = []
        for name, array in self._arrays.items():
            array_x = 10 + (array.data.ptr - self._start_address) * px_per_byte
            width = array.nbytes * px_per_byte
            label = html.escape(f"{name} ({array.size:,} × {array.itemsize} B)")
            svg_elements.append(
                f'<rect x="{array_x:.1f}" y="60" width="{width:.1f}" height="{_ARRAY_HEIGHT_PX}" fill="none" '
                f'stroke="currentColor"/><text x="{array_x + 6:.1f}" y="{60 + _ARRAY_HEIGHT_PX / 2 + 4}" '
                f'font-size="12" fill="currentColor">{label}</text>'
            )
        arrow_x = 10 + (self._written_address - self._start_address) * px_per_byte
        arrow_start_x = _PICTURE_WIDTH_PX / 2 - 60
        svg_elements.append(
            f'<text x="10" y="18" font-size="12" fill="currentColor">{html.escape(self._thread_text)}</text>'
            f'<text x="10" y="34" font-size="12" fill="currentColor">'
            f"uses {self._target_name}[{self._element_index:,}], "
            f"writes {self._written_array_name}[{self._written_index}]</text>"
            f'<path d="M{arrow_start_x:.1f} 38 L{arrow_x:.1f} 58" '
            'stroke="#d55e00" stroke-width="2" fill="none"/>'
            f'<path d="M{arrow_x - 5:.1f} 50 L{arrow_x + 2:.1f} 60 L{arrow_x - 11:.1f} 58 Z" fill="#d55e00"/>'
            f'<rect x="{arrow_x:.1f}" y="60" width="4" height="{_ARRAY_HEIGHT_PX}" fill="#d55e00"/>'
        )
        return (
            f'<svg role="img" aria-label="{html.escape(self.describe())}" '
            f'viewBox="0 0 {_PICTURE_WIDTH_PX} 116" '
            f'width="{_PICTURE_WIDTH_PX}">{"".join(svg_elements)}</svg>'
        )


# Memory that is freed too early

_OPERATION_DURATIONS = {"double": 2.0, "add": 4.0, "z": 2.2, "multiply": 2.0}
_OPERATION_TEXTS = {
    "double": "doubled = x * 2",
    "add": "y = doubled + 1",
    "z": "z = x - 3",
    "multiply": "y * z",
}
_EVENT_GAP = 0.7  # between the end of an operation and the start of one that waits for its event


def reuse(host_order: Sequence[str]) -> Picture:
    """Draw the work of two streams over time, which shows whether the array `z` reuses the memory of
    `doubled` too early.

    Parameters
    ----------
    host_order
        What the host does, in order: "double", "add" (in the other stream, which waits for "double"), "del",
        "z", "wait" (for the other stream) and "multiply".
    """
    start_times, memory_free_at = _schedule_operations(host_order)
    end_times = {name: start + _OPERATION_DURATIONS[name] for name, start in start_times.items()}
    is_memory_reused = host_order.index("del") < host_order.index("z")
    is_reused_too_early = is_memory_reused and start_times["z"] < end_times["add"]
    last_end_time = max(end_times.values())
    figure, axes = make_empty_axes(3.0, (-2.3, last_end_time + 0.2), (-0.1, 5.5))
    for y, text in ((0.9, "stream here"), (2.4, "stream side"), (3.9, "the memory")):
        draw_text(axes, -2.3, y, text)
    draw_text(axes, last_end_time, 0.15, "time →", "muted", ha="right", fontsize=9)

    def draw_bar(left: float, top: float, width: float, colour: str, text: str = "") -> None:
        draw_box(axes, left, top, width, 0.8, colour, text, edge_colour="bg", fontsize=9)

    for name, start in start_times.items():
        y = 2.0 if name == "add" else 0.5
        draw_bar(
            start,
            y,
            _OPERATION_DURATIONS[name],
            "warn" if name == "add" else "accent",
            _OPERATION_TEXTS[name],
        )
    draw_arrow(axes, (end_times["double"], 1.3), (start_times["add"], 2.0))
    if "wait" in host_order:
        draw_arrow(axes, (end_times["add"], 2.0), (start_times["multiply"], 1.3))
    draw_bar(
        start_times["double"], 3.5, memory_free_at - start_times["double"], "accent-2", "contains doubled"
    )
    draw_text(axes, memory_free_at, 4.55, "del doubled", ha="center", fontsize=9)
    if is_memory_reused:
        draw_bar(start_times["z"], 3.5, last_end_time - start_times["z"], "purple")
        text_start = max(start_times["z"], end_times["add"])
        x = (text_start + last_end_time) / 2
        draw_text(axes, x, 3.9, "contains z", "on-purple", ha="center", fontsize=9)
    if is_reused_too_early:
        box = Rectangle(
            (start_times["z"], 1.9), end_times["add"] - start_times["z"], 2.5, fill=False, linewidth=1.8
        )
        box.set_edgecolor(find_hex("error"))
        axes.add_patch(box)
        text = "side may still read doubled, but the memory already contains z"
        draw_text(axes, last_end_time, 5.1, text, "error", ha="right")
    return Picture.of(
        figure,
        "Two streams in one possible order: here computes doubled, then side computes y = doubled + 1. "
        + (
            "The memory of doubled is freed, and here writes z into it while side may still read doubled."
            if is_reused_too_early
            else "z gets no memory that side may still read."
        ),
    )


def _schedule_operations(host_order: Sequence[str]) -> tuple[dict[str, float], float]:
    """Return the start of each operation in one valid order, and the time when `doubled` is freed."""
    start_times: dict[str, float] = {}
    stream_free_at = 0.0
    memory_free_at = 0.0
    for name in host_order:
        if name == "add":
            start_times[name] = start_times["double"] + _OPERATION_DURATIONS["double"] + _EVENT_GAP
        elif name == "wait":
            stream_free_at = max(
                stream_free_at, start_times["add"] + _OPERATION_DURATIONS["add"] + _EVENT_GAP
            )
        elif name == "del":
            memory_free_at = stream_free_at + 0.6
        else:
            start_times[name] = max(
                stream_free_at, memory_free_at + 0.7 if name == "z" and memory_free_at else 0.0
            )
            stream_free_at = start_times[name] + _OPERATION_DURATIONS[name]
    return start_times, memory_free_at
