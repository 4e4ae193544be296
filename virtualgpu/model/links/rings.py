"""Ring algorithm of collective calls: the chunks and bytes that each rank sends to the next rank.

Rank r sends to rank r + 1. In an all-reduce of n ranks the data are n chunks. In step s of the first n - 1
steps rank r sends the sum of chunk r - s, so that rank r has the complete chunk r + 1 at the end. In n - 1
more steps the complete chunks are passed around. Each port moves every chunk but one, twice.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Literal

RingCall = Literal["allReduce", "reduce", "broadcast", "reduceScatter", "allGather"]


@dataclass(frozen=True, slots=True)
class RingStep:
    """The transfer of a part of one chunk from one rank to the next in the ring. The part contains the
    elements from ``start`` to ``end``.

    If ``adds`` is true, the receiver adds the elements to its own; otherwise, it stores them.
    """

    step: int
    source: int
    target: int
    chunk: int
    start: int
    end: int
    adds: bool


def make_chunks(element_count: int, ranks: int) -> list[tuple[int, int]]:
    """Divide `element_count` elements into one chunk per rank, and return the start and end of each chunk.

    If `element_count` is not divisible by the number of ranks, the first chunks have one more element.

    Examples
    --------
    >>> make_chunks(10, 4)
    [(0, 3), (3, 6), (6, 8), (8, 10)]
    """
    chunk_size, longer_chunks = divmod(element_count, ranks)
    chunk_ends = [0, *(chunk_size * (k + 1) + min(k + 1, longer_chunks) for k in range(ranks))]
    return list(pairwise(chunk_ends))


def make_steps(call: RingCall, ranks: int, element_count: int, root: int = 0) -> list[RingStep]:
    """Return the steps of a collective operation around the ring in the order in which they run.

    Parameters
    ----------
    call
        The collective call.
    ranks
        Number of ranks.
    element_count
        Number of elements as NCCL counts them: of the whole array, for ``reduceScatter`` of the part that a
        rank receives, for ``allGather`` of the part that it sends.
    root
        Root rank of ``broadcast`` and ``reduce``, which pass everything along a chain.
    """
    n = ranks
    ring_steps = []
    if n < 2:
        return []
    if call in ("broadcast", "reduce"):
        adds = call == "reduce"
        first_rank = root + 1 if adds else root
        return [
            RingStep(
                step_index,
                (first_rank + step_index) % n,
                (first_rank + step_index + 1) % n,
                0,
                0,
                element_count,
                adds,
            )
            for step_index in range(n - 1)
        ]
    total_elements = element_count if call == "allReduce" else n * element_count
    chunk_bounds = make_chunks(total_elements, n)
    # Offset of the first chunk of a rank: rank r ends with chunk r of a reduce-scatter, r + 1 of an
    # all-reduce.
    phase_rules = []
    if call != "allGather":
        phase_rules.append((-1 if call == "reduceScatter" else 0, True))
    if call != "reduceScatter":
        phase_rules.append((1 if call == "allReduce" else 0, False))
    for phase, (offset, adds) in enumerate(phase_rules):
        for step_index in range(n - 1):
            for rank in range(n):
                chunk = (rank + offset - step_index) % n
                chunk_start, chunk_end = chunk_bounds[chunk]
                ring_steps.append(
                    RingStep(
                        phase * (n - 1) + step_index,
                        rank,
                        (rank + 1) % n,
                        chunk,
                        chunk_start,
                        chunk_end,
                        adds,
                    )
                )
    return ring_steps


def count_moved_bytes(
    call: RingCall, ranks: int, element_count: int, item_bytes: int, root: int = 0
) -> dict[tuple[int, int], int]:
    """Return the number of bytes that each rank sends to the next rank during a collective operation."""
    bytes_by_hop: Counter[tuple[int, int]] = Counter()
    for ring_step in make_steps(call, ranks, element_count, root):
        bytes_by_hop[ring_step.source, ring_step.target] += (ring_step.end - ring_step.start) * item_bytes
    return dict(bytes_by_hop)


def count_steps(call: RingCall, ranks: int) -> int:
    """Return the number of consecutive steps of a collective operation on a ring of GPUs."""
    return (2 if call == "allReduce" else 1) * (ranks - 1)


def make_adding_order(ranks: int, last_rank: int) -> Sequence[int]:
    """Return the order in which the ranks add their values to a chunk. The rank `last_rank` is the last
    one in this order.
    """
    return [(last_rank + 1 + k) % ranks for k in range(ranks)]
