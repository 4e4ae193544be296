"""Loads and stores of ``wmma`` fragments, as LLVM IR functions that loop over elements.

Each element is a separate access, which is checked, counted, traced and reported to observers.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from virtualgpu.compile.ptx import ir
from virtualgpu.engine.ir import checks, lanes, layout
from virtualgpu.engine.ir.matrix_product import ElementPositions
from virtualgpu.engine.ir.text import make_field_load, make_splat
from virtualgpu.engine.lower import fragments
from virtualgpu.engine.lower.ops import memory_ops
from virtualgpu.engine.lower.warp_code import WarpCode
from virtualgpu.records.access import Rule


@dataclass(frozen=True, slots=True)
class MatrixMove:
    """The parameters of an LLVM function that loads or stores matrix fragments.

    The string ``matrix_name`` names the matrix and shape, and ``positions`` contains each lane's element
    coordinates. ``is_row_major`` means that memory contains one row after the other.
    """

    matrix_name: str
    access_instruction: ir.Instruction
    space: str
    element_type: str
    positions: ElementPositions
    register_count: int
    is_row_major: bool

    @property
    def element_bytes(self) -> int:
        return ir.TYPE_BYTES[self.element_type]

    @property
    def element_count(self) -> int:
        """Number of matrix elements that each lane holds, without repetitions."""
        return int(self.positions[0].shape[1])

    @property
    def is_load(self) -> bool:
        return self.access_instruction.root == "ld"

    @property
    def address_type(self) -> str:
        """LLVM type of an address, which is i32 for offsets in shared memory and otherwise i64."""
        return "i32" if self.space == "shared" else "i64"

    @property
    def name(self) -> str:
        order = "row" if self.is_row_major else "column"
        return f"wmma_{self.access_instruction.root}_{self.matrix_name}_{order}_{self.space}_{self.element_type}_{self.register_count}"


def emit_call(
    code: WarpCode,
    instruction: ir.Instruction,
    move: MatrixMove,
    base: str,
    stride: str,
    fragment: ir.Operand | None,
) -> None:
    """Emit a call of the function that loads or stores a matrix fragment.

    The value `base` contains each lane's address, and `stride` contains its stride in elements.
    """
    emitter = code.emitter
    access_index = code.assign_access_number(move.access_instruction)
    if move.name not in code.tables.support_functions:
        code.add_support_function(move.name, _make_move_function(code, move))
    pointer_of = fragments.emit_output_pointer if move.is_load else fragments.emit_input_pointer
    registers = pointer_of(code, fragment, "d")
    arguments = [
        "ptr %ctx",
        f"<32 x {move.address_type}> {base}",
        f"<32 x i32> {stride}",
        f"i32 {code.executed_mask(instruction)}",
        f"i32 {code.index}",
        f"i32 {instruction.pc}",
        f"i32 {access_index}",
        f"ptr {registers}",
    ]
    code.leave_on_fault(emitter.op(f"call i1 @{move.name}({', '.join(arguments)})"))
    if move.is_load:
        fragments.finish_output(code, fragment, registers)


def emit_double_move(
    code: WarpCode,
    instruction: ir.Instruction,
    move: MatrixMove,
    base: str,
    stride: str,
    fragment: ir.Operand,
) -> None:
    """Emit a load or a store of a matrix fragment of doubles. The parameters are the same as those of
    `emit_call`.
    """
    emitter = code.emitter
    mask = code.executed_mask(instruction)
    strides = emitter.cast(stride, "i32", move.address_type)
    major_indices, minor_indices = move.positions if move.is_row_major else move.positions[::-1]
    for register, major_index, minor_index in zip(
        fragments.list_registers(fragment), major_indices.T, minor_indices.T, strict=True
    ):
        line_start = emitter.binary(
            "mul", move.address_type, strides, _format_lanes(move.address_type, major_index)
        )
        element_index = emitter.binary(
            "add", move.address_type, line_start, _format_lanes(move.address_type, minor_index)
        )
        offset = emitter.binary(
            "mul", move.address_type, element_index, f"splat ({move.address_type} {move.element_bytes})"
        )
        address = emitter.binary("add", move.address_type, base, offset)
        host_address = memory_ops.host_addresses(
            code, move.access_instruction, address, move.space, move.element_bytes, mask=mask
        )
        if move.is_load:
            code.set(register, memory_ops.gather(code, host_address, mask, "f64"), "f64")
        else:
            memory_ops.scatter(code, code.get(register, "f64"), host_address, mask, "f64")


def _format_lanes(llvm_type: str, numbers: npt.NDArray[np.int64]) -> str:
    """Return an LLVM vector with a number for each lane."""
    return f"<{', '.join(f'{llvm_type} {number}' for number in numbers.tolist())}>"


def _make_move_function(code: WarpCode, move: MatrixMove) -> str:
    """Return the LLVM text of a function that loads or stores a fragment, and returns true after a fault."""
    element_type = f"i{8 * move.element_bytes}"
    part_count = (
        move.element_count
        if move.is_load
        else min(move.element_count, move.register_count * 4 // move.element_bytes)
    )
    parameters = [
        "ptr %ctx",
        f"<32 x {move.address_type}> %base",
        "<32 x i32> %stride32",
    ]
    parameters += ["i32 %mask", "i32 %function", "i32 %pc", "i32 %site", "ptr %registers"]
    move_text = (
        _make_load_text(code, move, element_type)
        if move.is_load
        else _make_store_text(code, move, element_type)
    )
    row_table, column_table = (_format_lane_table(axis_indices.T) for axis_indices in move.positions)
    return f"""
