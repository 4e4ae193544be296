"""Floating-point operations that several instructions use: operands, rounding, flushing, bf16."""

from __future__ import annotations

from virtualgpu.compile.ptx import ir
from virtualgpu.engine.ir.emit import constant, float_constant, get_bit_width, llvm_of
from virtualgpu.engine.lower.ops.floating.rounding import emit_directed_operation
from virtualgpu.engine.lower.warp_code import WarpCode
from virtualgpu.errors import NotSupportedError

_FLOAT_TYPES = ("f16", "f32", "f64", "bf16")
_DIRECTED_MODES = {"rz", "rm", "rp"}
ONE_BITS = {"half": 0x3C00, "float": 0x3F800000, "double": 0x3FF0000000000000}
SMALLEST_NORMAL_BITS = {"half": 0x0400, "float": 0x00800000, "double": 0x0010000000000000}
INFINITY_BITS = {"half": 0x7C00, "float": 0x7F800000, "double": 0x7FF0000000000000}


def is_float(ptx_type: str) -> bool:
    """Return whether a PTX type is a floating-point type."""
    return ptx_type in _FLOAT_TYPES


def read_inputs(code: WarpCode, instruction: ir.Instruction, count: int) -> tuple[str, list[str]]:
    """Return the operands of an instruction, converted to the type that the computation uses. Operands of
    type bf16 are converted to float.

    They are flushed if the instruction has ``.ftz``.
    """
    llvm_type = llvm_of(instruction.type)
    values = [code.get(operand, instruction.type) for operand in instruction.operands[1 : 1 + count]]
    if instruction.type == "bf16":
        return "float", [emit_bf16_to_float(code, v) for v in values]
    if "ftz" in instruction.parts:
        values = [emit_subnormal_flush(code, llvm_type, v) for v in values]
    return llvm_type, values


def write_result(code: WarpCode, instruction: ir.Instruction, llvm_type: str, value: str) -> None:
    """Write a floating-point result. The result is first flushed and saturated if the instruction requires
    this.
    """
    if "ftz" in instruction.parts and instruction.type != "bf16":
        value = emit_subnormal_flush(code, llvm_type, value)
    if "sat" in instruction.parts:
        value = emit_saturation(code, llvm_type, value)
    if instruction.type == "bf16":
        value = emit_float_to_bf16(code, value)
    code.set(instruction.operands[0], value, instruction.type)


def emit_bf16_to_float(code: WarpCode, value: str) -> str:
    """Emit code that converts bf16 lanes to float. The conversion is exact."""
    extended_bits = code.emitter.convert("zext", "i16", value, "i32")
    return code.emitter.convert(
        "bitcast", "i32", code.emitter.binary("shl", "i32", extended_bits, constant("i32", 16)), "float"
    )


def emit_float_to_bf16(code: WarpCode, value: str, mode: str = "rn") -> str:
    """Emit code that rounds float lanes to bf16. A NaN becomes 0x7FFF."""
    emitter = code.emitter
    float_bits = emitter.convert("bitcast", "float", value, "i32")
    upper_half = emitter.binary("lshr", "i32", float_bits, constant("i32", 16))
    if mode == "rn":
        last_bit = emitter.binary("and", "i32", upper_half, constant("i32", 1))
        float_bits = emitter.binary(
            "add", "i32", emitter.binary("add", "i32", float_bits, constant("i32", 0x7FFF)), last_bit
        )
        upper_half = emitter.binary("lshr", "i32", float_bits, constant("i32", 16))
    elif mode != "rz":
        rounds_away = emitter.compare("slt" if mode == "rm" else "sge", "i32", float_bits, constant("i32", 0))
        rounded_up_bits = emitter.binary(
            "add",
            "i32",
            float_bits,
            emitter.select("i32", rounds_away, constant("i32", 0xFFFF), constant("i32", 0)),
        )
        upper_half = emitter.binary("lshr", "i32", rounded_up_bits, constant("i32", 16))
    is_nan = emitter.compare("uno", "float", value, value)
    upper_half = emitter.select("i32", is_nan, constant("i32", 0x7FFF), upper_half)
    return emitter.convert("trunc", "i32", upper_half, "i16")


def emit_half_to_float(code: WarpCode, value: str) -> str:
    """Emit code that converts half-precision lanes to float. The conversion is exact."""
    return code.emitter.convert("fpext", "half", value, "float")


def emit_float_to_half(code: WarpCode, value: str) -> str:
    """Emit code that converts float lanes to half precision, with rounding."""
    return code.emitter.convert("fptrunc", "float", value, "half")


