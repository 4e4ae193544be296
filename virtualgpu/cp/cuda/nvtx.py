"""``cp.cuda.nvtx``: ranges and marks for a profiler, kept with their times on the host's modelled clock."""

from __future__ import annotations

import threading

from virtualgpu.cp._missing_names import module_getattr
from virtualgpu.model import machine as _machine
from virtualgpu.model.recording.ranges import RangeLog
from virtualgpu.records.timeline import NvtxRange

__all__ = ["Mark", "MarkC", "RangeEnd", "RangePop", "RangePush", "RangePushC", "RangeStart", "available"]
__getattr__ = module_getattr("cp.cuda.nvtx", globals())

available = True

# The colours by which CuPy numbers them, 0xAARRGGBB.
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


def _log() -> RangeLog:
    machine = _machine.current()
    return machine.own(RangeLog, clock=machine.clock)


def _text(message: object) -> str:
    if not isinstance(message, str):
        raise AttributeError(f"{type(message).__name__!r} object has no attribute 'encode'")
    return message


def _argb(color: int) -> int:
    if not 0 <= color <= 0xFFFF_FFFF:
        raise OverflowError(f"color {color}: give 0xAARRGGBB, a number of 32 bits")
    return color


def _numbered(id_color: int) -> int | None:
    return None if id_color < 0 else COLORS[id_color % len(COLORS)]


def ranges() -> tuple[NvtxRange, ...]:
    """Ended ranges and marks of the current machine, the last 65,536 of them, in the order of their ends.

    CuPy hands them to a profiler instead and has no such function.
    """
    return tuple(_log().ended)


def RangePush(message: str, id_color: int = -1) -> None:  # noqa: N802
    """Begin a range within those of the thread that are open; `id_color` picks one of ten colours."""
    _push(message, _numbered(id_color))


def RangePushC(message: str, color: int = 0) -> None:  # noqa: N802
    """Begin a range in a colour given as 0xAARRGGBB."""
    _push(message, _argb(color))


def _push(message: str, color: int | None) -> None:
    log = _log()
    log.stacks.setdefault(threading.get_ident(), []).append(log.open(_text(message), color))


def RangePop() -> None:  # noqa: N802
    """End the thread's innermost range; without one nothing happens."""
    log = _log()
    thread = threading.get_ident()
    if log.stacks.get(thread):
        log.end(log.stacks[thread].pop())
        if not log.stacks[thread]:
            del log.stacks[thread]


def Mark(message: str, id_color: int = -1) -> None:  # noqa: N802
    """Mark this moment; `id_color` picks one of ten colours."""
    _mark(message, _numbered(id_color))


def MarkC(message: str, color: int = 0) -> None:  # noqa: N802
    """Mark this moment in a colour given as 0xAARRGGBB."""
    _mark(message, _argb(color))


def _mark(message: str, color: int | None) -> None:
    log = _log()
    log.end(log.open(_text(message), color), is_mark=True)


def RangeStart(message: str | None, color: int | None) -> int:  # noqa: N802
    """Begin a range that any thread may end, in any order; returns the number `RangeEnd` takes."""
    log = _log()
    number = next(log.numbers)
    log.started[number] = log.open(
        "" if message is None else _text(message), None if color is None else _argb(color)
    )
    return number


def RangeEnd(range_id: int) -> None:  # noqa: N802
    """End a range of `RangeStart`; of an unknown number nothing happens."""
    log = _log()
    opened = log.started.pop(range_id, None)
    if opened is not None:
        log.end(opened)
