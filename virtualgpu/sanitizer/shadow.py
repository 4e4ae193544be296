"""Compiled check of each access against earlier accesses to the same words (`structures`)."""

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
    HEAP,
    IN_BLOCK,
    IN_WARP,
    ISSUED,
    LANDED,
    LOCAL,
    OUTSIDE_ARRAY,
    PENDING_COPY,
    RACE,
    REGION,
    REGION_BYTES,
    SHARED,
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

_THREAD_MASK = (1 << THREAD_BITS) - 1
_TICK_MASK = (1 << 32) - 1
_TAG_SHIFT = 56
_OFFSET_MASK = (1 << 56) - 1


def renew(c: Context, b: Block, g: Checker) -> None:
    """Begin a new segment of accesses in the block."""
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
    """Record that all threads of the block waited for each other."""
    b.epoch += 1
    b.known = 0
    renew(c, b, g)
    b.floor = (b.segment + 1) << WHO_BITS


def begin(c: Context, b: Block, g: Checker) -> None:
    """Begin to check another block on this worker.

    Its epochs continue those of the last block, so that old entries need not be cleared.
    """
    b.number = c.block_linear
    b.tick = 0
    b.cut += 1
    b.published = 0
    b.wait_pc = -1
    b.mixed = 0
    b.arrived = 0
    b.has_unfenced_reads = 0
    n = 0
    while n < g.warps:
        store32(b.fenced + 4 * n, 0)
        store32(b.wide + 4 * n, 0)
        n += 1
    if b.copied:
        n = 0
        while n < g.shared_words:
            store32(b.pending_copies + 4 * n, 0)
            store32(b.barriers + 4 * n, 0)
            n += 1
        b.has_bulk = 0
        b.copied = 0
    full_barrier(c, b, g)


def unordered(b: Block, g: Checker, record: int, thread: int) -> int:
    """Return whether no synchronization orders an earlier access before the present one of `thread`."""
    segment = (record >> WHO_BITS) - 1
    other_thread = record & _THREAD_MASK
    block = load64(g.blocks + 8 * segment)
    if block == b.number:
        if other_thread == thread or load64(g.epochs + 8 * segment) != b.epoch:
            return 0
        if b.known == 0:
            return 1
        return load32(b.known + 4 * (thread * g.threads + other_thread)) < load64(g.cuts + 8 * segment)
    if b.published == 0:
        return 1
    published_tick = load64(b.published + 8 * block)
    return published_tick >> 32 != b.number + 1 or (published_tick & _TICK_MASK) <= load64(
        g.ticks + 8 * segment
    )


def last_unordered_access(b: Block, g: Checker, plane: int, step: int, floor: int, thread: int) -> int:
    """Return the latest access of a kind that is not ordered before the present access of `thread`, or 0.

    An access by another warp (or block, in global memory) is preferred to one by a lane of the same warp.
    """
    record = load64(plane)
    if record < floor:
        return 0
    if unordered(b, g, record, thread) == 0:
        record = load64(plane + step)
        if record < floor:
            return 0
        if unordered(b, g, record, thread) == 0:
            record = 0
    other_record = load64(plane + 2 * step)
    if other_record < floor or other_record == record:
        return record
    if record != 0:
        is_same_block = load64(g.blocks + 8 * ((record >> WHO_BITS) - 1)) == b.number
        if is_same_block == 0 or (record ^ thread) & _THREAD_MASK >= 32:
            return record
    if unordered(b, g, other_record, thread):
        return other_record
    return record


def last_unordered_reader(b: Block, g: Checker, word: int, floor: int, thread: int) -> int:
    """Return the last read of a shared word that is not ordered before a write by `thread`, or 0."""
    warp = 0
    while warp < g.warps:
        record = load64(b.readers + 8 * (word * g.warps + warp))
        if record >= floor and unordered(b, g, record, thread):
            return record
        warp += 1
    return 0


def remember_access(
    b: Block, g: Checker, plane: int, step: int, floor: int, record: int, shared: int
) -> None:
    """Store an access as the last access of its kind, such as a strong write, to a word."""
    last_record = load64(plane)
    if last_record >= floor:
        thread_difference = (last_record ^ record) & _THREAD_MASK
        is_other_group = thread_difference >> 5
        if shared == 0:
            is_other_group = 0
            if last_record >> WHO_BITS != record >> WHO_BITS:
                is_other_group = load64(g.blocks + 8 * ((last_record >> WHO_BITS) - 1)) != b.number
            thread_difference = thread_difference | is_other_group
        if thread_difference:
            store64(plane + step, last_record)
            if is_other_group:
                store64(plane + 2 * step, last_record)
    store64(plane, record)


