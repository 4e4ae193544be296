"""Sentences that say what a finding means, and the remedy."""

from __future__ import annotations

from dataclasses import dataclass

from virtualgpu.model.memory import DeviceMemory
from virtualgpu.records import Place
from virtualgpu.sanitizer import structures
from virtualgpu.sanitizer.report.updates import Update
from virtualgpu.sanitizer.sites import Site

WARP = structures.IN_WARP
BLOCK = structures.IN_BLOCK
GRID = structures.ACROSS_BLOCKS
FLAGS = 3
_WAIT = {WARP: "__syncwarp()", BLOCK: "__syncthreads()", FLAGS: "__syncthreads()"}
_WHY = {
    WARP: "{}: lanes of a warp do not wait for each other by themselves.",
    BLOCK: "{}.",
    FLAGS: "{}; where not all threads pass, let the second wait for a flag that the first sets afterwards, "
    "behind a fence.",
}
STALE = "stale"
CHECK = "check"
WEAK = "weak"
MIXED = "mixed"
_MEANT = {
    STALE: "The compare-and-swap fails if the value read is out of date, so it does no harm.",
    CHECK: "The atomic compares again, so an outdated value does no harm.",
    WEAK: "The other access is atomic, so the plain read gives the old or the new value: right where both "
    "will do, as in a search that tries again, wrong where the read needs the last one.",
    MIXED: "Compare-and-swaps change the same array: a plain write beside them is right only where any of "
    "the values will do, as in the shortening of a path; elsewhere, swap here as well.",
}
SIGNAL = (
    " If a flag or a counter tells that it is written, put __threadfence() before that changes and after it "
    "is read."
)
LOCK = " If a lock guards it, put __threadfence() after the lock is taken and before it is opened."
AFTER_COPY = " The write is an asynchronous copy: its thread waits for it first, then for the others."


def heap_words(
    freed: bool, site: Site, second: Place, address: int, start: int, size: int
) -> tuple[str, str]:
    """What an access that missed the blocks of the device heap is nearest to, and a sentence about it."""
    does = f"thread {second.thread} of block {second.block} {'writes' if site.writes else 'reads'}"
    if not start:
        return "device heap", f"{does} the device heap where malloc() gave no block: check the pointer."
    array = f"byte {address - start:,} of a block of {size:,} bytes on the device heap"
    if freed:
        return array, f"{does} {array} that has been freed: use it before free(), or take another."
    return array, f"{does} {site.size_bytes} bytes at {array}: check the index against what malloc() gave."


def _of(place: Place, relation: int) -> str:
    return f"thread {place.thread}" + (f" of block {place.block}" if relation == GRID else "")


@dataclass(frozen=True, slots=True)
class Remedied:
    """Where the remedy of a race belongs.

    ``relation`` says whom it must part. ``in_loop``: one loop has both accesses; ``inside`` and ``outside``
    are then lines of its barriers between theirs and elsewhere, 0 for none. ``signals``: the kernel waits for
    flags or counts with atomics, and ``is_flag``: this is such a flag. ``locks``: it has compare-and-swaps.
    """

    relation: int
    in_loop: bool = False
    inside: int = 0
    outside: int = 0
    signals: bool = False
    is_flag: bool = False
    locks: bool = False


def race_message(
    kind: str, first: Place, second: Place, array: str, where: Remedied, agree: bool, sort: str, pairs: int
) -> str:
    """Of a race. `agree`: both write the same; `sort`: why it may be meant, at so many `pairs` of lines."""
    did = "wrote" if kind != "WAR" else "read"
    does = "reads" if kind == "RAW" else "writes"
    what = (
        f"thread {second.thread} of block {second.block} {does} {array} that {_of(first, where.relation)} "
        f"{did}, and nothing says which comes first."
    )
    if sort and not (kind == "WAW" and agree):
        also = f" {pairs} pairs of lines meet on this array in this way." if pairs > 1 else ""
        return f"{what} {_MEANT[sort]}{also}"
    if kind == "WAW" and agree:
        return f"{what} All of them write the same value, so the result does not depend on it."
    lock = LOCK if where.locks and where.relation != WARP else ""
    return f"{what} {_remedy(kind, first.line, second.line, where)}{lock}"


