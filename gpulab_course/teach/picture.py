"""A figure of the course: a PNG image with a caption."""

from __future__ import annotations

import io
from dataclasses import dataclass

from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from PIL import Image

from gpulab.views.parts import palette

_COLOURS = 160


@dataclass(frozen=True, slots=True, repr=False)
class Picture:
    """A PNG image and its caption, which screen readers and exports use as well."""

    png: bytes
    caption: str

    @classmethod
    def of(cls, figure: Figure, caption: str) -> Picture:
        """Draw a figure on white, with a palette that keeps the file small."""
        FigureCanvasAgg(figure)
        drawn = io.BytesIO()
        figure.savefig(drawn, format="png", facecolor="white")
        image = Image.open(drawn).convert("RGB")
        buffer = io.BytesIO()
        image.quantize(_COLOURS, dither=Image.Dither.NONE).save(buffer, "PNG", optimize=True)
        return cls(buffer.getvalue(), caption)

    def __repr__(self) -> str:
        return self.caption

    def _repr_mimebundle_(
        self, include: object = None, exclude: object = None
    ) -> tuple[dict[str, object], dict[str, object]]:
        metadata: dict[str, object] = {"image/png": {"alt": self.caption}, **palette.NEEDS_LIGHT}
        return {"image/png": self.png, "text/plain": self.caption}, metadata
