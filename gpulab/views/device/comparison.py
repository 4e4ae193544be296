"""Comparison of several GPUs next to each other, with a mark at each difference."""

from __future__ import annotations

import math
from collections.abc import Sequence
from textwrap import fill
from typing import TYPE_CHECKING

from matplotlib.collections import PatchCollection
from matplotlib.patches import Rectangle

from gpulab.views._figure import FigureView, Painter, colour
from gpulab.views.device import facts
from gpulab.views.device.chip import L2_COLOUR, SM_COLOUR, compute_chip_layout
from gpulab.views.tables import Cell, Column, Table
from gpulab.words import listing
from virtualgpu.records import DeviceInfo

if TYPE_CHECKING:
    from matplotlib.axes import Axes

DIFFERS_MARK = " ≠"
ROW_HEIGHT_IN = 0.42
CHIP_SIZE_PX = (150.0, 34.0)
"""Width and height of the largest chip."""
CHIP_ROW_SHARE = 0.8
"""Height of the largest chip as a share of its row."""


class DeviceComparison(FigureView):
    """A chart and tables of the capabilities and limits of several GPUs, with one column per GPU.

    Parameters
    ----------
    devices
        The GPUs, in the order of their columns; duplicates are shown once.
    """

    panel_widths = (1.0, 0.24)

    def __init__(self, devices: Sequence[DeviceInfo]) -> None:
        self.devices = tuple({(gpu.name, gpu.provenance.source): gpu for gpu in devices}.values())
        self.names = facts.make_short_names(self.devices)
        self.origins = "; ".join(device.provenance.label for device in self.devices)
        sources = dict.fromkeys(device.provenance.source for device in self.devices)
        super().__init__(
            title=", ".join(self.names),
            caption=f"{self.origins[0].upper()}{self.origins[1:]}. Peak rates are theoretical. Chips: "
            "one tile per SM with the area of its shared memory, next to L2; all areas are on one scale.",
            source=" and ".join(sources),
        )
        self.height_in = 1.5 + ROW_HEIGHT_IN * len(self.devices)

    @property
    def record(self) -> tuple[DeviceInfo, ...]:
        """The GPUs that the view compares."""
        return self.devices

    def sentence(self) -> str:
        device_names = [
            f"{name} (compute capability {device.capability})"
            for name, device in zip(self.names, self.devices, strict=True)
        ]
        differing_count = sum(
            len(facts.find_differing_quantities(quantities, self.devices))
            for quantities in facts.LIMITS.values()
        )
        return (
            f"{listing(device_names)} side by side: {differing_count} of their limits differ; {self.origins}."
        )

    def describe(self) -> str:
        lines = [self.sentence()]
        for heading, quantities in facts.LIMITS.items():
            for quantity in quantities:
                device_texts = [
                    f"{name} {quantity.format_with_unit(device)}"
                    for name, device in zip(self.names, self.devices, strict=True)
                ]
                lines.append(f"{heading}, {quantity.name}: {', '.join(device_texts)}.")
        return "\n".join(lines)

    def tables(self) -> tuple[Table, ...]:
        """Return a table of the quantities in the chart with one row per device, and tables of all limits."""
        overview_rows = tuple(
            (name, device.capability, *(quantity.get_value(device) for quantity in facts.QUANTITIES))
            for name, device in zip(self.names, self.devices, strict=True)
        )
        quantity_columns = tuple(
            Column(quantity.heading, format_value=quantity.format_value) for quantity in facts.QUANTITIES
        )
        columns: tuple[Column | str, ...] = ("device", "capability", *quantity_columns)
        limit_tables = (
            self._make_limit_table(heading, quantities) for heading, quantities in facts.LIMITS.items()
        )
        return Table("Devices", columns, overview_rows), *limit_tables

    def _make_limit_table(self, heading: str, quantities: Sequence[facts.Quantity]) -> Table:
        differing_quantities = facts.find_differing_quantities(quantities, self.devices)
        limit_rows = tuple(
            (
                Cell(
                    quantity.heading,
                    quantity.heading + (DIFFERS_MARK if quantity in differing_quantities else ""),
                ),
                *(
                    Cell(quantity.get_value(device), quantity.format_number(device))
                    for device in self.devices
                ),
            )
            for quantity in quantities
        )
        title = f"{heading}: {len(differing_quantities)} of {len(limit_rows)} differ"
        return Table(title, (Column("", "quantity"), *self.names), limit_rows)

    def painters(self) -> tuple[Painter, ...]:
        return self._paint_bars, self._paint_chips

    def _paint_bars(self, ax: Axes) -> None:
        """Draw a row for each device and a column for each quantity, with bars up to the largest value."""
        for column, quantity in enumerate(facts.QUANTITIES):
            values = [quantity.get_value(device) for device in self.devices]
            largest_value = (
                max(
                    (number_value for number_value in values if isinstance(number_value, (int, float))),
                    default=0,
                )
                or 1
            )
            for row, (device, value) in enumerate(zip(self.devices, values, strict=True)):
                share_of_largest = value / largest_value if isinstance(value, (int, float)) else 0
                ax.barh(row, 0.48 * share_of_largest, 0.6, left=column, color=colour("accent"))
                ax.text(
                    column + 0.48 * share_of_largest + 0.03, row, quantity.format_number(device), va="center"
                )
        device_names = [
            f"{name} ({gpu.capability})" for name, gpu in zip(self.names, self.devices, strict=True)
        ]
        ax.set_yticks(range(len(device_names)), device_names)
        ax.set_ylim(len(device_names) - 0.4, -0.6)
        headings = [fill(quantity.heading, 11) for quantity in facts.QUANTITIES]
        ax.set_xticks(range(len(headings)), headings, ha="left")
        ax.set_xlim(0, len(headings))
        ax.xaxis.tick_top()
        ax.tick_params(length=0)
        ax.spines[:].set_visible(False)
        ax.spines["left"].set_visible(True)

    def _paint_chips(self, ax: Axes) -> None:
        """Draw each chip with its SMs and L2; the areas of all chips are on one scale."""
        chip_layouts = [compute_chip_layout(device, *CHIP_SIZE_PX) for device in self.devices]
        px_per_byte = [
            width / device.l2_bytes for device, (_, width) in zip(self.devices, chip_layouts, strict=True)
        ]
        rows_per_px = CHIP_ROW_SHARE / CHIP_SIZE_PX[1]
        for row, ((sm_tiles, l2_width), chip_px_per_byte) in enumerate(
            zip(chip_layouts, px_per_byte, strict=True)
        ):
            chip_scale = math.sqrt(min(px_per_byte) / chip_px_per_byte)
            chip_top = row - CHIP_ROW_SHARE * chip_scale / 2
            sm_rectangles = [
                Rectangle((x, chip_top + y * rows_per_px), tile_width, tile_height * rows_per_px)
                for x, y, tile_width, tile_height in (chip_scale * sm_tiles).tolist()
            ]
            ax.add_collection(
                PatchCollection(
                    sm_rectangles, facecolor=colour(SM_COLOUR), edgecolor=colour("bg"), linewidth=0.3
                )
            )
            l2_corner = chip_scale * (CHIP_SIZE_PX[0] - l2_width), chip_top
            ax.add_patch(
                Rectangle(
                    l2_corner, chip_scale * l2_width, chip_scale * CHIP_ROW_SHARE, facecolor=colour(L2_COLOUR)
                )
            )
        ax.set_xlim(0, CHIP_SIZE_PX[0])
        ax.set_ylim(len(self.devices) - 0.4, -0.6)
        ax.set_title("SMs", loc="left", fontsize="medium", color=colour("good-text"))
        ax.set_title("L2", fontsize="medium", color=colour(L2_COLOUR))
        ax.axis("off")
