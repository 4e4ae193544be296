"""What notebook 06 says of the race holds on other GPUs than the one that it was run on."""

from __future__ import annotations

import pytest

import gpulab as gl
from gpulab.course.n06_patterns import figures


@pytest.mark.parametrize("device", ["virtual:T4", "virtual:RTX 4090", "virtual:H100"])
def test_each_rung_is_faster_and_the_last_keeps_pace_with_a_copy(device: str) -> None:
    gl.use_device(device)
    race = figures.race(elements=1 << 22)
    times = [lap.busy_ns for lap in race.record]
    assert times == sorted(times, reverse=True)
    assert figures.among("06-race", race.of_the_copy(-1), (0.3, 0.8)) == "all of it, more or less"
    assert [lap.held_by for lap in race.record][:2] == ["idle lanes", "bank conflicts"]
