"""PTX instructions against Python's integers and NumPy's floats, lane by lane."""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from tests.engine.ptx_runner import apply, dtype_of

SMALL = [0, 1, 2, 3, 7, 31, 32, 33, 63, 64, 100, 255, 256, 0x7FFF, 0x8000, 0xFFFF, 0x12345678]
LARGE = [0x7FFFFFFF, 0x80000000, 0x80000001, 0xDEADBEEF, 0xFFFFFFFE, 0xFFFFFFFF]
WORDS = np.array([*SMALL, *LARGE], np.uint32)
PLAIN = [0.0, -0.0, 1.0, -1.0, 0.5, 1.5, 2.5, -2.5, 0.1, 1 / 3, 123456.79, 1e10, -1e10]
POWERS = [2147483648.0, -2147483648.0, 4294967296.0]
ENDS = [1e-40, -1e-40, 1.1754944e-38, 3.4028235e38, -3.4028235e38, np.inf, -np.inf, np.nan]
FLOATS = np.array([*PLAIN, *POWERS, *ENDS], np.float32)


def pairs(values: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    a, b = np.meshgrid(values, values)
    return a.ravel(), b.ravel()


def s32(x: int) -> int:
    x &= 0xFFFFFFFF
    return x - (1 << 32) if x >> 31 else x


def expect(function: Callable[..., int], *operands: np.ndarray) -> np.ndarray:
    return np.array(
        [function(*(int(v) for v in row)) & 0xFFFFFFFF for row in zip(*operands, strict=True)], np.uint32
    )


def truncated_quotient(a: int, b: int) -> int:
    return abs(a) // abs(b) * (1 if (a < 0) == (b < 0) else -1)


TWO_WORDS: dict[str, Callable[[int, int], int]] = {
    "add.u32": lambda a, b: a + b,
    "sub.s32": lambda a, b: a - b,
    "mul.lo.u32": lambda a, b: a * b,
    "mul.hi.u32": lambda a, b: a * b >> 32,
    "mul.hi.s32": lambda a, b: s32(a) * s32(b) >> 32,
    "mul24.lo.u32": lambda a, b: (a & 0xFFFFFF) * (b & 0xFFFFFF),
    "add.sat.s32": lambda a, b: min(max(s32(a) + s32(b), -(2**31)), 2**31 - 1),
    "sub.sat.s32": lambda a, b: min(max(s32(a) - s32(b), -(2**31)), 2**31 - 1),
    "min.s32": lambda a, b: min(s32(a), s32(b)),
    "max.u32": max,
    "and.b32": lambda a, b: a & b,
    "xor.b32": lambda a, b: a ^ b,
    "shl.b32": lambda a, b: a << b if b < 32 else 0,
    "shr.u32": lambda a, b: a >> b if b < 32 else 0,
    "shr.s32": lambda a, b: s32(a) >> min(b, 31),
    # A zero divisor: all ones for quotient and remainder, as hardware answers.
    "div.u32": lambda a, b: a // b if b else -1,
    "rem.u32": lambda a, b: a % b if b else -1,
    "div.s32": lambda a, b: truncated_quotient(s32(a), s32(b)) if b else -1,
    "rem.s32": lambda a, b: s32(a) - s32(b) * truncated_quotient(s32(a), s32(b)) if b else -1,
}


@pytest.mark.parametrize("opcode", TWO_WORDS)
def test_two_word_instructions(opcode: str) -> None:
    a, b = pairs(np.concatenate([WORDS, np.arange(4, 31, dtype=np.uint32)]))
    result = apply(f"{opcode} %out, %in0, %in1;", "b32", ["b32", "b32"], [a, b])
    np.testing.assert_array_equal(result, expect(TWO_WORDS[opcode], a, b))


def run_of_ones(start: int, count: int, clamp: bool) -> int:
    if clamp:
        return sum(1 << n for n in range(start, min(start + count, 32))) if start < 32 else 0
    start = start & 31
    count = count & 31
    return sum(1 << n for n in range(start, min(start + count, 32)))


def widened(value: int, width: int, clamp: bool, signed: bool) -> int:
    if clamp and width > 31:
        return value
    width &= 31
    low = value & ((1 << width) - 1)
    return low - (1 << width) if signed and width and low >> (width - 1) else low


for mode in ("clamp", "wrap"):
    clamp = mode == "clamp"
    TWO_WORDS[f"bmsk.{mode}.b32"] = lambda a, b, clamp=clamp: run_of_ones(a, b, clamp)
    TWO_WORDS[f"szext.{mode}.u32"] = lambda a, b, clamp=clamp: widened(a, b, clamp, False)
    TWO_WORDS[f"szext.{mode}.s32"] = lambda a, b, clamp=clamp: widened(a, b, clamp, True)


ONE_WORD: dict[str, Callable[[int], int]] = {
    "not.b32": lambda a: ~a,
    "cnot.b32": lambda a: int(a == 0),
    "neg.s32": lambda a: -a,
    "abs.s32": lambda a: abs(s32(a)),
    "popc.b32": lambda a: a.bit_count(),
    "clz.b32": lambda a: 32 - a.bit_length(),
    "brev.b32": lambda a: int(f"{a:032b}"[::-1], 2),
    "bfind.u32": lambda a: a.bit_length() - 1,
    "bfind.shiftamt.u32": lambda a: 32 - a.bit_length() if a else -1,
    "bfind.s32": lambda a: (a if s32(a) >= 0 else ~a & 0xFFFFFFFF).bit_length() - 1,
}


@pytest.mark.parametrize("opcode", ONE_WORD)
def test_one_word_instructions(opcode: str) -> None:
    result = apply(f"{opcode} %out, %in0;", "b32", ["b32"], [WORDS])
    np.testing.assert_array_equal(result, expect(ONE_WORD[opcode], WORDS))


def field(a: int, position: int, length: int, signed: bool) -> int:
    position = position & 255
    length = length & 255
    bits = [
        (s32(a) >> min(n, 31)) & 1 if signed else (a >> n) & 1 for n in range(position, position + length)
    ]
    value = sum(bit << n for n, bit in enumerate(bits[:32]))
    if signed and 0 < length < 32 and bits[-1]:
        value -= 1 << length
    return value


def inserted(a: int, b: int, position: int, length: int) -> int:
    mask = ((1 << length) - 1) << position
    return (b & ~mask) | (a << position & mask)


def permuted(a: int, b: int, selector: int) -> int:
    data = struct.pack("<II", a, b)
    out = []
    for n in range(4):
        nibble = selector >> 4 * n & 15
        byte = data[nibble & 7]
        out.append((255 if byte & 0x80 else 0) if nibble & 8 else byte)
    return int.from_bytes(bytes(out), "little")


def dot4(a: int, b: int, c: int, signed: bool) -> int:
    code = "<4b" if signed else "<4B"
    x, y = (struct.unpack(code, struct.pack("<I", v)) for v in (a, b))
    return sum(p * q for p, q in zip(x, y, strict=True)) + c


THREE_WORDS: dict[str, tuple[Callable[[int, int, int], int], np.ndarray | None]] = {
    "mad.lo.s32": (lambda a, b, c: a * b + c, None),
    "mad.hi.u32": (lambda a, b, c: (a * b >> 32) + c, None),
    "sad.u32": (lambda a, b, c: c + abs(a - b), None),
    "shf.l.wrap.b32": (lambda a, b, c: ((b << 32 | a) << (c & 31)) >> 32, None),
    "shf.r.wrap.b32": (lambda a, b, c: (b << 32 | a) >> (c & 31), None),
    "shf.l.clamp.b32": (lambda a, b, c: ((b << 32 | a) << min(c, 32)) >> 32, None),
    "shf.r.clamp.b32": (lambda a, b, c: (b << 32 | a) >> min(c, 32), None),
    "bfe.u32": (lambda a, b, c: field(a, b, c, False), None),
    "bfe.s32": (lambda a, b, c: field(a, b, c, True), None),
    "prmt.b32": (permuted, None),
    "dp4a.u32.u32": (lambda a, b, c: dot4(a, b, c, False), None),
    "dp4a.s32.s32": (lambda a, b, c: dot4(a, b, c, True), None),
}


@pytest.mark.parametrize("opcode", THREE_WORDS)
def test_three_word_instructions(opcode: str) -> None:
    few = WORDS[::2]
    a, b, c = (v.ravel() for v in np.meshgrid(few, few, few))
    result = apply(f"{opcode} %out, %in0, %in1, %in2;", "b32", ["b32"] * 3, [a, b, c])
    np.testing.assert_array_equal(result, expect(THREE_WORDS[opcode][0], a, b, c))


@pytest.mark.parametrize(("position", "length"), [(0, 8), (4, 12), (28, 4), (0, 32), (31, 1), (5, 0)])
def test_bit_field_insert(position: int, length: int) -> None:
    a, b = pairs(WORDS)
    result = apply(f"bfi.b32 %out, %in0, %in1, {position}, {length};", "b32", ["b32", "b32"], [a, b])
    np.testing.assert_array_equal(result, expect(lambda x, y: inserted(x, y, position, length), a, b))


@pytest.mark.parametrize("table", [0x00, 0x80, 0x96, 0xCA, 0xE8, 0x3F, 0xFF])
def test_three_input_logic(table: int) -> None:
    few = WORDS[::3]
    a, b, c = (v.ravel() for v in np.meshgrid(few, few, few))
    result = apply(f"lop3.b32 %out, %in0, %in1, %in2, {table};", "b32", ["b32"] * 3, [a, b, c])

    def looked_up(x: int, y: int, z: int) -> int:
        return sum(
            (table >> ((x >> n & 1) << 2 | (y >> n & 1) << 1 | z >> n & 1) & 1) << n for n in range(32)
        )

    np.testing.assert_array_equal(result, expect(looked_up, a, b, c))


def test_carry_chain_adds_128_bits() -> None:
    rng = np.random.default_rng(1)
    words = rng.integers(0, 1 << 32, (8, 200), dtype=np.uint32)
    words[:4, :50] = 0xFFFFFFFF
    sums = [0] * 200
    for n in range(4):
        text = "add.cc.u32 %out, %in0, %in4; "
        text += " ".join(f"addc.cc.u32 %out, %in{k}, %in{k + 4};" for k in range(1, n + 1)) if n else ""
        result = apply(text, "b32", ["b32"] * 8, list(words))
        sums = [s | int(w) << 32 * n for s, w in zip(sums, result, strict=True)]
    for column in range(200):
        a = sum(int(words[k, column]) << 32 * k for k in range(4))
        b = sum(int(words[k + 4, column]) << 32 * k for k in range(4))
        assert sums[column] == (a + b) % (1 << 128)


def test_borrow_chain_subtracts_64_bits() -> None:
    rng = np.random.default_rng(2)
    words = rng.integers(0, 1 << 32, (4, 300), dtype=np.uint32)
    low = apply("sub.cc.u32 %out, %in0, %in2;", "b32", ["b32"] * 4, list(words))
    high = apply("sub.cc.u32 %out, %in0, %in2; subc.u32 %out, %in1, %in3;", "b32", ["b32"] * 4, list(words))
    a = words[0].astype(object) + (words[1].astype(object) << 32)
    b = words[2].astype(object) + (words[3].astype(object) << 32)
    result = low.astype(object) + (high.astype(object) << 32)
    assert all(g == (x - y) % (1 << 64) for g, x, y in zip(result, a, b, strict=True))


def test_sub_cc_sets_the_carry_if_there_is_no_borrow() -> None:
    """Compilers use this: after a subtraction, an addition with carry reads the inverted borrow."""
    a, b = pairs(WORDS)
    result = apply("sub.cc.u32 %out, %in0, %in1; addc.u32 %out, 0, 0;", "b32", ["b32", "b32"], [a, b])
    np.testing.assert_array_equal(result, (a >= b).astype(np.uint32))


def test_wide_and_64_bit_integers() -> None:
    rng = np.random.default_rng(3)
    a, b = rng.integers(-(2**63), 2**63, (2, 500), dtype=np.int64)
    with np.errstate(over="ignore"):
        np.testing.assert_array_equal(
            apply("mul.lo.s64 %out, %in0, %in1;", "s64", ["s64", "s64"], [a, b]), a * b
        )
    high = apply("mul.hi.s64 %out, %in0, %in1;", "s64", ["s64", "s64"], [a, b])
    assert [int(v) for v in high] == [int(x) * int(y) >> 64 for x, y in zip(a, b, strict=True)]
    quotient = apply("div.s64 %out, %in0, %in1;", "s64", ["s64", "s64"], [a, b >> 40])
    assert [int(v) for v in quotient] == [
        truncated_quotient(int(x), int(y)) if y else -1 for x, y in zip(a, b >> 40, strict=True)
    ]


@pytest.mark.parametrize("kind", ["u16", "s16", "u32", "s32", "u64", "s64"])
@pytest.mark.parametrize("opcode", ["div", "rem"])
def test_integer_division_by_zero_returns_all_ones(opcode: str, kind: str) -> None:
    limits = np.iinfo(dtype_of(kind))
    a = np.array([0, 1, 7, 255, 256, 12345, limits.min, limits.max // 3, limits.max], limits.dtype)
    result = apply(f"{opcode}.{kind} %out, %in0, %in1;", kind, [kind, kind], [a, np.zeros_like(a)])
    assert (result.view(f"u{result.itemsize}") == np.iinfo(f"u{result.itemsize}").max).all()


@pytest.mark.parametrize("kind", ["s16", "s32", "s64"])
def test_the_smallest_number_over_minus_one_wraps(kind: str) -> None:
    limits = np.iinfo(dtype_of(kind))
    a = np.array([limits.min, limits.min + 1, 5, limits.max], limits.dtype)
    minus_one = np.full_like(a, -1)
    result = apply(f"div.{kind} %out, %in0, %in1;", kind, [kind, kind], [a, minus_one])
    np.testing.assert_array_equal(result, np.negative(a))
    remainder = apply(f"rem.{kind} %out, %in0, %in1;", kind, [kind, kind], [a, minus_one])
    np.testing.assert_array_equal(remainder, np.zeros_like(a))


# -- floating point ----------------------------------------------------------------------------------


def same_floats(result: np.ndarray, expected: np.ndarray) -> None:
    nan = np.isnan(expected)
    np.testing.assert_array_equal(np.isnan(result), nan)
    unsigned = np.uint32 if result.dtype == np.float32 else np.uint64
    np.testing.assert_array_equal(result[~nan].view(unsigned), expected[~nan].view(unsigned))


def test_minimum_ignores_nan_and_orders_zeros() -> None:
    a, b = pairs(FLOATS)
    result = apply("min.f32 %out, %in0, %in1;", "f32", ["f32", "f32"], [a, b])
    expected = np.fmin(a, b)
    zeros = (a == 0) & (b == 0)
    expected[zeros] = np.where(np.signbit(a[zeros]) | np.signbit(b[zeros]), np.float32(-0.0), np.float32(0.0))
    same_floats(result, expected)
    result = apply("max.NaN.f32 %out, %in0, %in1;", "f32", ["f32", "f32"], [a, b])
    assert np.isnan(result[np.isnan(a) | np.isnan(b)]).all()


def test_flush_to_zero_keeps_the_sign() -> None:
    result = apply("mul.ftz.f32 %out, %in0, %in1;", "f32", ["f32", "f32"], [FLOATS, np.ones_like(FLOATS)])
    tiny = np.abs(FLOATS) < np.finfo(np.float32).tiny
    same_floats(result, np.where(tiny, np.copysign(np.float32(0), FLOATS), FLOATS))


def test_saturation_clamps_to_one_and_nan_to_zero() -> None:
    result = apply("add.sat.f32 %out, %in0, 0f00000000;", "f32", ["f32"], [FLOATS])
    expected = np.nan_to_num(np.clip(FLOATS, 0, 1), nan=0.0)
    np.testing.assert_array_equal(result, expected)


def test_half_precision_rounds_once() -> None:
    rng = np.random.default_rng(6)
    a, b, c = (rng.standard_normal(600).astype(np.float16) for _ in range(3))
    result = apply("fma.rn.f16 %out, %in0, %in1, %in2;", "f16", ["f16"] * 3, [a, b, c])
    wide = a.astype(np.float64) * b.astype(np.float64) + c.astype(np.float64)  # exact: 22 + 11 bits
    np.testing.assert_array_equal(result, wide.astype(np.float16))
    result = apply("add.f16 %out, %in0, %in1;", "f16", ["f16", "f16"], [a, b])
    np.testing.assert_array_equal(result, a + b)


@pytest.mark.parametrize(
    ("test", "function"),
    [
        ("finite", np.isfinite),
        ("infinite", np.isinf),
        ("notanumber", np.isnan),
        ("subnormal", lambda x: (x != 0) & (np.abs(x) < np.finfo(np.float32).tiny)),
        # The PTX manual counts zeros as normal here, and so does an H200.
        ("normal", lambda x: np.isfinite(x) & ((x == 0) | (np.abs(x) >= np.finfo(np.float32).tiny))),
    ],
)
def test_classification(test: str, function: Any) -> None:
    result = apply(f"testp.{test}.f32 %p, %in0; selp.b32 %out, 1, 0, %p;", "b32", ["f32"], [FLOATS])
    np.testing.assert_array_equal(result.astype(bool), function(FLOATS))


@pytest.mark.parametrize(
    "order", ["eq", "ne", "lt", "le", "gt", "ge", "equ", "neu", "ltu", "geu", "num", "nan"]
)
def test_float_comparisons_and_nan(order: str) -> None:
    a, b = pairs(FLOATS)
    result = apply(f"set.{order}.u32.f32 %out, %in0, %in1;", "b32", ["f32", "f32"], [a, b])
    unordered = np.isnan(a) | np.isnan(b)
    if order in ("num", "nan"):
        expected = ~unordered if order == "num" else unordered
    else:
        plain = {"eq": a == b, "ne": a != b, "lt": a < b, "le": a <= b, "gt": a > b, "ge": a >= b}[order[:2]]
        expected = (plain | unordered) if order.endswith("u") else (plain & ~unordered)
    np.testing.assert_array_equal(result, np.where(expected, 0xFFFFFFFF, 0))


@pytest.mark.parametrize(
    ("opcode", "function", "relative"),
    [
        ("ex2.approx.f32", np.exp2, 2**-22),
        ("lg2.approx.f32", np.log2, 2**-22),
        ("rsqrt.approx.f32", lambda x: 1 / np.sqrt(x), 2**-22),
        ("rcp.approx.f32", lambda x: 1 / x, 2**-23),
        ("sin.approx.f32", np.sin, 2**-20),
        ("tanh.approx.f32", np.tanh, 2**-10),
    ],
)
def test_approximate_functions(opcode: str, function: Any, relative: float) -> None:
    values = np.linspace(0.01, 3, 500, dtype=np.float32)
    result = apply(f"{opcode} %out, %in0;", "f32", ["f32"], [values])
    np.testing.assert_allclose(result, function(values.astype(np.float64)), rtol=relative, atol=2**-21)
