"""Every fault is an exception that says what, where and in which array, and the process goes on."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tests.engine.faulty_kernels import CATALOGUE, HARMLESS, Faulty, arguments
from virtualgpu import cp
from virtualgpu import cuda_errors as faults
from virtualgpu.compile import nvrtc
from virtualgpu.model import devices
from virtualgpu.model import machine as slot
from virtualgpu.model.machine import Machine

pytestmark = pytest.mark.skipif(not nvrtc.is_available(), reason="NVRTC is not installed")

WATCHDOG_S = 0.6
RAISING = [faulty for faulty in CATALOGUE if faulty.fault is not None and not faulty.nan]


@pytest.fixture(autouse=True)
def machine() -> Machine:
    chosen = Machine([devices.device_info("A100")])
    chosen.devices[0].watchdog_s = WATCHDOG_S
    slot.use(chosen)
    return chosen


def run(faulty: Faulty) -> list[Any]:
    args, _kept = arguments(faulty, cp)
    cp.RawKernel(faulty.code, "k")(
        (faulty.grid,), (faulty.block,), tuple(args), shared_mem=faulty.shared_bytes
    )
    return args


def assert_alive() -> None:
    x = cp.arange(1000, dtype=np.float32)
    double = cp.RawKernel(
        'extern "C" __global__ void k(float* x, int n) {'
        " int i = blockIdx.x * blockDim.x + threadIdx.x; if (i < n) x[i] *= 2; }",
        "k",
    )
    double((4,), (256,), (x, np.int32(1000)))
    assert np.array_equal(x.get(), 2 * np.arange(1000, dtype=np.float32))


def start_of(faulty: Faulty, args: list[Any], position: int) -> int:
    arg = args[position]
    return int(arg) if isinstance(arg, np.generic) else int(arg.data.ptr)


@pytest.mark.parametrize("faulty", RAISING, ids=lambda faulty: faulty.name)
def test_fault(faulty: Faulty) -> None:
    fault = faulty.fault
    assert fault is not None
    args, _kept = arguments(faulty, cp)
    kernel = cp.RawKernel(faulty.code, "k")
    with pytest.raises(faults.KernelFault) as caught:
        kernel((faulty.grid,), (faulty.block,), tuple(args), shared_mem=faulty.shared_bytes)
    error = caught.value
    assert type(error).__name__ == fault.error, str(error)
    assert error.kind == fault.kind
    site = error.site
    assert site.line in faulty.lines(), str(error)
    assert site.source_text == faulty.code.splitlines()[site.line - 1].strip()
    assert site.block == (fault.block or site.block)
    assert site.thread == (fault.thread or site.thread)
    if isinstance(fault.address, tuple):
        position, offset = fault.address
        assert site.address == start_of(faulty, args, position) + offset
    elif fault.address is not None:
        assert site.address == fault.address
    for words in ("kernel 'k'", f"line {site.line}", f"thread {site.thread}", *fault.words):
        assert words in str(error)
    assert_alive()


def test_an_offset_before_a_local_array_is_negative() -> None:
    code = """extern "C" __global__ void k(int* x, int n) {
        int a[8];
        for (int j = 0; j < 8; j++) a[j] = j * n;
        x[threadIdx.x] = a[n];
    }"""
    with pytest.raises(faults.KernelFault, match="read 4 bytes at offset -16 of the thread's own") as caught:
        cp.RawKernel(code, "k")((1,), (32,), (cp.zeros(32, cp.int32), np.int32(-4)))
    assert caught.value.site.address == -16


@pytest.mark.parametrize("faulty", HARMLESS, ids=lambda faulty: faulty.name)
def test_suspicious_but_defined_code_runs_without_a_fault(faulty: Faulty) -> None:
    args = run(faulty)
    assert args[0].get()[: len(faulty.results)].tolist() == list(faulty.results)
    assert_alive()


def test_printf_of_a_bad_string_pointer(machine: Machine) -> None:
    printed: list[str] = []
    machine.stdout = printed.append
    code = r'extern "C" __global__ void k(const char* s) { printf("[%s]\n", s + threadIdx.x); }'
    cp.RawKernel(code, "k")((1,), (2,), (np.uint64(12345),))
    assert "".join(printed).count("[") == 2
    assert_alive()


def test_an_uninitialized_array_is_not_zero() -> None:
    """Uninitialized values are NaN, which is visible in the result; zeros would not be."""
    x = cp.empty(64, dtype=np.float32)
    y = cp.zeros(64, dtype=np.float32)
    cp.RawKernel(
        'extern "C" __global__ void k(const float* x, float* y) { y[threadIdx.x] = x[threadIdx.x] + 1; }', "k"
    )((1,), (64,), (x, y))
    assert np.isnan(y.get()).all()


FUNCTIONS = """
typedef float (*F)(float);
__device__ float square(float x) { return x * x; }
__device__ float (*volatile product)(float, float);
__device__ float times(float x, float y) { return x * y; }
extern "C" __global__ void k(float* x, unsigned long long f) {
    product = times;
    F g = f == 1 ? (F)(void*)product : (F)f;
    x[threadIdx.x] = g(x[threadIdx.x]);
}
"""


@pytest.mark.parametrize(
    ("pointer", "called"),
    [
        (0, "a null pointer"),
        (1, "a pointer to a device function with other parameters"),
        (12345, "the pointer 0x3039, which is not a device function"),
        (None, r"a pointer to the float32 array of shape \(32,\).*, which is not a device function"),
    ],
)
def test_a_call_through_a_bad_pointer_reports_the_pointer(pointer: int | None, called: str) -> None:
    x = cp.ones(32, np.float32)
    with pytest.raises(faults.LaunchFailure, match=f"kernel 'k' called a function through {called}") as error:
        cp.RawKernel(FUNCTIONS, "k")((1,), (32,), (x, x.data.ptr if pointer is None else pointer))
    assert "g(x[threadIdx.x])" in str(error.value)
