"""Lane-wise arithmetic, logic and comparison instructions as LLVM IR."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from virtualgpu.compile.ptx import ir
from virtualgpu.compile.ptx.contract import NEGATED_ADDEND, NEGATED_PRODUCT
from virtualgpu.engine.ir.emit import bits, constant, float_constant, llvm_of
from virtualgpu.engine.lower import approximate
from virtualgpu.engine.lower.ops.floating import floats
from virtualgpu.engine.lower.ops.floating.rounding import directed
from virtualgpu.engine.lower.warp_code import WarpCode
from virtualgpu.errors import NotSupportedError


def emit(c: WarpCode, i: ir.Instruction) -> bool:
    """Emit an arithmetic instruction; return False for any other instruction."""
    handler = HANDLERS.get(i.root)
    if handler is None:
        return False
    if i.type in ("f16x2", "bf16x2"):
        _each_half(c, i)
    else:
        handler(c, i)
    return True


class _Half:
    """A view of a compiler in which packed operands are read as one of their two halves."""

    def __init__(self, c: WarpCode, half: int) -> None:
        self.compiler = c
        self.half = half
        self.result = ""

    def __getattr__(self, name: str) -> object:
        return getattr(self.compiler, name)

    def get(self, operand: ir.Operand | None, ptx_type: str) -> str:
        if ptx_type == "pred":
            return self.compiler.get(operand, ptx_type)
        e = self.compiler.e
        word = self.compiler.get(operand, "b32")
        if self.half:
            word = e.binary("lshr", "i32", word, constant("i32", 16))
        short = e.cast(word, "i32", "i16")
        return e.cast(short, "i16", llvm_of(ptx_type))

    def set(self, operand: ir.Operand | None, value: str, ptx_type: str) -> None:
        e = self.compiler.e
        short = e.cast(value, llvm_of(ptx_type), "i16")
        self.result = e.cast(short, "i16", "i32")


def _each_half(c: WarpCode, i: ir.Instruction) -> None:
    if i.root not in ("add", "sub", "mul", "fma", "neg", "abs", "min", "max", "ex2", "tanh", "set"):
        raise NotSupportedError(f"The virtual GPU does not do the packed instruction {i.opcode}.")
    half_types = {"f16x2": "f16", "bf16x2": "bf16"} | (
        {"u32": "u16", "s32": "s16"} if i.root == "set" else {}
    )
    scalar_instruction = ir.Instruction(
        i.pc,
        i.opcode[:-2],
        tuple(half_types.get(half, half) for half in i.parts),
        i.operands,
        None,
        False,
        i.line,
        i.column,
        i.text,
    )
    halves = []
    for half in (0, 1):
        view = _Half(c, half)
        HANDLERS[i.root](view, scalar_instruction)  # type: ignore[arg-type]
        halves.append(view.result)
    high = c.e.binary("shl", "i32", halves[1], constant("i32", 16))
    c.set(i.operands[0], c.e.binary("or", "i32", halves[0], high), "b32")


# -- floating point ---------------------------------------------------------------------------------


# -- integers with a carry ---------------------------------------------------------------------------


def _with_carry(c: WarpCode, i: ir.Instruction, a: str, b: str, subtract: bool) -> None:
    """Emit add/sub with carry in (…c) and carry out (.cc); the flag is kept as an i1 vector.

    A difference is the sum with the complement plus one, so its flag is set where there was no
    borrow. NVVM's division of 128-bit integers adds such a flag.
    """
    e = c.e
    llvm = llvm_of(i.type)
    if subtract:
        b = e.binary("xor", llvm, b, constant(llvm, -1))
    value = e.binary("add", llvm, a, b)
    carry_out = e.compare("ult", llvm, value, a)
    if subtract or i.root in ("addc", "madc"):
        carry = c.carry if i.root in ("addc", "subc", "madc") else constant("i1", 1)
        with_carry = e.binary("add", llvm, value, e.convert("zext", "i1", carry, llvm))
        carry_out = e.binary("or", "i1", carry_out, e.compare("ult", llvm, with_carry, value))
        value = with_carry
    if "cc" in i.parts:
        c.carry = carry_out
    c.set(i.operands[0], value, i.type)


def _add(c: WarpCode, i: ir.Instruction) -> None:
    subtract = i.root in ("sub", "subc")
    if floats.is_float(i.type):
        floats.binary(c, i, "fsub" if subtract else "fadd")
        return
    a = c.get(i.operands[1], i.type)
    b = c.get(i.operands[2], i.type)
    if "cc" in i.parts or i.root in ("addc", "subc"):
        _with_carry(c, i, a, b, subtract)
    elif "sat" in i.parts:
        c.set(i.operands[0], c.e.intrinsic("ssub.sat" if subtract else "sadd.sat", "i32", a, b), i.type)
    else:
        c.set(i.operands[0], c.e.binary("sub" if subtract else "add", llvm_of(i.type), a, b), i.type)


def _integer_product(c: WarpCode, i: ir.Instruction) -> tuple[str, str]:
    """Return the integer product that an instruction requests (lo, hi, wide) and its PTX type."""
    e = c.e
    kind = i.type
    a = c.get(i.operands[1], kind)
    b = c.get(i.operands[2], kind)
    llvm = llvm_of(kind)
    width = bits(llvm_of(kind))
    extend = "sext" if kind[0] == "s" else "zext"
    if i.root in ("mul24", "mad24"):
        unused_bits = constant("i32", 8)
        shift = "ashr" if kind[0] == "s" else "lshr"
        a, b = (e.binary(shift, "i32", e.binary("shl", "i32", v, unused_bits), unused_bits) for v in (a, b))
    if "wide" in i.parts or "hi" in i.parts:
        double = f"i{2 * width}"
        wide = e.binary("mul", double, e.convert(extend, llvm, a, double), e.convert(extend, llvm, b, double))
        if "wide" in i.parts:
            return wide, f"{kind[0]}{2 * width}"
        # The 24-bit kinds have a product of 48 bits, whose upper 32 are asked for.
        low_bits = 16 if i.root in ("mul24", "mad24") else width
        high = e.binary("lshr", double, wide, constant(double, low_bits))
        return e.convert("trunc", double, high, llvm), kind
    return e.binary("mul", llvm, a, b), kind


def _mul(c: WarpCode, i: ir.Instruction) -> None:
    if floats.is_float(i.type):
        floats.binary(c, i, "fmul")
        return
    value, kind = _integer_product(c, i)
    c.set(i.operands[0], value, kind)


def _mad(c: WarpCode, i: ir.Instruction) -> None:
    if floats.is_float(i.type):
        _fma(c, i)
        return
    value, kind = _integer_product(c, i)
    addend = c.get(i.operands[3], kind)
    if "cc" in i.parts or i.root == "madc":
        _with_carry(c, i, value, addend, False)
    elif "sat" in i.parts:
        c.set(i.operands[0], c.e.intrinsic("sadd.sat", "i32", value, addend), kind)
    else:
        c.set(i.operands[0], c.e.binary("add", llvm_of(kind), value, addend), kind)


def _fma(c: WarpCode, i: ir.Instruction) -> None:
    llvm, (a, b, d) = floats.inputs(c, i, 3)
    if NEGATED_PRODUCT in i.parts:
        a = c.e.op(f"fneg <32 x {llvm}> {a}")
    if NEGATED_ADDEND in i.parts:
        d = c.e.op(f"fneg <32 x {llvm}> {d}")
    value = floats.fused(c, i.type, a, b, d, floats.rounding(i))
    if "relu" in i.parts:
        value = floats.relu(c, llvm, value)
    floats.result(c, i, llvm, value)


def _div(c: WarpCode, i: ir.Instruction) -> None:
    if floats.is_float(i.type):
        floats.binary(c, i, "fdiv")
        return
    e = c.e
    kind = i.type
    llvm = llvm_of(kind)
    is_signed = kind[0] == "s"
    a = c.get(i.operands[1], kind)
    b = c.get(i.operands[2], kind)
    # A zero divisor has no result in PTX but must not trap here; an H200 gives all ones, for rem too.
    is_zero = e.compare("eq", llvm, b, constant(llvm, 0))
    divisor = e.select(llvm, is_zero, constant(llvm, 1), b)
    if bits(llvm) <= 32:
        # Exact: a double holds every 32-bit quotient's integer part.
        to_double, to_integer = ("sitofp", "fptosi") if is_signed else ("uitofp", "fptoui")
        ratio = e.binary(
            "fdiv",
            "double",
            e.convert(to_double, llvm, a, "double"),
            e.convert(to_double, llvm, divisor, "double"),
        )
        quotient = e.convert("trunc", "i64", e.convert(to_integer, "double", ratio, "i64"), llvm)
    elif is_signed:
        overflow = e.compare("eq", llvm, divisor, constant(llvm, -1))
        safe_divisor = e.select(llvm, overflow, constant(llvm, 1), divisor)
        ordinary = e.binary("sdiv", llvm, a, safe_divisor)
        quotient = e.select(llvm, overflow, e.binary("sub", llvm, constant(llvm, 0), a), ordinary)
    else:
        quotient = e.binary("udiv", llvm, a, divisor)
    if i.root == "rem":
        quotient = e.binary("sub", llvm, a, e.binary("mul", llvm, quotient, divisor))
    c.set(i.operands[0], e.select(llvm, is_zero, constant(llvm, -1), quotient), kind)


def _abs_neg(c: WarpCode, i: ir.Instruction) -> None:
    e = c.e
    kind = i.type
    if floats.is_float(kind):
        llvm, (a,) = floats.inputs(c, i, 1)
        value = e.intrinsic("fabs", llvm, a) if i.root == "abs" else e.op(f"fneg <32 x {llvm}> {a}")
        floats.result(c, i, llvm, value)
        return
    llvm = llvm_of(kind)
    a = c.get(i.operands[1], kind)
    result = e.binary("sub", llvm, constant(llvm, 0), a)
    if i.root == "abs":
        result = e.select(llvm, e.compare("slt", llvm, a, constant(llvm, 0)), result, a)
    c.set(i.operands[0], result, kind)


def _min_max(c: WarpCode, i: ir.Instruction) -> None:
    e = c.e
    kind = i.type
    if not floats.is_float(kind):
        name = ("s" if kind[0] == "s" else "u") + i.root
        value = e.intrinsic(name, llvm_of(kind), c.get(i.operands[1], kind), c.get(i.operands[2], kind))
        c.set(i.operands[0], value, kind)
        return
    llvm, values = floats.inputs(c, i, len(i.operands) - 1)
    # Without .NaN the other operand wins over a NaN, and -0 is below +0.
    name = i.root + ("imum" if "NaN" in i.parts else "imumnum")
    if llvm == "half":
        values = [floats.widen_half(c, value) for value in values]
    wide_type = "float" if llvm == "half" else llvm
    sign = ""
    if "xorsign" in i.parts:  # the minimum or maximum of the absolute values, with the product's sign
        sign = _sign_of_product(c, wide_type, values)
        values = [e.intrinsic("fabs", wide_type, value) for value in values]
    result = values[0]
    for value in values[1:]:
        result = e.intrinsic(name, wide_type, result, value)
    if sign:
        result = e.intrinsic("copysign", wide_type, result, sign)
    if "NaN" in i.parts:
        result = floats.canonical_nan(c, wide_type, result)
    if llvm == "half":
        result = floats.narrow_half(c, result)
    floats.result(c, i, llvm, result)


def _sign_of_product(c: WarpCode, llvm: str, values: Sequence[str]) -> str:
    """Emit numbers that have the sign of the product of two numbers."""
    e = c.e
    integer = f"i{bits(llvm)}"
    first, second = (e.convert("bitcast", llvm, value, integer) for value in values)
    return e.convert("bitcast", integer, e.binary("xor", integer, first, second), llvm)


def _copysign(c: WarpCode, i: ir.Instruction) -> None:
    llvm, (a, b) = floats.inputs(c, i, 2)
    c.set(i.operands[0], c.e.intrinsic("copysign", llvm, b, a), i.type)


_APPROXIMATE = ("sin", "cos", "ex2", "lg2", "tanh")


def _unary_function(c: WarpCode, i: ir.Instruction) -> None:
    """Emit sqrt, rcp, rsqrt and the approximate functions, at least as accurate as the hardware."""
    e = c.e
    llvm, (a,) = floats.inputs(c, i, 1)
    if i.root == "rcp":
        one = float_constant(llvm, floats.ONE[llvm])
        if floats.rounding(i) != "rn":
            value = directed(c, "fdiv", floats.rounding(i), llvm, llvm, one, a)
        else:
            value = e.binary("fdiv", llvm, one, a)
    elif i.root == "rsqrt":
        wide = e.convert("fpext", llvm, a, "double") if llvm != "double" else a
        root = e.intrinsic("sqrt", "double", wide)
        value = e.binary("fdiv", "double", float_constant("double", floats.ONE["double"]), root)
        value = e.convert("fptrunc", "double", value, llvm) if llvm != "double" else value
    elif i.root == "sqrt" and floats.rounding(i) != "rn":
        value = directed(c, "sqrt", floats.rounding(i), llvm, llvm, a)
    elif i.root == "sqrt":
        value = e.intrinsic("sqrt", llvm, a)
    elif llvm == "half":
        value = floats.narrow_half(c, _approximate(c, i.root, floats.widen_half(c, a)))
    else:
        value = _approximate(c, i.root, a)
    floats.result(c, i, llvm, value)


def _approximate(c: WarpCode, root: str, value: str) -> str:
    name, text = approximate.function(root)
    c.add_support(name, text)
    return c.e.op(f"call <32 x float> @{name}(<32 x float> {value})")


# -- comparison and selection ------------------------------------------------------------------------

_UNSIGNED_NAMES = {"lo": "lt", "ls": "le", "hi": "gt", "hs": "ge"}


def compare(c: WarpCode, comparison: str, kind: str, a: str, b: str, flush_inputs: bool = False) -> str:
    """Emit a PTX comparison as an i1 vector."""
    e = c.e
    llvm = llvm_of(kind)
    if floats.is_float(kind):
        if kind == "bf16":
            a = floats.widen_bf16(c, a)
            b = floats.widen_bf16(c, b)
            llvm = "float"
        if flush_inputs:
            a = floats.flush(c, llvm, a)
            b = floats.flush(c, llvm, b)
        if kind == "f16":
            a = floats.widen_half(c, a)
            b = floats.widen_half(c, b)
            llvm = "float"
        if comparison in ("num", "nan"):
            return e.compare("ord" if comparison == "num" else "uno", llvm, a, b)
        if len(comparison) == 3:
            return e.compare("u" + comparison[:2], llvm, a, b)
        return e.compare("o" + comparison, llvm, a, b)
    comparison = _UNSIGNED_NAMES.get(comparison, comparison)
    if comparison not in ("eq", "ne"):
        comparison = ("s" if kind[0] == "s" else "u") + comparison
    return e.compare(comparison, llvm, a, b)


def _comparison(c: WarpCode, i: ir.Instruction, kind: str) -> str:
    test = compare(
        c, i.parts[1], kind, c.get(i.operands[1], kind), c.get(i.operands[2], kind), "ftz" in i.parts
    )
    combine = next((p for p in i.parts[2:] if p in ("and", "or", "xor")), None)
    if combine:
        test = c.e.binary(combine, "i1", test, c.get(i.operands[3], "pred"))
    return test


def _setp(c: WarpCode, i: ir.Instruction) -> None:
    target = i.operands[0]
    combine = next((p for p in i.parts[2:] if p in ("and", "or", "xor")), None)
    if isinstance(target, ir.Pair):
        a, b = (c.get(operand, i.type) for operand in i.operands[1:3])
        test = compare(c, i.parts[1], i.type, a, b, "ftz" in i.parts)
        opposite = c.e.binary("xor", "i1", test, constant("i1", 1))
        if combine:
            combined_with = c.get(i.operands[3], "pred")
            test = c.e.binary(combine, "i1", test, combined_with)
            opposite = c.e.binary(combine, "i1", opposite, combined_with)
        if target.first is not None:
            c.set(target.first, test, "pred")
        if target.second is not None:
            c.set(target.second, opposite, "pred")
        return
    c.set(target, _comparison(c, i, i.type), "pred")


def _set(c: WarpCode, i: ir.Instruction) -> None:
    kind = i.parts[-1]
    target = i.parts[-2]
    test = _comparison(c, i, kind)
    llvm = llvm_of(target)
    if floats.is_float(target):
        one = 0x3F80 if target == "bf16" else floats.ONE[llvm]
        if_true = constant(llvm, one) if target == "bf16" else float_constant(llvm, one)
        if_false = constant(llvm, 0) if target == "bf16" else float_constant(llvm, 0)
    else:
        if_true = constant(llvm, -1)
        if_false = constant(llvm, 0)
    c.set(i.operands[0], c.e.select(llvm, test, if_true, if_false), target)


def _selp(c: WarpCode, i: ir.Instruction) -> None:
    a = c.get(i.operands[1], i.type)
    b = c.get(i.operands[2], i.type)
    p = c.get(i.operands[3], "pred")
    c.set(i.operands[0], c.e.select(llvm_of(i.type), p, a, b), i.type)


def _slct(c: WarpCode, i: ir.Instruction) -> None:
    kind = i.parts[-2]
    test_kind = i.parts[-1]
    zero = float_constant("float", 0) if test_kind == "f32" else constant("i32", 0)
    value = c.get(i.operands[3], test_kind)
    if "ftz" in i.parts:
        value = floats.flush(c, "float", value)
    test = c.e.compare("oge" if test_kind == "f32" else "sge", llvm_of(test_kind), value, zero)
    a = c.get(i.operands[1], kind)
    b = c.get(i.operands[2], kind)
    c.set(i.operands[0], c.e.select(llvm_of(kind), test, a, b), kind)


def _testp(c: WarpCode, i: ir.Instruction) -> None:
    e = c.e
    llvm = llvm_of(i.type)
    a = c.get(i.operands[1], i.type)
    magnitude = e.intrinsic("fabs", llvm, a)
    infinity = float_constant(llvm, floats.INFINITY[llvm])
    smallest_normal = float_constant(llvm, floats.SMALLEST_NORMAL[llvm])
    category = i.parts[1]
    if category == "finite":
        test = e.compare("olt", llvm, magnitude, infinity)
    elif category == "infinite":
        test = e.compare("oeq", llvm, magnitude, infinity)
    elif category in ("number", "notanumber"):
        test = e.compare("ord" if category == "number" else "uno", llvm, a, a)
    elif category == "normal":
        is_at_least_normal = e.compare("oge", llvm, magnitude, smallest_normal)
        test = e.binary("and", "i1", is_at_least_normal, e.compare("olt", llvm, magnitude, infinity))
        test = e.binary("or", "i1", test, e.compare("oeq", llvm, magnitude, float_constant(llvm, 0)))
    else:
        is_nonzero = e.compare("one", llvm, magnitude, float_constant(llvm, 0))
        test = e.binary("and", "i1", is_nonzero, e.compare("olt", llvm, magnitude, smallest_normal))
    c.set(i.operands[0], test, "pred")


HANDLERS: dict[str, Callable[[WarpCode, ir.Instruction], None]] = {
    "add": _add,
    "addc": _add,
    "sub": _add,
    "subc": _add,
    "mul": _mul,
    "mul24": _mul,
    "mad": _mad,
    "madc": _mad,
    "mad24": _mad,
    "fma": _fma,
    "div": _div,
    "rem": _div,
    "abs": _abs_neg,
    "neg": _abs_neg,
    "min": _min_max,
    "max": _min_max,
    "copysign": _copysign,
    "rcp": _unary_function,
    "rsqrt": _unary_function,
    "sqrt": _unary_function,
    **dict.fromkeys(_APPROXIMATE, _unary_function),
    "setp": _setp,
    "set": _set,
    "selp": _selp,
    "slct": _slct,
    "testp": _testp,
}
ROOTS = HANDLERS.keys()
