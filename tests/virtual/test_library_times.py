"""Modelled times of transforms and factorizations against those of CuPy 14.2 on an H200."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import virtualgpu.cp as cp

pytestmark = pytest.mark.usefixtures("two_gpus")

LONG = 1 << 23


def matrix(n: int) -> Any:
    return cp.asarray(np.eye(n, dtype=np.float32) * 3 + 1)


# What runs, on an array made by the second, and the microseconds that it took.
RECORDED: dict[str, tuple[Callable[[Any], Any], Callable[[], Any], float]] = {
    "fft": (cp.fft.fft, lambda: cp.ones(LONG, cp.complex64), 153.6),
    "ifft": (cp.fft.ifft, lambda: cp.ones(LONG, cp.complex64), 191.9),
    "rfft": (cp.fft.rfft, lambda: cp.ones(LONG, cp.float32), 101.7),
    "irfft": (cp.fft.irfft, lambda: cp.ones(LONG // 2 + 1, cp.complex64), 170.9),
    "fft2": (cp.fft.fft2, lambda: cp.ones((4096, 4096), cp.complex64), 275.8),
    "fft of rows": (cp.fft.fft, lambda: cp.ones((4096, 4096), cp.complex64), 111.1),
    "solve 64": (lambda a: cp.linalg.solve(a, a[0]), lambda: matrix(64), 190.2),
    "solve 512": (lambda a: cp.linalg.solve(a, a[0]), lambda: matrix(512), 1036.5),
    "inv 64": (cp.linalg.inv, lambda: matrix(64), 208.8),
    "inv 512": (cp.linalg.inv, lambda: matrix(512), 1168.8),
    "det 64": (cp.linalg.det, lambda: matrix(64), 395.9),
    "det 512": (cp.linalg.det, lambda: matrix(512), 960.0),
    "cholesky 64": (cp.linalg.cholesky, lambda: matrix(64), 83.9),
    "qr 64": (cp.linalg.qr, lambda: matrix(64), 282.1),
    "eigh 64": (cp.linalg.eigh, lambda: matrix(64), 773.2),
    "svd 64": (cp.linalg.svd, lambda: matrix(64), 2514.0),
}


@pytest.mark.parametrize("name", RECORDED)
def test_modelled_library_times_are_close_to_recorded_times(name: str) -> None:
    run, make, took_us = RECORDED[name]
    x = make()
    begin = cp.cuda.Event()
    end = cp.cuda.Event()
    cp.cuda.Device().synchronize()
    begin.record()
    run(x)
    end.record()
    end.synchronize()
    modelled_us = cp.cuda.get_elapsed_time(begin, end) * 1e3
    assert took_us / 1.5 <= modelled_us <= took_us * 1.5
