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

_SIGN_BIT = 0x80000000
_INFINITY_BITS = 0x7F800000


@dataclass(frozen=True, slots=True)
class _Float8Format:
    """An 8-bit format with the float32 constants of its encoding; all but the shift are bit patterns."""

    dropped_bits: int  # of float32's 23 mantissa bits
    exponent_rebias: int  # the difference of the exponents' biases, in units of the encoded number
    smallest_normal: int
    rounding_constant: int  # a float32 whose unit in the last place is the format's smallest subnormal
    largest_finite: int


_FLOAT8_FORMATS = {
    "e4m3x2": _Float8Format(20, (127 - 7) << 3, 0x3C800000, 0x46800000, 0x43E00000),  # 2^-6, 2^14, 448
    "e5m2x2": _Float8Format(21, (127 - 15) << 2, 0x38800000, 0x43000000, 0x47600000),  # 2^-14, 2^7, 57344
}


def emit_conversion(code: WarpCode, instruction: ir.Instruction) -> bool:
    """Emit LLVM IR for a conversion to or from a narrow type. The result is False for any other
    conversion.
    """
    target_type, source_type = instruction.parts[-2:]
    if (target_type, source_type) == ("tf32", "f32"):
        _convert_to_tf32(code, instruction)
    elif target_type in _FLOAT8_FORMATS and source_type == "f32":
        upper_value, lower_value = (code.get(operand, "f32") for operand in instruction.operands[1:3])
        _store_pair(code, instruction, upper_value, lower_value, _FLOAT8_FORMATS[target_type])
    elif target_type in _FLOAT8_FORMATS and source_type == "f16x2":
        upper_value, lower_value = _unpack_halves(code, instruction)
        _store_pair(code, instruction, upper_value, lower_value, _FLOAT8_FORMATS[target_type])
    elif target_type == "f16x2" and source_type in _FLOAT8_FORMATS:
        _convert_to_halves(code, instruction, source_type)
    elif any(
        number_type.startswith(("e2m", "e3m", "ue8", "s2f")) or number_type in _FLOAT8_FORMATS
        for number_type in (target_type, source_type)
    ):
        raise NotSupportedError(
            f"The virtual GPU does not support {instruction.opcode}. The supported narrow types are e4m3 and "
            "e5m2."
        )
    else:
        return False
    return True


def _unpack_halves(code: WarpCode, instruction: ir.Instruction) -> tuple[str, str]:
    """Emit the upper and the lower half of a packed pair as float32."""
    emitter = code.emitter
    packed_value = code.get(instruction.operands[1], "b32")
    shifted_words = (emitter.binary("lshr", "i32", packed_value, constant("i32", 16)), packed_value)
    upper_half, lower_half = (
        emitter.convert(
            "fpext",
            "half",
            emitter.convert("bitcast", "i16", emitter.cast(shifted_word, "i32", "i16"), "half"),
            "float",
        )
        for shifted_word in shifted_words
    )
    return upper_half, lower_half


def _store_pair(
    code: WarpCode, instruction: ir.Instruction, upper_half: str, lower_half: str, kind: _Float8Format
) -> None:
    emitter = code.emitter
    upper_code, lower_code = (
        _encode_float8(code, value, kind, relu="relu" in instruction.parts)
        for value in (upper_half, lower_half)
    )
    packed_value = emitter.binary(
        "or", "i32", emitter.binary("shl", "i32", upper_code, constant("i32", 8)), lower_code
    )
    code.set(instruction.operands[0], emitter.cast(packed_value, "i32", "i16"), "b16")


def _encode_float8(warp_code: WarpCode, value: str, kind: _Float8Format, relu: bool) -> str:
    """Emit the 8-bit codes of float32 lanes, in i32 lanes; NaN becomes 0x7F."""
    emitter = warp_code.emitter
    float_bits = emitter.convert("bitcast", "float", value, "i32")
    magnitude = emitter.binary("and", "i32", float_bits, constant("i32", _SIGN_BIT - 1))
    is_nan = emitter.compare("ugt", "i32", magnitude, constant("i32", _INFINITY_BITS))
    magnitude = emitter.intrinsic("umin", "i32", magnitude, constant("i32", kind.largest_finite))
    last_bit = emitter.binary("lshr", "i32", magnitude, constant("i32", kind.dropped_bits))
    last_bit = emitter.binary("and", "i32", last_bit, constant("i32", 1))
    rounded_bits = emitter.binary(
        "add", "i32", magnitude, constant("i32", (1 << (kind.dropped_bits - 1)) - 1)
    )
    rounded_bits = emitter.binary("add", "i32", rounded_bits, last_bit)
    normal_code = emitter.binary("lshr", "i32", rounded_bits, constant("i32", kind.dropped_bits))
    normal_code = emitter.binary("sub", "i32", normal_code, constant("i32", kind.exponent_rebias))
    # Adding the magic number rounds a small one to a multiple of the smallest subnormal.
    shifted_float = emitter.convert("bitcast", "i32", magnitude, "float")
    shifted_float = emitter.binary(
        "fadd", "float", shifted_float, float_constant("float", kind.rounding_constant)
    )
    subnormal_code = emitter.binary(
        "sub",
        "i32",
        emitter.convert("bitcast", "float", shifted_float, "i32"),
        constant("i32", kind.rounding_constant),
    )
    is_small = emitter.compare("ult", "i32", magnitude, constant("i32", kind.smallest_normal))
    float8_code = emitter.select("i32", is_small, subnormal_code, normal_code)
    sign_bits = emitter.binary(
        "lshr",
        "i32",
        emitter.binary("and", "i32", float_bits, constant("i32", _SIGN_BIT)),
        constant("i32", 24),
    )
    if relu:
        float8_code = emitter.select(
            "i32",
            emitter.compare("ne", "i32", sign_bits, constant("i32", 0)),
            constant("i32", 0),
            float8_code,
        )
    else:
        float8_code = emitter.binary("or", "i32", float8_code, sign_bits)
    return emitter.select("i32", is_nan, constant("i32", 0x7F), float8_code)


