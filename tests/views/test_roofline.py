"""Roofline chart: points where division puts them, roofs, arrows, what has no place; in words and drawn."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from gpulab.views import RooflineChart
from gpulab.views.parts.boxes import Plot
from gpulab.views.roofline.chart import HEIGHT_PX, LINE_PX, TOP_PX, _apart
from tests.views import synthetic
from tests.views.synthetic import items
from virtualgpu.records.launch.roofline import Ceilings, Level, Roofline, RooflinePoint


def test_each_kernel_has_a_point_a_level_at_its_intensity_and_rate() -> None:
    chart = RooflineChart(synthetic.roofline())
    (marks,) = items(chart.draw(), "rects")
    middle = (np.asarray(marks["x0"]) + np.asarray(marks["x1"])) / 2
    expected = [2 / 8, 2 / 12, 30 / 20, 30 / 30, 2000 / 20, 2000 / 200, 2000 / 4000]
    assert 10**middle == pytest.approx(expected)
    heights = (np.asarray(marks["y0"]) + np.asarray(marks["y1"])) / 2
    saxpy, stencil, matmul = heights[[0, 2, 4]]
    assert heights == pytest.approx([saxpy] * 2 + [stencil] * 2 + [matmul] * 3)
    # 250, 1,875 and 8,000 GFLOP/s, logarithmic.
    assert (saxpy - stencil) / (stencil - matmul) == pytest.approx(np.log(7.5) / np.log(8000 / 1875))
    chart.close()


def test_the_lowest_roof_over_a_kernel_is_named() -> None:
    chart = RooflineChart(synthetic.roofline())
    told = chart.describe()
    # 0.25 operations a byte times 2,000 GB/s; two f64 count as much as four f32; 0.5 times 20,000 GB/s.
    assert "saxpy reaches 250 GFLOP/s, 50 % of what DRAM allows (500 GFLOP/s)" in told
    assert "stencil reaches 1,875 GFLOP/s, 62 % of what DRAM allows (3,000 GFLOP/s)" in told
    assert "matmul reaches 8,000 GFLOP/s, 80 % of what shared memory allows (10 TFLOP/s)" in told
    assert chart.record.peak(chart.record.points[1]) == pytest.approx(30e6 / (20e6 / 20_000 + 10e6 / 10_000))
    assert repr(chart).startswith("Roofline of 3 kernels: matmul reaches")
    chart.close()


def test_what_computes_nothing_is_named_and_has_no_point() -> None:
    chart = RooflineChart(synthetic.roofline())
    assert "copy is not in the chart: it computes no floating-point number" in chart.describe()
    assert (
        len([label for item in items(chart.draw(), "labels") for label in item["text"] if label == "copy"])
        == 0
    )
    chart.close()


def test_arrows_lead_from_before_to_after() -> None:
    chart = RooflineChart(synthetic.roofline())
    first, second = [rule for rule in items(chart.draw(), "rules") if rule["arrow"]]
    assert 10 ** np.array([*first["x0"], *first["x1"]]) == pytest.approx([0.25, 1.5])
    assert first["y0"][0] > first["y1"][0] == second["y0"][0] > second["y1"][0]
    assert "saxpy → stencil: 0.5 × as fast." in chart.describe()
    chart.close()


def test_all_arrows_of_a_path_are_at_the_level_whose_traffic_changes_most() -> None:
    """As a naive, a tiled and a register-tiled product: the tile only adds a level, registers relieve L2."""
    first, *_ = synthetic.roofline().points
    moved: list[dict[Level, int]] = [
        {"DRAM": 100, "L2": 1000},
        {"DRAM": 100, "L2": 1000, "shared": 4000},
        {"DRAM": 90, "L2": 250, "shared": 1000},
    ]
    points = [
        dataclasses.replace(first, name=name, flops={"f32": 6000}, size_bytes=sizes, time_ns=time_ns)
        for name, sizes, time_ns in zip("abc", moved, (8.0, 6.0, 4.0), strict=True)
    ]
    chart = RooflineChart(dataclasses.replace(synthetic.roofline(), points=tuple(points)))
    arrows = [rule for rule in items(chart.draw(), "rules") if rule["arrow"]]
    ends = [10 ** np.array([*rule["x0"], *rule["x1"]]) for rule in arrows]
    assert ends[0] == pytest.approx([6, 6])
    assert ends[1] == pytest.approx([6, 24])
    assert "The arrows join the points of L2." in chart.describe()
    chart.close()


def test_modelled_points_stand_beside_measured_ones() -> None:
    chart = RooflineChart(synthetic.roofline(synthetic.MEASURED, modelled=True))
    (marks,) = items(chart.draw(), "rects")
    said = marks["say"][0][1]
    assert len(said) == 14
    assert said[7].startswith("saxpy: 200 GFLOP/s as modelled")
    assert repr(chart).endswith("measured on NVIDIA H200.")
    chart.close()


def test_names_end_before_the_frame_and_do_not_meet(tmp_path: Path) -> None:
    chart = RooflineChart(synthetic.roofline())
    picture = np.asarray(Image.open(chart.save(tmp_path / "roof.png")).convert("L"))
    margin = picture[20:-20, -20:-6]
    assert margin.min() == margin.max(), "something is drawn at the picture's right edge"
    page = chart.save(tmp_path / "roof.html").read_text(encoding="utf-8")
    assert "80 % of what shared memory allows" in page
    (names,) = [item for item in items(chart.draw(), "labels") if "saxpy" in item["text"]]
    assert min(np.diff(sorted(names["y"]))) >= 13
    chart.close()


def test_launches_at_one_place_share_a_label_that_stays_in_the_chart() -> None:
    found = synthetic.roofline()
    saxpy, _, matmul, _ = found.points
    parts = [
        dataclasses.replace(saxpy, name=name, time_ns=time_ns)
        for time_ns, names in ((8e5, "abca"), (9.5e5, "d"), (12e5, "e"))
        for name in names
    ]
    chart = RooflineChart(dataclasses.replace(found, points=(*parts, matmul)))
    labels = {
        text: y
        for item in items(chart.draw(), "labels")
        for text, y in zip(item["text"], item["y"], strict=True)
    }
    assert {"a, b and 1 more", "d", "e", "matmul"} <= set(labels)
    heights = sorted(labels[name] for name in ("a, b and 1 more", "d", "e"))
    assert heights[0] + 12 < heights[1] < heights[2] - 12
    assert heights[2] < TOP_PX + HEIGHT_PX
    chart.close()


def test_a_table_of_many_kernels_waits_for_a_click() -> None:
    found = synthetic.roofline()
    for times, folded in ((2, False), (3, True)):  # of 4 launches, 3 have a place in the chart
        chart = RooflineChart(dataclasses.replace(found, points=found.points * times))
        assert ("Each kernel" in repr(chart.draw())) == folded
        chart.close()


def test_names_keep_a_line_apart_and_off_the_foot() -> None:
    foot = TOP_PX + HEIGHT_PX - LINE_PX / 2
    assert _apart([foot + 5, 20.0, foot]) == [foot, 20.0, foot - LINE_PX]
    assert _apart([30.0, 30.0, 200.0, 31.0, 30.0 + 2 * LINE_PX]) == [30.0, 43.0, 200.0, 56.0, 69.0]
    assert _apart([-50.0, 0.0]) == [-50.0, 0.0]
    assert _apart([]) == []


def under(highest: float, *gbps: float) -> Plot:
    """The chart of one launch that reaches half of what is possible, at the foot of the flat line."""
    levels: dict[Level, float] = dict(zip(("DRAM", "L2", "shared"), gbps, strict=True))  # type: ignore[arg-type]
    point = RooflinePoint(
        name="k",
        provenance=synthetic.MODELLED,
        flops={"f32": 1_000_000_000},
        time_ns=2e9 / highest,
        size_bytes={"DRAM": round(1e9 * gbps[0] / highest), "L2": 0, "shared": 0},
    )
    ceilings = Ceilings(device="a GPU", gbps=levels, gflops={"f32": highest})
    chart = RooflineChart(Roofline(ceilings=ceilings, points=(point,), path=False))
    (drawn,) = [box for box in chart.draw().boxes if isinstance(box, Plot)]
    chart.close()
    return drawn


@pytest.mark.parametrize(
    ("ridge", "low", "high"),
    [
        (19, 1, 100),
        (20, 1, 1_000),
        (10.5, 1, 100),
        (10.3, 0.1, 100),
        (76, 1, 1_000),
        (190, 10, 1_000),
    ],
)
def test_the_axis_of_intensities_has_room_beside_the_ridge(ridge: float, low: float, high: float) -> None:
    assert np.power(10, under(ridge, 1, 10, 100).domain) == pytest.approx((low, high))


@pytest.mark.parametrize(
    ("highest", "low", "high"),
    [
        (131, "1", "1,000"),
        (129.9, "0.1", "1,000"),
        (76, "0.1", "100"),
        (77, "0.1", "1,000"),
    ],
)
def test_the_axis_of_rates_has_room_above_the_highest(highest: float, low: str, high: str) -> None:
    ticks = next(item["text"] for item in items(under(highest, highest, 2e3, 3e3), "labels") if item["pin"])
    assert (ticks[0], ticks[-1]) == (low, high)


@pytest.mark.parametrize(
    ("gbps", "anchors"),
    [
        ((1, 10, 99), {"DRAM": "start", "L2": "end", "shared": "end"}),
        ((1, 10, 100), {"DRAM": "start", "L2": "end"}),  # whose slope would end where the chart begins
        ((1, 200, 5), {"DRAM": "start", "shared": "end"}),
        ((5, 1, 10), {"DRAM": "end", "L2": "start", "shared": "end"}),
    ],
)
def test_slopes_that_are_in_sight_are_named_and_the_lowest_below_it(
    gbps: tuple[float, ...], anchors: dict[str, str]
) -> None:
    named = {item["text"][0]: item["anchor"] for item in items(under(10, *gbps), "labels")}
    assert {name: anchor for name, anchor in named.items() if name in ("DRAM", "L2", "shared")} == anchors
