"""Compiled functions that the engine calls at every memory access and every synchronisation.

It calls Python if the order between threads changes in other ways than by a full barrier or ``__syncwarp``,
and if a finding needs more than its location.
"""

from __future__ import annotations

import functools

from virtualgpu.engine.ir import layout
from virtualgpu.engine.ir.compiled import call, load8, load32, load64, lowest, store32, struct_at, translate
from virtualgpu.engine.machine import jit
from virtualgpu.sanitizer import shadow
from virtualgpu.sanitizer.shadow import access, begin, full_barrier, renew
from virtualgpu.sanitizer.structures import (
    ARRIVED,
    DESCRIBE,
    KNOW,
    LEARN,
    MIXED,
    NOWHERE,
    SITE_BYTES,
    Block,
    Checker,
    Context,
    Site,
)


def partial_barrier(c: Context, b: Block, g: Checker, first: int, group: int) -> None:
    """Record that some lanes of a warp waited for each other, which orders their accesses."""
    size = 4 * g.threads
    row = b.known + first * size
    maximum = b.known + g.threads * size  # one more row, for the maximum
    offset = 0
    while offset < size:
        store32(maximum + offset, 0)
        offset += 4
    remaining_lanes = group
    while remaining_lanes:
        lane_row = row + lowest(remaining_lanes) * size
        remaining_lanes = remaining_lanes & (remaining_lanes - 1)
        offset = 0
        while offset < size:
            if load32(lane_row + offset) > load32(maximum + offset):
                store32(maximum + offset, load32(lane_row + offset))
            offset += 4
    remaining_lanes = group
    while remaining_lanes:
        store32(maximum + 4 * (first + lowest(remaining_lanes)), b.cut)
        remaining_lanes = remaining_lanes & (remaining_lanes - 1)
    remaining_lanes = group
    while remaining_lanes:
        lane_row = row + lowest(remaining_lanes) * size
        remaining_lanes = remaining_lanes & (remaining_lanes - 1)
        offset = 0
        while offset < size:
            store32(lane_row + offset, load32(maximum + offset))
            offset += 4
    b.cut += 1
    renew(c, b, g)


def warp_sync(c: Context, b: Block, g: Checker, members: int, mask: int) -> None:
    """Record a ``__syncwarp``, at which each lane waits for the lanes in its own mask."""
    if b.known == 0:
        call(b.ask, c, KNOW, 0, 0, 0)
    remaining_lanes = mask
    while remaining_lanes:
        lane = lowest(remaining_lanes)
        group_mask = load64(members + 8 * lane) & mask | 1 << lane
        partial_barrier(c, b, g, c.warp << 5, group_mask)
        remaining_lanes = remaining_lanes & ~group_mask


def wait(c: Context, b: Block, g: Checker, lanes: int, mask: int) -> None:
    """Check that all threads of the block arrive at the same barrier as these lanes."""
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
    """Record that all threads of the block have passed barrier 0."""
    if b.has_unfenced_reads:
        call(b.ask, c, LEARN, 0, 0, 0)
    if b.mixed or b.arrived:
        call(b.ask, c, layout.BLOCK_OPENS, 0, 0, 0)
    else:
        b.wait_pc = -1
        full_barrier(c, b, g)


def shuffle(c: Context, b: Block, g: Checker, lanes: int, mask: int, values: int) -> None:
    """Check that the source lane of each lane in a shuffle is active."""
    remaining_lanes = mask
    while remaining_lanes:
        lane = lowest(remaining_lanes)
        remaining_lanes = remaining_lanes & (remaining_lanes - 1)
        if mask >> load64(lanes + 8 * lane) & 1 == 0:
            call(b.ask, c, layout.SHUFFLE, lanes, mask, values)
            return


def observe(c: Context, site: int, lanes: int, mask: int, values: int) -> None:
    """Update the checks for one access or synchronisation; the engine calls this function at each of them."""
    b = struct_at(Block, c.watched)
    g = struct_at(Checker, b.checker)
    if b.number != c.block_linear:
        begin(c, b, g)
    if site >= 0:
        s = struct_at(Site, g.sites + site * SITE_BYTES)
        if mask == 0:
            return
        if s.known == 0:
            call(b.ask, c, DESCRIBE, 0, site, values)
        if s.space == NOWHERE:
            return
        if b.has_unfenced_reads and s.writes and s.meets == 0:
            # A store is never executed before the loads that it depends on; a load can be.
            call(b.ask, c, LEARN, 0, 0, 0)
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
    elif site == layout.FENCE or site == layout.BLOCK_FENCE:
        address = b.fenced + 4 * c.warp
        store32(address, load32(address) | mask)
        if site == layout.FENCE:
            address = b.wide + 4 * c.warp
            store32(address, load32(address) | mask)
            if b.has_unfenced_reads:
                call(b.ask, c, LEARN, 0, 0, 0)
    elif site == layout.ARRIVE:
        b.arrived = 1
        call(b.ask, c, site, lanes, mask, values)
    else:
        copy_code = layout.COPY - site
        s = struct_at(Site, g.sites + (copy_code >> 2) * SITE_BYTES)
        if s.known:
            access(c, b, g, s, lanes, mask, 0, (copy_code & 3) + ARRIVED)


_COMPILED = (
    renew,
    full_barrier,
    begin,
    shadow.unordered,
    shadow.last_unordered_access,
    shadow.last_unordered_reader,
    shadow.remember_access,
    shadow.add_finding,
    shadow.stored_value,
    shadow.memory_value,
    shadow.values_differ,
    shadow.add_race,
    shadow.touch_word,
    shadow.update_copies,
    shadow.await_bulk_copies,
    shadow.touch_shared,
    shadow.read_shared,
    shadow.find_region,
    shadow.touch_global,
    shadow.touch_local,
    access,
    partial_barrier,
    warp_sync,
    wait,
    opens,
    shuffle,
    observe,
)


@functools.cache
def observer() -> jit.Library:
    """Compile the checks. The engine calls the function at the address ``entry_of``."""
    return jit.Library(translate(_COMPILED, "observe", {"Context": layout.CONTEXT}), "entry_of")
