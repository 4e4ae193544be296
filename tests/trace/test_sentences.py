"""What a timeline holds, in one sentence."""

from __future__ import annotations

from dataclasses import replace

from gpulab.analysis.sentences import lines_text, sentence
from tests.trace.programs import Step, simulate
from virtualgpu.records import SourceLine, Timeline


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


def test_lines_are_named_up_to_three() -> None:
    first, *rest = lines = [SourceLine("cell [1]", number, "") for number in range(1, 5)]
    assert lines_text([None]) == lines_text([]) == ""
    assert lines_text([first, None, first]) == " in cell [1], line 1"
    assert lines_text([replace(first, text="x = y")]) == " in cell [1], line 1 (`x = y`)"
    assert lines_text(rest) == " in cell [1], line 2, cell [1], line 3 and cell [1], line 4"
    assert lines_text(lines) == " in cell [1], line 1, cell [1], line 2, cell [1], line 3 and others"


def test_ranges_host_functions_and_copies_of_no_known_way_are_told() -> None:
    timeline = simulate([Step("launch", 1, 5) for _ in range(4)])
    one, two, three, four = timeline.activities
    changed = (
        replace(one, kind="RANGE"),
        replace(two, kind="HOST_LAUNCH"),
        replace(three, kind="MEMCPY2", copy_kind="PtoP"),
        replace(four, kind="MEMCPY", copy_kind="AtoA"),
    )
    assert ran(replace(timeline, activities=changed)) == (
        "2 copies (1 P2P, 1 other), 1 host function and 1 range between events in 1 stream."
    )