def _convert_to_halves(warp_code: WarpCode, instruction: ir.Instruction, source_type: str) -> None:
    """Emit two 8-bit codes as two float16, which is exact.

    e5m2 is the upper byte of a float16; e4m3 has a bias that is smaller by 8.
    """
    emitter = warp_code.emitter
    float8_codes = emitter.cast(warp_code.get(instruction.operands[1], "b16"), "i16", "i32")
    half_words = []
    for shift_bits in (8, 0):
        float8_code = emitter.binary(
            "and",
            "i32",
            emitter.binary("lshr", "i32", float8_codes, constant("i32", shift_bits)),
            constant("i32", 0xFF),
        )
        magnitude = emitter.binary("and", "i32", float8_code, constant("i32", 0x7F))
        sign_bits = emitter.binary(
            "shl", "i32", emitter.binary("and", "i32", float8_code, constant("i32", 0x80)), constant("i32", 8)
        )
        if source_type == "e5m2x2":
            half_bits = emitter.binary("shl", "i32", magnitude, constant("i32", 8))
            is_nan = emitter.compare("ugt", "i32", magnitude, constant("i32", 0x7C))
        else:
            scaled_bits = emitter.cast(
                emitter.binary("shl", "i32", magnitude, constant("i32", 7)), "i32", "i16"
            )
            as_float = floats.emit_half_to_float(
                warp_code, emitter.convert("bitcast", "i16", scaled_bits, "half")
            )
            as_float = emitter.binary("fmul", "float", as_float, float_constant("float", 0x43800000))  # 2^8
            half_bits = emitter.cast(
                emitter.convert("bitcast", "half", floats.emit_float_to_half(warp_code, as_float), "i16"),
                "i16",
                "i32",
            )
            is_nan = emitter.compare("eq", "i32", magnitude, constant("i32", 0x7F))
        half_code = emitter.binary("or", "i32", half_bits, sign_bits)
        if "relu" in instruction.parts:
            half_code = emitter.select(
                "i32",
                emitter.compare("ne", "i32", sign_bits, constant("i32", 0)),
                constant("i32", 0),
                half_code,
            )
        half_words.append(emitter.select("i32", is_nan, constant("i32", 0x7FFF), half_code))
    upper_half = emitter.binary("shl", "i32", half_words[0], constant("i32", 16))
    warp_code.set(instruction.operands[0], emitter.binary("or", "i32", upper_half, half_words[1]), "b32")


def _convert_to_tf32(code: WarpCode, instruction: ir.Instruction) -> None:
    """Emit float32 lanes rounded to a mantissa of 10 bits, to nearest or toward zero.

    ``rna`` rounds ties away from zero.
    """
    emitter = code.emitter
    float_bits = emitter.convert("bitcast", "float", code.get(instruction.operands[1], "f32"), "i32")
    magnitude = emitter.binary("and", "i32", float_bits, constant("i32", _SIGN_BIT - 1))
    is_not_finite = emitter.compare("uge", "i32", magnitude, constant("i32", _INFINITY_BITS))
    is_nan = emitter.compare("ugt", "i32", magnitude, constant("i32", _INFINITY_BITS))
    rounded_bits = float_bits
    if "rna" in instruction.parts:
        rounded_bits = emitter.binary("add", "i32", float_bits, constant("i32", 0x1000))
    elif "rn" in instruction.parts:
        last_bit = emitter.binary(
            "and", "i32", emitter.binary("lshr", "i32", float_bits, constant("i32", 13)), constant("i32", 1)
        )
        rounded_bits = emitter.binary(
            "add", "i32", emitter.binary("add", "i32", float_bits, constant("i32", 0xFFF)), last_bit
        )
    rounded_bits = emitter.binary("and", "i32", rounded_bits, constant("i32", 0xFFFFE000))
    if "satfinite" in instruction.parts:
        sign_bits = emitter.binary("and", "i32", float_bits, constant("i32", _SIGN_BIT))
        largest_finite = emitter.binary("or", "i32", sign_bits, constant("i32", 0x7F7FE000))
        exponent_bits = emitter.binary("and", "i32", rounded_bits, constant("i32", _INFINITY_BITS))
        overflows = emitter.compare("eq", "i32", exponent_bits, constant("i32", _INFINITY_BITS))
        rounded_bits = emitter.select(
            "i32", emitter.binary("or", "i1", overflows, is_not_finite), largest_finite, rounded_bits
        )
    else:
        rounded_bits = emitter.select("i32", is_not_finite, float_bits, rounded_bits)
    if "relu" in instruction.parts:
        is_negative = emitter.compare("slt", "i32", float_bits, constant("i32", 0))
        rounded_bits = emitter.select("i32", is_negative, constant("i32", 0), rounded_bits)
    code.set(
        instruction.operands[0],
        emitter.select("i32", is_nan, constant("i32", 0x7FFFFFFF), rounded_bits),
        "b32",
    )
