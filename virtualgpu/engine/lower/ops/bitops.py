"""LLVM IR for logic instructions, shifts and bit fields of each lane."""

from __future__ import annotations

from collections.abc import Callable

from virtualgpu.compile.ptx import ir
from virtualgpu.engine.ir.emit import constant, get_bit_width, llvm_of
from virtualgpu.engine.lower.warp_code import WarpCode
from virtualgpu.errors import NotSupportedError


def emit(code: WarpCode, instruction: ir.Instruction) -> bool:
    """Emit LLVM IR for a logic, shift or bit-field instruction. Return False for an instruction of any other
    kind.
    """
    handler = HANDLERS.get(instruction.root)
    if handler is None:
        return False
    handler(code, instruction)
    return True


def _emit_logic(code: WarpCode, instruction: ir.Instruction) -> None:
    llvm_type = llvm_of(instruction.type)
    a = code.get(instruction.operands[1], instruction.type)
    b = code.get(instruction.operands[2], instruction.type)
    code.set(
        instruction.operands[0], code.emitter.binary(instruction.root, llvm_type, a, b), instruction.type
    )


def _emit_not(code: WarpCode, instruction: ir.Instruction) -> None:
    llvm_type = llvm_of(instruction.type)
    a = code.get(instruction.operands[1], instruction.type)
    if instruction.root == "cnot":
        is_zero = code.emitter.compare("eq", llvm_type, a, constant(llvm_type, 0))
        code.set(
            instruction.operands[0], code.emitter.convert("zext", "i1", is_zero, llvm_type), instruction.type
        )
    else:
        code.set(
            instruction.operands[0],
            code.emitter.binary("xor", llvm_type, a, constant(llvm_type, -1)),
            instruction.type,
        )


def _emit_lop3(code: WarpCode, instruction: ir.Instruction) -> None:
    """Emit ``lop3``, any function of three bits, as the union of the minterms in its truth table."""
    emitter = code.emitter
    inputs = [code.get(operand, "b32") for operand in instruction.operands[1:4]]
    truth_table = instruction.operands[4]
    assert isinstance(truth_table, ir.Immediate)
    inverted_inputs = [emitter.binary("xor", "i32", v, constant("i32", -1)) for v in inputs]
    result = constant("i32", 0)
    for row_index in range(8):
        if truth_table.value >> row_index & 1:
            a, b, d = (inputs[k] if row_index >> (2 - k) & 1 else inverted_inputs[k] for k in range(3))
            minterm = emitter.binary("and", "i32", emitter.binary("and", "i32", a, b), d)
            result = emitter.binary("or", "i32", result, minterm)
    code.set(instruction.operands[0], result, "b32")


def _emit_shift(code: WarpCode, instruction: ir.Instruction) -> None:
    """Emit ``shl`` or ``shr``. A shift by at least the width returns 0 or copies of the sign, as in PTX."""
    emitter = code.emitter
    llvm_type = llvm_of(instruction.type)
    width = get_bit_width(llvm_type)
    a = code.get(instruction.operands[1], instruction.type)
    amount_operand = instruction.operands[2]
    operation = "ashr" if instruction.type[0] == "s" else "lshr"
    if instruction.root == "shl":
        operation = "shl"
    if isinstance(amount_operand, ir.Immediate) and 0 <= amount_operand.value < width:  # the usual case
        code.set(
            instruction.operands[0],
            emitter.binary(operation, llvm_type, a, constant(llvm_type, amount_operand.value)),
            instruction.type,
        )
        return
    amount = code.get(amount_operand, "u32")
    last_bit = constant("i32", width - 1)
    clamped_amount = emitter.intrinsic("umin", "i32", amount, last_bit)
    value = emitter.binary(operation, llvm_type, a, emitter.cast(clamped_amount, "i32", llvm_type))
    if operation != "ashr":
        is_too_large = emitter.compare("ugt", "i32", amount, last_bit)
        value = emitter.select(llvm_type, is_too_large, constant(llvm_type, 0), value)
    code.set(instruction.operands[0], value, instruction.type)


def _emit_funnel_shift(code: WarpCode, instruction: ir.Instruction) -> None:
    emitter = code.emitter
    a, b, amount = (code.get(operand, "b32") for operand in instruction.operands[1:4])
    shifts_left = "l" in instruction.parts
    clamped_amount = emitter.binary("and", "i32", amount, constant("i32", 31))
    value = emitter.intrinsic("fshl" if shifts_left else "fshr", "i32", b, a, clamped_amount)
    if "clamp" in instruction.parts:
        is_too_large = emitter.compare("ugt", "i32", amount, constant("i32", 31))
        value = emitter.select("i32", is_too_large, a if shifts_left else b, value)
    code.set(instruction.operands[0], value, "b32")


