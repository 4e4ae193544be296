"""Reading a warp trace: where lines and memory accesses begin, and each step in words."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt

from gpulab.views._loops import Loops, find_loops
from gpulab.views._text import count, number, product
from virtualgpu.records import WARP_SIZE, WarpTrace

SECTOR_BYTES = 32
BANK_BYTES = 4
BANKS = 32

_PREDICATE = re.compile(r"^@!?%?\w+\s+")
_TYPE = re.compile(r"\.([fsu])(?:8|16|32|64)\b")
_SPACE_WORDS = {"const": "constant", "generic": "generic-address"}

Ints = npt.NDArray[np.int32]


def bare_text(text: str) -> str:
    """An instruction without its predicate and semicolon."""
    return _PREDICATE.sub("", text.strip().rstrip(";"))


def value_type(text: str, declared: str) -> str:
    """The type to read a result as: PTX declares registers by width and types the instruction.

    ``mul.wide.s32`` into a ``.b64`` register gives ``s64``: kind of the instruction, width of the
    register. An instruction without a type (``mov.b32``) leaves the declared one.
    """
    declared = declared.lstrip(".")
    if not declared.startswith("b"):
        return declared
    words = bare_text(text).split()
    typed = _TYPE.search(words[0]) if words else None
    return f"{typed.group(1)}{declared[1:]}" if typed else declared


def lane_count(mask: int) -> int:
    return int(mask).bit_count()


def lane_bits(masks: npt.NDArray[np.uint32]) -> npt.NDArray[np.bool_]:
    """Masks as a table of booleans, ``[step, lane]``."""
    return (masks[:, None] >> np.arange(WARP_SIZE, dtype=np.uint32) & 1).astype(np.bool_)


@dataclass(frozen=True)
class WarpSteps:
    """A warp trace made ready for stepping: derived columns, moves and sentences."""

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
    def _distinct(self) -> tuple[Ints, Ints]:
        """Distinct addresses and distinct sectors of every access, among executing lanes.

        Accesses are aligned to their size, so two lanes' bytes are the same or disjoint, and none
        crosses a sector.
        """
        if self.trace.address is None or not self.accesses.size:
            return np.zeros(self.accesses.size, np.int32), np.zeros(self.accesses.size, np.int32)
        rows = self.trace.address[self.accesses]
        lanes = lane_bits(self.trace.executed_mask[self.accesses]) & (rows >= 0)
        return _count_distinct(rows, lanes), _count_distinct(rows // SECTOR_BYTES, lanes)

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

    def clamp(self, step: int) -> int:
        return max(0, min(step, len(self) - 1))

    def next_line(self, step: int) -> int:
        return self._after(self.line_starts, step)

    def previous_line(self, step: int) -> int:
        return self._before(self.line_starts, step)

    def next_access(self, step: int) -> int:
        return self._after(self.accesses, step)

    def previous_access(self, step: int) -> int:
        return self._before(self.accesses, step)

    def next_iteration(self, step: int) -> int:
        """Where the next turn of the innermost loop begins, or the step itself."""
        starts = self.loops.starts_around(step)
        return self._after(starts, step)

    def previous_iteration(self, step: int) -> int:
        """Where this turn of the innermost loop began, or the one before."""
        return self._before(self.loops.starts_around(step), step)

    def past_loop(self, step: int) -> int:
        """The first step after the innermost loop."""
        at = self.loops.innermost(step)
        return step if at < 0 else self.clamp(int(self.loops.last[at]) + 1)

    def _after(self, stops: Ints, step: int) -> int:
        found = int(np.searchsorted(stops, step, side="right"))
        return int(stops[found]) if found < stops.size else step

    def _before(self, stops: Ints, step: int) -> int:
        found = int(np.searchsorted(stops, step, side="left")) - 1
        return int(stops[found]) if found >= 0 else step

    def access_words(self, step: int) -> str:
        """What the step's memory access does, or an empty text."""
        at = int(np.searchsorted(self.accesses, step))
        if at >= self.accesses.size or self.accesses[at] != step:
            return ""
        trace = self.trace
        assert trace.access_space is not None
        space = trace.space[int(trace.access_space[step])]
        text = bare_text(trace.instruction[int(trace.text_index[step])])
        if text.startswith(("atom", "red.")):
            verb = "updates atomically"
        else:
            verb = "stores" if trace.access_is_store is not None and trace.access_is_store[step] else "loads"
        preposition = "from" if verb == "loads" else "to" if verb == "stores" else "in"
        width = count(int(self._sizes[at]), "byte")
        words = f"It {verb} {width} a lane {preposition} {_SPACE_WORDS.get(space, space)} memory"
        if space == "shared" and self.wavefronts[at] > 0:
            passes, best = int(self.wavefronts[at]), int(self.ideal_wavefronts[at])
            return (
                f"{words}: {count(passes, 'pass').replace('passs', 'passes')} over the banks, at best {best}."
            )
        if space in ("global", "generic") and self.sectors[at] > 0:
            best = int(self.ideal_sectors[at])
            return f"{words}: {count(int(self.sectors[at]), 'sector')} of 32 bytes, at best {best}."
        return f"{words}."

    def sentence(self, step: int) -> str:
        """One step in words; the browser says the same (``sentence`` in ``warp_steps.js``)."""
        trace = self.trace
        active, executed = int(trace.active_mask[step]), int(trace.executed_mask[step])
        where = f"line {self.line[step]}" if self.line[step] else "no source line"
        if turns := self.loops.words(step):
            where += f", {turns}"
        lanes = f"{lane_count(active)} of {self.threads} lanes active"
        if executed != active:
            lanes += f", {lane_count(executed)} of them not predicated off"
        text = bare_text(trace.instruction[int(trace.text_index[step])])
        words = f"Step {number(step + 1)} of {number(len(self))}, {where}: {lanes}. {text}."
        access = self.access_words(step)
        return f"{words} {access}" if access else words


