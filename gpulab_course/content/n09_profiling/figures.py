"""Figures of notebook 09 in addition to the views of gpulab: the number of busy SMs."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import traitlets

from gpulab import session
from gpulab.lab.monitor.monitor import Monitor
from gpulab.lab.monitor.recorder import recorded_session
from gpulab.lab.profiling.profile import ProfileReport, profile
from gpulab.views._steered import Steered
from gpulab.views.monitor.monitor_text import held as held
from gpulab.views.parts.boxes import Box, bars, column, slider, words
from gpulab.views.parts.items import Rects
from gpulab.views.parts.plots import plot
from gpulab.words import number
from gpulab_course.content.n09_profiling.phases import ADDITION as ADDITION
from gpulab_course.content.n09_profiling.phases import ADDITION_WIDE as ADDITION_WIDE
from gpulab_course.content.n09_profiling.phases import ONES as ONES
from gpulab_course.content.n09_profiling.phases import PRODUCT as PRODUCT
from gpulab_course.content.n09_profiling.phases import SPINS as SPINS
from gpulab_course.content.n09_profiling.phases import phases as phases
from gpulab_course.content.n09_profiling.phases import spinning as spinning
from gpulab_course.content.n09_profiling.predictions import LESS_THAN_HALF as LESS_THAN_HALF
from gpulab_course.content.ranges import among as among
from virtualgpu.errors import GpulabError
from virtualgpu.records.device.load import LoadSamples

_SIDE_PX = 15
_COLUMNS = 44


# --- a session ------------------------------------------------------------------------------------------
def with_counters(monitor: Monitor) -> Monitor:
    """Return a monitor, or the recorded one if the monitor's GPU does not count its active SMs."""
    return monitor if monitor.record.mean("sm_active") is not None else Monitor(record=recorded_session())


class BusySms(Steered):
    """The utilization that ``nvidia-smi`` reports and the number of busy SMs, for launches that only spin."""

    launch_index = traitlets.Int(0).tag(sync=True, echo_update=False)

    def __init__(self, record: LoadSamples) -> None:
        self._record = record
        super().__init__(
            title=f"Busy, on {record.provenance.device}",
            caption=f"Medians of each launch, {record.provenance.label}. As many SMs are lit as work.",
            source=record.provenance.source,
        )
        texts = [spinning(*spin).removeprefix("spin: ") for spin in SPINS]
        self.controls = [slider("Blocks that spin", "launch_index", range(len(SPINS)), texts).wire()]
        self.pictured = {"launch_index": self.launch_index}
        self.redraw()
        self.observe(self._moved, "launch_index")

    @property
    def record(self) -> LoadSamples:
        """The samples of the GPU's load that are shown."""
        return self._record

    def _moved(self, _change: Any) -> None:
        with self._lock, self.hold_sync():
            self.redraw()
            self.answer({"launch_index": self.launch_index})

    def _figures(self) -> tuple[float, float, float]:
        """Return the medians of utilization, active SMs and occupancy in percent, for the chosen launch."""
        samples = self._record.within(spinning(*SPINS[self.launch_index]))
        # NVML's utilization is an average that lags: the first samples still contain the previous launch.
        utilization, active_share, occupancy = (
            float(np.nanmedian(samples[name])) for name in ("utilization", "sm_active", "sm_occupancy")
        )
        return utilization, active_share, occupancy

    def sentence(self) -> str:
        """Return the shown values in one sentence."""
        utilization, active_share, occupancy = (number(value, 2) for value in self._figures())
        return (
            f"{spinning(*SPINS[self.launch_index])}: {utilization} % GPU utilization, {active_share} % of "
            f"the SMs active, {occupancy} % of their warps held; {self._record.provenance.label}."
        )

    def describe(self) -> str:
        return self.sentence()

    def draw(self) -> Box:
        sms = self._record.sms or 1
        names = ("GPU utilization", "SMs active", "occupancy")
        colours = ("muted", "accent", "tail")
        rows = [
            {"label": name, "share": value / 100, "value": f"{number(value, 2)} %", "colour": colour}
            for name, value, colour in zip(names, self._figures(), colours, strict=True)
        ]
        active_sms = round(self._figures()[1] / 100 * sms)  # no counter shows which SMs are active
        index = np.arange(sms)
        x = index % _COLUMNS
        y = index // _COLUMNS * float(_SIDE_PX)
        cells = Rects(
            x * 1.0,
            x + 1.0,
            y,
            y + _SIDE_PX - 3,
            (index >= active_sms).astype(np.int64),
            ["accent", "grid"],
            inset=1.5,
        )
        height = float(y.max()) + _SIDE_PX
        return column(
            bars(rows, label=0.2),
            plot(height, (0, _COLUMNS), cells, label=f"{active_sms} of {sms} SMs active"),
            words(f"{active_sms} of {sms} SMs", "note"),
        )


# --- profiles -------------------------------------------------------------------------------------------
def profiled(loop: Callable[[Any, Any], object]) -> ProfileReport:
    """Return a profile of a loop over two small arrays, on the virtual GPU if CUPTI is missing."""

    def profile_on(cp: Any) -> ProfileReport:
        x, loss = (cp.full(2048, 0.5, cp.float32) for _ in range(2))
        return profile(loop, x, loss, warmup=1)

    try:
        return profile_on(session.cp())
    except GpulabError:
        with session.on_device("virtual:A100") as cp:
            return profile_on(cp)
