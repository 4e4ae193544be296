"""What a timeline holds, in one sentence."""

from __future__ import annotations

from dataclasses import replace

from tests.trace.programs import Step, simulate
from virtualgpu.records import Timeline
from virtualgpu.trace.sentences import sentence


def ran(timeline: Timeline) -> str:
    return sentence(timeline).partition(": ")[2]


def test_devices_are_counted_where_there_are_several() -> None:
    timeline = simulate([Step("launch", 1, 5), Step("launch", 2, 5), Step("wait", 1)])
    assert ran(timeline) == "2 kernels in 2 streams; 1 wait of the host."
    first, second = timeline.activities
    moved = replace(timeline, activities=(first, replace(second, device_id=3)))
    assert ran(moved) == "2 kernels in 2 streams of 2 devices; 1 wait of the host."
    assert ran(replace(timeline, activities=(), synchronizations=(), lost=2)) == "nothing; 2 records lost."


def test_copies_are_told_by_direction() -> None:
    timeline = simulate([Step("launch", 1, 5) for _ in range(5)])
    kernel, one, two, three, four = timeline.activities
    changed = (
        kernel,
        replace(one, kind="MEMCPY", copy_kind="HtoD"),
        replace(two, kind="MEMCPY", copy_kind="DtoH"),
        replace(three, kind="MEMCPY", copy_kind="HtoD"),
        replace(four, kind="MEMSET"),
    )
    assert ran(replace(timeline, activities=changed)) == (
        "1 kernel, 3 copies (1 D2H, 2 H2D) and 1 memset in 1 stream."
    )
