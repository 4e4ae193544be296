"""Interface of an observer of a launch, for example to find races."""

from __future__ import annotations

from typing import Protocol

import numpy as np
import numpy.typing as npt

from virtualgpu.compile.ptx import ir


class Observer(Protocol):
    """Receives every access of a launch before it happens, in order, from one thread.

    It runs as compiled code, which may call Python for rare events: with the sites of the engine (`layout`)
    or with its own numbers. Arrays of 32 lanes are valid only during the call.
    """

    def watch(self, callback: int) -> tuple[int, int]:
        """Return, for one worker, the address of the observer's code and of its data (``watched``).

        The code takes the context, the number of an access or another site, an address of 32 lanes, a mask of
        lanes, and for a scalar store the address of its 32 values. Shared and local addresses are offsets;
        generic ones have their space's tag. The code may call `callback`, which takes the same arguments and
        calls the methods below.
        """

    def access(self, block: int, warp: int, number: int, addresses: npt.NDArray[np.int64], mask: int) -> bool:
        """Handle an access, by its number.

        True ends the warp's turn, so that others run before its next branch.
        """

    def custom_event(
        self, block: int, warp: int, site: int, lanes: npt.NDArray[np.int64] | None, mask: int, extra: int
    ) -> None:
        """Handle a call of the compiled code with a site that is not one of the engine's."""

    def shuffle(
        self, block: int, warp: int, instruction: ir.Instruction, sources: npt.NDArray[np.int64], mask: int
    ) -> None:
        """Handle a shuffle: the lanes in `mask` each read a register of the lane in `sources`."""

    def barrier(self, block: int, threads: npt.NDArray[np.bool_], is_complete: bool, number: int = 0) -> None:
        """Handle an opened barrier that threads of a block, shape (warps, 32), passed.

        `is_complete`: all that run.
        """

    def wait(self, block: int, warp: int, instruction: ir.Instruction, mask: int, expected: int) -> None:
        """Handle the arrival of lanes at a block-wide barrier where they wait.

        Those `expected` should arrive together.
        """

    def arrive(self, block: int, warp: int, mask: int, number: int) -> None:
        """Handle the arrival of lanes at a barrier without waiting."""
