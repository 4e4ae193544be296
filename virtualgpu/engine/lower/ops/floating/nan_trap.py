"""A trap for the first NaN: arithmetic whose result is NaN although no operand is."""

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


def watches(c: WarpCode, i: ir.Instruction) -> bool:
    """Return whether the trap checks an instruction."""
    return c.options.trap_nan and i.root in _NAN_PRODUCERS and floats.is_float(i.type)


def _is_nan(c: WarpCode, operand: ir.Operand | None, kind: str) -> str:
    value = c.get(operand, kind)
    llvm = llvm_of(kind)
    if kind == "bf16":
        value = floats.widen_bf16(c, value)
        llvm = "float"
    elif kind == "f16":
        value = floats.widen_half(c, value)
        llvm = "float"
    return c.e.compare("uno", llvm, value, value)


def inputs(c: WarpCode, i: ir.Instruction) -> str:
    """Emit the lanes with a NaN among the operands, as an i32 mask.

    Call it before the result overwrites one.
    """
    masks = [c.e.mask_bits(_is_nan(c, operand, i.type)) for operand in i.operands[1:]]
    nan_lanes = masks[0]
    for mask in masks[1:]:
        nan_lanes = c.e.op(f"or i32 {nan_lanes}, {mask}")
    return nan_lanes


def check(c: WarpCode, i: ir.Instruction, nan_inputs: str) -> None:
    """Emit a fault for executing lanes whose result is NaN and whose operands were not."""
    e = c.e
    nan_results = e.op(f"and i32 {e.mask_bits(_is_nan(c, i.operands[0], i.type))}, {c.executed(i)}")
    c.fault_if(e.op(f"and i32 {nan_results}, {e.op(f'xor i32 {nan_inputs}, -1')}"), layout.NAN_PRODUCED, i.pc)
