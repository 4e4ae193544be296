"""Boxes: the fields that are sent to the browser, and errors for unknown fields."""

from __future__ import annotations

import pytest

from gpulab.views.parts.boxes import column, fold, slider, words
from gpulab.views.parts.pack import pack
from gpulab.views.parts.plots import plot


def test_wire_format_omits_fields_without_a_value() -> None:
    inner = plot(40, (0, 2), trait="at", values=[1, 2])
    packed, _ = pack(column(words("a", only="page"), fold("more", inner), None))
    first_box, folded = packed["boxes"]
    assert first_box == {"box": "words", "text": "a", "style": "plain", "only": "page"}
    assert (folded["box"], folded["summary"], folded["opened"]) == ("fold", "more", True)
    assert (folded["inner"]["trait"], folded["inner"]["values"]) == ("at", [1, 2])
    assert not {"only", "name", "hint", "marks", "chosen", "most_zoom"} & folded["inner"].keys()
    assert slider("n", "n", (1, 2), ("one", "two")).wire()["values"] == [1, 2]


def test_an_unknown_box_field_is_refused() -> None:
    with pytest.raises(TypeError, match="hnit"):
        plot(40, (0, 2), hnit="Point at something.")
    with pytest.raises(TypeError, match="colour"):
        words("a", colour="accent")
