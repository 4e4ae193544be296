"""The recorder of `gl.library_calls`: its cases, its counts, and what it makes of output that is cut off."""

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
from tools.recordings.call_cases import LARGE, MEDIUM, CallCase, cases
from tools.recordings.library_calls import LibraryCalls
from virtualgpu.records.libraries.known import known_calls
from virtualgpu.records.libraries.operations import operation_of

# What the virtual GPU does in several steps, as copies of the driver, or by a kernel of its own.
UNTOLD = {"copy", "transpose copy", "softmax by hand", "Generator.random"}
BY_NAME = {case.name: case for case in cases("cupy") if case.size == "small" or case.name == "where"}


@pytest.mark.parametrize("name", sorted(set(BY_NAME) - UNTOLD))
def test_a_case_is_recorded_under_the_key_that_the_virtual_gpu_asks_for(name: str) -> None:
    case = BY_NAME[name]
    if case.layout == "CSR":
        pytest.skip("the virtual GPU has no sparse matrices")
    gl.use_device("virtual:T4")
    function = case.function({"xp": gl.cp, "np": np})
    machine = session.virtual_side().machine
    machine.library_calls = []
    try:
        function()
        told = [operation_of(each) for each in machine.library_calls]
    finally:
        machine.library_calls = None
    keys = [[one.package, one.name, one.dtype, one.size, one.layout] for one in told]
    assert case.key in keys


def test_all_libraries_have_cases_and_come_before_what_all_know() -> None:
    wanted: dict[str, tuple[str, ...]] = {
        "cupy": (
            "fft",
            "rfft",
            "fft2",
            "solve",
            "inv",
            "svd",
            "qr",
            "eigh",
            "cholesky",
            "sparse by vector",
            "sparse by matrix",
            "sort",
            "cumsum",
            "random",
            "add",
        ),
        "torch": (
            "conv2d",
            "fft",
            "rfft",
            "fft2",
            "solve",
            "inv",
            "svd",
            "qr",
            "eigh",
            "cholesky",
            "sparse by matrix",
            "sort",
            "cumsum",
            "addmm, gelu",
            "attention",
            "add",
        ),
    }
    for package, names in wanted.items():
        found = [case.name for case in cases(package)]
        assert set(names) <= set(found)
        assert found.index("add") > max(found.index(name) for name in names[:-1])


@pytest.mark.skipif(
    sys.platform != "linux" or platform.machine() != "x86_64", reason="tables of Linux on x86-64"
)
def test_calls_of_a_shared_library_are_counted_and_go_on() -> None:
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


def test_routines_that_only_prepare_are_left_out() -> None:
    called = Counter(
        [
            "cusolverDnSgetrf",
            "cusolverDnSgetrf_bufferSize",
            "cusolverDnSgetrs",
            "cusolverDnCreate",
            "cublasSetStream_v2",
            "cublasGetMathMode",
            "cublasSgemm_v2",
            "cublasLtMatmul",
            "cublasLtMatmulDescInit",
            "cufftExecC2C",
            "cufftXtExec",
            "cublasLtMatmulAlgoGetHeuristic",
            "cublasLtMatrixLayoutCreate",
            "cufftMakePlan1d",
            "cusparseSpMV",
            "cusparseSpMV_bufferSize",
            "cusparseCreateCsr",
            "cudnnBackendExecute",
            "cudnnBackendSetAttribute",
            "cudnnBackendFinalize",
            "curandGenerateUniformDouble",
            "curandSetStream",
        ]
    )
    assert [name for name, _ in calls.working(called)] == [
        "cublasLtMatmul",
        "cublasSgemm_v2",
        "cudnnBackendExecute",
        "cufftExecC2C",
        "cufftXtExec",
        "curandGenerateUniformDouble",
        "cusolverDnSgetrf",
        "cusolverDnSgetrs",
        "cusparseSpMV",
    ]


def line(case: CallCase, **more: Any) -> str:
    return json.dumps({"key": case.key, "routines": [["cufftExecC2C", 1]], "kernels": [["k", 2]], **more})


def test_what_was_written_until_time_was_up_is_kept() -> None:
    first, second, *_ = cases("cupy")
    told = calls.join(
        [
            json.dumps({"device": "NVIDIA Test", "date": "2026-01-02", "versions": {"CuPy": "14"}}),
            line(second),
            json.dumps({"key": cases("torch")[0].key, "error": "RuntimeError: none"}),
            line(first),
            line(first)[:40],
        ]
    )
    assert told.pop("notes") == [f"{' '.join(cases('torch')[0].key)}: RuntimeError: none"]
    known = known_calls(json.loads(json.dumps(told)), "planted")
    assert known.provenance.label == "recorded on NVIDIA Test (2026-01-02, CuPy 14)"
    names = [each.operation.name for each in known.endings if each.operation]
    assert names == [first.name, second.name]  # in the order of the cases
    assert known.endings[0].libraries == ("cuFFT",)


def test_large_cases_leave_out_what_takes_seconds() -> None:
    large = {case.name for case in cases("torch") if case.size == LARGE}
    assert "solve" in large
    assert not large & {"svd", "eigh", "pinv"}
    assert {case.size for case in cases("torch") if case.name == "svd"} == {"small", MEDIUM}
