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
_BARRIER_CALLS = {WARP: "__syncwarp()", BLOCK: "__syncthreads()", FLAGS: "__syncthreads()"}
_REASONS = {
    WARP: "{}: lanes of a warp do not wait for each other by themselves.",
    BLOCK: "{}.",
    FLAGS: "{}. If not all threads of the block reach it, let the second thread wait for a flag that the "
    "first thread sets after a __threadfence().",
}
STALE = "stale"
CHECK = "check"
WEAK = "weak"
MIXED = "mixed"
_INTENDED_REASON = {
    STALE: "The compare-and-swap fails if the value that was read is outdated, so this race does no harm.",
    CHECK: "The atomic compares the value again, so reading an outdated value does no harm.",
    WEAK: "The other access is atomic, so the plain read returns the old or the new value. That is correct "
    "if both values are acceptable, as in a search that tries again, but not if the latest value is needed.",
    MIXED: "Compare-and-swaps change the same array. A plain write to it is correct only if any of the "
    "values is acceptable, as when a path is shortened; otherwise, use a compare-and-swap here, too.",
}
SIGNAL = (
    " If a flag or a counter signals that the element was written, put __threadfence() before the flag "
    "changes and after it is read."
)
LOCK = " If a lock protects the element, put __threadfence() after taking and before releasing the lock."
AFTER_COPY = " The write is an asynchronous copy: its thread must first wait for it, then for the threads."
IN_USE = (
    " The write is an asynchronous copy into a stage that is still read: start it after the barrier, or use "
    "one more stage."
)
_STILL_IN_USE = (
    " If the access needs the earlier contents of this stage, start the copy after a barrier that follows "
    "the access, or use one more stage."
)
_BULK_WAIT = "on its mbarrier, with mbarrier.try_wait; in CUDA C++ with cuda::barrier's wait"
_COPY_WAIT = (
    "with cp.async.wait_group; in CUDA C++ __pipeline_wait_prior, consumer_wait or cuda::barrier's wait"
)


def heap_message(
    freed: bool, site: Site, second: Place, address: int, start: int, size: int
) -> tuple[str, str]:
    """Return the name of the heap block nearest to an invalid access, and a message about the access."""
    subject = f"thread {second.thread} of block {second.block} {'writes' if site.writes else 'reads'}"
    if not start:
        return (
            "device heap",
            f"{subject} the device heap outside of all malloc() blocks. Check the pointer.",
        )
    array = f"byte {address - start:,} of a block of {size:,} bytes on the device heap"
    if freed:
        return (
            array,
            f"{subject} {array} that has been freed. Access it before free(), or use another block.",
        )
    return array, f"{subject} {site.size_bytes} bytes at {array}. Check the index against that size."


def _describe_place(thread_place: Place, relation: int) -> str:
    return f"thread {thread_place.thread}" + (f" of block {thread_place.block}" if relation == GRID else "")


