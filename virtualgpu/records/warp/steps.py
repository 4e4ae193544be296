"""Steps of a warp's trace: beginnings of lines, memory accesses, and the cost of each access."""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from virtualgpu.records.kernel import SECTOR_BYTES, WARP_SIZE
from virtualgpu.records.warp import WarpTrace
from virtualgpu.records.warp.columns import expand_lane_masks
from virtualgpu.records.warp.lines import find_visits
from virtualgpu.records.warp.loops import Ints, find_loops, find_neighbour_stops

WAVEFRONT_BYTES = 128


class RowGroups(NamedTuple):
    """A partition of rows into groups of equal rows, with the group number of each row and the first row of
    each group.
    """

    of: Ints
    first: npt.NDArray[np.int64]


class TraceSteps:
    """The steps of a warp trace, with their source lines, their memory accesses and groups of equal steps.

    Attributes
    ----------
    line
        Source line of each step; a step without one has that of a step next to it.
    visits
        Visits of source lines.
    accesses
        Steps that access memory. ``space`` (an index into the trace's), ``size_bytes`` and ``store`` have one
        entry for each, as do ``sectors`` and ``wavefronts`` (0: not recorded) and the ideal ones, the
        smallest numbers that contain the distinct bytes of its lanes.
    moves
        Target of each move from every step; the step itself if there is no target.
    sites, masks
        Groups of steps with the same instruction and line, or the same active and executing lanes.
    threads
        Lanes of this warp that are threads of the block (below 32 in a ragged last warp).
    """

    def __init__(self, trace: WarpTrace) -> None:
        self.trace = trace
        step_indices = np.arange(len(trace), dtype=np.int32)
        self.visits = find_visits(trace)
        self.line = self.visits.step_line
        space = np.full(len(trace), -1) if trace.access_space is None else trace.access_space
        self.accesses = np.flatnonzero(space >= 0).astype(np.int32)
        self.loops = find_loops(trace)
        self.moves = dict(self.loops.moves)
        for name, stops in (("line", self.visits.begin), ("access", self.accesses)):
            self.moves[f"next_{name}"], self.moves[f"previous_{name}"] = find_neighbour_stops(
                stops, step_indices
            )
        self.threads = max(0, min(WARP_SIZE, math.prod(trace.block) - trace.warp_index * WARP_SIZE))
        self.sites = group_equal_rows(trace.pc, self.line)
        self.masks = group_equal_rows(trace.active_mask, trace.executed_mask)
        self.space = space[self.accesses]
        self._read_accesses()

    def __len__(self) -> int:
        return len(self.trace)

    def _access_column(self, column: npt.NDArray[Any] | None) -> Ints:
        """Return a column of the accesses; zeros if it was not recorded."""
        if column is None:
            return np.zeros(self.accesses.size, np.int32)
        return column[self.accesses].astype(np.int32)

    def _read_accesses(self) -> None:
        trace = self.trace
        access_steps = self.accesses
        zero_column = np.zeros(access_steps.size, np.int32)
        self.size_bytes = self._access_column(trace.access_size_bytes)
        self.store = self._access_column(trace.access_is_store)
        self.sectors = self._access_column(trace.sectors)
        self.wavefronts = self._access_column(trace.wavefronts)
        distinct_lanes = zero_column
        if trace.address is not None and access_steps.size:
            # Accesses are aligned to their size, so the bytes of two lanes are equal or disjoint.
            lanes = expand_lane_masks(trace.executed_mask[access_steps])
            sorted_addresses = np.sort(np.where(lanes, trace.address[access_steps], -1), axis=1)
            distinct_lanes = (np.diff(sorted_addresses, axis=1, prepend=-1) > 0).sum(axis=1, dtype=np.int32)
        self.ideal_sectors = -(-distinct_lanes * self.size_bytes // SECTOR_BYTES)
        self.ideal_wavefronts = -(-distinct_lanes * self.size_bytes // WAVEFRONT_BYTES)


def group_equal_rows(*columns: npt.NDArray[Any]) -> RowGroups:
    """Group the rows that have equal values in the given columns. The values must not be negative."""
    row_keys = np.zeros(columns[0].size, np.uint64)
    for column in columns:
        row_keys = row_keys * np.uint64(int(column.max(initial=0)) + 1) + column.astype(np.uint64)
    _, first_rows, group_of_row = np.unique(row_keys, return_index=True, return_inverse=True)
    return RowGroups(group_of_row.astype(np.int32), first_rows)
