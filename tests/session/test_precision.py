"""Number formats and ``gl.precision``: rounding compared with NumPy, ``struct`` and fractions; the view."""

from __future__ import annotations

import itertools
import math
import struct
from fractions import Fraction

import numpy as np
import pytest

import gpulab as gl
from gpulab.analysis.formats import BF16, E2M1, E4M3, E5M2, FORMATS, FP16, FP32, FP64, TF32, Format
from gpulab.views import PrecisionView

RNG = np.random.default_rng(13)
MANY = np.ldexp(RNG.standard_normal(4000), RNG.integers(-160, 140, 4000))
each_format = pytest.mark.parametrize("form", FORMATS, ids=lambda form: form.name)
narrow = pytest.mark.parametrize("form", [BF16, FP16, E4M3, E5M2], ids=lambda form: form.name)


def same(a: float, b: float) -> bool:
    return (a == b and math.copysign(1, a) == math.copysign(1, b)) or (math.isnan(a) and math.isnan(b))


def nearest(number: float, form: Format) -> float:
    """Round by a search through all numbers of a format: nearest first, then even bits."""
    codes = range(2 ** (form.bits - 1))
    finite = [(form.value(code), code) for code in codes if math.isfinite(form.value(code))]
    # The value after the largest number stands for infinity, or NaN.
    step = finite[-1][0] - finite[-2][0]
    overflow = (finite[-1][0] + step, finite[-1][1] + 1)
    size = abs(Fraction(number))
    value, code = min([*finite, overflow], key=lambda pair: (abs(pair[0] - size), pair[1] % 2))
    rounded = float(value)
    if code == overflow[1]:
        rounded = math.inf if form.has_infinity else math.nan
    return math.copysign(rounded, number)


def test_half_precision_equals_numpy() -> None:
    with np.errstate(over="ignore"):
        expected = MANY.astype(np.float16).astype(np.float64)
    assert np.array_equal(FP16.round_all(MANY), expected)
    for code, value in enumerate(np.arange(65536, dtype=np.uint16).view(np.float16).astype(float)):
        assert same(float(FP16.value(code)), value)
        assert math.isnan(value) or FP16.code(float(value)) == code


def test_single_and_double_precision_equal_the_struct_module() -> None:
    for number in MANY[:500]:
        with np.errstate(over="ignore"):
            single = float(np.float32(number))
        assert same(FP32.round(float(number)), single)
        assert FP32.code(single) == struct.unpack("<I", struct.pack("<f", single))[0]
        assert FP64.code(float(number)) == struct.unpack("<Q", struct.pack("<d", number))[0]
        assert FP64.round(float(number)) == number
        assert float(FP64.value(FP64.code(float(number)))) == number


@pytest.mark.parametrize("form", [E4M3, E5M2], ids=lambda form: form.name)
def test_eight_bit_formats_round_to_the_nearest_number(form: Format) -> None:
    finite = [float(form.value(code)) for code in range(128) if math.isfinite(form.value(code))]
    ties = [(a + b) / 2 for a, b in itertools.pairwise(finite)]
    top = finite[-1] + (finite[-1] - finite[-2]) / 2
    for number in [*ties, *(-tie for tie in ties), top, top * 1.0001, top * 0.9999, *MANY[:40]]:
        assert same(form.round(float(number)), nearest(float(number), form)), number


@pytest.mark.parametrize("form", [BF16, TF32], ids=lambda form: form.name)
def test_formats_with_fp32s_range_round_its_upper_bits(form: Format) -> None:
    bits = RNG.integers(0, 2**32, 3000, dtype=np.uint64)
    low = 23 - form.fraction_bits
    bits = np.where(RNG.random(3000) < 0.3, bits >> low << low | 1 << low - 1, bits)
    for code, value in zip(bits.tolist(), bits.astype(np.uint32).view(np.float32).tolist(), strict=True):
        if math.isnan(value):
            continue
        cut = code + (1 << low - 1) - 1 + (code >> low & 1) >> low << low
        assert form.round(value) == struct.unpack("<f", struct.pack("<I", cut))[0]


@each_format
def test_scalar_and_array_rounding_agree(form: Format) -> None:
    special = [0.0, -0.0, math.inf, -math.inf, math.nan, form.largest, -form.smallest, form.smallest / 2]
    numbers = np.concatenate([MANY[:600], special])
    many = form.round_all(numbers)
    assert all(same(form.round(float(x)), float(y)) for x, y in zip(numbers, many, strict=True))


@narrow
def test_neighbours_are_the_next_codes(form: Format) -> None:
    ordered = sorted({float(form.value(c)) for c in range(2**form.bits) if math.isfinite(form.value(c))})
    step = 1 if form.bits == 8 else 61  # of 65,536 numbers some thousand
    for index in range(1, len(ordered) - 1, step):
        assert form.neighbours(ordered[index]) == (ordered[index - 1], ordered[index + 1])
    assert form.neighbours(ordered[-2]) == (ordered[-3], ordered[-1])
    assert same(form.neighbours(form.largest)[1], math.inf if form.has_infinity else math.nan)


def test_ranges_are_the_published_ones() -> None:
    assert (E4M3.largest, E4M3.smallest_normal, E4M3.smallest) == (448, 2**-6, 2**-9)
    assert (E5M2.largest, E5M2.smallest_normal, E5M2.smallest) == (57344, 2**-14, 2**-16)
    assert (FP16.largest, FP16.smallest) == (65504, 2**-24)
    assert np.float32(FP32.largest) == np.finfo(np.float32).max
    assert FP64.largest == np.finfo(np.float64).max
    assert BF16.largest == float.fromhex("0x1.fep127")
    assert [form.bits for form in FORMATS] == [64, 32, 19, 16, 16, 8, 8]


