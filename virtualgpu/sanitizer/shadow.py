"""What is kept of the accesses to every word of memory, and the check of each new one against it.

Everything from `touch_word` to `observe` is compiled (`compiled`) and runs inside the launch, once an
access; Python is asked where the order between threads changes in other ways than by a full barrier.

An access is packed into 64 bits: its segment (`ordering`) plus one, its site, its thread. Of each of three
classes of accesses a word keeps the last one, the last one by another thread than that, and the last one by
another warp (shared memory) or block (global memory). So the first race on a word is found whenever there is
one between such neighbours.
"""

from __future__ import annotations

import functools

from virtualgpu.engine.ir import layout
from virtualgpu.engine.run import jit
from virtualgpu.sanitizer.compiled import (
    at,
    call,
    load8,
    load32,
    load64,
    lowest,
    size_of,
    store8,
    store32,
    store64,
    struct,
    translate,
)

# Classes of accesses. Atomics and other strong operations do not race with each other.
WEAK_WRITE, STRONG_WRITE, WEAK_READ, STRONG_READ = 0, 1, 2, 3
GLOBAL, SHARED, LOCAL, GENERIC, NOWHERE = 0, 1, 2, 3, 4
# A word's planes: three for each class that is kept.
PLANES = 9
THREAD_BITS, WHO_BITS = 10, 32
_THREAD, _WHO, _TICK = (1 << THREAD_BITS) - 1, (1 << WHO_BITS) - 1, (1 << 32) - 1
_TAG, _OFFSET = 56, (1 << 56) - 1

# What a table of findings counts.
RACE, UNWRITTEN, STRAY, HASTY = 0, 1, 2, 3
IN_WARP, IN_BLOCK, ACROSS_BLOCKS = 0, 1, 2
ENTRIES = 4096

# What becomes of asynchronous copies at an access; 0 is any other access. From `BOUND` on the copy is a
# write that the barrier orders, though it arrives later.
ISSUED, ARRIVED, BOUND, LANDED = 1, 2, 3, 4

# What Python is asked besides what the engine tells (`layout`).
GROW, DRAIN, REGION, HEAP, MIXED, KNOW, DESCRIBE = (-(1 << 30) - n for n in range(7))


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
    fenced: int
    wait_pc: int
    wait_warp: int
    wait_mask: int
    mixed: int
    arrived: int
    planes: int
    step: int
    written: int
    local: int
    under_way: int
    latest: int
    copied: int
    lanes: int  # of the access being checked
    mask: int
    values: int


ENTRY_BYTES, SITE_BYTES, REGION_BYTES = size_of(Entry), size_of(Site), size_of(Region)


def renew(c: Context, b: Block, g: Checker) -> None:
    """Begin a segment."""
    if g.count == g.capacity:
        call(b.ask, c, GROW, 0, 0, 0)
    n = g.count
    store64(g.blocks + 8 * n, b.number)
    store64(g.epochs + 8 * n, b.epoch)
    store64(g.cuts + 8 * n, b.cut)
    store64(g.ticks + 8 * n, b.tick)
    b.segment = n
    g.count = n + 1


def full_barrier(c: Context, b: Block, g: Checker) -> None:
    """Every thread of the block waited for every other."""
    b.epoch += 1
    b.known = 0
    renew(c, b, g)
    b.floor = (b.segment + 1) << WHO_BITS


def begin(c: Context, b: Block, g: Checker) -> None:
    """The worker takes up another block. Its numbers go on, so that what it left needs no clearing."""
    b.number = c.block_linear
    b.tick = 0
    b.cut += 1
    b.published = 0
    b.wait_pc = -1
    b.mixed = 0
    b.arrived = 0
    n = 0
    while n < g.warps:
        store32(b.fenced + 4 * n, 0)
        n += 1
    if b.copied:
        n = 0
        while n < g.shared_words:
            store32(b.under_way + 4 * n, 0)
            n += 1
        b.copied = 0
    full_barrier(c, b, g)