def _in_parts_of(part_bytes: int, size_bytes: Ints) -> Ints:
    """How many parts hold so many bytes, rounded up."""
    return ((size_bytes + part_bytes - 1) // part_bytes).astype(np.int32)


def _count_distinct(rows: npt.NDArray[np.int64], lanes: npt.NDArray[np.bool_]) -> Ints:
    """How many different values each row holds among its chosen lanes."""
    ordered = np.sort(np.where(lanes, rows, -1), axis=1)
    fresh = np.ones(ordered.shape, np.bool_)
    fresh[:, 1:] = ordered[:, 1:] != ordered[:, :-1]
    distinct: Ints = (fresh & (ordered >= 0)).sum(axis=1, dtype=np.int32)
    return distinct


def confirm(predicted: WarpTrace, measured: WarpTrace) -> str:
    """Say how far a trace of basic blocks, taken on a GPU, agrees with one of instructions.

    A measured step is a basic block, known by the number (`pc`) of its first instruction. The
    prediction's visits of those instructions, with their masks, must be the same. Divergent paths
    may run in either order, so equal visits in another order count as equal and are said to be so.
    """
    blocks = {int(p) for p in measured.pc}
    foretold = [
        (int(p), int(m)) for p, m in zip(predicted.pc, predicted.active_mask, strict=True) if int(p) in blocks
    ]
    seen = [(int(p), int(m)) for p, m in zip(measured.pc, measured.active_mask, strict=True)]
    device = measured.provenance.device
    if measured.truncated or predicted.truncated:
        shorter = min(len(foretold), len(seen))
        foretold, seen = foretold[:shorter], seen[:shorter]
    total = max(len(foretold), len(seen))
    if foretold == seen:
        return f"Masks confirmed by {device}: {number(total)} of {number(total)} basic blocks equal."
    if sorted(foretold) == sorted(seen):
        return (
            f"Masks confirmed by {device}: {number(total)} of {number(total)} basic blocks equal, "
            "but the hardware ran divergent paths in another order."
        )
    equal = sum(a == b for a, b in zip(foretold, seen, strict=False))
    at = next(
        (i for i, (a, b) in enumerate(zip(foretold, seen, strict=False)) if a != b),
        min(len(foretold), len(seen)),
    )
    told = f"mask {foretold[at][1]:#010x}" if at < len(foretold) else "nothing more"
    took = f"mask {seen[at][1]:#010x}" if at < len(seen) else "nothing more"
    line = int(measured.line[min(at, len(seen) - 1)]) if seen else 0
    return (
        f"{device} differs: {number(equal)} of {number(total)} basic blocks equal. First difference at "
        f"block visit {number(at + 1)} (line {line}): predicted {told}, measured {took}."
    )
