"""What was watched of a warp at every step, and the steps at which it stops."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np
import numpy.typing as npt


@dataclass(frozen=True, slots=True, kw_only=True)
class Watched:
    """An expression's values in 32 lanes, after every step; a row for each step that changes one.

    ``type`` is C's, ``kind`` reads the bits in ``value``, such as ``s32``. Bit i of ``known`` and ``outside``
    is lane i: whether its value is known, and whether an index lies outside of its array, of which ``note``
    then says more. Where there are no rows, it says why nothing is known.
    """

    text: str
    type: str
    kind: str
    step: npt.NDArray[np.int32]
    value: npt.NDArray[np.uint64]
    known: npt.NDArray[np.uint32]
    outside: npt.NDArray[np.uint32]
    note: str = ""


@dataclass(frozen=True, slots=True)
class Stop:
    """Steps at which a warp stops: at a line, as a condition becomes true, or as a place is written.

    ``lanes`` are those for which it does, bit i of a mask lane i. ``note`` says why it never can.
    """

    text: str
    kind: Literal["line", "any", "all", "write"]
    step: npt.NDArray[np.int32]
    lanes: npt.NDArray[np.uint32]
    note: str = ""
