"""Recorder of the bytes of device memory that a kernel reads, writes or changes with atomics."""

from __future__ import annotations

import functools
from collections.abc import Iterator
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from virtualgpu.compile.ptx import ir
from virtualgpu.engine.ir import layout
from virtualgpu.engine.ir.compiled import (
    call_function,
    find_lowest_bit,
    get_struct_address,
    load8,
    load64,
    make_structure,
    store8,
    translate,
    view_struct,
)
from virtualgpu.engine.machine import jit
from virtualgpu.records.acts import HOST, Region
from virtualgpu.sanitizer.sites import find_granule_bytes, make_site
from virtualgpu.sanitizer.structures import LOCAL, Context

if TYPE_CHECKING:
    from virtualgpu.launch.prepare import FinishedLaunch, PreparedLaunch
    from virtualgpu.model.machine import VirtualDevice

# Effects on a granule.
READ = 1
WRITTEN = 2
ATOMIC = 4
OPEN_ALLOCATION = -(1 << 29)  # site of the callback for the first access to an allocation
_TAG_SHIFT = 56
_OFFSET_MASK = (1 << 56) - 1
# Larger allocations have larger granules; a kernel with more pieces than this has larger ones.
_MAX_GRANULES = 1 << 26
_MAX_PIECES = 64
# Memory that the driver allocates for every cooperative launch, and the virtual GPU for every module.
_PRIVATE_LABEL = "cooperative groups"


@make_structure
class AllocationTable:
    """A table for compiled code with the address range of each allocation and a map of its accessed
    granules.
    """

    starts: int
    ends: int
    allocation_count: int
    map_addresses: int
    granule_shifts: int
    access_effects: int
    callback: int


def mark_accesses(context: Context, number: int, lanes: int, mask: int, values: int) -> None:
    """Record a memory access of the lanes of a warp."""
    if number < 0:
        return
    table = view_struct(AllocationTable, context.watched)
    access_effect = load64(table.access_effects + 16 * number)
    size_bytes = load64(table.access_effects + 16 * number + 8)
    if access_effect == 0:
        return
    allocation_start = 0
    allocation_end = 0
    map_address = 0
    unit_shift = 0
    remaining_lanes = mask
    while remaining_lanes:
        lane = find_lowest_bit(remaining_lanes)
        remaining_lanes = remaining_lanes & (remaining_lanes - 1)
        address = load64(lanes + 8 * lane)
        tag = address >> _TAG_SHIFT
        if tag:
            address = address & _OFFSET_MASK
            if tag <= LOCAL:
                allocation_end = 0
                address = 0
        if address < allocation_start or address >= allocation_end:
            lower = 0
            upper = table.allocation_count
            while lower < upper:
                midpoint = (lower + upper) >> 1
                if load64(table.starts + 8 * midpoint) <= address:
                    lower = midpoint + 1
                else:
                    upper = midpoint
            map_address = 0
            allocation_end = 0
            if lower:
                allocation_start = load64(table.starts + 8 * (lower - 1))
                allocation_end = load64(table.ends + 8 * (lower - 1))
                if address < allocation_end:
                    if load64(table.map_addresses + 8 * (lower - 1)) == 0:
                        call_function(table.callback, context, OPEN_ALLOCATION, 0, lower - 1, 0)
                    map_address = load64(table.map_addresses + 8 * (lower - 1))
                    unit_shift = load64(table.granule_shifts + 8 * (lower - 1))
        if map_address and address < allocation_end:
            mark_address = map_address + ((address - allocation_start) >> unit_shift)
            last_mark_address = map_address + ((address + size_bytes - 1 - allocation_start) >> unit_shift)
            while mark_address <= last_mark_address:
                store8(mark_address, load8(mark_address) | access_effect)
                mark_address += 1


@functools.cache
def compile_mark_observer() -> jit.LibraryCode:
    """Compile the function `mark_accesses` and return its library. The engine calls the exported function
    ``entry_of``.
    """
    return jit.LibraryCode(
        translate([mark_accesses], "mark_accesses", {"Context": layout.CONTEXT}), "entry_of"
    )


