"""Memory layout that generated code and Python share: the context block, codes and buffers.

Generated code finds everything through one context block. `CONTEXT` is its single description:
Python fills it as a NumPy structured array, generated code reads it at `get_field_offset(name)`.
"""

from __future__ import annotations

import numpy as np

from virtualgpu.records import WARP_SIZE
from virtualgpu.records.kernel import LINE_BYTES

LANES = WARP_SIZE

# Program counters of a warp are block numbers; these marks mean that a lane waits or has exited.
PARKED_PC = 0x2000_0000  # waits at a warp-wide instruction for the lanes its mask names
BARRIER_PC = 0x4000_0000  # waits at a block-wide barrier; bits 20 to 23 are the barrier's number
BARRIER_SHIFT = 20
BARRIER_COUNT = 16
REDUCTION_BIT = 1 << 24  # ... and this bit marks one with a reduction
EXITED = 0x7FFF_FFFF

# What a warp function returns to the block driver.
STATUS_DONE = 0
STATUS_WAITING = 1
STATUS_FAULT = 2
STATUS_YIELDED = 4
STATUS_HANDED_OVER = 8

# Fault codes.
ILLEGAL_GLOBAL = 1
ILLEGAL_SHARED = 2
ILLEGAL_LOCAL = 3
MISALIGNED = 4
ABORTED = 5
TRAPPED = 6
ASSERTED = 7
STACK_OVERFLOW = 8
NESTED_BARRIER = 9
CALLBACK_FAILED = 10
BARRIER_DEADLOCK = 11
DIVERGENT_BARRIER = 12
UNMET_MEMBER_MASK = 13
LANE_OUTSIDE_MASK = 14
BAD_CALL = 15
NAN_PRODUCED = 16
BAD_TEXTURE = 17
ACCESS_OUTSIDE_SURFACE = 18

# Sites that the observer receives when lanes meet at __syncwarp, execute a fence, or shuffle.
WARP_SYNC = -1
FENCE = -2
SHUFFLE = -3
# Threads arrive at a barrier without waiting, or reach one and wait. From COPY_EVENTS down: events of copies, by
# site and event.
BARRIER_ARRIVAL = -4
AT_BLOCK_BARRIER = -5
COPY_EVENTS = -16
# All running threads of a block pass its barrier 0; a fence with block scope.
BLOCK_BARRIER_OPENS = -6
BLOCK_FENCE = -7
# Events of a copy: its data arrive when its thread waits; it is bound to an mbarrier's phase; its data arrive
# with that phase.
COPY_DONE_BY_WAIT = 0
COPY_BOUND_TO_BARRIER = 1
COPY_DONE_BY_BARRIER = 2

# Results of the barrier callback.
NO_BARRIER_OPENED = 0
BARRIER_OPENED = 1
BARRIER_FAULT = 2

# Back edges that a warp may take before it lets other warps run and reads the abort flag.
BACK_EDGE_BUDGET = 4096
# Budgets that a group of diverged lanes may spend before the other lanes of its warp run. Hardware usually
# runs a loop to its end; only lanes that wait for each other need to alternate.
ROTATION_INTERVAL = 16
# A back edge of a loop that waits for memory others write costs this much of the budget.
SPIN_COST = 64
NEVER_ROTATE = -1  # as before Volta (read as the largest unsigned number)

# A warp's frame begins with 32 program counters, then the count of budgets spent.
SPENT_BUDGETS_OFFSET = 128
PENDING_COPIES_OFFSET = 132  # asynchronous copies in flight
LAST_BLOCK_OFFSET = 140  # block number of the diverged lanes that ran last; -1: a new round
ROTATED_OFFSET = 136  # diverged lanes have alternated: their order no longer follows the source
INSTRUCTION_COUNT_OFFSET = 144  # instructions the warp has executed in its block
FRAME_HEADER_BYTES = 192

# Prefix of the special registers with the offset and size of the shared memory that the system reserves.
# Cooperative groups of several warps synchronise there.
RESERVED_SHARED_NAME = "%reserved_smem"
RESERVED_SHARED_BYTES = 1024

# Generic addresses carry the state space in their top byte; 0 is global.
SHARED_TAG = 1 << 56
LOCAL_TAG = 2 << 56
# A function pointer: this tag and the function's number in the module.
FUNCTION_TAG = 3 << 56

# Line numbers in the model of an L1 cache are reduced to L1_LINE_BITS bits. Their remainder for up to 4095
# slots follows exactly from a multiplication with an inverse of L1_INVERSE_BITS bits.
L1_LINE_BITS = 28  # 32 GiB
L1_INVERSE_BITS = 40
ACCESS_STRIDE = 72  # bytes a memory instruction
BRANCH_STRIDE = 16  # executed, divergent
BLOCK_STRIDE = 16  # warp executions, lane executions

