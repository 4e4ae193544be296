"""Notebook 13: saturating counters, rounding errors compared with NumPy and an H200, and recordings."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

from gpulab import session
from gpulab.analysis.formats import BF16, E2M1, E4M3, E5M2, FORMATS, FP16, FP32, TF32
from gpulab_course.content.n13_libraries import block_scales, errors, exercises, figures
from tests.notebooks.course import FOLDER, read
from virtualgpu import cp

# With 20,000 sums, the RMS is known to 1 %; with 1,000 sums, to 3 %.
SEEDS = 20_000


def test_counters_saturate_at_the_stated_values() -> None:
    ends = figures.Counters((FP32, TF32, FP16, BF16, E4M3, E5M2)).record
    assert list(ends.values()) == [10_000, 2048, 2048, 256, 16, 8]
    assert [figures.stops_at(form) for form in figures.COUNTERS] == [2**24, 2048, 2048, 256, 16]


def test_an_fp16_counter_equals_numpy() -> None:
    value = np.float16(0)
    counted = [0]
    for _ in range(2100):
        value = np.float16(value + np.float16(1))
        counted.append(int(value))
    assert figures.count_by_ones(FP16, 2100) == counted


@pytest.mark.parametrize("n", [256, 1000])
@pytest.mark.parametrize("kind", ["normal", "uniform"])
def test_errors_of_fp32_sums_follow_a_random_walk(n: int, kind: str) -> None:
    rng = np.random.default_rng(n)
    x: Any = rng.standard_normal((SEEDS, n)) if kind == "normal" else rng.random((SEEDS, n))
    x = x.astype(np.float32)
    off = np.add.accumulate(x, axis=1, dtype=np.float32)[:, -1] - x.sum(axis=1, dtype=np.float64)
    mean, spread = (0.0, 1.0) if kind == "normal" else (0.5, 12**-0.5)
    assert math.sqrt((off**2).mean()) == pytest.approx(errors.walk_rms(n, FP32, mean, spread), rel=0.05)
    shares = np.abs(off) / np.abs(x).sum(axis=1, dtype=np.float64)
    assert shares.max() <= errors.worst_share(n, FP32)


@pytest.mark.parametrize("form", [FP16, BF16], ids=lambda form: form.name)
def test_errors_of_sums_in_narrow_formats_follow_a_random_walk(form: Any) -> None:
    x = np.random.default_rng(3).standard_normal((8000, 100))
    off = errors.measure_sum_errors(x, form)
    assert math.sqrt((off**2).mean()) == pytest.approx(errors.walk_rms(100, form), rel=0.05)
    assert (np.abs(off) <= errors.worst_share(100, form) * np.abs(form.round_all(x)).sum(axis=1)).all()


def test_errors_of_a_stagnating_sum_exceed_a_random_walk() -> None:
    off = errors.measure_sum_errors(np.random.default_rng(4).random((50, 1000)), BF16)
    assert math.sqrt((off**2).mean()) > 5 * errors.walk_rms(1000, BF16, 0.5, 12**-0.5)


@pytest.mark.parametrize("form", FORMATS, ids=lambda form: form.name)
def test_rounding_errors_are_uniformly_distributed(form: Any) -> None:
    x = np.random.default_rng(5).standard_normal(200_000)
    if form.bits == 64:
        assert errors.compute_mean_square_ulp(form) == pytest.approx(
            errors.compute_mean_square_ulp(FP32) * 4.0**-29
        )
        return
    off = form.round_all(x) - x
    assert math.sqrt((off**2).mean()) == pytest.approx(
        math.sqrt(errors.compute_mean_square_ulp(form) / 12), rel=0.02
    )


def test_matmul_errors_on_an_h200_agree_with_the_model() -> None:
    rows = {name: (measured, model) for name, _, measured, model in figures.ErrorsAndSpeeds().record}
    assert list(rows) == ["FP32", "TF32", "BF16", "FP16", "FP8 E4M3"]
    for name in ("TF32", "BF16", "FP16", "FP8 E4M3"):
        assert rows[name][0] == pytest.approx(rows[name][1], rel=0.05), name
    assert rows["FP32"][0] < rows["FP32"][1]  # a library sums partial results first
    with pytest.raises(ValueError, match=r"No product with k = 7 was recorded\. Choose one of 64, 256"):
        figures.ErrorsAndSpeeds(7)


def test_recorded_tables_name_their_device() -> None:
    view = figures.ErrorsAndSpeeds(64)
    assert "recorded on NVIDIA H200" in repr(view)
    assert view.png().startswith(b"\x89PNG")
    assert "recorded on an NVIDIA H200" in figures.switches()
    assert "float16     bfloat16" in figures.autocast()
    by_case = {row["case"]: row["rms"] for row in figures.recorded()["cupy_switches"]}
    assert by_case["env after a product"] == by_case["nothing"] < 1e-5 < by_case["env before import"]


def test_exact_sums_and_split_matrix_multiplication_are_accurate() -> None:
    rng = np.random.default_rng(6)
    x = (rng.standard_normal(5000) * 2.0 ** rng.integers(-20, 12, 5000)).astype(np.float16)
    assert exercises.compute_exact_sum(x) == float(np.float32(math.fsum(x.tolist())))
    a, b = (rng.standard_normal((40, 40)).astype(np.float32) for _ in range(2))
    assert (
        exercises.measure_error_in_u(exercises.three_products(a, b), a, b)
        < exercises.measure_error_in_u(a @ b, a, b) * 2
    )
    assert exercises.measure_error_in_u(exercises.on_tensor_cores(a, b), a, b) > 100


@pytest.mark.parametrize("form", [E4M3, E5M2], ids=lambda form: form.name)
@pytest.mark.parametrize("mode", ["NOSAT", "SATFINITE"])
def test_both_fp8_conversion_modes_agree_with_an_h200(form: Any, mode: str) -> None:
    name = form.name.removeprefix("FP8 ")
    code = f"""
