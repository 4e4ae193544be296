"""Who sends which chunk to whom, step by step: rings, trees, and all through one."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from virtualgpu.records.traffic.collective import Move, Operation

Steps = list[list[Move]]


def ring(operation: Operation, gpus: int) -> Steps:
    """Every GPU sends to the next one only; in n - 1 steps, or twice as many for ``all-reduce``."""
    ranks = range(gpus)
    last = gpus - 1
    reduce = [[Move(r, (r + 1) % gpus, (r - s - 1) % gpus, True) for r in ranks] for s in range(last)]
    gather = [[Move(r, (r + 1) % gpus, (r - s) % gpus) for r in ranks] for s in range(last)]
    line = [[Move(r, r + 1, s - r) for r in range(last) if 0 <= s - r < gpus] for s in range(gpus + last - 1)]
    made: dict[Operation, Steps] = {
        "all-reduce": reduce + gather,
        "reduce-scatter": reduce,
        "all-gather": gather,
        "broadcast": line,
        "reduce": [[Move(m.target, m.source, m.chunk, True) for m in step] for step in reversed(line)],
    }
    return made[operation]


def star_or_tree(operation: Operation, gpus: int, algorithm: str) -> Steps:
    """First towards GPU 0, then away from it: all at once (``naive``), or by halves."""
    chunked = operation in ("all-gather", "reduce-scatter")
    pairs = _tree(gpus) if algorithm == "tree" else [[(0, r, 1) for r in range(1, gpus)]]
    every = range(gpus) if chunked else range(1)

    def behind(rank: int, many: int) -> Sequence[int]:
        """Chunks of the GPUs that a pair's far one stands for."""
        return range(rank, min(rank + many, gpus))

    up = [
        [
            Move(far, near, c, operation != "all-gather")
            for near, far, many in step
            for c in (behind(far, many) if operation == "all-gather" else every)
        ]
        for step in pairs
    ]
    down = [
        [
            Move(near, far, c)
            for near, far, many in step
            for c in (behind(far, many) if operation == "reduce-scatter" else every)
        ]
        for step in reversed(pairs)
    ]
    return {"reduce": up, "broadcast": down}.get(operation, up + down)


def _tree(gpus: int) -> list[list[tuple[int, int, int]]]:
    """Who meets whom on each level: near, far, and how many the far one stands for."""
    steps = []
    apart = 1
    while apart < gpus:
        steps.append([(r, r + apart, apart) for r in range(0, gpus - apart, 2 * apart)])
        apart *= 2
    return steps


def messages(moves: Sequence[Move]) -> list[tuple[Move, int]]:
    """Moves, those of neighbouring chunks between the same GPUs as one; and the chunk behind the last."""
    made: list[tuple[Move, int]] = []
    for move in moves:
        first, end = made[-1] if made else (move, -1)
        if end == move.chunk and replace(move, chunk=first.chunk) == first:
            made[-1] = (first, end + 1)
        else:
            made.append((move, move.chunk + 1))
    return made
