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
BLOCK_WITH_FLAGS = 3
_BARRIER_CALLS = {WARP: "__syncwarp()", BLOCK: "__syncthreads()", BLOCK_WITH_FLAGS: "__syncthreads()"}
_BARRIER_REMEDIES = {
    WARP: "{}: lanes of a warp do not wait for each other by themselves.",
    BLOCK: "{}.",
    BLOCK_WITH_FLAGS: "{}. If not all threads of the block reach it, let the second thread wait for a "
    "flag that the first thread sets after a __threadfence().",
}
STALE_READ = "stale"
REPEATED_CHECK = "check"
PLAIN_READ = "weak"
PLAIN_WRITE = "mixed"
_INTENDED_REASON = {
    STALE_READ: "The compare-and-swap fails if the value that was read is outdated, so this race does "
    "no harm.",
    REPEATED_CHECK: "The atomic compares the value again, so reading an outdated value does no harm.",
    PLAIN_READ: "The other access is atomic, so the plain read returns the old or the new value. That "
    "is correct "
    "if both values are acceptable, as in a search that tries again, but not if the latest value is needed.",
    PLAIN_WRITE: "Compare-and-swaps change the same array. A plain write to it is correct only if any of the "
    "values is acceptable, as when a path is shortened; otherwise, use a compare-and-swap here, too.",
}
SIGNAL_ADVICE = (
    " If a flag or a counter signals that the element was written, put __threadfence() before the flag "
    "changes and after it is read."
)
LOCK_ADVICE = (
    " If a lock protects the element, put __threadfence() after taking and before releasing the lock."
)
COPY_WAIT_ADVICE = (
    " The write is an asynchronous copy: its thread must first wait for it, then for the threads."
)
STAGE_IN_USE_ADVICE = (
    " The write is an asynchronous copy into a stage that is still read: start it after the barrier, or use "
    "one more stage."
)
_STAGE_NEEDED_ADVICE = (
    " If the access needs the earlier contents of this stage, start the copy after a barrier that follows "
    "the access, or use one more stage."
)
_BULK_COPY_WAIT = "on its mbarrier, with mbarrier.try_wait; in CUDA C++ with cuda::barrier's wait"
_COPY_WAIT = (
    "with cp.async.wait_group; in CUDA C++ __pipeline_wait_prior, consumer_wait or cuda::barrier's wait"
)


def make_heap_message(
    is_freed: bool, site: Site, access_place: Place, address: int, block_start: int, block_bytes: int
) -> tuple[str, str]:
    """Return the name of the heap block nearest to an invalid access, and a message about the access."""
    subject = (
        f"thread {access_place.thread} of block {access_place.block} {'writes' if site.writes else 'reads'}"
    )
    if not block_start:
        return (
            "device heap",
            f"{subject} the device heap outside of all malloc() blocks. Check the pointer.",
        )
    location = f"byte {address - block_start:,} of a block of {block_bytes:,} bytes on the device heap"
    if is_freed:
        return (
            location,
            f"{subject} {location} that has been freed. Access it before free(), or use another block.",
        )
    return location, f"{subject} {site.size_bytes} bytes at {location}. Check the index against that size."


def _describe_place(thread_place: Place, relation: int) -> str:
    return f"thread {thread_place.thread}" + (f" of block {thread_place.block}" if relation == GRID else "")


@dataclass(frozen=True, slots=True)
class RemedyContext:
    """The properties of a race that determine the suggested remedy.

    The field ``relation`` states whether the two threads are in the same warp, in the same block or in
    different blocks. ``is_in_loop`` is true if both accesses are in one loop; ``inside_barrier_line`` and
    ``outside_barrier_line`` are then lines of the loop's barriers, between the accesses and elsewhere, or 0.
    ``has_signals`` is true if the kernel waits for flags or counts with atomics, ``is_flag`` if the race is
    on such a flag, ``uses_locks`` if the kernel has compare-and-swaps.
    """

    relation: int
    is_in_loop: bool = False
    inside_barrier_line: int = 0
    outside_barrier_line: int = 0
    has_signals: bool = False
    is_flag: bool = False
    uses_locks: bool = False


