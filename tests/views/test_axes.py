"""Axes: positions of values, ticks with grid lines, and labelled points."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from gpulab.views.parts.axes import Axes, Axis, make_log_axis

AXES = Axes(
    Axis(1, 1000, {1: "1", 10: "10", 1000: "1,000"}, "bytes", 10, has_grid=True),
    Axis(2, 64, {2: "two", 64: "many"}, "ns", 2, has_grid=True),
    100,
    20,
)


def test_a_logarithmic_axis_maps_equal_ratios_to_equal_distances() -> None:
    assert AXES.y(2) == 120
    assert AXES.y(64) == 20
    assert np.diff(AXES.y([2, 4, 8, 16])) == pytest.approx([-20, -20, -20])
    assert AXES.x([1, 10, 1000]) == pytest.approx([0, 1, 3])
    linear = Axes(Axis(0, 4), Axis(0, 50), 100, 0)
    assert list(linear.y([0, 25, 50])) == [100, 50, 0]
    upside_down = Axes(Axis(0, 4), Axis(5, 0), 100, 10)
    assert list(upside_down.y([0, 1, 5])) == [10, 30, 110]


def test_every_tick_has_a_grid_line_and_a_label() -> None:
    box = AXES.draw_plot(left=40, label="chart")
    across, upright = [item.wire() for item in box.items if item.kind == "rules"]
    assert list(across["y0"]) == list(across["y1"]) == [120, 20]
    assert list(upright["x0"]) == list(upright["x1"]) == pytest.approx([0, 1, 3])
    assert {*upright["y0"], *upright["y1"]} == {20, 120}
    up, name, ticks, below = [item.wire() for item in box.items if item.kind == "labels"]
    assert (list(up["text"]), list(up["y"])) == (["two", "many"], [120, 20])
    assert (list(ticks["text"]), list(ticks["x"])) == (["1", "10", "1,000"], pytest.approx([0, 1, 3]))
    assert (name["text"], below["text"]) == (["ns"], ["bytes"])
    assert box.height > ticks["y"][0] > 120


@pytest.mark.parametrize(
    ("low", "high", "marks", "ticks"),
    [
        (3, 180, (1, 2, 5), [2, 5, 10, 20, 50, 100, 200]),
        (3, 180, (1,), [1, 10, 100, 1000]),
        (20, 20, (1, 2, 5), [20, 50]),
        (0.02, 0.3, (1,), [0.01, 0.1, 1]),
    ],
)
def test_logarithmic_ticks_enclose_the_value_range(
    low: float, high: float, marks: tuple[int, ...], ticks: list[float]
) -> None:
    axis = make_log_axis(low, high, "", marks)
    assert [*axis.ticks] == pytest.approx(ticks)
    assert axis.domain == pytest.approx(tuple(np.log10([ticks[0], ticks[-1]])))


def test_points_are_drawn_at_their_values_with_a_label() -> None:
    item: dict[str, Any] = AXES.draw_points(
        [10, 100], [4, 8], ["low", "high"], [0, 1], ["accent", "tail"]
    ).wire()
    middle = (np.asarray(item["x0"]) + np.asarray(item["x1"])) / 2
    assert middle == pytest.approx([1, 2])
    assert (np.asarray(item["y0"]) + np.asarray(item["y1"])) / 2 == pytest.approx([100, 80])
    assert [item["say"][0][1][index] for index in item["which"]] == ["low", "high"]
    assert (item["colour"], item["colours"]) == ([0, 1], ["accent", "tail"])
