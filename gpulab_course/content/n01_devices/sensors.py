"""Sensor readings of a GPU in phases of idling, computing and copying, measured here or recorded on an H200.

``python -m gpulab_course.content.n01_devices.sensors`` measures them on this machine and prints JSON.
"""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from importlib import resources
from typing import Any

from matplotlib.figure import Figure

from gpulab import session
from gpulab.views.parts.palette import find_hex
from gpulab_course.teach.picture import Picture
from virtualgpu.records import Provenance

RECORDING_FILE = "h200_sensors.json"
_INTERVAL_S = 0.05
_PHASE_DURATIONS_S = (("idle", 1.0), ("matrix products", 2.0), ("idle", 1.5), ("copies", 2.0), ("idle", 1.5))
_PHASE_LABELS = {"matrix products": "matrix multiplications"}
_SENSOR_NAMES = ("power", "SM clock", "GPU utilization", "memory controller utilization", "temperature")


@dataclass(frozen=True, slots=True)
class SensorReadings:
    """Sensor readings over time, with one column per sensor and the names and start times of the phases."""

    provenance: Provenance
    time_s: tuple[float, ...]
    columns: dict[str, tuple[float, ...]]
    units: dict[str, str]
    phases: tuple[tuple[str, float], ...]

    def picture(self) -> Picture:
        """Draw one chart for each sensor, one below the other."""
        figure = Figure(figsize=(7.6, 4.6), dpi=100)
        sensor_names = [name for name in _SENSOR_NAMES if name in self.columns]
        axes = figure.subplots(len(sensor_names), 1, sharex=True)
        figure.subplots_adjust(left=0.3, right=0.98, top=0.9, bottom=0.1, hspace=0.3)
        colours = ("accent", "good", "warn", "accent-2", "tail")
        for ax, name, colour in zip(axes, sensor_names, colours, strict=False):
            ax.plot(self.time_s, self.columns[name], color=find_hex(colour))
            ax.set_ylabel(
                _break_last_word(f"{name} ({self.units[name]})"),
                rotation=0,
                ha="left",
                va="center",
                fontsize=9,
            )
            ax.yaxis.set_label_coords(-0.3, 0.5)
            ax.set_ylim(0, 1.15 * max(self.columns[name]) or 1)
            ax.margins(x=0)
            for _, phase_start_s in self.phases[1:]:
                ax.axvline(phase_start_s, color=find_hex("muted"), linewidth=0.6)
        phase_ends = [phase_start_s for _, phase_start_s in self.phases[1:]] + [self.time_s[-1]]
        for (name, phase_start_s), phase_end_s in zip(self.phases, phase_ends, strict=True):
            axes[0].text(
                (phase_start_s + phase_end_s) / 2,
                1.04,
                _PHASE_LABELS.get(name, name),
                transform=axes[0].get_xaxis_transform(),
                ha="center",
                fontsize=9,
            )
        axes[-1].set_xlabel("seconds")
        peak_power_w = max(self.columns["power"]) if "power" in self.columns else 0
        caption = (
            f"Sensor readings over {self.time_s[-1]:.0f} s, at most {peak_power_w:.0f} W; "
            f"{self.provenance.label}."
        )
        figure.text(0.02, 0.965, self.provenance.label, fontsize=9, color=find_hex("muted"))
        return Picture.of(figure, caption)


def series() -> SensorReadings:
    """Measure the sensors of this machine's GPU over time. Without a GPU, return readings from an H200."""
    if session.which_device().kind == "virtual":
        recording_text = resources.files(__package__).joinpath(RECORDING_FILE).read_text(encoding="utf-8")
        return _make_readings(json.loads(recording_text), "recorded")
    return _make_readings(measure_sensors(), "measured")


def _break_last_word(text: str) -> str:
    """Insert a line break into a label, before "utilization" or before the last word."""
    if len(text) < 26:
        first_line, _, last_word = text.rpartition(" ")
        return f"{first_line}\n{last_word}"
    first_line, _, suffix = text.rpartition(" utilization")
    return f"{first_line}\nutilization{suffix}"


def _make_readings(recording: dict[str, Any], source: Any) -> SensorReadings:
    columns = {name: tuple(values) for name, values in recording["columns"].items()}
    provenance_detail = f"{recording['date']}, driver {recording['driver']}" if source == "recorded" else ""
    return SensorReadings(
        Provenance(source, recording["device"], provenance_detail),
        tuple(recording["time_s"]),
        columns,
        recording["units"],
        tuple((name, start_s) for name, start_s in recording["phases"]),
    )


def measure_sensors() -> dict[str, Any]:
    """Read the GPU's sensors every 50 ms during a sequence of phases, in which the GPU first multiplies
    matrices and later copies data, with idle phases between them.
    """
    import cupy

    backend = session.backend()
    cupy.cuda.Device().synchronize()
    matrix = cupy.ones((8192, 8192), cupy.float32)
    source_array = cupy.ones(1 << 28, cupy.float32)
    target_array = cupy.empty(1 << 28, cupy.float32)
    operations: dict[str, Callable[[], object]] = {
        "matrix products": lambda: matrix @ matrix,
        "copies": lambda: cupy.copyto(target_array, source_array),
    }
    for operation in operations.values():
        operation()
    cupy.cuda.Device().synchronize()
    samples: list[tuple[float, dict[str, tuple[Any, str]]]] = []
    stop_event: threading.Event = threading.Event()
    start_s = time.perf_counter()

    def take_samples() -> None:
        while not stop_event.wait(_INTERVAL_S):
            metrics = backend.metrics().metrics
            samples.append(
                (
                    time.perf_counter() - start_s,
                    {metric.name: (metric.value, metric.unit) for metric in metrics},
                )
            )

    sampling_thread = threading.Thread(target=take_samples, daemon=True)
    sampling_thread.start()
    phases = []
    for name, duration_s in _PHASE_DURATIONS_S:
        phases.append((name, round(time.perf_counter() - start_s, 2)))
        end_s = time.perf_counter() + duration_s
        while time.perf_counter() < end_s:
            if name in operations:
                operations[name]()
                cupy.cuda.Device().synchronize()
            else:
                time.sleep(0.02)
    stop_event.set()
    sampling_thread.join()
    sensor_names = [
        name for name in _SENSOR_NAMES if all(isinstance(row[name][0], int | float) for _, row in samples)
    ]
    return {
        "device": session.which_device().device,
        "driver": backend.device_info().driver or "unknown",
        "date": time.strftime("%Y-%m-%d"),
        "phases": phases,
        "time_s": [round(time_s, 2) for time_s, _ in samples],
        "units": {name: samples[0][1][name][1] for name in sensor_names},
        "columns": {name: [round(float(row[name][0]), 1) for _, row in samples] for name in sensor_names},
    }


if __name__ == "__main__":
    print(json.dumps(measure_sensors()))