def add_finding(
    c: Context, b: Block, g: Checker, flags: int, start: int, word: int, first: int, second: int, differs: int
) -> None:
    """Count one occurrence of a finding, by kind and pair of instructions."""
    key = (first >> THREAD_BITS & 0x3FFFFF) << 32 | (second >> THREAD_BITS & 0x3FFFFF) << 10 | flags | 512
    slot = key * 0x9E3779B97F4A7C15 >> 40 & (ENTRIES - 1)
    entry = struct_at(Entry, g.entries + ENTRY_BYTES * slot)
    while entry.key != 0 and entry.key != key:
        slot = (slot + 1) & (ENTRIES - 1)
        entry = struct_at(Entry, g.entries + ENTRY_BYTES * slot)
    if entry.key == 0:
        entry.key = key
        entry.count = 0
        entry.differs = 0
        entry.second = 0
        g.used += 1
    if entry.second == 0 or second < entry.second:
        entry.start = start
        entry.word = word
        entry.first = first
        entry.second = second
    entry.count += 1
    entry.differs = entry.differs | differs
    if g.used > g.room:
        call(b.ask, c, DRAIN, 0, 0, 0)


def stored_value(b: Block, g: Checker, lane: int, part: int) -> int:
    """Return the value that a lane stores to one of the words of its access."""
    bits = 8 << g.shift
    return load64(b.values + 8 * lane) >> bits * part & ((1 << bits) - 1)


def memory_value(g: Checker, address: int) -> int:
    """Return the present value of a word of memory."""
    if g.shift == 2:
        return load32(address)
    if g.shift == 1:
        return load8(address) | load8(address + 1) << 8
    return load8(address)


def values_differ(b: Block, g: Checker, s: Site, first: int, record: int, host: int, part: int) -> int:
    """Return whether two plain stores to a word write different values, as far as the values are known."""
    if s.scalar == 0 or b.values == 0:
        return 1
    lane = record & 31
    other_lane = first & 31
    value = stored_value(b, g, lane, part)
    # The value of the earlier store is in memory, unless it is from a lane of the same instruction.
    is_same_instruction = (first ^ record) >> 5 == 0 and other_lane < lane and b.mask >> other_lane & 1
    if is_same_instruction and load64(b.lanes + 8 * other_lane) == load64(b.lanes + 8 * lane):
        return stored_value(b, g, other_lane, part) != value
    return memory_value(g, host) != value


def add_race(
    c: Context,
    b: Block,
    g: Checker,
    s: Site,
    kind: int,
    old: int,
    first: int,
    tick: int,
    shared: int,
    start: int,
    word: int,
    host: int,
    part: int,
) -> None:
    """Record a race between an earlier access and the present one."""
    relation = ACROSS_BLOCKS
    if load64(g.blocks + 8 * ((first >> WHO_BITS) - 1)) == b.number:
        relation = IN_BLOCK
        if (first ^ tick) & _THREAD_MASK < 32:
            relation = IN_WARP
    differs = 1
    if kind == WEAK_WRITE and old == WEAK_WRITE:
        differs = values_differ(b, g, s, first, tick, host, part)
    flags = RACE | (old != WEAK_READ) << 2 | (kind <= STRONG_WRITE) << 3 | relation << 4 | shared << 6
    add_finding(c, b, g, flags, start, word, first, tick, differs)


