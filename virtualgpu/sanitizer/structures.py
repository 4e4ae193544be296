"""Memory that compiled checks and Python share: what is known of blocks, words, sites and findings.

An access is packed into 64 bits: its segment (`ordering`) plus one, its site, its thread. Of each of three
classes of accesses a word keeps the last one, the last one by another thread than that, and the last one by
another warp (shared memory) or block (global memory). So the first race on a word is found whenever there is
one between such neighbours.
"""

from __future__ import annotations

from virtualgpu.engine.ir.compiled import size_of, struct

# Classes of accesses. Atomics and other strong operations do not race with each other.
WEAK_WRITE = 0
STRONG_WRITE = 1
WEAK_READ = 2
STRONG_READ = 3
GLOBAL = 0
SHARED = 1
LOCAL = 2
GENERIC = 3
NOWHERE = 4
# A word's planes: three for each class that is kept.
PLANES = 9
THREAD_BITS = 10
WHO_BITS = 32

# What a table of findings counts.
RACE = 0
UNWRITTEN = 1
STRAY = 2
HASTY = 3
IN_WARP = 0
IN_BLOCK = 1
ACROSS_BLOCKS = 2
ENTRIES = 4096

# What becomes of asynchronous copies at an access; 0 is any other access. From `BOUND` on the copy is a
# write that the barrier orders, though it arrives later.
ISSUED = 1
ARRIVED = 2
BOUND = 3
LANDED = 4

# What Python is asked besides what the engine tells (`layout`).
GROW, DRAIN, REGION, HEAP, MIXED, KNOW, DESCRIBE, LEARN = (-(1 << 30) - n for n in range(8))


class Context:
    """Of the engine's context block, the fields that are read here."""

    shared: int
    frames: int
    frame_stride: int
    block_linear: int
    warp: int
    watched: int


@struct
class Site:
    """A memory instruction; ``high`` is where its last access in its allocation may begin."""

    known: int
    number: int
    space: int
    parts: int
    scalar: int
    kind_global: int
    kind_shared: int
    reads: int
    writes: int
    meets: int
    releases: int
    step: int
    low: int
    high: int
    region: int


@struct
class Region:
    """A live allocation, and where its words' history lies; ``planes`` are 0 where none is kept."""

    start: int
    end: int
    known: int
    planes: int
    step: int
    written: int
    quiet: int  # so far nobody writes to it, and no instruction is expected to


@struct
class Entry:
    """Occurrences of one finding, and the first of them."""

    key: int
    count: int
    differs: int
    start: int
    word: int
    first: int
    second: int


@struct
class Checker:
    """What the checks of a launch share."""

    sites: int
    regions: int
    starts: int
    region_count: int
    blocks: int  # columns by segment
    epochs: int
    cuts: int
    ticks: int
    count: int
    capacity: int
    entries: int
    used: int
    room: int
    shift: int  # a word is 1 << shift bytes
    threads: int
    warps: int
    races: int
    partial: int  # threads may wait for some of their block only, so that each warp's reads matter
    shuffles: int
    joins: int  # by the pc of a barrier, whether it waits for all; 0: nobody wants to know
    messages: int
    heap_start: int
    heap_end: int
    shared_words: int
    local_words: int


@struct
class Block:
    """What is known of the block that a worker runs, and of its shared and local memory."""

    checker: int
    ask: int
    number: int
    segment: int
    epoch: int
    cut: int
    tick: int
    floor: int  # accesses packed below this are of an earlier epoch
    known: int  # matrix of cuts, by thread and other thread; 0: nothing known
    published: int  # by block, up to which tick its accesses are known
    fenced: int  # by warp, lanes that have executed a fence
    wide: int  # by warp, those of them whose fence is for other blocks, too
    heard: int  # its threads read what other blocks have published, and no fence or barrier has come since
    wait_pc: int
    wait_warp: int
    wait_mask: int
    mixed: int
    arrived: int
    planes: int
    step: int
    readers: int  # where `partial`, by word and warp the last plain read
    written: int
    local: int
    under_way: int
    latest: int
    copied: int
    lanes: int  # of the access being checked
    mask: int
    values: int


ENTRY_BYTES = size_of(Entry)
SITE_BYTES = size_of(Site)
REGION_BYTES = size_of(Region)
