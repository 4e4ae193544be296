"""``cp.linalg``: linear algebra through NumPy on the host."""

from __future__ import annotations

import numpy as np

from virtualgpu.cp._missing_names import module_getattr as _module_getattr
from virtualgpu.cp._routines import functions as _functions
from virtualgpu.cp._routines.from_numpy import lift

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

norm, det, slogdet = lift(np.linalg.norm), lift(np.linalg.det), lift(np.linalg.slogdet)
inv, pinv, matrix_power = lift(np.linalg.inv), lift(np.linalg.pinv), lift(np.linalg.matrix_power)
solve, lstsq = lift(np.linalg.solve, operands=2), lift(np.linalg.lstsq, operands=2)
cholesky, qr, svd = lift(np.linalg.cholesky), lift(np.linalg.qr), lift(np.linalg.svd)
eigh, eigvalsh, matrix_rank = lift(np.linalg.eigh), lift(np.linalg.eigvalsh), lift(np.linalg.matrix_rank)
eig, eigvals, cond = lift(np.linalg.eig), lift(np.linalg.eigvals), lift(np.linalg.cond)
tensorsolve, tensorinv = lift(np.linalg.tensorsolve, operands=2), lift(np.linalg.tensorinv)
cross, matmul, matrix_transpose = _functions.cross, _functions.matmul, _functions.matrix_transpose

__getattr__ = _module_getattr("cp.linalg", globals())
