"""The load of a GPU as sentences and as a table."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from gpulab.views.tables import Cell, Column, Table
from gpulab.words import duration, listing, number
from virtualgpu.records.device.load import LoadSamples, clock_reasons

NOT_AVAILABLE = "not available"
COUNTER_NAMES = {
    "sm_active": "SMs active",
    "sm_occupancy": "occupancy",
    "dram": "DRAM",
    "tensor": "tensor cores",
    "fp16": "FP16",
    "fp32": "FP32",
    "fp64": "FP64",
    "integer": "integer",
}
UTILIZATION_NAME = "GPU utilization"
UTILIZATION_NOTE = "GPU utilization is the share of time in which some kernel ran, however few SMs it used."
# Smaller values are the overhead of reading the counters.
MIN_SHOWN_PERCENT = 0.001
_PHASE_COLUMNS = ("sm_active", "sm_occupancy", "dram", "tensor", "fp32")


def format_share(value: float | None) -> str:
    """Return a percentage as text. A value above 0 is never displayed as 0."""
    if value is None:
        return NOT_AVAILABLE
    if 0 < value < MIN_SHOWN_PERCENT:
        return f"< {MIN_SHOWN_PERCENT} %"
    return f"{number(value, 2)} %" if value < 10 else f"{value:.0f} %"


def format_reading(value: float | None, unit: str) -> str:
    """Return a reading as text with its unit, or "not available"."""
    return NOT_AVAILABLE if value is None else f"{number(value)} {unit}"


def format_sms(record: LoadSamples, value: float | None) -> str:
    """Return a text with a number of SMs that is given as a percentage of all SMs."""
    return (
        ""
        if value is None or not record.sms
        else f"{number(value / 100 * record.sms, 2)} of {record.sms} SMs"
    )


def find_clock_reasons(record: LoadSamples) -> list[str]:
    """Return the reasons that limited the clocks during the recording, in order of appearance. Each reason is
    listed once.
    """
    reason_bits = record["clock_reasons"]
    reason_lists = [
        clock_reasons(reason_list) for reason_list in reason_bits[~np.isnan(reason_bits)].tolist()
    ]
    return list(
        dict.fromkeys(
            reason
            for reason_list in reason_lists
            for reason in reason_list.split(", ")
            if reason not in ("none", "idle")
        )
    )


def describe_load(record: LoadSamples, state: str) -> str:
    """Return a sentence with the mean load of the GPU, the duration of the recording, and the origin of the
    readings.
    """
    active_percent = record.mean("sm_active")
    active_text = (
        f", {format_share(active_percent)} of its SMs were active" if active_percent is not None else ""
    )
    mean_w = record.mean_power_w
    reasons = find_clock_reasons(record)
    power_text = f", {number(mean_w)} W" if mean_w is not None else ""
    limits_text = f", clocks held back by {listing(reasons)}" if reasons else ""
    state_text = "" if state == "recorded" else f" ({state})"  # the label says that it is recorded
    return (
        f"{record.provenance.device} over {duration(record.duration_ns)}{state_text}: on average "
        f"{format_share(record.mean('utilization'))} "
        f"{UTILIZATION_NAME}{active_text}{power_text}{limits_text}; "
        f"{record.provenance.label}."
    )


def explain_missing(record: LoadSamples) -> list[str]:
    """Return a sentence for each reason why some readings are not available."""
    reasons = dict[str, list[str]]()
    for name, reason in record.missing.items():
        reasons.setdefault(reason, []).append(COUNTER_NAMES.get(name, name.replace("_", " ")))
    return [f"Not available: {listing(names)} ({reason})." for reason, names in reasons.items()]


def describe_state(record: LoadSamples) -> str:
    """Return sentences about the MIG mode, the processes on the GPU, and the reasons that currently limit the
    clocks.
    """
    reason_bits = record.latest("clock_reasons")
    clocks_text = (
        f"At {duration(record.duration_ns)}, clocks held back by: "
        f"{NOT_AVAILABLE if reason_bits is None else clock_reasons(reason_bits)}. "
    )
    mig_text = {True: "MIG is on, so this may be a GPU slice. ", False: "MIG is off. ", None: ""}[record.mig]
    processes = [f"{pid} ({format_reading(mib, 'MiB')})" for pid, mib in record.processes]
    return (
        clocks_text
        + mig_text
        + (f"Compute processes: {listing(processes)}." if processes else "NVML reports no compute process.")
    )


def format_latest_time(record: LoadSamples, is_live: bool) -> str:
    """Return the time of the latest reading as text."""
    return f"{'Now' if is_live else 'Last reading'}, at {duration(record.duration_ns)}"


def format_phases(record: LoadSamples) -> str:
    """Return a text with the numbers and names of the phases, or an empty string if there are none."""
    phase_texts = [f"{index} {name}" for index, (name, _) in enumerate(record.phases, 1)]
    return f"Phases: {'; '.join(phase_texts)}." if phase_texts else ""


def format_values(
    record: LoadSamples, index: int, readings: Sequence[tuple[str, str, str]], unit: str
) -> str:
    """Return a text with the values of several readings in one sample, or an empty string if no value is
    available.
    """
    values = [(name, float(record[key][index])) for key, _, name in readings]
    return ", ".join(
        f"{name} {format_share(value) if unit == '%' else format_reading(value, unit)}"
        for name, value in values
        if not np.isnan(value)
    )


def format_limits(reason_bits: float) -> str:
    """Return a text with the reasons that limited the clocks at the time of one reading."""
    return f"clocks held back by: {NOT_AVAILABLE if np.isnan(reason_bits) else clock_reasons(reason_bits)}"


def make_phase_table(record: LoadSamples) -> Table:
    """Return a table of the phases with the mean readings of each phase."""
    names = [name for name, _ in record.phases]
    phase_rows = []
    for phase in [record.within(name) for name in names] or [record]:
        utilization = phase.mean("utilization")
        phase_rows.append(
            (
                phase.phases[0][0] if phase.phases else "all",
                Cell(utilization, format_share(utilization)),
                *(phase.mean(name) for name in _PHASE_COLUMNS),
                phase.mean_power_w,
                phase.mean("sm_clock"),
                listing(find_clock_reasons(phase)) or "nothing",
            )
        )
    phase_columns: tuple[Column | str, ...] = (
        "phase",
        Column(UTILIZATION_NAME, "utilization_percent"),
        *(Column(COUNTER_NAMES[name], f"{name}_percent", format_share) for name in _PHASE_COLUMNS),
        Column("power", "power_w", lambda watt: f"{number(watt)} W"),
        Column("SM clock", "sm_clock_mhz", lambda mhz: f"{number(mhz)} MHz"),
        "clocks held back by",
    )
    return Table(f"Means of each phase, {record.provenance.label}", phase_columns, tuple(phase_rows))