def unordered(b: Block, g: Checker, record: int, thread: int) -> int:
    """Whether nothing orders an earlier access before one that a thread of the block makes now."""
    segment = (record >> WHO_BITS) - 1
    other = record & _THREAD
    block = load64(g.blocks + 8 * segment)
    if block == b.number:
        if other == thread or load64(g.epochs + 8 * segment) != b.epoch:
            return 0
        if b.known == 0:
            return 1
        return load32(b.known + 4 * (thread * g.threads + other)) < load64(g.cuts + 8 * segment)
    if b.published == 0:
        return 1
    told = load64(b.published + 8 * block)
    return told >> 32 != b.number + 1 or (told & _TICK) <= load64(g.ticks + 8 * segment)


def rival(b: Block, g: Checker, plane: int, step: int, floor: int, thread: int) -> int:
    """The latest access of a class that nothing orders before this thread's next one, or 0."""
    last = load64(plane)
    if last < floor:
        return 0
    if unordered(b, g, last, thread):
        return last
    near = load64(plane + step)
    if near < floor:
        return 0
    if unordered(b, g, near, thread):
        return near
    far = load64(plane + 2 * step)
    if far >= floor and far != near and unordered(b, g, far, thread):
        return far
    return 0


def remember(b: Block, g: Checker, plane: int, step: int, floor: int, now: int, shared: int) -> None:
    """Keep an access as the last of its class."""
    last = load64(plane)
    if last >= floor:
        apart = (last ^ now) & _THREAD
        across = apart >> 5
        if shared == 0:
            across = 0
            if last >> WHO_BITS != now >> WHO_BITS:
                across = load64(g.blocks + 8 * ((last >> WHO_BITS) - 1)) != b.number
            apart = apart | across
        if apart:
            store64(plane + step, last)
            if across:
                store64(plane + 2 * step, last)
    store64(plane, now)


def note(
    c: Context, b: Block, g: Checker, flags: int, start: int, word: int, first: int, second: int, differs: int
) -> None:
    """Count a finding, kept by its kind and its pair of sites."""
    key = (first >> THREAD_BITS & 0x3FFFFF) << 32 | (second >> THREAD_BITS & 0x3FFFFF) << 10 | flags | 512
    place = key * 0x9E3779B97F4A7C15 >> 40 & (ENTRIES - 1)
    e = at(Entry, g.entries + ENTRY_BYTES * place)
    while e.key != 0 and e.key != key:
        place = (place + 1) & (ENTRIES - 1)
        e = at(Entry, g.entries + ENTRY_BYTES * place)
    if e.key == 0:
        e.key = key
        e.count = 0
        e.differs = 0
        e.second = 0
        g.used += 1
    if e.second == 0 or second < e.second:
        e.start = start
        e.word = word
        e.first = first
        e.second = second
    e.count += 1
    e.differs = e.differs | differs
    if g.used > g.room:
        call(b.ask, c, DRAIN, 0, 0, 0)


def stored(b: Block, g: Checker, lane: int, part: int) -> int:
    """What a lane stores to one word of its access."""
    bits = 8 << g.shift
    return load64(b.values + 8 * lane) >> bits * part & ((1 << bits) - 1)


def held(g: Checker, place: int) -> int:
    """What a word of memory holds."""
    if g.shift == 2:
        return load32(place)
    if g.shift == 1:
        return load8(place) | load8(place + 1) << 8
    return load8(place)


def differing(b: Block, g: Checker, s: Site, first: int, now: int, host: int, part: int) -> int:
    """Whether two plain stores to a word write different values, as far as is known."""
    if s.scalar == 0 or b.values == 0:
        return 1
    lane = now & 31
    other = first & 31
    mine = stored(b, g, lane, part)
    # What the earlier one stored lies in memory, unless a lane of this very instruction is it.
    together = (first ^ now) >> 5 == 0 and other < lane and b.mask >> other & 1
    if together and load64(b.lanes + 8 * other) == load64(b.lanes + 8 * lane):
        return stored(b, g, other, part) != mine
    return held(g, host) != mine


