"""Compiled check of each access against earlier accesses to the same words (`structures`)."""

from __future__ import annotations

from virtualgpu.engine.ir.compiled import (
    call_function,
    find_lowest_bit,
    load8,
    load32,
    load64,
    store8,
    store32,
    store64,
    view_struct,
)
from virtualgpu.sanitizer.structures import (
    ACROSS_BLOCKS,
    CHECK_HEAP_ACCESS,
    COPY_ARRIVED,
    COPY_ISSUED,
    COPY_LANDED,
    ENTRY_BYTES,
    ENTRY_CAPACITY,
    FLUSH_FINDINGS,
    GENERIC,
    GLOBAL,
    GROW_TABLES,
    IN_BLOCK,
    IN_WARP,
    LOCAL,
    OPEN_REGION,
    OUTSIDE_ARRAY,
    PENDING_COPY,
    RACE,
    REGION_BYTES,
    SHARED,
    SITE_AND_THREAD_BITS,
    STRONG_READ,
    STRONG_WRITE,
    THREAD_BITS,
    UNWRITTEN,
    WEAK_READ,
    WEAK_WRITE,
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


def begin_segment(context: Context, block: Block, checker: Checker) -> None:
    """Begin a new segment, which separates the block's later accesses from its earlier ones."""
    if checker.segment_count == checker.segment_capacity:
        call_function(block.callback, context, GROW_TABLES, 0, 0, 0)
    n = checker.segment_count
    store64(checker.blocks + 8 * n, block.number)
    store64(checker.epochs + 8 * n, block.epoch)
    store64(checker.cuts + 8 * n, block.cut)
    store64(checker.ticks + 8 * n, block.tick)
    block.segment = n
    checker.segment_count = n + 1


def full_barrier(context: Context, block: Block, checker: Checker) -> None:
    """Record that all threads of the block have waited for each other."""
    block.epoch += 1
    block.known_cuts = 0
    begin_segment(context, block, checker)
    block.record_floor = (block.segment + 1) << SITE_AND_THREAD_BITS


def begin_block(context: Context, block: Block, checker: Checker) -> None:
    """Begin to check another block on this worker.

    The epoch numbers continue from the previous block, so that old table entries need not be cleared.
    """
    block.number = context.block_linear
    block.tick = 0
    block.cut += 1
    block.published_ticks = 0
    block.wait_pc = -1
    block.has_mixed_barriers = 0
    block.has_arrivals = 0
    block.has_unfenced_reads = 0
    n = 0
    while n < checker.warps:
        store32(block.fenced_lanes + 4 * n, 0)
        store32(block.wide_fences + 4 * n, 0)
        n += 1
    if block.has_copies:
        n = 0
        while n < checker.shared_words:
            store32(block.pending_copies + 4 * n, 0)
            store32(block.bulk_barriers + 4 * n, 0)
            n += 1
        block.has_bulk_copies = 0
        block.has_copies = 0
    full_barrier(context, block, checker)


def is_unordered(block: Block, checker: Checker, record: int, thread: int) -> int:
    """Return whether an earlier access is not ordered before the current access of a thread."""
    segment_number = (record >> SITE_AND_THREAD_BITS) - 1
    other_thread = record & _THREAD_MASK
    block_number = load64(checker.blocks + 8 * segment_number)
    if block_number == block.number:
        if other_thread == thread or load64(checker.epochs + 8 * segment_number) != block.epoch:
            return 0
        if block.known_cuts == 0:
            return 1
        return load32(block.known_cuts + 4 * (thread * checker.threads + other_thread)) < load64(
            checker.cuts + 8 * segment_number
        )
    if block.published_ticks == 0:
        return 1
    published_tick = load64(block.published_ticks + 8 * block_number)
    return published_tick >> 32 != block.number + 1 or (published_tick & _TICK_MASK) <= load64(
        checker.ticks + 8 * segment_number
    )


def find_unordered_access(
    block: Block, checker: Checker, plane: int, plane_bytes: int, record_floor: int, thread: int
) -> int:
    """Return the latest access of a kind that is not ordered before a thread's current access. The result is
    0 if there is no such access.

    An access by another warp (or block, in global memory) is preferred to one by a lane of the same warp.
    """
    record = load64(plane)
    if record < record_floor:
        return 0
    if is_unordered(block, checker, record, thread) == 0:
        record = load64(plane + plane_bytes)
        if record < record_floor:
            return 0
        if is_unordered(block, checker, record, thread) == 0:
            record = 0
    other_record = load64(plane + 2 * plane_bytes)
    if other_record < record_floor or other_record == record:
        return record
    if record != 0:
        is_same_block = load64(checker.blocks + 8 * ((record >> SITE_AND_THREAD_BITS) - 1)) == block.number
        if is_same_block == 0 or (record ^ thread) & _THREAD_MASK >= 32:
            return record
    if is_unordered(block, checker, other_record, thread):
        return other_record
    return record


def find_unordered_reader(block: Block, checker: Checker, word: int, record_floor: int, thread: int) -> int:
    """Return the last read of a shared-memory word that is not ordered before a thread's write. The result is
    0 if there is no such read.
    """
    warp = 0
    while warp < checker.warps:
        record = load64(block.plain_readers + 8 * (word * checker.warps + warp))
        if record >= record_floor and is_unordered(block, checker, record, thread):
            return record
        warp += 1
    return 0


def remember_access(
    block: Block,
    checker: Checker,
    plane: int,
    plane_bytes: int,
    record_floor: int,
    record: int,
    is_shared: int,
) -> None:
    """Store an access as the last access to a word of its kind, such as a strong write."""
    last_record = load64(plane)
    if last_record >= record_floor:
        thread_difference = (last_record ^ record) & _THREAD_MASK
        is_other_group = thread_difference >> 5
        if is_shared == 0:
            is_other_group = 0
            if last_record >> SITE_AND_THREAD_BITS != record >> SITE_AND_THREAD_BITS:
                is_other_group = (
                    load64(checker.blocks + 8 * ((last_record >> SITE_AND_THREAD_BITS) - 1)) != block.number
                )
            thread_difference = thread_difference | is_other_group
        if thread_difference:
            store64(plane + plane_bytes, last_record)
            if is_other_group:
                store64(plane + 2 * plane_bytes, last_record)
    store64(plane, record)


def add_finding(
    context: Context,
    block: Block,
    checker: Checker,
    finding_flags: int,
    start: int,
    word: int,
    first_access: int,
    second_access: int,
    differs: int,
) -> None:
    """Increment the count of a finding, which is identified by its kind and its two instructions."""
    packed_key = (
        (first_access >> THREAD_BITS & 0x3FFFFF) << 32
        | (second_access >> THREAD_BITS & 0x3FFFFF) << 10
        | finding_flags
        | 512
    )
    slot = packed_key * 0x9E3779B97F4A7C15 >> 40 & (ENTRY_CAPACITY - 1)
    entry = view_struct(Entry, checker.entries + ENTRY_BYTES * slot)
    while entry.key != 0 and entry.key != packed_key:
        slot = (slot + 1) & (ENTRY_CAPACITY - 1)
        entry = view_struct(Entry, checker.entries + ENTRY_BYTES * slot)
    if entry.key == 0:
        entry.key = packed_key
        entry.count = 0
        entry.differs = 0
        entry.second = 0
        checker.used_entries += 1
    if entry.second == 0 or second_access < entry.second:
        entry.start = start
        entry.word = word
        entry.first = first_access
        entry.second = second_access
    entry.count += 1
    entry.differs = entry.differs | differs
    if checker.used_entries > checker.entry_limit:
        call_function(block.callback, context, FLUSH_FINDINGS, 0, 0, 0)


def load_stored_value(block: Block, checker: Checker, lane: int, word_number: int) -> int:
    """Return the value that a lane stores to one of the words of its access."""
    word_bits = 8 << checker.word_shift
    return load64(block.values + 8 * lane) >> word_bits * word_number & ((1 << word_bits) - 1)


def load_memory_value(checker: Checker, address: int) -> int:
    """Return the current value of a word of memory."""
    if checker.word_shift == 2:
        return load32(address)
    if checker.word_shift == 1:
        return load8(address) | load8(address + 1) << 8
    return load8(address)


def values_differ(
    block: Block,
    checker: Checker,
    site: Site,
    first_access: int,
    record: int,
    host_address: int,
    word_number: int,
) -> int:
    """Return whether two ordinary stores to a word write different values. Unknown values count as
    different.
    """
    if site.stores_scalar == 0 or block.values == 0:
        return 1
    lane = record & 31
    other_lane = first_access & 31
    stored_value = load_stored_value(block, checker, lane, word_number)
    # The value of the earlier store is in memory, unless it is from a lane of the same instruction.
    is_same_instruction = (
        (first_access ^ record) >> 5 == 0 and other_lane < lane and block.mask >> other_lane & 1
    )
    if is_same_instruction and load64(block.lanes + 8 * other_lane) == load64(block.lanes + 8 * lane):
        return load_stored_value(block, checker, other_lane, word_number) != stored_value
    return load_memory_value(checker, host_address) != stored_value


def add_race(
    context: Context,
    block: Block,
    checker: Checker,
    site: Site,
    kind: int,
    earlier_kind: int,
    first_access: int,
    record: int,
    is_shared: int,
    start: int,
    word: int,
    host_address: int,
    word_number: int,
) -> None:
    """Record a race between an earlier access and the current one."""
    relation = ACROSS_BLOCKS
    if load64(checker.blocks + 8 * ((first_access >> SITE_AND_THREAD_BITS) - 1)) == block.number:
        relation = IN_BLOCK
        if (first_access ^ record) & _THREAD_MASK < 32:
            relation = IN_WARP
    is_different_value = 1
    if kind == WEAK_WRITE and earlier_kind == WEAK_WRITE:
        is_different_value = values_differ(
            block, checker, site, first_access, record, host_address, word_number
        )
    race_flags = (
        RACE | (earlier_kind != WEAK_READ) << 2 | (kind <= STRONG_WRITE) << 3 | relation << 4 | is_shared << 6
    )
    add_finding(context, block, checker, race_flags, start, word, first_access, record, is_different_value)


def check_word(
    context: Context,
    block: Block,
    checker: Checker,
    site: Site,
    kind: int,
    planes: int,
    plane_bytes: int,
    record_floor: int,
    record: int,
    is_shared: int,
    start: int,
    word: int,
    host_address: int,
    word_number: int,
) -> None:
    """Check an access to a word against the earlier accesses to it, and store the access for later checks."""
    thread = record & _THREAD_MASK
    first_record = find_unordered_access(block, checker, planes, plane_bytes, record_floor, thread)
    if first_record:
        add_race(
            context,
            block,
            checker,
            site,
            kind,
            WEAK_WRITE,
            first_record,
            record,
            is_shared,
            start,
            word,
            host_address,
            word_number,
        )
    if kind in (WEAK_READ, WEAK_WRITE):
        first_record = find_unordered_access(
            block, checker, planes + 3 * plane_bytes, plane_bytes, record_floor, thread
        )
        if first_record:
            add_race(
                context,
                block,
                checker,
                site,
                kind,
                STRONG_WRITE,
                first_record,
                record,
                is_shared,
                start,
                word,
                host_address,
                word_number,
            )
    if kind <= STRONG_WRITE:
        first_record = find_unordered_access(
            block, checker, planes + 6 * plane_bytes, plane_bytes, record_floor, thread
        )
        if first_record == 0 and is_shared and checker.has_partial_waits and block.known_cuts:
            first_record = find_unordered_reader(block, checker, word, record_floor, thread)
        if first_record:
            add_race(
                context,
                block,
                checker,
                site,
                kind,
                WEAK_READ,
                first_record,
                record,
                is_shared,
                start,
                word,
                host_address,
                word_number,
            )
    if kind != STRONG_READ:
        remember_access(
            block, checker, planes + 3 * kind * plane_bytes, plane_bytes, record_floor, record, is_shared
        )
    if kind == WEAK_READ and is_shared and checker.has_partial_waits:
        store64(block.plain_readers + 8 * (word * checker.warps + (thread >> 5)), record)


def update_copies(
    context: Context, block: Block, checker: Checker, site: Site, copy_stage: int, record: int, word: int
) -> int:
    """Update the pending copies to a word after an access, and return whether further checks are
    unnecessary.
    """
    count_address = block.pending_copies + 4 * word
    copy_count = load32(count_address)
    is_pending = 0
    if copy_count > 0 and copy_stage <= COPY_ISSUED:
        is_pending = 1
        copy_record = load64(block.latest_copies + 8 * word)
        finding_flags = PENDING_COPY | 1 << 6
        if is_unordered(block, checker, copy_record, record & _THREAD_MASK):
            finding_flags = finding_flags | IN_BLOCK << 4
        add_finding(context, block, checker, finding_flags, 0, word, copy_record, record, 1)
    if copy_stage == COPY_ISSUED:
        store32(count_address, copy_count + 1)
        store64(block.latest_copies + 8 * word, record)
        if site.is_bulk_copy:
            store32(block.bulk_barriers + 4 * word, block.new_bulk_barrier)
            block.has_bulk_copies = 1
    elif copy_stage == COPY_ARRIVED or (copy_stage == COPY_LANDED and site.is_bulk_copy == 0):
        store32(count_address, copy_count - 1)
    return is_pending or copy_stage == COPY_LANDED


def await_bulk_copies(block: Block, checker: Checker, barrier: int) -> None:
    """Record that a thread waits for the bulk copies that signal an mbarrier.

    The copies may arrive at any time until then, although the virtual GPU copies the data at once.
    """
    has_other_bulk = 0
    word_index = 0
    while word_index < checker.shared_words:
        awaited_barrier = load32(block.bulk_barriers + 4 * word_index)
        if awaited_barrier == barrier:
            store32(block.bulk_barriers + 4 * word_index, 0)
            store32(block.pending_copies + 4 * word_index, 0)
        elif awaited_barrier != 0:
            has_other_bulk = 1
        word_index += 1
    block.has_bulk_copies = has_other_bulk


def check_shared_word(
    context: Context,
    block: Block,
    checker: Checker,
    site: Site,
    word: int,
    record: int,
    copy_stage: int,
    word_number: int,
) -> None:
    """Check the access of one lane to a word of shared memory."""
    if block.written_tags:
        written_tag = block.written_tags + 4 * word
        if site.reads and load32(written_tag) != block.number + 1:
            add_finding(context, block, checker, UNWRITTEN | 1 << 6, 0, word, 0, record, 1)
        if site.writes:
            store32(written_tag, block.number + 1)
    if checker.checks_races:
        is_copy = 0
        if copy_stage or block.has_copies:
            block.has_copies = 1
            is_copy = update_copies(context, block, checker, site, copy_stage, record, word)
        if is_copy == 0:
            host_address = context.shared + (word << checker.word_shift)
            check_word(
                context,
                block,
                checker,
                site,
                site.kind_shared,
                block.planes + 8 * word,
                block.plane_bytes,
                block.record_floor,
                record,
                1,
                0,
                word,
                host_address,
                word_number,
            )


def check_shared_reads(
    context: Context, block: Block, checker: Checker, site: Site, lanes: int, mask: int, first_record: int
) -> None:
    """Check ordinary reads of shared memory by the lanes of a warp.

    Such reads are the most frequent accesses of most kernels. Words without a write since the last barrier
    need no comparison; the reads are remembered.
    """
    planes = block.planes
    strong_write_planes = planes + 3 * STRONG_WRITE * block.plane_bytes
    read_planes = planes + 3 * WEAK_READ * block.plane_bytes
    plane_bytes = block.plane_bytes
    record_floor = block.record_floor
    written_tags = block.written_tags
    block_tag = block.number + 1
    word_shift = checker.word_shift
    part_count = site.word_count
    remaining_lanes = mask
    while remaining_lanes:
        lane = find_lowest_bit(remaining_lanes)
        remaining_lanes = remaining_lanes & (remaining_lanes - 1)
        record = first_record | lane
        word_index = load64(lanes + 8 * lane) >> word_shift
        word_number = 0
        while word_number < part_count:
            word_offset = 8 * word_index
            if (
                load64(planes + word_offset) >= record_floor
                or load64(strong_write_planes + word_offset) >= record_floor
                or (written_tags != 0 and load32(written_tags + 4 * word_index) != block_tag)
            ):
                check_shared_word(context, block, checker, site, word_index, record, 0, word_number)
            else:
                last_record = load64(read_planes + word_offset)
                if last_record >= record_floor:
                    thread_difference = (last_record ^ record) & _THREAD_MASK
                    if thread_difference:
                        store64(read_planes + word_offset + plane_bytes, last_record)
                        if thread_difference >> 5:
                            store64(read_planes + word_offset + 2 * plane_bytes, last_record)
                store64(read_planes + word_offset, record)
            word_index += 1
            word_number += 1


def find_region(context: Context, checker: Checker, block: Block, address: int) -> int:
    """Return the address of the `Region` that describes the allocation at an address, or 0 if there is
    none.
    """
    lower = 0
    upper = checker.region_count
    while lower < upper:
        midpoint = (lower + upper) >> 1
        if load64(checker.region_starts + 8 * midpoint) <= address:
            lower = midpoint + 1
        else:
            upper = midpoint
    if lower == 0:
        return 0
    region_address = checker.regions + (lower - 1) * REGION_BYTES
    region_struct = view_struct(Region, region_address)
    if address >= region_struct.end:
        return 0
    if region_struct.is_opened == 0:
        call_function(block.callback, context, OPEN_REGION, 0, lower - 1, 0)
    return region_address


def check_global_access(
    context: Context, block: Block, checker: Checker, site: Site, address: int, record: int
) -> None:
    """Check the access of one lane to global memory."""
    if address < site.low_address or address > site.high_address:
        add_finding(context, block, checker, OUTSIDE_ARRAY, address, 0, 0, record, 1)
    region = site.region
    if region != 0:
        region_struct = view_struct(Region, region)
        if address < region_struct.start or address >= region_struct.end:
            region = 0
    if region == 0:
        region = find_region(context, checker, block, address)
        if region == 0:
            return
        site.region = region
    region_struct = view_struct(Region, region)
    if region_struct.is_unwritten:
        if site.writes == 0 and region_struct.written_table == 0:
            return
        if site.writes:
            region_struct.is_unwritten = 0
    word_index = (address - region_struct.start) >> checker.word_shift
    word_number = 0
    while word_number < site.word_count:
        host_address = region_struct.start + (word_index << checker.word_shift)
        if region_struct.written_table:
            if site.reads and load8(region_struct.written_table + word_index) == 0:
                add_finding(context, block, checker, UNWRITTEN, region_struct.start, word_index, 0, record, 1)
            if site.writes:
                store8(region_struct.written_table + word_index, 1)
        if region_struct.planes != 0 and region_struct.is_unwritten == 0:
            planes = region_struct.planes + 8 * word_index
            check_word(
                context,
                block,
                checker,
                site,
                site.kind_global,
                planes,
                region_struct.plane_bytes,
                1,
                record,
                0,
                region_struct.start,
                word_index,
                host_address,
                word_number,
            )
        word_index += 1
        word_number += 1


def check_local_access(
    context: Context, block: Block, checker: Checker, site: Site, address: int, record: int
) -> None:
    """Check the access of one lane to its own local memory.

    A read is reported only if all its bytes are uninitialized, because a copied structure can contain gaps
    between its members.
    """
    if block.local_tags == 0:
        return
    word = (record & _THREAD_MASK) * checker.local_words + (address >> checker.word_shift)
    written_tags = block.local_tags + 4 * word
    is_written = 0
    word_number = 0
    while word_number < site.word_count:
        if load32(written_tags + 4 * word_number) == block.number + 1:
            is_written = 1
        if site.writes:
            store32(written_tags + 4 * word_number, block.number + 1)
        word_number += 1
    if site.reads and is_written == 0:
        word_number = 0
        while word_number < site.word_count:
            add_finding(context, block, checker, UNWRITTEN | 1 << 7, 0, word + word_number, 0, record, 1)
            word_number += 1


def check_access(
    context: Context,
    block: Block,
    checker: Checker,
    site: Site,
    lanes: int,
    mask: int,
    values: int,
    copy_stage: int,
) -> None:
    """Check a memory access of the lanes of a warp."""
    block.lanes = lanes
    block.mask = mask
    block.values = values
    record_base = (block.segment + 1) << SITE_AND_THREAD_BITS | site.number << THREAD_BITS | context.warp << 5
    space = site.space
    if (
        space == SHARED
        and site.kind_shared == WEAK_READ
        and copy_stage + block.has_copies + checker.has_partial_waits == 0
        and checker.checks_races
    ):
        check_shared_reads(context, block, checker, site, lanes, mask, record_base)
        return
    outside_lanes = 0
    remaining_lanes = mask
    while remaining_lanes:
        lane = find_lowest_bit(remaining_lanes)
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
            if site.is_bulk_copy and site.synchronizes:
                block.new_bulk_barrier = address + 1
            if site.awaits_mbarrier and block.has_bulk_copies:
                await_bulk_copies(block, checker, address + 1)
            word = address >> checker.word_shift
            word_number = 0
            while word_number < site.word_count:
                check_shared_word(context, block, checker, site, word, record, copy_stage, word_number)
                word += 1
                word_number += 1
        elif lane_space == GLOBAL:
            if address >= checker.heap_start and address < checker.heap_end:
                outside_lanes = outside_lanes | 1 << lane
            check_global_access(context, block, checker, site, address, record)
        else:
            check_local_access(context, block, checker, site, address, record)
    if outside_lanes:
        call_function(block.callback, context, CHECK_HEAP_ACCESS, lanes, outside_lanes, site.number)
