"""Passing of matrix fragments to and from support functions by address.

Support functions take and return whole fragments by address, so that a kernel's own code stays small. If
the registers of a fragment are not adjacent, they are copied.
"""

from __future__ import annotations

from virtualgpu.compile.ptx import ir
from virtualgpu.engine.lower.fragment_places import FRAGMENT_TYPES, ROW_BYTES, list_register_names
from virtualgpu.engine.lower.warp_code import WarpCode


def list_registers(operand: ir.Operand | None) -> tuple[ir.Operand | None, ...]:
    """Return the registers in an operand, with or without braces."""
    return operand.items if isinstance(operand, ir.Vector) else (operand,)


def _find_frame_offset(code: WarpCode, operand: ir.Operand | None) -> int | None:
    """Return the frame offset of a fragment if its registers are adjacent, else None."""
    names = list_register_names(operand)
    offsets = [code.plan.register_slots.get(name) for name in names]
    first_offset = offsets[0] if offsets else None
    if first_offset is None or any(code.function.registers[name] not in FRAGMENT_TYPES for name in names):
        return None
    return first_offset if offsets == [first_offset + ROW_BYTES * n for n in range(len(offsets))] else None


def emit_input_pointer(code: WarpCode, operand: ir.Operand | None, role: str) -> str:
    """Return a pointer to the current value of a matrix fragment. The value is stored as one row of lanes per
    register.
    """
    emitter = code.emitter
    frame_offset = _find_frame_offset(code, operand)
    if frame_offset is None:
        pointer = _allocate_stack_space(code, operand, role)
        for n, register in enumerate(list_registers(operand)):
            row_pointer = emitter.op(f"getelementptr i8, ptr {pointer}, i64 {ROW_BYTES * n}")
            emitter.raw(f"store <32 x i32> {code.get(register, 'b32')}, ptr {row_pointer}, align 64")
        return pointer
    _emit_pending_stores(code, operand)
    return emitter.op(f"getelementptr i8, ptr %frame, i64 {frame_offset}")


def _allocate_stack_space(code: WarpCode, operand: ir.Operand | None, role: str) -> str:
    """Return stack space for a fragment, which all instructions with the same role share."""
    register_count = len(list_registers(operand))
    name = f"%fragment.{role}.{register_count}"
    alloca_line = f"  {name} = alloca [{register_count} x <32 x i32>], align 64"
    if alloca_line not in code.allocas:
        code.allocas.append(alloca_line)
    return name


def _emit_pending_stores(code: WarpCode, operand: ir.Operand | None) -> None:
    """Emit stores of those values of a fragment to the frame that exist only in LLVM values so far."""
    for register in list_registers(operand):
        if isinstance(register, ir.Register) and register.name in code.changed_registers:
            register_value = code.get(register, "b32")
            pointer = code.emit_slot_pointer(register.name)
            code.emitter.store_lanes("i32", register_value, pointer, code.active_lanes)
            code.changed_registers.discard(register.name)


def emit_output_pointer(code: WarpCode, operand: ir.Operand | None, role: str) -> str:
    """Return a pointer to which the active lanes can write the new value of a matrix fragment.

    Call `finish_output` afterwards.
    """
    frame_offset = _find_frame_offset(code, operand)
    if frame_offset is None:
        return _allocate_stack_space(code, operand, role)
    if code.guard is not None:
        _emit_pending_stores(code, operand)
    return code.emitter.op(f"getelementptr i8, ptr %frame, i64 {frame_offset}")


def finish_output(code: WarpCode, operand: ir.Operand | None, pointer: str) -> None:
    """Make the new value of a matrix fragment available to the code that follows."""
    emitter = code.emitter
    if _find_frame_offset(code, operand) is None:
        for n, register in enumerate(list_registers(operand)):
            row_pointer = emitter.op(f"getelementptr i8, ptr {pointer}, i64 {ROW_BYTES * n}")
            code.set(register, emitter.op(f"load <32 x i32>, ptr {row_pointer}, align 64"), "b32")
        return
    for register in list_registers(operand):
        assert isinstance(register, ir.Register)
        code.cached_values.pop(register.name, None)
        code.changed_registers.discard(register.name)
        if code.options.is_traced:
            code.read_register(register.name)
