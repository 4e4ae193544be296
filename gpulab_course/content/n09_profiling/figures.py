"""Figures of notebook 09: busy SMs, a roofline, a critical path, and reported power."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np
import traitlets
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle

from gpulab import session
from gpulab.lab.monitor.monitor import Monitor
from gpulab.lab.monitor.recorder import load_recorded_session
from gpulab.lab.profiling.profile import ProfileReport, profile
from gpulab.views._steered import Steered
from gpulab.views.monitor.monitor_text import find_clock_reasons
from gpulab.views.parts.boxes import Box, bars, column, slider, words
from gpulab.views.parts.items import Rects
from gpulab.views.parts.palette import find_hex
from gpulab.views.parts.plots import plot
from gpulab.words import number
from gpulab_course.content.n09_profiling.phases import ADDITION as ADDITION
from gpulab_course.content.n09_profiling.phases import ADDITION_WIDE as ADDITION_WIDE
from gpulab_course.content.n09_profiling.phases import ONES as ONES
from gpulab_course.content.n09_profiling.phases import PRODUCT as PRODUCT
from gpulab_course.content.n09_profiling.phases import SPIN_LAUNCH_SHAPES as SPIN_LAUNCH_SHAPES
from gpulab_course.content.n09_profiling.phases import phases as phases
from gpulab_course.content.n09_profiling.phases import spinning as spinning
from gpulab_course.content.n09_profiling.predictions import LESS_THAN_HALF as LESS_THAN_HALF
from gpulab_course.content.ranges import among as among
from gpulab_course.teach.picture import Picture
from virtualgpu.errors import GpulabError
from virtualgpu.records import Timeline
from virtualgpu.records.device.load import LoadSamples

_CELL_SIDE_PX = 15
_COLUMN_COUNT = 44
_FONT_SIZE = 10
held = find_clock_reasons  # its name in notebook 09


# --- a session ------------------------------------------------------------------------------------------
def with_counters(monitor: Monitor) -> Monitor:
    """Return `monitor` if its GPU counts active SMs. Otherwise return the monitor of a recorded session."""
    return (
        monitor if monitor.record.mean("sm_active") is not None else Monitor(record=load_recorded_session())
    )


class BusySms(Steered):
    """A chart of the utilization from ``nvidia-smi`` and the number of busy SMs, for kernels that spin."""

    launch_index = traitlets.Int(0).tag(sync=True, echo_update=False)

    def __init__(self, record: LoadSamples) -> None:
        self._record = record
        super().__init__(
            title=f"Busy, on {record.provenance.device}",
            caption=f"Medians of each launch, {record.provenance.label}. The number of lit SMs is the "
            "number of SMs that worked.",
            source=record.provenance.source,
        )
        spin_texts = [spinning(*launch_shape).removeprefix("spin: ") for launch_shape in SPIN_LAUNCH_SHAPES]
        self.controls = [
            slider("Blocks that spin", "launch_index", range(len(SPIN_LAUNCH_SHAPES)), spin_texts).wire()
        ]
        self.pictured = {"launch_index": self.launch_index}
        self.redraw()
        self.observe(self._on_launch_change, "launch_index")

    @property
    def record(self) -> LoadSamples:
        """The samples of the GPU's utilization and busy SMs that the chart shows."""
        return self._record

    def _on_launch_change(self, _change: Any) -> None:
        with self._lock, self.hold_sync():
            self.redraw()
            self.confirm_picture({"launch_index": self.launch_index})

    def _compute_medians(self) -> tuple[float, float, float]:
        """Return the median utilization, active SMs and occupancy of the chosen launch, in percent."""
        samples = self._record.within(spinning(*SPIN_LAUNCH_SHAPES[self.launch_index]))
        # NVML's utilization is an average that lags: the first samples still contain the previous launch.
        utilization, active_share, occupancy = (
            float(np.nanmedian(samples[name])) for name in ("utilization", "sm_active", "sm_occupancy")
        )
        return utilization, active_share, occupancy

    def sentence(self) -> str:
        """Return a sentence with the values that the chart shows."""
        utilization, active_share, occupancy = (
            number(median_percent, 2) for median_percent in self._compute_medians()
        )
        phase_name = spinning(*SPIN_LAUNCH_SHAPES[self.launch_index])
        return (
            f"{phase_name}: {utilization} % GPU utilization, {active_share} % of the SMs active, "
            f"{occupancy} % of their warp slots in use; {self._record.provenance.label}."
        )

    def describe(self) -> str:
        return self.sentence()

    def draw(self) -> Box:
        sm_count = self._record.sms or 1
        bar_names = ("GPU utilization", "SMs active", "occupancy")
        bar_colours = ("muted", "accent", "tail")
        bar_rows = [
            {
                "label": name,
                "share": median_percent / 100,
                "value": f"{number(median_percent, 2)} %",
                "colour": colour,
            }
            for name, median_percent, colour in zip(
                bar_names, self._compute_medians(), bar_colours, strict=True
            )
        ]
        active_sms = round(
            self._compute_medians()[1] / 100 * sm_count
        )  # no counter shows which SMs are active
        sm_indices = np.arange(sm_count)
        x = sm_indices % _COLUMN_COUNT
        y = sm_indices // _COLUMN_COUNT * float(_CELL_SIDE_PX)
        sm_cells = Rects(
            x * 1.0,
            x + 1.0,
            y,
            y + _CELL_SIDE_PX - 3,
            (sm_indices >= active_sms).astype(np.int64),
            ["accent", "grid"],
            inset=1.5,
        )
        map_height_px = float(y.max()) + _CELL_SIDE_PX
        return column(
            bars(bar_rows, label=0.2),
            plot(map_height_px, (0, _COLUMN_COUNT), sm_cells, label=f"{active_sms} of {sm_count} SMs active"),
            words(f"{active_sms} of {sm_count} SMs", "note"),
        )


