"""Atomic additions of half-precision numbers and of several numbers at once."""

from __future__ import annotations

import numpy as np
import pytest

from tests.engine.ptx_runner import launch
from virtualgpu.compile import nvrtc
from virtualgpu.compile.ptx import parser
from virtualgpu.cuda_errors import IllegalAddressError
from virtualgpu.errors import PtxError

needs_headers = pytest.mark.skipif(
    not nvrtc.is_available() or not nvrtc.find_include_options(), reason="needs NVRTC and the CUDA headers"
)
HEADERS = "#include <cuda_fp16.h>\n#include <cuda_bf16.h>\n"


def run(body: str, *arrays: np.ndarray, grid: int = 1, block: int = 32, target: int = 90) -> list[np.ndarray]:
    code = f'{HEADERS}extern "C" __global__ void k({body}'
    return launch(nvrtc.compile_ptx(code, target=target).ptx, "k", arrays, grid, block)


def bfloats(words: np.ndarray) -> np.ndarray:
    return (words.astype(np.uint32) << 16).view(np.float32)


@needs_headers
@pytest.mark.parametrize("target", [75, 90])
def test_half_sums(target: int) -> None:
    """The values are small integers, so the sum does not depend on the order."""
    body = "__half* sums) { atomicAdd(sums + threadIdx.x % 4, __float2half(float(blockIdx.x + 1))); }"
    (sums,) = run(body, np.zeros(4, np.float16), grid=3, block=64, target=target)
    np.testing.assert_array_equal(sums, np.full(4, 16 * (1 + 2 + 3)))


@needs_headers
def test_packed_half_atomics_add_both_halves() -> None:
    body = (
        "__half2* sums) { atomicAdd(sums + threadIdx.x % 2, __floats2half2_rn(1.5f, -float(threadIdx.x))); }"
    )
    (sums,) = run(body, np.zeros(4, np.float16), block=32)
    threads = np.arange(32)
    np.testing.assert_array_equal(sums[0::2], [24, 24])
    np.testing.assert_array_equal(sums[1::2], [-threads[0::2].sum(), -threads[1::2].sum()])


@needs_headers
def test_half_sums_round_once_and_keep_subnormals() -> None:
    """One thread adds to each element, so the sum must be the IEEE result, including subnormals."""
    values = np.array([1, 1.0009765625, 2049, 6e-8, -6e-8, 65504, np.inf, -1], np.float16)
    added = np.array([0.00048828125, 0.00048828125, 1, 6e-8, 6e-8, 32, -np.inf, np.nan], np.float16)
    body = "__half* a, const __half* b) { atomicAdd(a + threadIdx.x, b[threadIdx.x]); }"
    result, _ = run(body, values, added, block=8)
    with np.errstate(over="ignore", invalid="ignore"):
        np.testing.assert_array_equal(result, values + added)


@needs_headers
def test_bfloat_sums_round_to_nearest_even() -> None:
    rng = np.random.default_rng(1)
    a, b = ((rng.standard_normal(64) * 10.0 ** rng.integers(-5, 5, 64)).astype(np.float32) for _ in range(2))
    a, b = ((v.view(np.uint32) >> 16).astype(np.uint16) for v in (a, b))
    body = "__nv_bfloat16* a, const __nv_bfloat16* b) { atomicAdd(a + threadIdx.x, b[threadIdx.x]); }"
    result, _ = run(body, a.copy(), b, block=64)
    exact = bfloats(a).astype(np.float64) + bfloats(b).astype(np.float64)
    sums = bfloats(result).astype(np.float64)
    units = np.spacing(np.abs(sums).astype(np.float32)).astype(np.float64) * 2**16
    assert (np.abs(sums - exact) <= units / 2).all()
    ties = np.abs(sums - exact) == units / 2
    assert (result[ties] % 2 == 0).all()


@needs_headers
def test_bfloat_pairs() -> None:
    body = "__nv_bfloat162* s) { atomicAdd(s, __floats2bfloat162_rn(1.f, 2.f)); }"
    (sums,) = run(body, np.zeros(2, np.uint16), block=96)
    np.testing.assert_array_equal(bfloats(sums), [96, 192])


@needs_headers
@pytest.mark.parametrize("width", [2, 4])
def test_vectors_of_floats(width: int) -> None:
    """Each thread has its own address, so the returned old values are known."""
    names = ", ".join(f"{n + 1}.f" for n in range(width))
    body = (
        f"float{width}* s, float{width}* old) {{ int i = threadIdx.x;"
        f" old[i] = atomicAdd(s + i % 8, make_float{width}({names})); }}"
    )
    sums, old = run(body, np.zeros(8 * width, np.float32), np.full(32 * width, -1, np.float32))
    step = np.arange(1, width + 1)
    np.testing.assert_array_equal(sums.reshape(8, width), np.tile(4 * step, (8, 1)))
    old_values = np.sort(old.reshape(4, 8, width), axis=0)
    np.testing.assert_array_equal(old_values, np.arange(4)[:, None, None] * step + np.zeros((4, 8, width)))


@needs_headers
def test_a_vector_atomic_past_the_end_is_a_fault() -> None:
    body = "float4* s) { atomicAdd(s + threadIdx.x, make_float4(1, 1, 1, 1)); }"
    with pytest.raises(IllegalAddressError):
        run(body, np.zeros(4 * 31 + 2, np.float32))


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("atom.global.add.u32 %r1, [%d1];", "takes 3 operands"),
        ("atom.global.cas.b32 %r1, [%d1], %r2;", "takes 4 operands"),
        ("red.global.add.v2.f32 [%d1], %f1;", "takes 2 elements"),
        ("red.global.add.v2.f32 [%d1], {%f1, %f1, %f1, %f1};", "takes 2 elements"),
        ("red.global.add.v2.u32 [%d1], {%r1, %r1};", "the type .v2.u32"),
        ("red.global.add.v8.f32 [%d1], {%f1, %f1, %f1, %f1, %f1, %f1, %f1, %f1};", "the type .v8.f32"),
    ],
)
def test_wrong_operands_raise_a_ptx_error(text: str, words: str) -> None:
    body = ".reg .b32 %r<3>; .reg .b64 %d<2>; .reg .f32 %f<2>;"
    with pytest.raises(PtxError, match=words):
        parser.parse(f".version 8.3\n.target sm_90\n.entry k() {{ {body} {text} ret; }}\n")