TRACE_STEP = np.dtype(
    [
        ("pc", "<i4"),
        ("active", "<u4"),
        ("executed", "<u4"),
        ("function", "<i4"),
        ("warp", "<i4"),
        ("depth", "<i4"),
    ]
)
# Effects of a step, one row of 32 lanes each: the address as the program sees it, the registers that it
# wrote in order, and the memory that it wrote, as a host address followed by the bits.
TRACE_ROW = np.dtype(
    [("step", "<i4"), ("kind", "<i4"), ("mask", "<u4"), ("unused", "<u4"), ("lanes", "<u8", LANES)]
)
# WRITTEN + size_bytes, REGISTER + n
ROW_ADDRESS = 0
ROW_HOST_ADDRESS = 1
ROW_WRITTEN = 16
ROW_REGISTER = 64
# Extent of a trace: instructions that may change shared memory, or all instructions.
TRACE_SHARED = 1
TRACE_ALL = 3
EVERY_WARP = -2

CONTEXT = np.dtype(
    [
        ("params", "<u8"),
        ("shared", "<u8"),
        ("shared_bytes", "<u8"),
        ("access_counters", "<u8"),
        ("branch_counters", "<u8"),
        ("block_counters", "<u8"),
        ("access_cache", "<u8"),
        ("live_starts", "<u8"),
        ("live_ends", "<u8"),
        ("live_count", "<u8"),
        ("abort_flag", "<u8"),
        ("globals", "<u8"),
        ("tids", "<u8"),
        ("frames", "<u8"),
        ("frame_stride", "<u8"),
        ("stack_limit", "<u8"),
        ("local", "<u8"),
        ("local_base", "<u8"),
        ("local_bytes", "<u8"),
        ("local_stride", "<u8"),
        ("status", "<u8"),
        ("block_order", "<u8"),
        ("block_clock", "<u8"),
        ("block_sectors", "<u8"),
        ("block_wavefronts", "<u8"),
        ("block_longest", "<u8"),
        ("l1_table", "<u8"),
        ("l1_base", "<u8"),
        ("l1_slots", "<u8"),
        ("l1_inverse", "<u8"),
        ("trace_cursor", "<u8"),
        ("trace_end", "<u8"),
        ("trace_record", "<u8"),
        ("trace_rows", "<u8"),
        ("trace_rows_end", "<u8"),
        ("printf", "<u8"),
        ("clock", "<i8"),
        ("sectors", "<i8"),
        ("wavefronts", "<i8"),
        ("fault_address", "<u8"),
        ("fault_extra", "<u8", 5),
        ("trace_block", "<i8"),
        ("clock_at_start", "<i8"),
        ("next", "<i8"),
        ("barrier", "<u8"),
        ("predicates", "<u8"),
        ("observer", "<u8"),
        ("watched", "<u8"),
        ("service", "<u8"),
        ("grid_workspace", "<u8"),
        ("copies", "<u8"),
        ("textures", "<u8"),
        ("block_linear", "<i8"),
        ("fault_code", "<i4"),
        ("fault_function", "<i4"),
        ("fault_pc", "<i4"),
        ("fault_lane", "<i4"),
        ("fault_size", "<i4"),
        ("ntid_x", "<i4"),
        ("ntid_y", "<i4"),
        ("ntid_z", "<i4"),
        ("nctaid_x", "<i4"),
        ("nctaid_y", "<i4"),
        ("nctaid_z", "<i4"),
        ("ctaid_x", "<i4"),
        ("ctaid_y", "<i4"),
        ("ctaid_z", "<i4"),
        ("threads", "<i4"),
        ("warps", "<i4"),
        ("warp", "<i4"),
        ("exited", "<i4"),
        ("trace_warp", "<i4"),
        ("trace_on", "<i4"),
        ("trace_number", "<i4"),
        ("trace_left", "<i4"),
        ("truncated", "<i4"),
        ("budget", "<i4"),
        ("forced", "<i4"),
        ("dynamic_shared_bytes", "<i4"),
        ("reserved_shared_bytes", "<i4"),
        ("sm_count", "<i4"),
        ("depth", "<i4"),
        ("patience", "<i4"),
        ("hand_over", "<i4"),
        ("rotate_every", "<i4"),
        ("observed", "<i4"),
        ("barrier_counts", "<i4", BARRIER_COUNT),
        ("barrier_arrived", "<i4", BARRIER_COUNT),
        ("longest_warp", "<i8"),
        ("longest_in_block", "<i8"),
    ],
    align=True,
)


def count_l1_slots(l1_bytes: int) -> int:
    """Return the number of cache lines that the L1 model can hold.

    The number is odd, so that accesses with a stride of 2**n use all lines.
    """
    return max(l1_bytes // LINE_BYTES - 1, 0) | 1


def get_field_offset(name: str) -> int:
    """Return the byte offset of a field in the engine's context block."""
    fields = CONTEXT.fields
    assert fields is not None
    return int(fields[name][1])


def get_field_type(name: str) -> str:
    """Return the LLVM type of a scalar field in the engine's context block."""
    fields = CONTEXT.fields
    assert fields is not None
    return f"i{fields[name][0].itemsize * 8}"
