"""A collective operation as it went: who sent which chunk to whom in each step, and what each GPU held."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from virtualgpu.records.origin import Provenance
from virtualgpu.records.traffic.ports import Crossing, LinkKind, PortTraffic

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
    step takes, ``copies_ns`` the part of it in which the busiest port is used, 0 if that is not known."""

    moves: tuple[Move, ...]
    time_ns: int = 0
    copies_ns: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Collective:
    """A collective operation among GPUs that each begin with an array of `size_bytes`, cut into chunks.

    ``right`` says of each GPU whether it ended with what it should; ``traffic`` is what passed the ports.
    ``begins`` has the number of crossings before each step. ``bytes_are`` says how its bytes are known;
    ``in_one_go_ns`` is what real GPUs took for all steps as one CUDA graph, in which steps may overlap, and
    ``from_host_ns`` what they took with the host giving them message by message; 0 if that was not tried.
    ``opaque``: one call of a library, which tells neither chunks nor steps.
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
    bytes_are: str = "counted at the ports"
    in_one_go_ns: int = 0
    from_host_ns: int = 0
    opaque: bool = False

    @classmethod
    def of(
        cls,
        origin: Provenance,
        links: LinkKind,
        bounds: Sequence[int],
        crossings: Sequence[Crossing],
        right: tuple[bool, ...],
        **more: Any,
    ) -> Collective:
        """That of arrays of 32-bit numbers whose chunks lie between `bounds`."""
        traffic = PortTraffic(provenance=origin, links=links, devices=len(right), crossings=tuple(crossings))
        widths = tuple(4 * (end - begin) for begin, end in pairwise(bounds))
        return cls(
            provenance=origin,
            size_bytes=4 * bounds[-1],
            chunk_bytes=widths,
            right=right,
            traffic=traffic,
            **more,
        )

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
        """In one go where that was measured, else all steps, one after another."""
        return self.in_one_go_ns or self.from_host_ns or sum(step.time_ns for step in self.steps)

    @property
    def volume(self) -> float:
        """What passed the busiest port in one direction, over the size of the data."""
        return self.traffic.busiest_bytes / self.size_bytes

    @property
    def held(self) -> tuple[tuple[tuple[Parts, ...], ...], ...]:
        """Before the first step and after each: of each GPU and chunk, whose contributions it is made of."""
        states = [begin(self.gpus, len(self.chunk_bytes))]
        for step in self.steps:
            states.append(self._wanted(states[-1]) if self.opaque else after(states[-1], step.moves))
        return tuple(states)

    def _wanted(self, before: State) -> State:
        """What a library leaves behind: results where there are any."""
        return tuple(
            tuple(self.wanted(rank, chunk) or old for chunk, old in enumerate(chunks))
            for rank, chunks in enumerate(before)
        )

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
        sent = state[move.source][move.chunk]
        old = new[move.target][move.chunk]
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


def brought(gpus: int, elements: int) -> list[npt.NDArray[np.int32]]:
    """An array for each GPU; the same ones in every process."""
    rng = np.random.default_rng(gpus)
    return [rng.integers(-999, 1000, elements, dtype=np.int32) for _ in range(gpus)]


def is_right(
    operation: Operation,
    rank: int,
    found: npt.NDArray[np.int32],
    bounds: Sequence[int],
    own: Sequence[npt.NDArray[np.int32]],
) -> bool:
    """Whether a GPU ends with what it should, given what all brought; chunks lie between `bounds`."""
    for chunk in range(len(bounds) - 1):
        here = slice(bounds[chunk], bounds[chunk + 1])
        parts = wanted(operation, len(own), rank, chunk)
        if parts is not None:
            sums = sum(array[here] for array, n in zip(own, parts, strict=True) if n)
            if not (found[here] == sums).all():
                return False
    return True


def crossings_of(
    moves: Sequence[Move], bounds: Sequence[int], joined: set[tuple[int, int]], name: str
) -> list[Crossing]:
    """What passes the ports as it follows from moves, where nobody watches; `joined` go over NVLink."""
    return [
        Crossing(
            name=name,
            source=move.source,
            target=move.target,
            start_ns=0,
            end_ns=0,
            size_bytes=4 * (bounds[move.chunk + 1] - bounds[move.chunk]),
            over="NVLink" if (move.source, move.target) in joined else "PCIe",
        )
        for move in moves
    ]
