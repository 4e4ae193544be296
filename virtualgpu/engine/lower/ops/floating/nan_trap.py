"""Trap that stops a kernel at the first instruction whose result is NaN although no operand is NaN."""

from __future__ import annotations

from virtualgpu.compile.ptx import ir
from virtualgpu.engine.ir import layout
from virtualgpu.engine.ir.emit import llvm_of
from virtualgpu.engine.lower.ops.floating import floats
from virtualgpu.engine.lower.warp_code import WarpCode

_NAN_PRODUCERS = {
    "add",
    "sub",
    "mul",
    "mad",
    "fma",
    "div",
    "sqrt",
    "rsqrt",
    "rcp",
    "lg2",
    "ex2",
    "sin",
    "cos",
    "tanh",
}


def is_watched(code: WarpCode, instruction: ir.Instruction) -> bool:
    """Return whether the NaN trap checks the results of an instruction."""
    return code.options.trap_nan and instruction.root in _NAN_PRODUCERS and floats.is_float(instruction.type)


def _emit_nan_test(code: WarpCode, operand: ir.Operand | None, kind: str) -> str:
    value = code.get(operand, kind)
    llvm_type = llvm_of(kind)
    if kind == "bf16":
        value = floats.emit_bf16_to_float(code, value)
        llvm_type = "float"
    elif kind == "f16":
        value = floats.emit_half_to_float(code, value)
        llvm_type = "float"
    return code.emitter.compare("uno", llvm_type, value, value)


def emit_input_test(code: WarpCode, instruction: ir.Instruction) -> str:
    """Emit code that finds the lanes in which an operand is NaN.

    Call this function before the result overwrites an operand.
    """
    nan_masks = [
        code.emitter.mask_bits(_emit_nan_test(code, operand, instruction.type))
        for operand in instruction.operands[1:]
    ]
    nan_lanes = nan_masks[0]
    for mask in nan_masks[1:]:
        nan_lanes = code.emitter.op(f"or i32 {nan_lanes}, {mask}")
    return nan_lanes


def emit_result_check(code: WarpCode, instruction: ir.Instruction, nan_inputs: str) -> None:
    """Emit a fault for active lanes whose result is NaN although no operand is NaN."""
    emitter = code.emitter
    nan_results = emitter.op(
        f"and i32 {emitter.mask_bits(_emit_nan_test(code, instruction.operands[0], instruction.type))}, {code.executed_mask(instruction)}"
    )
    code.emit_fault_if(
        emitter.op(f"and i32 {nan_results}, {emitter.op(f'xor i32 {nan_inputs}, -1')}"),
        layout.NAN_PRODUCED,
        instruction.pc,
    )
