"""What a kernel does through its parameters, by its PTX: against what it does when it runs."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from virtualgpu import cp
from virtualgpu.backend import VirtualBackend
from virtualgpu.compile.ptx.parameter_uses import (
    PARAMETER_ATOMIC,
    PARAMETER_READ,
    PARAMETER_WRITTEN,
    find_parameter_uses,
)
from virtualgpu.launch.launch import Launch
from virtualgpu.model import machine as slot
from virtualgpu.sanitizer.touched import run_watched

N = 64
HEAD = 'extern "C" __global__ void k(const float* a, float* b, int* c, float* d, int n) '
KERNELS: dict[str, tuple[str, list[int]]] = {
    "one to another": (
        "{ int i = threadIdx.x; if (i < n) b[i] = a[i]; }",
        [PARAMETER_READ, PARAMETER_WRITTEN, 0, 0],
    ),
    "in place": ("{ b[threadIdx.x] *= 2; }", [0, PARAMETER_READ | PARAMETER_WRITTEN, 0, 0]),
    "atomics": (
        "{ atomicAdd(c, 1); atomicAdd(d + 1, a[0]); }",
        [PARAMETER_READ, 0, PARAMETER_ATOMIC, PARAMETER_ATOMIC],
    ),
    "result of an atomic": ("{ d[atomicAdd(c, 1) % 64] = 1; }", [0, 0, PARAMETER_ATOMIC, PARAMETER_WRITTEN]),
    "loop with moving pointers": (
        "{ const float* p = a; float* q = b; for (int i = 0; i < n; i++) *q++ = *p++; }",
        [PARAMETER_READ, PARAMETER_WRITTEN, 0, 0],
    ),
    "either of two": (
        "{ float* p = n > 10 ? b : d; p[threadIdx.x] = a[threadIdx.x]; }",
        [PARAMETER_READ, PARAMETER_WRITTEN, 0, PARAMETER_WRITTEN],
    ),
    "index from memory": ("{ b[c[threadIdx.x] & 63] = 1; }", [0, PARAMETER_WRITTEN, PARAMETER_READ, 0]),
    "through shared memory": (
        "{ __shared__ float s[64]; int i = threadIdx.x; s[i] = a[i]; __syncthreads(); b[i] = s[63 - i]; }",
        [PARAMETER_READ, PARAMETER_WRITTEN, 0, 0],
    ),
    "vectors": (
        "{ ((float4*)b)[threadIdx.x % 16] = ((const float4*)a)[threadIdx.x % 16]; }",
        [PARAMETER_READ, PARAMETER_WRITTEN, 0, 0],
    ),
    "a call": (
        "{ other(b, threadIdx.x); d[0] = a[0]; }",
        [PARAMETER_READ, PARAMETER_READ | PARAMETER_WRITTEN, 0, PARAMETER_WRITTEN],
    ),
    "nothing": ("{ }", [0, 0, 0, 0]),
}
OTHER = "__device__ __noinline__ void other(float* x, int i) { x[i] += 1; }\n"


def compiled(body: str) -> tuple[Any, Any, tuple[Any, ...]]:
    kernel = cp.RawKernel((OTHER if "other" in body else "") + HEAD + body, "k")
    args = (cp.ones(N, cp.float32), cp.ones(N, cp.float32), cp.zeros(N, np.int32), cp.ones(N, cp.float32), N)
    launch = Launch.of(kernel, 1, N, args)
    return launch, VirtualBackend(slot.current()).prepared(launch), args


@pytest.mark.parametrize("name", KERNELS)
def test_parameter_uses_cover_the_observed_accesses(name: str) -> None:
    body, expected = KERNELS[name]
    _, prepared, args = compiled(body)
    uses = find_parameter_uses(prepared.kernel.module.ptx, "k")[:4]
    _, touched = run_watched(prepared)
    observed_uses = [0] * 4
    for use_kind, regions in zip((PARAMETER_READ, PARAMETER_WRITTEN, PARAMETER_ATOMIC), touched, strict=True):
        for region in regions:
            for number, array in enumerate(args[:4]):
                if array.data.ptr <= region.start < array.data.ptr + array.nbytes:
                    observed_uses[number] |= use_kind
    assert all(was & ~might == 0 for was, might in zip(observed_uses, uses, strict=True)), (
        observed_uses,
        uses,
    )
    if "call" in name:
        assert all(want & ~use == 0 for want, use in zip(expected, uses, strict=True))
    else:
        assert uses == expected
