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
    """Whether a PTX type is a floating-point one."""
    return ptx_type in _FLOATS


def inputs(c: WarpCode, i: ir.Instruction, count: int) -> tuple[str, list[str]]:
    """Operand values in the arithmetic type (bf16 computes in float), flushed where .ftz asks."""
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
    """bf16 lanes as float, exactly."""
    wide = c.e.convert("zext", "i16", value, "i32")
    return c.e.convert("bitcast", "i32", c.e.binary("shl", "i32", wide, constant("i32", 16)), "float")


def narrow_bf16(c: WarpCode, value: str, mode: str = "rn") -> str:
    """Round float lanes to bf16; NaN becomes 0x7FFF."""
    e = c.e
    raw = e.convert("bitcast", "float", value, "i32")
    high = e.binary("lshr", "i32", raw, constant("i32", 16))
    if mode == "rn":
        last = e.binary("and", "i32", high, constant("i32", 1))
        raw = e.binary("add", "i32", e.binary("add", "i32", raw, constant("i32", 0x7FFF)), last)
        high = e.binary("lshr", "i32", raw, constant("i32", 16))
    elif mode != "rz":
        away = e.compare("slt" if mode == "rm" else "sge", "i32", raw, constant("i32", 0))
        up = e.binary("add", "i32", raw, e.select("i32", away, constant("i32", 0xFFFF), constant("i32", 0)))
        high = e.binary("lshr", "i32", up, constant("i32", 16))
    nan = e.compare("uno", "float", value, value)
    high = e.select("i32", nan, constant("i32", 0x7FFF), high)
    return e.convert("trunc", "i32", high, "i16")


def widen_half(c: WarpCode, value: str) -> str:
    """Half lanes as float, exactly."""
    return c.e.convert("fpext", "half", value, "float")


def narrow_half(c: WarpCode, value: str) -> str:
    """Round float lanes to half."""
    return c.e.convert("fptrunc", "float", value, "half")


def flush(c: WarpCode, llvm: str, value: str) -> str:
    """Subnormal lanes to zero of the same sign."""
    e = c.e
    if llvm == "half":
        raw = e.convert("bitcast", "half", value, "i16")
        exponent = e.binary("and", "i16", raw, constant("i16", INFINITY["half"]))
        tiny = e.compare("eq", "i16", exponent, constant("i16", 0))
        zero = e.binary("and", "i16", raw, constant("i16", 0x8000))
        return e.convert("bitcast", "i16", e.select("i16", tiny, zero, raw), "half")
    size = e.intrinsic("fabs", llvm, value)
    tiny = e.compare("olt", llvm, size, float_constant(llvm, SMALLEST_NORMAL[llvm]))
    zero = e.intrinsic("copysign", llvm, float_constant(llvm, 0), value)
    return e.select(llvm, tiny, zero, value)


def saturate(c: WarpCode, llvm: str, value: str) -> str:
    """Clamp to 0..1; NaN becomes 0, and so does -0."""
    if llvm == "half":
        return narrow_half(c, saturate(c, "float", widen_half(c, value)))
    positive = c.e.intrinsic("maximumnum", llvm, value, float_constant(llvm, 0))
    return c.e.intrinsic("minimumnum", llvm, positive, float_constant(llvm, ONE[llvm]))


def relu(c: WarpCode, llvm: str, value: str) -> str:
    """Negative lanes and -0 to 0; NaN stays NaN, in the form that an H200 writes."""
    if llvm == "half":
        return narrow_half(c, relu(c, "float", widen_half(c, value)))
    return canonical_nan(c, llvm, c.e.intrinsic("maximum", llvm, value, float_constant(llvm, 0)))


def canonical_nan(c: WarpCode, llvm: str, value: str) -> str:
    """Every NaN as the one that the hardware's min, max and relu write: all bits but the sign set."""
    e = c.e
    integer = f"i{bits(llvm)}"
    nan = e.convert("bitcast", integer, constant(integer, (1 << (bits(llvm) - 1)) - 1), llvm)
    return e.select(llvm, e.compare("uno", llvm, value, value), nan, value)


def rounding(i: ir.Instruction) -> str:
    """The directed rounding an instruction asks for, or ``rn``."""
    return next((p for p in i.parts[1:] if p in _DIRECTED), "rn")