@{move.name}.row = internal constant {row_table}
@{move.name}.column = internal constant {column_table}
define internal i1 @{move.name}({", ".join(parameters)}) noinline {{
entry:
  %parts = alloca [{part_count} x <32 x {element_type}>], align 64
  %told = alloca <32 x i64>
  %lanes = bitcast i32 %mask to <32 x i1>
  br label %loop
loop:
  %n = phi i32 [0, %entry], [%n1, %go.on]
{_make_address_text(code, move)}{_make_check_text(code, move)}
fine:
{_make_report_text(code, move)}{move_text}
  br label %go.on
go.on:
  %n1 = add i32 %n, 1
  %more = icmp ult i32 %n1, {part_count}
  br i1 %more, label %loop, label %done
done:
{_make_packing_text(code, move, element_type, part_count) if move.is_load else ""}  ret i1 false
fail:
  ret i1 true
}}
"""


def _format_lane_table(numbers: npt.NDArray[np.int64]) -> str:
    """Return an LLVM array with a row of lanes for each element."""
    row_texts = [f"<32 x i64> {_format_lanes('i64', row_numbers)}" for row_numbers in numbers]
    return f"[{len(row_texts)} x <32 x i64>] [{', '.join(row_texts)}]"


def _make_address_text(code: WarpCode, move: MatrixMove) -> str:
    """Return LLVM text that computes ``%a``, the address of element ``%n`` in each lane."""
    llvm_type = move.address_type
    major_axis, minor_axis = ("row", "column") if move.is_row_major else ("column", "row")
    truncation_text = (
        "trunc <32 x i64> %bytes to <32 x i32>"
        if llvm_type == "i32"
        else "add <32 x i64> %bytes, zeroinitializer"
    )
    return f"""  %rows = getelementptr <32 x i64>, ptr @{move.name}.row, i32 %n
  %row = load <32 x i64>, ptr %rows
  %columns = getelementptr <32 x i64>, ptr @{move.name}.column, i32 %n
  %column = load <32 x i64>, ptr %columns
  %stride = zext <32 x i32> %stride32 to <32 x i64>
  %lines = mul <32 x i64> %stride, %{major_axis}
  %items = add <32 x i64> %lines, %{minor_axis}
  %bytes = mul <32 x i64> %items, splat (i64 {move.element_bytes})
  %offset = {truncation_text}
  %a = add <32 x {llvm_type}> %base, %offset
"""


def _make_check_text(code: WarpCode, move: MatrixMove) -> str:
    """Return LLVM text that checks and counts an access.

    It continues with the host address ``%host``, or branches to ``fail``.
    """
    rule: Rule = "load" if move.is_load else "store"
    if move.space == "generic":
        name = memory_ops.add_generic_resolver(move.element_bytes, code, rule)
        arguments = "ptr %ctx, <32 x i64> %a, i32 %mask, i32 %function, i32 %pc, i32 %site"
        return f"""  %host = call <32 x i64> @{name}({arguments})
{make_field_load("fault_code", "%code")}  %failed = icmp ne i32 %code, 0
  br i1 %failed, label %fail, label %fine
