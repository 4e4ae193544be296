"""Several GPUs side by side: one column each, differences marked."""

from __future__ import annotations

from collections.abc import Sequence

from gpulab.views._base import View
from gpulab.views.device import facts
from gpulab.views.parts.boxes import Box, column, fold, table, words
from gpulab.words import listing
from virtualgpu.records import DeviceInfo

DIFFERS = " ≠"


class DeviceComparison(View):
    """Capability and every limit of several GPUs, one column each.

    Parameters
    ----------
    devices
        The GPUs, in the order of their columns; one that comes twice is shown once.
    """

    def __init__(self, devices: Sequence[DeviceInfo]) -> None:
        self.devices = tuple({(d.name, d.provenance.source): d for d in devices}.values())
        self.names = facts.short_names(self.devices)
        self.origins = "; ".join(device.provenance.label for device in self.devices)
        sources = dict.fromkeys(device.provenance.source for device in self.devices)
        super().__init__(
            title=", ".join(self.names),
            caption=f"{self.origins[0].upper()}{self.origins[1:]}. Peak rates are theoretical.",
            source=" and ".join(sources),
        )
        self.redraw()

    @property
    def record(self) -> tuple[DeviceInfo, ...]:
        """The GPUs."""
        return self.devices

    def sentence(self) -> str:
        each = [
            f"{name} (compute capability {d.capability})"
            for name, d in zip(self.names, self.devices, strict=True)
        ]
        differ = sum(len(facts.differing(group, self.devices)) for group in facts.LIMITS.values())
        return f"{listing(each)} side by side: {differ} of their limits differ; {self.origins}."

    def describe(self) -> str:
        lines = [self.sentence()]
        for heading, quantities in facts.LIMITS.items():
            for quantity in quantities:
                values = [
                    f"{name} {quantity.text(d)}" for name, d in zip(self.names, self.devices, strict=True)
                ]
                lines.append(f"{heading}, {quantity.name}: {', '.join(values)}.")
        return "\n".join(lines)

    def draw(self) -> Box:
        groups = [self._group(heading, quantities) for heading, quantities in facts.LIMITS.items()]
        marked = words(f"A name with{DIFFERS} marks what is not the same on all.", "note")
        return column(facts.overview(self.devices), marked, *groups, gap=8)

    def _group(self, heading: str, quantities: Sequence[facts.Quantity]) -> Box:
        different = facts.differing(quantities, self.devices)
        rows = [
            [q.heading + (DIFFERS if q in different else ""), *(q.figure(device) for device in self.devices)]
            for q in quantities
        ]
        summary = f"{heading}: {len(different)} of {len(rows)} differ"
        return fold(summary, table(rows, ["", *self.names], name="columns"), opened=heading == "One SM")
