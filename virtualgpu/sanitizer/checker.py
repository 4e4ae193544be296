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
_MAX_REGION_GRANULES = 1 << 28
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
    def first_thread(self) -> int:
        """The number of the first of these threads within the block."""
        return self.warp * layout.LANES + (self.mask & -self.mask).bit_length() - 1


@dataclass(frozen=True, slots=True)
class Access:
    """A memory access by one thread, with the numbers of its segment, its instruction and its thread."""

    segment: int
    site: int
    thread: int

    @classmethod
    def unpack(cls, packed: int) -> Access:
        """Return an access from the 64-bit number in which compiled code stores it."""
        site_and_thread = packed & (1 << structures.SITE_AND_THREAD_BITS) - 1
        return cls(
            (packed >> structures.SITE_AND_THREAD_BITS) - 1,
            site_and_thread >> structures.THREAD_BITS,
            site_and_thread & (1 << structures.THREAD_BITS) - 1,
        )


@dataclass(frozen=True, slots=True)
class FindingOccurrences:
    """The occurrences of a finding at one pair of instructions, with the accesses of the first occurrence.

    The field ``finding_kind`` is the kind of finding, as defined in `shadow`; ``start`` is the address of the
    memory region, and ``word`` is the number of the granule within the region. ``first_access`` is the
    earlier access with which ``second_access`` conflicts.
    """

    finding_kind: int
    space: str
    count: int
    start: int
    word: int
    second_access: Access
    first_access: Access | None = None
    are_writes: tuple[bool, bool] = (False, False)
    relation: int = 0
    values_agree: bool = False


