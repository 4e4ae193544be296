"""Which bytes of the device's memory a kernel reads, writes and changes atomically, seen while it runs."""

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
    address_of,
    call,
    load8,
    load64,
    lowest,
    store8,
    struct,
    struct_at,
    translate,
)
from virtualgpu.engine.machine import jit
from virtualgpu.records.acts import HOST, Region
from virtualgpu.sanitizer.sites import granule_bytes, site
from virtualgpu.sanitizer.structures import LOCAL, Context

if TYPE_CHECKING:
    from virtualgpu.launch.prepare import FinishedLaunch, PreparedLaunch
    from virtualgpu.model.machine import VirtualDevice

# What is kept of a granule.
READ = 1
WRITTEN = 2
ATOMIC = 4
OPEN = -(1 << 29)  # what the compiled code asks for an allocation that it meets first
_TAG = 56
_OFFSET = (1 << 56) - 1
# Larger allocations have larger granules; a kernel with more pieces than this has coarser ones.
_MOST_GRANULES = 1 << 26
_MOST_PIECES = 64
# What the driver gives every cooperative launch for itself, and the virtual GPU every module.
_PRIVATE = "cooperative groups"


@struct
class Look:
    """Allocations by their start, the maps of those that were met, and what each access does."""

    starts: int
    ends: int
    count: int
    maps: int
    shifts: int
    sites: int
    ask: int


def touch(c: Context, number: int, lanes: int, mask: int, values: int) -> None:
    """An access of the lanes of a warp."""
    if number < 0:
        return
    g = struct_at(Look, c.watched)
    what = load64(g.sites + 16 * number)
    size = load64(g.sites + 16 * number + 8)
    if what == 0:
        return
    start = 0
    end = 0
    map_at = 0
    shift = 0
    rest = mask
    while rest:
        lane = lowest(rest)
        rest = rest & (rest - 1)
        address = load64(lanes + 8 * lane)
        tag = address >> _TAG
        if tag:
            address = address & _OFFSET
            if tag <= LOCAL:
                end = 0
                address = 0
        if address < start or address >= end:
            low = 0
            high = g.count
            while low < high:
                middle = (low + high) >> 1
                if load64(g.starts + 8 * middle) <= address:
                    low = middle + 1
                else:
                    high = middle
            map_at = 0
            end = 0
            if low:
                start = load64(g.starts + 8 * (low - 1))
                end = load64(g.ends + 8 * (low - 1))
                if address < end:
                    if load64(g.maps + 8 * (low - 1)) == 0:
                        call(g.ask, c, OPEN, 0, low - 1, 0)
                    map_at = load64(g.maps + 8 * (low - 1))
                    shift = load64(g.shifts + 8 * (low - 1))
        if map_at and address < end:
            first = map_at + ((address - start) >> shift)
            last = map_at + ((address + size - 1 - start) >> shift)
            while first <= last:
                store8(first, load8(first) | what)
                first += 1


@functools.cache
def observer() -> jit.Library:
    """The compiled function; the engine is to call the address of ``entry_of``."""
    return jit.Library(translate([touch], "touch", {"Context": layout.CONTEXT}), "entry_of")


