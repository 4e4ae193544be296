"""Gaps: their times, compared with a check of every nanosecond, and their causes."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import virtualgpu.cp as cp
from gpulab.analysis.gaps import find_gaps
from tests.trace.programs import Step, kernel, program, simulate, timeline_of
from virtualgpu.model import machine as slot
from virtualgpu.model.devices import device_info
from virtualgpu.model.machine import Machine
from virtualgpu.model.recording.timeline import Recording
from virtualgpu.records import Activity, Gap, HostCall, SourceLine, StreamInfo, Synchronization, Timeline

LINE = [SourceLine("cell [1]", number, f"line {number}") for number in range(9)]


@pytest.mark.parametrize("seed", range(15))
def test_gaps_are_times_without_an_operation(seed: int) -> None:
    timeline = simulate(program(seed))
    streams = {a.stream_id for a in timeline.activities}
    groups = {f"stream {s}": [a for a in timeline.activities if a.stream_id == s] for s in streams}
    groups["compute"] = list(timeline.activities)
    for where, activities in groups.items():
        covered = {t for a in activities for t in range(a.start_ns, a.end_ns)}
        idle = set(range(timeline.start_ns, timeline.end_ns)) - covered
        parts = [gap for gap in find_gaps(timeline) if gap.where == where]
        assert {t for gap in parts for t in range(gap.start_ns, gap.end_ns)} == idle
        assert sum(gap.duration_ns for gap in parts) == len(idle)
        ends = {gap.end_ns for gap in parts}  # a gap may have two parts
        assert all(gap.start_ns - 1 in covered or gap.start_ns in {0, *ends} for gap in parts)


def call(number: int, start: int, end: int, name: str = "cuLaunchKernel") -> HostCall:
    return HostCall(name, start, end, 1, number, LINE[number])


def by_hand(
    activities: list[Activity], calls: list[HostCall], waits: tuple[Synchronization, ...] = ()
) -> Timeline:
    streams = tuple(StreamInfo(0, n, "default stream" if n == 0 else f"stream {n}") for n in (0, 1, 2))
    return timeline_of(activities, calls=tuple(calls), synchronizations=waits, streams=streams)


def second_gap(timeline: Timeline, where: str) -> Gap:
    """Return the second gap, which is between the first and the second operation."""
    return [gap for gap in find_gaps(timeline) if gap.where == where][1]


WAITED = Synchronization(
    type="STREAM_SYNCHRONIZE",
    device_id=0,
    stream_id=1,
    start_ns=20,
    end_ns=50,
    name="cudaStreamSynchronize",
    after=(1,),
    hidden=True,
    source=LINE[7],
)
ONE = (kernel(1, 1, 10, 50), call(1, 0, 10))


@pytest.mark.parametrize(
    ("cause", "line", "second", "its_call", "fields"),
    [
        # The call began when the first kernel had ended, and took the whole gap.
        ("launch-bound", 2, kernel(2, 1, 60, 70, (1,)), call(2, 50, 60), {}),
        # The call came late: the host was not in a call before.
        ("host computing", 2, kernel(2, 1, 90, 95, (1,)), call(2, 80, 90), {}),
        # The host waited until the first kernel ended.
        ("hidden synchronisation", 7, kernel(2, 1, 60, 70, (1,)), call(2, 50, 60), {"waits": (WAITED,)}),
        (
            "synchronisation",
            7,
            kernel(2, 1, 60, 70, (1,)),
            call(2, 50, 60),
            {"waits": (replace(WAITED, hidden=False),)},
        ),
        # The host waited, but then it computed for longer.
        ("host computing", 2, kernel(2, 1, 99, 110, (1,)), call(2, 89, 99), {"waits": (WAITED,)}),
        # The kernel was submitted in time.
        ("start-up", None, kernel(2, 1, 57, 70, (1,)), call(2, 10, 20), {}),
    ],
)
def test_causes_of_gaps_within_one_stream(
    cause: str, line: int | None, second: Activity, its_call: HostCall, fields: dict[str, Any]
) -> None:
    timeline = by_hand([ONE[0], second], [ONE[1], its_call], **fields)
    for where in ("stream 1", "compute"):
        gap = second_gap(timeline, where)
        assert (gap.cause, gap.before) == (cause, 2)
        assert gap.source == (None if line is None else LINE[line])


def test_a_gap_names_a_call_that_launches_no_work() -> None:
    compiling = HostCall("cuModuleLoadData", 50, 89, 1, 0, LINE[5])
    gap = second_gap(
        by_hand([ONE[0], kernel(2, 1, 99, 110)], [ONE[1], compiling, call(2, 89, 99)]), "compute"
    )
    assert (gap.cause, gap.reason, gap.source) == (
        "host computing",
        "the host was in cuModuleLoadData",
        LINE[5],
    )


@pytest.mark.parametrize(
    ("ends", "cause"), [(70, "launch-bound"), (75, "launch-bound"), (76, "host computing")]
)
def test_a_call_without_launches_must_take_most_of_the_gap(ends: int, cause: str) -> None:
    loading = HostCall("cuModuleLoadData", 50, ends, 1, 0, LINE[5])
    other = HostCall("cudaMemcpyAsync", ends, 88, 1, 0, LINE[6])
    timeline = by_hand([ONE[0], kernel(2, 1, 100, 110)], [ONE[1], loading, other, call(2, 88, 100)])
    assert second_gap(timeline, "compute").cause == cause


def test_a_wait_of_half_a_gap_is_not_its_cause() -> None:
    waited = replace(WAITED, start_ns=60, end_ns=85, after=(3,))
    timeline = by_hand(
        [ONE[0], kernel(3, 2, 15, 85), kernel(2, 1, 100, 110)],
        [ONE[1], call(3, 10, 12), call(2, 100, 100)],
        (waited,),
    )
    gap = next(g for g in find_gaps(timeline) if g.where == "stream 1" and g.start_ns == 50)
    assert (gap.cause, gap.reason) == ("launch-bound", "the host was launching work (0 calls)")


OTHER = kernel(3, 2, 15, 80)
EVENT = Synchronization(
    type="STREAM_WAIT_EVENT",
    device_id=0,
    stream_id=1,
    start_ns=22,
    end_ns=22,
    name="cudaStreamWaitEvent",
    event_id=5,
    event_stream_id=2,
    after=(3,),
    source=LINE[6],
)


def across(waits: tuple[Synchronization, ...], first_stream: int = 1, **fields: Any) -> Gap:
    """Return the gap before a kernel that starts when a kernel of another stream has ended."""
    activities = [replace(ONE[0], stream_id=first_stream), replace(OTHER, **fields)]
    activities.append(kernel(2, first_stream, 80, 90, (1, 3)))
    timeline = by_hand(activities, [ONE[1], call(3, 10, 15), call(2, 15, 25)], waits)
    return second_gap(timeline, "default stream" if first_stream == 0 else "stream 1")


def test_causes_of_gaps_across_streams() -> None:
    waited = across((EVENT,))
    assert (waited.cause, waited.source) == ("waiting for an event", LINE[6])
    assert waited.reason == "waited for an event after k3 of stream 2"
    implicit = across((), first_stream=0)
    assert (implicit.cause, implicit.source) == ("default stream", None)
    copied = across((EVENT,), kind="MEMCPY", copy_kind="HtoD", pinned=False, size_bytes=4 << 20)
    assert copied.cause == "pageable copy"
    assert "4 MiB" in copied.reason


def test_gaps_caused_by_stream_order_and_by_a_busy_engine() -> None:
    copy = kernel(3, 1, 15, 80, kind="MEMCPY", copy_kind="HtoD", pinned=True)
    calls = [ONE[1], call(3, 10, 15), call(2, 15, 25)]
    timeline = by_hand([ONE[0], copy, kernel(2, 1, 80, 90, (3,))], calls)
    assert second_gap(timeline, "compute").cause == "waiting for its stream"
    full = by_hand([ONE[0], OTHER, kernel(2, 1, 80, 90, (1,))], calls)
    assert second_gap(full, "stream 1").cause == "engine busy"


def test_gaps_before_the_first_and_after_the_last_operation() -> None:
    timeline = replace(by_hand([ONE[0]], [ONE[1]]), end_ns=70)
    assert [(g.start_ns, g.end_ns, g.cause) for g in find_gaps(timeline) if g.where == "compute"] == [
        (0, 10, "launch-bound"),
        (50, 70, "nothing to do"),
    ]
    assert [g.cause for g in find_gaps(timeline, min_ns=15)] == ["nothing to do"] * 2


def test_a_gap_is_divided_into_a_host_part_and_a_device_part() -> None:
    other = kernel(3, 2, 15, 160)
    timeline = by_hand(
        [ONE[0], other, kernel(2, 1, 160, 170, (1, 3))],
        [ONE[1], call(3, 10, 15), call(2, 70, 100)],
        (replace(EVENT, start_ns=60, end_ns=60),),
    )
    assert [(g.start_ns, g.end_ns, g.cause) for g in find_gaps(timeline) if g.where == "stream 1"][1:] == [
        (50, 100, "launch-bound"),
        (100, 160, "waiting for an event"),
    ]


@pytest.mark.parametrize(
    ("call_ends", "parts"),
    [
        (58, [(50, 160, "waiting for an event")]),
        (62, [(50, 62, "launch-bound"), (62, 160, "waiting for an event")]),
        (148, [(50, 148, "launch-bound"), (148, 160, "waiting for an event")]),
        (152, [(50, 160, "launch-bound")]),
    ],
)
def test_a_gap_part_below_a_tenth_is_merged(call_ends: int, parts: list[tuple[int, int, str]]) -> None:
    timeline = by_hand(
        [ONE[0], kernel(3, 2, 15, 160), kernel(2, 1, 160, 170, (1, 3))],
        [ONE[1], call(3, 10, 15), call(2, 45, call_ends)],
        (EVENT,),
    )
    causes = [(g.start_ns, g.end_ns, g.cause) for g in find_gaps(timeline) if g.where == "stream 1"]
    assert causes[1:] == parts


@pytest.mark.parametrize(
    ("waits", "cause", "line"),
    [
        ([(60, 70)], "launch-bound", 2),
        ([(60, 86)], "synchronisation", 8),  # more than half of it
        ([(52, 60), (62, 83)], "synchronisation", 7),
        ([(52, 70), (70, 80)], "synchronisation", 8),
    ],
)
def test_the_longest_wait_of_more_than_half_a_gap_is_its_cause(
    waits: list[tuple[int, int]], cause: str, line: int
) -> None:
    synchronizations = [
        replace(WAITED, start_ns=start, end_ns=end, hidden=False, source=LINE[8 - index], after=(3 + index,))
        for index, (start, end) in enumerate(waits)
    ]
    others = [kernel(3 + index, 2, 15 + index, end) for index, (_, end) in enumerate(waits)]
    calls = [ONE[1], *(call(other.correlation_id, 10, 12) for other in others), call(2, 86, 100)]
    giving = (
        HostCall("cuLaunchKernel", 50, 60, 1, 0, LINE[5]),
        HostCall("cuLaunchKernel", 70, 86, 1, 0, LINE[5]),
    )
    timeline = by_hand(
        [ONE[0], *others, kernel(2, 1, 100, 110, (1,))], [*calls, *giving], tuple(synchronizations)
    )
    gap = next(g for g in find_gaps(timeline) if g.where == "stream 1" and g.start_ns == 50)
    assert (gap.cause, gap.source) == (cause, LINE[line])


def test_empty_calls_are_counted_and_nested_calls_are_not() -> None:
    calls = [
        HostCall("cuLaunchKernel", start, end, 1, 0, LINE[1])
        for start, end in ((0, 5), (5, 5), (6, 9), (7, 8), (6, 6))
    ]
    timeline = by_hand([kernel(1, 1, 12, 20)], [*calls, call(1, 9, 12)])
    assert find_gaps(timeline)[0].reason == "the host was launching work (4 calls)"


def test_a_busy_stream_has_no_gaps() -> None:
    back_to_back = [Step("launch", 1, 9, 0), Step("launch", 1, 9, 0)]
    assert find_gaps(simulate(back_to_back)) == ()


@pytest.fixture
def machine() -> Iterator[Machine]:
    previous = slot._current_machine.machine
    chosen = Machine([device_info("A100")])
    slot.use(chosen)
    yield chosen
    slot._current_machine.machine = previous


def test_gaps_of_a_recording_name_the_line_of_their_cause(machine: Machine) -> None:
    x = cp.ones(1 << 20, cp.float32)
    host = np.ones(1 << 20, np.float32)
    recording = Recording(machine)
    recording.start()
    for _ in range(3):
        x *= 2
        float(x[0])  # waits
    for _ in range(2):
        x.set(host)  # pageable
        x *= 3
    named_gaps = [g for g in find_gaps(recording.stop()) if g.where == "compute" and g.source is not None]
    blamed = {(g.cause, g.source.text.partition("  #")[0]) for g in named_gaps if g.source}
    assert ("hidden synchronisation", "float(x[0])") in blamed
    assert ("pageable copy", "x.set(host)") in blamed
