"""Quantities and limits of a device, as numbers for comparison and as text."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from gpulab.views.parts.boxes import Box, matrix
from gpulab.words import number, size
from virtualgpu.records import DeviceInfo, Dim3, Metric

UNKNOWN_TEXT = "not known"
KIB = 1 << 10
MIB = 1 << 20

_OMITTED_WORDS = re.compile(r"NVIDIA |GeForce |Tesla |Quadro |\(.*?\)|\b\d+ ?GB\b")


@dataclass(frozen=True)
class Quantity:
    """A quantity of a device, with its name, its unit, and a function that returns its value."""

    name: str
    unit: str
    get_value: Callable[[DeviceInfo], float | str | None]
    digits: int = 3

    def format_number(self, info: DeviceInfo) -> str:
        """Return the value of the quantity for a device as text without the unit."""
        value = self.get_value(info)
        return UNKNOWN_TEXT if value is None else self.format_value(value)

    def format_value(self, value: float | str) -> str:
        """Format a value of the quantity as text without the unit."""
        return value if isinstance(value, str) else number(value, self.digits)

    def format_with_unit(self, info: DeviceInfo) -> str:
        """Return the value of the quantity for a device as text with the unit."""
        value = self.get_value(info)
        return (
            self.format_number(info)
            if value is None or isinstance(value, str)
            else f"{self.format_number(info)} {self.unit}".rstrip()
        )

    @property
    def heading(self) -> str:
        return f"{self.name} ({self.unit})" if self.unit else self.name


def compute_fp32_tflops(info: DeviceInfo) -> float | None:
    """Return the peak FP32 rate of a device in TFLOP/s, or None if it is not known.

    If there is no published value, the rate is 2 operations per FP32 lane and cycle at the boost clock.
    """
    if info.fp32_tflops is not None:
        return info.fp32_tflops
    if info.boost_clock_mhz is None:
        return None
    return 2 * info.fp32_lanes_per_sm * info.sm_count * info.boost_clock_mhz * 1e6 / 1e12


def _dims_text(dim: Dim3) -> str:
    # 2³¹−1 is shorter and clearer than its digits.
    return " × ".join("(2³¹−1)" if extent == 2**31 - 1 else number(extent) for extent in dim)


def _format_driver(info: DeviceInfo) -> str | None:
    return info.driver or (None if info.provenance.source in ("measured", "recorded") else "none")


SM_COUNT = Quantity("SMs", "", lambda d: d.sm_count)
FP32_RATE = Quantity("Peak FP32", "TFLOP/s", compute_fp32_tflops)
BANDWIDTH = Quantity("Memory bandwidth", "GB/s", lambda d: d.memory_bandwidth_gbps, 4)
L2_SIZE = Quantity("L2 cache", "MiB", lambda d: d.l2_bytes / MIB)
SHARED_MEMORY = Quantity("Shared memory per SM", "KiB", lambda d: d.shared_per_sm_bytes / KIB)
THREADS_PER_SM = Quantity("Threads per SM", "", lambda d: d.max_threads_per_sm)
LANES_PER_SM = Quantity("FP32 lanes per SM", "", lambda d: d.fp32_lanes_per_sm)

QUANTITIES: tuple[Quantity, ...] = (
    SM_COUNT,
    FP32_RATE,
    BANDWIDTH,
    Quantity("Memory", "GiB", lambda d: d.memory_bytes / (1 << 30)),
    L2_SIZE,
    SHARED_MEMORY,
    THREADS_PER_SM,
    LANES_PER_SM,
)
"""Quantities for a short comparison of devices."""

LIMITS: dict[str, tuple[Quantity, ...]] = {
    "Launch limits": (
        Quantity("Threads per block", "", lambda d: d.max_threads_per_block),
        Quantity("Block (x, y, z)", "", lambda d: _dims_text(d.max_block_dim)),
        Quantity("Grid (x, y, z)", "", lambda d: _dims_text(d.max_grid_dim)),
        Quantity("Shared per block", "KiB", lambda d: d.shared_per_block_bytes / KIB),
        Quantity("Shared per block, opted in", "KiB", lambda d: d.shared_per_block_optin_bytes / KIB),
        Quantity("Shared per block, reserved", "KiB", lambda d: d.reserved_shared_per_block_bytes / KIB),
        Quantity("Registers per block", "", lambda d: d.registers_per_block),
    ),
    "One SM": (
        Quantity("Warps", "", lambda d: d.max_warps_per_sm),
        THREADS_PER_SM,
        Quantity("Blocks", "", lambda d: d.max_blocks_per_sm),
        Quantity("32-bit registers", "", lambda d: d.registers_per_sm),
        SHARED_MEMORY,
        LANES_PER_SM,
    ),
    "Whole device": (
        Quantity("Compute capability", "", lambda d: d.capability),
        SM_COUNT,
        Quantity("Boost clock", "MHz", lambda d: d.boost_clock_mhz, 4),
        FP32_RATE,
        Quantity("Peak FP16 tensor, dense", "TFLOP/s", lambda d: d.fp16_tensor_tflops, 4),
        L2_SIZE,
        Quantity("Copy engines", "", lambda d: d.copy_engines),
    ),
    "Memory and links": (
        Quantity("Memory", "", lambda d: f"{size(d.memory_bytes)} {d.memory_type or ''}".strip()),
        Quantity("Bus width", "bit", lambda d: d.memory_bus_bits, 4),
        Quantity("Memory clock", "MHz", lambda d: d.memory_clock_mhz, 4),
        Quantity("Peak memory bandwidth", "GB/s", lambda d: d.memory_bandwidth_gbps, 4),
        Quantity("PCIe, each direction", "GB/s", lambda d: d.pcie_gbps, 4),
        Quantity(
            "NVLink, both directions", "GB/s", lambda d: "none" if d.nvlink_gbps == 0 else d.nvlink_gbps, 4
        ),
        Quantity("Driver", "", _format_driver),
    ),
}
"""All limits and capabilities, by heading."""


def make_headlines(info: DeviceInfo) -> list[tuple[str, str, str]]:
    """Return the main properties of a device. Each property has a name, a value and a detail."""
    return [
        ("Compute capability", info.capability, ""),
        ("SMs", number(info.sm_count), ""),
        (FP32_RATE.name, FP32_RATE.format_with_unit(info), ""),
        ("L2", size(info.l2_bytes), ""),
        ("Memory", size(info.memory_bytes), info.memory_type or ""),
        (BANDWIDTH.name, BANDWIDTH.format_with_unit(info), ""),
    ]


def find_differing_quantities(
    quantities: Sequence[Quantity], devices: Sequence[DeviceInfo]
) -> list[Quantity]:
    """Return the quantities whose values differ between the devices."""
    return [
        quantity for quantity in quantities if len({quantity.format_number(device) for device in devices}) > 1
    ]


def draw_overview(devices: Sequence[DeviceInfo], selected: DeviceInfo | None = None) -> Box:
    """Return a table with one row per device and one column per quantity. Bars in the cells compare the
    values with the largest value of the column.
    """
    largest_values = []
    for quantity in QUANTITIES:
        values = [quantity.get_value(device) for device in devices]
        largest_values.append(max((value for value in values if isinstance(value, (int, float))), default=0))
    table_rows = []
    for device, name in zip(devices, make_short_names(devices), strict=True):
        row_cells: list[tuple[str, float | None]] = [(device.capability, None)]
        for quantity, largest_value in zip(QUANTITIES, largest_values, strict=True):
            value = quantity.get_value(device)
            share_of_largest = (
                value / largest_value if largest_value and isinstance(value, (int, float)) else None
            )
            row_cells.append((quantity.format_number(device), share_of_largest))
        table_rows.append(
            {"label": name, "cells": row_cells, "strong": device is selected, "title": device.name}
        )
    return matrix(table_rows, ["Capability", *(quantity.heading for quantity in QUANTITIES)])


def make_metric_row(metric: Metric) -> dict[str, str | float | None]:
    """Return a live reading for the browser, with its number, its text, and the reason if it is missing."""
    value = metric.value
    number_value = None if value is None or isinstance(value, str) else float(value)
    value_text = value if number_value is None else number(number_value)
    reading_text = "not available" if value_text is None else f"{value_text} {metric.unit}".rstrip()
    return {"name": metric.name, "value": number_value, "text": reading_text, "why": metric.why}


def remove_same_device(info: DeviceInfo, other_devices: Sequence[DeviceInfo]) -> tuple[DeviceInfo, ...]:
    """Return all devices in `other_devices` except those with the same name and source as `info`."""
    return tuple(
        device
        for device in other_devices
        if (device.name, device.provenance.source) != (info.name, info.provenance.source)
    )


def make_short_names(devices: Sequence[DeviceInfo]) -> list[str]:
    """Return device names without maker, brand and memory size. If two short names would be equal, return
    full names.
    """
    candidate_names = [_OMITTED_WORDS.sub("", device.name).strip(" -") or device.name for device in devices]
    return [
        short_name if candidate_names.count(short_name) == 1 else device.name
        for short_name, device in zip(candidate_names, devices, strict=True)
    ]
