"""Sentences that explain a finding to the reader, and its remedy."""

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
_REASON = {
    WARP: "{}: lanes of a warp do not wait for each other by themselves.",
    BLOCK: "{}.",
    FLAGS: "{}; where not all threads pass, let the second wait for a flag that the first sets afterwards, "
    "behind a fence.",
}
STALE = "stale"
CHECK = "check"
WEAK = "weak"
MIXED = "mixed"
_INTENDED_REASON = {
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


def heap_message(
    freed: bool, site: Site, second: Place, address: int, start: int, size: int
) -> tuple[str, str]:
    """Return the nearest block in the heap to an invalid access, and a sentence about the access."""
    subject = f"thread {second.thread} of block {second.block} {'writes' if site.writes else 'reads'}"
    if not start:
        return "device heap", f"{subject} the device heap where malloc() gave no block: check the pointer."
    array = f"byte {address - start:,} of a block of {size:,} bytes on the device heap"
    if freed:
        return array, f"{subject} {array} that has been freed: use it before free(), or take another."
    return array, f"{subject} {site.size_bytes} bytes at {array}: check the index against what malloc() gave."


def _location(place: Place, relation: int) -> str:
    return f"thread {place.thread}" + (f" of block {place.block}" if relation == GRID else "")


@dataclass(frozen=True, slots=True)
class RemedyContext:
    """The properties of a race from which its remedy is written.

    ``relation`` is the relation of the threads that the remedy must order. ``in_loop`` is true if both
    accesses are in one loop; ``inside`` and ``outside`` are then lines of the loop's barriers, between the
    accesses and elsewhere, or 0. ``signals`` is true if the kernel waits for flags or counts with atomics,
    ``is_flag`` if the race is on such a flag, ``locks`` if the kernel has compare-and-swaps.
    """

    relation: int
    in_loop: bool = False
    inside: int = 0
    outside: int = 0
    signals: bool = False
    is_flag: bool = False
    locks: bool = False


def race_message(
    kind: str,
    first: Place,
    second: Place,
    array: str,
    context: RemedyContext,
    agree: bool,
    sort: str,
    pairs: int,
) -> str:
    """Return the sentences that explain a race.

    `agree` is true if both write the same value, `sort` is the reason why it may be intended, and `pairs` the
    number of such pairs of lines.
    """
    first_verb = "wrote" if kind != "WAR" else "read"
    second_verb = "reads" if kind == "RAW" else "writes"
    description = (
        f"thread {second.thread} of block {second.block} {second_verb} {array} that "
        f"{_location(first, context.relation)} "
        f"{first_verb}, and nothing says which comes first."
    )
    if sort and not (kind == "WAW" and agree):
        other_pairs = f" {pairs} pairs of lines meet on this array in this way." if pairs > 1 else ""
        return f"{description} {_INTENDED_REASON[sort]}{other_pairs}"
    if kind == "WAW" and agree:
        return f"{description} All of them write the same value, so the result does not depend on it."
    lock_advice = LOCK if context.locks and context.relation != WARP else ""
    return f"{description} {_remedy(kind, first.line, second.line, context)}{lock_advice}"


def _remedy(kind: str, first: int, second: int, context: RemedyContext) -> str:
    first_line, last_line = sorted((first, second))
    if context.is_flag:
        return "Write the flag with an atomic, such as atomicExch(), and put __threadfence() before it."
    if context.relation == GRID:
        if kind == "WAW":
            return "Blocks run in any order and at once: let one thread write it, or use an atomic."
        signal_advice = SIGNAL if context.signals and kind == "RAW" else ""
        remedy = "write to another array, use an atomic, or launch twice"
        return f"Blocks run in any order and at once: {remedy}.{signal_advice}"
    wait = _WAIT[context.relation]
    reason = _REASON[context.relation]
    single_line_remedy = f"Read into a variable, then {wait}, then write"
    if kind == "WAW":
        single_line_remedy = "Let one thread write it, or give each an element of its own"
    if context.in_loop and first == second and not context.inside and not context.outside:
        fallback = f"If the race remains, {single_line_remedy[0].lower()}{single_line_remedy[1:]}"
        return reason.format(f"Put {wait} between two turns of the loop. {fallback}")
    if context.in_loop and first != second and not context.outside and (context.inside or first > second):
        barrier_note = f"The barrier in line {context.inside} does not part two turns of the loop. "
        barrier_remedy = f"Put {wait} after line {last_line}, before line {first_line} runs again"
        return reason.format(f"{barrier_note if context.inside else ''}{barrier_remedy}")
    if first != second:
        return reason.format(f"Put {wait} between lines {first_line} and {last_line}")
    return f"{single_line_remedy}." if kind == "WAW" else reason.format(single_line_remedy)


def update_message(
    update: Update, first: Place, second: Place, array: str, relation: int, locks: bool, turns: bool = False
) -> str:
    """Return the sentences for a read-modify-write by several threads without an atomic.

    `turns` is true if it is in a loop without a barrier.
    """
    description = (
        f"thread {second.thread} of block {second.block} and {_location(first, relation)} both read {array}, "
        "change it and write it back: one of the two changes can get lost."
    )
    if update.atomic == "compare":
        remedy = (
            "Compare and write in one atomic: atomicCAS(), or atomicMax() and atomicMin() for the largest "
            "and the smallest integer."
        )
    elif update.atomic in ("", "none"):
        remedy = "Make it one atomic: a loop around atomicCAS() does where no other atomic fits."
    else:
        element = array.split(" (")[0]  # without where it stands in an array of several axes
        remedy = f"Use {update.atomic}({'' if ' of ' in element else f'&{element}, ...'})."
    if turns and relation != GRID:
        wait = f"put {_WAIT[relation]} between two turns of the loop"
        remedy += f" If each element is one thread's in a turn, {wait}."
    return f"{description} {remedy}{LOCK if locks else ''}"


def apart_message(mask: int, first: Place | None, second: Place, is_overlooked: bool) -> str:
    """Return the sentences for a barrier that only some threads reach.

    The threads of `first`, or others of the same warp, do not reach it.
    """
    subject = f"thread {second.thread} of block {second.block}"
    if first is None:
        return (
            f"{subject} comes to this barrier with {mask.bit_count()} of the threads of its warp; the others "
            "go another way. Every thread of the block must reach the same barrier: move it out of the "
            "branch or the loop that parts them."
            + (
                " CUDA C++ leaves undefined what happens; compute-sanitizer does not see it."
                if is_overlooked
                else ""
            )
        )
    other_barrier = f"line {first.line}" if first.line != second.line else "another place of the same line"
    return (
        f"{subject} waits at this barrier while thread {first.thread} waits at the one of {other_barrier}. "
        "A GPU lets "
        "both pass; CUDA C++ leaves undefined what happens. Every thread of the block must reach the same "
        "barrier: move it out of the branch."
    )


def absent_message(second: Place, lane: int) -> str:
    """Return the sentences for a shuffle that reads from an inactive lane."""
    return (
        f"thread {second.thread} of block {second.block} takes a value from lane {lane} of its warp, which "
        "takes no part in the shuffle: what it gets is undefined. Let every lane that is read from execute "
        "the shuffle too."
    )


def unmet_message(second: Place, lane: int) -> str:
    """Return the sentences for a vote, match or reduction whose mask contains an inactive lane."""
    return (
        f"thread {second.thread} of block {second.block} names lane {lane} of its warp in a mask, and that "
        "lane stays away or has ended: nothing promises what comes of it. Let every lane that a mask names "
        "execute the call, or name only those that do."
    )


def hasty_message(site: Site, first: Place, second: Place, array: str) -> str:
    """Return the sentences for an access to the target of an asynchronous copy that is pending."""
    verb = "copies to" if site.copies else "reads" if not site.writes else "writes"
    remedy = f"Wait for it between lines {first.line} and {second.line} (cp.async.wait_group, which is"
    if first.line == second.line:
        remedy = "Wait for it before (cp.async.wait_group, which is"
    barrier = "" if first.thread == second.thread else ", then __syncthreads()"
    return (
        f"thread {second.thread} of block {second.block} {verb} {array}, where what thread {first.thread} "
        f"copies there asynchronously (line {first.line}) has not arrived. {remedy} __pipeline_wait_prior, "
        f"consumer_wait or cuda::barrier's wait in CUDA C++){barrier}."
    )


def stray_message(memory: DeviceMemory, site: Site, second: Place, address: int, array: str) -> str:
    """Return the sentences for an access through the pointer of one array that reaches another array."""
    allocation = memory.nearest(site.low)
    label = allocation.label if allocation is not None else "array"
    distance = (
        f"{site.low - address:,} bytes before"
        if address < site.low
        else f"{address - site.high:,} bytes past"
    )
    verb = "writes" if site.writes else "reads"
    return (
        f"thread {second.thread} of block {second.block} {verb} {array} through a pointer to the {label}: "
        f"{distance} its {'start' if address < site.low else 'end'}. Check the index against its size; "
        "on a GPU this goes unnoticed."
    )


def unwritten_message(space: str, second: Place, array: str) -> str:
    """Return the sentences for a read of uninitialized memory."""
    remedies = {
        "global": "Fill it first, or make it with cp.zeros.",
        "shared": "Write it, and wait with __syncthreads(), before reading.",
    }
    return (
        f"thread {second.thread} of block {second.block} reads {array}, which nothing has written. "
        f"{remedies.get(space, 'Give the local array a value first.')}"
    )
