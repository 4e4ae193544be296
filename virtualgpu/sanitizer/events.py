"""Compiled functions that the engine calls at every memory access and every synchronisation.

It calls Python if the order between threads changes in other ways than by a full barrier or ``__syncwarp``,
and if a finding needs more than its location.
"""

from __future__ import annotations

import functools

from virtualgpu.engine.ir import layout
from virtualgpu.engine.ir.compiled import (
    call_function,
    find_lowest_bit,
    load8,
    load32,
    load64,
    store32,
    translate,
    view_struct,
)
from virtualgpu.engine.machine import jit
from virtualgpu.sanitizer import shadow
from virtualgpu.sanitizer.shadow import begin_block, begin_segment, check_access, full_barrier
from virtualgpu.sanitizer.structures import (
    ALLOCATE_MATRIX,
    APPLY_MESSAGES,
    COPY_ARRIVED,
    DESCRIBE_SITE,
    MIXED_BARRIER,
    NO_SPACE,
    SITE_BYTES,
    Block,
    Checker,
    Context,
    Site,
)


def handle_lane_barrier(
    context: Context, block: Block, checker: Checker, first_thread: int, group_mask: int
) -> None:
    """Record that some lanes of a warp have waited for each other. Their earlier accesses are then ordered
    before their later accesses.
    """
    row_bytes = 4 * checker.threads
    lane_matrix = block.known_cuts + first_thread * row_bytes
    maximum_row = block.known_cuts + checker.threads * row_bytes  # one more row, for the maximum
    byte_offset = 0
    while byte_offset < row_bytes:
        store32(maximum_row + byte_offset, 0)
        byte_offset += 4
    remaining_lanes = group_mask
    while remaining_lanes:
        lane_row = lane_matrix + find_lowest_bit(remaining_lanes) * row_bytes
        remaining_lanes = remaining_lanes & (remaining_lanes - 1)
        byte_offset = 0
        while byte_offset < row_bytes:
            if load32(lane_row + byte_offset) > load32(maximum_row + byte_offset):
                store32(maximum_row + byte_offset, load32(lane_row + byte_offset))
            byte_offset += 4
    remaining_lanes = group_mask
    while remaining_lanes:
        store32(maximum_row + 4 * (first_thread + find_lowest_bit(remaining_lanes)), block.cut)
        remaining_lanes = remaining_lanes & (remaining_lanes - 1)
    remaining_lanes = group_mask
    while remaining_lanes:
        lane_row = lane_matrix + find_lowest_bit(remaining_lanes) * row_bytes
        remaining_lanes = remaining_lanes & (remaining_lanes - 1)
        byte_offset = 0
        while byte_offset < row_bytes:
            store32(lane_row + byte_offset, load32(maximum_row + byte_offset))
            byte_offset += 4
    block.cut += 1
    begin_segment(context, block, checker)


def handle_warp_sync(context: Context, block: Block, checker: Checker, member_masks: int, mask: int) -> None:
    """Record a call of ``__syncwarp``, in which each lane waits for the lanes in its own mask."""
    if block.known_cuts == 0:
        call_function(block.callback, context, ALLOCATE_MATRIX, 0, 0, 0)
    remaining_lanes = mask
    while remaining_lanes:
        lane = find_lowest_bit(remaining_lanes)
        group_mask = load64(member_masks + 8 * lane) & mask | 1 << lane
        handle_lane_barrier(context, block, checker, context.warp << 5, group_mask)
        remaining_lanes = remaining_lanes & ~group_mask


def check_block_arrival(context: Context, block: Block, checker: Checker, lanes: int, mask: int) -> None:
    """Check that all threads of the block arrive at the same barrier as the given lanes."""
    pc = load64(lanes)
    if mask == 0 or checker.waits_for_block == 0 or load8(checker.waits_for_block + pc) == 0:
        return
    running_mask = 0
    warp_frame = context.frames + context.warp * context.frame_stride
    lane = 0
    while lane < layout.LANES:
        if load32(warp_frame + 4 * lane) != layout.EXITED:
            running_mask = running_mask | 1 << lane
        lane += 1
    if mask != running_mask:
        call_function(block.callback, context, layout.AT_BLOCK_BARRIER, lanes, mask, 0)
    if block.wait_pc < 0:
        block.wait_pc = pc
        block.wait_warp = context.warp
        block.wait_mask = mask
    elif block.wait_pc != pc:
        block.has_mixed_barriers = 1
        call_function(block.callback, context, MIXED_BARRIER, lanes, mask, 0)


