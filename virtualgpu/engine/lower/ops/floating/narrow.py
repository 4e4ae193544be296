"""Conversions to and from the narrow types of tensor cores: fp8 (e4m3, e5m2) and tf32.

Formats: PTX ISA 8.x, 5.2.3 (alternate floating-point formats), after the OCP 8-bit floating point
specification. Encodings round to nearest even; numbers that are too large become the largest finite number.
"""

from __future__ import annotations

from dataclasses import dataclass

from virtualgpu.compile.ptx import ir
from virtualgpu.engine.ir.emit import constant, float_constant
from virtualgpu.engine.lower.ops.floating import floats
from virtualgpu.engine.lower.warp_code import WarpCode
from virtualgpu.errors import NotSupportedError

_SIGN = 0x80000000
_INFINITY = 0x7F800000


@dataclass(frozen=True, slots=True)
class _Format:
    """An 8-bit format, described by float32 numbers for its encoding; all but the shift are bit patterns."""

    dropped_bits: int  # of float32's 23 mantissa bits
    rebias: int  # the difference of the exponents' biases, in units of the encoded number
    smallest_normal: int
    magic: int  # a float32 whose unit in the last place is the format's smallest subnormal
    largest: int


_FORMATS = {
    "e4m3x2": _Format(20, (127 - 7) << 3, 0x3C800000, 0x46800000, 0x43E00000),  # 2^-6, 2^14, 448
    "e5m2x2": _Format(21, (127 - 15) << 2, 0x38800000, 0x43000000, 0x47600000),  # 2^-14, 2^7, 57344
}


def convert(c: WarpCode, i: ir.Instruction) -> bool:
    """Emit a conversion to or from a narrow type; return False for any other conversion."""
    target, source = i.parts[-2:]
    if (target, source) == ("tf32", "f32"):
        _to_tf32(c, i)
    elif target in _FORMATS and source == "f32":
        upper, lower = (c.get(operand, "f32") for operand in i.operands[1:3])
        _store_pair(c, i, upper, lower, _FORMATS[target])
    elif target in _FORMATS and source == "f16x2":
        upper, lower = _halves(c, i)
        _store_pair(c, i, upper, lower, _FORMATS[target])
    elif target == "f16x2" and source in _FORMATS:
        _to_halves(c, i, source)
    elif any(kind.startswith(("e2m", "e3m", "ue8", "s2f")) or kind in _FORMATS for kind in (target, source)):
        raise NotSupportedError(
            f"The virtual GPU does not do {i.opcode}; of the narrow types it has e4m3 and e5m2."
        )
    else:
        return False
    return True


def _halves(c: WarpCode, i: ir.Instruction) -> tuple[str, str]:
    """Emit the upper and lower half of a packed pair, as float32."""
    e = c.e
    packed = c.get(i.operands[1], "b32")
    shifted = (e.binary("lshr", "i32", packed, constant("i32", 16)), packed)
    upper, lower = (
        e.convert("fpext", "half", e.convert("bitcast", "i16", e.cast(half, "i32", "i16"), "half"), "float")
        for half in shifted
    )
    return upper, lower


def _store_pair(c: WarpCode, i: ir.Instruction, upper: str, lower: str, kind: _Format) -> None:
    e = c.e
    high, low = (_encode(c, value, kind, relu="relu" in i.parts) for value in (upper, lower))
    packed = e.binary("or", "i32", e.binary("shl", "i32", high, constant("i32", 8)), low)
    c.set(i.operands[0], e.cast(packed, "i32", "i16"), "b16")


def _encode(c: WarpCode, value: str, kind: _Format, relu: bool) -> str:
    """Emit float32 lanes as 8-bit codes in i32 lanes; NaN becomes 0x7F."""
    e = c.e
    raw = e.convert("bitcast", "float", value, "i32")
    magnitude = e.binary("and", "i32", raw, constant("i32", _SIGN - 1))
    nan = e.compare("ugt", "i32", magnitude, constant("i32", _INFINITY))
    magnitude = e.intrinsic("umin", "i32", magnitude, constant("i32", kind.largest))
    last_bit = e.binary("lshr", "i32", magnitude, constant("i32", kind.dropped_bits))
    last_bit = e.binary("and", "i32", last_bit, constant("i32", 1))
    rounded = e.binary("add", "i32", magnitude, constant("i32", (1 << (kind.dropped_bits - 1)) - 1))
    rounded = e.binary("add", "i32", rounded, last_bit)
    normal = e.binary("lshr", "i32", rounded, constant("i32", kind.dropped_bits))
    normal = e.binary("sub", "i32", normal, constant("i32", kind.rebias))
    # Adding the magic number rounds a small one to a multiple of the smallest subnormal.
    shifted = e.convert("bitcast", "i32", magnitude, "float")
    shifted = e.binary("fadd", "float", shifted, float_constant("float", kind.magic))
    subnormal = e.binary(
        "sub", "i32", e.convert("bitcast", "float", shifted, "i32"), constant("i32", kind.magic)
    )
    is_small = e.compare("ult", "i32", magnitude, constant("i32", kind.smallest_normal))
    code = e.select("i32", is_small, subnormal, normal)
    sign = e.binary("lshr", "i32", e.binary("and", "i32", raw, constant("i32", _SIGN)), constant("i32", 24))
    if relu:
        code = e.select("i32", e.compare("ne", "i32", sign, constant("i32", 0)), constant("i32", 0), code)
    else:
        code = e.binary("or", "i32", code, sign)
    return e.select("i32", nan, constant("i32", 0x7F), code)


