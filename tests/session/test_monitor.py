"""`gl.monitor` with a `pynvml` that answers from a table: phases, pauses, files, a GPU that is lost."""

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
from tests.real import fake_nvml
from virtualgpu.errors import GpulabError
from virtualgpu.records import Provenance
from virtualgpu.records.device.load import LOAD_COLUMNS, LoadSamples, clock_reasons


@pytest.fixture
def nvml(monkeypatch: pytest.MonkeyPatch) -> Any:
    """A GPU with sensors in the place of the virtual one that has none."""
    module = fake_nvml.module()
    began = time.monotonic()
    module.nvmlDeviceGetTotalEnergyConsumption = lambda device: int((time.monotonic() - began) * 400e3)
    fake_nvml.with_gpm(module, lambda number: {2: 0.76 * number, 3: 0.01 * number, 10: 3.0 * number})
    monkeypatch.setitem(sys.modules, "pynvml", module)
    monkeypatch.setattr(type(session.backend()), "load_reader", lambda self: LoadReader(NvmlDevice()))
    return module


def samples(at_s: list[float], **columns: list[float]) -> LoadSamples:
    """Readings at some seconds; those that are not given are not available."""
    nothing = np.full(len(at_s), np.nan)
    given = {name: np.array(values, np.float64) for name, values in columns.items()}
    return LoadSamples(
        provenance=Provenance("measured", "NVIDIA X"),
        time_ns=np.array(at_s) * 1e9,
        columns={name: given.get(name, nothing) for name in LOAD_COLUMNS},
        sms=132,
        phases=(("first", 0.0), ("second", 2e9)),
    )


def until(true: Callable[[], bool]) -> None:
    for _ in range(1000):
        if true():
            return
        time.sleep(0.01)
    raise AssertionError("it did not happen")


def test_a_block_is_recorded_with_its_phases(nvml: Any, tmp_path: Path) -> None:
    with gl.monitor(rate_hz=50) as seen:
        for name in ("one block", "many"):
            seen.mark(name)
            already = len(seen.record)
            until(lambda more=already + 12: len(seen.record) > more)
    record = seen.record
    assert [name for name, _ in record.phases] == ["one block", "many"]
    assert record.mean("sm_active") == pytest.approx(0.76)
    assert record.mean_power_w == pytest.approx(400, rel=0.01)
    assert "0.76 % of its SMs" in repr(seen)
    assert "37 %" in repr(seen)
    rows = seen.table().cells
    assert [row[0] for row in rows] == ["one block", "many"]
    assert rows[1][2] == "0.76 %"
    assert rows[1][-1] == "software power cap and software thermal slowdown"

    with seen.save(tmp_path / "m.csv").open(encoding="utf-8") as file:
        table = list(csv.DictReader(file))
    assert len(table) == len(record)
    assert [float(row["time_ns"]) for row in table] == record.time_ns.tolist()
    assert float(table[3]["power"]) == 56.7
    again = LoadSamples.of_data(json.loads(seen.save(tmp_path / "m.json").read_text(encoding="utf-8")))
    for name in LOAD_COLUMNS:
        np.testing.assert_array_equal(again[name], record[name])
    assert again.provenance.source == "recorded"
    assert again.phases == record.phases
    assert seen.save(tmp_path / "m.png").read_bytes().startswith(b"\x89PNG")
    assert "GPU utilization" in seen.save(tmp_path / "m.html").read_text(encoding="utf-8")


def test_a_pause_leaves_a_gap(nvml: Any) -> None:
    seen = gl.monitor(rate_hz=50)
    seen.start()
    until(lambda: len(seen.record) > 3)
    seen.pause()
    assert seen.state == "paused"
    seen.resume()
    already = len(seen.record)
    until(lambda: len(seen.record) > already + 2)
    seen.stop()
    assert np.isnan(seen.record["utilization"]).sum() == 1
    with pytest.raises(GpulabError, match="has not begun, or has ended"):
        seen.pause()


