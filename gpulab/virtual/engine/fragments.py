"""Where the registers of matrix fragments lie: side by side in the warp's frame.

A kernel on tensor cores holds hundreds of fragments, of up to eight registers each. Support functions
take and give whole ones by address, so that a kernel's own code stays small however many it has. Where
a program strings registers together that already lie elsewhere, they are copied.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from gpulab.ptx import cfg, ir

if TYPE_CHECKING:
    from gpulab.virtual.engine.function import FunctionCompiler

ROOTS = ("wmma", "mma", "ldmatrix")
ROW_BYTES = 128  # one 32-bit register of a warp
_KINDS = ("b32", "u32", "s32", "f32", "f16x2", "bf16x2")


def place(function: ir.Function, crossing: set[str], at: int) -> tuple[dict[str, int], int]:
    """Frame offsets for the registers of fragments, and where the frame goes on after them.

    Fragments that no later basic block reads share places with others at other times.
    """
    groups = _groups(function)
    if not groups:
        return {}, at
    spans = _spans(function, {name for group in groups for name in group})
    slots: dict[str, int] = {}

    def put(group: tuple[str, ...], start: int) -> None:
        slots.update((name, start + ROW_BYTES * n) for n, name in enumerate(group))

    passing = []
    for group in groups:
        if crossing.isdisjoint(group):
            passing.append((min(spans[n][0] for n in group), max(spans[n][1] for n in group), group))
        else:
            put(group, at)
            at += ROW_BYTES * len(group)
    free: dict[int, list[int]] = {}
    held: list[tuple[int, int, int]] = []  # last use, registers, place
    for first, last, group in sorted(passing):
        over = [h for h in held if h[0] < first]
        held = [h for h in held if h[0] >= first]
        for _, size, start in over:
            free.setdefault(size, []).append(start)
        vacant = free.get(len(group))
        start = vacant.pop() if vacant else at
        at += 0 if start < at else ROW_BYTES * len(group)
        put(group, start)
        held.append((last, len(group), start))
    return slots, at


def _groups(function: ir.Function) -> list[tuple[str, ...]]:
    found: dict[str, tuple[str, ...]] = {}
    for i in function.instructions:
        if i.root not in ROOTS:
            continue
        for operand in i.operands:
            names = _names(operand)
            if not names or any(function.registers.get(name) not in _KINDS for name in names):
                continue
            if len(set(names)) == len(names) and found.keys().isdisjoint(names):
                found.update(dict.fromkeys(names, names))
    return list(dict.fromkeys(found.values()))


def _names(operand: ir.Operand | None) -> tuple[str, ...]:
    """The registers of a fragment; none if anything else is among them."""
    if not isinstance(operand, ir.Vector):
        return ()
    names = tuple(item.name for item in operand.items if isinstance(item, ir.Register) and not item.negated)
    return names if len(names) == len(operand.items) else ()


def _spans(function: ir.Function, names: set[str]) -> dict[str, tuple[int, int]]:
    """The first and the last instruction that mention a register."""
    spans: dict[str, tuple[int, int]] = {}
    for n, i in enumerate(function.instructions):
        for some in cfg.definitions_and_uses(i):
            for name in names.intersection(some):
                spans[name] = spans.get(name, (n, n))[0], n
    return spans


def items_of(operand: ir.Operand | None) -> tuple[ir.Operand | None, ...]:
    """The registers an operand names, braced or not."""
    return operand.items if isinstance(operand, ir.Vector) else (operand,)


def _start(c: FunctionCompiler, operand: ir.Operand | None) -> int | None:
    """Frame offset of a fragment that lies side by side."""
    names = _names(operand)
    places = [c.plan.slots.get(name) for name in names]
    first = places[0] if places else None
    if first is None or any(c.function.registers[name] not in _KINDS for name in names):
        return None
    return first if places == [first + ROW_BYTES * n for n in range(len(places))] else None


def given(c: FunctionCompiler, operand: ir.Operand | None, role: str) -> str:
    """Pointer to what a fragment holds now, one row of lanes a register."""
    e, start = c.e, _start(c, operand)
    if start is None:
        pointer = _copy(c, operand, role)
        for n, item in enumerate(items_of(operand)):
            row = e.op(f"getelementptr i8, ptr {pointer}, i64 {ROW_BYTES * n}")
            e.raw(f"store <32 x i32> {c.get(item, 'b32')}, ptr {row}, align 64")
        return pointer
    _settle(c, operand)
    return e.op(f"getelementptr i8, ptr %frame, i64 {start}")


def _copy(c: FunctionCompiler, operand: ir.Operand | None, role: str) -> str:
    """Stack space for a fragment; every instruction uses the same."""
    count = len(items_of(operand))
    name = f"%fragment.{role}.{count}"
    line = f"  {name} = alloca [{count} x <32 x i32>], align 64"
    if line not in c.allocas:
        c.allocas.append(line)
    return name


def _settle(c: FunctionCompiler, operand: ir.Operand | None) -> None:
    """Write to the frame what only LLVM values hold."""
    name_ = "llvm.masked.store.v32i32.p0"
    for item in items_of(operand):
        if isinstance(item, ir.Register) and item.name in c.dirty:
            value, pointer = c.get(item, "b32"), c.slot(item.name)
            c.e.declared.add(f"declare void @{name_}(<32 x i32>, ptr, <32 x i1>)")
            c.e.raw(f"call void @{name_}(<32 x i32> {value}, ptr align 64 {pointer}, <32 x i1> {c.mask_v})")
            c.dirty.discard(item.name)


def target(c: FunctionCompiler, operand: ir.Operand | None, role: str) -> str:
    """Pointer to where a fragment is to be written, for executing lanes only; `written` follows."""
    start = _start(c, operand)
    if start is None:
        return _copy(c, operand, role)
    if c.guard is not None:
        _settle(c, operand)
    return c.e.op(f"getelementptr i8, ptr %frame, i64 {start}")


def written(c: FunctionCompiler, operand: ir.Operand | None, pointer: str) -> None:
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
