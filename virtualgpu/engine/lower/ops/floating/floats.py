"""Floating-point building blocks: operands, rounding, flushing, bf16."""

from __future__ import annotations

from virtualgpu.compile.ptx import ir
from virtualgpu.engine.ir.emit import bits, constant, float_constant, llvm_of
from virtualgpu.engine.lower.ops.floating.rounding import directed
from virtualgpu.engine.lower.warp_code import WarpCode
from virtualgpu.errors import NotSupportedError

_FLOATS = ("f16", "f32", "f64", "bf16")
_DIRECTED = {"rz", "rm", "rp"}
ONE = {"half": 0x3C00, "float": 0x3F800000, "double": 0x3FF0000000000000}
SMALLEST_NORMAL = {"half": 0x0400, "float": 0x00800000, "double": 0x0010000000000000}
INFINITY = {"half": 0x7C00, "float": 0x7F800000, "double": 0x7FF0000000000000}


def is_float(ptx_type: str) -> bool:
    """Return whether a PTX type is a floating-point type."""
    return ptx_type in _FLOATS


def inputs(c: WarpCode, i: ir.Instruction, count: int) -> tuple[str, list[str]]:
    """Return operand values in the arithmetic type (bf16 uses float), flushed for .ftz."""
    llvm = llvm_of(i.type)
    values = [c.get(operand, i.type) for operand in i.operands[1 : 1 + count]]
    if i.type == "bf16":
        return "float", [widen_bf16(c, v) for v in values]
    if "ftz" in i.parts:
        values = [flush(c, llvm, v) for v in values]
    return llvm, values


def result(c: WarpCode, i: ir.Instruction, llvm: str, value: str) -> None:
    """Flush, saturate and write a floating-point result."""
    if "ftz" in i.parts and i.type != "bf16":
        value = flush(c, llvm, value)
    if "sat" in i.parts:
        value = saturate(c, llvm, value)
    if i.type == "bf16":
        value = narrow_bf16(c, value)
    c.set(i.operands[0], value, i.type)


def widen_bf16(c: WarpCode, value: str) -> str:
    """Emit bf16 lanes as float, exactly."""
    wide = c.e.convert("zext", "i16", value, "i32")
    return c.e.convert("bitcast", "i32", c.e.binary("shl", "i32", wide, constant("i32", 16)), "float")


def narrow_bf16(c: WarpCode, value: str, mode: str = "rn") -> str:
    """Round float lanes to bf16; NaN becomes 0x7FFF."""
    e = c.e
    raw = e.convert("bitcast", "float", value, "i32")
    high = e.binary("lshr", "i32", raw, constant("i32", 16))
    if mode == "rn":
        last_bit = e.binary("and", "i32", high, constant("i32", 1))
        raw = e.binary("add", "i32", e.binary("add", "i32", raw, constant("i32", 0x7FFF)), last_bit)
        high = e.binary("lshr", "i32", raw, constant("i32", 16))
    elif mode != "rz":
        rounds_away = e.compare("slt" if mode == "rm" else "sge", "i32", raw, constant("i32", 0))
        rounded_up = e.binary(
            "add", "i32", raw, e.select("i32", rounds_away, constant("i32", 0xFFFF), constant("i32", 0))
        )
        high = e.binary("lshr", "i32", rounded_up, constant("i32", 16))
    nan = e.compare("uno", "float", value, value)
    high = e.select("i32", nan, constant("i32", 0x7FFF), high)
    return e.convert("trunc", "i32", high, "i16")


def widen_half(c: WarpCode, value: str) -> str:
    """Emit half lanes as float, exactly."""
    return c.e.convert("fpext", "half", value, "float")


def narrow_half(c: WarpCode, value: str) -> str:
    """Round float lanes to half."""
    return c.e.convert("fptrunc", "float", value, "half")


def flush(c: WarpCode, llvm: str, value: str) -> str:
    """Emit the replacement of subnormal lanes by zero of the same sign."""
    e = c.e
    if llvm == "half":
        raw = e.convert("bitcast", "half", value, "i16")
        exponent = e.binary("and", "i16", raw, constant("i16", INFINITY["half"]))
        is_subnormal = e.compare("eq", "i16", exponent, constant("i16", 0))
        zero = e.binary("and", "i16", raw, constant("i16", 0x8000))
        return e.convert("bitcast", "i16", e.select("i16", is_subnormal, zero, raw), "half")
    magnitude = e.intrinsic("fabs", llvm, value)
    is_subnormal = e.compare("olt", llvm, magnitude, float_constant(llvm, SMALLEST_NORMAL[llvm]))
    zero = e.intrinsic("copysign", llvm, float_constant(llvm, 0), value)
    return e.select(llvm, is_subnormal, zero, value)


def saturate(c: WarpCode, llvm: str, value: str) -> str:
    """Clamp to 0..1; NaN becomes 0, and so does -0."""
    if llvm == "half":
        return narrow_half(c, saturate(c, "float", widen_half(c, value)))
    positive = c.e.intrinsic("maximumnum", llvm, value, float_constant(llvm, 0))
    return c.e.intrinsic("minimumnum", llvm, positive, float_constant(llvm, ONE[llvm]))


def relu(c: WarpCode, llvm: str, value: str) -> str:
    """Emit 0 for negative lanes and -0; NaN stays NaN, in the form that an H200 writes."""
    if llvm == "half":
        return narrow_half(c, relu(c, "float", widen_half(c, value)))
    return canonical_nan(c, llvm, c.e.intrinsic("maximum", llvm, value, float_constant(llvm, 0)))


