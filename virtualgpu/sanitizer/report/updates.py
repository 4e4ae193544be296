"""Read-modify-write without an atomic: a load, and a store to the same address of what was made of it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from virtualgpu.compile.ptx import ir
from virtualgpu.compile.ptx.flow import cfg
from virtualgpu.engine.observe.origin import Writers, find_writers

# Instructions to look back over; an update takes a few.
_MOST = 24
_ATOMICS = {
    "add": "atomicAdd",
    "sub": "atomicAdd",
    "fma": "atomicAdd",
    "mad": "atomicAdd",
    "min": "atomicMin",
    "max": "atomicMax",
    "and": "atomicAnd",
    "or": "atomicOr",
    "xor": "atomicXor",
}
_MOVES = ("mov", "cvt", "selp")
_WITHOUT_FLOATS = ("atomicMin", "atomicMax")


@dataclass(frozen=True, slots=True)
class Update:
    """One such pair: where the load and the store stand, and the atomic that does the same, if one does."""

    load: int
    store: int
    atomic: str


def checks(function: ir.Function) -> set[int]:
    """Ids of the loads whose value an atomic minimum or maximum of the same address compares again."""
    known = find_writers(function)
    found = set[int]()
    for i in function.instructions:
        if i.root in ("atom", "red") and ("min" in i.parts or "max" in i.parts):
            target = i.operands[0 if i.root == "red" else 1]
            if isinstance(target, ir.Address):
                load, _ = _compared(function, known, target, i)
                found |= {id(load)} if load is not None else set()
    return found


def updates(function: ir.Function) -> dict[int, Update]:
    """The updates of a function, by the ids of their loads and stores."""
    known = find_writers(function)
    found: dict[int, Update] = {}
    for i in function.instructions:
        if i.root != "st" or len(i.operands) < 2 or "param" in i.parts:
            continue
        target = i.operands[0]
        value = i.operands[1]
        if isinstance(target, ir.Address) and isinstance(target.base, ir.Register | ir.Symbol):
            load, atomic = _source(known, target, value, i.pc)
            if load is None:
                load, atomic = _compared(function, known, target, i)
            if load is not None:
                made = Update(load.line, i.line, atomic)
                found[id(i)] = made
                found.setdefault(id(load), made)
    return found


def _source(
    known: Writers, target: ir.Address, value: ir.Operand | None, pc: int
) -> tuple[ir.Instruction | None, str]:
    """The load from the target that what is stored at `pc` was made of, and the atomic that would do it."""
    if not isinstance(value, ir.Register):
        return None, ""
    todo = [value.name]
    seen = {value.name}
    first = ""
    for name in todo:
        if len(seen) > _MOST:
            return None, ""
        for maker in known.by_register.get(name, ()):
            if maker.root == "ld" and maker.operands[1] == target and first and maker.pc < pc:
                return maker, first
            if maker.root in ("ld", "atom", "call") or maker.pc > pc:
                continue
            if not first and maker.root not in _MOVES:
                first = _ATOMICS.get(maker.root, "none")
                if first in _WITHOUT_FLOATS and maker.type.startswith(("f", "bf")):
                    first = "none"
            for operand in maker.operands[1:]:
                if isinstance(operand, ir.Register) and operand.name not in seen:
                    seen.add(operand.name)
                    todo.append(operand.name)
    return None, ""


def _compared(
    function: ir.Function, known: Writers, target: ir.Address, store: ir.Instruction
) -> tuple[ir.Instruction | None, str]:
    """The load from the target on which a branch around the store depends, with no barrier between."""
    code = function.instructions[max(0, store.pc - _MOST) : store.pc]
    for i in code:
        if i.root != "setp" or not _decides(i, code, store):
            continue
        for operand in i.operands[1:]:
            if isinstance(operand, ir.Register):
                for maker in known.by_register.get(operand.name, ()):
                    same = maker.root == "ld" and maker.operands[1] == target
                    between = function.instructions[maker.pc : store.pc]
                    if same and between and not any(map(cfg.is_block_barrier, between)):
                        return maker, "compare"
    return None, ""


def _decides(comparison: ir.Instruction, code: Sequence[ir.Instruction], store: ir.Instruction) -> bool:
    """Whether a comparison says if the store is executed: by its guard, or by a branch over it."""
    made = set(cfg.definitions_and_uses(comparison)[0])
    for i in code:
        if i.pc > comparison.pc and i.root in ("and", "or", "not") and "pred" in i.parts:
            written, read = cfg.definitions_and_uses(i)
            made |= set(written) if made & set(read) else set()
    branches = (i for i in code if i.root == "bra" and i.guard in made)
    return store.guard in made or any(i.target > store.pc for i in branches)
