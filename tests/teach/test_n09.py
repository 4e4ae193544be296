"""Notebook 09's own figures: SMs that are busy, and what nvidia-smi wrote in the same seconds."""

from __future__ import annotations

import numpy as np
import pytest

import gpulab as gl
from gpulab.lab.monitor.recorder import recorded_session
from gpulab_course.content.n09_profiling import figures, nvidia_smi
from gpulab_course.content.screens import Screens


def test_one_block_is_a_hundred_per_cent_and_one_sm() -> None:
    view = figures.BusySms(recorded_session())
    assert "100 % GPU utilization, 0.76 % of the SMs" in view.sentence()
    first_png = view.png()
    view.launch_index = len(figures.SPINS) - 1
    assert "100 % of the SMs active" in view.sentence()
    assert view.png() != first_png
    assert view.pictured == {"launch_index": view.launch_index}


def test_nvidia_smi_and_the_monitor_agree() -> None:
    """Two programs that read the same GPU at once, each with a clock of its own."""
    record = recorded_session()
    headings = {
        "dmon": ("sm (%)", "pwr (W)"),
        "query": ("utilization.gpu [%]", "power.draw.instant [W]"),
    }
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


def test_the_record_supports_the_notebook_on_clocks_and_dram() -> None:
    record = recorded_session()
    ones = record.within(figures.ONES)
    random = record.within(figures.PRODUCT)
    limit_w = record.power_limit_w or 0
    assert (random.mean_power_w or 0) > 0.95 * limit_w
    assert (ones.mean_power_w or 0) < 0.6 * limit_w
    for phase in (ones, random):
        assert figures.held(phase) == ["software power cap"]
    wide = record.within(figures.ADDITION_WIDE)
    assert (wide.mean_power_w or 0) > (ones.mean_power_w or 0)
    clocks = [phase_.mean("sm_clock") or 0 for phase_ in (random, ones, wide)]
    assert clocks == sorted(clocks)
    assert figures.held(wide) == []
    assert (wide.mean("dram") or 0) > 2 * (record.within(figures.ADDITION).mean("dram") or 0)


def test_without_sensors_nothing_runs_to_be_watched() -> None:
    assert gl.which_device().kind == "virtual"
    assert figures.phases() == []
    assert figures.with_counters(figures.Monitor(record=recorded_session())).record.sms == 132


def test_columns_of_a_recorded_table_are_those_of_their_headings() -> None:
    screens = Screens("gpulab_course.content.n09_profiling", "torch_profiler")
    table = screens.columns("Name", "# of Calls")
    assert table.headings == ("Name", "# of Calls")
    assert dict(table.rows)["aten::addmm"] == "16"  # two linear layers, eight steps
    assert "recorded on NVIDIA H200" in table.title
    assert "record_function" in screens.program
    with pytest.raises(KeyError, match="No command has the words nsys"):
        screens.screen("nsys")