def clash(
    c: Context, b: Block, g: Checker, s: Site, kind: int, old: int, first: int, now: int, shared: int,
    start: int, word: int, host: int, part: int,
) -> None:  # fmt: skip
    """A race between an earlier access and this one."""
    relation = ACROSS_BLOCKS
    if load64(g.blocks + 8 * ((first >> WHO_BITS) - 1)) == b.number:
        relation = IN_BLOCK
        if (first ^ now) & _THREAD < 32:
            relation = IN_WARP
    differs = 1
    if kind == WEAK_WRITE and old == WEAK_WRITE:
        differs = differing(b, g, s, first, now, host, part)
    flags = RACE | (old != WEAK_READ) << 2 | (kind <= STRONG_WRITE) << 3 | relation << 4 | shared << 6
    note(c, b, g, flags, start, word, first, now, differs)


def touch_word(
    c: Context, b: Block, g: Checker, s: Site, kind: int, planes: int, step: int, floor: int, now: int,
    shared: int, start: int, word: int, host: int, part: int,
) -> None:  # fmt: skip
    """Check an access to a word against what is kept of it, then keep it, too."""
    thread = now & _THREAD
    first = rival(b, g, planes, step, floor, thread)
    if first:
        clash(c, b, g, s, kind, WEAK_WRITE, first, now, shared, start, word, host, part)
    if kind in (WEAK_READ, WEAK_WRITE):
        first = rival(b, g, planes + 3 * step, step, floor, thread)
        if first:
            clash(c, b, g, s, kind, STRONG_WRITE, first, now, shared, start, word, host, part)
    if kind <= STRONG_WRITE:
        first = rival(b, g, planes + 6 * step, step, floor, thread)
        if first:
            clash(c, b, g, s, kind, WEAK_READ, first, now, shared, start, word, host, part)
    if kind != STRONG_READ:
        remember(b, g, planes + 3 * kind * step, step, floor, now, shared)


def under_way(c: Context, b: Block, g: Checker, step: int, now: int, word: int) -> int:
    """Whether an access met a copy on its way to a word; and what becomes of the copies there."""
    place = b.under_way + 4 * word
    count = load32(place)
    met = 0
    if count > 0 and step <= ISSUED:
        met = 1
        note(c, b, g, HASTY | 1 << 6, 0, word, load64(b.latest + 8 * word), now, 1)
    if step == ISSUED:
        store32(place, count + 1)
        store64(b.latest + 8 * word, now)
    elif step in (ARRIVED, LANDED):
        store32(place, count - 1)
    return met or step == LANDED


def touch_shared(c: Context, b: Block, g: Checker, s: Site, address: int, now: int, step: int) -> None:
    """One lane's access to shared memory."""
    word = address >> g.shift
    host = c.shared + address
    part = 0
    while part < s.parts:
        if word >= g.shared_words:
            return
        if b.written:
            tag = b.written + 4 * word
            if s.reads and load32(tag) != b.number + 1:
                note(c, b, g, UNWRITTEN | 1 << 6, 0, word, 0, now, 1)
            if s.writes:
                store32(tag, b.number + 1)
        if g.races:
            hasty = 0
            if step or b.copied:
                b.copied = 1
                hasty = under_way(c, b, g, step, now, word)
            if hasty == 0:
                planes = b.planes + 8 * word
                touch_word(
                    c, b, g, s, s.kind_shared, planes, b.step, b.floor, now, 1, 0, word, host, part
                )  # fmt: skip
        word += 1
        part += 1
        host += 1 << g.shift


def find_region(c: Context, g: Checker, b: Block, address: int) -> int:
    """The allocation that an address lies in, or 0."""
    low = 0
    high = g.region_count
    while low < high:
        middle = (low + high) >> 1
        if load64(g.starts + 8 * middle) <= address:
            low = middle + 1
        else:
            high = middle
    if low == 0:
        return 0
    found = g.regions + (low - 1) * REGION_BYTES
    r = at(Region, found)
    if address >= r.end:
        return 0
    if r.known == 0:
        call(b.ask, c, REGION, 0, low - 1, 0)
    return found


