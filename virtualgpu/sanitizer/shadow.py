"""The check of each access against what is kept of earlier ones to its words (`structures`), compiled."""

from __future__ import annotations

from virtualgpu.engine.ir.compiled import (
    call,
    load8,
    load32,
    load64,
    lowest,
    store8,
    store32,
    store64,
    struct_at,
)
from virtualgpu.sanitizer.structures import (
    ACROSS_BLOCKS,
    ARRIVED,
    DRAIN,
    ENTRIES,
    ENTRY_BYTES,
    GENERIC,
    GLOBAL,
    GROW,
    HASTY,
    HEAP,
    IN_BLOCK,
    IN_WARP,
    ISSUED,
    LANDED,
    LOCAL,
    RACE,
    REGION,
    REGION_BYTES,
    SHARED,
    STRAY,
    STRONG_READ,
    STRONG_WRITE,
    THREAD_BITS,
    UNWRITTEN,
    WEAK_READ,
    WEAK_WRITE,
    WHO_BITS,
    Block,
    Checker,
    Context,
    Entry,
    Region,
    Site,
)

_THREAD = (1 << THREAD_BITS) - 1
_TICK = (1 << 32) - 1
_TAG = 56
_OFFSET = (1 << 56) - 1


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
    b.heard = 0
    n = 0
    while n < g.warps:
        store32(b.fenced + 4 * n, 0)
        store32(b.wide + 4 * n, 0)
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
    """The latest access of a class that nothing orders before this thread's next one, or 0.

    One by another warp (or block, in global memory) comes before one by a lane of the same.
    """
    found = load64(plane)
    if found < floor:
        return 0
    if unordered(b, g, found, thread) == 0:
        found = load64(plane + step)
        if found < floor:
            return 0
        if unordered(b, g, found, thread) == 0:
            found = 0
    far = load64(plane + 2 * step)
    if far < floor or far == found:
        return found
    if found != 0:
        mine = load64(g.blocks + 8 * ((found >> WHO_BITS) - 1)) == b.number
        if mine == 0 or (found ^ thread) & _THREAD >= 32:
            return found
    if unordered(b, g, far, thread):
        return far
    return found


def reader(b: Block, g: Checker, word: int, floor: int, thread: int) -> int:
    """The last read of a shared word by a warp whose read nothing orders before this thread's write, or 0."""
    warp = 0
    while warp < g.warps:
        record = load64(b.readers + 8 * (word * g.warps + warp))
        if record >= floor and unordered(b, g, record, thread):
            return record
        warp += 1
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
    e = struct_at(Entry, g.entries + ENTRY_BYTES * place)
    while e.key != 0 and e.key != key:
        place = (place + 1) & (ENTRIES - 1)
        e = struct_at(Entry, g.entries + ENTRY_BYTES * place)
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
    c: Context,
    b: Block,
    g: Checker,
    s: Site,
    kind: int,
    old: int,
    first: int,
    now: int,
    shared: int,
    start: int,
    word: int,
    host: int,
    part: int,
) -> None:
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
    c: Context,
    b: Block,
    g: Checker,
    s: Site,
    kind: int,
    planes: int,
    step: int,
    floor: int,
    now: int,
    shared: int,
    start: int,
    word: int,
    host: int,
    part: int,
) -> None:
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
        if first == 0 and shared and g.partial and b.known:
            first = reader(b, g, word, floor, thread)
        if first:
            clash(c, b, g, s, kind, WEAK_READ, first, now, shared, start, word, host, part)
    if kind != STRONG_READ:
        remember(b, g, planes + 3 * kind * step, step, floor, now, shared)
    if kind == WEAK_READ and shared and g.partial:
        store64(b.readers + 8 * (word * g.warps + (thread >> 5)), now)


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


def touch_shared(
    c: Context, b: Block, g: Checker, s: Site, word: int, now: int, step: int, part: int
) -> None:
    """One lane's access to a word of shared memory."""
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
            host = c.shared + (word << g.shift)
            touch_word(
                c, b, g, s, s.kind_shared, b.planes + 8 * word, b.step, b.floor, now, 1, 0, word, host, part
            )


def read_shared(c: Context, b: Block, g: Checker, s: Site, lanes: int, mask: int, first: int) -> None:
    """Plain reads of shared memory by the lanes of a warp, the most frequent access of most kernels.

    Words that nobody has written since the last barrier need no comparison; the reads are kept.
    """
    planes = b.planes
    swaps = planes + 3 * STRONG_WRITE * b.step
    reads = planes + 3 * WEAK_READ * b.step
    step = b.step
    floor = b.floor
    tags = b.written
    tag = b.number + 1
    shift = g.shift
    parts = s.parts
    rest = mask
    while rest:
        lane = lowest(rest)
        rest = rest & (rest - 1)
        now = first | lane
        word = load64(lanes + 8 * lane) >> shift
        part = 0
        while part < parts:
            at_word = 8 * word
            if (
                load64(planes + at_word) >= floor
                or load64(swaps + at_word) >= floor
                or (tags != 0 and load32(tags + 4 * word) != tag)
            ):
                touch_shared(c, b, g, s, word, now, 0, part)
            else:
                last = load64(reads + at_word)
                if last >= floor:
                    apart = (last ^ now) & _THREAD
                    if apart:
                        store64(reads + at_word + step, last)
                        if apart >> 5:
                            store64(reads + at_word + 2 * step, last)
                store64(reads + at_word, now)
            word += 1
            part += 1


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
    r = struct_at(Region, found)
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
        r = struct_at(Region, found)
        if address < r.start or address >= r.end:
            found = 0
    if found == 0:
        found = find_region(c, g, b, address)
        if found == 0:
            return
        s.region = found
    r = struct_at(Region, found)
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
    if space == SHARED and s.kind_shared == WEAK_READ and step + b.copied + g.partial == 0 and g.races:
        read_shared(c, b, g, s, lanes, mask, first)
        return
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
            word = address >> g.shift
            part = 0
            while part < s.parts:
                touch_shared(c, b, g, s, word, now, step, part)
                word += 1
                part += 1
        elif here == GLOBAL:
            if address >= g.heap_start and address < g.heap_end:
                outside = outside | 1 << lane
            touch_global(c, b, g, s, address, now)
        else:
            touch_local(c, b, g, s, address, now)
    if outside:
        call(b.ask, c, HEAP, lanes, outside, s.number)
