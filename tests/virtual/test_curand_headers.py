"""Kernels with cuRAND's headers, if installed, draw the same numbers as `cp.random.Generator`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import virtualgpu.cp as cp
from virtualgpu.compile import nvrtc
from virtualgpu.compile.advice import make_advice

pytestmark = pytest.mark.usefixtures("machine")

CODE = r"""
#include <curand_kernel.h>
extern "C" __global__ void draw(unsigned long long seed, unsigned* words, float* uniform, double* normal)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    STATE s;
    curand_init(seed, i, 0, &s);
    words[i] = curand(&s);
    uniform[i] = curand_uniform(&s);
    normal[i] = curand_normal_double(&s);
}
"""
NAMES = {
    "Philox4x3210": "curandStatePhilox4_32_10_t",
    "XORWOW": "curandStateXORWOW_t",
    "MRG32k3a": "curandStateMRG32k3a_t",
}


def installed() -> bool:
    return any((Path(option[2:]) / "curand_kernel.h").is_file() for option in nvrtc.find_include_options())


@pytest.mark.parametrize("kind", NAMES)
def test_curand_kernels_and_generators_draw_equal_numbers(kind: str) -> None:
    if not installed():
        pytest.skip("needs cuRAND's headers: pip install nvidia-curand")
    bits = getattr(cp.random, kind)(5, size=1024)
    kernel = cp.RawKernel(CODE, "draw", options=(f"-DSTATE={NAMES[kind]}",))
    words, uniform, normal = (cp.empty(1024, kind) for kind in (np.uint32, np.float32, np.float64))
    kernel((4,), (256,), (np.uint64(bits._seed), words, uniform, normal))
    rng = cp.random.Generator(bits)
    numbers: list[Any] = [
        bits.random_raw(1024).get().view(np.uint32),
        rng.random(1024, dtype=np.float32).get(),
        rng.standard_normal(1024).get(),
    ]
    for result, expected in zip((words, uniform, normal), numbers, strict=True):
        np.testing.assert_array_equal(result.get(), expected)


def test_a_missing_curand_header_names_the_package() -> None:
    log = 'kernel.cu(1): catastrophic error: cannot open source file "curand_kernel.h"'
    assert "pip install nvidia-curand" in make_advice(log, CODE)
