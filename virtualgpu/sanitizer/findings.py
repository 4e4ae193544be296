"""From raw conflicts to hazards a learner can read: source lines, threads, array and remedy."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from virtualgpu.compile.ptx import cfg, ir
from virtualgpu.engine.ir import layout
from virtualgpu.engine.observe import results
from virtualgpu.model.memory import DeviceMemory
from virtualgpu.records import Dim3, Hazard, Place, Severity
from virtualgpu.sanitizer import structures
from virtualgpu.sanitizer.checker import Access, Arrival, Found
from virtualgpu.sanitizer.ordering import Ordering
from virtualgpu.sanitizer.sites import Site

# Pairs of source lines that a report lists at most.
MOST_HAZARDS = 64
UNWRITTEN, ABSENT = "uninitialised read", "shuffle from an absent lane"
STRAY = "outside its array"
HASTY = "copy not awaited"
FREED, LEAK = "use after free", "leak"
OUTSIDE_BLOCK = "out of bounds"
_KINDS = {(True, True): "WAW", (True, False): "RAW", (False, True): "WAR"}
_WARP, _BLOCK, _GRID, _FLAGS = structures.IN_WARP, structures.IN_BLOCK, structures.ACROSS_BLOCKS, 3
_REMEDY = {
    _WARP: "Put __syncwarp() between{}: lanes of a warp do not wait for each other by themselves.",
    _BLOCK: "Put __syncthreads() between{}.",
    _FLAGS: "Put __syncthreads() between{}; where not all threads pass, let the second wait for a flag that "
    "the first sets afterwards, behind a fence.",
    _GRID: "Blocks run in any order and at once: use an atomic, or two launches.",
}
_AFTER_COPY = " The write is an asynchronous copy: its thread waits for it first, then for the others."
_LOCAL_NAME = re.compile(r"E(\d+)([A-Za-z_][\w$]*)$")
_ELEMENT = re.compile(r"(\w+) array of shape")


@dataclass(slots=True)
class _Found:
    """Occurrences of one hazard, and the first of them."""

    count: int
    agree: bool
    space: str
    start: int
    word: int
    first: Access | None
    second: Access


@dataclass(slots=True)
class _Apart:
    """Occurrences of threads at a barrier that others do not reach with them, and the first of them."""

    block: int
    here: Arrival
    other: Arrival | None
    count: int = 0


class Findings:
    """Gathers what a checker reports, one entry a kind and pair of source lines."""

    def __init__(self, memory: DeviceMemory, granule_bytes: int) -> None:
        self.memory, self.granule_bytes = memory, granule_bytes
        self.more = 0
        self.sites: Sequence[Site] = ()
        self.ordering: Ordering | None = None
        self.flow: cfg.Flow | None = None
        self._found: dict[tuple[str, str, int, int, int], _Found] = {}
        self._apart: dict[tuple[int, int], _Apart] = {}
        self._heap_blocks: dict[tuple[str, str, int, int, int], tuple[int, int]] = {}

    def add(self, found: Found) -> None:
        """Take in occurrences of one finding at one pair of sites."""
        second, first = found.second, found.first
        line = self.sites[second.site].line
        entry = _Found(found.count, found.agree, found.space, found.start, found.word, first, second)
        if found.what == structures.UNWRITTEN:
            self._count((UNWRITTEN, found.space, 0, line, 0), entry)
        elif found.what == structures.STRAY:
            self._count((STRAY, "global", self.sites[second.site].low, line, 0), entry)
        else:
            assert first is not None
            kind = HASTY if found.what == structures.HASTY else _KINDS[found.wrote]
            self._count((kind, found.space, self.sites[first.site].line, line, found.relation), entry)

    def absent(self, access: Access, source: int) -> None:
        """A thread shuffled a value from a lane that takes no part."""
        key = (ABSENT, "", 0, self.sites[access.site].line, 0)
        self._count(key, _Found(1, False, "", 0, source, None, access))

    def apart(self, block: int, here: Arrival, other: Arrival | None) -> None:
        """Threads came to a barrier without their warp, or while others waited at another barrier."""
        key = here.instruction.line, other.instruction.line if other is not None else -1
        self._apart.setdefault(key, _Apart(block, here, other)).count += 1

    def outside_block(self, access: Access, address: int) -> None:
        """An access to the device heap met no block that is in use."""
        heap = self.memory.heap
        assert heap is not None
        freed = heap.freed or {}
        kind = (
            FREED if any(start <= address < start + size for start, size in freed.items()) else OUTSIDE_BLOCK
        )
        key = (kind, "global", 0, self.sites[access.site].line, 0)
        blocks = freed if kind == FREED else heap.used
        start = max((start for start in blocks if start <= address), default=0)
        self._heap_blocks.setdefault(key, (start, blocks.get(start, 0)))
        self._count(key, _Found(1, False, "global", address, 0, None, access))

    def _count(self, key: tuple[str, str, int, int, int], found: _Found) -> None:
        old = self._found.get(key)
        if old is not None:
            old.count += found.count
            old.agree &= found.agree
        elif len(self._found) < MOST_HAZARDS:
            self._found[key] = found
        else:
            self.more += 1

    def hazards(self, kernel: str, code: str, grid: Dim3, block: Dim3, shared: SharedNames) -> list[Hazard]:
        """All entries as records, but for those about memory that the system keeps for itself."""
        lines = code.split("\n")
        apart = [
            _apart_hazard(found, kernel, lines, grid, block, self._is_overlooked(found.here.instruction))
            for found in self._apart.values()
        ]
        return apart + [
            self._hazard(key, found, kernel, lines, grid, block, shared)
            for key, found in self._found.items()
            if not (key[1] == "shared" and self._is_reserved(found, shared))
        ]

    def _is_overlooked(self, barrier: ir.Instruction) -> bool:
        """Whether compute-sanitizer says nothing of a barrier that only some lanes of a warp come to.

        Asked on an H200 (2025.3.1), it sees neither those in loops nor those that vote.
        """
        return "red" in barrier.parts or (self.flow is not None and cfg.is_in_loop(self.flow, barrier.pc))

    def _is_reserved(self, found: _Found, shared: SharedNames) -> bool:
        at = shared.offsets.get(layout.RESERVED_SHARED)
        address = found.word % max(shared.words, 1) * self.granule_bytes
        return at is not None and at <= address < at + layout.RESERVED_SHARED_BYTES

    def _hazard(
        self,
        key: tuple[str, str, int, int, int],
        found: _Found,
        kernel: str,
        lines: list[str],
        grid: Dim3,
        block: Dim3,
        shared: SharedNames,
    ) -> Hazard:
        kind, space, _, _, relation = key

        def place(access: Access) -> Place:
            assert self.ordering is not None
            line = self.sites[access.site].line
            text = lines[line - 1].strip() if 0 < line <= len(lines) else ""
            number = results.unlinear(self.ordering.block(access.segment), grid)
            return Place(line, text, number, results.unlinear(access.thread, block))

        second = place(found.second)
        if kind == ABSENT:
            return Hazard(
                "sync", kind, "warning", "", kernel, None, second, None, "", found.count,
                f"thread {second.thread} of block {second.block} takes a value from lane {found.word} of its "
                "warp, which takes no part in the shuffle: what it gets is undefined. Let every lane that is "
                "read from execute the shuffle too.",
            )  # fmt: skip
        if space == "global":
            address = found.start + found.word * self.granule_bytes
            array = self._element(address)
        else:
            size = shared.words if space == "shared" else shared.local_words
            address = found.word % max(size, 1) * self.granule_bytes
            array = (
                shared.name(address) if space == "shared" else f"byte {address:,} of the thread's own stack"
            )
        if kind in (FREED, OUTSIDE_BLOCK):
            at = self.sites[found.second.site]
            array, message = _heap_words(kind, at, second, address, *self._heap_blocks[key])
            return Hazard(
                "memory", kind, "error", space, kernel, None, second, address, array, found.count, message
            )  # fmt: skip
        if kind == STRAY:
            meant = self.sites[found.second.site]
            return Hazard(
                "memory", kind, "error", space, kernel, None, second, address, array, found.count,
                _stray_message(self.memory, meant, second, address, array),
            )  # fmt: skip
        if found.first is None:
            return Hazard(
                "init", kind, "warning", space, kernel, None, second, address, array, found.count,
                _unwritten_message(space, second, array),
            )  # fmt: skip
        first = place(found.first)
        if kind == HASTY:
            hasty = self.sites[found.second.site]
            return Hazard(
                "race", kind, "error", space, kernel, first, second, address, array, found.count,
                _hasty_message(hasty, first, second, array),
            )  # fmt: skip
        # As compute-sanitizer grades them: lanes of a warp mostly run in step.
        severity: Severity = "warning" if relation == _WARP and kind != "WAW" else "error"
        stale = self._only_stale(found)
        assert self.ordering is not None
        if relation == _BLOCK and self.ordering.has_messages:
            relation = _FLAGS
        if stale or (kind == "WAW" and found.agree):
            severity = "info"
        return Hazard(
            "race", kind, severity, space, kernel, first, second,
            address, array, found.count,
            _race_message(kind, first, second, array, relation, found.agree, stale)
            + (_AFTER_COPY if self.sites[found.first.site].copies else ""),
        )  # fmt: skip

    def _only_stale(self, found: _Found) -> bool:
        """A plain read against compare-and-swap: the swap notices if what was read is out of date."""
        assert found.first is not None
        pair = [self.sites[access.site] for access in (found.first, found.second)]
        return any(
            one.swaps and not other.writes and not other.strong for one, other in (pair, reversed(pair))
        )

    def _element(self, address: int) -> str:
        """Array and index of an address, as in ``element 3 of the float32 array of shape (8,)``."""
        found = self.memory.nearest(address)
        if found is None:
            return ""
        dtype = _ELEMENT.search(found.label)
        offset = address - found.address
        if dtype:
            return f"element {offset // np.dtype(dtype[1]).itemsize:,} of the {found.label}"
        return f"byte {offset:,} of the {found.label}"


@dataclass(frozen=True, slots=True)
class SharedNames:
    """Names of a kernel's shared arrays by offset, and the sizes of its memory in granules."""

    offsets: dict[str, int]
    words: int
    local_words: int

    def name(self, offset: int) -> str:
        """The array an offset falls into and the byte in it."""
        before = [(at, name) for name, at in self.offsets.items() if at <= offset]
        if not before:
            return f"byte {offset:,} of shared memory"
        at, name = max(before)
        return f"byte {offset - at:,} of shared array {spelled(name)}"