def one_unit(c: WarpCode, llvm: str, nearest: str, below: str, above: str, mode: str) -> str:
    """Move a nearest-rounded result one unit where the exact value lies on the asked side.

    `below` and `above` are the lanes whose exact value is less or more than the nearest.
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
        over = e.binary(
            "or", "i1", e.binary("and", "i1", below, positive), e.binary("and", "i1", above, negative)
        )
        result = e.select(integer, over, shrink, raw)
    else:
        wrong = below if mode == "rm" else above
        away = negative if mode == "rm" else positive
        result = e.select(integer, wrong, e.select(integer, away, grow, shrink), raw)
    return e.convert("bitcast", integer, result, llvm)


def two_sum(c: WarpCode, llvm: str, a: str, b: str) -> tuple[str, str]:
    """Nearest sum and its exact error (Knuth)."""
    e = c.e
    s = e.binary("fadd", llvm, a, b)
    t = e.binary("fsub", llvm, s, a)
    left = e.binary("fsub", llvm, a, e.binary("fsub", llvm, s, t))
    return s, e.binary("fadd", llvm, left, e.binary("fsub", llvm, b, t))


def fused(c: WarpCode, kind: str, a: str, b: str, d: str, mode: str) -> str:
    """Multiply and add with one rounding; for bf16, floats that will round to bf16 as the exact sum does."""
    e = c.e
    llvm = "float" if kind == "bf16" else llvm_of(kind)
    if kind in ("f16", "bf16"):
        wider = "float" if kind == "f16" else "double"
        wide = [e.convert("fpext", llvm, v, wider) for v in (a, b, d)]
        product = e.binary("fmul", wider, wide[0], wide[1])  # exact
        total = odd_sum(c, wider, product, wide[2])
        if kind == "f16":
            return e.convert("fptrunc", "float", total, "half")
        return odd_float(c, total)
    if mode == "rn":
        return e.intrinsic("fma", llvm, a, b, d)
    return directed(c, "fma", mode, llvm, llvm, a, b, d)


def odd_float(c: WarpCode, value: str) -> str:
    """Double lanes as floats rounded to odd, so that rounding them once more to 16 bits rounds only once."""
    e = c.e
    short = directed(c, "fptrunc", "rz", "float", "double", value)
    return odd(c, short, e.compare("one", "double", e.convert("fpext", "float", short, "double"), value))


def odd(c: WarpCode, value: str, lost: str) -> str:
    """Float lanes rounded toward zero made odd where that lost something."""
    e = c.e
    raw = e.convert("bitcast", "float", value, "i32")
    raw = e.binary("or", "i32", raw, e.convert("zext", "i1", lost, "i32"))
    return e.convert("bitcast", "i32", raw, "float")


def odd_sum(c: WarpCode, llvm: str, a: str, b: str) -> str:
    """A sum rounded to odd, so that rounding it once more to a shorter type rounds only once."""
    e = c.e
    whole = f"i{bits(llvm)}"
    zero, one, minus = (constant(whole, n) for n in (0, 1, -1))
    s, error = two_sum(c, llvm, a, b)
    raw = e.convert("bitcast", llvm, s, whole)
    inexact = e.compare("one", llvm, error, float_constant(llvm, 0))
    even = e.compare("eq", whole, e.binary("and", whole, raw, one), zero)
    towards = e.convert("bitcast", llvm, error, whole)
    same = e.compare("sge", whole, e.binary("xor", whole, raw, towards), zero)
    change = e.binary("and", "i1", inexact, even)
    raw = e.select(whole, change, e.binary("add", whole, raw, e.select(whole, same, one, minus)), raw)
    return e.convert("bitcast", whole, raw, llvm)


def binary(c: WarpCode, i: ir.Instruction, operation: str) -> None:
    """An addition, subtraction, product or quotient with any rounding mode."""
    llvm, (a, b) = inputs(c, i, 2)
    mode = rounding(i)
    e = c.e
    if llvm == "half":  # a float has room enough for rounding twice to round as once
        value = narrow_half(c, e.binary(operation, "float", widen_half(c, a), widen_half(c, b)))
    elif mode == "rn":
        value = e.binary(operation, llvm, a, b)
    elif llvm in ("float", "double"):
        value = directed(c, operation, mode, llvm, llvm, a, b)
    else:
        raise NotSupportedError(f"The virtual GPU does not do {i.opcode}.")
    result(c, i, llvm, value)
