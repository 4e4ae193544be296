"""LLVM IR for texture fetches (``tex``) and surface accesses (``suld``, ``sust``).

They are counted as reads and writes of global memory, at the row-major addresses of their texels. For an
interpolated fetch the first texel counts.
"""

from __future__ import annotations

from virtualgpu.compile.ptx import ir
from virtualgpu.engine.ir import checks, layout
from virtualgpu.engine.ir.emit import constant
from virtualgpu.engine.lower.ops import memory_ops
from virtualgpu.engine.lower.ops.textures import fetch, surfaces
from virtualgpu.engine.lower.warp_code import WarpCode
from virtualgpu.errors import NotSupportedError

_DIMENSIONS_AND_LAYERED = {
    "1d": (1, False),
    "2d": (2, False),
    "3d": (3, False),
    "a1d": (1, True),
    "a2d": (2, True),
}
_CHANNEL_ROWS_TYPE = "[4 x <32 x i32>]"
_BORDER_MODES = ("trap", "clamp", "zero")


UNSUPPORTED_ROOTS = {"tld4", "txq", "suq", "sured"}
ROOTS = {"tex", "suld", "sust"} | UNSUPPORTED_ROOTS


def emit(code: WarpCode, instruction: ir.Instruction) -> bool:
    """Emit LLVM IR for an instruction on a texture or surface. Return False for an instruction of any other
    kind.
    """
    if instruction.root == "tex":
        _emit_texture_fetch(code, instruction)
    elif instruction.root in ("suld", "sust"):
        _emit_surface_access(code, instruction)
    elif instruction.root in UNSUPPORTED_ROOTS:
        raise _make_unsupported_error(instruction)
    else:
        return False
    return True


def _make_unsupported_error(instruction: ir.Instruction) -> NotSupportedError:
    return NotSupportedError(
        f"The virtual GPU does not support {instruction.opcode} (line {instruction.line}). It supports textures of one, two and "
        "three dimensions and of layers (tex1Dfetch, tex1D, tex2D, tex3D, tex2DLayered), and their surfaces. "
        "Pass sizes as arguments, and read neighbours one by one."
    )


def _store_coordinates(
    code: WarpCode, instruction: ir.Instruction, operand: ir.Operand | None, operand_type: str
) -> tuple[str, str, int]:
    """Return pointers to the lanes' handles and to rows of their coordinates, and the number of rows."""
    if not (isinstance(operand, ir.Vector) and len(operand.items) == 2):
        raise _make_unsupported_error(instruction)
    code.emitter.declared.update(fetch.DECLARATIONS)
    handle, coordinates = operand.items
    if not (isinstance(handle, ir.Register | ir.Immediate) and isinstance(coordinates, ir.Vector)):
        raise NotSupportedError(
            f"The virtual GPU does not support {instruction.text!r} (line "
            f"{instruction.line}): CUDA 12 removed texture references. Pass a "
            "cp.cuda.texture.TextureObject as a cudaTextureObject_t."
        )
    handles = code.allocate_scratch("<32 x i64>")
    code.emitter.raw(f"store <32 x i64> {code.get(handle, 'u64')}, ptr {handles}")
    rows_pointer = code.allocate_scratch(_CHANNEL_ROWS_TYPE)
    for n, coordinate in enumerate(coordinates.items):
        coordinate_type = (
            "u32" if operand_type == "f32" and n == 0 and "a" in _geometry_of(instruction) else operand_type
        )
        coordinate_bits = code.emitter.cast(
            code.get(coordinate, coordinate_type), "float" if coordinate_type == "f32" else "i32", "i32"
        )
        row_pointer = code.emitter.op(f"getelementptr [32 x i32], ptr {rows_pointer}, i64 {n}")
        code.emitter.raw(f"store <32 x i32> {coordinate_bits}, ptr {row_pointer}")
    return handles, rows_pointer, len(coordinates.items)


def _geometry_of(instruction: ir.Instruction) -> str:
    return next((modifier for modifier in instruction.parts if modifier in _DIMENSIONS_AND_LAYERED), "")


def _emit_texture_fetch(code: WarpCode, instruction: ir.Instruction) -> None:
    emitter = code.emitter
    mask = code.executed_mask(instruction)
    geometry = _geometry_of(instruction)
    destination = instruction.operands[0]
    has_known_modifiers = set(instruction.parts) <= {
        "tex",
        "base",
        "level",
        "grad",
        "v4",
        geometry,
        "f32",
        "s32",
        "u32",
    }
    if not geometry or not has_known_modifiers or not isinstance(destination, ir.Vector):
        raise _make_unsupported_error(instruction)
    dimensions, is_layered = _DIMENSIONS_AND_LAYERED[geometry]
    texel_type = instruction.parts[-2]
    coordinate_type = instruction.parts[-1]
    channels = tuple(
        n
        for n, register in enumerate(destination.items)
        if register is not None and memory_ops.is_register_read(code.function, register)
    ) or (0,)
    handles, coordinate_rows, _ = _store_coordinates(
        code, instruction, instruction.operands[1], coordinate_type
    )
    for support_function in (
        fetch.OBJECT_FUNCTION,
        fetch.INDEX_FUNCTION,
        fetch.AXIS_FUNCTION,
        fetch.ADDRESS_FUNCTION,
        fetch.CHANNEL_FUNCTION,
        fetch.CONTRIBUTION_FUNCTION,
        fetch.WEIGHTED_SUM_FUNCTION,
    ):
        code.add_support_function(*support_function)
    name, fetch_text = fetch.make_fetch_function(
        dimensions, channels, is_layered=is_layered, has_integer_coordinates=coordinate_type != "f32"
    )
    code.add_support_function(name, fetch_text)
    addresses = code.allocate_scratch("<32 x i64>")
    channel_values = code.allocate_scratch(_CHANNEL_ROWS_TYPE)
    emitter.raw(f"store <32 x i64> zeroinitializer, ptr {addresses}")
    emitter.raw(f"store {_CHANNEL_ROWS_TYPE} zeroinitializer, ptr {channel_values}")
    invalid_mask = emitter.op(
        f"call i32 @{name}(ptr %ctx, ptr {handles}, ptr {coordinate_rows}, i32 {mask}, ptr {channel_values}, ptr {addresses})"
    )
    _check_texels(code, instruction, "ld", 4 * len(channels), invalid_mask, handles, addresses, mask)
    for n, register in enumerate(destination.items):
        if register is None:
            continue
        row_pointer = emitter.op(f"getelementptr [32 x i32], ptr {channel_values}, i64 {n}")
        value = emitter.op(f"load <32 x i32>, ptr {row_pointer}")
        code.set(register, emitter.cast(value, "i32", "float") if texel_type == "f32" else value, texel_type)


