"""Record of a collective operation: the moves of chunks in each step, and the contents of each GPU."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from virtualgpu.records.origin import Provenance
from virtualgpu.records.traffic.ports import Crossing, LinkTopology, PortTraffic

Operation = Literal["all-reduce", "broadcast", "reduce", "all-gather", "reduce-scatter"]
# Number of times that each GPU's contribution is in a sum: one number per GPU.
Parts = tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Move:
    """A transfer of a chunk between GPUs. The target GPU adds the received chunk to its own chunk if ``add``
    is true, and otherwise overwrites its own chunk.
    """

    source: int
    target: int
    chunk: int
    add: bool = False


@dataclass(frozen=True, slots=True)
class CollectiveStep:
    """Simultaneous transfers between GPUs. All transfers read the data as it was before the step.

    ``time_ns`` is the duration of the step, ``copies_ns`` the part of it in which the busiest port is in use,
    0 if not known.
    """

    moves: tuple[Move, ...]
    time_ns: int = 0
    copies_ns: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Collective:
    """A collective operation of several GPUs. Each GPU has an array of `size_bytes` bytes, which is divided
    into chunks.

    ``right`` is true for each GPU with the correct result; ``traffic`` is the traffic through the ports.
    ``begins`` is the number of crossings before each step. ``bytes_are`` describes the origin of its bytes.
    ``in_one_go_ns`` is the time of real GPUs for all steps as one CUDA graph, in which steps can overlap, and
    ``from_host_ns`` the time if the host launches each message separately; 0 if not measured. ``opaque`` is
    true for one call of a library, whose chunks and steps are unknown.
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
        links: LinkTopology,
        bounds: Sequence[int],
        crossings: Sequence[Crossing],
        right: tuple[bool, ...],
        **fields: Any,
    ) -> Collective:
        """Create the record for arrays of 32-bit numbers. The argument `bounds` contains the boundaries of
        the chunks.
        """
        traffic = PortTraffic(provenance=origin, links=links, devices=len(right), crossings=tuple(crossings))
        chunk_bytes = tuple(4 * (end - begin) for begin, end in pairwise(bounds))
        return cls(
            provenance=origin,
            size_bytes=4 * bounds[-1],
            chunk_bytes=chunk_bytes,
            right=right,
            traffic=traffic,
            **fields,
        )

    @property
    def gpus(self) -> int:
        """Number of GPUs in the operation."""
        return len(self.right)

    @property
    def links(self) -> LinkTopology:
        """The topology of the links between the GPUs."""
        return self.traffic.links

    @property
    def time_ns(self) -> int:
        """The measured time of the whole operation in ns, or the sum of the times of its steps if it was not
        measured.
        """
        return self.in_one_go_ns or self.from_host_ns or sum(step.time_ns for step in self.steps)

    @property
    def volume(self) -> float:
        """The traffic of the busiest port in one direction, divided by the size of the data."""
        return self.traffic.busiest_bytes / self.size_bytes

    @property
    def states(self) -> tuple[tuple[tuple[Parts, ...], ...], ...]:
        """The GPUs that have contributed to each chunk of each GPU, at the start and after each step."""
        states = [make_initial_state(self.gpus, len(self.chunk_bytes))]
        for step in self.steps:
            states.append(
                self._apply_library_call(states[-1]) if self.opaque else apply_moves(states[-1], step.moves)
            )
        return tuple(states)

    def _apply_library_call(self, state_before: State) -> State:
        """Return the state after a library's call: the results, and unchanged chunks."""
        return tuple(
            tuple(
                self.expected_contributions(rank, chunk) or contributions
                for chunk, contributions in enumerate(chunks)
            )
            for rank, chunks in enumerate(state_before)
        )

    def expected_contributions(self, rank: int, chunk: int) -> Parts | None:
        """Return which GPUs must have contributed to a chunk of a GPU at the end of the operation. The result
        is None if the operation does not define the final contents of the chunk.
        """
        return find_expected_contributions(self.operation, self.gpus, rank, chunk)


State = tuple[tuple[Parts, ...], ...]


def make_initial_state(gpus: int, chunks: int) -> State:
    """Return the state before the first step, in which each GPU has only its own data."""
    own_contributions = [
        tuple(int(contributor == rank) for contributor in range(gpus)) for rank in range(gpus)
    ]
    return tuple((contributions,) * chunks for contributions in own_contributions)


def apply_moves(state: State, moves: Sequence[Move]) -> State:
    """Return the state after a set of simultaneous transfers."""
    new_state = [list(chunks) for chunks in state]
    for move in moves:
        moved_contributions = state[move.source][move.chunk]
        if move.add:
            own_contributions = new_state[move.target][move.chunk]
            moved_contributions = tuple(
                own_value + moved_value
                for own_value, moved_value in zip(own_contributions, moved_contributions, strict=True)
            )
        new_state[move.target][move.chunk] = moved_contributions
    return tuple(tuple(chunks) for chunks in new_state)


def find_expected_contributions(operation: Operation, gpus: int, rank: int, chunk: int) -> Parts | None:
    """Return which GPUs must have contributed to a chunk of a GPU at the end of the operation. The result is
    None if the operation does not define the final contents of the chunk.

    The root of an operation is GPU 0.
    """
    all_contributions = (1,) * gpus
    match operation:
        case "all-reduce":
            return all_contributions
        case "reduce":
            return all_contributions if rank == 0 else None
        case "reduce-scatter":
            return all_contributions if rank == chunk else None
        case "broadcast":
            return tuple(int(k == 0) for k in range(gpus))
        case "all-gather":
            return tuple(int(k == chunk) for k in range(gpus))


def make_input_arrays(gpus: int, elements: int) -> list[npt.NDArray[np.int32]]:
    """Return the input array of each GPU. The arrays are the same in every process."""
    generator = np.random.default_rng(gpus)
    return [generator.integers(-999, 1000, elements, dtype=np.int32) for _ in range(gpus)]


def is_right(
    operation: Operation,
    rank: int,
    result: npt.NDArray[np.int32],
    bounds: Sequence[int],
    inputs: Sequence[npt.NDArray[np.int32]],
) -> bool:
    """Return whether a GPU has computed the correct result. The argument `bounds` contains the boundaries of
    the chunks.
    """
    for chunk in range(len(bounds) - 1):
        elements = slice(bounds[chunk], bounds[chunk + 1])
        contributions = find_expected_contributions(operation, len(inputs), rank, chunk)
        if contributions is not None:
            sum_elements = sum(
                array[elements] for array, count in zip(inputs, contributions, strict=True) if count
            )
            if not (result[elements] == sum_elements).all():
                return False
    return True


def make_crossings(
    moves: Sequence[Move], bounds: Sequence[int], connections: set[tuple[int, int]], name: str
) -> list[Crossing]:
    """Return the traffic between GPUs, computed from the transfers of chunks if it was not recorded.

    Pairs of GPUs in `connections` use NVLink, and all other pairs use PCIe.
    """
    return [
        Crossing(
            name=name,
            source=move.source,
            target=move.target,
            start_ns=0,
            end_ns=0,
            size_bytes=4 * (bounds[move.chunk + 1] - bounds[move.chunk]),
            over="NVLink" if (move.source, move.target) in connections else "PCIe",
        )
        for move in moves
    ]
