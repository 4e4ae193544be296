"""A view with sliders: what they are set to, what the picture shows, and that it has been answered."""

from __future__ import annotations

import traitlets

from gpulab.views._base import View


class Steered(View):
    """A view whose sliders Python answers with another picture (`boxes.slider`).

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
        """Tell the browser, which waits for it before it sends a slider's next place, what is shown now."""
        self.pictured = pictured
        self.pictures += 1
