"""A static picture of the course with a caption."""

from __future__ import annotations

import io
from dataclasses import dataclass

from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from PIL import Image

from gpulab.views.parts import palette

_COLOUR_COUNT = 160


@dataclass(frozen=True, slots=True, repr=False)
class Picture:
    """A PNG image with a caption, which screen readers use as its alternative text."""

    png: bytes
    caption: str

    @classmethod
    def of(cls, figure: Figure, caption: str) -> Picture:
        """Render a Matplotlib figure as a small PNG image on a white background."""
        FigureCanvasAgg(figure)
        png_buffer = io.BytesIO()
        figure.savefig(png_buffer, format="png", facecolor="white")
        image = Image.open(png_buffer).convert("RGB")
        small_png_buffer = io.BytesIO()
        image.quantize(_COLOUR_COUNT, dither=Image.Dither.NONE).save(small_png_buffer, "PNG", optimize=True)
        return cls(small_png_buffer.getvalue(), caption)

    def __repr__(self) -> str:
        return self.caption

    def _repr_mimebundle_(
        self, include: object = None, exclude: object = None
    ) -> tuple[dict[str, object], dict[str, object]]:
        metadata: dict[str, object] = {"image/png": {"alt": self.caption}, **palette.LIGHT_METADATA}
        return {"image/png": self.png, "text/plain": self.caption}, metadata