class AccessRecorder:
    """An observer of one launch that records which granules of memory are read, written or changed."""

    def __init__(self, device: VirtualDevice, accesses: list[ir.Instruction]) -> None:
        self._device = device
        self._granule_bytes = find_granule_bytes(accesses)
        self._starts, self._ends = device.memory.find_live_ranges()
        self._granule_maps: dict[int, npt.NDArray[np.uint8]] = {}
        allocation_count = max(len(self._starts), 1)
        self._map_addresses = np.zeros(allocation_count, np.int64)
        self._granule_shifts = np.zeros(allocation_count, np.int64)
        self._access_effects = np.array([_effect_of(i) for i in accesses] or [(0, 0)], np.int64)
        self._table = AllocationTable()
        self._table.starts = self._starts.ctypes.data
        self._table.ends = self._ends.ctypes.data
        self._table.allocation_count = len(self._starts)
        self._table.map_addresses = self._map_addresses.ctypes.data
        self._table.granule_shifts = self._granule_shifts.ctypes.data
        self._table.access_effects = self._access_effects.ctypes.data

    def watch(self, callback_address: int) -> tuple[int, int]:
        self._table.callback = callback_address
        return compile_mark_observer().address, get_struct_address(self._table)

    def custom_event(
        self, block: int, warp: int, site: int, lanes: npt.NDArray[np.int64] | None, mask: int, extra: int
    ) -> None:
        allocation_bytes = int(self._ends[mask] - self._starts[mask])
        granule_shift = self._granule_bytes.bit_length() - 1
        while allocation_bytes >> granule_shift > _MAX_GRANULES:
            granule_shift += 1
        # The host maps pages of zeros at the first write.
        self._granule_maps[mask] = np.zeros((allocation_bytes >> granule_shift) + 1, np.uint8)
        self._map_addresses[mask] = self._granule_maps[mask].ctypes.data
        self._granule_shifts[mask] = granule_shift

    def access(self, *_: Any) -> bool:
        return False

    def shuffle(self, *_: Any) -> None:
        pass

    barrier = wait = arrive = shuffle

    def list_regions(self, effect: int) -> tuple[Region, ...]:
        """Return the memory regions that the launch read, wrote, or changed with atomics. The argument
        `effect` selects reads, writes or atomics.
        """
        return tuple(
            region
            for region_number in sorted(self._granule_maps)
            for region in self._find_regions(region_number, effect)
        )

    def _find_regions(self, region_number: int, effect: int) -> Iterator[Region]:
        region_start = int(self._starts[region_number])
        unit_bytes = 1 << int(self._granule_shifts[region_number])
        region_bytes = int(self._ends[region_number]) - region_start
        label = _find_array_label(self._device, region_start)
        memory_id = HOST if self._device.memory.is_host_address(region_start) else self._device.id
        if label.startswith(_PRIVATE_LABEL):
            return
        has_effect = np.zeros(len(self._granule_maps[region_number]) + 2, np.int8)
        has_effect[1:-1] = self._granule_maps[region_number] & effect != 0
        effect_edges = np.flatnonzero(np.diff(has_effect))
        starts = effect_edges[::2] * unit_bytes
        ends = np.minimum(effect_edges[1::2] * unit_bytes, region_bytes)
        for first_byte, item_bytes, shape, strides in _merge_byte_ranges(starts, ends):
            yield Region(memory_id, region_start + first_byte, item_bytes, shape, strides, label)


def _find_array_label(device: VirtualDevice, address: int) -> str:
    allocation = device.memory.find_nearest_allocation(address)
    return allocation.label if allocation is not None else ""


def _effect_of(i: ir.Instruction) -> tuple[int, int]:
    """Return whether an access reads, writes or changes global memory, and its number of bytes."""
    access_site = make_site(0, i)
    if access_site.space not in ("global", "generic"):
        return 0, 0
    if i.root in ("atom", "red"):
        return ATOMIC, access_site.size_bytes
    return READ * access_site.reads | WRITTEN * access_site.writes, access_site.size_bytes


def _merge_byte_ranges(
    starts: npt.NDArray[np.int64], ends: npt.NDArray[np.int64]
) -> Iterator[tuple[int, int, tuple[int, ...], tuple[int, ...]]]:
    """Yield ranges of bytes as address, item size, shape and strides; regular ranges are merged."""
    if len(starts) > 2:
        range_sizes = ends - starts
        start_distances = np.diff(starts)
        if (range_sizes == range_sizes[0]).all() and (start_distances == start_distances[0]).all():
            yield int(starts[0]), int(range_sizes[0]), (len(starts),), (int(start_distances[0]),)
            return
    if len(starts) > _MAX_PIECES:
        gap_bytes = starts[1:] - ends[:-1]
        largest_gaps = np.sort(np.argsort(gap_bytes, kind="stable")[-(_MAX_PIECES - 1) :])
        starts = np.append(starts[:1], starts[largest_gaps + 1])
        ends = np.append(ends[largest_gaps], ends[-1:])
    for start, end in zip(starts.tolist(), ends.tolist(), strict=True):
        yield start, end - start, (), ()


def run_watched(
    launch: PreparedLaunch, options: Any = None
) -> tuple[FinishedLaunch, tuple[tuple[Region, ...], ...]]:
    """Run a launch, and return the memory regions that it read, wrote, and changed with atomics.

    If the launch already has a trace or an observer, all its arrays are returned as read.
    """
    if options is not None and (options.trace is not None or options.observer is not None):
        device = launch.device
        read_regions = tuple(
            Region(device.id, address, size, array=_find_array_label(device, address))
            for address, size in launch.arrays.items()
        )
        return launch.run(options), (read_regions, (), ())
    kernel = launch.kernel.program.generate_uncounted(launch.packed_launch.name, is_observed=True)
    accesses = [i for _, i in kernel.tables.accesses]
    recorder = AccessRecorder(launch.device, accesses)
    options = replace(options or launch.options, observer=recorder)
    finished_launch = launch.run(options)
    return finished_launch, tuple(recorder.list_regions(effect) for effect in (READ, WRITTEN, ATOMIC))
