"""A collective operation as it went: who sent which chunk to whom in each step, and what each GPU held."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from virtualgpu.records.origin import Provenance
from virtualgpu.records.traffic.ports import LinkKind, PortTraffic

Operation = Literal["all-reduce", "broadcast", "reduce", "all-gather", "reduce-scatter"]
# How often what each GPU brought is in a sum: one number a GPU.
Parts = tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Move:
    """One chunk on its way from one GPU to another, which adds it to its own or puts it in its place."""

    source: int
    target: int
    chunk: int
    add: bool = False


@dataclass(frozen=True, slots=True)
class CollectiveStep:
    """Moves that happen at the same time: each reads what was there before the step. ``time_ns`` is what the
    step takes, ``copies_ns`` the part of it in which the busiest port is used."""

    moves: tuple[Move, ...]
    time_ns: int = 0
    copies_ns: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Collective:
    """A collective operation among GPUs that each begin with an array of `size_bytes`, cut into chunks.

    ``right`` says of each GPU whether it ended with what it should; ``traffic`` is what passed the ports.
    ``begins`` has the number of crossings before each step.
    """

    provenance: Provenance
    operation: Operation
    algorithm: str
    size_bytes: int
    chunk_bytes: tuple[int, ...]
    steps: tuple[CollectiveStep, ...]
    right: tuple[bool, ...]
    traffic: PortTraffic
    begins: tuple[int, ...]

    @property
    def gpus(self) -> int:
        """How many take part."""
        return len(self.right)

    @property
    def links(self) -> LinkKind:
        """How they are joined."""
        return self.traffic.links

    @property
    def time_ns(self) -> int:
        """All steps, one after another."""
        return sum(step.time_ns for step in self.steps)

    @property
    def volume(self) -> float:
        """What passed the busiest port in one direction, over the size of the data."""
        return self.traffic.busiest_bytes / self.size_bytes

    @property
    def held(self) -> tuple[tuple[tuple[Parts, ...], ...], ...]:
        """Before the first step and after each: of each GPU and chunk, whose contributions it is made of."""
        states = [begin(self.gpus, len(self.chunk_bytes))]
        for step in self.steps:
            states.append(after(states[-1], step.moves))
        return tuple(states)

    def wanted(self, rank: int, chunk: int) -> Parts | None:
        """What a GPU should hold of a chunk in the end; None: anything."""
        return wanted(self.operation, self.gpus, rank, chunk)


State = tuple[tuple[Parts, ...], ...]


def begin(gpus: int, chunks: int) -> State:
    """Each GPU holds what it brought."""
    return tuple((tuple(int(k == rank) for k in range(gpus)),) * chunks for rank in range(gpus))


def after(state: State, moves: Sequence[Move]) -> State:
    """What each GPU holds after moves that happen at the same time."""
    new = [list(chunks) for chunks in state]
    for move in moves:
        sent, old = state[move.source][move.chunk], new[move.target][move.chunk]
        new[move.target][move.chunk] = (
            tuple(a + b for a, b in zip(old, sent, strict=True)) if move.add else sent
        )
    return tuple(map(tuple, new))


def wanted(operation: Operation, gpus: int, rank: int, chunk: int) -> Parts | None:
    """What a GPU should hold of a chunk in the end; None: anything. The root is GPU 0."""
    every = (1,) * gpus
    match operation:
        case "all-reduce":
            return every
        case "reduce":
            return every if rank == 0 else None
        case "reduce-scatter":
            return every if rank == chunk else None
        case "broadcast":
            return tuple(int(k == 0) for k in range(gpus))
        case "all-gather":
            return tuple(int(k == chunk) for k in range(gpus))
