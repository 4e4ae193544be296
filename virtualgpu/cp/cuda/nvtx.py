"""``cp.cuda.nvtx``: profiler ranges and marks, recorded with times on the host's modelled clock."""

from __future__ import annotations

import threading

from virtualgpu.cp._missing_names import make_module_getattr
from virtualgpu.model import machine as _machine
from virtualgpu.model.recording.ranges import RangeLog
from virtualgpu.records.timeline import NvtxRange

__all__ = ["Mark", "MarkC", "RangeEnd", "RangePop", "RangePush", "RangePushC", "RangeStart", "available"]
__getattr__ = make_module_getattr("cp.cuda.nvtx", globals())

available = True

# CuPy's numbered colours, 0xAARRGGBB.
COLORS = (
    0xFF00FF00,
    0xFF007FFF,
    0xFF7F00FF,
    0xFFFF0000,
    0xFF7FFF00,
    0xFF00FF7F,
    0xFF0000FF,
    0xFFFF007F,
    0xFFFF7F00,
    0xFF7F7F7F,
)


def _get_range_log() -> RangeLog:
    machine = _machine.current()
    return machine.get_component(RangeLog, clock=machine.clock)


def _check_message(message: object) -> str:
    if not isinstance(message, str):
        raise AttributeError(f"{type(message).__name__!r} object has no attribute 'encode'")
    return message


def _check_color(color: int) -> int:
    if not 0 <= color <= 0xFFFF_FFFF:
        raise OverflowError(f"color {color} is not a 32-bit number. Write it as 0xAARRGGBB.")
    return color


def _find_color(id_color: int) -> int | None:
    return None if id_color < 0 else COLORS[id_color % len(COLORS)]


def ranges() -> tuple[NvtxRange, ...]:
    """Return the last 65,536 NVTX ranges and marks of the current machine, in the order of their end times.

    CuPy does not have this function.
    """
    return tuple(_get_range_log().ended_ranges)


def RangePush(message: str, id_color: int = -1) -> None:  # noqa: N802
    """Start an NVTX range that is nested in the open ranges of this thread. The number `id_color` selects one
    of ten colours.
    """
    _push_range(message, _find_color(id_color))


def RangePushC(message: str, color: int = 0) -> None:  # noqa: N802
    """Start an NVTX range that is nested in the open ranges of this thread. The number `color` has the form
    0xAARRGGBB.
    """
    _push_range(message, _check_color(color))


def _push_range(message: str, color: int | None) -> None:
    range_log = _get_range_log()
    range_log.range_stacks.setdefault(threading.get_ident(), []).append(
        range_log.begin_range(_check_message(message), color)
    )


def RangePop() -> None:  # noqa: N802
    """End the innermost open range of the thread. If no range is open, nothing happens."""
    range_log = _get_range_log()
    thread = threading.get_ident()
    if range_log.range_stacks.get(thread):
        range_log.end_range(range_log.range_stacks[thread].pop())
        if not range_log.range_stacks[thread]:
            del range_log.range_stacks[thread]


def Mark(message: str, id_color: int = -1) -> None:  # noqa: N802
    """Mark the current time on the timeline. The number `id_color` selects one of ten colours."""
    _add_mark(message, _find_color(id_color))


def MarkC(message: str, color: int = 0) -> None:  # noqa: N802
    """Mark the current time on the timeline. The number `color` has the form 0xAARRGGBB."""
    _add_mark(message, _check_color(color))


def _add_mark(message: str, color: int | None) -> None:
    range_log = _get_range_log()
    range_log.end_range(range_log.begin_range(_check_message(message), color), is_mark=True)


def RangeStart(message: str | None, color: int | None) -> int:  # noqa: N802
    """Start an NVTX range that any thread can end, and return the number to pass to `RangeEnd`."""
    range_log = _get_range_log()
    range_id = next(range_log.range_numbers)
    range_log.started_ranges[range_id] = range_log.begin_range(
        "" if message is None else _check_message(message), None if color is None else _check_color(color)
    )
    return range_id


def RangeEnd(range_id: int) -> None:  # noqa: N802
    """End an NVTX range that `RangeStart` started. An unknown number is ignored."""
    range_log = _get_range_log()
    open_range = range_log.started_ranges.pop(range_id, None)
    if open_range is not None:
        range_log.end_range(open_range)