def _emit_field_mask(code: WarpCode, llvm_type: str, length: str) -> str:
    """Emit (1 << length) - 1 for a length from 0 to 255, and all ones if it is at least the width."""
    emitter = code.emitter
    width = get_bit_width(llvm_type)
    clamped_length = emitter.intrinsic("umin", "i32", length, constant("i32", width - 1))
    mask = emitter.binary(
        "shl", llvm_type, constant(llvm_type, 1), emitter.cast(clamped_length, "i32", llvm_type)
    )
    mask = emitter.binary("sub", llvm_type, mask, constant(llvm_type, 1))
    return emitter.select(
        llvm_type,
        emitter.compare("uge", "i32", length, constant("i32", width)),
        constant(llvm_type, -1),
        mask,
    )


def _emit_clamped_shift(code: WarpCode, operation: str, llvm_type: str, value: str, amount: str) -> str:
    emitter = code.emitter
    width = get_bit_width(llvm_type)
    clamped_amount = emitter.intrinsic("umin", "i32", amount, constant("i32", width - 1))
    shifted_value = emitter.binary(
        operation, llvm_type, value, emitter.cast(clamped_amount, "i32", llvm_type)
    )
    if operation == "ashr":
        return shifted_value
    is_too_large = emitter.compare("uge", "i32", amount, constant("i32", width))
    return emitter.select(llvm_type, is_too_large, constant(llvm_type, 0), shifted_value)


def _emit_field_number(code: WarpCode, operand: ir.Operand | None, width: int) -> str:
    """Return the position or the length of a bit field, at most 255.

    PTX leaves larger values undefined. An H200 uses their lowest byte if the field is in 32 bits, and the
    whole integer if it is in 64.
    """
    field_value = code.get(operand, "u32")
    if width == 32:
        return code.emitter.binary("and", "i32", field_value, constant("i32", 0xFF))
    return code.emitter.intrinsic("umin", "i32", field_value, constant("i32", 0xFF))


def _emit_bfe(code: WarpCode, instruction: ir.Instruction) -> None:
    emitter = code.emitter
    llvm_type = llvm_of(instruction.type)
    width = get_bit_width(llvm_type)
    a = code.get(instruction.operands[1], instruction.type)
    position, length = (_emit_field_number(code, operand, width) for operand in instruction.operands[2:4])
    mask = _emit_field_mask(code, llvm_type, length)
    shift_opcode = "ashr" if instruction.type[0] == "s" else "lshr"
    value = emitter.binary(
        "and", llvm_type, _emit_clamped_shift(code, shift_opcode, llvm_type, a, position), mask
    )
    if instruction.type[0] == "s":
        last_bit = emitter.binary("add", "i32", position, length)
        last_bit = emitter.binary("sub", "i32", last_bit, constant("i32", 1))
        last_bit = emitter.intrinsic("umin", "i32", last_bit, constant("i32", width - 1))
        sign_bits = emitter.binary("lshr", llvm_type, a, emitter.cast(last_bit, "i32", llvm_type))
        is_negative = emitter.compare(
            "ne",
            llvm_type,
            emitter.binary("and", llvm_type, sign_bits, constant(llvm_type, 1)),
            constant(llvm_type, 0),
        )
        sign_filled = emitter.binary(
            "or", llvm_type, value, emitter.binary("xor", llvm_type, mask, constant(llvm_type, -1))
        )
        value = emitter.select(llvm_type, is_negative, sign_filled, value)
        is_empty = emitter.compare("eq", "i32", length, constant("i32", 0))
        value = emitter.select(llvm_type, is_empty, constant(llvm_type, 0), value)
    code.set(instruction.operands[0], value, instruction.type)


def _emit_bfi(code: WarpCode, instruction: ir.Instruction) -> None:
    emitter = code.emitter
    llvm_type = llvm_of(instruction.type)
    a = code.get(instruction.operands[1], instruction.type)
    b = code.get(instruction.operands[2], instruction.type)
    position, length = (
        _emit_field_number(code, operand, get_bit_width(llvm_type)) for operand in instruction.operands[3:5]
    )
    mask = _emit_clamped_shift(code, "shl", llvm_type, _emit_field_mask(code, llvm_type, length), position)
    inserted_bits = emitter.binary(
        "and", llvm_type, _emit_clamped_shift(code, "shl", llvm_type, a, position), mask
    )
    other_bits = emitter.binary(
        "and", llvm_type, b, emitter.binary("xor", llvm_type, mask, constant(llvm_type, -1))
    )
    code.set(
        instruction.operands[0], emitter.binary("or", llvm_type, inserted_bits, other_bits), instruction.type
    )