def _remedy(kind: str, first: int, second: int, where: Remedied) -> str:
    low, high = sorted((first, second))
    if where.is_flag:
        return "Write the flag with an atomic, such as atomicExch(), and put __threadfence() before it."
    if where.relation == GRID:
        if kind == "WAW":
            return "Blocks run in any order and at once: let one thread write it, or use an atomic."
        signalled = SIGNAL if where.signals and kind == "RAW" else ""
        remedy = "write to another array, use an atomic, or launch twice"
        return f"Blocks run in any order and at once: {remedy}.{signalled}"
    wait = _WAIT[where.relation]
    why = _WHY[where.relation]
    within = f"Read into a variable, then {wait}, then write"
    if kind == "WAW":
        within = "Let one thread write it, or give each an element of its own"
    if where.in_loop and first == second and not where.inside and not where.outside:
        remains = f"If the race remains, {within[0].lower()}{within[1:]}"
        return why.format(f"Put {wait} between two turns of the loop. {remains}")
    if where.in_loop and first != second and not where.outside and (where.inside or first > second):
        stands = f"The barrier in line {where.inside} does not part two turns of the loop. "
        turn = f"Put {wait} after line {high}, before line {low} runs again"
        return why.format(f"{stands if where.inside else ''}{turn}")
    if first != second:
        return why.format(f"Put {wait} between lines {low} and {high}")
    return f"{within}." if kind == "WAW" else why.format(within)


def update_message(
    update: Update, first: Place, second: Place, array: str, relation: int, locks: bool, turns: bool = False
) -> str:
    """Of a read-modify-write by several threads; `turns`: in a loop without a barrier."""
    what = (
        f"thread {second.thread} of block {second.block} and {_of(first, relation)} both read {array}, "
        "change it and write it back: one of the two changes can get lost."
    )
    if update.atomic == "compare":
        fix = (
            "Compare and write in one atomic: atomicCAS(), or atomicMax() and atomicMin() for the largest "
            "and the smallest integer."
        )
    elif update.atomic in ("", "none"):
        fix = "Make it one atomic: a loop around atomicCAS() does where no other atomic fits."
    else:
        element = array.split(" (")[0]  # without where it stands in an array of several axes
        fix = f"Use {update.atomic}({'' if ' of ' in element else f'&{element}, ...'})."
    if turns and relation != GRID:
        wait = f"put {_WAIT[relation]} between two turns of the loop"
        fix += f" If each element is one thread's in a turn, {wait}."
    return f"{what} {fix}{LOCK if locks else ''}"


def apart_message(mask: int, first: Place | None, second: Place, overlooked: bool) -> str:
    """Of a barrier that not all threads reach together: without those of `first`, or of their warp."""
    who = f"thread {second.thread} of block {second.block}"
    if first is None:
        return (
            f"{who} comes to this barrier with {mask.bit_count()} of the threads of its warp; the others "
            "go another way. Every thread of the block must reach the same barrier: move it out of the "
            "branch or the loop that parts them."
            + (
                " CUDA C++ leaves undefined what happens; compute-sanitizer does not see it."
                if overlooked
                else ""
            )
        )
    where = f"line {first.line}" if first.line != second.line else "another place of the same line"
    return (
        f"{who} waits at this barrier while thread {first.thread} waits at the one of {where}. A GPU lets "
        "both pass; CUDA C++ leaves undefined what happens. Every thread of the block must reach the same "
        "barrier: move it out of the branch."
    )


def absent_message(second: Place, lane: int) -> str:
    """Of a shuffle from a lane that takes no part."""
    return (
        f"thread {second.thread} of block {second.block} takes a value from lane {lane} of its warp, which "
        "takes no part in the shuffle: what it gets is undefined. Let every lane that is read from execute "
        "the shuffle too."
    )


def unmet_message(second: Place, lane: int) -> str:
    """Of a vote, a match or a reduction whose mask names a lane that stays away."""
    return (
        f"thread {second.thread} of block {second.block} names lane {lane} of its warp in a mask, and that "
        "lane stays away or has ended: nothing promises what comes of it. Let every lane that a mask names "
        "execute the call, or name only those that do."
    )


def hasty_message(site: Site, first: Place, second: Place, array: str) -> str:
    """Of an access to a word that an asynchronous copy was going to."""
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


def stray_message(memory: DeviceMemory, site: Site, second: Place, address: int, array: str) -> str:
    """Of an access that left its array for another."""
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


def unwritten_message(space: str, second: Place, array: str) -> str:
    """Of a read of what nothing has written."""
    fix = {
        "global": "Fill it first, or make it with cp.zeros.",
        "shared": "Write it, and wait with __syncthreads(), before reading.",
    }
    return (
        f"thread {second.thread} of block {second.block} reads {array}, which nothing has written. "
        f"{fix.get(space, 'Give the local array a value first.')}"
    )
