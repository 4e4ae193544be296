"""LLVM IR for arithmetic and comparison instructions, which work on each lane separately."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from virtualgpu.compile.ptx import ir
from virtualgpu.compile.ptx.contract import NEGATED_ADDEND, NEGATED_PRODUCT
from virtualgpu.engine.ir.emit import constant, float_constant, get_bit_width, llvm_of
from virtualgpu.engine.lower import approximate
from virtualgpu.engine.lower.ops.floating import floats
from virtualgpu.engine.lower.ops.floating.rounding import emit_directed_operation
from virtualgpu.engine.lower.warp_code import WarpCode
from virtualgpu.errors import NotSupportedError


def emit(code: WarpCode, instruction: ir.Instruction) -> bool:
    """Emit LLVM IR for an arithmetic instruction. Return False for an instruction of any other kind."""
    handler = HANDLERS.get(instruction.root)
    if handler is None:
        return False
    if instruction.type in ("f16x2", "bf16x2"):
        _emit_for_halves(code, instruction)
    else:
        handler(code, instruction)
    return True


class _HalfView:
    """A wrapper of a compiler that reads and writes one half of packed operands."""

    def __init__(self, code: WarpCode, half: int) -> None:
        self.compiler = code
        self.half = half
        self.result = ""

    def __getattr__(self, name: str) -> object:
        return getattr(self.compiler, name)

    def get(self, operand: ir.Operand | None, ptx_type: str) -> str:
        if ptx_type == "pred":
            return self.compiler.get(operand, ptx_type)
        emitter = self.compiler.emitter
        packed_word = self.compiler.get(operand, "b32")
        if self.half:
            packed_word = emitter.binary("lshr", "i32", packed_word, constant("i32", 16))
        half_bits = emitter.cast(packed_word, "i32", "i16")
        return emitter.cast(half_bits, "i16", llvm_of(ptx_type))

    def set(self, operand: ir.Operand | None, value: str, ptx_type: str) -> None:
        emitter = self.compiler.emitter
        half_bits = emitter.cast(value, llvm_of(ptx_type), "i16")
        self.result = emitter.cast(half_bits, "i16", "i32")


def _emit_for_halves(code: WarpCode, instruction: ir.Instruction) -> None:
    """Emit an instruction on 16-bit numbers for both halves of 32-bit registers."""
    if instruction.root not in ("add", "sub", "mul", "fma", "neg", "abs", "min", "max", "ex2", "tanh", "set"):
        raise NotSupportedError(
            f"The virtual GPU does not support the packed instruction {instruction.opcode}."
        )
    half_types = {"f16x2": "f16", "bf16x2": "bf16"} | (
        {"u32": "u16", "s32": "s16"} if instruction.root == "set" else {}
    )
    scalar_instruction = ir.Instruction(
        instruction.pc,
        instruction.opcode[:-2],
        tuple(half_types.get(modifier, modifier) for modifier in instruction.parts),
        instruction.operands,
        None,
        False,
        instruction.line,
        instruction.column,
        instruction.text,
    )
    half_results = []
    for half in (0, 1):
        half_view = _HalfView(code, half)
        HANDLERS[instruction.root](half_view, scalar_instruction)  # type: ignore[arg-type]
        half_results.append(half_view.result)
    upper_half = code.emitter.binary("shl", "i32", half_results[1], constant("i32", 16))
    code.set(instruction.operands[0], code.emitter.binary("or", "i32", half_results[0], upper_half), "b32")


# -- floating point ---------------------------------------------------------------------------------


# -- integers with a carry ---------------------------------------------------------------------------


def _emit_add_with_carry(
    code: WarpCode, instruction: ir.Instruction, a: str, b: str, is_subtraction: bool
) -> None:
    """Emit an addition or subtraction that reads a carry (``addc``) or sets one (``.cc``), an i1 vector.

    A difference is the sum with the complement plus one, so its flag is set where there was no
    borrow. NVVM's division of 128-bit integers adds such a flag.
    """
    emitter = code.emitter
    llvm_type = llvm_of(instruction.type)
    if is_subtraction:
        b = emitter.binary("xor", llvm_type, b, constant(llvm_type, -1))
    sum_value = emitter.binary("add", llvm_type, a, b)
    carry_out = emitter.compare("ult", llvm_type, sum_value, a)
    if is_subtraction or instruction.root in ("addc", "madc"):
        carry_in = code.carry_flag if instruction.root in ("addc", "subc", "madc") else constant("i1", 1)
        with_carry = emitter.binary(
            "add", llvm_type, sum_value, emitter.convert("zext", "i1", carry_in, llvm_type)
        )
        carry_out = emitter.binary(
            "or", "i1", carry_out, emitter.compare("ult", llvm_type, with_carry, sum_value)
        )
        sum_value = with_carry
    if "cc" in instruction.parts:
        code.carry_flag = carry_out
    code.set(instruction.operands[0], sum_value, instruction.type)


def _emit_add(code: WarpCode, instruction: ir.Instruction) -> None:
    is_subtraction = instruction.root in ("sub", "subc")
    if floats.is_float(instruction.type):
        floats.emit_binary_operation(code, instruction, "fsub" if is_subtraction else "fadd")
        return
    a = code.get(instruction.operands[1], instruction.type)
    b = code.get(instruction.operands[2], instruction.type)
    if "cc" in instruction.parts or instruction.root in ("addc", "subc"):
        _emit_add_with_carry(code, instruction, a, b, is_subtraction)
    elif "sat" in instruction.parts:
        code.set(
            instruction.operands[0],
            code.emitter.intrinsic("ssub.sat" if is_subtraction else "sadd.sat", "i32", a, b),
            instruction.type,
        )
    else:
        code.set(
            instruction.operands[0],
            code.emitter.binary("sub" if is_subtraction else "add", llvm_of(instruction.type), a, b),
            instruction.type,
        )


def _emit_integer_product(code: WarpCode, instruction: ir.Instruction) -> tuple[str, str]:
    """Return the integer product of an instruction (lower, upper or all bits) and its PTX type."""
    emitter = code.emitter
    ptx_type = instruction.type
    a = code.get(instruction.operands[1], ptx_type)
    b = code.get(instruction.operands[2], ptx_type)
    llvm_type = llvm_of(ptx_type)
    width = get_bit_width(llvm_of(ptx_type))
    extension = "sext" if ptx_type[0] == "s" else "zext"
    if instruction.root in ("mul24", "mad24"):
        unused_bits = constant("i32", 8)
        shift_opcode = "ashr" if ptx_type[0] == "s" else "lshr"
        a, b = (
            emitter.binary(shift_opcode, "i32", emitter.binary("shl", "i32", v, unused_bits), unused_bits)
            for v in (a, b)
        )
    if "wide" in instruction.parts or "hi" in instruction.parts:
        double_type = f"i{2 * width}"
        wide_product = emitter.binary(
            "mul",
            double_type,
            emitter.convert(extension, llvm_type, a, double_type),
            emitter.convert(extension, llvm_type, b, double_type),
        )
        if "wide" in instruction.parts:
            return wide_product, f"{ptx_type[0]}{2 * width}"
        # The 24-bit kinds have a product of 48 bits, of which the upper 32 are returned.
        low_bits = 16 if instruction.root in ("mul24", "mad24") else width
        upper_bits = emitter.binary("lshr", double_type, wide_product, constant(double_type, low_bits))
        return emitter.convert("trunc", double_type, upper_bits, llvm_type), ptx_type
    return emitter.binary("mul", llvm_type, a, b), ptx_type


def _emit_mul(code: WarpCode, instruction: ir.Instruction) -> None:
    if floats.is_float(instruction.type):
        floats.emit_binary_operation(code, instruction, "fmul")
        return
    product, ptx_type = _emit_integer_product(code, instruction)
    code.set(instruction.operands[0], product, ptx_type)


def _emit_mad(code: WarpCode, instruction: ir.Instruction) -> None:
    if floats.is_float(instruction.type):
        _emit_fma(code, instruction)
        return
    product, ptx_type = _emit_integer_product(code, instruction)
    addend = code.get(instruction.operands[3], ptx_type)
    if "cc" in instruction.parts or instruction.root == "madc":
        _emit_add_with_carry(code, instruction, product, addend, False)
    elif "sat" in instruction.parts:
        code.set(
            instruction.operands[0], code.emitter.intrinsic("sadd.sat", "i32", product, addend), ptx_type
        )
    else:
        code.set(
            instruction.operands[0], code.emitter.binary("add", llvm_of(ptx_type), product, addend), ptx_type
        )


def _emit_fma(code: WarpCode, instruction: ir.Instruction) -> None:
    llvm_type, (a, b, d) = floats.read_inputs(code, instruction, 3)
    if NEGATED_PRODUCT in instruction.parts:
        a = code.emitter.op(f"fneg <32 x {llvm_type}> {a}")
    if NEGATED_ADDEND in instruction.parts:
        d = code.emitter.op(f"fneg <32 x {llvm_type}> {d}")
    fused_value = floats.emit_fused_multiply_add(
        code, instruction.type, a, b, d, floats.find_rounding_mode(instruction)
    )
    if "relu" in instruction.parts:
        fused_value = floats.emit_relu(code, llvm_type, fused_value)
    floats.write_result(code, instruction, llvm_type, fused_value)


def _emit_div(code: WarpCode, instruction: ir.Instruction) -> None:
    if floats.is_float(instruction.type):
        floats.emit_binary_operation(code, instruction, "fdiv")
        return
    emitter = code.emitter
    ptx_type = instruction.type
    llvm_type = llvm_of(ptx_type)
    is_signed = ptx_type[0] == "s"
    a = code.get(instruction.operands[1], ptx_type)
    b = code.get(instruction.operands[2], ptx_type)
    # A zero divisor has no result in PTX but must not trap here; an H200 returns all ones, for rem too.
    is_zero = emitter.compare("eq", llvm_type, b, constant(llvm_type, 0))
    divisor = emitter.select(llvm_type, is_zero, constant(llvm_type, 1), b)
    if get_bit_width(llvm_type) <= 32:
        # Exact: a double holds every 32-bit quotient's integer part.
        to_double_opcode, to_integer_opcode = ("sitofp", "fptosi") if is_signed else ("uitofp", "fptoui")
        float_quotient = emitter.binary(
            "fdiv",
            "double",
            emitter.convert(to_double_opcode, llvm_type, a, "double"),
            emitter.convert(to_double_opcode, llvm_type, divisor, "double"),
        )
        quotient = emitter.convert(
            "trunc", "i64", emitter.convert(to_integer_opcode, "double", float_quotient, "i64"), llvm_type
        )
    elif is_signed:
        is_overflow = emitter.compare("eq", llvm_type, divisor, constant(llvm_type, -1))
        safe_divisor = emitter.select(llvm_type, is_overflow, constant(llvm_type, 1), divisor)
        int_quotient = emitter.binary("sdiv", llvm_type, a, safe_divisor)
        quotient = emitter.select(
            llvm_type, is_overflow, emitter.binary("sub", llvm_type, constant(llvm_type, 0), a), int_quotient
        )
    else:
        quotient = emitter.binary("udiv", llvm_type, a, divisor)
    if instruction.root == "rem":
        quotient = emitter.binary("sub", llvm_type, a, emitter.binary("mul", llvm_type, quotient, divisor))
    code.set(
        instruction.operands[0],
        emitter.select(llvm_type, is_zero, constant(llvm_type, -1), quotient),
        ptx_type,
    )


def _emit_abs_neg(code: WarpCode, instruction: ir.Instruction) -> None:
    emitter = code.emitter
    ptx_type = instruction.type
    if floats.is_float(ptx_type):
        llvm_type, (a,) = floats.read_inputs(code, instruction, 1)
        value = (
            emitter.intrinsic("fabs", llvm_type, a)
            if instruction.root == "abs"
            else emitter.op(f"fneg <32 x {llvm_type}> {a}")
        )
        floats.write_result(code, instruction, llvm_type, value)
        return
    llvm_type = llvm_of(ptx_type)
    a = code.get(instruction.operands[1], ptx_type)
    result = emitter.binary("sub", llvm_type, constant(llvm_type, 0), a)
    if instruction.root == "abs":
        result = emitter.select(
            llvm_type, emitter.compare("slt", llvm_type, a, constant(llvm_type, 0)), result, a
        )
    code.set(instruction.operands[0], result, ptx_type)


def _emit_min_max(code: WarpCode, instruction: ir.Instruction) -> None:
    emitter = code.emitter
    ptx_type = instruction.type
    if not floats.is_float(ptx_type):
        name = ("s" if ptx_type[0] == "s" else "u") + instruction.root
        value = emitter.intrinsic(
            name,
            llvm_of(ptx_type),
            code.get(instruction.operands[1], ptx_type),
            code.get(instruction.operands[2], ptx_type),
        )
        code.set(instruction.operands[0], value, ptx_type)
        return
    llvm_type, values = floats.read_inputs(code, instruction, len(instruction.operands) - 1)
    # Without .NaN the other operand wins over a NaN, and -0 is below +0.
    name = instruction.root + ("imum" if "NaN" in instruction.parts else "imumnum")
    if llvm_type == "half":
        values = [floats.emit_half_to_float(code, value) for value in values]
    wide_type = "float" if llvm_type == "half" else llvm_type
    product_sign = ""
    if (
        "xorsign" in instruction.parts
    ):  # the minimum or maximum of the absolute values, with the product's sign
        product_sign = _emit_product_sign(code, wide_type, values)
        values = [emitter.intrinsic("fabs", wide_type, value) for value in values]
    result = values[0]
    for value in values[1:]:
        result = emitter.intrinsic(name, wide_type, result, value)
    if product_sign:
        result = emitter.intrinsic("copysign", wide_type, result, product_sign)
    if "NaN" in instruction.parts:
        result = floats.emit_canonical_nan(code, wide_type, result)
    if llvm_type == "half":
        result = floats.emit_float_to_half(code, result)
    floats.write_result(code, instruction, llvm_type, result)


def _emit_product_sign(code: WarpCode, llvm_type: str, values: Sequence[str]) -> str:
    """Emit numbers whose sign is that of the product of two numbers."""
    emitter = code.emitter
    integer_type = f"i{get_bit_width(llvm_type)}"
    first_bits, second_bits = (emitter.convert("bitcast", llvm_type, value, integer_type) for value in values)
    return emitter.convert(
        "bitcast", integer_type, emitter.binary("xor", integer_type, first_bits, second_bits), llvm_type
    )


def _emit_copysign(code: WarpCode, instruction: ir.Instruction) -> None:
    llvm_type, (a, b) = floats.read_inputs(code, instruction, 2)
    code.set(instruction.operands[0], code.emitter.intrinsic("copysign", llvm_type, b, a), instruction.type)


_APPROXIMATE_ROOTS = ("sin", "cos", "ex2", "lg2", "tanh")


def _emit_unary_function(code: WarpCode, instruction: ir.Instruction) -> None:
    """Emit ``sqrt``, ``rcp``, ``rsqrt`` or an approximate function.

    The results are at least as accurate as those of the hardware.
    """
    emitter = code.emitter
    llvm_type, (a,) = floats.read_inputs(code, instruction, 1)
    if instruction.root == "rcp":
        float_one = float_constant(llvm_type, floats.ONE_BITS[llvm_type])
        if floats.find_rounding_mode(instruction) != "rn":
            value = emit_directed_operation(
                code, "fdiv", floats.find_rounding_mode(instruction), llvm_type, llvm_type, float_one, a
            )
        else:
            value = emitter.binary("fdiv", llvm_type, float_one, a)
    elif instruction.root == "rsqrt":
        double_value = emitter.convert("fpext", llvm_type, a, "double") if llvm_type != "double" else a
        square_root = emitter.intrinsic("sqrt", "double", double_value)
        value = emitter.binary(
            "fdiv", "double", float_constant("double", floats.ONE_BITS["double"]), square_root
        )
        value = emitter.convert("fptrunc", "double", value, llvm_type) if llvm_type != "double" else value
    elif instruction.root == "sqrt" and floats.find_rounding_mode(instruction) != "rn":
        value = emit_directed_operation(
            code, "sqrt", floats.find_rounding_mode(instruction), llvm_type, llvm_type, a
        )
    elif instruction.root == "sqrt":
        value = emitter.intrinsic("sqrt", llvm_type, a)
    elif llvm_type == "half":
        value = floats.emit_float_to_half(
            code, _emit_approximate(code, instruction.root, floats.emit_half_to_float(code, a))
        )
    else:
        value = _emit_approximate(code, instruction.root, a)
    floats.write_result(code, instruction, llvm_type, value)


def _emit_approximate(code: WarpCode, root: str, value: str) -> str:
    name, function_text = approximate.make_function(root)
    code.add_support_function(name, function_text)
    return code.emitter.op(f"call <32 x float> @{name}(<32 x float> {value})")


# -- comparison and selection ------------------------------------------------------------------------

_UNSIGNED_NAMES = {"lo": "lt", "ls": "le", "hi": "gt", "hs": "ge"}


def emit_comparison(
    code: WarpCode, comparison: str, kind: str, a: str, b: str, flush_inputs: bool = False
) -> str:
    """Emit a PTX comparison, whose result is an i1 vector."""
    emitter = code.emitter
    llvm_type = llvm_of(kind)
    if floats.is_float(kind):
        if kind == "bf16":
            a = floats.emit_bf16_to_float(code, a)
            b = floats.emit_bf16_to_float(code, b)
            llvm_type = "float"
        if flush_inputs:
            a = floats.emit_subnormal_flush(code, llvm_type, a)
            b = floats.emit_subnormal_flush(code, llvm_type, b)
        if kind == "f16":
            a = floats.emit_half_to_float(code, a)
            b = floats.emit_half_to_float(code, b)
            llvm_type = "float"
        if comparison in ("num", "nan"):
            return emitter.compare("ord" if comparison == "num" else "uno", llvm_type, a, b)
        if len(comparison) == 3:
            return emitter.compare("u" + comparison[:2], llvm_type, a, b)
        return emitter.compare("o" + comparison, llvm_type, a, b)
    comparison = _UNSIGNED_NAMES.get(comparison, comparison)
    if comparison not in ("eq", "ne"):
        comparison = ("s" if kind[0] == "s" else "u") + comparison
    return emitter.compare(comparison, llvm_type, a, b)


def _emit_combined_comparison(code: WarpCode, instruction: ir.Instruction, ptx_type: str) -> str:
    comparison_value = emit_comparison(
        code,
        instruction.parts[1],
        ptx_type,
        code.get(instruction.operands[1], ptx_type),
        code.get(instruction.operands[2], ptx_type),
        "ftz" in instruction.parts,
    )
    combining_operation = next(
        (modifier for modifier in instruction.parts[2:] if modifier in ("and", "or", "xor")), None
    )
    if combining_operation:
        comparison_value = code.emitter.binary(
            combining_operation, "i1", comparison_value, code.get(instruction.operands[3], "pred")
        )
    return comparison_value


def _emit_setp(code: WarpCode, instruction: ir.Instruction) -> None:
    destination = instruction.operands[0]
    combining_opcode = next(
        (modifier for modifier in instruction.parts[2:] if modifier in ("and", "or", "xor")), None
    )
    if isinstance(destination, ir.Pair):
        a, b = (code.get(operand, instruction.type) for operand in instruction.operands[1:3])
        comparison_value = emit_comparison(
            code, instruction.parts[1], instruction.type, a, b, "ftz" in instruction.parts
        )
        negated_comparison = code.emitter.binary("xor", "i1", comparison_value, constant("i1", 1))
        if combining_opcode:
            other_predicate = code.get(instruction.operands[3], "pred")
            comparison_value = code.emitter.binary(combining_opcode, "i1", comparison_value, other_predicate)
            negated_comparison = code.emitter.binary(
                combining_opcode, "i1", negated_comparison, other_predicate
            )
        if destination.first is not None:
            code.set(destination.first, comparison_value, "pred")
        if destination.second is not None:
            code.set(destination.second, negated_comparison, "pred")
        return
    code.set(destination, _emit_combined_comparison(code, instruction, instruction.type), "pred")


def _emit_set(code: WarpCode, instruction: ir.Instruction) -> None:
    source_type = instruction.parts[-1]
    target_type = instruction.parts[-2]
    comparison_value = _emit_combined_comparison(code, instruction, source_type)
    llvm_type = llvm_of(target_type)
    if floats.is_float(target_type):
        true_value = 0x3F80 if target_type == "bf16" else floats.ONE_BITS[llvm_type]
        if_true = (
            constant(llvm_type, true_value)
            if target_type == "bf16"
            else float_constant(llvm_type, true_value)
        )
        if_false = constant(llvm_type, 0) if target_type == "bf16" else float_constant(llvm_type, 0)
    else:
        if_true = constant(llvm_type, -1)
        if_false = constant(llvm_type, 0)
    code.set(
        instruction.operands[0],
        code.emitter.select(llvm_type, comparison_value, if_true, if_false),
        target_type,
    )


def _emit_selp(code: WarpCode, instruction: ir.Instruction) -> None:
    a = code.get(instruction.operands[1], instruction.type)
    b = code.get(instruction.operands[2], instruction.type)
    predicate = code.get(instruction.operands[3], "pred")
    code.set(
        instruction.operands[0],
        code.emitter.select(llvm_of(instruction.type), predicate, a, b),
        instruction.type,
    )


def _emit_slct(code: WarpCode, instruction: ir.Instruction) -> None:
    ptx_type = instruction.parts[-2]
    test_kind = instruction.parts[-1]
    zero = float_constant("float", 0) if test_kind == "f32" else constant("i32", 0)
    value = code.get(instruction.operands[3], test_kind)
    if "ftz" in instruction.parts:
        value = floats.emit_subnormal_flush(code, "float", value)
    comparison_value = code.emitter.compare(
        "oge" if test_kind == "f32" else "sge", llvm_of(test_kind), value, zero
    )
    a = code.get(instruction.operands[1], ptx_type)
    b = code.get(instruction.operands[2], ptx_type)
    code.set(
        instruction.operands[0], code.emitter.select(llvm_of(ptx_type), comparison_value, a, b), ptx_type
    )


def _emit_testp(code: WarpCode, instruction: ir.Instruction) -> None:
    emitter = code.emitter
    llvm_type = llvm_of(instruction.type)
    a = code.get(instruction.operands[1], instruction.type)
    magnitude = emitter.intrinsic("fabs", llvm_type, a)
    infinity = float_constant(llvm_type, floats.INFINITY_BITS[llvm_type])
    smallest_normal = float_constant(llvm_type, floats.SMALLEST_NORMAL_BITS[llvm_type])
    category = instruction.parts[1]
    if category == "finite":
        test_value = emitter.compare("olt", llvm_type, magnitude, infinity)
    elif category == "infinite":
        test_value = emitter.compare("oeq", llvm_type, magnitude, infinity)
    elif category in ("number", "notanumber"):
        test_value = emitter.compare("ord" if category == "number" else "uno", llvm_type, a, a)
    elif category == "normal":
        is_at_least_normal = emitter.compare("oge", llvm_type, magnitude, smallest_normal)
        test_value = emitter.binary(
            "and", "i1", is_at_least_normal, emitter.compare("olt", llvm_type, magnitude, infinity)
        )
        test_value = emitter.binary(
            "or", "i1", test_value, emitter.compare("oeq", llvm_type, magnitude, float_constant(llvm_type, 0))
        )
    else:
        is_nonzero = emitter.compare("one", llvm_type, magnitude, float_constant(llvm_type, 0))
        test_value = emitter.binary(
            "and", "i1", is_nonzero, emitter.compare("olt", llvm_type, magnitude, smallest_normal)
        )
    code.set(instruction.operands[0], test_value, "pred")


HANDLERS: dict[str, Callable[[WarpCode, ir.Instruction], None]] = {
    "add": _emit_add,
    "addc": _emit_add,
    "sub": _emit_add,
    "subc": _emit_add,
    "mul": _emit_mul,
    "mul24": _emit_mul,
    "mad": _emit_mad,
    "madc": _emit_mad,
    "mad24": _emit_mad,
    "fma": _emit_fma,
    "div": _emit_div,
    "rem": _emit_div,
    "abs": _emit_abs_neg,
    "neg": _emit_abs_neg,
    "min": _emit_min_max,
    "max": _emit_min_max,
    "copysign": _emit_copysign,
    "rcp": _emit_unary_function,
    "rsqrt": _emit_unary_function,
    "sqrt": _emit_unary_function,
    **dict.fromkeys(_APPROXIMATE_ROOTS, _emit_unary_function),
    "setp": _emit_setp,
    "set": _emit_set,
    "selp": _emit_selp,
    "slct": _emit_slct,
    "testp": _emit_testp,
}
ROOTS = HANDLERS.keys()
