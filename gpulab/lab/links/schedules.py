"""Schedules of collective operations: built-in ones by name, and checked schedules of the learner."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from operator import index
from typing import Any, get_args

from gpulab import session
from virtualgpu.records.traffic.collective import Move, Operation
from virtualgpu.records.traffic.schedules import (
    Steps,
    make_ring_schedule,
    make_star_or_tree_schedule,
    merge_adjacent_moves,
)

ALGORITHMS = ("ring", "tree", "naive")
MAX_STEPS = 1_000
MAX_MOVES = 10_000
MAX_CELLS = 200_000
_IS_ADD_OF_WORD = {"add": True, "copy": False}


def check_operation(operation: Any) -> Operation:
    """Return `operation` if it is the name of a collective operation, and raise an error otherwise.

    Raises
    ------
    ValueError
        For any other value.
    """
    if operation not in get_args(Operation):
        raise ValueError(
            f"There is no operation {operation!r}. The operations are "
            f"{', '.join(map(repr, get_args(Operation)))}."
        )
    operation_name: Operation = operation
    return operation_name


def make_schedule(operation: Operation, algorithm: Any, gpu_count: int) -> tuple[str, Steps]:
    """Return the name and the steps of a collective algorithm. The algorithm is given as a name, a function
    or a list of steps.

    Raises
    ------
    ValueError
        For an unknown name, a step that is not possible, or a schedule that is too long.
    """
    if isinstance(algorithm, str):
        if algorithm not in ALGORITHMS:
            raise ValueError(
                f"There is no algorithm {algorithm!r}. Use one of "
                f"{', '.join(map(repr, ALGORITHMS))}, or pass your own schedule: a list "
                "of steps, each a list of (source, target, chunk, 'add' or 'copy')."
            )
        if algorithm == "ring":
            return algorithm, make_ring_schedule(operation, gpu_count)
        return algorithm, make_star_or_tree_schedule(operation, gpu_count, algorithm)
    name = getattr(algorithm, "__name__", "your schedule") if callable(algorithm) else "your schedule"
    steps = algorithm(gpu_count) if callable(algorithm) else algorithm
    if not isinstance(steps, Iterable):
        raise ValueError(
            "A schedule must be a list of steps, each a list of (source, target, chunk, "
            f"'add' or 'copy'), not {steps!r}."
        )
    checked_steps: Steps = []
    move_count = chunk_count = 0
    for step_number, step in enumerate(steps, 1):
        checked_steps.append(_check_step(step_number, step, gpu_count, MAX_MOVES - move_count))
        move_count += len(checked_steps[-1])
        chunk_count = max(chunk_count, 1 + max((move.chunk for move in checked_steps[-1]), default=0))
        if step_number > MAX_STEPS or step_number * gpu_count * chunk_count > MAX_CELLS:
            raise ValueError(
                f"Step {step_number}: a schedule has at most {MAX_STEPS:,} steps, and steps "
                f"times GPUs times chunks must be at most {MAX_CELLS:,}. Use fewer steps "
                "or chunks."
            )
    return name, checked_steps


def find_chunk_bounds(element_count: int, steps: Steps, min_chunks: int = 1) -> list[int]:
    """Return the bounds of the chunks into which a schedule divides arrays of `element_count` elements."""
    chunk_count = max(min_chunks, 1 + max((move.chunk for step in steps for move in step), default=0))
    return [chunk * element_count // chunk_count for chunk in range(chunk_count + 1)]


def model_ns(device: str, gpu_count: int, chunk_bounds: Sequence[int], steps: Steps) -> float:
    """Return the modelled time in ns that a CUDA graph of the schedule takes on directly connected GPUs.

    The function does not copy data. Only the bytes of the chunks are counted, with 32-bit elements between
    `chunk_bounds`.
    """
    total_ns = 0.0
    for step in steps:
        message_bytes = [
            (move, 4 * (chunk_bounds[end_chunk] - chunk_bounds[move.chunk]))
            for move, end_chunk in merge_adjacent_moves(step)
        ]
        transfers = [(move.source, move.target, size_bytes, True) for move, size_bytes in message_bytes]
        sum_bytes_of_gpus = [(move.target, size_bytes) for move, size_bytes in message_bytes if move.add]
        total_ns += session.compute_step_ns(device, gpu_count, transfers, sum_bytes_of_gpus)
    return total_ns


def count_operations(steps: Steps) -> int:
    """Return the number of copies and additions that the host submits if it runs a schedule without a
    graph.
    """
    return sum(1 + move.add for step in steps for move, _ in merge_adjacent_moves(step))


def _check_step(step_number: int, step: Any, gpu_count: int, max_moves: int) -> list[Move]:
    moves: list[Move] = []
    writes_by_chunk: Counter[tuple[int, int]] = Counter()
    if not isinstance(step, Iterable):
        raise ValueError(
            f"Step {step_number}: a step must be a list of (source, target, chunk, 'add' or 'copy'), "
            f"not {step!r}."
        )
    for move_entry in step:
        move_fields = tuple(move_entry) if isinstance(move_entry, list | tuple) else ()
        if (
            len(move_fields) != 4
            or not isinstance(move_fields[3], str)
            or move_fields[3] not in _IS_ADD_OF_WORD
        ):
            raise ValueError(
                f"Step {step_number}: a move must be (source, target, chunk, 'add' or 'copy'), not "
                f"{move_entry!r}."
            )
        try:
            source_gpu, target_gpu, chunk = map(index, move_fields[:3])
        except TypeError:
            raise ValueError(
                f"Step {step_number}: the source, target and chunk of {move_entry!r} must be integers."
            ) from None
        if (
            not (0 <= source_gpu < gpu_count and 0 <= target_gpu < gpu_count and chunk >= 0)
            or source_gpu == target_gpu
        ):
            raise ValueError(
                f"Step {step_number}: {move_entry!r} must contain two different GPUs from 0 to "
                f"{gpu_count - 1}, and the number of a chunk."
            )
        if len(moves) == max_moves:
            raise ValueError(
                f"Step {step_number}: a schedule has at most {MAX_MOVES:,} moves in all its steps."
            )
        moves.append(Move(source_gpu, target_gpu, chunk, _IS_ADD_OF_WORD[move_fields[3]]))
        writes_by_chunk[target_gpu, chunk] += move_fields[3] == "copy"
    for move in moves:
        if writes_by_chunk[move.target, move.chunk] > (1 if not move.add else 0):
            raise ValueError(
                f"Step {step_number}: a copy overwrites chunk {move.chunk} of GPU "
                f"{move.target}, and another move of the same step writes this chunk, "
                "too. Its final value is therefore not defined. Put one of the moves "
                "into another step."
            )
    return moves


Schedule = Callable[[int], Iterable[Iterable[Any]]] | Sequence[Sequence[Any]]
