"""Cost of a kernel's instructions for warps and SMs, as `virtualgpu.launch.pace` computes it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

# Latencies of global memory, in clocks, for which the pace of a piece is computed; in between it is
# interpolated.
LATENCIES = (0.0, 40.0, 280.0, 700.0, 1500.0)


@dataclass(frozen=True, slots=True)
class CopyWait:
    """A place in a kernel where a thread waits for groups of asynchronous copies.

    Attributes
    ----------
    wait_piece : int
        The piece with the wait.
    pending_groups : int
        Number of younger groups that may still be in flight.
    loop_pieces : tuple of int
        The pieces of the loop that starts the copies and waits for them; empty without a loop.
    pieces_between : tuple of int
        The pieces from the start of a group to the next wait.
    copy_pcs : tuple of int
        Program counters of the copies.
    """

    wait_piece: int
    pending_groups: int
    loop_pieces: tuple[int, ...]
    pieces_between: tuple[int, ...]
    copy_pcs: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Pace:
    """The modelled cost of one execution of each piece of a kernel's PTX by a warp.

    Attributes
    ----------
    pipe_instructions : array, shape (pieces, pipes)
        Warp instructions by `virtualgpu.model.cost.instructions.PIPES`.
    chain_clk : array, shape (pieces, latencies)
        Clocks that a warp takes alone, if global memory takes each of `LATENCIES`.
    load_pcs : tuple of tuple of int
        The program counters of each piece's loads from global memory (`AccessCounters.pc`).
    combined_atomic_pcs : frozenset of int
        Program counters of atomics that one lane executes for its warp.
    chased_load_pcs : frozenset of int
        Program counters of loads whose address depends on the result of another load.
    merged_load_shares : mapping
        Share of a load from shared memory in an instruction that reads several words per lane.
    copy_waits : tuple of CopyWait
        The waits for asynchronous copies.
    phases : tuple of int
        For each piece the number of its phase, the code between barriers of a block.
    piece_by_pc : mapping
        The pieces of instructions, by their program counters.
    """

    pipe_instructions: npt.NDArray[np.float64]
    chain_clk: npt.NDArray[np.float64]
    load_pcs: tuple[tuple[int, ...], ...]
    combined_atomic_pcs: frozenset[int] = frozenset()
    merged_load_shares: Mapping[int, float] = field(default_factory=dict)
    chased_load_pcs: frozenset[int] = frozenset()
    copy_waits: tuple[CopyWait, ...] = ()
    phases: tuple[int, ...] = ()
    piece_by_pc: Mapping[int, int] = field(default_factory=dict)
