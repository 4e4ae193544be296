"""Parts of views without a browser: packing, texts, ticks, layout, and painted pixels."""

from __future__ import annotations

import io
import json
from typing import Any

import numpy as np
import pytest
from PIL import Image

from gpulab.views import LaunchChart
from gpulab.views.parts import palette, picture
from gpulab.views.parts.items import Polyline, Rects, Spans
from gpulab.views.parts.pack import pack
from gpulab.views.parts.page import SAVED_NOTE, make_page
from gpulab.views.parts.plot_picture import make_element_sentence
from gpulab.views.parts.plots import draw_lane_grid, make_x_axis, plot
from gpulab.words import number
from tests.views import synthetic

SHARP = picture.SHARPNESS


def rgb(name: str) -> tuple[int, ...]:
    return tuple(bytes.fromhex(palette.find_hex(name)[1:]))


def painted(box: dict[str, Any], width: float = 500) -> Image.Image:
    pen = picture.Pen(width, box.height)
    picture.lay_out(box, width)[1](pen, 0, 0)
    return pen.image


def test_packing_keeps_values_and_stores_shared_arrays_once() -> None:
    kinds = (np.uint8, np.int16, np.int32, np.float32, np.float64, np.uint64)
    columns = {str(np.dtype(kind)): np.array([3, 0, 7], kind) for kind in kinds}
    tree, data = pack(
        {"a": [columns, columns["uint8"]], "whole": np.array([1, -2]), "true": np.array([True])}
    )
    json.dumps(tree)

    def column(place: dict[str, list[Any]]) -> np.ndarray:
        code, offset, length = place["$"]
        assert offset % 8 == 0
        return np.frombuffer(data, np.dtype(f"<{code}"), length, offset)

    for name, values in columns.items():
        assert column(tree["a"][0][name]).tolist() == values.tolist()
    assert tree["a"][1] == tree["a"][0]["uint8"]
    assert tree["whole"]["$"][0] == "i4", "JavaScript cannot compute with 8-byte integers beside others"
    assert pack(np.array([1 << 40]))[0]["$"][0] == "f8"
    assert column(tree["true"]).tolist() == [1]


def test_temporary_arrays_are_packed_separately() -> None:
    """Arrays that exist only while the tree is packed have separate offsets in the data."""

    class Made(Polyline):
        def wire(self) -> dict[str, Any]:
            return {"x": np.arange(5) + len(self.x), "n": np.float32(1.5), "on": np.bool_(True)}

    tree, data = pack([Made(range(n), range(n), "accent") for n in range(20)])
    assert [entry["x"]["$"] for entry in tree] == [["i4", 24 * n, 5] for n in range(20)]
    assert np.frombuffer(data, "<i4").reshape(20, 6)[:, 0].tolist() == [*range(20)]
    assert {(entry["n"], entry["on"]) for entry in tree} == {(1.5, True)}


@pytest.mark.parametrize(
    ("values", "kind"),
    [
        ([(1 << 31) - 1], "i4"),
        ([-(1 << 31) + 1], "i4"),
        ([1 << 31], "f8"),
        ([-(1 << 31)], "f8"),
        ([0, -(1 << 40)], "f8"),
        ([], "i4"),
    ],
)
def test_integers_are_packed_in_four_bytes_if_they_fit(values: list[int], kind: str) -> None:
    tree, data = pack(np.array(values, np.int64))
    assert tree["$"] == [kind, 0, len(values)]
    assert np.frombuffer(data, f"<{kind}")[: len(values)].tolist() == values


def test_a_page_contains_escaped_text_picture_and_traits() -> None:
    traits = {"data": b"\x00\xff", "text": "</script>ä"}
    text = make_page(traits, "export default {}", "p {}", 'a "title" <x>', "words <y>", b"png")
    assert "<title>a &quot;title&quot; &lt;x&gt;</title>" in text
    assert '<img alt="a &quot;title&quot; &lt;x&gt;" src="data:image/png;base64,cG5n">' in text
    assert "<p>words &lt;y&gt;</p>" in text
    assert "const gpulabView = {}" in text
    sent = json.loads(text.partition("const traits = ")[2].partition(";\n")[0])
    assert sent == {"data": {"$bytes": "AP8="}, "text": "</script>ä", "saved": SAVED_NOTE}
    assert text.count("</script>") == 1
    assert "p {}" in text


def test_element_sentences_are_composed_of_pieces() -> None:
    item = Rects(
        np.array([5, 1_500]),
        np.array([1_234, 4_100_000]),
        [0, 0],
        [1, 1],
        "accent",
        columns={"names": ["SM 3", "SM 7"], "block": np.array([2, 12_345]), "row": np.array([0, 1])},
    )
    pieces = [
        "Block ",
        ["block"],
        " on ",
        ["row", "names"],
        " for ",
        ["x1", "time", "x0"],
        ["row", ["", " late"]],
    ]
    assert make_element_sentence(item, 0, pieces) == "Block 2 on SM 3 for 1.23 µs"
    assert make_element_sentence(item, 1, pieces) == "Block 12,345 on SM 7 for 4.1 ms late"


