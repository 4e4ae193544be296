"""Libraries that calls end in, on a GPU: `gl.library_calls` sees them, and the recorder counts routines."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import gpulab as gl
from tools.recordings.call_cases import CallCase, list_cases
from tools.recordings.calls import _LIBRARIES, _run_case
from tools.recordings.library_calls import LibraryCalls

pytestmark = pytest.mark.gpu


def case(package: str, name: str, dtype: str = "float32") -> CallCase:
    return next(each for each in list_cases(package) if (each.name, each.dtype) == (name, dtype))


@pytest.fixture(scope="module")
def watched() -> LibraryCalls:
    return LibraryCalls(_LIBRARIES, "^lib(cu|nccl)")


@pytest.mark.parametrize(
    ("name", "dtype", "begins"),
    [
        ("fft", "complex64", "cufft"),
        ("rfft", "float32", "cufft"),
        ("solve", "float32", "cusolver"),
        ("qr", "float64", "cusolver"),
        ("svd", "float32", "cusolver"),
        ("eigh", "float32", "cusolver"),
        ("cholesky", "float32", "cusolver"),
        ("matmul", "float32", "cublas"),
        ("sparse by vector", "float32", "cusparse"),
        ("random", "float64", "curand"),
    ],
)
def test_routines_of_cupy(name: str, dtype: str, begins: str, cp: Any, watched: LibraryCalls) -> None:
    sparse = importlib.import_module("cupyx.scipy.sparse")
    routines, kernels = _run_case(case("cupy", name, dtype), {"xp": cp, "np": np, "sparse": sparse}, watched)
    assert any(routine.startswith(begins) for routine, _ in routines), (routines, kernels)
    assert kernels


@pytest.mark.parametrize(
    ("name", "dtype", "begins"),
    [
        ("conv2d", "float32", "cudnn"),
        ("fft", "complex64", "cufft"),
        ("solve", "float32", "cusolver"),
        ("sparse by matrix", "float32", "cusparse"),
        ("matmul", "float16", "cublas"),
        ("addmm, gelu", "float16", "cublasLt"),
    ],
)
def test_routines_of_pytorch(name: str, dtype: str, begins: str, watched: LibraryCalls) -> None:
    torch = pytest.importorskip("torch")
    space = {"xp": torch, "np": np, "F": torch.nn.functional}
    routines, kernels = _run_case(case("torch", name, dtype), space, watched)
    assert any(routine.startswith(begins) for routine, _ in routines), (routines, kernels)
    assert kernels


@pytest.mark.parametrize(
    ("call", "library"),
    [
        (lambda cp, x: cp.fft.fft(x), "cuFFT"),
        (lambda cp, x: cp.sort(x), "CUB"),
        (lambda cp, x: x.reshape(1024, -1) @ x.reshape(-1, 1024), "cuBLAS"),
        (lambda cp, x: x + x, "CuPy's own"),
    ],
)
def test_library_calls_are_detected_on_a_gpu(call: Callable[..., Any], library: str, cp: Any) -> None:
    x = cp.ones(1 << 20, cp.float32)
    call(cp, x)
    report = gl.library_calls(call, cp, x)
    assert library in report.libraries, report.describe()
    assert report.record.provenance.source == "measured"