def _emit_bmsk(code: WarpCode, instruction: ir.Instruction) -> None:
    """Emit ``bmsk``, a sequence of one bits (PTX ISA, 9.7.1).

    ``clamp`` removes bits above 31, ``wrap`` uses both operands modulo 32.
    """
    emitter = code.emitter
    start_bit, bit_count = (code.get(operand, "b32") for operand in instruction.operands[1:3])
    first_bit, length = (emitter.binary("and", "i32", n, constant("i32", 31)) for n in (start_bit, bit_count))
    bits_from_start = emitter.binary("shl", "i32", constant("i32", -1), first_bit)
    end_bit = emitter.binary("add", "i32", first_bit, length)
    is_cut = emitter.compare("ugt", "i32", end_bit, constant("i32", 31))
    if "clamp" in instruction.parts:
        is_too_long = emitter.compare("ugt", "i32", bit_count, constant("i32", 31))
        is_cut = emitter.binary("or", "i1", is_cut, is_too_long)
        is_start_outside = emitter.compare("ugt", "i32", start_bit, constant("i32", 31))
        bits_from_start = emitter.select("i32", is_start_outside, constant("i32", 0), bits_from_start)
    end_bit = emitter.binary("and", "i32", end_bit, constant("i32", 31))
    bits_from_end = emitter.select(
        "i32", is_cut, constant("i32", 0), emitter.binary("shl", "i32", constant("i32", -1), end_bit)
    )
    code.set(
        instruction.operands[0],
        emitter.binary(
            "and", "i32", bits_from_start, emitter.binary("xor", "i32", bits_from_end, constant("i32", -1))
        ),
        "b32",
    )


def _emit_szext(code: WarpCode, instruction: ir.Instruction) -> None:
    """Emit ``szext``: the lowest bits of a number, extended with its sign or with zeros (PTX ISA, 9.7.1)."""
    emitter = code.emitter
    value = code.get(instruction.operands[1], instruction.type)
    width = code.get(instruction.operands[2], "u32")
    length = emitter.binary("and", "i32", width, constant("i32", 31))
    unused_bits = emitter.binary(
        "and", "i32", emitter.binary("sub", "i32", constant("i32", 32), length), constant("i32", 31)
    )
    shift_opcode = "ashr" if instruction.type == "s32" else "lshr"
    result = emitter.binary(
        shift_opcode, "i32", emitter.binary("shl", "i32", value, unused_bits), unused_bits
    )
    is_empty = emitter.compare("eq", "i32", length, constant("i32", 0))
    result = emitter.select("i32", is_empty, constant("i32", 0), result)
    if "clamp" in instruction.parts:
        result = emitter.select(
            "i32", emitter.compare("ugt", "i32", width, constant("i32", 31)), value, result
        )
    code.set(instruction.operands[0], result, instruction.type)


def _emit_bit_count(code: WarpCode, instruction: ir.Instruction) -> None:
    emitter = code.emitter
    llvm_type = llvm_of(instruction.type)
    a = code.get(instruction.operands[1], instruction.type)
    if instruction.root == "brev":
        code.set(instruction.operands[0], emitter.intrinsic("bitreverse", llvm_type, a), instruction.type)
        return
    if instruction.root == "popc":
        value = emitter.intrinsic("ctpop", llvm_type, a)
    else:
        value = emitter.intrinsic("ctlz", llvm_type, a, extra_arguments=("i1 false",))
    code.set(instruction.operands[0], emitter.cast(value, llvm_type, "i32"), "u32")


def _emit_bfind(code: WarpCode, instruction: ir.Instruction) -> None:
    """Emit ``bfind``: the position of the highest bit that is 1 (or differs from the sign), else all ones."""
    emitter = code.emitter
    llvm_type = llvm_of(instruction.type)
    width = get_bit_width(llvm_type)
    a = code.get(instruction.operands[1], instruction.type)
    if instruction.type[0] == "s":
        a = emitter.binary(
            "xor", llvm_type, a, emitter.binary("ashr", llvm_type, a, constant(llvm_type, width - 1))
        )
    leading_zeros = emitter.cast(
        emitter.intrinsic("ctlz", llvm_type, a, extra_arguments=("i1 false",)), llvm_type, "i32"
    )
    is_zero = emitter.compare("eq", llvm_type, a, constant(llvm_type, 0))
    bit_position = (
        leading_zeros
        if "shiftamt" in instruction.parts
        else emitter.binary("sub", "i32", constant("i32", width - 1), leading_zeros)
    )
    code.set(
        instruction.operands[0], emitter.select("i32", is_zero, constant("i32", -1), bit_position), "u32"
    )