def _check_texels(
    code: WarpCode,
    instruction: ir.Instruction,
    root: str,
    size: int,
    invalid_mask: str,
    handles: str,
    addresses: str,
    mask: str,
) -> str:
    """Emit faults for invalid handles, and check, count and report an access to texels.

    The result is the mask of lanes that access a texel.
    """
    emitter = code.emitter
    handle_values = emitter.op(f"load <32 x i64>, ptr {handles}")
    code.emit_fault_if(invalid_mask, layout.BAD_TEXTURE, instruction.pc, handle_values)
    address = emitter.op(f"load <32 x i64>, ptr {addresses}")
    lanes_with_texel = emitter.mask_bits(emitter.compare("ne", "i64", address, constant("i64", 0)))
    texel_lanes = emitter.op(f"and i32 {lanes_with_texel}, {mask}")
    access = memory_ops.make_plain_access(instruction, root, "global", {1: 1, 2: 2, 4: 4, 8: 8}.get(size, 16))
    access_index = code.assign_access_number(access)
    check_name, check_text = checks.make_global_check(
        1, code.options.with_counters, "load" if root == "ld" else "store"
    )
    code.add_support_function(check_name, check_text)
    has_failed = emitter.op(
        f"call i1 @{check_name}(ptr %ctx, <32 x i64> {address}, i32 {texel_lanes}, i32 {code.index}, i32 {instruction.pc}, i32 {access_index})"
    )
    code.trace_address(address, texel_lanes)
    code.leave_on_fault(has_failed)
    if code.options.is_observed:
        code.report_to_observer(access_index, address, texel_lanes)
    return texel_lanes


def _emit_surface_access(code: WarpCode, instruction: ir.Instruction) -> None:
    emitter = code.emitter
    mask = code.executed_mask(instruction)
    is_load = instruction.root == "suld"
    geometry = _geometry_of(instruction)
    border_mode = next((modifier for modifier in instruction.parts if modifier in _BORDER_MODES), "trap")
    element_type = next(
        (modifier for modifier in instruction.parts if modifier in ("b8", "b16", "b32", "b64")), ""
    )
    if not geometry or not element_type or "p" in instruction.parts:
        raise _make_unsupported_error(instruction)
    dimensions, is_layered = _DIMENSIONS_AND_LAYERED[geometry]
    value_operand, surface_operand = instruction.operands[:2]
    if not is_load:
        value_operand, surface_operand = surface_operand, value_operand
    registers = value_operand.items if isinstance(value_operand, ir.Vector) else (value_operand,)
    item_bytes = ir.TYPE_BYTES[element_type]
    access_bytes = item_bytes * len(registers)
    handles, coordinate_rows, _ = _store_coordinates(code, instruction, surface_operand, "u32")
    for support_function in (fetch.OBJECT_FUNCTION, fetch.INDEX_FUNCTION):
        code.add_support_function(*support_function)
    name, surface_text = surfaces.make_address_function(
        dimensions, access_bytes, border_mode, is_layered=is_layered
    )
    code.add_support_function(name, surface_text)
    addresses = code.allocate_scratch("<32 x i64>")
    outside_slot = code.allocate_scratch("i32")
    emitter.raw(f"store <32 x i64> zeroinitializer, ptr {addresses}")
    invalid_mask = emitter.op(
        f"call i32 @{name}(ptr %ctx, ptr {handles}, ptr {coordinate_rows}, i32 {mask}, ptr {outside_slot}, ptr {addresses})"
    )
    texel_lanes = _check_texels(
        code, instruction, "ld" if is_load else "st", access_bytes, invalid_mask, handles, addresses, mask
    )
    if border_mode == "trap":
        outside_mask = emitter.op(f"load i32, ptr {outside_slot}")
        code.emit_fault_if(outside_mask, layout.ACCESS_OUTSIDE_SURFACE, instruction.pc)
    address = emitter.op(f"load <32 x i64>, ptr {addresses}")
    for n, register in enumerate(registers):
        element_address = (
            emitter.binary("add", "i64", address, constant("i64", n * item_bytes)) if n else address
        )
        if is_load:
            if register is not None:
                code.set(
                    register,
                    memory_ops.gather(code, element_address, texel_lanes, element_type),
                    element_type,
                )
        else:
            memory_ops.scatter(
                code, code.get(register, element_type), element_address, texel_lanes, element_type
            )
