"""NVTX ranges and marks: CuPy's functions and errors, and the records kept of them."""

from __future__ import annotations

import threading

import pytest

from virtualgpu.cp.cuda import nvtx
from virtualgpu.model.machine import Machine
from virtualgpu.model.recording.ranges import MAX_RANGES
from virtualgpu.records.timeline import NvtxRange

pytestmark = pytest.mark.usefixtures("machine")
HERE = threading.get_ident()


def test_ranges_nest_and_have_the_modelled_clock_s_times(machine: Machine) -> None:
    start = machine.clock.now_ns
    nvtx.RangePush("outer")
    nvtx.RangePush("inner", 0)
    machine.clock.advance(500)
    nvtx.RangePop()
    machine.clock.advance(70)
    nvtx.RangePop()
    assert nvtx.ranges() == (
        NvtxRange(name="inner", color=0xFF00FF00, start_ns=start, end_ns=start + 500, thread=HERE, depth=1),
        NvtxRange(name="outer", color=None, start_ns=start, end_ns=start + 570, thread=HERE, depth=0),
    )


def test_colours(machine: Machine) -> None:
    nvtx.Mark("plain")
    nvtx.Mark("wraps", 13)
    nvtx.MarkC("own", 0x80123456)
    nvtx.RangePushC("black")
    nvtx.RangePop()
    assert [(r.name, r.color, r.is_mark) for r in nvtx.ranges()] == [
        ("plain", None, True),
        ("wraps", 0xFFFF0000, True),
        ("own", 0x80123456, True),
        ("black", 0, False),
    ]


def test_started_ranges_end_in_any_order_and_on_any_thread() -> None:
    first = nvtx.RangeStart("first", None)
    second = nvtx.RangeStart("second", 0xFF)
    thread = threading.Thread(target=nvtx.RangeEnd, args=(first,))
    thread.start()
    thread.join()
    nvtx.RangeEnd(second)
    nvtx.RangeEnd(second)
    nvtx.RangeEnd(77)
    assert [(r.name, r.color, r.thread) for r in nvtx.ranges()] == [
        ("first", None, HERE),
        ("second", 0xFF, HERE),
    ]


def test_each_thread_has_its_own_range_stack() -> None:
    nvtx.RangePush("main")
    thread = threading.Thread(target=nvtx.RangePop)
    thread.start()
    thread.join()
    assert nvtx.ranges() == ()
    nvtx.RangePop()
    nvtx.RangePop()  # without a range nothing happens, as with CuPy
    assert [r.name for r in nvtx.ranges()] == ["main"]


def test_errors_equal_those_of_cupy() -> None:
    """The expected errors are those that CuPy 14.2 raised on an H200."""
    with pytest.raises(AttributeError, match="'int' object has no attribute 'encode'"):
        nvtx.RangePush(3)  # type: ignore[arg-type]
    with pytest.raises(OverflowError, match="32-bit"):
        nvtx.MarkC("a", -1)
    assert nvtx.ranges() == ()
    assert nvtx.available


def test_the_number_of_ranges_is_limited() -> None:
    for number in range(MAX_RANGES + 3):
        nvtx.Mark(str(number))
    assert len(nvtx.ranges()) == MAX_RANGES
    assert nvtx.ranges()[0].name == "3"
