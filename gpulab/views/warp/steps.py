"""Reading a warp trace: where lines and memory accesses begin, what each step costs and how it reads."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from gpulab.views._text import number, product
from gpulab.views.warp import words
from virtualgpu.records import SECTOR_BYTES, WARP_SIZE, WarpTrace
from virtualgpu.records.columns import lanes_of
from virtualgpu.records.loops import Ints, find_loops, neighbours

WAVEFRONT_BYTES = 128


class Kinds(NamedTuple):
    """Rows that are alike: which kind each row is, and the first row of every kind."""

    of: Ints
    first: npt.NDArray[np.int64]


class WarpSteps:
    """A warp trace made ready for stepping.

    Attributes
    ----------
    line
        Source line of each step; a step without one belongs to the line before it.
    accesses
        Steps that access memory. ``sectors`` and ``wavefronts`` are what each took (0: not recorded),
        the ideal ones the fewest that hold the distinct bytes of its lanes.
    moves
        Where each move leads from every step; to the step itself where there is nothing to go to.
    sites, masks, access_kinds
        Which steps share an instruction and line, or the active and executing lanes; which accesses
        read the same. Of each kind there are the words.
    threads
        Lanes of this warp that are threads of the block (below 32 in a ragged last warp).
    """

    def __init__(self, trace: WarpTrace) -> None:
        self.trace = trace
        here = np.arange(len(trace), dtype=np.int32)
        self.line = np.append(trace.line, 0)[np.maximum.accumulate(np.where(trace.line > 0, here, -1))]
        space = np.full(len(trace), -1) if trace.access_space is None else trace.access_space
        self.accesses = np.flatnonzero(space >= 0).astype(np.int32)
        self.loops = find_loops(trace)
        self.moves = dict(self.loops.moves)
        starts = np.flatnonzero(np.diff(self.line, prepend=-1))
        for name, stops in (("line", starts), ("access", self.accesses)):
            self.moves[f"next_{name}"], self.moves[f"previous_{name}"] = neighbours(stops, here)
        self.threads = max(0, min(WARP_SIZE, product(trace.block) - trace.warp_index * WARP_SIZE))
        self.sites = _kinds(trace.pc, self.line)
        self.masks = _kinds(trace.active_mask, trace.executed_mask)
        self._read_accesses(space[self.accesses])
        at = self.sites.first
        self.place_words = [f"line {line}" if line else "no source line" for line in self.line[at].tolist()]
        self.site_words = [words.bare_text(trace.instruction[t]) for t in trace.text_index[at].tolist()]
        pairs = np.stack([trace.active_mask, trace.executed_mask], axis=1)[self.masks.first].tolist()
        self.lanes_words = [words.lanes_words(active, ran, self.threads) for active, ran in pairs]

    def __len__(self) -> int:
        return len(self.trace)

    def _read_accesses(self, space: npt.NDArray[Any]) -> None:
        trace, at = self.trace, self.accesses
        none = np.zeros(at.size, np.int32)
        size, store, self.sectors, self.wavefronts = (
            none if column is None else column[at].astype(np.int32)
            for column in (trace.access_size_bytes, trace.access_is_store, trace.sectors, trace.wavefronts)
        )
        distinct = none
        if trace.address is not None and at.size:
            # Accesses are aligned to their size, so two lanes' bytes are the same or disjoint.
            lanes = lanes_of(trace.executed_mask[at])
            ordered = np.sort(np.where(lanes, trace.address[at], -1), axis=1)
            distinct = (np.diff(ordered, axis=1, prepend=-1) > 0).sum(axis=1, dtype=np.int32)
        self.ideal_sectors = -(-distinct * size // SECTOR_BYTES)
        self.ideal_wavefronts = -(-distinct * size // WAVEFRONT_BYTES)
        spaces = np.array(trace.space or [""])[space]
        shared = spaces == "shared"
        spent = np.where(shared, self.wavefronts, self.sectors)
        ideal = np.where(shared, self.ideal_wavefronts, self.ideal_sectors)
        ran, text = np.bitwise_count(trace.executed_mask[at]), trace.text_index[at]
        self.access_kinds = _kinds(text, space, store, size, spent, ideal, ran)
        first = self.access_kinds.first
        rows = (column[first].tolist() for column in (text, spaces, store, size, spent, ideal, ran))
        self.access_words = [
            words.access(trace.instruction[index], *row, drawn=trace.address is not None)
            for index, *row in zip(*rows, strict=True)
        ]

    def sentence(self, step: int) -> str:
        """One step in words."""
        site, turn = int(self.sites.of[step]), int(self.loops.turn[step])
        at = int(np.searchsorted(self.accesses, step))
        access = at < self.accesses.size and self.accesses[at] == step
        said: str = words.SENTENCE.format(
            step=number(step + 1), steps=number(len(self)), place=self.place_words[site],
            turn=f", {self.loops.words[turn]}" if turn >= 0 else "",
            lanes=self.lanes_words[int(self.masks.of[step])],
            text=self.site_words[site],
            access=f" {self.access_words[int(self.access_kinds.of[at])].sentence}" if access else "",
        )  # fmt: skip
        return said


def _kinds(*columns: npt.NDArray[Any]) -> Kinds:
    """Which rows of some columns are alike; no column has a number below 0."""
    key = np.zeros(columns[0].size, np.uint64)
    for column in columns:
        key = key * np.uint64(int(column.max(initial=0)) + 1) + column.astype(np.uint64)
    _, first, of = np.unique(key, return_index=True, return_inverse=True)
    return Kinds(of.astype(np.int32), first)
