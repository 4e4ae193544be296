"""Fragments of matrices as the arguments of support functions.

Support functions take and give whole ones by address, so that a kernel's own code stays small however
many it has. Where a program strings registers together that lie apart, they are copied.
"""

from __future__ import annotations

from virtualgpu.compile.ptx import ir
from virtualgpu.engine.lower.fragment_places import KINDS, ROW_BYTES, names_of
from virtualgpu.engine.lower.warp_code import WarpCode


def items_of(operand: ir.Operand | None) -> tuple[ir.Operand | None, ...]:
    """The registers an operand names, braced or not."""
    return operand.items if isinstance(operand, ir.Vector) else (operand,)


def _start(c: WarpCode, operand: ir.Operand | None) -> int | None:
    """Frame offset of a fragment that lies side by side."""
    names = names_of(operand)
    places = [c.plan.slots.get(name) for name in names]
    first = places[0] if places else None
    if first is None or any(c.function.registers[name] not in KINDS for name in names):
        return None
    return first if places == [first + ROW_BYTES * n for n in range(len(places))] else None


def given(c: WarpCode, operand: ir.Operand | None, role: str) -> str:
    """Pointer to what a fragment holds now, one row of lanes a register."""
    e = c.e
    start = _start(c, operand)
    if start is None:
        pointer = _copy(c, operand, role)
        for n, item in enumerate(items_of(operand)):
            row = e.op(f"getelementptr i8, ptr {pointer}, i64 {ROW_BYTES * n}")
            e.raw(f"store <32 x i32> {c.get(item, 'b32')}, ptr {row}, align 64")
        return pointer
    _settle(c, operand)
    return e.op(f"getelementptr i8, ptr %frame, i64 {start}")


def _copy(c: WarpCode, operand: ir.Operand | None, role: str) -> str:
    """Stack space for a fragment; every instruction uses the same."""
    count = len(items_of(operand))
    name = f"%fragment.{role}.{count}"
    line = f"  {name} = alloca [{count} x <32 x i32>], align 64"
    if line not in c.allocas:
        c.allocas.append(line)
    return name


def _settle(c: WarpCode, operand: ir.Operand | None) -> None:
    """Write to the frame what only LLVM values hold."""
    for item in items_of(operand):
        if isinstance(item, ir.Register) and item.name in c.dirty:
            value = c.get(item, "b32")
            pointer = c.slot(item.name)
            c.e.store_lanes("i32", value, pointer, c.mask_v)
            c.dirty.discard(item.name)


def target(c: WarpCode, operand: ir.Operand | None, role: str) -> str:
    """Pointer to where a fragment is to be written, for executing lanes only; `written` follows."""
    start = _start(c, operand)
    if start is None:
        return _copy(c, operand, role)
    if c.guard is not None:
        _settle(c, operand)
    return c.e.op(f"getelementptr i8, ptr %frame, i64 {start}")


def written(c: WarpCode, operand: ir.Operand | None, pointer: str) -> None:
    """A fragment has been written: registers have new values."""
    e = c.e
    if _start(c, operand) is None:
        for n, item in enumerate(items_of(operand)):
            row = e.op(f"getelementptr i8, ptr {pointer}, i64 {ROW_BYTES * n}")
            c.set(item, e.op(f"load <32 x i32>, ptr {row}, align 64"), "b32")
        return
    for item in items_of(operand):
        assert isinstance(item, ir.Register)
        c.cache.pop(item.name, None)
        c.dirty.discard(item.name)
        if c.options.trace:
            c.read(item.name)
