"""Which SM runs which block, and when: the work distributor of the virtual GPU.

Blocks start in order of their number. The first wave goes round the SMs, one block each, until
every slot is taken; after that a block goes to the slot that becomes free first. Real GPUs number
their SMs in an order of their own (pairs of SMs, spread over the chip); the virtual GPU goes by
number, which changes the picture's rows but not its waves.
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
    """Place blocks on SMs.

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
    slots = sm_count * blocks_per_sm
    if not blocks:
        return np.empty(0, np.int32), np.empty(0), np.empty(0)
    number = np.arange(blocks)
    if blocks <= slots or np.ptp(duration_ns) == 0.0:
        wave_ns = max(float(duration_ns[0]), slots * dispatch_ns)
        start = number % slots * dispatch_ns + number // slots * wave_ns
        sm = number % slots % sm_count
    elif blocks <= MAX_EXACT_BLOCKS:
        slot, start = _list_schedule(duration_ns, slots, dispatch_ns)
        sm = slot % sm_count
    else:
        slot, start = _batch_schedule(duration_ns, slots, dispatch_ns)
        sm = slot % sm_count
    return sm.astype(np.int32), start, start + duration_ns


def _list_schedule(
    duration_ns: npt.NDArray[np.float64], slots: int, dispatch_ns: float
) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.float64]]:
    # One integer holds when a slot becomes free (in ps) and which slot it is: heaps of integers
    # are several times faster than heaps of tuples.
    durations = np.maximum(np.rint(duration_ns * 1000), 1).astype(np.int64).tolist()
    step = round(dispatch_ns * 1000)
    starts = [0] * len(durations)
    chosen = list(range(len(durations)))
    heap = []
    for block in range(slots):
        starts[block] = block * step
        heap.append((starts[block] + durations[block]) * slots + block)
    heapq.heapify(heap)
    replace = heapq.heapreplace
    earliest = starts[slots - 1]
    for block in range(slots, len(durations)):
        free, slot = divmod(heap[0], slots)
        earliest += step
        if free > earliest:
            earliest = free
        starts[block] = earliest
        chosen[block] = slot
        replace(heap, (earliest + durations[block]) * slots + slot)
    return np.array(chosen, np.int64), np.array(starts, np.float64) / 1000


def _batch_schedule(
    duration_ns: npt.NDArray[np.float64], slots: int, dispatch_ns: float
) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.float64]]:
    blocks = int(duration_ns.size)
    batch = max(slots // 8, 1)
    start = np.empty(blocks)
    chosen = np.empty(blocks, np.int64)
    free = np.zeros(slots)
    order = np.arange(slots)
    earliest = 0.0
    spacing = np.arange(batch) * dispatch_ns
    for first in range(0, blocks, batch):
        count = min(batch, blocks - first)
        if first >= slots:
            order = np.argpartition(free, count - 1)[:count] if count < slots else np.arange(slots)
            order = order[np.argsort(free[order], kind="stable")]
            taken = order[:count]
        else:
            taken = np.arange(first, first + count) % slots
        begin = np.maximum(np.maximum.accumulate(free[taken]), earliest + spacing[:count])
        start[first : first + count] = begin
        chosen[first : first + count] = taken
        free[taken] = begin + duration_ns[first : first + count]
        earliest = float(begin[-1]) + dispatch_ns
    return chosen, start
