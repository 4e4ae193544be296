"""`gl.monitor` with a `pynvml` of constant readings: phases, pauses, files, a GPU that is lost."""

from __future__ import annotations

import csv
import json
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import gpulab as gl
from gpulab import session
from gpulab.lab.monitor import recorder
from gpulab.real.load import LoadReader
from gpulab.real.nvml import NvmlDevice
from gpulab.views import LoadChart
from gpulab.views.parts.boxes import Legend, Plot
from gpulab.views.parts.items import Polyline
from gpulab.views.parts.plot_picture import make_element_sentence
from tests.real import fake_nvml
from virtualgpu.errors import GpulabError
from virtualgpu.records import Provenance
from virtualgpu.records.device.load import LOAD_COLUMNS, LoadSamples


@pytest.fixture
def nvml(monkeypatch: pytest.MonkeyPatch) -> Any:
    """A GPU with sensors in the place of the virtual one that has none."""
    module = fake_nvml.module()
    begin_s = time.monotonic()
    module.nvmlDeviceGetTotalEnergyConsumption = lambda device: int((time.monotonic() - begin_s) * 400e3)
    fake_nvml.with_gpm(module, lambda number: {2: 0.76 * number, 3: 0.01 * number, 10: 3.0 * number})
    monkeypatch.setitem(sys.modules, "pynvml", module)
    monkeypatch.setattr(type(session.backend()), "load_reader", lambda self: LoadReader(NvmlDevice()))
    return module


def samples(at_s: list[float], **columns: list[float]) -> LoadSamples:
    """Readings at some seconds; columns that are not passed are not available."""
    nothing = np.full(len(at_s), np.nan)
    known = {name: np.array(values, np.float64) for name, values in columns.items()}
    return LoadSamples(
        provenance=Provenance("measured", "NVIDIA X"),
        time_ns=np.array(at_s) * 1e9,
        columns={name: known.get(name, nothing) for name in LOAD_COLUMNS},
        sms=132,
        phases=(("first", 0.0), ("second", 2e9)),
    )


def until(condition: Callable[[], bool]) -> None:
    for _ in range(1000):
        if condition():
            return
        time.sleep(0.01)
    raise AssertionError("the condition was not met")


def test_with_block_is_recorded_with_its_phases(nvml: Any, tmp_path: Path) -> None:
    with gl.monitor(rate_hz=50) as report:
        for name in ("one block", "many"):
            report.mark(name)
            count = len(report.record)
            until(lambda enough=count + 12: len(report.record) > enough)
    record = report.record
    assert [name for name, _ in record.phases] == ["one block", "many"]
    assert record.mean("sm_active") == pytest.approx(0.76)
    assert record.mean_power_w == pytest.approx(400, rel=0.01)
    assert "0.76 % of its SMs" in repr(report)
    assert "37 %" in repr(report)
    rows = report.table().cells
    assert [row[0] for row in rows] == ["one block", "many"]
    assert rows[1][2] == "0.76 %"
    assert rows[1][-1] == "software power cap and software thermal slowdown"

    with report.save(tmp_path / "m.csv").open(encoding="utf-8") as file:
        table = list(csv.DictReader(file))
    assert [float(row["time_ns"]) for row in table] == record.time_ns.tolist()
    assert float(table[3]["power"]) == 56.7
    again = LoadSamples.of_data(json.loads(report.save(tmp_path / "m.json").read_text(encoding="utf-8")))
    for name in LOAD_COLUMNS:
        np.testing.assert_array_equal(again[name], record[name])
    assert again.provenance.source == "recorded"
    assert again.phases == record.phases
    assert report.save(tmp_path / "m.png").read_bytes().startswith(b"\x89PNG")
    assert "GPU utilization" in report.save(tmp_path / "m.html").read_text(encoding="utf-8")


def test_a_pause_leaves_a_gap(nvml: Any) -> None:
    report = gl.monitor(rate_hz=50)
    report.start()
    until(lambda: len(report.record) > 3)
    report.pause()
    assert report.state == "paused"
    report.resume()
    count = len(report.record)
    until(lambda: len(report.record) > count + 2)
    report.stop()
    assert np.isnan(report.record["utilization"]).sum() == 1
    with pytest.raises(GpulabError, match="has not started, or has already ended"):
        report.pause()
    with pytest.raises(ValueError, match="at most 100"):
        gl.monitor(rate_hz=1000)