def spelled(symbol: str) -> str:
    """A shared variable as the source calls it: what a mangled name ends with."""
    match = _LOCAL_NAME.search(symbol)
    if not symbol.startswith("_Z") or match is None:
        return symbol
    return match[2][: int(match[1])]


def _apart_hazard(
    found: _Apart, kernel: str, lines: Sequence[str], grid: Dim3, block: Dim3, overlooked: bool
) -> Hazard:
    """The hazard of a barrier that not all threads reach together."""

    def place(arrival: Arrival) -> Place:
        line = arrival.instruction.line
        text = lines[line - 1].strip() if 0 < line <= len(lines) else ""
        return Place(line, text, results.unlinear(found.block, grid), results.unlinear(arrival.thread, block))

    second = place(found.here)
    who = f"thread {second.thread} of block {second.block}"
    severity: Severity = "error"
    if found.other is None:
        first = None
        severity = "warning" if overlooked else "error"
        message = (
            f"{who} comes to this barrier with {found.here.mask.bit_count()} of the threads of its warp; the "
            "others go another way. Every thread of the block must reach the same barrier: move it out of "
            "the branch or the loop that parts them."
            + (
                " CUDA C++ leaves undefined what happens; compute-sanitizer does not see it."
                if overlooked
                else ""
            )
        )
    else:
        first = place(found.other)
        where = f"line {first.line}" if first.line != second.line else "another place of the same line"
        message = (
            f"{who} waits at this barrier while thread {first.thread} waits at the one of {where}. A GPU "
            "lets both pass; CUDA C++ leaves undefined what happens. Every thread of the block must reach "
            "the same barrier: move it out of the branch."
        )
    return Hazard(
        "sync", "divergent barrier", severity, "", kernel, first, second, None, "", found.count, message
    )  # fmt: skip


