"""Search for read-modify-writes without an atomic: a load, and a store to the same address."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from virtualgpu.compile.ptx import ir
from virtualgpu.compile.ptx.flow import cfg
from virtualgpu.engine.observe.origin import RegisterWriters, find_register_writers

# Number of earlier instructions that are searched; an update has a few.
_MAX_SEARCHED_INSTRUCTIONS = 24
_ATOMIC_OF_OPCODE = {
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
_MOVE_OPCODES = ("mov", "cvt", "selp")
_INTEGER_ATOMICS = ("atomicMin", "atomicMax")


@dataclass(frozen=True, slots=True)
class Update:
    """A read-modify-write of a value, with the lines of its load and store and the atomic function that could
    replace it.
    """

    load_line: int
    store_line: int
    atomic_name: str


def find_rechecks(function: ir.Function) -> set[int]:
    """Return the ids of the loads that only check whether an atomic minimum or maximum is needed."""
    writers = find_register_writers(function)
    load_ids = set[int]()
    for i in function.instructions:
        if i.root in ("atom", "red") and ("min" in i.parts or "max" in i.parts):
            target_operand = i.operands[0 if i.root == "red" else 1]
            if isinstance(target_operand, ir.Address):
                compared_load, _ = _find_compared_load(function, writers, target_operand, i)
                load_ids |= {id(compared_load)} if compared_load is not None else set()
    return load_ids


def find_updates(function: ir.Function) -> dict[int, Update]:
    """Return the read-modify-writes of a function. The keys are the ids of their loads and stores."""
    writers = find_register_writers(function)
    updates_by_id: dict[int, Update] = {}
    for i in function.instructions:
        if i.root != "st" or len(i.operands) < 2 or "param" in i.parts:
            continue
        target_operand = i.operands[0]
        stored_operand = i.operands[1]
        if isinstance(target_operand, ir.Address) and isinstance(
            target_operand.base, ir.Register | ir.Symbol
        ):
            source_load, atomic_name = _find_source_load(writers, target_operand, stored_operand, i.pc)
            if source_load is None:
                source_load, atomic_name = _find_compared_load(function, writers, target_operand, i)
            if source_load is not None:
                update = Update(source_load.line, i.line, atomic_name)
                updates_by_id[id(i)] = update
                updates_by_id.setdefault(id(source_load), update)
    return updates_by_id


def _find_source_load(
    writers: RegisterWriters, target_address: ir.Address, stored_operand: ir.Operand | None, pc: int
) -> tuple[ir.Instruction | None, str]:
    """Return the load on which the value stored at `pc` depends, and the equivalent atomic, if any.

    Both access the same address, `target_address`.
    """
    if not isinstance(stored_operand, ir.Register):
        return None, ""
    pending_names = [stored_operand.name]
    searched_names = {stored_operand.name}
    atomic_name = ""
    for name in pending_names:
        if len(searched_names) > _MAX_SEARCHED_INSTRUCTIONS:
            return None, ""
        for definition in writers.instructions_by_register.get(name, ()):
            if (
                definition.root == "ld"
                and definition.operands[1] == target_address
                and atomic_name
                and definition.pc < pc
            ):
                return definition, atomic_name
            if definition.root in ("ld", "atom", "call") or definition.pc > pc:
                continue
            if not atomic_name and definition.root not in _MOVE_OPCODES:
                atomic_name = _ATOMIC_OF_OPCODE.get(definition.root, "none")
                if atomic_name in _INTEGER_ATOMICS and definition.type.startswith(("f", "bf")):
                    atomic_name = "none"
            for operand in definition.operands[1:]:
                if isinstance(operand, ir.Register) and operand.name not in searched_names:
                    searched_names.add(operand.name)
                    pending_names.append(operand.name)
    return None, ""


def _find_compared_load(
    function: ir.Function, writers: RegisterWriters, target_address: ir.Address, store: ir.Instruction
) -> tuple[ir.Instruction | None, str]:
    """Return the load from the address `target_address` on which a branch around the store depends.

    There is no barrier between the load and the store.
    """
    instructions = function.instructions[max(0, store.pc - _MAX_SEARCHED_INSTRUCTIONS) : store.pc]
    for i in instructions:
        if i.root != "setp" or not _decides_store(i, instructions, store):
            continue
        for operand in i.operands[1:]:
            if isinstance(operand, ir.Register):
                for definition in writers.instructions_by_register.get(operand.name, ()):
                    is_target = definition.root == "ld" and definition.operands[1] == target_address
                    skipped_code = function.instructions[definition.pc : store.pc]
                    if is_target and skipped_code and not any(map(cfg.is_block_barrier, skipped_code)):
                        return definition, "compare"
    return None, ""


def _decides_store(
    comparison: ir.Instruction, instructions: Sequence[ir.Instruction], store: ir.Instruction
) -> bool:
    """Return whether a store is executed only if a comparison is true: by its guard or by a branch."""
    predicates = set(cfg.find_definitions_and_uses(comparison)[0])
    for i in instructions:
        if i.pc > comparison.pc and i.root in ("and", "or", "not") and "pred" in i.parts:
            written_registers, read_registers = cfg.find_definitions_and_uses(i)
            predicates |= set(written_registers) if predicates & set(read_registers) else set()
    branches = (i for i in instructions if i.root == "bra" and i.guard in predicates)
    return store.guard in predicates or any(i.target > store.pc for i in branches)
