"""The load of a GPU, in words and as a table."""

from __future__ import annotations

import numpy as np

from gpulab.views.tables import Cell, Column, Table
from gpulab.words import duration, listing, number
from virtualgpu.records.device.load import LoadSamples, clock_reasons

NOT_AVAILABLE = "not available"
COUNTED = {
    "sm_active": "SMs active",
    "sm_occupancy": "occupancy",
    "dram": "DRAM",
    "tensor": "tensor cores",
    "fp16": "FP16",
    "fp32": "FP32",
    "fp64": "FP64",
    "integer": "integer",
}
UTILIZATION = "GPU utilization"
MEANS = "GPU utilization is the share of time in which some kernel ran, however few SMs it used."
# Smaller values are the overhead of reading the counters.
LEAST_PERCENT = 0.001
_PHASE_COLUMNS = ("sm_active", "sm_occupancy", "dram", "tensor", "fp32")


def share(value: float | None) -> str:
    """Return a reading in per cent; a value above 0 is never shown as 0."""
    if value is None:
        return NOT_AVAILABLE
    if 0 < value < LEAST_PERCENT:
        return f"< {LEAST_PERCENT} %"
    return f"{number(value, 2)} %" if value < 10 else f"{value:.0f} %"


def reading(value: float | None, unit: str) -> str:
    """Return a reading with its unit, or that there is none."""
    return NOT_AVAILABLE if value is None else f"{number(value)} {unit}"


def sms(record: LoadSamples, value: float | None) -> str:
    """Return a share of SMs as a number of SMs."""
    return (
        ""
        if value is None or not record.sms
        else f"{number(value / 100 * record.sms, 2)} of {record.sms} SMs"
    )


def held(record: LoadSamples) -> list[str]:
    """Return all reasons that limited the clocks, each once, in order of appearance."""
    bits = record["clock_reasons"]
    words = [clock_reasons(each) for each in bits[~np.isnan(bits)].tolist()]
    return list(
        dict.fromkeys(part for each in words for part in each.split(", ") if part not in ("none", "idle"))
    )


def sentence(record: LoadSamples, state: str) -> str:
    """Return the mean load, its duration and its origin in a sentence."""
    active = record.mean("sm_active")
    counted = f", {share(active)} of its SMs were active" if active is not None else ""
    watt = record.mean_power_w
    reasons = held(record)
    power = f", {number(watt)} W" if watt is not None else ""
    back = f", clocks held back by {listing(reasons)}" if reasons else ""
    return (
        f"{record.provenance.device} over {duration(record.duration_ns)} ({state}): on average "
        f"{share(record.mean('utilization'))} {UTILIZATION}{counted}{power}{back}; {record.provenance.label}."
    )


def missing(record: LoadSamples) -> list[str]:
    """Return the readings that are not available, with a sentence for each reason."""
    reasons = dict[str, list[str]]()
    for name, why in record.missing.items():
        reasons.setdefault(why, []).append(COUNTED.get(name, name.replace("_", " ")))
    return [f"Not available: {listing(names)} ({why})." for why, names in reasons.items()]


def state_of(record: LoadSamples) -> str:
    """Return what limits the clocks now, and the other processes on the GPU."""
    bits = record.latest("clock_reasons")
    held_now = f"Clocks held back by: {NOT_AVAILABLE if bits is None else clock_reasons(bits)}. "
    mig = {True: "MIG is on: this may be a slice of the GPU. ", False: "MIG is off. ", None: ""}[record.mig]
    listed = [f"{pid} ({reading(mib, 'MiB')})" for pid, mib in record.processes]
    return (
        held_now
        + mig
        + (f"Compute processes: {listing(listed)}." if listed else "NVML names no compute process.")
    )


def phases(record: LoadSamples) -> Table:
    """Return one row per phase: the means of its readings, and power as energy over time."""
    names = [name for name, _ in record.phases]
    rows = []
    for each in [record.within(name) for name in names] or [record]:
        utilization = each.mean("utilization")
        rows.append(
            (
                each.phases[0][0] if each.phases else "all",
                Cell(utilization, share(utilization)),
                *(each.mean(name) for name in _PHASE_COLUMNS),
                each.mean_power_w,
                each.mean("sm_clock"),
                listing(held(each)) or "nothing",
            )
        )
    columns: tuple[Column | str, ...] = (
        "phase",
        Column(UTILIZATION, "utilization_percent"),
        *(Column(COUNTED[name], f"{name}_percent", share) for name in _PHASE_COLUMNS),
        Column("power", "power_w", lambda watt: f"{number(watt)} W"),
        Column("SM clock", "sm_clock_mhz", lambda mhz: f"{number(mhz)} MHz"),
        "clocks held back by",
    )
    return Table(f"Means of each phase, {record.provenance.label}", columns, tuple(rows))
