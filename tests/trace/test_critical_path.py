"""The critical path: complete, made of real dependencies, and the part whose delay delays the whole."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

import pytest

from gpulab.analysis.critical_path import critical_path
from tests.trace.programs import MODELLED, Step, longer, program, simulate
from virtualgpu.records import HostCall, SourceLine, Timeline


@pytest.mark.parametrize("seed", range(40))
def test_what_lies_on_it_delays_the_whole_and_nothing_else_makes_it_faster(seed: int) -> None:
    steps = program(seed)
    timeline = simulate(steps)
    path = critical_path(timeline)
    assert sum(step.duration_ns for step in path) == timeline.duration_ns
    assert all(one.end_ns == two.start_ns for one, two in pairwise(path))
    on_it = {step.correlation_id for step in path if step.kind == "operation"}
    for at, step in enumerate(steps):
        if step.what != "launch":
            continue
        slower = simulate(longer(steps, at, 10)).duration_ns - timeline.duration_ns
        faster = timeline.duration_ns - simulate(longer(steps, at, -1)).duration_ns
        if at + 1 in on_it:
            assert slower == 10
        else:
            assert faster == 0


def test_the_host_s_stretches_and_the_operations_take_turns() -> None:
    timeline = simulate(
        [
            Step("launch", 1, 50),
            Step("wait", 1),
            Step("compute", 1, 30),
            Step("launch", 1, 5),
            Step("wait", 1),
        ]
    )
    path = critical_path(timeline)
    assert [(s.kind, s.name, s.duration_ns) for s in path] == [
        ("host", "cuLaunchKernel", 4),
        ("operation", "k1", 50),
        ("host", "the host computes", 34),
        ("operation", "k4", 5),
    ]
    assert [s.source and s.source.line for s in path] == [1, 1, 4, 4]


def test_a_host_s_stretch_is_named_after_the_line_that_took_longest() -> None:
    steps = [Step("launch", 1, 1, 3), Step("launch", 1, 1, 9), Step("launch", 1, 1, 3), Step("wait", 1)]
    host = critical_path(simulate(steps))[0]
    assert (host.name, host.duration_ns) == ("3 × cuLaunchKernel", 15)
    assert host.source is not None
    assert host.source.line == 2


def test_an_event_leads_to_the_other_stream() -> None:
    steps = [
        Step("launch", 1, 50),
        Step("launch", 2, 20),
        Step("launch", 2, 10, waits_for=(1,)),
        Step("wait", 2),
    ]
    path = critical_path(simulate(steps))
    assert [(s.name, s.where) for s in path if s.kind == "operation"] == [
        ("k1", "stream 1"),
        ("k3", "stream 2"),
    ]


def test_nothing_has_one_link_or_none() -> None:
    assert critical_path(Timeline(provenance=MODELLED, method="model", start_ns=0, end_ns=0)) == ()
    idle = critical_path(Timeline(provenance=MODELLED, method="model", start_ns=5, end_ns=25))
    assert [(s.kind, s.duration_ns) for s in idle] == [("host", 20)]


def test_an_operation_that_ends_as_its_follower_is_given_out_is_told_rather_than_the_host() -> None:
    steps = [Step("launch", 1, 50), Step("compute", 1, 46), Step("launch", 1, 20), Step("wait", 1)]
    timeline = simulate(steps)
    first, second = timeline.activities
    assert first.end_ns == timeline.calls[1].end_ns == second.start_ns
    path = critical_path(timeline)
    assert [(s.kind, s.name, s.duration_ns) for s in path] == [
        ("host", "cuLaunchKernel", 4),
        ("operation", "k1", 50),
        ("operation", "k3", 20),
    ]


def links(timeline: Timeline) -> list[tuple[str, str, int, int]]:
    return [(s.kind, s.name, s.start_ns, s.end_ns) for s in critical_path(timeline)]


def test_an_operation_that_starts_late_has_a_link_of_its_own() -> None:
    timeline = simulate([Step("launch", 1, 50), Step("launch", 1, 20)])
    first, second = timeline.activities
    late = replace(timeline, activities=(first, replace(second, start_ns=60, end_ns=80)), end_ns=80)
    assert links(late) == [
        ("host", "cuLaunchKernel", 0, 4),
        ("operation", "k1", 4, 54),
        ("start-up", "start of k2", 54, 60),
        ("operation", "k2", 60, 80),
    ]
    assert critical_path(late)[2].where == "stream 1"
    unknown = replace(late, calls=())
    assert links(unknown)[0] == ("start-up", "start of k1", 0, 4)
    # What had begun before the recording did.
    cut = replace(unknown, start_ns=10)
    assert links(cut)[0] == ("operation", "k1", 10, 54)


def test_an_engine_that_is_busy_leads_to_the_operation_that_it_was_busy_with() -> None:
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
def test_a_stretch_of_the_host_s_is_named_after_its_calls_if_they_take_half_of_it(
    names: str, name: str
) -> None:
    calls = [
        HostCall(each, 10 * at, 10 * at + 10, 1, 0, SourceLine("p", at % 2)) for at, each in enumerate(names)
    ]
    end = 40 if len(names) == 2 else 10 * len(names) if len(names) > 2 else 21
    timeline = Timeline(provenance=MODELLED, method="model", start_ns=0, end_ns=end, calls=tuple(calls))
    (step,) = critical_path(timeline)
    assert (step.name, step.where, step.correlation_id) == (name, "host", 0)
    assert step.source == SourceLine("p", 0)
    assert (
        critical_path(replace(timeline, calls=tuple(replace(c, source=None) for c in calls)))[0].source
        is None
    )


def test_where_nobody_says_what_an_operation_followed_it_is_the_one_before_in_its_stream() -> None:
    timeline = simulate([Step("launch", 1, 50), Step("launch", 2, 90), Step("launch", 1, 20)])
    first, other, last = (replace(each, after=()) for each in timeline.activities)
    copy = replace(first, kind="MEMCPY", copy_kind="HtoD")
    told = replace(
        timeline, activities=(copy, replace(other, end_ns=50), replace(last, end_ns=200)), end_ns=200
    )
    assert [name for _, name, *_ in links(told)] == ["cuLaunchKernel", "k1", "k3"]


def test_the_thread_whose_call_ended_last_is_followed() -> None:
    timeline = simulate([Step("launch", 1, 50), Step("wait", 1)])
    other = HostCall("cudaMalloc", 10, 30, 2, 0)
    assert [name for _, name, *_ in links(replace(timeline, calls=(*timeline.calls, other)))] == [
        "cuLaunchKernel",
        "k1",
    ]
    longer = replace(timeline, calls=(*timeline.calls, replace(other, end_ns=70)), end_ns=70)
    assert links(longer) == [("host", "cudaMalloc", 0, 70)]
