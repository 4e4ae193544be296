"""What looks on while a launch runs, for example to find races."""

from __future__ import annotations

from typing import Protocol

import numpy as np
import numpy.typing as npt

from virtualgpu.compile.ptx import ir


class Observer(Protocol):
    """Sees every access of a launch before it happens, in order, from one thread.

    It does so in compiled code, which may call Python for what happens rarely: with the sites that the
    engine gives it (`layout`) or with numbers of its own. Arrays of 32 lanes are valid during the call only.
    """

    def watch(self, ask: int) -> tuple[int, int]:
        """For one worker, the address of the code to tell, and what it finds at the context's ``watched``.

        It takes the context, the number of an access or another site, an address of 32 lanes, a mask of
        lanes, and an address of the 32 values that a scalar store stores, if it is one. Shared and local
        addresses are offsets; generic ones carry their space's tag. It may call `ask`, which takes the same
        and calls the methods below.
        """

    def access(self, block: int, warp: int, number: int, addresses: npt.NDArray[np.int64], mask: int) -> bool:
        """An access, by its number. True ends the warp's turn: others go on before its next branch."""

    def asked(
        self, block: int, warp: int, what: int, lanes: npt.NDArray[np.int64] | None, mask: int, extra: int
    ) -> None:
        """What the compiled code asks with a site that is none of the engine's."""

    def shuffle(
        self, block: int, warp: int, i: ir.Instruction, sources: npt.NDArray[np.int64], mask: int
    ) -> None:
        """The lanes in `mask` each read a register of the lane that `sources` names."""

    def barrier(self, block: int, threads: npt.NDArray[np.bool_], everyone: bool, number: int = 0) -> None:
        """Threads of a block, shape (warps, 32), passed a barrier; `everyone`: all that live."""

    def wait(self, block: int, warp: int, i: ir.Instruction, mask: int, expected: int) -> None:
        """Lanes of a warp came to a block-wide barrier and wait; those `expected` should come together."""

    def arrive(self, block: int, warp: int, mask: int, number: int) -> None:
        """Lanes of a warp arrived at a barrier and went on."""
