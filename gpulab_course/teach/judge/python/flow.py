"""Data flow of a program: the work that wrote its result, the work that wrote the inputs of that, and so on.

A kernel in a second stream, or a graph, that nobody needs the results of is no answer to an exercise that
asks for two streams, or for a graph.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from gpulab.analysis.uses import covers, overlap
from virtualgpu.records import Activity
from virtualgpu.records.acts import Act, GraphLaunch, Region, Work


@dataclass(frozen=True, slots=True)
class Flow:
    """The operations that a result rests on, by their numbers, and the launches of graphs."""

    numbers: frozenset[int] = frozenset()
    graph_launches: int = 0

    def kernels(self, activities: Iterable[Activity]) -> list[Activity]:
        """Return the kernels among the activities on which the result depends."""
        return [a for a in activities if a.kind == "CONCURRENT_KERNEL" and a.correlation_id in self.numbers]


def flow(acts: Sequence[Act], results: Iterable[Region]) -> Flow:
    """Return the work on which the contents of `results` depend, after the last act."""
    needed = list(results)
    numbers = set[int]()
    launches = 0
    for act in reversed(acts):
        if isinstance(act, Work):
            needed = _before(act, needed, numbers)
        elif isinstance(act, GraphLaunch):
            known = len(numbers)
            for node in reversed(act.nodes):
                needed = _before(node, needed, numbers)
            launches += len(numbers) > known
    return Flow(frozenset(numbers), launches)


def _before(work: Work, needed: list[Region], numbers: set[int]) -> list[Region]:
    """Return the memory that is needed before some work, if `needed` is needed after it."""
    written = (*work.writes, *work.atomics)
    if not any(overlap(region, other) for region in written for other in needed):
        return needed
    numbers.add(work.number)
    left = [other for other in needed if not any(covers(region, other) for region in work.writes)]
    return [*left, *(region for region in (*work.reads, *work.atomics) if region not in left)]


def beside(kernels: Sequence[Activity], activities: Sequence[Activity]) -> int:
    """Count the kernels that may run at the same time as another one of them in another stream.

    `activities` are all, in the order in which they were given.
    """
    bits, before = _ordered(activities)
    return sum(
        any(
            a.stream_id != b.stream_id
            and not before[a.correlation_id] & bits[b.correlation_id]
            and not before[b.correlation_id] & bits[a.correlation_id]
            for b in kernels
        )
        for a in kernels
    )


def held_up(kernels: Sequence[Activity], activities: Sequence[Activity], stream_id: int) -> int:
    """Count the kernels in a stream that must wait for one of them in another stream."""
    bits, before = _ordered(activities)
    others = sum(bits[a.correlation_id] for a in kernels if a.stream_id != stream_id)
    return sum(a.stream_id == stream_id and before[a.correlation_id] & others > 0 for a in kernels)


def _ordered(activities: Sequence[Activity]) -> tuple[dict[int, int], dict[int, int]]:
    """Return for each activity number its bit, and the bits of the activity and of all that end before it."""
    bits: dict[int, int] = {}
    before: dict[int, int] = {}
    for a in activities:
        known = bits[a.correlation_id] = 1 << len(bits)
        for number in a.after:
            known |= before.get(number, 0)
        before[a.correlation_id] = known
    return bits, before
