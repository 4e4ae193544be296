"""Each piece of advice to the letter, with the gain that arithmetic on paper gives."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from gpulab.analysis.advice import advice
from tests.trace.test_gaps import LINE, by_hand
from virtualgpu.records import (
    Activity,
    CopyKind,
    HostCall,
    Provenance,
    SourceLine,
    Synchronization,
    Timeline,
)

US = 1_000
MIB = 1 << 20


def kernel(number: int, stream: int, start: float, end: float, *after: int, **more: Any) -> Activity:
    return Activity(
        kind="CONCURRENT_KERNEL",
        name=f"k{number}",
        device_id=0,
        stream_id=stream,
        correlation_id=number,
        start_ns=round(start * US),
        end_ns=round(end * US),
        after=after,
        **more,
    )


def copy(
    number: int, start: float, end: float, *after: int, way: CopyKind = "HtoD", size: int = MIB, **more: Any
) -> Activity:
    made = kernel(number, 1, start, end, *after, size_bytes=size, copy_kind=way, **more)
    return replace(made, kind="MEMCPY", name=f"Memcpy {way}")


def call(number: int, start: float, end: float, line: int | None = None) -> HostCall:
    source = SourceLine("cell [1]", number if line is None else line, "")
    return HostCall("cuLaunchKernel", round(start * US), round(end * US), 1, number, source)


def wait(start: float, end: float, after: int, line: int, hidden: bool) -> Synchronization:
    return Synchronization(
        type="STREAM_SYNCHRONIZE",
        device_id=0,
        stream_id=1,
        start_ns=round(start * US),
        end_ns=round(end * US),
        name="cudaStreamSynchronize",
        after=(after,),
        hidden=hidden,
        source=LINE[line],
    )


def told(timeline: Timeline, device: str = "virtual H200") -> list[tuple[str, int, str]]:
    found = advice(replace(timeline, provenance=Provenance("modelled", device)))
    return [(each.topic, each.gain_ns, each.text) for each in found]


COPIED = [copy(1, 10, 110, pinned=False), kernel(2, 1, 110, 150, 1)], [call(1, 0, 110), call(2, 110, 112)]


@pytest.mark.parametrize(
    ("device", "gb_s"), [("virtual T4", 13), ("A100", 26), ("NVIDIA GeForce RTX 4090", 26), ("H200", 55)]
)
def test_a_pinned_buffer_saves_what_the_link_of_the_device_allows(device: str, gb_s: int) -> None:
    found = {topic: (gain, text) for topic, gain, text in told(by_hand(*COPIED), device)}
    gain, text = found["pin"]
    assert gain == round(100 * US - MIB / gb_s)
    assert text.startswith(
        "Pin the host's buffer of 1 copy on the critical path in cell [1], line 1, as cupyx.empty_pinned "
        "makes one: then the copy is faster and the host need not wait for it: up to about "
    )
    assert found["overlap"] == (
        30 * US,  # the shorter of the two, three pieces of four
        (
            "Let H2D and compute overlap: cut the work into pieces, and give them to several streams in "
            "turn, with pinned buffers: up to about 30 µs of 150 µs (20 %)."
        ),
    )


def test_how_fast_pinned_copies_are_is_seen_where_there_are_some_of_that_direction() -> None:
    activities = [
        copy(3, 0, 50, pinned=True),
        copy(4, 50, 60, 3, way="DtoH", pinned=True),
        copy(1, 60, 160, 4, pinned=False),
        copy(5, 160, 261, 1, size=1 << 10, pinned=False),
        kernel(2, 1, 261, 290, 5),
    ]
    calls = [call(3, 0, 1), call(4, 1, 2), call(1, 3, 160), call(5, 160, 261), call(2, 261, 262)]
    found = {topic: (gain, text) for topic, gain, text in told(by_hand(activities, calls))}
    assert found["pin"][0] == 50 * US
    assert "of 1 copy on" in found["pin"][1], "a small copy is no faster"
    # 150 of H2D are the longest: three quarters of 29 and of 10.
    assert found["overlap"][0] == 29_250
    assert found["overlap"][1].startswith("Let H2D, compute and D2H overlap")
    fast = [replace(activities[0], end_ns=200 * US), *activities[1:]]
    assert "pin" not in {topic: gain for topic, gain, _ in told(by_hand(fast, calls))}


def test_large_copies_of_one_direction_alone_call_for_no_overlap() -> None:
    small = [replace(COPIED[0][0], size_bytes=(64 << 10) - 1), COPIED[0][1]]
    assert told(by_hand(small, COPIED[1])) == []
    just = [replace(COPIED[0][0], size_bytes=64 << 10), COPIED[0][1]]
    assert [topic for topic, *_ in told(by_hand(just, COPIED[1]))] == ["pin", "overlap"]


def launches(count: int, each: float, **more: Any) -> Timeline:
    """Calls of 20 µs back to back, from two lines; each kernel begins as its call returns."""
    activities = [
        kernel(n, 1, 20 * n, 20 * n + each, *range(max(1, n - 1), n), **more) for n in range(1, count + 1)
    ]
    return by_hand(activities, [call(n, 20 * (n - 1), 20 * n, 1 + n % 2) for n in range(1, count + 1)])


@pytest.mark.parametrize(
    ("each", "gain"),
    [
        (5, 20_000 + 9 * 15_000),
        (0.5, 20_000 + 9 * 19_500 - 10 * 530),  # nodes follow each other by 1,030 ns at least
    ],
)
def test_a_graph_saves_the_idle_time_before_each_launch(each: float, gain: int) -> None:
    ((topic, found, text),) = told(launches(10, each))
    assert (topic, found) == ("graph", gain)
    assert text.startswith(
        "Capture the launches in a CUDA Graph in cell [1], line 2 and cell [1], line 1: 10 times the device "
        "stood idle because the host gives out work more slowly than it runs: up to about "
    )


def test_few_launches_and_those_of_a_graph_need_none() -> None:
    assert told(launches(9, 5)) == []
    assert told(launches(12, 5, graph_id=3)) == []


def test_waits_go_before_the_graph_that_they_keep_from_being_captured() -> None:
    timeline = launches(11, 5)
    calls = (timeline.calls[0], call(2, 30, 40), *timeline.calls[2:])
    timeline = replace(timeline, calls=calls, synchronizations=(wait(21, 25, 1, 7, hidden=False),))
    (first, saved, words), (then, more, text) = told(timeline)
    assert (first, saved, then, more) == ("wait", 15 * US, "graph", 155 * US)
    assert words == (
        "Remove the wait in cell [1], line 7 (`line 7`), behind which the device stood idle 1 time: up to "
        "about 15 µs of 225 µs (7 %)."
    )
    assert text.startswith("Once nothing waits between the launches, capture them in a CUDA Graph in cell")


@pytest.mark.parametrize(("size", "hidden", "gain"), [(4, True, 60), (64 << 10, True, 40), (4, False, 40)])
def test_a_value_that_stays_on_the_device_needs_no_copy(size: int, hidden: bool, gain: int) -> None:
    activities = [kernel(1, 1, 10, 100), copy(2, 104, 120, 1, way="DtoH", size=size), kernel(3, 1, 160, 200)]
    calls = [call(1, 0, 10), call(2, 10, 20, 5), call(3, 130, 160)]
    timeline = by_hand(activities, calls, (wait(20, 120, 2, 5, hidden),))
    (found,) = (each for each in told(timeline) if each[0] == "wait")
    assert found[1] == gain * US  # 40 idle behind it; 16 of the copy, 4 before that
    assert ("; leave the value on the device, or fetch it once at the end: " in found[2]) is hidden


def test_work_that_is_given_before_the_host_computes() -> None:
    activities = [kernel(1, 1, 10, 50), kernel(2, 1, 150, 160, 1), kernel(3, 1, 260, 270, 2)]
    assert told(by_hand(activities, [call(1, 0, 10), call(2, 140, 150), call(3, 250, 260)])) == [
        (
            "host",
            200 * US,
            (
                "Give out work before the host computes in cell [1], line 2 and cell [1], line 3: 2 times "
                "the device stood idle meanwhile: up to about 200 µs of 270 µs (74 %)."
            ),
        )
    ]


@pytest.mark.parametrize(("known", "gain"), [(True, 40), (False, 100)])
def test_the_default_stream_s_rule_costs_what_a_stream_waited_since_it_was_given(
    known: bool, gain: int
) -> None:
    calls = [call(1, 0, 10), *([call(2, 20, 60)] if known else [])]
    timeline = by_hand([kernel(1, 0, 10, 100), kernel(2, 1, 100, 150, 1)], calls)
    assert told(timeline) == [
        (
            "stream",
            gain * US,
            (
                "Make streams with cp.cuda.Stream(non_blocking=True), and leave the default stream: stream 1 "
                f"waited 1 time by its rule: up to about {gain} µs of 150 µs ({'27' if known else '67'} %)."
            ),
        )
    ]


def test_what_saves_less_than_a_fiftieth_is_not_said() -> None:
    timeline = by_hand([kernel(1, 0, 10, 100), kernel(2, 1, 100, 150, 1)], [call(1, 0, 10), call(2, 20, 60)])
    assert len(told(replace(timeline, end_ns=2000 * US))) == 1
    assert told(replace(timeline, end_ns=2001 * US)) == []
