"""A schedule by its name, or a learner's own, checked."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, get_args

from virtualgpu.records.traffic.collective import Move, Operation
from virtualgpu.records.traffic.schedules import Steps, ring, star_or_tree

ALGORITHMS = ("ring", "tree", "naive")
_HOWS = {"add": True, "copy": False}


def check_operation(operation: Any) -> Operation:
    """Pass on the name of an operation.

    Raises
    ------
    ValueError
        For any other word.
    """
    if operation not in get_args(Operation):
        raise ValueError(
            f"There is no operation {operation!r}; there are {', '.join(map(repr, get_args(Operation)))}."
        )
    found: Operation = operation
    return found


def schedule_of(operation: Operation, algorithm: Any, gpus: int) -> tuple[str, Steps]:
    """The name and the steps of an algorithm, of a function of the number of GPUs, or of a list of steps.

    Raises
    ------
    ValueError
        For an unknown name, or a step that no GPU can take.
    """
    if isinstance(algorithm, str):
        if algorithm not in ALGORITHMS:
            raise ValueError(
                f"There is no algorithm {algorithm!r}; there are {', '.join(map(repr, ALGORITHMS))}, or your "
                "own: a list of steps, each a list of (source, target, chunk, 'add' or 'copy')."
            )
        made = ring(operation, gpus) if algorithm == "ring" else star_or_tree(operation, gpus, algorithm)
        return algorithm, made
    name = getattr(algorithm, "__name__", "your schedule") if callable(algorithm) else "your schedule"
    steps = algorithm(gpus) if callable(algorithm) else algorithm
    return name, [_own_step(at, step, gpus) for at, step in enumerate(steps, 1)]


def _own_step(at: int, step: Iterable[Any], gpus: int) -> list[Move]:
    moves = []
    for given in step:
        parts = tuple(given) if isinstance(given, list | tuple) else ()
        if len(parts) != 4 or parts[3] not in _HOWS:
            raise ValueError(f"Step {at}: a move is (source, target, chunk, 'add' or 'copy'), not {given!r}.")
        source, target, chunk = map(int, parts[:3])
        if not (0 <= source < gpus and 0 <= target < gpus and chunk >= 0) or source == target:
            raise ValueError(
                f"Step {at}: {given!r} names no two different GPUs from 0 to {gpus - 1}, or no chunk."
            )
        moves.append(Move(source, target, chunk, _HOWS[parts[3]]))
    into = [(move.target, move.chunk) for move in moves if not move.add]
    for move in moves:
        if into.count((move.target, move.chunk)) > (1 if not move.add else 0):
            raise ValueError(
                f"Step {at}: chunk {move.chunk} of GPU {move.target} is overwritten while "
                "something else comes "
                "in; nobody knows which is last."
            )
    return moves


Schedule = Callable[[int], Iterable[Iterable[Any]]] | Sequence[Sequence[Any]]
