"""Checker of a launch that finds races and reads of uninitialized memory.

The check of every access is compiled (`shadow`). This module contains the rest: the memory of the compiled
code, its callbacks, and its findings.
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
from virtualgpu.engine.ir.compiled import get_struct_address
from virtualgpu.model.memory import DeviceMemory
from virtualgpu.model.memory.heap import DeviceHeap
from virtualgpu.sanitizer import events, structures
from virtualgpu.sanitizer.flags import Flags
from virtualgpu.sanitizer.ordering import Message, Ordering, make_slot
from virtualgpu.sanitizer.sites import UNBOUNDED, Site, make_register_site, make_site

# Larger allocations are not checked, because their history would need several times their size.
_REGION_WORDS = 1 << 28
_NUMBER_OF_SPACE = {
    "global": structures.GLOBAL,
    "shared": structures.SHARED,
    "local": structures.LOCAL,
    "generic": structures.GENERIC,
    "": structures.NO_SPACE,
}
_CHECKED_SPACES = ("global", "shared", "local")
_FINDING_DTYPE = np.dtype(
    [(name, "<i8") for name in ("key", "count", "differs", "start", "word", "first", "second")]
)


@dataclass(frozen=True, slots=True)
class LaunchShape:
    """The size of a launch in blocks and threads, and the sizes of its memory that a checker needs."""

    blocks: int
    threads: int
    shared_bytes: int
    local_bytes: int
    granule_bytes: int


@dataclass(frozen=True, slots=True)
class Arrival:
    """The lanes of a warp that have arrived together at a barrier of the block."""

    warp: int
    instruction: ir.Instruction
    mask: int

    @property
    def thread(self) -> int:
        """The number of the first of these threads within the block."""
        return self.warp * layout.LANES + (self.mask & -self.mask).bit_length() - 1


@dataclass(frozen=True, slots=True)
class Access:
    """A memory access by one thread, with the numbers of its segment, its instruction and its thread."""

    segment: int
    site: int
    thread: int

    @classmethod
    def unpacked(cls, packed: int) -> Access:
        """Return an access from the 64-bit number in which compiled code stores it."""
        site_and_thread = packed & (1 << structures.WHO_BITS) - 1
        return cls(
            (packed >> structures.WHO_BITS) - 1,
            site_and_thread >> structures.THREAD_BITS,
            site_and_thread & (1 << structures.THREAD_BITS) - 1,
        )


@dataclass(frozen=True, slots=True)
class FindingOccurrences:
    """The occurrences of a finding at one pair of instructions, with the accesses of the first occurrence.

    The field ``finding_kind`` is the kind of finding, as defined in `shadow`; ``start`` is the address of the
    memory region, and ``word`` is the number of the granule within the region. ``first`` is the earlier
    access with which the ``second`` one conflicts.
    """

    finding_kind: int
    space: str
    count: int
    start: int
    word: int
    second: Access
    first: Access | None = None
    are_writes: tuple[bool, bool] = (False, False)
    relation: int = 0
    values_agree: bool = False


class Findings(Protocol):
    """The interface of an object that receives the findings of a checker."""

    def add(self, occurrences: FindingOccurrences) -> None:
        """Add a race, a read of uninitialized memory, or an access to another array or to a pending copy."""

    def add_absent_lane(self, access: Access, source: int) -> None:
        """Add a shuffle from an inactive lane, or a vote whose mask contains an inactive lane."""

    def add_outside_block(self, access: Access, address: int) -> None:
        """Add an access to the device heap that is outside of all allocated blocks."""

    def add_divergent_barrier(self, block: int, arrival: Arrival, other: Arrival | None) -> None:
        """Add a barrier that only some threads reach, such as a part of a warp."""


class Checker:
    """A checker of one launch, with compiled checks and with functions for rare cases.

    Parameters
    ----------
    shape
        Sizes of the launch.
    memory
        The device's memory.
    function
        The kernel's PTX.
    accesses
        Its accesses, by their numbers in the engine.
    findings
        Receiver of the findings.
    bounds
        Returns the allocation (start, end) that an instruction's pointer belongs to.
    polled
        Ids of the loads that poll a flag.
    races, unwritten, shuffles, strays, heap, barriers
        Enabled checks.
    partial
        Whether threads can wait for a part of their block only.
    unwritten_words
        Uninitialized granules of each allocation, by its start.
    """

    def __init__(
        self,
        shape: LaunchShape,
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
        self._collects_findings = races or unwritten or strays or heap
        self._written_granules: dict[int, npt.NDArray[np.uint8]] = {}
        self._tables: list[npt.NDArray[Any]] = []
        warp_count = -(-shape.threads // layout.LANES)
        shared_state = self.shared = structures.Checker()
        self.ordering = Ordering(warp_count * layout.LANES, shape.blocks, shared_state)
        self._flags = Flags(self.ordering)
        self._barrier_messages: dict[
            tuple[int, int], Message
        ] = {}  # messages at barriers, by block and number
        self._arrivals: dict[int, list[Arrival]] = {}  # arrivals at barrier 0, by block
        shared_state.threads = warp_count * layout.LANES
        shared_state.warps = warp_count
        shared_state.word_shift = shape.granule_bytes.bit_length() - 1
        shared_state.races = races
        shared_state.shuffles = shuffles
        shared_state.has_partial_waits = races and partial
        shared_state.shared_words = -(-shape.shared_bytes // shape.granule_bytes)
        shared_state.local_words = -(-shape.local_bytes // shape.granule_bytes)
        shared_state.entry_limit = structures.ENTRY_CAPACITY // 2
        self._entries = self._new_table(_FINDING_DTYPE, structures.ENTRY_CAPACITY)
        shared_state.entries = self._entries.ctypes.data
        self._site_rows = (structures.Site * max(len(accesses), 1))()  # type: ignore[operator]
        shared_state.sites = ctypes.addressof(self._site_rows)
        if barriers:
            waits_for_block = self._new_table(np.dtype(np.uint8), len(function.instructions) + 1)
            waits_for_block[: len(function.instructions)] = [
                cfg.is_block_barrier(i) and cfg.waits_for_all(i) for i in function.instructions
            ]
            shared_state.waits_for_block = waits_for_block.ctypes.data
        if heap and memory.heap is not None:
            self.watch_heap(memory.heap)
        self._find_regions()

    def _new_table(self, dtype: npt.DTypeLike, row_count: int) -> npt.NDArray[Any]:
        new_table = np.zeros(row_count, dtype)
        self._tables.append(new_table)
        return new_table

    def watch_heap(self, heap: DeviceHeap) -> None:
        """Check the accesses to the device heap, too."""
        self.shared.heap_start = heap.address
        self.shared.heap_end = heap.address + heap.size_bytes

    def _find_regions(self) -> None:
        range_starts, range_ends = self.memory.find_live_ranges()
        self._starts = range_starts
        self._ends = range_ends
        self._regions = (structures.Region * max(len(range_starts), 1))()  # type: ignore[operator]
        for region, range_start, range_end in zip(
            self._regions, range_starts.tolist(), range_ends.tolist(), strict=False
        ):
            region.start = range_start
            region.end = range_end
        self.shared.regions = ctypes.addressof(self._regions)
        self.shared.starts = range_starts.ctypes.data
        self.shared.region_count = len(range_starts)
        self._writable_starts = self._find_writable_starts() if self.races else set()

    def _find_writable_starts(self) -> set[int] | None:
        """Return the starts of allocations that the kernel can write; None if it can write anywhere."""
        writable_starts = set()
        for i in self.accesses:
            access_site = make_site(0, i)
            if access_site.writes and access_site.space in ("global", "generic"):
                low_address, _ = self.bounds(i)
                if not low_address:
                    return None
                writable_starts.add(low_address)
        return writable_starts

    def find_never_written(self, start: int) -> npt.NDArray[np.bool_] | None:
        """Return a mask of the uninitialized granules of an allocation, or None if no write to the allocation
        is known or expected.
        """
        unwritten_table = self.unwritten_words.get(start)
        written_granules = self._written_granules.get(start)
        unwritten_granules = (
            unwritten_table
            if written_granules is None or unwritten_table is None
            else unwritten_table & (written_granules == 0)
        )
        if unwritten_table is None or unwritten_granules is None:
            return None
        is_writable = self._writable_starts is not None and start in self._writable_starts
        return unwritten_granules if is_writable or (unwritten_table & ~unwritten_granules).any() else None

    # -- methods that the engine calls -----------------------------------------------------------------------

    def watch(self, ask: int) -> tuple[int, int]:
        """Return the addresses of the compiled checks and of their data for one worker.

        The argument `ask` is the address of the function that compiled checks call in rare cases.
        """
        slot = make_slot(self.shared, ask, races=self.races, unwritten=self.unwritten)
        self.ordering.slots.append(slot)
        return events.compile_observer().address, get_struct_address(slot.block_state)

    def access(self, block: int, warp: int, number: int, addresses: npt.NDArray[np.int64], mask: int) -> bool:
        accessed_site = self.sites[self._site_rows[number].number]
        block_state = self.ordering.slot(block).block_state
        fenced_mask, wide_fence_mask = (
            ctypes.c_int32.from_address(lanes + 4 * warp).value
            for lanes in (block_state.fenced_lanes, block_state.wide_fences)
        )
        # Waiting warps get a turn, or this warp would run ahead and publish its next accesses as well.
        return self._flags.handle_access(
            accessed_site, block, warp, addresses, mask, fenced_mask, wide_fence_mask
        )

    def custom_event(
        self, block: int, warp: int, site: int, lanes: npt.NDArray[np.int64] | None, mask: int, extra: int
    ) -> None:
        if site == structures.GROW_TABLES:
            self.ordering.grow()
        elif site == structures.FLUSH_FINDINGS:
            self.flush()
        elif site == structures.LEARN_MESSAGES:
            self.ordering.learn(block)
        elif site == structures.ALLOCATE_MATRIX:
            self.ordering.matrix(self.ordering.slot(block))
        elif site == structures.DESCRIBE_SITE:
            self._describe_site(mask, bool(extra))
        elif site == structures.OPEN_REGION:
            self._open_region(mask)
        elif site == structures.CHECK_HEAP_ACCESS:
            assert lanes is not None
            self._check_heap_access(block, warp, lanes, mask, extra)
        else:
            assert site == structures.MIXED_BARRIER
            assert lanes is not None
            block_state = self.ordering.slot(block).block_state
            instructions = self.function.instructions
            arrivals = self._arrivals.setdefault(
                block,
                [
                    Arrival(
                        block_state.wait_warp,
                        instructions[block_state.wait_pc],
                        block_state.wait_mask & 0xFFFFFFFF,
                    )
                ],
            )
            own_arrival = Arrival(warp, instructions[int(lanes[0])], mask)
            if all(arrival.instruction is not own_arrival.instruction for arrival in arrivals):
                arrivals.append(own_arrival)

    def _describe_site(self, number: int, stores_scalar: bool) -> None:
        i = self.accesses[number]
        site_row = self._site_rows[number]
        site_number = self._number_site(i, lambda new_number: self._make_site(new_number, i, stores_scalar))
        site = self.sites[site_number]
        site_row.number = site_number
        site_row.space = _NUMBER_OF_SPACE[site.space if self._collects_findings else ""]
        site_row.parts = max(site.size_bytes // self.granule_bytes, 1)
        site_row.stores_scalar = site.stores_scalar
        site_row.reads = site.reads
        site_row.writes = site.writes
        site_row.kind_global = site.kind("global")
        site_row.kind_shared = site.kind("shared")
        site_row.synchronizes = site.is_strong or site.volatile
        site_row.releases = site.releases
        site_row.step = structures.COPY_ISSUED * site.copies
        site_row.is_bulk_copy = site.is_bulk_copy
        site_row.awaits_mbarrier = site.awaits_mbarrier
        site_row.low_address, site_row.high_address = UNBOUNDED
        if self.strays:
            site_row.low_address = site.low_address
            site_row.high_address = site.high_address - site.size_bytes
        site_row.known = 1

    def _make_site(self, site_number: int, i: ir.Instruction, stores_scalar: bool) -> Site:
        made_site = make_site(site_number, i, self.bounds(i), self.polled)
        return made_site if stores_scalar else replace(made_site, stores_scalar=False)

    def _number_site(self, i: ir.Instruction, describe: Callable[[int], Site]) -> int:
        site_number = self._numbers.get(id(i))
        if site_number is None:
            site_number = len(self.sites)
            self._numbers[id(i)] = site_number
            self.sites.append(describe(site_number))
        return site_number

    def _open_region(self, region_number: int) -> None:
        region = self._regions[region_number]
        granule_count = -(-(region.end - region.start) // self.granule_bytes)
        unwritten_granules = self.unwritten_words.get(region.start) if self.unwritten else None
        if unwritten_granules is not None:
            write_table = self._new_table(np.dtype(np.uint8), granule_count)
            write_table[:] = ~unwritten_granules
            region.written = write_table.ctypes.data
            self._written_granules[region.start] = write_table
        if self.races:
            region.is_unwritten = (
                self._writable_starts is not None and region.start not in self._writable_starts
            )
            try:
                if granule_count > _REGION_WORDS:
                    raise MemoryError
                # The host maps pages of zeros at the first write, so large regions need little memory.
                planes = self._new_table(np.dtype(np.int64), structures.PLANE_COUNT * granule_count)
                region.planes = planes.ctypes.data
                region.step = 8 * granule_count
            except MemoryError:
                self.left_out += 1
        region.known = 1

    def _check_heap_access(
        self, block: int, warp: int, lanes: npt.NDArray[np.int64], mask: int, site_number: int
    ) -> None:
        """Report the lanes whose access to the device heap is outside of an allocated block of memory."""
        assert self.memory.heap is not None
        used_blocks = self.memory.heap.used_blocks
        site = self.sites[site_number]
        segment_number = self.ordering.slot(block).block_state.segment
        for lane in range(layout.LANES):
            address = int(lanes[lane])
            used_block_start = max(
                (used_block_start for used_block_start in used_blocks if used_block_start <= address),
                default=None,
            )
            is_inside = (
                used_block_start is not None
                and address + site.size_bytes <= used_block_start + used_blocks[used_block_start]
            )
            if mask >> lane & 1 and not is_inside:
                access = Access(segment_number, site_number, warp * layout.LANES + lane)
                self.findings.add_outside_block(access, address)

    def shuffle(
        self, block: int, warp: int, i: ir.Instruction, sources: npt.NDArray[np.int64], mask: int
    ) -> None:
        for lane in range(layout.LANES):
            source_lane = int(sources[lane])
            if mask >> lane & 1 and not mask >> source_lane & 1:
                site_number = self._number_site(i, lambda new_number: make_register_site(new_number, i))
                segment = self.ordering.slot(block).block_state.segment
                self.findings.add_absent_lane(
                    Access(segment, site_number, warp * layout.LANES + lane), source_lane
                )

    def wait(self, block: int, warp: int, i: ir.Instruction, mask: int, expected: int) -> None:
        # Without .aligned, PTX permits the lanes of a warp to arrive one by one.
        is_aligned = i.root == "bar" or "aligned" in i.parts
        if is_aligned and mask != expected:
            self.findings.add_divergent_barrier(block, Arrival(warp, i, mask), None)

    def arrive(self, block: int, warp: int, mask: int, number: int) -> None:
        lanes = [warp * layout.LANES + lane for lane in range(layout.LANES) if mask >> lane & 1]
        if lanes:
            self.ordering.release(block, lanes, self._barrier_messages.setdefault((block, number), Message()))

    def barrier(self, block: int, threads: npt.NDArray[np.bool_], is_complete: bool, number: int = 0) -> None:
        if number == 0:
            block_state = self.ordering.slot(block).block_state
            block_state.wait_pc = -1
            block_state.has_mixed_barriers = 0
            arrivals = self._arrivals.pop(block, [])
            for other_arrival in arrivals[1:]:
                self.findings.add_divergent_barrier(block, other_arrival, arrivals[0])
        self.ordering.learn(block)
        arrived_messages = self._barrier_messages.pop((block, number), None)
        if is_complete and arrived_messages is None:
            self.ordering.full_barrier(block)
            return
        waiting_threads = np.flatnonzero(threads.reshape(-1))
        if arrived_messages is not None:
            self.ordering.acquire(block, waiting_threads.tolist(), arrived_messages)
        self.ordering.partial_barrier(block, waiting_threads)

    def flush(self) -> None:
        """Pass the findings to their receiver in the order of the accesses, and clear them."""
        used_entries = self._entries[self._entries["key"] != 0]
        for finding_entry in used_entries[np.argsort(used_entries["second"], kind="stable")].tolist():
            (
                packed_key,
                occurrence_count,
                values_differ,
                region_start,
                word_number,
                first_record,
                second_record,
            ) = finding_entry
            finding_kind = packed_key & 3
            self.findings.add(
                FindingOccurrences(
                    finding_kind,
                    _CHECKED_SPACES[packed_key >> 6 & 3],
                    occurrence_count,
                    region_start,
                    word_number,
                    Access.unpacked(second_record),
                    Access.unpacked(first_record)
                    if finding_kind in (structures.RACE, structures.PENDING_COPY)
                    else None,
                    (bool(packed_key >> 2 & 1), bool(packed_key >> 3 & 1)),
                    packed_key >> 4 & 3,
                    not values_differ,
                )
            )
        self._entries[:] = 0
        self.shared.used = 0
