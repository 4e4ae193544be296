"""Where the registers of matrix fragments lie: side by side in the warp's frame.

A kernel on tensor cores holds hundreds of fragments, of up to eight registers each, so its code passes
whole ones by address (see `fragments`).
"""

from __future__ import annotations

from virtualgpu.compile.ptx import ir
from virtualgpu.compile.ptx.flow import cfg

ROOTS = ("wmma", "mma", "ldmatrix")
ROW_BYTES = 128  # one 32-bit register of a warp
KINDS = ("b32", "u32", "s32", "f32", "f16x2", "bf16x2")


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
            names = names_of(operand)
            if not names or any(function.registers.get(name) not in KINDS for name in names):
                continue
            if len(set(names)) == len(names) and found.keys().isdisjoint(names):
                found.update(dict.fromkeys(names, names))
    return list(dict.fromkeys(found.values()))


def names_of(operand: ir.Operand | None) -> tuple[str, ...]:
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
