"""Data structures that compiled checks and Python share: blocks, words, instructions and findings.

An access is packed into 64 bits: its segment (`ordering`) plus one, its site, its thread. For each of three
classes of accesses the history of a word contains the last one, the last one by another thread, and the last
one by another warp (shared memory) or block (global memory). So the first race on a word is found whenever
there is one between such accesses.
"""

from __future__ import annotations

from virtualgpu.engine.ir.compiled import get_struct_size, make_structure

# Classes of accesses. Atomics and other strong operations do not race with each other.
WEAK_WRITE = 0
STRONG_WRITE = 1
WEAK_READ = 2
STRONG_READ = 3
GLOBAL = 0
SHARED = 1
LOCAL = 2
GENERIC = 3
NO_SPACE = 4
# Planes of a word's history: three for each class.
PLANE_COUNT = 9
THREAD_BITS = 10
SITE_AND_THREAD_BITS = 32

# Kinds of findings.
RACE = 0
UNWRITTEN = 1
OUTSIDE_ARRAY = 2
PENDING_COPY = 3
IN_WARP = 0
IN_BLOCK = 1
ACROSS_BLOCKS = 2
ENTRY_CAPACITY = 4096

# Stages of asynchronous copies; 0 is any other access. From `COPY_BOUND` on, the copy is a write that the
# barrier orders, although its data arrive later.
COPY_ISSUED = 1
COPY_ARRIVED = 2
COPY_BOUND = 3
COPY_LANDED = 4

# Sites of callbacks to Python in addition to those of the engine (`layout`).
(
    GROW_TABLES,
    FLUSH_FINDINGS,
    OPEN_REGION,
    CHECK_HEAP_ACCESS,
    MIXED_BARRIER,
    ALLOCATE_MATRIX,
    DESCRIBE_SITE,
    APPLY_MESSAGES,
) = (-(1 << 30) - n for n in range(8))


class Context:
    """The part of the engine's context record that the checks read."""

    shared: int
    frames: int
    frame_stride: int
    block_linear: int
    warp: int
    watched: int


@make_structure
class Site:
    """A memory instruction as the checks store it. The field ``high_address`` is the highest address in the
    allocation that the instruction may access.
    """

    is_described: int
    number: int
    space: int
    word_count: int
    stores_scalar: int
    kind_global: int
    kind_shared: int
    reads: int
    writes: int
    synchronizes: int
    releases: int
    copy_stage: int
    is_bulk_copy: int  # part of a bulk copy, whose data arrive with a phase of its mbarrier
    awaits_mbarrier: int  # waits for a phase of an mbarrier
    low_address: int
    high_address: int
    region: int


@make_structure
class Region:
    """A live allocation. The field ``planes`` is the address of the table of earlier accesses, or 0 if there
    is no such table.
    """

    start: int
    end: int
    is_opened: int
    planes: int
    plane_bytes: int
    written_table: int
    is_unwritten: int  # not written so far, and no instruction is expected to write it


@make_structure
class Entry:
    """The number of occurrences of a finding, and the accesses of the first occurrence."""

    key: int
    count: int
    differs: int
    start: int
    word: int
    first: int
    second: int


@make_structure
class Checker:
    """The data that all checks of a launch share."""

    sites: int
    regions: int
    region_starts: int
    region_count: int
    blocks: int  # columns by segment
    epochs: int
    cuts: int
    ticks: int
    segment_count: int
    segment_capacity: int
    entries: int
    used_entries: int
    entry_limit: int
    word_shift: int  # a word is 1 << shift bytes
    threads: int
    warps: int
    checks_races: int
    has_partial_waits: (
        int  # threads can wait for a part of their block only, so that each warp's reads matter
    )
    checks_shuffles: int
    waits_for_block: int  # by the pc of a barrier, whether it waits for all; 0: not checked
    message_count: int
    heap_start: int
    heap_end: int
    shared_words: int
    local_words: int


@make_structure
class Block:
    """The state of the block that a worker runs, including the block's shared and local memory."""

    checker: int
    callback: int
    number: int
    segment: int
    epoch: int
    cut: int
    tick: int
    record_floor: int  # accesses packed below this are of an earlier epoch
    known_cuts: int  # matrix of cuts, by thread and other thread; 0: no matrix
    published_ticks: int  # last known tick of each block
    fenced_lanes: int  # by warp, lanes that have executed a fence
    wide_fences: int  # by warp, those of them whose fence is for other blocks, too
    has_unfenced_reads: (
        int  # its threads have read messages of other blocks, and no fence or barrier has followed
    )
    wait_pc: int
    wait_warp: int
    wait_mask: int
    has_mixed_barriers: int
    has_arrivals: int
    planes: int
    plane_bytes: int
    plain_readers: int  # if `has_partial_waits`, the last plain read by word and warp
    written_tags: int
    local_tags: int
    pending_copies: int
    latest_copies: int
    bulk_barriers: (
        int  # by word, the mbarrier of a bulk copy for which no thread has waited: its address plus 1
    )
    new_bulk_barrier: int  # that of the bulk copy that starts, plus 1
    has_bulk_copies: int  # there may be bulk copies for which no thread has waited
    has_copies: int
    lanes: int  # of the access being checked
    mask: int
    values: int


ENTRY_BYTES = get_struct_size(Entry)
SITE_BYTES = get_struct_size(Site)
REGION_BYTES = get_struct_size(Region)
