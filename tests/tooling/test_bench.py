"""The benchmark checks results before timing and reports what it measured on which device."""

from __future__ import annotations

import dataclasses
import json
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from tools.bench import table as bench
from tools.bench.timelines import time_recorded_launches
from tools.bench.traces import time_slowest_trace
from tools.corpus import CASES
from virtualgpu.errors import GpulabError
from virtualgpu.model.recording.timeline import Recording
from virtualgpu.records import Timeline


def test_mandelbrot_check_rejects_wrong_counts() -> None:
    x, y = np.meshgrid(np.arange(bench.WIDTH), np.arange(bench.HEIGHT))
    c = ((-2 + 2.5 * x / bench.WIDTH) + 1j * (-1.25 + 2.5 * y / bench.HEIGHT)).astype(np.complex64)
    z = np.zeros_like(c)
    counts = np.zeros(c.shape, dtype=np.int32)
    for _ in range(bench.MAX_ITERATIONS):
        inside = (z.real**2 + z.imag**2) < 4
        counts += inside
        z = np.where(inside, z * z + c, z)
    mandelbrot = bench.make_cases()[2]
    assert mandelbrot.check(counts)
    assert not mandelbrot.check(counts.T.reshape(counts.shape).copy())
    assert not mandelbrot.check(np.zeros_like(counts))


def test_wrong_result_is_not_timed() -> None:
    def wrong(output: npt.NDArray[Any]) -> bool:
        return False

    case = dataclasses.replace(bench.make_cases()[0], check=wrong)
    with pytest.raises(bench.BenchmarkError, match="differs from NumPy's"):
        bench.load(case)


def test_a_timeline_with_a_missing_launch_is_not_timed(monkeypatch: pytest.MonkeyPatch) -> None:
    stop = Recording.stop

    def short(self: Recording) -> Timeline:
        result = stop(self)
        return dataclasses.replace(result, activities=result.activities[1:])

    monkeypatch.setattr(Recording, "stop", short)
    with pytest.raises(GpulabError, match=r"holds 39 of 40 launches"):
        time_recorded_launches(40)


@pytest.mark.slow
def test_benchmark_results_are_written_as_json(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    # All cases would take a minute.
    some_cases = bench.make_cases()[:2]
    monkeypatch.setattr(bench, "make_cases", lambda: some_cases)
    monkeypatch.setattr(bench, "time_recorded_launches", lambda: time_recorded_launches(200))
    monkeypatch.setattr(bench, "time_slowest_trace", lambda: time_slowest_trace(CASES[:3]))
    monkeypatch.setattr(bench, "TARGETS_MS", {256: None})
    assert bench.main(["--json", "--rounds", "1", "--no-simulator"]) == 0
    result = json.loads(capsys.readouterr().out)
    assert result["provenance"]["source"] == "measured"
    names = [row["name"] for row in result["rows"]]
    assert len(names) == len(set(names))
    assert all(row["median_ms"] > 0 for row in result["rows"] if row["median_ms"] is not None)
