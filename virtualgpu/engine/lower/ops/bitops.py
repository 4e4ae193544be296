"""Logic instructions, shifts and bit fields of each lane, as LLVM IR."""

from __future__ import annotations

from collections.abc import Callable

from virtualgpu.compile.ptx import ir
from virtualgpu.engine.ir.emit import bits, constant, llvm_of
from virtualgpu.engine.lower.warp_code import WarpCode
from virtualgpu.errors import NotSupportedError


def emit(c: WarpCode, i: ir.Instruction) -> bool:
    """Emit a logic, shift or bit-field instruction; return False for any other instruction."""
    handler = HANDLERS.get(i.root)
    if handler is None:
        return False
    handler(c, i)
    return True


def _logic(c: WarpCode, i: ir.Instruction) -> None:
    llvm = llvm_of(i.type)
    a = c.get(i.operands[1], i.type)
    b = c.get(i.operands[2], i.type)
    c.set(i.operands[0], c.e.binary(i.root, llvm, a, b), i.type)


def _not(c: WarpCode, i: ir.Instruction) -> None:
    llvm = llvm_of(i.type)
    a = c.get(i.operands[1], i.type)
    if i.root == "cnot":
        zero = c.e.compare("eq", llvm, a, constant(llvm, 0))
        c.set(i.operands[0], c.e.convert("zext", "i1", zero, llvm), i.type)
    else:
        c.set(i.operands[0], c.e.binary("xor", llvm, a, constant(llvm, -1)), i.type)


def _lop3(c: WarpCode, i: ir.Instruction) -> None:
    """Emit any function of three bits, as the sum of the minterms in its table."""
    e = c.e
    inputs = [c.get(operand, "b32") for operand in i.operands[1:4]]
    table = i.operands[4]
    assert isinstance(table, ir.Immediate)
    inverted = [e.binary("xor", "i32", v, constant("i32", -1)) for v in inputs]
    result = constant("i32", 0)
    for row in range(8):
        if table.value >> row & 1:
            a, b, d = (inputs[k] if row >> (2 - k) & 1 else inverted[k] for k in range(3))
            term = e.binary("and", "i32", e.binary("and", "i32", a, b), d)
            result = e.binary("or", "i32", result, term)
    c.set(i.operands[0], result, "b32")


def _shift(c: WarpCode, i: ir.Instruction) -> None:
    """Emit shl and shr: amounts at or above the width give 0 (or the sign), as PTX defines."""
    e = c.e
    llvm = llvm_of(i.type)
    width = bits(llvm)
    a = c.get(i.operands[1], i.type)
    amount_operand = i.operands[2]
    operation = "shl" if i.root == "shl" else ("ashr" if i.type[0] == "s" else "lshr")
    if isinstance(amount_operand, ir.Immediate) and 0 <= amount_operand.value < width:  # the usual case
        c.set(i.operands[0], e.binary(operation, llvm, a, constant(llvm, amount_operand.value)), i.type)
        return
    amount = c.get(amount_operand, "u32")
    limit = constant("i32", width - 1)
    bounded = e.intrinsic("umin", "i32", amount, limit)
    value = e.binary(operation, llvm, a, e.cast(bounded, "i32", llvm))
    if operation != "ashr":
        too_large = e.compare("ugt", "i32", amount, limit)
        value = e.select(llvm, too_large, constant(llvm, 0), value)
    c.set(i.operands[0], value, i.type)


def _funnel(c: WarpCode, i: ir.Instruction) -> None:
    e = c.e
    a, b, amount = (c.get(operand, "b32") for operand in i.operands[1:4])
    to_left = "l" in i.parts
    bounded = e.binary("and", "i32", amount, constant("i32", 31))
    value = e.intrinsic("fshl" if to_left else "fshr", "i32", b, a, bounded)
    if "clamp" in i.parts:
        too_large = e.compare("ugt", "i32", amount, constant("i32", 31))
        value = e.select("i32", too_large, a if to_left else b, value)
    c.set(i.operands[0], value, "b32")


def _field_mask(c: WarpCode, llvm: str, length: str) -> str:
    """Emit (1 << length) - 1 for length 0..255, and all ones from the width on."""
    e = c.e
    width = bits(llvm)
    bounded = e.intrinsic("umin", "i32", length, constant("i32", width - 1))
    mask = e.binary("shl", llvm, constant(llvm, 1), e.cast(bounded, "i32", llvm))
    mask = e.binary("sub", llvm, mask, constant(llvm, 1))
    return e.select(llvm, e.compare("uge", "i32", length, constant("i32", width)), constant(llvm, -1), mask)


def _shift_by(c: WarpCode, operation: str, llvm: str, value: str, amount: str) -> str:
    e = c.e
    width = bits(llvm)
    bounded = e.intrinsic("umin", "i32", amount, constant("i32", width - 1))
    shifted = e.binary(operation, llvm, value, e.cast(bounded, "i32", llvm))
    if operation == "ashr":
        return shifted
    too_large = e.compare("uge", "i32", amount, constant("i32", width))
    return e.select(llvm, too_large, constant(llvm, 0), shifted)


