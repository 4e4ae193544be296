"""The pipeline view against its record: bars, marks, mistakes and texts."""

from __future__ import annotations

import pytest

from gpulab.views import PipelineView
from gpulab.views.pipeline.view import IN_FLIGHT_COLOUR, MISTAKE_COLOUR, STORE_COLOUR, USE_COLOUR
from tests.views.pipelines import block, copies_ahead, stores
from tests.views.synthetic import boxes


def bars(view: PipelineView, *colours: str) -> list[tuple[float, float, str]]:
    """Start, end and sentence of the bars in these colours."""
    (picture,) = boxes(view.scene, "plot")
    result = []
    for item in picture["items"]:
        if item["item"] != "rects" or "say" not in item:
            continue
        sentences = item["say"][0][1]
        for n, colour in enumerate(item["colour"]):
            if item["colours"][colour] in colours:
                result.append((item["x0"][n], item["x1"][n], sentences[item["which"][n]]))
    return result


def test_bars_are_those_of_the_record() -> None:
    view = PipelineView(block([copies_ahead(3, 5)] * 2))
    pipeline = view.record
    assert {bar[:2] for bar in bars(view, IN_FLIGHT_COLOUR)} == {
        (fill.start, (fill.landed or 0) + 1) for fill in pipeline.fills
    }
    assert {bar[:2] for bar in bars(view, USE_COLOUR)} == {(use.start, use.end) for use in pipeline.uses}
    assert bars(view, MISTAKE_COLOUR, STORE_COLOUR) == []
    for _, _, sentence in bars(view, IN_FLIGHT_COLOUR):
        assert "warps 0 and 1" in sentence
        assert "line 8" in sentence
        assert "line 6" in sentence
    marks = bars(view, "purple", "fg")
    assert sorted(bar[0] for bar in marks) == sorted(
        mark.position for mark in pipeline.marks if mark.kind in ("wait", "barrier")
    )
    view.close()


@pytest.mark.parametrize(("left_out", "kinds"), [("wait", {"use"}), ("barrier", {"use", "fill"})])
def test_mistakes_have_their_own_colour_and_both_lines(left_out: str, kinds: set[str]) -> None:
    view = PipelineView(block([copies_ahead(3, 6, [left_out])] * 2))
    wrong = bars(view, MISTAKE_COLOUR)
    assert {"use" if "use of fill" in sentence else "fill" for *_, sentence in wrong} == kinds
    assert all("line 8" in sentence and "line 10" in sentence for *_, sentence in wrong)
    assert sorted(use.start for use in view.record.uses) == [
        start for start, _, sentence in wrong if "use of fill" in sentence
    ]
    assert f"{len(view.record.mistakes)} mistake" in repr(view)
    (key,) = boxes(view.scene, "legend")
    assert [MISTAKE_COLOUR, "mistake"] in key["entries"]
    view.close()


def test_groups_of_warps_have_rows_of_their_own() -> None:
    view = PipelineView(block([stores(3), stores(3), [*stores(3), ("barrier", 0)]]))
    (picture,) = boxes(view.scene, "plot")
    names = [text for item in picture["items"] if item["item"] == "labels" for text in item["text"]]
    assert {"buffer 0", "buffer 1", "warps 0 and 1", "warp 2"} <= {*names}
    view.close()


def test_a_truncated_trace_has_a_note() -> None:
    view = PipelineView(block([copies_ahead(2, 3)], truncated=True, note="It was stopped."))
    assert f"{view.record.trace.steps} steps" in view.caption
    assert "It was stopped." in view.caption
    view.close()
