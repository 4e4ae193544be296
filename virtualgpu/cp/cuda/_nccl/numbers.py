"""What the calls compute: sums in the order in which a ring adds them, in the arrays' own type."""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce as fold
from typing import Any

import numpy as np
import numpy.typing as npt

from virtualgpu.cp.cuda._nccl.calls import AVG, BFLOAT16, MAX, MIN, PROD, SUM
from virtualgpu.model.links.rings import adding_order, chunks

Array = npt.NDArray[Any]
# Of two numbers one of which is NaN, the GPU's minimum and maximum give the other.
_FUNCTIONS = {SUM: np.add, AVG: np.add, PROD: np.multiply, MAX: np.fmax, MIN: np.fmin}


def reduced(parts: Sequence[Array], dtype: int, op: int) -> Array:
    """The parts of all ranks, in the order in which they are added; `dtype` and `op` are NCCL's numbers.

    Notes
    -----
    Each sum is rounded to the arrays' type. As in NCCL, the average of floats is the sum of the parts times
    1/n, that of integers their sum by n, cut off.
    """
    n = len(parts)
    bits = dtype == BFLOAT16
    floats = bits or np.issubdtype(parts[0].dtype, np.floating)
    with np.errstate(all="ignore"):
        if op == AVG and floats:
            by = np.float32(1 / n) if bits else parts[0].dtype.type(1 / n)
            parts = [_bits(_wide(part) * by) if bits else part * by for part in parts]
        function = _FUNCTIONS[op]
        if bits:
            return fold(lambda sums, part: _bits(function(_wide(sums), _wide(part))), parts[1:], parts[0])
        total: Array = fold(lambda sums, part: function(part, sums), parts[1:], parts[0].copy())
        if op == AVG and not floats:
            total = (np.sign(total) * (np.abs(total) // n)).astype(total.dtype)
        return total


def all_reduced(parts: Sequence[Array], dtype: int, op: int) -> Array:
    """The whole of an all-reduce: chunk c is added from rank c on round the ring."""
    n = len(parts)
    found = np.empty_like(parts[0])
    for chunk, (start, end) in enumerate(chunks(parts[0].size, n)):
        order = adding_order(n, (chunk - 1) % n)
        found[start:end] = reduced([parts[rank][start:end] for rank in order], dtype, op)
    return found


def _wide(bits: Array) -> Array:
    """bfloat16 as float32, exactly."""
    wide: Array = (bits.astype(np.uint32) << 16).view(np.float32)
    return wide


def _bits(values: Array) -> Array:
    """float32 rounded to the nearest bfloat16, ties to even; NaN stays NaN."""
    raw = values.astype(np.float32).view(np.uint32)
    rounded = (raw + 0x7FFF + ((raw >> 16) & 1)) >> 16
    return np.where(np.isnan(values), 0x7FFF, rounded).astype(np.uint16)