def make_race_message(
    kind: str,
    first_place: Place,
    second_place: Place,
    element_name: str,
    context: RemedyContext,
    values_agree: bool,
    intended_reason: str,
    line_pair_count: int,
) -> str:
    """Return the message that explains a race.

    The argument `values_agree` is true if both accesses write the same value, `intended_reason` is the reason
    why the race may be intended, and `line_pair_count` is the number of pairs of source lines with such a
    race.
    """
    first_verb = "wrote" if kind != "WAR" else "read"
    second_verb = "reads" if kind == "RAW" else "writes"
    description = (
        f"thread {second_place.thread} of block {second_place.block} {second_verb} {element_name}, which "
        f"{_describe_place(first_place, context.relation)} "
        f"{first_verb}, without synchronisation between the two accesses."
    )
    if intended_reason and not (kind == "WAW" and values_agree):
        other_pairs = (
            f" {line_pair_count} pairs of lines have such a race on this array."
            if line_pair_count > 1
            else ""
        )
        return f"{description} {_INTENDED_REASON[intended_reason]}{other_pairs}"
    if kind == "WAW" and values_agree:
        return (
            f"{description} All threads write the same value, so the result does not depend on their order."
        )
    lock_advice = LOCK_ADVICE if context.uses_locks and context.relation != WARP else ""
    return (
        f"{description} {_make_race_remedy(kind, first_place.line, second_place.line, context)}{lock_advice}"
    )


def _make_race_remedy(hazard_kind: str, line: int, other_line: int, context: RemedyContext) -> str:
    first_line, last_line = sorted((line, other_line))
    if context.is_flag:
        return "Write the flag with an atomic, such as atomicExch(), and put __threadfence() before it."
    if context.relation == GRID:
        if hazard_kind == "WAW":
            return "Blocks run in any order and at the same time. Let one thread write it, or use an atomic."
        signal_advice = SIGNAL_ADVICE if context.has_signals and hazard_kind == "RAW" else ""
        remedy = "Write to another array, use an atomic, or launch two kernels"
        return f"Blocks run in any order and at the same time. {remedy}.{signal_advice}"
    barrier_call = _BARRIER_CALLS[context.relation]
    remedy_format = _BARRIER_REMEDIES[context.relation]
    single_line_remedy = f"Read into a variable, call {barrier_call}, then write"
    if hazard_kind == "WAW":
        single_line_remedy = "Let one thread write it, or give each thread its own element"
    if (
        context.is_in_loop
        and line == other_line
        and not context.inside_barrier_line
        and not context.outside_barrier_line
    ):
        fallback = f"If the race remains, {single_line_remedy[0].lower()}{single_line_remedy[1:]}"
        return remedy_format.format(f"Put {barrier_call} between two iterations of the loop. {fallback}")
    if (
        context.is_in_loop
        and line != other_line
        and not context.outside_barrier_line
        and (context.inside_barrier_line or line > other_line)
    ):
        barrier_note = (
            f"The barrier in line {context.inside_barrier_line} does not separate two "
            "iterations of the loop. "
        )
        barrier_remedy = f"Put {barrier_call} after line {last_line}, before line {first_line} runs again"
        return remedy_format.format(f"{barrier_note if context.inside_barrier_line else ''}{barrier_remedy}")
    if line != other_line:
        return remedy_format.format(f"Put {barrier_call} between lines {first_line} and {last_line}")
    return f"{single_line_remedy}." if hazard_kind == "WAW" else remedy_format.format(single_line_remedy)


def make_lost_update_message(
    update: Update,
    first_place: Place,
    second_place: Place,
    element_name: str,
    relation: int,
    uses_locks: bool,
    is_in_loop: bool = False,
) -> str:
    """Return the message about several threads that read, change and write a value without an atomic.

    The argument `is_in_loop` is true if the update is in a loop without a barrier.
    """
    description = (
        f"thread {second_place.thread} of block {second_place.block} and "
        f"{_describe_place(first_place, relation)} both "
        f"read {element_name}, change it and write it back: one of the two changes can get lost."
    )
    if update.atomic_name == "compare":
        remedy = (
            "Compare and write with one atomic: atomicMax() or atomicMin() for the largest or the smallest "
            "integer, otherwise atomicCAS()."
        )
    elif update.atomic_name in ("", "none"):
        remedy = "Use one atomic for the whole update: if no other atomic fits, a loop around atomicCAS()."
    else:
        short_name = element_name.split(" (")[0]  # without its position in an array of several axes
        remedy = f"Use {update.atomic_name}({'' if ' of ' in short_name else f'&{short_name}, ...'})."
    if is_in_loop and relation != GRID:
        barrier_advice = f"put {_BARRIER_CALLS[relation]} between two iterations of the loop"
        remedy += f" If only one thread uses each element in an iteration, {barrier_advice}."
    return f"{description} {remedy}{LOCK_ADVICE if uses_locks else ''}"


