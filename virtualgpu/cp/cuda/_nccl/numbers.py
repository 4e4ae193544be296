"""Results of NCCL's calls: values are added in the order of a ring, in the data type of the arrays."""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce as fold
from typing import Any

import numpy as np
import numpy.typing as npt

from virtualgpu.cp.cuda._nccl.calls import AVG_OP, BFLOAT16_DTYPE, MAX_OP, MIN_OP, PROD_OP, SUM_OP
from virtualgpu.model.links.rings import make_adding_order, make_chunks

Array = npt.NDArray[Any]
# If one of two numbers is NaN, the GPU's minimum and maximum return the other one.
_UFUNC_OF_OP = {SUM_OP: np.add, AVG_OP: np.add, PROD_OP: np.multiply, MAX_OP: np.fmax, MIN_OP: np.fmin}


def reduce_rank_arrays(rank_arrays: Sequence[Array], dtype: int, op: int) -> Array:
    """Reduce the arrays in the list `rank_arrays` to one array, in the order of the list.

    The integers `dtype` and `op` are NCCL's codes for the data type and the reduction.

    Notes
    -----
    Each sum is rounded to the arrays' type. As in NCCL, the average of floats is the sum of the arrays times
    1/n, and the average of integers is their sum divided by n and truncated.
    """
    rank_count = len(rank_arrays)
    is_bfloat16 = dtype == BFLOAT16_DTYPE
    is_floating = is_bfloat16 or np.issubdtype(rank_arrays[0].dtype, np.floating)
    with np.errstate(all="ignore"):
        if op == AVG_OP and is_floating:
            average_factor = (
                np.float32(1 / rank_count) if is_bfloat16 else rank_arrays[0].dtype.type(1 / rank_count)
            )
            rank_arrays = [
                _convert_to_bfloat16(_convert_to_float32(rank_array) * average_factor)
                if is_bfloat16
                else rank_array * average_factor
                for rank_array in rank_arrays
            ]
        ufunc = _UFUNC_OF_OP[op]
        if is_bfloat16:
            return fold(
                lambda partial_sum, part: _convert_to_bfloat16(
                    ufunc(_convert_to_float32(partial_sum), _convert_to_float32(part))
                ),
                rank_arrays[1:],
                rank_arrays[0],
            )
        result: Array = fold(
            lambda partial_sum, part: ufunc(part, partial_sum), rank_arrays[1:], rank_arrays[0].copy()
        )
        if op == AVG_OP and not is_floating:
            result = (np.sign(result) * (np.abs(result) // rank_count)).astype(result.dtype)
        return result


def all_reduce_rank_arrays(rank_arrays: Sequence[Array], dtype: int, op: int) -> Array:
    """Return the result of an all-reduce of `rank_arrays` with the ring algorithm. The summation of chunk c
    starts at rank c.
    """
    rank_count = len(rank_arrays)
    result = np.empty_like(rank_arrays[0])
    for chunk_index, (chunk_start, chunk_end) in enumerate(make_chunks(rank_arrays[0].size, rank_count)):
        rank_order = make_adding_order(rank_count, (chunk_index - 1) % rank_count)
        result[chunk_start:chunk_end] = reduce_rank_arrays(
            [rank_arrays[rank][chunk_start:chunk_end] for rank in rank_order], dtype, op
        )
    return result


def _convert_to_float32(bits: Array) -> Array:
    """Convert bfloat16 bits to float32, exactly."""
    values: Array = (bits.astype(np.uint32) << 16).view(np.float32)
    return values


def _convert_to_bfloat16(values: Array) -> Array:
    """Round float32 to the bits of the nearest bfloat16, ties to even; NaN stays NaN."""
    bits = values.astype(np.float32).view(np.uint32)
    rounded_bits = (bits + 0x7FFF + ((bits >> 16) & 1)) >> 16
    return np.where(np.isnan(values), 0x7FFF, rounded_bits).astype(np.uint16)
