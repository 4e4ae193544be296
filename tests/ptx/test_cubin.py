"""Resources read from a cubin against what ptxas itself prints and what the source fixes."""

from __future__ import annotations

import re

import pytest

from virtualgpu.compile import nvrtc
from virtualgpu.compile.cubin import KernelResources, read_kernel_resources
from virtualgpu.errors import GpulabError

pytestmark = pytest.mark.skipif(not nvrtc.is_available(), reason="NVRTC is not installed")

CODE = r"""
__device__ int counter;
__constant__ float table[100];

extern "C" __global__ void __launch_bounds__(192) bounded(float* x) {
    __shared__ float s[300];
    __shared__ double d[10];
    int i = threadIdx.x;
    s[i] = x[i];
    d[i % 10] = i;
    __syncthreads();
    x[i] = s[255 - i] + d[3] + table[i];
    atomicAdd(&counter, 1);
}

extern "C" __global__ void framed(float* x, int n) {
    float local[64];
    for (int i = 0; i < n; i++) local[(i * n) & 63] += x[i];
    x[threadIdx.x] = local[(n * threadIdx.x) & 63];
}

template <class T> __global__ void dynamic(T* x) {
    extern __shared__ T e[];
    e[threadIdx.x] = x[threadIdx.x];
    __syncthreads();
    x[threadIdx.x] = e[31 - threadIdx.x];
}

__device__ __noinline__ float helper(float x) { return x * 3.0f + 1.0f; }
extern "C" __global__ void calls(float* x) { x[threadIdx.x] = helper(x[threadIdx.x]); }
extern "C" __global__ void empty() {}
"""

TARGETS = [target for target in (75, 80, 89, 90, 100, 120) if target in nvrtc.supported_targets()] or [75]


def compiled(target: int, *options: str) -> tuple[dict[str, KernelResources], str]:
    image = nvrtc.compile_cubin(CODE, target=target, options=options, name_expressions=["dynamic<int>"])
    return read_kernel_resources(image.cubin), image.log


def printed_by_ptxas(log: str) -> dict[str, tuple[int, int, int]]:
    """Registers, shared memory and stack frame of each kernel from ``ptxas -v``."""
    resources = {}
    for part in log.split("Compiling entry function")[1:]:
        name = re.search(r"'(\w+)'", part)
        frame = re.search(r"(\d+) bytes stack frame", part)
        registers = re.search(r"Used (\d+) registers", part)
        shared = re.search(r"(\d+) bytes smem", part)
        assert name
        assert frame
        assert registers
        resources[name[1]] = (int(registers[1]), int(shared[1]) if shared else 0, int(frame[1]))
    return resources


@pytest.mark.parametrize("target", TARGETS)
def test_resources_equal_the_ptxas_report(target: int) -> None:
    resources, log = compiled(target, "--ptxas-options=-v")
    report = printed_by_ptxas(log)
    assert len(report) == 5
    assert set(resources) == set(report)
    for name, (registers, shared, frame) in report.items():
        result = resources[name]
        assert (result.registers_per_thread, result.static_shared_bytes, result.local_bytes) == (
            registers,
            shared,
            frame,
        ), name


@pytest.mark.parametrize("target", TARGETS)
def test_resources_equal_the_declarations_in_the_source(target: int) -> None:
    resources, _ = compiled(target)
    assert resources["bounded"].static_shared_bytes == 300 * 4 + 10 * 8
    assert resources["bounded"].launch_bound_threads == 192
    assert resources["bounded"].constant_bytes == 400
    assert resources["framed"].local_bytes == 256
    assert resources["framed"].launch_bound_threads is None
    assert resources["_Z7dynamicIiEvPT_"].static_shared_bytes == 0
    assert "helper" not in "".join(resources)


def test_register_cap_lowers_the_register_count() -> None:
    free, _ = compiled(TARGETS[0])
    capped, _ = compiled(TARGETS[0], "--maxrregcount=16")
    assert max(r.registers_per_thread for r in free.values()) > 16
    assert max(r.registers_per_thread for r in capped.values()) <= 24  # ptxas has its own minimum


def test_non_cubin_data_is_refused() -> None:
    with pytest.raises(GpulabError, match="not a cubin"):
        read_kernel_resources(b".version 8.0")