def canonical_nan(c: WarpCode, llvm: str, value: str) -> str:
    """Emit every NaN in the form that the hardware's min, max and relu write: all bits but the sign set."""
    e = c.e
    integer = f"i{bits(llvm)}"
    nan = e.convert("bitcast", integer, constant(integer, (1 << (bits(llvm) - 1)) - 1), llvm)
    return e.select(llvm, e.compare("uno", llvm, value, value), nan, value)


def rounding(i: ir.Instruction) -> str:
    """Return the directed rounding of an instruction, or ``rn``."""
    return next((p for p in i.parts[1:] if p in _DIRECTED), "rn")


def correct_rounding(c: WarpCode, llvm: str, nearest: str, is_below: str, is_above: str, mode: str) -> str:
    """Move a nearest-rounded result by one unit in lanes where the rounding mode requires it.

    `is_below` and `is_above` are the lanes whose exact value is less or more than the nearest.
    """
    e = c.e
    integer = f"i{bits(llvm)}"
    raw = e.convert("bitcast", llvm, nearest, integer)
    negative = e.compare("slt", integer, raw, constant(integer, 0))
    positive = e.compare("sge", integer, raw, constant(integer, 0))
    one = constant(integer, 1)
    grow = e.binary("add", integer, raw, one)
    shrink = e.binary("sub", integer, raw, one)
    if mode == "rz":
        too_large = e.binary(
            "or", "i1", e.binary("and", "i1", is_below, positive), e.binary("and", "i1", is_above, negative)
        )
        result = e.select(integer, too_large, shrink, raw)
    else:
        on_wrong_side = is_below if mode == "rm" else is_above
        grows = negative if mode == "rm" else positive
        result = e.select(integer, on_wrong_side, e.select(integer, grows, grow, shrink), raw)
    return e.convert("bitcast", integer, result, llvm)


def two_sum(c: WarpCode, llvm: str, a: str, b: str) -> tuple[str, str]:
    """Emit the nearest sum and its exact error (Knuth)."""
    e = c.e
    s = e.binary("fadd", llvm, a, b)
    t = e.binary("fsub", llvm, s, a)
    error_of_a = e.binary("fsub", llvm, a, e.binary("fsub", llvm, s, t))
    return s, e.binary("fadd", llvm, error_of_a, e.binary("fsub", llvm, b, t))


def fused(c: WarpCode, kind: str, a: str, b: str, d: str, mode: str) -> str:
    """Emit a multiplication and addition with one rounding.

    For bf16, floats that round to bf16 as the exact sum does.
    """
    e = c.e
    llvm = "float" if kind == "bf16" else llvm_of(kind)
    if kind in ("f16", "bf16"):
        wide_type = "float" if kind == "f16" else "double"
        wide_values = [e.convert("fpext", llvm, v, wide_type) for v in (a, b, d)]
        product = e.binary("fmul", wide_type, wide_values[0], wide_values[1])  # exact
        total = odd_sum(c, wide_type, product, wide_values[2])
        if kind == "f16":
            return e.convert("fptrunc", "float", total, "half")
        return odd_float(c, total)
    if mode == "rn":
        return e.intrinsic("fma", llvm, a, b, d)
    return directed(c, "fma", mode, llvm, llvm, a, b, d)


def odd_float(c: WarpCode, value: str) -> str:
    """Emit double lanes as floats rounded to odd, so that a second rounding to 16 bits gives the same result
    as one.
    """
    e = c.e
    truncated = directed(c, "fptrunc", "rz", "float", "double", value)
    return make_odd(
        c, truncated, e.compare("one", "double", e.convert("fpext", "float", truncated, "double"), value)
    )


def make_odd(c: WarpCode, value: str, inexact: str) -> str:
    """Emit float lanes that were rounded toward zero, made odd in lanes where the rounding was inexact."""
    e = c.e
    raw = e.convert("bitcast", "float", value, "i32")
    raw = e.binary("or", "i32", raw, e.convert("zext", "i1", inexact, "i32"))
    return e.convert("bitcast", "i32", raw, "float")


def odd_sum(c: WarpCode, llvm: str, a: str, b: str) -> str:
    """Emit a sum rounded to odd, so that a second rounding to a shorter type gives the same result as one."""
    e = c.e
    integer = f"i{bits(llvm)}"
    zero, one, minus = (constant(integer, n) for n in (0, 1, -1))
    s, error = two_sum(c, llvm, a, b)
    raw = e.convert("bitcast", llvm, s, integer)
    inexact = e.compare("one", llvm, error, float_constant(llvm, 0))
    is_even = e.compare("eq", integer, e.binary("and", integer, raw, one), zero)
    error_bits = e.convert("bitcast", llvm, error, integer)
    same_sign = e.compare("sge", integer, e.binary("xor", integer, raw, error_bits), zero)
    changes = e.binary("and", "i1", inexact, is_even)
    raw = e.select(
        integer, changes, e.binary("add", integer, raw, e.select(integer, same_sign, one, minus)), raw
    )
    return e.convert("bitcast", integer, raw, llvm)


def binary(c: WarpCode, i: ir.Instruction, operation: str) -> None:
    """Emit an addition, subtraction, product or quotient with any rounding mode."""
    llvm, (a, b) = inputs(c, i, 2)
    mode = rounding(i)
    e = c.e
    if llvm == "half":  # a float has enough bits that rounding twice equals rounding once
        value = narrow_half(c, e.binary(operation, "float", widen_half(c, a), widen_half(c, b)))
    elif mode == "rn":
        value = e.binary(operation, llvm, a, b)
    elif llvm in ("float", "double"):
        value = directed(c, operation, mode, llvm, llvm, a, b)
    else:
        raise NotSupportedError(f"The virtual GPU does not do {i.opcode}.")
    result(c, i, llvm, value)