def touch_word(
    c: Context,
    b: Block,
    g: Checker,
    s: Site,
    kind: int,
    planes: int,
    step: int,
    floor: int,
    tick: int,
    shared: int,
    start: int,
    word: int,
    host: int,
    part: int,
) -> None:
    """Check an access to a word against earlier accesses to it, and remember the access."""
    thread = tick & _THREAD_MASK
    first_record = last_unordered_access(b, g, planes, step, floor, thread)
    if first_record:
        add_race(c, b, g, s, kind, WEAK_WRITE, first_record, tick, shared, start, word, host, part)
    if kind in (WEAK_READ, WEAK_WRITE):
        first_record = last_unordered_access(b, g, planes + 3 * step, step, floor, thread)
        if first_record:
            add_race(c, b, g, s, kind, STRONG_WRITE, first_record, tick, shared, start, word, host, part)
    if kind <= STRONG_WRITE:
        first_record = last_unordered_access(b, g, planes + 6 * step, step, floor, thread)
        if first_record == 0 and shared and g.partial and b.known:
            first_record = last_unordered_reader(b, g, word, floor, thread)
        if first_record:
            add_race(c, b, g, s, kind, WEAK_READ, first_record, tick, shared, start, word, host, part)
    if kind != STRONG_READ:
        remember_access(b, g, planes + 3 * kind * step, step, floor, tick, shared)
    if kind == WEAK_READ and shared and g.partial:
        store64(b.readers + 8 * (word * g.warps + (thread >> 5)), tick)


def update_copies(c: Context, b: Block, g: Checker, s: Site, step: int, record: int, word: int) -> int:
    """Update a word's pending copies after an access. Return whether further checks are unnecessary."""
    address = b.pending_copies + 4 * word
    copy_count = load32(address)
    is_early = 0
    if copy_count > 0 and step <= ISSUED:
        is_early = 1
        copy_record = load64(b.latest + 8 * word)
        flags = PENDING_COPY | 1 << 6
        if unordered(b, g, copy_record, record & _THREAD_MASK):
            flags = flags | IN_BLOCK << 4
        add_finding(c, b, g, flags, 0, word, copy_record, record, 1)
    if step == ISSUED:
        store32(address, copy_count + 1)
        store64(b.latest + 8 * word, record)
        if s.bulk:
            store32(b.barriers + 4 * word, b.barrier)
            b.has_bulk = 1
    elif step == ARRIVED or (step == LANDED and s.bulk == 0):
        store32(address, copy_count - 1)
    return is_early or step == LANDED


def await_bulk_copies(b: Block, g: Checker, barrier: int) -> None:
    """Record that a thread waits for the bulk copies that signal an mbarrier.

    They may arrive at any time until then, although the virtual GPU copies the data at once.
    """
    has_other_bulk = 0
    word = 0
    while word < g.shared_words:
        awaited = load32(b.barriers + 4 * word)
        if awaited == barrier:
            store32(b.barriers + 4 * word, 0)
            store32(b.pending_copies + 4 * word, 0)
        elif awaited != 0:
            has_other_bulk = 1
        word += 1
    b.has_bulk = has_other_bulk


def touch_shared(
    c: Context, b: Block, g: Checker, s: Site, word: int, record: int, step: int, part: int
) -> None:
    """Check one lane's access to a word of shared memory."""
    if b.written:
        tag = b.written + 4 * word
        if s.reads and load32(tag) != b.number + 1:
            add_finding(c, b, g, UNWRITTEN | 1 << 6, 0, word, 0, record, 1)
        if s.writes:
            store32(tag, b.number + 1)
    if g.races:
        is_done = 0
        if step or b.copied:
            b.copied = 1
            is_done = update_copies(c, b, g, s, step, record, word)
        if is_done == 0:
            host = c.shared + (word << g.shift)
            touch_word(
                c,
                b,
                g,
                s,
                s.kind_shared,
                b.planes + 8 * word,
                b.step,
                b.floor,
                record,
                1,
                0,
                word,
                host,
                part,
            )


def read_shared(c: Context, b: Block, g: Checker, s: Site, lanes: int, mask: int, first: int) -> None:
    """Check the plain reads of shared memory by the lanes of a warp.

    These are the most frequent accesses of most kernels. Words without a write since the last barrier need
    no comparison; the reads are remembered.
    """
    planes = b.planes
    strong_writes = planes + 3 * STRONG_WRITE * b.step
    reads = planes + 3 * WEAK_READ * b.step
    step = b.step
    floor = b.floor
    tags = b.written
    tag = b.number + 1
    shift = g.shift
    part_count = s.parts
    remaining_lanes = mask
    while remaining_lanes:
        lane = lowest(remaining_lanes)
        remaining_lanes = remaining_lanes & (remaining_lanes - 1)
        record = first | lane
        word = load64(lanes + 8 * lane) >> shift
        part = 0
        while part < part_count:
            offset = 8 * word
            if (
                load64(planes + offset) >= floor
                or load64(strong_writes + offset) >= floor
                or (tags != 0 and load32(tags + 4 * word) != tag)
            ):
                touch_shared(c, b, g, s, word, record, 0, part)
            else:
                last_record = load64(reads + offset)
                if last_record >= floor:
                    thread_difference = (last_record ^ record) & _THREAD_MASK
                    if thread_difference:
                        store64(reads + offset + step, last_record)
                        if thread_difference >> 5:
                            store64(reads + offset + 2 * step, last_record)
                store64(reads + offset, record)
            word += 1
            part += 1


