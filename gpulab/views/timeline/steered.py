"""A timeline with sliders: the program runs for each setting, and the new timeline replaces the old one."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from gpulab.views._steered import Steered
from gpulab.views.parts.boxes import Slider
from gpulab.views.timeline.chart import make_panels
from gpulab.views.timeline.view import TimelineView
from virtualgpu.records import Timeline


class SteeredTimeline(TimelineView, Steered):
    """A view in which sliders select the timeline that is shown.

    A subclass defines a trait for each slider, and calls `steer` at the end of its ``__init__``. It
    implements `describe_settings` and `show_timeline`, of which the latter calls `show`.
    """

    def steer(self, *sliders: Slider) -> None:
        """Add sliders above the picture. For each new setting of the sliders, the view shows the
        corresponding timeline.
        """
        self.controls = [slider.wire() for slider in sliders]
        self.show_timeline()
        self.pictured = self._read_settings()
        self.observe(self._on_slider, list(self._read_settings()))

    def _read_settings(self) -> dict[str, int]:
        """Return the values of the sliders' traits."""
        return {slider["trait"]: getattr(self, slider["trait"]) for slider in self.controls}

    def describe_settings(self) -> str:
        """Return a description of the current slider settings for an error message."""
        raise NotImplementedError

    def show_timeline(self) -> None:
        """Show the timeline of the current slider settings."""
        raise NotImplementedError

    def show(
        self,
        *records: Timeline,
        names: Sequence[str] = (),
        summary: str = "",
        faults: Sequence[tuple[int, int]] = (),
    ) -> None:
        """Show other timelines. The list `faults` contains pairs of operations of the first timeline that
        need a defined order.
        """
        self.records = records
        self.summary = summary
        self.panels = make_panels(records, names)
        if faults:
            self.panels[0].faults = list(faults)
        self.redraw()

    def _on_slider(self, _: Any) -> None:
        with self._lock, self.hold_sync():
            previous_settings = self.pictured
            try:
                with self._show_errors(self.describe_settings()):
                    self.show_timeline()
                    previous_settings = self._read_settings()
            finally:
                self.confirm_picture(previous_settings)
