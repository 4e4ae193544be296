"""The base class of views with sliders, which draw a new picture for each setting."""

from __future__ import annotations

import traitlets

from gpulab.views._base import View


class Steered(View):
    """A view in which sliders change the values that are drawn. Python draws a new picture for each position
    of the sliders.

    Attributes
    ----------
    redraw_ms
        The time in ms from the last move of a slider to its new picture, measured by the browser.
    failed
        The message next to a slider if its picture failed and an earlier one is still shown.
    """

    pictures = traitlets.Int(0).tag(sync=True)
    pictured = traitlets.Dict().tag(sync=True)
    """Values of the sliders' traits that the current picture shows."""
    redraw_ms = traitlets.Float(0.0).tag(sync=True, echo_update=False)
    status = traitlets.Unicode("").tag(sync=True)
    failed = traitlets.Unicode("").tag(sync=True)

    def confirm_picture(self, pictured: dict[str, int]) -> None:
        """Send the browser the slider values of the displayed picture. The browser then sends the next slider
        values.
        """
        self.pictured = pictured
        self.pictures += 1
