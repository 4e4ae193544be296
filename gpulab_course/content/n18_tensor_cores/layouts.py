"""Positions of matrix elements in the registers of lanes: the fragments of ``mma.sync`` (m16n8k16)."""

from __future__ import annotations

SHAPES = {"a": (16, 16), "b": (16, 8), "d": (16, 8)}
"""The rows and columns of the matrices."""


def find_lane_and_register(name: str, row: int, column: int) -> tuple[int, int]:
    """Return the lane and the register that contain an element of the matrix `name`.

    The layout comes from the section "Matrix fragments for mma.m16n8k16 with floating point type" of the PTX
    ISA.

    Examples
    --------
    >>> find_lane_and_register("a", 9, 3)
    (5, 1)
    """
    if name == "b":
        return column * 4 + row % 8 // 2, row // 8
    lane = row % 8 * 4 + column % 8 // 2
    if name == "a":
        return lane, row // 8 + column // 8 * 2
    return lane, row // 8 * 2 + column % 2


def find_lane_element(name: str, row: int, column: int) -> int:
    """Return the index of a matrix element among the elements of its lane, in the order of the registers."""
    _, register = find_lane_and_register(name, row, column)
    if name == "d":
        return register
    return 2 * register + (row if name == "b" else column) % 2
