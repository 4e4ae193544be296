"""Summaries of a timeline in one sentence."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from gpulab.analysis.sentences import describe_timeline, format_lines
from tests.trace.programs import Step, simulate
from virtualgpu.records import SourceLine, Timeline


def ran(timeline: Timeline) -> str:
    return describe_timeline(timeline).partition(": ")[2]


def test_work_is_counted_by_kind_stream_and_device() -> None:
    timeline = simulate([Step("launch", 1, 5), Step("launch", 2, 5), Step("wait", 1)])
    assert ran(timeline) == "2 kernels in 2 streams; 1 wait of the host."
    first, second = timeline.activities
    moved = replace(timeline, activities=(first, replace(second, device_id=3)))
    assert "in 2 streams of 2 devices" in ran(moved)
    assert ran(replace(timeline, activities=(), synchronizations=(), lost=2)) == "nothing; 2 records lost."


def test_copies_are_counted_by_direction() -> None:
    timeline = simulate([Step("launch", 1, 5) for _ in range(8)])
    kinds: list[dict[str, Any]] = [
        {},
        {"kind": "MEMCPY", "copy_kind": "HtoD"},
        {"kind": "MEMCPY", "copy_kind": "DtoH"},
        {"kind": "MEMCPY2", "copy_kind": "PtoP"},
        {"kind": "MEMCPY", "copy_kind": "AtoA"},
        {"kind": "MEMSET"},
        {"kind": "HOST_LAUNCH"},
        {"kind": "RANGE"},
    ]
    changed = (replace(a, **kind) for a, kind in zip(timeline.activities, kinds, strict=True))
    text = ran(replace(timeline, activities=tuple(changed)))
    for words in ("1 kernel,", "(1 D2H, 1 H2D, 1 P2P, 1 other)", "1 memset", "1 host function", "1 range"):
        assert words in text


def test_at_most_three_lines_are_listed() -> None:
    first, *others = lines = [SourceLine("cell [1]", number, "") for number in range(1, 5)]
    assert format_lines([None]) == format_lines([]) == ""
    assert format_lines([first, None, first]) == " in cell [1], line 1"
    assert format_lines(others) == " in cell [1], line 2, cell [1], line 3 and cell [1], line 4"
    assert format_lines(lines).endswith("line 3 and others")