def _field_number(c: WarpCode, operand: ir.Operand | None, width: int) -> str:
    """Return the position or length of a bit field, at most 255.

    PTX leaves larger values undefined. An H200 takes their lowest byte if the field is in 32 bits, and
    the whole number if it is in 64.
    """
    number = c.get(operand, "u32")
    if width == 32:
        return c.e.binary("and", "i32", number, constant("i32", 0xFF))
    return c.e.intrinsic("umin", "i32", number, constant("i32", 0xFF))


def _bfe(c: WarpCode, i: ir.Instruction) -> None:
    e = c.e
    llvm = llvm_of(i.type)
    width = bits(llvm)
    a = c.get(i.operands[1], i.type)
    position, length = (_field_number(c, operand, width) for operand in i.operands[2:4])
    mask = _field_mask(c, llvm, length)
    shift = "ashr" if i.type[0] == "s" else "lshr"
    value = e.binary("and", llvm, _shift_by(c, shift, llvm, a, position), mask)
    if i.type[0] == "s":
        last_bit = e.binary("add", "i32", position, length)
        last_bit = e.binary("sub", "i32", last_bit, constant("i32", 1))
        last_bit = e.intrinsic("umin", "i32", last_bit, constant("i32", width - 1))
        sign = e.binary("lshr", llvm, a, e.cast(last_bit, "i32", llvm))
        negative = e.compare("ne", llvm, e.binary("and", llvm, sign, constant(llvm, 1)), constant(llvm, 0))
        filled = e.binary("or", llvm, value, e.binary("xor", llvm, mask, constant(llvm, -1)))
        value = e.select(llvm, negative, filled, value)
        empty = e.compare("eq", "i32", length, constant("i32", 0))
        value = e.select(llvm, empty, constant(llvm, 0), value)
    c.set(i.operands[0], value, i.type)


def _bfi(c: WarpCode, i: ir.Instruction) -> None:
    e = c.e
    llvm = llvm_of(i.type)
    a = c.get(i.operands[1], i.type)
    b = c.get(i.operands[2], i.type)
    position, length = (_field_number(c, operand, bits(llvm)) for operand in i.operands[3:5])
    mask = _shift_by(c, "shl", llvm, _field_mask(c, llvm, length), position)
    inserted = e.binary("and", llvm, _shift_by(c, "shl", llvm, a, position), mask)
    other_bits = e.binary("and", llvm, b, e.binary("xor", llvm, mask, constant(llvm, -1)))
    c.set(i.operands[0], e.binary("or", llvm, inserted, other_bits), i.type)


def _bmsk(c: WarpCode, i: ir.Instruction) -> None:
    """Emit a run of ones (PTX ISA, 9.7.1): ``clamp`` cuts bits above 31, ``wrap`` takes both operands mod 32."""
    e = c.e
    start, count = (c.get(operand, "b32") for operand in i.operands[1:3])
    low, length = (e.binary("and", "i32", n, constant("i32", 31)) for n in (start, count))
    from_start = e.binary("shl", "i32", constant("i32", -1), low)
    end = e.binary("add", "i32", low, length)
    is_cut = e.compare("ugt", "i32", end, constant("i32", 31))
    if "clamp" in i.parts:
        long = e.compare("ugt", "i32", count, constant("i32", 31))
        is_cut = e.binary("or", "i1", is_cut, long)
        starts_outside = e.compare("ugt", "i32", start, constant("i32", 31))
        from_start = e.select("i32", starts_outside, constant("i32", 0), from_start)
    end = e.binary("and", "i32", end, constant("i32", 31))
    from_end = e.select("i32", is_cut, constant("i32", 0), e.binary("shl", "i32", constant("i32", -1), end))
    c.set(
        i.operands[0],
        e.binary("and", "i32", from_start, e.binary("xor", "i32", from_end, constant("i32", -1))),
        "b32",
    )


def _szext(c: WarpCode, i: ir.Instruction) -> None:
    """Emit the lowest bits of a number, filled with its sign or zeros (PTX ISA, 9.7.1)."""
    e = c.e
    value = c.get(i.operands[1], i.type)
    width = c.get(i.operands[2], "u32")
    length = e.binary("and", "i32", width, constant("i32", 31))
    unused = e.binary("and", "i32", e.binary("sub", "i32", constant("i32", 32), length), constant("i32", 31))
    shift = "ashr" if i.type == "s32" else "lshr"
    result = e.binary(shift, "i32", e.binary("shl", "i32", value, unused), unused)
    is_empty = e.compare("eq", "i32", length, constant("i32", 0))
    result = e.select("i32", is_empty, constant("i32", 0), result)
    if "clamp" in i.parts:
        result = e.select("i32", e.compare("ugt", "i32", width, constant("i32", 31)), value, result)
    c.set(i.operands[0], result, i.type)


def _count_bits(c: WarpCode, i: ir.Instruction) -> None:
    e = c.e
    llvm = llvm_of(i.type)
    a = c.get(i.operands[1], i.type)
    if i.root == "brev":
        c.set(i.operands[0], e.intrinsic("bitreverse", llvm, a), i.type)
        return
    if i.root == "popc":
        value = e.intrinsic("ctpop", llvm, a)
    else:
        value = e.intrinsic("ctlz", llvm, a, extra=("i1 false",))
    c.set(i.operands[0], e.cast(value, llvm, "i32"), "u32")