def test_fp4_has_sixteen_values_and_rounds_like_cuda() -> None:
    assert [float(E2M1.value(code)) for code in range(8)] == [0, 0.5, 1, 1.5, 2, 3, 4, 6]
    assert all(E2M1.code(float(E2M1.value(code))) == code for code in range(16))
    ties = [0.25, 0.75, 1.25, 1.75, 2.5, 3.5, 5]
    beyond = [7, 1e30, math.inf, -math.inf, math.nan, -0.0]
    x = np.array([*ties, *(-tie for tie in ties), *beyond, *MANY[:5], *RNG.uniform(-8, 8, 100)], np.float32)
    code = """
#include <cuda_fp4.h>
extern "C" __global__ void convert(const float* x, unsigned char* codes) {
    codes[threadIdx.x] = __nv_cvt_float_to_fp4(x[threadIdx.x], __NV_E2M1, cudaRoundNearest);
}"""
    codes = gl.cp.zeros(x.size, "uint8")
    gl.cp.RawKernel(code, "convert")((1,), (x.size,), (gl.cp.asarray(x), codes))
    assert gl.cp.asnumpy(codes).tolist() == [E2M1.code(float(number)) for number in x]
    assert E2M1.round_all(x).tolist() == [E2M1.round(float(number)) for number in x]


def test_rounding_equals_ml_dtypes() -> None:
    other = pytest.importorskip("ml_dtypes")
    kinds = {BF16: other.bfloat16, E4M3: other.float8_e4m3fn, E5M2: other.float8_e5m2}
    with np.errstate(over="ignore", invalid="ignore"):
        singles = MANY.astype(np.float32)
        by_kind = {form: singles.astype(kind).astype(np.float64) for form, kind in kinds.items()}
    for form, expected in by_kind.items():
        assert np.array_equal(form.round_all(singles), expected, equal_nan=True)


@pytest.mark.parametrize(
    ("number", "bits"),
    [
        ("1/3", "0011111010101011"),
        (0.1, "0011110111001101"),
        ("0x1p-133", "0000000000000001"),
        (-0.0, "1000000000000000"),
        ("inf", "0111111110000000"),
        (np.float16(-2), "1100000000000000"),
        ("\N{MINUS SIGN}1_000", "1100010001111010"),
    ],
)
def test_bits_of_numbers_and_strings(number: object, bits: str) -> None:
    rounded = gl.precision(number, formats=["BF16"]).record[0]
    assert "".join(rounded.form.parts(rounded.code)) == bits


def test_strings_are_exact_decimals_and_floats_are_unchanged() -> None:
    assert gl.precision("0.1", ["FP64"]).record[0].error == float(Fraction(0.1) - Fraction(1, 10))
    assert gl.precision(0.1, ["FP64"]).record[0].error == 0


@pytest.mark.parametrize(
    ("number", "formats", "error", "message"),
    [
        *(
            (text, None, ValueError, "is not a number")
            for text in ("", "one", "1/0", "1e999999999", "1" * 1000)
        ),
        *((value, None, TypeError, "a number or a str") for value in (None, 1j, [1, 2], object())),
        (1, ["FP17"], ValueError, r"no format 'FP17'.*'FP16'.* FP64, .* FP8 E5M2"),
    ],
)
def test_wrong_numbers_and_formats_are_named(
    number: object, formats: list[str] | None, error: type[Exception], message: str
) -> None:
    with pytest.raises(error, match=message):
        gl.precision(number, formats) if formats else gl.precision(number)


def test_sliders_move_and_scale_the_number() -> None:
    view = gl.precision(1, formats=["BF16", "FP16", "E4M3"])
    assert isinstance(view, PrecisionView)
    view.step = 8  # eight eighths of BF16's step
    assert [row.value for row in view.record] == [1 + 2**-7, 1 + 2**-7, 1]
    view.power = -16
    assert view.shown == Fraction(1 + 2**-7) * Fraction(2) ** -16
    assert [row.value for row in view.record[1:]] == [2**-16 * (1 + 2**-7), 0]
    assert view.pictured == {"step": 8, "power": -16}
    assert not view.error


@pytest.mark.parametrize("value", [0, "-0.0", "inf", "nan", "448.1", "1e400", "1e-400", "-65520"])
def test_every_number_has_a_sentence_and_a_picture(value: object) -> None:
    view = gl.precision(value)
    assert repr(view).endswith("; computed exactly.")
    assert view.describe().count("\n") == len(FORMATS)
    assert view.png().startswith(b"\x89PNG")
    if value in (0, "1e400"):
        for step, power in ((64, 48), (-64, -48)):
            view.step = step
            view.power = power
            assert not view.error


def test_numbers_have_enough_digits_to_distinguish_neighbours() -> None:
    text = gl.precision("0.1").describe()
    assert "FP32 0.1000000015, TF32 0.09997558594" in text
    assert "0.10000000000000001, error +5.55e−18" in text
    assert "below 0.099999999999999992, next above 0.10000000000000002." in text
    assert "(100 %)" in gl.precision("1e-9", ("FP16",)).describe(), "the number is lost"
