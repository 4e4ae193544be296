"""Notebook 09: busy SMs, recorded nvidia-smi and profiler output, and the pictures."""

from __future__ import annotations

import re

import numpy as np
import pytest

import gpulab as gl
from gpulab import session
from gpulab.lab.monitor.recorder import load_recorded_session
from gpulab_course.content import kernels
from gpulab_course.content.n09_profiling import figures, nvidia_smi, reports
from gpulab_course.content.screens import Screens
from virtualgpu.records import Provenance, Timeline
from virtualgpu.records.analysis import PathStep
from virtualgpu.records.timeline import Activity


def test_one_block_shows_full_gpu_utilization_on_one_sm() -> None:
    view = figures.BusySms(load_recorded_session())
    assert "100 % GPU utilization, 0.76 % of the SMs" in view.sentence()
    first_png = view.png()
    view.launch_index = len(figures.SPIN_LAUNCH_SHAPES) - 1
    assert "100 % of the SMs active" in view.sentence()
    assert view.png() != first_png
    assert view.pictured == {"launch_index": view.launch_index}


def test_nvidia_smi_and_the_monitor_agree() -> None:
    """The two programs read the same GPU at the same time, each with its own clock."""
    record = load_recorded_session()
    headings = {"dmon": ("sm (%)", "pwr (W)"), "query": ("utilization.gpu [%]", "power.draw.instant [W]")}
    for tool, names in headings.items():
        table = nvidia_smi.wrote(tool)
        columns = [table.headings.index(name) for name in names]
        for phase, *cells in table.rows:
            if phase.startswith("spin") or phase == figures.PRODUCT:
                values = [float(cells[column - 1].split()[0]) for column in columns]
                mine = record.within(phase)
                assert abs(values[0] - np.nanmax(mine["utilization"])) <= 1, phase
                assert abs(values[1] - (mine.mean_power_w or 0)) < 0.1 * values[1], (
                    phase
                )  # instantaneous power varies


def test_recorded_power_and_clocks_agree_with_the_notebook() -> None:
    record = load_recorded_session()
    ones = record.within(figures.ONES)
    random = record.within(figures.PRODUCT)
    limit_w = record.power_limit_w or 0
    assert (random.mean_power_w or 0) > 0.95 * limit_w
    assert (ones.mean_power_w or 0) < 0.6 * limit_w
    for phase in (ones, random):
        assert figures.find_clock_reasons(phase) == ["software power cap"]
    wide = record.within(figures.ADDITION_WIDE)
    assert (wide.mean_power_w or 0) > (ones.mean_power_w or 0)
    clocks = [phase_.mean("sm_clock") or 0 for phase_ in (random, ones, wide)]
    assert clocks == sorted(clocks)
    assert figures.find_clock_reasons(wide) == []
    assert (wide.mean("dram") or 0) > 2 * (record.within(figures.ADDITION).mean("dram") or 0)


def test_no_monitor_phases_run_without_sensors() -> None:
    assert gl.which_device().kind == "virtual"
    assert figures.phases() == []
    assert figures.with_counters(figures.Monitor(record=load_recorded_session())).record.sms == 132


def test_columns_of_a_recorded_table_are_selected_by_heading() -> None:
    screens = Screens("gpulab_course.content.n09_profiling", "torch_profiler")
    table = screens.columns("Name", "# of Calls")
    assert table.headings == ("Name", "# of Calls")
    assert dict(table.rows)["aten::addmm"] == "16"  # two linear layers, eight steps
    assert "recorded on NVIDIA H200" in table.title
    assert "record_function" in screens.program
    with pytest.raises(KeyError, match="No recorded command contains the words nsys"):
        screens.screen("nsys")


def test_the_roofline_ridge_is_where_bandwidth_reaches_the_peak() -> None:
    caption = repr(figures.ceiling(20_000, 2_000, (4, 10, 40)))
    assert "rises up to the ridge at 10 operations per byte" in caption
    assert "with 4 operations per byte at most 8,000 GFLOP/s" in caption
    assert caption.count("20,000 GFLOP/s") == 3  # the peak of the device, and two kernels


