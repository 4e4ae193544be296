"""Placement of blocks on SMs in time: the work distributor of the virtual GPU.

Blocks start in order of their number. The first wave fills the SMs in turn, one block each, until every slot
is occupied; after that a block starts in the slot that becomes free first. Real GPUs fill their SMs in
another order (pairs of SMs, spread over the chip); the virtual GPU uses their numbers, which changes the rows
of the picture but not its waves.
"""

from __future__ import annotations

import heapq

import numpy as np
import numpy.typing as npt

MAX_EXACT_BLOCKS = 50_000

Placement = tuple[npt.NDArray[np.int32], npt.NDArray[np.float64], npt.NDArray[np.float64]]


def place_blocks(
    duration_ns: npt.NDArray[np.float64], sm_count: int, blocks_per_sm: int, dispatch_ns: float
) -> Placement:
    """Return the SM, start time and end time of every block of a kernel.

    Parameters
    ----------
    duration_ns
        Duration of every block, in block order.
    sm_count, blocks_per_sm
        SMs and the blocks each can hold, both at least 1.
    dispatch_ns
        Smallest time between two block starts.

    Returns
    -------
    tuple of arrays
        SM, start and end of every block, times in ns from the first block's start. Exact list
        scheduling up to ``MAX_EXACT_BLOCKS`` blocks or with equal durations; beyond that blocks are
        placed in batches of an eighth of the slots.
    """
    blocks = int(duration_ns.size)
    block_slots = sm_count * blocks_per_sm
    if not blocks:
        return np.empty(0, np.int32), np.empty(0), np.empty(0)
    block_numbers = np.arange(blocks)
    if blocks <= block_slots or np.ptp(duration_ns) == 0.0:
        wave_ns = max(float(duration_ns[0]), block_slots * dispatch_ns)
        start_ns = block_numbers % block_slots * dispatch_ns + block_numbers // block_slots * wave_ns
        sm_ids = block_numbers % block_slots % sm_count
    elif blocks <= MAX_EXACT_BLOCKS:
        slot_numbers, start_ns = _schedule_each_block(duration_ns, block_slots, dispatch_ns)
        sm_ids = slot_numbers % sm_count
    else:
        slot_numbers, start_ns = _schedule_batches(duration_ns, block_slots, dispatch_ns)
        sm_ids = slot_numbers % sm_count
    return sm_ids.astype(np.int32), start_ns, start_ns + duration_ns


def _schedule_each_block(
    duration_ns: npt.NDArray[np.float64], slot_count: int, dispatch_ns: float
) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.float64]]:
    # One integer contains the time when a slot becomes free (in ps) and its number: heaps of integers are
    # several times faster than heaps of tuples.
    durations_ps = np.maximum(np.rint(duration_ns * 1000), 1).astype(np.int64).tolist()
    step_ps = round(dispatch_ns * 1000)
    starts_ps = [0] * len(durations_ps)
    slot_numbers = list(range(len(durations_ps)))
    slot_heap = []
    for block in range(slot_count):
        starts_ps[block] = block * step_ps
        slot_heap.append((starts_ps[block] + durations_ps[block]) * slot_count + block)
    heapq.heapify(slot_heap)
    heap_replace = heapq.heapreplace
    earliest_ps = starts_ps[slot_count - 1]
    for block in range(slot_count, len(durations_ps)):
        free_ps, slot = divmod(slot_heap[0], slot_count)
        earliest_ps += step_ps
        if free_ps > earliest_ps:
            earliest_ps = free_ps
        starts_ps[block] = earliest_ps
        slot_numbers[block] = slot
        heap_replace(slot_heap, (earliest_ps + durations_ps[block]) * slot_count + slot)
    return np.array(slot_numbers, np.int64), np.array(starts_ps, np.float64) / 1000


def _schedule_batches(
    duration_ns: npt.NDArray[np.float64], slot_count: int, dispatch_ns: float
) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.float64]]:
    """Return the slot and the start in ns of each block, computed for a batch of blocks at a time."""
    blocks = int(duration_ns.size)
    batch_size = max(slot_count // 8, 1)
    start_ns = np.empty(blocks)
    slot_numbers = np.empty(blocks, np.int64)
    free_ns = np.zeros(slot_count)
    slots_by_free_time = np.arange(slot_count)
    earliest_ns = 0.0
    spacing_ns = np.arange(batch_size) * dispatch_ns
    for first_block in range(0, blocks, batch_size):
        block_count = min(batch_size, blocks - first_block)
        if first_block >= slot_count:
            slots_by_free_time = (
                np.argpartition(free_ns, block_count - 1)[:block_count]
                if block_count < slot_count
                else np.arange(slot_count)
            )
            slots_by_free_time = slots_by_free_time[np.argsort(free_ns[slots_by_free_time], kind="stable")]
            batch_slots = slots_by_free_time[:block_count]
        else:
            batch_slots = np.arange(first_block, first_block + block_count) % slot_count
        begin_ns = np.maximum(
            np.maximum.accumulate(free_ns[batch_slots]), earliest_ns + spacing_ns[:block_count]
        )
        start_ns[first_block : first_block + block_count] = begin_ns
        slot_numbers[first_block : first_block + block_count] = batch_slots
        free_ns[batch_slots] = begin_ns + duration_ns[first_block : first_block + block_count]
        earliest_ns = float(begin_ns[-1]) + dispatch_ns
    return slot_numbers, start_ns
