"""Device ``malloc``, ``free``, ``new``, ``delete``: one heap a device, and what checks say of its misuse."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest

import gpulab as gl
from gpulab import cp, session
from virtualgpu.compile import nvrtc
from virtualgpu.cuda_errors import CUDARuntimeError, LaunchFailure
from virtualgpu.model import machine as slot
from virtualgpu.model.memory.heap import DeviceHeap

pytestmark = pytest.mark.skipif(not nvrtc.is_available(), reason="NVRTC is not installed")
HEAD = 'extern "C" __global__ void k'
MAKE = HEAD + "(int** p){ p[threadIdx.x] = (int*)malloc(64); p[threadIdx.x][0] = threadIdx.x; }"
DROP = HEAD + "(int** p){ free(p[threadIdx.x]); }"


@pytest.fixture(autouse=True)
def device() -> Iterator[None]:
    with session.on_device("virtual:A100"):
        yield


def heap() -> DeviceHeap:
    return slot.current().current_device.memory.open_heap()


def kernel(code: str) -> cp.RawKernel:
    return cp.RawKernel(code, "k")


def hazard_messages(code: str, *args: object, tools: tuple[str, ...] = ("memory",)) -> dict[str, str]:
    report = gl.sanitize(kernel(code), 1, 32, args, tools=tools)
    return {hazard.kind: hazard.message for hazard in report.hazards}


def test_one_kernel_allocates_and_another_frees() -> None:
    pointers = cp.zeros(32, np.uint64)
    values = cp.zeros(32, np.int32)
    kernel(MAKE)((1,), (32,), (pointers,))
    assert len(set(pointers.get().tolist())) == 32
    kernel(HEAD + "(int** p, int* seen){ seen[threadIdx.x] = p[threadIdx.x][0]; }")(
        (1,), (32,), (pointers, values)
    )
    assert np.array_equal(values.get(), np.arange(32))
    kernel(DROP)((1,), (32,), (pointers,))
    assert not heap().used_blocks


def test_free_accepts_null_and_refuses_other_pointers() -> None:
    kernel(HEAD + "(int* x){ free(nullptr); }")((1,), (32,), (cp.zeros(1, np.int32),))
    with pytest.raises(LaunchFailure, match=r"free\(\) .*0x[0-9a-f]+, which malloc\(\) did not return"):
        kernel(HEAD + "(int* x){ free(x + 1); }")((1,), (1,), (cp.zeros(4, np.int32),))


def test_malloc_on_a_full_heap_returns_null() -> None:
    assert cp.cuda.runtime.deviceGetLimit(2) == 8 << 20
    cp.cuda.runtime.deviceSetLimit(2, 1 << 20)
    assert cp.cuda.runtime.deviceGetLimit(2) == 1 << 20
    out = cp.zeros(32, np.int32)
    kernel(HEAD + "(int* out){ out[threadIdx.x] = malloc(100000) != nullptr; }")((1,), (32,), (out,))
    assert int(out.get().sum()) == 10
    with pytest.raises(CUDARuntimeError, match="before the first kernel"):
        cp.cuda.runtime.deviceSetLimit(2, 2 << 20)
    with pytest.raises(CUDARuntimeError, match="cudaErrorUnsupportedLimit"):
        cp.cuda.runtime.deviceGetLimit(77)


def test_use_after_free() -> None:
    code = HEAD + "(int* out){ int* p = (int*)malloc(64); p[3] = 5;\n free(p);\n out[threadIdx.x] = p[3]; }"
    message = hazard_messages(code, cp.zeros(32, np.int32))["use after free"]
    assert "reads byte 12 of a block of 64 bytes on the device heap that has been freed" in message


def test_overrun() -> None:
    code = HEAD + "(int n){ int* p = (int*)malloc(64); p[n] = 5; free(p); }"
    assert "out of bounds" not in hazard_messages(code, np.int32(15))
    assert (
        "writes 4 bytes at byte 64 of a block of 64 bytes"
        in hazard_messages(code, np.int32(16))["out of bounds"]
    )


def test_the_last_byte_of_an_odd_sized_block_is_no_overrun() -> None:
    code = HEAD + "(char* out){ char* p = (char*)malloc(13); p[12] = 1; out[0] = p[12]; free(p); }"
    assert hazard_messages(code, cp.zeros(4, np.int8)) == {}


def test_a_leak_is_reported_and_is_not_an_error() -> None:
    pointers = cp.zeros(32, np.uint64)
    report = gl.sanitize(kernel(MAKE), 1, 32, (pointers,), tools=("memory",))
    assert report.clean
    (leak,) = report.found("leak")
    assert leak.count == 32
    assert "32 blocks of 2,048 bytes" in leak.message


def test_checks_do_not_change_the_heap() -> None:
    pointers = cp.zeros(32, np.uint64)
    kernel(MAKE)((1,), (32,), (pointers,))
    blocks = dict(heap().used_blocks)
    assert hazard_messages(DROP, pointers) == {}
    assert heap().used_blocks == blocks
    kernel(DROP)((1,), (32,), (pointers,))
    assert not heap().used_blocks
