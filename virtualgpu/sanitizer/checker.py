"""An observer that looks for races and for reads of memory that nothing has written."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Set
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from virtualgpu.compile.ptx import cfg, ir
from virtualgpu.engine.ir import layout
from virtualgpu.model.memory import DeviceMemory
from virtualgpu.model.memory.heap import DeviceHeap
from virtualgpu.sanitizer import copies, history
from virtualgpu.sanitizer.flags import Flags
from virtualgpu.sanitizer.history import Batch, Conflicts, History, Ints
from virtualgpu.sanitizer.ordering import Message, Ordering
from virtualgpu.sanitizer.rows import CODES, Rows, batch_of, wholly
from virtualgpu.sanitizer.sites import UNBOUNDED, Site, register_site, site

_EVENTS = 4096
# Words of shared (or local) memory that blocks of one batch may hold between them.
_SLOT_WORDS = 4 << 20
# Larger allocations are left out: their history would take several times their size.
_REGION_WORDS = 1 << 28
_TAG = 56
_OFFSET = (1 << _TAG) - 1


@dataclass(frozen=True, slots=True)
class Shape:
    """Of a launch, what its checker needs."""

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


# Receives space, start address of the region, its granule and what was found there.
Report = Callable[[str, int, Conflicts | None, Batch | None], None]


class Checker:
    """Collects accesses in batches and checks each against the order between threads.

    Parameters
    ----------
    shape
        Of the launch.
    memory
        The device's memory.
    report
        Is told of conflicts and of reads of unwritten words.
    report_absent
        Is told the segment, thread and source lane of a shuffle from a lane that takes no part.
    report_stray
        Is told the segment, thread and address of accesses that leave the allocation their pointer
        belongs to for another one.
    report_heap
        Is told of accesses to the device heap outside its blocks: segment, thread and address.
    report_apart
        Is told of threads that come to a barrier without others of their warp, or while others of their
        block wait at another one: block, then warp, instruction and lanes of these and of those.
    report_hasty
        Is told of accesses to shared words that a copy was still on its way to: the accesses, and
        segment and thread of the copies.
    bounds
        Gives the allocation (start, end) that an instruction's pointer belongs to.
    polled
        Ids of the loads that wait for a flag.
    races, unwritten, shuffles, strays
        What to look for.
    unwritten_words
        By the start of an allocation, which of its granules nothing has written yet.
    """

    def __init__(
        self,
        shape: Shape,
        memory: DeviceMemory,
        report: Report,
        *,
        report_absent: Callable[[int, int, int], None],
        report_stray: Callable[[Ints, Ints, Ints], None],
        report_hasty: Callable[[Batch, Ints, Ints], None] = lambda *_: None,
        report_heap: Callable[[Ints, Ints, Ints], None] | None = None,
        report_apart: Callable[[int, Arrival, Arrival | None], None] | None = None,
        bounds: Callable[[ir.Instruction], tuple[int, int]] = lambda _: UNBOUNDED,
        polled: Set[int] = frozenset(),
        races: bool = True,
        unwritten: bool = True,
        shuffles: bool = True,
        strays: bool = True,
        unwritten_words: Mapping[int, npt.NDArray[np.bool_]] | None = None,
    ) -> None:
        self.shape, self.memory, self.report = shape, memory, report
        self.report_absent = report_absent
        self.report_stray, self.report_hasty, self.bounds = report_stray, report_hasty, bounds
        self.report_apart, self.report_heap = report_apart, report_heap
        self._waiting: dict[int, dict[int, Arrival]] = {}  # by block, who waits at its barrier 0, and where
        self.polled = polled
        self.races, self.unwritten, self.shuffles, self.strays = races, unwritten, shuffles, strays
        self._collects = races or unwritten or strays or report_heap is not None
        self.unwritten_words = unwritten_words or {}
        self.ordering = Ordering(-(-shape.threads // layout.LANES) * layout.LANES)
        self.sites: list[Site] = []
        self.left_out = 0
        self._numbers: dict[int, int] = {}
        self._instructions: list[ir.Instruction] = []  # keeps them alive, so that their ids stay theirs
        self._addresses = np.zeros((_EVENTS, layout.LANES), np.int64)
        self._values = np.zeros((_EVENTS, layout.LANES), np.int64)
        self._rows: list[tuple[int, int, int, int, int]] = []  # segment, site, warp, mask, step of a copy
        self._flags = Flags(self.ordering, self.flush)
        self._arrived: dict[tuple[int, int], Message] = {}  # at barriers, by block and number
        self._copies: copies.Copies | None = None
        self._starts, self._ends = memory.live()
        self._regions: dict[int, History | None] = {}
        self._shared_words = -(-shape.shared_bytes // shape.granule_bytes)
        self._local_words = -(-shape.local_bytes // shape.granule_bytes)
        self._slots: dict[int, int] = {}
        self._free: list[int] = []
        self._over: list[int] = []
        words = self._shared_words + self._local_words * self.ordering.threads
        self._room = max(1, _SLOT_WORDS // max(words, 1))
        self._shared: History | None = None
        self._local: History | None = None
        self._grow(min(4, self._room))

    # -- what the engine tells -----------------------------------------------------------------------

    def access(
        self,
        block: int,
        warp: int,
        i: ir.Instruction,
        addresses: npt.NDArray[np.int64],
        mask: int,
        stored: npt.NDArray[np.int64] | None,
    ) -> bool:
        if not mask or not self._collects:
            return False
        number = self._numbers.get(id(i))
        if number is None:
            number = self._new(i, lambda n, i: site(n, i, self.bounds(i), self.polled))
            if stored is None:
                self.sites[number] = replace(self.sites[number], scalar=False)
        here = self.sites[number]
        if not here.space:
            return False
        row = len(self._rows)
        self._addresses[row] = addresses
        if stored is not None:
            self._values[row] = stored
        self._rows.append((self.ordering.segment(block), number, warp, mask, copies.ISSUED * here.copies))
        synchronises = here.strong or here.volatile
        awaited = synchronises and self._flags.meet(here, block, warp, self._addresses[row], mask)
        if row == _EVENTS - 1:
            self.flush()
        # Who waits for it gets a turn, or this warp would run ahead and publish what it does next as well.
        return awaited

    def copy(
        self,
        block: int,
        warp: int,
        i: ir.Instruction,
        addresses: npt.NDArray[np.int64],
        mask: int,
        event: int,
    ) -> None:
        number = self._numbers.get(id(i))
        if not self._collects or number is None:
            return
        row = len(self._rows)
        self._addresses[row] = addresses
        self._rows.append((self.ordering.segment(block), number, warp, mask, copies.EVENTS[event]))
        if row == _EVENTS - 1:
            self.flush()

    def _new(self, i: ir.Instruction, describe: Callable[[int, ir.Instruction], Site]) -> int:
        number = self._numbers[id(i)] = len(self.sites)
        self._instructions.append(i)
        self.sites.append(describe(number, i))
        return number

    def shuffle(
        self, block: int, warp: int, i: ir.Instruction, sources: npt.NDArray[np.int64], mask: int
    ) -> None:
        if not self.shuffles:
            return
        for lane in range(layout.LANES):
            source = int(sources[lane])
            if mask >> lane & 1 and not mask >> source & 1:
                number = self._numbers.get(id(i))
                if number is None:
                    number = self._new(i, register_site)
                who = number << history.THREAD_BITS | warp * layout.LANES + lane
                self.report_absent(self.ordering.segment(block), who, source)

    def warp_sync(self, block: int, warp: int, mask: int, members: npt.NDArray[np.int64]) -> None:
        self.flush()
        rest = mask
        while rest:
            lane = (rest & -rest).bit_length() - 1
            group = int(members[lane]) & mask | 1 << lane
            lanes = np.flatnonzero([group >> n & 1 for n in range(layout.LANES)])
            self.ordering.partial_barrier(block, warp * layout.LANES + lanes)
            rest &= ~group

    def fence(self, block: int, warp: int, mask: int) -> None:
        self._flags.fence(block, warp, mask)

    def wait(self, block: int, warp: int, i: ir.Instruction, mask: int, expected: int) -> None:
        if self.report_apart is None or not mask or not cfg.waits_for_all(i):
            return
        here = Arrival(warp, i, mask)
        # Without .aligned, PTX lets the lanes of a warp come one by one.
        aligned = i.root == "bar" or "aligned" in i.parts
        if aligned and mask != expected:
            self.report_apart(block, here, None)
        self._waiting.setdefault(block, {}).setdefault(id(i), here)

    def _open(self, block: int) -> None:
        """Barrier 0 of a block opens: all of it should wait at one place."""
        places = list(self._waiting.pop(block, {}).values())
        if self.report_apart is not None:
            for other in places[1:]:
                self.report_apart(block, other, places[0])

    def arrive(self, block: int, warp: int, mask: int, number: int) -> None:
        lanes = [warp * layout.LANES + lane for lane in range(layout.LANES) if mask >> lane & 1]
        if lanes:
            self.ordering.release(block, lanes, self._arrived.setdefault((block, number), Message()))

    def barrier(self, block: int, threads: npt.NDArray[np.bool_], everyone: bool, number: int = 0) -> None:
        if number == 0:
            self._open(block)
        arrived = self._arrived.pop((block, number), None)
        if everyone and arrived is None:
            if self.ordering.has_partial(block):
                self.flush()
            self.ordering.full_barrier(block)
            return
        self.flush()
        waiting = np.flatnonzero(threads.reshape(-1))
        if arrived is not None:
            self.ordering.acquire(block, waiting.tolist(), arrived)
        self.ordering.partial_barrier(block, waiting)

    def heap_changes(self) -> None:
        self.flush()  # what came before is judged by the blocks as they are

    def block_end(self, block: int) -> None:
        self._over.append(block)
        self._waiting.pop(block, None)
        self.ordering.end(block)
        if len(self._slots) >= self._room:
            self.flush()

    # -- batches -------------------------------------------------------------------------------------

    def flush(self) -> None:
        """Check what has been collected."""
        if self._rows:
            self._check()
            self._rows.clear()
        for block in self._over:
            self.ordering.forget(block)
            slot = self._slots.pop(block, None)
            if slot is not None:
                self._free.append(slot)
                if self._shared is not None:
                    self._shared.clear(slot * self._shared_words, (slot + 1) * self._shared_words)
                if self._copies is not None:
                    self._copies.clear(slot * self._shared_words, (slot + 1) * self._shared_words)
                if self._local is not None:
                    size = self._local_words * self.ordering.threads
                    self._local.clear(slot * size, (slot + 1) * size)
            self._flags.forget(block)
        self._over.clear()

    def _check(self) -> None:
        count = len(self._rows)
        segment, number, warp, mask, step = np.array(self._rows, np.int64).T
        event, lane = np.nonzero(mask[:, None] >> np.arange(layout.LANES) & 1)
        address = self._addresses[:count][event, lane]
        value = self._values[:count][event, lane]
        number, segment, step = number[event], segment[event], step[event]
        thread = warp[event] * layout.LANES + lane
        space = np.array([CODES[s.space] for s in self.sites])[number]
        generic = space == CODES["generic"]
        if generic.any():
            tag = address >> _TAG
            space = np.where(generic, np.select([tag == 1, tag == 2], [1, 2], 0), space)
            address = np.where(generic & (tag > 0), address & _OFFSET, address)
        rows = Rows(address, value, number, segment, thread, step)
        for code, handle in ((0, self._global), (1, self._block_shared), (2, self._block_local)):
            chosen = space == code
            if chosen.any():
                handle(rows if chosen.all() else rows.take(chosen))

    def _global(self, rows: Rows) -> None:
        if self.strays:
            self._find_strays(rows)
        if self.report_heap is not None and self.memory.heap is not None:
            self._find_outside_blocks(rows, self.memory.heap, self.report_heap)
        at = np.searchsorted(self._starts, rows.address, side="right") - 1
        for k in np.unique(at[at >= 0]).tolist():
            start, end = int(self._starts[k]), int(self._ends[k])
            mine = rows.take((at == k) & (rows.address < end))
            region = self._region(start, end)
            if region is None or not mine.address.size:
                continue
            batch, _ = batch_of(mine, self.sites, self.shape.granule_bytes, "global", mine.address - start)
            batch.coarse = self.ordering.columns[0, batch.segment]
            self._add(region, batch, "global", start)

    def _find_strays(self, rows: Rows) -> None:
        low = np.array([s.low for s in self.sites])[rows.number]
        high = np.array([s.high - s.size_bytes for s in self.sites])[rows.number]
        stray = (rows.address < low) | (rows.address > high)
        if stray.any():
            found = rows.take(stray)
            who = found.number << history.THREAD_BITS | found.thread
            self.report_stray(found.segment, who, found.address)

    def _find_outside_blocks(
        self, rows: Rows, heap: DeviceHeap, report: Callable[[Ints, Ints, Ints], None]
    ) -> None:
        """Accesses to the device heap that do not stay within one of its blocks."""
        mine = rows.take((rows.address >= heap.address) & (rows.address < heap.address + heap.size_bytes))
        if not mine.address.size:
            return
        starts = np.array(sorted(heap.used), np.int64)
        ends = starts + np.array([heap.used[start] for start in starts.tolist()], np.int64)
        last = mine.address + np.array([s.size_bytes for s in self.sites])[mine.number]
        at = np.searchsorted(starts, mine.address, side="right") - 1
        outside = (at < 0) | (last > ends[at] if ends.size else True)
        if outside.any():
            found = mine.take(outside)
            who = found.number << history.THREAD_BITS | found.thread
            report(found.segment, who, found.address)

    def _region(self, start: int, end: int) -> History | None:
        if start not in self._regions:
            words = -(-(end - start) // self.shape.granule_bytes)
            written = None
            if self.unwritten and start in self.unwritten_words:
                written = ~self.unwritten_words[start]
            region = None
            if words > _REGION_WORDS:
                self.left_out += 1
            elif self.races or written is not None:
                region = History(
                    words, self.ordering, coarse_is_warp=False, written=written, races=self.races
                )
            self._regions[start] = region
        return self._regions[start]

    def _block_shared(self, rows: Rows) -> None:
        if not (self.races or self.unwritten):
            return
        base = self._slot_of(rows) * self._shared_words
        batch, step = batch_of(rows, self.sites, self.shape.granule_bytes, "shared", rows.address, base)
        if self.races and (self._copies is not None or step.any()):
            batch = self._without_hasty(batch, step)
        batch.coarse = (batch.who & (1 << history.THREAD_BITS) - 1) >> 5
        assert self._shared is not None
        self._add(self._shared, batch, "shared", 0)

    def _without_hasty(self, batch: Batch, step: Ints) -> Batch:
        """Report what did not wait for a copy; those accesses need no further look."""
        if self._copies is None:
            assert self._shared is not None
            self._copies = copies.Copies(self._shared.words)
        hasty, segment, who = self._copies.add(batch, step)
        if hasty.any():
            self.report_hasty(batch.take(hasty), segment, who)
        return batch.take(~hasty & (step != copies.LANDED))

    def _block_local(self, rows: Rows) -> None:
        if not self.unwritten:
            return
        base = (self._slot_of(rows) * self.ordering.threads + rows.thread) * self._local_words
        batch, _ = batch_of(rows, self.sites, self.shape.granule_bytes, "local", rows.address, base)
        assert self._local is not None
        found = self._local.add(batch)[1]
        if found is not None:
            found = wholly(found, self.sites, self.shape.granule_bytes)
        if found is not None:
            self.report("local", 0, None, found)

    def _slot_of(self, rows: Rows) -> Ints:
        """Slots of the blocks that rows belong to; new blocks get one."""
        blocks, where = np.unique(self.ordering.columns[0, rows.segment], return_inverse=True)
        for block in blocks.tolist():
            if block not in self._slots:
                if not self._free:
                    self._grow(2 * (len(self._slots) + 1))
                self._slots[block] = self._free.pop()
        return np.array([self._slots[b] for b in blocks.tolist()], np.int64)[where]

    def _grow(self, slots: int) -> None:
        """Room for more blocks at once; what is known of those in flight stays."""
        held = len(self._slots) + len(self._free)
        self._free += range(held, slots)
        threads = self.ordering.threads
        self._shared = self._grown(self._shared, slots * self._shared_words, races=self.races)
        if self._copies is not None:
            self._copies.grow(slots * self._shared_words)
        self._local = self._grown(self._local, slots * self._local_words * threads, races=False)

    def _grown(self, old: History | None, words: int, *, races: bool) -> History:
        written = np.zeros(words, np.bool_) if self.unwritten else None
        new = History(words, self.ordering, coarse_is_warp=True, written=written, races=races)
        if old is not None:
            if races:
                new.last[:, : old.words], new.other[:, : old.words] = old.last, old.other
                new.value[: old.words] = old.value
                new.has_writes = old.has_writes
            if written is not None and old.written is not None:
                written[: old.words] = old.written
        return new

    def _add(self, region: History, batch: Batch, space: str, start: int) -> None:
        conflicts, unwritten = region.add(batch)
        if conflicts is not None or unwritten is not None:
            self.report(space, start, conflicts, unwritten)