def emit_subnormal_flush(code: WarpCode, llvm_type: str, value: str) -> str:
    """Emit code that replaces subnormal lanes by zero of the same sign."""
    emitter = code.emitter
    if llvm_type == "half":
        half_bits = emitter.convert("bitcast", "half", value, "i16")
        exponent_bits = emitter.binary("and", "i16", half_bits, constant("i16", INFINITY_BITS["half"]))
        is_subnormal = emitter.compare("eq", "i16", exponent_bits, constant("i16", 0))
        signed_zero = emitter.binary("and", "i16", half_bits, constant("i16", 0x8000))
        return emitter.convert(
            "bitcast", "i16", emitter.select("i16", is_subnormal, signed_zero, half_bits), "half"
        )
    magnitude = emitter.intrinsic("fabs", llvm_type, value)
    is_subnormal = emitter.compare(
        "olt", llvm_type, magnitude, float_constant(llvm_type, SMALLEST_NORMAL_BITS[llvm_type])
    )
    signed_zero = emitter.intrinsic("copysign", llvm_type, float_constant(llvm_type, 0), value)
    return emitter.select(llvm_type, is_subnormal, signed_zero, value)


def emit_saturation(code: WarpCode, llvm_type: str, value: str) -> str:
    """Emit code that clamps lanes to the interval from 0 to 1. NaN and -0 become 0."""
    if llvm_type == "half":
        return emit_float_to_half(code, emit_saturation(code, "float", emit_half_to_float(code, value)))
    nonnegative_value = code.emitter.intrinsic("maximumnum", llvm_type, value, float_constant(llvm_type, 0))
    return code.emitter.intrinsic(
        "minimumnum", llvm_type, nonnegative_value, float_constant(llvm_type, ONE_BITS[llvm_type])
    )


def emit_relu(code: WarpCode, llvm_type: str, value: str) -> str:
    """Emit code that replaces negative lanes and -0 by 0.

    NaN stays NaN, with the bits that an H200 writes.
    """
    if llvm_type == "half":
        return emit_float_to_half(code, emit_relu(code, "float", emit_half_to_float(code, value)))
    return emit_canonical_nan(
        code, llvm_type, code.emitter.intrinsic("maximum", llvm_type, value, float_constant(llvm_type, 0))
    )


def emit_canonical_nan(code: WarpCode, llvm_type: str, value: str) -> str:
    """Emit code that replaces every NaN by the NaN that the hardware's min and max instructions return."""
    emitter = code.emitter
    integer_type = f"i{get_bit_width(llvm_type)}"
    nan = emitter.convert(
        "bitcast", integer_type, constant(integer_type, (1 << (get_bit_width(llvm_type) - 1)) - 1), llvm_type
    )
    return emitter.select(llvm_type, emitter.compare("uno", llvm_type, value, value), nan, value)


def find_rounding_mode(instruction: ir.Instruction) -> str:
    """Return the rounding mode of an instruction. The default mode is ``rn``."""
    return next((modifier for modifier in instruction.parts[1:] if modifier in _DIRECTED_MODES), "rn")


def emit_rounding_correction(
    code: WarpCode, llvm_type: str, nearest_value: str, is_below: str, is_above: str, mode: str
) -> str:
    """Emit code that corrects rounded results by one unit in the last place if the rounding mode requires it.

    The masks `is_below` and `is_above` select lanes whose exact result is below or above the rounded one.
    """
    emitter = code.emitter
    integer_type = f"i{get_bit_width(llvm_type)}"
    nearest_bits = emitter.convert("bitcast", llvm_type, nearest_value, integer_type)
    is_negative = emitter.compare("slt", integer_type, nearest_bits, constant(integer_type, 0))
    is_positive = emitter.compare("sge", integer_type, nearest_bits, constant(integer_type, 0))
    one_unit = constant(integer_type, 1)
    next_away_from_zero = emitter.binary("add", integer_type, nearest_bits, one_unit)
    next_toward_zero = emitter.binary("sub", integer_type, nearest_bits, one_unit)
    if mode == "rz":
        is_too_large = emitter.binary(
            "or",
            "i1",
            emitter.binary("and", "i1", is_below, is_positive),
            emitter.binary("and", "i1", is_above, is_negative),
        )
        result = emitter.select(integer_type, is_too_large, next_toward_zero, nearest_bits)
    else:
        is_on_wrong_side = is_below if mode == "rm" else is_above
        moves_away = is_negative if mode == "rm" else is_positive
        result = emitter.select(
            integer_type,
            is_on_wrong_side,
            emitter.select(integer_type, moves_away, next_away_from_zero, next_toward_zero),
            nearest_bits,
        )
    return emitter.convert("bitcast", integer_type, result, llvm_type)


def emit_two_sum(code: WarpCode, llvm_type: str, a: str, b: str) -> tuple[str, str]:
    """Emit the sum of two numbers, rounded to nearest, and its exact error by Knuth's method."""
    emitter = code.emitter
    s = emitter.binary("fadd", llvm_type, a, b)
    t = emitter.binary("fsub", llvm_type, s, a)
    error_of_a = emitter.binary("fsub", llvm_type, a, emitter.binary("fsub", llvm_type, s, t))
    return s, emitter.binary("fadd", llvm_type, error_of_a, emitter.binary("fsub", llvm_type, b, t))


