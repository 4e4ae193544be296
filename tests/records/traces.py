"""Small records put together by hand, for the tests of what is derived from them."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from virtualgpu.records import LaunchTrace, Occupancy, Provenance, WarpTrace
from virtualgpu.records.warp.columns import SharedWrites, StepDetail

MODELLED = Provenance("modelled", "A100", "by hand")


def shared_writes(
    size_bytes: int, rows: Sequence[tuple[int, int, dict[int, tuple[int, int]]]]
) -> SharedWrites:
    """Rows of (sequence, width in bytes, lane -> (offset, value))."""
    offset = np.full((len(rows), 32), -1, np.int32)
    value = np.zeros((len(rows), 32), np.uint64)
    mask = np.zeros(len(rows), np.uint32)
    for row, (_, _, lanes) in enumerate(rows):
        for lane, (start, bits) in lanes.items():
            offset[row, lane], value[row, lane] = start, bits
            mask[row] |= np.uint32(1 << lane)
    return SharedWrites(
        size_bytes=size_bytes,
        sequence=np.array([row[0] for row in rows], np.int64),
        warp=np.zeros(len(rows), np.int16),
        mask=mask,
        offset=offset,
        width_bytes=np.array([row[1] for row in rows], np.int8),
        value=value,
        type_index=np.zeros(len(rows), np.int16),
        types=("u32",),
    )


def detail(depth: Sequence[int], order: Sequence[int], loops: Sequence[tuple[int, int]]) -> StepDetail:
    """Return the detail of a trace with call depths and loops alone."""
    none = np.zeros(0, np.int32)
    wide = np.zeros((0, 32), np.uint64)
    return StepDetail(
        sequence=np.arange(len(depth), dtype=np.int64),
        depth=np.array(depth, np.int16),
        extra_step=none,
        extra_name=none,
        extra_value=wide,
        extra_register=(),
        extra_type=(),
        stored_step=none,
        stored_part=none.astype(np.int16),
        stored_width_bytes=none.astype(np.int8),
        stored_value=wide,
        stored_type=(),
        order=np.array(order, np.int32),
        loops=np.array(loops, np.int32).reshape(-1, 2),
        shared=shared_writes(0, []),
    )


def warp_trace(places: Sequence[int], **values: object) -> WarpTrace:
    """A warp that ran the instructions at these places, of which each has a line of its own."""
    count = len(places)
    pc = np.array(places, np.int32)
    every = np.full(count, 0xFFFFFFFF, np.uint32)
    fields = {
        "provenance": MODELLED,
        "kernel_name": "k",
        "code": "",
        "grid": (1, 1, 1),
        "block": (32, 1, 1),
        "block_index": (0, 0, 0),
        "warp_index": 0,
        "granularity": "instruction",
        "instruction": tuple(f"i{n};" for n in range(max(places, default=0) + 1)),
        "pc": pc,
        "line": pc + 1,
        "column": np.ones(count, np.int32),
        "active_mask": every,
        "executed_mask": every,
        "text_index": pc,
    }
    return WarpTrace(**{**fields, **values})  # type: ignore[arg-type]


def launch_trace(
    rows: Sequence[tuple[int, int, int, int]],
    grid: tuple[int, int, int],
    sm_count: int,
    blocks_per_sm: int,
    sampled: int = 1,
) -> LaunchTrace:
    """Rows of (block, SM, start, end)."""
    block, sm, start, end = np.array(rows, np.int64).reshape(-1, 4).T
    fit = Occupancy(
        provenance=MODELLED,
        block_threads=64,
        registers_per_thread=32,
        shared_bytes=0,
        blocks_per_sm=blocks_per_sm,
        warps_per_sm=2 * blocks_per_sm,
        max_warps_per_sm=64,
        blocks_by_limit={},
        limiters=(),
    )
    return LaunchTrace(
        provenance=MODELLED,
        kernel_name="k",
        grid=grid,
        block=(64, 1, 1),
        shared_bytes=0,
        sm_count=sm_count,
        block_index=block,
        sm_id=sm.astype(np.int32),
        start_ns=start,
        end_ns=end,
        occupancy=fit,
        timer_step_ns=1,
        sampled=sampled,
    )
