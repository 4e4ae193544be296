"""Reading a device's information: quantities to compare, and limits as rows of text."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from gpulab.views._text import number, size
from virtualgpu.records import DeviceInfo, Dim3, Metric

UNKNOWN = "not known"

_SPARE = re.compile(r"NVIDIA |GeForce |Tesla |Quadro |\(.*?\)|\b\d+ ?GB\b")


@dataclass(frozen=True)
class Quantity:
    """One number that devices can be compared by."""

    name: str
    unit: str
    of: Callable[[DeviceInfo], float | None]

    def text(self, info: DeviceInfo) -> str:
        value = self.of(info)
        return UNKNOWN if value is None else f"{number(value)} {self.unit}".rstrip()


def fp32_tflops(info: DeviceInfo) -> float | None:
    """The peak FP32 rate, as given or else 2 operations (one FMA) x lanes x SMs x boost clock."""
    if info.fp32_tflops is not None:
        return info.fp32_tflops
    if info.boost_clock_mhz is None:
        return None
    return 2 * info.fp32_lanes_per_sm * info.sm_count * info.boost_clock_mhz * 1e6 / 1e12


QUANTITIES: tuple[Quantity, ...] = (
    Quantity("SMs", "", lambda d: d.sm_count),
    Quantity("Peak FP32 rate", "TFLOP/s", fp32_tflops),
    Quantity("Memory bandwidth", "GB/s", lambda d: d.memory_bandwidth_gbps),
    Quantity("Memory", "GiB", lambda d: d.memory_bytes / (1 << 30)),
    Quantity("L2 cache", "MiB", lambda d: d.l2_bytes / (1 << 20)),
    Quantity("Shared memory per SM", "KiB", lambda d: d.shared_per_sm_bytes / 1024),
    Quantity("Threads per SM", "", lambda d: d.max_threads_per_sm),
    Quantity("FP32 lanes per SM", "", lambda d: d.fp32_lanes_per_sm),
)


def _dims(dim: Dim3) -> str:
    # 2**31 - 1 in digits says less than its name, and takes the room of three.
    return " × ".join("(2³¹−1)" if d == 2**31 - 1 else number(d) for d in dim)


def _known(value: float | None, unit: str = "") -> str:
    return UNKNOWN if value is None else f"{number(value, 4)} {unit}".rstrip()


def limit_groups(info: DeviceInfo) -> list[tuple[str, list[tuple[str, str]]]]:
    """Every limit and capability as ``(heading, [(name, value with unit)])``."""
    groups = {
        "Launch limits": {
            "Threads per block": number(info.max_threads_per_block),
            "Block (x, y, z)": _dims(info.max_block_dim),
            "Grid (x, y, z)": _dims(info.max_grid_dim),
            "Shared per block": size(info.shared_per_block_bytes),
            "Shared per block, opted in": size(info.shared_per_block_optin_bytes),
            "Shared per block, reserved": size(info.reserved_shared_per_block_bytes),
            "Registers per block": number(info.registers_per_block),
        },
        "One SM": {
            "Warps (threads)": f"{number(info.max_warps_per_sm)} ({number(info.max_threads_per_sm)})",
            "Blocks": number(info.max_blocks_per_sm),
            "32-bit registers": number(info.registers_per_sm),
            "Shared memory": size(info.shared_per_sm_bytes),
            "FP32 lanes": number(info.fp32_lanes_per_sm),
        },
        "Whole device": {
            "Compute capability": info.capability,
            "SMs": number(info.sm_count),
            "Boost clock": _known(info.boost_clock_mhz, "MHz"),
            "Peak FP32 rate": _known(fp32_tflops(info), "TFLOP/s"),
            "Peak FP16 tensor, dense": _known(info.fp16_tensor_tflops, "TFLOP/s"),
            "L2 cache": size(info.l2_bytes),
            "Copy engines": _known(info.copy_engines),
        },
        "Memory and links": {
            "Memory": f"{size(info.memory_bytes)} {info.memory_type or ''}".strip(),
            "Bus width": _known(info.memory_bus_bits, "bit"),
            "Memory clock": _known(info.memory_clock_mhz, "MHz"),
            "Peak memory bandwidth": _known(info.memory_bandwidth_gbps, "GB/s"),
            "PCIe, each direction": _known(info.pcie_gbps, "GB/s"),
            "NVLink, both directions": _known(info.nvlink_gbps, "GB/s") if info.nvlink_gbps != 0 else "none",
            "Driver": info.driver or UNKNOWN,
        },
    }
    return [(heading, list(rows.items())) for heading, rows in groups.items()]


def metric_row(metric: Metric) -> dict[str, str | float | None]:
    """A live reading for the browser: its number (for a history), its text, and why it is missing."""
    value = metric.value
    figure = None if value is None or isinstance(value, str) else float(value)
    shown = value if figure is None else number(figure)
    text = "not available" if shown is None else f"{shown} {metric.unit}".rstrip()
    return {"name": metric.name, "value": figure, "text": text, "why": metric.why}


def without_twins(info: DeviceInfo, others: Sequence[DeviceInfo]) -> tuple[DeviceInfo, ...]:
    """`others` less those that are `info` under its own name and source."""
    return tuple(o for o in others if (o.name, o.provenance.source) != (info.name, info.provenance.source))


def short_names(devices: Sequence[DeviceInfo]) -> list[str]:
    """Names without maker, brand and memory size, for narrow columns; whole where two would be alike."""
    shorts = [_SPARE.sub("", device.name).strip(" -") or device.name for device in devices]
    return [
        short if shorts.count(short) == 1 else device.name
        for short, device in zip(shorts, devices, strict=True)
    ]
