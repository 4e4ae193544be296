"""The device card: the capabilities of a GPU compared with others, with live readings if available."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import traitlets

from gpulab.views._base import View
from gpulab.views.device import facts
from gpulab.views.device.chip import draw_chip, explain_scales
from gpulab.views.parts.boxes import Box, column, fold, numbers, row, table, words
from gpulab.words import count, number, size
from virtualgpu.records import DeviceInfo, DeviceMetrics

AUTOMATIC_READINGS = 600


class DeviceCard(View, module="device/card"):
    """A view of the capabilities and limits of a device with live readings, compared with other devices.

    Parameters
    ----------
    info
        The device.
    other_devices
        Devices for comparison.
    read_metrics
        A function that takes one snapshot of the live readings. Automatic reading pauses after
        `AUTOMATIC_READINGS` snapshots and while the view is not visible.
    setup
        Settings of this device with their origin, such as the limits that the driver sets.
    """

    readings = traitlets.Dict().tag(sync=True)
    has_metrics = traitlets.Bool(False).tag(sync=True)
    automatic_readings = traitlets.Int(AUTOMATIC_READINGS).tag(sync=True)

    def __init__(
        self,
        info: DeviceInfo,
        other_devices: Sequence[DeviceInfo] = (),
        read_metrics: Callable[[], DeviceMetrics] | None = None,
        setup: DeviceMetrics | None = None,
    ) -> None:
        self.info = info
        self._setup = setup
        self.other_devices = facts.remove_same_device(info, other_devices)
        self._read_metrics = read_metrics
        super().__init__(
            title=f"{info.name}: compute capability {info.capability}",
            caption=_make_caption(info, self.other_devices),
            source=info.provenance.source,
            has_metrics=read_metrics is not None,
        )
        self.redraw()
        self.on_msg(self._on_message)
        if read_metrics is not None:
            self.refresh()

    @property
    def record(self) -> DeviceInfo | tuple[DeviceInfo, ...]:
        """The device that the view shows, or a tuple of all devices."""
        return (self.info, *self.other_devices) if self.other_devices else self.info

    def refresh(self) -> None:
        """Read the live values once. If this fails, show an error in the view."""
        if self._read_metrics is None:
            return
        with self._lock, self._show_errors("Reading the device"):
            device_metrics = self._read_metrics()
            self.readings = {
                "label": device_metrics.provenance.label,
                "time_ns": device_metrics.time_ns,
                "rows": [facts.make_metric_row(metric) for metric in device_metrics.metrics],
            }

    def _on_message(self, _widget: Any, content: Any, _buffers: Any) -> None:
        if content.get("kind") == "refresh":
            self.refresh()

    def sentence(self) -> str:
        info = self.info
        bandwidth_text = (
            f", {number(info.memory_bandwidth_gbps)} GB/s" if info.memory_bandwidth_gbps is not None else ""
        )
        comparison_text = (
            f", compared with {count(len(self.other_devices), 'other device')}" if self.other_devices else ""
        )
        memory_text = f"{size(info.memory_bytes)} of {info.memory_type or 'memory'}{bandwidth_text}"
        return (
            f"Device card of {info.name}: compute capability {info.capability}, "
            f"{count(info.sm_count, 'SM')}, {memory_text}{comparison_text}; {info.provenance.label}."
        )

    def describe(self) -> str:
        lines = [self.sentence()]
        for heading, quantities in facts.LIMITS.items():
            lines.append(
                f"{heading}: "
                + "; ".join(
                    f"{quantity.name} {quantity.format_with_unit(self.info)}" for quantity in quantities
                )
                + "."
            )
        if self._setup is not None:
            setup_text = "; ".join(" ".join(cells) for cells in _make_setup_rows(self._setup))
            lines.append(f"As set up, {self._setup.provenance.label}: {setup_text}.")
        for device in self.other_devices:
            quantities_text = ", ".join(
                f"{quantity.name} {quantity.format_with_unit(device)}" for quantity in facts.QUANTITIES
            )
            lines.append(f"{device.name} ({device.provenance.label}): {quantities_text}.")
        if self.info.notes:
            lines.append(self.info.notes)
        return "\n".join(lines)

    def draw(self) -> Box:
        limit_tables = [
            table(
                [[quantity.name, quantity.format_with_unit(self.info)] for quantity in quantities],
                title=heading,
            )
            for heading, quantities in facts.LIMITS.items()
        ]
        if self._setup is not None:
            limit_tables.append(
                table(_make_setup_rows(self._setup), title=f"As set up, {self._setup.provenance.source}")
            )
        limits_row = row(*limit_tables, least=[260] * len(limit_tables))
        devices = (self.info, *self.other_devices)
        comparison_chart = facts.draw_overview(devices, self.info)
        return column(
            row(
                draw_chip(self.info),
                column(
                    numbers(facts.make_headlines(self.info), least=105),
                    words(explain_scales(self.info), "note"),
                ),
                weights=[1.5, 1],
                least=[300, 230],
            ),
            fold("Compared with other GPUs", comparison_chart) if self.other_devices else None,
            fold(
                f"All limits of {self.info.name}",
                limits_row,
                opened=not (self.has_metrics or self.other_devices),
            ),
            words(self.info.notes, "note") if self.info.notes else None,
            gap=8,
        )


def _make_setup_rows(setup: DeviceMetrics) -> list[list[str]]:
    return [[metric.name, str(facts.make_metric_row(metric)["text"])] for metric in setup.metrics]


def _make_caption(info: DeviceInfo, other_devices: Sequence[DeviceInfo]) -> str:
    caption_text = f"{info.name}: {info.provenance.label}."
    other_sources = sorted({device.provenance.source for device in other_devices})
    if other_devices:
        caption_text += f" Other devices: {' and '.join(other_sources)}."
    return f"{caption_text} Peak rates are theoretical."
