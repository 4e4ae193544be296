"""Orders in which the blocks of a grid run; a correct kernel gives the same result with each order."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

IN_ORDER = "in order"
REVERSED = "reversed"
RANDOM = "random"
IN_TURNS = "in turns"
ORDERS = (IN_ORDER, REVERSED, RANDOM, IN_TURNS)


def block_sequence(order: str, blocks: int, seed: int = 0) -> npt.NDArray[np.int64]:
    """Return the linear numbers of all blocks in the order in which the blocks run.

    Parameters
    ----------
    order
        ``"in order"``, ``"reversed"``, ``"random"`` or ``"in turns"``: random order, and at each barrier of a
        block another one continues (`turns_seed`).
    blocks
        Blocks in the grid.
    seed
        Seed of random orders: the same seed gives the same order.

    Raises
    ------
    ValueError
        For any other name.
    """
    if order == IN_ORDER:
        return np.arange(blocks, dtype=np.int64)
    if order == REVERSED:
        return np.arange(blocks - 1, -1, -1, dtype=np.int64)
    if order in (RANDOM, IN_TURNS):
        return np.random.default_rng(seed).permutation(blocks).astype(np.int64)
    raise ValueError(f"`block_order` must be one of {', '.join(map(repr, ORDERS))}, not {order!r}.")


def turns_seed(order: str, seed: int) -> int | None:
    """Return the random seed for the block order ``"in turns"``, or None for any other block order."""
    return seed if order == IN_TURNS else None
