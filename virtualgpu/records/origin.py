"""Origin of a number: measured, recorded, modelled or published."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Source = Literal["measured", "recorded", "modelled", "published"]


@dataclass(frozen=True, slots=True)
class Provenance:
    """The origin of a number, such as a measurement or a model. The provenance states how the number was
    obtained and on which device.

    A number is *measured* now, *recorded* on a named device earlier, *modelled* by the virtual GPU or a
    formula, or *published* in a document, which `detail` names.

    Examples
    --------
    >>> Provenance("published", "T4", "NVIDIA T4 datasheet").label
    'published for T4 (NVIDIA T4 datasheet)'
    """

    source: Source
    device: str
    detail: str = ""

    @property
    def label(self) -> str:
        """A phrase for captions, such as ``measured on NVIDIA H200``."""
        detail_text = f" ({self.detail})" if self.detail else ""
        return f"{self.source} {'for' if self.source == 'published' else 'on'} {self.device}{detail_text}"

    @property
    def of_results(self) -> str:
        """The label for computed values, such as results of kernels, masks and addresses. A virtual GPU
        computes such values exactly and models only times.
        """
        return f"executed{self.label.removeprefix('modelled')}" if self.source == "modelled" else self.label

    @property
    def of_results_and_times(self) -> str:
        """The label for a text that contains both computed values and times."""
        return f"{self.of_results}; times modelled" if self.source == "modelled" else self.label


HOST_CLOCK = Provenance("measured", "this computer", "host clock")
"""Provenance of times of Python's own clock, such as ``time.perf_counter()``."""