# --- profiles -------------------------------------------------------------------------------------------
def profiled(loop: Callable[[Any, Any], object]) -> ProfileReport:
    """Profile a loop over two small arrays. Without CUPTI, profile it on the virtual GPU."""

    def profile_on(cp: Any) -> ProfileReport:
        x, loss = (cp.full(2048, 0.5, cp.float32) for _ in range(2))
        return profile(loop, x, loss, warmup=1)

    try:
        return profile_on(session.cp())
    except GpulabError:
        with session.on_device("virtual:A100") as cp:
            return profile_on(cp)


# --- pictures -------------------------------------------------------------------------------------------
def _make_axes(height_in: float, left: float = 0.11, bottom: float = 0.2) -> Axes:
    """Create a figure, and return its axes without the upper and the right frame line."""
    figure = Figure(figsize=(7.6, height_in), dpi=100)
    axes = figure.add_axes((left, bottom, 0.97 - left, 0.95 - bottom))
    axes.spines[["top", "right"]].set_visible(False)
    axes.tick_params(labelsize=_FONT_SIZE)
    return axes


def _make_picture(axes: Axes, caption: str) -> Picture:
    """Return the figure of the axes as a picture with a caption."""
    figure = axes.figure
    assert isinstance(figure, Figure)
    return Picture.of(figure, caption)


