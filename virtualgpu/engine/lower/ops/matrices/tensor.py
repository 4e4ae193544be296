"""LLVM IR for tensor-core instructions: ``wmma``, ``mma.sync``, ``ldmatrix`` and ``stmatrix``.

Loads and stores of ``wmma`` are ordinary memory accesses of each lane, one element at a time, in a loop that
all instructions of one kind share. The product is a shared function too, so kernels with thousands of them stay
small.
"""

from __future__ import annotations

import numpy as np

from virtualgpu.compile.ptx import ir
from virtualgpu.engine.ir import matrix_product as matrix_ir
from virtualgpu.engine.ir.matrix_product import BYTE_TYPES, FP8_TYPES, ElementPositions, count_per_register
from virtualgpu.engine.lower import fragments
from virtualgpu.engine.lower.ops import memory_ops
from virtualgpu.engine.lower.ops.matrices import matrix_moves, matrix_rows, wmma_layouts
from virtualgpu.engine.lower.warp_code import WarpCode
from virtualgpu.errors import NotSupportedError, PtxError
from virtualgpu.records.fragments import KIND_BITS

_FLOAT_INPUT_TYPES = ("f16", "bf16", "tf32")
_SUPPORTED_TYPES = "it supports f16, bf16, tf32, e4m3, e5m2, s8, u8 and f64"
_WMMA_SHAPES = ((16, 16, 16), (32, 8, 16), (8, 32, 16), (16, 16, 8))


ROOTS = {"wmma", "mma", *matrix_rows.ROOTS}


def emit(code: WarpCode, instruction: ir.Instruction) -> bool:
    """Emit LLVM IR for a tensor-core instruction. Return False for an instruction of any other kind."""
    if is_matrix_product(instruction) and types_of(instruction)[0] == "f64":
        _emit_double_product(code, instruction)
    elif is_matrix_product(instruction):
        _emit_matrix_product(code, instruction)
    elif instruction.root == "wmma":
        _emit_wmma_access(code, instruction)
    elif instruction.root in matrix_rows.ROOTS:
        matrix_rows.emit(code, instruction, _memory_space(instruction))
    else:
        return False
    return True


def is_matrix_product(instruction: ir.Instruction) -> bool:
    """Return whether an instruction multiplies matrix fragments."""
    return instruction.root == "mma" or (
        instruction.root == "wmma" and instruction.parts[1] not in ("load", "store")
    )


def shape_of(instruction: ir.Instruction) -> tuple[int, int, int]:
    """Return the sizes m, n and k of a matrix instruction such as ``….m16n8k16.…``."""
    shape_text = next(
        (
            modifier
            for modifier in instruction.parts
            if modifier[0] == "m" and "n" in modifier and "k" in modifier
        ),
        "",
    )
    try:
        m, n_and_k = shape_text[1:].split("n")
        n, k = n_and_k.split("k")
        return int(m), int(n), int(k)
    except ValueError:
        raise NotSupportedError(f"The virtual GPU does not support {instruction.opcode}.") from None


def extent_of(name: str, shape: tuple[int, int, int]) -> tuple[int, int]:
    """Return the number of rows and columns of the matrix a, b, c or d."""
    m, n, k = shape
    return {"a": (m, k), "b": (k, n)}.get(name, (m, n))


