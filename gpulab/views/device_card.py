"""Device card: what one GPU can do, beside others, with live readings where there are any."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import traitlets
from matplotlib.figure import Figure

from gpulab.views import _figure as f
from gpulab.views._base import View
from gpulab.views._device_facts import QUANTITIES, limit_groups, metric_row, short_names, without_twins
from gpulab.views._text import count, number, size
from virtualgpu.records import DeviceInfo, DeviceMetrics

AUTOMATIC_READINGS = 600


class DeviceCard(View, module="static/device_card"):
    """Capability and limits of a device against other devices, and live readings.

    Parameters
    ----------
    info
        The device.
    others
        Devices to compare it with.
    metrics
        Takes one snapshot of live readings. Reading by itself pauses after `AUTOMATIC_READINGS`
        snapshots and while the view is out of sight.
    """

    facts = traitlets.Dict().tag(sync=True)
    readings = traitlets.Dict().tag(sync=True)
    has_metrics = traitlets.Bool(False).tag(sync=True)
    automatic_readings = traitlets.Int(AUTOMATIC_READINGS).tag(sync=True)

    def __init__(
        self,
        info: DeviceInfo,
        others: Sequence[DeviceInfo] = (),
        metrics: Callable[[], DeviceMetrics] | None = None,
    ) -> None:
        self.info = info
        self.others = without_twins(info, others)
        self._metrics = metrics
        super().__init__(
            title=f"{info.name}: compute capability {info.capability}",
            caption=_caption(info, self.others),
            source=info.provenance.source,
            facts=_facts(info, self.others),
            has_metrics=metrics is not None,
        )
        self.on_msg(self._on_message)
        if metrics is not None:
            self.refresh()

    def refresh(self) -> None:
        """Take a snapshot of the live readings; an error is shown in the view."""
        if self._metrics is None:
            return
        with self._lock, self._reporting("Reading the device"):
            snapshot = self._metrics()
            self.readings = {
                "label": snapshot.provenance.label,
                "time_ns": snapshot.time_ns,
                "rows": [metric_row(metric) for metric in snapshot.metrics],
            }

    def _on_message(self, _widget: Any, content: Any, _buffers: Any) -> None:
        if content.get("kind") == "refresh":
            self.refresh()

    def sentence(self) -> str:
        info = self.info
        bandwidth = (
            f", {number(info.memory_bandwidth_gbps)} GB/s" if info.memory_bandwidth_gbps is not None else ""
        )
        beside = f", compared with {count(len(self.others), 'other device')}" if self.others else ""
        memory = f"{size(info.memory_bytes)} of {info.memory_type or 'memory'}{bandwidth}"
        return (
            f"Device card of {info.name}: compute capability {info.capability}, "
            f"{count(info.sm_count, 'SM')}, {memory}{beside}; {info.provenance.label}."
        )

    def describe(self) -> str:
        lines = [self.sentence()]
        for heading, rows in limit_groups(self.info):
            lines.append(f"{heading}: " + "; ".join(f"{name} {value}" for name, value in rows) + ".")
        for other in self.others:
            words = ", ".join(f"{q.name} {q.text(other)}" for q in QUANTITIES)
            lines.append(f"{other.name} ({other.provenance.label}): {words}.")
        if self.info.notes:
            lines.append(self.info.notes)
        return "\n".join(lines)

    def draw(self) -> Figure:
        return _draw(self.info, self.others, self.caption)


def _facts(info: DeviceInfo, others: Sequence[DeviceInfo]) -> dict[str, Any]:
    devices = (info, *others)
    names = short_names(devices)
    return {
        "name": info.name,
        "quantities": [
            {
                "name": quantity.name,
                "unit": quantity.unit,
                "bars": [
                    {
                        "device": device.name,
                        "short": short,
                        "value": quantity.of(device),
                        "text": quantity.text(device),
                        "here": device is info,
                    }
                    for device, short in zip(devices, names, strict=True)
                ],
            }
            for quantity in QUANTITIES
        ],
        "limits": [
            {"heading": heading, "rows": [list(row) for row in rows]} for heading, rows in limit_groups(info)
        ],
        "notes": info.notes,
    }


def _caption(info: DeviceInfo, others: Sequence[DeviceInfo]) -> str:
    text = f"{info.name}: {info.provenance.label}."
    sources = sorted({o.provenance.source for o in others})
    if others:
        text += f" Other devices: {' and '.join(sources)}."
    return f"{text} Peak rates are theoretical."


def _draw(info: DeviceInfo, others: Sequence[DeviceInfo], caption: str) -> Figure:
    devices = (info, *others)
    names = short_names(devices)
    bar_px = 15
    panel = 24 + bar_px * len(devices)
    bars_top = 44
    table_top = bars_top + 2 * (panel + 14) + 4
    table = 7 * 15 + 24
    height = table_top + table + 44
    title = f"{info.name}: compute capability {info.capability}"
    fig = f.figure(height, title, f.wrapped(caption))
    for at, quantity in enumerate(QUANTITIES):
        ax = f.bare(f.axes(fig, 14 + (at % 4) * 221, bars_top + (at // 4) * (panel + 14), 208, panel))
        ax.set_xlim(0, 208)
        ax.set_ylim(panel, 0)
        unit = f" ({quantity.unit})" if quantity.unit else ""
        ax.text(0, 9, quantity.name + unit, size=8.5, weight="bold", color=f.INK, va="center")
        values = [quantity.of(d) for d in devices]
        highest = max((v for v in values if v is not None), default=0) or 1
        for row, (short, value) in enumerate(zip(names, values, strict=True)):
            y = 25 + row * bar_px
            here = row == 0
            weight = "bold" if here else "normal"
            ax.text(
                0,
                y,
                short if len(short) <= 16 else short[:15] + "…",
                size=7.2,
                color=f.INK,
                va="center",
                weight=weight,
            )
            if value is None:
                ax.text(98, y, "not known", size=7.2, color=f.MUTED, va="center")
                continue
            ax.barh(y, 74 * value / highest, 9, left=98, color=f.BLUE if here else "#b6bfc8", linewidth=0)
            ax.text(
                101 + 74 * value / highest,
                y,
                number(value),
                size=7.2,
                color=f.INK,
                va="center",
                weight=weight,
            )
    for at, (heading, rows) in enumerate(limit_groups(info)):
        ax = f.bare(f.axes(fig, 14 + at * 221, table_top, 208, table))
        ax.set_xlim(0, 208)
        ax.set_ylim(table, 0)
        ax.text(0, 9, heading, size=8.5, weight="bold", color=f.INK, va="center")
        ax.plot([0, 208], [18, 18], color=f.RULE, linewidth=0.8)
        for row, (term, words) in enumerate(rows):
            y = 27 + row * 15
            ax.text(0, y, term, size=6.8, color=f.MUTED, va="center")
            ax.text(208, y, words, size=6.8, color=f.INK, va="center", ha="right")
    return fig