def test_a_gpu_that_is_lost_during_the_recording_is_noted(nvml: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    with gl.monitor(rate_hz=50) as report:
        until(lambda: len(report.record) > 3)

        def fail(device: int) -> Any:
            raise nvml.NVMLError(fake_nvml.GPU_IS_LOST)

        monkeypatch.setattr(nvml, "nvmlDeviceGetPowerUsage", fail)
        until(lambda: "GPU is lost" in report.record.note)
    assert "GPU is lost" in report.describe()
    assert report.record.latest("utilization") == 37


def test_an_nvml_that_hangs_is_noted(nvml: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    with gl.monitor(rate_hz=0.1) as report:
        until(lambda: len(report.record) > 0)
        assert report.record.note == ""
        sampler: Any = report._recorder.sampler
        later = sampler.now_ns + 60e9
        monkeypatch.setattr(type(sampler), "now_ns", property(lambda self: later))
        assert "NVML has not returned a value for" in report.record.note
        monkeypatch.undo()
    assert report.record.note == "", "it has ended"


def test_recording_has_device_facts_and_date(nvml: Any) -> None:
    del nvml.nvmlDeviceGetTotalEnergyConsumption
    with gl.monitor(rate_hz=50) as report:
        pass
    record = report.record
    assert record.date == time.strftime("%Y-%m-%d")
    assert (record.memory_mib, record.power_limit_w, record.mig, record.driver) == (24576, 72, None, "580.65")
    assert record.sms == session.backend().device_info().sm_count
    assert record.provenance == session.backend().provenance
    assert [memory_mib for _, memory_mib in record.processes] == [1024, None]
    assert record.missing["energy"] == "this version of nvidia-ml-py does not support it"
    assert record.note == ""


@pytest.mark.parametrize("ended", [True, False])
def test_a_last_reading_is_taken_at_the_end_unless_the_thread_hangs(
    nvml: Any, monkeypatch: pytest.MonkeyPatch, ended: bool
) -> None:
    samplings = recorder.LoadRecorder(LoadReader(NvmlDevice()), 1)
    monkeypatch.setattr(samplings.sampler, "stop", lambda: ended)
    assert len(samplings.stop()) == ended


def test_buttons_pause_the_readings_and_the_chart_shows_the_state(
    nvml: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    ticks: list[object] = []
    monkeypatch.setattr(LoadChart, "show_new_readings", lambda self: ticks.append(self))
    report = gl.monitor(rate_hz=50)
    assert report.state == "new"
    with pytest.raises(GpulabError, match="This monitor has not started, or has already ended"):
        report.mark("early")
    report._repr_mimebundle_()
    chart: Any = report._picture()
    assert (report.state, chart.paused) == ("live", 0)
    for _ in range(25):
        report._recorder.sampler.take_reading()
    assert ticks[0] is chart
    for paused, state in ((1, "paused"), (0, "live")):
        chart.paused = paused
        assert report.state == state
    report.pause()
    assert chart.paused == 1
    report.resume()
    assert chart.paused == 0
    report.stop()
    assert (report.state, chart.paused) == ("stopped", 0)


def test_a_reading_belongs_to_the_phase_in_which_its_interval_began() -> None:
    record = samples([1, 2, 2.5, 3.5, 4.5], sm_active=[1, 1, 50, 100, 100], energy=[0, 10, 20, 420, 820])
    # At 2.5 s the mean reaches back to 2 s, when the second phase began.
    assert record.within("second")["sm_active"].tolist() == [50, 100, 100]
    assert record.within("first")["sm_active"].tolist() == [1], "the first mean began before the recording"
    assert record.within("second").mean_power_w == 400
    assert record.mean("tensor") is None
    assert record.latest("tensor") is None
    with pytest.raises(KeyError, match="first, second"):
        record.within("third")


def test_means_that_overlap_the_previous_phase_are_excluded() -> None:
    """NVML's utilization is a mean over up to a second; GPM's are of 0.2 s, and repeated for as long."""
    times = [1, 1.9, 2.1, 2.3, 2.5, 3.2]  # the second phase begins at 2 s
    record = samples(
        times, utilization=[100, 100, 100, 60, 10, 10], tensor=[90, 90, 45, 20, 0, 0], sm_clock=[1] * 6
    )
    second = record.within("second")
    assert second.mean("utilization") == 10
    assert second.mean("tensor") == 0
    assert second.mean("sm_clock") == 1
    short = samples(times[:4], utilization=[100, 100, 100, 60]).within("second")
    assert short.mean("utilization") == 60  # better than nothing: every mean reaches back


def chart_of(view: LoadChart) -> Plot:
    return next(box for box in view.draw().boxes if isinstance(box, Plot))


def test_each_reading_can_be_selected_and_has_its_values() -> None:
    watts = [101.0, 202.0, 303.0]
    record = samples([1, 2, 3], power=watts, fp32=[0, 12, 100], clock_reasons=[1, 4, 0])
    (readings,) = (item for item in chart_of(LoadChart(lambda: record)).items if item.say)
    sentences = [make_element_sentence(readings, index, readings.say) for index in range(3)]
    for second, watt, percent, reason, phase, sentence in zip(
        "123",
        watts,
        (0, 12, 100),
        ("idle", "power cap", "none"),
        ("first", "second", "second"),
        sentences,
        strict=True,
    ):
        for part in (f"At {second} s, in {phase}", f"{watt:.0f} W", f"FP32 {percent} %", reason):
            assert part in sentence
    np.testing.assert_array_equal(readings.x1, record.time_ns)


def test_a_long_live_record_is_thinned_without_gaps_between_readings() -> None:
    view = LoadChart(lambda: samples([n / 10 for n in range(1, 6001)], power=[100.0] * 6000), "live")
    view.span_s = 600
    (readings,) = (item for item in chart_of(view).items if item.say)
    assert 500 < len(readings.x0) <= 700
    np.testing.assert_array_equal(readings.x0[1:], readings.x1[:-1])


def test_curves_that_stay_near_zero_are_not_drawn() -> None:
    record = samples([1, 2, 3, 4, 5], fp16=[0] * 5, fp32=[0, 0, 0, 0, 50], fp64=[0.5] * 5)
    view = LoadChart(lambda: record)
    curves = [item for item in chart_of(view).items if isinstance(item, Polyline)]
    assert len(curves) == 1
    assert curves[0].x[0] == 3e9, "it rises from the reading before"
    legend_texts = [text for box in view.draw().boxes if isinstance(box, Legend) for _, text in box.entries]
    assert legend_texts == ["FP16: below 1 %", "FP32", "FP64: below 1 %"]


def test_a_live_chart_shows_new_readings_and_can_be_paused() -> None:
    pauses: list[bool] = []
    readings = [samples([1, 2], power=[100, 200])]
    chart = LoadChart(lambda: readings[0], "live", pauses.append)

    def changes(record: LoadSamples) -> bool:
        """Whether the chart shows a new record at the next update."""
        scene = chart.scene
        readings[0] = record
        chart.show_new_readings()
        return bool(chart.scene != scene)

    assert changes(samples([1, 2, 3], power=[100, 200, 300]))
    chart.span_s = 10
    assert (pauses, chart.pictured) == ([], {"paused": 0, "span_s": 10})
    chart.paused = 1
    assert pauses == [True]
    assert (chart.pictured, chart.pictures) == ({"paused": 1, "span_s": 10}, 2)
    chart.show_state("paused")
    assert pauses == [True], "a change by the program is not reported to it"
    assert not changes(samples([1], power=[7]))
    chart.show_state("live")
    chart.close()
    assert not changes(samples([1, 2], power=[7, 9]))


def test_without_sensors_a_recorded_session_is_shown(tmp_path: Path) -> None:
    with gl.monitor() as report:
        assert report.state == "recorded"
        report.mark("mine")
        report.pause()
        report.resume()
        assert report.state == "recorded"
        assert "mine" not in [name for name, _ in report.record.phases]
    assert report.state == "recorded"
    record = report.record
    assert record.provenance.label.startswith("recorded on NVIDIA H200")
    assert "no sensors" in record.note
    # One SM of 132.
    phase = record.within("spin: 1 block of 32")
    assert np.nanmax(phase["utilization"]) == 100
    assert phase.mean("sm_active") == pytest.approx(100 / 132, abs=0.02)
    assert record.within("spin: 264 blocks of 1,024").mean("sm_occupancy") > 95
    assert "software power cap" in report.table().text()
    assert "not this program" in report.describe()
    again: Any = gl.recorded("h200_monitor")
    assert again.record["power"].tolist() == record["power"].tolist()
    assert (again.state, again.record.note) == ("recorded", "")
    assert "monitor" in repr(gl.recorded())
    assert again.save(tmp_path / "m.png").stat().st_size > 10_000


def test_a_session_of_another_format_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    recorder.load_recorded_session.cache_clear()
    monkeypatch.setattr(recorder, "FORMAT", "another")
    with pytest.raises(ValueError, match="h200_monitor"):
        recorder.load_recorded_session()
    monkeypatch.undo()
    assert recorder.load_recorded_session() is recorder.load_recorded_session()
