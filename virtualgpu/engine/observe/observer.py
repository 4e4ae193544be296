"""What looks on while a launch runs, for example to find races."""

from __future__ import annotations

from typing import Protocol

import numpy as np
import numpy.typing as npt

from virtualgpu.compile.ptx import ir


class Observer(Protocol):
    """Sees every access of a launch before it happens, in order, from one thread.

    Arrays of 32 lanes are valid during the call only.
    """

    def access(
        self,
        block: int,
        warp: int,
        i: ir.Instruction,
        addresses: npt.NDArray[np.int64],
        mask: int,
        stored: npt.NDArray[np.int64] | None,
    ) -> bool:
        """An access of the lanes in `mask`, and the bits they store if it is a scalar store.

        Shared and local addresses are offsets; generic ones carry their space's tag. True ends the
        warp's turn: other warps go on before it passes its next branch.
        """

    def warp_sync(self, block: int, warp: int, mask: int, members: npt.NDArray[np.int64]) -> None:
        """Lanes of a warp met at ``__syncwarp``, each with the lanes its own mask names."""

    def shuffle(
        self, block: int, warp: int, i: ir.Instruction, sources: npt.NDArray[np.int64], mask: int
    ) -> None:
        """The lanes in `mask` each read a register of the lane that `sources` names."""

    def fence(self, block: int, warp: int, mask: int) -> None:
        """Lanes of a warp executed a memory fence."""

    def copy(
        self,
        block: int,
        warp: int,
        i: ir.Instruction,
        addresses: npt.NDArray[np.int64],
        mask: int,
        event: int,
    ) -> None:
        """Something happens to what the lanes in `mask` copied with ``cp.async`` to shared memory.

        It arrives as they wait (``layout.BY_WAIT``), is bound to a phase of an mbarrier
        (``TO_BARRIER``), or arrives as the phase ends (``BY_BARRIER``).
        """

    def barrier(self, block: int, threads: npt.NDArray[np.bool_], everyone: bool, number: int = 0) -> None:
        """Threads of a block, shape (warps, 32), passed a barrier; `everyone`: all that live."""

    def wait(self, block: int, warp: int, i: ir.Instruction, mask: int, expected: int) -> None:
        """Lanes of a warp came to a block-wide barrier and wait; those `expected` should come together."""

    def arrive(self, block: int, warp: int, mask: int, number: int) -> None:
        """Lanes of a warp arrived at a barrier and went on."""

    def heap_changes(self) -> None:
        """A kernel is about to call ``malloc`` or ``free``."""

    def block_end(self, block: int) -> None:
        """A block that was told of is over. The last ones of a launch are not announced."""
