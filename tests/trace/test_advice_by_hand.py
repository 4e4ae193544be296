"""Each piece of advice, with its gain calculated by hand."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from gpulab.analysis.advice import make_advice
from tests.trace import programs
from tests.trace.test_gaps import LINE, by_hand
from virtualgpu.records import Activity, CopyKind, HostCall, Provenance, SourceLine, Synchronization, Timeline

US = 1_000
MIB = 1 << 20


def kernel(number: int, stream: int, start: float, end: float, *after: int, **fields: Any) -> Activity:
    return programs.kernel(number, stream, round(start * US), round(end * US), after, **fields)


def copy(
    number: int, start: float, end: float, *after: int, way: CopyKind = "HtoD", size: int = MIB, **more: Any
) -> Activity:
    fields = {"kind": "MEMCPY", "name": f"Memcpy {way}", "size_bytes": size, "copy_kind": way}
    return kernel(number, 1, start, end, *after, **fields, **more)


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


def advice_of(timeline: Timeline, device: str = "virtual H200") -> list[tuple[str, int, str]]:
    pieces = make_advice(replace(timeline, provenance=Provenance("modelled", device)))
    return [(piece.topic, piece.gain_ns, piece.text) for piece in pieces]


COPIED = [copy(1, 10, 110, pinned=False), kernel(2, 1, 110, 150, 1)], [call(1, 0, 110), call(2, 110, 112)]


@pytest.mark.parametrize(
    ("device", "gb_s"), [("virtual T4", 13), ("A100", 26), ("NVIDIA GeForce RTX 4090", 26), ("H200", 55)]
)
def test_the_gain_of_pinning_is_limited_by_the_link_bandwidth(device: str, gb_s: int) -> None:
    texts_by_topic = {topic: (gain, text) for topic, gain, text in advice_of(by_hand(*COPIED), device)}
    gain, text = texts_by_topic["pin"]
    assert gain == round(100 * US - MIB / gb_s)
    assert "buffer of 1 copy on the critical path in cell [1], line 1, for example with" in text
    gain, text = texts_by_topic["overlap"]
    assert gain == 30 * US  # the shorter of the two, with three of four pieces overlapped
    assert text.startswith("Let H2D and compute overlap")
    assert text.endswith("with pinned buffers: up to about 30 µs of 150 µs (20 %).")


def test_the_gain_of_pinning_uses_the_measured_pinned_bandwidth() -> None:
    activities = [
        copy(3, 0, 50, pinned=True),
        copy(4, 50, 60, 3, way="DtoH", pinned=True),
        copy(1, 60, 160, 4, pinned=False),
        copy(5, 160, 261, 1, size=1 << 10, pinned=False),
        kernel(2, 1, 261, 290, 5),
    ]
    calls = [call(3, 0, 1), call(4, 1, 2), call(1, 3, 160), call(5, 160, 261), call(2, 261, 262)]
    texts_by_topic = {topic: (gain, text) for topic, gain, text in advice_of(by_hand(activities, calls))}
    assert texts_by_topic["pin"][0] == 50 * US
    assert "of 1 copy on" in texts_by_topic["pin"][1], "a small copy is no faster"
    # H2D is the longest with 150 µs, so three quarters of 29 and of 10 µs can overlap with it.
    assert texts_by_topic["overlap"][0] == 29_250
    assert texts_by_topic["overlap"][1].startswith("Let H2D, compute and D2H overlap")
    fast = [replace(activities[0], end_ns=200 * US), *activities[1:]]
    assert "pin" not in {topic: gain for topic, gain, _ in advice_of(by_hand(fast, calls))}


def test_small_copies_get_no_advice() -> None:
    small = [replace(COPIED[0][0], size_bytes=(64 << 10) - 1), COPIED[0][1]]
    assert advice_of(by_hand(small, COPIED[1])) == []
    just = [replace(COPIED[0][0], size_bytes=64 << 10), COPIED[0][1]]
    assert [topic for topic, *_ in advice_of(by_hand(just, COPIED[1]))] == ["pin", "overlap"]


def launches(count: int, busy_us: float, **fields: Any) -> Timeline:
    """Return calls of 20 µs back to back, from two lines. Each kernel starts when its call returns."""
    activities = [
        kernel(n, 1, 20 * n, 20 * n + busy_us, *range(max(1, n - 1), n), **fields)
        for n in range(1, count + 1)
    ]
    return by_hand(activities, [call(n, 20 * (n - 1), 20 * n, 1 + n % 2) for n in range(1, count + 1)])


@pytest.mark.parametrize(
    ("busy_us", "gain"),
    [
        (5, 20_000 + 9 * 15_000),
        (0.5, 20_000 + 9 * 19_500 - 10 * 530),  # graph nodes start at least 1,030 ns apart
    ],
)
def test_a_graph_saves_the_idle_time_before_each_launch(busy_us: float, gain: int) -> None:
    ((topic, gain_ns, text),) = advice_of(launches(10, busy_us))
    assert (topic, gain_ns) == ("graph", gain)
    assert text.startswith(
        "Capture the launches in a CUDA Graph in cell [1], line 2 and cell [1], line 1: 10 times"
    )


def test_few_launches_or_graph_launches_get_no_graph_advice() -> None:
    assert advice_of(launches(9, 5)) == []
    assert advice_of(launches(12, 5, graph_id=3)) == []


def test_removing_a_wait_is_advised_before_a_graph() -> None:
    timeline = launches(11, 5)
    calls = (timeline.calls[0], call(2, 30, 40), *timeline.calls[2:])
    timeline = replace(timeline, calls=calls, synchronizations=(wait(21, 25, 1, 7, hidden=False),))
    (first, saved, words), (second_topic, fields, text) = advice_of(timeline)
    assert (first, saved, second_topic, fields) == ("wait", 15 * US, "graph", 155 * US)
    assert words.startswith("Remove the wait in cell [1], line 7 (`line 7`)")
    assert words.endswith("idle 1 time: up to about 15 µs of 225 µs (7 %).")
    assert "wait between the launches, capture them in a CUDA Graph in cell" in text


@pytest.mark.parametrize(("size", "hidden", "gain"), [(4, True, 60), (64 << 10, True, 40), (4, False, 40)])
def test_keeping_a_value_on_the_device_is_advised(size: int, hidden: bool, gain: int) -> None:
    activities = [kernel(1, 1, 10, 100), copy(2, 104, 120, 1, way="DtoH", size=size), kernel(3, 1, 160, 200)]
    calls = [call(1, 0, 10), call(2, 10, 20, 5), call(3, 130, 160)]
    timeline = by_hand(activities, calls, (wait(20, 120, 2, 5, hidden),))
    (advice_text,) = (piece for piece in advice_of(timeline) if piece[0] == "wait")
    assert advice_text[1] == gain * US  # 40 µs idle after the copy, 16 for the copy, 4 before it
    assert ("; keep the value on the device, or copy it once at the end: " in advice_text[2]) is hidden


def test_launching_before_host_computation_is_advised() -> None:
    activities = [kernel(1, 1, 10, 50), kernel(2, 1, 150, 160, 1), kernel(3, 1, 260, 270, 2)]
    calls = [call(1, 0, 10), call(2, 140, 150), call(3, 250, 260)]
    ((topic, gain, text),) = advice_of(by_hand(activities, calls))
    assert (topic, gain) == ("host", 200 * US)
    assert "in cell [1], line 2 and cell [1], line 3: 2 times" in text
    assert text.endswith("up to about 200 µs of 270 µs (74 %).")


@pytest.mark.parametrize(("known", "gain"), [(True, 40), (False, 100)])
def test_the_cost_of_the_default_stream_starts_after_the_launch_call(known: bool, gain: int) -> None:
    calls = [call(1, 0, 10), *([call(2, 20, 60)] if known else [])]
    timeline = by_hand([kernel(1, 0, 10, 100), kernel(2, 1, 100, 150, 1)], calls)
    ((topic, gain_ns, text),) = advice_of(timeline)
    assert (topic, gain_ns) == ("stream", gain * US)
    assert "cp.cuda.Stream(non_blocking=True)" in text
    assert "stream 1 waited 1 time" in text


def test_gains_below_two_percent_are_left_out() -> None:
    timeline = by_hand([kernel(1, 0, 10, 100), kernel(2, 1, 100, 150, 1)], [call(1, 0, 10), call(2, 20, 60)])
    assert len(advice_of(replace(timeline, end_ns=2000 * US))) == 1
    assert advice_of(replace(timeline, end_ns=2001 * US)) == []
