"""Figures of notebook 01: the parts of a GPU that determine its peak rates."""

from __future__ import annotations

from typing import Any

from matplotlib.figure import Figure
from matplotlib.patches import Rectangle

from gpulab.views.parts.palette import find_hex
from gpulab_course.teach.picture import Picture
from virtualgpu.records import DeviceInfo

_BITS_PER_STACK = 1024
_SMS_PER_ROW = 12
_UNITS_PER_ROW = 16


def peak_rates(info: DeviceInfo) -> tuple[float, float]:
    """Compute a GPU's peak FP32 rate (TFLOP/s) and memory bandwidth (GB/s) from its units and clocks."""
    if not (info.boost_clock_mhz and info.memory_clock_mhz and info.memory_bus_bits):
        raise ValueError(f"The clocks and the bus width of a {info.name} are not known.")
    tflops = info.sm_count * info.fp32_lanes_per_sm * 2 * info.boost_clock_mhz / 1e6
    return tflops, 2 * info.memory_clock_mhz * info.memory_bus_bits / 8 / 1e3


def rates_of(info: DeviceInfo) -> Picture:
    """Draw the parts of a GPU that determine its peak rates, such as SMs and memory stacks.

    Parameters
    ----------
    info
        The properties of a GPU with HBM and known clocks.
    """
    tflops, gbps = peak_rates(info)
    stack_count = (info.memory_bus_bits or 0) // _BITS_PER_STACK
    figure = Figure(figsize=(7.6, 3.6), dpi=100)
    axes = figure.add_axes((0.0, 0.0, 1.0, 1.0))
    axes.set(xlim=(0, 15.2), ylim=(1.4, 8.6))
    axes.axis("off")

    def draw_text(x: float, y: float, string: str, **options: Any) -> None:
        axes.text(x, y, string, color=find_hex("fg"), **{"fontsize": 10, "va": "center", **options})

    def draw_unit(corner: tuple[float, float], width: float, height: float) -> None:
        fill_colour, edge_colour = find_hex("accent-2"), find_hex("fg")
        unit = Rectangle(corner, width, height, facecolor=fill_colour, edgecolor=edge_colour, linewidth=0.4)
        axes.add_patch(unit)

    # The units of one SM.
    draw_text(0.2, 8.2, "one SM", weight="bold")
    draw_text(0.2, 7.7, f"{info.fp32_lanes_per_sm} FP32 units; in each clock cycle,", fontsize=9)
    draw_text(0.2, 7.3, "each computes one a * b + c", fontsize=9)
    row_count = -(-info.fp32_lanes_per_sm // _UNITS_PER_ROW)
    for lane in range(info.fp32_lanes_per_sm):
        row, column = divmod(lane, _UNITS_PER_ROW)
        corner = (0.2 + 0.26 * column, 6.6 - 0.32 * row)
        draw_unit(corner, 0.2, 0.24)
    bottom_y = 6.6 - 0.32 * (row_count - 1)
    # The chip with its SMs.
    draw_text(5.3, 8.2, f"the GPU: {info.sm_count} SMs", weight="bold")
    for sm in range(info.sm_count):
        row, column = divmod(sm, _SMS_PER_ROW)
        corner = (5.3 + 0.36 * column, 7.5 - 0.42 * row)
        draw_unit(corner, 0.28, 0.32)
    axes.plot([4.4, 5.3], [6.84, 7.82], color=find_hex("muted"), linewidth=0.8)
    axes.plot([4.4, 5.3], [bottom_y, 7.5], color=find_hex("muted"), linewidth=0.8)
    chip_bottom = 7.5 - 0.42 * ((info.sm_count - 1) // _SMS_PER_ROW)
    # The stacks of memory.
    draw_text(11.6, 8.2, f"memory: {stack_count} stacks", weight="bold")
    for stack_index in range(stack_count):
        y = 7.82 - (7.82 - chip_bottom) * (stack_index + 1) / stack_count
        height = (7.82 - chip_bottom) / stack_count - 0.15
        axes.add_patch(
            Rectangle(
                (12.3, y),
                2.6,
                height,
                facecolor=(find_hex("good"), 0.4),
                edgecolor=find_hex("fg"),
            )
        )
        draw_text(13.6, y + height / 2, f"{gbps / stack_count:,.0f} GB/s", ha="center", fontsize=9)
        for wire_index in range(5):
            wire_y = y + height * (wire_index + 0.5) / 5
            axes.plot([9.75, 12.3], [wire_y, wire_y], color=find_hex("muted"), linewidth=0.7)
        draw_text(
            11.0,
            y + height / 2,
            f"{_BITS_PER_STACK:,} wires",
            ha="center",
            fontsize=9,
            bbox={"facecolor": "white", "edgecolor": "none", "pad": 1},
        )
    draw_text(
        0.2,
        3.3,
        f"FP32 peak = {info.sm_count} SMs × {info.fp32_lanes_per_sm} units × 2 operations × "
        f"{info.boost_clock_mhz:,} MHz = {tflops:.1f} TFLOP/s",
    )
    draw_text(
        0.2,
        2.6,
        f"bandwidth = {info.memory_bus_bits:,} wires × 2 bits × {info.memory_clock_mhz:,} MHz / 8 = "
        f"{gbps:,.0f} GB/s",
    )
    draw_text(0.2, 1.85, info.provenance.label, fontsize=9)
    return Picture.of(
        figure,
        f"{info.name}: {info.sm_count} SMs with {info.fp32_lanes_per_sm} FP32 units each, so {tflops:.1f} "
        f"TFLOP/s; {stack_count} stacks of memory with {_BITS_PER_STACK:,} wires each, so {gbps:,.0f} GB/s.",
    )
