"""LLVM IR for conversions, moves and changes of address space in each lane."""

from __future__ import annotations

from collections.abc import Callable

from virtualgpu.compile.ptx import ir
from virtualgpu.engine.ir import layout
from virtualgpu.engine.ir.emit import constant, get_bit_width, llvm_of
from virtualgpu.engine.lower.ops.floating import floats, narrow
from virtualgpu.engine.lower.ops.floating.rounding import (
    emit_directed_integer_conversion,
    emit_directed_operation,
)
from virtualgpu.engine.lower.warp_code import WarpCode
from virtualgpu.errors import NotSupportedError


def emit(code: WarpCode, instruction: ir.Instruction) -> bool:
    """Emit LLVM IR for a conversion or move. Return False for an instruction of any other kind."""
    handler = HANDLERS.get(instruction.root)
    if handler is None:
        return False
    handler(code, instruction)
    return True


_INTRINSIC_BY_ROUNDING = {"rni": "roundeven", "rzi": "trunc", "rmi": "floor", "rpi": "ceil"}


def _emit_cvt(code: WarpCode, instruction: ir.Instruction) -> None:
    emitter = code.emitter
    if narrow.emit_conversion(code, instruction):
        return
    if instruction.parts[-1] in ("f16x2", "bf16x2") or instruction.parts[-2] in ("f16x2", "bf16x2"):
        _emit_cvt_pack(code, instruction)
        return
    target_type = instruction.parts[-2]
    source_type = instruction.parts[-1]
    converted_value = code.get(instruction.operands[1], source_type)
    target_llvm = llvm_of(target_type)
    source_llvm = llvm_of(source_type)
    if source_type == "bf16":
        converted_value = floats.emit_bf16_to_float(code, converted_value)
        source_type = "f32"
        source_llvm = "float"
    elif source_type == "f16":
        converted_value = floats.emit_half_to_float(code, converted_value)
        source_llvm = "float"
    if floats.is_float(source_type) and "ftz" in instruction.parts and source_type == "f32":
        converted_value = floats.emit_subnormal_flush(code, source_llvm, converted_value)
    is_from_float = floats.is_float(source_type)
    to_float = floats.is_float(target_type)
    rounding = next((modifier for modifier in instruction.parts if modifier in _INTRINSIC_BY_ROUNDING), None)
    if is_from_float and rounding:
        converted_value = emitter.intrinsic(_INTRINSIC_BY_ROUNDING[rounding], source_llvm, converted_value)
    if is_from_float and to_float:
        converted_value = _emit_float_to_float(code, instruction, converted_value, source_llvm, target_type)
    elif is_from_float:
        converted_value = _emit_float_to_integer(code, converted_value, source_llvm, target_type)
    elif to_float:
        converted_value = _emit_integer_to_float(code, instruction, converted_value, source_type, target_type)
    else:
        if "sat" in instruction.parts:
            converted_value = _emit_saturation(code, converted_value, source_type, target_type)
        converted_value = emitter.cast(converted_value, source_llvm, target_llvm, source_type[0] == "s")
    code.set(instruction.operands[0], converted_value, target_type)


def _emit_float_to_float(
    code: WarpCode, instruction: ir.Instruction, value: str, source_type: str, target_type: str
) -> str:
    """Emit a conversion between types of floats with the rounding of the instruction."""
    emitter = code.emitter
    llvm_type = "float" if target_type == "bf16" else llvm_of(target_type)
    rounding_mode = floats.find_rounding_mode(instruction)
    if source_type == "double" and target_type in ("f16", "bf16"):  # LLVM has no function for it here
        value = floats.emit_float_rounded_to_odd(code, value)
        source_type = "float"
    if get_bit_width(source_type) < get_bit_width(llvm_type):
        value = emitter.convert("fpext", source_type, value, llvm_type)
    elif (
        get_bit_width(source_type) > get_bit_width(llvm_type)
        and rounding_mode != "rn"
        and llvm_type != "half"
    ):
        value = emit_directed_operation(code, "fptrunc", rounding_mode, llvm_type, source_type, value)
    elif get_bit_width(source_type) > get_bit_width(llvm_type):
        nearest_value = emitter.convert("fptrunc", source_type, value, llvm_type)
        if rounding_mode != "rn":
            widened_value = emitter.convert("fpext", llvm_type, nearest_value, source_type)
            is_below, is_above = (
                emitter.compare(predicate, source_type, value, widened_value) for predicate in ("olt", "ogt")
            )
            nearest_value = floats.emit_rounding_correction(
                code, llvm_type, nearest_value, is_below, is_above, rounding_mode
            )
        value = nearest_value
    if "sat" in instruction.parts:
        value = floats.emit_saturation(code, llvm_type, value)
    if "relu" in instruction.parts:
        value = floats.emit_relu(code, llvm_type, value)
    if target_type == "f32" and "ftz" in instruction.parts:
        value = floats.emit_subnormal_flush(code, llvm_type, value)
    if target_type == "bf16":
        value = floats.emit_float_to_bf16(code, value, rounding_mode)
    return value