def _compute_mma_positions(name: str, shape: tuple[int, int, int], element_type: str) -> ElementPositions:
    """Return the rows and columns of each lane's elements of an ``mma.sync`` operand."""
    lane = np.arange(32)[:, None]
    lane_group = lane >> 2
    lane_in_group = lane & 3
    _, _, k = shape
    fills_register = element_type in ("tf32", "f64")  # in its register
    if element_type in (*BYTE_TYPES, *FP8_TYPES) and name in "ab":
        element_index = np.arange(shape[0] * k // 32 if name == "a" else k // 4)
        # Runs of four; the runs of A are in both halves of the rows before the columns continue.
        register_pair = element_index >> (3 if name == "a" and shape[0] == 16 else 2)
        inner_index = 4 * lane_in_group + (element_index & 3) + 16 * register_pair
        outer_index = lane_group + (
            8 * (element_index >> 2 & 1) if name == "a" and shape[0] == 16 else 0 * element_index
        )
        return (outer_index, inner_index) if name == "a" else (inner_index, outer_index)
    if name == "a":
        element_index = np.arange(shape[0] * k // 32)
        if fills_register:
            row_count = shape[0] // 8
            return lane_group + 8 * (element_index % row_count), lane_in_group + 4 * (
                element_index // row_count
            )
        return lane_group + 8 * (element_index >> 1 & 1), 2 * lane_in_group + (element_index & 1) + 8 * (
            element_index >> 2
        )
    if name == "b":
        element_index = np.arange(k // 4)
        if fills_register:
            return lane_in_group + 4 * element_index, lane_group + 0 * element_index
        return 2 * lane_in_group + (element_index & 1) + 8 * (
            element_index >> 1
        ), lane_group + 0 * element_index
    element_index = np.arange(shape[0] // 4)
    return lane_group + 8 * (element_index >> 1), 2 * lane_in_group + (element_index & 1)


def positions_of(instruction: ir.Instruction, name: str) -> ElementPositions:
    """Return the rows and columns of the elements that each lane holds, as (32, elements) arrays."""
    shape = shape_of(instruction)
    if instruction.root == "mma":
        return _compute_mma_positions(name, shape, types_of(instruction)[1])
    element_type = instruction.type
    if is_matrix_product(instruction):
        element_type = dict(zip("dabc", types_of(instruction), strict=True))[name]
    return wmma_layouts.positions_of(name, shape, element_type)


def compute_row_positions(instruction: ir.Instruction) -> ElementPositions:
    """Return the rows and columns of each lane's two elements in an ``ldmatrix`` or ``stmatrix`` matrix."""
    lane = np.arange(32)[:, None]
    row_indices = lane >> 2 | np.zeros(2, np.int64)
    pair_indices = 2 * (lane & 3) + np.arange(2)
    return (pair_indices, row_indices) if "trans" in instruction.parts else (row_indices, pair_indices)


def _reorder_fp8(name: str, positions: ElementPositions) -> ElementPositions:
    """Return the positions of FP8 elements in the order of addition: two of every four, then the others."""
    row_indices, column_indices = positions
    summed_indices = column_indices if name == "a" else row_indices
    reordered_indices = summed_indices // 4 * 2 + summed_indices % 2 + summed_indices % 4 // 2 * 16
    return (row_indices, reordered_indices) if name == "a" else (reordered_indices, column_indices)


# -- loads and stores --------------------------------------------------------------------------------


def _memory_space(instruction: ir.Instruction) -> str:
    space = memory_ops.space_of(instruction)
    if space not in ("global", "shared", "generic"):
        raise NotSupportedError(f"The virtual GPU does not support {instruction.opcode} in {space} memory.")
    return space


def _emit_wmma_access(code: WarpCode, instruction: ir.Instruction) -> None:
    """Emit ``wmma.load`` or ``wmma.store``."""
    is_load = instruction.parts[1] == "load"
    matrix_name = instruction.parts[2]
    element_type = f"b{KIND_BITS.get(instruction.type)}"
    if instruction.type not in (*_FLOAT_INPUT_TYPES, *BYTE_TYPES, "f32", "s32", "f64"):
        raise NotSupportedError(
            f"The virtual GPU does not support {instruction.opcode}. As inputs, {_SUPPORTED_TYPES}."
        )
    space = _memory_space(instruction)
    operands = list(instruction.operands)
    fragment = operands.pop(0 if is_load else 1)
    assert isinstance(fragment, ir.Vector)
    shape = shape_of(instruction)
    row_count, column_count = extent_of(matrix_name, shape)
    is_row_major = "row" in instruction.parts
    base_address = memory_ops.address_of(code, operands[0], space)
    stride = (
        code.get(operands[1], "u32")
        if len(operands) > 1
        else f"splat (i32 {column_count if is_row_major else row_count})"
    )
    matrix_move = matrix_moves.MatrixMove(
        f"{matrix_name}_{'x'.join(map(str, shape))}_{instruction.type}",
        memory_ops.make_plain_access(
            instruction, "ld" if is_load else "st", space, ir.TYPE_BYTES[element_type]
        ),
        space,
        element_type,
        positions_of(instruction, matrix_name),
        len(fragment.items),
        is_row_major,
    )
    move_fragment = matrix_moves.emit_double_move if instruction.type == "f64" else matrix_moves.emit_call
    move_fragment(code, instruction, matrix_move, base_address, stride, fragment)


# -- the product -------------------------------------------------------------------------------------


def types_of(instruction: ir.Instruction) -> tuple[str, str, str, str]:
    """Return the element types of a matrix instruction, for the result, both inputs and the accumulator."""
    element_types = [
        modifier
        for modifier in instruction.parts
        if modifier in (*_FLOAT_INPUT_TYPES, *FP8_TYPES, *BYTE_TYPES, "f32", "s32", "f64")
    ]
    if len(element_types) == 2:  # wmma with f16 inputs names only result and accumulator
        element_types = [element_types[0], "f16", "f16", element_types[1]]
    if len(element_types) == 4:
        result_type, a_type, b_type, sum_type = element_types
        is_float_product = a_type == b_type in _FLOAT_INPUT_TYPES and {result_type, sum_type} <= {
            "f16",
            "f32",
        }
        is_float_product |= (
            {a_type, b_type} <= set(FP8_TYPES)
            and result_type == sum_type == "f32"
            and instruction.root == "mma"
        )
        is_double_product = {*element_types} == {"f64"}
        if (
            is_float_product
            or is_double_product
            or ({a_type, b_type} <= set(BYTE_TYPES) and result_type == sum_type == "s32")
        ):
            return result_type, a_type, b_type, sum_type
    raise NotSupportedError(
        f"The virtual GPU does not support {instruction.opcode}. As inputs, {_SUPPORTED_TYPES}."
    )


_MMA_SHAPES = {
    "tf32": ((16, 8, 4), (16, 8, 8)),
    "f16": ((16, 8, 8), (16, 8, 16)),
    "bf16": ((16, 8, 8), (16, 8, 16)),
    **dict.fromkeys(FP8_TYPES, ((16, 8, 32),)),
    **dict.fromkeys(BYTE_TYPES, ((8, 8, 16), (16, 8, 16), (16, 8, 32))),
    "f64": ((8, 8, 4), (16, 8, 4), (16, 8, 8), (16, 8, 16)),
}


def _emit_double_product(code: WarpCode, instruction: ir.Instruction) -> None:
    """Emit a product of doubles: for each element of D, fused multiply-adds in the order of k, as on an H200."""
    m, _, k = shape = shape_of(instruction)
    if shape not in _MMA_SHAPES["f64"] or "sp" in instruction.parts:
        raise NotSupportedError(f"The virtual GPU does not support {instruction.opcode}.")
    a, b, sum_values = (
        [code.get(register, "f64") for register in fragments.list_registers(operand)]
        for operand in instruction.operands[1:]
    )
    for element_index, register in enumerate(fragments.list_registers(instruction.operands[0])):
        element_sum = sum_values[element_index]
        for k_index in range(k):
            # Lanes of one group have the factors of a row of A, or of a column of B.
            a_row, b_column = (
                _permute_lanes(
                    code, lane_values, [4 * lane_group + k_index % 4 for lane_group in lane_groups]
                )
                for lane_values, lane_groups in (
                    (a[k_index // 4 * (m // 8) + element_index // 2], [lane // 4 for lane in range(32)]),
                    (b[k_index // 4], [2 * (lane % 4) + element_index % 2 for lane in range(32)]),
                )
            )
            element_sum = code.emitter.intrinsic("fma", "double", a_row, b_column, element_sum)
        code.set(register, element_sum, "f64")


def _permute_lanes(code: WarpCode, value: str, order: list[int]) -> str:
    """Return a row of doubles in another order of the lanes."""
    lanes = ", ".join(f"i32 {lane}" for lane in order)
    return code.emitter.op(f"shufflevector <32 x double> {value}, <32 x double> poison, <32 x i32> <{lanes}>")


def _emit_matrix_product(code: WarpCode, instruction: ir.Instruction) -> None:
    result_kind, input_kind, second_input_kind, sum_kind = types_of(instruction)
    m, n, k = shape = shape_of(instruction)
    if instruction.root == "mma" and (shape not in _MMA_SHAPES[input_kind] or "sp" in instruction.parts):
        raise NotSupportedError(f"The virtual GPU does not support {instruction.opcode}.")
    if instruction.root == "wmma" and (
        shape not in _WMMA_SHAPES or ("row" not in instruction.parts and "col" not in instruction.parts)
    ):
        raise NotSupportedError(f"The virtual GPU does not support {instruction.opcode}.")
    if "satfinite" in instruction.parts and result_kind == "s32":
        result_kind = "s32.satfinite"
        code.emitter.declared.add("declare i32 @llvm.fptosi.sat.i32.f64(double)")
    matrix_types = {"a": input_kind, "b": second_input_kind, "c": sum_kind, "d": result_kind}
    operands = dict(zip("dabc", instruction.operands, strict=True))
    positions_by_matrix = {}
    for matrix, element_type in matrix_types.items():
        positions_by_matrix[matrix] = positions_of(instruction, matrix)
        if input_kind in FP8_TYPES and matrix in "ab":
            positions_by_matrix[matrix] = _reorder_fp8(matrix, positions_by_matrix[matrix])
        elements_per_lane = positions_by_matrix[matrix][0].shape[1]
        register_count = len(fragments.list_registers(operands[matrix]))
        required_registers = elements_per_lane // count_per_register(element_type)
        if register_count < required_registers or (matrix == "d" and register_count != required_registers):
            raise PtxError(
                f"{instruction.text!r} (line {instruction.line}) needs {required_registers} registers for {matrix.upper()}."
            )
    register_count = len(fragments.list_registers(operands["d"]))
    name = f"{instruction.root}_m{m}n{n}k{k}_{result_kind}_{input_kind}_{second_input_kind}_{sum_kind}"
    if name not in code.tables.support_functions:
        code.add_support_function(
            name,
            matrix_ir.make_matrix_product(name, shape, positions_by_matrix, matrix_types, register_count),
        )
    a, b, accumulator_pointer = (
        fragments.emit_input_pointer(code, operands[matrix], matrix) for matrix in "abc"
    )
    result = fragments.emit_output_pointer(code, operands["d"], "d")
    code.emitter.raw(
        f"call void @{name}(i32 {code.executed_mask(instruction)}, ptr {result}, ptr {a}, ptr {b}, ptr {accumulator_pointer})"
    )
    fragments.finish_output(code, operands["d"], result)