def find_region(c: Context, g: Checker, b: Block, address: int) -> int:
    """Return the `Region` of the allocation that contains an address, or 0 if there is none."""
    lower = 0
    upper = g.region_count
    while lower < upper:
        midpoint = (lower + upper) >> 1
        if load64(g.starts + 8 * midpoint) <= address:
            lower = midpoint + 1
        else:
            upper = midpoint
    if lower == 0:
        return 0
    region = g.regions + (lower - 1) * REGION_BYTES
    r = struct_at(Region, region)
    if address >= r.end:
        return 0
    if r.known == 0:
        call(b.ask, c, REGION, 0, lower - 1, 0)
    return region


def touch_global(c: Context, b: Block, g: Checker, s: Site, address: int, record: int) -> None:
    """Check one lane's access to global memory."""
    if address < s.low or address > s.high:
        add_finding(c, b, g, OUTSIDE_ARRAY, address, 0, 0, record, 1)
    region = s.region
    if region != 0:
        r = struct_at(Region, region)
        if address < r.start or address >= r.end:
            region = 0
    if region == 0:
        region = find_region(c, g, b, address)
        if region == 0:
            return
        s.region = region
    r = struct_at(Region, region)
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
                add_finding(c, b, g, UNWRITTEN, r.start, word, 0, record, 1)
            if s.writes:
                store8(r.written + word, 1)
        if r.planes != 0 and r.quiet == 0:
            planes = r.planes + 8 * word
            touch_word(c, b, g, s, s.kind_global, planes, r.step, 1, record, 0, r.start, word, host, part)
        word += 1
        part += 1


def touch_local(c: Context, b: Block, g: Checker, s: Site, address: int, tick: int) -> None:
    """Check one lane's access to its own local memory (stack).

    A read is reported only if none of its bytes has been written: a copy of a structure includes the gaps
    between its members, which are never written.
    """
    if b.local == 0:
        return
    word = (tick & _THREAD_MASK) * g.local_words + (address >> g.shift)
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
            add_finding(c, b, g, UNWRITTEN | 1 << 7, 0, word + part, 0, tick, 1)
            part += 1


def access(c: Context, b: Block, g: Checker, s: Site, lanes: int, mask: int, values: int, step: int) -> None:
    """Check a memory access of the lanes of a warp."""
    b.lanes = lanes
    b.mask = mask
    b.values = values
    record_base = (b.segment + 1) << WHO_BITS | s.number << THREAD_BITS | c.warp << 5
    space = s.space
    if space == SHARED and s.kind_shared == WEAK_READ and step + b.copied + g.partial == 0 and g.races:
        read_shared(c, b, g, s, lanes, mask, record_base)
        return
    outside_lanes = 0
    remaining_lanes = mask
    while remaining_lanes:
        lane = lowest(remaining_lanes)
        remaining_lanes = remaining_lanes & (remaining_lanes - 1)
        address = load64(lanes + 8 * lane)
        record = record_base | lane
        lane_space = space
        if space == GENERIC:
            lane_space = address >> _TAG_SHIFT
            if lane_space > LOCAL:
                lane_space = GLOBAL
            if lane_space:
                address = address & _OFFSET_MASK
        if lane_space == SHARED:
            if s.bulk and s.meets:
                b.barrier = address + 1
            if s.awaits and b.has_bulk:
                await_bulk_copies(b, g, address + 1)
            word = address >> g.shift
            part = 0
            while part < s.parts:
                touch_shared(c, b, g, s, word, record, step, part)
                word += 1
                part += 1
        elif lane_space == GLOBAL:
            if address >= g.heap_start and address < g.heap_end:
                outside_lanes = outside_lanes | 1 << lane
            touch_global(c, b, g, s, address, record)
        else:
            touch_local(c, b, g, s, address, record)
    if outside_lanes:
        call(b.ask, c, HEAP, lanes, outside_lanes, s.number)
