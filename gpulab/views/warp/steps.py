"""Reading a warp trace: where lines and memory accesses begin, what each step costs and how it reads."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from gpulab.views._text import number, product
from gpulab.views.warp import words
from gpulab.views.warp.loops import Ints, Loops, find_loops
from virtualgpu.records import SECTOR_BYTES, WARP_SIZE, WarpTrace
from virtualgpu.records.columns import lanes_of

BANK_BYTES = 4
BANKS = 32


class Kinds(NamedTuple):
    """Rows that are alike: which kind each row is, the first row of every kind, and how many there are."""

    of: Ints
    first: npt.NDArray[np.int64]
    rows: npt.NDArray[np.int64]


class Access(NamedTuple):
    """A memory access in words, and how the view draws it."""

    sentence: str
    heading: str
    verdict: str
    note: str
    picture: str
    over: bool
    reads: bool
    size_bytes: int


@dataclass(frozen=True)
class WarpSteps:
    """A warp trace made ready for stepping: derived columns, moves and words."""

    trace: WarpTrace

    def __len__(self) -> int:
        return len(self.trace)

    @cached_property
    def line(self) -> Ints:
        """Source line of each step; a step without one belongs to the line before it."""
        line = np.asarray(self.trace.line, dtype=np.int32)
        known = np.where(line > 0, np.arange(line.size), -1)
        last = np.maximum.accumulate(known) if line.size else known
        return np.where(last >= 0, line[np.maximum(last, 0)], 0).astype(np.int32)

    @cached_property
    def line_starts(self) -> Ints:
        """Steps at which another source line begins; the first step is one."""
        if not len(self):
            return np.empty(0, np.int32)
        return np.flatnonzero(np.diff(self.line, prepend=self.line[0] - 1)).astype(np.int32)

    @cached_property
    def accesses(self) -> Ints:
        """Steps that access memory."""
        if self.trace.access_space is None:
            return np.empty(0, np.int32)
        return np.flatnonzero(self.trace.access_space >= 0).astype(np.int32)

    @cached_property
    def loops(self) -> Loops:
        """The loops that this warp went round at least twice."""
        return find_loops(self.trace)

    @cached_property
    def threads(self) -> int:
        """Lanes of this warp that are threads of the block (below 32 in a ragged last warp)."""
        left = product(self.trace.block) - self.trace.warp_index * WARP_SIZE
        return max(0, min(WARP_SIZE, left))

    @cached_property
    def moves(self) -> dict[str, Ints]:
        """Where each move leads from every step; to the step itself where there is nothing to go to."""
        return {
            "next_line": self._after(self.line_starts),
            "previous_line": self._before(self.line_starts),
            "next_access": self._after(self.accesses),
            "previous_access": self._before(self.accesses),
        } | self.loops.moves()

    def _after(self, stops: Ints) -> Ints:
        steps = np.arange(len(self), dtype=np.int32)
        found = np.searchsorted(stops, steps, side="right")
        return np.where(found < stops.size, np.append(stops, 0)[found], steps).astype(np.int32)

    def _before(self, stops: Ints) -> Ints:
        steps = np.arange(len(self), dtype=np.int32)
        found = np.searchsorted(stops, steps, side="left") - 1
        return np.where(found >= 0, np.append(stops, 0)[found], steps).astype(np.int32)

    def clamp(self, step: int) -> int:
        return max(0, min(step, len(self) - 1))

    @cached_property
    def _distinct(self) -> tuple[Ints, Ints]:
        """Distinct addresses and distinct sectors of every access, among executing lanes.

        Accesses are aligned to their size, so two lanes' bytes are the same or disjoint, and none
        crosses a sector.
        """
        if self.trace.address is None or not self.accesses.size:
            return np.zeros(self.accesses.size, np.int32), np.zeros(self.accesses.size, np.int32)
        rows = self.trace.address[self.accesses]
        lanes = lanes_of(self.trace.executed_mask[self.accesses]) & (rows >= 0)
        ordered = np.sort(np.where(lanes, rows, -1), axis=1)
        return _steps_up(ordered), _steps_up(ordered // SECTOR_BYTES)

    @cached_property
    def sectors(self) -> Ints:
        """32-byte sectors of every access, as recorded or else from its addresses."""
        if self.trace.sectors is not None:
            return self.trace.sectors[self.accesses].astype(np.int32)
        return self._distinct[1]

    @cached_property
    def ideal_sectors(self) -> Ints:
        """Fewest sectors that hold the distinct bytes of every access."""
        return _in_parts_of(SECTOR_BYTES, self._distinct[0] * self._sizes)

    @cached_property
    def wavefronts(self) -> Ints:
        """Shared-memory passes of every access; 0 where not recorded."""
        if self.trace.wavefronts is None:
            return np.zeros(self.accesses.size, np.int32)
        return self.trace.wavefronts[self.accesses].astype(np.int32)

    @cached_property
    def ideal_wavefronts(self) -> Ints:
        """Fewest passes that deliver the distinct bytes of every access, 128 bytes a pass."""
        return _in_parts_of(BANKS * BANK_BYTES, self._distinct[0] * self._sizes)

    @cached_property
    def _sizes(self) -> Ints:
        if self.trace.access_size_bytes is None:
            return np.zeros(self.accesses.size, np.int32)
        return self.trace.access_size_bytes[self.accesses].astype(np.int32)

    @cached_property
    def sites(self) -> Kinds:
        """Instructions with the line they belong to."""
        return kinds_of(self.trace.pc, self.line)

    @cached_property
    def masks(self) -> Kinds:
        """Active lanes with those that execute."""
        return kinds_of(self.trace.active_mask, self.trace.executed_mask)

    @cached_property
    def access_kinds(self) -> Kinds:
        """Accesses that read the same."""
        at, trace = self.accesses, self.trace
        if trace.access_space is None:
            return kinds_of(at)
        lanes = np.bitwise_count(trace.executed_mask[at])
        return kinds_of(
            trace.text_index[at], trace.access_space[at], self._stores, self._sizes, *self._costs, lanes
        )

    @cached_property
    def _stores(self) -> npt.NDArray[np.bool_]:
        if self.trace.access_is_store is None:
            return np.zeros(self.accesses.size, np.bool_)
        return self.trace.access_is_store[self.accesses]

    @cached_property
    def _costs(self) -> tuple[Ints, Ints]:
        """What every access took and what it could have: passes in shared memory, sectors elsewhere."""
        trace = self.trace
        if trace.access_space is None or "shared" not in trace.space:
            return self.sectors, self.ideal_sectors
        shared = trace.access_space[self.accesses] == trace.space.index("shared")
        spent = np.where(shared, self.wavefronts, self.sectors)
        return spent, np.where(shared, self.ideal_wavefronts, self.ideal_sectors)

    @cached_property
    def place_words(self) -> list[str]:
        """Where the instruction of each of `sites` stands."""
        return [f"line {line}" if line else "no source line" for line in self.line[self.sites.first].tolist()]

    @cached_property
    def site_words(self) -> list[str]:
        """The instruction of each of `sites`."""
        at = self.trace.text_index[self.sites.first].tolist()
        return [words.bare_text(self.trace.instruction[text]) for text in at]

    @cached_property
    def lanes_words(self) -> list[str]:
        """What each of `masks` says."""
        pairs = zip(*(mask[self.masks.first].tolist() for mask in self._both_masks), strict=True)
        return [words.lanes_words(active, executed, self.threads) for active, executed in pairs]

    @property
    def _both_masks(self) -> tuple[npt.NDArray[np.uint32], npt.NDArray[np.uint32]]:
        return self.trace.active_mask, self.trace.executed_mask

    @cached_property
    def access_views(self) -> list[Access]:
        """What each of `access_kinds` reads like."""
        trace, found = self.trace, []
        assert trace.access_space is not None or not self.accesses.size
        for at in self.access_kinds.first.tolist():
            step = self.accesses[at]
            space = trace.space[int(trace.access_space[step])] if trace.access_space is not None else ""
            kind = words.access_kind(trace.instruction[int(trace.text_index[step])], bool(self._stores[at]))
            size, spent, ideal = int(self._sizes[at]), int(self._costs[0][at]), int(self._costs[1][at])
            drawn = {"shared": "banks", "global": "sectors", "generic": "sectors"}.get(space, "")
            wide = words.WIDE_NOTE if drawn == "banks" and size > BANK_BYTES else ""
            found.append(
                Access(
                    words.access_words(kind, space, size, spent, ideal),
                    words.access_heading(kind, space, size, int(trace.executed_mask[step]).bit_count()),
                    words.access_verdict(space, spent, ideal),
                    words.LOCAL_NOTE if space == "local" else wide,
                    drawn if trace.address is not None else "",
                    spent > ideal,
                    space == "shared" and kind != "store",
                    size,
                )
            )
        return found

    def access_words(self, step: int) -> str:
        """What the step's memory access does, or an empty text."""
        at = int(np.searchsorted(self.accesses, step))
        if at >= self.accesses.size or self.accesses[at] != step:
            return ""
        return self.access_views[int(self.access_kinds.of[at])].sentence

    def sentence(self, step: int) -> str:
        """One step in words."""
        site, turn, access = int(self.sites.of[step]), self.loops.words(step), self.access_words(step)
        said: str = words.SENTENCE.format(
            step=number(step + 1),
            steps=number(len(self)),
            place=self.place_words[site],
            turn=turn and f", {turn}",
            lanes=self.lanes_words[self.masks.of[step]],
            text=self.site_words[site],
            access=access and f" {access}",
        )
        return said


def kinds_of(*columns: npt.NDArray[Any]) -> Kinds:
    """Which rows of some columns are alike; no column has a number below 0."""
    key = np.zeros(columns[0].size, np.uint64)
    for column in columns:
        most = int(column.max(initial=0)) + 1
        key = key * np.uint64(most) + column.astype(np.uint64)
    _, first, of, count = np.unique(key, return_index=True, return_inverse=True, return_counts=True)
    return Kinds(of.astype(np.int32), first, count)


def _in_parts_of(part_bytes: int, size_bytes: Ints) -> Ints:
    """How many parts hold so many bytes, rounded up."""
    return ((size_bytes + part_bytes - 1) // part_bytes).astype(np.int32)


def _steps_up(ordered: npt.NDArray[np.int64]) -> Ints:
    """How many different values from 0 on each ascending row holds."""
    fresh = np.ones(ordered.shape, np.bool_)
    fresh[:, 1:] = ordered[:, 1:] != ordered[:, :-1]
    distinct: Ints = (fresh & (ordered >= 0)).sum(axis=1, dtype=np.int32)
    return distinct
