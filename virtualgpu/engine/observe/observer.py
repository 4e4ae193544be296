"""Interface of an observer of a launch, for example one that searches for races."""

from __future__ import annotations

from typing import Protocol

import numpy as np
import numpy.typing as npt

from virtualgpu.compile.ptx import ir


class Observer(Protocol):
    """The interface of an object that receives every memory access of a launch just before it happens.

    The observer runs as compiled code, which calls Python only for rare events. Arrays of 32 lanes are valid
    only during the call.
    """

    def watch(self, callback: int) -> tuple[int, int]:
        """Return the addresses of the observer's compiled code and data for one worker.

        The code receives the context, the site number, the lanes' addresses, the lane mask, and stored scalar
        values. Shared and local addresses are offsets; generic ones have their space's tag. The code may call
        `callback`, which takes the same arguments and calls the methods below.
        """

    def access(self, block: int, warp: int, number: int, addresses: npt.NDArray[np.int64], mask: int) -> bool:
        """Handle a memory access, which is identified by its number.

        If the method returns True, other warps run before the next branch of this warp.
        """

    def custom_event(
        self, block: int, warp: int, site: int, lanes: npt.NDArray[np.int64] | None, mask: int, extra: int
    ) -> None:
        """Handle an event that the observer's own compiled code has reported. The observer chooses the site
        number, which has no meaning for the engine.
        """

    def shuffle(
        self, block: int, warp: int, instruction: ir.Instruction, sources: npt.NDArray[np.int64], mask: int
    ) -> None:
        """Handle a shuffle, in which each lane of `mask` reads a register of its lane in `sources`."""

    def barrier(self, block: int, threads: npt.NDArray[np.bool_], is_complete: bool, number: int = 0) -> None:
        """Handle a barrier that threads of a block have passed. The array `threads` has the shape (warps,
        32).

        `is_complete` is true if these are all running threads.
        """

    def wait(self, block: int, warp: int, instruction: ir.Instruction, mask: int, expected: int) -> None:
        """Handle the arrival of lanes that wait at a barrier of the block.

        The mask `expected` contains the lanes that should arrive together.
        """

    def arrive(self, block: int, warp: int, mask: int, number: int) -> None:
        """Handle the arrival of lanes that do not wait at a barrier of the block."""
