"""Wrong and right answers to the exercises, one module for each notebook: the judge is tried with them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class Wrong:
    """An answer that must fail: in which stage, and words of the sentence it earns.

    ``stage`` is empty for what fails before it can be tried (it does not compile, has other parameters ...),
    and for Python answers.
    """

    exercise_id: str
    what: str
    answer: Any
    stage: str
    says: str


@dataclass(frozen=True, slots=True)
class Right:
    """An answer that must pass."""

    exercise_id: str
    what: str
    answer: Any


def kernel_text(head: str) -> Callable[..., str]:
    """Writes kernels of one signature: ``kernel_text("k(int* x)")(body, before="")``."""
    return lambda body, before="": f'{before}\nextern "C" __global__ void {head} {{\n{body}\n}}\n'
