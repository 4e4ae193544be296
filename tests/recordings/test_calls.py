"""The recorder of `gl.library_calls`: its cases, its counts, and output that is cut off."""

from __future__ import annotations

import json
import math
import platform
import sys
import zlib
from collections import Counter
from typing import Any

import numpy as np
import pytest

import gpulab as gl
from gpulab import session
from tools.recordings import calls
from tools.recordings.call_cases import LARGE, MEDIUM, CallCase, list_cases
from tools.recordings.library_calls import LibraryCalls
from virtualgpu.records.libraries.known import read_known_calls
from virtualgpu.records.libraries.operations import operation_of

# Operations of several steps, copies of the driver, and kernels of the virtual GPU's own.
UNTOLD = {"copy", "transpose copy", "softmax by hand", "Generator.random"}
BY_NAME = {case.name: case for case in list_cases("cupy") if case.size == "small" or case.name == "where"}


@pytest.mark.parametrize("name", sorted(set(BY_NAME) - UNTOLD))
def test_a_case_is_recorded_under_the_key_of_the_virtual_gpu(name: str) -> None:
    case = BY_NAME[name]
    if case.layout == "CSR":
        pytest.skip("the virtual GPU has no sparse matrices")
    gl.use_device("virtual:T4")
    function = case.function({"xp": gl.cp, "np": np})
    machine = session.virtual_side().machine
    machine.library_calls = []
    try:
        function()
        operations = [operation_of(call) for call in machine.library_calls]
    finally:
        machine.library_calls = None
    assert case.key in [[o.package, o.name, o.dtype, o.size, o.layout] for o in operations]


@pytest.mark.parametrize("package", ["cupy", "torch"])
def test_cases_of_libraries_come_before_elementwise_ones(package: str) -> None:
    common = ["fft", "rfft", "fft2", "solve", "inv", "svd", "qr", "eigh", "cholesky", "sort", "cumsum"]
    own = {
        "cupy": ["sparse by vector", "sparse by matrix", "random"],
        "torch": ["conv2d", "sparse by matrix", "addmm, gelu", "attention"],
    }
    names = [case.name for case in list_cases(package)]
    assert names.index("add") > max(names.index(name) for name in (*common, *own[package]))


@pytest.mark.skipif(
    sys.platform != "linux" or platform.machine() != "x86_64", reason="tables of Linux on x86-64"
)
def test_shared_library_calls_are_counted_and_still_work() -> None:
    watched = LibraryCalls("erf$|crc32$", "^libnothing")
    before = math.erf(0.25), zlib.crc32(b"course")
    if not watched.watch():
        pytest.skip("this Python has these functions built in")
    after = math.erf(0.25), zlib.crc32(b"course")  # the loader may look names up only now
    watched.watch()
    watched.clear()
    for _ in range(5):
        math.erf(0.25)
    assert watched.counted()["erf"] == 5
    assert before == after == (math.erf(0.25), zlib.crc32(b"course"))
    watched.clear()
    assert not watched.counted()


# Routines that compute, and some that only prepare; in the order of the names.
WORKING = """
cublasLtMatmul cublasSgemm_v2 cudnnBackendExecute cufftExecC2C cufftXtExec curandGenerateUniformDouble
cusolverDnSgetrf cusolverDnSgetrs cusparseSpMV
"""
PREPARING = """
cusolverDnSgetrf_bufferSize cusolverDnCreate cublasSetStream_v2 cublasGetMathMode cublasLtMatmulDescInit
cublasLtMatmulAlgoGetHeuristic cublasLtMatrixLayoutCreate cufftMakePlan1d cusparseSpMV_bufferSize
cusparseCreateCsr cudnnBackendSetAttribute cudnnBackendFinalize curandSetStream
"""


def test_setup_routines_are_left_out() -> None:
    called = Counter([*PREPARING.split(), *WORKING.split()])
    assert [name for name, _ in calls.filter_working_routines(called)] == WORKING.split()


def line(case: CallCase, **values: Any) -> str:
    return json.dumps({"key": case.key, "routines": [["cufftExecC2C", 1]], "kernels": [["k", 2]], **values})


def test_truncated_output_keeps_its_complete_lines() -> None:
    first, second, *_ = list_cases("cupy")
    failing = list_cases("torch")[0]
    data = calls.join(
        [
            json.dumps({"device": "NVIDIA Test", "date": "2026-01-02", "versions": {"CuPy": "14"}}),
            line(second),
            json.dumps({"key": failing.key, "error": "RuntimeError: none"}),
            line(first),
            line(first)[:40],
        ]
    )
    assert data.pop("notes") == [f"{' '.join(failing.key)}: RuntimeError: none"]
    known = read_known_calls(json.loads(json.dumps(data)), "planted")
    assert known.provenance.label == "recorded on NVIDIA Test (2026-01-02, CuPy 14)"
    names = [ending.operation.name for ending in known.endings if ending.operation]
    assert names == [first.name, second.name]  # in the order of the cases
    assert known.endings[0].libraries == ("cuFFT",)


def test_large_cases_leave_out_slow_operations() -> None:
    large = {case.name for case in list_cases("torch") if case.size == LARGE}
    assert "solve" in large
    assert not large & {"svd", "eigh", "pinv"}
    assert {case.size for case in list_cases("torch") if case.name == "svd"} == {"small", MEDIUM}
