"""Reading what a learner passes to ``gl.launch`` and its kin: launch shapes and kernel arguments."""

from __future__ import annotations

import operator
from collections.abc import Iterable, Sequence
from typing import Any

from virtualgpu.records import WARP_SIZE, Dim3

Shape = int | Sequence[int]


def launch_dims(grid: Shape, block: Shape) -> tuple[Dim3, Dim3]:
    """Grid (blocks) and block (threads) as three sizes each; one or two may be left out."""
    return dims("grid", grid), dims("block", block)


def dims(name: str, value: Any, least: int = 1) -> Dim3:
    """One to three whole numbers as (x, y, z).

    Raises
    ------
    TypeError, ValueError
        If `value` is anything else; the message says what to write.
    """
    filler = 1 if least else 0
    parts: Iterable[Any] = value if isinstance(value, (tuple, list)) else (value,)
    sizes: list[int] = []
    for part in parts:
        if isinstance(part, float):
            raise TypeError(
                f"`{name}` takes whole numbers, not {part!r}: divide with //, as in (n + 255) // 256."
            )
        try:
            size = operator.index(part)
        except TypeError:
            raise TypeError(
                f"`{name}` is a number or a tuple of one to three numbers, not {value!r}."
            ) from None
        if size < least:
            raise ValueError(f"`{name}` needs every number to be at least {least}; it is {value!r}.")
        sizes.append(size)
    if not 1 <= len(sizes) <= 3:
        raise ValueError(f"`{name}` has one to three dimensions, not {len(sizes)}: {value!r}.")
    x, y, z = (*sizes, filler, filler)[:3]
    return x, y, z


def arguments(args: Any) -> tuple[Any, ...]:
    """The kernel's arguments as a tuple.

    Raises
    ------
    TypeError
        If `args` is a single argument instead of a tuple of them.
    """
    if isinstance(args, (tuple, list)):
        return tuple(args)
    raise TypeError(
        f"`args` is a tuple of the kernel's arguments, even of one: (x,). Got {type(args).__name__}."
    )


def byte_count(value: int) -> int:
    """The dynamic shared memory of a block.

    Raises
    ------
    TypeError, ValueError
        If it is no whole number from 0 up.
    """
    size = dims("shared_bytes", value, least=0)
    return size[0]


def warp_position(grid: Dim3, block: Dim3, block_index: Shape, warp: int) -> tuple[Dim3, int]:
    """A block's index and a warp's number in it, checked against the launch shape.

    Raises
    ------
    ValueError
        If the grid has no such block or the block no such warp.
    """
    index = dims("block_index", block_index, least=0)
    if any(position >= size for position, size in zip(index, grid, strict=True)):
        last = tuple(size - 1 for size in grid)
        raise ValueError(f"`block_index` {index} is outside the grid {grid}: the last block is {last}.")
    warps = -(-block[0] * block[1] * block[2] // WARP_SIZE)
    number = operator.index(warp)
    if not 0 <= number < warps:
        have = "the only warp is 0" if warps == 1 else f"warps are 0 to {warps - 1}"
        raise ValueError(
            f"`warp` {number} is not in a block of {block[0] * block[1] * block[2]} threads: {have}."
        )
    return index, number


def resized(grid: Dim3, block: Dim3, shared_bytes: int, threads: int) -> tuple[Dim3, Dim3, int]:
    """A one-dimensional launch with another block size and at least as many threads.

    Dynamic shared memory grows with the block, as kernels commonly keep so many bytes a thread; it
    does not shrink, for those that do not.
    """
    blocks = -(-grid[0] * block[0] // threads)
    shared = max(shared_bytes, -(-shared_bytes * threads // block[0]))
    return (blocks, 1, 1), (threads, 1, 1), shared


def is_one_dimensional(grid: Dim3, block: Dim3) -> bool:
    """Whether only x counts, so that a change of block size has one meaning."""
    return grid[1:] == (1, 1) and block[1:] == (1, 1)
