"""Where a number comes from."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Source = Literal["measured", "recorded", "modelled"]


@dataclass(frozen=True, slots=True)
class Provenance:
    """Where a number comes from: measured here and now, recorded earlier, or modelled."""

    source: Source
    device: str
    detail: str = ""

    @property
    def label(self) -> str:
        """One phrase for captions, such as ``measured on NVIDIA H200``."""
        tail = f" ({self.detail})" if self.detail else ""
        return f"{self.source} on {self.device}{tail}"