def emit_fused_multiply_add(code: WarpCode, ptx_type: str, a: str, b: str, d: str, mode: str) -> str:
    """Emit a multiplication and an addition that are rounded only once.

    For bf16, the result is a float that rounds to the correct bf16 number.
    """
    emitter = code.emitter
    llvm_type = "float" if ptx_type == "bf16" else llvm_of(ptx_type)
    if ptx_type in ("f16", "bf16"):
        wide_type = "float" if ptx_type == "f16" else "double"
        wide_values = [emitter.convert("fpext", llvm_type, v, wide_type) for v in (a, b, d)]
        product = emitter.binary("fmul", wide_type, wide_values[0], wide_values[1])  # exact
        odd_rounded_sum = emit_sum_rounded_to_odd(code, wide_type, product, wide_values[2])
        if ptx_type == "f16":
            return emitter.convert("fptrunc", "float", odd_rounded_sum, "half")
        return emit_float_rounded_to_odd(code, odd_rounded_sum)
    if mode == "rn":
        return emitter.intrinsic("fma", llvm_type, a, b, d)
    return emit_directed_operation(code, "fma", mode, llvm_type, llvm_type, a, b, d)


def emit_float_rounded_to_odd(code: WarpCode, value: str) -> str:
    """Emit code that rounds doubles to floats with the mode round-to-odd. A later rounding to 16 bits then
    gives the correctly rounded result.
    """
    emitter = code.emitter
    truncated_float = emit_directed_operation(code, "fptrunc", "rz", "float", "double", value)
    return emit_round_to_odd_correction(
        code,
        truncated_float,
        emitter.compare("one", "double", emitter.convert("fpext", "float", truncated_float, "double"), value),
    )


def emit_round_to_odd_correction(code: WarpCode, value: str, is_inexact: str) -> str:
    """Emit code that sets the last bit of each float whose rounding toward zero was inexact."""
    emitter = code.emitter
    float_bits = emitter.convert("bitcast", "float", value, "i32")
    float_bits = emitter.binary("or", "i32", float_bits, emitter.convert("zext", "i1", is_inexact, "i32"))
    return emitter.convert("bitcast", "i32", float_bits, "float")


def emit_sum_rounded_to_odd(code: WarpCode, llvm_type: str, a: str, b: str) -> str:
    """Emit a sum with the rounding mode round-to-odd. A later rounding to a shorter type then gives the
    correctly rounded result.
    """
    emitter = code.emitter
    integer_type = f"i{get_bit_width(llvm_type)}"
    zero, one, minus_one = (constant(integer_type, n) for n in (0, 1, -1))
    s, rounding_error = emit_two_sum(code, llvm_type, a, b)
    sum_bits = emitter.convert("bitcast", llvm_type, s, integer_type)
    is_inexact = emitter.compare("one", llvm_type, rounding_error, float_constant(llvm_type, 0))
    is_even = emitter.compare("eq", integer_type, emitter.binary("and", integer_type, sum_bits, one), zero)
    error_bits = emitter.convert("bitcast", llvm_type, rounding_error, integer_type)
    has_same_sign = emitter.compare(
        "sge", integer_type, emitter.binary("xor", integer_type, sum_bits, error_bits), zero
    )
    needs_change = emitter.binary("and", "i1", is_inexact, is_even)
    sum_bits = emitter.select(
        integer_type,
        needs_change,
        emitter.binary(
            "add", integer_type, sum_bits, emitter.select(integer_type, has_same_sign, one, minus_one)
        ),
        sum_bits,
    )
    return emitter.convert("bitcast", integer_type, sum_bits, llvm_type)


def emit_binary_operation(code: WarpCode, instruction: ir.Instruction, operation: str) -> None:
    """Emit an addition, subtraction, multiplication or division with any rounding mode."""
    llvm_type, (a, b) = read_inputs(code, instruction, 2)
    mode = find_rounding_mode(instruction)
    emitter = code.emitter
    if llvm_type == "half":  # a float has enough bits that rounding twice equals rounding once
        value = emit_float_to_half(
            code, emitter.binary(operation, "float", emit_half_to_float(code, a), emit_half_to_float(code, b))
        )
    elif mode == "rn":
        value = emitter.binary(operation, llvm_type, a, b)
    elif llvm_type in ("float", "double"):
        value = emit_directed_operation(code, operation, mode, llvm_type, llvm_type, a, b)
    else:
        raise NotSupportedError(f"The virtual GPU does not support {instruction.opcode}.")
    write_result(code, instruction, llvm_type, value)
