"""What follows from a warp's trace: where lines and memory accesses begin, and what each access costs."""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from virtualgpu.records.kernel import SECTOR_BYTES, WARP_SIZE
from virtualgpu.records.warp import WarpTrace
from virtualgpu.records.warp.columns import lanes_of
from virtualgpu.records.warp.lines import find_visits
from virtualgpu.records.warp.loops import Ints, find_loops, neighbours

WAVEFRONT_BYTES = 128


class Kinds(NamedTuple):
    """Rows that are alike: which kind each row is, and the first row of every kind."""

    of: Ints
    first: npt.NDArray[np.int64]


class TraceSteps:
    """The steps of a warp trace, and its memory accesses.

    Attributes
    ----------
    line
        Source line of each step; one without has that of the step beside it.
    visits
        Which steps are one visit of a source line.
    accesses
        Steps that access memory. ``space`` (an index into the trace's), ``size_bytes`` and ``store`` have one
        entry for each, and so have ``sectors`` and ``wavefronts`` (what it took, 0: not recorded) and the
        ideal ones, the fewest that hold the distinct bytes of its lanes.
    moves
        Where each move leads from every step; to the step itself where there is nothing to go to.
    sites, masks
        Which steps share an instruction and line, or the active and executing lanes.
    threads
        Lanes of this warp that are threads of the block (below 32 in a ragged last warp).
    """

    def __init__(self, trace: WarpTrace) -> None:
        self.trace = trace
        here = np.arange(len(trace), dtype=np.int32)
        self.visits = find_visits(trace)
        self.line = self.visits.step_line
        space = np.full(len(trace), -1) if trace.access_space is None else trace.access_space
        self.accesses = np.flatnonzero(space >= 0).astype(np.int32)
        self.loops = find_loops(trace)
        self.moves = dict(self.loops.moves)
        for name, stops in (("line", self.visits.begin), ("access", self.accesses)):
            self.moves[f"next_{name}"], self.moves[f"previous_{name}"] = neighbours(stops, here)
        self.threads = max(0, min(WARP_SIZE, math.prod(trace.block) - trace.warp_index * WARP_SIZE))
        self.sites = kinds(trace.pc, self.line)
        self.masks = kinds(trace.active_mask, trace.executed_mask)
        self.space = space[self.accesses]
        self._read_accesses()

    def __len__(self) -> int:
        return len(self.trace)

    def _read_accesses(self) -> None:
        trace = self.trace
        at = self.accesses
        none = np.zeros(at.size, np.int32)
        self.size_bytes, self.store, self.sectors, self.wavefronts = (
            none if column is None else column[at].astype(np.int32)
            for column in (trace.access_size_bytes, trace.access_is_store, trace.sectors, trace.wavefronts)
        )
        distinct = none
        if trace.address is not None and at.size:
            # Accesses are aligned to their size, so two lanes' bytes are the same or disjoint.
            lanes = lanes_of(trace.executed_mask[at])
            ordered = np.sort(np.where(lanes, trace.address[at], -1), axis=1)
            distinct = (np.diff(ordered, axis=1, prepend=-1) > 0).sum(axis=1, dtype=np.int32)
        self.ideal_sectors = -(-distinct * self.size_bytes // SECTOR_BYTES)
        self.ideal_wavefronts = -(-distinct * self.size_bytes // WAVEFRONT_BYTES)


def kinds(*columns: npt.NDArray[Any]) -> Kinds:
    """Which rows of some columns are alike; no column has a number below 0."""
    key = np.zeros(columns[0].size, np.uint64)
    for column in columns:
        key = key * np.uint64(int(column.max(initial=0)) + 1) + column.astype(np.uint64)
    _, first, of = np.unique(key, return_index=True, return_inverse=True)
    return Kinds(of.astype(np.int32), first)