class Findings(Protocol):
    """The interface of an object that receives the findings of a checker."""

    def add(self, occurrences: FindingOccurrences) -> None:
        """Add a race, a read of uninitialized memory, or an access to another array or to a pending copy."""

    def add_absent_lane(self, access: Access, source_lane: int) -> None:
        """Add a shuffle from an inactive lane, or a vote whose mask contains an inactive lane."""

    def add_outside_block(self, access: Access, address: int) -> None:
        """Add an access to the device heap that is outside of all allocated blocks."""

    def add_divergent_barrier(self, block: int, arrival: Arrival, other_arrival: Arrival | None) -> None:
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
    find_bounds
        Returns the allocation (start, end) that an instruction's pointer belongs to.
    polling_load_ids
        Ids of the loads that poll a flag.
    checks_races, checks_unwritten, checks_shuffles, checks_strays, checks_heap, checks_barriers
        Enabled checks. ``checks_strays`` finds accesses outside of the array that a pointer belongs to.
    has_partial_waits
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
        find_bounds: Callable[[ir.Instruction], tuple[int, int]] = lambda _: UNBOUNDED,
        polling_load_ids: Set[int] = frozenset(),
        checks_races: bool = True,
        checks_unwritten: bool = True,
        checks_shuffles: bool = True,
        checks_strays: bool = True,
        checks_heap: bool = False,
        checks_barriers: bool = False,
        has_partial_waits: bool = True,
        unwritten_words: Mapping[int, npt.NDArray[np.bool_]] | None = None,
    ) -> None:
        self.memory = memory
        self.function = function
        self.accesses = accesses
        self.findings = findings
        self.find_bounds = find_bounds
        self.polling_load_ids = polling_load_ids
        self.checks_races = checks_races
        self.checks_unwritten = checks_unwritten
        self.checks_strays = checks_strays
        self.granule_bytes = shape.granule_bytes
        self.unwritten_words = unwritten_words or {}
        self.sites: list[Site] = []
        self.unchecked_regions = 0
        self._site_numbers: dict[int, int] = {}
        self._collects_findings = checks_races or checks_unwritten or checks_strays or checks_heap
        self._written_granules: dict[int, npt.NDArray[np.uint8]] = {}
        self._tables: list[npt.NDArray[Any]] = []
        warp_count = -(-shape.threads // layout.LANES)
        shared_state = self.shared_state = structures.Checker()
        self.ordering = Ordering(warp_count * layout.LANES, shape.blocks, shared_state)
        self._flags = Flags(self.ordering)
        self._barrier_messages: dict[
            tuple[int, int], Message
        ] = {}  # messages at barriers, by block and number
        self._arrivals: dict[int, list[Arrival]] = {}  # arrivals at barrier 0, by block
        shared_state.threads = warp_count * layout.LANES
        shared_state.warps = warp_count
        shared_state.word_shift = shape.granule_bytes.bit_length() - 1
        shared_state.checks_races = checks_races
        shared_state.checks_shuffles = checks_shuffles
        shared_state.has_partial_waits = checks_races and has_partial_waits
        shared_state.shared_words = -(-shape.shared_bytes // shape.granule_bytes)
        shared_state.local_words = -(-shape.local_bytes // shape.granule_bytes)
        shared_state.entry_limit = structures.ENTRY_CAPACITY // 2
        self._entries = self._new_table(_FINDING_DTYPE, structures.ENTRY_CAPACITY)
        shared_state.entries = self._entries.ctypes.data
        self._site_rows = (structures.Site * max(len(accesses), 1))()  # type: ignore[operator]
        shared_state.sites = ctypes.addressof(self._site_rows)
        if checks_barriers:
            waits_for_block = self._new_table(np.dtype(np.uint8), len(function.instructions) + 1)
            waits_for_block[: len(function.instructions)] = [
                cfg.is_block_barrier(i) and cfg.waits_for_all_threads(i) for i in function.instructions
            ]
            shared_state.waits_for_block = waits_for_block.ctypes.data
        if checks_heap and memory.heap is not None:
            self.watch_heap(memory.heap)
        self._find_regions()

    def _new_table(self, dtype: npt.DTypeLike, row_count: int) -> npt.NDArray[Any]:
        new_table = np.zeros(row_count, dtype)
        self._tables.append(new_table)
        return new_table

    def watch_heap(self, heap: DeviceHeap) -> None:
        """Enable the check of accesses to the device heap."""
        self.shared_state.heap_start = heap.address
        self.shared_state.heap_end = heap.address + heap.size_bytes

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
        self.shared_state.regions = ctypes.addressof(self._regions)
        self.shared_state.region_starts = range_starts.ctypes.data
        self.shared_state.region_count = len(range_starts)
        self._writable_starts = self._find_writable_starts() if self.checks_races else set()

    def _find_writable_starts(self) -> set[int] | None:
        """Return the starts of allocations that the kernel can write; None if it can write anywhere."""
        writable_starts = set()
        for i in self.accesses:
            access_site = make_site(0, i)
            if access_site.writes and access_site.space in ("global", "generic"):
                low_address, _ = self.find_bounds(i)
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

    def watch(self, callback_address: int) -> tuple[int, int]:
        """Return the addresses of the compiled checks and of their data for one worker.

        The argument `callback_address` is the address of the function that compiled checks call in rare
        cases.
        """
        slot = make_slot(
            self.shared_state,
            callback_address,
            checks_races=self.checks_races,
            checks_unwritten=self.checks_unwritten,
        )
        self.ordering.slots.append(slot)
        return events.compile_observer().address, get_struct_address(slot.block_state)

    def access(self, block: int, warp: int, number: int, addresses: npt.NDArray[np.int64], mask: int) -> bool:
        accessed_site = self.sites[self._site_rows[number].number]
        block_state = self.ordering.find_slot(block).block_state
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
            self.ordering.grow_tables()
        elif site == structures.FLUSH_FINDINGS:
            self.flush()
        elif site == structures.APPLY_MESSAGES:
            self.ordering.apply_messages(block)
        elif site == structures.ALLOCATE_MATRIX:
            self.ordering.get_order_matrix(self.ordering.find_slot(block))
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
            block_state = self.ordering.find_slot(block).block_state
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
        site_row.word_count = max(site.size_bytes // self.granule_bytes, 1)
        site_row.stores_scalar = site.stores_scalar
        site_row.reads = site.reads
        site_row.writes = site.writes
        site_row.kind_global = site.kind("global")
        site_row.kind_shared = site.kind("shared")
        site_row.synchronizes = site.is_strong or site.is_volatile
        site_row.releases = site.releases
        site_row.copy_stage = structures.COPY_ISSUED * site.is_async_copy
        site_row.is_bulk_copy = site.is_bulk_copy
        site_row.awaits_mbarrier = site.awaits_mbarrier
        site_row.low_address, site_row.high_address = UNBOUNDED
        if self.checks_strays:
            site_row.low_address = site.low_address
            site_row.high_address = site.high_address - site.size_bytes
        site_row.is_described = 1

    def _make_site(self, site_number: int, i: ir.Instruction, stores_scalar: bool) -> Site:
        new_site = make_site(site_number, i, self.find_bounds(i), self.polling_load_ids)
        return new_site if stores_scalar else replace(new_site, stores_scalar=False)

    def _number_site(self, i: ir.Instruction, create_site: Callable[[int], Site]) -> int:
        site_number = self._site_numbers.get(id(i))
        if site_number is None:
            site_number = len(self.sites)
            self._site_numbers[id(i)] = site_number
            self.sites.append(create_site(site_number))
        return site_number

    def _open_region(self, region_number: int) -> None:
        region = self._regions[region_number]
        granule_count = -(-(region.end - region.start) // self.granule_bytes)
        unwritten_granules = self.unwritten_words.get(region.start) if self.checks_unwritten else None
        if unwritten_granules is not None:
            write_table = self._new_table(np.dtype(np.uint8), granule_count)
            write_table[:] = ~unwritten_granules
            region.written_table = write_table.ctypes.data
            self._written_granules[region.start] = write_table
        if self.checks_races:
            region.is_unwritten = (
                self._writable_starts is not None and region.start not in self._writable_starts
            )
            try:
                if granule_count > _MAX_REGION_GRANULES:
                    raise MemoryError
                # The host maps pages of zeros at the first write, so large regions need little memory.
                planes = self._new_table(np.dtype(np.int64), structures.PLANE_COUNT * granule_count)
                region.planes = planes.ctypes.data
                region.plane_bytes = 8 * granule_count
            except MemoryError:
                self.unchecked_regions += 1
        region.is_opened = 1

    def _check_heap_access(
        self, block: int, warp: int, lanes: npt.NDArray[np.int64], mask: int, site_number: int
    ) -> None:
        """Report the lanes whose access to the device heap is outside of an allocated block of memory."""
        assert self.memory.heap is not None
        used_blocks = self.memory.heap.used_blocks
        site = self.sites[site_number]
        segment_number = self.ordering.find_slot(block).block_state.segment
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
                segment = self.ordering.find_slot(block).block_state.segment
                self.findings.add_absent_lane(
                    Access(segment, site_number, warp * layout.LANES + lane), source_lane
                )

    def wait(self, block: int, warp: int, i: ir.Instruction, mask: int, expected_mask: int) -> None:
        # Without .aligned, PTX permits the lanes of a warp to arrive one by one.
        is_aligned = i.root == "bar" or "aligned" in i.parts
        if is_aligned and mask != expected_mask:
            self.findings.add_divergent_barrier(block, Arrival(warp, i, mask), None)

    def arrive(self, block: int, warp: int, mask: int, number: int) -> None:
        lanes = [warp * layout.LANES + lane for lane in range(layout.LANES) if mask >> lane & 1]
        if lanes:
            self.ordering.release(block, lanes, self._barrier_messages.setdefault((block, number), Message()))

    def barrier(self, block: int, threads: npt.NDArray[np.bool_], is_complete: bool, number: int = 0) -> None:
        if number == 0:
            block_state = self.ordering.find_slot(block).block_state
            block_state.wait_pc = -1
            block_state.has_mixed_barriers = 0
            arrivals = self._arrivals.pop(block, [])
            for other_arrival in arrivals[1:]:
                self.findings.add_divergent_barrier(block, other_arrival, arrivals[0])
        self.ordering.apply_messages(block)
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
                    Access.unpack(second_record),
                    Access.unpack(first_record)
                    if finding_kind in (structures.RACE, structures.PENDING_COPY)
                    else None,
                    (bool(packed_key >> 2 & 1), bool(packed_key >> 3 & 1)),
                    packed_key >> 4 & 3,
                    not values_differ,
                )
            )
        self._entries[:] = 0
        self.shared_state.used_entries = 0
