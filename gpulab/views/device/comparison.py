"""Comparison of several GPUs side by side, with a mark at each difference."""

from __future__ import annotations

from collections.abc import Sequence
from textwrap import fill
from typing import TYPE_CHECKING

from gpulab.views._figure import FigureView, Painter, colour
from gpulab.views.device import facts
from gpulab.views.tables import Cell, Column, Table
from gpulab.words import listing
from virtualgpu.records import DeviceInfo

if TYPE_CHECKING:
    from matplotlib.axes import Axes

DIFFERS = " ≠"


class DeviceComparison(FigureView):
    """Chart and tables of the capability and limits of several GPUs, with a column for each.

    Parameters
    ----------
    devices
        The GPUs, in the order of their columns; duplicates are shown once.
    """

    def __init__(self, devices: Sequence[DeviceInfo]) -> None:
        self.devices = tuple({(gpu.name, gpu.provenance.source): gpu for gpu in devices}.values())
        self.names = facts.short_names(self.devices)
        self.origins = "; ".join(device.provenance.label for device in self.devices)
        sources = dict.fromkeys(device.provenance.source for device in self.devices)
        super().__init__(
            title=", ".join(self.names),
            caption=f"{self.origins[0].upper()}{self.origins[1:]}. Peak rates are theoretical.",
            source=" and ".join(sources),
        )
        self.height_in = 1.5 + 0.27 * len(self.devices)

    @property
    def record(self) -> tuple[DeviceInfo, ...]:
        """The GPUs."""
        return self.devices

    def sentence(self) -> str:
        names = [
            f"{name} (compute capability {device.capability})"
            for name, device in zip(self.names, self.devices, strict=True)
        ]
        differing_count = sum(len(facts.differing(group, self.devices)) for group in facts.LIMITS.values())
        return f"{listing(names)} side by side: {differing_count} of their limits differ; {self.origins}."

    def describe(self) -> str:
        lines = [self.sentence()]
        for heading, quantities in facts.LIMITS.items():
            for quantity in quantities:
                values = [
                    f"{name} {quantity.text(device)}"
                    for name, device in zip(self.names, self.devices, strict=True)
                ]
                lines.append(f"{heading}, {quantity.name}: {', '.join(values)}.")
        return "\n".join(lines)

    def tables(self) -> tuple[Table, ...]:
        """Return a table with the chart's quantities, a row per device, and tables of all limits."""
        overview = tuple(
            (name, device.capability, *(quantity.of(device) for quantity in facts.QUANTITIES))
            for name, device in zip(self.names, self.devices, strict=True)
        )
        quantities = tuple(Column(quantity.heading, show=quantity.show) for quantity in facts.QUANTITIES)
        columns: tuple[Column | str, ...] = ("device", "capability", *quantities)
        groups = (self._group(heading, quantities) for heading, quantities in facts.LIMITS.items())
        return Table("Devices", columns, overview), *groups

    def _group(self, heading: str, quantities: Sequence[facts.Quantity]) -> Table:
        different = facts.differing(quantities, self.devices)
        rows = tuple(
            (
                Cell(quantity.heading, quantity.heading + (DIFFERS if quantity in different else "")),
                *(Cell(quantity.of(device), quantity.figure(device)) for device in self.devices),
            )
            for quantity in quantities
        )
        title = f"{heading}: {len(different)} of {len(rows)} differ"
        return Table(title, (Column("", "quantity"), *self.names), rows)

    def painters(self) -> tuple[Painter, ...]:
        return (self._paint,)

    def _paint(self, ax: Axes) -> None:
        """Draw a row for each device and a column for each quantity, with bars up to the largest value."""
        for column, quantity in enumerate(facts.QUANTITIES):
            values = [quantity.of(device) for device in self.devices]
            largest = max((number for number in values if isinstance(number, (int, float))), default=0) or 1
            for row, (device, value) in enumerate(zip(self.devices, values, strict=True)):
                share = value / largest if isinstance(value, (int, float)) else 0
                ax.barh(row, 0.55 * share, 0.6, left=column, color=colour("accent"))
                ax.text(column + 0.55 * share + 0.03, row, quantity.figure(device), va="center")
        names = [f"{name} ({gpu.capability})" for name, gpu in zip(self.names, self.devices, strict=True)]
        ax.set_yticks(range(len(names)), names)
        ax.set_ylim(len(names) - 0.4, -0.6)
        headings = [fill(quantity.heading, 13) for quantity in facts.QUANTITIES]
        ax.set_xticks(range(len(headings)), headings, ha="left")
        ax.set_xlim(0, len(headings))
        ax.xaxis.tick_top()
        ax.tick_params(length=0)
        ax.spines[:].set_visible(False)
        ax.spines["left"].set_visible(True)
