"""A drawn figure of the course: a PNG with the sentence that says what it shows."""

from __future__ import annotations

import io
from dataclasses import dataclass

from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

from gpulab.views.parts import palette


@dataclass(frozen=True, slots=True, repr=False)
class Picture:
    """A PNG and its caption, which is also what screen readers and exports say."""

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
