"""Inference of register types.

PTX declares the width of a register; the instructions that use it determine the rest of its type.

``.b32`` may hold an integer or a float, and loads, stores and moves do not determine which. A register
that a typed instruction reads or writes has that instruction's type, and moves propagate it.
"""

from __future__ import annotations

from collections.abc import Iterator

from virtualgpu.compile.ptx import ir

_MOVE_OPCODES = {"mov", "selp", "shfl"}
_TYPE_LETTERS = ("f", "u", "s")  # strongest evidence first
# Instructions that are the same for both kinds of integer, and so do not distinguish them.
_SIGN_AGNOSTIC_OPCODES = {"add", "sub", "mad", "mul", "ld", "st"}


def infer_register_types(function: ir.Function) -> dict[str, str]:
    """Return the data type of every register of a function, such as ``f32``.

    The type is inferred from the instructions that use the register, or else it is the declared type.
    """
    parents = {name: name for name in function.registers}

    def find_root(name: str) -> str:
        while parents[name] != name:
            parents[name] = parents[parents[name]]
            name = parents[name]
        return name

    used_types_by_register: dict[str, set[str]] = {name: set() for name in parents}
    for instruction in function.instructions:
        if instruction.root in _MOVE_OPCODES and "pred" not in instruction.parts:
            moved_names = [o.name for o in _registers_of(instruction.operands[:3]) if o.name in parents]
            moved_names = [
                n for n in moved_names if function.registers[n] == function.registers[moved_names[0]]
            ]
            for other_name in moved_names[1:] if instruction.root != "shfl" else moved_names[1:2]:
                parents[find_root(other_name)] = find_root(moved_names[0])
            continue
        for register, used_type in _find_typed_registers(instruction):
            if used_type[1:].isdigit() and int(used_type[1:]) == _type_bits(
                function.registers.get(register, "")
            ):
                used_types_by_register[register].add(used_type[0])
    type_letters_by_root: dict[str, set[str]] = {}
    for name, used_letters in used_types_by_register.items():
        type_letters_by_root.setdefault(find_root(name), set()).update(used_letters)
    return {
        name: _infer_type(declared_type, type_letters_by_root[find_root(name)])
        for name, declared_type in function.registers.items()
    }


def _infer_type(declared_type: str, used_letters: set[str]) -> str:
    if not declared_type.startswith("b"):
        return declared_type
    return next(
        (f"{type_letter}{declared_type[1:]}" for type_letter in _TYPE_LETTERS if type_letter in used_letters),
        declared_type,
    )


def _find_typed_registers(instruction: ir.Instruction) -> Iterator[tuple[str, str]]:
    """Yield each register of an instruction with the type in which the instruction uses it."""
    named_types = [
        modifier
        for modifier in instruction.parts[1:]
        if modifier in ir.TYPE_BYTES and modifier[0] in _TYPE_LETTERS
    ]
    if not named_types:
        return
    destination, *sources = instruction.operands or (None,)
    result_type = source_type = named_types[0]
    if instruction.root in ("cvt", "set", "slct") and len(named_types) > 1:
        source_type = named_types[1]
    is_wide = instruction.root in ("mul", "mad") and "wide" in instruction.parts
    if is_wide:
        result_type = f"{source_type[0]}{2 * int(source_type[1:])}"
    if source_type[0] != "f" and instruction.root in _SIGN_AGNOSTIC_OPCODES and not is_wide:
        return
    if instruction.root not in ("st", "red"):
        for register in _registers_of((destination,)):
            yield register.name, result_type
    else:
        sources.append(destination)
    for n, register in enumerate(_registers_of(tuple(sources))):
        yield register.name, result_type if is_wide and n == 2 else source_type


def _registers_of(operands: tuple[ir.Operand | None, ...]) -> Iterator[ir.Register]:
    for operand in operands:
        if isinstance(operand, ir.Register):
            yield operand
        elif isinstance(operand, ir.Vector):
            yield from _registers_of(operand.items)
        elif isinstance(operand, ir.Pair):
            yield from _registers_of((operand.first,))


def _type_bits(declared_type: str) -> int:
    return int(declared_type[1:]) if declared_type[1:].isdigit() else 0