def test_a_gpu_that_is_lost_half_way_is_named(nvml: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    with gl.monitor(rate_hz=50) as seen:
        until(lambda: len(seen.record) > 3)

        def gone(device: int) -> Any:
            raise nvml.NVMLError(fake_nvml.GPU_IS_LOST)

        monkeypatch.setattr(nvml, "nvmlDeviceGetPowerUsage", gone)
        until(lambda: "GPU is lost" in seen.record.note)
    assert "GPU is lost" in seen.describe()
    assert seen.record.latest("utilization") == 37


def test_an_nvml_that_hangs_is_named(nvml: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    with gl.monitor(rate_hz=50) as seen:
        reading: Any = seen._recorder
        later = reading.sampler.now_ns + 5e9
        monkeypatch.setattr(type(reading.sampler), "now_ns", property(lambda self: later))
        assert "NVML has not answered for" in reading._note(0.0)
        # Two seconds, and the time from one reading to the next.
        assert reading._note(later - 2.03e9) == "NVML has not answered for 2 s: it, or the driver, hangs."
        assert reading._note(later - 2.01e9) == ""
        monkeypatch.undo()
    assert reading._note(-9e9) == "", "it has ended"


def test_a_recording_knows_the_device_and_the_day(nvml: Any) -> None:
    del nvml.nvmlDeviceGetTotalEnergyConsumption
    with gl.monitor(rate_hz=50) as seen:
        assert time.strftime("%Y-%m-%d") >= seen.record.date
    record = seen.record
    assert record.date == time.strftime("%Y-%m-%d")
    assert (record.memory_mib, record.power_limit_w, record.mig, record.driver) == (24576, 72, None, "580.65")
    assert record.sms == session.backend().device_info().sm_count
    assert record.provenance == session.backend().provenance
    assert [held for _, held in record.processes] == [1024, None]
    assert record.missing["energy"] == "this nvidia-ml-py does not know it"
    assert record.note == ""


def test_the_chart_is_told_of_new_readings_twice_a_second(nvml: Any) -> None:
    for rate_hz, told_at in ((10, [0, 5, 10]), (1, [*range(12)]), (5, [0, 2, 4, 6, 8, 10])):
        made = recorder.recorder(rate_hz)
        assert isinstance(made, recorder.LoadRecorder)
        seen: list[int] = []
        made.sampler.take()  # nobody to be told yet
        made = recorder.LoadRecorder(LoadReader(NvmlDevice()), rate_hz)
        made.tell(lambda to=seen, of=made: to.append(of.sampler.added - 1))
        for _ in range(12):
            made.sampler.take()
        assert seen == told_at


def test_an_end_takes_a_last_reading_unless_the_one_before_never_came_back(
    nvml: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    for ended in (True, False):
        made = recorder.LoadRecorder(LoadReader(NvmlDevice()), 1)
        monkeypatch.setattr(made.sampler, "stop", lambda ended=ended: ended)
        assert len(made.stop()) == ended


def test_buttons_pause_the_readings_and_the_chart_shows_the_state(
    nvml: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    ticks: list[object] = []
    monkeypatch.setattr(LoadChart, "tick", lambda self: ticks.append(self))
    seen = gl.monitor(rate_hz=50)
    assert seen.state == "new"
    with pytest.raises(GpulabError, match="there when the block has ended"):
        seen.record  # noqa: B018
    with pytest.raises(GpulabError, match="This monitor has not begun, or has ended"):
        seen.mark("early")
    seen._repr_mimebundle_()
    chart: Any = seen._picture()
    assert (seen.state, chart.paused) == ("live", 0)
    for _ in range(25):
        seen._recorder.sampler.take()
    assert ticks[0] is chart
    for paused, state in ((1, "paused"), (0, "live")):
        chart.paused = paused
        assert seen.state == state
    seen.pause()
    assert chart.paused == 1
    seen.resume()
    assert chart.paused == 0
    until(lambda: len(seen.record) > 2)
    seen.stop()
    assert (seen.state, chart.paused) == ("stopped", 0)


def test_a_reading_belongs_to_the_phase_in_which_its_time_began() -> None:
    record = samples([1, 2, 2.5, 3.5, 4.5], sm_active=[1, 1, 50, 100, 100], energy=[0, 10, 20, 420, 820])
    # At 2.5 s the mean reaches back to 2 s, when the second phase began.
    assert record.within("second")["sm_active"].tolist() == [50, 100, 100]
    # What the first one speaks of lies before the recording.
    assert record.within("first")["sm_active"].tolist() == [1]
    assert record.within("second").mean_power_w == 400
    assert record.mean("tensor") is None
    assert record.latest("tensor") is None
    with pytest.raises(KeyError, match="first, second"):
        record.within("third")


def test_a_mean_that_reaches_back_into_the_phase_before_is_left_out() -> None:
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


def test_the_chart_says_what_held_the_clocks_and_what_is_missing() -> None:
    record = samples([1, 2, 3], utilization=[100, 100, 100], clock_reasons=[1, 4, 4])
    chart = LoadChart(lambda: record)
    assert "clocks held back by software power cap" in chart.sentence()
    plain = chart.png()
    tree = json.dumps(chart.scene)
    assert "software power cap" in tree
    assert "SMs active" in tree
    nothing = samples([1, 2, 3], utilization=[100, 100, 100])
    assert LoadChart(lambda: nothing).png() != plain
    assert clock_reasons(0x20 | 0x40) == "software thermal slowdown, hardware thermal slowdown"


def test_a_live_chart_shows_what_is_new_and_pauses_as_it_is_told() -> None:
    from gpulab.views import LoadChart

    told: list[bool] = []
    read = [samples([1, 2], power=[100, 200])]
    chart = LoadChart(lambda: read[0], "live", told.append)
    shown = chart.scene
    read[0] = samples([1, 2, 3], power=[100, 200, 300])
    chart.tick()
    assert chart.scene != shown
    chart.span_s = 10
    assert (told, chart.pictured) == ([], {"paused": 0, "span_s": 10})
    chart.paused = 1
    assert told == [True]
    assert (chart.pictured, chart.pictures) == ({"paused": 1, "span_s": 10}, 2)
    chart.show("paused")
    assert told == [True], "what the program does is not asked for again"
    shown = chart.scene
    read[0] = samples([1], power=[7])
    chart.tick()
    assert chart.scene == shown
    chart.show("live")
    shown = chart.scene
    read[0] = samples([1, 2], power=[7, 9])
    chart.close()
    chart.tick()
    assert chart.scene == shown


def test_a_rate_that_none_can_have_is_refused() -> None:
    with pytest.raises(ValueError, match="at most 100"):
        gl.monitor(rate_hz=1000)


def test_without_sensors_a_recorded_session_is_shown(tmp_path: Path) -> None:
    with gl.monitor() as seen:
        assert seen.state == "recorded"
        seen.mark("mine")
        for switch in (seen.pause, seen.resume):
            switch()
        assert seen.state == "recorded"
        assert "mine" not in [name for name, _ in seen.record.phases]
    assert seen.state == "recorded"
    assert recorder.NoSensors("none").stop().note == (
        "none Shown is what a real GPU was recorded doing, not this program."
    )
    record = seen.record
    assert record.provenance.label.startswith("recorded on NVIDIA H200")
    assert "no sensors" in record.note
    # One SM of 132.
    one = record.within("spin: 1 block of 32")
    assert np.nanmax(one["utilization"]) == 100
    assert one.mean("sm_active") == pytest.approx(100 / 132, abs=0.02)
    assert record.within("spin: 264 blocks of 1,024").mean("sm_occupancy") > 95
    assert "software power cap" in seen.table().text()
    assert "not this program" in seen.describe()
    again: Any = gl.recorded("h200_monitor")
    assert again.record["power"].tolist() == record["power"].tolist()
    assert (again.state, again.record.note) == ("recorded", "")
    assert "monitor" in repr(gl.recorded())
    assert again.save(tmp_path / "m.png").stat().st_size > 10_000


def test_a_session_of_another_format_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    recorder.recorded_session.cache_clear()
    monkeypatch.setattr(recorder, "FORMAT", "another")
    with pytest.raises(ValueError, match="h200_monitor"):
        recorder.recorded_session()
    monkeypatch.undo()
    assert recorder.recorded_session() is recorder.recorded_session()


def test_a_share_below_what_reading_costs_is_told_as_less() -> None:
    from gpulab.views.monitor.monitor_text import share

    assert (share(9.54), share(10.4), share(None)) == ("9.5 %", "10 %", "not available")

    assert [share(each) for each in (None, 0.0, 5.2e-6, 0.0035, 12.4)] == [
        "not available",
        "0 %",
        "< 0.001 %",
        "0.0035 %",
        "12 %",
    ]
