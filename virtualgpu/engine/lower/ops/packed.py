"""LLVM IR for integers packed two or four to a word: ``add.u16x2`` and SIMD video instructions."""

from __future__ import annotations

import re
from collections.abc import Callable

from virtualgpu.compile.ptx import ir
from virtualgpu.engine.ir.emit import constant
from virtualgpu.engine.lower.warp_code import WarpCode
from virtualgpu.errors import NotSupportedError

_VIDEO_PATTERN = re.compile(r"v([a-z]+)([24])")
_PACKED_OPERATIONS = ("add", "min", "max")
ROOTS = {
    *_PACKED_OPERATIONS,
    *(f"v{operation}{n}" for operation in ("add", "sub", "avrg", "absdiff", "min", "max") for n in "24"),
}


def emit(code: WarpCode, instruction: ir.Instruction) -> bool:
    """Emit LLVM IR for a packed integer instruction. Return False for an instruction of any other kind."""
    if instruction.root in ("min", "max") and {"relu", "s32"} <= set(instruction.parts):
        _emit_relu(code, instruction)
    elif instruction.root in _PACKED_OPERATIONS and (
        "u16x2" in instruction.parts or "s16x2" in instruction.parts
    ):
        _emit_packed_pairs(code, instruction)
    elif match := _VIDEO_PATTERN.fullmatch(instruction.root):
        _emit_video_operation(code, instruction, match[1], int(match[2]))
    else:
        return False
    return True


class _PackedElements:
    """Operations on packed elements: the elements of all 32 lanes form one long vector."""

    def __init__(self, code: WarpCode, element_count: int) -> None:
        self.emitter = code.emitter
        self.llvm = f"i{32 // element_count}"
        self.type_suffix = f"v{32 * element_count}{self.llvm}"
        self.vector_type = f"<{32 * element_count} x {self.llvm}>"

    def split(self, word: str) -> str:
        return self.emitter.op(f"bitcast <32 x i32> {word} to {self.vector_type}")

    def join(self, elements: str) -> str:
        return self.emitter.op(f"bitcast {self.vector_type} {elements} to <32 x i32>")

    def emit_binary(self, operation: str, a: str, b: str) -> str:
        return self.emitter.op(f"{operation} {self.vector_type} {a}, {b}")

    def emit_intrinsic(self, name: str, a: str, b: str) -> str:
        intrinsic_name = f"llvm.{name}.{self.type_suffix}"
        self.emitter.declared.add(
            f"declare {self.vector_type} @{intrinsic_name}({self.vector_type}, {self.vector_type})"
        )
        return self.emitter.op(
            f"call {self.vector_type} @{intrinsic_name}({self.vector_type} {a}, {self.vector_type} {b})"
        )


def _emit_relu(code: WarpCode, instruction: ir.Instruction) -> None:
    a = code.get(instruction.operands[1], "s32")
    b = code.get(instruction.operands[2], "s32")
    value = code.emitter.intrinsic(f"s{instruction.root}", "i32", a, b)
    code.set(instruction.operands[0], code.emitter.intrinsic("smax", "i32", value, constant("i32", 0)), "s32")


def _emit_packed_pairs(code: WarpCode, instruction: ir.Instruction) -> None:
    elements = _PackedElements(code, 2)
    signedness = "s" if "s16x2" in instruction.parts else "u"
    operand_elements = [elements.split(code.get(operand, "b32")) for operand in instruction.operands[1:]]
    if instruction.root == "add":
        result = elements.emit_binary("add", operand_elements[0], operand_elements[1])
    else:
        result = elements.emit_intrinsic(
            signedness + instruction.root, operand_elements[0], operand_elements[1]
        )
    if "relu" in instruction.parts:
        result = elements.emit_intrinsic("smax", result, "zeroinitializer")
    code.set(instruction.operands[0], elements.join(result), "b32")


def _emit_average(elements: _PackedElements, signedness: str, a: str, b: str) -> str:
    """Emit half of a sum, rounded up, without a wider type: (a | b) - ((a ^ b) >> 1)."""
    shifted_sum = elements.emit_binary(
        "ashr" if signedness == "s" else "lshr",
        elements.emit_binary("xor", a, b),
        f"splat ({elements.llvm} 1)",
    )
    return elements.emit_binary("sub", elements.emit_binary("or", a, b), shifted_sum)


_VIDEO_OPERATIONS: dict[str, Callable[[_PackedElements, str, str, str], str]] = {
    "add": lambda p, sign, a, b: p.emit_binary("add", a, b),
    "sub": lambda p, sign, a, b: p.emit_binary("sub", a, b),
    "min": lambda p, sign, a, b: p.emit_intrinsic(f"{sign}min", a, b),
    "max": lambda p, sign, a, b: p.emit_intrinsic(f"{sign}max", a, b),
    "absdiff": lambda p, sign, a, b: p.emit_binary(
        "sub", p.emit_intrinsic(f"{sign}max", a, b), p.emit_intrinsic(f"{sign}min", a, b)
    ),
    "avrg": _emit_average,
}


def _emit_video_operation(
    code: WarpCode, instruction: ir.Instruction, operation: str, element_count: int
) -> None:
    """Emit ``vadd4`` and similar on packed words.

    With ``.add``, the elements are added to the last operand.
    """
    operand_types = [modifier for modifier in instruction.parts[1:] if modifier in ("u32", "s32")]
    if (
        len(operand_types) != 3
        or operand_types[1] != operand_types[2]
        or "sat" in instruction.parts
        or len(instruction.operands) != 4
    ):
        raise NotSupportedError(
            f"The virtual GPU does not support {instruction.opcode} with these types and options."
        )
    elements = _PackedElements(code, element_count)
    emitter = code.emitter
    a, b = (elements.split(code.get(operand, "b32")) for operand in instruction.operands[1:3])
    result = elements.join(_VIDEO_OPERATIONS[operation](elements, operand_types[1][0], a, b))
    if "add" in instruction.parts[1:]:
        packed_sum = code.get(instruction.operands[3], "b32")
        element_bits = 32 // element_count
        shift_operation = "ashr" if operand_types[0] == "s32" else "lshr"
        for element_index in range(element_count):
            shifted_element = emitter.binary(
                "shl", "i32", result, constant("i32", 32 - element_bits * (element_index + 1))
            )
            packed_sum = emitter.binary(
                "add",
                "i32",
                packed_sum,
                emitter.binary(shift_operation, "i32", shifted_element, constant("i32", 32 - element_bits)),
            )
        result = packed_sum
    code.set(instruction.operands[0], result, "b32")