def _emit_float_to_integer(code: WarpCode, value: str, source_type: str, target_type: str) -> str:
    """Emit a saturating conversion of floats to integers.

    NaN becomes 0, or only the sign bit if either type has 64 bits.
    """
    emitter = code.emitter
    llvm_type = llvm_of(target_type)
    name = "fptosi.sat" if target_type[0] == "s" else "fptoui.sat"
    suffix = {"half": "f16", "float": "f32", "double": "f64"}[source_type]
    full_name = f"llvm.{name}.v32{llvm_type}.v32{suffix}"
    emitter.declared.add(f"declare <32 x {llvm_type}> @{full_name}(<32 x {source_type}>)")
    result = emitter.op(f"call <32 x {llvm_type}> @{full_name}(<32 x {source_type}> {value})")
    if get_bit_width(llvm_type) == 64 or source_type == "double":
        is_nan = emitter.compare("uno", source_type, value, value)
        result = emitter.select(
            llvm_type, is_nan, constant(llvm_type, 1 << (get_bit_width(llvm_type) - 1)), result
        )
    return result


def _emit_integer_to_float(
    code: WarpCode, instruction: ir.Instruction, value: str, source_type: str, target_type: str
) -> str:
    """Emit a conversion of integers to floats with the rounding of the instruction."""
    emitter = code.emitter
    integer_type = llvm_of(source_type)
    conversion_opcode = "sitofp" if source_type[0] == "s" else "uitofp"
    rounding_mode = floats.find_rounding_mode(instruction)
    if target_type in ("f32", "f64"):
        llvm_type = llvm_of(target_type)
        if rounding_mode != "rn":
            value = emit_directed_integer_conversion(code, rounding_mode, llvm_type, source_type, value)
        else:
            value = emitter.convert(conversion_opcode, integer_type, value, llvm_type)
        return floats.emit_saturation(code, llvm_type, value) if "sat" in instruction.parts else value
    if get_bit_width(integer_type) <= 16:
        float_value = emitter.convert(conversion_opcode, integer_type, value, "float")
    else:
        truncated_float = emit_directed_integer_conversion(code, "rz", "float", source_type, value)
        restored_integer = _emit_float_to_integer(code, truncated_float, "float", source_type)
        float_value = floats.emit_round_to_odd_correction(
            code, truncated_float, emitter.compare("ne", integer_type, restored_integer, value)
        )
    return _emit_float_to_float(code, instruction, float_value, "float", target_type)


def _emit_saturation(code: WarpCode, value: str, source_type: str, target_type: str) -> str:
    """Emit integers that are limited to the range of the target type."""
    emitter = code.emitter
    llvm_type = llvm_of(source_type)
    width = int(target_type[1:])
    minimum = -(1 << (width - 1)) if target_type[0] == "s" else 0
    maximum = (1 << (width - 1)) - 1 if target_type[0] == "s" else (1 << width) - 1
    if source_type[0] == "s":
        if width < get_bit_width(llvm_type) or target_type[0] == "u":
            value = emitter.intrinsic("smax", llvm_type, value, constant(llvm_type, minimum))
        if width < get_bit_width(llvm_type):
            value = emitter.intrinsic("smin", llvm_type, value, constant(llvm_type, maximum))
    elif maximum < (1 << get_bit_width(llvm_type)) - 1:
        value = emitter.intrinsic("umin", llvm_type, value, constant(llvm_type, maximum))
    return value


