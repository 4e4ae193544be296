"""Schedules of chunk transfers for collective operations: rings, trees, and stars."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from virtualgpu.records.traffic.collective import Move, Operation

Steps = list[list[Move]]


def make_ring_schedule(operation: Operation, gpus: int) -> Steps:
    """Return the steps of a ring schedule, in which every GPU sends to the next one."""
    ranks = range(gpus)
    last_rank = gpus - 1
    reduce_scatter_steps = [
        [Move(rank, (rank + 1) % gpus, (rank - step - 1) % gpus, True) for rank in ranks]
        for step in range(last_rank)
    ]
    all_gather_steps = [
        [Move(rank, (rank + 1) % gpus, (rank - step) % gpus) for rank in ranks] for step in range(last_rank)
    ]
    chain_steps = [
        [Move(rank, rank + 1, step - rank) for rank in range(last_rank) if 0 <= step - rank < gpus]
        for step in range(gpus + last_rank - 1)
    ]
    steps_by_operation: dict[Operation, Steps] = {
        "all-reduce": reduce_scatter_steps + all_gather_steps,
        "reduce-scatter": reduce_scatter_steps,
        "all-gather": all_gather_steps,
        "broadcast": chain_steps,
        "reduce": [
            [Move(move.target, move.source, move.chunk, True) for move in moves]
            for moves in reversed(chain_steps)
        ],
    }
    return steps_by_operation[operation]


def make_star_or_tree_schedule(operation: Operation, gpus: int, algorithm: str) -> Steps:
    """Return the steps of a schedule that collects data on GPU 0 and distributes it. The data moves directly
    or along a tree.
    """
    is_chunked = operation in ("all-gather", "reduce-scatter")
    tree_levels = (
        _make_tree_levels(gpus) if algorithm == "tree" else [[(0, rank, 1) for rank in range(1, gpus)]]
    )
    all_chunks = range(gpus) if is_chunked else range(1)

    def find_subtree_chunks(rank: int, subtree_size: int) -> Sequence[int]:
        """Return the chunks of the GPUs that belong to a subtree."""
        return range(rank, min(rank + subtree_size, gpus))

    steps_to_root = [
        [
            Move(child_rank, parent_rank, chunk, operation != "all-gather")
            for parent_rank, child_rank, size in step
            for chunk in (find_subtree_chunks(child_rank, size) if operation == "all-gather" else all_chunks)
        ]
        for step in tree_levels
    ]
    steps_from_root = [
        [
            Move(parent_rank, child_rank, chunk)
            for parent_rank, child_rank, size in step
            for chunk in (
                find_subtree_chunks(child_rank, size) if operation == "reduce-scatter" else all_chunks
            )
        ]
        for step in reversed(tree_levels)
    ]
    if operation == "reduce":
        return steps_to_root
    return steps_from_root if operation == "broadcast" else steps_to_root + steps_from_root


def _make_tree_levels(gpus: int) -> list[list[tuple[int, int, int]]]:
    """Return the edges of each level of a tree: parent GPU, child GPU, and size of the child's subtree."""
    levels = []
    rank_distance = 1
    while rank_distance < gpus:
        near_ranks = range(0, gpus - rank_distance, 2 * rank_distance)
        levels.append([(rank, rank + rank_distance, rank_distance) for rank in near_ranks])
        rank_distance *= 2
    return levels


def merge_adjacent_moves(moves: Sequence[Move]) -> list[tuple[Move, int]]:
    """Merge transfers of adjacent chunks between the same GPUs. The second element of each result is the
    number of the last merged chunk plus 1.
    """
    merged_moves: list[tuple[Move, int]] = []
    for move in moves:
        first_move, chunk_end = merged_moves[-1] if merged_moves else (move, -1)
        if chunk_end == move.chunk and replace(move, chunk=first_move.chunk) == first_move:
            merged_moves[-1] = (first_move, chunk_end + 1)
        else:
            merged_moves.append((move, move.chunk + 1))
    return merged_moves
