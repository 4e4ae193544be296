"""The critical path: it is complete, follows dependencies, and only its operations delay the program."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

import pytest

from gpulab.analysis.critical_path import find_critical_path
from tests.trace.programs import Step, longer, program, simulate, timeline_of
from virtualgpu.records import HostCall, SourceLine, Timeline


@pytest.mark.parametrize("seed", range(40))
def test_only_operations_on_the_critical_path_delay_the_program(seed: int) -> None:
    steps = program(seed)
    timeline = simulate(steps)
    path = find_critical_path(timeline)
    assert sum(step.duration_ns for step in path) == timeline.duration_ns
    assert all(one.end_ns == two.start_ns for one, two in pairwise(path))
    on_it = {step.correlation_id for step in path if step.kind == "operation"}
    for index, step in enumerate(steps):
        if step.what != "launch":
            continue
        slower = simulate(longer(steps, index, 10)).duration_ns - timeline.duration_ns
        faster = timeline.duration_ns - simulate(longer(steps, index, -1)).duration_ns
        if index + 1 in on_it:
            assert slower == 10
        else:
            assert faster == 0


def test_host_and_operations_alternate_on_the_path() -> None:
    timeline = simulate(
        [
            Step("launch", 1, 50),
            Step("wait", 1),
            Step("compute", 1, 30),
            Step("launch", 1, 5),
            Step("wait", 1),
        ]
    )
    path = find_critical_path(timeline)
    assert [(s.kind, s.name, s.duration_ns) for s in path] == [
        ("host", "cuLaunchKernel", 4),
        ("operation", "k1", 50),
        ("host", "the host computes", 34),
        ("operation", "k4", 5),
    ]
    assert [s.source and s.source.line for s in path] == [1, 1, 4, 4]


def test_a_host_step_has_the_line_of_its_longest_call() -> None:
    steps = [Step("launch", 1, 1, 3), Step("launch", 1, 1, 9), Step("launch", 1, 1, 3), Step("wait", 1)]
    host = find_critical_path(simulate(steps))[0]
    assert (host.name, host.duration_ns) == ("3 × cuLaunchKernel", 15)
    assert host.source is not None
    assert host.source.line == 2


def test_the_path_follows_an_event_to_another_stream() -> None:
    steps = [
        Step("launch", 1, 50),
        Step("launch", 2, 20),
        Step("launch", 2, 10, waits_for=(1,)),
        Step("wait", 2),
    ]
    path = find_critical_path(simulate(steps))
    assert [(s.name, s.where) for s in path if s.kind == "operation"] == [
        ("k1", "stream 1"),
        ("k3", "stream 2"),
    ]


def test_an_idle_timeline_has_one_step_and_an_empty_timeline_none() -> None:
    assert find_critical_path(timeline_of()) == ()
    idle = find_critical_path(timeline_of((), 25, start_ns=5))
    assert [(s.kind, s.duration_ns) for s in idle] == [("host", 20)]


def test_the_path_prefers_an_operation_ending_with_the_launch_call() -> None:
    steps = [Step("launch", 1, 50), Step("compute", 1, 46), Step("launch", 1, 20), Step("wait", 1)]
    timeline = simulate(steps)
    first, second = timeline.activities
    assert first.end_ns == timeline.calls[1].end_ns == second.start_ns
    path = find_critical_path(timeline)
    assert [(s.kind, s.name, s.duration_ns) for s in path] == [
        ("host", "cuLaunchKernel", 4),
        ("operation", "k1", 50),
        ("operation", "k3", 20),
    ]


def links(timeline: Timeline) -> list[tuple[str, str, int, int]]:
    return [(s.kind, s.name, s.start_ns, s.end_ns) for s in find_critical_path(timeline)]


def test_a_late_start_is_a_separate_step() -> None:
    timeline = simulate([Step("launch", 1, 50), Step("launch", 1, 20)])
    first, second = timeline.activities
    late = replace(timeline, activities=(first, replace(second, start_ns=60, end_ns=80)), end_ns=80)
    assert links(late) == [
        ("host", "cuLaunchKernel", 0, 4),
        ("operation", "k1", 4, 54),
        ("start-up", "start of k2", 54, 60),
        ("operation", "k2", 60, 80),
    ]
    assert find_critical_path(late)[2].where == "stream 1"
    unknown = replace(late, calls=())
    assert links(unknown)[0] == ("start-up", "start of k1", 0, 4)
    # An operation that started before the recording.
    cut = replace(unknown, start_ns=10)
    assert links(cut)[0] == ("operation", "k1", 10, 54)


def test_the_path_follows_the_operation_that_occupied_the_engine() -> None:
    timeline = simulate([Step("launch", 1, 50), Step("launch", 2, 20)])
    first, second = timeline.activities
    full = replace(timeline, activities=(first, replace(second, start_ns=54, end_ns=74)), end_ns=74)
    assert [name for _, name, *_ in links(full)] == ["cuLaunchKernel", "k1", "k2"]
    copied = replace(full.activities[1], kind="MEMCPY", copy_kind="HtoD")
    assert links(replace(full, activities=(first, copied)))[1:] == [
        ("start-up", "start of k2", 8, 54),
        ("operation", "k2", 54, 74),
    ]


@pytest.mark.parametrize(
    ("names", "name"),
    [
        ("a", "the host computes"),
        ("ab", "a and b"),
        ("abab", "2 × a and 2 × b"),
        ("abcaa", "3 × a, b and others"),
    ],
)
def test_a_host_step_is_named_after_its_dominant_calls(names: str, name: str) -> None:
    calls = [
        HostCall(letter, 10 * index, 10 * index + 10, 1, 0, SourceLine("p", index % 2))
        for index, letter in enumerate(names)
    ]
    end = 40 if len(names) == 2 else 10 * len(names) if len(names) > 2 else 21
    timeline = timeline_of((), end, calls=tuple(calls))
    (step,) = find_critical_path(timeline)
    assert (step.name, step.where, step.correlation_id) == (name, "host", 0)
    assert step.source == SourceLine("p", 0)
    assert (
        find_critical_path(replace(timeline, calls=tuple(replace(c, source=None) for c in calls)))[0].source
        is None
    )


def test_operations_of_a_stream_follow_each_other_by_default() -> None:
    timeline = simulate([Step("launch", 1, 50), Step("launch", 2, 90), Step("launch", 1, 20)])
    first, other, last = (replace(activity, after=()) for activity in timeline.activities)
    copy = replace(first, kind="MEMCPY", copy_kind="HtoD")
    incomplete = replace(
        timeline, activities=(copy, replace(other, end_ns=50), replace(last, end_ns=200)), end_ns=200
    )
    assert [name for _, name, *_ in links(incomplete)] == ["cuLaunchKernel", "k1", "k3"]


def test_the_path_follows_the_thread_with_the_last_call() -> None:
    timeline = simulate([Step("launch", 1, 50), Step("wait", 1)])
    other = HostCall("cudaMalloc", 10, 30, 2, 0)
    assert [name for _, name, *_ in links(replace(timeline, calls=(*timeline.calls, other)))] == [
        "cuLaunchKernel",
        "k1",
    ]
    longer = replace(timeline, calls=(*timeline.calls, replace(other, end_ns=70)), end_ns=70)
    assert links(longer) == [("host", "cudaMalloc", 0, 70)]