def _emit_cvt_pack(code: WarpCode, instruction: ir.Instruction) -> None:
    """Emit two floats, rounded and packed into one word; the first source is the upper half."""
    target_type = instruction.parts[-2]
    source_type = instruction.parts[-1]
    if source_type != "f32" or target_type not in ("f16x2", "bf16x2"):
        raise NotSupportedError(f"The virtual GPU does not support {instruction.opcode}.")
    half_words = []
    for operand in instruction.operands[1:3]:
        value = _emit_float_to_float(code, instruction, code.get(operand, "f32"), "float", target_type[:-2])
        half_words.append(
            code.emitter.cast(code.emitter.cast(value, llvm_of(target_type[:-2]), "i16"), "i16", "i32")
        )
    upper_half = code.emitter.binary("shl", "i32", half_words[0], constant("i32", 16))
    code.set(instruction.operands[0], code.emitter.binary("or", "i32", upper_half, half_words[1]), "b32")


def _emit_mov(code: WarpCode, instruction: ir.Instruction) -> None:
    emitter = code.emitter
    destination = instruction.operands[0]
    source_operand = instruction.operands[1]
    if isinstance(destination, ir.Vector):
        width = get_bit_width(llvm_of(instruction.type)) // len(destination.items)
        vector_bits = code.get(source_operand, f"b{width * len(destination.items)}")
        llvm_type = f"i{width * len(destination.items)}"
        for position, register in enumerate(destination.items):
            if register is not None:
                element_bits = (
                    emitter.binary("lshr", llvm_type, vector_bits, constant(llvm_type, position * width))
                    if position
                    else vector_bits
                )
                code.set(register, emitter.cast(element_bits, llvm_type, f"i{width}"), f"b{width}")
    elif isinstance(source_operand, ir.Vector):
        width = get_bit_width(llvm_of(instruction.type)) // len(source_operand.items)
        llvm_type = f"i{width * len(source_operand.items)}"
        vector_bits = constant(llvm_type, 0)
        for position, register in enumerate(source_operand.items):
            element_bits = emitter.cast(code.get(register, f"b{width}"), f"i{width}", llvm_type)
            if position:
                element_bits = emitter.binary(
                    "shl", llvm_type, element_bits, constant(llvm_type, position * width)
                )
            vector_bits = emitter.binary("or", llvm_type, vector_bits, element_bits)
        code.set(destination, vector_bits, f"b{width * len(source_operand.items)}")
    else:
        code.set(destination, code.get(source_operand, instruction.type), instruction.type)


_ADDRESS_TAGS = {"shared": layout.SHARED_TAG, "local": layout.LOCAL_TAG}


def _emit_cvta(code: WarpCode, instruction: ir.Instruction) -> None:
    """Emit a conversion between addresses of a state space and generic addresses (a tag in the top byte)."""
    emitter = code.emitter
    address = code.get(instruction.operands[1], "u64")
    space = next(
        (
            modifier.split("::")[0]
            for modifier in instruction.parts
            if modifier.split("::")[0] in _ADDRESS_TAGS
        ),
        None,
    )
    if space:
        address_tag = _ADDRESS_TAGS[space]
        if "to" in instruction.parts:
            address = emitter.binary(
                "and",
                "i64",
                address,
                constant("i64", address_tag - 1 if space == "shared" else (1 << 56) - 1),
            )
        else:
            address = emitter.binary("or", "i64", address, constant("i64", address_tag))
    code.set(instruction.operands[0], address, instruction.type)


def _emit_isspacep(code: WarpCode, instruction: ir.Instruction) -> None:
    emitter = code.emitter
    space = instruction.parts[1].split("::")[0]
    address_tag = emitter.binary("lshr", "i64", code.get(instruction.operands[1], "u64"), constant("i64", 56))
    expected_tag = {"shared": 1, "local": 2}.get(space, 0)
    code.set(
        instruction.operands[0],
        emitter.compare("eq", "i64", address_tag, constant("i64", expected_tag)),
        "pred",
    )


HANDLERS: dict[str, Callable[[WarpCode, ir.Instruction], None]] = {
    "cvt": _emit_cvt,
    "mov": _emit_mov,
    "cvta": _emit_cvta,
    "isspacep": _emit_isspacep,
}
ROOTS = HANDLERS.keys()
