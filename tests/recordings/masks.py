"""Active masks of a warp, for comparison between traces."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

Column = Sequence[int] | npt.NDArray[Any]


def visits(pc: Column, mask: Column, starts: set[int] | None = None) -> list[tuple[int, int]]:
    """(Basic block, active mask) of every step that enters one, sorted: lanes may take turns in any order."""
    pairs = zip(np.asarray(pc).tolist(), np.asarray(mask).tolist(), strict=True)
    return sorted(pair for pair in pairs if starts is None or pair[0] in starts)


def lane_visits(pc: Column, mask: Column, starts: set[int] | None = None) -> dict[tuple[int, int], int]:
    """Return how often each lane enters each basic block: (block, lane) -> times."""
    counts: Counter[tuple[int, int]] = Counter()
    for block, lanes in visits(pc, mask, starts):
        counts.update((block, lane) for lane in range(32) if lanes >> lane & 1)
    return dict(counts)
