"""An observer that looks for races and for reads of memory that nothing has written.

What happens at every access is compiled (`shadow`); here is what surrounds it: the memory it works in,
what it asks about, and what it has found.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Mapping, Sequence, Set
from dataclasses import dataclass, replace
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from virtualgpu.compile.ptx import ir
from virtualgpu.compile.ptx.flow import cfg
from virtualgpu.engine.ir import layout
from virtualgpu.engine.ir.compiled import address_of
from virtualgpu.model.memory import DeviceMemory
from virtualgpu.model.memory.heap import DeviceHeap
from virtualgpu.sanitizer import events, structures
from virtualgpu.sanitizer.flags import Flags
from virtualgpu.sanitizer.ordering import Message, Ordering, new_slot
from virtualgpu.sanitizer.sites import UNBOUNDED, Site, register_site, site

# Larger allocations are left out: their history would take several times their size.
_REGION_WORDS = 1 << 28
_SPACES = {
    "global": structures.GLOBAL,
    "shared": structures.SHARED,
    "local": structures.LOCAL,
    "generic": structures.GENERIC,
    "": structures.NOWHERE,
}
_CHECKED = ("global", "shared", "local")
_ENTRY = np.dtype([(name, "<i8") for name in ("key", "count", "differs", "start", "word", "first", "second")])


@dataclass(frozen=True, slots=True)
class Shape:
    """Of a launch, what its checker needs."""

    blocks: int
    threads: int
    shared_bytes: int
    local_bytes: int
    granule_bytes: int


@dataclass(frozen=True, slots=True)
class Arrival:
    """Lanes of a warp at a block-wide barrier."""

    warp: int
    instruction: ir.Instruction
    mask: int

    @property
    def thread(self) -> int:
        """The first of them, by its number in the block."""
        return self.warp * layout.LANES + (self.mask & -self.mask).bit_length() - 1


@dataclass(frozen=True, slots=True)
class Access:
    """One thread's access: its segment, the number of its site, the thread's number in its block."""

    segment: int
    site: int
    thread: int

    @classmethod
    def unpacked(cls, packed: int) -> Access:
        """From the form in which compiled code keeps it."""
        who = packed & (1 << structures.WHO_BITS) - 1
        return cls(
            (packed >> structures.WHO_BITS) - 1,
            who >> structures.THREAD_BITS,
            who & (1 << structures.THREAD_BITS) - 1,
        )


@dataclass(frozen=True, slots=True)
class Found:
    """Occurrences of one finding at one pair of sites, and the first of them.

    ``what`` is a kind of finding of `shadow`; ``start`` is where the region lies, ``word`` which of its
    granules it is. ``first`` is the access that the second one clashes with.
    """

    what: int
    space: str
    count: int
    start: int
    word: int
    second: Access
    first: Access | None = None
    wrote: tuple[bool, bool] = (False, False)
    relation: int = 0
    agree: bool = False


class Findings(Protocol):
    """Who is told of what a checker finds."""

    def add(self, found: Found) -> None:
        """A race, a read of unwritten memory, an access to another array or to where a copy goes."""

    def absent(self, access: Access, source: int) -> None:
        """A thread shuffled a value from a lane that takes no part, or named one in a vote."""

    def outside_block(self, access: Access, address: int) -> None:
        """An access to the device heap met no block that is in use."""

    def apart(self, block: int, here: Arrival, other: Arrival | None) -> None:
        """Threads came to a barrier without others of their warp, or while others wait at another one."""


class Checker:
    """Gives the engine the code that checks accesses, and answers what that code asks.

    Parameters
    ----------
    shape
        Of the launch.
    memory
        The device's memory.
    function
        The kernel.
    accesses
        Its accesses, by the number that the engine calls them by.
    findings
        Is told of what is found.
    bounds
        Gives the allocation (start, end) that an instruction's pointer belongs to.
    polled
        Ids of the loads that wait for a flag.
    races, unwritten, shuffles, strays, heap, barriers
        What to look for.
    partial
        Whether threads may wait for some of their block only.
    unwritten_words
        By the start of an allocation, which of its granules nothing has written yet.
    """

    def __init__(
        self,
        shape: Shape,
        memory: DeviceMemory,
        function: ir.Function,
        accesses: Sequence[ir.Instruction],
        findings: Findings,
        *,
        bounds: Callable[[ir.Instruction], tuple[int, int]] = lambda _: UNBOUNDED,
        polled: Set[int] = frozenset(),
        races: bool = True,
        unwritten: bool = True,
        shuffles: bool = True,
        strays: bool = True,
        heap: bool = False,
        barriers: bool = False,
        partial: bool = True,
        unwritten_words: Mapping[int, npt.NDArray[np.bool_]] | None = None,
    ) -> None:
        self.memory = memory
        self.function = function
        self.accesses = accesses
        self.findings = findings
        self.bounds = bounds
        self.polled = polled
        self.races = races
        self.unwritten = unwritten
        self.strays = strays
        self.granule_bytes = shape.granule_bytes
        self.unwritten_words = unwritten_words or {}
        self.sites: list[Site] = []
        self.left_out = 0
        self._numbers: dict[int, int] = {}
        self._collects = races or unwritten or strays or heap
        self._written: dict[int, npt.NDArray[np.uint8]] = {}
        self._kept: list[npt.NDArray[Any]] = []
        warps = -(-shape.threads // layout.LANES)
        shared = self.shared = structures.Checker()
        self.ordering = Ordering(warps * layout.LANES, shape.blocks, shared)
        self._flags = Flags(self.ordering)
        self._arrived: dict[tuple[int, int], Message] = {}  # at barriers, by block and number
        self._waiting: dict[int, list[Arrival]] = {}  # by block, who waits at its barrier 0, a place each
        shared.threads = warps * layout.LANES
        shared.warps = warps
        shared.shift = shape.granule_bytes.bit_length() - 1
        shared.races = races
        shared.shuffles = shuffles
        shared.partial = races and partial
        shared.shared_words = -(-shape.shared_bytes // shape.granule_bytes)
        shared.local_words = -(-shape.local_bytes // shape.granule_bytes)
        shared.room = structures.ENTRIES // 2
        self._entries = self._table(_ENTRY, structures.ENTRIES)
        shared.entries = self._entries.ctypes.data
        self._rows = (structures.Site * max(len(accesses), 1))()  # type: ignore[operator]
        shared.sites = ctypes.addressof(self._rows)
        if barriers:
            joins = self._table(np.dtype(np.uint8), len(function.instructions) + 1)
            joins[: len(function.instructions)] = [
                cfg.is_block_barrier(i) and cfg.waits_for_all(i) for i in function.instructions
            ]
            shared.joins = joins.ctypes.data
        if heap and memory.heap is not None:
            self.watch_heap(memory.heap)
        self._find_regions()

    def _table(self, kind: npt.DTypeLike, count: int) -> npt.NDArray[Any]:
        made = np.zeros(count, kind)
        self._kept.append(made)
        return made

    def watch_heap(self, heap: DeviceHeap) -> None:
        """Look at accesses to the device heap, too."""
        self.shared.heap_start = heap.address
        self.shared.heap_end = heap.address + heap.size_bytes

    def _find_regions(self) -> None:
        starts, ends = self.memory.live()
        self._starts = starts
        self._ends = ends
        self._regions = (structures.Region * max(len(starts), 1))()  # type: ignore[operator]
        for row, start, end in zip(self._regions, starts.tolist(), ends.tolist(), strict=False):
            row.start = start
            row.end = end
        self.shared.regions = ctypes.addressof(self._regions)
        self.shared.starts = starts.ctypes.data
        self.shared.region_count = len(starts)
        self._expected = self._written_by_kernel() if self.races else set()

    def _written_by_kernel(self) -> set[int] | None:
        """Where allocations start that the kernel's instructions may write to; None: anywhere."""
        found = set()
        for i in self.accesses:
            described = site(0, i)
            if described.writes and described.space in ("global", "generic"):
                low, _ = self.bounds(i)
                if not low:
                    return None
                found.add(low)
        return found

    def never_written(self, start: int) -> npt.NDArray[np.bool_] | None:
        """Which granules of the allocation at `start` nothing has written; None if the kernel writes none."""
        unwritten = self.unwritten_words.get(start)
        written = self._written.get(start)
        left = unwritten if written is None or unwritten is None else unwritten & (written == 0)
        if unwritten is None or left is None:
            return None
        writes = self._expected is not None and start in self._expected
        return left if writes or (unwritten & ~left).any() else None

    # -- what the engine tells -----------------------------------------------------------------------

    def watch(self, ask: int) -> tuple[int, int]:
        """The compiled code to tell of one worker's accesses, and what it works on; it may call `ask`."""
        slot = new_slot(self.shared, ask, races=self.races, unwritten=self.unwritten)
        self.ordering.slots.append(slot)
        return events.observer().address, address_of(slot.row)

    def access(self, block: int, warp: int, number: int, addresses: npt.NDArray[np.int64], mask: int) -> bool:
        here = self.sites[self._rows[number].number]
        row = self.ordering.slot(block).row
        fenced, wide = (
            ctypes.c_int32.from_address(lanes + 4 * warp).value for lanes in (row.fenced, row.wide)
        )
        # Who waits for it gets a turn, or this warp would run ahead and publish what it does next as well.
        return self._flags.meet(here, block, warp, addresses, mask, fenced, wide)

    def custom_event(
        self, block: int, warp: int, what: int, lanes: npt.NDArray[np.int64] | None, mask: int, extra: int
    ) -> None:
        if what == structures.GROW:
            self.ordering.grow()
        elif what == structures.DRAIN:
            self.flush()
        elif what == structures.LEARN:
            self.ordering.learn(block)
        elif what == structures.KNOW:
            self.ordering.matrix(self.ordering.slot(block))
        elif what == structures.DESCRIBE:
            self._describe(mask, bool(extra))
        elif what == structures.REGION:
            self._open_region(mask)
        elif what == structures.HEAP:
            assert lanes is not None
            self._look_at_heap(block, warp, lanes, mask, extra)
        else:
            assert what == structures.MIXED
            assert lanes is not None
            row = self.ordering.slot(block).row
            code = self.function.instructions
            places = self._waiting.setdefault(
                block, [Arrival(row.wait_warp, code[row.wait_pc], row.wait_mask & 0xFFFFFFFF)]
            )
            here = Arrival(warp, code[int(lanes[0])], mask)
            if all(place.instruction is not here.instruction for place in places):
                places.append(here)

    def _describe(self, number: int, stores_scalar: bool) -> None:
        i = self.accesses[number]
        row = self._rows[number]
        at = self._number(i, lambda n: self._site(n, i, stores_scalar))
        here = self.sites[at]
        row.number = at
        row.space = _SPACES[here.space if self._collects else ""]
        row.parts = max(here.size_bytes // self.granule_bytes, 1)
        row.scalar = here.scalar
        row.reads = here.reads
        row.writes = here.writes
        row.kind_global, row.kind_shared = here.kind("global"), here.kind("shared")
        row.meets = here.strong or here.volatile
        row.releases = here.releases
        row.step = structures.ISSUED * here.copies
        row.low, row.high = (here.low, here.high - here.size_bytes) if self.strays else UNBOUNDED
        row.known = 1

    def _site(self, number: int, i: ir.Instruction, stores_scalar: bool) -> Site:
        made = site(number, i, self.bounds(i), self.polled)
        return made if stores_scalar else replace(made, scalar=False)

    def _number(self, i: ir.Instruction, describe: Callable[[int], Site]) -> int:
        number = self._numbers.get(id(i))
        if number is None:
            number = self._numbers[id(i)] = len(self.sites)
            self.sites.append(describe(number))
        return number

    def _open_region(self, number: int) -> None:
        row = self._regions[number]
        words = -(-(row.end - row.start) // self.granule_bytes)
        unwritten = self.unwritten_words.get(row.start) if self.unwritten else None
        if unwritten is not None:
            written = self._table(np.dtype(np.uint8), words)
            written[:] = ~unwritten
            row.written = written.ctypes.data
            self._written[row.start] = written
        if self.races:
            row.quiet = self._expected is not None and row.start not in self._expected
            try:
                if words > _REGION_WORDS:
                    raise MemoryError
                # The host maps pages of zeros when they are first written, so large regions cost little.
                planes = self._table(np.dtype(np.int64), structures.PLANES * words)
                row.planes = planes.ctypes.data
                row.step = 8 * words
            except MemoryError:
                self.left_out += 1
        row.known = 1

    def _look_at_heap(
        self, block: int, warp: int, lanes: npt.NDArray[np.int64], mask: int, number: int
    ) -> None:
        """Accesses to the device heap that do not stay within one of its blocks."""
        assert self.memory.heap is not None
        used = self.memory.heap.used
        here = self.sites[number]
        segment = self.ordering.slot(block).row.segment
        for lane in range(layout.LANES):
            address = int(lanes[lane])
            start = max((start for start in used if start <= address), default=None)
            inside = start is not None and address + here.size_bytes <= start + used[start]
            if mask >> lane & 1 and not inside:
                access = Access(segment, number, warp * layout.LANES + lane)
                self.findings.outside_block(access, address)

    def shuffle(
        self, block: int, warp: int, i: ir.Instruction, sources: npt.NDArray[np.int64], mask: int
    ) -> None:
        for lane in range(layout.LANES):
            source = int(sources[lane])
            if mask >> lane & 1 and not mask >> source & 1:
                number = self._number(i, lambda n: register_site(n, i))
                segment = self.ordering.slot(block).row.segment
                self.findings.absent(Access(segment, number, warp * layout.LANES + lane), source)

    def wait(self, block: int, warp: int, i: ir.Instruction, mask: int, expected: int) -> None:
        # Without .aligned, PTX lets the lanes of a warp come one by one.
        aligned = i.root == "bar" or "aligned" in i.parts
        if aligned and mask != expected:
            self.findings.apart(block, Arrival(warp, i, mask), None)

    def arrive(self, block: int, warp: int, mask: int, number: int) -> None:
        lanes = [warp * layout.LANES + lane for lane in range(layout.LANES) if mask >> lane & 1]
        if lanes:
            self.ordering.release(block, lanes, self._arrived.setdefault((block, number), Message()))

    def barrier(self, block: int, threads: npt.NDArray[np.bool_], everyone: bool, number: int = 0) -> None:
        if number == 0:
            row = self.ordering.slot(block).row
            row.wait_pc = -1
            row.mixed = 0
            places = self._waiting.pop(block, [])
            for other in places[1:]:
                self.findings.apart(block, other, places[0])
        self.ordering.learn(block)
        arrived = self._arrived.pop((block, number), None)
        if everyone and arrived is None:
            self.ordering.full_barrier(block)
            return
        waiting = np.flatnonzero(threads.reshape(-1))
        if arrived is not None:
            self.ordering.acquire(block, waiting.tolist(), arrived)
        self.ordering.partial_barrier(block, waiting)

    def flush(self) -> None:
        """Hand over what has been found."""
        found = self._entries[self._entries["key"] != 0]
        for entry in found[np.argsort(found["second"], kind="stable")].tolist():
            key, count, differs, start, word, first, second = entry
            what = key & 3
            self.findings.add(
                Found(
                    what,
                    _CHECKED[key >> 6 & 3],
                    count,
                    start,
                    word,
                    Access.unpacked(second),
                    Access.unpacked(first) if what in (structures.RACE, structures.HASTY) else None,
                    (bool(key >> 2 & 1), bool(key >> 3 & 1)),
                    key >> 4 & 3,
                    not differs,
                )
            )
        self._entries[:] = 0
        self.shared.used = 0
