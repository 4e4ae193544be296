"""A figure of the course: a PNG image with a caption."""

from __future__ import annotations

import io
from dataclasses import dataclass

from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

from gpulab.views.parts import palette


@dataclass(frozen=True, slots=True, repr=False)
class Picture:
    """A PNG image and its caption, which screen readers and exports use as well."""

    png: bytes
    caption: str

    @classmethod
    def of(cls, figure: Figure, caption: str) -> Picture:
        """Draw a figure on white."""
        FigureCanvasAgg(figure)
        buffer = io.BytesIO()
        figure.savefig(buffer, format="png", facecolor="white")
        return cls(buffer.getvalue(), caption)

    def __repr__(self) -> str:
        return self.caption

    def _repr_mimebundle_(
        self, include: object = None, exclude: object = None
    ) -> tuple[dict[str, object], dict[str, object]]:
        metadata: dict[str, object] = {"image/png": {"alt": self.caption}, **palette.NEEDS_LIGHT}
        return {"image/png": self.png, "text/plain": self.caption}, metadata
