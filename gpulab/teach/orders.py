"""Checks that luck cannot pass: other orders of blocks, and the race checker."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from gpulab.lab import kernels
from gpulab.teach.judging import NotYet
from virtualgpu.records import Dim3

Array = npt.NDArray[Any]

ORDERS = (("in order", 0), ("reversed", 0), ("random", 1), ("random", 2))
# Sums of floats in another order differ by roundings.
_RELATIVE = 1e-4


def in_any_order(run: Callable[[], Sequence[Array]], *, case: str) -> list[Array]:
    """Run a kernel with its blocks in several orders and demand the same results of each.

    Parameters
    ----------
    run
        Makes fresh arrays, launches, and returns the results.
    case
        What the message opens with.

    Returns
    -------
    list of numpy.ndarray
        The results in ascending order of blocks.

    Raises
    ------
    NotYet
        If the results depend on the order.
    """
    first: list[Array] = []
    for order, seed in ORDERS:
        with kernels.block_order(order, seed):
            found = [np.asarray(array) for array in run()]
        if not first:
            first = found
            continue
        for one, other in zip(first, found, strict=True):
            if not np.allclose(one, other, rtol=_RELATIVE, atol=0, equal_nan=True):
                raise NotYet(
                    f"{case}: the result depends on the order in which blocks run ({order} gives another "
                    "one), and CUDA promises none. Let blocks work on different elements, or use atomics."
                )
    return first


def without_hazards(
    kernel: Any, grid: Dim3, block: Dim3, args: Sequence[Any], *, case: str, shared_bytes: int = 0
) -> None:
    """Demand that ``gl.sanitize`` finds nothing; arrays hold afterwards what they held before.

    Raises
    ------
    NotYet
        With the first finding: source line, threads and remedy.
    """
    report = kernels.sanitize(kernel, grid, block, args, shared_bytes)
    found = [hazard for hazard in report.hazards if hazard.severity != "info"]
    if found:
        where = f"line {found[0].second.line}: " if found[0].second.line else ""
        raise NotYet(f"{case}: {where}{found[0].message}")
