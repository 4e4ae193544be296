"""Device card and occupancy chart: units, unknown values, readings, and the chosen block size."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from matplotlib.colors import to_hex
from matplotlib.figure import Figure

import gpulab as gl
from gpulab import session
from gpulab.views import DeviceCard, OccupancyChart
from gpulab.views.device.facts import LIMITS, compute_fp32_tflops
from gpulab.views.occupancy.chart import LIMIT_COLOURS
from gpulab.views.parts.palette import find_hex
from tests.views import synthetic
from virtualgpu.records import DeviceMetrics


def test_unknown_values_are_shown_as_not_known() -> None:
    info = replace(synthetic.devices()[0], memory_bandwidth_gbps=None, boost_clock_mhz=None, fp32_tflops=None)
    texts = {
        quantity.name: quantity.format_with_unit(info) for group in LIMITS.values() for quantity in group
    }
    assert texts["Peak memory bandwidth"] == "not known"
    assert texts["Peak FP32"] == "not known"
    card = DeviceCard(info, synthetic.devices()[1:])
    assert card.png().startswith(b"\x89PNG")
    assert "GB/s" not in repr(card)
    card.close()


def test_fp32_rate_follows_from_lanes_and_clock() -> None:
    t4 = synthetic.devices()[1]
    assert t4.fp32_tflops is None
    assert compute_fp32_tflops(t4) == pytest.approx(8.1, abs=0.1)  # NVIDIA's datasheet for the T4


def test_refresh_updates_readings_and_explains_missing_ones() -> None:
    readings: list[int] = []

    def metrics() -> DeviceMetrics:
        readings.append(1)
        return synthetic.metrics(len(readings))

    card = DeviceCard(synthetic.devices()[0], read_metrics=metrics)
    assert len(readings) == 1
    card._handle_custom_msg({"kind": "refresh"}, [])
    assert len(readings) == 2
    matrix = {row["name"]: row for row in card.readings["rows"]}
    assert matrix["Fan speed"]["text"] == "not available"
    assert matrix["Fan speed"]["why"] == "This board has no fan of its own."
    assert matrix["Performance state"]["text"] == "P0"
    assert matrix["Temperature"]["text"] == "41 °C"
    assert card.readings["label"] == "measured on NVIDIA H200"
    card._on_message(card, {"kind": "something else"}, [])
    assert len(readings) == 2
    card.close()


def test_device_settings_have_their_own_provenance_label() -> None:
    virtual = gl.device()
    assert "As set up, modelled on virtual " in virtual.describe()
    assert "Stack of a thread 1 KiB" in virtual.describe()
    assert "L2 set aside to persist not available" in virtual.describe()
    assert "As set up" not in gl.device("T4").describe(), "nobody knows how a GPU of the table is set up"


def test_failing_readings_are_shown() -> None:
    def metrics() -> DeviceMetrics:
        raise OSError("NVML: driver not loaded")

    card = DeviceCard(synthetic.devices()[0], read_metrics=metrics)
    assert card.error == "Reading the device failed. OSError: NVML: driver not loaded"
    card.close()


def test_occupancy_bars_have_the_colour_of_the_limiting_resource() -> None:
    chart = OccupancyChart(synthetic.occupancies(), 256)
    sizes, limits = chart.plot(Figure().subplots(1, 2))
    *bars, chosen = sorted(sizes.patches, key=lambda bar: bar.get_width())
    assert len(bars) == len(chart.points) == 32
    heights = {round(bar.get_x() + 0.43): (bar.get_height(), to_hex(bar.get_facecolor())) for bar in bars}
    for index, point in enumerate(chart.points):
        colour = find_hex(LIMIT_COLOURS[point.limiters[0]])
        assert heights[index] == (pytest.approx(point.fraction), colour), point.block_threads
    assert chosen.get_height() == chart.point.fraction
    assert [text.get_text() for text in sizes.texts] == ["256\n▼"]
    assert sizes.get_xlabel() == "threads per block"
    assert [text.get_text() for text in limits.texts] == ["8", "32", "6 ◀ limits", "32"]
    (table,) = chart.tables()
    assert [row[:2] for row in table.rows] == [(p.block_threads, p.fraction) for p in chart.points]


def test_occupancies_of_other_devices_are_markers_over_the_bars() -> None:
    points = synthetic.occupancies()
    other = [
        replace(point, warps_per_sm=point.warps_per_sm // 2, provenance=synthetic.MEASURED)
        for point in points
    ]
    chart = OccupancyChart(points, 256, [other])
    ax, _ = chart.plot(Figure().subplots(1, 2))
    (marks,) = ax.lines
    assert list(marks.get_ydata()) == [point.fraction for point in other]
    assert list(marks.get_xdata()) == [*range(len(points))]
    assert marks.get_label() == "NVIDIA H200"
    assert chart.to_pandas("Other")["occupancy"].tolist() == [point.fraction for point in other]
    assert "On NVIDIA H200: 256 threads per block" in chart.describe()
    with pytest.raises(ValueError, match="up to 3"):
        OccupancyChart(points, 256, 4 * [other])


def test_occupancy_compares_with_the_device_passed_as_beside() -> None:
    source = """extern "C" __global__ void f(float* x) {
        __shared__ float tile[8192];
        tile[threadIdx.x] = x[threadIdx.x];
        __syncthreads();
        x[threadIdx.x] = tile[threadIdx.x ^ 1];
    }"""

    def fractions(device: str, **options: Any) -> list[list[float]]:
        gl.use_device(f"virtual:{device}")
        chart = gl.occupancy(session.cp().RawKernel(source, "f"), **options)
        return [
            [point.fraction for point in points] for points in (chart.points, *chart.points_of_other_devices)
        ]

    (t4,) = fractions("T4")
    a100, other = fractions("A100", beside="T4")
    assert other == t4 != a100


def test_occupancy_chart_refuses_missing_points() -> None:
    with pytest.raises(ValueError, match="no points to draw"):
        OccupancyChart([], 256)
    with pytest.raises(ValueError, match="no point for 100 threads per block"):
        OccupancyChart(synthetic.occupancies(), 100)
