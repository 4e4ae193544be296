"""A product as BLAS has it: column-major, flat memory, leading dimensions, and checks before it runs."""

from __future__ import annotations

from typing import Any

import numpy as np


def gemm(
    trans_a: str, trans_b: str, m: int, n: int, k: int, a: Any, lda: int, b: Any, ldb: int, c: Any, ldc: int
) -> None:
    """Write op(A) @ op(B) into C: all three column-major, C with m rows and n columns.

    As ``cublasSgemm`` with alpha = 1 and beta = 0 (cuBLAS documentation, "cublas<t>gemm()").

    Parameters
    ----------
    trans_a, trans_b
        ``"N"``: op(A) is A, with m rows and k columns. ``"T"``: op(A) is A's transpose, and A has k rows and
        m columns. As for B, with k and n.
    m, n, k
        Rows of C, columns of C, and the length of the sums.
    a, b, c
        NumPy arrays of one dimension: memory from the matrix's first element on.
    lda, ldb, ldc
        Leading dimensions: elements from one column's begin to the next one's, at least its rows.

    Raises
    ------
    ValueError
        For what cuBLAS answers with CUBLAS_STATUS_INVALID_VALUE, and for memory that ends too early.

    Examples
    --------
    >>> c = np.zeros(4)
    >>> gemm("N", "N", 2, 2, 1, np.array([1.0, 2.0]), 2, np.array([3.0, 4.0]), 1, c, 2)
    >>> c
    array([3., 6., 4., 8.])
    """
    if trans_a not in ("N", "T") or trans_b not in ("N", "T"):
        raise ValueError("trans_a and trans_b are 'N' or 'T'.")
    if min(m, n, k) < 0:
        raise ValueError(f"m, n and k are not negative; they are {m}, {n} and {k}.")
    left = _matrix("a", a, (m, k) if trans_a == "N" else (k, m), lda)
    right = _matrix("b", b, (k, n) if trans_b == "N" else (n, k), ldb)
    into = _matrix("c", c, (m, n), ldc)
    into[...] = (left if trans_a == "N" else left.T) @ (right if trans_b == "N" else right.T)


def _matrix(name: str, memory: Any, shape: tuple[int, int], leading: int) -> Any:
    """A column-major matrix in flat memory."""
    rows, columns = shape
    if leading < max(1, rows):
        raise ValueError(f"ld{name} is {leading}, and the columns of {name} have {rows} elements.")
    if not isinstance(memory, np.ndarray) or memory.ndim != 1:
        raise ValueError(f"{name} is flat memory: a NumPy array of one dimension.")
    if rows and columns and leading * (columns - 1) + rows > memory.size:
        raise ValueError(f"{name} ends after {memory.size} elements, within column {memory.size // leading}.")
    item = memory.strides[0] if memory.size else 0
    return np.lib.stride_tricks.as_strided(memory, shape, (item, leading * item))