def touch_global(c: Context, b: Block, g: Checker, s: Site, address: int, now: int) -> None:
    """One lane's access to global memory."""
    if address < s.low or address > s.high:
        note(c, b, g, STRAY, address, 0, 0, now, 1)
    found = s.region
    if found != 0:
        r = at(Region, found)
        if address < r.start or address >= r.end:
            found = 0
    if found == 0:
        found = find_region(c, g, b, address)
        if found == 0:
            return
        s.region = found
    r = at(Region, found)
    if r.quiet:
        if s.writes == 0 and r.written == 0:
            return
        if s.writes:
            r.quiet = 0
    word = (address - r.start) >> g.shift
    part = 0
    while part < s.parts:
        host = r.start + (word << g.shift)
        if r.written:
            if s.reads and load8(r.written + word) == 0:
                note(c, b, g, UNWRITTEN, r.start, word, 0, now, 1)
            if s.writes:
                store8(r.written + word, 1)
        if r.planes != 0 and r.quiet == 0:
            planes = r.planes + 8 * word
            touch_word(c, b, g, s, s.kind_global, planes, r.step, 1, now, 0, r.start, word, host, part)
        word += 1
        part += 1


def touch_local(c: Context, b: Block, g: Checker, s: Site, address: int, now: int) -> None:
    """One lane's access to its own stack. A read is at fault if nothing of what it reads is written:
    copying a structure copies the gaps between its members too, which nobody writes."""
    if b.local == 0:
        return
    word = (now & _THREAD) * g.local_words + (address >> g.shift)
    tags = b.local + 4 * word
    written = 0
    part = 0
    while part < s.parts:
        if load32(tags + 4 * part) == b.number + 1:
            written = 1
        if s.writes:
            store32(tags + 4 * part, b.number + 1)
        part += 1
    if s.reads and written == 0:
        part = 0
        while part < s.parts:
            note(c, b, g, UNWRITTEN | 1 << 7, 0, word + part, 0, now, 1)
            part += 1


def access(c: Context, b: Block, g: Checker, s: Site, lanes: int, mask: int, values: int, step: int) -> None:
    """An access of the lanes of a warp."""
    b.lanes = lanes
    b.mask = mask
    b.values = values
    first = (b.segment + 1) << WHO_BITS | s.number << THREAD_BITS | c.warp << 5
    space = s.space
    outside = 0
    rest = mask
    while rest:
        lane = lowest(rest)
        rest = rest & (rest - 1)
        address = load64(lanes + 8 * lane)
        now = first | lane
        here = space
        if space == GENERIC:
            here = address >> _TAG
            if here > LOCAL:
                here = GLOBAL
            if here:
                address = address & _OFFSET
        if here == SHARED:
            touch_shared(c, b, g, s, address, now, step)
        elif here == GLOBAL:
            if address >= g.heap_start and address < g.heap_end:
                outside = outside | 1 << lane
            touch_global(c, b, g, s, address, now)
        else:
            touch_local(c, b, g, s, address, now)
    if outside:
        call(b.ask, c, HEAP, lanes, outside, s.number)


def partial_barrier(c: Context, b: Block, g: Checker, first: int, group: int) -> None:
    """Lanes of a warp waited for each other: each knows what all of them knew."""
    size = 4 * g.threads
    row = b.known + first * size
    best = b.known + g.threads * size  # one more row, to work in
    place = 0
    while place < size:
        store32(best + place, 0)
        place += 4
    rest = group
    while rest:
        mine = row + lowest(rest) * size
        rest = rest & (rest - 1)
        place = 0
        while place < size:
            if load32(mine + place) > load32(best + place):
                store32(best + place, load32(mine + place))
            place += 4
    rest = group
    while rest:
        store32(best + 4 * (first + lowest(rest)), b.cut)
        rest = rest & (rest - 1)
    rest = group
    while rest:
        mine = row + lowest(rest) * size
        rest = rest & (rest - 1)
        place = 0
        while place < size:
            store32(mine + place, load32(best + place))
            place += 4
    b.cut += 1
    renew(c, b, g)