def test_the_reported_power_follows_the_counted_energy() -> None:
    caption = repr(figures.power_after(load_recorded_session(), figures.PRODUCT))
    assert "jumps to 649 W at once, and ends at 722 W" in caption
    assert caption.endswith("within 5 % of this value after 1.2 s.")


def test_the_critical_path_picture_shows_hidden_operations() -> None:
    def kernel(number: int, name: str, stream_id: int, start_ns: int, end_ns: int) -> Activity:
        return Activity(
            kind="CONCURRENT_KERNEL",
            name=name,
            device_id=0,
            stream_id=stream_id,
            correlation_id=number,
            start_ns=start_ns,
            end_ns=end_ns,
        )

    kernels = kernel(1, "embed", 7, 0, 100), kernel(2, "mix", 13, 100, 150), kernel(3, "gate", 7, 100, 300)
    record = Timeline(
        provenance=Provenance("modelled", "virtual T4"),
        method="model",
        start_ns=0,
        end_ns=300,
        activities=kernels,
    )
    path = [
        PathStep(kind="operation", name=name, start_ns=0, end_ns=1, where="", correlation_id=number)
        for number, name in ((1, "embed"), (3, "gate"))
    ]
    caption = repr(figures.path_of(record, path))
    assert caption.startswith("3 kernels in 2 streams, modelled on virtual T4.")
    assert caption.endswith("On the critical path: embed, gate. Hidden behind it (hatched): mix.")


def test_sectors_reported_by_nsight_compute_equal_the_virtual_gpu() -> None:
    """The rule for uncoalesced accesses counts all sectors and the excess above one per 32 bytes."""
    rule = next(rule for rule in reports.read_launches()[0].rules if rule.name == "UncoalescedGlobalAccess")
    excess, total = (int(number) for number in re.findall(r"\d{6,}", rule.message))
    with session.on_device("virtual:H200"):
        example = kernels.example("transpose", (256, 256))
        launch = gl.launch(**kernels.launch("transpose_naive", *example.arrays).step)
        sectors = launch.count().record.total("sectors", space="global")
    assert sectors * (4096 // 256) ** 2 == total
    assert excess == total - 2 * 4096**2 * 4 // 32
    assert rule.saving_fraction == pytest.approx(excess / total, abs=0.02)


def test_the_nsight_compute_report_agrees_with_the_notebook() -> None:
    naive, tiled = reports.read_launches()
    assert (naive.kernel, tiled.kernel) == ("transpose_naive", "transpose_tiled")
    throughputs = (
        "DRAM Throughput",
        "L2 Cache Throughput",
        "L1/TEX Cache Throughput",
        "Compute (SM) Throughput",
    )
    assert max(throughputs, key=naive.metrics.__getitem__) == "L2 Cache Throughput"
    assert max(throughputs, key=tiled.metrics.__getitem__) == "L1/TEX Cache Throughput"
    assert 1 - tiled.metrics["Duration"] / naive.metrics["Duration"] == pytest.approx(0.71, abs=0.005)
    first = reports.ncu_rules("transpose_tiled", 1).rows[0]
    assert first[1] == "93 %"
    assert "bank conflict" in first[2]
    assert naive.metrics["Memory Throughput"] < 100  # of the first section, in percent


def test_the_pytorch_trace_contains_the_operations_of_its_table() -> None:
    timeline = gl.open_timeline(reports.path("steps.json.gz")).record
    table = Screens("gpulab_course.content.n09_profiling", "torch_profiler").columns("Name", "# of Calls")
    counts = dict(table.rows)
    assert sum(one.name == "aten::addmm" for one in timeline.ranges) == int(counts["aten::addmm"]) == 16
    assert sum("gemm" in one.name for one in timeline.activities) == 16
    assert timeline.provenance.device == "NVIDIA H200"