def _heap_words(kind: str, site: Site, second: Place, address: int, start: int, size: int) -> tuple[str, str]:
    """What an access that missed the blocks of the device heap is nearest to, and a sentence about it."""
    does = f"thread {second.thread} of block {second.block} {'writes' if site.writes else 'reads'}"
    if not start:
        return "device heap", f"{does} the device heap where malloc() gave no block: check the pointer."
    array = f"byte {address - start:,} of a block of {size:,} bytes on the device heap"
    if kind == FREED:
        return array, f"{does} {array} that has been freed: use it before free(), or take another."
    return array, f"{does} {site.size_bytes} bytes at {array}: check the index against what malloc() gave."


def _race_message(
    kind: str, first: Place, second: Place, array: str, relation: int, agree: bool, stale: bool
) -> str:
    did = "wrote" if kind != "WAR" else "read"
    does = "reads" if kind == "RAW" else "writes"
    earlier = f"thread {first.thread}" + (f" of block {first.block}" if relation == _GRID else "")
    what = (
        f"thread {second.thread} of block {second.block} {does} {array} that {earlier} {did}, and nothing "
        "says which comes first."
    )
    if stale:
        return f"{what} The compare-and-swap fails if the value read is out of date, so it does no harm."
    if kind == "WAW" and agree:
        return f"{what} All of them write the same value, so the result does not depend on it."
    lines = f" lines {first.line} and {second.line}" if first.line != second.line else " the two"
    return f"{what} {_REMEDY[relation].format(lines)}"