def _bfind(c: WarpCode, i: ir.Instruction) -> None:
    """Emit the position of the most significant set (for signed: non-sign) bit, or all ones."""
    e = c.e
    llvm = llvm_of(i.type)
    width = bits(llvm)
    a = c.get(i.operands[1], i.type)
    if i.type[0] == "s":
        a = e.binary("xor", llvm, a, e.binary("ashr", llvm, a, constant(llvm, width - 1)))
    zeros = e.cast(e.intrinsic("ctlz", llvm, a, extra=("i1 false",)), llvm, "i32")
    no_bit = e.compare("eq", llvm, a, constant(llvm, 0))
    value = zeros if "shiftamt" in i.parts else e.binary("sub", "i32", constant("i32", width - 1), zeros)
    c.set(i.operands[0], e.select("i32", no_bit, constant("i32", -1), value), "u32")


def _prmt(c: WarpCode, i: ir.Instruction) -> None:
    if len(i.parts) > 2:
        raise NotSupportedError(f"The virtual GPU does not do {i.opcode}; only the default byte permute.")
    e = c.e
    a, b, selector = (c.get(operand, "b32") for operand in i.operands[1:4])
    low = e.convert("zext", "i32", a, "i64")
    high = e.binary("shl", "i64", e.convert("zext", "i32", b, "i64"), constant("i64", 32))
    all_bytes = e.binary("or", "i64", low, high)
    result = constant("i32", 0)
    for position in range(4):
        nibble = e.binary("lshr", "i32", selector, constant("i32", 4 * position))
        byte_number = e.binary("and", "i32", nibble, constant("i32", 7))
        amount = e.convert("zext", "i32", e.binary("shl", "i32", byte_number, constant("i32", 3)), "i64")
        byte = e.convert("trunc", "i64", e.binary("lshr", "i64", all_bytes, amount), "i8")
        sign = e.binary("ashr", "i8", byte, constant("i8", 7))
        replicate_sign = e.binary("and", "i32", nibble, constant("i32", 8))
        byte = e.select("i8", e.compare("ne", "i32", replicate_sign, constant("i32", 0)), sign, byte)
        shifted = e.binary("shl", "i32", e.convert("zext", "i8", byte, "i32"), constant("i32", 8 * position))
        result = e.binary("or", "i32", result, shifted)
    c.set(i.operands[0], result, "b32")


def _dot_product(c: WarpCode, i: ir.Instruction) -> None:
    """Emit dp4a and dp2a: products of packed bytes (or half words and bytes) added to a word."""
    e = c.e
    kind_a = i.parts[-2]
    kind_b = i.parts[-1]
    a = c.get(i.operands[1], "b32")
    b = c.get(i.operands[2], "b32")
    total = c.get(i.operands[3], "b32")
    positions = [(8 * k, 8 * k, 8) for k in range(4)]
    if i.root == "dp2a":
        start = 16 if "hi" in i.parts else 0
        positions = [(16 * k, start + 8 * k, 16) for k in range(2)]

    def extract(value: str, kind: str, bit: int, width: int) -> str:
        shifted = e.binary("shl", "i32", value, constant("i32", 32 - bit - width))
        shift = "ashr" if kind[0] == "s" else "lshr"
        return e.binary(shift, "i32", shifted, constant("i32", 32 - width))

    for bit_a, bit_b, width in positions:
        product = e.binary("mul", "i32", extract(a, kind_a, bit_a, width), extract(b, kind_b, bit_b, 8))
        total = e.binary("add", "i32", total, product)
    c.set(i.operands[0], total, "b32")


def _sad(c: WarpCode, i: ir.Instruction) -> None:
    e = c.e
    llvm = llvm_of(i.type)
    a, b, addend = (c.get(operand, i.type) for operand in i.operands[1:4])
    sign = "s" if i.type[0] == "s" else "u"
    difference = e.binary(
        "sub", llvm, e.intrinsic(f"{sign}max", llvm, a, b), e.intrinsic(f"{sign}min", llvm, a, b)
    )
    c.set(i.operands[0], e.binary("add", llvm, difference, addend), i.type)


HANDLERS: dict[str, Callable[[WarpCode, ir.Instruction], None]] = {
    "and": _logic,
    "or": _logic,
    "xor": _logic,
    "not": _not,
    "cnot": _not,
    "lop3": _lop3,
    "shl": _shift,
    "shr": _shift,
    "shf": _funnel,
    "bfe": _bfe,
    "bmsk": _bmsk,
    "szext": _szext,
    "bfi": _bfi,
    "popc": _count_bits,
    "clz": _count_bits,
    "brev": _count_bits,
    "bfind": _bfind,
    "prmt": _prmt,
    "dp4a": _dot_product,
    "dp2a": _dot_product,
    "sad": _sad,
}
ROOTS = HANDLERS.keys()