def ceiling(peak_gflops: float, bandwidth_gbps: float, intensities: Sequence[float]) -> Picture:
    """Draw the roofline of a device with its ridge point and the maximum performance at the given
    intensities.

    Parameters
    ----------
    peak_gflops
        The peak arithmetic rate in GFLOP/s.
    bandwidth_gbps
        The memory bandwidth in GB/s.
    intensities
        The operations per byte of each kernel.
    """
    ridge_intensity = peak_gflops / bandwidth_gbps
    min_intensity, max_intensity = ridge_intensity / 16, ridge_intensity * 16
    axes = _make_axes(3.7, bottom=0.16)
    axes.loglog(
        [min_intensity, ridge_intensity],
        [min_intensity * bandwidth_gbps, peak_gflops],
        color=find_hex("accent"),
        linewidth=3,
    )
    axes.loglog(
        [ridge_intensity, max_intensity], [peak_gflops, peak_gflops], color=find_hex("tail"), linewidth=3
    )
    axes.axvline(ridge_intensity, color=find_hex("muted"), linestyle="--", linewidth=1)
    min_gflops = min_intensity * bandwidth_gbps / 2
    axes.set_xlim(min_intensity, max_intensity)
    axes.set_ylim(min_gflops, 2.2 * peak_gflops)
    limit_texts = []
    for intensity in intensities:
        gflops = min(peak_gflops, intensity * bandwidth_gbps)
        axes.plot(intensity, gflops, "o", color=find_hex("fg"), markersize=9)
        is_memory_bound = intensity < ridge_intensity
        axes.annotate(
            f"I = {number(intensity, 3)}: at most\n{gflops:,.0f} GFLOP/s",
            (intensity, gflops),
            xytext=(-10, 8) if is_memory_bound else (10, -12),
            textcoords="offset points",
            ha="right" if is_memory_bound else "left",
            va="bottom" if is_memory_bound else "top",
            fontsize=_FONT_SIZE,
        )
        limit_texts.append(f"with {number(intensity, 3)} operations per byte at most {gflops:,.0f} GFLOP/s")
    ridge_sides = (
        (min_intensity, ridge_intensity, "slope: memory is the limit", "accent"),
        (ridge_intensity, max_intensity, "flat: arithmetic is the limit", "tail-text"),
    )
    for low_intensity, high_intensity, limit_text, colour in ridge_sides:
        label_intensity = (low_intensity * high_intensity) ** 0.5
        axes.text(
            label_intensity,
            1.3 * min_gflops,
            limit_text,
            ha="center",
            color=find_hex(colour),
            fontsize=_FONT_SIZE,
        )
    axes.text(
        ridge_intensity,
        2.3 * peak_gflops,
        f"ridge: {peak_gflops:,.0f} / {bandwidth_gbps:,.0f} = {number(ridge_intensity, 3)} "
        "operations per byte",
        ha="center",
        va="bottom",
        fontsize=_FONT_SIZE,
    )
    axes.set_position((0.13, 0.16, 0.84, 0.74))
    axes.set_xlabel("I, operations per byte", fontsize=_FONT_SIZE)
    axes.set_ylabel("GFLOP/s", fontsize=_FONT_SIZE)
    axes.minorticks_off()
    for axis in (axes.xaxis, axes.yaxis):
        axis.set_major_formatter(lambda value, _position: f"{value:,g}")
    return _make_picture(
        axes,
        f"Roofline of a device with {peak_gflops:,.0f} GFLOP/s and {bandwidth_gbps:,.0f} GB/s. It rises up "
        f"to the ridge at {number(ridge_intensity, 3)} operations per byte, and then it is flat. "
        f"A kernel reaches {', '.join(limit_texts)}.",
    )