#include <cuda_fp8.h>
extern "C" __global__ void convert(const float* x, unsigned char* codes) {{
    codes[threadIdx.x] = __nv_cvt_float_to_fp8(x[threadIdx.x], __NV_{mode}, __NV_{name});
}}"""
    recorded = figures.recorded()["fp8_codes"]
    x = cp.asarray([float(row["x"]) for row in recorded], dtype="float32")
    codes = cp.zeros(len(recorded), "uint8")
    cp.RawKernel(code, "convert")((1,), (len(recorded),), (x, codes))
    assert cp.asnumpy(codes).tolist() == [row[name][mode] for row in recorded]
    if mode == "NOSAT":  # round as the definition: a too large value becomes NaN in E4M3 and infinity in E5M2
        values = [form.value(int(code)) for code in cp.asnumpy(codes)]
        expected = [form.round(float(value)) for value in cp.asnumpy(x)]
        np.testing.assert_array_equal(np.array(values, float), np.array(expected, float))


def test_cublas_rounds_tf32_inputs_and_does_not_truncate() -> None:
    recorded = figures.recorded()["tf32"]
    for library in ("CuPy", "PyTorch"):
        assert recorded["identity"][library]["nearest, ties to even"] == 1
    assert recorded["identity"]["mma.sync"]["cut"] == 1
    a, b = np.random.default_rng(7).standard_normal((2, 128, recorded["k"]), dtype=np.float32)
    exact = a.astype(np.float64) @ b.T.astype(np.float64)

    def error(keep: Any) -> float:
        off = keep(a).astype(np.float64) @ keep(b).T.astype(np.float64) - exact
        return float(np.sqrt((off**2).mean() / (exact**2).mean()))

    cut = error(lambda x: (x.view(np.uint32) & 0xFFFFE000).view(np.float32))
    assert error(TF32.round_all) == pytest.approx(recorded["errors"]["normal"]["cuBLAS"], rel=0.02)
    assert cut > 2 * recorded["errors"]["normal"]["cuBLAS"]


def test_an_h200_keeps_14_bits_of_fp8_sums_and_fast_sums_lose_most_digits() -> None:
    bits_kept = figures.recorded()["accumulators"]
    assert {bits_kept[f"FP8 fast {place}"] for place in ("(0, 1, 2)", "(0, 64, 128)", "(0, 256, 511)")} == {
        14
    }
    assert bits_kept["FP8 (0, 1, 2)"] == 14
    assert bits_kept["FP8 (0, 128, 256)"] == bits_kept["FP16 (0, 128, 256)"] == 24
    rms = next(row["rms"] for row in figures.recorded()["positive_sums"] if row["k"] == 4096)
    assert rms["fp8 fast=True"] > 100 * rms["fp8 fast=False"] > 100 * rms["the same numbers as fp16"]


def test_relative_errors_of_sums_grow_with_the_square_root_of_n() -> None:
    share = {n: errors.walk_rms(n, FP32, mean=0.5, spread=12**-0.5) / (n / 2) for n in (100, 10_000)}
    x = np.random.default_rng(13).random((1_000, 10_000), dtype=np.float32)
    for n in share:
        added = np.add.accumulate(x[:, :n], axis=1, dtype=np.float32)[:, -1]
        off = added - x[:, :n].sum(axis=1, dtype=np.float64)
        assert np.sqrt((off**2).mean()) / (n / 2) == pytest.approx(share[n], rel=0.1)
    assert 10 < share[10_000] / share[100] < 12  # "10 times at most" was wrong


MMA = r"""
extern "C" __global__ void mma(const unsigned* a, const unsigned* b, float* c) {
    int t = threadIdx.x % 4;
    float d0, d1, d2, d3;
    asm volatile("mma.sync.aligned.TYPES {%0, %1, %2, %3}, {%4, %4, %5, %5}, {%6, %7}, "
                 "{%8, %8, %8, %8};"
                 : "=f"(d0), "=f"(d1), "=f"(d2), "=f"(d3)
                 : "r"(a[t]), "r"(a[t + 4]), "r"(b[t]), "r"(b[t + 4]), "f"(c[0]));
    if (threadIdx.x == 0) c[1] = d0;
}
"""


@pytest.mark.parametrize(
    ("name", "types", "form", "top"),
    [
        ("FP16", "m16n8k16.row.col.f32.f16.f16.f32", FP16, 14),
        ("FP8", "m16n8k32.row.col.f32.e4m3.e4m3.f32", E4M3, 16),
    ],
)
def test_mma_accumulators_keep_as_many_bits_as_on_an_h200(name: str, types: str, form: Any, top: int) -> None:
    """Find the smallest s = 2^j that L + s - L keeps, with L = 2^top, in one instruction or in three."""
    kernel = cp.RawKernel(MMA.replace("TYPES", types), "mma")
    k, store = (16, np.uint16) if form is FP16 else (32, np.uint8)

    def bits_kept(places: tuple[int, ...], j: int) -> bool:
        total = 0.0
        for step in range(places[-1] // k + 1):
            a = np.zeros(k, store)
            b = np.zeros(k, store)
            for place, (sign, e) in zip(places, ((1, top), (1, j), (-1, top)), strict=True):
                if place // k == step:
                    a[place % k] = form.code(sign * 2.0 ** (e // 2))
                    b[place % k] = form.code(2.0 ** (e - e // 2))
            c = cp.asarray([total, 0], dtype="float32")
            kernel((1,), (32,), (cp.asarray(a.view(np.uint32)), cp.asarray(b.view(np.uint32)), c))
            total = float(c[1])
        return total == 2.0**j

    with session.on_device("virtual:H200"):
        for places in ((0, 1, 2), (0, 4, 8), (0, k, 2 * k)):
            bits = figures.recorded()["accumulators"][f"mma.sync {name} {places}"]
            assert bits_kept(places, top - bits + 1), places
            assert not bits_kept(places, top - bits), places


# Both block formats with the conversions of CUDA's headers; one thread computes one block.
IN_BLOCKS = r"""
#include <cuda_fp4.h>
#include <cuda_fp8.h>
__device__ float fp4(double x) {
    __nv_fp4_storage_t code = __nv_cvt_double_to_fp4(x, __NV_E2M1, cudaRoundNearest);
    return __half2float(__half(__nv_cvt_fp4_to_halfraw(code, __NV_E2M1)));
}
extern "C" __global__ void in_mxfp4(const double* x, int* exponents, float* y) {
    int first = 32 * (blockIdx.x * blockDim.x + threadIdx.x);
    double most = 0;  // double: CuPy compiles so that subnormal floats are 0
    for (int i = 0; i < 32; ++i) most = fmax(most, fabs(x[first + i]));
    int e = max((int)__nv_cvt_double_to_e8m0(most, __NV_SATFINITE, cudaRoundZero) - 2, 0) - 127;
    exponents[first / 32] = e;
    for (int i = 0; i < 32; ++i) y[first + i] = fp4(ldexp(x[first + i], -e));
}
extern "C" __global__ void in_nvfp4(const float* x, float tensor_scale, float* y) {
    int first = 16 * (blockIdx.x * blockDim.x + threadIdx.x);
    float most = 0;
    for (int i = 0; i < 16; ++i) most = fmaxf(most, fabsf(x[first + i]));
    __nv_fp8_storage_t code = __nv_cvt_float_to_fp8(most / 6 / tensor_scale, __NV_SATFINITE, __NV_E4M3);
    float scale = __half2float(__half(__nv_cvt_fp8_to_halfraw(code, __NV_E4M3))) * tensor_scale;
    for (int i = 0; i < 16; ++i) y[first + i] = fp4(x[first + i] / scale) * scale;
}
"""


@pytest.fixture(scope="module")
def schemes() -> dict[str, Any]:
    """Return the scaling functions that notebook 13a defines."""
    cells = {cell.id: cell.source for cell in read(FOLDER / "13a_precision.ipynb").cells}
    names: dict[str, Any] = {"np": np, "E2M1": E2M1, "E4M3": E4M3, "rng": np.random.default_rng(6)}
    for name in ("one-scale", "block-scales"):
        exec(cells[name], names)
    return names


def test_mxfp4_blocks_equal_the_conversions_of_cuda(schemes: dict[str, Any]) -> None:
    for name, x, _ in block_scales._draw_blocks(np.random.default_rng(8)):
        exponents = cp.zeros(x.size // 32, "int32")
        y = cp.zeros(x.size, "float32")
        cp.RawKernel(IN_BLOCKS, "in_mxfp4")(
            (1,), (x.size // 32,), (cp.asarray(x, dtype="float64"), exponents, y)
        )
        mine = block_scales.mxfp4(x)
        assert cp.asnumpy(exponents).tolist() == mine[0].tolist(), name
        np.testing.assert_array_equal(cp.asnumpy(y), mine[1], name)
        if np.abs(x).max() < 2.0**120 and np.abs(x)[x != 0].min() > 2.0**-120 and (mine[0] > -127).all():
            np.testing.assert_array_equal(schemes["mx"](x, E2M1), mine[1] * 2.0 ** np.repeat(mine[0], 32))


def test_nvfp4_blocks_equal_the_conversions_of_cuda(schemes: dict[str, Any]) -> None:
    x = np.random.default_rng(9).standard_normal(1024).astype(np.float32)
    x[100] = 50
    y = cp.zeros(x.size, "float32")
    tensor_scale = np.float32(np.abs(x).max() / (448 * 6))
    cp.RawKernel(IN_BLOCKS, "in_nvfp4")((1,), (x.size // 16,), (cp.asarray(x), tensor_scale, y))
    mine = schemes["nvfp4"](x)
    # The kernel divides in FP32, so a few numbers next to a half-way point go to the other side.
    assert (np.abs(cp.asnumpy(y) - mine) < 1e-5).mean() > 0.99


def test_one_outlier_zeroes_its_tensor_or_only_its_block(schemes: dict[str, Any]) -> None:
    x = np.random.default_rng(10).uniform(1, 2, 1024)
    x[70] = 100
    stored = {
        "tensor": schemes["one_scale"](x, E2M1),
        "mx": schemes["mx"](x, E2M1),
        "nv": schemes["nvfp4"](x),
    }
    zeros = {name: np.flatnonzero(values == 0).tolist() for name, values in stored.items()}
    assert len(zeros["tensor"]) == 1023
    assert zeros["mx"] == [*range(64, 70), *range(71, 96)]
    assert zeros["nv"] == [*range(64, 70), *range(71, 80)]
    caption = repr(block_scales.picture(x[:96], {"mx": (stored["mx"][:96], 32)}))
    assert "stores 31 of 95 numbers as 0" in caption
