"""How to read registers: PTX declares them by width, and what is done to them tells the rest.

``.b32`` may hold an integer or a float, and loads, stores and moves do not say which. A register
that any typed instruction reads or writes has that kind, and moves share it.
"""

from __future__ import annotations

from collections.abc import Iterator

from virtualgpu.compile.ptx import ir

_MOVES = {"mov", "selp", "shfl"}
_KINDS = ("f", "u", "s")  # what the strongest evidence is
# Same instruction for both kinds of integer, so it is no evidence for one of them.
_BLIND = {"add", "sub", "mad", "mul", "ld", "st"}


def infer(function: ir.Function) -> dict[str, str]:
    """The type of every register that has been found out, such as ``f32``; declared types else."""
    parents = {name: name for name in function.registers}

    def root(name: str) -> str:
        while parents[name] != name:
            parents[name] = parents[parents[name]]
            name = parents[name]
        return name

    evidence: dict[str, set[str]] = {name: set() for name in parents}
    for i in function.instructions:
        if i.root in _MOVES and "pred" not in i.parts:
            names = [o.name for o in _flat(i.operands[:3]) if o.name in parents]
            names = [n for n in names if function.registers[n] == function.registers[names[0]]]
            for other in names[1:] if i.root != "shfl" else names[1:2]:
                parents[root(other)] = root(names[0])
            continue
        for register, kind in _typed(i):
            if kind[1:].isdigit() and int(kind[1:]) == _bits(function.registers.get(register, "")):
                evidence[register].add(kind[0])
    found: dict[str, set[str]] = {}
    for name, kinds in evidence.items():
        found.setdefault(root(name), set()).update(kinds)
    return {name: _read_as(declared, found[root(name)]) for name, declared in function.registers.items()}


def _read_as(declared: str, kinds: set[str]) -> str:
    if not declared.startswith("b"):
        return declared
    return next((f"{kind}{declared[1:]}" for kind in _KINDS if kind in kinds), declared)


def _typed(i: ir.Instruction) -> Iterator[tuple[str, str]]:
    """Registers of an instruction with the type it takes them for."""
    types = [part for part in i.parts[1:] if part in ir.TYPE_BYTES and part[0] in _KINDS]
    if not types:
        return
    first, *others = i.operands or (None,)
    result = source = types[0]
    if i.root in ("cvt", "set", "slct") and len(types) > 1:
        source = types[1]
    wide = i.root in ("mul", "mad") and "wide" in i.parts
    if wide:
        result = f"{source[0]}{2 * int(source[1:])}"
    if source[0] != "f" and i.root in _BLIND and not wide:
        return
    if i.root not in ("st", "red"):
        for register in _flat((first,)):
            yield register.name, result
    else:
        others.append(first)
    for n, register in enumerate(_flat(tuple(others))):
        yield register.name, result if wide and n == 2 else source


def _flat(operands: tuple[ir.Operand | None, ...]) -> Iterator[ir.Register]:
    for operand in operands:
        if isinstance(operand, ir.Register):
            yield operand
        elif isinstance(operand, ir.Vector):
            yield from _flat(operand.items)
        elif isinstance(operand, ir.Pair):
            yield from _flat((operand.first,))


def _bits(declared: str) -> int:
    return int(declared[1:]) if declared[1:].isdigit() else 0