def make_barrier_message(
    arrived_mask: int, first_place: Place | None, second_place: Place, is_overlooked: bool
) -> str:
    """Return the message about a barrier that only some threads reach.

    The threads of `first_place`, or other threads of the same warp, do not reach the barrier.
    """
    subject = f"thread {second_place.thread} of block {second_place.block}"
    if first_place is None:
        return (
            f"{subject} reaches this barrier with {arrived_mask.bit_count()} of the threads of its "
            "warp; the others "
            "take another path. Every thread of the block must reach the same barrier: move it out of the "
            "branch or the loop that separates the threads."
            + (
                " The behaviour is undefined in CUDA C++, and compute-sanitizer does not report it."
                if is_overlooked
                else ""
            )
        )
    other_barrier = f"the barrier in line {first_place.line}"
    if first_place.line == second_place.line:
        other_barrier = "another barrier in the same line"
    return (
        f"{subject} waits at this barrier while thread {first_place.thread} waits at {other_barrier}. A "
        "GPU lets "
        "both continue, but the behaviour is undefined in CUDA C++. Every thread of the block must reach the "
        "same barrier: move it out of the branch."
    )


def make_absent_lane_message(access_place: Place, lane: int) -> str:
    """Return the message about a shuffle that reads from an inactive lane."""
    return (
        f"thread {access_place.thread} of block {access_place.block} reads a value from lane {lane} of "
        "its warp, which "
        "does not execute the shuffle: the value is undefined. Let every lane from which others read execute "
        "the shuffle, too."
    )


def make_absent_mask_lane_message(access_place: Place, lane: int) -> str:
    """Return the message about a vote, match or reduction whose mask contains an inactive lane."""
    return (
        f"thread {access_place.thread} of block {access_place.block} names lane {lane} of its warp in a "
        "mask, but that "
        "lane does not execute the call or has ended: the result is undefined. Let every lane in the mask "
        "execute the call, or remove the other lanes from the mask."
    )


def make_pending_copy_message(
    copy_site: Site,
    access_site: Site,
    copy_place: Place,
    access_place: Place,
    element_name: str,
    is_unordered: bool,
) -> str:
    """Return the message about an access to the target of an asynchronous copy before the copy is complete.

    If `is_unordered` is true, no barrier separates the start of the copy and the access.
    """
    verb = "copies to" if access_site.is_async_copy else "reads" if not access_site.writes else "writes"
    remedy = f"Wait for the copy between lines {copy_place.line} and {access_place.line}"
    if copy_place.line == access_place.line:
        remedy = "Wait for the copy before this access"
    barrier_advice = "" if copy_place.thread == access_place.thread else ", then call __syncthreads()"
    return (
        f"thread {access_place.thread} of block {access_place.block} {verb} {element_name} while an "
        "asynchronous copy to it "
        f"by thread {copy_place.thread} (line {copy_place.line}) is pending. {remedy} "
        f"({_BULK_COPY_WAIT if copy_site.is_bulk_copy else _COPY_WAIT}){barrier_advice}."
        f"{_STAGE_NEEDED_ADVICE if is_unordered else ''}"
    )


def make_outside_array_message(
    memory: DeviceMemory, site: Site, access_place: Place, address: int, element_name: str
) -> str:
    """Return the message about an access that reaches one array through the pointer to another array."""
    allocation = memory.find_nearest_allocation(site.low_address)
    label = allocation.label if allocation is not None else "array"
    distance_text = (
        f"{site.low_address - address:,} bytes before"
        if address < site.low_address
        else f"{address - site.high_address:,} bytes past"
    )
    verb = "writes" if site.writes else "reads"
    return (
        f"thread {access_place.thread} of block {access_place.block} {verb} {element_name} through a "
        f"pointer to the {label}: "
        f"{distance_text} its {'start' if address < site.low_address else 'end'}. Check the index "
        "against its size; a GPU does not report this access."
    )


def make_unwritten_message(space: str, access_place: Place, element_name: str) -> str:
    """Return the message about a read of uninitialized memory."""
    remedies = {
        "global": "Write it first, or create the array with cp.zeros.",
        "shared": "Write it and call __syncthreads() before reading it.",
    }
    return (
        f"thread {access_place.thread} of block {access_place.block} reads {element_name}, which is "
        f"uninitialized. {remedies.get(space, 'Assign a value to the local array first.')}"
    )
