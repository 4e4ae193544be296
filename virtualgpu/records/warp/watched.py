"""Values of watched expressions of a warp at every step, and the steps at which the warp stops."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np
import numpy.typing as npt


@dataclass(frozen=True, slots=True, kw_only=True)
class Watched:
    """The values of a watch expression in 32 lanes. The table has one row for each step that changes a value.

    ``type`` is C's, ``kind`` the format of the bits in ``value``, such as ``s32``. Bit i of ``known`` and
    ``outside`` is lane i: whether its value is known, and whether an index is outside of its array, which
    ``note`` then describes. Without rows, ``note`` is the reason why nothing is known.
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
    """The steps at which a warp stops because of a source line, a condition or a write to memory.

    The field ``lanes`` contains a bit mask of the lanes that cause each stop. ``note`` is the reason why it
    cannot stop.
    """

    text: str
    kind: Literal["line", "any", "all", "write"]
    step: npt.NDArray[np.int32]
    lanes: npt.NDArray[np.uint32]
    note: str = ""
