"""How fast a kernel's own instructions let a warp and an SM go; `virtualgpu.launch.pace` works it out."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

# Latencies of global memory, in clocks, that the pace of a piece is worked out for; in between it is
# interpolated.
LATENCIES = (0.0, 40.0, 280.0, 700.0, 1500.0)


@dataclass(frozen=True, slots=True)
class Pace:
    """What the straight pieces of a kernel's PTX cost a warp that goes through them once.

    Attributes
    ----------
    pipes : array, shape (pieces, pipes)
        Warp instructions by `virtualgpu.model.cost.instructions.PIPES`.
    chain_clk : array, shape (pieces, latencies)
        Clocks that a warp takes alone, if global memory takes each of `LATENCIES`.
    loads : tuple of tuple of int
        Of each piece, the places of its loads from global memory (`AccessCounters.pc`).
    combined : frozenset of int
        Places of atomics that one lane does for its warp.
    chased : frozenset of int
        Places of loads whose address is made of what another load gave.
    merged : mapping
        Share that loads from shared memory have in one instruction that reads several words for a lane.
    """

    pipes: npt.NDArray[np.float64]
    chain_clk: npt.NDArray[np.float64]
    loads: tuple[tuple[int, ...], ...]
    combined: frozenset[int] = frozenset()
    merged: Mapping[int, float] = field(default_factory=dict)
    chased: frozenset[int] = frozenset()
