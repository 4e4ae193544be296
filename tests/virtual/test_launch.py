"""Launches as values, arguments without a source, and names of compiled kernels."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from virtualgpu import cp
from virtualgpu.compile import nvrtc
from virtualgpu.compile.ptx import ir
from virtualgpu.cuda_errors import CUDADriverError
from virtualgpu.errors import ArgumentWarning
from virtualgpu.launch.launch import Launch
from virtualgpu.launch.params import pack_arguments
from virtualgpu.model import machine as slot

pytestmark = [
    pytest.mark.usefixtures("machine"),
    pytest.mark.skipif(not nvrtc.is_available(), reason="NVRTC is not installed"),
]

CODE = """
extern "C" __global__ void fill(int* out, int value) {
    extern __shared__ int box[];
    box[threadIdx.x] = value;
    out[blockIdx.x * blockDim.x + threadIdx.x] = box[threadIdx.x] + gridDim.y + blockDim.z;
}
template <class T> __global__ void scale(T* x, T by) { x[threadIdx.x] *= by; }
"""


def test_running_a_launch_executes_the_kernel() -> None:
    out = cp.zeros(12, cp.int32)
    Launch.of(cp.RawKernel(CODE, "fill"), 3, 4, (out, np.int32(7)), shared_mem=16).run()
    assert out.get().tolist() == [9] * 12


@pytest.mark.parametrize(
    ("grid", "block", "flat"),
    [
        ((5,), (32,), True),
        ((5, 1, 1), (32, 1, 1), True),
        ((5, 2), (32,), False),
        ((5, 1, 2), (32,), False),
        ((5,), (16, 2), False),
        ((5,), (16, 1, 2), False),
        ((5, 2), (16, 2), False),
    ],
)
def test_a_launch_is_one_dimensional_only_without_y_and_z_sizes(grid: Any, block: Any, flat: bool) -> None:
    launch = Launch.of(cp.RawKernel(CODE, "fill"), grid, block)
    assert launch.is_one_dimensional is flat
    assert launch.block_threads == np.prod(block)
    assert launch.threads == np.prod(block) * np.prod(grid)


# Parameters as PTX alone tells them: type and size.
U8, U16, U32, U64 = (ir.Param("p", f"u{8 * n}", 0, n, n) for n in (1, 2, 4, 8))
F32 = ir.Param("p", "f32", 0, 4, 4)
F64 = ir.Param("p", "f64", 0, 8, 8)
POINT = ir.Param("p", "b8", 0, 12, 4)


def bytes_of(param: ir.Param, value: Any) -> bytes:
    device = slot.current().current_device
    return pack_arguments("k", (param,), param.size_bytes, None, (value,), device).buffer


@pytest.mark.parametrize(
    ("param", "value", "message"),
    [
        (U8, 256, r"256 does not fit into a value of 1 byte\."),
        (U8, -129, "-129 does not fit into a value of 1 byte"),
        (U16, 65536, "does not fit into a value of 2 bytes"),
        (U32, -(2**31) - 1, "does not fit into a value of 4 bytes"),
        (F32, 0.5, r"Python float has 8 bytes but.*number of 4 bytes\. As with CuPy.*Pass np\.float32\(x\)"),
        (F32, 1, r"a Python int has 8 bytes but.*floating-point number of 4 bytes\..*Pass np\.float32\(x\)"),
        (F64, 1, r"Pass np\.float64\(x\)"),
        (U32, 0.5, r"Python float has 8 bytes.*a value of 4 bytes\..*Pass np\.int32\(x\)"),
        (U64, 1j, "a Python complex has 16 bytes"),
        (U32, np.float32(3), r"numpy\.float32 was passed where"),
        (F32, np.int32(3), r"numpy\.int32 was passed where.*Pass np\.float32"),
    ],
)
def test_scalar_arguments_of_another_type_warn(param: ir.Param, value: Any, message: str) -> None:
    with pytest.warns(ArgumentWarning, match=message):
        data = bytes_of(param, value)
    number = value if isinstance(value, np.generic) else np.asarray(value)
    assert data[: param.size_bytes] == number.tobytes()[: param.size_bytes]


@pytest.mark.parametrize(
    ("param", "value", "error", "message"),
    [
        (U64, 2**64, OverflowError, "too large to convert to C long: 18446744073709551616"),
        (POINT, 3, TypeError, r"a value of 12 bytes\. Pass a structured NumPy scalar of 12 bytes"),
        (U32, np.int16(3), TypeError, r"numpy\.int16 has 2 bytes"),
        (F64, np.float32(3), TypeError, r"numpy\.float32 has 4 bytes"),
    ],
)
def test_numbers_that_do_not_fit(param: ir.Param, value: Any, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        bytes_of(param, value)


def test_local_memory_of_a_thread_has_a_limit() -> None:
    code = """extern "C" __global__ void k(char* p, int n) {
        volatile char l[SIZE];
        for (int i = 0; i < n; i++) l[i] = i;
        p[0] = l[n - 1];
    }"""
    out = cp.zeros(1, np.int8)
    cp.RawKernel(code.replace("SIZE", "500000"), "k")((1,), (1,), (out, np.int32(9)))
    assert int(out[0]) == 8
    with pytest.raises(CUDADriverError, match=r"needs 1,073,741,824 bytes of local memory") as error:
        cp.RawKernel(code.replace("SIZE", "1 << 30"), "k")((1,), (1,), (out, np.int32(9)))
    assert error.value.status == 701