def _emit_prmt(code: WarpCode, instruction: ir.Instruction) -> None:
    if len(instruction.parts) > 2:
        raise NotSupportedError(
            f"The virtual GPU does not support {instruction.opcode}. It supports prmt only without a mode."
        )
    emitter = code.emitter
    a, b, selector = (code.get(operand, "b32") for operand in instruction.operands[1:4])
    lower_word = emitter.convert("zext", "i32", a, "i64")
    upper_word = emitter.binary("shl", "i64", emitter.convert("zext", "i32", b, "i64"), constant("i64", 32))
    all_bytes = emitter.binary("or", "i64", lower_word, upper_word)
    result = constant("i32", 0)
    for position in range(4):
        nibble = emitter.binary("lshr", "i32", selector, constant("i32", 4 * position))
        byte_number = emitter.binary("and", "i32", nibble, constant("i32", 7))
        shift_bits = emitter.convert(
            "zext", "i32", emitter.binary("shl", "i32", byte_number, constant("i32", 3)), "i64"
        )
        byte = emitter.convert("trunc", "i64", emitter.binary("lshr", "i64", all_bytes, shift_bits), "i8")
        sign_byte = emitter.binary("ashr", "i8", byte, constant("i8", 7))
        replicate_sign = emitter.binary("and", "i32", nibble, constant("i32", 8))
        byte = emitter.select(
            "i8", emitter.compare("ne", "i32", replicate_sign, constant("i32", 0)), sign_byte, byte
        )
        shifted_byte = emitter.binary(
            "shl", "i32", emitter.convert("zext", "i8", byte, "i32"), constant("i32", 8 * position)
        )
        result = emitter.binary("or", "i32", result, shifted_byte)
    code.set(instruction.operands[0], result, "b32")


def _emit_dot_product(code: WarpCode, instruction: ir.Instruction) -> None:
    """Emit ``dp4a`` or ``dp2a``: products of packed bytes (or half words and bytes), added to a word."""
    emitter = code.emitter
    kind_a = instruction.parts[-2]
    kind_b = instruction.parts[-1]
    a = code.get(instruction.operands[1], "b32")
    b = code.get(instruction.operands[2], "b32")
    dot_product = code.get(instruction.operands[3], "b32")
    element_positions = [(8 * k, 8 * k, 8) for k in range(4)]
    if instruction.root == "dp2a":
        first_bit = 16 if "hi" in instruction.parts else 0
        element_positions = [(16 * k, first_bit + 8 * k, 16) for k in range(2)]

    def extract_element(value: str, kind: str, bit: int, width: int) -> str:
        shifted_value = emitter.binary("shl", "i32", value, constant("i32", 32 - bit - width))
        shift_opcode = "ashr" if kind[0] == "s" else "lshr"
        return emitter.binary(shift_opcode, "i32", shifted_value, constant("i32", 32 - width))

    for bit_a, bit_b, width in element_positions:
        product = emitter.binary(
            "mul", "i32", extract_element(a, kind_a, bit_a, width), extract_element(b, kind_b, bit_b, 8)
        )
        dot_product = emitter.binary("add", "i32", dot_product, product)
    code.set(instruction.operands[0], dot_product, "b32")


def _emit_sad(code: WarpCode, instruction: ir.Instruction) -> None:
    emitter = code.emitter
    llvm_type = llvm_of(instruction.type)
    a, b, addend = (code.get(operand, instruction.type) for operand in instruction.operands[1:4])
    signedness = "s" if instruction.type[0] == "s" else "u"
    difference = emitter.binary(
        "sub",
        llvm_type,
        emitter.intrinsic(f"{signedness}max", llvm_type, a, b),
        emitter.intrinsic(f"{signedness}min", llvm_type, a, b),
    )
    code.set(instruction.operands[0], emitter.binary("add", llvm_type, difference, addend), instruction.type)


HANDLERS: dict[str, Callable[[WarpCode, ir.Instruction], None]] = {
    "and": _emit_logic,
    "or": _emit_logic,
    "xor": _emit_logic,
    "not": _emit_not,
    "cnot": _emit_not,
    "lop3": _emit_lop3,
    "shl": _emit_shift,
    "shr": _emit_shift,
    "shf": _emit_funnel_shift,
    "bfe": _emit_bfe,
    "bmsk": _emit_bmsk,
    "szext": _emit_szext,
    "bfi": _emit_bfi,
    "popc": _emit_bit_count,
    "clz": _emit_bit_count,
    "brev": _emit_bit_count,
    "bfind": _emit_bfind,
    "prmt": _emit_prmt,
    "dp4a": _emit_dot_product,
    "dp2a": _emit_dot_product,
    "sad": _emit_sad,
}
ROOTS = HANDLERS.keys()
