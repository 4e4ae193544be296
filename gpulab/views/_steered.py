"""A view with sliders: their settings, the resulting picture, and the reply to the browser."""

from __future__ import annotations

import traitlets

from gpulab.views._base import View


class Steered(View):
    """A view whose sliders make Python draw another picture (`boxes.slider`).

    Attributes
    ----------
    redraw_ms
        Milliseconds from the last move of a slider to its new picture, as the browser measured.
    failed
        What stands beside the slider when its picture could not be made and an earlier one is still shown.
    """

    pictures = traitlets.Int(0).tag(sync=True)
    pictured = traitlets.Dict().tag(sync=True)
    """The sliders' traits as the picture shows them."""
    redraw_ms = traitlets.Float(0.0).tag(sync=True, echo_update=False)
    status = traitlets.Unicode("").tag(sync=True)
    failed = traitlets.Unicode("").tag(sync=True)

    def answer(self, pictured: dict[str, int]) -> None:
        """Tell the browser what is shown now; it waits for this before it sends the next slider position."""
        self.pictured = pictured
        self.pictures += 1