def _to_halves(c: WarpCode, i: ir.Instruction, source: str) -> None:
    """Emit two codes as two float16, exactly: e5m2 is float16's upper byte, e4m3 has a bias 8 smaller."""
    e = c.e
    codes = e.cast(c.get(i.operands[1], "b16"), "i16", "i32")
    halves = []
    for shift in (8, 0):
        code = e.binary(
            "and", "i32", e.binary("lshr", "i32", codes, constant("i32", shift)), constant("i32", 0xFF)
        )
        magnitude = e.binary("and", "i32", code, constant("i32", 0x7F))
        sign = e.binary("shl", "i32", e.binary("and", "i32", code, constant("i32", 0x80)), constant("i32", 8))
        if source == "e5m2x2":
            bits = e.binary("shl", "i32", magnitude, constant("i32", 8))
            nan = e.compare("ugt", "i32", magnitude, constant("i32", 0x7C))
        else:
            scaled = e.cast(e.binary("shl", "i32", magnitude, constant("i32", 7)), "i32", "i16")
            value = floats.widen_half(c, e.convert("bitcast", "i16", scaled, "half"))
            value = e.binary("fmul", "float", value, float_constant("float", 0x43800000))  # 2^8
            bits = e.cast(e.convert("bitcast", "half", floats.narrow_half(c, value), "i16"), "i16", "i32")
            nan = e.compare("eq", "i32", magnitude, constant("i32", 0x7F))
        half = e.binary("or", "i32", bits, sign)
        if "relu" in i.parts:
            half = e.select("i32", e.compare("ne", "i32", sign, constant("i32", 0)), constant("i32", 0), half)
        halves.append(e.select("i32", nan, constant("i32", 0x7FFF), half))
    high = e.binary("shl", "i32", halves[0], constant("i32", 16))
    c.set(i.operands[0], e.binary("or", "i32", high, halves[1]), "b32")


def _to_tf32(c: WarpCode, i: ir.Instruction) -> None:
    """Emit float32 with a mantissa of 10 bits: to nearest (``rna`` ties away from zero) or toward zero."""
    e = c.e
    raw = e.convert("bitcast", "float", c.get(i.operands[1], "f32"), "i32")
    magnitude = e.binary("and", "i32", raw, constant("i32", _SIGN - 1))
    special = e.compare("uge", "i32", magnitude, constant("i32", _INFINITY))
    nan = e.compare("ugt", "i32", magnitude, constant("i32", _INFINITY))
    rounded = raw
    if "rna" in i.parts:
        rounded = e.binary("add", "i32", raw, constant("i32", 0x1000))
    elif "rn" in i.parts:
        last_bit = e.binary(
            "and", "i32", e.binary("lshr", "i32", raw, constant("i32", 13)), constant("i32", 1)
        )
        rounded = e.binary("add", "i32", e.binary("add", "i32", raw, constant("i32", 0xFFF)), last_bit)
    rounded = e.binary("and", "i32", rounded, constant("i32", 0xFFFFE000))
    if "satfinite" in i.parts:
        sign = e.binary("and", "i32", raw, constant("i32", _SIGN))
        largest = e.binary("or", "i32", sign, constant("i32", 0x7F7FE000))
        reached = e.binary("and", "i32", rounded, constant("i32", _INFINITY))
        overflows = e.compare("eq", "i32", reached, constant("i32", _INFINITY))
        rounded = e.select("i32", e.binary("or", "i1", overflows, special), largest, rounded)
    else:
        rounded = e.select("i32", special, raw, rounded)
    if "relu" in i.parts:
        negative = e.compare("slt", "i32", raw, constant("i32", 0))
        rounded = e.select("i32", negative, constant("i32", 0), rounded)
    c.set(i.operands[0], e.select("i32", nan, constant("i32", 0x7FFFFFFF), rounded), "b32")
