"""Roofline chart: points, ceilings, arrows, labels, and kernels that have no point."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import pytest
from matplotlib.colors import to_hex
from matplotlib.figure import Figure

from gpulab.views import RooflineChart
from gpulab.views.parts.palette import find_hex
from gpulab.views.roofline.chart import COLOURS, LABEL_HEIGHT_SHARE, _separate_label_heights
from tests.views import synthetic
from virtualgpu.records.launch.roofline import Ceilings, Level, Roofline, RooflinePoint


def axes_of(chart: RooflineChart) -> Any:
    return chart.plot(Figure().subplots())


def marks(ax: Any) -> list[tuple[float, float, str]]:
    """Intensity, rate and colour of each mark."""
    return [
        (x, y, to_hex(line.get_color()))
        for line in ax.lines
        if line.get_linestyle() == "None"
        for x, y in zip(line.get_xdata(), line.get_ydata(), strict=True)
    ]


def arrows(ax: Any) -> list[tuple[tuple[float, float], tuple[float, float]]]:
    """Where each arrow begins and ends."""
    return [
        (text.xyann, text.xy) for text in ax.texts if text.arrow_patch is not None and not text.get_text()
    ]


def test_each_kernel_has_one_point_per_memory_level() -> None:
    ax = axes_of(RooflineChart(synthetic.roofline()))
    marks_ = marks(ax)
    assert [x for x, _, _ in marks_] == pytest.approx(
        [2 / 8, 2 / 12, 30 / 20, 30 / 30, 2000 / 20, 2000 / 200, 2000 / 4000]
    )
    assert [y for _, y, _ in marks_] == pytest.approx([250] * 2 + [1875] * 2 + [8000] * 3)
    levels: tuple[Level, ...] = ("DRAM", "L2", "DRAM", "L2", "DRAM", "L2", "shared")
    assert [colour for *_, colour in marks_] == [find_hex(COLOURS[level]) for level in levels]
    assert (ax.get_xscale(), ax.get_yscale()) == ("log", "log")
    assert "operations per byte" in ax.get_xlabel()
    assert "GFLOP/s" in ax.get_ylabel()


def test_the_lowest_ceiling_over_a_kernel_is_named() -> None:
    chart = RooflineChart(synthetic.roofline())
    text = chart.describe()
    # 0.25 operations per byte times 2,000 GB/s; two f64 count as much as four f32; 0.5 times 20,000 GB/s.
    assert "saxpy reaches 250 GFLOP/s, 50 % of the DRAM ceiling (500 GFLOP/s)" in text
    assert "stencil reaches 1,875 GFLOP/s, 62 % of the DRAM ceiling (3,000 GFLOP/s)" in text
    assert "matmul reaches 8,000 GFLOP/s, 80 % of the shared memory ceiling (10 TFLOP/s)" in text
    assert chart.record.peak(chart.record.points[1]) == pytest.approx(30e6 / (20e6 / 20_000 + 10e6 / 10_000))
    assert repr(chart).startswith("Roofline of 3 kernels: matmul reaches")


def test_a_kernel_without_floating_point_has_no_point() -> None:
    chart = RooflineChart(synthetic.roofline())
    assert "copy is not in the chart: it performs no floating-point operations" in chart.describe()
    assert "copy" not in [text.get_text() for text in axes_of(chart).texts]


def test_arrows_lead_from_each_kernel_to_the_next_version() -> None:
    chart = RooflineChart(synthetic.roofline())
    first, second = arrows(axes_of(chart))
    assert first == (pytest.approx((0.25, 250)), pytest.approx((1.5, 1875)))
    assert second == (pytest.approx((1.5, 1875)), pytest.approx((100, 8000)))
    assert "saxpy → stencil: 0.5 × as fast." in chart.describe()


def test_arrows_join_points_of_the_level_with_the_largest_change() -> None:
    """As in a naive, a tiled and a register-tiled matrix multiplication, where L2 traffic changes most."""
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
    (first_begin, first_end), (_, second_end) = arrows(axes_of(chart))
    assert (first_begin[0], first_end[0], second_end[0]) == pytest.approx((6, 6, 24))
    assert "The arrows join the points of L2." in chart.describe()


def test_launches_without_a_common_level_have_no_arrows() -> None:
    first, second, *_ = synthetic.roofline().points
    points = (
        dataclasses.replace(first, size_bytes={"DRAM": 100}),
        dataclasses.replace(second, size_bytes={"shared": 100}),
    )
    chart = RooflineChart(dataclasses.replace(synthetic.roofline(), points=points))
    assert arrows(axes_of(chart)) == []
    assert "arrows join" not in chart.describe()


def tensor_roofline() -> Roofline:
    """Matrix products with ceilings that are equal, near or far from each other."""
    first, *_ = synthetic.roofline().points
    ceilings = Ceilings(
        device="H200",
        gbps={"DRAM": 4814.0, "L2": 8073.0, "shared": 33454.0},
        gflops={
            "f32": 67e3,
            "f64": 33.5e3,
            "tensor f64 to f64": 66e3,
            "tensor f16 to f32": 989e3,
            "tensor bf16 to f32": 989e3,
            "tensor tf32 to f32": 494.5e3,
            "tensor s8 to s32": 1979e3,
        },
    )
    points = [
        dataclasses.replace(first, name=f"k{number}", flops={kind: 8_000_000_000}, time_ns=1e5 * (number + 1))
        for number, kind in enumerate(ceilings.gflops)
    ]
    return Roofline(ceilings=ceilings, points=tuple(points))


def limited(flops: dict[str, int], shared_bytes: int, time_ns: float = 1e5) -> str:
    first, *_ = synthetic.roofline().points
    sizes: dict[Level, int] = {"DRAM": 1, "shared": shared_bytes}
    point = dataclasses.replace(first, name="k", flops=flops, size_bytes=sizes, time_ns=time_ns)
    return RooflineChart(dataclasses.replace(tensor_roofline(), points=(point,))).describe()


def test_a_kernel_on_tensor_cores_is_compared_with_their_ceiling() -> None:
    operations = 49_450_000_000  # 50 µs at 989 TFLOP/s
    product = {"tensor f16 to f32": operations}
    assert "50 % of the tensor core ceiling (989 TFLOP/s)" in limited(product, 1)
    assert "50 % of the arithmetic ceiling (67 TFLOP/s)" in limited({"f32": 3_350_000_000}, 1)
    # Shared memory needs 80 µs of 100 µs, and then of 200 µs.
    text = limited(product, round(80e3 * 33454))
    assert "80 % of the shared memory ceiling" in text
    assert "tensor cores wait for shared memory" in text
    assert "wait" not in limited(product, round(80e3 * 33454), time_ns=2e5)
    assert "wait" not in limited({"f32": 1_000_000_000}, round(80e3 * 33454))


def test_ceilings_that_mma_sync_does_not_reach_have_a_note() -> None:
    def notes(arithmetic_type: str, **shares: float) -> str:
        first, *_ = synthetic.roofline().points
        point = dataclasses.replace(first, name="k", flops={arithmetic_type: 1_000_000})
        ceilings = dataclasses.replace(tensor_roofline().ceilings, mma_sync_shares=shares)
        return RooflineChart(Roofline(ceilings=ceilings, points=(point,))).describe()

    shares = {"f16 to f32": 0.617, "tf32 to f32": 0.613}
    assert "mma.sync reached 62 % of the published rate for f16 to f32 (recorded)" in notes(
        "tensor f16 to f32", **shares
    )
    assert "mma.sync" not in notes("tensor s8 to s32", **shares)
    assert "mma.sync" not in notes("f32", **shares)
    assert "mma.sync" not in notes("tensor f16 to f32")


def test_peak_assumes_cuda_and_tensor_cores_overlap() -> None:
    roofline = tensor_roofline()
    first, *_ = roofline.points
    mixed = dataclasses.replace(
        first, flops={"tensor f16 to f32": 989_000_000, "f32": 6_700_000, "f64": 6_700_000}
    )
    # 1,000 ns of tensor cores; 100 and 200 ns of CUDA cores, one after the other.
    assert roofline.peak(mixed) == pytest.approx((989_000_000 + 13_400_000) / 1_000)
    slow = dataclasses.replace(
        first, flops={"tensor f16 to f32": 989_000, "f32": 67_000_000, "f64": 33_500_000}
    )
    assert roofline.peak(slow) == pytest.approx((989_000 + 100_500_000) / 2_000)
    assert roofline.find_ceiling(dataclasses.replace(slow, size_bytes={}))[0] == "CUDA cores"


def test_operations_without_a_published_rate_have_no_ceiling() -> None:
    text = limited({"tensor f8 to f32": 1_000_000}, 1_000_000)
    assert "of the shared memory ceiling" in text


def test_launches_at_one_point_share_a_label_inside_the_chart() -> None:
    marks_ = synthetic.roofline()
    saxpy, _, matmul, _ = marks_.points
    parts = [
        dataclasses.replace(saxpy, name=name, time_ns=time_ns)
        for time_ns, names in ((8e5, "abca"), (9.5e5, "d"), (12e5, "e"))
        for name in names
    ]
    ax = axes_of(RooflineChart(dataclasses.replace(marks_, points=(*parts, matmul))))
    labels = {text.get_text(): text.xyann[1] for text in ax.texts}
    assert {"a, b and 1 more", "d", "e", "matmul"} <= set(labels)
    heights = sorted(labels[name] for name in ("a, b and 1 more", "d", "e"))
    assert min(np.diff(heights)) >= LABEL_HEIGHT_SHARE - 1e-9
    assert heights[0] > 0


def test_labels_are_separated_and_stay_above_the_bottom() -> None:
    foot = LABEL_HEIGHT_SHARE / 2
    assert _separate_label_heights([foot - 0.02, 0.9, foot]) == pytest.approx(
        [foot, 0.9, foot + LABEL_HEIGHT_SHARE]
    )
    assert _separate_label_heights([0.9, 0.9, 0.2]) == pytest.approx([0.9 - LABEL_HEIGHT_SHARE, 0.9, 0.2])
    assert _separate_label_heights([]) == []


def axes_under(highest: float, *gbps: float) -> Any:
    """The axes of one launch that reaches half of what is possible, at the foot of the flat line."""
    levels: dict[Level, float] = dict(zip(("DRAM", "L2", "shared"), gbps, strict=True))  # type: ignore[arg-type]
    point = RooflinePoint(
        name="k",
        provenance=synthetic.MODELLED,
        flops={"f32": 1_000_000_000},
        time_ns=2e9 / highest,
        size_bytes={"DRAM": round(1e9 * gbps[0] / highest), "L2": 0, "shared": 0},
    )
    ceilings = Ceilings(device="a GPU", gbps=levels, gflops={"f32": highest})
    return axes_of(RooflineChart(Roofline(ceilings=ceilings, points=(point,), path=False)))


def test_each_ceiling_has_the_slope_of_its_bandwidth() -> None:
    ax = axes_under(10, 1, 10, 99)
    slopes = {line.get_label().partition(":")[0]: line for line in ax.lines}
    for name, gbps in (("DRAM", 1), ("L2", 10), ("shared memory", 99)):
        x, y = (np.asarray(data) for data in slopes[name].get_data())
        assert y == pytest.approx(gbps * x), name
        assert y[-1] == pytest.approx(10), "it ends at the flat line"
    assert slopes["DRAM"].get_label() == "DRAM: 1 GB/s"
    assert "f32: 10 GFLOP/s" in [text.get_text() for text in ax.texts]


def test_the_axes_end_near_the_data_and_the_ceilings() -> None:
    roofline = synthetic.roofline()
    ax = axes_of(RooflineChart(roofline))
    ridges = [20_000 / gbps for gbps in roofline.ceilings.gbps.values()]
    xs = [*ridges, *(x for x, _, _ in marks(ax))]
    ys = [20_000, *(y for _, y, _ in marks(ax))]
    for values, (low, high) in ((xs, ax.get_xlim()), (ys, ax.get_ylim())):
        assert min(values) / 2 < low < min(values)
        assert max(values) < high < max(values) * 2
