"""``cp.linalg``: linear algebra through NumPy on the host."""

from __future__ import annotations

from collections.abc import Callable as _Callable

import numpy as np

from virtualgpu.cp._missing_names import make_module_getattr as _module_getattr
from virtualgpu.cp._routines import functions as _functions
from virtualgpu.cp._routines.from_numpy import lift_to_device

__all__ = [
    *(
        "LinAlgError",
        "cholesky",
        "cond",
        "cross",
        "det",
        "eig",
        "eigh",
        "eigvals",
        "eigvalsh",
        "inv",
        "lstsq",
    ),
    *("matmul", "matrix_power", "matrix_rank", "matrix_transpose", "norm", "pinv", "qr", "slogdet"),
    *("solve", "svd", "tensorinv", "tensorsolve"),
]

LinAlgError = np.linalg.LinAlgError


def _make_minimum_ns(fixed_us: float, column_us: float = 0.0) -> _Callable[..., float]:
    """Return a function that computes the minimum time of a factorization with dependent columns.

    The numbers come from times of CuPy 14.2 on an H200 with matrices of 64 rows and, if `column_us` is given,
    of 512 rows.
    """
    return lambda a, *_, **__: 1e3 * (fixed_us + column_us * np.shape(a)[-1])


norm = lift_to_device(np.linalg.norm)
det = lift_to_device(np.linalg.det, compute_minimum_ns=_make_minimum_ns(315, 1.26))
slogdet = lift_to_device(np.linalg.slogdet, compute_minimum_ns=_make_minimum_ns(315, 1.26))
pinv = lift_to_device(np.linalg.pinv)
inv = lift_to_device(np.linalg.inv, compute_minimum_ns=_make_minimum_ns(72, 2.14))
matrix_power = lift_to_device(np.linalg.matrix_power)
solve = lift_to_device(np.linalg.solve, operand_count=2, compute_minimum_ns=_make_minimum_ns(70, 1.89))
lstsq = lift_to_device(np.linalg.lstsq, operand_count=2)
cholesky = lift_to_device(np.linalg.cholesky, compute_minimum_ns=_make_minimum_ns(84))
qr = lift_to_device(np.linalg.qr, compute_minimum_ns=_make_minimum_ns(282))
svd = lift_to_device(np.linalg.svd, compute_minimum_ns=_make_minimum_ns(2514))
eigh = lift_to_device(np.linalg.eigh, compute_minimum_ns=_make_minimum_ns(773))
eigvalsh = lift_to_device(np.linalg.eigvalsh)
matrix_rank = lift_to_device(np.linalg.matrix_rank)
eig = lift_to_device(np.linalg.eig)
eigvals = lift_to_device(np.linalg.eigvals)
cond = lift_to_device(np.linalg.cond)
tensorsolve = lift_to_device(np.linalg.tensorsolve, operand_count=2)
tensorinv = lift_to_device(np.linalg.tensorinv)
cross = _functions.cross
matmul = _functions.matmul
matrix_transpose = _functions.matrix_transpose

__getattr__ = _module_getattr("cp.linalg", globals())