def _hasty_message(site: Site, first: Place, second: Place, array: str) -> str:
    does = "copies to" if site.copies else "reads" if not site.writes else "writes"
    fix = f"Wait for it between lines {first.line} and {second.line} (cp.async.wait_group, which is"
    if first.line == second.line:
        fix = "Wait for it before (cp.async.wait_group, which is"
    barrier = "" if first.thread == second.thread else ", then __syncthreads()"
    return (
        f"thread {second.thread} of block {second.block} {does} {array}, where what thread {first.thread} "
        f"copies there asynchronously (line {first.line}) has not arrived. {fix} __pipeline_wait_prior, "
        f"consumer_wait or cuda::barrier's wait in CUDA C++){barrier}."
    )


def _stray_message(memory: DeviceMemory, site: Site, second: Place, address: int, array: str) -> str:
    meant = memory.nearest(site.low)
    label = meant.label if meant is not None else "array"
    off = (
        f"{site.low - address:,} bytes before"
        if address < site.low
        else f"{address - site.high:,} bytes past"
    )
    does = "writes" if site.writes else "reads"
    return (
        f"thread {second.thread} of block {second.block} {does} {array} through a pointer to the {label}: "
        f"{off} its {'start' if address < site.low else 'end'}. Check the index against its size; on a GPU "
        "this goes unnoticed."
    )


def _unwritten_message(space: str, second: Place, array: str) -> str:
    fix = {
        "global": "Fill it first, or make it with cp.zeros.",
        "shared": "Write it, and wait with __syncthreads(), before reading.",
    }
    return (
        f"thread {second.thread} of block {second.block} reads {array}, which nothing has written. "
        f"{fix.get(space, 'Give the local array a value first.')}"
    )
