"""Load of a GPU over time: use of its units, power, clocks, temperature, and reasons for lower clocks."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any, NamedTuple, Self

import numpy as np
import numpy.typing as npt

from virtualgpu.records.origin import Provenance

Column = npt.NDArray[np.float64]
FORMAT = "gpulab-monitor"


class Reading(NamedTuple):
    """A column of `LoadSamples`, with its name, unit and meaning."""

    name: str
    unit: str
    meaning: str


LOAD_READINGS = (
    Reading("utilization", "%", "time in which at least one kernel ran (utilization.gpu)"),
    Reading(
        "memory_utilization",
        "%",
        "time in which memory was read or written (utilization.memory)",
    ),
    Reading("sm_active", "%", "SMs with at least one warp, mean over SMs and time"),
    Reading("sm_occupancy", "%", "of the largest number of resident warps, mean over SMs"),
    Reading("tensor", "%", "of the tensor cores' peak"),
    Reading("fp16", "%", "of the FP16 pipe's peak"),
    Reading("fp32", "%", "of the FP32 pipe's peak"),
    Reading("fp64", "%", "of the FP64 pipe's peak"),
    Reading("integer", "%", "of the integer pipe's peak"),
    Reading("dram", "%", "of the memory's peak bandwidth"),
    Reading("pcie_tx", "MiB/s", "sent over PCIe"),
    Reading("pcie_rx", "MiB/s", "received over PCIe"),
    Reading("nvlink_tx", "MiB/s", "sent over NVLink"),
    Reading("nvlink_rx", "MiB/s", "received over NVLink"),
    Reading("power", "W", "drawn by the GPU; on most GPUs NVML reports a mean over the last second"),
    Reading("energy", "J", "counted since the driver was loaded"),
    Reading("temperature", "°C", "of the GPU"),
    Reading("sm_clock", "MHz", "clock of the SMs"),
    Reading("memory_clock", "MHz", "clock of the memory"),
    Reading("memory_used", "MiB", "memory in use by all processes"),
    Reading("clock_reasons", "", "bits of the reasons for lower clocks (`clock_reasons` names them)"),
    Reading("processes", "", "compute processes that NVML reports"),
)
LOAD_COLUMNS = tuple(reading.name for reading in LOAD_READINGS)
GPM_COLUMNS = LOAD_COLUMNS[2:14]
"""Columns that GPUs from Hopper on count themselves (GPM), as a mean between two readings."""
# Interval of time before a reading that it covers: NVML's utilization is a mean over up to a second (nvml.h);
# GPM's counters are means of 0.2 s, and are repeated for up to as long.
_AVERAGING_NS = {"utilization": 1e9, "memory_utilization": 1e9, **dict.fromkeys(GPM_COLUMNS, 0.4e9)}

# nvmlClocksEventReasons bits (nvml.h), in words.
CLOCK_REASONS = (
    (0x001, "idle"),
    (0x002, "application clocks"),
    (0x004, "software power cap"),
    (0x008, "hardware slowdown"),
    (0x010, "sync boost"),
    (0x020, "software thermal slowdown"),
    (0x040, "hardware thermal slowdown"),
    (0x080, "power brake"),
    (0x100, "display clocks"),
)


def clock_reasons(bits: float) -> str:
    """Return the reasons for lower clock rates as text from the bits that NVML reports. If no bit is set, the
    text is ``"none"``.

    Examples
    --------
    >>> clock_reasons(0x4 | 0x20)
    'software power cap, software thermal slowdown'
    """
    return ", ".join(reason for bit, reason in CLOCK_REASONS if int(bits) & bit) or "none"


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadSamples:
    """Readings of a GPU's load over time. The columns have equal length, and missing readings are NaN.

    Parameters
    ----------
    time_ns
        Time since the recording began. A row of NaN is a pause, or a time without answers of NVML.
    columns
        `LOAD_COLUMNS` by name.
    missing
        Reason in words why a column has no readings.
    sms, memory_mib, power_limit_w
        Properties of the device; None: not known.
    mig
        Whether the GPU is split (multi-instance GPU); None: not known.
    processes
        Process number and MiB in use of each compute process at the last reading; in a container NVML has
        none or the host's numbers.
    phases
        Name and beginning in nanoseconds of each phase, in order.
    driver, date
        Version of the driver, and date of the recording.
    note
        Further remarks, or an empty string.
    """

    provenance: Provenance
    time_ns: Column
    columns: Mapping[str, Column]
    missing: Mapping[str, str] = field(default_factory=dict)
    sms: int | None = None
    memory_mib: float | None = None
    power_limit_w: float | None = None
    mig: bool | None = None
    processes: Sequence[tuple[int, float | None]] = ()
    phases: Sequence[tuple[str, float]] = ()
    driver: str = ""
    date: str = ""
    note: str = ""

    def __len__(self) -> int:
        return len(self.time_ns)

    def __getitem__(self, name: str) -> Column:
        return self.columns[name]

    @property
    def duration_ns(self) -> float:
        """The time from the beginning of the recording to the last reading in ns."""
        return float(self.time_ns[-1]) if len(self) else 0.0

    def latest(self, name: str) -> float | None:
        """Return the last available reading of a column."""
        readings = self.columns[name][~np.isnan(self.columns[name])]
        return float(readings[-1]) if len(readings) else None

    def within(self, phase: str) -> LoadSamples:
        """Return the readings of one phase, with times that count from the beginning of the phase.

        Some readings are mean values over an interval. They are NaN if the interval starts before the phase,
        unless the phase is so short that this is true for all readings.

        Raises
        ------
        KeyError
            If there is no phase of that name.
        """
        names = [name for name, _ in self.phases]
        if phase not in names:
            raise KeyError(f"The recording has no phase {phase!r}. Its phases: {', '.join(names) or 'none'}.")
        phase_index = names.index(phase)
        begin_ns = self.phases[phase_index][1]
        end_ns = self.phases[phase_index + 1][1] if phase_index + 1 < len(names) else np.inf
        # A reading covers the time before it, so a reading that began before the phase does not belong to it.
        previous_ns = np.concatenate(([-np.inf], self.time_ns[:-1]))
        in_phase = (previous_ns >= begin_ns) & (self.time_ns <= end_ns)
        since_ns = self.time_ns[in_phase] - begin_ns
        columns = {
            name: _settled_values(column[in_phase], since_ns, name) for name, column in self.columns.items()
        }
        return replace(self, time_ns=since_ns, columns=columns, phases=((phase, 0.0),))

    def mean(self, name: str) -> float | None:
        """Return the mean of a column, or None if the column has no readings."""
        readings = self.columns[name][~np.isnan(self.columns[name])]
        return float(readings.mean()) if len(readings) else None

    @property
    def energy_j(self) -> float | None:
        """The energy in joules that the GPU used from the first to the last reading, from its energy
        counter.
        """
        readings = self.columns["energy"][~np.isnan(self.columns["energy"])]
        return float(readings[-1] - readings[0]) if len(readings) > 1 else None

    @property
    def mean_power_w(self) -> float | None:
        """The mean power in watts over these readings, from the GPU's energy counter."""
        is_known = ~np.isnan(self.columns["energy"])
        if is_known.sum() < 2 or self.energy_j is None:
            return None
        return self.energy_j / float(np.ptp(self.time_ns[is_known])) * 1e9

    def as_data(self) -> dict[str, Any]:
        """Return the readings in the form that is stored in a JSON file."""
        return {"format": FORMAT, "version": 1, **asdict(self)}

    @classmethod
    def of_data(cls, data: Mapping[str, Any]) -> Self:
        """Return the samples from a JSON file that `as_data` wrote. The provenance of these samples is
        "recorded".
        """
        values = {name: value for name, value in data.items() if name not in ("format", "version")}
        detail = ", ".join(filter(None, (data["date"], data["driver"] and f"driver {data['driver']}")))
        values["provenance"] = Provenance("recorded", data["provenance"]["device"], detail)
        values["time_ns"] = np.array(data["time_ns"], np.float64)
        values["columns"] = {name: np.array(data["columns"][name], np.float64) for name in LOAD_COLUMNS}
        for name in ("processes", "phases"):
            values[name] = tuple(tuple(item) for item in data[name])
        return cls(**values)


def _settled_values(column: Column, since_ns: Column, name: str) -> Column:
    """Replace means that include time before 0 by NaN; unchanged if no other value would remain."""
    is_early = since_ns < _AVERAGING_NS.get(name, 0)
    return column if np.isnan(column[~is_early]).all() else np.where(is_early, np.nan, column)
