"""Notebook 09's own figures: SMs that are busy, and what nvidia-smi wrote in the same seconds."""

from __future__ import annotations

import numpy as np

import gpulab as gl
from gpulab.course.n09_profiling import figures, nvidia_smi
from gpulab.lab.monitor.recorder import recorded_session


def test_one_block_is_a_hundred_per_cent_and_one_sm() -> None:
    view = figures.BusySms(recorded_session())
    assert "100 % GPU utilization, 0.76 % of the SMs" in view.sentence()
    one = view.png()
    view.at = len(figures.SPINS) - 1
    assert "100 % of the SMs active" in view.sentence()
    assert view.png() != one
    assert view.pictured == {"at": view.at}


def test_nvidia_smi_and_the_monitor_tell_of_the_same_seconds() -> None:
    """Two programs that read the same GPU at once, each with a clock of its own."""
    record = recorded_session()
    headings = {
        "dmon": ("sm (%)", "pwr (W)"),
        "query": ("utilization.gpu [%]", "power.draw.instant [W]"),
    }
    for tool, names in headings.items():
        table = nvidia_smi.wrote(tool)
        at = [table.headings.index(name) for name in names]
        for phase, *cells in table.rows:
            if phase.startswith("spin") or phase == figures.PRODUCT:
                told = [float(cells[column - 1].split()[0]) for column in at]
                mine = record.within(phase)
                assert abs(told[0] - np.nanmax(mine["utilization"])) <= 1, phase
                assert abs(told[1] - (mine.mean_power_w or 0)) < 0.05 * told[1], phase


def test_without_sensors_nothing_runs_to_be_watched() -> None:
    assert gl.which_device().kind == "virtual"
    assert figures.phases() == []
    assert figures.with_counters(figures.Monitor(record=recorded_session())).record.sms == 132