"""
    make_check = checks.make_shared_check if move.space == "shared" else checks.make_global_check
    name, check_text = make_check(move.element_bytes, code.options.with_counters, rule)
    code.add_support_function(name, check_text)
    llvm_text = (
        f"  %failed = call i1 @{name}(ptr %ctx, <32 x {move.address_type}> %a, i32 %mask, i32 %function, "
        "i32 %pc, i32 %site)\n"
    )
    if move.space == "shared":
        llvm_text += "  %shown = zext <32 x i32> %a to <32 x i64>\n" + make_field_load("shared", "%shared")
        llvm_text += make_splat("i64", "%shared", "%shareds") + "  %host = add <32 x i64> %shareds, %shown\n"
    else:
        llvm_text += "  %host = add <32 x i64> %a, zeroinitializer\n"
    return llvm_text + "  br i1 %failed, label %fail, label %fine\n"


def _make_report_text(code: WarpCode, move: MatrixMove) -> str:
    """Return LLVM text that reports the access to a trace or an observer."""
    reported_address = "%shown" if move.space == "shared" else "%a"
    llvm_text = ""
    if code.options.is_traced:
        trace_level = layout.TRACE_ALL & ~layout.TRACE_SHARED
        llvm_text += _make_trace_text(reported_address, layout.ROW_ADDRESS, trace_level)
    if code.options.is_observed:
        llvm_text += f"  store <32 x i64> {reported_address}, ptr %told\n" + make_field_load(
            "observer", "%observer.i"
        )
        llvm_text += "  %observer = inttoptr i64 %observer.i to ptr\n"
        llvm_text += "  call void %observer(ptr %ctx, i32 %site, ptr %told, i32 %mask, ptr null)\n"
    return llvm_text


def _make_trace_text(lane_values: str, row_kind: int, level: int = layout.TRACE_ALL) -> str:
    """Return LLVM text that adds a row of lanes to the trace."""
    return f"  call void @trace_row(ptr %ctx, <32 x i64> {lane_values}, i32 %mask, i32 {row_kind}, i32 {level})\n"


def _make_load_text(code: WarpCode, move: MatrixMove, element_type: str) -> str:
    """Return LLVM text that loads one element per lane."""
    code.add_support_function(*lanes.make_gather(element_type))
    return (
        f"  %v = call <32 x {element_type}> @gather_{element_type}(<32 x i64> %host, i32 %mask)\n"
        f"  %to = getelementptr <32 x {element_type}>, ptr %parts, i32 %n\n  store <32 x {element_type}> %v, ptr %to\n"
    )


def _make_store_text(code: WarpCode, move: MatrixMove, element_type: str) -> str:
    """Return LLVM text that stores one element per lane."""
    code.add_support_function(*lanes.make_scatter(element_type))
    if element_type == "i16":
        llvm_text = f"""  %register = lshr i32 %n, 1
  %from = getelementptr <32 x i32>, ptr %registers, i32 %register
  %word = load <32 x i32>, ptr %from, align 64
  %half = and i32 %n, 1
  %shift = shl i32 %half, 4
{make_splat("i32", "%shift", "%shifts")}  %moved = lshr <32 x i32> %word, %shifts
  %v = trunc <32 x i32> %moved to <32 x i16>
"""
    else:
        llvm_text = (
            "  %from = getelementptr <32 x i32>, ptr %registers, i32 %n\n"
            "  %v = load <32 x i32>, ptr %from, align 64\n"
        )
    llvm_text += (
        f"  call void @scatter_{element_type}(<32 x {element_type}> %v, <32 x i64> %host, i32 %mask)\n"
    )
    if code.options.is_traced:
        llvm_text += f"  %bits = zext <32 x {element_type}> %v to <32 x i64>\n"
        llvm_text += _make_trace_text("%host", layout.ROW_HOST_ADDRESS) + _make_trace_text(
            "%bits", layout.ROW_WRITTEN + move.element_bytes
        )
    return llvm_text


def _make_packing_text(code: WarpCode, move: MatrixMove, element_type: str, count: int) -> str:
    """Return LLVM text that packs the elements into registers.

    Several registers may contain the same element.
    """
    llvm_text = ""
    element_bits = 8 * move.element_bytes
    elements_per_register = 32 // element_bits  # elements that a register holds, the first one lowest
    for register in range(move.register_count):
        packed_value = ""
        for n in range(elements_per_register):
            element_name = f"%v{register}.{n}"
            llvm_text += f"  %p{register}.{n} = getelementptr <32 x {element_type}>, ptr %parts, i32 {(elements_per_register * register + n) % count}\n"
            llvm_text += f"  {element_name} = load <32 x {element_type}>, ptr %p{register}.{n}\n"
            if elements_per_register > 1:
                llvm_text += f"  %w{register}.{n} = zext <32 x {element_type}> {element_name} to <32 x i32>\n"
                llvm_text += (
                    f"  %h{register}.{n} = shl <32 x i32> %w{register}.{n}, splat (i32 {element_bits * n})\n"
                )
                element_name = f"%h{register}.{n}"
            if packed_value:
                llvm_text += f"  %r{register}.{n} = or <32 x i32> {packed_value}, {element_name}\n"
                element_name = f"%r{register}.{n}"
            packed_value = element_name
        llvm_text += f"  %to{register} = getelementptr <32 x i32>, ptr %registers, i32 {register}\n"
        llvm_text += (
            f"  call void @llvm.masked.store.v32i32.p0(<32 x i32> {packed_value}, ptr align 64 %to{register}, "
            "<32 x i1> %lanes)\n"
        )
    code.emitter.declared.add("declare void @llvm.masked.store.v32i32.p0(<32 x i32>, ptr, <32 x i1>)")
    return llvm_text
