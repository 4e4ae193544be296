"""Base class of views with sliders: their settings, the resulting picture, and the reply to the browser."""

from __future__ import annotations

import traitlets

from gpulab.views._base import View


class Steered(View):
    """View with sliders that make Python draw another picture (`boxes.slider`).

    Attributes
    ----------
    redraw_ms
        Milliseconds from the last move of a slider to its new picture, measured by the browser.
    failed
        Message next to the slider if its picture could not be made and an earlier one is still shown.
    """

    pictures = traitlets.Int(0).tag(sync=True)
    pictured = traitlets.Dict().tag(sync=True)
    """Values of the sliders' traits that the current picture shows."""
    redraw_ms = traitlets.Float(0.0).tag(sync=True, echo_update=False)
    status = traitlets.Unicode("").tag(sync=True)
    failed = traitlets.Unicode("").tag(sync=True)

    def answer(self, pictured: dict[str, int]) -> None:
        """Report the displayed values to the browser, which waits for this before it sends the next ones."""
        self.pictured = pictured
        self.pictures += 1
