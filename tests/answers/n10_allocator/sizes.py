"""Wrong and right answers to 10-predict, of notebook 10."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from gpulab_course.content.n10_allocator.exercises import MIB, after_one, round_up

Four = tuple[int, int, int, int]


def exact(size: int) -> Four:
    """Takes blocks to the byte."""
    used, _, _, torch = after_one(size)
    return size, used, size, torch


def rounds_down(size: int) -> Four:
    """Rounds down."""
    return (size // 512 * 512, *after_one(size)[1:])


def pages_in_cupy(size: int) -> Four:
    """Gives CuPy's pool pages of 2 MiB."""
    used, _, torch_used, torch = after_one(size)
    return used, round_up(size, 2 * MIB), torch_used, torch


def same_in_both(size: int) -> Four:
    """Takes PyTorch's pool for CuPy's."""
    used, reserved, *_ = after_one(size)
    return used, reserved, used, reserved


def always_two_mib(size: int) -> Four:
    """Rounds all segments to 2 MiB."""
    used, reserved, torch_used, _ = after_one(size)
    return used, reserved, torch_used, round_up(used, 2 * MIB)


def always_cuts(size: int) -> Four:
    """Cuts every block to its size."""
    used, reserved, _, torch = after_one(size)
    return used, reserved, used, torch


def limit_at(small: int, large: int) -> Callable[[int], Four]:
    """Has its limits elsewhere."""

    def answer(size: int) -> Four:
        used, reserved, torch_used, _ = after_one(size)
        torch = 2 * MIB if size <= small else 20 * MIB if size < large else round_up(used, 2 * MIB)
        return used, reserved, torch_used, torch if size else 0

    return answer


def cuts_at_one_mib(size: int) -> Four:
    """Cuts a large block where just 1 MiB is left."""
    used, reserved, torch_used, torch = after_one(size)
    return used, reserved, used if torch - used == MIB else torch_used, torch


def small_by_asked(size: int) -> Four:
    """The limit of 1 MiB on what was asked for, not on the block: the same, since 1 MiB is a multiple."""
    used, reserved, torch_used, _ = after_one(size)
    torch = 2 * MIB if size <= MIB else 20 * MIB if used < 10 * MIB else round_up(size, 2 * MIB)
    return used, reserved, torch_used, torch if size else 0


def block_for_nothing(size: int) -> Four:
    """Gives a block for nothing."""
    return after_one(max(size, 1))


def with_a_table(size: int) -> Any:
    """A table of limits."""
    block = (size + 511) & ~511
    for most, segment in ((0, 0), (1 << 20, 2 << 20), ((10 << 20) - 1, 20 << 20)):
        if block <= most:
            return [block, block, block, segment]
    segment = (block + (2 << 20) - 1) & -(2 << 20)
    return [block, block, segment if segment - block <= 1 << 20 else block, segment]


def by_numpy(size: int) -> Any:
    """In MiB, by NumPy."""
    block = int(np.ceil(size / 512)) * 512
    mib = block / MIB
    torch = 0 if not block else 2 if mib <= 1 else 20 if mib < 10 else 2 * int(np.ceil(mib / 2))
    whole = mib > 1 and torch - mib <= 1
    return block, block, torch * MIB if whole else block, torch * MIB