@pytest.mark.parametrize("limit", [1, 7, 12.4, 108, 9_080, 1_000_000])
@pytest.mark.parametrize("zoom", [False, True])
def test_ticks_have_levels_of_detail_and_stay_inside_the_axis(limit: float, zoom: bool) -> None:
    levels = make_x_axis(0, limit, number, "x", zoom=zoom).levels
    steps = [step for step, _ in levels]
    assert steps == sorted(steps, reverse=True)
    assert all(step * (len(texts) - 1) <= limit * 1.001 for step, texts in levels)
    assert 2 <= len(levels[0][1]) <= 5
    assert len(levels[-1][1]) > (2 * 64 if zoom else 5), "two ticks in sight at the strongest zoom"
    integers = make_x_axis(0, 12, number, "x", integers_only=True).levels
    assert min(step for step, _ in integers) == 1


def test_skipping_hidden_spans_does_not_change_the_picture() -> None:
    """Spans inside an already painted pixel are skipped. The picture equals one with all spans painted."""
    random = np.random.default_rng(3)
    start = np.sort(random.uniform(0, 100, 3000))
    end = start + random.exponential(0.2, 3000)
    row = random.integers(0, 3, 3000)
    colour = random.integers(0, 2, 3000)
    item_ = Spans(start, end, row, colour, ["accent", "tail"], rows=3, top=0, height=30, joined=True)
    image = np.asarray(painted(plot(30, (0, 100), item_, left=0, right=0), 200))
    expected = np.full((3, 400), -1)
    reached = [0] * 3
    for a, b, r, c in zip(start, end, row, colour, strict=True):
        start_px = min(399, int(a * 4))
        right = min(400, max(start_px + 1, int(b * 4)))
        if right > reached[r]:
            expected[r, start_px:right] = c
            reached[r] = right
    for r in range(3):
        for x in range(400):
            name = ("accent", "tail", "grid")[expected[r, x]]
            assert tuple(image[20 * r + 10, x]) == rgb(name), (r, x)


def test_rows_too_low_for_lanes_blend_colours_by_share() -> None:
    """The lanes in use are half of four, all four, and one of each colour. Each row is one pixel high."""
    lanes = [
        (0, 40, 0, 0),
        (0, 40, 1, 0),
        *((40, 80, lane, 1) for lane in range(4)),
        (80, 100, 0, 0),
        (80, 100, 3, 1),
    ]
    start, end, lane, colour = (np.array(column) for column in zip(*lanes, strict=True))
    row = np.full(len(lanes), 7)
    item_ = Spans(start, end, row, colour, ["accent", "tail"], rows=20, top=0, height=20, lane=lane, lanes=4)
    image = np.asarray(painted(plot(20, (0, 100), item_, left=0, right=0), 200))
    accent, tail, ground = (np.array(rgb(name), float) for name in ("accent", "tail", "grid"))
    expected = {20: (accent + ground) / 2, 60: tail, 90: (accent + tail + 2 * ground) / 4}
    for x, colour_ in expected.items():
        assert np.abs(image[7 * SHARP, x * 2 * SHARP] - colour_).max() <= 1, x
        assert tuple(image[9 * SHARP, x * 2 * SHARP]) == rgb("grid")


def test_a_reduced_step_curve_keeps_its_peaks() -> None:
    steps = 100_000
    y = np.full(steps, 50.0)
    y[77_777] = 3
    item = Polyline(np.arange(steps), y, "accent", step=True)
    assert len(item.x) < 10_000
    assert item.y.min() == 3
    assert abs(item.x[item.y.argmin()] - 77_777) < 50


def test_lane_grid_spans_reproduce_the_lane_states() -> None:
    states = np.random.default_rng(5).integers(0, 3, (32, 200))
    item = draw_lane_grid(states, ["grid", "accent", "warn"], top=0, row_height=4)
    again = np.full(states.shape, -1)
    for start, end, row, colour in zip(item.x0, item.x1, item.row, item.colour, strict=True):
        assert (again[row, int(start) : int(end)] == -1).all()
        again[row, int(start) : int(end)] = colour
    assert (again == states).all()
    assert (np.diff(item.x0) >= 0).all()


def test_tail_blocks_are_painted_in_the_tail_colour() -> None:
    view = LaunchChart(synthetic.launch_trace(256, sm_count=20, blocks=200))  # every place has its row
    image = np.asarray(Image.open(io.BytesIO(view.png())).convert("RGB")).reshape(-1, 3)
    tail = view.waves.in_tail
    lasted = (view.trace.end_ns - view.trace.start_ns)[view.waves.order]
    share = lasted[tail].sum() / lasted.sum()
    orange, blue = ((image == rgb(name)).all(axis=1).sum() for name in ("tail", "accent"))
    assert orange / (orange + blue) == pytest.approx(share, abs=0.06)
    view.close()


def test_a_scene_is_small_json_with_binary_columns() -> None:
    view = LaunchChart(synthetic.wide_launch(100_000))
    json.dumps(view.scene)
    assert len(json.dumps(view.scene)) < 200_000
    assert isinstance(view.data, bytes)
    view.close()