class Touched:
    """An observer of one launch, which keeps for each granule of memory what is done there."""

    def __init__(self, device: VirtualDevice, accesses: list[ir.Instruction]) -> None:
        self._device = device
        self._unit = granule_bytes(accesses)
        self._starts, self._ends = device.memory.live()
        self._maps: dict[int, npt.NDArray[np.uint8]] = {}
        count = max(len(self._starts), 1)
        self._places = np.zeros(count, np.int64)
        self._shifts = np.zeros(count, np.int64)
        self._sites = np.array([_what(i) for i in accesses] or [(0, 0)], np.int64)
        self._look = look = Look()
        look.starts = self._starts.ctypes.data
        look.ends = self._ends.ctypes.data
        look.count = len(self._starts)
        look.maps = self._places.ctypes.data
        look.shifts = self._shifts.ctypes.data
        look.sites = self._sites.ctypes.data

    def watch(self, ask: int) -> tuple[int, int]:
        self._look.ask = ask
        return observer().address, address_of(self._look)

    def custom_event(
        self, block: int, warp: int, what: int, lanes: npt.NDArray[np.int64] | None, mask: int, extra: int
    ) -> None:
        size = int(self._ends[mask] - self._starts[mask])
        shift = self._unit.bit_length() - 1
        while size >> shift > _MOST_GRANULES:
            shift += 1
        # The host maps pages of zeros when they are first written.
        self._maps[mask] = np.zeros((size >> shift) + 1, np.uint8)
        self._places[mask], self._shifts[mask] = self._maps[mask].ctypes.data, shift

    def access(self, *_: Any) -> bool:
        return False

    def shuffle(self, *_: Any) -> None:
        pass

    barrier = wait = arrive = shuffle

    def regions(self, what: int) -> tuple[Region, ...]:
        """The bytes that the launch read, wrote, or changed atomically."""
        return tuple(region for number in sorted(self._maps) for region in self._of(number, what))

    def _of(self, number: int, what: int) -> Iterator[Region]:
        start = int(self._starts[number])
        unit = 1 << int(self._shifts[number])
        size = int(self._ends[number]) - start
        label = _label(self._device, start)
        memory = HOST if self._device.memory.is_host_address(start) else self._device.id
        if label.startswith(_PRIVATE):
            return
        marked = np.zeros(len(self._maps[number]) + 2, np.int8)
        marked[1:-1] = self._maps[number] & what != 0
        edges = np.flatnonzero(np.diff(marked))
        firsts = edges[::2] * unit
        ends = np.minimum(edges[1::2] * unit, size)
        for first, item, shape, strides in _pieces(firsts, ends):
            yield Region(memory, start + first, item, shape, strides, label)


def _label(device: VirtualDevice, address: int) -> str:
    known = device.memory.nearest(address)
    return known.label if known is not None else ""


def _what(i: ir.Instruction) -> tuple[int, int]:
    """What an access does to global memory, and to how many bytes."""
    here = site(0, i)
    if here.space not in ("global", "generic"):
        return 0, 0
    if i.root in ("atom", "red"):
        return ATOMIC, here.size_bytes
    return READ * here.reads | WRITTEN * here.writes, here.size_bytes


def _pieces(
    firsts: npt.NDArray[np.int64], ends: npt.NDArray[np.int64]
) -> Iterator[tuple[int, int, tuple[int, ...], tuple[int, ...]]]:
    """Runs of bytes as items: first byte, bytes of an item, and its repetitions; the same ones in one."""
    if len(firsts) > 2:
        sizes = ends - firsts
        steps = np.diff(firsts)
        if (sizes == sizes[0]).all() and (steps == steps[0]).all():
            yield int(firsts[0]), int(sizes[0]), (len(firsts),), (int(steps[0]),)
            return
    if len(firsts) > _MOST_PIECES:
        gaps = firsts[1:] - ends[:-1]
        kept = np.sort(np.argsort(gaps, kind="stable")[-(_MOST_PIECES - 1) :])
        firsts = np.append(firsts[:1], firsts[kept + 1])
        ends = np.append(ends[kept], ends[-1:])
    for first, end in zip(firsts.tolist(), ends.tolist(), strict=True):
        yield first, end - first, (), ()


def run_watched(
    launch: PreparedLaunch, options: Any = None
) -> tuple[FinishedLaunch, tuple[tuple[Region, ...], ...]]:
    """Run a launch; what it read, what it wrote, and what it changed atomically.

    Of one whose steps are traced, which nothing else can look at, all arrays count as read.
    """
    if options is not None and (options.trace is not None or options.observer is not None):
        device = launch.device
        read = tuple(
            Region(device.id, at, size, array=_label(device, at)) for at, size in launch.arrays.items()
        )
        return launch.run(options), (read, (), ())
    program = launch.module.program(launch.device)
    kernel = program.generated(launch.packed.name, observe=True)
    accesses = [i for _, i in kernel.tables.accesses]
    watching = Touched(launch.device, accesses)
    options = replace(options or launch.options, observer=watching)
    finished = launch.run(options)
    return finished, tuple(watching.regions(what) for what in (READ, WRITTEN, ATOMIC))