@dataclass(frozen=True, slots=True)
class RemedyContext:
    """The properties of a race that determine the suggested remedy.

    The field ``relation`` states whether the two threads are in the same warp, in the same block or in
    different blocks. ``in_loop`` is true if both accesses are in one loop; ``inside`` and ``outside`` are
    then lines of the loop's barriers, between the accesses and elsewhere, or 0. ``signals`` is true if the
    kernel waits for flags or counts with atomics, ``is_flag`` if the race is on such a flag, ``locks`` if the
    kernel has compare-and-swaps.
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
    """Return the message that explains a race.

    The argument `agree` is true if both accesses write the same value, `sort` is the reason why the race may
    be intended, and `pairs` is the number of pairs of source lines with such a race.
    """
    first_verb = "wrote" if kind != "WAR" else "read"
    second_verb = "reads" if kind == "RAW" else "writes"
    description = (
        f"thread {second.thread} of block {second.block} {second_verb} {array}, which "
        f"{_describe_place(first, context.relation)} "
        f"{first_verb}, without synchronisation between the two accesses."
    )
    if sort and not (kind == "WAW" and agree):
        other_pairs = f" {pairs} pairs of lines have such a race on this array." if pairs > 1 else ""
        return f"{description} {_INTENDED_REASON[sort]}{other_pairs}"
    if kind == "WAW" and agree:
        return (
            f"{description} All threads write the same value, so the result does not depend on their order."
        )
    lock_advice = LOCK if context.locks and context.relation != WARP else ""
    return f"{description} {_race_remedy(kind, first.line, second.line, context)}{lock_advice}"


def _race_remedy(hazard_kind: str, line: int, other_line: int, context: RemedyContext) -> str:
    first_line, last_line = sorted((line, other_line))
    if context.is_flag:
        return "Write the flag with an atomic, such as atomicExch(), and put __threadfence() before it."
    if context.relation == GRID:
        if hazard_kind == "WAW":
            return "Blocks run in any order and at the same time. Let one thread write it, or use an atomic."
        signal_advice = SIGNAL if context.signals and hazard_kind == "RAW" else ""
        remedy = "Write to another array, use an atomic, or launch two kernels"
        return f"Blocks run in any order and at the same time. {remedy}.{signal_advice}"
    wait = _BARRIER_CALLS[context.relation]
    reason = _REASONS[context.relation]
    single_line_remedy = f"Read into a variable, call {wait}, then write"
    if hazard_kind == "WAW":
        single_line_remedy = "Let one thread write it, or give each thread its own element"
    if context.in_loop and line == other_line and not context.inside and not context.outside:
        fallback = f"If the race remains, {single_line_remedy[0].lower()}{single_line_remedy[1:]}"
        return reason.format(f"Put {wait} between two iterations of the loop. {fallback}")
    if (
        context.in_loop
        and line != other_line
        and not context.outside
        and (context.inside or line > other_line)
    ):
        barrier_note = f"The barrier in line {context.inside} does not separate two iterations of the loop. "
        barrier_remedy = f"Put {wait} after line {last_line}, before line {first_line} runs again"
        return reason.format(f"{barrier_note if context.inside else ''}{barrier_remedy}")
    if line != other_line:
        return reason.format(f"Put {wait} between lines {first_line} and {last_line}")
    return f"{single_line_remedy}." if hazard_kind == "WAW" else reason.format(single_line_remedy)


def update_message(
    update: Update, first: Place, second: Place, array: str, relation: int, locks: bool, turns: bool = False
) -> str:
    """Return the message about several threads that read, change and write a value without an atomic.

    The argument `turns` is true if the update is in a loop without a barrier.
    """
    description = (
        f"thread {second.thread} of block {second.block} and {_describe_place(first, relation)} both "
        f"read {array}, change it and write it back: one of the two changes can get lost."
    )
    if update.atomic == "compare":
        remedy = (
            "Compare and write with one atomic: atomicMax() or atomicMin() for the largest or the smallest "
            "integer, otherwise atomicCAS()."
        )
    elif update.atomic in ("", "none"):
        remedy = "Use one atomic for the whole update: if no other atomic fits, a loop around atomicCAS()."
    else:
        element = array.split(" (")[0]  # without its position in an array of several axes
        remedy = f"Use {update.atomic}({'' if ' of ' in element else f'&{element}, ...'})."
    if turns and relation != GRID:
        wait = f"put {_BARRIER_CALLS[relation]} between two iterations of the loop"
        remedy += f" If only one thread uses each element in an iteration, {wait}."
    return f"{description} {remedy}{LOCK if locks else ''}"


def apart_message(mask: int, first: Place | None, second: Place, is_overlooked: bool) -> str:
    """Return the message about a barrier that only some threads reach.

    The threads of `first`, or other threads of the same warp, do not reach the barrier.
    """
    subject = f"thread {second.thread} of block {second.block}"
    if first is None:
        return (
            f"{subject} reaches this barrier with {mask.bit_count()} of the threads of its warp; the others "
            "take another path. Every thread of the block must reach the same barrier: move it out of the "
            "branch or the loop that separates the threads."
            + (
                " The behaviour is undefined in CUDA C++, and compute-sanitizer does not report it."
                if is_overlooked
                else ""
            )
        )
    other_barrier = f"the barrier in line {first.line}"
    if first.line == second.line:
        other_barrier = "another barrier in the same line"
    return (
        f"{subject} waits at this barrier while thread {first.thread} waits at {other_barrier}. A GPU lets "
        "both continue, but the behaviour is undefined in CUDA C++. Every thread of the block must reach the "
        "same barrier: move it out of the branch."
    )


def absent_message(second: Place, lane: int) -> str:
    """Return the message about a shuffle that reads from an inactive lane."""
    return (
        f"thread {second.thread} of block {second.block} reads a value from lane {lane} of its warp, which "
        "does not execute the shuffle: the value is undefined. Let every lane from which others read execute "
        "the shuffle, too."
    )


def unmet_message(second: Place, lane: int) -> str:
    """Return the message about a vote, match or reduction whose mask contains an inactive lane."""
    return (
        f"thread {second.thread} of block {second.block} names lane {lane} of its warp in a mask, but that "
        "lane does not execute the call or has ended: the result is undefined. Let every lane in the mask "
        "execute the call, or remove the other lanes from the mask."
    )


def hasty_message(copy: Site, site: Site, first: Place, second: Place, array: str, is_unordered: bool) -> str:
    """Return the message about an access to the target of an asynchronous copy before the copy is complete.

    If `is_unordered` is true, no barrier separates the start of the copy and the access.
    """
    verb = "copies to" if site.copies else "reads" if not site.writes else "writes"
    remedy = f"Wait for the copy between lines {first.line} and {second.line}"
    if first.line == second.line:
        remedy = "Wait for the copy before this access"
    barrier = "" if first.thread == second.thread else ", then call __syncthreads()"
    return (
        f"thread {second.thread} of block {second.block} {verb} {array} while an asynchronous copy to it "
        f"by thread {first.thread} (line {first.line}) is pending. {remedy} "
        f"({_BULK_WAIT if copy.bulk else _COPY_WAIT}){barrier}.{_STILL_IN_USE if is_unordered else ''}"
    )


def stray_message(memory: DeviceMemory, site: Site, second: Place, address: int, array: str) -> str:
    """Return the message about an access that reaches one array through the pointer to another array."""
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
        "a GPU does not report this access."
    )


def unwritten_message(space: str, second: Place, array: str) -> str:
    """Return the message about a read of uninitialized memory."""
    remedies = {
        "global": "Write it first, or create the array with cp.zeros.",
        "shared": "Write it and call __syncthreads() before reading it.",
    }
    return (
        f"thread {second.thread} of block {second.block} reads {array}, which is uninitialized. "
        f"{remedies.get(space, 'Assign a value to the local array first.')}"
    )