def warp_sync(c: Context, b: Block, g: Checker, members: int, mask: int) -> None:
    """Lanes met at ``__syncwarp``, each with the lanes that its own mask names."""
    if b.known == 0:
        call(b.ask, c, KNOW, 0, 0, 0)
    rest = mask
    while rest:
        lane = lowest(rest)
        group = load64(members + 8 * lane) & mask | 1 << lane
        partial_barrier(c, b, g, c.warp << 5, group)
        rest = rest & ~group


def wait(c: Context, b: Block, g: Checker, lanes: int, mask: int) -> None:
    """Lanes came to a barrier of the whole block. All of their warp should, and all at one place."""
    pc = load64(lanes)
    if mask == 0 or g.joins == 0 or load8(g.joins + pc) == 0:
        return
    alive = 0
    frame = c.frames + c.warp * c.frame_stride
    lane = 0
    while lane < layout.LANES:
        if load32(frame + 4 * lane) != layout.EXITED:
            alive = alive | 1 << lane
        lane += 1
    if mask != alive:
        call(b.ask, c, layout.AT_BLOCK_BARRIER, lanes, mask, 0)
    if b.wait_pc < 0:
        b.wait_pc = pc
        b.wait_warp = c.warp
        b.wait_mask = mask
    elif b.wait_pc != pc:
        b.mixed = 1
        call(b.ask, c, MIXED, lanes, mask, 0)


def opens(c: Context, b: Block, g: Checker) -> None:
    """All threads of the block pass its barrier 0."""
    if b.mixed or b.arrived:
        call(b.ask, c, layout.BLOCK_OPENS, 0, 0, 0)
    else:
        b.wait_pc = -1
        full_barrier(c, b, g)


def shuffle(c: Context, b: Block, g: Checker, lanes: int, mask: int, values: int) -> None:
    """Lanes each read a register of another, which should take part."""
    rest = mask
    while rest:
        lane = lowest(rest)
        rest = rest & (rest - 1)
        if mask >> load64(lanes + 8 * lane) & 1 == 0:
            call(b.ask, c, layout.SHUFFLE, lanes, mask, values)
            return


def observe(c: Context, site: int, lanes: int, mask: int, values: int) -> None:
    """What the engine calls: at every access, and where threads synchronise."""
    b = at(Block, c.watched)
    g = at(Checker, b.checker)
    if b.number != c.block_linear:
        begin(c, b, g)
    if site >= 0:
        s = at(Site, g.sites + site * SITE_BYTES)
        if mask == 0:
            return
        if s.known == 0:
            call(b.ask, c, DESCRIBE, 0, site, values)
        if s.space == NOWHERE:
            return
        access(c, b, g, s, lanes, mask, values, s.step)
        if s.meets:
            fenced = load32(b.fenced + 4 * c.warp) & mask
            if s.releases or g.messages or (s.writes and fenced):
                call(b.ask, c, site, lanes, mask, values)
    elif site == layout.AT_BLOCK_BARRIER:
        wait(c, b, g, lanes, mask)
    elif site == layout.BLOCK_OPENS:
        opens(c, b, g)
    elif site == layout.WARP_SYNC:
        warp_sync(c, b, g, lanes, mask)
    elif site == layout.SHUFFLE:
        if g.shuffles:
            shuffle(c, b, g, lanes, mask, values)
    elif site == layout.FENCE:
        place = b.fenced + 4 * c.warp
        store32(place, load32(place) | mask)
    elif site == layout.ARRIVE:
        b.arrived = 1
        call(b.ask, c, site, lanes, mask, values)
    else:
        what = layout.COPY - site
        s = at(Site, g.sites + (what >> 2) * SITE_BYTES)
        if s.known:
            access(c, b, g, s, lanes, mask, 0, (what & 3) + ARRIVED)


_COMPILED = (
    renew, full_barrier, begin, unordered, rival, remember, note, stored, held, differing, clash, touch_word,
    under_way, touch_shared, find_region, touch_global, touch_local, access, partial_barrier, warp_sync, wait,
    opens, shuffle, observe,
)  # fmt: skip


@functools.cache
def observer() -> jit.Library:
    """The compiled functions; the engine is to call the address of ``entry_of``."""
    return jit.Library(translate(_COMPILED, "observe", {"Context": layout.CONTEXT}), "entry_of")