def path_of(timeline: Timeline, steps: Iterable[Any]) -> Picture:
    """Draw the kernels of each stream over time. Kernels on the critical path have another colour.

    Parameters
    ----------
    timeline
        The record of a timeline.
    steps
        The steps of its critical path.
    """
    kernels = [activity for activity in timeline.activities if activity.kind == "CONCURRENT_KERNEL"]
    path_ids = {path_step.correlation_id for path_step in steps if path_step.kind == "operation"}
    streams = list(dict.fromkeys(kernel.stream_id for kernel in kernels))
    start_ns = min(kernel.start_ns for kernel in kernels)
    axes = _make_axes(0.75 + 0.65 * len(streams), left=0.16, bottom=0.3)
    for kernel in kernels:
        is_critical = kernel.correlation_id in path_ids
        colour = "tail" if is_critical else "accent-2"
        stream_row = streams.index(kernel.stream_id)
        start_us = (kernel.start_ns - start_ns) / 1e3
        duration_us = (kernel.end_ns - kernel.start_ns) / 1e3
        hatch = "" if is_critical else "//"
        axes.add_patch(
            Rectangle(
                (start_us, stream_row - 0.36),
                duration_us,
                0.72,
                facecolor=find_hex(colour),
                edgecolor="white",
                hatch=hatch,
            )
        )
        axes.text(
            start_us + duration_us / 2,
            stream_row,
            f"{kernel.name}, {duration_us:,.0f} µs",
            ha="center",
            va="center",
            fontsize=_FONT_SIZE,
            color="black",
            bbox={"facecolor": find_hex(colour), "edgecolor": "none", "pad": 1.5},
        )
    axes.set_xlim(0, max((kernel.end_ns - start_ns) / 1e3 for kernel in kernels))
    axes.set_ylim(len(streams) - 0.5, -0.5)
    stream_names = [f"stream {stream_row + 1}" for stream_row in range(len(streams))]
    axes.set_yticks(range(len(streams)), stream_names, fontsize=_FONT_SIZE)
    axes.set_xlabel("µs since the first kernel began", fontsize=_FONT_SIZE)
    critical_names = [kernel.name for kernel in kernels if kernel.correlation_id in path_ids]
    hidden_names = [kernel.name for kernel in kernels if kernel.correlation_id not in path_ids]
    return _make_picture(
        axes,
        f"{len(kernels)} kernels in {len(streams)} streams, {timeline.provenance.label}. On the critical "
        f"path: {', '.join(critical_names)}. Hidden behind it (hatched): "
        f"{', '.join(hidden_names) or 'none'}.",
    )


def power_after(record: LoadSamples, name: str) -> Picture:
    """Draw the power after the start of a phase, as reported by NVML and as computed from the energy counter.

    Parameters
    ----------
    record
        The samples of a session.
    name
        The name of the phase.
    """
    begin_ns = dict(record.phases)[name]
    elapsed_s = (record.time_ns - begin_ns) / 1e9
    shown_indices = np.flatnonzero((elapsed_s > -0.6) & (elapsed_s < 1.9))[::2]
    elapsed_s = elapsed_s[shown_indices]
    reported_power_w = record["power"][shown_indices]
    counted_power_w = np.diff(record["energy"][shown_indices]) / np.diff(elapsed_s)
    axes = _make_axes(3.0)
    axes.stairs(
        counted_power_w,
        elapsed_s,
        baseline=None,
        color=find_hex("tail"),
        linewidth=2.5,
        label="from the counted energy",
    )
    axes.plot(
        elapsed_s, reported_power_w, "o-", color=find_hex("accent"), markersize=4, label="reported by NVML"
    )
    axes.axvline(0, color=find_hex("muted"), linestyle="--", linewidth=1)
    axes.set_ylim(0, 1.1 * max(reported_power_w.max(), counted_power_w.max()))
    axes.set_xlabel("seconds since the phase began", fontsize=_FONT_SIZE)
    axes.set_ylabel("W", fontsize=_FONT_SIZE)
    axes.legend(frameon=False, loc="lower right", fontsize=_FONT_SIZE)
    start_power_w = counted_power_w[np.abs(elapsed_s).argmin()]
    delay_s = float(elapsed_s[np.flatnonzero(reported_power_w > 0.95 * counted_power_w[-1])[0]])
    return _make_picture(
        axes,
        f"Power around the start of {name}, {record.provenance.label}. According to the counted energy it "
        f"jumps to {start_power_w:,.0f} W at once, and ends at {counted_power_w[-1]:,.0f} W. "
        f"The reported power climbs, and comes within 5 % of this value after {delay_s:.1f} s.",
    )
