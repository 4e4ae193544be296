"""A trap for the first NaN: arithmetic that makes one out of operands that are none."""

from __future__ import annotations

from virtualgpu.compile.ptx import ir
from virtualgpu.engine.ir import layout
from virtualgpu.engine.ir.emit import llvm_of
from virtualgpu.engine.lower.ops.floating import floats
from virtualgpu.engine.lower.warp_code import WarpCode

_MAKERS = {
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
    """Whether an instruction is one that the trap looks at."""
    return c.options.trap_nan and i.root in _MAKERS and floats.is_float(i.type)


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
    """Lanes with a NaN among the operands, as an i32 mask; read before the result overwrites one."""
    masks = [c.e.mask_bits(_is_nan(c, operand, i.type)) for operand in i.operands[1:]]
    found = masks[0]
    for mask in masks[1:]:
        found = c.e.op(f"or i32 {found}, {mask}")
    return found


def check(c: WarpCode, i: ir.Instruction, before: str) -> None:
    """Fault if an executing lane has a NaN now that it had not before."""
    e = c.e
    now = e.op(f"and i32 {e.mask_bits(_is_nan(c, i.operands[0], i.type))}, {c.executed(i)}")
    c.fault_if(e.op(f"and i32 {now}, {e.op(f'xor i32 {before}, -1')}"), layout.NAN_PRODUCED, i.pc)
