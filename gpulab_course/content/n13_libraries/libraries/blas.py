"""A model of a BLAS matrix multiplication: column-major matrices in flat memory with leading dimensions."""

from __future__ import annotations

from typing import Any

import numpy as np


def gemm(
    trans_a: str, trans_b: str, m: int, n: int, k: int, a: Any, lda: int, b: Any, ldb: int, c: Any, ldc: int
) -> None:
    """Compute C = op(A) @ op(B) for column-major matrices. The matrix C has m rows and n columns.

    The interface is that of ``cublasSgemm`` with alpha = 1 and beta = 0 (cuBLAS documentation,
    "cublas<t>gemm()").

    Parameters
    ----------
    trans_a, trans_b
        ``"N"``: op(A) is A, with m rows and k columns. ``"T"``: op(A) is A's transpose, and A has k rows and
        m columns. The same applies to B, with k rows and n columns.
    m, n, k
        Rows of C, columns of C, and the length of the sums.
    a, b, c
        One-dimensional NumPy arrays that start at the matrix's first element.
    lda, ldb, ldc
        Leading dimensions: elements from the start of one column to the next, at least the number of rows.

    Raises
    ------
    ValueError
        For arguments for which cuBLAS returns CUBLAS_STATUS_INVALID_VALUE, and for memory that is too short.

    Examples
    --------
    >>> c = np.zeros(4)
    >>> gemm("N", "N", 2, 2, 1, np.array([1.0, 2.0]), 2, np.array([3.0, 4.0]), 1, c, 2)
    >>> c
    array([3., 6., 4., 8.])
    """
    if trans_a not in ("N", "T") or trans_b not in ("N", "T"):
        raise ValueError("trans_a and trans_b must be 'N' or 'T'.")
    if min(m, n, k) < 0:
        raise ValueError(f"m, n and k must not be negative, but they are {m}, {n} and {k}.")
    a_matrix = _make_matrix_view("a", a, (m, k) if trans_a == "N" else (k, m), lda)
    b_matrix = _make_matrix_view("b", b, (k, n) if trans_b == "N" else (n, k), ldb)
    c_matrix = _make_matrix_view("c", c, (m, n), ldc)
    c_matrix[...] = (a_matrix if trans_a == "N" else a_matrix.T) @ (
        b_matrix if trans_b == "N" else b_matrix.T
    )


def _make_matrix_view(name: str, memory: Any, shape: tuple[int, int], leading_dimension: int) -> Any:
    """Return a view of flat memory as a column-major matrix."""
    rows, columns = shape
    if leading_dimension < max(1, rows):
        raise ValueError(
            f"ld{name} is {leading_dimension}, but it must be at least {max(1, rows)}, "
            f"the length of a column of {name}."
        )
    if not isinstance(memory, np.ndarray) or memory.ndim != 1:
        raise ValueError(f"{name} must be a one-dimensional NumPy array.")
    if rows and columns and leading_dimension * (columns - 1) + rows > memory.size:
        raise ValueError(
            f"{name} ends after {memory.size} elements, within column {memory.size // leading_dimension}."
        )
    stride = memory.strides[0] if memory.size else 0
    return np.lib.stride_tricks.as_strided(memory, shape, (stride, leading_dimension * stride))
