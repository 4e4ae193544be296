"""``gl.monitor``: a live chart of the load of a GPU."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import Any

from gpulab import views
from gpulab.lab._base import SampledResult
from gpulab.lab.monitor.recorder import make_recorder
from gpulab.views._saving import Writers, data_to_json, make_csv_writer, make_text_writer
from gpulab.views.monitor.monitor_text import describe_load, make_phase_table
from gpulab.views.tables import Table
from virtualgpu.records.device.load import LOAD_COLUMNS, LoadSamples


def monitor(rate_hz: float = 10.0) -> Monitor:
    """Show a live chart of the load of the current GPU, with the utilization of its units, its power, its
    clocks and their limits.

    A displayed chart takes readings in the background until it is stopped or its cell is run again. The last
    ten minutes are kept. GPUs from Hopper on measure the load of their units (SMs with a warp, resident
    warps, pipes, tensor cores, memory). Older GPUs report only NVML's utilization, the time in which *some*
    kernel ran. A virtual GPU has no sensors, so a recording of an H200 is shown there.

    Parameters
    ----------
    rate_hz
        The number of readings per second, at most 100. GPU counters are read at most five times per second.

    Returns
    -------
    Monitor
        The live chart: ``mark("name")`` begins a phase, ``table()`` compares phases, ``pause()``,
        ``resume()``, ``stop()``, ``save("x.html")``, ``save("x.csv")``, ``save("x.json")``; ``.record`` holds
        the data (`virtualgpu.records.device.load.LoadSamples`). As a ``with`` block it records the block, no
        longer.

    Raises
    ------
    ValueError
        If the rate is not a number above 0 and at most 100.

    Examples
    --------
    >>> with gl.monitor() as m:
    ...     m.mark("a sum")
    ...     y.sum()
    >>> m.table()
    """
    return Monitor(rate_hz)


class Monitor(
    SampledResult[LoadSamples],
    recording_name="monitor",
    start_code="with gl.monitor() as m:",
    restart_code="gl.monitor()",
):
    """A recording of the load of a GPU. The recording starts when it is displayed or its ``with`` block
    begins, and ends at `stop`.
    """

    def __init__(self, rate_hz: float = 10.0, record: LoadSamples | None = None) -> None:
        super().__init__(rate_hz, record)

    def _make_recorder(self) -> Any:
        return make_recorder(self._rate_hz)

    @property
    def state(self) -> str:
        """The state of the recording, which is ``"new"``, ``"live"``, ``"paused"``, ``"stopped"`` or
        ``"recorded"``.
        """
        if self._recorder is None:
            return "new" if self._record is None else "recorded"
        return str(self._recorder.state)

    def mark(self, name: str) -> None:
        """Begin a new phase of the recording. All later readings belong to this phase.

        Raises
        ------
        GpulabError
            If the monitor is not taking readings.
        """
        self._require_recorder().mark(str(name))

    def table(self) -> Table:
        """Return a table of the phases with the mean readings of each phase.

        Examples
        --------
        >>> m.table()
        """
        return make_phase_table(self.record)

    def _switch_state(self, action: str) -> None:
        if self._require_recorder().state != "recorded":
            super()._switch_state(action)

    def _show_state(self) -> None:
        if self._cached_picture is not None and not sys.is_finalizing():
            self._cached_picture.show_state(self.state)

    def _make_writers(self) -> Writers:
        record = self.record
        write_json = make_text_writer(lambda: data_to_json(record.as_data()))
        write_csv = make_csv_writer(("time_ns", *LOAD_COLUMNS), lambda: _make_rows(record))
        return {".csv": write_csv, **super()._make_writers(), ".json": write_json}

    def _make_picture(self) -> views.LoadChart:
        view = views.LoadChart(
            lambda: self.record,
            self.state,
            lambda should_pause: self._switch_state("pause" if should_pause else "resume"),
        )
        if self._recorder is not None:
            self._recorder.call_on_reading(view.show_new_readings)
        return view

    def _make_sentence(self) -> str:
        return describe_load(self.record, self.state)


def _make_rows(record: LoadSamples) -> Iterator[tuple[float, ...]]:
    return zip(record.time_ns.tolist(), *(record[name].tolist() for name in LOAD_COLUMNS), strict=True)
