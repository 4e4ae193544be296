"""Rings: which bytes go from which rank to the next in a collective call, chunk by chunk and in all.

Rank r sends to rank r + 1. In an all-reduce of n ranks the data are n chunks; in step s of the first n - 1
rank r passes on the sum of chunk r - s, so that rank r has chunk r + 1 whole at the end; in n - 1 steps more
the whole chunks go round. Each port sees each chunk but one, twice.
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
    """What one rank passes to the next in one step: elements ``start`` to ``end`` of chunk ``chunk``.

    ``adds``: the receiver adds them to its own; else it keeps them as they are.
    """

    step: int
    source: int
    target: int
    chunk: int
    start: int
    end: int
    adds: bool


def chunks(count: int, ranks: int) -> list[tuple[int, int]]:
    """Begin and end of each of so many chunks of `count` elements; the first ones are longer by one.

    Examples
    --------
    >>> chunks(10, 4)
    [(0, 3), (3, 6), (6, 8), (8, 10)]
    """
    size, more = divmod(count, ranks)
    ends = [0, *(size * (k + 1) + min(k + 1, more) for k in range(ranks))]
    return list(pairwise(ends))


def steps(call: RingCall, ranks: int, count: int, root: int = 0) -> list[RingStep]:
    """What goes round the ring, in order.

    Parameters
    ----------
    call
        Which collective call.
    ranks
        How many ranks.
    count
        Elements: as NCCL counts, of the whole array, for ``reduceScatter`` of what a rank receives, for
        ``allGather`` of what it sends.
    root
        Of ``broadcast`` and ``reduce``, which pass everything along a chain.
    """
    n = ranks
    found = []
    if n < 2:
        return []
    if call in ("broadcast", "reduce"):
        adds = call == "reduce"
        first = root + 1 if adds else root
        return [RingStep(s, (first + s) % n, (first + s + 1) % n, 0, 0, count, adds) for s in range(n - 1)]
    whole = count if call == "allReduce" else n * count
    parts = chunks(whole, n)
    # Which chunk a rank begins with: rank r ends with chunk r of a reduce-scatter, r + 1 of an all-reduce.
    first = -1 if call == "reduceScatter" else 0
    rounds = [(first, True)] if call != "allGather" else []
    rounds += [(1 if call == "allReduce" else 0, False)] if call != "reduceScatter" else []
    for turn, (begin, adds) in enumerate(rounds):
        for s in range(n - 1):
            for r in range(n):
                chunk = (r + begin - s) % n
                found.append(RingStep(turn * (n - 1) + s, r, (r + 1) % n, chunk, *parts[chunk], adds))
    return found


def moved(
    call: RingCall, ranks: int, count: int, item_bytes: int, root: int = 0
) -> dict[tuple[int, int], int]:
    """Bytes from each rank to the next in all; parameters as of `steps`."""
    sums: Counter[tuple[int, int]] = Counter()
    for each in steps(call, ranks, count, root):
        sums[each.source, each.target] += (each.end - each.start) * item_bytes
    return dict(sums)


def step_count(call: RingCall, ranks: int) -> int:
    """How many steps follow each other."""
    return (2 if call == "allReduce" else 1) * (ranks - 1)


def adding_order(ranks: int, last: int) -> Sequence[int]:
    """In which order the ranks' parts of a chunk are added that rank `last` has whole first."""
    return [(last + 1 + k) % ranks for k in range(ranks)]
