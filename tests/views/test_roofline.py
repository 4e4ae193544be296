"""Roofline chart: points where division puts them, roofs, arrows, what has no place; in words and drawn."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from gpulab.views import RooflineChart
from gpulab.views.roofline.chart import HEIGHT_PX, TOP_PX
from tests.views import synthetic
from tests.views.synthetic import items


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
        for time_ns, names in ((8e5, "abca"), (9.5e5, "d"), (12e5, "e")) for name in names
    ]  # fmt: skip
    chart = RooflineChart(dataclasses.replace(found, points=(*parts, matmul)))
    labels = {
        text: y
        for item in items(chart.draw(), "labels") for text, y in zip(item["text"], item["y"], strict=True)
    }  # fmt: skip
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
