"""LLVM IR for ``ldmatrix`` and ``stmatrix``, which move 8x8 matrices of 16-bit elements.

Lane 8r + i has the address of row i of matrix r. Hardware reads or writes the 16 bytes of each row at once,
so the instruction is one access of 16 bytes for each row; afterwards each lane has two elements of every
matrix in one register.
"""

from __future__ import annotations

import dataclasses

from virtualgpu.compile.ptx import ir
from virtualgpu.engine.ir import layout
from virtualgpu.engine.lower import fragments
from virtualgpu.engine.lower.ops import memory_ops
from virtualgpu.engine.lower.warp_code import WarpCode

ROOTS = ("ldmatrix", "stmatrix")
_ROWS_PER_MATRIX = 8
_ROW_BYTES = 16
_ELEMENT_BYTES = 2


def emit(code: WarpCode, instruction: ir.Instruction, space: str) -> None:
    """Emit LLVM IR for an ``ldmatrix`` or ``stmatrix`` instruction in a state space."""
    is_load = instruction.root == "ldmatrix"
    fragment, address = instruction.operands if is_load else reversed(instruction.operands)
    registers = fragments.list_registers(fragment)
    access = memory_ops.make_plain_access(instruction, "ld" if is_load else "st", space, _ROW_BYTES)
    access = dataclasses.replace(access, parts=(access.root, memory_ops.MATRIX_ROWS, *access.parts[1:]))
    mask = code.executed_mask(instruction)
    row_lanes = (1 << _ROWS_PER_MATRIX * len(registers)) - 1
    row_addresses = memory_ops.host_addresses(
        code,
        access,
        memory_ops.address_of(code, address, space),
        space,
        _ROW_BYTES,
        mask=code.emitter.op(f"and i32 {mask}, {row_lanes}"),
    )
    for matrix, register in enumerate(registers):
        if is_load:
            code.set(register, _emit_load(code, instruction, row_addresses, matrix, mask), "b32")
        else:
            _emit_store(code, instruction, row_addresses, matrix, code.get(register, "b32"), mask)


def _emit_load(code: WarpCode, instruction: ir.Instruction, rows: str, matrix: int, mask: str) -> str:
    """Return the register with each lane's two elements of a matrix."""
    if "trans" not in instruction.parts:
        return memory_ops.gather(code, _emit_element_addresses(code, rows, matrix, None), mask, "b32")
    lower_half, upper_half = (
        code.emitter.convert(
            "zext",
            "i16",
            memory_ops.gather(code, _emit_element_addresses(code, rows, matrix, half_index), mask, "b16"),
            "i32",
        )
        for half_index in range(2)
    )
    return code.emitter.binary(
        "or", "i32", lower_half, code.emitter.binary("shl", "i32", upper_half, "splat (i32 16)")
    )


def _emit_store(
    code: WarpCode, instruction: ir.Instruction, rows: str, matrix: int, value: str, mask: str
) -> None:
    """Emit the stores of each lane's two elements of a matrix."""
    if "trans" not in instruction.parts:
        memory_ops.scatter(code, value, _emit_element_addresses(code, rows, matrix, None), mask, "b32")
        return
    for half_index in range(2):
        shifted_values = code.emitter.binary("lshr", "i32", value, f"splat (i32 {16 * half_index})")
        element_values = code.emitter.convert("trunc", "i32", shifted_values, "i16")
        memory_ops.scatter(
            code, element_values, _emit_element_addresses(code, rows, matrix, half_index), mask, "b16"
        )


def _emit_element_addresses(code: WarpCode, rows: str, matrix: int, transposed_half: int | None) -> str:
    """Return each lane's address of its elements in a matrix, from the addresses of the rows.

    Without transposition, a lane has elements 2 (lane % 4) and the next one of row lane / 4. With
    transposition, they are in two rows, so `transposed_half` is 0 or 1.
    """
    row_order = []
    byte_offsets = []
    for lane in range(layout.LANES):
        row_index = lane // 4
        column_index = 2 * (lane % 4)
        element_row, element_column = (
            (row_index, column_index)
            if transposed_half is None
            else (column_index + transposed_half, row_index)
        )
        row_order.append(f"i32 {_ROWS_PER_MATRIX * matrix + element_row}")
        byte_offsets.append(f"i64 {_ELEMENT_BYTES * element_column}")
    row_starts = code.emitter.op(
        f"shufflevector <32 x i64> {rows}, <32 x i64> poison, <32 x i32> <{', '.join(row_order)}>"
    )
    return code.emitter.binary("add", "i64", row_starts, f"<{', '.join(byte_offsets)}>")