def handle_block_release(context: Context, block: Block, checker: Checker) -> None:
    """Record that all threads of the block have passed barrier 0."""
    if block.has_unfenced_reads:
        call_function(block.callback, context, APPLY_MESSAGES, 0, 0, 0)
    if block.has_mixed_barriers or block.has_arrivals:
        call_function(block.callback, context, layout.BLOCK_BARRIER_OPENS, 0, 0, 0)
    else:
        block.wait_pc = -1
        full_barrier(context, block, checker)


def check_shuffle(
    context: Context, block: Block, checker: Checker, lanes: int, mask: int, values: int
) -> None:
    """Check for each lane of a shuffle that its source lane is active."""
    remaining_lanes = mask
    while remaining_lanes:
        lane = find_lowest_bit(remaining_lanes)
        remaining_lanes = remaining_lanes & (remaining_lanes - 1)
        if mask >> load64(lanes + 8 * lane) & 1 == 0:
            call_function(block.callback, context, layout.SHUFFLE, lanes, mask, values)
            return


def observe(context: Context, site_number: int, lanes: int, mask: int, values: int) -> None:
    """Update the checks for one access or synchronization. The engine calls this function for each access and
    each synchronization.
    """
    block = view_struct(Block, context.watched)
    checker = view_struct(Checker, block.checker)
    if block.number != context.block_linear:
        begin_block(context, block, checker)
    if site_number >= 0:
        site = view_struct(Site, checker.sites + site_number * SITE_BYTES)
        if mask == 0:
            return
        if site.is_described == 0:
            call_function(block.callback, context, DESCRIBE_SITE, 0, site_number, values)
        if site.space == NO_SPACE:
            return
        if block.has_unfenced_reads and site.writes and site.synchronizes == 0:
            # A store is never executed before the loads that it depends on; a load can be.
            call_function(block.callback, context, APPLY_MESSAGES, 0, 0, 0)
        check_access(context, block, checker, site, lanes, mask, values, site.copy_stage)
        if site.synchronizes:
            fenced_mask = load32(block.fenced_lanes + 4 * context.warp) & mask
            if site.releases or checker.message_count or (site.writes and fenced_mask):
                call_function(block.callback, context, site_number, lanes, mask, values)
    elif site_number == layout.AT_BLOCK_BARRIER:
        check_block_arrival(context, block, checker, lanes, mask)
    elif site_number == layout.BLOCK_BARRIER_OPENS:
        handle_block_release(context, block, checker)
    elif site_number == layout.WARP_SYNC:
        handle_warp_sync(context, block, checker, lanes, mask)
    elif site_number == layout.SHUFFLE:
        if checker.checks_shuffles:
            check_shuffle(context, block, checker, lanes, mask, values)
    elif site_number == layout.FENCE or site_number == layout.BLOCK_FENCE:
        address = block.fenced_lanes + 4 * context.warp
        store32(address, load32(address) | mask)
        if site_number == layout.FENCE:
            address = block.wide_fences + 4 * context.warp
            store32(address, load32(address) | mask)
            if block.has_unfenced_reads:
                call_function(block.callback, context, APPLY_MESSAGES, 0, 0, 0)
    elif site_number == layout.BARRIER_ARRIVAL:
        block.has_arrivals = 1
        call_function(block.callback, context, site_number, lanes, mask, values)
    else:
        copy_code = layout.COPY_EVENTS - site_number
        site = view_struct(Site, checker.sites + (copy_code >> 2) * SITE_BYTES)
        if site.is_described:
            check_access(context, block, checker, site, lanes, mask, 0, (copy_code & 3) + COPY_ARRIVED)


_COMPILED_FUNCTIONS = (
    begin_segment,
    full_barrier,
    begin_block,
    shadow.is_unordered,
    shadow.find_unordered_access,
    shadow.find_unordered_reader,
    shadow.remember_access,
    shadow.add_finding,
    shadow.load_stored_value,
    shadow.load_memory_value,
    shadow.values_differ,
    shadow.add_race,
    shadow.check_word,
    shadow.update_copies,
    shadow.await_bulk_copies,
    shadow.check_shared_word,
    shadow.check_shared_reads,
    shadow.find_region,
    shadow.check_global_access,
    shadow.check_local_access,
    check_access,
    handle_lane_barrier,
    handle_warp_sync,
    check_block_arrival,
    handle_block_release,
    check_shuffle,
    observe,
)


@functools.cache
def compile_observer() -> jit.LibraryCode:
    """Compile the checks, and return them as a library. The engine calls the exported function
    ``entry_of``.
    """
    return jit.LibraryCode(translate(_COMPILED_FUNCTIONS, "observe", {"Context": layout.CONTEXT}), "entry_of")
